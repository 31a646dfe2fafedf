/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Functions that the library's sources refer to, and that no run of the simulator calls (absent.c
 * says why). They are listed by name only. */
#include <stdlib.h>

#define NEVER(name)  \
    void name(void); \
    void name(void)  \
    {                \
        abort();     \
    }

NEVER(via_conn_cookie)
NEVER(via_conn_has_waited_enough)
NEVER(via_conn_learn_options_slowly)
NEVER(via_conn_poll_meeting)
NEVER(via_conn_settle_plain)
NEVER(via_conn_step)
NEVER(via_fabric_is_taken)
NEVER(via_fabric_offer)
NEVER(via_fabric_read_offer)
NEVER(via_fabric_take)
NEVER(via_file_get_slowly)
NEVER(via_hidden_close)
NEVER(via_hidden_new_meeting)
NEVER(via_lock_deliver_signals)
NEVER(via_meeting_is_open_allowed)
NEVER(via_op_is_nonblocking_slowly)
NEVER(via_os_is_safe_memory)
NEVER(via_os_memory)
NEVER(via_os_uid_is_one)
NEVER(via_peer_bell_get)
NEVER(via_quiet_begin)
NEVER(via_rendezvous_accept)
NEVER(via_rendezvous_connect)
NEVER(via_rendezvous_drop)
NEVER(via_rendezvous_listen)
NEVER(via_rendezvous_peek)
NEVER(via_rendezvous_peer)
NEVER(via_rendezvous_send)
NEVER(via_share_charge)
NEVER(via_share_is_map_allowed)
NEVER(via_share_map)
NEVER(via_share_mapped_count)
NEVER(via_sock_bell_fds)
NEVER(via_sock_bell_of_thread)
NEVER(via_sock_bell_word_index)
NEVER(via_steward_start_slowly)
NEVER(via_token_give_slowly)
NEVER(via_token_take_slowly)
NEVER(via_zcopy_note_duration)
