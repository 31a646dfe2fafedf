/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "host/control_sockets.h"

#include <stddef.h>

static const char *const texts[VIA_REASON_COUNT] = {
    [VIA_REASON_NONE] = "undecided",
    [VIA_REASON_PEER] = "peer is a plain program",
    [VIA_REASON_SHORT] = "ended before pipes were worth it",
    [VIA_REASON_USER] = "peer belongs to another user",
    [VIA_REASON_KERNEL] = "kernel does not answer sock_diag",
    [VIA_REASON_RESOURCES] = "out of memory or descriptors",
    [VIA_REASON_PROTOCOL] = "peer speaks another protocol version",
    [VIA_REASON_OPTION] = "socket option that pipes can not honour",
    [VIA_REASON_STDIO] = "used through stdio",
    [VIA_REASON_FORK] = "forked before the peer was known",
    [VIA_REASON_FABRIC] = "daemon is down or refused",
    [VIA_REASON_OFF] = "switched off",
    [VIA_REASON_RULES] = "left to the kernel by the rules",
    [VIA_REASON_REMOTE] = "peer is neither on this machine nor in the fabric",
    [VIA_REASON_EPOLL] = "epoll registration that pipes can not honour",
    [VIA_REASON_EXEC] = "passed to another program by exec",
    [VIA_REASON_PASSED] = "sent to another process",
    [VIA_REASON_URING] = "process uses io_uring",
    [VIA_REASON_DEMOTED] = "peer returned to the kernel",
    [VIA_REASON_NETWORK] = "path to the peer's host is itself a network",
    [VIA_REASON_NESTED] = "in an epoll set that is in another",
    [VIA_REASON_LIMIT] = "limit of memory or mappings is reached",
    [VIA_REASON_WAITS] = "peer has not made its part of the pipes yet",
    [VIA_REASON_SECCOMP] = "process is confined by seccomp",
};

const char *via_reason_text(unsigned reason)
{
    return reason < VIA_REASON_COUNT && texts[reason] != NULL ? texts[reason] : "unknown";
}
