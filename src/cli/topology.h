/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_TOPOLOGY_H
#define VIA_CLI_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Which hosts a fabric has and how they are cabled: from a file (viaduct-topology(5)) or one of the
 * usual shapes. A topology that these functions give out is sound: ids are unique and in range,
 * each link joins two different hosts that exist, and no host has more links than ports.
 */

/* 127.77.0.ID is a host's address: 0 is the network's, 255 its broadcast address. */
#define VIA_TOPOLOGY_HOST_MIN 1u
#define VIA_TOPOLOGY_HOST_MAX 254u
/* Of an emulated host: each link takes memory of its own, and a bell of the host. */
#define VIA_TOPOLOGY_PORTS_MAX 16u
/* VIA_CHANNELS_MAX of core, which the command does not include; tests/unit/test_topology.c checks
 * that it is the same. */
#define VIA_TOPOLOGY_CHANNELS_MAX 14u
#define VIA_TOPOLOGY_LINKS_MAX (VIA_TOPOLOGY_HOST_MAX * VIA_TOPOLOGY_PORTS_MAX / 2)

/* Of a torus that a shape makes; core has room for VIA_DIMENSIONS_MAX. */
#define VIA_TOPOLOGY_DIMENSIONS_MAX 3u

/* A file larger than this is none. */
#define VIA_TOPOLOGY_FILE_BYTES_MAX (1u << 20)

struct via_topology_link {
    uint16_t a; /* a < b */
    uint16_t b;
    uint8_t number;    /* of the cables between a and b: 0, 1, ... */
    uint8_t dimension; /* of a torus; 0 in any other fabric */
};

struct via_topology {
    unsigned channels_count; /* 0 = not said */
    unsigned hosts_count;
    uint16_t hosts[VIA_TOPOLOGY_HOST_MAX]; /* in the order of the file */
    unsigned links_count;
    struct via_topology_link links[VIA_TOPOLOGY_LINKS_MAX];
};

/*
 * Reads a topology from text, which need not end in 0 or a newline; name is for errors, which begin
 * with "name:line: ". 0 or -EINVAL; *ret is undefined then.
 */
int via_topology_parse(const char *name, const char *text, size_t bytes, struct via_topology *ret,
                       struct via_error *err) VIA_MUST_CHECK;

/* The same from a file. Also -errno of open and read, -EFBIG. */
int via_topology_load(const char *path, struct via_topology *ret,
                      struct via_error *err) VIA_MUST_CHECK;

enum via_topology_shape {
    VIA_TOPOLOGY_RING,  /* 1-2-...-N-1; a ring of 2 is one link, of 1 none */
    VIA_TOPOLOGY_CHAIN, /* 1-2-...-N */
    VIA_TOPOLOGY_STAR,  /* 1 linked with each other */
    VIA_TOPOLOGY_MESH,  /* each with each */
};

/* Hosts 1..count. -EINVAL when a host's ids or ports do not suffice. */
int via_topology_make(enum via_topology_shape shape, unsigned count, struct via_topology *ret,
                      struct via_error *err) VIA_MUST_CHECK;

/*
 * Hosts along each dimension, "AxB" or "AxBxC", each 2 or more: host 1 + x + A * (y + B * z) is
 * linked with the next in each dimension and the last with the first; two in a dimension have one
 * link. -EINVAL says what is wrong.
 */
int via_topology_make_torus(const char *sizes, struct via_topology *ret,
                            struct via_error *err) VIA_MUST_CHECK;

#endif
