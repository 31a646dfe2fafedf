/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The checks of prog_socket_checks, and their common helpers. */
#ifndef VIA_TESTS_SOCKETS_CHECKS_H
#define VIA_TESTS_SOCKETS_CHECKS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct sockaddr_in;

extern const char *current; /* name of the check that runs */

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            printf("FAILED %s: line %d: %s (errno %d: %s)\n", current, __LINE__, #condition, \
                   errno, strerror(errno));                                                  \
            fflush(stdout);                                                                  \
            _exit(1);                                                                        \
        }                                                                                    \
    } while (0)

struct pair {
    int client;
    int server;
};

struct check {
    const char *name;
    void (*run)(void);
};

/* Tables of checks, terminated by one without a name. */
extern const struct check checks_of_bytes[];
extern const struct check checks_of_ends[];
extern const struct check checks_of_deaths[];
extern const struct check checks_of_waiting[];
extern const struct check checks_of_processes[];
extern const struct check checks_of_zcopy[];
extern const struct check checks_of_many[];
extern const struct check checks_of_order[];
extern const struct check checks_of_calls[];
extern const struct check checks_of_sets[];
extern const struct check checks_of_set_races[];
extern const struct check checks_of_shared_sets[];
extern const struct check checks_of_nested_sets[];
extern const struct check checks_of_mistakes[];
extern const struct check checks_of_fortified[];
extern const struct check checks_of_demotion[];
extern const struct check checks_of_rings[];
extern const struct check checks_of_identity[];
extern const struct check checks_of_options[];
extern const struct check checks_of_changeover[];
extern const struct check checks_of_stalls[];
extern const struct check checks_of_silence[];
extern const struct check checks_of_limits[];
extern const struct check checks_of_copies[];
extern const struct check checks_of_addresses[];
extern const struct check checks_of_cancelling[];
extern const struct check checks_of_signals[];
extern const struct check checks_of_namespaces[];
extern const struct check checks_of_forks[];
extern const struct check checks_of_handlers[];
extern const struct check checks_of_steps_forks[];
extern const struct check checks_of_steps_calls[];
extern const struct check checks_of_returns[];
extern const struct check checks_of_notifications[];

#define CHECK_ENTRY(name) \
    {                     \
#name, name       \
    }

/* A socket that listens on a free port of 127.0.0.1. */
int listener(struct sockaddr_in *ret_addr);
/* Two ends of a connection that has seen some traffic. */
struct pair connected(void);
/* Connects a socket that the caller has used before: copied, or put into sets. */
struct pair connect_later(int client);
/* ... and of one that has not. */
struct pair just_connected(void);
void done(struct pair pair);

void write_all(int fd, const void *data, size_t bytes);
void read_all(int fd, void *data, size_t bytes);
/* Moves enough bytes in both directions for any library to set up what it wants. */
void talk_both_ways(int one, int other);
void nonblocking(int fd);
/* Writes until no more bytes are accepted. Returns the number of bytes. */
size_t fill_up(int fd);
/* Reads the expected number of bytes. */
size_t drain(int fd, size_t expected);

/* Sends SIGALRM repeatedly until no_more_signals(), because a single signal may come before the
 * call that it should interrupt. */
void every_ms(void (*handler)(int), int flags, int ms);
void no_more_signals(void);

/* --- epoll sets whose data are the descriptors ----------------------------------------------- */
int set_with(int fd, uint32_t events);
/* As epoll_ctl(). */
int put_in(int epfd, int fd, uint32_t events);
/* The events of the only descriptor in the set that has any; 0: none. */
uint32_t wait_in(int epfd, int fd, int timeout);

/* A child process writes a byte a little later. */
void write_later(int fd);

double now_s(void);
/* How long a check repeats calls that race: VIADUCT_CHECKS_RACE_S, or a second. */
double race_s(void);
void sleep_ms(int ms);
/* Waits for a child, which must succeed. */
void wait_for(pid_t pid);
/* Called in a child: ends the child with its parent, also if the parent has ended already, so that
 * the child holds no pipe that a test reads to its end. */
void end_with(pid_t parent);
/* Continues in a child that is process 1 of a pid namespace of its own, where the user may make
 * one. */
void enter_namespace(void);

#endif
