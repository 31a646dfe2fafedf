/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Messages between oshrun and its agents: the first lines, frames, and the description of a job,
 * which is the largest message. An accepted part lies inside the message.
 *
 * Input: a byte (0: unchanged; otherwise the first line is already exchanged, and the rest comes in
 * pieces of this size), then the bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/types.h"
#include "shmem/launch_remote.h"
#include "tests/fuzz/input.h"

#define FRAME_BYTES_MAX 4096u

static void judge_words(char *const *words, const struct via_launch_parts *all)
{
    for (unsigned i = 0; words[i] != NULL; i++) {
        const unsigned char *word = (const unsigned char *)words[i];
        require(*word == '\0' || (word >= all->at && word < all->end));
        require(*word == '\0' || word + strlen(words[i]) < all->end);
    }
}

static void take_job(struct via_launch_parts all)
{
    struct via_launch_parts parts = all;
    struct via_launch_job job;
    struct via_error err = {0};
    int rc = via_launch_job_parse(&parts, &job, &err);
    require(rc == 0 || rc == -EPROTO);
    if (rc != 0) {
        return;
    }
    require(job.pes_count >= 1 && job.pes_count <= VIA_JOB_PES_MAX && job.argv[0] != NULL);
    for (uint32_t pe = 0; pe < job.pes_count; pe++) {
        require(job.node_of[pe] < job.nodes_count);
    }
    judge_words(job.argv, &all);
    judge_words(job.environ, &all);
    via_launch_job_fini(&job);
}

/* Reads a frame like all handlers: numbers, then a text. */
static void take_parts(struct via_launch_parts parts)
{
    struct via_launch_parts all = parts;
    (void)via_launch_take_u32(&parts);
    const char *text = via_launch_take_text(&parts);
    require(strlen(text) <= (size_t)(all.end - all.at));
    (void)via_launch_take_u64(&parts);
    require(parts.at >= all.at && parts.at <= all.end);
}

/* A copy that ends where the frame ends, for the sanitizer. */
static void take_frame(const struct via_launch_frame *frame)
{
    size_t bytes = (size_t)(frame->parts.end - frame->parts.at);
    require(bytes <= FRAME_BYTES_MAX);
    unsigned char *copy = malloc(bytes != 0 ? bytes : 1);
    require(copy != NULL);
    memcpy(copy, frame->parts.at, bytes);
    struct via_launch_parts parts = {.at = copy, .end = copy + bytes};
    if (frame->type == VIA_LAUNCH_JOB) {
        take_job(parts);
    } else {
        take_parts(parts);
    }
    free(copy);
}

static int take_all(struct via_launch_link *link)
{
    struct via_launch_frame frame;
    struct via_error err = {0};
    int rc;
    while ((rc = via_launch_link_take(link, &frame, &err)) == 1) {
        take_frame(&frame);
    }
    require(rc == 0 || rc == -EPROTO);
    return rc;
}

/* Sends as much as a pipe holds, so that a write does not block. */
static int say(struct via_launch_link *link, int to_link, const void *data, size_t bytes)
{
    require(write(to_link, data, bytes) == (ssize_t)bytes);
    require(via_launch_link_read(link) == 0);
    return take_all(link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct via_launch_link link;
    int fds[2];
    size_t piece = input_byte(&input);
    char greeting[32];
    int greeting_bytes =
        snprintf(greeting, sizeof(greeting), "viaduct-oshrun %u\n", VIA_LAUNCH_VERSION);
    require(pipe2(fds, O_CLOEXEC) == 0);
    via_launch_link_open(&link, fds[0], open("/dev/null", O_WRONLY | O_CLOEXEC), FRAME_BYTES_MAX);
    int rc = piece != 0 ? say(&link, fds[1], greeting, (size_t)greeting_bytes) : 0;
    piece = piece != 0 ? 16 * piece : 4096;
    while (rc == 0 && input.bytes != 0) {
        size_t some = via_min(piece, input.bytes);
        rc = say(&link, fds[1], input.data, some);
        input.data += some;
        input.bytes -= some;
    }
    via_launch_link_close(&link);
    close(fds[1]);
    return 0;
}
