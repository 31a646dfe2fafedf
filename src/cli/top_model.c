/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/top.h"

/* A host that hangs must not delay the display for long. */
#define ANSWER_MS 500u

/* --- hosts and links ------------------------------------------------------------------------- */

/* Two pages: hosts are added and removed, so the last answers of a host are searched in the other
 * page. */
static struct via_status pages[2];
static unsigned current;
static bool is_loaded; /* pages[current] contains a fabric */

static void release_page(unsigned page)
{
    via_status_release(&pages[page]);
    json_decref(pages[page].fabric.directory);
    memset(&pages[page], 0, sizeof(pages[page]));
}

static void take_last_answers(struct via_status *next, struct via_status *last)
{
    for (unsigned i = 0; i < next->fabric.topology.hosts_count; i++) {
        int index = via_fabric_find(&last->fabric, next->fabric.topology.hosts[i]);
        if (index >= 0) {
            next->hosts[i].after = last->hosts[index].after;
            last->hosts[index].after = NULL;
        }
    }
}

static void collect_fabric(struct via_top_model *model, const char *name)
{
    struct via_error err = {0};
    unsigned other = 1 - current;
    struct via_status *next = &pages[other];
    model->status = NULL;
    if (via_fabric_open(&next->fabric, name, &err) != 0) {
        snprintf(model->why, sizeof(model->why), "%s", err.text);
        memset(next, 0, sizeof(*next));
        return;
    }
    if (is_loaded) {
        take_last_answers(next, &pages[current]);
        release_page(current);
    }
    via_status_request(next, ANSWER_MS, false);
    via_status_compare(next);
    for (unsigned i = 0; i < next->fabric.topology.links_count; i++) {
        double rate = fmax(next->links[i].ab.bytes_per_second, next->links[i].ba.bytes_per_second);
        model->peak_bytes_per_second = fmax(model->peak_bytes_per_second, rate);
    }
    current = other;
    is_loaded = true;
    model->status = next;
}

/* --- connections ----------------------------------------------------------------------------- */

static int compare_identity(const void *a, const void *b)
{
    const struct via_sockets_row *one = &((const struct via_top_connection *)a)->row;
    const struct via_sockets_row *two = &((const struct via_top_connection *)b)->row;
    if (one->pid != two->pid) {
        return one->pid < two->pid ? -1 : 1;
    }
    if (one->fd != two->fd) {
        return one->fd < two->fd ? -1 : 1;
    }
    int local = strcmp(one->local, two->local);
    return local != 0 ? local : strcmp(one->peer, two->peer);
}

static uint64_t bytes_of(const struct via_sockets_row *row)
{
    return row->stats.tx_pipe_bytes + row->stats.rx_pipe_bytes + row->stats.tx_kernel_bytes +
           row->stats.rx_kernel_bytes;
}

/* New connections have no rate yet. */
static void find_rates(const struct via_top_model *last, struct via_top_connection *connections,
                       size_t count, double seconds)
{
    for (size_t i = 0; i < count && last->connections_count != 0 && seconds > 0; i++) {
        const struct via_top_connection *before =
            bsearch(&connections[i], last->connections, last->connections_count,
                    sizeof(*connections), compare_identity);
        uint64_t now = bytes_of(&connections[i].row);
        if (before != NULL && connections[i].row.counted && now > bytes_of(&before->row)) {
            connections[i].bytes_per_second = (double)(now - bytes_of(&before->row)) / seconds;
        }
    }
}

static int collect_connections(struct via_top_model *model, double seconds)
{
    struct via_sockets_list list = {0};
    struct via_error err = {0};
    if (via_sockets_scan(0, &list, &err) != 0) {
        via_sockets_free(&list);
        return 0;
    }
    struct via_top_connection *connections = calloc(list.count + 1, sizeof(*connections));
    if (connections == NULL) {
        via_sockets_free(&list);
        return -ENOMEM;
    }
    for (size_t i = 0; i < list.count; i++) {
        connections[i].row = list.rows[i];
    }
    qsort(connections, list.count, sizeof(*connections), compare_identity);
    find_rates(model, connections, list.count, seconds);
    free(model->connections);
    model->connections = connections;
    model->connections_count = list.count;
    via_sockets_free(&list);
    return 0;
}

/* --- jobs and attached processes ------------------------------------------------------------- */

/* Fields of /proc/PID/stat: name, parent and start. */
struct stat_line {
    char comm[24];
    pid_t parent;
    uint64_t started_ticks;
};

static bool read_stat(pid_t pid, struct stat_line *ret_line)
{
    char path[32];
    char text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = '\0';
    /* The name may contain any characters, also brackets: it ends at the last bracket. */
    const char *open = strchr(text, '(');
    const char *close = strrchr(text, ')');
    if (open == NULL || close == NULL || close < open) {
        return false;
    }
    int length = (int)via_min((size_t)(close - open - 1), sizeof(ret_line->comm) - 1);
    for (int i = 0; i < length; i++) {
        ret_line->comm[i] = isprint((unsigned char)open[1 + i]) ? open[1 + i] : '?';
    }
    ret_line->comm[length] = '\0';
    int parent;
    unsigned long long started;
    /* Fields 3 to 22 of proc(5). */
    bool good =
        sscanf(close + 1,
               " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
               "%llu",
               &parent, &started) == 2;
    ret_line->parent = good ? (pid_t)parent : 0;
    ret_line->started_ticks = good ? started : 0;
    return good;
}

static uint64_t age_of(const struct stat_line *line)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
    uint64_t tick_ns = VIA_SEC_NS / (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t started_ns = line->started_ticks * tick_ns;
    return now_ns > started_ns ? now_ns - started_ns : 1;
}

static int add_job(struct via_top_model *model, size_t *room, const struct via_top_job *job)
{
    void *jobs = model->jobs;
    int rc = via_sockets_grow(&jobs, sizeof(*model->jobs), model->jobs_count, room);
    if (rc == 0) {
        model->jobs = jobs;
        model->jobs[model->jobs_count++] = *job;
    }
    return rc;
}

/* Finds the launchers first, then counts their children. */
static int collect_launchers(struct via_top_model *model, size_t *room)
{
    int rc = 0;
    size_t first = model->jobs_count;
    for (unsigned round = 0; round < 2; round++) {
        DIR *folder = opendir("/proc");
        if (folder == NULL) {
            return 0;
        }
        for (const struct dirent *it; rc == 0 && (it = readdir(folder)) != NULL;) {
            struct stat_line line;
            pid_t pid = (pid_t)atoi(it->d_name);
            if (pid <= 0 || !read_stat(pid, &line)) {
                continue;
            }
            if (round == 0 && strcmp(line.comm, "oshrun") == 0) {
                struct via_top_job job = {.pid = pid, .host = -1, .age_ns = age_of(&line)};
                snprintf(job.program, sizeof(job.program), "oshrun");
                rc = add_job(model, room, &job);
            }
            for (size_t i = first; i < model->jobs_count && round == 1; i++) {
                if (model->jobs[i].pid == line.parent) {
                    model->jobs[i].processes++;
                    snprintf(model->jobs[i].program, sizeof(model->jobs[i].program), "%s",
                             line.comm);
                }
            }
        }
        closedir(folder);
    }
    return rc;
}

static int collect_attached(struct via_top_model *model, size_t *room)
{
    int rc = 0;
    for (unsigned i = 0; model->status != NULL && i < model->status->fabric.topology.hosts_count;
         i++) {
        const struct via_status_host *host = &model->status->hosts[i];
        json_t *entry;
        size_t index;
        json_array_foreach(json_object_get(host->after, "processes"), index, entry)
        {
            struct stat_line line;
            struct via_top_job job = {.pid = (pid_t)via_answer_u64(entry, "pid"),
                                      .host = (int)host->host,
                                      .bytes = via_answer_u64(entry, "bytes")};
            snprintf(job.program, sizeof(job.program), "%s", via_answer_text(entry, "comm"));
            if (model->status->fabric.local < 0 && read_stat(job.pid, &line)) {
                job.age_ns = age_of(&line);
            }
            rc = rc == 0 ? add_job(model, room, &job) : rc;
        }
    }
    return rc;
}

int via_top_collect(struct via_top_model *model, const char *name, struct via_error *err)
{
    struct timespec now;
    size_t room = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
    double seconds = model->now_ns != 0 ? (double)(now_ns - model->now_ns) / (double)VIA_SEC_NS : 0;
    model->now_ns = now_ns;
    free(model->jobs);
    model->jobs = NULL;
    model->jobs_count = 0;
    collect_fabric(model, name);
    int rc = collect_connections(model, seconds);
    rc = rc == 0 ? collect_launchers(model, &room) : rc;
    rc = rc == 0 ? collect_attached(model, &room) : rc;
    return rc == 0 ? 0 : via_error_set(err, rc, "collect the status: %s", strerror(-rc));
}

void via_top_release(struct via_top_model *model)
{
    if (is_loaded) {
        release_page(current);
        is_loaded = false;
    }
    free(model->connections);
    free(model->jobs);
    *model = (struct via_top_model){0};
}
