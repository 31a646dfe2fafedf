/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The emulated port: an NTB link between two processes of one machine (or two threads of one).
 *
 * Side 0 listens on a UNIX socket, the cable; side 1 tries to connect until side 0 accepts. Either
 * process may start first, be killed, and restart. Over the cable the ends exchange memfds: the
 * inbox, the bell page, and, from side 0, the bridge with its scratchpads, doorbells and link
 * state. From then on puts, doorbells and scratchpads are stores and loads; the socket then serves
 * for messages, and to detect the death of the peer.
 *
 * The port has no threads of its own. The control thread watches via_emu_port_fd() and calls
 * via_emu_port_service(). Only the control thread calls the other functions here. For the
 * operations of core/port.h the rules there hold: transfer threads may be inside any of them while
 * the control thread takes the link up or down.
 *
 * A store to a link that is down vanishes. A load from the window then returns all-ones, except at
 * addresses to which the loading process itself has stored since the link went down. When the peer
 * cuts the link, body, commit, ring and scratchpads stop at once. Direct stores still reach the
 * peer's inbox until service() of this end has run; they are harmless, because the peer already
 * treats the link as down, and the link does not come up before that service().
 */
#ifndef VIA_PORT_EMU_EMU_H
#define VIA_PORT_EMU_EMU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/types.h"
#include "core/port.h"
#include "port/bell.h"
#include "port/slice.h"

/*
 * The bell page of a host has one struct via_bell per transfer thread; the peers of all its ports
 * ring the same page. A thread that is about to sleep first loads the count of its line, then
 * clears the events of its ports: a doorbell that is still pending does not change the count again.
 */
#define VIA_EMU_BELL_LINES_MAX VIA_BELL_LINES_MAX

/* The line that doorbell `bit` of a port rings at a host with `lines` lines. */
static inline unsigned via_emu_bell_line(unsigned bit, unsigned lines)
{
    return bit < VIA_PORT_DATA_DOORBELLS ? bit % lines : 0;
}

struct via_emu_like; /* like.h */

#define VIA_EMU_MESSAGE_BYTES_MAX 4096u
#define VIA_EMU_MESSAGE_FDS_MAX 8u
#define VIA_EMU_INBOX_BYTES_MAX (UINT64_C(1) << 36)
#define VIA_EMU_DMA_DEPTH_MAX 64u

/*
 * See via_port_on_message (port/driver.h).
 */
typedef void via_emu_on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds);

struct via_emu_options {
    const char *path;      /* of the socket, the same at both ends. "DIR/link-1-2-0.sock" is called
                              "link-1-2-0" in texts */
    unsigned side;         /* 0 listens, 1 connects */
    uint16_t host;         /* id of this host, sent to the peer */
    uint64_t inbox_bytes;  /* multiple of the page size */
    uint64_t window_bytes; /* size of the window to the peer's inbox; 0 = inbox_bytes, or the size
                              that the class defines. Offsets beyond the peer's inbox behave like a
                              link that is down */
    const struct via_emu_like *like; /* class of links; NULL: plain shared memory. Both ends have
                                        the same. If the class has a window size, inbox_bytes is
                                        ignored: the inbox is as large as the window */
    uint64_t delay_ns; /* in classes with lanes: longest delay of a flushed write; 0 = the default
                          of the class */
    uint64_t seed;     /* seed of the random choices of such a class */
    int bell_fd; /* bell page of this host: a memfd sealed against shrinking; the port duplicates
                    the descriptor. -1: no thread sleeps on this port */
    unsigned bell_lines; /* 1..VIA_EMU_BELL_LINES_MAX; 0 with bell_fd -1 */
    bool direct; /* port->window is mapped for direct stores. Otherwise it is NULL and the port
                    reports that it is not coherent: then core does all that real hardware needs */
    unsigned dma_depth; /* DMAs under way at once, 0..VIA_EMU_DMA_DEPTH_MAX; 0: no engine. The
                           engine copies inside dma_take() */
    bool slices; /* if the class has slices: they get the part of the window behind the inbox. Then
                    the inbox has inbox_bytes, at most 3/4 of the window, and caps.window_bytes
                    covers only the inbox */
    uint64_t inbox_bytes_min; /* with slices: least size of the inbox, if it fits the window */
    mode_t mode; /* of the socket file; 0 = 0600. The port refuses users other than its own and root
                    in any case */
    via_emu_on_message *on_message; /* NULL: messages are dropped and counted */
    void *ctx;
};

/*
 * Opens an end; via_emu_port_service() brings the link up. -EADDRINUSE: a living process listens on
 * the path (the port replaces the socket of a dead process). -EINVAL, -ENAMETOOLONG, -ENOMEM,
 * -EMFILE, -EPERM (bell_fd is not sealed), and errors of bind(). The port holds flock() on the
 * directory while it creates the socket. Close with port->ops->close(port).
 */
VIA_MUST_CHECK int via_emu_port_open(const struct via_emu_options *options,
                                     struct via_port **ret_port, struct via_error *err);

/* Readable when via_emu_port_service() has work. Owned by the port. */
int via_emu_port_fd(const struct via_port *port);

/*
 * Accepts, connects, exchanges hellos, receives messages, detects the death of the peer: a bounded
 * turn that does not block. *ret_deadline_ns: the latest time of the next call. 1: the link went up
 * or down, and events() will report it; else 0. A fault of the link is a text in the status, not an
 * error here.
 */
int via_emu_port_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);

/*
 * Cuts the cable or mends it; either end may do so, and it takes effect at both. The cable stays
 * cut as long as either end lives. The caller calls service at once afterwards.
 */
void via_emu_port_cut(struct via_port *port, bool cut);

/*
 * Sends a message to the peer's on_message, with fds (borrowed). 0, -ENOLINK (the link is down),
 * -EAGAIN (the socket is full: retry later), -EMSGSIZE, -EINVAL, or an error of sendmsg(). A
 * message under way when the link goes down is dropped.
 */
VIA_MUST_CHECK int via_emu_port_request(struct via_port *port, const void *msg, size_t len,
                                        const int *fds, unsigned nfds);

/* The slices of the window; NULL: there are none. Constant while the port is open. */
struct via_port_slices *via_emu_port_slices(struct via_port *port);

struct via_emu_status {
    bool connected; /* both ends have exchanged hellos, cut or not */
    bool up;
    bool cut;
    pid_t peer_pid;     /* 0 when not connected */
    uint16_t peer_host; /* as the peer's hello says; valid when connected */
    uint64_t peer_inbox_bytes;
    uint64_t window_bytes; /* with the slices */
    uint64_t ups_count, downs_count;
    uint64_t puts_out_of_bounds; /* dropped: bounds, or invalid size of a commit */
    uint64_t puts_vanished;      /* by body() and commit(), while the link was down */
    uint64_t doorbells_fired, doorbells_coalesced;
    uint64_t scratchpads_refused; /* writes to scratchpads of the peer, or beyond the last one */
    uint64_t messages_sent, messages_received, messages_dropped;
    uint64_t peers_refused; /* connections ended: invalid messages, or another user */
    char error[256];        /* why the last connection failed; "" = no fault */
};
void via_emu_port_status(const struct via_port *port, struct via_emu_status *ret_status);

#endif
