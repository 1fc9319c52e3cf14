/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * scan.h - making the index complete for one directory, when an answer needs it.
 */
#ifndef FOLDFS_COHERENCE_SCAN_H
#define FOLDFS_COHERENCE_SCAN_H

#include <stdint.h>

#include "coherence/watch.h"
#include "index/index.h"

/* A directory of the tree for the functions here: what the index has of it, and a descriptor
 * (O_PATH will do) that the caller keeps open. */
struct scan_target {
    struct index_dir *dir;
    int fd;
    int64_t granularity_ns; /* of its file system's timestamps */
    struct watch *watch;    /* that tells of changes by others; NULL: none does */
};

/* An index_stat_fn; CTX points to the directory's descriptor. */
int scan_stat(void *ctx, struct index_stamp *ret_stamp);

/* Returns 0 once the index may be believed about the directory: at once if it is current, else
 * after a scan, this thread's or another's that was under way.  Errors: those of reading the
 * directory; -EAGAIN if it is not watched and never stood still for a scan; -ENOMEM, -ENOSPC if
 * the index has no room.  After these three scan_search() gives the answer for one name.
 * Blocks; any thread; the caller may hold name locks. */
int scan_if_stale(const struct scan_target *target);

/* After that: what others changed of NAME in a watched directory is mended, as index_mend()
 * says, whose results these are.  After 1, what was changed up to now will be told. */
int scan_mend(const struct scan_target *target, const char *name, size_t len);

/* Answers for NAME by reading the directory, without the index: INDEX_EXACT, INDEX_VARIANT
 * with *ret_name set, or INDEX_ABSENT; or a negative errno. */
int scan_search(int dir_fd, const char *name, size_t len, struct index_name *ret_name);

#endif
