/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The contract of port/slice.h, for every kind of port that has slices. One thread drives both
 * ends. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/types.h"
#include "conform_agent.h"
#include "port/driver.h"
#include "port/emu/memory.h"

#define INBOX_BYTES (300u << 10)
#define WINDOW_BYTES (1u << 20)
#define MEMORY_BYTES (2u << 20)
#define EXPOSURES_MAX 2000u
#define OWNER 0u
#define IMPORTER 1u

/* A kind of ports, and two descriptions of links that have no slices. */
struct kind {
    const char *name, *options[2], *without[2];
};

static const struct kind kinds[] = {
    {"emu",
     {"side=0,like=pex,window=1MiB", "side=1,like=pex,window=1MiB"},
     {"side=0,like=memory", "side=0,like=network"}},
    {"emu",
     {"side=0,like=ivshmem,window=1MiB", "side=1,like=ivshmem,window=1MiB"},
     {"side=0,like=memory", "side=0,like=network"}},
    {"pex", {"side=virtual,slices", "side=link,slices"}, {"side=virtual", "side=virtual,alut"}},
    {"pex", {"b2b=0,slices", "b2b=1,slices"}, {"b2b=0", "b2b=0,alut"}},
};
static const struct kind *kind;

struct end {
    struct via_link_config config;
    struct via_driver_host host;
    struct via_port *port;
};

struct ends {
    char directory[64];
    char path[96];
    struct end end[2];
    struct via_port_slices *slices[2];
    uint64_t now_ns;
    int fds_before;
    int memory_fd;
    unsigned char *memory;
};

static void open_end(const struct ends *ends, struct end *end, const char *options,
                     uint64_t inbox_bytes, bool with_slices)
{
    char text[256];
    struct via_error err = {0};
    bool is_emu = strcmp(kind->name, "emu") == 0;
    snprintf(text, sizeof(text), "%s:%s%s,%s", kind->name, is_emu ? "" : "model:", ends->path,
             options);
    if (via_link_parse(text, &end->config, &err) != 0) {
        fail_msg("%s", err.text);
    }
    end->host = (struct via_driver_host){.host = 1,
                                         .inbox_bytes = inbox_bytes,
                                         .inbox_bytes_min = 4096,
                                         .threads_count = 1,
                                         .bell_fd = -1,
                                         .slices = with_slices};
    end->host.bell_fd = memfd_create("bells", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(end->host.bell_fd, 4096), 0);
    assert_int_equal(fcntl(end->host.bell_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    if (end->config.driver->open(end->config.config, &end->host, &end->port, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void close_end(struct end *end)
{
    end->port->ops->close(end->port);
    close(end->host.bell_fd);
}

static struct via_port_slices *slices_of(struct end *end)
{
    return end->config.driver->slices(end->port);
}

static void cut(struct ends *ends, unsigned side, bool is_cut)
{
    ends->end[side].config.driver->cut(ends->end[side].port, is_cut);
}

static void turn(struct ends *ends)
{
    uint64_t deadline_ns;
    for (unsigned i = 0; i < 12; i++) {
        ends->now_ns += 10 * VIA_MSEC_NS;
        for (unsigned side = 0; side < 2; side++) {
            struct end *end = &ends->end[side];
            end->config.driver->service(end->port, ends->now_ns, &deadline_ns);
        }
    }
}

static int set_up(void **state)
{
    struct ends *ends = calloc(1, sizeof(*ends));
    strcpy(ends->directory, "/tmp/via-slices-XXXXXX");
    assert_non_null(mkdtemp(ends->directory));
    snprintf(ends->path, sizeof(ends->path), "%s/link-1-2-0.sock", ends->directory);
    ends->fds_before = conform_count_fds();
    for (unsigned side = 0; side < 2; side++) {
        /* Pipes of one end may need more than those of the other. */
        open_end(ends, &ends->end[side], kind->options[side], INBOX_BYTES + side * 4096, true);
        ends->slices[side] = slices_of(&ends->end[side]);
        assert_non_null(ends->slices[side]);
    }
    turn(ends);
    assert_int_equal(via_emu_memfd_new("memory", MEMORY_BYTES, &ends->memory_fd), 0);
    ends->memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ends->memory_fd, 0);
    assert_true(ends->memory != MAP_FAILED);
    *state = ends;
    return 0;
}

static int tear_down(void **state)
{
    struct ends *ends = *state;
    munmap(ends->memory, MEMORY_BYTES);
    close(ends->memory_fd);
    for (unsigned side = 0; side < 2; side++) {
        close_end(&ends->end[side]);
    }
    assert_int_equal(conform_count_fds(), ends->fds_before);
    assert_int_equal(rmdir(ends->directory), 0);
    free(ends);
    return 0;
}

static int expose(struct ends *ends, uint32_t slice, uint64_t exposure, uint64_t piece)
{
    struct via_port_slices *slices = ends->slices[OWNER];
    return slices->ops->expose(slices, slice, exposure, ends->memory_fd,
                               piece * slices->slice_bytes, slices->slice_bytes);
}

static int map(struct ends *ends, uint32_t slice, uint64_t exposure, int *ret_fd, uint64_t *ret_off)
{
    struct via_port_slices *slices = ends->slices[IMPORTER];
    return slices->ops->map(slices, slice, exposure, ret_fd, ret_off);
}

/* Maps a slice, like a process. */
static unsigned char *mapping(struct ends *ends, uint32_t slice, uint64_t exposure)
{
    uint64_t off;
    int fd;
    assert_int_equal(map(ends, slice, exposure, &fd, &off), 0);
    void *base = mmap(NULL, ends->slices[IMPORTER]->slice_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      fd, (off_t)off);
    assert_true(base != MAP_FAILED);
    return base;
}

static int is_not_here(struct ends *ends, uint32_t slice, uint64_t exposure)
{
    uint64_t off;
    int fd;
    return map(ends, slice, exposure, &fd, &off);
}

/* --- the contract ----------------------------------------------------------------------------- */

static void both_ends_have_slices_of_one_size(void **state)
{
    const struct ends *ends = *state;
    for (unsigned side = 0; side < 2; side++) {
        const struct via_port_slices *slices = ends->slices[side];
        const struct via_port_caps *caps = &ends->end[side].port->caps;
        assert_true(via_is_pow2(slices->slice_bytes) && slices->slice_bytes >= 4096);
        assert_true(slices->slice_bytes == ends->slices[0]->slice_bytes);
        assert_true(slices->count >= 16);
        assert_true(caps->inbox_bytes >= INBOX_BYTES && caps->window_bytes == caps->inbox_bytes);
    }
}

static void pipes_get_three_quarters_at_most(void **state)
{
    struct ends *ends = *state;
    struct ends other = *ends;
    struct end end;
    snprintf(other.path, sizeof(other.path), "%s/link-3-4-0.sock", ends->directory);
    open_end(&other, &end, kind->options[0], 16 * WINDOW_BYTES, true);
    const struct via_port_slices *slices = slices_of(&end);
    uint64_t behind = slices->count * slices->slice_bytes;
    assert_true(slices->count >= 16);
    /* Slices get a quarter, apart from the page and from rounding to whole slices. */
    assert_true(behind >= end.port->caps.window_bytes / 3 - 2 * slices->slice_bytes);
    assert_true(end.port->caps.window_bytes >= 2 * behind);
    close_end(&end);
}

static void a_port_without_slices_has_no_table_of_them(void **state)
{
    struct ends *ends = *state;
    struct ends other = *ends;
    struct end end;
    snprintf(other.path, sizeof(other.path), "%s/link-3-4-0.sock", ends->directory);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(kind->without); i++) {
        open_end(&other, &end, kind->without[i], INBOX_BYTES, true);
        assert_null(slices_of(&end));
        close_end(&end);
    }
    open_end(&other, &end, kind->options[0], INBOX_BYTES, false);
    assert_null(slices_of(&end));
    close_end(&end);
}

static void stores_reach_the_piece_and_nothing_else(void **state)
{
    struct ends *ends = *state;
    uint64_t bytes = ends->slices[IMPORTER]->slice_bytes;
    assert_int_equal(expose(ends, 3, 77, 5), 0);
    turn(ends);
    unsigned char *slice = mapping(ends, 3, 77);
    memset(slice, 0xab, bytes);
    for (uint64_t i = 0; i < MEMORY_BYTES; i++) {
        assert_int_equal(ends->memory[i], i / bytes == 5 ? 0xab : 0);
    }
    ends->memory[5 * bytes + 9] = 0xcd;
    assert_int_equal(slice[9], 0xcd);
    munmap(slice, bytes);
}

static void nothing_is_mapped_before_it_is_exposed(void **state)
{
    struct ends *ends = *state;
    assert_int_equal(is_not_here(ends, 0, 1), -EAGAIN);
    assert_int_equal(expose(ends, 0, 1, 0), 0);
    turn(ends);
    assert_int_equal(is_not_here(ends, 0, 2), -EAGAIN);
    assert_int_equal(is_not_here(ends, 1, 1), -EAGAIN);
    munmap(mapping(ends, 0, 1), ends->slices[IMPORTER]->slice_bytes);
}

static void the_next_exposure_takes_the_place_of_the_last(void **state)
{
    struct ends *ends = *state;
    uint64_t bytes = ends->slices[IMPORTER]->slice_bytes;
    assert_int_equal(expose(ends, 0, 1, 0), 0);
    turn(ends);
    unsigned char *old = mapping(ends, 0, 1);
    assert_int_equal(expose(ends, 0, 2, 1), 0);
    turn(ends);
    assert_int_equal(is_not_here(ends, 0, 1), -EAGAIN);
    unsigned char *young = mapping(ends, 0, 2);
    *young = 1;
    assert_int_equal(ends->memory[bytes], 1);
    if (ends->slices[IMPORTER]->detaches) {
        *old = 2;
        assert_int_equal(ends->memory[bytes], 1);
    }
    munmap(old, bytes);
    munmap(young, bytes);
}

static void what_is_concealed_is_not_mapped(void **state)
{
    struct ends *ends = *state;
    assert_int_equal(expose(ends, 0, 1, 0), 0);
    assert_int_equal(expose(ends, 1, 2, 1), 0);
    turn(ends);
    ends->slices[OWNER]->ops->conceal(ends->slices[OWNER], 0);
    ends->slices[OWNER]->ops->conceal(ends->slices[OWNER], UINT32_MAX);
    turn(ends);
    assert_int_equal(is_not_here(ends, 0, 1), -EAGAIN);
    assert_int_equal(is_not_here(ends, 1, 2), 0);
    ends->slices[IMPORTER]->ops->unmap(ends->slices[IMPORTER], 1);
    ends->slices[IMPORTER]->ops->unmap(ends->slices[IMPORTER], UINT32_MAX);
    assert_int_equal(is_not_here(ends, 1, 2), -EAGAIN);
}

static void no_exposure_outlives_the_link(void **state)
{
    struct ends *ends = *state;
    assert_int_equal(expose(ends, 0, 1, 0), 0);
    turn(ends);
    assert_int_equal(expose(ends, 1, 2, 1), 0); /* under way */
    cut(ends, OWNER, true);
    /* The other end may have to poll before it sees this. */
    int rc = is_not_here(ends, 0, 1);
    assert_true(rc == -ENOLINK || (strcmp(kind->name, "pex") == 0 && rc == -EAGAIN));
    assert_int_equal(expose(ends, 2, 3, 2), -ENOLINK);
    turn(ends);
    cut(ends, OWNER, false);
    turn(ends);
    assert_int_equal(is_not_here(ends, 0, 1), -EAGAIN);
    assert_int_equal(is_not_here(ends, 1, 2), -EAGAIN);
    assert_int_equal(expose(ends, 0, 4, 0), 0);
    turn(ends);
    assert_int_equal(is_not_here(ends, 0, 4), 0);
}

static void what_is_out_of_bounds_is_refused(void **state)
{
    struct ends *ends = *state;
    struct via_port_slices *slices = ends->slices[OWNER];
    uint64_t bytes = slices->slice_bytes;
    assert_int_equal(expose(ends, slices->count, 1, 0), -EINVAL);
    assert_int_equal(expose(ends, 0, 0, 0), -EINVAL);
    assert_int_equal(expose(ends, 0, 1, MEMORY_BYTES / bytes), -EMSGSIZE);
    assert_int_equal(slices->ops->expose(slices, 0, 1, ends->memory_fd, 8, bytes), -EINVAL);
    assert_int_equal(slices->ops->expose(slices, 0, 1, ends->memory_fd, 0, bytes + 1), -EINVAL);
    assert_int_equal(slices->ops->expose(slices, 0, 1, ends->memory_fd, 0, 0), -EINVAL);
    assert_int_equal(slices->ops->expose(slices, 0, 1, ends->memory_fd, -bytes, bytes), -EINVAL);
    assert_int_equal(is_not_here(ends, slices->count, 1), -EINVAL);
    int fd = memfd_create("shrinks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, MEMORY_BYTES), 0);
    assert_int_equal(slices->ops->expose(slices, 0, 1, fd, 0, bytes), -EPERM);
    close(fd);
}

/* The owner exposes as fast as possible, and no peer uses the slices. */
static void a_full_cable_is_tried_again_later(void **state)
{
    struct ends *ends = *state;
    uint64_t deadline_ns;
    uint64_t last = 0;
    int rc = 0;
    for (uint64_t i = 1; rc == 0 && i <= EXPOSURES_MAX; i++) {
        rc = expose(ends, (uint32_t)(i % 8), i, i % 8);
        last = rc == 0 ? i : last;
    }
    assert_true(rc == -EAGAIN || (strcmp(kind->name, "pex") == 0 && rc == 0)); /* has no queue */
    for (unsigned i = 0; is_not_here(ends, (uint32_t)(last % 8), last) != 0; i++) {
        assert_true(i < 1000);
        struct end *end = &ends->end[IMPORTER];
        end->config.driver->service(end->port, ends->now_ns, &deadline_ns);
    }
    assert_int_equal(expose(ends, 0, last + 1, 0), 0);
}

static int run_suite(const struct kind *of)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_ends_have_slices_of_one_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pipes_get_three_quarters_at_most, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_port_without_slices_has_no_table_of_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(stores_reach_the_piece_and_nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_mapped_before_it_is_exposed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_exposure_takes_the_place_of_the_last, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_concealed_is_not_mapped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_exposure_outlives_the_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_out_of_bounds_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_cable_is_tried_again_later, set_up, tear_down),
    };
    kind = of;
    return cmocka_run_group_tests_name(of->options[0], tests, NULL, NULL);
}

int main(void)
{
    int failed = 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(kinds); i++) {
        failed += run_suite(&kinds[i]);
    }
    return failed;
}
