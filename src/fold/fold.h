/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fold.h - when are two names equal?  Pure functions; no state, no locale, no
 * allocation; any thread.
 *
 * The rule is that of NTFS volumes formatted by Windows 7 and later: each UTF-16
 * code unit goes through the $UpCase table (973 pairs), no normalisation, no
 * expansion; characters beyond the BMP stay as they are.  Of each pair the member
 * with the shorter UTF-8 form stands for both (on a tie the upper case), so that a
 * folded name is never longer than the name.  A name that is not strict UTF-8
 * (overlong forms, surrogates, above U+10FFFF, stray or cut bytes) folds to itself,
 * whole.
 */
#ifndef FOLDFS_FOLD_H
#define FOLDFS_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Version of the rule.  An index made with another one is not used.  The table is frozen: a
 * changed table could make two existing names equal. */
#define FOLD_VERSION 1

/* Folds NAME of LEN bytes (need not end with NUL, may be empty) into RET_FOLDED, which has
 * room for at least LEN bytes; returns the length of the folded name, at most LEN.
 * RET_FOLDED must not overlap NAME. */
size_t fold_name(const char *name, size_t len, char *ret_folded);

/* Do the two names fold alike? */
bool fold_equal(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
