#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Follows the steps for several machines in docs/install.md and docs/security.md on three, with other addresses."""
import os
import re
import shutil
import subprocess

import fabric
import machines_case
from machines_case import BIN, HANG_S, ROOT, wait_for

import machines_fabric

CONF = machines_fabric.CONF
NETWORK = ("10.0.0.", "10.76.0.")


def blocks(page, begin, end):
    """The blocks of code of a page between two texts, for the network of the lab."""
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        text = file.read()
    part = text[text.index(begin):]
    part = part[:part.index(end)]
    found = re.findall(r"(?ms)^( *)```\n(.*?)^ *```$", part)
    return [re.sub("(?m)^" + indent, "", block).replace(*NETWORK) for indent, block in found]


@machines_case.unittest.skipIf(fabric.WHY_NOT["ofi"], fabric.WHY_NOT["ofi"])
class NMachines(machines_case.Case):
    count = 3

    def sh(self, machine, script, code=0, user=None, **more):
        words = ["env", "PATH=%s:%s:/usr/sbin:/sbin" % (BIN, os.environ["PATH"]), "HOME=/root",
                 *(["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else []), "sh", "-c", script]
        done = self.lab[machine].run(words, check=False, timeout=HANG_S, **more)
        self.assertEqual(done.returncode, code, "%s: %s%s" % (script, done.stdout, done.stderr))
        return done.stdout

    def tidy(self):
        for m in self.lab:
            for pid in m.pids("viaduct"):
                os.kill(pid, 9)

    def test_the_steps(self):
        self.addCleanup(self.tidy)
        key, conf, start, *_ = blocks("install.md", "2. **Make a key**", "**To add a machine,**")
        # Keys: the first line as it is. The second one copies by ssh, which machines of a lab lack.
        self.sh(1, key.splitlines()[0])
        self.assertEqual(os.stat(self.lab[1].path("/etc/viaduct/fabric.key")).st_mode & 0o777, 0o600)
        self.assertRegex(key.splitlines()[1], r"^for n in node2 node3; do ssh \$n mkdir -p /etc/viaduct; scp -p /etc/viaduct/fabric.key ")
        for machine in (2, 3):
            self.sh(machine, "mkdir -p /etc/viaduct")
            shutil.copy2(self.lab[1].path("/etc/viaduct/fabric.key"), self.lab[machine].path("/etc/viaduct/"))
        # Files: node1 has the file of the page, the others change it as the page says below.
        self.lab[1].write(CONF, conf)
        for machine in (2, 3):
            mine = conf.replace("id = 1", "id = %d" % machine).replace("addresses = 10.76.0.1", "addresses = 10.76.0.%d" % machine)
            self.lab[machine].write(CONF, mine.replace("[link node%d]\nto = ofi:tcp://10.76.0.%d\npeer = %d" % ((machine,) * 3),
                                                       "[link node1]\nto = ofi:tcp://10.76.0.1\npeer = 1"))
        self.sh(1, "viaductd --config %s --check" % CONF, code=2)  # there is no group hpc
        for m in self.lab:
            self.sh(m.index, "groupadd hpc && useradd -m -G hpc alice && useradd -m bob")
            output = self.sh(m.index, "viaductd --config /etc/viaduct/host.conf --check")
            self.assertIn("id = %d\n" % m.index, output)
        self.assertIn("systemctl enable --now viaductd", start)
        # Without systemd, in any order.
        for machine in (3, 1, 2):
            self.sh(machine, "viaductd --config /etc/viaduct/host.conf")
            self.assertTrue(os.path.exists(self.lab[machine].path("/var/log/viaduct/host-%d.log" % machine)))
        self.assertTrue(wait_for(lambda: self.sh(2, "viaduct status").count(" up ") == 6), self.sh(2, "viaduct status"))
        self.assertIn("ok ", self.sh(3, "viaduct doctor"))
        # Rights.
        attach = os.path.join(BIN, "tests", "prog_deliver")
        for user, works in (("alice", True), ("bob", False)):
            done = self.lab[1].run(["env", "VIADUCT_RUNDIR=/run/viaduct", "VIADUCT_HOST=1", "setpriv", "--reuid", user, "--regid", user, "--init-groups",
                                    attach, "memory", "2", "4096"], check=False, timeout=HANG_S)
            self.assertEqual("ready" in done.stdout, works, done.stdout + done.stderr)
            self.assertEqual("may not attach to host 1" in done.stdout, not works, done.stdout)
        # Another key, by a reload: both ends report it.
        self.sh(2, "viaduct cut 1 2 && viaduct mend 1 2")
        self.assertTrue(wait_for(lambda: self.sh(2, "viaduct status").count(" up ") == 6))
        # Commands of operations.md that take the machine's daemon, without a fabric or a run directory named.
        self.assertIn("no /run/viaduct/host-*.ip", self.sh(2, "viaduct ip 2>&1", code=1))
        self.sh(2, "viaduct top --once && viaduct metrics && viaduct reload")
        self.assertEqual(self.sh(2, "viaduct down --host 3"), "host 3: its daemon ends\n")
        self.assertTrue(wait_for(lambda: not self.lab[3].pids("viaductd")))
        self.assertEqual(self.sh(2, "viaduct down --host 2"), "host 2: its daemon ends\n")

    def test_a_rule_for_the_port(self):
        (rule,) = [block for block in blocks("security.md", "## The wire", "## IP over the fabric") if block.startswith("nft ")]
        if not shutil.which("nft"):
            self.skipTest("nft is not installed")
        self.sh(1, "nft add table inet filter && nft add chain inet filter input '{ type filter hook input priority 0; }'")
        self.addCleanup(self.sh, 1, "nft delete table inet filter")
        self.sh(1, rule)
        self.assertIn("7471", self.sh(1, "nft list ruleset"))

    def test_hosts_for_containers(self):
        found = [block for block in blocks("install.md", "### Sockets between containers", "A container can not pose") if "viaductd --foreground" in block]
        self.assertEqual(len(found), 1)
        script = "".join(line + "\n" for line in found[0].splitlines() if not line.startswith("podman"))
        daemon = self.lab[2].start(["env", "PATH=%s:%s" % (BIN, os.environ["PATH"]), "sh", "-c", script + "wait"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(daemon.communicate)
        self.addCleanup(self.tidy)
        status = "viaduct status --rundir /run/viaduct-c1 2>&1 || true"
        self.assertTrue(wait_for(lambda: re.search(r"(?m)^1-2 +up ", self.sh(2, status))), self.sh(2, status))


if __name__ == "__main__":
    machines_case.main()
