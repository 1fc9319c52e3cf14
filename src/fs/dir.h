/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * dir.h - listing directories.
 */
#ifndef FOLDFS_FS_DIR_H
#define FOLDFS_FS_DIR_H

#include "fs/fs.h"

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);

/* Closes those that the kernel did not release, and frees their table: at the end of the
 * session. */
void dir_close_all(struct foldfs *fs);

/* The descriptor of the open directory that FI means, or -1. */
int dir_fd_of(struct foldfs *fs, const struct fuse_file_info *fi);

#endif
