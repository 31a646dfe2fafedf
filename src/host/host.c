/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/signals.h"
#include "host/host_private.h"

/* Each heartbeat is a wake-up of the machine. A link survives the loss of three. */
#define HEARTBEAT_NS (25 * VIA_MSEC_NS)
#define SEGMENTS_COUNT 8192u
/* an owner has 16 bits in a cookie; and the node has room for their operations */
#define PROCESSES_MAX 4096u
#define LOCK_TRIES 100
/* Time for which a host that ends waits for the remaining work of processes. */
#define REAPER_WAIT_NS (5 * VIA_SEC_NS)

void via_host_options_init(struct via_host_options *options)
{
    *options = (struct via_host_options){.size = sizeof(*options)};
}

/* --- the lock --------------------------------------------------------------------------------- */

static void read_pid(int fd, char *ret_text, size_t bytes)
{
    ssize_t n = pread(fd, ret_text, bytes - 1, 0);
    ret_text[n > 0 ? n : 0] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
}

static int lock_failed(struct via_host *host, int fd, struct via_error *err)
{
    int code = errno;
    if (code != EWOULDBLOCK) {
        return via_error_set(err, -code, "lock %s: %s", host->lock_path.text, strerror(code));
    }
    char pid[16];
    read_pid(fd, pid, sizeof(pid));
    return via_error_set(err, -EBUSY, "is up already: process %s holds %s",
                         pid[0] != '\0' ? pid : "?", host->lock_path.text);
}

/* The locked file must still be the file at the path: its last holder may have removed it between
 * open and lock here. */
static bool is_at_path(int fd, const char *path)
{
    struct stat held;
    struct stat there;
    return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
           held.st_dev == there.st_dev;
}

static int write_pid(int fd, const char *path, struct via_error *err)
{
    char pid[16];
    int bytes = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)bytes, 0) != bytes) {
        return via_error_set(err, -EIO, "write %s: %s", path, strerror(errno));
    }
    return 0;
}

static int take_lock(struct via_host *host, struct via_error *err)
{
    const char *path = host->lock_path.text;
    for (int i = 0; i < LOCK_TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            return via_error_set(err, -errno, "open %s: %s", path, strerror(errno));
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int rc = lock_failed(host, fd, err);
            close(fd);
            return rc;
        }
        if (is_at_path(fd, path)) {
            host->lock_fd = fd;
            return write_pid(fd, path, err);
        }
        close(fd);
    }
    return via_error_set(err, -EAGAIN, "lock %s: it is removed again and again", path);
}

static void leave_lock(struct via_host *host)
{
    if (host->lock_fd >= 0) {
        via_rundir_unclaim(host->rundir.text, host->config.host);
        unlink(host->lock_path.text);
        close(host->lock_fd);
        host->lock_fd = -1;
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

static int copy_texts(struct via_host *host, struct via_error *err)
{
    struct via_host_options *options = &host->options;
    if (options->listen != NULL && strlen(options->listen) >= sizeof(host->listen)) {
        return via_error_set(err, -EINVAL, "listen '%.60s...': longer than %zu bytes",
                             options->listen, sizeof(host->listen) - 1);
    }
    int rc = via_host_identity_init(&host->identity, options, err);
    if (rc == 0 && options->listen != NULL) {
        strcpy(host->listen, options->listen);
    }
    options->name = NULL;
    options->fabric = NULL;
    options->addresses = NULL;
    options->listen = NULL;
    return rc;
}

static int set_options(struct via_host *host, const struct via_host_options *options,
                       struct via_error *err)
{
    size_t known = via_min(options->size, sizeof(host->options));
    via_host_options_init(&host->options);
    memcpy(&host->options, options, known);
    host->options.size = sizeof(host->options);
    int rc = copy_texts(host, err);
    if (rc != 0) {
        return rc;
    }
    host->options.links = NULL;
    if (host->options.processes_max == 0) {
        host->options.processes_max = 256;
    }
    if (host->options.spin_ns_max == 0) {
        host->options.spin_ns_max = 50 * VIA_USEC_NS;
    }
    if (host->options.processes_max > PROCESSES_MAX) {
        return via_error_set(err, -EINVAL, "processes_max %u: at most %u",
                             host->options.processes_max, PROCESSES_MAX);
    }
    if (options->links_count > VIA_PORTS_MAX) {
        return via_error_set(err, -EINVAL, "%u links, a host has at most %u", options->links_count,
                             VIA_PORTS_MAX);
    }
    if (options->links_count > host->options.links_max && host->options.links_max != 0) {
        return via_error_set(err, -EINVAL, "%u links, more than the %u that there may be",
                             options->links_count, host->options.links_max);
    }
    host->links_max = via_max(host->options.links_max, options->links_count);
    for (unsigned i = 0; i < options->links_count; i++) {
        if (options->links[i].peer == options->host) {
            return via_error_set(err, -EINVAL, "link %u is to the host itself", i);
        }
    }
    if (options->rundir == NULL) {
        return via_error_set(err, -EINVAL, "no run directory is given");
    }
    return 0;
}

static int alloc_links(struct via_host *host, struct via_error *err)
{
    size_t count = via_max(host->links_max, 1u);
    host->ports = calloc(count, sizeof(*host->ports));
    host->cables = calloc(count, sizeof(*host->cables));
    return host->ports != NULL && host->cables != NULL
               ? 0
               : via_error_set(err, -ENOMEM, "table of %u links: %s", host->links_max,
                               strerror(ENOMEM));
}

static int set_config(struct via_host *host, struct via_error *err)
{
    const struct via_host_options *options = &host->options;
    struct via_node_config *config = &host->config;
    via_node_config_init(config);
    config->host = options->host;
    config->ports_count = (uint16_t)host->links_max;
    config->channels_count = options->channels_count != 0 ? options->channels_count : 2;
    config->hosts_max = options->hosts_max != 0 ? options->hosts_max : config->hosts_max;
    uint32_t slots_tuned = options->tuning != NULL ? options->tuning->slots : 0;
    config->pipe_slots = options->pipe_slots != 0 ? options->pipe_slots
                         : slots_tuned != 0       ? slots_tuned
                                                  : config->pipe_slots;
    if (options->frame_bytes_max != 0) {
        config->frame_bytes_max = options->frame_bytes_max;
    }
    config->heartbeat_ns = options->heartbeat_ns != 0 ? options->heartbeat_ns : HEARTBEAT_NS;
    config->dead_ns = options->dead_ns;
    config->give_up_ns = options->give_up_ns;
    config->wait_ns_max = options->wait_ns_max;
    config->segments_count = SEGMENTS_COUNT;
    config->keyed = options->key != NULL;
    for (unsigned i = 0; i < host->links_max; i++) {
        host->ports[i].dma_bytes_min = via_host_dma_default(host);
    }
    config->ports = host->ports;
    /* Room for all operations that each process may have under way, so that no process waits for
     * operations of another. */
    config->ops_count = options->processes_max * VIA_ATTACH_RUNNING_MAX + VIA_ATTACH_PARKED_ALL +
                        VIA_HOST_SENDS_MAX;
    /* A flow costs some hundred bytes for each id and channel. Both hosts of a link must compute
     * the same number, because the greeting compares it and hosts_max. */
    config->flows_count = config->hosts_max <= 64 ? 32 : 8;
    if (getrandom(&host->session, sizeof(host->session), 0) != (ssize_t)sizeof(host->session)) {
        return via_error_set(err, -EIO, "getrandom: %s", strerror(errno));
    }
    host->session |= 1;            /* not 0 */
    host->session &= ~UINT32_C(2); /* not all-ones */
    config->session = host->session;
    struct timespec born;
    clock_gettime(CLOCK_REALTIME, &born);
    config->born = (uint64_t)born.tv_sec * VIA_SEC_NS + (uint64_t)born.tv_nsec;
    host->protocol_version =
        options->protocol_version != 0 ? options->protocol_version : VIA_PROTOCOL_VERSION;
    config->protocol_version = (uint8_t)host->protocol_version;
    if (config->host >= config->hosts_max) {
        return via_error_set(err, -EINVAL, "ids of this fabric are 0 to %u",
                             config->hosts_max - 1u);
    }
    host->node_memory_bytes = via_node_bytes(config);
    if (host->node_memory_bytes == 0) {
        return via_error_set(
            err, -EINVAL, "%u channels, %u slots, frames of %u bytes, %u ids: out of bounds",
            config->channels_count, config->pipe_slots, config->frame_bytes_max, config->hosts_max);
    }
    return 0;
}

int via_host_options_check(const struct via_host_options *options, struct via_error *err)
{
    struct via_host *host = calloc(1, sizeof(*host));
    if (host == NULL) {
        return via_error_set(err, -ENOMEM, "host %u: %s", options->host, strerror(ENOMEM));
    }
    int rc = set_options(host, options, err);
    if (rc == 0) {
        rc = alloc_links(host, err);
    }
    if (rc == 0) {
        rc = set_config(host, err);
    }
    for (unsigned i = 0; i < options->links_count && rc == 0; i++) {
        rc = via_host_link_check(&options->links[i], err);
    }
    free(host->ports);
    free(host->cables);
    free(host);
    return rc;
}

static int open_node(struct via_host *host, struct via_error *err)
{
    /* Not populated: most of this memory is for flows that are never used. Private memory, so that
     * a machine that is out of memory kills a process instead of sending SIGBUS. */
    void *memory = mmap(NULL, host->node_memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return via_error_set(err, -errno, "%zu bytes for the node: %s", host->node_memory_bytes,
                             strerror(errno));
    }
    host->node_memory = memory;
    struct via_node_env env;
    via_host_env_init(host, &env);
    int rc = via_node_init(&host->node, memory, &host->config, &env);
    return rc != 0 ? via_error_set(err, rc, "node: %s", strerror(-rc)) : 0;
}

static int open_shared(struct via_host *host, struct via_error *err)
{
    host->peers = calloc(host->config.hosts_max, sizeof(*host->peers));
    if (host->peers == NULL) {
        return via_error_set(err, -ENOMEM, "table of hosts: %s", strerror(ENOMEM));
    }
    /* A whole page: the ports map the maximum of lines. */
    int rc = via_host_memory_open(&host->bells, "viaduct-bells",
                                  VIA_BELL_LINES_MAX * sizeof(struct via_bell), false, err);
    return rc != 0 ? rc : via_host_status_open(host, err);
}

static int open_transfers(struct via_host *host, struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < host->config.channels_count && rc == 0; i++) {
        rc = via_transfer_init(&host->transfers[i], host, i, err);
    }
    return rc;
}

static int open_rundir(struct via_host *host, const char *rundir, struct via_error *err)
{
    bool passable = host->options.attach.count + host->options.admin.count != 0;
    int rc = via_rundir_make(rundir, passable, err);
    if (rc != 0) {
        return rc;
    }
    snprintf(host->rundir.text, sizeof(host->rundir.text), "%s", rundir);
    rc = via_rundir_lock_path(rundir, host->config.host, &host->lock_path, err);
    if (rc == 0) {
        rc = take_lock(host, err);
    }
    if (rc == 0) {
        via_rundir_claim(rundir, host->config.host);
    }
    return rc;
}

static int open_all(struct via_host *host, const struct via_host_options *options,
                    struct via_error *err)
{
    int rc = set_options(host, options, err);
    if (rc == 0) {
        rc = alloc_links(host, err);
    }
    if (rc == 0) {
        rc = set_config(host, err);
    }
    if (rc == 0) {
        rc = open_rundir(host, options->rundir, err);
    }
    if (rc == 0) {
        rc = open_shared(host, err);
    }
    if (rc == 0) {
        rc = via_host_control_open(host, err);
    }
    if (rc == 0) {
        rc = via_reaper_new(host, &host->reaper, err);
    }
    if (rc == 0) {
        via_tenants_open(host);
        rc = via_attach_server_init(host, err);
    }
    if (rc == 0) {
        rc = open_node(host, err);
    }
    if (rc == 0) {
        rc = open_transfers(host, err);
    }
    if (rc == 0 && via_host_aperture_open(host) != 0) {
        rc = via_error_set(err, -ENOMEM, "tables of slices: %s", strerror(ENOMEM));
    }
    if (rc == 0) {
        rc = via_host_cables_open(host, options, err);
    }
    if (rc == 0 && via_host_measured_open(host) != 0) {
        rc = via_error_set(err, -ENOMEM, "decisions: %s", strerror(ENOMEM));
    }
    if (rc == 0) {
        rc = via_host_directory_open(host, err);
    }
    if (rc == 0) {
        rc = via_control_remote_open(host, err);
    }
    if (rc == 0) {
        via_host_status_update(host);
        rc = via_attach_server_listen(host, err);
    }
    return rc == 0 ? via_control_server_open(host, err) : rc;
}

int via_host_open(const struct via_host_options *options, struct via_host **ret_host,
                  struct via_error *err)
{
    struct via_host *host = calloc(1, sizeof(*host));
    if (host == NULL) {
        return via_error_set(err, -ENOMEM, "host %u: %s", options->host, strerror(ENOMEM));
    }
    host->lock_fd = -1;
    host->epoll_fd = -1;
    host->poke.fd = -1;
    host->bells.fd = -1;
    host->status_memory.fd = -1;
    host->cpus = via_host_spin_cpus();
    host->loadavg_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    host->started_ns = via_host_now_ns();
    host->now_ns = host->started_ns;
    via_host_messages_open(host);
    via_host_board_open(host);
    via_host_direct_open(host);
    int rc = open_all(host, options, err);
    if (rc != 0) {
        via_error_prefix(err, "host %u: ", options->host);
        via_host_close(host);
        return rc;
    }
    *ret_host = host;
    return 0;
}

/* --- running ---------------------------------------------------------------------------------- */

static void end_transfers(struct via_host *host)
{
    atomic_store_explicit(&host->stopping, true, memory_order_release);
    for (unsigned i = 0; i < host->config.channels_count; i++) {
        via_transfer_join(&host->transfers[i]);
    }
}

static int start_transfers(struct via_host *host, struct via_error *err)
{
    int rc = 0;
    for (unsigned i = 0; i < host->config.channels_count && rc == 0; i++) {
        rc = via_transfer_start(&host->transfers[i], err);
    }
    if (rc != 0) {
        via_error_prefix(err, "host %u: ", host->config.host);
        end_transfers(host);
    }
    return rc;
}

int via_host_run(struct via_host *host, struct via_error *err)
{
    int rc = start_transfers(host, err);
    if (rc == 0) {
        via_log(VIA_LOG_INFO, "host %u: up, session %08x, %u links, %u channels, in %s",
                host->config.host, host->session, host->cables_count, host->config.channels_count,
                host->rundir.text);
        via_host_control_loop(host);
        end_transfers(host);
    }
    return rc;
}

static void *thread_main(void *argument)
{
    via_host_control_loop(argument);
    return NULL;
}

int via_host_start(struct via_host *host, struct via_error *err)
{
    int rc = start_transfers(host, err);
    if (rc != 0) {
        return rc;
    }
    sigset_t old;
    via_signals_block(&old);
    int code = pthread_create(&host->thread, NULL, thread_main, host);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        end_transfers(host);
        return via_error_set(err, -code, "host %u: control thread: pthread_create: %s",
                             host->config.host, strerror(code));
    }
    char name[16];
    snprintf(name, sizeof(name), "via-%u-ctl", host->config.host);
    pthread_setname_np(host->thread, name);
    host->thread_started = true;
    return 0;
}

void via_host_stop(struct via_host *host)
{
    int saved = errno; /* errno of the code that the signal interrupted */
    atomic_store_explicit(&host->stopping, true, memory_order_release);
    via_host_poke(host);
    errno = saved;
}

void via_host_close(struct via_host *host)
{
    if (host == NULL) {
        return;
    }
    if (host->poke.fd >= 0) {
        via_host_stop(host);
    }
    if (host->thread_started) {
        pthread_join(host->thread, NULL);
    }
    end_transfers(host);
    /* Close the sockets first: from now on a process that attaches finds no host. */
    via_control_server_close(host);
    via_host_direct_close(host);
    if (host->node != NULL) {
        via_node_fini(host->node);
        host->node = NULL;
    }
    via_attach_server_close(host);
    via_tenants_close(host);
    if (!via_reaper_free(host->reaper, REAPER_WAIT_NS)) {
        via_log(VIA_LOG_WARN, "host %u: a descriptor that a process has sent can not be closed",
                host->config.host);
    }
    via_host_change_close(host);
    via_host_aperture_close(host);
    via_control_remote_close(host);
    via_host_directory_close(host);
    via_host_measured_close(host);
    via_host_cables_close(host);
    for (unsigned i = 0; i < VIA_CHANNELS_MAX; i++) {
        via_transfer_fini(&host->transfers[i]);
    }
    if (host->node_memory != NULL) {
        munmap(host->node_memory, host->node_memory_bytes);
    }
    via_host_board_close(host);
    via_host_messages_close(host);
    via_host_memory_close(&host->bells);
    via_host_memory_close(&host->status_memory);
    via_host_control_close(host);
    free(host->peers);
    free(host->ports);
    free(host->cables);
    if (host->loadavg_fd >= 0) {
        close(host->loadavg_fd);
    }
    leave_lock(host);
    free(host);
}
