/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * checkpoint.c - making durable what is known of directories.
 *
 * The order is everything: first the stamps are snapshotted, each under its directory's lock
 * with no change in flight; then names and table are synced, which hold at least what each
 * stamp stands for; then the snapshots are written to dirs and synced.  Whenever the power
 * fails, each entry on disk is backed by names that are at least as new.
 *
 * What is written of a directory: complete, settled, and its stamp old enough: proven.
 * Complete, but a later change could still carry the same stamp: it waits for the next
 * checkpoint.  Else its key and scan number, so that a scan can mark in place.
 *
 * A directory that is busy (its lock held, perhaps in a stat that blocks; a change in flight)
 * waits for the next checkpoint too.  A checkpoint that fails leaves all of them dirty.
 */
#include "index/internal.h"

#include <utlist.h>

#include "log.h"

/* A change of others moves the stamp a moment before it can be told (index_changed_behind):
 * when a stamp is this old, whatever moved it has been. */
#define TOLD_WITHIN_NS INT64_C(50000000)

/* What becomes of a dirty directory. */
enum verdict {
    VERDICT_NOTHING, /* nothing to write */
    VERDICT_WRITE,   /* dir->snap is to be written */
    VERDICT_WAIT,    /* at the next checkpoint */
};

static void fill_snap(struct index_dir *dir, uint64_t epoch, uint64_t kind)
{
    struct index_stamp stamp;

    dir_load_stamp(dir, &stamp);
    dir->snap = (struct dirs_entry){
        .key = atomic_load(&dir->key),
        .scan = atomic_load(&dir->scan_number),
        .epoch = kind == ENTRY_PROVEN ? dir->stamp_number : epoch,
        .doubts = dir_doubts(dir),
        .stamp = {stamp.ctime_ns, stamp.mtime_ns, stamp.size, stamp.btime_ns},
        .kind = kind,
    };
    memcpy(dir->snap.id, dir->id_hash, sizeof(dir->snap.id));
}

static enum verdict judge(struct index_dir *dir, uint64_t epoch, enum checkpoint_kind kind)
{
    bool complete = atomic_load(&dir->complete) && atomic_load(&dir->n_suspects) == 0;
    bool unsettled = atomic_load(&dir->unsettled);
    bool busy = atomic_load(&dir->in_flight) > 0;
    struct index_stamp stamp;

    if (busy && kind != CHECKPOINT_CLOSING)
        return VERDICT_WAIT;
    dir_load_stamp(dir, &stamp);
    int64_t age = dir->granularity_ns;
    if (atomic_load(&dir->watched) && kind != CHECKPOINT_CLOSING && age < TOLD_WITHIN_NS)
        age = TOLD_WITHIN_NS;
    bool young = stamp_young(stamp.ctime_ns, age, dir->index->now());
    if (complete && young && !busy && kind != CHECKPOINT_CLOSING)
        return VERDICT_WAIT;
    if (complete && !unsettled && !young && !busy) {
        fill_snap(dir, epoch, ENTRY_PROVEN);
        dir->has_entry = true;
        dir->forgotten = false;
        return VERDICT_WRITE;
    }
    if (dir->used || (dir->has_entry && !dir->forgotten)) {
        fill_snap(dir, epoch, ENTRY_STALE);
        dir->has_entry = true;
        dir->forgotten = false;
        return VERDICT_WRITE;
    }
    if (!dir->forgotten)
        return VERDICT_NOTHING;
    fill_snap(dir, epoch, ENTRY_DELETED);
    dir->has_entry = dir->forgotten = false;
    return VERDICT_WRITE;
}

static enum verdict snapshot(struct index_dir *dir, uint64_t epoch, enum checkpoint_kind kind)
{
    if (kind == CHECKPOINT_CLOSING)
        pthread_mutex_lock(&dir->lock);
    else if (pthread_mutex_trylock(&dir->lock) != 0)
        return VERDICT_WAIT;
    enum verdict verdict = judge(dir, epoch, kind);
    pthread_mutex_unlock(&dir->lock);
    return verdict;
}

/* Takes all dirty directories into a list of their own. */
static struct index_dir *take_dirty(struct index *index)
{
    LOCK_FOR_SCOPE(&index->dirty_lock);
    struct index_dir *dir, *rest, *list = NULL;

    DL_FOREACH_SAFE (index->dirty, dir, rest) {
        dir->is_dirty = false;
        dir->is_snapped = true;
        dir->snap_next = list;
        list = dir;
    }
    index->dirty = NULL;
    return list;
}

int checkpoint_snapshot(struct index *index, enum checkpoint_kind kind, uint64_t *ret_epoch,
                        struct index_dir **ret_list)
{
    struct index_dir *list = NULL, *next;
    uint64_t epoch;

    if (index->settle)
        index->settle(index->settle_ctx);
    int r = number_next(index, &epoch);
    if (r < 0)
        return r;
    for (struct index_dir *dir = take_dirty(index); dir; dir = next) {
        next = dir->snap_next;
        enum verdict verdict = snapshot(dir, epoch, kind);
        if (verdict == VERDICT_WRITE) {
            dir->snap_next = list;
            list = dir;
            continue;
        }
        if (verdict == VERDICT_WAIT)
            dir_mark_dirty(dir);
        dir_collect(dir);
    }
    *ret_epoch = epoch;
    *ret_list = list;
    return 0;
}

int checkpoint_write(struct index *index, const struct index_dir *list, struct cold *lasting)
{
    for (const struct index_dir *dir = list; dir; dir = dir->snap_next) {
        int r = cold_put(dir->persist ? lasting : &index->unlasting, &dir->snap);

        if (r < 0)
            return r;
    }
    return list ? cold_sync(lasting) : 0;
}

void checkpoint_done(struct index *index, struct index_dir *list, int result)
{
    struct index_dir *next;

    for (struct index_dir *dir = list; dir; dir = next) {
        next = dir->snap_next;
        if (result < 0) {
            LOCK_FOR_SCOPE(&dir->lock);
            if (dir->snap.kind == ENTRY_DELETED)
                dir->forgotten = true;
            dir->has_entry = true;
            dir_mark_dirty(dir);
        }
        dir_collect(dir);
    }
    if (result == 0) {
        atomic_fetch_add(&index->checkpoints, 1);
        index->checkpoint_failure_said = false;
    } else if (!index->checkpoint_failure_said) {
        index->checkpoint_failure_said = true;
        errno = -result;
        log_line(LOG_ERR, "index: checkpoint failed (%m): what it would have kept is scanned "
                          "again after a restart");
    }
}

int checkpoint_run(struct index *index, enum checkpoint_kind kind)
{
    struct index_dir *list = NULL;
    uint64_t epoch;
    int r = checkpoint_snapshot(index, kind, &epoch, &list);

    if (r == 0) {
        /* checkpoint_lock keeps this generation in use, but not the view that leads to it. */
        unsigned ticket = grace_enter(&index->grace);
        struct gen *gen = atomic_load(&index->view)->cur;

        grace_exit(&index->grace, ticket);
        if (atomic_exchange(&index->touched, false) || list)
            r = gen_sync(gen, epoch);
        if (r == 0)
            r = checkpoint_write(index, list, &gen->dirs);
        if (r < 0)
            atomic_store(&index->touched, true);
    }
    checkpoint_done(index, list, r);
    return r;
}

static bool nothing_to_do(struct index *index)
{
    LOCK_FOR_SCOPE(&index->dirty_lock);

    return !index->dirty && !atomic_load(&index->touched);
}

int index_checkpoint(struct index *index)
{
    LOCK_FOR_SCOPE(&index->checkpoint_lock);

    if (nothing_to_do(index)) {
        atomic_fetch_add(&index->checkpoints, 1);
        return 0;
    }
    return checkpoint_run(index, CHECKPOINT_RUNNING);
}

void *checkpoint_thread(void *arg)
{
    struct index *index = arg;

    while (worker_wait(&index->checkpointer, index->checkpoint_s)) {
        number_reserve_ahead(index);
        (void)index_checkpoint(index);
    }
    return NULL;
}
