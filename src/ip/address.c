/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BITS4_MIN 8u
#define BITS4_MAX 30u
#define BITS6_MIN 8u
#define BITS6_MAX 112u
#define TEXT_BYTES 64u

static uint32_t mask4(unsigned bits)
{
    return UINT32_MAX << (32 - bits);
}

/* Splits "ADDRESS/BITS". */
static int split(const char *text, char ret_address[TEXT_BYTES], unsigned min, unsigned max,
                 unsigned *ret_bits, struct via_error *err)
{
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= TEXT_BYTES) {
        return via_error_set(err, -EINVAL, "network '%.60s': it is not ADDRESS/LENGTH", text);
    }
    memcpy(ret_address, text, (size_t)(slash - text));
    ret_address[slash - text] = '\0';
    char *end;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits < min || bits > max) {
        return via_error_set(err, -EINVAL, "network '%.60s': the length is a number from %u to %u",
                             text, min, max);
    }
    *ret_bits = (unsigned)bits;
    return 0;
}

int via_ip_network_parse4(const char *text, struct via_ip_network *network, struct via_error *err)
{
    char address[TEXT_BYTES];
    unsigned bits;
    struct in_addr in;
    int rc = split(text, address, BITS4_MIN, BITS4_MAX, &bits, err);
    if (rc != 0) {
        return rc;
    }
    if (inet_pton(AF_INET, address, &in) != 1) {
        return via_error_set(err, -EINVAL, "network '%.60s': it is no IPv4 address", text);
    }
    uint32_t base = ntohl(in.s_addr);
    if ((base & ~mask4(bits)) != 0) {
        return via_error_set(err, -EINVAL, "network '%.60s': bits behind the length are set", text);
    }
    if (base >> 24 == 0 || base >> 24 == 127 || base >> 28 >= 14) {
        return via_error_set(err, -EINVAL, "network '%.60s': hosts can not have such addresses",
                             text);
    }
    network->base4 = base;
    network->bits4 = bits;
    return 0;
}

static bool has_bits_behind(const uint8_t address[16], unsigned bits)
{
    for (unsigned i = bits; i < 128; i++) {
        if ((address[i / 8] & 0x80u >> i % 8) != 0) {
            return true;
        }
    }
    return false;
}

int via_ip_network_parse6(const char *text, struct via_ip_network *network, struct via_error *err)
{
    char address[TEXT_BYTES];
    unsigned bits;
    uint8_t base[16];
    if (strcmp(text, "none") == 0) {
        network->bits6 = 0;
        return 0;
    }
    int rc = split(text, address, BITS6_MIN, BITS6_MAX, &bits, err);
    if (rc != 0) {
        return rc;
    }
    if (inet_pton(AF_INET6, address, base) != 1) {
        return via_error_set(err, -EINVAL, "network '%.60s': it is no IPv6 address", text);
    }
    if (has_bits_behind(base, bits)) {
        return via_error_set(err, -EINVAL, "network '%.60s': bits behind the length are set", text);
    }
    if (base[0] == 0 || base[0] == 0xff || (base[0] == 0xfe && base[1] >= 0x80)) {
        return via_error_set(err, -EINVAL, "network '%.60s': hosts can not have such addresses",
                             text);
    }
    memcpy(network->base6, base, sizeof(base));
    network->bits6 = bits;
    return 0;
}

bool via_ip_network_has4(const struct via_ip_network *network, unsigned host)
{
    return host != 0 && host < ~mask4(network->bits4);
}

uint32_t via_ip_address4(const struct via_ip_network *network, unsigned host)
{
    return network->base4 + host;
}

void via_ip_address6(const struct via_ip_network *network, unsigned host, uint8_t ret_address[16])
{
    memcpy(ret_address, network->base6, 16);
    ret_address[14] = (uint8_t)(host >> 8);
    ret_address[15] = (uint8_t)host;
}

int via_ip_host_of4(const struct via_ip_network *network, uint32_t address)
{
    uint32_t host = address - network->base4;
    return host <= UINT16_MAX && via_ip_network_has4(network, host) ? (int)host : -1;
}

int via_ip_host_of6(const struct via_ip_network *network, const uint8_t address[16])
{
    int host = address[14] << 8 | address[15];
    return network->bits6 != 0 && host != 0 && memcmp(address, network->base6, 14) == 0 ? host : -1;
}

bool via_ip_is_multicast4(const struct via_ip_network *network, uint32_t address)
{
    return address >> 28 == 14 || address == UINT32_MAX ||
           address == (network->base4 | ~mask4(network->bits4));
}

bool via_ip_is_multicast6(const uint8_t address[16])
{
    return address[0] == 0xff;
}
