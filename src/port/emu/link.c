/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The control thread's part of the emulated port: it connects to the peer, and brings the link up
 * and down. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/mutant.h"
#include "port/emu/cable.h"
#include "port/emu/memory.h"
#include "port/emu/port.h"

/* Interval of the connection attempts of side 1. It doubles after each failed attempt, up to the
 * maximum. */
#define RETRY_NS_MIN (10 * VIA_MSEC_NS)
#define RETRY_NS_MAX (200 * VIA_MSEC_NS)
/* A connection that has sent no hello for this time is closed, because it blocks others. */
#define HELLO_NS (1 * VIA_SEC_NS)
/* Limits of one turn. */
#define ACCEPTS_MAX 8
#define MESSAGES_MAX 64

static void set_error(struct via_emu_port *emu, const char *format, ...) VIA_PRINTF(2, 3);
static void set_error(struct via_emu_port *emu, const char *format, ...)
{
    va_list args;
    int prefix = snprintf(emu->error, sizeof(emu->error), "%s: ", emu->name);
    va_start(args, format);
    vsnprintf(emu->error + prefix, sizeof(emu->error) - (size_t)prefix, format, args);
    va_end(args);
}

/* --- up and down --- */

static void link_up(struct via_emu_port *emu)
{
    uint64_t bytes = via_min(emu->peer_inbox_bytes, emu->base.caps.window_bytes);
    int rc = via_emu_range_share(emu->window, bytes, emu->peer_inbox_fd);
    if (rc != 0) {
        set_error(emu, "map the inbox of host %u: %s", emu->peer_host, strerror(-rc));
        emu->window_torn = true;
        return;
    }
    emu->ups_count++;
    /* Release: pairs with the acquire in via_emu_port_is_up(). A thread that sees `up` stores into
     * the window mapped above. */
    atomic_store_explicit(&emu->up, true, memory_order_release);
    atomic_fetch_or_explicit(&emu->edges, VIA_PORT_EVENT_LINK_UP, memory_order_acq_rel);
}

static void take_window_away(struct via_emu_port *emu)
{
    int rc = via_emu_range_fill_ones(emu->window, emu->base.caps.window_bytes, emu->ones_fd);
    emu->window_torn = rc != 0;
    if (rc != 0) {
        set_error(emu, "unmap the window: %s", strerror(-rc));
    }
}

static void link_down(struct via_emu_port *emu)
{
    /* Sequentially consistent: see enter() in posted.c. */
    atomic_store_explicit(&emu->up, false, memory_order_seq_cst);
    via_emu_posted_quiesce(emu);
    take_window_away(emu);
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS / 2 && !emu->like->scratchpads_survive; i++) {
        unsigned index = emu->base.side * (VIA_PORT_SCRATCHPADS / 2) + i;
        atomic_store_explicit(&emu->bridge->scratchpad[index], 0, memory_order_release);
    }
    atomic_store_explicit(&emu->bridge->doorbell[emu->base.side].pending, 0, memory_order_release);
    via_emu_slices_forget(emu);
    emu->downs_count++;
    atomic_fetch_add_explicit(&emu->downs, 1, memory_order_release);
    atomic_fetch_or_explicit(&emu->edges, VIA_PORT_EVENT_LINK_DOWN, memory_order_acq_rel);
}

static void nudge(struct via_emu_port *emu)
{
    emu->nudge_due =
        via_emu_cable_send(emu->cable_fd, VIA_EMU_CABLE_NUDGE, NULL, 0, NULL, 0) == -EAGAIN;
    /* Any other error means that the peer is dead; the socket reports that as end of file. */
    struct epoll_event event = {.events = EPOLLIN | (emu->nudge_due ? EPOLLOUT : 0u)};
    epoll_ctl(emu->epoll_fd, EPOLL_CTL_MOD, emu->cable_fd, &event);
}

/* Follows the link word of the bridge: first down, so that no down is missed, then training, then
 * up. */
static void follow_link(struct via_emu_port *emu)
{
    if (emu->window_torn) {
        take_window_away(emu);
    }
    if (emu->state != VIA_EMU_CABLE_JOINED) {
        return;
    }
    uint32_t link = via_emu_bridge_link(emu->bridge);
    emu->cut = (link & VIA_EMU_LINK_CUT) != 0;
    if (atomic_load_explicit(&emu->up, memory_order_relaxed) && !via_emu_bridge_is_up(link)) {
        link_down(emu);
    }
    if (atomic_load_explicit(&emu->up, memory_order_relaxed) || emu->window_torn) {
        return;
    }
    if ((link & VIA_EMU_LINK_TRAINED(emu->base.side)) == 0 &&
        via_emu_bridge_train(emu->bridge, emu->base.side)) {
        nudge(emu);
    }
    if (via_emu_bridge_is_up(via_emu_bridge_link(emu->bridge))) {
        link_up(emu);
    }
}

/* --- connect and hang up --- */

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* Scratchpads of hardware are in the bridge, which outlives both hosts. Here the surviving end
 * keeps their values, and side 0 stores these into the bridge of the next connection. */
static void keep_scratchpads(struct via_emu_port *emu)
{
    emu->pads_known = emu->like->scratchpads_survive;
    for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
        emu->pads[i] = atomic_load_explicit(&emu->bridge->scratchpad[i], memory_order_relaxed);
    }
}

static void restore_scratchpads(struct via_emu_port *emu, const struct via_emu_cable_hello *hello)
{
    const uint32_t *pads = emu->pads_known ? emu->pads : hello->pads;
    if (emu->base.side == 0 && emu->like->scratchpads_survive &&
        (emu->pads_known || hello->pads_known != 0)) {
        for (unsigned i = 0; i < VIA_PORT_SCRATCHPADS; i++) {
            atomic_store_explicit(&emu->bridge->scratchpad[i], pads[i], memory_order_relaxed);
        }
    }
}

void via_emu_link_disconnect(struct via_emu_port *emu)
{
    if (emu->state == VIA_EMU_CABLE_NONE) {
        return;
    }
    if (emu->state == VIA_EMU_CABLE_JOINED) {
        /* The side that cut may have died: the cable stays cut nevertheless. */
        emu->cut = (via_emu_bridge_link(emu->bridge) & VIA_EMU_LINK_CUT) != 0;
        keep_scratchpads(emu);
    }
    if (atomic_load_explicit(&emu->up, memory_order_relaxed)) {
        link_down(emu);
    }
    atomic_store_explicit(&emu->peer_bell_lines, 0, memory_order_relaxed);
    /* Maps private pages in place of the shared ones, because there is no peer any more. If that
     * fails, the old pages stay mapped, which only costs memory. */
    if (via_emu_range_zero(emu->bridge, emu->bridge_bytes) != 0 ||
        via_emu_range_zero(emu->bells, VIA_EMU_BELL_BYTES) != 0) {
        set_error(emu, "unmap the bridge: %s", strerror(errno));
    }
    epoll_ctl(emu->epoll_fd, EPOLL_CTL_DEL, emu->cable_fd, NULL);
    close_fd(&emu->cable_fd);
    close_fd(&emu->bridge_fd);
    close_fd(&emu->peer_inbox_fd);
    emu->nudge_due = false;
    emu->state = VIA_EMU_CABLE_NONE;
}

/* Ends a connection because of the peer's user id or its messages. */
static void refuse(struct via_emu_port *emu)
{
    emu->peers_refused++;
    via_emu_link_disconnect(emu);
}

static int send_hello(struct via_emu_port *emu)
{
    struct via_emu_cable_hello hello = {
        .host = emu->host,
        .side = (uint16_t)emu->base.side,
        .bell_lines = emu->bell_lines,
        .cut = emu->cut,
        .inbox_bytes = emu->base.caps.inbox_bytes,
        .pads_known = emu->pads_known,
    };
    memcpy(hello.pads, emu->pads, sizeof(hello.pads));
    snprintf(hello.like, sizeof(hello.like), "%s", emu->like->name);
    int fds[3] = {emu->inbox_fd, emu->bell_fd, emu->bridge_fd};
    return via_emu_cable_send(
        emu->cable_fd, VIA_EMU_CABLE_HELLO, (const unsigned char *)&hello + sizeof(hello.header),
        sizeof(hello) - sizeof(hello.header), fds, emu->base.side == 0 ? 3 : 2);
}

/* Begins a connection: sends this end's hello, and waits for the peer's. */
static void begin(struct via_emu_port *emu, int fd, uint64_t now_ns)
{
    emu->state = VIA_EMU_CABLE_WAITING;
    emu->cable_fd = fd;
    emu->deadline_ns = now_ns + HELLO_NS;

    if (via_emu_cable_peer(fd, &emu->peer_pid) != 0) {
        set_error(emu, "process %d at the other end belongs to another user", (int)emu->peer_pid);
        refuse(emu);
        return;
    }
    int rc = 0;
    if (emu->base.side == 0) {
        rc = via_emu_memfd_new("viaduct-bridge", emu->bridge_bytes, &emu->bridge_fd);
        if (rc == 0) {
            rc = via_emu_range_share(emu->bridge, emu->bridge_bytes, emu->bridge_fd);
        }
    }
    if (rc == 0) {
        rc = send_hello(emu);
    }
    struct epoll_event event = {.events = EPOLLIN};
    if (rc == 0 && epoll_ctl(emu->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        rc = -errno;
    }
    if (rc != 0) {
        set_error(emu, "greet process %d at the other end: %s", (int)emu->peer_pid, strerror(-rc));
        via_emu_link_disconnect(emu);
    }
}

static void accept_all(struct via_emu_port *emu, uint64_t now_ns)
{
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        int fd;
        if (via_emu_cable_accept(emu->listen_fd, &fd) != 0) {
            return;
        }
        if (emu->state != VIA_EMU_CABLE_NONE) {
            close(fd); /* the cable is in use; a third process retries, or was a status query */
            continue;
        }
        begin(emu, fd, now_ns);
    }
}

/* Schedules the next connection attempt of side 1; the interval doubles. */
static void retry_later(struct via_emu_port *emu, uint64_t now_ns)
{
    emu->retry_ns = emu->retry_ns == 0 ? RETRY_NS_MIN : via_min(emu->retry_ns * 2, RETRY_NS_MAX);
    emu->deadline_ns = now_ns + emu->retry_ns;
}

static void connect_again(struct via_emu_port *emu, uint64_t now_ns)
{
    int fd;
    int rc = via_emu_cable_connect(emu->path, &fd);
    if (rc == 0) {
        begin(emu, fd, now_ns);
        return;
    }
    /* An absent peer is not an error. */
    if (rc != -ENOENT && rc != -ECONNREFUSED && rc != -EAGAIN) {
        set_error(emu, "connect to %s: %s", emu->path, strerror(-rc));
    }
    retry_later(emu, now_ns);
}

/* --- messages --- */

/* Checks a private copy of the peer's hello. */
static int check_hello(struct via_emu_port *emu, const struct via_emu_cable_message *message,
                       struct via_emu_cable_hello *ret_hello)
{
    unsigned fds = emu->base.side == 0 ? 2 : 3;
    struct via_emu_cable_hello hello;

    if (message->header.type != VIA_EMU_CABLE_HELLO || message->fds_count != fds ||
        message->body_bytes != sizeof(hello) - sizeof(hello.header)) {
        set_error(emu, "process %d sent no valid hello", (int)emu->peer_pid);
        return -EPROTO;
    }
    memcpy((unsigned char *)&hello + sizeof(hello.header), message->body, message->body_bytes);
    hello.header = message->header;
    if (hello.side != 1 - emu->base.side) {
        set_error(emu, "process %d is side %u as well", (int)emu->peer_pid, emu->base.side);
        return -EPROTO;
    }
    if (hello.bell_lines > VIA_EMU_BELL_LINES_MAX || hello.inbox_bytes == 0 ||
        hello.inbox_bytes > VIA_EMU_INBOX_BYTES_MAX) {
        set_error(emu, "process %d has %u bell lines and an inbox of %llu bytes",
                  (int)emu->peer_pid, hello.bell_lines, (unsigned long long)hello.inbox_bytes);
        return -EPROTO;
    }
    if (strncmp(hello.like, emu->like->name, sizeof(hello.like)) != 0) {
        set_error(emu, "process %d emulates a link like '%.*s', this one like '%s'",
                  (int)emu->peer_pid, (int)sizeof(hello.like), hello.like, emu->like->name);
        return -EPROTO;
    }
    const uint64_t bytes[] = {hello.inbox_bytes, VIA_EMU_BELL_BYTES, emu->bridge_bytes};
    const char *const names[] = {"inbox", "bell page", "bridge"};
    for (unsigned i = 0; i < fds; i++) {
        int rc = via_emu_memfd_check(message->fds[i], bytes[i]);
        if (rc != 0) {
            set_error(emu, "process %d passed an %s that is %s", (int)emu->peer_pid, names[i],
                      rc == -EMSGSIZE ? "too small" : "not sealed, or of huge pages");
            return rc;
        }
    }
    *ret_hello = hello;
    return 0;
}

static int take_hello(struct via_emu_port *emu, struct via_emu_cable_message *message)
{
    struct via_emu_cable_hello hello;
    int rc = check_hello(emu, message, &hello);
    if (rc != 0) {
        return rc;
    }
    rc = via_emu_range_share(emu->bells, VIA_EMU_BELL_BYTES, message->fds[1]);
    if (rc == 0 && emu->base.side == 1) {
        rc = via_emu_range_share(emu->bridge, emu->bridge_bytes, message->fds[2]);
    }
    if (rc != 0) {
        set_error(emu, "map the memory of process %d: %s", (int)emu->peer_pid, strerror(-rc));
        return rc;
    }
    emu->peer_inbox_fd = message->fds[0];
    message->fds[0] = -1;
    emu->peer_inbox_bytes = via_align_down(hello.inbox_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    emu->peer_host = hello.host;
    atomic_store_explicit(&emu->peer_bell_lines, hello.bell_lines, memory_order_relaxed);
    if (emu->cut || hello.cut != 0) {
        via_emu_bridge_cut(emu->bridge);
    }
    restore_scratchpads(emu, &hello);
    emu->connection++;
    emu->state = VIA_EMU_CABLE_JOINED;
    emu->retry_ns = 0;
    emu->error[0] = '\0';
    return 0;
}

static void take_request(struct via_emu_port *emu, struct via_emu_cable_message *message)
{
    struct via_emu_cable_request request;
    uint32_t round = via_emu_bridge_link(emu->bridge) >> VIA_EMU_LINK_ROUND_SHIFT;

    if (message->body_bytes < sizeof(request) && !VIA_MUTANT(CABLE_SHORT)) {
        emu->messages_dropped++;
        return;
    }
    memcpy(&request, message->body, sizeof(request));
    /* Drops a message that was sent before the link went down, or for which there is no handler. */
    if (!via_emu_port_is_up(emu) || request.round != round || emu->on_message == NULL) {
        emu->messages_dropped++;
        return;
    }
    emu->messages_received++;
    emu->on_message(emu->ctx, message->body + sizeof(request),
                    message->body_bytes - sizeof(request), message->fds, message->fds_count);
}

/* 0, or why the connection must end. */
static int take_message(struct via_emu_port *emu, struct via_emu_cable_message *message)
{
    if (emu->state == VIA_EMU_CABLE_WAITING) {
        return take_hello(emu, message);
    }
    switch (message->header.type) {
    case VIA_EMU_CABLE_NUDGE:
        return 0; /* the caller reads the bridge after every message */
    case VIA_EMU_CABLE_REQUEST:
        take_request(emu, message);
        return 0;
    case VIA_EMU_CABLE_SLICE:
        emu->messages_dropped += via_emu_slice_take(emu, message) ? 0 : 1;
        return 0;
    default:
        set_error(emu, "process %d sent a message of type %u", (int)emu->peer_pid,
                  message->header.type);
        return -EPROTO;
    }
}

static void explain(struct via_emu_port *emu, int rc, const struct via_emu_cable_message *message)
{
    if (rc == -EPROTONOSUPPORT) {
        set_error(emu, "process %d speaks version %u of the cable's protocol, this one version %u",
                  (int)emu->peer_pid, message->header.version, VIA_EMU_CABLE_VERSION);
    } else {
        set_error(emu, "process %d sent a malformed message", (int)emu->peer_pid);
    }
}

static void hung_up(struct via_emu_port *emu, uint64_t now_ns)
{
    /* A peer that had joined may have restarted already, so side 1 connects at once. A process that
     * closes before its hello has another peer: retry later. */
    bool joined = emu->state == VIA_EMU_CABLE_JOINED;
    via_emu_link_disconnect(emu);
    if (joined) {
        emu->deadline_ns = now_ns;
    } else {
        retry_later(emu, now_ns);
    }
}

static void receive_all(struct via_emu_port *emu, uint64_t now_ns)
{

    for (unsigned i = 0; i < MESSAGES_MAX && emu->state != VIA_EMU_CABLE_NONE; i++) {
        struct via_emu_cable_message message;
        int rc = via_emu_cable_receive(emu->cable_fd, &message);
        if (rc == -EAGAIN) {
            break;
        }
        if (rc == 0) {
            hung_up(emu, now_ns);
            break;
        }
        if (rc < 0) {
            explain(emu, rc, &message);
            refuse(emu);
            break;
        }
        /* The peer may have brought the link up before it sent the message. This end must do so too
         * before it handles the message. */
        follow_link(emu);
        rc = take_message(emu, &message);
        via_emu_cable_close_fds(&message);
        if (rc != 0) {
            refuse(emu);
            break;
        }
        follow_link(emu);
    }
}

/* --- what the control thread calls --- */

/* Ends the connection if a thread in a lane has raised an alarm. */
static void take_alarm(struct via_emu_port *emu, uint64_t now_ns)
{
    uint64_t count;
    if (emu->alarm_fd < 0 || read(emu->alarm_fd, &count, sizeof(count)) < 0) {
        return;
    }
    int alarm = atomic_load_explicit(&emu->alarm, memory_order_relaxed);
    if (emu->state == VIA_EMU_CABLE_JOINED && alarm != VIA_EMU_ALARM_NONE) {
        set_error(emu,
                  alarm == VIA_EMU_ALARM_LOCK
                      ? "process %d does not release the lock of posted writes"
                      : "process %d posted an invalid write",
                  (int)emu->peer_pid);
        refuse(emu);
        retry_later(emu, now_ns);
    }
    /* After the disconnect no thread is in a lane, so none can raise an alarm about the old
     * connection now. */
    atomic_store_explicit(&emu->alarm, VIA_EMU_ALARM_NONE, memory_order_relaxed);
}

static void time_out(struct via_emu_port *emu, uint64_t now_ns)
{
    if (emu->state == VIA_EMU_CABLE_WAITING && now_ns >= emu->deadline_ns) {
        set_error(emu, "process %d connected and sent no hello", (int)emu->peer_pid);
        refuse(emu);
    }
}

int via_emu_port_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_emu_port *emu = via_emu_port_of(port);
    uint64_t ups = emu->ups_count;
    uint64_t downs = emu->downs_count;

    if (emu->state != VIA_EMU_CABLE_NONE) {
        receive_all(emu, now_ns); /* before accept_all(): the end of the old connection makes room
                                     for a new one */
    }
    time_out(emu, now_ns);
    take_alarm(emu, now_ns);
    if (emu->listen_fd >= 0) {
        accept_all(emu, now_ns);
    } else if (emu->state == VIA_EMU_CABLE_NONE && now_ns >= emu->deadline_ns) {
        connect_again(emu, now_ns);
    }
    if (emu->nudge_due) {
        nudge(emu);
    }
    follow_link(emu);

    *ret_deadline_ns = VIA_NEVER_NS;
    if (emu->window_torn) {
        *ret_deadline_ns = now_ns + RETRY_NS_MIN;
    } else if (emu->state == VIA_EMU_CABLE_WAITING ||
               (emu->state == VIA_EMU_CABLE_NONE && emu->listen_fd < 0)) {
        *ret_deadline_ns = emu->deadline_ns;
    }
    return emu->ups_count != ups || emu->downs_count != downs;
}

void via_emu_port_cut(struct via_port *port, bool cut)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    emu->cut = cut;
    if (emu->state != VIA_EMU_CABLE_JOINED) {
        return;
    }
    if (cut) {
        via_emu_bridge_cut(emu->bridge);
    } else {
        via_emu_bridge_mend(emu->bridge);
    }
    nudge(emu);
    follow_link(emu);
}

int via_emu_port_request(struct via_port *port, const void *msg, size_t len, const int *fds,
                         unsigned nfds)
{
    struct via_emu_port *emu = via_emu_port_of(port);

    if (len > VIA_EMU_MESSAGE_BYTES_MAX) {
        return -EMSGSIZE;
    }
    if (nfds > VIA_EMU_MESSAGE_FDS_MAX || (nfds != 0 && fds == NULL) || (len != 0 && msg == NULL)) {
        return -EINVAL;
    }
    uint32_t link = via_emu_bridge_link(emu->bridge);
    if (!via_emu_port_is_up(emu) || !via_emu_bridge_is_up(link)) {
        return -ENOLINK;
    }
    unsigned char body[sizeof(struct via_emu_cable_request) + VIA_EMU_MESSAGE_BYTES_MAX];
    struct via_emu_cable_request request = {.round = link >> VIA_EMU_LINK_ROUND_SHIFT};
    memcpy(body, &request, sizeof(request));
    if (len != 0) {
        memcpy(body + sizeof(request), msg, len);
    }
    int rc = via_emu_cable_send(emu->cable_fd, VIA_EMU_CABLE_REQUEST, body, sizeof(request) + len,
                                fds, nfds);
    if (rc == -EPIPE || rc == -ECONNRESET) {
        return -ENOLINK;
    }
    if (rc == 0) {
        emu->messages_sent++;
    }
    return rc;
}
