# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Which entry points a program calls, and whether it fails when one of them does nothing: a library between the program
and OpenSHMEM, made from the list of the standard, that notes each call and jumps on to its pshmem_ name. It needs no
knowledge of parameters and results."""
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def standard():
    """The names of the standard's calls, in the order of the list."""
    with open(os.path.join(HERE, "openshmem-1.6.txt"), encoding="utf-8") as lines:
        return [line.split()[0] for line in lines if not line.startswith("#")]


STUB = """
    .globl {name}
    .type {name}, @function
{name}:
    endbr64
    movb $1, called+{number}(%rip)
    cmpl ${number}, skipped(%rip)
    je nothing
    jmp *p{name}@GOTPCREL(%rip)
    .size {name}, . - {name}
"""
# A skipped call returns zero.
HEAD = """
    .hidden called, skipped
    .text
nothing:
    xorl %eax, %eax
    xorl %edx, %edx
    pxor %xmm0, %xmm0
    pxor %xmm1, %xmm1
    ret
"""
FOOT = """
    .section .note.GNU-stack, "", @progbits
"""
NOTES = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char called[%(count)d + 1] __attribute__((visibility("hidden")));
int skipped __attribute__((visibility("hidden"))) = -1;
__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("ENTRIES_SKIP");
    if (number)
        skipped = atoi(number);
}
/* A line of a PE: a digit for each call. */
__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("ENTRIES_FILE");
    for (int i = 0; i < %(count)d; i++)
        called[i] += '0';
    called[%(count)d] = '\\n';
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    if (fd < 0 || !memchr(called, '1', %(count)d))
        return; /* not a PE: env, for instance */
    if (write(fd, called, sizeof(called)) != sizeof(called))
        abort();
    close(fd);
}
"""


class Between:
    def __init__(self, folder, library_folder):
        self.names = standard()
        self.path = os.path.join(folder, "between.so")
        stubs, notes = os.path.join(folder, "stubs.s"), os.path.join(folder, "notes.c")
        with open(stubs, "w", encoding="utf-8") as out:
            out.write(HEAD + "".join(STUB.format(name=name, number=number) for number, name in enumerate(self.names))
                      + FOOT)
        with open(notes, "w", encoding="utf-8") as out:
            out.write(NOTES % {"count": len(self.names)})
        subprocess.run(["cc", "-shared", "-fPIC", stubs, notes, "-o", self.path, "-L" + library_folder,
                        "-Wl,-rpath," + os.path.abspath(library_folder), "-lviaduct-shmem"], check=True)

    def words(self, program, file=None, skip=None):
        """What oshrun is to run, so that only PEs have the library."""
        return ["env", "LD_PRELOAD=" + self.path, *(["ENTRIES_FILE=" + file] if file else []),
                *(["ENTRIES_SKIP=%d" % self.names.index(skip)] if skip else []), *program]

    def called(self, file):
        with open(file, encoding="ascii") as lines:
            flags = [line.rstrip("\n") for line in lines]
        return {name for number, name in enumerate(self.names) if any(line[number] == "1" for line in flags)}
