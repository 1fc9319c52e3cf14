/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-currency.c - currency.c: when an answer may rest on the index, by stamps, changes
 * in flight and the granularity of time.
 */
#include "index-unit.h"

#define COARSE (SECOND / 100)

static struct index *the_index;
static struct index_stamp stamp;

static struct index_dir *old_dir(int64_t granularity_ns)
{
    the_index = unit_open(NULL);
    stamp = unit_stamp(unit_now_ns - 100 * SECOND);
    struct index_dir *dir = unit_acquire(the_index, "dir", granularity_ns);
    unit_scan(dir, &stamp, NULL);
    return dir;
}

static void end(struct index_dir *dir)
{
    index_dir_release(dir);
    index_close(the_index);
}

static int check(struct index_dir *dir)
{
    return index_dir_check(dir, unit_stat, &stamp);
}

static void begin(struct index_dir *dir)
{
    index_begin_change(dir, unit_stat, &stamp);
}

static void finish(struct index_dir *dir)
{
    index_end_change(dir, unit_stat, &stamp);
}

static void move_stamp(void)
{
    unit_now_ns += 1000;
    stamp.ctime_ns = unit_now_ns;
}

START_TEST(unknown_directory_is_stale)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = unit_acquire(index, "new", 0);

    stamp = unit_stamp(1);
    ck_assert_int_eq(check(dir), INDEX_STALE);
    unit_expect(dir, "x", INDEX_UNKNOWN, NULL);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(each_part_of_the_stamp_counts)
{
    for (unsigned part = 0; part < 4; part++) {
        struct index_dir *dir = old_dir(0);

        ck_assert_int_eq(check(dir), INDEX_CURRENT);
        switch (part) {
        case 0:
            stamp.ctime_ns++;
            break;
        case 1:
            stamp.mtime_ns++;
            break;
        case 2:
            stamp.size++;
            break;
        default:
            stamp.btime_ns++;
        }
        ck_assert_int_eq(check(dir), INDEX_STALE);
        end(dir);
    }
}
END_TEST

START_TEST(stale_stays_stale_until_scanned)
{
    struct index_dir *dir = old_dir(0);
    struct index_stamp before = stamp;

    stamp.ctime_ns++;
    ck_assert_int_eq(check(dir), INDEX_STALE);
    stamp = before;
    ck_assert_int_eq(check(dir), INDEX_STALE);
    unit_scan(dir, &stamp, NULL);
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(error_of_stat_is_passed_on)
{
    struct index_dir *dir = old_dir(0);

    ck_assert_int_eq(index_dir_check(dir, unit_stat_fails, NULL), -EIO);
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(own_change_keeps_it_current)
{
    struct index_dir *dir = old_dir(0);

    for (unsigned i = 0; i < 3; i++) {
        begin(dir);
        move_stamp();
        ck_assert_int_eq(check(dir), INDEX_CURRENT);
        finish(dir);
        ck_assert_int_eq(check(dir), INDEX_CURRENT);
    }
    end(dir);
}
END_TEST

START_TEST(nested_changes_restamp_at_the_last_end)
{
    struct index_dir *dir = old_dir(0);

    begin(dir);
    move_stamp();
    begin(dir);
    finish(dir);
    move_stamp();
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    finish(dir);
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(foreign_change_before_an_own_one_is_seen)
{
    struct index_dir *dir = old_dir(0);

    move_stamp();
    begin(dir);
    move_stamp();
    finish(dir);
    ck_assert_int_eq(check(dir), INDEX_STALE);
    end(dir);
}
END_TEST

START_TEST(failing_stat_around_a_change_makes_it_incomplete)
{
    struct index_dir *dir = old_dir(0);

    index_begin_change(dir, unit_stat_fails, NULL);
    finish(dir);
    ck_assert_int_eq(check(dir), INDEX_STALE);
    unit_scan(dir, &stamp, NULL);
    begin(dir);
    index_end_change(dir, unit_stat_fails, NULL);
    ck_assert_int_eq(check(dir), INDEX_STALE);
    end(dir);
}
END_TEST

START_TEST(void_makes_it_incomplete)
{
    struct index_dir *dir = old_dir(0);

    index_dir_void(dir);
    ck_assert_int_eq(check(dir), INDEX_STALE);
    unit_expect(dir, "x", INDEX_UNKNOWN, NULL);
    end(dir);
}
END_TEST

START_TEST(coarse_own_change_is_scanned_for_once)
{
    struct index_dir *dir = old_dir(COARSE);

    begin(dir);
    move_stamp();
    finish(dir);
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    unit_now_ns += COARSE - 1;
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    unit_now_ns += SECOND;
    ck_assert_int_eq(check(dir), INDEX_STALE);
    unit_scan(dir, &stamp, NULL);
    unit_now_ns += SECOND;
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(coarse_change_that_left_the_stamp_costs_nothing)
{
    struct index_dir *dir = old_dir(COARSE);

    begin(dir);
    finish(dir);
    unit_now_ns += 60 * SECOND;
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(exact_time_needs_no_settling)
{
    struct index_dir *dir = old_dir(0);

    begin(dir);
    move_stamp();
    finish(dir);
    unit_now_ns += 60 * SECOND;
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    end(dir);
}
END_TEST

START_TEST(scan_of_a_young_stamp_is_repeated_once)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = unit_acquire(index, "dir", COARSE);

    stamp = unit_stamp(unit_now_ns - COARSE / 2);
    unit_scan(dir, &stamp, NULL);
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    unit_now_ns += SECOND;
    ck_assert_int_eq(check(dir), INDEX_STALE);
    unit_scan(dir, &stamp, NULL);
    unit_now_ns += SECOND;
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(stamp_of_the_future_is_looked_at_again)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    stamp = unit_stamp(unit_now_ns + SECOND);
    unit_scan(dir, &stamp, NULL);
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    unit_now_ns += 2 * SECOND;
    ck_assert_int_eq(check(dir), INDEX_STALE);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

/* A scan that takes 20 ms may not be repeated for settling within 0.38 s. */
START_TEST(settling_costs_a_twentieth_of_the_time)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = unit_acquire(index, "dir", 1);
    struct index_scan *scan;

    stamp = unit_stamp(unit_now_ns);
    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    usleep(20000);
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    unit_now_ns += 19 * SECOND / 50 - 1;
    ck_assert_int_eq(check(dir), INDEX_CURRENT);
    unit_now_ns += 60 * SECOND;
    ck_assert_int_eq(check(dir), INDEX_STALE);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

/* A change of ours between the two looks of check moves the stamp: not a foreign one. */
static struct index_dir *changing_dir;

static int stat_during_a_change(void *ctx, struct index_stamp *ret_stamp)
{
    unsigned *times = ctx;

    *ret_stamp = stamp;
    if ((*times)++ == 0) {
        begin(changing_dir);
        move_stamp();
        finish(changing_dir);
    }
    return 0;
}

START_TEST(change_during_the_check_is_not_taken_for_a_foreign_one)
{
    struct index_dir *dir = old_dir(0);
    unsigned times = 0;

    changing_dir = dir;
    ck_assert_int_eq(index_dir_check(dir, stat_during_a_change, &times), INDEX_CURRENT);
    ck_assert_uint_eq(times, 2);
    end(dir);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("currency");

    tcase_add_test(tests, unknown_directory_is_stale);
    tcase_add_test(tests, each_part_of_the_stamp_counts);
    tcase_add_test(tests, stale_stays_stale_until_scanned);
    tcase_add_test(tests, error_of_stat_is_passed_on);
    tcase_add_test(tests, own_change_keeps_it_current);
    tcase_add_test(tests, nested_changes_restamp_at_the_last_end);
    tcase_add_test(tests, foreign_change_before_an_own_one_is_seen);
    tcase_add_test(tests, failing_stat_around_a_change_makes_it_incomplete);
    tcase_add_test(tests, void_makes_it_incomplete);
    tcase_add_test(tests, coarse_own_change_is_scanned_for_once);
    tcase_add_test(tests, coarse_change_that_left_the_stamp_costs_nothing);
    tcase_add_test(tests, exact_time_needs_no_settling);
    tcase_add_test(tests, scan_of_a_young_stamp_is_repeated_once);
    tcase_add_test(tests, stamp_of_the_future_is_looked_at_again);
    tcase_add_test(tests, settling_costs_a_twentieth_of_the_time);
    tcase_add_test(tests, change_during_the_check_is_not_taken_for_a_foreign_one);
    return unit_run("index-currency", tests);
}
