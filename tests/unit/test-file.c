/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-file.c - file.c: what is reached by way of /proc/self/fd is this process's own.
 *
 * Check forks for each test, after main() has used file.c, as a child of a daemon would.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backing/file.h"
#include "common.h"
#include "suite.h"

static char directory[] = "/var/tmp/foldfs-test-file-XXXXXX";

static int path_fd(const char *name, int flags)
{
    int fd = openat(AT_FDCWD, name, O_PATH | O_CLOEXEC | flags);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static void make(const char *name, const char *xattr)
{
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fsetxattr(fd, "user.what", xattr, strlen(xattr), 0), 0);
    close(fd);
}

static ino_t inode(int fd)
{
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    return st.st_ino;
}

/* FD is on NAME: opened anew and asked for its attribute, is it? */
static void assert_reached(int fd, const char *name, const char *xattr)
{
    CLEANUP_CLOSE int again = -1;
    char value[16];
    struct stat st;
    size_t len;

    ck_assert_int_eq(stat(name, &st), 0);
    ck_assert_int_eq(file_reopen(fd, O_RDWR | O_CLOEXEC, &again), 0);
    ck_assert_uint_eq(inode(again), st.st_ino);
    ck_assert_int_eq(fcntl(again, F_GETFL) & O_ACCMODE, O_RDWR);
    ck_assert_int_eq(file_get_xattr(fd, "user.what", value, sizeof(value), &len), 0);
    ck_assert_uint_eq(len, strlen(xattr));
    ck_assert_int_eq(memcmp(value, xattr, len), 0);
}

START_TEST(forked_child_reaches_its_own_descriptors)
{
    make("mine", "parent");
    make("theirs", "child");
    int fd = path_fd("mine", 0);
    assert_reached(fd, "mine", "parent");
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        /* The same number is another file here. */
        int other = path_fd("theirs", 0);
        if (dup3(other, fd, O_CLOEXEC) != fd)
            _exit(1);
        assert_reached(fd, "theirs", "child");
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_reached(fd, "mine", "parent");
    close(fd);
}
END_TEST

static void *reach_mine(void *fd)
{
    assert_reached(*(int *)fd, "mine", "parent");
    return NULL;
}

START_TEST(thread_reaches_the_process_s_descriptors)
{
    pthread_t thread;

    make("mine", "parent");
    int fd = path_fd("mine", 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, reach_mine, &fd), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    close(fd);
}
END_TEST

START_TEST(removed_file_is_reached)
{
    CLEANUP_CLOSE int again = -1;

    make("mine", "parent");
    int fd = path_fd("mine", 0);
    ck_assert_int_eq(unlink("mine"), 0);
    ck_assert_int_eq(file_reopen(fd, O_RDONLY | O_CLOEXEC, &again), 0);
    ck_assert_uint_eq(inode(again), inode(fd));
    close(fd);
}
END_TEST

START_TEST(symlink_is_not_followed)
{
    CLEANUP_CLOSE int again = -1;
    size_t len;
    char value[16];

    make("mine", "parent");
    ck_assert_int_eq(symlink("mine", "link"), 0);
    int fd = path_fd("link", O_NOFOLLOW);
    ck_assert_int_eq(file_reopen(fd, O_RDONLY | O_CLOEXEC, &again), -ELOOP);
    ck_assert_int_eq(file_get_xattr(fd, "user.what", value, sizeof(value), &len), -ENODATA);
    close(fd);
}
END_TEST

START_TEST(xattr_answers_as_the_system_call_does)
{
    size_t len = 99;
    char value[4];

    make("mine", "parent");
    int fd = path_fd("mine", 0);
    ck_assert_int_eq(file_get_xattr(fd, "user.what", value, 0, &len), 0);
    ck_assert_uint_eq(len, strlen("parent"));
    len = 99;
    ck_assert_int_eq(file_get_xattr(fd, "user.what", value, sizeof(value), &len), -ERANGE);
    ck_assert_int_eq(file_get_xattr(fd, "user.none", value, sizeof(value), &len), -ENODATA);
    ck_assert_int_eq(file_get_xattr(fd, "none.none", value, sizeof(value), &len), -EOPNOTSUPP);
    ck_assert_int_eq(file_get_xattr(fd, "", value, sizeof(value), &len), -ERANGE);
    close(fd);
    ck_assert_int_eq(file_get_xattr(fd, "user.what", value, sizeof(value), &len), -ENOENT);
    ck_assert_uint_eq(len, 99);
}
END_TEST

static void enter(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
}

static void leave(void)
{
    static const char *const names[] = {"mine", "theirs", "link"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        unlink(names[i]);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}

int main(void)
{
    Suite *suite = suite_create("file");
    TCase *tests = tcase_create("file");
    CLEANUP_CLOSE int null = -1, root = open("/", O_PATH | O_CLOEXEC);

    if (file_reopen(root, O_PATH | O_CLOEXEC, &null) < 0)
        return EXIT_FAILURE;
    tcase_add_checked_fixture(tests, enter, leave);
    tcase_add_test(tests, forked_child_reaches_its_own_descriptors);
    tcase_add_test(tests, thread_reaches_the_process_s_descriptors);
    tcase_add_test(tests, removed_file_is_reached);
    tcase_add_test(tests, symlink_is_not_followed);
    tcase_add_test(tests, xattr_answers_as_the_system_call_does);
    suite_add_tcase(suite, tests);

    return suite_run(suite);
}
