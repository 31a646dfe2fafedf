/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/kernel.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 6.6; not in all headers. */
#define ATTACH_INGRESS 46
#define ATTACH_EGRESS 47

#define NAME "viaduct_ip"

/* An initializer may leave padding unset (clang does), and a newer kernel may have a member there.
 */
static void clear(union bpf_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
}

static int call(enum bpf_cmd command, union bpf_attr *attr)
{
    long rc = syscall(SYS_bpf, command, attr, sizeof(*attr));
    return rc >= 0 ? (int)rc : -errno;
}

static int make_table(struct via_ip_kernel *kernel)
{
    union bpf_attr attr;
    clear(&attr);
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = sizeof(uint32_t);
    attr.value_size = sizeof(struct via_ip_kernel_host);
    attr.max_entries = kernel->params.hosts_max;
    attr.map_flags = BPF_F_MMAPABLE;
    memcpy(attr.map_name, NAME, sizeof(NAME));
    int fd = call(BPF_MAP_CREATE, &attr);
    if (fd < 0) {
        return fd;
    }
    void *hosts = mmap(NULL, kernel->params.hosts_max * sizeof(*kernel->hosts),
                       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (hosts == MAP_FAILED) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    kernel->params.table_fd = fd;
    kernel->hosts = hosts;
    return 0;
}

/* Loads a program and attaches it to an interface. Returns the descriptor of the BPF link. */
static int attach(const struct bpf_insn *insns, unsigned count, unsigned interface, int where)
{
    union bpf_attr attr;
    clear(&attr);
    attr.prog_type = BPF_PROG_TYPE_SCHED_CLS;
    attr.insn_cnt = count;
    attr.insns = (uint64_t)(uintptr_t)insns;
    attr.license = (uint64_t)(uintptr_t) "Dual BSD/GPL";
    memcpy(attr.prog_name, NAME, sizeof(NAME));
    int program_fd = call(BPF_PROG_LOAD, &attr);
    if (program_fd < 0) {
        return program_fd;
    }
    clear(&attr);
    attr.link_create.prog_fd = (uint32_t)program_fd;
    attr.link_create.target_ifindex = interface;
    attr.link_create.attach_type = (uint32_t)where;
    int fd = call(BPF_LINK_CREATE, &attr);
    close(program_fd);
    return fd;
}

int via_ip_kernel_open(struct via_ip_kernel *kernel, const struct via_ip_kernel_params *params)
{
    struct bpf_insn insns[VIA_IP_KERNEL_INSNS_MAX];
    *kernel = (struct via_ip_kernel){.params = *params, .out_fd = -1};
    int rc = make_table(kernel);
    if (rc != 0) {
        return rc;
    }
    kernel->out_fd = attach(insns, via_ip_kernel_code_out(&kernel->params, insns), params->device,
                            ATTACH_EGRESS);
    rc = kernel->out_fd < 0 ? kernel->out_fd : 0;
    if (rc != 0) {
        via_ip_kernel_close(kernel);
    }
    return rc;
}

void via_ip_kernel_close(struct via_ip_kernel *kernel)
{
    if (kernel->hosts == NULL) {
        return;
    }
    munmap(kernel->hosts, kernel->params.hosts_max * sizeof(*kernel->hosts));
    close(kernel->params.table_fd);
    if (kernel->out_fd >= 0) {
        close(kernel->out_fd);
    }
    kernel->hosts = NULL;
}

int via_ip_kernel_listen(const struct via_ip_kernel *kernel, unsigned interface, uint32_t local4,
                         uint16_t port)
{
    struct bpf_insn insns[VIA_IP_KERNEL_INSNS_MAX];
    struct via_ip_kernel_params params = kernel->params;
    params.local4 = local4;
    params.port = port;
    return attach(insns, via_ip_kernel_code_in(&params, insns), interface, ATTACH_INGRESS);
}
