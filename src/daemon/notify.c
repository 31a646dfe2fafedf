/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "host/host_source.h"

#define MESSAGE_BYTES 512u

static struct {
    int fd;
    struct sockaddr_un address;
    socklen_t address_bytes;
    struct via_host_source watchdog; /* timerfd */
} notify = {.fd = -1, .watchdog = {.fd = -1}};

uint64_t via_notify_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void via_notify_send(const char *format, ...)
{
    char text[MESSAGE_BYTES];
    if (notify.fd < 0) {
        return;
    }
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t length = via_min((size_t)via_max(bytes, 0), sizeof(text) - 1);
    (void)sendto(notify.fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT,
                 (const struct sockaddr *)&notify.address, notify.address_bytes);
}

static void watchdog_due(struct via_host_source *source, uint32_t events)
{
    uint64_t count;
    (void)events;
    if (read(source->fd, &count, sizeof(count)) == (ssize_t)sizeof(count)) {
        via_notify_send("WATCHDOG=1");
    }
}

static int open_socket(const char *path, struct via_error *err)
{
    size_t bytes = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || path[1] == '\0' ||
        bytes >= sizeof(notify.address.sun_path)) {
        return via_error_set(err, -EINVAL, "NOTIFY_SOCKET '%.120s': no path of a UNIX socket",
                             path);
    }
    notify.address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(notify.address.sun_path, path, bytes);
    if (path[0] == '@') {
        notify.address.sun_path[0] = '\0';
    }
    notify.address_bytes =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + (path[0] == '@' ? 0 : 1));
    notify.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return notify.fd >= 0 ? 0 : via_error_set(err, -errno, "NOTIFY_SOCKET: %s", strerror(errno));
}

/* The watchdog's interval; 0: no watchdog is requested. */
static int watchdog_us(uint64_t *ret_us, struct via_error *err)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    char *end;
    *ret_us = 0;
    if (usec == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid())) {
        return 0;
    }
    errno = 0;
    unsigned long long value = strtoull(usec, &end, 10);
    if (usec[0] < '0' || usec[0] > '9' || *end != '\0' || errno != 0 || value < 2) {
        return via_error_set(err, -EINVAL, "WATCHDOG_USEC '%.40s': no number of microseconds",
                             usec);
    }
    *ret_us = value;
    return 0;
}

static int open_watchdog(struct via_host *host, uint64_t us, struct via_error *err)
{
    uint64_t half_us = us / 2;
    struct timespec half = {.tv_sec = (time_t)(half_us / 1000000),
                            .tv_nsec = (long)(half_us % 1000000) * 1000};
    struct itimerspec timer = {.it_interval = half, .it_value = half};
    notify.watchdog.ready = watchdog_due;
    notify.watchdog.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (notify.watchdog.fd < 0 || timerfd_settime(notify.watchdog.fd, 0, &timer, NULL) != 0) {
        return via_error_set(err, -errno, "watchdog: timerfd: %s", strerror(errno));
    }
    int rc = via_host_source_add(host, &notify.watchdog, EPOLLIN);
    return rc == 0 ? 0 : via_error_set(err, rc, "watchdog: epoll: %s", strerror(-rc));
}

int via_notify_open(struct via_host *host, struct via_error *err)
{
    const char *path = getenv("NOTIFY_SOCKET");
    uint64_t us = 0;
    int rc = 0;
    if (path != NULL && path[0] != '\0') {
        rc = open_socket(path, err);
        if (rc == 0) {
            rc = watchdog_us(&us, err);
        }
        if (rc == 0 && us != 0) {
            rc = open_watchdog(host, us, err);
        }
    }
    /* Programs that this daemon starts must not inherit these. */
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return rc;
}

void via_notify_close(struct via_host *host)
{
    int fd = notify.watchdog.fd;
    if (fd >= 0) {
        via_host_source_remove(host, &notify.watchdog);
        close(fd);
    }
    if (notify.fd >= 0) {
        close(notify.fd);
        notify.fd = -1;
    }
}
