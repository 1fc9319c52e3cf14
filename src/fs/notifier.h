/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * notifier.h - telling the kernel that a name has to be looked up again.
 */
#ifndef FOLDFS_FS_NOTIFIER_H
#define FOLDFS_FS_NOTIFIER_H

#include "fs/fuse.h"

struct notifier;

/* Starts the thread.  0 or a negative errno. */
int notifier_new(struct fuse_session *session, struct notifier **ret_notifier);

/* Ends the thread, before SESSION is destroyed; what is left, and what comes, is not told.  If
 * it waits for a request that nobody will answer, what is mounted on MOUNTPOINT is cut off from
 * its session.  NULL does nothing. */
void notifier_stop(struct notifier *notifier, const char *mountpoint);

/* After that.  NULL does nothing. */
void notifier_free(struct notifier *notifier);

/* NAME, of LEN bytes, in the directory with nodeid PARENT, and the attributes of that, are not
 * what the kernel may believe.  Returns at once; any thread, with any lock.  NULL does nothing.
 */
void notifier_expire(struct notifier *notifier, fuse_ino_t parent, const char *name,
                     size_t len);

#endif
