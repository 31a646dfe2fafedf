/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* viaductd: start, end, kill, and lack of memory or descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/control.h"
#include "tests/system/host_raw.h"

static int set_up(void **state)
{
    struct host_lab *lab = calloc(1, sizeof(*lab));
    host_lab_init(lab, 2, false, true);
    *state = lab;
    return 0;
}

static bool is_there(const struct host_lab *lab, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", lab->rundir, name);
    return access(path, F_OK) == 0;
}

/* Starts a daemon that can not come up. Returns its exit code and its error. */
static int start_and_fail(struct host_lab *lab, unsigned host, const char *const *extra,
                          char output[1024])
{
    int error_fd;
    int ready_fd;
    char byte;
    pid_t pid = host_lab_spawn_raw(lab, host, extra, &error_fd, &ready_fd);
    lab->daemons[host] = 0;
    size_t bytes = 0;
    for (ssize_t n; bytes < 1023 && (n = read(error_fd, output + bytes, 1023 - bytes)) > 0;) {
        bytes += (size_t)n;
    }
    output[bytes] = '\0';
    assert_int_equal(read(ready_fd, &byte, 1), 0); /* it never reported readiness */
    close(error_fd);
    close(ready_fd);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_refused(struct host_lab *lab, const char *const *extra, int code,
                           const char *text)
{
    char output[1024];
    assert_int_equal(start_and_fail(lab, 0, extra, output), code);
    if (strstr(output, text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, output);
    }
}

/* --- starting --------------------------------------------------------------------------------- */

static void a_wrong_command_line_is_explained(void **state)
{
    struct host_lab *lab = *state;
    static const struct {
        const char *words[4];
        const char *text;
    } cases[] = {
        {{"--host", "1024"}, "--host 1024: a number from 0 to 1023"},
        {{"--host", "x"}, "--host x: a number from"},
        {{"--slots", "-1"}, "--slots -1: a number from"},
        {{"--dma-bytes", "65473"}, "--dma-bytes 65473: a number from 0 to 65472"},
        {{"--link", "1:2:0"}, "--link 1:2:0: PEER:SIDE:N"},
        {{"--link", "1:0"}, "--link 1:0: PEER:SIDE:N"},
        {{"--link", "2:0:0:sideways"}, "--link 2:0:0:sideways: PEER:SIDE:N"},
        {{"--link", "2:0:0:dimension=8"}, "--link 2:0:0:dimension=8: PEER:SIDE:N"},
        {{"--link", "x=emu:/y"}, "--link x=emu:/y: PEER:SIDE:N"},
        {{"--give-up-ms", "x"}, "--give-up-ms x: "},
        {{"--link", "1:0:0"}, "--link 1:0:0: cable 0 to host 1 is given twice"},
        {{"--log-level", "loud"}, "--log-level loud: error, warn"},
        {{"--ready-fd", "999"}, "--ready-fd 999: Bad file descriptor"},
        {{"--group", "no-such-group"}, "--group no-such-group: there is no such group"},
        {{"--attach", "user:root,nobody"},
         "--attach user:root,nobody: 'nobody': all, owner, user:"},
        {{"--admin", "user:no-such-user"},
         "--admin user:no-such-user: 'user:no-such-user': there is"},
        {{"--quota", "segments=0"}, "--quota segments=0: 'segments=0': a number from 1 on is"},
        {{"--quota", "speed=1"}, "--quota speed=1: 'speed=1': segments=N, memory=BYTES, pipes=N"},
        {{"--no-such-option"}, "Try 'viaductd --help'."},
        {{"word"}, "'word' is not understood"},
    };
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        assert_refused(lab, cases[i].words, 2, cases[i].text);
    }
}

static void a_wrong_configuration_is_explained(void **state)
{
    struct host_lab *lab = *state;
    static const char *const self[] = {"--link", "0:0:0", NULL};
    static const char *const driver[] = {"--link", "2=vme:7", NULL};
    static const char *const option[] = {"--link", "2=emu:/y,width=7", NULL};
    static const char *const slots[] = {"--slots", "3", NULL};
    static const char *const id[] = {"--host", "16", NULL};
    static const char *const relative[] = {"--rundir", "relative", NULL};
    static const char *const missing[] = {"--rundir", "/proc/none", NULL};
    assert_refused(lab, self, 1, "host 0: link 1 is to the host itself");
    assert_refused(lab, driver, 1,
                   "host 0: link 1 to host 2: description 'vme:7': there is no driver 'vme'; there "
                   "are: emu");
    assert_refused(lab, option, 1,
                   "host 0: link 1 to host 2: description 'emu:/y,width=7': driver emu: option "
                   "'width=7': not one of side=0|1, nodirect");
    assert_refused(lab, slots, 1, "host 0: 2 channels, 3 slots");
    assert_refused(lab, id, 1, "host 16: ids of this fabric are 0 to 15");
    assert_refused(lab, relative, 1, "host 0: run directory relative: is not an absolute path");
    assert_refused(lab, missing, 1, "host 0: run directory /proc/none: mkdir /proc/none: ");
    char link[128];
    snprintf(link, sizeof(link), "%s/way", lab->rundir);
    const char *const by_link[] = {"--rundir", link, NULL};
    assert_int_equal(symlink("/tmp", link), 0);
    assert_refused(lab, by_link, 1, "is a symbolic link, must be a directory");
    assert_int_equal(chmod(lab->rundir, 0755), 0);
    assert_refused(lab, NULL, 1, "mode 755 is open to others, must be 700");
    assert_int_equal(chmod(lab->rundir, 0700), 0);
}

static void a_second_daemon_of_a_host_is_refused(void **state)
{
    struct host_lab *lab = *state;
    char text[64];
    host_lab_spawn(lab, 0, NULL);
    pid_t first = lab->daemons[0];
    snprintf(text, sizeof(text), "host 0: is up already: process %d holds ", (int)first);
    assert_refused(lab, NULL, 1, text);
    lab->daemons[0] = first;
    json_decref(host_lab_status(lab, 0)); /* it still answers */
}

/* --- ending ----------------------------------------------------------------------------------- */

static void assert_nothing_left(const struct host_lab *lab)
{
    assert_false(is_there(lab, "host-0.attach"));
    assert_false(is_there(lab, "host-0.ctl"));
    assert_false(is_there(lab, "host-0.lock"));
    assert_false(is_there(lab, "link-0-1-0.sock"));
}

static void asked_to_end_it_removes_its_files(void **state)
{
    struct host_lab *lab = *state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(signals); i++) {
        host_lab_spawn(lab, 0, NULL);
        assert_true(is_there(lab, "host-0.attach") && is_there(lab, "host-0.lock"));
        assert_int_equal(host_lab_kill(lab, 0, signals[i]), 0);
        assert_nothing_left(lab);
    }
    host_lab_spawn(lab, 0, NULL);
    json_decref(host_lab_request(lab, 0, json_pack("{s:s}", "cmd", "stop")));
    assert_int_equal(host_lab_kill(lab, 0, 0), 0); /* waits only */
    assert_nothing_left(lab);
}

static void in_the_background_it_is_up_when_the_command_returns(void **state)
{
    struct host_lab *lab = *state;
    char command[512];
    snprintf(command, sizeof(command), "%s/viaductd --rundir %s --host 0",
             getenv("VIADUCT_BUILD_DIR"), lab->rundir);
    assert_int_equal(system(command), 0);
    json_t *status = host_lab_status(lab, 0);
    pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));
    json_decref(status);
    strcat(command, " 2>/dev/null");
    int second = system(command);
    json_decref(host_lab_request(lab, 0, json_pack("{s:s}", "cmd", "stop")));
    for (unsigned i = 0; i < 60000 && kill(pid, 0) == 0; i++) {
        poll(NULL, 0, 1);
    }
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(WEXITSTATUS(second), 1);
    assert_nothing_left(lab);
    assert_true(is_there(lab, "host-0.log"));
}

struct watch {
    struct host_lab *lab;
    struct via_attach *attach;
    struct via_remote *remote;
};

static bool notices_the_death_of_the_host(void *ctx)
{
    struct watch *watch = ctx;
    return via_attach_poll(watch->attach) == -ENOTCONN;
}

static void a_killed_daemon_is_noticed_and_replaced(void **state)
{
    struct host_lab *lab = *state;
    struct watch watch = {.lab = lab};
    struct via_segment *segment;
    host_lab_spawn(lab, 0, NULL);
    host_lab_spawn(lab, 1, NULL);
    host_lab_wait_routes(lab);
    json_t *status = host_lab_status(lab, 1);
    json_int_t session = json_integer_value(json_object_get(status, "session"));
    json_decref(status);
    struct via_attach *on_dead = host_lab_attach(lab, 1);
    watch.attach = host_lab_attach(lab, 0);
    assert_int_equal(
        via_segment_new(on_dead, 4096, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment), 0);
    assert_int_equal(
        via_remote_open(watch.attach, 1, via_segment_handle(segment), 4096, &watch.remote), 0);
    assert_non_null(via_remote_direct(watch.remote));

    host_lab_kill(lab, 1, SIGKILL);
    host_lab_wait_hops(lab, 0, 1, -1);
    assert_null(via_remote_direct(watch.remote));
    struct watch dead = {.attach = on_dead};
    host_lab_wait(notices_the_death_of_the_host, &dead,
                  "the process to see that its host has died");

    json_t *request = json_pack("{s:s}", "cmd", "status");
    json_t *answer;
    struct via_error err;
    char text[256];
    assert_int_equal(via_control_call(lab->rundir, 1, request, &answer, &err, 5000), -ECONNREFUSED);
    snprintf(text, sizeof(text),
             "host 1: connect to %s/host-1.ctl: the daemon has died; run `viaduct down`",
             lab->rundir);
    assert_string_equal(err.text, text);
    assert_int_equal(via_control_call(lab->rundir, 7, request, &answer, &err, 5000), -ENOENT);
    json_decref(request);

    /* The sockets and the lock of the dead daemon still exist; they do not prevent a new daemon
     * from starting. */
    assert_true(is_there(lab, "host-1.attach") && is_there(lab, "host-1.lock"));
    host_lab_spawn(lab, 1, NULL);
    host_lab_wait_routes(lab);
    status = host_lab_status(lab, 1);
    assert_int_not_equal(json_integer_value(json_object_get(status, "session")), session);
    json_decref(status);
    /* No process owns the dead daemon's resources. */
    uint64_t value = 1;
    int rc = via_remote_put(watch.remote, 0, &value, 8, 0);
    if (rc == 0) {
        rc = via_attach_quiet(watch.attach);
    }
    assert_true(rc == -ECONNRESET || rc == -EACCES);
    via_remote_close(watch.remote);
    via_attach_close(watch.attach);
    via_attach_close(on_dead);
}

static void put_a_megabyte(struct host_lab *lab, bool kill_host_1)
{
    const size_t bytes = 1u << 20;
    unsigned char *data = malloc(bytes);
    struct via_attach *a = host_lab_attach(lab, 0);
    struct via_attach *b = host_lab_attach(lab, 1);
    struct via_segment *segment;
    struct via_remote *remote;
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 13 + (i >> 12));
    }
    assert_int_equal(
        via_segment_new(b, bytes, VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE, &segment), 0);
    assert_int_equal(via_remote_open(a, 1, via_segment_handle(segment), bytes, &remote), 0);
    assert_null(via_remote_direct(remote));
    for (unsigned i = 0; kill_host_1 && i < 8; i++) {
        assert_int_equal(via_remote_put(remote, 0, data, bytes, 0), 0);
    }
    if (kill_host_1) {
        host_lab_kill(lab, 1, SIGKILL);
        host_lab_wait_hops(lab, 0, 1, -1);
    } else {
        assert_int_equal(via_remote_put(remote, 0, data, bytes, 0), 0);
        assert_int_equal(via_attach_quiet(a), 0);
        assert_memory_equal(via_segment_base(segment), data, bytes);
        via_segment_free(segment);
    }
    via_remote_close(remote);
    via_attach_close(a);
    via_attach_close(b);
    free(data);
}

static void a_daemon_brings_bodies_by_dma_also_when_its_neighbour_dies(void **state)
{
    struct host_lab *lab = *state;
    static const char *const dma[] = {"--dma-bytes", "1024", NULL};
    lab->direct = false;
    host_lab_spawn(lab, 0, dma);
    host_lab_spawn(lab, 1, dma);
    host_lab_wait_routes(lab);
    put_a_megabyte(lab, false);
    json_t *status = host_lab_status(lab, 0);
    json_t *link = json_array_get(json_object_get(status, "links"), 0);
    assert_true(json_integer_value(json_object_get(link, "dma_bytes")) >= 32768);
    assert_int_equal(json_integer_value(json_object_get(link, "dma_hangs")), 0);
    json_decref(status);

    put_a_megabyte(lab, true);
    host_lab_spawn(lab, 1, dma);
    host_lab_wait_routes(lab);
    put_a_megabyte(lab, false);
}

static void a_stopped_daemon_does_not_answer_in_time(void **state)
{
    struct host_lab *lab = *state;
    struct via_error err;
    json_t *answer;
    host_lab_spawn(lab, 0, NULL);
    kill(lab->daemons[0], SIGSTOP);
    json_t *request = json_pack("{s:s}", "cmd", "status");
    int rc = via_control_call(lab->rundir, 0, request, &answer, &err, 100);
    kill(lab->daemons[0], SIGCONT);
    json_decref(request);
    assert_int_equal(rc, -ETIMEDOUT);
    assert_non_null(strstr(err.text, "no answer in time"));
    json_decref(host_lab_status(lab, 0));
}

/* --- without memory or descriptors ------------------------------------------------------------ */

static void without_memory_it_reports_the_error_and_ends(void **state)
{
    struct host_lab *lab = *state;
    /* Shared memory is a file, so a file size limit makes it fail without filling the machine's
     * memory. */
    struct rlimit old;
    struct rlimit little = {.rlim_cur = 2048};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    little.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    char output[1024];
    int code = start_and_fail(lab, 0, NULL, output);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(code, 1);
    assert_non_null(strstr(output, "viaductd: host 0: 4096 bytes of shared memory (viaduct-bells): "
                                   "ftruncate: File too large"));
    assert_nothing_left(lab);

    /* Enough memory for the program, but not for its links. */
    static const char *const big[] = {"--slots", "65536", "--frame-bytes", "65472", "--channels",
                                      "14",      NULL};
    assert_refused(lab, big, 1, "host 0: ");
    assert_nothing_left(lab);
}

static int attach_raw(struct host_lab *lab)
{
    struct host_raw raw = {.fd = host_raw_connect(lab, 0)};
    struct via_attach_request hello = host_raw_request(&raw, VIA_ATTACH_HELLO);
    int rc = host_raw_request_wait(&raw, &hello, -1, NULL);
    close(raw.fd);
    return rc;
}

static void a_process_gets_an_error_without_memory(void **state)
{
    struct host_lab *lab = *state;
    host_lab_spawn(lab, 0, NULL);
    struct rlimit limit;
    assert_int_equal(prlimit(lab->daemons[0], RLIMIT_FSIZE, NULL, &limit), 0);
    struct rlimit little = {.rlim_cur = 65536, .rlim_max = limit.rlim_max};
    assert_int_equal(prlimit(lab->daemons[0], RLIMIT_FSIZE, &little, NULL), 0);
    assert_int_equal(attach_raw(lab), -EFBIG);
    assert_int_equal(host_lab_counter(lab, 0, "attach_refused"), 1);
    assert_int_equal(prlimit(lab->daemons[0], RLIMIT_FSIZE, &limit, NULL), 0);
    assert_int_equal(attach_raw(lab), 0);
}

struct few_fds {
    pid_t daemon;
    unsigned count;
};

static bool has_few_fds(void *ctx)
{
    const struct few_fds *few = ctx;
    return host_lab_fds(few->daemon) <= few->count;
}

/* The descriptors of ended daemons are closed a moment later. */
static void wait_for_fds(struct host_lab *lab, unsigned count)
{
    struct few_fds few = {.daemon = lab->daemons[0], .count = count};
    host_lab_wait(has_few_fds, &few, "descriptors to be closed");
}

static void out_of_descriptors_it_turns_away_and_recovers(void **state)
{
    struct host_lab *lab = *state;
    host_lab_spawn(lab, 0, NULL);
    struct rlimit limit;
    assert_int_equal(prlimit(lab->daemons[0], RLIMIT_NOFILE, NULL, &limit), 0);
    json_decref(host_lab_status(lab, 0)); /* the daemon has started */
    unsigned fds = 0;
    for (unsigned i = 0; i < 1000 && fds != host_lab_fds(lab->daemons[0]); i++) {
        fds = host_lab_fds(lab->daemons[0]);
        poll(NULL, 0, 10);
    }
    /* At first the limit allows no connection, then one without its descriptors, and finally
     * enough. */
    unsigned refused = 0;
    int rc = -EMFILE;
    for (unsigned number = fds - 2; rc != 0 && number < fds + 8; number++) {
        struct rlimit few = {.rlim_cur = number, .rlim_max = limit.rlim_max};
        assert_int_equal(prlimit(lab->daemons[0], RLIMIT_NOFILE, &few, NULL), 0);
        wait_for_fds(lab, fds);
        rc = attach_raw(lab);
        assert_true(rc == 0 || rc == -ECONNRESET || rc == -EMFILE);
        refused += rc != 0;
    }
    assert_int_equal(rc, 0);
    assert_true(refused >= 3);
    assert_int_equal(prlimit(lab->daemons[0], RLIMIT_NOFILE, &limit, NULL), 0);
    assert_int_equal(attach_raw(lab), 0);
    json_decref(host_lab_status(lab, 0)); /* it has its spare descriptor again */
    wait_for_fds(lab, fds);
}

/* --- the control socket ----------------------------------------------------------------------- */

static int control_fd(const struct host_lab *lab)
{
    struct via_rundir_path path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_int_equal(via_rundir_control_path(lab->rundir, 0, &path, NULL), 0);
    memcpy(address.sun_path, path.text, sizeof(path.text));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The next line that arrives, or "" when the connection ends. */
static const char *line_from(int fd)
{
    static char line[65536];
    size_t bytes = 0;
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    while (bytes < sizeof(line) - 1 && poll(&pollfd, 1, 60000) == 1 &&
           recv(fd, line + bytes, 1, 0) == 1 && line[bytes] != '\n') {
        bytes++;
    }
    line[bytes] = '\0';
    return line;
}

static void assert_line(int fd, const char *text)
{
    const char *line = line_from(fd);
    if (strstr(line, text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, line);
    }
}

static void invalid_requests_on_the_control_socket_get_an_error(void **state)
{
    struct host_lab *lab = *state;
    host_lab_spawn(lab, 0, NULL);
    static const struct {
        const char *request;
        const char *answer;
    } cases[] = {
        {"\n", "\"error\":\"malformed request: "},
        {"{\n", "\"error\":\"malformed request: "},
        {"[]\n", "\"error\":\"malformed request: not an object\""},
        {"{}\n", "\"error\":\"no \\\"cmd\\\" in the request\""},
        {"{\"cmd\":7}\n", "\"error\":\"no \\\"cmd\\\" in the request\""},
        {"{\"cmd\":\"dance\"}\n", "\"error\":\"unknown command 'dance'\""},
        {"{\"cmd\":\"\xff\"}\n", "\"error\":\"malformed request: "},
        {"{\"cmd\":\"status\",\"cmd\":\"stop\"}\n", "\"error\":\"malformed request: "},
        {"{\"cmd\":\"cut\"}\n", "\"error\":\"\\\"peer\\\" is not the id of a host (0 to 15)\""},
        {"{\"cmd\":\"cut\",\"peer\":-1}\n", "\"peer\\\" is not the id"},
        {"{\"cmd\":\"cut\",\"peer\":16}\n", "\"peer\\\" is not the id"},
        {"{\"cmd\":\"cut\",\"peer\":9}\n", "\"error\":\"no link to host 9\""},
        {"{\"cmd\":\"mend\",\"peer\":1,\"link\":5}\n", "\"error\":\"no link to host 1 at port 5\""},
        {"{\"cmd\":\"mend\",\"peer\":1,\"link\":\"x\"}\n", "\"link\\\" is not the number"},
        {"{\"cmd\":\"status\"}\n", "{\"ok\":true,\"host\":0,"},
    };
    int fd = control_fd(lab);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(cases); i++) {
        size_t bytes = strlen(cases[i].request);
        assert_int_equal(send(fd, cases[i].request, bytes, MSG_NOSIGNAL), bytes);
        assert_line(fd, cases[i].answer);
    }
    /* Several requests at once, and one in pieces. */
    static const char three[] = "{\"cmd\":\"x\"}\n{\"cmd\":\"y\"}\n{\"cmd\":";
    assert_int_equal(send(fd, three, sizeof(three) - 1, 0), sizeof(three) - 1);
    assert_line(fd, "'x'");
    assert_line(fd, "'y'");
    assert_int_equal(send(fd, "\"z\"}\n", 5, 0), 5);
    assert_line(fd, "'z'");
    /* Longer than any request. */
    char *big = malloc(100000);
    memset(big, ' ', 100000);
    (void)!send(fd, big, 100000, MSG_NOSIGNAL);
    assert_line(fd, "request is longer than 4096 bytes");
    assert_string_equal(line_from(fd), "");
    free(big);
    close(fd);
    json_decref(host_lab_status(lab, 0));
}

static void many_silent_connections_exclude_no_request(void **state)
{
    struct host_lab *lab = *state;
    int fds[100];
    host_lab_spawn(lab, 0, NULL);
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        fds[i] = control_fd(lab);
    }
    json_decref(host_lab_status(lab, 0));
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fds); i++) {
        close(fds[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wrong_command_line_is_explained, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_configuration_is_explained, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_second_daemon_of_a_host_is_refused, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(asked_to_end_it_removes_its_files, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(in_the_background_it_is_up_when_the_command_returns, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_killed_daemon_is_noticed_and_replaced, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_daemon_brings_bodies_by_dma_also_when_its_neighbour_dies,
                                        set_up, host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_stopped_daemon_does_not_answer_in_time, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(without_memory_it_reports_the_error_and_ends, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(a_process_gets_an_error_without_memory, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(out_of_descriptors_it_turns_away_and_recovers, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(invalid_requests_on_the_control_socket_get_an_error, set_up,
                                        host_lab_tear_down),
        cmocka_unit_test_setup_teardown(many_silent_connections_exclude_no_request, set_up,
                                        host_lab_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
