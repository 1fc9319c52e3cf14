/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * scan.c - reading a whole directory into the index.
 *
 * A scan has a number, the newest there is when it begins.  What it sees it marks with that
 * number, in place where there is a record; at its end the directory's scan number becomes its
 * own, and every record with a smaller one ceases to count, without being touched.  A change
 * made meanwhile stores the newest number, which is not smaller: so it overrules the scan,
 * whichever of the two comes first, and a scan that is given up has harmed nothing.
 *
 * One scan of a directory at a time; who comes second waits for its end.
 *
 * Lock order: dir->lock, then index->scan_lock (which only guards the waiting).
 */
#include "index/internal.h"

/* Ends the wait of others; the caller holds dir->lock. */
static void detach(struct index_scan *scan)
{
    struct index_dir *dir = scan->dir;
    struct index *index = dir->index;

    dir->scan_end_ns = index->now();
    dir->scan_cost_ns = monotonic_ns() - scan->began_monotonic_ns;
    LOCK_FOR_SCOPE(&index->scan_lock);
    dir->scan = NULL;
    atomic_store(&dir->scanning, 0);
    pthread_cond_broadcast(&index->scan_ended);
}

/* Waits for the end of the scan that is running: true if there was one. */
static bool wait_for_other(struct index_dir *dir)
{
    struct index *index = dir->index;
    bool waited = false;

    LOCK_FOR_SCOPE(&index->scan_lock);
    while (atomic_load(&dir->scanning) != 0) {
        waited = true;
        pthread_cond_wait(&index->scan_ended, &index->scan_lock);
    }
    return waited;
}

/* A directory for which no key could be had may get one now. */
static int ensure_key(struct index_dir *dir)
{
    uint64_t key;

    if (atomic_load(&dir->key) != 0)
        return 0;
    int r = number_next(dir->index, &key);
    if (r == 0)
        atomic_store(&dir->key, key);
    return r;
}

int index_scan_begin(struct index_dir *dir, struct index_scan **ret_scan)
{
    CLEANUP_FREE struct index_scan *scan = calloc(1, sizeof(*scan));
    struct index *index = dir->index;

    if (!scan)
        return -ENOMEM;
    if (wait_for_other(dir)) {
        *ret_scan = NULL;
        return 0;
    }
    LOCK_FOR_SCOPE(&dir->lock);
    if (dir->scan) { /* another was quicker: as if it had been here first */
        pthread_mutex_unlock(&dir->lock);
        (void)wait_for_other(dir);
        pthread_mutex_lock(&dir->lock);
        *ret_scan = NULL;
        return 0;
    }
    if (ensure_key(dir) < 0 || number_next(index, &scan->number) < 0)
        return -ENOSPC;
    scan->dir = dir;
    scan->key = atomic_load(&dir->key);
    scan->lost = atomic_load(&dir->lost);
    scan->began_ns = index->now();
    scan->began_monotonic_ns = monotonic_ns();
    scan->changed = atomic_load(&dir->in_flight) > 0;
    scan->watched = atomic_load(&dir->watched);
    dir->used = true;
    dir->scan = scan;
    atomic_store(&dir->scanning, scan->number);
    *ret_scan = STEAL_PTR(scan);
    return 0;
}

int index_scan_add(struct index_scan *scan, const char *name, size_t len)
{
    const struct change change = {.what = UPDATE_SCAN, .scan = scan->number};

    return names_tell(scan->dir, scan->key, name, len, &change);
}

/* The scan has seen everything: what the directory is from now on. */
static void complete(struct index_scan *scan, const struct index_stamp *after)
{
    struct index_dir *dir = scan->dir;
    struct index_stamp stamp = *after;
    bool unsettled;

    if (scan->changed) {
        /* The last change of ours took the stamp; if AFTER differs, it is older or others
         * were there since, which the next check sees. */
        dir_load_stamp(dir, &stamp);
        unsettled =
            dir->granularity_ns > 0 || stamp_young(stamp.ctime_ns, 0, dir->index->now());
    } else {
        struct index_stamp old;

        unsettled = stamp_young(stamp.ctime_ns, dir->granularity_ns, scan->began_ns);
        /* Coarse time: see index_end_change(). */
        dir_load_stamp(dir, &old);
        if (dir->granularity_ns == 0 || old.ctime_ns != stamp.ctime_ns)
            dir->stamp_number = scan->number;
    }
    bool watched = atomic_load(&dir->watched);
    dir_write_begin(dir);
    dir_store_stamp(dir, &stamp, unsettled && !watched);
    atomic_store(&dir->confirmed, watched);
    dir_set_doubts(dir, &(struct doubts){0});
    atomic_store(&dir->scan_number, scan->number);
    atomic_store(&dir->complete, true);
    dir_write_end(dir);
}

/* Did others move the stamp between BEFORE and AFTER, while no change of ours was in flight?
 * Between two changes of ours, index_begin_change() has seen it.  Before the first of them
 * BEFORE, unless it was read later, must be what that one found; after the last one AFTER,
 * unless it was read earlier, must be what that one left: ctime tells which was earlier. */
static bool others_were_there(const struct index_scan *scan, const struct index_stamp *before,
                              const struct index_stamp *after)
{
    struct index_stamp last;

    if (scan->watched && atomic_load(&scan->dir->watched))
        return false; /* they were, perhaps, but what they changed is told */
    if (!scan->changed)
        return !stamp_equal(before, after);
    if (scan->foreign)
        return true;
    if (scan->has_first && before->ctime_ns < scan->first.ctime_ns)
        return true;
    if (atomic_load(&scan->dir->in_flight) > 0)
        return false;
    dir_load_stamp(scan->dir, &last);
    return after->ctime_ns > last.ctime_ns;
}

int index_scan_commit(struct index_scan *scan, const struct index_stamp *before,
                      const struct index_stamp *after)
{
    struct index_dir *dir = scan->dir;
    int r = -EAGAIN;

    pthread_mutex_lock(&dir->lock);
    if (!others_were_there(scan, before, after) && atomic_load(&dir->lost) == scan->lost) {
        complete(scan, after);
        /* Lost since then? dir_lose() counts first and then clears. */
        if (atomic_load(&dir->lost) == scan->lost)
            r = 0;
        else
            atomic_store(&dir->complete, false);
    }
    detach(scan);
    pthread_mutex_unlock(&dir->lock);
    if (r == 0) {
        atomic_fetch_add(&dir->index->scans, 1);
        dir_mark_dirty(dir);
    }
    free(scan);
    return r;
}

void index_scan_abort(struct index_scan *scan)
{
    struct index_dir *dir = scan->dir;

    pthread_mutex_lock(&dir->lock);
    detach(scan);
    pthread_mutex_unlock(&dir->lock);
    free(scan);
}
