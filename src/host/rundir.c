/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCAL "host-local"

static int set_path(struct via_rundir_path *path, struct via_error *err, const char *format, ...)
    VIA_PRINTF(3, 4);

static int set_path(struct via_rundir_path *path, struct via_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(path->text, sizeof(path->text), format, args);
    va_end(args);
    if (bytes < 0 || (size_t)bytes >= sizeof(path->text)) {
        return via_error_set(err, -ENAMETOOLONG,
                             "%s...: %d bytes, but a socket address holds at most %zu", path->text,
                             bytes, sizeof(path->text) - 1);
    }
    return 0;
}

static bool is_fabric_name(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t bytes = strlen(name);
    return bytes > 0 && bytes <= VIA_FABRIC_NAME_BYTES_MAX && name[0] != '.' &&
           strspn(name, allowed) == bytes;
}

int via_rundir_check_name(const char *fabric, struct via_error *err)
{
    if (!is_fabric_name(fabric)) {
        return via_error_set(err, -EINVAL,
                             "fabric name '%.40s': 1 to %u letters, digits or ._- are a name, not "
                             "beginning with a dot",
                             fabric, VIA_FABRIC_NAME_BYTES_MAX);
    }
    return 0;
}

static const char *get_env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* --- the host of a directory ----------------------------------------------------------------- */

struct path {
    char text[VIA_RUNDIR_PATH_BYTES + 32];
};

static struct path path_in(const char *rundir, const char *name)
{
    struct path path;
    snprintf(path.text, sizeof(path.text), "%s/%s", rundir, name);
    return path;
}

int via_rundir_local(const char *rundir, unsigned *ret_host)
{
    char text[16];
    struct path path = path_in(rundir, LOCAL);
    ssize_t bytes = readlink(path.text, text, sizeof(text) - 1);
    if (bytes <= 0) {
        return -ENOENT;
    }
    text[bytes] = '\0';
    char *end;
    unsigned long host = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || host > UINT16_MAX) {
        return -ENOENT;
    }
    *ret_host = (unsigned)host;
    return 0;
}

static bool is_alive(const char *rundir, unsigned host)
{
    struct via_rundir_path lock;
    if (via_rundir_lock_path(rundir, host, &lock, NULL) != 0) {
        return false;
    }
    int fd = open(lock.text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) {
        close(fd);
    }
    return held;
}

void via_rundir_claim(const char *rundir, unsigned host)
{
    unsigned other;
    char text[16];
    struct path path = path_in(rundir, LOCAL);
    if (access(path_in(rundir, VIA_FABRIC_STATE_FILE).text, F_OK) == 0) {
        return;
    }
    if (via_rundir_local(rundir, &other) == 0 && other != host && is_alive(rundir, other)) {
        return;
    }
    snprintf(text, sizeof(text), "%u", host);
    unlink(path.text);
    (void)!symlink(text, path.text);
}

void via_rundir_unclaim(const char *rundir, unsigned host)
{
    unsigned local;
    if (via_rundir_local(rundir, &local) == 0 && local == host) {
        unlink(path_in(rundir, LOCAL).text);
    }
}

int via_rundir_default(const char *fabric, struct via_rundir_path *ret_path, struct via_error *err)
{
    const char *set = get_env("VIADUCT_RUNDIR");
    if (set != NULL) {
        return set_path(ret_path, err, "%s", set);
    }
    if (fabric == NULL) {
        fabric = get_env("VIADUCT_FABRIC");
    }
    unsigned local;
    if (fabric == NULL && via_rundir_local(VIA_RUNDIR_MACHINE, &local) == 0) {
        return set_path(ret_path, err, "%s", VIA_RUNDIR_MACHINE);
    }
    if (fabric == NULL) {
        fabric = VIA_FABRIC_DEFAULT;
    }
    int rc = via_rundir_check_name(fabric, err);
    if (rc != 0) {
        return rc;
    }
    if (geteuid() == 0) {
        return set_path(ret_path, err, "/run/viaduct/%s", fabric);
    }
    const char *runtime = get_env("XDG_RUNTIME_DIR");
    if (runtime != NULL && runtime[0] == '/') {
        return set_path(ret_path, err, "%s/viaduct/%s", runtime, fabric);
    }
    return set_path(ret_path, err, "/tmp/viaduct-%u/%s", (unsigned)geteuid(), fabric);
}

/* Other users must not be able to replace the directory in `parent`. */
static int check_parent(const char *parent, struct via_error *err)
{
    struct stat st;
    if (stat(parent, &st) != 0) {
        return via_error_set(err, -errno, "%s: %s", parent, strerror(errno));
    }
    bool trusted_owner = st.st_uid == geteuid() || st.st_uid == 0;
    bool others_write = (st.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (!trusted_owner || (others_write && (st.st_mode & S_ISVTX) == 0)) {
        return via_error_set(err, -EPERM,
                             "parent directory %s (uid %u, mode %03o): others may "
                             "replace what is in it",
                             parent, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
    }
    return 0;
}

static int check_own(const char *rundir, bool passable, struct via_error *err)
{
    struct stat st;
    if (lstat(rundir, &st) != 0) {
        return via_error_set(err, -errno, "%s", strerror(errno));
    }
    if (S_ISLNK(st.st_mode)) {
        return via_error_set(err, -ELOOP, "is a symbolic link, must be a directory");
    }
    if (!S_ISDIR(st.st_mode)) {
        return via_error_set(err, -ENOTDIR, "is not a directory");
    }
    if (st.st_uid != geteuid()) {
        return via_error_set(err, -EPERM, "belongs to uid %u, not to uid %u", (unsigned)st.st_uid,
                             (unsigned)geteuid());
    }
    /* A user with search permission only reaches names that it knows, and the sockets check its
     * identity. */
    if ((st.st_mode & 0777 & ~0711u) != 0) {
        return via_error_set(err, -EPERM, "mode %03o is open to others, must be %03o",
                             (unsigned)(st.st_mode & 0777), passable ? 0711u : 0700u);
    }
    if (passable && (st.st_mode & 0111) != 0111) {
        return via_error_set(err, -EPERM, "mode %03o keeps out users that may attach, must be 711",
                             (unsigned)(st.st_mode & 0777));
    }
    return 0;
}

/* Sets this mode, whatever the umask, of the directory that was just made. If another user has
 * replaced the directory, that file is not changed. */
static int set_mode(const char *path, mode_t mode, struct via_error *err)
{
    struct stat st;
    char by_fd[40];
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int code = 0;
    snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd); /* fchmod() takes no O_PATH */
    if (fd < 0 || fstat(fd, &st) != 0) {
        code = errno;
    } else if (st.st_uid != geteuid()) {
        code = EPERM;
    } else if ((st.st_mode & 07777) != mode && chmod(by_fd, mode) != 0) {
        code = errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    return code != 0 ? via_error_set(err, -code, "mode of %s: %s", path, strerror(code)) : 0;
}

static int make_one(const char *path, mode_t mode, struct via_error *err)
{
    if (mkdir(path, mode) == 0) {
        return set_mode(path, mode, err);
    }
    return errno == EEXIST ? 0 : via_error_set(err, -errno, "mkdir %s: %s", path, strerror(errno));
}

static int make_all(char *path, bool passable, struct via_error *err)
{
    int rc = 0;
    for (char *slash = strchr(path + 1, '/'); slash != NULL && rc == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(path, F_OK) != 0) {
            /* A parent that this function makes is as restricted as the directory itself. Other
             * users need to pass through it if root makes it. */
            rc = make_one(path, passable || geteuid() == 0 ? 0711 : 0700, err);
        }
        if (rc == 0 && strchr(slash + 1, '/') == NULL) {
            rc = check_parent(path, err);
        }
        *slash = '/';
    }
    if (rc == 0) {
        rc = make_one(path, passable ? 0711 : 0700, err);
    }
    return rc != 0 ? rc : check_own(path, passable, err);
}

int via_rundir_make(const char *rundir, bool passable, struct via_error *err)
{
    struct via_rundir_path path = {0};
    int rc = 0;
    if (rundir[0] != '/') {
        rc = via_error_set(err, -EINVAL, "is not an absolute path");
    } else {
        rc = set_path(&path, err, "%s", rundir);
    }
    size_t bytes = rc == 0 ? strlen(path.text) : 0;
    while (bytes > 1 && path.text[bytes - 1] == '/') {
        path.text[--bytes] = '\0';
    }
    if (rc == 0) {
        rc = make_all(path.text, passable, err);
    }
    if (rc != 0) {
        via_error_prefix(err, "run directory %s: ", rundir);
    }
    return rc;
}

int via_rundir_attach_path(const char *rundir, unsigned host, struct via_rundir_path *ret_path,
                           struct via_error *err)
{
    return set_path(ret_path, err, "%s/host-%u.attach", rundir, host);
}

int via_rundir_control_path(const char *rundir, unsigned host, struct via_rundir_path *ret_path,
                            struct via_error *err)
{
    return set_path(ret_path, err, "%s/host-%u.ctl", rundir, host);
}

int via_rundir_lock_path(const char *rundir, unsigned host, struct via_rundir_path *ret_path,
                         struct via_error *err)
{
    return set_path(ret_path, err, "%s/host-%u.lock", rundir, host);
}

int via_rundir_link_path(const char *rundir, unsigned a, unsigned b, unsigned number,
                         struct via_rundir_path *ret_path, struct via_error *err)
{
    return set_path(ret_path, err, "%s/link-%u-%u-%u.sock", rundir, via_min(a, b), via_max(a, b),
                    number);
}
