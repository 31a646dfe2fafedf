/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shmem/launch.h"

/* Writes each line by one writev, so that lines do not mix; what a full pipe does not accept is
 * written afterwards. */
static void write_line(const struct via_launch_stream *stream, const char *line, size_t bytes)
{
    char tag[16];
    bool whole = bytes > 0 && line[bytes - 1] == '\n';
    int tag_bytes = snprintf(tag, sizeof(tag), "[%u] ", stream->pe);
    struct iovec parts[3] = {
        {tag, (size_t)tag_bytes}, {(char *)line, bytes}, {(char *)"\n", whole ? 0 : 1}};

    if (stream->to) {
        for (int part = 0; part < 3; part++)
            via_launch_put(stream->to, parts[part].iov_base, parts[part].iov_len);
        return;
    }
    for (int part = 0; part < 3;) {
        ssize_t done = writev(stream->to_fd, &parts[part], 3 - part);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return;
        for (; part < 3 && (size_t)done >= parts[part].iov_len; part++)
            done -= (ssize_t)parts[part].iov_len;
        if (part < 3) {
            parts[part].iov_base = (char *)parts[part].iov_base + done;
            parts[part].iov_len -= (size_t)done;
        }
    }
}

/* A line longer than the buffer is written in pieces. */
static void write_lines(struct via_launch_stream *stream, bool end)
{
    uint32_t begin = 0;
    char *newline;

    while ((newline = memchr(stream->line + begin, '\n', stream->used - begin)) != NULL) {
        uint32_t next = (uint32_t)(newline - stream->line) + 1;
        write_line(stream, stream->line + begin, next - begin);
        begin = next;
    }
    if (begin < stream->used && (end || (begin == 0 && stream->used == sizeof(stream->line)))) {
        write_line(stream, stream->line + begin, stream->used - begin);
        begin = stream->used;
    }
    memmove(stream->line, stream->line + begin, stream->used - begin);
    stream->used -= begin;
}

void via_launch_stream_feed(struct via_launch_stream *stream, const void *data, size_t count)
{
    const char *at = data;

    for (size_t left = count, part; left > 0; left -= part, at += part) {
        part = via_min(left, sizeof(stream->line) - stream->used);
        memcpy(stream->line + stream->used, at, part);
        stream->used += (uint32_t)part;
        write_lines(stream, false);
    }
    if (count == 0)
        write_lines(stream, true);
}

bool via_launch_stream_copy(struct via_launch_stream *stream)
{
    ssize_t got =
        read(stream->fd, stream->line + stream->used, sizeof(stream->line) - stream->used);

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got > 0)
        stream->used += (uint32_t)got;
    write_lines(stream, got <= 0);
    if (got > 0)
        return true;
    close(stream->fd);
    stream->fd = -1;
    return false;
}

/* --- the terminal ---------------------------------------------------------------------------- */

int via_launch_input_open(struct via_launch_input *ret_input, struct via_error *err)
{
    int fds[2];

    ret_input->pe_fd = ret_input->to_fd = -1;
    ret_input->used = 0;
    if (!isatty(STDIN_FILENO))
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return via_error_set(err, -errno, "standard input: pipe: %s", strerror(errno));
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    ret_input->pe_fd = fds[0];
    ret_input->to_fd = fds[1];
    return 0;
}

/* True if this process may read the terminal, which a process in the background may not. */
static bool is_terminal_ours(void)
{
    return tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void via_launch_input_poll(const struct via_launch_input *input, struct pollfd *ret_poll)
{
    *ret_poll = (struct pollfd){.fd = -1};
    if (input->to_fd >= 0 && input->used > 0)
        *ret_poll = (struct pollfd){.fd = input->to_fd, .events = POLLOUT};
    else if (input->to_fd >= 0 && is_terminal_ours())
        *ret_poll = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
}

static void end_input(struct via_launch_input *input)
{
    close(input->to_fd);
    input->to_fd = -1;
}

void via_launch_input_copy(struct via_launch_input *input)
{
    if (input->used == 0) {
        ssize_t got = read(STDIN_FILENO, input->text, sizeof(input->text));
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            return;
        if (got <= 0) {
            end_input(input);
            return;
        }
        input->used = (uint32_t)got;
    }
    ssize_t done = write(input->to_fd, input->text, input->used);
    if (done < 0 && errno != EINTR && errno != EAGAIN) {
        /* PE 0 has closed its standard input. */
        end_input(input);
    } else if (done > 0) {
        input->used -= (uint32_t)done;
        memmove(input->text, input->text + done, input->used);
    }
}
