# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs unmodified programs over kernel TCP and over Viaduct, and measures them.

Used by tools/demo and the benchmarks. Every process started here is ended by its pid, even after a failure.
"""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ["VIADUCT_UP_WITH"] = str(os.getpid())  # so that no fabric outlives a killed benchmark
BIN = os.environ.get("VIADUCT_BUILD_DIR", os.path.join(ROOT, "build", "release", "bin"))
VIADUCT = os.path.join(BIN, "viaduct")


class Failure(Exception):
    """A program failed at its task; the text names it and shows the end of its output."""


class Way:
    """A path between two programs: the commands that start them, and the server's address."""

    def __init__(self, name, address, server=(), client=(), env=None):
        self.name = name
        self.address = address
        self.server = list(server)
        self.client = list(client)
        self.env = env or {}


def kernel_tcp():
    return Way("kernel TCP", "127.0.0.1")


def fabric(fabric_name, name, server_host, client_host=1, env=None):
    """The way between two hosts of a running emulated fabric."""
    run = [VIADUCT, "run", "--fabric", fabric_name, "--host"]
    return Way(name, "127.77.0.%d" % server_host, [*run, str(server_host), "--"],
               [*run, str(client_host), "--"], env)


def one_machine(env=None):
    """The way between two processes of one machine, without a daemon: only the preload library."""
    preload = {"LD_PRELOAD": os.path.join(BIN, "libviaduct-sockets.so")}
    return Way("one machine", "127.0.0.1", env={**preload, **(env or {})})


def environment(way):
    env = dict(os.environ)
    env.update(way.env)
    return env


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def end(process):
    """Ends a process that was started here, and waits for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listening(address, port):
    """True if a server listens there. Reads the kernel's table, because a test connection could use up the server's only one."""
    want = "%08X:%04X" % (int.from_bytes(socket.inet_aton(address), "little"), port)
    wild = "00000000:%04X" % port
    wild6 = "0" * 32 + ":%04X" % port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if len(fields) > 3 and fields[3] == "0A" and (
                        fields[1] in (want, wild, wild6) or fields[1].endswith("FFFF0000" + want)):
                    return True
    return False


@contextlib.contextmanager
def server(way, command, port, cwd=None, **user):
    """Runs a server: waits until it listens, and ends it after the block."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(way.server + command, stdout=log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, cwd=cwd, env=environment(way), **user)
        try:
            deadline = time.monotonic() + 30
            while not listening(way.address, port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise Failure("%s: start as server over %s: %s" %
                                  (command[0], way.name, log.read()[-600:] or "it does not listen"))
                time.sleep(0.01)
            yield process
        finally:
            end(process)


def client(way, command, timeout=120):
    """Runs a client to its end and returns its standard output."""
    done = subprocess.run(way.client + command, capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, env=environment(way), check=False)
    if done.returncode != 0:
        raise Failure("%s: run over %s: exit code %d: %s" %
                      (command[0], way.name, done.returncode, (done.stderr or done.stdout)[-600:]))
    return done.stdout


def iperf3(way, seconds=2, extra=()):
    """Stream throughput in Gbit/s, as counted by the receiver."""
    port = free_port(way.address)
    with server(way, ["iperf3", "-s", "-1", "-B", way.address, "-p", str(port)], port):
        limit = ["-t", str(seconds)] if seconds else []
        out = client(way, ["iperf3", "-c", way.address, "-p", str(port), *limit, "-J", *extra])
    return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9


def iperf3_bytes(way, count):
    """The same for a number of bytes instead of a time, because iperf3 takes whole seconds only."""
    return iperf3(way, 0, ["-n", str(count)])


@contextlib.contextmanager
def redis_server(way):
    port = free_port(way.address)
    with tempfile.TemporaryDirectory() as folder:
        with server(way, ["redis-server", "--bind", way.address, "--port", str(port), "--save", "",
                          "--appendonly", "no", "--daemonize", "no",
                          "--protected-mode", "no"], port, cwd=folder):
            yield port


def redis_rates(way, port, requests, clients, tests, pipeline=1):
    """redis-benchmark against a server that runs: {test: requests per second}."""
    out = client(way, ["redis-benchmark", "-h", way.address, "-p", str(port), "-c", str(clients), "-n",
                       str(requests), "-P", str(pipeline), "-t", tests, "--csv"])
    rates = {}
    for line in out.splitlines():
        found = re.match(r'"(\w+)","([\d.]+)"', line)
        if found and found.group(1) != "test":
            rates[found.group(1)] = float(found.group(2))
    if not rates:
        raise Failure("redis-benchmark: run over %s: no figure in %r" % (way.name, out[-300:]))
    return rates


def redis(way, requests=100000, clients=50, pipeline=1, tests="get,set"):
    """The same, with a server that is started for it."""
    with redis_server(way) as port:
        return redis_rates(way, port, requests, clients, tests, pipeline)


def postgres(name):
    """The path of a program of the newest PostgreSQL, which Debian keeps outside of PATH; None if it is not installed."""
    return max(glob.glob("/usr/lib/postgresql/*/bin/" + name), default=shutil.which(name))


def pgbench(way, seconds=1, options=("-S",)):
    """Transactions per second. The library is copied to a place where a server that does not run as root can read it."""
    user = {"user": "nobody"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        data = os.path.join(folder, "data")
        os.mkdir(data)
        if user:
            shutil.chown(data, **user)
        if "LD_PRELOAD" in way.env:
            env = {"LD_PRELOAD": shutil.copy(way.env["LD_PRELOAD"], folder)}
            way = Way(way.name, way.address, way.server, way.client, {**way.env, **env})
        subprocess.run([postgres("initdb"), "-D", data, "-A", "trust", "-U", "bench", "--no-sync"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=data, **user)
        port = free_port(way.address)
        at = ["-h", way.address, "-p", str(port), "-U", "bench", "postgres"]
        with server(way, [postgres("postgres"), "-D", data, "-h", way.address, "-p", str(port), "-k", "",
                          "-c", "fsync=off"], port, cwd=data, **user) as process:
            # The server listens before it is ready.
            while subprocess.run([postgres("pg_isready"), "-q", *at[:-1]], check=False).returncode == 1:
                time.sleep(0.02)
            client(way, [postgres("pgbench"), "-i", "-q", *at])
            out = client(way, [postgres("pgbench"), *options, "-T", str(seconds), *at])
            process.send_signal(signal.SIGINT)  # at SIGTERM it would wait for connected clients
    found = re.search(r"^tps = ([\d.]+)", out, re.MULTILINE)
    if not found:
        raise Failure("pgbench: run over %s: no figure in %r" % (way.name, out[-300:]))
    return float(found.group(1))


# Figures of OpenSHMEM of which a run of the program gives one sample: the start, and the first calls to a busy PE. Two
# thirds of the latter is the time in which the dynamic linker resolves two functions, and the rest is due to cold caches.
ONCE = ("shmem_init", "p + quiet + fetch-add, busy PE, first")
STARTS = 5  # additional starts for these figures
SOCKPERF_PER_SECOND = 5000000


def sockperf(way, seconds=1, size=64):
    """Round trip of a small message in microseconds: median (sockperf gives half of it).

    At full speed, sockperf has room for one message per microsecond and fails at the next one; so it gets a
    rate beyond any machine."""
    port = free_port(way.address)
    with server(way, ["sockperf", "server", "--tcp", "-i", way.address, "-p", str(port)], port):
        out = client(way, ["sockperf", "ping-pong", "--tcp", "-i", way.address, "-p", str(port),
                           "-t", str(seconds), "-m", str(size), "--full-rtt", "--mps=%d" % SOCKPERF_PER_SECOND])
    found = re.search(r"percentile 50\.000 =\s*([\d.]+)", out)
    if not found:
        raise Failure("sockperf: run over %s: no figure in %r" % (way.name, out[-300:]))
    return float(found.group(1))


def interleaved(measure, ways, rounds):
    """{way.name: [figure, ...]}: each round runs every way once, in turn, so that noise affects all alike."""
    figures = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            figures[way.name].append(measure(way))
    return figures


def in_turns(clients, turns):
    """{name: [figure, ...]} of programs that make a figure for each line they get; clients: {name: (way, command)}.
    In turns of milliseconds other load of the machine affects all of them alike."""
    figures = {name: [] for name in clients}
    running = {}
    try:
        for name, (way, command) in clients.items():
            running[name] = subprocess.Popen(way.client + command, text=True, stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, env=environment(way))
        for turn in range(turns + 1):  # the first turn of each does not count: the program may still be connecting
            for name in sorted(running, reverse=turn % 2 == 1):
                running[name].stdin.write("\n")
                running[name].stdin.flush()
                line = running[name].stdout.readline()
                if not line:
                    raise Failure("%s: run over %s: it has ended" % (" ".join(clients[name][1]), clients[name][0].name))
                if turn > 0:
                    figures[name].append(float(line))
    finally:
        for process in running.values():
            process.stdin.close()
            process.stdout.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
            end(process)
    return figures


def median(values):
    return statistics.median(values)


def table(head, rows):
    """A plain table, the first column to the left."""
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


def report(options, rows, data):
    """Prints rows of figures and targets, and writes the data to the file of --json."""
    print(table(["measure (medians of %d rounds)" % options.rounds, "got", "target", ""], rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(data, out, indent=1)


def need(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        raise Failure("%s: not found; run tools/install-packages" % ", ".join(missing))
