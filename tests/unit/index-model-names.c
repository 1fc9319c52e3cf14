/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-names.c - classes of names that fold alike, by construction.
 *
 * A name is a row of units; a unit is either fixed bytes or a pair of which each spelling
 * takes one member.  The pairs are written down here, not computed, so that a mistake in the
 * fold table shows.  Nearly every name ends with its class number, which keeps classes apart.
 * A name that is not UTF-8 folds to itself: there the letters are fixed units, and another
 * case of the same letters is another class.
 */
#include "index-model.h"

#include <stdio.h>
#include <string.h>

#include "fold/fold.h"
#include "log.h"

/* Of a long name the beginning and the length say enough. */
#define SHOWN_BYTES 40

struct unit {
    const char *one, *other; /* other: NULL for fixed bytes */
};

struct pattern {
    unsigned n;
    size_t room; /* bytes left for further units, each counted by its longer member */
    struct unit units[FOLDFS_NAME_MAX];
};

/* Pairs of the Windows table beyond ASCII: Latin, Greek, Cyrillic, Armenian, Georgian, Coptic,
 * full-width, Roman numerals, circled; the first row's members differ in length. */
static const struct unit wide_pairs[] = {
    {"ⱥ", "Ⱥ"},   {"ⱦ", "Ⱦ"}, {"ɐ", "Ɐ"}, {"ɫ", "Ɫ"}, {"ɽ", "Ɽ"}, {"ä", "Ä"}, {"ÿ", "Ÿ"},
    {"é", "É"},   {"ø", "Ø"}, {"þ", "Þ"}, {"ž", "Ž"}, {"ǆ", "Ǆ"}, {"σ", "Σ"}, {"ω", "Ω"},
    {"ώ", "Ώ"},   {"ж", "Ж"}, {"я", "Я"}, {"ѣ", "Ѣ"}, {"ա", "Ա"}, {"ⴀ", "Ⴀ"}, {"ⲁ", "Ⲁ"},
    {"ａ", "Ａ"}, {"ⅷ", "Ⅷ"}, {"ⓐ", "Ⓐ"}, {"ḁ", "Ḁ"}, {"ὀ", "Ὀ"},
};

/* These equal nothing but themselves, whatever other rules say of them. */
static const char *const loners[] = {
    "ß", "ẞ", "ı",  "İ",  "K", "Å",  "Ω", "ς", "ŉ",
    "ǰ", "ﬁ", "あ", "ア", "ｱ", "漢", "𐐨", "𐐀", "e\u0301",
};

static const char *const kana[] = {"あ", "い", "う", "え", "お", "か", "き", "カ", "キ", "ー"};

/* Stray, cut and overlong bytes, a surrogate, above U+10FFFF. */
static const char *const not_utf8[] = {
    "\xff",     "\x80", "\xc3", "\xe3\x81", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
    "\x83\x41",
};

static const struct unit letter_pairs[26] = {
    {"a", "A"}, {"b", "B"}, {"c", "C"}, {"d", "D"}, {"e", "E"}, {"f", "F"}, {"g", "G"},
    {"h", "H"}, {"i", "I"}, {"j", "J"}, {"k", "K"}, {"l", "L"}, {"m", "M"}, {"n", "N"},
    {"o", "O"}, {"p", "P"}, {"q", "Q"}, {"r", "R"}, {"s", "S"}, {"t", "T"}, {"u", "U"},
    {"v", "V"}, {"w", "W"}, {"x", "X"}, {"y", "Y"}, {"z", "Z"},
};

static const char *const signs[] = {"0", "1", "2", "3", "4", "5", "6",
                                    "7", "8", "9", "-", ".", " "};

static bool put(struct pattern *p, struct unit unit)
{
    size_t len = strlen(unit.one);

    if (unit.other && strlen(unit.other) > len)
        len = strlen(unit.other);
    if (len > p->room || p->n == ARRAY_SIZE(p->units))
        return false;
    p->room -= len;
    p->units[p->n++] = unit;
    return true;
}

static void put_fixed(struct pattern *p, const char *bytes)
{
    put(p, (struct unit){bytes, NULL});
}

static void put_letters(struct pattern *p, unsigned n, struct rng *rng)
{
    for (unsigned i = 0; i < n; i++) {
        if (rng_once_in(rng, 6))
            put_fixed(p, signs[rng_below(rng, ARRAY_SIZE(signs))]);
        else
            put(p, letter_pairs[rng_below(rng, ARRAY_SIZE(letter_pairs))]);
    }
}

static void put_number(struct pattern *p, unsigned number)
{
    put_fixed(p, "_");
    do {
        put_fixed(p, signs[number % 10]);
        number /= 10;
    } while (number);
}

/* Two classes of each sixteen differ in the case of their letters alone, and must stay apart.
 */
static void put_not_utf8(struct pattern *p, unsigned number)
{
    struct rng rng = {number / 16};
    bool upper = number % 16 >= 8;

    put_number(p, number / 16);
    for (unsigned i = 1 + rng_below(&rng, 20); i; i--) {
        const struct unit *pair = &letter_pairs[rng_below(&rng, ARRAY_SIZE(letter_pairs))];

        put_fixed(p, upper ? pair->other : pair->one);
    }
    put_fixed(p, not_utf8[rng_below(&rng, ARRAY_SIZE(not_utf8))]);
}

/* The first 36 classes are single characters; then kind by kind. */
static void make_pattern(struct pattern *p, unsigned number, struct rng *rng)
{
    *p = (struct pattern){.room = FOLDFS_NAME_MAX};
    if (number < 26) {
        put(p, letter_pairs[number]);
        return;
    }
    if (number < 36) {
        put_fixed(p, signs[number - 26]);
        return;
    }
    if (number % 8 == 5) {
        put_not_utf8(p, number);
        return;
    }
    put_number(p, number);
    switch (number % 8) {
    case 0:
        put_letters(p, 1 + rng_below(rng, 3), rng);
        break;
    case 1: /* as long as a name can be */
        put_letters(p, FOLDFS_NAME_MAX, rng);
        break;
    case 2: /* 85 kana fill a name; no second spelling unless a letter is among them */
        if (rng_once_in(rng, 2))
            put(p, letter_pairs[rng_below(rng, 26)]);
        while (put(p, (struct unit){kana[rng_below(rng, ARRAY_SIZE(kana))], NULL}))
            continue;
        break;
    case 3:
    case 4:
        for (unsigned i = 1 + rng_below(rng, 12); i; i--)
            put(p, wide_pairs[rng_below(rng, ARRAY_SIZE(wide_pairs))]);
        break;
    case 6:
        put_letters(p, rng_below(rng, 4), rng);
        put_fixed(p, loners[rng_below(rng, ARRAY_SIZE(loners))]);
        put_letters(p, rng_below(rng, 4), rng);
        break;
    default:
        put_letters(p, 8 + rng_below(rng, 60), rng);
    }
}

static unsigned pairs_in(const struct pattern *p)
{
    unsigned n = 0;

    for (unsigned i = 0; i < p->n; i++)
        n += p->units[i].other != NULL;
    return n;
}

static void spell(const struct pattern *p, struct rng *rng, unsigned style,
                  struct model_name *ret_name)
{
    size_t len = 0;

    for (unsigned i = 0; i < p->n; i++) {
        const struct unit *unit = &p->units[i];
        bool second = style == 0 ? false : style == 1 ? true : rng_once_in(rng, 2);
        const char *bytes = unit->other && second ? unit->other : unit->one;

        memcpy(ret_name->bytes + len, bytes, strlen(bytes));
        len += strlen(bytes);
    }
    ret_name->len = (uint8_t)len;
    ret_name->bytes[len] = 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct model_name *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

    return order ? order : (int)x->len - (int)y->len;
}

static bool known(const struct model_class *class, const struct model_name *name)
{
    for (unsigned i = 0; i < class->n; i++) {
        if (compare_names(&class->spellings[i], name) == 0)
            return true;
    }
    return false;
}

/* Most classes have a handful of spellings, one in sixteen as many as there can be. */
static void make_class(struct model_class *class, unsigned number, struct rng *rng)
{
    struct pattern pattern;
    unsigned pairs, want;

    make_pattern(&pattern, number, rng);
    pairs = pairs_in(&pattern);
    want = pairs < 6 ? 1U << pairs : MODEL_SPELLINGS_MAX;
    if (want > 6 && !rng_once_in(rng, 16))
        want = 6;
    class->n = 0;
    class->spellings = calloc(want, sizeof(*class->spellings));
    if (!class->spellings)
        abort();
    for (unsigned style = 0; class->n < want; style++) {
        struct model_name name;

        spell(&pattern, rng, style, &name);
        if (!known(class, &name))
            class->spellings[class->n++] = name;
    }
    qsort(class->spellings, class->n, sizeof(*class->spellings), compare_names);
}

static int compare_folded(const void *a, const void *b)
{
    return compare_names(a, b);
}

/* The index is only as right as the folding: it must see the classes as they were meant. */
static void check_folding(const struct model_names *names)
{
    struct model_name *folded = calloc(names->n, sizeof(*folded));

    if (!folded)
        abort();
    for (unsigned c = 0; c < names->n; c++) {
        const struct model_class *class = &names->classes[c];
        const struct model_name *first = &class->spellings[0];

        folded[c].len = (uint8_t)fold_name(first->bytes, first->len, folded[c].bytes);
        for (unsigned s = 1; s < class->n; s++) {
            const struct model_name *other = &class->spellings[s];

            if (!fold_equal(first->bytes, first->len, other->bytes, other->len))
                tap_fail("fold_equal says that spellings %u of %s differ", s,
                         model_show(first));
        }
    }
    qsort(folded, names->n, sizeof(*folded), compare_folded);
    for (unsigned c = 1; c < names->n; c++) {
        if (compare_names(&folded[c - 1], &folded[c]) == 0)
            tap_fail("two classes fold to %s", model_show(&folded[c]));
    }
    free(folded);
}

void model_names_init(struct model_names *names, unsigned n, struct rng *rng)
{
    names->n = n;
    names->classes = calloc(n, sizeof(*names->classes));
    if (!names->classes)
        abort();
    for (unsigned c = 0; c < n; c++)
        make_class(&names->classes[c], c, rng);
    check_folding(names);
}

void model_names_free(struct model_names *names)
{
    for (unsigned c = 0; c < names->n; c++)
        free(names->classes[c].spellings);
    free(names->classes);
    names->classes = NULL;
}

const char *model_show(const struct model_name *name)
{
    static _Thread_local char buffer[4 * SHOWN_BYTES + 16];
    size_t used = 0;

    for (unsigned i = 0; i < name->len && i < SHOWN_BYTES; i++) {
        unsigned char byte = (unsigned char)name->bytes[i];
        bool plain = byte >= ' ' && byte < 0x7f && byte != '\\';

        used += (size_t)snprintf(buffer + used, sizeof(buffer) - used, plain ? "%c" : "\\x%02x",
                                 byte);
    }
    if (name->len > SHOWN_BYTES)
        snprintf(buffer + used, sizeof(buffer) - used, "...(%u)", name->len);
    return buffer;
}
