/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * path.h - how directories lie to each other.
 */
#ifndef FOLDFS_PATH_H
#define FOLDFS_PATH_H

#include <stdbool.h>

/* Does the directory INNER lie inside OUTER, at any depth but 0?  Found by walking up, so that
 * symlinks and bind mounts do not hide it.  False if either cannot be opened. */
bool path_strictly_inside(const char *inner, const char *outer);

/* Are both one directory? */
bool path_same(const char *a, const char *b);

#endif
