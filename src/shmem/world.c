/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Creates and releases the state of a PE. init.c calls these functions. */
#include "shmem/world.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/client.h"
#include "shmem/data.h"
#include "shmem/grow.h"
#include "shmem/pmi.h"
#include "shmem/world_make.h"

struct via_hot via_hot;
struct via_world via_world = {.lock = PTHREAD_MUTEX_INITIALIZER, .life_fd = -1, .call_fd = -1};

/* --- messages --------------------------------------------------------------------------------- */

static void print(const char *format, va_list args) VIA_PRINTF(1, 0);

static void print(const char *format, va_list args)
{
    char text[1024];
    int used = 0;

    if (via_world.me)
        used = snprintf(text, sizeof(text), "viaduct-shmem: PE %d", via_hot.my_pe);
    else
        used = snprintf(text, sizeof(text), "viaduct-shmem");
    if (via_world.me && via_world.job->fabric)
        used +=
            snprintf(text + used, sizeof(text) - (size_t)used, " on host %u", via_world.me->host);
    used += snprintf(text + used, sizeof(text) - (size_t)used, ": ");
    vsnprintf(text + used, sizeof(text) - (size_t)used - 1, format, args);
    /* One write, so that lines of several PEs do not mix. */
    size_t bytes = strlen(text);
    text[bytes++] = '\n';
    if (write(STDERR_FILENO, text, bytes) < 0)
        return;
}

static void VIA_PRINTF(1, 0) __attribute__((noreturn)) fatal(const char *format, va_list args)
{
    fflush(stdout);
    print(format, args);
    _exit(1);
}

void via_fatal(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fatal(format, args);
    va_end(args);
}

void via_fatal_uninitialized(const char *call)
{
    if (via_world.is_child)
        via_fatal("%s: this process was forked by a PE and is not a PE", call);
    via_fatal("%s: the library is not initialized: call shmem_init first", call);
}

void via_fatal_cut_off(const char *format, ...)
{
    va_list args;

    /* Pairs with the acquire in via_launch_state_of. */
    atomic_store_explicit(&via_world.me->state, VIA_JOB_CUT_OFF, memory_order_release);
    va_start(args, format);
    fatal(format, args);
    va_end(args);
}

void via_debug(const char *format, ...)
{
    va_list args;

    if (!getenv("SHMEM_DEBUG") && !getenv("SMA_DEBUG"))
        return;
    va_start(args, format);
    print(format, args);
    va_end(args);
}

/* --- the job: inherited from a launcher, or made -------------------------------------------- */

/* True if `text` is `count` numbers and nothing else. Not by sscanf(), which costs a start of a
 * program five page faults. */
static bool read_numbers(const char *text, int *ret_numbers, int count)
{
    char *end;

    for (int i = 0; i < count; i++, text = end) {
        ret_numbers[i] = (int)strtol(text, &end, 10);
        if (end == text)
            return false;
    }
    return *text == '\0';
}

static int inherit_job(const char *text, struct via_error *err)
{
    int numbers[5];

    if (!read_numbers(text, numbers, 5))
        return via_error_set(err, -EPROTO, "%s=\"%s\": not from oshrun", VIA_JOB_ENV, text);
    int job_fd = numbers[0], node_fd = numbers[1], life_fd = numbers[2], call_fd = numbers[3];
    int number = numbers[4];
    int result = via_job_map(job_fd, &via_world.job, err);
    if (result == 0)
        result = via_node_map(node_fd, &via_world.node, err);
    if (result < 0)
        return via_error_prefix(err, "%s=\"%s\": ", VIA_JOB_ENV, text);
    if (number < 0 || (uint32_t)number >= via_world.job->pes_count)
        return via_error_set(err, -EPROTO, "%s: PE %d of %u", VIA_JOB_ENV, number,
                             via_world.job->pes_count);
    via_world.life_fd = life_fd;
    via_world.call_fd = call_fd;
    via_hot.my_pe = number;
    /* Children of this program are no PEs. */
    unsetenv(VIA_JOB_ENV);
    for (int i = 0; i < 4; i++)
        fcntl((int[]){job_fd, node_fd, life_fd, call_fd}[i], F_SETFD, FD_CLOEXEC);
    return 0;
}

static int make_own_job(struct via_error *err)
{
    struct via_job_spec spec = {.pes_count = 1, .nodes_count = 1, .cores = via_wait_cores()};

    int result = via_job_heap_bytes(&spec.heap_bytes, err);
    if (result < 0)
        return result;
    spec.heap_bytes += VIA_INTERNAL_BYTES;
    result = via_job_create(&spec, &via_world.own_files, err);
    if (result < 0)
        return result;
    via_world.own_job = true;
    via_world.job = via_world.own_files.job;
    via_hot.my_pe = 0;
    return via_node_map(via_world.own_files.node_fds[0], &via_world.node, err);
}

/* Joins the job of a launcher other than oshrun; without any launcher makes a job of one PE. */
static int join_or_make_job(struct via_error *err)
{
    static struct via_pmi pmi;
    struct via_pmi_job job;

    int result = via_pmi_find(&pmi, err);
    if (result < 0 || !pmi.ops)
        return result < 0 ? result : make_own_job(err);
    result = via_pmi_join(&pmi, &job, err);
    if (result < 0)
        return result;
    via_world.job = job.job;
    via_world.node = job.node;
    via_world.life_fd = job.life_fd;
    via_world.call_fd = job.call_fd;
    via_hot.my_pe = (int)job.number;
    return 0;
}

struct fd_range {
    int first, end;
};

/* Each system call of older kernels handles one descriptor; close_range() (5.11) handles many. */
static void close_range_on_exec(struct fd_range range)
{
    if (range.first >= range.end || syscall(SYS_close_range, (unsigned)range.first,
                                            (unsigned)range.end - 1, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    for (int fd = range.first; fd < range.end; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void add_fd(struct fd_range *range, int fd)
{
    if (fd != range->end) {
        close_range_on_exec(*range);
        range->first = fd;
    }
    range->end = fd + 1;
}

/* The memory of the PEs of this host. Its descriptors are usually consecutive. */
static void close_on_exec(void)
{
    const struct via_job *job = via_world.job;
    struct fd_range range = {0};

    for (uint32_t i = 0; i < job->pes_count; i++) {
        if (job->pes[i].node != via_world.me->node)
            continue;
        add_fd(&range, job->pes[i].heap_fd);
        add_fd(&range, job->pes[i].data_fd);
    }
    close_range_on_exec(range);
}

int via_world_find_job(struct via_error *err)
{
    const char *text = getenv(VIA_JOB_ENV);
    int result = 0;

    /* If the library is initialized again after the last finalize, the job is still open. */
    if (!via_world.job)
        result = text ? inherit_job(text, err) : join_or_make_job(err);
    if (result < 0)
        return result;
    const struct via_job *job = via_world.job;
    via_world.me = &via_world.job->pes[via_hot.my_pe];
    if (via_world.me->node >= job->nodes_count || via_world.me->node != via_world.node->node ||
        via_world.me->local >= via_world.node->locals_count)
        return via_error_set(err, -EPROTO, "job block: PE %d is on node %u of %u", via_hot.my_pe,
                             via_world.me->node, job->nodes_count);
    if (!via_world.own_job)
        close_on_exec();
    return 0;
}

/* --- memory ----------------------------------------------------------------------------------- */

int via_world_make_peers(struct via_error *err)
{
    uint32_t count = via_world.job->pes_count;

    via_world.peers = calloc(count, sizeof(*via_world.peers));
    via_hot.peer[VIA_REGION_HEAP] = calloc(count, sizeof(*via_hot.peer[0]));
    via_hot.peer[VIA_REGION_DATA] = calloc(count, sizeof(*via_hot.peer[0]));
    if (!via_world.peers || !via_hot.peer[VIA_REGION_HEAP] || !via_hot.peer[VIA_REGION_DATA])
        return via_error_set(err, -ENOMEM, "%u PEs: out of memory", count);
    for (uint32_t i = 0; i < count; i++) {
        via_world.peers[i].host = via_world.job->pes[i].host;
        via_world.peers[i].node = via_world.job->pes[i].node;
    }
    via_hot.n_pes = (int)count;
    return 0;
}

/* Reserves address space for all heaps of this host, each to grow up to `room`. */
static int reserve_addresses(uint64_t room)
{
    /* At least VIA_HEAP_ALIGN between two heaps stays unmapped: an overrun of one must not write
     * into the next. */
    uint64_t stride = via_align_up(room, VIA_HEAP_ALIGN) + VIA_HEAP_ALIGN;

    via_world.map_bytes = stride * via_world.node->locals_count + 2 * VIA_HEAP_ALIGN;
    via_world.map = mmap(NULL, via_world.map_bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (via_world.map == MAP_FAILED) {
        via_world.map = NULL;
        return -errno;
    }
    via_world.map_stride = stride;
    atomic_store_explicit(&via_world.me->heap_room, room, memory_order_relaxed);
    return 0;
}

static void set_mine(enum via_region region)
{
    atomic_store_explicit(&via_hot.peer[region][via_hot.my_pe], via_world.region[region].base,
                          memory_order_relaxed);
}

/* All heaps of this host in one range of addresses; this PE's now, the others at first use. */
int via_world_map_heaps(struct via_error *err)
{
    const struct via_job *job = via_world.job;
    /* On a repeated shmem_init, heaps may have grown; all to the same size. */
    uint64_t bytes = atomic_load_explicit(&via_world.me->heap_bytes, memory_order_relaxed);
    void *base;

    /* With a limit (RLIMIT_AS), the process may still be able to map what it needs now. */
    if (reserve_addresses(via_max(job->heap_bytes_max, bytes)) < 0) {
        int result = reserve_addresses(bytes);
        if (result < 0)
            return via_error_set(err, result,
                                 "%u heaps of %" PRIu64 " bytes: no room for addresses: %s",
                                 via_world.node->locals_count, bytes, strerror(-result));
    }
    /* The program's part of the heap is aligned, not the library's part before it. */
    via_world.map_first =
        (char *)via_align_up((uintptr_t)via_world.map + VIA_INTERNAL_BYTES, VIA_HEAP_ALIGN) -
        VIA_INTERNAL_BYTES;
    int result = via_job_map_memory(
        via_world.me->heap_fd, bytes,
        via_world.map_first + via_world.me->local * via_world.map_stride, &base, err);
    if (result < 0)
        return via_error_prefix(err, "heap: ");
    via_world.region[VIA_REGION_HEAP] = (struct via_region_mine){.base = base, .bytes = bytes};
    set_mine(VIA_REGION_HEAP);
    return 0;
}

int via_world_share_data(struct via_error *err)
{
    static bool done;
    struct via_data data;

    via_data_find(&data);
    if (!done) {
        int result = via_data_share(&data, via_world.me->data_fd, err);
        if (result < 0)
            return result;
        done = true;
    }
    /* Published by the gate. */
    atomic_store_explicit(&via_world.me->data_bytes, data.bytes, memory_order_relaxed);
    atomic_store_explicit(&via_world.me->data_digest, data.digest, memory_order_relaxed);
    via_world.region[VIA_REGION_DATA] =
        (struct via_region_mine){.base = data.base, .bytes = data.bytes};
    set_mine(VIA_REGION_DATA);
    return 0;
}

/* After the gate. Variables of another program are not symmetric with this one's. */
void via_world_compare_programs(void)
{
    struct via_job *job = via_world.job;
    size_t bytes = via_world.region[VIA_REGION_DATA].bytes;
    uint64_t digest = atomic_load_explicit(&via_world.me->data_digest, memory_order_relaxed);

    for (uint32_t i = 0; i < job->pes_count && bytes > 0; i++) {
        struct via_job_pe *pe = &job->pes[i];
        via_world.peers[i].same_program =
            atomic_load_explicit(&pe->data_bytes, memory_order_relaxed) == bytes &&
            atomic_load_explicit(&pe->data_digest, memory_order_relaxed) == digest;
        if (!via_world.peers[i].same_program)
            via_debug("PE %u runs another program: its variables are not symmetric", i);
    }
}

/* --- the fabric ------------------------------------------------------------------------------- */

int via_world_offer(enum via_region region, int fd, size_t bytes, struct via_error *err)
{
    struct via_segment *segment;

    if (bytes == 0)
        return 0;
    int result = via_segment_adopt(via_world.attach, fd, bytes, via_world.region[region].base,
                                   VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment);
    if (result < 0)
        return via_error_set(err, result, "host %u: offering %zu bytes: %s", via_world.me->host,
                             bytes, via_error_text());
    /* If the segment can not be served over TCP, PEs of other hosts use frames. */
    if (via_internal()->card.magic != 0 && (result = via_tcp_serve(segment)) < 0)
        via_debug("direct connections do not reach %zu bytes: %s", bytes, strerror(-result));
    via_world.segment[region] = segment;
    atomic_store_explicit(&via_world.me->handle[region],
                          via_segment_handle(via_world.segment[region]), memory_order_relaxed);
    return 0;
}

/* Ends a PE whose host has died, because no other host can put to it any more and it would wait
 * forever. Likewise ends a PE whose own put has failed, because it may wait for an answer to that
 * put. */
static void poll_host(void)
{
    int result = via_attach_poll(via_world.attach);

    if (result >= 0)
        result = via_attach_failure(via_world.attach);
    if (result < 0)
        via_fatal_cut_off("%s", via_error_text());
}

static void poll_tcp(void)
{
    via_client_tcp_all_poll(via_world.attach);
}

/* Called before other PEs know any handle, so the card is in the heap before they can read it. */
static void offer_tcp(void)
{
    struct via_tcp_card card;
    int result = via_tcp_offer(via_world.attach, &card);

    via_internal()->card = (struct via_tcp_card){0};
    if (result < 0) {
        via_debug("no direct connections: %s", strerror(-result));
        return;
    }
    via_internal()->card = card;
    via_wait_poll_tcp = poll_tcp;
}

int via_world_attach(struct via_error *err)
{
    struct via_attach_options options = {
        .size = sizeof(options), .host = (int)via_world.me->host, .channel = -1};

    if (!via_world.job->fabric || via_world.job->nodes_count == 1)
        return 0;
    int result = via_attach_open(&options, &via_world.attach);
    if (result < 0)
        return via_error_set(err, result, "host %u: attaching: %s", via_world.me->host,
                             via_error_text());
    via_client_auto_off(via_world.attach); /* PEs have connections of their own */
    via_wait_poll_host = poll_host;
    offer_tcp();
    result = via_world_offer(VIA_REGION_HEAP, via_world.me->heap_fd,
                             via_world.region[VIA_REGION_HEAP].bytes, err);
    if (result == 0)
        result = via_world_offer(VIA_REGION_DATA, via_world.me->data_fd,
                                 via_world.region[VIA_REGION_DATA].bytes, err);
    return result;
}

static void detach(void)
{
    for (int region = 0; region < VIA_REGIONS; region++) {
        for (int pe = 0; pe < via_hot.n_pes && via_world.peers; pe++) {
            struct via_remote *remote =
                atomic_load_explicit(&via_world.peers[pe].remote[region], memory_order_relaxed);
            if (remote)
                via_remote_close(remote);
        }
        if (via_world.segment[region])
            via_segment_free(via_world.segment[region]);
        via_world.segment[region] = NULL;
    }
    via_grow_fini();
    via_wait_poll_host = NULL;
    via_wait_poll_tcp = NULL;
    if (via_world.attach)
        via_attach_close(via_world.attach);
    via_world.attach = NULL;
}

/* --- opening and closing the fast path ------------------------------------------------------- */

void via_world_open_hot(void)
{
    for (int region = 0; region < VIA_REGIONS; region++) {
        via_hot.base[region] = (uintptr_t)via_world.region[region].base;
        via_hot.bytes[region] = via_world.statistics ? 0 : via_world.region[region].bytes;
    }
}

/* The variables stay shared, and the job's memory stays open for another shmem_init. */
void via_world_release(void)
{
    detach();
    for (int pe = 0; pe < via_hot.n_pes && via_world.peers; pe++)
        if (pe != via_hot.my_pe && via_hot_peer(VIA_REGION_DATA, pe))
            munmap(via_hot_peer(VIA_REGION_DATA, pe), via_world.region[VIA_REGION_DATA].bytes);
    if (via_world.map)
        munmap(via_world.map, via_world.map_bytes);
    via_world.map = NULL;
    for (int region = 0; region < VIA_REGIONS; region++) {
        via_hot.bytes[region] = 0;
        via_world.region[region].bytes = 0;
        free(via_hot.peer[region]);
        via_hot.peer[region] = NULL;
    }
    free(via_world.peers);
    via_world.peers = NULL;
    via_hot.n_pes = 0;
    via_heap_fini(&via_world.heap);
}
