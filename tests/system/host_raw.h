/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* An attached process that obeys only those rules that the test chooses. */
#ifndef HOST_RAW_H
#define HOST_RAW_H

#include "core/node.h"
#include "core/pipe.h"
#include "host/attach_wire.h"
#include "tests/system/host_lab.h"

#define HOST_RAW_FDS_MAX 8u

struct host_raw {
    int fd;
    uint32_t id_next;
    struct via_attach_answer welcome;
    unsigned char *memory;
    size_t memory_bytes;
    struct via_bell *bells;
    const struct via_status_page *status;
    int status_fd;
    int bell_fd;
    struct via_pipe_writer commands[VIA_CHANNELS_MAX];
    struct via_pipe_reader replies[VIA_CHANNELS_MAX];
    uint32_t *data_ends;
};

/* Returns -1 with errno when the socket can not be connected to. */
int host_raw_connect(const struct host_lab *lab, unsigned host);

/* Connects and sends HELLO. */
void host_raw_open(struct host_raw *raw, const struct host_lab *lab, unsigned host);
/* 0, or the error that the host answers, as a negative errno. */
int host_raw_try_open(struct host_raw *raw, const struct host_lab *lab, unsigned host);
void host_raw_close(struct host_raw *raw);

struct via_attach_request host_raw_request(struct host_raw *raw, enum via_attach_type type);
/* fd -1: none. 0 or negative errno of sendmsg. */
int host_raw_send(int fd, const void *request, size_t bytes, const int *fds, unsigned fds_count);
/* Waits for an answer; 0, or -ECONNRESET when the host has closed the connection. The caller owns
 * the descriptors.
 */
int host_raw_receive(int fd, struct via_attach_answer *ret_answer, int *ret_fds,
                     unsigned *ret_fds_count);
/* Returns the status of the answer to a request; -ECONNRESET as above. */
int host_raw_request_wait(struct host_raw *raw, const struct via_attach_request *request, int fd,
                          struct via_attach_answer *ret_answer);

/* Registers `bytes` of fresh memory, mapped at *ret_base. Returns the handle. */
uint64_t host_raw_segment(struct host_raw *raw, size_t bytes, void **ret_base);

/* Writes one command on channel 0 when there is room, and rings the host's bell. */
void host_raw_command(struct host_raw *raw, const struct via_command *command, const void *body,
                      size_t body_bytes);
void host_raw_ring(struct host_raw *raw, unsigned channel);
/* Reads the next reply on channel 0; false when none arrives within timeout_ms. */
bool host_raw_reply(struct host_raw *raw, struct via_reply *ret_reply, void *ret_body,
                    int timeout_ms);

#endif
