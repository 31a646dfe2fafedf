/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/meet/policy.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "sockets/conn/board.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"

struct via_policy via_policy;

static const unsigned char v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool via_address_read(const struct sockaddr *addr, socklen_t bytes, struct via_address *ret_address)
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

void via_address_of_any(struct via_address *address)
{
    if (via_address_is_any(address)) {
        address->ip[12] = via_address_is_v4(address) ? 127 : 0;
        address->ip[15] = 1;
    }
}

bool via_address_is_ip_equal(const struct via_address *a, const struct via_address *b)
{
    return memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

void via_policy_init(void)
{
    struct via_error err = {0};
    struct via_policy *policy = &via_policy;
    *policy = (struct via_policy){.off_reason = VIA_REASON_OFF};
    const char *program = program_invocation_short_name;
    if (via_rules_load(&policy->rules, program, &err) != 0) {
        via_board_complain(via_error_describe(&err));
    } else if (policy->rules.on && !via_rules_is_program_allowed(&policy->rules, program)) {
        policy->off_reason = VIA_REASON_RULES;
    } else {
        policy->on = policy->rules.on;
    }
    const char *text = getenv("VIADUCT_SOCKETS_STATS");
    if (text != NULL && *text != '\0') {
        policy->stats = strdup(text); /* the program may change its environment */
    }
}

bool via_policy_is_allowed(const struct via_policy *policy, const struct via_address *server,
                           const struct via_address *peer)
{
    return policy->on && via_rules_is_port_allowed(&policy->rules, server->port) &&
           via_rules_is_network_allowed(&policy->rules, peer->ip);
}

/* --- this machine's addresses ---------------------------------------------------------------- */

#define OWN_MAX 64u
#define OWN_NS_MAX (5 * VIA_SEC_NS)

static struct via_mutex own_lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
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
        if (via_address_read(it->ifa_addr, bytes, &own[own_count])) {
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
    if (!via_try_lock(&own_lock)) {
        /* another thread may have held the lock at a fork: then only loopback is found */
        return false;
    }
    if (own_read_ns == 0 || via_os_now_ns() - own_read_ns > OWN_NS_MAX) {
        read_own();
    }
    for (unsigned i = 0; i < own_count && !found; i++) {
        found = via_address_is_ip_equal(&own[i], address);
    }
    via_unlock(&own_lock);
    return found;
}
