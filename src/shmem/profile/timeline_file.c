/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/profile/timeline_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES_MAX 100000u /* another PE has renamed the file in the meantime */

static const char array_end[] = "\n]\n";

static char *part_of(const char *path)
{
    char *part = NULL;

    return asprintf(&part, "%s.part", path) < 0 ? NULL : part;
}

void via_profile_timeline_reset(const char *path)
{
    char *part = part_of(path);

    unlink(path);
    if (part)
        unlink(part);
    free(part);
}

static bool has_name(int fd, const char *name)
{
    struct stat mine, named;

    return fstat(fd, &mine) == 0 && stat(name, &named) == 0 && mine.st_dev == named.st_dev &&
           mine.st_ino == named.st_ino;
}

/* Locks the file that has the name when the lock is held: another PE may rename the file before
 * that. */
static int open_locked(const char *part)
{
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) == 0 && has_name(fd, part))
            return fd;
        close(fd);
    }
    errno = EBUSY;
    return -1;
}

static bool copy_all(int from, int to)
{
    ssize_t copied = 1;

    while (copied > 0)
        copied = sendfile(to, from, NULL, 1u << 30);
    return copied == 0;
}

/* If PATH exists, its contents replace those of PATH.part, which a PE that was killed has left.
 * While PEs share PATH.part their events stay, because the first of them has removed PATH. */
static bool take_over(int fd, const char *path, bool shared)
{
    int earlier = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = true;

    if (earlier < 0 && errno != ENOENT)
        return false;
    if (earlier >= 0 || !shared)
        good = ftruncate(fd, 0) == 0;
    if (earlier >= 0) {
        good = good && copy_all(earlier, fd) && (!shared || unlink(path) == 0);
        close(earlier);
    }
    return good;
}

/* Moves to the end of the file's array to continue it, or begins an array. */
static bool begin_array(FILE *out)
{
    off_t bytes = (off_t)sizeof(array_end) - 1;
    struct stat info;

    if (fstat(fileno(out), &info) < 0)
        return false;
    bool begun = info.st_size > bytes;
    if (fseeko(out, begun ? info.st_size - bytes : 0, SEEK_SET) < 0)
        return false;
    return fputs(begun ? ",\n" : "[\n", out) >= 0;
}

FILE *via_profile_timeline_open(const char *path, bool shared)
{
    char *part = part_of(path);
    int fd = part ? open_locked(part) : -1;
    FILE *out = fd >= 0 && take_over(fd, path, shared) ? fdopen(fd, "r+") : NULL;
    bool good = out && begin_array(out);
    int error = errno;

    free(part);
    if (good)
        return out;
    if (out)
        fclose(out);
    else if (fd >= 0)
        close(fd);
    errno = error;
    return NULL;
}

bool via_profile_timeline_close(FILE *out, const char *path, bool shared)
{
    bool good = fputs(array_end, out) >= 0 && fflush(out) == 0 && !ferror(out);

    if (good && !shared)
        good = via_profile_timeline_finish(path);
    int error = errno;
    fclose(out); /* releases the lock */
    errno = error;
    return good;
}

bool via_profile_timeline_finish(const char *path)
{
    char *part = part_of(path);
    bool good = part && (rename(part, path) == 0 || errno == ENOENT);
    int error = errno;

    free(part);
    errno = error;
    return good;
}
