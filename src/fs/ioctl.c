/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * ioctl.c - IOCTL, for the few that a passthrough can answer, and our own (asked.h).
 *
 * Only what is known to take one structure by value, to concern one file only, and to be
 * checked by the kernel before it asks (it asks for the caller's ownership before it changes
 * flags): inode flags (chattr), project ids, versions.  All else is ENOTTY: an ioctl whose
 * meaning is not known cannot be carried out in another process.  FICLONE never comes here, the
 * kernel refuses it for FUSE; copy_file_range shares extents instead where the backing file
 * system can.
 */
#include "fs/ioctl.h"

#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common.h"
#include "fs/asked.h"
#include "fs/dir.h"
#include "fs/open.h"

/* The largest structure of those below: struct fsxattr. */
#define ARGUMENT_MAX sizeof(struct fsxattr)

/* The size of what CMD takes or gives; 0: CMD is not passed on.  FS_IOC_GETFLAGS and its like
 * are declared with a long, but use an int. */
static size_t argument_size(unsigned int cmd)
{
    switch (cmd) {
    case FS_IOC_GETFLAGS:
    case FS_IOC_SETFLAGS:
    case FS_IOC_GETVERSION:
        return sizeof(int);
    case FS_IOC_FSGETXATTR:
    case FS_IOC_FSSETXATTR:
        return sizeof(struct fsxattr);
    default:
        return 0;
    }
}

static bool changes_inode(unsigned int cmd)
{
    return cmd == FS_IOC_SETFLAGS || cmd == FS_IOC_FSSETXATTR;
}

static int fd_for_ioctl(struct foldfs *fs, const struct node *node,
                        const struct fuse_file_info *fi)
{
    if (node_is_dir(node))
        return dir_fd_of(fs, fi);
    const struct open_file *file = fi ? slots_get(fs->files, fi->fh) : NULL;
    return file ? file->fd : -1;
}

/* Immutable and append-only are root's to set; the backing file system sees us, who are. */
static int check_privileged_flags(fuse_req_t req, int fd, unsigned int cmd, const void *in)
{
    int old = 0, new = 0;

    if (!changes_inode(cmd) || creds_process_is_admin(fuse_req_ctx(req)->pid))
        return 0;
    if (cmd == FS_IOC_FSSETXATTR)
        return -EPERM;
    if (ioctl(fd, FS_IOC_GETFLAGS, &old) < 0)
        return -errno;
    memcpy(&new, in, sizeof(new));
    return (old ^ new) & (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_JOURNAL_DATA_FL) ? -EPERM : 0;
}

static int pass_on(struct foldfs *fs, fuse_req_t req, struct node *node, int fd,
                   unsigned int cmd, const void *in, void *buffer)
{
    CHANGE_END struct change change = {0};

    int r = check_privileged_flags(req, fd, cmd, in);
    if (r == 0 && changes_inode(cmd) && node_is_dir(node))
        r = change_begin(fs, node, fd, &change);
    if (r == 0 && ioctl(fd, cmd, buffer) < 0)
        r = -errno;
    return r;
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
              struct fuse_file_info *fi, unsigned int flags, const void *in, size_t in_size,
              size_t out_size)
{
    _Alignas(long) char buffer[ARGUMENT_MAX] = {0};
    size_t size = argument_size(cmd);
    struct foldfs *fs = fs_begin(req);
    struct node *node = fs ? fs_node(fs, req, ino) : NULL;

    (void)arg;
    (void)flags;
    if (!node || asked_by_control(fs, req, ino, cmd, in, in_size))
        return;
    int fd = fd_for_ioctl(fs, node, fi);
    if (size == 0 || (changes_inode(cmd) ? in_size : out_size) < size) {
        fs_reply(req, -ENOTTY);
        return;
    }
    if (fd < 0) {
        fs_reply(req, -EBADF);
        return;
    }
    if (changes_inode(cmd))
        memcpy(buffer, in, size);
    int r = pass_on(fs, req, node, fd, cmd, in, buffer);
    if (r < 0)
        fs_reply(req, r);
    else
        fuse_reply_ioctl(req, 0, buffer, changes_inode(cmd) ? 0 : size);
}
