# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Redis' own tests, from Debian's source package, against Debian's redis-server; replication included.

The source comes by apt-get into the folder of this run. Both the server and the Tcl interpreter of the tests run with
the library. A failing test is run again with its file, alone.
"""
import os
import random
import re
import signal

import conform_source
from conform_share import environment, run_groups, run_logged, take_share

# Tests of some seconds each; the whole suite takes about an hour.
SOME = ["unit/printver", "unit/auth", "unit/protocol", "unit/keyspace", "unit/info", "unit/querybuf", "unit/tls",
        "unit/networking", "unit/obuf-limits", "unit/pubsub", "unit/multi", "unit/slowlog", "unit/tracking",
        "unit/pause", "unit/limits", "unit/type/string", "unit/type/list", "unit/type/stream-cgroups",
        "integration/block-repl",
        "integration/replication", "integration/replication-2", "integration/replication-3",
        "integration/replication-4", "integration/psync2-reg", "integration/redis-cli",
        "integration/redis-benchmark"]
# These tests build modules, or need more memory than machines for tests have.
NEVER = re.compile(r"moduleapi|violations")
OK = re.compile(r"\[ok\]: (.*?)(?: \(\d+ ms\))?$", re.MULTILINE)
ERR = re.compile(r"\[(?:err|exception|TIMEOUT)\]: ([^\n]*)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Numbers in the names of tests: how far a test got in its time, and which case it chose at random.
NUMBERS = re.compile(r"(?<=\(x = )\d+|(?<=#)\d+|(?<=CYCLE )\d+")
LIMIT_S = 900
# Each run has ports of its own, because another run may be under way on this machine. The cluster's ports are 10,000
# above.
PORTS = 600
PORTS_FROM = 11000


def prepare(tree):
    """Links Debian's programs to where the tests look for theirs."""
    for name in ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb",
                 "redis-sentinel"):
        link = os.path.join(tree, "src", name)
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink("/usr/bin/" + name, link)


def all_units(tree):
    with open(os.path.join(tree, "tests", "test_helper.tcl"), encoding="utf-8") as file:
        block = re.search(r"set ::all_tests \{(.*?)\}", file.read(), re.DOTALL).group(1)
    return [unit for unit in block.split() if not NEVER.search(unit)]


class NothingRan(Exception):
    """No test of a file ran, which counts as a failure."""


class Runner:
    def __init__(self, tree, library, folder):
        self.tree = tree
        self.library = library
        self.stats = os.path.join(folder, "redis-stats")
        self.log = os.path.join(folder, "redis-log")
        self.port = PORTS_FROM + PORTS * random.randrange(16)

    def run(self, unit, preload):
        """(tests that ran, those that failed)"""
        code, log = run_logged(["tclsh", "tests/test_helper.tcl", "--single", unit, "--clients", "1", "--timeout",
                                "300", "--baseport", str(self.port + 50), "--portcount", str(PORTS - 50)], self.tree,
                               environment(preload, self.library, self.stats), self.log, LIMIT_S, signal.SIGTERM)
        text = NUMBERS.sub("N", COLOURS.sub("", log))
        failed = {re.sub(r" in tests/.*", "", name) for name in ERR.findall(text)}
        if code is None:
            failed.add("did not end")
        ran = set(OK.findall(text)) | failed
        if code != 0 and not ran:
            raise NothingRan("%s: tests/test_helper.tcl ended with %s: %s" % (unit, code, text.strip()[-300:]))
        return ran, failed


def run_unit(runner, unit):
    """The figures of a unit, its share, and its new failures."""
    ran, failed = runner.run(unit, False)
    ran_pipes, failed_pipes = runner.run(unit, True)
    share = take_share(runner.stats)
    new = sorted((failed_pipes | (ran - ran_pipes)) - failed)
    for _ in range(2):
        if new:
            again = runner.run(unit, True)
            new = sorted(set(new) & (again[1] | (ran - again[0])))
    take_share(runner.stats)
    return (len(ran), len(failed)), (len(ran_pipes), len(failed_pipes)), share, new


def run_unit_reporting(runner, unit):
    try:
        return run_unit(runner, unit)
    except NothingRan as error:
        return (0, 0), (0, 0), take_share(runner.stats), [str(error)]


def suite(folder, library, options):
    """(new failures, share), or (None, reason) if it can not run."""
    tree, why = conform_source.fetch(folder, "redis", "redis-server")
    if tree is None:
        return None, why
    prepare(tree)
    runner = Runner(tree, library, folder)
    units = all_units(tree) if options.all else SOME
    return run_groups("Redis", zip(units, units), lambda unit: run_unit_reporting(runner, unit))
