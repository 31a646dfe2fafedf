/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Clocks, futexes and ids of threads and processes, as cheap as possible: for the preload library.
 * Of these functions the stream calls only via_os_ticks(). */
#ifndef VIA_SOCKETS_OS_H
#define VIA_SOCKETS_OS_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"

static inline uint64_t via_os_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * VIA_SEC_NS + (uint64_t)ts.tv_nsec;
}

/* A cheap counter for short times. Its rate is estimated: via_os_ticks_us. */
static inline uint64_t via_os_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return via_os_now_ns();
#endif
}

extern uint32_t via_os_ticks_us; /* ticks per microsecond */
void via_os_init(void);

static inline uint64_t via_os_us_to_ticks(uint64_t us)
{
    return us * via_os_ticks_us;
}

/*
 * The calling thread's id, cached; via_os_forked() clears it. It lies in memory that processes of
 * several pid namespaces may share by fork(), where one kernel's thread id can mean several
 * threads, or none. So a process that was forked into another namespace adds the number of its
 * space, and so do its children.
 */
#define VIA_OS_SPACE_SHIFT 22u /* the kernel's ids are smaller: PID_MAX_LIMIT, linux/threads.h */
extern uint32_t via_os_space;
extern __thread uint32_t via_os_thread_id __attribute__((tls_model("initial-exec")));

static inline uint32_t via_os_thread(void)
{
    if (via_unlikely(via_os_thread_id == 0)) {
        via_os_thread_id = via_os_space << VIA_OS_SPACE_SHIFT | (uint32_t)syscall(SYS_gettid);
    }
    return via_os_thread_id;
}
/* False if the thread runs, or is in another pid namespace, so that this process can not know. A
 * zombie is dead: its parent may wait for a token of the zombie before it reaps the zombie. */
bool via_os_is_thread_dead(uint32_t thread);
void via_os_forked(void);

/* Contains the process id. The kernel clears the word in a forked child, whatever call has made the
 * child. NULL: unavailable. */
extern const _Atomic pid_t *via_os_pid_word;

/* The process id, without a system call if the word is available. In a child that runs in this
 * process's memory (vfork) it is this process's. */
static inline pid_t via_os_pid(void)
{
    const _Atomic pid_t *word = via_os_pid_word;
    pid_t pid = via_likely(word != NULL) ? atomic_load_explicit(word, memory_order_relaxed) : 0;
    return via_likely(pid != 0) ? pid : getpid();
}

/* True in a child of vfork() or the like, which runs in its parent's memory and has descriptors of
 * its own: the parent does not have what the child opens. Makes a system call. */
static inline bool via_os_is_guest(void)
{
    return getpid() != via_os_pid();
}

static inline void via_os_restore_errno(const int *saved)
{
    errno = *saved;
}

/* Keeps errno as it is here: restores it at the end of the block. */
#define VIA_KEEP_ERRNO \
    const int via_saved_errno __attribute__((cleanup(via_os_restore_errno))) = errno

/* The time left until the deadline, for a call's timeout: storage, filled (with 0 after the
 * deadline), or NULL for VIA_NEVER_NS. */
struct timespec *via_os_time_left(uint64_t deadline_ns, struct timespec *storage);

/* Pauses for less than a second. A signal ends the pause early. errno is unspecified. */
void via_os_pause(uint64_t ns);

/* Sleeps while *word is value, up to timeout_ns. Spurious returns happen. errno is unspecified. */
void via_os_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
/* Wakes one thread. */
void via_os_futex_wake(_Atomic uint32_t *word);

/* True if this uid stands for one user in the kernel. False: it is the overflow uid, which may
 * stand for all users without a uid in this user namespace. errno is unspecified. */
bool via_os_uid_is_one(uid_t uid);

/* ftruncate() that extends a file. Beyond RLIMIT_FSIZE it only fails with EFBIG, while the kernel
 * would also end the program by SIGXFSZ. 0, or -1 and errno. */
int via_os_extend(int fd, uint64_t bytes);
/* Makes shared memory, and maps it for writing before it is sealed. Returns its descriptor, or a
 * negative errno. */
int via_os_memory(const char *name, size_t bytes, int seals, void **ret_memory);
/* True if fd is a memfd of ordinary pages, as of via_os_memory(), sealed against shrinking, so that
 * no access raises SIGBUS (huge pages may raise it: base/memfd.h). Once this process has called
 * via_os_memory(), calls only fcntl() and fstat(), because a seccomp filter may kill it for other
 * calls. *ret_bytes: the size. errno is unspecified. */
bool via_os_is_safe_memory(int fd, uint64_t *ret_bytes);
/* The beginning of a small file of /proc, as text; "" if it can not be read. errno is
 * unspecified. */
void via_os_read_proc(const char *name, char *ret_text, size_t room);
/* write() at the end of a regular file. RLIMIT_FSIZE as for via_os_extend(). */
ssize_t via_os_append(int fd, const void *data, size_t bytes);

#endif
