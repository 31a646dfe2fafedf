/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/memfd.h"
#include "vfio/event.h"
#include "vfio/iova.h"
#include "vfio/user.h"
#include "vfio/user_message.h"

#define TURN_MS 100
#define PATIENCE_SECONDS 2
#define MAPS_MAX VIA_IOVA_RANGES_MAX
/* Limit of a client, because all clients' memory shares the server's address space of 47 bits. */
#define MAPPED_BYTES_MAX (UINT64_C(1) << 40)
#define PAGE_BYTES 4096u
/* Polls of another client's socket without a pause, and the time limit for all sockets together. */
#define WAIT_TURNS_SHORT 200
#define WAIT_NS (1 * VIA_SEC_NS)

struct mapped {
    uint64_t address;
    uint64_t bytes;
    void *at;
};

struct client {
    struct via_pci *pci;
    int fd;
    bool greeted;
    unsigned maps_count;
    uint64_t mapped_bytes;
    struct mapped maps[MAPS_MAX];
    int irq_fds[VIA_VFIO_USER_FDS_MAX];
    unsigned irq_fds_count;
    struct via_vfio_user_bridge *bridge; /* or NULL */
    struct via_vfio_user_place *place;
    struct via_vfio_user_message message;
};

/* --- memory of the client --- */

/* Checks that a client's descriptor is memory that the client can not truncate. */
static int check_memory(int fd, uint64_t offset, uint64_t bytes)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || via_memfd_is_huge(fd)) {
        return -EPERM;
    }
    if (fstat(fd, &info) != 0) {
        return -errno;
    }
    return info.st_size < 0 || offset > (uint64_t)info.st_size ||
                   bytes > (uint64_t)info.st_size - offset
               ? -EINVAL
               : 0;
}

static int map_memory(struct client *client)
{
    struct via_vfio_user_dma_map map;
    struct via_vfio_user_message *message = &client->message;
    if (message->body_bytes < sizeof(map)) {
        return -EINVAL;
    }
    memcpy(&map, message->body, sizeof(map));
    if (map.size == 0 || map.size % PAGE_BYTES != 0 || map.address % PAGE_BYTES != 0 ||
        map.offset % PAGE_BYTES != 0 || map.address > UINT64_MAX - map.size) {
        return -EINVAL;
    }
    if (message->fds_count == 0) {
        return 0; /* memory without a descriptor, such as ROMs, is not mapped */
    }
    if (message->fds_count != 1) {
        return -EINVAL;
    }
    if (client->maps_count == MAPS_MAX || map.size > MAPPED_BYTES_MAX - client->mapped_bytes) {
        return -ENOSPC;
    }
    int rc = check_memory(message->fds[0], map.offset, map.size);
    if (rc != 0) {
        return rc;
    }
    bool writable = (map.flags & VIA_VFIO_USER_DMA_WRITE) != 0;
    void *at = mmap(NULL, map.size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
                    message->fds[0], (off_t)map.offset);
    if (at == MAP_FAILED) {
        return -errno;
    }
    struct via_pci_memory memory = {.at = at,
                                    .bytes = map.size,
                                    .fd = -1, /* the function uses `at` */
                                    .writable = writable};
    uint64_t address = map.address;
    rc = client->pci->ops->dma_map(client->pci, &memory, 0, &address);
    if (rc != 0) {
        munmap(at, map.size);
        return rc;
    }
    client->maps[client->maps_count++] =
        (struct mapped){.address = map.address, .bytes = map.size, .at = at};
    client->mapped_bytes += map.size;
    return 0;
}

static void forget_map(struct client *client, unsigned index)
{
    struct mapped map = client->maps[index];
    client->maps[index] = client->maps[--client->maps_count];
    client->mapped_bytes -= map.bytes;
    (void)client->pci->ops->dma_unmap(client->pci, map.address);
    munmap(map.at, map.bytes);
}

/* Succeeds for unmapped ranges too, because QEMU unmaps ranges that it has not mapped. */
static int unmap_memory(struct client *client)
{
    struct via_vfio_user_dma_unmap unmap;
    if (client->message.body_bytes < sizeof(unmap)) {
        return -EINVAL;
    }
    memcpy(&unmap, client->message.body, sizeof(unmap));
    for (unsigned i = client->maps_count; i > 0; i--) {
        const struct mapped *map = &client->maps[i - 1];
        if (map->address >= unmap.address && map->address - unmap.address < unmap.size) {
            forget_map(client, i - 1);
        }
    }
    client->message.body_bytes = sizeof(unmap);
    return 0;
}

/* --- information --- */

static int answer_version(struct client *client)
{
    struct via_vfio_user_version version;
    static const char capabilities[] = "{\"capabilities\":{\"max_msg_fds\":8}}";
    struct via_vfio_user_message *message = &client->message;
    if (message->body_bytes < sizeof(version)) {
        return -EINVAL;
    }
    memcpy(&version, message->body, sizeof(version));
    if (version.major != 0) {
        return -EPROTONOSUPPORT;
    }
    /* Answers with the client's version, because QEMU sends 0.0 and accepts no other. */
    memcpy(message->body + sizeof(version), capabilities, sizeof(capabilities));
    message->body_bytes = sizeof(version) + sizeof(capabilities);
    client->greeted = true;
    return 0;
}

static int answer_info(struct client *client)
{
    struct via_vfio_user_info info = {.argsz = sizeof(info),
                                      .flags = VIA_VFIO_USER_INFO_RESET | VIA_VFIO_USER_INFO_PCI,
                                      .regions = VIA_VFIO_USER_REGIONS,
                                      .irqs = VIA_VFIO_USER_IRQS};
    memcpy(client->message.body, &info, sizeof(info));
    client->message.body_bytes = sizeof(info);
    return 0;
}

static int answer_region(struct client *client)
{
    struct via_vfio_user_region info;
    struct via_pci_region region = {0};
    if (client->message.body_bytes < sizeof(info)) {
        return -EINVAL;
    }
    memcpy(&info, client->message.body, sizeof(info));
    if (info.index >= VIA_VFIO_USER_REGIONS) {
        return -EINVAL;
    }
    if (info.index == VIA_VFIO_USER_REGION_CONFIG) {
        region.bytes = VIA_PCI_CONFIG_BYTES;
    } else if (info.index < VIA_PCI_REGIONS) {
        (void)client->pci->ops->region(client->pci, info.index, &region);
    }
    info.argsz = sizeof(info);
    info.flags =
        region.bytes != 0 ? VIA_VFIO_USER_REGION_FLAG_READ | VIA_VFIO_USER_REGION_FLAG_WRITE : 0;
    info.capabilities = 0;
    info.size = region.bytes;
    info.offset = 0;
    memcpy(client->message.body, &info, sizeof(info));
    client->message.body_bytes = sizeof(info);
    return 0;
}

static int answer_irq(struct client *client)
{
    struct via_vfio_user_irq info;
    if (client->message.body_bytes < sizeof(info)) {
        return -EINVAL;
    }
    memcpy(&info, client->message.body, sizeof(info));
    if (info.index >= VIA_VFIO_USER_IRQS) {
        return -EINVAL;
    }
    info.argsz = sizeof(info);
    info.flags = 1 | (info.index == VIA_PCI_INTX ? 6 : 0); /* eventfd; maskable, automasked */
    info.count = info.index < VIA_PCI_IRQ_KINDS
                     ? client->pci->ops->irqs(client->pci, (enum via_pci_irq_kind)info.index)
                     : 0;
    memcpy(client->message.body, &info, sizeof(info));
    client->message.body_bytes = sizeof(info);
    return 0;
}

/* --- interrupts --- */

static void drop_irq_fds(struct client *client)
{
    for (unsigned i = 0; i < client->irq_fds_count; i++) {
        close(client->irq_fds[i]);
    }
    client->irq_fds_count = 0;
}

static int set_trigger(struct client *client, const struct via_vfio_user_set_irqs *set)
{
    struct via_vfio_user_message *message = &client->message;
    enum via_pci_irq_kind kind = (enum via_pci_irq_kind)set->index;
    unsigned count = (set->flags & VIA_VFIO_USER_IRQ_EVENTFD) != 0 ? set->count : 0;
    if (set->start != 0 || count != message->fds_count ||
        count > client->pci->ops->irqs(client->pci, kind)) {
        return -EINVAL;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!via_event_is_eventfd(message->fds[i])) {
            return -EINVAL;
        }
        /* Writes must not block if the client does not read. */
        if (fcntl(message->fds[i], F_SETFL, O_NONBLOCK) != 0) {
            return -errno;
        }
    }
    int rc = client->pci->ops->irq_set(client->pci, kind, count, message->fds);
    if (rc == 0) {
        drop_irq_fds(client);
        memcpy(client->irq_fds, message->fds, count * sizeof(int));
        client->irq_fds_count = count;
        message->fds_count = 0;
    }
    return rc;
}

static int set_irqs(struct client *client)
{
    struct via_vfio_user_set_irqs set;
    if (client->message.body_bytes < sizeof(set)) {
        return -EINVAL;
    }
    memcpy(&set, client->message.body, sizeof(set));
    client->message.body_bytes = 0;
    if (set.index >= VIA_PCI_IRQ_KINDS) {
        return set.count == 0
                   ? 0
                   : -EINVAL; /* the error and request interrupts, which QEMU configures */
    }
    if ((set.flags & VIA_VFIO_USER_IRQ_TRIGGER) != 0) {
        return set_trigger(client, &set);
    }
    if ((set.flags & VIA_VFIO_USER_IRQ_UNMASK) != 0 && set.index == VIA_PCI_INTX) {
        return client->pci->ops->irq_unmask(client->pci);
    }
    return 0;
}

/* --- regions --- */

/* Splits the access into register-sized pieces, because QEMU reads the whole space at once. */
static int access_config(struct client *client, const struct via_vfio_user_access *access,
                         unsigned char *data, bool writes)
{
    if (access->offset > VIA_PCI_CONFIG_BYTES ||
        access->count > VIA_PCI_CONFIG_BYTES - access->offset) {
        return -EINVAL;
    }
    unsigned off = (unsigned)access->offset, end = off + access->count;
    for (unsigned step; off < end; off += step, data += step) {
        uint32_t value = 0;
        step = off % 4 == 0 && end - off >= 4 ? 4 : off % 2 == 0 && end - off >= 2 ? 2 : 1;
        memcpy(&value, data, step);
        int rc = writes ? client->pci->ops->config_write(client->pci, off, step, value)
                        : client->pci->ops->config_read(client->pci, off, step, &value);
        if (rc != 0) {
            return rc;
        }
        memcpy(data, &value, step);
    }
    return 0;
}

/* --- ordering between functions of one bridge --- */

/* True if all messages that were in the other client's socket when `target` was computed are
 * executed. The order of the loads matters: if a message has left the socket, the later load of
 * is_busy sees that its server was busy. */
static bool has_caught_up(struct via_vfio_user_place *other, uint64_t target)
{
    int client = atomic_load_explicit(&other->client, memory_order_seq_cst), pending = 0;
    return client == 0 || ioctl(client - 1, FIONREAD, &pending) != 0 ||
           (pending == 0 && !atomic_load_explicit(&other->is_busy, memory_order_seq_cst)) ||
           /* The client has not sent all of its present message, so that message precedes
            * nothing. */
           (int64_t)atomic_load_explicit(&other->missing, memory_order_seq_cst) > pending ||
           atomic_load_explicit(&other->is_waiting, memory_order_seq_cst) ||
           atomic_load_explicit(&other->executed, memory_order_seq_cst) >= target;
}

static uint64_t clock_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * VIA_SEC_NS + (uint64_t)time.tv_nsec;
}

static void wait_for_other(struct via_vfio_user_place *other, uint64_t until_ns)
{
    int client = atomic_load_explicit(&other->client, memory_order_seq_cst), pending = 0;
    uint64_t executed = atomic_load_explicit(&other->executed, memory_order_seq_cst);
    if (client == 0 || ioctl(client - 1, FIONREAD, &pending) != 0) {
        return;
    }
    /* One message may have left the socket without being executed yet. */
    uint64_t target = executed + (uint64_t)pending + VIA_VFIO_USER_MESSAGE_BYTES_MAX;
    for (unsigned i = 0; !has_caught_up(other, target) && clock_ns() < until_ns; i++) {
        (void)poll(NULL, 0, i < WAIT_TURNS_SHORT ? 0 : 1);
    }
}

static void wait_for_others(struct client *client)
{
    uint64_t until_ns = clock_ns() + WAIT_NS;
    atomic_store_explicit(&client->place->is_waiting, true, memory_order_seq_cst);
    for (unsigned i = 0; i < VIA_VFIO_USER_SERVERS_MAX; i++) {
        if (&client->bridge->places[i] != client->place) {
            wait_for_other(&client->bridge->places[i], until_ns);
        }
    }
    atomic_store_explicit(&client->place->is_waiting, false, memory_order_seq_cst);
}

static int access_region(struct client *client, bool writes)
{
    struct via_vfio_user_access access;
    struct via_vfio_user_message *message = &client->message;
    if (message->body_bytes < sizeof(access)) {
        return -EINVAL;
    }
    memcpy(&access, message->body, sizeof(access));
    if (access.count > VIA_VFIO_USER_DATA_BYTES_MAX ||
        (writes && access.count != message->body_bytes - sizeof(access))) {
        return -EINVAL;
    }
    const struct via_pci_ops *ops = client->pci->ops;
    unsigned char *data = message->body + sizeof(access);
    int rc =
        access.region == VIA_VFIO_USER_REGION_CONFIG ? access_config(client, &access, data, writes)
        : writes ? ops->region_write(client->pci, access.region, access.offset, data, access.count)
                 : ops->region_read(client->pci, access.region, access.offset, data, access.count);
    if (rc == -ENXIO && !writes) {
        memset(data, 0xff, access.count); /* as reads of an address that no device decodes */
        rc = 0;
    } else if (rc == -ENXIO) {
        rc = 0;
    }
    message->body_bytes = sizeof(access) + (writes ? 0 : access.count);
    if (!writes && client->bridge != NULL && access.region < 32 &&
        (client->bridge->regions >> access.region & 1) != 0) {
        wait_for_others(client);
    }
    return rc;
}

/* --- a client --- */

static int execute(struct client *client)
{
    uint16_t command = client->message.header.command;
    if (command != VIA_VFIO_USER_VERSION && !client->greeted) {
        return -EPROTO;
    }
    switch ((enum via_vfio_user_command)command) {
    case VIA_VFIO_USER_VERSION:
        return answer_version(client);
    case VIA_VFIO_USER_DMA_MAP: {
        int rc = map_memory(client);
        client->message.body_bytes = 0;
        return rc;
    }
    case VIA_VFIO_USER_DMA_UNMAP:
        return unmap_memory(client);
    case VIA_VFIO_USER_GET_INFO:
        return answer_info(client);
    case VIA_VFIO_USER_REGION_INFO:
        return answer_region(client);
    case VIA_VFIO_USER_IRQ_INFO:
        return answer_irq(client);
    case VIA_VFIO_USER_SET_IRQS:
        return set_irqs(client);
    case VIA_VFIO_USER_REGION_READ:
        return access_region(client, false);
    case VIA_VFIO_USER_REGION_WRITE:
        return access_region(client, true);
    case VIA_VFIO_USER_RESET: {
        int rc = client->pci->ops->reset(client->pci);
        client->message.body_bytes = 0;
        return rc == -ENOTSUP ? 0 : rc; /* QEMU resets at each boot */
    }
    }
    return -ENOTSUP;
}

/* Sends the answer. If the client does not read its answers, reads of other clients do not wait for
 * this one. */
static int send_answer(struct client *client)
{
    struct pollfd ready = {.fd = client->fd, .events = POLLOUT};
    bool is_full = poll(&ready, 1, 0) <= 0;
    atomic_store_explicit(&client->place->is_waiting, is_full, memory_order_seq_cst);
    int rc = via_vfio_user_send(client->fd, &client->message);
    atomic_store_explicit(&client->place->is_waiting, false, memory_order_seq_cst);
    return rc;
}

/* 0, or negative errno: the client must be disconnected. */
static int answer(struct client *client)
{
    struct via_vfio_user_message *message = &client->message;
    int rc = via_vfio_user_receive_counted(client->fd, message, &client->place->missing);
    if (rc != 0) {
        return rc;
    }
    uint32_t request_bytes = message->header.bytes;
    if ((message->header.flags & VIA_VFIO_USER_TYPE_MASK) != 0) {
        via_vfio_user_close_fds(message);
        return -EPROTO; /* a reply without a request */
    }
    bool wants_reply = (message->header.flags & VIA_VFIO_USER_NO_REPLY) == 0;
    rc = execute(client);
    via_vfio_user_close_fds(message);
    atomic_fetch_add_explicit(&client->place->executed, request_bytes, memory_order_seq_cst);
    atomic_store_explicit(&client->place->is_busy, false, memory_order_seq_cst);
    if (!wants_reply) {
        return 0;
    }
    message->header.flags = VIA_VFIO_USER_REPLY | (rc != 0 ? VIA_VFIO_USER_ERROR : 0);
    message->header.error = (uint32_t)-rc;
    if (rc != 0) {
        message->body_bytes = 0;
    }
    return send_answer(client);
}

static void serve_client(struct client *client, const _Atomic bool *stop)
{
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    (void)setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    struct via_vfio_user_place *place = client->place;
    int rc = 0;
    atomic_store_explicit(&place->client, client->fd + 1, memory_order_seq_cst);
    while (rc == 0 && !atomic_load_explicit(stop, memory_order_relaxed)) {
        struct pollfd ready = {.fd = client->fd, .events = POLLIN};
        if (poll(&ready, 1, TURN_MS) > 0) {
            atomic_store_explicit(&place->is_busy, true, memory_order_seq_cst);
            rc = answer(client);
            atomic_store_explicit(&place->is_busy, false, memory_order_seq_cst);
        }
    }
    atomic_store_explicit(&place->client, 0, memory_order_seq_cst);
    while (client->maps_count != 0) {
        forget_map(client, client->maps_count - 1);
    }
    client->pci->ops->close(client->pci);
    drop_irq_fds(client);
}

void via_vfio_user_serve(int listen_fd, via_vfio_user_attach *attach, void *ctx,
                         struct via_vfio_user_bridge *bridge, unsigned place,
                         const _Atomic bool *stop)
{
    struct via_vfio_user_place alone = {0};
    struct client *client = calloc(1, sizeof(*client));
    while (client != NULL && !atomic_load_explicit(stop, memory_order_relaxed)) {
        struct pollfd ready = {.fd = listen_fd, .events = POLLIN};
        if (poll(&ready, 1, TURN_MS) <= 0) {
            continue;
        }
        memset(client, 0, offsetof(struct client, message));
        client->bridge = bridge;
        client->place = bridge != NULL ? &bridge->places[place] : &alone;
        client->fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (client->fd < 0) {
            continue;
        }
        if (attach(ctx, &client->pci) == 0) {
            serve_client(client, stop);
        }
        close(client->fd);
    }
    free(client);
}

/* Removes the socket of a dead server; not other files, and not a socket on which a process
 * listens.
 */
static int remove_stale(const struct sockaddr_un *address, struct via_error *err)
{
    const char *path = address->sun_path;
    struct stat info;
    if (lstat(path, &info) != 0) {
        return via_error_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    if (!S_ISSOCK(info.st_mode)) {
        return via_error_set(err, -EEXIST, "%s: the path exists and is not a socket", path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return via_error_set(err, -errno, "socket: %s", strerror(errno));
    }
    /* With a full backlog connect() also fails, but a process listens. */
    bool is_stale = connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                    errno == ECONNREFUSED;
    close(fd);
    if (!is_stale) {
        return via_error_set(err, -EADDRINUSE, "%s: another server listens there", path);
    }
    return unlink(path) == 0 ? 0 : via_error_set(err, -errno, "%s: %s", path, strerror(errno));
}

int via_vfio_user_listen(const char *path, int *ret_fd, struct via_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof(address.sun_path)) {
        return via_error_set(err, -ENAMETOOLONG, "%s: empty, or longer than a socket address",
                             path);
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return via_error_set(err, -errno, "socket: %s", strerror(errno));
    }
    int rc = bind(fd, (struct sockaddr *)&address, sizeof(address));
    if (rc != 0 && errno == EADDRINUSE) {
        /* The socket may belong to a live server. */
        rc = remove_stale(&address, err);
        if (rc != 0) {
            close(fd);
            return rc;
        }
        rc = bind(fd, (struct sockaddr *)&address, sizeof(address));
    }
    if (rc != 0 || listen(fd, 4) != 0) {
        rc = via_error_set(err, -errno, "listen on %s: %s", path, strerror(errno));
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}
