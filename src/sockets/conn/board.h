/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_BOARD_H
#define VIA_SOCKETS_BOARD_H

#include <stdbool.h>
#include <stddef.h>

#include "host/control_sockets.h"

/*
 * This process's board: memory that "viaduct sockets" reads, see host/control_sockets.h. It is made
 * when there is something to show. If it can not be made, nothing is shown and nothing else
 * changes.
 */

/* Returns the counters of connection `index`, zeroed; NULL: the connection must use its own. */
struct via_stats_conn *via_board_entry(size_t index);

/* Shows that fd refers to connection `index`, or (index beyond the board) to one that is not
 * listed. */
void via_board_show(int fd, size_t index);
/* Shows that fd is a TCP connection that stays with the kernel, and why. */
void via_board_refuse(int fd, enum via_reason reason);
/* Returns the reason why fd stays with the kernel; VIA_REASON_NONE: unknown. */
enum via_reason via_board_reason(int fd);
/* Shows that fd does not refer to a connection any more. */
void via_board_forget(int fd);

/* From now on no board is made. */
void via_board_stop(void);

/* Stores the error in the process's rules, which `viaduct sockets` reads on the board until the
 * process ends. The policy calls it before it makes the board. */
void via_board_complain(const char *text);

/* Called in a forked child: replaces the parent's board in this process by a new one, or by none if
 * there is nothing to show. The counters of connections must move: via_board_entry(). */
void via_board_forked(bool has_connections);

#endif
