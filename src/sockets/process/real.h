/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_SOCKETS_REAL_H
#define VIA_SOCKETS_REAL_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/types.h"

/*
 * The C library's functions that this library's hooks replace. VIA_REAL(read) may be called at any
 * time, also before constructors have run; the first use of each function looks it up.
 */
/* clang-format off */
#define VIA_REAL_FUNCTIONS(F)                                                                      \
    F(int, socket, (int, int, int))                                                                \
    F(int, connect, (int, const struct sockaddr *, socklen_t))                                     \
    F(int, listen, (int, int))                                                                     \
    F(int, accept, (int, struct sockaddr *, socklen_t *))                                          \
    F(int, accept4, (int, struct sockaddr *, socklen_t *, int))                                    \
    F(int, shutdown, (int, int))                                                                   \
    F(int, close, (int))                                                                           \
    F(int, close_range, (unsigned, unsigned, int))                                                 \
    F(int, dup, (int))                                                                             \
    F(int, dup2, (int, int))                                                                       \
    F(int, dup3, (int, int, int))                                                                  \
    F(int, fcntl, (int, int, ...))                                                                 \
    F(int, ioctl, (int, unsigned long, ...))                                                       \
    F(int, getsockopt, (int, int, int, void *, socklen_t *))                                       \
    F(int, setsockopt, (int, int, int, const void *, socklen_t))                                   \
    F(ssize_t, read, (int, void *, size_t))                                                        \
    F(ssize_t, readv, (int, const struct iovec *, int))                                            \
    F(ssize_t, recv, (int, void *, size_t, int))                                                   \
    F(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *))               \
    F(ssize_t, recvmsg, (int, struct msghdr *, int))                                               \
    F(int, recvmmsg, (int, struct mmsghdr *, unsigned, int, struct timespec *))                    \
    F(ssize_t, write, (int, const void *, size_t))                                                 \
    F(ssize_t, writev, (int, const struct iovec *, int))                                           \
    F(ssize_t, send, (int, const void *, size_t, int))                                             \
    F(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))       \
    F(ssize_t, sendmsg, (int, const struct msghdr *, int))                                         \
    F(int, sendmmsg, (int, struct mmsghdr *, unsigned, int))                                       \
    F(ssize_t, sendfile, (int, int, off_t *, size_t))                                              \
    F(ssize_t, splice, (int, loff_t *, int, loff_t *, size_t, unsigned))                           \
    F(int, poll, (struct pollfd *, nfds_t, int))                                                   \
    F(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))            \
    F(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                          \
    F(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))\
    F(int, pthread_cancel, (pthread_t))                                                            \
    F(int, epoll_create, (int))                                                                    \
    F(int, epoll_create1, (int))                                                                   \
    F(int, epoll_ctl, (int, int, int, struct epoll_event *))                                       \
    F(int, epoll_wait, (int, struct epoll_event *, int, int))                                      \
    F(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))                   \
    F(int, epoll_pwait2, (int, struct epoll_event *, int, const struct timespec *,                 \
                          const sigset_t *))                                                       \
    F(int, sigaction, (int, const struct sigaction *, struct sigaction *))                         \
    F(sighandler_t, signal, (int, sighandler_t))                                                   \
    F(sighandler_t, bsd_signal, (int, sighandler_t))                                               \
    F(sighandler_t, ssignal, (int, sighandler_t))                                                  \
    F(sighandler_t, sysv_signal, (int, sighandler_t))                                              \
    F(sighandler_t, __sysv_signal, (int, sighandler_t))                                            \
    F(sighandler_t, sigset, (int, sighandler_t))                                                   \
    F(ssize_t, preadv2, (int, const struct iovec *, int, off_t, int))                              \
    F(ssize_t, pwritev2, (int, const struct iovec *, int, off_t, int))                             \
    F(int, vdprintf, (int, const char *, va_list))                                                 \
    F(int, execve, (const char *, char *const *, char *const *))                                   \
    F(int, execvpe, (const char *, char *const *, char *const *))                                  \
    F(int, fexecve, (int, char *const *, char *const *))                                           \
    F(int, execveat, (int, const char *, char *const *, char *const *, int))                       \
    F(int, posix_spawn, (pid_t *, const char *, const posix_spawn_file_actions_t *,                \
                         const posix_spawnattr_t *, char *const *, char *const *))                 \
    F(int, posix_spawnp, (pid_t *, const char *, const posix_spawn_file_actions_t *,               \
                          const posix_spawnattr_t *, char *const *, char *const *))                \
    F(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t *, int, int))             \
    F(int, system, (const char *))                                                                 \
    F(FILE *, popen, (const char *, const char *))                                                 \
    F(pid_t, fork, (void))                                                                         \
    F(pid_t, _Fork, (void))                                                                        \
    F(int, clone, (int (*)(void *), void *, int, void *, ...))                                     \
    F(FILE *, fdopen, (int, const char *))                                                         \
    F(int, fclose, (FILE *))                                                                       \
    F(int, prctl, (int, ...))                                                                      \
    F(int, chroot, (const char *))                                                                 \
    F(void, _exit, (int))

struct via_real {
#define VIA_REAL_MEMBER(type, name, arguments) type(*name) arguments;
    VIA_REAL_FUNCTIONS(VIA_REAL_MEMBER)
#undef VIA_REAL_MEMBER
};
/* clang-format on */

extern struct via_real via_real;

/* Looks all of them up; may be called again. */
void via_real_init(void);

#define VIA_REAL(name) \
    (via_likely(via_real.name != NULL) ? (void)0 : via_real_init(), via_real.name)

/* The value of a socket option that is an int; 0 if the kernel returns none. errno is
 * unspecified. */
static inline int via_real_option(int fd, int level, int name)
{
    int value = 0;
    socklen_t bytes = sizeof(value);
    return VIA_REAL(getsockopt)(fd, level, name, &value, &bytes) == 0 ? value : 0;
}

/* Hooks: functions that replace the C library's, and other names of such functions. */
#define VIA_HOOK __attribute__((visibility("default")))
#define VIA_HOOK_AS(name) __attribute__((visibility("default"), alias(#name)))

#endif
