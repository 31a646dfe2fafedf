/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Inside of a host.
 *
 *   host.c            open and close      host_control.c    the control thread
 *   host_transfer.c   transfer threads    host_cables.c     ports, links, messages to neighbours
 *   host_change.c     changes of options while it runs
 *   host_status.c     the status page     host_spin.c       how long to poll before sleeping
 *   host_wait.c       poll on, arm, sleep: pure
 *   host_reaper.c     frees memory of processes
 *   attach_server*.c  processes           board.c, host_board.c  notes, and how they travel
 *   control_rights.c  rights              tenant*.c         users: quotas, bells
 *   host_message.c    messages between hosts     host_identity.c  name, addresses, fabric
 *   host_aperture.c   slices of windows, at both ends    slice_table.c  which of them is used
 *   directory.c, host_directory.c    directory entries of hosts, and their announcement
 *   host_ids.c        ids that two hosts have
 *   hosts_page.c        addresses of hosts, for programs
 *   host_direct.c       direct connections of processes of neighbours to memory of this host
 *   host_measured.c     decisions whether pipes carry TCP connections to a host
 *   control_server.c    the control socket
 *   control_command.c, control_status.c    answers on the control socket
 *   control_remote.c    requests to and from other hosts
 *
 * Threads: everything belongs to the control thread, except struct via_transfer, fields whose
 * comments name another thread, and fields marked [any].
 */
#ifndef VIA_HOST_HOST_PRIVATE_H
#define VIA_HOST_HOST_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/log_limit.h"
#include "base/rng.h"
#include "core/node.h"
#include "host/attach_server.h"
#include "host/board.h"
#include "host/control_remote.h"
#include "host/control_server.h"
#include "host/host.h"
#include "host/host_aperture.h"
#include "host/host_board.h"
#include "host/host_direct.h"
#include "host/host_directory.h"
#include "host/host_identity.h"
#include "host/host_ids.h"
#include "host/host_measured.h"
#include "host/host_memory.h"
#include "host/host_message.h"
#include "host/host_reaper.h"
#include "host/host_source.h"
#include "host/host_transfer.h"
#include "host/link_text.h"
#include "host/rundir.h"
#include "host/tenant.h"
#include "host/tuning.h"
#include "port/bell.h"
#include "port/driver.h"

/* Hosts use the endpoints from here on; processes can neither open them nor send to them. */
#define VIA_HOST_ENDPOINT_FIRST 0xffffff00u
/* Only processes of the owner and of root have the endpoints from here up to
 * VIA_HOST_ENDPOINT_FIRST: a receiver knows that a message from one of them comes from such a
 * process. */
#define VIA_HOST_ENDPOINT_OWNERS 0xfffffe00u
#define VIA_HOST_ENDPOINT_BOARD 0xffffff00u
#define VIA_HOST_ENDPOINT_APERTURE 0xffffff01u
#define VIA_HOST_ENDPOINT_DIRECTORY 0xffffff02u
#define VIA_HOST_ENDPOINT_REMOTE 0xffffff03u
#define VIA_HOST_ENDPOINT_DIRECT 0xffffff04u

/* Owner bits (63..32) of a cookie: (generation << 16 | slot) of a process, or this: the host. */
#define VIA_HOST_OWNER 0xffffffffu
#define VIA_HOST_OWNER_MASK (UINT64_C(0xffffffff) << 32)

struct via_host_cable {
    struct via_host *host;
    struct via_host_source source;
    struct via_port *port; /* NULL: there is no link at this index */
    unsigned index;
    char name[VIA_FABRIC_NAME_BYTES_MAX + 1]; /* "" = none */
    uint16_t peer;                            /* or VIA_HOST_PEER_LEARNED */
    uint8_t dimension;
    bool direct; /* processes may map the peer's segments */
    struct via_link_config link;
    const struct via_tuning_link *tuned; /* NULL: nothing was measured for it */
    char *description;                   /* text of the options; owned */
    bool leaving;                        /* the port is being removed from the node */
    struct via_driver_host offer;        /* given to the driver; lives as long as the port */
    uint64_t deadline_ns;                /* of the driver's service() */
    enum via_link_state state_seen;      /* for the log */
    uint64_t error_seen;                 /* a hash of the text; 0 = none */
};

/* via_host_change() under way. */
struct via_host_changing {
    bool active;
    const struct via_host_change *change; /* the caller's */
    struct via_host_link *links;          /* to open after the leaving links are closed; owned, with
                                             their texts */
    unsigned links_count;
    uint64_t deadline_ns; /* latest time to open them */
};

/* Log messages that a user or a peer can cause at any rate; each kind has a limit for each user or
 * link. Ids with the same hash share a limit. */
enum via_host_warning {
    VIA_HOST_WARNS_REFUSED,   /* by uid */
    VIA_HOST_WARNS_VERSION,   /* by uid */
    VIA_HOST_WARNS_ATTACH,    /* by uid */
    VIA_HOST_WARNS_QUOTA,     /* by uid */
    VIA_HOST_WARNS_MEMORY,    /* by uid */
    VIA_HOST_WARNS_DETACHED,  /* by uid */
    VIA_HOST_WARNS_CONTROL,   /* by uid */
    VIA_HOST_WARNS_DIRECTORY, /* by host */
    VIA_HOST_WARNS_REMOTE,    /* by host */
    VIA_HOST_WARNS_FULL,      /* of all */
    VIA_HOST_WARNS_MAP,       /* by link */
    VIA_HOST_WARNS_LINK,      /* by link */
    VIA_HOST_WARNING_KINDS,
};
#define VIA_HOST_WARNING_SOURCES 64u

/* The state behind a host's word in the status page, to detect changes. */
struct via_host_peer {
    uint64_t edges; /* hash of the ups and downs of the links to it, and of the link in use */
    uint64_t edges_now;
    uint16_t generation;
    bool direct, slices;
};

struct via_host {
    /* Its pointers are NULL, except key: see cables and identity. */
    struct via_host_options options;
    struct via_host_identity identity;
    char listen[VIA_DRIVER_LISTEN_BYTES]; /* "" = the driver's default */
    struct via_rundir_path rundir;
    int lock_fd;
    struct via_rundir_path lock_path;

    struct via_node_config config;
    struct via_node *node;
    void *node_memory;
    size_t node_memory_bytes;
    uint32_t session;
    uint32_t protocol_version;
    uint64_t started_ns;

    /* struct via_bell, one per transfer thread: of the neighbours, and of processes of the owner
     * and root. */
    struct via_host_memory bells;
    struct via_tenants tenants;
    struct via_log_limit warnings[VIA_HOST_WARNING_KINDS][VIA_HOST_WARNING_SOURCES];
    uint64_t warnings_deadline_ns;
    bool warnings_suppressed; /* and not reported yet */
    struct via_host_memory status_memory;
    struct via_status_page *status;
    struct via_host_peer *peers; /* hosts_max */

    struct via_node_port_config *ports; /* links_max; config.ports */
    struct via_host_cable *cables;      /* links_max */
    unsigned cables_count;              /* entries from here on have no cable */
    unsigned links_max;
    json_t *links_failed; /* reasons of links that were not opened, as texts; NULL = none ever */
    struct via_host_changing changing;
    struct via_transfer transfers[VIA_CHANNELS_MAX];
    _Atomic uint64_t sync_target; /* [any] written by the control thread, see via_host_sync */

    int epoll_fd;
    struct via_host_source poke; /* eventfd */
    uint64_t now_ns;             /* of this turn of the control thread */
    uint64_t node_deadline_ns;
    bool node_due;               /* via_node_control has something to do */
    _Atomic bool node_requested; /* [any] the same, set by a transfer thread */
    bool changed;                /* the node has reported changed links or routes in this turn */
    struct via_list graveyard;   /* struct via_host_grave: freed at the end of the turn */
    struct via_reaper *reaper;
    _Atomic bool stopping; /* [any] */
    int loadavg_fd;        /* [any] for via_host_spin_is_crowded */
    unsigned cpus;

    struct via_attach_server attach;
    struct via_control_server control;
    void (*reload)(void *ctx); /* NULL: this host can not reload */
    void *reload_ctx;
    struct via_board board;
    uint32_t board_sessions[VIA_HOSTS_MAX]; /* last known sessions of the other hosts */
    struct via_host_messages messages;
    struct via_host_aperture aperture;
    struct via_host_direct direct;
    struct via_host_directory directory;
    struct via_host_ids ids;
    struct via_host_measured_all measured;
    struct via_control_remote remote;

    pthread_t thread; /* of via_host_start */
    bool thread_started;
};

uint64_t via_host_now_ns(void);

/* --- host_control.c --- */
int via_host_control_open(struct via_host *host, struct via_error *err);

/* Number of flows to a host, on one channel, that users share: all but flow 0. */
static inline uint32_t via_host_flows_shared(const struct via_host *host)
{
    return via_min(host->config.flows_count - 1, VIA_FLOWS_SHARED_MAX);
}
void via_host_control_loop(struct via_host *host);
/* Serves cables and node; returns the next deadline. */
uint64_t via_host_fabric_tick(struct via_host *host);
void via_host_control_close(struct via_host *host);
void via_host_poke(struct via_host *host);            /* [any] wakes the control thread */
void via_host_control_request(struct via_host *host); /* [any] ... for via_node_control */

/*
 * Grace periods: when via_host_is_synced(host, via_host_sync(host)), every transfer thread has
 * begun a turn after the call of via_host_sync(), and each thread that serves direct connections
 * has begun one since or is outside of a turn. So no thread uses an entry that was removed from the
 * shared tables before that call.
 */
uint64_t via_host_sync(struct via_host *host);
bool via_host_is_synced(const struct via_host *host, uint64_t target);

/* --- host_cables.c --- */
/* The expected neighbour, or else the last host that has answered; -1 = not known. */
int via_host_cable_peer(const struct via_host_cable *cable);
/* For messages: "link 3 (rack2) to host 7". */
struct via_host_cable_text {
    char text[96];
};
/* Size of bodies from which on DMA moves them on links without a measurement; 0: no DMA. */
uint32_t via_host_dma_default(const struct via_host *host);
struct via_host_cable_text via_host_cable_describe(const struct via_host_cable *cable);
/* Sends a message to the host at the other end; as via_driver.request. */
int via_host_cable_send(struct via_host_cable *cable, const void *msg, size_t len, const int *fds,
                        unsigned nfds);
int via_host_cables_open(struct via_host *host, const struct via_host_options *options,
                         struct via_error *err);
void via_host_cables_close(struct via_host *host);
uint64_t via_host_cables_tick(struct via_host *host); /* serves due cables; next deadline */
/* The cable over which processes may map memory of host `peer` now; NULL: none. */
struct via_host_cable *via_host_cables_direct(struct via_host *host, uint16_t peer);
/* Numeric addresses of a link to the peer (if `peer` is this host: to any host) over which
 * processes may make direct connections: 0, or -EXDEV. All links to the peer that are up must allow
 * them. */
int via_host_cables_tcp(struct via_host *host, uint16_t peer, char *ret_local, char *ret_peer,
                        size_t bytes);
/* Opens a link at a free index. -ENOSPC: the maximum of links is reached. */
int via_host_cable_open(struct via_host *host, const struct via_host_link *link,
                        struct via_error *err);
/* Logs why a link was not opened, and keeps the text for the status. */
void via_host_cable_failed(struct via_host *host, const char *why);
/* Removes a link, in steps: 0, or -EAGAIN: call again after the next turn. */
int via_host_cable_leave(struct via_host_cable *cable);
/* Cuts or mends the links to a peer (index < 0: all), and notifies the node. Returns the number of
 * links; -ENOENT. */
int via_host_cables_cut(struct via_host *host, uint16_t peer, int index, bool cut);
void via_host_cables_changed(struct via_host *host); /* logs the new states of the links */
/* Messages about links with this source of warnings were suppressed, perhaps the last ones: logs
 * the present state of each link. */
void via_host_cables_log_states(struct via_host *host, uint32_t source);

/* Between hosts over a cable: which segments may be mapped. */
enum via_cable_type {
    VIA_CABLE_MAP = 1,        /* id, handle */
    VIA_CABLE_MAP_ANSWER = 2, /* id, status, bytes, life; fds as of VIA_ATTACH_MAP */
};
#define VIA_CABLE_MAGIC 0x56494143u
struct via_cable_message {
    uint32_t magic;
    uint16_t type;
    uint16_t reserved;
    uint32_t id;
    int32_t status;
    uint64_t handle;
    uint64_t bytes;
    uint64_t life;
};

/* --- host_change.c --- */
uint64_t via_host_change_tick(struct via_host *host);
void via_host_change_close(struct via_host *host);

/* --- host_status.c --- */
int via_host_status_open(struct via_host *host, struct via_error *err);
void via_host_status_update(struct via_host *host);

/* --- host_warning.c --- [control] */
#define via_host_log(host, kind, source, level, ...)                                   \
    do {                                                                               \
        struct via_log_limit *limit_ =                                                 \
            via_log_enabled(level) ? via_host_warning_take(host, kind, source) : NULL; \
        if (limit_ != NULL)                                                            \
            via_log_limit_write(limit_, level, __FILE__, __LINE__, __VA_ARGS__);       \
    } while (0)
#define via_host_warn(host, kind, source, ...) \
    via_host_log(host, kind, source, VIA_LOG_WARN, __VA_ARGS__)
struct via_log_limit *via_host_warning_take(struct via_host *host, enum via_host_warning kind,
                                            uint32_t source);
uint64_t via_host_warnings_tick(struct via_host *host);

/* --- host_env.c: callbacks of the node --- */
void via_host_env_init(struct via_host *host, struct via_node_env *ret_env);

#endif
