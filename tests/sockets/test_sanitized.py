#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The preload library built with sanitizers, in programs without: an error of the library itself is a failure.

The programs of the other tests run with the sanitizer's runtime loaded first. Only in builds with one (presets dev,
tsan). VIADUCT_SANITIZE_ROUNDS=N repeats everything N times, with pipes from the first calls on and later in turn.
"""
import os
import re
import select
import subprocess
import sys
import unittest

import lab
from lab import BIN, HANG_S, HERE, CHECKS, Case, PYTHON, STREAM

SANITIZED = os.path.join(BIN, "tests", "libviaduct-sockets-sanitized.so")
ROUNDS = int(os.environ.get("VIADUCT_SANITIZE_ROUNDS", "1"))
SUPPRESSIONS = os.path.join(HERE, "tsan.supp")
# ThreadSanitizer delays signal handlers, and has a thread of its own: a bell may have been rung before the connection got its
# pipes, and then poll() reports the epoll set as ready once.
NOT_WITH_THREADS = ["-the_reader_is_killed", "-interrupted_calls_return_the_bytes_moved",
                    "-an_epoll_set_can_be_polled", "-a_sleep_restarts_by_the_handler_that_ran",
                    # ThreadSanitizer's own thread still runs when the program's last thread has ended.
                    "-the_last_thread_ends", "-the_last_thread_ends_without_proc", "-the_only_thread_cancels_itself",
                    # Without the library these fail under it, too: it installs handlers of its own with other flags,
                    # and queues one signal of a number.
                    "-handlers_are_as_installed", "-every_signal_comes_with_its_value",
                    # It needs descriptors to find the name of a function, and without the name no suppression applies.
                    "-waits_without_descriptors",
                    # ThreadSanitizer does not intercept clone() and _Fork(): it takes threads of the parent for threads of the child.
                    "-children_made_by_clone", "-a_child_made_by_clone_connects", "-a_child_of_a_plain_fork_starts_no_thread"]
# Handlers that fork during a sleep, after which the child makes further calls. The runs of these go without the detection of
# lock-order inversions: in the child ThreadSanitizer takes the mutexes that the library holds around fork() (hooks_proc.c)
# for mutexes that are never unlocked. In a child of several threads it ignores all unlocks (ForkChildAfter(), tsan_rtl.cpp), and
# it counts this down again at the end of the call that the handler has interrupted (~BlockingCall(), tsan_interceptors_posix.cpp).
# A program of thirty lines without the library gets the same report: atfork handlers that lock and unlock one mutex, a handler
# that forks during poll(), and a child that takes two mutexes in the order of its parent. The build asserts the order itself,
# at each lock (VIA_LOCK_CHECKS, lock.h).
FORKED_IN_SLEEP = ["a_handler_forks_during_recv", "a_handler_forks_during_poll", "a_handler_forks_during_epoll_wait",
                   "two_processes_continue_a_call"]
# A sanitizer's interceptors of calls check their arguments themselves.
NOT_SANITIZED = ["-addresses_that_are_none", "-addresses_and_control_data_that_are_wrong",
                 "-events_to_where_nothing_can_be_written", "-messages_from_where_nothing_is",
                 "-addresses_to_where_nothing_is", "-waiting_for_what_is_nowhere", "-waits_with_arguments_that_are_none",
                 # The traps would count, and interrupt, the instructions of the sanitizer.
                 "-a_child_returns_from_a_fork_at_any_instruction", "-a_parent_returns_from_a_fork_at_any_instruction",
                 "-a_handler_makes_calls_at_any_instruction",
                 # A sanitizer needs memory.
                 "-a_set_without_memory",
                 # Sanitizers lose track of the stack of a cancelled thread.
                 "-threads_are_cancelled", "-a_connection_outlives_its_cancelled_threads",
                 "-a_request_acts_before_the_call_or_not_at_all", "-cancelled_in_a_read",
                 "-cancelling_a_thread_in_a_large_send", "-a_cancelled_wait_is_over"]
REPORTS = ("AddressSanitizer", "ThreadSanitizer", "runtime error:", "LeakSanitizer", "Sanitizer:DEADLYSIGNAL")


def runtimes():
    """The sanitizer runtimes that the library needs, where the loader finds them."""
    out = subprocess.run(["ldd", SANITIZED], capture_output=True, text=True, check=True).stdout
    return [words[2] for words in map(str.split, out.splitlines())
            if len(words) > 2 and words[0].startswith(("libasan", "libubsan", "libtsan"))]


class Sanitized(Case):
    def setUp(self):
        super().setUp()
        self.runtimes = runtimes()
        # ThreadSanitizer needs fixed addresses, without randomization.
        self.threads = any("libtsan" in name for name in self.runtimes)
        self.words = ["setarch", "-R"] if self.threads else []
        self.server_words = self.client_words = self.words

    def environment(self, preload, **more):
        env = super().environment(False, **more)
        if preload:
            reports = "log_path=%s/report" % self.folder
            # ThreadSanitizer's interceptors of blocking calls ignore memory accesses inside of them, so the library's
            # come first and call them.
            first = [SANITIZED, *self.runtimes] if self.threads else [*self.runtimes, SANITIZED]
            env.update(LD_PRELOAD=":".join(first),
                       ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:handle_sigill=1:" + reports,
                       UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:" + reports,
                       # Otherwise a process of several threads sleeps a second before it ends.
                       TSAN_OPTIONS="halt_on_error=1:atexit_sleep_ms=0:die_after_fork=0:suppressions=%s:%s" % (
                           SUPPRESSIONS, reports))
        return env

    def check_no_report(self):
        texts = []
        for name in sorted(os.listdir(self.folder)):
            if name.startswith("report"):
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    texts.append(file.read()[:3000])
        self.assertEqual(texts, [])

    def run_checks(self, names, env, options=""):
        """The names of the checks that failed. A sanitizer's report is a failure at once."""
        env = self.environment(True, **env)
        env["TSAN_OPTIONS"] += options
        done = subprocess.run([*self.words, CHECKS, *names], capture_output=True, text=True, timeout=15 * HANG_S, check=False,
                              stdin=subprocess.DEVNULL, env=env)
        self.check_no_report()
        out = done.stdout + done.stderr
        self.assertFalse(any(word in out for word in REPORTS), out[-3000:])
        failed = re.findall(r"^FAILED (\w+):", done.stdout, re.MULTILINE)
        self.assertEqual(done.returncode != 0, bool(failed), out[-3000:])
        return list(dict.fromkeys(failed))

    def checks(self, **env):
        others = ["-" + name for name in FORKED_IN_SLEEP]
        failed = self.run_checks(NOT_SANITIZED + (NOT_WITH_THREADS if self.threads else []) + others, env)
        failed += self.run_checks(FORKED_IN_SLEEP, env, ":detect_deadlocks=0")
        self.assert_by_pipes(self.lines(), processes=20)
        for _ in range(2):  # some have time limits, and everything takes several times as long here
            failed = self.run_checks(failed, env, ":detect_deadlocks=0") if failed else []
        self.lines()
        self.assertEqual(failed, [])

    def test_suppressions(self):
        """A suppression whose function was renamed has no effect."""
        texts = []
        for folder, _, names in os.walk(os.path.join(HERE, "..", "..", "src", "sockets")):
            for name in names:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    texts.append(file.read())
        code = "\n".join(texts)
        with open(SUPPRESSIONS, encoding="utf-8") as file:
            functions = re.findall(r"^\w+:\^(\w+)\$$", file.read(), re.MULTILINE)
        self.assertNotEqual(functions, [])
        self.assertEqual([one for one in functions if not re.search(r"\b%s\(" % one, code)], [])

    def test_checks(self):
        for number in range(ROUNDS):
            self.checks(VIADUCT_SOCKETS_AFTER="04"[number % 2])

    def test_streams(self):
        for seed in range(ROUNDS):
            self.echo(8, seed, timeout=8 * HANG_S)
            self.check_no_report()
            self.assert_by_pipes(self.lines(), 0.3)

    def test_threads_of_python(self):
        """Connections that are opened and closed in many threads of one process, by poll and by blocking calls."""
        script = ("import socket, threading\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(64)\n"
                  "def serve(s):\n"
                  "    with s:\n"
                  "        while (data := s.recv(4096)): s.sendall(data)\n"
                  "def accept():\n"
                  "    while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()\n"
                  "threading.Thread(target=accept, daemon=True).start()\n"
                  "def talk():\n"
                  "    for i in range(15):\n"
                  "        with socket.create_connection(l.getsockname(), timeout=60) as c:\n"
                  "            for k in range(30):\n"
                  "                c.sendall(b'x' * 700)\n"
                  "                n = 0\n"
                  "                while n < 700: n += len(c.recv(700))\n"
                  "all = [threading.Thread(target=talk) for i in range(6)]\n"
                  "for t in all: t.start()\n"
                  "for t in all: t.join()\n")
        for _ in range(ROUNDS):
            self.run_client([PYTHON, "-Sc", script], timeout=8 * HANG_S)
            self.check_no_report()
            self.assert_by_pipes(self.lines(), 0.3, 1)

    def test_threads_that_share_a_set(self):
        """It is random which thread gets the event, and reads: level-triggered with room for one event or many, and
        edge-triggered."""
        script = ("import select, socket, sys, threading\n"
                  "l = socket.create_server(('127.0.0.1', 0))\n"
                  "ep, ends, clients, over = select.epoll(), {}, [], threading.Event()\n"
                  "for i in range(6):\n"
                  "    c = socket.create_connection(l.getsockname()); s = l.accept()[0]\n"
                  "    for k in range(40): c.sendall(b'w'); s.recv(1); s.sendall(b'w'); c.recv(1)\n"
                  "    s.setblocking(False)\n"
                  "    ends[s.fileno()] = s; clients.append(c)\n"
                  "    ep.register(s, select.EPOLLIN | int(sys.argv[1]))\n"
                  "def serve(places):\n"
                  "    while not over.is_set():\n"
                  "        for fd, _ in ep.poll(0.05, places):\n"
                  "            try:\n"
                  "                while (data := ends[fd].recv(3)): ends[fd].sendall(data)\n"
                  "            except BlockingIOError: pass\n"
                  "def talk(a, b):\n"
                  "    for i in range(400):\n"
                  "        a.sendall(b'x'); b.sendall(b'y' * (1 + i % 7)); a.recv(1)\n"
                  "        n = 0\n"
                  "        while n < 1 + i % 7: n += len(b.recv(9))\n"
                  "servers = [threading.Thread(target=serve, args=(p,)) for p in (1, 4, 16)]\n"
                  "talkers = [threading.Thread(target=talk, args=clients[i:i+2]) for i in range(0, 6, 2)]\n"
                  "for t in servers + talkers: t.start()\n"
                  "for t in talkers: t.join()\n"
                  "over.set()\n"
                  "for t in servers: t.join()\n")
        for number in range(2 * ROUNDS):
            self.run_client([PYTHON, "-Sc", script, str(select.EPOLLET if number % 2 else 0)], timeout=8 * HANG_S)
            self.check_no_report()
            self.assert_by_pipes(self.lines(), 0.3, 1)


if __name__ == "__main__":
    if not os.path.exists(SANITIZED):
        print("no sanitizers in this build")
        sys.exit(77)
    lab.main()
