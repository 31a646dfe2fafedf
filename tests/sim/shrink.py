# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A shrunk case fails, equals its command line, and is not larger than before."""
import os
import re
import subprocess
import sys

SIMULATOR = os.path.join(os.environ["VIADUCT_BUILD_DIR"], "viaduct-sim")
# Without sanitizers, whose start takes most of the time of a run: for one of the bugs.
PLAIN = os.path.join(os.environ["VIADUCT_BUILD_DIR"], "tests", "viaduct-sim-mutants")
RUNS = 250


def run(*words):
    return subprocess.run([SIMULATOR, *words], capture_output=True, text=True, check=False)


def failure(text):
    return re.findall(r"^FAILED: (.*)$", text, re.MULTILINE)[-1]


def check_plant(plant, simulator):
    # Seeds 1 and 2 have so little work that none of it can be left out.
    found = run("run", "--first", "3", "--count", "300", "--jobs", "1", "--plant", plant, "--set", "streams=0,pes=0", "--no-shrink", "--quiet")
    assert found.returncode == 1, f"{plant}: no seed fails"
    words = re.search(r"^reproduce: viaduct-sim seed (.*)$", found.stdout, re.MULTILINE).group(1).split()
    # Without a limit of time the result is the same on any machine.
    shrunk = run("shrink", *words, "--runs", str(RUNS), "--seconds", "1000", "--simulator", simulator)
    assert shrunk.returncode == 1, shrunk
    numbers = re.search(r"^shrunk in (\d+) runs to (\d+) of (\d+) hosts, (\d+) of (\d+) faults, (\d+) of (\d+) bursts of work:$", shrunk.stdout,
                        re.MULTILINE)
    assert numbers, shrunk.stdout
    runs, hosts, hosts_before, faults, faults_before, work, work_before = map(int, numbers.groups())
    assert runs <= RUNS and hosts <= hosts_before and faults <= faults_before and work <= work_before, shrunk.stdout
    # It is much smaller, in fact: these bugs need no more than two or three hosts.
    assert 2 <= hosts <= 3 and work <= max(work_before // 2, 3), shrunk.stdout
    words = shrunk.stdout.splitlines()[-1].removeprefix("reproduce: viaduct-sim ").split()
    again = run(*words)
    assert again.returncode == 1 and failure(again.stdout) == failure(shrunk.stdout), (words, again.stdout)
    assert f"--plant {plant}" in " ".join(words), words


def main():
    check_plant("lost-complete", SIMULATOR)
    check_plant("segment-write", PLAIN)  # usage.sh has lost-delivery
    good = run("shrink", "1", "--graph", "ring")
    assert good.returncode == 0 and good.stdout == "seed 1 alone does not fail: nothing to shrink\n", good
    for words in ([], ["x"], ["1", "--set", "hosts"], ["1", "--faults", "3-"], ["1", "--wheels"], ["1", "--set", "hosts=1"], ["1", "--plant", "weeds"]):
        bad = run("shrink", *words)
        assert bad.returncode == 2 and "viaduct-sim" in bad.stderr and "Traceback" not in bad.stderr, (words, bad)
    assert run("shrink", "--help").stdout.startswith("Usage: viaduct-sim shrink "), "no help"
    return 0


if __name__ == "__main__":
    sys.exit(main())
