# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct sim truth: what it concludes from figures, that it ends and leaves nothing behind, and what it says is wrong.
Whether the model is right is no question for a test: that depends on what else the machine does."""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

BIN = os.environ["VIADUCT_BUILD_DIR"]
SCRIPT = os.path.join(os.environ["VIADUCT_SOURCE_DIR"], "tools/sim-truth")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("sim_truth", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sim_truth", loader))
    loader.exec_module(module)
    return module


def verdicts(module):
    same, steady = (2,) * 8, [[2.4, 2.4]]
    for ratios, models, expected in [(same, steady, "within"), ((1.95, 2, 2.05, 2, 2, 2, 2, 9, 0.1), steady, "within"),
                                     (same, [[2.6, 2.6]], "outside"), (same, [[1.4, 1.4]], "outside"),
                                     ((1, 1.2, 2, 2.8, 3, 2, 1.1, 2.9), steady, "unclear"), ((2,) * 5, steady, "unclear"),
                                     (same, [[2.0, 2.5]], "unclear"),
                                     # Of twelve rounds the machine was the same in every other one.
                                     ((2, 9) * 6, [[2, 2.1], [2, 3]], "within")]:
        pairs = [[(5, 5 * before), (5.5, 5.5 * after)] for before, after in models]
        samples = [{"real_us": (3, 3 * ratio), "model_us": pairs[index % len(pairs)]} for index, ratio in enumerate(ratios)]
        row = module.judge(("a", "b"), samples)
        check(row["verdict"] == expected, f"{ratios} and {models}: {row['verdict']}, not {expected}")
    for count, expected in [(5, None), (6, (1, 6)), (12, (3, 10)), (30, (10, 21))]:
        interval = module.median_interval(list(range(count, 0, -1)))
        check(interval == expected, f"median of {count}: in {interval}, not {expected}")


def hanging(module):
    module.HANG_S = 0.1
    try:
        module.Machine("/bin", False, 1).run("sleep", "9")
        check(False, "what hangs is waited for")
    except module.Failure as failure:
        check(str(failure) == "sleep 9: not done after 0.1 s", f"what hangs: {failure}")


def truth(*words):
    # How long it may take is the test's limit, which depends on what it is built with.
    return subprocess.run([os.path.join(BIN, "viaduct"), "sim", "truth", *words], capture_output=True, text=True, check=False)


def whole():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "truth.json")
        done = truth("--rounds", "1", "--seconds", "0.005", "--json", path)
        if done.returncode != 0:
            check(False, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
            return
        check("put relay / put neighbour" in done.stdout, f"not a table: {done.stdout}")
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        check(len(rows) == 4 and all(row["steady"] == 0 or row["real"] > 0 and row["model"] > 0 for row in rows),
              f"not the ratios: {rows}")
    for words, code, says in [(["--rounds", "0"], 2, "--rounds: not a number from 1 on"),
                              (["--seconds", "0"], 2, "--seconds: not a number above 0"), (["--walk"], 2, "--walk"),
                              (["--rounds", "1", "--bin", "/no/such"], 1, "/no/such/viaduct: start: No such file")]:
        done = truth(*words)
        check(done.returncode == code and says in done.stderr, f"truth {words}: exit code {done.returncode}, {done.stderr}")


def main():
    module = load()
    verdicts(module)
    hanging(module)
    whole()
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
