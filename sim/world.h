/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The world: hosts, links, time, and what is known about every operation. One thread; all of it is
 * decided by the seed. Files:
 *   world.c     builds it, runs its events            topology.c  which hosts are linked
 *   posted.c    posted writes under way                link.c      ports: doorbells, scratchpads
 *   engine.c    DMA engines                            chip.c      ports that are a driver's
 *   fault.c     cuts, freezes, crashes                 rogue.c     hosts that write garbage
 *   host.c      nodes and their transfer threads       work.c      operations
 *   check.c     deliveries and completions             region.c    what segments must hold
 *   credit.c    room in pipes
 *   barrier.c   groups and their rounds                final.c     the end: all done, all right
 *   limit.c     none outstanding for too long
 *   trace.c     all of it in words
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/rng.h"
#include "base/types.h"
#include "core/node.h"
#include "host/host_wait.h"
#include "sim/chip.h"
#include "sim/clock.h"
#include "sim/config.h"
#include "sim/guest.h"
#include "sim/plant.h"

#define SIM_DRAFT_BYTES 2048u
#define SIM_OWNERS 4u /* operations belong to one of these owners, for cancel */

struct sim_world;

/* --- links ----------------------------------------------------------------------------------- */

/* One posted write under way. */
struct sim_flight {
    struct sim_flight *next;
    uint64_t off;
    uint64_t arrive_ns;
    uint64_t number; /* sim_end.posted_count when it was posted */
    uint32_t bytes;
    bool flushed;
    bool is_body;  /* may be seen before what was posted before it */
    bool by_audit; /* no turn has requested it: two audits must not keep each other going */
    unsigned char data[];
};

/* A write-combining buffer: a line of which some bytes were stored. */
struct sim_wc_buffer {
    uint64_t line_off;
    uint64_t mask; /* bit per byte; 0 = free */
    unsigned char data[VIA_RECORD_LINE_BYTES];
};

/* The posted writes of one queue of a port: first in, first out. */
struct sim_lane {
    struct sim_flight *head, *tail;
    struct sim_wc_buffer *wc; /* owned, SIM_WC_BUFFERS_MAX; NULL if the window does not combine */
};

enum sim_fence_state {
    SIM_FENCE_NONE = 0,
    SIM_FENCE_OUT,  /* on its way to the peer, behind the queue's writes */
    SIM_FENCE_BACK, /* on its way back, behind the peer's writes */
    SIM_FENCE_DONE, /* not taken yet */
};

/* A queue's fence (fence.c). */
struct sim_fence {
    enum sim_fence_state state;
    uint32_t number; /* of the fence; events with another number are void */
    uint32_t era;    /* of the link when the fence started */
    uint64_t mark; /* writes with lower numbers arrive before it: of the queue, then of the peer */
    uint64_t there_ns, back_ns;
};

/* One end of a link: a port. */
struct sim_end {
    struct via_port port; /* first */
    struct sim_world *world;
    struct sim_link *link;
    struct sim_end *peer;
    uint32_t host;                          /* index of the host it belongs to */
    uint32_t index;                         /* of the port in that host */
    struct sim_lane lanes[VIA_PORT_QUEUES]; /* leaving from here */
    uint64_t posted_count;                  /* for all of them */
    struct sim_fence fences[VIA_PORT_QUEUES];
    uint64_t events;
    uint32_t bells_coming[VIA_PORT_DOORBELLS]; /* under way to this end */
    unsigned char *inbox;
    int inbox_fd;       /* direct links: the memory of inbox, else -1 */
    uint64_t notice_ns; /* of the last change, when the host learns of it */
    /* Its engine (engine.c). */
    struct sim_engine_dma *dmas; /* owned; not taken yet, in the order they were started */
    uint32_t dmas_count, dma_next_number;
    uint64_t dma_last_ns;  /* end of the last DMA */
    uint64_t dmas_refused; /* failed by -EIO, in this life: at the start or later */
    uint64_t dmas_good;    /* taken with result 0, in this life of the host */
    uint32_t data_heads[VIA_CHANNELS_MAX + 1]; /* by pipe: behind the last body published */
    uint64_t *shown;     /* owned; trace of direct links: the words of records that were reported */
    size_t window_bytes; /* as mapped */
};

struct sim_link {
    struct sim_end end[2];
    uint32_t index;
    uint32_t era; /* counts cuts and repairs; whatever was under way in another era is lost */
    bool up;
    bool direct;
    bool combines;           /* its windows are write-combining */
    bool has_chip;           /* its ports belong to world->chips */
    void *chip;              /* owned by world->chips */
    uint64_t blind_until_ns; /* it is down, and the ports do not report it yet */
    uint32_t scratchpad[VIA_PORT_SCRATCHPADS];
};

/* --- hosts ----------------------------------------------------------------------------------- */

struct sim_resume {
    struct via_list member;
    uint32_t flow; /* index of the struct sim_flow */
};

struct sim_thread {
    struct sim_host *host;
    uint8_t channel;
    bool asleep;
    bool wakes_control; /* sleeps briefly: arming failed (host/host_wait.h) */
    bool fencing;       /* its last turn has armed, but for fences under way */
    struct via_host_wait wait;
    uint64_t spent_ns; /* waits in this turn, for reads across a bus, or for room in the port */
    uint64_t busy_until_ns; /* its last turn lasts until then */
    bool interrupted;       /* asleep, but about to run */
    uint32_t rings;         /* of its bell */
    bool running, again;    /* in its turn; and has been woken meanwhile */
    bool completed;         /* an operation ended in this turn: there may be room for another */
    uint32_t ticket;        /* of the current turn; older turns in the queue are void */
    uint64_t turn_ns;       /* time of that turn; UINT64_MAX = none */
    uint32_t idle_turns;    /* turns in a row that did nothing and were not allowed to sleep */
    uint64_t ran_ns;        /* its last turn */
    bool audit_due;
    bool in_submit;
    uint32_t work_wanted;
    uint32_t owners_given_up;         /* bit per owner */
    uint32_t sessions[SIM_HOSTS_MAX]; /* of each host, as its last turn knew it */
    struct sim_op *held;              /* submit returned -EAGAIN: to be repeated first */
    struct via_list resumes;          /* struct sim_resume */
    uint64_t barriers_wanted;         /* bit per index of world.groups */
    uint64_t barriers_given_up;
};

/* Words of a flow in its destination's segment, behind the regions. */
struct sim_flow_words {
    uint64_t signal_set; /* number of the last put with signal */
    uint64_t signal_sum;
    uint64_t atomic64;
    uint32_t atomic32;
    uint32_t guard; /* stays 0 */
    uint64_t unused[4];
};

/* State of one life of a host. */
struct sim_life {
    uint64_t start_ns;
    uint64_t born;   /* as in struct via_node_config */
    uint32_t number; /* 1 is the first of a host */
    uint32_t session;
    uint64_t mail, library, draft; /* handles */
    unsigned char *mail_data, *library_data, *draft_data;
    bool draft_removed;    /* then draft_data is NULL as soon as no operation uses it */
    unsigned char *expect; /* expected content of mail_data, where known */
    unsigned char *known;
    uint32_t mail_bytes, library_bytes;
    uint64_t library_seed;
    uint64_t adds_done, adds_unknown; /* added to the shared counter */
    unsigned char *adds_seen;         /* old values returned */
    uint64_t notifies, notifies_done, notifies_unknown;
    uint64_t refused_key, refused_range, refused_endpoint; /* as requesters see them */
};

struct sim_host {
    struct sim_world *world;
    uint32_t index;
    uint16_t id;
    bool alive;
    bool removal_wanted;      /* of the draft */
    bool ending, ended;       /* by via_node_fini: any later callback is a failure */
    uint32_t notices_coming;  /* links that changed, not yet reported */
    uint64_t noticed_ns;      /* time of the last turn */
    uint64_t thaw_ns;         /* frozen until then */
    uint64_t clock_offset_ns; /* offset of its clock: hosts disagree about the time */
    void *memory;
    struct via_node *node; /* NULL when not alive */
    uint32_t ports_count;
    struct sim_end *ports[SIM_PORTS_MAX];
    struct via_node_port_config port_configs[SIM_PORTS_MAX];
    struct sim_thread threads[VIA_CHANNELS_MAX];
    struct sim_life life;
    uint32_t announced[SIM_HOSTS_MAX]; /* session of each host in the announcement that it has */
    uint32_t rogue_life;     /* number of the last life that went on as a rogue, 0 = none */
    uint32_t rogue_session;  /* of that life */
    struct via_list watched; /* struct sim_op.watched: must be visible as a whole or not at all */
};

/* --- operations ------------------------------------------------------------------------------ */

enum sim_wrong {
    SIM_RIGHT = 0,
    SIM_WRONG_KEY,
    SIM_WRONG_RANGE,
    SIM_WRONG_ENDPOINT,
    SIM_WRONG_ACCESS, /* writes to a read-only segment */
    SIM_WRONG_DRAFT,  /* in a segment that is removed at some time: valid until then */
};

enum sim_op_state {
    SIM_OP_NEW = 0, /* not accepted yet */
    SIM_OP_PENDING,
    SIM_OP_DONE,
    SIM_OP_ORPHAN, /* its host crashed */
};

struct sim_op {
    uint32_t index;        /* its cookie's low half */
    uint32_t number;       /* within its flow, over all lives */
    struct sim_flow *flow; /* NULL for barriers */
    uint8_t kind;          /* enum via_op_kind */
    uint8_t state;
    uint8_t wrong;
    uint8_t atomic;
    uint8_t flags;
    uint8_t owner; /* the high half of its cookie */
    uint8_t channel;
    bool delivered;
    bool draft_removed; /* time of submit */
    bool stale_route;   /* at submit the source did not know the destination's current life */
    bool dead_handle;   /* at submit the destination was down: its next life has other handles */
    bool shared_counter;
    bool cancelled;
    int status;
    uint32_t source_life, destination_life;
    uint32_t source; /* host index */
    uint32_t endpoint;
    uint64_t content; /* seed */
    uint64_t off, bytes;
    uint64_t operand, compare; /* strided put: step and bytes of a block */
    uint64_t submit_ns;
    unsigned char *buffer; /* owned until it ends: exact, so that ASan sees stray accesses */
    const struct sim_op
        *reads;              /* get: the put whose bytes it must return, or NULL: the library's */
    struct via_list pending; /* in flow->pending, while its memory is in use */
    struct via_list watched; /* in sim_host.watched of the destination */
    uint32_t group, round, member; /* barrier */
};

/* (source, destination, channel, flow), over all lives of both ends. */
struct sim_flow {
    struct sim_world *world;
    uint32_t index;
    uint32_t source, destination; /* host indexes */
    uint8_t channel;
    uint16_t flow;
    uint32_t next_number;    /* from 1 */
    uint32_t last_delivered; /* number of a message */
    bool busy;               /* the consumer returned -EAGAIN and has not resumed */
    struct via_list pending; /* struct sim_op, in order of submit */
    struct sim_op *last_put; /* a put that can be read back, or NULL */
    uint64_t last_set;       /* number of the last put with signal that was submitted */
    uint64_t sum_done, sum_unknown;
    uint64_t value64, value32; /* expected values of the atomic words, if known */
    bool known64, known32;
    bool out_of_order;           /* operations were cancelled: values are not tracked any more */
    uint64_t likely64, likely32; /* if all submitted operations succeed */
};

/* --- barriers -------------------------------------------------------------------------------- */

struct sim_group {
    uint32_t number;
    uint32_t members_count;
    uint32_t hosts[SIM_HOSTS_MAX];   /* indexes */
    uint16_t ids[SIM_HOSTS_MAX];     /* ascending */
    uint32_t entered[SIM_HOSTS_MAX]; /* rounds */
    uint32_t left[SIM_HOSTS_MAX];
    uint32_t rounds; /* rounds left */
    bool retired;    /* a member has crashed */
};

/* --- the world ------------------------------------------------------------------------------- */

/* A fault that waits for traffic: links are idle most of the time, and a fault at a random time
 * would hit nothing. */
struct sim_trap {
    bool armed;
    uint32_t link, host; /* UINT32_MAX = any */
    uint64_t at_ns;
    uint32_t countdown; /* posted writes and doorbells until the fault */
    struct sim_event fault;
};
#define SIM_TRAPS_MAX 64u

/* Kinds of garbage from rogues, counted so that a run shows that each happened. Names:
 * sim_rogue_kind_name(). */
enum sim_rogue_kind {
    SIM_ROGUE_NOISE,     /* over the whole inbox */
    SIM_ROGUE_REGISTERS, /* scratchpads: version, host, session, epochs */
    SIM_ROGUE_CREDIT,    /* credits for records that were not sent */
    SIM_ROGUE_LENGTH,    /* credits for more records than exist */
    SIM_ROGUE_FIELDS,    /* bit of a frame, at random */
    SIM_ROGUE_NUMBER,    /* flow number of a frame: not the next one */
    SIM_ROGUE_SESSION,   /* fields of a frame: of another one */
    SIM_ROGUE_ACK,      /* acknowledgements of frames that did not arrive, or with another result */
    SIM_ROGUE_NAME,     /* source and session of a host that the reader has a link to */
    SIM_ROGUE_ASK,      /* acknowledgements late or never; barriers it is not a member of */
    SIM_ROGUE_ANNOUNCE, /* announcements of itself: neighbours that it does not have */
    SIM_ROGUE_ANNOUNCE_OTHERS,  /* announcements of other hosts */
    SIM_ROGUE_ANNOUNCE_LAST,    /* ... with the highest numbers */
    SIM_ROGUE_ANNOUNCE_SESSION, /* ... of a session that is not theirs */
    SIM_ROGUE_HELLO_IDENTITY,   /* host, session, side */
    SIM_ROGUE_HELLO_GEOMETRY,   /* counts and sizes that hosts must agree on */
    SIM_ROGUE_HELLO_OTHER,      /* the rest of the handshake, or READY without it */
    SIM_ROGUE_KINDS,
};

/* Names: sim_ofi_count_name(). */
enum sim_ofi_count {
    SIM_OFI_CONNECTS,   /* connections that were made */
    SIM_OFI_RESETS,     /* connections that broke */
    SIM_OFI_DEATHS,     /* peers that died without a word */
    SIM_OFI_PARTITIONS, /* of a link, for a time */
    SIM_OFI_CUTS,       /* by an operator */
    SIM_OFI_MESSAGES,
    SIM_OFI_WRITES,
    SIM_OFI_TWICE,      /* parts of writes that were sent again */
    SIM_OFI_PASSES,     /* arrivals ahead of what was posted before */
    SIM_OFI_DISORDER,   /* completions ahead of what was posted before */
    SIM_OFI_DUPLICATES, /* completions given again */
    SIM_OFI_FULL,       /* calls that found a queue full */
    SIM_OFI_UNREADY,    /* messages that found no receive */
    SIM_OFI_ERRORS,     /* completions with an error */
    SIM_OFI_PAUSES,     /* a thread waited for room */
    SIM_OFI_COUNTS,
};

struct sim_counts {
    uint64_t ops[8]; /* by enum via_op_kind: submitted */
    uint64_t statuses_ok, statuses_refused, statuses_reset, statuses_other;
    uint64_t deliveries, puts, bells, fences, turns, cuts, freezes, crashes, audits;
    uint64_t drains, overtakes, torn, ones; /* actions of the hardware */
    uint64_t dmas, dma_failed, dma_hung, dma_torn;
    uint64_t ofi[SIM_OFI_COUNTS];                     /* of the simulated libfabric (sim/ofi) */
    uint64_t rogues, forged, lies, greetings, aboard; /* lost: frames in relays that crashed */
    uint64_t rogue[SIM_ROGUE_KINDS];
    uint64_t stream_bytes, stream_spills, stream_kills, stream_execs;
    uint64_t pes, pe_steps, pe_turns, pe_frames; /* of OpenSHMEM programs */
    uint64_t pe_ends;                            /* programs that a fault ended, as specified */
};

struct sim_world {
    struct sim_config config;
    int plant; /* enum sim_plant, or a mutant of the core */
    struct sim_clock clock;
    struct via_rng rng_port, rng_cpu, rng_work, rng_fault, rng_dma, rng_wait;
    uint64_t digest;
    FILE *trace; /* NULL = none; borrowed */
    bool failed;
    char failure[1024]; /* the first failure */

    uint32_t hosts_count;
    struct sim_host hosts[SIM_HOSTS_MAX];
    uint32_t host_by_id[VIA_HOSTS_MAX]; /* UINT32_MAX for ids that no host has */
    uint32_t links_count;
    struct sim_link links[SIM_LINKS_MAX];
    struct sim_thread *current;       /* the thread whose turn it is: ports get its calls */
    struct sim_guest *guest;          /* borrowed; NULL = none */
    const struct sim_chip_ops *chips; /* of links whose has_chip is set */
    bool auditing;

    struct sim_flow *flows; /* owned; sim_flow_at() */
    uint32_t flows_count;
    struct sim_op **ops; /* owned, each and the array */
    uint32_t ops_count, ops_capacity;
    uint32_t ops_pending;                 /* accepted, not complete, of living hosts */
    uint32_t faults_planned, work_bursts; /* number of faults or bursts that masks may leave out */
    uint32_t faults_kept;                 /* of these faults, those that masks have not left out */
    struct sim_trap traps[SIM_TRAPS_MAX];
    uint32_t traps_count, traps_armed;
    struct sim_group groups[64];
    uint32_t groups_count;

    bool healed, settled, done, over;
    uint64_t heal_ns, done_ns;
    uint64_t turns_at_rest;
    unsigned char scratch[65536];
    struct sim_counts counts;
};

/* --- world.c --------------------------------------------------------------------------------- */

struct sim_result {
    bool failed;
    char failure[1024];
    uint64_t digest;
    uint64_t events, virtual_ns, drain_ns;
    uint32_t faults_planned, work_bursts;
    struct sim_counts counts;
};

/* Runs one history to its verdict. trace and guest may be NULL. */
void sim_world_run(const struct sim_config *config, int plant, FILE *trace, struct sim_guest *guest,
                   struct sim_result *ret_result);

/* Fails the run: the first failure is kept; the run ends with the current event. */
void sim_fail(struct sim_world *world, const char *format, ...) VIA_PRINTF(2, 3);

#define sim_trace(world, ...)                   \
    do {                                        \
        if (via_unlikely((world)->trace)) {     \
            sim_trace_line(world, __VA_ARGS__); \
        }                                       \
    } while (0)
void sim_trace_line(struct sim_world *world, const char *format, ...) VIA_PRINTF(2, 3);

/* Adds an event and its time to the digest. */
enum sim_mark {
    SIM_MARK_EVENT = 1,
    SIM_MARK_PUT,
    SIM_MARK_BELL,
    SIM_MARK_DELIVER,
    SIM_MARK_COMPLETE,
    SIM_MARK_SUBMIT,
    SIM_MARK_TURN
};
static inline void sim_mark(struct sim_world *world, enum sim_mark mark, uint64_t a, uint64_t b)
{
    /* One multiplication per word instead of one per byte: it distinguishes runs equally well. */
    uint64_t h = world->digest;
    h = (h ^ ((uint64_t)mark << 56 ^ world->clock.now_ns)) * UINT64_C(0x100000001b3);
    h = (h ^ h >> 29 ^ a) * UINT64_C(0x100000001b3);
    world->digest = (h ^ h >> 32 ^ b) * UINT64_C(0x100000001b3);
}

static inline uint32_t sim_between(struct via_rng *rng, uint32_t lo, uint32_t hi)
{
    return (uint32_t)via_rng_between(rng, lo, hi);
}

/* Index of the host with an id; UINT32_MAX: no host has it. */
static inline uint32_t sim_host_of_id(const struct sim_world *world, uint32_t id)
{
    return id < VIA_HOSTS_MAX ? world->host_by_id[id] : UINT32_MAX;
}

/* --- topology.c ------------------------------------------------------------------------------ */

/* Makes the links of config->graph and gives every host its ports. */
void sim_topology_build(struct sim_world *world);
/* Hops between hosts over links that are up; UINT32_MAX = none. */
uint32_t sim_topology_hops(const struct sim_world *world, uint32_t from, uint32_t to);

/* --- link.c ---------------------------------------------------------------------------------- */

/* The lane of a queue. Fails the run unless it is the queue of the thread whose turn it is. */
struct sim_lane *sim_link_lane(struct sim_end *end, unsigned queue);
/* Counts and checks a put that is about to leave. False: it is outside of the window. */
bool sim_link_put(struct sim_end *end, uint64_t off, const void *src, size_t len);
/* The same for a doorbell. */
bool sim_link_is_bell_leaving(struct sim_end *end, unsigned bit);
void sim_link_init(struct sim_world *world, struct sim_link *link, uint32_t host_a,
                   uint32_t host_b);
void sim_link_open(struct sim_world *world, struct sim_link *link, size_t inbox_bytes);
void sim_link_fini(struct sim_link *link);
void sim_link_set(struct sim_link *link, bool up);
void sim_link_notice(struct sim_link *link, uint32_t end, bool up);
void sim_link_puts(struct sim_link *link, uint32_t end, uint32_t lane);
void sim_link_show(struct sim_link *link, uint32_t end, uint32_t lane);
void sim_link_drain(struct sim_link *link, uint32_t end, uint32_t lane);
void sim_link_bell(struct sim_link *link, uint32_t end, uint32_t bit, uint32_t era);
/* fence.c: the fence calls of core/port.h, and fences under way. sim_fence_ends_ns: when the first
 * fence that this thread waits for ends; VIA_NEVER_NS: it waits for none. sim_fence_drop: the host
 * is gone, and its fences with it. */
int sim_fence_start(struct sim_end *end, unsigned queue);
int sim_fence_poll(struct sim_end *end, unsigned queue);
void sim_link_fence(struct sim_link *link, uint32_t end, uint32_t queue, uint32_t number);
uint64_t sim_fence_ends_ns(const struct sim_thread *thread);
void sim_fence_drop(struct sim_end *end);
/* engine.c: a DMA ends, or some of its bytes become visible early. */
void sim_link_dma(struct sim_link *link, uint32_t end, uint32_t number);
void sim_link_dma_show(struct sim_link *link, uint32_t end, uint32_t number);
/* Rings the doorbell of the peer's host directly, not through its port. */
void sim_link_ring(struct sim_end *to, unsigned bit);
/* The host at this end has restarted: no events of its former life, and old memory or zeroes. */
void sim_link_reopen(struct sim_end *end, bool keep_memory);
extern const struct via_port_ops sim_port_ops;

/* --- trace.c --------------------------------------------------------------------------------- */

/* Prints a run's configuration before it begins. */
void sim_trace_world(struct sim_world *world);
void sim_trace_put(const struct sim_end *end, uint64_t off, const void *src, size_t len);
void sim_trace_arrival(const struct sim_end *from, uint32_t lane, const struct sim_flight *flight);
/* The simulator sees no stores of direct links: prints the new records after a turn. */
void sim_trace_turn(struct sim_host *host);

/* --- credit.c -------------------------------------------------------------------------------- */

void sim_credit_put(struct sim_end *end, uint64_t off, const void *src, size_t len);

/* --- host.c ---------------------------------------------------------------------------------- */

void sim_host_init(struct sim_world *world, uint32_t index, uint16_t id);
void sim_host_start(struct sim_host *host); /* starts a new life; the ports exist */
void sim_host_crash(struct sim_host *host); /* ends as by kill -9 */
void sim_host_stop(struct sim_host *host);  /* ends by via_node_fini; to be followed by crash */
void sim_host_fini(struct sim_host *host);
uint64_t sim_host_now(const struct sim_host *host);
/* Runs the thread after delay_ns at the latest. */
void sim_thread_wake(struct sim_thread *thread, uint64_t delay_ns);
/* The same, after the latency of a wake-up. */
void sim_thread_interrupt(struct sim_thread *thread);
/* True if its last turn knew the destination's current life. */
bool sim_thread_has_seen(const struct sim_thread *thread, uint32_t host);
void sim_thread_turn(struct sim_thread *thread, uint32_t ticket);
/* Schedules a check for a lost wake-up of the thread, in case it sleeps. */
void sim_thread_audit_soon(struct sim_thread *thread);
void sim_thread_audit(struct sim_thread *thread);

/* --- fault.c --------------------------------------------------------------------------------- */

enum sim_crash {
    SIM_CRASH_LINKS_STAY = 0,
    SIM_CRASH_LINKS_FALL = 1,
    SIM_CRASH_KEEP_MEMORY = 2,
    SIM_CRASH_BY_FINI = 4,
    SIM_CRASH_ROGUE = 8 /* the host goes on as a rogue until it restarts */
};

void sim_fault_plan(struct sim_world *world);
void sim_fault_cut(struct sim_world *world, uint32_t link, uint32_t down_ns);
void sim_fault_mend(struct sim_world *world, uint32_t link, uint32_t era);
void sim_fault_freeze(struct sim_world *world, uint32_t host, uint32_t us);
void sim_fault_crash(struct sim_world *world, uint32_t host, uint32_t how, uint32_t restart_us);
void sim_fault_start(struct sim_world *world, uint32_t host, uint32_t how, uint32_t life);
void sim_fault_arm(struct sim_world *world, uint32_t trap);
void sim_fault_spring(struct sim_world *world, uint32_t trap);
void sim_fault_traffic(struct sim_world *world, uint32_t link, uint32_t host);
void sim_fault_heal(struct sim_world *world);

/* --- rogue.c --------------------------------------------------------------------------------- */

/* The host, which has just crashed, writes garbage for for_us. */
void sim_rogue_begin(struct sim_world *world, uint32_t host, uint32_t for_us);
void sim_rogue_turn(struct sim_world *world, uint32_t host, uint32_t life, uint32_t left_us);
/* True if this life, or one after it, has run as a rogue. Its acknowledgements were false; an
 * unsent operation goes to the next life. */
bool sim_rogue_has_run_since(const struct sim_host *host, uint32_t life);
const char *sim_rogue_kind_name(enum sim_rogue_kind kind);
const char *sim_ofi_count_name(enum sim_ofi_count count); /* chip.c */
bool sim_rogue_is_forged(const struct via_delivery *delivery);
/* True if the receiver has got the message from a life that ran as a rogue. */
bool sim_rogue_has_sent(const struct sim_host *receiver, const struct via_delivery *delivery);

/* --- work.c ---------------------------------------------------------------------------------- */

void sim_work_init(struct sim_world *world);
void sim_work_fini(struct sim_world *world);
void sim_work_plan(struct sim_world *world);
struct sim_flow *sim_flow_at(struct sim_world *world, uint32_t source, uint32_t destination,
                             uint32_t channel, uint32_t flow);
/* Makes the calls of the thread's clients: submits, resumes, cancels. */
void sim_work_turn(struct sim_thread *thread);
struct sim_op *sim_op_new(struct sim_world *world);
/* Submits it to the node; false if there was no room: the caller must try again. */
bool sim_op_submit(struct sim_thread *thread, struct sim_op *op, const struct via_op *node_op);
void sim_op_free_buffer(struct sim_op *op);
uint64_t sim_op_cookie(const struct sim_op *op);
/* Cancels all operations of an owner. */
void sim_op_cancel(struct sim_thread *thread, uint32_t owner);

/* --- check.c --------------------------------------------------------------------------------- */

int sim_check_deliver(struct sim_host *host, const struct via_delivery *delivery);
void sim_check_complete(struct sim_host *host, unsigned channel, uint64_t cookie, int status,
                        uint64_t value);
void sim_check_notify(struct sim_host *host, uint64_t handle);
/* Called after the control thread's turn. */
void sim_check_announced(struct sim_host *host);
/* True if no fault has happened that may have separated hosts. */
bool sim_is_calm(const struct sim_world *world);
/* True if it may take long until two live hosts know of each other. */
bool sim_is_delay_allowed(const struct sim_world *world);
/* Its host has crashed: the outcome is unknown, no completion will come. */
void sim_check_orphan(struct sim_world *world, struct sim_op *op);
const char *sim_op_name(const struct sim_op *op); /* one static text at a time */

/* --- region.c -------------------------------------------------------------------------------- */

void sim_region_begin_life(struct sim_host *host);
void sim_region_life_fini(struct sim_host *host);
uint32_t sim_region_off(const struct sim_world *world, const struct sim_flow *flow);
uint32_t sim_region_words_off(const struct sim_world *world, const struct sim_flow *flow);
uint32_t sim_region_counter_off(const struct sim_world *world);
/* A free range of `bytes` in the flow's region: its offset in the segment, or UINT32_MAX. */
uint32_t sim_region_place(struct sim_flow *flow, uint32_t bytes, uint32_t alignment);
/* The value after the atomic operation. */
uint64_t sim_region_atomic(const struct sim_op *op, uint64_t old);
void sim_region_submitted(struct sim_op *op);
/* 0: check and remember; else the content that it may have written is unknown. */
void sim_region_completed(struct sim_op *op, uint64_t value);
/* It is unknown whether the operation happened or still will. */
void sim_region_unknown(struct sim_op *op);
void sim_region_watch(struct sim_host *host);
/* The draft is removed; true = call again, an operation may use it. */
bool sim_region_draft_remove(struct sim_host *host);
void sim_region_final(struct sim_host *host);

/* --- barrier.c ------------------------------------------------------------------------------- */

uint64_t sim_barrier_group(uint64_t number); /* via_op.group */
void sim_barrier_plan(struct sim_world *world);
void sim_barrier_wanted(struct sim_world *world, uint32_t group, uint32_t member);
void sim_barrier_turn(struct sim_thread *thread);
void sim_barrier_completed(struct sim_world *world, struct sim_op *op, int status);
void sim_barrier_crashed(struct sim_host *host);
bool sim_barrier_is_done(const struct sim_world *world);

/* --- limit.c --------------------------------------------------------------------------------- */

/* The first of a flow's operations that have not ended; NULL: there is none. */
struct sim_op *sim_flow_first(const struct sim_flow *flow);
void sim_limit_submitted(struct sim_world *world, const struct sim_op *op);
void sim_limit_ended(struct sim_world *world, const struct sim_op *op);
void sim_limit_check(struct sim_world *world, uint32_t index);
/* True if it has been outstanding for the time after which -ETIMEDOUT is allowed. */
bool sim_limit_is_over(const struct sim_world *world, const struct sim_op *op);
/* True if a fabric without faults may need longer to come up than an operation waits. */
bool sim_limit_is_short(const struct sim_world *world);

/* --- final.c --------------------------------------------------------------------------------- */

/* Called after each completion and at the end of the faults: if all work is done, schedules the
 * last checks. */
void sim_final_progress(struct sim_world *world);
void sim_final_plan(struct sim_world *world); /* when heal_ns is known */
void sim_final_overdue(struct sim_world *world);
void sim_final_settled(struct sim_world *world);
void sim_final_stop(struct sim_world *world);

#endif
