/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "host/client_sys.h"
#include "sockets/fabric/fabric.h"
#include "sockets/process/fds.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

#define PEERS_MAX 65536u

#define PAGE 4096u
#define PAGE_WORDS (PAGE / sizeof(struct via_sock_bell_word))
#define PAGES_MAX 16u
/* Limit of the bells that a process makes. Further threads share these. */
#define OWN_MAX 32u

/* A page with the words of the bells that one process makes. */
struct page {
    _Atomic int fd;
    struct via_sock_bell_word *words;
    unsigned used;
};

/* Indexes of a bell's eventfds. */
enum { RING, COLD, CALL };

struct bell {
    /* an adopted bell has only the first one; the others are -1 */
    _Atomic int fds[VIA_BELL_EVENTFDS];
    const struct page *page; /* NULL for an adopted bell */
    uint32_t word_index;
};

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_BELLS);
static struct page
    pages[PAGES_MAX]; /* the last one is this process's, the others are its ancestors' */
static unsigned pages_count;
static struct bell all[VIA_BELLS_MAX];
static unsigned all_count;
static unsigned first_own; /* index of the first bell that this process made */
static _Atomic uint64_t adopted;
static _Atomic uint64_t
    inherited; /* adopted by ancestors: the daemon rings these for inherited connections */

static _Atomic int calls; /* the epoll set for calls; 0 or -1: not made */
static _Atomic int timer; /* the timer in that set; 0 or -1: not made */
#define OWN_CALL 1u       /* data of the timer's event; an event for another process's call has 0 */

static __thread int thread_bell __attribute__((tls_model("initial-exec"))); /* index + 1 */
static __thread bool is_second_bell __attribute__((tls_model("initial-exec")));
/* The bells on which a thread has slept that has another bell. */
static _Atomic uint64_t used_by_others;
static unsigned next_shared;

static struct via_pool peer_pool = VIA_POOL_INIT(sizeof(struct via_peer_bell), PEERS_MAX);
static struct via_peer_bell *peers;

/* Makes the page with the words. This process keeps the only writable mapping. */
static int make_page(void)
{
    struct page *page = &pages[pages_count];
    if (pages_count == PAGES_MAX) {
        return -ENOSPC;
    }
    void *memory;
    int fd = via_os_memory("viaduct-bells", PAGE, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE,
                           &memory);
    if (fd < 0) {
        return fd;
    }
    int rc = via_hidden_new(fd, &page->fd);
    if (rc != 0) {
        munmap(memory, PAGE);
        return rc;
    }
    page->words = memory;
    page->used = 0;
    pages_count++;
    return 0;
}

/* The highest free index. Adopted bells are numbered downwards from the top, so that the process's
 * own bells are next to each other. */
static unsigned top_free(void)
{
    return VIA_BELLS_MAX - 1 - (unsigned)__builtin_popcountll(via_sock_bells_adopted());
}

static int make_eventfd(_Atomic int *ret_fd)
{
    int fd = via_sys_bell_new();
    return fd < 0 ? fd : via_hidden_new(fd, ret_fd);
}

/* [locked] */
static void watch_calls(const struct bell *bell)
{
    int fd = atomic_load_explicit(&bell->fds[CALL], memory_order_relaxed);
    struct epoll_event event = {.events = VIA_BELL_EVENTS};
    if (calls > 0 && bell->page != NULL) {
        VIA_REAL(epoll_ctl)(calls, EPOLL_CTL_ADD, fd, &event);
    }
}

int via_sock_bell_calls(void)
{
    int made = atomic_load_explicit(&calls, memory_order_acquire);
    if (via_likely(made > 0)) {
        return made;
    }
    via_lock(&lock);
    if (calls <= 0) {
        int fd = VIA_REAL(epoll_create1)(EPOLL_CLOEXEC);
        _Atomic int *place = &calls;
        if (fd >= 0 && via_hidden_new(fd, place) == 0) {
            for (unsigned i = 0; i < all_count; i++) {
                watch_calls(&all[i]);
            }
        }
    }
    made = calls;
    via_unlock(&lock);
    return made > 0 ? made : -1;
}

/* Returns the timer by which the process calls itself; -1: there is none. */
static int timer_of_calls(void)
{
    int set = via_sock_bell_calls();
    via_lock(&lock);
    if (timer <= 0 && set >= 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = OWN_CALL}};
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        _Atomic int *place = &timer;
        if (fd >= 0 && via_hidden_new(fd, place) == 0) {
            VIA_REAL(epoll_ctl)(set, EPOLL_CTL_ADD, timer, &event);
        }
    }
    int made = timer;
    via_unlock(&lock);
    return made > 0 ? made : -1;
}

void via_sock_bell_call_in(uint64_t ns)
{
    int fd = timer_of_calls();
    struct itimerspec in = {
        .it_value = {.tv_sec = (time_t)(ns / VIA_SEC_NS), .tv_nsec = (long)(ns % VIA_SEC_NS)}};
    if (fd >= 0) {
        timerfd_settime(fd, 0, &in, NULL);
    }
}

bool via_sock_bell_calls_take(void)
{
    struct epoll_event events[8];
    int fd = via_sock_bell_calls();
    bool own = false, others = false;
    int n;
    do {
        n = fd >= 0 ? VIA_REAL(epoll_wait)(fd, events, 8, 0) : 0;
        for (int i = 0; i < n; i++) {
            own |= events[i].data.u64 == OWN_CALL;
            others |= events[i].data.u64 != OWN_CALL;
        }
    } while (n == 8);
    return own && !others;
}

static void close_hidden(_Atomic int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        via_hidden_close(&fds[i]);
    }
}

/* [locked] */
static int make_bell(void)
{
    if (all_count >= top_free()) {
        return -ENOSPC;
    }
    bool has_page = all_count > first_own && all[first_own].page != NULL;
    int rc = has_page ? 0 : make_page();
    if (rc != 0) {
        return rc;
    }
    struct bell *bell = &all[all_count];
    struct page *page = &pages[pages_count - 1];
    for (unsigned i = 0; i < VIA_BELL_EVENTFDS; i++) {
        rc = make_eventfd(&bell->fds[i]);
        if (rc != 0) {
            close_hidden(bell->fds, i);
            return rc;
        }
    }
    bell->page = page;
    bell->word_index = page->used++;
    watch_calls(bell);
    return (int)all_count++;
}

/*
 * True if another thread waits for a connection whose pipes this thread has set up. Each message on
 * any connection with the same bell wakes that thread (libpmix logs in by the main thread of an MPI
 * process, and then waits in a thread of its own). So this thread gets a second bell for its later
 * connections; not more, as threads that all wait in one set would make them without end.
 */
static bool needs_second_bell(void)
{
    return !is_second_bell && (atomic_load_explicit(&used_by_others, memory_order_relaxed) &
                               VIA_BELL_MASK(thread_bell - 1)) != 0;
}

int via_sock_bell_of_thread(void)
{
    if (thread_bell > 0 && via_likely(!needs_second_bell())) {
        return thread_bell - 1;
    }
    via_lock(&lock);
    unsigned own = all_count - first_own;
    int rc = own < OWN_MAX ? make_bell() : -ENOSPC;
    is_second_bell = thread_bell > 0;
    if (rc < 0 && is_second_bell) {
        rc = thread_bell - 1; /* another thread sleeps on each of the others, too */
    } else if (rc < 0 && own > 0) {
        rc = (int)(first_own + next_shared++ % own);
        rc = all[rc].page != NULL ? rc : (int)first_own;
    }
    if (rc >= 0) {
        thread_bell = rc + 1; /* a deferred signal handler may fork at the unlock: the child has no
                                 bell of its own */
    }
    via_unlock(&lock);
    return rc;
}

int via_sock_bell_adopt(int fd)
{
    via_lock(&lock);
    unsigned index = top_free();
    int rc = adopted == 0 && all_count < index ? 0 : -ENOSPC;
    if (rc == 0) {
        all[index] = (struct bell){.fds = {[COLD] = -1, [CALL] = -1}};
        atomic_store_explicit(&all[index].fds[RING], fd, memory_order_relaxed);
        atomic_store_explicit(&adopted, VIA_BELL_MASK(index), memory_order_release);
    }
    via_unlock(&lock);
    return rc;
}

uint64_t via_sock_bells_adopted(void)
{
    return atomic_load_explicit(&adopted, memory_order_acquire) |
           atomic_load_explicit(&inherited, memory_order_relaxed);
}

int via_sock_bell_fd(unsigned index)
{
    return atomic_load_explicit(&all[index].fds[RING], memory_order_relaxed);
}

int via_sock_bell_cold_fd(unsigned index)
{
    return atomic_load_explicit(&all[index].fds[COLD], memory_order_relaxed);
}

void via_sock_bell_fds(unsigned index, int *ret_fds)
{
    for (unsigned i = 0; i < VIA_BELL_EVENTFDS; i++) {
        ret_fds[i] = atomic_load_explicit(&all[index].fds[i], memory_order_relaxed);
    }
    ret_fds[VIA_BELL_EVENTFDS] = atomic_load_explicit(&all[index].page->fd, memory_order_relaxed);
}

uint32_t via_sock_bell_word_index(unsigned index)
{
    return all[index].word_index;
}

/* Removes the lowest bell from a set, and returns its word, or NULL for an adopted bell. */
static struct via_sock_bell_word *next_word(uint64_t *bells)
{
    const struct bell *bell = &all[__builtin_ctzll(*bells)];
    *bells &= *bells - 1;
    return bell->page != NULL ? &bell->page->words[bell->word_index] : NULL;
}

/* The `count` threads begin one sleep together: a peer rings once for it. */
void via_sock_bell_add_sleepers(uint64_t bells, uint32_t count)
{
    while (bells != 0) {
        struct via_sock_bell_word *word = next_word(&bells);
        if (word != NULL) {
            /* Pairs with the fence in via_peer_bell_take_ring(). */
            atomic_fetch_add_explicit(&word->value, (UINT64_C(1) << 32) + count,
                                      memory_order_seq_cst);
        }
    }
}

void via_sock_bell_remove_sleeper(uint64_t bells)
{
    while (bells != 0) {
        struct via_sock_bell_word *word = next_word(&bells);
        if (word != NULL) {
            atomic_fetch_sub_explicit(&word->value, 1, memory_order_relaxed);
        }
    }
}

void via_sock_bell_begin_sleep(uint64_t bells)
{
    uint64_t others = thread_bell > 0 ? bells & ~VIA_BELL_MASK(thread_bell - 1) : bells;
    if (via_unlikely((others & ~atomic_load_explicit(&used_by_others, memory_order_relaxed)) !=
                     0)) {
        atomic_fetch_or_explicit(&used_by_others, others, memory_order_relaxed);
    }
    if ((bells & via_sock_bells_adopted()) != 0) {
        via_fabric_before_sleep();
    }
    atomic_thread_fence(memory_order_seq_cst);
}

void via_sock_bell_enter(struct via_bell_sleep *ret_sleep, uint64_t bells)
{
    *ret_sleep = (struct via_bell_sleep){.bells = bells, .pid = via_os_pid()};
    via_sock_bell_add_sleepers(bells, 1);
    via_sock_bell_begin_sleep(bells);
}

void via_sock_bell_leave(const struct via_bell_sleep *sleep)
{
    if (via_likely(sleep->pid == via_os_pid())) {
        via_sock_bell_remove_sleeper(sleep->bells);
    }
}

bool via_sock_bell_has_sleepers(uint64_t bells)
{
    uint32_t sleepers = 0;
    while (bells != 0) {
        struct via_sock_bell_word *word = next_word(&bells);
        sleepers |=
            word != NULL ? (uint32_t)atomic_load_explicit(&word->value, memory_order_seq_cst) : 0;
    }
    return sleepers != 0;
}

void via_sock_bell_rearm(uint64_t bells)
{
    via_sock_bell_add_sleepers(bells, 0);
    atomic_thread_fence(memory_order_seq_cst);
}

static void ring(int fd)
{
    VIA_KEEP_ERRNO;
    via_sys_bell_ring(fd);
}

void via_sock_bell_ring(unsigned index)
{
    ring(via_sock_bell_fd(index));
}

void via_sock_bell_forked(void)
{
    via_lock_reset(&lock);
    first_own = all_count;
    next_shared = 0;
    thread_bell = 0;
    is_second_bell = false;
    used_by_others = 0;
    inherited |= adopted;
    adopted = 0;
    if (calls > 0) {
        via_hidden_close(&calls); /* it is the parent's */
    }
    if (timer > 0) {
        via_hidden_close(&timer);
    }
}

/* The page is the peer's. If the peer could shrink the file, a read would end this process by
 * SIGBUS (mmap(2)), so it must be sealed (memfd_create(2)). */
static void *map_page(int fd)
{
    uint64_t bytes;
    if (!via_os_is_safe_memory(fd, &bytes) || bytes != PAGE) {
        return NULL;
    }
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

/* To ring a bell is also to read its eventfd, and a read would consume bytes of a pipe, a socket or
 * a file. So only descriptors without a file type are accepted: an eventfd has none, like every
 * anonymous inode of the kernel. */
static bool are_nameless(const int *fds)
{
    for (unsigned i = 0; i < VIA_BELL_EVENTFDS; i++) {
        struct stat stat;
        if (fstat(fds[i], &stat) != 0 || (stat.st_mode & S_IFMT) != 0) {
            return false;
        }
    }
    return true;
}

static void close_fds(const int *fds)
{
    for (unsigned i = 0; i < VIA_BELL_FDS; i++) {
        VIA_REAL(close)(fds[i]);
    }
}

/* Takes ownership of the eventfds, and hides them from the program. */
static int hide_eventfds(struct via_peer_bell *bell, const int *fds)
{
    int rc = 0;
    for (unsigned i = 0; i < VIA_BELL_EVENTFDS; i++) {
        if (rc != 0) {
            VIA_REAL(close)(fds[i]);
            continue;
        }
        rc = via_hidden_new(fds[i], &bell->fds[i]);
        if (rc != 0) {
            close_hidden(bell->fds, i);
        }
    }
    return rc;
}

static uint64_t inode_of(int fd)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 ? stat.st_ino : 0;
}

/* Compares two descriptors of this process by kcmp(2). *ret_unknown: the kernel does not support
 * that. */
static bool are_same_file(int one, int other, bool *ret_unknown)
{
    long pid = getpid();
    long order = syscall(SYS_kcmp, pid, pid, KCMP_FILE, one, other);
    *ret_unknown |= order < 0;
    return order == 0;
}

/* True if these descriptors are those of the bell. */
static bool is_bell(const struct via_peer_bell *bell, const int *fds, uint64_t page_inode,
                    uint32_t word_index, pid_t pid)
{
    bool same = bell->page_inode == page_inode &&
                bell->word - (const struct via_sock_bell_word *)bell->page == (ptrdiff_t)word_index;
    bool unknown = false;
    for (unsigned i = 0; same && !unknown && i < VIA_BELL_EVENTFDS; i++) {
        same = are_same_file(atomic_load_explicit(&bell->fds[i], memory_order_relaxed), fds[i],
                             &unknown) ||
               unknown;
    }
    return same && (!unknown || (pid != 0 && bell->pid == pid));
}

static struct via_peer_bell *peer_new(const int *fds, uint64_t page_inode, uint32_t word_index,
                                      pid_t pid)
{
    struct via_peer_bell *bell = NULL;
    void *page = NULL;
    if (word_index < PAGE_WORDS && are_nameless(fds)) {
        page = map_page(fds[VIA_BELL_EVENTFDS]);
    }
    if (page != NULL) {
        bell = via_pool_get(&peer_pool);
    }
    if (bell == NULL) {
        close_fds(fds);
    } else {
        VIA_REAL(close)(fds[VIA_BELL_EVENTFDS]);
    }
    if (bell == NULL || hide_eventfds(bell, fds) != 0) {
        if (page != NULL) {
            munmap(page, PAGE);
        }
        via_pool_put(&peer_pool, bell);
        return NULL;
    }
    bell->rung = 0;
    bell->page = page;
    bell->word = (const struct via_sock_bell_word *)page + word_index;
    bell->refs = 1;
    bell->page_inode = page_inode;
    bell->pid = pid;
    bell->next = peers;
    peers = bell;
    return bell;
}

struct via_peer_bell *via_peer_bell_get(const int *fds, uint32_t word_index, pid_t pid)
{
    VIA_KEEP_ERRNO;
    uint64_t page_inode = inode_of(fds[VIA_BELL_EVENTFDS]);
    via_lock(&lock);
    struct via_peer_bell *bell = peers;
    while (bell != NULL && !is_bell(bell, fds, page_inode, word_index, pid)) {
        bell = bell->next;
    }
    if (bell != NULL) {
        bell->refs++;
        close_fds(fds);
    } else {
        bell = peer_new(fds, page_inode, word_index, pid);
    }
    via_unlock(&lock);
    return bell;
}

void via_peer_bell_put(struct via_peer_bell *bell)
{
    if (bell == NULL) {
        return;
    }
    via_lock(&lock);
    if (--bell->refs == 0) {
        struct via_peer_bell **link = &peers;
        while (*link != bell) {
            link = &(*link)->next;
        }
        *link = bell->next;
        close_hidden(bell->fds, VIA_BELL_EVENTFDS);
        munmap(bell->page, PAGE);
        via_pool_put(&peer_pool, bell);
    }
    via_unlock(&lock);
}

void via_peer_bell_ring(struct via_peer_bell *bell, bool cold)
{
    ring(atomic_load_explicit(&bell->fds[RING], memory_order_relaxed));
    if (cold) {
        ring(atomic_load_explicit(&bell->fds[COLD], memory_order_relaxed));
    }
}

void via_peer_bell_call(struct via_peer_bell *bell)
{
    ring(atomic_load_explicit(&bell->fds[CALL], memory_order_relaxed));
}
