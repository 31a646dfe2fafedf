/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "vfio/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GUARDS_MAX 512u
#define ONES_BYTES ((size_t)65536)

struct guard {
    _Atomic uintptr_t at; /* 0: free. Release in add, acquire in the handler */
    _Atomic size_t bytes;
    _Atomic bool hit;
};

static struct guard guards[GUARDS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;
static int ones_fd = -1;
static struct sigaction before;

/* The raw system call, because a signal handler may call only async-signal-safe functions. */
static bool show_ones(uintptr_t at, size_t bytes)
{
    for (size_t off = 0; off < bytes; off += ONES_BYTES) {
        size_t chunk = via_min(bytes - off, ONES_BYTES);
        if (syscall(SYS_mmap, at + off, chunk, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, ones_fd, 0L) == -1) {
            return false;
        }
    }
    return true;
}

static bool turn_into_ones(uintptr_t address)
{
    for (unsigned i = 0; i < GUARDS_MAX; i++) {
        uintptr_t at = atomic_load_explicit(&guards[i].at, memory_order_acquire);
        size_t bytes = atomic_load_explicit(&guards[i].bytes, memory_order_relaxed);
        if (at != 0 && address >= at && address - at < bytes) {
            atomic_store_explicit(&guards[i].hit, true, memory_order_relaxed);
            return show_ones(at, bytes);
        }
    }
    return false;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;
    if (turn_into_ones((uintptr_t)info->si_addr)) {
        errno = error;
        return; /* the CPU repeats the access */
    }
    errno = error;
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        /* Restores the default action: the repeated access kills the process. A signal that another
         * process sent is raised again. */
        sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0) {
            (void)raise(number);
        }
    }
}

static int install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    unsigned char page[4096];
    if (installed) {
        return 0;
    }
    int fd = memfd_create("viaduct-guard", MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    memset(page, 0xff, sizeof(page));
    for (size_t off = 0; off < ONES_BYTES; off += sizeof(page)) {
        if (pwrite(fd, page, sizeof(page), (off_t)off) != (ssize_t)sizeof(page)) {
            close(fd);
            return -ENOSPC;
        }
    }
    ones_fd = fd;
    if (sigaction(SIGBUS, &action, &before) != 0) {
        return -errno;
    }
    installed = true;
    return 0;
}

int via_guard_add(void *at, size_t bytes, unsigned *ret_guard)
{
    pthread_mutex_lock(&lock);
    int rc = install();
    for (unsigned i = 0; i < GUARDS_MAX && rc == 0; i++) {
        if (atomic_load_explicit(&guards[i].at, memory_order_relaxed) == 0) {
            atomic_store_explicit(&guards[i].hit, false, memory_order_relaxed);
            atomic_store_explicit(&guards[i].bytes, bytes, memory_order_relaxed);
            atomic_store_explicit(&guards[i].at, (uintptr_t)at, memory_order_release);
            *ret_guard = i;
            pthread_mutex_unlock(&lock);
            return 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return rc != 0 ? rc : -ENOSPC;
}

void via_guard_remove(unsigned guard)
{
    atomic_store_explicit(&guards[guard].at, 0, memory_order_release);
}

bool via_guard_take_hit(unsigned guard)
{
    return atomic_exchange_explicit(&guards[guard].hit, false, memory_order_relaxed);
}

bool via_guard_is_hit(unsigned guard)
{
    return atomic_load_explicit(&guards[guard].hit, memory_order_relaxed);
}
