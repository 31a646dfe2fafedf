# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The stored result of "make fit-costs" belongs to the scenarios, and docs/costs.md shows it. evidence.py A|B|C|D|E: a run of that
paper breaks no claim, has the stored number of figures that fit, and prints the stored parameters, contradictions first."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["VIADUCT_BUILD_DIR"])
SOURCE = pathlib.Path(os.environ["VIADUCT_SOURCE_DIR"])
SCENARIOS = SOURCE / "sim/scenarios"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tools"))
import sim_evidence  # noqa: E402
import sim_papers  # noqa: E402
import sim_scenario  # noqa: E402

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def values(letter):
    scenario = sim_scenario.load(sim_papers.PAPERS[letter][1], str(SCENARIOS / f"paper-{letter.lower()}.ini"), str(SCENARIOS / "parts.ini"))
    return {f"{value.section} {value.key}": value for value in scenario.values}


def scenarios_have_the_values(found):
    for letter in sim_papers.PAPERS:
        known = values(letter)
        fitted = {one["names"][letter]: one for one in found["parameters"] if letter in one["names"]}
        marked = {name for name, value in known.items() if value.mark == "fitted"}
        check(marked == set(fitted), f"{letter}: marked [fitted]: {sorted(marked)}, stored: {sorted(fitted)}")
        for name, one in fitted.items():
            check(name in known and known[name].text(4) == f"{one['value']:.4g} {one['unit']}", f"{letter}: {name}: not the stored {one['value']}")
            if one["alone"]:
                check(known[name].source.endswith(sim_evidence.alone_text(one) + ": CONTRADICTION" * one["is_contradiction"]),
                      f"{letter}: {name}: other ranges: {known[name].source}")
        by_hand = {name for name, value in known.items() if value.source.startswith("by hand")}
        check(by_hand == set(found["papers"][letter]["by_hand"]), f"{letter}: marked as set by hand: {sorted(by_hand)}")
        check(all(known[name].mark == "chosen" for name in by_hand), f"{letter}: set by hand, and not [chosen]")


def the_page_shows_it(found):
    text = (SOURCE / "docs/costs.md").read_text(encoding="utf-8")
    blocks = sim_evidence.blocks(found)
    check(list(blocks) == re.findall(r"<!-- (?!end)(.*) -->", text), "contradictions come first in docs/costs.md, then the table of papers left out")
    for mark, table in blocks.items():
        check(f"<!-- {mark} -->\n{table}\n<!-- end -->" in text, f"docs/costs.md: '{mark}' is not what evidence.json says; run make fit-costs")
    check(text.index("<!-- contradictions -->") < 500, "docs/costs.md: its first lines do not state the contradictions")


def run(letter, *options):
    """B takes too long with sanitizers."""
    model = ["--model", str(BIN / "tests/viaduct-sim-papers"), "--bounded"] if letter == "B" else []
    return subprocess.run([BIN / "viaduct-sim", "paper", letter, *model, *options], capture_output=True, text=True, check=False)


def a_changed_value_has_no_range():
    result = run("E", "--bounded", "--set", "device kintex drain=90")
    check("device kintex drain = 90 ns: not the fitted value" in result.stdout, f"E: a changed value: {result.stdout}")


def contradictions_come_first(found):
    """Of a result with a contradiction, the command and the page state both ranges in their first lines."""
    one = next(parameter for parameter in found["parameters"] if parameter["alone"])
    planted = {**found, "parameters": [{**parameter, "is_contradiction": parameter is one} for parameter in found["parameters"]]}
    ranges = [sim_evidence.range_text(one["alone"][paper]) for paper in "AB"]
    with tempfile.TemporaryDirectory() as folder:
        for path in SCENARIOS.glob("*.ini"):
            shutil.copy(path, folder)
        pathlib.Path(folder, sim_evidence.NAME).write_text(sim_evidence.dump(planted), encoding="utf-8")
        result = run("A", "--bounded", "--scenarios", folder)
    lines = result.stdout.splitlines()
    check(len(lines) > 1 and lines[1].startswith(f"  contradiction: {one['name']}: ") and all(text in lines[1] for text in ranges),
          f"a contradiction in {one['name']} of A alone {ranges[0]}, B alone {ranges[1]}: {lines[:3]}")
    check(all(text in sim_evidence.blocks(planted)["contradictions"] for text in ranges), "the page of a result with a contradiction")


def a_run_agrees(found, letter):
    result = run(letter)
    lines = result.stdout.splitlines()
    check(result.returncode == 0, f"{letter}: exit code {result.returncode}: {result.stdout}{result.stderr}")
    wanted = [f"  {line}" for line in sim_evidence.contradictions(found, letter)]
    check(lines[1:1 + len(wanted)] == wanted, f"{letter}: the first lines are {lines[:3]}, not {wanted}")
    free = [f"  {line}" for line in sim_evidence.free_lines(found, letter, {tuple(name.rsplit(" ", 1)): one for name, one in values(letter).items()})]
    check(all(line in lines for line in free), f"{letter}: not printed: {[line for line in free if line not in lines]}")
    check(sum("moves them by" in line for line in free) == sum(letter in one["names"] for one in found["parameters"]), f"{letter}: {free}")
    score = found["papers"][letter]
    counts = [int(count) for count in re.findall(r"\d+", lines[-1])]
    stored = [score["fitted"][1], score["fitted"][1] - score["fitted"][0], score["held_out"][1], score["held_out"][1] - score["held_out"][0],
              score["no_evidence"]]
    check(counts[:5] == stored, f"{letter}: a run says '{lines[-1]}', stored are {stored}; run make fit-costs")


def main():
    found = sim_evidence.load(SCENARIOS)
    if len(sys.argv) > 1:
        a_run_agrees(found, sys.argv[1])
    else:
        scenarios_have_the_values(found)
        the_page_shows_it(found)
        a_changed_value_has_no_range()
        contradictions_come_first(found)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
