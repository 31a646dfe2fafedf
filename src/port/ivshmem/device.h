/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The port's interface to an ivshmem device: memory that several machines share, and interrupts
 * between them (QEMU, docs/specs/ivshmem-spec.rst). Two implementations: this process is itself a
 * client of the ivshmem server (socket.c), or it uses the PCI function of its virtual machine
 * (pci.c).
 *
 * Only the control thread calls these functions, except ring(). None blocks.
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
    /* Readable when service() has work; -1: call service() at its deadlines. */
    int (*fd)(const struct via_ivshmem_device *device);

    /*
     * A bounded turn: connects, receives messages of the server, reads interrupts. Sets and clears
     * `ready`. Returns the vectors that have fired, bit k for vector k. After `ready` becomes
     * false, memory_fd stays valid until drop().
     */
    uint64_t (*service)(struct via_ivshmem_device *device, uint64_t now_ns,
                        uint64_t *ret_deadline_ns);

    /* Called when the memory is unmapped and no thread rings. After drop() a lost device may become
     * ready again in service(). */
    void (*drop)(struct via_ivshmem_device *device);

    /* Is the machine with this id connected? 1: yes. 0: no. -1: the device can not report it. */
    int (*presence)(const struct via_ivshmem_device *device, uint32_t id);

    /* Interrupts the control thread of the peer with this id. */
    void (*nudge)(struct via_ivshmem_device *device, uint32_t id);

    /* Sets the peer that ring() interrupts. 0, or negative errno. Not while threads ring. */
    int (*aim)(struct via_ivshmem_device *device, uint32_t id);

    /* [any thread] Interrupts the peer that aim() has set. */
    void (*ring)(struct via_ivshmem_device *device, unsigned bit);

    void (*close)(struct via_ivshmem_device *device);
};

struct via_ivshmem_device {
    const struct via_ivshmem_device_ops *ops;
    bool ready;
    bool interrupts; /* peers can interrupt this machine */
    int memory_fd;   /* if ready: descriptor of the memory, which begins at memory_off */
    uint64_t memory_off;
    uint64_t memory_bytes;
    uint32_t id;     /* ivshmem id of this machine */
    char found[128]; /* description for operators, "" = not found yet */
    char error[192]; /* why it is not ready, "" = no error */
};

/* A client of an ivshmem server, by its socket. -ENAMETOOLONG, -ENOMEM, -EMFILE. The server may
 * start later. */
VIA_MUST_CHECK int via_ivshmem_socket_open(const char *path, struct via_ivshmem_device **ret_device,
                                           struct via_error *err);

enum via_ivshmem_access {
    VIA_IVSHMEM_VFIO,  /* VFIO: interrupts, and an IOMMU between device and memory */
    VIA_IVSHMEM_SYSFS, /* sysfs mappings: without interrupts; this end polls every millisecond */
};

/* The PCI function of a virtual machine. -ENOMEM, -EMFILE. The function may appear later. */
VIA_MUST_CHECK int via_ivshmem_pci_open(const char *address, enum via_ivshmem_access access,
                                        struct via_ivshmem_device **ret_device,
                                        struct via_error *err);

#endif
