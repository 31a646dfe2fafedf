/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The library's own life: loading, fork, stdio, exit. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "sockets/bell.h"
#include "sockets/conn.h"
#include "sockets/diag.h"
#include "sockets/epoll_set.h"
#include "sockets/fabric.h"
#include "sockets/hooks.h"
#include "sockets/os.h"
#include "sockets/pool.h"
#include "sockets/real.h"
#include "sockets/wait.h"
#include "sockets/zcopy.h"

bool via_hooks_ready;
pid_t via_hooks_pid;

static void before_fork(void);
static void after_fork(void);
static void in_child(void);

void via_hooks_init_slowly(void)
{
    if (via_hooks_ready) {
        return;
    }
    int saved = errno;
    via_real_init();
    via_os_init();
    via_policy_init();
    via_zcopy_init();
    if (via_fds_init() != 0) {
        via_policy.on = false;
    }
    via_hooks_pid = getpid();
    pthread_atfork(before_fork, after_fork, in_child);
    via_hooks_ready = true;
    errno = saved;
}

__attribute__((constructor)) static void begin(void)
{
    via_hooks_init();
}

__attribute__((destructor)) static void end(void)
{
    via_stats_write();
    via_fabric_end();
}

VIA_HOOK void _exit(int status)
{
    via_stats_write();
    via_fabric_end();
    VIA_REAL(_exit)(status);
    __builtin_unreachable();
}

VIA_HOOK void _Exit(int status)
{
    _exit(status);
}

/* --- fork --------------------------------------------------------------------------------------
 */

/* By pthread_atfork(), as the C library forks in several of its functions. */
static void before_fork(void)
{
    via_ep_fork_prepare();
    via_conn_fork_prepare();
    via_hidden_fork_prepare();
    via_pool_fork_prepare();
}

static void after_fork(void)
{
    via_pool_fork_done();
    via_hidden_fork_done();
    via_conn_fork_parent();
    via_ep_fork_parent();
}

static void in_child(void)
{
    via_hooks_pid = getpid();
    via_os_forked();
    via_hidden_fork_done();
    via_pool_fork_done();
    via_stats_forked();
    via_conn_fork_child();
    via_side_forked();
    via_ep_fork_child();
    via_sock_bell_forked();
    via_wait_forked();
    via_diag_forked();
    via_fabric_forked();
}

VIA_HOOK pid_t fork(void)
{
    via_hooks_init();
    pid_t pid = VIA_REAL(fork)();
    if (pid < 0) {
        via_conn_fork_failed();
    }
    return pid;
}

/* --- stdio: its reads and writes do not come by here -------------------------------------------
 */

VIA_HOOK FILE *fdopen(int fd, const char *mode)
{
    struct via_op op;
    if (via_op_begin(&op, fd)) {
        if (via_conn_is_unsettled(op.conn)) {
            via_conn_settle_plain(op.conn, VIA_REASON_STDIO);
        }
        via_op_end(&op);
    }
    return VIA_REAL(fdopen)(fd, mode);
}

VIA_HOOK int fclose(FILE *stream)
{
    int fd = stream != NULL ? fileno(stream) : -1;
    if (via_unlikely(via_fd_peek(fd) != NULL)) {
        fflush(stream); /* what it holds must go before what we say in parting */
        via_hooks_forget(fd);
    }
    return VIA_REAL(fclose)(stream);
}
