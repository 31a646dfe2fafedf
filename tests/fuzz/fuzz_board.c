/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages of another host about notes: posts, answers, withdrawals, of any length. The host
 * continues to serve its own processes, and a note that a process takes equals the note that was
 * posted.
 *
 * The hosts and their threads live on between inputs. Run it with -detect_leaks=0.
 *
 * Input: steps, each a byte with the kind, then its numbers (input_edgy) and bytes.
 */
#include <errno.h>
#include <poll.h>

#include "base/types.h"
#include "host/host_private.h"
#include "tests/fuzz/deliver.h"
#include "tests/fuzz/input.h"
#include "tests/system/host_raw.h"

#define STEPS_MAX 64u
#define HOSTILE 1u

static struct host_lab lab; /* two hosts; messages claim to come from the other one */
static struct host_raw good;

static void end(void)
{
    host_lab_fini(&lab);
}

static void begin(void)
{
    host_lab_init(&lab, 2, false, false);
    host_lab_start_all(&lab);
    atexit(end);
    host_raw_open(&good, &lab, 0);
}

/* Delivers a message to the board, like the transfer thread. */
static void deliver(const struct via_board_message *message, uint32_t bytes)
{
    int rc = deliver_to(lab.hosts[0], HOSTILE, VIA_HOST_ENDPOINT_BOARD, message, bytes);
    require(rc == 0 || bytes < VIA_BOARD_MESSAGE_HEAD_BYTES || bytes > sizeof(*message));
}

/* Takes the note under this key. Returns its length, or a negative errno. */
static int take(const void *key, size_t key_bytes, struct via_attach_answer *ret_answer)
{
    struct via_attach_request request = host_raw_request(&good, VIA_ATTACH_BOARD_TAKE);
    request.key_bytes = (uint16_t)key_bytes;
    memcpy(request.key, key, key_bytes);
    int rc = host_raw_request_wait(&good, &request, -1, ret_answer);
    return rc == 0 ? (int)ret_answer->value_bytes : rc;
}

static void say(struct input *input, uint32_t *ret_process)
{
    struct via_board_message message = {.type = input_byte(input) % 5,
                                        .id = (uint32_t)input_edgy(input),
                                        .process = (uint32_t)input_edgy(input),
                                        .status = (int32_t)input_edgy(input),
                                        .ttl_ms = (uint32_t)input_edgy(input),
                                        .key_bytes = (uint16_t)input_edgy(input),
                                        .value_bytes = (uint16_t)input_edgy(input)};
    struct via_attach_answer answer;
    uint8_t odd = input_byte(input);
    uint32_t bytes = VIA_BOARD_MESSAGE_HEAD_BYTES + message.key_bytes + message.value_bytes;
    if ((odd & 0x80) != 0) {
        bytes = (uint32_t)input_edgy(input) % (sizeof(message) + 2);
    }
    bytes = via_min(bytes, (uint32_t)sizeof(message));
    memset(message.data, odd, sizeof(message.data));
    input_take(input, message.data, 4);
    *ret_process = message.process;
    bool looks = message.key_bytes != 0 && message.key_bytes <= VIA_BOARD_KEY_BYTES_MAX;
    bool asks = looks && (odd & 1) == 0;
    if (asks) {
        deliver_await(lab.hosts[0]);
    }
    while (looks && take(message.data, message.key_bytes, &answer) >= 0) {
        /* of before */
    }
    deliver(&message, bytes);
    if (!asks) {
        return;
    }
    deliver_await(lab.hosts[0]);
    int rc = take(message.data, message.key_bytes, &answer);
    require(rc >= 0 || rc == -ENOENT);
    if (rc >= 0) {
        require(message.type == VIA_BOARD_POST);
        require(VIA_BOARD_MESSAGE_HEAD_BYTES + message.key_bytes + (uint32_t)rc == bytes);
        require(memcmp(answer.value, message.data + message.key_bytes, (size_t)rc) == 0);
    }
}

/* Checks that a note of this host, which no other host has seen, is not affected. */
static void keep_to_the_rules(void)
{
    struct via_attach_request request = host_raw_request(&good, VIA_ATTACH_BOARD_POST);
    struct via_attach_answer answer;
    static const char key[] = "a key that no host guesses";
    static uint64_t number;
    number++;
    request.host = 0;
    request.key_bytes = sizeof(key);
    request.value_bytes = sizeof(number);
    memcpy(request.key, key, sizeof(key));
    memcpy(request.value, &number, sizeof(number));
    int rc = host_raw_request_wait(&good, &request, -1, NULL);
    require(rc == 0 || rc == -ENOSPC); /* notes of process UINT32_MAX stay for a while */
    if (rc == 0) {
        require(take(key, sizeof(key), &answer) == (int)sizeof(number));
        require(memcmp(answer.value, &number, sizeof(number)) == 0);
    }
}

static void withdraw(uint32_t process)
{
    struct via_board_message message = {.type = VIA_BOARD_WITHDRAW, .process = process};
    deliver(&message, VIA_BOARD_MESSAGE_HEAD_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    if (lab.hosts_count == 0) {
        begin();
    }
    uint32_t processes[STEPS_MAX];
    unsigned count = 0;
    while (count < STEPS_MAX && input.bytes != 0) {
        say(&input, &processes[count++]);
    }
    deliver_await(lab.hosts[0]);
    keep_to_the_rules();
    while (count != 0) {
        withdraw(processes[--count]);
    }
    return 0;
}
