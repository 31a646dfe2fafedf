/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/profile/machines.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shmem/profile/profile.h"

#define ROUNDS 15u
#define CHUNK_BYTES 65536u
/* Steps that a PE performs together with PE 0, in this order. */
enum step { MEASURE_FIRST = 1, MEASURE_AGAIN, SEND };

/* Symmetric memory. */
struct meeting {
    uint64_t machine; /* written by this PE */
    uint64_t zero_ns; /* written by PE 0: when the job began */
    uint64_t step;    /* written by PE 0: a step is this PE's turn */
    uint64_t answer;  /* the answer of PE 0 to this round or piece */
    uint64_t time_ns; /* time of that answer, by PE 0's clock */
    uint64_t request; /* at PE 0: the requested round, or the bytes of a piece + 1 */
    unsigned char piece[CHUNK_BYTES];
};

static struct {
    struct meeting *meeting; /* NULL: none */
    uint64_t *machine_of;    /* pes */
    int me, pes;
    uint64_t round; /* round of this PE; at PE 0: round of the PE whose turn it is */
    uint64_t measured_ns[2];
    int64_t offset_ns[2]; /* from this PE's clock to PE 0's */
    unsigned measured_count;
} all;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t hash(uint64_t value, const char *text, ssize_t bytes)
{
    for (ssize_t i = 0; i < bytes; i++)
        value = (value ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return value;
}

/* Processes with the same id share a clock and files. */
static uint64_t machine_id(void)
{
    static const char *const spaces[] = {"/proc/self/ns/time", "/proc/self/ns/mnt"};
    char text[128];
    uint64_t id = UINT64_C(0xcbf29ce484222325);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        id = hash(id, text, read(fd, text, sizeof(text)));
        close(fd);
    }
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
        id = hash(id, text, readlink(spaces[i], text, sizeof(text)));
    return id;
}

bool via_profile_machines_has(int pe)
{
    return !all.meeting || all.machine_of[pe] == all.machine_of[0];
}

/* --- clocks ----------------------------------------------------------------------------------- */

/* Called by a PE on another machine, while PE 0 answers it. */
static void measure_clock(unsigned at)
{
    struct meeting *meeting = all.meeting;
    uint64_t shortest_ns = UINT64_MAX;

    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t begin_ns = now_ns();
        pshmem_uint64_p(&meeting->request, ++all.round, 0);
        pshmem_quiet();
        pshmem_uint64_wait_until(&meeting->answer, SHMEM_CMP_EQ, all.round);
        uint64_t took_ns = now_ns() - begin_ns;
        if (took_ns < shortest_ns) {
            shortest_ns = took_ns;
            all.measured_ns[at] = begin_ns + took_ns / 2;
            all.offset_ns[at] = (int64_t)(meeting->time_ns - all.measured_ns[at]);
        }
    }
    all.measured_count = at + 1;
}

static void answer(int pe)
{
    struct meeting *meeting = all.meeting;

    for (unsigned i = 0; i < ROUNDS; i++) {
        pshmem_uint64_wait_until(&meeting->request, SHMEM_CMP_EQ, ++all.round);
        pshmem_uint64_p(&meeting->time_ns, now_ns(), pe);
        pshmem_fence();
        pshmem_uint64_p(&meeting->answer, all.round, pe);
    }
    meeting->request = 0;
}

static void take_turn(int pe, enum step step)
{
    all.round = (uint64_t)step << 32;
    pshmem_uint64_p(&all.meeting->step, step, pe);
    pshmem_quiet();
}

static void wait_for_turn(enum step step)
{
    pshmem_uint64_wait_until(&all.meeting->step, SHMEM_CMP_EQ, step);
    all.round = (uint64_t)step << 32;
}

static void measure(enum step step)
{
    if (!via_profile_machines_has(all.me)) {
        wait_for_turn(step);
        measure_clock(step - MEASURE_FIRST);
    }
    for (int pe = 1; pe < all.pes && all.me == 0; pe++) {
        if (!via_profile_machines_has(pe)) {
            take_turn(pe, step);
            answer(pe);
        }
    }
    pshmem_barrier_all();
}

bool via_profile_machines_begin(int me, int pes)
{
    all.me = me;
    all.pes = pes;
    all.machine_of = calloc((size_t)pes, sizeof(*all.machine_of));
    struct meeting *meeting = pshmem_calloc(1, sizeof(*meeting));
    if (!meeting || !all.machine_of) {
        if (!all.machine_of)
            abort(); /* the other PEs wait for this one */
        return false;
    }
    meeting->machine = machine_id();
    meeting->zero_ns = now_ns();
    pshmem_barrier_all();
    for (int pe = 0; pe < pes; pe++)
        all.machine_of[pe] = pshmem_uint64_g(&meeting->machine, pe);
    uint64_t zero_ns = pshmem_uint64_g(&meeting->zero_ns, 0);
    pshmem_barrier_all();
    meeting->zero_ns = zero_ns;
    all.meeting = meeting;
    measure(MEASURE_FIRST);
    return true;
}

void via_profile_machines_measure(void)
{
    if (all.meeting)
        measure(MEASURE_AGAIN);
}

static int64_t offset_at(uint64_t monotonic_ns)
{
    if (all.measured_count < 2 || all.measured_ns[1] == all.measured_ns[0])
        return all.offset_ns[0];
    double part = ((double)monotonic_ns - (double)all.measured_ns[0]) /
                  (double)(all.measured_ns[1] - all.measured_ns[0]);
    return all.offset_ns[0] + (int64_t)(part * (double)(all.offset_ns[1] - all.offset_ns[0]));
}

double via_profile_machines_us(uint64_t monotonic_ns)
{
    if (!all.meeting)
        return (double)monotonic_ns / 1e3;
    int64_t since_ns = (int64_t)(monotonic_ns - all.meeting->zero_ns) + offset_at(monotonic_ns);
    return since_ns < 0 ? 0 : (double)since_ns / 1e3;
}

/* --- texts ------------------------------------------------------------------------------------ */

static void send_piece(const char *text, size_t bytes)
{
    pshmem_putmem(all.meeting->piece, text, bytes, 0);
    pshmem_fence();
    pshmem_uint64_p(&all.meeting->request, bytes + 1, 0);
    pshmem_quiet();
    pshmem_uint64_wait_until(&all.meeting->answer, SHMEM_CMP_EQ, ++all.round);
}

void via_profile_machines_send(const char *text, size_t bytes)
{
    wait_for_turn(SEND);
    for (size_t off = 0; off < bytes; off += CHUNK_BYTES)
        send_piece(text + off, bytes - off < CHUNK_BYTES ? bytes - off : CHUNK_BYTES);
    send_piece("", 0);
}

void via_profile_machines_receive(int pe, FILE *out)
{
    struct meeting *meeting = all.meeting;
    uint64_t bytes = 1;

    take_turn(pe, SEND);
    while (bytes > 0) {
        pshmem_uint64_wait_until(&meeting->request, SHMEM_CMP_NE, 0);
        bytes = meeting->request - 1;
        fwrite(meeting->piece, 1, bytes, out);
        meeting->request = 0;
        pshmem_uint64_p(&meeting->answer, ++all.round, pe);
        pshmem_quiet();
    }
}

void via_profile_machines_end(void)
{
    pshmem_free(all.meeting); /* NULL: nothing */
    free(all.machine_of);
    all.meeting = NULL;
    all.machine_of = NULL;
    all.measured_count = 0;
}
