# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Plans of small fabrics against results by paper and pencil; random fabrics under more load, with longer and narrower
cables; the same seed, the same plan; errors that name their cause. plan.py [COUNT [SEED]]: more random fabrics, or
others."""
import csv
import io
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
from xml.etree import ElementTree

BIN = os.environ["VIADUCT_BUILD_DIR"]
PARTS = pathlib.Path(os.environ["VIADUCT_SOURCE_DIR"]) / "sim/scenarios/parts.ini"
# Without sanitizers, whose runtime alone takes half of the time.
MODEL = os.path.join(BIN, "tests", "viaduct-sim-papers")
plans = itertools.count()
failures = []


def run(*args):
    # How long it may take is the test's limit, which depends on what it is built with.
    return subprocess.run([os.path.join(BIN, "viaduct"), "plan", *args], capture_output=True, text=True, check=False)


def simulate(*args):
    """The same without a table; the model of four plans of five has no sanitizers."""
    model = ["--model", MODEL] if next(plans) % 5 else []
    return subprocess.run([os.path.join(BIN, "viaduct-sim"), "plan-json", *model, *args], capture_output=True, text=True, check=False)


def check(condition, what):
    if not condition:
        failures.append(what)


def plan(line, limits=False):
    result = run(*line.split(), "--json", "-") if limits else simulate(*line.split())
    if result.returncode != 0:
        sys.exit(f"FAILED: viaduct plan {line}: exit code {result.returncode}: {result.stderr}")
    return json.loads(result.stdout)


def within(line, value, low, high, what):
    check(low <= value <= high, f"viaduct plan {line}: {what} is {value:.5g}, not {low:.5g} to {high:.5g}")


# Gen3 x8, MPS 256: 8 lanes x 8 GT/s x 128/130 / 8 bits; Ack and UpdateFC DLLPs of 8 bytes each (256 + 28) x 2.5 / 8 +
# 115 symbols of 8 lanes; SKPs 4 in 1538. A frame of 32 KiB and its record of 64 bytes leave a core's fill buffers as
# TLPs of 64 bytes, each with 24 bytes besides.
TLP_RATE = 8 * 8e9 * 128 / 130 / 8 * (1 - 16 / (8 * int((256 + 28) * 2.5 / 8 + 115)) - 4 / 1538)
PORT = TLP_RATE * 32768 / ((32768 + 64) / 64 * 88)


def bandwidths():
    line = "--hosts 4 --events 200000"
    ring = plan(line, limits=True)
    within(line, ring["port_bytes_per_s"], PORT * 0.9999, PORT * 1.0001, "a port")
    within(line, ring["rows"][0]["host_bytes_per_s"], PORT * 0.99, PORT * 1.001, "a host to its neighbour")
    check("link host" in ring["rows"][0]["limit"], f"viaduct plan {line}: the limit is {ring['rows'][0]['limit']}")
    check(ring["cards"] == 8 and ring["cables"] == 4 and ring["cords"] == 12, f"viaduct plan {line}: counts")
    check(ring["bisection_cables"] == 2, f"viaduct plan {line}: bisection of a ring")
    check(not ring["notes"], f"viaduct plan {line}: notes: {ring['notes']}")
    short = plan("--hosts 4 --events 1000 --saturated", limits=True)
    check(any("above the bound" in note for note in short["notes"]), f"few messages above the bound: {short['notes']}")
    for row in ring["rows"][1:]:
        within(line, row["host_bytes_per_s"] / row["offered_bytes_per_s"], 0.9, 1.1, "what arrives of what is offered")

    # Of 7 messages to all others 4 go up, and are on 1 + 2 + 3 + 4 links there: 7 for each 10.
    line = "--hosts 8 --pattern all-to-all --load 100 --events 200000"
    within(line, plan(line)["rows"][0]["host_bytes_per_s"], PORT * 0.6, PORT * 0.7, "a host of a ring to all")
    # One port takes it all.
    line = "--hosts 9 --topology star --pattern incast --events 100000"
    star = plan(line, limits=True)
    within(line, star["rows"][0]["total_bytes_per_s"], PORT * 0.98, PORT * 1.001, "all into one")
    check("> host 0" in star["rows"][0]["limit"], f"viaduct plan {line}: the limit is {star['rows'][0]['limit']}")
    check(star["switches"] == 1 and star["cards"] == 9 and star["cables"] == 9, f"viaduct plan {line}: counts")
    # A fat tree has as much bandwidth above as below, so every host gets nearly a port's worth.
    line = "--hosts 32 --topology fat-tree --switch pex8749 --pattern all-to-all --events 300000 --load 60"
    tree = plan(line)
    within(line, tree["rows"][0]["host_bytes_per_s"], PORT * 0.55, PORT * 0.65, "a host of a fat tree to all")
    # Small messages are limited by threads, and four of them do more than one.
    one = plan("--hosts 4 --size 64 --channels 1 --events 60000", limits=True)["rows"][0]
    four = plan("--hosts 4 --size 64 --channels 4 --events 60000")["rows"][0]
    within("--size 64", four["host_bytes_per_s"] / one["host_bytes_per_s"], 2, 4.2, "four channels for one")
    check("transfer thread" in one["limit"], f"--size 64 --channels 1: the limit is {one['limit']}")


def latencies():
    # Cut through 3 links there: slot, cable, slot; the neighbour's latency is below one over two relays.
    near = plan("--hosts 6 --load 5 --events 60000")["rows"][0]
    far = plan("--hosts 6 --load 5 --events 60000 --pattern all-to-all")["rows"][0]
    within("--load 5", far["p50_us"] / near["p50_us"], 1.1, 5, "latency to all for that to the neighbour")
    check(near["p50_us"] >= 32768 / TLP_RATE * 1e6, "a frame is faster than its bytes")
    check(near["p50_us"] <= near["p90_us"] <= near["p99_us"] <= near["max_us"], "percentiles in order")
    small = plan("--hosts 64 --pattern barrier --topology star --events 60000")["rows"][0]
    large = plan("--hosts 256 --pattern barrier --topology fat-tree --events 200000")["rows"][0]
    # Dissemination: 6 rounds and 8.
    within("barriers", large["p50_us"] / small["p50_us"], 1.1, 1.6, "256 hosts for 64")
    slots = tempfile_parts({"pipe_slots": "pipe_slots = 1 slots [chosen] x", "bypass": "bypass = 1 buffers [chosen] x"})
    line = f"--hosts 6 --pattern all-to-all --parts {slots} --events 300000"
    tight = plan(line)["rows"][0]
    check(tight["messages"] > 1000 and tight["stuck"] == 0, "a ring with one slot and one bypass buffer goes on")
    # So does a torus: frames that turn from one dimension into the next leave a bubble, too.
    for topology in ("torus:6x6", "torus:4x4x4"):
        line = f"--topology {topology} --pattern all-to-all --load 100 --parts {slots} --events 300000"
        torus = plan(line)["rows"][0]
        check(torus["messages"] > 1000 and torus["stuck"] == 0, f"{line}: {torus['messages']} messages, {torus['stuck']} stuck")
    os.unlink(slots)


def rest():
    # A row that is not at rest shows no latency: the first messages to arrive are the fast ones.
    line = "--hosts 128 --pattern all-to-all --events 100000"
    row = plan(line)["rows"][0]
    check(row["p50_us"] is None and row["max_us"] is None, f"viaduct plan {line}: a latency of {row['p50_us']} us")
    line = "--hosts 8 --pattern all-to-all --events 200000"
    rows = plan(line)["rows"]
    check(all(row["p50_us"] is not None for row in rows), f"viaduct plan {line}: no latency")
    check(rows[0]["p50_us"] >= rows[1]["p50_us"], f"viaduct plan {line}: faster when all is sent than at 20 %")


def bounds():
    # Above 64 hosts no core runs beside the planner; the reference is paper and pencil. A ring's halves are joined by
    # two cables: a host of N sends (N/2)/(N-1) of its messages across.
    for line, share, least in [
            ("--hosts 100 --topology ring --size 4KiB --events 600000", 2 * 99 / 50**2, 0.65),  # the core: 0.70 at 64 hosts
            ("--topology torus:16x8 --events 400000", 16 * 127 / 64**2, 0.6),  # halves of the 16: 2 x 8 cables
            ("--hosts 100 --topology star --events 200000", 99 / (11 * 89), 0.95),  # of a leaf of 11 hosts one cable leads up
            ("--hosts 128 --topology fat-tree --switch pex8749 --events 400000", 1, 0.85)]:
        answer = plan(f"{line} --pattern all-to-all --saturated")
        size = 4096 if "4KiB" in line else 32768
        bound = TLP_RATE * size / ((size + 64) / 64 * 88) * share
        within(line, answer["bound_bytes_per_s"], bound * 0.999, bound * 1.001, "the bound")
        within(line, answer["rows"][0]["host_bytes_per_s"], bound * least, bound * 1.001, "what a host sends to all")
    line = "--hosts 65 --topology star --pattern incast --saturated --events 100000"
    answer = plan(line)
    within(line, answer["bound_bytes_per_s"], PORT / 64 * 0.999, PORT / 64 * 1.001, "the bound")
    check(answer["rows"][0]["host_bytes_per_s"] <= answer["bound_bytes_per_s"] * 1.001, f"viaduct plan {line}: above its bound")


def draw(rng):
    hosts = rng.randint(3, 12)
    topology = rng.choice((f"--hosts {hosts} --topology ring", f"--hosts {hosts} --topology chain", f"--hosts {hosts} --topology star",
                           f"--topology torus:{rng.randint(3, 4)}x{rng.randint(3, 4)}"))
    return (f"{topology} --pattern {rng.choice(('neighbour', 'all-to-all', 'incast'))} --size {rng.choice((64, 512, 4096, 32768))} "
            f"--channels {rng.randint(1, 4)} --events 200000")


def compare(before, after, what):
    """Nothing gets faster. Percentiles are known to 1 %, of some thousand messages. (Not p90: in a chain of nine hosts
    one flow in nine goes all the way back, so p90 is of either kind.)"""
    for key in ("p50_us", "p99_us"):
        if None not in (before[key], after[key]) and after["refused"] == 0:
            check(after[key] >= before[key] * 0.95 - 0.3, f"{what}: {key} from {before[key]:.5g} to {after[key]:.5g}")


# A thread that sleeps reacts later than one that polls, and sleeps less under load: with these options sleeping costs nothing.
AWAKE = {"wake": "wake = 0 us [chosen] x", "wake_spread": "wake_spread = 0 us [chosen] x", "handler": "handler = 0 us [chosen] x",
         "switch": "switch = 0 us [chosen] x", "spin": "spin = 400 ms [chosen] x"}


def loads(count, seed):
    """More load, a longer cable and fewer lanes make nothing faster; nothing is above its ceiling."""
    rng = random.Random(seed)
    near, far = tempfile_parts(AWAKE), tempfile_parts({**AWAKE, "length = 2 m": "length = 9 m [chosen] x"})
    for _ in range(count):
        line = draw(rng)
        most = plan(f"{line} --parts {near} --saturated")
        percents = [share * 100 * most["rows"][0]["host_bytes_per_s"] / most["port_bytes_per_s"] for share in (0.1, 0.3, 0.5, 0.7, 0.9, 1.3)]
        asked = f"{line} --load {','.join(f'{percent:.5g}' for percent in percents)}"
        answer = plan(f"{asked} --parts {near}")
        rows = answer["rows"]
        for before, after in zip(rows, rows[1:]):
            what = f"{line}: {after['load_percent']:.3g} % instead of {before['load_percent']:.3g} %"
            compare(before, after, what)
            left = after["host_bytes_per_s"] / before["host_bytes_per_s"]
            check(left >= 0.9, f"{what}: only {left:.3g} of what arrived before")
        for row in rows:
            noise = 1 + 5 / max(row["messages"], 1) ** 0.5
            ceiling = min(row["offered_bytes_per_s"] * noise, answer["bound_bytes_per_s"] * 1.001)
            check(row["host_bytes_per_s"] <= ceiling, f"{line}: {row['host_bytes_per_s']:.6g} arrive of {ceiling:.6g} bytes/s at most")
        narrow = plan(f"{line} --parts {near} --cable copper-x4 --load {','.join(f'{percent * 2:.5g}' for percent in percents[:3])}")
        for other, name in ((plan(f"{asked} --parts {far}"), "9 m instead of 2"), (narrow, "x4 instead of x8")):
            for before, after in zip(rows[:3], other["rows"]):
                compare(before, after, f"{line}: at {before['load_percent']:.3g} %, {name}")
    os.unlink(near)
    os.unlink(far)


def saturated(count, seed):
    """A fabric that is given all it can carry is never faster than an idle one, with a link cut or whole. Each host has 16 messages under way,
    so by Little's law they take 16 x size / rate on average until they are acknowledged; half of them take at most twice that to arrive."""
    rng, parts = random.Random(seed), tempfile_parts(AWAKE)
    for number in range(count):
        line = draw(rng) if number > 0 else "--topology torus:4x4 --cut 0-1 --pattern all-to-all --size 32768 --events 200000"
        line += f" --parts {parts}"
        answer = plan(f"{line} --saturated")
        most = answer["rows"][0]
        idle = plan(f"{line} --load {10 * most['host_bytes_per_s'] / answer['port_bytes_per_s']:.5g}")["rows"][0]
        if None in (most["p50_us"], idle["p50_us"]):
            continue  # not at rest
        check(most["p50_us"] >= idle["p50_us"], f"{line}: saturated {most['p50_us']} us, at a tenth of that {idle['p50_us']} us")
        size = int(re.search(r"--size (\d+)", line).group(1))
        under_way = most["p50_us"] * 1e-6 * most["host_bytes_per_s"] / size
        check(under_way <= 2 * 16, f"{line}: half of the messages take {most['p50_us']} us or more at {most['host_bytes_per_s']:.4g} bytes/s")
    os.unlink(parts)


def lanes():
    short = "--events 1000 --saturated"
    few = plan(f"--topology torus:4x4x4 {short}")
    check(few["host_lanes"] == 48 and few["board_lanes"] == 48 and few["board"] == "xeon-gen3", f"lanes of a torus: {few}")
    fast = plan(f"--hosts 8 --card gen5-x16 --cable gen5-x16 {short}")
    check(fast["host_lanes"] == 32 and fast["board"] == "xeon-gen5" and fast["card_lanes"] == 32, f"lanes of gen5-x16: {fast}")
    # 32 lanes are 8 links of x4, but a PEX8732 has 8 ports, a PEX8733 18: the lanes end first.
    for chip, ports in (("pex8732", 8), ("pex8733", 8), ("pex8796", 24)):
        star = plan(f"--hosts 6 --topology star --switch {chip} --cable copper-x4 {short}")
        check(star["switch_ports"] == ports and star["switch_ports_used"] == 6, f"ports of a {chip}: {star['switch_ports']}")
    narrow = tempfile_parts({"ports": "ports = 5 ports [chosen] x"})
    star = plan(f"--hosts 6 --topology star --switch pex8732 --cable copper-x4 --parts {narrow} {short}")
    check(star["switches"] == 3 and star["switch_ports"] == 5, f"six hosts below switches of 5 ports: {star['switches']} switches")
    os.unlink(narrow)


def choice():
    # Stores are TLPs of 64 bytes, an engine's are of 256: 24 bytes besides each.
    short = "--hosts 2 --events 1000 --saturated --size"
    large, small = plan(f"{short} 32KiB"), plan(f"{short} 64")
    by_tlps = TLP_RATE * 32768 / ((32768 + 64) / 256 * 280)
    within("32KiB", large["engine_port_bytes_per_s"], by_tlps * 0.99, by_tlps * 1.01, "a port by its engine")
    within("32KiB", large["stores_us"], 32832 / 64 * 88 / TLP_RATE * 1e6, 32832 / 64 * 88 / TLP_RATE * 1e6 + 2, "a body by stores")
    check(small["engine_us"] > small["stores_us"] + 2, "an engine with 2 us of set-up brings 64 bytes as soon as stores")
    check(large["engine_busy_us"] < large["stores_busy_us"], "a thread that stages 32 KiB is kept as long as one that stores them")
    # On a narrow link the TLPs decide: an engine without set-up, copy and register stores is faster before a frame is
    # full.
    quick = tempfile_parts({"setup": "setup = 0 us [chosen] x", "register_store": "register_store = 0 ns [chosen] x",
                            "copy": "copy = 900 GB/s [chosen] x"})
    check(0 < plan(f"{short} 4KiB --cable copper-x4 --parts {quick}")["engine_sooner_bytes"] <= 32768, "an engine for nothing is never sooner")
    slow = tempfile_parts({"setup": "setup = 900 us [chosen] x"})
    check(plan(f"{short} 4KiB --parts {slow}")["engine_sooner_bytes"] == 0, "an engine with 900 us of set-up is faster")
    os.unlink(quick)
    os.unlink(slow)


def pages():
    with tempfile.TemporaryDirectory() as folder:
        first, second, page = (os.path.join(folder, name) for name in ("first.json", "second.json", "plan.html"))
        run("--hosts", "6", "--cut", "2-3", "--events", "20000", "--json", first, "--html", page)
        run("--hosts", "6", "--topology", "star", "--events", "20000", "--json", second)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        root = ElementTree.fromstring(html[html.index("<svg id=\"fabric\""):].split("</svg>")[0] + "</svg>")
        check(len(root.findall("path")) == 6 and len(root.findall("circle")) == 6, "cables and hosts of a ring in its picture")
        titles = [path.find("title").text for path in root.findall("path")]
        check("host 2 - host 3: cut" in titles, f"cables of the picture: {titles}")
        busy = [title for title in titles if title.startswith("host 0 - host 1: ")]
        check(len(busy) == 1 and int(busy[0].split()[5]) > 90, f"a cable that carries all it can: {busy}")
        check("id=\"latency\"" in html and "<polyline" in html and "gen3-x8, 2 a host" in html, "the page lacks a part")
        check("http" not in html and "src=" not in html, "the page asks for something from elsewhere")
        same = run("--diff", first, first).stdout.splitlines()
        check(not any("%" in line and not line[0].isdigit() for line in same), f"a plan differs from itself: {same}")
        differences = run("--diff", first, second).stdout
        for wanted in (r"topology +ring +star", r"cards +12 +6 +-50\.0 %", r"lanes of a host +16 +8", r"latency, p50"):
            check(re.search(wanted, differences), f"--diff does not say '{wanted}': {differences}")
        good = pathlib.Path(first).read_text(encoding="utf-8")
        for text, expected in [("", "not JSON: "), ("{}", "not a plan: no list 'rows'"), ("[" * 99999, "not JSON: "), ("\xff", "not JSON: "),
                               ("{\"rows\": []}", "not a plan: no string 'topology'"), ("{\"rows\": [1]}", "no list 'rows'"), (good + "x", "not JSON: "),
                               (" " * (9 << 20), "larger than any plan"), (good.replace("\"topology\": \"ring", "\"topology\": \"\\u001b[2J"), "printable"),
                               (good.replace("\"limit\": \"", "\"limit\": \"\\u009b"), "'limit' is not up to 200 printable characters"),
                               (good.replace("\"cards\": 12", "\"cards\": NaN"), "'cards' is nan"), (good.replace("\"cards\": 12", "\"cards\": 1e999"), "'cards' is inf"),
                               (good.replace("\"cards\": 12", "\"cards\": true"), "no number 'cards'"), (good.replace("\"cards\": 12", "\"cards\": -1"), "'cards' is -1")]:
            pathlib.Path(second).write_bytes(text.encode("latin-1"))
            result = run("--diff", first, second)
            check(result.returncode == 2 and expected in result.stderr and second in result.stderr,
                  f"--diff with {text[:20]}: {result.returncode}, '{result.stderr.strip()}', not '{expected}'")


def tempfile_parts(changes):
    lines = PARTS.read_text(encoding="utf-8").splitlines()
    for key, line in changes.items():
        lines = [line if old.startswith((key + " = ", key + " [")) else old for old in lines]
    with tempfile.NamedTemporaryFile("w", suffix=".ini", delete=False) as file:
        file.write("\n".join(lines) + "\n")
        return file.name


def repeatable():
    line = ["--topology", "torus:3x4", "--pattern", "all-to-all", "--load", "20,50", "--events", "60000", "--json", "-"]
    first = run(*line).stdout
    check(first == run(*line).stdout, "the same seed, another plan")
    check(first != run(*line, "--seed", "2").stdout, "another seed, the same plan")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.csv")
        table = run("--hosts", "3", "--events", "20000", "--csv", path)
        check("saturates at" in table.stdout and "bisection" in table.stdout, f"not a table: {table.stdout}")
        with open(path, encoding="utf-8") as file:
            rows = list(csv.DictReader(io.StringIO(file.read())))
        check(len(rows) == 6 and rows[0]["cards"] == "6" and float(rows[0]["p99_us"]) > 0, f"not the rows: {rows}")


def ends():
    """A full disk is an error with its cause; a signal that ends the command ends its simulation, too."""
    for args in (["--json", "/dev/full"], ["--csv", "/dev/full"]):
        result = run("--hosts", "3", "--events", "1000", *args)
        check(result.returncode == 2 and "/dev/full: write: No space" in result.stderr, f"{args}: {result.returncode}, {result.stderr}")
    mark = f"VIADUCT_TEST_PLAN={os.getpid()}"  # by which its processes are known
    with subprocess.Popen([os.path.join(BIN, "viaduct"), "plan", "--hosts", "4", "--events", "9000000000"],
                          env={**os.environ, **dict([mark.split("=")])}) as command:
        while len(simulations(mark)) < 2:
            time.sleep(0.01)
            if command.poll() is not None:
                check(False, "a plan of nine billion events has ended")
                return
        command.kill()
    until = time.monotonic() + 20
    while simulations(mark) and time.monotonic() < until:
        time.sleep(0.01)
    check(not simulations(mark), "the simulation of a plan that was killed goes on")


def simulations(mark):
    """Processes of the simulator with that in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_model = (path / "cmdline").read_bytes().split(b"\0")[1:2] == [b"model"]
            if is_model and mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(path)
        except OSError:
            continue
    return found


def bad_input():
    wrong = tempfile_parts({"chip": "chip = pex9999 [chosen] x"})
    wide = tempfile_parts({"cables": "cables = 6 cables [chosen] x"})
    long = tempfile_parts({"pipe_slots": "pipe_slots = 0 slots [chosen] x"})
    bare = tempfile_parts({"pipe_slots": "pipe_slots = 4 [chosen] x"})
    strange = tempfile_parts({"pipe_slots": "pipe_slots = 4 slots [chosen] x\npipes = 4 slots [chosen] x"})
    at = 1 + [line.split(" = ")[0] for line in PARTS.read_text(encoding="utf-8").splitlines()].index("pipe_slots")
    for line, expected in [
            ("", "--topology ring: how many hosts?"), ("--hosts 1", "--hosts: not a number from 2 to 1024: '1'"),
            ("--hosts 1025", "--hosts: not a number"), ("--hosts 4 --topology knot", "--topology knot: no such topology"),
            ("--hosts 4 --cut 0-2", "ring of 4 hosts: no link joins 0 and 2"), ("--hosts 4 --cut 0", "--cut: expected two hosts"),
            ("--hosts 4 --cut 0-1 --cut 1-0", "1-0 is cut twice"), ("--hosts 4 --cut 0-9", "no link joins 0 and 9"),
            ("--hosts 4 --cut 0-1 --cut 2-3", "without 2-3 not all hosts reach host 0"),
            ("--hosts 4 --topology star --cut 0-1", "a host has one cable"),
            ("--hosts 65 --core", "--core: up to 64 hosts"), ("--hosts 4 --core --size 1MiB", "messages of up to 32768 bytes"),
            ("--hosts 4 --card x", "parts.ini: there is no [card x]; it has gen3-x8"),
            ("--hosts 4 --cable string", "there is no [cable string]; it has"),
            (f"--hosts 4 --parts {wide}", "[card gen3-x8] cables: pex8749 has 48 lanes, slot and cables of copper-x8 need"),
            ("--hosts 200 --topology star --switch pex8733", "[switch pex8733] lanes: a star of chips with 4 ports of x8"),
            ("--topology torus:4x4x4 --card gen5-x16 --cable gen5-x16", "[board xeon-gen5] lanes: 80, and the 6 cards of a host need 96"),
            ("--hosts 4 --card gen5-x16 --cable gen5-x16 --board xeon-gen3", "[board xeon-gen3] generation: [slot gen5-x16] needs 5"),
            ("--hosts 4 --board oak", "there is no [board oak]; it has xeon-gen3"), ("--diff /tmp", "a second plan is missing"),
            ("--diff /no/such /no/such", "/no/such: open: No such file"),
            ("--hosts 4 --topology star --switch x", "there is no [switch x]"),
            ("--hosts 4 --switch pex8749", "--switch pex8749: a ring has no switches"),
            ("--hosts 4 --pattern barrier --load 10", "--load: barriers follow each other"),
            ("--hosts 4 --csv - --json -", "--csv and --json: only one of them to standard output"),
            ("--hosts " + "9" * 5000, "--hosts: not a number from 2 to 1024"), ("--hosts 4 --size 2GiB", "--size: expected"),
            ("--hosts 4 --size 0", "--size: expected"), ("--hosts 4 --size 4KB", "--size: expected"),
            ("--hosts 4 --load 10,", "--load: expected"), ("--hosts 4 --load 0", "--load: expected"),
            ("--hosts 4 --pattern knit", "--pattern: expected"), ("--hosts 4 --seed x", "--seed: not a number"),
            ("--hosts 4 --channels 15", "--channels: not a number"), ("--hosts 4 --wheels 4", "unknown option '--wheels'"),
            ("--hosts 4 --events 1", "--events: not a number"), ("--hosts", "needs a value: '--hosts'"),
            ("--hosts 4 more", "takes options only, not 'more'"),
            ("--hosts 4 --parts /no/such", "/no/such: open: No such file"),
            ("--hosts 4 --csv /no/such/file --events 1000", "/no/such/file: open: No such file"),
            (f"--hosts 4 --parts {wrong}", f"{wrong}: there is no [switch pex9999]"),
            (f"--hosts 4 --parts {bare}", f"{bare}:{at}: [viaduct] pipe_slots: the unit is missing"),
            (f"--hosts 4 --parts {strange}", f"{strange}:{at + 1}: [viaduct] pipes: unknown key"),
            (f"--hosts 4 --parts {long}", f"{long}:{at}: [viaduct] pipe_slots: out of range: 1 to 65536 slots are allowed")]:
        result = (run if "--diff" in line or "--csv" in line else simulate)(*line.split())
        check(result.returncode == 2 and expected in result.stderr,
              f"viaduct plan {line}: exit code {result.returncode}, says '{result.stderr.strip()}', not '{expected}'")
    for path in (wrong, wide, long, bare, strange):
        os.unlink(path)


def main():
    loads(int(sys.argv[1]) if len(sys.argv) > 1 else 2, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    saturated(3, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for part in (bandwidths, bounds, choice, lanes, latencies, rest, repeatable, pages, ends, bad_input):
        part()
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
