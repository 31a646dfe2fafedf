#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Two daemons on a register model of a PEX 87xx, served by vfio-user: data, messages, faults, the end of the server."""
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import threading

import cli
from daemon_config import Machine

LIBRARY = os.path.join(cli.BIN, "libviaduct.so")


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rundir", ctypes.c_char_p), ("host", ctypes.c_int), ("channel", ctypes.c_int)]


class Process:
    """A process of a host, by libviaduct."""

    def __init__(self, case, machine):
        self.case = case
        self.calls = ctypes.CDLL(LIBRARY)
        self.calls.via_error_text.restype = ctypes.c_char_p
        self.calls.via_segment_handle.restype = ctypes.c_uint64
        self.calls.via_segment_base.restype = ctypes.c_void_p
        options = Options(ctypes.sizeof(Options), machine.rundir.encode(), machine.host, -1)
        self.attach = ctypes.c_void_p()
        self.good(self.calls.via_attach_open(ctypes.byref(options), ctypes.byref(self.attach)))
        case.addCleanup(self.calls.via_attach_close, self.attach)

    def good(self, code):
        self.case.assertGreaterEqual(code, 0, self.calls.via_error_text())
        return code

    def segment(self, size):
        """(handle, address)"""
        segment = ctypes.c_void_p()
        self.good(self.calls.via_segment_new(self.attach, ctypes.c_size_t(size), 3, ctypes.byref(segment)))
        return self.calls.via_segment_handle(segment), self.calls.via_segment_base(segment)

    def remote(self, host, handle, size):
        remote = ctypes.c_void_p()
        self.good(self.calls.via_remote_open(self.attach, host, ctypes.c_uint64(handle), ctypes.c_size_t(size),
                                             ctypes.byref(remote)))
        return remote

    def put(self, remote, data):
        self.good(self.calls.via_remote_put(remote, ctypes.c_uint64(0), data, ctypes.c_size_t(len(data)), 0))
        self.good(self.calls.via_attach_quiet(self.attach))

    def get(self, remote, size):
        data = ctypes.create_string_buffer(size)
        self.good(self.calls.via_remote_get(remote, ctypes.c_uint64(0), data, ctypes.c_size_t(size)))
        return data.raw


class Relay:
    """A proxy between one client and a vfio-user server, which closes after `count` messages of the client."""

    def __init__(self, path, server, messages):
        self.left = messages
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.thread = threading.Thread(target=self.run, args=(server,), daemon=True)
        self.thread.start()

    def run(self, path):
        client = self.listener.accept()[0]
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        back = threading.Thread(target=self.pass_on, args=(server, client, False), daemon=True)
        back.start()
        self.pass_on(client, server, True)
        back.join()
        for end in (client, server, self.listener):
            end.close()

    def pass_on(self, source, sink, counts):
        """Forwards one message with its descriptors. A single read gets a whole message: the client waits for each
        answer."""
        with contextlib.suppress(OSError):
            while True:
                data, fds, _, _ = socket.recv_fds(source, 1 << 20, 16)
                self.left -= counts
                if not data or self.left < 0:
                    break
                socket.send_fds(sink, [data], fds)
                for fd in fds:
                    os.close(fd)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class PexMachine(Machine):
    """Host 1 is at the virtual side, host 2 at the link side."""

    def __init__(self, case, host, options="", of=None):
        super().__init__(case, host)
        self.options = options
        self.function = of or host

    def cable(self, peer, number=0):
        return "pex:vfio-user:%s/nt%d.sock,window=1MiB%s" % (self.case.folder, self.function, self.options)


class TwoPorts(PexMachine):
    """Host 1 has the virtual sides of both NT ports, hosts 2 and 3 a link side each."""

    def cable(self, peer, number=0):
        self.function = {(1, 2): 1, (2, 1): 2, (1, 3): 3, (3, 1): 4}[self.host, peer]
        return super().cable(peer, number)


class Pex(cli.Case):
    def setUp(self):
        super().setUp()
        self.sockets = [os.path.join(self.folder, "nt%d.sock" % side) for side in (1, 2)]
        self.model = None

    def serve(self, *words):
        self.model = subprocess.Popen(
            [self.viaduct, "model", "pex", "--socket", self.sockets[0], "--socket", self.sockets[1], "--commands", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env)
        self.addCleanup(self.end_model)
        self.assertIn("virtual side on %s" % self.sockets[0], self.model.stdout.readline())

    def end_model(self, number=None):
        """Ends the model. Returns its exit code."""
        if self.model is None:
            return 0
        if number is not None:
            self.model.send_signal(number)
        self.model.stdin.close()
        code = self.model.wait(cli.HANG_S)
        self.model.stdout.close()
        self.model = None
        return code

    def command(self, line):
        self.model.stdin.write(line + "\n")
        self.model.stdin.flush()
        self.assertEqual(self.model.stdout.readline(), "ok\n")

    def machines(self, first="", second=""):
        one, two = PexMachine(self, 1, first), PexMachine(self, 2, second)
        one.configure([2])
        two.configure([1])
        two.start()
        one.start()
        self.assertTrue(cli.wait_for(lambda: one.reaches(2) and two.reaches(1)), one.messages() + two.messages())
        return one, two

    def test_data_and_messages_go_over_the_model(self):
        self.serve()
        one, two = self.machines()
        link = one.links()["to-2-0"]
        self.assertEqual(link["driver"], "pex")
        self.assertRegex(link["found"], r"^PEX 87xx NT0 virtual side, revision CA, Gen3 x8, BAR 2 of 4194304 bytes \(by calls\), MSI")
        self.assertIn("NT0 link side", two.links()["to-1-0"]["found"])
        first, second = Process(self, one), Process(self, two)
        handle, base = second.segment(300000)
        remote = first.remote(2, handle, 300000)

        def put_and_check():
            data = random.randbytes(300000)
            first.put(remote, data)
            self.assertEqual(ctypes.string_at(base, len(data)), data)
            self.assertEqual(first.get(remote, 5000), data[:5000])

        put_and_check()
        second.good(second.calls.via_endpoint_open(second.attach, 7))
        for i in range(200):
            first.good(first.calls.via_message_send(first.attach, 2, 7, 0, b"%d" % i, 4))
        buffer = ctypes.create_string_buffer(16)
        for i in range(200):
            second.good(second.calls.via_message_receive(second.attach, buffer, 16, 1000 * cli.HANG_S, ctypes.create_string_buffer(64)))
            self.assertEqual(buffer.value, b"%d" % i)

        # The cable is pulled; then each side is reset, and loses an interrupt: no put is lost.
        self.command("cut")
        self.assertTrue(cli.wait_for(lambda: one.state(2) != "up" and two.state(1) != "up"))
        self.assertIn("has no link", one.links()["to-2-0"]["error"])
        self.command("mend")
        put_and_check()
        for fault in ("reset virtual", "reset link", "lose virtual", "lose link"):
            ups = one.links()["to-2-0"]["ups"]
            self.command(fault)
            put_and_check()
            if fault.startswith("reset"):
                self.assertTrue(cli.wait_for(lambda: one.links()["to-2-0"]["ups"] > ups))
        self.command("speed 1 4")
        self.assertTrue(cli.wait_for(lambda: "Gen1 x4 (degraded)" in two.links()["to-1-0"]["found"]))
        put_and_check()
        # A host is killed.
        one.stop(signal.SIGKILL)
        self.assertTrue(cli.wait_for(lambda: two.state(1) != "up"))
        one.start()
        self.assertTrue(cli.wait_for(lambda: one.reaches(2) and two.reaches(1)))
        self.assertEqual((one.stop(), two.stop()), (0, 0))
        self.assertEqual(self.end_model(), 0)
        self.assertFalse(any(os.path.exists(path) for path in self.sockets))

    def test_a_server_that_dies_is_an_error(self):
        self.serve()
        one, two = self.machines()
        self.assertEqual(self.end_model(signal.SIGKILL), -signal.SIGKILL)
        for machine, link in ((one, "to-2-0"), (two, "to-1-0")):
            self.assertTrue(cli.wait_for(lambda m=machine, l=link: m.links()[l]["state"] != "up"))
            self.assertTrue(cli.wait_for(lambda m=machine, l=link: "the function does not answer" in m.links()[l]["error"]))
        self.assertEqual((one.stop(), two.stop()), (0, 0))

    def test_a_server_that_starts_anew_is_found(self):
        """The daemons refuse a model of another size; with the original one the link comes up again."""
        self.serve()
        one, two = self.machines()
        self.end_model(signal.SIGKILL)
        self.assertTrue(cli.wait_for(lambda: "the function does not answer" in one.links()["to-2-0"]["error"]))
        self.serve("--bar", "8")
        self.assertTrue(cli.wait_for(lambda: "has other BARs" in one.links()["to-2-0"]["error"]), one.links())
        self.end_model(signal.SIGKILL)
        self.serve()
        self.assertTrue(cli.wait_for(lambda: one.reaches(2) and two.reaches(1)), (one.links(), two.links()))
        first, second = Process(self, one), Process(self, two)
        handle, base = second.segment(50000)
        data = random.randbytes(50000)
        first.put(first.remote(2, handle, 50000), data)
        self.assertEqual(ctypes.string_at(base, len(data)), data)
        self.assertEqual((one.stop(), two.stop()), (0, 0))

    def test_a_server_that_dies_while_it_is_opened_is_an_error(self):
        """For a failure at each step the command's error names the step and the socket, and the function can be opened
        again."""
        engine = os.path.join(self.folder, "dma.sock")
        self.serve("--dma-socket", engine)
        for dies, steps in ((self.sockets[0], (0, 1, 6, 11, 14, 17, 21)), (engine, (0, 6, 10, 20, 40))):
            for step in steps:
                path = os.path.join(self.folder, "relay-%d-%s" % (step, os.path.basename(dies)))
                relay = Relay(path, dies, step)
                function, dma = (path, engine) if dies != engine else (self.sockets[0], path)
                error = self.bad("perf", "pio", "--link", "pex:vfio-user:%s,window=512KiB,dma=%s" % (function, dma), "--wait", "1", expected=path)
                self.assertNotRegex(error, "revision FF|EEPROM")
                relay.thread.join(cli.HANG_S)
                self.assertFalse(relay.thread.is_alive())
        one, two = self.machines()
        self.assertEqual((one.stop(), two.stop()), (0, 0))

    def test_two_chips_back_to_back(self):
        self.serve("--b2b")
        one, two = self.machines(",b2b=0", ",b2b=1")
        for machine, link in ((one, "to-2-0"), (two, "to-1-0")):
            self.assertIn("NT0 virtual side", machine.links()[link]["found"])
        self.command("cut")
        self.assertTrue(cli.wait_for(lambda: one.links()["to-2-0"]["state"] != "up" and two.links()["to-1-0"]["state"] != "up"))
        self.command("mend")
        self.assertTrue(cli.wait_for(lambda: one.reaches(2) and two.reaches(1)))
        self.assertEqual((one.stop(), two.stop()), (0, 0))

    def test_both_nt_ports_of_a_chip(self):
        more = [os.path.join(self.folder, "nt%d.sock" % function) for function in (3, 4)]
        engine = os.path.join(self.folder, "dma.sock")
        self.serve("--two-nt-ports", "--socket", more[0], "--socket", more[1], "--dma-socket", engine)
        hosts = [TwoPorts(self, host, ",dma=" + engine if host == 1 else "") for host in (1, 2, 3)]
        for host, peers in zip(hosts, ([2, 3], [1], [1])):
            host.configure(peers, more="[transport]\ndma-bytes = 1024\n" if host.host == 1 else "")
        for host in reversed(hosts):
            host.start()

        def wait_all():
            self.assertTrue(cli.wait_for(lambda: all(host.reaches(peer) for host in hosts for peer in (1, 2, 3) if peer != host.host)),
                            "".join(host.messages() for host in hosts))
        wait_all()
        self.assertIn("NT0 virtual side", hosts[0].links()["to-2-0"]["found"])
        self.assertIn("NT1 virtual side", hosts[0].links()["to-3-0"]["found"])
        self.assertIn("NT1 link side", hosts[2].links()["to-1-0"]["found"])
        # From one link side to the other, relayed by host 1.
        second, third = Process(self, hosts[1]), Process(self, hosts[2])
        handle, base = third.segment(50000)
        remote = second.remote(3, handle, 50000)

        def put():
            data = random.randbytes(50000)
            second.put(remote, data)
            self.assertEqual(ctypes.string_at(base, len(data)), data)
        put()
        # Host 1 has one DMA function, by which bodies leave over both its links.
        first = Process(self, hosts[0])
        for process, peer in ((second, 2), (third, 3)):
            there, place = process.segment(50000)
            data = random.randbytes(50000)
            first.put(first.remote(peer, there, 50000), data)
            self.assertEqual(ctypes.string_at(place, len(data)), data)
        links = hosts[0].links()
        self.assertGreater(min(links["to-%d-0" % peer]["dma_frames"] for peer in (2, 3)), 0, links)
        # Each port has a cable of its own.
        self.command("nt 1")
        self.command("cut")
        self.assertTrue(cli.wait_for(lambda: not hosts[0].reaches(3)))
        self.assertTrue(hosts[0].reaches(2))
        self.command("mend")
        wait_all()
        put()
        self.command("reset virtual")
        self.assertTrue(cli.wait_for(lambda: hosts[0].links()["to-2-0"]["downs"] >= 1 and hosts[0].links()["to-3-0"]["downs"] >= 2),
                        hosts[0].links())
        wait_all()
        put()

    def test_a_dma_function_whose_requests_are_refused_is_not_used(self):
        """The chip drops what it writes, and it reports success: bodies are copied by the CPU, and status, log and doctor say why."""
        engine = os.path.join(self.folder, "dma.sock")
        self.serve("--dma-socket", engine)
        self.command("dma-bus virtual 9")
        one, two = PexMachine(self, 1, ",dma=" + engine), PexMachine(self, 2)
        one.configure([2], more="[transport]\ndma-bytes = 1024\n")
        two.configure([1])
        two.start()
        one.start()
        first, second = Process(self, one), Process(self, two)
        handle, base = second.segment(50000)

        def put():
            self.assertTrue(cli.wait_for(lambda: one.reaches(2) and two.reaches(1)), one.messages() + two.messages())
            data = random.randbytes(50000)
            first.put(first.remote(2, handle, 50000), data)
            self.assertEqual(ctypes.string_at(base, len(data)), data)

        def replug():
            ups = one.links()["to-2-0"]["ups"]
            self.command("cut")
            self.assertTrue(cli.wait_for(lambda: one.state(2) != "up" and two.state(1) != "up"))
            self.command("mend")
            self.assertTrue(cli.wait_for(lambda: one.links()["to-2-0"]["ups"] > ups))

        for _ in range(2):
            put()
            link = one.links()["to-2-0"]
            self.assertRegex(link["error"], "^bodies go without DMA: .* does not arrive at the peer.*entered is 02:00")
            self.assertEqual(link["dma_frames"], 0)
            self.assertTrue(one.has_logged("bodies go without DMA"), one.messages())
            status = self.good("status", "--rundir", one.rundir)
            self.assertIn("bodies go without DMA", status)
            doctor = self.call("doctor", env={**self.env, "VIADUCT_RUNDIR": one.rundir})[1]
            self.assertRegex(doctor, "links: to-2-0: bodies go without DMA")
            replug()
        self.command("dma-bus virtual 2")
        replug()
        put()
        # Core tries an engine that refused again half a second later.
        self.assertTrue(cli.wait_for(lambda: put() is None and one.links()["to-2-0"]["dma_frames"] > 0), one.links())
        self.assertEqual(one.links()["to-2-0"]["error"], "")
        self.assertEqual((one.stop(), two.stop()), (0, 0))

    def test_one_function_has_one_daemon(self):
        self.serve()
        one, two = self.machines()
        third = PexMachine(self, 3, of=1)
        third.configure([2])
        third.start(wait=False)
        self.assertTrue(third.has_logged("or serves another client"), third.messages())
        self.assertTrue(one.reaches(2) and two.reaches(1))
        self.assertEqual((one.stop(), two.stop()), (0, 0))

    def test_what_cannot_be_opened(self):
        one = PexMachine(self, 1)
        one.configure([2])
        one.start(wait=False)
        self.assertTrue(one.has_logged("connect: No such file or directory"), one.messages())


if __name__ == "__main__":
    cli.main()
