/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages of another host about slices: it requests slices that do not exist, sends answers
 * without a request, and forges an answer before the right one. The host continues to serve its own
 * processes, exposes only memory that one of them has registered, and gives a process no more than
 * a slice.
 *
 * The hosts and their threads live on between inputs. Run it with -detect_leaks=0.
 *
 * Input: steps, each a byte with the kind, then its numbers (input_edgy).
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/types.h"
#include "host/host_private.h"
#include "tests/fuzz/deliver.h"
#include "tests/fuzz/input.h"
#include "tests/system/host_raw.h"

#define STEPS_MAX 24u
#define TRIES 2000
#define HOSTILE 1u
#define BYTES (1u << 20)
/* Reads fields that the host's thread may change. */
#define RACES __attribute__((no_sanitize("thread")))

static struct host_lab lab; /* two hosts; messages claim to come from the other one */
static struct host_raw good;
static uint64_t far_handle;  /* of a segment there */
static uint64_t near_handle; /* of one here */

static void end(void)
{
    host_lab_fini(&lab);
}

static void begin(void)
{
    static struct host_raw far;
    void *base;
    host_lab_init(&lab, 2, false, true);
    lab.options = ",like=ivshmem,window=1MiB";
    host_lab_start(&lab, 0, NULL);
    host_lab_start(&lab, 1, NULL);
    host_lab_wait_routes(&lab);
    atexit(end);
    host_raw_open(&good, &lab, 0);
    host_raw_open(&far, &lab, 1);
    near_handle = host_raw_segment(&good, BYTES, &base);
    far_handle = host_raw_segment(&far, BYTES, &base);
}

static struct via_host_slices *slices(void)
{
    return &lab.hosts[0]->aperture.links[0];
}

/* Delivers a message to the service, like the transfer thread. */
static void deliver(const struct via_aperture_message *message, uint32_t bytes)
{
    int rc = deliver_to(lab.hosts[0], HOSTILE, VIA_HOST_ENDPOINT_APERTURE, message, bytes);
    require(rc == 0 || bytes != sizeof(*message));
}

/* --- a process that requests slices ----------------------------------------------------------- */

static uint32_t send_request(uint64_t off)
{
    struct via_attach_request request = host_raw_request(&good, VIA_ATTACH_SLICE);
    request.host = HOSTILE;
    request.handle = far_handle;
    request.bytes = off;
    require(host_raw_send(good.fd, &request, sizeof(request), NULL, 0) == 0);
    return request.id;
}

/* Requests a slice, for any earlier messages of the other host. */
static int receive_slice(uint32_t id, uint64_t off)
{
    struct via_attach_answer answer;
    struct via_attach_slice slice;
    int fds[HOST_RAW_FDS_MAX];
    unsigned fds_count;
    require(host_raw_receive(good.fd, &answer, fds, &fds_count) == 0 && answer.id == id);
    for (unsigned i = 0; i < fds_count; i++) {
        close(fds[i]);
    }
    if (answer.status != 0) {
        require(answer.status == -EAGAIN || answer.status == -EXDEV || answer.status == -EACCES);
        require(fds_count == 0);
        return answer.status;
    }
    memcpy(&slice, answer.value, sizeof(slice));
    require(fds_count == 1 && answer.value_bytes == sizeof(slice));
    require(via_is_pow2(slice.slice_bytes) && slice.bytes <= slice.slice_bytes && slice.bytes != 0);
    require(slice.off == off / slice.slice_bytes * slice.slice_bytes);
    require(slice.word < VIA_SLICES_MAX && slice.busy < VIA_ATTACH_SLICES_MAX);
    require(slice.life != 0 && slice.life >> VIA_SLICE_LIFE_BITS == 0);
    return 0;
}

/* --- messages of the other host --------------------------------------------------------------- */

/* A message with the right numbers of a link and of slices, or with others. */
static struct via_aperture_message take_message(struct input *input, uint8_t what)
{
    struct via_aperture_message message = {.link = 1, .from = 1};
    message.slice = input_byte(input) % 8;
    message.exposure = input_byte(input);
    message.handle = (what & 0x10) != 0 ? near_handle : input_edgy(input);
    message.piece = input_edgy(input);
    message.bytes = (what & 0x20) != 0 ? 8192 : input_edgy(input);
    message.status = (what & 0x40) != 0 ? 0 : (int32_t)input_edgy(input);
    message.type = input_byte(input) % 5;
    if ((what & 0x80) != 0) {
        message.link = (uint32_t)input_edgy(input);
        message.from = (uint32_t)input_edgy(input);
        message.slice = (uint32_t)input_edgy(input);
        message.exposure = input_edgy(input);
    }
    return message;
}

/* An answer to the last request of host 0, or GONE for its segment. The request is
 * read while the host's thread changes it: a wrong number does no harm. */
RACES static void answer_first(struct via_aperture_message *message, uint64_t before)
{
    const volatile uint64_t *last = &lab.hosts[0]->aperture.exposure_last;
    for (int i = 0; *last == before && i < 100000; i++) {
    }
    message->link = message->from = 1;
    message->exposure = *last;
    for (uint32_t k = 0; k < slices()->port->count; k++) {
        const volatile uint64_t *exposure = &slices()->slices[k].exposure;
        if (*exposure == message->exposure) {
            message->slice = k;
        }
    }
}

static void step(struct input *input)
{
    uint8_t what = input_byte(input);
    struct via_aperture_message message = take_message(input, what);
    uint64_t off = (uint64_t)input_byte(input) * 8192 % BYTES;
    uint32_t bytes = sizeof(message);
    switch (what % 4) {
    case 0:
        bytes = (uint32_t)input_edgy(input) % (sizeof(message) + 1);
        deliver(&message, bytes);
        break;
    case 1:
        deliver(&message, bytes);
        break;
    default: {
        uint64_t before = lab.hosts[0]->aperture.exposure_last;
        uint32_t id = send_request(off);
        answer_first(&message, before);
        message.type = what % 4 == 2 ? VIA_APERTURE_ANSWER : VIA_APERTURE_GONE;
        deliver(&message, bytes);
        (void)receive_slice(id, off);
    }
    }
}

/* Checks the rules: the host exposes only memory that a process has registered, and still grants
 * slices. */
RACES static void keep_to_the_rules(void)
{
    int rc = -EAGAIN;
    for (uint32_t k = 0; k < slices()->port->count; k++) {
        uint64_t handle = slices()->exposures[k].handle;
        require(handle == 0 || handle == near_handle);
    }
    for (int i = 0; rc != 0; i++) {
        require(i < TRIES);
        rc = receive_slice(send_request(0), 0);
        poll(NULL, 0, rc != 0 ? 1 : 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    if (lab.hosts_count == 0) {
        begin();
    }
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        step(&input);
    }
    deliver_await(lab.hosts[0]);
    keep_to_the_rules();
    return 0;
}
