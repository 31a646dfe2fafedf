# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Redis' own tests, from Debian's source package, against Debian's redis-server; replication included.

The source comes by apt-get into the folder of this run. Both the server and the Tcl interpreter that asks it have the
library. A failing test is run again with its file, alone.
"""
import os
import re
import signal

import conform_source
from conform_share import Share, environment, run_logged, show_head, show_row, take_share

# Seconds each; the whole suite takes an hour or so.
SOME = ["unit/printver", "unit/auth", "unit/protocol", "unit/keyspace", "unit/info", "unit/querybuf", "unit/tls",
        "unit/networking", "unit/obuf-limits", "unit/pubsub", "unit/multi", "unit/slowlog", "unit/tracking",
        "unit/pause", "unit/limits", "unit/type/string", "unit/type/list", "integration/block-repl",
        "integration/replication", "integration/replication-2", "integration/replication-3",
        "integration/replication-4", "integration/psync2-reg", "integration/redis-cli",
        "integration/redis-benchmark"]
# Build modules, or need more memory than machines for tests have.
NEVER = re.compile(r"moduleapi|violations")
OK = re.compile(r"\[ok\]: (.*?)(?: \(\d+ ms\))?$", re.MULTILINE)
ERR = re.compile(r"\[(?:err|exception|TIMEOUT)\]: ([^\n]*)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LIMIT_S = 900


def prepare(tree):
    """Debian's programs where the tests look for theirs."""
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


class Runner:
    def __init__(self, tree, library, folder):
        self.tree = tree
        self.library = library
        self.stats = os.path.join(folder, "redis-stats")
        self.log = os.path.join(folder, "redis-log")

    def run(self, unit, preload):
        """(tests that ran, those that failed)"""
        code, log = run_logged(["tclsh", "tests/test_helper.tcl", "--single", unit, "--clients", "1", "--timeout",
                                "300"], self.tree, environment(preload, self.library, self.stats), self.log, LIMIT_S,
                               signal.SIGTERM)
        text = COLOURS.sub("", log)
        failed = {re.sub(r" in tests/.*", "", name) for name in ERR.findall(text)}
        if code is None:
            failed.add("did not end")
        return set(OK.findall(text)) | failed, failed


def run_suite(runner, units):
    bad = []
    total = Share()
    show_head("Redis")
    for unit in units:
        ran, failed = runner.run(unit, False)
        ran_pipes, failed_pipes = runner.run(unit, True)
        share = take_share(runner.stats)
        total.add(share)
        new = sorted((failed_pipes | (ran - ran_pipes)) - failed)
        for _ in range(2):
            if new:
                again = runner.run(unit, True)
                new = sorted(set(new) & (again[1] | (ran - again[0])))
        take_share(runner.stats)
        bad += new
        show_row(unit, (len(ran), len(failed)), (len(ran_pipes), len(failed_pipes)), share, new)
    return bad, total


def suite(folder, library, options):
    """(new failures, share), or None and why it can not run."""
    tree, why = conform_source.fetch(folder, "redis", "redis-server")
    if tree is None:
        return None, why
    prepare(tree)
    return run_suite(Runner(tree, library, folder), all_units(tree) if options.all else SOME)
