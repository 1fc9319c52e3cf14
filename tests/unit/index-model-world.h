/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-world.h - one thread, the index, the simulated tree, and what the contract says
 * of each call: the shadow that the random test and the tests of crashes go by.
 *
 * For each directory the shadow knows whether the index must hold it complete, may, or must
 * not; whether somebody else moved its stamp since (dirty); and in which names the index may
 * be wrong (doubt), because a foreign change has not been noticed yet, or could not be: it was
 * made while changes of ours were in flight, or within one step of a coarse clock.
 */
#ifndef FOLDFS_TESTS_INDEX_MODEL_WORLD_H
#define FOLDFS_TESTS_INDEX_MODEL_WORLD_H

#include "index-model.h"

enum completeness {
    COMPLETE_NO,    /* the index must say STALE */
    COMPLETE_MAYBE, /* may say either, but what it says must be right */
    COMPLETE_YES,   /* must say CURRENT: anything else is a needless scan */
};

/* What a scan in one thread is at; names read and not yet handed over are in BUFFER. */
struct world_scan {
    struct index_scan *scan; /* NULL: none open */
    struct model_reader reader;
    struct index_stamp before;
    int64_t began;
    unsigned n_buffer;
    struct {
        unsigned class, spelling;
    } buffer[MODEL_SPELLINGS_MAX];
    bool own_in_flight; /* at any time since the begin */
    bool seen_foreign;  /* others moved the stamp while nothing of ours was in flight */
    bool upset;         /* voided, or a stat failed, since the begin */
    bool settled;       /* the stamp was old enough at the begin */
    uint64_t *foreign;  /* bits that others changed since the begin, by class */
};

struct world_dir {
    struct model_dir tree;
    struct index_dir *dir;
    unsigned refs;
    enum completeness complete;
    bool dirty;
    bool unsettled; /* coarse: the index owes one more scan */
    bool hidden;    /* coarse: a change that the stamp did not show */
    bool forgotten; /* until released */
    /* After damage or a crash, until a commit: the index may find out at any time that it
     * cannot tell, and its hints may be wrong; what it says for certain must be right. */
    bool suspect;
    int64_t last_scan_end, last_scan_cost; /* by model_now() */
    unsigned in_flight;                    /* brackets of ours */
    uint64_t *doubt;                       /* by class */
    uint64_t *locked; /* by class: != 0 while a bracket of ours holds its name lock */
    struct world_scan scan;
};

struct world_stats {
    uint64_t operations, checks, stale, scans, again, voided;
};

struct world {
    struct rng rng;
    struct model_names names;
    unsigned n_dirs;
    struct world_dir *dirs;
    char *path; /* NULL: in memory */
    struct index *index;
    /* The power was lost: directories stay suspect, for old damage can be met at any time; and
     * the index may be ahead of the tree, so a positive whose entry is not there is voided, as
     * the daemon does when its stat fails. */
    bool power_was_lost;
    /* Others change nothing while changes of ours are in flight: nobody could notice it, and
     * after a crash it would be unknown what is in doubt. */
    bool foreign_waits;
    struct world_stats stats;
};

enum world_kind {
    WORLD_EXACT,
    WORLD_MIXED
}; /* granularity 0 only, or coarse ones among them */

void world_init(struct world *w, uint64_t seed, unsigned n_dirs, unsigned n_classes,
                enum world_kind kind, const char *path);
void world_free(struct world *w);
void world_open(struct world *w);
/* Releases all directories (no bracket and no scan may be open) and closes the index. */
void world_close(struct world *w);
/* world_close(), world_open(), and what must have survived an orderly end. */
void world_reopen(struct world *w);
/* After anything but an orderly end: what was complete may still be; all are suspect. */
void world_expect_little(struct world *w);

void world_acquire(struct world *w, struct world_dir *d);
void world_release(struct world *w, struct world_dir *d);
void world_forget(struct world *w, struct world_dir *d);

/* Asks the index and compares: the check against what the contract says, the answer against
 * the tree.  Returns what index_dir_check() said. */
int world_check(struct world *w, struct world_dir *d);
void world_find(struct world *w, struct world_dir *d, unsigned class, unsigned spelling);
/* Every class under every spelling. */
void world_find_all(struct world *w, struct world_dir *d);
/* Scans until the directory is current, then world_find_all(). */
void world_settle(struct world *w, struct world_dir *d);

/* Changes of ours, as the daemon makes them: bracket, tree, index. */
void world_begin(struct world *w, struct world_dir *d);
void world_end(struct world *w, struct world_dir *d);
void world_put(struct world *w, struct world_dir *d, unsigned class, unsigned spelling,
               bool present);
void world_respell(struct world *w, struct world_dir *d, unsigned class, unsigned from,
                   unsigned to);
/* Tells the index what the tree has, without changing the tree, as a watcher does. */
void world_confirm(struct world *w, struct world_dir *d, unsigned class, unsigned spelling);
void world_void(struct world *w, struct world_dir *d);

/* Changes behind our back. */
void world_foreign_put(struct world *w, struct world_dir *d, unsigned class, unsigned spelling,
                       bool present);
void world_foreign_touch(struct world *w, struct world_dir *d);

/* Scans in steps. */
void world_scan_begin(struct world *w, struct world_dir *d);
/* One step: reads some names, or hands one over; false when all was handed over. */
bool world_scan_step(struct world *w, struct world_dir *d);
/* What happens between the last read and the commit is for the caller: MEANWHILE may be NULL.
 */
void world_scan_commit(struct world *w, struct world_dir *d,
                       void (*meanwhile)(struct world *w, struct world_dir *d));
void world_scan_abort(struct world *w, struct world_dir *d);
void world_scan_whole(struct world *w, struct world_dir *d);

#endif
