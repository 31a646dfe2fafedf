#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct card as users call it."""
import fcntl
import os
import re
import resource
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

BIN = os.environ["VIADUCT_BUILD_DIR"]
HANG_S = 60


class Card(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="viaduct-card-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, *words, stdin=b""):
        done = subprocess.run([os.path.join(BIN, "viaduct"), "card", *words], input=stdin, capture_output=True, cwd=self.folder,
                              timeout=HANG_S, check=False)
        return done.returncode, done.stdout, done.stderr.decode()

    def good(self, *words, **more):
        code, out, err = self.call(*words, **more)
        self.assertEqual((code, err), (0, ""), words)
        return out

    def bad(self, *words, code, expected, **more):
        got, out, err = self.call(*words, **more)
        self.assertEqual((got, out), (code, b""), err)
        self.assertTrue(err.startswith("viaduct card"), err)
        self.assertIn(expected, err)
        return err

    def make(self, name, *words):
        code, out, err = self.call("image", "make", "--card", "pex8749-x8", "--output", name, *words)
        self.assertEqual((code, out), (0, b""), err)
        self.assertIn("was never tried on a card", err)
        return name

    def perf(self, *words, progress="0"):
        done = subprocess.run([os.path.join(BIN, "viaduct"), "perf", "device", *words], capture_output=True, text=True, cwd=self.folder,
                              timeout=HANG_S, check=False, env={**os.environ, "VIADUCT_PROGRESS": progress})
        return done.returncode, done.stdout, done.stderr

    def test_the_time_left_is_printed(self):
        """Sizes so large that each takes a fifth of a second in each direction, on a fast machine, too."""
        with open(self.path("drive"), "wb") as drive:
            drive.truncate(64 << 20)
        sizes = ",".join("%dM" % (64 - i) for i in range(12))
        code, _, err = self.perf("--file", "drive", "--write", "--sizes", sizes, progress="1")
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"\A(viaduct perf device: size \d+ of 24, \d+ s left\n)+\Z")

    def test_a_device_is_measured_and_written_only_if_asked(self):
        data = os.urandom(1 << 16)
        with open(self.path("drive"), "wb") as drive:
            drive.write(data)
        code, out, err = self.perf("--file", "drive", "--csv", "a.csv")
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("to device", out)
        with open(self.path("drive"), "rb") as drive:
            self.assertEqual(drive.read(), data)
        with open(self.path("a.csv"), encoding="utf-8") as rows:
            self.assertEqual([row.split(",")[:2] for row in rows][1:], [["to host", str(n)] for n in (4096, 16384, 65536)])
        code, out, err = self.perf("--file", "drive", "--write")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("to device       65536", out)
        with open(self.path("drive"), "rb") as drive:
            self.assertTrue(drive.read() == bytes(len(data)))
        self.start_model()
        code, out, err = self.perf("--device", "vfio-user:v", "--bar", "0")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("by messages", out)
        self.assertIn("to host        262144", out)
        code, out, err = self.perf("--device", "vfio-user:v", "--bar", "0", "--write")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("BAR 0: it is not prefetchable, so it has registers: not to be written", err)
        code, out, err = self.perf("--device", "vfio-user:v", "--write", "--sizes", "4K")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("to device        4096", out)
        code, out, err = self.perf("--device", "vfio-user:v", "--bar", "5")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("BAR 5: there is none", err)
        self.assertEqual(self.perf("--file", "nothing")[0], 1)
        self.assertEqual(self.perf()[0], 2)

    def test_a_drive_in_use_is_not_written(self):
        os.mkfifo(self.path("pipe"))
        code, _, err = self.perf("--file", "pipe")
        self.assertEqual(code, 1)
        self.assertIn("pipe: open: Illegal seek", err)
        drive, name = self.make_drive()
        self.addCleanup(os.close, drive)
        words = ("--file", name, "--write", "--sizes", "4K")
        claimed = os.open(name, os.O_RDWR | os.O_EXCL)  # as a mount does
        code, out, err = self.perf(*words)
        os.close(claimed)
        self.assertEqual((code, out), (1, ""))
        self.assertIn(name + ": open: Device or resource busy: it is mounted or otherwise in use", err)
        code, out, err = self.perf(*words)
        self.assertEqual((code, err), (0, ""))

    def make_drive(self):
        """a loop device over a file, which ends with its last descriptor: that descriptor and its name"""
        with open(self.path("blocks"), "wb+") as blocks:
            blocks.truncate(1 << 20)
            try:
                with open("/dev/loop-control", "rb") as control:
                    name = "/dev/loop%d" % fcntl.ioctl(control, 0x4C82)  # LOOP_CTL_GET_FREE
                drive = os.open(name, os.O_RDWR)
            except OSError as problem:
                self.skipTest("no loop device: %s" % problem)
            config = struct.pack("<II52xI176x64x", blocks.fileno(), 0, 4)  # struct loop_config; LO_FLAGS_AUTOCLEAR
            try:
                fcntl.ioctl(drive, 0x4C0A, config)  # LOOP_CONFIGURE
            except OSError as problem:
                os.close(drive)
                self.skipTest("no loop device: %s" % problem)
        return drive, name

    def test_the_switchs_engine_moves_memory_or_reports_an_error(self):
        self.start_model("--dma-socket", self.path("e"))
        code, out, err = self.perf("--engine", "vfio-user:e", "--sizes", "4,64K,1M,8M", "--csv", "e.csv")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("by DMA by the switch", out)
        with open(self.path("e.csv"), encoding="utf-8") as rows:
            self.assertEqual([row.split(",")[:2] for row in rows][1:], [["loop", str(n)] for n in (4, 1 << 16, 1 << 20, 8 << 20)])
        code, _, err = self.perf("--engine", "vfio-user:v")
        self.assertEqual(code, 1)
        self.assertIn("vfio-user:v: ids 10b5:87b0: not the DMA function", err)

    def test_devices_are_compared_live_and_from_files(self):
        self.start_model()
        near, far = ("--device", "vfio-user:v", "--bar", "0"), ("--device", "vfio-user:l", "--bar", "0")
        code, out, err = self.perf(*near, *far, "--sizes", "4,4K", "--csv", "both.csv", "--plot", "both.svg")
        self.assertEqual((code, err), (0, ""))
        for words in ("1 = vfio-user:v BAR 0 #1 (messages)", "2  to host          4096", "2 / 1 [interval]"):
            self.assertIn(words, out)
        code, out, err = self.perf("--compare", "both.csv", "--csv", "c.csv", "--plot", "c.svg")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("2 = both.csv: vfio-user:l BAR 0 #2 (messages)", out)
        with open(self.path("c.csv"), encoding="utf-8") as rows:
            self.assertEqual([row.split(",")[:2] for row in rows][1:], [["to host", "4"], ["to host", "4096"]])
        for name in ("both.svg", "c.svg"):
            texts = [one.text for one in xml.etree.ElementTree.parse(self.path(name)).iter() if one.tag.endswith("text")]
            self.assertIn("to host, rate in parts of the first's", texts)
        self.assertEqual(self.perf(*near, "--sizes", "4", "--csv", "a.csv")[0], 0)
        self.assertEqual(self.perf(*near, "--sizes", "4", "--csv", "b.csv")[0], 0)
        self.assertEqual(self.perf(*far, "--sizes", "4", "--csv", "c0.csv")[0], 0)
        code, out, err = self.perf("--compare", "x=a.csv", "y=c0.csv", "x=b.csv")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.splitlines()[:3], ["1 = x", "2 = y", "to host, MB/s"])
        for words, expected in [(["--compare", "a.csv"], "at least two are needed"), (["--compare", "y=both.csv"], "a second target, and 'y='"),
                                (["--compare", "a.csv", "e.csv"], "e.csv: open: No such"),
                                (["--compare", "a.csv", "both.svg"], "both.svg:1: not the first line of")]:
            code, out, err = self.perf(*words)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1))
            self.assertIn(expected, err)

    def test_a_gpu_is_measured_by_the_drivers_calls(self):
        library = ("--cuda-library", os.path.join(BIN, "tests", "libfake_cuda.so"), "--sizes", "4,64K,1M,16M")
        code, out, err = self.perf("--gpu", "0", *library, "--csv", "g.csv")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("by CUDA copies of pinned memory", out)
        with open(self.path("g.csv"), encoding="utf-8") as rows:
            rows = list(rows)[1:]
        self.assertEqual([row.split(",")[0] for row in rows], ["to host"] * 4 + ["to device"] * 4)
        self.assertTrue(rows[0].endswith(",GPU 0 0000:05:00.0 memory of a test\n"), rows[0])
        for number, fault, expected in [("0", "none", "GPU 0: there are 0"), ("1", "", "GPU 1: there are 1"),
                                        ("0", "nomem", "GPU 0: memory of the GPU: CUDA error 2: out of memory"),
                                        ("0", "broken", "the bytes read back differ from the bytes sent"), ("x", "", "GPU 'x': not 0 to 63")]:
            os.environ["FAKE_CUDA"] = fault
            self.addCleanup(os.environ.pop, "FAKE_CUDA", None)
            code, _, err = self.perf("--gpu", number, *library)
            self.assertEqual((code, err.count("\n")), (1, 1))
            self.assertIn(expected, err)
        code, _, err = self.perf("--gpu", "0", "--cuda-library", "none.so")
        self.assertEqual(code, 1)
        self.assertIn("GPU 0: the CUDA driver library: none.so", err)

    def test_mistakes_in_the_command_line_of_perf(self):
        for words, expected in [([], "no target"), (["x"], "one argument too many"), (["--bar", "6"], "not 0 to 5"),
                                (["--file", "x", "--bar", "1"], "it follows its --device"), (["--sizes", ""], "--sizes: none"),
                                (["--sizes", "4,2G"], "'2G': not 1 to 1G bytes"), (["--compare"], "no file"), (["--compare", "--gpu", "0", "x"], "not targets"),
                                (["--file", "x"] * 9, "more than 8 targets")]:
            code, out, err = self.perf(*words)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(expected, err)
        with open(self.path("small"), "wb") as drive:
            drive.write(bytes(100))
        code, _, err = self.perf("--file", "small")
        self.assertEqual(code, 1)
        self.assertIn("small: measure: it has 100 bytes and takes multiples of 4096", err)

    def test_all_roles_are_listed_with_their_sources(self):
        text = self.good("roles").decode()
        for words in ("pex8749-x8: PEX 8749, 48 lanes, Gen3 x8", "pex8733-x16: PEX 8733", "not decidable from public facts",
                      "host, ntb, optical", "no such role", "4 mini-SAS and 1 sideband, up to 10 m", "are derived"):
            self.assertIn(words, text)
        self.assertNotIn("pex8733", self.good("roles", "pex8749-x8").decode())

    def test_the_documentation_has_the_same_roles(self):
        with open(os.path.join(os.environ["VIADUCT_SOURCE_DIR"], "docs", "cards.md"), encoding="utf-8") as file:
            rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in file if re.match(r"\| (host|box), ", line)]
        self.assertEqual(len(rows), 6)
        for card in ("pex8749-x8", "pex8733-x16"):
            text = self.good("roles", card).decode().replace("to switch, slot\n", "to switch, slots\n")
            for role, medium, dip, upstream, reset, clock in rows:
                switches = ", ".join("%d %s" % (i + 1, "on" if digit == "1" else "off") for i, digit in enumerate(dip[:3]))
                part = text.partition("  %s, %s\n" % (role.replace("NTB", "ntb"), medium))[2].split("\n  " + "host, ")[0].split("\n  box, ")[0]
                for words in ("DIP      %s, 4 off\n" % switches, "(%s), " % upstream, "RESET    from %s to %s\n" % tuple(reset.split(" / ")),
                              "CLOCK    from %s to %s\n" % tuple(clock.split(" / "))):
                    self.assertIn(words, part, (role, medium))

    def test_an_image_is_made_dumped_compiled_checked_and_compared(self):
        self.make("a.bin", "--role", "host", "--mode", "ntb", "--bar", "16", "--alut")
        text = self.good("image", "dump", "a.bin")
        self.assertIn(b"NT0 port 0x8", text)
        self.assertIn(b"card pex8749-x8 host ntb optical\n", text)
        self.good("image", "compile", "-", "-o", "b.bin", stdin=text)
        with open(self.path("a.bin"), "rb") as a, open(self.path("b.bin"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.assertEqual(self.good("image", "diff", "a.bin", "b.bin"), b"")
        self.assertIn(b"0 errors", self.good("image", "lint", "a.bin", "--dip", "0101"))
        code, out, _ = self.call("image", "lint", "a.bin", "--dip", "1001")
        self.assertEqual(code, 1)
        self.assertIn(b"a.bin: byte 50: error: the DIP switches select box, transparent, optical", out)
        self.make("c.bin", "--role", "box")
        code, out, err = self.call("image", "diff", "a.bin", "c.bin")
        self.assertEqual((code, err), (1, ""))
        self.assertIn(b"- reg 0x00 0x360 0x401a2800", out)
        self.assertIn(b"+ reg 0x00 0x360 0x001a1a08", out)

    def start_model(self, *words):
        sockets = [self.path("v"), self.path("l")]
        model = subprocess.Popen([os.path.join(BIN, "viaduct"), "model", "pex", "--socket", sockets[0], "--socket", sockets[1],
                                  "--commands", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        self.addCleanup(self.end_model, model)
        self.assertIn("virtual side", model.stdout.readline())
        return model

    def end_model(self, model):
        if model.poll() is None:
            model.kill()
        model.stdin.close()
        model.stdout.close()
        model.wait(HANG_S)

    def order(self, model, line):
        model.stdin.write(line + "\n")
        model.stdin.flush()
        self.assertEqual(model.stdout.readline(), "ok\n")

    def test_an_eeprom_is_flashed_read_and_verified(self):
        self.make("ntb.bin", "--role", "host", "--mode", "ntb")
        self.make("box.bin", "--role", "box")
        with open(self.path("ntb.bin"), "rb") as file:
            ntb = file.read()
        model = self.start_model("--eeprom", "part")
        device = ("--device", "vfio-user:v")
        flash = ("eeprom", "flash", "ntb.bin", *device)
        self.bad("eeprom", "read", *device, "-o", "x", code=1, expected="--address-bytes")
        width = ("--address-bytes", "2", "--size", "512")
        code, out, err = self.call(*flash, *width, "--backup", "old", stdin=b"no\n")
        self.assertEqual((code, os.path.exists(self.path("old"))), (1, False))
        self.assertIn("nothing was written", err)
        self.assertIn(b"[yes/NO]", out)
        self.assertIn(b"written and read back, 91 bytes", self.good(*flash, *width, "--backup", "old", stdin=b"yes\n"))
        with open(self.path("part"), "rb") as part, open(self.path("old"), "rb") as old:
            self.assertEqual(part.read(len(ntb)), ntb)
            self.assertEqual(old.read(), b"\xff" * 512)
        code, _, err = self.call(*flash, *width, "--backup", "old", "--yes")
        self.assertEqual(code, 1)
        self.assertIn("old: backup: File exists; nothing was written", err)
        self.assertIn(b"the EEPROM has ntb.bin", self.good("eeprom", "verify", "ntb.bin", *device, *width))
        code, out, _ = self.call("eeprom", "verify", "box.bin", *device, *width)
        self.assertEqual(code, 1)
        self.assertIn(b"differs from box.bin", out)
        self.good("eeprom", "read", *device, *width, "-o", "again.bin")
        self.assertEqual(self.good("image", "diff", "ntb.bin", "again.bin"), b"")
        self.order(model, "protect")
        code, _, err = self.call("eeprom", "flash", "box.bin", *device, *width, "--backup", "old2", "--yes")
        self.assertEqual(code, 1)
        self.assertIn("write-protected", err)

    def test_status_compares_the_card_with_its_image(self):
        with open(self.path("part"), "wb") as part:
            part.write(b"\xff" * 4096)
        device = ("--device", "vfio-user:v")
        first = self.start_model("--eeprom", "part")
        code, out, err = self.call("status", *device)
        self.assertEqual((code, err), (1, ""))
        self.assertIn(b"--address-bytes", out)
        self.make("ntb.bin", "--role", "host", "--mode", "ntb")
        self.call("eeprom", "flash", "ntb.bin", *device, "--address-bytes", "2", "--size", "512", "--backup", "old", "--yes")
        first.stdin.close()
        first.wait(HANG_S)
        model = self.start_model("--eeprom", "part", "--nt-port", "8")
        out = self.good("status", *device).decode()
        for words in ("CRC right; at power-on the chip found it valid", "image     pex8749-x8, host, ntb, optical", "chip      PEX 8749",
                      "in force  upstream port 0, NT0 port 8: host, ntb\n", "NT link   Gen3 x8\n", "errors    0x0\n", "sensors   none was named"):
            self.assertIn(words, out)
        self.assertNotIn("NOT", out)
        self.order(model, "speed 2 4")
        code, out, _ = self.call("status", *device)
        self.assertEqual(code, 1)
        self.assertIn(b"Gen2 x4, NOT Gen3 x8 as the card can", out)
        self.assertIn(b"errors    0x4 link-down", out)
        self.order(model, "cut")
        self.assertIn(b"NT link   down", self.call("status", *device)[1])
        code, out, _ = self.call("status", *device, "--card", "pex8733-x16")
        self.assertIn(b"NOT the PEX 8733 of pex8733-x16", out)

    GOOD_OPTICS = ("0x50 3 0 0\n0x50 6 0 0\n0x50 22 0x29\n0x50 26 0x80 0xe8\n0x50 34 0x10 0x27 0x10 0x27 0x10 0x27 0x10 0x27\n"
                   "0x50 148 0x53 0x61 0x6d 0x74 0x65 0x63 32 32 32 32 32 32 32 32 32 32\n"
                   "0x50 168 69 67 85 79 32 32 32 32 32 32 32 32 32 32 32 32\n")

    def sensors(self, dump, table="ecuo-x4"):
        with open(self.path("dump"), "w", encoding="utf-8") as file:
            file.write(dump)
        code, out, err = self.call("status", "--device", "vfio-user:v", "--sensors", table, "--i2c", "dump:dump")
        return code, out.decode().partition("sensors ")[2], err

    def test_sensors_are_read_by_a_table(self):
        self.make("ntb.bin", "--role", "host", "--mode", "ntb")
        with open(self.path("ntb.bin"), "rb") as file, open(self.path("part"), "wb") as part:
            part.write(file.read().ljust(4096, b"\xff"))
        self.start_model("--eeprom", "part", "--nt-port", "8")
        code, out, err = self.sensors(self.GOOD_OPTICS)
        self.assertEqual((code, err), (0, ""), out)
        for words in ("table ecuo-x4, bus dump:dump\n", "  temperature              41 C\n", "supply                   3.3 V\n",
                      "receive-power-3          413.5 uW (-3.8 dBm)\n", "vendor                   Samtec\n", "receive-signal-lost      no\n"):
            self.assertIn(words, out)
        for old, new, expected in [("22 0x29", "22 0x56", "temperature              86 C, NOT at most 85"),
                                   ("22 0x29", "22 0xff", "temperature              -1 C, NOT at least 0"),
                                   ("26 0x80 0xe8", "26 0x70 0", "supply                   2.867 V, NOT at least 3.135"),
                                   ("34 0x10 0x27", "34 0 1", "receive-power-0          0.1 uW (-40.0 dBm), NOT at least 89.1"),
                                   ("3 0 0", "3 0x25 0", "receive-signal-lost      SET: 0x05"),
                                   ("3 0 0", "3 0x25 0", "transmit-signal-lost     SET: 0x20"),
                                   ("22 0x29", "23 0", "temperature              can NOT be read"),
                                   (self.GOOD_OPTICS, "0x51 0 0\n", "temperature              NO device answers at I2C address 0x50")]:
            code, out, _ = self.sensors(self.GOOD_OPTICS.replace(old, new, 1))
            self.assertEqual(code, 1)
            self.assertIn(expected, out)
        with open(self.path("temp1_input"), "w", encoding="utf-8") as file:
            file.write("91500\n")
        with open(self.path("mine"), "w", encoding="utf-8") as table:
            table.write("value die file %s scale 0.001 unit C high 105\nvalue cold i2c 0x48 0 s16 scale 0.0625\n" % "temp1_input")
        code, out, err = self.sensors("0x48 0 0xff 0xf0\n", "mine")
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("die                      91.5 C\n", out)
        self.assertIn("cold                     -1\n", out)
        self.bad("status", "--device", "vfio-user:v", "--i2c", "x", code=2, expected="which --sensors?")

    def test_bad_tables_of_sensors_are_refused_with_the_line(self):
        self.start_model()
        for text, expected in [("", "t:0: no sensor in the whole table"), ("value\n", "t:1: 'value': expected 'value NAME i2c"),
                               ("light x i2c 0x50 1 u8\n", "t:1: 'light': unknown keyword"), ("value x i2c 0x78 1 u8\n", "'0x78': an address is a number up to 0x77"),
                               ("value x i2c 7 1 u8\n", "'7': addresses below 0x08 are reserved"), ("\nvalue x i2c 8 256 u8\n", "t:2: '256': a byte"),
                               ("value x i2c 8 255 u16\n", "'255': there is no byte behind it"), ("value x i2c 8 1 u32\n", "'u32': not u8, s8, u16 or s16"),
                               ("value x i2c 8 1 u8 scale nan\n", "'nan': not a number"), ("value x i2c 8 1 u8 low 3 high 2\n", "'x': low is above high"),
                               ("value x i2c 8 1 u8 unit\n", "t:1: 'value': expected"), ("value x i2c 8 1 u8 colour 1\n", "'colour': expected scale, unit, low or high"),
                               ("flags x i2c 8 1 mask 0\n", "'0': nothing, or beyond byte 255"), ("text x i2c 8 250 16\n", "'16': nothing, or beyond byte 255"),
                               ("value x i2c 8 1 u8\n" * 65, "t:65: more than 64 sensors")]:
            with open(self.path("t"), "w", encoding="utf-8") as table:
                table.write(text)
            code, _, err = self.call("status", "--device", "vfio-user:v", "--sensors", "t")
            self.assertEqual((code, err.count("\n")), (1, 1))
            self.assertIn(expected, err)
        for text, expected in [("0x78 0 0\n", "dump:1: '0x78': an address"), ("8 0\n", "dump:1: '8': expected 'ADDRESS FIRST BYTE...'"),
                               ("8 255 1 2\n", "dump:1: '2': beyond byte 255"), ("8 0 256\n", "'256': a byte is a number up to 0xff")]:
            self.assertIn(expected, self.sensors(text)[2])
        self.assertIn("/dev/i2c-none: open: No such file", self.call("status", "--device", "vfio-user:v", "--sensors", "ecuo-x4", "--i2c", "/dev/i2c-none")[2])

    def put_bridge(self, registers, driver="pcieport", **files):
        folder = self.path("sys/bus/pci/devices/0000:02:00.0")
        os.makedirs(folder)
        image = bytearray(1 << 18)
        for off, value in registers.items():
            image[off:off + 4] = value.to_bytes(4, "little")
        files = {"resource0": bytes(image), "config": b"\xb5\x10\x49\x87\x06\0".ljust(256, b"\0"),
                 "resource": b"0x80000000 0x8003ffff 0x40200\n" + b"0x0 0x0 0x0\n" * 6, **files}
        for name, data in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        os.symlink("/sys/bus/pci/drivers/" + driver, os.path.join(folder, "driver"))
        return "--device", "bridge:0000:02:00.0", "--sysfs", "sys"

    def test_status_of_a_transparent_card_by_the_bridge_that_its_driver_keeps(self):
        ports = 0x001a1a00
        device = self.put_bridge({0: 0x874910b5, 0x360: ports, 0x78: 0x00830000, 0x8078: 0x00430000},
                                 aer_dev_correctable=b"RxErr 2\nTOTAL_ERR_COR 2\n", aer_dev_nonfatal=b"TOTAL_ERR_NONFATAL 1\n")
        code, out, err = self.call("status", *device, "--card", "pex8749-x8")
        self.assertEqual((code, err), (1, ""))
        for words in (b"in force  upstream port 0, NT0 off: host, transparent\n", b"slot link Gen3 x8\n", b"the chip found none",
                      b"far link  Gen3 x4, NOT Gen3 x8 as the card can\n", b"counters  correctable 2, nonfatal 1 (since it was found)\n"):
            self.assertIn(words, out)
        self.assertIn(b"which ports they are is not: --card", self.call("status", *device)[1])
        self.assertFalse(os.path.exists(self.path("sys/bus/pci/devices/0000:02:00.0/enable")))

    def test_a_bridge_of_another_driver_is_left_alone(self):
        device = self.put_bridge({0: 0x874910b5}, driver="mine")
        code, out, err = self.call("status", *device)
        self.assertEqual((code, out), (1, b""))
        self.assertIn("the driver mine has the device", err)

    def start_flash(self, name, *words):
        """the process, when it has the backup and begins to write"""
        flash = subprocess.Popen([os.path.join(BIN, "viaduct"), "card", "eeprom", "flash", name, "--device", "vfio-user:v", "--backup", "old",
                                  "--yes", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)
        self.addCleanup(flash.communicate)
        deadline = time.monotonic() + HANG_S
        while not os.path.exists(self.path("old")) or os.path.getsize(self.path("old")) == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        return flash

    def test_a_signal_does_not_leave_a_card_without_an_image(self):
        self.make("a.bin", "--role", "host")
        with open(self.path("a.bin"), "rb") as file:
            old = file.read()
        with open(self.path("part"), "wb") as part:
            part.write(old.ljust(16384, b"\xff"))
        self.make("b.bin", "--role", "box")
        with open(self.path("b.bin"), "ab") as file:
            file.write(bytes(range(1, 256)) * 62)
        self.start_model("--eeprom", "part")
        flash = self.start_flash("b.bin", "--size", "16384")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            flash.send_signal(number)
        out, err = flash.communicate(timeout=HANG_S)
        with open(self.path("part"), "rb") as part, open(self.path("b.bin"), "rb") as file:
            self.assertIn(part.read(4), (old[:4], file.read(4)), "the part begins with a whole image's header")
        self.assertIn(b"written and read back", out, err)
        self.assertIn(flash.returncode, (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP))

    def test_an_image_that_the_part_does_not_keep_is_replaced_by_the_old_one(self):
        self.make("a.bin", "--role", "host")
        with open(self.path("a.bin"), "rb") as file:
            old = file.read().ljust(512, b"\xff")
        self.make("b.bin", "--role", "box")
        with open(self.path("b.bin"), "ab") as file:
            file.write(bytes(range(1, 256)) * 4)
        for before, expected in [(old, "the old image is back"), (b"\xff" * 512, "it had no image before, and has none now")]:
            with open(self.path("part"), "wb") as part:
                part.write(before)
            model = self.start_model("--eeprom", "part")
            code, _, err = self.call("eeprom", "flash", "b.bin", "--device", "vfio-user:v", "--address-bytes", "2", "--size", "4096", "--backup",
                                     "old", "--yes")
            self.assertEqual((code, err.count("\n")), (1, 1), err)
            self.assertIn(expected, err)
            self.assertIn("does not keep its value", err)
            model.stdin.close()
            model.wait(HANG_S)
            os.unlink(self.path("old"))
            if before == old:
                with open(self.path("part"), "rb") as part:
                    self.assertEqual(part.read(), old)

    def test_an_incomplete_backup_is_an_error(self):
        self.make("a.bin", "--role", "host")
        with open(self.path("part"), "wb") as part:
            part.write(b"Z\0\0\0" + b"\xff" * 4092)
        self.start_model("--eeprom", "part")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
        done = subprocess.run([os.path.join(BIN, "viaduct"), "card", "eeprom", "flash", "a.bin", "--device", "vfio-user:v", "--backup", "old",
                               "--yes"], capture_output=True, text=True, cwd=self.folder, timeout=HANG_S, check=False, preexec_fn=limit)
        self.assertEqual(done.returncode, 1)
        self.assertIn("old: backup: File too large; nothing was written", done.stderr)
        self.assertFalse(os.path.exists(self.path("old")))
        with open(self.path("part"), "rb") as part:
            self.assertEqual(part.read(8), b"Z\0\0\0\xff\xff\xff\xff")

    def test_flash_refuses_what_is_not_for_this_chip_or_has_errors(self):
        with open(self.path("part"), "wb") as part:
            part.write(b"Z\0\0\0" + b"\xff" * 4092)
        self.start_model("--eeprom", "part")
        flash = ("eeprom", "flash", "-", "--device", "vfio-user:l", "--backup", "old", "--yes")
        other = b"reg 0 0x360 0x1a1a00\ncard pex8733-x16 host transparent optical\n"
        for text, expected in [(other, "-: it is for pex8733-x16, a PEX 8733, and this is a PEX 8749"),
                               (b"reg 0 0x360 0x1a1a00\n", "it names no card: --card is missing"), (b"crc 0x1\n" + other.replace(b"8733-x16", b"8749-x8"), "1 error")]:
            code, _, err = self.call(*flash, stdin=text)
            self.assertEqual(code, 1)
            self.assertIn(expected, err)
        self.assertEqual(sorted(os.listdir(self.folder)), ["l", "part", "v"])
        code, out, err = self.call(*flash, "--card", "pex8749-x8", stdin=b"reg 0 0x360 0x1a1a00\n")
        self.assertEqual((code, err), (0, ""), out)
        self.bad("eeprom", "verify", "-", "--device", "vfio-user:none", stdin=b"flags 0\n", code=1, expected="vfio-user:none: ")
        self.bad("eeprom", "verify", "-", "--device", "x", stdin=b"flags 0\n", code=1, expected="x: not 0000:03:00.0")

    def test_lint_of_a_text_names_the_line(self):
        text = b"# mine\nflags 0x80\nreg 0 0x360 0x1a1a00\n\nreg 0 0x360 0x1a1a08\n"
        code, out, err = self.call("image", "lint", "-", stdin=text)
        self.assertEqual((code, err), (1, ""))
        self.assertIn(b"-:5: error: port 0, 0x360: written before", out)

    def test_bad_input_is_one_line_with_place_and_cause(self):
        self.make("a.bin", "--role", "host")
        with open(self.path("a.bin"), "rb") as file:
            image = file.read()
        for stdin, expected in [
                (b"", "-: byte 0: ends within the header"), (image[:9], "-: byte 2: 18 bytes of registers are promised, 5 are"),
                (b"\xff" * 64, "a blank EEPROM"), (b"\x00" * 9, "not the signature"), (b"reg 1\n", "-:1: 'reg': expected"),
                (b"Z" + b"\0" * 70000, "more than 64 KiB"), (b"#" * (5 << 20), "more than 4194304 bytes")]:
            err = self.bad("image", "dump", "-", stdin=stdin, code=1, expected=expected)
            self.assertEqual(err.count("\n"), 1)
        self.bad("image", "dump", "none.bin", code=1, expected="none.bin: open: No such file")
        self.bad("image", "compile", "a.bin", "-o", "no/where", code=1, expected="no/where: open: No such file")

    def test_a_system_is_checked_and_drawn(self):
        folder = os.path.join(os.environ["VIADUCT_SOURCE_DIR"], "examples", "cards")
        for name in os.listdir(folder):
            out = self.good("check", os.path.join(folder, name), "--svg", "x.svg").decode()
            self.assertIn("2 cards", out)
            self.assertIn(" 0 errors\npower-on order", out)
            self.assertIn("lspci -tv of", out)
            self.assertTrue(xml.etree.ElementTree.parse(self.path("x.svg")).getroot().tag.endswith("svg"))
        text = b"host h\nslot h s x8 gen3\ncard c pex8749-x8 in h s dip 1000\n"
        code, out, err = self.call("check", "-", stdin=text)
        self.assertEqual((code, err), (1, ""))
        self.assertIn(b"-:3: error: c: role box in the host h", out)
        self.assertNotIn(b"lspci", out)
        self.bad("check", "-", stdin=b"card\n", code=1, expected="-:1: 'card': expected")

    def test_mistakes_in_the_command_line(self):
        for words, expected in [
                ([], "roles, image, eeprom, check or status?"), (["x"], "'x': unknown part"), (["roles", "x"], "'x': unknown card (there are: pex8749-x8"),
                (["image"], "make, dump"), (["image", "x"], "'x': unknown verb"), (["image", "dump"], "dump: 0 files given"),
                (["image", "make"], "are needed"), (["image", "make", "--card", "x"], "unknown card"),
                (["image", "make", "--role", "x"], "neither host nor box"), (["image", "lint", "--dip", "01"], "four digits"),
                (["image", "make", "--bar", "0"], "a number from 1"), (["image", "compile", "-"], "--output is missing"),
                (["status"], "--device is missing"), (["status", "x"], "one argument too many"), (["check"], "0 files given, 1 wanted"), (["eeprom"], "read, verify or flash?"), (["eeprom", "read"], "--device is missing"), (["eeprom", "x"], "unknown verb"),
                (["eeprom", "flash", "a", "--device", "x"], "--backup is missing"), (["eeprom", "read", "--size", "9"], "no multiple of 4")]:
            with self.subTest(words):
                self.assertIn("--help'", self.bad(*words, code=2, expected=expected).splitlines()[-1])
        self.bad("image", "make", "--card", "pex8749-x8", "--role", "box", "--mode", "ntb", "-o", "x", code=1,
                 expected="a box has none: mode transparent")
        self.bad("image", "make", "--card", "pex8749-x8", "--role", "host", "--mode", "ntb", "--bar", "3", "-o", "x", code=1,
                 expected="no power of two")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
