/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Puts through slices of small windows between hosts, and events that revoke slices. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/types.h"
#include "tests/system/host_raw.h"

#define BYTES (8u << 20) /* larger than the window */
#define READ_WRITE (VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE)
#define TRIES 5000
#define PUTS 4000
#define NEAR_BYTES (96u << 10)

static const char *like = "pex";
static bool is_model; /* a pex port on the register model, not an emulated one */

/* --- two hosts, a segment at host 1, a remote of it at host 0 --------------------------------- */

struct pair {
    struct host_lab lab;
    struct via_attach *near, *owner;
    struct via_segment *segment;
    struct via_remote *remote;
    unsigned char *base;
    unsigned char *copy; /* the expected contents */
};

static void let_all_attach(struct via_host_options *options)
{
    struct via_error err;
    assert_int_equal(via_rights_add(&options->attach, "all", &err), 0);
}

static void start_hosts(struct pair *pair)
{
    static char options[64];
    snprintf(options, sizeof(options), ",like=%s,window=1MiB,seed=7", like);
    host_lab_init(&pair->lab, 2, false, true);
    pair->lab.options = options;
    pair->lab.model = is_model ? ",slices" : NULL;
    assert_int_equal(chmod(pair->lab.rundir, 0711), 0);
    host_lab_start(&pair->lab, 0, let_all_attach);
    host_lab_start(&pair->lab, 1, let_all_attach);
    host_lab_wait_routes(&pair->lab);
}

static void share(struct pair *pair)
{
    assert_int_equal(via_segment_new(pair->owner, BYTES, READ_WRITE, &pair->segment), 0);
    pair->base = via_segment_base(pair->segment);
    assert_int_equal(
        via_remote_open(pair->near, 1, via_segment_handle(pair->segment), BYTES, &pair->remote), 0);
    memset(pair->copy, 0, BYTES);
}

static void open_pair(struct pair *pair)
{
    *pair = (struct pair){0};
    start_hosts(pair);
    pair->near = host_lab_attach(&pair->lab, 0);
    pair->owner = host_lab_attach(&pair->lab, 1);
    pair->copy = malloc(BYTES);
    assert_non_null(pair->copy);
    share(pair);
}

static void close_pair(struct pair *pair)
{
    via_remote_close(pair->remote);
    via_segment_free(pair->segment);
    via_attach_close(pair->near);
    via_attach_close(pair->owner);
    host_lab_fini(&pair->lab);
    free(pair->copy);
}

static uint64_t of_link(struct pair *pair, unsigned host, const char *name)
{
    json_t *status = host_lab_status(&pair->lab, host);
    json_t *link = json_array_get(json_object_get(status, "links"), 0);
    uint64_t value = (uint64_t)json_integer_value(json_object_get(link, name));
    json_decref(status);
    return value;
}

static uint64_t puts_by_slices(struct pair *pair)
{
    return host_lab_counter(&pair->lab, 0, "slice_puts");
}

static void put(struct pair *pair, uint64_t off, const void *data, size_t bytes, unsigned flags)
{
    assert_int_equal(via_remote_put(pair->remote, off, data, bytes, flags), 0);
    memcpy(pair->copy + off, data, bytes);
}

static void put_word(struct pair *pair, uint64_t off, uint64_t word)
{
    put(pair, off, &word, sizeof(word), 0);
}

/* Puts words to this place until one is stored. */
static void until_stored(struct pair *pair, uint64_t off)
{
    for (uint64_t i = 0;; i++) {
        uint64_t before = puts_by_slices(pair);
        put_word(pair, off, i + 1);
        assert_int_equal(via_attach_quiet(pair->near), 0);
        if (puts_by_slices(pair) != before) {
            return;
        }
        assert_true(i < TRIES);
        poll(NULL, 0, 1);
    }
}

static void check(struct pair *pair)
{
    assert_int_equal(via_attach_quiet(pair->near), 0);
    assert_memory_equal(pair->base, pair->copy, BYTES);
}

/* --- puts without faults ---------------------------------------------------------------------- */

static void puts_are_stores(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair);
    assert_null(via_remote_direct(pair.remote));
    until_stored(&pair, 64);
    uint64_t before = puts_by_slices(&pair);
    for (uint64_t i = 0; i < 200; i++) {
        put_word(&pair, 8 * i, i + 77);
        /* The bytes have arrived, without any action of the owner. */
        assert_memory_equal(pair.base + 8 * i, pair.copy + 8 * i, 8);
    }
    assert_true(puts_by_slices(&pair) == before + 200);
    check(&pair);
    assert_true(of_link(&pair, 0, "slices") >= 16);
    assert_true(of_link(&pair, 0, "slices_open") >= 1);
    assert_true(of_link(&pair, 1, "exposed") >= 1);
    close_pair(&pair);
}

/* Most places are near the previous one, and most puts are short enough for slices. */
static void put_somewhere(struct pair *pair, struct via_rng *rng)
{
    static unsigned char data[40000];
    static uint64_t near;
    size_t most = via_rng_chance(rng, 1, 32) ? sizeof(data) : via_rng_chance(rng, 1, 2) ? 4096 : 64;
    size_t bytes = 1 + via_rng_below(rng, most);
    if (via_rng_chance(rng, 1, 100)) {
        near = via_rng_below(rng, BYTES - NEAR_BYTES);
    }
    uint64_t off = via_rng_chance(rng, 1, 20) ? via_rng_below(rng, BYTES - bytes)
                                              : near + via_rng_below(rng, NEAR_BYTES - bytes);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)via_rng_next(rng);
    }
    put(pair, off, data, bytes, via_rng_chance(rng, 1, 2) ? VIADUCT_PUT_LAST_WORD : 0);
}

static void segments_are_larger_than_the_window(void **state)
{
    struct pair pair;
    struct via_rng rng;
    (void)state;
    open_pair(&pair);
    via_rng_init(&rng, 11);
    for (unsigned i = 0; i < PUTS; i++) {
        put_somewhere(&pair, &rng);
    }
    /* Slices in use are not evicted, and the number of slices in use depends on the speed of the
     * machine. */
    for (unsigned i = 0; of_link(&pair, 0, "slices_evicted") == 0 || puts_by_slices(&pair) == 0;
         i++) {
        assert_true(i < TRIES);
        poll(NULL, 0, 6);
        for (unsigned k = 0; k < 100; k++) {
            put_somewhere(&pair, &rng);
        }
    }
    check(&pair);
    close_pair(&pair);
}

/* --- events that revoke slices ---------------------------------------------------------------- */

static void a_cut_takes_them_and_a_link_brings_them_back(void **state)
{
    struct pair pair;
    struct via_rng rng;
    (void)state;
    open_pair(&pair);
    via_rng_init(&rng, 12);
    for (unsigned round = 0; round < 4; round++) {
        until_stored(&pair, 8192 * round);
        host_lab_cut(&pair.lab, round % 2, 1 - round % 2, "cut");
        host_lab_wait_hops(&pair.lab, 0, 1, -1);
        assert_int_equal(of_link(&pair, 0, "slices_open"), 0);
        uint64_t before = puts_by_slices(&pair);
        put_word(&pair, 8192 * round, 5); /* the put waits in the pipe for the link */
        assert_true(puts_by_slices(&pair) == before);
        host_lab_cut(&pair.lab, round % 2, 1 - round % 2, "mend");
        for (unsigned i = 0; i < 100; i++) {
            put_somewhere(&pair, &rng);
        }
        check(&pair);
    }
    close_pair(&pair);
}

struct flapper {
    struct pair *pair;
    _Atomic bool end;
};

static void *flap(void *argument)
{
    struct flapper *flapper = argument;
    while (!flapper->end) {
        host_lab_cut(&flapper->pair->lab, 0, 1, "cut");
        host_lab_cut(&flapper->pair->lab, 1, 0, "mend");
        host_lab_cut(&flapper->pair->lab, 0, 1, "mend");
        poll(NULL, 0, 20);
    }
    return NULL;
}

static void flaps_lose_nothing(void **state)
{
    struct pair pair;
    struct via_rng rng;
    pthread_t thread;
    (void)state;
    open_pair(&pair);
    struct flapper flapper = {.pair = &pair};
    via_rng_init(&rng, 13);
    until_stored(&pair, 0);
    assert_int_equal(pthread_create(&thread, NULL, flap, &flapper), 0);
    for (unsigned i = 0; i < PUTS; i++) {
        put_somewhere(&pair, &rng);
    }
    flapper.end = true;
    pthread_join(thread, NULL);
    check(&pair);
    close_pair(&pair);
}

static bool put_fails(void *ctx)
{
    uint64_t word = 1;
    return via_remote_put(ctx, 0, &word, 8, 0) != 0;
}

static void freed_memory_is_lost(void **state)
{
    struct pair pair;
    uint64_t word = 1;
    (void)state;
    open_pair(&pair);
    for (unsigned i = 0; i < 20; i++) {
        until_stored(&pair, 0);
        via_segment_free(pair.segment);
        host_lab_wait(put_fails, pair.remote, "puts into freed memory to fail");
        assert_int_equal(via_remote_put(pair.remote, 0, &word, 8, 0), -ECONNRESET);
        assert_non_null(strstr(via_error_text(), "its owner has ended"));
        (void)via_attach_quiet(pair.near);
        via_remote_close(pair.remote);
        share(&pair);
    }
    close_pair(&pair);
}

/* A process with a segment there, until it is killed. */
static pid_t be_owner(struct host_lab *lab, uint64_t *ret_handle)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct via_segment *segment;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct via_attach *attach = host_lab_attach(lab, 1);
        if (via_segment_new(attach, BYTES, READ_WRITE, &segment) == 0) {
            uint64_t handle = via_segment_handle(segment);
            (void)!write(fds[1], &handle, sizeof(handle));
        }
        for (;;) {
            pause();
        }
    }
    assert_int_equal(read(fds[0], ret_handle, sizeof(*ret_handle)), sizeof(*ret_handle));
    close(fds[0]);
    close(fds[1]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void spawn_hosts(struct pair *pair)
{
    static char words[64];
    snprintf(words, sizeof(words), ":like=%s:window=1048576", like);
    *pair = (struct pair){0};
    host_lab_init(&pair->lab, 2, false, true);
    pair->lab.like = words;
    host_lab_spawn(&pair->lab, 0, NULL);
    host_lab_spawn(&pair->lab, 1, NULL);
    host_lab_wait_routes(&pair->lab);
    pair->copy = malloc(BYTES);
    assert_non_null(pair->copy);
}

static void a_dead_owners_memory_is_lost(void **state)
{
    struct pair pair;
    uint64_t handle;
    (void)state;
    spawn_hosts(&pair);
    for (unsigned i = 0; i < 5; i++) {
        pid_t pid = be_owner(&pair.lab, &handle);
        pair.near = host_lab_attach(&pair.lab, 0);
        assert_int_equal(via_remote_open(pair.near, 1, handle, BYTES, &pair.remote), 0);
        until_stored(&pair, 0);
        end(pid);
        host_lab_wait(put_fails, pair.remote, "puts into a dead process's memory to fail");
        assert_int_equal(via_remote_put(pair.remote, 0, &i, 4, 0), -ECONNRESET);
        via_remote_close(pair.remote);
        via_attach_close(pair.near);
    }
    assert_int_equal(of_link(&pair, 0, "slices_open"), 0);
    host_lab_fini(&pair.lab);
    free(pair.copy);
}

/* Puts words to every page of a segment repeatedly. */
static void importer(struct host_lab *lab, uint64_t handle, unsigned seed)
{
    struct via_remote *remote;
    struct via_rng rng;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct via_attach *attach = host_lab_attach(lab, 0);
    via_rng_init(&rng, seed);
    int rc = via_remote_open(attach, 1, handle, BYTES, &remote);
    while (rc == 0) {
        uint64_t word = via_rng_next(&rng);
        rc = via_remote_put(remote, 8 * via_rng_below(&rng, BYTES / 8), &word, 8, 0);
    }
    _exit(1);
}

static void importers_may_die_at_any_time(void **state)
{
    struct pair pair;
    uint64_t handle;
    (void)state;
    spawn_hosts(&pair);
    pid_t owner = be_owner(&pair.lab, &handle);
    for (unsigned i = 0; i < 20; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            importer(&pair.lab, handle, i);
        }
        poll(NULL, 0, 10 + (int)i);
        end(pid);
    }
    pair.near = host_lab_attach(&pair.lab, 0);
    assert_int_equal(via_remote_open(pair.near, 1, handle, BYTES, &pair.remote), 0);
    until_stored(&pair, BYTES - 8);
    via_remote_close(pair.remote);
    via_attach_close(pair.near);
    end(owner);
    host_lab_fini(&pair.lab);
    free(pair.copy);
}

/* The dead host restarts; its processes attach again. */
static void a_host_dies(unsigned host)
{
    struct pair pair;
    spawn_hosts(&pair);
    for (unsigned i = 0; i < 3; i++) {
        pair.near = host_lab_attach(&pair.lab, 0);
        pair.owner = host_lab_attach(&pair.lab, 1);
        share(&pair);
        until_stored(&pair, 4096 * i);
        host_lab_kill(&pair.lab, host, SIGKILL);
        if (host == 1) {
            host_lab_wait_hops(&pair.lab, 0, 1, -1);
            uint64_t before = puts_by_slices(&pair);
            uint64_t word = 3;
            int rc = via_remote_put(pair.remote, 0, &word, 8, 0);
            assert_true(rc == 0 || rc == -ECONNRESET); /* the process may have noticed the death */
            assert_true(puts_by_slices(&pair) == before);
        } else {
            host_lab_wait(put_fails, pair.remote, "puts of a process whose host has died to fail");
        }
        host_lab_spawn(&pair.lab, host, NULL);
        host_lab_wait_routes(&pair.lab);
        via_remote_close(pair.remote);
        via_segment_free(pair.segment);
        via_attach_close(pair.near);
        via_attach_close(pair.owner);
    }
    host_lab_fini(&pair.lab);
    free(pair.copy);
}

static void the_owners_host_dies(void **state)
{
    (void)state;
    a_host_dies(1);
}

static void the_importers_host_dies(void **state)
{
    (void)state;
    a_host_dies(0);
}

/* --- several processes ------------------------------------------------------------------------ */

#define RIVALS 2u

struct rival {
    struct pair *pair;
    unsigned index;
};

#define HOT_BYTES (64u << 10)
#define HOT_PUTS 1000u

/* A word that only this rival writes. The words are usually in one part of the segment, which
 * changes sometimes. */
static uint64_t pick(const struct rival *rival, unsigned i, struct via_rng *rng)
{
    bool hot = !via_rng_chance(rng, 1, 50);
    uint64_t from = hot ? (i / HOT_PUTS * RIVALS + rival->index) * 16 * HOT_BYTES % BYTES : 0;
    uint64_t words = (hot ? HOT_BYTES : BYTES) / 8;
    return from + 8 * (RIVALS * via_rng_below(rng, words / RIVALS) + rival->index);
}

/* Each rival knows the current contents of its words. */
static void *compete(void *argument)
{
    const struct rival *rival = argument;
    struct via_attach *attach = host_lab_attach(&rival->pair->lab, 0);
    struct via_remote *remote;
    struct via_rng rng;
    via_rng_init(&rng, 20 + rival->index);
    assert_int_equal(
        via_remote_open(attach, 1, via_segment_handle(rival->pair->segment), BYTES, &remote), 0);
    for (unsigned i = 0; i < 2 * PUTS; i++) {
        uint64_t off = pick(rival, i, &rng);
        uint64_t word = via_rng_next(&rng);
        assert_int_equal(via_remote_put(remote, off, &word, 8, 0), 0);
        memcpy(rival->pair->copy + off, &word, 8);
    }
    assert_int_equal(via_attach_quiet(attach), 0);
    via_remote_close(remote);
    via_attach_close(attach);
    return NULL;
}

static void run_rivals(struct pair *pair)
{
    pthread_t threads[RIVALS];
    struct rival rivals[RIVALS];
    for (unsigned i = 0; i < RIVALS; i++) {
        rivals[i] = (struct rival){pair, i};
        assert_int_equal(pthread_create(&threads[i], NULL, compete, &rivals[i]), 0);
    }
    for (unsigned i = 0; i < RIVALS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void processes_compete(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair);
    unsigned rounds = 0;
    do {
        assert_true(rounds++ < 50);
        run_rivals(&pair);
        check(&pair);
    } while (puts_by_slices(&pair) <= PUTS / 10 || of_link(&pair, 0, "slices_evicted") == 0);
    close_pair(&pair);
}

/* --- rights ----------------------------------------------------------------------------------- */

static int send_request(struct host_raw *raw, unsigned host, uint64_t handle, uint64_t off,
                        struct via_attach_slice *ret_slice)
{
    struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_SLICE);
    struct via_attach_answer answer;
    request.host = (uint16_t)host;
    request.handle = handle;
    request.bytes = off;
    int rc = host_raw_request_wait(raw, &request, -1, &answer);
    memcpy(ret_slice, answer.value, sizeof(*ret_slice));
    return rc;
}

static void only_what_is_there_and_may_be_written(void **state)
{
    struct pair pair;
    struct host_raw raw;
    struct via_attach_slice slice;
    struct via_segment *others[2];
    (void)state;
    open_pair(&pair);
    uint64_t handle = via_segment_handle(pair.segment);
    assert_int_equal(via_segment_new(pair.owner, BYTES, VIADUCT_SEGMENT_READ, &others[0]), 0);
    assert_int_equal(via_segment_new(pair.owner, BYTES, VIADUCT_SEGMENT_WRITE, &others[1]), 0);
    host_raw_open(&raw, &pair.lab, 0);
    assert_int_equal(send_request(&raw, 1, handle ^ 1ull << 40, 0, &slice), -EACCES);
    assert_int_equal(send_request(&raw, 1, handle, BYTES, &slice), -EXDEV);
    assert_int_equal(send_request(&raw, 1, handle, UINT64_MAX, &slice), -EXDEV);
    assert_int_equal(send_request(&raw, 0, handle, 0, &slice), -EXDEV);
    assert_int_equal(send_request(&raw, 15, handle, 0, &slice), -EXDEV);
    assert_int_equal(send_request(&raw, 65535, handle, 0, &slice), -EXDEV);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(send_request(&raw, 1, via_segment_handle(others[i]), 0, &slice), -EXDEV);
        via_segment_free(others[i]);
    }
    assert_int_equal(send_request(&raw, 1, handle, BYTES - 1, &slice), 0);
    assert_int_equal(slice.off + slice.bytes, BYTES);
    assert_true(raw.status->slices[slice.word] == slice.life);
    uint64_t life = slice.life;
    assert_int_equal(send_request(&raw, 1, handle, BYTES - 8, &slice), 0); /* the same one */
    assert_true(slice.life == life);
    host_raw_close(&raw);
    close_pair(&pair);
}

static struct via_slice_busy *busy_words(const struct host_raw *raw)
{
    return (struct via_slice_busy *)(void *)(raw->memory + raw->welcome.channels_count *
                                                               (size_t)raw->welcome.area_bytes);
}

/* A process that keeps a slice busy forever does not prevent others from getting slices. */
static void a_process_that_never_leaves_loses_its_slices(void **state)
{
    struct pair pair;
    struct host_raw raw;
    struct via_attach_slice slice;
    (void)state;
    open_pair(&pair);
    host_raw_open(&raw, &pair.lab, 0);
    uint64_t handle = via_segment_handle(pair.segment);
    uint64_t count = of_link(&pair, 0, "slices");
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(send_request(&raw, 1, handle, i * 8192, &slice), 0);
        busy_words(&raw)[slice.busy].word = VIA_SLICE_BUSY_ENTER;
    }
    assert_int_equal(of_link(&pair, 0, "slices_open"), count);
    /* All processes here have one uid, and all slices are in use: other processes put by frames
     * until this process has ended. */
    put_word(&pair, 0, 1);
    host_raw_close(&raw);
    for (uint64_t i = 0; i < count; i++) {
        until_stored(&pair, BYTES - 8 - 8192 * i);
    }
    check(&pair);
    close_pair(&pair);
}

/* Requests all slices repeatedly, stays in a burst in each, and reports when it has had all of
 * them. */
static _Noreturn void grab_as_nobody(struct pair *pair, uint64_t handle, uint64_t count,
                                     int report_to)
{
    struct host_raw raw;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setgid(65534) != 0 || setuid(65534) != 0) {
        _exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    host_raw_open(&raw, &pair->lab, 0);
    for (uint64_t i = 0;; i++) {
        struct via_attach_slice slice;
        if (send_request(&raw, 1, handle, i % count * 8192, &slice) == 0) {
            busy_words(&raw)[slice.busy].word = VIA_SLICE_BUSY_ENTER;
        }
        if (i == count) {
            (void)!write(report_to, "+", 1);
        }
    }
}

/* Processes of other users nevertheless get their share at once, and no put is lost. */
static void another_user_that_never_leaves_keeps_its_share_only(void **state)
{
    struct pair pair;
    int report_to[2];
    char byte;
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    open_pair(&pair);
    uint64_t handle = via_segment_handle(pair.segment);
    uint64_t count = of_link(&pair, 0, "slices");
    assert_int_equal(pipe(report_to), 0);
    pid_t pid = fork();
    if (pid == 0) {
        grab_as_nobody(&pair, handle, count, report_to[1]);
    }
    assert_int_equal(read(report_to[0], &byte, 1), 1);
    for (uint64_t i = 0; i < 8; i++) {
        until_stored(&pair, BYTES - 8 - 64 * 1024 * i);
    }
    check(&pair);
    end(pid);
    close(report_to[0]);
    close(report_to[1]);
    close_pair(&pair);
}

static int run_suite(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_are_stores),
        cmocka_unit_test(segments_are_larger_than_the_window),
        cmocka_unit_test(a_cut_takes_them_and_a_link_brings_them_back),
        cmocka_unit_test(flaps_lose_nothing),
        cmocka_unit_test(freed_memory_is_lost),
        cmocka_unit_test(a_dead_owners_memory_is_lost),
        cmocka_unit_test(importers_may_die_at_any_time),
        cmocka_unit_test(the_owners_host_dies),
        cmocka_unit_test(the_importers_host_dies),
        cmocka_unit_test(processes_compete),
        cmocka_unit_test(only_what_is_there_and_may_be_written),
        cmocka_unit_test(a_process_that_never_leaves_loses_its_slices),
        cmocka_unit_test(another_user_that_never_leaves_keeps_its_share_only),
    };
    return cmocka_run_group_tests_name(like, tests, NULL, NULL);
}

/* Puts as another user until a signal ends the process. 0: all puts arrived. */
static int put_as_nobody(struct pair *pair, uint64_t handle)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = pair->lab.rundir, .host = 0};
    struct via_attach *attach;
    struct via_remote *remote;
    int rc = 0;
    if (setgid(65534) != 0 || setuid(65534) != 0 || via_attach_open(&options, &attach) != 0 ||
        via_remote_open(attach, 1, handle, BYTES, &remote) != 0) {
        return 1;
    }
    for (uint64_t i = 0; i < 200 && rc == 0; i++) {
        rc = via_remote_put(remote, 8, &i, sizeof(i), 0);
        rc = rc == 0 ? via_attach_quiet(attach) : rc;
    }
    return rc == 0 ? 0 : 2;
}

/* A mapping of a slice gives access to the whole BAR: another user gets none, and puts by
 * frames. */
static void only_the_hosts_own_user_has_slices_of_hardware(void **state)
{
    struct pair pair = {0};
    int status;
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    host_lab_init(&pair.lab, 2, false, true);
    pair.lab.model = ",slices";
    assert_int_equal(chmod(pair.lab.rundir, 0711), 0);
    for (unsigned host = 0; host < 2; host++) {
        host_lab_start(&pair.lab, host, let_all_attach);
    }
    host_lab_wait_routes(&pair.lab);
    pair.near = host_lab_attach(&pair.lab, 0);
    pair.owner = host_lab_attach(&pair.lab, 1);
    pair.copy = malloc(BYTES);
    share(&pair);
    uint64_t handle = via_segment_handle(pair.segment);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(put_as_nobody(&pair, handle));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uint64_t word;
    memcpy(&word, pair.base + 8, sizeof(word));
    assert_int_equal(word, 199);
    memcpy(pair.copy + 8, &word, sizeof(word));
    assert_int_equal(puts_by_slices(&pair), 0);
    until_stored(&pair, 64);
    check(&pair);
    close_pair(&pair);
}

/* Hosts of the model are in one process, so none is killed. */
static int run_model_suite(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_are_stores),
        cmocka_unit_test(segments_are_larger_than_the_window),
        cmocka_unit_test(a_cut_takes_them_and_a_link_brings_them_back),
        cmocka_unit_test(flaps_lose_nothing),
        cmocka_unit_test(freed_memory_is_lost),
        cmocka_unit_test(a_dead_owners_memory_is_lost),
        cmocka_unit_test(importers_may_die_at_any_time),
        cmocka_unit_test(processes_compete),
        cmocka_unit_test(only_what_is_there_and_may_be_written),
        cmocka_unit_test(only_the_hosts_own_user_has_slices_of_hardware),
    };
    is_model = true;
    return cmocka_run_group_tests_name("pex on the register model", tests, NULL, NULL);
}

int main(void)
{
    int failed = run_suite();
    like = "ivshmem";
    failed += run_suite();
    return failed + run_model_suite();
}
