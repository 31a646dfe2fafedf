/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_TOPOLOGY_H
#define VIA_CLI_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * The hosts of a fabric and their cables, from a file (viaduct-topology(5)) or as one of the usual
 * shapes. The resulting topology is valid: ids are unique and in range, each link joins two
 * different hosts that exist, and no host has more links than ports.
 */

/* 127.77.0.ID is a host's address: 0 is the network's, 255 its broadcast address. */
#define VIA_TOPOLOGY_HOST_MIN 1u
#define VIA_TOPOLOGY_HOST_MAX 254u
/* Maximum for an emulated host: each link needs its own memory, and a bell of the host. */
#define VIA_TOPOLOGY_PORTS_MAX 16u
/* Equal to VIA_CHANNELS_MAX of core, which the command does not include: tests/unit/test_topology.c
 * compares them. */
#define VIA_TOPOLOGY_CHANNELS_MAX 14u
#define VIA_TOPOLOGY_LINKS_MAX (VIA_TOPOLOGY_HOST_MAX * VIA_TOPOLOGY_PORTS_MAX / 2)

/* Maximum for a torus; core has room for VIA_DIMENSIONS_MAX. */
#define VIA_TOPOLOGY_DIMENSIONS_MAX 3u

/* Larger files are refused. */
#define VIA_TOPOLOGY_FILE_BYTES_MAX (1u << 20)

struct via_topology_link {
    uint16_t a; /* a < b */
    uint16_t b;
    uint8_t number;    /* number of the cable between a and b: 0, 1, ... */
    uint8_t dimension; /* of a torus; 0 in any other fabric */
};

struct via_topology {
    unsigned channels_count; /* 0: not given */
    unsigned hosts_count;
    uint16_t hosts[VIA_TOPOLOGY_HOST_MAX]; /* in the order of the file */
    unsigned links_count;
    struct via_topology_link links[VIA_TOPOLOGY_LINKS_MAX];
};

/*
 * Parses a topology. The text need not end in 0 or a newline. name: for errors, which begin with
 * "name:line: ". 0; -EINVAL, and *ret is then undefined.
 */
int via_topology_parse(const char *name, const char *text, size_t bytes, struct via_topology *ret,
                       struct via_error *err) VIA_MUST_CHECK;

/* The same from a file. Also errors of open() and read(), and -EFBIG. */
int via_topology_load(const char *path, struct via_topology *ret,
                      struct via_error *err) VIA_MUST_CHECK;

enum via_topology_shape {
    VIA_TOPOLOGY_RING,  /* 1-2-...-N-1; a ring of 2 is one link, of 1 none */
    VIA_TOPOLOGY_CHAIN, /* 1-2-...-N */
    VIA_TOPOLOGY_STAR,  /* host 1 linked with each other host */
    VIA_TOPOLOGY_MESH,  /* each host linked with each other host */
};

/* Makes hosts 1..count. -EINVAL: the ids, or the ports of a host, do not suffice. */
int via_topology_make(enum via_topology_shape shape, unsigned count, struct via_topology *ret,
                      struct via_error *err) VIA_MUST_CHECK;

/*
 * Makes a torus. sizes: the number of hosts in each dimension, "AxB" or "AxBxC", each 2 or more.
 * Host 1 + x + A * (y + B * z) is linked with the next host in each dimension, and the last one
 * with the first; two hosts in a dimension have one link. -EINVAL, and the text says what is
 * wrong.
 */
int via_topology_make_torus(const char *sizes, struct via_topology *ret,
                            struct via_error *err) VIA_MUST_CHECK;

#endif
