/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index.h - which names a directory holds, found by their folded form in constant
 * time.  Opaque to FUSE and to the file system: the caller says what directory it
 * means (by an identity that survives a reboot), what names it saw there, and what
 * stamp the directory carried.
 *
 * What an answer is worth.  The index never decides alone that a name is absent: the
 * caller first asks index_dir_check(), which compares the directory's present stamp
 * with the one under which the index was complete.  An incomplete directory gives
 * INDEX_UNKNOWN for everything that is not certain.
 *
 * Threads.  Every function may be called from any thread unless it says otherwise.
 * index_find() takes no lock.  The caller holds a lock of its own for (directory,
 * folded name) from before it looks a name up until after it has changed the backing
 * tree and told the index (index_add and so on): "the name lock".  Name locks are
 * always taken outside of the locks in here.  Scans need no name lock.
 *
 * No function here calls back into the caller while it holds a lock that
 * index_find(), index_add(), index_remove() or index_respell() need; index_stat_fn is
 * called with that directory's own lock held in index_begin_change, index_end_change
 * and index_mend.
 */
#ifndef FOLDFS_INDEX_H
#define FOLDFS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common.h"

struct index;
struct index_dir;
struct index_scan;

/* The longest identity of a directory, in bytes: file-system id (16) + file handle
 * (MAX_HANDLE_SZ is 128). */
#define INDEX_DIR_ID_MAX 144

/* What moves when a directory changes.  Nanoseconds since the epoch, UTC; btime_ns is 0 where
 * there is none. */
struct index_stamp {
    int64_t ctime_ns;
    int64_t mtime_ns;
    int64_t size;
    int64_t btime_ns;
};

/* Reads the present stamp of the directory that CTX means; 0 or a negative errno.  May block
 * on the backing tree; must not call into the index. */
typedef int (*index_stat_fn)(void *ctx, struct index_stamp *ret_stamp);

struct index_options {
    const char *path; /* directory of this index, made if missing (0700); NULL: in memory */
    unsigned checkpoint_s; /* seconds between background checkpoints; 0: only explicit ones */
    /* Test double of the clock, CLOCK_REALTIME in ns; NULL: the real one. */
    int64_t (*now)(void);
    /* Called before a checkpoint looks at any directory, with no lock that
     * index_changed_behind() needs: when it returns, all
     * changes of watched directories that were over before the call have been told to
     * index_changed_behind().  NULL where nothing is watched. */
    void (*settle)(void *ctx);
    void *settle_ctx;
};

/* Opens (or makes) the index.  Damage, another fold version, a foreign format, no space: said
 * once in the log, and the index starts afresh, or in memory where that cannot be done, and 0
 * is returned: an index never keeps a tree from being served.  Errors that mean a mistake of
 * the administrator are returned, nothing being changed: -EBUSY (used by another daemon),
 * -EPERM (PATH is not ours or others may write to it), -EACCES, -EROFS, -ENOTDIR, -ENOENT (its
 * parent).  *ret_index is freed with index_close(). */
int index_open(const struct index_options *options, struct index **ret_index);

/* A last checkpoint, a mark that the index was closed in order, and the end of all threads and
 * maps.  All directories must have been released.  NULL does nothing. */
void index_close(struct index *index);

/* Makes durable what is known now; see DESIGN in index.c.  0 or a negative errno (the index
 * stays usable; what was not made durable is scanned again after a crash). */
int index_checkpoint(struct index *index);

/* Copies what counts into a new generation: drops garbage, grows the table.  Runs by itself
 * in the background when it is due; here for tests and foldfsctl.  Blocks until done.  Other
 * calls go on meanwhile.  0 or a negative errno, with the old generation still in use. */
int index_rebuild(struct index *index);

/* Compares every structure with every other (slots, records, chains, checks).  0, or
 * -EUCLEAN with what was wrong in the log.  Nothing is mended. */
int index_verify(struct index *index);

struct index_info {
    bool persistent;     /* on disk; else in memory */
    bool was_clean;      /* the last daemon closed it in order */
    uint64_t generation; /* 1 in the first generation folder */
    uint64_t
        names; /* records that a slot or chain leads to, an upper bound of those that count */
    uint64_t garbage;     /* records that none leads to any more */
    uint64_t directories; /* with a durable stamp */
    uint64_t live;        /* directories in memory */
    uint64_t file_bytes;  /* allocated on disk, or in memory */
    uint64_t scans;       /* committed since the start */
    uint64_t checkpoints; /* since the start */
};
void index_get_info(struct index *index, struct index_info *ret_info);

/* ---- directories ---- */

/* The directory with identity ID, as long as it is held: one object for each identity,
 * counted.  GRANULARITY_NS: how far apart two changes must be for the directory's ctime to
 * differ (0: any two differ, multigrain kernels).  PERSIST false: the identity means nothing
 * after a reboot or remount, so nothing of it is made durable.  A directory the index does not
 * know starts incomplete.  Errors: -ENOMEM, -EINVAL (ID_LEN). */
int index_dir_acquire(struct index *index, const void *id, size_t id_len,
                      int64_t granularity_ns, bool persist, struct index_dir **ret_dir);

/* Gives back what index_dir_acquire() gave.  NULL does nothing. */
void index_dir_release(struct index_dir *dir);

/* The directory was removed from the tree: all its names cease to be, its key is never used
 * again.  Also for tests.  DIR stays valid, incomplete, until released. */
void index_dir_forget(struct index_dir *dir);

/* From now on somebody watches DIR: of every change of its names that is not ours,
 * index_changed_behind() is told before an answer may rest on the directory that comes after
 * the change.  So its stamp need not be looked at, once it was, and a change of ours can hide
 * none of others'.  To be called before the first check; any number of times. */
void index_dir_watch(struct index_dir *dir);

/* For index_changed_behind(): the caller's own number for DIR, not 0. */
void index_dir_set_number(struct index_dir *dir, uint64_t number);

/* Others changed what NAME means in the directory with identity ID, or NAME NULL: some name in
 * it.  Returns the directory's number; nothing happens if nobody holds it, and 0 is returned.
 */
uint64_t index_changed_behind(struct index *index, const void *id, size_t id_len,
                              const char *name, size_t len);

/* Nobody watches any more, and changes may have been missed: all directories are incomplete,
 * and their stamps decide from now on. */
void index_unwatch_all(struct index *index);

enum index_currency {
    INDEX_STALE,   /* incomplete, or changed behind our back: scan before saying "absent" */
    INDEX_CURRENT, /* complete, and the stamp proves it or changes of ours are in flight */
};

/* May an answer rest on what the index holds of DIR, as of a moment during this call?  Calls
 * STAT at most a few times, without any lock held, and not at all for a watched directory whose
 * stamp was once found to hold.  A directory whose stamp moved without a
 * change of ours becomes incomplete here.  While changes of ours are in flight the stamp moves
 * by them, and the index is trusted.  Where timestamps are coarse (granularity > 0), a
 * directory that we changed, or that was scanned while its stamp was still young, is
 * *unsettled*: once the stamp is old enough to prove something it is STALE once, to be
 * scanned again, but never so often that scanning it costs more than 5 % of the time.
 * Returns a negative errno of STAT, else enum index_currency. */
int index_dir_check(struct index_dir *dir, index_stat_fn stat, void *ctx);

/* The index turned out wrong about the directory: it becomes incomplete. */
void index_dir_void(struct index_dir *dir);

/* The index turned out wrong about NAME (what it gave is not there, what it called absent is):
 * where DIR is watched, NAME is to be mended; else as index_dir_void(). */
void index_doubt(struct index_dir *dir, const char *name, size_t len);

/* Brackets every change that foldfs makes itself to the directory's stamp: names created,
 * removed, renamed in it, but also chmod, chown, utimes, setxattr on it, and its own move.
 * May nest across threads.  begin: with no other change in flight, the stamp is compared
 * first (mismatch: the directory becomes incomplete).  end: when none is left in flight, the
 * present stamp is taken as the one that holds.  A failing STAT makes the directory
 * incomplete; neither function fails. */
void index_begin_change(struct index_dir *dir, index_stat_fn stat, void *ctx);
void index_end_change(struct index_dir *dir, index_stat_fn stat, void *ctx);

/* ---- names; the caller holds the name lock ---- */

enum index_match {
    INDEX_UNKNOWN, /* the index cannot tell: the directory is incomplete */
    INDEX_ABSENT,  /* no entry folds like it; only from a complete directory */
    INDEX_EXACT,   /* there is an entry with these very bytes */
    INDEX_VARIANT, /* no such bytes, but entries that fold alike: the bytewise smallest */
};

struct index_name {
    uint8_t len;
    char bytes[FOLDFS_NAME_MAX + 1]; /* with a NUL */
};

/* What the index holds for NAME of LEN bytes (1 to FOLDFS_NAME_MAX, any bytes but NUL and
 * slash).  *ret_name is set for EXACT and VARIANT.  From an incomplete directory only EXACT
 * (a hint: its stat decides) and UNKNOWN come.  Takes no lock. */
enum index_match index_find(struct index_dir *dir, const char *name, size_t len,
                            struct index_name *ret_name);

/* Is there an entry NAME (of NUL-terminated bytes) in the directory that CTX means?  1, 0 or a
 * negative errno.  The same rules as for index_stat_fn. */
typedef int (*index_exists_fn)(void *ctx, const char *name);

/* After index_dir_check(), and before index_find() of NAME: if others changed NAME, or one that
 * folds alike, looks in the tree which of them are there, and gives 1.  Then an answer
 * "absent" may rest on looks at several spellings, between which an entry went from one that
 * was still to be looked at to one that had been: so the caller has it told what was changed
 * up to now, and begins again.  0: there was nothing to mend.  A negative errno of EXISTS: as
 * before. */
int index_mend(struct index_dir *dir, const char *name, size_t len, index_exists_fn exists,
               index_stat_fn stat, void *ctx);

/* An entry NAME is in the tree now.  Idempotent.  If there is no room the directory becomes
 * incomplete, which the log says once. */
void index_add(struct index_dir *dir, const char *name, size_t len);

/* The entry with exactly these bytes is gone from the tree.  Idempotent. */
void index_remove(struct index_dir *dir, const char *name, size_t len);

/* The entry OLD is now called NEW, which folds alike (a case-only rename): one store, so that
 * no reader meets a moment with neither. */
void index_respell(struct index_dir *dir, const char *old, size_t old_len, const char *new,
                   size_t new_len);

/* ---- scans ---- */

/* Begins a scan of DIR, unless another thread is scanning it: then waits for that one's end
 * and gives 0 with *ret_scan NULL (check again).  With *ret_scan set the caller reads the
 * whole directory and calls index_scan_add() for each entry but "." and "..", then commit or
 * abort.  Errors: -ENOMEM, -ENOSPC. */
int index_scan_begin(struct index_dir *dir, struct index_scan **ret_scan);

/* The scan saw NAME.  Names that were added, removed or respelled since the scan began are
 * left as that said.  0, or -ENOSPC, -ENOMEM: then abort. */
int index_scan_add(struct index_scan *scan, const char *name, size_t len);

/* Ends the scan.  BEFORE and AFTER are the directory's stamps from before the first and after
 * the last read.  If nobody but us changed the directory in between - they are equal, or
 * whatever moved the stamp did so while changes of ours were in flight - then what was not seen
 * ceases to be and the directory is complete: 0.  Else -EAGAIN: somebody else changed it
 * meanwhile; it stays incomplete.  SCAN is freed in either case. */
int index_scan_commit(struct index_scan *scan, const struct index_stamp *before,
                      const struct index_stamp *after);

/* Ends the scan; the directory stays as it was.  SCAN is freed. */
void index_scan_abort(struct index_scan *scan);

#endif
