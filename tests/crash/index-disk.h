/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-disk.h - what a disk holds of an index directory when the power fails.
 *
 * Linked with -Wl,--wrap=fsync,--wrap=fdatasync: what was synced is there for certain, at least
 * that new.  Of all that was written since, any part may be there, in pieces of a page or a
 * sector, as of any moment at which disk_look() was called, or of the present one.  A folder's
 * entries are those of its last fsync or the present ones.
 */
#ifndef FOLDFS_TESTS_INDEX_DISK_H
#define FOLDFS_TESTS_INDEX_DISK_H

#include "index-files.h"

struct disk_stats {
    uint64_t syncs, looks;
};

/* Watches FOLDER (one at a time) from now on; what is there is taken for synced. */
void disk_watch(const char *folder);
void disk_forget(void);
/* Remembers what the files look like at this moment. */
void disk_look(void);
void disk_get_stats(struct disk_stats *ret_stats);

/* What of each file is on the disk. */
enum disk_mix {
    DISK_SYNCED,  /* only what was synced */
    DISK_NEWEST,  /* all that was written */
    DISK_PAGES,   /* each page as of a moment of its own */
    DISK_SECTORS, /* each sector of 512 bytes */
    DISK_FILES,   /* each file as of a moment of its own, whole */
    N_DISK_MIXES
};

void disk_crash(enum disk_mix mix, struct rng *rng, struct file_set *ret_set);

#endif
