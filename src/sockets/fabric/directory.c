/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/fabric/directory.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/hosts_page.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

#define HOST_MAX 1023u
/* How often to search for the page of a daemon while none is found. */
#define RETRY_NS (5 * VIA_SEC_NS)
/* How long the kernel's choice of an address is used again: routes change seldom. */
#define OWN_NS VIA_SEC_NS

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
/* A page that a new daemon has replaced stays mapped: other threads may be reading it. */
static const struct via_hosts_page *_Atomic page;
static _Atomic uint64_t polled_ns; /* 0 = never */

static int find_host(const char *rundir, unsigned *ret_host)
{
    const char *text = getenv("VIADUCT_HOST");
    if (text == NULL) {
        return via_rundir_local(rundir, ret_host);
    }
    char *end = NULL;
    unsigned long host = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || host > HOST_MAX) {
        return -EINVAL;
    }
    *ret_host = (unsigned)host;
    return 0;
}

static void load_directory(void)
{
    struct via_rundir_path rundir;
    const struct via_hosts_page *found;
    unsigned host;
    VIA_KEEP_ERRNO;
    if (via_rundir_default(NULL, &rundir, NULL) == 0 && find_host(rundir.text, &host) == 0 &&
        via_hosts_page_map(rundir.text, host, &found) == 0) {
        if (found->host == host &&
            atomic_load_explicit(&found->magic, memory_order_acquire) == VIA_HOSTS_PAGE_MAGIC) {
            atomic_store_explicit(&page, found, memory_order_release);
        } else {
            via_hosts_page_unmap(found);
        }
    }
}

static bool is_over(const struct via_hosts_page *known)
{
    return known == NULL ||
           atomic_load_explicit(&known->magic, memory_order_acquire) != VIA_HOSTS_PAGE_MAGIC;
}

/* Returns the page; NULL: no daemon runs, so there is no fabric. */
static const struct via_hosts_page *find_page(void)
{
    const struct via_hosts_page *known = atomic_load_explicit(&page, memory_order_acquire);
    if (via_likely(!is_over(known))) {
        return known;
    }
    uint64_t now = via_os_now_ns();
    uint64_t before = atomic_load_explicit(&polled_ns, memory_order_relaxed);
    if ((before == 0 || now - before > RETRY_NS) && via_try_lock(&lock)) {
        atomic_store_explicit(&polled_ns, now, memory_order_relaxed);
        load_directory();
        via_unlock(&lock);
        known = atomic_load_explicit(&page, memory_order_acquire);
    }
    return is_over(known) ? NULL : known;
}

void via_directory_forked(void)
{
    via_lock_reset(&lock);
}

static bool find(const struct via_address *address, struct via_hosts_entry *ret_entry)
{
    const struct via_hosts_page *known = find_page();
    return known != NULL && via_hosts_page_find(known, address->ip, ret_entry) == 0;
}

bool via_directory_find_host(const struct via_address *address, unsigned *ret_host, bool *ret_pipes)
{
    struct via_hosts_entry entry;
    if (!find(address, &entry) || (entry.flags & VIA_HOSTS_OWN) != 0) {
        return false;
    }
    *ret_host = entry.host;
    *ret_pipes = (entry.flags & VIA_HOSTS_PIPES) != 0;
    return true;
}

bool via_directory_is_own(const struct via_address *address)
{
    struct via_hosts_entry entry;
    return find(address, &entry) && (entry.flags & VIA_HOSTS_OWN) != 0;
}

/* --- this process's address ------------------------------------------------------------------ */

/* Emulated hosts of one machine have loopback addresses of one network, where the kernel would
 * choose 127.0.0.1. */
static int choose_own_loopback(const struct via_address *to, struct via_address *ret_own)
{
    const struct via_hosts_page *known = find_page();
    struct via_address own = *to;
    struct via_hosts_entry entry;
    for (unsigned last = 1; last < 255; last++) {
        own.ip[15] = (unsigned char)last;
        if (known != NULL && via_hosts_page_find(known, own.ip, &entry) == 0 &&
            (entry.flags & VIA_HOSTS_OWN) != 0) {
            *ret_own = own;
            return 0;
        }
    }
    return -EADDRNOTAVAIL;
}

/* Returns the address that the kernel chooses for TCP by its routes: connect() of a UDP socket
 * selects one and sends no packet (udp(7)). */
static int find_source_address(const struct via_address *to, struct via_address *ret_own)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(to->port)};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(to->port)};
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof(own);
    bool v4 = via_address_is_v4(to);
    memcpy(&in.sin_addr, to->ip + 12, 4);
    memcpy(&in6.sin6_addr, to->ip, 16);
    int fd = VIA_REAL(socket)(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    const struct sockaddr *address = v4 ? (struct sockaddr *)&in : (struct sockaddr *)&in6;
    bool good = VIA_REAL(connect)(fd, address, v4 ? sizeof(in) : sizeof(in6)) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
                via_address_read((struct sockaddr *)&own, own_bytes, ret_own);
    VIA_REAL(close)(fd);
    return good ? 0 : -EADDRNOTAVAIL;
}

int via_directory_own_address(const struct via_address *to, struct via_address *ret_own)
{
    static __thread struct via_address last_to;
    static __thread struct via_address last_own;
    static __thread uint64_t last_ns;
    if (via_address_is_v4(to) && to->ip[12] == 127) {
        return choose_own_loopback(to, ret_own);
    }
    uint64_t now = via_os_now_ns();
    if (last_ns == 0 || now - last_ns > OWN_NS || !via_address_is_ip_equal(&last_to, to)) {
        int rc = find_source_address(to, &last_own);
        if (rc != 0) {
            last_ns = 0;
            return rc;
        }
        last_to = *to;
        last_ns = now;
    }
    *ret_own = last_own;
    return via_directory_is_own(ret_own) ? 0 : -EADDRNOTAVAIL;
}
