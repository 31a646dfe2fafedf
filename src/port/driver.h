/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Drivers. A driver opens and services one kind of port for the host; core uses an open port only
 * through core/port.h. A driver is a folder of src/port and a line in the table of drivers.c. Hosts
 * refer to a driver only through that table.
 *
 * Only the control thread calls these functions, unless a comment says otherwise. None blocks.
 *
 * Many peers. A driver may have one endpoint in a process (a listening socket, an adapter, a
 * connection manager) that reaches up to VIA_PORTS_MAX - 1 (1,023) peers. Each peer has a port of
 * its own, with its own inbox size, order, fences, doorbells, scratchpads and link state. So each
 * port keeps all promises of core/port.h even if the peer of another port of the endpoint is
 * silent, stopped or hostile, or another port is cut, opened or closed.
 * tests/conform/test_many_peers.c checks this.
 */
#ifndef VIA_PORT_DRIVER_H
#define VIA_PORT_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/store.h"
#include "base/types.h"
#include "core/port.h"
#include "port/slice.h"

/*
 * A link is described by a text: DRIVER:TARGET[,KEY[=VALUE]...]. A comma in TARGET is doubled.
 * struct via_link_words is a parsed description; its pointers point into `text`.
 */
#define VIA_LINK_DESCRIPTION_BYTES 512u
#define VIA_LINK_WORDS_MAX 16u
#define VIA_LINK_INBOX_BYTES_MAX (UINT64_C(1) << 30)

struct via_link_word {
    const char *key;
    const char *value; /* NULL: there is no '=' */
};

struct via_link_words {
    const char *target;
    unsigned count;
    struct via_link_word word[VIA_LINK_WORDS_MAX];
    char text[VIA_LINK_DESCRIPTION_BYTES];
};

/* Called for each message of the peer's end. The port owns fds and closes them after the call; to
 * keep one, the callee stores -1 in its place. msg is a private copy, 8-byte aligned, with hostile
 * contents. The callee must not close the port, and may send requests. */
typedef void via_port_on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds);

/* Instead of the number of a transfer thread. */
#define VIA_DRIVER_CONTROL UINT32_MAX

/* The host's services for its ports. Borrowed until the port is closed. */
struct via_driver_host {
    uint16_t host;
    uint64_t inbox_bytes; /* of this port alone, in whole pages: the size in the link's description,
                             or the largest that the node can use. If the hardware determines the
                             size of the window, the driver may choose another size */
    unsigned threads_count; /* transfer threads */
    int bell_fd; /* a sealed memfd, for peers that can map it: a page of VIA_BELL_LINES_MAX struct
                    via_bell (port/bell.h), one per transfer thread */
    uint64_t inbox_bytes_min; /* no link comes up with a smaller inbox */
    bool slices;              /* provide slices (port/slice.h) if the window has room */
    bool dma;                 /* use DMA, if the driver has the choice */
    bool encrypted;           /* encrypt links that strangers can reach; requires a fabric key */
    /* [any thread] Wakes a transfer thread after a doorbell or a completed DMA that was not
     * signalled through the bell page. VIA_DRIVER_CONTROL: wakes the control thread, as
     * caps.fence_wakes and caps.lines_wake promise for its queue. */
    void (*wake)(void *ctx, unsigned thread);
    /* [any thread] The time, by the same clock as the now_ns of service(). NULL:
     * CLOCK_MONOTONIC. */
    uint64_t (*now_ns)(void *ctx);
    via_port_on_message *on_message;
    void *ctx;
    const char *listen; /* where this machine listens for links of other machines, one address for
                           all links of a driver, in the driver's own format (ofi: ADDRESS[:PORT]).
                           NULL: the driver's default */
    uint16_t peer;      /* the id of the host that should be at the other end, or
                           VIA_DRIVER_PEER_LEARNED */
    /* [any thread] A MAC with the fabric key, for drivers whose links strangers can reach: a host
     * that does not prove possession of the key gets no access to memory. NULL: no key is
     * configured; then the peers of all links must have none either. */
    void (*mac)(void *mac_ctx, const void *data, size_t bytes, uint8_t ret_mac[32]);
    void *mac_ctx;
};
#define VIA_DRIVER_LISTEN_BYTES 128u
#define VIA_DRIVER_PEER_LEARNED UINT16_MAX /* any host: its id follows from the greeting */

struct via_port_status {
    bool cut;               /* by request */
    uint64_t window_bytes;  /* with slices */
    bool maps_memory;       /* messages may carry descriptors of memory, which processes then map */
    const char *class_name; /* class of links (docs/emulated-port.md) */
    uint64_t peer_pid;      /* 0 = not a process of this machine, or not connected */
    uint64_t doorbells_fired, doorbells_coalesced;
    uint64_t peers_refused; /* connections ended: invalid messages, or another user */
    const char *imitation; /* the software that imitates the hardware: measured times are then times
                              of that software. NULL: real hardware, or not known */
    char error[256]; /* the present fault of the link; "" = none. If another thread of the driver
                        sets it, it wakes service(), so that the host logs the change */
};

enum via_port_caching {
    VIA_PORT_UNCACHED,
    VIA_PORT_COMBINING,
    VIA_PORT_MEMORY, /* cacheable memory of this machine */
};

/* A mapping of the window for plain stores. */
struct via_port_view {
    unsigned char *at;
    uint64_t bytes;
    enum via_port_caching caching; /* as obtained, not as requested */
};

struct via_driver {
    const char *name;
    const char *usage; /* syntax of the part after the name, one line */
    /* Ports depend on the peer's id (via_driver_host.peer): if the peer of a link changes, the link
     * is a new one.
     */
    bool is_bound_to_peer;

    /* describe() describes only hardware: measured settings stay valid while the text is
     * unchanged. */
    bool describes_hardware;

    /* Parses a description into config, VIA_LINK_CONFIG_BYTES for the driver's own use. 0, or
     * -EINVAL and the reason in err. Does not access hardware. */
    int (*parse)(const struct via_link_words *words, void *config, struct via_error *err);

    /* Opens the port; later calls of service() bring the link up. port->ops->close() closes the
     * port. */
    int (*open)(const void *config, const struct via_driver_host *host, struct via_port **ret_port,
                struct via_error *err);

    /* Describes the hardware or the peer, for operators; "" = not found yet. */
    void (*describe)(const struct via_port *port, char *ret_text, size_t bytes);

    void (*status)(const struct via_port *port, struct via_port_status *ret_status);

    /* A descriptor, owned by the port, that is readable when service() has work. -1: call service()
     * at its deadlines. */
    int (*fd)(const struct via_port *port);

    /* A bounded turn: connects, detects the end of links, receives messages. 1: the link went up or
     * down, and events() will report it; else 0. */
    int (*service)(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);

    /* Cuts the link, or mends it. The caller calls service() at once afterwards. NULL: the link can
     * not be cut. */
    void (*cut)(struct via_port *port, bool cut);

    /* The slices of the window; constant while the port is open. NULL, or returns NULL: none. */
    struct via_port_slices *(*slices)(struct via_port *port);

    /* Sends a message to the peer's on_message, with fds (borrowed). 0, -ENOLINK, -EAGAIN (later),
     * -EMSGSIZE, -EINVAL. NULL: the driver has no messages. */
    int (*request)(struct via_port *port, const void *msg, size_t len, const int *fds,
                   unsigned nfds);

    /* Registers memory with the engine: dma() of core/port.h reads only from it. Called once, after
     * open and before the first dma(); valid until close. 0, or negative errno and the reason in
     * err. NULL: the engine reads from any memory of the process. */
    int (*memory_register)(struct via_port *port, void *memory, size_t bytes,
                           struct via_error *err);

    /* If the link is TCP and up, and processes of both hosts may open connections of their own
     * between the same two addresses: returns these as numeric texts without a port. 0; -EXDEV:
     * they may not; -ENOLINK. NULL: they may not. */
    int (*tcp)(struct via_port *port, char *ret_local, char *ret_peer, size_t bytes);

    /* Maps the window once more, so that stores into it can be measured; write-combined if
     * requested and possible. 0, -ENOTSUP (the window is reached only by calls), -ENOMEM, ... NULL:
     * the window is port->window and cacheable memory, or is reached only by calls. */
    int (*view_open)(struct via_port *port, bool combining, struct via_port_view *ret_view);
    void (*view_close)(struct via_port *port, struct via_port_view *view);

    /* Bodies of this size class (base/store.h) are copied by stores of this width if they begin at
     * a multiple of it. With store NULL the driver chooses. May be called at any time. NULL: there
     * is no choice.
     */
    void (*use_store)(struct via_port *port, unsigned size_class, const struct via_store *store);
};

/* A parsed description. via_link_parse() handles inbox=BYTES for all drivers; each driver parses
 * its other keys. */
#define VIA_LINK_CONFIG_BYTES 384u
struct via_link_config {
    const struct via_driver *driver;
    char target[128];
    uint64_t inbox_bytes; /* of this link; 0 = the largest that the node can use */
    unsigned char config[VIA_LINK_CONFIG_BYTES] __attribute__((aligned(16)));
};

/* All drivers, NULL at the end. */
extern const struct via_driver *const via_drivers[];

/* 0, or -EINVAL: err contains the description and the reason. */
VIA_MUST_CHECK int via_link_parse(const char *text, struct via_link_config *ret_config,
                                  struct via_error *err);

/* For drivers: parses a whole number, optionally followed by KiB, MiB or GiB. false: not a valid
 * number. */
bool via_link_word_parse_bytes(const struct via_link_word *word, uint64_t *ret_bytes);
bool via_link_word_parse_number(const struct via_link_word *word, uint64_t max,
                                uint64_t *ret_number);

#endif
