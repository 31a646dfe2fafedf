/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/key.h"
#include "daemon/log_writer.h"
#include "daemon/measure.h"
#include "daemon/metrics.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/reload.h"
#include "host/client_tcp.h"
#include "host/host_source.h"
#include "host/tuning.h"

/* Exit codes: 0: stopped as requested; 1: could not start; 2: wrong command line. */
#define EXIT_WRONG 2

static struct via_host *running; /* for the signal handler */

static void on_signal(int number)
{
    (void)number;
    via_host_stop(running);
}

static void on_hangup(int number)
{
    (void)number;
    via_reload_request();
}

static void handle_signals(bool reloads)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    struct sigaction hangup = {.sa_handler = on_hangup, .sa_flags = SA_RESTART};
    sigaction(SIGHUP, reloads ? &hangup : &ignore, NULL);
    /* RLIMIT_FSIZE also applies to shared memory. Without the signal the call returns the error. */
    sigaction(SIGXFSZ, &ignore, NULL);
}

/* Each attached process needs descriptors, so the soft limit becomes the hard limit. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Makes the daemon end with its parent. -ESRCH: the parent had ended before this call. */
static int follow_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    return getppid() == parent ? 0 : -ESRCH;
}

/* --- background ------------------------------------------------------------------------------- */

/* Waits in the parent until the child is up; or prints the child's error, and exits. */
static _Noreturn void wait_for_child(int fd)
{
    char report[VIA_ERROR_TEXT_BYTES];
    size_t bytes = 0;
    ssize_t n;
    while (bytes < sizeof(report) - 1 &&
           ((n = read(fd, report + bytes, sizeof(report) - 1 - bytes)) > 0 ||
            (n < 0 && errno == EINTR))) {
        bytes += n > 0 ? (size_t)n : 0;
    }
    report[bytes] = '\0';
    if (bytes == 1 && report[0] == '+') {
        exit(EXIT_SUCCESS);
    }
    fprintf(stderr, "viaductd: %s\n", bytes != 0 ? report : "it died before it was up");
    exit(EXIT_FAILURE);
}

/* Returns in the child: the descriptor on which the child reports to the parent. */
static int go_to_background(void)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        fprintf(stderr, "viaductd: go to the background: pipe: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    pid_t child = fork();
    if (child < 0) {
        fprintf(stderr, "viaductd: go to the background: fork: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    if (child > 0) {
        close(fds[1]);
        wait_for_child(fds[0]);
    }
    close(fds[0]);
    setsid();
    return fds[1];
}

#define LOG_FOLDER "/var/log/viaduct"

struct log_path {
    char text[VIA_DAEMON_PATH_BYTES];
};

/* True for the daemon of a machine, which logs in the system's log folder. Hosts of an emulated
 * fabric log in their run directory. */
static bool is_log_in_folder(const struct via_daemon_options *options)
{
    return options->config_path != NULL && options->log_file[0] == '\0' && geteuid() == 0;
}

static struct log_path log_path_of(const struct via_daemon_options *options)
{
    struct log_path path;
    if (options->log_file[0] != '\0') {
        snprintf(path.text, sizeof(path.text), "%s", options->log_file);
        return path;
    }
    snprintf(path.text, sizeof(path.text), "%s/host-%u.log",
             is_log_in_folder(options) ? LOG_FOLDER : options->rundir.text, options->host.host);
    return path;
}

/* True if the daemon logs to a file. Otherwise the process that starts it has chosen standard
 * error. */
static bool is_log_file(const struct via_daemon_options *options)
{
    return !options->foreground || options->log_file[0] != '\0';
}

/* Another user could read all messages in a file that this user has made, so such a file is
 * refused. The file was opened without blocking: a FIFO without a reader is an error. */
static int check_log(int fd, struct via_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || fcntl(fd, F_SETFL, O_APPEND) != 0) {
        return via_error_set(err, -errno, "open: %s", strerror(errno));
    }
    if (S_ISREG(info.st_mode) && info.st_uid != 0 && info.st_uid != geteuid()) {
        return via_error_set(err, -EPERM, "belongs to user %u, not to user %u or root",
                             (unsigned)info.st_uid, (unsigned)geteuid());
    }
    return 0;
}

/* Opens the file before the daemon reports that it is up, so that a path where it can not log is an
 * error. */
static int open_log(const struct via_daemon_options *options, int *ret_fd, struct via_error *err)
{
    struct log_path path = log_path_of(options);
    *ret_fd = -1;
    if (!is_log_file(options)) {
        return 0;
    }
    if (is_log_in_folder(options)) {
        (void)mkdir(LOG_FOLDER, 0750); /* it exists already, or open() reports the error */
    }
    int fd =
        open(path.text,
             O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
    int rc = fd >= 0 ? check_log(fd, err) : via_error_set(err, -errno, "open: %s", strerror(errno));
    if (rc != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return via_error_prefix(err, "log %s: ", path.text);
    }
    *ret_fd = fd;
    return 0;
}

/* From now on messages go to the file. */
static void log_to_file(const struct via_daemon_options *options, int log_fd)
{
    int null_fd = options->foreground ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        dup2(null_fd, STDOUT_FILENO);
        close(null_fd);
    }
    if (log_fd >= 0) {
        dup2(log_fd, STDERR_FILENO);
        close(log_fd);
    }
}

/* --- the daemon ------------------------------------------------------------------------------- */

static void write_and_close(int fd, const char *text, size_t bytes)
{
    if (fd >= 0) {
        (void)!write(fd, text, bytes);
        close(fd);
    }
}

static int fail(int parent_fd, const struct via_error *err)
{
    if (parent_fd >= 0) {
        write_and_close(parent_fd, err->text, strlen(err->text));
    } else {
        fprintf(stderr, "viaductd: %s\n", err->text);
    }
    return EXIT_FAILURE;
}

/* Called when the process of --with has ended. */
static void companion_ended(struct via_host_source *source, uint32_t events)
{
    (void)source;
    (void)events;
    via_host_stop(running);
}

static struct via_host_source companion = {.ready = companion_ended, .fd = -1};

static int follow_companion(pid_t pid, struct via_error *err)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int rc = fd < 0 ? -errno : 0;
    if (rc == 0) {
        companion.fd = fd;
        rc = via_host_source_add(running, &companion, EPOLLIN);
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "--with %d: %s", (int)pid, strerror(-rc));
}

static void reload_started(void)
{
    via_notify_send("RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reads its file again",
                    via_notify_now_us());
}

static void reload_ended(bool failed)
{
    via_notify_send("READY=1\nSTATUS=%s",
                    failed ? "the last reload failed, see the log" : "reloaded");
}

static const struct via_reload_calls notify_calls = {.started = reload_started,
                                                     .ended = reload_ended};

/* Opens the services that accompany the host. via_host_close() and close_services() end them. */
static int open_services(const struct via_daemon_options *options, struct via_daemon_key *key,
                         struct via_error *err)
{
    int rc = options->with != 0 ? follow_companion(options->with, err) : 0;
    if (rc == 0) {
        rc = via_notify_open(running, err);
    }
    if (rc == 0) {
        rc = via_daemon_metrics_open(options, err);
    }
    if (rc == 0 && options->config_path != NULL) {
        rc = via_reload_open(running, options, key, &notify_calls, err);
    }
    if (rc == 0 && options->config_path != NULL) {
        rc = via_measure_open(running, options, err);
    }
    return rc;
}

static void close_services(const struct via_daemon_options *options)
{
    via_daemon_metrics_end();
    via_host_source_remove(running, &companion);
    via_notify_close(running);
    if (options->config_path != NULL) {
        via_reload_close();
        via_measure_close();
    }
}

static char tuning_refused[VIA_ERROR_TEXT_BYTES]; /* logged once a log exists; "": none */

/* Loads measured settings. Settings of another machine are ignored with a message; an invalid file
 * is an error. */
static int load_tuning(const struct via_daemon_options *options, struct via_host_options *host,
                       struct via_error *err)
{
    static struct via_tuning tuning; /* the host uses it as long as it lives */
    struct via_error other;
    if (options->tune_path == NULL) {
        return 0;
    }
    int rc = via_tuning_load(options->tune_path, &tuning, err);
    if (rc != 0) {
        return via_error_prefix(err, "measured settings: ");
    }
    if (via_tuning_check_cpu(&tuning, &other) != 0) {
        snprintf(tuning_refused, sizeof(tuning_refused), "%.200s: not used: %.290s",
                 options->tune_path, other.text);
        return 0;
    }
    host->tuning = &tuning;
    return 0;
}

static int check_environment(struct via_error *err)
{
    enum via_tcp_setting setting;
    int rc = via_tcp_setting_read(&setting);
    return rc == 0 ? 0
                   : via_error_set(err, rc, "VIADUCT_DIRECT='%.40s' is none of auto, asked and off",
                                   getenv("VIADUCT_DIRECT"));
}

static int open_host(const struct via_daemon_options *options, struct via_daemon_key *key,
                     int *ret_log_fd, struct via_error *err)
{
    struct via_host_options host_options = options->host;
    int rc = check_environment(err);
    if (rc == 0) {
        rc = load_tuning(options, &host_options, err);
    }
    if (rc == 0 && options->key_path != NULL) {
        rc = via_daemon_key_read(options->key_path, key, err);
        host_options.key = &key->host;
    }
    if (rc == 0) {
        rc = via_host_open(&host_options, &running, err);
    }
    if (rc == 0) {
        rc = open_log(options, ret_log_fd, err);
    }
    if (rc == 0) {
        rc = open_services(options, options->key_path != NULL ? key : NULL, err);
    }
    if (rc != 0) {
        via_daemon_metrics_end();
        via_host_close(running);
        via_daemon_metrics_close();
    }
    return rc;
}

static int run(const struct via_daemon_options *options, int parent_fd)
{
    struct via_error err;
    static struct via_daemon_key key;
    int log_fd;
    via_error_clear(&err);
    if (open_host(options, &key, &log_fd, &err) != 0) {
        return fail(parent_fd, &err);
    }
    handle_signals(options->config_path != NULL);
    log_to_file(options, log_fd);
    if (tuning_refused[0] != '\0') {
        via_log(VIA_LOG_ERROR, "%s", tuning_refused);
    }
    via_daemon_log_start(log_path_of(options).text, options->log_bytes);
    /* The sockets listen: the connection of a process waits until the loop runs, and is not
     * refused. */
    via_notify_send("READY=1\nSTATUS=host %u is up", options->host.host);
    write_and_close(options->ready_fd, "+", 1);
    write_and_close(parent_fd, "+", 1);
    int rc = via_host_run(running, &err);
    if (rc != 0) {
        via_log(VIA_LOG_ERROR, "%s", err.text);
    }
    via_log(VIA_LOG_INFO, "host %u: ends", options->host.host);
    via_notify_send("STOPPING=1\nSTATUS=host %u ends", options->host.host);
    close_services(options);
    /* The host is freed next, and the handler of a second signal must not use it. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    via_host_close(running);
    via_daemon_metrics_close();
    via_daemon_log_end();
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static struct via_daemon_options options;
    pid_t parent = getppid();
    switch (via_daemon_parse(argc, argv, &options)) {
    case VIA_DAEMON_DONE:
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    case VIA_DAEMON_WRONG:
        return EXIT_WRONG;
    case VIA_DAEMON_RUN:
        break;
    }
    umask(077);
    via_log_set_sink(via_daemon_log, NULL);
    via_log_set_level(options.log_level);
    raise_limits();
    /* Before the host is opened: a full disk or the lack of memory is then an error text, not a
     * signal. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* until a reload is possible */
    int parent_fd = options.foreground ? -1 : go_to_background();
    if (options.parent_death && options.foreground && follow_parent(parent) != 0) {
        fprintf(stderr, "viaductd: --parent-death: the parent has ended already\n");
        return EXIT_FAILURE;
    }
    return run(&options, parent_fd);
}
