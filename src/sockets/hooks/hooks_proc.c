/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The life of the library in a process: loading, fork, stdio, exit. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sockets/conn/bell.h"
#include "sockets/conn/conn.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/quiet.h"
#include "sockets/conn/share.h"
#include "sockets/conn/steward.h"
#include "sockets/epoll/epoll_set.h"
#include "sockets/fabric/fabric.h"
#include "sockets/hooks/hooks.h"
#include "sockets/io/io.h"
#include "sockets/io/wait.h"
#include "sockets/io/zcopy.h"
#include "sockets/meet/diag.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/pool.h"
#include "sockets/process/real.h"

/*
 * The C library's functions behind atexit(), at_quick_exit() and pthread_atfork(); no header
 * declares them. library: those functions pass a handle, so that the handlers are removed before
 * the library's destructors run. NULL: the handlers stay, because destructors of other libraries
 * may still use connections and fork.
 */
int __cxa_atexit(void (*handler)(void *), void *argument, void *library);
int __cxa_at_quick_exit(void (*handler)(void *), void *library);
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *library);

bool via_hooks_ready;
pid_t via_hooks_pid;

static void before_fork(void);
static void after_fork(void);
static void in_child(void);

void via_hooks_init_slowly(void)
{
    /* A call below may enter this function again: another preloaded library that intercepts it may
     * initialize itself then by calls that this library hooks. libasan calls sigaction(). */
    static bool has_begun;
    if (has_begun) {
        return;
    }
    has_begun = true;
    VIA_KEEP_ERRNO;
    via_real_init();
    via_os_init();
    via_policy_init();
    via_zcopy_init();
    if (via_fds_init() != 0) {
        via_policy.on = false;
    }
    via_hooks_pid = getpid();
    __register_atfork(before_fork, after_fork, in_child, NULL);
    via_hooks_ready = true;
}

/* Sends pending messages to the peer now, because the program makes no later call. */
static bool end_conn(struct via_op *op, const void *unused)
{
    (void)unused;
    if (via_conn_fd(op->conn) != op->fd) {
        return false; /* the connection has several descriptors, and is visited once for each */
    }
    if (via_conn_has_demotion_request(op->conn) || via_side_is_in(op->side, VIA_PHASES_REPLAY)) {
        via_conn_end(op->conn, op->fd);
    }
    via_conn_announce_exit(op->conn, op->fd);
    return true;
}

static void end(void)
{
    static _Atomic bool ended;
    if (!atomic_exchange_explicit(&ended, true, memory_order_relaxed)) {
        via_op_each(end_conn, NULL);
        via_steward_end();
        via_stats_write();
        via_share_end();
        via_fabric_end();
    }
}

static void end_at_exit(void *unused)
{
    (void)unused;
    end();
}

/* exit() runs handlers in the reverse order of their registration. The C library registers the
 * destructors of all libraries after the constructors have run, so it calls end() after the
 * destructors. */
__attribute__((constructor)) static void begin(void)
{
    via_hooks_init();
    __cxa_atexit(end_at_exit, NULL, NULL);
    __cxa_at_quick_exit(end_at_exit, NULL);
}

VIA_HOOK void _exit(int status)
{
    if (via_hooks_ready && !via_hooks_is_guest()) {
        end();
    }
    VIA_REAL(_exit)(status);
    __builtin_unreachable();
}

VIA_HOOK void _Exit(int status)
{
    _exit(status);
}

/* --- fork ------------------------------------------------------------------------------------ */

/* Registered by pthread_atfork(), because several functions of the C library fork. */
static void before_fork(void)
{
    via_conn_fork_begin();
    via_fds_fork_prepare();
    via_fabric_fork_prepare();
    via_ep_fork_prepare();
    via_conn_fork_prepare();
    via_lock(&via_hidden_lock);
    via_lock(&via_pool_lock);
}

static void after_fork(void)
{
    via_unlock(&via_pool_lock);
    via_unlock(&via_hidden_lock);
    via_conn_fork_parent();
    via_ep_fork_parent();
    via_side_forked(false);
    via_fds_fork_parent();
}

static void in_child(void)
{
    via_lock_fork_child_begin();
    via_hooks_pid = getpid();
    via_os_forked();
    via_fds_fork_child();
    via_unlock(&via_hidden_lock);
    via_unlock(&via_pool_lock);
    via_stats_forked();
    via_conn_fork_child();
    via_side_forked(true);
    via_ep_fork_child();
    via_sock_bell_forked();
    via_local_forked();
    via_quiet_forked();
    via_share_forked();
    via_wait_forked();
    via_steward_forked();
    via_diag_forked();
    via_fabric_forked();
    via_lock_fork_child_end();
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

/* --- children without atfork handlers -------------------------------------------------------- */

VIA_HOOK_AS(clone)
int __clone(int (*run)(void *), void *stack, int flags, void *argument, ...) __THROW;
#if !__GLIBC_PREREQ(2, 34)
VIA_HOOK pid_t _Fork(void);
#endif

/* True if a child made with these flags has its own copy of memory and descriptors, like a child of
 * fork(). A child with thread-local storage of its own (CLONE_SETTLS) must not call the library's
 * functions. */
static bool is_copy(unsigned long flags)
{
    return (flags & (CLONE_VM | CLONE_FILES | CLONE_SETTLS)) == 0 && via_hooks_ready &&
           !via_hooks_is_guest();
}

/* Called in parent and child, with the call's result. */
static void end_fork(pid_t pid)
{
    VIA_KEEP_ERRNO;
    if (pid == 0) {
        in_child();
        if (!via_is_alone()) {
            via_steward_forbid();
        }
    } else {
        after_fork();
    }
    if (pid < 0) {
        via_conn_fork_failed();
    }
}

VIA_HOOK pid_t _Fork(void)
{
    if (!is_copy(0)) {
        return VIA_REAL(_Fork)();
    }
    before_fork();
    pid_t pid = VIA_REAL(_Fork)();
    end_fork(pid);
    return pid;
}

#if defined(__x86_64__)
/* syscall() with SYS_fork, or SYS_clone that continues on the same stack. */
long via_hooks_syscall_clone(long number, unsigned long flags, void *stack, void *third,
                             void *fourth, void *fifth)
{
    if (!is_copy(number == SYS_clone ? flags : 0)) {
        return via_hooks_real_syscall(number, flags, stack, third, fourth, fifth);
    }
    before_fork();
    long pid = via_hooks_real_syscall(number, flags, stack, third, fourth, fifth);
    end_fork((pid_t)pid);
    return pid;
}
#endif

struct first_call {
    int (*run)(void *argument);
    void *argument;
};

/* Runs on the child's stack; `of_parent` lies in the child's copy of the parent's stack. */
static int run_child(void *of_parent)
{
    const struct first_call *call = of_parent;
    end_fork(0);
    int status = call->run(call->argument);
    end(); /* like _exit(), which the C library's clone() calls without a hook */
    return status;
}

VIA_HOOK int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
    va_list list;
    va_start(list, argument);
    void *parent_tid = va_arg(list, void *);
    void *tls = va_arg(list, void *);
    void *child_tid = va_arg(list, void *);
    va_end(list);
    if (!is_copy((unsigned long)flags) || run == NULL || stack == NULL) {
        return VIA_REAL(clone)(run, stack, flags, argument, parent_tid, tls, child_tid);
    }
    struct first_call call = {.run = run, .argument = argument};
    before_fork();
    int pid = VIA_REAL(clone)(run_child, stack, flags, &call, parent_tid, tls, child_tid);
    end_fork(pid);
    return pid;
}

/* --- stdio: its reads and writes bypass the hooks -------------------------------------------- */

/* For a connection that can not return to the kernel any more: the stream calls read() and write()
 * of this library. */
static ssize_t cookie_read(void *of_fd, char *buf, size_t bytes)
{
    return read((int)(intptr_t)of_fd, buf, bytes);
}

static ssize_t cookie_write(void *of_fd, const char *buf, size_t bytes)
{
    ssize_t n = write((int)(intptr_t)of_fd, buf, bytes);
    return n < 0 ? 0 : n; /* 0 means an error: fopencookie(3) */
}

static int cookie_close(void *of_fd)
{
    return close((int)(intptr_t)of_fd);
}

static FILE *open_stream(int fd, const char *mode, cookie_close_function_t *close_function)
{
    cookie_io_functions_t functions = {
        .read = cookie_read, .write = cookie_write, .close = close_function};
    return fopencookie((void *)(intptr_t)fd, mode, functions);
}

VIA_HOOK FILE *fdopen(int fd, const char *mode)
{
    int rc = via_fd_demote(fd, VIA_REASON_STDIO);
    return rc == 0 || rc == -ETIMEDOUT ? VIA_REAL(fdopen)(fd, mode)
                                       : open_stream(fd, mode, cookie_close);
}

/* Writes through a stream of cookie_write(), because the C library's function bypasses the
 * hooks. */
VIA_HOOK int vdprintf(int fd, const char *format, va_list list)
{
    const struct via_file *file = via_fd_peek(fd);
    if (file == NULL || file->kind != VIA_FILE_CONN) {
        return VIA_REAL(vdprintf)(fd, format, list);
    }
    FILE *stream = open_stream(fd, "w", NULL);
    int bytes = stream != NULL ? vfprintf(stream, format, list) : -1;
    return stream != NULL && fclose(stream) != 0 ? -1 : bytes;
}

VIA_HOOK int dprintf(int fd, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int rc = vdprintf(fd, format, list);
    va_end(list);
    return rc;
}

VIA_HOOK int __vdprintf_chk(int fd, int flag, const char *format, va_list list) VIA_PRINTF(3, 0);
VIA_HOOK int __dprintf_chk(int fd, int flag, const char *format, ...) VIA_PRINTF(3, 4);

VIA_HOOK int __vdprintf_chk(int fd, int flag, const char *format, va_list list)
{
    (void)flag; /* it only makes %n in writable memory an error */
    return vdprintf(fd, format, list);
}

VIA_HOOK int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int rc = __vdprintf_chk(fd, flag, format, list);
    va_end(list);
    return rc;
}

VIA_HOOK int fclose(FILE *stream)
{
    int fd = fileno(stream); /* NULL crashes here, as in the C library's fclose() */
    if (via_unlikely(via_fd_peek(fd) != NULL)) {
        fflush(stream); /* the stream's buffered bytes must precede the end of the connection */
        via_hooks_forget(fd);
    }
    return VIA_REAL(fclose)(stream);
}
