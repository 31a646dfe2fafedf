#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The process that a lab of machines lives in: tools/machines starts it.

usage: machines_keeper.py NAME COUNT OWNER [--same-clock]

It has its own network namespace, which contains the bridge, and its own mount namespace, with the disks of the machines
on a tmpfs. Machines are its children and end with it; then the kernel removes the namespaces, and with them the
interfaces and the disks. So nothing needs to be removed, in whatever way the process ends. It ends with the process
OWNER (0: with none). It accepts requests only from root, a line of JSON each, at the abstract UNIX socket
viaduct-machines/NAME.
"""
import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import machines_kernel as kernel
from machines_kernel import Failure

COUNT_MAX = 16
SOCKET = "\0viaduct-machines/"
HERE = os.path.dirname(os.path.abspath(__file__))
# In the keeper's mount namespace.
LAB = "/run/lab"
# Folders that each machine has for itself and keeps when it boots again. Those that the computer lacks are left out.
DISKS = ("/etc", "/var", "/root", "/home")
# Folders that each machine has for itself and that are empty whenever it boots.
VOLATILE = ("/run", "/dev/shm", "/tmp")
# The monotonic clocks of machines differ, as those of computers do.
CLOCK_STEP_S = 1000
ANSWER_S = 60
REQUEST_BYTES_MAX = 1 << 16


def address(index):
    return "10.76.0.%d" % index


def hosts_file(count):
    """The /etc/hosts of a machine. node1-ip is node1's default address of viaduct-ip."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    for i in range(1, count + 1):
        lines += ["%s node%d" % (address(i), i), "fd76::%d node%d-6" % (i, i), "10.78.0.%d node%d-ip" % (i, i)]
    return "\n".join(lines) + "\n"


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def mounts_below(folder):
    """The mount points below a folder, which an overlay of the folder would hide."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            path = line.split()[4].encode().decode("unicode_escape")
            if path.startswith(folder + "/"):
                found.append(path)
    return found


def lose_output():
    """Redirects the streams to /dev/null: the process that made the lab may wait for the end of this output."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


# --- in the machine --------------------------------------------------------------------------------


class Init:
    """The first process of a machine: sets up its file system and its network, then reaps processes."""

    def __init__(self, index, count, kept):
        self.index = index
        self.count = count
        self.kept = kept  # {path: descriptor} of the source tree and the build

    def make(self):
        socket.sethostname("node%d" % self.index)
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        fresh = self.make_disks()
        self.make_volatile()
        self.show_kept()
        with contextlib.suppress(Failure):
            kernel.mount("sysfs", "/sys", "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        with contextlib.suppress(Failure):
            kernel.mount("mqueue", "/dev/mqueue", "mqueue")
        if fresh:
            self.fill_disk()
        self.make_boot_id()
        self.hide_symbols()
        self.make_network()

    def make_disks(self):
        """Mounts the machine's disks. True if the machine boots for the first time."""
        disk = "%s/disk/%d" % (LAB, self.index)
        fresh = not os.path.isdir(disk)
        for path in DISKS:
            if not os.path.isdir(path) or os.path.islink(path):
                continue
            up, work = ("%s%s/%s" % (disk, path, part) for part in ("up", "work"))
            os.makedirs(up, exist_ok=True)
            shutil.rmtree(work, ignore_errors=True)
            os.mkdir(work)
            shutil.copystat(path, up)
            hidden = [(inner, os.open(inner, os.O_PATH)) for inner in mounts_below(path)]
            kernel.mount("disk", path, "overlay", data="lowerdir=%s,upperdir=%s,workdir=%s" % (path, up, work))
            for inner, fd in hidden:
                kernel.bind("/proc/self/fd/%d" % fd, inner)
        return fresh

    def make_volatile(self):
        run = "%s/run/%d" % (LAB, self.index)
        os.makedirs(run + "/", exist_ok=True)
        # Opened in this mount namespace: the kernel bind-mounts nothing from another one.
        self.kept = {path: os.open(path, os.O_PATH) for path in self.kept}
        kernel.mount("run", run, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
        for folder, mode in (("lab", 0o755), ("lock", 0o1777), ("user", 0o755), ("sshd", 0o755)):
            os.mkdir(os.path.join(run, folder))
            os.chmod(os.path.join(run, folder), mode)
        kernel.bind(LAB + "/shared", run + "/lab")
        for path in VOLATILE[1:]:
            kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
        kernel.mount(run, "/run", flags=kernel.MS_MOVE)

    def show_kept(self):
        for path, fd in self.kept.items():
            os.makedirs(path, exist_ok=True)
            kernel.bind("/proc/self/fd/%d" % fd, path)

    def fill_disk(self):
        write("/etc/hostname", "node%d\n" % self.index)
        write("/etc/hosts", hosts_file(self.count))
        write("/etc/machine-id", "%032x\n" % int.from_bytes(os.urandom(16), "big"))
        os.makedirs("/etc/viaduct", exist_ok=True)
        for path in ("/etc/rc.local", "/etc/viaduct/host.conf"):  # these are the computer's, not this machine's
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def make_boot_id(self):
        """Gives the machine its own boot id: the kernel's id is that of the computer, which did not boot again."""
        raw = os.urandom(16).hex()
        write("/run/boot_id", "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])) + "\n")
        with contextlib.suppress(Failure):
            kernel.bind("/run/boot_id", "/proc/sys/kernel/random/boot_id")

    def hide_symbols(self):
        """Hides the kernel's symbols: libfabric's verbs provider searches them all twice when a daemon starts, 0.2 s of CPU time."""
        with contextlib.suppress(Failure):
            kernel.bind("/dev/null", "/proc/kallsyms")

    def make_network(self):
        lines = ["link set lo up", "link set eth0 address 02:76:69:61:00:%02x" % self.index,
                 "addr add %s/24 dev eth0" % address(self.index)]
        if os.path.isdir("/proc/sys/net/ipv6"):
            lines.append("addr add fd76::%d/64 dev eth0 nodad" % self.index)
        kernel.ip_batch([*lines, "link set eth0 up"])

    def boot(self):
        """Runs /etc/rc.local, by which the machine's administrator starts programs."""
        if os.access("/etc/rc.local", os.X_OK):
            with open("/var/log/boot.log", "ab") as log:
                subprocess.Popen(["/etc/rc.local"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True)

    def reap(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0] != 0:
                    pass
            signal.sigwait([signal.SIGCHLD])


def become_machine(init, go, status, clock_s):
    """Runs in a child of the keeper and does not return. The child waits for its own child, the machine's first process."""
    try:
        keep = {go, status, *init.kept.values()}
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in keep:
                with contextlib.suppress(OSError):
                    os.close(fd)
        lose_output()
        flags = (kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC |
                 kernel.CLONE_NEWPID)
        kernel.unshare(flags, "make namespaces")
        if clock_s:
            kernel.unshare(kernel.CLONE_NEWTIME, "make a time namespace")
            write("/proc/self/timens_offsets", "monotonic %d 0\nboottime %d 0\n" % (clock_s, clock_s))
        # The parent's pid is not visible in the new namespace: getppid(2) is 0, as for a process without a parent.
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            kernel.check(kernel.libc.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
            os.read(reader, 1)  # returns a byte if the parent lives, else the end of file
            kernel.set_name("node%d" % init.index)
            os.setsid()
            if os.read(go, 1) != b"g":
                os._exit(1)
            init.make()
            os.write(status, b"up\n")
            os.close(status)
            os.close(go)
            init.boot()
            init.reap()
        os.close(reader)
        os.write(writer, b"l")
        os.write(status, b"%d\n" % pid)
        os.close(status)
        os.close(go)
        kernel.set_name("node%d-wait" % init.index)
        os.waitpid(pid, 0)
    except BaseException as failure:  # of any kind: the child must not continue as the keeper
        with contextlib.suppress(OSError):
            os.write(status, ("%s\n" % failure).encode())
    os._exit(0)


# --- in the keeper ---------------------------------------------------------------------------------


class Machine:
    def __init__(self, index):
        self.index = index
        self.name = "node%d" % index
        self.waiter = self.pid = 0
        self.status = self.go = -1
        self.suspended = False
        self.plugged = True
        self.group = 0
        self.delay_ms = self.jitter_ms = self.loss = 0.0
        self.relay = None

    def port(self):
        """The interface of this machine that belongs to a bridge."""
        return ("q%d" if self.relay else "p%d") % self.index

    def describe(self):
        state = "down" if not self.pid else "suspended" if self.suspended else "up"
        return {"name": self.name, "state": state, "pid": self.pid, "address": address(self.index),
                "group": self.group, "plugged": self.plugged, "delay_ms": self.delay_ms, "loss": self.loss}

    def read_line(self):
        """Reads the machine's report while it boots."""
        text = b""
        deadline = time.monotonic() + ANSWER_S
        while not text.endswith(b"\n"):
            if not select.select([self.status], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Failure("%s: boot: no answer within %d s" % (self.name, ANSWER_S))
            piece = os.read(self.status, 1)
            if not piece:
                raise Failure("%s: boot: %s" % (self.name, text.decode() or "it ended"))
            text += piece
        return text.decode().strip()

    def processes(self):
        """The machine's processes, as pids outside, and those parents of theirs that are outside of the machine."""
        mine = os.readlink("/proc/%d/ns/pid" % self.pid)
        inside, parents = set(), set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%s/ns/pid" % pid) == mine:
                    inside.add(int(pid))
                    with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as stat:
                        parents.add(int(stat.read().rpartition(")")[2].split()[1]))
        return inside, parents - inside - {self.waiter}


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Network:
    """The bridges, the machines' ports at them, and the faults of the wires."""

    def __init__(self, machines):
        self.machines = machines
        self.bridges = set()
        self.has_netem = False

    def make(self):
        kernel.ip_batch(["link set lo up", "link add w0 type veth peer name w1"])
        self.has_netem = kernel.works("tc", "qdisc", "add", "dev", "w0", "root", "netem", "delay", "1ms")
        kernel.ip_batch(["link del w0"])
        self.make_bridge(0)

    def make_bridge(self, group):
        if group not in self.bridges:
            kernel.ip_batch(["link add br%d type bridge forward_delay 0 mcast_snooping 0" % group,
                             "link set br%d addrgenmode none" % group, "link set br%d up" % group])
            self.bridges.add(group)

    def join(self, machine):
        """Moves the machine's port to the bridge of its current group."""
        port = machine.port()
        if machine.suspended:
            kernel.ip_batch(["link set %s nomaster" % port])
        else:
            self.make_bridge(machine.group)
            kernel.ip_batch(["link set %s master br%d" % (port, machine.group)])
        kernel.ip_batch(["link set p%d %s" % (machine.index, "up" if machine.plugged else "down")])

    def add(self, machines):
        lines = []
        for m in machines:
            lines += ["link add p%d type veth peer name eth0 netns %d" % (m.index, m.pid),
                      "link set p%d addrgenmode none" % m.index]
        kernel.ip_batch(lines)
        for m in machines:
            self.weaken(m)

    def remove(self, machine):
        self.end_relay(machine)
        kernel.works("ip", "link", "del", "p%d" % machine.index)

    def partition(self, groups):
        """Divides the machines into groups. Machines that are in no group belong to the first."""
        for m in self.machines.values():
            m.group = 0
        for i, group in enumerate(groups):
            for m in group:
                m.group = i
        for m in self.machines.values():
            if m.pid:
                self.join(m)

    # Wires with delays and losses: netem(8) at both ends where the kernel has it; else losses by nft(8) if
    # it is installed, and delays (and then losses too) by a relay.

    def weaken(self, machine):
        """Applies the delays and losses of a machine's wire."""
        self.end_relay(machine)
        by_nft = not machine.delay_ms and shutil.which("nft") is not None
        if self.has_netem:
            self.set_netem(machine)
        elif machine.delay_ms or (machine.loss and not by_nft):
            self.start_relay(machine)
        self.set_segments(machine)
        self.set_rules()
        self.join(machine)

    def in_machine(self, machine, *words):
        done = subprocess.run(["nsenter", "-t", str(machine.pid), "-n", "--", *words], capture_output=True,
                              text=True, check=False)
        return done.stderr.strip() if done.returncode else None

    def set_netem(self, machine):
        words = ["root", "netem", "limit", "100000", "delay", "%gms" % machine.delay_ms,
                 "%gms" % machine.jitter_ms, "loss", "%g%%" % machine.loss]
        if not machine.delay_ms and not machine.loss:
            kernel.works("tc", "qdisc", "del", "dev", "p%d" % machine.index, "root")
            self.in_machine(machine, "tc", "qdisc", "del", "dev", "eth0", "root")
            return
        failure = self.in_machine(machine, "tc", "qdisc", "replace", "dev", "eth0", *words)
        if failure or not kernel.works("tc", "qdisc", "replace", "dev", "p%d" % machine.index, *words):
            raise Failure("%s: set netem: %s" % (machine.name, failure or "failed at the bridge"))

    def set_segments(self, machine):
        """Limits segmentation offload, so that a loss drops one packet and not the 64 KiB that a kernel sends at once."""
        count = 1 if machine.loss else 65535
        with contextlib.suppress(Failure):
            kernel.ip_batch(["link set p%d gso_max_segs %d" % (machine.index, count)])
        self.in_machine(machine, "ip", "link", "set", "eth0", "gso_max_segs", str(count))

    def set_rules(self):
        lossy = [m for m in self.machines.values() if m.loss and not m.relay and not self.has_netem]
        if not lossy and not shutil.which("nft"):
            return
        rules = {"iifname": "", "oifname": ""}
        for m in lossy:
            for key in rules:
                rules[key] += '%s "p%d" numgen random mod 100000 < %d drop\n' % (key, m.index, m.loss * 1000)
        text = "add table bridge lab\ndelete table bridge lab\n"
        if lossy:
            text += ("table bridge lab {\nchain from {\ntype filter hook prerouting priority -300;\n%s}\n"
                     "chain to {\ntype filter hook postrouting priority 0;\n%s}\n}\n" %
                     (rules["iifname"], rules["oifname"]))
        done = subprocess.run(["nft", "-f", "-"], input=text, capture_output=True, text=True, check=False)
        if done.returncode and lossy:
            raise Failure("set losses: nft: %s" % done.stderr.strip())

    def start_relay(self, m):
        kernel.ip_batch(["link add q%d type veth peer name r%d" % (m.index, m.index),
                         "link set q%d addrgenmode none up" % m.index, "link set r%d addrgenmode none up" % m.index,
                         "link set p%d nomaster" % m.index, "link set p%d up" % m.index])
        keeper = os.getpid()
        m.relay = subprocess.Popen([sys.executable, os.path.join(HERE, "machines_relay.py"), "p%d" % m.index,
                                    "r%d" % m.index, "--delay-ms", str(m.delay_ms), "--jitter-ms",
                                    str(m.jitter_ms), "--loss", str(m.loss), "--seed", str(m.index)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, preexec_fn=lambda: kernel.die_with_parent(keeper))
        if m.relay.stdout.readline() != "up\n":
            lines = m.relay.stderr.read().strip().splitlines()[-1:]
            self.end_relay(m)
            raise Failure("%s: start the relay: %s" % (m.name, lines[0] if lines else "it ended"))

    def end_relay(self, m):
        if m.relay:
            m.relay.kill()
            m.relay.wait()
            m.relay.stdout.close()
            m.relay.stderr.close()
            m.relay = None
            kernel.works("ip", "link", "del", "q%d" % m.index)


class Keeper:
    def __init__(self, name, count, same_clock):
        self.name = name
        self.count = count
        self.same_clock = same_clock
        self.machines = {i: Machine(i) for i in range(1, count + 1)}
        self.network = Network(self.machines)
        self.kept = {}
        self.timers = []  # (when, what)
        self.ends = False

    def make(self):
        """The keeper's own namespaces and what is in them."""
        for path in filter(None, (os.path.dirname(HERE), os.environ.get("VIADUCT_BUILD_DIR"))):
            hidden = (*DISKS, *VOLATILE)
            if os.path.isdir(path) and any(os.path.realpath(path).startswith(h + "/") for h in hidden):
                self.kept[os.path.realpath(path)] = os.open(path, os.O_PATH)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET, "make namespaces")
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("lab", "/run", "tmpfs", 0, "mode=755")
        for folder in ("shared", "disk", "run"):
            os.makedirs(os.path.join(LAB, folder))
        os.chmod(LAB + "/shared", 0o1777)
        self.network.make()

    # --- machines ---------------------------------------------------------------------------------

    def spawn(self, m):
        status_in, status = os.pipe()
        go, go_out = os.pipe()
        init = Init(m.index, self.count, self.kept)
        clock_s = 0 if self.same_clock or not os.path.exists("/proc/self/ns/time") else CLOCK_STEP_S * m.index
        keeper = os.getpid()
        m.waiter = os.fork()
        if m.waiter == 0:
            kernel.die_with_parent(keeper)
            become_machine(init, go, status, clock_s)
        os.close(status)
        os.close(go)
        m.status, m.go = status_in, go_out
        text = m.read_line()
        if not text.isdigit():
            raise Failure("%s: boot: %s" % (m.name, text))
        m.pid = int(text)
        m.suspended = False

    def boot(self, machines):
        for m in machines:
            if m.pid:
                raise Failure("%s: boot: it is up" % m.name)
        try:
            for m in machines:
                self.spawn(m)
            self.network.add(machines)
            for m in machines:
                os.write(m.go, b"g")
            for m in machines:
                text = m.read_line()
                if text != "up":
                    raise Failure("%s: boot: %s" % (m.name, text))
        except Exception:
            for m in machines:
                self.kill(m)
            raise
        finally:
            for m in machines:
                for fd in (m.status, m.go):
                    if fd >= 0:
                        os.close(fd)
                m.status = m.go = -1

    def kill(self, m):
        """Kills all processes of the machine at once, as a power cut does."""
        if m.pid:
            signal_all([m.pid], signal.SIGKILL)
        self.bury(m)

    def bury(self, m):
        if m.waiter:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(m.waiter, 0)
        if m.pid:
            self.network.remove(m)
        m.pid = m.waiter = 0
        m.suspended = False

    def suspend(self, m, seconds):
        """Stops all processes of the machine, and its network card."""
        m.suspended = True
        self.network.join(m)
        stopped = set()
        while True:
            inside, _ = m.processes()
            if inside <= stopped:
                break
            signal_all(sorted(inside - stopped, reverse=True), signal.SIGSTOP)
            stopped |= inside
        if seconds is not None:
            pid = m.pid
            self.timers.append((time.monotonic() + seconds, lambda: m.pid == pid and self.resume(m)))

    def resume(self, m):
        """Continues the machine, and processes outside that wait for one of its own, such as nsenter(1): those stopped, too."""
        if not m.suspended:
            return
        inside, outside = m.processes()
        signal_all(sorted(inside), signal.SIGCONT)
        signal_all(outside, signal.SIGCONT)
        m.suspended = False
        self.network.join(m)

    # --- requests ---------------------------------------------------------------------------------

    def machine(self, index, state=None):
        m = self.machines.get(index if isinstance(index, int) else None)
        if m is None:
            raise Failure("machine %r: the lab has 1 to %d" % (index, self.count))
        if state == "up" and not m.pid:
            raise Failure("%s: it is down" % m.name)
        return m

    def answer(self, request):
        verb = request.get("do")
        if verb == "list":
            return {"name": self.name, "pid": os.getpid(),
                    "delays": "netem" if self.network.has_netem else "relay",
                    "machines": {i: m.describe() for i, m in self.machines.items()}}
        if verb == "down":
            self.ends = True
        elif verb in ("partition", "heal"):
            self.network.partition([[self.machine(i) for i in group] for group in request.get("groups", [])])
        elif verb == "boot":
            self.boot([self.machine(i) for i in request["machines"]])
        elif verb == "kill":
            for m in [self.machine(i) for i in request["machines"]]:
                self.kill(m)
        else:
            self.answer_for_one(verb, self.machine(request.get("machine"), "up"), request)
        return {}

    def answer_for_one(self, verb, m, request):
        if verb == "suspend":
            self.suspend(m, request.get("seconds"))
        elif verb == "resume":
            self.resume(m)
        elif verb == "plug":
            m.plugged = bool(request["plugged"])
            self.network.join(m)
        elif verb == "wire":
            for key in ("delay_ms", "jitter_ms", "loss"):
                if request.get(key) is not None:
                    setattr(m, key, float(request[key]))
            self.network.weaken(m)
        else:
            raise Failure("request %r: unknown" % verb)

    def serve(self, listener):
        """Serves one connection: a request and its answer."""
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(5)
            _, uid, _ = struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != 0:
                return
            try:
                text = b""
                while not text.endswith(b"\n") and len(text) < REQUEST_BYTES_MAX:
                    piece = peer.recv(4096)
                    if not piece:
                        return
                    text += piece
                try:
                    result = self.answer(json.loads(text))
                except (Failure, KeyError, TypeError, ValueError, OSError, subprocess.SubprocessError) as failure:
                    result = {"error": str(failure)}
                peer.sendall(json.dumps(result).encode() + b"\n")
            except OSError:  # the client has closed the connection
                pass

    def look_after(self):
        """Handles machines that ended by themselves, and timers that are due."""
        for m in self.machines.values():
            if m.pid:
                pid, _ = os.waitpid(m.waiter, os.WNOHANG)
                if pid:
                    m.waiter = 0
                    self.bury(m)
        now = time.monotonic()
        due = [what for when, what in self.timers if when <= now]
        self.timers = [(when, what) for when, what in self.timers if when > now]
        for what in due:
            with contextlib.suppress(Failure, OSError):
                what()

    def run(self, listener, owner_fd):
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self.end)
        watched = [listener, reader] + ([owner_fd] if owner_fd >= 0 else [])
        while not self.ends:
            wait = min((when for when, _ in self.timers), default=None)
            ready = select.select(watched, [], [],
                                  None if wait is None else max(0, wait - time.monotonic()))[0]
            if reader in ready:
                os.read(reader, 4096)
            if owner_fd in ready:
                break
            self.look_after()
            if listener in ready:
                self.serve(listener)

    def end(self, *_):
        self.ends = True


def open_pidfd(pid):
    if not pid:
        return -1
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        sys.exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("count", type=int)
    parser.add_argument("owner", type=int)
    parser.add_argument("--same-clock", action="store_true")
    options = parser.parse_args()
    # A process with threads can not enter a time namespace; no library has started a thread.
    keeper = Keeper(options.name, options.count, options.same_clock)
    try:
        owner_fd = open_pidfd(options.owner)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(SOCKET + options.name)
        except OSError as failure:
            raise Failure("lab %s: make: %s" % (options.name, "there is one" if failure.errno == 98 else failure))
        listener.listen(16)
        kernel.set_name("lab")
        keeper.make()
        keeper.boot(list(keeper.machines.values()))
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        print(failure, flush=True)
        sys.exit(1)
    print("up", flush=True)
    lose_output()
    try:
        keeper.run(listener, owner_fd)
    finally:
        for m in keeper.machines.values():
            keeper.kill(m)


if __name__ == "__main__":
    main()
