/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The control thread's part of the port. The link is up if three conditions hold: the NT port has a
 * link; both ends are ready and neither is cut; each end has acknowledged the other's session and
 * round. An end that goes down begins a new round. So the peer goes down too, however short the
 * outage is, and nothing posted in an earlier round arrives in a later one.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "port/bell.h"
#include "port/pex/port.h"

/* While up: how often this end polls its page, and reads the chip and the peer's page. */
#define POLL_IRQ_NS (20 * VIA_MSEC_NS)
#define READ_NS (60 * VIA_MSEC_NS)
/* While down: how often this end polls for the peer, posts its state, and programs the chip. */
#define WAIT_NS (2 * VIA_MSEC_NS)
#define WAIT_LONG_NS (20 * VIA_MSEC_NS)
#define POST_NS (10 * VIA_MSEC_NS)
#define PROGRAM_NS (100 * VIA_MSEC_NS)
/* While the function is lost: interval of attempts to connect to its server. The long interval is
 * for a server that listens but fails, because such attempts cost the control thread time. */
#define REVIVE_NS (1 * VIA_SEC_NS)
#define REVIVE_LONG_NS (10 * VIA_SEC_NS)
/* Without interrupts: interval of doorbell reads, and the shorter one for POLL_BUSY_SPAN_NS after
 * each doorbell. With few slots a pipe moves at most its number of slots between two polls.
 */
#define POLL_NS (1 * VIA_MSEC_NS)
#define POLL_BUSY_NS (100 * VIA_USEC_NS)
#define POLL_BUSY_SPAN_NS (2 * VIA_MSEC_NS)
/* In one turn the control thread waits for storing threads for at most QUIESCE_TRIES polls. */
#define QUIESCE_TRIES 200u

uint64_t via_pex_now_ns(const struct via_pex_port *pex)
{
    if (pex->host->now_ns != NULL) {
        return pex->host->now_ns(pex->host->ctx);
    }
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

static void set_error(struct via_pex_port *pex, const char *format, ...) VIA_PRINTF(2, 3);
static void set_error(struct via_pex_port *pex, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(pex->error, sizeof(pex->error), format, args);
    va_end(args);
}

/* --- state of this end --- */

static uint64_t word_of(const struct via_pex_port *pex)
{
    uint64_t flags = (pex->programmed && !pex->quiescing ? VIA_PEX_WORD_READY : 0) |
                     (pex->cut ? VIA_PEX_WORD_CUT : 0);
    return (uint64_t)pex->session << 32 | (uint64_t)pex->round << 16 | flags;
}

/* Stores the state in this end's page, where the peer reads it. */
static void publish(struct via_pex_port *pex)
{
    struct via_pex_line *own = &pex->page->own;
    atomic_store_explicit(&own->magic, VIA_PEX_PAGE_MAGIC, memory_order_relaxed);
    atomic_store_explicit(&own->word, word_of(pex), memory_order_seq_cst);
}

static void post(struct via_pex_port *pex)
{
    const uint64_t fields[] = {
        VIA_PEX_PAGE_MAGIC, pex->base.caps.inbox_bytes, pex->host->host, 0, 0, 0, pex->ack};
    uint64_t off = offsetof(struct via_pex_page, posted);
    pex->posted_word = word_of(pex);
    pex->posted_ack = pex->ack;
    via_pex_store(pex, off, fields, sizeof(fields));
    via_pex_store_word(pex, off + sizeof(fields), pex->posted_word);
    via_pex_drain(pex);
}

/* --- state of the peer: hostile words, which are only compared --- */

struct peer {
    uint64_t word; /* 0: nothing valid received yet */
    uint64_t ack;
    uint64_t inbox_bytes;
};

static struct peer read_peer(const struct via_pex_port *pex)
{
    const struct via_pex_line *line = &pex->page->posted;
    struct peer peer = {0};
    uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);
    uint32_t session = (uint32_t)(word >> 32);
    if (session == 0 || session == UINT32_MAX ||
        atomic_load_explicit(&line->magic, memory_order_relaxed) != VIA_PEX_PAGE_MAGIC) {
        return peer;
    }
    peer.word = word;
    peer.ack = atomic_load_explicit(&line->ack, memory_order_relaxed);
    peer.inbox_bytes = atomic_load_explicit(&line->inbox_bytes, memory_order_relaxed);
    return peer;
}

/* The protocol version of a peer with another page layout; 0: the same version, or no valid
 * magic. */
static unsigned other_version(const struct via_pex_port *pex)
{
    uint64_t magic = atomic_load_explicit(&pex->page->posted.magic, memory_order_relaxed);
    unsigned tens = (unsigned)(magic >> 48 & 0xff) - '0', ones = (unsigned)(magic >> 56) - '0';
    bool is_ours = ((magic ^ VIA_PEX_PAGE_MAGIC) & VIA_PEX_PAGE_NAME) == 0;
    return magic != VIA_PEX_PAGE_MAGIC && is_ours && tens < 10 && ones < 10 ? 10 * tens + ones : 0;
}

static bool is_willing(uint64_t word)
{
    return (word & (VIA_PEX_WORD_READY | VIA_PEX_WORD_CUT)) == VIA_PEX_WORD_READY;
}

/* True if each end has acknowledged the other's session and round. */
static bool is_agreed(const struct via_pex_port *pex, const struct peer *peer)
{
    return is_willing(peer->word) && is_willing(word_of(pex)) &&
           peer->inbox_bytes == pex->base.caps.window_bytes &&
           VIA_PEX_WORD_ID(peer->word) == pex->ack && peer->ack == VIA_PEX_WORD_ID(word_of(pex));
}

/* --- down --- */

/* Makes every thread of this process execute a full barrier. The interrupt by which the kernel does
 * this also drains the write-combining buffers of its CPU (Intel SDM volume 3, 12.3.1). */
static void barrier_everywhere(const struct via_pex_port *pex)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (pex->asymmetric) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    }
}

/* Waits until no thread stores into the window. false: some thread still does; try again in the
 * next turn. */
static bool quiesce(struct via_pex_port *pex)
{
    barrier_everywhere(pex);
    unsigned tries = 0;
    for (unsigned i = 0; i < VIA_PORT_QUEUES;) {
        /* Pairs with the release in leave(). */
        if (atomic_load_explicit(&pex->queues[i].busy, memory_order_acquire) == 0) {
            i++;
        } else if (tries++ == QUIESCE_TRIES) {
            return false;
        } else {
            sched_yield();
        }
    }
    barrier_everywhere(pex);
    return true;
}

/* Clears doorbells and exposures of the last round, before it announces the new round to the
 * peer. */
static void finish_down(struct via_pex_port *pex)
{
    if (!quiesce(pex)) {
        return;
    }
    pex->quiescing = false;
    (void)via_pex_chip_take_bells(pex);
    /* The peer can not expose slices in the new round before this end has posted that round. */
    via_pex_slices_forget(pex);
    atomic_fetch_and_explicit(&pex->events, ~(uint64_t)0xffff, memory_order_seq_cst);
    publish(pex);
    post(pex);
    /* The peer polls its page at intervals; a doorbell makes it read the page at once. It reads the
     * page before it takes doorbells, and then drops these. */
    (void)via_pex_load_word(pex, offsetof(struct via_pex_page, own.word));
    via_pex_chip_ring(pex, 1);
}

static void set_down(struct via_pex_port *pex)
{
    if (!pex->linked) {
        return;
    }
    pex->linked = false;
    pex->quiescing = true;
    via_pex_probe_begin(pex);
    pex->round++;
    pex->downs_count++;
    /* Sequentially consistent, and a barrier in every thread: see enter() in port.c. */
    atomic_store_explicit(&pex->up, false, memory_order_seq_cst);
    atomic_fetch_add_explicit(&pex->downs, 1, memory_order_release);
    atomic_store_explicit(&pex->suspect, false, memory_order_relaxed);
    publish(pex);
    via_pex_slices_conceal(pex);
    finish_down(pex);
    atomic_fetch_or_explicit(&pex->events, VIA_PORT_EVENT_LINK_DOWN, memory_order_seq_cst);
    pex->post_ns = pex->poll_ns = 0;
}

/* --- up --- */

static void set_up(struct via_pex_port *pex, const struct peer *peer, uint64_t now_ns)
{
    pex->linked = true;
    pex->ups_count++;
    pex->error[0] = '\0';
    pex->poll_ns = now_ns + READ_NS;
    atomic_store_explicit(&pex->peer_word, peer->word, memory_order_relaxed);
    atomic_fetch_or_explicit(&pex->events, VIA_PORT_EVENT_LINK_UP, memory_order_seq_cst);
    /* Release: a thread that sees `up` sees the peer's word. */
    atomic_store_explicit(&pex->up, true, memory_order_seq_cst);
}

/* One step towards link up: posts the state if it changed, checks the peer's, and tests the
 * window. */
static void train(struct via_pex_port *pex, uint64_t now_ns)
{
    struct peer peer = read_peer(pex);
    pex->ack = peer.word != 0 ? VIA_PEX_WORD_ID(peer.word) : 0;
    if (word_of(pex) != pex->posted_word || pex->ack != pex->posted_ack || now_ns >= pex->post_ns) {
        publish(pex);
        post(pex);
        pex->post_ns = now_ns + POST_NS;
    }
    if (!is_agreed(pex, &peer)) {
        via_pex_probe_begin(pex);
        unsigned version = other_version(pex);
        if (version != 0) {
            set_error(pex,
                      "the peer's driver speaks version %u of the pex protocol, this one version "
                      "1: give both ends the same release of Viaduct",
                      version);
        } else if (peer.word != 0 && peer.inbox_bytes != pex->base.caps.window_bytes) {
            set_error(pex,
                      "the peer has an inbox of %llu bytes, the window of this end %llu: give both "
                      "ends the same window= and slices",
                      (unsigned long long)peer.inbox_bytes,
                      (unsigned long long)pex->base.caps.window_bytes);
        }
        return;
    }
    /* The peer's window works, because its words have arrived. The read checks this end's window.
     * Earlier posts of this end may have been lost when the chip was reset, so it posts its state
     * again before the read. */
    post(pex);
    uint64_t word = via_pex_load_word(pex, offsetof(struct via_pex_page, own.word));
    if (word == peer.word) {
        /* The peer may be up already; this end comes up when the DMA probe has a result. The new
         * program_ns keeps check_chip() from reprogramming the chip meanwhile, because the peer may
         * store through it. */
        pex->program_ns = now_ns + PROGRAM_NS;
        if (via_pex_probe_turn(pex)) {
            set_up(pex, &peer, now_ns);
        }
    } else if (word == UINT64_MAX) {
        set_error(pex,
                  "the peer writes to this end, but reads through BAR %u bring all-ones: its "
                  "table of requester ids, its IOMMU or a translation refuses",
                  pex->config.bar);
    }
}

/* --- the turn --- */

/* True if the eventfd was signalled. */
static bool drain_fd(int fd)
{
    uint64_t count;
    return read(fd, &count, sizeof(count)) == sizeof(count);
}

int via_pex_revive(struct via_pci *pci, uint64_t now_ns, uint64_t *next_ns)
{
    if (pci->ops->revive == NULL || now_ns < *next_ns || !pci->ops->gone(pci)) {
        return -EAGAIN;
    }
    int rc = pci->ops->revive(pci);
    bool is_listening = rc != -ECONNREFUSED && rc != -ENOENT;
    *next_ns = now_ns + (rc != 0 && is_listening ? REVIVE_LONG_NS : REVIVE_NS);
    return rc;
}

/* Checks the link of the NT port, and programs the chip if necessary. */
static void check_chip(struct via_pex_port *pex, uint64_t now_ns)
{
    pex->hardware_up = via_pex_chip_is_up(pex);
    if (!pex->hardware_up) {
        bool is_gone = pex->pci->ops->gone(pex->pci);
        if (is_gone != pex->was_gone || pex->linked || pex->programmed || pex->error[0] == '\0') {
            set_error(pex, "%s: the NT port has no link%s", pex->pci->ops->describe(pex->pci),
                      is_gone ? ": the function does not answer" : "");
        }
        pex->was_gone = is_gone;
        /* The registers of the link side have been reset. */
        pex->programmed = false;
        pex->program_ns = 0;
        set_down(pex);
        via_pex_probe_begin(pex); /* restarts a probe that was under way before link up */
        /* After a reconnect the registers have their reset values; the next turn programs them.
         */
        if (via_pex_revive(pex->pci, now_ns, &pex->revive_ns) == -ENODEV) {
            set_error(pex, "%s: the function that answers now has other BARs or interrupts",
                      pex->pci->ops->describe(pex->pci));
        }
        return;
    }
    if (!pex->linked && (!pex->programmed || now_ns >= pex->program_ns)) {
        via_pex_chip_program(pex);
        pex->programmed = true;
        pex->program_ns = now_ns + PROGRAM_NS;
    }
}

static void check_peer(struct via_pex_port *pex, uint64_t now_ns)
{
    struct peer peer = read_peer(pex);
    if (!is_agreed(pex, &peer)) {
        set_error(pex, "the peer took the link down");
        set_down(pex);
    } else if (atomic_load_explicit(&pex->suspect, memory_order_relaxed)) {
        set_error(pex, "reads from the peer did not bring its state");
        set_down(pex);
    } else if (now_ns >= pex->poll_ns) {
        pex->poll_ns = now_ns + READ_NS;
        /* Posts the state again, for a peer that missed it and waits. A peer that is up ignores
         * it. */
        post(pex);
        if (via_pex_load_word(pex, offsetof(struct via_pex_page, own.word)) !=
            atomic_load_explicit(&pex->peer_word, memory_order_relaxed)) {
            set_error(pex, "the peer does not answer");
            set_down(pex);
        }
    }
}

static unsigned thread_of(const struct via_pex_port *pex, unsigned bit)
{
    return bit < VIA_PORT_DATA_DOORBELLS ? bit % via_max(pex->host->threads_count, 1u) : 0;
}

/* Doorbells of a link that is down are dropped. */
static void take_bells(struct via_pex_port *pex, uint64_t now_ns)
{
    uint32_t bells = via_pex_chip_take_bells(pex);
    if (bells == 0 || !pex->linked) {
        return;
    }
    pex->bells_ns = now_ns;
    /* Pairs with the fetch-and in pex_events(). */
    uint64_t before = atomic_fetch_or_explicit(&pex->events, bells, memory_order_seq_cst);
    uint64_t fresh = bells & ~before;
    uint64_t woken = 0;
    for (unsigned bit = 0; bit < VIA_PORT_DOORBELLS && pex->host->wake != NULL; bit++) {
        unsigned thread = thread_of(pex, bit);
        if ((fresh >> bit & 1) != 0 && (woken >> thread & 1) == 0) {
            woken |= UINT64_C(1) << thread;
            pex->host->wake(pex->host->ctx, thread);
        }
    }
}

static uint64_t deadline(const struct via_pex_port *pex, uint64_t now_ns)
{
    if (pex->linked && via_pex_probe_is_under_way(pex)) {
        return now_ns + WAIT_NS;
    }
    if (pex->linked) {
        bool is_busy = now_ns - pex->bells_ns < POLL_BUSY_SPAN_NS;
        return now_ns + (pex->irq_is_on ? POLL_IRQ_NS : is_busy ? POLL_BUSY_NS : POLL_NS);
    }
    /* A peer that was never seen, or an unplugged cable, can be polled less often. */
    bool is_near = pex->hardware_up && pex->ack != 0;
    return now_ns + (is_near ? WAIT_NS : WAIT_LONG_NS);
}

int via_pex_link_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    uint64_t ups = pex->ups_count, downs = pex->downs_count;
    (void)drain_fd(pex->irq_fd);
    (void)drain_fd(pex->kick_fd);
    if (pex->dma != NULL) {
        via_pex_dma_service(pex, now_ns);
        via_pex_probe_reap(pex);
    }
    if (pex->quiescing) {
        finish_down(pex);
    }
    if (pex->linked) {
        check_peer(pex, now_ns);
    }
    check_chip(pex, now_ns);
    if (pex->linked) { /* not if check_peer() or check_chip() has taken the link down */
        (void)via_pex_probe_turn(pex);
    }
    if (pex->hardware_up) {
        take_bells(pex, now_ns);
    }
    if (pex->hardware_up && !pex->linked && !pex->quiescing) {
        train(pex, now_ns);
    }
    if (pex->irq_is_on && pex->config.irq == VIA_PCI_INTX) {
        (void)pex->pci->ops->irq_unmask(pex->pci);
    }
    *ret_deadline_ns = deadline(pex, now_ns);
    return pex->ups_count != ups || pex->downs_count != downs;
}

void via_pex_link_cut(struct via_port *port, bool cut)
{
    struct via_pex_port *pex = via_pex_port_of(port);
    pex->cut = cut;
    if (cut) {
        set_down(pex);
    }
}

/* Announces the end to the peer before the memory that the peer reaches is unmapped. */
void via_pex_link_close(struct via_pex_port *pex)
{
    set_down(pex);
    for (unsigned i = 0; i < QUIESCE_TRIES && pex->quiescing; i++) {
        finish_down(pex);
    }
    via_pex_chip_conceal(pex);
}
