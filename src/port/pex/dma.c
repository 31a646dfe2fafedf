/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * DMA by the function 87D0 (registers and descriptors: Linux' drivers/dma/plx_dma.c). Queue q uses
 * channel q modulo 4; queues of one channel share its ring, and an abort of one is the end for what
 * the others have under way there (-EIO). A host has one such function, which the links by both NT
 * ports of a chip share: all channels, as queues of one link do.
 *
 * The engine writes a descriptor back when it is done, which may lag its interrupt; it may stop
 * without a word; it may hang so that no abort helps: then its bus mastering is taken away, and it
 * stays off until the port is opened anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "port/pex/port.h"
#include "port/pex/regs.h"
#include "vfio/plx_dma.h"

#define CHANNELS VIA_PLX_DMA_CHANNELS
#define SLOTS 16u /* of a ring; a power of two */
#define RINGS_BYTES 4096u
#define POLL_NS (200 * VIA_USEC_NS) /* at a channel that is not done */
#define LOCK_TRIES 1000u
/* Of each slot, where the engine reaches only memory that it has a descriptor of: a body. */
#define BOUNCE_BYTES 65536u
#define BOUNCES_BYTES ((uint64_t)CHANNELS * SLOTS * BOUNCE_BYTES)
#define ABORT_NS (10 * VIA_MSEC_NS)
/* A port that goes waits so often, and so long, for the end of its DMA. */
#define LEAVE_TRIES 200u
#define LEAVE_US 100u

_Static_assert(CHANNELS *SLOTS * sizeof(struct via_plx_dma_descriptor) <= RINGS_BYTES, "a page");

enum slot_state { FREE, BUSY, DONE };

struct slot {
    enum slot_state state;
    struct via_pex_dma *user;
    unsigned queue;
    uint64_t cookie;
    uint32_t downs;
    int result;
    bool aborted;
};

/* All is the lock's, which is tried and never waited for. */
struct channel {
    atomic_flag lock VIA_CACHELINE_ALIGNED;
    struct via_plx_dma_descriptor *ring;
    uint32_t head, done; /* count on; slots from done to head are the engine's */
    struct slot slots[SLOTS];
    uint64_t poll_ns;
    uint64_t abort_ns; /* 0: it is not being aborted */
};

#define USERS_MAX 2u /* NT ports of a chip */
#define NAME_BYTES 160u

/* A DMA function that is open. The lock of all of them guards the list, users and memory. */
struct engine {
    struct engine *next;
    char name[NAME_BYTES]; /* by which a second port finds it; "": none may */
    unsigned users_count;
    struct via_pex_dma *users[USERS_MAX];
    struct via_pex_port
        *lead;           /* owns the IO virtual addresses; NULL: they are the function's own */
    struct via_pci *pci; /* NULL: the lead has gone, and the function with it */
    int irq_fd;
    int rings_fd;
    unsigned char *rings;
    uint64_t rings_iova;
    const unsigned char *memory;
    uint64_t memory_bytes, memory_iova;
    unsigned char *bounces; /* of all slots; NULL: the engine reads the memory itself */
    uint64_t bounces_iova;
    int bounces_fd;
    _Atomic bool dead;
    struct channel channels[CHANNELS];
};

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine *engines;

/* What a port has of it. */
struct via_pex_dma {
    const struct via_pex_port *pex;
    _Atomic uint64_t *events; /* of the port */
    struct engine *engine;
    uint64_t window_address; /* on the bus; 0: not known, the registers did not answer */
    uint64_t window_iova;    /* the same, where the IOMMU must know it; 0: it need not */
    _Atomic uint32_t pending[VIA_PORT_DATA_DOORBELLS]; /* DMA not yet taken */
};

static uint32_t read_channel(struct engine *engine, unsigned channel, uint32_t off)
{
    return engine->pci != NULL ? via_pci_read32(engine->pci, 0, VIA_PLX_DMA_REG(channel, off))
                               : UINT32_MAX;
}

static void write_channel(struct engine *engine, unsigned channel, uint32_t off, uint32_t value)
{
    if (engine->pci != NULL) {
        via_pci_write32(engine->pci, 0, VIA_PLX_DMA_REG(channel, off), value);
    }
}

static bool try_lock(struct channel *channel)
{
    return !atomic_flag_test_and_set_explicit(&channel->lock, memory_order_acquire);
}

static void unlock(struct channel *channel)
{
    atomic_flag_clear_explicit(&channel->lock, memory_order_release);
}

/* The ring begins at slot 0. Nothing is under way. */
static void set_up_channel(struct engine *engine, unsigned index)
{
    struct channel *channel = &engine->channels[index];
    uint64_t at = engine->rings_iova + index * SLOTS * sizeof(struct via_plx_dma_descriptor);
    channel->ring = (struct via_plx_dma_descriptor *)(void *)engine->rings + index * SLOTS;
    for (unsigned i = 0; i < SLOTS; i++) {
        atomic_store_explicit(&channel->ring[i].flags, 0, memory_order_relaxed);
    }
    channel->head = channel->done = 0;
    channel->abort_ns = 0;
    write_channel(engine, index, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_CLEARS);
    write_channel(engine, index, VIA_PLX_DMA_RING_LOW, (uint32_t)at);
    write_channel(engine, index, VIA_PLX_DMA_RING_HIGH, (uint32_t)(at >> 32));
    write_channel(engine, index, VIA_PLX_DMA_RING_NEXT, (uint32_t)at);
    write_channel(engine, index, VIA_PLX_DMA_RING_COUNT, SLOTS);
    write_channel(engine, index, VIA_PLX_DMA_PREFETCH, VIA_PLX_DMA_PREFETCH_FOUR);
    write_channel(engine, index, VIA_PLX_DMA_INTERRUPT, VIA_PLX_DMA_INTERRUPT_STATUS);
}

/* --- starting --- */

/* Where the engine reads it. */
static uint64_t source_of(struct engine *engine, unsigned slot, const void *src, size_t len)
{
    uint64_t off = (uint64_t)slot * BOUNCE_BYTES;
    if (engine->bounces == NULL) {
        return engine->memory_iova + (uint64_t)((const unsigned char *)src - engine->memory);
    }
    memcpy(engine->bounces + off, src, len);
    return engine->bounces_iova + off;
}

static void fill(struct via_pex_dma *dma, struct via_plx_dma_descriptor *descriptor, unsigned slot,
                 uint64_t off, const void *src, size_t len)
{
    uint64_t from = source_of(dma->engine, slot, src, len);
    uint64_t to = dma->window_address + VIA_PEX_PAGE_BYTES + off;
    via_plx_dma_fill(descriptor, from, to,
                     VIA_PLX_DMA_VALID | VIA_PLX_DMA_WANTS_INTERRUPT | (uint32_t)len);
}

static bool is_memory(const struct engine *engine, const void *src, size_t len)
{
    uintptr_t at = (uintptr_t)src, first = (uintptr_t)engine->memory;
    return at >= first && at - first <= engine->memory_bytes &&
           len <= engine->memory_bytes - (at - first);
}

int via_pex_dma_start(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                      size_t len, uint64_t cookie)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL) {
        return -ENOTSUP;
    }
    if (queue >= VIA_PORT_DATA_DOORBELLS || len == 0 || len > VIA_PLX_DMA_SIZE_MAX ||
        off > port->caps.window_bytes || len > port->caps.window_bytes - off) {
        via_pex_count(&pex->counters.puts_out_of_bounds);
        return -EINVAL;
    }
    uint32_t downs = atomic_load_explicit(&pex->downs, memory_order_acquire);
    if (!via_pex_port_is_up(pex)) {
        return -ENOLINK;
    }
    struct engine *engine = dma->engine;
    if (atomic_load_explicit(&engine->dead, memory_order_relaxed) || dma->window_address == 0) {
        return -EIO;
    }
    if (!is_memory(engine, src, len) || (engine->bounces != NULL && len > BOUNCE_BYTES)) {
        return -EINVAL; /* not what was registered */
    }
    unsigned index = queue % CHANNELS;
    struct channel *channel = &engine->channels[index];
    if (!try_lock(channel)) {
        return -EAGAIN;
    }
    int rc = -EAGAIN;
    unsigned place = channel->head % SLOTS;
    if (channel->abort_ns == 0 && channel->slots[place].state == FREE &&
        channel->head - channel->done < SLOTS - 1) {
        channel->slots[place] = (struct slot){
            .state = BUSY, .user = dma, .queue = queue, .cookie = cookie, .downs = downs};
        channel->head++;
        atomic_fetch_add_explicit(&dma->pending[queue], 1, memory_order_relaxed);
        fill(dma, &channel->ring[place], index * SLOTS + place, off, src, len);
        write_channel(engine, index, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
        rc = 0;
    }
    unlock(channel);
    return rc;
}

/* --- what has ended --- */

static void finish(struct channel *channel, int rc_of_others)
{
    for (; channel->done != channel->head; channel->done++) {
        struct slot *slot = &channel->slots[channel->done % SLOTS];
        slot->result = slot->aborted ? -ECANCELED : rc_of_others;
        slot->state = DONE;
    }
}

/* The engine does not let itself be aborted: it gets no way to memory any more. */
static void cut_off(struct engine *engine)
{
    atomic_store_explicit(&engine->dead, true, memory_order_relaxed);
    if (engine->pci != NULL) {
        (void)engine->pci->ops->config_write(engine->pci, VIA_PCI_COMMAND, 2,
                                             VIA_PCI_COMMAND_MEMORY);
    }
}

static void follow_abort(struct engine *engine, unsigned index, uint64_t now_ns)
{
    struct channel *channel = &engine->channels[index];
    uint32_t control = read_channel(engine, index, VIA_PLX_DMA_CONTROL);
    /* All-ones: the read was not answered, and the engine may be at work. */
    bool is_over = control != UINT32_MAX && (control & VIA_PLX_DMA_ABORTED) != 0;
    if (!is_over && now_ns < channel->abort_ns + ABORT_NS &&
        !atomic_load_explicit(&engine->dead, memory_order_relaxed)) {
        return;
    }
    if (!is_over) {
        cut_off(engine);
    }
    finish(channel, -EIO);
    struct slot kept[SLOTS];
    memcpy(kept, channel->slots, sizeof(kept));
    set_up_channel(engine, index);
    memcpy(channel->slots, kept, sizeof(kept)); /* until they are taken */
}

/* Takes in what the engine has written back. */
static void collect_written(struct channel *channel)
{
    while (channel->done != channel->head) {
        struct slot *slot = &channel->slots[channel->done % SLOTS];
        /* Pairs with the engine's write-back. */
        uint32_t flags =
            atomic_load_explicit(&channel->ring[channel->done % SLOTS].flags, memory_order_acquire);
        if ((flags & VIA_PLX_DMA_VALID) != 0) {
            break;
        }
        slot->result = (flags & VIA_PLX_DMA_GOOD) != 0 ? 0 : -EIO;
        slot->state = DONE;
        channel->done++;
    }
}

static void collect_done(struct engine *engine, unsigned index, const struct via_pex_port *pex)
{
    struct channel *channel = &engine->channels[index];
    collect_written(channel);
    uint64_t now_ns = channel->done != channel->head ? via_pex_now_ns(pex) : 0;
    if (channel->abort_ns != 0) {
        follow_abort(engine, index, via_pex_now_ns(pex));
    } else if (atomic_load_explicit(&engine->dead, memory_order_relaxed)) {
        finish(channel, -EIO);
    } else if (now_ns >= channel->poll_ns && now_ns != 0) {
        channel->poll_ns = now_ns + POLL_NS;
        /* The read pushes a write-back that lags; and an engine that stopped is started again. */
        bool stands = (read_channel(engine, index, VIA_PLX_DMA_CONTROL) & VIA_PLX_DMA_BUSY) == 0;
        collect_written(channel);
        if (stands && channel->done != channel->head) {
            write_channel(engine, index, VIA_PLX_DMA_CONTROL,
                          VIA_PLX_DMA_START | VIA_PLX_DMA_CLEARS);
        }
    }
}

/* Is the link still that of `downs`, and what the engine wrote ahead of what follows? A read on the
 * way that both take: the engine's writes and the CPU's meet in the NT port. */
static bool is_ordered(struct via_pex_port *pex)
{
    uint64_t expected = atomic_load_explicit(&pex->peer_word, memory_order_relaxed);
    return via_pex_port_is_up(pex) &&
           via_pex_load_word(pex, offsetof(struct via_pex_page, own.word)) == expected;
}

unsigned via_pex_dma_take(struct via_port *port, unsigned queue, uint64_t *ret_cookies,
                          int *ret_results, unsigned max)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL || queue >= VIA_PORT_DATA_DOORBELLS ||
        atomic_load_explicit(&dma->pending[queue], memory_order_relaxed) == 0) {
        return 0;
    }
    struct channel *channel = &dma->engine->channels[queue % CHANNELS];
    unsigned count = 0;
    uint32_t downs[SLOTS];
    if (!try_lock(channel)) {
        return 0;
    }
    collect_done(dma->engine, queue % CHANNELS, pex);
    for (unsigned i = 0; i < SLOTS && count < max; i++) {
        struct slot *slot = &channel->slots[i];
        if (slot->state == DONE && slot->user == dma && slot->queue == queue) {
            ret_cookies[count] = slot->cookie;
            ret_results[count] = slot->result;
            downs[count++] = slot->downs;
            slot->state = FREE;
        }
    }
    unlock(channel);
    bool ordered = count != 0 && is_ordered(pex);
    uint32_t now = atomic_load_explicit(&pex->downs, memory_order_acquire);
    for (unsigned i = 0; i < count; i++) {
        if (!ordered || downs[i] != now) {
            ret_results[i] = -ENOLINK;
        }
    }
    atomic_fetch_sub_explicit(&dma->pending[queue], count, memory_order_relaxed);
    return count;
}

static void abort_channel(struct via_pex_dma *dma, unsigned index, unsigned queue)
{
    struct engine *engine = dma->engine;
    struct channel *channel = &engine->channels[index];
    bool any = false;
    collect_done(engine, index, dma->pex);
    for (uint32_t i = channel->done; i != channel->head; i++) {
        struct slot *slot = &channel->slots[i % SLOTS];
        bool is_meant = slot->user == dma && slot->queue == queue;
        slot->aborted |= is_meant;
        any |= is_meant;
    }
    if (any && channel->abort_ns == 0) {
        channel->abort_ns = via_pex_now_ns(dma->pex);
        write_channel(engine, index, VIA_PLX_DMA_CONTROL, VIA_PLX_DMA_ABORT | VIA_PLX_DMA_CLEARS);
    }
}

void via_pex_dma_abort(struct via_port *port, unsigned queue)
{
    struct via_pex_dma *dma = via_pex_port_of(port)->dma;
    if (dma == NULL || queue >= VIA_PORT_DATA_DOORBELLS) {
        return;
    }
    struct channel *channel = &dma->engine->channels[queue % CHANNELS];
    /* Another queue's thread holds it for a few register accesses. One that is not given back in
     * all that time belongs to a thread that does not run: the caller asks again. */
    for (unsigned i = 0; i < LOCK_TRIES; i++) {
        if (try_lock(channel)) {
            abort_channel(dma, queue % CHANNELS, queue);
            unlock(channel);
            return;
        }
        sched_yield();
    }
}

/* --- the control thread's --- */

/* An interrupt comes only when a status bit leaves zero. What ends while the write that clears it
 * is under way sets a bit that is set, and loses it: the read behind the writes brings the
 * descriptors' write-backs along, so the threads that are woken afterwards find them. */
static void clear_interrupts(struct engine *engine)
{
    bool any = false;
    for (unsigned i = 0; i < CHANNELS; i++) {
        uint32_t status = read_channel(engine, i, VIA_PLX_DMA_INTERRUPT);
        if (status != UINT32_MAX && (status & VIA_PLX_DMA_INTERRUPT_STATUS) != 0) {
            write_channel(engine, i, VIA_PLX_DMA_INTERRUPT, status & VIA_PLX_DMA_INTERRUPT_STATUS);
            any = true;
        }
    }
    if (any) {
        (void)read_channel(engine, 0, VIA_PLX_DMA_INTERRUPT);
    }
}

static void wake_threads(struct via_pex_dma *dma)
{
    const struct via_pex_port *pex = dma->pex;
    for (unsigned queue = 0; queue < VIA_PORT_DATA_DOORBELLS; queue++) {
        if (atomic_load_explicit(&dma->pending[queue], memory_order_relaxed) == 0) {
            continue;
        }
        uint64_t bit = VIA_PORT_EVENT_DMA_DONE(queue);
        uint64_t before = atomic_fetch_or_explicit(dma->events, bit, memory_order_seq_cst);
        if ((before & bit) == 0 && pex->host->wake != NULL) {
            pex->host->wake(pex->host->ctx, queue % via_max(pex->host->threads_count, 1u));
        }
    }
}

void via_pex_dma_service(struct via_pex_port *pex)
{
    struct engine *engine = pex->dma->engine;
    uint64_t count;
    bool interrupted = read(engine->irq_fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
    if (!interrupted && !pex->config.polls) {
        return;
    }
    if (interrupted) {
        clear_interrupts(engine);
    }
    /* The descriptor wakes the control threads of all users; one of them reads it. */
    pthread_mutex_lock(&engines_lock);
    for (unsigned i = 0; i < engine->users_count; i++) {
        wake_threads(engine->users[i]);
    }
    pthread_mutex_unlock(&engines_lock);
}

void via_pex_dma_program(struct via_pex_port *pex)
{
    uint32_t low = 0, high = 0;
    (void)pex->pci->ops->config_read(pex->pci, VIA_PCI_BAR(pex->config.bar), 4, &low);
    (void)pex->pci->ops->config_read(pex->pci, VIA_PCI_BAR(pex->config.bar + 1), 4, &high);
    uint64_t bar = (low & ~UINT32_C(0xf)) | (uint64_t)high << 32;
    bool is_known = low != UINT32_MAX && high != UINT32_MAX && bar != 0;
    pex->dma->window_address = is_known ? bar + pex->window_off : 0;
}

/* What the engine writes into the window reaches the NT port within the switch, or by way of the
 * root complex and its IOMMU (where access control services send it up). For both ways the window's
 * IO virtual address is its address on the bus. */
int via_pex_dma_reach_window(struct via_pex_port *pex, struct via_error *err)
{
    struct via_pex_dma *dma = pex->dma;
    struct via_pci *pci = dma->engine->pci;
    struct via_pci_memory window = {
        .at = pex->mapping.at, .bytes = pex->memory_bytes, .fd = -1, .writable = true};
    via_pex_dma_program(pex);
    uint64_t address = dma->window_address;
    if (pex->mapping.at == NULL) {
        return via_error_set(err, -ENOTSUP, "DMA function: BAR %u can not be mapped",
                             pex->config.bar);
    }
    int rc = pci->ops->dma_map(pci, &window, 0, &address);
    if (rc != 0) {
        return via_error_set(err, rc,
                             "let the DMA function reach the window, at %#llx of the bus: %s",
                             (unsigned long long)address, strerror(-rc));
    }
    dma->window_iova = address;
    return 0;
}

/* --- memory --- */

/* Memory that the engine reaches by a descriptor, at *ret_iova. */
static int share_memory(struct engine *engine, uint64_t bytes, int *ret_fd, unsigned char **ret_at,
                        uint64_t *ret_iova, struct via_error *err)
{
    *ret_fd = memfd_create("viaduct-pex-dma", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*ret_fd < 0 || ftruncate(*ret_fd, (off_t)bytes) != 0 ||
        fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return via_error_set(err, -errno, "memory for DMA: %s", strerror(errno));
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
    if (at == MAP_FAILED) {
        return via_error_set(err, -errno, "map memory for DMA: %s", strerror(errno));
    }
    *ret_at = at;
    struct via_pci_memory memory = {.at = at, .bytes = bytes, .fd = *ret_fd, .writable = true};
    int rc = engine->pci->ops->dma_map(engine->pci, &memory, VIA_PEX_PAGE_BYTES, ret_iova);
    return rc == 0 ? 0 : via_error_set(err, rc, "DMA function: %s", strerror(-rc));
}

static int map_memory(struct engine *engine, const unsigned char *first, uint64_t bytes,
                      struct via_error *err)
{
    struct via_pci_memory range = {.at = (void *)(uintptr_t)first, .bytes = bytes, .fd = -1};
    int rc =
        engine->pci->ops->dma_map(engine->pci, &range, VIA_PEX_PAGE_BYTES, &engine->memory_iova);
    if (rc == -ENOTSUP) { /* not without a descriptor */
        return share_memory(engine, BOUNCES_BYTES, &engine->bounces_fd, &engine->bounces,
                            &engine->bounces_iova, err);
    }
    return rc == 0 ? 0
                   : via_error_set(err, rc, "let the DMA engine reach %llu bytes: %s",
                                   (unsigned long long)bytes, strerror(-rc));
}

/* Ports that share the engine are of one node, which has one memory. */
static int register_memory(struct engine *engine, const unsigned char *first, uint64_t bytes,
                           struct via_error *err)
{
    if (engine->memory != NULL) {
        bool is_same = engine->memory == first && engine->memory_bytes == bytes;
        return is_same ? 0
                       : via_error_set(err, -EBUSY, "the DMA engine reads other memory already");
    }
    int rc = map_memory(engine, first, bytes, err);
    if (rc == 0) {
        engine->memory = first;
        engine->memory_bytes = bytes;
    }
    return rc;
}

int via_pex_dma_register(struct via_port *port, void *memory, size_t bytes, struct via_error *err)
{
    struct via_pex_dma *dma = via_pex_port_of(port)->dma;
    if (dma == NULL) {
        return 0;
    }
    uintptr_t first = (uintptr_t)memory & ~(uintptr_t)(VIA_PEX_PAGE_BYTES - 1);
    uint64_t whole = via_align_up((uintptr_t)memory + bytes - first, VIA_PEX_PAGE_BYTES);
    pthread_mutex_lock(&engines_lock);
    int rc = register_memory(dma->engine, (const unsigned char *)first, whole, err);
    pthread_mutex_unlock(&engines_lock);
    if (rc == 0) {
        bool bounces = dma->engine->bounces != NULL;
        port->caps.dma_bytes_max = bounces ? BOUNCE_BYTES : VIA_PLX_DMA_SIZE_MAX;
    }
    return rc;
}

/* --- opening and closing --- */

static void unmap(struct engine *engine, uint64_t *iova)
{
    if (*iova != 0 && engine->pci != NULL) {
        (void)engine->pci->ops->dma_unmap(engine->pci, *iova);
        *iova = 0;
    }
}

/* Without bus mastering the function reaches nothing. */
static void close_function(struct engine *engine)
{
    cut_off(engine);
    if (engine->pci == NULL) {
        return;
    }
    (void)engine->pci->ops->irq_set(engine->pci, VIA_PCI_MSI, 0, NULL);
    for (unsigned i = 0; i < engine->users_count; i++) {
        unmap(engine, &engine->users[i]->window_iova);
    }
    unmap(engine, &engine->memory_iova);
    unmap(engine, &engine->bounces_iova);
    unmap(engine, &engine->rings_iova);
    engine->pci->ops->close(engine->pci);
    engine->pci = NULL;
}

static void end_sharing(uint64_t bytes, int fd, unsigned char *at)
{
    if (at != NULL) {
        munmap(at, bytes);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void free_engine(struct engine *engine)
{
    close_function(engine);
    end_sharing(BOUNCES_BYTES, engine->bounces_fd, engine->bounces);
    end_sharing(RINGS_BYTES, engine->rings_fd, engine->rings);
    if (engine->irq_fd >= 0) {
        close(engine->irq_fd);
    }
    free(engine);
}

static int start_engine(struct engine *engine, struct via_error *err)
{
    struct via_pci *pci = engine->pci;
    engine->irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->irq_fd < 0) {
        return via_error_set(err, -errno, "DMA function: eventfd: %s", strerror(errno));
    }
    int rc = share_memory(engine, RINGS_BYTES, &engine->rings_fd, &engine->rings,
                          &engine->rings_iova, err);
    if (rc != 0) {
        return rc;
    }
    rc = pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
    if (rc != 0) {
        return via_error_set(err, rc, "DMA function: %s", strerror(-rc));
    }
    for (unsigned i = 0; i < CHANNELS; i++) {
        set_up_channel(engine, i);
    }
    if (pci->ops->irqs(pci, VIA_PCI_MSI) != 0) {
        (void)pci->ops->irq_set(pci, VIA_PCI_MSI, 1, &engine->irq_fd);
    }
    return 0;
}

static int new_engine(const char *name, struct via_pci *pci, struct via_pex_port *lead,
                      struct engine **ret_engine, struct via_error *err)
{
    struct engine *engine = aligned_alloc(VIA_CACHELINE, VIA_ALIGN_UP(sizeof(*engine), 64));
    if (engine == NULL) {
        pci->ops->close(pci);
        return via_error_set(err, -ENOMEM, "DMA: %s", strerror(ENOMEM));
    }
    memset(engine, 0, sizeof(*engine));
    engine->pci = pci;
    engine->lead = lead;
    engine->irq_fd = engine->rings_fd = engine->bounces_fd = -1;
    snprintf(engine->name, sizeof(engine->name), "%s", name);
    int rc = start_engine(engine, err);
    if (rc != 0) {
        free_engine(engine);
        return rc;
    }
    engine->next = engines;
    engines = engine;
    *ret_engine = engine;
    return 0;
}

/* The port uses the engine, too; with the lock. */
static int join_engine(struct via_pex_port *pex, struct engine *engine, struct via_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct via_pex_dma *dma = calloc(1, sizeof(*dma));
    if (dma == NULL || epoll_ctl(pex->epoll_fd, EPOLL_CTL_ADD, engine->irq_fd, &event) != 0) {
        int rc = dma == NULL ? -ENOMEM : -errno;
        free(dma);
        return via_error_set(err, rc, "DMA: %s", strerror(-rc));
    }
    dma->pex = pex;
    dma->events = &pex->events;
    dma->engine = engine;
    engine->users[engine->users_count++] = dma;
    pex->dma = dma;
    pex->base.caps.dma_depth = CHANNELS * (SLOTS - 1);
    return 0;
}

static void unlink_engine(struct engine *engine)
{
    struct engine **place = &engines;
    while (*place != engine) {
        place = &(*place)->next;
    }
    *place = engine->next;
}

int via_pex_dma_open(struct via_pex_port *pex, const char *name, struct via_pci *pci, bool leads,
                     struct via_error *err)
{
    struct engine *engine = NULL;
    pthread_mutex_lock(&engines_lock);
    int rc = new_engine(name, pci, leads ? pex : NULL, &engine, err);
    if (rc == 0) {
        rc = join_engine(pex, engine, err);
        if (rc != 0) {
            unlink_engine(engine);
            free_engine(engine);
        }
    }
    pthread_mutex_unlock(&engines_lock);
    return rc;
}

int via_pex_dma_join(struct via_pex_port *pex, const char *name, struct via_error *err)
{
    pthread_mutex_lock(&engines_lock);
    struct engine *engine = engines;
    while (engine != NULL && (strcmp(engine->name, name) != 0 || name[0] == '\0' ||
                              engine->users_count == USERS_MAX)) {
        engine = engine->next;
    }
    int rc = engine != NULL ? join_engine(pex, engine, err) : -ENOENT;
    pthread_mutex_unlock(&engines_lock);
    return rc;
}

uint16_t via_pex_dma_requester(const struct via_pex_port *pex)
{
    const struct via_pci *pci = pex->dma != NULL ? pex->dma->engine->pci : NULL;
    return pci != NULL ? pci->requester : 0;
}

static void lock(struct channel *channel)
{
    while (!try_lock(channel)) {
        sched_yield();
    }
}

static bool is_busy(const struct channel *channel, const struct via_pex_dma *dma)
{
    bool any = false;
    for (unsigned i = 0; i < SLOTS; i++) {
        any |= channel->slots[i].state == BUSY && channel->slots[i].user == dma;
    }
    return any;
}

/* All DMA of a port that goes ends on a channel, with that of the other port on it. */
static void leave_channel(struct via_pex_dma *dma, unsigned index)
{
    struct engine *engine = dma->engine;
    struct channel *channel = &engine->channels[index];
    lock(channel);
    for (unsigned i = 0; is_busy(channel, dma); i++) {
        if (i == 0 && channel->abort_ns == 0) {
            channel->abort_ns = via_pex_now_ns(dma->pex);
            write_channel(engine, index, VIA_PLX_DMA_CONTROL,
                          VIA_PLX_DMA_ABORT | VIA_PLX_DMA_CLEARS);
        }
        if (i == LEAVE_TRIES) {
            cut_off(engine);
        }
        collect_done(engine, index, dma->pex);
        usleep(LEAVE_US);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (channel->slots[i].user == dma) {
            channel->slots[i] = (struct slot){.state = FREE};
        }
    }
    unlock(channel);
}

/* The function's IO virtual addresses are those of a port that goes. The links by the other port
 * use the CPU from then on. */
static void lose_function(struct engine *engine)
{
    for (unsigned i = 0; i < CHANNELS; i++) {
        lock(&engine->channels[i]);
    }
    close_function(engine);
    for (unsigned i = 0; i < CHANNELS; i++) {
        unlock(&engine->channels[i]);
    }
}

static void leave_engine(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    struct engine *engine = dma->engine;
    if (engine->lead == pex) {
        lose_function(engine);
    }
    for (unsigned i = 0; i < CHANNELS; i++) {
        leave_channel(dma, i);
    }
    unsigned index = engine->users[0] == dma ? 0 : 1;
    engine->users[index] = engine->users[--engine->users_count];
}

/* No thread calls for this port any more. */
void via_pex_dma_close(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL) {
        return;
    }
    struct engine *engine = dma->engine;
    pthread_mutex_lock(&engines_lock);
    bool is_last = engine->users_count == 1;
    if (is_last) {
        cut_off(engine);
        unlink_engine(engine);
    } else {
        leave_engine(pex);
        (void)epoll_ctl(pex->epoll_fd, EPOLL_CTL_DEL, engine->irq_fd, NULL);
    }
    unmap(engine, &dma->window_iova);
    if (is_last) {
        free_engine(engine);
    }
    pthread_mutex_unlock(&engines_lock);
    free(dma);
    pex->dma = NULL;
}
