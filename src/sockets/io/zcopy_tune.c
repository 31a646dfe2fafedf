/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What this process has measured about copying and fetching. */

#include "sockets/io/zcopy.h"
#include "sockets/process/lock.h"

static struct via_mutex lock = VIA_MUTEX_INIT(VIA_RANK_LAST);
static bool ready;
static struct via_zcopy_choice choices[VIA_ZCOPY_SIZES];

/* Takes the lock. False: another thread holds it, or held it when this process was forked. */
static bool enter(void)
{
    if (!via_try_lock(&lock)) {
        return false;
    }
    if (!ready) {
        via_zcopy_begin(choices);
        ready = true;
    }
    return true;
}

bool via_zcopy_is_fetching(size_t bytes, bool *ret_counts)
{
    VIA_KEEP_ERRNO;
    bool fetches = false;
    *ret_counts = false;
    if (enter()) {
        struct via_zcopy_choice *choice = &choices[via_zcopy_size(bytes)];
        fetches = via_zcopy_choose(choice);
        *ret_counts = via_zcopy_is_measured(choice);
        via_unlock(&lock);
    }
    return fetches;
}

void via_zcopy_note_duration(size_t bytes, bool fetched, uint64_t ticks)
{
    VIA_KEEP_ERRNO;
    if (enter()) {
        via_zcopy_learn(&choices[via_zcopy_size(bytes)], fetched, bytes, ticks);
        via_unlock(&lock);
    }
}
