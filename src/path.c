/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * path.c - how directories lie to each other, by device and inode numbers, not by their names.
 */
#include "path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common.h"

bool path_strictly_inside(const char *inner, const char *outer)
{
    struct stat outer_st, st, above;
    CLEANUP_CLOSE int fd = open(inner, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || stat(outer, &outer_st) < 0 || fstat(fd, &st) < 0)
        return false;
    for (;;) {
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0)
            return false;
        close(fd);
        fd = up;
        if (fstat(fd, &above) < 0 || (above.st_dev == st.st_dev && above.st_ino == st.st_ino))
            return false; /* the root */
        if (above.st_dev == outer_st.st_dev && above.st_ino == outer_st.st_ino)
            return true;
        st = above;
    }
}

bool path_same(const char *a, const char *b)
{
    struct stat a_st, b_st;

    return stat(a, &a_st) == 0 && stat(b, &b_st) == 0 && a_st.st_dev == b_st.st_dev &&
           a_st.st_ino == b_st.st_ino;
}
