/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Loads the programs of kernel_code.h, and their table, into the kernel. All of it ends with the
 * process. */
#ifndef VIA_IP_KERNEL_H
#define VIA_IP_KERNEL_H

#include "ip/kernel_code.h"

struct via_ip_kernel {
    struct via_ip_kernel_params params;
    struct via_ip_kernel_host *hosts; /* params.hosts_max; NULL: nothing is loaded */
    int out_fd;
};

/* Makes the table, and attaches `out` to the device. Negative errno: the kernel does not support it
 * (before 6.6), or the process has no permission; hosts is NULL then. */
int via_ip_kernel_open(struct via_ip_kernel *kernel,
                       const struct via_ip_kernel_params *params) VIA_MUST_CHECK;
void via_ip_kernel_close(struct via_ip_kernel *kernel);
/* Attaches `in` to a network interface, for packets to this address and port (network byte order).
 * Returns a descriptor, whose close() detaches the program, or negative errno. */
int via_ip_kernel_listen(const struct via_ip_kernel *kernel, unsigned interface, uint32_t local4,
                         uint16_t port) VIA_MUST_CHECK;

#endif
