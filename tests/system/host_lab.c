/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "tests/system/host_lab.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/control.h"

#define WAIT_NS (60 * VIA_SEC_NS)
#define WORDS_MAX 40

pid_t host_lab_fork(void (*work)(struct host_lab *lab, void *ctx), struct host_lab *lab, void *ctx)
{
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(lab, ctx);
        (void)!write(fds[1], "+", 1);
        for (;;) {
            pause();
        }
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return pid;
}

uint64_t host_lab_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

void host_lab_wait(bool (*check)(void *ctx), void *ctx, const char *what)
{
    uint64_t deadline_ns = host_lab_now_ns() + WAIT_NS;
    while (!check(ctx)) {
        if (host_lab_now_ns() > deadline_ns) {
            fail_msg("did not happen in time: %s", what);
        }
        poll(NULL, 0, 1);
    }
}

static void remove_rundir(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(path);
}

/* The remains of a failed test are removed when the program ends; its daemons end with it. */
static struct {
    pid_t pid;
    char paths[16][64];
} left;

static void remove_left(void)
{
    for (size_t i = 0; i < VIA_ARRAY_COUNT(left.paths) && left.pid == getpid(); i++) {
        if (left.paths[i][0] != '\0') {
            remove_rundir(left.paths[i]);
        }
    }
}

static void remember(const char *path)
{
    static unsigned next;
    if (left.pid == 0) {
        left.pid = getpid();
        atexit(remove_left);
    }
    strcpy(left.paths[next++ % VIA_ARRAY_COUNT(left.paths)], path);
}

void host_lab_init(struct host_lab *lab, unsigned hosts_count, bool ring, bool direct)
{
    *lab = (struct host_lab){.hosts_count = hosts_count, .ring = ring, .direct = direct};
    strcpy(lab->rundir, "/tmp/viaduct-test-XXXXXX");
    assert_non_null(mkdtemp(lab->rundir));
    remember(lab->rundir);
}

void host_lab_fini(struct host_lab *lab)
{
    for (unsigned i = 0; i < lab->hosts_count; i++) {
        via_host_close(lab->hosts[i]);
        lab->hosts[i] = NULL;
        if (lab->daemons[i] != 0) {
            host_lab_kill(lab, i, SIGKILL);
        }
    }
    remove_rundir(lab->rundir);
}

int host_lab_tear_down(void **state)
{
    host_lab_fini(*state);
    free(*state);
    return 0;
}

/* The neighbours of a host, in the order of the host's ports. */
static unsigned neighbours_of(const struct host_lab *lab, unsigned host, unsigned ret_peers[2])
{
    unsigned count = 0;
    unsigned n = lab->hosts_count;
    bool closed = lab->ring && n > 2;
    if (host > 0 || closed) {
        ret_peers[count++] = (host + n - 1) % n;
    }
    if (host + 1 < n || closed) {
        ret_peers[count++] = (host + 1) % n;
    }
    return count;
}

void host_lab_start(struct host_lab *lab, unsigned host,
                    void (*change)(struct via_host_options *options))
{
    struct via_host_link links[2];
    char descriptions[2][160];
    unsigned peers[2];
    struct via_host_options options;
    struct via_error err = {0};
    via_host_options_init(&options);
    options.host = (uint16_t)host;
    options.hosts_max = 16;
    options.rundir = lab->rundir;
    options.links = links;
    options.links_count = neighbours_of(lab, host, peers);
    for (unsigned i = 0; i < options.links_count; i++) {
        struct via_rundir_path path;
        assert_int_equal(via_rundir_link_path(lab->rundir, host, peers[i], 0, &path, &err), 0);
        if (lab->model != NULL) {
            snprintf(descriptions[i], sizeof(descriptions[i]), "pex:model:%s,side=%s%s", path.text,
                     host < peers[i] ? "virtual" : "link", lab->model);
        } else {
            snprintf(descriptions[i], sizeof(descriptions[i]), "emu:%s,side=%u%s%s", path.text,
                     host < peers[i] ? 0 : 1, lab->direct ? "" : ",nodirect",
                     lab->options != NULL ? lab->options : "");
        }
        links[i] =
            (struct via_host_link){.description = descriptions[i], .peer = (uint16_t)peers[i]};
    }
    if (change != NULL) {
        change(&options);
    }
    int rc = via_host_open(&options, &lab->hosts[host], &err);
    if (rc == 0) {
        rc = via_host_start(lab->hosts[host], &err);
    }
    if (rc != 0) {
        fail_msg("%s", err.text);
    }
}

void host_lab_end(struct host_lab *lab, unsigned host)
{
    via_host_close(lab->hosts[host]);
    lab->hosts[host] = NULL;
}

static void start_all(struct host_lab *lab, void (*change)(struct via_host_options *options))
{
    for (unsigned i = 0; i < lab->hosts_count; i++) {
        host_lab_start(lab, i, change);
    }
    host_lab_wait_routes(lab);
}

void host_lab_start_all(struct host_lab *lab)
{
    start_all(lab, NULL);
}

static void be_patient(struct via_host_options *options)
{
    options->dead_ns = 10 * VIA_SEC_NS;
}

void host_lab_start_patient(struct host_lab *lab)
{
    start_all(lab, be_patient);
}

/* --- daemons ---------------------------------------------------------------------------------- */

struct words {
    char text[WORDS_MAX][96];
    char *argv[WORDS_MAX + 1];
    unsigned count;
};

static void add_word(struct words *words, const char *text)
{
    assert_true(words->count < WORDS_MAX && strlen(text) < sizeof(words->text[0]));
    words->argv[words->count] = strcpy(words->text[words->count], text);
    words->argv[++words->count] = NULL;
}

static void add_number(struct words *words, const char *option, unsigned number)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    add_word(words, option);
    add_word(words, text);
}

static void make_words(const struct host_lab *lab, unsigned host, const char *const *extra,
                       int ready_fd, struct words *words)
{
    unsigned peers[2];
    unsigned count = neighbours_of(lab, host, peers);
    add_word(words, "viaductd");
    add_word(words, "--foreground");
    add_word(words, "--parent-death");
    add_word(words, "--rundir");
    add_word(words, lab->rundir);
    add_number(words, "--host", host);
    add_number(words, "--hosts-max", 16);
    add_number(words, "--ready-fd", (unsigned)ready_fd);
    for (unsigned i = 0; i < count; i++) {
        char link[64];
        snprintf(link, sizeof(link), "%u:%u:0%s%s", peers[i], host < peers[i] ? 0u : 1u,
                 lab->direct ? "" : ":nodirect", lab->like != NULL ? lab->like : "");
        add_word(words, "--link");
        add_word(words, link);
    }
    while (extra != NULL && *extra != NULL) {
        add_word(words, *extra++);
    }
}

pid_t host_lab_spawn_raw(struct host_lab *lab, unsigned host, const char *const *extra,
                         int *ret_error_fd, int *ret_ready_fd)
{
    char path[512];
    int ready[2];
    int error[2];
    struct words words = {0};
    const char *bin = getenv("VIADUCT_BUILD_DIR");
    assert_non_null(bin);
    snprintf(path, sizeof(path), "%s/viaductd", bin);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(error, O_CLOEXEC), 0);
    make_words(lab, host, extra, ready[1], &words);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fcntl(ready[1], F_SETFD, 0);
        if (ret_error_fd != NULL) {
            dup2(error[1], STDERR_FILENO);
        }
        execv(path, words.argv);
        dprintf(STDERR_FILENO, "exec %s: %s\n", path, strerror(errno));
        _exit(127);
    }
    close(ready[1]);
    close(error[1]);
    *ret_ready_fd = ready[0];
    if (ret_error_fd != NULL) {
        *ret_error_fd = error[0];
    } else {
        close(error[0]);
    }
    lab->daemons[host] = pid;
    return pid;
}

void host_lab_spawn(struct host_lab *lab, unsigned host, const char *const *extra)
{
    int ready_fd;
    char byte;
    host_lab_spawn_raw(lab, host, extra, NULL, &ready_fd);
    struct pollfd pollfd = {.fd = ready_fd, .events = POLLIN};
    assert_int_equal(poll(&pollfd, 1, (int)(WAIT_NS / VIA_MSEC_NS)), 1);
    assert_int_equal(read(ready_fd, &byte, 1), 1);
    close(ready_fd);
}

int host_lab_kill(struct host_lab *lab, unsigned host, int signal)
{
    int status = 0;
    pid_t pid = lab->daemons[host];
    lab->daemons[host] = 0;
    kill(pid, signal);
    uint64_t deadline_ns = host_lab_now_ns() + WAIT_NS;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (host_lab_now_ns() > deadline_ns) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fail_msg("daemon of host %u does not end on signal %d", host, signal);
        }
        poll(NULL, 0, 1);
    }
    return status;
}

/* --- requests to daemons ---------------------------------------------------------------------- */

json_t *host_lab_request(struct host_lab *lab, unsigned host, json_t *request)
{
    struct via_error err = {0};
    json_t *answer = NULL;
    int rc = via_control_call(lab->rundir, host, request, &answer, &err, 60000);
    json_decref(request);
    if (rc != 0) {
        fail_msg("%s", err.text);
    }
    return answer;
}

json_t *host_lab_status(struct host_lab *lab, unsigned host)
{
    return host_lab_request(lab, host, json_pack("{s:s}", "cmd", "status"));
}

uint64_t host_lab_counter(struct host_lab *lab, unsigned host, const char *name)
{
    json_t *status = host_lab_status(lab, host);
    json_t *value = json_object_get(json_object_get(status, "counters"), name);
    assert_true(json_is_integer(value));
    uint64_t number = (uint64_t)json_integer_value(value);
    json_decref(status);
    return number;
}

unsigned host_lab_processes(struct host_lab *lab, unsigned host)
{
    json_t *status = host_lab_status(lab, host);
    unsigned count = (unsigned)json_array_size(json_object_get(status, "processes"));
    json_decref(status);
    return count;
}

void host_lab_cut(struct host_lab *lab, unsigned host, unsigned peer, const char *how)
{
    json_decref(
        host_lab_request(lab, host, json_pack("{s:s, s:i}", "cmd", how, "peer", (int)peer)));
}

struct hops {
    struct host_lab *lab;
    unsigned from;
    unsigned to;
    int hops;
};

static bool has_hops(void *ctx)
{
    const struct hops *want = ctx;
    json_t *status = host_lab_status(want->lab, want->from);
    json_t *route;
    size_t i;
    int hops = -1;
    json_array_foreach(json_object_get(status, "routes"), i, route)
    {
        if (json_integer_value(json_object_get(route, "host")) == (json_int_t)want->to) {
            hops = (int)json_integer_value(json_object_get(route, "hops"));
        }
    }
    json_decref(status);
    return want->hops == -2 ? hops > 0 : hops == want->hops;
}

void host_lab_wait_hops(struct host_lab *lab, unsigned from, unsigned to, int hops)
{
    struct hops want = {.lab = lab, .from = from, .to = to, .hops = hops};
    char what[64];
    snprintf(what, sizeof(what), "host %u to be %d hops from host %u", to, hops, from);
    host_lab_wait(has_hops, &want, what);
}

void host_lab_wait_routes(struct host_lab *lab)
{
    for (unsigned from = 0; from < lab->hosts_count; from++) {
        for (unsigned to = 0; to < lab->hosts_count; to++) {
            if (from != to) {
                host_lab_wait_hops(lab, from, to, -2);
            }
        }
    }
}

struct via_attach *host_lab_attach(struct host_lab *lab, unsigned host)
{
    struct via_attach_options options = {
        .size = sizeof(options), .rundir = lab->rundir, .host = (int)host, .channel = -1};
    struct via_attach *attach = NULL;
    int rc = via_attach_open(&options, &attach);
    if (rc != 0) {
        fail_msg("attach to host %u: %s", host, via_error_text());
    }
    return attach;
}

unsigned host_lab_fds(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", pid != 0 ? (int)pid : (int)getpid());
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(dir);
    return count - (pid == 0); /* the directory's own */
}
