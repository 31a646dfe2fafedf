/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool via_control_fabric_name_ok(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > VIA_FABRIC_NAME_MAX || name[0] == '.' || name[0] == '-') {
        return false;
    }
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == len;
}

static int fits(int written, size_t bytes)
{
    return written < 0 || (size_t)written >= bytes ? -ENAMETOOLONG : 0;
}

int via_control_rundir(char ret_rundir[VIA_RUNDIR_BYTES], const char *rundir, const char *fabric)
{
    if (fabric != NULL && !via_control_fabric_name_ok(fabric)) {
        return -EINVAL;
    }
    if (rundir == NULL && fabric == NULL) {
        rundir = getenv("VIADUCT_RUNDIR");
    }
    if (rundir != NULL && rundir[0] != '\0') {
        return fits(snprintf(ret_rundir, VIA_RUNDIR_BYTES, "%s", rundir), VIA_RUNDIR_BYTES);
    }
    if (fabric == NULL) {
        fabric = VIA_FABRIC_DEFAULT;
    }
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0) {
        return fits(snprintf(ret_rundir, VIA_RUNDIR_BYTES, "/run/viaduct/%s", fabric),
                    VIA_RUNDIR_BYTES);
    }
    if (runtime != NULL && runtime[0] == '/') {
        return fits(snprintf(ret_rundir, VIA_RUNDIR_BYTES, "%s/viaduct/%s", runtime, fabric),
                    VIA_RUNDIR_BYTES);
    }
    return fits(
        snprintf(ret_rundir, VIA_RUNDIR_BYTES, "/tmp/viaduct-%u/%s", (unsigned)geteuid(), fabric),
        VIA_RUNDIR_BYTES);
}

int via_control_host_path(char ret_path[VIA_PATH_BYTES], const char *rundir, unsigned host,
                          const char *what)
{
    return fits(snprintf(ret_path, VIA_PATH_BYTES, "%s/host-%u.%s", rundir, host, what),
                VIA_PATH_BYTES);
}

int via_control_address(const char *path, struct sockaddr_un *ret_address, int *ret_dir_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) < sizeof(address.sun_path)) {
        memcpy(address.sun_path, path, strlen(path) + 1);
        *ret_address = address;
        *ret_dir_fd = -1;
        return 0;
    }
    const char *slash = strrchr(path, '/');
    char dir[VIA_PATH_BYTES];
    if (slash == NULL || (size_t)(slash - path) >= sizeof(dir)) {
        return -ENAMETOOLONG;
    }
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = '\0';
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int written =
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", fd, slash + 1);
    if (fits(written, sizeof(address.sun_path)) != 0) {
        close(fd);
        return -ENAMETOOLONG;
    }
    *ret_address = address;
    *ret_dir_fd = fd;
    return 0;
}
