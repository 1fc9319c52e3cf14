/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fuzz-fold.c - any bytes as a name: what folding promises of every name.
 *
 * The input is cut in two at a zero byte (or in the middle); both halves are folded, in buffers
 * of exactly their size, so that a sanitizer sees each byte too many.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fold/fold.h"

static void require(bool condition)
{
    if (!condition)
        abort();
}

static char *copy_of(const uint8_t *data, size_t len)
{
    char *copy = malloc(len ? len : 1);

    require(copy != NULL);
    if (len)
        memcpy(copy, data, len);
    return copy;
}

/* Folded into a buffer of its own length; the caller frees it. */
static char *fold(const char *name, size_t len, size_t *ret_len)
{
    char *folded = malloc(len ? len : 1);

    require(folded != NULL);
    *ret_len = fold_name(name, len, folded);
    require(*ret_len <= len);
    return folded;
}

static void check_one(const char *name, size_t len)
{
    size_t once_len, twice_len;
    char *once = fold(name, len, &once_len);
    char *twice = fold(once, once_len, &twice_len);

    require(twice_len == once_len && memcmp(once, twice, once_len) == 0);
    require(fold_equal(name, len, once, once_len));
    require(fold_equal(name, len, name, len));
    free(once);
    free(twice);
}

static void check_two(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t x_len, y_len;
    char *x = fold(a, a_len, &x_len), *y = fold(b, b_len, &y_len);
    bool alike = x_len == y_len && memcmp(x, y, x_len) == 0;

    require(fold_equal(a, a_len, b, b_len) == alike);
    require(fold_equal(b, b_len, a, a_len) == alike);
    free(x);
    free(y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t a_len = zero ? (size_t)(zero - data) : size / 2;
    size_t skip = zero ? a_len + 1 : a_len;
    char *a = copy_of(data, a_len), *b = copy_of(data + skip, size - skip);

    check_one(a, a_len);
    check_one(b, size - skip);
    check_two(a, a_len, b, size - skip);
    free(a);
    free(b);
    return 0;
}
