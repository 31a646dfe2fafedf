/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Processes of several pid namespaces that share a connection by fork(). */
#include "checks.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define WRITERS 3
#define RECORD 300
#define RECORDS 30000

void enter_namespace(void)
{
    if (unshare(CLONE_NEWPID) != 0) {
        return;
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0) {
        wait_for(pid);
        _exit(0);
    }
    CHECK(getpid() == 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void write_records(int fd, unsigned writer)
{
    char record[RECORD];
    memset(record, 'a' + (int)writer, sizeof(record));
    for (int i = 0; i < RECORDS; i++) {
        write_all(fd, record, sizeof(record));
    }
}

/* A writer does not take another one for dead, or for itself, whose number means nothing in its
 * namespace. The first writer stays in this one. */
static void processes_of_several_namespaces_write(void)
{
    struct pair pair = connected();
    size_t counts[WRITERS] = {0};
    pid_t pids[WRITERS];
    char bytes[RECORD];
    for (unsigned i = 0; i < WRITERS; i++) {
        pid_t parent = getpid();
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            end_with(parent);
            close(pair.server);
            if (i > 0) {
                enter_namespace();
            }
            write_records(pair.client, i);
            _exit(0);
        }
    }
    close(pair.client);
    for (;;) {
        ssize_t n = recv(pair.server, bytes, sizeof(bytes), MSG_WAITALL);
        if (n == 0) {
            break;
        }
        CHECK(n == RECORD);
        for (int i = 0; i < RECORD; i++) {
            unsigned writer = (unsigned char)bytes[i] - 'a';
            CHECK(writer < WRITERS);
            counts[writer]++;
        }
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        wait_for(pids[i]);
        CHECK(counts[i] == (size_t)RECORD * RECORDS);
    }
    close(pair.server);
}

const struct check checks_of_namespaces[] = {
    CHECK_ENTRY(processes_of_several_namespaces_write),
    {NULL, NULL},
};
