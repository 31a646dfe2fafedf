/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The directory of a fabric: which messages it accepts from hosts that lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "core/node.h"
#include "host/directory.h"
#include "host/hosts_page.h"

#define HOSTS 8u

static struct via_directory directory; /* directory of host 1 */

static int set_up(void **state)
{
    (void)state;
    return via_directory_init(&directory, 1, HOSTS);
}

static int tear_down(void **state)
{
    (void)state;
    via_directory_fini(&directory);
    return 0;
}

static struct via_directory_ip ip_of(const char *text)
{
    struct via_directory_ip ip;
    assert_true(via_directory_ip_parse(text, &ip));
    return ip;
}

static struct via_directory_host_message message_of(const char *name, const char *address)
{
    struct via_directory_host_message message = {
        .type = VIA_DIRECTORY_HOST, .revision = 1, .addresses_count = address != NULL};
    strncpy(message.name, name, sizeof(message.name) - 1);
    if (address != NULL) {
        message.addresses[0] = ip_of(address);
    }
    return message;
}

static int say(uint16_t host, const struct via_directory_host_message *message)
{
    return via_directory_take(&directory, host, message, sizeof(*message), 1);
}

static int host_at(const char *address)
{
    struct via_directory_ip ip = ip_of(address);
    return via_directory_host_at(&directory, &ip);
}

static void own_address(const char *address)
{
    struct via_directory_entry *own = via_directory_own(&directory);
    assert_non_null(own);
    own->addresses[own->addresses_count++] = ip_of(address);
}

static void names_are_safe_to_type_and_to_show(void **state)
{
    (void)state;
    static const struct {
        const char *announced, *kept;
    } names[] = {{"node2", "node2"},
                 {"a.b-c_d", "a.b-c_d"},
                 {"-oProxyCommand=x", ""},
                 {"x\x1b[2J", ""},
                 {"a b", ""},
                 {"", ""},
                 {"../../etc/passwd", ""},
                 {".hidden", ""},
                 {"n\xc3\xb6", ""}};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(names); i++) {
        struct via_directory_host_message message = message_of(names[i].announced, NULL);
        strcpy(message.fabric, "f\x1b]0;title\x07");
        strcpy(message.version, "1.0\n2");
        assert_int_equal(say(2, &message), 1);
        const struct via_directory_entry *entry = via_directory_find(&directory, 2);
        assert_string_equal(entry->name, names[i].kept);
        assert_string_equal(entry->fabric, "f??0?title?");
        assert_string_equal(entry->version, "1.0?2");
    }
    /* Fields without a terminator. */
    struct via_directory_host_message message = message_of("", NULL);
    memset(message.name, 'a', sizeof(message.name));
    memset(message.fabric, 'b', sizeof(message.fabric));
    memset(message.version, 'c', sizeof(message.version));
    assert_int_equal(say(2, &message), 1);
    const struct via_directory_entry *entry = via_directory_find(&directory, 2);
    assert_string_equal(entry->name, "");
    assert_int_equal(strlen(entry->fabric), VIA_FABRIC_NAME_BYTES_MAX);
    assert_int_equal(strlen(entry->version), VIA_DIRECTORY_VERSION_BYTES);
}

static void an_address_is_of_one_host_or_of_none(void **state)
{
    (void)state;
    own_address("10.0.0.1");
    struct via_directory_host_message two = message_of("two", "10.0.0.2");
    struct via_directory_host_message three = message_of("three", "10.0.0.2");
    assert_int_equal(host_at("10.0.0.2"), -ENOENT);
    assert_int_equal(say(2, &two), 1);
    assert_int_equal(host_at("10.0.0.2"), 2);
    assert_int_equal(say(3, &three), 1);
    assert_int_equal(host_at("10.0.0.2"), -EADDRINUSE);
    via_directory_find(&directory, 2)->gone = true; /* the address has moved to host 3 */
    assert_int_equal(host_at("10.0.0.2"), 3);
    via_directory_find(&directory, 3)->gone = true;
    assert_int_equal(host_at("10.0.0.2"), -EADDRINUSE);
    via_directory_find(&directory, 2)->gone = false;
    assert_int_equal(host_at("10.0.0.2"), 2);
    via_directory_find(&directory, 3)->gone = false;
    three.addresses[0] = ip_of("10.0.0.1"); /* an address of this host */
    assert_int_equal(say(3, &three), 1);
    assert_int_equal(host_at("10.0.0.2"), 2);
    assert_int_equal(host_at("10.0.0.1"), 1);
}

static int say_at(uint16_t source, const struct via_directory_host_message *message,
                  uint64_t now_ns)
{
    return via_directory_take(&directory, source, message, sizeof(*message), now_ns);
}

static void a_live_host_keeps_its_address(void **state)
{
    (void)state;
    struct via_directory_host_message two = message_of("two", "10.0.0.2");
    struct via_directory_host_message three = message_of("three", "10.0.0.2");
    uint64_t later_ns = VIA_SEC_NS + VIA_DIRECTORY_HELD_NS;
    assert_int_equal(say_at(2, &two, VIA_SEC_NS), 1);
    assert_int_equal(say_at(3, &three, later_ns), 1);
    assert_int_equal(host_at("10.0.0.2"), 2);
    /* A repeated claim changes nothing; no host gains by it. */
    two.addresses[1] = two.addresses[0];
    two.addresses[0] = ip_of("10.0.0.9");
    two.addresses_count = 2;
    assert_int_equal(say_at(2, &two, 2 * later_ns), 1);
    assert_int_equal(say_at(3, &three, 3 * later_ns), 1);
    assert_int_equal(host_at("10.0.0.2"), 2);
    assert_int_equal(host_at("10.0.0.9"), 2);
    /* A host that was unreachable loses the address to the host that was reachable. */
    assert_true(via_directory_set_gone(via_directory_find(&directory, 2), true, 4 * later_ns));
    assert_int_equal(host_at("10.0.0.2"), 3);
    assert_true(via_directory_set_gone(via_directory_find(&directory, 2), false, 5 * later_ns));
    assert_int_equal(host_at("10.0.0.2"), 3);
    /* A claim that is withdrawn and repeated counts from the repetition on. */
    three.addresses_count = 0;
    assert_int_equal(say_at(3, &three, 6 * later_ns), 1);
    three.addresses_count = 1;
    assert_int_equal(say_at(3, &three, 7 * later_ns), 1);
    assert_int_equal(host_at("10.0.0.2"), 2);
}

static void addresses_of_no_machine_are_left_out(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0.0.0.0", "224.0.0.1", "255.255.255.255",
                                        "::",      "ff02::1",   "fe80::1"};
    struct via_directory_host_message message = message_of("two", NULL);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        message.addresses[i] = ip_of(wrong[i]);
    }
    message.addresses[6] = ip_of("fd00::2");
    message.addresses[7] = ip_of("fd00::2");
    message.addresses_count = 255;
    assert_int_equal(say(2, &message), 1);
    assert_int_equal(via_directory_find(&directory, 2)->addresses_count, 1);
    assert_int_equal(host_at("fd00::2"), 2);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(host_at(wrong[i]), -ENOENT);
    }
}

static void loopback_is_of_this_machine(void **state)
{
    (void)state;
    struct via_directory_host_message message = message_of("two", "127.0.0.1");
    message.addresses[1] = ip_of("127.77.0.2");
    message.addresses[2] = ip_of("::1");
    message.addresses_count = 3;
    assert_int_equal(say(2, &message), 1);
    assert_int_equal(host_at("127.0.0.1"), -ENOENT);
    assert_int_equal(host_at("127.77.0.2"), -ENOENT);
    own_address("127.77.0.1");
    assert_int_equal(host_at("127.77.0.2"), 2);
    assert_int_equal(host_at("127.0.0.1"), -ENOENT);
    assert_int_equal(host_at("::1"), -ENOENT);
}

static void messages_of_a_wrong_form_change_nothing(void **state)
{
    (void)state;
    struct via_directory_host_message host = message_of("two", "10.0.0.2");
    struct via_directory_links_message links = {
        .type = VIA_DIRECTORY_LINKS, .revision = 1, .count = 1};
    size_t one = VIA_DIRECTORY_LINKS_HEAD_BYTES + sizeof(links.links[0]);
    assert_int_equal(via_directory_take(&directory, 2, &links, one, 1), -EPROTO); /* no HOST yet */
    assert_int_equal(say(1, &host), -EPROTO);                                     /* as this host */
    assert_int_equal(say(HOSTS, &host), -EPROTO);                                 /* no such host */
    assert_int_equal(via_directory_take(&directory, 2, &host, sizeof(host) - 1, 1), -EPROTO);
    host.links_count = 2;
    assert_int_equal(say(2, &host), 1);
    links.revision = 2;
    assert_int_equal(via_directory_take(&directory, 2, &links, one, 1), -EPROTO);
    links.revision = 1;
    links.first = 1; /* a part is missing */
    assert_int_equal(via_directory_take(&directory, 2, &links, one, 1), -EPROTO);
    links.first = 0;
    links.count = 3; /* more links than were announced */
    assert_int_equal(via_directory_take(&directory, 2, &links, sizeof(links), 1), -EPROTO);
    links.count = 1;
    assert_int_equal(via_directory_take(&directory, 2, &links, one + 1, 1), -EPROTO);
    assert_int_equal(via_directory_take(&directory, 2, &links, one, 1), 1);
    assert_int_equal(via_directory_find(&directory, 2)->links_count, 1);
}

static void of_very_many_links_the_first_are_kept(void **state)
{
    (void)state;
    struct via_directory_host_message host = message_of("two", NULL);
    struct via_directory_links_message links = {.type = VIA_DIRECTORY_LINKS, .revision = 1};
    host.links_count = UINT16_MAX;
    assert_int_equal(say(2, &host), 1);
    for (unsigned first = 0; first < VIA_DIRECTORY_LINKS_MAX + 100;
         first += VIA_DIRECTORY_LINKS_PER_MESSAGE) {
        links.first = (uint16_t)first;
        links.count = VIA_DIRECTORY_LINKS_PER_MESSAGE;
        (void)via_directory_take(
            &directory, 2, &links,
            sizeof(links) - (sizeof(links) - VIA_DIRECTORY_LINKS_HEAD_BYTES - sizeof(links.links)),
            1);
    }
    assert_int_equal(via_directory_find(&directory, 2)->links_count, VIA_DIRECTORY_LINKS_MAX);
}

/* Only the sanitizers check; the seed is in their output. */
static void random_messages_are_survived(void **state)
{
    (void)state;
    struct via_rng rng;
    via_rng_init(&rng, 29);
    for (unsigned i = 0; i < 20000; i++) {
        unsigned char *data = malloc(600);
        size_t bytes = via_rng_below(&rng, 601);
        assert_non_null(data);
        for (size_t k = 0; k < bytes; k++) {
            data[k] = (unsigned char)via_rng_below(&rng, via_rng_below(&rng, 2) != 0 ? 256 : 3);
        }
        if (i % 3 == 0) {
            bytes = sizeof(struct via_directory_host_message);
            data[0] = 1;
        }
        if (bytes >= 4) {
            data[1] = data[2] = data[3] = 0;
        }
        (void)via_directory_take(&directory, (uint16_t)via_rng_below(&rng, HOSTS + 2), data, bytes,
                                 i);
        free(data);
    }
}

static void an_entry_arrives_as_it_was_sent(void **state)
{
    (void)state;
    struct via_directory_entry *own = via_directory_own(&directory);
    struct via_directory_host_message host;
    struct via_directory_links_message links;
    struct via_directory other;
    own_address("10.0.0.1");
    strcpy(own->name, "one");
    strcpy(own->version, "0.1.0");
    own->revision = 7;
    own->links_count = VIA_DIRECTORY_LINKS_MAX;
    for (unsigned i = 0; i < own->links_count; i++) {
        own->links[i] = (struct via_directory_link){
            .peer = (uint16_t)i, .state = VIA_LINK_UP, .driver = "emu", .like = "pex"};
    }
    assert_int_equal(via_directory_init(&other, 2, HOSTS), 0);
    via_directory_make_host(own, &host);
    assert_int_equal(via_directory_take(&other, 1, &host, sizeof(host), 1), 1);
    size_t bytes;
    for (unsigned first = 0; (bytes = via_directory_make_links(own, first, &links)) != 0;
         first += links.count) {
        assert_int_equal(via_directory_take(&other, 1, &links, bytes, 1), 1);
    }
    const struct via_directory_entry *taken = via_directory_find(&other, 1);
    assert_string_equal(taken->name, "one");
    assert_int_equal(taken->links_count, VIA_PORTS_MAX);
    assert_memory_equal(taken->links, own->links, sizeof(own->links));
    via_directory_fini(&other);
}

static bool is_fast(const struct via_directory_link *link)
{
    return strcmp(link->like, "network") != 0;
}

static void set_link(uint16_t host, unsigned index, uint16_t peer, const char *like)
{
    struct via_directory_entry *entry =
        host == 1 ? via_directory_own(&directory) : via_directory_find(&directory, host);
    entry->links[index] = (struct via_directory_link){.peer = peer, .state = VIA_LINK_UP};
    strcpy(entry->links[index].like, like);
    entry->links_count = index + 1;
}

static void ways_over_fast_links_are_counted(void **state)
{
    (void)state;
    uint16_t hops[HOSTS];
    struct via_directory_host_message host = message_of("x", NULL);
    host.links_count = 8;
    for (uint16_t id = 2; id <= 4; id++) {
        assert_int_equal(say(id, &host), 1);
    }
    /* 1 - 2 - 3 fast; 1 - 3 and 3 - 4 over a network; links to ids of no host. */
    set_link(1, 0, 2, "pex");
    set_link(1, 1, 3, "network");
    set_link(1, 2, 999, "pex");
    set_link(2, 0, 3, "pex");
    set_link(3, 0, 4, "network");
    set_link(3, 1, VIA_DIRECTORY_PEER_UNKNOWN, "pex");
    via_directory_hops(&directory, is_fast, hops);
    assert_int_equal(hops[1], 0);
    assert_int_equal(hops[2], 1);
    assert_int_equal(hops[3], 2);
    assert_int_equal(hops[4], UINT16_MAX);
}

static void a_page_is_found_again_and_shows_its_end(void **state)
{
    (void)state;
    char rundir[] = "/tmp/viaduct-page-XXXXXX";
    struct via_error err;
    const struct via_hosts_page *map;
    struct via_hosts_entry entries[3] = {{.host = 3}, {.host = 2, .flags = VIA_HOSTS_PIPES}};
    struct via_hosts_entry found;
    memcpy(entries[0].ip, ip_of("10.0.0.3").byte, 16);
    memcpy(entries[1].ip, ip_of("10.0.0.2").byte, 16);
    assert_non_null(mkdtemp(rundir));
    assert_int_equal(via_hosts_page_map(rundir, 1, &map), -ENOENT);
    struct via_hosts_page *page = via_hosts_page_open(rundir, 1, false, &err);
    assert_non_null(page);
    via_hosts_page_write(page, entries, 2);
    assert_int_equal(via_hosts_page_map(rundir, 1, &map), 0);
    assert_int_equal(via_hosts_page_find(map, ip_of("10.0.0.2").byte, &found), 0);
    assert_int_equal(found.host, 2);
    assert_int_equal(found.flags, VIA_HOSTS_PIPES);
    assert_int_equal(via_hosts_page_find(map, ip_of("10.0.0.4").byte, &found), -ENOENT);
    /* A host that was killed while it wrote; the next process takes over the same file. */
    atomic_fetch_add(&page->version, 1);
    assert_int_equal(via_hosts_page_find(map, ip_of("10.0.0.2").byte, &found), -ENOENT);
    struct via_hosts_page *next = via_hosts_page_open(rundir, 1, false, &err);
    assert_non_null(next);
    via_hosts_page_write(next, entries, 2);
    assert_int_equal(via_hosts_page_find(map, ip_of("10.0.0.3").byte, &found), 0);
    via_hosts_page_close(next, rundir, 1);
    assert_int_equal(via_hosts_page_find(map, ip_of("10.0.0.3").byte, &found), -ENODATA);
    via_hosts_page_unmap(map);
    via_hosts_page_unmap(page);
    assert_int_equal(remove(rundir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_are_safe_to_type_and_to_show, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_live_host_keeps_its_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_address_is_of_one_host_or_of_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(addresses_of_no_machine_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loopback_is_of_this_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(messages_of_a_wrong_form_change_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_very_many_links_the_first_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_messages_are_survived, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_entry_arrives_as_it_was_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ways_over_fast_links_are_counted, set_up, tear_down),
        cmocka_unit_test(a_page_is_found_again_and_shows_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
