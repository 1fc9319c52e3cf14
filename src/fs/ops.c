/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * ops.c - the table of operations, and what is agreed with the kernel at INIT.
 *
 * What is missing from the table is answered ENOSYS by libfuse, after which the kernel does it
 * itself or without: ACCESS (default_permissions), GETLK, SETLK and FLOCK (the kernel keeps
 * locks of its own for each inode, so they hold among all who use the mount), POLL (files of a
 * tree are always ready), BMAP.
 */
#include "common.h"
#include "fs/attr.h"
#include "fs/create.h"
#include "fs/data.h"
#include "fs/dentries.h"
#include "fs/dir.h"
#include "fs/fs.h"
#include "fs/ioctl.h"
#include "fs/lookup.h"
#include "fs/open.h"
#include "fs/remove.h"
#include "fs/rename.h"
#include "fs/xattr.h"
#include "log.h"

/* Passthrough needs the file systems below ours to be no stack themselves; then another, such
 * as overlayfs, can still be put on top of ours. */
#define BACKING_STACK_DEPTH 1

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
static bool offered(const struct fuse_conn_info *conn, uint64_t flag)
{
    return (conn->capable_ext & flag) != 0;
}

static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
    return fuse_set_feature_flag(conn, flag);
}

static void unwant(struct fuse_conn_info *conn, uint64_t flag)
{
    fuse_unset_feature_flag(conn, flag);
}
#else
static bool offered(const struct fuse_conn_info *conn, uint64_t flag)
{
    return (conn->capable & flag) != 0;
}

static bool want(struct fuse_conn_info *conn, uint64_t flag)
{
    if (!offered(conn, flag))
        return false;
    conn->want |= (unsigned)flag;
    return true;
}

static void unwant(struct fuse_conn_info *conn, uint64_t flag)
{
    conn->want &= ~(unsigned)flag;
}
#endif

/* Features that are taken wherever they are offered. */
static const uint64_t wanted[] = {
    FUSE_CAP_ASYNC_READ,        FUSE_CAP_ASYNC_DIO,       FUSE_CAP_ATOMIC_O_TRUNC,
    FUSE_CAP_AUTO_INVAL_DATA,   FUSE_CAP_CACHE_SYMLINKS,  FUSE_CAP_DONT_MASK,
    FUSE_CAP_IOCTL_DIR,         FUSE_CAP_PARALLEL_DIROPS,
#ifdef FUSE_CAP_NO_EXPORT_SUPPORT
    FUSE_CAP_NO_EXPORT_SUPPORT,
#endif
};

/* Splicing was slower than copying throughout; writing back would let the kernel decide about
 * sizes and times that others see. */
static const uint64_t unwanted[] = {
    FUSE_CAP_SPLICE_READ,
    FUSE_CAP_SPLICE_WRITE,
    FUSE_CAP_SPLICE_MOVE,
    FUSE_CAP_WRITEBACK_CACHE,
};

static void init_passthrough(struct foldfs *fs, struct fuse_conn_info *conn)
{
#ifdef FUSE_CAP_PASSTHROUGH
    if (fs->options->passthrough != PASSTHROUGH_OFF && creds_can_switch() &&
        want(conn, FUSE_CAP_PASSTHROUGH)) {
        conn->max_backing_stack_depth = BACKING_STACK_DEPTH;
        fs->passthrough = true;
    }
#else
    (void)fs, (void)conn;
#endif
}

static void refuse(struct foldfs *fs)
{
    fs->refused = true;
    fuse_session_exit(fs->session);
}

static void ops_init(void *userdata, struct fuse_conn_info *conn)
{
    struct foldfs *fs = userdata;
    const struct without *without = &fs->options->without;

    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (offered(conn, wanted[i]))
            want(conn, wanted[i]);
    for (size_t i = 0; i < ARRAY_SIZE(unwanted); i++)
        unwant(conn, unwanted[i]);

    if (!without->acl)
        want(conn, FUSE_CAP_POSIX_ACL);
    if (without->readdirplus) {
        unwant(conn, FUSE_CAP_READDIRPLUS);
    } else {
        want(conn, FUSE_CAP_READDIRPLUS);
        want(conn, FUSE_CAP_READDIRPLUS_AUTO);
    }
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    if (!without->killpriv)
        fs->kill_flag = want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
    init_passthrough(fs, conn);
    if (fs->options->passthrough == PASSTHROUGH_ON && !fs->passthrough) {
        log_line(LOG_ERR,
                 "passthrough=on: this kernel or libfuse has no passthrough (Linux 6.9, "
                 "libfuse 3.17), or foldfs was not started by root");
        refuse(fs);
        return;
    }
    if (dentries_init(fs, conn) < 0) {
        log_line(LOG_ERR, "cache=fast: this kernel cannot drop all names at once (Linux 6.16)");
        refuse(fs);
        return;
    }
    fs->ready(fs->ready_ctx);
}

const struct fuse_lowlevel_ops fs_ops = {
    .init = ops_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .release = op_release,
    .fsync = op_fsync,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .create = op_create,
    .ioctl = op_ioctl,
    .fallocate = op_fallocate,
    .copy_file_range = op_copy_file_range,
    .lseek = op_lseek,
#ifdef FOLDFS_HAVE_TMPFILE
    .tmpfile = op_tmpfile,
#endif
};
