#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""TCP connections between machines whose links are themselves TCP: kernel TCP carries them until the daemons have measured, then the faster
of pipes and kernel TCP does."""
import json
import os
import subprocess

import fabric
import machines_case
from machines_case import BIN, HANG_S, wait_for

import machines_fabric

VIADUCT = os.path.join(BIN, "viaduct")
TALK = """
import ctypes, socket, time
class Info(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("carrier", ctypes.c_uint32), ("more", ctypes.c_uint32), ("why", ctypes.c_char_p), ("n", ctypes.c_uint64 * 8)]
conn = socket.create_connection(("node2", 7999), timeout=30)
info = Info(ctypes.sizeof(Info))
for _ in range(300):
    conn.sendall(b"x" * 100)
    assert len(conn.recv(100, socket.MSG_WAITALL)) == 100
    time.sleep(0.001)
assert ctypes.CDLL(None).via_sockets_info(conn.fileno(), ctypes.byref(info)) == 0 or info.carrier == 0
print(info.carrier, (info.why or b"").decode())
"""
ECHO = """
import socket
listener = socket.create_server(("", 7999))
print("ready", flush=True)
conn = listener.accept()[0]
while data := conn.recv(1 << 16):
    conn.sendall(data)
"""
# Stand-ins for sshd and ssh, over a socket that all machines see; the program gets the streams of the agent.
AGENT_SERVER = """
import os, socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("/run/lab/agent.sock")
listener.listen()
print("ready", flush=True)
while True:
    conn = listener.accept()[0]
    line, fds, _, _ = socket.recv_fds(conn, 65536, 3)
    subprocess.Popen(["sh", "-c", line.decode()], stdin=fds[0], stdout=fds[1], stderr=fds[2], pass_fds=[conn.fileno()])
    for fd in fds:
        os.close(fd)
"""
AGENT = """#!/usr/bin/env python3
import socket, sys
conn = socket.socket(socket.AF_UNIX)
conn.connect("/run/lab/agent.sock")
socket.send_fds(conn, [" ".join(sys.argv[2:]).encode()], [0, 1, 2])
conn.recv(1)
"""


STATE = "/var/lib/viaduct/sockets.conf"


@machines_case.unittest.skipIf(fabric.WHY_NOT["ofi"], fabric.WHY_NOT["ofi"])
class Automatic(machines_case.Case):
    """The daemons measure once the link is idle, and keep the decision."""

    def route(self, host):
        return next((r for r in self.fabric.status(host).get("routes", []) if r["host"] == 3 - host), {"measured": None})

    def begin(self, **transport):
        # On a busy machine a link would be down now and then, and a measurement that it ends is made again.
        times = {"times": {"dead-ms": 5000}}
        self.fabric = fabric.Fabric(self.lab, machines_fabric.ring(2), "ofi", {**times, "transport": transport} if transport else times)
        self.addCleanup(self.fabric.end_all)
        self.fabric.start()
        self.fabric.wait_whole()

    def restart(self, host):
        self.assertEqual(self.fabric.end(host), 0)
        self.fabric.start(host)
        self.fabric.wait_whole()

    def is_measured(self):
        return self.route(1)["measured"] and self.route(2)["measured"]

    def test_decisions_are_made_and_kept(self):
        self.begin()
        self.assertTrue(wait_for(self.is_measured, 2 * HANG_S), self.fabric.log(1) + self.fabric.log(2))
        self.assertTrue(wait_for(lambda: not self.lab[1].pids("measure-sockets") and not self.lab[2].pids("measure-sockets")))
        made = {host: self.route(host)["measured"] for host in (1, 2)}
        self.assertEqual([made[1][key] for key in ("small", "medium", "stream")], [made[2][key] for key in ("small", "medium", "stream")])
        for host in (1, 2):
            self.assertTrue(wait_for(lambda host=host: os.path.exists(self.lab[host].path(STATE))))
            self.assertEqual(os.stat(self.lab[host].path(STATE)).st_mode & 0o777, 0o600)
        for host in (1, 2):  # one measurement, of the one with the lower id
            self.assertEqual(self.fabric.log(host).count("measures TCP connections"), 2 - host)
            self.restart(host)
            self.assertTrue(wait_for(self.is_measured))
            self.assertEqual(self.route(host)["measured"]["small"], made[host]["small"])
            self.assertGreaterEqual(self.route(host)["measured"]["age_ns"], made[host]["age_ns"])
        # A decision that was made for another path is void.
        text = self.lab[1].read(STATE)
        self.lab[1].run(["sed", "-i", "s/, 1 hops,/, 2 hops,/", STATE])
        self.restart(1)
        self.assertIsNone(self.route(1)["measured"])
        self.assertIsNotNone(self.route(2)["measured"])
        for wrong in ("[host 2]\n", "junk", text.replace("time = ", "time = -"), text + text, "\0", text[:170], text.replace("for =", "four ="),
                      "[host 2]\n" * 3, text.replace("[host 2]", "[host 70000]"), "x" * (2 << 20)):
            self.assertEqual(self.fabric.end(1), 0)
            self.lab[1].write(STATE, wrong)
            self.fabric.start(1)
            self.fabric.wait_whole()
            self.assertIsNone(self.route(1)["measured"], wrong[:200])
        self.assertEqual(self.fabric.log(1).count("the file is not used: " + STATE), 10)

    def test_a_full_disk_and_a_file_of_others(self):
        self.lab[1].run(["sh", "-c", "rm -rf /var/lib/viaduct; mkdir -p /var/lib/viaduct; mount -t tmpfs -o size=4k full /var/lib/viaduct;"
                                     "dd if=/dev/zero of=/var/lib/viaduct/all bs=4k 2>/dev/null; true"])
        self.lab[2].run(["sh", "-c", "rm -rf /var/lib/viaduct; mkdir -p /var/lib/viaduct; echo kept > /var/target;"
                                     "ln -s /var/target /var/lib/viaduct/sockets.conf.new"])
        self.begin()
        self.assertTrue(wait_for(self.is_measured, 2 * HANG_S), self.fabric.log(1) + self.fabric.log(2))
        self.assertTrue(wait_for(lambda: "are not kept over a restart" in self.fabric.log(1)), self.fabric.log(1))
        self.assertTrue(wait_for(lambda: os.path.exists(self.lab[2].path(STATE))))
        self.assertEqual(self.lab[2].read("/var/target"), "kept\n")
        self.lab[1].run(["umount", "/var/lib/viaduct"])
        self.assertTrue(wait_for(lambda: os.path.exists(self.lab[1].path(STATE))))  # it tries again

    def test_off(self):
        self.begin(**{"measure-sockets": "no"})
        code = "import socket; c = socket.socket(socket.AF_UNIX); c.connect('%s/host-1.ctl'); c.sendall(b'%s\\n'); print(c.recv(65536).decode())"
        answer = self.lab[1].run(["python3", "-c", code % (machines_fabric.RUNDIR, '{"cmd":"measure","host":2}')]).stdout
        self.assertIn("host 2 does not measure", answer)


@machines_case.unittest.skipIf(fabric.WHY_NOT["ofi"], fabric.WHY_NOT["ofi"])
class Measured(machines_case.Case):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.fabric = fabric.Fabric(cls.lab, machines_fabric.ring(2), "ofi", {"transport": {"measure-sockets": "no"}})
        cls.addClassCleanup(cls.fabric.end_all)
        cls.fabric.start()
        cls.fabric.wait_whole()
        server = cls.lab[2].start(cls.words("python3", "-c", AGENT_SERVER), stdout=subprocess.PIPE)
        cls.addClassCleanup(server.communicate)
        cls.addClassCleanup(server.kill)
        server.stdout.readline()
        cls.lab[1].write("/etc/viaduct/agent", AGENT, 0o755)

    @staticmethod
    def words(*words):
        return ["env", "PATH=%s:%s" % (BIN, os.environ["PATH"]), "VIADUCT_RUNDIR=" + machines_fabric.RUNDIR, "VIADUCT_PROGRESS=1", *words]

    def tune(self, *words, check=True):
        done = self.lab[1].run(self.words(VIADUCT, "tune", "sockets", *words), check=False, timeout=2 * HANG_S)
        self.assertEqual(done.returncode, 0 if check else 1, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def route(self, host):
        return next(r for r in self.fabric.status(host)["routes"] if r["host"] == 3 - host)

    def send_request(self, **request):
        """A request to host 1's daemon."""
        code = "import socket, sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); c.sendall(sys.argv[2].encode() + b'\\n'); print(c.recv(65536).decode())"
        return json.loads(self.lab[1].run(["python3", "-c", code, machines_fabric.RUNDIR + "/host-1.ctl", json.dumps(request)]).stdout)

    def carrier(self):
        server = self.lab[2].start(self.words(VIADUCT, "run", "--host", "2", "--", "python3", "-c", ECHO), stdout=subprocess.PIPE)
        try:
            self.assertEqual(server.stdout.readline(), "ready\n")
            return self.lab[1].run(self.words(VIADUCT, "run", "--host", "1", "--", "python3", "-c", TALK)).stdout.strip()
        finally:
            server.communicate(timeout=HANG_S)

    def test_a_choice(self):
        self.assertEqual((self.route(1)["pipes"], self.route(1)["measured"]), (False, None))
        self.assertEqual(self.carrier().split()[0], "0")
        good = {"small": 150, "medium": 120, "stream": 100}
        for more in ({}, {"host": 2, "peer": 1}):
            self.assertTrue(self.send_request(**{"cmd": "measured", "peer": 2, "carrier": "pipes", **good, **more})["ok"])
        self.assertTrue(wait_for(lambda: self.route(1)["pipes"] and self.route(2)["pipes"]))
        self.assertEqual(self.route(2)["measured"]["small"], 150)
        # On a busy machine the pipes may come after the last message: then once more.
        self.assertTrue(any(self.carrier() == "2" for _ in range(5)))
        self.assertRegex(self.lab[1].run(self.words(VIADUCT, "status")).stdout, r"\n +1 +2  pipes +150 % +120 % +100 %")
        self.tune("--reset", "node2")
        self.assertTrue(wait_for(lambda: not self.route(1)["pipes"] and self.route(2)["measured"] is None))
        for wrong in ({"peer": 1}, {"peer": 9}, {"carrier": "both"}, {"small": 0}, {"stream": "much"}, {"medium": 1 << 40}):
            self.assertFalse(self.send_request(**{"cmd": "measured", "peer": 2, "carrier": "kernel", **good, **wrong})["ok"], wrong)

    def test_measuring(self):
        output = self.tune("--rounds", "3", "--agent", "/etc/viaduct/agent", "2")
        output, left = output.split("\n", 1)  # standard error is behind
        self.assertRegex(left, r"(?m)^viaduct tune sockets: host 2: run 5 of 6, \d+ s left$")
        self.assertRegex(output, r"^host 2: by pipes, .* 8 bytes there and back \d+, 16 KiB \d+, a stream \d+: (pipes|kernel)$")
        for host in (1, 2):
            route = self.route(host)
            self.assertEqual(route["pipes"], output.rstrip().endswith(": pipes"))
            self.assertGreater(route["measured"]["stream"], 0)
        self.assertTrue(wait_for(lambda: not self.lab[2].pids("--serve")), self.lab[2].pids("--serve"))
        self.tune("--reset", "2")

    def test_what_can_not_be_measured(self):
        for words, expected in ((["3"], "host 3: there is none"), (["1"], "that is this one"), (["--agent", "false", "2"], "start the other end")):
            self.assertIn(expected, self.tune(*words, check=False))


if __name__ == "__main__":
    machines_case.main()
