/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What is learned about copying and fetching, for this process, and kept for the next. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sockets/io/zcopy.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

#define LINE_MAX_BYTES 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;
static struct via_zcopy_choice choices[VIA_ZCOPY_SIZES];

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
    ssize_t n = via_os_append(fd, line, (size_t)bytes);
    VIA_REAL(close)(fd);
    if (n != bytes || rename(temporary, path) != 0) {
        unlink(temporary);
    }
}

/* --- deciding ----------------------------------------------------------------------------------
 */

/* false: another thread is at it, or a fork has left it locked. */
static bool enter(void)
{
    if (!via_try_lock(&lock)) {
        return false;
    }
    if (!ready) {
        char machine[160];
        name_machine(machine, sizeof(machine), cpus_now());
        via_zcopy_begin(choices, load(machine));
        ready = true;
    }
    return true;
}

bool via_zcopy_is_fetching(size_t bytes, bool *ret_counts)
{
    int saved = errno;
    bool fetches = false;
    *ret_counts = false;
    if (enter()) {
        struct via_zcopy_choice *choice = &choices[via_zcopy_size(bytes)];
        fetches = via_zcopy_choose(choice);
        *ret_counts = via_zcopy_is_measured(choice);
        via_unlock(&lock);
    }
    errno = saved;
    return fetches;
}

void via_zcopy_took(size_t bytes, bool fetched, uint64_t ticks)
{
    int saved = errno;
    if (enter()) {
        if (via_zcopy_learn(&choices[via_zcopy_size(bytes)], fetched, bytes, ticks)) {
            char machine[160];
            name_machine(machine, sizeof(machine), cpus_now());
            store(machine, via_zcopy_least_of(choices));
        }
        via_unlock(&lock);
    }
    errno = saved;
}
