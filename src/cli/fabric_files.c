/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The files of a fabric: whose locks are held, and removing them all. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cli/fabric.h"

/* True for files of Viaduct: a run directory from $VIADUCT_RUNDIR may contain other files. */
static bool is_ours(const char *name)
{
    return strncmp(name, "host-", 5) == 0 || strncmp(name, "link-", 5) == 0 ||
           strncmp(name, VIA_FABRIC_STATE_FILE, strlen(VIA_FABRIC_STATE_FILE)) == 0;
}

/* The host of "host-<id>.lock"; 0: another name. */
static unsigned host_of_lock(const char *name)
{
    unsigned host;
    int end = 0;
    bool good = sscanf(name, "host-%3u.lock%n", &host, &end) == 1 && end > 0 && name[end] == '\0';
    return good && host >= VIA_TOPOLOGY_HOST_MIN && host <= VIA_TOPOLOGY_HOST_MAX ? host : 0;
}

/* The process that has locked a host's lock file and has written its id there. -ESRCH: none. */
static int find_holder(int folder_fd, const char *name, struct via_process *ret_process)
{
    char text[24] = "";
    int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -ESRCH;
    }
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ssize_t bytes = held ? read(fd, text, sizeof(text) - 1) : 0;
    close(fd);
    return bytes > 0 ? via_process_identify((pid_t)atol(text), ret_process) : -ESRCH;
}

static bool is_known(const struct via_fabric *fabric, const struct via_process *process)
{
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        if (fabric->daemons[i].pid == process->pid) {
            return true;
        }
    }
    return false;
}

unsigned via_fabric_strays(const struct via_fabric *fabric, struct via_fabric_stray *ret_strays,
                           unsigned max)
{
    unsigned count = 0;
    DIR *folder = opendir(fabric->rundir.text);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        struct via_process process;
        unsigned host = host_of_lock(entry->d_name);
        if (host != 0 && count < max && find_holder(dirfd(folder), entry->d_name, &process) == 0 &&
            !is_known(fabric, &process)) {
            ret_strays[count++] = (struct via_fabric_stray){.host = host, .process = process};
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

unsigned via_fabric_count_files(const struct via_fabric *fabric)
{
    unsigned count = 0;
    DIR *folder = opendir(fabric->rundir.text);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        count += is_ours(entry->d_name) ? 1 : 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

/* Removes the state file last, because it describes the other files as long as there are any. */
static int clean(DIR *folder, const char *rundir, struct via_error *err)
{
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *name = entry->d_name;
        if (is_ours(name) && strcmp(name, VIA_FABRIC_STATE_FILE) != 0 &&
            unlinkat(dirfd(folder), name, 0) != 0 && errno != ENOENT) {
            return via_error_set(err, -errno, "remove %s/%s: %s", rundir, name, strerror(errno));
        }
    }
    unlinkat(dirfd(folder), VIA_FABRIC_STATE_FILE, 0);
    return 0;
}

static int open_folder(const char *rundir, DIR **ret_folder, struct via_error *err)
{
    *ret_folder = opendir(rundir);
    return *ret_folder != NULL ? 0
                               : via_error_set(err, -errno, "open %s: %s", rundir, strerror(errno));
}

int via_fabric_clean(const struct via_fabric *fabric, struct via_error *err)
{
    DIR *folder;
    int rc = open_folder(fabric->rundir.text, &folder, err);
    if (rc == 0) {
        rc = clean(folder, fabric->rundir.text, err);
        closedir(folder);
    }
    return rc;
}

/* Sets the reason why the directory stays, with the name of one file. */
static int explain_not_empty(DIR *folder, const char *rundir, struct via_error *err)
{
    rewinddir(folder);
    const char *name = "?";
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            name = entry->d_name;
        }
    }
    return via_error_set(err, -ENOTEMPTY,
                         "run directory %s stays: a file in it is not of the fabric: %.60s", rundir,
                         name);
}

static void remove_parent(const char *rundir)
{
    struct via_rundir_path parent;
    memcpy(&parent, rundir, strlen(rundir) + 1);
    char *slash = strrchr(parent.text, '/');
    if (getenv("VIADUCT_RUNDIR") == NULL && slash != NULL && slash != parent.text) {
        *slash = '\0';
        /* Fails if other fabrics use it, which is intended. */
        rmdir(parent.text);
    }
}

int via_fabric_remove(struct via_fabric *fabric, struct via_error *err)
{
    const char *rundir = fabric->rundir.text;
    DIR *folder;
    int rc = open_folder(rundir, &folder, err);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = clean(folder, rundir, err);
    unlinkat(dirfd(folder), VIA_FABRIC_LOCK_FILE, 0);
    if (rc == 0 && rmdir(rundir) != 0 && errno != ENOENT) {
        rc = errno == ENOTEMPTY || errno == EEXIST
                 ? explain_not_empty(folder, rundir, err)
                 : via_error_set(err, -errno, "remove %s: %s", rundir, strerror(errno));
    } else if (rc == 0) {
        remove_parent(rundir);
    }
    closedir(folder);
    return rc;
}
