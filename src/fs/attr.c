/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * attr.c - GETATTR, SETATTR, READLINK and STATFS.
 *
 * SETATTR: the kernel has checked the caller's right and has decided about setgid bits that a
 * chmod may not set; so the thread acts as the caller but with CAP_FSETID, except that a
 * truncation clears set-id bits where the kernel says so.  Setting anything of a directory
 * moves its ctime, and so its stamp, by us.
 */
#include "fs/attr.h"

#include <limits.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "common.h"
#include "fs/open.h"

static void reply_attr(struct foldfs *fs, fuse_req_t req, const struct node *node, int fd)
{
    struct stat attr;
    struct statx st;

    int r = file_stat(fd, "", &st);
    if (r < 0) {
        fs_reply(req, r);
        return;
    }
    fs_attr(node, &st, &attr);
    fuse_reply_attr(req, &attr, fs->options->attr_timeout);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    REACHED_PUT struct reached reached = {0};
    struct foldfs *fs = fs_begin_looking(req);

    if (!fs)
        return;
    struct node *node = fs_node(fs, req, ino);
    if (!node)
        return;
    struct open_file *file = fi && !node_is_dir(node) ? slots_get(fs->files, fi->fh) : NULL;
    if (file) {
        reply_attr(fs, req, node, file->fd);
        return;
    }
    int r = reach_get(fs, node, &reached);
    if (r < 0)
        fs_reply(req, r);
    else
        reply_attr(fs, req, node, reached.fd);
}

static int set_owner(int fd, const struct stat *attr, int to_set)
{
    uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
    gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

    return fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int set_mode(int fd, mode_t mode)
{
    char path[FILE_PROC_PATH_MAX];

    return chmod(file_proc_path(fd, path), mode) < 0 ? -errno : 0;
}

static int set_size(struct foldfs *fs, fuse_req_t req, int fd, const struct stat *attr,
                    int to_set, const struct fuse_file_info *fi)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    char path[FILE_PROC_PATH_MAX];
    bool kill = fs->kill_flag ? (to_set & FUSE_SET_ATTR_KILL_SUID) != 0 : ctx->uid != 0;

    if (kill) {
        int r = fs_act_clearing_setid(req, fd);
        if (r < 0)
            return r;
    }
    struct open_file *file = fi ? slots_get(fs->files, fi->fh) : NULL;
    int r = file ? ftruncate(file->fd, attr->st_size)
                 : truncate(file_proc_path(fd, path), attr->st_size);
    return r < 0 ? -errno : 0;
}

static int set_times(int fd, const struct stat *attr, int to_set)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};

    if (to_set & FUSE_SET_ATTR_ATIME_NOW)
        times[0].tv_nsec = UTIME_NOW;
    else if (to_set & FUSE_SET_ATTR_ATIME)
        times[0] = attr->st_atim;
    if (to_set & FUSE_SET_ATTR_MTIME_NOW)
        times[1].tv_nsec = UTIME_NOW;
    else if (to_set & FUSE_SET_ATTR_MTIME)
        times[1] = attr->st_mtim;
    return utimensat(fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* What of SETATTR sets something; the rest is about how. */
#define SETS_OWNER (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)
#define SETS_TIMES                                                                             \
    (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |                     \
     FUSE_SET_ATTR_MTIME_NOW)

/* SETATTR of nothing is what reaches us of chown(file, -1, -1), which clears set-id bits.  It
 * also comes before some writes of others than the owner; they clear the bits themselves. */
static int set_nothing(fuse_req_t req, int fd, const struct stat *attr)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct statx st;

    int r = file_stat(fd, "", &st);
    if (r < 0 || (ctx->uid != 0 && ctx->uid != st.stx_uid))
        return r;
    return set_owner(fd, attr, 0);
}

/* In this order: a change of owner clears set-id bits that the mode may set again, and the
 * times are those that are asked for, not those of the truncation. */
static int set_all(struct foldfs *fs, fuse_req_t req, int fd, const struct stat *attr,
                   int to_set, const struct fuse_file_info *fi)
{
    int r = 0;

    if (!(to_set & (SETS_OWNER | FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_SIZE | SETS_TIMES)))
        r = set_nothing(req, fd, attr);
    if (to_set & SETS_OWNER)
        r = set_owner(fd, attr, to_set);
    if (r == 0 && to_set & FUSE_SET_ATTR_MODE)
        r = set_mode(fd, attr->st_mode & ~(mode_t)S_IFMT);
    if (r == 0 && to_set & FUSE_SET_ATTR_SIZE)
        r = set_size(fs, req, fd, attr, to_set, fi);
    if (r == 0 && to_set & SETS_TIMES)
        r = set_times(fd, attr, to_set);
    return r;
}

/* The setgid bit was given to a file that may be open. */
static void note_setgid(const struct node *node)
{
    struct node_data *data = node_is_dir(node) ? NULL : atomic_load(&node->data);

    if (data)
        atomic_store(&data->setgid, true);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi)
{
    REACHED_PUT struct reached reached = {0};
    CHANGE_END struct change change = {0};
    struct foldfs *fs = fs_begin(req);

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    int r = node_is_dir(reached.node) ? change_begin(fs, reached.node, reached.fd, &change) : 0;
    if (r == 0)
        r = set_all(fs, req, reached.fd, attr, to_set, fi);
    if (r == 0 && to_set & FUSE_SET_ATTR_MODE && attr->st_mode & S_ISGID)
        note_setgid(reached.node);
    change_end(&change);
    if (r < 0)
        fs_reply(req, r);
    else
        reply_attr(fs, req, reached.node, reached.fd);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    REACHED_PUT struct reached reached = {0};
    char target[PATH_MAX];
    struct foldfs *fs = fs_begin_looking(req);

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    ssize_t n = readlinkat(reached.fd, "", target, sizeof(target));
    if (n < 0) {
        fs_reply(req, -errno);
    } else if ((size_t)n == sizeof(target)) {
        fs_reply(req, -ENAMETOOLONG);
    } else {
        target[n] = '\0';
        fuse_reply_readlink(req, target);
    }
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    REACHED_PUT struct reached reached = {0};
    struct statvfs sfs;
    struct foldfs *fs = fs_begin_looking(req);

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    if (fstatvfs(reached.fd, &sfs) < 0) {
        fs_reply(req, -errno);
        return;
    }
    if (sfs.f_namemax > FOLDFS_NAME_MAX)
        sfs.f_namemax = FOLDFS_NAME_MAX;
    fuse_reply_statfs(req, &sfs);
}
