# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The own tests of libraries whose programs wait for many connections: libevent and libuv, from Debian's source
packages.

apt-get loads the sources into the folder of this run, where they are built. Tests that fail only on pipes run again, up
to three times.
"""
import os
import re
import subprocess

import conform_source
from conform_share import environment, run_groups, run_logged, take_share

# libevent's groups that test connections; the others test buffers, DNS over UDP and the like.
LIBEVENT = ["bufferevent", "et", "finalize", "http", "listener", "main", "rpc", "ssl", "thread", "util"]
# libuv's tests by the name of their file; the others test files, timers and the like.
LIBUV = [("libuv: TCP", r"tcp|connect|listen|accept|getsockname|emfile"), ("libuv: poll", r"poll|readable|writable"),
         ("libuv: processes", r"ipc|fork|spawn|pipe|handle"), ("libuv: the rest", r"ping|ref|shutdown|callback|socket|udp-open")]
TINYTEST = re.compile(r"^(\w+/\w+): (.*?)(?=^\w+/\w+: |^\d+(?:/\d+)? TESTS|^\d+ tests|\Z)", re.MULTILINE | re.DOTALL)
LIMIT_S = 900
ALONE_S = 60


def build(tree, target, *options):
    """(the test program, None), or (None, the reason for a failure)."""
    folder = os.path.join(tree, "conform")
    for words in (["cmake", "-S", tree, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *options],
                  ["cmake", "--build", folder, "--target", target, "--parallel", str(os.cpu_count())]):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=1200)
        if done.returncode != 0:
            return None, "%s: %s" % (" ".join(words[:2]), done.stderr.strip()[-300:])
    for path in (os.path.join(folder, "bin", target), os.path.join(folder, target)):
        if os.path.exists(path):
            return path, None
    return None, "%s: no program after its build" % target


class Libevent:
    """One process per group; it forks for each test."""

    def __init__(self, program):
        self.program = program

    def groups(self):
        return [("libevent: " + group, [group + "/.."]) for group in LIBEVENT]

    def run(self, names, env, log):
        code, text = run_logged([self.program, *names], os.path.dirname(self.program), env, log, LIMIT_S)
        results = dict(TINYTEST.findall(text))
        failed = {name for name, result in results.items() if not re.search(r"(?:OK|SKIPPED|DISABLED)\s*\Z", result)}
        skipped = {name for name, result in results.items() if re.search(r"(?:SKIPPED|DISABLED)\s*\Z", result)}
        return set(results) - skipped, failed | (set() if code is not None else {"did not end"})


class Libuv:
    """One process per test, as in libuv's own runner."""

    def __init__(self, program, tests):
        self.program = program
        self.tests = tests

    def groups(self):
        left = sorted(name for name in os.listdir(self.tests) if name.startswith("test-") and name.endswith(".c"))
        for title, pattern in LIBUV:
            mine = [name for name in left if re.search(pattern, name)]
            left = [name for name in left if name not in mine]
            names = []
            for name in mine:
                with open(os.path.join(self.tests, name), encoding="utf-8") as file:
                    text = file.read()
                names += re.findall(r"^TEST_IMPL\((\w+)\)", text, re.MULTILINE) if re.search(r"uv_tcp_|SOCK_STREAM", text) else []
            yield title, names

    def run(self, names, env, log):
        env = dict(env, UV_RUN_AS_ROOT="1")
        ran, failed = set(), set()
        for name in names:
            code, text = run_logged([self.program, name], os.path.dirname(self.program), env, log, ALONE_S)
            if code is None or re.search(r"^not ok", text, re.MULTILINE):
                failed.add(name)
            elif not re.search(r"^ok \d", text, re.MULTILINE) or "# SKIP" in text:
                continue  # not of this system
            ran.add(name)
        return ran, failed


def run_group(tests, names, folder, library):
    """The figures of a row, its share, and its new failures."""
    stats = os.path.join(folder, "libraries-stats")
    log = os.path.join(folder, "libraries-log")
    ran, failed = tests.run(names, environment(False, library, stats), log)
    ran_pipes, failed_pipes = tests.run(names, environment(True, library, stats), log)
    share = take_share(stats)
    new = ((failed_pipes | (ran - ran_pipes)) - failed) if ran else {"nothing ran"}
    for _ in range(3):  # many of them measure time
        alone = sorted(new - {"nothing ran", "did not end"})
        if alone:
            again, failed_again = tests.run(alone, environment(True, library, stats), log)
            new -= again - failed_again
    take_share(stats)
    return (len(ran), len(failed)), (len(ran_pipes), len(failed_pipes)), share, sorted(new)


def suite(folder, library, _options):
    """(new failures, share), or (None, reason) if it can not run."""
    sources = []
    for package, program in (("libevent", "libevent-2.1-7"), ("libuv1", "libuv1")):
        place = os.path.join(folder, package)
        os.makedirs(place)
        tree, why = conform_source.fetch(place, package, program)
        if why is not None:
            return None, why
        sources.append(tree)
    regress, why = build(sources[0], "regress", "-DEVENT__LIBRARY_TYPE=STATIC", "-DEVENT__DISABLE_BENCHMARK=ON",
                         "-DEVENT__DISABLE_SAMPLES=ON")
    if why is None:
        run_tests, why = build(sources[1], "uv_run_tests", "-DBUILD_TESTING=ON")
    if why is not None:
        return None, why
    suites = [Libevent(regress), Libuv(run_tests, os.path.join(sources[1], "test"))]
    groups = [(title, (tests, names)) for tests in suites for title, names in tests.groups()]
    return run_groups("libraries", groups, lambda pair: run_group(*pair, folder, library))
