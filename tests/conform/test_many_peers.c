/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The contract of port/driver.h for many peers: a hub has a port to each of several peers, through
 * one endpoint if the driver has endpoints, and each port keeps the contract of core/port.h
 * whatever happens to the others. Ends are opened by their descriptions, in the same way as by
 * hosts.
 */
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
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "port/driver.h"

#define PEERS 6u
#define PAGE 4096u
#define LINE_BYTES 64u
#define QUEUE 0u

struct kind {
    const char *name;
    const char *emulated; /* options of the emulated driver; NULL: ofi over tcp */
    bool sizes_inbox;     /* inboxes have the requested size */
    uint16_t hub;         /* its id: of two ofi hosts the one with the lower id connects */
};

/* Bugs of ports of one endpoint that share too much: planted over the emulated ports. */
enum flaw {
    NO_FLAW,
    INBOXES_OF_ONE_SIZE, /* all inboxes are reported to be as large as the first */
    PUTS_ASTRAY,         /* data for one peer must also reach its neighbour */
    DOORBELLS_MERGED,    /* a doorbell of one peer is an event of its neighbour */
    CUTS_SPREAD,         /* fences end with the link of another peer */
    EDGES_SPREAD,        /* the end of one link is an event of all links */
    ONE_QUEUE,           /* puts wait behind those for a peer that accepts none */
    FLAWS_COUNT,
};

struct hub;
struct flawed {
    struct via_port base;
    struct via_port *inner;
    struct hub *hub;
    unsigned peer;
    unsigned downs; /* links of other peers that were reported down */
};

struct end {
    struct via_link_config config;
    struct via_driver_host offer;
    struct via_port *port;  /* inner, or flawed.base */
    struct via_port *inner; /* the driver's */
    struct flawed flawed;
    bool was_up; /* of a flawed port's hub: to count the ends of links */
};

struct hub {
    const struct kind *kind;
    char directory[64];
    struct end mine[PEERS];   /* the hub's */
    struct end theirs[PEERS]; /* port NULL: in another process, or closed */
    pid_t child;              /* the process with the end of peer 0; 0: none */
    unsigned downs_count;     /* ends of links, for EDGES_SPREAD */
};

static const struct kind *current;
static enum flaw planted;
static uint64_t patience_ns = 30 * VIA_SEC_NS;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * VIA_SEC_NS + (uint64_t)now.tv_nsec;
}

static void wake(void *ctx, unsigned thread)
{
    (void)ctx;
    (void)thread; /* the test polls */
}

static void on_message(void *ctx, const void *msg, size_t len, int *fds, unsigned nfds)
{
    (void)ctx;
    (void)msg;
    (void)len;
    (void)fds;
    (void)nfds;
}

/* --- planted bugs ----------------------------------------------------------------------------- */

static struct flawed *flawed_of(struct via_port *port)
{
    return via_container_of(port, struct flawed, base);
}

static struct end *neighbour_of(const struct flawed *flawed)
{
    return &flawed->hub->mine[(flawed->peer + 1) % PEERS];
}

static bool child_is_stopped(const struct hub *hub)
{
    char path[32];
    char state = '?';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)hub->child);
    FILE *file = hub->child > 0 ? fopen(path, "re") : NULL;
    if (file != NULL) {
        (void)!fscanf(file, "%*d (%*[^)]) %c", &state);
        fclose(file);
    }
    return state == 'T';
}

static void flawed_body(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                        size_t len)
{
    struct via_port *inner = flawed_of(port)->inner;
    inner->ops->body(inner, queue, off, src, len);
}

static void flawed_commit(struct via_port *port, unsigned queue, uint64_t off, const void *src,
                          size_t len)
{
    const struct flawed *flawed = flawed_of(port);
    if (planted == ONE_QUEUE && flawed->peer != 0 && child_is_stopped(flawed->hub)) {
        return; /* it would arrive when the child continues */
    }
    flawed->inner->ops->commit(flawed->inner, queue, off, src, len);
    if (planted == PUTS_ASTRAY) {
        struct via_port *other = neighbour_of(flawed)->inner;
        other->ops->commit(other, queue, off, src, len);
        other->ops->flush(other, queue);
    }
}

static void flawed_flush(struct via_port *port, unsigned queue)
{
    struct via_port *inner = flawed_of(port)->inner;
    inner->ops->flush(inner, queue);
}

static int flawed_fence_start(struct via_port *port, unsigned queue)
{
    struct via_port *inner = flawed_of(port)->inner;
    return inner->ops->fence_start(inner, queue);
}

static int flawed_fence_poll(struct via_port *port, unsigned queue)
{
    struct flawed *flawed = flawed_of(port);
    for (unsigned i = 0; planted == CUTS_SPREAD && i < PEERS; i++) {
        struct via_port *other = flawed->hub->mine[i].inner;
        if (!other->ops->link_is_up(other)) {
            return -ENOLINK;
        }
    }
    return flawed->inner->ops->fence_poll(flawed->inner, queue);
}

static int flawed_ring(struct via_port *port, unsigned queue, unsigned bit)
{
    struct via_port *inner = flawed_of(port)->inner;
    return inner->ops->ring(inner, queue, bit);
}

static void count_downs(struct hub *hub)
{
    for (unsigned i = 0; i < PEERS; i++) {
        struct end *end = &hub->mine[i];
        bool up = end->inner->ops->link_is_up(end->inner);
        hub->downs_count += end->was_up && !up;
        end->was_up = up;
    }
}

static uint64_t flawed_events(struct via_port *port, uint64_t mask)
{
    struct flawed *flawed = flawed_of(port);
    uint64_t events = flawed->inner->ops->events(flawed->inner, mask);
    if (planted == DOORBELLS_MERGED) {
        struct via_port *other = neighbour_of(flawed)->inner;
        events |= other->ops->events(other, mask & 0xffff);
    }
    if (planted == EDGES_SPREAD) {
        count_downs(flawed->hub);
        if ((mask & VIA_PORT_EVENT_LINK_DOWN) != 0 && flawed->downs != flawed->hub->downs_count) {
            flawed->downs = flawed->hub->downs_count;
            events |= VIA_PORT_EVENT_LINK_DOWN;
        }
    }
    return events;
}

static bool flawed_link_is_up(struct via_port *port)
{
    struct via_port *inner = flawed_of(port)->inner;
    return inner->ops->link_is_up(inner);
}

static void flawed_close(struct via_port *port)
{
    struct via_port *inner = flawed_of(port)->inner;
    inner->ops->close(inner);
}

static const struct via_port_ops flawed_ops = {
    .body = flawed_body,
    .commit = flawed_commit,
    .flush = flawed_flush,
    .fence_start = flawed_fence_start,
    .fence_poll = flawed_fence_poll,
    .ring = flawed_ring,
    .events = flawed_events,
    .link_is_up = flawed_link_is_up,
    .close = flawed_close,
};

/* Between the test and the driver's port of the hub. */
static void plant(struct hub *hub, unsigned peer, struct end *end)
{
    end->flawed =
        (struct flawed){.base = *end->inner, .inner = end->inner, .hub = hub, .peer = peer};
    end->flawed.base.ops = &flawed_ops;
    if (planted == INBOXES_OF_ONE_SIZE) {
        end->flawed.base.caps.inbox_bytes = hub->mine[0].inner->caps.inbox_bytes;
    }
    end->port = &end->flawed.base;
}

/* --- ends ------------------------------------------------------------------------------------- */

/* Addresses of loopback that no other run uses at this time. */
static void ofi_address(const struct hub *hub, unsigned number, char *ret_text, size_t bytes)
{
    uint32_t hash = 2166136261u;
    for (const char *at = hub->directory; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    }
    snprintf(ret_text, bytes, "127.%u.%u.%u", 128 + (hash >> 16) % 64, (hash >> 8) & 0xff,
             (hash & 0xe0) + 1 + number);
}

static void describe(const struct hub *hub, unsigned peer, bool is_hub, char *ret_text,
                     size_t bytes)
{
    char at[2][32];
    if (hub->kind->emulated != NULL) {
        snprintf(ret_text, bytes, "emu:%s/link-%u.sock,side=%u%s", hub->directory, peer, !is_hub,
                 hub->kind->emulated);
        return;
    }
    ofi_address(hub, 0, at[0], sizeof(at[0]));
    ofi_address(hub, 1 + peer, at[1], sizeof(at[1]));
    snprintf(ret_text, bytes, "ofi:tcp://%s,listen=%s", at[is_hub], at[!is_hub]);
}

static uint64_t inbox_of(unsigned peer, bool is_hub)
{
    return (16 + 4 * (is_hub ? peer : PEERS - peer)) * (uint64_t)PAGE;
}

static void open_end(struct hub *hub, unsigned peer, bool is_hub, uint64_t inbox_bytes)
{
    struct end *end = is_hub ? &hub->mine[peer] : &hub->theirs[peer];
    uint16_t ids[] = {hub->kind->hub, (uint16_t)(10 + peer)};
    struct via_error err = {0};
    char text[160];
    describe(hub, peer, is_hub, text, sizeof(text));
    if (via_link_parse(text, &end->config, &err) != 0) {
        fail_msg("%s", err.text);
    }
    end->offer = (struct via_driver_host){
        .host = ids[!is_hub],
        .peer = ids[is_hub],
        .inbox_bytes = inbox_bytes,
        .inbox_bytes_min = PAGE,
        .threads_count = hub->kind->emulated == NULL, /* without bells it has none to wake */
        .bell_fd = -1,
        .wake = wake,
        .on_message = on_message,
        .ctx = end,
    };
    if (end->config.driver->open(end->config.config, &end->offer, &end->inner, &err) != 0) {
        fail_msg("%s: %s", text, err.text);
    }
    end->port = end->inner;
    if (is_hub && planted != NO_FLAW) {
        plant(hub, peer, end);
    }
}

static void close_end(struct end *end)
{
    if (end->port != NULL) {
        end->port->ops->close(end->port);
        end->port = NULL;
    }
}

static void serve_end(struct end *end)
{
    uint64_t deadline_ns;
    if (end->port != NULL) {
        (void)end->config.driver->service(end->inner, now_ns(), &deadline_ns);
        /* Some ports let the peer's writes arrive only when events() is called. No doorbell 0 is
         * under way here. */
        (void)end->port->ops->events(end->port, VIA_PORT_EVENT_DOORBELL(QUEUE));
    }
}

static void serve(struct hub *hub)
{
    for (unsigned i = 0; i < PEERS; i++) {
        serve_end(&hub->mine[i]);
        serve_end(&hub->theirs[i]);
    }
}

#define WAIT_FOR(hub, condition)                                     \
    do {                                                             \
        uint64_t until_ns_ = now_ns() + patience_ns;                 \
        while (!(condition)) {                                       \
            if (now_ns() > until_ns_) {                              \
                fail_msg("%s: waited for %s", __func__, #condition); \
            }                                                        \
            serve(hub);                                              \
            usleep(200);                                             \
        }                                                            \
    } while (0)

static bool is_up(const struct end *end)
{
    return end->port != NULL && end->port->ops->link_is_up(end->port);
}

static bool are_up(struct hub *hub, unsigned first)
{
    for (unsigned i = first; i < PEERS; i++) {
        if (!is_up(&hub->mine[i]) || (hub->theirs[i].port != NULL && !is_up(&hub->theirs[i]))) {
            return false;
        }
    }
    return true;
}

/* Waits for the end of the queue's fence. Returns its result. */
static int fence_end(struct hub *hub, struct end *end)
{
    int rc = 0;
    WAIT_FOR(hub, (rc = end->port->ops->fence_poll(end->port, QUEUE)) != 0);
    return rc;
}

static int fence(struct hub *hub, struct end *end)
{
    int rc = end->port->ops->fence_start(end->port, QUEUE);
    return rc == 0 ? fence_end(hub, end) : rc;
}

static void forget_events(struct hub *hub)
{
    for (unsigned i = 0; i < PEERS; i++) {
        (void)hub->mine[i].port->ops->events(hub->mine[i].port, UINT64_MAX);
    }
}

/* The last line of the peer's inbox that this end reaches. */
static uint64_t last_line(const struct end *from, const struct end *to)
{
    return via_min(from->port->caps.window_bytes, to->port->caps.inbox_bytes) - LINE_BYTES;
}

static void put_line(struct end *from, uint64_t off, uint64_t number)
{
    uint64_t line[LINE_BYTES / 8];
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(line); i++) {
        line[i] = number;
    }
    from->port->ops->commit(from->port, QUEUE, off, line, sizeof(line));
    from->port->ops->flush(from->port, QUEUE);
}

static uint64_t line_at(const struct end *end, uint64_t off)
{
    return __atomic_load_n(
        (const uint64_t *)(const void *)(end->port->inbox + off + LINE_BYTES - 8),
        __ATOMIC_ACQUIRE);
}

static bool has_only(const struct end *end, uint64_t off)
{
    for (uint64_t i = 0; i < end->port->caps.inbox_bytes; i++) {
        if (end->port->inbox[i] != 0 && (i < off || i >= off + LINE_BYTES)) {
            return false;
        }
    }
    return true;
}

/* --- a hub and its peers ---------------------------------------------------------------------- */

static int make(void **state, bool child)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    hub->kind = current;
    snprintf(hub->directory, sizeof(hub->directory), "/tmp/via-many-XXXXXX");
    assert_non_null(mkdtemp(hub->directory));
    if (child) { /* before any driver has threads here */
        hub->child = fork();
        assert_true(hub->child >= 0);
    }
    if (child && hub->child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_end(hub, 0, false, inbox_of(0, false));
        for (;;) {
            serve_end(&hub->theirs[0]);
            usleep(200);
        }
    }
    for (unsigned i = 0; i < PEERS; i++) {
        open_end(hub, i, true, inbox_of(i, true));
        if (i > 0 || !child) {
            open_end(hub, i, false, inbox_of(i, false));
        }
    }
    *state = hub;
    WAIT_FOR(hub, are_up(hub, 0));
    forget_events(hub);
    return 0;
}

static int set_up(void **state)
{
    return make(state, false);
}

static int set_up_with_process(void **state)
{
    return make(state, true);
}

static int tear_down(void **state)
{
    struct hub *hub = *state;
    char path[96];
    if (hub->child > 0) {
        kill(hub->child, SIGKILL);
        waitpid(hub->child, NULL, 0);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        close_end(&hub->theirs[i]);
        close_end(&hub->mine[i]);
    }
    snprintf(path, sizeof(path), "%s/link-0.sock", hub->directory);
    (void)unlink(path); /* of a process that was killed */
    int rc = rmdir(hub->directory);
    free(hub);
    return rc;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void each_peer_has_an_inbox_of_its_own_size(void **state)
{
    struct hub *hub = *state;
    for (unsigned i = 0; i < PEERS; i++) {
        struct end *mine = &hub->mine[i];
        struct end *theirs = &hub->theirs[i];
        if (hub->kind->sizes_inbox) {
            assert_int_equal(mine->port->caps.inbox_bytes, inbox_of(i, true));
            assert_int_equal(theirs->port->caps.inbox_bytes, inbox_of(i, false));
        }
        put_line(mine, last_line(mine, theirs), 100 + i);
        put_line(theirs, last_line(theirs, mine), 200 + i);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        assert_int_equal(fence(hub, &hub->mine[i]), 1);
        assert_int_equal(fence(hub, &hub->theirs[i]), 1);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        struct end *mine = &hub->mine[i];
        struct end *theirs = &hub->theirs[i];
        uint64_t there = last_line(mine, theirs);
        uint64_t here = last_line(theirs, mine);
        WAIT_FOR(hub, line_at(theirs, there) == 100 + i && line_at(mine, here) == 200 + i);
        assert_true(has_only(theirs, there) && has_only(mine, here));
    }
}

static void doorbells_are_each_ports_own(void **state)
{
    struct hub *hub = *state;
    for (unsigned i = 0; i < PEERS; i++) {
        struct via_port *peer = hub->theirs[i].port;
        assert_int_equal(peer->ops->ring(peer, QUEUE, 1 + i), 0);
        peer->ops->flush(peer, QUEUE);
    }
    for (unsigned i = 0; i < PEERS; i++) {
        struct via_port *mine = hub->mine[i].port;
        uint64_t all = 0;
        WAIT_FOR(hub, (all |= mine->ops->events(mine, UINT64_C(0xfffe))) != 0);
        assert_int_equal(all, VIA_PORT_EVENT_DOORBELL(1 + i));
    }
}

static void a_cut_is_one_links(void **state)
{
    struct hub *hub = *state;
    struct end *cut = &hub->mine[0];
    for (unsigned i = 1; i < PEERS; i++) {
        struct via_port *mine = hub->mine[i].port;
        assert_int_equal(mine->ops->fence_start(mine, QUEUE), 0);
    }
    cut->config.driver->cut(cut->inner, true);
    WAIT_FOR(hub, !is_up(cut) && !is_up(&hub->theirs[0]));
    for (unsigned i = 1; i < PEERS; i++) {
        struct end *mine = &hub->mine[i];
        assert_int_equal(fence_end(hub, mine), 1); /* the link was not down since */
        put_line(mine, 0, 300 + i);
        assert_int_equal(fence(hub, mine), 1);
        WAIT_FOR(hub, line_at(&hub->theirs[i], 0) == 300 + i);
        assert_true(is_up(mine));
        assert_int_equal(mine->port->ops->events(mine->port, VIA_PORT_EVENT_CONTROL), 0);
    }
    put_line(cut, 0, 300); /* vanishes */
    assert_int_equal(fence(hub, cut), -ENOLINK);
    cut->config.driver->cut(cut->inner, false);
    WAIT_FOR(hub, are_up(hub, 0));
    assert_int_equal(fence(hub, cut), 1);
    assert_int_not_equal(line_at(&hub->theirs[0], 0), 300);
}

static void a_peer_comes_and_goes_alone(void **state)
{
    struct hub *hub = *state;
    struct end *mine = &hub->mine[1];
    struct end *theirs = &hub->theirs[1];
    close_end(theirs);
    WAIT_FOR(hub, !is_up(mine));
    for (unsigned i = 2; i < PEERS; i++) {
        assert_int_equal(fence(hub, &hub->mine[i]), 1);
    }
    open_end(hub, 1, false, 9 * PAGE); /* another life, with another inbox */
    WAIT_FOR(hub, are_up(hub, 0));
    uint64_t off = last_line(mine, theirs);
    put_line(mine, off, 77);
    assert_int_equal(fence(hub, mine), 1);
    WAIT_FOR(hub, line_at(theirs, off) == 77);
    for (unsigned i = 2; i < PEERS; i++) {
        struct via_port *other = hub->mine[i].port;
        assert_int_equal(other->ops->events(other, VIA_PORT_EVENT_CONTROL), 0);
        assert_true(is_up(&hub->mine[i]));
    }
}

/* Writes more bytes than any port buffers for a peer that accepts nothing. */
static void flood(struct end *end)
{
    static const unsigned char junk[2048];
    for (unsigned i = 0; i < 4 && is_up(end); i++) {
        for (unsigned k = 0; k < 4; k++) {
            end->port->ops->body(end->port, QUEUE, 4096 + k * sizeof(junk), junk, sizeof(junk));
        }
        put_line(end, 0, 1);
    }
}

static void a_stopped_peer_delays_no_other_peer(void **state)
{
    struct hub *hub = *state;
    int status;
    assert_int_equal(kill(hub->child, SIGSTOP), 0);
    assert_int_equal(waitpid(hub->child, &status, WUNTRACED), hub->child);
    assert_true(WIFSTOPPED(status));
    for (unsigned round = 0; round < 50; round++) {
        flood(&hub->mine[0]);
        for (unsigned i = 1; i < PEERS; i++) {
            put_line(&hub->mine[i], 0, 1000 + round);
            assert_int_equal(fence(hub, &hub->mine[i]), 1);
            WAIT_FOR(hub, line_at(&hub->theirs[i], 0) == 1000 + round);
        }
    }
    for (unsigned i = 1; i < PEERS; i++) {
        struct via_port *other = hub->mine[i].port;
        assert_int_equal(other->ops->events(other, VIA_PORT_EVENT_CONTROL), 0);
    }
    assert_int_equal(kill(hub->child, SIGCONT), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(each_peer_has_an_inbox_of_its_own_size, set_up, tear_down),
    cmocka_unit_test_setup_teardown(doorbells_are_each_ports_own, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_cut_is_one_links, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_peer_comes_and_goes_alone, set_up, tear_down),
    cmocka_unit_test_setup_teardown(a_stopped_peer_delays_no_other_peer, set_up_with_process,
                                    tear_down),
};

/* Runs a test in a process of its own. True if the test fails. */
static bool is_caught(enum flaw flaw, const struct CMUnitTest *test)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        planted = flaw;
        patience_ns = flaw == FLAWS_COUNT ? patience_ns : 5 * VIA_SEC_NS;
        _exit(_cmocka_run_group_tests("planted", test, 1, NULL, NULL) != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void bugs_that_are_planted_are_caught(void **state)
{
    static const unsigned by[FLAWS_COUNT] = {
        [INBOXES_OF_ONE_SIZE] = 0, [PUTS_ASTRAY] = 0,  [DOORBELLS_MERGED] = 1,
        [CUTS_SPREAD] = 2,         [EDGES_SPREAD] = 3, [ONE_QUEUE] = 4,
    };
    (void)state;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(tests); i++) {
        assert_false(is_caught(FLAWS_COUNT, &tests[i])); /* the wrapper itself must not be a bug */
    }
    for (enum flaw flaw = NO_FLAW + 1; flaw < FLAWS_COUNT; flaw++) {
        if (!is_caught(flaw, &tests[by[flaw]])) {
            fail_msg("%s does not catch flaw %d", tests[by[flaw]].name, (int)flaw);
        }
    }
}

int main(void)
{
    static const struct kind kinds[] = {
        {.name = "emu", .emulated = "", .sizes_inbox = true, .hub = 1},
        {.name = "emu like pex", .emulated = ",like=pex,window=1MiB", .hub = 1},
        {.name = "emu like network", .emulated = ",like=network", .sizes_inbox = true, .hub = 1},
        {.name = "ofi that connects", .sizes_inbox = true, .hub = 1},
        {.name = "ofi that listens", .sizes_inbox = true, .hub = 99},
    };
    int failed = 0;
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(kinds); i++) {
        current = &kinds[i];
        failed += _cmocka_run_group_tests(kinds[i].name, tests, VIA_ARRAY_COUNT(tests), NULL, NULL);
    }
    const struct CMUnitTest planted_tests[] = {cmocka_unit_test(bugs_that_are_planted_are_caught)};
    current = &kinds[0];
    failed += cmocka_run_group_tests(planted_tests, NULL, NULL);
    return failed;
}
