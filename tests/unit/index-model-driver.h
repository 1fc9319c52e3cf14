/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-driver.h - random operations of one thread on a world, each checked by it.
 */
#ifndef FOLDFS_TESTS_INDEX_MODEL_DRIVER_H
#define FOLDFS_TESTS_INDEX_MODEL_DRIVER_H

#include "index-model-world.h"

/* Changes of ours that are begun and not ended, at once. */
#define MAX_OPEN 4

struct open_change {
    struct world_dir *d; /* NULL: free */
    unsigned class, spelling;
    bool present;
};

struct driver {
    struct world w;
    struct open_change open[MAX_OPEN];
};

/* One operation, or a few that belong together. */
void driver_step(struct driver *t);
/* Ends the open changes, gives up the open scans. */
void driver_calm(struct driver *t);

#endif
