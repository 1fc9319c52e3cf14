/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * data.h - what is done with open files.
 */
#ifndef FOLDFS_FS_DATA_H
#define FOLDFS_FS_DATA_H

#include "fs/fs.h"

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
             struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
              struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
              struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t offset_in,
                        struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t offset_out,
                        struct fuse_file_info *fi_out, size_t length, int flags);

#endif
