# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Installs, uses, upgrades and purges the packages of `make deb` in fresh Debian systems below a temporary directory.

    check_packages.py DIRECTORY_OF_PACKAGES [SUITE...]     (default: bookworm trixie)

Each suite is bootstrapped by mmdebstrap from Debian's archive; programs in it run in namespaces of their own, so they see
and leave nothing of this machine. Needs root, mmdebstrap and Debian's archive; exit code 77 without them.
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import supervise  # noqa: E402

SKIPPED = 77
# Of one step; the longest installs gcc and Open MPI, which takes a quarter of an hour where other programs keep the CPUs and the disk busy.
HANG_S = 3600
MIRROR = "http://deb.debian.org/debian"
NEXT = "0.1.0+next1"

# The programs of an owner: what each package is for, once.
USE = r"""
set -eux
viaduct --version
viaductd --version
viaduct doctor || true
viaduct up --ring 2
viaduct status
viaduct perf pingpong --iterations 1000
viaduct run --host 1 -- true
viaduct down
# A link over libfabric, whose major version is 1 in Debian 12 and 2 in Debian 13.
daemons=
for i in 1 2; do
    mkdir -m 700 /run/end$i
    viaductd --foreground --host $i --rundir /run/end$i --link $((3 - i))=ofi:tcp://127.0.0.1:2947$((3 - i)),listen=127.0.0.1:2947$i \
        > /tmp/end$i.log 2>&1 &
    daemons="$daemons $!"
done
for n in $(seq 600); do grep -q 'link 0 .* up' /tmp/end1.log && grep -q 'link 0 .* up' /tmp/end2.log && break; sleep 0.1; done
cat /tmp/end1.log /tmp/end2.log
grep -q 'link 0 .* up' /tmp/end1.log
grep -q 'link 0 .* up' /tmp/end2.log
kill $daemons
wait $daemons || true
rm -r /run/end1 /run/end2 /tmp/end1.log /tmp/end2.log
cat > /tmp/echo.py <<'END'
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
def serve():
    peer = listener.accept()[0]
    peer.sendall(peer.recv(100))
threading.Thread(target=serve).start()
client = socket.create_connection(listener.getsockname())
client.sendall(b"as before")
assert client.recv(100) == b"as before"
END
viaduct sockets -- python3 /tmp/echo.py
LD_PRELOAD=libviaduct-preload.so python3 /tmp/echo.py
oshinfo > /dev/null
cp /usr/share/doc/viaduct/examples/hello.c /tmp/hello.c
oshcc -O2 /tmp/hello.c -o /tmp/hello
oshrun -n 2 /tmp/hello
printf '#include <viaduct/viaduct.h>\nint main(void) { return 0; }\n' > /tmp/attach.c
cc /tmp/attach.c -o /tmp/attach $(pkg-config --cflags --libs viaduct)
/tmp/attach
viaduct sim paper c > /dev/null
rm -f /tmp/echo.py /tmp/hello /tmp/hello.c /tmp/attach /tmp/attach.c
"""


class Root:
    """A Debian system in a directory."""

    def __init__(self, path, suite):
        self.path = path
        self.suite = suite

    def bootstrap(self):
        # Without fsync(): the system lasts as long as the test.
        run(["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet", "--dpkgopt=force-unsafe-io", self.suite, str(self.path), MIRROR])
        # Services are not started in a system that was not booted.
        policy = self.path / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
        policy.chmod(0o755)

    def inside(self, script):
        """Words that run a command in the system, with pid, mount and IPC namespaces of its own; its children end with it."""
        inside = ("mount -t proc proc '{0}/proc' && mount -t tmpfs -o size=1G tmpfs '{0}/dev/shm' && "
                  "mount -t tmpfs tmpfs '{0}/run' && exec chroot '{0}' /bin/sh -c \"$1\"").format(self.path)
        (self.path / "dev/shm").mkdir(exist_ok=True)
        return {"args": ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--", "/bin/sh", "-c", inside, "sh", script],
                "env": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "HOME": "/root"}}

    def run(self, script):
        inside = self.inside(script)
        run(inside["args"], env=inside["env"])

    def files(self):
        """Every path, but for those that dpkg, apt and ld.so keep for themselves."""
        own = re.compile(r"^(proc|run|sys|dev|tmp|var/(lib/(dpkg|apt|systemd|ucf)|cache|log|tmp)|etc/ld\.so\.cache|root)(/|$)|__pycache__")
        return {str(p.relative_to(self.path)) for p in self.path.rglob("*") if not own.search(str(p.relative_to(self.path)))}


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False, **options)
    if done.returncode != 0:
        sys.exit("%s\nexit code %d: %s" % (done.stdout[-6000:], done.returncode, " ".join(command)[:400]))
    return done.stdout


def make_next(packages, target):
    """The same packages with a later version."""
    target.mkdir()
    for package in packages:
        with tempfile.TemporaryDirectory(dir=target) as tree:
            run(["dpkg-deb", "-R", str(package), tree])
            control = pathlib.Path(tree, "DEBIAN/control")
            text = control.read_text(encoding="utf-8")
            version = re.search(r"^Version: (.*)$", text, re.M).group(1)
            control.write_text(text.replace("Version: " + version, "Version: " + NEXT)
                               .replace("(= %s)" % version, "(= %s)" % NEXT), encoding="utf-8")
            run(["dpkg-deb", "--root-owner-group", "-b", tree, str(target)])


def check_suite(suite, packages, scratch):
    root = Root(scratch / suite, suite)
    print(suite, ": bootstrap", sep="", flush=True)
    root.bootstrap()
    root.run("apt-get update -qq && apt-get install -qq --no-install-recommends gcc libc6-dev pkg-config python3 openmpi-bin libopenmpi-dev "
             "libfabric1 libsodium23 libjansson4 libmicrohttpd12 libncursesw6 systemd")
    before = root.files()
    first, later = root.path / "tmp/first", root.path / "tmp/later"
    first.mkdir()
    for package in packages:
        shutil.copy(package, first)
    make_next(packages, later)
    names = " ".join(sorted(package.name.split("_")[0] for package in packages))
    print(suite, ": install, use", sep="", flush=True)
    root.run("apt-get install -qq --no-install-recommends /tmp/first/*.deb")
    root.run(USE)
    root.run("test \"$(readlink /usr/bin/oshrun.openmpi)\" = mpirun.openmpi")
    print(suite, ": upgrade, use", sep="", flush=True)
    root.run("apt-get install -qq --no-install-recommends /tmp/later/*.deb && dpkg-query -W viaduct | grep -qF '%s'" % NEXT)
    root.run(USE)
    print(suite, ": purge", sep="", flush=True)
    # Only ours: what they needed was there before.
    root.run("dpkg --purge %s && test -z \"$(dpkg-divert --list '*osh*')\" && dpkg --audit" % names)
    left, lost = sorted(root.files() - before), sorted(before - root.files())
    if left or lost:
        sys.exit("%s: left after purge: %s; lost: %s" % (suite, left[:20], lost[:20]))
    print(suite, ": installed, used, upgraded, purged; nothing left", sep="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("suites", nargs="*", default=["bookworm", "trixie"])
    arguments = parser.parse_args()
    for reason, missing in (("not root", os.geteuid() != 0), ("no mmdebstrap", shutil.which("mmdebstrap") is None)):
        if missing:
            print("skipped:", reason)
            return SKIPPED
    packages = [p for p in sorted(arguments.directory.glob("*.deb")) if "-dbgsym" not in p.name]
    if not packages:
        sys.exit("%s: no packages: make deb" % arguments.directory)
    supervise.begin()
    with tempfile.TemporaryDirectory(prefix="viaduct-packages-") as scratch, contextlib.suppress(KeyboardInterrupt):
        for suite in arguments.suites:
            check_suite(suite, packages, pathlib.Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
