/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * utf8.h - strict decoding of one character.  Used by the fold, where a name is either wholly
 * UTF-8 or not touched at all, and by the log, which escapes what is not.
 */
#ifndef FOLDFS_UTF8_H
#define FOLDFS_UTF8_H

#include <stddef.h>
#include <stdint.h>

static inline int utf8_is_continuation(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Decodes the character at P, of which LEN > 0 bytes are there.  Returns its length, or 0 if no
 * strict UTF-8 begins here: overlong forms, surrogates, above U+10FFFF, stray or cut bytes. */
static inline size_t utf8_decode(const unsigned char *p, size_t len, uint32_t *ret_char)
{
    unsigned lead = p[0];
    uint32_t c;

    if (lead < 0x80) {
        *ret_char = lead;
        return 1;
    }
    /* C0 and C1 could only begin overlong forms. */
    if (lead < 0xC2 || len < 2 || !utf8_is_continuation(p[1]))
        return 0;
    if (lead < 0xE0) {
        *ret_char = (lead & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (len < 3 || !utf8_is_continuation(p[2]))
        return 0;
    if (lead < 0xF0) {
        c = (lead & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        if (c < 0x800 || (c >= 0xD800 && c <= 0xDFFF))
            return 0;
        *ret_char = c;
        return 3;
    }
    if (lead > 0xF4 || len < 4 || !utf8_is_continuation(p[3]))
        return 0;
    c = (lead & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
        (p[3] & 0x3F);
    if (c < 0x10000 || c > 0x10FFFF)
        return 0;
    *ret_char = c;
    return 4;
}

#endif
