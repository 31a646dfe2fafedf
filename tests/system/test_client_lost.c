/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Memory that other processes have mapped, and whose owner is killed or frees it while the owner's
 * host continues. And memory that may not be mapped because a mapping can not be restricted. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "tests/system/host_raw.h"

#define BYTES 65536u
#define READ_WRITE (VIADUCT_SEGMENT_READ | VIADUCT_SEGMENT_WRITE)

static void assert_lost(struct via_remote *remote)
{
    uint64_t word = 1;
    assert_int_equal(via_remote_put(remote, 0, &word, 8, 0), -ECONNRESET);
    assert_non_null(strstr(via_error_text(), "its owner has ended"));
    assert_int_equal(via_remote_put(remote, 0, &word, 8, VIADUCT_PUT_NOTIFY), -ECONNRESET);
    assert_int_equal(via_remote_try_put(remote, 0, &word, 8, 0), -ECONNRESET);
    assert_int_equal(via_remote_put_signal(remote, 0, &word, 8, 64, 1, VIADUCT_SIGNAL_ADD),
                     -ECONNRESET);
    assert_int_equal(via_remote_get(remote, 0, &word, 8), -ECONNRESET);
    assert_int_equal(via_remote_atomic(remote, 0, 8, VIADUCT_ATOMIC_ADD, 1, 0, &word), -ECONNRESET);
    assert_int_equal(via_remote_ring(remote), -ECONNRESET);
    assert_null(via_remote_direct(remote));
}

static struct via_remote *open_remote(struct via_attach *attach, unsigned host, uint64_t handle)
{
    struct via_remote *remote;
    assert_int_equal(via_remote_open(attach, host, handle, BYTES, &remote), 0);
    return remote;
}

static struct via_segment *new_segment(struct via_attach *attach, unsigned access)
{
    struct via_segment *segment;
    assert_int_equal(via_segment_new(attach, BYTES, access, &segment), 0);
    return segment;
}

/* --- freed ------------------------------------------------------------------------------------ */

/* `from` has mapped the segment, and its next access fails. */
static void free_mapped(unsigned from)
{
    static int (*const first[])(struct via_remote * remote) = {via_remote_ring, NULL};
    struct host_lab lab;
    host_lab_init(&lab, 2, false, true);
    host_lab_start_all(&lab);
    struct via_attach *near = host_lab_attach(&lab, from);
    struct via_attach *owner = host_lab_attach(&lab, 1);
    struct via_segment *stays = new_segment(owner, READ_WRITE);
    struct via_remote *other = open_remote(near, 1, via_segment_handle(stays));
    for (size_t i = 0; i < VIA_ARRAY_COUNT(first); i++) {
        struct via_segment *segment = new_segment(owner, READ_WRITE);
        struct via_remote *remote = open_remote(near, 1, via_segment_handle(segment));
        assert_non_null(via_remote_direct(remote));
        assert_int_equal(via_remote_put(remote, 0, "x", 1, 0), 0);
        via_segment_free(segment);
        if (first[i] != NULL) {
            assert_int_equal(first[i](remote), -ECONNRESET);
        } else {
            assert_null(via_remote_direct(remote));
        }
        assert_lost(remote);
        via_remote_close(remote);
    }
    assert_non_null(via_remote_direct(other));
    assert_int_equal(via_remote_put(other, 0, "y", 1, 0), 0);
    assert_int_equal(*(const char *)via_segment_base(stays), 'y');
    via_remote_close(other);
    via_segment_free(stays);
    via_attach_close(owner);
    via_attach_close(near);
    host_lab_fini(&lab);
}

static void freed_memory_of_a_neighbour(void **state)
{
    (void)state;
    free_mapped(0);
}

static void freed_memory_of_the_same_host(void **state)
{
    (void)state;
    free_mapped(1);
}

static void freed_while_the_link_is_down(void **state)
{
    (void)state;
    struct host_lab lab;
    host_lab_init(&lab, 4, true, true);
    host_lab_start_all(&lab);
    struct via_attach *near = host_lab_attach(&lab, 0);
    struct via_attach *owner = host_lab_attach(&lab, 1);
    struct via_segment *segment = new_segment(owner, READ_WRITE);
    struct via_remote *put = open_remote(near, 1, via_segment_handle(segment));
    struct via_remote *get = open_remote(near, 1, via_segment_handle(segment));
    uint64_t word = 3;
    assert_non_null(via_remote_direct(put));
    assert_non_null(via_remote_direct(get));
    host_lab_cut(&lab, 0, 1, "cut");
    host_lab_wait_hops(&lab, 0, 1, 3);
    via_segment_free(segment);
    /* Over frames the handle is only wrong, because it was valid once. */
    assert_int_equal(via_remote_put(put, 0, &word, 8, 0), 0);
    assert_int_equal(via_attach_quiet(near), -ECONNRESET);
    assert_lost(put);
    assert_int_equal(via_remote_get(get, 0, &word, 8), -ECONNRESET);
    assert_lost(get);
    via_remote_close(put);
    via_remote_close(get);
    via_attach_close(owner);
    via_attach_close(near);
    host_lab_fini(&lab);
}

/* --- the owner is killed ---------------------------------------------------------------------- */

static void own(struct host_lab *lab, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct via_segment *segment = new_segment(host_lab_attach(lab, 1), READ_WRITE);
    uint64_t handle = via_segment_handle(segment);
    if (write(fd, &handle, sizeof(handle)) != sizeof(handle)) {
        abort();
    }
    for (;;) {
        pause();
    }
}

static bool put_fails(void *ctx)
{
    uint64_t word = 1;
    return via_remote_put(ctx, 0, &word, 8, 0) != 0;
}

static void killed_with_its_memory_mapped(void **state)
{
    (void)state;
    struct host_lab lab;
    int fds[2];
    uint64_t handle;
    host_lab_init(&lab, 2, false, true);
    host_lab_spawn(&lab, 0, NULL);
    host_lab_spawn(&lab, 1, NULL);
    host_lab_wait_routes(&lab);
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        own(&lab, fds[1]);
    }
    assert_int_equal(read(fds[0], &handle, sizeof(handle)), sizeof(handle));
    for (unsigned from = 0; from < 2; from++) {
        close(fds[from]);
    }
    struct via_attach *attaches[2];
    struct via_remote *remotes[2];
    for (unsigned from = 0; from < 2; from++) {
        attaches[from] = host_lab_attach(&lab, from);
        remotes[from] = open_remote(attaches[from], 1, handle);
        assert_non_null(via_remote_direct(remotes[from]));
        assert_int_equal(via_remote_put(remotes[from], 0, "x", 1, 0), 0);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (unsigned from = 0; from < 2; from++) {
        host_lab_wait(put_fails, remotes[from], "puts into a dead process's memory to fail");
        assert_lost(remotes[from]);
        via_remote_close(remotes[from]);
        via_attach_close(attaches[from]);
    }
    host_lab_fini(&lab);
}

/* --- rights of other processes ---------------------------------------------------------------- */

static int map_status(struct host_raw *raw, unsigned host, uint64_t handle)
{
    struct via_attach_request request = host_raw_request(raw, VIA_ATTACH_MAP);
    request.host = (uint16_t)host;
    request.handle = handle;
    struct via_attach_answer answer;
    return host_raw_request_wait(raw, &request, -1, &answer);
}

static void only_what_may_be_read_is_mapped(void **state)
{
    (void)state;
    struct host_lab lab;
    struct host_raw raw;
    host_lab_init(&lab, 2, false, true);
    host_lab_start_all(&lab);
    struct via_attach *owner = host_lab_attach(&lab, 1);
    struct via_segment *segment = new_segment(owner, VIADUCT_SEGMENT_WRITE);
    uint64_t handle = via_segment_handle(segment);
    memcpy(via_segment_base(segment), "secret", 6);
    for (unsigned from = 0; from < 2; from++) {
        /* The host itself passes on no descriptor, independent of the library's checks. */
        host_raw_open(&raw, &lab, from);
        assert_int_equal(map_status(&raw, 1, handle), -EXDEV);
        host_raw_close(&raw);
        struct via_attach *near = host_lab_attach(&lab, from);
        struct via_remote *remote = open_remote(near, 1, handle);
        char got[6] = {0};
        char put = (char)('0' + from);
        assert_null(via_remote_direct(remote));
        assert_int_equal(via_remote_get(remote, 0, got, sizeof(got)), -EACCES);
        assert_memory_equal(got, "\0\0\0\0\0\0", sizeof(got));
        assert_int_equal(via_remote_put(remote, 100, &put, 1, 0), 0);
        assert_int_equal(via_attach_quiet(near), 0);
        assert_int_equal(((const char *)via_segment_base(segment))[100], put);
        via_remote_close(remote);
        via_attach_close(near);
    }
    via_attach_close(owner);
    host_lab_fini(&lab);
}

static void read_only_memory_is_mapped_read_only(void **state)
{
    (void)state;
    struct host_lab lab;
    host_lab_init(&lab, 2, false, true);
    host_lab_start_all(&lab);
    struct via_attach *owner = host_lab_attach(&lab, 1);
    struct via_segment *segment = new_segment(owner, VIADUCT_SEGMENT_READ);
    memcpy(via_segment_base(segment), "public", 6);
    for (unsigned from = 0; from < 2; from++) {
        struct via_attach *near = host_lab_attach(&lab, from);
        struct via_remote *remote = open_remote(near, 1, via_segment_handle(segment));
        char *direct = via_remote_direct(remote);
        assert_non_null(direct);
        assert_memory_equal(direct, "public", 6);
        /* The kernel refuses to make the mapping writable. */
        assert_int_equal(mprotect(direct, BYTES, PROT_READ | PROT_WRITE), -1);
        assert_int_equal(via_remote_put(remote, 0, "x", 1, 0), -EACCES);
        via_remote_close(remote);
        via_attach_close(near);
    }
    via_attach_close(owner);
    host_lab_fini(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_memory_of_a_neighbour),
        cmocka_unit_test(freed_memory_of_the_same_host),
        cmocka_unit_test(freed_while_the_link_is_down),
        cmocka_unit_test(killed_with_its_memory_mapped),
        cmocka_unit_test(only_what_may_be_read_is_mapped),
        cmocka_unit_test(read_only_memory_is_mapped_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
