/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The layer between a driver and a PCI function: addresses, removal, missing features of the
 * kernel, and a server of vfio-user with hostile clients. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/pex/pex.h"
#include "tests/unit/pci_folder.h"
#include "vfio/guard.h"
#include "vfio/iova.h"
#include "vfio/sysfs.h"
#include "vfio/user.h"
#include "vfio/user_message.h"

/* --- addresses --- */

static void addresses_are_apart_and_aligned(void **state)
{
    static struct via_iova iova;
    uint64_t at[3], again;
    (void)state;
    via_iova_init(&iova);
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &at[0]), 0);
    assert_int_equal(via_iova_take(&iova, 1 << 20, 4 << 20, &at[1]), 0);
    assert_int_equal(via_iova_take(&iova, 8192, 4096, &at[2]), 0);
    assert_true(at[0] >= VIA_IOVA_FIRST && at[1] % (4 << 20) == 0);
    assert_true(at[2] == at[0] + 4096); /* the gap is used */
    assert_int_equal(via_iova_take_at(&iova, at[1] + 4096, 4096), -ENOSPC);
    assert_int_equal(via_iova_take_at(&iova, at[1] - 4096, 8192), -ENOSPC);
    assert_int_equal(via_iova_take_at(&iova, UINT64_MAX - 4095, 8192), -EINVAL);
    assert_int_equal(via_iova_give_back(&iova, at[0] + 1), -ENOENT);
    assert_int_equal(via_iova_give_back(&iova, at[0]), 0);
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &again), 0);
    assert_true(again == at[0]);
    assert_int_equal(via_iova_take(&iova, 0, 4096, &again), -EINVAL);
    assert_int_equal(via_iova_take(&iova, 4096, 4097, &again), -EINVAL);
    assert_int_equal(via_iova_take(&iova, VIA_IOVA_END, 4096, &again), -ENOSPC);
    while (via_iova_take(&iova, 4096, 4096, &again) == 0) {
    }
    assert_int_equal(iova.count, VIA_IOVA_RANGES_MAX);
}

/* Ranges to avoid that touch, overlap, lie outside or have no end; the lowest place behind them. */
static void addresses_avoid_ranges(void **state)
{
    static const struct {
        uint64_t first, last;
    } ranges[] = {
        {0, VIA_IOVA_FIRST - 1},                            /* below all addresses */
        {VIA_IOVA_END, UINT64_MAX},                         /* above them */
        {VIA_IOVA_FIRST + 0x3000, VIA_IOVA_FIRST + 0x4fff}, /* above the next two, which */
        {0xf0000000, VIA_IOVA_FIRST + 0xfff},               /* begins below, and */
        {VIA_IOVA_FIRST + 0x1000, VIA_IOVA_FIRST + 0x1fff}, /* touches */
        {VIA_IOVA_FIRST + 0x4000, VIA_IOVA_FIRST + 0x6000}, /* overlaps, not whole pages */
        {VIA_IOVA_FIRST + 0x8000, VIA_IOVA_FIRST + 0x7fff}, /* empty */
        {VIA_IOVA_FIRST + 0x100000000, UINT64_MAX},         /* to the last address */
    };
    static struct via_iova iova;
    uint64_t at, kept;
    (void)state;
    via_iova_init(&iova);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ranges); i++) {
        assert_int_equal(via_iova_avoid(&iova, ranges[i].first, ranges[i].last), 0);
    }
    /* Windows outside the range, an empty window and a repeated window take no place. */
    kept = iova.avoided_count;
    assert_int_equal(kept, 5);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ranges); i++) {
        assert_int_equal(via_iova_avoid(&iova, ranges[i].first, ranges[i].last), 0);
    }
    assert_int_equal(iova.avoided_count, kept);
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &at), 0);
    assert_true(at == VIA_IOVA_FIRST + 0x2000);
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &at), 0);
    assert_true(at == VIA_IOVA_FIRST + 0x7000);
    assert_int_equal(via_iova_take(&iova, 0xffff8000, 4096, &at), 0);
    assert_true(at == VIA_IOVA_FIRST + 0x8000);
    at = 5;
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &at), -ENOSPC);
    assert_int_equal(at, 5);
}

/* A range that is taken at its own address may end where addresses end. */
static void a_range_up_to_the_last_address_is_behind_all(void **state)
{
    static struct via_iova iova;
    uint64_t at;
    (void)state;
    via_iova_init(&iova);
    assert_int_equal(
        via_iova_take_at(&iova, VIA_IOVA_FIRST + 4096, UINT64_MAX - VIA_IOVA_FIRST - 4096), 0);
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &at), 0);
    assert_true(at == VIA_IOVA_FIRST);
    assert_int_equal(via_iova_take(&iova, 4096, 4096, &at), -ENOSPC);
    assert_int_equal(via_iova_take(&iova, 4096, VIA_IOVA_END, &at), -ENOSPC);
}

/* --- removal --- */

/* The guards' handler keeps the default action of the signal. Runs before a test that installs the
 * handler. */
static void a_signal_that_a_process_sends_ends_the_guarded_one(void **state)
{
    static unsigned char page[4096];
    int status;
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        unsigned guard;
        signal(SIGBUS, SIG_DFL);
        if (via_guard_add(page, sizeof(page), &guard) == 0) {
            kill(getpid(), SIGBUS);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void a_mapping_that_is_taken_away_turns_into_ones(void **state)
{
    unsigned guard;
    int fd = memfd_create("removed", MFD_CLOEXEC);
    (void)state;
    assert_int_equal(ftruncate(fd, 3 * 65536), 0);
    volatile unsigned char *at = mmap(NULL, 3 * 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    at[5] = 7;
    assert_int_equal(via_guard_add((void *)(uintptr_t)at, 3 * 65536, &guard), 0);
    assert_false(via_guard_is_hit(guard));
    /* From now on accesses raise SIGBUS, as for a removed device. */
    assert_int_equal(ftruncate(fd, 0), 0);
    at[100000] = 1; /* vanishes */
    assert_true(via_guard_is_hit(guard));
    assert_int_equal(at[5], 0xff);
    assert_int_equal(at[3 * 65536 - 1], 0xff);
    via_guard_remove(guard);
    munmap((void *)(uintptr_t)at, 3 * 65536);
    close(fd);
}

/* --- sysfs --- */

static void put_file(const char *folder, const char *name, const void *bytes, size_t count)
{
    char path[256];
    snprintf(path, sizeof(path), "%s" DEVICE "/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    put_file(folder, name, text, strlen(text));
}

/* Registers of 256 bytes in the middle of a page, and a memory of two pages. */
static void put_function(const char *folder)
{
    static const unsigned char config[64] = {0xf4, 0x1a, 0x10, 0x11};
    static unsigned char memory[8192];
    put_file(folder, "config", config, sizeof(config));
    put_text(folder, "enable", "0\n");
    put_text(folder, "resource",
             "0x00000000febfd100 0x00000000febfd1ff 0x0000000000040200\n"
             "0x000000000000c000 0x000000000000c01f 0x0000000000040101\n"
             "0x00000000f8000000 0x00000000f8001fff 0x000000000014220c\n");
    put_file(folder, "resource0", memory, 4096);
    put_file(folder, "resource2", memory, sizeof(memory));
}

static void check_function(struct via_pci *pci, const char *folder)
{
    struct via_pci_region region;
    struct via_pci_mapping mapping;
    uint32_t value;
    uint64_t off;
    char path[256];
    int fd, bell = 0;
    assert_int_equal(pci->ops->config_read(pci, VIA_PCI_VENDOR_ID, 4, &value), 0);
    assert_int_equal(value, 0x11101af4);
    /* The function must not access memory: there is no IOMMU. */
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, 0x407), 0);
    assert_int_equal(pci->ops->config_read(pci, VIA_PCI_COMMAND, 2, &value), 0);
    assert_int_equal(value, 0x403);
    assert_int_equal(pci->ops->region(pci, 1, &region), 0);
    assert_int_equal(region.bytes, 0); /* a BAR of I/O ports */
    assert_int_equal(pci->ops->region(pci, 2, &region), 0);
    assert_true(region.bytes == 8192 && region.mappable && region.prefetchable);
    via_pci_write32(pci, 0, 12, 0x20001);
    assert_int_equal(via_pci_read32(pci, 0, 12), 0x20001);
    assert_int_equal(pci->ops->region_write(pci, 0, 254, &value, 4), -EINVAL);
    snprintf(path, sizeof(path), "%s" DEVICE "/resource0", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, &value, 4, 0x10c), 4); /* 0x100 into the page, like the BAR */
    assert_int_equal(value, 0x20001);
    close(fd);
    assert_int_equal(pci->ops->map(pci, 2, 4096, 4096, true, &mapping), 0);
    assert_int_equal(mapping.caching, VIA_PCI_UNCACHED); /* there is no resource2_wc */
    memcpy(mapping.at, "there", 5);
    assert_int_equal(pci->ops->region_fd(pci, 2, &fd, &off), 0);
    assert_int_equal(pread(fd, &value, 4, (off_t)off + 4096), 4);
    assert_memory_equal(&value, "ther", 4);
    pci->ops->unmap(pci, &mapping);
    assert_int_equal(pci->ops->map(pci, 2, 4096, 8192, false, &mapping), -EINVAL);
    assert_int_equal(pci->ops->region_fd(pci, 0, &fd, &off), -ENOTSUP);
    assert_int_equal(pci->ops->irqs(pci, VIA_PCI_MSIX), 0);
    assert_int_equal(pci->ops->irq_set(pci, VIA_PCI_MSIX, 1, &bell), -EINVAL);
    assert_false(pci->ops->gone(pci));
}

/* A function that is bound to a driver: its registers are accessible, and its config space stays
 * unchanged. */
static void check_beside(const struct via_sysfs_options *options, const char *folder)
{
    struct via_sysfs_options beside = *options;
    struct via_pci *pci;
    struct via_error err;
    char path[96];
    uint32_t value = 0;
    beside.beside = "pcieport";
    assert_int_equal(via_sysfs_open(&beside, &pci, &err), -EBUSY);
    beside.beside = "vfio-pci";
    assert_int_equal(via_sysfs_open(&beside, &pci, &err), 0);
    assert_int_equal(pci->ops->region_read(pci, 0, 0, &value, 4), 0);
    assert_int_equal(pci->ops->config_read(pci, VIA_PCI_COMMAND, 2, &value), 0);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, value), 0);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_COMMAND, 2, ~value & 0xffff), -EPERM);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_BAR(0), 4, 0), -EPERM);
    assert_int_equal(pci->ops->reset(pci), -ENOTSUP);
    pci->ops->close(pci);
    snprintf(path, sizeof(path), "%s" DEVICE "/enable", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd < 0 || read(fd, &value, 1) <= 0 || (char)value != '1');
    if (fd >= 0) {
        close(fd);
    }
}

static void a_function_by_sysfs_has_no_interrupts_and_reaches_no_memory(void **state)
{
    char folder[] = "/tmp/via-vfio-XXXXXX", command[96];
    struct via_pci *pci, *second;
    struct via_error err;
    (void)state;
    assert_non_null(mkdtemp(folder));
    struct via_sysfs_options options = {.address = "0000:03:00.0", .sysfs = folder};
    struct via_sysfs_options wrong = {.address = "03:00.0"};
    assert_int_equal(via_sysfs_open(&wrong, &pci, &err), -EINVAL);
    assert_int_equal(via_sysfs_open(&options, &pci, &err), -ENODEV);
    make(folder, DEVICE, NULL);
    put_function(folder);
    make(folder, DEVICE "/driver", "../../../../bus/pci/drivers/vfio-pci");
    assert_int_equal(via_sysfs_open(&options, &pci, &err), -EBUSY);
    assert_non_null(strstr(err.text, "the driver vfio-pci has the device"));
    check_beside(&options, folder);
    snprintf(command, sizeof(command), "rm %s" DEVICE "/driver", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(via_sysfs_open(&options, &pci, &err), 0);
    assert_int_equal(via_sysfs_open(&options, &second, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another process has the device"));
    check_function(pci, folder);
    pci->ops->close(pci);
    put_text(folder, "resource", "");
    assert_int_equal(via_sysfs_open(&options, &pci, &err), -EIO);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* --- vfio-user --- */

struct served {
    struct via_pex *pex;
    char path[64];
    int fd;
    _Atomic bool stop;
    pthread_t thread;
};

static int attach(void *ctx, struct via_pci **ret_pci)
{
    return via_pex_attach(((struct served *)ctx)->pex, VIA_PEX_VIRTUAL, ret_pci);
}

static void *serve(void *arg)
{
    struct served *served = arg;
    via_vfio_user_serve(served->fd, attach, served, NULL, 0, &served->stop);
    return NULL;
}

static int set_up(void **state)
{
    static struct served served;
    struct via_error err;
    memset(&served, 0, sizeof(served));
    snprintf(served.path, sizeof(served.path), "/tmp/via-vfio-%d.sock", (int)getpid());
    assert_int_equal(via_pex_new(&via_pex_options_default, &served.pex, &err), 0);
    assert_int_equal(via_vfio_user_listen(served.path, &served.fd, &err), 0);
    assert_int_equal(pthread_create(&served.thread, NULL, serve, &served), 0);
    *state = &served;
    return 0;
}

static int tear_down(void **state)
{
    struct served *served = *state;
    atomic_store(&served->stop, true);
    pthread_join(served->thread, NULL);
    close(served->fd);
    unlink(served->path);
    via_pex_free(served->pex);
    return 0;
}

static struct via_pci *open_client(const struct served *served)
{
    struct via_pci *pci;
    struct via_error err = {0};
    if (via_vfio_user_open(served->path, &pci, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return pci;
}

static void a_function_behind_a_socket_is_one(void **state)
{
    struct served *served = *state;
    struct via_pci *pci = open_client(served);
    struct via_pci_region region;
    uint32_t value = 0;
    uint64_t iova, word = 5;
    assert_int_equal(pci->ops->config_read(pci, 0, 4, &value), 0);
    assert_int_equal(value, 0x87B010B5);
    assert_int_equal(pci->ops->config_read(pci, 2, 2, &value), 0);
    assert_int_equal(value, 0x87B0);
    assert_int_equal(pci->ops->region(pci, 2, &region), 0);
    assert_int_equal(region.bytes, 4 << 20);
    assert_int_equal(pci->ops->irqs(pci, VIA_PCI_MSI), 1);
    assert_int_equal(pci->ops->irqs(pci, VIA_PCI_MSIX), 0);
    assert_int_equal(pci->ops->config_write(pci, 4, 2, 6), 0);
    assert_int_equal(pci->ops->region_write(pci, 0, 0x3EC6C, &word, 4), 0);
    assert_int_equal(via_pci_read32(pci, 0, 0x3EC6C), 5);
    assert_int_equal(pci->ops->region_read(pci, 2, 4 << 20, &word, 8), -EINVAL);

    int irq = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    uint64_t count;
    assert_int_equal(pci->ops->irq_set(pci, VIA_PCI_MSI, 1, &irq), 0);
    via_pci_write32(pci, 0, 0x3EC58, 0xffff);
    via_pci_write32(pci, 0, 0x3EC4C, 4);
    assert_int_equal(read(irq, &count, sizeof(count)), sizeof(count));

    /* Memory must be sealed: otherwise its owner could kill the server by SIGBUS. */
    int fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    void *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct via_pci_memory memory = {.at = at, .bytes = 8192, .fd = fd, .writable = true};
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), -EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), 0);
    memory.bytes = 16384; /* more than the memory has */
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &word), -EINVAL);
    assert_int_equal(pci->ops->dma_unmap(pci, iova), 0);
    assert_int_equal(pci->ops->dma_unmap(pci, iova), -ENOENT);
    memory = (struct via_pci_memory){.at = at, .bytes = 8192, .fd = -1};
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), -ENOTSUP);
    munmap(at, 8192);
    close(fd);
    close(irq);
    pci->ops->close(pci);
}

/* Sends a message unchanged. Returns whether the server keeps this client. */
static bool say(int fd, uint16_t command, const void *body, size_t bytes, uint32_t claimed,
                uint32_t *ret_error)
{
    static struct via_vfio_user_message message;
    struct via_vfio_user_header header = {.id = 9, .command = command, .bytes = claimed};
    if (send(fd, &header, sizeof(header), MSG_NOSIGNAL) < 0 ||
        (bytes != 0 && send(fd, body, bytes, MSG_NOSIGNAL) < 0)) {
        return false;
    }
    if (via_vfio_user_receive(fd, &message) != 0) {
        return false;
    }
    *ret_error = message.header.error;
    via_vfio_user_close_fds(&message);
    return true;
}

static void a_hostile_client_affects_only_itself(void **state)
{
    struct served *served = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, served->path);
    const uint32_t header = sizeof(struct via_vfio_user_header);
    for (unsigned round = 0; round < 12; round++) {
        uint32_t error = 0;
        unsigned char body[128];
        memset(body, 0xff, sizeof(body));
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        if (round == 0) { /* no request is allowed before the version */
            assert_true(say(fd, VIA_VFIO_USER_GET_INFO, NULL, 0, header, &error));
            assert_int_equal(error, EPROTO);
        }
        memset(body, 0, 4);
        assert_true(say(fd, VIA_VFIO_USER_VERSION, body, 4, header + 4, &error));
        memset(body, 0xff, sizeof(body));
        switch (round) {
        case 1: /* invalid sizes */
            assert_false(say(fd, VIA_VFIO_USER_GET_INFO, NULL, 0, 3, &error));
            break;
        case 2:
            assert_false(say(fd, VIA_VFIO_USER_GET_INFO, NULL, 0, UINT32_MAX, &error));
            break;
        default: { /* commands of all kinds, with all-ones of all lengths */
            static const uint16_t commands[] = {2, 3, 5, 7, 8, 9, 10, 6, 11, 99};
            for (unsigned i = 0; i < VIA_ARRAY_COUNT(commands); i++) {
                size_t bytes = round * 8 % sizeof(body);
                error = 0;
                assert_true(say(fd, commands[i], body, bytes, header + (uint32_t)bytes, &error));
                assert_true(error != 0 || commands[i] == 3 || commands[i] == 8);
            }
        }
        }
        close(fd); /* also in the middle of a message */
    }
    struct via_pci *pci = open_client(served);
    assert_false(pci->ops->gone(pci));
    pci->ops->close(pci);
}

/* Sends one message with a descriptor, or without (-1). Returns the error in its answer. */
static uint32_t send_request_with(int fd, struct via_vfio_user_message *message, uint16_t command,
                                  const void *body, size_t bytes, int passed)
{
    message->header = (struct via_vfio_user_header){.id = 7, .command = command};
    memcpy(message->body, body, bytes);
    message->body_bytes = (uint32_t)bytes;
    message->fds[0] = passed;
    message->fds_count = passed >= 0 ? 1 : 0;
    assert_int_equal(via_vfio_user_send(fd, message), 0);
    assert_int_equal(via_vfio_user_receive(fd, message), 0);
    return message->header.error;
}

static uint32_t send_request(int fd, struct via_vfio_user_message *message, uint16_t command,
                             const void *body, size_t bytes)
{
    return send_request_with(fd, message, command, body, bytes, -1);
}

/* A client that has agreed on the version, and can send any message. */
static int open_raw(const struct served *served, struct via_vfio_user_message *message)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct via_vfio_user_version version = {0, 0};
    strcpy(address.sun_path, served->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(send_request(fd, message, VIA_VFIO_USER_VERSION, &version, sizeof(version)),
                     0);
    return fd;
}

static int new_memory(uint64_t bytes, unsigned flags)
{
    int fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd >= 0) {
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    }
    return fd;
}

/* A memfd without pages may have any size. Mapped repeatedly, it would leave no addresses for the
 * mappings of other clients. */
static void a_client_does_not_take_all_addresses(void **state)
{
    static struct via_vfio_user_message message;
    struct served *served = *state;
    const uint64_t whole = UINT64_C(1) << 46;
    int memory = new_memory(whole, 0), fd = open_raw(served, &message);
    struct via_vfio_user_dma_map map = {.argsz = sizeof(map), .flags = VIA_VFIO_USER_DMA_READ};
    uint64_t mapped = 0;
    for (map.size = whole; map.size >= 1 << 20;) {
        if (send_request_with(fd, &message, VIA_VFIO_USER_DMA_MAP, &map, sizeof(map), memory) ==
            0) {
            map.address += map.size;
            mapped += map.size;
        } else {
            map.size /= 2;
        }
    }
    assert_true(mapped == UINT64_C(1) << 40);
    struct via_vfio_user_dma_unmap unmap = {.argsz = sizeof(unmap), .size = UINT64_MAX};
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_DMA_UNMAP, &unmap, sizeof(unmap)), 0);
    map.size = mapped; /* it is free again */
    assert_int_equal(
        send_request_with(fd, &message, VIA_VFIO_USER_DMA_MAP, &map, sizeof(map), memory), 0);
    close(fd);
    close(memory);
}

/* The owner punches holes in them and empties the pool; SIGBUS would kill the server. */
static void memory_of_huge_pages_is_refused(void **state)
{
    static struct via_vfio_user_message message;
    struct served *served = *state;
    int memory = new_memory(UINT64_C(1) << 30, MFD_HUGETLB);
    if (memory < 0) {
        skip(); /* a kernel without huge pages */
    }
    int fd = open_raw(served, &message);
    struct via_vfio_user_dma_map map = {
        .argsz = sizeof(map), .flags = VIA_VFIO_USER_DMA_READ, .size = UINT64_C(1) << 30};
    assert_int_equal(
        send_request_with(fd, &message, VIA_VFIO_USER_DMA_MAP, &map, sizeof(map), memory), EPERM);
    close(fd);
    close(memory);
}

/* The function's interrupts are written to an eventfd. A pipe without a reader would end the server
 * by SIGPIPE, and with it the function of the other host. */
static void an_interrupt_is_an_eventfd(void **state)
{
    static struct via_vfio_user_message message;
    struct served *served = *state;
    struct via_vfio_user_set_irqs set = {.argsz = sizeof(set),
                                         .flags =
                                             VIA_VFIO_USER_IRQ_EVENTFD | VIA_VFIO_USER_IRQ_TRIGGER,
                                         .index = VIA_PCI_MSI,
                                         .count = 1};
    int ends[2], memory = memfd_create("no eventfd", MFD_CLOEXEC);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    int fd = open_raw(served, &message);
    const int wrong[] = {ends[1], memory, fd};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(wrong); i++) {
        assert_int_equal(
            send_request_with(fd, &message, VIA_VFIO_USER_SET_IRQS, &set, sizeof(set), wrong[i]),
            EINVAL);
    }
    close(ends[1]);
    close(memory);
    close(fd);
}

/* Each byte of the answer arrives within the socket's time-out, but the answer never ends. */
static void *dribble(void *arg)
{
    int fd = accept(*(int *)arg, NULL, NULL);
    struct via_vfio_user_header header;
    if (recv(fd, &header, sizeof(header), MSG_WAITALL) != sizeof(header)) {
        return NULL;
    }
    header.flags = VIA_VFIO_USER_REPLY;
    header.bytes = sizeof(header) + 1000;
    (void)!send(fd, &header, sizeof(header), MSG_NOSIGNAL);
    while (send(fd, "x", 1, MSG_NOSIGNAL) == 1) {
        usleep(50000);
    }
    close(fd);
    return NULL;
}

static void a_server_that_dribbles_is_given_up(void **state)
{
    char path[64];
    struct via_pci *pci;
    struct via_error err = {0};
    pthread_t thread;
    int fd;
    (void)state;
    snprintf(path, sizeof(path), "/tmp/via-dribble-%d.sock", (int)getpid());
    assert_int_equal(via_vfio_user_listen(path, &fd, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, dribble, &fd), 0);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_true(via_vfio_user_open(path, &pci, &err) < 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true(to.tv_sec - from.tv_sec < 25); /* instead of the 50 s that all bytes would take */
    pthread_join(thread, NULL);
    close(fd);
    unlink(path);
}

/* The messages of QEMU 11.1 when a machine with the device starts. */
static void qemu_is_understood(void **state)
{
    struct served *served = *state;
    static struct via_vfio_user_message message;
    int fd = open_raw(served, &message);

    /* A ROM of the machine: memory without a descriptor. */
    struct via_vfio_user_dma_map map = {
        .argsz = sizeof(map), .flags = VIA_VFIO_USER_DMA_READ, .address = 0xc0000, .size = 0x20000};
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_DMA_MAP, &map, sizeof(map)), 0);
    struct via_vfio_user_dma_unmap unmap = {
        .argsz = sizeof(unmap), .address = map.address, .size = map.size};
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_DMA_UNMAP, &unmap, sizeof(unmap)), 0);

    /* Reads all of the config space at once, a misaligned piece of it, and one beyond its end. */
    struct via_vfio_user_access access = {.region = VIA_VFIO_USER_REGION_CONFIG,
                                          .count = VIA_PCI_CONFIG_BYTES};
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_REGION_READ, &access, sizeof(access)),
                     0);
    assert_int_equal(message.body_bytes, sizeof(access) + VIA_PCI_CONFIG_BYTES);
    unsigned char ids[6];
    memcpy(ids, message.body + sizeof(access), sizeof(ids));
    assert_int_equal(ids[0], 0xb5);
    assert_int_equal(ids[1], 0x10);
    access.offset = 1;
    access.count = 5;
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_REGION_READ, &access, sizeof(access)),
                     0);
    assert_memory_equal(message.body + sizeof(access), ids + 1, 5);
    access.offset = VIA_PCI_CONFIG_BYTES - 4;
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_REGION_READ, &access, sizeof(access)),
                     EINVAL);
    access.offset = UINT64_MAX;
    assert_int_equal(send_request(fd, &message, VIA_VFIO_USER_REGION_READ, &access, sizeof(access)),
                     EINVAL);
    close(fd);
}

static void the_end_of_a_server_removes_its_function(void **state)
{
    struct served *served = *state;
    struct via_pci *pci = open_client(served);
    uint32_t value = 0;
    uint64_t word = 0;
    atomic_store(&served->stop, true);
    pthread_join(served->thread, NULL);
    assert_int_equal(pci->ops->config_read(pci, 0, 4, &value), 0);
    assert_int_equal(value, UINT32_MAX);
    assert_true(pci->ops->gone(pci));
    assert_int_equal(pci->ops->region_read(pci, 2, 0, &word, 8), 0);
    assert_true(word == UINT64_MAX);
    assert_int_equal(pci->ops->region_write(pci, 2, 0, &word, 8), 0);
    pci->ops->close(pci);
    atomic_store(&served->stop, false);
    assert_int_equal(pthread_create(&served->thread, NULL, serve, served), 0);
}

static void two_servers_do_not_share_a_path(void **state)
{
    struct served *served = *state;
    struct via_error err;
    int fd;
    assert_int_equal(via_vfio_user_listen(served->path, &fd, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "another server listens there"));
}

/* Four clients wait in the queue of a stopped server; a fifth connect(2) would wait, too. */
static void a_server_that_stands_still_has_its_path(void **state)
{
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct via_error err;
    char directory[] = "/tmp/via-vfio-XXXXXX";
    int listener, fds[16], fd;
    unsigned count = 0;
    assert_non_null(mkdtemp(directory));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", directory);
    assert_int_equal(via_vfio_user_listen(address.sun_path, &listener, &err), 0);
    do {
        assert_true(count < VIA_ARRAY_COUNT(fds));
        fds[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        count++;
    } while (connect(fds[count - 1], (struct sockaddr *)&address, sizeof(address)) == 0);
    assert_int_equal(via_vfio_user_listen(address.sun_path, &fd, &err), -EADDRINUSE);
    while (count > 0) {
        close(fds[--count]);
    }
    /* The server has ended, and a new one uses the path. */
    close(listener);
    assert_int_equal(via_vfio_user_listen(address.sun_path, &fd, &err), 0);
    close(fd);
    unlink(address.sun_path);
    rmdir(directory);
}

static void a_file_is_not_used_as_a_socket(void **state)
{
    (void)state;
    char directory[] = "/tmp/via-vfio-XXXXXX", path[64];
    struct via_error err;
    int fd;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/precious", directory);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(via_vfio_user_listen(path, &fd, &err), -EEXIST);
    assert_non_null(strstr(err.text, "the path exists and is not a socket"));
    assert_int_equal(unlink(path), 0); /* the path still exists */
    rmdir(directory);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_apart_and_aligned),
        cmocka_unit_test(addresses_avoid_ranges),
        cmocka_unit_test(a_range_up_to_the_last_address_is_behind_all),
        cmocka_unit_test(a_signal_that_a_process_sends_ends_the_guarded_one),
        cmocka_unit_test(a_mapping_that_is_taken_away_turns_into_ones),
        cmocka_unit_test(a_function_by_sysfs_has_no_interrupts_and_reaches_no_memory),
        TEST(a_function_behind_a_socket_is_one),
        TEST(an_interrupt_is_an_eventfd),
        cmocka_unit_test(a_server_that_dribbles_is_given_up),
        cmocka_unit_test(a_server_that_stands_still_has_its_path),
        cmocka_unit_test(a_file_is_not_used_as_a_socket),
        TEST(a_hostile_client_affects_only_itself),
        TEST(a_client_does_not_take_all_addresses),
        TEST(memory_of_huge_pages_is_refused),
        TEST(qemu_is_understood),
        TEST(the_end_of_a_server_removes_its_function),
        TEST(two_servers_do_not_share_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
