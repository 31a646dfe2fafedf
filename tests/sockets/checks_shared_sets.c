/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Several processes wait in one epoll set, which they share by fork(). */
#include "checks.h"

#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define LONGEST_S 20
#define PROCESSES 3u

struct shared {
    _Atomic unsigned waiting;
    _Atomic unsigned awake;
    _Atomic int ends;
};
static struct shared *shared;

static double wait_until_awake(unsigned count)
{
    double begin = now_s();
    while (shared->awake < count) {
        CHECK(now_s() < begin + LONGEST_S);
        sleep_ms(1);
    }
    return now_s() - begin;
}

/* Each of these processes takes one byte, and then works until all have taken one. */
static void take_one(int epfd)
{
    struct epoll_event event;
    char byte;
    ssize_t n;
    do {
        CHECK(epoll_wait(epfd, &event, 1, LONGEST_S * 1000) == 1);
        n = recv(event.data.fd, &byte, 1, MSG_DONTWAIT);
        CHECK(n == 1 || (n < 0 && errno == EAGAIN));
    } while (n != 1);
    shared->awake++;
    wait_until_awake(PROCESSES);
}

/* How the bytes are sent, and where the processes run. */
struct way {
    uint32_t events;
    bool at_once;    /* all bytes come together; otherwise each byte comes when the previous one has
                        been taken */
    bool namespaces; /* each process has a pid namespace of its own, as in a container */
};

/* Returns the longest time that a process takes to wake up. */
static double processes_take(const struct way *way)
{
    bool at_once = way->at_once;
    struct pair pair = connected();
    int epfd = set_with(pair.server, way->events);
    pid_t pids[PROCESSES];
    double longest = 0;
    shared->awake = 0;
    for (unsigned i = 0; i < PROCESSES; i++) {
        pid_t parent = getpid();
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            end_with(parent);
            if (way->namespaces) {
                enter_namespace();
            }
            take_one(epfd);
            _exit(0);
        }
    }
    sleep_ms(100); /* by now they most likely sleep */
    for (unsigned i = 0; i < PROCESSES; i++) {
        if (i == 0 || !at_once) {
            write_all(pair.client, "xxx", at_once ? PROCESSES : 1);
        }
        double seconds = wait_until_awake(at_once ? PROCESSES : i + 1);
        longest = seconds > longest ? seconds : longest;
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        wait_for(pids[i]);
    }
    close(epfd);
    done(pair);
    return longest;
}

/* On a busy machine a process may be late. */
static void check_processes(struct way way)
{
    double best = LONGEST_S;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (unsigned turn = 0; turn < 5 && best > 0.2; turn++) {
        double longest = processes_take(&way);
        best = longest < best ? longest : best;
    }
    CHECK(best <= 0.2);
}

static void processes_share_a_set_by_level(void)
{
    check_processes((struct way){.events = EPOLLIN, .at_once = true});
    check_processes((struct way){.events = EPOLLIN});
}

static void processes_share_a_set_by_edge(void)
{
    check_processes((struct way){.events = EPOLLIN | EPOLLET});
}

static void processes_of_several_namespaces_share_a_set(void)
{
    check_processes((struct way){.events = EPOLLIN, .namespaces = true});
}

const struct check checks_of_shared_sets[] = {
    CHECK_ENTRY(processes_share_a_set_by_level),
    CHECK_ENTRY(processes_share_a_set_by_edge),
    CHECK_ENTRY(processes_of_several_namespaces_share_a_set),
    {NULL, NULL},
};
