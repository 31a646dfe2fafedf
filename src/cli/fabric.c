/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "cli/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path of a file in the run directory; it may be longer than that of a socket. */
struct path {
    char text[VIA_RUNDIR_PATH_BYTES + 32];
};

static struct path path_of(const struct via_fabric *fabric, const char *name)
{
    struct path path;
    snprintf(path.text, sizeof(path.text), "%s/%s", fabric->rundir.text, name);
    return path;
}

int via_fabric_init(struct via_fabric *fabric, const char *name, struct via_error *err)
{
    memset(fabric, 0, sizeof(*fabric));
    fabric->lock_fd = -1;
    fabric->local = -1;
    fabric->direct = true;
    fabric->ethernet = true;
    if (name == NULL) {
        name = getenv("VIADUCT_FABRIC");
    }
    if (name == NULL || name[0] == '\0') {
        name = VIA_FABRIC_DEFAULT;
    }
    int rc = via_rundir_check_name(name, err);
    if (rc == 0) {
        snprintf(fabric->name, sizeof(fabric->name), "%s", name);
        rc = via_rundir_default(name, &fabric->rundir, err);
    }
    return rc;
}

int via_fabric_find(const struct via_fabric *fabric, unsigned host)
{
    for (unsigned i = 0; i < fabric->topology.hosts_count; i++) {
        if (fabric->topology.hosts[i] == host) {
            return (int)i;
        }
    }
    return -1;
}

struct via_fabric_address via_fabric_address(const struct via_fabric *fabric, unsigned host)
{
    struct via_fabric_address address;
    if (fabric->local >= 0) {
        json_t *first =
            json_array_get(json_object_get(via_fabric_entry(fabric, host), "addresses"), 0);
        const char *text = json_string_value(json_object_get(first, "address"));
        snprintf(address.text, sizeof(address.text), "%s", text != NULL ? text : "-");
        return address;
    }
    const char *network = !fabric->netns ? "127.77" : fabric->ethernet ? "10.77" : "10.78";
    snprintf(address.text, sizeof(address.text), "%s.0.%u", network, host & 0xff);
    return address;
}

/* --- the state file -------------------------------------------------------------------------- */

static json_t *state_of(const struct via_fabric *fabric)
{
    const struct via_topology *topology = &fabric->topology;
    json_t *hosts = json_array();
    json_t *links = json_array();
    for (unsigned i = 0; i < topology->hosts_count; i++) {
        const struct via_process *daemon = &fabric->daemons[i];
        json_array_append_new(
            hosts, json_pack("{s:i, s:s, s:I, s:I}", "host", (int)topology->hosts[i], "address",
                             via_fabric_address(fabric, topology->hosts[i]).text, "pid",
                             (json_int_t)daemon->pid, "start", (json_int_t)daemon->start_ticks));
    }
    for (unsigned i = 0; i < topology->links_count; i++) {
        const struct via_topology_link *link = &topology->links[i];
        json_array_append_new(links, json_pack("{s:i, s:i, s:i}", "a", (int)link->a, "b",
                                               (int)link->b, "n", (int)link->number));
    }
    return json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:i, s:b, s:b, s:b, s:b, s:o, s:o}", "fabric",
                     fabric->name, "like", fabric->like, "window_mib", (int)fabric->window_mib,
                     "version", VIADUCT_VERSION, "channels", (int)topology->channels_count,
                     "dma_bytes", (int)fabric->dma_bytes, "spin_us", (int)fabric->spin_us, "netns",
                     fabric->netns, "ip", fabric->ip, "ethernet", fabric->ethernet, "direct",
                     fabric->direct, "hosts", hosts, "links", links);
}

int via_fabric_save(const struct via_fabric *fabric, struct via_error *err)
{
    struct path path = path_of(fabric, VIA_FABRIC_STATE_FILE);
    struct path fresh = path_of(fabric, VIA_FABRIC_STATE_FILE ".new");
    json_t *state = state_of(fabric);
    int rc = 0;
    if (state == NULL) {
        return via_error_set(err, -ENOMEM, "%s: write: %s", path.text, strerror(ENOMEM));
    }
    errno = 0;
    bool shared = fabric->attach != NULL || fabric->admin != NULL;
    if (json_dump_file(state, fresh.text, JSON_INDENT(1)) != 0 ||
        /* each process that may attach needs to read it */
        (shared && chmod(fresh.text, 0644) != 0) || rename(fresh.text, path.text) != 0) {
        int code = errno != 0 ? errno : EIO;
        rc = via_error_set(err, -code, "%s: write: %s", path.text, strerror(code));
        unlink(fresh.text);
    }
    json_decref(state);
    return rc;
}

static int take_host(struct via_fabric *fabric, json_t *entry)
{
    struct via_topology *topology = &fabric->topology;
    int host;
    json_int_t pid;
    json_int_t start;
    if (json_unpack(entry, "{s:i, s:I, s:I}", "host", &host, "pid", &pid, "start", &start) != 0 ||
        host < (int)VIA_TOPOLOGY_HOST_MIN || host > (int)VIA_TOPOLOGY_HOST_MAX ||
        via_fabric_find(fabric, (unsigned)host) >= 0) {
        return -EPROTO;
    }
    fabric->daemons[topology->hosts_count] =
        (struct via_process){.pid = (pid_t)pid, .start_ticks = (uint64_t)start};
    topology->hosts[topology->hosts_count++] = (uint16_t)host;
    return 0;
}

static int take_link(struct via_fabric *fabric, json_t *entry)
{
    struct via_topology *topology = &fabric->topology;
    int a;
    int b;
    int number;
    if (json_unpack(entry, "{s:i, s:i, s:i}", "a", &a, "b", &b, "n", &number) != 0 || a >= b ||
        a < 0 || number < 0 || number > UINT8_MAX || via_fabric_find(fabric, (unsigned)a) < 0 ||
        via_fabric_find(fabric, (unsigned)b) < 0 ||
        topology->links_count >= VIA_TOPOLOGY_LINKS_MAX) {
        return -EPROTO;
    }
    topology->links[topology->links_count++] =
        (struct via_topology_link){.a = (uint16_t)a, .b = (uint16_t)b, .number = (uint8_t)number};
    return 0;
}

static int take_state(struct via_fabric *fabric, json_t *state, struct via_error *err)
{
    const char *name;
    const char *like = "";
    int window_mib = 0;
    int channels;
    int netns;
    int ip = 0;
    int ethernet = 1;
    int direct;
    json_t *hosts;
    json_t *links;
    json_t *entry;
    size_t i;
    int rc = 0;
    if (json_unpack(state, "{s:s, s?b, s?b, s?s, s?i, s:i, s:b, s:b, s:o, s:o}", "fabric", &name,
                    "ip", &ip, "ethernet", &ethernet, "like", &like, "window_mib", &window_mib,
                    "channels", &channels, "netns", &netns, "direct", &direct, "hosts", &hosts,
                    "links", &links) != 0) {
        return via_error_set(err, -EPROTO, "read: not a fabric's state");
    }
    if (strcmp(name, fabric->name) != 0) {
        return via_error_set(err, -EBUSY, "read: this run directory is of fabric '%.40s', not '%s'",
                             name, fabric->name);
    }
    fabric->netns = netns != 0;
    fabric->ip = ip != 0;
    fabric->ethernet = ethernet != 0;
    fabric->direct = direct != 0;
    snprintf(fabric->like, sizeof(fabric->like), "%s", like);
    fabric->window_mib = (unsigned)window_mib;
    fabric->topology.channels_count = (unsigned)channels;
    json_array_foreach(hosts, i, entry)
    {
        rc = rc == 0 ? take_host(fabric, entry) : rc;
    }
    json_array_foreach(links, i, entry)
    {
        rc = rc == 0 ? take_link(fabric, entry) : rc;
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "read: not a fabric's state");
}

static int open_error(const struct via_fabric *fabric, int code, struct via_error *err)
{
    struct stat st;
    if (code == ENOENT) {
        return via_error_set(err, -ENOENT, "fabric '%s': it is not up (no %s/%s)", fabric->name,
                             fabric->rundir.text, VIA_FABRIC_STATE_FILE);
    }
    if (code == EACCES && stat(fabric->rundir.text, &st) == 0) {
        return via_error_set(err, -EACCES,
                             "fabric '%s': open %s/%s: permission denied: the fabric belongs to "
                             "uid %u, this is uid %u",
                             fabric->name, fabric->rundir.text, VIA_FABRIC_STATE_FILE,
                             (unsigned)st.st_uid, (unsigned)geteuid());
    }
    return via_error_set(err, -code, "fabric '%s': open %s/%s: %s", fabric->name,
                         fabric->rundir.text, VIA_FABRIC_STATE_FILE, strerror(code));
}

int via_fabric_load(struct via_fabric *fabric, struct via_error *err)
{
    struct path path = path_of(fabric, VIA_FABRIC_STATE_FILE);
    memset(&fabric->topology, 0, sizeof(fabric->topology));
    memset(fabric->daemons, 0, sizeof(fabric->daemons));
    FILE *file = fopen(path.text, "re");
    if (file == NULL) {
        return open_error(fabric, errno, err);
    }
    json_error_t why;
    json_t *state = json_loadf(file, 0, &why);
    fclose(file);
    int rc = state != NULL ? take_state(fabric, state, err)
                           : via_error_set(err, -EPROTO, "read: line %d: %s", why.line, why.text);
    json_decref(state);
    if (rc != 0) {
        via_error_prefix(err, "fabric '%s': %s: ", fabric->name, path.text);
    }
    return rc;
}

int via_fabric_locate(struct via_fabric *fabric, const char *name, struct via_error *err)
{
    int rc = via_fabric_init(fabric, name, err);
    return rc == 0 && name == NULL ? via_rundir_default(NULL, &fabric->rundir, err) : rc;
}

int via_fabric_open(struct via_fabric *fabric, const char *name, struct via_error *err)
{
    unsigned local;
    int rc = via_fabric_locate(fabric, name, err);
    if (rc != 0) {
        return rc;
    }
    bool made = access(path_of(fabric, VIA_FABRIC_STATE_FILE).text, F_OK) == 0;
    if (!made && via_rundir_local(fabric->rundir.text, &local) == 0) {
        return via_fabric_load_live(fabric, local, err);
    }
    return via_fabric_load(fabric, err);
}

/* --- the lock -------------------------------------------------------------------------------- */

/* 1: locked. 0: another process has the lock, or the file was removed meanwhile; try again. */
static int try_lock(struct via_fabric *fabric, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -errno;
    }
    struct stat held;
    struct stat named;
    /* The last holder may have removed the file between open and flock. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 && stat(path, &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
        fabric->lock_fd = fd;
        return 1;
    }
    close(fd);
    return 0;
}

int via_fabric_lock(struct via_fabric *fabric, unsigned timeout_ms, struct via_error *err)
{
    struct path path = path_of(fabric, VIA_FABRIC_LOCK_FILE);
    uint64_t deadline_ns = via_process_now_ns() + timeout_ms * VIA_MSEC_NS;
    for (;;) {
        int rc = try_lock(fabric, path.text);
        if (rc == 1) {
            return 0;
        }
        if (rc < 0) {
            return via_error_set(err, rc, "fabric '%s': lock %s: %s", fabric->name, path.text,
                                 strerror(-rc));
        }
        if (via_process_now_ns() >= deadline_ns) {
            return via_error_set(err, -EBUSY,
                                 "fabric '%s': lock %s: another 'viaduct up' or 'down' is at work",
                                 fabric->name, path.text);
        }
        usleep(10000);
    }
}

void via_fabric_unlock(struct via_fabric *fabric)
{
    if (fabric->lock_fd >= 0) {
        close(fabric->lock_fd);
        fabric->lock_fd = -1;
    }
}
