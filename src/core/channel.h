/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_CORE_CHANNEL_H
#define VIA_CORE_CHANNEL_H

#include "core/link.h"
#include "core/op.h"
#include "core/relay.h"

/* Layer 7: the turns of a channel (channel.c), and the node as a whole (node.c). */

void via_channel_init(struct via_channel *channel);

#endif
