/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIADUCT_SOCKETS_H
#define VIADUCT_SOCKETS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Requests of a program to the preloaded libviaduct-sockets.so (viaduct-sockets(7)).
 *
 * A program is not linked to the library. The functions are weak: without the library they are null
 * pointers, so check before a call: if (via_sockets_spin) { ... }. Programs that are not
 * position-independent look them up by dlsym(3) instead.
 *
 * Any thread may call them; not a signal handler.
 */

#define VIADUCT_SOCKETS_API __attribute__((weak, visibility("default")))

enum via_sockets_carrier {
    VIA_SOCKETS_KERNEL = 0,
    VIA_SOCKETS_PIPES = 1,         /* to a process of this machine */
    VIA_SOCKETS_PIPES_TO_HOST = 2, /* to a process on another host of the fabric */
};

/* size: sizeof(struct via_sockets_info) as compiled, set by the caller. why: for KERNEL, the reason
 * (viaduct-sockets(7) lists them), or "undecided" while pipes may still come; "" for pipes. A
 * constant text. The counters are those of this process, since connect() or accept(). */
struct via_sockets_info {
    uint64_t size;
    uint32_t carrier; /* enum via_sockets_carrier */
    uint32_t reserved;
    const char *why;
    uint64_t tx_pipe_bytes;
    uint64_t rx_pipe_bytes;
    uint64_t tx_kernel_bytes;
    uint64_t rx_kernel_bytes;
    uint64_t tx_frames_bytes;
    uint64_t tx_fetched_bytes;
    uint64_t rings_count;
    uint64_t sleeps_count;
};

/* Reports what carries the connection behind fd, without blocking. 0; -ENOENT: the library
 * does not know fd as a TCP connection; -EINVAL: size is smaller than that of the first version. */
VIADUCT_SOCKETS_API int via_sockets_info(int fd, struct via_sockets_info *ret_info);

#define VIA_SOCKETS_SPIN_DEFAULT (-1) /* as VIADUCT_SOCKETS_SPIN or the rules file determine */

/* Sets whether the calling thread spins before it sleeps: 1, 0, or VIA_SOCKETS_SPIN_DEFAULT. 0;
 * -EINVAL. */
VIADUCT_SOCKETS_API int via_sockets_spin(int spin);

#ifdef __cplusplus
}
#endif

#endif
