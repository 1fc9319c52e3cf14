/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * behind.h - changes made behind the mount: from the watch to the index.
 */
#ifndef FOLDFS_FS_BEHIND_H
#define FOLDFS_FS_BEHIND_H

#include "fs/fs.h"

/* Starts the watch, if it can be had: FS->watch is NULL else.  Before the file systems are
 * opened; behind_add() is then their fsys_features.watch, with FS as its ctx. */
void behind_start(struct foldfs *fs);
int behind_add(void *fs, int fd);

/* Once FS->index is there: events that waited for it are told.  0 or a negative errno. */
int behind_listen(struct foldfs *fs);

/* Before the session is unmounted: the kernel is told nothing any more. */
void behind_stop_notifying(struct foldfs *fs);

/* Before the index is closed, which hears the last itself (behind_settle). */
void behind_stop_listening(struct foldfs *fs);

/* Ends it, after that. */
void behind_end(struct foldfs *fs);

/* For index_options.settle, with FS as its ctx. */
void behind_settle(void *fs);

/* DIR lies on a watched file system. */
void behind_watch_dir(struct foldfs *fs, struct index_dir *dir);

/* The identity in the index of the directory with this file handle on the file system with
 * identity FSYS_ID.  FSYS_ID_SIZE + 1 + LEN is at most INDEX_DIR_ID_MAX.  Returns its length.
 */
size_t behind_dir_id(const uint8_t fsys_id[FSYS_ID_SIZE], int handle_type,
                     const unsigned char *handle, size_t len,
                     unsigned char ret_id[INDEX_DIR_ID_MAX]);

#endif
