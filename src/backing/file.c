/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * file.c - reaching one file of the backing tree.
 *
 * Resolution stays inside the tree: names are single components, symlinks are never followed.
 * "Opening anew" goes by /proc/self/fd, whose links lead to the very inode, so that an
 * O_PATH descriptor is enough to hold.  A descriptor on that directory saves the walk to it, a
 * third of the time, for the calls that can begin at one.  It shows the descriptors of the
 * process that opened it, so a forked child opens its own.
 */
#include "backing/file.h"

#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

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

#define PROC_FDS "/proc/self/fd/"

const char *file_proc_path(int fd, char buffer[FILE_PROC_PATH_MAX])
{
    snprintf(buffer, FILE_PROC_PATH_MAX, PROC_FDS "%d", fd);
    return buffer;
}

/* Linux 6.13; headers of older systems lack it. */
#if !defined(SYS_getxattrat) && defined(__LP64__) &&                                           \
    (defined(__x86_64__) || defined(__aarch64__))
#define SYS_getxattrat 464
#endif

/* Its argument, as linux/xattr.h has it. */
struct getxattrat_args {
    _Alignas(8) uint64_t value;
    uint32_t size, flags;
};

/* getxattrat(2), which the C library does not have. */
static long call_getxattrat(int dir_fd, const char *path, const char *xattr,
                            struct getxattrat_args *args, size_t args_size)
{
#ifdef SYS_getxattrat
    return syscall(SYS_getxattrat, dir_fd, path, 0, xattr, args, args_size);
#else
    (void)dir_fd, (void)path, (void)xattr, (void)args, (void)args_size;
    errno = ENOSYS;
    return -1;
#endif
}

/* This process's PROC_FDS; -1: it could not be opened, so whole paths are used. */
static int proc_fds = -1;
static pthread_once_t proc_fds_once = PTHREAD_ONCE_INIT;
static bool have_getxattrat;

static void open_proc_fds(void)
{
    proc_fds = open(PROC_FDS, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void open_proc_fds_in_child(void)
{
    if (proc_fds >= 0)
        close(proc_fds);
    open_proc_fds();
}

/* The kernel itself finds fault with arguments of no size.  Filters of system calls, which
 * answer otherwise, must not be taken for the file system. */
static bool kernel_has_getxattrat(void)
{
    struct getxattrat_args args = {0};

    return call_getxattrat(-1, "", "", &args, 0) < 0 && errno == EINVAL;
}

static void start_proc_fds(void)
{
    if (pthread_atfork(NULL, NULL, open_proc_fds_in_child) == 0)
        open_proc_fds();
    have_getxattrat = proc_fds >= 0 && kernel_has_getxattrat();
}

/* The link of FD in /proc: RET_NAME, which is in BUFFER, from the directory returned. */
static int proc_link(int fd, char buffer[FILE_PROC_PATH_MAX], const char **ret_name)
{
    pthread_once(&proc_fds_once, start_proc_fds);
    *ret_name = file_proc_path(fd, buffer);
    if (proc_fds >= 0)
        *ret_name += strlen(PROC_FDS);
    return proc_fds;
}

int file_reopen(int fd, int flags, int *ret_fd)
{
    char buffer[FILE_PROC_PATH_MAX];
    const char *name;

    int dir_fd = proc_link(fd, buffer, &name);
    int again = openat(dir_fd, name, flags & ~O_NOFOLLOW);
    if (again < 0)
        return -errno;
    *ret_fd = again;
    return 0;
}

int file_get_xattr(int fd, const char *xattr, void *value, size_t size, size_t *ret_len)
{
    char buffer[FILE_PROC_PATH_MAX];
    const char *name;
    ssize_t n;

    int dir_fd = proc_link(fd, buffer, &name);
    if (have_getxattrat) {
        struct getxattrat_args args = {
            .value = (uintptr_t)value,
            .size = (uint32_t)(size < XATTR_SIZE_MAX ? size : XATTR_SIZE_MAX),
        };
        n = call_getxattrat(dir_fd, name, xattr, &args, sizeof(args));
    } else {
        n = getxattr(buffer, xattr, value, size);
    }
    if (n < 0)
        return -errno;
    *ret_len = (size_t)n;
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
