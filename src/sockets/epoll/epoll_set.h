/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_EPOLL_SET_H
#define VIA_SOCKETS_EPOLL_SET_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "sockets/conn/conn.h"
#include "sockets/process/lock.h"
#include "sockets/stream/edge.h"

/*
 * An epoll set that contains connections of the library. The program still waits in the kernel's
 * set, which contains the other descriptors with the program's own data, the library's bells, and
 * connections with the address of an entry as data. For a connection with pipes the kernel watches
 * only its own events (the end of the TCP connection, and bytes while they still go that way);
 * readiness is computed here, level- or edge-triggered, one-shot or not.
 *
 * Locks: links (all links between sets and connections), then a set's.
 */
enum via_ep_place {
    VIA_EP_HOT,    /* checked by each call */
    VIA_EP_WARM,   /* checked now and then: epoll_cold.c */
    VIA_EP_COLD,   /* not checked until their peers ring */
    VIA_EP_PLAIN,  /* without pipes: the kernel reports them */
    VIA_EP_PARKED, /* taken out by the program, but still in the kernel's set: epoll_set.c */
    VIA_EP_PLACES,
};

struct via_ep_set {
    struct via_file file;
    struct via_list all;
    int fd;               /* one of its descriptors */
    _Atomic uint32_t fds; /* number of descriptors that refer to it */
    struct via_mutex lock;
    struct via_list entries[VIA_EP_PLACES];
    uint32_t warm_count;
    _Atomic bool cold_due;      /* all cold entries must be checked */
    _Atomic bool call_due;      /* a peer has called (bell.h), and the call is not handled yet */
    _Atomic bool watches_calls; /* the descriptor for calls is registered, with the bells */
    _Atomic uint32_t entries_count;
    _Atomic uint32_t piped_count;  /* entries whose connection has pipes */
    _Atomic uint64_t bells;        /* bells to watch: those of its connections */
    _Atomic uint64_t watched;      /* bells that are registered: via_ep_watch_bells() */
    _Atomic uint32_t sleepers;     /* threads that sleep in it; changed with the lock */
    _Atomic uint64_t polled_ticks; /* when the kernel was last polled */
    _Atomic bool filled;           /* connections with pipes filled the array of the last call */
    _Atomic bool poll_due;         /* poll the kernel: it has just got more to watch */
    _Atomic uint64_t warm_ticks;   /* when all warm ones were last checked */
    uint32_t warm_polls;           /* counts checks while spinning */
    _Atomic uint64_t added_ticks;  /* when a connection was put into it last */
    uint64_t number;               /* not 0; few other sets have the same */

    _Atomic bool forked; /* it existed when this process forked, or was forked: other processes may
                            wait in it, too */
    _Atomic bool handed_back; /* the kernel has a spent one-shot registration, which no entry has */
    bool passed;         /* with its lock: other processes wait in it, and get the program's data */
    _Atomic bool nested; /* in another set, or polled by the program: epoll_nest.c */
};

struct via_ep_entry {
    struct via_list in_set;
    struct via_list in_conn;
    struct via_ep_set *set; /* NULL: the entry is free */
    struct via_conn *conn;
    int fd;          /* the descriptor by which the kernel has it */
    uint32_t events; /* the events that the program registered for */
    uint64_t data;
    uint32_t kernel_events;
    /* The state that was last reported to the program as an edge; `due` and `recheck` also apply to
     * level-triggered entries. */
    struct via_edge reported;
    bool spent;    /* a one-shot registration that was reported */
    bool found;    /* in the result of the check in progress */
    uint16_t arms; /* counts the program's registrations: distinguishes events of earlier ones */
    uint16_t first_arms; /* the count when the entry was made; events with earlier counts belong to
                            another connection, for which the same memory was used before */
    bool piped;          /* counted in piped_count: hot, warm or cold */
    uint8_t place;       /* enum via_ep_place */
    bool inherited;      /* by fork(): the kernel's registration is also the parent's */
    uint16_t idle_polls; /* consecutive checks that found nothing */
    uint32_t cold_sequence;  /* the reader's sequence when the entry became cold */
    uint64_t reported_ticks; /* when the entry was last reported, or registered */
};

/* epoll_ctl() for a descriptor that is a connection. 0 or a negative errno. */
int via_ep_ctl(int epfd, int op, struct via_conn *conn, int fd, const struct epoll_event *event);

/* --- sockets that are put into a set before they are connected ------------------------------- */
/* epoll_ctl() has succeeded for a descriptor that is not a connection: records the registration. */
void via_ep_note(int epfd, int op, int fd, const struct epoll_event *event);
/* True if all sets that the descriptor is in are recorded, or it is in none. */
bool via_ep_is_adoptable(int fd);
/* fd has become this connection: makes entries of its registrations. If that is impossible the
 * connection stays with the kernel. */
void via_ep_adopt(struct via_conn *conn, int fd);

/* The set behind epfd, made at first use; the caller holds it until via_file_put(). In a process of
 * several threads each thread that waits in a set calls this first, so that it counts as a sleeper
 * of the set when another thread adds the first connection. NULL as via_ep_set_get(). */
struct via_ep_set *via_ep_hold(int epfd);

/* epoll_wait() on such a set. Returns the number of events or a negative errno. deadline_ns as in
 * via_sleep(). alone: how the caller holds the set (via_file_get()); a thread that is cancelled in
 * the call releases it. */
int via_ep_wait(struct via_ep_set *set, int epfd, struct epoll_event *events, int max,
                uint64_t deadline_ns, const sigset_t *mask, bool alone);

/* Removes events that are not the program's from those that the kernel reported. Returns how many
 * are left. */
int via_ep_sort_out(struct via_ep_set *set, struct epoll_event *events, int count);

/* --- sets in sets ---------------------------------------------------------------------------- */
/* fd was put into a set, and via_ep_note() has recorded that: if fd is itself a set, its
 * connections are demoted. */
void via_ep_nest(int fd);
/* any: the set has connections that could not be demoted. ready: some of these have events, which
 * the kernel may not report. */
struct via_ep_stayed {
    bool any, ready;
};
/* The program polls fd: the same as via_ep_nest(). */
struct via_ep_stayed via_ep_polled(int fd);
/* fd is about to be sent to another process (SCM_RIGHTS). If fd is a set, the kernel's
 * registrations get the program's own data, because that process polls the kernel's set. */
void via_ep_pass(int fd);
/* True if the set epfd is a member of another set, or polled by an io_uring. */
bool via_ep_is_nested(int epfd);
/* True if the connection is in such a set. The caller holds the connection. */
bool via_ep_conn_is_nested(const struct via_conn *conn);

/* A connection has got or lost pipes: updates its registrations. */
void via_ep_conn_changed(struct via_conn *conn);
/* Reports the connection's state once more to a thread that waits for it, as for a new event. */
void via_ep_conn_woken(struct via_conn *conn);
/* The connection has got a second descriptor in this process, or the program registers it where
 * only the kernel reports it: removes its parked entries from the kernel's sets. */
void via_ep_unpark(struct via_conn *conn);
/* One of several descriptors is about to be closed: the kernel keeps registrations made with it. No
 * lock is held. */
void via_ep_conn_fd_closing(struct via_conn *conn, int fd);
/* The last descriptor of this process is about to be closed. */
void via_ep_conn_closing(struct via_conn *conn);

/* This descriptor of the set is closed, and not in the table any more. */
void via_ep_closed(struct via_ep_set *set, int fd);
void via_ep_dup(struct via_ep_set *set, int new_fd);
/* fd, a set that has never held a connection, was duplicated: threads that wait with one descriptor
 * must see connections that are added with the other. */
void via_ep_dup_plain(int fd, int new_fd);

void via_ep_fork_prepare(void);
void via_ep_fork_parent(void);
void via_ep_fork_child(void);

#endif
