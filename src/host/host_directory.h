/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_DIRECTORY_H
#define VIA_HOST_HOST_DIRECTORY_H

#include <jansson.h>

#include "base/error.h"
#include "host/directory.h"
#include "host/host_message.h"
#include "host/hosts_page.h"

/*
 * How the directory (directory.h) travels: each host sends its own entry, by messages to
 * VIA_HOST_ENDPOINT_DIRECTORY, to every host that it can reach, once, and again when the entry or
 * the other host's session has changed. So a change of a host costs one entry for each other host,
 * and a host that joins one each way; a host sends no change sooner than VIA_DIRECTORY_PAUSE_NS
 * after the last one, but for a few after a quiet time.
 */
struct via_host;

#define VIA_DIRECTORY_PAUSE_NS (100 * VIA_MSEC_NS)
/* How many changes may follow each other faster, after a quiet time. */
#define VIA_DIRECTORY_BURST 8u
/* After a host has not taken an entry. */
#define VIA_DIRECTORY_RETRY_NS VIA_SEC_NS
/* Messages under way at a time, of VIA_HOST_ASKS_MAX that all services share. */
#define VIA_DIRECTORY_SENDS_MAX 32u

/* The parts of the directory that another host has. */
/* Out of reach for as long as operations on a host wait, it is gone: this, where give_up_ns is not
 * given. */
#define VIA_DIRECTORY_GONE_NS (120 * VIA_SEC_NS)

struct via_directory_peer {
    uint32_t session;  /* told in this one; 0 = not told */
    uint32_t revision; /* told, or under way */
    uint16_t next;     /* links from here on are still to be sent */
    uint16_t under_way;
    bool telling;    /* HOST has been sent, links are to follow */
    bool failed;     /* a message under way was not taken */
    bool is_foreign; /* in this session it takes no such messages */
    uint64_t retry_ns;
    bool reachable;   /* at the last check */
    uint64_t lost_ns; /* since then it is not; 0 = it never was */
};

struct via_host_directory {
    struct via_directory table;
    struct via_directory_peer *peers; /* hosts_max */
    uint16_t *plain_hops;             /* hosts_max: over links that are no kernel's network */
    uint16_t *all_hops;               /* hosts_max: over all links that hosts have announced */
    bool *by_network;            /* hosts_max: the last way that led there was a kernel's network */
    struct via_hosts_page *page; /* NULL: it could not be made */
    struct via_hosts_entry *entries; /* of the page, while it is made */
    unsigned under_way;
    bool dirty;          /* links or routes have changed */
    bool heard;          /* an entry has changed */
    unsigned changes;    /* own changes to be paid for yet, VIA_DIRECTORY_PAUSE_NS each */
    bool telling;        /* some host lacks a part of the own entry */
    uint64_t changed_ns; /* last check of the own entry */
    uint64_t gone_ns;    /* when the next host that is out of reach counts as gone */
    uint64_t booted_ns;
};

extern const struct via_host_service via_host_directory_service;

int via_host_directory_open(struct via_host *host, struct via_error *err);
void via_host_directory_close(struct via_host *host);
void via_host_directory_changed(struct via_host *host); /* links or routes have changed */
void via_host_directory_renamed(struct via_host *host); /* host->identity has changed */
uint64_t via_host_directory_tick(struct via_host *host);

/* Do TCP connections to the host go through pipes? As was measured on this way; else if a shortest
 * way leads over no kernel's network. */
bool via_host_directory_has_pipes(const struct via_host *host, uint16_t id);

/* Text of a page, about: with the largest entry it stays below VIA_REMOTE_ANSWER_BYTES_MAX. */
#define VIA_DIRECTORY_PAGE_BYTES ((size_t)256 << 10)

/*
 * The answer to {"cmd":"directory"}: hosts from id `first` on, at least one if there is one, then
 * as many as fit into count_max and bytes_max. "next" is the id to go on from, or null.
 */
json_t *via_host_directory_json(struct via_host *host, unsigned first, unsigned count_max,
                                size_t bytes_max);

#endif
