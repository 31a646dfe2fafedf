# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""CPython's own tests of sockets, from Debian's libpython3.11-testsuite or with the interpreter named.

Both ends of most connections are in one process. Tests that fail only on pipes run again, alone and up to three times,
on both, since some of these tests fail now and then on any machine.
"""
import os
import re
import subprocess

from conform_share import Share, environment, run_logged, show_head, show_row, take_share

MODULES = ["test_socket", "test_asyncio", "test_ssl", "test_selectors", "test_epoll", "test_poll", "test_httplib",
           "test_ftplib", "test_imaplib", "test_smtplib", "test_poplib", "test_xmlrpc", "test_socketserver"]
# Hangs on machines without a vsock device, with and without the library.
LEFT_OUT = "*VSOCK*"
# These tests claim to need the network, but use loopback only.
NETWORK = ["test_socketserver"]
HEADING = re.compile(r"^(?:FAIL|ERROR): (\S+) \(([^)]*)\)", re.MULTILINE)
RAN = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)


class Runner:
    def __init__(self, python, timeout, library, folder):
        self.python = python
        self.timeout = timeout
        self.library = library
        self.folder = folder
        self.stats = os.path.join(folder, "stats")

    def run(self, module, preload, only=None):
        """(tests that ran, those that failed, True if the run ended by itself)"""
        words = [self.python, "-m", "test", "-v", "--timeout=%d" % self.timeout]
        words += ["-m", only] if only else ["-i", LEFT_OUT]
        words += ["-u", "network"] if module in NETWORK else []
        log = os.path.join(self.folder, "log")
        code, text = run_logged([*words, module], self.folder, environment(preload, self.library, self.stats), log,
                                4 * self.timeout)
        ended = code is not None and code >= 0
        failed = {"%s (%s)" % match for match in HEADING.findall(text)}
        return sum(map(int, RAN.findall(text))), failed, ended

    def is_new(self, module, name):
        """True if the test fails with the library three times, and without it not once."""
        only = name.split()[0]
        return (all(self.run(module, True, only)[1] for _ in range(3)) and
                not any(self.run(module, False, only)[1] for _ in range(3)))


def run_suite(runner, modules, total):
    """Runs the modules. Returns the new failures; adds the sent bytes to `total`."""
    bad = []
    show_head("CPython")
    for module in modules:
        ran, failed, ended_plainly = runner.run(module, False)
        ran_pipes, failed_pipes, ended = runner.run(module, True)
        share = take_share(runner.stats)
        total.add(share)
        new = [name for name in sorted(failed_pipes - failed) if runner.is_new(module, name)]
        take_share(runner.stats)
        if not ended and ended_plainly:
            new.append("did not end")
        if ran == 0:
            print("%-22s no tests ran, on kernel TCP neither" % module, flush=True)
            continue
        if ran_pipes < ran and ended_plainly:
            new.append("%d tests less" % (ran - ran_pipes))
        bad += new
        show_row(module, (ran, len(failed)), (ran_pipes, len(failed_pipes)), share, new)
    return bad


def suite(folder, library, options):
    """(new failures, share), or (None, reason) if it can not run."""
    probe = subprocess.run([options.python, "-c", "import test.test_socket"], capture_output=True, check=False)
    if probe.returncode != 0:
        return None, "%s has no package 'test': install libpython3.11-testsuite" % options.python
    total = Share()
    return run_suite(Runner(options.python, options.timeout, library, folder), options.modules or MODULES,
                     total), total
