/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * caseonly.h - the rename that changes only the case of a name.
 */
#ifndef FOLDFS_FS_CASEONLY_H
#define FOLDFS_FS_CASEONLY_H

#include "fs/fs.h"
#include "fs/resolve.h"

/* REQ looks up TARGET, which was found under another spelling.  Is that the last step of a
 * rename of this very entry to the spelling that is looked up?  Then the answer must be that
 * there is no such name, or the kernel takes both for one and does nothing.  May wait some
 * milliseconds; the caller holds no lock. */
bool caseonly_is_meant(struct foldfs *fs, fuse_req_t req, const struct target *target);

#endif
