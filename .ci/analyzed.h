/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * analyzed.h - read before each file that clang-tidy looks at.  Its analyzer cannot know that
 * errno is positive after a failed call, nor does it follow the sign through "return -errno":
 * it would take each for a success that never was.  So errno is here one of a few plain values.
 */
#include <errno.h>

int any_number(void);

static inline int *some_errno(void)
{
    static int value;

    switch (any_number()) {
    case 0:
        value = ENOENT;
        break;
    case 1:
        value = EEXIST;
        break;
    default:
        value = EIO;
        break;
    }
    return &value;
}

#undef errno
#define errno (*some_errno())
