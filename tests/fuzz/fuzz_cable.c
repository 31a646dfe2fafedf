/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The messages and descriptors of the other end of an emulated link on the cable, and its writes
 * into the memory that both share. The port stays intact, and joins an honest end afterwards.
 *
 * Input: a byte of options, then steps, each a byte with the kind, then its numbers and bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"
#include "port/emu/bridge.h"
#include "port/emu/cable.h"
#include "port/emu/memory.h"
#include "port/emu/port.h"
#include "tests/fuzz/input.h"

#define STEPS_MAX 100u
#define INBOX_BYTES 8192u
#define BELL_BYTES 4096u
#define FDS_MAX (VIA_EMU_MESSAGE_FDS_MAX + 1)

enum { INBOX, BELL, BRIDGE, SMALL, UNSEALED, READ_ONLY, NO_MEMORY, SOURCES };

static char folder[64];
static char path[80];
static int sources[SOURCES];

struct scene {
    struct via_port *port; /* the honest end */
    const char *like;      /* its class of links */
    unsigned side;
    uint64_t now_ns;
    int listen_fd; /* of the hostile end, when it is side 0 */
    int fd;        /* its connection, or -1 */
    struct via_emu_bridge *bridge;
    int bridge_fd; /* which the hostile end has made or received */
};

static int memory(size_t bytes, int seals)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    require(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void end(void)
{
    unlink(path);
    rmdir(folder);
}

static void begin(void)
{
    strcpy(folder, "/tmp/viaduct-fuzz-XXXXXX");
    require(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/link-1-2-0.sock", folder);
    atexit(end);
    sources[INBOX] = memory(INBOX_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
    sources[BELL] = memory(BELL_BYTES, F_SEAL_SHRINK | F_SEAL_GROW);
    sources[SMALL] = memory(4096, F_SEAL_SHRINK);
    sources[UNSEALED] = memory(INBOX_BYTES, 0);
    sources[READ_ONLY] = memory(INBOX_BYTES, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
    sources[NO_MEMORY] = eventfd(0, EFD_CLOEXEC);
}

/* The port's message handler: accepts the message, and takes one of its descriptors. */
static void on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds)
{
    unsigned char copy[VIA_EMU_MESSAGE_BYTES_MAX];
    (void)ctx;
    require(len <= sizeof(copy) && nfds <= VIA_EMU_MESSAGE_FDS_MAX);
    memcpy(copy, msg, len);
    if (nfds > 1) {
        close(fds[1]);
        fds[1] = -1;
    }
}

static struct via_port *open_port(unsigned side, const char *like)
{
    struct via_emu_options options = {.path = path,
                                      .side = side,
                                      .host = (uint16_t)(1 + side),
                                      .inbox_bytes = INBOX_BYTES,
                                      .bell_fd = -1,
                                      .direct = true,
                                      .like = via_emu_like_find(like),
                                      .slices = true,
                                      .dma_depth = 2,
                                      .on_message = on_message};
    struct via_port *port;
    struct via_error err;
    require(via_emu_port_open(&options, &port, &err) == 0);
    return port;
}

static void service(struct scene *s)
{
    uint64_t deadline_ns;
    (void)via_emu_port_service(s->port, s->now_ns, &deadline_ns);
    struct via_emu_status status;
    via_emu_port_status(s->port, &status);
    require(memchr(status.error, 0, sizeof(status.error)) != NULL);
}

static size_t bridge_bytes(const struct scene *s)
{
    return via_emu_port_of(s->port)->bridge_bytes;
}

/* --- the other end --------------------------------------------------------------------------- */

static void hang_up(struct scene *s)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
    if (s->bridge != NULL) {
        munmap(s->bridge, bridge_bytes(s));
        close(s->bridge_fd);
    }
    s->bridge = NULL;
    s->bridge_fd = -1;
}

static void have_bridge(struct scene *s, int fd)
{
    void *memory = mmap(NULL, bridge_bytes(s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(memory != MAP_FAILED);
    s->bridge = memory;
    s->bridge_fd = fd;
}

static void meet(struct scene *s)
{
    if (s->fd < 0 && s->side == 1) {
        s->now_ns += VIA_SEC_NS; /* it connects again after some time */
        service(s);
        if (via_emu_cable_accept(s->listen_fd, &s->fd) != 0) {
            s->fd = -1;
        }
    } else if (s->fd < 0) {
        if (via_emu_cable_connect(path, &s->fd) != 0) {
            s->fd = -1;
        }
    }
    if (s->fd >= 0 && s->side == 1 && s->bridge == NULL) {
        have_bridge(s, memory(bridge_bytes(s), F_SEAL_SHRINK | F_SEAL_GROW));
    }
}

/* Receives what the port sends, and its bridge if it sends one. */
static void listen_to_port(struct scene *s)
{
    struct via_emu_cable_message message;
    while (s->fd >= 0) {
        int rc = via_emu_cable_receive(s->fd, &message);
        if (rc == -EAGAIN) {
            return;
        }
        require(rc == 1 || rc == 0);
        if (rc == 0) {
            hang_up(s);
            return;
        }
        if (message.header.type == VIA_EMU_CABLE_HELLO && message.fds_count == 3 &&
            s->bridge == NULL) {
            have_bridge(s, message.fds[2]);
            message.fds[2] = -1;
        }
        via_emu_cable_close_fds(&message);
    }
}

static unsigned some_fds(const struct scene *s, struct input *input, int ret_fds[FDS_MAX])
{
    unsigned count = input_byte(input) % (FDS_MAX + 1);
    for (unsigned i = 0; i < count; i++) {
        unsigned which = input_byte(input) % SOURCES;
        ret_fds[i] = which != BRIDGE || s->bridge_fd < 0 ? sources[which == BRIDGE ? BELL : which]
                                                         : s->bridge_fd;
    }
    return count;
}

static void say(const struct scene *s, const void *bytes, size_t count, const int *fds,
                unsigned fds_count)
{
    VIA_FDS_SPACE(FDS_MAX) control = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, count};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    via_fds_add(&message, &control, fds, fds_count);
    (void)!sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void say_hello(struct scene *s, struct input *input)
{
    struct via_emu_cable_hello hello = {
        .header = {VIA_EMU_CABLE_MAGIC, VIA_EMU_CABLE_VERSION, VIA_EMU_CABLE_HELLO},
        .host = 9,
        .side = (uint16_t)(1 - s->side),
        .bell_lines = 1,
        .inbox_bytes = INBOX_BYTES,
    };
    strcpy(hello.like, s->like);
    int fds[FDS_MAX] = {sources[INBOX], sources[BELL], s->bridge_fd};
    unsigned count = s->side == 0 ? 2 : 3;
    uint8_t odd = input_byte(input);
    if ((odd & 1) != 0) {
        hello.bell_lines = (uint16_t)input_edgy(input);
        hello.inbox_bytes = input_edgy(input);
        hello.cut = input_byte(input);
    }
    if ((odd & 2) != 0) {
        count = some_fds(s, input, fds);
    }
    if ((odd & 0xc) == 0xc) {
        hello.header.version = (uint16_t)input_edgy(input);
        hello.side = (uint16_t)input_edgy(input);
    }
    say(s, &hello, sizeof(hello), fds, count);
}

/* Sends a message about the memory of a slice. */
static void say_slice(struct scene *s, struct input *input)
{
    struct {
        struct via_emu_cable_header header;
        struct via_emu_cable_slice slice;
    } message = {.header = {VIA_EMU_CABLE_MAGIC, VIA_EMU_CABLE_VERSION, VIA_EMU_CABLE_SLICE}};
    int fds[FDS_MAX];
    message.slice.round =
        s->bridge == NULL ? 0 : via_emu_bridge_link(s->bridge) >> VIA_EMU_LINK_ROUND_SHIFT;
    message.slice.slice = (uint32_t)input_edgy(input);
    message.slice.exposure = input_edgy(input);
    message.slice.off = input_edgy(input);
    message.slice.bytes = input_edgy(input);
    unsigned count = some_fds(s, input, fds);
    say(s, &message, sizeof(message), fds, count);
}

static void say_message(struct scene *s, struct input *input)
{
    static struct {
        struct via_emu_cable_header header;
        struct via_emu_cable_request request;
        unsigned char rest[VIA_EMU_MESSAGE_BYTES_MAX + 64];
    } message;
    int fds[FDS_MAX];
    uint8_t odd = input_byte(input);
    message.header = (struct via_emu_cable_header){VIA_EMU_CABLE_MAGIC, VIA_EMU_CABLE_VERSION,
                                                   (odd & 1) != 0 ? (uint16_t)input_edgy(input)
                                                                  : VIA_EMU_CABLE_REQUEST};
    message.request.round = (odd & 2) != 0 || s->bridge == NULL
                                ? (uint32_t)input_edgy(input)
                                : via_emu_bridge_link(s->bridge) >> VIA_EMU_LINK_ROUND_SHIFT;
    if ((odd & 0xf0) == 0xf0) {
        message.header.magic = (uint32_t)input_edgy(input);
    }
    size_t bytes = input_edgy(input) % (sizeof(message) + 1);
    unsigned count = some_fds(s, input, fds);
    say(s, &message, bytes, fds, count);
}

static void write_bridge(struct scene *s, struct input *input)
{
    uint8_t where = input_byte(input);
    uint32_t value = (uint32_t)input_edgy(input);
    if (s->bridge == NULL) {
        return;
    }
    switch (where & 3) {
    case 0:
        atomic_store(&s->bridge->link, value);
        break;
    case 1:
        (void)via_emu_bridge_train(s->bridge, 1 - s->side);
        break;
    case 2:
        atomic_store(&s->bridge->doorbell[where >> 2 & 1].pending, value);
        break;
    default:
        atomic_store(&s->bridge->scratchpad[where >> 2 & 7], value);
    }
}

/* Posts of the hostile end: bytes that may be entries, and positions that may be right. The lock
 * stays free, because the honest end waits 500 ms for a held lock before it considers the peer
 * lost. */
static void write_lane(struct scene *s, struct input *input)
{
    uint8_t where = input_byte(input);
    uint64_t value = input_edgy(input);
    struct via_emu_flight flight = {
        .round = s->bridge == NULL ? 0 : via_emu_bridge_link(s->bridge) >> VIA_EMU_LINK_ROUND_SHIFT,
        .kind = input_byte(input) & 3,
        .bytes = (where & 8) != 0 ? (uint32_t)value : 64,
        .off = (where & 16) != 0 ? value : 64,
        .word = value,
    };
    if (s->bridge == NULL || bridge_bytes(s) == VIA_EMU_BRIDGE_BYTES) {
        return;
    }
    struct via_emu_lane *lanes =
        (struct via_emu_lane *)(void *)((unsigned char *)s->bridge + VIA_EMU_BRIDGE_BYTES);
    struct via_emu_lane *lane = &lanes[(where >> 5) % 2 * VIA_PORT_QUEUES + (where >> 6) % 2];
    size_t at = input_byte(input) * sizeof(flight);
    switch (where & 7) {
    case 0:
        atomic_store(&lane->posted, (uint32_t)value);
        break;
    case 1:
        atomic_store(&lane->taken, (uint32_t)value);
        break;
    case 2:
        atomic_store(&lane->flushed, (uint32_t)value);
        break;
    default:
        memcpy(lane->data + at, &flight, sizeof(flight));
        atomic_store(&lane->posted, (uint32_t)at + 96);
        atomic_store(&lane->flushed, (uint32_t)at + 96);
    }
}

/* --- calls of a node ------------------------------------------------------------------------- */

static void use_port(struct scene *s, struct input *input)
{
    static const unsigned char bytes[256];
    struct via_port *port = s->port;
    uint64_t off = input_edgy(input);
    size_t count = input_byte(input);
    uint64_t cookie;
    int result;
    switch (input_byte(input) & 7) {
    case 0:
        ((off & 2) != 0 ? port->ops->body : port->ops->commit)(port, 0, off, bytes, count);
        port->ops->flush(port, 0);
        break;
    case 1:
        (void)port->ops->ring(port, 0, (unsigned)count);
        break;
    case 2:
        (void)port->ops->events(port, UINT64_MAX);
        break;
    case 3:
        port->ops->scratchpad_write(port, (unsigned)count, (uint32_t)off);
        (void)port->ops->scratchpad_read(port, (unsigned)count);
        break;
    case 4:
        (void)!via_emu_port_request(port, bytes, count, sources, (unsigned)(off % 3));
        break;
    case 5:
        via_emu_port_cut(port, (count & 1) != 0);
        break;
    case 6:
        (void)port->ops->dma(port, 0, off, bytes, count, off);
        if ((off & 1) != 0) {
            port->ops->dma_abort(port, 0);
        }
        break;
    default:
        (void)port->ops->dma_take(port, 0, &cookie, &result, 1);
        if (port->window != NULL) {
            memset(port->window + off % (port->caps.window_bytes - count), 1, count);
        }
    }
}

static void step(struct scene *s, struct input *input)
{
    uint8_t what = input_byte(input);
    meet(s);
    switch (what & 7) {
    case 0:
    case 1:
        if (s->fd >= 0) {
            say_hello(s, input);
        }
        break;
    case 2:
        if (s->fd >= 0) {
            ((what & 0x40) != 0 ? say_slice : say_message)(s, input);
        }
        break;
    case 3:
        if ((what & 0x80) != 0) {
            write_lane(s, input);
        } else {
            write_bridge(s, input);
        }
        break;
    case 4:
        use_port(s, input);
        break;
    case 5:
        listen_to_port(s);
        break;
    case 6:
        s->now_ns += (what & 0x80) != 0 ? 2 * VIA_SEC_NS : VIA_MSEC_NS;
        break;
    default:
        hang_up(s);
    }
    if ((what & 0x40) == 0) {
        service(s);
        listen_to_port(s);
    }
}

/* An honest end replaces the hostile one, and the link comes up. */
static void heal(struct scene *s)
{
    hang_up(s);
    if (s->listen_fd >= 0) {
        close(s->listen_fd);
        unlink(path);
    }
    service(s);
    struct via_port *other = open_port(1 - s->side, s->like);
    via_emu_port_cut(s->port, false);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t deadline_ns;
        s->now_ns += i % 4 == 0 ? VIA_SEC_NS : 0;
        (void)via_emu_port_service(other, s->now_ns, &deadline_ns);
        service(s);
    }
    require(s->port->ops->link_is_up(s->port) && other->ops->link_is_up(other));
    other->ops->close(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input input = {data, bytes};
    struct scene s = {.fd = -1, .bridge_fd = -1, .listen_fd = -1, .now_ns = VIA_SEC_NS};
    if (folder[0] == '\0') {
        begin();
    }
    uint8_t first = input_byte(&input);
    s.side = first & 1;
    s.like = (first & 2) != 0 ? "network" : (first & 4) != 0 ? "ivshmem" : "memory";
    if (s.side == 1) {
        require(via_emu_cable_listen(path, 0600, &s.listen_fd, NULL) == 0);
    }
    s.port = open_port(s.side, s.like);
    for (unsigned i = 0; i < STEPS_MAX && input.bytes != 0; i++) {
        step(&s, &input);
    }
    heal(&s);
    s.port->ops->close(s.port);
    return 0;
}
