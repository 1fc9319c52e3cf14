/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * caseonly.h - the rename that changes only the case of a name.
 */
#ifndef FOLDFS_FS_CASEONLY_H
#define FOLDFS_FS_CASEONLY_H

#include "fs/fs.h"
#include "fs/resolve.h"

/* REQ looks up TARGET, which was found as FOUND under another spelling.  If this may be the
 * last step of a rename of this very entry to the spelling that is looked up, takes the request
 * over and gives true: it is answered soon, with "no such name" if it is (or the kernel would
 * take both for one and do nothing), else with FOUND.  The caller holds no lock. */
bool caseonly_takes(struct foldfs *fs, fuse_req_t req, const struct target *target,
                    const struct found_entry *found);

#endif
