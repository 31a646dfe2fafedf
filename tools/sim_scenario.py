# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Reads scenario files, viaduct-scenario(5): every parameter of the cost model with its value, its unit, how it is known and its source.

    [link cable]
    lanes = 8 lanes [stated] x8 cable adapters

All keys of a section must be there, no others may be. Numbers are kept in base units: picoseconds, bytes, bytes per second, metres.
Parts that several scenarios use are defined once, in parts.ini beside them. "[switch chip: pex8749]" takes the keys that it does not set from
"[switch pex8749]" of that file. A section without a name takes them from the section of the same type, and a link takes its "[medium copper]" from
there.

Run as a program, it prints a scenario as requests of "viaduct-sim model": sim_scenario.py KIND FILE [PARTS].
"""
import dataclasses
import math
import re
import sys

SCENARIO_BYTES_MAX, LINE_BYTES_MAX, PARTS_MAX, VALUES_MAX, NAME_MAX, SOURCE_MAX = 1 << 20, 198, 128, 512, 31, 159
MARKS = ("stated", "spec", "typical", "chosen", "fitted")
ANY_WORD = None
# Dimensions: units with their factors to the base unit, and what is expected.
COUNT = (ANY_WORD, "a word for what is counted")
RATE = ({"GT/s": 1, "Gb/s": 1}, "GT/s or Gb/s")
TIME = ({"ps": 1, "ns": 1e3, "us": 1e6, "ms": 1e9, "s": 1e12}, "ps, ns, us, ms or s")
BYTES = ({"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 1e3, "MB": 1e6}, "B, KiB, MiB, GiB, kB or MB")
BANDWIDTH = ({"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8}, "B/s, kB/s, MB/s, GB/s, Mb/s or Gb/s")
LENGTH = ({"m": 1, "cm": 0.01}, "m or cm")
TIME_LENGTH = ({"ns/m": 1e3, "ps/m": 1}, "ns/m or ps/m")
PERCENT = ({"%": 0.01}, "%")
NAME = ({}, "")

# --- what each section has: its dimension, and from what to what it may be in base units; or the words of which it is one --------------------------

LATENCY = (TIME, 0, 1e9)
LINE = {"generation": (COUNT, 1, 5), "lanes": (COUNT, 1, 16), "mps": (BYTES, 128, 4096), "medium": (NAME,), "length": (LENGTH, 0, 10000)}
PCIE = {"dllp": ("full", "none"), "write_header": (BYTES, 16, 32), "request_header": (BYTES, 16, 32), "completion_header": (BYTES, 16, 32)}
HOST = {"write": LATENCY, "read": LATENCY, "completion": (BYTES, 64, 4096)}
SWITCH = {"forward": LATENCY, "nt": LATENCY, "read": LATENCY, "lanes": (COUNT, 1, 1024), "ports": (COUNT, 1, 1024)}
DEVICE = {**HOST, "credits": (COUNT, 0, 4096), "drain": LATENCY}
MEDIUM = {"delay": (TIME_LENGTH, 3335, 10000),  # not faster than light
          "converters": LATENCY, "reach": (LENGTH, 0.01, 10000), "rate": (RATE, 2.5, 1000)}
LINK = {"a": (NAME,), "b": (NAME,), **LINE}
DMA = {"channels": (COUNT, 1, 64), "setup": LATENCY, "finish": LATENCY, "request_interval": LATENCY, "tags": (COUNT, 1, 1024),
       "descriptor": (BYTES, 0, 256), "mrrs": (BYTES, 128, 4096)}
CPU = {"cores": (COUNT, 1, 32), "threads_per_core": (COUNT, 1, 2), "smt_speed": (PERCENT, 0.3, 1), "slice": (TIME, 1e6, 1e12),
       "switch": (TIME, 0, 1e12), "wake": (TIME, 0, 1e12), "wake_spread": (TIME, 0, 1e12)}
SOFTWARE = {"register_store": (TIME, 0, 1e8),  # until the core can start the next store
            "register_read": (TIME, 0, 1e8),  # in addition to the path through the fabric
            "handler": LATENCY,  # of an interrupt
            "fence": (TIME, 0, 1e7)}  # after write-combined stores
PIO = {"store": (TIME, 0, 1e6), "store_bytes": (BYTES, 4, 64), "line": (BYTES, 32, 256), "fill_buffers": (COUNT, 1, 64),
       "uncached_store": (TIME, 0, 1e6), "uncached_queue": (COUNT, 1, 64), "uncached_drain": (TIME, 0, 1e8)}
STREAM = {"syscall": LATENCY,  # into the kernel and back
          "lookup": LATENCY,  # check whether it is a configured socket, and its port
          "dma_stores": (COUNT, 1, 64),  # to start a transfer
          "poll": LATENCY,  # between two polls of a register
          "buffers": (COUNT, 2, 64),  # of the doorbell mode
          "writes": (COUNT, 2, 1000),  # measured, of small sizes
          "large_writes": (COUNT, 1, 1000)}  # the same from 256 KiB on
RING = {"scratchpads": (COUNT, 1, 16), "acknowledgement": ("whole", "empty"), "submit": LATENCY, "take": LATENCY, "handoff": LATENCY,
        "translation": LATENCY, "dma_stores": (COUNT, 0, 32), "block": (BYTES, 4096, 1 << 30), "spread": (PERCENT, 0, 1),
        "copy_spread": (PERCENT, 0, 1), "window": (COUNT, 1, 1024), "puts": (COUNT, 1, 100000), "fit_puts": (COUNT, 1, 100000),
        "seed": (COUNT, 0, 1e9)}
COPY = {"launch": LATENCY,  # from the call until the doorbell is stored
        "notice": LATENCY}  # from the word in memory until the call returns
METHOD = {"timer": (TIME, 0, 1e6),  # of rdtscp, subtracted from the result
          "describe": (TIME, 0, 1e7),  # writing a descriptor into memory
          "notice": (TIME, 0, 1e7)}  # until the change of a polled word is seen
SDP = {"generation": (COUNT, 1, 5), "lanes": (COUNT, 1, 16), "payload": (BYTES, 64, 4096), "write_header": (BYTES, 12, 32),
       "completion_header": (BYTES, 12, 32), "link": (BANDWIDTH, 1e8, 1e12), "mtu": (BYTES, 256, 4096), "packet_header": (BYTES, 0, 256),
       "lag": LATENCY, "message": (BYTES, 4096, 1 << 26), "buffer": (BYTES, 1024, 1 << 20), "buffers": (COUNT, 1, 1024), "syscall": LATENCY,
       "post": LATENCY, "interrupt": LATENCY, "complete": LATENCY, "segment": LATENCY, "pin": (TIME, 0, 1e8), "page": (BYTES, 4096, 1 << 21),
       "register": LATENCY, "time": (TIME, 1e9, 1e13), "seed": (COUNT, 0, 1e9)}
VIADUCT = {"submit": LATENCY, "turn": LATENCY, "frame": LATENCY, "spin": (TIME, 0, 1e12), "stuck": (TIME, 1e6, 1e12), "retry": (TIME, 1e6, 1e12),
           "channels": (COUNT, 1, 14), "pipe_slots": (COUNT, 1, 65536), "bypass": (COUNT, 1, 65536), "window": (COUNT, 1, 65536),
           "batch": (COUNT, 1, 65536), "body": (BYTES, 64, 65472)}
COPIES = {"copy": (BANDWIDTH, 1e8, 1e12), "bus": (BANDWIDTH, 1e8, 1e13)}
CARD = {"chip": (NAME,), "slot": (NAME,), "cables": (COUNT, 1, 6)}
BOARD = {"generation": (COUNT, 1, 5), "lanes": (COUNT, 1, 1024), "slots": (COUNT, 1, 64)}
NODES = {"pcie": PCIE, "host": HOST, "switch": SWITCH, "device": DEVICE, "medium": MEDIUM}
NET = {**NODES, "link": LINK, "dma": DMA}
# Sections of each kind of scenario: the published systems A to E, any chain of hosts, and fabrics to plan.
MACHINE = {"cpu": CPU, "memory": {"copy": (BANDWIDTH, 1e6, 1e12), "bus": (BANDWIDTH, 1e6, 1e13), "crossings": (COUNT, 2, 3),
                                  "piece": (BYTES, 4096, 1 << 20)}}
KINDS = {
    "stream": {**NET, **MACHINE, "stream": STREAM, "software": SOFTWARE},
    "ring": {**NET, **MACHINE, "ring": RING, "software": SOFTWARE},
    "sdp": {**MACHINE, "sdp": SDP},
    "copy": {**NET, "copy": COPY},
    "stores": {**NET, "pio": PIO, "method": METHOD},
    "chain": {**NET, "pio": PIO, "software": SOFTWARE},
    "plan": {**NODES, "dma": DMA, "card": CARD, "slot": LINE, "cable": {**LINE, "cords": (COUNT, 1, 64)}, "cpu": CPU, "memory": COPIES,
             "viaduct": VIADUCT, "pio": PIO, "software": SOFTWARE, "board": BOARD},
}
# "[link cable]", any number of them; of others, as "[pio]", exactly one.
NAMED = {"host", "switch", "device", "medium", "link", "dma", "card", "slot", "cable", "board", "thing"}
POWERS_OF_2 = {"host": ("completion",), "device": ("completion",), "dma": ("mrrs",), "pio": ("line", "store_bytes")}
GENERATION_GT = (0, 2.5, 5, 8, 16, 32)


class Failure(Exception):
    """The text names the object and the cause."""


# --- a value ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Value:
    """A value of a scenario: number in base units (seconds in ps), or a word."""

    section: str  # "link cable"
    key: str
    line: int
    shared: bool = False  # the value and its line are from parts.ini
    number: float = 0
    factor: float = 0  # number = the file's number * this; 0 for words
    unit: str = ""  # or the word
    mark: str = ""
    source: str = ""

    @property
    def is_word(self):
        return self.factor == 0

    def text(self, digits):
        return self.unit if self.is_word else f"%.{digits}g %s" % (self.number / self.factor, self.unit)

    def request(self):
        """The request that gives the value to "viaduct-sim model"."""
        return "value", self.section, self.key, repr(float(self.number)), self.unit if self.is_word else ""


def is_name(text):
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", text) is not None and len(text) <= NAME_MAX


def to_number(text):
    """The number in a text; NaN if the text is not a number."""
    return float(text) if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) else math.nan


def is_in_range(number, low, high):
    return low <= number <= high


def split_word(text):
    """The first word, and the text after the blank that follows it."""
    word, *rest = re.split(r"[ \t]", text.lstrip(" \t"), maxsplit=1)
    return word, rest[0] if rest else ""


def set_unit(value, dimension, unit, complain):
    units, expected = dimension
    if unit == "" or unit.startswith("["):
        raise complain(f"the unit is missing: expected {expected}")
    if units is ANY_WORD and not re.match("[A-Za-z]", unit):
        raise complain(f"not a unit: expected {expected}")
    if len(unit) > 15 or (units is not ANY_WORD and unit not in units):
        raise complain(f"unknown unit: expected {expected}")
    value.unit, value.factor = unit, 1 if units is ANY_WORD else units[unit]


def set_number(value, declared, text, unit, complain):
    dimension, low, high = declared
    written = to_number(text)
    if not math.isfinite(written):
        raise complain(f"not a number: {text}")
    set_unit(value, dimension, unit, complain)
    value.number = written * value.factor
    if not is_in_range(value.number, low, high):
        raise complain(f"out of range: {low / value.factor:g} to {high / value.factor:g} {unit} are allowed")
    if dimension in (COUNT, BYTES) and value.number != math.floor(value.number):
        raise complain(f"not a whole number: {text}")


def set_word(value, declared, word, complain):
    if declared != (NAME,) and word not in declared:
        raise complain(f"expected one of: {' '.join(declared)}")
    if not is_name(word):
        raise complain(f"not a name: {word}")
    value.unit = word


def set_value(value, declared, text, complain):
    """Parses a text such as "8 lanes [stated] x8 cable adapters"."""
    first, text = split_word(text)
    if declared == (NAME,) or isinstance(declared[0], str):
        set_word(value, declared, first, complain)
    else:
        unit, text = split_word(text)
        set_number(value, declared, first, unit, complain)
    mark, text = split_word(text)
    if mark not in [f"[{known}]" for known in MARKS]:
        raise complain("expected [stated], [spec], [typical], [chosen] or [fitted] after the value, not " + (mark or "the end of the line"))
    value.mark, value.source = mark[1:-1], text.strip(" \t")[:SOURCE_MAX]
    if not value.source:
        raise complain("the source is missing: which paper, data sheet or measurement?")


# --- a file -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Part:
    """A section of a file."""

    kind: str
    instance: str
    like: str  # the section of the library that it takes keys from; "": that of its own name, if any
    line: int
    values: dict = dataclasses.field(default_factory=dict)  # by key

    @property
    def section(self):
        return f"{self.kind} {self.instance}".strip()


class Scenario:
    """The parts of a file by section, for the sections of a kind. library: the file is parts.ini, whose other sections and keys are ignored."""

    def __init__(self, name, data, sections, library=False):
        self.name, self.sections, self.library = name, sections, library
        self.parts_name, self.parts, self.values, self.last, self.line = "", {}, [], None, 0
        for self.line, line in enumerate(self.lines(data), 1):
            self.read_line(line)

    def failure(self, line, what, text):
        return Failure(f"{self.name}:{line}: {what}: {text}")

    def lines(self, data):
        for number, line in enumerate(data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n") if data else [], 1):
            if len(line) > LINE_BYTES_MAX:
                raise self.failure(number, "line", f"longer than {LINE_BYTES_MAX} bytes")
            if b"\0" in line:
                raise self.failure(number, "line", "holds a zero byte: not a text file")
            yield line.decode("utf-8", "replace").strip(" \t\r\f\v")

    def read_line(self, line):
        """Parses a line: "# comment", "; comment", "[section]" or "key = value ; comment"."""
        if line == "" or line[0] in "#;":
            return
        if line[0] == "[" and "]" in line:
            self.begin(line[1:line.index("]")])
            return
        key, separator, text = re.fullmatch(r"([^=:]*)([=:]?)(.*)", re.split(r"[ \t];", line, maxsplit=1)[0]).groups()
        if line[0] == "[" or not separator:
            raise Failure(f"{self.name}:{self.line}: neither [section] nor key = value")
        self.read_value(key.strip(), text.strip())

    def begin(self, header):
        kind, _, rest = header.replace("\t", " ").partition(" ")
        instance, colon, like = rest.lstrip(" ").partition(":")
        like, what, is_named = like.lstrip(" "), f"[{header}]", kind in NAMED
        self.last = None
        if kind not in self.sections:
            if self.library:
                return
            raise self.failure(self.line, what, "unknown section")
        if is_named and not is_name(instance):
            raise self.failure(self.line, what, f"expected a name: [{kind} NAME]")
        if not is_named and instance != "":
            raise self.failure(self.line, what, f"takes no name: [{kind}]")
        if colon and not (is_named and is_name(like)):
            raise self.failure(self.line, what, f"expected [{kind} NAME: PART]")
        part = Part(kind, instance, like, self.line)
        if part.section in self.parts:
            raise self.failure(self.line, what, f"is in line {self.parts[part.section].line} already")
        self.add(part, what)
        self.last = part

    def add(self, part, what):
        if len(self.parts) == PARTS_MAX:
            raise self.failure(part.line, what, f"more than {PARTS_MAX} sections")
        self.parts[part.section] = part

    def read_value(self, key, text):
        if self.last is None:
            if self.library:
                return
            raise self.failure(self.line, key, "stands before the first [section]")
        part, known = self.last, self.sections[self.last.kind]
        if key not in known:
            if self.library:
                return
            raise self.complain(part, key, self.line, "unknown key")
        if key in part.values:
            raise self.complain(part, key, self.line, "is given twice")
        value = Value(part.section, key, self.line)
        set_value(value, known[key], text, lambda error: self.complain(part, key, self.line, error))
        part.values[key] = value
        self.values.append(value)

    def complain(self, part, key, line, text, shared=False):
        return Failure(f"{self.parts_name if shared else self.name}:{line}: [{part.section}] {key}: {text}")

    def complain_of(self, section, key, text):
        """A failure that names the place of the value."""
        value = self.parts[section].values[key]
        return self.complain(self.parts[section], key, value.line, text, value.shared)

    def take(self, library):
        """Takes missing keys, sections without names, and media from the library."""
        self.parts_name = library.name
        for part in list(self.parts.values()):
            other = library.parts.get(f"{part.kind} {part.like or part.instance}".strip())
            if other is not None:
                self.fill(part, other)
            elif part.like:
                raise self.failure(part.line, f"[{part.kind} {part.instance}: {part.like}]", f"{library.name} has no such part")
        for other in library.parts.values():
            if (other.kind not in NAMED or other.kind == "medium") and other.section not in self.parts:
                part = Part(other.kind, other.instance, "", other.line)
                self.add(part, "parts")
                self.fill(part, other)

    def fill(self, part, other):
        """Takes missing keys from a part of the library."""
        for key, value in other.values.items():
            if key not in part.values:
                part.values[key] = dataclasses.replace(value, section=part.section, shared=True)
                self.values.append(part.values[key])

    def check_complete(self):
        for part in self.parts.values():
            for key in self.sections[part.kind]:
                if key not in part.values:
                    raise self.complain(part, key, part.line, "is missing")
        for kind in self.sections:
            if kind not in NAMED and kind not in self.parts:
                raise self.failure(max(self.line, 1), f"[{kind}]", "the section is missing")
        if len(self.values) > VALUES_MAX:
            raise self.failure(self.line, "parts", "too many values")

    def value(self, section, key):
        return self.parts[section].values[key]

    def of(self, *kinds):
        return [part for kind in kinds for part in self.parts.values() if part.kind == kind]

    def check(self, kind):
        """Checks that the parts fit together."""
        for part in self.parts.values():
            for key in POWERS_OF_2.get(part.kind, ()):
                if not is_power_of_2(part.values[key].number):
                    raise self.complain_of(part.section, key, "not a power of two")
        if "link" in self.sections:
            self.check_net()
        {"stream": self.check_stream, "ring": self.check_ring}.get(kind, int)()

    # --- the systems of the papers ---

    def check_stream(self):
        if not all(section in self.parts for section in ("host sender", "host receiver", "switch chip", "dma chip")):
            raise Failure(f"{self.name}: expected [host sender], [host receiver], [switch chip] and [dma chip]")
        for host in ("sender", "receiver"):
            self.check_way(host, "chip")

    def check_ring(self):
        """Checks that the ends of the links match: the model repeats these parts for each host, so they must form a ring."""
        for section in ("host pc", "switch pex8749", "switch pex8733", "link slot", "link cable", "dma pex"):
            if section not in self.parts:
                raise Failure(f"{self.name}: there is no [{section}]")
        for section, *ends in (("link slot", "pc", "pex8749"), ("link cable", "pex8749", "pex8733")):
            for key, expected in zip("ab", ends):
                word = self.value(section, key).unit
                if word != expected:
                    raise self.complain_of(section, key, f"the ring does not close: expected {expected}, not {word}")

    # --- nodes and links, and every reason why they may not fit ---

    def check_net(self):
        nodes = {}
        for part in self.of("host", "switch", "device"):
            if part.instance in nodes:
                raise self.complain_of(part.section, "forward" if part.kind == "switch" else "write", f"there is another node '{part.instance}'")
            nodes[part.instance] = part
        links = []
        for link in self.of("link"):
            self.check_link(link.section)
            ends = [self.end(link, key, nodes, links) for key in "ab"]
            if ends[0] == ends[1]:
                raise self.complain_of(link.section, "b", f"both ends are '{ends[1]}'")
            links.append((set(ends), self.value(link.section, "lanes").number))
        for name, part in nodes.items():
            if not any(name in ends for ends, _ in links):
                raise self.complain_of(part.section, "read", f"no link ends at '{name}'")

    def check_link(self, section):
        """A link, a slot or a cable."""
        word, metres, generation, lanes, mps = (self.value(section, key) for key in ("medium", "length", "generation", "lanes", "mps"))
        medium = self.parts.get(f"medium {word.unit}")
        if medium is None:
            raise self.complain_of(section, "medium", f"there is no [medium {word.unit}]")
        reach, rate = medium.values["reach"].number, medium.values["rate"].number
        if metres.number > reach:
            raise self.complain_of(section, "length", f"{metres.number:g} m, but {word.unit} reaches no farther than {reach:g} m")
        needed = GENERATION_GT[int(generation.number)]
        if needed > rate:
            raise self.complain_of(section, "generation", f"needs {needed:g} GT/s a lane, but {word.unit} carries no more than {rate:g}")
        if not is_power_of_2(lanes.number):
            raise self.complain_of(section, "lanes", "a link has 1, 2, 4, 8 or 16")
        if not is_power_of_2(mps.number):
            raise self.complain_of(section, "mps", "not a power of two")

    def end(self, link, key, nodes, links):
        """The node at one end, which has room for the link."""
        name = self.value(link.section, key).unit
        if name not in nodes:
            raise self.complain_of(link.section, key, f"there is no host, switch or device '{name}'")
        if nodes[name].kind == "switch":
            others = [lanes for ends, lanes in links if name in ends]
            lanes = int(sum(others) + self.value(link.section, "lanes").number)
            total, ports = (int(nodes[name].values[one].number) for one in ("lanes", "ports"))
            if 1 + len(others) > ports:
                raise self.complain_of(link.section, key, f"{name} has {ports} ports, and this is its link {1 + len(others)}")
            if lanes > total:
                raise self.complain_of(link.section, key, f"{name} has {total} lanes, and its links want {lanes}")
        return name

    def check_way(self, a, b):
        """A path from a node to another passes through no host or device."""
        links = [(part, {part.values["a"].unit, part.values["b"].unit}) for part in self.of("link")]
        reached, new = {a}, [a]
        for node in new:
            if node == a or f"switch {node}" in self.parts:
                ends = set().union(*(ends for _, ends in links if node in ends)) - reached
                reached |= ends
                new += ends
        if b not in reached:
            last = [part for part, ends in links if a in ends or b in ends][-1]
            raise self.complain_of(last.section, "a" if last.values["a"].unit == b else "b", f"no links lead from '{a}' to '{b}'")

    def ends(self, start, end):
        """The nodes to measure between; "": the first host, and the second host or the first device."""
        hosts, devices = ([part.instance for part in self.of(kind)] for kind in ("host", "device"))
        start, end = start or (hosts or [""])[0], end or (hosts[1:] or devices or [""])[0]
        if not start or not end:
            raise Failure(f"{self.name}: expected two hosts, or a host and a device")
        for what, node in (("from", start), ("to", end)):
            if node not in hosts + devices:
                raise Failure(f"{self.name}: there is no host or device to measure {what} '{node}'")
        if start == end:
            raise Failure(f"{self.name}: from '{start}' to itself")
        self.check_way(start, end)
        return start, end

    def check_engine(self, name):
        if f"dma {name}" not in self.parts:
            raise Failure(f"{self.name}: there is no [dma {name}]")

    def check_dma(self, name, *nodes):
        """The engine is in a node, from which there are paths to those."""
        self.check_engine(name)
        if name not in [part.instance for part in self.of("host", "switch", "device")]:
            raise self.complain_of(f"dma {name}", "channels", f"an engine is in a node, and there is no '{name}'")
        for node in nodes:
            self.check_way(name, node)

    def set(self, text):
        """"SECTION KEY=NUMBER", in the unit of the file. Returns the value."""
        for value in self.values:
            name = f"{value.section} {value.key}="
            if text.startswith(name) and not value.is_word:
                dimension, low, high = self.sections[self.parts[value.section].kind][value.key]
                number = to_number(text[len(name):]) * value.factor
                if not is_in_range(number, low, high):
                    raise Failure(f"--set {text}: not a number that is allowed")
                value.number = math.floor(number + 0.5) if dimension in (COUNT, BYTES) else number
                return value
        raise Failure(f"--set {text}: {self.name} has no such number")


def is_power_of_2(number):
    return int(number) & (int(number) - 1) == 0


def read(path):
    try:
        with open(path, "rb") as file:
            data = file.read(SCENARIO_BYTES_MAX + 1)
    except OSError as error:
        raise Failure(f"{path}: open: {error.strerror}") from None
    if len(data) > SCENARIO_BYTES_MAX:
        raise Failure(f"{path}: read: larger than {SCENARIO_BYTES_MAX} bytes")
    return data


def load(kind, path, parts=None):
    """Reads and checks a scenario of that kind; parts: path of parts.ini."""
    scenario = Scenario(path, read(path), KINDS[kind])
    if parts:
        scenario.take(Scenario(parts, read(parts), KINDS[kind], library=True))
    scenario.check_complete()
    scenario.check(kind)
    return scenario


def requests(kind, scenario):
    """The requests that load a scenario into "viaduct-sim model"."""
    yield "load", kind, scenario.name
    for part in scenario.parts.values():
        for value in part.values.values():
            yield value.request()


def table(values):
    """Lines that show every value with its mark and source."""
    section = None
    for value in values:
        if value.section != section:
            section = value.section
            yield f"[{section}]"
        yield f"  {value.key:<20} {value.text(6):<16} {value.mark:<8} {value.source}"


def main():
    try:
        kind, path, *parts = sys.argv[1:]
        for words in requests(kind, load(kind, path, *parts)):
            print(*words, sep="\t")
    except Failure as failure:
        sys.exit(f"sim_scenario.py: {failure}")


if __name__ == "__main__":
    main()
