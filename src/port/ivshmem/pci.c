/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The PCI function of a virtual machine as an ivshmem device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "port/ivshmem/device.h"
#include "port/ivshmem/protocol.h"
#include "vfio/kernel.h"
#include "vfio/sysfs.h"

/* QEMU, docs/specs/ivshmem-spec.rst: PCI ids, BARs and registers. */
#define IDS 0x11101af4u
#define BAR_REGISTERS 0u
#define BAR_INTERRUPTS 1u /* the table of MSI-X; ivshmem-plain has none */
#define BAR_MEMORY 2u
#define REGISTER_POSITION 8u
#define REGISTER_DOORBELL 12u

#define RETRY_NS (500 * VIA_MSEC_NS)
#define GONE_NS (1 * VIA_SEC_NS)
/* Without interrupts: poll interval for doorbells. */
#define POLL_NS (1 * VIA_MSEC_NS)

struct pci_device {
    struct via_ivshmem_device base;
    char address[16];
    enum via_ivshmem_access access;
    struct via_pci *pci; /* NULL: not open */
    int event_fd;        /* the interrupt */
    bool lost;           /* set when a ready device is lost, until drop() */
    uint64_t retry_ns;   /* if not open: time of the next attempt */
    uint64_t gone_ns;    /* if open: time of the next check that the device still exists */
    uint32_t aimed;
};

static struct pci_device *of(const struct via_ivshmem_device *device)
{
    return via_container_of((uintptr_t)device, struct pci_device, base);
}

/* --- open and close --- */

static void close_function(struct pci_device *self)
{
    if (self->pci == NULL) {
        return;
    }
    self->pci->ops->close(self->pci);
    self->pci = NULL;
}

static int check_kind(struct pci_device *self, struct via_error *err)
{
    const struct via_pci_ops *ops = self->pci->ops;
    struct via_pci_region interrupts;
    uint32_t ids = 0, revision = 0;
    if (ops->config_read(self->pci, VIA_PCI_VENDOR_ID, 4, &ids) != 0 || ids != IDS) {
        return via_error_set(err, -ENODEV, "vendor and device %04x:%04x, ivshmem has %04x:%04x",
                             ids & 0xffff, ids >> 16, IDS & 0xffff, IDS >> 16);
    }
    if (ops->config_read(self->pci, VIA_PCI_REVISION, 1, &revision) != 0 || revision < 1) {
        return via_error_set(err, -ENODEV, "revision %u of ivshmem: 1 or later is needed",
                             revision);
    }
    if (ops->region(self->pci, BAR_INTERRUPTS, &interrupts) != 0 || interrupts.bytes == 0) {
        return via_error_set(err, -ENODEV,
                             "the device has no doorbells: ivshmem-doorbell is needed, not "
                             "ivshmem-plain");
    }
    return 0;
}

static int find_id(struct pci_device *self, struct via_error *err)
{
    struct via_pci *pci = self->pci;
    uint32_t command = 0;
    /* Interrupts are writes by the device, so it needs bus mastering. With sysfs access there are
     * none, and the backend keeps mastering off. */
    int rc = pci->ops->config_read(pci, VIA_PCI_COMMAND, 2, &command);
    if (rc == 0) {
        rc = pci->ops->config_write(pci, VIA_PCI_COMMAND, 2,
                                    command | VIA_PCI_COMMAND_MEMORY | VIA_PCI_COMMAND_MASTER |
                                        VIA_PCI_COMMAND_INTX_OFF);
    }
    if (rc != 0) {
        return via_error_set(err, rc, "command register: %s", strerror(-rc));
    }
    self->base.id = via_pci_read32(pci, BAR_REGISTERS, REGISTER_POSITION);
    return self->base.id < VIA_IVSHMEM_IDS_MAX
               ? 0
               : via_error_set(err, -EIO, "the device has no id (%#x): is its server there?",
                               self->base.id);
}

static int find_memory(struct pci_device *self, struct via_error *err)
{
    struct via_pci_region region;
    int rc = self->pci->ops->region(self->pci, BAR_MEMORY, &region);
    if (rc == 0) {
        rc = self->pci->ops->region_fd(self->pci, BAR_MEMORY, &self->base.memory_fd,
                                       &self->base.memory_off);
    }
    self->base.memory_bytes = region.bytes;
    return rc == 0 ? 0 : via_error_set(err, rc, "memory: %s", strerror(-rc));
}

static int set_interrupt(struct pci_device *self, struct via_error *err)
{
    const struct via_pci_ops *ops = self->pci->ops;
    self->base.interrupts = ops->irqs(self->pci, VIA_PCI_MSIX) > 0;
    if (!self->base.interrupts) {
        return 0;
    }
    int rc = ops->irq_set(self->pci, VIA_PCI_MSIX, 1, &self->event_fd);
    return rc == 0 ? 0 : via_error_set(err, rc, "MSI-X: %s", strerror(-rc));
}

static int open_function(struct pci_device *self, struct via_error *err)
{
    int rc;
    if (self->access == VIA_IVSHMEM_SYSFS) {
        struct via_sysfs_options options = {.address = self->address};
        rc = via_sysfs_open(&options, &self->pci, err);
    } else {
        struct via_kernel_options options = {.address = self->address};
        rc = via_kernel_open(&options, &self->pci, err);
    }
    if (rc == 0) {
        rc = check_kind(self, err);
    }
    if (rc == 0) {
        rc = find_id(self, err);
    }
    if (rc == 0) {
        rc = find_memory(self, err);
    }
    return rc == 0 ? set_interrupt(self, err) : rc;
}

static void try_open(struct pci_device *self, uint64_t now_ns)
{
    struct via_error err = {0};
    struct via_ivshmem_device *base = &self->base;
    if (open_function(self, &err) != 0) {
        close_function(self);
        snprintf(base->error, sizeof(base->error), "%s: %.170s", self->address, err.text);
        self->retry_ns = now_ns + RETRY_NS;
        return;
    }
    base->ready = true;
    base->error[0] = '\0';
    self->gone_ns = now_ns + GONE_NS;
    snprintf(base->found, sizeof(base->found), "peer %u, %s, %s, %llu MiB", base->id,
             self->pci->ops->describe(self->pci), base->interrupts ? "MSI-X" : "no interrupts",
             (unsigned long long)base->memory_bytes >> 20);
}

static void check_gone(struct pci_device *self, uint64_t now_ns)
{
    if (now_ns < self->gone_ns) {
        return;
    }
    self->gone_ns = now_ns + GONE_NS;
    if (self->pci->ops->gone(self->pci)) {
        snprintf(self->base.error, sizeof(self->base.error), "%s: the device was removed",
                 self->address);
        self->base.ready = false;
        self->lost = true;
    }
}

/* --- struct via_ivshmem_device_ops --- */

static int pci_fd(const struct via_ivshmem_device *device)
{
    return of(device)->event_fd;
}

static uint64_t pci_service(struct via_ivshmem_device *device, uint64_t now_ns,
                            uint64_t *ret_deadline_ns)
{
    struct pci_device *self = of(device);
    uint64_t count;
    uint64_t fired = read(self->event_fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
    if (device->ready) {
        check_gone(self, now_ns);
    } else if (!self->lost && now_ns >= self->retry_ns) {
        try_open(self, now_ns);
    }
    *ret_deadline_ns = !device->ready       ? self->retry_ns
                       : device->interrupts ? self->gone_ns
                                            : now_ns + POLL_NS;
    return fired;
}

static void pci_drop(struct via_ivshmem_device *device)
{
    struct pci_device *self = of(device);
    if (self->lost) {
        self->lost = false;
        close_function(self);
        device->memory_fd = -1; /* the function owned the descriptor */
    }
}

static int pci_presence(const struct via_ivshmem_device *device, uint32_t id)
{
    return id == device->id ? 1 : -1;
}

/* Vector 0 of the peer: the peer polls the doorbell registers of the cell. A ring to an id without
 * a peer has no effect. */
static void interrupt(struct pci_device *self, uint32_t id)
{
    /* The data reach memory before the interrupt, because the register is uncached, or written by a
     * system call. */
    via_pci_write32(self->pci, BAR_REGISTERS, REGISTER_DOORBELL, id << 16);
}

static void pci_nudge(struct via_ivshmem_device *device, uint32_t id)
{
    if (device->ready && id < VIA_IVSHMEM_IDS_MAX && id != device->id) {
        interrupt(of(device), id);
    }
}

static int pci_aim(struct via_ivshmem_device *device, uint32_t id)
{
    if (id >= VIA_IVSHMEM_IDS_MAX) {
        return -ENOENT;
    }
    of(device)->aimed = id;
    return 0;
}

static void pci_ring(struct via_ivshmem_device *device, unsigned bit)
{
    (void)bit;
    interrupt(of(device), of(device)->aimed);
}

static void pci_close(struct via_ivshmem_device *device)
{
    struct pci_device *self = of(device);
    close_function(self);
    if (self->event_fd >= 0) {
        close(self->event_fd);
    }
    free(self);
}

static const struct via_ivshmem_device_ops pci_ops = {
    .fd = pci_fd,
    .service = pci_service,
    .drop = pci_drop,
    .presence = pci_presence,
    .nudge = pci_nudge,
    .aim = pci_aim,
    .ring = pci_ring,
    .close = pci_close,
};

int via_ivshmem_pci_open(const char *address, enum via_ivshmem_access access,
                         struct via_ivshmem_device **ret_device, struct via_error *err)
{
    struct pci_device *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    self->base = (struct via_ivshmem_device){.ops = &pci_ops, .memory_fd = -1};
    self->access = access;
    snprintf(self->address, sizeof(self->address), "%s", address);
    self->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event_fd < 0) {
        int rc = via_error_set(err, -errno, "eventfd: %s", strerror(errno));
        free(self);
        return rc;
    }
    *ret_device = &self->base;
    return 0;
}
