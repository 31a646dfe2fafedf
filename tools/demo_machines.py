# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The demo's scene with two machines: a link over libfabric between daemons that share only a network."""
import json
import os
import re
import subprocess
import time

import machines_fabric
import machines_lab
import measure

VIADUCTD = os.path.join(measure.BIN, "viaductd")
DELIVER = os.path.join(measure.BIN, "tests", "prog_deliver")
MIB = 1 << 20
ROUNDS = 3


def reason_to_skip():
    return machines_lab.missing() or machines_fabric.kinds(VIADUCTD)["ofi"]


def wait_for(what, condition):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise measure.Failure("two machines: %s: not within 20 s" % what)
        time.sleep(0.02)


def is_linked(lab):
    done = lab[1].run([measure.VIADUCT, "status", "--json"], check=False)
    if done.returncode != 0:
        return False
    status = json.loads(done.stdout)
    return [host["state"] for host in status["hosts"]] == ["up", "up"] and status["links"][0]["state"] == "up"


def wait_until_linked(lab):
    wait_for("link", lambda: is_linked(lab))


def is_listening(machine, port):
    with open("/proc/%d/net/tcp6" % machine.pid, encoding="ascii") as six, \
            open("/proc/%d/net/tcp" % machine.pid, encoding="ascii") as four:
        return re.search(r":%04X 0+:0000 0A|:%04X [0]{32}:0000 0A" % (port, port), six.read() + four.read()) is not None


def tcp_gbits(lab):
    server = lab[2].start(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for("iperf3", lambda: is_listening(lab[2], 5201))
        out = json.loads(lab[1].run(["iperf3", "-c", "node2", "-n", str(512 * MIB), "-J"]).stdout)
    finally:
        server.kill()
        server.wait()
    return out["end"]["sum_received"]["bits_per_second"] / 1e9


def put_figures(lab, *words, direct=True):
    """(Gbit/s, microseconds of an 8-byte put with its answer). words: "connect", or none. Not direct: by frames."""
    env = [{**os.environ, "VIADUCT_RUNDIR": machines_fabric.RUNDIR, "VIADUCT_HOST": str(host), "VIADUCT_DIRECT": "" if direct else "off"}
           for host in (1, 2)]
    memory = lab[2].start([DELIVER, "memory", "1", str(MIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env[1])
    try:
        line = memory.stdout.readline()
        if line != "ready\n":
            raise measure.Failure("two machines: memory: %s" % line)
        out = lab[1].run([DELIVER, "put", "2", str(MIB), "0.3", *words], env=env[0]).stdout
    finally:
        memory.communicate()
    found = re.search(r"bandwidth ([\d.e+]+) Gbit/s\nput ([\d.]+) us", out)
    if not found:
        raise measure.Failure("two machines: put: %s" % out)
    return float(found.group(1)), float(found.group(2))


def scene(say):
    """The figures; None when it was skipped."""
    say("Two machines (namespaces) that share nothing but a network, a viaductd on each, linked by ofi:tcp:")
    reason = reason_to_skip()
    if reason:
        say("  skipped: %s" % reason)
        return None
    with machines_lab.Lab(2, "demo-%d" % os.getpid()) as lab:
        machines_fabric.configure(lab, VIADUCTD, [(1, 2)], "ofi", boot=True)
        begin = time.monotonic()
        for m in lab:
            m.run(["/etc/rc.local"])
        wait_until_linked(lab)
        took = time.monotonic() - begin
        say("  both daemons started and linked within %.2f s; node1 says (viaduct status):" % took)
        status = lab[1].run([measure.VIADUCT, "status"]).stdout
        say("    " + "\n    ".join(status.strip().splitlines()))
        pairs = [(tcp_gbits(lab), *put_figures(lab)) for _ in range(ROUNDS)]
        tcp, gbits, put_us = (measure.median([pair[i] for pair in pairs]) for i in range(3))
        say("  puts of 1 MiB to the other machine's memory: %.1f Gbit/s (TCP between the same machines, iperf3: %.1f);"
            " 8 bytes and their answer: %.0f us;"
            " medians of %d pairs" % (gbits, tcp, put_us, ROUNDS))
        begin = time.monotonic()
        lab[2].kill()
        lab[2].boot()
        wait_until_linked(lab)
        say("  node2 lost its power and booted: linked again %.2f s after" % (time.monotonic() - begin))
    return {"put_gbits": gbits, "tcp_gbits": tcp, "put_us": put_us}
