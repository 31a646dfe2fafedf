#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A register model of a PEX 87xx with two NT ports, between three virtual machines: guest 1 has the virtual sides of both ports and the chip's
DMA function by vfio-pci, guests 2 and 3 a link side each. Both links of guest 1 give bodies to the one DMA function. make lab. Quick: half a minute."""
import os
import re

import lab_hosts
from lab_hosts import HANG_S, deliver

# Bus N + 1 of a guest is behind its root port N. The DMA function is on bus 2: requests of the model's carry that number.
NT0, ENGINE, NT1 = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
WINDOW = "window=1MiB"
DMA_BYTES = 1024


class Lab(lab_hosts.Lab):
    programs = ()

    def links_of(self, host):
        if host == 1:
            return ("2=pex:%s,%s,dma=%s --dma-bytes %d" % (NT0, WINDOW, ENGINE, DMA_BYTES), "3=pex:%s,%s,dma=%s --dma-bytes %d" % (NT1, WINDOW, ENGINE, DMA_BYTES))
        return ("1=pex:%s,%s" % (NT0, WINDOW),)

    def start(self):
        self.build_image()
        sockets = [os.path.join(self.folder, name) for name in ("v0.sock", "l0.sock", "v1.sock", "l1.sock", "d.sock")]
        words = [word for path in sockets[:4] for word in ("--socket", path)]
        self.model = self.serve_model("--two-nt-ports", *words, "--dma-socket", sockets[4])
        self.add_guest(1, (sockets[0], sockets[4], sockets[2]), (NT0, NT1, ENGINE))
        self.add_guest(2, sockets[1:2], (NT0,))
        self.add_guest(3, sockets[3:4], (NT0,))
        self.start_guests()


    def command(self, line):
        self.model.stdin.write(line + "\n")
        self.model.stdin.flush()
        return self.model.stdout.readline()


class TwoPorts(lab_hosts.Case):
    kind = Lab

    def interrupts(self, function):
        found = re.search(r"(?m)^ *\d+: +(\d+) .*vfio-msi\[0\]\(%s\)$" % re.escape(function), self.guests[1].run("cat /proc/interrupts"))
        return int(found.group(1)) if found else 0

    def test_both_links_carry_messages_and_share_the_dma_function(self):
        for peer in (2, 3):
            self.wait_state(1, peer, "up")
        listed = self.guests[1].run("viaduct port list")
        for function, port in ((NT0, 0), (NT1, 1)):
            self.assertRegex(listed, r"(?m)^%s +PEX 87xx NT%d, virtual side .* vfio-pci +\d+ \(viaductd\)$" % (re.escape(function), port))
        for host, peer in ((1, 2), (1, 3), (2, 1), (3, 1), (2, 3)):
            before = self.interrupts(ENGINE)
            self.start_receiver(peer)
            self.guests[host].run(deliver(host) + "send %d 100 4000 0" % peer, HANG_S)
            self.wait_received(peer, 100)
            if host == 1:  # bodies above DMA_BYTES
                self.assertGreater(self.interrupts(ENGINE), before, self.guests[1].run("cat /tmp/viaductd.log"))

    def test_requests_that_the_chip_refuses_are_noticed(self):
        """The DMA function's requests carry another number from here on: after a cut its writes do not arrive, and bodies are copied by the CPU."""
        for bus, is_used in ((9, False), (2, True)):
            for line in ("dma-bus virtual %d" % bus, "cut"):
                self.assertEqual(self.lab.command(line), "ok\n")
            self.assertTrue(lab_hosts.wait_for(lambda: self.lab.state(1, 2) != "up"))
            self.assertEqual(self.lab.command("mend"), "ok\n")
            self.wait_state(1, 2, "up")
            before = self.dma_bytes()
            self.start_receiver(2)
            self.guests[1].run(deliver(1) + "send 2 100 4000 0", HANG_S)
            self.wait_received(2, 100)
            self.assertEqual("bodies go without DMA" in self.guests[1].run("viaduct status"), not is_used)
            self.assertEqual(self.dma_bytes() > before, is_used)

    def dma_bytes(self):
        """That left guest 1 for guest 2 by DMA."""
        metrics = self.guests[1].run("viaduct metrics")
        return int(re.search(r'(?m)^viaduct_link_dma_bytes_total{[^}]*peer="2"[^}]*} (\d+)$', metrics).group(1))


if __name__ == "__main__":
    lab_hosts.main(Lab)
