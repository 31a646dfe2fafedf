/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/board.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/types.h"
#include "sockets/process/fds.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
static struct via_sockets_board *_Atomic board;
static _Atomic bool failed; /* making the board has failed: do not try again */
static _Atomic int board_fd = -1;
static char complaint[sizeof(((struct via_sockets_board *)NULL)->error)];

static _Atomic uint32_t *number_of(struct via_sockets_board *of, int fd)
{
    return (_Atomic uint32_t *)(void *)((unsigned char *)of + VIA_SOCKETS_NUMBERS_OFF) + fd;
}

static struct via_sockets_entry *entry_of(struct via_sockets_board *of, size_t index)
{
    return (struct via_sockets_entry *)(void *)((unsigned char *)of + VIA_SOCKETS_ENTRIES_OFF) +
           index;
}

/*
 * A reader (viaduct sockets) finds the board by a descriptor in /proc/PID/fd. That descriptor must
 * not hold the last reference to the memory. The kernel drops the files of a killed process in
 * reverse order (task_work_add(): the list is LIFO): high descriptors first, mappings last. So it
 * would free this memory before it closes the program's sockets, and their peers would wait for
 * that. Hence the descriptor is O_PATH, and the mapping holds the memory.
 */
static int found_by(int fd)
{
    char name[32];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    int other = open(name, O_PATH | O_CLOEXEC);
    if (other < 0) {
        return fd; /* also works, but delays the sockets as described */
    }
    VIA_REAL(close)(fd);
    return other;
}

/* Maps a board's memory. This is the only writable mapping. */
static struct via_sockets_board *map_board(void)
{
    void *memory;
    int fd = via_os_memory(VIA_SOCKETS_BOARD_NAME, VIA_SOCKETS_BOARD_BYTES, SEALS, &memory);
    if (fd < 0) {
        return NULL;
    }
    via_hidden_new(found_by(fd), &board_fd); /* without it no reader finds the board */
    return memory;
}

/* The magic is stored last: without it readers ignore the memory. */
static void begin_board(struct via_sockets_board *fresh)
{
    fresh->version = VIA_SOCKETS_BOARD_VERSION;
    fresh->entry_bytes = sizeof(struct via_sockets_entry);
    fresh->pid = getpid();
    memcpy(fresh->error, complaint, sizeof(complaint));
    atomic_store_explicit((_Atomic uint32_t *)&fresh->magic, VIA_SOCKETS_BOARD_MAGIC,
                          memory_order_release);
}

static struct via_sockets_board *make_board(void)
{
    VIA_KEEP_ERRNO;
    via_lock(&lock);
    struct via_sockets_board *made = atomic_load_explicit(&board, memory_order_relaxed);
    if (made == NULL && !atomic_load_explicit(&failed, memory_order_relaxed)) {
        made = map_board();
        atomic_store_explicit(&failed, made == NULL, memory_order_relaxed);
        if (made != NULL) {
            begin_board(made);
            atomic_store_explicit(&board, made, memory_order_release);
        }
    }
    via_unlock(&lock);
    return made;
}

/* Returns the board, which is made at first use; NULL: it can not be made. */
static struct via_sockets_board *board_now(void)
{
    struct via_sockets_board *now = atomic_load_explicit(&board, memory_order_acquire);
    return via_likely(now != NULL) || atomic_load_explicit(&failed, memory_order_relaxed)
               ? now
               : make_board();
}

struct via_stats_conn *via_board_entry(size_t index)
{
    struct via_sockets_board *now = board_now();
    if (now == NULL) {
        return NULL;
    }
    if (index >= VIA_SOCKETS_ENTRIES_COUNT) {
        atomic_fetch_add_explicit(&now->unlisted, 1, memory_order_relaxed);
        return NULL;
    }
    struct via_stats_conn *stats = &entry_of(now, index)->stats;
    *stats = (struct via_stats_conn){.reason = VIA_REASON_NONE};
    return stats;
}

static void set_number(struct via_sockets_board *now, int fd, uint32_t word)
{
    if ((unsigned)fd >= VIA_SOCKETS_NUMBERS_COUNT) {
        return;
    }
    uint32_t used = atomic_load_explicit(&now->numbers_used, memory_order_relaxed);
    while (used <= (uint32_t)fd &&
           !atomic_compare_exchange_weak_explicit(&now->numbers_used, &used, (uint32_t)fd + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_store_explicit(number_of(now, fd), word, memory_order_release);
}

void via_board_show(int fd, size_t index)
{
    struct via_sockets_board *now = board_now();
    if (now != NULL) {
        set_number(now, fd,
                   index < VIA_SOCKETS_ENTRIES_COUNT ? VIA_SOCKETS_NUMBER(index + 1, 0) : 0);
    }
}

void via_board_refuse(int fd, enum via_reason reason)
{
    struct via_sockets_board *now = board_now();
    if (now != NULL) {
        set_number(now, fd, VIA_SOCKETS_NUMBER(0, reason));
    }
}

enum via_reason via_board_reason(int fd)
{
    struct via_sockets_board *now = atomic_load_explicit(&board, memory_order_acquire);
    if (now == NULL || (unsigned)fd >= VIA_SOCKETS_NUMBERS_COUNT) {
        return VIA_REASON_NONE;
    }
    uint32_t word = atomic_load_explicit(number_of(now, fd), memory_order_relaxed);
    uint32_t reason = VIA_SOCKETS_NUMBER_REASON(word);
    return reason < VIA_REASON_COUNT ? (enum via_reason)reason : VIA_REASON_NONE;
}

void via_board_forget(int fd)
{
    struct via_sockets_board *now = atomic_load_explicit(&board, memory_order_relaxed);
    if (now != NULL && (unsigned)fd < VIA_SOCKETS_NUMBERS_COUNT) {
        atomic_store_explicit(number_of(now, fd), 0, memory_order_relaxed);
    }
}

void via_board_stop(void)
{
    atomic_store_explicit(&failed, true, memory_order_relaxed);
}

void via_board_complain(const char *text)
{
    snprintf(complaint, sizeof(complaint), "%s", text);
}

/* --- fork ------------------------------------------------------------------------------------ */

/* Copies the reasons why descriptors stay with the kernel. The parent may have changed one since
 * fork(); this does no harm. */
static void copy_reasons(struct via_sockets_board *to, struct via_sockets_board *from)
{
    uint32_t used = atomic_load_explicit(&from->numbers_used, memory_order_relaxed);
    for (uint32_t fd = 0; fd < via_min(used, VIA_SOCKETS_NUMBERS_COUNT); fd++) {
        uint32_t word = atomic_load_explicit(number_of(from, (int)fd), memory_order_relaxed);
        if (word != 0 && VIA_SOCKETS_NUMBER_ENTRY(word) == 0) {
            set_number(to, (int)fd, word);
        }
    }
}

/* To the address of the old board: if a signal handler has forked, the call that it has interrupted
 * may still use a pointer into that one. */
static void move_board(struct via_sockets_board *fresh, struct via_sockets_board *old)
{
    if (mremap(fresh, VIA_SOCKETS_BOARD_BYTES, VIA_SOCKETS_BOARD_BYTES,
               MREMAP_MAYMOVE | MREMAP_FIXED, old) == old) {
        atomic_store_explicit(&board, old, memory_order_relaxed);
    }
}

void via_board_forked(bool has_connections)
{
    struct via_sockets_board *old = atomic_load_explicit(&board, memory_order_relaxed);
    via_lock_reset(&lock);
    if (old == NULL) {
        return;
    }
    via_hidden_close(&board_fd);
    atomic_store_explicit(&board, NULL, memory_order_relaxed);
    struct via_sockets_board *fresh = has_connections ? make_board() : NULL;
    if (fresh != NULL) {
        copy_reasons(fresh, old);
        move_board(fresh, old);
    } else if (!has_connections) {
        munmap(old, VIA_SOCKETS_BOARD_BYTES);
    }
}
