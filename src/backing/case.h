/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * case.h - is the tree case-insensitive by itself?
 */
#ifndef FOLDFS_BACKING_CASE_H
#define FOLDFS_BACKING_CASE_H

#include <stdbool.h>

/* Does the file system find the entries of directory DIR_FD (O_PATH will do) under other
 * spellings (ext4 casefold, FAT, CIFS, ZFS)?  False also if that cannot be told, as in a
 * directory without a fitting entry. */
bool case_insensitive(int dir_fd);

#endif
