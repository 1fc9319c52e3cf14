/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * asked.h - IOCTL, for what foldfsctl(8) asks of the daemon.
 */
#ifndef FOLDFS_FS_ASKED_H
#define FOLDFS_FS_ASKED_H

#include "fs/fs.h"

/* Answers REQ if CMD is one of control.h's; false: it is not.  IN has IN_SIZE bytes. */
bool asked_by_control(struct foldfs *fs, fuse_req_t req, fuse_ino_t ino, unsigned int cmd,
                      const void *in, size_t in_size);

#endif
