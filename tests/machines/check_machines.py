#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Checks that take longer than a test may: many kills, 16 machines, a partition. `make machines-check` runs all.

usage: check_machines.py [--kind ofi|emu] [--kills N] [--machines N] [--partition-s S] [--mesh] [--dead-ms N]
                          [--suspend-s S] [--seed N] [--shuffle N] [kills|start|job|partition|suspend]...

  kills      kill -9 of a relay's daemon, again and again, under flows whose messages must arrive exactly once; then of either
             end, without a flow. After each kill, what has arrived is counted, and nothing may be left: processes,
             files, descriptors and memory of the others
  start      how long after the start of the last daemon each knows all others
  job        64 PEs on 8 machines: from the call of oshrun until all are initialized and have ended
  partition  half of the machines can not reach the other half for a while (links by ofi only)
  suspend    all of a machine stands still for a minute: its neighbours report it, flows past it continue, flows to it wait

With --shuffle, completions of libfabric come late and in any order, drawn from N (shuffled_libfabric.c).
"""
import argparse
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import time

import fabric
import machines_case
from machines_case import Failure

import machines_fabric
from machines_lab import Lab, enter_words, signal_inside

FLOW_KILLS = 25
FLOW_S = 3600  # at most; it is stopped
# Of 16 machines on an idle computer; of a mesh, with its 240 ends of links, they are only printed.
START_S = 3
JOB_S = 2
JOB_PES, JOB_MACHINES = 64, 8
HEAL_S = 1
# Descriptors and KiB that a daemon may have more after the kills than before: logs, pools that grew once.
FDS_MORE = 8
RSS_MORE_KB = 32768


def say(*words):
    print(*words, flush=True)


def median(values):
    return sorted(values)[len(values) // 2]


class Flow:
    """Messages from one machine to another until finish() is called, or for some seconds."""

    def __init__(self, fab, source, target, seconds, pause_us=500):
        self.silence = 0.0
        self.count = 0  # received, of those that were asked for
        self.receiver = fab.receiver(target)
        self.sender = fab.deliver(source, "send", target, 0, 512, pause_us, seconds)

    def answer(self, begin):
        """The numbers of the next line that begins so."""
        while True:
            line = self.receiver.stdout.readline()
            if line.startswith("gap "):
                self.silence = max(self.silence, float(line.split()[1]))
            elif line.startswith(begin):
                return [int(word) for word in line.split() if word.isdigit()]
            elif not line.startswith("so far"):
                raise Failure("receiver: %s" % (line.strip() or "it ended"))

    def check(self):
        """Checks that messages have arrived since the last check, and that all up to the last one arrived once and in order."""
        signal_inside(self.receiver, signal.SIGUSR1)
        received, highest, *wrong = self.answer("so far")
        if received != highest or any(wrong):
            raise Failure("%d of %d messages arrived; doubled, out of order, damaged: %s" % (received, highest, wrong))
        more, self.count = received - self.count, received
        return more > 0

    def stop(self):
        signal_inside(self.sender, signal.SIGUSR1)
        return self.finish()

    def finish(self):
        output = self.sender.communicate(timeout=300)[0]
        if not output.startswith("sent "):
            self.receiver.kill()
            raise Failure("sender: %s" % output.strip())
        received, *wrong = self.answer("received")
        self.receiver.communicate(timeout=300)
        if received != int(output.split()[1]) or any(wrong):
            raise Failure("sent %s, received %d; lost, doubled, out of order, damaged: %s" % (output.split()[1], received, wrong))
        return received, self.silence


def size_of(fab, host):
    """(descriptors, KiB of memory) of a daemon."""
    pid = max(fab.lab[host].pids(fabric.VIADUCTD))
    with open("/proc/%d/statm" % pid, encoding="ascii") as statm:
        return len(os.listdir("/proc/%d/fd" % pid)), int(statm.read().split()[1]) * 4


def files_of(fab, host):
    return [name for folder in (machines_fabric.RUNDIR, "/dev/shm", "/tmp")
            if os.path.isdir(fab.lab[host].path(folder)) for name in sorted(os.listdir(fab.lab[host].path(folder)))]


def programs_of(fab, host):
    """[name of each process of ours]"""
    return sorted(os.path.basename(line.split()[0]) for line in fab.lab[host].pids("viaduct").values())


def kill_one(fab, victim):
    """The seconds from its new start until its links are up."""
    fab.end(victim, signal.SIGKILL)
    time.sleep(random.random() * 0.2)
    fab.start(victim)
    return fab.wait_whole()


class Left:
    """The files, processes, descriptors and memory of each machine before the kills; check() finds what a kill adds."""

    def __init__(self, fab):
        self.fab = fab
        self.files = {host: files_of(fab, host) for host in fab.hosts}
        self.programs = {host: programs_of(fab, host) for host in fab.hosts}
        self.sizes = {host: size_of(fab, host) for host in (1, 3)}
        self.most = dict(self.sizes)

    def check(self):
        for host in self.fab.hosts:
            # Lists of files and processes are read while the daemons of others work: only permanent ones count.
            if not machines_case.wait_for(lambda host=host: files_of(self.fab, host) == self.files[host] and
                                          programs_of(self.fab, host) == self.programs[host], 5):
                raise Failure("node%d: files and processes: %s %s, then %s %s" % (
                    host, self.files[host], self.programs[host], files_of(self.fab, host), programs_of(self.fab, host)))
        for host, (fds, memory) in self.sizes.items():
            # Connections that a daemon has given up are open for a moment more.
            machines_case.wait_for(lambda host=host, fds=fds: size_of(self.fab, host)[0] <= fds + FDS_MORE, 10)
            now = size_of(self.fab, host)
            self.most[host] = tuple(map(max, self.most[host], now))
            if now[0] > fds + FDS_MORE or now[1] > memory + RSS_MORE_KB:
                raise Failure("host %d: grows by kills of others: descriptors %d, then %d; memory %d KiB, then %d" % (
                    host, fds, now[0], memory, now[1]))


def kill_relays(fab, count, times, before):
    """Under flows that pass them. Returns the messages that arrived, and the longest silence."""
    flows = [Flow(fab, 1, 3, FLOW_S), Flow(fab, 3, 1, FLOW_S)]
    left = Left(fab)
    left.sizes = (before or left).sizes
    for _ in range(count):
        times.append(kill_one(fab, random.choice((2, 4))))
        left.check()
        for flow in flows:
            if not machines_case.wait_for(flow.check, 30):
                raise Failure("nothing arrives any more")
    results = [flow.stop() for flow in flows]
    return sum(r[0] for r in results), max(r[1] for r in results), left


def kills(options):
    with Lab(4, "check-%d" % os.getpid()) as lab:
        fab = fabric.Fabric(lab, machines_fabric.ring(4), options.kind)
        there = {host: files_of(fab, host) for host in fab.hosts}  # a build in /tmp, say
        fab.start()
        fab.wait_whole()
        if options.shuffle is not None:
            fabric.check_shuffled(fab.lab[1].pids(fabric.VIADUCTD))
        for victim in (2, 4):  # all that grows only once has grown
            kill_one(fab, victim)
        before, arrived, silences, times = None, 0, [], []
        for done in range(0, options.kills, FLOW_KILLS):
            count = min(FLOW_KILLS, options.kills - done)
            received, silence, left = kill_relays(fab, count, times, before)
            before = before or left
            arrived += received
            silences.append(silence)
            say("  %d kills, %d messages arrived exactly once; descriptors, KiB at most: %s" % (
                done + count, arrived, " ".join("host %d: %d, %d" % (host, *most) for host, most in left.most.items())))
        for end in (1, 3) * 3:
            times.append(kill_one(fab, end))
        for host in fab.hosts:
            if fab.end(host) != 0:
                raise Failure("viaductd of host %d: its end: not clean: %s" % (host, fab.log(host)[-400:]))
            left = [name for name in files_of(fab, host) if name not in there[host]] + programs_of(fab, host)
            if left:
                raise Failure("node%d: after the last daemon: left behind: %s" % (host, left))
    say("kills: %d, of relays under load; after each, nothing lost, nothing left; %d messages, none lost, doubled or out of"
        " order; longest silence %.0f ms; up again after %.0f ms (median), %.0f ms (longest)" %
        (options.kills, arrived, max(silences, default=0) * 1e3, median(times) * 1e3, max(times) * 1e3))


def fabric_of(lab, options):
    """A ring, or a link for each pair: 16 machines then have 240 ends of links, whose signs of life alone keep two cores
    busy at the default times."""
    links = machines_fabric.mesh(len(lab)) if options.mesh else machines_fabric.ring(len(lab))
    times = {"dead-ms": options.dead_ms, "heartbeat-ms": max(options.dead_ms * 5 // 16, 1)} if options.dead_ms else {}
    return fabric.Fabric(lab, links, options.kind, {"times": times} if times else None)


def check_limit(options, took, limit_s):
    if not options.mesh and options.machines <= 16 and took > limit_s:
        raise Failure("%.2f s, more than %g s; the load of this computer is %.1f" % (took, limit_s, os.getloadavg()[0]))


def cpu_of_daemons(fab):
    """Seconds of CPU that all daemons have taken."""
    ticks = 0
    for host in fab.hosts:
        for pid in fab.lab[host].pids(fabric.VIADUCTD):
            with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def write_agent(lab):
    """A stand-in for ssh."""
    path = os.path.join(lab.shared, "agent")
    with open(path, "w", encoding="ascii") as script:
        script.write("#!/bin/sh\nname=$1; shift\ncase $name in\n")
        for m in lab:
            script.write('%s) exec %s "$@" ;;\n' % (m.name, shlex.join(enter_words(m.pid, []))))
        script.write("esac\n")
    os.chmod(path, 0o755)
    return path


def job(options):
    with Lab(JOB_MACHINES, "check-%d" % os.getpid()) as lab:
        fab = fabric.Fabric(lab, machines_fabric.mesh(JOB_MACHINES), options.kind)
        fab.start()
        fab.wait_whole()
        words = [os.path.join(machines_case.BIN, "oshrun"), "-n", str(JOB_PES), "--hosts", ",".join(m.name for m in lab), "--rundir",
                 machines_fabric.RUNDIR, "--agent", write_agent(lab), os.path.join(machines_case.BIN, "examples", "hello")]
        took, spent = [], []
        for _ in range(3):
            daemons, before, begin = cpu_of_daemons(fab), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
            took.append(time.monotonic() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + cpu_of_daemons(fab) - daemons)
            if done.returncode != 0 or len(done.stdout.splitlines()) < JOB_PES:
                raise Failure("oshrun: exit code %d: %s" % (done.returncode, done.stderr[-400:]))
        say("job: %d PEs on %d machines: %.2f s (median of 3), %.2f s of CPU on %d cores; the load of this computer is %.1f" % (
            JOB_PES, JOB_MACHINES, median(took), median(spent), os.cpu_count(), os.getloadavg()[0]))
        fab.end_all()
        if median(took) > JOB_S and median(spent) > JOB_S:
            raise Failure("more than %d s" % JOB_S)


def start(options):
    with Lab(options.machines, "check-%d" % os.getpid()) as lab:
        fab = fabric_of(lab, options)
        begin = time.monotonic()
        fab.start()
        started = time.monotonic()
        took = fab.wait_whole(seconds=60)
        say("start: %d machines, %d links: all know all %.2f s after the start of the last daemon (starting them took"
            " %.2f s); daemons have taken %.2f s of CPU; the load of this computer is %.1f" % (
                options.machines, len(fab.links), took, started - begin, cpu_of_daemons(fab), os.getloadavg()[0]))
        fab.end_all()
        check_limit(options, took, START_S)


def partition(options):
    if options.kind == "emu":
        say("partition: skipped: the cables of emulated links do not go through the network")
        return
    half = options.machines // 2
    near, far = range(1, half + 1), range(half + 1, options.machines + 1)
    with Lab(options.machines, "check-%d" % os.getpid()) as lab:
        fab = fabric_of(lab, options)
        fab.start()
        fab.wait_whole()
        flows = [Flow(fab, 1, half + 1, options.partition_s + 6), Flow(fab, half + 2, 2, options.partition_s + 6)]
        time.sleep(1)
        lab.partition(near, far)
        time.sleep(options.partition_s / 2)
        fab.wait_whole(near, seconds=30)
        fab.wait_whole(far, seconds=30)
        if fab.reached(1) & set(far):
            raise Failure("host 1: still has ways into the other half")
        time.sleep(options.partition_s / 2)
        lab.heal()
        took = fab.wait_whole(seconds=60)
        results = [flow.finish() for flow in flows]
        say("partition: %d machines, half of them away for %g s: whole again %.2f s after it healed; %d messages exactly"
            " once, longest silence %.2f s" % (options.machines, options.partition_s, took,
                                               sum(r[0] for r in results), max(r[1] for r in results)))
        fab.end_all()
        check_limit(options, took, HEAL_S)


def suspend(options):
    """Of four in a ring: host 2 stands still. Links of others stay up all the time."""
    with Lab(4, "check-%d" % os.getpid()) as lab:
        fab = fabric.Fabric(lab, machines_fabric.ring(4), options.kind)
        fab.start()
        fab.wait_whole()
        downs = downs_of(fab)
        past, to = Flow(fab, 1, 3, options.suspend_s + 3), Flow(fab, 4, 2, options.suspend_s + 3)
        time.sleep(1)
        lab[2].suspend()
        begin = time.monotonic()
        if not machines_case.wait_for(lambda: not (fab.links_up(1) | fab.links_up(3)) & {2}, options.suspend_s):
            raise Failure("hosts 1 and 3 still report the links to a suspended machine as up")
        if 2 in fab.reached(4) or not {1, 3} <= fab.reached(4):
            raise Failure("host 4 reaches %s" % fab.reached(4))
        log = fab.log(1)
        if not re.search(r"host 1: link \d+ .*to host 2: \S+: no sign of life of the peer", log):
            raise Failure("host 1: does not say that its link is down: %s" % log[-400:])
        time.sleep(max(begin + options.suspend_s - time.monotonic(), 0))
        lab[2].resume()
        took = fab.wait_whole(seconds=60)
        passed, silence = past.finish()
        arrived, _ = to.finish()
        now = downs_of(fab)
        if any(now[pair] != downs[pair] for pair in downs if 2 not in pair):
            raise Failure("links of other machines went down: %s, then %s" % (downs, now))
        say("suspend: a machine of 4 stood still for %g s: whole again after %.2f s; %d messages past it, longest silence %.2f s;"
            " %d to it, each once" % (options.suspend_s, took, passed, silence, arrived))
        fab.end_all()


def downs_of(fab):
    """{(host, peer): how often the link went down}"""
    return {(m.index, link["peer"]): link["downs"] for m in fab.lab for link in fab.status(m.index).get("links", [])}


PARTS = {"kills": kills, "start": start, "job": job, "partition": partition, "suspend": suspend}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=machines_fabric.KINDS, help="default: the first that works")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--partition-s", type=float, default=10)
    parser.add_argument("--suspend-s", type=float, default=60)
    parser.add_argument("--mesh", action="store_true", help="a link for each pair of machines, not a ring")
    parser.add_argument("--dead-ms", type=int, help="when a silent link is down; default: as the daemon has it")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--shuffle", type=int, metavar="N")
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all")
    options = parser.parse_args()
    if machines_case.REASON:
        print("skipped: " + machines_case.REASON)
        return 77
    machines_case.supervise.begin()
    random.seed(options.seed)
    options.kind = options.kind or fabric.KIND
    if options.kind is None or fabric.WHY_NOT[options.kind]:
        print("skipped: no links by %s" % options.kind)
        return 77
    if options.shuffle is not None:
        fabric.shuffle(options.shuffle)
    say("seed %d, links by %s" % (options.seed, options.kind))
    code = 0
    for name in options.part or PARTS:
        try:
            PARTS[name](options)
        except Failure as failure:
            say("%s: FAILED: %s" % (name, failure))
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
