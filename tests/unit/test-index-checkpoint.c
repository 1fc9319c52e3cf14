/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-checkpoint.c - checkpoint.c, dirs.c and cold.c: which directories are durable
 * when.
 *
 * "After a crash" means: a child does something and exits without closing the index; the parent
 * opens it and looks whether the directory is current.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "index-unit.h"
#include "index/internal.h"
#include "log.h"

#define COARSE SECOND

static struct index_stamp stamp;
static const char *const some[] = {"one", "two", NULL};

/* Runs FN in a child with the index open, without closing it. */
static void crash_after(void (*fn)(struct index *index))
{
    (void)unit_path(); /* the same in both */
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        fn(unit_open(unit_path()));
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static int check_after(int64_t granularity_ns)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", granularity_ns);
    int r = index_dir_check(dir, unit_stat, &stamp);

    index_dir_release(dir);
    index_close(index);
    return r;
}

static void scan_and_checkpoint(struct index *index)
{
    struct index_dir *dir = unit_acquire(index, "dir", COARSE);

    unit_scan(dir, &stamp, some);
    ck_assert_int_eq(index_checkpoint(index), 0);
}

static void scan_only(struct index *index)
{
    unit_scan(unit_acquire(index, "dir", COARSE), &stamp, some);
}

START_TEST(checkpointed_directory_survives_a_crash)
{
    stamp = unit_stamp(unit_now_ns - 10 * SECOND);
    crash_after(scan_and_checkpoint);
    ck_assert_int_eq(check_after(COARSE), INDEX_CURRENT);
}
END_TEST

START_TEST(directory_without_checkpoint_is_scanned_after_a_crash)
{
    stamp = unit_stamp(unit_now_ns - 10 * SECOND);
    crash_after(scan_only);
    ck_assert_int_eq(check_after(COARSE), INDEX_STALE);
}
END_TEST

START_TEST(young_stamp_is_not_made_durable)
{
    stamp = unit_stamp(unit_now_ns - COARSE / 2);
    crash_after(scan_and_checkpoint);
    unit_now_ns += 10 * SECOND;
    ck_assert_int_eq(check_after(COARSE), INDEX_STALE);
}
END_TEST

START_TEST(stamp_of_the_future_is_not_made_durable)
{
    stamp = unit_stamp(unit_now_ns + SECOND);
    crash_after(scan_and_checkpoint);
    unit_now_ns += 10 * SECOND;
    ck_assert_int_eq(check_after(0), INDEX_STALE);
}
END_TEST

static void checkpoint_in_flight(struct index *index)
{
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    unit_scan(dir, &stamp, some);
    index_begin_change(dir, unit_stat, &stamp);
    ck_assert_int_eq(index_checkpoint(index), 0);
}

START_TEST(directory_with_a_change_in_flight_is_not_made_durable)
{
    stamp = unit_stamp(1);
    crash_after(checkpoint_in_flight);
    ck_assert_int_eq(check_after(0), INDEX_STALE);
}
END_TEST

static void release_then_checkpoint(struct index *index)
{
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    struct index_info info;

    unit_scan(dir, &stamp, some);
    index_dir_release(dir);
    index_get_info(index, &info);
    ck_assert_uint_eq(info.live, 1);
    ck_assert_int_eq(index_checkpoint(index), 0);
    index_get_info(index, &info);
    ck_assert_uint_eq(info.live, 0);
    ck_assert_uint_eq(info.directories, 1);
}

START_TEST(released_directory_stays_until_the_checkpoint)
{
    stamp = unit_stamp(1);
    crash_after(release_then_checkpoint);
    ck_assert_int_eq(check_after(0), INDEX_CURRENT);
}
END_TEST

static void change_after_checkpoint(struct index *index)
{
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    unit_scan(dir, &stamp, some);
    ck_assert_int_eq(index_checkpoint(index), 0);
    unit_change(dir, &(struct index_stamp){stamp.ctime_ns, stamp.mtime_ns, stamp.size, 1}, NULL,
                "one");
}

static void another_boot(void)
{
    int dirfd = open(unit_path(), O_RDONLY | O_DIRECTORY);
    struct manifest m;

    ck_assert_int_eq(manifest_read(dirfd, &m), 0);
    memset(m.boot_id, 'x', 36);
    ck_assert_int_eq(manifest_write(dirfd, &m), 0);
    close(dirfd);
}

/* The child removed "one" in the index; the tree of the parent still has the old stamp, and so
 * the name: it came undone. */
START_TEST(removal_that_came_undone_is_not_believed)
{
    stamp = unit_stamp(1);
    crash_after(change_after_checkpoint);
    another_boot();
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    unit_expect(dir, "TWO", INDEX_VARIANT, "two");
    unit_expect(dir, "three", INDEX_ABSENT, NULL);
    unit_expect(dir, "one", INDEX_UNKNOWN, NULL);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_STALE);
    unit_scan(dir, &stamp, some);
    unit_expect(dir, "one", INDEX_EXACT, "one");
    index_dir_release(dir);
    index_close(index);
}
END_TEST

static void change_and_checkpoint(struct index *index)
{
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    unit_scan(dir, &stamp, some);
    unit_change(dir, &stamp, NULL, "one");
    ck_assert_int_eq(index_checkpoint(index), 0);
}

START_TEST(removal_of_before_the_checkpoint_is_believed)
{
    stamp = unit_stamp(1);
    struct index_stamp after = stamp;
    after.ctime_ns = after.mtime_ns = unit_now_ns + 1000; /* as unit_change() sets it */
    crash_after(change_and_checkpoint);
    another_boot();
    stamp = after;
    unit_now_ns += SECOND;
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    unit_expect(dir, "one", INDEX_ABSENT, NULL);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(forgotten_directory_leaves_no_entry)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    struct index_info info;

    stamp = unit_stamp(1);
    unit_scan(dir, &stamp, some);
    ck_assert_int_eq(index_checkpoint(index), 0);
    index_dir_forget(dir);
    ck_assert_int_eq(index_checkpoint(index), 0);
    index_get_info(index, &info);
    ck_assert_uint_eq(info.directories, 0);
    index_dir_release(dir);
    index_close(index);
    ck_assert_int_eq(check_after(0), INDEX_STALE);
}
END_TEST

START_TEST(identity_of_the_moment_is_kept_for_the_moment)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir;

    stamp = unit_stamp(1);
    ck_assert_int_eq(index_dir_acquire(index, "dir", 3, 0, false, &dir), 0);
    unit_scan(dir, &stamp, some);
    index_dir_release(dir);
    ck_assert_int_eq(index_checkpoint(index), 0);
    ck_assert_int_eq(index_dir_acquire(index, "dir", 3, 0, false, &dir), 0);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    index_dir_release(dir);
    index_close(index);
    ck_assert_int_eq(check_after(0), INDEX_STALE);
}
END_TEST

START_TEST(many_directories_are_found_again)
{
    enum { MANY = 3000 };
    struct index *index = unit_open(unit_path());
    struct index_info info;
    struct index_dir *dir;
    char id[32], name[32];

    for (unsigned i = 0; i < MANY; i++) {
        const char *const names[] = {name, NULL};
        struct index_stamp own = unit_stamp(i + 1);

        snprintf(id, sizeof(id), "dir %u", i);
        snprintf(name, sizeof(name), "File %u", i);
        dir = unit_acquire(index, id, 0);
        unit_scan(dir, &own, names);
        index_dir_release(dir);
    }
    index_close(index);
    index = unit_open(unit_path());
    index_get_info(index, &info);
    ck_assert_uint_eq(info.directories, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        struct index_stamp own = unit_stamp(i + 1);

        snprintf(id, sizeof(id), "dir %u", i);
        snprintf(name, sizeof(name), "FILE %u", i);
        dir = unit_acquire(index, id, 0);
        ck_assert_int_eq(index_dir_check(dir, unit_stat, &own), INDEX_CURRENT);
        ck_assert_int_eq(unit_find(dir, name), INDEX_VARIANT);
        unit_expect(dir, "File X", INDEX_ABSENT, NULL);
        index_dir_release(dir);
    }
    ck_assert_int_eq(index_verify(index), 0);
    index_close(index);
}
END_TEST

START_TEST(damaged_entry_means_unknown)
{
    struct index *index = unit_open(unit_path());
    char path[128];
    char byte;

    stamp = unit_stamp(1);
    scan_and_checkpoint(index);
    struct index_dir *dir = unit_acquire(index, "dir", COARSE);
    index_dir_release(dir);
    index_dir_release(dir);
    index_close(index);
    snprintf(path, sizeof(path), "%s/gen-1/dirs", unit_path());
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    for (off_t at = HEADER_BYTES; pread(fd, &byte, 1, at) == 1; at++) {
        byte ^= 0x10;
        if (byte != 0x10)
            ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    ck_assert_int_eq(check_after(COARSE), INDEX_STALE);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("checkpoint");

    log_open(false, LOG_EMERG);
    tcase_add_test(tests, checkpointed_directory_survives_a_crash);
    tcase_add_test(tests, directory_without_checkpoint_is_scanned_after_a_crash);
    tcase_add_test(tests, young_stamp_is_not_made_durable);
    tcase_add_test(tests, stamp_of_the_future_is_not_made_durable);
    tcase_add_test(tests, directory_with_a_change_in_flight_is_not_made_durable);
    tcase_add_test(tests, released_directory_stays_until_the_checkpoint);
    tcase_add_test(tests, removal_that_came_undone_is_not_believed);
    tcase_add_test(tests, removal_of_before_the_checkpoint_is_believed);
    tcase_add_test(tests, forgotten_directory_leaves_no_entry);
    tcase_add_test(tests, identity_of_the_moment_is_kept_for_the_moment);
    tcase_add_test(tests, many_directories_are_found_again);
    tcase_add_test(tests, damaged_entry_means_unknown);
    return unit_run("index-checkpoint", tests);
}
