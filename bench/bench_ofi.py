#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Compares an ofi port over tcp with libfabric's own fi_pingpong over the same provider, on loopback: half of a round trip
of 8 bytes and of 1 MiB, plain and encrypted; medians of interleaved rounds. With more runnable threads than CPUs the ratio means little.

usage: bench_ofi.py [--json FILE] [--pairs N]"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("VIADUCT_BUILD_DIR", os.path.join(ROOT, "build", "release", "bin"))
SIZES = ((8, 20000), (1 << 20, 500))
HANG_S = 60


def addresses():
    pid = os.getpid()
    return ["127.%d.%d.%d" % (192 + (pid >> 8) % 32, pid & 0xff, host) for host in (1, 2)]


def port(size, times, *more):
    done = subprocess.run([os.path.join(BIN, "tests", "prog_ofi"), str(size), str(times), *addresses(), *more], capture_output=True,
                          text=True, timeout=HANG_S, check=True)
    return float(done.stdout)


def provider(size, times):
    """Microseconds of a transfer, as fi_pingpong prints it."""
    words = ["fi_pingpong", "-p", "tcp", "-e", "msg", "-I", str(times), "-S", str(size)]
    place = ["-B", str(20000 + os.getpid() % 20000)]
    server = subprocess.Popen(words + place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            client = subprocess.run(words + ["-P", place[1], "127.0.0.1"], capture_output=True, text=True, timeout=HANG_S,
                                    check=False)
            if client.returncode == 0:
                break
        lines = [line.split() for line in client.stdout.splitlines()]
        if client.returncode != 0 or len(lines) < 2:
            raise RuntimeError("fi_pingpong: %s%s" % (client.stdout, client.stderr))
        row = dict(zip(lines[-2], lines[-1])) if len(lines[-2]) == len(lines[-1]) else {}
        return float(row.get("usec/xfer") or re.search(r"([\d.]+)\s+[\d.]+\s*$", client.stdout).group(1))
    finally:
        server.kill()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    if shutil.which("fi_pingpong") is None:
        print("bench_ofi.py: fi_pingpong is missing (libfabric-bin): nothing to compare with", file=sys.stderr)
        return 0
    rows = []
    print("%8s  %12s  %12s  %12s  %10s  %15s  %s" %
          ("bytes", "port us", "encrypted us", "provider us", "time ratio", "encrypted ratio", "rounds"))
    for size, times in SIZES:
        rounds = [(port(size, times), port(size, times, "encrypt"), provider(size, times)) for _ in range(options.pairs)]
        row = {"bytes": size, "rounds": rounds, "ratio": statistics.median(a / b for a, _, b in rounds),
               "encrypted_ratio": statistics.median(a / b for _, a, b in rounds)}
        for i, name in enumerate(("port_us", "encrypted_us", "provider_us")):
            row[name] = statistics.median(figures[i] for figures in rounds)
        rows.append(row)
        print("%8d  %12.2f  %12.2f  %12.2f  %10.2f  %15.2f  %d" %
              (size, row["port_us"], row["encrypted_us"], row["provider_us"], row["ratio"], row["encrypted_ratio"], len(rounds)))
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump({"bench": "ofi", "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
