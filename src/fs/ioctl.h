/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * ioctl.h - IOCTL.
 */
#ifndef FOLDFS_FS_IOCTL_H
#define FOLDFS_FS_IOCTL_H

#include "fs/fs.h"

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
              struct fuse_file_info *fi, unsigned int flags, const void *in, size_t in_size,
              size_t out_size);

#endif
