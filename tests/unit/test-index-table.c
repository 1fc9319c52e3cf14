/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-table.c - arena.c and table.c on a generation in memory: records and slots are
 * found again, damage of any byte is seen, and a full table says so.
 */
#include <stdio.h>

#include "index-unit.h"
#include "index/internal.h"

#define KEY 77

static struct gen *make_gen(uint64_t nbuckets)
{
    struct manifest m;
    struct gen *gen = NULL;

    ck_assert_int_eq(manifest_fresh(&m), 0);
    ck_assert_int_eq(gen_create(-1, &m, 1, nbuckets, 0, &gen), 0);
    return gen;
}

static uint64_t append(struct gen *gen, const char *name)
{
    uint64_t offset;

    ck_assert_int_eq(record_append(gen, KEY, RECORD_NAME, 0, name, strlen(name), 5, &offset),
                     0);
    return offset;
}

static uint64_t put(struct gen *gen, const char *name)
{
    uint64_t offset = append(gen, name);
    struct query q;

    query_init(gen->seed, KEY, name, strlen(name), &q);
    ck_assert_int_eq(table_insert(gen, &q, offset), 0);
    return offset;
}

static bool has(struct gen *gen, const char *name, bool *ret_damaged)
{
    struct place place;
    struct query q;

    *ret_damaged = false;
    query_init(gen->seed, KEY, name, strlen(name), &q);
    return table_find(gen, &q, &place, ret_damaged);
}

START_TEST(record_keeps_name_key_and_state)
{
    struct gen *gen = make_gen(8);
    uint64_t offset = append(gen, "Grüße.txt"), state;
    struct view_of_record v;

    ck_assert(record_view(gen, offset, &v));
    ck_assert_uint_eq(v.key, KEY);
    ck_assert_uint_eq(v.len, strlen("Grüße.txt"));
    ck_assert_mem_eq(v.name, "Grüße.txt", v.len);
    ck_assert(record_get_state(gen, &v, &state));
    ck_assert_uint_eq(state, 5);
    record_set_state(gen, &v, 9 | STATE_REMOVED);
    ck_assert(record_get_state(gen, &v, &state));
    ck_assert_uint_eq(state, 9 | STATE_REMOVED);
    gen_free(gen);
}
END_TEST

/* A state of which some bytes were replaced, as by a lost sector that ends in it. */
START_TEST(half_of_another_state_is_seen)
{
    struct gen *gen = make_gen(8);
    uint64_t offset = append(gen, "name"), state, believed = 0, random = 1;
    struct view_of_record v;

    ck_assert(record_view(gen, offset, &v));
    for (unsigned i = 0; i < 1000000; i++) {
        record_set_state(gen, &v, 1000 + i);
        uint64_t word = atomic_load(&v.record->state);
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t mask = (UINT64_C(1) << (8 * (1 + i % 7))) - 1;
        uint64_t other = (word & ~mask) | (random >> 8 & mask);
        atomic_store(&v.record->state, other);
        believed += other != word && record_get_state(gen, &v, &state);
    }
    ck_assert_uint_le(believed, 20); /* two are expected */
    gen_free(gen);
}
END_TEST

START_TEST(link_is_kept_beside_the_static_check)
{
    struct gen *gen = make_gen(8);
    uint64_t a = append(gen, "a"), b = append(gen, "b"), to;
    struct view_of_record v;

    ck_assert(record_view(gen, a, &v));
    ck_assert(record_get_link(gen, &v, LINK_BASE, &to));
    ck_assert_uint_eq(to, 0);
    record_set_link(gen, &v, LINK_BASE, b);
    ck_assert(record_view(gen, a, &v));
    ck_assert(record_get_link(gen, &v, LINK_BASE, &to));
    ck_assert_uint_eq(to, b);
    gen_free(gen);
}
END_TEST

/* Is there nothing wrong with the record at OFFSET? */
static bool sound(const struct gen *gen, uint64_t offset)
{
    struct view_of_record v;
    uint64_t state, link;

    return record_view(gen, offset, &v) && record_get_state(gen, &v, &state) &&
           record_get_link(gen, &v, LINK_BASE, &link);
}

START_TEST(change_of_any_byte_of_a_record_is_seen)
{
    struct gen *gen = make_gen(8);
    const char *name = "a name of no round length";
    uint64_t offset = append(gen, name);

    append(gen, "the next one");
    ck_assert(sound(gen, offset));
    for (uint64_t i = 0; i < record_bytes(strlen(name), 0); i++)
        for (unsigned change = 1; change < 256; change++) {
            gen->names.base[offset + i] ^= (char)change;
            ck_assert_msg(!sound(gen, offset), "byte %u, change %u", (unsigned)i, change);
            gen->names.base[offset + i] ^= (char)change;
        }
    gen_free(gen);
}
END_TEST

START_TEST(copy_of_a_record_elsewhere_is_not_one)
{
    struct gen *gen = make_gen(8);
    uint64_t a = append(gen, "first"), b = append(gen, "other");
    unsigned taken = 0;

    for (unsigned i = 0; i < 64; i++) {
        uint64_t c = append(gen, "third");

        memcpy(gen->names.base + c, gen->names.base + a, b - a);
        taken += sound(gen, c);
    }
    ck_assert_uint_eq(taken, 0);
    gen_free(gen);
}
END_TEST

START_TEST(offsets_from_nowhere_are_refused)
{
    struct gen *gen = make_gen(8);
    uint64_t a = append(gen, "only"), tail = atomic_load(&gen->tail);
    struct view_of_record v;

    ck_assert(!record_view(gen, 0, &v));
    ck_assert(!record_view(gen, a + 1, &v));
    ck_assert(!record_view(gen, a + UNIT, &v));
    ck_assert(!record_view(gen, tail, &v));
    ck_assert(!record_view(gen, OFFSET_MASK * UNIT, &v));
    gen_free(gen);
}
END_TEST

START_TEST(table_finds_every_spelling_and_only_them)
{
    struct gen *gen = make_gen(512);
    char name[32];
    bool damaged;

    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "Name-%u", i);
        put(gen, name);
    }
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "nAME-%u", i);
        ck_assert(has(gen, name, &damaged) && !damaged);
        snprintf(name, sizeof(name), "none-%u", i);
        ck_assert(!has(gen, name, &damaged) && !damaged);
    }
    ck_assert_uint_eq(atomic_load(&gen->used), 3000);
    gen_free(gen);
}
END_TEST

START_TEST(full_table_takes_no_more)
{
    struct gen *gen = make_gen(2);
    char name[32];
    struct query q;
    bool damaged;

    for (unsigned i = 0; i < 16; i++) {
        snprintf(name, sizeof(name), "%u", i);
        put(gen, name);
    }
    query_init(gen->seed, KEY, "more", 4, &q);
    ck_assert_int_eq(table_insert(gen, &q, append(gen, "more")), -ENOSPC);
    ck_assert(has(gen, "15", &damaged));
    ck_assert(!has(gen, "more", &damaged) && !damaged);
    gen_free(gen);
}
END_TEST

START_TEST(change_of_any_byte_of_a_bucket_is_seen)
{
    struct gen *gen = make_gen(1);
    bool damaged;
    char *bytes = (char *)gen->buckets;

    put(gen, "one");
    put(gen, "two");
    for (unsigned i = 0; i < sizeof(struct bucket); i++)
        for (unsigned change = 1; change < 256; change++) {
            bytes[i] ^= (char)change;
            ck_assert(!has(gen, "absent", &damaged));
            ck_assert_msg(damaged, "byte %u, change %u", i, change);
            bytes[i] ^= (char)change;
        }
    ck_assert(!has(gen, "absent", &damaged) && !damaged);
    gen_free(gen);
}
END_TEST

START_TEST(zeroed_bucket_is_damage)
{
    struct gen *gen = make_gen(1);
    bool damaged;

    memset(gen->buckets, 0, sizeof(struct bucket));
    ck_assert(!has(gen, "absent", &damaged));
    ck_assert(damaged);
    gen_free(gen);
}
END_TEST

START_TEST(slot_that_leads_to_another_name_is_damage)
{
    struct gen *gen = make_gen(1);
    struct query q;
    bool damaged;

    query_init(gen->seed, KEY, "lost", 4, &q);
    ck_assert_int_eq(table_insert(gen, &q, append(gen, "written over it")), 0);
    ck_assert(!has(gen, "lost", &damaged));
    ck_assert(damaged);
    gen_free(gen);
}
END_TEST

START_TEST(names_grows_in_small_steps)
{
    struct gen *gen = make_gen(8);
    char name[201];

    memset(name, 'x', 200);
    name[200] = 0;
    for (unsigned i = 0; i < 50000; i++)
        append(gen, name);
    uint64_t tail = atomic_load(&gen->tail), size = atomic_load(&gen->names.size);
    ck_assert_uint_ge(size, tail);
    ck_assert_uint_le(size, tail + tail / 32);
    gen_free(gen);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("table");

    tcase_add_test(tests, record_keeps_name_key_and_state);
    tcase_add_test(tests, half_of_another_state_is_seen);
    tcase_add_test(tests, link_is_kept_beside_the_static_check);
    tcase_add_test(tests, change_of_any_byte_of_a_record_is_seen);
    tcase_add_test(tests, copy_of_a_record_elsewhere_is_not_one);
    tcase_add_test(tests, offsets_from_nowhere_are_refused);
    tcase_add_test(tests, table_finds_every_spelling_and_only_them);
    tcase_add_test(tests, full_table_takes_no_more);
    tcase_add_test(tests, change_of_any_byte_of_a_bucket_is_seen);
    tcase_add_test(tests, zeroed_bucket_is_damage);
    tcase_add_test(tests, slot_that_leads_to_another_name_is_damage);
    tcase_add_test(tests, names_grows_in_small_steps);
    return unit_run("index-table", tests);
}
