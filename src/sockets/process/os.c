/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/process/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

uint32_t via_os_ticks_us = 1000;
uint32_t via_os_space;

__thread uint32_t via_os_thread_id __attribute__((tls_model("initial-exec")));

#define PAGE 4096u

static _Atomic pid_t *own_pid;
const _Atomic pid_t *via_os_pid_word;

static void remember_pid(void)
{
    if (own_pid != NULL) {
        atomic_store_explicit(own_pid, getpid(), memory_order_relaxed);
    }
}

/* The word has a page of its own, because MADV_WIPEONFORK works on pages. */
static void make_pid_word(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return;
    }
    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0) {
        munmap(page, PAGE);
        return;
    }
    own_pid = page;
    remember_pid();
    via_os_pid_word = own_pid;
}

/* The number of pid namespaces into which this process and its descendants have forked; all these
 * processes share it. */
static _Atomic uint32_t *spaces;

static void make_space_count(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    spaces = page != MAP_FAILED ? page : NULL;
}

void via_os_init(void)
{
    make_pid_word();
    make_space_count();
    /* 50 us give the rate to a few percent, which is enough for its users. */
    uint64_t ns = via_os_now_ns();
    uint64_t ticks = via_os_ticks();
    uint64_t passed_ns;
    do {
        passed_ns = via_os_now_ns() - ns;
    } while (passed_ns < 50 * VIA_USEC_NS);
    uint64_t rate = (via_os_ticks() - ticks) * VIA_USEC_NS / passed_ns;
    via_os_ticks_us = rate == 0 ? 1 : (uint32_t)rate;
}

/* Not 0, which stands for the namespace in which the library was loaded. */
static uint32_t make_space(void)
{
    uint32_t number = spaces != NULL ? atomic_fetch_add_explicit(spaces, 1, memory_order_relaxed)
                                     : (uint32_t)via_os_ticks();
    return 1 + number % (UINT32_MAX >> VIA_OS_SPACE_SHIFT);
}

void via_os_forked(void)
{
    via_os_thread_id = 0;
    if (getppid() == 0) { /* the parent is in another namespace */
        via_os_space = make_space();
    }
    remember_pid();
}

/* Only the first thread of a process becomes a zombie. pidfd_open() fails for other threads, and
 * before Linux 5.3. */
static bool is_zombie(pid_t pid)
{
    const struct timespec none = {.tv_sec = 0};
    struct pollfd process = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    bool ended = process.fd >= 0 && syscall(SYS_ppoll, &process, 1, &none, NULL, 0) == 1;
    if (process.fd >= 0) {
        syscall(SYS_close, process.fd);
    }
    return ended;
}

bool via_os_is_thread_dead(uint32_t thread)
{
    pid_t tid = (pid_t)(thread & ((1u << VIA_OS_SPACE_SHIFT) - 1));
    return thread >> VIA_OS_SPACE_SHIFT == via_os_space &&
           ((kill(tid, 0) != 0 && errno == ESRCH) || is_zombie(tid));
}

struct timespec *via_os_time_left(uint64_t deadline_ns, struct timespec *storage)
{
    if (deadline_ns == VIA_NEVER_NS) {
        return NULL;
    }
    uint64_t now = deadline_ns != 0 ? via_os_now_ns() : 0;
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    *storage = (struct timespec){.tv_sec = (time_t)(left / VIA_SEC_NS),
                                 .tv_nsec = (long)(left % VIA_SEC_NS)};
    return storage;
}

void via_os_pause(uint64_t ns)
{
    const struct timespec pause = {.tv_nsec = (long)ns};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
}

void via_os_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / VIA_SEC_NS),
                          .tv_nsec = (long)(timeout_ns % VIA_SEC_NS)};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}

void via_os_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void via_os_read_proc(const char *name, char *ret_text, size_t room)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? syscall(SYS_read, fd, ret_text, room - 1) : 0;
    ret_text[n > 0 ? n : 0] = 0;
    if (fd >= 0) {
        syscall(SYS_close, fd);
    }
}

/* The documented default (Documentation/admin-guide/sysctl/kernel.rst). */
#define OVERFLOW_UID 65534u

static uid_t overflow_uid(void)
{
    static _Atomic uint32_t known; /* plus 1 */
    uint32_t uid = atomic_load_explicit(&known, memory_order_relaxed);
    if (uid == 0) {
        char text[16];
        via_os_read_proc("/proc/sys/kernel/overflowuid", text, sizeof(text));
        uid = (text[0] != 0 ? (uint32_t)strtoul(text, NULL, 10) : OVERFLOW_UID) + 1;
        atomic_store_explicit(&known, uid, memory_order_relaxed);
    }
    return uid - 1;
}

bool via_os_uid_is_one(uid_t uid)
{
    char map[64];
    unsigned long first;
    unsigned long outside;
    unsigned long count;
    if (via_likely(uid != overflow_uid())) {
        return true;
    }
    /* Read each time, because a process may enter another user namespace. */
    via_os_read_proc("/proc/self/uid_map", map, sizeof(map));
    return sscanf(map, "%lu %lu %lu", &first, &outside, &count) == 3 && first == 0 &&
           count >= UINT32_MAX;
}

/* False if RLIMIT_FSIZE forbids a file of that size, with errno set. */
static bool is_size_allowed(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
        errno = EFBIG;
        return false;
    }
    return true;
}

int via_os_extend(int fd, uint64_t bytes)
{
    return is_size_allowed(bytes) ? ftruncate(fd, (off_t)bytes) : -1;
}

/* The file system of all memfds of ordinary pages is one instance of tmpfs, which the kernel has
 * made for itself (mm/shmem.c, __shmem_file_setup()); those of huge pages are on others
 * (fs/hugetlbfs/inode.c, hugetlb_file_setup()). */
static _Atomic uint64_t memory_device; /* plus 1; 0: not known yet */

static uint64_t note_memory_device(int fd)
{
    struct stat stat;
    uint64_t device = atomic_load_explicit(&memory_device, memory_order_relaxed);
    if (device == 0 && fstat(fd, &stat) == 0) {
        device = (uint64_t)stat.st_dev + 1;
        atomic_store_explicit(&memory_device, device, memory_order_relaxed);
    }
    return device;
}

static uint64_t find_memory_device(void)
{
    uint64_t device = atomic_load_explicit(&memory_device, memory_order_relaxed);
    int fd = device == 0 ? memfd_create("viaduct-probe", MFD_CLOEXEC) : -1;
    if (fd >= 0) {
        device = note_memory_device(fd);
        syscall(SYS_close, fd);
    }
    return device;
}

bool via_os_is_safe_memory(int fd, uint64_t *ret_bytes)
{
    struct stat stat;
    long seals = syscall(SYS_fcntl, fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &stat) != 0 ||
        (uint64_t)stat.st_dev + 1 != find_memory_device()) {
        return false;
    }
    *ret_bytes = (uint64_t)stat.st_size;
    return true;
}

int via_os_memory(const char *name, size_t bytes, int seals, void **ret_memory)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    void *memory = MAP_FAILED;
    (void)note_memory_device(fd);
    if (via_os_extend(fd, bytes) == 0) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    if (memory == MAP_FAILED || syscall(SYS_fcntl, fd, F_ADD_SEALS, seals) != 0) {
        int error = errno;
        syscall(SYS_close, fd);
        if (memory != MAP_FAILED) {
            munmap(memory, bytes);
        }
        return -error;
    }
    *ret_memory = memory;
    return fd;
}

ssize_t via_os_append(int fd, const void *data, size_t bytes)
{
    struct stat now;
    if (fstat(fd, &now) != 0 || !is_size_allowed((uint64_t)now.st_size + bytes)) {
        return -1;
    }
    return syscall(SYS_write, fd, data, bytes);
}
