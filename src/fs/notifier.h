/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * notifier.h - telling the kernel what others changed.
 */
#ifndef FOLDFS_FS_NOTIFIER_H
#define FOLDFS_FS_NOTIFIER_H

#include "fs/fuse.h"

struct foldfs;
struct notifier;

/* Starts the thread.  0 or a negative errno. */
int notifier_new(struct foldfs *fs, struct notifier **ret_notifier);

/* Ends the thread, before the session is destroyed; what is left, and what comes, is not told.
 * NULL does nothing. */
void notifier_stop(struct notifier *notifier);

/* After that.  NULL does nothing. */
void notifier_free(struct notifier *notifier);

/* Names changed in the directory with nodeid PARENT.  Returns at once; any thread, with any
 * lock.  NULL does nothing. */
void notifier_tell(struct notifier *notifier, fuse_ino_t parent);

#endif
