/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef VIA_HOST_LINK_TEXT_H
#define VIA_HOST_LINK_TEXT_H

#include <stddef.h>

#include "core/node.h"

/* The word for a link's state in logs and in the status. Static. */
const char *via_link_state_name(enum via_link_state state);

#define VIA_LINK_TEXT_BYTES 200u

/* The reason why the two ends of a link do not match, with both values; "": they match. `version`
 * is the protocol version that this host speaks. */
struct via_link_text {
    char text[VIA_LINK_TEXT_BYTES];
};
struct via_link_text via_link_explain(const struct via_link_status *link, unsigned version);

/* Why the link went down the last time; "" if it never did. */
struct via_link_text via_link_explain_down(const struct via_link_status *link);

#endif
