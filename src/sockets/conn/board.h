/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_BOARD_H
#define VIA_SOCKETS_BOARD_H

#include <stdbool.h>
#include <stddef.h>

#include "host/control_sockets.h"

/*
 * This process's board, for "viaduct sockets" to read: see host/control_sockets.h. It is made when
 * there is something to show; if it can not be made, nothing is shown and nothing else changes.
 */

/* The counters of connection `index`, zeroed; NULL if it must use its own. */
struct via_stats_conn *via_board_entry(size_t index);

/* fd refers to that connection, or (index beyond the board) to one that is not listed. */
void via_board_show(int fd, size_t index);
/* fd is a TCP connection that stays with the kernel. */
void via_board_refuse(int fd, enum via_reason reason);
/* The reason why fd stays with the kernel; VIA_REASON_NONE: unknown. */
enum via_reason via_board_reason(int fd);
/* fd does not refer to a connection any more. */
void via_board_forget(int fd);

/* Shows this text, that the rules are invalid, as long as the process lives. */
void via_board_complain(const char *text);

/*
 * In a forked child, whose parent goes on with its board: a new one in the same place, which shows
 * nothing yet, with entries at zero; or none, when there is nothing to show.
 */
void via_board_forked(bool has_connections);

#endif
