/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The C library's calls by which a process confines itself. A seccomp filter may refuse the
 * library's own system calls, or end the process for them. In another root the dynamic loader may
 * not find the library for the programs that are started there.
 */
#undef _FORTIFY_SOURCE
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/list.h"
#include "sockets/conn/board.h"
#include "sockets/conn/conn.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/share.h"
#include "sockets/conn/stats.h"
#include "sockets/conn/steward.h"
#include "sockets/hooks/hooks.h"
#include "sockets/process/fds.h"
#include "sockets/process/memory.h"
#include "sockets/process/real.h"

#define PRELOAD_VARIABLE "LD_PRELOAD="
#define PRELOAD_BYTES_MAX 4096u

/* --- seccomp --------------------------------------------------------------------------------- */

/* Phases in which no bytes have to be resent or read from a pipe. */
#define DONE_WITH (VIA_PHASE_BIT(PLAIN) | VIA_PHASE_BIT(LEFT) | VIA_PHASE_BIT(OVER))

/* Removes the descriptor of a connection that stays with the kernel from the table. Then the hooks
 * make only the program's system calls on it. The table's reference is not released, because
 * another thread may be in a call on the connection. A connection in an epoll set stays in the
 * table: the set needs it. */
static bool release_plain(struct via_op *op, const void *unused)
{
    bool plain = via_conn_is_in(op->conn, DONE_WITH) && via_list_is_empty(&op->conn->entries);
    (void)unused;
    if (plain) {
        via_fd_take(op->fd);
    }
    return plain;
}

/* Called before the filter is installed: demotes all connections, and does now what the library
 * would do at exit. */
static void prepare_for_filter(void)
{
    VIA_KEEP_ERRNO;
    via_hooks_init();
    if (!via_hooks_is_guest()) {
        via_demote_all(VIA_REASON_SECCOMP);
        via_steward_end();
        via_stats_write();
        via_share_end();
        via_op_each(release_plain, NULL);
        via_board_stop();
        via_memory_is_unchecked = true;
        /* Makes read() of the program's pipes not wait for calls of peers any more. */
        atomic_store_explicit(&via_steward_had_pipes, false, memory_order_relaxed);
    }
}

VIA_HOOK int prctl(int option, ...)
{
    va_list list;
    va_start(list, option);
    unsigned long second = va_arg(list, unsigned long);
    unsigned long third = va_arg(list, unsigned long);
    unsigned long fourth = va_arg(list, unsigned long);
    unsigned long fifth = va_arg(list, unsigned long);
    va_end(list);
    if (option == PR_SET_SECCOMP) {
        prepare_for_filter();
    }
    return VIA_REAL(prctl)(option, second, third, fourth, fifth);
}

#if defined(__x86_64__)
/* syscall() with SYS_seccomp, as libseccomp makes it. */
long via_hooks_syscall_seccomp(long number, unsigned long operation, unsigned long flags,
                               void *argument)
{
    if (operation == SECCOMP_SET_MODE_STRICT || operation == SECCOMP_SET_MODE_FILTER) {
        prepare_for_filter();
    }
    return via_hooks_real_syscall(number, operation, flags, argument);
}
#endif

/* --- chroot ---------------------------------------------------------------------------------- */

static bool is_ours(const char *path, size_t bytes)
{
    static const char *const names[] = {"libviaduct-preload.so", "libviaduct-sockets.so"};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(names); i++) {
        size_t name_bytes = strlen(names[i]);
        if (bytes > name_bytes && path[bytes - name_bytes - 1] == '/' &&
            memcmp(path + bytes - name_bytes, names[i], name_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_reachable(const char *path, size_t bytes)
{
    char copy[PRELOAD_BYTES_MAX];
    memcpy(copy, path, bytes);
    copy[bytes] = '\0';
    return access(copy, R_OK) == 0;
}

/* Copies LD_PRELOAD's list without those libraries of Viaduct that this root does not have. False:
 * it has all of them, or the list is too long. */
static bool copy_reachable(const char *list, char *ret_list)
{
    bool missing = false;
    size_t used = 0;
    if (strlen(list) >= PRELOAD_BYTES_MAX) {
        return false;
    }
    for (const char *at = list; *at != '\0';) {
        size_t bytes = strcspn(at, ": ");
        if (is_ours(at, bytes) && !is_reachable(at, bytes)) {
            missing = true;
        } else if (bytes > 0) {
            used += used > 0 ? 1 : 0;
            memcpy(ret_list + used, at, bytes);
            used += bytes;
            ret_list[used] = ':';
        }
        at += bytes + (at[bytes] != '\0' ? 1 : 0);
    }
    ret_list[used] = '\0';
    return missing;
}

/* Removes a library that the new root does not have from LD_PRELOAD: otherwise the loader would
 * warn in every program. Does not call malloc(), and does not change strings of the program. */
static void forget_preload(void)
{
    static char variable[sizeof(PRELOAD_VARIABLE) + PRELOAD_BYTES_MAX] = PRELOAD_VARIABLE;
    char *list = variable + sizeof(PRELOAD_VARIABLE) - 1;
    for (char **it = environ; it != NULL && *it != NULL; it++) {
        if (strncmp(*it, PRELOAD_VARIABLE, sizeof(PRELOAD_VARIABLE) - 1) != 0 ||
            !copy_reachable(*it + sizeof(PRELOAD_VARIABLE) - 1, list)) {
            continue;
        }
        if (*list != '\0') {
            *it = variable;
            return;
        }
        for (char **to = it; *to != NULL; to++) {
            to[0] = to[1];
        }
        return;
    }
}

VIA_HOOK int chroot(const char *path)
{
    int rc = VIA_REAL(chroot)(path);
    VIA_KEEP_ERRNO;
    if (rc == 0 && !via_hooks_is_guest()) {
        forget_preload();
    }
    return rc;
}
