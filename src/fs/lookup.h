/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * lookup.h - finding names; see ops.h for the operations.
 */
#ifndef FOLDFS_FS_LOOKUP_H
#define FOLDFS_FS_LOOKUP_H

#include "fs/fs.h"

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);

/* The on-disk spelling of the entry of DIR that NAME means.  -ENODATA: there is none; -EINVAL:
 * NAME is no name; other errors: no answer is possible.  Takes the name lock. */
int lookup_real_name(struct foldfs *fs, struct reached *dir, const char *name,
                     struct index_name *ret_name);

#endif
