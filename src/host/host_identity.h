/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_IDENTITY_H
#define VIA_HOST_HOST_IDENTITY_H

#include "base/error.h"
#include "host/rundir.h"

struct via_host_options;

/*
 * The names of a host for people and programs: name of its machine, IP addresses, name of its
 * fabric. A host keeps a copy that is checked. Control thread.
 */
#define VIA_HOST_NAME_BYTES_MAX 64u
#define VIA_HOST_ADDRESSES_MAX 16u
#define VIA_HOST_ADDRESS_BYTES 46u /* of an IPv6 address as text, with its 0: INET6_ADDRSTRLEN */

struct via_host_identity {
    char name[VIA_HOST_NAME_BYTES_MAX + 1];
    char fabric[VIA_FABRIC_NAME_BYTES_MAX + 1]; /* "" = not named */
    unsigned addresses_count;
    char addresses[VIA_HOST_ADDRESSES_MAX][VIA_HOST_ADDRESS_BYTES]; /* as inet_ntop(3) writes */
};

/* Each takes one value and checks it. 0, or -EINVAL and what is wrong; the identity is unchanged
 * then. */
int via_host_identity_set_name(struct via_host_identity *identity, const char *name,
                               struct via_error *err) VIA_MUST_CHECK;
int via_host_identity_set_fabric(struct via_host_identity *identity, const char *fabric,
                                 struct via_error *err) VIA_MUST_CHECK;
/* IPv4 or IPv6; one that is not an address of a machine, or there already, is an error. */
int via_host_identity_add_address(struct via_host_identity *identity, const char *address,
                                  struct via_error *err) VIA_MUST_CHECK;

/* All of the options. A machine whose name is unfit is "host-<id>". */
int via_host_identity_init(struct via_host_identity *identity,
                           const struct via_host_options *options,
                           struct via_error *err) VIA_MUST_CHECK;

#endif
