#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct top on a pseudo terminal: contents, keys, a new size, a fabric that comes and goes."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import cli

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]|[\x0e\x0f]")


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, command, env, rows=40, columns=140):
        self.controller, terminal = pty.openpty()
        self.text = ""
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(terminal)
        self.terminal = terminal
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                                        env={**env, "TERM": "xterm", "LANG": "C.UTF-8"})

    def resize(self, rows, columns):
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def key(self, key):
        self.text = ""
        os.write(self.controller, key.encode())

    def read_until(self, pattern, seconds=cli.HANG_S):
        """Ctrl-L redraws the whole screen, not only its changes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.key("\x0c")
            for _ in range(20):
                if not select.select([self.controller], [], [], 0.05)[0]:
                    break
                try:
                    self.text += os.read(self.controller, 65536).decode(errors="replace")
                except OSError:
                    return False
                if re.search(pattern, ESCAPE.sub("", self.text)):
                    return True
        return False

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.controller)
        os.close(self.terminal)


class Top(cli.Case):
    def top(self, *words, **more):
        terminal = Terminal([self.viaduct, "top", "--interval", "0.2", *words], self.env, **more)
        self.addCleanup(terminal.close)
        return terminal

    def assert_shows(self, terminal, pattern):
        self.assertTrue(terminal.read_until(pattern), "%s is not in: %r" % (pattern, ESCAPE.sub("", terminal.text)[-3000:]))

    def test_the_screen_shows_the_fabric_and_takes_keys(self):
        self.good("up", "--ring", "3")
        terminal = self.top()
        self.assert_shows(terminal, r"fabric \S+: 3 of 3 hosts up, 3 of 3 links up")
        self.assert_shows(terminal, r"Hosts \(3\)")
        terminal.key("l")
        self.assert_shows(terminal, r"Links \(3\)")
        # A link that is cut is shown within an interval or two.
        self.good("cut", "1", "2")
        self.assert_shows(terminal, r"2 of 3 links up")
        self.good("mend", "1", "2")
        self.assert_shows(terminal, r"3 of 3 links up")
        terminal.key(" ")
        self.assert_shows(terminal, r"PAUSED")
        terminal.key(" ")
        # A host that is killed is shown, and viaduct top continues.
        self.kill(3)
        self.assert_shows(terminal, r"2 of 3 hosts up")
        # The terminal changes its size: nothing is drawn outside of it, and nothing crashes.
        terminal.resize(8, 40)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.key("h")
        self.assert_shows(terminal, r"Hosts \(3")
        terminal.resize(1, 1)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.key("a")
        time.sleep(0.5)
        self.assertIsNone(terminal.process.poll())
        terminal.key("q")
        self.assertEqual(terminal.process.wait(timeout=cli.HANG_S), 0)
        self.assertEqual(termios.tcgetattr(terminal.terminal), terminal.modes)
        self.down()

    def test_a_column_that_does_not_fit_is_left_out(self):
        self.good("up", "--ring", "3")
        # The heads of links are 79 columns wide.
        for columns, expected in ((76, False), (80, True)):
            terminal = self.top(rows=24, columns=columns)
            # One screen, from its links to its last line; the end of an earlier screen may come before it.
            self.assert_shows(terminal, r"Links \(3[^)]*\)[\s\S]*total[\s\S]*q quit")
            shown = ESCAPE.sub("", terminal.text)
            self.assertEqual("errors" in shown, expected, shown)
            self.assertEqual("err" in shown, expected, shown)
        self.down()

    def test_signals_and_hangup_leave_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            terminal = self.top()
            self.assert_shows(terminal, r"no fabric: ")
            terminal.process.send_signal(number)
            self.assertEqual(terminal.process.wait(timeout=cli.HANG_S), 0)
            self.assertEqual(termios.tcgetattr(terminal.terminal), terminal.modes)

    def test_a_fabric_that_comes_and_goes(self):
        terminal = self.top()
        self.assert_shows(terminal, r"no fabric: ")
        self.good("up", "--ring", "2")
        self.assert_shows(terminal, r"2 of 2 hosts up")
        self.good("down")
        self.assert_shows(terminal, r"no fabric: ")
        terminal.key("q")
        self.assertEqual(terminal.process.wait(timeout=cli.HANG_S), 0)

    def test_connections_and_jobs_are_listed(self):
        self.good("up", "--ring", "2")
        program = "import socket,time\nl=socket.create_server(('127.77.0.1',0))\nc=socket.create_connection(l.getsockname())\n" \
                  "a,_=l.accept()\nprint('ready',flush=True)\ntime.sleep(60)\n"
        with self.start("run", "--host", "1", "--", "/usr/bin/python3", "-c", program) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                out = self.good("top", "--once")
                self.assertRegex(out, r"TCP connections \(\d+\)")
                self.assertRegex(out, r"(?m)^python3\(\d+\) .* 127\.77\.0\.1:\d+")
            finally:
                process.kill()
        self.down()

    def test_wrong_use(self):
        self.bad("top", expected="no terminal")
        self.bad("top", "--interval", "0", code=2, expected="0.2 to 60")
        self.bad("top", "x", code=2, expected="one argument too many")


if __name__ == "__main__":
    cli.main()
