/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_ATTACH_SERVER_H
#define VIA_HOST_ATTACH_SERVER_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "core/node.h"
#include "core/pipe.h"
#include "host/attach_wire.h"
#include "host/host_listener.h"
#include "host/host_memory.h"
#include "host/host_reaper.h"
#include "host/host_transfer.h"
#include "host/rundir.h"

/*
 * The processes attached to a host.
 *
 *   attach_server.c          listening, rights, requests and answers
 *   attach_server_process.c  a process attaches; a process ends
 *   attach_server_segment.c  its memory, and memory of other processes that it maps
 *   attach_server_endpoint.c its endpoints, to which messages are sent
 *   attach_server_channel.c  its pipes, in the transfer thread
 *   attach_server_command.c  its commands, in the transfer thread
 *   attach_server_reply.c    replies to it, in the transfer thread
 *   attach_server_kept.c     puts that it kept for direct connections, when it has ended
 *   attach_server_park.c     its commands for hosts that are cut off, in the transfer thread
 */
struct via_host;
struct via_host_slices;
struct via_host_slice_users;

#define VIA_ATTACH_SLOTS 256u
#define VIA_ATTACH_COMMAND_DATA_BYTES (512u << 10)
#define VIA_ATTACH_REPLY_DATA_BYTES (256u << 10)
#define VIA_ATTACH_BODY_BYTES_MAX (32u << 10)
#define VIA_ATTACH_REQUESTS_MAX 64u /* of one process, for answers of another host */
#define VIA_ATTACH_REQUESTS_ALL 4096u
#define VIA_ATTACH_SEGMENTS_MAX 1024u
#define VIA_ATTACH_BLOCKED_MAX 64u
/* Limits of one process on one channel, so that a process whose commands wait for an unreachable
 * host leaves resources to other processes: commands under way, bounce buffers for gets without a
 * segment, barriers (VIA_ATTACH_MEMBERS). */
#define VIA_ATTACH_RUNNING_MAX 32u
#define VIA_ATTACH_BOUNCES 4u
/* Gets of a few bytes have buffers for all commands under way and for some parked ones. */
#define VIA_ATTACH_SMALL_BOUNCES 60u
#define VIA_ATTACH_SMALL_BYTES 64u
/* Commands that were taken out of the pipe because no link leads to their host: the limit of a
 * process, with at most the bytes of a pipe, and the limit of all processes. */
#define VIA_ATTACH_PARKED_MAX 256u
#define VIA_ATTACH_PARKED_ALL 1024u
#define VIA_ATTACH_MEMBERS 4u
/* Time for finishing accepted commands of a dead process. */
#define VIA_ATTACH_DRAIN_NS VIA_SEC_NS
/* Before that: time for neighbours to report how many of its kept puts they have applied. */
#define VIA_ATTACH_KEPT_NS (5 * VIA_SEC_NS)
/* Time for its commands to hosts to which no link leads; only a part of the processes has it. */
#define VIA_ATTACH_STRANDED_NS (60 * VIA_SEC_NS)
#define VIA_ATTACH_STRANDED_PART 4u
/* Time in which a neighbour answers whether its memory may be mapped. */
#define VIA_ATTACH_MAP_NS (2 * VIA_SEC_NS)

/* --- of a transfer thread --------------------------------------------------------------------- */

enum via_command_state {
    VIA_COMMAND_FREE = 0,
    VIA_COMMAND_RUNNING, /* the node has it */
    VIA_COMMAND_DUE,     /* ended; its reply has not been sent */
    VIA_COMMAND_OVER,    /* its record can be released, once all earlier ones are over */
};

/* A command taken from the pipe. Its record stays unreleased, so each record has one slot, whose
 * index follows from the record's sequence number. */
struct via_command_slot {
    uint64_t cookie; /* chosen by the process */
    uint64_t value;
    int32_t status;
    uint8_t state;   /* enum via_command_state */
    bool is_data;    /* reply DATA: a get into a bounce buffer */
    int16_t bounce;  /* index, or -1 */
    int16_t members; /* index, or -1 */
    uint32_t bytes;
    uint16_t destination;
    struct via_host_segment *segment; /* that contains the payload: one count of its `borrowed` */
    unsigned char *copy;              /* parked: the payload, copied from the pipe */
};

/* A flow whose message the process had no room for. */
struct via_blocked_flow {
    uint16_t source;
    uint16_t flow;
};

struct via_process;

/* The pipes of a process on one channel. Belongs to the channel's transfer thread from the `add`
 * mail to `via_process_channel_is_gone`. */
struct via_process_channel {
    struct via_process *process;
    struct via_list link; /* active or idle */
    struct via_list touched_link;
    struct via_list starved_link;
    struct via_mail add;
    struct via_mail end; /* the process has ended: finish the commands in the pipe */
    struct via_mail
        strand; /* ... give up all commands, unless all are for hosts that are cut off */
    struct via_mail cancel; /* ... give up all commands */
    struct via_pipe_reader commands;
    struct via_pipe_writer replies;
    uint32_t *data_ends; /* of replies */
    /* One slot for each record of the pipe, then VIA_ATTACH_PARKED_MAX slots of parked commands. */
    struct via_command_slot *slots;
    uint32_t *due; /* ring of slots whose replies are to be sent, in order of completion */
    uint32_t due_head, due_count;
    struct via_pipe_record stash; /* taken, and not accepted by the node yet */
    uint32_t stash_index;
    uint32_t over_next; /* sequence number of the oldest unreleased record */
    uint32_t running_count;
    uint32_t parked_count;
    uint32_t parked_bytes;
    uint32_t empty_polls;
    /* Buffers for gets without a segment (VIA_ATTACH_BOUNCES of replies.geometry.body_bytes_max
     * bytes, then the small ones), and for the members of barriers (hosts_max each). A set bit
     * marks a free buffer. */
    unsigned char *bounces;
    uint16_t *members;
    uint64_t bounces_free;
    uint32_t members_free;
    struct via_blocked_flow blocked[VIA_ATTACH_BLOCKED_MAX];
    unsigned blocked_count; /* more than VIA_ATTACH_BLOCKED_MAX: not all are in `blocked` */
    bool stashed;
    bool held; /* the limit of commands under way is reached: one must end first */
    bool sent; /* replies were sent in this turn */
    bool ring; /* ring the process at the end of the turn, also if nothing was sent */
    bool ending;
    bool keeps; /* ending: some kept puts of the process wait for room in the node */
    bool cancelled;
    bool gone;
    bool broken; /* the process broke the rules of the pipe */
};

/* -ENOMEM; via_process_channel_fini() frees the part that was made. */
int via_process_channel_init(struct via_process *process, uint32_t index);
void via_process_channel_fini(struct via_process_channel *pc);

/* Called in a turn of the transfer thread, for all its process channels, in this order: */
void via_process_channels_rearm(struct via_transfer *transfer); /* if the bell has rung */
unsigned via_process_channels_serve(struct via_transfer *transfer);
/* (the thread polls the node) */
unsigned via_process_channels_feed(struct via_transfer *transfer);
void via_process_channels_flush(struct via_transfer *transfer);
/* Before the thread sleeps: arms all and checks them again. True: there is something to do. */
bool via_process_channels_arm(struct via_transfer *transfer);

/* Takes commands from the pipe; returns their number. */
unsigned via_process_channel_serve(struct via_transfer *transfer, struct via_process_channel *pc);
/* True if the process has sent a command. The cheapest check. */
bool via_process_channel_is_ready(const struct via_process_channel *pc);
/* An operation of the process has ended. */
void via_process_channel_complete(struct via_transfer *transfer, struct via_process_channel *pc,
                                  uint32_t index, int status, uint64_t value);
/* A command has ended that the node never had. */
void via_process_channel_finish(struct via_transfer *transfer, struct via_process_channel *pc,
                                uint32_t index, int status, uint64_t value);
/* Frees the slot of a command whose reply has been sent, or that needs no reply. */
void via_process_channel_over(struct via_transfer *transfer, struct via_process_channel *pc,
                              struct via_command_slot *slot);
/* Mask of the slots of the command pipe: sequence number & mask is the index of a slot. */
static inline uint32_t via_process_channel_slot_mask(const struct via_process_channel *pc)
{
    return pc->commands.geometry.slots_count - 1;
}
/* Maximum of replies that are due at a time: a power of two. */
static inline uint32_t via_process_channel_due_max(uint32_t slots_count)
{
    return 2 * (slots_count > VIA_ATTACH_PARKED_MAX ? slots_count : VIA_ATTACH_PARKED_MAX);
}
/* If commands for a host that is cut off hold up the commands behind them, parks them. */
bool via_process_channel_is_stuck(const struct via_process_channel *pc);
void via_process_channel_park(struct via_transfer *transfer, struct via_process_channel *pc);
/* [ending] Submits a put of the process that is not one of its commands, with its bytes in this
 * segment. As via_node_submit(); fills in flow and cookie. */
int via_process_channel_put(struct via_transfer *transfer, struct via_process_channel *pc,
                            struct via_host_segment *segment, struct via_op *op);
/* [ending] Submits puts that the process has kept. False: some are left, because the node has no
 * room. */
bool via_process_channel_put_kept(struct via_transfer *transfer, struct via_process_channel *pc);
/* A command begins: returns its flow. A command has ended. */
uint16_t via_process_channel_begin_flow(const struct via_transfer *transfer,
                                        struct via_process_channel *pc, uint16_t destination,
                                        uint16_t flow);
void via_process_channel_end_flow(const struct via_transfer *transfer,
                                  struct via_process_channel *pc, uint16_t destination);
/* A parked command has ended. */
void via_process_channel_unpark(struct via_transfer *transfer, struct via_process_channel *pc);
/* True if all commands under way are for hosts that are cut off. */
bool via_process_channel_is_stranded(const struct via_process_channel *pc);
/* Arms the pipe, which the thread then polls only after a ring. */
void via_process_channel_arm(struct via_process_channel *pc);
/* Sends replies, releases commands, rings. */
void via_process_channel_flush(struct via_transfer *transfer, struct via_process_channel *pc);
/* A message for an endpoint of the process: see via_node_env.deliver. */
int via_process_channel_deliver(struct via_transfer *transfer, struct via_process_channel *pc,
                                const struct via_delivery *delivery);
/* There may be room in the reply pipe again: sends replies and resumes blocked flows. False: there
 * is still no room. */
bool via_process_channel_feed(struct via_transfer *transfer, struct via_process_channel *pc);
/* The buffer of a get without a segment; frees that buffer. */
unsigned char *via_process_channel_bounce(const struct via_process_channel *pc,
                                          const struct via_command_slot *slot);
void via_process_channel_unbounce(struct via_process_channel *pc, struct via_command_slot *slot);
void via_process_channel_touch(struct via_transfer *transfer, struct via_process_channel *pc);
void via_process_channel_resume(struct via_transfer *transfer, struct via_process_channel *pc);
void via_process_channel_break(struct via_process_channel *pc);
/* Notifies the control thread when a process that has ended has nothing left on this channel. */
void via_process_channel_check_gone(struct via_transfer *transfer, struct via_process_channel *pc);
/* Handlers of the mails. */
void via_process_channel_added(struct via_transfer *transfer, struct via_mail *mail);
void via_process_channel_ending(struct via_transfer *transfer, struct via_mail *mail);
void via_process_channel_stranded(struct via_transfer *transfer, struct via_mail *mail);
void via_process_channel_cancelled(struct via_transfer *transfer, struct via_mail *mail);

/* --- of the control thread -------------------------------------------------------------------- */

/* Memory that a process has registered. Transfer threads read the pointer to it in
 * via_attach_server.segments; after the pointer was removed, the segment lives for a grace
 * period. */
struct via_host_segment {
    struct via_list link; /* of the process, or via_attach_server.lingering or .removed */
    struct via_process *process;
    struct via_host_memory memory;
    uint64_t handle;
    uint64_t life; /* value of its word in the life page while it may be accessed */
    uint32_t access;
    struct via_tenant *tenant; /* against whose quota it counts; held */
    bool charge_removed;       /* it counts as removed, see via_tenant */
    struct via_reap reap;
    _Atomic uint32_t borrowed; /* [any] commands under way with payload in this segment */
    uint64_t sync;             /* removed: the grace period to wait for */
    uint64_t lingers_ns;       /* lingering: since when */
};

/* A request that another host must answer. */
struct via_attach_pending {
    struct via_list link; /* of the server */
    struct via_host *host;
    struct via_process *process; /* NULL: the process has ended; the request still counts */
    struct via_tenant *tenant;   /* held */
    uint32_t request_id;         /* of the process */
    uint16_t type;
    uint32_t id; /* chosen by this host, in the message to the peer */
    uint16_t peer;
    uint64_t deadline_ns;
    struct via_host_slices *slices; /* SLICE: the table with the slice that it waits for */
    uint32_t slice;
};

enum via_process_state {
    VIA_PROCESS_STRANGER, /* connected, has not sent HELLO */
    VIA_PROCESS_REFUSED,  /* may not attach; the answer to its HELLO is the refusal */
    VIA_PROCESS_ATTACHED,
    VIA_PROCESS_DRAINING, /* has ended; transfer threads finish or give up its commands */
    VIA_PROCESS_SYNCING,  /* its grace period: transfer threads may still use it */
};

struct via_process_kept;

struct via_process {
    struct via_host *host;
    struct via_host_source source; /* its socket */
    struct via_reap reap;
    int reap_fds[2];
    struct via_list link; /* of one list of the server, by state */
    enum via_process_state state;
    uint32_t slot;
    uint32_t flow;  /* its preferred flow: by its slot, or that of the process it follows */
    uint64_t order; /* names this flow and flows_tenant in WELCOME and HELLO; a secret */
    struct via_tenant *flows_tenant; /* whose flows its commands use; held while attached */
    uint32_t number;                 /* generation << 16 | slot: owner bits of its cookies */
    pid_t pid;
    uid_t uid;
    struct via_tenant *tenant; /* attached; held */
    char comm[16];
    int bell_fd;         /* eventfd; [any] while attached */
    unsigned fds_unread; /* descriptors in answers that it may not have received */
    struct via_host_memory memory;
    struct via_list segments;
    uint32_t segments_count;
    uint64_t segments_bytes;
    uint32_t pending_count;
    uint64_t deadline_ns; /* stranger: for its HELLO; draining: commands are given up */
    uint64_t sync;
    bool late;     /* its puts may arrive after its end */
    bool stranded; /* late, and its puts wait for a link */
    bool cancelled;
    bool
        queries; /* draining: waits for neighbours to report how many kept puts they have applied */
    struct via_process_kept *kept;       /* owned; of transfer threads while channels end */
    _Atomic uint32_t channels_left;      /* [any] transfer threads that still use it */
    _Atomic bool broken;                 /* [any] it broke the rules of a pipe */
    uint64_t posted[VIA_HOSTS_MAX / 64]; /* hosts on whose boards it may have notes */
    uint32_t channels_count;
    uint32_t channel_first; /* of commands to host 0; host 1 has the next channel, and so on */
    struct via_process_channel *channels;     /* NULL before HELLO */
    struct via_host_slice_users *slice_users; /* owned; NULL: it has none yet */
};

struct via_endpoint {
    uint32_t number; /* 0 = free */
    struct via_process *process;
};

/* Transfer threads read it. It is never changed: a change makes a new table. */
struct via_endpoint_table {
    struct via_list retired;
    uint64_t sync;
    uint32_t count;
    uint32_t mask; /* entries - 1; at most half are used */
    struct via_endpoint entries[];
};

struct via_attach_server {
    struct via_host *host;
    struct via_host_listener listener;
    struct via_list processes; /* attached */
    struct via_list strangers; /* connected, refused; oldest first */
    struct via_list closing;   /* draining, syncing */
    uint32_t processes_count;
    uint32_t strangers_count;
    uint32_t closing_count;
    uint64_t rings_count; /* rings of processes, because status words have changed */
    uint64_t changed[VIA_ATTACH_INTEREST_WORDS]; /* hosts with changed status words since the last
                                                    ring */
    uint64_t ringing[VIA_ATTACH_INTEREST_WORDS]; /* changed words for which the host rings processes
                                                    now */
    uint32_t
        to_ring_count; /* number of first entries of `processes` that the host has not rung yet */
    uint32_t stranded_count;
    uint64_t lingering_bytes;
    struct via_process **by_slot; /* processes_max; NULL = free */
    uint32_t *generations;
    uint32_t slot_next;
    struct via_pipe_geometry command;
    struct via_pipe_geometry reply;
    uint32_t area_bytes;
    uint32_t message_bytes_max;

    _Atomic(struct via_host_segment *) *segments; /* [any] by index of the handle */
    struct via_host_memory life_memory;
    _Atomic uint64_t *lives; /* the life page: [any] by index of the handle */
    uint64_t life_last;
    struct via_list lingering; /* segments of ended processes that peers may read, oldest first */
    struct via_list removed;   /* segments to unmap once no command uses them */
    _Atomic(struct via_endpoint_table *) endpoints; /* [any] */
    struct via_list retired;                        /* tables that a thread may still read */
    struct via_list pending;                        /* struct via_attach_pending */
    uint32_t pending_count;
    uint32_t pending_id_next;
    _Atomic bool
        has_broken; /* [any] a process broke the rules, or a transfer thread has finished with it */

    uint64_t attached_count, refused_count, died_count;
    uint64_t maps_count, maps_refused_count;
};

/* init: before the transfer threads start. listen: when all other parts of the host are ready. */
int via_attach_server_init(struct via_host *host, struct via_error *err);
int via_attach_server_listen(struct via_host *host, struct via_error *err);
/* After the transfer threads have ended. */
void via_attach_server_close(struct via_host *host);
/* Handles time-outs and reports of transfer threads; returns the next deadline. */
uint64_t via_attach_server_tick(struct via_host *host);
/* Links or routes have changed: rings processes that watch them, fails requests to hosts that can
 * not answer. */
void via_attach_server_changed(struct via_host *host);

void via_attach_server_answer_init(const struct via_host *host,
                                   const struct via_attach_request *request,
                                   struct via_attach_answer *ret_answer);
/* fds are borrowed. */
void via_attach_server_answer(struct via_process *process, const struct via_attach_answer *answer,
                              const int *fds, unsigned fds_count);
void via_attach_server_answer_status(struct via_process *process,
                                     const struct via_attach_request *request, int status);
/* Answers with a refusal and its reason as text. */
void via_attach_server_refuse(struct via_process *process, const struct via_attach_request *request,
                              int status, const char *why);

/* attach_server_process.c. leave: the connection has ended; frees the process at once, or when its
 * commands have ended and its grace period is over. */
struct via_process *via_process_new(struct via_host *host, int fd, const struct ucred *peer);
int via_process_attach(struct via_process *process, const struct via_attach_request *request,
                       struct via_error *err);
void via_process_leave(struct via_process *process);
uint64_t via_process_tick(struct via_host *host);
void via_process_free_all(struct via_host *host);

/* attach_server_kept.c. note: an attached process keeps puts to `host` in this segment, which it
 * owns. 0, -ENOMEM. */
int via_process_kept_note(struct via_process *process, uint16_t host, uint64_t handle);
/* begin: the process has ended; true if it has kept puts. tick: queries each neighbour how
 * much it has applied; returns when to call tick again, or 0 when all have answered. give_up: drops
 * the puts to the neighbours that have not answered. */
bool via_process_kept_begin(struct via_process *process);
uint64_t via_process_kept_tick(struct via_process *process);
void via_process_kept_answered(struct via_process *process, uint16_t host,
                               const struct via_attach_answer *answer);
void via_process_kept_give_up(struct via_process *process);
void via_process_kept_free(struct via_process *process);

/* attach_server_segment.c. add and map: 0 = answered, or will be answered; else the status for the
 * answer. add owns fds[0] if it succeeds. */
int via_segment_add_for(struct via_process *process, const struct via_attach_request *request,
                        int *fds, unsigned fds_count);
int via_segment_remove_for(struct via_process *process, uint64_t handle);
/* The segment of this process, or NULL. */
struct via_host_segment *via_segment_find_own(const struct via_process *process, uint64_t handle);
int via_segment_map_for(struct via_process *process, const struct via_attach_request *request);
/* Finds a segment that may be exposed to another host, and counts refusals. 0, -EACCES, -EXDEV
 * (peers may not both read and write it). */
int via_segment_find_exposable(struct via_host *host, uint64_t handle,
                               const struct via_host_segment **ret_segment);
uint64_t via_segment_reap(struct via_host *host);
void via_segment_free_all(struct via_host *host);
void via_segment_leave_all_for(struct via_process *process);
void via_segment_retire_all_for(struct via_process *process);
void via_segment_forget_all_for(struct via_process *process);
bool via_segment_is_all_idle_for(const struct via_process *process);
void via_segment_free_all_for(struct via_process *process);

/* attach_server_pending.c. send_request: 0 = the answer follows, else the status of the
 * answer. */
struct via_host_cable;
struct via_cable_message;
int via_attach_server_send_request(struct via_process *process,
                                   const struct via_attach_request *request, uint64_t timeout_ns);
/* content->type: the type of the answered request. */
void via_attach_server_answered(struct via_host *host, uint32_t id, uint16_t peer,
                                const struct via_attach_answer *content, const int *fds,
                                unsigned fds_count);
void via_attach_server_pending_drop(struct via_process *process);
void via_attach_server_pending_free(struct via_host *host);
void via_attach_server_links_changed(struct via_host *host);
uint64_t via_attach_server_pending_tick(struct via_host *host);
void via_attach_server_map_requested(struct via_host_cable *cable,
                                     const struct via_cable_message *message);
void via_attach_server_map_answered(struct via_host_cable *cable,
                                    const struct via_cable_message *message, int *fds,
                                    unsigned nfds);

/* attach_server_endpoint.c. 0 or negative errno. */
int via_endpoint_open_for(struct via_process *process, uint32_t number);
int via_endpoint_close_for(struct via_process *process, uint32_t number);
int via_endpoint_close_all_for(struct via_process *process);
/* [any] NULL if no process has this endpoint. */
const struct via_endpoint *via_endpoint_find(const struct via_endpoint_table *table,
                                             uint32_t number);
/* A table with room for count + 1; NULL: out of memory. */
struct via_endpoint_table *via_endpoint_table_new(uint32_t count);
void via_endpoint_tables_reap(struct via_host *host);
void via_endpoint_tables_free(struct via_attach_server *server);

#endif
