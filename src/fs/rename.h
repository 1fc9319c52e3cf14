/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * rename.h - RENAME, with all flags of renameat2(2).
 */
#ifndef FOLDFS_FS_RENAME_H
#define FOLDFS_FS_RENAME_H

#include "fs/fs.h"

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned int flags);

/* Answers an IOCTL that asks for the entry NAME of PARENT to be called NEW_NAME, another
 * spelling. */
void rename_spelling(fuse_req_t req, fuse_ino_t parent, const char *name, const char *new_name);

#endif
