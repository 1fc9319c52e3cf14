/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-rebuild.c - rebuild.c, known.c and grace.c: nothing that counts is lost, garbage
 * goes, writers and readers go on meanwhile, and old maps outlive their readers.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "index-unit.h"
#include "index/internal.h"
#include "log.h"

static struct index_stamp stamp;

static struct index_info info_of(struct index *index)
{
    struct index_info info;

    index_get_info(index, &info);
    return info;
}

static struct index_dir *complete_dir(struct index *index)
{
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    stamp = unit_stamp(1);
    unit_scan(dir, &stamp, NULL);
    return dir;
}

static void add_numbered(struct index_dir *dir, unsigned from, unsigned to)
{
    char name[32];

    for (unsigned i = from; i < to; i++) {
        snprintf(name, sizeof(name), "Name %u", i);
        unit_add(dir, name);
    }
}

static void expect_numbered(struct index_dir *dir, unsigned from, unsigned to,
                            enum index_match want)
{
    char name[32];

    for (unsigned i = from; i < to; i++) {
        snprintf(name, sizeof(name), "nAME %u", i);
        unit_expect(dir, name, want, NULL);
    }
}

START_TEST(garbage_goes_and_names_stay)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = complete_dir(index);
    char name[32];

    add_numbered(dir, 0, 2000);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "Name %u", i);
        unit_remove(dir, name);
    }
    unit_add(dir, "x");
    unit_add(dir, "X");
    ck_assert_int_eq(index_checkpoint(index), 0);
    /* The removals are durable once the stamp is that was taken after them. */
    unit_change(dir, &stamp, NULL, NULL);
    unit_now_ns += SECOND;
    ck_assert_int_eq(index_rebuild(index), 0);
    ck_assert_uint_eq(info_of(index).generation, 2);
    ck_assert_uint_eq(info_of(index).names, 1002);
    ck_assert_uint_eq(info_of(index).garbage, 0);
    expect_numbered(dir, 0, 1000, INDEX_ABSENT);
    expect_numbered(dir, 1000, 2000, INDEX_VARIANT);
    unit_expect(dir, "x", INDEX_EXACT, "x");
    unit_expect(dir, "X", INDEX_EXACT, "X");
    ck_assert_int_eq(index_verify(index), 0);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(new_generation_is_the_one_opened_and_the_old_one_is_gone)
{
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = complete_dir(index);
    char old[128];

    add_numbered(dir, 0, 100);
    ck_assert_int_eq(index_rebuild(index), 0);
    add_numbered(dir, 100, 200);
    index_dir_release(dir);
    index_close(index);
    snprintf(old, sizeof(old), "%s/gen-1", unit_path());
    ck_assert_int_eq(access(old, F_OK), -1);
    index = unit_open(unit_path());
    dir = unit_acquire(index, "dir", 0);
    ck_assert_uint_eq(info_of(index).generation, 2);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    expect_numbered(dir, 0, 200, INDEX_VARIANT);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(table_grows_by_itself)
{
    enum { MANY = 60000 };
    struct index *index = unit_open(NULL);
    struct index_dir *dir = complete_dir(index);
    struct index_scan *scan;
    char name[32];

    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "Name %u", i);
        ck_assert_int_eq(index_scan_add(scan, name, strlen(name)), 0);
    }
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    ck_assert_uint_gt(info_of(index).generation, 1);
    expect_numbered(dir, 0, MANY, INDEX_VARIANT);
    expect_numbered(dir, MANY, MANY + 1000, INDEX_ABSENT);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(names_of_forgotten_directories_go)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = complete_dir(index);

    add_numbered(dir, 0, 500);
    index_dir_forget(dir);
    ck_assert_int_eq(index_rebuild(index), 0);
    ck_assert_uint_eq(info_of(index).names, 0);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(names_of_cold_directories_stay)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = complete_dir(index);

    add_numbered(dir, 0, 500);
    index_dir_release(dir);
    ck_assert_int_eq(index_checkpoint(index), 0);
    ck_assert_uint_eq(info_of(index).live, 0);
    ck_assert_int_eq(index_rebuild(index), 0);
    dir = unit_acquire(index, "dir", 0);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, &stamp), INDEX_CURRENT);
    expect_numbered(dir, 0, 500, INDEX_VARIANT);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

START_TEST(scan_goes_on_over_a_rebuild)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = complete_dir(index);
    struct index_scan *scan;

    add_numbered(dir, 0, 10);
    ck_assert_int_eq(index_scan_begin(dir, &scan), 0);
    ck_assert_int_eq(index_scan_add(scan, "Name 1", 6), 0);
    unit_remove(dir, "Name 2");
    unit_remove(dir, "never there");
    ck_assert_int_eq(index_rebuild(index), 0);
    ck_assert_int_eq(index_scan_add(scan, "Name 2", 6), 0);
    ck_assert_int_eq(index_scan_add(scan, "never there", 11), 0);
    ck_assert_int_eq(index_scan_add(scan, "Name 3", 6), 0);
    ck_assert_int_eq(index_scan_commit(scan, &stamp, &stamp), 0);
    unit_expect(dir, "Name 0", INDEX_ABSENT, NULL);
    unit_expect(dir, "Name 1", INDEX_EXACT, "Name 1");
    unit_expect(dir, "Name 2", INDEX_ABSENT, NULL);
    unit_expect(dir, "never there", INDEX_ABSENT, NULL);
    unit_expect(dir, "Name 3", INDEX_EXACT, "Name 3");
    index_dir_release(dir);
    index_close(index);
}
END_TEST

/* ---- under load ---- */

#define ROUNDS_A_PAUSE 4
#define PAUSE_US       1000

struct load {
    struct index_dir *dir;
    unsigned number;
    _Atomic bool stop;
    _Atomic unsigned wrong;
    unsigned rounds;
};

/* Its own names: added, respelled, removed, and looked up after each step. */
static void *work(void *arg)
{
    struct load *load = arg;
    char low[32], up[32];

    for (unsigned i = 0; !atomic_load(&load->stop); i++) {
        snprintf(low, sizeof(low), "t%u name %u", load->number, i % 997);
        snprintf(up, sizeof(up), "T%u NAME %u", load->number, i % 997);
        unit_remove(load->dir, up); /* of the last time */
        unit_add(load->dir, low);
        load->wrong += unit_find(load->dir, up) != INDEX_VARIANT;
        index_respell(load->dir, low, strlen(low), up, strlen(up));
        load->wrong += unit_find(load->dir, up) != INDEX_EXACT;
        if (i % 3) {
            unit_remove(load->dir, up);
            load->wrong += unit_find(load->dir, low) != INDEX_ABSENT;
        }
        load->rounds++;
        /* Not faster than a rebuild under a sanitizer can read what they leave behind. */
        if (i % ROUNDS_A_PAUSE == 0)
            usleep(PAUSE_US);
    }
    return NULL;
}

START_TEST(writers_and_readers_go_on_during_rebuilds)
{
    struct index *index = unit_open(NULL);
    struct index_dir *dir = complete_dir(index);
    struct load loads[4] = {0};
    pthread_t threads[4];

    for (unsigned i = 0; i < ARRAY_SIZE(loads); i++) {
        loads[i].dir = dir;
        loads[i].number = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &loads[i]), 0);
    }
    for (unsigned i = 0; i < 15; i++) {
        ck_assert_int_eq(index_rebuild(index), 0);
        usleep(10000);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(loads); i++) {
        atomic_store(&loads[i].stop, true);
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(loads[i].wrong, 0);
        ck_assert_uint_gt(loads[i].rounds, 0);
    }
    ck_assert_int_eq(index_verify(index), 0);
    index_dir_release(dir);
    index_close(index);
}
END_TEST

/* ---- grace ---- */

static struct grace the_grace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *wait_for_grace(void *arg)
{
    grace_wait(&the_grace);
    return arg;
}

START_TEST(grace_waits_for_who_entered_before)
{
    pthread_t thread;
    unsigned ticket = grace_enter(&the_grace);

    ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_grace, NULL), 0);
    usleep(50000);
    ck_assert_int_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
    grace_exit(&the_grace, ticket);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    grace_wait(&the_grace); /* nobody is there: returns */
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("rebuild");

    log_open(false, LOG_EMERG);
    tcase_add_test(tests, garbage_goes_and_names_stay);
    tcase_add_test(tests, new_generation_is_the_one_opened_and_the_old_one_is_gone);
    tcase_add_test(tests, table_grows_by_itself);
    tcase_add_test(tests, names_of_forgotten_directories_go);
    tcase_add_test(tests, names_of_cold_directories_stay);
    tcase_add_test(tests, scan_goes_on_over_a_rebuild);
    tcase_add_test(tests, writers_and_readers_go_on_during_rebuilds);
    tcase_add_test(tests, grace_waits_for_who_entered_before);
    return unit_run("index-rebuild", tests);
}
