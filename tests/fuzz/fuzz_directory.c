/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * HOST and LINKS messages of other hosts, of any length. A kept record fits its limits and is
 * printable, and is forwarded unchanged.
 *
 * Input: messages, each a byte (source, type and length of the sent part), then numbers
 * (input_edgy) and bytes.
 */
#include <errno.h>

#include "base/types.h"
#include "host/directory.h"
#include "tests/fuzz/input.h"

#define HOSTS 5u
#define OWN 1u
#define MESSAGES_MAX 128u

static bool use_all(const struct via_directory_link *link)
{
    return link->peer != HOSTS - 1;
}

static void judge_text(const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    require(length < room);
    for (size_t i = 0; i < length; i++) {
        require(text[i] > ' ' && text[i] <= '~');
    }
}

static void judge_entry(const struct via_directory_entry *entry)
{
    judge_text(entry->name, sizeof(entry->name));
    judge_text(entry->fabric, sizeof(entry->fabric));
    judge_text(entry->version, sizeof(entry->version));
    require(entry->addresses_count <= VIA_HOST_ADDRESSES_MAX);
    require(entry->links_count <= VIA_DIRECTORY_LINKS_MAX);
    require(entry->links_count <= entry->links_total);
    for (unsigned i = 0; i < entry->links_count; i++) {
        judge_text(entry->links[i].driver, sizeof(entry->links[i].driver) + 1);
        judge_text(entry->links[i].like, sizeof(entry->links[i].like) + 1);
    }
}

/* A forwarded message must be accepted unchanged. */
static void judge_copy(const struct via_directory_entry *entry)
{
    struct via_directory copy;
    struct via_directory_host_message host;
    struct via_directory_links_message links;
    size_t bytes;
    require(via_directory_init(&copy, 0, HOSTS) == 0);
    via_directory_make_host(entry, &host);
    require(via_directory_take(&copy, 2, &host, sizeof(host), 1) == 1);
    for (unsigned first = 0; (bytes = via_directory_make_links(entry, first, &links)) != 0;
         first += links.count) {
        require(bytes <= sizeof(links) && via_directory_take(&copy, 2, &links, bytes, 1) == 1);
    }
    const struct via_directory_entry *taken = via_directory_find(&copy, 2);
    require(taken->links_count == entry->links_count);
    require(memcmp(taken->links, entry->links, entry->links_count * sizeof(entry->links[0])) == 0);
    require(strcmp(taken->name, entry->name) == 0);
    require(taken->addresses_count == entry->addresses_count);
    via_directory_fini(&copy);
}

static size_t make_host(struct input *input, struct via_directory_host_message *message)
{
    message->type = VIA_DIRECTORY_HOST;
    message->revision = input_byte(input);
    message->links_count = (uint16_t)input_edgy(input);
    message->addresses_count = (uint8_t)input_edgy(input);
    input_take(input, message->name, 8);
    memset(message->fabric, input_byte(input), sizeof(message->fabric));
    memset(message->version, input_byte(input), sizeof(message->version));
    for (unsigned i = 0; i < VIA_HOST_ADDRESSES_MAX; i++) {
        struct via_directory_ip *ip = &message->addresses[i];
        memset(ip->byte + 10, 0xff, 2);
        ip->byte[12] = input_byte(input);
        ip->byte[15] = (unsigned char)i;
    }
    return sizeof(*message);
}

static size_t make_links(struct input *input, struct via_directory_links_message *message)
{
    message->type = VIA_DIRECTORY_LINKS;
    message->revision = input_byte(input);
    message->first = (uint16_t)input_edgy(input);
    message->count = (uint16_t)input_edgy(input);
    for (unsigned i = 0; i < VIA_DIRECTORY_LINKS_PER_MESSAGE; i++) {
        struct via_directory_link *link = &message->links[i];
        link->peer = input_byte(input) % (HOSTS + 2);
        link->state = (uint8_t)i;
        link->flags = (uint8_t)link->peer;
        memset(link->driver, 'a' + (int)link->peer, sizeof(link->driver));
        link->like[0] = (char)link->peer;
    }
    size_t bytes = VIA_DIRECTORY_LINKS_HEAD_BYTES + message->count * sizeof(message->links[0]);
    return via_min(bytes, sizeof(*message));
}

static void say(struct via_directory *directory, struct input *input)
{
    union {
        struct via_directory_host_message host;
        struct via_directory_links_message links;
    } message;
    memset(&message, 0, sizeof(message));
    uint8_t how = input_byte(input);
    size_t bytes =
        (how & 8) != 0 ? make_links(input, &message.links) : make_host(input, &message.host);
    if ((how & 16) != 0) {
        bytes = input_edgy(input) % (sizeof(message) + 1);
    }
    void *copy = malloc(bytes != 0 ? bytes : 1); /* of that size, for the sanitizer */
    require(copy != NULL);
    memcpy(copy, &message, bytes);
    uint16_t source = (how & 7) % (HOSTS + 1);
    int rc = via_directory_take(directory, source, copy, bytes, 1);
    free(copy);
    require(rc == 0 || rc == 1 || rc == -EPROTO);
    require(rc != 1 || (source != OWN && source < HOSTS));
    const struct via_directory_entry *entry = via_directory_find(directory, source);
    if (entry != NULL) {
        judge_entry(entry);
        judge_copy(entry);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct via_directory directory;
    uint16_t hops[HOSTS];
    require(via_directory_init(&directory, OWN, HOSTS) == 0);
    struct via_directory_entry *own = via_directory_own(&directory);
    require(own != NULL && via_directory_ip_parse("10.0.0.1", &own->addresses[0]));
    own->addresses_count = 1;
    for (unsigned i = 0; i < MESSAGES_MAX && input.bytes != 0; i++) {
        say(&directory, &input);
    }
    via_directory_hops(&directory, use_all, hops);
    require(hops[OWN] == 0);
    require(via_directory_host_at(&directory, &own->addresses[0]) == OWN);
    via_directory_fini(&directory);
    return 0;
}
