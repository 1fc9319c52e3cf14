/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * remove.h - UNLINK and RMDIR.
 */
#ifndef FOLDFS_FS_REMOVE_H
#define FOLDFS_FS_REMOVE_H

#include "fs/fs.h"

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);

#endif
