/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Included before each source of the sockets library that runs in the simulator: renames the
 * functions of the system and of the client library that such a source calls. (The simulated PEs
 * have their own copy of the client library.) Those functions are in kernel.c, local.c, client.c
 * and absent.c.
 */
#ifndef SIM_SOCKETS_MACHINE_H
#define SIM_SOCKETS_MACHINE_H

#include <stdint.h>

#include "core/node.h"

uint64_t sim_socket_ticks(void);

/* core/node.h has a struct of this name, too. */
#define via_op via_socket_op

#define clock_gettime sim_socket_clock_gettime
#define process_vm_readv sim_socket_process_vm_readv
#define pthread_sigmask sim_socket_pthread_sigmask
#define sigpending sim_socket_sigpending
#define syscall sim_socket_syscall
#define __builtin_ia32_rdtsc sim_socket_ticks

#define via_attach_hops sim_socket_attach_hops
#define via_attach_poll sim_socket_attach_poll
#define via_client_remote_is_gone sim_socket_remote_is_gone
#define via_client_remote_is_held sim_socket_remote_is_held
#define via_client_remote_word sim_socket_remote_word
#define via_client_try_put sim_socket_client_try_put
#define via_remote_close sim_socket_remote_close
#define via_remote_direct sim_socket_remote_direct
#define via_remote_get sim_socket_remote_get
#define via_remote_open sim_socket_remote_open
#define via_remote_pending sim_socket_remote_pending
#define via_remote_ring sim_socket_remote_ring
#define via_remote_try_max sim_socket_remote_try_max
#define via_remote_try_put sim_socket_remote_try_put
#define via_remote_try_put_from sim_socket_remote_try_put_from

#endif
