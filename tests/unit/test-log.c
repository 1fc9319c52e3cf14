/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-log.c - log.c: what log_escape lets through, and how many lines pass the brake.
 *
 * Lines are caught on stderr, which each test turns into a pipe.  The clock is wrapped by the
 * linker (--wrap=clock_gettime), so that an interval passes when a test says so.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "common.h"
#include "suite.h"

enum {
    FLOOD = 1000,        /* lines: far more than any burst */
    FAR_AHEAD_S = 86400, /* longer than any interval */
};

static time_t skipped_s;
static int caught_fd = -1;

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);

    ret->tv_sec += skipped_s;
    return r;
}

/* From here on stderr goes to a pipe that caught() reads. */
static void catch_stderr(void)
{
    int ends[2];

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    ck_assert_int_gt(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    caught_fd = ends[0];
}

/* What was written to stderr since the last call. */
static const char *caught(void)
{
    static char text[1 << 20];
    size_t len = 0;
    ssize_t n;

    while ((n = read(caught_fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    return text;
}

static unsigned count_lines(const char *text)
{
    unsigned lines = 0;

    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void check_escape(const char *name, size_t len, const char *want)
{
    char buffer[4 * FOLDFS_NAME_MAX + 1];

    ck_assert_ptr_eq(log_escape(name, len, buffer, sizeof(buffer)), buffer);
    ck_assert_str_eq(buffer, want);
}

START_TEST(escape_keeps_what_can_be_shown)
{
    check_escape("", 0, "");
    check_escape("a b\"%s.txt", 10, "a b\"%s.txt");
    check_escape("äéß日本語😀", strlen("äéß日本語😀"), "äéß日本語😀");
}
END_TEST

START_TEST(escape_marks_controls_backslash_and_broken_bytes)
{
    check_escape("a\nb\x1b[2J\x7f", 8, "a\\x0ab\\x1b[2J\\x7f");
    check_escape("nul\0end", 7, "nul\\x00end");
    check_escape("back\\slash", 10, "back\\x5cslash");
    check_escape("\x83\x41\xff", 3, "\\x83A\\xff");
    check_escape("\xc2\x9b"
                 "31m",
                 5, "\\xc2\\x9b31m");
    check_escape("\xed\xa0\x80\xc1\xa1\xe3\x81", 7, "\\xed\\xa0\\x80\\xc1\\xa1\\xe3\\x81");
}
END_TEST

START_TEST(escape_of_the_longest_name_fits)
{
    char name[FOLDFS_NAME_MAX], buffer[4 * FOLDFS_NAME_MAX + 1];

    memset(name, 0xff, sizeof(name));
    log_escape(name, sizeof(name), buffer, sizeof(buffer));
    ck_assert_uint_eq(strlen(buffer), 4 * FOLDFS_NAME_MAX);
    ck_assert_str_eq(buffer + 4 * FOLDFS_NAME_MAX - 8, "\\xff\\xff");
}
END_TEST

/* For each size: all of it if it fits, else a whole number of pieces and "...". */
START_TEST(escape_cuts_between_characters)
{
    static const char name[] = "ab日\xff"
                               "c";
    static const char *const want[] = {
        NULL,    "",      "",      "",        "...",     "a...",
        "ab...", "ab...", "ab...", "ab日...", "ab日...", "ab日\\xffc",
    };

    for (size_t size = 1; size < ARRAY_SIZE(want); size++) {
        char buffer[32];
        memset(buffer, 'Z', sizeof(buffer));
        log_escape(name, strlen(name), buffer, size);
        ck_assert_msg(strcmp(buffer, want[size]) == 0, "size %zu: %s", size, buffer);
        ck_assert_int_eq(buffer[size], 'Z');
    }
}
END_TEST

START_TEST(line_has_errno_text_and_keeps_errno)
{
    catch_stderr();
    errno = ENOSPC;
    log_line(LOG_ERR, "cannot write %s: %m", "x");
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_str_eq(caught(), "foldfs: cannot write x: No space left on device\n");
}
END_TEST

START_TEST(line_stays_one_line)
{
    catch_stderr();
    log_line(LOG_ERR, "name %s", "a\nb\x1b");
    ck_assert_str_eq(caught(), "foldfs: name a?b?\n");
}
END_TEST

START_TEST(lines_above_the_priority_are_dropped)
{
    catch_stderr();
    log_line(LOG_DEBUG, "hidden before log_open");
    log_line(LOG_INFO, "shown before log_open");
    log_open(false, LOG_WARNING);
    log_line(LOG_NOTICE, "hidden");
    log_line(LOG_WARNING, "shown");
    log_open(false, LOG_DEBUG);
    log_line(LOG_DEBUG, "shown too");
    ck_assert_str_eq(caught(),
                     "foldfs: shown before log_open\nfoldfs: shown\nfoldfs: shown too\n");
}
END_TEST

START_TEST(journal_gets_the_priority_in_front)
{
    char stream[64];
    struct stat st;

    catch_stderr();
    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(false, LOG_INFO);
    log_line(LOG_WARNING, "to the journal");
    setenv("JOURNAL_STREAM", "1:1", 1);
    log_open(false, LOG_INFO);
    log_line(LOG_WARNING, "elsewhere");
    ck_assert_str_eq(caught(), "<4>to the journal\nfoldfs: elsewhere\n");
}
END_TEST

static void flood(unsigned lines)
{
    for (unsigned i = 0; i < lines; i++)
        log_line(LOG_ERR, "line %u", i);
}

START_TEST(flood_is_cut_and_its_rest_is_told_later)
{
    catch_stderr();
    flood(FLOOD);
    unsigned passed = count_lines(caught());
    ck_assert_uint_ge(passed, 2);
    ck_assert_uint_le(passed, FLOOD / 10);

    skipped_s += FAR_AHEAD_S;
    flood(1);
    char want[64];
    snprintf(want, sizeof(want), "foldfs: line 0 (%u more like this were not shown)\n",
             FLOOD - passed);
    ck_assert_str_eq(caught(), want);
    flood(1);
    ck_assert_str_eq(caught(), "foldfs: line 0\n");
}
END_TEST

START_TEST(flood_of_one_format_does_not_silence_another)
{
    catch_stderr();
    flood(FLOOD);
    caught();
    log_line(LOG_ERR, "another");
    ck_assert_str_eq(caught(), "foldfs: another\n");
}
END_TEST

/* Lines further apart than the burst allows on average are never cut. */
START_TEST(steady_trickle_is_not_cut)
{
    catch_stderr();
    for (unsigned i = 0; i < 100; i++) {
        log_line(LOG_ERR, "trickle");
        skipped_s += 60;
    }
    ck_assert_uint_eq(count_lines(caught()), 100);
}
END_TEST

START_TEST(more_formats_than_the_table_holds_all_pass)
{
    static char formats[4096][8];

    catch_stderr();
    for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
        snprintf(formats[i], sizeof(formats[i]), "f%zu", i);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
        log_line(LOG_ERR, formats[i]);
#pragma GCC diagnostic pop
    }
    ck_assert_uint_eq(count_lines(caught()), ARRAY_SIZE(formats));
}
END_TEST

static void *flood_thread(void *arg)
{
    (void)arg;
    flood(FLOOD);
    return NULL;
}

START_TEST(threads_lose_no_count)
{
    pthread_t threads[8];

    catch_stderr();
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, flood_thread, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        pthread_join(threads[i], NULL);

    unsigned passed = count_lines(caught());
    skipped_s += FAR_AHEAD_S;
    flood(1);
    unsigned told = 0;
    ck_assert_int_eq(sscanf(caught(), "foldfs: line 0 (%u more", &told), 1);
    ck_assert_uint_eq(passed + told, ARRAY_SIZE(threads) * FLOOD);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");

    tcase_add_test(tests, escape_keeps_what_can_be_shown);
    tcase_add_test(tests, escape_marks_controls_backslash_and_broken_bytes);
    tcase_add_test(tests, escape_of_the_longest_name_fits);
    tcase_add_test(tests, escape_cuts_between_characters);
    tcase_add_test(tests, line_has_errno_text_and_keeps_errno);
    tcase_add_test(tests, line_stays_one_line);
    tcase_add_test(tests, lines_above_the_priority_are_dropped);
    tcase_add_test(tests, journal_gets_the_priority_in_front);
    tcase_add_test(tests, flood_is_cut_and_its_rest_is_told_later);
    tcase_add_test(tests, flood_of_one_format_does_not_silence_another);
    tcase_add_test(tests, steady_trickle_is_not_cut);
    tcase_add_test(tests, more_formats_than_the_table_holds_all_pass);
    tcase_add_test(tests, threads_lose_no_count);
    suite_add_tcase(suite, tests);

    return suite_run(suite);
}
