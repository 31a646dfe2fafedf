/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Requests of another host, and its answers to requests of this host. The host continues to run,
 * ends all work that it began for the other host, and gives its own caller the beginning of a line
 * of JSON.
 *
 * The hosts and their threads live on between inputs. Run it with -detect_leaks=0.
 *
 * Input: steps, each a byte with the kind, then its numbers (input_edgy) and bytes.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/types.h"
#include "host/host_private.h"
#include "tests/fuzz/deliver.h"
#include "tests/fuzz/input.h"
#include "tests/system/host_lab.h"

#define STEPS_MAX 32u
#define WAIT_MS 60000
/* Answers to a host that accepts nothing end within two time-outs, and their messages within 5
 * s. */
#define IDLE_MS 20000
#define HOSTILE 1u

static struct host_lab lab; /* two hosts; messages claim to come from the other one */

static void end(void)
{
    host_lab_fini(&lab);
}

static void begin(void)
{
    host_lab_init(&lab, 2, false, false);
    host_lab_start_all(&lab);
    atexit(end);
}

/* Delivers a message to the control thread, like the transfer thread. */
static void deliver(const struct via_remote_message *message, uint32_t bytes)
{
    int rc = deliver_to(lab.hosts[0], HOSTILE, VIA_HOST_ENDPOINT_REMOTE, message, bytes);
    require(rc == 0 || bytes < VIA_REMOTE_HEAD_BYTES || bytes > sizeof(*message));
}

/* Sends a request of a program here, which the other host has to answer. */
static int send_request(void)
{
    static const char request[] = "{\"cmd\":\"directory\",\"host\":1}\n";
    struct via_rundir_path path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0 && via_rundir_control_path(lab.rundir, 0, &path, NULL) == 0);
    memcpy(address.sun_path, path.text, sizeof(path.text));
    require(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    require(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(request) - 1);
    return fd;
}

static void receive_all(int fd)
{
    char text[4096];
    char first = '\0';
    char last = '\0';
    while (last != '\n') {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        require(poll(&pollfd, 1, WAIT_MS) == 1);
        ssize_t got = recv(fd, text, sizeof(text), 0);
        require(got > 0);
        first = first == '\0' ? text[0] : first;
        last = text[got - 1];
    }
    require(first == '{');
    close(fd);
}

/* Read concurrently with the host's thread: an older id is an equally useful input. */
__attribute__((no_sanitize("thread"))) static uint32_t id_requested_last(void)
{
    return (uint32_t)lab.hosts[0]->remote.id_next - 1;
}

__attribute__((no_sanitize("thread"))) static bool is_answering(void)
{
    return lab.hosts[0]->remote.answers_count != 0;
}

__attribute__((no_sanitize("thread"))) static void forget_rate(void)
{
    lab.hosts[0]->remote.rates[HOSTILE].count = 0;
}

static void say(struct input *input)
{
    static const char *const texts[] = {"{\"cmd\":\"directory\"}", "{\"cmd\":\"cut\",\"peer\":9}",
                                        "{\"cmd\":\"stop\"}", "{}", "{\"cmd\":\"reload\"}"};
    uint8_t how = input_byte(input);
    struct via_remote_message message = {.type = how & 3,
                                         .uid = (how & 4) != 0 ? 65534 : 0,
                                         .groups_count = (uint16_t)input_edgy(input),
                                         .off = (uint32_t)input_edgy(input)};
    /* The id of a call that is under way, or a similar one. */
    message.id = message.type == VIA_REMOTE_ANSWER ? id_requested_last() - (input_byte(input) & 1)
                                                   : input_byte(input) & 3;
    const char *text = texts[input_byte(input) % VIA_ARRAY_COUNT(texts)];
    size_t groups_bytes = via_min((size_t)message.groups_count * 4, sizeof(message.data) - 64);
    message.bytes = (uint16_t)strlen(text);
    message.total_bytes = message.bytes;
    memcpy(message.data + groups_bytes, text, message.bytes);
    uint32_t bytes = (uint32_t)(VIA_REMOTE_HEAD_BYTES + groups_bytes + message.bytes);
    if ((how & 8) != 0) {
        message.total_bytes = (uint32_t)input_edgy(input);
        message.bytes = (uint16_t)input_edgy(input);
        input_take(input, message.data, 16);
    }
    if ((how & 16) != 0) {
        bytes = (uint32_t)input_edgy(input) % (sizeof(message) + 2);
    }
    /* The host must continue to run: the request to stop comes from a user without the right. */
    if (memmem(message.data, sizeof(message.data), "stop", 4) != NULL) {
        message.uid = 65534;
    }
    deliver(&message, via_min(bytes, (uint32_t)sizeof(message)));
}

/* Waits until all messages were handled, and all work that they caused has ended. */
static void let_host_work(void)
{
    struct via_host_messages *messages = &lab.hosts[0]->messages;
    for (int i = 0;; i++) {
        pthread_mutex_lock(&messages->lock);
        bool done = messages->inbox_count == 0;
        pthread_mutex_unlock(&messages->lock);
        if (done && !is_answering()) {
            break;
        }
        require(i < IDLE_MS);
        poll(NULL, 0, 1);
    }
    forget_rate(); /* so that the messages of the next input are accepted, too */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    if (lab.hosts_count == 0) {
        begin();
    }
    int fd = (input_byte(&input) & 1) != 0 ? send_request() : -1;
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        say(&input);
    }
    if (fd >= 0) {
        receive_all(fd);
    }
    let_host_work();
    return 0;
}
