/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_DIRECTORY_H
#define VIA_HOST_HOST_DIRECTORY_H

#include <jansson.h>

#include "base/error.h"
#include "host/directory.h"
#include "host/host_message.h"
#include "host/hosts_page.h"

/*
 * The distribution of the directory (directory.h). Each host sends its own entry, by messages to
 * VIA_HOST_ENDPOINT_DIRECTORY, to every host that it can reach: once, and again when the entry or
 * the session of the other host has changed. So a change of a host costs one entry for each other
 * host, and a host that joins costs one entry in each direction with each other host. A host sends
 * a change VIA_DIRECTORY_PAUSE_NS after the last one or later, except for VIA_DIRECTORY_BURST
 * changes after a quiet time.
 */
struct via_host;

#define VIA_DIRECTORY_PAUSE_NS (100 * VIA_MSEC_NS)
/* Number of changes without a pause after a quiet time. */
#define VIA_DIRECTORY_BURST 8u
/* Time until the next attempt after a host has not received an entry. */
#define VIA_DIRECTORY_RETRY_NS VIA_SEC_NS
/* Maximum of messages under way, out of VIA_HOST_REQUESTS_MAX, which all services share. */
#define VIA_DIRECTORY_SENDS_MAX 32u

/* A host counts as gone after it was unreachable for give_up_ns, or for this time if the options
 * have no give_up_ns. */
#define VIA_DIRECTORY_GONE_NS (120 * VIA_SEC_NS)

/* The parts of the own entry that another host has received. */
struct via_directory_peer {
    uint32_t session;  /* the peer's session that got the entry; 0: none */
    uint32_t revision; /* the revision that was sent, or is under way */
    uint16_t next;     /* links from this index on are still to be sent */
    uint16_t under_way;
    bool links_due;  /* HOST was sent, links are still to be sent */
    bool failed;     /* the peer has not received a message that was under way */
    bool is_foreign; /* in this session the peer accepts no such messages */
    uint64_t retry_ns;
    bool reachable;   /* at the last check */
    uint64_t lost_ns; /* time since which it is unreachable; 0: it never was reachable */
};

struct via_host_directory {
    struct via_directory table;
    struct via_directory_peer *peers; /* hosts_max */
    uint16_t *plain_hops; /* hosts_max: over links that are not the network of a kernel */
    uint16_t *all_hops;   /* hosts_max: over all links that hosts have announced */
    bool *by_network;     /* hosts_max: the last route to the host was the network of a kernel */
    struct via_hosts_page *page;     /* NULL: its creation has failed */
    struct via_hosts_entry *entries; /* of the next version of the page */
    unsigned under_way;
    bool dirty;          /* links or routes have changed */
    bool changed;        /* an entry has changed */
    unsigned changes;    /* recent changes of entries: one expires each VIA_DIRECTORY_PAUSE_NS; at
                            VIA_DIRECTORY_BURST the next one waits */
    bool sends_due;      /* a host lacks a part of the own entry */
    uint64_t changed_ns; /* last check of the own entry */
    uint64_t gone_ns;    /* when the next unreachable host counts as gone */
    uint64_t booted_ns;
};

extern const struct via_host_service via_host_directory_service;

int via_host_directory_open(struct via_host *host, struct via_error *err);
void via_host_directory_close(struct via_host *host);
void via_host_directory_changed(struct via_host *host); /* links or routes have changed */
void via_host_directory_renamed(struct via_host *host); /* host->identity has changed */
uint64_t via_host_directory_tick(struct via_host *host);

/* True if TCP connections to the host use pipes: as was measured on this route; without a
 * measurement, if a shortest route avoids the networks of kernels. */
bool via_host_directory_has_pipes(const struct via_host *host, uint16_t id);

/* Approximate bytes of text in one answer. With the largest entry the text stays below
 * VIA_REMOTE_ANSWER_BYTES_MAX. */
#define VIA_DIRECTORY_PAGE_BYTES ((size_t)256 << 10)

/*
 * The answer to {"cmd":"directory"}: hosts from id `first` on, at least one if there is one, then
 * as many as fit into count_max and bytes_max. "next" is the id with which the next answer begins,
 * or null.
 */
json_t *via_host_directory_json(struct via_host *host, unsigned first, unsigned count_max,
                                size_t bytes_max);

#endif
