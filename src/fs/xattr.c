/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * xattr.c - GETXATTR, LISTXATTR, SETXATTR, REMOVEXATTR.
 *
 * All name spaces pass through.  The kernel checks rights before it asks, but for listing:
 * names in `trusted.` are the backing file system's to hide from callers without CAP_SYS_ADMIN,
 * and it sees us instead of them.
 *
 * getxattr(directory, "glusterfs.get_real_filename:NAME") gives the on-disk spelling of the
 * entry that NAME means, with its trailing NUL: Samba's module glusterfs_fuse asks this instead
 * of scanning.  ENODATA is final for Samba: there is no such entry.  EOPNOTSUPP makes it scan:
 * that is what it gets when no answer is possible.
 */
#include "fs/xattr.h"

#include <linux/limits.h>
#include <string.h>
#include <sys/xattr.h>

#include "common.h"
#include "fs/lookup.h"

#define REAL_NAME_PREFIX "glusterfs.get_real_filename:"
#define TRUSTED_PREFIX   "trusted."

/* Answers with a value of LEN bytes, or its size if SIZE is 0. */
static void reply_value(fuse_req_t req, const char *value, size_t len, size_t size)
{
    if (size == 0)
        fuse_reply_xattr(req, len);
    else if (len > size)
        fs_reply(req, -ERANGE);
    else
        fuse_reply_buf(req, value, len);
}

static void reply_real_name(struct foldfs *fs, fuse_req_t req, struct reached *dir,
                            const char *name, size_t size)
{
    struct index_name real;

    int r = lookup_real_name(fs, dir, name, &real);
    if (r == 0)
        reply_value(req, real.bytes, real.len + 1U, size);
    else
        fs_reply(req, r == -ENODATA || r == -EINVAL ? r : -EOPNOTSUPP);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    REACHED_PUT struct reached reached = {0};
    struct foldfs *fs = fs_begin_looking(req);
    size_t len;

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    if (strncmp(name, REAL_NAME_PREFIX, strlen(REAL_NAME_PREFIX)) == 0 &&
        node_is_dir(reached.node)) {
        reply_real_name(fs, req, &reached, name + strlen(REAL_NAME_PREFIX), size);
        return;
    }
    CLEANUP_FREE char *value = malloc(size + 1);
    if (!value) {
        fs_reply(req, -ENOMEM);
        return;
    }
    int r = file_get_xattr(reached.fd, name, value, size, &len);
    if (r < 0)
        fs_reply(req, r);
    else
        reply_value(req, value, len, size);
}

/* Takes the names in `trusted.` out of LIST; returns its new length. */
static size_t without_trusted(char *list, size_t len)
{
    size_t kept = 0;

    for (size_t at = 0; at < len;) {
        size_t size = strnlen(list + at, len - at) + 1;
        if (at + size > len)
            break;
        if (strncmp(list + at, TRUSTED_PREFIX, strlen(TRUSTED_PREFIX)) != 0) {
            memmove(list + kept, list + at, size);
            kept += size;
        }
        at += size;
    }
    return kept;
}

/* The list as it is on disk, in memory to be freed. */
static int read_list(int fd, char **ret_list, size_t *ret_len)
{
    CLEANUP_FREE char *list = malloc(XATTR_LIST_MAX);
    char path[FILE_PROC_PATH_MAX];

    if (!list)
        return -ENOMEM;
    ssize_t n = listxattr(file_proc_path(fd, path), list, XATTR_LIST_MAX);
    if (n < 0)
        return -errno;
    *ret_list = STEAL_PTR(list);
    *ret_len = (size_t)n;
    return 0;
}

static bool has_trusted(const char *list, size_t len)
{
    return memmem(list, len, TRUSTED_PREFIX, strlen(TRUSTED_PREFIX)) != NULL;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    REACHED_PUT struct reached reached = {0};
    CLEANUP_FREE char *list = NULL;
    size_t len = 0;
    struct foldfs *fs = fs_begin(req);

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    int r = read_list(reached.fd, &list, &len);
    if (r < 0) {
        fs_reply(req, r);
        return;
    }
    if (has_trusted(list, len) && !creds_process_is_admin(fuse_req_ctx(req)->pid))
        len = without_trusted(list, len);
    reply_value(req, list, len, size);
}

/* Setting an ACL clears the setgid bit, as chmod does, unless the caller is in the file's
 * group; the thread has CAP_FSETID but not his groups. */
static int act_for_acl(fuse_req_t req, int fd)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct statx st;

    if (ctx->uid == 0)
        return 0;
    int r = file_stat(fd, "", &st);
    if (r < 0 || !(st.stx_mode & S_ISGID) || creds_process_in_group(ctx->pid, st.stx_gid))
        return r;
    return creds_act_as_unprivileged(ctx->uid, ctx->gid);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                 size_t size, int flags)
{
    REACHED_PUT struct reached reached = {0};
    CHANGE_END struct change change = {0};
    char path[FILE_PROC_PATH_MAX];
    struct foldfs *fs = fs_begin(req);
    int r = 0;

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    if (strcmp(name, "system.posix_acl_access") == 0)
        r = act_for_acl(req, reached.fd);
    if (r == 0 && node_is_dir(reached.node))
        r = change_begin(fs, reached.node, reached.fd, &change);
    if (r == 0 && setxattr(file_proc_path(reached.fd, path), name, value, size, flags) < 0)
        r = -errno;
    change_end(&change);
    fs_reply(req, r);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    REACHED_PUT struct reached reached = {0};
    CHANGE_END struct change change = {0};
    char path[FILE_PROC_PATH_MAX];
    struct foldfs *fs = fs_begin(req);

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    int r = node_is_dir(reached.node) ? change_begin(fs, reached.node, reached.fd, &change) : 0;
    if (r == 0 && removexattr(file_proc_path(reached.fd, path), name) < 0)
        r = -errno;
    change_end(&change);
    fs_reply(req, r);
}
