/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "host/host_private.h"

#define BACKLOG 128
#define ACCEPTS_PER_TURN 16
#define PAUSE_NS (10 * VIA_MSEC_NS)

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* No descriptor is left: accepts one connection with the spare descriptor and closes it, so that
 * its process gets an error. Without a spare descriptor that is impossible, because the kernel
 * allocates the descriptor before it checks whether there is a connection. */
static void refuse_one(struct via_host_listener *listener)
{
    close(listener->spare_fd);
    listener->spare_fd = -1; /* until the reaper has closed the connection */
    int fd = accept4(listener->source.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        shutdown(fd, SHUT_RDWR);
        via_reaper_add_fds(listener->host->reaper, &fd, 1);
        via_host_warn(listener->host, VIA_HOST_WARNS_FULL, 0,
                      "host %u: %s: connection refused: out of descriptors",
                      listener->host->config.host, listener->path.text);
    }
}

/* Leaves connections in the kernel's queue for PAUSE_NS. */
static void pause_accepting(struct via_host_listener *listener)
{
    listener->resume_ns = listener->host->now_ns + PAUSE_NS;
    via_host_source_modify(listener->host, &listener->source, 0);
}

uint64_t via_host_listener_tick(struct via_host_listener *listener)
{
    if (listener->host == NULL || listener->host->now_ns < listener->resume_ns) {
        return listener->host == NULL ? VIA_NEVER_NS : listener->resume_ns;
    }
    if (listener->resume_ns != 0) {
        listener->resume_ns = 0;
        via_host_source_modify(listener->host, &listener->source, EPOLLIN);
    }
    return VIA_NEVER_NS;
}

static void accept_one(struct via_host_listener *listener, int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        via_reaper_add_fds(listener->host->reaper, &fd, 1);
        return;
    }
    listener->accepted(listener->host, fd, &peer);
}

static void ready(struct via_host_source *source, uint32_t events)
{
    struct via_host_listener *listener = via_container_of(source, struct via_host_listener, source);
    (void)events;
    if (listener->spare_fd < 0) {
        listener->spare_fd = open_spare();
    }
    if (listener->spare_fd < 0) {
        pause_accepting(listener);
        return;
    }
    for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            accept_one(listener, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            refuse_one(listener);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static int bind_to(struct via_host_listener *listener, struct via_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = listener->path.text;
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (unlink(path) != 0 && errno != ENOENT) {
        return via_error_set(err, -errno, "remove the old socket: %s", strerror(errno));
    }
    if (bind(listener->source.fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        return via_error_set(err, -errno, "bind: %s", strerror(errno));
    }
    listener->bound = true;
    /* The run directory keeps users without rights out. The answer to HELLO gives all other
     * processes the reason why they may not attach. */
    if (chmod(path, 0666) != 0) {
        return via_error_set(err, -errno, "chmod: %s", strerror(errno));
    }
    if (listen(listener->source.fd, BACKLOG) != 0) {
        return via_error_set(err, -errno, "listen: %s", strerror(errno));
    }
    return 0;
}

int via_host_listener_open(struct via_host *host, struct via_host_listener *listener,
                           const struct via_rundir_path *path, int type,
                           void (*accepted)(struct via_host *host, int fd,
                                            const struct ucred *peer),
                           struct via_error *err)
{
    *listener = (struct via_host_listener){
        .host = host,
        .source = {.ready = ready, .fd = -1},
        .path = *path,
        .accepted = accepted,
        .spare_fd = open_spare(),
    };
    int rc = 0;
    listener->source.fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->source.fd < 0) {
        rc = via_error_set(err, -errno, "socket: %s", strerror(errno));
    } else {
        rc = bind_to(listener, err);
    }
    if (rc == 0) {
        rc = via_host_source_add(host, &listener->source, EPOLLIN);
        if (rc != 0) {
            via_error_set(err, rc, "epoll: %s", strerror(-rc));
        }
    }
    if (rc != 0) {
        via_host_listener_close(listener);
        via_error_prefix(err, "listen on %s: ", path->text);
    }
    return rc;
}

void via_host_listener_close(struct via_host_listener *listener)
{
    if (listener->host == NULL) {
        return;
    }
    if (listener->source.fd >= 0) {
        int fd = listener->source.fd;
        via_host_source_remove(listener->host, &listener->source);
        close(fd);
    }
    if (listener->bound) {
        unlink(listener->path.text);
    }
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
    }
    listener->host = NULL;
}
