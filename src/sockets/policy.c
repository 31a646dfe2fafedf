/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sockets/os.h"

#define AFTER_CALLS_DEFAULT 4u

struct via_policy via_policy;

static const unsigned char v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool via_address_of(const struct sockaddr *addr, socklen_t bytes, struct via_address *ret_address)
{
    if (addr == NULL || bytes < sizeof(sa_family_t)) {
        return false;
    }
    if (addr->sa_family == AF_INET && bytes >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in in;
        memcpy(&in, addr, sizeof(in));
        memcpy(ret_address->ip, v4_prefix, sizeof(v4_prefix));
        memcpy(ret_address->ip + sizeof(v4_prefix), &in.sin_addr, 4);
        ret_address->port = ntohs(in.sin_port);
        return true;
    }
    if (addr->sa_family == AF_INET6 && bytes >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 in6;
        memcpy(&in6, addr, sizeof(in6));
        memcpy(ret_address->ip, &in6.sin6_addr, sizeof(ret_address->ip));
        ret_address->port = ntohs(in6.sin6_port);
        return true;
    }
    return false;
}

bool via_address_is_v4(const struct via_address *address)
{
    return memcmp(address->ip, v4_prefix, sizeof(v4_prefix)) == 0;
}

bool via_address_is_any(const struct via_address *address)
{
    static const unsigned char zero[16];
    return memcmp(address->ip, zero, sizeof(zero)) == 0 ||
           (via_address_is_v4(address) && memcmp(address->ip + 12, zero, 4) == 0);
}

bool via_address_ip_equal(const struct via_address *a, const struct via_address *b)
{
    return memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

/* The next item of a list separated by commas; false at its end. */
static bool next_item(const char **text, char *ret_item, size_t max)
{
    const char *from = *text;
    if (*from == '\0') {
        return false;
    }
    size_t length = strcspn(from, ",");
    *text = from + length + (from[length] == ',' ? 1 : 0);
    if (length >= max) {
        length = max - 1; /* too long for anything valid: what is left is not valid either */
    }
    memcpy(ret_item, from, length);
    ret_item[length] = '\0';
    return true;
}

static int parse_number(const char *text, char **ret_end, unsigned long max,
                        unsigned long *ret_value)
{
    if (*text < '0' || *text > '9') {
        return -EINVAL;
    }
    errno = 0;
    *ret_value = strtoul(text, ret_end, 10);
    return errno != 0 || *ret_value > max ? -EINVAL : 0;
}

int via_policy_parse_ports(struct via_policy *policy, const char *text)
{
    char item[32];
    while (next_item(&text, item, sizeof(item))) {
        char *end = item;
        unsigned long first, last;
        if (parse_number(item, &end, UINT16_MAX, &first) != 0) {
            return -EINVAL;
        }
        last = first;
        if (*end == '-' && parse_number(end + 1, &end, UINT16_MAX, &last) != 0) {
            return -EINVAL;
        }
        if (*end != '\0' || last < first || policy->ports_count == VIA_POLICY_RULES_MAX) {
            return -EINVAL;
        }
        policy->ports[policy->ports_count++] =
            (struct via_policy_range){(uint16_t)first, (uint16_t)last};
    }
    return 0;
}

int via_policy_parse_networks(struct via_policy *policy, const char *text)
{
    char item[64];
    while (next_item(&text, item, sizeof(item))) {
        struct via_policy_network network = {.prefix_bits = 128};
        char *slash = strchr(item, '/');
        unsigned long bits = 128;
        if (slash != NULL) {
            char *end = slash;
            *slash = '\0';
            if (parse_number(slash + 1, &end, 128, &bits) != 0 || *end != '\0') {
                return -EINVAL;
            }
        }
        if (inet_pton(AF_INET, item, network.ip + 12) == 1) {
            memcpy(network.ip, v4_prefix, sizeof(v4_prefix));
            if (slash != NULL && bits > 32) {
                return -EINVAL;
            }
            bits = slash != NULL ? bits + 96 : 128;
        } else if (inet_pton(AF_INET6, item, network.ip) != 1) {
            return -EINVAL;
        }
        if (policy->networks_count == VIA_POLICY_RULES_MAX) {
            return -EINVAL;
        }
        network.prefix_bits = (uint8_t)bits;
        policy->networks[policy->networks_count++] = network;
    }
    return 0;
}

void via_policy_init(void)
{
    const char *text = getenv("VIADUCT_SOCKETS");
    via_policy = (struct via_policy){.on = true, .after_calls = AFTER_CALLS_DEFAULT, .host = -1};
    if (text != NULL && strcmp(text, "on") != 0 && *text != '\0') {
        via_policy.on = false;
    }
    text = getenv("VIADUCT_SOCKETS_PORTS");
    if (text != NULL && via_policy_parse_ports(&via_policy, text) != 0) {
        via_policy.on = false;
    }
    text = getenv("VIADUCT_SOCKETS_NETWORKS");
    if (text != NULL && via_policy_parse_networks(&via_policy, text) != 0) {
        via_policy.on = false;
    }
    text = getenv("VIADUCT_SOCKETS_AFTER");
    char *end = NULL;
    unsigned long value;
    if (text != NULL && parse_number(text, &end, 1000000, &value) == 0 && *end == '\0') {
        via_policy.after_calls = (uint32_t)value;
    }
    text = getenv("VIADUCT_HOST");
    if (text != NULL && parse_number(text, &end, 1023, &value) == 0 && *end == '\0') {
        via_policy.host = (int)value;
    }
    text = getenv("VIADUCT_SOCKETS_STATS");
    if (text != NULL && *text != '\0') {
        via_policy.stats = strdup(text); /* the program may change its environment */
    }
}

static bool in_network(const struct via_policy_network *network, const struct via_address *address)
{
    unsigned bytes = network->prefix_bits / 8;
    unsigned bits = network->prefix_bits % 8;
    if (memcmp(network->ip, address->ip, bytes) != 0) {
        return false;
    }
    return bits == 0 || (network->ip[bytes] ^ address->ip[bytes]) >> (8 - bits) == 0;
}

bool via_policy_allows(const struct via_policy *policy, const struct via_address *server,
                       const struct via_address *peer)
{
    if (!policy->on) {
        return false;
    }
    bool allowed = policy->ports_count == 0;
    for (unsigned i = 0; i < policy->ports_count && !allowed; i++) {
        allowed = server->port >= policy->ports[i].first && server->port <= policy->ports[i].last;
    }
    if (!allowed || policy->networks_count == 0) {
        return allowed;
    }
    for (unsigned i = 0; i < policy->networks_count; i++) {
        if (in_network(&policy->networks[i], peer)) {
            return true;
        }
    }
    return false;
}

/* --- this machine's addresses ------------------------------------------------------------------
 */

#define OWN_MAX 64u
#define OWN_NS_MAX (5 * VIA_SEC_NS)

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static struct via_address own[OWN_MAX];
static unsigned own_count;
static uint64_t own_read_ns;

static void read_own(void)
{
    struct ifaddrs *list;
    own_count = 0;
    own_read_ns = via_os_now_ns();
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (struct ifaddrs *it = list; it != NULL && own_count < OWN_MAX; it = it->ifa_next) {
        socklen_t bytes = it->ifa_addr != NULL && it->ifa_addr->sa_family == AF_INET6
                              ? sizeof(struct sockaddr_in6)
                              : sizeof(struct sockaddr_in);
        if (via_address_of(it->ifa_addr, bytes, &own[own_count])) {
            own_count++;
        }
    }
    freeifaddrs(list);
}

bool via_address_is_local(const struct via_address *address)
{
    static const unsigned char loopback6[16] = {[15] = 1};
    if ((via_address_is_v4(address) && address->ip[12] == 127) ||
        memcmp(address->ip, loopback6, sizeof(loopback6)) == 0) {
        return true;
    }
    bool found = false;
    if (pthread_mutex_trylock(&own_lock) != 0) {
        return false; /* a fork may have left it locked; then only loopback is known */
    }
    if (own_read_ns == 0 || via_os_now_ns() - own_read_ns > OWN_NS_MAX) {
        read_own();
    }
    for (unsigned i = 0; i < own_count && !found; i++) {
        found = via_address_ip_equal(&own[i], address);
    }
    pthread_mutex_unlock(&own_lock);
    return found;
}

int via_address_fabric_host(const struct via_address *address)
{
    const unsigned char *ip = address->ip + 12;
    if (!via_address_is_v4(address) || (ip[0] != 127 && ip[0] != 10) || ip[1] != 77 || ip[2] != 0) {
        return -1;
    }
    return ip[3];
}
