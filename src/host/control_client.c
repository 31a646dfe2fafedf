/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "host/control.h"
#include "host/control_clean.h"

struct call {
    int fd;
    uint64_t deadline_ns;
    char *text; /* the answer so far */
    size_t bytes;
    size_t room;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

/* 0: the socket is ready for `events`. -ETIMEDOUT. */
static int wait_ready(const struct call *call, short events)
{
    for (;;) {
        uint64_t now = now_ns();
        if (now >= call->deadline_ns) {
            return -ETIMEDOUT;
        }
        int timeout_ms = (int)((call->deadline_ns - now + VIA_MSEC_NS - 1) / VIA_MSEC_NS);
        struct pollfd pollfd = {.fd = call->fd, .events = events};
        int rc = poll(&pollfd, 1, timeout_ms);
        if (rc > 0) {
            return 0;
        }
        if (rc < 0 && errno != EINTR) {
            return -errno;
        }
    }
}

static int connect_error(int code, struct via_error *err)
{
    switch (code) {
    case -ENOENT:
        return via_error_set(err, code, "no such host is up in this fabric");
    case -ECONNREFUSED:
        return via_error_set(err, code, "the daemon has died; run `viaduct down`");
    case -EACCES:
    case -EPERM:
        return via_error_set(err, -EACCES, "permission denied: the fabric belongs to another user");
    case -ETIMEDOUT:
    case -EAGAIN:
        return via_error_set(err, -ETIMEDOUT, "the daemon accepts no connections");
    default:
        return via_error_set(err, code, "%s", strerror(-code));
    }
}

static int connect_to(struct call *call, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    for (;;) {
        if (connect(call->fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
            return 0;
        }
        /* EAGAIN: the backlog is full, and the kernel does not report when it has room again. */
        if (errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        if (now_ns() >= call->deadline_ns) {
            return -ETIMEDOUT;
        }
        poll(NULL, 0, 1);
    }
}

static int send_all(struct call *call, const char *text, size_t bytes)
{
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(call->fd, text + sent, bytes - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN) {
            int rc = wait_ready(call, POLLOUT);
            if (rc != 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

static int grow(struct call *call)
{
    if (call->room - call->bytes > 1) {
        return 0;
    }
    size_t room = call->room == 0 ? 4096 : call->room * 2;
    if (room > VIA_CONTROL_ANSWER_BYTES_MAX) {
        return -EMSGSIZE;
    }
    char *text = realloc(call->text, room);
    if (text == NULL) {
        return -ENOMEM;
    }
    call->text = text;
    call->room = room;
    return 0;
}

/* Receives up to the end of the line. 0; -ENODATA: the connection ended before that. */
static int receive_line(struct call *call)
{
    for (;;) {
        int rc = grow(call);
        if (rc != 0) {
            return rc;
        }
        ssize_t n =
            recv(call->fd, call->text + call->bytes, call->room - call->bytes, MSG_DONTWAIT);
        if (n > 0) {
            char *end = memchr(call->text + call->bytes, '\n', (size_t)n);
            call->bytes += (size_t)n;
            if (end != NULL) {
                call->bytes = (size_t)(end - call->text);
                return 0;
            }
        } else if (n == 0) {
            return -ENODATA;
        } else if (errno == EAGAIN) {
            rc = wait_ready(call, POLLIN);
            if (rc != 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return errno == ECONNRESET ? -ENODATA : -errno;
        }
    }
}

static int parse_answer(const struct call *call, json_t **ret_answer, struct via_error *err)
{
    json_error_t why;
    json_t *answer = json_loadb(call->text, call->bytes, 0, &why);
    if (answer == NULL) {
        return via_error_set(err, -EPROTO, "the answer is no JSON: %s", why.text);
    }
    via_clean_json(answer);
    json_t *ok = json_object_get(answer, "ok");
    if (json_is_true(ok)) {
        *ret_answer = answer;
        return 0;
    }
    const char *error = json_string_value(json_object_get(answer, "error"));
    bool unreachable = json_is_true(json_object_get(answer, "unreachable"));
    int rc = json_is_false(ok) && error != NULL
                 ? via_error_set(err, unreachable ? -EHOSTUNREACH : -EREMOTEIO, "%s", error)
                 : via_error_set(err, -EPROTO, "the answer has neither ok nor error");
    json_decref(answer);
    return rc;
}

static int exchange(struct call *call, const char *text, size_t bytes, json_t **ret_answer,
                    struct via_error *err)
{
    int rc = send_all(call, text, bytes);
    if (rc == 0 || rc == -EPIPE) {
        /* A daemon that refuses the client may have sent the reason before it closed the
         * connection. */
        rc = receive_line(call);
    }
    switch (rc) {
    case 0:
        return parse_answer(call, ret_answer, err);
    case -ETIMEDOUT:
        return via_error_set(err, rc, "no answer in time");
    case -ENODATA:
        return via_error_set(err, -EPROTO, "the daemon closed the connection without an answer");
    default:
        return via_error_set(err, rc, "%s", strerror(-rc));
    }
}

static int call_path(const char *path, const char *text, json_t **ret_answer, struct via_error *err,
                     int timeout_ms)
{
    struct call call = {.deadline_ns = now_ns() + (uint64_t)timeout_ms * VIA_MSEC_NS};
    call.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (call.fd < 0) {
        return via_error_set(err, -errno, "socket: %s", strerror(errno));
    }
    int rc = connect_to(&call, path);
    if (rc != 0) {
        rc = connect_error(rc, err);
        via_error_prefix(err, "connect to %s: ", path);
    } else {
        rc = exchange(&call, text, strlen(text), ret_answer, err);
        if (rc != 0 && rc != -EREMOTEIO && rc != -EHOSTUNREACH) {
            via_error_prefix(err, "%s: ", path);
        }
    }
    close(call.fd);
    free(call.text);
    return rc;
}

/* The request as one line, which the caller frees. */
static char *line_of(json_t *request)
{
    size_t bytes = json_dumpb(request, NULL, 0, JSON_COMPACT);
    char *line = bytes != 0 ? malloc(bytes + 2) : NULL;
    if (line != NULL) {
        json_dumpb(request, line, bytes, JSON_COMPACT);
        line[bytes] = '\n';
        line[bytes + 1] = '\0';
    }
    return line;
}

int via_control_call(const char *rundir, unsigned host, json_t *request, json_t **ret_answer,
                     struct via_error *err, int timeout_ms)
{
    return via_control_call_by(rundir, host, host, request, ret_answer, err, timeout_ms);
}

int via_control_call_by(const char *rundir, unsigned by, unsigned host, json_t *request,
                        json_t **ret_answer, struct via_error *err, int timeout_ms)
{
    struct via_rundir_path path;
    int rc = via_rundir_control_path(rundir, by, &path, err);
    if (rc == 0 && by != host && json_object_set_new(request, "host", json_integer(host)) != 0) {
        rc = via_error_set(err, -ENOMEM, "request: %s", strerror(ENOMEM));
    }
    if (rc == 0) {
        char *line = line_of(request);
        rc = line == NULL ? via_error_set(err, -ENOMEM, "request: %s", strerror(ENOMEM))
                          : call_path(path.text, line, ret_answer, err, timeout_ms);
        free(line);
    }
    if (rc != 0) {
        via_error_prefix(err, "host %u: ", host);
    }
    return rc;
}

/* Appends the hosts of a page to those of the pages before it. *first: the first id of this page,
 * then that of the next page; -1 after the last page. */
static int add_page(json_t **whole, json_t *page, json_int_t *first)
{
    json_t *next = json_object_get(page, "next");
    json_int_t from = json_is_integer(next) ? json_integer_value(next) : -1;
    bool good = json_is_array(json_object_get(page, "hosts")) &&
                (from > *first || next == NULL || json_is_null(next));
    if (good && *whole == NULL) {
        *whole = json_incref(page);
    } else if (good) {
        good = json_array_extend(json_object_get(*whole, "hosts"),
                                 json_object_get(page, "hosts")) == 0;
    }
    *first = from;
    return good ? 0 : -EPROTO;
}

int via_control_directory(const char *rundir, unsigned host, json_t **ret_answer,
                          struct via_error *err, int timeout_ms)
{
    json_t *whole = NULL;
    json_int_t first = 0;
    int rc = 0;
    while (rc == 0 && first >= 0) { /* ids of hosts ascend, so there is at most one page for each */
        json_t *page = NULL;
        json_t *request = json_pack("{s:s, s:I}", "cmd", "directory", "first", first);
        rc = request != NULL
                 ? via_control_call(rundir, host, request, &page, err, timeout_ms)
                 : via_error_set(err, -ENOMEM, "host %u: request: %s", host, strerror(ENOMEM));
        if (rc == 0 && add_page(&whole, page, &first) != 0) {
            rc = via_error_set(err, -EPROTO, "host %u: directory: a page is malformed", host);
        }
        json_decref(request);
        json_decref(page);
    }
    if (rc != 0) {
        json_decref(whole);
        return rc;
    }
    json_object_del(whole, "next");
    *ret_answer = whole;
    return 0;
}
