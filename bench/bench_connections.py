#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures the cost of a connection within one machine, for 1 to 50,000 connections, over Viaduct and over kernel TCP.

usage: bench_connections.py [--json FILE] [--counts N,N,...] [--bytes B] [--quiet SECONDS]
  --counts  how many connections (1,1000,10000,50000), over as many pairs of processes as ulimit -Hn makes necessary
  --bytes   bytes in each direction on every connection after 8 small round trips (65536): memory that is used, then released
  --quiet   seconds without traffic before memory is measured again (6)

Memory is what the kernel charges to the processes of both ends (Pss of smaps_rollup), divided by the number of ends.
The kernel's own memory for its sockets is not included; it is the same for both ways. Mappings and descriptors are
those of one server.
"""
import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

FLOWS = os.path.join(measure.BIN, "tests", "prog_flows")
MANY = os.path.join(measure.BIN, "tests", "prog_many")


def pss_kib(pid):
    with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as rollup:
        return sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))


def mappings(pid):
    with open("/proc/%d/maps" % pid, encoding="ascii") as maps:
        return sum(1 for _ in maps)


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def carried(pid):
    """The number of a process's connections that have pipes, and for each other connection the reason."""
    out = subprocess.run([measure.VIADUCT, "sockets", "--json", "--pid", str(pid)], capture_output=True, text=True,
                         check=False, timeout=60).stdout
    connections = json.loads(out)["connections"] if out else []
    reasons = {}
    for one in connections:
        if not one["accelerated"] and one["state"] != "listening":
            reasons[one["why_not"]] = reasons.get(one["why_not"], 0) + 1
    return sum(1 for one in connections if one["accelerated"]), reasons


def run_client(way, port, count, size, stack):
    client = subprocess.Popen([MANY, way.address, str(port), str(count), str(size)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=measure.environment(way))
    stack.callback(measure.end, client)
    stack.callback(client.stdout.close)
    stack.callback(client.stdin.close)
    line = client.stdout.readline()
    if not line:
        raise measure.Failure("prog_many: run over %s with %d connections: exit code %s" % (
            way.name, count, client.wait(60)))
    return client, json.loads(line)["per_second"]


def one_run(way, count, size, quiet, pairs):
    """Opens `count` connections one after the other, spread over pairs of a server and a client."""
    with contextlib.ExitStack() as stack:
        servers, clients, rates, before = [], [], [], 0
        for index in range(pairs):
            port = measure.free_port(way.address)
            server = stack.enter_context(measure.server(way, [FLOWS, "echo", way.address, str(port)], port))
            before += 2 * pss_kib(server.pid)
            client, rate = run_client(way, port, count // pairs + (index < count % pairs), size, stack)
            servers.append(server.pid)
            clients.append(client)
            rates.append(rate)
        processes = servers + [client.pid for client in clients]
        result = {"way": way.name, "connections": count, "pairs": pairs,
                  "connects_per_second": measure.median(rates)}
        result["busy_kib_per_end"] = (sum(map(pss_kib, processes)) - before) / (2 * count)
        time.sleep(quiet)
        result["quiet_kib_per_end"] = (sum(map(pss_kib, processes)) - before) / (2 * count)
        result["mappings"] = max(map(mappings, servers))
        result["descriptors"] = max(map(descriptors, servers))
        if way.env:
            result["with_pipes"], result["why_not"] = 0, {}
            for pid in servers:
                pipes, reasons = carried(pid)
                result["with_pipes"] += pipes
                for reason, times in reasons.items():
                    result["why_not"][reason] = result["why_not"].get(reason, 0) + times
        for client in clients:
            client.stdin.write("again\n")
            client.stdin.flush()
            if client.stdout.readline() != "again\n":
                raise measure.Failure("prog_many: round trips over %s after %s s: it ended" % (way.name, quiet))
        return result


def row(result):
    pipes = result.get("with_pipes")
    return ["%d" % result["connections"], result["way"], "-" if pipes is None else "%d" % pipes,
            "%.1f" % result["busy_kib_per_end"], "%.1f" % result["quiet_kib_per_end"], "%d" % result["mappings"],
            "%d" % result["descriptors"], "%.0f" % result["connects_per_second"]]


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    options.add_argument("--json")
    options.add_argument("--counts", default="1,1000,10000,50000")
    options.add_argument("--bytes", type=int, default=65536)
    options.add_argument("--quiet", type=float, default=6)
    options = options.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = []
    try:
        for count in (int(word) for word in options.counts.split(",")):
            pairs = -(-count * 3 // (hard * 2))  # the library has its own in the upper quarter
            for way in (measure.kernel_tcp(), measure.one_machine()):
                results.append(one_run(way, count, options.bytes, options.quiet, pairs))
                print(".", end="", file=sys.stderr, flush=True)
    except (measure.Failure, subprocess.SubprocessError, OSError, ValueError) as error:
        sys.exit("bench_connections: %s" % error)
    print(file=sys.stderr)
    print(measure.table(["connections", "way", "with pipes", "KiB/end busy", "KiB/end quiet", "mappings",
                         "descriptors", "connects/s"], [row(result) for result in results]))
    for result in results:
        for reason, count in result.get("why_not", {}).items():
            print("%d connections, %d not by pipes: %s" % (result["connections"], count, reason))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
