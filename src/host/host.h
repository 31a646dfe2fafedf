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
 * A host of the fabric: a node on its ports, the threads that run it, and the two sockets by
 * to which processes attach and whose status operators read. viaductd is this and an option parser;
 * launchers and tests embed it.
 *
 * Threads: the control thread (cables, sockets, via_node_control) and one transfer thread per
 * channel. All functions but via_host_stop belong to the thread that opened the host.
 */
struct via_host;

/* The fabric's key, as the host uses it: a keyed hash (see via_node_env.mac). */
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

/* Is the description one that a driver understands? -EINVAL with a text. Touches no hardware. */
int via_host_link_check(const struct via_host_link *link, struct via_error *err) VIA_MUST_CHECK;

/*
 * size: sizeof(struct via_host_options), so that the struct may grow. 0 stands for the default
 * wherever 0 makes no sense. Everything is copied.
 */
struct via_tuning; /* host/tuning.h */

struct via_host_options {
    size_t size;
    uint16_t host;
    uint16_t hosts_max;     /* default 64 */
    const char *rundir;     /* made when missing, see via_rundir_make */
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
    struct via_rights attach;  /* who may attach and see the status, besides the owner and root */
    struct via_rights admin;   /* ... stop the host, cut and mend links, and see the status */
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
    unsigned links_max; /* ports that there may be while it runs, VIA_PORTS_MAX at most; 0 = no more
                           than links_count */
    const char *name;   /* of the machine, for people: 1 to 64 letters, digits or ._-; NULL =
                           gethostname(2) */
    const char *fabric; /* its name; NULL = not named */
    const char *const *addresses; /* IPv4 and IPv6 addresses of the machine, as inet_pton(3) takes
                                     them; at most VIA_HOST_ADDRESSES_MAX */
    unsigned addresses_count;
    bool links_may_fail; /* a link that does not open is logged, and the host goes on without it,
                            unless that are all */
    const char *listen;  /* where drivers that listen for other machines do so, in the driver's own
                            words; NULL = its default. See via_driver_host.listen */
};

/* Zero but for size. */
void via_host_options_init(struct via_host_options *options);

/* As far as this can be known without opening anything: could a host be opened? 0, -EINVAL with a
 * text, -ENOMEM. */
int via_host_options_check(const struct via_host_options *options,
                           struct via_error *err) VIA_MUST_CHECK;

/*
 * Takes the host's lock in the run directory, allocates all memory, and listens. -EBUSY when a live
 * process is this host already (the text names its pid); the files of a dead one are replaced.
 * -ENOMEM, -ENOSPC, -EINVAL, and errors of the run directory and sockets.
 */
int via_host_open(const struct via_host_options *options, struct via_host **ret_host,
                  struct via_error *err) VIA_MUST_CHECK;

/* Runs the control thread in the caller until via_host_stop. 0, or why a thread did not start. */
int via_host_run(struct via_host *host, struct via_error *err) VIA_MUST_CHECK;

/* The same in a thread of its own; via_host_close ends it. */
int via_host_start(struct via_host *host, struct via_error *err) VIA_MUST_CHECK;

/*
 * Applies the options to a running host, as far as they can change: links, rights, quota, name,
 * fabric and addresses; the other fields are ignored. A link with the same description and
 * dimension stays as it is; others leave, and new ones are opened then, which takes some turns of
 * the control thread. Attached processes stay. From the control thread only (a source's ready()).
 *
 * 0: it is under way, `note` is called for each link that goes, comes or fails, then `done`, all
 * from the control thread and never from within this call but for `note`; `change` is borrowed
 * until then. -EBUSY (another one is under way), -EINVAL, -ENOMEM: nothing has changed.
 */
struct via_host_change {
    void *ctx;
    void (*note)(void *ctx, bool failed, const char *text);
    void (*done)(void *ctx);
};
int via_host_change(struct via_host *host, const struct via_host_options *options,
                    const struct via_host_change *change, struct via_error *err) VIA_MUST_CHECK;

/*
 * The control request "reload": the program that embeds the host reads its configuration again.
 * Before the host runs. `begin` is called from the control thread. Later, in that thread, the
 * embedder calls via_host_reload_begins() before it reads anything, and in the end
 * via_host_reloaded() with a line for each result: these lines answer the requests that arrived
 * before the reading. Without this the request is refused.
 */
void via_host_set_reload(struct via_host *host, void (*begin)(void *ctx), void *ctx);
void via_host_reload_begins(struct via_host *host);
void via_host_reloaded(struct via_host *host, bool failed, const char *const *lines,
                       unsigned lines_count);

/*
 * Measuring TCP connections to other hosts, host/host_measured.h: the program that embeds the host
 * measures, and keeps the decisions. Before the host runs; all from the control thread.
 */
struct via_measured;
struct via_host_measuring {
    void *ctx;
    void (*changed)(void *ctx); /* a decision has come or gone; NULL */
    /* Starts the other end of a measurement by host `peer`, if it does not run already. 0 with
     * where it listens; -EAGAIN: ask again soon; -EBUSY: for another host; or why not. NULL: never.
     */
    int (*serve)(void *ctx, uint16_t peer, unsigned *ret_tcp_port, const char **ret_token);
};
void via_host_set_measuring(struct via_host *host, const struct via_host_measuring *calls);
/* The host to measure next: a neighbour over a kernel's network, without a decision that counts,
 * with an idle link. Or -ENOENT; to be asked again after some seconds. */
int via_host_measured_next(struct via_host *host);
/* Where this host's end of a measurement listens; NULL: it has no address. */
const char *via_host_first_address(const struct via_host *host);
/* The measurement of a host has ended: a failed one is repeated, later each time. */
void via_host_measured_ended(struct via_host *host, uint16_t id, bool failed);
/* The decision about a host as it was made, NULL: none; and one that was kept over a restart. */
const struct via_measured *via_host_measured_kept(const struct via_host *host, uint16_t id);
void via_host_measured_restore(struct via_host *host, uint16_t id,
                               const struct via_measured *measured);

/* From any thread, and from a signal handler. */
void via_host_stop(struct via_host *host);

/* Stops, joins, detaches all processes, removes the sockets. NULL is nothing. */
void via_host_close(struct via_host *host);

#endif
