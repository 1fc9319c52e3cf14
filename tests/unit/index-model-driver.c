/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-driver.c - random operations of one thread, weighted so that what is rare in
 * life (foreign changes in the middle of a scan, changes of ours that overlap, directories let
 * go and taken up again) is common here.
 */
#include "index-model-driver.h"

#include <string.h>

static struct world_dir *pick_dir(struct world *w)
{
    return &w->dirs[rng_below(&w->rng, w->n_dirs)];
}

/* A class whose name lock is free. */
static unsigned pick_class(struct world *w, const struct world_dir *d)
{
    unsigned c;

    do
        c = rng_below(&w->rng, w->names.n);
    while (d->locked[c]);
    return c;
}

static unsigned pick_spelling(struct world *w, unsigned class)
{
    return rng_below(&w->rng, w->names.classes[class].n);
}

/* As the daemon looks a name up before it changes anything: certain afterwards. */
static void look_up(struct world *w, struct world_dir *d, unsigned class, unsigned spelling)
{
    if (world_check(w, d) == INDEX_STALE && !d->scan.scan && rng_once_in(&w->rng, 2)) {
        world_scan_whole(w, d);
        world_check(w, d);
    }
    world_find(w, d, class, spelling);
}

static void do_find(struct driver *t, struct world_dir *d)
{
    unsigned class = rng_below(&t->w.rng, t->w.names.n);

    if (rng_once_in(&t->w.rng, 5))
        world_find(&t->w, d, class, pick_spelling(&t->w, class));
    else
        look_up(&t->w, d, class, pick_spelling(&t->w, class));
}

/* Mostly as the mount does it, one spelling a class; now and then a variant, which reaches the
 * index when a watcher or an exact create tells of it. */
static void do_create(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;
    unsigned class = pick_class(w, d), spelling = pick_spelling(w, class);

    look_up(w, d, class, spelling);
    if (model_mask(&d->tree, class) && !rng_once_in(&w->rng, 8))
        return;
    world_begin(w, d);
    world_put(w, d, class, spelling, true);
    world_end(w, d);
    world_find(w, d, class, pick_spelling(w, class));
}

static bool pick_entry(struct world *w, const struct world_dir *d, unsigned *ret_class,
                       unsigned *ret_spelling)
{
    for (unsigned i = 0; i < 20; i++) {
        unsigned class = pick_class(w, d);
        uint64_t mask = atomic_load(&d->tree.masks[class]);

        if (!mask)
            continue;
        do
            *ret_spelling = pick_spelling(w, class);
        while (!(mask >> *ret_spelling & 1));
        *ret_class = class;
        return true;
    }
    return false;
}

static void do_remove(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;
    unsigned class, spelling;

    if (!pick_entry(w, d, &class, &spelling))
        return;
    world_begin(w, d);
    world_put(w, d, class, spelling, false);
    world_end(w, d);
    world_find(w, d, class, pick_spelling(w, class));
}

static void do_respell(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;
    unsigned class, from, to;

    if (!pick_entry(w, d, &class, &from))
        return;
    to = pick_spelling(w, class);
    if (to == from)
        return;
    world_begin(w, d);
    world_respell(w, d, class, from, to);
    world_end(w, d);
    world_find(w, d, class, from);
    world_find(w, d, class, pick_spelling(w, class));
}

/* rename(2) to another folded name, within a directory or across; if the target has another
 * spelling there, onto that one and then a case-only rename, as DESIGN 7 says. */
static void do_rename(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;
    struct world_dir *to_dir = rng_once_in(&w->rng, 2) ? d : pick_dir(w);
    unsigned class, from, to_class, to;
    uint64_t mask;

    if (to_dir->forgotten || !pick_entry(w, d, &class, &from))
        return;
    to_class = pick_class(w, to_dir);
    to = pick_spelling(w, to_class);
    if (to_dir == d && to_class == class)
        return;
    mask = model_mask(&to_dir->tree, to_class);
    world_begin(w, d);
    if (to_dir != d)
        world_begin(w, to_dir);
    world_put(w, d, class, from, false);
    if (mask && !(mask >> to & 1))
        world_respell(w, to_dir, to_class, (unsigned)__builtin_ctzll(mask), to);
    else
        world_put(w, to_dir, to_class, to, true);
    if (to_dir != d)
        world_end(w, to_dir);
    world_end(w, d);
    world_find(w, d, class, from);
    world_find(w, to_dir, to_class, pick_spelling(w, to_class));
}

static void do_foreign(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;

    for (unsigned n = 1 + rng_below(&w->rng, 5); n; n--) {
        unsigned class = pick_class(w, d), spelling = pick_spelling(w, class);

        if (rng_once_in(&w->rng, 8))
            world_foreign_touch(w, d);
        else
            world_foreign_put(w, d, class, spelling, !model_has(&d->tree, class, spelling));
    }
    if (rng_once_in(&w->rng, 2))
        world_check(w, d);
}

/* Begins a change that another thread is in the middle of, or goes on with such a one. */
static void do_open_change(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;
    struct open_change *o = &t->open[rng_below(&w->rng, MAX_OPEN)];

    if (!o->d) {
        o->d = d;
        o->class = pick_class(w, d);
        o->spelling = pick_spelling(w, o->class);
        o->present = !model_has(&d->tree, o->class, o->spelling);
        d->locked[o->class] = 1;
        world_begin(w, d);
        return;
    }
    /* One in four fails: nothing in the tree changes. */
    if (!rng_once_in(&w->rng, 4))
        world_put(w, o->d, o->class, o->spelling, o->present);
    world_end(w, o->d);
    o->d->locked[o->class] = 0;
    o->d = NULL;
}

static void finish_open_changes(struct driver *t)
{
    for (unsigned i = 0; i < MAX_OPEN; i++) {
        struct open_change *o = &t->open[i];

        if (!o->d)
            continue;
        world_put(&t->w, o->d, o->class, o->spelling, o->present);
        world_end(&t->w, o->d);
        o->d->locked[o->class] = 0;
        o->d = NULL;
    }
}

static void abort_scans(struct world *w)
{
    for (unsigned i = 0; i < w->n_dirs; i++) {
        if (w->dirs[i].scan.scan)
            world_scan_abort(w, &w->dirs[i]);
    }
}

/* Between the last read and the commit anything may happen. */
static void something_meanwhile(struct world *w, struct world_dir *d)
{
    unsigned class = pick_class(w, d), spelling = pick_spelling(w, class);

    switch (rng_below(&w->rng, 8)) {
    case 0:
        world_foreign_put(w, d, class, spelling, !model_has(&d->tree, class, spelling));
        if (rng_once_in(&w->rng, 2))
            break;
        class = pick_class(w, d);
        spelling = pick_spelling(w, class);
        /* fall through */
    case 1:
        world_begin(w, d);
        world_put(w, d, class, spelling, !model_has(&d->tree, class, spelling));
        world_end(w, d);
        break;
    case 2:
        world_foreign_touch(w, d);
        break;
    case 3:
        model_sleep(1000000000);
        break;
    default:
        break;
    }
}

static void do_scan(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;

    if (!d->scan.scan) {
        world_scan_begin(w, d);
        return;
    }
    if (rng_once_in(&w->rng, 12)) {
        world_scan_abort(w, d);
        return;
    }
    for (unsigned n = rng_below(&w->rng, 200); n; n--) {
        if (!world_scan_step(w, d)) {
            world_scan_commit(w, d, something_meanwhile);
            return;
        }
    }
}

static void do_touch(struct driver *t, struct world_dir *d)
{
    world_begin(&t->w, d);
    if (rng_once_in(&t->w.rng, 2))
        model_touch(&d->tree);
    world_end(&t->w, d);
}

static void do_release(struct driver *t, struct world_dir *d)
{
    if (rng_once_in(&t->w.rng, 3)) {
        world_acquire(&t->w, d);
        return;
    }
    if (d->refs == 1 && (d->in_flight || d->scan.scan))
        return;
    world_release(&t->w, d);
    if (!d->refs)
        world_acquire(&t->w, d);
}

static void do_forget(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;

    if (d->in_flight || d->scan.scan)
        return;
    world_forget(w, d);
    world_check(w, d);
    world_find_all(w, d);
    while (d->refs)
        world_release(w, d);
    world_acquire(w, d);
    world_find_all(w, d);
}

static void expect_zero(const char *what, int r)
{
    if (r < 0)
        tap_fail("%s: %s", what, strerror(-r));
}

/* What a power loss left damaged stays so until a rebuild, and is told. */
static void verify(struct world *w)
{
    int r = index_verify(w->index);

    if (!w->power_was_lost || r != -EUCLEAN)
        expect_zero("index_verify", r);
}

static void do_reopen(struct driver *t)
{
    driver_calm(t);
    world_reopen(&t->w);
    verify(&t->w);
}

/* The rare ones, one in 50 operations, weighted by what they cost. */
static void do_rare(struct driver *t, struct world_dir *d)
{
    struct world *w = &t->w;
    unsigned which = rng_below(&w->rng, 2000);

    if (which < 1)
        do_reopen(t);
    else if (which < 3)
        expect_zero("index_rebuild", index_rebuild(w->index));
    else if (which < 6)
        expect_zero("index_checkpoint", index_checkpoint(w->index));
    else if (which < 16)
        verify(w);
    else if (which < 40)
        do_forget(t, d);
    else if (which < 100)
        world_void(w, d);
    else if (which < 200)
        atomic_fetch_add(&d->tree.stat_fails, 1);
    else if (which < 700)
        do_release(t, d);
    else if (which < 1200)
        do_touch(t, d);
    else
        model_sleep((int64_t)(rng_next(&w->rng) % 4000000000));
}

void driver_step(struct driver *t)
{
    struct world_dir *d = pick_dir(&t->w);
    unsigned which = rng_below(&t->w.rng, 100);
    unsigned class;

    if (which < 40) {
        do_find(t, d);
    } else if (which < 56) {
        do_create(t, d);
    } else if (which < 67) {
        do_remove(t, d);
    } else if (which < 75) {
        do_respell(t, d);
    } else if (which < 82) {
        do_rename(t, d);
    } else if (which < 84) {
        do_foreign(t, d);
    } else if (which < 88) {
        class = pick_class(&t->w, d);
        world_confirm(&t->w, d, class, pick_spelling(&t->w, class));
    } else if (which < 91) {
        do_open_change(t, d);
    } else if (which < 98) {
        do_scan(t, d);
    } else {
        do_rare(t, d);
    }
}

void driver_calm(struct driver *t)
{
    finish_open_changes(t);
    abort_scans(&t->w);
}
