#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Compares IP over the fabric with loopback and veth, in interleaved rounds, between emulated hosts in namespaces (root).

usage: bench_ip.py [--json FILE] [--rounds N] [--seconds S] [--queues N]

iperf3 measures one stream, four streams, and UDP datagrams of 8 KB sent without a rate limit, as counted by the
receiver. A ping is an ICMP echo, which the other host's kernel answers.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

FABRIC = "bench-ip-%d" % os.getpid()
PINGS = 400
PING = """
import os, socket, statistics, struct, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sock.settimeout(2)
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total & 0xffff) + (total >> 16)
    return 0xffff - (total & 0xffff) - (total >> 16)
times = []
for number in range(int(sys.argv[2])):
    body = struct.pack("!HH", os.getpid() & 0xffff, number) + bytes(56)
    packet = struct.pack("!BBH", 8, 0, checksum(b"\\x08\\x00\\x00\\x00" + body)) + body
    time.sleep(0.001)
    begin = time.perf_counter()
    sock.sendto(packet, (sys.argv[1], 0))
    while True:
        data = sock.recv(2000)
        if data[20] == 0 and data[24:28] == body[:4]:
            break
    times.append(time.perf_counter() - begin)
print(statistics.median(times) * 1e6)
"""


class Way:
    def __init__(self, name, address, server_host, client_host):
        self.name, self.address, self.server_host, self.client_host = name, address, server_host, client_host


LOOPBACK = Way("loopback", "127.0.0.1", 1, 1)
VETH = Way("veth", "10.77.0.2", 2, 1)
IP = Way("fabric", "10.78.0.2", 2, 1)
RELAY = Way("fabric, one relay", "10.78.0.3", 3, 1)
WAYS = [LOOPBACK, VETH, IP, RELAY]


def on(host, *words):
    return [measure.VIADUCT, "run", "--fabric", FABRIC, "--host", str(host), "--no-sockets", "--", *words]


def run(words, timeout=120):
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise measure.Failure("%s: %s" % (" ".join(words), (done.stderr or done.stdout).strip()[-300:]))
    return done.stdout


def iperf3(way, seconds, *extra):
    """Gbit/s as counted by the receiver, and the retransmitted segments (TCP) or the loss (UDP)."""
    server = subprocess.Popen(on(way.server_host, "iperf3", "-s", "-1", "-B", way.address),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):  # until it listens
            time.sleep(0.1)
            done = subprocess.run(on(way.client_host, "iperf3", "-c", way.address, "-t", str(seconds), "-J", *extra),
                                  capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0:
                break
        else:
            raise measure.Failure("iperf3 to %s: %s" % (way.address, done.stdout[-300:]))
    finally:
        measure.end(server)
    end = json.loads(done.stdout)["end"]
    if "-u" in extra:
        total = end["sum"]
        return {"gbit": total["bits_per_second"] / 1e9 * (1 - total["lost_percent"] / 100),
                "lost_percent": total["lost_percent"]}
    return {"gbit": end["sum_received"]["bits_per_second"] / 1e9, "retransmits": end["sum_sent"]["retransmits"]}


def ping(way):
    return {"us": float(run(on(way.client_host, "python3", "-c", PING, way.address, str(PINGS))))}


MEASURES = {
    "one stream, Gbit/s": ("gbit", lambda way, seconds: iperf3(way, seconds)),
    "four streams, Gbit/s": ("gbit", lambda way, seconds: iperf3(way, seconds, "-P", "4")),
    "UDP of 8 KB, Gbit/s": ("gbit", lambda way, seconds: iperf3(way, seconds, "-u", "-b", "0", "-l", "8000")),
    "ping, us": ("us", lambda way, seconds: ping(way)),
}


def measure_all(rounds, seconds):
    data = {name: {way.name: [] for way in WAYS} for name in MEASURES}
    for _ in range(rounds):
        for name, (_, take) in MEASURES.items():
            for way in WAYS:
                data[name][way.name].append(take(way, seconds))
    return data


def summarize(data):
    rows, medians = [], {}
    for name, (key, _) in MEASURES.items():
        medians[name] = {way: measure.median([figure[key] for figure in figures])
                         for way, figures in data[name].items()}
        rows.append([name] + ["%.2f" % medians[name][way.name] if key == "gbit" else "%.1f" % medians[name][way.name]
                              for way in WAYS])

    def ratio(name, way, other):
        """The median of the rounds' ratios: load of the machine affects both sides of a ratio alike."""
        key = MEASURES[name][0]
        return measure.median([a[key] / b[key] for a, b in zip(data[name][way.name], data[name][other.name])])

    targets = [("one stream, x loopback", ratio("one stream, Gbit/s", IP, LOOPBACK), ">=", 0.5),
               ("ping, x veth", ratio("ping, us", IP, VETH), "<=", 2.0)]
    verdicts = []
    for name, value, sign, target in targets:
        met = value >= target if sign == ">=" else value <= target
        verdicts.append([name, "%.2f" % value, "%s %.1f" % (sign, target), "met" if met else "MISSED"])
        medians[name] = {"value": value, "target": target, "met": met}
    return rows, verdicts, medians


def restart(queues):
    """Starts the devices with more queues: viaduct ip up starts only one."""
    processes = []
    run([measure.VIADUCT, "ip", "down", "--fabric", FABRIC])
    for host in (1, 2, 3):
        processes.append(subprocess.Popen(
            on(host, os.path.join(measure.BIN, "viaduct-ip"), "--host", str(host), "--queues", str(queues), "--with",
               str(os.getpid())), stderr=subprocess.DEVNULL))
    time.sleep(2)
    return processes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=1, help="of a stream (default 1)")
    parser.add_argument("--queues", type=int, default=1, help="queues of the devices (default 1)")
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun") or not shutil.which("ip"):
        print("bench_ip: skipped: it takes root, /dev/net/tun and iproute2")
        return 0
    processes = []
    try:
        measure.need("iperf3")
        run([measure.VIADUCT, "up", "--chain", "3", "--fabric", FABRIC, "--netns", "--ip", "--with",
             str(os.getpid())])
        if options.queues != 1:
            processes = restart(options.queues)
        data = measure_all(options.rounds, options.seconds)
    except (measure.Failure, subprocess.TimeoutExpired) as failure:
        print("bench_ip: %s" % failure, file=sys.stderr)
        return 1
    finally:
        for process in processes:
            measure.end(process)
        subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], capture_output=True, check=False)
    rows, verdicts, medians = summarize(data)
    print(measure.table(["medians of %d rounds" % options.rounds] + [way.name for way in WAYS], rows))
    print()
    print(measure.table(["median of the rounds' ratios", "got", "target", ""], verdicts))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"medians": medians, "rounds": data}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
