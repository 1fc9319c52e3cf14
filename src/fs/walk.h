/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * walk.h - in which directory of ours a requester's path ends.
 */
#ifndef FOLDFS_FS_WALK_H
#define FOLDFS_FS_WALK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/deadline.h"
#include "fs/fs.h"

/* Splits PATH into directory part (may be "") and last component, without slashes at its end;
 * false if that is none that could be renamed. */
bool walk_split(const char *path, char ret_dir[PATH_MAX], struct index_name *ret_last);

/* The device of the file system that is mounted on PATH, as programs see it, without a request
 * to it. */
int walk_device(const char *path, uint64_t *ret_dev);

/* What a walk is for: a look-up of NAME in the directory with nodeid PARENT of the mount with
 * device DEV, which may be a step of the walk itself. */
struct walk_question {
    struct foldfs *fs;
    struct deadline_job *job; /* in which it runs */
    pid_t tid;                /* the requester */
    uint64_t dev;
    uint64_t parent;
    const char *name;
};

/* Does the directory part DIR of a path lead the requester, from DIRFD (AT_FDCWD: where it
 * works), to the parent; and not by way of NAME in it?  1, 0 if it leads elsewhere, or a
 * negative errno if that cannot be told.  Blocks. */
int walk_leads_to_parent(const struct walk_question *question, int dirfd, const char *dir);

#endif
