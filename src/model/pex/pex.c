/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The chip as a whole: creation, link, interrupts, faults. */
#include "model/pex/pex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/pex/chip.h"
#include "vfio/event.h"

#define LINK_ERROR 0xFE0u
#define LINK_ERROR_DL_DOWN 4u
#define BELL(side) ((side) == VIA_PEX_VIRTUAL ? 0xC4Cu : 0xC5Cu)
#define MSI_CONTROL 0x048u
#define MSI_ENABLED 0x00010000u
#define PATTERN_TRIES 100u
#define BAR_BYTES_MIN (UINT64_C(1) << 20)
#define BAR_BYTES_MAX (UINT64_C(1) << 36)

/* Requester ids of CPUs behind root ports: every driver enters 0:0 in its table, but not these. */
const struct via_pex_options via_pex_options_default = {
    .bar_bytes = {{UINT64_C(4) << 20, 0}, {UINT64_C(4) << 20, 0}},
    .alut_entries = 256,
    .generation = 3,
    .width = 8,
    .generation_max = 3,
    .width_max = 8,
    .requester = {0x0018, 0x0020},
    .chip = 0x8749,
};

/* --- creation --- */

static int check(const struct via_pex_options *options, struct via_error *err)
{
    for (unsigned side = 0; side < VIA_PEX_SIDES; side++) {
        for (unsigned bar = 0; bar < VIA_PEX_BARS; bar++) {
            uint64_t bytes = options->bar_bytes[side][bar];
            if (bytes != 0 &&
                ((bytes & (bytes - 1)) != 0 || bytes < BAR_BYTES_MIN || bytes > BAR_BYTES_MAX)) {
                return via_error_set(err, -EINVAL,
                                     "BAR %u of side %u has %llu bytes: no power of two from 1 MiB "
                                     "to 64 GiB",
                                     2 + 2 * bar, side, (unsigned long long)bytes);
            }
        }
    }
    if (options->nt > 1 || options->port > 23 ||
        (options->alut_entries != 0 && options->alut_entries != 128 &&
         options->alut_entries != 256)) {
        return via_error_set(err, -EINVAL, "NT port %u, port %u, %u A-LUT entries: no such chip",
                             options->nt, options->port, options->alut_entries);
    }
    if (options->eeprom != NULL && (options->eeprom_bytes < 8 || options->eeprom_bytes % 4 != 0)) {
        return via_error_set(err, -EINVAL, "an EEPROM of %u bytes: no multiple of 4 from 8 on",
                             options->eeprom_bytes);
    }
    return 0;
}

int via_pex_new(const struct via_pex_options *options, struct via_pex **ret_pex,
                struct via_error *err)
{
    int rc = check(options, err);
    if (rc != 0) {
        return rc;
    }
    struct via_pex *pex = calloc(1, sizeof(*pex));
    if (pex == NULL || (pex->regs = calloc(1, VIA_PEX_CHIP_BYTES)) == NULL) {
        free(pex);
        return via_error_set(err, -ENOMEM, "registers: %s", strerror(ENOMEM));
    }
    rc = via_pex_ones_new(&pex->ones_fd);
    if (rc != 0) {
        free(pex->regs);
        free(pex);
        return via_error_set(err, rc, "memory of all-ones: %s", strerror(-rc));
    }
    pthread_mutex_init(&pex->own_lock, NULL);
    pex->lock = &pex->own_lock;
    pex->options = *options;
    pex->cable = true;
    for (unsigned side = 0; side < VIA_PEX_SIDES; side++) {
        struct via_pex_function *function = &pex->function[side];
        function->pci.ops = &via_pex_function_ops;
        function->pex = pex;
        function->side = side;
        function->irq_fd = -1;
        pex->engine_requester[side] = VIA_PEX_ENGINE_REQUESTER;
    }
    via_pex_registers_power_on(pex);
    *ret_pex = pex;
    return 0;
}

struct via_pex *via_pex_joined(const struct via_pex *pex)
{
    return pex->joined;
}

int via_pex_new_pair(const struct via_pex_options *options, struct via_pex **ret_pex,
                     struct via_error *err)
{
    struct via_pex *first, *second;
    int rc = via_pex_new(options, &first, err);
    if (rc != 0) {
        return rc;
    }
    rc = via_pex_new(options, &second, err);
    if (rc != 0) {
        via_pex_free(first);
        return rc;
    }
    second->lock = first->lock;
    second->is_owned = true;
    first->joined = second;
    second->joined = first;
    *ret_pex = first;
    return 0;
}

int via_pex_new_twins(const struct via_pex_options *options, struct via_pex **ret_pex,
                      struct via_error *err)
{
    struct via_pex_options of_port = *options;
    struct via_pex *first, *second;
    of_port.nt = 0;
    of_port.alut_entries = via_min(options->alut_entries, 128u);
    int rc = via_pex_new(&of_port, &first, err);
    if (rc != 0) {
        return rc;
    }
    of_port.nt = 1;
    of_port.port = (options->port + 8) % 24;
    of_port.eeprom = NULL;
    rc = via_pex_new(&of_port, &second, err);
    if (rc != 0) {
        via_pex_free(first);
        return rc;
    }
    free(second->regs);
    second->regs = first->regs;
    second->lock = first->lock;
    second->is_owned = true;
    first->twin = second;
    second->twin = first;
    via_pex_registers_power_on(first);
    *ret_pex = first;
    return 0;
}

struct via_pex *via_pex_twin(const struct via_pex *pex)
{
    return pex->twin;
}

unsigned via_pex_number(const struct via_pex *pex)
{
    return pex->options.nt;
}

static void detach_all(struct via_pex *pex)
{
    for (unsigned side = 0; side < VIA_PEX_SIDES; side++) {
        via_pex_function_detach(&pex->function[side]);
    }
}

static void release(struct via_pex *pex)
{
    close(pex->ones_fd);
    pthread_mutex_destroy(&pex->own_lock);
    free(pex);
}

void via_pex_free(struct via_pex *pex)
{
    struct via_pex *owned = pex->joined != NULL ? pex->joined : pex->twin;
    uint32_t *regs = pex->regs;
    detach_all(pex);
    if (owned != NULL) {
        detach_all(owned);
        if (owned->regs != regs) {
            free(owned->regs);
        }
        release(owned);
    }
    release(pex);
    free(regs);
}

/* --- the link --- */

static bool has_cable(const struct via_pex *pex)
{
    uint32_t station = (pex->options.port & ~7u) << 12;
    uint32_t disabled = pex->regs[(station + 0x208) / 4];
    return pex->cable && (disabled >> (pex->options.port & 7) & 1) == 0;
}

bool via_pex_link_is_up(const struct via_pex *pex)
{
    return has_cable(pex) && (pex->joined == NULL || has_cable(pex->joined));
}

bool via_pex_function_is_answering(const struct via_pex_function *function)
{
    return !function->removed &&
           (function->side == VIA_PEX_VIRTUAL || via_pex_link_is_up(function->pex));
}

static void set_down(struct via_pex *pex)
{
    *via_pex_reg(pex, VIA_PEX_VIRTUAL, LINK_ERROR) |= LINK_ERROR_DL_DOWN;
    via_pex_registers_reset(pex, VIA_PEX_LINK);
    pex->function[VIA_PEX_LINK].asserted[0] = false;
    pex->patterns_locked = PATTERN_TRIES;
}

void via_pex_follow_link(struct via_pex *pex, bool was_up)
{
    if (was_up == via_pex_link_is_up(pex)) {
        return;
    }
    struct via_pex *chips[] = {pex, pex->joined};
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(chips) && chips[i] != NULL; i++) {
        if (was_up) {
            set_down(chips[i]);
        }
        via_pex_update_views(chips[i]);
        via_pex_update_interrupts(chips[i]);
    }
}

/* --- interrupts --- */

static void fire(struct via_pex_function *function)
{
    if (function->irq_fd < 0) {
        return;
    }
    if (function->lose != 0) {
        function->lose--;
        function->pex->stats.interrupts_lost++;
        return;
    }
    if (function->held) {
        function->held_one = true;
        return;
    }
    function->pex->stats.interrupts[function->side]++;
    via_event_signal(function->irq_fd);
}

/* MSI fires when an interrupt source goes from 0 to 1. INTx fires while a source is set, once until
 * unmasked. */
static void update(struct via_pex *pex, struct via_pex_function *function)
{
    enum via_pex_side side = function->side;
    uint32_t bells = *via_pex_reg(pex, VIA_PEX_VIRTUAL, BELL(side));
    uint32_t unmasked = bells & ~*via_pex_reg(pex, VIA_PEX_VIRTUAL, BELL(side) + 8);
    bool now[2] = {unmasked != 0, false};
    if (side == VIA_PEX_VIRTUAL) {
        now[1] =
            (*via_pex_reg(pex, side, LINK_ERROR) & ~*via_pex_reg(pex, side, LINK_ERROR + 4)) != 0;
    }
    bool edge = (now[0] && !function->asserted[0]) || (now[1] && !function->asserted[1]);
    /* The edge is the change of the doorbell register from zero (FreeBSD: "mask juggling" did not
     * work); with unmask_fires_msi, the change of its unmasked bits from zero. */
    function->asserted[0] = pex->options.switches.unmask_fires_msi ? now[0] : bells != 0;
    function->asserted[1] = now[1];
    if (!via_pex_function_is_answering(function)) {
        return;
    }
    uint32_t command = *via_pex_reg(pex, side, VIA_PCI_COMMAND);
    bool msi = (*via_pex_reg(pex, side, MSI_CONTROL) & MSI_ENABLED) != 0;
    if (msi && edge && (command & VIA_PCI_COMMAND_MASTER) != 0) {
        fire(function);
    } else if (!msi && (now[0] || now[1]) && (command & VIA_PCI_COMMAND_INTX_OFF) == 0 &&
               function->irq_kind == VIA_PCI_INTX && !function->intx_masked) {
        function->intx_masked = true;
        fire(function);
    }
}

void via_pex_update_interrupts(struct via_pex *pex)
{
    for (unsigned side = 0; side < VIA_PEX_SIDES; side++) {
        update(pex, &pex->function[side]);
    }
}

/* --- faults --- */

void via_pex_set_link(struct via_pex *pex, bool up)
{
    pthread_mutex_lock(pex->lock);
    bool was_up = via_pex_link_is_up(pex);
    pex->cable = up;
    via_pex_follow_link(pex, was_up);
    pthread_mutex_unlock(pex->lock);
}

void via_pex_set_speed(struct via_pex *pex, unsigned generation, unsigned width)
{
    pthread_mutex_lock(pex->lock);
    bool was_up = via_pex_link_is_up(pex);
    bool cable = pex->cable;
    pex->cable = false;
    via_pex_follow_link(pex, was_up);
    pex->options.generation = generation;
    pex->options.width = width;
    pex->cable = cable;
    via_pex_follow_link(pex, false);
    pthread_mutex_unlock(pex->lock);
}

static void reset_host(struct via_pex *pex, enum via_pex_side side)
{
    struct via_pex *ports[] = {pex, side == VIA_PEX_VIRTUAL ? pex->twin : NULL};
    if (side == VIA_PEX_VIRTUAL) {
        via_pex_registers_power_on(pex);
        if (pex->joined != NULL) {
            set_down(pex->joined);
            via_pex_update_interrupts(pex->joined);
        }
    } else {
        set_down(pex);
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(ports) && ports[i] != NULL; i++) {
        for (unsigned k = 0; k < VIA_PEX_SIDES && side == VIA_PEX_VIRTUAL; k++) {
            memset(ports[i]->function[k].asserted, 0, sizeof(ports[i]->function[k].asserted));
        }
        via_pex_update_views(ports[i]);
        via_pex_update_interrupts(ports[i]);
    }
}

void via_pex_reset_host(struct via_pex *pex, enum via_pex_side side)
{
    pthread_mutex_lock(pex->lock);
    reset_host(pex, side);
    pthread_mutex_unlock(pex->lock);
}

void via_pex_remove(struct via_pex *pex, enum via_pex_side side, bool gone)
{
    pthread_mutex_lock(pex->lock);
    bool is_back = pex->function[side].removed && !gone;
    pex->function[side].removed = gone;
    if (is_back) {
        reset_host(pex, side);
    }
    via_pex_update_views(pex);
    pthread_mutex_unlock(pex->lock);
}

void via_pex_lose_interrupts(struct via_pex *pex, enum via_pex_side side, unsigned count)
{
    pthread_mutex_lock(pex->lock);
    pex->function[side].lose = count;
    pthread_mutex_unlock(pex->lock);
}

void via_pex_hold_interrupts(struct via_pex *pex, enum via_pex_side side, bool hold)
{
    pthread_mutex_lock(pex->lock);
    struct via_pex_function *function = &pex->function[side];
    bool due = function->held_one && !hold;
    function->held = hold;
    if (due) {
        function->held_one = false;
        fire(function);
    }
    pthread_mutex_unlock(pex->lock);
}

void via_pex_raise_error(struct via_pex *pex, uint32_t bits)
{
    pthread_mutex_lock(pex->lock);
    *via_pex_reg(pex, VIA_PEX_VIRTUAL, LINK_ERROR) |= bits & 0xf;
    via_pex_update_interrupts(pex);
    pthread_mutex_unlock(pex->lock);
}

void via_pex_eeprom_set_faults(struct via_pex *pex, const struct via_pex_eeprom_faults *faults)
{
    pthread_mutex_lock(pex->lock);
    pex->eeprom.faults = *faults;
    pex->eeprom.writes_count = 0;
    pthread_mutex_unlock(pex->lock);
}

void via_pex_stats(struct via_pex *pex, struct via_pex_stats *ret_stats)
{
    pthread_mutex_lock(pex->lock);
    *ret_stats = pex->stats;
    pthread_mutex_unlock(pex->lock);
}
