# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs programs, and counts the bytes by path, from the lines that the library writes
(VIADUCT_SOCKETS_STATS)."""
import collections
import json
import os
import signal
import subprocess

# Reasons by which a connection stays with the kernel by rule: its bytes do not count. Bytes that other connections send
# by the kernel lower the share.
NOT_ELIGIBLE = {
    "peer is a plain program", "ended before pipes were worth it", "socket option that pipes can not honour",
    "used through stdio", "passed to another program by exec", "sent to another process", "process uses io_uring",
    "peer returned to the kernel", "in an epoll set that is in another", "left to the kernel by the rules",
    "peer is neither on this machine nor in the fabric"}


def run_logged(words, folder, env, log, limit_s, end=signal.SIGKILL):
    """(exit code, output); the exit code is None after a time-out. The program's children are ended with it: some tests
    leave theirs behind when they fail."""
    code = None
    with open(log, "wb") as out:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True, env=env)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                os.killpg(process.pid, end)
            except ProcessLookupError:
                pass
            process.wait()
    with open(log, encoding="utf-8", errors="replace") as file:
        return code, file.read()


class Share:
    """Bytes sent by pipes, and by the kernel, these also by the reason of their connection."""

    def __init__(self):
        self.pipe = self.kernel = 0
        self.why = collections.Counter()
        self.connections = collections.Counter()

    def add(self, other):
        self.pipe += other.pipe
        self.kernel += other.kernel
        self.why.update(other.why)
        self.connections.update(other.connections)

    def of_all(self):
        return 100 * self.pipe / max(self.pipe + self.kernel, 1)

    def eligible(self):
        left = sum(count for why, count in self.why.items() if why in NOT_ELIGIBLE)
        return self.pipe + self.kernel - left

    def of_eligible(self):
        return 100 * self.pipe / max(self.eligible(), 1)

    def show(self):
        print("bytes sent: %d by pipes, %d by the kernel: %.1f %% of all by pipes, %.1f %% of the eligible"
              % (self.pipe, self.kernel, self.of_all(), self.of_eligible()))
        for why in sorted(set(self.why) | set(self.connections), key=lambda why: -self.why[why]):
            print("%8d connections, %d bytes by the kernel%s: %s"
                  % (self.connections[why], self.why[why], "" if why in NOT_ELIGIBLE else ", eligible", why))
        rest = self.kernel - sum(self.why.values())
        print("   the others, %d bytes by the kernel, eligible: before the two ends had met" % rest)


def take_share(path):
    """The statistics that programs have written to the file since the last call."""
    share = Share()
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for entry in map(json.loads, lines):
                share.pipe += entry["bytes_pipe_tx"]
                share.kernel += entry["bytes_kernel_tx"]
                share.why.update(entry["kernel_tx_why"])
                share.connections.update(entry["not_accelerated"])
        os.truncate(path, 0)
    return share


def environment(preload, library, stats):
    env = dict(os.environ)
    env.pop("LD_PRELOAD", None)
    if preload:
        # Pipes from the first calls of a connection on: most tests send little.
        env.update(LD_PRELOAD=library, VIADUCT_SOCKETS_STATS=stats, VIADUCT_SOCKETS_AFTER="0")
    return env


HEAD = "%-22s %8s %8s %8s %8s %12s %12s  %s" % ("", "ran", "failed", "ran", "failed", "of all", "eligible",
                                             "new failures")


def show_head(title):
    print("\n%-22s %17s %17s %25s" % (title, "kernel TCP", "pipes", "bytes by pipes"))
    print(HEAD, flush=True)


# With fewer bytes the table shows the bytes, because a share would mean nothing.
FEW_BYTES = 4096


def part(pipe, bytes_):
    """A share as text for the table."""
    if bytes_ == 0:
        return "-"
    return "%d/%d B" % (pipe, bytes_) if bytes_ < FEW_BYTES else "%.1f %%" % (100 * pipe / bytes_)


def show_row(name, plain, piped, share, new):
    """Prints a row; plain, piped: (ran, failed) each."""
    shares = part(share.pipe, share.pipe + share.kernel), part(share.pipe, share.eligible())
    print("%-22s %8d %8d %8d %8d %12s %12s  %s" % (name, *plain, *piped, *shares, ", ".join(new) or "none"),
          flush=True)


def run_groups(suite, groups, run_group):
    """Runs groups, (title, tests) each: run_group(tests) returns the arguments of show_row(). Returns (new failures,
    share)."""
    total = Share()
    bad = []
    show_head(suite)
    for title, tests in groups:
        plain, piped, share, new = run_group(tests)
        total.add(share)
        bad += new
        show_row(title, plain, piped, share, new)
    return bad, total
