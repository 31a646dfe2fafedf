/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The DMA function of a host: opens it, shares it between ports, services it, closes it. */
#include "port/pex/engine.h"

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

#include "port/pex/regs.h"

#define BOUNCES_BYTES ((uint64_t)VIA_PLX_DMA_CHANNELS * VIA_PLX_SLOTS * VIA_PLX_BOUNCE_BYTES)
/* A port that closes polls for the end of its DMA LEAVE_TRIES times, LEAVE_US apart. */
#define LEAVE_TRIES 200u
#define LEAVE_US 100u

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct via_plx_engine *engines;

/* --- called by the control thread --- */

static void lock(struct via_plx_channel *channel)
{
    while (!via_plx_channel_try_lock(channel)) {
        sched_yield();
    }
}

/* The engine fires an interrupt only when a status bit changes from 0 to 1. If a descriptor ends
 * while the clearing write is under way, its bit is still set, and its interrupt is lost. The read
 * after the writes pushes such write-backs to memory, so the threads that are woken afterwards find
 * them.
 */
static void clear_interrupts(struct via_plx_engine *engine)
{
    bool any = false;
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        uint32_t status = via_plx_channel_read(engine, i, VIA_PLX_DMA_INTERRUPT);
        if (status != UINT32_MAX && (status & VIA_PLX_DMA_INTERRUPT_STATUS) != 0) {
            via_plx_channel_write(engine, i, VIA_PLX_DMA_INTERRUPT,
                                  status & VIA_PLX_DMA_INTERRUPT_STATUS);
            any = true;
        }
    }
    if (any) {
        (void)via_plx_channel_read(engine, 0, VIA_PLX_DMA_INTERRUPT);
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

/* Restarts an engine whose function was lost. Its registers have their reset values, so all
 * transfers under way have failed. */
static void revive(struct via_plx_engine *engine, uint64_t now_ns)
{
    if (engine->pci == NULL || via_pex_revive(engine->pci, now_ns, &engine->revive_ns) != 0) {
        return;
    }
    for (unsigned i = 0; i < engine->users_count; i++) {
        atomic_store_explicit(&engine->users[i]->works, false, memory_order_relaxed);
    }
    (void)engine->pci->ops->config_write(engine->pci, VIA_PCI_COMMAND, 2,
                                         VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        lock(&engine->channels[i]);
        via_plx_channel_finish(&engine->channels[i], -EIO);
        via_plx_channel_set_up(engine, i);
        via_plx_channel_unlock(&engine->channels[i]);
    }
    atomic_fetch_add_explicit(&engine->lives_count, 1, memory_order_release);
    atomic_store_explicit(&engine->dead, false, memory_order_relaxed);
}

void via_pex_dma_service(struct via_pex_port *pex, uint64_t now_ns)
{
    struct via_plx_engine *engine = pex->dma->engine;
    uint64_t count;
    pthread_mutex_lock(&engines_lock);
    revive(engine, now_ns);
    pthread_mutex_unlock(&engines_lock);
    bool interrupted = read(engine->irq_fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
    if (!interrupted && !pex->config.polls) {
        return;
    }
    if (interrupted) {
        clear_interrupts(engine);
    }
    /* The eventfd wakes the control threads of all users, but only one of them reads it. So that
     * one wakes the threads of all users. */
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

/* The engine's writes into the window reach the NT port within the switch, or through the root
 * complex and its IOMMU if access control services redirect them upstream. For both paths the IO
 * virtual address of the window is its bus address. */
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

/* Allocates memory with a descriptor that the engine can reach, at *ret_iova. */
static int share_memory(struct via_plx_engine *engine, uint64_t bytes, int *ret_fd,
                        unsigned char **ret_at, uint64_t *ret_iova, struct via_error *err)
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

static int map_memory(struct via_plx_engine *engine, const unsigned char *first, uint64_t bytes,
                      struct via_error *err)
{
    struct via_pci_memory range = {.at = (void *)(uintptr_t)first, .bytes = bytes, .fd = -1};
    int rc =
        engine->pci->ops->dma_map(engine->pci, &range, VIA_PEX_PAGE_BYTES, &engine->memory_iova);
    if (rc == -ENOTSUP) { /* the device can reach only memory with a descriptor */
        return share_memory(engine, BOUNCES_BYTES, &engine->bounces_fd, &engine->bounces,
                            &engine->bounces_iova, err);
    }
    return rc == 0 ? 0
                   : via_error_set(err, rc, "let the DMA engine reach %llu bytes: %s",
                                   (unsigned long long)bytes, strerror(-rc));
}

/* All ports that share an engine belong to one node, which registers one memory. */
static int register_memory(struct via_plx_engine *engine, const unsigned char *first,
                           uint64_t bytes, struct via_error *err)
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
        port->caps.dma_bytes_max = bounces ? VIA_PLX_BOUNCE_BYTES : VIA_PLX_DMA_SIZE_MAX;
    }
    return rc;
}

/* --- opening and closing --- */

static void unmap(struct via_plx_engine *engine, uint64_t *iova)
{
    if (*iova != 0 && engine->pci != NULL) {
        (void)engine->pci->ops->dma_unmap(engine->pci, *iova);
        *iova = 0;
    }
}

/* First clears bus mastering, so that the function can not access memory. */
static void close_function(struct via_plx_engine *engine)
{
    via_plx_engine_cut_off(engine);
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

static void free_engine(struct via_plx_engine *engine)
{
    close_function(engine);
    end_sharing(BOUNCES_BYTES, engine->bounces_fd, engine->bounces);
    end_sharing(VIA_PLX_RINGS_BYTES, engine->rings_fd, engine->rings);
    if (engine->irq_fd >= 0) {
        close(engine->irq_fd);
    }
    free(engine);
}

static int start_engine(struct via_plx_engine *engine, struct via_error *err)
{
    struct via_pci *pci = engine->pci;
    engine->irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->irq_fd < 0) {
        return via_error_set(err, -errno, "DMA function: eventfd: %s", strerror(errno));
    }
    int rc = share_memory(engine, VIA_PLX_RINGS_BYTES, &engine->rings_fd, &engine->rings,
                          &engine->rings_iova, err);
    if (rc != 0) {
        return rc;
    }
    rc = pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER);
    if (rc != 0) {
        return via_error_set(err, rc, "DMA function: %s", strerror(-rc));
    }
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        via_plx_channel_set_up(engine, i);
    }
    if (pci->ops->irqs(pci, VIA_PCI_MSI) != 0) {
        (void)pci->ops->irq_set(pci, VIA_PCI_MSI, 1, &engine->irq_fd);
    }
    return 0;
}

static int new_engine(const char *name, struct via_pci *pci, struct via_pex_port *lead,
                      struct via_plx_engine **ret_engine, struct via_error *err)
{
    struct via_plx_engine *engine = aligned_alloc(VIA_CACHELINE, VIA_ALIGN_UP(sizeof(*engine), 64));
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

/* Makes the port a user of the engine. With engines_lock. */
static int join_engine(struct via_pex_port *pex, struct via_plx_engine *engine,
                       struct via_error *err)
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
    pex->base.caps.dma_depth = VIA_PLX_DMA_CHANNELS * (VIA_PLX_SLOTS - 1);
    return 0;
}

static void unlink_engine(struct via_plx_engine *engine)
{
    struct via_plx_engine **place = &engines;
    while (*place != engine) {
        place = &(*place)->next;
    }
    *place = engine->next;
}

int via_pex_dma_open(struct via_pex_port *pex, const char *name, struct via_pci *pci, bool leads,
                     struct via_error *err)
{
    struct via_plx_engine *engine = NULL;
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

/* False if the function was closed with its lead: the next port opens it again. */
static bool is_joinable(const struct via_plx_engine *engine, const char *name)
{
    return name[0] != '\0' && strcmp(engine->name, name) == 0 && engine->pci != NULL &&
           engine->users_count < VIA_PLX_USERS_MAX;
}

int via_pex_dma_join(struct via_pex_port *pex, const char *name, struct via_error *err)
{
    pthread_mutex_lock(&engines_lock);
    struct via_plx_engine *engine = engines;
    while (engine != NULL && !is_joinable(engine, name)) {
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

static bool is_busy(const struct via_plx_channel *channel, const struct via_pex_dma *dma)
{
    bool any = false;
    for (unsigned i = 0; i < VIA_PLX_SLOTS; i++) {
        any |= channel->slots[i].state == VIA_PLX_SLOT_BUSY && channel->slots[i].user == dma;
    }
    return any;
}

/* Ends all DMA of a closing port on a channel, and with it the DMA of the other port there. */
static void leave_channel(struct via_pex_dma *dma, unsigned index)
{
    struct via_plx_engine *engine = dma->engine;
    struct via_plx_channel *channel = &engine->channels[index];
    lock(channel);
    for (unsigned i = 0; is_busy(channel, dma); i++) {
        if (i == 0 && channel->abort_ns == 0) {
            channel->abort_ns = via_pex_now_ns(dma->pex);
            via_plx_channel_write(engine, index, VIA_PLX_DMA_CONTROL,
                                  VIA_PLX_DMA_ABORT | VIA_PLX_DMA_CLEARS);
        }
        if (i == LEAVE_TRIES) {
            via_plx_engine_cut_off(engine);
        }
        via_plx_channel_collect(engine, index, dma->pex);
        usleep(LEAVE_US);
    }
    for (unsigned i = 0; i < VIA_PLX_SLOTS; i++) {
        if (channel->slots[i].user == dma) {
            channel->slots[i] = (struct via_plx_slot){.state = VIA_PLX_SLOT_FREE};
        }
    }
    via_plx_channel_unlock(channel);
}

/* Closes a function that shares the IO virtual addresses of a closing port. The other port then
 * copies by CPU. */
static void lose_function(struct via_plx_engine *engine)
{
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        lock(&engine->channels[i]);
    }
    close_function(engine);
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        via_plx_channel_unlock(&engine->channels[i]);
    }
}

static void leave_engine(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    struct via_plx_engine *engine = dma->engine;
    if (engine->lead == pex) {
        lose_function(engine);
    }
    for (unsigned i = 0; i < VIA_PLX_DMA_CHANNELS; i++) {
        leave_channel(dma, i);
    }
    unsigned index = engine->users[0] == dma ? 0 : 1;
    engine->users[index] = engine->users[--engine->users_count];
}

/* The caller ensures that no thread uses the port any more. */
void via_pex_dma_close(struct via_pex_port *pex)
{
    struct via_pex_dma *dma = pex->dma;
    if (dma == NULL) {
        return;
    }
    struct via_plx_engine *engine = dma->engine;
    pthread_mutex_lock(&engines_lock);
    bool is_last = engine->users_count == 1;
    if (is_last) {
        via_plx_engine_cut_off(engine);
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
