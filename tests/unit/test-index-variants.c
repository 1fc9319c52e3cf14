/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-variants.c - variants.c and how names.c uses it: order, all levels, damage, and
 * that many spellings of one name stay cheap.
 */
#include <stdio.h>
#include <time.h>

#include "index-unit.h"
#include "index/internal.h"

#define LETTERS 20

/* One spelling of a word of LETTERS letters for each number. */
static void spell(unsigned number, char ret_name[LETTERS + 1])
{
    for (unsigned i = 0; i < LETTERS; i++)
        ret_name[i] = number >> (LETTERS - 1 - i) & 1 ? 'x' : 'X';
    ret_name[LETTERS] = 0;
}

static struct index_dir *open_dir(struct index **ret_index)
{
    const struct index_stamp stamp = unit_stamp(1);

    *ret_index = unit_open(NULL);
    struct index_dir *dir = unit_acquire(*ret_index, "dir", 0);
    unit_scan(dir, &stamp, NULL);
    return dir;
}

static void close_dir(struct index *index, struct index_dir *dir)
{
    ck_assert_int_eq(index_verify(index), 0);
    index_dir_release(dir);
    index_close(index);
}

/* The base record of NAME in DIR. */
static struct view_of_record base_of(struct index *index, struct index_dir *dir,
                                     const char *name)
{
    struct place place;
    struct query q;
    bool damaged = false;

    query_init(index->manifest.seed, atomic_load(&dir->key), name, strlen(name), &q);
    ck_assert(table_find(atomic_load(&index->view)->cur, &q, &place, &damaged));
    return place.base;
}

START_TEST(variants_are_in_bytewise_order)
{
    struct index *index;
    struct index_dir *dir = open_dir(&index);
    char name[LETTERS + 1];

    for (unsigned i = 0; i < 300; i++) {
        spell(i * 7919 % 1024, name);
        unit_add(dir, name);
    }
    struct gen *gen = atomic_load(&index->view)->cur;
    struct view_of_record base = base_of(index, dir, name), anchor, at, next;
    char last[LETTERS + 1] = "";
    unsigned n = 1;
    ck_assert_int_eq(variants_verify(gen, &base, 0, &anchor), VARIANTS_OK);
    for (at = anchor; variants_next(gen, &anchor, &at, &next) > 0; at = next, n++) {
        ck_assert_int_lt(memcmp(last, next.name, LETTERS), 0);
        memcpy(last, next.name, LETTERS);
    }
    ck_assert_uint_eq(n, 300);
    close_dir(index, dir);
}
END_TEST

START_TEST(smallest_live_variant_answers)
{
    struct index *index;
    struct index_dir *dir = open_dir(&index);

    unit_add(dir, "foo");
    unit_add(dir, "Foo");
    unit_add(dir, "fOO");
    unit_expect(dir, "FOO", INDEX_VARIANT, "Foo");
    unit_remove(dir, "Foo");
    unit_expect(dir, "FOO", INDEX_VARIANT, "fOO");
    unit_expect(dir, "Foo", INDEX_VARIANT, "fOO");
    unit_remove(dir, "fOO");
    unit_expect(dir, "FOO", INDEX_VARIANT, "foo");
    unit_remove(dir, "foo");
    unit_expect(dir, "FOO", INDEX_ABSENT, NULL);
    unit_add(dir, "Foo");
    unit_expect(dir, "foo", INDEX_VARIANT, "Foo");
    close_dir(index, dir);
}
END_TEST

/* A spelling that was given up leaves its slot to the next one: renaming by case or deleting
 * and creating anew does not let groups grow. */
START_TEST(name_that_changes_its_case_stays_alone)
{
    struct index *index;
    struct index_dir *dir = open_dir(&index);

    for (unsigned i = 0; i < 100; i++) {
        unit_add(dir, "name");
        index_respell(dir, "name", 4, "NAME", 4);
        unit_expect(dir, "name", INDEX_VARIANT, "NAME");
        unit_remove(dir, "NAME");
        unit_expect(dir, "name", INDEX_ABSENT, NULL);
    }
    struct index_info info;
    index_get_info(index, &info);
    ck_assert_uint_eq(info.names, 1);
    close_dir(index, dir);
}
END_TEST

START_TEST(cut_chain_is_unknown_and_a_scan_mends_it)
{
    const struct index_stamp stamp = unit_stamp(1);
    static const char *const names[] = {"foo", "Foo", "fOO", NULL};
    struct index *index = unit_open(unit_path());
    struct index_dir *dir = unit_acquire(index, "dir", 0);

    unit_scan(dir, &stamp, names);
    index_dir_release(dir);
    index_close(index);
    index = unit_open(unit_path());
    dir = unit_acquire(index, "dir", 0);
    struct view_of_record base = base_of(index, dir, "foo");
    uint64_t offset;
    struct gen *gen = atomic_load(&index->view)->cur;
    ck_assert(record_get_link(gen, &base, LINK_BASE, &offset));
    /* The anchor's lowest link. */
    memset(gen->names.base + offset + sizeof(struct record), 0, 8);
    unit_expect(dir, "FOO", INDEX_UNKNOWN, NULL);
    ck_assert_int_eq(index_dir_check(dir, unit_stat, (void *)&stamp), INDEX_STALE);
    unit_scan(dir, &stamp, names);
    unit_expect(dir, "FOO", INDEX_VARIANT, "Foo");
    unit_expect(dir, "fOO", INDEX_EXACT, "fOO");
    close_dir(index, dir);
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double add_spellings(struct index_dir *dir, unsigned from, unsigned to)
{
    char name[LETTERS + 1];
    double began = cpu_seconds();

    for (unsigned i = from; i < to; i++) {
        spell(i, name);
        unit_add(dir, name);
    }
    return cpu_seconds() - began;
}

/* Ascending order is the worst for a list and for a tree.  Were the cost of one linear in their
 * number, the last tenth would cost nineteen times the first. */
START_TEST(hundred_thousand_spellings_are_not_quadratic)
{
    struct index *index;
    struct index_dir *dir = open_dir(&index);
    double first = add_spellings(dir, 0, 10000);

    (void)add_spellings(dir, 10000, 90000);
    double last = add_spellings(dir, 90000, 100000);
    ck_assert_msg(last < first * 8, "%.3f s for the first tenth, %.3f for the last", first,
                  last);
    char name[LETTERS + 1], smallest[LETTERS + 1];
    spell((1 << LETTERS) - 1, name);
    spell(0, smallest);
    unit_expect(dir, name, INDEX_VARIANT, smallest);
    close_dir(index, dir);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("variants");

    tcase_add_test(tests, variants_are_in_bytewise_order);
    tcase_add_test(tests, smallest_live_variant_answers);
    tcase_add_test(tests, name_that_changes_its_case_stays_alone);
    tcase_add_test(tests, cut_chain_is_unknown_and_a_scan_mends_it);
    tcase_add_test(tests, hundred_thousand_spellings_are_not_quadratic);
    return unit_run("index-variants", tests);
}
