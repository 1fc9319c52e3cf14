/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * victim.h - a file that is about to lose a name.
 */
#ifndef FOLDFS_FS_VICTIM_H
#define FOLDFS_FS_VICTIM_H

#include "fs/fs.h"

/* A file that is about to lose a name, if the kernel refers to it. */
struct victim {
    struct foldfs *fs;
    struct node *node; /* pinned; NULL: the kernel does not refer to it */
    struct reached file;
};
#define VICTIM_PUT __attribute__((cleanup(victim_put)))

/* Before the removal: ST is the file's stat. */
void victim_get(struct foldfs *fs, const struct statx *st, struct victim *ret_victim);

/* After it succeeded: if that was the last name, the kernel's node keeps a descriptor until it
 * is forgotten, since O_PATH descriptors (of which no OPEN told us) go on working. */
void victim_removed(struct victim *victim);
void victim_put(struct victim *victim);

#endif
