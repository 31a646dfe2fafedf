#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct tune: the files it writes, their use by a daemon, and refused files."""
import json
import os
import re
import socket
import subprocess
import time

import cli

DELIVER = os.path.join(cli.BIN, "tests", "prog_deliver")
MODEL = ["pex:model:m,side=virtual", "pex:model:m,side=link"]


class Case(cli.Case):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.folder, "tune.conf")

    def tune(self, *words):
        return self.good("tune", "--file", self.file, *words)

    def text(self):
        with open(self.file, encoding="utf-8") as file:
            return file.read()

    def write(self, text):
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.file, 0o644)


class Tune(Case):
    def test_the_settings_of_a_link_are_measured_kept_shown_and_removed(self):
        out = self.tune("--link", MODEL[0], "--peer", MODEL[1], "--pairs", "11")
        self.assertIn("note: the chip and its DMA engine are the register model", out)
        # A software engine that is driven by messages is slower than the CPU, but a busy machine may hide it: "-". DMA stays off unless the largest size gains.
        largest = re.search(r"(?m)^DMA +65472 +\d+\.\d\d .* (hurts|helps|-)$", out)
        self.assertTrue(largest, out)
        text = self.text()
        self.assertEqual("dma-bytes: left as it is" in out, largest.group(1) != "helps", out)
        self.assertEqual("dma-bytes" in text, largest.group(1) == "helps", text)
        self.assertRegex(text, r"(?m)^\[link pex:model:m,side=virtual\]\nhardware = pex, class pex, PEX 87xx NT0 .*Gen3 x8")
        # The file has the printed values.
        for key, pattern in (("store", r"store: (?!left)(.+)\n"), ("slots", r"slots: (\d+)\n")):
            found = re.search(pattern, out)
            self.assertEqual(re.findall(r"(?m)^%s = (.+)$" % key, text), [found.group(1)] if found else [])
        shown = self.tune("--show")
        self.assertIn(text.split("\n", 1)[1], shown)
        self.assertIn("# of this machine", shown)
        self.tune("--check")
        # A second link joins.
        path = os.path.join(self.folder, "l.sock")
        other = ["--link", "emu:%s,side=0" % path, "--peer", "emu:%s,side=1" % path, "--pairs", "11"]
        self.tune(*other)
        self.assertEqual(self.text().count("[link "), 2)
        self.tune("--reset")
        self.assertFalse(os.path.exists(self.file))
        self.bad("tune", "--file", self.file, "--show", expected="tune.conf")

    def test_the_time_left_is_printed(self):
        """A fast machine needs more pairs for a command that takes two seconds. A dry run leaves the file as it is."""
        self.write("[machine]\ncpu = X\n")
        before = self.text()
        for pairs in ("11", "41", "161", "641"):
            code, _, err = self.call("tune", "--file", self.file, "--dry-run", "--link", MODEL[0], "--peer", MODEL[1],
                                     "--pairs", pairs, env={"VIADUCT_PROGRESS": "1"})
            self.assertEqual(code, 0, err)
            if err:
                break
        self.assertEqual(self.text(), before)
        self.assertRegex(err, r"\A(viaduct tune: comparison \d+ of \d+, \d+ s left\n)+\Z")

    def test_the_time_is_limited(self):
        """What is not measured in the time keeps its value, and is reported."""
        out = self.tune("--link", MODEL[0], "--peer", MODEL[1], "--seconds", "0.001")
        skipped = int(re.search(r"(?m)^note: (\d+) comparisons were not made in 0 s", out).group(1))
        self.assertGreater(skipped, 20)
        for note in ("dma-bytes: left as it is", "store: left as it is", "slots: left as it is"):
            self.assertIn(note, out)
        self.assertNotRegex(self.text(), r"(?m)^(dma-bytes|store|slots) =")
        # Values of an earlier run on the same hardware; none that was measured on other hardware.
        blank, kept = self.text(), ["dma-bytes = 4096", "slots = 16"]
        for hardware, expected in (("", kept), (" of old", kept[1:])):
            text = re.sub(r"(?m)^(hardware = .*)$", r"\1%s\n%s" % (hardware, kept[0]), blank)
            self.write(text.replace("\n[link", "\n[pipes]\n%s\n[link" % kept[1]))
            self.tune("--link", MODEL[0], "--peer", MODEL[1], "--seconds", "0.001")
            self.assertEqual(sorted(re.findall(r"(?m)^(?:dma-bytes|slots) = .*$", self.text())), sorted(expected))
        began = time.monotonic()
        self.tune("--link", MODEL[0], "--peer", MODEL[1], "--pairs", "101", "--seconds", "1.5", "--dry-run")
        self.assertLess(time.monotonic() - began, 30)  # a busy machine: opening and closing take some of it
        self.bad("tune", "--file", self.file, "--link", MODEL[0], "--seconds", "0", code=2, expected="--seconds: '0'")

    def test_an_engine_whose_writes_do_not_arrive_is_reported(self):
        """The command measures everything but DMA, and so does perf pio."""
        sockets = [os.path.join(self.folder, name) for name in ("v", "l", "d")]
        model = subprocess.Popen([self.viaduct, "model", "pex", "--socket", sockets[0], "--socket", sockets[1], "--dma-socket", sockets[2],
                                  "--commands"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(model.stdout.close)
        self.addCleanup(model.wait)
        self.addCleanup(model.stdin.close)
        model.stdout.readline()
        model.stdin.write("dma-bus virtual 9\n")
        model.stdin.flush()
        self.assertEqual(model.stdout.readline(), "ok\n")
        link = ["--link", "pex:vfio-user:%s,window=1MiB,dma=%s" % (sockets[0], sockets[2]), "--peer", "pex:vfio-user:%s,window=1MiB" % sockets[1]]
        out = self.tune(*link, "--pairs", "11", "--seconds", "3")
        self.assertIn("note: bodies go without DMA: what the DMA function writes does not arrive", out)
        self.assertIn("dma-bytes: left as it is", out)
        self.assertIn("bodies go without DMA", self.good("perf", "pio", *link[:2], "--link", link[3], "--sizes", "64", "--seconds", "0.01"))

    def test_a_file_of_another_machine(self):
        self.write("[machine]\ncpu = Xeon of another host (6/1/1)\n[link %s]\nhardware = x\n" % MODEL[0])
        self.bad("tune", "--file", self.file, "--check",
                 expected=["settings of another machine: measured on 'Xeon of another host (6/1/1)', this one has '", self.file])
        self.assertIn("# settings of another machine", self.tune("--show"))
        # A second measurement for the same file.
        out = self.tune("--link", MODEL[0], "--peer", MODEL[1], "--pairs", "11")
        self.assertIn("is replaced: settings of another machine", out)
        self.tune("--check")

    def test_wrong_options_are_errors(self):
        for words, code, expected in [
                ([], 2, "either --link LINK, or one of"), (["--show", "--reset"], 2, "one of --show"),
                (["--link", "a", "--show"], 2, "either --link"), (["--pairs", "10"], 2, "--pairs: '10'"),
                (["--link", "tape:x"], 1, "there is no driver 'tape'"), (["more"], 2, "not an option"),
                (["--link", "pex:model:x", "--wait", "0.1"], 1, "wait for the other end"),
                (["--link", MODEL[0], "--peer", MODEL[1], "--pairs", "11", "--file", "/nonexistent/x"], 1, "/nonexistent/x")]:
            with self.subTest(words):
                code_got, _, err = self.call("tune", "--file", self.file, *words)
                self.assertEqual(code_got, code, err)
                self.assertIn(expected, err)
        self.write("[machine]\ncpu = X\nslots = 5\n")
        before = self.text()
        code, out, err = self.call("tune", "--file", self.file, "--link", MODEL[0], "--peer", MODEL[1], "--pairs", "11")
        self.assertEqual(code, 1)
        self.assertIn("tune.conf:3: slots = 5", err)
        self.assertEqual(out, "")  # the error comes before any measurement
        self.assertEqual(self.text(), before)  # a file that is not understood is not overwritten


class Daemons(Case):
    """Two daemons on an emulated link, of which the first has settings."""

    def setUp(self):
        super().setUp()
        self.links = ["2=emu:%s/l.sock,side=0,nodirect" % self.folder, "1=emu:%s/l.sock,side=1,nodirect" % self.folder]
        self.started = []

    def cpu(self):
        """This machine's, as a file of settings names it; without a measurement."""
        self.write("[machine]\ncpu = Another (1/2/3)\n")
        _, _, err = self.call("tune", "--file", self.file, "--check")
        return re.search(r"measured on 'Another \(1/2/3\)', this one has '(.*)'", err).group(1)

    def settings(self, hardware, cpu):
        self.write("[machine]\ncpu = %s\n[pipes]\nslots = 16\n[link %s]\nhardware = %s\ndma-bytes = 1024\n" %
                   (cpu, self.links[0][2:], hardware))

    def rundir_of(self, host):
        return os.path.join(self.folder, "run-%d" % host)

    def begin(self, host, *words):
        log = os.path.join(self.folder, "log-%d" % host)
        with open(log, "w", encoding="utf-8") as file:
            daemon = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir_of(host), "--host",
                                       str(host), "--link", self.links[host - 1], *words], stderr=file, env=self.env)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        self.started.append(daemon)
        return log

    def log_has(self, log, text):
        def is_logged():
            with open(log, encoding="utf-8") as file:
                return text in file.read()
        return cli.wait_for(is_logged)

    def status(self, host=1):
        def is_connected():
            try:
                control.connect(os.path.join(self.rundir_of(host), "host-%d.ctl" % host))
            except OSError:  # the daemon does not listen yet
                return False
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            self.assertTrue(cli.wait_for(is_connected))
            control.sendall(b'{"cmd":"status"}\n')
            with control.makefile() as answer:
                return json.loads(answer.readline())

    def deliver(self):
        """Sends bodies of 4 KiB from host 1 to host 2. Returns how many of their bytes were sent by DMA."""
        def begin(host, *words):
            env = {**self.env, "VIADUCT_RUNDIR": self.rundir_of(host), "VIADUCT_HOST": str(host)}
            program = subprocess.Popen([DELIVER, *words], stdout=subprocess.PIPE, text=True, env=env)
            self.addCleanup(program.stdout.close)
            self.addCleanup(program.wait)
            self.addCleanup(program.kill)
            return program
        receiver = begin(2, "receive", "1")
        self.assertEqual(receiver.stdout.readline(), "ready\n")
        sender = begin(1, "send", "2", "200", "4096", "0")
        out, _ = receiver.communicate(timeout=cli.HANG_S)
        self.assertIn("lost 0 doubled 0 reordered 0 wrong 0", out)
        self.assertEqual(sender.wait(cli.HANG_S), 0)
        return self.status()["links"][0]["dma_bytes"]

    def test_a_daemon_uses_what_was_measured(self):
        self.settings("emu, class memory", self.cpu())
        log = self.begin(1, "--tune", self.file)
        self.begin(2)
        self.assertTrue(self.log_has(log, "measured settings: dma-bytes 1024, store -"))
        self.assertTrue(cli.wait_for(lambda: self.status()["links"][0]["state"] == "up"))
        self.assertEqual(self.status()["slots"], 16)
        self.assertGreater(self.deliver(), 0)

    def test_a_link_of_other_hardware_has_no_settings(self):
        self.settings("emu, class pex", self.cpu())
        log = self.begin(1, "--tune", self.file)
        self.begin(2)
        self.assertTrue(self.log_has(log, "settings of other hardware: measured on 'emu, class pex', this is 'emu, class memory'"))
        self.assertTrue(cli.wait_for(lambda: self.status()["links"][0]["state"] == "up"))
        self.assertEqual(self.deliver(), 0)

    def test_settings_of_another_processor_are_not_used_and_wrong_ones_are_an_error(self):
        self.settings("emu, class memory", "Another (1/2/3)")
        log = self.begin(1, "--tune", self.file)
        self.assertTrue(self.log_has(log, "tune.conf: not used: settings of another machine: measured on 'Another (1/2/3)'"))
        self.assertEqual(self.status()["slots"], 32)
        self.write("[machine]\ncpu = x\n[pipes]\nslots = 7\n")
        log = self.begin(2, "--tune", self.file)
        self.assertTrue(self.log_has(log, "viaductd: measured settings: %s:4: slots = 7" % self.file))
        self.assertEqual(self.started[-1].wait(cli.HANG_S), 1)


if __name__ == "__main__":
    cli.main()
