/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_BOARD_H
#define VIA_SOCKETS_BOARD_H

#include <stdbool.h>
#include <stddef.h>

#include "host/control_sockets.h"

/*
 * This process's board, for "viaduct sockets" to read: see host/control_sockets.h. It is made when
 * there is something to show; when it can not be made, nothing is shown and nothing else changes.
 */

/* Where connection `index` counts, zeroed; NULL when it must count on its own. */
struct via_stats_conn *via_board_entry(size_t index);

/* fd refers to that connection, or (index beyond the board) to one that is not listed. */
void via_board_show(int fd, size_t index);
/* fd is a TCP connection that is left to the kernel. */
void via_board_refuse(int fd, enum via_reason reason);
/* Why fd is left to the kernel; VIA_REASON_NONE: that is not known. */
enum via_reason via_board_reason(int fd);
/* fd refers to nothing any more. */
void via_board_forget(int fd);

/* The rules can not be understood: says so for as long as the process lives. */
void via_board_complain(const char *text);

/* Before fork(): remembers what descriptors refer to. */
void via_board_fork_prepare(void);
/*
 * In a forked child, whose parent goes on with its board: a new one in the same place that shows
 * the descriptors as they were, with entries at zero; or none, when there is nothing to show.
 */
void via_board_forked(bool has_connections);

#endif
