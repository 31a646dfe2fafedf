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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct bell {
    _Atomic int fd;
    _Atomic int page_fd;
    struct via_sock_bell_word *word; /* NULL: an adopted one */
    uint64_t id;
};

static struct bell own_bells[VIA_BELLS_MAX];
static _Atomic unsigned bells;
static int own = -1;

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

#define PAGE 4096u

/* The word's page: we keep the only mapping that can write. */
static int make_page(struct bell *bell)
{
    int fd = memfd_create("viaduct-bell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    void *page = MAP_FAILED;
    if (ftruncate(fd, PAGE) == 0) {
        page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (page == MAP_FAILED ||
        VIA_REAL(fcntl)(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0) {
        int error = errno;
        VIA_REAL(close)(fd);
        return -error;
    }
    bell->word = page;
    return via_hidden_new(fd, &bell->page_fd);
}

static int make_own(void)
{
    unsigned index = atomic_load_explicit(&bells, memory_order_relaxed);
    if (index == VIA_BELLS_MAX) {
        return -ENOSPC;
    }
    struct bell *bell = &own_bells[index];
    int rc = make_page(bell);
    if (rc != 0) {
        return rc;
    }
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = fd < 0 ? -errno : via_hidden_new(fd, &bell->fd);
    if (rc != 0) {
        via_hidden_close(&bell->page_fd);
        return rc;
    }
    bell->id = random_id();
    /* Pairs with the acquire in via_sock_bell_count(). */
    atomic_store_explicit(&bells, index + 1, memory_order_release);
    own = (int)index;
    return own;
}

int via_sock_bell_own(void)
{
    pthread_mutex_lock(&lock);
    int rc = own >= 0 ? own : make_own();
    pthread_mutex_unlock(&lock);
    return rc;
}

int via_sock_bell_adopt(int fd)
{
    pthread_mutex_lock(&lock);
    unsigned index = atomic_load_explicit(&bells, memory_order_relaxed);
    if (index < VIA_BELLS_MAX) {
        own_bells[index].page_fd = -1;
        atomic_store_explicit(&own_bells[index].fd, fd, memory_order_relaxed);
        atomic_store_explicit(&bells, index + 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return index < VIA_BELLS_MAX ? (int)index : -ENOSPC;
}

unsigned via_sock_bell_count(void)
{
    return atomic_load_explicit(&bells, memory_order_acquire);
}

int via_sock_bell_fd(unsigned index)
{
    return atomic_load_explicit(&own_bells[index].fd, memory_order_relaxed);
}

int via_sock_bell_page_fd(unsigned index)
{
    return atomic_load_explicit(&own_bells[index].page_fd, memory_order_relaxed);
}

uint64_t via_sock_bell_id(unsigned index)
{
    return own_bells[index].id;
}

unsigned via_sock_bell_enter(void)
{
    unsigned count = via_sock_bell_count();
    if (count == 0 && !via_alone() && via_sock_bell_own() >= 0) {
        count = via_sock_bell_count(); /* so that other threads can wake this one, whatever comes */
    }
    for (unsigned i = count; i-- > 0;) {
        if (own_bells[i].word != NULL) {
            /* One more sleep, one more sleeper. Pairs with the fence in via_peer_bell_must_ring().
             */
            atomic_fetch_add_explicit(&own_bells[i].word->value, (UINT64_C(1) << 32) + 1,
                                      memory_order_seq_cst);
        }
    }
    via_fabric_before_sleep();
    atomic_thread_fence(memory_order_seq_cst);
    return count;
}

void via_sock_bell_leave(unsigned count)
{
    for (unsigned i = count; i-- > 0;) {
        if (own_bells[i].word != NULL) {
            atomic_fetch_sub_explicit(&own_bells[i].word->value, 1, memory_order_relaxed);
        }
    }
}

static void ring(int fd)
{
    uint64_t one = 1;
    int saved = errno;
    if (fd >= 0 && VIA_REAL(write)(fd, &one, sizeof(one)) < 0) {
        errno = saved; /* full after 2^64 rings, or gone with its process: nobody to wake */
    }
}

void via_sock_bell_ring(unsigned index)
{
    ring(via_sock_bell_fd(index));
}

void via_sock_bell_forked(void)
{
    pthread_mutex_init(&lock, NULL);
    own = -1;
}

/* The page is the peer's: sealed against shrinking, or reading it could be the end of us. */
static const struct via_sock_bell_word *map_page(int fd)
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

static struct via_peer_bell *peer_new(uint64_t id, int fd, int page_fd)
{
    struct via_peer_bell *bell = via_pool_get(&peer_pool);
    const struct via_sock_bell_word *word = map_page(page_fd);
    if (bell == NULL || word == NULL || via_hidden_new(fd, &bell->fd) != 0) {
        if (bell == NULL || word == NULL) {
            VIA_REAL(close)(fd);
        }
        if (word != NULL) {
            munmap((void *)(uintptr_t)word, PAGE);
        }
        via_pool_put(&peer_pool, bell);
        return NULL;
    }
    bell->rung = 0;
    bell->word = word;
    bell->refs = 1;
    bell->id = id;
    bell->next = peers;
    peers = bell;
    return bell;
}

struct via_peer_bell *via_peer_bell_get(uint64_t id, int fd, int page_fd)
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
        bell = peer_new(id, fd, page_fd);
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
        munmap((void *)(uintptr_t)bell->word, PAGE);
        via_pool_put(&peer_pool, bell);
    }
    pthread_mutex_unlock(&lock);
}

void via_peer_bell_ring(struct via_peer_bell *bell)
{
    ring(atomic_load_explicit(&bell->fd, memory_order_relaxed));
}
