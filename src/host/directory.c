/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/directory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "core/node.h"

_Static_assert(VIA_DIRECTORY_LINKS_MAX == VIA_PORTS_MAX, "an entry shows all links of a host");

static const unsigned char v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

int via_directory_init(struct via_directory *directory, uint16_t host, uint16_t hosts_max)
{
    directory->host = host;
    directory->hosts_max = hosts_max;
    directory->entries = calloc(hosts_max, sizeof(struct via_directory_entry *));
    return directory->entries != NULL ? 0 : -ENOMEM;
}

void via_directory_fini(struct via_directory *directory)
{
    for (unsigned id = 0; directory->entries != NULL && id < directory->hosts_max; id++) {
        free(directory->entries[id]);
    }
    free(directory->entries);
    directory->entries = NULL;
}

struct via_directory_entry *via_directory_find(const struct via_directory *directory, uint16_t host)
{
    return host < directory->hosts_max ? directory->entries[host] : NULL;
}

static struct via_directory_entry *make_entry(struct via_directory *directory, uint16_t host)
{
    struct via_directory_entry **entry = &directory->entries[host];
    if (*entry == NULL) {
        *entry = calloc(1, sizeof(**entry));
    }
    return *entry;
}

struct via_directory_entry *via_directory_own(struct via_directory *directory)
{
    return make_entry(directory, directory->host);
}

/* --- addresses -------------------------------------------------------------------------------- */

static bool is_v4(const struct via_directory_ip *ip)
{
    return memcmp(ip->byte, v4_prefix, sizeof(v4_prefix)) == 0;
}

static bool is_loopback(const struct via_directory_ip *ip)
{
    static const unsigned char loopback6[16] = {[15] = 1};
    return is_v4(ip) ? ip->byte[12] == 127 : memcmp(ip->byte, loopback6, sizeof(loopback6)) == 0;
}

static bool is_same(const struct via_directory_ip *a, const struct via_directory_ip *b)
{
    return memcmp(a->byte, b->byte, sizeof(a->byte)) == 0;
}

/* True if the address is that of one machine. */
static bool is_unicast(const struct via_directory_ip *ip)
{
    static const unsigned char zero[16];
    if (is_v4(ip)) {
        return ip->byte[12] != 0 && ip->byte[12] < 224;
    }
    return memcmp(ip->byte, zero, sizeof(zero)) != 0 && ip->byte[0] != 0xff &&
           !(ip->byte[0] == 0xfe && (ip->byte[1] & 0xc0) == 0x80);
}

struct via_directory_ip_text via_directory_ip_text(const struct via_directory_ip *ip)
{
    struct via_directory_ip_text text = {""};
    bool v4 = is_v4(ip);
    (void)inet_ntop(v4 ? AF_INET : AF_INET6, ip->byte + (v4 ? 12 : 0), text.text,
                    sizeof(text.text));
    return text;
}

bool via_directory_ip_parse(const char *text, struct via_directory_ip *ret_ip)
{
    struct via_directory_ip ip;
    memcpy(ip.byte, v4_prefix, sizeof(v4_prefix));
    bool good = inet_pton(AF_INET, text, ip.byte + sizeof(v4_prefix)) == 1 ||
                inet_pton(AF_INET6, text, ip.byte) == 1;
    if (good) {
        *ret_ip = ip;
    }
    return good;
}

static bool has_address(const struct via_directory_entry *entry, const struct via_directory_ip *ip)
{
    for (unsigned i = 0; entry != NULL && i < entry->addresses_count; i++) {
        if (is_same(&entry->addresses[i], ip)) {
            return true;
        }
    }
    return false;
}

/* Hosts on one machine have loopback addresses of one network, such as 127.77.0.1 and 127.77.0.2.
 */
static bool is_of_this_machine(const struct via_directory *directory,
                               const struct via_directory_ip *ip)
{
    const struct via_directory_entry *own = via_directory_find(directory, directory->host);
    for (unsigned i = 0; own != NULL && i < own->addresses_count; i++) {
        if (is_loopback(&own->addresses[i]) && memcmp(own->addresses[i].byte, ip->byte, 15) == 0) {
            return true;
        }
    }
    return false;
}

static uint64_t since_ns(const struct via_directory_entry *entry, const struct via_directory_ip *ip)
{
    for (unsigned i = 0; i < entry->addresses_count; i++) {
        if (is_same(&entry->addresses[i], ip)) {
            return entry->since_ns[i];
        }
    }
    return VIA_NEVER_NS;
}

/* The host that had the address first, among the hosts that are gone, or among those that are
 * not. */
static int find_claimant(const struct via_directory *directory, const struct via_directory_ip *ip,
                         bool gone)
{
    int found = -ENOENT;
    uint64_t first_ns = VIA_NEVER_NS;
    uint64_t second_ns = VIA_NEVER_NS;
    for (uint16_t id = 0; id < directory->hosts_max; id++) {
        const struct via_directory_entry *entry = directory->entries[id];
        if (entry == NULL || entry->gone != gone || !has_address(entry, ip)) {
            continue;
        }
        uint64_t claimed_ns = since_ns(entry, ip);
        second_ns = via_min(second_ns, via_max(first_ns, claimed_ns));
        if (found < 0 || claimed_ns < first_ns) {
            first_ns = claimed_ns;
            found = id;
        }
    }
    return second_ns != VIA_NEVER_NS && second_ns - first_ns < VIA_DIRECTORY_HELD_NS ? -EADDRINUSE
                                                                                     : found;
}

bool via_directory_set_gone(struct via_directory_entry *entry, bool gone, uint64_t now_ns)
{
    bool changed = entry->gone != gone;
    entry->gone = gone;
    for (unsigned i = 0; changed && !gone && i < entry->addresses_count; i++) {
        entry->since_ns[i] = now_ns;
    }
    return changed;
}

int via_directory_host_at(const struct via_directory *directory, const struct via_directory_ip *ip)
{
    if (has_address(via_directory_find(directory, directory->host), ip)) {
        return directory->host;
    }
    if (is_loopback(ip) && !is_of_this_machine(directory, ip)) {
        return -ENOENT;
    }
    int found = find_claimant(directory, ip, false);
    return found != -ENOENT ? found : find_claimant(directory, ip, true);
}

/* --- received messages ------------------------------------------------------------------------ */

/* Copies a text of a peer. Letters, digits and ._+- stay, so that terminals and command lines can
 * show it; others become '?'. Returns whether all characters stayed. */
static bool copy_text(char *ret_text, size_t room, const char *text, size_t bytes)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-";
    size_t length = strnlen(text, bytes);
    bool whole = length < room;
    length = via_min(length, room - 1);
    for (size_t i = 0; i < length; i++) {
        bool fit = text[i] != '\0' && strchr(allowed, text[i]) != NULL;
        ret_text[i] = text[i];
        if (!fit) {
            ret_text[i] = '?';
            whole = false;
        }
    }
    memset(ret_text + length, 0, room - length);
    return whole;
}

/* A name that a host must not have becomes empty, because users could not type it. */
static void copy_name(struct via_directory_entry *entry, const char *name, size_t bytes)
{
    struct via_host_identity identity;
    if (!copy_text(entry->name, sizeof(entry->name), name, bytes) ||
        via_host_identity_set_name(&identity, entry->name, NULL) != 0) {
        memset(entry->name, 0, sizeof(entry->name));
    }
}

static void copy_addresses(struct via_directory_entry *entry,
                           const struct via_directory_host_message *message, uint64_t now_ns)
{
    struct via_directory_ip old[VIA_HOST_ADDRESSES_MAX];
    uint64_t old_since_ns[VIA_HOST_ADDRESSES_MAX];
    unsigned old_count = entry->addresses_count;
    memcpy(old, entry->addresses, sizeof(old));
    memcpy(old_since_ns, entry->since_ns, sizeof(old_since_ns));
    entry->addresses_count = 0;
    unsigned count = message->addresses_count;
    if (!VIA_MUTANT(DIRECTORY_ADDRESSES)) {
        count = via_min(count, VIA_HOST_ADDRESSES_MAX);
    }
    for (unsigned i = 0; i < count; i++) {
        const struct via_directory_ip *ip = &message->addresses[i];
        if (is_unicast(ip) && !has_address(entry, ip)) {
            unsigned k = 0;
            while (k < old_count && !is_same(&old[k], ip)) {
                k++;
            }
            entry->since_ns[entry->addresses_count] = k < old_count ? old_since_ns[k] : now_ns;
            entry->addresses[entry->addresses_count++] = *ip;
        }
    }
}

static int take_host(struct via_directory_entry *entry,
                     const struct via_directory_host_message *message, uint64_t now_ns)
{
    unsigned links_count = entry->links_count;
    entry->revision = message->revision;
    entry->protocol_version = message->protocol_version;
    entry->frame_bytes = message->frame_bytes;
    entry->hosts_max = message->hosts_max;
    entry->channels_count = message->channels_count;
    entry->started_ns = message->started_ns;
    entry->booted_ns = message->booted_ns;
    entry->sent_ns = message->sent_ns;
    entry->last_received_ns = now_ns;
    copy_name(entry, message->name, sizeof(message->name));
    copy_text(entry->fabric, sizeof(entry->fabric), message->fabric, sizeof(message->fabric));
    copy_text(entry->version, sizeof(entry->version), message->version, sizeof(message->version));
    copy_addresses(entry, message, now_ns);
    entry->links_total = message->links_count;
    entry->links_count = via_min(links_count, entry->links_total);
    return 1;
}

/* Messages of a host arrive in order: LINKS messages follow their HOST message, in ascending
 * order. */
static int take_links(struct via_directory_entry *entry,
                      const struct via_directory_links_message *message, size_t bytes,
                      uint64_t now_ns)
{
    size_t count = message->count;
    if (bytes != VIA_DIRECTORY_LINKS_HEAD_BYTES + count * sizeof(message->links[0]) ||
        message->revision != entry->revision || message->first + count > entry->links_total ||
        message->first > entry->links_count) {
        return -EPROTO;
    }
    for (size_t i = 0; i < count && message->first + i < VIA_DIRECTORY_LINKS_MAX; i++) {
        const struct via_directory_link *from = &message->links[i];
        struct via_directory_link *link = &entry->links[message->first + i];
        *link = (struct via_directory_link){.peer = from->peer,
                                            .state = from->state,
                                            .flags = from->flags & VIA_DIRECTORY_LINK_CUT};
        copy_text(link->driver, sizeof(link->driver), from->driver, sizeof(from->driver));
        copy_text(link->like, sizeof(link->like), from->like, sizeof(from->like));
        entry->links_count = via_max(entry->links_count, (unsigned)(message->first + i + 1));
    }
    entry->last_received_ns = now_ns;
    return 1;
}

int via_directory_take(struct via_directory *directory, uint16_t source, const void *data,
                       size_t bytes, uint64_t now_ns)
{
    uint32_t type;
    if (bytes < VIA_DIRECTORY_LINKS_HEAD_BYTES || source >= directory->hosts_max ||
        source == directory->host) {
        return -EPROTO;
    }
    memcpy(&type, data, sizeof(type));
    if (type == VIA_DIRECTORY_HOST && bytes == sizeof(struct via_directory_host_message)) {
        struct via_directory_entry *entry = make_entry(directory, source);
        return entry != NULL ? take_host(entry, data, now_ns) : -ENOMEM;
    }
    struct via_directory_entry *entry = via_directory_find(directory, source);
    if (type == VIA_DIRECTORY_LINKS && bytes <= sizeof(struct via_directory_links_message) &&
        entry != NULL) {
        return take_links(entry, data, bytes, now_ns);
    }
    return -EPROTO;
}

/* --- messages to send ------------------------------------------------------------------------- */

void via_directory_make_host(const struct via_directory_entry *entry,
                             struct via_directory_host_message *ret_message)
{
    *ret_message = (struct via_directory_host_message){
        .type = VIA_DIRECTORY_HOST,
        .revision = entry->revision,
        .started_ns = entry->started_ns,
        .booted_ns = entry->booted_ns,
        .sent_ns = entry->sent_ns,
        .protocol_version = entry->protocol_version,
        .frame_bytes = entry->frame_bytes,
        .hosts_max = entry->hosts_max,
        .links_count = (uint16_t)entry->links_count,
        .channels_count = entry->channels_count,
        .addresses_count = (uint8_t)entry->addresses_count,
    };
    memcpy(ret_message->name, entry->name, sizeof(entry->name));
    memcpy(ret_message->fabric, entry->fabric, sizeof(entry->fabric));
    memcpy(ret_message->version, entry->version, sizeof(ret_message->version));
    memcpy(ret_message->addresses, entry->addresses, sizeof(ret_message->addresses));
}

size_t via_directory_make_links(const struct via_directory_entry *entry, unsigned first,
                                struct via_directory_links_message *ret_message)
{
    if (first >= entry->links_count) {
        return 0;
    }
    unsigned count = via_min(entry->links_count - first, VIA_DIRECTORY_LINKS_PER_MESSAGE);
    *ret_message = (struct via_directory_links_message){.type = VIA_DIRECTORY_LINKS,
                                                        .revision = entry->revision,
                                                        .first = (uint16_t)first,
                                                        .count = (uint16_t)count};
    memcpy(ret_message->links, entry->links + first, count * sizeof(entry->links[0]));
    return VIA_DIRECTORY_LINKS_HEAD_BYTES + count * sizeof(entry->links[0]);
}

/* --- hops ------------------------------------------------------------------------------------- */

void via_directory_hops(const struct via_directory *directory,
                        bool (*use)(const struct via_directory_link *link), uint16_t *ret_hops)
{
    for (unsigned id = 0; id < directory->hosts_max; id++) {
        ret_hops[id] = UINT16_MAX;
    }
    ret_hops[directory->host] = 0;
    bool more = true;
    for (uint16_t hops = 0; more && hops < directory->hosts_max; hops++) {
        more = false;
        for (uint16_t id = 0; id < directory->hosts_max; id++) {
            const struct via_directory_entry *entry =
                ret_hops[id] == hops ? via_directory_find(directory, id) : NULL;
            for (unsigned i = 0; entry != NULL && i < entry->links_count; i++) {
                const struct via_directory_link *link = &entry->links[i];
                if (link->peer < directory->hosts_max && ret_hops[link->peer] == UINT16_MAX &&
                    link->state == VIA_LINK_UP && use(link)) {
                    ret_hops[link->peer] = (uint16_t)(hops + 1);
                    more = true;
                }
            }
        }
    }
}
