# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Programs in their usual modes, both ends with the library: everything that works without it has to work."""
import contextlib
import json
import os
import re
import shutil
import subprocess
import time

from conform_share import Share, environment, show_head, show_row, take_share
from lab import end, free_port, listens
import reload_nginx

HOST = "127.0.0.1"
LIMIT_S = 60


class Failed(Exception):
    pass


def same(name, got, data):
    if got != data:
        raise Failed("%s: %d bytes of %d, or wrong ones" % (name, len(got), len(data)))


class Lab:
    """Starts programs with or without the library, in a folder of their own."""

    def __init__(self, env, preload, folder):
        self.env = env
        self.preload = preload
        self.folder = folder

    def run(self, *words, stdin=None):
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        done = subprocess.run(words, env=self.env, cwd=self.folder, check=False, timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
        if done.returncode != 0:
            raise Failed("%s: exit code %d: %s" % (words[0], done.returncode, done.stderr[-200:]))
        return done.stdout

    @contextlib.contextmanager
    def server(self, *words, port, seconds=15, **user):
        process = subprocess.Popen(words, env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user)
        try:
            deadline = time.monotonic() + seconds
            while not listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Failed("%s does not listen" % words[0])
                time.sleep(0.01)
            yield process
        finally:
            end(process)


# --- streams and messages ------------------------------------------------------------------------


def iperf(lab, *options):
    port = free_port()
    with lab.server("iperf", "-s", "-B", HOST, "-p", str(port), port=port):
        out = lab.run("iperf", "-c", HOST, "-p", str(port), "-f", "k", "-t", "1", *options).decode()
    rates = [float(rate) for rate in re.findall(r"([\d.]+) Kbits/sec", out)]
    if not rates or min(rates) <= 0:
        raise Failed("iperf: %r" % out[-200:])


def iperf3(lab, *options):
    port = free_port()
    with lab.server("iperf3", "-s", "-1", "-p", str(port), port=port):
        out = json.loads(lab.run("iperf3", "-c", HOST, "-p", str(port), "-J", *options))
    sent, received = (out["end"]["sum_" + way]["bytes"] for way in ("sent", "received"))
    if received <= 0 or "-n" in options and sent < 100_000_000:
        raise Failed("iperf3: %d sent, %d received" % (sent, received))


def sockperf(lab, mode, *options):
    port = free_port()
    with lab.server("sockperf", "server", "--tcp", "-i", HOST, "-p", str(port), port=port):
        out = lab.run("sockperf", mode, "--tcp", "-i", HOST, "-p", str(port), "-t", "1", *options).decode()
    lost = re.search(r"dropped messages = (\d+)", out)
    if lost is not None and int(lost.group(1)) != 0:
        raise Failed("sockperf: %s" % lost.group(0))


def redis_benchmark(lab, *options):
    port = free_port()
    with lab.server("redis-server", "--port", str(port), "--save", "", port=port):
        out = lab.run("redis-benchmark", "-p", str(port), "-n", "10000", "--csv", *options).decode()
    if '"GET"' not in out and '"MSET (10 keys)"' not in out:
        raise Failed("redis-benchmark: %r" % out[-200:])


# --- files ---------------------------------------------------------------------------------------


def big_file(lab):
    path = os.path.join(lab.folder, "big")
    data = os.urandom(1 << 20) * 24
    with open(path, "wb") as file:
        file.write(data)
    return data


def curl(lab, *options):
    data = big_file(lab)
    port = free_port()
    with lab.server("/usr/bin/python3", "-m", "http.server", str(port), "--bind", HOST, port=port):
        got = lab.run("curl", "-sS", *options, "http://%s:%d/big" % (HOST, port))
    same("curl", got, data)


def nginx_config(lab, port):
    config = os.path.join(lab.folder, "nginx.conf")
    paths = "".join("%s_temp_path %s/t; " % (name, lab.folder)
                    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(config, "w", encoding="ascii") as file:
        file.write("daemon off; worker_processes 2; user root; pid %s/pid; error_log %s/error.log;\n"
                   "events {} http { access_log off; sendfile on; %s\n"
                   "server { listen %s:%d; root %s; }\n"
                   "server { listen %s:%d; location / { proxy_pass http://%s:%d; } } }\n"
                   % (lab.folder, lab.folder, paths, HOST, port[0], lab.folder, HOST, port[1], HOST, port[0]))
    return config


def nginx(lab, which, *options):
    """A file by sendfile() (0), or through a proxy (1): several requests on one connection."""
    data = big_file(lab)
    ports = (free_port(), free_port())
    with lab.server("nginx", "-c", nginx_config(lab, ports), port=ports[0]):
        url = "http://%s:%d/big" % (HOST, ports[which])
        got = lab.run("curl", "-sS", *options, *[url] * 4)
    same("nginx and curl", got, data * 4)


def nginx_reloads(lab):
    after = {"VIADUCT_SOCKETS_AFTER": "0", "VIADUCT_SOCKETS_STATS": lab.env.get("VIADUCT_SOCKETS_STATS", "")}
    counts, bad = reload_nginx.measure(lab.preload, 20, 16, after if lab.preload else None)
    if counts[0] == 0 or counts[1] > counts[0] // 50 or bad:
        raise Failed("nginx: %d of %d requests failed, %s" % (counts[1], counts[0], bad[:2]))


WAYS = [
    ("iperf", "iperf", [(iperf,), (iperf, "-P", "4"), (iperf, "--full-duplex"), (iperf, "-l", "100")]),
    ("iperf3", "iperf3", [(iperf3, "-t", "1"), (iperf3, "-t", "1", "-R"), (iperf3, "-t", "1", "-P", "4"),
                          (iperf3, "-t", "1", "--bidir"), (iperf3, "-t", "1", "-Z"), (iperf3, "-n", "100M"),
                          (iperf3, "-t", "1", "-b", "100M"), (iperf3, "-t", "1", "-l", "1M")]),
    ("sockperf", "sockperf", [(sockperf, "ping-pong", "--mps", "5000000"), (sockperf, "under-load", "--mps", "5000"),
                              (sockperf, "ping-pong", "-m", "8000"), (sockperf, "throughput", "-m", "64")]),
    ("redis-benchmark", "redis-benchmark", [(redis_benchmark,), (redis_benchmark, "-P", "16"),
                                            (redis_benchmark, "--threads", "2"),
                                            (redis_benchmark, "-d", "10000", "-t", "set,get")]),
    ("curl", "curl", [(curl,), (curl, "--limit-rate", "40M"), (curl, "--http1.0"), (curl, "-N")]),
    ("nginx and curl", "nginx", [(nginx, 0), (nginx, 1), (nginx, 0, "--limit-rate", "60M")]),
    ("nginx, reloads, wrk", "wrk", [(nginx_reloads,)]),
]


def run_ways(ways, preload, library, folder, stats):
    """The failed rows, and the reason of each."""
    failed = {}
    for function, *options in ways:
        name = " ".join(map(str, [function.__name__, *options]))
        try:
            function(Lab(environment(preload, library, stats), preload, folder), *options)
        except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            failed[name] = str(error)
    return failed


def run_rows(title, rows, folder, library):
    """rows: (name, a program that it needs, ways to run it). Returns (new failures, share)."""
    bad = []
    total = Share()
    stats = os.path.join(folder, "programs-stats")
    os.chmod(folder, 0o755)
    open(stats, "w", encoding="ascii").close()
    os.chmod(stats, 0o666)
    library = shutil.copy(library, folder)  # a copy that servers of other users can read
    show_head(title)
    for name, program, ways in rows:
        if shutil.which(program) is None and not os.path.exists(program):
            print("%-22s %s is not installed" % (name, program))
            continue
        plain = run_ways(ways, False, library, folder, stats)
        piped = run_ways(ways, True, library, folder, stats)
        share = take_share(stats)
        total.add(share)
        for _ in range(2):  # a second attempt, because on a busy machine anything may be late
            new = {way: why for way, why in piped.items() if way not in plain}
            if new:
                again = [way for way in ways if " ".join(map(str, [way[0].__name__, *way[1:]])) in new]
                piped = {**{way: why for way, why in piped.items() if way in plain},
                         **run_ways(again, True, library, folder, stats)}
        take_share(stats)
        new = {way: why for way, why in piped.items() if way not in plain}
        for way, why in {**plain, **new}.items():
            print("    %s: %s" % (way, why))
        bad += new
        show_row(name, (len(ways), len(plain)), (len(ways), len(piped)), share, list(new))
    return bad, total


def suite(folder, library, _options):
    """(new failures, share)."""
    return run_rows("Programs", WAYS, folder, library)
