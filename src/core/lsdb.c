/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * How hosts announce to each other which hosts are linked. Control thread.
 *
 * Each host floods an announcement of its neighbours, and keeps the newest announcement of every
 * other host. There are no queues: each link has one bit per host, "the peer lacks this
 * announcement". So a slow link gets the newest one, and nothing is ever dropped. If an
 * announcement is long and the peer has the one before it, the peer gets only the difference, so
 * the cost is proportional to the change.
 */
#include <errno.h>

#include "base/mutant.h"
#include "core/link.h"

#define RECORDS_PER_TURN 64
/* Pause between two announcements of many neighbours, for each neighbour. All links of a host come
 * up one after the other, and without the pause every other host would receive the whole list again
 * for each of them. */
#define PAUSE_NS_PER_NEIGHBOUR (20 * VIA_USEC_NS)

/* --- which hosts need an announcement -------------------------------------------------------- */

static bool has_bit(const uint64_t *bits, uint16_t host)
{
    return (bits[host / 64] >> (host % 64) & 1) != 0;
}

static bool is_dirty(const struct via_lsdb_link *link, uint16_t host)
{
    return has_bit(link->dirty, host);
}

static void mark_dirty(struct via_lsdb_link *link, uint16_t host)
{
    if (!is_dirty(link, host)) {
        link->dirty[host / 64] |= UINT64_C(1) << (host % 64);
        link->dirty_count++;
    }
}

/* The peer needs the whole announcement. */
static void set_dirty(struct via_lsdb_link *link, uint16_t host)
{
    mark_dirty(link, host);
    link->whole[host / 64] |= UINT64_C(1) << (host % 64);
}

/* The peer needs only the last change, if it has the announcement before that. */
static void set_dirty_by_change(struct via_lsdb_link *link, uint16_t host)
{
    if (is_dirty(link, host) || link->sending == host) {
        set_dirty(link, host);
    } else {
        mark_dirty(link, host);
    }
}

static void clear_dirty(struct via_lsdb_link *link, uint16_t host)
{
    if (is_dirty(link, host)) {
        link->dirty[host / 64] &= ~(UINT64_C(1) << (host % 64));
        link->whole[host / 64] &= ~(UINT64_C(1) << (host % 64));
        link->dirty_count--;
    }
}

/* Takes the next dirty host in turn. There is one. */
static uint16_t next_dirty(struct via_lsdb_link *link, unsigned hosts_max)
{
    unsigned words = (hosts_max + 63) / 64;
    unsigned host = link->dirty_from < hosts_max ? link->dirty_from : 0;
    unsigned word = host / 64;
    uint64_t bits = link->dirty[word] & ~UINT64_C(0) << (host % 64);

    while (bits == 0) {
        word = (word + 1) % words;
        bits = link->dirty[word];
    }
    host = word * 64 + (unsigned)__builtin_ctzll(bits);
    link->dirty_from = host + 1;
    return (uint16_t)host;
}

/* True if the host sent this announcement over its own link to this host. */
static bool is_from_itself(const struct via_link *link, const struct via_announcement *head)
{
    return link->lsdb.peer == head->host && link->peer_seen_session == head->session;
}

/*
 * True if the host itself sends its announcements to this peer: it has announced a link to the
 * peer's present session, and it sends all its announcements on its links. Only an announcement
 * that came from the host itself proves this. Otherwise a false announcement that names the
 * neighbours of all hosts that store it would never reach its victim, which could refute it.
 */
static bool is_sent_directly(const struct via_node *node, uint16_t host,
                             const struct via_link *link)
{
    const struct via_lsa *lsa = &node->lsdb->lsas[host];
    struct via_neighbours it;

    via_neighbours_of(node->lsdb, lsa, &it);
    while (lsa->by_itself && via_neighbours_next(&it) && it.host <= link->lsdb.peer) {
        if (it.host == link->lsdb.peer) {
            return it.session == link->peer_seen_session;
        }
    }
    return false;
}

static void mark_dirty_by_change(struct via_node *node, struct via_lsdb_link *link, uint16_t host)
{
    if (node->lsdb->lsas[host].base != 0) {
        set_dirty_by_change(link, host);
    } else {
        set_dirty(link, host);
    }
}

static void mark_dirty_everywhere(struct via_node *node, uint16_t host)
{
    via_list_foreach(it, &node->lsdb->up) {
        mark_dirty_by_change(node, via_list_entry(it, struct via_lsdb_link, up), host);
    }
}

/* Forwards another host's announcement to the neighbours to which that host does not send it
 * itself. Otherwise each announcement would cross all links of a mesh in both directions. A link
 * that the host has announced and lost is absent from its next announcement, which is then
 * forwarded. */
static void send_on(struct via_node *node, const struct via_link *from, uint16_t host)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_neighbours it;

    lsdb->forwarded_serial++;
    via_neighbours_of(lsdb, &lsdb->lsas[host], &it);
    while (lsdb->lsas[host].by_itself && via_neighbours_next(&it)) { /* see is_sent_directly() */
        for (uint16_t p = lsdb->local[it.host]; p != VIA_PORT_NONE;
             p = node->links[p].lsdb.next_parallel) {
            if (node->links[p].peer_seen_session == it.session) {
                node->links[p].lsdb.forwarded_serial = lsdb->forwarded_serial;
            }
        }
    }
    via_list_foreach(at, &lsdb->up) {
        struct via_lsdb_link *link = via_list_entry(at, struct via_lsdb_link, up);
        if (link != &from->lsdb && link->forwarded_serial != lsdb->forwarded_serial) {
            mark_dirty_by_change(node, link, host);
        }
    }
}

/* True if all neighbours have received this host's last announcement. */
static bool is_sent_to_all(const struct via_node *node)
{
    uint16_t me = node->config.host;
    via_list_foreach(it, &node->lsdb->up) {
        const struct via_lsdb_link *link = via_list_entry(it, struct via_lsdb_link, up);
        if (is_dirty(link, me) || link->sending == me) {
            return false;
        }
    }
    return true;
}

/* The peer has the announcement. */
static void mark_sent(struct via_link *link, uint16_t host)
{
    clear_dirty(&link->lsdb, host);
    if (link->lsdb.sending == host) {
        link->lsdb.sending = VIA_HOST_NONE;
    }
}

/* --- links ----------------------------------------------------------------------------------- */

void via_lsdb_init(struct via_node *node)
{
    struct via_lsdb *lsdb = node->lsdb;

    via_lsa_init(lsdb);
    via_list_init(&lsdb->up);
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        lsdb->local[h] = VIA_PORT_NONE;
    }
    for (unsigned p = 0; p < node->config.ports_count; p++) {
        via_list_init(&node->links[p].lsdb.up);
        node->links[p].lsdb.peer = VIA_HOST_NONE;
        node->links[p].lsdb.sending = VIA_HOST_NONE;
    }
    /* Newer than all announcements of this host's earlier sessions, which other hosts may still
     * store. Otherwise hosts that know this session could return to an earlier one, until this host
     * outnumbers it. */
    if (node->config.born + 1 < VIA_LINK_STATE_SEQUENCE_HIGH && !VIA_MUTANT(UNBORN)) {
        lsdb->lsas[node->config.host].sequence = node->config.born;
    }
    lsdb->own_high_ns = VIA_NEVER_NS;
    lsdb->forget_ns = VIA_NEVER_NS;
    lsdb->own_dirty = true;
    lsdb->own_forced = true;
    via_routes_init(node);
}

/* Links to one host form a list in ascending order of rank. */
static void join_parallel(struct via_node *node, struct via_link *link)
{
    uint16_t *place = &node->lsdb->local[link->lsdb.peer];
    while (*place != VIA_PORT_NONE && node->links[*place].lsdb.rank < link->lsdb.rank) {
        place = &node->links[*place].lsdb.next_parallel;
    }
    link->lsdb.next_parallel = *place;
    *place = (uint16_t)link->index;
}

static void leave_parallel(struct via_node *node, struct via_link *link)
{
    uint16_t *place = &node->lsdb->local[link->lsdb.peer];
    while (*place != link->index) {
        place = &node->links[*place].lsdb.next_parallel;
    }
    *place = link->lsdb.next_parallel;
}

/* Discards the incomplete part of an announcement. */
static void void_taking(struct via_node *node, struct via_lsdb_link *link)
{
    if (link->is_taking) {
        via_lsa_list_free(node->lsdb, &link->taken);
        link->is_taking = false;
    }
}

void via_lsdb_link_up(struct via_node *node, struct via_link *link)
{
    struct via_lsdb *lsdb = node->lsdb;

    link->lsdb.peer = atomic_load_explicit(&link->peer, memory_order_relaxed);
    for (uint16_t h = 0; h < node->config.hosts_max; h++) {
        clear_dirty(&link->lsdb, h);
        if (via_lsa_session(&lsdb->lsas[h]) != 0 &&
            (h == node->config.host || !is_sent_directly(node, h, link))) {
            set_dirty(&link->lsdb, h);
        }
    }
    link->lsdb.up_serial = ++lsdb->up_serial;
    via_list_push_back(&lsdb->up, &link->lsdb.up);
    join_parallel(node, link);
    via_routes_touch(node, link->lsdb.peer);
    lsdb->own_dirty = true;
}

void via_lsdb_link_down(struct via_node *node, struct via_link *link)
{
    via_list_remove(&link->lsdb.up);
    leave_parallel(node, link);
    via_routes_touch(node, link->lsdb.peer);
    link->lsdb.peer = VIA_HOST_NONE;
    link->lsdb.sending = VIA_HOST_NONE;
    void_taking(node, &link->lsdb);
    node->lsdb->own_dirty = true;
}

/* --- the announcement of this host ------------------------------------------------------------ */

/* Always less than VIA_LINK_STATE_SEQUENCE_MAX, because neighbours would regard an announcement
 * with that number as malformed. */
static uint64_t next_own_sequence(struct via_node *node, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    uint64_t sequence = lsdb->lsas[node->config.host].sequence + 1;

    if (via_lsa_is_high(sequence)) {
        /* the other hosts may have forgotten the greater number */
        sequence = via_max(sequence, lsdb->own_high + 1);
    }
    if (sequence >= VIA_LINK_STATE_SEQUENCE_MAX && !VIA_MUTANT(LAST_NUMBER)) {
        /* newer as soon as the other hosts have forgotten the last number */
        sequence = lsdb->own_low + 1;
    }
    if (via_lsa_is_high(sequence)) {
        lsdb->own_high = sequence;
        lsdb->own_high_ns = now_ns + VIA_LINK_STATE_FORGET_NS / 2 * 3;
    } else {
        lsdb->own_low = sequence;
    }
    return sequence;
}

/* The session of a host to which links are up. Of several links, the one that came up last has the
 * present session. */
static uint32_t session_behind(const struct via_node *node, uint16_t host)
{
    const struct via_link *link = &node->links[node->lsdb->local[host]], *latest = link;
    while (link->lsdb.next_parallel != VIA_PORT_NONE) {
        link = &node->links[link->lsdb.next_parallel];
        latest = link->lsdb.up_serial > latest->lsdb.up_serial ? link : latest;
    }
    return latest->peer_seen_session;
}

/*
 * Stores the next announcement of a host and takes the list over. Of a long one, keeps the change
 * for neighbours that have the announcement before it. change: NULL: this function computes it.
 */
static void store(struct via_node *node, uint16_t host, uint32_t session, uint64_t sequence,
                  struct via_lsa_list *list, const struct via_lsa_change *change)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_lsa *lsa = &lsdb->lsas[host];
    struct via_lsa_change found;
    uint64_t base = lsa->sequence;
    bool is_long = list->count > VIA_LINK_STATE_PART_NEIGHBOURS;

    if (change == NULL && is_long && session == via_lsa_session(lsa) && sequence > base &&
        via_lsa_find_changes(lsdb, lsa, sequence, list, &found)) {
        change = &found;
    }
    via_routes_unlink(node, host, change);
    via_lsa_store(lsdb, lsa, session, sequence, list);
    via_routes_link(node, host, change);
    if (change != NULL && is_long && change->count != 0 && base != 0) {
        lsa->base = base;
        lsdb->changes[host] = *change;
    }
}

/* True if these are the neighbours that this host has announced last. */
static bool is_as_announced(const struct via_node *node, const struct via_lsa_list *list)
{
    const struct via_lsa *own = &node->lsdb->lsas[node->config.host];
    return via_lsa_compare(node->lsdb, own, node->config.session, own->sequence, list) == 0;
}

static void announce(struct via_node *node, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    uint16_t me = node->config.host;
    struct via_lsa_list list;

    via_lsa_list_init(&list);
    for (uint16_t h = 0; !via_list_is_empty(&lsdb->up) && h < node->config.hosts_max; h++) {
        if (lsdb->local[h] != VIA_PORT_NONE) {
            via_lsa_list_append(lsdb, &list, h, session_behind(node, h));
        }
    }
    if (!lsdb->own_forced && is_as_announced(node, &list)) {
        via_lsa_list_free(lsdb, &list);
        return;
    }
    lsdb->own_forced = false;
    unsigned count = list.count;
    store(node, me, node->config.session, next_own_sequence(node, now_ns), &list, NULL);
    if (count > VIA_LINK_STATE_PART_NEIGHBOURS) {
        unsigned announced = lsdb->lsas[me].base != 0 ? lsdb->changes[me].count : count;
        lsdb->own_next_ns = now_ns + announced * PAUSE_NS_PER_NEIGHBOUR;
        lsdb->own_soon_ns =
            now_ns + via_min(announced, VIA_LINK_STATE_PART_NEIGHBOURS) * PAUSE_NS_PER_NEIGHBOUR;
    }
    mark_dirty_everywhere(node, me);
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Handles an announcement about this host: a copy of its own, or one of an earlier session, or a
 * false one. */
static void take_own(struct via_node *node, struct via_link *link,
                     const struct via_announcement *head, const struct via_lsa_list *list,
                     uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_lsa *own = &lsdb->lsas[node->config.host];

    if (head->sequence < own->sequence) {
        set_dirty(&link->lsdb, head->host);
    } else if (via_lsa_compare(lsdb, own, head->session, head->sequence, list) == 0) {
        mark_sent(link, head->host);
    } else if (head->sequence < VIA_LINK_STATE_SEQUENCE_MAX - 1 || VIA_MUTANT(LAST_NUMBER)) {
        /* Once for each own announcement, because several links may bring the same earlier one. */
        if (!lsdb->own_outnumbered && head->session != node->config.session) {
            via_lsa_mark_session(node, own, head->session, head->session, now_ns);
        }
        via_lsa_renumber(own, head->sequence);
        lsdb->own_outnumbered = true;
    }
    /* Otherwise it has the last number. The peer sends again when it has forgotten that number. */
}

static void take_newer(struct via_node *node, struct via_link *link,
                       const struct via_announcement *head, struct via_lsa_list *list,
                       const struct via_lsa_change *change, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_lsa *lsa = &lsdb->lsas[head->host];

    if (head->session != via_lsa_session(lsa)) {
        via_lsa_mark_session(node, lsa, head->session, via_lsa_session(lsa), now_ns);
    }
    store(node, head->host, head->session, head->sequence, list, change);
    lsa->by_itself = is_from_itself(link, head);
    if (via_lsa_is_high(head->sequence)) {
        lsa->forget_ns = now_ns + VIA_LINK_STATE_FORGET_NS;
        lsdb->forget_ns = via_min(lsdb->forget_ns, lsa->forget_ns);
    }
    send_on(node, link, head->host);
}

void via_lsdb_take(struct via_node *node, struct via_link *link,
                   const struct via_announcement *head, struct via_lsa_list *list,
                   const struct via_lsa_change *change, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_lsa *lsa = &lsdb->lsas[head->host];

    via_count(&lsdb->announcements_received, 1);
    if (head->host == node->config.host) {
        take_own(node, link, head, list, now_ns);
    } else if (!via_lsa_is_ignored(lsa, head->sequence, now_ns)) {
        int order = via_lsa_compare(lsdb, lsa, head->session, head->sequence, list);
        if (order < 0) {
            set_dirty(&link->lsdb, head->host);
        } else {
            mark_sent(link, head->host);
            lsa->by_itself |= is_from_itself(link, head);
        }
        if (order > 0) {
            take_newer(node, link, head, list, change, now_ns);
        }
    }
    via_lsa_list_free(lsdb, list);
}

static bool head_is_valid(const struct via_node *node, const struct via_announcement *head)
{
    return (head->kind == VIA_LINK_STATE_KIND || head->kind == VIA_LINK_STATE_CHANGE_KIND) &&
           head->host < node->config.hosts_max && head->session != 0 && head->sequence != 0 &&
           head->sequence < VIA_LINK_STATE_SEQUENCE_MAX &&
           head->neighbours_count < node->config.hosts_max;
}

/* True if the record is valid: as the first one of an announcement, or as the next one of an
 * announcement that has begun. */
static bool part_is_valid(const struct via_lsdb_link *link, const struct via_announcement *head,
                          uint32_t body_bytes)
{
    const struct via_announcement *begun = &link->taking;

    if (head->first != 0 &&
        (!link->is_taking || head->host != begun->host || head->session != begun->session ||
         head->sequence != begun->sequence || head->neighbours_count != begun->neighbours_count ||
         head->first != link->taken.count)) {
        return false;
    }
    return body_bytes == via_announcement_entries(head->neighbours_count, head->first) *
                             sizeof(struct via_announcement_neighbour);
}

/* Appends the neighbours of one record. False: they violate the protocol. */
static bool take_neighbours(struct via_node *node, struct via_lsdb_link *link,
                            const struct via_announcement *head,
                            const struct via_pipe_record *record)
{
    /* A private copy: the peer can still write the record. */
    struct via_announcement_neighbour entries[VIA_LINK_STATE_PART_NEIGHBOURS];
    unsigned count = record->body_bytes / sizeof(entries[0]);
    struct via_lsa_list *list = &link->taken;
    int last = -1;

    if (record->body_bytes != 0) {
        memcpy(entries, record->body, record->body_bytes);
    }
    if (list->count != 0) {
        const struct via_lsa_chunk *chunk = &node->lsdb->chunks[list->last];
        unsigned at = (list->count - 1u) % VIA_LSA_CHUNK_NEIGHBOURS;
        last = atomic_load_explicit(&chunk->hosts[at], memory_order_relaxed);
    }
    for (unsigned i = 0; i < count; i++) {
        if (entries[i].host >= node->config.hosts_max || entries[i].host <= last ||
            entries[i].host == head->host || entries[i].session == 0) {
            return false;
        }
        last = entries[i].host;
        via_lsa_list_append(node->lsdb, list, entries[i].host, entries[i].session);
    }
    return true;
}

/* Takes the body of a change as a private copy. False: it violates the protocol. */
static bool copy_change(const struct via_node *node, const struct via_announcement *head,
                        const struct via_pipe_record *record, uint64_t *ret_base,
                        struct via_lsa_change *ret_change)
{
    struct via_change change;
    uint32_t bytes = record->body_bytes;
    int last = -1;

    if (bytes <= sizeof(change) || bytes > sizeof(change) + sizeof(ret_change->entries) ||
        (bytes - sizeof(change)) % sizeof(ret_change->entries[0]) != 0) {
        return false;
    }
    const unsigned char *body = record->body;
    memcpy(&change, body, sizeof(change));
    memcpy(ret_change->entries, body + sizeof(change), bytes - sizeof(change));
    ret_change->digest = change.digest;
    ret_change->count = (unsigned)((bytes - sizeof(change)) / sizeof(ret_change->entries[0]));
    *ret_base = change.base;
    for (unsigned i = 0; i < ret_change->count; i++) {
        uint16_t host = ret_change->entries[i].host;
        if (host >= node->config.hosts_max || host <= last || host == head->host) {
            return false;
        }
        last = host;
    }
    return head->first == 0 && change.base != 0 && change.base < head->sequence;
}

/* True if the stored announcement is the result of this change. */
static bool is_as_stored(const struct via_lsdb *lsdb, const struct via_lsa *lsa,
                         const struct via_announcement *head, const struct via_lsa_change *change)
{
    return head->sequence == lsa->sequence && head->session == via_lsa_session(lsa) &&
           head->neighbours_count == via_lsa_neighbours_count(lsa) &&
           change->digest == via_lsa_digest(lsdb, lsa);
}

/*
 * Handles a change. A change of the stored announcement is equivalent to the whole new one. A
 * change of any other announcement is answered with the stored one. For the peer that is an older
 * announcement, or a different one, so the peer then sends the whole announcement. A change about
 * this host with a number that is not its own is false, or of an earlier session, whatever it
 * contains.
 */
static bool take_change(struct via_node *node, struct via_link *link,
                        const struct via_announcement *head, const struct via_pipe_record *record,
                        uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;
    struct via_lsa *lsa = &lsdb->lsas[head->host];
    struct via_lsa_change change;
    struct via_lsa_list list;
    uint64_t base;

    if (!copy_change(node, head, record, &base, &change)) {
        return false;
    }
    if (base == lsa->sequence && head->session == via_lsa_session(lsa) &&
        via_lsa_apply(lsdb, lsa, head->sequence, &change, &list)) {
        if (list.count != head->neighbours_count) {
            via_lsa_list_free(lsdb, &list);
            return false;
        }
        via_lsdb_take(node, link, head, &list, &change, now_ns);
    } else if (is_as_stored(lsdb, lsa, head, &change)) {
        via_count(&lsdb->announcements_received, 1);
        mark_sent(link, head->host);
    } else if (via_lsa_session(lsa) != 0 && !via_lsa_is_ignored(lsa, head->sequence, now_ns)) {
        via_count(&lsdb->announcements_received, 1);
        set_dirty(&link->lsdb, head->host);
    }
    return true;
}

/* Handles one record. False: it violates the protocol. */
static bool take_record(struct via_node *node, struct via_link *link,
                        const struct via_pipe_record *record, uint64_t now_ns)
{
    struct via_lsdb_link *state = &link->lsdb;
    struct via_announcement head;

    memcpy(&head, record->head, sizeof(head));
    if (!head_is_valid(node, &head)) {
        return false;
    }
    if (head.kind == VIA_LINK_STATE_CHANGE_KIND) {
        void_taking(node, state);
        return take_change(node, link, &head, record, now_ns);
    }
    if (!part_is_valid(state, &head, record->body_bytes)) {
        return false;
    }
    if (head.first == 0) {
        void_taking(node, state);
        via_lsa_list_init(&state->taken);
        state->taking = head;
        state->is_taking = true;
    }
    if (!take_neighbours(node, state, &head, record)) {
        return false;
    }
    if (state->taken.count == head.neighbours_count) {
        state->is_taking = false;
        via_lsdb_take(node, link, &state->taking, &state->taken, NULL, now_ns);
    }
    return true;
}

int via_lsdb_receive(struct via_node *node, struct via_link *link, uint64_t now_ns)
{
    struct via_pipe_reader *reader = &link->control_rx;
    struct via_pipe_record record;
    unsigned taken;

    for (taken = 0; taken < RECORDS_PER_TURN; taken++) {
        int rc = via_pipe_take(reader, &record);
        if (rc == 0) {
            break;
        }
        if (rc < 0 || !take_record(node, link, &record, now_ns)) {
            return -EPROTO;
        }
        via_pipe_release(reader, 1);
    }
    if (taken != 0) {
        via_control_pipe_taken(link);
    }
    return 0;
}

/* --- sending --------------------------------------------------------------------------------- */

/* Begins to send the announcement of a host. */
static void begin_sending(const struct via_node *node, struct via_lsdb_link *link, uint16_t host)
{
    const struct via_lsa *lsa = &node->lsdb->lsas[host];

    clear_dirty(link, host);
    link->sending = host;
    link->sending_version = atomic_load_explicit(&lsa->version, memory_order_relaxed);
    via_neighbours_of(node->lsdb, lsa, &link->sending_rest);
}

static void send_record(const struct via_node *node, struct via_link *link)
{
    struct via_lsdb_link *state = &link->lsdb;
    const struct via_lsa *lsa = &node->lsdb->lsas[state->sending];
    struct via_announcement_neighbour entries[VIA_LINK_STATE_PART_NEIGHBOURS];
    unsigned count = via_lsa_neighbours_count(lsa);
    struct via_announcement head = {
        .kind = VIA_LINK_STATE_KIND,
        .host = state->sending,
        .session = via_lsa_session(lsa),
        .sequence = lsa->sequence,
        .neighbours_count = (uint16_t)count,
        .first = (uint16_t)(count - state->sending_rest.count),
    };
    unsigned here = via_announcement_entries(count, head.first);

    for (unsigned i = 0; i < here && via_neighbours_next(&state->sending_rest); i++) {
        entries[i] = (struct via_announcement_neighbour){
            .host = state->sending_rest.host,
            .session = state->sending_rest.session,
        };
    }
    /* The caller has checked for room; the next poll of the link detects a broken pipe. */
    (void)via_pipe_send(&link->control_tx, &head, sizeof(head), entries, here * sizeof(entries[0]));
    via_count(&node->lsdb->announcement_bytes_sent, sizeof(head) + here * sizeof(entries[0]));
    if (state->sending_rest.count == 0) {
        state->sending = VIA_HOST_NONE;
        via_count(&node->lsdb->announcements_sent, 1);
    }
}

/* Sends the last change of an announcement to a peer that has the one before it. */
static void send_change(const struct via_node *node, struct via_link *link, uint16_t host)
{
    const struct via_lsa *lsa = &node->lsdb->lsas[host];
    const struct via_lsa_change *change = &node->lsdb->changes[host];
    struct {
        struct via_change change;
        struct via_announcement_neighbour entries[VIA_LINK_STATE_CHANGE_NEIGHBOURS];
    } body = {.change = {.base = lsa->base, .digest = change->digest}};
    struct via_announcement head = {
        .kind = VIA_LINK_STATE_CHANGE_KIND,
        .host = host,
        .session = via_lsa_session(lsa),
        .sequence = lsa->sequence,
        .neighbours_count = (uint16_t)via_lsa_neighbours_count(lsa),
    };
    size_t bytes = change->count * sizeof(body.entries[0]);

    clear_dirty(&link->lsdb, host);
    memcpy(body.entries, change->entries, bytes);
    (void)via_pipe_send(&link->control_tx, &head, sizeof(head), &body, sizeof(body.change) + bytes);
    via_count(&node->lsdb->announcement_bytes_sent, sizeof(head) + sizeof(body.change) + bytes);
    via_count(&node->lsdb->announcements_sent, 1);
}

/* Sends one record of the next announcement. */
static void send_next(struct via_node *node, struct via_link *link)
{
    struct via_lsdb_link *state = &link->lsdb;

    if (state->sending == VIA_HOST_NONE) {
        uint16_t host = next_dirty(state, node->config.hosts_max);
        if (node->lsdb->lsas[host].base != 0 && !has_bit(state->whole, host)) {
            send_change(node, link, host);
            return;
        }
        begin_sending(node, state, host);
    }
    send_record(node, link);
}

void via_lsdb_send(struct via_node *node, struct via_link *link)
{
    struct via_lsdb_link *state = &link->lsdb;
    bool sent = false;

    while (via_lsdb_has_to_send(state) && via_pipe_writer_room(&link->control_tx) != 0) {
        if (state->sending != VIA_HOST_NONE &&
            state->sending_version !=
                atomic_load_explicit(&node->lsdb->lsas[state->sending].version,
                                     memory_order_relaxed)) {
            /* a newer one was stored, and has its own bit if the peer needs it */
            state->sending = VIA_HOST_NONE;
            continue;
        }
        send_next(node, link);
        sent = true;
    }
    if (sent) {
        via_control_pipe_sent(link);
    }
}

/* --- high numbers ---------------------------------------------------------------------------- */

/* Forgets high sequence numbers; the contents of the announcements stay. See
 * VIA_LINK_STATE_SEQUENCE_HIGH. */
static void forget_high_numbers(struct via_node *node, uint64_t now_ns)
{
    struct via_lsdb *lsdb = node->lsdb;

    if (now_ns < lsdb->forget_ns) {
        return;
    }
    lsdb->forget_ns = VIA_NEVER_NS;
    for (unsigned h = 0; h < node->config.hosts_max; h++) {
        struct via_lsa *lsa = &lsdb->lsas[h];
        if (h == node->config.host || !via_lsa_is_high(lsa->sequence)) {
            continue;
        }
        if (now_ns >= lsa->forget_ns) {
            via_lsa_forget_number(lsa, now_ns);
            /* peers that have a newer announcement send it */
            mark_dirty_everywhere(node, (uint16_t)h);
        } else {
            lsdb->forget_ns = via_min(lsdb->forget_ns, lsa->forget_ns);
        }
    }
}

/* Decides whether this host must repeat its announcement although its neighbours have not
 * changed. */
static void update_own(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_lsdb *lsdb = node->lsdb;

    if (lsdb->own_outnumbered) {
        /* A limit on the rate, because two live hosts with one id would outnumber each other at
         * full speed. */
        uint64_t next = lsdb->own_sequence_ns + node->config.heartbeat_ns;
        if (lsdb->own_sequence_ns == 0 || now_ns >= next) {
            lsdb->own_outnumbered = false;
            lsdb->own_dirty = true;
            lsdb->own_forced = true;
            lsdb->own_sequence_ns = now_ns;
        } else {
            *ret_deadline_ns = via_min(*ret_deadline_ns, next);
        }
    }
    if (now_ns >= lsdb->own_high_ns) {
        lsdb->own_high_ns = VIA_NEVER_NS;
        via_lsa_renumber(&lsdb->lsas[node->config.host], lsdb->own_low);
        lsdb->own_dirty = true;
        lsdb->own_forced = true;
    }
}

void via_lsdb_update(struct via_node *node, uint64_t now_ns, uint64_t *ret_deadline_ns)
{
    struct via_lsdb *lsdb = node->lsdb;

    forget_high_numbers(node, now_ns);
    update_own(node, now_ns, ret_deadline_ns);
    if (lsdb->own_dirty &&
        (now_ns >= lsdb->own_next_ns || (now_ns >= lsdb->own_soon_ns && is_sent_to_all(node)))) {
        lsdb->own_dirty = false;
        announce(node, now_ns);
    } else if (lsdb->own_dirty) {
        *ret_deadline_ns = via_min(
            *ret_deadline_ns, now_ns < lsdb->own_soon_ns ? lsdb->own_soon_ns : lsdb->own_next_ns);
    }
    via_routes_update(node, now_ns, ret_deadline_ns);
    *ret_deadline_ns = via_min(*ret_deadline_ns, via_min(lsdb->forget_ns, lsdb->own_high_ns));
}
