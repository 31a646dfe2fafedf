/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Intrusive doubly linked list. A struct via_list is the head of a list or a member of one. A
 * member that is in no list points to itself, so removing it again is harmless.
 */
#ifndef VIA_BASE_LIST_H
#define VIA_BASE_LIST_H

#include "base/types.h"

struct via_list {
    struct via_list *next;
    struct via_list *prev;
};

/* For heads, and for members before their first use in remove or is_linked. */
static inline void via_list_init(struct via_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool via_list_is_empty(const struct via_list *head)
{
    return head->next == head;
}

static inline bool via_list_is_linked(const struct via_list *member)
{
    return member->next != member;
}

static inline void via_list_insert_after(struct via_list *place, struct via_list *member)
{
    member->next = place->next;
    member->prev = place;
    place->next->prev = member;
    place->next = member;
}

static inline void via_list_push_front(struct via_list *head, struct via_list *member)
{
    via_list_insert_after(head, member);
}

static inline void via_list_push_back(struct via_list *head, struct via_list *member)
{
    via_list_insert_after(head->prev, member);
}

static inline void via_list_remove(struct via_list *member)
{
    member->next->prev = member->prev;
    member->prev->next = member->next;
    via_list_init(member);
}

/* NULL if there is none. */
static inline struct via_list *via_list_first(const struct via_list *head)
{
    return via_list_is_empty(head) ? NULL : head->next;
}

static inline struct via_list *via_list_pop_front(struct via_list *head)
{
    struct via_list *member = via_list_first(head);

    if (member)
        via_list_remove(member);
    return member;
}

/* Moves all members of `from` to the end of `to`. */
static inline void via_list_splice_back(struct via_list *to, struct via_list *from)
{
    if (via_list_is_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    via_list_init(from);
}

#define via_list_entry(member_pointer, type, member) via_container_of(member_pointer, type, member)

/* struct via_list *it. The list must not change in the body. */
#define via_list_foreach(it, head) \
    for (struct via_list *it = (head)->next; it != (head); it = it->next)

/* The body may remove `it`, and nothing else. */
#define via_list_foreach_safe(it, head)                                           \
    for (struct via_list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)

#endif
