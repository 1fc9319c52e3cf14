/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * dentries.h - which names the kernel may keep, and for how long.
 */
#ifndef FOLDFS_FS_DENTRIES_H
#define FOLDFS_FS_DENTRIES_H

#include "fs/fs.h"

/* Decides on the scheme, when the kernel has said at INIT what it can do.  -EOPNOTSUPP: it
 * cannot do what cache=fast insists on. */
int dentries_init(struct foldfs *fs, const struct fuse_conn_info *conn);

/* Starts the thread that looks for mounts inside of the mount, where that matters; once it is
 * mounted.  0 or a negative errno. */
int dentries_start(struct foldfs *fs);
void dentries_stop(struct foldfs *fs);

/* Seconds for which the kernel may keep the name of NODE that was found as MATCH. */
double dentries_timeout(const struct foldfs *fs, const struct node *node,
                        enum index_match match);

/* Are names of other files than directories kept? */
bool dentries_are_kept(const struct foldfs *fs);

/* An entry was removed, renamed or replaced by a name that was found as MATCH: the kernel may
 * keep the same entry under the name that it really had.  To be called before the answer, by
 * any thread, with any lock. */
void dentries_changed_by(struct foldfs *fs, enum index_match match);

/* Others changed names in the tree. */
void dentries_changed_behind(struct foldfs *fs);

#endif
