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
 * The file is there from before the first daemon starts until everything is cleaned up, so that
 * whatever a crash leaves can be found.
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
    bool direct;         /* links are mapped by processes */
    char like[16];       /* class of links that is emulated; "" = plain memory */
    unsigned window_mib; /* of such a link; 0 = the class's */
    unsigned spin_us;    /* longest a transfer thread polls before it sleeps */
    unsigned dma_bytes;  /* DMA moves bodies from this size on; 0 = none */
    unsigned
        give_up_ms; /* operations end if no frame of their host arrives for this time; 0 = never */
    unsigned wait_ms;             /* operations that a host keeps waiting end; 0 = never */
    const char *key;              /* file of the fabric key; NULL = none. Not in the state */
    const char *attach;           /* who may attach, see viaductd(8); NULL = the owner */
    const char *admin;            /* who may administer */
    const char *quota;            /* of each user; NULL = the daemon's */
    unsigned with;                /* the daemons end with this process; 0 = none */
    struct via_topology topology; /* channels_count 0: the daemon's default */
    struct via_process daemons[VIA_TOPOLOGY_HOST_MAX]; /* by index in topology.hosts */
    int lock_fd;                                       /* -1 = not held */

    /* A fabric that was not made by `up`: its hosts are known from the daemon of this machine. */
    int local;         /* that daemon's host; -1 = made by `up` */
    json_t *directory; /* what it says of all hosts; NULL = made by `up` */
};

/* Name and run directory: name NULL = $VIADUCT_FABRIC, else "default". Everything else is zero. */
int via_fabric_init(struct via_fabric *fabric, const char *name,
                    struct via_error *err) VIA_MUST_CHECK;

/* The same, but without a name the run directory of the machine's daemon if there is one. */
int via_fabric_locate(struct via_fabric *fabric, const char *name, struct via_error *err);

/*
 * The fabric that a user means by this name, or NULL: that of the machine's daemon, where
 * there is one and no fabric is named, else one that `up` has made. Errors as of load.
 */
int via_fabric_open(struct via_fabric *fabric, const char *name,
                    struct via_error *err) VIA_MUST_CHECK;

/*
 * Reads the state. -ENOENT: no fabric there; -EACCES: another user's; -EPROTO: the file is
 * damaged; -EBUSY: the run directory holds a fabric of another name.
 */
int via_fabric_load(struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/* Writes the state; readers see the old or the new one, whole. */
int via_fabric_save(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/*
 * For `up` and `down`: one of them at a time works on a fabric. The run directory exists. Waits up
 * to timeout_ms; -EBUSY, or -ENOENT when the directory went away meanwhile.
 */
int via_fabric_lock(struct via_fabric *fabric, unsigned timeout_ms,
                    struct via_error *err) VIA_MUST_CHECK;
void via_fabric_unlock(struct via_fabric *fabric);

/* Index in topology.hosts and daemons, -1 for no such host. */
int via_fabric_find(const struct via_fabric *fabric, unsigned host);

/* The host of this id or name. -ENOENT; -EEXIST: several hosts have this name. */
int via_fabric_resolve(const struct via_fabric *fabric, const char *text, unsigned *ret_host,
                       struct via_error *err) VIA_MUST_CHECK;

/* --- fabric_live.c: a fabric that a daemon knows --------------------------------------------- */

/* Asks the daemon of the run directory, host `local`, for the directory of its fabric. */
int via_fabric_load_live(struct via_fabric *fabric, unsigned local,
                         struct via_error *err) VIA_MUST_CHECK;
/* The directory's entry of a host; borrowed, NULL for none. */
json_t *via_fabric_entry(const struct via_fabric *fabric, unsigned host);
/* Its name, "" = none. */
const char *via_fabric_host_name(const struct via_fabric *fabric, unsigned host);

/* "127.77.0.ID", or "10.77.0.ID" with namespaces, "10.78.0.ID" when they have no Ethernet; of a
 * fabric that `up` has not made the first that the host has, or "-". */
struct via_fabric_address {
    char text[46];
};
struct via_fabric_address via_fabric_address(const struct via_fabric *fabric, unsigned host);

/*
 * Daemons that run in this directory without being in the state: of an `up` that was killed before
 * it wrote them down, or started by hand. Their host locks tell. Returns how many, at most max.
 */
struct via_fabric_stray {
    unsigned host;
    struct via_process process;
};
unsigned via_fabric_strays(const struct via_fabric *fabric, struct via_fabric_stray *ret_strays,
                           unsigned max);

/* Files of a fabric in the run directory, without the lock. */
unsigned via_fabric_count_files(const struct via_fabric *fabric);

/* Removes them. */
int via_fabric_clean(const struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

/*
 * Removes them, the lock and the directory, with its parent if that is the default one and empty.
 * -ENOTEMPTY: there are files of others; the text names one.
 */
int via_fabric_remove(struct via_fabric *fabric, struct via_error *err) VIA_MUST_CHECK;

#endif
