/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-open.c - index.c, manifest.c and map.c: opening, refusing, starting afresh,
 * working in memory, and what is there again after closing.
 *
 * posix_fallocate64, as posix_fallocate is called with 64-bit offsets, is wrapped by the
 * linker, so that the disk is full when a test says so.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fold/fold.h"
#include "index-unit.h"
#include "index/internal.h"
#include "log.h"

static _Atomic bool disk_is_full; /* the index has threads of its own */

/* Is FD a file in memory? */
static bool is_memfd(int fd)
{
    char link[64], target[64];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof(target));
    return n > 7 && memcmp(target, "/memfd:", 7) == 0;
}

int __real_posix_fallocate64(int fd, off64_t offset, off64_t len);
int __wrap_posix_fallocate64(int fd, off64_t offset, off64_t len);

int __wrap_posix_fallocate64(int fd, off64_t offset, off64_t len)
{
    return disk_is_full && !is_memfd(fd) ? ENOSPC : __real_posix_fallocate64(fd, offset, len);
}

static struct index_stamp stamp;
static const char *const some[] = {"one", "Two", "three", NULL};

static int try_open(const char *path)
{
    const struct index_options options = {.path = path, .now = unit_now};
    struct index *index = NULL;
    int r = index_open(&options, &index);

    if (r < 0)
        ck_assert_ptr_null(index);
    index_close(index);
    return r;
}

static struct index_info info_of(struct index *index)
{
    struct index_info info;

    index_get_info(index, &info);
    return info;
}

/* An index on disk with one directory that is proven. */
static void make_index(void)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    stamp = unit_stamp(1);
    unit_scan(dir, &stamp, some);
    index_dir_release(dir);
    index_close(index);
}

/* Opens it: is DIR current, with its names? */
static bool still_there(void)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    bool current = index_dir_check(dir, unit_stat, &stamp) == INDEX_CURRENT;

    if (current) {
        unit_expect(dir, "ONE", INDEX_VARIANT, "one");
        unit_expect(dir, "Two", INDEX_EXACT, "Two");
        unit_expect(dir, "four", INDEX_ABSENT, NULL);
    } else {
        unit_expect(dir, "four", INDEX_UNKNOWN, NULL);
    }
    ck_assert(info_of(index).persistent);
    index_dir_release(dir);
    index_close(index);
    return current;
}

START_TEST(everything_is_there_again)
{
    make_index();
    for (unsigned i = 0; i < 3; i++)
        ck_assert(still_there());
}
END_TEST

START_TEST(folder_is_ours_alone)
{
    struct stat st;

    make_index();
    ck_assert_int_eq(stat(unit_path(), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(chmod(unit_path(), 0770), 0);
    ck_assert_int_eq(try_open(unit_path()), -EPERM);
    ck_assert_int_eq(chmod(unit_path(), 0702), 0);
    ck_assert_int_eq(try_open(unit_path()), -EPERM);
    ck_assert_int_eq(chmod(unit_path(), 0755), 0);
    ck_assert(still_there());
}
END_TEST

START_TEST(second_daemon_is_refused)
{
    struct index *index = unit_open(unit_path());

    ck_assert_int_eq(try_open(unit_path()), -EBUSY);
    index_close(index);
    ck_assert_int_eq(try_open(unit_path()), 0);
}
END_TEST

START_TEST(mistakes_of_the_administrator_are_returned)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/missing/index", unit_folder());
    ck_assert_int_eq(try_open(path), -ENOENT);
    snprintf(path, sizeof(path), "%s/file", unit_folder());
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(try_open(path), -ENOTDIR);
}
END_TEST

START_TEST(clean_end_is_told_from_a_crash)
{
    pid_t pid;
    int status;

    make_index();
    struct index *index = unit_open(unit_path());
    ck_assert(info_of(index).was_clean);
    index_close(index);
    pid = fork();
    if (pid == 0) {
        (void)unit_open(unit_path());
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    index = unit_open(unit_path());
    ck_assert(!info_of(index).was_clean);
    index_close(index);
    /* Nothing was changed: the crash costs nothing. */
    ck_assert(still_there());
}
END_TEST

static void rewrite_manifest(void (*change)(struct manifest *m))
{
    int dirfd = open(unit_path(), O_RDONLY | O_DIRECTORY);
    struct manifest m;

    ck_assert_int_eq(manifest_read(dirfd, &m), 0);
    change(&m);
    ck_assert_int_eq(manifest_write(dirfd, &m), 0);
    close(dirfd);
}

static void another_rule(struct manifest *m)
{
    m->fold_version = FOLD_VERSION + 1;
}

static void another_id(struct manifest *m)
{
    m->id[0] ^= 1;
}

static void another_generation(struct manifest *m)
{
    m->generation++;
}

static void fewer_numbers(struct manifest *m)
{
    m->reserved = 2;
}

START_TEST(what_does_not_fit_starts_afresh)
{
    void (*const changes[])(struct manifest *) = {another_rule, another_id, another_generation,
                                                  fewer_numbers};

    for (unsigned i = 0; i < ARRAY_SIZE(changes); i++) {
        make_index();
        rewrite_manifest(changes[i]);
        ck_assert(!still_there());
        unit_remove_folder();
    }
}
END_TEST

START_TEST(numbers_are_never_given_out_twice)
{
    uint64_t last = 0;

    for (unsigned i = 0; i < 6; i++) {
        pid_t pid = 0;
        int status;

        /* Every other time the end is a crash. */
        if (i % 2)
            pid = fork();
        if (pid == 0) {
            struct index *index = unit_open(unit_path());
            uint64_t number;

            ck_assert_int_eq(number_next(index, &number), 0);
            ck_assert_uint_gt(number, last);
            last = number;
            if (i % 2)
                _exit(0);
            index_close(index);
        }
        if (pid > 0) {
            ck_assert_int_eq(waitpid(pid, &status, 0), pid);
            ck_assert_int_eq(status, 0);
            last++; /* the child's was larger than that */
        }
    }
}
END_TEST

START_TEST(full_disk_at_the_start_means_memory)
{
    disk_is_full = true;
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    ck_assert(!info_of(index).persistent);
    stamp = unit_stamp(1);
    unit_scan(dir, &stamp, some);
    unit_expect(dir, "ONE", INDEX_VARIANT, "one");
    unit_expect(dir, "four", INDEX_ABSENT, NULL);
    index_dir_release(dir);
    /* Still the only daemon of this index. */
    ck_assert_int_eq(try_open(unit_path()), -EBUSY);
    index_close(index);
}
END_TEST

START_TEST(full_disk_later_makes_directories_incomplete)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);
    struct index_scan *scan;
    char name[FOLDFS_NAME_MAX + 1];
    unsigned added = 0;
    int r = 0;

    stamp = unit_stamp(1);
    unit_scan(dir, &stamp, some);
    disk_is_full = true;
    while (index_dir_check(dir, unit_stat, &stamp) == INDEX_CURRENT && added < 100000) {
        snprintf(name, sizeof(name), "%0200u", added++);
        unit_add(dir, name);
    }
    ck_assert_uint_lt(added, 100000);
    unit_expect(dir, "ONE", INDEX_UNKNOWN, NULL);
    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    for (unsigned i = 0; i < added && r == 0; i++) {
        snprintf(name, sizeof(name), "new %0200u", i);
        r = index_scan_add(scan, name, strlen(name));
    }
    ck_assert_int_eq(r, -ENOSPC);
    index_scan_abort(scan);
    disk_is_full = false;
    unit_scan(dir, &stamp, some);
    unit_expect(dir, "ONE", INDEX_VARIANT, "one");
    index_dir_release(dir);
    index_close(index);
    ck_assert(still_there());
}
END_TEST

START_TEST(identity_is_checked)
{
    struct index *index = unit_open(NULL);
    char id[INDEX_DIR_ID_MAX + 1] = {1};
    struct index_dir *dir, *again;

    ck_assert_int_eq(index_dir_acquire(index, id, 0, 0, true, &dir), -EINVAL);
    ck_assert_int_eq(index_dir_acquire(index, id, sizeof(id), 0, true, &dir), -EINVAL);
    ck_assert_int_eq(index_dir_acquire(index, id, INDEX_DIR_ID_MAX, 0, true, &dir), 0);
    ck_assert_int_eq(index_dir_acquire(index, id, INDEX_DIR_ID_MAX, 0, true, &again), 0);
    ck_assert_ptr_eq(dir, again);
    ck_assert_uint_eq(info_of(index).live, 1);
    index_dir_release(dir);
    index_dir_release(again);
    index_dir_release(NULL);
    ck_assert_uint_eq(info_of(index).live, 0);
    index_close(index);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("open");

    log_open(false, LOG_EMERG);
    tcase_add_test(tests, everything_is_there_again);
    tcase_add_test(tests, folder_is_ours_alone);
    tcase_add_test(tests, second_daemon_is_refused);
    tcase_add_test(tests, mistakes_of_the_administrator_are_returned);
    tcase_add_test(tests, clean_end_is_told_from_a_crash);
    tcase_add_test(tests, what_does_not_fit_starts_afresh);
    tcase_add_test(tests, numbers_are_never_given_out_twice);
    tcase_add_test(tests, full_disk_at_the_start_means_memory);
    tcase_add_test(tests, full_disk_later_makes_directories_incomplete);
    tcase_add_test(tests, identity_is_checked);
    return unit_run("index-open", tests);
}
