/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A libfabric.so.1 in front of the real one, by LD_LIBRARY_PATH: completions of sends, writes and
 * reads come late and in any order among themselves and among receives, which stay in order and are
 * late, too. So the ofi port itself runs as with a slow adapter. OFI_SHUFFLE_SEED determines the
 * random numbers, but not the times at which threads call.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#define HELD_MAX 1024
#define BATCH 16
#define SEND_NS_MAX 2000000
#define RECEIVE_NS_MAX 200000

struct held {
    struct fi_cq_msg_entry entry;
    uint64_t due_ns;
};

/* A completion queue, and the entries that were read from it and not returned yet. */
struct queue {
    struct queue *next;
    struct fid_cq *cq;
    struct fi_ops_cq ops, *real_ops;
    struct fi_ops fid_ops, *real_fid_ops;
    struct held held[HELD_MAX];
    size_t count;
    uint64_t receive_ns; /* when the last receive is due */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue *queues;
static uint64_t state;
static struct fi_ops_fabric fabric_ops, *real_fabric_ops;
static struct fi_ops_domain domain_ops, *real_domain_ops;

/* --- the real one ----------------------------------------------------------------------------- */

static void *real(const char *name, const char *version)
{
    static void *handle;

    if (!handle)
        handle = dlopen(REAL_LIBFABRIC, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = handle ? dlvsym(handle, name, version) : NULL;
    if (!symbol) {
        fprintf(stderr, "shuffled libfabric: %s: %s\n", name, dlerror());
        abort();
    }
    return symbol;
}

uint32_t fi_version(void)
{
    uint32_t (*call)(void) = real("fi_version", "FABRIC_1.0");
    return call();
}

const char *fi_strerror(int code)
{
    const char *(*call)(int) = real("fi_strerror", "FABRIC_1.0");
    return call(code);
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
               const struct fi_info *hints, struct fi_info **info)
{
    int (*call)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
                struct fi_info **) = real("fi_getinfo", "FABRIC_1.3");
    return call(version, node, service, flags, hints, info);
}

void fi_freeinfo(struct fi_info *info)
{
    void (*call)(struct fi_info *) = real("fi_freeinfo", "FABRIC_1.3");
    call(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    struct fi_info *(*call)(const struct fi_info *) = real("fi_dupinfo", "FABRIC_1.3");
    return call(info);
}

/* --- chance and time: [lock] ------------------------------------------------------------------ */

static uint64_t draw(uint64_t below)
{
    const char *seed = getenv("OFI_SHUFFLE_SEED");

    if (state == 0)
        state = (seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL)) * 2 + 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- queues ----------------------------------------------------------------------------------- */

static struct queue *queue_of(const struct fid *fid)
{
    struct queue *queue = queues;

    while (queue && &queue->cq->fid != fid)
        queue = queue->next;
    return queue;
}

static bool is_receive(const struct held *held)
{
    return (held->entry.flags & FI_RECV) != 0;
}

static void hold(struct queue *queue, const struct fi_cq_msg_entry *entry, uint64_t now)
{
    struct held *held = &queue->held[queue->count++];

    held->entry = *entry;
    held->due_ns = now + draw(is_receive(held) ? RECEIVE_NS_MAX : SEND_NS_MAX);
    if (!is_receive(held))
        return;
    if (held->due_ns < queue->receive_ns)
        held->due_ns = queue->receive_ns;
    queue->receive_ns = held->due_ns;
}

/* Takes any due entry, but of the receives only the first. */
static bool take(struct queue *queue, uint64_t now, struct fi_cq_msg_entry *ret_entry)
{
    size_t first = queue->count > 0 ? draw(queue->count) : 0;

    for (size_t i = 0; i < queue->count; i++) {
        size_t at = (first + i) % queue->count;
        for (size_t k = 0; k < at && is_receive(&queue->held[at]); k++)
            if (is_receive(&queue->held[k]))
                at = k;
        if (queue->held[at].due_ns > now)
            continue;
        *ret_entry = queue->held[at].entry;
        queue->count--;
        memmove(&queue->held[at], &queue->held[at + 1],
                (queue->count - at) * sizeof(queue->held[0]));
        return true;
    }
    return false;
}

static ssize_t read_queue(struct fid_cq *cq, void *buf, size_t count)
{
    struct fi_cq_msg_entry batch[BATCH], *out = buf;
    ssize_t got = 0, given = 0;

    pthread_mutex_lock(&lock);
    struct queue *queue = queue_of(&cq->fid);
    uint64_t now = now_ns();
    while (queue->count + BATCH <= HELD_MAX && (got = queue->real_ops->read(cq, batch, BATCH)) > 0)
        for (ssize_t i = 0; i < got; i++)
            hold(queue, &batch[i], now);
    while (given < (ssize_t)count && take(queue, now, &out[given]))
        given++;
    pthread_mutex_unlock(&lock);
    if (given > 0)
        return given;
    return got < 0 ? got : -FI_EAGAIN;
}

static int close_queue(struct fid *fid)
{
    pthread_mutex_lock(&lock);
    struct queue **at = &queues;
    while (&(*at)->cq->fid != fid)
        at = &(*at)->next;
    struct queue *queue = *at;
    struct fi_ops *real_fid_ops = queue->real_fid_ops;
    int result = real_fid_ops->close(fid);
    if (result == 0) {
        *at = queue->next;
        free(queue);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int open_queue(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                      void *context)
{
    int result = real_domain_ops->cq_open(domain, attr, cq, context);

    if (result != 0 || attr->format != FI_CQ_FORMAT_MSG)
        return result;
    struct queue *queue = calloc(1, sizeof(*queue));
    if (!queue)
        abort();
    queue->cq = *cq;
    queue->real_ops = (*cq)->ops;
    queue->ops = *queue->real_ops;
    queue->ops.read = read_queue;
    queue->real_fid_ops = (*cq)->fid.ops;
    queue->fid_ops = *queue->real_fid_ops;
    queue->fid_ops.close = close_queue;
    pthread_mutex_lock(&lock);
    (*cq)->ops = &queue->ops;
    (*cq)->fid.ops = &queue->fid_ops;
    queue->next = queues;
    queues = queue;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* No thread may sleep on a queue of which entries are held. */
static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    bool held = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        const struct queue *queue = fids[i]->fclass == FI_CLASS_CQ ? queue_of(fids[i]) : NULL;
        held |= queue && queue->count > 0;
    }
    pthread_mutex_unlock(&lock);
    return held ? -FI_EAGAIN : real_fabric_ops->trywait(fabric, fids, count);
}

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
                       void *context)
{
    int result = real_fabric_ops->domain(fabric, info, domain, context);

    if (result != 0)
        return result;
    pthread_mutex_lock(&lock);
    /* One provider at a time: its domains have the same calls. */
    if ((*domain)->ops != &domain_ops) {
        real_domain_ops = (*domain)->ops;
        domain_ops = *real_domain_ops;
        domain_ops.cq_open = open_queue;
        (*domain)->ops = &domain_ops;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    int (*call)(struct fi_fabric_attr *, struct fid_fabric **, void *) =
        real("fi_fabric", "FABRIC_1.1");
    int result = call(attr, fabric, context);

    if (result != 0)
        return result;
    pthread_mutex_lock(&lock);
    if ((*fabric)->ops != &fabric_ops) {
        real_fabric_ops = (*fabric)->ops;
        fabric_ops = *real_fabric_ops;
        fabric_ops.domain = open_domain;
        fabric_ops.trywait = try_wait;
        (*fabric)->ops = &fabric_ops;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
