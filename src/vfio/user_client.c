/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "vfio/iova.h"
#include "vfio/user.h"
#include "vfio/user_message.h"

#define PATIENCE_US (2 * 1000000)
#define PATIENCE_REVIVE_US 200000 /* shorter, because the caller services other functions too */
#define PAGE_BYTES 4096u
#define MAPS_MAX 64u

/* A DMA mapping; a restarted server gets all of them again. */
struct map {
    struct via_vfio_user_dma_map request;
    int fd; /* borrowed */
};

/* The sizes of the function's regions, and its numbers of interrupts. */
struct shape {
    uint64_t bytes[VIA_PCI_REGIONS];
    unsigned irqs[VIA_PCI_IRQ_KINDS];
};

struct interrupts {
    enum via_pci_irq_kind kind;
    unsigned count;
    int fds[VIA_VFIO_USER_FDS_MAX]; /* borrowed */
};

struct user {
    struct via_pci pci;
    struct shape shape;   /* constant */
    pthread_mutex_t lock; /* of all below */
    int fd;
    uint16_t id;
    _Atomic bool gone;
    struct via_iova iova;
    unsigned maps_count;
    struct map maps[MAPS_MAX];
    struct interrupts set;
    char path[108];
    char describe[160];
    struct via_vfio_user_message message;
};

static struct user *user_of(struct via_pci *pci)
{
    return via_container_of(pci, struct user, pci);
}

static void give_up(struct user *user)
{
    atomic_store_explicit(&user->gone, true, memory_order_relaxed);
    shutdown(user->fd, SHUT_RDWR);
}

/* Sends user->message, and receives the answer into it: 0, the server's error, or -EPIPE (the
 * server is lost). */
static int exchange(struct user *user, enum via_vfio_user_command command)
{
    struct via_vfio_user_message *message = &user->message;
    if (atomic_load_explicit(&user->gone, memory_order_relaxed)) {
        return -EPIPE;
    }
    uint16_t id = user->id++;
    message->header = (struct via_vfio_user_header){.id = id, .command = (uint16_t)command};
    int rc = via_vfio_user_send(user->fd, message);
    message->fds_count = 0; /* they were borrowed */
    if (rc == 0) {
        rc = via_vfio_user_receive(user->fd, message);
    }
    bool answers = rc == 0 && message->header.id == id && message->header.command == command &&
                   (message->header.flags & VIA_VFIO_USER_TYPE_MASK) == VIA_VFIO_USER_REPLY;
    if (!answers) {
        via_vfio_user_close_fds(message);
        give_up(user);
        return -EPIPE;
    }
    via_vfio_user_close_fds(message); /* no valid answer carries descriptors */
    if ((message->header.flags & VIA_VFIO_USER_ERROR) != 0) {
        return message->header.error != 0 && message->header.error < 4096
                   ? -(int)message->header.error
                   : -EIO;
    }
    return 0;
}

static void begin(struct user *user, const void *body, size_t bytes)
{
    memcpy(user->message.body, body, bytes);
    user->message.body_bytes = bytes;
    user->message.fds_count = 0;
}

/* --- regions and config space --- */

static int read_piece(struct user *user, uint32_t region, uint64_t off, unsigned char *to,
                      uint32_t len)
{
    struct via_vfio_user_access access = {.offset = off, .region = region, .count = len};
    begin(user, &access, sizeof(access));
    int rc = exchange(user, VIA_VFIO_USER_REGION_READ);
    if (rc == 0 && user->message.body_bytes != sizeof(access) + len) {
        rc = -EPROTO;
    }
    if (rc == 0) {
        memcpy(to, user->message.body + sizeof(access), len);
    }
    return rc;
}

static int write_piece(struct user *user, uint32_t region, uint64_t off, const unsigned char *from,
                       uint32_t len)
{
    struct via_vfio_user_access access = {.offset = off, .region = region, .count = len};
    begin(user, &access, sizeof(access));
    memcpy(user->message.body + sizeof(access), from, len);
    user->message.body_bytes += len;
    return exchange(user, VIA_VFIO_USER_REGION_WRITE);
}

static int read_region(struct user *user, uint32_t region, uint64_t off, void *ret_data, size_t len)
{
    int rc = 0;
    pthread_mutex_lock(&user->lock);
    for (size_t done = 0, step; done < len && rc == 0; done += step) {
        step = via_min(len - done, (size_t)VIA_VFIO_USER_DATA_BYTES_MAX);
        rc = read_piece(user, region, off + done, (unsigned char *)ret_data + done, (uint32_t)step);
    }
    pthread_mutex_unlock(&user->lock);
    if (rc == -EPIPE) {
        memset(ret_data, 0xff, len);
        rc = 0;
    }
    return rc;
}

static int write_region(struct user *user, uint32_t region, uint64_t off, const void *data,
                        size_t len)
{
    int rc = 0;
    pthread_mutex_lock(&user->lock);
    for (size_t done = 0, step; done < len && rc == 0; done += step) {
        step = via_min(len - done, (size_t)VIA_VFIO_USER_DATA_BYTES_MAX);
        rc = write_piece(user, region, off + done, (const unsigned char *)data + done,
                         (uint32_t)step);
    }
    pthread_mutex_unlock(&user->lock);
    return rc == -EPIPE ? 0 : rc;
}

static int user_config_read(struct via_pci *pci, unsigned off, unsigned len, uint32_t *ret_value)
{
    uint32_t value = 0;
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    int rc = read_region(user_of(pci), VIA_VFIO_USER_REGION_CONFIG, off, &value, len);
    *ret_value = value;
    return rc;
}

static int user_config_write(struct via_pci *pci, unsigned off, unsigned len, uint32_t value)
{
    if ((len != 1 && len != 2 && len != 4) || off % len != 0 || off >= VIA_PCI_CONFIG_BYTES) {
        return -EINVAL;
    }
    return write_region(user_of(pci), VIA_VFIO_USER_REGION_CONFIG, off, &value, len);
}

static int user_region(struct via_pci *pci, unsigned region, struct via_pci_region *ret_region)
{
    if (region >= VIA_PCI_REGIONS) {
        return -EINVAL;
    }
    *ret_region = (struct via_pci_region){.bytes = user_of(pci)->shape.bytes[region]};
    return 0;
}

static bool is_within(struct via_pci *pci, unsigned region, uint64_t off, size_t len)
{
    uint64_t bytes = region < VIA_PCI_REGIONS ? user_of(pci)->shape.bytes[region] : 0;
    return len != 0 && off <= bytes && len <= bytes - off;
}

static int user_region_read(struct via_pci *pci, unsigned region, uint64_t off, void *ret_data,
                            size_t len)
{
    return is_within(pci, region, off, len) ? read_region(user_of(pci), region, off, ret_data, len)
                                            : -EINVAL;
}

static int user_region_write(struct via_pci *pci, unsigned region, uint64_t off, const void *data,
                             size_t len)
{
    return is_within(pci, region, off, len) ? write_region(user_of(pci), region, off, data, len)
                                            : -EINVAL;
}

static int user_map(struct via_pci *pci, unsigned region, uint64_t off, uint64_t bytes,
                    bool combining, struct via_pci_mapping *ret_mapping)
{
    (void)pci;
    (void)region;
    (void)off;
    (void)bytes;
    (void)combining;
    (void)ret_mapping;
    return -ENOTSUP;
}

static void user_unmap(struct via_pci *pci, struct via_pci_mapping *mapping)
{
    (void)pci;
    (void)mapping;
}

/* --- interrupts --- */

static unsigned user_irqs(struct via_pci *pci, enum via_pci_irq_kind kind)
{
    return user_of(pci)->shape.irqs[kind];
}

/* With the lock. */
static int request_irqs(struct user *user, uint32_t flags, uint32_t index, uint32_t count,
                        const int *fds)
{
    struct via_vfio_user_set_irqs set = {
        .argsz = sizeof(set), .flags = flags, .index = index, .count = count};
    begin(user, &set, sizeof(set));
    if ((flags & VIA_VFIO_USER_IRQ_EVENTFD) != 0) {
        memcpy(user->message.fds, fds, count * sizeof(*fds));
        user->message.fds_count = count;
    }
    return exchange(user, VIA_VFIO_USER_SET_IRQS);
}

static int request_interrupts(struct user *user, const struct interrupts *set)
{
    uint32_t data = set->count != 0 ? VIA_VFIO_USER_IRQ_EVENTFD : VIA_VFIO_USER_IRQ_NONE;
    return request_irqs(user, data | VIA_VFIO_USER_IRQ_TRIGGER, set->kind, set->count, set->fds);
}

static int user_irq_set(struct via_pci *pci, enum via_pci_irq_kind kind, unsigned count,
                        const int *fds)
{
    struct user *user = user_of(pci);
    struct interrupts set = {.kind = kind, .count = count};
    if (count > user->shape.irqs[kind] || count > VIA_VFIO_USER_FDS_MAX) {
        return -EINVAL;
    }
    if (count != 0) {
        memcpy(set.fds, fds, count * sizeof(*fds));
    }
    pthread_mutex_lock(&user->lock);
    int rc = request_interrupts(user, &set);
    if (rc == 0 ||
        count ==
            0) { /* after a failed switch-off the caller may close the descriptors nevertheless */
        user->set = set;
    }
    pthread_mutex_unlock(&user->lock);
    return rc;
}

static int user_irq_unmask(struct via_pci *pci)
{
    struct user *user = user_of(pci);
    pthread_mutex_lock(&user->lock);
    int rc = request_irqs(user, VIA_VFIO_USER_IRQ_NONE | VIA_VFIO_USER_IRQ_UNMASK, VIA_PCI_INTX, 1,
                          NULL);
    pthread_mutex_unlock(&user->lock);
    return rc;
}

/* --- memory --- */

static int request_map(struct user *user, const struct map *map)
{
    begin(user, &map->request, sizeof(map->request));
    user->message.fds[0] = map->fd;
    user->message.fds_count = 1;
    return exchange(user, VIA_VFIO_USER_DMA_MAP);
}

static int user_dma_map(struct via_pci *pci, const struct via_pci_memory *memory,
                        uint64_t alignment, uint64_t *ret_iova)
{
    struct user *user = user_of(pci);
    struct map map = {.fd = memory->fd};
    if (memory->bytes == 0 || memory->bytes % PAGE_BYTES != 0 || alignment < PAGE_BYTES) {
        return -EINVAL;
    }
    if (memory->fd < 0) {
        return -ENOTSUP; /* without a descriptor the server can not map it */
    }
    map.request = (struct via_vfio_user_dma_map){
        .argsz = sizeof(map.request),
        .flags = VIA_VFIO_USER_DMA_READ | (memory->writable ? VIA_VFIO_USER_DMA_WRITE : 0),
        .offset = memory->fd_off,
        .size = memory->bytes};
    pthread_mutex_lock(&user->lock);
    int rc = user->maps_count == MAPS_MAX
                 ? -ENOSPC
                 : via_iova_take(&user->iova, memory->bytes, alignment, &map.request.address);
    if (rc == 0) {
        rc = request_map(user, &map);
        if (rc != 0) {
            (void)!via_iova_give_back(&user->iova, map.request.address);
        } else {
            user->maps[user->maps_count++] = map;
            *ret_iova = map.request.address;
        }
    }
    pthread_mutex_unlock(&user->lock);
    return rc;
}

static int user_dma_unmap(struct via_pci *pci, uint64_t iova)
{
    struct user *user = user_of(pci);
    pthread_mutex_lock(&user->lock);
    int rc = via_iova_give_back(&user->iova, iova);
    for (unsigned i = 0; i < user->maps_count && rc == 0; i++) {
        const struct via_vfio_user_dma_map *request = &user->maps[i].request;
        if (request->address == iova) {
            struct via_vfio_user_dma_unmap unmap = {
                .argsz = sizeof(unmap), .address = iova, .size = request->size};
            user->maps[i] = user->maps[--user->maps_count];
            begin(user, &unmap, sizeof(unmap));
            (void)exchange(user, VIA_VFIO_USER_DMA_UNMAP); /* a lost server has no access anyway */
            break;
        }
    }
    pthread_mutex_unlock(&user->lock);
    return rc;
}

/* --- connecting --- */

static void set_patience(int fd, suseconds_t patience_us)
{
    struct timeval patience = {.tv_sec = patience_us / 1000000, .tv_usec = patience_us % 1000000};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    /* Applies to connect() too, which waits while the server's backlog is full. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

static int connect_to(const char *path, suseconds_t patience_us, int *ret_fd, struct via_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        return via_error_set(err, -ENAMETOOLONG, "longer than a socket address");
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return via_error_set(err, -errno, "socket: %s", strerror(errno));
    }
    set_patience(fd, patience_us);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        int cause = errno == EAGAIN ? ETIMEDOUT : errno;
        close(fd);
        return via_error_set(err, -cause, "connect: %s", strerror(cause));
    }
    *ret_fd = fd;
    return 0;
}

static int negotiate(struct user *user, struct via_error *err)
{
    static const char capabilities[] = "{\"capabilities\":{\"max_msg_fds\":8}}";
    struct via_vfio_user_version version = {0, 0};
    begin(user, &version, sizeof(version));
    memcpy(user->message.body + sizeof(version), capabilities, sizeof(capabilities));
    user->message.body_bytes += sizeof(capabilities);
    int rc = exchange(user, VIA_VFIO_USER_VERSION);
    if (rc != 0 || user->message.body_bytes < sizeof(version)) {
        return via_error_set(err, rc != 0 ? rc : -EPROTO,
                             "version of the protocol: the server did not answer as vfio-user "
                             "servers do, or serves another client");
    }
    memcpy(&version, user->message.body, sizeof(version));
    return version.major == 0 ? 0
                              : via_error_set(err, -EPROTONOSUPPORT,
                                              "the server speaks version %u.%u of vfio-user, this "
                                              "client 0.0",
                                              version.major, version.minor);
}

static int read_region_info(struct user *user, unsigned index, uint64_t *ret_bytes)
{
    struct via_vfio_user_region info = {.argsz = sizeof(info), .index = index};
    begin(user, &info, sizeof(info));
    int rc = exchange(user, VIA_VFIO_USER_REGION_INFO);
    if (rc == 0 && user->message.body_bytes < sizeof(info)) {
        rc = -EPROTO;
    }
    if (rc == 0) {
        memcpy(&info, user->message.body, sizeof(info));
        *ret_bytes = info.size;
    }
    return rc;
}

static int read_irq_info(struct user *user, unsigned kind, unsigned *ret_count)
{
    struct via_vfio_user_irq info = {.argsz = sizeof(info), .index = kind};
    begin(user, &info, sizeof(info));
    int rc = exchange(user, VIA_VFIO_USER_IRQ_INFO);
    if (rc == 0 && user->message.body_bytes < sizeof(info)) {
        rc = -EPROTO;
    }
    if (rc == 0) {
        memcpy(&info, user->message.body, sizeof(info));
        *ret_count = via_min(info.count, VIA_VFIO_USER_FDS_MAX);
    }
    return rc;
}

static int inspect(struct user *user, struct shape *ret_shape, struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < VIA_PCI_REGIONS && rc == 0; i++) {
        rc = read_region_info(user, i, &ret_shape->bytes[i]);
    }
    for (unsigned i = 0; i < VIA_PCI_IRQ_KINDS && rc == 0; i++) {
        rc = read_irq_info(user, i, &ret_shape->irqs[i]);
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "regions and interrupts: %s", strerror(-rc));
}

/* Connects, in place of an earlier connection, and reads the function's regions and interrupts. */
static int greet(struct user *user, const char *path, suseconds_t patience_us,
                 struct shape *ret_shape, struct via_error *err)
{
    int fd = -1, rc = connect_to(path, patience_us, &fd, err);
    if (rc != 0) {
        return rc;
    }
    if (user->fd >= 0) {
        close(user->fd);
    }
    user->fd = fd;
    atomic_store_explicit(&user->gone, false, memory_order_relaxed);
    rc = negotiate(user, err);
    return rc == 0 ? inspect(user, ret_shape, err) : rc;
}

static bool is_same(const struct shape *a, const struct shape *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0 &&
           memcmp(a->irqs, b->irqs, sizeof(a->irqs)) == 0;
}

/* Sends all DMA mappings and interrupts to a restarted server. */
static int repeat(struct user *user)
{
    int rc = 0;
    for (unsigned i = 0; i < user->maps_count && rc == 0; i++) {
        rc = request_map(user, &user->maps[i]);
    }
    return rc == 0 && user->set.count != 0 ? request_interrupts(user, &user->set) : rc;
}

static int user_revive(struct via_pci *pci)
{
    struct user *user = user_of(pci);
    struct shape shape = {0};
    struct via_error err;
    pthread_mutex_lock(&user->lock);
    int rc = greet(user, user->path, PATIENCE_REVIVE_US, &shape, &err);
    rc = rc == 0 && !is_same(&shape, &user->shape) ? -ENODEV : rc;
    rc = rc == 0 ? repeat(user) : rc;
    if (rc == 0) {
        set_patience(user->fd, PATIENCE_US);
    } else {
        give_up(user);
    }
    pthread_mutex_unlock(&user->lock);
    return rc;
}

/* --- the function as a whole --- */

static int user_reset(struct via_pci *pci)
{
    struct user *user = user_of(pci);
    pthread_mutex_lock(&user->lock);
    user->message.body_bytes = 0;
    user->message.fds_count = 0;
    int rc = exchange(user, VIA_VFIO_USER_RESET);
    pthread_mutex_unlock(&user->lock);
    return rc;
}

/* Detects the end of the server even without a request. If another thread holds the lock, its
 * request detects the end. */
static bool user_is_gone(struct via_pci *pci)
{
    struct user *user = user_of(pci);
    if (pthread_mutex_trylock(&user->lock) == 0) {
        struct pollfd end = {.fd = user->fd, .events = POLLRDHUP};
        if (poll(&end, 1, 0) == 1) {
            give_up(user);
        }
        pthread_mutex_unlock(&user->lock);
    }
    return atomic_load_explicit(&user->gone, memory_order_relaxed);
}

static const char *user_describe(struct via_pci *pci)
{
    return user_of(pci)->describe;
}

static void user_close(struct via_pci *pci)
{
    struct user *user = user_of(pci);
    if (user->fd >= 0) {
        close(user->fd); /* the server then closes the function */
    }
    pthread_mutex_destroy(&user->lock);
    free(user);
}

static const struct via_pci_ops user_ops = {
    .config_read = user_config_read,
    .config_write = user_config_write,
    .region = user_region,
    .region_read = user_region_read,
    .region_write = user_region_write,
    .map = user_map,
    .unmap = user_unmap,
    .irqs = user_irqs,
    .irq_set = user_irq_set,
    .irq_unmask = user_irq_unmask,
    .dma_map = user_dma_map,
    .dma_unmap = user_dma_unmap,
    .reset = user_reset,
    .gone = user_is_gone,
    .revive = user_revive,
    .describe = user_describe,
    .close = user_close,
};

/* --- open --- */

int via_vfio_user_open(const char *path, struct via_pci **ret_pci, struct via_error *err)
{
    struct user *user = calloc(1, sizeof(*user));
    if (user == NULL) {
        return via_error_set(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    user->pci.ops = &user_ops;
    user->fd = -1;
    pthread_mutex_init(&user->lock, NULL);
    via_iova_init(&user->iova);
    snprintf(user->path, sizeof(user->path), "%s", path);
    snprintf(user->describe, sizeof(user->describe), "vfio-user %s", path);
    int rc = greet(user, path, PATIENCE_US, &user->shape, err);
    if (rc != 0) {
        user_close(&user->pci);
        return rc;
    }
    *ret_pci = &user->pci;
    return 0;
}
