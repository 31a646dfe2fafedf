#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Compares machines of a lab (tools/machines), linked by ofi over tcp, each measure with its peer in the same round (root).

usage: bench_machines.py [--json FILE] [--rounds N] [--seconds S] [--encrypt] [link|ip|neighbours|sockets|jobs|shmem]...

  link     puts between processes, compared with libfabric's fi_pingpong over the same provider
  ip       iperf3 and ping through viaduct-ip, with and without the direct path, compared with the veth below it
  neighbours  iperf3 through viaduct-ip between emulated neighbours of one machine, compared with loopback
  sockets  iperf3, Redis and round trips with the sockets library on both ends, compared with kernel TCP
  jobs     how long `oshrun` takes to start and end 64 PEs on 8 machines
  shmem    OpenSHMEM put, get and barrier, compared with Open MPI's OpenSHMEM, two PEs on two machines

Start-up of 16 machines, partitions and kills: make machines-check. Ratios are medians over the rounds.
fi_pingpong and Open MPI poll without a pause, so while the machine does other work their figures mean little.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tools"))
import bench_ip  # noqa: E402
import measure  # noqa: E402

import demo_machines  # noqa: E402
import machines_fabric  # noqa: E402
import machines_lab  # noqa: E402

VIADUCTD = os.path.join(measure.BIN, "viaductd")
OSHRUN = os.path.join(measure.BIN, "oshrun")
MIB = 1 << 20
MEASURE_SOCKETS = os.path.join(os.path.dirname(HERE), "tools", "measure-sockets")
PROBE = (8 << 20, 400, 200)  # bytes of a stream, small and medium round trips
HANG_S = 120
FIGURES = ("put 1M", "get 1M", "barrier")


class Bench:
    def __init__(self, options):
        self.options = options
        self.rows = []

    def add(self, what, unit, pairs, sign, target):
        """pairs: (ours, the peer's) of each round."""
        ratio = measure.median([a / b for a, b in pairs])
        self.rows.append({"measure": what, "unit": unit, "ours": measure.median([a for a, _ in pairs]),
                          "peer": measure.median([b for _, b in pairs]), "ratio": ratio, "target": "%s %g" % (sign, target),
                          "met": ratio <= target if sign == "<=" else ratio >= target, "rounds": pairs})

    def add_alone(self, what, unit, values, target):
        """A figure that has a maximum instead of a peer."""
        ours = measure.median(values)
        self.rows.append({"measure": what, "unit": unit, "ours": ours, "peer": None, "ratio": None, "target": "<= %g" % target,
                          "met": ours <= target, "rounds": values})

    def add_other(self, what, unit, pairs):
        """A figure without a target."""
        self.rows.append({"measure": what, "unit": unit, "ours": measure.median([a for a, _ in pairs]),
                          "peer": measure.median([b for _, b in pairs]), "ratio": measure.median([a / b for a, b in pairs]),
                          "target": "-", "met": None, "rounds": pairs})

    def fabric(self, lab):
        more = {"fabric": {"encrypt": "yes"}} if self.options.encrypt else None
        machines_fabric.configure(lab, VIADUCTD, machines_fabric.mesh(len(lab)) if len(lab) <= 4 else
                                  machines_fabric.ring(len(lab)), "ofi", more, boot=True)
        for m in lab:
            m.run(["/etc/rc.local"])
        demo_machines.wait_for("all links", lambda: all(is_whole(m, len(lab)) for m in lab))


def is_whole(machine, count):
    done = machine.run([measure.VIADUCT, "status", "--json"], check=False)
    if done.returncode != 0:
        return False
    status = json.loads(done.stdout)
    return [host["state"] for host in status["hosts"]] == ["up"] * count and all(li["state"] == "up" for li in status["links"])


@contextlib.contextmanager
def server(machine, port, *words):
    # The previous server ends a moment after the process that started it. It would refuse a client, and redis-benchmark would then never end.
    demo_machines.wait_for("the end of another server", lambda: not demo_machines.is_listening(machine, port))
    process = machine.start(list(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        demo_machines.wait_for(words[0], lambda: demo_machines.is_listening(machine, port))
        yield
    finally:
        process.kill()
        process.wait()


# --- link ------------------------------------------------------------------------------------------

def pingpong_us(lab, size, times):
    words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-I", str(times), "-S", str(size)]
    with server(lab[2], 47592, *words):
        out = lab[1].run([*words, lab[2].address], timeout=HANG_S).stdout
    return float(re.search(r"([\d.]+)\s+[\d.]+\s*$", out).group(1))


def link(bench):
    if shutil.which("fi_pingpong") is None:
        print("link: skipped: fi_pingpong is missing (libfabric-bin)")
        return
    with machines_lab.Lab(2, "bench-%d" % os.getpid()) as lab:
        bench.fabric(lab)
        rounds = [(demo_machines.put_figures(lab), demo_machines.put_figures(lab, "connect"), demo_machines.put_figures(lab, direct=False),
                   (MIB * 8 / pingpong_us(lab, MIB, 200) / 1e3, 2 * pingpong_us(lab, 8, 1000)))
                  for _ in range(bench.options.rounds)]
    for i, unit, what, sign, target in ((0, "Gbit/s", "put 1 MiB", ">=", 0.8), (1, "us", "put 8 B there and back", "<=", 1.3)):
        # The target applies to the path that a program gets without any setting.
        bench.add(what + " by the default, x fi_pingpong", unit, [(auto[i], peer[i]) for auto, _, _, peer in rounds], sign, target)
        bench.add_other(what + " by frames (VIADUCT_DIRECT=off), x fi_pingpong", unit, [(frames[i], peer[i]) for _, _, frames, peer in rounds])
        bench.add_other(what + " by via_remote_connect(), x fi_pingpong", unit, [(asked[i], peer[i]) for _, asked, _, peer in rounds])


# --- IP --------------------------------------------------------------------------------------------

def iperf3(lab, address, seconds, prefix=()):
    with server(lab[2], 5201, *prefix, "iperf3", "-s", "-1"):
        out = lab[1].run([*prefix, "iperf3", "-c", address, "-t", str(seconds), "-J"], timeout=HANG_S).stdout
    return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9


def ping(lab, address):
    return float(lab[1].run(["python3", "-c", bench_ip.PING, address, str(bench_ip.PINGS)], timeout=HANG_S).stdout)


def is_direct(machine):
    """True if the packets take the direct path, between the kernels."""
    with socket.socket(socket.AF_UNIX) as status:
        status.connect(machine.path("%s/host-%d.ip" % (machines_fabric.RUNDIR, machine.index)))
        peers = json.loads(b"".join(iter(lambda: status.recv(65536), b"")))["peers"]
    return [peer["direct"] for peer in peers] == [True]


@contextlib.contextmanager
def ip_devices(lab, direct):
    env = dict(os.environ, VIADUCT_DIRECT="auto" if direct else "off")
    devices = [m.start([os.path.join(measure.BIN, "viaduct-ip"), "--rundir", machines_fabric.RUNDIR, "--host", str(m.index)],
                       stderr=subprocess.DEVNULL, env=env) for m in lab]
    try:
        demo_machines.wait_for("IP", lambda: lab[1].run(["python3", "-c", bench_ip.PING, "10.78.0.2", "3"],
                                                        check=False).returncode == 0)
        if direct:
            with contextlib.suppress(measure.Failure):  # without the direct path, the slower path is measured
                demo_machines.wait_for("the direct path", lambda: all(is_direct(m) for m in lab))
        yield
    finally:
        for device in devices:
            machines_lab.signal_inside(device, signal.SIGTERM)
            device.wait()


def ip_pairs(bench, lab, rounds):
    streams, pings = [], []
    for _ in range(rounds):
        streams.append((iperf3(lab, "10.78.0.2", bench.options.seconds), iperf3(lab, "node2", bench.options.seconds)))
        pings.append((ping(lab, "10.78.0.2"), ping(lab, lab[2].address)))
    return streams, pings


def ip(bench):
    with machines_lab.Lab(2, "bench-%d" % os.getpid()) as lab:
        bench.fabric(lab)
        with ip_devices(lab, not bench.options.encrypt):
            streams, pings = ip_pairs(bench, lab, bench.options.rounds)
        with ip_devices(lab, False):
            ring_streams, ring_pings = ip_pairs(bench, lab, 1)
    bench.add("one stream of IP over the fabric, x veth", "Gbit/s", streams, ">=", 0.7)
    bench.add("ping over the fabric, x veth", "us", pings, "<=", 2)
    bench.add_other("one stream by inboxes, x veth", "Gbit/s", ring_streams)
    bench.add_other("ping by inboxes, x veth", "us", ring_pings)


def neighbours(bench):
    """Emulated hosts of one machine: inboxes are memory there."""
    try:
        bench_ip.run([measure.VIADUCT, "up", "--chain", "2", "--fabric", bench_ip.FABRIC, "--netns", "--ip", "--with", str(os.getpid())])
        pairs = [(bench_ip.iperf3(bench_ip.IP, bench.options.seconds)["gbit"],
                  bench_ip.iperf3(bench_ip.LOOPBACK, bench.options.seconds)["gbit"]) for _ in range(bench.options.rounds)]
    finally:
        subprocess.run([measure.VIADUCT, "down", "--fabric", bench_ip.FABRIC], capture_output=True, check=False)
    bench.add("one stream of IP between emulated neighbours, x loopback", "Gbit/s", pairs, ">=", 0.5)


# --- sockets ---------------------------------------------------------------------------------------

def probe(lab, sockets_are):
    """Speeds of one connection as viaduct tune sockets measures them, with the current rules."""
    env = ["env", "VIADUCT_RUNDIR=" + machines_fabric.RUNDIR, "VIADUCT_SOCKETS=" + sockets_are, measure.VIADUCT, "run", "--host"]
    server = lab[2].start([*env, "2", "--", "python3", MEASURE_SOCKETS, "--serve-here", lab[2].address], stdout=subprocess.PIPE)
    try:
        port, token = server.stdout.readline().split()
        out = lab[1].run([*env, "1", "--", "python3", MEASURE_SOCKETS, "--probe", lab[2].address, port, token,
                           *map(str, PROBE)], timeout=HANG_S).stdout
    finally:
        server.kill()
        server.communicate()
    return json.loads(out)["speed"]


def redis(lab, prefix):
    with server(lab[2], 6379, *prefix, "redis-server", "--save", "", "--protected-mode", "no"):
        out = lab[1].run([*prefix, "redis-benchmark", "-h", lab[2].address, "-t", "get", "-n", "30000", "-c", "20", "--csv"], timeout=HANG_S).stdout
    return float(re.search(r'^"GET","([\d.]+)"', out, re.M).group(1))


def sockets(bench):
    prefix = ["env", "VIADUCT_RUNDIR=" + machines_fabric.RUNDIR, measure.VIADUCT, "sockets", "--"]
    with machines_lab.Lab(2, "bench-%d" % os.getpid()) as lab:
        bench.fabric(lab)
        pairs = [(iperf3(lab, "node2", bench.options.seconds, prefix), iperf3(lab, "node2", bench.options.seconds))
                 for _ in range(bench.options.rounds)]
        speeds = [(probe(lab, "on"), probe(lab, "off")) for _ in range(3 * bench.options.rounds)]
        requests = [(redis(lab, prefix), redis(lab, ())) for _ in range(bench.options.rounds)] if shutil.which("redis-benchmark") else []
    bench.add("one stream with the sockets library, x kernel TCP", "Gbit/s", pairs, ">=", 0.95)
    if requests:
        bench.add("Redis GET with the sockets library, x kernel TCP", "/s", requests, ">=", 0.95)
    for kind, what in (("small", "8 B"), ("medium", "16 KiB")):
        bench.add("round trips of %s with the sockets library, x kernel TCP" % what, "/s",
                  [(a[kind], b[kind]) for a, b in speeds], ">=", 0.95)


# --- jobs ------------------------------------------------------------------------------------------

def write_agent(lab, folder):
    """Writes a program that replaces ssh, and the rsh of Open MPI's agents, into a folder that all machines see."""
    path = os.path.join(folder, "agent")
    lines = ["#!/bin/sh", "name=$1; shift", "case $name in"]
    for m in lab:
        enter = " ".join("'%s'" % word.replace("'", "'\\''") for word in machines_lab.enter_words(m.pid, []))
        lines.append('%s) exec %s "$@" ;;' % (m.name, enter))
    with open(path, "w", encoding="ascii") as script:
        script.write("\n".join([*lines, "esac"]) + "\n")
    os.chmod(path, 0o755)
    return path


def oshrun(lab, agent, *words):
    done = subprocess.run([OSHRUN, "--hosts", ",".join(m.name for m in lab), "--rundir", machines_fabric.RUNDIR, "--agent",
                           agent, "--timeout", str(HANG_S), *words], capture_output=True, text=True, timeout=2 * HANG_S,
                          check=False, stdin=subprocess.DEVNULL, env={**os.environ, "SHMEM_SYMMETRIC_SIZE": "64m"})
    if done.returncode != 0:
        raise measure.Failure("oshrun: %s" % (done.stderr or done.stdout).strip()[-500:])
    return done.stdout


def jobs(bench):
    with machines_lab.Lab(8, "bench-%d" % os.getpid()) as lab, tempfile.TemporaryDirectory(dir=measure.BIN) as folder:
        bench.fabric(lab)
        agent = write_agent(lab, folder)
        times = []
        for _ in range(bench.options.rounds):
            begin = time.monotonic()
            oshrun(lab, agent, "-n", "64", os.path.join(measure.BIN, "examples", "hello"))
            times.append(time.monotonic() - begin)
    bench.add_alone("oshrun of 64 PEs on 8 machines, start to end", "s", times, 2)


# --- OpenSHMEM -------------------------------------------------------------------------------------

def figures(text):
    """{name: (value, unit)}"""
    rows = [line.split("\t") for line in text.splitlines()]
    return {row[0]: (float(row[1]), row[2]) for row in rows if len(row) == 3}


def peer_figures(lab, agent, program):
    rsh = agent + "-rsh"
    with open(rsh, "w", encoding="ascii") as script:
        script.write('#!/bin/sh\nname=$1; shift; exec %s "$name" sh -c "$*"\n' % agent)
    os.chmod(rsh, 0o755)
    # mpirun sees all processes, so that the agent can enter machines; it uses the network of node1.
    job = subprocess.Popen(["nsenter", "-t", str(lab[1].pid), "-n", "-u", "mpirun", "--allow-run-as-root", "--oversubscribe",
                            "--bind-to", "none", "--mca", "plm_rsh_agent", rsh, "--mca", "plm_rsh_no_tree_spawn", "1", "--mca",
                            "routed", "direct", "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "osc", "^rdma",
                            "-x", "SHMEM_SYMMETRIC_SIZE=64m", "--host", "node2:1,node3:1", "-np", "2", program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = job.communicate(timeout=2 * HANG_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        raise measure.Failure("Open MPI: no end: %s" % job.communicate()[1][-300:]) from None
    if job.returncode != 0:
        raise measure.Failure("Open MPI: %s" % (err or out).strip()[-500:])
    return figures(out)


def shmem(bench):
    if not (shutil.which("shmemcc") and shutil.which("mpirun")):
        print("shmem: skipped: Open MPI is not installed (tools/install-packages)")
        return
    source = os.path.join(HERE, "shmem", "figures.c")
    with machines_lab.Lab(3, "bench-%d" % os.getpid()) as lab, tempfile.TemporaryDirectory(dir=measure.BIN) as folder:
        program = os.path.join(folder, "figures")
        bench_ip.run([os.path.join(measure.BIN, "oshcc"), "-O2", "-D_GNU_SOURCE", source, "-o", program])
        bench_ip.run(["shmemcc", "-O2", "-D_GNU_SOURCE", "-Wno-deprecated-declarations", source, "-o", program + "-peer"])
        bench.fabric(lab)
        agent = write_agent(lab, folder)
        rounds = [(figures(oshrun([lab[2], lab[3]], agent, "-n", "2", program)), peer_figures(lab, agent, program + "-peer"))
                  for _ in range(bench.options.rounds)]
    for name in FIGURES:
        unit = rounds[0][0][name][1]
        bench.add(name + ", x Open MPI", unit, [(a[name][0], b[name][0]) for a, b in rounds],
                  "<=" if name == "barrier" else ">=", 1)


PARTS = {"link": link, "ip": ip, "neighbours": neighbours, "sockets": sockets, "jobs": jobs, "shmem": shmem}


def show(rows):
    print(measure.table(["medians", "ours", "peer", "", "ratio", "target", ""],
                        [[row["measure"], "%.4g" % row["ours"], "-" if row["peer"] is None else "%.4g" % row["peer"], row["unit"],
                          "-" if row["ratio"] is None else "%.2f" % row["ratio"], row["target"],
                          "" if row["met"] is None else "met" if row["met"] else "MISSED"] for row in rows]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of a stream (default 1)")
    parser.add_argument("--encrypt", action="store_true", help="links are encrypted")
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all")
    options = parser.parse_args()
    reason = demo_machines.reason_to_skip()
    if reason:
        print("bench_machines: skipped: %s" % reason)
        return 0
    bench = Bench(options)
    failed = False
    for name in options.part or PARTS:
        try:
            PARTS[name](bench)
        except (measure.Failure, machines_lab.Failure, subprocess.SubprocessError) as failure:
            print("bench_machines: %s: %s" % (name, failure), file=sys.stderr)
            failed = True
    show(bench.rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"bench": "machines", "encrypt": options.encrypt, "rows": bench.rows}, out, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
