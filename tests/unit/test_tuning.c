/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Measured settings: the rules for a gain, and files with invalid contents. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/store.h"
#include "host/tuning.h"
#include "tune/tune.h"

#define HEAD "[machine]\ncpu = X\n"
#define LINK "[link emu:/x,side=0]\nhardware = emu\n"

static struct via_tuning tuning;
static struct via_error err;

static int parse(const char *text)
{
    via_error_clear(&err);
    return via_tuning_parse("file", text, strlen(text), &tuning, &err);
}

static void printed_settings_are_read_again(void **state)
{
    (void)state;
    char path[] = "/tmp/test-tuning-XXXXXX";
    assert_int_equal(parse(HEAD "[pipes]\nslots = 64\n" LINK
                                "dma-bytes = 4096\nstore = 8 from 1024, - from 4096, 8 from 32768\n"
                                "[link pex:model:a,side=link]\nhardware = Y z, 1\n"),
                     0);
    struct via_tuning before = tuning;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(via_tuning_save(path, &before, &err), 0);
    assert_int_equal(via_tuning_load(path, &tuning, &err), 0);
    unlink(path);
    assert_int_equal(tuning.slots, 64);
    assert_int_equal(tuning.links_count, 2);
    assert_int_equal(tuning.links[0].dma_bytes_min, 4096);
    for (unsigned i = 0; i < VIA_STORE_CLASSES; i++) {
        bool has_one = i == 10 || i == 11 || i == 15;
        assert_true(tuning.links[0].stores[i] == (has_one ? via_store_find("8") : NULL));
        assert_true(tuning.links[1].stores[i] == NULL);
    }
    assert_true(tuning.links[0].has_stores && !tuning.links[1].has_stores);
    assert_int_equal(strcmp(tuning.links[1].hardware, "Y z, 1"), 0);
    assert_true(via_tuning_find(&tuning, "pex:model:a,side=link") == &tuning.links[1]);
    assert_true(via_tuning_find(&tuning, "pex:model:a") == NULL);
    assert_true(via_tuning_has_dma(&tuning));
}

static void wrong_files_are_refused_with_line_and_cause(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } wrong[] = {
        {"", "cpu: is missing"},
        {"cpu = X\n", "file:1: cpu = X: no such key here"},
        {"[machine]\ncpu = X\ncpu = Y\n", "file:3: cpu = Y"},
        {HEAD HEAD, "file:3: [machine]: not one of"},
        {HEAD "[pipes]\nslots = 3\n", "file:4: slots = 3"},
        {HEAD "[pipes]\nslots = 2048\n", "slots = 2048"},
        {HEAD "[pipes]\nslots = -1\n", "slots = -1"},
        {HEAD "[pipes]\nslots = 18446744073709551617\n", "slots = 18446744073709551617"},
        {HEAD "[link nothing]\n", "file:3: [link nothing]"},
        {HEAD "[link tape:x]\n", "there is no driver 'tape'"},
        {HEAD LINK LINK, "is a duplicate"},
        {HEAD "[link emu:/x,side=0]\ndma-bytes = 1\n", "hardware: is missing"},
        {HEAD LINK "dma-bytes = 0\n", "dma-bytes = 0"},
        {HEAD LINK "dma-bytes = 65473\n", "dma-bytes = 65473"},
        {HEAD LINK "dma-bytes = 4096\ndma-bytes = 4096\n", "given twice"},
        {HEAD LINK "store = 65\n", "store = 65"},
        {HEAD LINK "store = 8\nstore = 8\n", "store = 8: given twice"},
        {HEAD LINK "store = 8 from 1000\n", "store = 8 from 1000"},
        {HEAD LINK "store = 8 from 65536\n", "store = 8 from 65536"},
        {HEAD LINK "store = 8 from 1024, 8 from 512\n", "store = 8 from 1024, 8 from 512"},
        {HEAD LINK "store = 8 from 1024,\n", "store = 8 from 1024,"},
        {HEAD LINK "store = 8 from\n", "store = 8 from"},
        {HEAD LINK "store = 8 from 1024 x\n", "store = 8 from 1024 x"},
        {HEAD LINK "spin = 8\n", "there is no such key"},
        {"[machine]\ncpu = X\x1b[2J\n", "file:2"},
        {HEAD "nothing\n", "neither [SECTION] nor KEY"},
        {HEAD "[open\n", "is not closed"},
    };
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(parse(wrong[i].text), -EINVAL);
        assert_true(strstr(err.text, wrong[i].expected) != NULL);
    }
}

static void a_file_has_no_more_links_than_there_is_room(void **state)
{
    (void)state;
    static char text[VIA_TUNING_FILE_BYTES_MAX];
    size_t used = (size_t)snprintf(text, sizeof(text), HEAD);
    for (unsigned i = 0; i <= VIA_TUNING_LINKS_MAX; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "[link emu:/x%u,side=0]\nhardware = emu\n", i);
    }
    assert_int_equal(parse(text), -EINVAL);
    assert_true(strstr(err.text, "more than 64 links") != NULL);
}

/* With any bytes changed, the file is refused, or its values are within the limits. */
static void bytes_of_a_stranger(void **state)
{
    (void)state;
    static const char good[] = HEAD "[pipes]\nslots = 64\n" LINK "dma-bytes = 4096\nstore = 8\n";
    struct via_rng rng;
    unsigned refused = 0;
    via_rng_init(&rng, 16);
    for (unsigned round = 0; round < 4000; round++) {
        char text[sizeof(good)];
        memcpy(text, good, sizeof(text));
        for (unsigned i = 0; i <= round % 4; i++) {
            text[via_rng_below(&rng, sizeof(text) - 1)] = (char)via_rng_below(&rng, 256);
        }
        int rc = via_tuning_parse("file", text, sizeof(text) - 1, &tuning, &err);
        refused += rc != 0;
        assert_true(rc == 0 || rc == -EINVAL);
        if (rc == 0) {
            assert_true(tuning.links_count == 1 && tuning.links[0].dma_bytes_min <= 65472);
            assert_true(tuning.slots <= VIA_TUNING_SLOTS_MAX);
        }
    }
    assert_true(refused > 1000);
}

static void a_file_that_others_can_write_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/test-tuning-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal((int)write(fd, HEAD, strlen(HEAD)), (int)strlen(HEAD));
    assert_int_equal(via_tuning_load(path, &tuning, &err), 0);
    assert_int_equal(fchmod(fd, 0666), 0);
    assert_int_equal(via_tuning_load(path, &tuning, &err), -EPERM);
    assert_true(strstr(err.text, "mode 666") != NULL);
    close(fd);
    unlink(path);
    assert_int_equal(via_tuning_load(path, &tuning, &err), -ENOENT);
    assert_int_equal(via_tuning_load("/tmp", &tuning, &err) < 0, 1);
}

static void another_processor_is_reported(void **state)
{
    (void)state;
    assert_int_equal(parse(HEAD), 0);
    assert_int_equal(via_tuning_check_cpu(&tuning, &err), -ENODEV);
    assert_true(strstr(err.text, "another machine") != NULL);
    via_tuning_cpu(tuning.cpu);
    assert_int_equal(via_tuning_check_cpu(&tuning, &err), 0);
}

/* --- gains ------------------------------------------------------------------------------------ */

static struct via_tune_result decide(const double *ratios, unsigned count, unsigned times)
{
    struct via_tune_pairs pairs = {0};
    for (unsigned i = 0; i < times; i++) {
        for (unsigned k = 0; k < count; k++) {
            pairs.ratio[pairs.count++] = ratios[k];
        }
    }
    return via_tune_decide(&pairs, VIA_TUNE_MARGIN);
}

static void an_uncertain_gain_does_not_count(void **state)
{
    (void)state;
    static const double faster[] = {1.08, 1.10, 1.09}, slightly[] = {1.03, 1.04, 1.035};
    static const double unsure[] = {0.7, 1.3, 1.06, 0.9, 1.4}, slower[] = {0.8, 0.9, 0.85};
    static const double outliers[] = {1.0, 1.0, 1.0, 9.0};
    assert_int_equal(decide(faster, 3, 7).verdict, VIA_TUNE_HELPS);
    assert_int_equal(decide(slightly, 3, 7).verdict,
                     VIA_TUNE_SAME); /* significant, but less than 5 % */
    assert_int_equal(decide(unsure, 5, 4).verdict,
                     VIA_TUNE_SAME); /* 6 % by the median, not significant */
    assert_int_equal(decide(outliers, 4, 5).verdict, VIA_TUNE_SAME);
    assert_int_equal(decide(slower, 3, 7).verdict, VIA_TUNE_HURTS);
    assert_int_equal(decide(faster, 3, 1).verdict, VIA_TUNE_SAME); /* three pairs are too few */
    assert_int_equal(decide(NULL, 0, 0).verdict, VIA_TUNE_SAME);
}

/* With noise alone, fewer than 1 in 100 comparisons may count as a gain. */
static void noise_is_no_help(void **state)
{
    (void)state;
    struct via_rng rng;
    unsigned helped = 0;
    via_rng_init(&rng, 51);
    for (unsigned round = 0; round < 2000; round++) {
        struct via_tune_pairs pairs = {.count = 41};
        for (unsigned i = 0; i < pairs.count; i++) {
            double a = 1000 + (double)via_rng_below(&rng, 400);
            double b = 1000 + (double)via_rng_below(&rng, 400);
            pairs.ratio[i] = a / b;
        }
        helped += via_tune_decide(&pairs, VIA_TUNE_MARGIN).verdict == VIA_TUNE_HELPS;
    }
    assert_true(helped < 20);
}

static void a_threshold_holds_for_all_sizes_above(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1024, 4096, 16384, 65472};
    static const enum via_tune_verdict all[] = {VIA_TUNE_HELPS, VIA_TUNE_HELPS, VIA_TUNE_HELPS,
                                                VIA_TUNE_HELPS};
    static const enum via_tune_verdict gap[] = {VIA_TUNE_HELPS, VIA_TUNE_SAME, VIA_TUNE_HELPS,
                                                VIA_TUNE_HELPS};
    static const enum via_tune_verdict end[] = {VIA_TUNE_HELPS, VIA_TUNE_HELPS, VIA_TUNE_HELPS,
                                                VIA_TUNE_HURTS};
    assert_int_equal(via_tune_threshold(sizes, all, 4), 1024);
    assert_int_equal(via_tune_threshold(sizes, gap, 4), 16384);
    assert_int_equal(via_tune_threshold(sizes, end, 4), 0);
    assert_int_equal(via_tune_threshold(sizes, all, 0), 0);
}

/* --- stores --- */

static void stores_bring_all_bytes_and_no_others(void **state)
{
    (void)state;
    static unsigned char from[512] __attribute__((aligned(64)));
    static unsigned char to[640] __attribute__((aligned(64)));
    for (unsigned i = 0; i < sizeof(from); i++) {
        from[i] = (unsigned char)(i * 7 + 1);
    }
    for (unsigned i = 0; i < via_stores_count; i++) {
        const struct via_store *store = &via_stores[i];
        if (!via_store_is_there(store)) {
            assert_true(via_store_find(store->name) == NULL);
            continue;
        }
        assert_true(via_store_find(store->name) == store);
        memset(to, 0xee, sizeof(to));
        store->copy(to + 64, from + 3, 256); /* from anywhere */
        via_store_fence();
        assert_int_equal(memcmp(to + 64, from + 3, 256), 0);
        assert_true(to[63] == 0xee && to[64 + 256] == 0xee);
    }
}

/* --- a link that goes down in a comparison --- */

#define PIPE_RECORDS 128u /* of the first half of the first pair */
#define HANG_S 120

static struct via_port_ops lossy;
static const struct via_port_ops *whole;
static unsigned commits_count;

static void drop_the_last(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                          size_t len)
{
    if (++commits_count != PIPE_RECORDS) {
        whole->commit(port, queue, off, src, len);
    }
}

/* The writer has ended, and the reader waits for a record that was lost with the link. */
static void a_record_that_is_lost_ends_the_comparison(void **state)
{
    static struct via_pio_link link;
    static struct via_pio_measure measure;
    static struct via_tune tune;
    struct via_driver driver;
    (void)state;
    assert_int_equal(via_pio_link_open(&link, 10 * VIA_SEC_NS, &err), 0);
    driver = *link.ends[0].config.driver;
    driver.use_store = NULL; /* pipes alone */
    link.ends[0].config.driver = &driver;
    link.has_dma = false;
    measure = (struct via_pio_measure){.link = &link, .threads = 1};
    assert_int_equal(via_pio_measure_begin(&measure, VIA_PIO_ANY_CPU, &err), 0);
    tune = (struct via_tune){.measure = &measure, .pairs = VIA_TUNE_PAIRS_MIN};
    whole = link.ends[0].port->ops;
    lossy = *whole;
    lossy.commit = drop_the_last;
    link.ends[0].port->ops = &lossy;
    alarm(HANG_S); /* a reader that waits forever fails the test */
    assert_int_equal(via_tune_link(&tune, &err), -ETIMEDOUT);
    alarm(0);
    assert_true(commits_count >= PIPE_RECORDS);
    assert_non_null(strstr(err.text, "compare pipes of"));
    link.ends[0].port->ops = whole;
    via_pio_measure_end(&measure);
    via_pio_link_close(&link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_settings_are_read_again),
        cmocka_unit_test(wrong_files_are_refused_with_line_and_cause),
        cmocka_unit_test(a_file_has_no_more_links_than_there_is_room),
        cmocka_unit_test(bytes_of_a_stranger),
        cmocka_unit_test(a_file_that_others_can_write_is_refused),
        cmocka_unit_test(another_processor_is_reported),
        cmocka_unit_test(an_uncertain_gain_does_not_count),
        cmocka_unit_test(noise_is_no_help),
        cmocka_unit_test(a_threshold_holds_for_all_sizes_above),
        cmocka_unit_test(stores_bring_all_bytes_and_no_others),
        cmocka_unit_test(a_record_that_is_lost_ends_the_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
