/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Drivers: what a host needs of a kind of ports and core does not (core/port.h has the rest). A
 * kind of ports is a folder of src/port and a line in the table of drivers.c; hosts know it by that
 * table alone.
 *
 * All of it belongs to the control thread. Nothing blocks.
 *
 * Many peers. A driver may have one endpoint in a process (a socket that listens, an adapter, a
 * connection manager) that reaches up to VIA_PORTS_MAX - 1 (1,023) peers. Each
 * peer is a port of its own: with an inbox of its own size, with its own order, fences, doorbells,
 * scratchpads and link state. So all that core/port.h promises holds for each port, even if another
 * port of its endpoint fails: a peer that is silent, stopped or hostile, a port that is cut, opened
 * or closed. tests/conform/test_many_peers.c holds drivers to that.
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
 * A link is described by a text: DRIVER:TARGET[,KEY[=VALUE]...]. A comma in TARGET is doubled. What
 * follows is such a text in parts; all of them point into `text`.
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

/* A message of the other end. fds belong to the port and are closed after the call; to keep one,
 * put -1 in its place. msg is a private copy, 8-byte aligned, and hostile. Must not close the port;
 * may send requests. */
typedef void via_port_on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds);

/* Instead of the number of a transfer thread. */
#define VIA_DRIVER_CONTROL UINT32_MAX

/* The host's services for its ports. Borrowed until the port is closed. */
struct via_driver_host {
    uint16_t host;
    uint64_t inbox_bytes; /* of this port alone, in whole pages: as the link's description says, or
                             what the node can use. A driver whose window has a size of its own may
                             have another */
    unsigned threads_count; /* transfer threads */
    int bell_fd; /* page of VIA_BELL_LINES_MAX struct via_bell (port/bell.h), one per transfer
                    thread, for a peer that can map it; a sealed memfd */
    uint64_t inbox_bytes_min; /* with less no link comes up */
    bool slices;              /* wanted, where the window has room: port/slice.h */
    bool dma;                 /* wanted, where there is a choice */
    bool encrypted;           /* wanted, where strangers can reach a link; with a key only */
    /* [any thread] Wakes a transfer thread: when one of its doorbells rang, or its DMA ended, and
     * the bell page was not written. VIA_DRIVER_CONTROL: the control thread, for what
     * caps.fence_wakes and caps.lines_wake promise of its queue. */
    void (*wake)(void *ctx, unsigned thread);
    /* [any thread] The time, by the clock whose time service() gets. NULL: CLOCK_MONOTONIC. */
    uint64_t (*now_ns)(void *ctx);
    via_port_on_message *on_message;
    void *ctx;
    const char *listen; /* where this machine listens for links of other machines, one place for
                           all links of a driver, in the driver's own words (ofi: ADDRESS[:PORT]).
                           NULL: the driver's default */
    uint16_t peer;      /* the id of the host that should be at the other end, or
                           VIA_DRIVER_PEER_LEARNED */
    /* [any thread] The keyed hash of the fabric key, for drivers whose links strangers can reach:
     * hosts that do not prove that they have the key get no access to memory. NULL: none is
     * configured, and then no host of its links may have one. */
    void (*mac)(void *mac_ctx, const void *data, size_t bytes, uint8_t ret_mac[32]);
    void *mac_ctx;
};
#define VIA_DRIVER_LISTEN_BYTES 128u
#define VIA_DRIVER_PEER_LEARNED UINT16_MAX /* any host: the greeting tells */

struct via_port_status {
    bool cut;               /* by request */
    uint64_t window_bytes;  /* with slices */
    bool maps_memory;       /* messages may pass memory, which processes then map */
    const char *class_name; /* of links, as docs/emulated-port.md has them */
    uint64_t peer_pid;      /* 0 = no process of this machine, or none is there */
    uint64_t doorbells_fired, doorbells_coalesced;
    uint64_t peers_refused; /* connections ended for what they sent, or for their user */
    const char *imitation;  /* what software stands for hardware, so that times are those of the
                               software; NULL: none that the driver knows of */
    char error[256];        /* what is wrong with the link now; "" = nothing. A driver whose
                               threads find that wakes service(): the host logs what is new */
};

enum via_port_caching {
    VIA_PORT_UNCACHED,
    VIA_PORT_COMBINING,
    VIA_PORT_MEMORY, /* memory of this machine: its caches take the stores */
};

/* The window, as plain stores meet it. */
struct via_port_view {
    unsigned char *at;
    uint64_t bytes;
    enum via_port_caching caching; /* that was obtained */
};

struct via_driver {
    const char *name;
    const char *usage; /* of the part after the name, one line */
    /* Ports depend on the peer's id (via_driver_host.peer): a link to another host is another link.
     */
    bool is_bound_to_peer;

    /* describe() describes only hardware: as long as the text stays, so do measured settings. */
    bool describes_hardware;

    /* Reads a description into config, VIA_LINK_CONFIG_BYTES of the driver's own. 0, or -EINVAL and
     * what is wrong with it. Touches no hardware. */
    int (*parse)(const struct via_link_words *words, void *config, struct via_error *err);

    /* Opens the port; the link comes up by service(). The port ends with port->ops->close(). */
    int (*open)(const void *config, const struct via_driver_host *host, struct via_port **ret_port,
                struct via_error *err);

    /* The hardware or the peer that was found, as a text for operators; "" = none yet. */
    void (*describe)(const struct via_port *port, char *ret_text, size_t bytes);

    void (*status)(const struct via_port *port, struct via_port_status *ret_status);

    /* Readable when service() has something to do; the port's. -1: call it by its deadlines. */
    int (*fd)(const struct via_port *port);

    /* A bounded turn: connects, notices the end of links, takes messages. 1: the link went up or
     * down, and the edges wait in events(); else 0. */
    int (*service)(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);

    /* Cuts the link, or mends it. Call service() at once afterwards. NULL: it can not be cut. */
    void (*cut)(struct via_port *port, bool cut);

    /* The slices of the window; constant while the port is open. NULL, or returns NULL: none. */
    struct via_port_slices *(*slices)(struct via_port *port);

    /* Sends a message to the other end's on_message, with fds (borrowed). 0, -ENOLINK, -EAGAIN
     * (later), -EMSGSIZE, -EINVAL. NULL: there is no way for messages. */
    int (*request)(struct via_port *port, const void *msg, size_t len, const int *fds,
                   unsigned nfds);

    /* Makes memory known to the engine: dma() of core/port.h reads from there and from nowhere
     * else. Once, after open and before the first dma(); until close. 0, or negative errno and why.
     * NULL: the engine reads from any memory of the process. */
    int (*memory_register)(struct via_port *port, void *memory, size_t bytes,
                           struct via_error *err);

    /* The link is TCP, and processes of both hosts may have connections of their own between the
     * same addresses: these as numeric texts without a port, for a link that is up. 0; -EXDEV: they
     * may not; -ENOLINK. NULL: they may not. */
    int (*tcp)(struct via_port *port, char *ret_local, char *ret_peer, size_t bytes);

    /* Maps the window once more, so that stores into it can be measured: write-combined or not, as
     * wanted, if it can be had. 0, -ENOTSUP (it is reached by calls only), -ENOMEM, ... NULL: the
     * window is port->window and memory, or reached by calls only. */
    int (*view_open)(struct via_port *port, bool combining, struct via_port_view *ret_view);
    void (*view_close)(struct via_port *port, struct via_port_view *view);

    /* Bodies of a size (base/store.h) are stored by stores of this width, where they begin at a
     * multiple of it; with store NULL as the driver likes. At any time. NULL: there is no choice.
     */
    void (*use_store)(struct via_port *port, unsigned size_class, const struct via_store *store);
};

/* A description that was understood. inbox=BYTES is read here, for all drivers alike; the other
 * keys are the driver's own. */
#define VIA_LINK_CONFIG_BYTES 384u
struct via_link_config {
    const struct via_driver *driver;
    char target[128];
    uint64_t inbox_bytes; /* of this link; 0 = what the node can use */
    unsigned char config[VIA_LINK_CONFIG_BYTES] __attribute__((aligned(16)));
};

/* All drivers, NULL at the end. */
extern const struct via_driver *const via_drivers[];

/* 0, or -EINVAL: err names the description, and what is wrong with it. */
VIA_MUST_CHECK int via_link_parse(const char *text, struct via_link_config *ret_config,
                                  struct via_error *err);

/* For drivers. A whole number of bytes with or without KiB, MiB or GiB; false: it is none. */
bool via_link_word_parse_bytes(const struct via_link_word *word, uint64_t *ret_bytes);
bool via_link_word_parse_number(const struct via_link_word *word, uint64_t max,
                                uint64_t *ret_number);

#endif
