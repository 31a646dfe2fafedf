# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct-sim parts: a machine whose values are known is measured (by the model), and they are found again from the figures and
the listings of lspci, together with the figures that were not used; wrong input gets an error that names the mistake."""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BIN = os.environ["VIADUCT_BUILD_DIR"]
SIM = os.path.join(BIN, "viaduct-sim")
# Without sanitizers, whose runtime alone takes most of the time.
MODEL = os.path.join(BIN, "tests", "viaduct-sim-papers")
SCENARIOS = pathlib.Path(os.environ["VIADUCT_SOURCE_DIR"]) / "sim/scenarios"
failures = []

# The true values of the machine: [section] key, value and unit.
TRUE = {("pio", "store"): (3.1, "ns"), ("pio", "uncached_drain"): (92.0, "ns"), ("software", "register_store"): (92.0, "ns"),
        ("software", "register_read"): (345.0, "ns"),
        ("dma pex87xx", "setup"): (4.3, "us"), ("dma pex87xx", "request_interval"): (131.0, "ns"), ("memory", "copy"): (7300.0, "MB/s")}

NEAR = """00:01.0 PCI bridge [0604]: Intel Corporation Root Port [8086:1901] (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=01, subordinate=04, sec-latency=0
\tCapabilities: [a0] Express (v2) Root Port (Slot+), MSI 00
\t\tDevCtl:\tCorrErr- NonFatalErr-
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkSta:\tSpeed 8GT/s (ok), Width x8 (downgraded)

01:00.0 PCI bridge [0604]: PLX Technology, Inc. Device [10b5:8749] (rev ca) (prog-if 00 [Normal decode])
\tBus: primary=01, secondary=02, subordinate=04, sec-latency=0
\tCapabilities: [68] Express (v2) Upstream Port, MSI 00
\t\tDevCap:\tMaxPayload 2048 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr- NonFatalErr- FatalErr- UnsupReq-
\t\t\tRlxdOrd- ExtTag- PhantFunc- AuxPwr- NoSnoop+
\t\t\tMaxPayload 128 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 8GT/s (ok), Width x8 (downgraded)

02:11.0 Bridge [0680]: PLX Technology, Inc. Device [10b5:87b0] (rev ca)
\tCapabilities: [68] Express (v2) Endpoint, MSI 00
\t\tDevCap:\tMaxPayload 2048 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr-
\t\t\tMaxPayload 128 bytes, MaxReadReq 512 bytes
\t\tLnkSta:\tSpeed 8GT/s (ok), Width x16 (ok)

02:12.0 Non-Essential Instrumentation [1300]: Something else [1234:5678]
"""
FAR = """0000:00:03.0 PCI bridge [0604]: Intel Corporation Root Port [8086:1901]
\tBus: primary=00, secondary=05, subordinate=06, sec-latency=0
\tCapabilities: [a0] Express (v2) Root Port (Slot+), MSI 00

0000:05:00.0 Bridge [0680]: PLX Technology, Inc. Device [10b5:87a0] (rev ca)
\tCapabilities: [68] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr-
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkSta:\tSpeed 5GT/s, Width x4, TrErr- Train- SlotClk+
"""


def check(condition, what):
    if not condition:
        failures.append(what)


def write(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return str(path)


def measured(folder, scenario):
    """The output of viaduct perf pio on a machine that behaves as the model, with the values of TRUE."""
    parts = (SCENARIOS / "parts.ini").read_text(encoding="utf-8")
    for (section, key), (value, unit) in TRUE.items():
        parts, count = re.subn(rf"(?ms)(^\[{section}\]$(?:(?!^\[).)*?^{key} = )[^\n]*", rf"\g<1>{value} {unit} [chosen] x", parts)
        assert count == 1, (section, key)
    parts = re.sub(r"(?m)^mrrs = .*", "mrrs = 512 B [chosen] x", parts)
    text = subprocess.run([SIM, "measure", "--model", MODEL, "--parts", write(folder, "true.ini", parts), scenario], capture_output=True, text=True, check=True).stdout
    load_ns = 1e3 * float(re.search(r"(?m)^read +([\d.]+)", text).group(1))
    rows, kind = [{"way": "memcpy", "bytes": 1 << 20, "median_ns": 1, "bytes_per_second": TRUE[("memory", "copy")][0] * 1e6}], None
    for line in text.splitlines():
        kind = {"write-combined": "wc", "uncached": "uc", "DMA,": "dma"}.get(line.split()[0], kind)
        cells = line.split()
        if re.match(r" +\d", line) and int(cells[0]) in (8, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576):
            row = {"way": "dma" if kind == "dma" else "store", "bytes": int(cells[0]), "bytes_per_second": 1e6 * float(cells[2])}
            row["median_ns"] = 1e3 * float(cells[1 if kind == "dma" else 3])
            rows.append(row)
            if kind != "dma":
                row |= {"arrival_ns": row["median_ns"] + load_ns, "caching": kind, "store": "8", "store_bytes": 8, "nontemporal": False}
                # A way that is slower is not to be taken.
                rows.append(row | {"store": "4", "store_bytes": 4, "median_ns": 2 * row["median_ns"]})
    return {"limits": [], "rows": rows}


def run(folder, *args):
    return subprocess.run([SIM, "parts", "--model", MODEL, "--output", os.path.join(folder, "out"), *args], capture_output=True, text=True, check=False)


def value(text, section, key):
    return re.search(rf"(?ms)^\[{section}\]$(?:(?!^\[).)*?^{key} = (\S+ \S+ \[\w+\])", text).group(1)


def recovery(folder):
    near, pio = write(folder, "near.txt", NEAR), os.path.join(folder, "pio.json")
    write(folder, "pio.json", json.dumps({"rows": [], "limits": []}))
    result = run(folder, "--pio", pio, "--lspci", near)
    check(result.returncode == 0, f"no figures at all: {result.stderr}")
    machine = os.path.join(folder, "out/machine.ini")
    text = pathlib.Path(machine).read_text(encoding="utf-8")
    for key, wanted in (("generation", "3 generation [typical]"), ("lanes", "8 lanes [typical]"), ("mps", "128 B [typical]")):
        check(value(text, "link slot-a", key) == wanted, f"the slot's {key} is {value(text, 'link slot-a', key)}")
    check("[switch card-b: pex8749]" in text and value(text, "link cable-1", "lanes") == "8 lanes [chosen]", f"the far side: {text}")
    write(folder, "pio.json", json.dumps(measured(folder, machine)))
    write(folder, "pingpong.json", json.dumps({"rows": [{"bytes": 8, "ns": 1000}]}))
    result = run(folder, "--pio", pio, "--lspci", near, "--pingpong", os.path.join(folder, "pingpong.json"))
    check(result.returncode == 0, f"exit code {result.returncode}: {result.stderr}")
    parts = pathlib.Path(folder, "out/parts.ini").read_text(encoding="utf-8")
    for (section, key), (wanted, unit) in TRUE.items():
        number, found_unit, mark = value(parts, section, key).split()
        check(abs(float(number) / wanted - 1) < 0.01 and found_unit == unit and mark == "[typical]",
              f"[{section}] {key} is {wanted} {unit}, found {number} {found_unit}")
    errors = re.findall(r"(?m)^(write-combined|DMA|one way) +(\d+) .* ([-+][\d.]+)%$", result.stdout)
    check({what for what, _, _ in errors} == {"write-combined", "DMA", "one way"}, f"not compared: {result.stdout}")
    check(all(abs(float(error)) < 1 for what, _, error in errors if what != "one way"), f"figures that were not used: {errors}")
    plan = subprocess.run([SIM, "plan", "--hosts", "4", "--parts", os.path.join(folder, "out/parts.ini")], capture_output=True, text=True, check=False)
    check(plan.returncode == 0, f"plan does not take the parts: {plan.stderr}")
    # With the far host's listing the cable is known, and that it ends at a root port.
    result = run(folder, "--pio", pio, "--lspci", near, "--far-lspci", write(folder, "far.txt", FAR), "--cable", "optics:30")
    text = pathlib.Path(machine).read_text(encoding="utf-8")
    check(result.returncode == 0 and value(text, "link cable-1", "generation") == "2 generation [typical]" and
          value(text, "link cable-1", "lanes") == "4 lanes [typical]" and "b = b [typical]" in text and "card-b" not in text and
          "medium = optics" in text, f"the cable: {result.stderr}{text}")


def stores(count, median_ns, width=8):
    return {"way": "store", "bytes": count, "median_ns": median_ns, "store": "8", "store_bytes": width, "caching": "wc"}


def other_listings(folder):
    """What lspci prints elsewhere: carriage returns, blanks for tabs, longer domains, names that are no UTF-8."""
    empty = write(folder, "empty.json", json.dumps({"rows": []}))
    for what, text in (("\\r", NEAR.replace("\n", "\r\n")), ("blanks", NEAR.replace("\t", "        ")),
                       ("domain", re.sub(r"(?m)^(?=0)", "10000:", NEAR)), ("latin1", NEAR.replace("Something", "\xe9"))):
        pathlib.Path(folder, "near.txt").write_bytes(text.encode("latin-1"))
        result = run(folder, "--pio", empty, "--lspci", os.path.join(folder, "near.txt"))
        check(result.returncode == 0, f"{what}: exit code {result.returncode}, says '{result.stderr.strip()}'")
    write(folder, "near.txt", NEAR)


def bad_input(folder):
    near, pio = os.path.join(folder, "near.txt"), os.path.join(folder, "pio.json")
    emulated = write(folder, "emulated.json", json.dumps({"limits": ["the window is memory of this machine: x"], "rows": []}))
    for what, lspci, figures, expected in [
            ("no ids", NEAR.replace("[10b5:87b0]", ""), pio, "02:11.0: no vendor and device in brackets"),
            ("not root", re.sub(r"(?s)\tCapabilities: \[68\].*?\n\n", "\tCapabilities: <access denied>\n\n", NEAR), pio, "shown to root only"),
            ("no device", NEAR.replace("87b0", "8749"), pio, "no NT function of a PEX 87xx"),
            ("link down", NEAR.replace("Speed 8GT/s (ok), Width x8", "Speed 8GT/s (ok), Width x0"), pio, "its link is down"),
            ("another chip", NEAR.replace("10b5:8749", "10b5:9999"), pio, "the parts have no [switch pex9999]; name one by --chip: pex8732"),
            ("a circle", NEAR.replace("01:00.0 PCI bridge", "02:00.0 PCI bridge"), pio, "bridges form a circle"),
            ("nothing", "hello\n", pio, "no function of PCI"), ("an imitation", NEAR, emulated, "says nothing of PCIe"),
            ("no JSON", NEAR, near, "not what viaduct perf pio --json prints"), ("no file", NEAR, "/no/such", "/no/such: No such file")]:
        result = run(folder, "--pio", figures, "--lspci", write(folder, "bad.txt", lspci))
        check(result.returncode == 1 and expected in result.stderr and "Traceback" not in result.stderr,
              f"{what}: exit code {result.returncode}, says '{result.stderr.strip()}'")
    for what, rows, expected in [
            ("NaN", [stores(64, math.nan)], "'median_ns' is nan, not a number above 0"), ("negative", [stores(64, -5)], "'median_ns' is -5"),
            ("no bytes", [stores(0, 5)], "'bytes' is 0"), ("infinite bytes", [stores(math.inf, 5)], "'bytes' is inf"),
            ("no store", [{"way": "store", "bytes": 64, "median_ns": 5}], "'store' is missing"), ("rows of another kind", 5, "not iterable"),
            ("no rate", [{"way": "memcpy", "bytes": 64, "median_ns": 5}], "'bytes_per_second' is missing"),
            ("a store of three bytes", [stores(16384, 6e3, 3), stores(1 << 20, 4e5, 3)], "the resulting parts.ini:")]:
        result = run(folder, "--pio", write(folder, "bad.json", json.dumps({"rows": rows})), "--lspci", near)
        check(result.returncode == 1 and expected in result.stderr and "Traceback" not in result.stderr,
              f"{what}: exit code {result.returncode}, says '{result.stderr.strip()}'")
    # Microseconds instead of nanoseconds, and a machine that is faster the more it has to do.
    for what, figures in (("other units", (3.3, 190)), ("negative", (9e4, 1e4))):
        rows = [stores(16384, figures[0]), stores(1 << 20, figures[1])]
        result = run(folder, "--pio", write(folder, "bad.json", json.dumps({"rows": rows})), "--lspci", near)
        check(result.returncode == 0 and "[pio] store" in result.stdout and "contradiction: 16384 and 1048576 B differ by" in result.stdout,
              f"{what}: {result.stdout}{result.stderr}")
    check(run(folder, "--pio", emulated, "--lspci", near, "--imitation").returncode == 0, "--imitation is refused")


def main():
    with tempfile.TemporaryDirectory() as folder:
        recovery(folder)
        other_listings(folder)
        bad_input(folder)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
