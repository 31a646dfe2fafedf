/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/netns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/find.h"

/* The folder in which ip-netns(8) keeps the names. */
#define NETNS_FOLDER "/run/netns"

struct name {
    char text[64];
};
_Static_assert(sizeof(struct name) > sizeof("via--254") + VIA_FABRIC_NAME_BYTES_MAX, "names fit");

static struct name host_name(const struct via_fabric *fabric, unsigned host)
{
    struct name name;
    snprintf(name.text, sizeof(name.text), "via-%s-%u", fabric->name, host);
    return name;
}

static struct name switch_name(const struct via_fabric *fabric)
{
    struct name name;
    snprintf(name.text, sizeof(name.text), "via-%s-sw", fabric->name);
    return name;
}

/* --- ip(8) ----------------------------------------------------------------------------------- */

static int make_memory_file(const char *name, const char *text)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t bytes = strlen(text);
    if (fd >= 0 && (write(fd, text, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static _Noreturn void become_ip(const char *netns, int in_fd, int out_fd)
{
    dup2(in_fd, STDIN_FILENO);
    dup2(out_fd, STDOUT_FILENO);
    dup2(out_fd, STDERR_FILENO);
    if (netns != NULL) {
        execlp("ip", "ip", "-n", netns, "-batch", "-", (char *)NULL);
    } else {
        execlp("ip", "ip", "-batch", "-", (char *)NULL);
    }
    fprintf(stderr, "exec ip: %s", strerror(errno));
    _exit(127);
}

/* Reads the output of ip as one line. */
static void take_output(int fd, char *text, size_t room)
{
    ssize_t bytes = pread(fd, text, room - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    for (char *c = text; *c != '\0'; c++) {
        *c = *c == '\n' ? (c[1] == '\0' ? '\0' : ';') : *c;
    }
}

/* Runs the lines, up to the first one that fails, in a namespace, or (NULL) in the present one. */
static int run_ip(const char *netns, const char *lines, struct via_error *err)
{
    int in_fd = make_memory_file("ip-in", lines);
    int out_fd = make_memory_file("ip-out", "");
    int status = -1;
    int rc = 0;
    pid_t pid = in_fd >= 0 && out_fd >= 0 ? fork() : -1;
    if (pid == 0) {
        become_ip(netns, in_fd, out_fd);
    }
    if (pid < 0) {
        rc = via_error_set(err, -errno, "start ip: %s", strerror(errno));
    } else {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    if (rc == 0 && status != 0) {
        char text[300];
        take_output(out_fd, text, sizeof(text));
        rc = via_error_set(err, -EIO, "ip: %s", text[0] != '\0' ? text : "failed");
    }
    if (in_fd >= 0) {
        close(in_fd);
    }
    if (out_fd >= 0) {
        close(out_fd);
    }
    return rc;
}

static int run_ipf(const char *netns, struct via_error *err, const char *format, ...)
    VIA_PRINTF(3, 4);

static int run_ipf(const char *netns, struct via_error *err, const char *format, ...)
{
    char lines[600];
    va_list args;
    va_start(args, format);
    vsnprintf(lines, sizeof(lines), format, args);
    va_end(args);
    return run_ip(netns, lines, err);
}

/* --- making ---------------------------------------------------------------------------------- */

static int make_switch(const struct via_fabric *fabric, struct via_error *err)
{
    struct name name = switch_name(fabric);
    int rc = run_ipf(NULL, err, "netns add %s\n", name.text);
    if (rc == 0) {
        rc = run_ipf(name.text, err,
                     "link set lo up\n"
                     "link add br0 type bridge\n"
                     "link set br0 up\n");
    }
    return rc != 0 ? via_error_prefix(err, "namespace %s: ", name.text) : 0;
}

static int add_ethernet(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    struct name name = host_name(fabric, host);
    struct name bridge = switch_name(fabric);
    int rc = run_ipf(name.text, err,
                     "link add eth0 type veth peer name h%u netns %s\n"
                     "addr add %s/24 dev eth0\n"
                     "link set eth0 up\n",
                     host, bridge.text, via_fabric_address(fabric, host).text);
    if (rc == 0) {
        rc = run_ipf(bridge.text, err, "link set h%u master br0\nlink set h%u up\n", host, host);
    }
    return rc;
}

static int make_host(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    struct name name = host_name(fabric, host);
    int rc = run_ipf(NULL, err, "netns add %s\n", name.text);
    if (rc == 0) {
        rc = run_ipf(name.text, err, "link set lo up\n");
    }
    if (rc == 0 && fabric->ethernet) {
        rc = add_ethernet(fabric, host, err);
    }
    return rc != 0 ? via_error_prefix(err, "namespace %s: ", name.text) : 0;
}

int via_netns_make(const struct via_fabric *fabric, struct via_error *err)
{
    struct via_find_path ip;
    if (geteuid() != 0) {
        return via_error_set(err, -EPERM,
                             "network namespaces: make: only root may; without --netns the hosts "
                             "are 127.77.0.1 and following");
    }
    if (via_find_in_path("ip", &ip) != 0) {
        return via_error_set(
            err, -ENOENT, "network namespaces: make: no program 'ip' in $PATH (Debian: iproute2)");
    }
    unsigned count = via_netns_count(fabric);
    if (count != 0) {
        return via_error_set(err, -EEXIST,
                             "network namespaces: make: %u of the name via-%s-* are there already; "
                             "'viaduct down --fabric %s' removes them",
                             count, fabric->name, fabric->name);
    }
    int rc = fabric->ethernet ? make_switch(fabric, err) : 0;
    for (unsigned i = 0; i < fabric->topology.hosts_count && rc == 0; i++) {
        rc = make_host(fabric, fabric->topology.hosts[i], err);
    }
    return rc;
}

/* --- finding and removing -------------------------------------------------------------------- */

/* True for "via-<fabric>-<id>" and "via-<fabric>-sw". The name of a fabric that begins with this
 * one's name continues with a further dash, or with other letters. */
static bool is_of(const struct via_fabric *fabric, const char *name)
{
    struct name prefix;
    int bytes = snprintf(prefix.text, sizeof(prefix.text), "via-%s-", fabric->name);
    if (strncmp(name, prefix.text, (size_t)bytes) != 0) {
        return false;
    }
    const char *rest = name + bytes;
    return strcmp(rest, "sw") == 0 ||
           (rest[0] != '\0' && strspn(rest, "0123456789") == strlen(rest));
}

/* Calls ip(8) for each namespace; with remove false only counts them. */
static int walk(const struct via_fabric *fabric, bool remove, struct via_error *err)
{
    int count = 0;
    int rc = 0;
    DIR *folder = opendir(NETNS_FOLDER);
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL;
         entry = readdir(folder)) {
        if (!is_of(fabric, entry->d_name)) {
            continue;
        }
        count++;
        if (remove && rc == 0) {
            rc = run_ipf(NULL, err, "netns del %.100s\n", entry->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return rc != 0 ? via_error_prefix(err, "network namespaces: remove: ") : count;
}

int via_netns_remove(const struct via_fabric *fabric, struct via_error *err)
{
    return walk(fabric, true, err);
}

unsigned via_netns_count(const struct via_fabric *fabric)
{
    return (unsigned)walk(fabric, false, NULL);
}

int via_netns_enter(const struct via_fabric *fabric, unsigned host, struct via_error *err)
{
    char path[128];
    struct name name = host_name(fabric, host);
    snprintf(path, sizeof(path), NETNS_FOLDER "/%s", name.text);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return via_error_set(err, -errno, "namespace %s: open: %s", name.text, strerror(errno));
    }
    int rc = setns(fd, CLONE_NEWNET) == 0 ? 0
                                          : via_error_set(err, -errno, "namespace %s: enter: %s",
                                                          name.text, strerror(errno));
    close(fd);
    return rc;
}
