/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Measures fetching against copying, within this process: the kernel's work is the same. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sockets/os.h"
#include "sockets/real.h"
#include "sockets/side.h"
#include "sockets/zcopy.h"

#define ROUNDS 3
#define BYTES_MAX ((size_t)VIA_ZCOPY_LEAST << (VIA_ZCOPY_SIZES - 1))
#define LINE_MAX_BYTES 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic size_t tuned; /* 0: not known yet */
static bool looked;          /* whether it is kept */

/* --- measuring ---------------------------------------------------------------------------------
 */

/* As a stream does it: in pieces, through a ring. */
static uint64_t copies_ns(unsigned char *to, const unsigned char *from, unsigned char *ring,
                          size_t bytes)
{
    size_t piece = via_ring.body_bytes_max;
    size_t at = 0;
    uint64_t begin = via_os_now_ns();
    for (size_t off = 0; off < bytes; off += piece) {
        memcpy(ring + at, from + off, piece);
        atomic_signal_fence(memory_order_seq_cst); /* both copies are made */
        memcpy(to + off, ring + at, piece);
        at = (at + piece) % via_ring.data_bytes;
    }
    return via_os_now_ns() - begin;
}

static uint64_t fetch_ns(unsigned char *to, unsigned char *from, size_t bytes)
{
    struct iovec local = {.iov_base = to, .iov_len = bytes};
    struct iovec remote = {.iov_base = from, .iov_len = bytes};
    uint64_t begin = via_os_now_ns();
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    return n == (ssize_t)bytes ? via_os_now_ns() - begin : UINT64_MAX / 2;
}

static size_t measure(unsigned cpus)
{
    struct via_zcopy_times times[VIA_ZCOPY_SIZES];
    size_t mapped = 2 * BYTES_MAX + via_ring.data_bytes;
    unsigned char *memory =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return SIZE_MAX;
    }
    memset(memory, 1, mapped);
    unsigned char *from = memory;
    unsigned char *to = memory + BYTES_MAX;
    unsigned char *ring = memory + 2 * BYTES_MAX;
    for (unsigned i = 0; i < VIA_ZCOPY_SIZES; i++) {
        size_t bytes = (size_t)VIA_ZCOPY_LEAST << i;
        times[i] = (struct via_zcopy_times){.fetch_ns = UINT64_MAX / 2, .copies_ns = UINT64_MAX};
        /* The shortest of a few: whatever else the machine does makes them longer. */
        for (int round = 0; round < ROUNDS; round++) {
            times[i].copies_ns = via_min(times[i].copies_ns, copies_ns(to, from, ring, bytes));
            times[i].fetch_ns = via_min(times[i].fetch_ns, fetch_ns(to, from, bytes));
        }
    }
    munmap(memory, mapped);
    return via_zcopy_decide(times, cpus);
}

/* --- keeping -----------------------------------------------------------------------------------
 */

static unsigned cpus_now(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* What it depends on, in a word. A machine that changes its processor changes its kernel or its
 * number of CPUs, or its owner removes the file. */
static void name_machine(char *ret_name, size_t max, unsigned cpus)
{
    struct utsname uts = {.release = "?"};
    uname(&uts);
    snprintf(ret_name, max, "%.64s/%.64s/%u", uts.release, uts.machine, cpus > 1 ? 2u : 1u);
    for (char *at = ret_name; *at != '\0'; at++) {
        *at = *at > ' ' && *at <= '~' ? *at : '?';
    }
}

/* Where it is kept: a folder below the user's cache. false: nowhere. */
static bool name_folder(char *ret_path, size_t max)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    int n = -1;
    if (cache != NULL && cache[0] == '/') {
        n = snprintf(ret_path, max, "%s/viaduct", cache);
    } else {
        const char *home = getenv("HOME");
        if (home != NULL && home[0] == '/') {
            n = snprintf(ret_path, max, "%s/.cache/viaduct", home);
        }
    }
    return n > 0 && (size_t)n < max;
}

#define FILE_NAME "/zerocopy"

static size_t load(const char *machine)
{
    char path[4096 + sizeof(FILE_NAME)];
    char line[LINE_MAX_BYTES];
    size_t least = 0;
    if (!name_folder(path, 4096)) {
        return 0;
    }
    strcat(path, FILE_NAME);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return 0;
    }
    ssize_t n = VIA_REAL(read)(fd, line, sizeof(line) - 1);
    VIA_REAL(close)(fd);
    line[n > 0 ? n : 0] = '\0';
    return via_zcopy_parse(line, machine, &least) == 0 ? least : 0;
}

/* Whole or not at all; that it can not be kept only means that it is measured again. */
static void store(const char *machine, size_t least)
{
    char path[4096 + sizeof(FILE_NAME)];
    char temporary[sizeof(path) + 32];
    char line[LINE_MAX_BYTES];
    int bytes = via_zcopy_format(line, sizeof(line), machine, least);
    if (bytes < 0 || !name_folder(path, 4096)) {
        return;
    }
    /* The user's cache folder, if this is the first to use it, and ours in it. */
    char *slash = strrchr(path, '/');
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
    mkdir(path, 0700);
    strcat(path, FILE_NAME);
    snprintf(temporary, sizeof(temporary), "%s.%d", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return;
    }
    ssize_t n = VIA_REAL(write)(fd, line, (size_t)bytes);
    VIA_REAL(close)(fd);
    if (n != bytes || rename(temporary, path) != 0) {
        unlink(temporary);
    }
}

static size_t find_out(bool may_measure)
{
    int saved = errno;
    if (pthread_mutex_trylock(&lock) != 0) {
        return SIZE_MAX; /* another thread is at it; or a fork has left it locked */
    }
    size_t least = atomic_load_explicit(&tuned, memory_order_relaxed);
    if (least == 0 && (may_measure || !looked)) {
        char machine[160];
        unsigned cpus = cpus_now();
        looked = true;
        name_machine(machine, sizeof(machine), cpus);
        least = load(machine);
        if (least == 0 && may_measure) {
            least = measure(cpus);
            store(machine, least);
        }
        atomic_store_explicit(&tuned, least, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return least;
}

size_t via_zcopy_tuned(void)
{
    size_t least = atomic_load_explicit(&tuned, memory_order_relaxed);
    return via_likely(least != 0) ? least : find_out(true);
}

size_t via_zcopy_known(void)
{
    size_t least = atomic_load_explicit(&tuned, memory_order_relaxed);
    return via_likely(least != 0) || looked ? least : find_out(false);
}
