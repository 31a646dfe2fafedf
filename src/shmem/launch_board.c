/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/launch_board.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x4543415254564956) /* "VIVTRACE" */
#define VERSION 1u
/* Owners read `wanted` five times a second; oshrun waits two seconds for its agents. */
#define ANSWER_TRIES 500
#define COPY_TRIES 100
#define TRY_US 10000

static uint64_t bytes_of(uint32_t count)
{
    return sizeof(struct via_launch_board) + count * sizeof(struct via_launch_board_pe);
}

/* --- for the owner ---------------------------------------------------------------------------- */

struct via_launch_board *via_launch_board_open(uint64_t id, uint32_t count)
{
    int fd = memfd_create(VIA_LAUNCH_BOARD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct via_error err = {0};
    void *base = NULL;

    if (fd < 0)
        return NULL;
    if (via_job_size_and_seal(fd, bytes_of(count), &err) < 0 ||
        via_job_map_memory(fd, bytes_of(count), NULL, &base, &err) < 0) {
        close(fd);
        return NULL;
    }
    struct via_launch_board *board = base;
    board->version = VERSION;
    board->bytes = (uint32_t)bytes_of(count);
    board->id = id;
    board->owner_pid = getpid();
    board->count = count;
    board->magic = MAGIC;
    return board;
}

bool via_launch_board_is_wanted(struct via_launch_board *board, uint32_t *ret_number)
{
    if (!board)
        return false;
    /* Relaxed: a request brings no data. */
    *ret_number = atomic_load_explicit(&board->wanted, memory_order_relaxed);
    return *ret_number != atomic_load_explicit(&board->answered, memory_order_relaxed);
}

void via_launch_board_begin(struct via_launch_board *board)
{
    if (!board || atomic_load_explicit(&board->version_of_pes, memory_order_relaxed) % 2 != 0)
        return;
    atomic_fetch_add_explicit(&board->version_of_pes, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

void via_launch_board_fill(struct via_launch_board *board, uint32_t pe, const char *place,
                           const struct via_launch_moment *moment)
{
    if (!board)
        return;
    board->pes[pe].moment = *moment;
    snprintf(board->pes[pe].place, sizeof(board->pes[pe].place), "%s", place);
}

void via_launch_board_end(struct via_launch_board *board, uint32_t number)
{
    if (!board)
        return;
    /* Pairs with the acquires in copy_pes. */
    atomic_fetch_add_explicit(&board->version_of_pes, 1, memory_order_release);
    /* Pairs with the acquire in request_moments(). */
    atomic_store_explicit(&board->answered, number, memory_order_release);
}

/* --- for the reader --------------------------------------------------------------------------- */

int via_launch_board_map(int fd, struct via_launch_board **ret_board)
{
    struct via_launch_board head;
    struct via_error err = {0};
    void *base;

    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || head.magic != MAGIC ||
        head.version != VERSION || head.count == 0 || head.count > VIA_JOB_PES_MAX ||
        head.bytes != bytes_of(head.count) ||
        via_job_map_memory(fd, head.bytes, NULL, &base, &err) < 0)
        return -EPROTO;
    struct via_launch_board *board = base;
    /* The checks above used a copy of the head; the memory may have changed since. */
    if (board->count != head.count) {
        munmap(base, head.bytes);
        return -EPROTO;
    }
    *ret_board = board;
    return 0;
}

static int request_moments(struct via_launch_board *board)
{
    uint32_t number = atomic_fetch_add_explicit(&board->wanted, 1, memory_order_relaxed) + 1;

    for (int i = 0; i < ANSWER_TRIES; i++) {
        uint32_t answered = atomic_load_explicit(&board->answered, memory_order_acquire);
        if ((int32_t)(answered - number) >= 0)
            return 0;
        usleep(TRY_US);
    }
    return -ETIMEDOUT;
}

static int copy_pes(const struct via_launch_board *board, uint32_t count,
                    struct via_launch_board_pe *ret_pes)
{
    for (int i = 0; i < COPY_TRIES; i++) {
        uint32_t before = atomic_load_explicit(&board->version_of_pes, memory_order_acquire);
        memcpy(ret_pes, board->pes, count * sizeof(*ret_pes));
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 &&
            atomic_load_explicit(&board->version_of_pes, memory_order_relaxed) == before)
            return 0;
        usleep(TRY_US);
    }
    return -ETIMEDOUT;
}

static void name_place(const void *ctx, uint32_t pe, char *text, size_t bytes)
{
    const struct via_launch_board_pe *pes = ctx;

    snprintf(text, bytes, "%s", pes[pe].place);
}

int via_launch_board_print(FILE *out, struct via_launch_board *board, bool json)
{
    uint32_t count = board->count;
    struct via_launch_board_pe *pes = calloc(count, sizeof(*pes));
    struct via_launch_moment *moments = calloc(count, sizeof(*moments));
    const struct via_launch_view view = {.id = board->id,
                                         .launcher_pid = board->owner_pid,
                                         .count = count,
                                         .moments = moments,
                                         .name_place = name_place,
                                         .ctx = pes};

    int result = pes && moments ? request_moments(board) : -ENOMEM;
    if (result == 0)
        result = copy_pes(board, count, pes);
    for (uint32_t i = 0; i < count && result == 0; i++) {
        moments[i] = pes[i].moment;
        via_launch_moment_clean(&moments[i]);
        via_launch_make_printable(pes[i].place, sizeof(pes[i].place));
    }
    if (result == 0)
        result = json ? via_launch_trace_json(out, &view) : via_launch_trace_print(out, &view);
    free(moments);
    free(pes);
    return result;
}
