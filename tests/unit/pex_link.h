/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* A link of two pex ports on the register model, for unit tests. One thread drives both ends. */
#ifndef TESTS_UNIT_PEX_LINK_H
#define TESTS_UNIT_PEX_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/pex/pex.h"
#include "port/driver.h"
#include "port/pex/driver.h"

#define PEX_LINK_TURNS_MAX 400u

enum pex_link_kind {
    PEX_LINK_MODEL, /* a chip in this process */
    PEX_LINK_PAIR,  /* two chips back to back */
    PEX_LINK_NT0,   /* one NT port of a chip that has two */
    PEX_LINK_NT1,
    PEX_LINK_USER, /* a chip, and the DMA functions of both hosts, behind vfio-user sockets */
};

struct pex_link_end {
    struct via_driver_host host;
    struct via_port *port; /* NULL: not open */
    unsigned wakes[4];
    uint64_t deadline_ns;
};

struct pex_link_server;

struct pex_link {
    enum pex_link_kind kind;
    bool dma;
    struct pex_link_end end[2];
    struct via_pex *pex;
    uint64_t now_ns;
    struct pex_link_server *server; /* of PEX_LINK_USER */
};

/* Opens one end. The caller has set kind, dma, and the fields of end[] that are not 0. */
int pex_link_open_end(struct pex_link *link, unsigned side, const char *options,
                      struct via_error *err);
/* Opens both ends, and waits until they are up. */
void pex_link_open(struct pex_link *link, const char *options);
void pex_link_close_end(struct pex_link *link, unsigned side);
/* Closes everything. */
void pex_link_close(struct pex_link *link);
/* Returns a zeroed link of the kind, opened. */
struct pex_link *pex_link_new(enum pex_link_kind kind, bool dma);

/* For PEX_LINK_USER: ends the chip's server, and starts another one at the same sockets. */
void pex_link_stop_server(struct pex_link *link);
void pex_link_start_server(struct pex_link *link);

void pex_link_turn(struct pex_link *link, unsigned count);
bool pex_link_is_up(const struct pex_link *link, unsigned side);
void pex_link_wait_for(struct pex_link *link, bool up);
uint64_t pex_link_events(struct pex_link *link, unsigned side, uint64_t mask);
/* Sends a word and a doorbell in each direction. */
void pex_link_check_data(struct pex_link *link);
const char *pex_link_error(const struct pex_link *link, unsigned side);

/* --- tests of cmocka whose *state is a link --- */

/* In set_up(): the kind that PEX_LINK_TEST() has put into *state. */
enum pex_link_kind pex_link_kind_of(const void *state);
/* Closes the link, and checks that its chip is no longer registered. */
int pex_link_tear_down(void **state);
#define PEX_LINK_TEST(name, set_up, kind)                                      \
    cmocka_unit_test_prestate_setup_teardown(name, set_up, pex_link_tear_down, \
                                             &(enum pex_link_kind){PEX_LINK_##kind})
/* A test for each kind of link with a DMA function. */
#define PEX_LINK_TESTS(name, set_up)                                      \
    PEX_LINK_TEST(name, set_up, MODEL), PEX_LINK_TEST(name, set_up, NT1), \
        PEX_LINK_TEST(name, set_up, PAIR), PEX_LINK_TEST(name, set_up, USER)

#endif
