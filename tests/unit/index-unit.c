/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-unit.c - see index-unit.h.
 */
#include "index-unit.h"
#include "suite.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int64_t unit_now_ns = UNIT_EPOCH;

static char folder[64];
static char path[80];

int64_t unit_now(void)
{
    return unit_now_ns;
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(name);
}

void unit_remove_folder(void)
{
    if (folder[0])
        (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    folder[0] = 0;
}

const char *unit_folder(void)
{
    if (!folder[0]) {
        strcpy(folder, "/tmp/foldfs-unit-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder));
        atexit(unit_remove_folder);
    }
    return folder;
}

const char *unit_path(void)
{
    snprintf(path, sizeof(path), "%s/index", unit_folder());
    return path;
}

int unit_stat(void *ctx, struct index_stamp *ret_stamp)
{
    *ret_stamp = *(const struct index_stamp *)ctx;
    return 0;
}

int unit_stat_fails(void *ctx, struct index_stamp *ret_stamp)
{
    (void)ctx;
    (void)ret_stamp;
    return -EIO;
}

struct index_stamp unit_stamp(int64_t ctime_ns)
{
    return (struct index_stamp){ctime_ns, ctime_ns, 4096, 1};
}

struct index *unit_open(const char *where)
{
    const struct index_options options = {.path = where, .now = unit_now};
    struct index *index = NULL;

    ck_assert_int_eq(index_open(&options, &index), 0);
    return index;
}

struct index_dir *unit_acquire(struct index *index, const char *id, int64_t granularity_ns)
{
    struct index_dir *dir = NULL;

    ck_assert_int_eq(index_dir_acquire(index, id, strlen(id), granularity_ns, true, &dir), 0);
    return dir;
}

void unit_scan(struct index_dir *dir, const struct index_stamp *stamp, const char *const *names)
{
    struct index_scan *scan = NULL;

    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    ck_assert_ptr_nonnull(scan);
    for (; names && *names; names++)
        ck_assert_int_eq(index_scan_add(scan, *names, strlen(*names)), 0);
    ck_assert_int_eq(index_scan_commit(scan, stamp, stamp), 0);
}

void unit_add(struct index_dir *dir, const char *name)
{
    index_add(dir, name, strlen(name));
}

void unit_remove(struct index_dir *dir, const char *name)
{
    index_remove(dir, name, strlen(name));
}

enum index_match unit_find(struct index_dir *dir, const char *name)
{
    struct index_name found;

    return index_find(dir, name, strlen(name), &found);
}

void unit_expect(struct index_dir *dir, const char *name, enum index_match want,
                 const char *found)
{
    struct index_name got = {0};
    enum index_match match = index_find(dir, name, strlen(name), &got);

    ck_assert_msg(match == want, "%s: %d instead of %d", name, (int)match, (int)want);
    if (!found)
        return;
    ck_assert_str_eq(got.bytes, found);
    ck_assert_uint_eq(got.len, strlen(found));
}

void unit_change(struct index_dir *dir, struct index_stamp *stamp, const char *add,
                 const char *remove_name)
{
    index_begin_change(dir, unit_stat, stamp);
    unit_now_ns += 1000;
    stamp->ctime_ns = stamp->mtime_ns = unit_now_ns;
    if (add)
        unit_add(dir, add);
    if (remove_name)
        unit_remove(dir, remove_name);
    index_end_change(dir, unit_stat, stamp);
}

int unit_run(const char *name, TCase *tests)
{
    Suite *suite = suite_create(name);

    tcase_add_checked_fixture(tests, NULL, unit_remove_folder);
    tcase_set_timeout(tests, 600); /* seconds; a loaded machine with the thread sanitizer */
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
