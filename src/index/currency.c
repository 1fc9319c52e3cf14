/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * currency.c - may an answer rest on what the index holds of a directory?
 *
 * The stamp of the moment when the directory was complete is compared with the present one.
 * Three things make that less simple:
 *
 * Changes of ours move the stamp.  They are counted while in flight; the first compares the
 * stamp before it changes anything, the last takes the new one, both under the directory's
 * lock, so that what others did in between two of them is noticed.
 *
 * Coarse time.  Where two changes within GRANULARITY can carry the same ctime, a stamp younger
 * than that proves nothing about what comes next, and neither does one that we took after a
 * change of our own, which may hide another's.  Such a directory is unsettled: trusted for
 * the moment; when the stamp is old enough it is incomplete once, and the scan settles it, so
 * that only directories that change all the time are scanned repeatedly, for at most a
 * twentieth of the time.  A ctime in the future is always young.
 *
 * Watched directories: what others change is told (index_changed_behind), so none of this hides
 * anything.  Once the stamp was found to hold it decides nothing any more, and is only taken
 * for the checkpoint: after changes of ours, and when what others changed has been mended.
 *
 * Check takes no lock: it reads under dir->seq, and calls STAT between two looks at it.  If
 * changes of ours began or ended meanwhile it looks again; after a few times it takes their
 * own comparisons for its proof.
 */
#include "index/internal.h"

/* Looks before the comparisons that changes of ours made count as proof. */
#define LOOKS_MAX 3

/* A scan for settling may cost one part in this many of the time: 5 %. */
#define SETTLE_SHARE 20

/* What check needs, read at one moment. */
struct moment {
    uint64_t seq;
    bool complete;
    bool unsettled;
    bool confirmed; /* and watched */
    unsigned in_flight;
    struct index_stamp stamp;
};

bool dir_is_confirmed(struct index_dir *dir)
{
    return atomic_load(&dir->watched) && atomic_load(&dir->confirmed);
}

static void read_moment(struct index_dir *dir, struct moment *ret_moment)
{
    for (;;) {
        ret_moment->seq = atomic_load_explicit(&dir->seq, memory_order_acquire);
        ret_moment->complete = atomic_load_explicit(&dir->complete, memory_order_acquire);
        ret_moment->unsettled = atomic_load_explicit(&dir->unsettled, memory_order_acquire);
        ret_moment->confirmed = dir_is_confirmed(dir);
        ret_moment->in_flight = atomic_load_explicit(&dir->in_flight, memory_order_acquire);
        dir_load_stamp(dir, &ret_moment->stamp);
        if (!(ret_moment->seq & 1) &&
            atomic_load_explicit(&dir->seq, memory_order_relaxed) == ret_moment->seq)
            return;
    }
}

/* Makes DIR incomplete unless something happened to it since SEQ; true if it is now. */
static bool void_since(struct index_dir *dir, uint64_t seq)
{
    LOCK_FOR_SCOPE(&dir->lock);

    if (atomic_load(&dir->seq) != seq)
        return false;
    atomic_store(&dir->complete, false);
    return true;
}

/* Is it time to scan the unsettled directory?  The stamp holds. */
static bool settle_is_due(struct index_dir *dir, const struct moment *m)
{
    int64_t now = dir->index->now();

    if (stamp_young(m->stamp.ctime_ns, dir->granularity_ns, now))
        return false;
    LOCK_FOR_SCOPE(&dir->lock);
    int64_t since = now - dir->scan_end_ns;
    return since < 0 || since / (SETTLE_SHARE - 1) >= dir->scan_cost_ns;
}

/* The stamp was found to hold, not to be looked at again if DIR is watched. */
static void confirm(struct index_dir *dir)
{
    if (atomic_load_explicit(&dir->watched, memory_order_relaxed))
        atomic_store(&dir->confirmed, true);
}

int index_dir_check(struct index_dir *dir, index_stat_fn stat, void *ctx)
{
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        struct index_stamp present;
        struct moment m;

        read_moment(dir, &m);
        if (!m.complete)
            return INDEX_STALE;
        if (m.in_flight > 0 || m.confirmed)
            return INDEX_CURRENT;
        int r = stat(ctx, &present);
        if (r < 0)
            return r;
        if (atomic_load_explicit(&dir->seq, memory_order_acquire) != m.seq)
            continue;
        bool equal = stamp_equal(&present, &m.stamp);
        if (equal && (!m.unsettled || !settle_is_due(dir, &m))) {
            confirm(dir);
            return atomic_load(&dir->complete) ? INDEX_CURRENT : INDEX_STALE;
        }
        if (void_since(dir, m.seq))
            return INDEX_STALE;
    }
    return atomic_load(&dir->complete) ? INDEX_CURRENT : INDEX_STALE;
}

void index_dir_void(struct index_dir *dir)
{
    atomic_store(&dir->complete, false);
}

/* The first change of ours in flight begins while SCAN runs, and finds PRESENT. */
static void tell_scan(struct index_scan *scan, int stat_result,
                      const struct index_stamp *present, bool mismatch)
{
    if (stat_result < 0) {
        scan->foreign = true; /* for all we know */
    } else if (!scan->changed) {
        scan->first = *present;
        scan->has_first = true;
    } else if (mismatch) {
        scan->foreign = true; /* since the last change of ours */
    }
}

/* The first change in flight looks whether the stamp still holds; false: it does not. */
static bool still_holds(struct index_dir *dir, index_stat_fn stat, void *ctx)
{
    struct index_stamp present = {0}, expected;

    dir_load_stamp(dir, &expected);
    dir->begin_stamp = expected;
    bool told = !dir->scan && dir_is_confirmed(dir);
    if (told && dir->granularity_ns == 0)
        return true;
    int r = stat(ctx, &present);
    bool holds = r == 0 && (told || stamp_equal(&present, &expected));
    dir->begin_stamp = present;
    if (holds)
        confirm(dir);
    if (dir->scan)
        tell_scan(dir->scan, r, &present, !holds);
    return holds;
}

void index_begin_change(struct index_dir *dir, index_stat_fn stat, void *ctx)
{
    LOCK_FOR_SCOPE(&dir->lock);
    unsigned others = atomic_load(&dir->in_flight);
    bool holds = true;

    if (others == 0) {
        holds = still_holds(dir, stat, ctx);
        dir->begin_number = dir->stamp_number;
        if (dir->granularity_ns > 0)
            (void)number_next(dir->index, &dir->begin_number);
    }
    if (dir->scan)
        dir->scan->changed = true;
    dir_write_begin(dir);
    if (!holds)
        atomic_store(&dir->complete, false);
    atomic_store_explicit(&dir->in_flight, others + 1, memory_order_release);
    dir_write_end(dir);
}

/* The change that is ending leaves the stamp PRESENT: which removals does it cover?  With exact
 * time all so far.  In coarse time those of before the tick that it names: of the others, the
 * tree may come back from a power loss with this very stamp and without some. */
static uint64_t covered_by(const struct index_dir *dir, const struct index_stamp *present,
                           uint64_t number_now)
{
    if (dir->granularity_ns == 0)
        return number_now;
    return present->ctime_ns != dir->begin_stamp.ctime_ns ? dir->begin_number
                                                          : dir->stamp_number;
}

void index_end_change(struct index_dir *dir, index_stat_fn stat, void *ctx)
{
    LOCK_FOR_SCOPE(&dir->lock);
    unsigned others = atomic_load(&dir->in_flight) - 1;
    bool unsettled = atomic_load(&dir->unsettled);
    struct index_stamp present;
    uint64_t number = dir->stamp_number;
    int r = 0;

    if (others == 0) {
        /* If none can be had, the old one stays, which only puts more in doubt. */
        if (dir->granularity_ns == 0)
            (void)number_next(dir->index, &number);
        r = stat(ctx, &present);
    }
    dir_write_begin(dir);
    if (others == 0 && r == 0) {
        if (!stamp_equal(&present, &dir->begin_stamp))
            unsettled = !atomic_load(&dir->watched) &&
                        (dir->granularity_ns > 0 ||
                         stamp_young(present.ctime_ns, 0, dir->index->now()));
        dir->stamp_number = covered_by(dir, &present, number);
        dir_store_stamp(dir, &present, unsettled);
    }
    if (r < 0)
        atomic_store(&dir->complete, false);
    atomic_store_explicit(&dir->in_flight, others, memory_order_release);
    dir_write_end(dir);
    if (others == 0)
        dir_mark_dirty(dir);
}
