/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOSTS_PAGE_H
#define VIA_HOST_HOSTS_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "host/rundir.h"

/*
 * Which host has which IP address, for programs that have not attached: a file in the run
 * directory, host-<id>.hosts, that the host writes and programs map. To look an address up takes no
 * system call.
 *
 * The file stays when the host is killed and is used again by the next one, so that maps of it go
 * on; a host that ends regularly sets `magic` to 0 and removes the file. Its size never changes
 * while it has its name.
 */
#define VIA_HOSTS_PAGE_MAGIC 0x56494148u
#define VIA_HOSTS_PAGE_BYTES (128u << 10)
#define VIA_HOSTS_PAGE_ENTRIES_MAX 5000u

enum via_hosts_flags {
    VIA_HOSTS_OWN = 1,   /* an address of this host */
    VIA_HOSTS_PIPES = 2, /* TCP connections to it go through pipes (host_directory.h) */
};

struct via_hosts_entry {
    unsigned char ip[16]; /* IPv4 as ::ffff:a.b.c.d; ascending */
    uint16_t host;
    uint16_t flags; /* VIA_HOSTS_* */
    uint32_t reserved;
};

struct via_hosts_page {
    _Atomic uint32_t magic;
    uint32_t host;
    _Atomic uint32_t version; /* a sequence lock: odd while the host changes the rest */
    uint32_t count;
    uint32_t reserved[12];
    struct via_hosts_entry entries[VIA_HOSTS_PAGE_ENTRIES_MAX];
};
_Static_assert(sizeof(struct via_hosts_page) <= VIA_HOSTS_PAGE_BYTES, "it fits");

/* --- the host --- */

/* passable: other users may read it. NULL and an error: there will be no page. */
struct via_hosts_page *via_hosts_page_open(const char *rundir, unsigned host, bool passable,
                                           struct via_error *err);
/* Sorts the entries, and writes them if they differ from the present ones. */
void via_hosts_page_write(struct via_hosts_page *page, struct via_hosts_entry *entries,
                          unsigned count);
void via_hosts_page_close(struct via_hosts_page *page, const char *rundir, unsigned host);

/* --- programs --- */

/* -ENOENT, -EACCES, -EPROTO: it is no such file. */
int via_hosts_page_map(const char *rundir, unsigned host, const struct via_hosts_page **ret_page);
void via_hosts_page_unmap(const struct via_hosts_page *page);
/* 0; -ENOENT; -ENODATA: the host has ended, and the page is not used again. */
int via_hosts_page_find(const struct via_hosts_page *page, const unsigned char ip[16],
                        struct via_hosts_entry *ret_entry);

#endif
