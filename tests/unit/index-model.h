/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model.h - what the tests of the index compare it with: names whose folding is known by
 * construction, and a tree of directories in memory whose stamps behave as a kernel's do.
 *
 * Names come in classes.  All spellings of a class fold alike and no two classes do; that is
 * so by the way they are made, and index_model_names_init() checks that fold/ agrees.  The
 * spellings of a class are sorted bytewise, so a directory holds, for each class, a mask of
 * spellings: the smallest variant is the lowest bit.
 *
 * The tree knows nothing of the index.  Every change takes the directory's lock, changes one
 * mask and moves the stamp, as a kernel does under the inode's lock.  Time is a counter that
 * moves at each change and by jumps, so that tests of coarse time stamps do not wait.
 *
 * Here too: the random numbers (seeded, so that a failure can be had again), the failure
 * counter and the TAP lines.
 */
#ifndef FOLDFS_TESTS_INDEX_MODEL_H
#define FOLDFS_TESTS_INDEX_MODEL_H

#include <stdatomic.h>

#include "index/index.h"

/* One bit each in a mask. */
#define MODEL_SPELLINGS_MAX 64

/* ---- random numbers ---- */

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* 0 to N - 1; N > 0. */
unsigned rng_below(struct rng *rng, unsigned n);
/* True once in N times. */
bool rng_once_in(struct rng *rng, unsigned n);

/* ---- TAP and the environment ---- */

/* FOLDFS_TEST_SCALE (default 1) and FOLDFS_TEST_SEED (default: from the clock; printed). */
unsigned tap_scale(void);
uint64_t tap_seed(void);
/* Something is wrong: counted, and the first few are printed as "# ..." lines. */
void tap_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
unsigned tap_failures(void);
void tap_diag(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "ok - NAME" if nothing failed since the last line, else "not ok - NAME". */
void tap_line(const char *name);
void tap_skip(const char *name, const char *reason);
/* Prints the plan; the exit status of the program. */
int tap_end(void);

/* A fresh folder under TMPDIR or /tmp; freed with free().  Dies if it cannot be made. */
char *temp_folder(const char *what);
/* Removes PATH and all below it; PATH may be missing. */
void remove_tree(const char *path);

/* ---- names ---- */

struct model_name {
    uint8_t len;
    char bytes[FOLDFS_NAME_MAX + 1];
};

struct model_class {
    unsigned n;
    struct model_name *spellings; /* sorted bytewise */
};

struct model_names {
    unsigned n;
    struct model_class *classes;
};

/* N classes of every kind: ASCII of 1 to 255 bytes, kana, pairs of the Windows table of equal
 * and different length, signs that look alike but do not fold alike, bytes that are not UTF-8.
 * Failures where fold/ disagrees. */
void model_names_init(struct model_names *names, unsigned n, struct rng *rng);
void model_names_free(struct model_names *names);
/* Escaped for a "# " line; a static buffer of the thread. */
const char *model_show(const struct model_name *name);

/* ---- the clock ---- */

/* The present of the tests, for index_options.now. */
int64_t model_now(void);
void model_sleep(int64_t ns);

/* ---- the tree ---- */

struct model_dir {
    uint8_t id[INDEX_DIR_ID_MAX];
    size_t id_len;
    int64_t granularity_ns;
    bool persist;
    unsigned n_classes;
    pthread_mutex_t lock; /* masks and stamp change together */
    _Atomic uint64_t *masks;
    struct index_stamp stamp;
    int64_t entries;
    atomic_uint stat_fails; /* so many calls of model_stat() give -EIO */
    atomic_uint stat_failed;
};

void model_dir_init(struct model_dir *dir, unsigned number, unsigned n_classes,
                    int64_t granularity_ns, bool persist);
void model_dir_free(struct model_dir *dir);
/* The directory was removed and another one made: a new identity, no entries. */
void model_dir_renew(struct model_dir *dir, struct rng *rng);

/* Entry SPELLING of CLASS is there from now on, or is not; the stamp moves.  False, and
 * nothing moves, if it was so already. */
bool model_set(struct model_dir *dir, unsigned class, unsigned spelling, bool present);
/* One rename inside a class, at one moment. */
void model_respell(struct model_dir *dir, unsigned class, unsigned from, unsigned to);
/* The stamp moves (chmod, utimes). */
void model_touch(struct model_dir *dir);
uint64_t model_mask(struct model_dir *dir, unsigned class);
bool model_has(struct model_dir *dir, unsigned class, unsigned spelling);
/* An index_stat_fn. */
int model_stat(void *ctx, struct index_stamp *ret_stamp);
bool model_same_stamp(const struct index_stamp *a, const struct index_stamp *b);

/* Reads a directory as getdents does: in an order of its own, some entries at a time.  An entry
 * that is there all the time comes once; one that comes or goes meanwhile may come or not. */
struct model_reader {
    struct model_dir *dir;
    unsigned start, step, done; /* classes, in the order start + i * step */
};

void model_reader_init(struct model_reader *reader, struct model_dir *dir, struct rng *rng);
/* The next class that has entries: its number and their mask; false at the end. */
bool model_reader_next(struct model_reader *reader, unsigned *ret_class, uint64_t *ret_mask);

/* What index_find() must say for SPELLING of a class that holds MASK; *ret_spelling is set for
 * INDEX_EXACT and INDEX_VARIANT. */
enum index_match model_answer(uint64_t mask, unsigned spelling, unsigned *ret_spelling);
const char *model_match_name(enum index_match match);

/* Did index_find() say GOT, and the right name with it?  A failure, told with WHERE, if not. */
bool model_compare(const struct model_class *class, uint64_t mask, unsigned spelling,
                   enum index_match got, const struct index_name *got_name, const char *where);

#endif
