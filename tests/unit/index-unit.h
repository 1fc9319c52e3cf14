/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-unit.h - what the unit tests of src/index share: a folder of their own, a clock that
 * moves when told, a directory whose stamp is a variable, short forms of the calls, and the
 * main function's end.
 */
#ifndef FOLDFS_TESTS_INDEX_UNIT_H
#define FOLDFS_TESTS_INDEX_UNIT_H

#include <check.h>
#include <string.h>

#include "index/index.h"

#define SECOND INT64_C(1000000000)
/* The clock of the tests starts here, in ns. */
#define UNIT_EPOCH (1000 * SECOND)

/* The time that an index of unit_open() sees. */
extern int64_t unit_now_ns;
int64_t unit_now(void);

/* A fresh folder, the same in one test; unit_path() is "index" in it. */
const char *unit_folder(void);
const char *unit_path(void);
void unit_remove_folder(void);

/* The stamp that unit_stat() gives; CTX points to one. */
int unit_stat(void *ctx, struct index_stamp *ret_stamp);
int unit_stat_fails(void *ctx, struct index_stamp *ret_stamp);
/* A stamp of time CTIME_NS. */
struct index_stamp unit_stamp(int64_t ctime_ns);

/* Opens PATH (NULL: in memory) without background checkpoints. */
struct index *unit_open(const char *path);
struct index_dir *unit_acquire(struct index *index, const char *id, int64_t granularity_ns);
/* Scans DIR: it holds NAMES (ends with NULL), under STAMP. */
void unit_scan(struct index_dir *dir, const struct index_stamp *stamp,
               const char *const *names);
void unit_add(struct index_dir *dir, const char *name);
void unit_remove(struct index_dir *dir, const char *name);
enum index_match unit_find(struct index_dir *dir, const char *name);
/* DIR answers WANT for NAME, with FOUND (NULL: none). */
void unit_expect(struct index_dir *dir, const char *name, enum index_match want,
                 const char *found);
void unit_change(struct index_dir *dir, struct index_stamp *stamp, const char *add,
                 const char *remove);

/* Runs CASE alone in a suite; the exit status. */
int unit_run(const char *name, TCase *tests);

#endif
