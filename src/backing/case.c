/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * case.c - is the tree case-insensitive by itself?
 *
 * ext4 and f2fs say so by a flag of the directory.  For all others an entry is looked up with
 * its ASCII letters in the other case: if that is the same file, and the file has no second
 * link that could be it, the file system folds.
 */
#include "backing/case.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "backing/file.h"
#include "common.h"

/* Writes NAME with its ASCII letters in the other case; false if it has none. */
static bool flip_case(const char *name, char *ret_flipped)
{
    bool flipped = false;
    size_t i;

    for (i = 0; name[i]; i++) {
        unsigned char c = (unsigned char)name[i];
        bool letter = c < 0x80 && isalpha(c);
        ret_flipped[i] = letter ? (char)(c ^ 0x20) : name[i];
        flipped |= letter;
    }
    ret_flipped[i] = '\0';
    return flipped;
}

/* What one entry tells: 1 folds, 0 does not, -1 cannot tell. */
static int judge(int dir_fd, const char *name)
{
    char flipped[sizeof(((struct dirent *)0)->d_name)];
    struct statx st, other;

    if (!flip_case(name, flipped) || file_stat(dir_fd, name, &st) < 0)
        return -1;
    int r = file_stat(dir_fd, flipped, &other);
    if (r == -ENOENT)
        return 0;
    if (r < 0 || other.stx_ino != st.stx_ino || (!S_ISDIR(st.stx_mode) && st.stx_nlink > 1))
        return -1;
    return 1;
}

bool case_insensitive(int dir_fd)
{
    const struct dirent *entry;
    int flags = 0, verdict = -1;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_CASEFOLD_FL) {
        close(fd);
        return true;
    }
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return false;
    }
    while (verdict < 0 && (entry = readdir(dir)))
        verdict = judge(dir_fd, entry->d_name);
    closedir(dir);
    return verdict == 1;
}
