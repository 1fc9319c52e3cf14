/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-power.c - power losses: index files and tree are taken back to earlier states,
 * each on its own, and no answer may be wrong.
 *
 * A world is changed at random, with checkpoints, rebuilds, scans and reopenings.  Now and then
 * the power fails: the tree becomes what it was at some earlier moment (its journal was behind,
 * so our own removals come undone, stamps and all), or stays (the index was behind); the index
 * directory becomes what a disk may hold then (index-disk.h).  The next daemon opens that under
 * another boot's id and goes on with the random changes, so that crashes follow crashes before
 * everything was scanned again.
 *
 * A killed daemon is the case in which nothing is lost: same boot, newest files, newest tree.
 */
#include <stdio.h>
#include <string.h>

#include "index-disk.h"
#include "index-model-driver.h"
#include "log.h"

#define N_DIRS    10
#define N_CLASSES 60
#define CRASHES   400 /* at scale 1 */
/* Moments that the tree can go back to. */
#define MOMENTS 24
/* Operations between two crashes, at most. */
#define MAX_STEPS  600
#define LOOK_EVERY 40

struct tree_dir {
    uint8_t id[INDEX_DIR_ID_MAX];
    size_t id_len;
    int64_t entries;
    struct index_stamp stamp;
    uint64_t masks[N_CLASSES];
};

struct tree_state {
    struct tree_dir dirs[N_DIRS];
};

struct storm {
    struct driver t;
    struct rng rng;
    char *folder;
    unsigned generation;
    unsigned n_moments;
    struct tree_state moments[MOMENTS];
    uint64_t current, stale; /* directories after a crash */
};

static void save_tree(struct world *w, struct tree_state *ret_state)
{
    for (unsigned i = 0; i < N_DIRS; i++) {
        struct model_dir *tree = &w->dirs[i].tree;
        struct tree_dir *to = &ret_state->dirs[i];

        memcpy(to->id, tree->id, sizeof(to->id));
        to->id_len = tree->id_len;
        to->entries = tree->entries;
        to->stamp = tree->stamp;
        for (unsigned c = 0; c < N_CLASSES; c++)
            to->masks[c] = model_mask(tree, c);
    }
}

static void load_tree(struct world *w, const struct tree_state *state)
{
    for (unsigned i = 0; i < N_DIRS; i++) {
        struct model_dir *tree = &w->dirs[i].tree;
        const struct tree_dir *from = &state->dirs[i];

        memcpy(tree->id, from->id, sizeof(tree->id));
        tree->id_len = from->id_len;
        tree->entries = from->entries;
        tree->stamp = from->stamp;
        for (unsigned c = 0; c < N_CLASSES; c++)
            atomic_store(&tree->masks[c], from->masks[c]);
    }
}

/* The oldest moments go first. */
static void remember_tree(struct storm *s)
{
    if (s->n_moments == MOMENTS) {
        memmove(&s->moments[0], &s->moments[1], (MOMENTS - 1) * sizeof(s->moments[0]));
        s->n_moments--;
    }
    save_tree(&s->t.w, &s->moments[s->n_moments++]);
}

static void new_path(struct storm *s)
{
    struct world *w = &s->t.w;

    free(w->path);
    if (asprintf(&w->path, "%s/index-%u", s->folder, s->generation++) < 0)
        abort();
}

/* Half of the time all starts from a durable state, and little happens after it. */
static void live(struct storm *s)
{
    struct world *w = &s->t.w;
    unsigned steps = 1 + rng_below(&s->rng, 1 + rng_below(&s->rng, MAX_STEPS));

    if (rng_once_in(&s->rng, 2)) {
        for (unsigned i = 0; i < N_DIRS; i++)
            world_settle(w, &w->dirs[i]);
        if (index_checkpoint(w->index) < 0)
            tap_fail("index_checkpoint");
        remember_tree(s);
        steps = 1 + steps / 8;
    }
    for (unsigned i = 0; i < steps; i++) {
        driver_step(&s->t);
        if (rng_once_in(&s->rng, LOOK_EVERY)) {
            disk_look();
            remember_tree(s);
        }
        if (rng_once_in(&s->rng, 150) && index_checkpoint(w->index) < 0)
            tap_fail("index_checkpoint");
        if (rng_once_in(&s->rng, 900) && index_rebuild(w->index) < 0)
            tap_fail("index_rebuild");
    }
    remember_tree(s);
}

/* The daemon that the crash ends; what it does at its end is not seen by anyone. */
static void end_old(struct storm *s)
{
    disk_forget();
    driver_calm(&s->t);
    world_close(&s->t.w);
    remove_tree(s->t.w.path);
}

static void look_around(struct storm *s)
{
    struct world *w = &s->t.w;

    for (unsigned i = 0; i < N_DIRS; i++) {
        struct world_dir *d = &w->dirs[i];

        atomic_store(&d->tree.stat_fails, 0);
        if (world_check(w, d) == INDEX_CURRENT)
            s->current++;
        else
            s->stale++;
        world_find_all(w, d);
        if (rng_once_in(&s->rng, 4))
            world_settle(w, d);
    }
}

static void crash(struct storm *s, enum disk_mix mix)
{
    struct world *w = &s->t.w;
    struct file_set set;
    unsigned moment = rng_below(&s->rng, s->n_moments);
    bool killed = mix == DISK_NEWEST && rng_once_in(&s->rng, 2);

    disk_crash(mix, &s->rng, &set);
    if (killed || rng_once_in(&s->rng, 3))
        moment = s->n_moments - 1;
    end_old(s);
    load_tree(w, &s->moments[moment]);
    /* What is there now is all that the next loss can go back to. */
    s->n_moments = 0;
    remember_tree(s);
    if (!killed)
        file_set_reboot(&set, &s->rng);
    new_path(s);
    file_set_write(&set, w->path);
    file_set_free(&set);
    w->power_was_lost = true;
    world_expect_little(w);
    world_open(w);
    disk_watch(w->path);
    look_around(s);
}

static void run(const char *name, enum disk_mix mix, enum world_kind kind, unsigned crashes)
{
    static struct storm storm;
    struct storm *s = &storm;
    unsigned before = tap_failures();

    *s = (struct storm){.rng = {tap_seed() + mix}};
    s->folder = fast_folder("index-power");
    world_init(&s->t.w, tap_seed() + 100 + mix, N_DIRS, N_CLASSES, kind, "");
    s->t.w.foreign_waits = true;
    new_path(s);
    world_open(&s->t.w);
    disk_watch(s->t.w.path);
    for (unsigned i = 0; i < crashes && tap_failures() == before; i++) {
        live(s);
        crash(s, mix);
        if (tap_failures() != before)
            tap_diag("in round %u of mix %d", i, mix);
    }
    tap_diag(
        "after crashes %llu directories were current, %llu stale; %llu entries were not there",
        (unsigned long long)s->current, (unsigned long long)s->stale,
        (unsigned long long)s->t.w.stats.voided);
    if (tap_failures() == before) {
        end_old(s);
        world_free(&s->t.w);
    }
    remove_tree(s->folder);
    free(s->folder);
    tap_line(name);
}

int main(void)
{
    unsigned crashes = CRASHES * tap_scale();

    setvbuf(stdout, NULL, _IOLBF, 0);
    tap_seed();
    log_open(false, LOG_EMERG);
    run("nothing_but_what_was_synced_never_gives_a_wrong_answer", DISK_SYNCED, WORLD_EXACT,
        crashes);
    run("index_or_tree_ahead_never_gives_a_wrong_answer", DISK_NEWEST, WORLD_EXACT, crashes);
    run("mixed_pages_never_give_a_wrong_answer", DISK_PAGES, WORLD_EXACT, crashes);
    run("mixed_sectors_never_give_a_wrong_answer", DISK_SECTORS, WORLD_EXACT, crashes);
    run("mixed_files_never_give_a_wrong_answer", DISK_FILES, WORLD_EXACT, crashes);
    run("mixed_pages_on_coarse_clocks_never_give_a_wrong_answer", DISK_PAGES, WORLD_MIXED,
        crashes);
    return tap_end();
}
