/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/link_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/types.h"

const char *via_link_state_name(enum via_link_state state)
{
    switch (state) {
    case VIA_LINK_DOWN:
        return "down";
    case VIA_LINK_WAITING:
        return "waiting";
    case VIA_LINK_HANDSHAKE:
        return "handshake";
    case VIA_LINK_UP:
        return "up";
    case VIA_LINK_BAD_MAGIC:
        return "bad-magic";
    case VIA_LINK_BAD_VERSION:
        return "bad-version";
    case VIA_LINK_BAD_GEOMETRY:
        return "bad-geometry";
    case VIA_LINK_BAD_HOST:
        return "bad-host";
    case VIA_LINK_BAD_FABRIC:
        return "bad-fabric";
    case VIA_LINK_BAD_KEY:
        return "bad-key";
    }
    return "unknown";
}

/* The text before the two values: this host's and the peer's. */
static const char *differing(enum via_link_cause cause)
{
    switch (cause) {
    case VIA_CAUSE_HOSTS_MAX:
        return "number of host ids (--hosts-max)";
    case VIA_CAUSE_FLOWS:
        return "number of flows";
    case VIA_CAUSE_ACK_NS:
        return "delay of acknowledgements in ns";
    case VIA_CAUSE_PIPE_FIRST:
        return "number of a pipe's first record";
    case VIA_CAUSE_CHANNELS:
        return "number of channels (--channels)";
    case VIA_CAUSE_FRAME_BYTES:
        return "largest frame in bytes (--frame-bytes)";
    case VIA_CAUSE_SLOTS:
        return "number of slots (--slots), which has to be a power of two";
    default:
        return NULL;
    }
}

static const char *too_small(enum via_link_cause cause)
{
    switch (cause) {
    case VIA_CAUSE_MY_INBOX:
        return "this host's inbox";
    case VIA_CAUSE_MY_WINDOW:
        return "this host's window";
    case VIA_CAUSE_PEER_INBOX:
        return "the peer's inbox";
    case VIA_CAUSE_PEER_WINDOW:
        return "the peer's window";
    default:
        return NULL;
    }
}

static const char *missing_key(const struct via_link_refusal *refusal)
{
    if (refusal->cause != VIA_CAUSE_KEYED) {
        return "the peer's fabric key is not this host's";
    }
    return refusal->mine != 0 ? "this host has a fabric key, the peer has none"
                              : "the peer has a fabric key, this host has none";
}

static void explain_refusal(const struct via_link_refusal *refusal, struct via_link_text *ret)
{
    const char *what = differing(refusal->cause);
    const char *room = too_small(refusal->cause);

    if (what != NULL) {
        snprintf(ret->text, sizeof(ret->text), "%s: %" PRIu64 " here, %" PRIu64 " at the peer",
                 what, refusal->mine, refusal->peers);
    } else if (room != NULL) {
        snprintf(ret->text, sizeof(ret->text),
                 "the smallest pipes need %" PRIu64 " bytes, %s has %" PRIu64, refusal->mine, room,
                 refusal->peers);
    } else {
        snprintf(ret->text, sizeof(ret->text), "the peer refuses; its status has the reason");
    }
}

struct via_link_text via_link_explain(const struct via_link_status *link, unsigned version)
{
    struct via_link_text ret = {.text = ""};

    switch (link->state) {
    case VIA_LINK_BAD_MAGIC:
        snprintf(ret.text, sizeof(ret.text), "the peer is not Viaduct");
        break;
    case VIA_LINK_BAD_VERSION:
        snprintf(ret.text, sizeof(ret.text),
                 "the peer speaks protocol version %u, this host version %u", link->peer_version,
                 version);
        break;
    case VIA_LINK_BAD_HOST:
        snprintf(ret.text, sizeof(ret.text),
                 "the peer has this host's id, or an id outside of the fabric");
        break;
    case VIA_LINK_BAD_KEY:
        snprintf(ret.text, sizeof(ret.text), "%s", missing_key(&link->refusal));
        break;
    case VIA_LINK_BAD_GEOMETRY:
    case VIA_LINK_BAD_FABRIC:
        explain_refusal(&link->refusal, &ret);
        break;
    default:
        break;
    }
    return ret;
}

struct via_link_text via_link_explain_down(const struct via_link_status *link)
{
    struct via_link_text ret = {.text = ""};

    switch (link->down_why) {
    case -ENOLINK:
        snprintf(ret.text, sizeof(ret.text), "the port lost its link");
        break;
    case -ETIMEDOUT:
        snprintf(ret.text, sizeof(ret.text), "no sign of life of the peer for %" PRIu64 " ms",
                 link->silence_max_ns / VIA_MSEC_NS);
        break;
    case -ECONNRESET:
        snprintf(ret.text, sizeof(ret.text), "the peer restarted the link");
        break;
    case -EPROTO:
        snprintf(ret.text, sizeof(ret.text), "the peer broke the protocol");
        break;
    case -EIO:
        snprintf(ret.text, sizeof(ret.text), "writes were lost, or a DMA engine did not stop");
        break;
    default:
        break;
    }
    return ret;
}
