/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Systems before power-on: each mistake is reported, and none for a correct system. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "card/system.h"

#define TIMES " perst-ms 100 perst-clock-us 100 perst-low-us 100\n"
#define HOST "host h ssc off" TIMES "slot h s x16 gen3\n"
#define HOST2 "host k ssc off" TIMES "slot k s x16 gen3\n"
#define BOX "box b" TIMES "slot b s x16 gen3\nslot b d x16 gen3\n"

static struct via_card_system sys;

struct found {
    unsigned count[3];
    char all[4000];
};

static void take(void *ctx, enum via_card_severity severity, unsigned line, const char *text)
{
    struct found *found = ctx;
    size_t at = strlen(found->all);
    found->count[severity]++;
    snprintf(found->all + at, sizeof(found->all) - at, "%u: %s: %s\n", line,
             via_card_severity_name(severity), text);
}

static struct found check(const char *text)
{
    static struct found found;
    struct via_error err = {0};
    memset(&found, 0, sizeof(found));
    if (via_card_system_parse("F", text, strlen(text), &sys, &err) != 0) {
        fail_msg("%s", err.text);
    }
    unsigned errors = via_card_system_check(&sys, take, &found);
    assert_int_equal(errors, found.count[VIA_CARD_ERROR]);
    return found;
}

static char *printed(void (*print)(const struct via_card_system *system, FILE *out))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    print(&sys, out);
    fclose(out);
    return text;
}

static const char *const sound[] = {
    HOST BOX "card x pex8749-x8 in h s dip 0000\ncard y pex8749-x8 in b s dip 1000\n"
             "cable optical x y metres 100\ndevice gpu in b d x16 gen3\n",
    HOST BOX "card x pex8749-x8 in h s dip 0010\ncard y pex8749-x8 in b s dip 1010\n"
             "cable copper x y count 2 metres 3\ncable sideband x y metres 3\n",
    HOST HOST2 "card x pex8733-x16 in h s dip 0100\ncard y pex8733-x16 in k s dip 0000\n"
               "cable optical x y count 2 metres 10\n",
    HOST HOST2 "card x pex8749-x8 in h s dip 0110\n"
               "card y pex8749-x8 in k s dip 1101 image host transparent copper\n"
               "cable copper x y count 2 metres 1\ncable sideband y x\n",
};

static void a_sound_system_has_no_finding(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(sound); i++) {
        struct found found = check(sound[i]);
        if (found.count[VIA_CARD_ERROR] + found.count[VIA_CARD_WARNING] != 0) {
            fail_msg("%s\n%s", sound[i], found.all);
        }
    }
}

/* The correct system with one change, and the expected report. */
static const struct {
    unsigned system;
    const char *from, *to, *expected;
} mistakes[] = {
    {0, "dip 0000", "dip 1000", "RESET and CLOCK of the slot have two sources"},
    {0, "dip 1000", "dip 0000", "role host in the box b: it waits for RESET"},
    {0, "dip 1000", "dip 0000", "two transparent hosts"},
    {0, "dip 0000", "dip 1000", "two boxes: neither end has a host"},
    {0, "dip 0000", "dip 1000", "RESET: a loop: each end waits for the other's"},
    {0, "dip 0000", "dip 0100", "a box and an NT port"},
    {0, "dip 0000", "dip 0100", "RESET: no source: y waits for it, x sends none"},
    {0, "dip 0000", "dip 1100", "a box with an NT port is no role"},
    {0, "dip 0000", "dip 0001", "its role is not known"},
    {0, "dip 1000", "dip 1010", "x is set to optical, y to copper"},
    {0, "metres 100", "metres 101", "101 m of optical: it reaches 100 m"},
    {0, "metres 100", "metres 1400", "optical budget: 5.90 dB are lost, and there are 5.70"},
    {0, "metres 100", "count 2", "2 optical cables, x8 needs 1"},
    {0, "metres 100", "count 1", "the length was not checked"},
    {0, "metres 100\n", "metres 9\ncable sideband x y\n", "a sideband cable serves no optical"},
    {0, "cable optical x y metres 100\n", "", "x: no cable leads to it"},
    {0, "ssc off", "ssc on", "two clocks on this link, and h spreads its spectrum"},
    {0, " ssc off", "", "does not say that h has ssc off"},
    {0, "perst-ms 100", "perst-ms 99", "power good to PERST# high (perst-ms) is 99"},
    {0, "perst-clock-us 100", "perst-clock-us 99", "clock stable to PERST# high"},
    {0, "perst-low-us 100", "perst-low-us 99", "PERST# low (perst-low-us) is 99"},
    {0, " perst-low-us 100", "", "PERST# timing was not checked"},
    {0, "slot h s x16 gen3", "slot h s x4 gen3", "x8 in a slot of x4"},
    {0, "slot h s x16 gen3", "slot h s x16 gen2", "Gen3 in a slot of Gen2"},
    {0, "slot b d x16 gen3", "slot b d x8 gen3", "gpu: x16 Gen3 in a slot of x8 Gen3"},
    {0, "card y pex8749-x8", "card y pex8733-x16", "x8 meets x16"},
    {0, "device gpu in b d x16 gen3\n",
     "card z pex8749-x8 in b d dip 1000\ncable optical x z metres 1\n",
     "x: it has one far port, and a cable to y already"},
    {0, "device gpu in b d x16 gen3\n",
     "card z pex8749-x8 in b d dip 1000\ncable optical x z metres 1\n",
     "z drives RESET and CLOCK of b's slots, and y (line 7) does, too"},
    {0, "card y pex8749-x8 in b s", "slot h t x8 gen3\ncard y pex8749-x8 in h t",
     "both ends are in the same machine"},
    {0, "card y pex8749-x8 in b s", "slot h t x8 gen3\ncard y pex8749-x8 in h t",
     "b: no card with the role box"},
    {1, "metres 3\n", "metres 11\n", "11 m of copper: it reaches 10 m"},
    {1, "metres 3\n", "metres 5\n", "passive cables reach 2 to 3 m"},
    {1, "metres 3\ncable sideband x y metres 3", "\ncable sideband x y metres 11",
     "11 m of sideband cable: it reaches 10 m"},
    {1, "count 2 metres 3\n", "count 1 metres 11\ncable copper x y count 1\n",
     "11 m of copper: it reaches 10 m"},
    {1, "sideband x y", "sideband x y count 2", "2 sideband cables: RESET and CLOCK would come"},
    {1, "count 2", "count 1", "1 copper cable, x8 needs 2"},
    {1, "cable sideband x y metres 3\n", "", "RESET: y waits for it, and mini-SAS does not"},
    {1, "cable sideband x y metres 3\n", "", "CLOCK: y waits for it, and mini-SAS does not"},
    {2, "dip 0000", "dip 0100", "two NT ports back to back"},
    {2, "dip 0100", "dip 0000", "two transparent hosts"},
    {3, "dip 1101", "dip 1100", "is no role"},
    {3, "dip 1101", "dip 0000", "its image has another role than its DIP switches"},
    {3, "cable copper", "cable optical", "a cable between them is not"},
};

static void each_mistake_is_found(void **state)
{
    char text[2000];
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(mistakes); i++) {
        const char *whole = sound[mistakes[i].system];
        const char *at = strstr(whole, mistakes[i].from);
        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - whole), whole, mistakes[i].to,
                 at + strlen(mistakes[i].from));
        struct found found = check(text);
        if (strstr(found.all, mistakes[i].expected) == NULL) {
            fail_msg("%s\n%s: not in\n%s", text, mistakes[i].expected, found.all);
        }
    }
}

static void a_sound_system_is_ordered_listed_and_drawn(void **state)
{
    (void)state;
    check(sound[0]);
    char *order = printed(via_card_system_print_order);
    assert_non_null(strstr(order, "  1. b (box: "));
    assert_non_null(strstr(order, "  2. h (host)"));
    char *tree = printed(via_card_system_print_tree);
    assert_non_null(strstr(tree, "+-01:00.0  upstream port [10b5:8749]"));
    assert_non_null(strstr(tree, "+-02:08.0  downstream port [10b5:8749]"));
    assert_non_null(strstr(tree, "+-05:00.0  gpu"));
    char *svg = printed(via_card_system_draw);
    assert_true(strncmp(svg, "<svg ", 5) == 0);
    assert_non_null(strstr(svg, "1 x optical, 100 m"));
    assert_non_null(strstr(svg, "RESET: remote &#8594; switch, slot"));
    free(order);
    free(tree);
    free(svg);
    check(sound[3]);
    order = printed(via_card_system_print_order);
    assert_non_null(strstr(order, "  1. h (host with an NT port"));
    tree = printed(via_card_system_print_tree);
    assert_non_null(strstr(tree, "+-02:08.0  NT port, virtual side [10b5:87b0]"));
    assert_non_null(strstr(tree, "+-03:00.0  NT port, link side [10b5:87a0]"));
    free(order);
    free(tree);
}

static const struct {
    const char *text, *complaint;
} no_systems[] = {
    {"", "F:0: no card in the whole file"},
    {"host h\nhost h\n", "F:2: 'h': given already, in line 1"},
    {"host h x\n", "F:1: 'host': expected 'host|box NAME [KEY VALUE]...'"},
    {"host h ssc maybe\n",
     "F:1: 'ssc maybe': expected ssc on|off, perst-ms, perst-clock-us, perst-low-us"},
    {"host <h>\n", "F:1: '<h>': a name has up to 31 letters, digits, '.', '_', '-'"},
    {"slot h s x8 gen3\n", "F:1: 'h': no line before declares this host or box"},
    {"host h\nslot h s x3 gen3\n", "F:2: 'x3 gen3': expected x1 to x16, gen1 to gen5"},
    {HOST "card c pex8749-x8 in h t dip 0000\n", "F:3: 't': h has no such slot"},
    {HOST "card c pex9797 in h s dip 0000\n", "F:3: 'pex9797': unknown card ('viaduct card "
                                              "roles')"},
    {HOST "card c pex8749-x8 in h s dip 01\n", "F:3: '01': DIP switches are four digits 0 or 1"},
    {HOST "card c pex8749-x8 in h s dip 0000\ndevice d in h s x1 gen1\n",
     "F:4: 's': this slot of h is taken"},
    {HOST "card c pex8749-x8 in h s dip 0000\ncable optical c c\n",
     "F:4: 'c': a cable from a card to itself"},
    {HOST "card c pex8749-x8 in h s dip 0000\ncable radio c c\n",
     "F:4: 'radio': not optical, copper or sideband"},
    {HOST "card c pex8749-x8 in h s dip 0001 image box ntb copper\n",
     "F:3: 'image': an NT port joins two hosts, and a box has none: mode transparent"},
    {"wire\n", "F:1: 'wire': unknown keyword (host, box, slot, card, cable, device)"},
};

static void an_invalid_description_is_refused_with_the_line(void **state)
{
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(no_systems); i++) {
        struct via_error err = {0};
        assert_int_equal(
            via_card_system_parse("F", no_systems[i].text, strlen(no_systems[i].text), &sys, &err),
            -EINVAL);
        assert_string_equal(err.text, no_systems[i].complaint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_system_has_no_finding),
        cmocka_unit_test(each_mistake_is_found),
        cmocka_unit_test(a_sound_system_is_ordered_listed_and_drawn),
        cmocka_unit_test(an_invalid_description_is_refused_with_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
