/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The kernel's VFIO without a device: the used files, the reported errors, and that no descriptor
 * is left open after an error. */
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/pci_folder.h"
#include "vfio/iommufd.h"
#include "vfio/iova.h"
#include "vfio/kernel.h"

/* --- files that are missing --- */

static void a_missing_feature_of_the_kernel_is_reported(void **state)
{
    char folder[] = "/tmp/via-vfio-XXXXXX", dev[64], command[96];
    struct via_pci *pci;
    struct via_error err;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(dev, sizeof(dev), "%s/dev", folder);
    struct via_kernel_options options = {.address = "0000:03:00.0", .sysfs = folder, .devfs = dev};

    struct via_kernel_options wrong = {.address = "03:00.0"};
    assert_int_equal(via_kernel_open(&wrong, &pci, &err), -EINVAL);
    assert_int_equal(via_kernel_open(&options, &pci, &err), -ENODEV);
    assert_non_null(strstr(err.text, "no such device in"));
    make(folder, DEVICE, NULL);
    assert_int_equal(via_kernel_open(&options, &pci, &err), -ENODEV);
    assert_non_null(strstr(err.text, "no driver has the device: bind it to vfio-pci"));
    make(folder, DEVICE "/driver", "../../../../bus/pci/drivers/ntb_hw_plx");
    assert_int_equal(via_kernel_open(&options, &pci, &err), -EBUSY);
    assert_non_null(strstr(err.text, "the driver ntb_hw_plx has the device"));
    make(folder, DEVICE "/driver", "../../../../bus/pci/drivers/vfio-pci");
    assert_int_equal(via_kernel_open(&options, &pci, &err), -EPERM);
    assert_non_null(strstr(err.text, "the device is in no IOMMU group"));
    make(folder, DEVICE "/iommu_group", "../../../../kernel/iommu_groups/17");
    assert_int_equal(via_kernel_open(&options, &pci, &err), -ENODEV);
    make(folder, "/dev", NULL);
    make(folder, "/dev/noiommu-17", NULL);
    assert_int_equal(via_kernel_open(&options, &pci, &err), -EPERM);
    assert_non_null(strstr(err.text, "without an IOMMU: the peer would reach all memory"));
    make(folder, "/dev/17", NULL);
    assert_int_equal(via_kernel_open(&options, &pci, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/dev/vfio: No such file"));
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* --- requests on the files: files are memory, requests are recorded --- */

#define FAKE_BARS_BYTES 8192u
#define FAKE_IOAS 7u

static struct {
    char missing[64];      /* an open() of a path that ends like this fails */
    int open_errno;        /* ... with this error */
    unsigned long refused; /* the request that fails */
    int refused_errno;
    int opened_count;
    unsigned long asked[64];
    unsigned asked_count;
    uint64_t map_iova, map_bytes, unmap_iova, unmap_bytes;
    uint32_t map_flags, ioas;
    uintptr_t iommu_type;
} fake;

static int fake_open(const char *path, int flags)
{
    size_t length = strlen(path), tail = strlen(fake.missing);
    (void)flags;
    if (tail != 0 && length >= tail && strcmp(path + length - tail, fake.missing) == 0) {
        errno = fake.open_errno;
        return -1;
    }
    fake.opened_count++;
    int fd = memfd_create(path, MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 2 * FAKE_BARS_BYTES), 0);
    return fd;
}

static int fake_region(struct vfio_region_info *info)
{
    bool is_there = info->index == 0 || info->index == VFIO_PCI_CONFIG_REGION_INDEX;
    info->size = is_there ? FAKE_BARS_BYTES : 0;
    info->offset = info->index == 0 ? 0 : FAKE_BARS_BYTES;
    info->flags = info->index == 0 ? VFIO_REGION_INFO_FLAG_MMAP : 0;
    return 0;
}

static int fake_answer(unsigned long request, void *argument)
{
    switch (request) {
    case VFIO_CHECK_EXTENSION:
        return 1;
    case VFIO_SET_IOMMU:
        fake.iommu_type = (uintptr_t)argument;
        return 0;
    case VFIO_GROUP_GET_STATUS:
        ((struct vfio_group_status *)argument)->flags = VFIO_GROUP_FLAGS_VIABLE;
        return 0;
    case VFIO_GROUP_GET_DEVICE_FD:
        return fake_open("device", 0);
    case VFIO_DEVICE_GET_REGION_INFO:
        return fake_region(argument);
    case VFIO_DEVICE_GET_IRQ_INFO:
        ((struct vfio_irq_info *)argument)->count = 1;
        ((struct vfio_irq_info *)argument)->flags = VFIO_IRQ_INFO_EVENTFD;
        return 0;
    case VFIO_IOMMU_MAP_DMA:
        fake.map_iova = ((struct vfio_iommu_type1_dma_map *)argument)->iova;
        fake.map_bytes = ((struct vfio_iommu_type1_dma_map *)argument)->size;
        return 0;
    case VFIO_IOMMU_UNMAP_DMA:
        fake.unmap_iova = ((struct vfio_iommu_type1_dma_unmap *)argument)->iova;
        fake.unmap_bytes = ((struct vfio_iommu_type1_dma_unmap *)argument)->size;
        return 0;
    case VIA_IOMMU_IOAS_ALLOC:
        ((struct via_iommu_ioas_alloc *)argument)->out_ioas_id = FAKE_IOAS;
        return 0;
    case VIA_IOMMU_IOAS_MAP: {
        const struct via_iommu_ioas_map *map = argument;
        fake.map_iova = map->iova;
        fake.map_bytes = map->length;
        fake.map_flags = map->flags;
        fake.ioas = map->ioas_id;
        return 0;
    }
    case VIA_IOMMU_IOAS_UNMAP:
        fake.unmap_iova = ((struct via_iommu_ioas_unmap *)argument)->iova;
        fake.unmap_bytes = ((struct via_iommu_ioas_unmap *)argument)->length;
        return 0;
    default:
        return 0;
    }
}

static int fake_ioctl(int fd, unsigned long request, void *argument)
{
    assert_true(fcntl(fd, F_GETFD) >= 0);
    if (fake.asked_count < VIA_ARRAY_COUNT(fake.asked)) {
        fake.asked[fake.asked_count++] = request;
    }
    if (request == fake.refused) {
        errno = fake.refused_errno;
        return -1;
    }
    return fake_answer(request, argument);
}

static bool was_asked(unsigned long request)
{
    for (unsigned i = 0; i < fake.asked_count; i++) {
        if (fake.asked[i] == request) {
            return true;
        }
    }
    return false;
}

static unsigned count_fds(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

struct fake_machine {
    char folder[32], dev[64], iommufd[64], pagemap[64];
    struct via_kernel_options options;
};

static const struct via_kernel_calls fake_calls = {.open = fake_open, .ioctl = fake_ioctl};

/* A function bound to vfio-pci in group 17; the caller selects the files of VFIO. */
static void begin_machine(struct fake_machine *machine, bool has_group, bool has_iommufd)
{
    memset(&fake, 0, sizeof(fake));
    strcpy(machine->folder, "/tmp/via-vfio-XXXXXX");
    assert_non_null(mkdtemp(machine->folder));
    snprintf(machine->dev, sizeof(machine->dev), "%s/dev", machine->folder);
    snprintf(machine->iommufd, sizeof(machine->iommufd), "%s/iommu", machine->folder);
    snprintf(machine->pagemap, sizeof(machine->pagemap), "%s/pagemap", machine->folder);
    machine->options = (struct via_kernel_options){.address = "0000:03:00.0",
                                                   .sysfs = machine->folder,
                                                   .devfs = machine->dev,
                                                   .iommufd = machine->iommufd,
                                                   .pagemap = machine->pagemap,
                                                   .calls = &fake_calls};
    make(machine->folder, DEVICE, NULL);
    make(machine->folder, DEVICE "/driver", "../../../../bus/pci/drivers/vfio-pci");
    make(machine->folder, DEVICE "/iommu_group", "../../../../kernel/iommu_groups/17");
    make(machine->folder, "/dev", NULL);
    if (has_group) {
        make(machine->folder, "/dev/17", NULL);
    }
    if (has_iommufd) {
        make(machine->folder, "/iommu", NULL);
        make(machine->folder, DEVICE "/vfio-dev/vfio3", NULL);
        make(machine->folder, "/dev/devices/vfio3", NULL);
    }
}

static void end_machine(const struct fake_machine *machine)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -r %s", machine->folder);
    assert_int_equal(system(command), 0);
}

static void check_memory(struct via_pci *pci, void *at, uint64_t bytes, uint64_t alignment)
{
    struct via_pci_memory memory = {.at = at, .bytes = bytes, .fd = -1, .writable = true};
    uint64_t iova = 0;
    assert_int_equal(pci->ops->dma_map(pci, &memory, alignment, &iova), 0);
    assert_int_equal(iova % alignment, 0);
    assert_true(fake.map_iova == iova && fake.map_bytes == bytes);
    assert_int_equal(pci->ops->dma_unmap(pci, iova), 0);
    assert_true(fake.unmap_iova == iova && fake.unmap_bytes == bytes);
    assert_int_equal(pci->ops->dma_unmap(pci, iova), -ENOENT);
}

static void open_and_check(struct fake_machine *machine, const char *describes)
{
    static unsigned char memory[16384] __attribute__((aligned(4096)));
    struct via_pci *pci;
    struct via_error err = {0};
    unsigned fds = count_fds();
    assert_int_equal(via_kernel_open(&machine->options, &pci, &err), 0);
    assert_string_equal(pci->ops->describe(pci), describes);
    via_pci_write32(pci, 0, 8, 0x12345678);
    assert_int_equal(via_pci_read32(pci, 0, 8), 0x12345678);
    check_memory(pci, memory, sizeof(memory), 1 << 20);
    pci->ops->close(pci);
    assert_int_equal(count_fds(), fds);
}

/* The file that a process maps by window_fd(), and where. */
static void check_window(struct via_pci *pci, const char *file, uint64_t off)
{
    char path[64], target[256] = "";
    int fd;
    uint64_t fd_off;
    assert_int_equal(pci->ops->window_fd(pci, 0, 4096, 4096, &fd, &fd_off), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    assert_true(readlink(path, target, sizeof(target) - 1) > 0);
    assert_non_null(strstr(target, file));
    assert_int_equal(fd_off, off);
    close(fd);
}

static void map_both(struct via_pci *pci, bool first_combines, enum via_pci_caching caching,
                     const char *file, uint64_t off)
{
    struct via_pci_mapping mappings[2];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pci->ops->map(pci, 0, 0, 4096, first_combines == (i == 0), &mappings[i]),
                         0);
        assert_int_equal(mappings[i].caching, caching);
    }
    check_window(pci, file, off);
    pci->ops->unmap(pci, &mappings[0]);
    check_window(pci, file, off);
    pci->ops->unmap(pci, &mappings[1]);
}

static void make_file(const struct fake_machine *machine, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s", machine->folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* A kernel with CONFIG_IO_STRICT_DEVMEM ends mappings by sysfs when VFIO maps the BAR. */
static void a_bar_is_mapped_by_one_file_at_a_time(void **state)
{
    struct fake_machine machine;
    struct via_pci *pci;
    struct via_error err = {0};
    (void)state;
    begin_machine(&machine, true, false);
    assert_int_equal(via_kernel_open(&machine.options, &pci, &err), 0);
    map_both(pci, true, VIA_PCI_UNCACHED, "device", 4096); /* not prefetchable */
    make_file(&machine, DEVICE "/resource0");
    make_file(&machine, DEVICE "/resource0_wc");
    map_both(pci, true, VIA_PCI_UNCACHED, "device", 4096);
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_BAR(0), 4, 0xC), 0);
    map_both(pci, true, VIA_PCI_COMBINING, "/resource0_wc", 4096);
    map_both(pci, false, VIA_PCI_UNCACHED, "/resource0", 4096);
    map_both(pci, true, VIA_PCI_COMBINING, "/resource0_wc", 4096);
    check_window(pci, "device", 4096);
    end_machine(&machine); /* sysfs refuses: VFIO's file remains */
    map_both(pci, true, VIA_PCI_UNCACHED, "device", 4096);
    map_both(pci, false, VIA_PCI_UNCACHED, "device", 4096);
    pci->ops->close(pci);
}

/* VFIO's first access by call to a BAR ends its mappings by sysfs: such calls are refused. */
static void a_bar_that_sysfs_maps_is_not_accessed_by_calls(void **state)
{
    struct fake_machine machine;
    struct via_pci *pci;
    struct via_pci_mapping mappings[2], none = {0};
    struct via_error err = {0};
    uint32_t word = 1;
    (void)state;
    begin_machine(&machine, true, false);
    assert_int_equal(via_kernel_open(&machine.options, &pci, &err), 0);
    make_file(&machine, DEVICE "/resource0_wc");
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_BAR(0), 4, 0xC), 0);
    via_pci_write32(pci, 0, 8, 0x12345678);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pci->ops->map(pci, 0, 0, 4096, true, &mappings[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pci->ops->region_write(pci, 0, 8, &word, sizeof(word)), -EBUSY);
        assert_int_equal(pci->ops->region_read(pci, 0, 8, &word, sizeof(word)), -EBUSY);
        pci->ops->unmap(pci, &none); /* nothing */
        pci->ops->unmap(pci, &mappings[i]);
    }
    assert_int_equal(via_pci_read32(pci, 0, 8), 0x12345678);
    /* Beside VFIO's own mappings calls are as before. */
    assert_int_equal(pci->ops->config_write(pci, VIA_PCI_BAR(0), 4, 0), 0);
    assert_int_equal(pci->ops->map(pci, 0, 0, 4096, true, &mappings[0]), 0);
    assert_int_equal(via_pci_read32(pci, 0, 8), 0x12345678);
    pci->ops->unmap(pci, &mappings[0]);
    pci->ops->close(pci);
    end_machine(&machine);
}

static void iommufd_is_taken_where_it_is(void **state)
{
    struct fake_machine machine;
    (void)state;
    begin_machine(&machine, true, true);
    open_and_check(&machine, "0000:03:00.0 by VFIO (iommufd)");
    assert_true(was_asked(VIA_VFIO_DEVICE_BIND_IOMMUFD));
    assert_true(was_asked(VIA_VFIO_DEVICE_ATTACH_IOMMUFD_PT));
    assert_false(was_asked(VFIO_GROUP_SET_CONTAINER));
    assert_int_equal(fake.ioas, FAKE_IOAS);
    assert_int_equal(fake.map_flags, 7); /* at a given address, readable and writable */
    end_machine(&machine);
    /* Kernels may be built without groups. */
    begin_machine(&machine, false, true);
    open_and_check(&machine, "0000:03:00.0 by VFIO (iommufd)");
    end_machine(&machine);
}

static void without_iommufd_the_group_does(void **state)
{
    struct fake_machine machine;
    (void)state;
    begin_machine(&machine, true, false);
    open_and_check(&machine, "0000:03:00.0 by VFIO");
    assert_true(was_asked(VFIO_GROUP_SET_CONTAINER));
    assert_int_equal(fake.iommu_type, VFIO_TYPE1v2_IOMMU);
    end_machine(&machine);
    /* The files exist, but may not be opened. */
    begin_machine(&machine, true, true);
    strcpy(fake.missing, "/iommu");
    fake.open_errno = EACCES;
    open_and_check(&machine, "0000:03:00.0 by VFIO");
    strcpy(fake.missing, "/vfio3");
    open_and_check(&machine, "0000:03:00.0 by VFIO");
    end_machine(&machine);
}

/* The function is below two bridges, as sysfs shows it; `windows`: of the upper one's resource
 * file. */
static void put_below_bridges(const struct fake_machine *machine, const char *windows)
{
#define UPPER "/devices/pci0000:00/0000:00:01.0"
#define LOWER UPPER "/0000:01:00.0"
    char from[128], to[128];
    make(machine->folder, LOWER, NULL);
    snprintf(from, sizeof(from), "%s" DEVICE, machine->folder);
    snprintf(to, sizeof(to), "%s" LOWER "/0000:03:00.0", machine->folder);
    assert_int_equal(rename(from, to), 0);
    make(machine->folder, DEVICE, "../../.." LOWER "/0000:03:00.0");
    snprintf(to, sizeof(to), "%s" UPPER "/resource", machine->folder);
    FILE *file = fopen(to, "we");
    assert_non_null(file);
    assert_true(fputs(windows, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A switch would treat such a DMA as an access to one of the functions below it. */
static void dma_addresses_are_in_no_window_of_a_bridge(void **state)
{
    static unsigned char memory[8192] __attribute__((aligned(4096)));
    static const struct {
        const char *windows;
        uint64_t first, second; /* addresses of 8 KiB, aligned to 1 MiB; 0: there are none */
    } cases[] = {
        {"", 0x100000000, 0x100100000},
        {"0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
         "0x0000000000001000 0x0000000000001fff 0x0000000000000101\n"
         "0x00000000f0000000 0x00000000f7ffffff 0x0000000000000200\n"
         "0x0000000100100000 0x00000001801fffff 0x000000000014220c\n"
         "0x0000000180200000 0x00000001802fffff 0x0000000000000200\n",
         0x100000000, 0x180300000},
        {"0x00000000f0000000 0x00000001000fffff 0x000000000014220c\n", 0x100100000, 0x100200000},
        {"0x0000000100000000 0xffffffffffffffff 0x000000000014220c\n", 0, 0},
    };
    struct via_pci_memory piece = {
        .at = memory, .bytes = sizeof(memory), .fd = -1, .writable = true};
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        struct fake_machine machine;
        struct via_pci *pci;
        struct via_error err = {0};
        uint64_t iova[2] = {0};
        begin_machine(&machine, true, false);
        put_below_bridges(&machine, cases[i].windows);
        assert_int_equal(via_kernel_open(&machine.options, &pci, &err), 0);
        int rc = cases[i].first != 0 ? 0 : -ENOSPC;
        assert_int_equal(pci->ops->dma_map(pci, &piece, 1 << 20, &iova[0]), rc);
        assert_int_equal(pci->ops->dma_map(pci, &piece, 1 << 20, &iova[1]), rc);
        assert_true(iova[0] == cases[i].first && iova[1] == cases[i].second);
        /* The DMA function of a chip has the window itself mapped, at its own address. */
        uint64_t own = 0x140000000;
        assert_int_equal(pci->ops->dma_map(pci, &piece, 0, &own), 0);
        pci->ops->close(pci);
        end_machine(&machine);
    }
}

static void refuse(struct fake_machine *machine, int rc, const char *expected)
{
    struct via_pci *pci;
    struct via_error err = {0};
    unsigned fds = count_fds();
    assert_int_equal(via_kernel_open(&machine->options, &pci, &err), rc);
    assert_non_null(strstr(err.text, expected));
    assert_int_equal(count_fds(), fds);
}

/* The driver must know which addresses the bridges route elsewhere. */
static void windows_that_can_not_be_read_are_refused(void **state)
{
    struct fake_machine machine;
    char many[64 * (VIA_IOVA_AVOIDED_MAX + 2)] = "";
    (void)state;
    for (uint64_t i = 0, length = 0; i <= VIA_IOVA_AVOIDED_MAX; i++) {
        length += (uint64_t)sprintf(many + length, "%#llx %#llx 0x200\n",
                                    (unsigned long long)(i + 4) << 30,
                                    (unsigned long long)((i + 4) << 30 | 0xfff));
    }
    const struct {
        const char *windows;
        int rc;
        const char *expected;
    } cases[] = {
        {many, -ENOSPC, "0000:00:01.0/resource: the bridges have more than 32 memory windows"},
        {"0x100000000 0x1ffffffff\n", -EIO, "0000:00:01.0/resource: "},
        {"0x100000000 0x1ffffffff 0x200\n\n", -EIO, "0000:00:01.0/resource: "},
    };
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        begin_machine(&machine, true, false);
        put_below_bridges(&machine, cases[i].windows);
        refuse(&machine, cases[i].rc, cases[i].expected);
        end_machine(&machine);
    }
    begin_machine(&machine, true, false);
    put_below_bridges(&machine, "");
    make(machine.folder, LOWER "/resource", "resource"); /* a link to itself */
    refuse(&machine, -ELOOP, "0000:01:00.0/resource: ");
    make(machine.folder, LOWER "/resource", NULL); /* a directory: it can be opened, but not read */
    refuse(&machine, -EISDIR, "0000:01:00.0/resource: ");
    end_machine(&machine);
}

static void the_error_of_iommufd_is_reported(void **state)
{
    static const struct {
        unsigned long request;
        int with, rc;
        const char *expected;
    } cases[] = {
        {VIA_VFIO_DEVICE_BIND_IOMMUFD, EINVAL, -EBUSY, "another process has the device"},
        {VIA_VFIO_DEVICE_BIND_IOMMUFD, EBUSY, -EBUSY, "have drivers of their own"},
        {VIA_VFIO_DEVICE_BIND_IOMMUFD, EPERM, -EPERM, "no interrupt remapping?"},
        {VIA_IOMMU_IOAS_ALLOC, ENOMEM, -ENOMEM, "IO address space: Cannot allocate"},
        {VIA_VFIO_DEVICE_ATTACH_IOMMUFD_PT, EINVAL, -EINVAL, "attach to the IO address space"},
    };
    struct fake_machine machine;
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        begin_machine(&machine, true, true);
        fake.refused = cases[i].request;
        fake.refused_errno = cases[i].with;
        refuse(&machine, cases[i].rc, cases[i].expected);
        /* If a device is in use, the other interface is not tried. */
        assert_false(was_asked(VFIO_GROUP_SET_CONTAINER));
        end_machine(&machine);
    }
    begin_machine(&machine, false, true);
    strcpy(fake.missing, "/vfio3");
    fake.open_errno = EACCES;
    refuse(&machine, -EACCES, "/dev/devices/vfio3: Permission denied");
    end_machine(&machine);
}

static void the_error_of_a_group_is_reported(void **state)
{
    struct fake_machine machine;
    (void)state;
    begin_machine(&machine, true, false);
    strcpy(fake.missing, "/17");
    fake.open_errno = EBUSY;
    refuse(&machine, -EBUSY,
           "/dev/17: Device or resource busy: another process, or another link of this one, has "
           "the group");
    fake.open_errno = EACCES;
    refuse(&machine, -EACCES, "/dev/17: Permission denied");
    strcpy(fake.missing, "/vfio");
    refuse(&machine, -EACCES, "/dev/vfio: Permission denied");
    fake.missing[0] = '\0';
    fake.refused = VFIO_SET_IOMMU;
    fake.refused_errno = EPERM;
    refuse(&machine, -EPERM, "no interrupt remapping?");
    end_machine(&machine);
}

static void put_frames(const struct fake_machine *machine, const void *at, const uint64_t *frames,
                       unsigned count)
{
    int fd = open(machine->pagemap, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    off_t off = (off_t)((uintptr_t)at / 4096 * 8);
    assert_int_equal(pwrite(fd, frames, count * sizeof(*frames), off), count * sizeof(*frames));
    close(fd);
}

#define PRESENT (UINT64_C(1) << 63)

static void without_an_iommu_only_if_that_is_asked_for(void **state)
{
    static unsigned char bytes[16384] __attribute__((aligned(4096)));
    static const uint64_t whole[] = {PRESENT | 0x400, PRESENT | 0x401, PRESENT | 0x402,
                                     PRESENT | 0x403};
    static const uint64_t torn[] = {PRESENT | 0x400, PRESENT | 0x401, PRESENT | 0x502,
                                    PRESENT | 0x403};
    static const uint64_t hidden[] = {PRESENT, PRESENT, PRESENT, PRESENT};
    static const uint64_t absent[] = {PRESENT | 0x400, PRESENT | 0x401, 0, 0};
    struct via_pci_memory memory = {.at = bytes, .bytes = sizeof(bytes), .fd = -1};
    struct fake_machine machine;
    struct via_pci *pci;
    struct via_error err = {0};
    uint64_t iova = 0;
    (void)state;
    begin_machine(&machine, false, false);
    make(machine.folder, "/dev/noiommu-17", NULL);
    refuse(&machine, -EPERM, "(the option noiommu allows that)");
    assert_int_equal(fake.opened_count, 0);
    machine.options.without_iommu = true;
    assert_int_equal(via_kernel_open(&machine.options, &pci, &err), 0);
    assert_string_equal(pci->ops->describe(pci), "0000:03:00.0 by VFIO without an IOMMU");
    assert_int_equal(fake.iommu_type, VFIO_NOIOMMU_IOMMU);
    put_frames(&machine, bytes, whole, 4);
    assert_int_equal(pci->ops->dma_map(pci, &memory, 1 << 22, &iova), 0);
    assert_int_equal(iova, 0x400000); /* at the given address */
    /* The address is in use. */
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), -ENOSPC);
    assert_int_equal(pci->ops->dma_unmap(pci, iova), 0);
    assert_int_equal(pci->ops->dma_map(pci, &memory, 1 << 23, &iova), -ENOSPC);
    put_frames(&machine, bytes, torn, 4);
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), -ENOTSUP);
    put_frames(&machine, bytes, hidden, 4);
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), -EPERM);
    put_frames(&machine, bytes, absent, 4);
    assert_int_equal(pci->ops->dma_map(pci, &memory, 4096, &iova), -EIO);
    assert_false(was_asked(VFIO_IOMMU_MAP_DMA));
    pci->ops->close(pci);
    end_machine(&machine);
    /* With an IOMMU the option changes nothing. */
    begin_machine(&machine, true, false);
    machine.options.without_iommu = true;
    open_and_check(&machine, "0000:03:00.0 by VFIO");
    assert_int_equal(fake.iommu_type, VFIO_TYPE1v2_IOMMU);
    end_machine(&machine);
}

/* --- a second function --- */

#define ENGINE "/bus/pci/devices/0000:03:00.1"

static unsigned count_asked(unsigned long request)
{
    unsigned count = 0;
    for (unsigned i = 0; i < fake.asked_count; i++) {
        count += fake.asked[i] == request;
    }
    return count;
}

static void add_engine(const struct fake_machine *machine, const char *group)
{
    char link[64], file[32];
    snprintf(link, sizeof(link), "../../../../kernel/iommu_groups/%s", group);
    snprintf(file, sizeof(file), "/dev/%s", group);
    make(machine->folder, ENGINE, NULL);
    make(machine->folder, ENGINE "/driver", "../../../../bus/pci/drivers/vfio-pci");
    make(machine->folder, ENGINE "/iommu_group", link);
    if (strcmp(group, "17") != 0) {
        make(machine->folder, file, NULL);
    }
}

/* A mapping for one function is a mapping for both, so no address is used twice. */
static void check_beside(struct fake_machine *machine, unsigned opens, const char *describes)
{
    static unsigned char bytes[16384] __attribute__((aligned(4096)));
    struct via_pci_memory memory = {
        .at = bytes, .bytes = sizeof(bytes), .fd = -1, .writable = true};
    struct via_kernel_options engine = machine->options;
    struct via_pci *first, *second;
    struct via_error err = {0};
    uint64_t one = 0, other = UINT64_C(0x4000000000), third;
    unsigned fds = count_fds();
    assert_int_equal(via_kernel_open(&machine->options, &first, &err), 0);
    engine.address = "0000:03:00.1";
    engine.beside = first;
    fake.opened_count = 0;
    assert_int_equal(via_kernel_open(&engine, &second, &err), 0);
    assert_int_equal(fake.opened_count, opens);
    assert_string_equal(second->ops->describe(second), describes);
    assert_int_equal(second->requester, 0x301);
    assert_int_equal(first->ops->dma_map(first, &memory, 4096, &one), 0);
    third = one;
    assert_int_equal(second->ops->dma_map(second, &memory, 0, &third), -ENOSPC);
    assert_int_equal(second->ops->dma_map(second, &memory, 0, &other), 0);
    assert_true(other == UINT64_C(0x4000000000) && fake.map_iova == other);
    assert_int_equal(second->ops->dma_map(second, &memory, 4096, &third), 0);
    assert_true(third != one);
    assert_int_equal(second->ops->dma_unmap(second, other), 0);
    assert_int_equal(fake.unmap_iova, other);
    second->ops->close(second);
    via_pci_write32(first, 0, 8, 0x5eed);
    assert_int_equal(via_pci_read32(first, 0, 8), 0x5eed);
    assert_int_equal(first->ops->dma_unmap(first, one), 0);
    first->ops->close(first);
    assert_int_equal(count_fds(), fds);
}

static void a_function_beside_another_has_its_addresses(void **state)
{
    struct fake_machine machine;
    (void)state;
    /* In one group, which can be opened only once: the device alone. */
    begin_machine(&machine, true, false);
    add_engine(&machine, "17");
    check_beside(&machine, 1, "0000:03:00.1 by VFIO");
    assert_int_equal(count_asked(VFIO_GROUP_SET_CONTAINER), 1);
    end_machine(&machine);
    /* In a separate group, which joins the container. */
    begin_machine(&machine, true, false);
    add_engine(&machine, "18");
    check_beside(&machine, 2, "0000:03:00.1 by VFIO");
    assert_int_equal(count_asked(VFIO_GROUP_SET_CONTAINER), 2);
    assert_int_equal(count_asked(VFIO_SET_IOMMU), 1);
    end_machine(&machine);
    /* By iommufd: one descriptor, and one IO address space. */
    begin_machine(&machine, true, true);
    add_engine(&machine, "18");
    make(machine.folder, ENGINE "/vfio-dev/vfio4", NULL);
    make(machine.folder, "/dev/devices/vfio4", NULL);
    check_beside(&machine, 1, "0000:03:00.1 by VFIO (iommufd)");
    assert_int_equal(count_asked(VIA_IOMMU_IOAS_ALLOC), 1);
    assert_int_equal(count_asked(VIA_VFIO_DEVICE_ATTACH_IOMMUFD_PT), 2);
    end_machine(&machine);
    /* By a container, if it exists and the caller asks for it; both functions use it. */
    begin_machine(&machine, true, true);
    add_engine(&machine, "18");
    make(machine.folder, ENGINE "/vfio-dev/vfio4", NULL);
    make(machine.folder, "/dev/devices/vfio4", NULL);
    machine.options.by_container = true;
    check_beside(&machine, 2, "0000:03:00.1 by VFIO");
    end_machine(&machine);
}

/* The first function is unaffected. */
static void what_can_not_be_beside_is_refused(void **state)
{
    struct fake_machine machine;
    struct via_pci *first, *second;
    struct via_error err = {0};
    (void)state;
    for (unsigned by_iommufd = 0; by_iommufd < 2; by_iommufd++) {
        begin_machine(&machine, true, by_iommufd != 0);
        add_engine(&machine, "18");
        unsigned fds = count_fds();
        assert_int_equal(via_kernel_open(&machine.options, &first, &err), 0);
        struct via_kernel_options engine = machine.options;
        engine.address = "0000:03:00.1";
        engine.beside = first;
        unsigned held = count_fds();
        if (by_iommufd != 0) { /* it has no device file, and its group would be another interface */
            assert_int_equal(via_kernel_open(&engine, &second, &err), -ENODEV);
            assert_non_null(strstr(err.text, "the function has no device file"));
        } else {
            fake.refused = VFIO_GROUP_SET_CONTAINER;
            fake.refused_errno = EINVAL;
            assert_int_equal(via_kernel_open(&engine, &second, &err), -EINVAL);
            assert_non_null(strstr(err.text, "/dev/18: join a container"));
        }
        assert_int_equal(count_fds(), held);
        fake.refused = 0;
        via_pci_write32(first, 0, 8, 0x5eed);
        assert_int_equal(via_pci_read32(first, 0, 8), 0x5eed);
        first->ops->close(first);
        assert_int_equal(count_fds(), fds);
        end_machine(&machine);
    }
}

/* A bridge above only the second function: neither function gets an address in the bridge's
 * windows, even if the second function is opened repeatedly. */
static void a_function_beside_another_has_bridges_of_its_own(void **state)
{
    static unsigned char bytes[4096] __attribute__((aligned(4096)));
    struct via_pci_memory piece = {.at = bytes, .bytes = sizeof(bytes), .fd = -1};
    struct fake_machine machine;
    struct via_pci *first, *second;
    struct via_error err = {0};
    uint64_t iova = 0;
    (void)state;
    begin_machine(&machine, true, false);
    put_below_bridges(&machine, "0x0000000100000000 0x00000001ffffffff 0x000000000014220c\n");
    struct via_kernel_options engine = machine.options;
    machine.options.address = "0000:03:00.1";
    add_engine(&machine, "18");
    assert_int_equal(via_kernel_open(&machine.options, &first, &err), 0);
    assert_int_equal(first->ops->dma_map(first, &piece, 4096, &iova), 0);
    assert_true(iova == 0x100000000);
    engine.beside = first;
    for (unsigned i = 0; i < 2 * VIA_IOVA_AVOIDED_MAX; i++) {
        assert_int_equal(via_kernel_open(&engine, &second, &err), 0);
        assert_int_equal(second->ops->dma_map(second, &piece, 4096, &iova), 0);
        assert_true(iova == 0x200000000);
        assert_int_equal(second->ops->dma_unmap(second, iova), 0);
        second->ops->close(second);
    }
    first->ops->close(first);
    end_machine(&machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_feature_of_the_kernel_is_reported),
        cmocka_unit_test(a_bar_is_mapped_by_one_file_at_a_time),
        cmocka_unit_test(a_bar_that_sysfs_maps_is_not_accessed_by_calls),
        cmocka_unit_test(iommufd_is_taken_where_it_is),
        cmocka_unit_test(without_iommufd_the_group_does),
        cmocka_unit_test(dma_addresses_are_in_no_window_of_a_bridge),
        cmocka_unit_test(windows_that_can_not_be_read_are_refused),
        cmocka_unit_test(the_error_of_iommufd_is_reported),
        cmocka_unit_test(the_error_of_a_group_is_reported),
        cmocka_unit_test(without_an_iommu_only_if_that_is_asked_for),
        cmocka_unit_test(a_function_beside_another_has_its_addresses),
        cmocka_unit_test(what_can_not_be_beside_is_refused),
        cmocka_unit_test(a_function_beside_another_has_bridges_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
