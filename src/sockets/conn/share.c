/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/share.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"
#include "sockets/meet/policy.h"
#include "sockets/process/fds.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

/*
 * The processes of a user share a file with their sum: a word for each process, and a lock
 * (F_OFD_SETLK, fcntl(2)) on that word's place. The kernel removes the lock when the process ends,
 * be it by a signal, so the word of a killed process is detected. Without the file each process
 * obeys only its own limit.
 */
#define WORDS_COUNT 512u
#define LEDGER_BYTES (WORDS_COUNT * sizeof(uint64_t))
#define OPENS_MAX 3u
/* A process that uses less than SMALL_BYTES, and less than 1/SMALL_PART of the limit, is not
 * counted: so most programs, which are small, make no file. */
#define SMALL_BYTES ((uint64_t)16 << 20)
#define SMALL_PART 16u
#define LEDGER_FORMAT "/dev/shm/viaduct-sockets-%u"

/* Connections use at most half of the mappings that the kernel allows a process, and leave the rest
 * to the program. (The kernel's default is vm.max_map_count = 65530.) */
#define MAPPINGS_DEFAULT 65530ul

static _Atomic uint64_t used_bytes;
static _Atomic uint64_t mapped;
static _Atomic uint64_t mapped_max; /* 0: not read yet */

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
static bool ledger_tried;
static _Atomic int ledger_fd = -1;
static _Atomic uint64_t *_Atomic ledger; /* NULL: there is none */
static unsigned own_word;

static void store_own(void)
{
    /* Pairs with the release in begin_ledger(). */
    _Atomic uint64_t *words = atomic_load_explicit(&ledger, memory_order_acquire);
    if (words != NULL) {
        atomic_store_explicit(&words[own_word],
                              atomic_load_explicit(&used_bytes, memory_order_relaxed),
                              memory_order_relaxed);
    }
}

static uint64_t read_mapped_max(void)
{
    char text[32];
    via_os_read_proc("/proc/sys/vm/max_map_count", text, sizeof(text));
    unsigned long count = strtoul(text, NULL, 10);
    return (count != 0 ? count : MAPPINGS_DEFAULT) / 2;
}

/* --- the file of all processes of the user --------------------------------------------------- */

/* Claims the word at `index` for this process, or (only_checks) tests whether another process owns
 * it: false if one does. */
static bool lock_word(int fd, unsigned index, bool only_checks)
{
    struct flock range = {.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(index * sizeof(uint64_t)),
                          .l_len = sizeof(uint64_t)};
    int rc = VIA_REAL(fcntl)(fd, only_checks ? F_OFD_GETLK : F_OFD_SETLK, &range);
    return rc == 0 && (!only_checks || range.l_type == F_UNLCK);
}

static bool lock_any_word(int fd, unsigned *ret_index)
{
    unsigned first = (unsigned)getpid() % WORDS_COUNT;
    for (unsigned i = 0; i < WORDS_COUNT; i++) {
        *ret_index = (first + i) % WORDS_COUNT;
        if (lock_word(fd, *ret_index, false)) {
            return true;
        }
    }
    return false;
}

/* Reserves the memory: a store into a page for which a full /dev/shm has no memory would end the
 * program by SIGBUS. */
static bool has_memory(int fd)
{
    return fallocate(fd, 0, 0, LEDGER_BYTES) == 0;
}

/* Opens the file, which only this user can access, and claims a word for this process. Returns the
 * descriptor or -1. *ret_gone: another process has removed the file meanwhile. */
static int open_ledger(const char *name, unsigned *ret_index, bool *ret_gone)
{
    struct stat of_fd, of_name;
    int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = fd >= 0 && fstat(fd, &of_fd) == 0 && S_ISREG(of_fd.st_mode) &&
                of_fd.st_uid == geteuid() && (of_fd.st_mode & 077) == 0 &&
                (of_fd.st_size == LEDGER_BYTES || via_os_extend(fd, LEDGER_BYTES) == 0) &&
                has_memory(fd) && lock_any_word(fd, ret_index);
    *ret_gone = good && (stat(name, &of_name) != 0 || of_name.st_ino != of_fd.st_ino);
    if (fd >= 0 && (!good || *ret_gone)) {
        VIA_REAL(close)(fd);
        fd = -1;
    }
    return fd;
}

/* [locked] */
static void begin_ledger(void)
{
    char name[64];
    int fd = -1;
    bool gone = true;
    VIA_KEEP_ERRNO;
    ledger_tried = true;
    snprintf(name, sizeof(name), LEDGER_FORMAT, (unsigned)geteuid());
    for (unsigned i = 0; i < OPENS_MAX && fd < 0 && gone; i++) {
        fd = open_ledger(name, &own_word, &gone);
    }
    void *memory = MAP_FAILED;
    if (fd >= 0) {
        memory = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        if (fd >= 0) {
            VIA_REAL(close)(fd);
        }
    } else if (via_hidden_new(fd, &ledger_fd) != 0) {
        munmap(memory, LEDGER_BYTES);
    } else {
        atomic_store_explicit(&ledger, memory, memory_order_release);
        store_own();
    }
}

static uint64_t sum_of_words(const _Atomic uint64_t *words)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < WORDS_COUNT; i++) {
        sum += atomic_load_explicit(&words[i], memory_order_relaxed);
    }
    return sum;
}

/* [locked] Clears the words of processes that have ended. */
static void clear_dead_words(_Atomic uint64_t *words)
{
    int fd = atomic_load_explicit(&ledger_fd, memory_order_relaxed);
    for (unsigned i = 0; i < WORDS_COUNT; i++) {
        if (i != own_word && atomic_load_explicit(&words[i], memory_order_relaxed) != 0 &&
            lock_word(fd, i, true)) {
            atomic_store_explicit(&words[i], 0, memory_order_relaxed);
        }
    }
}

static bool is_within_user_share(void)
{
    uint64_t most = via_policy.rules.user_memory_bytes;
    bool may = true;
    if (atomic_load_explicit(&ledger, memory_order_relaxed) == NULL &&
        atomic_load_explicit(&used_bytes, memory_order_relaxed) <
            via_min(SMALL_BYTES, most / SMALL_PART)) {
        return true;
    }
    via_lock(&lock);
    if (!ledger_tried) {
        begin_ledger();
    }
    _Atomic uint64_t *words = atomic_load_explicit(&ledger, memory_order_relaxed);
    if (words != NULL && sum_of_words(words) >= most) {
        clear_dead_words(words);
        may = sum_of_words(words) < most;
    }
    via_unlock(&lock);
    return may;
}

/* --- this process ---------------------------------------------------------------------------- */

bool via_share_is_map_allowed(void)
{
    uint64_t most = atomic_load_explicit(&mapped_max, memory_order_relaxed);
    if (via_unlikely(most == 0)) {
        VIA_KEEP_ERRNO;
        most = read_mapped_max();
        atomic_store_explicit(&mapped_max, most, memory_order_relaxed);
    }
    return atomic_load_explicit(&mapped, memory_order_relaxed) < most &&
           atomic_load_explicit(&used_bytes, memory_order_relaxed) <
               via_policy.rules.memory_bytes &&
           is_within_user_share();
}

void via_share_map(void)
{
    atomic_fetch_add_explicit(&mapped, 1, memory_order_relaxed);
}

void via_share_unmap(void)
{
    atomic_fetch_sub_explicit(&mapped, 1, memory_order_relaxed);
}

unsigned via_share_mapped_count(void)
{
    return (unsigned)atomic_load_explicit(&mapped, memory_order_relaxed);
}

void via_share_charge(uint32_t *charged, uint32_t bytes)
{
    int64_t more = (int64_t)bytes - (int64_t)*charged;
    if (more != 0) {
        atomic_fetch_add_explicit(&used_bytes, (uint64_t)more, memory_order_relaxed);
        *charged = bytes;
        store_own();
    }
}

void via_share_end(void)
{
    char name[64];
    _Atomic uint64_t *words = atomic_load_explicit(&ledger, memory_order_acquire);
    int fd = atomic_load_explicit(&ledger_fd, memory_order_relaxed);
    if (words == NULL) {
        return;
    }
    atomic_store_explicit(&words[own_word], 0, memory_order_relaxed);
    /* other threads may still be using the mapping */
    atomic_store_explicit(&ledger, NULL, memory_order_relaxed);
    bool last = true;
    for (unsigned i = 0; i < WORDS_COUNT && last; i++) {
        last = lock_word(fd, i, true); /* the process's own lock does not conflict */
    }
    if (last) {
        snprintf(name, sizeof(name), LEDGER_FORMAT, (unsigned)geteuid());
        unlink(name);
    }
}

void via_share_forked(void)
{
    via_lock_reset(&lock);
    _Atomic uint64_t *words = atomic_exchange_explicit(&ledger, NULL, memory_order_relaxed);
    if (words != NULL) {
        munmap(words, LEDGER_BYTES);
    }
    via_hidden_close(&ledger_fd); /* the locks belong to the parent */
    ledger_tried = false;
}
