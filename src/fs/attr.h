/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * attr.h - attributes of files and of the file system.
 */
#ifndef FOLDFS_FS_ATTR_H
#define FOLDFS_FS_ATTR_H

#include "fs/fs.h"

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

#endif
