/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "sockets/conn/stats.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sockets/conn/conn.h"
#include "sockets/meet/policy.h"
#include "sockets/process/lock.h"
#include "sockets/process/os.h"
#include "sockets/process/real.h"

static struct {
    struct via_mutex lock;
    atomic_flag written;
    uint64_t connections;
    uint64_t accelerated;
    uint64_t demoted; /* connections that were accelerated and returned to the kernel */
    uint64_t not_accelerated[VIA_REASON_COUNT];
    /* bytes sent through the kernel on connections without pipes, and on demoted ones */
    uint64_t why_kernel_bytes[VIA_REASON_COUNT];
    struct via_stats_conn sum;
} total = {.lock = VIA_MUTEX_INIT(VIA_RANK_LAST), .written = ATOMIC_FLAG_INIT};

/* A connection that has offered pipes, or waited for an offer, and could not use them: if it has
 * sent more than UNTAKEN_BYTES since, its peer did not take the pipes; otherwise it was too
 * short. */
#define UNTAKEN_BYTES (64u * 1024)

static enum via_reason reason_of(const struct via_stats_conn *conn)
{
    if (via_stats_is_untaken(conn) && conn->tx_kernel_bytes > UNTAKEN_BYTES) {
        return VIA_REASON_DEMOTED;
    }
    if (conn->reason != VIA_REASON_NONE) {
        return conn->reason;
    }
    bool long_enough = conn->tx_kernel_bytes + conn->rx_kernel_bytes > UNTAKEN_BYTES;
    return long_enough && conn->waits_for != VIA_REASON_NONE ? conn->waits_for : VIA_REASON_SHORT;
}

void via_stats_add(const struct via_stats_conn *conn)
{
    via_lock(&total.lock);
    total.connections++;
    enum via_reason why = reason_of(conn);
    bool accelerated = conn->accelerated && (conn->demoted || why != VIA_REASON_DEMOTED);
    total.demoted += conn->demoted ? 1 : 0;
    if (accelerated) {
        total.accelerated++;
    } else {
        total.not_accelerated[why]++;
    }
    if (!accelerated || conn->demoted) {
        total.why_kernel_bytes[why] += conn->tx_kernel_bytes;
    }
    total.sum.tx_pipe_bytes += conn->tx_pipe_bytes;
    total.sum.tx_kernel_bytes += conn->tx_kernel_bytes;
    total.sum.rx_pipe_bytes += conn->rx_pipe_bytes;
    total.sum.rx_kernel_bytes += conn->rx_kernel_bytes;
    total.sum.tx_frames_bytes += conn->tx_frames_bytes;
    total.sum.tx_fetched_bytes += conn->tx_fetched_bytes;
    total.sum.tx_lent_bytes += conn->tx_lent_bytes;
    total.sum.rings += conn->rings;
    total.sum.sleeps += conn->sleeps;
    via_unlock(&total.lock);
}

/* The program's name, with '?' for characters that JSON would have to escape. */
static void program_name(char *ret_name, size_t max)
{
    ssize_t n = readlink("/proc/self/exe", ret_name, max - 1);
    ret_name[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(ret_name, '/');
    if (slash != NULL) {
        memmove(ret_name, slash + 1, strlen(slash + 1) + 1);
    }
    for (char *at = ret_name; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~' || *at == '"' || *at == '\\') {
            *at = '?';
        }
    }
}

/* Formats the counters that are not 0. */
static int format_reasons(char *buffer, size_t max, const uint64_t *counts)
{
    int n = 0;
    for (int i = 0; i < VIA_REASON_COUNT; i++) {
        if (counts[i] != 0) {
            n += snprintf(buffer + n, max - (size_t)n, "%s\"%s\":%llu", n != 0 ? "," : "",
                          via_reason_text((unsigned)i), (unsigned long long)counts[i]);
        }
    }
    return n;
}

static int format(char *buffer, size_t max)
{
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {{"connections", total.connections},
                    {"accelerated", total.accelerated},
                    {"demoted", total.demoted},
                    {"bytes_pipe_tx", total.sum.tx_pipe_bytes},
                    {"bytes_pipe_rx", total.sum.rx_pipe_bytes},
                    {"bytes_kernel_tx", total.sum.tx_kernel_bytes},
                    {"bytes_kernel_rx", total.sum.rx_kernel_bytes},
                    {"bytes_frames_tx", total.sum.tx_frames_bytes},
                    {"bytes_fetched_tx", total.sum.tx_fetched_bytes},
                    {"bytes_lent_tx", total.sum.tx_lent_bytes},
                    {"rings", total.sum.rings},
                    {"sleeps", total.sum.sleeps}};
    char name[256];
    program_name(name, sizeof(name));
    int n = snprintf(buffer, max, "{\"pid\":%d,\"program\":\"%s\"", (int)getpid(), name);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(counters); i++) {
        n += snprintf(buffer + n, max - (size_t)n, ",\"%s\":%llu", counters[i].name,
                      (unsigned long long)counters[i].value);
    }
    n += snprintf(buffer + n, max - (size_t)n, ",\"not_accelerated\":{");
    n += format_reasons(buffer + n, max - (size_t)n, total.not_accelerated);
    n += snprintf(buffer + n, max - (size_t)n, "},\"kernel_tx_why\":{");
    n += format_reasons(buffer + n, max - (size_t)n, total.why_kernel_bytes);
    n += snprintf(buffer + n, max - (size_t)n, "}}\n");
    return n;
}

static void add_open(struct via_conn *conn)
{
    via_stats_add(conn->stats);
    *conn->stats = (struct via_stats_conn){.reason = VIA_REASON_NONE};
}

void via_stats_write(void)
{
    char buffer[4096];
    if (via_policy.stats == NULL || atomic_flag_test_and_set(&total.written)) {
        return;
    }
    via_conn_each(add_open);
    via_lock(&total.lock); /* other threads may still be counting */
    int n = total.connections != 0 ? format(buffer, sizeof(buffer)) : 0;
    via_unlock(&total.lock);
    if (n == 0) {
        return; /* a program without connections is not listed */
    }
    int fd = open(via_policy.stats, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
        /* One write() with O_APPEND, so that lines of several processes do not mix. On a full disk
         * the line is lost. */
        ssize_t done = via_os_append(fd, buffer, (size_t)n);
        (void)done;
        VIA_REAL(close)(fd);
    }
}

void via_stats_forked(void)
{
    memset(&total, 0, sizeof(total));
    total.lock = (struct via_mutex)VIA_MUTEX_INIT(VIA_RANK_LAST);
    atomic_flag_clear(&total.written);
}
