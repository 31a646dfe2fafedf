/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

#define FDS_MIN 65536u
#define FDS_MAX (1u << 20)

struct via_file *_Atomic *via_fds;
_Atomic unsigned char *via_fd_marks;
unsigned via_fds_count;

static _Atomic unsigned top; /* see via_fds_top() */
static struct via_pool hidden_pool = VIA_POOL_INIT(sizeof(struct via_hidden), FDS_MAX);
struct via_mutex via_hidden_lock = VIA_MUTEX_INIT(VIA_RANK_HIDDEN);

/* A bit for each block of numbers that has had an object or a mark. */
#define BLOCK 512u
#define WORD_BLOCKS 64u
static _Atomic uint64_t touched[FDS_MAX / BLOCK / WORD_BLOCKS];

int via_fds_init(void)
{
    struct rlimit limit;
    unsigned count = FDS_MIN;
    if (via_fds_count != 0) {
        return 0;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > count) {
        count = limit.rlim_max > FDS_MAX ? FDS_MAX : (unsigned)limit.rlim_max;
    }
    /* Only the pages of numbers in use are touched, so the rest takes no memory. */
    unsigned char *memory = mmap(NULL, count * (sizeof(*via_fds) + 1), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return -ENOMEM;
    }
    via_fds = (void *)memory;
    via_fd_marks = (void *)(memory + count * sizeof(*via_fds));
    via_fds_count = count;
    return 0;
}

struct via_file *via_file_get_slowly(int fd)
{
    for (;;) {
        uint32_t thread = via_os_thread();
        struct via_file *file = via_fd_peek(fd);
        if (file == NULL) {
            return NULL;
        }
        uint32_t users = atomic_load_explicit(&file->users, memory_order_relaxed);
        if (users == 0) {
            continue; /* the object is being freed: the table entry changes in a moment */
        }
        /* Pairs with the release in put: the freeing thread sees everything that the last user
         * did. */
        if (!atomic_compare_exchange_weak_explicit(&file->users, &users, users + 1,
                                                   memory_order_acquire, memory_order_relaxed)) {
            continue;
        }
        if (via_fd_peek(fd) == file) {
            return file;
        }
        via_file_put_call(file, thread);
    }
}

void via_file_put_slowly(struct via_file *file)
{
    if (atomic_fetch_sub_explicit(&file->users, 1, memory_order_acq_rel) == 1) {
        file->free(file);
    }
}

/* The second comparison: a signal handler may fork between the first one and the count. In the
 * child only the table had counted. */
void via_file_put_call(struct via_file *file, uint32_t thread)
{
    if (via_likely(thread == via_os_thread()) &&
        atomic_fetch_sub_explicit(&file->users, 1, memory_order_acq_rel) == 1) {
        if (thread == via_os_thread()) {
            file->free(file);
        } else {
            atomic_fetch_add_explicit(&file->users, 1, memory_order_relaxed);
        }
    }
}

unsigned via_fds_top(void)
{
    return atomic_load_explicit(&top, memory_order_relaxed);
}

void via_fds_touch(unsigned fd)
{
    _Atomic uint64_t *word = &touched[fd / BLOCK / WORD_BLOCKS];
    uint64_t bit = UINT64_C(1) << fd / BLOCK % WORD_BLOCKS;
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) == 0) {
        atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
    }
}

unsigned via_fds_next_used(unsigned fd)
{
    while (fd < via_fds_count) {
        uint64_t word =
            atomic_load_explicit(&touched[fd / BLOCK / WORD_BLOCKS], memory_order_relaxed);
        uint64_t rest = word >> fd / BLOCK % WORD_BLOCKS;
        if ((rest & 1) != 0) {
            return fd;
        }
        unsigned blocks =
            rest != 0 ? (unsigned)__builtin_ctzll(rest) : WORD_BLOCKS - fd / BLOCK % WORD_BLOCKS;
        fd = (fd / BLOCK + blocks) * BLOCK;
    }
    return via_fds_count;
}

bool via_fd_set(int fd, struct via_file *file)
{
    if ((unsigned)fd >= via_fds_count) {
        return false;
    }
    via_fds_touch((unsigned)fd);
    bool hidden = file != NULL && file->kind == VIA_FILE_HIDDEN;
    unsigned before = atomic_load_explicit(&top, memory_order_relaxed);
    while (before <= (unsigned)fd && !hidden &&
           !atomic_compare_exchange_weak_explicit(&top, &before, (unsigned)fd + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_store_explicit(&via_fds[fd], file, memory_order_release);
    return true;
}

struct via_file *via_fd_take(int fd)
{
    if (via_fd_peek(fd) == NULL) {
        return NULL;
    }
    return atomic_exchange_explicit(&via_fds[fd], NULL, memory_order_acq_rel);
}

/* --- changes and fork ------------------------------------------------------------------------- */

/* A thread that forks waits at most FORK_TRIES times for other threads that fork. */
#define FORK_TRIES 64u
/* How often a thread checks whether others have ended what it waits for. A change takes
 * microseconds, a fork a tenth of a millisecond or longer. */
#define CHECK_NS (50 * VIA_USEC_NS)

/* What a thread does; the counts of all threads, and its own: a signal handler may change a number
 * or fork in the middle of its thread's change or fork. */
enum activity { CHANGES, WAITS_TO_CHANGE, FORKS, ACTIVITIES };
static struct {
    _Atomic uint32_t count;
    _Atomic uint32_t stuck; /* of them: a thread has waited VIA_FDS_CHANGE_NS for them */
    _Atomic uint32_t waits; /* waits that ended so */
} all[ACTIVITIES];
static __thread uint32_t own[ACTIVITIES] __attribute__((tls_model("initial-exec")));
/* `waits` when the thread's outermost activity began. */
static __thread uint32_t own_waits[ACTIVITIES] __attribute__((tls_model("initial-exec")));

/* Changes that a signal handler of their thread has interrupted in order to fork. */
static _Atomic uint32_t interrupted;

static void begin(enum activity activity)
{
    via_lock_enter(); /* no handler forks between the two counts */
    if (own[activity]++ == 0) {
        own_waits[activity] = atomic_load_explicit(&all[activity].waits, memory_order_relaxed);
    }
    /* Pairs with the same increment of another activity: of a thread that changes and one that
     * forks, one sees the other. */
    atomic_fetch_add_explicit(&all[activity].count, 1, memory_order_seq_cst);
    via_lock_leave();
}

/* The same if no other thread, except stuck ones, is in the activity; else false. */
static bool try_begin_alone(enum activity activity)
{
    via_lock_enter();
    uint32_t stuck = atomic_load_explicit(&all[activity].stuck, memory_order_relaxed);
    bool begun = atomic_compare_exchange_strong_explicit(
        &all[activity].count, &stuck, stuck + 1, memory_order_seq_cst, memory_order_relaxed);
    if (begun) {
        own[activity] = 1;
        own_waits[activity] = atomic_load_explicit(&all[activity].waits, memory_order_relaxed);
    }
    via_lock_leave();
    return begun;
}

/* was_there: the caller's activity began before the last wait ended, so it may be one of the stuck
 * ones. If it was not, a later call waits once more. left: number of activities in progress. */
static void lower_stuck(enum activity activity, bool was_there, uint32_t left)
{
    uint32_t stuck = atomic_load_explicit(&all[activity].stuck, memory_order_relaxed);
    uint32_t lower;
    do {
        lower = via_min(was_there && stuck != 0 ? stuck - 1 : stuck, left);
    } while (!atomic_compare_exchange_weak_explicit(&all[activity].stuck, &stuck, lower,
                                                    memory_order_relaxed, memory_order_relaxed));
}

static void end(enum activity activity)
{
    via_lock_enter();
    own[activity]--;
    uint32_t left = atomic_fetch_sub_explicit(&all[activity].count, 1, memory_order_seq_cst) - 1;
    /* Pairs with the store in wait_while(): this thread sees that, or the other thread `left`. */
    if (via_unlikely(atomic_load_explicit(&all[activity].stuck, memory_order_seq_cst) != 0)) {
        uint32_t waits = atomic_load_explicit(&all[activity].waits, memory_order_relaxed);
        lower_stuck(activity, own[activity] == 0 && own_waits[activity] != waits, left);
    }
    via_lock_leave();
}

static uint32_t count_others(enum activity activity)
{
    return atomic_load_explicit(&all[activity].count, memory_order_seq_cst) - own[activity];
}

/* Threads whose handlers fork during changes do not wait for each other's changes: those go on only
 * after the forks. */
static uint32_t count_interrupted_others(enum activity activity)
{
    return activity == CHANGES && own[CHANGES] != 0
               ? atomic_load_explicit(&interrupted, memory_order_seq_cst) - own[CHANGES]
               : 0;
}

/* True if other threads are in the activity, and this thread must wait for them. */
static bool must_wait(enum activity activity)
{
    return count_others(activity) >
           atomic_load_explicit(&all[activity].stuck, memory_order_relaxed) +
               count_interrupted_others(activity);
}

/* Waits until all other threads, except stuck ones, have ended the activity. False: some have not
 * within VIA_FDS_CHANGE_NS. They count as stuck from then on: only one wait takes that long. */
static bool wait_while(enum activity activity)
{
    if (via_likely(!must_wait(activity))) {
        return true;
    }
    VIA_KEEP_ERRNO;
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    uint64_t now_ns = via_os_now_ns();
    uint64_t end_ns = now_ns + VIA_FDS_CHANGE_NS;
    uint32_t least = count_others(activity);
    bool due = true;
    for (; due && now_ns < end_ns; now_ns = via_os_now_ns()) {
        via_os_pause(CHECK_NS);
        due = must_wait(activity);
        least = via_min(least, count_others(activity));
    }
    if (due && own[activity] == 0) {
        atomic_fetch_add_explicit(&all[activity].waits, 1, memory_order_relaxed);
        /* Pairs with the decrement in end(). */
        atomic_store_explicit(&all[activity].stuck, least, memory_order_seq_cst);
        lower_stuck(activity, false, count_others(activity));
    }
    pthread_setcancelstate(state, NULL);
    return !due;
}

void via_fds_begin_change(void)
{
    bool may_wait = own[CHANGES] == 0 && own[FORKS] == 0 && via_lock_thread.held == 0;
    begin(CHANGES);
    if (via_likely(!may_wait || !must_wait(FORKS))) {
        return;
    }
    begin(WAITS_TO_CHANGE);
    do {
        end(CHANGES);
        may_wait = wait_while(FORKS);
        begin(CHANGES);
    } while (may_wait && must_wait(FORKS));
    end(WAITS_TO_CHANGE);
}

void via_fds_end_change(void)
{
    end(CHANGES);
}

void via_fds_fork_prepare(void)
{
    /* One thread forks at a time, and after each fork the waiting changes come first: a change
     * waits for one fork, however many threads fork. If this is a signal handler that has
     * interrupted a change or fork of its thread, it does not wait: other threads may wait for that
     * change or fork. */
    bool may_wait = own[CHANGES] == 0 && own[WAITS_TO_CHANGE] == 0 && own[FORKS] == 0;
    bool begun = false;
    if (own[CHANGES] != 0 && own[FORKS] == 0) {
        atomic_fetch_add_explicit(&interrupted, own[CHANGES], memory_order_seq_cst);
    }
    for (unsigned i = 0; may_wait && !begun && i < FORK_TRIES; i++) {
        may_wait = wait_while(FORKS) && wait_while(WAITS_TO_CHANGE);
        begun = may_wait && try_begin_alone(FORKS);
    }
    if (!begun) {
        begin(FORKS);
    }
    (void)wait_while(CHANGES);
}

void via_fds_fork_parent(void)
{
    end(FORKS);
    if (own[CHANGES] != 0 && own[FORKS] == 0) {
        atomic_fetch_sub_explicit(&interrupted, own[CHANGES], memory_order_relaxed);
    }
}

void via_fds_fork_child(void)
{
    own[FORKS]--;
    atomic_store_explicit(&interrupted, own[FORKS] != 0 ? own[CHANGES] : 0, memory_order_relaxed);
    for (unsigned i = 0; i < ACTIVITIES; i++) {
        atomic_store_explicit(&all[i].count, own[i], memory_order_relaxed);
        atomic_store_explicit(&all[i].stuck, 0, memory_order_relaxed);
    }
}

/* --- the library's own descriptors ------------------------------------------------------------ */

static _Atomic unsigned meeting_count;

unsigned via_hidden_meeting_count(void)
{
    return atomic_load_explicit(&meeting_count, memory_order_relaxed);
}

static void hidden_free(struct via_file *file)
{
    struct via_hidden *hidden = via_container_of(file, struct via_hidden, file);
    if (hidden->meets) {
        atomic_fetch_sub_explicit(&meeting_count, 1, memory_order_relaxed);
    }
    via_pool_put(&hidden_pool, hidden);
}

unsigned via_fds_quarter(void)
{
    struct rlimit limit = {.rlim_cur = 0};
    (void)!getrlimit(RLIMIT_NOFILE, &limit);
    return (unsigned)via_min(limit.rlim_cur, (rlim_t)via_fds_count) / 4;
}

/* With a smaller RLIMIT_NOFILE the program gets all descriptors: the library would take a dozen for
 * itself. */
#define LIMIT_MIN 64u

static int copy_high(int fd, unsigned quarters)
{
    unsigned quarter = via_fds_quarter();
    if (quarter < LIMIT_MIN / 4) {
        errno = EMFILE;
        return -1;
    }
    return VIA_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, (int)(quarter * quarters));
}

/*
 * Moves fd to a high number. The library's descriptors are in the upper half of the program's
 * range; most of them belong to connections that meet, in the last quarter. The kernel returns the
 * lowest free numbers to the program, so the program reaches the library's numbers only when it has
 * used all others.
 */
static int make_high(int fd)
{
    int high = copy_high(fd, 3);
    return high >= 0 ? high : copy_high(fd, 2);
}

static bool hide(int fd, _Atomic int *place, bool meets)
{
    struct via_hidden *hidden = (unsigned)fd < via_fds_count ? via_pool_get(&hidden_pool) : NULL;
    if (hidden == NULL) {
        return false;
    }
    atomic_store_explicit(&hidden->file.users, 1, memory_order_relaxed);
    hidden->file.kind = VIA_FILE_HIDDEN;
    hidden->file.free = hidden_free;
    hidden->place = place;
    hidden->meets = meets;
    if (meets) {
        atomic_fetch_add_explicit(&meeting_count, 1, memory_order_relaxed);
    }
    via_fd_set(fd, &hidden->file);
    return true;
}

static int hide_high(int fd, _Atomic int *place, bool meets)
{
    atomic_store_explicit(place, -1, memory_order_relaxed);
    int high = -1;
    int error = EMFILE;
    if (via_likely(!via_os_is_guest())) {
        high = make_high(fd);
        error = errno;
    }
    VIA_REAL(close)(fd);
    if (high < 0) {
        return -error;
    }
    atomic_store_explicit(place, high, memory_order_relaxed);
    if (!hide(high, place, meets)) {
        atomic_store_explicit(place, -1, memory_order_relaxed);
        VIA_REAL(close)(high);
        return -EMFILE;
    }
    return 0;
}

int via_hidden_new(int fd, _Atomic int *place)
{
    return hide_high(fd, place, false);
}

int via_hidden_new_meeting(int fd, _Atomic int *place)
{
    return hide_high(fd, place, true);
}

static void unhide(int fd)
{
    struct via_file *file = via_fd_take(fd);
    if (file != NULL) {
        via_file_put_slowly(file);
    }
}

void via_hidden_shield(int fd, bool hides)
{
    if (hides) {
        hide(fd, NULL, false);
    } else {
        unhide(fd);
    }
}

void via_hidden_close(_Atomic int *place)
{
    via_lock(&via_hidden_lock);
    int fd = atomic_exchange_explicit(place, -1, memory_order_relaxed);
    if (fd >= 0) {
        unhide(fd);
        VIA_REAL(close)(fd);
    }
    via_unlock(&via_hidden_lock);
}

bool via_hidden_move(int fd)
{
    struct via_file *file = via_fd_peek(fd);
    if (file == NULL || file->kind != VIA_FILE_HIDDEN) {
        return true;
    }
    bool moved = true;
    via_lock(&via_hidden_lock);
    struct via_hidden *hidden = via_container_of(file, struct via_hidden, file);
    if (via_fd_peek(fd) == file) {
        int high = hidden->place != NULL ? VIA_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, fd + 1) : -1;
        moved = high >= 0 && (unsigned)high < via_fds_count;
        if (moved) {
            via_fd_take(fd);
            atomic_store_explicit(hidden->place, high, memory_order_relaxed);
            via_fd_set(high, file);
            VIA_REAL(close)(fd);
        } else if (high >= 0) {
            VIA_REAL(close)(high);
        }
    }
    via_unlock(&via_hidden_lock);
    return moved;
}
