#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs signal_select/test_select.py once (cocotb, Icarus); the last line says how many tests passed and failed.
usage: run_cocotb.py FOLDER [PARAMETER=VALUE]...    FOLDER has role_table.vh and roles.txt"""

import pathlib
import sys

from cocotb_tools.runner import get_runner

HERE = pathlib.Path(__file__).resolve().parent / "signal_select"


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    parameters = dict(word.split("=") for word in sys.argv[2:])
    build = folder / ("cocotb" + "".join("-%s" % word for word in sys.argv[2:]))
    sys.path.insert(0, str(HERE))  # the simulator's Python gets this path
    runner = get_runner("icarus")
    runner.build(sources=[HERE / name for name in ("signal_select.v", "clock_mux.v", "top.v")], includes=[folder], hdl_toplevel="top",
                 parameters=parameters, build_dir=build, build_args=["-g2012"], timescale=("1ns", "1ps"))
    results = runner.test(hdl_toplevel="top", test_module="test_select", test_dir=build, build_dir=build, results_xml="results.xml",
                          extra_env={"ROLES": str(folder / "roles.txt"), "PYTHONDONTWRITEBYTECODE": "1"})
    text = pathlib.Path(results).read_text(encoding="utf-8")
    failed = text.count("<failure") + text.count("<error")
    print("cocotb: %d passed, %d failed" % (text.count("<testcase") - failed, failed))


if __name__ == "__main__":
    main()
