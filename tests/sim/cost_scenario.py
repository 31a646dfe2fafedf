# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Scenario files: errors name file, line and key; a file of any content is refused with a reason, or has values in range.
cost_scenario.py [COUNT [SEED]]: more random files, or others."""
import os
import pathlib
import random
import re
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["VIADUCT_SOURCE_DIR"])
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "tools"))
import sim_scenario
from sim_scenario import BANDWIDTH, BYTES, COUNT, LENGTH, NAME, PERCENT, RATE, TIME

BOX = {"time": (TIME, 0, 1e9), "bytes": (BYTES, 1, 4096), "count": (COUNT, 1, 8), "rate": (RATE, 1, 10), "share": (PERCENT, 0, 1),
       "speed": (BANDWIDTH, 1, 1e12), "colour": ("red", "yellow"), "peer": (NAME,)}
SECTIONS = {"box": BOX, "thing": {"length": (LENGTH, 0, 10)}}
GOOD = """\
# comment
[box]
time = 1.5 us [stated] the paper;\x20
bytes = 2 KiB [spec] a = b
count = 4 lanes [typical] x
rate = 2.5 GT/s [chosen] x
share = 50 % [fitted] x
speed = 8 Gb/s [stated] x
colour = red [stated] x
peer = b-1 [stated] x
[thing one]
length = 25 cm [stated] x
[thing two]
  length = 2 m [stated] x"""
TIME_LINE = "time = 1.5 us [stated] the paper; "
# The good file with one line in the place of another: how the error begins.
BAD = (
    ("count = 4 lanes [typical] x", "count = 4 lanes [typical] x\ncounts = 1 x [stated] x", "F:6: [box] counts: unknown key"),
    ("count = 4 lanes [typical] x", "count = 4 lanes [typical] x\ncount = 4 lanes [typical] x", "F:6: [box] count: is given twice"),
    ("count = 4 lanes [typical] x", "count = 4 [typical] x", "F:5: [box] count: the unit is missing: expected a word"),
    ("count = 4 lanes [typical] x", "count = 4 4 [typical] x", "F:5: [box] count: not a unit: expected a word"),
    (TIME_LINE, "time = 1.5", "F:3: [box] time: the unit is missing: expected ps, ns"),
    (TIME_LINE, "time = 1.5 m [stated] x", "F:3: [box] time: unknown unit: expected ps, ns"),
    (TIME_LINE, "time = 1.5 ms [stated] x", "F:3: [box] time: out of range: 0 to 1 ms are allowed"),
    (TIME_LINE, "time = -1 us [stated] x", "F:3: [box] time: out of range"),
    (TIME_LINE, "time = nan us [stated] x", "F:3: [box] time: not a number: nan"),
    (TIME_LINE, "time = 1_0 us [stated] x", "F:3: [box] time: not a number: 1_0"),
    (TIME_LINE, "time = 1.5us us [stated] x", "F:3: [box] time: not a number: 1.5us"),
    (TIME_LINE, "time =", "F:3: [box] time: not a number"),
    (TIME_LINE, "time = 1.5 us stated x",
     "F:3: [box] time: expected [stated], [spec], [typical], [chosen] or [fitted] after the value, not stated"),
    (TIME_LINE, "time = 1.5 us [guessed] x", "F:3: [box] time: expected [stated]"),
    (TIME_LINE, "time = 1.5 us [stated]", "F:3: [box] time: the source is missing"),
    (TIME_LINE, "", "F:2: [box] time: is missing"),
    ("count = 4 lanes [typical] x", "count = 2.5 lanes [typical] x", "F:5: [box] count: not a whole number: 2.5"),
    ("count = 4 lanes [typical] x", "count = 9 lanes [typical] x", "F:5: [box] count: out of range"),
    ("colour = red [stated] x", "colour = re [stated] x", "F:9: [box] colour: expected one of: red yellow"),
    ("peer = b-1 [stated] x", "peer = 1b [stated] x", "F:10: [box] peer: not a name: 1b"),
    ("[thing one]", "[thing]", "F:11: [thing]: expected a name: [thing NAME]"),
    ("[thing one]", "[thing two]", "F:13: [thing two]: is in line 11 already"),
    ("[thing one]", "[box one]", "F:11: [box one]: takes no name"),
    ("[thing one]", "[sphere one]", "F:11: [sphere one]: unknown section"),
    ("[thing one]", "[thing one", "F:11: neither [section] nor key = value"),
    ("[thing one]", "thing one", "F:11: neither [section] nor key = value"),
    ("[box]", "count = 1 x [stated] x\n[box]", "F:2: count: stands before the first [section]"),
)
# complete.ini with one line in the place of another.
BROKEN = (
    ("b = kintex [stated] endpoint", "b = virtex [stated] endpoint", "] b: there is no host, switch or device 'virtex'"),
    ("b = kintex [stated] endpoint", "b = xeon [stated] endpoint", "] b: both ends are 'xeon'"),
    ("length = 0.2 m", "length = 2 m", "] length: 2 m, but trace reaches no farther than 0.5 m"),
    ("rate = 8 GT/s", "rate = 2.5 GT/s", "] generation: needs 5 GT/s a lane, but trace carries"),
    ("medium = trace", "medium = ether", "] medium: there is no [medium ether]"),
    ("lanes = 8 lanes", "lanes = 6 lanes", "] lanes: a link has 1, 2, 4, 8 or 16"),
    ("mps = 128 B", "mps = 200 B", "] mps: not a power of two"),
    ("mrrs = 512 B", "mrrs = 513 B", "] mrrs: not a power of two"),
    ("line = 64 B", "line = 65 B", "] line: not a power of two"),
    ("[device kintex]", "[device xeon]", "[device xeon] write: there is another node 'xeon'"),
    ("[medium trace]", "[switch s]\nforward = 1 ns [chosen] x\nnt = 0 ns [chosen] x\nread = 1 ns [chosen] x\nlanes = 4 lanes [chosen] x\n"
     "ports = 2 ports [chosen] x\n[medium trace]", "[switch s] read: no link ends at 's'"),
    ("[link slot]\na = xeon", "[switch s]\nforward = 1 ns [chosen] x\nnt = 0 ns [chosen] x\nread = 1 ns [chosen] x\nlanes = 4 lanes [chosen] x\n"
     "ports = 2 ports [chosen] x\n[link slot]\na = s", "] a: s has 4 lanes, and its links want 8"),
)
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def parse(data, sections):
    scenario = sim_scenario.Scenario("F", data if isinstance(data, bytes) else data.encode(), sections)
    scenario.check_complete()
    return scenario


def refused(what, begins, action):
    """The error of an action, which begins like that."""
    try:
        action()
    except sim_scenario.Failure as failure:
        check(str(failure).startswith(begins), f"{what}: '{failure}', not '{begins}'")
        return str(failure)
    check(False, f"{what}: not refused")
    return ""


def values_are_in_base_units():
    scenario = parse(GOOD, SECTIONS)
    for section, key, expected in (("box", "time", 1500000), ("box", "bytes", 2048), ("box", "count", 4), ("box", "rate", 2.5), ("box", "share", 0.5),
                                   ("box", "speed", 1e9), ("thing one", "length", 0.25), ("thing two", "length", 2)):
        check(scenario.value(section, key).number == expected, f"{section} {key}: {scenario.value(section, key)}")
    check([scenario.value("box", key).unit for key in ("colour", "peer")] == ["red", "b-1"], "words")
    check([part.instance for part in scenario.of("thing")] == ["one", "two"], "instances")
    time = scenario.value("box", "time")
    check((time.line, time.mark, time.source) == (3, "stated", "the paper;"), f"{time}")
    check(scenario.value("box", "bytes").source == "a = b", "a source with '='")
    check(scenario.set("box time=2").number == 2e6 and scenario.set("box count=3").number == 3, "--set")
    for text in ("box time=2000", "box time=x", "box colour=2", "ball time=2"):
        refused(text, f"--set {text}: ", lambda text=text: scenario.set(text))


def wrong_lines():
    for line, instead, begins in BAD:
        check(line in GOOD, line)
        refused(instead, begins, lambda line=line, instead=instead: parse(GOOD.replace(line, instead, 1), SECTIONS))


def no_text_of_any_kind():
    for data, begins in ((b"", "F:1: [box]: the section is missing"), (b"[box]\n\0\n", "F:2: line: holds a zero byte: not a text file"),
                         (b"x" * 400, "F:1: line: longer than 198 bytes")):
        refused(data[:20], begins, lambda data=data: parse(data, SECTIONS))
    refused("/no/such", "/no/such/file: open: No such file or directory", lambda: sim_scenario.load("stores", "/no/such/file"))


def topologies_that_do_not_close():
    text = (SOURCE / "tests/sim/complete.ini").read_text(encoding="utf-8")
    parse(text, sim_scenario.KINDS["stores"]).check("stores")
    for line, instead, expected in BROKEN:
        check(line in text, line)
        scenario = parse(text.replace(line, instead, 1), sim_scenario.KINDS["stores"])
        check(expected in refused(instead, "F:", lambda scenario=scenario: scenario.check("stores")), f"{instead}: not '{expected}'")


def ways():
    text = (SOURCE / "tests/sim/complete.ini").read_text(encoding="utf-8")
    scenario = parse(text, sim_scenario.KINDS["stores"])
    check(scenario.ends("", "") == ("xeon", "kintex") and scenario.ends("kintex", "xeon") == ("kintex", "xeon"), "ends")
    engine = scenario.of("dma")[0].instance
    scenario.check_dma(engine, "xeon", "kintex")
    refused("from x", "F: there is no host or device to measure from 'x'", lambda: scenario.ends("x", ""))
    refused("to x", "F: there is no host or device to measure to 'x'", lambda: scenario.ends("", "x"))
    refused("itself", "F: from 'xeon' to itself", lambda: scenario.ends("xeon", "xeon"))
    refused("[dma x]", "F: there is no [dma x]", lambda: scenario.check_engine("x"))
    scenario.parts["dma x"] = scenario.parts[f"dma {engine}"]
    check("an engine is in a node, and there is no 'x'" in refused("engine x", "F:", lambda: scenario.check_dma("x")), "an engine without a node")
    # A device between two hosts passes nothing on, and a link less leads nowhere.
    middle = parse("[link near]\na = xeon [chosen] x\nb = kintex [chosen] x\n[link far]\na = kintex [chosen] x\nb = other [chosen] x\n",
                   {"link": {"a": (NAME,), "b": (NAME,)}})
    middle.check_way("kintex", "other")
    refused("xeon to other", "F:6: [link far] b: no links lead from 'xeon' to 'other'", lambda: middle.check_way("xeon", "other"))


def with_parts(text):
    """With the parts "[thing one] length = 4 m", "[box]" and one that no kind has."""
    scenario = sim_scenario.Scenario("F", text.encode(), SECTIONS)
    scenario.take(sim_scenario.Scenario("P", f"{GOOD}\n[cloud grey]\nheight = 3 m [stated] x\n".encode(), SECTIONS, library=True))
    scenario.check_complete()
    return scenario


def parts():
    scenario = with_parts("[thing near: one]\n[thing far: two]\nlength = 9 m [stated] x\n[box]\ncount = 3 lanes [stated] x\n")
    found = [scenario.value(section, key).number for section, key in (("thing near", "length"), ("thing far", "length"), ("box", "count"), ("box", "bytes"))]
    check(found == [0.25, 9, 3, 2048], f"with parts: {found}")
    check(scenario.value("thing near", "length").shared and not scenario.value("thing far", "length").shared, "shared")
    check("thing one" not in scenario.parts, "a part that no section names")
    refused("three", "F:1: [thing near: three]: P has no such part", lambda: with_parts("[thing near: three]\n"))
    refused("near", "F:1: [thing near] length: is missing", lambda: with_parts("[thing near]\n"))
    refused("cloud", "F:1: [cloud grey]: unknown section", lambda: with_parts("[cloud grey]\n"))


def changed(rng, data, others):
    """A file in which bytes, numbers or pieces are others', missing or twice."""
    data = bytearray(data)
    for _ in range(rng.randint(0, 3)):
        at, length, other = rng.randrange(len(data) + 1), rng.choice((0, 1, 2, 8, 40)), rng.choice(others)
        start = rng.randrange(len(other))
        numbers = [found.span() for found in re.finditer(rb"(?<== )[0-9.]+", data)]
        if numbers and rng.random() < 0.7:
            at, end = rng.choice(numbers)
            data[at:end] = rng.choice((b"0", b"1", b"3", b"64", b"4096", b"70000", b"1e7", b"-1", b"0.5"))
        else:
            data[at:at + length] = rng.choice((bytes([rng.randrange(256)]), other[start:start + length], b"", b"\n", b"[", data[at:at + length] * 2))
    return bytes(data)


def is_wrong(scenario):
    """A value that the checks should have refused."""
    for part in scenario.parts.values():
        for key, value in part.values.items():
            declared = scenario.sections[part.kind][key]
            if value.line < 1 or not value.source or not value.unit or value.mark not in sim_scenario.MARKS:
                return True
            if not value.is_word and not declared[1] <= value.number <= declared[2]:
                return True
    return False


def wrong_files(count, seed):
    """Of random files, those that were accepted although a value is wrong; any exception but a reasoned refusal ends the test."""
    rng, sections = random.Random(seed), {**sim_scenario.NET, "pio": sim_scenario.PIO}
    inputs = [path.read_bytes() for path in sorted((SOURCE / "tests/sim/scenario_inputs").iterdir())]
    whole = (SOURCE / "tests/sim/scenario_inputs/whole").read_bytes()
    parse(whole, sections)
    accepted = wrong = 0
    for _ in range(count):
        try:
            scenario = parse(changed(rng, rng.choice([whole, *inputs]), inputs), sections)
            accepted += 1
            if is_wrong(scenario):
                wrong += 1
            else:
                scenario.check_net()
        except sim_scenario.Failure as failure:
            check(str(failure).startswith("F:"), f"a reason that does not name the file: {failure}")
    return accepted, wrong


def any_content(count, seed):
    accepted, wrong = wrong_files(count, seed)
    check(accepted > count / 20 and wrong == 0, f"{accepted} of {count} files accepted, {wrong} of them wrongly")
    # Planted: values may be out of range.
    right, sim_scenario.is_in_range = sim_scenario.is_in_range, lambda number, low, high: True
    check(wrong_files(count, seed)[1] > 0, "values may be out of range, and no random file shows it")
    sim_scenario.is_in_range = right


def requests():
    """What a program gets: the sections one after the other, and every value."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write((SOURCE / "tests/sim/complete.ini").read_text(encoding="utf-8"))
        file.flush()
        scenario = sim_scenario.load("stores", file.name)
    lines = list(sim_scenario.requests("stores", scenario))
    check(lines[0][:2] == ("load", "stores") and len(lines) == 1 + len(scenario.values), "requests")
    sections = [line[1] for line in lines[1:]]
    begins = [one for before, one in zip([None, *sections], sections) if one != before]
    check(len(begins) == len(set(begins)), f"a section comes twice: {begins}")


def main():
    count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 1500), (2, 1)))
    for part in (values_are_in_base_units, wrong_lines, no_text_of_any_kind, topologies_that_do_not_close, ways, parts, requests):
        part()
    any_content(count, seed)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
