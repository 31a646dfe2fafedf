/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The requests of a hub to libfabric, recorded by a fake libfabric without providers. */
#include <rdma/fi_errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "port/ofi/hub.h"
#include "port/ofi/system.h"

static uint64_t asked;
static unsigned count;

static struct fi_info *dup_info(const struct fi_info *info)
{
    assert_null(info);
    struct fi_info *new = calloc(1, sizeof(*new));
    assert_non_null(new);
    new->tx_attr = calloc(1, sizeof(*new->tx_attr));
    new->rx_attr = calloc(1, sizeof(*new->rx_attr));
    new->ep_attr = calloc(1, sizeof(*new->ep_attr));
    new->domain_attr = calloc(1, sizeof(*new->domain_attr));
    new->fabric_attr = calloc(1, sizeof(*new->fabric_attr));
    return new;
}

static void free_info(struct fi_info *info)
{
    free(info->fabric_attr->prov_name);
    free(info->tx_attr);
    free(info->rx_attr);
    free(info->ep_attr);
    free(info->domain_attr);
    free(info->fabric_attr);
    free(info);
}

static int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **ret_info)
{
    (void)version, (void)service, (void)flags, (void)ret_info;
    if (node != NULL) { /* else: does the provider have other endpoints? */
        asked = hints->rx_attr->comp_order;
        count++;
    }
    return -FI_ENODATA;
}

static const char *error_text(int code)
{
    (void)code;
    return "no data";
}

static struct via_ofi_library library = {
    .getinfo = get_info, .freeinfo = free_info, .dupinfo = dup_info, .strerror = error_text};

static const struct via_ofi_library *load(const struct via_ofi_system *system,
                                          struct via_error *err)
{
    (void)system, (void)err;
    return &library;
}

static void stop(struct via_ofi_hub *hub)
{
    (void)hub;
}

static uint64_t order_asked_for(bool has_completion_order)
{
    static const struct via_ofi_system system = {.load = load, .stop = stop};
    const struct via_ofi_place place = {.host = "127.0.0.1", .port = 7471};
    struct via_ofi_hub *hub = NULL;
    struct via_error err = {0};
    library.has_completion_order = has_completion_order;
    count = 0;
    assert_int_equal(via_ofi_hub_get(&system, "tcp", &place, true, &hub, &err), -FI_ENODATA);
    assert_int_equal(count, 2); /* with messages ordered after writes, and without this order */
    return asked;
}

static void completions_are_in_order_where_libfabric_can_promise_it(void **state)
{
    (void)state;
    assert_int_equal(order_asked_for(true), VIA_OFI_ORDER_STRICT);
}

/* libfabric 2: providers refuse a comp_order other than 0. */
static void libfabric_2_is_asked_for_no_order_of_completions(void **state)
{
    (void)state;
    assert_int_equal(order_asked_for(false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions_are_in_order_where_libfabric_can_promise_it),
        cmocka_unit_test(libfabric_2_is_asked_for_no_order_of_completions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
