/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-suspects.c - suspects.c: names of a watched directory that others changed are
 * looked at again, and nothing else is.
 */
#include "index-unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static struct index *the_index;
static struct index_stamp stamp;

/* The tree, as exists_in() sees it: up to so many names. */
static const char *tree[4];
static int looks;
static int error;

static void set_tree(const char *one, const char *two)
{
    tree[0] = one;
    tree[1] = two;
}

static int exists_in(void *ctx, const char *name)
{
    (void)ctx;
    looks++;
    if (error)
        return error;
    for (unsigned i = 0; i < ARRAY_SIZE(tree); i++)
        if (tree[i] && strcmp(tree[i], name) == 0)
            return 1;
    return 0;
}

static int mend(struct index_dir *dir, const char *name)
{
    return index_mend(dir, name, strlen(name), exists_in, unit_stat, &stamp);
}

static void told(const char *name)
{
    index_changed_behind(the_index, "dir", 3, name, name ? strlen(name) : 0);
}

/* A watched directory with one name, "File", whose stamp holds. */
static struct index_dir *watched_dir_in(const char *path)
{
    static const char *const names[] = {"File", NULL};

    looks = error = 0;
    memset(tree, 0, sizeof(tree));
    set_tree("File", NULL);
    the_index = unit_open(path);
    stamp = unit_stamp(unit_now_ns - 100 * SECOND);
    struct index_dir *dir = unit_acquire(the_index, "dir", 0);
    index_dir_watch(dir);
    unit_scan(dir, &stamp, names);
    return dir;
}

static struct index_dir *watched_dir(void)
{
    return watched_dir_in(NULL);
}

static void end(struct index_dir *dir)
{
    index_dir_release(dir);
    index_close(the_index);
}

START_TEST(nothing_is_looked_at_where_nothing_was_told)
{
    struct index_dir *dir = watched_dir();

    ck_assert_int_eq(mend(dir, "file"), 0);
    told("other");
    ck_assert_int_eq(mend(dir, "file"), 0);
    ck_assert_int_eq(looks, 0);
    end(dir);
}
END_TEST

START_TEST(what_others_made_is_found_under_every_spelling)
{
    struct index_dir *dir = watched_dir();

    set_tree("File", "New");
    told("New");
    ck_assert_int_eq(mend(dir, "NEW"), 1);
    unit_expect(dir, "NEW", INDEX_VARIANT, "New");
    ck_assert_int_eq(mend(dir, "new"), 0);
    ck_assert_int_eq(looks, 1);
    end(dir);
}
END_TEST

START_TEST(what_others_removed_is_absent)
{
    struct index_dir *dir = watched_dir();

    set_tree(NULL, NULL);
    told("File");
    ck_assert_int_eq(mend(dir, "FILE"), 1);
    unit_expect(dir, "file", INDEX_ABSENT, NULL);
    end(dir);
}
END_TEST

START_TEST(what_others_respelled_has_the_new_spelling)
{
    struct index_dir *dir = watched_dir();

    set_tree("fILE", NULL);
    told("File");
    told("fILE");
    told("File"); /* a second time: looked at once */
    ck_assert_int_eq(mend(dir, "file"), 1);
    ck_assert_int_eq(looks, 2);
    unit_expect(dir, "FILE", INDEX_VARIANT, "fILE");
    end(dir);
}
END_TEST

START_TEST(other_names_stay_known_and_the_directory_current)
{
    struct index_dir *dir = watched_dir();

    stamp.ctime_ns++;
    told("gone");
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    unit_expect(dir, "file", INDEX_VARIANT, "File");
    end(dir);
}
END_TEST

START_TEST(error_of_the_tree_leaves_the_name_in_doubt)
{
    struct index_dir *dir = watched_dir();

    set_tree(NULL, NULL);
    told("File");
    error = -EIO;
    ck_assert_int_eq(mend(dir, "file"), -EIO);
    error = 0;
    ck_assert_int_eq(mend(dir, "file"), 1);
    unit_expect(dir, "file", INDEX_ABSENT, NULL);
    ck_assert_int_eq(mend(dir, "file"), 0);
    end(dir);
}
END_TEST

START_TEST(change_without_a_name_puts_the_directory_in_doubt)
{
    struct index_dir *dir = watched_dir();

    told("File");
    told(NULL);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_STALE);
    ck_assert_int_eq(mend(dir, "file"), 0);
    end(dir);
}
END_TEST

START_TEST(doubt_of_an_unwatched_directory_is_about_all_of_it)
{
    the_index = unit_open(NULL);
    stamp = unit_stamp(unit_now_ns - 100 * SECOND);
    struct index_dir *dir = unit_acquire(the_index, "dir", 0);

    unit_scan(dir, &stamp, NULL);
    index_doubt(dir, "x", 1);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_STALE);
    end(dir);
}
END_TEST

START_TEST(too_many_make_the_directory_incomplete)
{
    struct index_dir *dir = watched_dir();
    char name[32];

    for (unsigned i = 0; i < 70000; i++) {
        snprintf(name, sizeof(name), "name-%u", i);
        told(name);
    }
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_STALE);
    ck_assert_int_eq(mend(dir, "name-1"), 0);
    end(dir);
}
END_TEST

START_TEST(too_many_spellings_make_the_directory_incomplete)
{
    struct index_dir *dir = watched_dir();
    char name[] = "abcdefgh";

    for (unsigned i = 0; i < 100; i++) {
        for (unsigned bit = 0; bit < 8; bit++)
            name[bit] = (char)((i >> bit & 1 ? 'A' : 'a') + (int)bit);
        told(name);
    }
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_STALE);
    end(dir);
}
END_TEST

/* Others change the directory while it is read: the scan counts, with that name in doubt. */
START_TEST(change_during_a_scan_does_not_void_it)
{
    struct index_dir *dir = watched_dir();
    struct index_scan *scan = NULL;
    struct index_stamp before = stamp, after = stamp;

    told(NULL);
    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    ck_assert_ptr_nonnull(scan);
    ck_assert_int_eq(index_scan_add(scan, "Other", 5), 0);
    set_tree("New", NULL);
    told("File"); /* became New, and the scan saw neither */
    told("New");
    after.ctime_ns++;
    ck_assert_int_eq(index_scan_commit(scan, &before, &after), 0);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    ck_assert_int_eq(mend(dir, "new"), 1);
    unit_expect(dir, "new", INDEX_VARIANT, "New");
    ck_assert_int_eq(mend(dir, "file"), 1);
    unit_expect(dir, "file", INDEX_ABSENT, NULL);
    unit_expect(dir, "other", INDEX_VARIANT, "Other");
    end(dir);
}
END_TEST

START_TEST(change_in_an_incomplete_directory_is_left_to_the_scan)
{
    struct index_dir *dir = watched_dir();

    told(NULL);
    told("x");
    ck_assert_int_eq(mend(dir, "x"), 0);
    end(dir);
}
END_TEST

/* ... but not while a change of ours is under way, whose telling may come after the scan. */
START_TEST(change_during_one_of_ours_is_kept)
{
    struct index_dir *dir = watched_dir();
    struct index_scan *scan = NULL;

    told(NULL);
    index_begin_change(dir, unit_stat, &stamp);
    /* We removed File; others made it again, which is told; a scan sees that. */
    told("File");
    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    ck_assert_int_eq(index_scan_add(scan, "File", 4), 0);
    unit_remove(dir, "File");
    index_end_change(dir, unit_stat, &stamp);
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    ck_assert_int_eq(mend(dir, "file"), 1);
    unit_expect(dir, "file", INDEX_VARIANT, "File");
    end(dir);
}
END_TEST

/* Opens the index again and tells whether the directory is known without a scan. */
static bool known_after_restart(struct index_dir *dir)
{
    end(dir);
    the_index = unit_open(unit_path());
    dir = unit_acquire(the_index, "dir", 0);
    bool known = index_dir_check(dir, unit_stat, &stamp) == INDEX_CURRENT;
    end(dir);
    return known;
}

START_TEST(directory_with_names_in_doubt_is_not_proven)
{
    struct index_dir *dir = watched_dir_in(unit_path());

    told("x"); /* and its stamp is, by some accident, the same */
    ck_assert(!known_after_restart(dir));
}
END_TEST

START_TEST(directory_whose_names_were_mended_is_proven)
{
    struct index_dir *dir = watched_dir_in(unit_path());

    stamp.ctime_ns = unit_now_ns;
    set_tree("File", "x");
    told("x");
    ck_assert_int_eq(mend(dir, "x"), 1);
    unit_now_ns += 10 * SECOND;
    ck_assert(known_after_restart(dir));
}
END_TEST

/* ---- threads ---- */

/* One entry that others rename all the time: f, F, f...  The tree's lock is the kernel's. */
static pthread_mutex_t tree_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_upper, stop;

static int exists_flipping(void *ctx, const char *name)
{
    (void)ctx;
    return atomic_load(&is_upper) == (name[0] == 'F');
}

static void *flip(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        pthread_mutex_lock(&tree_lock);
        atomic_store(&is_upper, !atomic_load(&is_upper));
        told("f"); /* before the directory's lock is dropped, as fanotify does */
        told("F");
        pthread_mutex_unlock(&tree_lock);
    }
    return NULL;
}

/* As coherence/scan.c and fs/resolve.c do. */
static bool is_found(struct index_dir *dir)
{
    for (;;) {
        int mended = index_mend(dir, "f", 1, exists_flipping, unit_stat, &stamp);

        if (mended == 1) {
            pthread_mutex_lock(&tree_lock);
            pthread_mutex_unlock(&tree_lock);
        }
        enum index_match match = unit_find(dir, "f");
        if (match == INDEX_EXACT || match == INDEX_VARIANT)
            return true;
        if (match == INDEX_ABSENT && mended == 0)
            return false;
    }
}

START_TEST(entry_that_is_renamed_all_the_time_is_never_absent)
{
    static const char *const names[] = {"f", NULL};
    struct index_dir *dir = watched_dir();
    pthread_t flipper;
    unsigned absent = 0;

    atomic_store(&stop, false);
    atomic_store(&is_upper, false);
    unit_scan(dir, &stamp, names);
    ck_assert_int_eq(pthread_create(&flipper, NULL, flip, NULL), 0);
    for (unsigned i = 0; i < 20000; i++)
        absent += !is_found(dir);
    atomic_store(&stop, true);
    pthread_join(flipper, NULL);
    ck_assert_uint_eq(absent, 0);
    end(dir);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("suspects");

    tcase_add_test(tests, nothing_is_looked_at_where_nothing_was_told);
    tcase_add_test(tests, what_others_made_is_found_under_every_spelling);
    tcase_add_test(tests, what_others_removed_is_absent);
    tcase_add_test(tests, what_others_respelled_has_the_new_spelling);
    tcase_add_test(tests, other_names_stay_known_and_the_directory_current);
    tcase_add_test(tests, error_of_the_tree_leaves_the_name_in_doubt);
    tcase_add_test(tests, change_without_a_name_puts_the_directory_in_doubt);
    tcase_add_test(tests, doubt_of_an_unwatched_directory_is_about_all_of_it);
    tcase_add_test(tests, too_many_make_the_directory_incomplete);
    tcase_add_test(tests, too_many_spellings_make_the_directory_incomplete);
    tcase_add_test(tests, change_during_a_scan_does_not_void_it);
    tcase_add_test(tests, change_in_an_incomplete_directory_is_left_to_the_scan);
    tcase_add_test(tests, change_during_one_of_ours_is_kept);
    tcase_add_test(tests, directory_with_names_in_doubt_is_not_proven);
    tcase_add_test(tests, directory_whose_names_were_mended_is_proven);
    tcase_add_test(tests, entry_that_is_renamed_all_the_time_is_never_absent);
    return unit_run("index-suspects", tests);
}
