/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_transfer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pause.h"
#include "base/signals.h"
#include "host/host_private.h"
#include "port/bell.h"

/* Interval of polls of a fence while the thread sleeps, for the port's own time-out. */
#define FENCE_SLEEP_NS (20 * VIA_MSEC_NS)
/* Interval at which a sleeping thread polls its pipes, because hardware may lose an interrupt. */
#define POLL_NS (5 * VIA_SEC_NS)

static bool is_crowded(void *ctx)
{
    const struct via_host *host = ctx;
    return via_host_spin_is_crowded(host->loadavg_fd, host->cpus);
}

int via_transfer_init(struct via_transfer *transfer, struct via_host *host, unsigned channel,
                      struct via_error *err)
{
    *transfer = (struct via_transfer){
        .host = host,
        .channel = channel,
        .bell = (struct via_bell *)host->bells.base + channel,
    };
    pthread_mutex_init(&transfer->mail_lock, NULL);
    via_list_init(&transfer->mail);
    via_list_init(&transfer->active);
    via_list_init(&transfer->idle);
    via_list_init(&transfer->touched);
    via_list_init(&transfer->starved);
    via_list_init(&transfer->sends);
    uint64_t spin_ns = host->options.spin_ns_max;
    if (host->cpus <= 1 || host->config.channels_count > host->cpus) {
        spin_ns = 0;
    }
    via_host_wait_init(&transfer->wait, spin_ns, is_crowded, host);

    transfer->by_slot = calloc(host->options.processes_max, sizeof(*transfer->by_slot));
    transfer->flows_taken = calloc(host->config.hosts_max, sizeof(*transfer->flows_taken));
    if (transfer->by_slot == NULL || transfer->flows_taken == NULL) {
        via_transfer_fini(transfer);
        return via_error_set(err, -ENOMEM, "table of channel %u: %s", channel, strerror(ENOMEM));
    }
    return 0;
}

void via_transfer_fini(struct via_transfer *transfer)
{
    if (transfer->host == NULL) {
        return;
    }
    free(transfer->by_slot);
    free(transfer->flows_taken);
    pthread_mutex_destroy(&transfer->mail_lock);
    transfer->host = NULL;
}

void via_transfer_post(struct via_transfer *transfer, struct via_mail *mail)
{
    pthread_mutex_lock(&transfer->mail_lock);
    via_list_push_back(&transfer->mail, &mail->link);
    atomic_store_explicit(&transfer->mail_there, true, memory_order_release);
    pthread_mutex_unlock(&transfer->mail_lock);
    via_bell_ring(transfer->bell);
}

static void handle_mail(struct via_transfer *transfer)
{
    struct via_list mail;
    via_list_init(&mail);
    pthread_mutex_lock(&transfer->mail_lock);
    via_list_splice_back(&mail, &transfer->mail);
    atomic_store_explicit(&transfer->mail_there, false, memory_order_relaxed);
    pthread_mutex_unlock(&transfer->mail_lock);

    for (struct via_list *link; (link = via_list_pop_front(&mail)) != NULL;) {
        struct via_mail *one = via_list_entry(link, struct via_mail, link);
        one->handle(transfer, one);
    }
}

/* True if the control thread waits for this thread to begin a turn. */
static bool is_behind(const struct via_transfer *transfer, uint64_t *ret_target)
{
    *ret_target = atomic_load_explicit(&transfer->host->sync_target, memory_order_acquire);
    return *ret_target != atomic_load_explicit(&transfer->synced, memory_order_relaxed);
}

/* Reports that earlier turns have ended, and that mail posted before the request is handled. */
static void catch_up(struct via_transfer *transfer, uint64_t target)
{
    /* Pairs with the acquire in via_host_is_synced(). */
    atomic_store_explicit(&transfer->synced, target, memory_order_release);
    via_host_poke(transfer->host);
}

/* A turn after a sleep that no bell has ended should find no work. If it finds work, the bell may
 * still be on its way. The bell counts as missed if it has not rung by the end of the next such
 * sleep. */
static void note_poll(struct via_transfer *transfer, unsigned work)
{
    transfer->unannounced |= transfer->polls_unrung && work != 0;
    transfer->polls_unrung = false;
}

/* Takes one turn. Returns how much it did. */
static unsigned run_turn(void *ctx, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_transfer *transfer = ctx;
    unsigned work = 0;
    uint64_t target;
    bool behind = is_behind(transfer, &target);
    if (via_tenant_bells_have_rung(transfer)) {
        via_tenant_bells_note(transfer);
        transfer->unannounced = transfer->polls_unrung = false;
        via_process_channels_rearm(transfer);
    } else if (transfer->polls_unrung) {
        via_process_channels_rearm(transfer); /* these turns also poll the pipes of processes */
    }
    if (atomic_load_explicit(&transfer->mail_there, memory_order_acquire)) {
        handle_mail(transfer);
        work++;
    }
    if (behind) {
        catch_up(transfer, target);
    }
    if (!via_list_is_empty(&transfer->sends)) {
        via_host_message_submit_again(transfer);
    }
    work += via_process_channels_serve(transfer);
    work += via_node_poll(transfer->host->node, transfer->channel, now_ns, ret_deadline_ns);
    work += via_process_channels_feed(transfer);
    via_process_channels_flush(transfer);
    note_poll(transfer, work);
    return work;
}

/* Arms all pipes, then checks them again. */
static bool arm(void *ctx, enum via_arm *ret_armed)
{
    struct via_transfer *transfer = ctx;
    if (via_tenant_bells_have_rung(transfer)) {
        return false;
    }
    bool nothing = !via_process_channels_arm(transfer);
    enum via_arm armed = via_node_arm(transfer->host->node, transfer->channel);
    uint64_t target;
    nothing = nothing && !is_behind(transfer, &target) &&
              !atomic_load_explicit(&transfer->mail_there, memory_order_acquire) &&
              !atomic_load_explicit(&transfer->host->stopping, memory_order_acquire);
    *ret_armed = nothing ? armed : VIA_ARM_BUSY;
    return true;
}

/* Fences are under way, and other threads need the CPU. */
static void wait_for_fence(struct via_transfer *transfer, uint64_t now_ns)
{
    if (via_node_release_ports(transfer->host->node, transfer->channel)) {
        via_tenant_bells_sleep(transfer, now_ns + FENCE_SLEEP_NS);
    } else {
        sched_yield();
    }
}

static void sleep_until_rung(struct via_transfer *transfer, uint64_t now_ns, uint64_t deadline_ns)
{
    uint64_t poll_ns = now_ns + POLL_NS;
    via_tenant_bells_sleep(transfer, via_min(deadline_ns, poll_ns));
    uint64_t woken_ns = via_host_now_ns();
    transfer->polls_unrung =
        woken_ns >= poll_ns && woken_ns < deadline_ns && !via_tenant_bells_have_rung(transfer);
    if (transfer->polls_unrung && transfer->unannounced) {
        atomic_fetch_add_explicit(&transfer->bells_missed, 1, memory_order_relaxed);
        transfer->unannounced = false;
    }
}

static void act(void *ctx, enum via_host_wait_step step, uint64_t now_ns, uint64_t deadline_ns)
{
    struct via_transfer *transfer = ctx;
    switch (step) {
    case VIA_HOST_WAIT_TURN:
    case VIA_HOST_WAIT_ARM:
        break;
    case VIA_HOST_WAIT_POLL:
        via_cpu_pause();
        break;
    case VIA_HOST_WAIT_FENCE:
        wait_for_fence(transfer, now_ns);
        break;
    case VIA_HOST_WAIT_WAKE_CONTROL:
    case VIA_HOST_WAIT_SLEEP:
        if (step == VIA_HOST_WAIT_WAKE_CONTROL) {
            via_host_control_request(transfer->host);
        }
        sleep_until_rung(transfer, now_ns, deadline_ns);
        via_host_wait_slept(&transfer->wait, via_host_now_ns());
        break;
    }
}

static void run(struct via_transfer *transfer)
{
    static const struct via_host_wait_ops ops = {.turn = run_turn, .arm = arm, .act = act};
    while (!atomic_load_explicit(&transfer->host->stopping, memory_order_acquire)) {
        via_host_wait_turn(&transfer->wait, via_host_now_ns(), &ops, transfer);
    }
}

static void *thread_main(void *argument)
{
    run(argument);
    return NULL;
}

int via_transfer_start(struct via_transfer *transfer, struct via_error *err)
{
    sigset_t old;
    via_signals_block(&old);
    int code = pthread_create(&transfer->thread, NULL, thread_main, transfer);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        return via_error_set(err, -code, "transfer thread %u: pthread_create: %s",
                             transfer->channel, strerror(code));
    }
    char name[16];
    snprintf(name, sizeof(name), "via-%u-ch%u", transfer->host->config.host, transfer->channel);
    pthread_setname_np(transfer->thread, name);
    transfer->started = true;
    return 0;
}

void via_transfer_join(struct via_transfer *transfer)
{
    if (transfer->started) {
        via_bell_ring(transfer->bell);
        pthread_join(transfer->thread, NULL);
        transfer->started = false;
    }
}

uint64_t via_host_bells_missed(const struct via_host *host)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < host->config.channels_count; i++) {
        sum += atomic_load_explicit(&host->transfers[i].bells_missed, memory_order_relaxed);
    }
    return sum;
}
