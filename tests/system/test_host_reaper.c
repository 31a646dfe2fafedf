/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * To free some GiB takes the kernel a large part of a second, and a link goes down after 80 ms
 * without a heartbeat. Whichever way the last reference to such memory reaches the daemon, the
 * links of its host stay up.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/rundir.h"
#include "tests/system/host_raw.h"

#define SKIPPED 77
#define BYTES (UINT64_C(4) << 30)
#define HEARTBEAT_NS (25 * VIA_MSEC_NS)
/* A thread that oversleeps by more than LATE_NS_MAX proves that the machine is too busy for the
 * test. */
#define LATE_NS_MAX (100 * VIA_MSEC_NS)
#define TRIES_MAX 3u
#define SPARE_BYTES (UINT64_C(1) << 30)

static bool has_memory(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, "MemAvailable: %llu kB", &kib) != 1) {
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib << 10 >= BYTES + SPARE_BYTES;
}

static int set_up(void **state)
{
    struct host_lab *lab = calloc(1, sizeof(*lab));
    host_lab_init(lab, 2, false, false);
    /* Longer than a thread waits for a CPU on a busy machine, shorter than the time to free the
     * memory. */
    const char *const extra[] = {"--dead-ms", "400", NULL};
    host_lab_spawn(lab, 0, extra);
    host_lab_spawn(lab, 1, extra);
    host_lab_wait_routes(lab);
    *state = lab;
    return 0;
}

/* The number of link-downs of both hosts. */
static uint64_t downs(struct host_lab *lab)
{
    uint64_t count = 0;
    for (unsigned host = 0; host < 2; host++) {
        json_t *status = host_lab_status(lab, host);
        json_t *link;
        size_t i;
        json_array_foreach(json_object_get(status, "links"), i, link)
        {
            count += (uint64_t)json_integer_value(json_object_get(link, "downs"));
        }
        json_decref(status);
    }
    return count;
}

/* Heartbeats that host 1 has received from host 0 since their link came up. */
static uint64_t heartbeats(struct host_lab *lab)
{
    json_t *status = host_lab_status(lab, 1);
    json_t *link = json_array_get(json_object_get(status, "links"), 0);
    uint64_t count = (uint64_t)json_integer_value(json_object_get(link, "heartbeats"));
    json_decref(status);
    return count;
}

/* A memfd with all its pages. */
static int big_memory(void)
{
    int fd = memfd_create("viaduct-test-big", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || fallocate(fd, 0, 0, (off_t)BYTES) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        abort();
    }
    return fd;
}

static unsigned long long shared_kib(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "Shmem: %llu kB", &kib) != 1) {
    }
    fclose(file);
    return kib;
}

static bool is_freed(void *ctx)
{
    return shared_kib() < *(const unsigned long long *)ctx;
}

/* --- detects a machine that is too busy for the test ------------------------------------------ */

struct canary {
    pthread_t thread;
    _Atomic bool ending;
    uint64_t late_ns_max; /* the longest delay of a short sleep */
};

static void *watch(void *argument)
{
    struct canary *canary = argument;
    const struct timespec nap = {.tv_nsec = (long)(5 * VIA_MSEC_NS)};
    while (!atomic_load_explicit(&canary->ending, memory_order_relaxed)) {
        uint64_t begin_ns = host_lab_now_ns();
        nanosleep(&nap, NULL);
        canary->late_ns_max = via_max(canary->late_ns_max, host_lab_now_ns() - begin_ns);
    }
    return NULL;
}

static void canary_start(struct canary *canary)
{
    *canary = (struct canary){0};
    assert_int_equal(pthread_create(&canary->thread, NULL, watch, canary), 0);
}

static bool canary_end(struct canary *canary)
{
    atomic_store_explicit(&canary->ending, true, memory_order_relaxed);
    pthread_join(canary->thread, NULL);
    return canary->late_ns_max < LATE_NS_MAX;
}

/* --- the test --------------------------------------------------------------------------------- */

struct freeing {
    uint64_t downs, beats, took_ns;
};

static void free_memory(struct host_lab *lab, void (*give)(struct host_lab *lab, void *ctx),
                        struct freeing *ret_freeing)
{
    unsigned long long half_kib = shared_kib() + (BYTES >> 11);
    uint64_t before = downs(lab);
    pid_t pid = host_lab_fork(give, lab, NULL);
    uint64_t begin_ns = host_lab_now_ns();
    uint64_t beats = heartbeats(lab);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    host_lab_wait(is_freed, &half_kib, "the memory to be freed");
    ret_freeing->beats = heartbeats(lab) - beats;
    ret_freeing->took_ns = host_lab_now_ns() - begin_ns;
    poll(NULL, 0, 500); /* by then a link that went down is up again, and was counted */
    ret_freeing->downs = downs(lab) - before;
}

static bool is_good(const struct freeing *freeing)
{
    /* The daemon sends a heartbeat every 25 ms, on a busy machine fewer. Without the reaper it
     * sends one or none. */
    return freeing->downs == 0 && freeing->beats >= freeing->took_ns / HEARTBEAT_NS / 4;
}

static void links_stay_up(struct host_lab *lab, void (*give)(struct host_lab *lab, void *ctx))
{
    struct freeing freeing = {0};
    struct canary canary;
    bool good = false;
    bool counts = false;
    if (!has_memory()) {
        skip();
    }
    for (unsigned i = 0; i < TRIES_MAX && !good && !counts; i++) {
        canary_start(&canary);
        free_memory(lab, give, &freeing);
        counts = canary_end(&canary);
        good = is_good(&freeing);
        print_message("%llu heartbeats in %llu ms while memory was freed, %llu links lost%s\n",
                      (unsigned long long)freeing.beats,
                      (unsigned long long)(freeing.took_ns / VIA_MSEC_NS),
                      (unsigned long long)freeing.downs, counts ? "" : " (the machine is busy)");
    }
    if (!good && !counts) {
        skip();
    }
    assert_true(good);
}

static struct via_attach_request add_request(struct host_raw *raw)
{
    struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_SEGMENT_ADD);
    request.bytes = BYTES;
    request.access = VIA_SEGMENT_READ | VIA_SEGMENT_WRITE;
    return request;
}

static uint64_t add_big(struct host_raw *raw)
{
    struct via_attach_answer answer;
    struct via_attach_request request = add_request(raw);
    int fd = big_memory();
    if (host_raw_request_wait(raw, &request, fd, &answer) != 0) {
        abort();
    }
    close(fd);
    return answer.handle;
}

/* --- ways in which the daemon gets the last reference ----------------------------------------- */

static void give_segment(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct host_raw raw;
    host_raw_open(&raw, lab, 0);
    add_big(&raw);
}

static void give_segment_and_remove(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct host_raw raw;
    host_raw_open(&raw, lab, 0);
    struct via_attach_request request = host_raw_request(&raw, VIA_ATTACH_SEGMENT_REMOVE);
    request.handle = add_big(&raw);
    if (host_raw_request_wait(&raw, &request, -1, NULL) != 0) {
        abort();
    }
}

/* The only reference is in a message under way. */
static void send_away(int fd, const void *message, size_t bytes, int memory_fd)
{
    if (host_raw_send(fd, message, bytes, &memory_fd, 1) != 0) {
        abort();
    }
    close(memory_fd);
}

/* Keeps the daemon busy until the child has closed its own descriptor. */
static void send_some(struct host_raw *raw)
{
    for (unsigned i = 0; i < 15; i++) {
        struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_SEGMENT_REMOVE);
        if (host_raw_send(raw->fd, &request, sizeof(request), NULL, 0) != 0) {
            abort();
        }
    }
}

/* The host refuses the request and the memory in it. */
static void give_refused(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct host_raw raw;
    host_raw_open(&raw, lab, 0);
    struct via_attach_request request = add_request(&raw);
    request.bytes = 0;
    int memory_fd = big_memory();
    send_some(&raw);
    send_away(raw.fd, &request, sizeof(request), memory_fd);
}

/* Sends more descriptors than a request may have. */
static void give_too_many(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct host_raw raw;
    host_raw_open(&raw, lab, 0);
    struct via_attach_request request = add_request(&raw);
    int fds[HOST_RAW_FDS_MAX];
    for (unsigned i = 0; i + 1 < HOST_RAW_FDS_MAX; i++) {
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    fds[HOST_RAW_FDS_MAX - 1] = big_memory();
    host_raw_send(raw.fd, &request, sizeof(request), fds, HOST_RAW_FDS_MAX);
    close(fds[HOST_RAW_FDS_MAX - 1]);
}

/* The reference is left in the socket of a process that the daemon detaches before it has read the
 * request. */
static void give_unread(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct host_raw raw;
    host_raw_open(&raw, lab, 0);
    struct via_attach_request request = add_request(&raw);
    int fd = big_memory();
    send_some(&raw);
    host_raw_send(raw.fd, "nonsense", 8, NULL, 0);
    host_raw_send(raw.fd, &request, sizeof(request), &fd, 1);
    close(fd);
}

/* Sends it to the control socket, which takes no descriptors at all. */
static void give_to_control(struct host_lab *lab, void *ctx)
{
    (void)ctx;
    struct via_rundir_path path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (via_rundir_control_path(lab->rundir, 0, &path, NULL) != 0) {
        abort();
    }
    memcpy(address.sun_path, path.text, sizeof(path.text));
    int memory_fd = big_memory();
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        abort();
    }
    send_away(fd, "{\"cmd\":", 7, memory_fd);
}

#define TEST(name, give)             \
    static void name(void **state)   \
    {                                \
        links_stay_up(*state, give); \
    }
TEST(while_a_process_with_a_large_segment_is_killed, give_segment)
TEST(while_a_large_segment_is_freed, give_segment_and_remove)
TEST(while_what_came_with_a_refused_request_is_freed, give_refused)
TEST(while_what_came_beside_other_descriptors_is_freed, give_too_many)
TEST(while_what_nobody_has_read_is_freed, give_unread)
TEST(while_what_came_to_the_control_socket_is_freed, give_to_control)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_a_process_with_a_large_segment_is_killed),
        cmocka_unit_test(while_a_large_segment_is_freed),
        cmocka_unit_test(while_what_came_with_a_refused_request_is_freed),
        cmocka_unit_test(while_what_came_beside_other_descriptors_is_freed),
        cmocka_unit_test(while_what_nobody_has_read_is_freed),
        cmocka_unit_test(while_what_came_to_the_control_socket_is_freed),
    };
    if (!has_memory()) {
        printf("skipped: less than %llu MiB of memory are available\n",
               (unsigned long long)(BYTES + SPARE_BYTES) >> 20);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, set_up, host_lab_tear_down);
}
