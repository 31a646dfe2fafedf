/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * viaduct-ip: opens the device, starts a worker for each queue, and waits for the end; this thread
 * also answers status requests.
 */
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "ip/options.h"
#include "ip/status.h"

#define TICK_MS 500
#define ATTACH_AGAIN_MS 200

/* State of the process. */
static struct via_ip_options options;
static struct via_ip_shared shared;
static struct via_ip_worker workers[VIA_IP_QUEUES_MAX];

static void write_log(void *ctx, const struct via_log_message *message)
{
    (void)ctx;
    fprintf(stderr, "viaduct-ip: %s: %s\n", via_log_level_name(message->level), message->text);
}

/* Descriptors whose readability ends the process: signals, and the end of the process of --with. */
struct ends {
    int signal_fd;
    int with_fd; /* -1 = none */
};

static int open_ends(struct ends *ends, struct via_error *err)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    ends->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    ends->with_fd = -1;
    if (ends->signal_fd < 0) {
        return via_error_set(err, -errno, "signals: %s", strerror(errno));
    }
    if (options.with != 0) {
        ends->with_fd = pidfd_open(options.with, 0);
        if (ends->with_fd < 0) {
            return via_error_set(err, -errno, "--with %d: %s", (int)options.with, strerror(errno));
        }
    }
    return 0;
}

/* Waits for at most timeout_ms. True: the process must end. *ret_ready: extra_fd (-1: none) is
 * readable. */
static bool wait_for_end(const struct ends *ends, int extra_fd, int timeout_ms, bool *ret_ready)
{
    struct pollfd fds[] = {
        {.fd = ends->signal_fd, .events = POLLIN},
        {.fd = ends->with_fd, .events = POLLIN},
        {.fd = extra_fd, .events = POLLIN},
    };
    poll(fds, VIA_ARRAY_COUNT(fds), timeout_ms);
    *ret_ready = fds[2].revents != 0;
    return fds[0].revents != 0 || fds[1].revents != 0;
}

/* --- starting -------------------------------------------------------------------------------- */

static int find_rundir(struct via_error *err)
{
    static struct via_rundir_path path; /* options.rundir points into it */
    if (options.rundir == NULL) {
        int rc = via_rundir_default(options.fabric, &path, err);
        options.rundir = path.text;
        return rc;
    }
    return 0;
}

/* Without --host and $VIADUCT_HOST: the host of the run directory. -ENOENT: none yet. */
static int find_own_host(struct via_attach_options *attach_options)
{
    unsigned host;
    if (attach_options->host >= 0 || getenv("VIADUCT_HOST") != NULL) {
        return 0;
    }
    int rc = via_rundir_local(options.rundir, &host);
    attach_options->host = rc == 0 ? (int)host : -1;
    return rc;
}

/* Finds the host's id; waits until its daemon runs. 1: the process must end. */
static int find_host(const struct ends *ends, struct via_error *err)
{
    struct via_attach_options attach_options = {.size = sizeof(attach_options),
                                                .rundir = options.rundir,
                                                .host = options.host,
                                                .channel = -1};
    bool is_logged = false;
    for (;;) {
        struct via_attach *attach;
        attach_options.host = options.host;
        bool found = find_own_host(&attach_options) == 0;
        int rc = found ? via_attach_open(&attach_options, &attach) : -ENOENT;
        if (rc == 0) {
            shared.host = (uint16_t)via_attach_host(attach);
            via_attach_close(attach);
            return 0;
        }
        if (rc != -ENOENT && rc != -ECONNREFUSED && rc != -EMFILE && rc != -ENOTCONN) {
            return via_error_set(err, rc, "%s", via_error_text());
        }
        if (!is_logged) {
            via_log(VIA_LOG_INFO, "%s: waiting for a daemon: %s", options.rundir,
                    found ? via_error_text() : "no host uses this directory yet");
            is_logged = true;
        }
        bool ready;
        if (wait_for_end(ends, -1, ATTACH_AGAIN_MS, &ready)) {
            return 1;
        }
    }
}

static int open_device(struct via_error *err)
{
    struct via_ip_tun_options tun_options = {
        .name = options.name,
        .queues = options.queues,
        .mtu = options.mtu,
        .host = shared.host,
        .network = options.network,
        .offload = options.offload,
    };
    if (!via_ip_network_has4(&options.network, shared.host)) {
        return via_error_set(err, -ERANGE, "host %u: address: --network has none for this id",
                             shared.host);
    }
    int rc = via_ip_tun_open(&tun_options, &shared.tun, err);
    atomic_store_explicit(&shared.offloads, shared.tun.offloads, memory_order_relaxed);
    return rc;
}

/* Loads the kernel programs. If that fails, all packets go through inboxes; likewise with
 * --forward, because forwarded packets have addresses of other machines. */
static void open_kernel(void)
{
    const struct via_ip_kernel_params params = {
        .hosts_max = VIA_IP_HOSTS_MAX,
        .device = if_nametoindex(shared.tun.name),
        .network = options.network,
        .host = shared.host,
    };
    int rc = options.forward ? -EXDEV : via_ip_kernel_open(&shared.kernel, &params);
    if (rc != 0) {
        via_log(VIA_LOG_INFO, "no direct paths: %s", options.forward ? "--forward" : strerror(-rc));
    }
}

static void stop_workers(unsigned count)
{
    uint64_t one = 1;
    atomic_store_explicit(&shared.stop, true, memory_order_relaxed);
    (void)!write(shared.stop_fd, &one, sizeof(one));
    for (unsigned i = 0; i < count; i++) {
        via_ip_worker_join(&workers[i]);
        via_ip_worker_fini(&workers[i]);
    }
}

static int start_workers(struct via_error *err)
{
    for (unsigned i = 0; i < options.queues; i++) {
        int rc = via_ip_worker_init(&workers[i], &shared, i);
        if (rc == 0) {
            rc = via_ip_worker_start(&workers[i]);
            if (rc != 0) {
                via_ip_worker_fini(&workers[i]);
            }
        }
        if (rc != 0) {
            stop_workers(i);
            return via_error_set(err, rc, "queue %u: start: %s", i, strerror(-rc));
        }
    }
    return 0;
}

/* systemd's protocol: sd_notify(3). */
static void notify_systemd(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') ||
        strlen(path) >= sizeof(address.sun_path)) {
        return;
    }
    size_t bytes = strlen(path);
    memcpy(address.sun_path, path, bytes);
    if (path[0] == '@') {
        address.sun_path[0] = '\0';
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
        close(fd);
    }
}

static void report_ready(void)
{
    if (options.ready_fd >= 0) {
        (void)!write(options.ready_fd, "+", 1);
        close(options.ready_fd);
    }
    notify_systemd("READY=1");
}

/* --- running --------------------------------------------------------------------------------- */

/* Runs until the process must end: 0, or the host has another id now. */
static int watch(const struct ends *ends, struct via_ip_status *status, struct via_error *err)
{
    bool ready;
    while (!wait_for_end(ends, status->fd, TICK_MS, &ready)) {
        if (ready) {
            via_ip_status_serve(status, &shared, workers);
        }
        if (status->fd < 0 || via_ip_status_is_gone(status)) {
            /* The daemon's service was restarted, and its run directory replaced. */
            via_ip_status_close(status, false);
            (void)!via_ip_status_open(status, options.rundir, shared.host, NULL);
        }
        if (atomic_load_explicit(&shared.other_host, memory_order_relaxed)) {
            return via_error_set(err, -EXDEV, "host %u: attach: the daemon now has another host id",
                                 shared.host);
        }
        if (atomic_load_explicit(&shared.device_gone, memory_order_relaxed)) {
            return via_error_set(err, -ENODEV, "host %u: device %s: was deleted", shared.host,
                                 shared.tun.name);
        }
    }
    return 0;
}

static int serve(const struct ends *ends, struct via_error *err)
{
    struct via_ip_status status;
    int rc = via_ip_status_open(&status, options.rundir, shared.host, err);
    if (rc != 0) {
        return rc;
    }
    rc = open_device(err);
    if (rc == 0) {
        open_kernel();
        rc = start_workers(err);
        if (rc == 0) {
            report_ready();
            via_log(VIA_LOG_INFO, "host %u: device %s is up", shared.host, shared.tun.name);
            rc = watch(ends, &status, err);
            stop_workers(options.queues);
        }
        via_ip_kernel_close(&shared.kernel);
        via_ip_tun_close(&shared.tun);
    }
    via_ip_status_close(&status, true);
    return rc;
}

int main(int argc, char **argv)
{
    struct via_error err = {0};
    struct ends ends;
    int code = via_ip_options_take(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    via_log_set_sink(write_log, NULL);
    int rc = open_ends(&ends, &err);
    shared.options = &options;
    shared.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rc == 0 && shared.stop_fd < 0) {
        rc = via_error_set(&err, -errno, "eventfd: %s", strerror(errno));
    }
    rc = rc == 0 ? find_rundir(&err) : rc;
    rc = rc == 0 ? find_host(&ends, &err) : rc;
    rc = rc == 0 ? serve(&ends, &err) : rc;
    if (rc < 0) {
        fprintf(stderr, "viaduct-ip: %s\n", via_error_describe(&err));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
