/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * rebuild.c - a new generation with what counts: for more room, against garbage and damage.
 *
 * 1. A checkpoint, so that the durable entries need few old records (known.c).
 * 2. The new generation is published beside the one in use; from the end of a grace period on
 *    every writer tells both.
 * 3. The records that were there then are walked through in the order in which they were
 *    written, which keeps a directory's names together.  One that its slot or chain leads to,
 *    and that somebody needs, is told to the new generation under its stripe, unless a writer
 *    has told it something newer.
 * 4. Under the checkpoint lock: entries and fresh snapshots go into the new dirs, everything is
 *    synced, the manifest is renamed.  Then readers are switched over, and after a grace period
 *    the old generation goes.
 *
 * Damage.  A slot that is invalid, or leads to no undamaged record, has lost a name of nobody
 * knows which directory: then every directory that was not scanned in this run becomes
 * incomplete.  A damaged state or chain tells its directory, and only that one is.
 *
 * A failed rebuild (no space) leaves everything as it was, and is not tried again for a while.
 */
#include "index/internal.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "log.h"

/* A table is due when it is fuller than 74 %, and starts 63 % full: it grows by a sixth, so
 * that a name never costs more than 12.7 bytes of table.  Small ones, where space does not
 * matter, double. */
#define DUE_PERCENT         74u
#define START_PERCENT       63u
#define START_PERCENT_SMALL 37u
#define SMALL_NAMES         4000000u

/* Who fills the table waits for the rebuild above these shares. */
#define SCANS_WAIT_PERCENT   78u
#define CHANGES_WAIT_PERCENT 85u

/* Garbage makes a rebuild due when it is a quarter of the records, and so much that even names
 * whose case changes all the time make few rebuilds: 300,000 changes of a short name. */
#define GARBAGE_SHARE 4u
#define GARBAGE_MIN   (UINT64_C(16) << 20)

/* Address space runs out: names are much longer or have many more variants than expected. */
#define SPAN_DUE_PERCENT 90u

/* After a failure the next try has to wait. */
#define RETRY_S 30

static int64_t monotonic_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

static bool may_try(struct index *index)
{
    int64_t not_before =
        atomic_load_explicit(&index->rebuild_not_before_s, memory_order_relaxed);

    return not_before == 0 || monotonic_s() >= not_before;
}

static bool is_due(struct gen *gen)
{
    uint64_t used = atomic_load_explicit(&gen->used, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&gen->tail, memory_order_relaxed);
    uint64_t garbage = atomic_load_explicit(&gen->garbage_bytes, memory_order_relaxed);

    return used * 100 > gen_slots(gen) * DUE_PERCENT ||
           tail > gen->names.span / 100 * SPAN_DUE_PERCENT ||
           (garbage > GARBAGE_MIN && garbage > tail / GARBAGE_SHARE) ||
           atomic_load_explicit(&gen->overflow, memory_order_relaxed) ||
           atomic_load_explicit(&gen->damaged, memory_order_relaxed);
}

static int crowd_of(const struct gen *gen)
{
    uint64_t used = atomic_load_explicit(&gen->used, memory_order_relaxed) * 100;

    if (used > gen_slots(gen) * CHANGES_WAIT_PERCENT)
        return CROWD_CHANGES_WAIT;
    return used > gen_slots(gen) * SCANS_WAIT_PERCENT ? CROWD_SCANS_WAIT : CROWD_NONE;
}

void rebuild_if_due(struct index *index, struct gen *gen)
{
    if (!is_due(gen) || !may_try(index))
        return;
    /* Whoever sees a generation that has just been replaced does no harm by this. */
    atomic_store(&index->crowded, crowd_of(gen));
    if (!atomic_exchange(&index->rebuild_asked, true))
        worker_wake(&index->rebuilder);
}

void rebuild_wait_for_room(struct index *index, enum room kind)
{
    int limit = kind == ROOM_FOR_SCAN ? CROWD_SCANS_WAIT : CROWD_CHANGES_WAIT;

    if (atomic_load_explicit(&index->crowded, memory_order_relaxed) < limit)
        return;
    LOCK_FOR_SCOPE(&index->room_lock);
    uint64_t tries = index->rebuild_tries;
    while (index->rebuild_tries == tries && index->rebuilder.running && may_try(index) &&
           atomic_load(&index->crowded) >= limit)
        pthread_cond_wait(&index->room_made, &index->room_lock);
}

/* ---- copying ---- */

struct rebuild {
    struct index *index;
    struct gen *cur, *next;
    struct known_dirs known;
    uint64_t end;          /* records from here on are told to both */
    uint64_t bases_seen;   /* records that a slot leads to */
    uint64_t names, bytes; /* to keep, by the first pass */
    bool damaged;          /* a name of some directory is lost */
};

typedef void (*record_fn)(struct rebuild *rb, const struct view_of_record *v);

/* Calls FN for each undamaged record that is a name. */
static void for_each_record(struct rebuild *rb, record_fn fn)
{
    uint64_t at = HEADER_BYTES;

    while (at < rb->end) {
        struct view_of_record v;

        if (!record_view(rb->cur, at, &v)) {
            at += UNIT; /* a hole, or what damage left: find the next one */
            continue;
        }
        if (v.type == RECORD_NAME)
            fn(rb, &v);
        at += record_bytes(v.len, v.levels);
    }
}

/* The records before `end` have been written whole. */
static void settle_end(struct rebuild *rb)
{
    rb->end = atomic_load(&rb->cur->tail);
    grace_wait(&rb->index->grace);
}

static void count_record(struct rebuild *rb, const struct view_of_record *v)
{
    struct known *k = known_find(&rb->known, v->key);
    uint64_t state;

    if (!k || !record_get_state(rb->cur, v, &state) || !known_keeps(k, state))
        return;
    rb->names++;
    rb->bytes += record_bytes(v->len, v->levels);
}

static void spoil(struct rebuild *rb, struct known *k)
{
    if (k && k->scan_number < rb->index->run_start)
        k->spoiled = true;
}

/* Does a slot or chain lead to V? */
static bool is_reachable(struct rebuild *rb, const struct query *q,
                         const struct view_of_record *v, struct known *k)
{
    struct view_of_record anchor;
    struct variant_path path;
    struct place place;
    bool damaged = false;

    if (!table_find(rb->cur, q, &place, &damaged))
        return false;
    if (place.base.offset == v->offset) {
        rb->bases_seen++;
        if (variants_verify(rb->cur, v, rb->index->manifest.group_floor, &anchor) ==
            VARIANTS_DAMAGED)
            spoil(rb, k);
        return true;
    }
    if (v->levels == 0)
        return false;
    return variants_search(rb->cur, &place.base, rb->index->manifest.group_floor, v->name,
                           v->len, &path) == VARIANTS_OK &&
           path.found.record && path.found.offset == v->offset;
}

static void copy_record(struct rebuild *rb, const struct view_of_record *v)
{
    struct known *k = known_find(&rb->known, v->key);
    struct change change = {.what = UPDATE_COPY};
    struct query q;

    query_init(rb->cur->seed, v->key, v->name, v->len, &q);
    LOCK_FOR_SCOPE(&stripe_of(rb->index, &q)->lock);
    if (!is_reachable(rb, &q, v, k) || !k)
        return;
    if (!record_get_state(rb->cur, v, &change.state)) {
        spoil(rb, k);
        return;
    }
    if (!known_keeps(k, change.state))
        return;
    if (names_update(rb->index, rb->next, NULL, &q, &change) < 0)
        atomic_store(&rb->next->overflow, true);
}

/* ---- the table ---- */

/* Every slot must be valid, and as many must be taken as bases were seen. */
static void check_slots(struct rebuild *rb)
{
    uint64_t taken = 0;

    if (!table_count(rb->cur, rb->end, &taken) || taken > rb->bases_seen)
        rb->damaged = true;
    if (!rb->damaged)
        return;
    log_line(LOG_WARNING,
             "index: damage in generation %llu: directories that were not read "
             "since the start are scanned again",
             (unsigned long long)rb->cur->number);
}

/* ---- directories ---- */

static int copy_entry(void *ctx, const struct dirs_entry *entry)
{
    struct rebuild *rb = ctx;
    struct known *k = known_find(&rb->known, entry->key);
    struct dirs_entry e = *entry;

    if (e.kind == ENTRY_DELETED)
        return 0;
    if ((e.scan < rb->index->run_start && (rb->damaged || (k && k->spoiled))) ||
        !gen_backs(rb->cur, &e, rb->index->run_start))
        e.kind = ENTRY_STALE;
    return cold_put(&rb->next->dirs, &e);
}

/* Live directories that lost something are incomplete; the caller holds live_lock. */
static void void_damaged(struct rebuild *rb)
{
    struct index *index = rb->index;

    for (struct index_dir *dir = index->live; dir; dir = dir->hh.next) {
        struct known *k = known_find(&rb->known, atomic_load(&dir->key));

        if (atomic_load(&dir->scan_number) < index->run_start &&
            (rb->damaged || (k && k->spoiled)))
            atomic_store(&dir->complete, false);
    }
}

/* ---- the whole ---- */

static void publish(struct index *index, struct view *view)
{
    struct view *old = atomic_exchange(&index->view, view);

    grace_wait(&index->grace);
    free(old);
}

static uint64_t buckets_for(uint64_t names)
{
    uint64_t percent = names < SMALL_NAMES ? START_PERCENT_SMALL : START_PERCENT;
    uint64_t buckets = names * 100 / percent / SLOTS_PER_BUCKET + 1;

    return buckets < BUCKETS_MIN ? BUCKETS_MIN : buckets;
}

static int write_manifest(struct index *index, uint64_t generation)
{
    LOCK_FOR_SCOPE(&index->manifest_lock);
    struct manifest m = index->manifest;

    m.generation = generation;
    int r = manifest_write(index->dirfd, &m);
    if (r == 0) {
        index->manifest.generation = m.generation;
        index->manifest.check = m.check;
    }
    return r;
}

/* Step 4 up to the rename; the caller holds checkpoint_lock and has LIST snapshotted. */
static int make_durable(struct rebuild *rb, const struct index_dir *list, uint64_t epoch)
{
    int r = cold_for_each(&rb->cur->dirs, copy_entry, rb);

    if (r == 0)
        r = checkpoint_write(rb->index, list, &rb->next->dirs);
    if (r == 0)
        r = gen_sync(rb->next, epoch);
    if (r == 0)
        r = cold_sync(&rb->next->dirs);
    if (r == 0 && rb->next->dirfd >= 0 &&
        (fsync(rb->next->dirfd) < 0 || fsync(rb->index->dirfd) < 0))
        r = -errno;
    if (r == 0 && atomic_load(&rb->next->overflow))
        r = -ENOSPC;
    return r < 0 ? r : write_manifest(rb->index, rb->next->number);
}

static int switch_over(struct rebuild *rb, struct view *view)
{
    struct index *index = rb->index;
    struct index_dir *list = NULL;
    uint64_t epoch;

    LOCK_FOR_SCOPE(&index->checkpoint_lock);
    {
        LOCK_FOR_SCOPE(&index->live_lock);
        void_damaged(rb);
    }
    int r = checkpoint_snapshot(index, CHECKPOINT_RUNNING, &epoch, &list);
    if (r == 0)
        r = make_durable(rb, list, epoch);
    if (r == 0) {
        /* Again, for those that came from the old dirs meanwhile. */
        LOCK_FOR_SCOPE(&index->live_lock);
        void_damaged(rb);
        rb->next->synced = epoch;
        *view = (struct view){.cur = rb->next};
        publish(index, view);
    }
    checkpoint_done(index, list, r);
    return r;
}

/* Which directories there are, and which scans run, once every writer tells both generations:
 * what began since the first list was made may have records before `end`, which nobody tells
 * again. */
static int know_again(struct rebuild *rb)
{
    LOCK_FOR_SCOPE(&rb->index->checkpoint_lock);
    known_free(&rb->known);
    return known_collect(rb->index, rb->cur, &rb->known);
}

static int copy_records(struct rebuild *rb)
{
    settle_end(rb);
    int r = know_again(rb);
    if (r < 0)
        return r;
    for_each_record(rb, copy_record);
    check_slots(rb);
    return atomic_load(&rb->next->overflow) ? -ENOSPC : 0;
}

/* Steps 2 to 4. */
static int copy_all(struct rebuild *rb, struct view *both, struct view *after)
{
    *both = (struct view){.cur = rb->cur, .next = rb->next};
    publish(rb->index, both);
    int r = copy_records(rb);
    if (r == 0)
        r = switch_over(rb, after);
    if (r < 0) {
        *after = (struct view){.cur = rb->cur};
        publish(rb->index, after);
    }
    return r;
}

static void drop(struct index *index, struct gen *gen)
{
    char name[32];

    gen_folder_name(gen->number, name);
    gen_free(gen);
    if (index->dirfd >= 0)
        gen_remove_folder(index->dirfd, name);
}

static int prepare(struct rebuild *rb)
{
    struct index *index = rb->index;

    LOCK_FOR_SCOPE(&index->checkpoint_lock);
    /* If this fails, only more has to be kept. */
    (void)checkpoint_run(index, CHECKPOINT_RUNNING);
    int r = known_collect(index, rb->cur, &rb->known);
    if (r < 0)
        return r;
    settle_end(rb);
    for_each_record(rb, count_record);
    return gen_create(index->dirfd, &index->manifest, rb->cur->number + 1,
                      buckets_for(rb->names), rb->bytes * 3, &rb->next);
}

static int rebuild(struct index *index)
{
    /* rebuild_lock, which the caller holds, keeps this generation in use. */
    struct rebuild rb = {.index = index, .cur = atomic_load(&index->view)->cur};
    struct view *both = malloc(sizeof(*both)), *after = malloc(sizeof(*after));
    int r = both && after ? prepare(&rb) : -ENOMEM;

    if (r < 0) {
        free(both);
        free(after);
    } else {
        r = copy_all(&rb, both, after);
        drop(index, r < 0 ? rb.next : rb.cur);
    }
    known_free(&rb.known);
    return r;
}

/* Lets those go on who wait for the end of a try. */
static void tell_waiters(struct index *index)
{
    LOCK_FOR_SCOPE(&index->room_lock);

    index->rebuild_tries++;
    atomic_store(&index->crowded, CROWD_NONE);
    pthread_cond_broadcast(&index->room_made);
}

static int rebuild_and_tell(struct index *index)
{
    int r = rebuild(index);

    if (r == 0) {
        index->rebuild_failure_said = false;
        atomic_store(&index->no_room_said, false);
    } else if (!index->rebuild_failure_said &&
               !(r == -ENOSPC && atomic_exchange(&index->no_room_said, true))) {
        /* Once until one succeeds; a full disk is said by whoever meets it first. */
        index->rebuild_failure_said = true;
        errno = -r;
        log_line(LOG_ERR, "index: rebuild failed (%m): going on with the old generation");
    }
    atomic_store(&index->rebuild_not_before_s, r < 0 ? monotonic_s() + RETRY_S : 0);
    tell_waiters(index);
    return r;
}

int index_rebuild(struct index *index)
{
    atomic_fetch_add(&index->rebuild_callers, 1);
    LOCK_FOR_SCOPE(&index->rebuild_lock);

    atomic_fetch_sub(&index->rebuild_callers, 1);
    return rebuild_and_tell(index);
}

void *rebuild_thread(void *arg)
{
    struct index *index = arg;

    while (worker_wait(&index->rebuilder, 0)) {
        /* Who asks for a rebuild by a call gets it, instead of another one by this thread. */
        while (atomic_load(&index->rebuild_callers) > 0)
            sched_yield();
        LOCK_FOR_SCOPE(&index->rebuild_lock);

        atomic_store(&index->rebuild_asked, false);
        if (is_due(atomic_load(&index->view)->cur) && may_try(index))
            (void)rebuild_and_tell(index);
        else
            tell_waiters(index);
    }
    return NULL;
}
