#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct port, and doctor's hardware checks, on a simulated sysfs: PCI functions that are found, errors, and changes
of drivers."""
import fcntl
import os
import re
import shutil
import threading

import cli

ADDRESS = "0000:03:00.0"
MEMORY, PREFETCH, WIDE, UNSET = 0x200, 0x2000, 0x100000, 0x20000000
GOOD = {"vendor": "0x10b5", "device": "0x87b0", "class": "0x068000", "msi_bus": "1", "current_link_speed": "8.0 GT/s PCIe",
        "max_link_speed": "8.0 GT/s PCIe", "current_link_width": "8", "max_link_width": "8"}


def config(*capabilities):
    """A config space with these capabilities, of 16 bytes each from 0x48 on."""
    data = bytearray(256)
    data[8] = 0xCA
    if capabilities:
        data[6], data[0x34] = 0x10, 0x48
    for i, capability in enumerate(capabilities):
        at = 0x48 + 16 * i
        data[at:at + 2] = bytes((capability, at + 16 if i + 1 < len(capabilities) else 0))
    return bytes(data)


class Tree:
    """DIR/sys and DIR/proc. A thread acts as the kernel: it binds the functions whose names are written to
    drivers_probe."""

    def __init__(self, root):
        self.root = root
        self.devices = self.folder("sys/bus/pci/devices")
        self.wanted = []  # addresses that were probed
        for driver in ("vfio-pci", "ntb_hw_plx", "ahci"):
            self.put("sys/bus/pci/drivers/%s/unbind" % driver, "")
        self.folder("proc")
        self.knows = {}
        os.mkfifo(os.path.join(root, "sys/bus/pci/drivers_probe"))

    def folder(self, name):
        path = os.path.join(self.root, name)
        os.makedirs(path, exist_ok=True)
        return path

    def put(self, name, data):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())

    def add(self, address=ADDRESS, group="17", driver=None, bars=None, space=None, combining=True, **more):
        files = {**GOOD, **more}
        for name, text in files.items():
            self.put("sys/bus/pci/devices/%s/%s" % (address, name), text + "\n")
        bars = {0: (0xfe000000, 0x40000, MEMORY), 2: (0x4000000000, 4 << 20, MEMORY | PREFETCH | WIDE)} if bars is None else bars
        lines = "".join("0x%016x 0x%016x 0x%016x\n" % ((at, at + size - 1, flags) if size else (0, 0, 0))
                        for at, size, flags in (bars.get(i, (0, 0, 0)) for i in range(13)))
        self.put("sys/bus/pci/devices/%s/resource" % address, lines)
        self.put("sys/bus/pci/devices/%s/config" % address, config(1, 5, 16) if space is None else space)
        self.put("sys/bus/pci/devices/%s/driver_override" % address, "(null)\n")
        if combining:
            self.put("sys/bus/pci/devices/%s/resource2_wc" % address, "")
        if group is not None:
            folder = self.folder("sys/kernel/iommu_groups/%s/devices" % group)
            os.symlink(os.path.join(self.devices, address), os.path.join(folder, address))
            os.symlink(os.path.dirname(folder), os.path.join(self.devices, address, "iommu_group"))
        self.knows[address] = driver
        self.bind(address, driver)

    def bind(self, address, driver):
        link = os.path.join(self.devices, address, "driver")
        if os.path.islink(link):
            os.unlink(link)
        if driver is not None:
            os.symlink(os.path.join(self.root, "sys/bus/pci/drivers", driver), link)

    def driver(self, address=ADDRESS):
        link = os.path.join(self.devices, address, "driver")
        return os.path.basename(os.readlink(link)) if os.path.islink(link) else None

    def hold(self, pid, target):
        self.folder("proc/%d/fd" % pid)
        os.symlink(target, os.path.join(self.root, "proc/%d/fd/7" % pid))
        self.put("proc/%d/comm" % pid, "viaductd\n")

    def probes(self, count, refuses=()):
        """Handles `count` probes, in a thread."""
        file = os.open(os.path.join(self.root, "sys/bus/pci/drivers_probe"), os.O_RDWR)

        def take():
            for _ in range(count):
                address = os.read(file, len(ADDRESS)).decode()
                with open(os.path.join(self.devices, address, "driver_override"), encoding="ascii") as override:
                    wanted = override.read().split("\n")[0]
                # The file may be longer than the last write, unlike a real one.
                wanted = next((driver for driver in ("vfio-pci", "ntb_hw_plx", "ahci") if wanted.startswith(driver)), self.knows[address])
                self.wanted.append(wanted)
                self.bind(address, None if wanted in refuses else wanted)
            os.close(file)
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        return thread


class Port(cli.Case):
    def setUp(self):
        super().setUp()
        self.tree = Tree(os.path.join(self.folder, "root"))

    def override(self):
        with open(os.path.join(self.tree.devices, ADDRESS, "driver_override"), encoding="ascii") as file:
            return file.read().split("\n")[0]

    def port(self, *words):
        return self.good("port", *words, "--root", self.tree.root)

    def test_none(self):
        self.tree.add(vendor="0x8086", device="0x1533")
        self.assertEqual(self.port("list"), "no NTB function of a known chip\n")
        self.bad("port", "show", ADDRESS, "--root", self.tree.root, expected="vendor 8086, device 1533: no NTB function that is known here")
        self.bad("port", "show", "0000:09:00.0", "--root", self.tree.root, expected="0000:09:00.0: no such device")
        self.bad("port", "show", "3:0.0", "--root", self.tree.root, expected="not DOMAIN:BUS:DEVICE.FUNCTION")
        self.bad("port", "look", code=2, expected="'look': not list, show, bind or unbind")
        self.bad("port", "bind", code=2, expected="bind: which address?")

    def test_list_and_show(self):
        self.tree.add(driver="vfio-pci")
        self.tree.add("0000:05:00.1", group="18", vendor="0x8086", device="0x6f0d")
        self.tree.hold(4711, "/dev/vfio/17")
        lines = self.port("list").splitlines()
        self.assertRegex(lines[1], r"^0000:03:00\.0 +PEX 87xx NT0, virtual side +17 +4 MiB +Gen3 x8 +vfio-pci +4711 \(viaductd\)$")
        self.assertRegex(lines[2], r"^0000:05:00\.1 +Intel Xeon E5 v4 NTB +18 .* - +-$")
        out = self.port("show", ADDRESS)
        for line in ("chip       PEX 87xx NT0, virtual side (10b5:87b0), revision CA", "IOMMU      group 17", "BAR 0      256 KiB",
                     "BAR 2      4 MiB, prefetchable, write-combined", "interrupt  MSI ", "link       Gen3 x8 of Gen3 x8",
                     "driver     vfio-pci", "open by    4711 (viaductd)"):
            self.assertIn("  " + line + "\n", out)
        self.assertNotIn("wrong", out)

    def test_a_holder_by_any_file_of_vfio(self):
        self.tree.add(driver="vfio-pci")
        self.tree.folder("sys/bus/pci/devices/%s/vfio-dev/vfio3" % ADDRESS)
        for pid, path in ((4711, "/dev/vfio/noiommu-17"), (4712, "/dev/vfio/devices/vfio3")):
            self.tree.hold(pid, path)
            self.assertIn("%d (viaductd)" % pid, self.port("list"))
            self.bad("port", "unbind", ADDRESS, "--root", self.tree.root, expected="process %d (viaductd) has it open" % pid)
            self.assertEqual((self.tree.driver(), self.override()), ("vfio-pci", "(null)"))
            shutil.rmtree(os.path.join(self.tree.root, "proc/%d" % pid))
        self.tree.hold(4713, "/dev/vfio/devices/vfio33")
        self.assertNotIn("4713", self.port("list"))

    def test_one_process_changes_the_driver(self):
        self.tree.add(driver="ntb_hw_plx")
        with open(os.path.join(self.tree.devices, ADDRESS, "config"), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for verb in ("bind", "unbind"):
                self.bad("port", verb, ADDRESS, "--root", self.tree.root, expected="another process changes its driver, or has it open")
        self.assertEqual((self.tree.driver(), self.override()), ("ntb_hw_plx", "(null)"))
        self.tree.probes(1)
        self.port("bind", ADDRESS)

    def test_bind_and_unbind(self):
        self.tree.add(driver="ntb_hw_plx")
        self.tree.probes(1)
        self.assertEqual(self.port("bind", ADDRESS), "0000:03:00.0: the driver vfio-pci has it\n")
        self.assertEqual(self.port("bind", ADDRESS), "0000:03:00.0: the driver vfio-pci has it\n")
        with open(os.path.join(self.tree.root, "sys/bus/pci/drivers/ntb_hw_plx/unbind"), encoding="ascii") as unbind:
            self.assertEqual(unbind.read(), ADDRESS)
        self.tree.put("sys/bus/pci/devices/%s/driver_override" % ADDRESS, "")
        self.tree.probes(1)
        self.port("unbind", ADDRESS)
        self.assertTrue(cli.wait_for(lambda: self.tree.driver() == "ntb_hw_plx"))
        self.bad("port", "unbind", ADDRESS, "--root", self.tree.root, expected="vfio-pci does not have it, but ntb_hw_plx")

    def test_a_function_that_a_process_has_open_keeps_its_driver(self):
        for target in ("/dev/vfio/17", "/sys/devices/pci0000:00/0000:00:03.0/%s/resource2" % ADDRESS):
            with self.subTest(target):
                self.tree = Tree(os.path.join(self.folder, "root%d" % len(target)))
                self.tree.add(driver="vfio-pci")
                self.tree.hold(4711, target)
                self.bad("port", "unbind", ADDRESS, "--root", self.tree.root, expected="process 4711 (viaductd) has it open")
                self.tree.bind(ADDRESS, None)
                self.bad("port", "bind", ADDRESS, "--root", self.tree.root, expected="process 4711 (viaductd) has it open")

    def test_a_refusal_leaves_the_function_as_it_was(self):
        self.tree.add(driver="ntb_hw_plx")
        thread = self.tree.probes(2, refuses=("vfio-pci",))
        self.bad("port", "bind", ADDRESS, "--root", self.tree.root, expected="0000:03:00.0: bind: vfio-pci did not take it")
        thread.join(cli.HANG_S)
        self.assertEqual(self.tree.driver(), "ntb_hw_plx")
        self.assertEqual(self.override(), "")  # a real file then reads as (null)
        # A function without a driver does not get one that knows it, and an override stays.
        self.tree.bind(ADDRESS, None)
        self.tree.put("sys/bus/pci/devices/%s/driver_override" % ADDRESS, "ahci\n")
        self.tree.wanted.clear()
        thread = self.tree.probes(1, refuses=("vfio-pci",))
        self.bad("port", "bind", ADDRESS, "--root", self.tree.root, expected="0000:03:00.0: bind: vfio-pci did not take it")
        thread.join(cli.HANG_S)
        self.assertEqual((self.tree.driver(), self.tree.wanted, self.override()[:4]), (None, ["vfio-pci"], "ahci"))
        # The function's former driver does not bind it again.
        self.tree.bind(ADDRESS, "ntb_hw_plx")
        thread = self.tree.probes(2, refuses=("vfio-pci", "ntb_hw_plx"))
        self.bad("port", "bind", ADDRESS, "--root", self.tree.root, expected="(dmesg) says why; ntb_hw_plx did not take it back")
        thread.join(cli.HANG_S)
        # vfio-pci keeps a function that no other driver binds.
        self.tree.put("sys/bus/pci/devices/%s/driver_override" % ADDRESS, "vfio-pci\n")
        self.tree.bind(ADDRESS, "vfio-pci")
        os.unlink(os.path.join(self.tree.root, "sys/bus/pci/drivers/vfio-pci/unbind"))
        os.mkdir(os.path.join(self.tree.root, "sys/bus/pci/drivers/vfio-pci/unbind"))
        self.bad("port", "unbind", ADDRESS, "--root", self.tree.root, expected="driver/unbind: Is a directory")
        self.assertEqual((self.tree.driver(), self.override()[:8]), ("vfio-pci", "vfio-pci"))
        os.rmdir(os.path.join(self.tree.root, "sys/bus/pci/drivers/vfio-pci/unbind"))
        self.tree.bind(ADDRESS, "ntb_hw_plx")
        os.rmdir(os.path.join(self.tree.root, "sys/bus/pci/drivers/vfio-pci"))
        self.bad("port", "bind", ADDRESS, "--root", self.tree.root, expected="the kernel has no vfio-pci: modprobe vfio-pci")


class Doctor(cli.Case):
    fake = True

    def setUp(self):
        super().setUp()
        self.tree = Tree(os.path.join(self.folder, "root"))

    def doctor(self):
        _, out, err = self.call("doctor", "--root", self.tree.root)
        self.assertEqual(err, "")
        return out

    def wrong_functions(self):
        """A change of the files, and the warnings that doctor must print; (): none."""
        registers = (0xfe000000, 0x40000, MEMORY)
        circle = bytearray(config(1))
        circle[0x48:0x4a] = bytes((9, 0x48))
        yield {"driver": "vfio-pci"}, ()
        yield {"driver": "vfio-pci", "group": None}, ("in no IOMMU group",)
        yield {"driver": "vfio-pci", "group": "7"}, ("group 7 is shared with 0000:00:07.2, which drivers of the kernel have",)
        for bars, warning in (({0: registers, 2: (0x4000000000, 1 << 19, MEMORY | PREFETCH)}, "BAR 2 has 512 KiB: the pipes of a link need more"),
                              ({0: registers}, "BAR 2 has 0 KiB: there is no window"),
                              ({0: (0xfe000000, 0x20000, MEMORY), 2: (0x4000000000, 4 << 20, MEMORY | PREFETCH)}, "BAR 0 has 131072 bytes"),
                              ({0: registers, 2: (0, 64 << 20, MEMORY | PREFETCH | UNSET)}, "BAR 2 of 64 MiB has no address")):
            yield {"driver": "vfio-pci", "bars": bars}, (warning,)
        yield {"driver": "vfio-pci", "current_link_speed": "5.0 GT/s PCIe", "current_link_width": "4"}, \
            ("the link trained to Gen2 x4, the function is able to do Gen3 x8",)
        yield {"driver": "vfio-pci", "current_link_speed": "Unknown", "current_link_width": "255"}, ()
        yield {"driver": "vfio-pci", "space": config(1, 16)}, ("neither MSI nor MSI-X",)
        yield {"driver": "vfio-pci", "space": config(1, 17)}, ()
        yield {"driver": "vfio-pci", "space": bytes(circle)}, ("neither MSI nor MSI-X",)
        yield {"driver": "vfio-pci", "msi_bus": "0"}, ("a bridge above it blocks MSIs",)
        yield {"driver": "vfio-pci", "combining": False}, ("BAR 2 cannot be mapped write-combined (the kernel does not offer it)",)
        yield {"driver": "ntb_hw_plx"}, ("the driver ntb_hw_plx has it",)
        yield {"driver": None}, ("no driver has it",)

    def test_each_wrong_function_is_reported(self):
        self.assertIn("ok    hardware: no NTB function of a known chip\n", self.doctor())
        # Other functions in group 7: a bridge, or one bound to vfio-pci, is no problem; a disk controller is one.
        for address, driver, kind in (("0000:00:07.0", "ahci", "0x060400"), ("0000:00:07.1", "vfio-pci", "0x020000"),
                                      ("0000:00:07.2", "ahci", "0x010601")):
            self.tree.add(address, group="7", driver=driver, vendor="0x8086", **{"class": kind})
        expected = {}
        for i, (what, warnings) in enumerate(self.wrong_functions()):
            address = "0000:%02x:00.0" % (0x20 + i)
            self.tree.add(address, **{"group": str(0x20 + i), **what})
            expected[address] = warnings
        out = self.doctor()
        for address, warnings in expected.items():
            with self.subTest(address, expected=warnings):
                found = re.findall(r"(?m)^warn  %s: (.*)\n      mend: .+$" % re.escape(address), out)
                self.assertEqual(len(found), len(warnings), found)
                self.assertTrue(all(text in line for text, line in zip(warnings, found)), found)
                self.assertEqual("ok    %s: PEX 87xx" % address in out, not warnings)


if __name__ == "__main__":
    cli.main()
