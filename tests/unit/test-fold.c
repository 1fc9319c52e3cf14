/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-fold.c - fold.c against the pairs themselves, a list of cases, and millions of random
 * names.  The pairs are read from upcase-windows.tsv here, not from the generated table, and
 * the expected folds are made by an encoder of this file's own.
 *
 * FOLD_PAIRS and FOLD_CASES are the paths of the two data files.  FOLDFS_TEST_SCALE (default 1)
 * multiplies the number of random names; FOLDFS_TEST_SEED repeats a run.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fold/fold.h"
#include "suite.h"

enum {
    UNITS = 0x10000,
    RANDOM_NAMES = 3000000, /* at scale 1: about two seconds */
    NAME_MAX_BYTES = 255,
};

static unsigned partner[UNITS]; /* the other member of the pair, or the unit itself */
static unsigned chosen[UNITS];  /* the member that stands for both */
static uint64_t random_state;

static bool is_surrogate(unsigned c)
{
    return c >= 0xD800 && c <= 0xDFFF;
}

/* Encodes any number below 2^21 as UTF-8 would, surrogates included. */
static size_t put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    to[0] = (char)((0xF00U >> len & 0xF0U) | c);
    return len;
}

static size_t utf8_size(unsigned c)
{
    char buffer[4];

    return put_utf8(buffer, c);
}

static void read_pairs(void)
{
    FILE *file = fopen(FOLD_PAIRS, "re");
    unsigned lower, upper, pairs = 0;

    ck_assert_msg(file != NULL, "cannot open %s", FOLD_PAIRS);
    for (unsigned c = 0; c < UNITS; c++)
        partner[c] = chosen[c] = c;
    while (fscanf(file, "%x\t%x\n", &lower, &upper) == 2) {
        partner[lower] = upper;
        partner[upper] = lower;
        chosen[lower] = chosen[upper] = utf8_size(lower) < utf8_size(upper) ? lower : upper;
        pairs++;
    }
    ck_assert_msg(feof(file), "%s is damaged", FOLD_PAIRS);
    fclose(file);
    ck_assert_uint_eq(pairs, 973);
}

/* xorshift64*: the same names from the same seed everywhere. */
static uint32_t next_random(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * UINT64_C(2685821657736338717) >> 32);
}

static uint32_t random_below(uint32_t limit)
{
    return limit == 0 ? 0 : next_random() % limit;
}

static long random_names(void)
{
    const char *scale = getenv("FOLDFS_TEST_SCALE");
    long names = (long)((double)RANDOM_NAMES * (scale ? strtod(scale, NULL) : 1));

    return names > 1000 ? names : 1000;
}

/* A character of a kind that the rule treats in its own way. */
static unsigned random_char(void)
{
    unsigned c;

    switch (random_below(6)) {
    case 0:
        c = 0x10000 + random_below(0x100000);
        break;
    case 1:
        c = random_below(UNITS);
        break;
    case 2:
        c = random_below(0x600);
        break;
    case 3:
        c = 0x3000 + random_below(0x7000);
        break;
    default:
        c = random_below(0x80);
    }
    return is_surrogate(c) ? 'x' : c;
}

static unsigned other_case(unsigned c)
{
    return c < UNITS && random_below(2) ? partner[c] : c;
}

/* A valid name of at most NAME_MAX_BYTES, and another spelling of it. */
static size_t random_name(char *name, char *spelling, size_t *ret_spelling_len)
{
    size_t len = 0, spelling_len = 0, want = 1 + random_below(NAME_MAX_BYTES - 4);

    if (random_below(4))
        want = 1 + random_below(24);
    while (len < want) {
        unsigned c = random_char();
        len += put_utf8(name + len, c);
        spelling_len += put_utf8(spelling + spelling_len, other_case(c));
    }
    *ret_spelling_len = spelling_len;
    return len;
}

/* What the rule says, character by character, for a name known to be valid. */
static size_t expected_fold(const char *name, size_t len, char *ret)
{
    size_t at = 0, out = 0;

    while (at < len) {
        unsigned char lead = (unsigned char)name[at];
        size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        unsigned c = size == 1 ? lead : lead & (0x7FU >> size);
        for (size_t i = 1; i < size; i++)
            c = c << 6 | ((unsigned char)name[at + i] & 0x3FU);
        out += put_utf8(ret + out, c < UNITS ? chosen[c] : c);
        at += size;
    }
    return out;
}

/* Makes NAME invalid by one of the ways in which it can be. */
static size_t damage(char *name, size_t len)
{
    static const char *const bad[] = {
        "\xFF",         "\xC1\xA1",         "\xE0\x83\xA9",     "\xF0\x82\x82\xAC",
        "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80", "\x80",
        "\xC3",         "\xE3\x81",         "\xF0\x9F\x98",     "\xFE",
    };
    const char *piece = bad[random_below(sizeof(bad) / sizeof(bad[0]))];
    size_t piece_len = strlen(piece);
    size_t at = random_below((uint32_t)len + 1);

    /* Insert at a character's boundary: elsewhere two damages could heal one another. */
    while (at > 0 && at < len && ((unsigned char)name[at] & 0xC0) == 0x80)
        at--;
    memmove(name + at + piece_len, name + at, len - at);
    memcpy(name + at, piece, piece_len);
    return len + piece_len;
}

/* ck_assert tells its runner about each success; millions of them take most of a minute. */
#define MUST(condition)                                                                        \
    do {                                                                                       \
        if (!(condition))                                                                      \
            ck_abort_msg("%s", #condition);                                                    \
    } while (0)

static bool same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

START_TEST(every_unit_folds_as_its_pair_says)
{
    read_pairs();
    for (unsigned c = 0; c < UNITS; c++) {
        char name[4], want[4], got[4];
        size_t len = put_utf8(name, c);
        size_t want_len = put_utf8(want, is_surrogate(c) ? c : chosen[c]);
        size_t got_len = fold_name(name, len, got);
        ck_assert_msg(same(got, got_len, want, want_len), "unit %04X", c);

        char other[4];
        size_t other_len = put_utf8(other, partner[c]);
        ck_assert_msg(fold_equal(name, len, other, other_len), "%04X and its partner", c);
    }
}
END_TEST

static size_t from_hex(const char *hex, char *to)
{
    size_t len = strlen(hex) / 2;

    for (size_t i = 0; i < len; i++) {
        unsigned byte = 0;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        to[i] = (char)byte;
    }
    return len;
}

START_TEST(listed_cases_are_as_listed)
{
    FILE *file = fopen(FOLD_CASES, "re");
    char line[1024];
    unsigned cases = 0;

    ck_assert_msg(file != NULL, "cannot open %s", FOLD_CASES);
    while (fgets(line, sizeof(line), file)) {
        char a_hex[512], b_hex[512], a[256], b[256], a_folded[256], b_folded[256];
        unsigned equal;

        if (line[0] == '#')
            continue;
        ck_assert_msg(sscanf(line, "%511[^\t]\t%511[^\t]\t%u", a_hex, b_hex, &equal) == 3,
                      "damaged line: %s", line);
        size_t a_len = from_hex(a_hex, a);
        size_t b_len = from_hex(b_hex, b);
        size_t a_folded_len = fold_name(a, a_len, a_folded);
        size_t b_folded_len = fold_name(b, b_len, b_folded);
        bool got = same(a_folded, a_folded_len, b_folded, b_folded_len);
        ck_assert_msg(got == (equal != 0), "%s", line);
        ck_assert_msg(fold_equal(a, a_len, b, b_len) == got, "fold_equal: %s", line);
        if (strstr(line, "[invalid]"))
            ck_assert_msg(same(a, a_len, a_folded, a_folded_len), "not kept: %s", line);
        cases++;
    }
    fclose(file);
    ck_assert_uint_ge(cases, 100);
}
END_TEST

START_TEST(valid_names_fold_as_their_characters_do)
{
    read_pairs();
    for (long i = random_names(); i > 0; i--) {
        char name[300], spelling[600], folded[300], folded_spelling[600], want[600], twice[300];
        size_t spelling_len;
        size_t len = random_name(name, spelling, &spelling_len);
        size_t folded_len = fold_name(name, len, folded);

        MUST(folded_len <= len);
        MUST(same(folded, folded_len, want, expected_fold(name, len, want)));
        MUST(same(folded, folded_len, twice, fold_name(folded, folded_len, twice)));
        MUST(same(folded, folded_len, folded_spelling,
                  fold_name(spelling, spelling_len, folded_spelling)));
        MUST(fold_equal(name, len, spelling, spelling_len));
    }
}
END_TEST

START_TEST(invalid_names_fold_to_themselves_and_equal_no_valid_one)
{
    read_pairs();
    for (long i = random_names(); i > 0; i--) {
        char name[300], spelling[600], folded[300], valid_folded[600];
        size_t spelling_len;
        size_t len = damage(name, random_name(name, spelling, &spelling_len));

        MUST(same(name, len, folded, fold_name(name, len, folded)));
        MUST(fold_equal(name, len, name, len));
        size_t valid_len = fold_name(spelling, spelling_len, valid_folded);
        MUST(!same(valid_folded, valid_len, folded, len));
        MUST(!fold_equal(name, len, spelling, spelling_len));
        MUST(!fold_equal(spelling, spelling_len, name, len));
    }
}
END_TEST

/* Random bytes, near duplicates and cut names: fold_equal must say what comparing folds says.
 */
START_TEST(fold_equal_agrees_with_fold_name)
{
    read_pairs();
    for (long i = random_names(); i > 0; i--) {
        char a[300], b[600], a_folded[300], b_folded[600];
        size_t b_len;
        size_t a_len = random_name(a, b, &b_len);

        for (unsigned changes = random_below(3); changes > 0; changes--)
            b[random_below((uint32_t)b_len)] = (char)next_random();
        if (random_below(4) == 0)
            a_len = random_below((uint32_t)a_len + 1);
        if (random_below(8) == 0)
            b_len = random_below((uint32_t)b_len + 1);
        bool want = same(a_folded, fold_name(a, a_len, a_folded), b_folded,
                         fold_name(b, b_len, b_folded));
        MUST(fold_equal(a, a_len, b, b_len) == want);
        MUST(fold_equal(b, b_len, a, a_len) == want);
    }
}
END_TEST

/* No byte outside of the two buffers is touched, at any alignment of a name in them. */
START_TEST(writes_only_the_folded_bytes)
{
    static const char guard = '\x5A';

    for (size_t len = 0; len <= 64; len++) {
        for (size_t at = 0; at < 9; at++) {
            char name[96], folded[96];
            memset(name, 'q', sizeof(name));
            memset(folded, guard, sizeof(folded));
            ck_assert_uint_eq(fold_name(name + at, len, folded + at), len);
            for (size_t i = 0; i < sizeof(folded); i++)
                ck_assert_int_eq(folded[i], i >= at && i < at + len ? 'Q' : guard);
        }
    }
}
END_TEST

static void seed(void)
{
    const char *given = getenv("FOLDFS_TEST_SEED");

    random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    random_state |= 1; /* the generator stays at zero */
    printf("# FOLDFS_TEST_SEED=%llu\n", (unsigned long long)random_state);
    fflush(stdout);
}

int main(void)
{
    Suite *suite = suite_create("fold");
    TCase *tests = tcase_create("fold");

    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, every_unit_folds_as_its_pair_says);
    tcase_add_test(tests, listed_cases_are_as_listed);
    tcase_add_test(tests, valid_names_fold_as_their_characters_do);
    tcase_add_test(tests, invalid_names_fold_to_themselves_and_equal_no_valid_one);
    tcase_add_test(tests, fold_equal_agrees_with_fold_name);
    tcase_add_test(tests, writes_only_the_folded_bytes);
    suite_add_tcase(suite, tests);

    seed();
    return suite_run(suite);
}
