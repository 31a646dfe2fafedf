/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Memory of this process that other processes may access. */
#include "host/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/client_sys.h"
#include "host/client_tcp.h"

_Static_assert(VIADUCT_SEGMENT_LINGER == VIA_ATTACH_SEGMENT_LINGER, "sent to the host unchanged");

/* access 0: a source of puts that no other process may access. */
static int check(const struct via_attach *attach, size_t bytes, unsigned access)
{
    const unsigned known = VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE | VIADUCT_SEGMENT_LINGER;
    if (bytes == 0 || (access & ~known) != 0) {
        return via_client_error(-EINVAL,
                                "host %u: segment of %zu bytes: access %#x: no bytes, or "
                                "no such access",
                                attach->host, bytes, access);
    }
    return 0;
}

void via_client_segment_free(struct via_segment *segment)
{
    via_client_serve_drop(segment->attach->serve, segment);
    via_list_remove(&segment->link);
    if (segment->mapped) {
        munmap(segment->base, segment->bytes);
    }
    free(segment);
}

/* [locked] Sends the host the list of freed segments, until its socket is full. */
static void send_left(struct via_attach *attach)
{
    struct via_list *it;
    while ((it = via_list_first(&attach->segments_left)) != NULL) {
        struct via_segment *segment = via_list_entry(it, struct via_segment, link);
        struct via_attach_request message = {
            .type = VIA_ATTACH_SEGMENT_REMOVE,
            .handle = segment->handle,
        };
        if (via_client_notify_host(attach, &message) == -EAGAIN) {
            return;
        }
        via_client_segment_free(segment);
    }
}

/* Registers the segment at the host, then adds it to the list. */
static int add(struct via_attach *attach, int memfd, size_t bytes, unsigned access,
               struct via_segment *segment)
{
    struct via_attach_request message = {
        .type = VIA_ATTACH_SEGMENT_ADD,
        .bytes = bytes,
        .access = access,
    };
    struct via_client_request request;
    via_client_lock(attach);
    send_left(attach); /* first, or the number of segments may exceed the host's limit */
    int rc = via_client_request_wait(attach, &message, memfd, &request);
    if (rc == 0) {
        segment->handle = request.answer.handle;
        via_list_push_back(&attach->segments, &segment->link);
    } else if (rc != -ENOTCONN && rc != -ETIMEDOUT) {
        via_client_error(rc, "host %u: segment of %zu bytes: refused: %s", attach->host, bytes,
                         via_client_cause(&request.answer));
    }
    via_client_unlock(attach);
    return rc;
}

static struct via_segment *segment_new(struct via_attach *attach, unsigned char *base, size_t bytes)
{
    struct via_segment *segment = calloc(1, sizeof(*segment));
    if (segment != NULL) {
        segment->attach = attach;
        segment->base = base;
        segment->bytes = bytes;
        via_list_init(&segment->link);
    }
    return segment;
}

int via_segment_adopt(struct via_attach *attach, int memfd, size_t bytes, void *base,
                      unsigned access, struct via_segment **ret_segment)
{
    int rc = check(attach, bytes, access);
    if (rc != 0) {
        return rc;
    }
    int seals = via_sys_fcntl(memfd, F_GET_SEALS, 0);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return via_client_error(-EPERM, "host %u: segment from descriptor %d: %s", attach->host,
                                memfd,
                                seals < 0 ? "it is no memfd that can be sealed"
                                          : "it is not sealed against shrinking (F_SEAL_SHRINK)");
    }
    struct via_segment *segment = segment_new(attach, base, bytes);
    if (segment == NULL) {
        return via_client_error(-ENOMEM, "host %u: segment: out of memory", attach->host);
    }
    rc = add(attach, memfd, bytes, access, segment);
    if (rc != 0) {
        free(segment);
        return rc;
    }
    *ret_segment = segment;
    return 0;
}

/* Makes a sealed memfd of this size and maps it. The descriptor, or negative errno. */
static int memory_new(size_t bytes, unsigned access, unsigned char **ret_base)
{
    /* The host itself seals segments that others may only read, once it has mapped them
     * (F_SEAL_FUTURE_WRITE). So this memfd must allow further seals. */
    bool read_only =
        (access & (VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE)) == VIADUCT_SEGMENT_READ;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | (read_only ? 0 : F_SEAL_SEAL);
    int fd = (int)via_sys_result(memfd_create("viaduct segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0) {
        return fd;
    }
    void *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0 && via_sys_fcntl(fd, F_ADD_SEALS, seals) == 0) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (base == MAP_FAILED) {
        int rc = -errno;
        via_sys_close(fd);
        return rc;
    }
    *ret_base = base;
    return fd;
}

int via_segment_new(struct via_attach *attach, size_t bytes, unsigned access,
                    struct via_segment **ret_segment)
{
    int rc = check(attach, bytes, access);
    if (rc != 0) {
        return rc;
    }
    size_t rounded = (bytes + 4095) & ~(size_t)4095;
    unsigned char *base = NULL;
    int fd = rounded < bytes ? -ENOMEM : memory_new(rounded, access, &base);
    if (fd < 0) {
        return via_client_error(fd, "host %u: segment of %zu bytes: memory: %s", attach->host,
                                bytes, strerror(-fd));
    }
    rc = via_segment_adopt(attach, fd, rounded, base, access, ret_segment);
    via_sys_close(fd);
    if (rc != 0) {
        munmap(base, rounded);
        return rc;
    }
    (*ret_segment)->mapped = true;
    return 0;
}

void via_client_segment_leave(struct via_segment *segment)
{
    struct via_attach *attach = segment->attach;
    via_client_serve_drop(attach->serve, segment);
    via_client_lock(attach);
    via_list_remove(&segment->link);
    if (segment->mapped) {
        munmap(segment->base, segment->bytes);
        segment->mapped = false;
    }
    via_list_push_back(&attach->segments_left, &segment->link);
    send_left(attach);
    via_client_unlock(attach);
}

void via_segment_free(struct via_segment *segment)
{
    if (segment == NULL) {
        return;
    }
    struct via_attach *attach = segment->attach;
    struct via_attach_request message = {
        .type = VIA_ATTACH_SEGMENT_REMOVE,
        .handle = segment->handle,
    };
    struct via_client_request request;
    via_client_lock(attach);
    /* The status is ignored: a host that has ended has freed the segment already. */
    (void)!via_client_request_wait(attach, &message, -1, &request);
    via_client_segment_free(segment);
    via_client_unlock(attach);
}

void *via_segment_base(const struct via_segment *segment)
{
    return segment->base;
}

size_t via_segment_bytes(const struct via_segment *segment)
{
    return segment->bytes;
}

uint64_t via_segment_handle(const struct via_segment *segment)
{
    return segment->handle;
}

struct via_segment *via_client_segment_of(struct via_attach *attach, const void *base, size_t bytes)
{
    uintptr_t first = (uintptr_t)base;
    via_list_foreach(it, &attach->segments) {
        struct via_segment *segment = via_list_entry(it, struct via_segment, link);
        /* An address before the segment wraps to an offset beyond every size. The list is searched
         * in order instead of a sorted one, because the simulator counts accesses. */
        uintptr_t off = first - (uintptr_t)segment->base;
        if (segment->base != NULL && off <= segment->bytes && bytes <= segment->bytes - off) {
            return segment;
        }
    }
    return NULL;
}
