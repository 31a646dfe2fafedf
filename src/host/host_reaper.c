/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_reaper.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/host_private.h"

/* Bytes that one munmap() unmaps, in about a millisecond. While munmap() removes pages from the
 * tables, no other thread of this process can map memory. */
#define SLICE_BYTES (32u << 20)
#define STACK_BYTES (256u << 10)

struct via_reaper {
    struct via_host *host;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;     /* wakes the thread: `waiting` is not empty, or `ending` */
    pthread_cond_t finished; /* wakes via_reaper_free() */
    struct via_list waiting; /* under the lock, as all following fields */
    struct via_list done;
    bool busy;
    bool ending;
    bool abandoned; /* the thread must free this struct */
    _Atomic unsigned fds_count;
};

/* Descriptors without an owner. */
struct stray {
    struct via_reap reap;
    int fds[];
};

/* --- the thread ------------------------------------------------------------------------------- */

static void unmap(struct via_host_memory *memory)
{
    unsigned char *base = memory->base;
    size_t left = base != NULL ? memory->bytes : 0;
    while (left != 0) {
        size_t bytes = via_min(left, (size_t)SLICE_BYTES);
        munmap(base, bytes);
        base += bytes;
        left -= bytes;
    }
    memory->base = NULL;
}

static void close_all(const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

static void give_back(struct via_reap *reap)
{
    unmap(&reap->memory);
    via_host_memory_close_fd(&reap->memory);
    close_all(reap->fds, reap->fds_count);
}

static void free_reaper(struct via_reaper *reaper)
{
    pthread_cond_destroy(&reaper->more);
    pthread_cond_destroy(&reaper->finished);
    pthread_mutex_destroy(&reaper->lock);
    free(reaper);
}

/* Called with the lock, which is released meanwhile. */
static void give_back_first(struct via_reaper *reaper)
{
    struct via_reap *reap =
        via_list_entry(via_list_pop_front(&reaper->waiting), struct via_reap, link);
    reaper->busy = true;
    pthread_mutex_unlock(&reaper->lock);
    give_back(reap);
    pthread_mutex_lock(&reaper->lock);
    reaper->busy = false;
    atomic_fetch_sub_explicit(&reaper->fds_count, reap->fds_count, memory_order_relaxed);
    via_list_push_back(&reaper->done, &reap->link);
    if (!reaper->abandoned) {
        via_host_poke(reaper->host);
    }
}

static void *serve(void *argument)
{
    struct via_reaper *reaper = argument;
    pthread_mutex_lock(&reaper->lock);
    while (!reaper->abandoned && !(reaper->ending && via_list_is_empty(&reaper->waiting))) {
        if (via_list_is_empty(&reaper->waiting)) {
            pthread_cond_wait(&reaper->more, &reaper->lock);
        } else {
            give_back_first(reaper);
        }
    }
    bool abandoned = reaper->abandoned;
    pthread_cond_signal(&reaper->finished);
    pthread_mutex_unlock(&reaper->lock);
    if (abandoned) {
        free_reaper(reaper);
    }
    return NULL;
}

/* --- the control thread ----------------------------------------------------------------------- */

static int start_thread(struct via_reaper *reaper)
{
    pthread_attr_t attr;
    sigset_t all;
    sigset_t old;
    pthread_attr_init(&attr);
    size_t stack_bytes = via_max((size_t)STACK_BYTES, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    pthread_attr_setstacksize(&attr, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&reaper->thread, &attr, serve, reaper);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return -code;
}

int via_reaper_new(struct via_host *host, struct via_reaper **ret_reaper, struct via_error *err)
{
    struct via_reaper *reaper = calloc(1, sizeof(*reaper));
    if (reaper == NULL) {
        return via_error_set(err, -ENOMEM, "reaper thread: %s", strerror(ENOMEM));
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    reaper->host = host;
    pthread_mutex_init(&reaper->lock, NULL);
    pthread_cond_init(&reaper->more, NULL);
    pthread_cond_init(&reaper->finished, &attr);
    pthread_condattr_destroy(&attr);
    via_list_init(&reaper->waiting);
    via_list_init(&reaper->done);
    int rc = start_thread(reaper);
    if (rc != 0) {
        free_reaper(reaper);
        return via_error_set(err, rc, "reaper thread: pthread_create: %s", strerror(-rc));
    }
    char name[16];
    snprintf(name, sizeof(name), "via-%u-reap", host->config.host);
    pthread_setname_np(reaper->thread, name);
    *ret_reaper = reaper;
    return 0;
}

void via_reaper_add(struct via_reaper *reaper, struct via_reap *reap)
{
    atomic_fetch_add_explicit(&reaper->fds_count, reap->fds_count, memory_order_relaxed);
    pthread_mutex_lock(&reaper->lock);
    via_list_push_back(&reaper->waiting, &reap->link);
    pthread_cond_signal(&reaper->more);
    pthread_mutex_unlock(&reaper->lock);
}

static void free_stray(struct via_host *host, struct via_reap *reap)
{
    (void)host;
    free(via_container_of(reap, struct stray, reap));
}

void via_reaper_add_fds(struct via_reaper *reaper, const int *fds, unsigned fds_count)
{
    unsigned count = 0;
    for (unsigned i = 0; i < fds_count; i++) {
        count += fds[i] >= 0;
    }
    if (count == 0) {
        return;
    }
    struct stray *stray = malloc(sizeof(*stray) + fds_count * sizeof(int));
    if (stray == NULL) {
        close_all(fds, fds_count);
        return;
    }
    memcpy(stray->fds, fds, fds_count * sizeof(int));
    stray->reap = (struct via_reap){
        .memory.fd = -1, .fds = stray->fds, .fds_count = fds_count, .done = free_stray};
    via_reaper_add(reaper, &stray->reap);
}

void via_reaper_tick(struct via_reaper *reaper)
{
    struct via_list done;
    via_list_init(&done);
    pthread_mutex_lock(&reaper->lock);
    via_list_splice_back(&done, &reaper->done);
    pthread_mutex_unlock(&reaper->lock);
    for (struct via_list *link; (link = via_list_pop_front(&done)) != NULL;) {
        struct via_reap *reap = via_list_entry(link, struct via_reap, link);
        reap->done(reaper->host, reap);
    }
}

unsigned via_reaper_fds_count(const struct via_reaper *reaper)
{
    return atomic_load_explicit(&reaper->fds_count, memory_order_relaxed);
}

bool via_reaper_free(struct via_reaper *reaper, uint64_t wait_ns)
{
    if (reaper == NULL) {
        return true;
    }
    uint64_t until_ns = via_host_now_ns() + wait_ns;
    struct timespec until = {.tv_sec = (time_t)(until_ns / VIA_SEC_NS),
                             .tv_nsec = (long)(until_ns % VIA_SEC_NS)};
    int code = 0;
    pthread_mutex_lock(&reaper->lock);
    reaper->ending = true;
    pthread_cond_signal(&reaper->more);
    while (code == 0 && (reaper->busy || !via_list_is_empty(&reaper->waiting))) {
        code = pthread_cond_timedwait(&reaper->finished, &reaper->lock, &until);
    }
    reaper->abandoned = reaper->busy || !via_list_is_empty(&reaper->waiting);
    bool abandoned = reaper->abandoned;
    pthread_t thread = reaper->thread;
    pthread_mutex_unlock(&reaper->lock);
    if (abandoned) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    via_reaper_tick(reaper);
    free_reaper(reaper);
    return true;
}
