/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * resolve.h - which entry of a directory a name means.
 */
#ifndef FOLDFS_FS_RESOLVE_H
#define FOLDFS_FS_RESOLVE_H

#include "fs/fs.h"

/* A directory and a name in it, as an operation has them. */
struct target {
    struct node *parent;
    struct reached dir; /* of the parent */
    const char *name;   /* as given */
    size_t len;
};
#define TARGET_PUT __attribute__((cleanup(target_put)))

/* How often a change looks for its entry again, whose name was changed behind the mount between
 * the answer and the change. */
#define CHANGE_ATTEMPTS 100

/* Before the change, in attempt number ATTEMPT: whoever renames the entry all the time holds
 * the directory's lock most of the time, and would be just one rename further each time.  So
 * from the second attempt on a random time passes. */
void fall_out_of_step(int attempt);

/* Fills in a target; false: REQ was answered with an error. */
bool target_get(struct foldfs *fs, fuse_req_t req, fuse_ino_t parent, const char *name,
                struct target *ret_target);
void target_put(struct target *target);

/* The entry that was found. */
struct resolved {
    enum index_match match; /* INDEX_ABSENT, INDEX_EXACT or INDEX_VARIANT */
    struct index_name name; /* unless absent: the on-disk spelling */
    struct statx st;        /* unless absent */
};

/* Finds the entry that folds like the name: the one with exactly these bytes, else the bytewise
 * smallest.  The caller holds the name lock.  0 with *ret_resolved, or a negative errno, which
 * never means "absent". */
int resolve_folded(struct foldfs *fs, const struct target *target,
                   struct resolved *ret_resolved);

/* Finds the entry with exactly these bytes. */
int resolve_exact(const struct target *target, struct resolved *ret_resolved);

/* By the mount's mode (lookup=fold|exact). */
int resolve(struct foldfs *fs, const struct target *target, struct resolved *ret_resolved);

#endif
