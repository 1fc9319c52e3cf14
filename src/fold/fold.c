/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fold.c - the folded form of a name (fold.h says what it means).
 *
 * The data.  upcase-windows.tsv holds the 973 pairs "lower TAB upper" of the $UpCase table
 * that Windows 7 and every later Windows write into a new NTFS volume; the tests compare it
 * with the one that mkntfs writes.  The pairs follow a rule: the simple upper-case mappings of
 * Unicode, limited to characters that Unicode 5.1 had assigned and whose upper case maps back
 * to them.  So each class of equal characters has exactly two members: ß, dotless i, final
 * sigma, the Kelvin sign, title-case digraphs and ligatures are equal to themselves only.
 *
 * The table.  gen-upcase.py turns the pairs into two arrays at build time.  A code unit's upper
 * ten bits choose a block in fold_block_of[], its lower six an entry in that block of
 * fold_delta[]: what to add, modulo 2^16, to reach the member that stands for the pair.  All
 * blocks without letters share one block of zeros, and as differences most runs of letters
 * look alike too, so that all fits in about 6 KB and stays in the first-level cache.
 *
 * Which member stands for a pair: the one that is shorter in UTF-8, else the upper-case one.
 * ("Always upper case" would turn U+0250, two bytes, into U+2C6F, three.)  All of ASCII is a
 * tie, so ASCII folds to upper case, eight letters at a time.
 *
 * Whether a name is UTF-8 is found out on the way: at the first byte that is not, what was
 * folded so far is overwritten by the name as it came.  A folded valid name is valid, so it
 * never equals an invalid one.
 *
 * Left out on purpose: normalisation, locale, anything beyond the BMP.  NTFS compares UTF-16
 * code units, and halves of a surrogate pair have no case.
 */
#include "fold.h"

#include <string.h>

#include "utf8.h"
#include "upcase-table.h"

/* ASCII is folded by words of this many bytes. */
#define WORD sizeof(uint64_t)

#define EVERY_BYTE(b) (UINT64_C(0x0101010101010101) * (b))

static inline unsigned char fold_ascii(unsigned char c)
{
    return (unsigned char)(c - ((c >= 'a' && c <= 'z') ? 'a' - 'A' : 0));
}

/* Eight ASCII bytes at once.  No byte is above 7F, so that no sum carries into the next. */
static inline uint64_t fold_ascii_word(uint64_t word)
{
    uint64_t from_a = word + EVERY_BYTE(0x80 - 'a');
    uint64_t past_z = word + EVERY_BYTE(0x80 - 'z' - 1);
    uint64_t is_lower = from_a & ~past_z & EVERY_BYTE(0x80);

    return word - (is_lower >> 2); /* 0x80 >> 2 is 'a' - 'A' */
}

/* The character that stands for the pair of C, or C itself. */
static inline uint32_t fold_char(uint32_t c)
{
    if (c > 0xFFFF)
        return c;
    size_t block = fold_block_of[c / FOLD_BLOCK_SIZE];
    return (c + fold_delta[block * FOLD_BLOCK_SIZE + c % FOLD_BLOCK_SIZE]) & 0xFFFF;
}

/* Writes C, which is in the BMP and not ASCII: no pair has a member on either side. */
static inline size_t encode(uint32_t c, unsigned char *ret)
{
    if (c < 0x800) {
        ret[0] = (unsigned char)(0xC0 | c >> 6);
        ret[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    ret[0] = (unsigned char)(0xE0 | c >> 12);
    ret[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    ret[2] = (unsigned char)(0x80 | (c & 0x3F));
    return 3;
}

/* Folds the ASCII at the beginning of FROM into TO; returns how many bytes it took. */
static inline size_t fold_ascii_run(const unsigned char *from, size_t len, unsigned char *to)
{
    size_t i = 0;

    for (; len - i >= WORD; i += WORD) {
        uint64_t word;
        memcpy(&word, from + i, WORD);
        if (word & EVERY_BYTE(0x80))
            break;
        word = fold_ascii_word(word);
        memcpy(to + i, &word, WORD);
    }
    for (; i < len && from[i] < 0x80; i++)
        to[i] = fold_ascii(from[i]);
    return i;
}

size_t fold_name(const char *name, size_t len, char *ret_folded)
{
    const unsigned char *from = (const unsigned char *)name;
    const unsigned char *end = from + len;
    unsigned char *to = (unsigned char *)ret_folded;

    while (from < end) {
        if (*from < 0x80) {
            size_t run = fold_ascii_run(from, (size_t)(end - from), to);
            from += run;
            to += run;
            continue;
        }

        uint32_t c;
        size_t size = utf8_decode(from, (size_t)(end - from), &c);
        if (size == 0) {
            memcpy(ret_folded, name, len);
            return len;
        }
        uint32_t folded = fold_char(c);
        if (folded == c) {
            for (size_t i = 0; i < size; i++)
                *to++ = from[i];
        } else {
            to += encode(folded, to);
        }
        from += size;
    }
    return (size_t)(to - (unsigned char *)ret_folded);
}

bool fold_equal(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const unsigned char *p = (const unsigned char *)a;
    const unsigned char *q = (const unsigned char *)b;

    if (a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0))
        return true;

    /* They differ in bytes: if either is not UTF-8 they are not equal. */
    while (a_len > 0 && b_len > 0) {
        uint32_t c = 0, d = 0;
        size_t c_size = utf8_decode(p, a_len, &c);
        size_t d_size = utf8_decode(q, b_len, &d);
        if (c_size == 0 || d_size == 0 || fold_char(c) != fold_char(d))
            return false;
        p += c_size;
        a_len -= c_size;
        q += d_size;
        b_len -= d_size;
    }
    return a_len == 0 && b_len == 0;
}
