/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * create.h - making names.
 */
#ifndef FOLDFS_FS_CREATE_H
#define FOLDFS_FS_CREATE_H

#include "fs/fs.h"
#include "fs/resolve.h"

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *content, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);

#endif
