#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The signal-selection block: simulated (Icarus), with planted faults that the simulation must catch, and synthesised for an iCE40.
usage: check.py VIADUCT"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / "signal_select"
TOOLS = ["iverilog", "vvp", "yosys", "nextpnr-ice40"]
STEP_S = 300


def run(*words, cwd):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=STEP_S, check=False)
    if done.returncode:
        sys.exit("%s\n%s%s" % (" ".join(map(str, words)), done.stdout[-3000:], done.stderr[-3000:]))
    return done


def simulate(folder, dead=16, rising=0):
    """(what was wrong, how often RESET ended)"""
    run("iverilog", "-g2012", "-DDEAD_PLANT=%d" % dead, "-DRISING_PLANT=%d" % rising, "-I.", "-o", "bench.out", HERE / "bench.v",
        HERE / "signal_select.v", HERE / "clock_mux.v", cwd=folder)
    return tuple(map(int, re.search(r"bad (\d+) ends (\d+)", run("vvp", "bench.out", cwd=folder).stdout).groups()))


def synthesise(folder):
    log = run("yosys", "-p", "read_verilog -sv -I. %s; synth_ice40 -top signal_select -json o.json; stat" % (HERE / "signal_select.v"),
              cwd=folder).stdout
    cells = re.findall(r"SB_LUT4 +(\d+)", log)[-1]
    flops = sum(int(n) for n in re.findall(r"SB_DFF\w* +(\d+)", log[log.rindex("Number of cells"):]))
    placed = run("nextpnr-ice40", "--hx1k", "--package", "tq144", "--json", "o.json", cwd=folder).stderr
    return cells, flops, re.findall(r"Max frequency.*?([\d.]+) MHz", placed)[-1]


def main():
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print("skipped: no %s (tools/install-packages hw)" % ", ".join(missing))
        return 77
    with tempfile.TemporaryDirectory(prefix="viaduct-hw-") as folder:
        table = run(os.path.abspath(sys.argv[1]), "card", "roles", "--verilog", cwd=folder).stdout
        pathlib.Path(folder, "role_table.vh").write_text(table, encoding="utf-8")
        failures = []
        bad, ends = simulate(folder)
        print("simulation: %d wrong, RESET ended %d times" % (bad, ends))
        failures += ["simulation"] if bad or ends < 100 else []
        for name, caught in [("the multiplexer takes rising edges", simulate(folder, rising=1)[0] > 0),
                             ("no dead time", simulate(folder, dead=0)[0] > 0)]:
            print("planted: %s: %s" % (name, "caught" if caught else "NOT CAUGHT"))
            failures += [] if caught else [name]
        print("iCE40 HX1K: %s LUTs, %d flip-flops, %s MHz" % synthesise(folder))
    print("failed: %s" % ", ".join(failures) if failures else "good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
