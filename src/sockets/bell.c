/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sockets/fabric.h"
#include "sockets/fds.h"
#include "sockets/pool.h"
#include "sockets/real.h"

#define PEERS_MAX 65536u

#define PAGE 4096u
#define PAGE_WORDS (PAGE / sizeof(struct via_sock_bell_word))
#define PAGES_MAX 16u
/* Threads beyond that share. */
#define OWN_MAX 32u

/* Words of the bells that one process makes. */
struct page {
    _Atomic int fd;
    struct via_sock_bell_word *words;
    unsigned used;
};

struct bell {
    _Atomic int fd;
    const struct page *page; /* NULL: an adopted one */
    uint32_t word_index;
    uint64_t id;
    _Atomic uint32_t cold_rings; /* taken out of the eventfd */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page pages[PAGES_MAX]; /* the last is this process's, those before its ancestors' */
static unsigned pages_count;
static struct bell all[VIA_BELLS_MAX];
static unsigned all_count;
static unsigned first_own; /* index of this process's first */
static _Atomic uint64_t adopted;
static _Atomic uint64_t inherited; /* adopted by ancestors: what they carried rings there */

static __thread int thread_bell __attribute__((tls_model("initial-exec"))); /* index + 1 */
static unsigned next_shared;

static struct via_pool peer_pool = VIA_POOL_INIT(sizeof(struct via_peer_bell), PEERS_MAX);
static struct via_peer_bell *peers;

static uint64_t random_id(void)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id) || id == 0) {
        id = (uint64_t)getpid() << 32 | 1;
    }
    return id;
}

/* The words' page: we keep the only mapping that can write. */
static int make_page(void)
{
    struct page *page = &pages[pages_count];
    if (pages_count == PAGES_MAX) {
        return -ENOSPC;
    }
    int fd = memfd_create("viaduct-bells", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    void *memory = MAP_FAILED;
    if (ftruncate(fd, PAGE) == 0) {
        memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED ||
        VIA_REAL(fcntl)(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0) {
        int error = errno;
        VIA_REAL(close)(fd);
        return -error;
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

static bool has_own_page(void)
{
    return all_count > first_own && all[first_own].page != NULL;
}

/* The highest index that is free: adopted ones begin at the top, so that the process's own are next
 * to each other. */
static unsigned top_free(void)
{
    return VIA_BELLS_MAX - 1 - (unsigned)__builtin_popcountll(via_sock_bells_adopted());
}

/* With the lock. */
static int make_bell(void)
{
    if (all_count >= top_free()) {
        return -ENOSPC;
    }
    int rc = has_own_page() ? 0 : make_page();
    if (rc != 0) {
        return rc;
    }
    struct bell *bell = &all[all_count];
    struct page *page = &pages[pages_count - 1];
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = fd < 0 ? -errno : via_hidden_new(fd, &bell->fd);
    if (rc != 0) {
        return rc;
    }
    bell->page = page;
    bell->word_index = page->used++;
    bell->id = random_id();
    return (int)all_count++;
}

int via_sock_bell_of_thread(void)
{
    if (thread_bell > 0) {
        return thread_bell - 1;
    }
    pthread_mutex_lock(&lock);
    unsigned own = all_count - first_own;
    int rc = own < OWN_MAX ? make_bell() : -ENOSPC;
    if (rc < 0 && own > 0) {
        rc = (int)(first_own + next_shared++ % own);
        rc = all[rc].page != NULL ? rc : (int)first_own;
    }
    pthread_mutex_unlock(&lock);
    if (rc >= 0) {
        thread_bell = rc + 1;
    }
    return rc;
}

int via_sock_bell_adopt(int fd)
{
    pthread_mutex_lock(&lock);
    unsigned index = top_free();
    int rc = adopted == 0 && all_count < index ? 0 : -ENOSPC;
    if (rc == 0) {
        all[index] = (struct bell){.page = NULL};
        atomic_store_explicit(&all[index].fd, fd, memory_order_relaxed);
        atomic_store_explicit(&adopted, VIA_BELL_MASK(index), memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

uint64_t via_sock_bells_adopted(void)
{
    return atomic_load_explicit(&adopted, memory_order_acquire) |
           atomic_load_explicit(&inherited, memory_order_relaxed);
}

int via_sock_bell_fd(unsigned index)
{
    return atomic_load_explicit(&all[index].fd, memory_order_relaxed);
}

int via_sock_bell_page_fd(unsigned index)
{
    return atomic_load_explicit(&all[index].page->fd, memory_order_relaxed);
}

uint32_t via_sock_bell_word_index(unsigned index)
{
    return all[index].word_index;
}

uint64_t via_sock_bell_id(unsigned index)
{
    return all[index].id;
}

/* The word of the lowest bell of a set, NULL for an adopted one; takes it out of the set. */
static struct via_sock_bell_word *next_word(uint64_t *bells)
{
    const struct bell *bell = &all[__builtin_ctzll(*bells)];
    *bells &= *bells - 1;
    return bell->page != NULL ? &bell->page->words[bell->word_index] : NULL;
}

void via_sock_bell_enter(uint64_t bells)
{
    bool attached = (bells & via_sock_bells_adopted()) != 0;
    while (bells != 0) {
        struct via_sock_bell_word *word = next_word(&bells);
        if (word != NULL) {
            /* One more sleep, one more sleeper. Pairs with the fence in via_peer_bell_must_ring().
             */
            atomic_fetch_add_explicit(&word->value, (UINT64_C(1) << 32) + 1, memory_order_seq_cst);
        }
    }
    if (attached) {
        via_fabric_before_sleep();
    }
    atomic_thread_fence(memory_order_seq_cst);
}

void via_sock_bell_leave(uint64_t bells)
{
    while (bells != 0) {
        struct via_sock_bell_word *word = next_word(&bells);
        if (word != NULL) {
            atomic_fetch_sub_explicit(&word->value, 1, memory_order_relaxed);
        }
    }
}

/* What a ring adds to the eventfd: rings for cold connections count in the upper half. */
#define RING UINT64_C(1)
#define RING_COLD (UINT64_C(1) << 32)

/* Against who fills it again and again: it is rung by that, too. */
#define RING_TRIES 8

static void ring(int fd, uint64_t what)
{
    int saved = errno;
    uint64_t rung;
    for (int tries = 0; fd >= 0 && tries < RING_TRIES; tries++) {
        if (VIA_REAL(write)(fd, &what, sizeof(what)) >= 0 || errno != EAGAIN) {
            break; /* or gone with its process: nobody to wake */
        }
        /* Full: another peer of its owner's has seen to that, as it would have taken 2^32 rings.
         * What is lost with it may have been for cold connections. */
        (void)!VIA_REAL(read)(fd, &rung, sizeof(rung));
        what = RING_COLD;
    }
    errno = saved;
}

uint32_t via_sock_bell_cold_rings(unsigned index)
{
    struct bell *bell = &all[index];
    uint64_t rung = 0;
    int saved = errno;
    if (VIA_REAL(read)(via_sock_bell_fd(index), &rung, sizeof(rung)) == (ssize_t)sizeof(rung) &&
        rung >= RING_COLD) {
        atomic_fetch_add_explicit(&bell->cold_rings, 1, memory_order_relaxed);
    }
    errno = saved;
    return atomic_load_explicit(&bell->cold_rings, memory_order_relaxed);
}

void via_sock_bell_ring(unsigned index)
{
    ring(via_sock_bell_fd(index), RING);
}

void via_sock_bell_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    first_own = all_count;
    next_shared = 0;
    thread_bell = 0;
    inherited |= adopted;
    adopted = 0;
}

/* The page is the peer's: sealed against shrinking, or reading it could be the end of us. */
static void *map_page(int fd)
{
    struct stat stat;
    int seals = VIA_REAL(fcntl)(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &stat) != 0 ||
        stat.st_size != PAGE) {
        return NULL;
    }
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

static struct via_peer_bell *peer_new(uint64_t id, int fd, int page_fd, uint32_t word_index)
{
    struct via_peer_bell *bell = via_pool_get(&peer_pool);
    void *page = word_index < PAGE_WORDS ? map_page(page_fd) : NULL;
    if (bell == NULL || page == NULL || via_hidden_new(fd, &bell->fd) != 0) {
        if (bell == NULL || page == NULL) {
            VIA_REAL(close)(fd);
        }
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
    bell->id = id;
    bell->next = peers;
    peers = bell;
    return bell;
}

struct via_peer_bell *via_peer_bell_get(uint64_t id, int fd, int page_fd, uint32_t word_index)
{
    pthread_mutex_lock(&lock);
    struct via_peer_bell *bell = peers;
    while (bell != NULL && bell->id != id) {
        bell = bell->next;
    }
    if (bell != NULL) {
        bell->refs++;
        VIA_REAL(close)(fd);
    } else {
        bell = peer_new(id, fd, page_fd, word_index);
    }
    VIA_REAL(close)(page_fd);
    pthread_mutex_unlock(&lock);
    return bell;
}

void via_peer_bell_put(struct via_peer_bell *bell)
{
    if (bell == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (--bell->refs == 0) {
        struct via_peer_bell **link = &peers;
        while (*link != bell) {
            link = &(*link)->next;
        }
        *link = bell->next;
        via_hidden_close(&bell->fd);
        munmap(bell->page, PAGE);
        via_pool_put(&peer_pool, bell);
    }
    pthread_mutex_unlock(&lock);
}

void via_peer_bell_ring(struct via_peer_bell *bell, bool cold)
{
    ring(atomic_load_explicit(&bell->fd, memory_order_relaxed), cold ? RING_COLD : RING);
}
