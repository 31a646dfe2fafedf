#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The container image: it is built, its daemon comes up, and two containers of it are joined; with podman, two with a network of their own, too.
`make container-check`.

usage: check_container.py [--image NAME]

Exit code 77, with the reason, where there is no engine that works, or no base image can be had. Without --image the image
is built by packaging/Containerfile, which takes some minutes. VIADUCT_CONTAINER_ENGINE (with options, such as
"podman --runtime runc"), VIADUCT_CONTAINER_BUILD and VIADUCT_CONTAINER_RUN are more options for the engine, its build and its run.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD_S = 3600
WAIT_S = 300  # a container takes a minute where layers are copied (storage driver vfs) on a busy machine
NAME = "viaduct-check-%d" % os.getpid()
BASE = "docker.io/library/debian:12"
CONF = """[host]
id = %d
name = node%d
[fabric]
name = containers
key = /etc/viaduct/fabric.key
[link other]
to = %s
peer = %d
"""

VIADUCTD = os.path.join(os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or os.path.join(ROOT, "build", "dev", "bin")), "viaductd")
# Of podman's own network, whose addresses begin with 10.88.
ADDRESSES = {1: "10.88.77.2", 2: "10.88.77.3"}
PRELOAD = "/usr/lib/x86_64-linux-gnu/libviaduct-preload.so"
BYTES = 10_000_000
# A server, which prints the number of received bytes, and a client. Neither uses Viaduct.
SERVER = """use IO::Socket::INET; my $l = IO::Socket::INET->new(LocalPort => 7000, Listen => 1) or die; my $c = $l->accept or die; my $n = 0;
while (my $got = sysread($c, my $data, 65536)) { $n += $got } print "got $n\\n"; sleep 30 """
CLIENT = """use IO::Socket::INET; my $s; for (1 .. 300) { $s = IO::Socket::INET->new(PeerAddr => "%s", PeerPort => 7000) and last; select(undef, undef, undef, 0.1) }
my $left = %d; while ($left) { my $done = syswrite($s, "x" x ($left < 65536 ? $left : 65536)) or die; $left -= $done } shutdown($s, 1); sleep 30 """


class Skip(Exception):
    pass


class Failure(Exception):
    pass


def call(*words, timeout=WAIT_S, check=True):
    words = words[0].split() + list(words[1:])
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Failure("%s: no end within %d s" % (" ".join(words[:3]), timeout)) from None
    if check and done.returncode != 0:
        raise Failure("%s: %s" % (" ".join(words[:3]), (done.stderr or done.stdout).strip()[-1500:]))
    return done


def more(name):
    return os.environ.get(name, "").split()


def find_engine():
    reasons = []
    wanted = os.environ.get("VIADUCT_CONTAINER_ENGINE")
    for name in [wanted] if wanted else ["podman", "docker"]:
        if not shutil.which(name.split()[0]):
            reasons.append("no %s" % name)
            continue
        done = call(name, "info", check=False)
        if done.returncode == 0:
            return name
        reasons.append("%s: %s" % (name, (done.stderr or done.stdout).strip().splitlines()[-1]))
    raise Skip("; ".join(reasons))


def build(engine):
    have = call(engine, "image", "inspect", BASE, check=False).returncode == 0
    if not have and call(engine, "pull", "-q", BASE, timeout=600, check=False).returncode != 0:
        raise Skip("%s: can not pull %s" % (engine, BASE))
    call(engine, "build", *more("VIADUCT_CONTAINER_BUILD"), "-t", NAME, "-f",
         os.path.join(ROOT, "packaging", "Containerfile"), ROOT, timeout=BUILD_S)
    return NAME


class Containers:
    def __init__(self, engine, image, folder):
        self.engine = engine
        self.image = image
        self.folder = folder
        self.kind = "ofi"

    def name(self, host):
        return "%s-node%d" % (NAME, host)

    def write(self, host):
        etc = os.path.join(self.folder, "etc-%d" % host)
        os.makedirs(etc, exist_ok=True)
        key = os.path.join(etc, "fabric.key")
        if not os.path.exists(key):
            with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
                file.write("a key that is for this test only" * 2)
        with open(os.path.join(etc, "host.conf"), "w", encoding="ascii") as conf:
            # They share a network namespace, so one of them listens at another port.
            conf.write(CONF % (host, host, self.target(host), 3 - host))
        return etc

    def target(self, host):
        if self.kind == "ofi":
            return "ofi:tcp://127.0.0.1" if host == 1 else "ofi:tcp://127.0.0.1:7473,listen=127.0.0.1"
        return "emu:/run/cables/link.sock,side=%d" % (host - 1)

    def start(self, host):
        cables = os.path.join(self.folder, "cables")
        os.makedirs(cables, exist_ok=True)
        network = ["--network", "none"] if host == 1 else ["--network", "container:" + self.name(1)]
        call(self.engine, "run", "-d", "--name", self.name(host), *network, *more("VIADUCT_CONTAINER_RUN"), "-v",
             "%s:/etc/viaduct:ro" % self.write(host), "-v", "%s:/run/cables" % cables, self.image)

    def inside(self, host, *words, check=True):
        return call(self.engine, "exec", self.name(host), *words, check=check)

    def wait_linked(self, host):
        deadline = time.monotonic() + WAIT_S
        while True:
            done = self.inside(host, "viaduct", "status", "--json", check=False)
            links = json.loads(done.stdout)["links"] if done.returncode == 0 else []
            if links and all(link["state"] == "up" for link in links):
                return
            if time.monotonic() > deadline:
                logs = call(self.engine, "logs", self.name(host), check=False)
                raise Failure("container %d: link: not up within %d s: %s%s" %
                              (host, WAIT_S, done.stdout + done.stderr, logs.stdout + logs.stderr))
            time.sleep(0.1)

    def remove(self):
        for host in (2, 1):
            call(self.engine, "rm", "-f", self.name(host), check=False)


def check_bridge(engine, image, folder):
    """docs/install.md, "Sockets between containers": a daemon for each outside, and a cable between the daemons."""
    done = call(engine, "run", "--rm", *more("VIADUCT_CONTAINER_RUN"), "--ip", ADDRESSES[1], "--entrypoint", "true", image, check=False)
    if "podman" not in engine or done.returncode != 0 or not os.path.exists(VIADUCTD):
        print("no network of containers: not tried: %s" % (done.stderr.strip()[-200:] or "needs podman and %s" % VIADUCTD), flush=True)
        return
    daemons = []
    names = {host: "%s-bridge%d" % (NAME, host) for host in ADDRESSES}
    try:
        os.makedirs(os.path.join(folder, "wires"), 0o700)
        for host in ADDRESSES:
            rundir = os.path.join(folder, "run-%d" % host)
            os.makedirs(rundir, 0o711)
            daemons.append(subprocess.Popen([VIADUCTD, "--foreground", "--host", str(host), "--name", "c%d" % host, "--rundir", rundir, "--address",
                                             ADDRESSES[host], "--link", "%d=emu:%s/wires/1-2,side=%d,nodirect" % (3 - host, folder, host - 1)]))
        for host, program in ((1, SERVER), (2, CLIENT % (ADDRESSES[1], BYTES))):
            call(engine, "run", "-d", "--name", names[host], *more("VIADUCT_CONTAINER_RUN"), "--ip", ADDRESSES[host], "-v",
                 "%s/run-%d:/run/viaduct" % (folder, host), "-e", "LD_PRELOAD=" + PRELOAD, "--entrypoint", "perl", image, "-e", "$| = 1; " + program)
        deadline = time.monotonic() + WAIT_S
        while "got %d\n" % BYTES not in call(engine, "logs", names[1], check=False).stdout:
            if time.monotonic() > deadline:
                raise Failure("sockets between containers: %s" % [call(engine, "logs", name, check=False) for name in names.values()])
            time.sleep(0.1)
        status = subprocess.run([os.path.join(os.path.dirname(VIADUCTD), "viaduct"), "status", "--json"], capture_output=True, text=True, check=True,
                                env={**os.environ, "VIADUCT_RUNDIR": os.path.join(folder, "run-1"), "VIADUCT_HOST": "1"})
        carried = max(link[key] for link in json.loads(status.stdout)["links"] for key in link if "bytes" in key and isinstance(link[key], int))
        if carried < BYTES // 2:  # the kernel carries the first ones
            raise Failure("sockets between containers: the cable has carried %d of %d bytes" % (carried, BYTES))
        print("sockets between containers of podman's network: %d bytes by the cable" % carried, flush=True)
    finally:
        for name in names.values():
            call(engine, "rm", "-f", "-t", "0", name, check=False)
        for daemon in daemons:
            daemon.terminate()
            daemon.wait(WAIT_S)


def check(engine, image, folder):
    containers = Containers(engine, image, folder)
    done = call(engine, "run", "--rm", "--network", "none", *more("VIADUCT_CONTAINER_RUN"), "--entrypoint", "viaduct", image, "doctor", check=False)
    print(done.stdout + done.stderr, flush=True)
    containers.write(1)
    done = call(engine, "run", "--rm", "--network", "none", *more("VIADUCT_CONTAINER_RUN"), "-v", "%s/etc-1:/etc/viaduct:ro" % folder, image,
                "--check", check=False)
    if done.returncode != 0 and "there is no driver 'ofi'" in done.stderr:
        print("no links by ofi in this build: by emu, then", flush=True)
        containers.kind = "emu"
    elif done.returncode != 0:
        raise Failure("viaductd --check: %s" % done.stderr.strip())
    try:
        for host in (1, 2):
            containers.start(host)
        for host in (1, 2):
            containers.wait_linked(host)
        print(containers.inside(2, "viaduct", "status").stdout, flush=True)
        call(engine, "kill", "--signal", "KILL", containers.name(2))
        call(engine, "start", containers.name(2))
        containers.wait_linked(2)
        for host in (1, 2):
            call(engine, "stop", "-t", "10", containers.name(host))
            code = call(engine, "inspect", "--format", "{{.State.ExitCode}}", containers.name(host)).stdout.strip()
            if code != "0":
                raise Failure("container %d: end by SIGTERM: exit code %s" % (host, code))
    finally:
        containers.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", help="take this one instead of building it")
    options = parser.parse_args()
    image = None
    try:
        engine = find_engine()
        image = options.image or build(engine)
        with tempfile.TemporaryDirectory(prefix="viaduct-container-") as folder:
            check(engine, image, folder)
            check_bridge(engine, image, folder)
    except Skip as reason:
        print("skipped: %s" % reason)
        return 77
    except Failure as failure:
        print("FAILED: %s" % failure)
        return 1
    finally:
        if image == NAME:
            call(engine, "rmi", "-f", NAME, check=False)
    print("PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
