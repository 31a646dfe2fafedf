# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct-sim measure: chains of random length and width obey physics; wrong scenarios get an error with its reason.
measure.py [COUNT [SEED]]: more chains, or others."""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

SIM = os.path.join(os.environ["VIADUCT_BUILD_DIR"], "viaduct-sim")
# Without sanitizers, whose runtime alone takes most of the time.
MODEL = os.path.join(os.environ["VIADUCT_BUILD_DIR"], "tests", "viaduct-sim-papers")
SCENARIOS = pathlib.Path(os.environ["VIADUCT_SOURCE_DIR"]) / "sim/scenarios"
EXAMPLES = SCENARIOS / "examples"
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def run(*args, model=MODEL):
    return subprocess.run([SIM, "measure", "--model", model, "--parts", str(SCENARIOS / "parts.ini"), *args], capture_output=True, text=True, check=False)


def measure(path, model=MODEL):
    """{"one way": us, "read": us, ("pio", bytes): us, ("uncached", bytes): us, ("dma", bytes): us}"""
    result = run(str(path), model=model)
    if result.returncode != 0:
        sys.exit(f"FAILED: measure {path}: exit code {result.returncode}: {result.stderr}")
    found, kind = {}, ""
    for line in result.stdout.splitlines():
        if line.startswith(("one way", "read ")):
            found[line[:7].strip()] = float(re.search(r"[\d.]+", line).group())
        elif line.startswith(("write-combined", "uncached", "DMA")):
            kind = {"w": "pio", "u": "uncached", "D": "dma"}[line[0]]
        elif re.match(r" +\d+( +[\d.]+)+$", line):
            cells = [float(cell) for cell in line.split()]
            found[(kind, int(cells[0]))] = cells[1]
            check(kind == "dma" or cells[3] < cells[1], f"{path}: {line}: seen before it has left")
    return found


def chain(folder, generation, lanes, metres, switches, mps=256, engine=()):
    """Two hosts, two adapters, a number of switches between them, and an engine, whose values may be others."""
    nodes = ["card-a"] + [f"switch-{i}" for i in range(switches)] + ["card-b"]
    chip, medium = ("pex8749", "copper") if generation <= 3 else ("pex88096", "copper-gen4")
    lines = ["[host a: server]", "[host b: server]"] + [f"[switch {node}: {chip}]" for node in nodes] + ["[dma card-a: pex87xx]"]
    lines += [f"{value} [chosen] x" for value in engine]
    links = [("a", "card-a", "board", 0.2), ("card-b", "b", "board", 0.2)]
    links += [(one, other, medium, metres) for one, other in zip(nodes, nodes[1:])]
    for i, (one, other, medium, length) in enumerate(links):
        lines += [f"[link link-{i}]", f"a = {one} [chosen] x", f"b = {other} [chosen] x", f"generation = {generation} gen [chosen] x",
                  f"lanes = {lanes} lanes [chosen] x", f"mps = {mps} B [chosen] x", f"medium = {medium} [chosen] x",
                  f"length = {length} m [chosen] x"]
    path = pathlib.Path(folder) / "chain.ini"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# Symbol times until an Ack is due: PCIe base specification, tables 3-7 to 3-9 (8 GT/s: also for faster rates).
ACK_LIMITS = {(2, 128): 118, (2, 256): 158, (2, 512): 137, (3, 128): 163, (3, 256): 203, (3, 512): 182}
ACK_LIMITS_X16 = {(2, 128): 99, (2, 256): 123, (2, 512): 137, (3, 128): 144, (3, 256): 168, (3, 512): 182}


def raw_rate(generation, lanes):
    return {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130}[generation] * lanes * 1e9 / 8


def rate(generation, lanes, mps=256):
    """Bandwidth left for TLPs: an Ack and an UpdateFC, 8 bytes each, in each Ack latency limit, in whose symbol times each lane carries
    a byte; and SKPs."""
    factor = 1.4 if lanes <= 4 else 2.5 if lanes == 8 else 3
    limit = int((mps + 28) * factor / lanes + {1: 19, 2: 70, 3: 115}[generation]) if lanes < 8 or generation < 2 else \
        (ACK_LIMITS if lanes == 8 else ACK_LIMITS_X16)[min(generation, 3), mps]
    return raw_rate(generation, lanes) * (1 - 16 / (limit * lanes) - 4 / 1538)


def part(key):
    """Nanoseconds of a value in parts.ini."""
    return float(re.search(rf"(?m)^{key} = ([\d.]+) ns", (SCENARIOS / "parts.ini").read_text(encoding="utf-8")).group(1))


def slope(found, kind):
    """MB/s by the difference between the largest transfer and half of it: the time before the first byte is left out."""
    size = max(bytes_ for one, bytes_ in (key for key in found if isinstance(key, tuple)) if one == kind)
    return (size // 2) / (found[kind, size] - found[kind, size // 2])


def closed_forms(folder):
    """Gen2 x8, Gen3 x8 and Gen4 x16 by hand. Stores leave as TLPs of 64 bytes and 24 besides, and a core makes 8 bytes a cycle of 2.6 GHz;
    an engine's reads come back as completions of up to 256 bytes and 20 besides, go on as writes of MPS and 24 besides, and there are
    as many requests of MRRS under way as it has tags."""
    for generation, lanes in ((2, 8), (3, 8), (4, 16)):
        for mps in (128, 256, 512):
            link = rate(generation, lanes, mps) / 1e6
            eager = measure(chain(folder, generation, lanes, 1, 0, mps, ("request_interval = 0 ns", "tags = 1024 tags", "mrrs = 4096 B")))
            cut = min(mps, 256)
            for kind, wanted in (("pio", min(link * 64 / 88, 8000 / part("store"))), ("uncached", min(link * 8 / 32, 8000 / part("uncached_drain"))),
                                 ("dma", min(link * mps / (mps + 24), link * cut / (cut + 20)))):
                got = slope(eager, kind)
                check(abs(got / wanted - 1) < 0.003, f"Gen{generation} x{lanes}, MPS {mps}: {kind} {got:.5g} MB/s, by hand {wanted:.5g}")
    # Reads wait for their answers: with one tag, one request takes a round trip; n tags are n times as fast, until the link is full.
    by_tags = {tags: slope(measure(chain(folder, 3, 8, 1, 0, 256, ("request_interval = 0 ns", f"tags = {tags} tags"))), "dma") for tags in (1, 2, 4, 32)}
    for tags in (2, 4):
        check(abs(by_tags[tags] / by_tags[1] / tags - 1) < 0.05, f"{tags} tags: {by_tags[tags]:.5g} MB/s, one: {by_tags[1]:.5g}")
    check(0.3 < 512 / by_tags[1] < 1.2, f"a request of 512 bytes and its completions take {512 / by_tags[1]:.3g} us")
    check(by_tags[32] <= rate(3, 8) * 256 / 280 / 1e6 * 1.001, f"32 tags: {by_tags[32]:.5g} MB/s, above the link")


def physics(folder, count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        base = [rng.randint(1, 3), rng.choice((4, 8)), round(rng.uniform(0.5, 9), 2), rng.randint(0, 3)]
        before = measure(chain(folder, *base))
        worse = [[base[0], base[1] // 2, base[2], base[3]], [base[0], base[1], base[2] + rng.uniform(0.1, 1), base[3]],
                 [base[0], base[1], base[2], base[3] + 1]]
        if base[0] > 1:
            worse.append([base[0] - 1] + base[1:])
        for other in worse:
            after = measure(chain(folder, *other))
            for what, time in before.items():
                check(after[what] >= time, f"{other} instead of {base} (generation, lanes, metres, switches): {what} from {time} to {after[what]} us")
        for what, time in before.items():
            if isinstance(what, tuple):
                # Stores are TLPs of 64 bytes, or of 8, an engine's of 256 at most.
                share = {"pio": 64 / 88, "uncached": 8 / 32, "dma": 256 / 280}[what[0]]
                ceiling = rate(base[0], base[1]) * share / 1e6
                check(what[1] / time <= ceiling * 1.001, f"{base}: {what}: {what[1] / time:.5g} MB/s, above the link's {ceiling:.5g}")
                times = [time for (kind, _), time in sorted((k, t) for k, t in before.items() if isinstance(k, tuple) and k[0] == what[0])]
                check(times == sorted(times), f"{base}: {what[0]}: more bytes take less time")


def examples():
    names = {path.stem: measure(path, SIM) for path in sorted(EXAMPLES.glob("*.ini"))}
    check(len(names) == 5, f"the examples: {list(names)}")
    check(names["gen3-x8-pair"]["one way"] < names["gen3-x8-one-switch"]["one way"] < names["gen3-x8-two-switches"]["one way"],
          "a switch more takes no time")
    check(names["gen4-x16-pair"][("pio", 1 << 20)] < names["gen3-x8-pair"][("pio", 1 << 20)] < names["gen2-x8-pair"][("pio", 1 << 20)],
          "a wider link stores no faster")


def bad_input(folder):
    example = str(EXAMPLES / "gen3-x8-pair.ini")
    path = chain(folder, 3, 8, 2, 0)
    text = path.read_text(encoding="utf-8")
    for change, expected in [(("card-a: pex8749", "card-a: pex1"), "has no such part"), (("copper", "string"), "there is no [medium string]"),
                             (("length = 2 m", "length = 11 m"), "copper reaches no farther than 10 m"),
                             (("[dma card-a:", "[dma other:"), "an engine is in a node, and there is no 'other'")]:
        path.write_text(text.replace(*change), encoding="utf-8")
        result = run(str(path))
        check(result.returncode == 2 and expected in result.stderr, f"{change}: exit code {result.returncode}, says '{result.stderr.strip()}'")
    for args, expected in [((), "which one? 'FILE'"), ((example, "x"), "one scenario at a time"), ((example, "--from", "z"), "there is no host or device to measure from 'z'"),
                           ((example, "--to", "a"), "from 'a' to itself"), ((example, "--fast"), "unknown option '--fast'"),
                           ((example, "--from", "card-a"), "there is no host or device to measure from 'card-a'"),
                           ((example, "--to", "card-b"), "there is no host or device to measure to 'card-b'"),
                           (("/dev/null",), "expected two hosts, or a host and a device"),
                           ((str(EXAMPLES / "gen4-x16-pair.ini"), "--dma"), "--dma needs an engine"), (("/no/such",), "/no/such: open: No such file")]:
        result = run(*args)
        check(result.returncode == 2 and expected in result.stderr, f"{args}: exit code {result.returncode}, says '{result.stderr.strip()}'")


def main():
    with tempfile.TemporaryDirectory() as folder:
        physics(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 3, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
        closed_forms(folder)
        examples()
        bad_input(folder)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
