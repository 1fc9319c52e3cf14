/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * xattr.h - extended attributes, and the one that asks for a real name.
 */
#ifndef FOLDFS_FS_XATTR_H
#define FOLDFS_FS_XATTR_H

#include "fs/fs.h"

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                 size_t size, int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
