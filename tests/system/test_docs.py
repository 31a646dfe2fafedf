#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The commands of docs/getting-started.md, run one after the other as a reader would: each marked block, in one shell."""
import os
import re
import shutil
import signal
import subprocess
import socket
import unittest

import cli

ROOT = os.path.dirname(os.path.dirname(cli.HERE))
PAGE = os.path.join(ROOT, "docs", "getting-started.md")
BLOCK = re.compile(r"^<!-- run -->\n```\n(.*?)^```$", re.M | re.S)
# What each part must print.
EXPECTED = [
    r"(?s)GET: [\d.]+ requests per second.*GET: [\d.]+ requests per second",
    r"(?m)^ *\d+ redis-benchmar.*127\.0\.0\.1:\d+",
    r"fabric \S+ is up: 4 hosts, 4 links",
    r"(?s)GET: [\d.]+ requests per second.*GET: [\d.]+ requests per second",
    r"(?s)PONG.*cut",
    r"4 PEs, sum 10\n4 PEs, sum 10\n",
    r"is down: 4 daemons ended",
]


# In place of the pauses of the page, which are too short on a busy machine: the first line of the block after the pause works.
WAITS = {
    1: "until redis-cli -p 7001 PING; do sleep 0.1; done\n",
    2: "until viaduct sockets | grep -q redis-benchmar; do sleep 0.1; done\n",
    4: "until redis-cli -h 127.77.0.2 -p 7002 PING; do sleep 0.1; done\n",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Docs(cli.Case):
    def test_the_marked_blocks_do_what_the_page_says(self):
        for program in ("redis-server", "redis-benchmark", "bash"):
            if not shutil.which(program):
                self.skipTest("no %s" % program)
        with open(PAGE, encoding="utf-8") as file:
            blocks = BLOCK.findall(file.read())
        self.assertEqual(len(blocks), len(EXPECTED))
        ports = {"7001": free_port(), "7002": free_port()}
        script = ["set -e"]
        for number, block in enumerate(blocks):
            block = block.replace("sleep 1\n", WAITS.get(number + 1, "sleep 1\n"))
            for port, own in ports.items():
                block = re.sub(r"\b%s\b" % port, own, block)
            script += [block, "echo '=== end %d'" % number]
        env = {**self.env, "PATH": cli.BIN + ":" + os.environ["PATH"]}
        process = subprocess.Popen(["bash", "-c", "\n".join(script)], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            out, _ = process.communicate(timeout=6 * cli.HANG_S)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertEqual(process.returncode, 0, out[-3000:])
        parts = re.split(r"=== end \d+\n", out.replace("\r", "\n"))
        for number, pattern in enumerate(EXPECTED):
            self.assertRegex(parts[number], pattern)
        self.assert_nothing_left()


class Pages(unittest.TestCase):
    def test_blocks_of_other_pages_are_marked_only_where_they_run(self):
        """No page has marked blocks that no test runs."""
        for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(".md") and path != PAGE:
                    with open(path, encoding="utf-8") as file:
                        self.assertNotIn("<!-- run -->", file.read(), path)


if __name__ == "__main__":
    cli.main()
