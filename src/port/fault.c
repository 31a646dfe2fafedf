/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "port/fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define MILLION 1000000u
#define ALL_ONES UINT32_MAX
#define DELAY_NS_DEFAULT VIA_MSEC_NS
#define HELD_BYTES_DEFAULT ((size_t)256 << 10)
#define HELD_MAX 1024u
#define DMA_MAX 64u
#define DOORBELL UINT64_MAX /* as the length of a held entry */

/* The queue and the kind of a posted write: commit() or body(). */
struct post {
    unsigned queue;
    bool commit;
};

/* A posted write or a doorbell that has not arrived yet. */
struct held {
    uint64_t due_ns;
    uint64_t off; /* or the doorbell's bit */
    uint64_t len; /* or DOORBELL */
    size_t data;  /* offset in `bytes` */
    struct post post;
};

enum dma_state {
    DMA_PASSED = 0, /* started at the wrapped port */
    DMA_HUNG,
    DMA_OVER, /* ended, with a result of the fault port */
};

struct dma {
    uint64_t cookie;
    unsigned queue;
    enum dma_state state;
    int result;
    uint64_t cuts; /* stats.cuts at the start */
};

struct fence {
    bool under_way;
    uint64_t cuts; /* stats.cuts at the start */
};

struct fault_port {
    struct via_port base;
    struct via_port *inner;
    struct via_fault_plan plan;

    pthread_mutex_t lock; /* of all below */
    struct via_rng rng;
    uint64_t now_ns;  /* of the last pump */
    size_t step;      /* next of the script */
    uint64_t hold_ns; /* VIA_FAULT_HOLD */
    bool tear_next, drop_next, double_next, dma_fail_next, dma_hang_next;

    bool down;
    bool cut_due; /* plan.cut and the scratchpads wait for the control thread */
    uint64_t mend_ns;
    uint64_t edges;

    struct held held[HELD_MAX];
    unsigned held_count;
    unsigned flushed; /* how many of them must arrive before a doorbell that rings now */
    unsigned char *bytes;
    size_t bytes_used;
    struct dma dmas[DMA_MAX]; /* under way */
    unsigned dmas_count;
    struct fence fences[VIA_PORT_QUEUES];
    uint32_t again; /* doorbells that come a second time */
    unsigned again_queue;
    uint64_t again_ns;
    struct via_fault_stats stats;
};

static struct fault_port *fault_of(struct via_port *port)
{
    return via_container_of(port, struct fault_port, base);
}

static bool is_drawn(struct fault_port *fault, uint32_t in_a_million)
{
    /* Draws no number if the chance is 0. So a new kind of fault, if it is off, does not change the
     * faults of existing seeds. */
    return in_a_million != 0 && via_rng_chance(&fault->rng, in_a_million, MILLION);
}

static bool take_flag(bool *flag)
{
    bool was = *flag;
    *flag = false;
    return was;
}

/* --- held posts and doorbells --- */

static void pass(struct fault_port *fault, struct post post, uint64_t off, const void *src,
                 size_t len)
{
    const struct via_port_ops *ops = fault->inner->ops;
    (post.commit ? ops->commit : ops->body)(fault->inner, post.queue, off, src, len);
}

static void arrive(struct fault_port *fault, const struct held *held)
{
    struct via_port *inner = fault->inner;
    if (held->len == DOORBELL) {
        inner->ops->flush(inner, held->post.queue); /* earlier writes arrive before the doorbell */
        (void)inner->ops->ring(inner, held->post.queue, (unsigned)held->off);
    } else {
        pass(fault, held->post, held->off, fault->bytes + held->data, held->len);
    }
}

/* The first `count` held entries arrive, in the order of the calls. */
static void arrive_first(struct fault_port *fault, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        arrive(fault, &fault->held[i]);
    }
    memmove(fault->held, fault->held + count, (fault->held_count - count) * sizeof(*fault->held));
    fault->held_count -= count;
    fault->flushed -= via_min(fault->flushed, count);
    if (fault->held_count == 0) {
        fault->bytes_used = 0;
    }
}

static void arrive_due(struct fault_port *fault)
{
    unsigned count = 0;
    while (count < fault->held_count && fault->held[count].due_ns <= fault->now_ns) {
        count++;
    }
    if (count != 0) {
        arrive_first(fault, count);
    }
}

static void ring_again(struct fault_port *fault)
{
    for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS; bit++) {
        if ((fault->again & 1u << bit) != 0) {
            (void)fault->inner->ops->ring(fault->inner, fault->again_queue, bit);
        }
    }
    fault->again = 0;
}

static void hold(struct fault_port *fault, struct post post, uint64_t off, const void *src,
                 uint64_t len, uint64_t delay_ns)
{
    size_t bytes = len == DOORBELL ? 0 : (size_t)len;
    if (fault->held_count == HELD_MAX || fault->plan.held_bytes - fault->bytes_used < bytes) {
        arrive_first(fault, fault->held_count);
    }
    struct held held = {.due_ns = fault->now_ns + delay_ns,
                        .off = off,
                        .len = len,
                        .data = fault->bytes_used,
                        .post = post};
    if (bytes > fault->plan.held_bytes) {
        pass(fault, post, off, src, bytes);
        return;
    }
    if (bytes != 0) {
        memcpy(fault->bytes + fault->bytes_used, src, bytes);
        fault->bytes_used += bytes;
    }
    fault->held[fault->held_count++] = held;
}

/* --- the link --- */

static void set_down(struct fault_port *fault)
{
    if (fault->down) {
        return;
    }
    /* A random older part of the held entries still arrives. */
    unsigned count = (unsigned)via_rng_below(&fault->rng, (uint64_t)fault->held_count + 1);
    arrive_first(fault, count);
    for (unsigned i = 0; i < fault->held_count; i++) {
        fault->stats.puts_lost += fault->held[i].len != DOORBELL;
    }
    fault->held_count = 0;
    fault->flushed = 0;
    fault->bytes_used = 0;
    fault->again = 0;

    fault->down = true;
    fault->cut_due = true;
    fault->mend_ns = VIA_NEVER_NS;
    fault->stats.cuts++;
    if (fault->inner->ops->link_is_up(fault->inner)) {
        fault->edges |= VIA_PORT_EVENT_LINK_DOWN;
    }
}

/* A random outage, which ends without a MEND if down_ns_max is not 0. */
static void set_down_for_a_time(struct fault_port *fault)
{
    set_down(fault);
    if (fault->plan.down_ns_max != 0) {
        fault->mend_ns = fault->now_ns + via_rng_between(&fault->rng, 1, fault->plan.down_ns_max);
    }
}

/* The part of taking the link down that only the control thread may do. */
static void settle_cut(struct fault_port *fault)
{
    if (!take_flag(&fault->cut_due)) {
        return;
    }
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS / 2; i++) {
        unsigned index = fault->base.side * (VIA_PORT_SCRATCHPADS / 2) + i;
        fault->inner->ops->scratchpad_write(fault->inner, index, 0);
    }
    if (fault->plan.cut != NULL) {
        fault->plan.cut(fault->plan.ctx, fault->inner, true);
    }
}

static void set_up(struct fault_port *fault)
{
    if (!fault->down) {
        return;
    }
    settle_cut(fault);
    fault->stats.mends++;
    /* Discards pending doorbells, and edges that this port has already reported. */
    (void)fault->inner->ops->events(fault->inner, UINT64_MAX & ~VIA_PORT_EVENT_DMA_DONE_ANY);
    if (fault->plan.cut != NULL) {
        fault->plan.cut(fault->plan.ctx, fault->inner, false);
    }
    fault->down = false;
    if (fault->inner->ops->link_is_up(fault->inner)) {
        (void)fault->inner->ops->events(fault->inner, VIA_PORT_EVENT_LINK_UP);
        fault->edges |= VIA_PORT_EVENT_LINK_UP;
    }
}

static bool is_up(struct fault_port *fault)
{
    return !fault->down && fault->inner->ops->link_is_up(fault->inner);
}

/* --- operations --- */

/* How many bytes of a torn put arrive: fewer than all, and no part of a word that is stored
 * whole. */
static size_t torn_bytes(struct fault_port *fault, uint64_t off, size_t len)
{
    size_t bytes = (size_t)via_rng_below(&fault->rng, len);
    if (len == sizeof(uint64_t) && off % sizeof(uint64_t) == 0) {
        return 0;
    }
    if (len == VIA_CACHELINE && off % VIA_CACHELINE == 0) {
        return via_min(bytes, VIA_CACHELINE - sizeof(uint64_t));
    }
    return bytes;
}

static void put_locked(struct fault_port *fault, struct post post, uint64_t off, const void *src,
                       size_t len)
{
    bool in_bounds =
        off <= fault->base.caps.window_bytes && len <= fault->base.caps.window_bytes - off;

    fault->stats.puts++;
    if (!fault->down && in_bounds && is_drawn(fault, fault->plan.cut_chance)) {
        set_down_for_a_time(fault);
    }
    if (fault->down) {
        fault->stats.puts_lost++;
        return;
    }
    if (!in_bounds || len == 0) {
        pass(fault, post, off, src, len); /* the wrapped port counts the error */
        return;
    }
    if (take_flag(&fault->tear_next) || is_drawn(fault, fault->plan.tear_chance)) {
        arrive_first(fault, fault->held_count);
        size_t bytes = torn_bytes(fault, off, len);
        if (bytes != 0) {
            pass(fault, (struct post){.queue = post.queue}, off, src, bytes);
        }
        fault->stats.puts_torn++;
        set_down_for_a_time(fault);
        return;
    }
    uint64_t delay_ns = fault->hold_ns;
    if (is_drawn(fault, fault->plan.delay_chance)) {
        delay_ns += via_rng_between(&fault->rng, 1, fault->plan.delay_ns_max);
    }
    if (delay_ns == 0 && fault->held_count == 0) {
        pass(fault, post, off, src, len);
        return;
    }
    fault->stats.puts_held++;
    hold(fault, post, off, src, len, delay_ns);
}

static void put(struct via_port *port, struct post post, uint64_t off, const void *src, size_t len)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    put_locked(fault, post, off, src, len);
    pthread_mutex_unlock(&fault->lock);
}

static void fault_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                       size_t len)
{
    put(port, (struct post){.queue = queue}, off, src, len);
}

static void fault_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                         size_t len)
{
    put(port, (struct post){.queue = queue, .commit = true}, off, src, len);
}

static void fault_flush(struct via_port *port, unsigned queue)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    fault->flushed = fault->held_count;
    fault->inner->ops->flush(fault->inner, queue);
    pthread_mutex_unlock(&fault->lock);
}

static int fault_fence_start(struct via_port *port, unsigned queue)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    int rc = -ENOLINK;
    if (!fault->down) {
        arrive_first(fault, fault->held_count);
        rc = fault->inner->ops->fence_start(fault->inner, queue);
    }
    if (queue < VIA_PORT_QUEUES) {
        fault->fences[queue] = (struct fence){.under_way = rc == 0, .cuts = fault->stats.cuts};
    }
    pthread_mutex_unlock(&fault->lock);
    return rc;
}

static int fault_fence_poll(struct via_port *port, unsigned queue)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    int rc = -EINVAL;
    if (queue < VIA_PORT_QUEUES && fault->fences[queue].under_way) {
        bool same_link = !fault->down && fault->fences[queue].cuts == fault->stats.cuts;
        rc = same_link ? fault->inner->ops->fence_poll(fault->inner, queue) : -ENOLINK;
        fault->fences[queue].under_way = rc == 0;
    }
    pthread_mutex_unlock(&fault->lock);
    return rc;
}

static int ring_locked(struct fault_port *fault, unsigned queue, unsigned bit)
{
    if (!is_up(fault)) {
        return -ENOLINK;
    }
    fault->stats.doorbells++;
    if (take_flag(&fault->drop_next) || is_drawn(fault, fault->plan.drop_chance)) {
        fault->stats.doorbells_dropped++;
        return 0;
    }
    if (take_flag(&fault->double_next) || is_drawn(fault, fault->plan.double_chance)) {
        fault->stats.doorbells_doubled++;
        fault->again |= 1u << bit;
        fault->again_queue = queue;
        fault->again_ns = fault->now_ns + via_rng_between(&fault->rng, 1, fault->plan.delay_ns_max);
    }
    if (fault->flushed != 0) {
        fault->stats.doorbells_held++;
        hold(fault, (struct post){.queue = queue}, bit, NULL, DOORBELL, 0);
        return 0;
    }
    return fault->inner->ops->ring(fault->inner, queue, bit);
}

static int fault_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct fault_port *fault = fault_of(port);
    if (bit >= VIA_PORT_DOORBELLS) {
        return -EINVAL;
    }
    pthread_mutex_lock(&fault->lock);
    int rc = ring_locked(fault, queue, bit);
    pthread_mutex_unlock(&fault->lock);
    return rc;
}

/* --- DMA --- */

static void end_dma(struct fault_port *fault, struct dma *dma, int result)
{
    dma->state = DMA_OVER;
    dma->result = result;
    fault->edges |= VIA_PORT_EVENT_DMA_DONE(dma->queue);
}

/* Draws a fault for a DMA. true: the wrapped port must not start this DMA. */
static bool is_dma_faulted(struct fault_port *fault, struct dma *dma, uint64_t off, const void *src,
                           size_t len)
{
    if (take_flag(&fault->dma_fail_next) || is_drawn(fault, fault->plan.dma_fail_chance)) {
        size_t some = (size_t)via_rng_below(&fault->rng, len);
        fault->inner->ops->body(fault->inner, dma->queue, off, src, some);
        fault->stats.dmas_failed++;
        end_dma(fault, dma, -EIO);
        return true;
    }
    if (take_flag(&fault->dma_hang_next) || is_drawn(fault, fault->plan.dma_hang_chance)) {
        fault->stats.dmas_hung++;
        dma->state = DMA_HUNG;
        return true;
    }
    return false;
}

static int dma_locked(struct fault_port *fault, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie)
{
    struct via_port *inner = fault->inner;
    bool in_bounds =
        off <= fault->base.caps.window_bytes && len <= fault->base.caps.window_bytes - off;

    if (fault->down) {
        return -ENOLINK;
    }
    if (!in_bounds || len == 0) {
        return inner->ops->dma(inner, queue, off, src, len, cookie);
    }
    if (fault->dmas_count >= via_min(DMA_MAX, fault->base.caps.dma_depth)) {
        return -EAGAIN;
    }
    struct dma *dma = &fault->dmas[fault->dmas_count];
    *dma = (struct dma){.cookie = cookie, .queue = queue, .cuts = fault->stats.cuts};
    if (!is_dma_faulted(fault, dma, off, src, len)) {
        int rc = inner->ops->dma(inner, queue, off, src, len, cookie);
        if (rc != 0) {
            return rc;
        }
    }
    fault->dmas_count++;
    fault->stats.dmas++;
    return 0;
}

/* Frees the entry of an ended DMA, and returns its result, or -ENOLINK if the link was down
 * meanwhile. */
static int dma_result(struct fault_port *fault, struct dma *dma, int result)
{
    bool was_down = fault->down || dma->cuts != fault->stats.cuts;
    *dma = fault->dmas[--fault->dmas_count];
    return was_down ? -ENOLINK : result;
}

static unsigned take_own(struct fault_port *fault, unsigned queue, uint64_t *ret_cookies,
                         int *ret_results, unsigned max)
{
    unsigned count = 0;
    for (unsigned i = 0; i < fault->dmas_count && count < max;) {
        struct dma *dma = &fault->dmas[i];
        if (dma->queue != queue || dma->state != DMA_OVER) {
            i++;
            continue;
        }
        ret_cookies[count] = dma->cookie;
        ret_results[count++] = dma_result(fault, dma, dma->result);
    }
    return count;
}

static unsigned take_passed(struct fault_port *fault, unsigned queue, uint64_t *ret_cookies,
                            int *ret_results, unsigned max)
{
    unsigned count =
        fault->inner->ops->dma_take(fault->inner, queue, ret_cookies, ret_results, max);
    for (unsigned n = 0; n < count; n++) {
        for (unsigned i = 0; i < fault->dmas_count; i++) {
            struct dma *dma = &fault->dmas[i];
            if (dma->queue == queue && dma->cookie == ret_cookies[n] && dma->state == DMA_PASSED) {
                ret_results[n] = dma_result(fault, dma, ret_results[n]);
                break;
            }
        }
    }
    return count;
}

static int fault_dma(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                     size_t len, uint64_t cookie)
{
    struct fault_port *fault = fault_of(port);
    if (port->caps.dma_depth == 0) {
        return -ENOTSUP;
    }
    pthread_mutex_lock(&fault->lock);
    int rc = dma_locked(fault, queue, off, src, len, cookie);
    pthread_mutex_unlock(&fault->lock);
    return rc;
}

static unsigned fault_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                               int *ret_results, unsigned max)
{
    struct fault_port *fault = fault_of(port);

    if (port->caps.dma_depth == 0) {
        return 0;
    }
    pthread_mutex_lock(&fault->lock);
    unsigned count = take_own(fault, queue, ret_cookies, ret_results, max);
    count += take_passed(fault, queue, ret_cookies + count, ret_results + count, max - count);
    pthread_mutex_unlock(&fault->lock);
    return count;
}

static void fault_dma_abort(struct via_port *port, unsigned queue)
{
    struct fault_port *fault = fault_of(port);
    if (port->caps.dma_depth == 0) {
        return;
    }
    pthread_mutex_lock(&fault->lock);
    for (unsigned i = 0; i < fault->dmas_count; i++) {
        struct dma *dma = &fault->dmas[i];
        if (dma->queue == queue && dma->state == DMA_HUNG) {
            end_dma(fault, dma, -ECANCELED);
        }
    }
    fault->inner->ops->dma_abort(fault->inner, queue);
    pthread_mutex_unlock(&fault->lock);
}

static uint64_t fault_events(struct via_port *port, uint64_t mask)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    uint64_t inner = fault->inner->ops->events(fault->inner, mask);
    if (fault->down) {
        inner &= VIA_PORT_EVENT_DMA_DONE_ANY; /* doorbells are lost, edges were reported when the
                                                 link went down */
    }
    uint64_t events = inner | (fault->edges & mask);
    fault->edges &= ~mask;
    pthread_mutex_unlock(&fault->lock);
    return events;
}

static void fault_rest(struct via_port *port, unsigned queue)
{
    struct via_port *inner = fault_of(port)->inner;
    if (inner->ops->rest != NULL) {
        inner->ops->rest(inner, queue);
    }
}

static bool fault_link_is_up(struct via_port *port)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    bool up = is_up(fault);
    pthread_mutex_unlock(&fault->lock);
    return up;
}

static uint32_t fault_scratchpad_read(struct via_port *port, unsigned index)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    uint32_t value =
        fault->down ? ALL_ONES : fault->inner->ops->scratchpad_read(fault->inner, index);
    pthread_mutex_unlock(&fault->lock);
    return value;
}

static void fault_scratchpad_write(struct via_port *port, unsigned index, uint32_t value)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    if (!fault->down) {
        fault->inner->ops->scratchpad_write(fault->inner, index, value);
    }
    pthread_mutex_unlock(&fault->lock);
}

static void fault_close(struct via_port *port)
{
    struct fault_port *fault = fault_of(port);
    fault->inner->ops->close(fault->inner);
    pthread_mutex_destroy(&fault->lock);
    free(fault->bytes);
    free(fault);
}

static const struct via_port_ops fault_ops = {
    .body = fault_body,
    .commit = fault_commit,
    .flush = fault_flush,
    .fence_start = fault_fence_start,
    .fence_poll = fault_fence_poll,
    .ring = fault_ring,
    .dma = fault_dma,
    .dma_take = fault_dma_take,
    .dma_abort = fault_dma_abort,
    .events = fault_events,
    .rest = fault_rest,
    .link_is_up = fault_link_is_up,
    .scratchpad_read = fault_scratchpad_read,
    .scratchpad_write = fault_scratchpad_write,
    .close = fault_close,
};

/* --- the control thread --- */

int via_fault_port_open(struct via_port *inner, const struct via_fault_plan *plan,
                        struct via_port **ret_port)
{
    struct fault_port *fault = calloc(1, sizeof(*fault));
    if (fault == NULL) {
        return -ENOMEM;
    }
    fault->plan = *plan;
    if (fault->plan.delay_ns_max == 0) {
        fault->plan.delay_ns_max = DELAY_NS_DEFAULT;
    }
    if (fault->plan.held_bytes == 0) {
        fault->plan.held_bytes = HELD_BYTES_DEFAULT;
    }
    fault->bytes = malloc(fault->plan.held_bytes);
    if (fault->bytes == NULL) {
        free(fault);
        return -ENOMEM;
    }
    pthread_mutex_init(&fault->lock, NULL);
    via_rng_init(&fault->rng, plan->seed);
    fault->inner = inner;
    fault->mend_ns = VIA_NEVER_NS;
    fault->base = *inner;
    fault->base.ops = &fault_ops;
    fault->base.window = NULL; /* faults can not be injected into direct stores */
    fault->base.caps.coherent = inner->caps.coherent && !plan->holds && plan->delay_chance == 0;
    *ret_port = &fault->base;
    return 0;
}

static void act_locked(struct fault_port *fault, enum via_fault_action action, uint64_t value)
{
    switch (action) {
    case VIA_FAULT_CUT:
        set_down(fault);
        settle_cut(fault);
        fault->mend_ns = VIA_NEVER_NS; /* ends also a random outage: stays down until MEND */
        break;
    case VIA_FAULT_MEND:
        set_up(fault);
        break;
    case VIA_FAULT_TEAR_NEXT:
        fault->tear_next = true;
        break;
    case VIA_FAULT_DROP_DOORBELL:
        fault->drop_next = true;
        break;
    case VIA_FAULT_DOUBLE_DOORBELL:
        fault->double_next = true;
        break;
    case VIA_FAULT_HOLD:
        fault->hold_ns = value;
        break;
    case VIA_FAULT_DMA_FAIL_NEXT:
        fault->dma_fail_next = true;
        break;
    case VIA_FAULT_DMA_HANG_NEXT:
        fault->dma_hang_next = true;
        break;
    }
}

void via_fault_port_act(struct via_port *port, enum via_fault_action action, uint64_t value)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    act_locked(fault, action, value);
    pthread_mutex_unlock(&fault->lock);
}

void via_fault_port_pump(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct fault_port *fault = fault_of(port);
    const struct via_fault_plan *plan = &fault->plan;

    pthread_mutex_lock(&fault->lock);
    fault->now_ns = now_ns;
    while (fault->step < plan->steps_count && plan->steps[fault->step].at_ns <= now_ns) {
        const struct via_fault_step *step = &plan->steps[fault->step++];
        act_locked(fault, step->action, step->value);
    }
    settle_cut(fault);
    if (fault->down && fault->mend_ns <= now_ns) {
        set_up(fault);
    }
    arrive_due(fault);
    if (fault->again != 0 && fault->again_ns <= now_ns) {
        ring_again(fault);
    }

    uint64_t deadline_ns = fault->down ? fault->mend_ns : VIA_NEVER_NS;
    if (fault->step < plan->steps_count) {
        deadline_ns = via_min(deadline_ns, plan->steps[fault->step].at_ns);
    }
    if (fault->held_count != 0) {
        deadline_ns = via_min(deadline_ns, fault->held[0].due_ns);
    }
    if (fault->again != 0) {
        deadline_ns = via_min(deadline_ns, fault->again_ns);
    }
    *ret_deadline_ns = deadline_ns;
    pthread_mutex_unlock(&fault->lock);
}

void via_fault_port_stats(struct via_port *port, struct via_fault_stats *ret_stats)
{
    struct fault_port *fault = fault_of(port);
    pthread_mutex_lock(&fault->lock);
    *ret_stats = fault->stats;
    pthread_mutex_unlock(&fault->lock);
}
