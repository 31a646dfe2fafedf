/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What the library's sources name, and no run of the simulator calls (absent.c says why): by name
 * only, so that the list stays one. */
#include <stdlib.h>

#define NEVER(name)  \
    void name(void); \
    void name(void)  \
    {                \
        abort();     \
    }

NEVER(via_conn_bells)
NEVER(via_conn_has_waited_enough)
NEVER(via_conn_learn_options_slowly)
NEVER(via_conn_poll_meeting)
NEVER(via_conn_step)
NEVER(via_fabric_is_taken)
NEVER(via_fabric_offer)
NEVER(via_fabric_read_offer)
NEVER(via_fabric_take)
NEVER(via_file_get_slowly)
NEVER(via_lock_deliver_signals)
NEVER(via_op_is_nonblocking_slowly)
NEVER(via_quiet_begin)
NEVER(via_sleep)
NEVER(via_sleep_watching)
NEVER(via_sock_bell_enter)
NEVER(via_sock_bell_leave)
NEVER(via_steward_start_slowly)
NEVER(via_token_give_slowly)
NEVER(via_token_take_slowly)
NEVER(via_wait_again)
NEVER(via_wait_begin)
NEVER(via_wait_end)
NEVER(via_wait_take_ask)
NEVER(via_wait_sleeps)
NEVER(via_wait_slept)
NEVER(via_zcopy_copied)
NEVER(via_zcopy_fetch)
NEVER(via_zcopy_is_suitable)
NEVER(via_zcopy_send)
NEVER(via_zcopy_sink_slowly)
