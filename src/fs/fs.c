/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fs.c - what the FUSE operations share: who asks, which file is meant, and the answers that
 * many of them give.
 */
#include "fs/fs.h"

#include <string.h>
#include <sys/sysmacros.h>

#include "common.h"
#include "fs/dentries.h"
#include "fs/resolve.h"

static struct foldfs *begin_as(fuse_req_t req, int (*act)(uid_t uid, gid_t gid))
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);

    int r = act(ctx->uid, ctx->gid);
    if (r < 0) {
        fs_reply(req, r);
        return NULL;
    }
    return fuse_req_userdata(req);
}

struct foldfs *fs_begin(fuse_req_t req)
{
    return begin_as(req, creds_act_as);
}

struct foldfs *fs_begin_removing(fuse_req_t req)
{
    return begin_as(req, creds_act_as_remover);
}

struct foldfs *fs_begin_looking(fuse_req_t req)
{
    struct foldfs *fs = fuse_req_userdata(req);

    return fsys_any_remote(fs->fsys_list) ? fs_begin(req) : fs;
}

struct node *fs_node(struct foldfs *fs, fuse_req_t req, fuse_ino_t ino)
{
    struct node *node = node_get(fs->nodes, ino);

    if (!node)
        fs_reply(req, -ESTALE);
    return node;
}

bool fs_reach(struct foldfs *fs, fuse_req_t req, fuse_ino_t ino, struct reached *ret_reached)
{
    struct node *node = fs_node(fs, req, ino);

    if (!node)
        return false;
    int r = reach_get(fs, node, ret_reached);
    if (r < 0)
        fs_reply(req, r);
    return r == 0;
}

void fs_reply(fuse_req_t req, int r)
{
    fuse_reply_err(req, -r);
}

static struct timespec to_timespec(const struct statx_timestamp *time)
{
    return (struct timespec){.tv_sec = time->tv_sec, .tv_nsec = time->tv_nsec};
}

void fs_attr(const struct node *node, const struct statx *st, struct stat *ret_attr)
{
    *ret_attr = (struct stat){
        .st_ino = fsys_shown_ino(node->key.fsys, st->stx_ino),
        .st_mode = st->stx_mode,
        .st_nlink = st->stx_nlink,
        .st_uid = st->stx_uid,
        .st_gid = st->stx_gid,
        .st_rdev = makedev(st->stx_rdev_major, st->stx_rdev_minor),
        .st_size = (off_t)st->stx_size,
        .st_blksize = (blksize_t)st->stx_blksize,
        .st_blocks = (blkcnt_t)st->stx_blocks,
        .st_atim = to_timespec(&st->stx_atime),
        .st_mtim = to_timespec(&st->stx_mtime),
        .st_ctim = to_timespec(&st->stx_ctime),
    };
}

void fs_entry(const struct foldfs *fs, const struct node *node, const struct statx *st,
              enum index_match match, struct fuse_entry_param *ret_entry)
{
    *ret_entry = (struct fuse_entry_param){
        .ino = node->id,
        .attr_timeout = fs->options->attr_timeout,
        .entry_timeout = dentries_timeout(fs, node, match),
    };
    fs_attr(node, st, &ret_entry->attr);
}

int fs_find_entry(struct foldfs *fs, struct node *parent, int dir_fd, const char *name,
                  const struct statx *st, enum index_match match, struct found_entry *ret_found)
{
    int r = node_look_up(fs->nodes, parent, dir_fd, name, st, &ret_found->node);
    if (r == 0)
        fs_entry(fs, ret_found->node, st, match, &ret_found->param);
    return r;
}

void fs_reply_entry(struct foldfs *fs, fuse_req_t req, int r, const struct found_entry *found)
{
    if (r < 0)
        fs_reply(req, r);
    else if (fuse_reply_entry(req, &found->param) <
             0) /* the caller was interrupted: no reference */
        node_forget(fs->nodes, found->node, 1);
}

int change_begin(struct foldfs *fs, struct node *node, int fd, struct change *ret_change)
{
    struct change change = {.fd = fd};

    int r = node_index_dir(fs, node, &change.dir);
    if (r < 0)
        return r;
    index_begin_change(change.dir, scan_stat, &change.fd);
    *ret_change = change;
    return 0;
}

void change_end(struct change *change)
{
    if (change->dir)
        index_end_change(change->dir, scan_stat, &change->fd);
    change->dir = NULL;
}
