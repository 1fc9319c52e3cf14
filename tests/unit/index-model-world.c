/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-world.c - the shadow: opening and closing, checks and finds, changes.
 *
 * The rules, from src/index/index.h:
 * - a commit that returns 0 makes a directory complete and clears all doubt but that of names
 *   which others changed while the scan ran (possible only if changes of ours were in flight);
 * - a foreign change with none of ours in flight moves the stamp, so the directory is dirty
 *   and the next check or begin finds out; with one in flight it is in doubt, silently;
 * - on a coarse clock a foreign change may leave the stamp as it was: in doubt too, but the
 *   directory then is unsettled, and once its stamp is old the index must ask for a scan.
 */
#include "index-model-world.h"

#include <stdio.h>
#include <string.h>

/* How many steps of the clock make a stamp surely old, surely young: between the two the
 * index may decide either way. */
#define SURELY_OLD_STEPS 4
/* A scan may cost a twentieth of the time, so the next one waits for 20 times what the last
 * one took; and a little, for rounding. */
#define RESCAN_SHARE    20
#define RESCAN_SLACK_NS 1000000LL

static void shadow_alloc(struct world_dir *d, unsigned n_classes)
{
    d->doubt = calloc(n_classes, sizeof(*d->doubt));
    d->locked = calloc(n_classes, sizeof(*d->locked));
    d->scan.foreign = calloc(n_classes, sizeof(*d->scan.foreign));
    if (!d->doubt || !d->locked || !d->scan.foreign)
        abort();
}

static int64_t pick_granularity(unsigned number, enum world_kind kind)
{
    static const int64_t steps[] = {0, 0, 10000000, 0, 1000000000, 0, 2000000000, 0};

    return kind == WORLD_MIXED ? steps[number % ARRAY_SIZE(steps)] : 0;
}

void world_init(struct world *w, uint64_t seed, unsigned n_dirs, unsigned n_classes,
                enum world_kind kind, const char *path)
{
    *w = (struct world){.rng = {seed}, .n_dirs = n_dirs};
    w->path = path ? strdup(path) : NULL;
    w->dirs = calloc(n_dirs, sizeof(*w->dirs));
    if (!w->dirs || (path && !w->path))
        abort();
    model_names_init(&w->names, n_classes, &w->rng);
    for (unsigned i = 0; i < n_dirs; i++) {
        bool persist = kind == WORLD_EXACT || i % 9 != 8;

        model_dir_init(&w->dirs[i].tree, i, n_classes, pick_granularity(i, kind), persist);
        shadow_alloc(&w->dirs[i], n_classes);
    }
}

void world_free(struct world *w)
{
    for (unsigned i = 0; i < w->n_dirs; i++) {
        model_dir_free(&w->dirs[i].tree);
        free(w->dirs[i].doubt);
        free(w->dirs[i].locked);
        free(w->dirs[i].scan.foreign);
    }
    free(w->dirs);
    free(w->path);
    model_names_free(&w->names);
}

static unsigned n_classes(const struct world *w)
{
    return w->names.n;
}

void world_open(struct world *w)
{
    struct index_options options = {.path = w->path, .now = model_now};
    int r = index_open(&options, &w->index);

    if (r < 0) {
        printf("Bail out! index_open: %s\n", strerror(-r));
        exit(EXIT_FAILURE);
    }
    for (unsigned i = 0; i < w->n_dirs; i++)
        world_acquire(w, &w->dirs[i]);
}

void world_close(struct world *w)
{
    for (unsigned i = 0; i < w->n_dirs; i++) {
        while (w->dirs[i].refs)
            world_release(w, &w->dirs[i]);
    }
    index_close(w->index);
    w->index = NULL;
}

void world_reopen(struct world *w)
{
    world_close(w);
    for (unsigned i = 0; i < w->n_dirs; i++) {
        struct world_dir *d = &w->dirs[i];

        if (w->path && d->tree.persist)
            continue;
        d->complete = COMPLETE_NO;
        d->dirty = d->unsettled = d->hidden = d->suspect = false;
        memset(d->doubt, 0, n_classes(w) * sizeof(*d->doubt));
    }
    world_open(w);
}

void world_expect_little(struct world *w)
{
    for (unsigned i = 0; i < w->n_dirs; i++) {
        struct world_dir *d = &w->dirs[i];

        d->complete = COMPLETE_MAYBE;
        d->dirty = d->hidden = false;
        d->unsettled = d->tree.granularity_ns > 0;
        d->suspect = true;
        memset(d->doubt, 0, n_classes(w) * sizeof(*d->doubt));
    }
}

void world_acquire(struct world *w, struct world_dir *d)
{
    struct index_dir *dir = NULL;
    int r = index_dir_acquire(w->index, d->tree.id, d->tree.id_len, d->tree.granularity_ns,
                              d->tree.persist, &dir);

    if (r < 0) {
        tap_fail("index_dir_acquire: %s", strerror(-r));
        exit(EXIT_FAILURE);
    }
    if (d->refs && dir != d->dir)
        tap_fail("two objects for one identity");
    d->dir = dir;
    d->refs++;
}

/* Let go and taken up again a directory that is made durable is what it was; of another one
 * nothing is promised but that it is right. */
void world_release(struct world *w, struct world_dir *d)
{
    index_dir_release(d->dir);
    if (--d->refs)
        return;
    d->dir = NULL;
    if ((!d->tree.persist || !w->path || d->tree.granularity_ns > 0) &&
        d->complete == COMPLETE_YES)
        d->complete = COMPLETE_MAYBE;
    if (d->forgotten) {
        d->forgotten = false;
        /* Else the same identity again: its old key must not come back. */
        if (rng_once_in(&w->rng, 2))
            model_dir_renew(&d->tree, &w->rng);
    }
}

void world_forget(struct world *w, struct world_dir *d)
{
    index_dir_forget(d->dir);
    for (unsigned c = 0; c < n_classes(w); c++) {
        while (model_mask(&d->tree, c))
            model_set(&d->tree, c, (unsigned)__builtin_ctzll(model_mask(&d->tree, c)), false);
        d->doubt[c] = 0;
    }
    d->forgotten = true;
    d->complete = COMPLETE_NO;
    d->dirty = d->unsettled = d->hidden = false;
}

static int64_t age(const struct world_dir *d)
{
    return model_now() - d->tree.stamp.ctime_ns;
}

static bool surely_old(const struct world_dir *d)
{
    return age(d) > SURELY_OLD_STEPS * d->tree.granularity_ns;
}

static bool surely_young(const struct world_dir *d)
{
    return age(d) < d->tree.granularity_ns;
}

static bool may_be_stale(const struct world_dir *d)
{
    return d->complete != COMPLETE_YES || d->dirty || d->suspect ||
           (d->unsettled && !surely_young(d));
}

static bool must_be_stale(const struct world_dir *d)
{
    if (d->complete == COMPLETE_NO || (d->dirty && !d->in_flight))
        return true;
    return d->complete == COMPLETE_YES && d->hidden && surely_old(d) && !d->in_flight &&
           model_now() - d->last_scan_end > RESCAN_SHARE * d->last_scan_cost + RESCAN_SLACK_NS;
}

int world_check(struct world *w, struct world_dir *d)
{
    unsigned failed = atomic_load(&d->tree.stat_failed);
    int r = index_dir_check(d->dir, model_stat, &d->tree);

    w->stats.checks++;
    if (atomic_load(&d->tree.stat_failed) != failed) {
        if (r != -EIO)
            tap_fail("check: stat failed with EIO, the answer is %d", r);
        return r;
    }
    if (r != INDEX_STALE && r != INDEX_CURRENT) {
        tap_fail("check: %d", r);
        return r;
    }
    if (r == INDEX_CURRENT) {
        if (must_be_stale(d))
            tap_fail("check: CURRENT, but the directory %s",
                     d->complete == COMPLETE_NO ? "was never read or was voided"
                     : d->dirty                 ? "was changed by others"
                                                : "hides a change and its stamp is old");
        d->complete = COMPLETE_YES;
        return r;
    }
    w->stats.stale++;
    if (!may_be_stale(d))
        tap_fail("check: STALE, but nobody else changed the directory (granularity %lld, age "
                 "%lld, in flight %u)",
                 (long long)d->tree.granularity_ns, (long long)age(d), d->in_flight);
    d->complete = d->complete == COMPLETE_YES && !d->dirty ? COMPLETE_MAYBE : COMPLETE_NO;
    d->dirty = d->hidden = false;
    return r;
}

/* Would the stat of what the index gave succeed? */
static bool is_there(struct world_dir *d, unsigned class, const struct model_class *k,
                     const struct index_name *found)
{
    for (unsigned s = 0; s < k->n; s++) {
        const struct model_name *name = &k->spellings[s];

        if (name->len == found->len && memcmp(name->bytes, found->bytes, name->len) == 0)
            return model_has(&d->tree, class, s);
    }
    tap_fail("find: a name that is none of its class: %.20s", found->bytes);
    return true;
}

void world_find(struct world *w, struct world_dir *d, unsigned class, unsigned spelling)
{
    const struct model_class *k = &w->names.classes[class];
    const struct model_name *name = &k->spellings[spelling];
    struct index_name found = {0};
    enum index_match m = index_find(d->dir, name->bytes, name->len, &found);
    uint64_t mask = model_mask(&d->tree, class), doubt = d->doubt[class];

    w->stats.operations++;
    if (m == INDEX_UNKNOWN) {
        if (d->complete == COMPLETE_YES && !d->dirty && !d->suspect)
            tap_fail("find: UNKNOWN of %s from a complete directory", model_show(name));
        if (d->suspect)
            d->complete = COMPLETE_NO;
        return;
    }
    if (d->complete == COMPLETE_NO && m != INDEX_EXACT) {
        tap_fail("find: %s of %s from an incomplete directory", model_match_name(m),
                 model_show(name));
        return;
    }
    if (d->complete == COMPLETE_NO && d->suspect)
        return;
    if (w->power_was_lost && d->complete != COMPLETE_NO && m != INDEX_ABSENT &&
        !is_there(d, class, k, &found)) {
        w->stats.voided++;
        world_void(w, d);
        return;
    }
    if (doubt == 0 && d->complete != COMPLETE_NO) {
        model_compare(k, mask, spelling, m, &found, "find");
        return;
    }
    if (m == INDEX_EXACT && !((mask | doubt) >> spelling & 1))
        tap_fail("find: EXACT for %s, which nobody took away behind our back",
                 model_show(name));
}

void world_find_all(struct world *w, struct world_dir *d)
{
    for (unsigned c = 0; c < n_classes(w); c++) {
        for (unsigned s = 0; s < w->names.classes[c].n; s++)
            world_find(w, d, c, s);
    }
}

void world_settle(struct world *w, struct world_dir *d)
{
    /* A coarse directory may ask for one scan more when its stamp has become old, and each
     * thing that is found damaged for one more. */
    unsigned tries = d->suspect ? 8 : 3;

    for (unsigned i = 0; i < tries && world_check(w, d) != INDEX_CURRENT; i++)
        world_scan_whole(w, d);
    if (world_check(w, d) != INDEX_CURRENT)
        tap_fail("a directory that nobody changes does not become current by scans");
    world_find_all(w, d);
}

void world_begin(struct world *w, struct world_dir *d)
{
    unsigned failed = atomic_load(&d->tree.stat_failed);

    (void)w;
    index_begin_change(d->dir, model_stat, &d->tree);
    if (atomic_load(&d->tree.stat_failed) != failed) {
        d->complete = COMPLETE_NO;
        d->scan.upset = true;
    }
    if (d->dirty && !d->in_flight) {
        d->complete = COMPLETE_NO;
        d->dirty = false;
    }
    d->in_flight++;
    if (d->scan.scan)
        d->scan.own_in_flight = true;
}

void world_end(struct world *w, struct world_dir *d)
{
    unsigned failed = atomic_load(&d->tree.stat_failed);

    (void)w;
    index_end_change(d->dir, model_stat, &d->tree);
    if (atomic_load(&d->tree.stat_failed) != failed) {
        d->complete = COMPLETE_NO;
        d->scan.upset = true;
    }
    d->in_flight--;
    d->unsettled = d->tree.granularity_ns > 0;
}

void world_put(struct world *w, struct world_dir *d, unsigned class, unsigned spelling,
               bool present)
{
    const struct model_name *name = &w->names.classes[class].spellings[spelling];

    w->stats.operations++;
    model_set(&d->tree, class, spelling, present);
    if (present)
        index_add(d->dir, name->bytes, name->len);
    else
        index_remove(d->dir, name->bytes, name->len);
    d->doubt[class] &= ~((uint64_t)1 << spelling);
    d->scan.foreign[class] &= ~((uint64_t)1 << spelling);
}

void world_respell(struct world *w, struct world_dir *d, unsigned class, unsigned from,
                   unsigned to)
{
    const struct model_name *old = &w->names.classes[class].spellings[from];
    const struct model_name *new = &w->names.classes[class].spellings[to];
    uint64_t bits = (uint64_t)1 << from | (uint64_t)1 << to;

    w->stats.operations++;
    model_respell(&d->tree, class, from, to);
    index_respell(d->dir, old->bytes, old->len, new->bytes, new->len);
    d->doubt[class] &= ~bits;
    d->scan.foreign[class] &= ~bits;
}

void world_confirm(struct world *w, struct world_dir *d, unsigned class, unsigned spelling)
{
    world_put(w, d, class, spelling, model_has(&d->tree, class, spelling));
}

void world_void(struct world *w, struct world_dir *d)
{
    (void)w;
    index_dir_void(d->dir);
    d->complete = COMPLETE_NO;
    d->scan.upset = true;
}

static void foreign_moved(struct world_dir *d, const struct index_stamp *before)
{
    if (d->in_flight)
        return;
    if (!model_same_stamp(before, &d->tree.stamp))
        d->dirty = d->scan.seen_foreign = true;
    else
        d->hidden = true;
}

void world_foreign_put(struct world *w, struct world_dir *d, unsigned class, unsigned spelling,
                       bool present)
{
    struct index_stamp before = d->tree.stamp;

    w->stats.operations++;
    if (d->in_flight && w->foreign_waits)
        return;
    if (!model_set(&d->tree, class, spelling, present))
        return;
    d->doubt[class] |= (uint64_t)1 << spelling;
    d->scan.foreign[class] |= (uint64_t)1 << spelling;
    foreign_moved(d, &before);
}

void world_foreign_touch(struct world *w, struct world_dir *d)
{
    struct index_stamp before = d->tree.stamp;

    w->stats.operations++;
    if (d->in_flight && w->foreign_waits)
        return;
    model_touch(&d->tree);
    if (!d->in_flight && !model_same_stamp(&before, &d->tree.stamp))
        d->dirty = d->scan.seen_foreign = true;
}

static void scan_ended(struct world_dir *d)
{
    d->scan.scan = NULL;
    d->last_scan_end = model_now();
    d->last_scan_cost = d->last_scan_end - d->scan.began;
}

void world_scan_begin(struct world *w, struct world_dir *d)
{
    struct world_scan *s = &d->scan;
    int r = index_scan_begin(d->dir, &s->scan);

    if (r < 0 || !s->scan) {
        tap_fail("index_scan_begin: %d, %s", r, s->scan ? "a scan" : "no scan");
        s->scan = NULL;
        return;
    }
    s->before = d->tree.stamp;
    s->began = model_now();
    s->own_in_flight = d->in_flight > 0;
    s->seen_foreign = s->upset = false;
    s->settled = surely_old(d);
    s->n_buffer = 0;
    memset(s->foreign, 0, n_classes(w) * sizeof(*s->foreign));
    model_reader_init(&s->reader, &d->tree, &w->rng);
}

static bool fill_buffer(struct world_scan *s)
{
    unsigned class;
    uint64_t mask;

    if (!model_reader_next(&s->reader, &class, &mask))
        return false;
    while (mask) {
        s->buffer[s->n_buffer].class = class;
        s->buffer[s->n_buffer++].spelling = (unsigned)__builtin_ctzll(mask);
        mask &= mask - 1;
    }
    return true;
}

bool world_scan_step(struct world *w, struct world_dir *d)
{
    struct world_scan *s = &d->scan;
    const struct model_name *name;
    unsigned at;
    int r;

    if (!s->n_buffer)
        return fill_buffer(s);
    at = --s->n_buffer;
    name = &w->names.classes[s->buffer[at].class].spellings[s->buffer[at].spelling];
    r = index_scan_add(s->scan, name->bytes, name->len);
    if (r < 0)
        tap_fail("index_scan_add: %d", r);
    return true;
}

/* Doubt of a name that others changed before the scan began ends; of one that they changed
 * while it ran stays. */
static void committed(struct world *w, struct world_dir *d, bool moved_after)
{
    struct world_scan *s = &d->scan;
    uint64_t left = 0;

    for (unsigned c = 0; c < n_classes(w); c++) {
        d->doubt[c] = s->foreign[c];
        left |= s->foreign[c];
    }
    /* On a coarse clock a foreign change that showed may be noticed at the next look. */
    d->complete = s->upset || s->seen_foreign ? COMPLETE_MAYBE : COMPLETE_YES;
    d->suspect = d->suspect && w->power_was_lost;
    d->dirty = moved_after;
    d->hidden = false;
    if (d->tree.granularity_ns > 0) {
        d->unsettled = !s->settled || s->own_in_flight || left;
        d->hidden = left && !s->own_in_flight && !moved_after;
    }
    w->stats.scans++;
}

/* Nobody else moved the stamp: 0.  Somebody did while nothing of ours was in flight: the index
 * can see it, in the stamps that it is given and those that it read at the ends of our own
 * changes, so -EAGAIN, for else the change would be lost for good.  On a coarse clock those
 * stamps do not tell the order, and the directory is unsettled anyway. */
static void judge_commit(const struct world_dir *d, int r)
{
    const struct world_scan *s = &d->scan;

    if (r != 0 && r != -EAGAIN)
        tap_fail("commit: %d", r);
    if (r == 0 && s->seen_foreign && (!s->own_in_flight || d->tree.granularity_ns == 0))
        tap_fail(
            "commit: 0 although others changed the directory meanwhile (changes of ours in "
            "flight at some time: %d)",
            s->own_in_flight);
    if (r == -EAGAIN && !s->seen_foreign && !s->upset && !d->suspect)
        tap_fail("commit: EAGAIN although nobody else changed the directory meanwhile (changes "
                 "of ours in flight at some time: %d)",
                 s->own_in_flight);
}

void world_scan_commit(struct world *w, struct world_dir *d,
                       void (*meanwhile)(struct world *w, struct world_dir *d))
{
    struct world_scan *s = &d->scan;
    struct index_stamp after = d->tree.stamp;
    bool was_dirty = d->dirty, seen = s->seen_foreign;
    int r;

    /* What others do from here on does not make the commit fail, but must be noticed later. */
    d->dirty = s->seen_foreign = false;
    if (meanwhile)
        meanwhile(w, d);
    bool moved_after = s->seen_foreign;
    s->seen_foreign = seen;
    r = index_scan_commit(s->scan, &s->before, &after);
    scan_ended(d);
    if (!moved_after)
        judge_commit(d, r);
    if (r == 0) {
        committed(w, d, moved_after);
        return;
    }
    w->stats.again++;
    d->dirty = was_dirty || seen || moved_after;
    if (d->complete == COMPLETE_YES)
        d->complete = COMPLETE_MAYBE;
}

void world_scan_abort(struct world *w, struct world_dir *d)
{
    (void)w;
    index_scan_abort(d->scan.scan);
    scan_ended(d);
}

void world_scan_whole(struct world *w, struct world_dir *d)
{
    world_scan_begin(w, d);
    if (!d->scan.scan)
        return;
    while (world_scan_step(w, d))
        continue;
    world_scan_commit(w, d, NULL);
}
