/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * walk.h - in which directory of ours a requester's path ends, found out without a request to
 * our own mount.
 */
#ifndef FOLDFS_FS_WALK_H
#define FOLDFS_FS_WALK_H

#include <limits.h>

#include "fs/deadline.h"
#include "fs/fs.h"

/* Splits PATH into directory part (may be "") and last component, without slashes at its end;
 * false if that is none that could be renamed. */
bool walk_split(const char *path, char ret_dir[PATH_MAX], struct index_name *ret_last);

/* What a walk is for: a look-up of NAME in PARENT, which may be one of its own. */
struct walk_question {
    struct foldfs *fs;
    struct deadline_job *job; /* in which it runs */
    pid_t tid;                /* the requester */
    const struct node *parent;
    const char *name;
};

/* Does the directory part DIR of a path lead TID, from DIRFD (AT_FDCWD: where it works), to
 * question->parent; and not by way of NAME in it?  1, 0 if it does not, or a negative errno if
 * that cannot be told.  Blocks. */
int walk_leads_to_parent(const struct walk_question *question, int dirfd, const char *dir);

#endif
