/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A stranger connects to a host whose ofi link is up, and sends an invalid message, before it has
 * proved the fabric key: the host closes its connection, and the link stays up. With a key the
 * stranger repeats the request of the true peer, which any machine on the network may record.
 * Connections of silent strangers are closed, too.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"
#include "port/driver.h"
#include "port/ofi/driver.h"
#include "port/ofi/greet.h"
#include "port/ofi/ops.h"
#include "sim/ofi/mac.h"

#define PAGE 4096u
#define PATIENCE_NS (30 * VIA_SEC_NS)
#define CONNECTOR 1u
#define LISTENER 2u

struct link {
    struct via_driver_host offers[2];
    struct via_port *ports[2];
    char addresses[2][32];
};

struct stranger {
    const struct via_ofi_library *library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    struct fid_ep *ep;
};

static void wake(void *ctx, unsigned thread)
{
    (void)ctx;
    (void)thread; /* the test polls */
}

static void mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[32])
{
    sim_ofi_mac((uintptr_t)ctx, data, bytes, ret_mac);
}

/* --- the link -------------------------------------------------------------------------------- */

static void open_end(struct link *link, unsigned side, bool keyed)
{
    struct via_error err = {0};
    link->offers[side] = (struct via_driver_host){
        .host = side == 0 ? CONNECTOR : LISTENER,
        .peer = side == 0 ? LISTENER : CONNECTOR,
        .inbox_bytes = 16 * PAGE,
        .inbox_bytes_min = PAGE,
        .threads_count = 1,
        .bell_fd = -1,
        .wake = wake,
        .mac = keyed ? mac : NULL,
    };
    struct via_ofi_options options = {
        .system = &via_ofi_system,
        .provider = "tcp",
        .place.port = VIA_OFI_PORT_DEFAULT,
        .listen.port = VIA_OFI_PORT_DEFAULT,
        .host = &link->offers[side],
    };
    snprintf(options.place.host, sizeof(options.place.host), "%s", link->addresses[1 - side]);
    snprintf(options.listen.host, sizeof(options.listen.host), "%s", link->addresses[side]);
    if (via_ofi_port_open(&options, &link->ports[side], &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static bool is_up(const struct link *link, unsigned side)
{
    return link->ports[side]->ops->link_is_up(link->ports[side]);
}

static void open_link(struct link *link, bool keyed)
{
    unsigned pid = (unsigned)getpid();
    for (unsigned side = 0; side < 2; side++) {
        snprintf(link->addresses[side], sizeof(link->addresses[side]), "127.%u.%u.%u",
                 192 + (pid >> 14) % 32, (pid >> 6) & 0xff,
                 (pid & 0x3f) * 4 + (keyed ? 2 : 0) + side);
    }
    open_end(link, 0, keyed);
    open_end(link, 1, keyed);
    uint64_t until_ns = via_ofi_now_ns() + PATIENCE_NS;
    while (!is_up(link, 0) || !is_up(link, 1)) {
        assert_true(via_ofi_now_ns() < until_ns);
        usleep(200);
    }
    for (unsigned side = 0; side < 2; side++) {
        struct via_port *port = link->ports[side];
        assert_int_equal(port->ops->events(port, VIA_PORT_EVENT_CONTROL) & VIA_PORT_EVENT_LINK_DOWN,
                         0);
    }
}

static void close_link(struct link *link)
{
    for (unsigned side = 0; side < 2; side++) {
        link->ports[side]->ops->close(link->ports[side]);
    }
}

/* --- the stranger ---------------------------------------------------------------------------- */

static void find_provider(struct stranger *stranger, const char *address)
{
    struct via_error err = {0};
    char service[8];
    stranger->library = via_ofi_library_load(&err);
    assert_non_null(stranger->library);
    struct fi_info *hints = stranger->library->dupinfo(NULL);
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->fabric_attr->prov_name = strdup("tcp");
    snprintf(service, sizeof(service), "%u", VIA_OFI_PORT_DEFAULT);
    assert_int_equal(
        stranger->library->getinfo(VIA_OFI_VERSION, address, service, 0, hints, &stranger->info),
        0);
    stranger->library->freeinfo(hints);
}

static void open_stranger(struct stranger *stranger, const char *address)
{
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_NONE};
    find_provider(stranger, address);
    struct fi_info *info = stranger->info;
    assert_int_equal(stranger->library->fabric(info->fabric_attr, &stranger->fabric, NULL), 0);
    assert_int_equal(fi_domain(stranger->fabric, info, &stranger->domain, NULL), 0);
    assert_int_equal(fi_eq_open(stranger->fabric, &eq_attr, &stranger->eq, NULL), 0);
    assert_int_equal(fi_cq_open(stranger->domain, &cq_attr, &stranger->cq, NULL), 0);
    assert_int_equal(fi_endpoint(stranger->domain, info, &stranger->ep, NULL), 0);
    assert_int_equal(fi_ep_bind(stranger->ep, &stranger->eq->fid, 0), 0);
    assert_int_equal(fi_ep_bind(stranger->ep, &stranger->cq->fid, FI_TRANSMIT | FI_RECV), 0);
    assert_int_equal(fi_enable(stranger->ep), 0);
}

static void close_stranger(struct stranger *stranger)
{
    struct fid *const fids[] = {&stranger->ep->fid, &stranger->cq->fid, &stranger->eq->fid,
                                &stranger->domain->fid, &stranger->fabric->fid};
    for (size_t i = 0; i < VIA_ARRAY_COUNT(fids); i++) {
        assert_int_equal(fi_close(fids[i]), 0);
    }
    stranger->library->freeinfo(stranger->info);
}

/* libfabric makes progress only in calls, so this polls rather than sleeps. */
static void wait_for(struct stranger *stranger, uint32_t wanted)
{
    _Alignas(struct fi_eq_cm_entry) unsigned char buffer[sizeof(struct fi_eq_cm_entry) + 512];
    uint64_t until_ns = via_ofi_now_ns() + PATIENCE_NS;
    uint32_t event = 0;
    do {
        struct fi_cq_msg_entry completion;
        (void)fi_cq_read(stranger->cq, &completion, 1);
        ssize_t bytes = fi_eq_read(stranger->eq, &event, buffer, sizeof(buffer), 0);
        if (bytes < 0) {
            event = 0;
            usleep(200);
        }
        if (bytes == -FI_EAVAIL) {
            fail_msg("the host refuses the connection");
        }
        if (via_ofi_now_ns() > until_ns) {
            fail_msg("no event %u", wanted);
        }
    } while (event != wanted);
}

static void disturb(bool keyed)
{
    struct link link = {0};
    struct stranger stranger = {0};
    struct via_ofi_request request;
    open_link(&link, keyed);
    /* The recorded request: the true peer signed it, and the stranger can not sign anything. */
    assert_int_equal(via_ofi_request_make(&link.offers[0], LISTENER, false, &request), 0);
    open_stranger(&stranger, link.addresses[1]);
    assert_int_equal(fi_connect(stranger.ep, stranger.info->dest_addr, &request, sizeof(request)),
                     0);
    wait_for(&stranger, FI_CONNECTED);
    assert_int_equal(fi_inject(stranger.ep, "abc", 3, FI_ADDR_UNSPEC), 0);
    wait_for(&stranger, FI_SHUTDOWN);
    for (unsigned side = 0; side < 2; side++) {
        struct via_port *port = link.ports[side];
        assert_int_equal(port->ops->events(port, VIA_PORT_EVENT_CONTROL) & VIA_PORT_EVENT_LINK_DOWN,
                         0);
        assert_true(is_up(&link, side));
    }
    close_stranger(&stranger);
    close_link(&link);
}

static void a_stranger_ends_no_link(void **state)
{
    (void)state;
    disturb(false);
}

static void a_repeated_request_ends_no_link(void **state)
{
    (void)state;
    disturb(true);
}

/* A connecting peer gets the reason of a refusal, at the offset that all versions agree on. */
static void another_version_is_refused(void **state)
{
    struct link link = {0};
    struct stranger stranger = {0};
    struct via_ofi_request request;
    struct via_ofi_answer answer;
    struct fi_eq_err_entry error = {0};
    uint32_t event;
    (void)state;
    open_link(&link, false);
    assert_int_equal(via_ofi_request_make(&link.offers[0], LISTENER, false, &request), 0);
    request.version--;
    open_stranger(&stranger, link.addresses[1]);
    assert_int_equal(fi_connect(stranger.ep, stranger.info->dest_addr, &request, sizeof(request)),
                     0);
    uint64_t until_ns = via_ofi_now_ns() + PATIENCE_NS;
    while (fi_eq_read(stranger.eq, &event, &answer, sizeof(answer), 0) != -FI_EAVAIL) {
        struct fi_cq_msg_entry completion;
        (void)fi_cq_read(stranger.cq, &completion, 1);
        assert_true(via_ofi_now_ns() < until_ns);
        usleep(200);
    }
    assert_true(fi_eq_readerr(stranger.eq, &error, 0) > 0);
    assert_true(error.err_data_size >= sizeof(answer));
    memcpy(&answer, error.err_data, sizeof(answer));
    assert_int_equal(answer.magic, VIA_OFI_MAGIC);
    assert_int_equal(answer.version, VIA_OFI_WIRE_VERSION);
    assert_int_equal(answer.code, VIA_OFI_REFUSED_VERSION);
    struct via_port_status status;
    char wanted[128];
    snprintf(wanted, sizeof(wanted),
             " speaks version %u of the protocol of ofi links, this host version %u",
             VIA_OFI_WIRE_VERSION - 1, VIA_OFI_WIRE_VERSION);
    via_ofi_driver.status(link.ports[1], &status);
    assert_non_null(strstr(status.error, wanted));
    close_stranger(&stranger);
    close_link(&link);
}

#define SILENT 100u

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void connect_all(const char *address, int *ret_fds)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(VIA_OFI_PORT_DEFAULT)};
    assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
    for (unsigned i = 0; i < SILENT; i++) {
        ret_fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(ret_fds[i] >= 0);
        assert_int_equal(connect(ret_fds[i], (struct sockaddr *)&to, sizeof(to)), 0);
        /* Some connections send a few bytes, and the kernel passes these on. */
        assert_int_equal(i % 4 == 0 ? 1 : send(ret_fds[i], "x", 1, MSG_NOSIGNAL), 1);
    }
}

/* Waits until all connections are closed, except those that the kernel holds back and libfabric has
 * not seen. */
static void wait_for_ends(const int *fds)
{
    struct pollfd polled;
    for (unsigned i = 0; i < SILENT; i++) {
        polled = (struct pollfd){.fd = fds[i], .events = POLLIN};
        assert_true(i % 4 == 0 || poll(&polled, 1, (int)(PATIENCE_NS / VIA_MSEC_NS)) == 1);
    }
}

static void silent_strangers_keep_no_descriptors(void **state)
{
    struct link link = {0};
    int fds[SILENT];
    (void)state;
    open_link(&link, false);
    unsigned before = descriptors();
    connect_all(link.addresses[1], fds);
    wait_for_ends(fds);
    for (unsigned i = 0; i < SILENT; i++) {
        close(fds[i]);
    }
    uint64_t until_ns = via_ofi_now_ns() + PATIENCE_NS;
    while (descriptors() > before) {
        assert_true(via_ofi_now_ns() < until_ns);
        usleep(1000);
    }
    for (unsigned side = 0; side < 2; side++) {
        struct via_port *port = link.ports[side];
        assert_int_equal(port->ops->events(port, VIA_PORT_EVENT_CONTROL) & VIA_PORT_EVENT_LINK_DOWN,
                         0);
        assert_true(is_up(&link, side));
    }
    close_link(&link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(a_stranger_ends_no_link),
        cmocka_unit_test(a_repeated_request_ends_no_link),
        cmocka_unit_test(silent_strangers_keep_no_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
