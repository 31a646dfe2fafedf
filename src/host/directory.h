/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_DIRECTORY_H
#define VIA_HOST_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"
#include "host/host_identity.h"

/*
 * The directory of one host: entries of all hosts of the fabric, with name, addresses, version and
 * links. A host announces only its own entry. No threads, no clock, no I/O.
 *
 * The messages (docs/host.md, section 8) come from peers and may be hostile. Their contents are
 * copied, checked, and made safe for a terminal.
 */
#define VIA_DIRECTORY_LINKS_MAX 1024u /* of a host: its maximum */
#define VIA_DIRECTORY_WORD_BYTES 12u
#define VIA_DIRECTORY_LINKS_PER_MESSAGE 18u
#define VIA_DIRECTORY_PEER_UNKNOWN 0xffffu
#define VIA_DIRECTORY_VERSION_BYTES 32u
/* A host that joins receives the entries of all other hosts within this time; their order has no
 * meaning. */
#define VIA_DIRECTORY_HELD_NS (10 * VIA_SEC_NS)

/* IPv4 as ::ffff:a.b.c.d */
struct via_directory_ip {
    unsigned char byte[16];
};

enum via_directory_link_flags {
    VIA_DIRECTORY_LINK_CUT = 1, /* by request */
};

/* One end of a link. Texts end with 0 where they are shorter than their field. */
struct via_directory_link {
    uint16_t peer; /* VIA_DIRECTORY_PEER_UNKNOWN */
    uint8_t state; /* enum via_link_state */
    uint8_t flags; /* VIA_DIRECTORY_LINK_* */
    char driver[VIA_DIRECTORY_WORD_BYTES];
    char like[VIA_DIRECTORY_WORD_BYTES]; /* class of links */
};
_Static_assert(sizeof(struct via_directory_link) == 28, "as it is sent");

enum via_directory_type {
    VIA_DIRECTORY_HOST = 1,
    VIA_DIRECTORY_LINKS = 2, /* behind the HOST of the same revision */
};

/* Little-endian, as all messages between hosts. */
struct via_directory_host_message {
    uint32_t type;
    uint32_t revision;   /* a greater one each time that something has changed */
    uint64_t started_ns; /* the host; this and the next two of CLOCK_REALTIME */
    uint64_t booted_ns;  /* its machine */
    uint64_t sent_ns;
    uint32_t protocol_version;
    uint32_t frame_bytes;
    uint16_t hosts_max;
    uint16_t links_count;
    uint8_t channels_count;
    uint8_t addresses_count;
    uint8_t reserved[2];
    char name[72];
    char fabric[40];
    char version[VIA_DIRECTORY_VERSION_BYTES];
    struct via_directory_ip addresses[VIA_HOST_ADDRESSES_MAX];
};
_Static_assert(sizeof(struct via_directory_host_message) == 448, "no holes");
_Static_assert(VIA_HOST_NAME_BYTES_MAX < 72 && VIA_FABRIC_NAME_BYTES_MAX < 40, "they fit");

struct via_directory_links_message {
    uint32_t type;
    uint32_t revision;
    uint16_t first;
    uint16_t count;
    uint32_t reserved;
    struct via_directory_link links[VIA_DIRECTORY_LINKS_PER_MESSAGE];
};
#define VIA_DIRECTORY_LINKS_HEAD_BYTES 16u

struct via_directory_entry {
    uint32_t revision;
    uint32_t protocol_version;
    uint32_t frame_bytes;
    uint16_t hosts_max;
    uint8_t channels_count;
    uint64_t started_ns, booted_ns, sent_ns; /* by that host's clock */
    uint64_t last_received_ns;               /* now_ns of the last message */
    bool gone; /* unreachable for so long that another host may have its addresses by now */
    char name[VIA_HOST_NAME_BYTES_MAX + 1]; /* "" = no valid name */
    char fabric[VIA_FABRIC_NAME_BYTES_MAX + 1];
    char version[VIA_DIRECTORY_VERSION_BYTES + 1];
    unsigned addresses_count;
    struct via_directory_ip addresses[VIA_HOST_ADDRESSES_MAX];
    uint64_t since_ns[VIA_HOST_ADDRESSES_MAX]; /* now_ns of its first claim of each address */
    unsigned links_count;                      /* received so far */
    unsigned links_total;                      /* announced */
    struct via_directory_link links[VIA_DIRECTORY_LINKS_MAX];
};

struct via_directory {
    uint16_t host; /* the host with this directory */
    uint16_t hosts_max;
    struct via_directory_entry **entries; /* by id; NULL = unknown */
};

/* 0 or -ENOMEM. */
int via_directory_init(struct via_directory *directory, uint16_t host, uint16_t hosts_max);
void via_directory_fini(struct via_directory *directory);

/* NULL: the host has announced nothing. */
struct via_directory_entry *via_directory_find(const struct via_directory *directory,
                                               uint16_t host);

/*
 * Handles a message of host `source`. 1: the entry has changed; 0: it has not; -EPROTO: not a valid
 * message; -ENOMEM. Stores now_ns in last_received_ns.
 */
int via_directory_take(struct via_directory *directory, uint16_t source, const void *data,
                       size_t bytes, uint64_t now_ns);

/* The entry of this host itself, which the caller fills in. NULL: no memory. */
struct via_directory_entry *via_directory_own(struct via_directory *directory);

/* Messages that carry an entry to other hosts. */
void via_directory_make_host(const struct via_directory_entry *entry,
                             struct via_directory_host_message *ret_message);
/* Bytes of the message for the links from `first` on; 0: there are no more. */
size_t via_directory_make_links(const struct via_directory_entry *entry, unsigned first,
                                struct via_directory_links_message *ret_message);

/* Returns the host that owns the address. If several hosts claim it, it stays with the host that
 * had held it for VIA_DIRECTORY_HELD_NS when the next claim arrived. Without such a host the
 * address has no owner (-EADDRINUSE), because one of the claims is false. Addresses of this host
 * stay its own, even if another host claims them. The claim of an unreachable host is ignored if
 * another host claims the address. -ENOENT: unknown. Loopback addresses of other hosts are valid
 * only if this host has one in the same network of 8 bits: these hosts are on one machine.
 */
int via_directory_host_at(const struct via_directory *directory, const struct via_directory_ip *ip);

/* The host is gone, or reachable again; then it claims its addresses again. True: the state has
 * changed. */
bool via_directory_set_gone(struct via_directory_entry *entry, bool gone, uint64_t now_ns);

/* As inet_ntop(3). */
struct via_directory_ip_text {
    char text[VIA_HOST_ADDRESS_BYTES];
};
struct via_directory_ip_text via_directory_ip_text(const struct via_directory_ip *ip);
/* False: not an address. */
bool via_directory_ip_parse(const char *text, struct via_directory_ip *ret_ip);

/* The number of links on the shortest route from this host to each host, over links that are up at
 * their nearer end and for which use() is true; ret_hops[hosts_max], UINT16_MAX = no route. */
void via_directory_hops(const struct via_directory *directory,
                        bool (*use)(const struct via_directory_link *link), uint16_t *ret_hops);

#endif
