# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The published systems' models obey physics: a longer, slower or narrower path makes no figure better; a
longer measurement moves no figure by more than 1 % (B: 2 %); no figure is above the ceiling of its own link."""
import csv
import io
import os
import pathlib
import random
import re
import subprocess
import sys

MODEL = os.path.join(os.environ["VIADUCT_BUILD_DIR"], "tests", "viaduct-sim-papers")
SOURCE = pathlib.Path(os.environ["VIADUCT_SOURCE_DIR"])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tools"))
import sim_model  # noqa: E402
# Polls and exponential times are drawn, so that a mean has this error; the scenarios' counts are chosen for it.
ERROR = 0.01
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def figures(paper, *changes, unit="MB/s", bounded=True):
    """{(series, label, x): model} of all figures of a unit that a paper has, with values changed."""
    args = [str(SOURCE / "tools/sim-paper"), paper, "--model", MODEL, "--scenarios", str(SOURCE / "sim/scenarios"), "--csv", "-"] + ["--bounded"] * bounded
    for change in changes:
        args += ["--set", change]
    result = subprocess.run(args, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"FAILED: {' '.join(args)}: exit code {result.returncode}: {result.stderr}")
    return {(row["series"], row["label"], row["x"]): float(row["model"])
            for row in csv.DictReader(io.StringIO(result.stdout)) if row["model"] and row["unit"] == unit}


def no_better(paper, steps):
    """Each step is worse for the path than the one before: no bandwidth grows."""
    before = figures(paper, *steps[0])
    for i in range(1, len(steps)):
        after = figures(paper, *steps[i])
        for key, value in after.items():
            check(value <= before[key] * (1 + ERROR),
                  f"{paper}: {steps[i]} instead of {steps[i - 1]}: {key} from {before[key]:.6g} to {value:.6g} MB/s")
        before = after


def monotone():
    rng = random.Random(1)
    cables = sorted([2, 4] + [round(rng.uniform(1, 10), 2) for _ in range(2)])
    no_better("A", [[f"link cable-a length={metres}", f"link cable-b length={metres}"] for metres in cables])
    no_better("A", [[f"link slot-b lanes={lanes}"] for lanes in (8, 4, 1)])
    no_better("A", [[f"switch chip forward={ns}"] for ns in (150, 1000)])
    no_better("C", [[f"link optical-x16-box length={metres}"] for metres in (0.1, 0.3, 0.5)])
    no_better("E", [[f"link slot lanes={lanes}"] for lanes in (8, 4, 1)])
    no_better("E", [[f"device kintex drain={ns}"] for ns in (0, 100, 200)])
    no_better("D", [[f"sdp pin={ns}"] for ns in (450, 900)])


def claims():
    """The statements of docs/costs.md besides its tables."""
    rates = {(label, x): model for (_, label, x), model in figures("A", bounded=False).items()}
    for size, times in (("64", 1.15), ("65536", 1.78)):
        gain = rates["doorbell", size] / rates["polling", size]
        check(abs(gain / times - 1) < 0.02, f"A: a doorbell and two buffers are {gain:.3g} times as fast at {size} bytes, not {times}")
    for pin, times in ((450, 8.43), (300, 11.8)):
        less = [model for (series, _, _), model in figures("D", f"sdp pin={pin}", unit="times").items() if series.startswith("CPU, ")]
        check(len(less) == 1 and abs(less[0] / times - 1) < 0.02, f"D: pages pinned in {pin} ns: {less} times less CPU, not {times}")


def steady():
    for paper, key, times in (("D", "sdp time", (80, 110, 200)), ("A", "stream writes", (64, 96))):
        first = figures(paper, f"{key}={times[0]}")
        for time in times[1:]:
            for name, value in figures(paper, f"{key}={time}").items():
                check(abs(value / first[name] - 1) <= ERROR,
                      f"{paper}: {key} {time} instead of {times[0]}: {name} from {first[name]:.6g} to {value:.6g} MB/s")


class Ring:
    """The model of B: ps per put of a host, and of a put, with all hosts putting."""

    def __init__(self):
        self.model = sim_model.Model(MODEL)

    def send_request(self, hosts, threads, size, puts, *changes):
        scenarios = SOURCE / "sim/scenarios"
        self.model.load("ring", scenarios / "paper-b.ini", scenarios / "parts.ini", changes)
        return self.model.send_request("ring", hosts, threads, hosts, 16, puts, size)[:2]

    def raw(self, size):
        return size / self.model.send_request("raw", size)[0] * 1e6


def ring():
    """B: of random rings, longer or narrower cables, slower steps and more hosts make nothing faster; four times as many puts move
    a latency and a throughput by 2 % at most; no link carries more than it can."""
    rng, model = random.Random(2), Ring()
    ceiling = link_rate(8, 128 / 130, 8, 256, 115) * 256 / 280 / 1e6
    for _ in range(6):
        case = hosts, threads, size = rng.randint(3, 5), rng.choice((1, 2, 4, 8)), rng.choice((4096, 16384, 65536, 262144, 1048576))
        puts = 250
        put, latency = model.send_request(*case, puts)
        # An acknowledgement is as long as the data, so each put passes each link of the ring once.
        carried = hosts * size / put * 1e6
        check(carried <= ceiling, f"B: {case}: a link carries {carried:.6g} MB/s, above its {ceiling:.6g}")
        for worse in ([f"link cable length={rng.uniform(2.5, 10):.2f}"], ["link cable lanes=4"], [f"ring translation={rng.uniform(4, 12):.2f}"],
                      [f"ring take={rng.uniform(3, 9):.2f}"], [f"software handler={rng.uniform(5, 12):.2f}"], ["memory copy=4"], ["link left_slot lanes=4"]):
            after = model.send_request(*case, puts, *worse)
            check(after[0] >= put * (1 - ERROR) and after[1] >= latency * (1 - ERROR),
                  f"B: {case}: {worse}: a put from {put / 1e6:.6g} to {after[0] / 1e6:.6g} us, its latency from {latency / 1e6:.6g} to {after[1] / 1e6:.6g}")
        more = model.send_request(hosts + 1, threads, size, puts)
        check(more[1] >= latency * (1 - ERROR), f"B: {case}: one host more: latency from {latency / 1e6:.6g} to {more[1] / 1e6:.6g} us")
        longer = model.send_request(*case, 4 * puts)
        check(abs(longer[0] / put - 1) <= 2 * ERROR and abs(longer[1] / latency - 1) <= 2 * ERROR,
              f"B: {case}: four times as many puts: {put / 1e6:.6g} to {longer[0] / 1e6:.6g} us, latency {latency / 1e6:.6g} to {longer[1] / 1e6:.6g}")
    for size in (4096, 1 << 20, 4 << 20):
        check(model.raw(size) <= ceiling, f"B: DMA alone of {size} bytes: {model.raw(size):.6g} MB/s, above {ceiling:.6g}")
    model.model.close()


def link_rate(giga, code, lanes, mps, delay):
    """Bytes per second for TLPs: Ack and UpdateFC DLLPs and SKPs taken off. In a symbol time each lane carries a
    byte."""
    limit = int((mps + 28) * 2.5 / lanes + delay)
    return lanes * giga * 1e9 * code / 8 * (1 - 16 / (limit * lanes) - 4 / 1538)


def ceilings():
    # Gen1 x8, completions of 128 bytes with 20 besides.
    ceiling = link_rate(2.5, 0.8, 8, 128, 19) * 128 / 148 / 1e6
    for name, value in figures("D").items():
        check(value <= ceiling, f"D: {name}: {value:.6g} MB/s is above its PCIe link's {ceiling:.6g}")
    # Gen2 x8: 64 bytes of 88; a single line has to be filled before it is sent, at a store a cycle of 2.6 GHz.
    rate = link_rate(5, 0.8, 8, 128, 70)
    alone = 64 / (8 / 2.6e9 + 88 / rate) / 1e6
    result = figures("E")
    for name, value in result.items():
        check(name[1] == "" or name[0] != "Rate by size" or value <= rate * 64 / 88 / 1e6,
              f"E: {name}: {value:.6g} MB/s is above the link's {rate * 64 / 88e6:.6g}")
    value = result[("Rate by size", "write-combined", "64")]
    check(value <= alone * 1.001, f"E: 64 B: {value:.6g} MB/s, but filling and sending a line allows {alone:.6g}")
    # Gen3 x8 with TLPs of 256 bytes.
    for name, value in figures("A").items():
        ceiling = link_rate(8, 128 / 130, 8, 256, 115) * 256 / 276 / 1e6
        check(value <= ceiling, f"A: {name}: {value:.6g} MB/s is above its link's {ceiling:.6g}")


def conditions():
    """Each scenario names the paper's section of each condition, or that it has none."""
    for path in sorted((SOURCE / "sim/scenarios").glob("paper-?.ini")):
        text = path.read_text(encoding="utf-8")
        for condition in ("threads", "senders", "memory", "sizes"):
            found = re.search(rf"(?m)^#   {condition}: +(.*)$", text)
            check(found is not None and re.search(r"\((?:.*; )?(?:no section|section \d|table \d)|not stated", found.group(1)),
                  f"{path}: no section of {condition}")


def main():
    for part in (conditions, monotone, claims, steady, ceilings, ring):
        part()
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
