/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Planted bugs, which the simulator and the fuzzers must find. In shipped programs VIA_MUTANT() is
 * the constant 0, and no planted bug is compiled. Only programs that are built with -DVIA_MUTANTS
 * have the variable via_mutant, which selects a bug: the simulator's copy of the core, the
 * OpenSHMEM library and the client library below it, the host's side of their pipes
 * (sim/CMakeLists.txt), and all programs of the preset fuzz.
 */
#ifndef VIA_BASE_MUTANT_H
#define VIA_BASE_MUTANT_H

/* X(symbol, name, the wrong behaviour) */
#define VIA_MUTANTS_EACH(X)                                                                       \
    X(NO_EPOCH, "no-epoch", "a reader takes records of an earlier epoch")                         \
    X(NO_SECOND_CHECK, "no-second-check", "a thread sleeps without a poll after arming")          \
    X(WAIT_BUSY, "wait-busy", "a transfer thread sleeps although arming found something")         \
    X(ACK_FIRST, "ack-first", "a frame is acknowledged before it is delivered")                   \
    X(NO_FENCE, "no-fence", "a thread checks again without a fence after \"armed\"")              \
    X(EARLY_CHECK, "early-check",                                                                 \
      "a thread checks again, and sleeps, while its fence is under way")                          \
    X(NO_WANT, "no-want", "arming returns credits and does not ring for them")                    \
    X(NO_BUBBLE, "no-bubble", "this host's own frames go first and may take the last buffer")     \
    X(NO_TURN_BUBBLE, "no-turn-bubble", "frames that turn may take the last buffer of a ring")    \
    X(NO_SESSION, "no-session", "frames of a host's earlier session count")                       \
    X(TWICE, "twice", "a duplicate frame is delivered again")                                     \
    X(FLAG_FIRST, "flag-first", "the record is written before its body")                          \
    X(CREDIT_FIRST, "credit-first", "a record is released before its frame is handled")           \
    X(ROUTE_LOOP, "route-loop", "a route is kept when there is a shorter one")                    \
    X(WRONG_WRAP, "wrong-wrap", "acks are compared as if numbers never wrapped")                  \
    X(CREDIT_WRAP, "credit-wrap", "credits are compared as if their numbers never wrapped")       \
    X(SIGNAL_FIRST, "signal-first", "a signal is sent with the first frame of its put")           \
    X(UNBORN, "unborn", "announcements of a new session may be older than those of the last")     \
    X(LAST_NUMBER, "last-number",                                                                 \
      "a host announces numbers that its neighbours regard as malformed")                         \
    X(HELD, "held", "a flow stays held after the reason has ended")                               \
    X(ENDLESS, "endless",                                                                         \
      "an operation without progress does not end while its host is reachable")                   \
    X(LEAVE_UNASKED, "leave-unasked", "a member leaves a barrier without the root's answer")      \
    X(DMA_FIRST, "dma-first", "a record is published before the DMA of its body has ended")       \
    X(DMA_FAILED, "dma-failed", "a body whose DMA failed counts as written")                      \
    X(DMA_REUSE, "dma-reuse", "the source of a DMA is reused before the DMA has ended")           \
    X(DMA_HASTE, "dma-haste", "a body is copied by PIO before its DMA, aborted, has ended")       \
    X(DMA_FLAP, "dma-flap", "bodies written before a link was down are published after it")       \
    X(DMA_LET_GO, "dma-let-go", "a link restarts while an engine still writes for the old epoch") \
    X(SHMEM_SIGNAL_FIRST, "shmem-signal-first", "a put stores its signal before its data")        \
    X(SHMEM_NO_QUIET, "shmem-no-quiet", "barriers do not wait for puts under way")                \
    X(SHMEM_OLD_ROUND, "shmem-old-round", "all barriers of a team have the same number")          \
    X(SHMEM_WRONG_MEMBER, "shmem-wrong-member", "each round of a barrier notifies the same PE")   \
    X(SHMEM_WRONG_PARENT, "shmem-wrong-parent", "the root of a tree waits for one child too few") \
    X(SHMEM_ONE_LINE, "shmem-one-line", "consecutive exchanges use one line")                     \
    X(SHMEM_NO_GATHER, "shmem-no-gather", "a host's leader does not wait for all of its PEs")     \
    X(SHMEM_ONE_BOX, "shmem-one-box", "the boxes of a team do not take turns")                    \
    X(SHMEM_UNLOCK_EARLY, "shmem-unlock-early", "a lock is released while puts are under way")    \
    X(STALL_NEVER, "stall-never", "two ends that send before they read wait forever")             \
    X(STALL_UNBEGUN, "stall-unbegun",                                                             \
      "an end spills before its peer has seen where the pipe began")                              \
    X(STALL_EARLY_BACK, "stall-early-back",                                                       \
      "an end returns to the pipe before its peer has read everything")                           \
    X(STALL_RESENT, "stall-resent", "bytes that the peer left unread come after spilled bytes")   \
    X(CONN_EARLY_END, "conn-early-end", "between hosts the kernel's FIN counts as end of file")   \
    X(CONN_EARLY_LEAVER, "conn-early-leaver", "an end that demotes does not wait for the answer") \
    X(CONN_EARLY_GONE, "conn-early-gone", "an end does not wait for the answer of a dead peer")   \
    X(CONN_UNSEEN_DEATH, "conn-unseen-death",                                                     \
      "an end that demotes does not notice a FIN by death")                                       \
    X(CONN_NO_SKIP, "conn-no-skip", "bytes that were read are sent again")                        \
    X(CONN_KEPT_AGAIN, "conn-kept-again", "bytes that arrive twice are read twice")               \
    X(CONN_OVERTAKE, "conn-overtake",                                                             \
      "sends overtake bytes that are sent again after both ends left")                            \
    X(CONN_EARLY_SHUT, "conn-early-shut",                                                         \
      "the kernel connection ends before bytes that are sent again")                              \
    X(CONN_BOTH_LEFT, "conn-both-left", "unread bytes are left to a peer that has left, too")     \
    X(CONN_UNSENT, "conn-unsent", "bytes to send again wait for the program's next send")         \
    X(CONN_HIDDEN_BEGIN, "conn-hidden-begin", "a waiter for room in the kernel ignores the pipe") \
    X(CONN_UNANNOUNCED_END, "conn-unannounced-end",                                               \
      "the end of the pipe's bytes is not announced")                                             \
    X(CONN_LOST_UNDO, "conn-lost-undo",                                                           \
      "a record for which the path has no room counts as written")                                \
    X(CONN_SPILLED_END, "conn-spilled-end",                                                       \
      "a peer that has spilled and shut down counts as dead")                                     \
    X(CONN_EARLY_REUSE, "conn-early-reuse", "a sender reuses bytes that are being fetched")       \
    X(CONN_NO_RING, "conn-no-ring", "within a host a record wakes no sleeping reader")            \
    X(OFI_TWICE, "ofi-twice", "a completion that comes twice counts twice")                       \
    X(OFI_ANY_ORDER, "ofi-any-order", "completions of receives may come in any order")            \
    X(OFI_NO_WAIT, "ofi-no-wait", "a message does not wait for the writes before it")             \
    X(OFI_NO_REPOST, "ofi-no-repost", "a receive that held a large message is not posted again")  \
    X(OFI_KEPT_KEY, "ofi-kept-key", "the key of an inbox outlives its connection")                \
    X(OFI_CREDIT, "ofi-credit", "a message that was injected does not count as free again")       \
    X(OFI_FENCE_FIRST, "ofi-fence-first",                                                         \
      "a fence's answer overtakes writes that were flushed before")                               \
    X(OFI_EARLY_DONE, "ofi-early-done", "a write that was sent counts as arrived")                \
    X(CLIENT_OVERTAKE, "client-overtake", "stores do not wait for earlier puts by frames")        \
    X(CLIENT_NO_WANT, "client-no-want", "a PE that arms returns credits without a ring")          \
    X(SERVE_NO_REARM, "serve-no-rearm", "a ring starts no poll of the armed pipes")               \
    X(SERVE_NO_ROOM, "serve-no-room",                                                             \
      "a host that waits for room for replies does not request a ring")                           \
    X(SERVE_PARK_KEPT, "serve-park-kept", "a parked command still reads its payload in the pipe")

/* The same for fuzzers. A name begins with that of the fuzzer tests/fuzz/fuzz_<name>.c that must
 * find it. */
#define VIA_MUTANTS_OF_FUZZERS_EACH(X)                                                           \
    X(ATTACH_KEY, "attach-key", "the length of a note's key is not checked")                     \
    X(ATTACH_RANGE, "attach-range", "a command may name bytes outside of its segment")           \
    X(BOARD_BYTES, "board-bytes", "a note may be longer than the message that contains it")      \
    X(APERTURE_BYTES, "aperture-bytes", "a piece of a segment may be longer than its slice")     \
    X(CABLE_SHORT, "cable-short", "a request may be shorter than its head")                      \
    X(CARD_COUNT, "card-count", "an image may promise more registers than it has")               \
    X(CARD_WORDS, "card-words", "a line of a text may have more words than there is room for")   \
    X(CONTROL_LINES, "control-lines", "the end of a line is searched behind the received bytes") \
    X(DIRECT_ANSWER, "direct-answer", "an answer may be longer than requested")                  \
    X(DIRECT_RANGE, "direct-range", "a put may end outside of the segment that it begins in")    \
    X(DIRECTORY_ADDRESSES, "directory-addresses", "a host may have more addresses than fit")     \
    X(IP_CHECKSUM, "ip-checksum", "the header of a checksum may end outside of its packet")      \
    X(IP_WRAP, "ip-wrap", "a record may go over the end of its ring")                            \
    X(KEPT_RANGE, "kept-range", "a kept put may end outside of the memory for copies")           \
    X(LAUNCH_TEXT, "launch-text", "a text may be longer than the message that contains it")      \
    X(MEET_SLOT, "meet-slot", "the slot of a note may lie outside of its mailbox")               \
    X(MEET_SLOTS, "meet-slots",                                                                  \
      "another host may offer pipes with more slots than this one counts")                       \
    X(MEET_LEFT, "meet-left", "a host may have left behind what was sent")                       \
    X(NODE_FLOW, "node-flow", "the number of a frame's flow is not checked")                     \
    X(NODE_RANGE, "node-range", "a put may end outside of its segment")                          \
    X(NODE_SPAN, "node-span", "only the first block of a strided put is checked")                \
    X(OFI_PLAIN, "ofi-plain", "bytes after the end of a greeting count in plain text, too")      \
    X(OFI_RANGE, "ofi-range", "an entry may end outside of the inbox")                           \
    X(OFFER_BODY, "offer-body", "a record's body may be longer than the pipe has room for")      \
    X(PERF_BYTES, "perf-bytes", "a ping may be larger than the memory for it")                   \
    X(PMI_FIELD, "pmi-field", "a word of the launcher may be longer than the room for it")       \
    X(REMOTE_GROUPS, "remote-groups", "a request may have more groups than its host keeps")      \
    X(REMOTE_TWICE, "remote-twice", "a request that is being answered may come again")           \
    X(RULES_PREFIX, "rules-prefix", "a network may have more bits than an address")              \
    X(TOPOLOGY_PORTS, "topology-ports", "a host may have more links than ports")

#ifdef VIA_MUTANTS
#define VIA_MUTANT_NUMBER(symbol, name, text) VIA_MUTANT_##symbol,
enum via_mutant_number {
    VIA_MUTANT_NONE,
    VIA_MUTANTS_EACH(VIA_MUTANT_NUMBER) VIA_MUTANTS_OF_FUZZERS_EACH(VIA_MUTANT_NUMBER)
};
extern int via_mutant; /* enum via_mutant_number; defined in mutant.c, sim/plant.c */
#define VIA_MUTANT(symbol) (via_mutant == VIA_MUTANT_##symbol)
#else
#define VIA_MUTANT(symbol) 0
#endif

#endif
