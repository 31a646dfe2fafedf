/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_identity.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"

static const char name_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

_Static_assert(VIA_HOST_ADDRESS_BYTES == INET6_ADDRSTRLEN, "what inet_ntop() writes at most");

int via_host_identity_set_name(struct via_host_identity *identity, const char *name,
                               struct via_error *err)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > VIA_HOST_NAME_BYTES_MAX || strspn(name, name_characters) != bytes ||
        name[0] == '.' || name[0] == '-') {
        return via_error_set(err, -EINVAL,
                             "name '%.70s': 1 to %u letters, digits or ._- are a name, not "
                             "beginning with a dot or a hyphen",
                             name, VIA_HOST_NAME_BYTES_MAX);
    }
    strcpy(identity->name, name);
    return 0;
}

int via_host_identity_set_fabric(struct via_host_identity *identity, const char *fabric,
                                 struct via_error *err)
{
    int rc = via_rundir_check_name(fabric, err);
    if (rc == 0) {
        strcpy(identity->fabric, fabric);
    }
    return rc;
}

/* True if the address is that of one machine. */
static bool is_unicast(int family, const struct in6_addr *address)
{
    const uint8_t *byte = address->s6_addr;
    if (family == AF_INET) {
        return byte[0] != 0 && byte[0] < 224;
    }
    return !IN6_IS_ADDR_UNSPECIFIED(address) && !IN6_IS_ADDR_MULTICAST(address) &&
           !IN6_IS_ADDR_V4MAPPED(address) && !IN6_IS_ADDR_LINKLOCAL(address);
}

int via_host_identity_add_address(struct via_host_identity *identity, const char *address,
                                  struct via_error *err)
{
    struct in6_addr binary = {0}; /* large enough for both families */
    char text[VIA_HOST_ADDRESS_BYTES];
    int family = strchr(address, ':') != NULL ? AF_INET6 : AF_INET;
    if (inet_pton(family, address, &binary) != 1) {
        return via_error_set(err, -EINVAL, "address '%.60s': neither an IPv4 nor an IPv6 address",
                             address);
    }
    if (!is_unicast(family, &binary)) {
        return via_error_set(err, -EINVAL,
                             "address '%.60s': not one at which other machines reach this one "
                             "(unspecified, multicast, link-local or mapped)",
                             address);
    }
    (void)inet_ntop(family, &binary, text, sizeof(text));
    for (unsigned i = 0; i < identity->addresses_count; i++) {
        if (strcmp(identity->addresses[i], text) == 0) {
            return via_error_set(err, -EINVAL, "address '%s' is given twice", text);
        }
    }
    if (identity->addresses_count == VIA_HOST_ADDRESSES_MAX) {
        return via_error_set(err, -EINVAL, "address '%s': a host has at most %u", text,
                             VIA_HOST_ADDRESSES_MAX);
    }
    strcpy(identity->addresses[identity->addresses_count++], text);
    return 0;
}

static void set_default_name(struct via_host_identity *identity, unsigned host)
{
    char name[VIA_HOST_NAME_BYTES_MAX + 2] = "";
    /* gethostname() may omit the final 0 of a name that does not fit. */
    bool known = gethostname(name, sizeof(name) - 1) == 0;
    if (!known || via_host_identity_set_name(identity, name, NULL) != 0) {
        snprintf(identity->name, sizeof(identity->name), "host-%u", host);
    }
}

int via_host_identity_init(struct via_host_identity *identity,
                           const struct via_host_options *options, struct via_error *err)
{
    struct via_host_identity made = {0};
    int rc = 0;
    if (options->name != NULL) {
        rc = via_host_identity_set_name(&made, options->name, err);
    } else {
        set_default_name(&made, options->host);
    }
    if (rc == 0 && options->fabric != NULL) {
        rc = via_host_identity_set_fabric(&made, options->fabric, err);
    }
    for (unsigned i = 0; i < options->addresses_count && rc == 0; i++) {
        rc = via_host_identity_add_address(&made, options->addresses[i], err);
    }
    if (rc == 0) {
        *identity = made;
    }
    return rc;
}
