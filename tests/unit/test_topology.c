/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
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
#include "cli/topology.h"
#include "core/node.h"

_Static_assert(VIA_TOPOLOGY_PORTS_MAX <= VIA_PORTS_MAX, "core has as many ports");
_Static_assert(VIA_TOPOLOGY_CHANNELS_MAX == VIA_CHANNELS_MAX, "core has as many channels");
_Static_assert(VIA_TOPOLOGY_DIMENSIONS_MAX <= VIA_DIMENSIONS_MAX, "core has as many dimensions");
_Static_assert(VIA_TOPOLOGY_HOST_MAX < VIA_HOSTS_MAX, "core has as many hosts");

static struct via_topology topology;

static int parse(const char *text, struct via_error *err)
{
    return via_topology_parse("F", text, strlen(text), &topology, err);
}

static void assert_refused(const char *text, const char *complaint)
{
    struct via_error err = {0};
    assert_int_equal(parse(text, &err), -EINVAL);
    assert_string_equal(err.text, complaint);
}

static void assert_link(unsigned index, unsigned a, unsigned b, unsigned number)
{
    assert_true(index < topology.links_count);
    assert_int_equal(topology.links[index].a, a);
    assert_int_equal(topology.links[index].b, b);
    assert_int_equal(topology.links[index].number, number);
}

static void a_file_gives_hosts_links_and_channels(void **state)
{
    (void)state;
    struct via_error err = {0};
    assert_int_equal(parse("# three in a row\n"
                           "\n"
                           "channels 4   # each link\r\n"
                           "link 9 2\n"
                           "host 1\n"
                           "\thost\t2#two\n"
                           "host 9\n"
                           "link 1 2 2",
                           &err),
                     0);
    assert_int_equal(topology.channels_count, 4);
    assert_int_equal(topology.hosts_count, 3);
    assert_int_equal(topology.hosts[0], 1);
    assert_int_equal(topology.hosts[1], 2);
    assert_int_equal(topology.hosts[2], 9);
    assert_int_equal(topology.links_count, 3);
    assert_link(0, 2, 9, 0);
    assert_link(1, 1, 2, 0);
    assert_link(2, 1, 2, 1);
}

static void one_host_alone_is_a_fabric(void **state)
{
    (void)state;
    struct via_error err = {0};
    assert_int_equal(parse("host 254", &err), 0);
    assert_int_equal(topology.hosts_count, 1);
    assert_int_equal(topology.hosts[0], 254);
    assert_int_equal(topology.links_count, 0);
    assert_int_equal(topology.channels_count, 0);
}

static void errors_name_the_line_and_the_word(void **state)
{
    (void)state;
    assert_refused("host 1\nhots 2\n", "F:2: 'hots': unknown keyword (host, link, channels)");
    assert_refused("host 1\n\nhost 1\n", "F:3: '1': this host id is taken already, in line 1");
    assert_refused("host 1\nlink 1 1\n", "F:2: 'link 1 1': host 1 is linked to itself");
    assert_refused("host 1\nlink 1 3\nhost 2",
                   "F:2: 'link 1 3': there is no line 'host 3' in this file");
    assert_refused("host 255\n", "F:1: '255': a host id is a number from 1 to 254");
    assert_refused("host 0\n", "F:1: '0': a host id is a number from 1 to 254");
    assert_refused("host -1\n", "F:1: '-1': a host id is a number from 1 to 254");
    assert_refused("host 1x\n", "F:1: '1x': a host id is a number from 1 to 254");
    assert_refused("host 4294967297\n", "F:1: '4294967297': a host id is a number from 1 to 254");
    assert_refused("host\n", "F:1: 'host': expected 'host ID'");
    assert_refused("host 1 2\n", "F:1: 'host': expected 'host ID'");
    assert_refused("link 1\n", "F:1: 'link': expected 'link ID ID [CABLES]'");
    assert_refused("link 1 2 3 4 5\n", "F:1: 'link': expected 'link ID ID [CABLES]'");
    assert_refused("link 1 2 0\n", "F:1: '0': the count of cables is a number from 1 to 16");
    assert_refused("channels 15\n", "F:1: '15': the count of channels is a number from 1 to 14");
    assert_refused("channels 2\nchannels 2\n", "F:2: 'channels': set already, in line 1");
    assert_refused("# nothing\n", "F:1: no host in the whole file");
    assert_refused("", "F:1: no host in the whole file");
}

static void the_error_of_a_repeated_link_shows_the_syntax_of_two_cables(void **state)
{
    (void)state;
    assert_refused("host 1\nhost 2\nlink 1 2\nlink 2 1\n",
                   "F:4: 'link 1 2': this link is there already, in line 3; for two cables write "
                   "'link 1 2 2' once");
}

static void a_host_has_no_more_links_than_ports(void **state)
{
    (void)state;
    struct via_error err = {0};
    assert_int_equal(parse("host 1\nhost 2\nlink 1 2 16\n", &err), 0);
    assert_int_equal(topology.links_count, 16);
    assert_refused("host 1\nhost 2\nhost 3\nlink 1 2 15\nlink 1 3 2\n",
                   "F:5: 'link 1 3': host 1 would have 17 links, a host has at most 16 ports");
}

static void words_are_shown_without_control_characters(void **state)
{
    (void)state;
    assert_refused("\033[2Jhost 1\n", "F:1: '?[2Jhost': unknown keyword (host, link, channels)");
    struct via_error err = {0};
    char text[5000];
    memset(text, 'x', sizeof(text));
    assert_int_equal(via_topology_parse("F", text, sizeof(text), &topology, &err), -EINVAL);
    assert_string_equal(err.text, "F:1: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...': unknown keyword "
                                  "(host, link, channels)");
}

static void shapes_have_their_links(void **state)
{
    (void)state;
    struct via_error err = {0};
    static const struct {
        enum via_topology_shape shape;
        unsigned hosts;
        unsigned links;
    } cases[] = {
        {VIA_TOPOLOGY_RING, 1, 0},     {VIA_TOPOLOGY_RING, 2, 1},  {VIA_TOPOLOGY_RING, 3, 3},
        {VIA_TOPOLOGY_RING, 254, 254}, {VIA_TOPOLOGY_CHAIN, 4, 3}, {VIA_TOPOLOGY_CHAIN, 1, 0},
        {VIA_TOPOLOGY_STAR, 17, 16},   {VIA_TOPOLOGY_MESH, 4, 6},  {VIA_TOPOLOGY_MESH, 17, 136},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        assert_int_equal(via_topology_make(cases[i].shape, cases[i].hosts, &topology, &err), 0);
        assert_int_equal(topology.hosts_count, cases[i].hosts);
        assert_int_equal(topology.links_count, cases[i].links);
        for (unsigned k = 0; k < topology.links_count; k++) {
            assert_true(topology.links[k].a < topology.links[k].b);
            assert_true(topology.links[k].b <= cases[i].hosts);
        }
    }
    assert_int_equal(via_topology_make(VIA_TOPOLOGY_RING, 4, &topology, &err), 0);
    assert_link(2, 3, 4, 0);
    assert_link(3, 1, 4, 0);
}

static void a_torus_has_a_ring_along_each_dimension(void **state)
{
    (void)state;
    static const struct {
        const char *sizes;
        unsigned hosts, links;
    } cases[] = {{"2x2", 4, 4},    {"3x2", 6, 9},     {"2x3", 6, 9},      {"4x3", 12, 24},
                 {"2x2x2", 8, 12}, {"3x3x3", 27, 81}, {"127x2", 254, 381}};
    struct via_error err = {0};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        unsigned ports[VIA_TOPOLOGY_HOST_MAX + 1][VIA_TOPOLOGY_DIMENSIONS_MAX] = {{0}};
        assert_int_equal(via_topology_make_torus(cases[i].sizes, &topology, &err), 0);
        assert_int_equal(topology.hosts_count, cases[i].hosts);
        assert_int_equal(topology.links_count, cases[i].links);
        for (unsigned k = 0; k < topology.links_count; k++) {
            const struct via_topology_link *link = &topology.links[k];
            assert_true(link->a < link->b && link->b <= cases[i].hosts);
            ports[link->a][link->dimension]++;
            ports[link->b][link->dimension]++;
        }
        /* The same number of links at every host: one along a dimension of two hosts, otherwise
         * two. */
        for (unsigned id = 2; id <= cases[i].hosts; id++) {
            assert_memory_equal(ports[id], ports[1], sizeof(ports[1]));
        }
    }
    assert_int_equal(via_topology_make_torus("4x3", &topology, &err), 0);
    assert_link(3, 1, 4, 0);
    assert_int_equal(topology.links[3].dimension, 0);
    assert_link(12, 1, 5, 0);
    assert_link(20, 1, 9, 0);
    assert_int_equal(topology.links[20].dimension, 1);
    assert_int_equal(via_topology_make_torus("16x16", &topology, &err), -EINVAL);
    assert_string_equal(err.text, "255 hosts or more, but ids go from 1 to 254");
}

static void shapes_larger_than_ids_or_ports_are_refused(void **state)
{
    (void)state;
    struct via_error err = {0};
    assert_int_equal(via_topology_make(VIA_TOPOLOGY_RING, 255, &topology, &err), -EINVAL);
    assert_string_equal(err.text, "255 hosts, but ids go from 1 to 254");
    assert_int_equal(via_topology_make(VIA_TOPOLOGY_RING, 0, &topology, &err), -EINVAL);
    assert_int_equal(via_topology_make(VIA_TOPOLOGY_MESH, 18, &topology, &err), -EINVAL);
    assert_string_equal(err.text, "host 1 would have 17 links, a host has at most 16 ports");
    assert_int_equal(via_topology_make(VIA_TOPOLOGY_STAR, 18, &topology, &err), -EINVAL);
}

/* Random files of valid words in the wrong order: an accepted file describes a valid topology. */
static void an_accepted_topology_is_valid(void **state)
{
    (void)state;
    static const char *const pieces[] = {"host ", "link ", "channels ", "1",       "2",  "3",
                                         " ",     "\n",    "\n",        "16",      "#x", "host 1\n",
                                         "254",   "9",     "host 2\n",  "host 3\n"};
    struct via_rng rng;
    unsigned taken = 0;
    via_rng_init(&rng, 1);
    for (unsigned round = 0; round < 200000; round++) {
        char text[160] = "";
        unsigned count = (unsigned)via_rng_between(&rng, 1, 12);
        for (unsigned i = 0; i < count; i++) {
            strcat(text, pieces[via_rng_below(&rng, VIA_ARRAY_COUNT(pieces))]);
        }
        struct via_error err = {0};
        int rc = parse(text, &err);
        if (rc != 0) {
            assert_int_equal(rc, -EINVAL);
            assert_int_equal(strncmp(err.text, "F:", 2), 0);
            continue;
        }
        taken++;
        bool known[256] = {false};
        for (unsigned i = 0; i < topology.hosts_count; i++) {
            assert_false(known[topology.hosts[i]]);
            known[topology.hosts[i]] = true;
        }
        assert_false(known[0] || known[255]);
        for (unsigned i = 0; i < topology.links_count; i++) {
            assert_true(topology.links[i].a < topology.links[i].b);
            assert_true(known[topology.links[i].a] && known[topology.links[i].b]);
        }
    }
    assert_true(taken > 1000);
}

static void a_file_that_is_none_is_named(void **state)
{
    (void)state;
    struct via_error err = {0};
    assert_int_equal(via_topology_load("/nowhere/ring.topo", &topology, &err), -ENOENT);
    assert_string_equal(err.text, "/nowhere/ring.topo: open: No such file or directory");
    assert_int_equal(via_topology_load("/", &topology, &err), -EISDIR);
    assert_int_equal(via_topology_load("/dev/zero", &topology, &err), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_gives_hosts_links_and_channels),
        cmocka_unit_test(one_host_alone_is_a_fabric),
        cmocka_unit_test(errors_name_the_line_and_the_word),
        cmocka_unit_test(the_error_of_a_repeated_link_shows_the_syntax_of_two_cables),
        cmocka_unit_test(a_host_has_no_more_links_than_ports),
        cmocka_unit_test(words_are_shown_without_control_characters),
        cmocka_unit_test(shapes_have_their_links),
        cmocka_unit_test(a_torus_has_a_ring_along_each_dimension),
        cmocka_unit_test(shapes_larger_than_ids_or_ports_are_refused),
        cmocka_unit_test(an_accepted_topology_is_valid),
        cmocka_unit_test(a_file_that_is_none_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
