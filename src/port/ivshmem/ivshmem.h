/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The ivshmem port: a link between two machines that share the memory of an ivshmem device. A
 * machine is a virtual machine with the device, or a process of the machine that runs the virtual
 * machines, which connects to the ivshmem server itself.
 *
 * Either end may start first, be killed, and restart. Both store into the same memory: a put is a
 * store, coherent and in order, as on the emulated port. Interrupts wake the control thread of the
 * peer, which wakes its transfer threads.
 *
 * The death of a process is detected at once, because the server reports it. A reset or pause of a
 * virtual machine is detected only by core's heartbeats.
 *
 * Only the control thread calls the functions here. For the operations of core/port.h the rules
 * there hold.
 */
#ifndef VIA_PORT_IVSHMEM_IVSHMEM_H
#define VIA_PORT_IVSHMEM_IVSHMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/types.h"
#include "core/port.h"
#include "port/ivshmem/device.h"

#define VIA_IVSHMEM_WINDOW_BYTES_MAX (UINT64_C(1) << 36)
#define VIA_IVSHMEM_CELLS_MAX 1024u

struct via_ivshmem_options {
    const char *target; /* path of an ivshmem server's socket, or address of a PCI function */
    enum via_ivshmem_access access; /* to the function */
    unsigned side;                  /* 0 or 1; the two ends differ */
    uint32_t cell;                  /* which cell of the memory; the same at both ends */
    uint64_t window_bytes; /* of each end's inbox; a multiple of the page size, the same at both */
    uint16_t host;         /* id of this host, sent to the peer */
    unsigned threads_count;
    /* [control thread, in via_ivshmem_port_service] A doorbell of this thread may have been rung.
     * NULL: no thread sleeps on this port */
    void (*wake)(void *ctx, unsigned thread);
    void *ctx;
};

/* Opens an end; via_ivshmem_port_service() brings the link up. -EINVAL, -ENAMETOOLONG, -ENOMEM,
 * -EMFILE. Close with port->ops->close(port). */
VIA_MUST_CHECK int via_ivshmem_port_open(const struct via_ivshmem_options *options,
                                         struct via_port **ret_port, struct via_error *err);

/* See struct via_driver (port/driver.h). */
int via_ivshmem_port_fd(const struct via_port *port);
int via_ivshmem_port_service(struct via_port *port, uint64_t now_ns, uint64_t *ret_deadline_ns);
void via_ivshmem_port_cut(struct via_port *port, bool cut);

struct via_ivshmem_status {
    bool cut;
    bool attached;      /* to the device's memory */
    uint16_t peer_host; /* as the peer's registers say; 0 = no peer */
    uint32_t peer_id;   /* of its ivshmem device */
    uint64_t window_bytes;
    uint64_t puts_out_of_bounds, doorbells_fired, doorbells_coalesced, peers_refused;
    char found[128];
    char error[256];
};
void via_ivshmem_port_status(const struct via_port *port, struct via_ivshmem_status *ret_status);

#endif
