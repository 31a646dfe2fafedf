/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_HOST_H
#define VIA_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "core/node.h"
#include "host/control_rights.h"

/*
 * A host of the fabric: a node on its ports, the threads that run it, and two sockets: processes
 * attach to one, and commands read the status at the other. viaductd adds an option parser;
 * launchers and tests embed a host.
 *
 * Threads: the control thread (cables, sockets, via_node_control) and one transfer thread per
 * channel. All functions but via_host_stop belong to the thread that opened the host.
 */
struct via_host;

/* The use of the fabric key: a keyed hash (see via_node_env.mac). */
struct via_host_key {
    void *ctx;
    void (*mac)(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES]);
};

struct via_host_link {
    const char *description; /* DRIVER:TARGET[,KEY=VALUE...], see port/driver.h */
    uint16_t peer;           /* the host expected at the other end; for messages, cut and mend. Or
                                VIA_HOST_PEER_LEARNED */
    uint8_t dimension;       /* of a torus, the same at both ends; 0 in any other fabric */
    const char *name;        /* for messages; NULL = none */
};
/* As via_host_link.peer: any host. */
#define VIA_HOST_PEER_LEARNED 0xffffu

/* Is the description valid for a driver? -EINVAL with a text. Does not access hardware. */
int via_host_link_check(const struct via_host_link *link, struct via_error *err) VIA_MUST_CHECK;

/*
 * size: sizeof(struct via_host_options), so that the struct may grow. 0 stands for the default
 * wherever 0 is not a valid value. The host copies everything that is not marked as borrowed.
 */
struct via_tuning; /* host/tuning.h */

struct via_host_options {
    size_t size;
    uint16_t host;
    uint16_t hosts_max;     /* default 64 */
    const char *rundir;     /* created if missing, see via_rundir_make */
    uint8_t channels_count; /* default 2 */
    uint32_t pipe_slots;
    uint32_t frame_bytes_max;
    uint64_t heartbeat_ns;
    uint64_t dead_ns;
    uint64_t give_up_ns;    /* as via_node_config.give_up_ns; VIA_NEVER_NS = never */
    uint64_t spin_ns_max;   /* longest a transfer thread polls before it sleeps; default 50 us, 1 =
                               it does not */
    uint32_t processes_max; /* attached at once; default 256 */
    uint32_t protocol_version; /* for tests of peers of another version */
    struct via_rights attach; /* to attach and read the status; the owner and root always have it */
    struct via_rights admin;  /* ... to stop the host, cut and mend links, and read the status */
    struct via_quota quota;
    const struct via_host_link *links;
    unsigned links_count;
    uint32_t dma_bytes_min; /* not 0: ports that can open a DMA engine do, and it moves bodies of at
                               least dma_bytes_min */
    const struct via_tuning
        *tuning;                    /* measured settings, borrowed for the life of the host; NULL */
    const struct via_host_key *key; /* borrowed for the life of the host. Hosts of its links must
                                       prove that they have the same. NULL: none */
    bool encrypt;         /* links that strangers can reach, where the driver can; takes a key */
    uint64_t wait_ns_max; /* as via_node_config.wait_ns_max; VIA_NEVER_NS = never */
    unsigned links_max;   /* maximum of ports while the host runs, at most VIA_PORTS_MAX; 0 =
                             links_count */
    const char *name;   /* of the machine, for messages and tables: 1 to 64 letters, digits or ._-;
                           NULL = gethostname(2) */
    const char *fabric; /* its name; NULL = not named */
    const char *const *addresses; /* IPv4 and IPv6 addresses of the machine, as inet_pton(3) takes
                                     them; at most VIA_HOST_ADDRESSES_MAX */
    unsigned addresses_count;
    bool links_may_fail; /* the host logs links that can not be opened and starts without them, if
                            at least one link opens */
    const char *listen;  /* address at which drivers listen for other machines, in the driver's
                            format; NULL = its default. See via_driver_host.listen */
};

/* Sets size, and everything else to zero. */
void via_host_options_init(struct via_host_options *options);

/* Checks the options without opening anything. 0, -EINVAL with a text, -ENOMEM. */
int via_host_options_check(const struct via_host_options *options,
                           struct via_error *err) VIA_MUST_CHECK;

/*
 * Takes the host's lock in the run directory, allocates all memory, and listens. -EBUSY if a live
 * process holds the lock (the text names its pid); replaces the files of a dead one. -ENOMEM,
 * -ENOSPC, -EINVAL, and errors of the run directory and sockets.
 */
int via_host_open(const struct via_host_options *options, struct via_host **ret_host,
                  struct via_error *err) VIA_MUST_CHECK;

/* Runs the control thread in the caller until via_host_stop. 0, or the error of a thread that could
 * not start. */
int via_host_run(struct via_host *host, struct via_error *err) VIA_MUST_CHECK;

/* The same in a new thread, which via_host_close ends. */
int via_host_start(struct via_host *host, struct via_error *err) VIA_MUST_CHECK;

/*
 * Applies options that can change to a running host: links, rights, quota, name, fabric and
 * addresses; ignores the other fields. A link with the same description and dimension stays as it
 * is. Other links are closed, and then new ones opened, which takes some turns of the control
 * thread. Attached processes stay. From the control thread only (a source's ready()).
 *
 * 0: the change is under way. The control thread calls `note` for each link that is closed, is
 * opened or fails, and finally `done`; only `note` may be called from within this call. `change` is
 * borrowed until then. -EBUSY (another change is under way), -EINVAL, -ENOMEM: nothing has changed.
 */
struct via_host_change {
    void *ctx;
    void (*note)(void *ctx, bool failed, const char *text);
    void (*done)(void *ctx);
};
int via_host_change(struct via_host *host, const struct via_host_options *options,
                    const struct via_host_change *change, struct via_error *err) VIA_MUST_CHECK;

/*
 * The control request "reload": the embedder (the program that embeds the host) reads its
 * configuration again. Set it before the host runs; without it the host refuses the request. The
 * control thread calls `begin`. Later, in that thread, the embedder calls via_host_reload_started()
 * before it reads anything, and in the end via_host_reloaded() with a line for each result: these
 * lines answer the requests that arrived before via_host_reload_started().
 */
void via_host_set_reload(struct via_host *host, void (*begin)(void *ctx), void *ctx);
void via_host_reload_started(struct via_host *host);
void via_host_reloaded(struct via_host *host, bool failed, const char *const *lines,
                       unsigned lines_count);

/*
 * Measurements of TCP connections to other hosts, host/host_measured.h: the embedder measures, and
 * keeps the decisions. Set it before the host runs; all calls are made in the control thread.
 */
struct via_measured;
struct via_host_measuring {
    void *ctx;
    void (*changed)(void *ctx); /* a decision was added or removed; or NULL */
    /* Starts this host's end of a measurement by host `peer`, unless it runs already. 0 with its
     * port and token; -EAGAIN: call again soon; -EBUSY: another host measures; or another error.
     * NULL: this host takes part in no measurement. */
    int (*serve)(void *ctx, uint16_t peer, unsigned *ret_tcp_port, const char **ret_token);
};
void via_host_set_measuring(struct via_host *host, const struct via_host_measuring *calls);
/* The host to measure next: a neighbour over a kernel's network, with an idle link and without a
 * valid decision. Or -ENOENT; call again after some seconds. */
int via_host_measured_next(struct via_host *host);
/* The address at which this host's end of a measurement listens; NULL: it has no address. */
const char *via_host_first_address(const struct via_host *host);
/* The measurement of a host has ended. After a failure it is repeated, after increasing times. */
void via_host_measured_ended(struct via_host *host, uint16_t id, bool failed);
/* The decision about a host, valid or not; NULL: none. Sets a decision that the embedder has kept
 * over a restart. */
const struct via_measured *via_host_measured_kept(const struct via_host *host, uint16_t id);
void via_host_measured_restore(struct via_host *host, uint16_t id,
                               const struct via_measured *measured);

/* From any thread, and from a signal handler. */
void via_host_stop(struct via_host *host);

/* Stops the threads, detaches all processes, removes the sockets. NULL is allowed. */
void via_host_close(struct via_host *host);

#endif
