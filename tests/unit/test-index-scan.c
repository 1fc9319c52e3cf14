/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-scan.c - scan.c and names.c: what a scan finds and drops, and what overrules it.
 */
#include "index-unit.h"

static struct index *the_index;
static struct index_stamp stamp;
static const char *const three[] = {"a", "b", "c", NULL};

static struct index_dir *open_three(void)
{
    the_index = unit_open(NULL);
    stamp = unit_stamp(1);
    struct index_dir *dir = unit_acquire(the_index, "dir", 0);
    unit_scan(dir, &stamp, three);
    return dir;
}

static void end(struct index_dir *dir)
{
    ck_assert_int_eq(index_verify(the_index), 0);
    index_dir_release(dir);
    index_close(the_index);
}

static struct index_scan *begin(struct index_dir *dir)
{
    struct index_scan *scan = NULL;

    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    ck_assert_ptr_nonnull(scan);
    return scan;
}

static void saw(struct index_scan *scan, const char *name)
{
    ck_assert_int_eq(index_scan_add(scan, name, strlen(name)), 0);
}

START_TEST(what_a_scan_does_not_see_is_gone)
{
    struct index_dir *dir = open_three();
    static const char *const now[] = {"b", "D", NULL};

    unit_scan(dir, &stamp, now);
    unit_expect(dir, "a", INDEX_ABSENT, NULL);
    unit_expect(dir, "B", INDEX_VARIANT, "b");
    unit_expect(dir, "c", INDEX_ABSENT, NULL);
    unit_expect(dir, "d", INDEX_VARIANT, "D");
    end(dir);
}
END_TEST

START_TEST(aborted_scan_changes_nothing)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);

    saw(scan, "b");
    index_scan_abort(scan);
    unit_expect(dir, "a", INDEX_EXACT, "a");
    unit_expect(dir, "b", INDEX_EXACT, "b");
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(complete_directory_answers_while_it_is_scanned)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);

    unit_expect(dir, "A", INDEX_VARIANT, "a");
    unit_expect(dir, "x", INDEX_ABSENT, NULL);
    index_scan_abort(scan);
    end(dir);
}
END_TEST

START_TEST(changes_overrule_the_scan_whichever_comes_first)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);

    unit_remove(dir, "a"); /* then seen, from a buffer read before */
    saw(scan, "a");
    saw(scan, "b"); /* then removed */
    unit_remove(dir, "b");
    unit_add(dir, "new"); /* not seen */
    unit_remove(dir, "never there");
    saw(scan, "never there");
    index_respell(dir, "c", 1, "C", 1);
    saw(scan, "c");
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    unit_expect(dir, "a", INDEX_ABSENT, NULL);
    unit_expect(dir, "b", INDEX_ABSENT, NULL);
    unit_expect(dir, "new", INDEX_EXACT, "new");
    unit_expect(dir, "never there", INDEX_ABSENT, NULL);
    unit_expect(dir, "c", INDEX_VARIANT, "C");
    end(dir);
}
END_TEST

START_TEST(removal_of_before_the_scan_does_not_overrule_it)
{
    struct index_dir *dir = open_three();

    unit_remove(dir, "a");
    struct index_scan *scan = begin(dir);
    saw(scan, "a"); /* somebody made it again */
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    unit_expect(dir, "a", INDEX_EXACT, "a");
    unit_expect(dir, "b", INDEX_ABSENT, NULL);
    end(dir);
}
END_TEST

START_TEST(foreign_change_during_the_scan_fails_it)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);
    struct index_stamp after = unit_stamp(2);

    saw(scan, "a");
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &after), -EAGAIN);
    /* What it was complete with is not taken away: the next check decides. */
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &after), INDEX_STALE);
    end(dir);
}
END_TEST

START_TEST(own_change_during_the_scan_does_not_fail_it)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);
    struct index_stamp before = stamp;

    saw(scan, "a");
    unit_change(dir, &stamp, "new", NULL);
    ck_assert_int_eq(index_scan_commit(scan, &before, &stamp), 0);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    unit_expect(dir, "new", INDEX_EXACT, "new");
    unit_expect(dir, "b", INDEX_ABSENT, NULL);
    end(dir);
}
END_TEST

START_TEST(own_change_does_not_hide_a_foreign_one_during_the_scan)
{
    for (unsigned when = 0; when < 3; when++) {
        struct index_dir *dir = open_three();
        struct index_scan *scan = begin(dir);
        struct index_stamp before = stamp;

        if (when == 0)
            stamp.ctime_ns++;
        unit_change(dir, &stamp, NULL, NULL);
        if (when == 1)
            stamp.ctime_ns++;
        unit_change(dir, &stamp, NULL, NULL);
        if (when == 2)
            stamp.ctime_ns++;
        ck_assert_int_eq(index_scan_commit(scan, &before, &stamp), -EAGAIN);
        end(dir);
    }
}
END_TEST

START_TEST(change_in_flight_at_the_commit_settles_at_its_end)
{
    struct index_dir *dir = open_three();

    index_begin_change(dir, unit_stat, &stamp);
    struct index_scan *scan = begin(dir);
    struct index_stamp before = stamp;
    stamp.ctime_ns++;
    ck_assert_int_eq(index_scan_commit(scan, &before, &stamp), 0);
    stamp.ctime_ns++;
    index_end_change(dir, unit_stat, &stamp);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(forgotten_directory_has_no_names)
{
    struct index_dir *dir = open_three();

    index_dir_forget(dir);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_STALE);
    unit_expect(dir, "a", INDEX_UNKNOWN, NULL);
    unit_scan(dir, &stamp, NULL);
    unit_expect(dir, "a", INDEX_ABSENT, NULL);
    end(dir);
}
END_TEST

START_TEST(forgetting_fails_the_running_scan)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);

    saw(scan, "a");
    index_dir_forget(dir);
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), -EAGAIN);
    unit_expect(dir, "a", INDEX_UNKNOWN, NULL);
    end(dir);
}
END_TEST

START_TEST(incomplete_directory_gives_hints_only)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    unit_add(dir, "Known");
    unit_expect(dir, "Known", INDEX_EXACT, "Known");
    unit_expect(dir, "known", INDEX_UNKNOWN, NULL);
    unit_expect(dir, "other", INDEX_UNKNOWN, NULL);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

/* ---- two threads ---- */

static void *second_scan(void *arg)
{
    struct index_scan *scan = (struct index_scan *)arg;

    /* A pointer that is not NULL, so that the result shows. */
    ck_assert_int_eq(index_scan_begin(arg, &scan), 0);
    return scan;
}

START_TEST(second_scan_waits_and_gets_none)
{
    struct index_dir *dir = open_three();
    struct index_scan *scan = begin(dir);
    pthread_t thread;
    void *result = dir;

    ck_assert_int_eq(pthread_create(&thread, NULL, second_scan, dir), 0);
    usleep(50000);
    ck_assert_int_eq(pthread_tryjoin_np(thread, &result), EBUSY);
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    pthread_join(thread, &result);
    ck_assert_ptr_null(result);
    end(dir);
}
END_TEST

/* ---- names of every kind ---- */

START_TEST(names_that_are_not_utf8_fold_to_themselves)
{
    struct index_dir *dir = open_three();

    unit_add(dir, "caf\xe9");
    unit_expect(dir, "caf\xe9", INDEX_EXACT, "caf\xe9");
    unit_expect(dir, "CAF\xe9", INDEX_ABSENT, NULL);
    unit_add(dir, "Grüße");
    unit_expect(dir, "GRÜßE", INDEX_VARIANT, "Grüße");
    end(dir);
}
END_TEST

START_TEST(longest_names_are_kept)
{
    struct index_dir *dir = open_three();
    char name[FOLDFS_NAME_MAX + 1], upper[FOLDFS_NAME_MAX + 1];

    memset(name, 'n', FOLDFS_NAME_MAX);
    memset(upper, 'N', FOLDFS_NAME_MAX);
    name[FOLDFS_NAME_MAX] = upper[FOLDFS_NAME_MAX] = 0;
    unit_add(dir, name);
    unit_expect(dir, upper, INDEX_VARIANT, name);
    name[FOLDFS_NAME_MAX - 1] = 0;
    unit_expect(dir, name, INDEX_ABSENT, NULL);
    end(dir);
}
END_TEST

START_TEST(adding_and_removing_are_idempotent)
{
    struct index_dir *dir = open_three();

    for (unsigned i = 0; i < 3; i++)
        unit_add(dir, "a");
    unit_expect(dir, "A", INDEX_VARIANT, "a");
    for (unsigned i = 0; i < 3; i++)
        unit_remove(dir, "a");
    unit_expect(dir, "a", INDEX_ABSENT, NULL);
    unit_remove(dir, "B"); /* not these bytes */
    unit_expect(dir, "b", INDEX_EXACT, "b");
    end(dir);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("scan");

    tcase_add_test(tests, what_a_scan_does_not_see_is_gone);
    tcase_add_test(tests, aborted_scan_changes_nothing);
    tcase_add_test(tests, complete_directory_answers_while_it_is_scanned);
    tcase_add_test(tests, changes_overrule_the_scan_whichever_comes_first);
    tcase_add_test(tests, removal_of_before_the_scan_does_not_overrule_it);
    tcase_add_test(tests, foreign_change_during_the_scan_fails_it);
    tcase_add_test(tests, own_change_during_the_scan_does_not_fail_it);
    tcase_add_test(tests, own_change_does_not_hide_a_foreign_one_during_the_scan);
    tcase_add_test(tests, change_in_flight_at_the_commit_settles_at_its_end);
    tcase_add_test(tests, forgotten_directory_has_no_names);
    tcase_add_test(tests, forgetting_fails_the_running_scan);
    tcase_add_test(tests, incomplete_directory_gives_hints_only);
    tcase_add_test(tests, second_scan_waits_and_gets_none);
    tcase_add_test(tests, names_that_are_not_utf8_fold_to_themselves);
    tcase_add_test(tests, longest_names_are_kept);
    tcase_add_test(tests, adding_and_removing_are_idempotent);
    return unit_run("index-scan", tests);
}
