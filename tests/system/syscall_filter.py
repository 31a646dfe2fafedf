# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs a program as systemd does with the SystemCallFilter= of a unit; but a call that is not allowed ends it.

    syscall_filter.py UNIT COMMAND...
    allowed(unit)   the calls, or None: systemd-analyze or libseccomp is missing
"""
import ctypes
import os
import re
import subprocess
import sys

KILL_PROCESS, ALLOW = 0x80000000, 0x7fff0000


def load_libseccomp():
    try:
        return ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None


def expand(name):
    """The calls of a set, which may have others in it."""
    if not name.startswith("@"):
        return {name}
    out = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True).stdout
    calls = set()
    for line in out.splitlines():
        found = re.fullmatch(r" +(@?[a-z0-9_-]+)", line)
        if found:
            calls |= expand(found.group(1))
    return calls


def allowed(unit):
    if load_libseccomp() is None:
        return None
    with open(unit, encoding="utf-8") as file:
        names = re.search(r"(?m)^SystemCallFilter=(.*)$", file.read()).group(1).split()
    try:
        return set().union(*(expand(name) for name in names))
    except (OSError, subprocess.CalledProcessError):
        return None


def main():
    unit, command = sys.argv[1], sys.argv[2:]
    calls = allowed(unit)
    lib = load_libseccomp()
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(KILL_PROCESS)))
    for name in calls:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            lib.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0)
    if lib.seccomp_load(context) != 0:
        sys.exit("seccomp_load failed")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
