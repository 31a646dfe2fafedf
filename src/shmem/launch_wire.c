/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/launch_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mutant.h"

#define GREETING "viaduct-oshrun "
#define HEAD_BYTES 8u
#define READ_BYTES 65536u

/* --- payloads --------------------------------------------------------------------------------- */

static bool make_room(struct via_launch_bytes *bytes, size_t count)
{
    if (bytes->failed)
        return false;
    if (bytes->room - bytes->used >= count)
        return true;
    size_t room = via_max(2 * bytes->room, bytes->used + count);
    unsigned char *data = realloc(bytes->data, room);
    if (!data) {
        bytes->failed = true;
        bytes->used = 0;
        return false;
    }
    bytes->data = data;
    bytes->room = room;
    return true;
}

void via_launch_put(struct via_launch_bytes *bytes, const void *data, size_t count)
{
    if (count == 0 || !make_room(bytes, count))
        return;
    memcpy(bytes->data + bytes->used, data, count);
    bytes->used += count;
}

void via_launch_put_u32(struct via_launch_bytes *bytes, uint32_t value)
{
    unsigned char data[4];

    for (unsigned i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(value >> 8 * i);
    via_launch_put(bytes, data, sizeof(data));
}

void via_launch_put_u64(struct via_launch_bytes *bytes, uint64_t value)
{
    via_launch_put_u32(bytes, (uint32_t)value);
    via_launch_put_u32(bytes, (uint32_t)(value >> 32));
}

void via_launch_put_text(struct via_launch_bytes *bytes, const char *text)
{
    size_t count = strlen(text) + 1;

    via_launch_put_u32(bytes, (uint32_t)count);
    via_launch_put(bytes, text, count);
}

void via_launch_bytes_drop(struct via_launch_bytes *bytes, size_t count)
{
    bytes->used -= count;
    if (bytes->used > 0)
        memmove(bytes->data, bytes->data + count, bytes->used);
}

void via_launch_bytes_fini(struct via_launch_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct via_launch_bytes){0};
}

static uint32_t load_u32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t via_launch_take_u32(struct via_launch_parts *parts)
{
    if (parts->failed || parts->end - parts->at < 4) {
        parts->failed = true;
        return 0;
    }
    parts->at += 4;
    return load_u32(parts->at - 4);
}

uint64_t via_launch_take_u64(struct via_launch_parts *parts)
{
    uint64_t low = via_launch_take_u32(parts);

    return low | (uint64_t)via_launch_take_u32(parts) << 32;
}

const char *via_launch_take_text(struct via_launch_parts *parts)
{
    size_t count = via_launch_take_u32(parts);
    const char *text = (const char *)parts->at;

    if (parts->failed || count == 0 ||
        (count > (size_t)(parts->end - parts->at) && !VIA_MUTANT(LAUNCH_TEXT)) ||
        memchr(text, '\0', count) != text + count - 1) {
        parts->failed = true;
        return "";
    }
    parts->at += count;
    return text;
}

bool via_launch_parts_is_end(const struct via_launch_parts *parts)
{
    return !parts->failed && parts->at == parts->end;
}

/* --- the connection --------------------------------------------------------------------------- */

void via_launch_link_open(struct via_launch_link *ret_link, int in_fd, int out_fd,
                          uint32_t frame_bytes_max)
{
    char line[40];

    *ret_link = (struct via_launch_link){
        .in_fd = in_fd, .out_fd = out_fd, .frame_bytes_max = frame_bytes_max};
    fcntl(in_fd, F_SETFL, fcntl(in_fd, F_GETFL) | O_NONBLOCK);
    fcntl(out_fd, F_SETFL, fcntl(out_fd, F_GETFL) | O_NONBLOCK);
    int bytes = snprintf(line, sizeof(line), GREETING "%u\n", VIA_LAUNCH_VERSION);
    via_launch_put(&ret_link->out, line, (size_t)bytes);
}

void via_launch_link_close(struct via_launch_link *link)
{
    if (link->in_fd >= 0)
        close(link->in_fd);
    if (link->out_fd >= 0 && link->out_fd != link->in_fd)
        close(link->out_fd);
    link->in_fd = link->out_fd = -1;
    via_launch_bytes_fini(&link->in);
    via_launch_bytes_fini(&link->out);
}

void via_launch_link_send(struct via_launch_link *link, enum via_launch_message type,
                          const struct via_launch_bytes *payload)
{
    size_t bytes = payload ? payload->used : 0;

    if (link->out_fd < 0)
        return;
    if ((payload && payload->failed) || link->out.used + bytes > VIA_LAUNCH_OUT_BYTES_MAX) {
        link->out.failed = true;
        return;
    }
    via_launch_put_u32(&link->out, (uint32_t)bytes);
    via_launch_put_u32(&link->out, (uint32_t)type);
    if (bytes > 0)
        via_launch_put(&link->out, payload->data, bytes);
    via_launch_put(&link->out, "\n", 1);
}

void via_launch_link_send_u32(struct via_launch_link *link, enum via_launch_message type,
                              uint32_t value)
{
    unsigned char data[4] = {(unsigned char)value, (unsigned char)(value >> 8),
                             (unsigned char)(value >> 16), (unsigned char)(value >> 24)};
    struct via_launch_bytes payload = {.data = data, .used = sizeof(data), .room = sizeof(data)};

    via_launch_link_send(link, type, &payload);
}

int via_launch_link_write(struct via_launch_link *link)
{
    size_t done = 0;

    if (link->out.failed)
        return -ENOBUFS;
    while (link->out_fd >= 0 && done < link->out.used) {
        ssize_t result = write(link->out_fd, link->out.data + done, link->out.used - done);
        if (result < 0 && errno == EINTR)
            continue;
        if (result < 0 && errno == EAGAIN)
            break;
        if (result < 0)
            return -errno;
        done += (size_t)result;
    }
    via_launch_bytes_drop(&link->out, done);
    return 0;
}

int via_launch_link_read(struct via_launch_link *link)
{
    via_launch_bytes_drop(&link->in, link->taken);
    link->taken = 0;
    if (!make_room(&link->in, READ_BYTES))
        return -ENOMEM;
    ssize_t got = read(link->in_fd, link->in.data + link->in.used, READ_BYTES);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (got == 0)
        return -ECONNRESET;
    link->in.used += (size_t)got;
    return 0;
}

static void keep_noise(struct via_launch_link *link, const char *line, size_t bytes)
{
    size_t kept = via_min(bytes, sizeof(link->noise) - 1);

    if (kept == 0)
        return;
    for (size_t i = 0; i < kept; i++)
        link->noise[i] = (char)(line[i] < ' ' || line[i] > '~' ? '?' : line[i]);
    link->noise[kept] = '\0';
}

/* Checks whether a line from the other side is the greeting of a supported version. */
static int check_greeting(struct via_launch_link *link, const char *line, size_t bytes,
                          struct via_error *err)
{
    char text[16] = "", *end;

    if (bytes < strlen(GREETING) || memcmp(line, GREETING, strlen(GREETING)) != 0) {
        keep_noise(link, line, bytes);
        return 0;
    }
    memcpy(text, line + strlen(GREETING), via_min(bytes - strlen(GREETING), sizeof(text) - 1));
    unsigned long version = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || version != VIA_LAUNCH_VERSION)
        return via_error_set(err, -EPROTO,
                             "oshrun there speaks version %.10s of the protocol between "
                             "launchers, and here version %u",
                             text, VIA_LAUNCH_VERSION);
    link->greeted = true;
    return 0;
}

/* Reads lines up to the greeting. */
static int read_greeting(struct via_launch_link *link, struct via_error *err)
{
    char *end;
    int result = 0;

    while (!link->greeted && result == 0 &&
           (end = memchr(link->in.data, '\n', link->in.used)) != NULL) {
        size_t bytes = (size_t)((unsigned char *)end - link->in.data);
        if (!link->skip_line)
            result = check_greeting(link, (const char *)link->in.data, bytes, err);
        link->skip_line = false;
        link->noise_bytes += bytes + 1;
        via_launch_bytes_drop(&link->in, bytes + 1);
    }
    if (!link->greeted && link->in.used > sizeof(link->noise)) {
        keep_noise(link, (const char *)link->in.data, link->in.used);
        link->noise_bytes += link->in.used;
        link->skip_line = true;
        link->in.used = 0;
    }
    if (result == 0 && !link->greeted && link->noise_bytes > VIA_LAUNCH_NOISE_BYTES_MAX)
        return via_error_set(err, -EPROTO, "no oshrun answers there: \"%s\"", link->noise);
    return result;
}

int via_launch_link_take(struct via_launch_link *link, struct via_launch_frame *ret_frame,
                         struct via_error *err)
{
    if (!link->greeted) {
        int result = link->in.used > 0 ? read_greeting(link, err) : 0;
        if (result < 0 || !link->greeted)
            return result;
    }
    const unsigned char *at = link->in.data + link->taken;
    size_t left = link->in.used - link->taken;
    if (left < HEAD_BYTES)
        return 0;
    uint32_t bytes = load_u32(at), type = load_u32(at + 4);
    if (bytes > link->frame_bytes_max)
        return via_error_set(err, -EPROTO, "a message of %u bytes; there may be %u", bytes,
                             link->frame_bytes_max);
    if (left < HEAD_BYTES + bytes + 1)
        return 0;
    at += HEAD_BYTES;
    if (at[bytes] != '\n')
        return via_error_set(err, -EPROTO, "a message of %u bytes without its end", bytes);
    *ret_frame = (struct via_launch_frame){.type = type, .parts = {.at = at, .end = at + bytes}};
    link->taken += HEAD_BYTES + bytes + 1;
    return 1;
}
