/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * file.h - reaching one file of the backing tree: stat, handles, opening anew.  Thin layers
 * over system calls that return a negative errno; any thread, no locks.
 */
#ifndef FOLDFS_BACKING_FILE_H
#define FOLDFS_BACKING_FILE_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "index/index.h"

/* A file handle with room for the largest. */
struct file_handle_buffer {
    unsigned int bytes; /* as struct file_handle of fcntl.h, whose array has no length */
    int type;
    unsigned char data[MAX_HANDLE_SZ];
};

/* Stats entry NAME of DIR_FD, never following a symlink; "" is DIR_FD itself. */
int file_stat(int dir_fd, const char *name, struct statx *ret_st);

/* The handle of entry NAME of DIR_FD ("": of DIR_FD itself).  -EOPNOTSUPP where the file system
 * has none. */
int file_get_handle(int dir_fd, const char *name, struct file_handle_buffer *ret_handle);

/* Opens by handle on the file system of MOUNT_FD.  -ESTALE: the file is no more. */
int file_open_handle(int mount_fd, const struct file_handle_buffer *handle, int flags,
                     int *ret_fd);

/* Opens anew, with FLAGS, the file that FD (may be O_PATH) is open on. */
int file_reopen(int fd, int flags, int *ret_fd);

/* The extended attribute XATTR of FD's file (FD may be O_PATH), into VALUE of SIZE bytes; only
 * its length if SIZE is 0. */
int file_get_xattr(int fd, const char *xattr, void *value, size_t size, size_t *ret_len);

/* "/proc/self/fd/FD": the file that FD is open on, for calls that only take a path. */
#define FILE_PROC_PATH_MAX sizeof("/proc/self/fd/2147483648")
const char *file_proc_path(int fd, char buffer[FILE_PROC_PATH_MAX]);

/* Where FD's file is now, escaped for the log, in BUFFER of SIZE bytes; returns BUFFER. */
const char *file_describe(int fd, char *buffer, size_t size);

/* The stamp in a stat of a directory. */
struct index_stamp file_stamp(const struct statx *st);

/* Nanoseconds since the epoch. */
int64_t file_time_ns(const struct statx_timestamp *time);

#endif
