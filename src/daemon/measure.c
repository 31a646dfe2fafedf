/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/measure.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/child.h"
#include "daemon/decisions.h"

#define LOOK_S 1
/* Numbers of ticks of the timer. */
#define CLIENT_POLLS_MAX 90u
#define SERVER_LOOKS_MAX 100u
#define TOKEN_BYTES 32u
/* Longest wait of the ending daemon for the thread that writes the file, in ms. */
#define END_TRIES 1000

/* The writing of one file. Until `done` it belongs to the thread. */
struct saving {
    char *text;
    struct via_error err;
    int rc;
    _Atomic bool done;
};

static struct {
    struct via_host *host;
    const struct via_daemon_options *options;
    struct via_host_source timer;
    struct via_child client; /* measures the connection to host client_peer */
    struct via_child server; /* the server of a measurement by host server_peer */
    uint16_t client_peer, server_peer;
    unsigned client_polls, server_polls; /* ticks since the child was started */
    unsigned tcp_port;                   /* of the server; 0: it does not listen yet */
    bool server_failed;                  /* the other host has not received this yet */
    char token[TOKEN_BYTES + 1];
    bool dirty; /* the file lacks a decision */
    bool save_failed;
    bool saving;
    pthread_t thread;
    struct saving save;
} measure = {.timer = {.fd = -1}};

/* --- the file --------------------------------------------------------------------------------- */

static void *save(void *argument)
{
    struct saving *saving = argument;
    saving->rc = via_decisions_write(measure.options->state, saving->text, &saving->err);
    /* Pairs with the acquire in end_save(). */
    atomic_store_explicit(&saving->done, true, memory_order_release);
    return NULL;
}

/* Logs a failure once, until writing succeeds again. */
static void log_saved(int rc, const struct via_error *err)
{
    if (rc != 0 && !measure.save_failed) {
        via_log(VIA_LOG_WARN,
                "host %u: decisions about TCP connections are not kept over a restart: %s",
                measure.options->host.host, err->text);
    }
    measure.save_failed = rc != 0;
}

static void begin_save(void)
{
    sigset_t all, old;
    measure.save = (struct saving){.text = via_decisions_text(measure.host)};
    if (measure.save.text == NULL) {
        return; /* tried again at the next tick */
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    measure.saving = pthread_create(&measure.thread, NULL, save, &measure.save) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (measure.saving) {
        measure.dirty = false;
    } else {
        free(measure.save.text);
    }
}

/* True if no thread writes. */
static bool end_save(void)
{
    if (measure.saving && atomic_load_explicit(&measure.save.done, memory_order_acquire)) {
        pthread_join(measure.thread, NULL);
        log_saved(measure.save.rc, &measure.save.err);
        measure.dirty = measure.dirty || measure.save.rc != 0;
        free(measure.save.text);
        measure.saving = false;
    }
    return !measure.saving;
}

static void changed(void *ctx)
{
    (void)ctx;
    measure.dirty = measure.options->state[0] != '\0';
}

/* --- the measuring end ------------------------------------------------------------------------ */

static void client_ended(struct via_child *child, int status)
{
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (failed) {
        via_log(VIA_LOG_INFO, "host %u: measure TCP connections to host %u: %s",
                measure.options->host.host, measure.client_peer,
                child->bytes != 0 ? via_child_last_line(child) : "it took too long");
    }
    via_host_measured_ended(measure.host, measure.client_peer, failed);
}

static void start_client(uint16_t peer)
{
    struct via_error err;
    char id[8];
    const char *const words[] = {"tune", "sockets", "--automatic", id, NULL};
    snprintf(id, sizeof(id), "%u", peer);
    measure.client_peer = peer;
    measure.client_polls = 0;
    measure.client.ended = client_ended;
    if (via_child_start(&measure.client, measure.host, measure.options->rundir.text,
                        measure.options->host.host, words, &err) != 0) {
        via_log(VIA_LOG_INFO, "host %u: measure TCP connections to host %u: %s",
                measure.options->host.host, peer, err.text);
        via_host_measured_ended(measure.host, peer, true);
        return;
    }
    via_log(VIA_LOG_INFO, "host %u: measures TCP connections to host %u",
            measure.options->host.host, peer);
}

/* --- the other end ---------------------------------------------------------------------------- */

static void server_ended(struct via_child *child, int status)
{
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (failed && measure.tcp_port == 0) {
        via_log(VIA_LOG_INFO, "host %u: measure for host %u: start the other end: %s",
                measure.options->host.host, measure.server_peer,
                child->bytes != 0 ? via_child_last_line(child) : "it ended");
        measure.server_failed = true;
    }
    measure.tcp_port = 0;
}

static void find_port(void)
{
    char token[TOKEN_BYTES + 2];
    unsigned tcp_port;
    if (measure.tcp_port == 0 && strchr(measure.server.printed, '\n') != NULL &&
        sscanf(measure.server.printed, "%5u %33s", &tcp_port, token) == 2 &&
        tcp_port <= UINT16_MAX && strlen(token) == TOKEN_BYTES) {
        measure.tcp_port = tcp_port;
        memcpy(measure.token, token, sizeof(measure.token));
    }
}

static int serve(void *ctx, uint16_t peer, unsigned *ret_tcp_port, const char **ret_token)
{
    (void)ctx;
    struct via_error err;
    const char *address = via_host_first_address(measure.host);
    const char *const words[] = {"tune", "sockets", "--serve", address, NULL};
    if (measure.server.pid != 0 && measure.server_peer != peer) {
        return -EBUSY;
    }
    if (address == NULL) {
        return -EADDRNOTAVAIL;
    }
    if (measure.server_failed && measure.server_peer == peer) {
        measure.server_failed = false;
        return -ECHILD; /* the log has the reason */
    }
    if (measure.server.pid == 0) {
        measure.server_failed = false;
        measure.server_peer = peer;
        measure.server_polls = 0;
        measure.tcp_port = 0;
        measure.server.ended = server_ended;
        int rc = via_child_start(&measure.server, measure.host, measure.options->rundir.text,
                                 measure.options->host.host, words, &err);
        return rc == 0 ? -EAGAIN : rc;
    }
    find_port();
    *ret_tcp_port = measure.tcp_port;
    *ret_token = measure.token;
    return measure.tcp_port != 0 ? 0 : -EAGAIN;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void on_timer(struct via_host_source *source, uint32_t events)
{
    uint64_t count;
    (void)events;
    (void)!read(source->fd, &count, sizeof(count));
    if (measure.client.pid != 0 && ++measure.client_polls > CLIENT_POLLS_MAX) {
        via_child_kill(&measure.client);
    }
    if (measure.server.pid != 0 && ++measure.server_polls > SERVER_LOOKS_MAX) {
        via_child_kill(&measure.server);
    }
    if (end_save() && measure.dirty) {
        begin_save();
    }
    int peer = measure.options->measures && measure.client.pid == 0
                   ? via_host_measured_next(measure.host)
                   : -ENOENT;
    if (peer >= 0) {
        start_client((uint16_t)peer);
    }
}

int via_measure_open(struct via_host *host, const struct via_daemon_options *options,
                     struct via_error *err)
{
    struct via_error lost;
    measure.host = host;
    measure.options = options;
    measure.client = measure.server = VIA_CHILD_NONE;
    const struct via_host_measuring calls = {.changed = changed,
                                             .serve = options->measures ? serve : NULL};
    struct itimerspec timer = {.it_interval = {.tv_sec = LOOK_S}, .it_value = {.tv_sec = LOOK_S}};
    via_host_set_measuring(host, &calls);
    if (options->state[0] != '\0' && via_decisions_load(options->state, host, &lost) != 0) {
        via_log(VIA_LOG_WARN, "host %u: decisions about TCP connections: the file is not used: %s",
                options->host.host, lost.text);
    }
    measure.timer.ready = on_timer;
    measure.timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (measure.timer.fd < 0 || timerfd_settime(measure.timer.fd, 0, &timer, NULL) != 0) {
        return via_error_set(err, -errno, "measure: timerfd: %s", strerror(errno));
    }
    int rc = via_host_source_add(host, &measure.timer, EPOLLIN);
    return rc == 0 ? 0 : via_error_set(err, rc, "measure: epoll: %s", strerror(-rc));
}

void via_measure_close(void)
{
    int fd = measure.timer.fd;
    if (fd < 0) {
        return;
    }
    via_child_close(&measure.client);
    via_child_close(&measure.server);
    via_host_source_remove(measure.host, &measure.timer);
    close(fd);
    for (unsigned i = 0; i < END_TRIES && !end_save(); i++) {
        usleep(1000);
    }
    if (measure.dirty && !measure.saving) {
        struct via_error err = {0};
        char *text = via_decisions_text(measure.host);
        log_saved(text != NULL ? via_decisions_write(measure.options->state, text, &err) : -ENOMEM,
                  &err);
        free(text);
    }
}
