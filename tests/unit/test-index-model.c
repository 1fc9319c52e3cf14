/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-model.c - the index against a model: random operations of one thread, of many
 * threads (index-model-threads.c), and a few histories written out because chance meets them
 * too rarely (index-model-stories.c).
 *
 * FOLDFS_TEST_SCALE multiplies the operations (10 makes ten million); FOLDFS_TEST_SEED repeats
 * a run.  With threads a seed repeats the choices, not the interleaving.
 */
#include "index-model-driver.h"

#include <stdio.h>

#include "index-model-parts.h"

/* Of one thread, at scale 1. */
#define OPERATIONS 600000

static void check_everything(struct driver *t)
{
    driver_calm(t);
    for (unsigned i = 0; i < t->w.n_dirs; i++) {
        atomic_store(&t->w.dirs[i].tree.stat_fails, 0);
        world_settle(&t->w, &t->w.dirs[i]);
    }
    if (index_verify(t->w.index) < 0)
        tap_fail("index_verify at the end");
}

static void run_random(const char *name, uint64_t operations, unsigned n_dirs,
                       unsigned n_classes, enum world_kind kind, const char *path)
{
    struct driver t = {0};
    unsigned before = tap_failures();

    world_init(&t.w, tap_seed() + n_dirs, n_dirs, n_classes, kind, path);
    world_open(&t.w);
    while (t.w.stats.operations < operations && tap_failures() == before)
        driver_step(&t);
    if (tap_failures() == before)
        check_everything(&t);
    tap_diag("%llu operations, %llu checks of which %llu stale, %llu scans committed, %llu not",
             (unsigned long long)t.w.stats.operations, (unsigned long long)t.w.stats.checks,
             (unsigned long long)t.w.stats.stale, (unsigned long long)t.w.stats.scans,
             (unsigned long long)t.w.stats.again);
    /* After a failure the shadow may be wrong about what is open. */
    if (tap_failures() == before) {
        world_close(&t.w);
        world_free(&t.w);
    }
    tap_line(name);
}

int main(void)
{
    uint64_t operations = (uint64_t)OPERATIONS * tap_scale();
    char *folder = temp_folder("index-model");
    char path[4096];

    setvbuf(stdout, NULL, _IOLBF, 0);
    tap_seed();
    snprintf(path, sizeof(path), "%s/exact", folder);
    run_random("random_operations_agree_with_the_model", operations / 2, 24, 200, WORLD_EXACT,
               path);
    snprintf(path, sizeof(path), "%s/mixed", folder);
    run_random("random_operations_on_coarse_clocks_agree", operations / 6, 24, 200, WORLD_MIXED,
               path);
    run_random("random_operations_in_memory_agree", operations / 6, 24, 200, WORLD_MIXED, NULL);
    snprintf(path, sizeof(path), "%s/many", folder);
    run_random("many_directories_agree_with_the_model", operations / 6, 2000, 60, WORLD_MIXED,
               path);
    index_model_stories(folder);
    index_model_threads(folder);
    remove_tree(folder);
    free(folder);
    return tap_end();
}
