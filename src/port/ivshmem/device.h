/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An ivshmem device as the port needs it: memory that several machines share, and interrupts
 * between them (QEMU, docs/specs/ivshmem-spec.rst). Two kinds: a process that is a peer of its own
 * on the server's socket (socket.c), and the PCI function inside of a virtual machine (pci.c).
 *
 * All functions but ring() are the control thread's. None blocks.
 */
#ifndef VIA_PORT_IVSHMEM_DEVICE_H
#define VIA_PORT_IVSHMEM_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/types.h"

#define VIA_IVSHMEM_VECTORS_MAX 64u

struct via_ivshmem_device;

struct via_ivshmem_device_ops {
    /* Readable when service() has something to do; -1: call it by its deadlines. */
    int (*fd)(const struct via_ivshmem_device *device);

    /*
     * A bounded turn: connects, takes what the server says, takes interrupts. Sets and clears
     * `ready`. Returns the vectors that have fired, bit k for vector k. While the device was ready
     * and is not any more, memory_fd stays valid until drop().
     */
    uint64_t (*service)(struct via_ivshmem_device *device, uint64_t now_ns,
                        uint64_t *ret_deadline_ns);

    /* The memory is not mapped any more, and no thread rings. After it a device that got lost
     * becomes ready again by itself, if it can. */
    void (*drop)(struct via_ivshmem_device *device);

    /* Is the machine with this id there? 1: yes. 0: no. -1: the device does not tell. */
    int (*presence)(const struct via_ivshmem_device *device, uint32_t id);

    /* Interrupts the control thread of the peer with this id. */
    void (*nudge)(struct via_ivshmem_device *device, uint32_t id);

    /* From now on ring() is for this peer. 0, or negative errno. Not while threads ring. */
    int (*aim)(struct via_ivshmem_device *device, uint32_t id);

    /* [any thread] Interrupts the peer that was aimed at. */
    void (*ring)(struct via_ivshmem_device *device, unsigned bit);

    void (*close)(struct via_ivshmem_device *device);
};

struct via_ivshmem_device {
    const struct via_ivshmem_device_ops *ops;
    bool ready;
    bool interrupts; /* the peers can interrupt this machine */
    int memory_fd;   /* ready: maps the memory, from memory_off on */
    uint64_t memory_off;
    uint64_t memory_bytes;
    uint32_t id;     /* of this machine among the peers */
    char found[128]; /* a text for operators, "" = nothing yet */
    char error[192]; /* why it is not ready, "" = nothing is wrong */
};

/* A peer on the socket of an ivshmem server. -ENAMETOOLONG, -ENOMEM, -EMFILE. The server need not
 * be there yet. */
VIA_MUST_CHECK int via_ivshmem_socket_open(const char *path, struct via_ivshmem_device **ret_device,
                                           struct via_error *err);

enum via_ivshmem_access {
    VIA_IVSHMEM_VFIO,  /* the kernel's VFIO: interrupts, and an IOMMU between device and memory */
    VIA_IVSHMEM_SYSFS, /* mappings of sysfs: this end takes no interrupts, it polls every
                          millisecond */
};

/* The PCI function of a virtual machine. -ENOMEM, -EMFILE. It need not be there yet. */
VIA_MUST_CHECK int via_ivshmem_pci_open(const char *address, enum via_ivshmem_access access,
                                        struct via_ivshmem_device **ret_device,
                                        struct via_error *err);

#endif
