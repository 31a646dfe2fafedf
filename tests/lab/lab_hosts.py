# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Virtual machines with a viaductd each: the common part of the labs. A lab is ended by end(), and by the end of this process."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
import lab_guest  # noqa: E402
import lab_packages  # noqa: E402
import leftovers  # noqa: E402
import supervise  # noqa: E402

BIN = os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or os.path.join(ROOT, "build", "release", "bin"))
HANG_S = 120
OURS = ("viaductd", "viaduct", "viaduct-ip", "tests/prog_deliver")
PROGRAMS = ("iperf3", "redis-server", "redis-cli")
SOCKETS = "/usr/lib/libviaduct-sockets.so"
RUNDIR = "/run/viaduct"
# Guests without KVM on busy cores are silent for longer than hosts of hardware.
DEAD = ("--dead-ms", "1500")
NOTHING_LOST = "received %d lost 0 doubled 0 reordered 0 wrong 0"


def wait_for(condition, seconds=HANG_S):
    return leftovers.wait_for(condition, seconds)


def deliver(host):
    return "VIADUCT_RUNDIR=%s VIADUCT_HOST=%d prog_deliver " % (RUNDIR, host)


class Lab:
    """A lab's files and processes end with the lab, and with this process. Each kind of lab defines links_of(host): the descriptions of a guest's links."""

    programs = PROGRAMS  # of this computer, that guests have too

    def __init__(self, packages):
        self.packages = packages
        self.folder = tempfile.mkdtemp(prefix="viaduct-lab-")
        # Removes the folder when this process ends, however it ends.
        self.keeper = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; cat; rm -rf \"$0\"", self.folder], stdin=subprocess.PIPE)
        self.image = os.path.join(self.folder, "image")
        self.guests = {}
        self.processes = []
        self.functions = {}  # that a guest binds

    def build_image(self, more=()):
        missing = [name for name in self.programs if shutil.which(name) is None]
        if missing:
            raise lab_packages.Missing("not installed: %s" % ", ".join(missing))
        files = [(os.path.join(BIN, name), "usr/bin/" + os.path.basename(name)) for name in OURS]
        files += [(os.path.join(BIN, "libviaduct-sockets.so"), SOCKETS), *more]
        lab_guest.build_image(self.packages, self.image, self.programs, files)

    def start_process(self, words, expected=None, **more):
        """A process of this computer; with `expected`, waits for that as its first line."""
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more)
        self.processes.append(process)
        if expected is not None:
            assert expected in process.stdout.readline()
        return process

    def serve_model(self, *words):
        """A process with a register model of a PEX 87xx, which takes commands."""
        return self.start_process([os.path.join(BIN, "viaduct"), "model", "pex", "--commands", *words], expected="virtual side", stdin=subprocess.PIPE)

    def add_guest(self, host, sockets, functions):
        """A guest with a PCI device for each socket of a model; start_guest() gives these functions to the daemon."""
        devices = [word for index, path in enumerate(sockets) for word in lab_guest.vfio_user(path, index)]
        self.guests[host] = lab_guest.Guest(self.packages, self.image, self.folder, "g%d" % host, devices, iommu=True, shared=True)
        self.functions[host] = functions

    def start_guest(self, host):
        """Binds the functions and starts the daemon, once the guest has booted."""
        self.guests[host].wait_booted()
        for function in self.functions[host]:
            self.guests[host].run("viaduct port bind %s" % function)
        self.start_daemon(host)

    def start_guests(self):
        for guest in self.guests.values():
            guest.boot()
        for host in self.guests:
            self.start_guest(host)

    def end_process(self, process):
        self.processes.remove(process)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def links_of(self, host):
        raise NotImplementedError

    def start_daemon(self, host):
        links = " ".join("--link " + link for link in self.links_of(host))
        self.guests[host].run("mkdir -p -m 700 %s; viaductd --foreground --rundir %s --host %d --address 10.78.0.%d %s %s >>/tmp/viaductd.log "
                              "2>&1 & echo $! >/tmp/viaductd.pid" % (RUNDIR, RUNDIR, host, host, " ".join(DEAD), links))

    def start_ip(self):
        for guest in self.guests.values():
            guest.run("viaduct-ip --rundir %s >>/tmp/ip.log 2>&1 &" % RUNDIR)
        for host, guest in self.guests.items():
            for peer in set(self.guests) - {host}:
                if not wait_for(lambda guest=guest, peer=peer: guest.run("ping -c 1 -W 5 10.78.0.%d" % peer, check=False)[0] == 0):
                    raise RuntimeError("guest %d: no ping of %d: %s" % (host, peer, guest.run("cat /tmp/ip.log")))

    def states(self, host):
        """{peer: state of the link} as the host's daemon has it."""
        code, out = self.guests[host].run("viaduct status --json", check=False)
        if code != 0:
            return {}
        return {b if a == host else a: "cut" if link["cut"] else link["state"] for link in json.loads(out)["links"]
                for a, b in ((link["a"], link["b"]),) if host in (a, b)}

    def state(self, host, peer):
        return self.states(host).get(peer)

    def end(self):
        for guest in self.guests.values():
            guest.kill()
        for process in list(self.processes):
            self.end_process(process)
        self.keeper.stdin.close()
        self.keeper.wait()


class Case(unittest.TestCase):
    """All tests of a class run on one lab, in the order of their names; the last ones harm the lab."""

    maxDiff = None
    kind = None  # of lab

    @classmethod
    def setUpClass(cls):
        try:
            packages = lab_packages.get()
            cls.lab = cls.kind(packages)
            cls.addClassCleanup(cls.lab.end)
            cls.lab.start()
        except lab_packages.Missing as missing:
            raise unittest.SkipTest(str(missing)) from missing
        cls.guests = cls.lab.guests

    def wait_not_up(self, host, peer):
        """Down, waiting or in a handshake without an answer."""
        if not wait_for(lambda: self.lab.state(host, peer) not in (None, "up")):
            self.fail(self.lab.states(host))

    def wait_state(self, host, peer, state):
        if not wait_for(lambda: self.lab.state(host, peer) == state):
            self.fail((self.guests[host].run("viaduct status; cat /tmp/viaductd.log", check=False), self.guests[host].tail()))

    def start_receiver(self, host, sources=1):
        self.guests[host].run(deliver(host) + "receive %d >/tmp/received 2>&1 &" % sources)
        self.assertTrue(wait_for(lambda: "ready" in self.guests[host].run("cat /tmp/received")))

    def wait_received(self, host, count):
        wait_for(lambda: "received" in self.guests[host].run("cat /tmp/received"))
        self.assertIn(NOTHING_LOST % count, self.guests[host].run("cat /tmp/received"))

    def run_programs(self, client, server):
        """iperf3 over via0 and over pipes, Redis over pipes. Rates are printed."""
        one, two, address = self.guests[client], self.guests[server], "10.78.0.%d" % server
        for preload in ("", "LD_PRELOAD=%s " % SOCKETS):
            port = 5300 + len(preload)
            two.run("%siperf3 -s -D -p %d" % (preload, port))
            out = one.run("VIADUCT_SOCKETS_STATS=/tmp/stats %siperf3 -J -c %s -p %d -t 3" % (preload, address, port), HANG_S)
            rate = json.loads(out[out.index("{"):])["end"]["sum_received"]["bits_per_second"]
            print("iperf3 %s: %.1f Mbit/s" % ("over pipes" if preload else "over via0", rate / 1e6), flush=True)
            self.assertGreater(rate, 1e5)
        stats = json.loads(one.run("cat /tmp/stats"))
        self.assertEqual((stats["accelerated"], stats["connections"], stats["demoted"]), (2, 2, 0), stats)
        self.assertGreater(stats["bytes_pipe_tx"], 1 << 17, stats)
        two.run("%s=%s redis-server --port 6379 --protected-mode no --save '' >/tmp/redis.log 2>&1 &" % ("LD_PRELOAD", SOCKETS))
        send_request = "LD_PRELOAD=%s redis-cli -h %s " % (SOCKETS, address)
        self.assertTrue(wait_for(lambda: "PONG" in one.run(send_request + "ping", check=False)[1]), two.run("cat /tmp/redis.log"))
        one.run("for i in $(seq 200); do echo SET key$i value$i; done | %s >/dev/null" % send_request, HANG_S)
        self.assertEqual(one.run(send_request + "dbsize").strip(), "200")
        self.assertEqual(one.run(send_request + "get key137").strip(), "value137")


def processes_with(text):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if text.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


class KilledCase(unittest.TestCase):
    """A lab that is killed leaves nothing."""

    script = None

    def test_a_lab_that_is_killed_leaves_nothing(self):
        env = {name: value for name, value in os.environ.items() if name != supervise.MARK}
        with subprocess.Popen([sys.executable, os.path.abspath(self.script), "hold"], env=env, stdout=subprocess.PIPE, text=True) as lab:
            word, folder = (lab.stdout.readline().strip().split(" ", 1) + [""])[:2]
            if word == "missing":
                self.skipTest(folder)
            self.assertTrue(processes_with(folder))
            lab.send_signal(signal.SIGKILL)
            lab.wait()
            self.assertTrue(wait_for(lambda: not os.path.exists(folder) and not processes_with(folder)), processes_with(folder))


def hold(kind, then):
    try:
        lab = kind(lab_packages.get())
        try:
            lab.start()
            then(lab)
        finally:
            lab.end()
    except lab_packages.Missing as missing:
        print("missing %s" % missing, flush=True)
        sys.exit(77)


def say_and_wait(lab):
    print("ready %s" % lab.folder, flush=True)
    signal.pause()


def try_things(lab):
    lab.start_ip()
    print("%d guests%s. gN COMMAND runs in guest N; end of input ends it." % (len(lab.guests), lab.note))
    for line in sys.stdin:
        name, _, script = line.strip().partition(" ")
        number = int(name[1:]) if re.fullmatch("g[0-9]", name) else 0
        if number in lab.guests and script:
            print(lab.guests[number].run(script, 600, check=False)[1], flush=True)
        elif line.strip():
            print("gN COMMAND, N being 1 to %d" % len(lab.guests), flush=True)


def main(kind):
    supervise.begin()
    if sys.argv[1:2] in (["hold"], ["try"]):
        hold(kind, say_and_wait if sys.argv[1] == "hold" else try_things)
        return
    result = unittest.main(exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0 or result.skipped:
        print("skipped: %s" % (result.skipped[0][1] if result.skipped else "nothing ran"))
        sys.exit(77)
