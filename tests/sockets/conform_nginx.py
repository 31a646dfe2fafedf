# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""nginx' own tests (Perl, github.com/nginx/nginx-tests) against Debian's nginx: HTTP and stream, as client, server and
proxy.

git loads the tests for each run, from there or from a path. The tests, the servers they fake and nginx have the
library. Tests of modules that this nginx does not have skip themselves. Tests that fail only on pipes run again, up to
twice.
"""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess

from conform_share import environment, run_groups, take_share

URL = "https://github.com/nginx/nginx-tests"
MODULES = "/usr/lib/nginx/modules"
# Rows of the table, in this order: a test belongs to the first that matches.
GROUPS = [("stream", r"stream_"), ("upstreams", r"upstream"), ("proxy", r"proxy"), ("FastCGI, SCGI, uwsgi", r"fastcgi|scgi|uwsgi"),
          ("memcached, gRPC", r"memcached|grpc"), ("HTTP/2", r"h2_"), ("SSL", r"ssl"), ("HTTP", r"")]
# Tests of other transports, or of the mail proxy, which Debian has in a package of its own.
NEVER = re.compile(r"^(h3_|quic_|mail_|stream_udp|perl|image_filter|xslt|.*win32)")
RESULT = re.compile(r"^(not )?ok (\d+)([^\n]*)$", re.MULTILINE)
PLAN = re.compile(r"^1\.\.(\d+)(.*SKIP)?", re.IGNORECASE | re.MULTILINE)
LIMIT_S = 120
AT_ONCE = 4
# Without --all every fourth test runs, and all of stream's.
ONE_OF = 4


def fetch(folder, source):
    """(the tree, None), or (None, the reason for a failure)."""
    tree = os.path.join(folder, "nginx-tests")
    if os.path.isdir(source) and os.path.isdir(os.path.join(source, "lib", "Test")):
        shutil.copytree(source, tree)
        return tree, None
    words = ["git", "clone", "-q", "--depth", "1", source, tree]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    return (tree, None) if done.returncode == 0 else (None, "git clone %s: %s" % (source, done.stderr.strip()[-200:]))


def leave_out_missing_modules(tree):
    """The tests load every module that nginx was configured to have as a file; Debian has a package for each."""
    path = os.path.join(tree, "lib", "Test", "Nginx.pm")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    have = os.listdir(MODULES)
    text = re.sub(r'"load_module \$modules/(\w+\.so);\\n"', lambda m: m.group(0) if m.group(1) in have else '""', text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Runner:
    def __init__(self, tree, library, folder):
        self.tree = tree
        self.library = library
        self.stats = os.path.join(folder, "nginx-stats")
        open(self.stats, "w", encoding="ascii").close()
        os.chmod(self.stats, 0o666)

    def environment(self, preload):
        env = environment(preload, self.library, self.stats)
        env.update(TEST_NGINX_BINARY="/usr/sbin/nginx", TEST_NGINX_MODULES=MODULES,
                   TEST_NGINX_GLOBALS="user root;" if os.geteuid() == 0 else "", TMPDIR=os.path.dirname(self.tree))
        if preload:
            # nginx passes only the configured variables of its environment to its workers.
            env["TEST_NGINX_GLOBALS"] += "".join(" env %s;" % name for name in (
                "LD_PRELOAD", "VIADUCT_SOCKETS_STATS", "VIADUCT_SOCKETS_AFTER"))
        return env

    def run(self, test, preload):
        """(names of the tests that ran, of those that failed); a test program that ends early counts as a failure."""
        process = subprocess.Popen(["perl", test], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, start_new_session=True, env=self.environment(preload))
        try:
            out, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            process.returncode = -signal.SIGKILL
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        text = out.decode(errors="replace")
        ran, failed = set(), set()
        for bad, number, rest in RESULT.findall(text):
            name = "%s %s" % (test, number)
            if not re.search(r"# (skip|todo)", rest, re.IGNORECASE):
                ran.add(name)
                failed |= {name} if bad else set()
        plan = PLAN.search(text)
        ended = test + " ended"
        failed |= {ended} if (process.returncode != 0 and not failed) or plan is None else set()
        return ran | {ended}, failed


def groups_of(tree, every):
    tests = sorted(name for name in os.listdir(tree) if name.endswith(".t") and not NEVER.match(name))
    for title, pattern in GROUPS:
        mine = [name for name in tests if re.search(pattern, name)]
        tests = [name for name in tests if name not in mine]
        yield title, mine if every or title == "stream" else mine[::ONE_OF]


def run_tests(runner, tests, preload):
    """(all tests that ran, all that failed). The tests find free ports themselves, and mostly wait."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda test: runner.run(test, preload), tests))
    return tuple(set().union(*parts) for parts in zip(*results)) if results else (set(), set())


def run_group(runner, tests):
    """The figures of the row, its share, and its new failures."""
    ran, failed = run_tests(runner, tests, False)
    ran_pipes, failed_pipes = run_tests(runner, tests, True)
    share = take_share(runner.stats)
    new = (failed_pipes | (ran - ran_pipes)) - failed
    for _ in range(3):  # alone: many of them measure time
        if new:
            again = [runner.run(test, True) for test in sorted({name.split()[0] for name in new})]
            new -= set().union(*[ran_again - failed_again for ran_again, failed_again in again])
    take_share(runner.stats)
    return (len(ran), len(failed)), (len(ran_pipes), len(failed_pipes)), share, sorted(new)


def suite(folder, library, options):
    """(new failures, share), or (None, reason) if it can not run."""
    if shutil.which("nginx") is None or not os.path.exists(os.path.join(MODULES, "ngx_stream_module.so")):
        return None, "nginx or its stream module is not installed (libnginx-mod-stream)"
    tree, why = fetch(folder, options.nginx_tests)
    if tree is None:
        return None, why
    leave_out_missing_modules(tree)
    os.chmod(folder, 0o755)
    runner = Runner(tree, library, folder)
    return run_groups("nginx", groups_of(tree, options.all), lambda tests: run_group(runner, tests))
