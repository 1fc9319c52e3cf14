/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fuse.h - libfuse's low-level API in the version that we write against.  Newer features are
 * found by #ifdef FUSE_CAP_..., so that the oldest supported libfuse (3.14) compiles too.
 */
#ifndef FOLDFS_FS_FUSE_H
#define FOLDFS_FS_FUSE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#endif
