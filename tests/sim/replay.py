# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs the seeds of a file, one per line: the number, then the graph, if it was given, then changes as for --set, then other options.
# begins a comment. The second simulator, which has neither sanitizers nor drivers, runs three seeds of four."""
import concurrent.futures
import subprocess
import sys


def command(line):
    """The words of a line as options; None: there is no seed in it."""
    words = line.split("#")[0].split()
    if not words:
        return None
    seed, rest = words[0], words[1:]
    graph = ["--graph", rest.pop(0)] if rest and "=" not in rest[0] and not rest[0].startswith("-") else []
    changes = ["--set", rest.pop(0)] if rest and not rest[0].startswith("-") else []
    return [seed, *graph, *changes, *rest]


def replay(simulator, words):
    done = subprocess.run([simulator, "seed", *words], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return True
    print(f"FAILED: seed {' '.join(words)}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}", flush=True)
    return False


def main(simulator, plain, path):
    with open(path, encoding="utf-8") as file:
        commands = [words for words in map(command, file) if words is not None]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        simulators = [simulator if number % 4 == 0 or "-driver" in " ".join(words) else plain for number, words in enumerate(commands)]
        passed = list(pool.map(replay, simulators, commands))
    print(f"{sum(passed)} of {len(passed)} seeds of {path}: ok")
    return 0 if all(passed) and passed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
