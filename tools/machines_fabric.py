# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Configures a fabric over the machines of a lab: host I on nodeI, a viaductd on each.

A machine gets /etc/viaduct/host.conf, /etc/viaduct/fabric.key and an /etc/rc.local that starts the daemon, so a
machine that boots again joins the fabric again.
"""
import os
import subprocess
import tempfile

from machines_keeper import address

CONF = "/etc/viaduct/host.conf"
KEY = "/etc/viaduct/fabric.key"
RUNDIR = "/run/viaduct"
# Drivers of links between machines. The cables of emu are sockets in /run/lab, which all machines share: they do not
# use the network, so its faults do not affect them.
KINDS = ("ofi", "emu")


def ring(count):
    return [(i, i % count + 1) for i in range(1, count + 1)] if count > 2 else [(1, 2)]


def mesh(count):
    return [(a, b) for a in range(1, count + 1) for b in range(a + 1, count + 1)]


def target(kind, a, b, host):
    if kind == "emu":
        return "emu:/run/lab/link-%d-%d.sock,side=%d" % (a, b, host == b)
    return "ofi:tcp://node%d" % (b if host == a else a)


def host_conf(host, links, kind, sections=None):
    """The text of a host's file. sections: {section: {key: value}} besides, or instead of what is written here."""
    found = {"host": {"id": host, "addresses": address(host)}, "fabric": {"name": "lab", "key": KEY}}
    for a, b in links:
        if host in (a, b):
            peer = b if host == a else a
            found["link node%d" % peer] = {"to": target(kind, a, b, host), "peer": peer}
    for section, keys in (sections or {}).items():
        found.setdefault(section, {}).update(keys)
    return "".join("[%s]\n%s\n" % (section, "".join("%s = %s\n" % pair for pair in keys.items() if pair[1] is not None))
                   for section, keys in found.items())


def configure(lab, viaductd, links, kind, sections=None, boot=False):
    """Writes the files of all machines. With boot, machines start their daemons themselves when they boot."""
    key = os.urandom(32).hex() + "\n"
    for m in lab:
        m.run(["mkdir", "-p", os.path.dirname(CONF)])
        m.write(KEY, key, 0o600)
        m.write(CONF, host_conf(m.index, links, kind, sections))
        if boot:
            m.write("/etc/rc.local", "#!/bin/sh\nexec '%s' --config %s\n" % (viaductd, CONF), 0o755)


def kinds(viaductd):
    """{kind: None, or why links of this kind can not be used by this build}"""
    found = {}
    for kind in KINDS:
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write(host_conf(1, [(1, 2)], kind, {"host": {"rundir": "/nowhere"}, "fabric": {"key": None}}))
            conf.flush()
            done = subprocess.run([viaductd, "--config", conf.name, "--check"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, check=False, timeout=60)
        found[kind] = None if done.returncode == 0 else (done.stderr or done.stdout).strip().splitlines()[-1]
    return found
