#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""CPython's own tests of sockets, with and without the library: a test that fails with it and not without is a bug here.

usage: conform_sockets.py [--python PROGRAM] [--timeout S] [MODULE...]

A module's tests run on kernel TCP and on pipes; what fails only on pipes is run again, alone and up to three times, on
both, since some of these tests fail now and then on any machine. Then how much of what was sent went by pipes. Both
ends of most connections are in one process. The tests come from Debian's libpython3.11-testsuite, or with the
interpreter named. Exit code 1 for new failures, 77 when there are no tests.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from lab import PRELOAD

MODULES = ["test_socket", "test_asyncio", "test_ssl", "test_selectors", "test_epoll", "test_poll", "test_httplib",
           "test_ftplib", "test_imaplib", "test_smtplib", "test_poplib", "test_xmlrpc", "test_socketserver"]
# Hangs on machines without a vsock device, whatever carries TCP.
LEFT_OUT = "*VSOCK*"
# Says that it needs the network, and means loopback.
NETWORK = ["test_socketserver"]
HEADING = re.compile(r"^(?:FAIL|ERROR): (\S+) \(([^)]*)\)", re.MULTILINE)
RAN = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)


class Runner:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.stats = os.path.join(folder, "stats")
        self.why = {}

    def run(self, module, preload, only=None):
        """(tests that ran, those that failed, whether it ended by itself)"""
        env = dict(os.environ)
        env.pop("LD_PRELOAD", None)
        if preload:
            # Every connection from its first call on: most of these tests send little.
            env.update(LD_PRELOAD=PRELOAD, VIADUCT_SOCKETS_STATS=self.stats, VIADUCT_SOCKETS_AFTER="0")
        words = [self.args.python, "-m", "test", "-v", "--timeout=%d" % self.args.timeout]
        words += ["-m", only] if only else ["-i", LEFT_OUT]
        words += ["-u", "network"] if module in NETWORK else []
        try:
            done = subprocess.run([*words, module], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False,
                                  timeout=4 * self.args.timeout)
            out, ended = done.stdout, done.returncode >= 0
        except subprocess.TimeoutExpired as late:
            out, ended = (late.stdout or b"").decode(errors="replace"), False
        failed = {"%s (%s)" % match for match in HEADING.findall(out)}
        return sum(map(int, RAN.findall(out))), failed, ended

    def is_new(self, module, name):
        """Does it fail with the library three times, and without it not once?"""
        only = name.split()[0]
        return (all(self.run(module, True, only)[1] for _ in range(3)) and
                not any(self.run(module, False, only)[1] for _ in range(3)))

    def take_share(self):
        """Bytes by pipes and by the kernel since the last call."""
        pipe = kernel = 0
        if os.path.exists(self.stats):
            with open(self.stats, encoding="utf-8") as lines:
                for entry in map(json.loads, lines):
                    pipe += entry["bytes_pipe_tx"]
                    kernel += entry["bytes_kernel_tx"]
                    for reason, count in entry["not_accelerated"].items():
                        self.why[reason] = self.why.get(reason, 0) + count
            os.unlink(self.stats)
        return pipe, kernel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("modules", nargs="*", default=MODULES)
    args = parser.parse_args()
    probe = subprocess.run([args.python, "-c", "import test.test_socket"], capture_output=True, check=False)
    if probe.returncode != 0:
        print("conform_sockets: %s has no package 'test': install libpython3.11-testsuite" % args.python)
        return 77
    bad = []
    with tempfile.TemporaryDirectory(prefix="via-conform-") as folder:
        runner = Runner(args, folder)
        pipe = kernel = 0
        print("%-18s %17s %17s" % ("", "kernel TCP", "pipes"))
        print("%-18s %8s %8s %8s %8s %9s  %s" % ("module", "ran", "failed", "ran", "failed", "by pipes", "new failures"))
        for module in args.modules or MODULES:
            ran, failed, _ = runner.run(module, False)
            ran_pipes, failed_pipes, ended = runner.run(module, True)
            by_pipe, by_kernel = runner.take_share()
            pipe += by_pipe
            kernel += by_kernel
            new = [name for name in sorted(failed_pipes - failed) if runner.is_new(module, name)]
            if not ended:
                new.append("did not end")
            if ran == 0:
                print("%-18s no tests ran, on kernel TCP neither" % module, flush=True)
                continue
            if ran_pipes < ran:
                new.append("%d tests less" % (ran - ran_pipes))
            bad += new
            runner.take_share()
            print("%-18s %8d %8d %8d %8d %7.1f %%  %s" % (module, ran, len(failed), ran_pipes, len(failed_pipes),
                                                       100 * by_pipe / max(by_pipe + by_kernel, 1),
                                                       ", ".join(new) or "none"), flush=True)
    print("bytes sent: %d by pipes, %d by the kernel: %.1f %% by pipes"
          % (pipe, kernel, 100 * pipe / max(pipe + kernel, 1)))
    for reason in sorted(runner.why, key=runner.why.get, reverse=True):
        print("%8d connections by the kernel: %s" % (runner.why[reason], reason))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
