#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""nginx, as a daemon, is reloaded again and again while wrk asks it for a file, over kernel TCP and over pipes.

usage: reload_nginx.py [--count N] [--connections C]

In turns of 25 reloads each. Prints requests, failed ones as wrk counts them, for each reload and for each million of
requests, and the share of bytes sent by pipes. Exit code 1 when pipes fail more requests than kernel TCP does, when
nginx logs an error, or when less than 90 % of its bytes went through pipes.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import lab
from lab import PRELOAD, free_port, listens

# Reloads between two changes from kernel TCP to pipes or back.
TURN = 25

CONFIG = """
daemon on;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/error.log notice;
events {{ worker_connections 512; }}
env LD_PRELOAD;
env VIADUCT_SOCKETS_STATS;
env VIADUCT_SOCKETS_AFTER;
http {{
    access_log off;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    keepalive_requests 1000000;
    server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("reload_nginx: %s: not within %d s" % (what, seconds))
        time.sleep(0.01)


def failures_of(out):
    """wrk's own count."""
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", out)
    status = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    counts = [int(n) for n in errors.groups()] if errors else [0, 0, 0, 0]
    return sum(counts) + (int(status.group(1)) if status else 0)


def bytes_by(stats):
    """The bytes that nginx sent by pipes and by the kernel."""
    pipe = kernel = 0
    with open(stats, encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry["program"].startswith("nginx"):
                pipe += entry["bytes_pipe_tx"]
                kernel += entry["bytes_kernel_tx"]
    return pipe, kernel


def measure(preload, count, connections, more_env=None):
    """[requests, failed, bytes by pipes, by the kernel], and the errors in nginx' log."""
    folder = tempfile.mkdtemp(prefix="via-nginx-")
    os.chmod(folder, 0o755)
    port = free_port()
    stats = os.path.join(folder, "stats")
    open(stats, "w", encoding="utf-8").close()
    os.chmod(stats, 0o666)
    config = os.path.join(folder, "nginx.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(CONFIG.format(folder=folder, port=port))
    with open(os.path.join(folder, "file"), "w", encoding="utf-8") as file:
        file.write("x" * 1000)
    env = {**os.environ, **({"LD_PRELOAD": PRELOAD, "VIADUCT_SOCKETS_STATS": stats} if preload else {}),
           **(more_env or {})}
    try:
        subprocess.run(["nginx", "-c", config], env=env, check=True, timeout=20)
        wait_until(lambda: listens(port), 10, "nginx listens")
        with open(os.path.join(folder, "pid"), encoding="ascii") as file:
            master = int(file.read())
        wrk = subprocess.Popen(["wrk", "-t1", "-c%d" % connections, "-d%d" % (2 + count * 0.1 + 1),
                                "http://127.0.0.1:%d/file" % port], env=env, stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        for _ in range(count):
            os.kill(master, signal.SIGHUP)
            time.sleep(0.1)
        out = wrk.communicate(timeout=60 + count)[0]
        os.kill(master, signal.SIGQUIT)
        wait_until(lambda: not os.path.exists("/proc/%d" % master), 30, "nginx ends")
        time.sleep(0.3)
        requests = int(re.search(r"(\d+) requests in", out).group(1))
        with open(os.path.join(folder, "error.log"), encoding="utf-8") as file:
            bad = [line for line in file if re.search(r"\[(alert|crit|emerg|error)\]|signal 11", line)]
        return [requests, failures_of(out), *bytes_by(stats)], bad
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    for program in ("nginx", "wrk"):
        if shutil.which(program) is None:
            print("%s is not installed" % program)
            return 77
    sums = {False: [0] * 4, True: [0] * 4}
    complaints = {False: [], True: []}
    for done in range(0, args.count, TURN):
        for preload in (False, True):
            counts, bad = measure(preload, min(TURN, args.count - done), args.connections)
            sums[preload] = [a + b for a, b in zip(sums[preload], counts)]
            complaints[preload] += bad
    for preload, name in ((False, "kernel"), (True, "pipes")):
        requests, failed, pipe, kernel = sums[preload]
        print("%-7s %d reloads: %d requests, %d failed: %.2f for each reload, %.1f for each million; %.1f %% of nginx's "
              "bytes by pipes, %d complaints in its log"
              % (name, args.count, requests, failed, failed / args.count, failed * 1e6 / max(requests, 1),
                 100 * pipe / max(pipe + kernel, 1), len(complaints[preload])))
        for line in complaints[preload][:5]:
            print("    " + line.rstrip())
    # Chance decides which requests are under way at a reload: the limit is three standard deviations of a count.
    plain, piped = sums[False], sums[True]
    allowed = plain[1] + 3 * max(plain[1], 1) ** 0.5
    return 1 if (piped[1] > allowed or len(complaints[True]) > len(complaints[False]) or
                 piped[2] < 0.9 * (piped[2] + piped[3])) else 0


if __name__ == "__main__":
    lab.begin()
    sys.exit(main())
