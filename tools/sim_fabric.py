# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The fabric of a plan: its options, its shape, its parts and whether they fit, and its runs by "viaduct-sim model"."""
import concurrent.futures
import getopt
import math
import os
import re
import threading

import sim_model
import sim_scenario
from sim_model import Failure

HOSTS_MAX, CORE_HOSTS_MAX, CUTS_MAX, LEVELS_MAX, LOADS_MAX = 1024, 64, 16, 4, 16
PATTERNS = ("neighbour", "all-to-all", "incast", "barrier")
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE_MAX = 1 << 30
# Shares of the highest rate, if no --load is given.
SHARES = (0.2, 0.4, 0.6, 0.8, 0.95)
# Each run begins with an empty fabric, so runs can execute in parallel. More would need more memory than a plan should use. Two processors, too,
# execute three: of five runs, one processor would otherwise execute the last run alone.
RUNS_AT_ONCE = 3
# Events per run: enough for fabrics to reach their steady state before measuring begins.
EVENTS_BASE, EVENTS_PER_HOST, EVENTS_DEFAULT_MAX = 200_000, 10_000, 12_000_000
RESOURCES = ("link", "thread", "memory")
TOPOLOGIES = "ring, chain, torus2, torus3, torus:AxB, torus:AxBxC, star or fat-tree"

# --- options ------------------------------------------------------------------------------------


def bad_usage(what, value):
    return Failure(f"{what} '{value}'; see viaduct plan --help")


def is_whole(text, low, high):
    return re.fullmatch("[0-9]{1,20}", text) is not None and low <= int(text) <= high


def whole(text, low, high, what):
    if not is_whole(text, low, high):
        raise bad_usage(what, text)
    return int(text)


def size(text):
    number, unit = re.fullmatch("([0-9]*)(.*)", text, re.DOTALL).groups()
    if not is_whole(number, 1, SIZE_MAX) or unit not in UNITS or int(number) * UNITS[unit] > SIZE_MAX:
        raise bad_usage("--size: expected 1 B to 1 GiB, as in 64, 4KiB, 1MiB, not", text)
    return int(number) * UNITS[unit]


def loads(text):
    words = text.split(",")
    try:
        percents = [float(word) if re.fullmatch(r"[0-9.eE+-]+", word) else 0 for word in words]
    except ValueError:
        percents = [0]
    if len(words) > LOADS_MAX or not all(0 < percent <= 1000 for percent in percents):
        raise bad_usage(f"--load: expected up to {LOADS_MAX} percents, as in 10,50,90, not", text)
    return [percent / 100 for percent in percents]


def cuts(texts):
    pairs = []
    for text in texts:
        ends = text.split("-")
        if len(ends) != 2 or not all(is_whole(end, 0, HOSTS_MAX - 1) for end in ends):
            raise bad_usage("--cut: expected two hosts, as in 3-4, not", text)
        if len(pairs) == CUTS_MAX:
            raise bad_usage(f"--cut: more than {CUTS_MAX} links; the last is", text)
        pairs.append((int(ends[0]), int(ends[1])))
    return pairs


def pattern(text):
    if text not in PATTERNS:
        raise bad_usage("--pattern: expected neighbour, all-to-all, incast or barrier, not", text)
    return text


def name(option):
    def read(text):
        if len(text) > 31:
            raise bad_usage(f"--{option}: too long:", text)
        return text

    return read


# Those with a value, and how it is read.
VALUES = {
    "hosts": lambda text: whole(text, 2, HOSTS_MAX, "--hosts: not a number from 2 to 1024:"),
    "topology": str,
    "card": name("card"),
    "cable": name("cable"),
    "switch": name("switch"),
    "board": name("board"),
    "channels": lambda text: whole(text, 1, 14, "--channels: not a number from 1 to 14:"),
    "parts": str,
    "pattern": pattern,
    "size": size,
    "load": loads,
    "seed": lambda text: whole(text, 0, 2**63 - 1, "--seed: not a number:"),
    "under-way": lambda text: whole(text, 1, 256, "--under-way: not a number from 1 to 256:"),
    "events": lambda text: whole(text, 1000, 100_000_000_000, "--events: not a number from 1000 on:"),
}
FLAGS = ("saturated", "core", "list")
DEFAULTS = {"topology": "ring", "card": "gen3-x8", "cable": "copper-x8", "switch": "pex8796", "board": "", "pattern": "neighbour", "size": 32768,
            "seed": 1, "under-way": 16}


def parse(words, more=()):
    """The options, and the words that follow them; `more`: further options in the format of getopt."""
    names = [*(f"{option}=" for option in (*VALUES, "cut", "bin", "model")), *FLAGS, *more]
    try:
        given, rest = getopt.gnu_getopt(words, "", names)
    except getopt.GetoptError as error:
        option = f"--{error.opt}" if len(error.opt) > 1 else f"-{error.opt}"
        raise bad_usage("needs a value:" if "requires argument" in error.msg else "unknown option", option) from None
    options = {**DEFAULTS, "cut": cuts([value for option, value in given if option == "--cut"])}
    for option, value in given:
        if option != "--cut":
            options[option[2:]] = VALUES.get(option[2:], str)(value)
    return options, rest


# --- shapes -------------------------------------------------------------------------------------


def near_root(number, degree):
    """The greatest divisor that does not exceed the root of that degree."""
    return max(i for i in range(1, number + 1) if i == 1 or (i**degree <= number and number % i == 0))


def factor(text, hosts, dimensions):
    sizes = []
    for dimension in range(dimensions, 0, -1):
        sizes.insert(0, near_root(hosts, dimension) if dimension > 1 else hosts)
        hosts //= sizes[0]
    if min(sizes) < 2:
        raise Failure(f"--topology {text}: {math.prod(sizes)} hosts are no {dimensions}-dimensional torus: no product of numbers above 1 that near "
                      "each other; say torus:AxB or torus:AxBxC")
    return sizes


def given_sizes(text, hosts):
    words = text[len("torus:"):].split("x")
    if not 2 <= len(words) <= 3 or not all(is_whole(word, 2, HOSTS_MAX) for word in words):
        raise Failure(f"--topology {text}: expected torus:AxB or torus:AxBxC, each 2 to {HOSTS_MAX}")
    sizes = [int(word) for word in words]
    if hosts not in (None, math.prod(sizes)):
        raise Failure(f"--topology {text}: has {math.prod(sizes)} hosts, not {hosts}")
    return sizes


class Torus:
    """A torus of one dimension (a ring) to three, whose hosts relay. Without cuts a host has two ports per dimension, or one if that has two hosts."""

    def __init__(self, text, sizes, cut):
        self.text, self.sizes, self.hosts, self.switches = text, sizes, math.prod(sizes), []
        self.cuts = [(0, self.hosts - 1)] * (text == "chain" and self.hosts > 2) + cut
        self.degree = sum(1 if one == 2 else 2 for one in sizes)
        if not 2 <= self.hosts <= HOSTS_MAX:
            raise Failure(f"--topology {text}: {self.hosts} hosts, but 2 to {HOSTS_MAX} are allowed")
        for count, (a, b) in enumerate(self.cuts):
            self.check_cut(a, b, {frozenset(pair) for pair in self.cuts[:count]})

    def check_cut(self, a, b, before):
        """Refuses to cut a link that does not exist or is cut already, and one without which hosts do not reach each other."""
        if not max(a, b) < self.hosts or b not in self.neighbours(a):
            raise Failure(f"--topology {self.text} of {self.hosts} hosts: no link joins {a} and {b}")
        if {a, b} in before:
            raise Failure(f"--topology {self.text}: {a}-{b} is cut twice, or does not exist")
        if len(before) == CUTS_MAX:
            raise Failure(f"--topology {self.text}: more than {CUTS_MAX} links are cut")
        if len(self.reached(0, before | {frozenset((a, b))})) < self.hosts:
            raise Failure(f"--topology {self.text}: without {a}-{b} not all hosts reach host 0")

    def neighbours(self, host):
        stride, found = 1, set()
        for one in self.sizes:
            at = host // stride % one
            found |= {host + ((at + step) % one - at) * stride for step in (1, -1)}
            stride *= one
        return found

    def reached(self, host, absent):
        """The hosts to which `host` has a route."""
        reached, edge = {host}, [host]
        while edge:
            at = edge.pop()
            more = {other for other in self.neighbours(at) if {at, other} not in absent} - reached
            reached |= more
            edge.extend(more)
        return reached

    def words(self):
        return "torus", ",".join(map(str, self.sizes)), ""

    def cables(self):
        return sum(self.hosts // 2 if one == 2 else self.hosts for one in self.sizes) - len(self.cuts)

    def cuts_of(self, dimension, at):
        """The number of cuts between the hosts at - 1 and at of a dimension, and of those half way round from there."""
        one, stride, count = self.sizes[dimension], math.prod(self.sizes[:dimension]), 0
        for a, b in self.cuts:
            places = [end // stride % one for end in (a, b)]
            if places[0] != places[1]:
                lower = places[0] if (places[0] + 1) % one == places[1] else places[1]
                count += (lower + 1) % one in (at, (at + one // 2) % one)
        return count

    def bisection(self):
        """The fewest cables between two halves of the hosts: a plane across a dimension crosses each of its rings twice, or each pair once."""
        rings = [self.hosts // one for one in self.sizes]
        return min((ring if one == 2 else 2 * ring) - max(self.cuts_of(d, at) for at in range(one))
                   for d, (one, ring) in enumerate(zip(self.sizes, rings)))

    def share(self):
        """The most that each host can receive, in bandwidths of a cable, if every host sends equally to all others: the traffic between two parts of
        the fabric must fit the cables between them. Links that are cut count as whole; a chain counts as a chain."""
        is_chain = len(self.sizes) == 1 and self.cuts
        least = self.degree
        for one in self.sizes:
            rings = self.hosts // one
            least = min(least, self.share_of(one // 2 * rings, rings if one == 2 or is_chain else 2 * rings))
        return least

    def share_of(self, inside, cables):
        """For each message that a host sends, `inside` hosts send `inside` x the other hosts / (hosts - 1) messages to the others."""
        return cables * (self.hosts - 1) / (inside * (self.hosts - inside))


class Tree:
    """A tree of switch chips with the hosts at the bottom, every pair of which are neighbours: an extended generalised fat tree (Ohring et al., IPPS
    1995), in which a node of level i has children[i - 1] below and parents[i] above. It covers a single switch, a hub of switches and a fat tree."""

    def __init__(self, text, hosts):
        self.text, self.hosts, self.sizes, self.cuts, self.degree = text, hosts, [], [], 1

    def grow(self, ports):
        """Computes the levels for chips with `ports` links each. Returns the number of hosts that fit."""
        fat = self.text == "fat-tree"
        # Ports that lead down, and uplinks, of a chip that has other chips above it.
        down, up = (ports // 2, ports // 2) if fat else (ports - 1, 1)
        below, room = 1, 0  # hosts below a child of the top switch
        for level in range(1, LEVELS_MAX + 1 if ports >= 2 and down > 0 else 1):
            room = below * ports
            if self.hosts <= room:
                self.children = [down] * (level - 1) + [-(-self.hosts // below)]
                self.parents = [1] + [up] * (level - 1)
                self.switches = [self.count(i) for i in range(1, level + 1)]
                break
            below *= down
        return room

    def count(self, level):
        """The number of switches of a level: groups, times the parallel switches of a group."""
        return -(-self.hosts // math.prod(self.children[:level])) * math.prod(self.parents[:level])

    def uplinks(self):
        return [self.hosts] + [count * up for count, up in zip(self.switches, self.parents[1:])]

    def words(self):
        return "tree", ",".join(map(str, self.children)), ",".join(map(str, self.parents))

    def cables(self):
        return sum(self.uplinks())

    def bisection(self):
        return max(min(links // 2 for links in self.uplinks()), 1)

    def share(self):
        """The same as for a torus, from all the traffic that leaves the hosts below a switch."""
        least, members, ways = 1, 1, 1
        for child, up, above in zip(self.children[:-1], self.parents, self.parents[1:]):
            members, ways = members * child, ways * up
            least = min(least, ways * above * (self.hosts - 1) / (members * (self.hosts - members)))
        return least


def shape_of(text, hosts, cut):
    if text.startswith("torus:"):
        return Torus(text, given_sizes(text, hosts), cut)
    if hosts is None:
        raise Failure(f"--topology {text}: how many hosts?")
    if text in ("ring", "chain"):
        return Torus(text, [hosts], cut)
    if text in ("torus2", "torus3"):
        return Torus(text, factor(text, hosts, int(text[5])), cut)
    if text not in ("star", "fat-tree"):
        raise Failure(f"--topology {text}: no such topology: expected {TOPOLOGIES}")
    if cut:
        raise Failure(f"--topology {text}: a host has one cable; nothing is left when it is cut")
    return Tree(text, hosts)


# --- parts --------------------------------------------------------------------------------------


class Parts:
    """The parts of a fabric: whether they exist and fit, and how many are needed."""

    def __init__(self, model, path, options, shape):
        self.model, self.path, self.shape = model, path, shape
        if not self.names("host"):
            raise Failure(f"{path}: there is no [host NAME]")
        self.card = self.find("card", options["card"])
        self.cable = self.find("cable", options["cable"])
        self.check_card(options["cable"])
        if isinstance(shape, Tree):
            self.grow(self.find("switch", options["switch"]), options["cable"])
        self.cards_per_host = -(-shape.degree // self.whole(self.card, "cables"))
        self.board = self.find_board(options["board"])
        self.check_board()

    def whole(self, section, key):
        return self.model.whole(section, key)

    def word(self, section, key):
        return self.model.known[section, key].unit

    def names(self, kind):
        return [part.instance for part in self.model.scenario.of(kind)]

    def find(self, kind, wanted):
        if wanted not in self.names(kind):
            raise Failure(f"{self.path}: there is no [{kind} {wanted}]; it has {', '.join(self.names(kind)) or 'none'}")
        return f"{kind} {wanted}"

    def complain(self, section, key, text):
        return self.model.scenario.complain_of(section, key, text)

    def check_card(self, cable):
        """Checks that the cards' chips have lanes and ports for slot and cables."""
        name_of_chip = self.word(self.card, "chip")
        chip, self.slot = self.find("switch", name_of_chip), self.find("slot", self.word(self.card, "slot"))
        for link in (self.slot, self.cable):
            self.model.scenario.check_link(link)
        cables = self.whole(self.card, "cables")
        self.card_lanes = self.whole(self.slot, "lanes") + self.whole(self.cable, "lanes") * cables
        self.card_chip_lanes, ports = self.whole(chip, "lanes"), self.whole(chip, "ports")
        if 1 + cables > ports:
            raise self.complain(self.card, "cables", f"{name_of_chip} has {ports} ports, slot and cables need {1 + cables}")
        if self.card_lanes > self.card_chip_lanes:
            raise self.complain(self.card, "cables",
                                f"{name_of_chip} has {self.card_chip_lanes} lanes, slot and cables of {cable} need {self.card_lanes}")

    def grow(self, chip, cable):
        lanes, width, most = self.whole(chip, "lanes"), self.whole(self.cable, "lanes"), self.whole(chip, "ports")
        self.switch_ports = min(lanes // width, most)
        room = self.shape.grow(self.switch_ports)
        if room < self.shape.hosts:
            raise self.complain(chip, "lanes" if lanes // width <= most else "ports",
                                f"a {self.shape.text} of chips with {self.switch_ports} ports of x{width} ({cable}) has room for {room} hosts, "
                                f"not {self.shape.hosts}")

    def find_board(self, wanted):
        """The requested one, or the first that is as fast as the slots."""
        generation = self.whole(self.slot, "generation")
        boards = [self.find("board", wanted)] if wanted else [f"board {one}" for one in self.names("board")]
        fast = [board for board in boards if self.whole(board, "generation") >= generation]
        if wanted and not fast:
            raise self.complain(boards[0], "generation", f"[{self.slot}] needs {generation}")
        if not fast:
            raise Failure(f"{self.path}: there is no [board] of generation {generation}")
        return fast[0]

    def check_board(self):
        """Lanes and slots for all cards of a host."""
        self.host_lanes = self.cards_per_host * self.whole(self.slot, "lanes")
        self.board_lanes, slots = self.whole(self.board, "lanes"), self.whole(self.board, "slots")
        if self.host_lanes > self.board_lanes:
            raise self.complain(self.board, "lanes",
                                f"{self.board_lanes}, and the {self.cards_per_host} cards of a host need {self.host_lanes}; see --board")
        if self.cards_per_host > slots:
            raise self.complain(self.board, "slots", f"{slots}, and a host has {self.cards_per_host} cards; see --board")

    def stock(self, links, rate_of_port, rate_of_cable, bound):
        shape, cords, is_tree = self.shape, self.whole(self.cable, "cords"), isinstance(self.shape, Tree)
        ups = [child + up for child, up in zip(shape.children, [*shape.parents[1:], 0])] if is_tree else [0]
        return {"cards": self.cards_per_host * shape.hosts, "cards_per_host": self.cards_per_host, "cables": shape.cables(), "cords_per_cable": cords,
                "cords": shape.cables() * cords, "switches": sum(shape.switches), "links": links, "bisection_cables": shape.bisection(),
                "bisection_bytes_per_s": number(shape.bisection() * rate_of_cable), "port_bytes_per_s": number(rate_of_port),
                "bound_bytes_per_s": number(bound), "board": self.board.split(" ", 1)[1], "host_lanes": self.host_lanes, "board_lanes": self.board_lanes,
                "card_lanes": self.card_lanes, "card_chip_lanes": self.card_chip_lanes, "switch_ports_used": max(ups),
                "switch_ports": self.switch_ports if is_tree else 0}


# --- the plan -----------------------------------------------------------------------------------


def number(value):
    """Rounds to 12 digits: more would be meaningless, because times are whole picoseconds and counts are far smaller."""
    return None if value is None or math.isnan(value) else float(f"{value:.12g}")


def environment():
    """Makes glibc's malloc use huge pages (GLIBC_TUNABLES): a large plan waits for memory, and huge pages reduce that."""
    tunables = [os.environ[name] for name in ("GLIBC_TUNABLES",) if os.environ.get(name)]
    return {**os.environ, "GLIBC_TUNABLES": ":".join(["glibc.malloc.hugetlb=1", *tunables])}


class Plan:
    def __init__(self, options):
        self.options = options
        self.path = options.get("parts") or os.path.join(sim_model.scenarios(options["bin"]), "parts.ini")
        self.scenario = sim_scenario.load("plan", self.path)
        self.model = self.start()  # knows the parts, and shows progress
        self.lock = threading.Lock()
        self.done = {}  # events, by run

    def start(self):
        model = sim_model.Model(self.options.get("model") or os.path.join(self.options["bin"], "viaduct-sim"), environment())
        model.use("plan", self.scenario)
        return model

    def list(self):
        return sim_scenario.table(self.scenario.values)

    def request_fabric(self, model):
        options, shape = self.options, self.shape
        ends = ",".join(f"{a},{b}" for a, b in shape.cuts)
        return model.send_request("fabric", shape.text, *shape.words(), ends, options["card"], options["cable"], options["switch"], shape.hosts, self.channels,
                                  options["size"])

    def bound(self, port, cable):
        """The limit that the shape sets to traffic of this pattern, independent of the hosts."""
        pattern_name, hosts = self.options["pattern"], self.shape.hosts
        if pattern_name == "neighbour":
            return port  # all of it leaves by one port
        if pattern_name == "all-to-all":
            return self.shape.share() * cable
        return self.shape.degree * port / (hosts - 1) if pattern_name == "incast" else None

    def check_options(self):
        """Options that say nothing about this fabric are refused: they would be ignored."""
        options = self.options
        if not isinstance(self.shape, Tree) and options["switch"] != DEFAULTS["switch"]:
            raise Failure(f"--switch {options['switch']}: a {self.shape.text} has no switches")
        if options["pattern"] == "barrier" and "load" in options:
            raise Failure("--load: barriers follow each other as fast as they can")

    def check_core(self):
        options, frame = self.options, self.model.whole("viaduct", "body")
        if "core" in options and (self.shape.hosts > CORE_HOSTS_MAX or options["pattern"] == "barrier" or options["size"] > frame):
            raise Failure(f"--core: up to {CORE_HOSTS_MAX} hosts, messages of up to {frame} bytes, no barriers")

    def choice(self, figures):
        if not figures:
            return {}
        keys = ("engine_sooner_bytes", "stores_us", "engine_us", "stores_busy_us", "engine_busy_us")
        values = [int(figures[0]), *(number(ps / 1e6) for ps in figures[1:5])]
        return {"engine": self.parts.names("dma")[0], **dict(zip(keys, values)), "engine_port_bytes_per_s": number(figures[5])}

    def make(self):
        """The plan, as it is printed as JSON."""
        options, known = self.options, self.model
        self.shape = shape_of(options["topology"], options.get("hosts"), options["cut"])
        self.channels = options.get("channels", known.whole("viaduct", "channels"))
        self.check_options()
        self.check_core()
        self.parts = Parts(known, self.path, options, self.shape)
        links, self.port, cable, *figures = self.request_fabric(known)
        self.events = options.get("events", min(EVENTS_BASE + self.shape.hosts * EVENTS_PER_HOST * int(max(links, 8)) // 8, EVENTS_DEFAULT_MAX))
        rows, cables, saturated = self.rows()
        is_tree = isinstance(self.shape, Tree)
        return {"topology": self.shape.text, "hosts": self.shape.hosts, "pattern": options["pattern"], "bytes": options["size"],
                "channels": self.channels, "seed": options["seed"], "core": "core" in options, "saturated": saturated, "card": options["card"],
                "cable": options["cable"], "switch": options["switch"] if is_tree else None,
                **self.parts.stock(int(links), self.port, cable, self.bound(self.port, cable)), **self.choice(figures),
                "sizes": [self.shape.hosts, *self.shape.switches] if is_tree else self.shape.sizes, "is_torus": not is_tree, "rows": rows,
                "cable_loads": cables}

    def rows(self):
        """All rows, the cables of the row that the pictures show, and whether hosts send at full speed in the first row."""
        options, given, barrier = self.options, self.options.get("load"), self.options["pattern"] == "barrier"
        only_one = "saturated" in options or barrier
        self.model.send_request("progress", "viaduct plan: event", (len(given) if given else 1 if only_one else 1 + len(SHARES)) * self.events)
        try:
            if given:
                runs = self.run([load * self.port for load in given], len(given) - 1)
                return [row for row, *_ in runs], runs[-1][1], False
            (row, cables, most), = self.run([0], 0)
            more = self.run([share * most for share in SHARES], None) if not only_one and most > 0 else []
            return [row, *(other for other, *_ in more)], cables, not barrier
        finally:
            self.model.send_request("erase")

    def run(self, rates, pictured):
        """For each rate: a row, its cables if it is the pictured one, and the bytes per second that a host received."""
        at_once = 1 if "core" in self.options or len(os.sched_getaffinity(0)) == 1 else min(RUNS_AT_ONCE, len(rates))
        idle = [self.start() for _ in range(at_once)]  # started by this thread, because they end with the thread that starts them
        for model in idle:
            self.request_fabric(model)

        def run_one(job):
            model = idle.pop()
            row = self.run_row(model, *job)
            idle.append(model)
            return row

        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            rows = list(pool.map(run_one, [(rate, index == pictured) for index, rate in enumerate(rates)]))
        for model in idle:
            model.close()
        return rows

    def step(self, model, done):
        with self.lock:
            self.done[model] = done
            self.model.send_request("step", sum(self.done.values()))

    def run_row(self, model, rate, has_cables):
        options = self.options
        run = object()
        figures, names = model.run(lambda done: self.step(run, done), options["pattern"], repr(float(rate)), options["size"], options["under-way"],
                                   self.events, options["seed"], int("core" in options), int(has_cables))
        offered, got, total, seconds, drift = map(number, figures[:5])
        at_rest, messages, refused, stuck, events = map(int, figures[9:14])
        busy = {resource: {"name": name_of, "percent": number(figures[14 + 2 * i] * 100), "work_percent": number(figures[15 + 2 * i] * 100)}
                for i, (resource, name_of) in enumerate(zip(RESOURCES, names))}
        load = (rate if rate > 0 else figures[1]) / self.port
        times = {key: number(ps / 1e6) for key, ps in zip(("p50_us", "p90_us", "p99_us", "max_us"), figures[5:9])}
        row = {"load_percent": number(load * 100), "offered_bytes_per_s": offered, "host_bytes_per_s": got, "total_bytes_per_s": total, **times,
               "seconds": seconds, "drift": drift, "at_rest": bool(at_rest), "messages": messages, "refused": refused, "stuck": stuck, "events": events,
               "busiest": busy}
        return row, [self.cable(*figures[i:i + 4]) for i in range(20, len(figures), 4)], figures[1]

    def cable(self, a, b, there, back):
        """[node, node, busy there, busy back]; None: cut. Switches are numbered after hosts."""
        a, b = int(a), int(b)
        is_cut = (a, b) in self.shape.cuts or (b, a) in self.shape.cuts
        return [a, b, *(None if is_cut else number(share) for share in (there, back))]
