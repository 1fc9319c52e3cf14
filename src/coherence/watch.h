/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * watch.h - hearing of changes that others make to the tree behind the mount.
 */
#ifndef FOLDFS_COHERENCE_WATCH_H
#define FOLDFS_COHERENCE_WATCH_H

#include <stdbool.h>
#include <stddef.h>

struct watch;

/* Whom it is told.  The functions are called one at a time, in any thread, and must neither
 * block on the tree nor call back into here. */
struct watch_listener {
    /* What NAME means has changed in the directory with this file handle, on one of the watched
     * file systems; NAME is NULL where it is not known. */
    void (*changed)(void *ctx, int handle_type, const unsigned char *handle, size_t len,
                    const char *name);
    /* Changes were lost, and none will be told any more. */
    void (*lost)(void *ctx);
    void *ctx;
};

/* A watch of no file system yet.  -EPERM without CAP_SYS_ADMIN, -ENOSYS or -EINVAL where the
 * kernel has no such thing (Linux 5.9). */
int watch_new(const struct watch_listener *listener, struct watch **ret_watch);
void watch_free(struct watch *watch);

/* From now on the listener is called: before, events wait.  0 or a negative errno. */
int watch_start(struct watch *watch);

/* Ends that, but for what watch_settle() tells. */
void watch_stop(struct watch *watch);

/* Also the file system of the directory FD.  -EXDEV (a btrfs subvolume), -EOPNOTSUPP, -ENODEV
 * and others where it cannot be watched. */
int watch_add(struct watch *watch, int fd);

/* When it returns true, every change by others that was over before the call has been told.
 * Costs half a microsecond if there was none.  False: nothing is told any more. */
bool watch_settle(struct watch *watch);

#endif
