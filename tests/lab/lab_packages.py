# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""QEMU, a kernel and a static busybox from Debian's archive, unpacked into a cache; nothing is installed.

apt checks signatures and sums. The cache is $VIADUCT_LAB_CACHE, or viaduct/lab in the user's cache; delete it at will.
"""
import contextlib
import fcntl
import glob
import os
import shutil
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# QEMU below 10 miscompiles code of the guest's kernel without KVM, and has no vfio-user.
SUITE_QEMU = "trixie-backports"
SUITE = "trixie"
# Increase it when other packages are unpacked, or in another way.
VERSION = "1"
APT = """Dir::State "{0}"; Dir::State::status "{0}/status"; Dir::Cache "{0}/cache"; Dir::Etc::sourcelist "{0}/sources";
Dir::Etc::sourceparts "-"; Dir::Etc::preferencesparts "-"; APT::Install-Recommends "0";
APT::Sandbox::User "root"; APT::Keep-Downloaded-Packages "1"; Acquire::Retries "2"; Acquire::http::Timeout "20";
"""


class Missing(Exception):
    """Why there can be no lab here."""


def folder():
    return os.environ.get("VIADUCT_LAB_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "viaduct", "lab")


def mirror():
    with contextlib.suppress(OSError), open("/etc/apt/sources.list.d/debian.sources", encoding="utf-8") as file:
        for line in file:
            if line.startswith("URIs: "):
                return line.split()[1]
    return "http://deb.debian.org/debian"


def run(words, env, cwd):
    done = subprocess.run(words, env=env, cwd=cwd, text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=900, check=False)
    if done.returncode != 0:
        raise Missing("%s: %s" % (" ".join(words), (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]))
    return done.stdout


def fetch(at):
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise Missing("%s is not installed" % tool)
    if not os.path.exists(KEYRING):
        raise Missing("%s is not there" % KEYRING)
    apt = os.path.join(at, "apt")
    for name in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(apt, name))
    for name, text in (("status", ""), ("conf", APT.format(apt)), ("sources", "".join(
            "deb [signed-by=%s] %s %s main\n" % (KEYRING, mirror(), suite) for suite in (SUITE, SUITE_QEMU)))):
        with open(os.path.join(apt, name), "w", encoding="utf-8") as file:
            file.write(text)
    env = {**os.environ, "APT_CONFIG": os.path.join(apt, "conf"), "LC_ALL": "C"}
    run(["apt-get", "-q", "update"], env, at)
    run(["apt-get", "-qy", "-t", SUITE_QEMU, "-d", "install", "qemu-system-x86"], env, at)
    unpack(glob.glob(os.path.join(apt, "cache/archives/*.deb")), os.path.join(at, "qemu"), env)
    depends = run(["apt-cache", "depends", "linux-image-cloud-amd64/" + SUITE], env, at)
    kernel = next(line.split()[1] for line in depends.splitlines() if line.split()[0] == "Depends:")
    debs = os.path.join(at, "debs")
    os.mkdir(debs)
    run(["apt-get", "-q", "download", kernel, "busybox-static/" + SUITE], env, debs)
    unpack(glob.glob(os.path.join(debs, "*.deb")), os.path.join(at, "guest"), env)
    shutil.rmtree(apt)
    shutil.rmtree(debs)


def unpack(debs, at, env):
    os.mkdir(at)
    for deb in debs:
        run(["dpkg", "-x", deb, at], env, at)


def one(pattern):
    found = glob.glob(pattern)
    if len(found) != 1:
        raise Missing("%s: %d files, one is expected: delete the cache" % (pattern, len(found)))
    return found[0]


class Packages:
    """Paths of what was unpacked."""

    def __init__(self, at):
        root = os.path.join(at, "qemu", "usr")
        self.qemu = [os.path.join(root, "lib64/ld-linux-x86-64.so.2"), "--library-path", os.path.join(root, "lib/x86_64-linux-gnu"),
                     os.path.join(root, "bin/qemu-system-x86_64"), "-L", os.path.join(root, "share/qemu"),
                     "-L", os.path.join(root, "share/seabios"), "-L", os.path.join(root, "lib/ipxe/qemu")]
        self.kernel = one(os.path.join(at, "guest/boot/vmlinuz-*"))
        self.modules = one(os.path.join(at, "guest/usr/lib/modules/*"))
        self.busybox = os.path.join(at, "guest/usr/bin/busybox")


def get():
    """Fetches what is not in the cache. Raises Missing."""
    if os.uname().machine != "x86_64":
        raise Missing("the guests are of x86_64, this machine is of %s" % os.uname().machine)
    cache = folder()
    try:
        os.makedirs(cache, exist_ok=True)
        with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            at = os.path.join(cache, VERSION)
            if not os.path.exists(at):
                part = at + ".part"
                shutil.rmtree(part, ignore_errors=True)
                os.mkdir(part)
                fetch(part)
                os.rename(part, at)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing("%s: %s" % (cache, error)) from error
    return Packages(at)
