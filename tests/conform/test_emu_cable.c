/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Features of the emulated port beyond the contract of ports: the cable, its messages, and hostile
 * peers. One thread drives both ends, with a simulated clock. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fds.h"
#include "conform_agent.h"
#include "port/emu/cable.h"
#include "port/emu/emu.h"
#include "port/emu/memory.h"

#define INBOX_BYTES (64u << 10)

struct bench {
    char directory[64];
    char path[96];
    struct via_port *port[2];
    uint64_t now_ns;
    int fds_before;
    /* The messages that side 1's on_message received. */
    unsigned messages;
    size_t len;
    unsigned nfds;
    unsigned char bytes[VIA_EMU_MESSAGE_BYTES_MAX];
    bool keep;
    int kept;
    uint32_t next; /* messages carry numbers */
};

static void on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds)
{
    struct bench *bench = ctx;
    bench->messages++;
    bench->len = len;
    bench->nfds = nfds;
    memcpy(bench->bytes, msg, len);
    if (len >= 4) {
        uint32_t number;
        memcpy(&number, msg, sizeof(number));
        assert_int_equal(number, bench->next++);
    }
    if (bench->keep) {
        bench->kept = fds[0];
        fds[0] = -1;
    }
}

static struct via_emu_options options_of(struct bench *bench, unsigned side)
{
    return (struct via_emu_options){.path = bench->path,
                                    .side = side,
                                    .host = (uint16_t)(side + 1),
                                    .inbox_bytes = INBOX_BYTES,
                                    .bell_fd = -1,
                                    .direct = true,
                                    .on_message = side == 1 ? on_message : NULL,
                                    .ctx = bench};
}

static void open_side(struct bench *bench, unsigned side)
{
    struct via_emu_options options = options_of(bench, side);
    struct via_error err;
    if (via_emu_port_open(&options, &bench->port[side], &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void turn(struct bench *bench, unsigned turns)
{
    uint64_t deadline_ns;
    for (unsigned i = 0; i < turns; i++) {
        bench->now_ns += VIA_MSEC_NS;
        for (unsigned side = 0; side < 2; side++) {
            if (bench->port[side] != NULL) {
                via_emu_port_service(bench->port[side], bench->now_ns, &deadline_ns);
            }
        }
    }
}

static bool is_up(struct bench *bench, unsigned side)
{
    return bench->port[side]->ops->link_is_up(bench->port[side]);
}

static void open_both(struct bench *bench)
{
    open_side(bench, 0);
    open_side(bench, 1);
    turn(bench, 5);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
}

static void close_side(struct bench *bench, unsigned side)
{
    if (bench->port[side] != NULL) {
        bench->port[side]->ops->close(bench->port[side]);
        bench->port[side] = NULL;
    }
}

static struct via_emu_status status(struct bench *bench, unsigned side)
{
    struct via_emu_status status;
    via_emu_port_status(bench->port[side], &status);
    return status;
}

static int set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    snprintf(bench->directory, sizeof(bench->directory), "/tmp/via-cable-XXXXXX");
    if (mkdtemp(bench->directory) == NULL) {
        return -1;
    }
    snprintf(bench->path, sizeof(bench->path), "%s/link-1-2-0.sock", bench->directory);
    bench->fds_before = conform_count_fds();
    bench->kept = -1;
    *state = bench;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    close_side(bench, 0);
    close_side(bench, 1);
    int fds = conform_count_fds();
    int rc = rmdir(bench->directory);
    if (rc != 0 || fds != bench->fds_before) {
        fprintf(stderr, "left behind: %d descriptors, %s\n", fds - bench->fds_before,
                rc != 0 ? "files" : "no file");
        rc = -1;
    }
    free(bench);
    return rc;
}

/* --- open --- */

static void refuses_options_that_make_no_sense(void **state)
{
    struct bench *bench = *state;
    struct via_port *port;
    struct via_error err;
    struct via_emu_options options;

    options = options_of(bench, 0);
    options.side = 2;
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EINVAL);
    options = options_of(bench, 0);
    options.inbox_bytes = 100;
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EINVAL);
    options = options_of(bench, 0);
    options.path = "";
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EINVAL);
    options = options_of(bench, 0);
    options.bell_lines = VIA_EMU_BELL_LINES_MAX + 1;
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EINVAL);

    char path[300];
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    options = options_of(bench, 0);
    options.path = path;
    assert_int_equal(via_emu_port_open(&options, &port, &err), -ENAMETOOLONG);
}

static void refuses_a_bell_page_that_can_shrink(void **state)
{
    struct bench *bench = *state;
    struct via_emu_options options = options_of(bench, 1);
    struct via_port *port;
    struct via_error err;
    options.bell_lines = 1;
    options.bell_fd = memfd_create("bell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(options.bell_fd, 4096), 0);
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EPERM);
    close(options.bell_fd);
}

static void a_missing_directory_is_named(void **state)
{
    struct bench *bench = *state;
    struct via_emu_options options = options_of(bench, 0);
    struct via_port *port;
    struct via_error err;
    options.path = "/nonexistent/dir/link-3-4-0.sock";
    assert_int_equal(via_emu_port_open(&options, &port, &err), -ENOENT);
    assert_string_equal(err.text, "link-3-4-0: listen on /nonexistent/dir/link-3-4-0.sock: open "
                                  "/nonexistent/dir: No such file or directory");
}

static void a_living_holder_is_named(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    struct via_emu_options options = options_of(bench, 0);
    struct via_port *port;
    struct via_error err;
    char expected[200];
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EADDRINUSE);
    snprintf(expected, sizeof(expected),
             "link-1-2-0: listen on %s: another process (pid %d) holds it", bench->path,
             (int)getpid());
    assert_string_equal(err.text, expected);
    /* The port that held it still works. */
    open_side(bench, 1);
    turn(bench, 300);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
}

static void a_dead_ones_socket_is_replaced(void **state)
{
    struct bench *bench = *state;
    pid_t pid = fork();
    if (pid == 0) {
        open_side(bench, 0);
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, NULL, 0);
    assert_int_equal(access(bench->path, F_OK), 0);
    open_both(bench);
}

static void a_file_that_is_no_socket_stays(void **state)
{
    struct bench *bench = *state;
    struct via_emu_options options = options_of(bench, 0);
    struct via_port *port;
    struct via_error err;
    close(open(bench->path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(via_emu_port_open(&options, &port, &err), -EEXIST);
    assert_int_equal(unlink(bench->path), 0);
}

static void the_socket_is_private_and_goes_away(void **state)
{
    struct bench *bench = *state;
    struct stat info;
    open_side(bench, 0);
    assert_int_equal(stat(bench->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    close_side(bench, 0);
    assert_int_equal(access(bench->path, F_OK), -1);
}

static void a_smaller_inbox_ends_where_it_ends(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    struct via_emu_options options = options_of(bench, 1);
    struct via_error err;
    options.inbox_bytes = INBOX_BYTES / 2;
    options.window_bytes = INBOX_BYTES;
    assert_int_equal(via_emu_port_open(&options, &bench->port[1], &err), 0);
    turn(bench, 5);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
    assert_int_equal(status(bench, 0).peer_inbox_bytes, INBOX_BYTES / 2);

    struct via_port *port = bench->port[0];
    uint64_t word = 5;
    port->ops->commit(port, 0, INBOX_BYTES / 2 - 8, &word, sizeof(word));
    port->ops->commit(port, 0, INBOX_BYTES - 8, &word, sizeof(word));
    assert_int_equal(bench->port[1]->inbox[INBOX_BYTES / 2 - 8], 5);
    assert_int_equal(port->window[INBOX_BYTES / 2], 0xff);
}

/* --- messages --- */

static int request(struct bench *bench, uint32_t number, const int *fds, unsigned nfds)
{
    return via_emu_port_request(bench->port[0], &number, sizeof(number), fds, nfds);
}

static void messages_arrive_with_their_fds(void **state)
{
    struct bench *bench = *state;
    open_both(bench);
    int memory;
    assert_int_equal(via_emu_memfd_new("segment", 4096, &memory), 0);
    assert_int_equal(pwrite(memory, "hello", 5, 0), 5);

    assert_int_equal(request(bench, 0, &memory, 1), 0);
    turn(bench, 1);
    assert_int_equal(bench->messages, 1);
    assert_int_equal(bench->nfds, 1);
    assert_int_equal(bench->len, 4);

    int many[VIA_EMU_MESSAGE_FDS_MAX] = {memory, memory, memory, memory,
                                         memory, memory, memory, memory};
    bench->keep = true;
    assert_int_equal(request(bench, 1, many, VIA_EMU_MESSAGE_FDS_MAX), 0);
    turn(bench, 1);
    assert_int_equal(bench->nfds, VIA_EMU_MESSAGE_FDS_MAX);
    char text[6] = "";
    assert_int_equal(pread(bench->kept, text, 5, 0), 5);
    assert_string_equal(text, "hello");
    close(bench->kept); /* the other seven are closed; otherwise tear_down finds them */
    close(memory);
}

static void messages_have_limits(void **state)
{
    struct bench *bench = *state;
    static unsigned char bytes[VIA_EMU_MESSAGE_BYTES_MAX + 1];
    int fds[VIA_EMU_MESSAGE_FDS_MAX + 1] = {0};
    open_both(bench);
    struct via_port *port = bench->port[0];
    assert_int_equal(via_emu_port_request(port, bytes, sizeof(bytes), NULL, 0), -EMSGSIZE);
    assert_int_equal(via_emu_port_request(port, bytes, 8, fds, VIA_EMU_MESSAGE_FDS_MAX + 1),
                     -EINVAL);
    assert_int_equal(via_emu_port_request(port, bytes, 8, NULL, 1), -EINVAL);
    assert_int_equal(via_emu_port_request(port, bytes, VIA_EMU_MESSAGE_BYTES_MAX, NULL, 0), 0);
    turn(bench, 1);
    assert_int_equal(bench->len, VIA_EMU_MESSAGE_BYTES_MAX);
    /* No process listens at the other end: the connection is closed and counted. */
    fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(via_emu_port_request(bench->port[1], bytes, 8, fds, 1), 0);
    close(fds[0]);
    turn(bench, 1);
    assert_int_equal(status(bench, 0).messages_dropped, 1);
}

static void no_message_passes_a_cut(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    assert_int_equal(request(bench, 0, NULL, 0), -ENOLINK);
    open_side(bench, 1);
    turn(bench, 5);
    assert_int_equal(request(bench, 0, NULL, 0), 0);
    assert_int_equal(request(bench, 1, NULL, 0), 0);
    via_emu_port_cut(bench->port[0], true); /* both are still under way */
    assert_int_equal(request(bench, 2, NULL, 0), -ENOLINK);
    turn(bench, 3);
    assert_int_equal(bench->messages, 0);
    assert_int_equal(status(bench, 1).messages_dropped, 2);
    assert_true(status(bench, 1).cut && status(bench, 1).connected && !status(bench, 1).up);

    via_emu_port_cut(bench->port[1], false);
    turn(bench, 3);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
    bench->next = 3;
    assert_int_equal(request(bench, 3, NULL, 0), 0);
    turn(bench, 1);
    assert_int_equal(bench->messages, 1);
}

static void a_full_socket_returns_again_and_loses_nothing(void **state)
{
    struct bench *bench = *state;
    open_both(bench);
    uint32_t sent = 0;
    while (request(bench, sent, NULL, 0) == 0) {
        sent++;
        assert_true(sent < 100000);
    }
    assert_int_equal(request(bench, sent, NULL, 0), -EAGAIN);
    /* A cut does not wait for room. The other end sees the cut in the bridge at its next poll, and
     * the message that wakes this end is sent as soon as there is room. */
    via_emu_port_cut(bench->port[0], true);
    assert_false(is_up(bench, 1));
    via_emu_port_cut(bench->port[0], false);
    assert_false(is_up(bench, 1));
    turn(bench, 40);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
    assert_int_equal(bench->messages + status(bench, 1).messages_dropped, sent);
    assert_true(bench->messages == 0); /* writes under way at the cut */
    bench->next = sent;
    assert_int_equal(request(bench, sent, NULL, 0), 0);
    turn(bench, 1);
    assert_int_equal(bench->messages, 1);
}

/* --- hostile peers --- */

static int stranger(struct bench *bench)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", bench->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The greeting of an honest side 1, with two fds made by the caller. */
struct greeting {
    struct via_emu_cable_hello hello;
    int fds[12];
    unsigned fds_count;
    size_t bytes;
};

static struct greeting good_greeting(unsigned side)
{
    struct greeting greeting = {
        .hello = {.header = {VIA_EMU_CABLE_MAGIC, VIA_EMU_CABLE_VERSION, VIA_EMU_CABLE_HELLO},
                  .host = 2,
                  .side = (uint16_t)side,
                  .inbox_bytes = INBOX_BYTES,
                  .like = "memory"},
        .fds_count = side == 1 ? 2 : 3,
        .bytes = sizeof(struct via_emu_cable_hello),
    };
    assert_int_equal(via_emu_memfd_new("inbox", INBOX_BYTES, &greeting.fds[0]), 0);
    assert_int_equal(via_emu_memfd_new("bell", 4096, &greeting.fds[1]), 0);
    assert_int_equal(via_emu_memfd_new("bridge", 4096, &greeting.fds[2]), 0);
    return greeting;
}

static void greet(int fd, struct greeting *greeting)
{
    unsigned char bytes[8192] = {0};
    VIA_FDS_SPACE(VIA_ARRAY_COUNT(greeting->fds)) control = {0};
    memcpy(bytes, &greeting->hello, sizeof(greeting->hello));
    struct iovec part = {bytes, greeting->bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    via_fds_add(&message, &control, greeting->fds, greeting->fds_count);
    assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), greeting->bytes);
}

static void forget(struct greeting *greeting)
{
    for (unsigned i = 0; i < 3; i++) {
        close(greeting->fds[i]);
    }
}

/* 0 when the peer has closed the connection. Discards the peer's hello and its descriptors. */
static bool hung_up(int fd)
{
    struct via_emu_cable_message message;
    int rc;
    while ((rc = via_emu_cable_receive(fd, &message)) == 1) {
        via_emu_cable_close_fds(&message);
    }
    return rc == 0;
}

static void break_bell_seal(struct greeting *greeting)
{
    close(greeting->fds[1]);
    greeting->fds[1] = memfd_create("bell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(greeting->fds[1], 4096), 0);
}

static void pass_a_file(struct greeting *greeting)
{
    close(greeting->fds[0]);
    greeting->fds[0] = open("/dev/zero", O_RDWR | O_CLOEXEC);
}

/* The owner can return a page to the pool, because no seal prevents that. A kernel without huge
 * pages can not pass any. */
static void pass_huge_pages(struct greeting *greeting)
{
    int fd = memfd_create("inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0) {
        pass_a_file(greeting);
        return;
    }
    close(greeting->fds[0]);
    greeting->fds[0] = fd;
    assert_int_equal(ftruncate(fd, INT64_C(1) << 30), 0); /* whole pages of any architecture */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

static void claim_more(struct greeting *greeting)
{
    greeting->hello.inbox_bytes = 16 * INBOX_BYTES;
}

static void claim_nothing(struct greeting *greeting)
{
    greeting->hello.inbox_bytes = 0;
}

static void claim_too_many_lines(struct greeting *greeting)
{
    greeting->hello.bell_lines = VIA_EMU_BELL_LINES_MAX + 1;
}

static void claim_my_side(struct greeting *greeting)
{
    greeting->hello.side = 1 - greeting->hello.side;
}

static void claim_another_class(struct greeting *greeting)
{
    strcpy(greeting->hello.like, "pex");
}

static void pass_too_few(struct greeting *greeting)
{
    greeting->fds_count--;
}

static void pass_too_many(struct greeting *greeting)
{
    for (unsigned i = 3; i < VIA_ARRAY_COUNT(greeting->fds); i++) {
        greeting->fds[i] = greeting->fds[1];
    }
    greeting->fds_count = VIA_ARRAY_COUNT(greeting->fds);
}

static void say_too_little(struct greeting *greeting)
{
    greeting->bytes = 6;
}

static void say_too_much(struct greeting *greeting)
{
    greeting->bytes = 8000;
}

static void another_magic(struct greeting *greeting)
{
    greeting->hello.header.magic++;
}

static void another_version(struct greeting *greeting)
{
    greeting->hello.header.version = 7;
}

static void a_request_first(struct greeting *greeting)
{
    greeting->hello.header.type = VIA_EMU_CABLE_REQUEST;
}

static const struct {
    void (*spoil)(struct greeting *greeting);
    const char *error; /* a part of the text */
} spoilers[] = {
    {break_bell_seal, "bell page that is not sealed"},
    {pass_a_file, "inbox that is not sealed"},
    {pass_huge_pages, "inbox that is not sealed, or of huge pages"},
    {claim_more, "inbox that is too small"},
    {claim_nothing, "an inbox of 0 bytes"},
    {claim_too_many_lines, "65 bell lines"},
    {claim_my_side, "as well"},
    {claim_another_class, "emulates a link like 'pex', this one like 'memory'"},
    {pass_too_few, "sent no valid hello"},
    {pass_too_many, "malformed message"},
    {say_too_little, "malformed message"},
    {say_too_much, "malformed message"},
    {another_magic, "malformed message"},
    {another_version, "speaks version 7 of the cable's protocol, this one version 2"},
    {a_request_first, "sent no valid hello"},
};

/* The side disconnects the peer whose greeting was invalid, and reports the reason. */
static void assert_refused(struct bench *bench, unsigned side, int fd, struct greeting *greeting,
                           unsigned spoiler)
{
    greet(fd, greeting);
    turn(bench, 2);
    assert_true(hung_up(fd));
    close(fd);
    forget(greeting);
    assert_int_equal(status(bench, side).peers_refused, spoiler + 1);
    if (strstr(status(bench, side).error, spoilers[spoiler].error) == NULL) {
        fail_msg("'%s' is not in '%s'", spoilers[spoiler].error, status(bench, side).error);
    }
}

static void side_0_refuses_invalid_peers_and_accepts_the_next_valid_one(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(spoilers); i++) {
        struct greeting greeting = good_greeting(1);
        spoilers[i].spoil(&greeting);
        int fd = stranger(bench);
        assert_refused(bench, 0, fd, &greeting, i);
        assert_false(is_up(bench, 0));
    }
    open_side(bench, 1);
    turn(bench, 5);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
    assert_string_equal(status(bench, 0).error, "");
}

static void side_1_refuses_invalid_peers_and_accepts_the_next_valid_one(void **state)
{
    struct bench *bench = *state;
    struct via_error err;
    int listening;
    open_side(bench, 1);
    turn(bench, 300); /* a missing listener is no error */
    assert_string_equal(status(bench, 1).error, "");
    assert_int_equal(via_emu_cable_listen(bench->path, 0600, &listening, &err), 0);
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(spoilers); i++) {
        struct greeting greeting = good_greeting(0);
        int fd = -1;
        spoilers[i].spoil(&greeting);
        for (unsigned j = 0; fd < 0 && j < 3000; j++) {
            turn(bench, 1);
            (void)!via_emu_cable_accept(listening, &fd);
        }
        assert_true(fd >= 0);
        assert_refused(bench, 1, fd, &greeting, i);
    }
    close(listening);
    open_side(bench, 0); /* in place of the stranger's */
    turn(bench, 2500);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
}

static void a_silent_peer_gives_way(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    int fd = stranger(bench);
    turn(bench, 2);
    open_side(bench, 1);
    turn(bench, 500);
    assert_false(is_up(bench, 0));
    turn(bench, 2000);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
    assert_true(hung_up(fd));
    close(fd);
}

static void a_third_end_is_turned_away(void **state)
{
    struct bench *bench = *state;
    open_both(bench);
    int fd = stranger(bench);
    struct greeting greeting = good_greeting(1);
    greet(fd, &greeting);
    turn(bench, 2);
    assert_true(hung_up(fd));
    close(fd);
    forget(&greeting);
    assert_true(is_up(bench, 0) && is_up(bench, 1));
}

static void an_invalid_message_after_hello_ends_the_connection(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    int fd = stranger(bench);
    struct greeting greeting = good_greeting(1);
    greet(fd, &greeting);
    turn(bench, 2);
    assert_true(status(bench, 0).connected);
    assert_int_equal(via_emu_cable_send(fd, (enum via_emu_cable_type)99, "x", 1, greeting.fds, 2),
                     0);
    turn(bench, 2);
    assert_false(status(bench, 0).connected);
    assert_non_null(strstr(status(bench, 0).error, "message of type 99"));
    close(fd);
    forget(&greeting);
}

static void an_inbox_can_not_be_shrunk(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    int fd = stranger(bench);
    turn(bench, 2);
    struct via_emu_cable_message message;
    assert_int_equal(via_emu_cable_receive(fd, &message), 1);
    assert_int_equal(message.fds_count, 3);
    assert_int_equal(ftruncate(message.fds[0], 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(message.fds[0], 2 * INBOX_BYTES), -1);
    assert_int_equal(fcntl(message.fds[0], F_ADD_SEALS, F_SEAL_WRITE), -1);
    via_emu_cable_close_fds(&message);
    close(fd);
}

static void a_bridge_with_random_contents_has_no_effect(void **state)
{
    struct bench *bench = *state;
    open_side(bench, 0);
    int fd = stranger(bench);
    turn(bench, 2);
    struct via_emu_cable_message message;
    assert_int_equal(via_emu_cable_receive(fd, &message), 1);
    struct greeting greeting = good_greeting(1);
    greet(fd, &greeting);
    turn(bench, 1);
    unsigned char *bridge = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, message.fds[2], 0);
    struct via_port *port = bench->port[0];
    for (unsigned i = 0; i < 1000; i++) {
        memset(bridge, (int)(i * 37), 4096);
        turn(bench, 1);
        assert_int_equal(port->ops->events(port, 0xff) & ~UINT64_C(0xff), 0);
        (void)port->ops->ring(port, 0, i % 16);
        (void)port->ops->scratchpad_read(port, i % 8);
        port->ops->commit(port, 0, 0, "12345678", 8);
    }
    munmap(bridge, 4096);
    via_emu_cable_close_fds(&message);
    close(fd);
    forget(&greeting);
    turn(bench, 1);
    assert_false(status(bench, 0).connected);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(refuses_options_that_make_no_sense),
        TEST(refuses_a_bell_page_that_can_shrink),
        TEST(a_missing_directory_is_named),
        TEST(a_living_holder_is_named),
        TEST(a_dead_ones_socket_is_replaced),
        TEST(a_file_that_is_no_socket_stays),
        TEST(the_socket_is_private_and_goes_away),
        TEST(a_smaller_inbox_ends_where_it_ends),
        TEST(messages_arrive_with_their_fds),
        TEST(messages_have_limits),
        TEST(no_message_passes_a_cut),
        TEST(a_full_socket_returns_again_and_loses_nothing),
        TEST(side_0_refuses_invalid_peers_and_accepts_the_next_valid_one),
        TEST(side_1_refuses_invalid_peers_and_accepts_the_next_valid_one),
        TEST(a_silent_peer_gives_way),
        TEST(a_third_end_is_turned_away),
        TEST(an_invalid_message_after_hello_ends_the_connection),
        TEST(an_inbox_can_not_be_shrunk),
        TEST(a_bridge_with_random_contents_has_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
