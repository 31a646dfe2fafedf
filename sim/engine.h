/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "sim/world.h"

/* core/port.h: dma, dma_take, dma_abort of the transfer thread whose turn it is. */
int sim_engine_start(struct sim_end *end, unsigned queue, uint64_t off, const void *src, size_t len,
                     uint64_t cookie);
unsigned sim_engine_take(struct sim_end *end, unsigned queue, uint64_t *ret_cookies,
                         int *ret_results, unsigned max);
void sim_engine_abort(struct sim_end *end, unsigned queue);

/* The link is lost: its running DMAs are torn. */
void sim_engine_cut(struct sim_end *end);
/* The host is gone, and its engine was reset: nothing is under way any more. */
void sim_engine_drop(struct sim_end *end);

/* Checks posted writes as they leave: none may write where an engine is writing, and no record may
 * be published before its body has come. */
void sim_engine_check_put(struct sim_end *end, uint64_t off, const void *src, size_t len);

#endif
