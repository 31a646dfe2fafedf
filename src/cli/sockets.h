/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_SOCKETS_H
#define VIA_CLI_SOCKETS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "host/control_sockets.h"

/* The TCP connections of this user's processes (root: of all processes), with the information of
 * the sockets library about them. */
#define VIA_SOCKETS_ADDRESS_BYTES 56u /* "[address]:port" */

struct via_sockets_row {
    pid_t pid;
    char program[16];
    int fd;
    char local[VIA_SOCKETS_ADDRESS_BYTES];
    char peer[VIA_SOCKETS_ADDRESS_BYTES];
    const char *state;           /* as ss(8) names it */
    bool counted;                /* stats is valid */
    struct via_stats_conn stats; /* a copy */
    bool accelerated;
    char why[512]; /* the reason if not accelerated */
};

struct via_sockets_list {
    struct via_sockets_row *rows;
    size_t count;
    size_t room;
};

/* pid 0: all. 0, -ESRCH or another negative errno. A process that ends meanwhile is left out. */
int via_sockets_scan(pid_t pid, struct via_sockets_list *ret_list,
                     struct via_error *err) VIA_MUST_CHECK;
void via_sockets_free(struct via_sockets_list *list);

/* sockets_view.c */
json_t *via_sockets_json(const struct via_sockets_list *list);
/* Prints the Prometheus text format. */
void via_sockets_print_metrics(const struct via_sockets_list *list);
void via_sockets_print(const struct via_sockets_list *list);

/* sockets_tcp.c: the kernel's table of connections in one network namespace. */
struct via_sockets_tcp {
    unsigned long inode;
    char local[VIA_SOCKETS_ADDRESS_BYTES];
    char peer[VIA_SOCKETS_ADDRESS_BYTES];
    const char *state;
};

struct via_sockets_table {
    char namespace[64]; /* "net:[inode]" */
    struct via_sockets_tcp *entries;
    size_t count;
    size_t room;
};

/* Reads the table through a process in the namespace, without listening sockets. 0 or a negative
 * errno. */
int via_sockets_table_read(pid_t pid, struct via_sockets_table *ret_table);
void via_sockets_table_free(struct via_sockets_table *table);
/* NULL: no TCP connection has this inode. */
const struct via_sockets_tcp *via_sockets_table_find(const struct via_sockets_table *table,
                                                     unsigned long inode);

/* Grows an array of `size`-byte elements when it is full. 0 or -ENOMEM. */
int via_sockets_grow(void **array, size_t size, size_t count, size_t *room);

#endif
