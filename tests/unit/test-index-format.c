/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-format.c - format.h: what the checks of words see, and that slots and records
 * hold what is put into them.
 */
#include "index/format.h"

#include "index-unit.h"

#define SEED UINT64_C(0x0123456789abcdef)

START_TEST(change_of_any_byte_of_a_word_is_seen)
{
    uint64_t payload = 0;

    for (unsigned sample = 0; sample < 200; sample++) {
        payload = (payload ^ sample) * SPREAD + 1;
        uint8_t salt = word_salt(SEED, sample);
        uint64_t word = word_make(payload & PAYLOAD_MASK, salt);

        ck_assert(word_valid(word, salt));
        for (unsigned byte = 0; byte < 8; byte++)
            for (uint64_t change = 1; change < 256; change++)
                ck_assert(!word_valid(word ^ change << (8 * byte), salt));
    }
}
END_TEST

START_TEST(zeros_are_never_valid)
{
    for (uint64_t place = 0; place < 100000; place++)
        ck_assert(!word_valid(0, word_salt(SEED, place)));
}
END_TEST

START_TEST(taken_slot_never_becomes_an_empty_one_by_one_byte)
{
    for (uint64_t bucket = 0; bucket < 2000; bucket++) {
        uint8_t salt = word_salt(SEED, ~bucket);
        unsigned i = (unsigned)(bucket % SLOTS_PER_BUCKET);
        uint64_t empty = slot_empty(bucket, i, salt);

        ck_assert_uint_ne(empty, 0);
        for (unsigned byte = 0; byte < 8; byte++)
            for (uint64_t change = 1; change < 256; change++)
                ck_assert(!word_valid(empty ^ change << (8 * byte), salt));
    }
}
END_TEST

START_TEST(empty_slots_differ_by_place)
{
    uint8_t salt = word_salt(SEED, ~UINT64_C(7));

    for (unsigned i = 1; i < SLOTS_PER_BUCKET; i++)
        ck_assert_uint_ne(slot_empty(7, i, salt), slot_empty(7, 0, salt));
    ck_assert_uint_ne(slot_empty(8, 0, salt), slot_empty(7, 0, salt));
}
END_TEST

START_TEST(slot_keeps_offset_and_tag)
{
    uint64_t far = OFFSET_MASK * UNIT;

    for (unsigned tag = 0; tag <= UINT16_MAX; tag += 257) {
        uint64_t slot = slot_make(far, (uint16_t)tag, 1);

        ck_assert_uint_eq(slot_offset(slot), far);
        ck_assert_uint_eq(slot_tag(slot), tag);
    }
}
END_TEST

START_TEST(meta_keeps_its_parts)
{
    uint64_t meta = meta_make(KEY_MASK, 255, RECORD_ANCHOR, LEVELS_MAX);

    ck_assert_uint_eq(meta_key(meta), KEY_MASK);
    ck_assert_uint_eq(meta_len(meta), 255);
    ck_assert_uint_eq(meta_type(meta), RECORD_ANCHOR);
    ck_assert_uint_eq(meta_levels(meta), LEVELS_MAX);
    meta = meta_make(1, 1, RECORD_NAME, 0);
    ck_assert_uint_eq(meta_key(meta), 1);
    ck_assert_uint_eq(meta_len(meta), 1);
    ck_assert_uint_eq(meta_type(meta), RECORD_NAME);
    ck_assert_uint_eq(meta_levels(meta), 0);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("format");

    tcase_add_test(tests, change_of_any_byte_of_a_word_is_seen);
    tcase_add_test(tests, zeros_are_never_valid);
    tcase_add_test(tests, taken_slot_never_becomes_an_empty_one_by_one_byte);
    tcase_add_test(tests, empty_slots_differ_by_place);
    tcase_add_test(tests, slot_keeps_offset_and_tag);
    tcase_add_test(tests, meta_keeps_its_parts);
    return unit_run("index-format", tests);
}
