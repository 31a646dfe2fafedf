#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The signal-selection block: simulated (Icarus; tests in cocotb), proved (Yosys, ABC), all with planted faults that must be caught, and
synthesised for an iCE40.
usage: check.py VIADUCT"""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / "signal_select"
TOOLS = ["iverilog", "vvp", "yosys", "yosys-abc", "nextpnr-ice40"]
STEP_S = 300
COCOTB_TESTS = 7
PROOF_S = 200
INDUCTION_STEPS = 72  # more than proof.v counts in calm
PROOFS = [  # property, whether it holds, parameters of proof.v
    ("never two sources, no glitch, clocks that stop and begin at any step", True, {"DEAD": 8}),
    ("no glitch at all, and kill takes nothing, while clocks run", True, {"DEAD": 8, "RUNNING": 1}),
    ("RESET ends, every role of the table, whatever the clocks do", True, {"DEAD": 8, "CLOCKS": 0}),
    ("the multiplexer takes rising edges", False, {"DEAD": 8, "RISING": 1}),
    ("fast select: no dead time", False, {"DEAD": 0}),
    ("the dead time is too short for a clock that runs", False, {"DEAD": 2, "RUNNING": 1}),
    ("a role of the table is another one's", False, {"DEAD": 8, "CLOCKS": 0, "WRONG_ROLE": 1}),
]
TIMES_STEPS = 80  # steps that find any planted fault of the times; the proof needs 2
TIMES_ASKED = {"settle": 5000, "debounce": 100}  # of the card: 100 us at 50 MHz (CEM), 2 us
TIMES_SMALL = {"settle": 8, "debounce": 4}
TIMES = [  # what, whether it holds, what is asked, how long the counters are, (text, what it is replaced by) of the source
    ("the clock and the source of RESET have settled, RESET is low long enough, straps are debounced", True, TIMES_ASKED, TIMES_ASKED, None),
    ("RESET ends before the clock has settled", False, TIMES_SMALL, {"settle": 6, "debounce": 4}, None),
    ("straps are taken early", False, TIMES_SMALL, {"settle": 8, "debounce": 3}, None),
    ("a source that falls is debounced first", False, TIMES_SMALL, TIMES_SMALL, ("steady[3] & sync1[3]", "steady[3]")),
    ("RESET counts on where it was", False, TIMES_SMALL, TIMES_SMALL,
     ("(!source_n) begin\n                    state <= HOLD; count <= 0;", "(!source_n) begin\n                    state <= HOLD;")),
]


def run(*words, cwd, env=None):
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=STEP_S, check=False)
    if done.returncode:
        sys.exit("%s\n%s%s" % (" ".join(map(str, words)), done.stdout[-3000:], done.stderr[-3000:]))
    return done


def simulate(folder, dead=16, rising=0):
    """(what was wrong, how often RESET ended)"""
    run("iverilog", "-g2012", "-DDEAD_PLANT=%d" % dead, "-DRISING_PLANT=%d" % rising, "-I.", "-o", "bench.out", HERE / "bench.v",
        HERE / "signal_select.v", HERE / "clock_mux.v", cwd=folder)
    return tuple(map(int, re.search(r"bad (\d+) ends (\d+)", run("vvp", "bench.out", cwd=folder).stdout).groups()))


def prove(folder, **parameters):
    """"proved" for all times, or the number of the step in which an assertion fails, or None"""
    sources = " ".join(str(HERE / name) for name in ("signal_select.v", "clock_mux.v", "proof.v"))
    settings = " ".join("-set %s %d" % item for item in parameters.items())
    run("yosys", "-q", "-p", "read_verilog -sv -formal -I. %s; chparam %s proof; prep -flatten -top proof; memory_map; clk2fflogic; opt_clean; "
        "opt -full -fast; techmap; simplemap; dffunmap; abc -g AND -fast; opt_clean; write_aiger -zinit proof.aig" % (sources, settings), cwd=folder)
    ask = "read_aiger proof.aig; fold; orpos; strash; dc2; scorr; "
    if "CLOCKS" in parameters:  # induction over as many steps as calm counts; the first steps on their own
        log = run("yosys-abc", "-c", ask + "bmc3 -F %d" % (INDUCTION_STEPS + 8), cwd=folder).stdout
        if "No output asserted" in log:
            log += run("yosys-abc", "-c", ask + "ind -F %d -C 0" % INDUCTION_STEPS, cwd=folder).stdout
    else:
        log = run("yosys-abc", "-c", ask + "pdr -T %d" % PROOF_S, cwd=folder).stdout
    failed = re.search(r"was asserted in frame (\d+)", log)
    return "proved" if re.search(r"Property proved|Networks are equivalent\.", log) else int(failed.group(1)) if failed else None


def prove_times(folder, asked, counters, fault):
    """as prove(): one clock, so induction over two steps does, also with the card's counters"""
    source = (HERE / "signal_select.v").read_text(encoding="utf-8")
    if fault:
        assert source.count(fault[0]) == 1, "the fault is planted in one place"
        source = source.replace(*fault)
    pathlib.Path(folder, "times.v").write_text(source, encoding="utf-8")
    run("yosys", "-q", "-p", "read_verilog -sv -formal -DTIMING -DCLAIM_SETTLE=%d -DCLAIM_DEBOUNCE=%d -I. -I%s times.v %s; "
        "chparam -set SETTLE %d -set DEBOUNCE %d timing; prep -flatten -top timing; memory_map; opt -full -fast; techmap; simplemap; dffunmap; "
        "abc -g AND -fast; opt_clean; write_aiger -zinit times.aig" % (asked["settle"], asked["debounce"], HERE, HERE / "timing.v",
                                                                      counters["settle"], counters["debounce"]), cwd=folder)
    steps = TIMES_STEPS if fault or counters != asked else 2
    log = run("yosys-abc", "-c", "read_aiger times.aig; fold; orpos; strash; bmc3 -F %d; ind -F 2 -C 0" % steps, cwd=folder).stdout
    failed = re.search(r"was asserted in frame (\d+)", log)
    return int(failed.group(1)) if failed else "proved" if re.search(r"Networks are equivalent\.", log) else None


def check_proofs(folder):
    """names of what failed"""
    failures = []
    questions = [(name, wanted, lambda p=parameters: prove(folder, **p)) for name, wanted, parameters in PROOFS]
    questions += [(name, wanted, lambda p=rest: prove_times(folder, *p)) for name, wanted, *rest in TIMES]
    for name, wanted, ask in questions:
        found = ask()
        good = found == "proved" if wanted else isinstance(found, int)
        verdict = "proved" if found == "proved" else "NOT DECIDED" if found is None else "fails at step %d" % found
        print("%s: %s: %s" % ("proof" if wanted else "planted, proof", name, verdict if good or wanted else "NOT CAUGHT (%s)" % verdict))
        failures += [] if good else ["proof: " + name]
    return failures


def run_cocotb(folder, *parameters):
    """(how many tests passed, failed) of test_select.py"""
    log = run(sys.executable, HERE.parent / "run_cocotb.py", folder, *parameters, cwd=folder).stdout
    return tuple(map(int, re.search(r"cocotb: (\d+) passed, (\d+) failed", log).groups()))


def check_cocotb(folder, viaduct):
    """names of what failed"""
    if importlib.util.find_spec("cocotb_tools") is None:
        print("cocotb: skipped, it is not there")
        return []
    pathlib.Path(folder, "roles.txt").write_text(run(viaduct, "card", "roles", "pex8749-x8", cwd=folder).stdout, encoding="utf-8")
    passed, failed = run_cocotb(folder)
    print("cocotb: %d tests passed, %d failed" % (passed, failed))
    failures = ["cocotb"] if failed or passed < COCOTB_TESTS else []
    for name, fault in [("the multiplexer takes rising edges", "RISING=1"), ("no dead time", "DEAD=0"), ("RESET ends early", "SETTLE=20"),
                        ("straps are taken early", "DEBOUNCE=2")]:
        caught = run_cocotb(folder, fault)[1] > 0
        print("planted, cocotb: %s: %s" % (name, "caught" if caught else "NOT CAUGHT"))
        failures += [] if caught else ["cocotb: " + name]
    return failures


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
        pathlib.Path(folder, "roles.vh").write_text(table.replace("role_table", "role_wanted"), encoding="utf-8")
        failures = check_proofs(folder)
        bad, ends = simulate(folder)
        print("simulation: %d wrong, RESET ended %d times" % (bad, ends))
        failures += ["simulation"] if bad or ends < 100 else []
        failures += check_cocotb(folder, os.path.abspath(sys.argv[1]))
        for name, caught in [("the multiplexer takes rising edges", simulate(folder, rising=1)[0] > 0),
                             ("no dead time", simulate(folder, dead=0)[0] > 0)]:
            print("planted: %s: %s" % (name, "caught" if caught else "NOT CAUGHT"))
            failures += [] if caught else [name]
        print("iCE40 HX1K: %s LUTs, %d flip-flops, %s MHz" % synthesise(folder))
    print("failed: %s" % ", ".join(failures) if failures else "good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
