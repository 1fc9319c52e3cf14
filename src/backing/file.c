/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * file.c - reaching one file of the backing tree.
 *
 * Resolution stays inside the tree: names are single components, symlinks are never followed.
 * "Opening anew" goes by /proc/self/fd, whose links lead to the very inode, so that an
 * O_PATH descriptor is enough to hold.
 */
#include "backing/file.h"

#include <stdio.h>
#include <string.h>

#include "common.h"
#include "log.h"

int file_stat(int dir_fd, const char *name, struct statx *ret_st)
{
    struct statx st;

    if (statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
              STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
        return -errno;
    *ret_st = st;
    return 0;
}

_Static_assert(offsetof(struct file_handle_buffer, data) ==
                   offsetof(struct file_handle, f_handle),
               "laid out as the kernel's");

int file_get_handle(int dir_fd, const char *name, struct file_handle_buffer *ret_handle)
{
    struct file_handle_buffer handle = {.bytes = MAX_HANDLE_SZ};
    int mount_id;

    if (name_to_handle_at(dir_fd, name, (struct file_handle *)&handle, &mount_id,
                          AT_EMPTY_PATH) < 0)
        return errno == EOVERFLOW ? -EOPNOTSUPP : -errno;
    *ret_handle = handle;
    return 0;
}

int file_open_handle(int mount_fd, const struct file_handle_buffer *handle, int flags,
                     int *ret_fd)
{
    int fd = open_by_handle_at(mount_fd, (struct file_handle *)handle, flags);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

const char *file_proc_path(int fd, char buffer[FILE_PROC_PATH_MAX])
{
    snprintf(buffer, FILE_PROC_PATH_MAX, "/proc/self/fd/%d", fd);
    return buffer;
}

int file_reopen(int fd, int flags, int *ret_fd)
{
    char path[FILE_PROC_PATH_MAX];

    int again = open(file_proc_path(fd, path), flags & ~O_NOFOLLOW);
    if (again < 0)
        return -errno;
    *ret_fd = again;
    return 0;
}

const char *file_describe(int fd, char *buffer, size_t size)
{
    char path[FILE_PROC_PATH_MAX], target[4096];

    ssize_t n = readlink(file_proc_path(fd, path), target, sizeof(target));
    if (n < 0)
        snprintf(buffer, size, "(a file whose path is not known)");
    else
        log_escape(target, (size_t)n, buffer, size);
    return buffer;
}

int64_t file_time_ns(const struct statx_timestamp *time)
{
    return time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

struct index_stamp file_stamp(const struct statx *st)
{
    return (struct index_stamp){
        .ctime_ns = file_time_ns(&st->stx_ctime),
        .mtime_ns = file_time_ns(&st->stx_mtime),
        .size = (int64_t)st->stx_size,
        .btime_ns = st->stx_mask & STATX_BTIME ? file_time_ns(&st->stx_btime) : 0,
    };
}
