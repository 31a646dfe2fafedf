/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Requests on the control socket of a host, from any process. Each answer is a line of JSON with ok
 * or an error, and the host continues to run, unless a request stopped it.
 *
 * Input: a byte with the number of pieces, then the lines.
 */
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/types.h"
#include "host/control.h"
#include "host/host_private.h"
#include "tests/fuzz/input.h"
#include "tests/system/host_lab.h"

#define INPUT_BYTES_MAX 16384u
#define ANSWER_BYTES_MAX (VIA_CONTROL_ANSWER_BYTES_MAX + 1)
#define WAIT_MS 240000
#define POLL_MS 20

static struct host_lab lab; /* one host, whose attempts to reach another fail */

static void end(void)
{
    host_lab_fini(&lab);
}

static void begin(void)
{
    host_lab_init(&lab, 2, false, false);
    host_lab_start(&lab, 0, NULL);
    atexit(end);
}

static int connect_to_host(void)
{
    struct via_rundir_path path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0 && via_rundir_control_path(lab.rundir, 0, &path, NULL) == 0);
    memcpy(address.sun_path, path.text, sizeof(path.text));
    require(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* Receives until the host closes the connection, or has nothing more to send. */
static size_t receive(int fd, char *text, size_t bytes_max)
{
    size_t bytes = 0;
    for (;;) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        require(poll(&pollfd, 1, WAIT_MS) == 1);
        require(bytes < bytes_max);
        ssize_t got = recv(fd, text + bytes, bytes_max - bytes, 0);
        if (got <= 0) {
            return bytes;
        }
        bytes += (size_t)got;
    }
}

/* Checks the answers. True if one of them may answer a request to stop. */
static bool check_answers(const char *text, size_t bytes)
{
    bool ok = false;
    while (bytes != 0) {
        const char *end_of_line = memchr(text, '\n', bytes);
        require(end_of_line != NULL);
        size_t line = (size_t)(end_of_line - text);
        json_t *answer = json_loadb(text, line, JSON_REJECT_DUPLICATES, NULL);
        json_t *result = json_object_get(answer, "ok");
        require(json_is_boolean(result));
        require(json_is_true(result) || json_is_string(json_object_get(answer, "error")));
        ok = ok || json_is_true(result);
        json_decref(answer);
        text += line + 1;
        bytes -= line + 1;
    }
    return ok;
}

static bool answers(void)
{
    json_t *request = json_pack("{s:s}", "cmd", "status");
    json_t *answer;
    struct via_error err;
    int rc = via_control_call(lab.rundir, 0, request, &answer, &err, POLL_MS);
    json_decref(request);
    if (rc == 0) {
        json_decref(answer);
    }
    return rc == 0;
}

/* A host that stops still listens until it is closed, but does not answer. */
static bool is_up(void)
{
    for (unsigned ms = 0; ms < WAIT_MS; ms += POLL_MS) {
        if (atomic_load(&lab.hosts[0]->stopping)) {
            return false;
        }
        if (answers()) {
            return true;
        }
    }
    abort();
}

static void say(int fd, struct input *input)
{
    size_t piece = 1 + input->bytes / (1 + input_byte(input) % 8);
    while (input->bytes != 0) {
        size_t bytes = via_min(piece, input->bytes);
        if (send(fd, input->data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
            break; /* the host has closed the connection */
        }
        input->data += bytes;
        input->bytes -= bytes;
    }
    shutdown(fd, SHUT_WR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char answers[ANSWER_BYTES_MAX];
    struct input input = {data, bytes};
    if (bytes > INPUT_BYTES_MAX) {
        return 0;
    }
    if (lab.hosts_count == 0) {
        begin();
    }
    int fd = connect_to_host();
    say(fd, &input);
    bool ok = check_answers(answers, receive(fd, answers, sizeof(answers)));
    close(fd);
    if (!is_up()) {
        require(ok);
        host_lab_end(&lab, 0);
        host_lab_start(&lab, 0, NULL);
    }
    return 0;
}
