/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Checks of the kernel and of the limits of this user. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/doctor.h"

/* A daemon needs some descriptors for each attached process, and a program one for each
 * connection. */
#define FILES_NEEDED 256u
#define FILES_WANTED 1024u
/* Enough for two fabrics of four emulated hosts with default options. */
#define MEMORY_WANTED_MB 512u
#define SHM_WANTED_MB 64u
/* The largest memfd of a daemon is much smaller. */
#define FILE_BYTES_WANTED (UINT64_C(1) << 30)

static void check_memfd(struct via_doctor_finding *finding)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int fd = memfd_create("viaduct-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, 4096) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "memfd_create, ftruncate and seal: %s",
                          strerror(errno));
        via_doctor_mend(finding,
                        "use a kernel of 3.17 or newer; in a container allow memfd_create");
    } else if (fcntl(fd, F_GET_SEALS) != seals || ftruncate(fd, 0) == 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "a sealed memfd could be made smaller");
        via_doctor_mend(finding,
                        "this kernel (or what emulates it) does not keep seals; use Linux");
    } else {
        via_doctor_report(finding, VIA_DOCTOR_OK, "memfds can be made and sealed");
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void check_wake(struct via_doctor_finding *finding)
{
    static uint32_t word;
    int fd = eventfd(0, EFD_CLOEXEC);
    int pidfd = pidfd_open(getpid(), 0);
    if (fd < 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "eventfd: %s", strerror(errno));
    } else if (syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) < 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "futex: %s", strerror(errno));
    } else if (pidfd < 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "pidfd_open: %s", strerror(errno));
    } else {
        via_doctor_report(finding, VIA_DOCTOR_OK, "eventfd, futex and pidfd work");
    }
    if (finding->level != VIA_DOCTOR_OK) {
        via_doctor_mend(finding, "use a kernel of 5.9 or newer; in a container allow this call");
    }
    if (fd >= 0) {
        close(fd);
    }
    if (pidfd >= 0) {
        close(pidfd);
    }
}

static void check_files(struct via_doctor_finding *finding)
{
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_NOFILE, &limit);
    /* Daemons raise their soft limit to the hard limit. */
    enum via_doctor_level level = limit.rlim_max < FILES_NEEDED   ? VIA_DOCTOR_FAIL
                                  : limit.rlim_cur < FILES_WANTED ? VIA_DOCTOR_WARN
                                                                  : VIA_DOCTOR_OK;
    via_doctor_report(finding, level, "%llu open files a process",
                      (unsigned long long)limit.rlim_cur);
    if (level != VIA_DOCTOR_OK) {
        via_doctor_mend(finding, "ulimit -n %u (LimitNOFILE= in a systemd unit)", FILES_WANTED);
    }
}

/* The limit applies to memfds as to any file. */
static void check_file_size(struct via_doctor_finding *finding)
{
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_FSIZE, &limit);
    if (limit.rlim_cur >= FILE_BYTES_WANTED) {
        via_doctor_report(finding, VIA_DOCTOR_OK, "no limit that shared memory would meet");
        return;
    }
    via_doctor_report(finding, VIA_DOCTOR_WARN,
                      "files, and so shared memory, are limited to %llu bytes",
                      (unsigned long long)limit.rlim_cur);
    via_doctor_mend(finding, "ulimit -f unlimited (LimitFSIZE=infinity in a systemd unit)");
}

static void check_cores(struct via_doctor_finding *finding)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    via_doctor_report(finding, count > 1 ? VIA_DOCTOR_OK : VIA_DOCTOR_WARN,
                      "%d usable by this process", count);
    if (count == 1) {
        via_doctor_mend(finding, "everything works, but each message waits for the scheduler; give "
                                 "it two cores or more (taskset, cpuset)");
    }
}

/* Parses "MemAvailable:   12345 kB"; 0: no such line. */
static unsigned long long available_mb(void)
{
    char line[128];
    unsigned long long kb = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, "MemAvailable: %llu", &kb) != 1) {
    }
    if (file != NULL) {
        fclose(file);
    }
    return kb / 1024;
}

static void check_memory(struct via_doctor_finding *finding)
{
    unsigned long long mb = available_mb();
    via_doctor_report(finding, mb >= MEMORY_WANTED_MB ? VIA_DOCTOR_OK : VIA_DOCTOR_WARN,
                      "%llu MB available", mb);
    if (mb < MEMORY_WANTED_MB) {
        via_doctor_mend(finding, "end other programs, or use fewer hosts and --channels 1");
    }
}

/* Viaduct has no files there, but launchers and libraries that are used with it do. */
static void check_shm(struct via_doctor_finding *finding)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) {
        via_doctor_report(finding, VIA_DOCTOR_WARN, "%s", strerror(errno));
        via_doctor_mend(finding, "mount -t tmpfs tmpfs /dev/shm; Viaduct itself does not need it");
        return;
    }
    unsigned long long mb = (unsigned long long)fs.f_bavail * fs.f_frsize >> 20;
    via_doctor_report(finding, mb >= SHM_WANTED_MB ? VIA_DOCTOR_OK : VIA_DOCTOR_WARN,
                      "%llu MB free", mb);
    if (mb < SHM_WANTED_MB) {
        via_doctor_mend(finding,
                        "remove files of programs that have ended; Viaduct has none there");
    }
}

/* Reads memory of a process that is not a child, as the receiver of a zero-copy send does. */
static int read_parent(volatile const uint64_t *there)
{
    uint64_t here = 0;
    struct iovec local = {.iov_base = &here, .iov_len = sizeof(here)};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)there, .iov_len = sizeof(here)};
    ssize_t bytes = process_vm_readv(getppid(), &local, 1, &remote, 1, 0);
    return bytes == (ssize_t)sizeof(here) && here == *there ? 0 : errno != 0 ? errno : EIO;
}

static void check_vm_read(struct via_doctor_finding *finding)
{
    static volatile uint64_t word;
    int status = -1;
    word = UINT64_C(0x76696164756374);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(read_parent(&word));
    }
    if (pid > 0) {
        waitpid(pid, &status, 0);
    }
    if (status == 0) {
        via_doctor_report(finding, VIA_DOCTOR_OK, "processes of one user can read each other");
        return;
    }
    via_doctor_report(finding, VIA_DOCTOR_WARN, "process_vm_readv: %s",
                      strerror(WIFEXITED(status) ? WEXITSTATUS(status) : EPERM));
    via_doctor_mend(finding,
                    "large sends are copied twice; sysctl kernel.yama.ptrace_scope=0 (in a "
                    "container: allow process_vm_readv) saves one copy");
}

static void check_address(struct via_doctor_finding *finding)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(0x7f4d0001)}; /* 127.77.0.1 */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, 1) != 0) {
        via_doctor_report(finding, VIA_DOCTOR_FAIL, "127.77.0.1: listen: %s", strerror(errno));
        via_doctor_mend(finding, "ip link set lo up");
    } else {
        via_doctor_report(finding, VIA_DOCTOR_OK, "hosts can listen on 127.77.0.i");
    }
    if (fd >= 0) {
        close(fd);
    }
}

const struct via_doctor_check via_doctor_machine_checks[] = {
    {"sealed memory", check_memfd},
    {"waking", check_wake},
    {"cores", check_cores},
    {"open files", check_files},
    {"file size", check_file_size},
    {"memory", check_memory},
    {"/dev/shm", check_shm},
    {"zero copy", check_vm_read},
    {"loopback network", check_address},
};
const size_t via_doctor_machine_checks_count = VIA_ARRAY_COUNT(via_doctor_machine_checks);
