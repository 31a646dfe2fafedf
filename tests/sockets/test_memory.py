#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Memory and mappings of connections within one machine: the library frees memory of quiet connections, and obeys limits."""
import os
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402

MEMORY = "memfd:viaduct-connection"
LIMIT = "limit of memory or mappings is reached"
# A quiet end keeps two pages. OWN_KIB is memory that belongs to no connection.
QUIET_KIB_PER_PAIR = 4 * 4
OWN_KIB = 64

# Both ends in one process: makes the given number of pairs, sends some kilobytes both ways on each, and prints a line;
# then does the same again for each line of its input.
PAIRS = """
import socket, sys
count, size = int(sys.argv[1]), int(sys.argv[2])
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(200)
pairs = []
def all_of(s, n):
    got = b''
    while len(got) < n:
        got += s.recv(n - len(got))
    return got
def exchange(a, b, data):
    for one, other in (a, b), (b, a):
        for off in range(0, len(data), 16384):
            piece = data[off:off + 16384]
            one.sendall(piece)
            assert all_of(other, len(piece)) == piece
for i in range(count):
    c = socket.create_connection(l.getsockname()); s, _ = l.accept()
    pairs.append((c, s))
    for k in range(40):
        exchange(c, s, b'hello')
def round(seed):
    for i, (c, s) in enumerate(pairs):
        exchange(c, s, bytes([(seed + i) % 251]) * size)
round(0)
print('ready', flush=True)
import os
n = 0
while os.read(0, 100):
    n += 1
    round(n)
    print('again', flush=True)
"""


def shared_kib(pid):
    """Memory of connections: their rings, and the part that forked processes share."""
    total, counts = 0, False
    with open("/proc/%d/smaps" % pid, encoding="ascii") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0]:
                counts = MEMORY in line or "/dev/zero" in line
            elif counts and words[0] == "Pss:":
                total += int(words[1])
    return total


def mappings(pid):
    with open("/proc/%d/maps" % pid, encoding="ascii") as maps:
        return sum(1 for _ in maps)


class Memory(lab.Case):
    def begin(self, count, size, before=(), **env):
        process = subprocess.Popen([*before, lab.PYTHON, "-Sc", PAIRS, str(count), str(size)], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment(True, **env))
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lab.end, process)
        self.assertEqual(self.line(process), "ready\n")
        return process

    def line(self, process):
        self.assertTrue(select.select([process.stdout], [], [], lab.HANG_S)[0], "nothing comes")
        return process.stdout.readline()

    def again(self, process):
        process.stdin.write("x\n")
        process.stdin.flush()
        self.assertEqual(self.line(process), "again\n")

    def end_and_read(self, process):
        process.stdin.close()
        process.wait(lab.HANG_S)
        (entry,) = self.lines(1)
        return entry

    def test_quiet_connections_give_memory_back(self):
        pairs = 20
        process = self.begin(pairs, 256 << 10)
        for _ in range(2):
            # On a busy machine the first connections may be quiet for long enough before the last ones are read: then once more.
            for _ in range(5):
                busy = shared_kib(process.pid)
                if busy > pairs * 300:
                    break
                self.again(process)
            self.assertGreater(busy, pairs * 300)
            least = pairs * QUIET_KIB_PER_PAIR + OWN_KIB
            self.assertTrue(self.wait_until(lambda: shared_kib(process.pid) <= least), shared_kib(process.pid))
            self.assert_asleep(process.pid)
            self.again(process)
        entry = self.end_and_read(process)
        self.assertEqual(entry["accelerated"], 2 * pairs)
        self.assertEqual(entry["demoted"], 0)

    def wait_until(self, is_so):
        deadline = time.monotonic() + lab.HANG_S
        while not is_so():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def assert_asleep(self, pid):
        """A process that can free no memory does not wake up to check."""
        time.sleep(1.2)  # a round that finds nothing to do
        before = self.switches(pid)
        time.sleep(2.5)
        self.assertLessEqual(self.switches(pid) - before, 1)

    @staticmethod
    def switches(pid):
        with open("/proc/%d/status" % pid, encoding="ascii") as status:
            return sum(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))

    def test_beyond_the_limit_of_a_process(self):
        process = self.begin(40, 64 << 10, VIADUCT_SOCKETS_MEMORY="256K")
        entry = self.end_and_read(process)
        # Each end counts as 8 KiB at least, quiet ones as no more: some have pipes, and the others a reason.
        self.assertGreater(entry["accelerated"], 10)
        self.assertLess(entry["accelerated"], 70)
        self.assertGreater(entry["not_accelerated"].get(LIMIT, 0), 5, entry)

    def test_beyond_the_limit_of_a_user(self):
        more = {"VIADUCT_SOCKETS_USER_MEMORY": "256K"}
        first = self.begin(20, 64 << 10, **more)
        second = self.begin(5, 1024, **more)
        entry = self.end_and_read(second)
        self.assertLessEqual(entry["accelerated"], 4, entry)  # less than a sixteenth of the limit is not counted
        self.assertGreater(entry["not_accelerated"].get(LIMIT, 0), 4, entry)
        first.send_signal(signal.SIGKILL)  # the memory of a killed process no longer counts
        first.wait(lab.HANG_S)
        third = self.begin(5, 1024, **more)
        self.assertEqual(self.end_and_read(third)["accelerated"], 10)
        self.assertFalse(os.path.exists("/dev/shm/viaduct-sockets-%d" % os.geteuid()))

    def test_a_full_dev_shm(self):
        """There is no sum of the user's memory then, and programs work nevertheless."""
        full = "mount -t tmpfs -o size=64k tmpfs /dev/shm && ! head -c 1M /dev/zero > /dev/shm/filling 2>/dev/null"
        words = ["unshare", "-m", "sh", "-c", full + ' && exec "$@"', "sh"]
        probe = subprocess.run([*words, "true"], text=True, stderr=subprocess.PIPE, check=False)
        if probe.returncode:
            self.skipTest("a mount namespace: %s" % probe.stderr.strip())
        process = self.begin(5, 1024, before=words)
        self.assertEqual(self.end_and_read(process)["accelerated"], 10)
        self.assertEqual(process.returncode, 0)

    def test_files_smaller_than_long_rings(self):
        """RLIMIT_FSIZE also limits the memory of connections: these get short rings."""
        process = self.begin(2, 64 << 10, before=["sh", "-c", 'ulimit -f 2000 && exec "$@"', "sh"])
        self.assertEqual(self.end_and_read(process)["accelerated"], 4)

    def test_mappings(self):
        """Connections without pipes have no mapping of their own, connections with pipes have one each."""
        count = 300
        plain = self.begin(count, 16, VIADUCT_SOCKETS_MEMORY="0")
        carried = self.begin(count, 16)
        self.assertLess(mappings(plain.pid), 200)
        self.assertLess(mappings(carried.pid), 2 * count + 200)
        self.end_and_read(plain)


def in_own_shm():
    """The sum of a user includes the programs of tests that run at the same time: with a /dev/shm of its own it does
    not."""
    words = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]
    own = "VIADUCT_TEST_OWN_SHM"
    if own not in os.environ and subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.environ[own] = "1"
        os.execvp(words[0], [*words, sys.executable, *sys.argv])


if __name__ == "__main__":
    in_own_shm()
    lab.main()
