/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES (256u << 10)
#define LINE_BYTES 1200u
#define END_NS VIA_SEC_NS

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;    /* wakes the thread: the ring has lines, or `ending` */
    pthread_cond_t written; /* wakes via_daemon_log_end(): the ring is empty */
    pthread_t thread;
    bool running; /* under the lock, as all following fields */
    bool ending;
    size_t head, used; /* of the ring */
    uint64_t lost;
    int lost_cause; /* errno of writing; 0: the ring had no room */
    size_t bytes_max;
    unsigned char ring[RING_BYTES];

    /* Only the thread uses these. */
    char path[256];
    char old_path[264];
    bool is_file; /* standard error is the file at `path` */
    size_t file_bytes;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .more = PTHREAD_COND_INITIALIZER,
            .written = PTHREAD_COND_INITIALIZER};

/* --- the thread ------------------------------------------------------------------------------- */

static void check_log_file(void)
{
    struct stat standard;
    struct stat there;
    writer.is_file = fstat(STDERR_FILENO, &standard) == 0 && S_ISREG(standard.st_mode) &&
                     stat(writer.path, &there) == 0 && standard.st_ino == there.st_ino &&
                     standard.st_dev == there.st_dev;
    writer.file_bytes = writer.is_file ? (size_t)standard.st_size : 0;
}

static void begin_new_file(void)
{
    if (rename(writer.path, writer.old_path) != 0) {
        writer.file_bytes = 0; /* tried again after the same number of bytes */
        return;
    }
    int fd =
        open(writer.path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        rename(writer.old_path, writer.path);
        writer.file_bytes = 0;
        return;
    }
    dup2(fd, STDERR_FILENO);
    close(fd);
    check_log_file();
}

/* Writes everything, except after an error. 0 or a positive errno. */
static int write_all(struct iovec *iov, int count)
{
    while (count != 0) {
        ssize_t bytes = writev(STDERR_FILENO, iov, count);
        if (bytes < 0 && errno != EINTR) {
            return errno;
        }
        for (size_t left = (size_t)via_max(bytes, (ssize_t)0); count != 0;) {
            size_t part = via_min(left, iov->iov_len);
            iov->iov_base = (unsigned char *)iov->iov_base + part;
            iov->iov_len -= part;
            left -= part;
            if (iov->iov_len != 0) {
                break;
            }
            iov++;
            count--;
        }
    }
    return 0;
}

/* The number of lines in the bytes that could not be written. */
static unsigned count_lines(const struct iovec *iov, int count)
{
    unsigned lines = 0;
    for (int i = 0; i < count; i++) {
        const unsigned char *bytes = iov[i].iov_base;
        for (size_t k = 0; k < iov[i].iov_len; k++) {
            lines += bytes[k] == '\n';
        }
    }
    return lines;
}

/* [lock] Number of bytes of whole lines, at most `max`, which exceeds the length of any line. */
static size_t whole_lines(size_t max)
{
    size_t bytes = via_min(writer.used, max);
    while (bytes != 0 && writer.ring[(writer.head + bytes - 1) % RING_BYTES] != '\n') {
        bytes--;
    }
    return bytes;
}

/* [lock, released meanwhile] Writes whole lines, at most the bytes that a file may have. */
static void write_lines(void)
{
    size_t head = writer.head;
    size_t bytes_max = writer.bytes_max;
    size_t used = writer.is_file ? whole_lines(bytes_max / 2) : writer.used;
    size_t first = via_min(used, RING_BYTES - head);
    struct iovec iov[2] = {{.iov_base = writer.ring + head, .iov_len = first},
                           {.iov_base = writer.ring, .iov_len = used - first}};
    pthread_mutex_unlock(&writer.lock);
    if (writer.is_file && writer.file_bytes + used > bytes_max / 2) {
        begin_new_file();
    }
    int count = used > first ? 2 : 1;
    int cause = write_all(iov, count);
    unsigned lost = cause != 0 ? count_lines(iov, count) : 0;
    writer.file_bytes += cause == 0 ? used : 0;
    pthread_mutex_lock(&writer.lock);
    writer.lost += lost;
    writer.lost_cause = cause != 0 ? cause : writer.lost_cause;
    writer.head = (head + used) % RING_BYTES;
    writer.used -= used;
}

static void *serve(void *unused)
{
    pthread_mutex_lock(&writer.lock);
    while (!writer.ending || writer.used != 0) {
        if (writer.used == 0) {
            pthread_cond_wait(&writer.more, &writer.lock);
        } else {
            write_lines();
        }
    }
    writer.running = false;
    pthread_cond_signal(&writer.written);
    pthread_mutex_unlock(&writer.lock);
    return unused;
}

/* --- all threads ------------------------------------------------------------------------------ */

static size_t format_line(char *line, const char *level, const char *text)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    size_t bytes = strftime(line, LINE_BYTES, "%F %T", &tm);
    int more = snprintf(line + bytes, LINE_BYTES - bytes, ".%03ld %s: %s\n", now.tv_nsec / 1000000,
                        level, text);
    bytes = via_min(bytes + (size_t)via_max(more, 0), (size_t)LINE_BYTES - 1);
    line[bytes - 1] = '\n';
    return bytes;
}

/* [lock] False: no room. */
static bool add(const char *line, size_t bytes)
{
    if (bytes > RING_BYTES - writer.used) {
        return false;
    }
    size_t tail = (writer.head + writer.used) % RING_BYTES;
    size_t first = via_min(bytes, RING_BYTES - tail);
    memcpy(writer.ring + tail, line, first);
    memcpy(writer.ring, line + first, bytes - first);
    writer.used += bytes;
    return true;
}

/* [lock] Adds a line. If lines were lost before, adds their count first. */
static void add_or_count(const char *line, size_t bytes)
{
    if (writer.lost != 0) {
        char text[160];
        char lost[LINE_BYTES];
        snprintf(text, sizeof(text), "%llu messages lost: %s", (unsigned long long)writer.lost,
                 writer.lost_cause != 0 ? strerror(writer.lost_cause)
                                        : "they arrived faster than they were written");
        size_t lost_bytes = format_line(lost, "warn", text);
        if (!add(lost, lost_bytes)) {
            writer.lost++;
            return;
        }
        writer.lost = 0;
        writer.lost_cause = 0;
    }
    writer.lost += add(line, bytes) ? 0 : 1;
    pthread_cond_signal(&writer.more);
}

void via_daemon_log(void *ctx, const struct via_log_message *message)
{
    char line[LINE_BYTES];
    (void)ctx;
    size_t bytes = format_line(line, via_log_level_name(message->level), message->text);
    pthread_mutex_lock(&writer.lock);
    bool running = writer.running;
    if (running) {
        add_or_count(line, bytes);
    }
    pthread_mutex_unlock(&writer.lock);
    if (!running) {
        (void)!write(STDERR_FILENO, line, bytes);
    }
}

void via_daemon_log_start(const char *path, size_t bytes_max)
{
    snprintf(writer.path, sizeof(writer.path), "%s", path);
    snprintf(writer.old_path, sizeof(writer.old_path), "%s.old", writer.path);
    writer.bytes_max = bytes_max;
    check_log_file();
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    /* The lock is needed, because threads of links may log already. */
    pthread_mutex_lock(&writer.lock);
    writer.running = pthread_create(&writer.thread, NULL, serve, NULL) == 0;
    if (writer.running) {
        pthread_setname_np(writer.thread, "via-log");
    }
    pthread_mutex_unlock(&writer.lock);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void via_daemon_log_set_bytes(size_t bytes_max)
{
    pthread_mutex_lock(&writer.lock);
    writer.bytes_max = bytes_max;
    pthread_mutex_unlock(&writer.lock);
}

void via_daemon_log_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(END_NS / VIA_SEC_NS);
    pthread_mutex_lock(&writer.lock);
    bool started = writer.running;
    writer.ending = true;
    pthread_cond_signal(&writer.more);
    int code = 0;
    while (writer.running && code == 0) {
        code = pthread_cond_timedwait(&writer.written, &writer.lock, &until);
    }
    bool stuck = writer.running;
    pthread_mutex_unlock(&writer.lock);
    if (started && !stuck) {
        pthread_join(writer.thread, NULL);
    }
}
