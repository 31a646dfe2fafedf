#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Programs that can not use the preload library start and run with it as without it."""

import os
import shutil
import subprocess
import unittest

import lab

STUB = os.path.join(lab.BIN, "libviaduct-preload.so")
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) { printf("%d %d %d\\n", (int)getuid(), (int)geteuid(), getenv("VIADUCT_NONE") != NULL); return 3; }
"""

# A library whose destructor talks to a peer, and to a peer in a child made then; and a program that leaves it a connection.
TALKER = """
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
int talker_fd = -1;
static void serve(int listen_fd) {
    char text[16];
    int fd = accept(listen_fd, NULL, NULL);
    while (recv(fd, text, sizeof(text), MSG_WAITALL) == sizeof(text) && write(fd, text, sizeof(text)) > 0) {
    }
    _exit(0);
}
static void talk(int fd, const char *word, int times) {
    for (int i = 0; i < times; i++) {
        char text[16] = "";
        strcpy(text, word);
        long sent = write(fd, text, sizeof(text));
        memset(text, 0, sizeof(text));
        long got = recv(fd, text, sizeof(text), MSG_WAITALL);
        if (i + 1 == times) {
            printf("%ld %ld %s\\n", sent, got, text);
        }
    }
}
int talker_connect(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(to);
    int listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    bind(listen_fd, (struct sockaddr *)&to, sizeof(to));
    listen(listen_fd, 1);
    getsockname(listen_fd, (struct sockaddr *)&to, &bytes);
    if (fork() == 0) {
        serve(listen_fd);
    }
    close(listen_fd);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect(fd, (struct sockaddr *)&to, sizeof(to));
    talk(fd, "first", 20);
    return fd;
}
static void __attribute__((destructor)) end(void) {
    int status = 0;
    talk(talker_fd, "last", 1);
    int fd = talker_connect();
    talk(fd, "new", 100);
    close(fd);
    close(talker_fd);
    while (wait(&status) > 0) {
        printf("child %d\\n", status);
    }
    fflush(stdout);
}
"""
TALKING = """
#include <stdlib.h>
extern int talker_fd, talker_connect(void);
int main(int count, char **words) {
    talker_fd = talker_connect();
    if (count > 1)
        quick_exit(3);
    return 3;
}
"""


class Harmless(lab.Case):
    def run_with(self, words, preload, **more):
        env = {"PATH": os.environ["PATH"]}
        if preload:
            env.update(LD_PRELOAD=preload, VIADUCT_SOCKETS_STATS=self.stats)
        done = subprocess.run(words, env=env, text=True, capture_output=True, check=False, timeout=lab.HANG_S, **more)
        return done.returncode, done.stdout, done.stderr

    def check_same(self, words, stub=STUB, **more):
        plain = self.run_with(words, None, **more)
        self.assertEqual(self.run_with(words, stub, **more), plain)
        return plain

    def compile(self, compiler, *options):
        program = os.path.join(self.folder, "program" + "".join(options))
        subprocess.run([compiler, "-x", "c", *options, "-o", program, "-"], input=SOURCE, text=True, check=True)
        return program

    def test_the_stub_needs_nothing_and_has_nothing(self):
        dynamic = subprocess.run(["readelf", "-dW", STUB], text=True, capture_output=True, check=True).stdout
        self.assertNotIn("(NEEDED)", dynamic)
        self.assertIn("$ORIGIN/libviaduct-sockets.so", dynamic)
        symbols = subprocess.run(["nm", "-D", STUB], text=True, capture_output=True, check=True).stdout
        self.assertEqual(symbols, "")

    def test_the_stub_loads_the_library(self):
        code, _, err = self.run_with([lab.STREAM, "--help"], None)
        maps = self.run_with(["cat", "/proc/self/maps"], STUB)[1]
        self.assertIn("libviaduct-sockets.so", maps)
        # In front of the C library: a program's calls are the library's.
        env = dict(os.environ, LD_PRELOAD=STUB, LD_DEBUG="bindings")
        output = subprocess.run(["cat", "/dev/null"], env=env, text=True, capture_output=True, check=True).stderr
        self.assertRegex(output, r"binding file cat .* to .*/libviaduct-sockets\.so .*: normal symbol `close'")

    def test_musl(self):
        lab.need("musl-gcc")
        program = self.compile("musl-gcc")
        self.assertEqual(self.check_same([program])[0], 3)
        # Not so with the library itself: else this test would show nothing.
        self.assertNotEqual(self.run_with([program], lab.PRELOAD)[0], 3)
        program = self.compile("musl-gcc", "-static")
        self.assertEqual(self.check_same([program])[0], 3)

    def test_a_library_whose_start_calls_ours(self):
        """libasan intercepts calls of the library's start, and initializes itself then by calls that the library hooks. A
        second start would lock each mutex twice at a fork."""
        libasan = subprocess.run(["cc", "-print-file-name=libasan.so"], text=True, capture_output=True, check=True).stdout.strip()
        if not os.path.isabs(libasan):
            self.skipTest("the compiler has no libasan")
        words = ["sh", "-c", "(exit 3); exit $?"]
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": "%s %s" % (libasan, lab.PRELOAD), "ASAN_OPTIONS": "detect_leaks=0"}
        done = subprocess.run(words, env=env, text=True, capture_output=True, check=False, timeout=lab.HANG_S)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "", ""))

    def test_a_library_that_communicates_at_its_end(self):
        library = os.path.join(self.folder, "libtalker.so")
        program = os.path.join(self.folder, "talking")
        build = ["cc", "-x", "c", "-D_GNU_SOURCE", "-o"]
        subprocess.run([*build, library, "-shared", "-fPIC", "-"], input=TALKER, text=True, check=True)
        subprocess.run([*build, program, "-", "-x", "none", library, "-Wl,-rpath," + self.folder], input=TALKING, text=True,
                       check=True)
        code, out, err = self.check_same([program])
        expected = ["16 16 first", "16 16 last", "16 16 first", "16 16 new", "child 0", "child 0"]
        self.assertEqual((code, out.splitlines(), err), (3, expected, ""))
        with open(self.stats, encoding="utf-8") as lines:
            self.assertIn('"accelerated":2,', lines.read())
        os.unlink(self.stats)
        # The end of such a process is not announced by a destructor.
        self.assertEqual(self.check_same([program, "quickly"])[0], 3)
        with open(self.stats, encoding="utf-8") as lines:
            self.assertIn('"program":"talking","connections":1,', lines.read())

    def test_a_stub_without_its_library(self):
        stub = shutil.copy(STUB, self.folder)
        self.assertEqual(self.check_same([self.compile("cc")], stub)[0], 3)

    def test_a_library_of_another_machine(self):
        stub = shutil.copy(STUB, self.folder)
        with open(lab.PRELOAD, "rb") as library:
            other = bytearray(library.read())
        other[18:20] = b"\xf3\x00"  # e_machine: RISC-V
        with open(os.path.join(self.folder, "libviaduct-sockets.so"), "wb") as library:
            library.write(other)
        self.assertEqual(self.check_same([self.compile("cc")], stub)[0], 3)

    @unittest.skipIf(os.geteuid() != 0, "needs root to make a setuid program")
    def test_setuid(self):
        program = self.compile("cc")
        os.chmod(self.folder, 0o755)
        os.chmod(program, 0o4755)
        code, out, err = self.check_same([program], user=65534, group=65534)
        if out.startswith("65534 65534"):
            self.skipTest("setuid is ignored here")
        self.assertEqual((code, out, err), (3, "65534 0 0\n", ""))

    @unittest.skipIf(os.geteuid() != 0, "needs root for chroot")
    def test_chroot(self):
        root = os.path.join(self.folder, "root")
        program = self.compile("cc")
        needs = subprocess.run(["ldd", program], text=True, capture_output=True, check=True).stdout
        files = [word for word in needs.split() if word.startswith("/")]
        for path in files:
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            shutil.copy(path, root + path)
        shutil.copy(program, root)
        # Without the library a loader says that it did not find it.
        self.assertIn("cannot be preloaded", self.run_with([*files_loader(root, files), "/program"], STUB + ".away")[2])
        self.assertEqual(self.check_same(["chroot", root, "/program"])[0], 3)

    def test_a_strict_filter(self):
        program = os.path.join(lab.BIN, "tests", "prog_confined")
        for way in ("prctl", "seccomp"):
            with self.subTest(way):
                self.assertEqual(self.check_same([program, way]), (0, "", ""))
        # And it was not for want of pipes.
        with open(self.stats, encoding="utf-8") as lines:
            output = lines.read()
        self.assertIn('"process is confined by seccomp"', output)
        self.assertNotIn('"bytes_pipe_tx":0,', output)

    def test_waits_under_a_filter(self):
        """The library makes the program's calls where a filter permits no others."""
        program = os.path.join(lab.BIN, "tests", "prog_confined")
        for way in ("waits", "inherits"):
            with self.subTest(way):
                self.assertEqual(self.check_same([program, way]), (0, "", ""))


def files_loader(root, files):
    """The dynamic loader, by its own name: the environment tells it what to preload."""
    return ["chroot", root, next(path for path in files if "ld-linux" in path)]


if __name__ == "__main__":
    lab.main()
