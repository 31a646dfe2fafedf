/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * PMI-1, the protocol of Hydra and of similar launchers: lines "cmd=... name=value ...
 * " over the descriptor PMI_FD; the next request is sent only after the answer to the previous one.
 * Follows MPICH's src/pmi/src/pmi_v1.c, the only definition of the protocol.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mutant.h"
#include "shmem/pmi.h"

#define VALUE_BYTES_MIN 64u /* a smaller limit is too small for our words */

/* --- lines ------------------------------------------------------------------------------------ */

static int send_line(struct via_pmi *pmi, struct via_error *err, const char *format, ...)
    VIA_PRINTF(3, 4);

static int send_line(struct via_pmi *pmi, struct via_error *err, const char *format, ...)
{
    char text[VIA_PMI_LINE_BYTES];
    va_list args;

    va_start(args, format);
    int bytes = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (bytes < 0 || (size_t)bytes >= sizeof(text))
        return via_error_set(err, -EMSGSIZE, "PMI-1: a line of %d bytes", bytes);
    for (int done = 0; done < bytes;) {
        /* Avoids SIGPIPE if the launcher has ended; if the descriptor is not a socket, write() is
         * used. */
        ssize_t result = send(pmi->fd, text + done, (size_t)(bytes - done), MSG_NOSIGNAL);
        if (result < 0 && errno == ENOTSOCK)
            result = write(pmi->fd, text + done, (size_t)(bytes - done));
        if (result < 0 && errno != EINTR)
            return via_error_set(err, -errno, "PMI-1: the launcher: send: %s", strerror(errno));
        done += result > 0 ? (int)result : 0;
    }
    return 0;
}

/* Reads one line of the answer, without its end. */
static int read_answer(struct via_pmi *pmi, char answer[VIA_PMI_LINE_BYTES], struct via_error *err)
{
    char *end;

    while (!(end = memchr(pmi->line, '\n', pmi->used))) {
        if (pmi->used == sizeof(pmi->line))
            return via_error_set(err, -EPROTO, "PMI-1: a line of more than %u bytes", pmi->used);
        ssize_t got = read(pmi->fd, pmi->line + pmi->used, sizeof(pmi->line) - pmi->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return via_error_set(err, -errno, "PMI-1: the launcher: read: %s", strerror(errno));
        if (got == 0)
            return via_error_set(err, -ECONNRESET, "PMI-1: the launcher has closed the connection");
        pmi->used += (uint32_t)got;
    }
    size_t bytes = (size_t)(end - pmi->line);
    memcpy(answer, pmi->line, bytes);
    answer[bytes] = '\0';
    pmi->used -= (uint32_t)bytes + 1;
    memmove(pmi->line, end + 1, pmi->used);
    return 0;
}

/* Copies the value that follows "name="; false if there is none, or it does not fit. */
static bool read_field(const char *line, const char *name, char *ret_value, size_t bytes)
{
    size_t length = strlen(name);

    for (const char *at = line; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        at += length + 1;
        length = strcspn(at, " ");
        if (length >= bytes && !VIA_MUTANT(PMI_FIELD))
            return false;
        memcpy(ret_value, at, length);
        ret_value[length] = '\0';
        return true;
    }
    return false;
}

static bool read_number_field(const char *line, const char *name, unsigned long *ret_number)
{
    char text[32], *end;

    if (!read_field(line, name, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
        return false;
    *ret_number = strtoul(text, &end, 10);
    return *end == '\0';
}

/* The answer must have the expected `cmd`, and report no failure. */
static int expect(struct via_pmi *pmi, const char *command, char answer[VIA_PMI_LINE_BYTES],
                  struct via_error *err)
{
    char got[64], code[32];

    int result = read_answer(pmi, answer, err);
    if (result < 0)
        return result;
    if (!read_field(answer, "cmd", got, sizeof(got)) || strcmp(got, command) != 0)
        return via_error_set(err, -EPROTO, "PMI-1: \"%.100s\" instead of cmd=%s", answer, command);
    if (read_field(answer, "rc", code, sizeof(code)) && strcmp(code, "0") != 0)
        return via_error_set(err, -EIO, "PMI-1: the launcher reports a failure: \"%.200s\"",
                             answer);
    return 0;
}

/* --- the calls -------------------------------------------------------------------------------- */

static bool read_number_variable(const char *name, unsigned long max, unsigned long *ret_number)
{
    const char *text = getenv(name);
    char *end;

    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *ret_number = strtoul(text, &end, 10);
    return *end == '\0' && errno == 0 && *ret_number <= max;
}

static int query_limits(struct via_pmi *pmi, struct via_error *err)
{
    char answer[VIA_PMI_LINE_BYTES];
    unsigned long value_bytes;

    int result = send_line(pmi, err, "cmd=get_maxes\n");
    if (result == 0)
        result = expect(pmi, "maxes", answer, err);
    if (result < 0)
        return result;
    if (!read_number_field(answer, "vallen_max", &value_bytes) || value_bytes < VALUE_BYTES_MIN)
        return via_error_set(err, -EPROTO, "PMI-1: invalid limits: \"%.100s\"", answer);
    pmi->value_bytes_max = (uint32_t)via_min(value_bytes, (unsigned long)VIA_PMI_VALUE_BYTES);
    return 0;
}

/*
 * MPI in the same process uses the same connection to the launcher: MPICH finds it by the same
 * variables, before or after this library, and closes it in MPI_Finalize. So the variables stay,
 * this library uses a duplicate of the descriptor, and the library that ends last finalizes the
 * connection.
 */
extern int MPI_Initialized(int *flag) __attribute__((weak));

static bool has_mpi(void)
{
    return MPI_Initialized != NULL;
}

/* True after MPI_Finalize, too. */
static bool is_mpi_used(void)
{
    int flag = 0;

    return has_mpi() && MPI_Initialized(&flag) == 0 && flag;
}

static int open_pmi1(struct via_pmi *pmi, struct via_error *err)
{
    char answer[VIA_PMI_LINE_BYTES];
    unsigned long fd, rank, size;

    if (!read_number_variable("PMI_FD", INT_MAX, &fd) || fcntl((int)fd, F_GETFD) < 0)
        return via_error_set(err, -EPROTO, "PMI_FD=\"%s\": not an open descriptor",
                             getenv("PMI_FD"));
    if (!read_number_variable("PMI_RANK", UINT32_MAX, &rank) ||
        !read_number_variable("PMI_SIZE", UINT32_MAX, &size) || rank >= size)
        return via_error_set(err, -EPROTO, "PMI_RANK=\"%s\", PMI_SIZE=\"%s\": not a process of %s",
                             getenv("PMI_RANK"), getenv("PMI_SIZE"), "a job");
    pmi->fd = has_mpi() ? fcntl((int)fd, F_DUPFD_CLOEXEC, 0) : (int)fd;
    if (pmi->fd < 0)
        return via_error_set(err, -errno, "PMI_FD=\"%s\": dup: %s", getenv("PMI_FD"),
                             strerror(errno));
    pmi->rank = (uint32_t)rank;
    pmi->size = (uint32_t)size;
    /* Children of this program are not PEs. */
    fcntl(pmi->fd, F_SETFD, FD_CLOEXEC);
    int result = send_line(pmi, err, "cmd=init pmi_version=1 pmi_subversion=1\n");
    if (result == 0)
        result = expect(pmi, "response_to_init", answer, err);
    if (result == 0)
        result = query_limits(pmi, err);
    if (result == 0)
        result = send_line(pmi, err, "cmd=get_my_kvsname\n");
    if (result == 0)
        result = expect(pmi, "my_kvsname", answer, err);
    if (result == 0 && !read_field(answer, "kvsname", pmi->kvs, sizeof(pmi->kvs)))
        result = via_error_set(err, -EPROTO, "PMI-1: no name in \"%.100s\"", answer);
    if (result == 0 && !has_mpi()) {
        unsetenv("PMI_FD");
        unsetenv("PMI_RANK");
        unsetenv("PMI_SIZE");
    }
    return result;
}

static int put(struct via_pmi *pmi, const char *key, const char *value, struct via_error *err)
{
    char answer[VIA_PMI_LINE_BYTES];

    if (strlen(value) >= pmi->value_bytes_max)
        return via_error_set(err, -EMSGSIZE, "PMI-1: %zu bytes for %s; this launcher takes %u",
                             strlen(value), key, pmi->value_bytes_max);
    int result = send_line(pmi, err, "cmd=put kvsname=%s key=viaduct-%s-%u value=%s\n", pmi->kvs,
                           key, pmi->rank, value);
    return result == 0 ? expect(pmi, "put_result", answer, err) : result;
}

static int fence(struct via_pmi *pmi, struct via_error *err)
{
    char answer[VIA_PMI_LINE_BYTES];

    int result = send_line(pmi, err, "cmd=barrier_in\n");
    return result == 0 ? expect(pmi, "barrier_out", answer, err) : result;
}

static int get(struct via_pmi *pmi, uint32_t rank, const char *key, char *ret_value,
               struct via_error *err)
{
    char answer[VIA_PMI_LINE_BYTES];

    int result = send_line(pmi, err, "cmd=get kvsname=%s key=viaduct-%s-%u\n", pmi->kvs, key, rank);
    if (result == 0)
        result = expect(pmi, "get_result", answer, err);
    if (result == 0 && !read_field(answer, "value", ret_value, VIA_PMI_VALUE_BYTES))
        result = via_error_set(err, -EPROTO, "PMI-1: no value for %s of PE %u in \"%.100s\"", key,
                               rank, answer);
    return result;
}

static void send_finalize(struct via_pmi *pmi)
{
    char answer[VIA_PMI_LINE_BYTES];

    /* A failure of the launcher does not matter any more. */
    if (send_line(pmi, NULL, "cmd=finalize\n") == 0 &&
        expect(pmi, "finalize_ack", answer, NULL) == 0)
        close(pmi->fd);
    pmi->fd = -1;
}

/* MPI may still be initialized and need the connection. If it is not, the session must be finalized
 * at exit, or the launcher would treat the exit as a crash. */
static struct via_pmi left_open = {.fd = -1};

static void finalize_at_exit(void)
{
    if (left_open.fd >= 0 && !is_mpi_used())
        send_finalize(&left_open);
}

static void finalize(struct via_pmi *pmi)
{
    if (!has_mpi()) {
        send_finalize(pmi);
        return;
    }
    if (!is_mpi_used() && atexit(finalize_at_exit) == 0)
        left_open = *pmi;
    else
        close(pmi->fd);
    pmi->fd = -1;
}

static void abort_job(struct via_pmi *pmi, int code, const char *why)
{
    (void)why;
    if (send_line(pmi, NULL, "cmd=abort exitcode=%d\n", code) < 0)
        return;
}

const struct via_pmi_ops via_pmi1_ops = {
    .name = "PMI-1",
    .open = open_pmi1,
    .put = put,
    .fence = fence,
    .get = get,
    .finalize = finalize,
    .abort = abort_job,
};
