/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CLI_FABRIC_H
#define VIA_CLI_FABRIC_H

#include <stdbool.h>
#include <sys/types.h>

#include "cli/process.h"
#include "cli/topology.h"
#include "host/control.h"

/*
 * The description of a fabric that `up` writes and the other commands read: <rundir>/fabric.json.
 * The file exists from before the start of the first daemon until everything is cleaned up, so that
 * the remains of a crash can be found.
 */
#define VIA_FABRIC_LOCK_FILE "fabric.lock"
/* Defaults: viaductd(8). */
#define VIA_FABRIC_SPIN_US 50u
#define VIA_FABRIC_GIVE_UP_MS 120000u
#define VIA_FABRIC_WAIT_MS 600000u

struct via_fabric {
    char name[VIA_FABRIC_NAME_BYTES_MAX + 1];
    struct via_rundir_path rundir;
    bool netns;          /* a network namespace for each host */
    bool ip;             /* ... with IP over the fabric: viaduct-ip(8) */
    bool ethernet;       /* ... and with an Ethernet device */
    bool direct;         /* processes map the memory of neighbours */
    char like[16];       /* the class of links that are emulated; "": plain memory */
    unsigned window_mib; /* size of such a link's window; 0: that of the class */
    unsigned spin_us;    /* longest time that a transfer thread polls before it sleeps */
    unsigned dma_bytes;  /* DMA moves bodies of this size and more; 0: none */
    unsigned
        give_up_ms;   /* operations end if no frame of their host arrives for this time; 0: never */
    unsigned wait_ms; /* time limit of operations that make no progress; 0: never */
    const char *key;  /* file of the fabric key; NULL: none. Not in the state file */
    const char *attach;           /* users that may attach, see viaductd(8); NULL: the owner */
    const char *admin;            /* users that may administer */
    const char *quota;            /* of each user; NULL: the daemon's default */
    unsigned with;                /* process with which the daemons end; 0: none */
    struct via_topology topology; /* channels_count 0: the daemon's default */
    struct via_process daemons[VIA_TOPOLOGY_HOST_MAX]; /* indexed like topology.hosts */
    int lock_fd;                                       /* -1 = not held */

    /* A fabric that `up` did not make: the daemon of this machine knows its hosts. */
    int local;         /* host of that daemon; -1: `up` made the fabric */
    json_t *directory; /* its directory of all hosts; NULL: `up` made the fabric */
};

/* Sets name and run directory, and zeroes everything else. name NULL: $VIADUCT_FABRIC, else
 * "default". */
int via_fabric_init(struct via_fabric *fabric, const char *name,
                    struct via_error *err) VIA_MUST_CHECK;

/* The same; but without a name it chooses the run directory of the machine's daemon, if there is
 * one. */
int via_fabric_locate(struct via_fabric *fabric, const char *name, struct via_error *err);

/*
 * Opens the fabric of this name. Without a name: the fabric of the machine's daemon, if there is
 * one, else a fabric that `up` has made. Errors of via_fabric_load().
 */
int via_fabric_open(struct via_fabric *fabric, const char *name,
                    struct via_error *err) VIA_MUST_CHECK;

/*
 * Reads the state file. -ENOENT: there is no fabric; -EACCES: it belongs to another user; -EPROTO:
 * the file is damaged; -EBUSY: the run directory belongs to a fabric of another name.
 */
int via_fabric_load(struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* Writes the state file atomically: readers find the old or the new one. */
int via_fabric_save(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/*
 * Locks the fabric for `up` and `down`, of which only one may work on a fabric at a time. The run
 * directory exists. Waits up to timeout_ms. -EBUSY; -ENOENT: the directory was removed
 * meanwhile.
 */
int via_fabric_lock(struct via_fabric *fabric, unsigned timeout_ms,
                    struct via_error *err) VIA_MUST_CHECK;
void via_fabric_unlock(struct via_fabric *fabric);

/* The index in topology.hosts and daemons; -1: no such host. */
int via_fabric_find(const struct via_fabric *fabric, unsigned host);

/* Finds the host of this id or name. -ENOENT; -EEXIST: several hosts have this name. */
int via_fabric_resolve(const struct via_fabric *fabric, const char *text, unsigned *ret_host,
                       struct via_error *err) VIA_MUST_CHECK;

/* --- fabric_live.c: a fabric that a daemon knows ---------------------------------------------- */

/* Requests the directory of the fabric from the daemon of the run directory, host `local`. */
int via_fabric_load_live(struct via_fabric *fabric, unsigned local,
                         struct via_error *err) VIA_MUST_CHECK;
/* The directory's entry of a host. Borrowed; NULL: none. */
json_t *via_fabric_entry(const struct via_fabric *fabric, unsigned host);
/* The host's name; "": none. */
const char *via_fabric_host_name(const struct via_fabric *fabric, unsigned host);

/* "127.77.0.ID"; with namespaces "10.77.0.ID", or "10.78.0.ID" if they have no Ethernet. In a
 * fabric that `up` did not make: the first address of the host, or "-". */
struct via_fabric_address {
    char text[46];
};
struct via_fabric_address via_fabric_address(const struct via_fabric *fabric, unsigned host);

/*
 * Finds daemons that run in this directory but are not in the state file: they belong to an `up`
 * that was killed before it wrote the file, or were started by hand. Their host locks identify
 * them. Returns their number, at most max.
 */
struct via_fabric_stray {
    unsigned host;
    struct via_process process;
};
unsigned via_fabric_strays(const struct via_fabric *fabric, struct via_fabric_stray *ret_strays,
                           unsigned max);

/* Number of files of a fabric in the run directory, without the lock file. */
unsigned via_fabric_count_files(const struct via_fabric *fabric);

/* Removes these files. */
int via_fabric_clean(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/*
 * Removes these files, the lock file and the directory; also its parent if that is the default one
 * and empty. -ENOTEMPTY: other files are in it, of which the text names one.
 */
int via_fabric_remove(struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

#endif
