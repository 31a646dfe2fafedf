#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Many daemons of one machine, each at a loopback address of its own, with links over libfabric. `make hosts-check`.

usage: check_many.py [--hosts N] [--graph chords|mesh] [--missing PERCENT] [--dead-ms N] [--encrypt]

chords: each host has links to the next one and to the eighth next one. mesh: to all others. Of the links, PERCENT lead to an
address without a daemon. Every host has to reach every other one nevertheless; messages between hosts without
a link arrive exactly once, also while a host dies and comes back.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import supervise  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or os.path.join(ROOT, "build", "release", "bin"))
PATIENCE_S = 600
PAIRS = 8


class Failure(Exception):
    pass


def say(*words):
    print(*words, flush=True)


class Fabric:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.net = "127.%d.%d" % (160 + (os.getpid() >> 8) % 32, os.getpid() & 0xff)
        self.daemons = {}
        count = options.hosts
        steps = range(1, count) if options.graph == "mesh" else (1, min(8, count - 1))
        self.links = sorted({tuple(sorted((a, (a + step) % count))) for a in range(count) for step in steps
                             if a != (a + step) % count})
        self.missing = set(random.sample(self.links, len(self.links) * options.missing // 100))
        self.key = os.path.join(folder, "key")
        with open(os.open(self.key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(32))

    def there(self):
        return [pair for pair in self.links if pair not in self.missing]

    def address(self, host):
        return "%s.%d" % (self.net, host + 1)

    def start(self, host):
        words = [os.path.join(BIN, "viaductd"), "--foreground", "--rundir", self.folder, "--host", str(host), "--hosts-max",
                 str(max(64, self.options.hosts)), "--dead-ms", str(self.options.dead_ms), "--key", self.key, "--log-level", "warn"]
        for pair in self.links:
            if host in pair:
                peer = pair[1] if host == pair[0] else pair[0]
                # No daemon listens at the address that ends in 255.
                at = "%s.255" % self.net if pair in self.missing else self.address(peer)
                words += ["--link", "%d=ofi:tcp://%s,listen=%s%s,inbox=256KiB" %
                          (peer, at, self.address(host), ",encrypt" if self.options.encrypt else "")]
        with open(os.path.join(self.folder, "log-%d" % host), "ab") as log:
            self.daemons[host] = subprocess.Popen(words, stderr=log, stdin=subprocess.DEVNULL)

    def status(self, host):
        answer = b""
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(60)
                control.connect(os.path.join(self.folder, "host-%d.ctl" % host))
                control.sendall(b'{"cmd":"status"}\n')
                while not answer.endswith(b"\n"):
                    piece = control.recv(1 << 20)
                    if not piece:
                        return {}
                    answer += piece
        except OSError:
            return {}
        return json.loads(answer)

    def reached(self, host):
        return {route["host"] for route in self.status(host).get("routes", []) if route["hops"] >= 0} - {host}

    def ends_up(self):
        return sum(link["state"] == "up" for host in self.daemons for link in self.status(host).get("links", []))

    def wait_reached(self):
        """Seconds until every host reaches every other one."""
        begin = time.monotonic()
        everywhere = set(self.daemons)
        left = list(self.daemons)
        while left:
            # One after the other: the status of a host with 63 links is work for its control thread.
            while left and self.reached(left[-1]) >= everywhere - {left[-1]}:
                left.pop()
            for host, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    raise Failure("host %d: ended with code %d; its log is %s" % (host, daemon.returncode, self.log(host)))
            if time.monotonic() - begin > PATIENCE_S:
                raise Failure("after %d s %d hosts do not reach all others; link ends up: %d of %d" %
                              (PATIENCE_S, len(left), self.ends_up(), 2 * len(self.there())))
            time.sleep(0.2)
        return time.monotonic() - begin

    def log(self, host):
        with open(os.path.join(self.folder, "log-%d" % host), encoding="utf-8", errors="replace") as log:
            return log.read()[-1000:]

    def deliver(self, host, *words):
        env = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}
        return subprocess.Popen([os.path.join(BIN, "tests", "prog_deliver"), *map(str, words)], stdout=subprocess.PIPE, text=True,
                                env={**env, "VIADUCT_RUNDIR": self.folder, "VIADUCT_HOST": str(host)})

    def end_all(self):
        for daemon in self.daemons.values():
            daemon.kill()
        for daemon in self.daemons.values():
            daemon.wait()


def idle_cores(fabric, seconds=3):
    def ticks():
        total = 0
        for daemon in fabric.daemons.values():
            with open("/proc/%d/stat" % daemon.pid, encoding="ascii") as stat:
                total += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
        return total
    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def flows(fabric):
    """Messages between hosts that have no link, while a third host is killed and started again."""
    linked = set(fabric.there())
    hosts = range(fabric.options.hosts)
    victim = random.choice(hosts)
    others = [host for host in hosts if host != victim]
    random.shuffle(others)
    pairs = [pair for pair in zip(others[::2], others[1::2]) if tuple(sorted(pair)) not in linked][:PAIRS]
    pairs = pairs or [tuple(others[:2])]
    running = []
    for source, target in pairs:
        receiver = fabric.deliver(target, "receive", 1)
        if receiver.stdout.readline() != "ready\n":
            raise Failure("host %d: receive: does not start" % target)
        running.append((receiver, fabric.deliver(source, "send", target, 0, 512, 2000, 3)))
    time.sleep(0.5)
    fabric.daemons[victim].send_signal(signal.SIGKILL)
    fabric.daemons[victim].wait()
    time.sleep(0.5)
    fabric.start(victim)
    arrived = 0
    for receiver, sender in running:
        sent = sender.communicate(timeout=PATIENCE_S)[0]
        output = receiver.communicate(timeout=PATIENCE_S)[0]
        found = re.search(r"^received (\d+) lost 0 doubled 0 reordered 0 wrong 0$", output, re.M)
        if not found or sent.strip() != "sent " + found.group(1):
            raise Failure("flow: %s, %s" % (sent.strip(), output.strip()))
        arrived += int(found.group(1))
    return len(pairs), arrived


def check(options, folder):
    fabric = Fabric(options, folder)
    try:
        begin = time.monotonic()
        for host in range(options.hosts):
            fabric.start(host)
        started = time.monotonic() - begin
        took = fabric.wait_reached()
        up = fabric.ends_up()
        say("%d hosts, %d links of which %d lead nowhere: started in %.1f s; each reached all others %.1f s later, when %d of %d"
            " ends of links were up" % (options.hosts, len(fabric.links), len(fabric.missing), started, took, up,
                                        2 * len(fabric.there())))
        say("idle: %.2f cores, all daemons together" % idle_cores(fabric))
        count, arrived = flows(fabric)
        say("%d flows between hosts without a link, while a host died: %d messages, each arrived once" % (count, arrived))
        say("whole again %.1f s later" % fabric.wait_reached())
    finally:
        fabric.end_all()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--graph", choices=("chords", "mesh"), default="chords")
    parser.add_argument("--missing", type=int, default=10)
    parser.add_argument("--dead-ms", type=int, default=5000)
    parser.add_argument("--encrypt", action="store_true")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    supervise.begin()
    say("seed %d" % options.seed)
    random.seed(options.seed)
    folder = tempfile.mkdtemp(prefix="viaduct-many-")
    try:
        check(options, folder)
    except Failure as failure:
        say("FAILED: %s" % failure)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
