/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * names.c - index_find, index_add, index_remove, index_respell: one folded name in one
 * directory.
 *
 * When a record counts.  Its state is {number, removed}.  It counts while it is not removed
 * and its number is not below the directory's scan number; whoever adds or removes stores the
 * newest number there is, so that the running scan finds a number not below its own and lets
 * what it saw be overruled.  A name that is removed during a scan and has no record gets one,
 * removed, for the same reason.
 *
 * What makes an answer uncertain, in a directory that was complete before this run:
 *   - damage met on the way to where the name would be;
 *   - a removal in the directory's ranges of doubt: a power loss may have undone it in the
 * tree. Then the answer is INDEX_UNKNOWN, the directory is incomplete, and the scan that
 * follows makes it right: after a scan in this run everything the directory holds has an
 * undamaged record and slot, and damage that remains belongs to others.
 *
 * Readers take no lock.  "Absent", and the smallest of several, are only true if no writer of
 * the same folded name was at work: each stripe of the hash has a sequence number, odd while
 * one publishes.  Everything a writer publishes is one aligned store of eight bytes.
 *
 * Writers hold the stripe's mutex, and tell the generation in use and the one being built.
 */
#include "index/internal.h"

#include <sched.h>

#include "log.h"

/* A reader that meets a writer so often gives the processor away. */
#define SPINS_BEFORE_YIELD 64u

/* No new slot above this share: a probe must end somewhere. */
#define HARD_FULL_NUM 9u
#define HARD_FULL_DEN 10u

void stripe_write_begin(struct stripe *stripe)
{
    uint64_t seq = atomic_load_explicit(&stripe->seq, memory_order_relaxed);

    /* What follows are release stores, which keep this one before them. */
    atomic_store_explicit(&stripe->seq, seq + 1, memory_order_relaxed);
}

void stripe_write_end(struct stripe *stripe)
{
    uint64_t seq = atomic_load_explicit(&stripe->seq, memory_order_relaxed);

    atomic_store_explicit(&stripe->seq, seq + 1, memory_order_release);
}

/* ---- reading ---- */

/* The directory as one look-up sees it. */
struct look {
    struct index *index;
    struct index_dir *dir;
    struct gen *gen;
    uint64_t key, scan_number;
    bool complete;
    bool damaged; /* something on the way was */
    bool doubt;   /* a removal may have been undone */
};

static struct look look_at(struct index_dir *dir, struct gen *gen)
{
    struct look look = {.index = dir->index, .dir = dir, .gen = gen};

    look.complete = atomic_load_explicit(&dir->complete, memory_order_acquire);
    look.scan_number = atomic_load_explicit(&dir->scan_number, memory_order_acquire);
    look.key = atomic_load_explicit(&dir->key, memory_order_relaxed);
    return look;
}

static bool look_still_holds(const struct look *look)
{
    struct index_dir *dir = look->dir;

    /* The loads in between were acquire loads, which keep these after them. */
    return atomic_load_explicit(&dir->scan_number, memory_order_relaxed) == look->scan_number &&
           atomic_load_explicit(&dir->key, memory_order_relaxed) == look->key &&
           atomic_load_explicit(&dir->complete, memory_order_relaxed) == look->complete;
}

/* Does V count?  Sets look->damaged or look->doubt if that cannot be told. */
static bool counts(struct look *look, const struct view_of_record *v)
{
    uint64_t state;

    if (!record_get_state(look->gen, v, &state) ||
        (state & NUMBER_MASK) > atomic_load(&look->index->number)) {
        look->damaged = true;
        return false;
    }
    uint64_t number = state & NUMBER_MASK;
    if (!(state & STATE_REMOVED))
        return number >= look->scan_number;
    /* What clears the doubts is a scan, which has told this record by then if it saw the name:
     * the stripe's sequence number shows that. */
    const struct doubts doubts = dir_doubts(look->dir);
    look->doubt |= doubts_have(&doubts, number);
    return false;
}

static bool is_name(const struct view_of_record *v, const char *name, size_t len)
{
    return v->len == len && memcmp(v->name, name, len) == 0;
}

static void give(const struct view_of_record *v, struct index_name *ret_name)
{
    ret_name->len = v->len;
    memcpy(ret_name->bytes, v->name, v->len);
    ret_name->bytes[v->len] = 0;
}

static bool smaller(const struct view_of_record *a, const struct view_of_record *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int c = memcmp(a->name, b->name, n);

    return c != 0 ? c < 0 : a->len < b->len;
}

/* Looks among the variants of BASE; EXACT if Q's very name counts, else UNKNOWN, and *BEST is
 * the smallest that counts of *BEST (if any) and them. */
static enum index_match look_at_variants(struct look *look, const struct query *q,
                                         const struct view_of_record *base,
                                         struct view_of_record *best)
{
    struct variant_path path;
    enum variants v = variants_search(look->gen, base, look->index->manifest.group_floor,
                                      q->name, q->len, &path);

    if (v == VARIANTS_DAMAGED)
        look->damaged = true;
    if (v != VARIANTS_OK)
        return INDEX_UNKNOWN;
    if (path.found.record && counts(look, &path.found)) {
        *best = path.found;
        return INDEX_EXACT;
    }
    struct view_of_record at = path.anchor, next;
    int r;
    while ((r = variants_next(look->gen, &path.anchor, &at, &next)) > 0) {
        if (counts(look, &next)) {
            if (!best->record || smaller(&next, best))
                *best = next;
            break;
        }
        at = next;
    }
    if (r < 0)
        look->damaged = true;
    return INDEX_UNKNOWN;
}

/* *BEST, which leads nowhere yet, becomes the record that answers, if one does. */
static enum index_match look_up(struct look *look, const struct query *q,
                                struct view_of_record *best)
{
    struct place place;
    bool damaged = false;

    if (!table_find(look->gen, q, &place, &damaged)) {
        look->damaged = damaged;
        return look->complete ? INDEX_ABSENT : INDEX_UNKNOWN;
    }
    if (counts(look, &place.base)) {
        *best = place.base;
        if (is_name(best, q->name, q->len))
            return INDEX_EXACT;
    }
    if (look_at_variants(look, q, &place.base, best) == INDEX_EXACT)
        return INDEX_EXACT;
    if (!look->complete)
        return INDEX_UNKNOWN;
    return best->record ? INDEX_VARIANT : INDEX_ABSENT;
}

/* Damage, or a removal in doubt: is it this directory's? */
static bool suspicion_counts(const struct look *look)
{
    return (look->damaged || look->doubt) && look->complete &&
           look->scan_number < look->index->run_start;
}

/* One try without lock; false: a writer was in the way.  *RET_NAME is set for EXACT and
 * VARIANT: what a record is called never changes. */
static bool try_find(struct index_dir *dir, const struct query *q, struct stripe *stripe,
                     enum index_match *ret_match, struct index_name *ret_name)
{
    struct view_of_record best = {.record = NULL};
    struct index *index = dir->index;
    uint64_t seq = atomic_load_explicit(&stripe->seq, memory_order_acquire);

    if (seq & 1)
        return false;
    struct look look = look_at(dir, atomic_load(&index->view)->cur);
    if (look.key != q->key)
        return false;
    enum index_match match = look_up(&look, q, &best);
    if (!look_still_holds(&look) ||
        atomic_load_explicit(&stripe->seq, memory_order_relaxed) != seq)
        return false;
    if (look.damaged) {
        atomic_store(&look.gen->damaged, true);
        rebuild_if_due(index, look.gen);
    }
    if (match != INDEX_EXACT && suspicion_counts(&look)) {
        atomic_store(&dir->complete, false);
        match = INDEX_UNKNOWN;
    }
    if (match == INDEX_EXACT || match == INDEX_VARIANT)
        give(&best, ret_name);
    *ret_match = match;
    return true;
}

enum index_match index_find(struct index_dir *dir, const char *name, size_t len,
                            struct index_name *ret_name)
{
    struct index *index = dir->index;
    enum index_match match = INDEX_UNKNOWN;
    struct query q;

    if (len == 0 || len > FOLDFS_NAME_MAX)
        return INDEX_UNKNOWN;
    for (unsigned tries = 1;; tries++) {
        uint64_t key = atomic_load_explicit(&dir->key, memory_order_relaxed);
        if (key == 0)
            return INDEX_UNKNOWN;
        query_init(index->manifest.seed, key, name, len, &q);
        unsigned ticket = grace_enter(&index->grace);
        table_prefetch(atomic_load(&index->view)->cur, &q);
        bool done = try_find(dir, &q, stripe_of(index, &q), &match, ret_name);
        grace_exit(&index->grace, ticket);
        if (done)
            break;
        if (tries % SPINS_BEFORE_YIELD == 0)
            sched_yield();
    }
    return match;
}

/* ---- writing ---- */

/* One change in one generation; the stripe is held. */
struct work {
    struct index *index;
    struct gen *gen;
    struct index_dir *dir; /* NULL when copying */
    const struct query *q;
    const struct change *change;
    struct stripe *stripe;
    uint64_t now;      /* the newest number */
    uint64_t scanning; /* number of the directory's running scan, or 0 */
};

static uint64_t wanted_state(const struct work *w)
{
    switch (w->change->what) {
    case UPDATE_ADD:
        return w->now;
    case UPDATE_REMOVE:
        return w->now | STATE_REMOVED;
    case UPDATE_SCAN:
        return w->change->scan;
    case UPDATE_COPY:
    default:
        return w->change->state;
    }
}

/* The record of these very bytes is there. */
static void update_record(const struct work *w, const struct view_of_record *v)
{
    uint64_t state, wanted = wanted_state(w);

    if (record_get_state(w->gen, v, &state)) {
        if (state == wanted || w->change->what == UPDATE_COPY)
            return;
        /* Said by somebody else since the scan began. */
        if (w->change->what == UPDATE_SCAN && (state & NUMBER_MASK) >= w->change->scan)
            return;
    }
    stripe_write_begin(w->stripe);
    record_set_state(w->gen, v, wanted);
    stripe_write_end(w->stripe);
}

static void count_garbage(struct gen *gen, uint64_t bytes)
{
    atomic_fetch_add_explicit(&gen->garbage_records, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&gen->garbage_bytes, bytes, memory_order_relaxed);
}

/* Nothing is there that folds like Q. */
static int insert_base(const struct work *w)
{
    struct gen *gen = w->gen;
    uint64_t offset;

    if (w->change->what == UPDATE_REMOVE && w->scanning == 0)
        return 0;
    if (atomic_load(&gen->used) * HARD_FULL_DEN >= gen_slots(gen) * HARD_FULL_NUM)
        return -ENOSPC;
    int r = record_append(gen, w->q->key, RECORD_NAME, 0, w->q->name, w->q->len,
                          wanted_state(w), &offset);
    if (r < 0)
        return r;
    stripe_write_begin(w->stripe);
    r = table_insert(gen, w->q, offset);
    stripe_write_end(w->stripe);
    if (r < 0)
        count_garbage(gen, record_bytes(w->q->len, 0));
    return r;
}

/* Another record takes the slot of the base, which stands alone. */
static int replace_base(const struct work *w, const struct place *place)
{
    uint64_t offset;
    int r = record_append(w->gen, w->q->key, RECORD_NAME, 0, w->q->name, w->q->len,
                          wanted_state(w), &offset);

    if (r < 0)
        return r;
    stripe_write_begin(w->stripe);
    table_replace(w->gen, w->q, place, offset);
    stripe_write_end(w->stripe);
    count_garbage(w->gen, record_bytes(place->base.len, place->base.levels));
    return 0;
}

/* May the base be dropped?  It must not count, nor say anything that the running scan or a
 * look-up after a power loss must know. */
static bool base_is_spent(const struct work *w, const struct view_of_record *base)
{
    uint64_t state;

    if (!w->dir || !record_get_state(w->gen, base, &state))
        return false;
    uint64_t number = state & NUMBER_MASK;
    if (w->scanning != 0 && number >= w->scanning)
        return false;
    if (!(state & STATE_REMOVED))
        return number < atomic_load(&w->dir->scan_number);
    const struct doubts doubts = dir_doubts(w->dir);
    return !doubts_have(&doubts, number);
}

/* Verifies the group of BASE if nobody has yet, in this run and in the running scan.  What was
 * told since the scan began was told to a verified group, so that a new one in its place loses
 * nothing that the scan relies on. */
static enum variants prepare_group(const struct work *w, const struct view_of_record *base,
                                   struct variant_path *path)
{
    uint64_t floor = w->index->manifest.group_floor, state = 0;
    uint64_t since = w->scanning > w->index->run_start ? w->scanning : w->index->run_start;
    enum variants v = variants_search(w->gen, base, floor, w->q->name, w->q->len, path);

    if (v == VARIANTS_OK && record_get_state(w->gen, &path->anchor, &state) &&
        (state & NUMBER_MASK) < since) {
        v = variants_verify(w->gen, base, floor, &path->anchor);
        if (v == VARIANTS_OK)
            record_set_state(w->gen, &path->anchor, w->now);
    }
    if (v == VARIANTS_DAMAGED) {
        atomic_store(&w->gen->damaged, true);
        if (w->dir && atomic_load(&w->dir->scan_number) < w->index->run_start)
            atomic_store(&w->dir->complete, false);
    }
    return v;
}

/* There is a base record of another spelling. */
static int update_variants(const struct work *w, const struct place *place)
{
    struct variant_path path;
    enum variants v = prepare_group(w, &place->base, &path);

    if (v == VARIANTS_OK && path.found.record) {
        update_record(w, &path.found);
        return 0;
    }
    if (w->change->what == UPDATE_REMOVE && w->scanning == 0)
        return 0;
    if (v == VARIANTS_NONE && w->change->what != UPDATE_REMOVE &&
        base_is_spent(w, &place->base))
        return replace_base(w, place);
    stripe_write_begin(w->stripe);
    int r = variants_insert(w->gen, &place->base, v == VARIANTS_OK ? &path : NULL, w->now,
                            w->q->name, w->q->len, wanted_state(w));
    stripe_write_end(w->stripe);
    return r;
}

static struct work work_on(struct index *index, struct gen *gen, struct index_dir *dir,
                           const struct query *q, const struct change *change)
{
    return (struct work){
        .index = index,
        .gen = gen,
        .dir = dir,
        .q = q,
        .change = change,
        .stripe = stripe_of(index, q),
        .now = atomic_load(&index->number),
        .scanning = dir ? atomic_load(&dir->scanning) : 0,
    };
}

static int do_update(const struct work *w)
{
    struct place place;
    bool damaged = false;
    bool found = table_find(w->gen, w->q, &place, &damaged);

    if (damaged) {
        atomic_store(&w->gen->damaged, true);
        /* What the damage hides may fold like this name. */
        if (!found && w->dir && atomic_load(&w->dir->scan_number) < w->index->run_start)
            atomic_store(&w->dir->complete, false);
    }
    if (!found)
        return insert_base(w);
    if (!is_name(&place.base, w->q->name, w->q->len))
        return update_variants(w, &place);
    update_record(w, &place.base);
    return 0;
}

int names_update(struct index *index, struct gen *gen, struct index_dir *dir,
                 const struct query *q, const struct change *change)
{
    struct work w = work_on(index, gen, dir, q, change);

    return do_update(&w);
}

/* Renames by one store where nothing else folds alike; else adds, then removes. */
static int do_respell(struct index *index, struct gen *gen, struct index_dir *dir,
                      const struct query *from, const struct query *to)
{
    const struct change add = {.what = UPDATE_ADD}, remove = {.what = UPDATE_REMOVE};
    struct work w = work_on(index, gen, dir, to, &add);
    struct place place;
    bool damaged = false;
    uint64_t link;

    if (w.scanning == 0 && table_find(gen, from, &place, &damaged) &&
        is_name(&place.base, from->name, from->len) &&
        record_get_link(gen, &place.base, LINK_BASE, &link) && link == 0)
        return replace_base(&w, &place);
    int r = do_update(&w);
    if (r < 0)
        return r;
    return names_update(index, gen, dir, from, &remove);
}

static int apply(struct index_dir *dir, struct gen *gen, const struct query *q,
                 const struct query *from, const struct change *change)
{
    if (from)
        return do_respell(dir->index, gen, dir, from, q);
    return names_update(dir->index, gen, dir, q, change);
}

/* Tells both generations; FROM is set for a respelling. */
static int tell(struct index_dir *dir, const struct query *q, const struct query *from,
                const struct change *change)
{
    struct index *index = dir->index;
    int r;

    rebuild_wait_for_room(index, change->what == UPDATE_SCAN ? ROOM_FOR_SCAN : ROOM_FOR_CHANGE);
    unsigned ticket = grace_enter(&index->grace);
    struct view *view = atomic_load(&index->view);
    {
        LOCK_FOR_SCOPE(&stripe_of(index, q)->lock);
        r = apply(dir, view->cur, q, from, change);
        if (view->next && apply(dir, view->next, q, from, change) < 0)
            atomic_store(&view->next->overflow, true);
    }
    if (r < 0)
        atomic_store(&view->cur->overflow, true);
    /* After the change: a checkpoint that begins now syncs it. */
    if (!atomic_load_explicit(&index->touched, memory_order_relaxed))
        atomic_store(&index->touched, true);
    rebuild_if_due(index, view->cur);
    grace_exit(&index->grace, ticket);
    return r;
}

static void say_no_room(struct index *index, int error)
{
    if (atomic_exchange(&index->no_room_said, true))
        return;
    errno = -error;
    log_line(LOG_ERR, "index: no room for more names (%m): directories are scanned instead");
}

int names_tell(struct index_dir *dir, uint64_t key, const char *name, size_t len,
               const struct change *change)
{
    struct query q;

    if (key == 0 || len == 0 || len > FOLDFS_NAME_MAX)
        return -ENOSPC;
    query_init(dir->index->manifest.seed, key, name, len, &q);
    int r = tell(dir, &q, NULL, change);
    if (r < 0)
        say_no_room(dir->index, r);
    return r;
}

static void change_name(struct index_dir *dir, const char *name, size_t len, enum update what)
{
    const struct change change = {.what = what};

    if (names_tell(dir, atomic_load(&dir->key), name, len, &change) < 0)
        dir_lose(dir);
}

void index_add(struct index_dir *dir, const char *name, size_t len)
{
    change_name(dir, name, len, UPDATE_ADD);
}

void index_remove(struct index_dir *dir, const char *name, size_t len)
{
    change_name(dir, name, len, UPDATE_REMOVE);
}

void index_respell(struct index_dir *dir, const char *old, size_t old_len, const char *new,
                   size_t new_len)
{
    const struct change add = {.what = UPDATE_ADD};
    uint64_t key = atomic_load(&dir->key), seed = dir->index->manifest.seed;
    struct query from, to;

    if (key == 0 || old_len == 0 || old_len > FOLDFS_NAME_MAX || new_len == 0 ||
        new_len > FOLDFS_NAME_MAX) {
        dir_lose(dir);
        return;
    }
    query_init(seed, key, old, old_len, &from);
    query_init(seed, key, new, new_len, &to);
    if (from.folded_len != to.folded_len ||
        memcmp(from.hashed.folded, to.hashed.folded, to.folded_len) != 0) {
        index_add(dir, new, new_len);
        index_remove(dir, old, old_len);
        return;
    }
    if (is_name(&(struct view_of_record){.name = old, .len = (uint8_t)old_len}, new, new_len)) {
        index_add(dir, new, new_len);
        return;
    }
    int r = tell(dir, &to, &from, &add);
    if (r < 0) {
        say_no_room(dir->index, r);
        dir_lose(dir);
    }
}
