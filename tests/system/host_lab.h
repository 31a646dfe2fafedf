/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A few hosts for a test, in the test's process or as daemons. They are ended and removed even if
 * the test fails. */
#ifndef HOST_LAB_H
#define HOST_LAB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/host.h"
#include "viaduct/viaduct.h"

#define HOST_LAB_HOSTS_MAX 8u

struct host_lab {
    char rundir[64];
    unsigned hosts_count;
    bool ring;         /* else a chain */
    bool direct;       /* processes may map memory of neighbours */
    const char *like;  /* of links of daemons: more words of --link, "" or NULL */
    const char *model; /* hosts in this process: links are pex ports on register models, with these
                          options; NULL: they are emulated */
    const char *options; /* the same of hosts in this process: ",KEY=VALUE..." of a description */
    struct via_host *hosts[HOST_LAB_HOSTS_MAX];
    pid_t daemons[HOST_LAB_HOSTS_MAX]; /* 0 = not running */
};

/* Prepares the lab; no host runs yet. Hosts have the ids 0 to hosts_count - 1. */
void host_lab_init(struct host_lab *lab, unsigned hosts_count, bool ring, bool direct);
void host_lab_fini(struct host_lab *lab);
/* A cmocka teardown function of a test whose state is a lab from calloc(): ends and frees the
 * lab. */
int host_lab_tear_down(void **state);

/* Starts a host in this process. change: NULL, or a function that changes the options before they
 * are used. */
void host_lab_start(struct host_lab *lab, unsigned host,
                    void (*change)(struct via_host_options *options));
void host_lab_end(struct host_lab *lab, unsigned host);

/* Starts a host as a daemon, which is ready when this returns. extra: NULL, or more words of its
 * command line, up to NULL. */
void host_lab_spawn(struct host_lab *lab, unsigned host, const char *const *extra);
/* Starts a daemon without waiting; its standard error and its --ready-fd are the read ends of
 * pipes. */
pid_t host_lab_spawn_raw(struct host_lab *lab, unsigned host, const char *const *extra,
                         int *ret_error_fd, int *ret_ready_fd);
/* Sends the signal. Returns the exit status as waitpid() does. */
int host_lab_kill(struct host_lab *lab, unsigned host, int signal);

/* Starts all hosts in this process, and waits until each has a path to all others. */
void host_lab_start_all(struct host_lab *lab);
/* The same, with limits that keep links up on a busy machine. */
void host_lab_start_patient(struct host_lab *lab);
void host_lab_wait_routes(struct host_lab *lab);
/* Waits until the path from one host to another has this number of hops, -1 = no path. */
void host_lab_wait_hops(struct host_lab *lab, unsigned from, unsigned to, int hops);

/* Sends {"cmd":cmd}, or a whole request. The answer is the caller's. */
json_t *host_lab_request(struct host_lab *lab, unsigned host, json_t *request);
json_t *host_lab_status(struct host_lab *lab, unsigned host);
uint64_t host_lab_counter(struct host_lab *lab, unsigned host, const char *name);
unsigned host_lab_processes(struct host_lab *lab, unsigned host);
/* "cut" or "mend" */
void host_lab_cut(struct host_lab *lab, unsigned host, unsigned peer, const char *how);

/* Attaches by the client library. */
struct via_attach *host_lab_attach(struct host_lab *lab, unsigned host);

/* Starts a child process that does the work and then waits to be killed; the work is complete when
 * this returns. */
pid_t host_lab_fork(void (*work)(struct host_lab *lab, void *ctx), struct host_lab *lab, void *ctx);

uint64_t host_lab_now_ns(void);
/* Waits until check() returns true; fails the test after 10 s (more under a sanitizer). */
void host_lab_wait(bool (*check)(void *ctx), void *ctx, const char *what);
/* Open descriptors of a process; pid 0: this one. */
unsigned host_lab_fds(pid_t pid);

#endif
