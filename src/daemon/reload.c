/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/reload.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/log_writer.h"
#include "host/host_source.h"

#define LINES_MAX 512u
/* Longest wait of the ending daemon for the thread that reads the file, in ms. */
#define END_TRIES 1000

/* The data of one reload. Until `loaded` it belongs to the thread. */
struct reading {
    struct via_daemon_options options;
    struct via_daemon_report report;
    struct via_daemon_key key;
    int rc;
    _Atomic bool loaded;
};

static struct {
    struct via_host *host;
    const struct via_daemon_options *running;
    struct via_daemon_key *key;
    struct via_reload_calls calls;
    struct via_host_source source; /* eventfd */
    _Atomic bool requested;        /* [any] a reload was requested */
    bool active;                   /* from the start of the thread to the end of the changes */
    bool failed;
    pthread_t thread;
    bool thread_started;
    struct reading *reading;
    struct via_host_change change;
} reload = {.source = {.fd = -1}};

/* --- the thread ------------------------------------------------------------------------------- */

static void poke(void)
{
    uint64_t one = 1;
    (void)!write(reload.source.fd, &one, sizeof(one));
}

static void *load(void *argument)
{
    struct reading *reading = argument;
    struct via_error err;
    via_daemon_options_init(&reading->options);
    reading->rc =
        via_daemon_config_load(reload.running->config_path, &reading->options, &reading->report);
    if (reading->rc == 0 && reload.key != NULL &&
        via_daemon_key_read(reload.running->key_path, &reading->key, &err) != 0) {
        via_daemon_report_add(&reading->report, "%s", err.text);
        reading->rc = -EINVAL;
    }
    /* Pairs with the acquire in take_loaded(). */
    atomic_store_explicit(&reading->loaded, true, memory_order_release);
    poke();
    return NULL;
}

static int start_thread(void)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&reload.thread, NULL, load, reload.reading);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    reload.thread_started = code == 0;
    return -code;
}

/* --- the control thread ----------------------------------------------------------------------- */

struct lines {
    unsigned count;
    const char *line[LINES_MAX];
};

static void keep_line(void *ctx, const char *line)
{
    struct lines *lines = ctx;
    via_log(reload.failed ? VIA_LOG_ERROR : VIA_LOG_INFO, "reload: %s", line);
    if (lines->count < LINES_MAX) {
        const char *copy = strdup(line);
        lines->count += copy != NULL;
        lines->line[via_max(lines->count, 1u) - 1] = copy;
    }
}

static void end_reload(void)
{
    static struct lines lines;
    lines.count = 0;
    via_daemon_report_each(&reload.reading->report, keep_line, &lines);
    via_log(reload.failed ? VIA_LOG_ERROR : VIA_LOG_INFO, "reload of %s: %s",
            reload.running->config_path,
            reload.reading->rc != 0 ? "nothing was changed"
            : reload.failed         ? "not everything was done"
                                    : "done");
    reload.active = false;
    via_host_reloaded(reload.host, reload.failed, lines.line, lines.count);
    for (unsigned i = 0; i < lines.count; i++) {
        free((void *)(uintptr_t)lines.line[i]);
    }
    explicit_bzero(&reload.reading->key, sizeof(reload.reading->key));
    free(reload.reading);
    reload.reading = NULL;
    reload.calls.ended(reload.failed);
}

static void note(void *ctx, bool failed, const char *text)
{
    (void)ctx;
    reload.failed = reload.failed || failed;
    via_daemon_report_add(&reload.reading->report, "%s", text);
}

static void changes_done(void *ctx)
{
    (void)ctx;
    end_reload();
    poke(); /* another reload may have been requested meanwhile */
}

static void apply(void)
{
    struct reading *reading = reload.reading;
    struct via_error err;
    if (reading->rc == 0) {
        (void)via_daemon_config_compare(reload.running, &reading->options, &reading->report);
        if (via_host_change(reload.host, &reading->options.host, &reload.change, &err) == 0) {
            via_log_set_level(reading->options.log_level);
            via_daemon_log_set_bytes(reading->options.log_bytes);
            if (reload.key != NULL) {
                /* Applies to links that come up from now on. */
                via_daemon_key_replace(reload.key, &reading->key);
            }
            return; /* changes_done() follows */
        }
        via_daemon_report_add(&reading->report, "%s", err.text);
        reading->rc = -EINVAL;
    }
    reload.failed = true;
    end_reload();
}

static void take_loaded(void)
{
    /* Pairs with the release in load(). */
    if (!reload.thread_started ||
        !atomic_load_explicit(&reload.reading->loaded, memory_order_acquire)) {
        return;
    }
    pthread_join(reload.thread, NULL);
    reload.thread_started = false;
    apply();
}

static void begin(void)
{
    reload.active = true;
    reload.failed = false;
    reload.calls.started();
    via_log(VIA_LOG_INFO, "reload of %s: begins", reload.running->config_path);
    via_host_reload_started(reload.host);
    reload.reading = calloc(1, sizeof(*reload.reading));
    int rc = reload.reading != NULL ? start_thread() : -ENOMEM;
    if (rc == 0) {
        return;
    }
    const char *line = strerror(-rc);
    via_log(VIA_LOG_ERROR, "reload: %s", line);
    free(reload.reading);
    reload.reading = NULL;
    reload.active = false;
    via_host_reloaded(reload.host, true, &line, 1);
    reload.calls.ended(true);
}

static void ready(struct via_host_source *source, uint32_t events)
{
    uint64_t count;
    (void)events;
    (void)!read(source->fd, &count, sizeof(count));
    if (reload.active) {
        take_loaded();
    }
    /* A request that arrives while the file is read may follow a further change, so the file is
     * read again. */
    if (!reload.active &&
        atomic_exchange_explicit(&reload.requested, false, memory_order_acq_rel)) {
        begin();
    }
}

static void on_request(void *ctx)
{
    (void)ctx;
    via_reload_request();
}

void via_reload_request(void)
{
    int saved = errno; /* errno of the code that the signal interrupted */
    if (reload.source.fd >= 0) {
        atomic_store_explicit(&reload.requested, true, memory_order_release);
        poke();
    }
    errno = saved;
}

int via_reload_open(struct via_host *host, const struct via_daemon_options *options,
                    struct via_daemon_key *key, const struct via_reload_calls *calls,
                    struct via_error *err)
{
    reload.host = host;
    reload.running = options;
    reload.key = key;
    reload.calls = *calls;
    reload.change = (struct via_host_change){.note = note, .done = changes_done};
    reload.source.ready = ready;
    reload.source.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reload.source.fd < 0) {
        return via_error_set(err, -errno, "reload: eventfd: %s", strerror(errno));
    }
    int rc = via_host_source_add(host, &reload.source, EPOLLIN);
    if (rc != 0) {
        close(reload.source.fd);
        reload.source.fd = -1;
        return via_error_set(err, rc, "reload: epoll: %s", strerror(-rc));
    }
    via_host_set_reload(host, on_request, NULL);
    return 0;
}

void via_reload_close(void)
{
    int fd = reload.source.fd;
    if (fd < 0) {
        return;
    }
    bool stuck = false;
    if (reload.thread_started) {
        for (int i = 0;
             i < END_TRIES && !atomic_load_explicit(&reload.reading->loaded, memory_order_acquire);
             i++) {
            usleep(1000);
        }
        stuck = !atomic_load_explicit(&reload.reading->loaded, memory_order_acquire);
        if (!stuck) {
            pthread_join(reload.thread, NULL);
        }
    }
    if (stuck) {
        return; /* the thread keeps the eventfd and the memory until the process ends */
    }
    via_host_source_remove(reload.host, &reload.source);
    close(fd);
    free(reload.reading);
    reload.reading = NULL;
}
