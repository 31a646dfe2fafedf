/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The programs of kernel_code.h in the kernel, and their table. All of it ends with the process. */
#ifndef VIA_IP_KERNEL_H
#define VIA_IP_KERNEL_H

#include "ip/kernel_code.h"

struct via_ip_kernel {
    struct via_ip_kernel_params params;
    struct via_ip_kernel_host *hosts; /* params.hosts_max; NULL: there is nothing in the kernel */
    int out_fd;
};

/* The table, and `out` at the device. A negative errno: this kernel does not do it (before 6.6), or
 * this process may not; hosts is NULL then. */
int via_ip_kernel_open(struct via_ip_kernel *kernel,
                       const struct via_ip_kernel_params *params) VIA_MUST_CHECK;
void via_ip_kernel_close(struct via_ip_kernel *kernel);
/* `in` at a network interface, for packets to this address and port (network byte order). A
 * descriptor, whose end is the program's, or a negative errno. */
int via_ip_kernel_listen(const struct via_ip_kernel *kernel, unsigned interface, uint32_t local4,
                         uint16_t port) VIA_MUST_CHECK;

#endif
