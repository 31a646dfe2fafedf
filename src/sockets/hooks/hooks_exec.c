/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The C library's calls by which descriptors get into other programs. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sockets/conn/conn.h"
#include "sockets/conn/demote.h"
#include "sockets/conn/steward.h"
#include "sockets/hooks/hooks.h"
#include "sockets/process/real.h"

/* --- exec ------------------------------------------------------------------------------------ */

/* Called before exec. A child of vfork() shares its parent's memory, so it must not change counts
 * there. */
static bool begin_exec(void)
{
    via_demote_inherited();
    if (!via_hooks_is_guest()) {
        via_steward_end();
    }
    return !via_conn_is_none() && !via_hooks_is_guest() && via_conn_exec_begin();
}

static int fail_exec(bool begun, int rc)
{
    if (begun) {
        via_conn_exec_failed();
    }
    return rc;
}

#define VIA_EXEC_HOOK(name, parameters, arguments)         \
    VIA_HOOK int name parameters                           \
    {                                                      \
        bool begun = begin_exec();                         \
        return fail_exec(begun, VIA_REAL(name) arguments); \
    }
VIA_EXEC_HOOK(execve, (const char *path, char *const *argv, char *const *envp), (path, argv, envp))
VIA_EXEC_HOOK(execvpe, (const char *file, char *const *argv, char *const *envp), (file, argv, envp))
VIA_EXEC_HOOK(fexecve, (int fd, char *const *argv, char *const *envp), (fd, argv, envp))
VIA_EXEC_HOOK(execveat, (int fd, const char *path, char *const *argv, char *const *envp, int flags),
              (fd, path, argv, envp, flags))

VIA_HOOK int execv(const char *path, char *const *argv)
{
    return execve(path, argv, environ);
}

VIA_HOOK int execvp(const char *file, char *const *argv)
{
    return execvpe(file, argv, environ);
}

#define WORDS_MAX 4096

/* Copies the arguments of an execl() up to NULL into the caller's storage: a child of vfork() must
 * not call malloc(). NULL: there are too many. */
static char *const *words_of(const char *first, va_list *list, char **storage)
{
    int count = 0;
    for (const char *word = first; count < WORDS_MAX; word = va_arg(*list, const char *)) {
        storage[count++] = (char *)(uintptr_t)word;
        if (word == NULL) {
            return storage;
        }
    }
    errno = E2BIG;
    return NULL;
}

/* clang-format off */
#define VIA_EXECL_HOOK(name, call, environment)                                                     \
    VIA_HOOK int name(const char *path, const char *word, ...)                                     \
    {                                                                                              \
        char *storage[WORDS_MAX];                                                                  \
        va_list list;                                                                              \
        va_start(list, word);                                                                      \
        char *const *argv = words_of(word, &list, storage);                                        \
        char *const *envp = argv != NULL ? environment : NULL;                                     \
        va_end(list);                                                                              \
        return argv != NULL ? call(path, argv, envp) : -1;                                         \
    }
/* clang-format on */
VIA_EXECL_HOOK(execl, execve, environ)
VIA_EXECL_HOOK(execlp, execvpe, environ)
VIA_EXECL_HOOK(execle, execve, va_arg(list, char *const *))

/* --- shells: these start them inside of the C library ---------------------------------------- */

VIA_HOOK int system(const char *command)
{
    if (command != NULL) {
        via_demote_inherited();
    }
    return VIA_REAL(system)(command);
}

VIA_HOOK FILE *popen(const char *command, const char *mode)
{
    via_demote_inherited();
    return VIA_REAL(popen)(command, mode);
}

/* --- posix_spawn ----------------------------------------------------------------------------- */

#define VIA_SPAWN_HOOK(name)                                                                   \
    VIA_HOOK int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, \
                      const posix_spawnattr_t *attr, char *const *argv, char *const *envp)     \
    {                                                                                          \
        via_demote_inherited();                                                                \
        return VIA_REAL(name)(pid, path, actions, attr, argv, envp);                           \
    }
VIA_SPAWN_HOOK(posix_spawn)
VIA_SPAWN_HOOK(posix_spawnp)

/* Demotes the connection: the child uses fd even if it is close-on-exec in this process. */
VIA_HOOK int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd,
                                              int new_fd)
{
    via_fd_demote(fd, VIA_REASON_EXEC);
    return VIA_REAL(posix_spawn_file_actions_adddup2)(actions, fd, new_fd);
}
