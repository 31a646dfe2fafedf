#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Compares the preload library within one machine with a peer, in interleaved pairs of runs.

usage: bench_sockets.py [--json FILE] [--rounds N] [--seconds S] [--connections N] [--only WORD] [--than BIN] [--list]
  --only WORD  only the measures whose name contains WORD
  --than BIN   compare with the library in the folder bin of another build, instead of kernel TCP; other measures are left out
  --list       print the names and measure nothing

Streams are compared with two memcpys through 256 KiB: once by one process, whose caches then hold all the data, and once
by two processes on two CPUs at the same time, between which every byte has to travel, as in any transport.

The column "in pipes" shows the share of the sent bytes that pipes carried; the kernel carried the others.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402
import sockets_programs  # noqa: E402

STREAM = os.path.join(measure.BIN, "tests", "prog_stream")
FLOWS = os.path.join(measure.BIN, "tests", "prog_flows")
BENCH_PIPE = os.path.join(measure.BIN, "bench_pipe")

TCP = measure.kernel_tcp()
PIPES = measure.one_machine()
NO_SPIN = measure.one_machine({"VIADUCT_SOCKETS_SPIN": "off"})
NO_SPIN.name += ", spin off"
COPIED = measure.one_machine({"VIADUCT_SOCKETS_ZEROCOPY": "off"})

FIRST_CORE = ("taskset", "-c", "0")
SECOND_CORE = ("taskset", "-c", "1")
BOTH_CORES = ("taskset", "-c", "0,1")
# CPU time of an idle server that other causes may take: microseconds in a second.
IDLE_NOISE_US = 200


# With --than a ratio below this is a loss.
KEPT = 0.97


class Options:
    seconds = 1.0
    connections = 10000
    other = None  # the library of another build


# --- measures ---------------------------------------------------------------------------------


def stream(way, *words, server=(), client=()):
    """prog_stream's figures; server, client: words in front of either (taskset)."""
    port = measure.free_port(way.address)
    what, *rest = words
    with measure.server(way, [*server, STREAM, "serve", way.address, str(port), "1000000"], port):
        return json.loads(measure.client(way, [*client, STREAM, what, way.address, str(port),
                                               *map(str, rest)]))


def pingpong(way, size, **prefixes):
    return stream(way, "pingpong", size, 20000, **prefixes)["median_us"]


def bench_pipe(way, size, *words):
    """Round trips in ns of `size` bytes between the same two processes, by each path of bench_pipe."""
    with tempfile.NamedTemporaryFile("r") as figures:
        measure.client(way, [BENCH_PIPE, "--json", figures.name, "--size", str(size), *words])
        return json.load(figures)


def bare_pipe(_way, size):
    """Round trip in us through a pipe, with nothing around it."""
    return bench_pipe(TCP, size)["pipe_ns"] / 1e3


class PipeAndSockets:
    """Measures the pipe and plain sockets in turn, within one run: one run gives both figures."""

    def __init__(self, size):
        self.size, self.figures = size, None

    def pipe(self, way):
        self.figures = bench_pipe(way, self.size, "--sockets")
        return self.figures["pipe_ns"] / 1e3

    def sockets(self, _way):
        return self.figures["sockets_ns"] / 1e3


def source(way, size, connections=1):
    """(bytes, messages) per second from one prog_flows to another."""
    port = measure.free_port(way.address)
    with measure.server(way, [FLOWS, "sink", way.address, str(port), str(size)], port):
        out = json.loads(measure.client(way, [FLOWS, "source", way.address, str(port), str(size),
                                              str(connections), str(Options.seconds)]))
    return out["bytes"] / out["seconds"], out["messages"] / out["seconds"]


def messages(way, size):
    return source(way, size)[1]


def gigabytes(way, size, connections=1):
    return source(way, size, connections)[0] / 1e9


def two_memcpys(_way, size, *processes):
    out = json.loads(measure.client(TCP, [FLOWS, "memcpy", str(size), str(Options.seconds / 2), *processes]))
    return out["bytes_per_second"] / 1e9


def redis(way, test, requests, pipeline=1):
    return measure.redis(way, requests, pipeline=pipeline, tests=test.lower())[test]


class InTurns:
    """Measures two clients, each with its own server, in turns of some milliseconds within one run, so that other
    load of the machine affects both equally: one run gives both figures."""

    TURNS = 21

    def __init__(self, server, base, subject):
        """server: what, and the words behind its port; base, subject: client(way) -> (its way, what, words)."""
        self.server, self.clients, self.figures = server, (base, subject), None

    def base(self, way):
        clients = {}
        with contextlib.ExitStack() as stack:
            for index, client in enumerate(self.clients):
                one, what, *rest = client(way)
                port = measure.free_port(one.address)
                server = [FLOWS, self.server[0], one.address, str(port), *map(str, self.server[1:])]
                stack.enter_context(measure.server(one, server, port))
                clients[index] = (one, [FLOWS, what, one.address, str(port), *map(str, rest)])
            figures = measure.in_turns(clients, self.TURNS)
        base = measure.median(figures[0])
        self.figures = base, base * measure.median([b / a for a, b in zip(figures[0], figures[1])])
        return base

    def subject(self, _way):
        return self.figures[1]


def hot(connections):
    """Round trips per second on one of many connections to an epoll server, compared with a server that has only one."""
    count = lambda way: 2000 if way is TCP else 100000  # noqa: E731 some 30 ms
    return InTurns(("echo",), lambda way: (way, "hot-turns", 1, count(way)),
                   lambda way: (way, "hot-turns", connections, count(way)))


def chosen(size):
    """Sends of `size` bytes by the method that the library chooses, compared with copying."""
    return InTurns(("sink", size), lambda _way: (COPIED, "source-turns", size, 0.015),
                   lambda way: (way, "source-turns", size, 0.015))


def threads(count):
    """Messages of 64 bytes per second from several threads that send on one connection, compared with one thread."""
    return InTurns(("sink", 64), lambda way: (way, "source-turns", 64, 0.05),
                   lambda way: (way, "source-turns", 64, 0.05, count))


def cpu_us(pid):
    """CPU time of the process's first thread."""
    with open("/proc/%d/schedstat" % pid, encoding="ascii") as schedstat:
        return int(schedstat.read().split()[0]) / 1e3


def idle_cpu(way):
    """Microseconds of CPU time per second of an epoll server with 100 idle connections."""
    port = measure.free_port(way.address)
    with measure.server(way, [FLOWS, "echo", way.address, str(port)], port) as server:
        client = subprocess.Popen([FLOWS, "idle", way.address, str(port), "100"], text=True,
                                  stdout=subprocess.PIPE, env=measure.environment(way))
        try:
            if client.stdout.readline() != "ready\n":
                raise measure.Failure("prog_flows idle: run over %s: it does not get ready" % way.name)
            time.sleep(0.3)
            before, begin = cpu_us(server.pid), time.monotonic()
            time.sleep(2)
            return (cpu_us(server.pid) - before) / (time.monotonic() - begin)
        finally:
            client.stdout.close()
            measure.end(client)


def poll_loop(way, connections):
    """Round trips per second of a client that polls its connections by poll() without waiting."""
    port = measure.free_port(way.address)
    with measure.server(way, [FLOWS, "echo", way.address, str(port)], port):
        return json.loads(measure.client(way, [FLOWS, "poll-loop", way.address, str(port), str(connections),
                                               "20000"]))["per_second"]


def two_pairs(way):
    """Two servers and two clients, all busy, on two cores: round trips per second of both."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(2):
            port = measure.free_port(way.address)
            stack.enter_context(measure.server(way, [*BOTH_CORES, FLOWS, "echo", way.address,
                                                     str(port)], port))
            clients.append([*BOTH_CORES, FLOWS, "hot", way.address, str(port), "1", "30000"])
        running = [subprocess.Popen(words, text=True, stdout=subprocess.PIPE,
                                    env=measure.environment(way)) for words in clients]
        for one in running:
            stack.callback(measure.end, one)
        outs = [one.communicate(timeout=120)[0] for one in running]
        return sum(json.loads(out)["per_second"] for out in outs)


NGINX = """
pid {folder}/pid; error_log {folder}/error.log; daemon on; worker_processes 1;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen {address}:{port}; root {folder}/www; }} }}
"""


def nginx(way):
    """Requests per second of a 1 KiB file: keep-alive, 32 connections of wrk."""
    port = measure.free_port(way.address)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # nginx workers run as another user
        os.mkdir(os.path.join(folder, "www"))
        with open(os.path.join(folder, "www", "file"), "w", encoding="ascii") as file:
            file.write("f" * 1024)
        conf = os.path.join(folder, "conf")
        with open(conf, "w", encoding="ascii") as file:
            file.write(NGINX.format(folder=folder, address=way.address, port=port))
        measure.client(way, ["nginx", "-p", folder, "-c", conf])
        try:
            out = measure.client(way, ["wrk", "-t", "1", "-c", "32", "-d",
                                       "%ds" % max(1, round(Options.seconds)),
                                       "http://%s:%d/file" % (way.address, port)])
        finally:
            measure.client(TCP, ["nginx", "-p", folder, "-c", conf, "-s", "stop"])
            while measure.listening(way.address, port):
                time.sleep(0.01)
    rate = [line for line in out.splitlines() if line.startswith("Requests/sec:")]
    if not rate or "Non-2xx" in out or "Socket errors" in out:
        raise measure.Failure("wrk: run over %s: %s" % (way.name, out[-400:]))
    return float(rate[0].split()[1])


# --- comparison ----------------------------------------------------------------------------------


class Measure:
    """Compares subject with base; both are (label, function without arguments)."""

    def __init__(self, name, unit, base, subject, target, less=False):
        self.name, self.unit, self.base, self.subject = name, unit, base, subject
        self.target, self.less = target, less

    def times_better(self, base, subject):
        """The median of the pairs' ratios."""
        ratios = [b / s if self.less else s / b for b, s in zip(base, subject) if min(b, s) > 0]
        return measure.median(ratios) if ratios else 1

    def met(self, base, subject):
        return self.target is None or self.times_better(base, subject) >= self.target


class Idle(Measure):
    """CPU of idle processes: it is almost zero, so the difference is compared and not the ratio."""

    def met(self, base, subject):
        return measure.median(subject) <= measure.median(base) + IDLE_NOISE_US


def against_tcp(name, unit, function, target, less=False, way=PIPES, kind=Measure):
    if Options.other is not None:
        other = measure.Way("other build", way.address, env={**way.env, "LD_PRELOAD": Options.other})
        return kind(name, unit, (other.name, lambda: function(other)), (way.name, lambda: function(way)), KEPT, less)
    return kind(name, unit, ("TCP", lambda: function(TCP)), (way.name, lambda: function(way)), target,
                less)


def against(label, name, unit, base, function, target, less=False, way=PIPES):
    return Measure(name, unit, (label, lambda: base(way)), (way.name, lambda: function(way)), target,
                   less)


def spinning():
    for size in (8, 64):
        name = "ping-pong %d B, both spin" % size
        yield against_tcp(name, "us", lambda way, size=size: pingpong(way, size), 50, True)
        both = PipeAndSockets(size)
        yield against("bare pipe", name, "us", both.pipe, both.sockets, 0.5, True)
    name = "sockperf 64 B, both spin"
    one = lambda way: measure.sockperf(way, max(1, round(Options.seconds)))  # noqa: E731
    yield against_tcp(name, "us", one, 50, True)
    yield against("bare pipe", name, "us", lambda way: bare_pipe(way, 64), one, 0.5, True)


def sleeping():
    two = {"server": FIRST_CORE, "client": SECOND_CORE}
    one = {"server": FIRST_CORE, "client": FIRST_CORE}
    yield against_tcp("ping-pong 16 B, spin off, two cores", "us", lambda way: pingpong(way, 16, **two),
                      1 / 0.75, True, NO_SPIN)
    yield against_tcp("ping-pong 16 B, spin off, one core", "us", lambda way: pingpong(way, 16, **one),
                      2, True, NO_SPIN)
    yield against_tcp("ping-pong 16 B, one core", "us", lambda way: pingpong(way, 16, **one), 2, True)


def streams():
    yield against_tcp("stream of 64 B", "1/s", lambda way: messages(way, 64), 8)
    for name, size in (("64 KiB", 65536), ("1 MiB", 1 << 20)):
        yield against_tcp("stream of " + name, "GB/s", lambda way, size=size: gigabytes(way, size), 2)
        for label, processes in (("two memcpys, one CPU", ()), ("two memcpys, two CPUs", ("2",))):
            yield against(label, "stream of " + name, "GB/s",
                          lambda way, size=size, processes=processes: two_memcpys(way, size, *processes),
                          lambda way, size=size: gigabytes(way, size), 0.7)
    # The library sometimes tries the method that it has not chosen: a few sends in a hundred.
    for kib in (64, 128, 256, 512, 1024):
        both = chosen(kib << 10)
        yield against("copied", "sends of %d KiB, copied or not" % kib, "1/s", both.base, both.subject, 0.97)


def programs():
    for test in ("GET", "SET"):
        yield against_tcp("redis -c 50 " + test, "1/s", lambda way, test=test:
                          redis(way, test, 50000 if way is TCP else 500000), 1.6)
    for test in ("GET", "SET"):
        yield against_tcp("redis -c 50 -P 16 " + test, "1/s",
                          lambda way, test=test:
                          redis(way, test, 400000 if way is TCP else 1600000, 16), 1.3)
    yield against_tcp("nginx, wrk -c 32, 1 KiB", "1/s", nginx, 1.5)
    if measure.postgres("postgres") is not None:  # of the packages' group servers
        # A transaction that writes waits for locked rows, not for the network, so its target is to lose no more than the noise.
        for options, target in ((("-S",), 2), (("-S", "-c", "8", "-j", "2"), 1), (("-S", "-c", "6", "-j", "6"), 1),
                                (("-c", "4", "-j", "2"), 0.9)):
            yield against_tcp("pgbench " + " ".join(options), "1/s", lambda way, options=options:
                              measure.pgbench(way, max(1, round(Options.seconds)), options), target)


def hard_programs():
    """Edge-triggered event loops, loops that poll, short connections, bodies larger than every buffer."""
    for needs, name, unit, function in (
            ("grpc", "gRPC, 1 MiB calls", "1/s", lambda way: sockets_programs.grpc(way, Options.seconds)),
            ("java", "Java asynchronous channels, echoes of 32 MiB", "1/s",
             lambda way: sockets_programs.java(way, Options.seconds)),
            ("mpi", "Open MPI by TCP, ping-pong 8 B", "1/s", lambda way: sockets_programs.mpi(way, 8, Options.seconds)),
            ("mpi", "Open MPI by TCP, ping-pong 4 KiB", "1/s",
             lambda way: sockets_programs.mpi(way, 4096, Options.seconds)),
            ("puma", "Puma, 1,100 short connections", "1/s", sockets_programs.puma)):
        why = sockets_programs.missing(needs)
        if why is None:
            yield against_tcp(name, unit, function, 1)
        else:
            print("%s: skipped: %s" % (name, why), file=sys.stderr)


def connections():
    yield against_tcp("connect, a byte, close", "1/s",
                      lambda way: stream(way, "connect", 3000)["per_second"], 0.9)
    one = hot(Options.connections)
    name = "one hot among %d" % Options.connections
    yield against("alone", name, "1/s", one.base, one.subject, 0.9)
    yield against("alone", name + ", TCP", "1/s", one.base, one.subject, None, way=TCP)
    two = threads(2)
    name = "two threads on one fd, 64 B"
    yield against("one thread", name, "1/s", two.base, two.subject, 0.8)
    yield against("one thread", name + ", TCP", "1/s", two.base, two.subject, None, way=TCP)


def polling():
    for count in (1, 10, 100):
        yield against_tcp("poll() that does not wait, of %d" % count, "1/s",
                          lambda way, count=count: poll_loop(way, count), 1)


def sharing():
    yield against_tcp("idle epoll server's CPU", "us/s", idle_cpu, 1, True, kind=Idle)
    yield against_tcp("four busy processes, ping-pong", "1/s", two_pairs, 1)
    yield against_tcp("four busy processes, 64 KiB", "GB/s", lambda way: gigabytes(way, 65536, 2), 1)


def all_measures():
    for group in (spinning, sleeping, streams, programs, hard_programs, connections, polling, sharing):
        yield from group()


def number(value):
    return "%.0f" % value if value >= 1000 else "%.3g" % value


class Shares:
    """The share of the sent bytes that pipes carried, from the statistics of the library: without it, a program whose
    connections stay with the kernel looks like one that gains nothing from pipes."""

    def __init__(self, file):
        self.file = file
        os.chmod(file.name, 0o666)  # servers of other users write, too

    def of(self, function):
        """What the function returns, and the share, None if no process of the library has sent a byte."""
        self.file.truncate(0)
        os.environ["VIADUCT_SOCKETS_STATS"] = self.file.name
        try:
            result = function()
        finally:
            del os.environ["VIADUCT_SOCKETS_STATS"]
        self.file.seek(0)
        entries = [json.loads(line) for line in self.file if line.endswith("\n")]
        pipes = sum(entry["bytes_pipe_tx"] for entry in entries)
        both = pipes + sum(entry["bytes_kernel_tx"] for entry in entries)
        return result, pipes / both if both else None


def run(measures, rounds, shares):
    rows, results, missed = [], [], []
    for one in measures:
        base, subject, carried = [], [], []
        for _ in range(rounds):
            base.append(one.base[1]())
            figure, share = shares.of(one.subject[1])
            subject.append(figure)
            carried += [] if share is None else [share]
        times, met = one.times_better(base, subject), one.met(base, subject)
        results.append({"measure": one.name, "unit": one.unit, "against": one.base[0], "base": base,
                        "viaduct": subject, "times_better": times, "target": one.target, "met": met,
                        "by_pipes": carried})
        target = "" if one.target is None else "%.3g" % one.target
        rows.append([one.name, one.unit, one.base[0], number(measure.median(base)),
                     number(measure.median(subject)), "%.0f %%" % (100 * measure.median(carried)) if carried else "",
                     "%.2f" % times, target,
                     "" if one.target is None else "met" if met else "MISSED"])
        if not met:
            missed.append("%s against %s: %.2f of %s" % (one.name, one.base[0], times, target))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(measure.table(["measure", "unit", "against", "it", "Viaduct", "in pipes", "times better", "at least", ""],
                        rows))
    return results, missed


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    options.add_argument("--json")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=Options.seconds)
    options.add_argument("--connections", type=int, default=Options.connections)
    options.add_argument("--only", default="")
    options.add_argument("--than")
    options.add_argument("--list", action="store_true")
    options = options.parse_args()
    Options.seconds, Options.connections = options.seconds, options.connections
    if options.than is not None:
        Options.other = os.path.abspath(os.path.join(options.than, "libviaduct-sockets.so"))
        if not os.path.exists(Options.other):
            sys.exit("bench_sockets: --than %s: it is not a build's folder bin: no libviaduct-sockets.so" % options.than)
    measures = [one for one in all_measures() if options.only in one.name and
                (options.than is None or one.base[0] == "other build")]
    if options.list:
        print("\n".join(dict.fromkeys(one.name for one in measures)))
        return
    try:
        measure.need("iperf3", "redis-server", "redis-benchmark", "sockperf", "nginx", "wrk", "taskset")
        with tempfile.NamedTemporaryFile("r+", encoding="utf-8") as statistics:
            results, missed = run(measures, options.rounds, Shares(statistics))
    except (measure.Failure, subprocess.SubprocessError, OSError) as error:
        sys.exit("bench_sockets: %s" % error)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    if missed:
        sys.exit("missed:\n  " + "\n  ".join(missed))


if __name__ == "__main__":
    main()
