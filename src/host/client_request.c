/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Requests and answers on the attach socket: one datagram each, with descriptors as ancillary
 * data. */
#include "host/client.h"

#include <errno.h>
#include <string.h>

#include "base/fds.h"
#include "host/client_sys.h"

int via_client_socket_send(int socket_fd, const struct via_attach_request *content, int fd)
{
    struct iovec iov = {.iov_base = (void *)content, .iov_len = sizeof(*content)};
    VIA_FDS_SPACE(1) space = {0};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    via_fds_add(&message, &space, &fd, fd >= 0 ? 1 : 0);
    long sent = via_sys_sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? (int)sent : 0;
}

/* Collects the descriptors. Closes those beyond the fourth. */
static unsigned take_fds(struct msghdr *message, int *fds)
{
    struct via_fds_place place = {0};
    unsigned count = 0;
    int fd;
    while (via_fds_next(message, &place, &fd)) {
        if (count < VIA_CLIENT_ANSWER_FDS_MAX) {
            fds[count++] = via_client_fd_keep(fd);
        } else {
            via_sys_close(fd);
        }
    }
    return count;
}

/* sizeof(*answer). 0: the host has closed the socket. -EAGAIN. -EPROTO: not an answer, or
 * descriptors were lost. */
long via_client_socket_receive(int socket_fd, struct via_attach_answer *answer, int *fds,
                               unsigned *ret_fds_count)
{
    struct iovec iov = {.iov_base = answer, .iov_len = sizeof(*answer)};
    VIA_FDS_SPACE(VIA_CLIENT_ANSWER_FDS_MAX) space;
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &space,
        .msg_controllen = sizeof(space),
    };
    long bytes = via_sys_recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *ret_fds_count = 0;
    if (bytes <= 0) {
        return bytes;
    }
    *ret_fds_count = take_fds(&message, fds);
    if (bytes == (long)sizeof(*answer) && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
        answer->magic == VIA_ATTACH_MAGIC) {
        return bytes;
    }
    for (unsigned i = 0; i < *ret_fds_count; i++) {
        via_client_fd_close(fds[i]);
    }
    *ret_fds_count = 0;
    return -EPROTO;
}

static struct via_client_request *find(struct via_attach *attach, uint32_t id)
{
    via_list_foreach(it, &attach->requests) {
        struct via_client_request *request = via_list_entry(it, struct via_client_request, link);
        if (request->id == id) {
            return request;
        }
    }
    return NULL;
}

static void deliver(struct via_attach *attach, const struct via_attach_answer *answer,
                    const int *fds, unsigned fds_count)
{
    struct via_client_request *request = find(attach, answer->id);
    if (request == NULL) {
        /* The request was given up meanwhile. */
        for (unsigned i = 0; i < fds_count; i++) {
            via_client_fd_close(fds[i]);
        }
        return;
    }
    via_list_remove(&request->link);
    request->answer = *answer;
    memcpy(request->fds, fds, sizeof(*fds) * fds_count);
    request->fds_count = fds_count;
    request->done = true;
    if (request->answered != NULL) {
        request->answered(attach, request);
    }
}

unsigned via_client_take_answers(struct via_attach *attach)
{
    unsigned taken = 0;
    for (;;) {
        struct via_attach_answer answer;
        int fds[VIA_CLIENT_ANSWER_FDS_MAX];
        unsigned fds_count;
        long rc = via_client_socket_receive(attach->socket_fd, &answer, fds, &fds_count);
        if (rc == -EINTR) {
            continue;
        }
        if (rc == -EAGAIN) {
            attach->socket_ready = false;
            return taken;
        }
        if (rc <= 0) {
            attach->socket_ready = false;
            via_client_die(attach);
            return taken;
        }
        deliver(attach, &answer, fds, fds_count);
        taken++;
    }
}

static bool is_answered(struct via_attach *attach, void *ctx)
{
    (void)attach;
    return ((struct via_client_request *)ctx)->done;
}

/* [locked] */
static int send_request(struct via_attach *attach, struct via_attach_request *message, int fd,
                        struct via_client_request *request)
{
    if (attach->dead) {
        return via_client_dead(attach);
    }
    message->magic = VIA_ATTACH_MAGIC;
    message->version = VIA_ATTACH_VERSION;
    message->id = attach->request_id_next++;
    attach->request_id_next += attach->request_id_next == 0 ? 1 : 0;
    request->id = message->id;
    request->done = false;
    request->fds_count = 0;
    int rc = via_client_socket_send(attach->socket_fd, message, fd);
    if (rc != 0) {
        if (rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN) {
            via_client_die(attach);
            return via_client_dead(attach);
        }
        return via_client_error(rc, "host %u: request: %s", attach->host, strerror(-rc));
    }
    via_list_push_back(&attach->requests, &request->link);
    return 0;
}

int via_client_request_send(struct via_attach *attach, struct via_attach_request *message,
                            struct via_client_request *request)
{
    return send_request(attach, message, -1, request);
}

/* [locked] Waits for the answer. */
static int wait_for_answer(struct via_attach *attach, struct via_client_request *request,
                           via_client_given_up *is_given_up)
{
    uint64_t end_ns = via_client_now_ns() + VIA_CLIENT_ANSWER_NS_MAX;
    int rc;
    do {
        uint64_t check_ns = via_client_now_ns() + VIA_CLIENT_CHECK_NS;
        struct via_client_wait wait = {
            .done = is_answered, .ctx = request, .deadline_ns = via_min(end_ns, check_ns)};
        rc = via_client_wait(attach, &wait);
    } while (rc == -ETIMEDOUT && via_client_now_ns() < end_ns && !is_given_up(attach));
    return rc;
}

/* Threads of the library send requests, too, and the thread that closes the attachment joins these
 * threads. */
static bool is_closing(const struct via_attach *attach)
{
    return atomic_load_explicit(&attach->closing, memory_order_relaxed);
}

int via_client_request_wait(struct via_attach *attach, struct via_attach_request *message, int fd,
                            struct via_client_request *request)
{
    return via_client_request_wait_until(attach, message, fd, request, is_closing);
}

int via_client_request_wait_until(struct via_attach *attach, struct via_attach_request *message,
                                  int fd, struct via_client_request *request,
                                  via_client_given_up *is_given_up)
{
    request->answered = NULL;
    request->answer = (struct via_attach_answer){0};
    int rc = send_request(attach, message, fd, request);
    if (rc != 0) {
        request->answer.status = rc;
        return rc;
    }
    rc = wait_for_answer(attach, request, is_given_up);
    if (rc != 0) {
        if (!request->done) {
            via_list_remove(&request->link);
            request->answer.status = rc;
        }
        if (rc == -ETIMEDOUT) {
            via_client_error(rc, "host %u: request: no answer within %u s", attach->host,
                             (unsigned)(VIA_CLIENT_ANSWER_NS_MAX / VIA_SEC_NS));
        }
        return rc;
    }
    int status = request->answer.status;
    if (status != 0) {
        for (unsigned i = 0; i < request->fds_count; i++) {
            via_client_fd_close(request->fds[i]);
        }
        request->fds_count = 0;
    }
    return status > 0 ? -EPROTO : status;
}

int via_client_notify_host(struct via_attach *attach, struct via_attach_request *request)
{
    request->magic = VIA_ATTACH_MAGIC;
    request->version = VIA_ATTACH_VERSION;
    request->id = 0;
    int rc = attach->dead ? -ENOTCONN : via_client_socket_send(attach->socket_fd, request, -1);
    return rc == -EINTR || rc == -ENOBUFS ? -EAGAIN : rc;
}
