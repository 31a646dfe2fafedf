# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""curl's own tests, from Debian's source package, of Debian's curl: its requests, byte by byte.

apt-get loads the source into the folder of this run, and only its test servers are built. curl, these servers, and the
Perl programs among them run with the library. Tests that fail only on pipes run again, up to three times.
"""
import os
import re
import shutil
import subprocess

import conform_source
from conform_share import environment, run_groups, run_logged, take_share

# Rows of the table: a test belongs to the first row that has one of its servers. Tests that need any other server are
# left out.
GROUPS = [("proxies, SOCKS", {"http-proxy", "socks4", "socks5"}), ("FTP", {"ftp", "ftp-ipv6"}), ("SMTP", {"smtp"}),
          ("IMAP", {"imap"}), ("POP3", {"pop3"}), ("HTTPS by stunnel", {"https"}),
          ("MQTT, gopher, telnet", {"mqtt", "gopher", "gopher-ipv6", "telnet", "dict"}), ("HTTP", {"http", "http-ipv6"})]
KNOWN = set().union(*[servers for _, servers in GROUPS])
# Without --all every fourth HTTP test runs.
ONE_OF = 4
RESULT = re.compile(r"^test (\d+)\.\.\.(.*?)(?=^test \d|^TEST|\Z)", re.MULTILINE | re.DOTALL)
LIMIT_S = 1500
OPTIONS = ["--without-ssl", "--without-zlib", "--without-brotli", "--without-zstd", "--without-libpsl",
           "--without-nghttp2", "--without-libidn2", "--without-librtmp", "--disable-ldap", "--disable-manual", "--disable-shared"]


def build(tree):
    """Builds the servers of the tests. Returns None, or the reason for a failure."""
    for words in (["./configure", "-q", *OPTIONS], ["make", "-s", "-C", "tests/server"]):
        done = subprocess.run(words, cwd=tree, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=1200)
        if done.returncode != 0:
            return "%s: %s" % (" ".join(words[:1]), done.stderr.strip()[-300:])
    # Some commands of the tests use this path, whichever curl is tested.
    os.symlink(shutil.which("curl"), os.path.join(tree, "src", "curl"))
    return None


def servers_of(path):
    """The servers that a test needs; None: the test is a program of its own, for which libcurl would have to be
    built."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    found = re.search(r"<server>\s*(.*?)\s*</server>", text, re.DOTALL)
    return None if "<tool>" in text else set(found.group(1).split() if found else ())


def groups_of(tree, every):
    folder = os.path.join(tree, "tests", "data")
    numbers = sorted(int(name[4:]) for name in os.listdir(folder) if re.fullmatch(r"test\d+", name))
    needs = {number: servers_of(os.path.join(folder, "test%d" % number)) for number in numbers}
    left = [number for number in numbers if needs[number] and needs[number] <= KNOWN]
    for title, servers in GROUPS:
        mine = [number for number in left if needs[number] & servers]
        left = [number for number in left if number not in mine]
        yield title, mine[::ONE_OF] if title == "HTTP" and not every else mine


class Runner:
    def __init__(self, tree, library, folder):
        self.tests = os.path.join(tree, "tests")
        self.library = library
        self.stats = os.path.join(folder, "curl-stats")
        self.log = os.path.join(folder, "curl-log")

    def run(self, numbers, preload):
        """(tests that ran, those that failed)"""
        code, log = run_logged(["perl", "runtests.pl", "-n", "-a", "-s", *map(str, numbers)], self.tests,
                               environment(preload, self.library, self.stats), self.log, LIMIT_S)
        results = {int(number): text for number, text in RESULT.findall(log)}
        failed = {"curl %d" % number for number, text in results.items() if not re.search(r"^(?:.*\n)*?OK ", text)}
        return {"curl %d" % number for number in results} | failed, failed | (set() if code is not None else {"did not end"})


def run_group(runner, numbers):
    """The figures of a row, its share, and its new failures."""
    ran, failed = runner.run(numbers, False)
    ran_pipes, failed_pipes = runner.run(numbers, True)
    share = take_share(runner.stats)
    new = ((failed_pipes | (ran - ran_pipes)) - failed) if ran else {"nothing ran"}
    for _ in range(3):  # some of them measure time, or wait for a log for as long as a quiet machine takes
        alone = [int(name.split()[1]) for name in new if name.startswith("curl ")]
        if alone:
            again, failed_again = runner.run(sorted(alone), True)
            new -= again - failed_again
    take_share(runner.stats)
    return (len(ran), len(failed)), (len(ran_pipes), len(failed_pipes)), share, sorted(new)


def suite(folder, library, options):
    """(new failures, share), or (None, reason) if it can not run."""
    tree, why = conform_source.fetch(folder, "curl", "curl")
    why = why or build(tree)
    if why is not None:
        return None, why
    runner = Runner(tree, library, folder)
    return run_groups("curl", groups_of(tree, options.all), lambda numbers: run_group(runner, numbers))
