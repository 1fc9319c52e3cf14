/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * open.c - OPEN, CREATE, TMPFILE and RELEASE.
 *
 * Passthrough: the kernel reads and writes the backing file itself.  One backing id serves all
 * opens of an inode; the mode of the first open is that of all until the last is closed, for
 * the kernel refuses to mix.  A file with setuid or setgid bits is not passed through, since
 * the kernel would clear them at root's writes too (creds.h).
 *
 * Otherwise the kernel's page cache is kept over an open if the file is as it was at the last
 * one, as its timestamps and size tell.
 *
 * CREATE comes when the kernel believes that the name is absent.  If it is not, another
 * spelling or another process was faster, and nobody has checked the caller's rights on that
 * file; so unless it is plain that he has them, ESTALE makes the kernel look the name up and
 * open it in the ordinary way.
 *
 * Lock: a node_data's, over counting and registering; no other is taken under it.
 */
#include "fs/open.h"

#include <string.h>
#include <time.h>

#include "common.h"
#include "fs/namelock.h"
#include "fs/resolve.h"

/* Flags that are the kernel's business only, or would be misunderstood a second time.  O_DIRECT
 * asks for aligned buffers, which ours are not. */
#define FLAGS_DROPPED (O_CREAT | O_EXCL | O_NOCTTY | O_NOFOLLOW | O_DIRECT)

void node_data_free(struct node_data *data)
{
    if (!data)
        return;
    pthread_mutex_destroy(&data->lock);
    free(data);
}

int node_data_get(struct node *node, struct node_data **ret_data)
{
    struct node_data *data = atomic_load(&node->data), *expected = NULL;

    if (!data) {
        data = calloc(1, sizeof(*data));
        if (!data)
            return -ENOMEM;
        pthread_mutex_init(&data->lock, NULL);
        if (!atomic_compare_exchange_strong(&node->data, &expected, data)) {
            node_data_free(data);
            data = expected;
        }
    }
    *ret_data = data;
    return 0;
}

struct open_file *fs_open_file(struct foldfs *fs, fuse_req_t req,
                               const struct fuse_file_info *fi)
{
    struct open_file *file = fi ? slots_get(fs->files, fi->fh) : NULL;

    if (!file)
        fs_reply(req, -EBADF);
    return file;
}

bool fs_must_kill(const struct foldfs *fs, fuse_req_t req, const struct fuse_file_info *fi)
{
#ifdef FOLDFS_HAVE_KILL_FLAG
    if (fs->kill_flag && fi)
        return fi->kill_suidgid;
#else
    (void)fs;
    (void)fi;
#endif
    return fuse_req_ctx(req)->uid != 0;
}

int fs_act_clearing_setid(fuse_req_t req, int fd)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    gid_t gid = ctx->gid;
    struct statx st;

    /* Without the group's x bit, setgid is kept for members of the group (it once meant
     * mandatory locking).  This thread has none of the caller's supplementary groups but can
     * have one. */
    int r = file_stat(fd, "", &st);
    if (r < 0)
        return r;
    if ((st.stx_mode & (S_ISGID | S_IXGRP)) == S_ISGID &&
        creds_process_in_group(ctx->pid, st.stx_gid))
        gid = st.stx_gid;
    return creds_act_as_unprivileged(ctx->uid, gid);
}

/* May the pages that the kernel has cached of the file be kept? */
static bool unchanged_since_seen(const struct node *node, struct node_data *data,
                                 const struct statx *st)
{
    struct index_stamp now = file_stamp(st);
    struct timespec clock;
    int64_t granularity = node->key.fsys->granularity_ns;

    bool same = memcmp(&now, &data->seen, sizeof(now)) == 0 &&
                data->seen_at_ns - now.ctime_ns > granularity;
    clock_gettime(CLOCK_REALTIME, &clock);
    data->seen = now;
    data->seen_at_ns = clock.tv_sec * INT64_C(1000000000) + clock.tv_nsec;
    return same;
}

#ifdef FUSE_CAP_PASSTHROUGH
/* Registers FD with the kernel; 0 where that cannot be done. */
static int32_t register_backing(const struct foldfs *fs, fuse_req_t req,
                                const struct node *node, const struct statx *st, int fd)
{
    if (!fs->passthrough || node->key.fsys->remote || !S_ISREG(st->stx_mode) ||
        (st->stx_mode & (S_ISUID | S_ISGID)) || creds_act_for_passthrough() < 0)
        return 0;
    int id = fuse_passthrough_open(req, fd);
    return id > 0 ? id : 0;
}

static void unregister_backing(fuse_req_t req, int32_t backing_id)
{
    fuse_passthrough_close(req, backing_id);
}
#else
static int32_t register_backing(const struct foldfs *fs, fuse_req_t req,
                                const struct node *node, const struct statx *st, int fd)
{
    (void)fs, (void)req, (void)node, (void)st, (void)fd;
    return 0;
}

static void unregister_backing(fuse_req_t req, int32_t backing_id)
{
    (void)req, (void)backing_id;
}
#endif

/* Counts one open of the file, and says to FI how the kernel is to treat it. */
static int count_open(struct foldfs *fs, fuse_req_t req, struct node *node, int fd,
                      const struct statx *st, struct fuse_file_info *fi)
{
    struct node_data *data;

    int r = node_data_get(node, &data);
    if (r < 0)
        return r;
    LOCK_FOR_SCOPE(&data->lock);
    atomic_store(&data->setgid, (st->stx_mode & S_ISGID) != 0);
    if (data->opens++ == 0)
        data->backing_id = register_backing(fs, req, node, st, fd);
    fi->keep_cache = unchanged_since_seen(node, data, st);
#ifdef FUSE_CAP_PASSTHROUGH
    if (data->backing_id > 0) {
        fi->backing_id = data->backing_id;
        fi->keep_cache = 0;
    }
#endif
    fi->noflush = !node->key.fsys->remote;
    return 0;
}

static void uncount_open(fuse_req_t req, struct node *node)
{
    struct node_data *data = atomic_load(&node->data);

    LOCK_FOR_SCOPE(&data->lock);
    if (--data->opens > 0 || data->backing_id == 0)
        return;
    unregister_backing(req, data->backing_id);
    data->backing_id = 0;
}

/* Makes an open file of FD, whose stat is ST; it takes FD over if it succeeds. */
static int open_file_new(struct foldfs *fs, fuse_req_t req, struct node *node, int fd,
                         const struct statx *st, struct fuse_file_info *fi,
                         struct open_file **ret_file)
{
    CLEANUP_FREE struct open_file *file = calloc(1, sizeof(*file));

    if (!file)
        return -ENOMEM;
    file->node = node;
    file->fd = fd;
    atomic_init(&file->append, fi->flags & O_APPEND);
    int r = count_open(fs, req, node, fd, st, fi);
    if (r < 0)
        return r;
    r = slots_add(fs->files, file, &file->id);
    if (r < 0) {
        uncount_open(req, node);
        return r;
    }
    fi->fh = file->id;
    *ret_file = STEAL_PTR(file);
    return 0;
}

static void open_file_free(struct foldfs *fs, fuse_req_t req, struct open_file *file)
{
    slots_remove(fs->files, file->id);
    uncount_open(req, file->node);
    close(file->fd);
    free(file);
}

/* The kernel's backing ids end with the session. */
static void close_at_end(void *fs, void *pointer)
{
    struct open_file *file = pointer;

    slots_remove(((struct foldfs *)fs)->files, file->id);
    close(file->fd);
    free(file);
}

void fs_close_files(struct foldfs *fs)
{
    if (fs->files)
        slots_for_each(fs->files, close_at_end, fs);
    slots_free(fs->files);
}

/* Opens NODE's file anew by way of a descriptor on it. */
static int open_by_reaching(struct foldfs *fs, fuse_req_t req, struct node *node, int flags,
                            const struct fuse_file_info *fi, int *ret_fd, struct statx *ret_st)
{
    REACHED_PUT struct reached reached = {0};
    CLEANUP_CLOSE int fd = -1;

    int r = reach_get(fs, node, &reached);
    if (r == 0 && flags & O_TRUNC && fs_must_kill(fs, req, fi))
        r = fs_act_clearing_setid(req, reached.fd);
    if (r < 0)
        return r;
    r = file_reopen(reached.fd, flags, &fd);
    if (reach_made_room(fs, r))
        r = file_reopen(reached.fd, flags, &fd);
    if (r == 0)
        r = file_stat(fd, "", ret_st);
    if (r == 0)
        *ret_fd = STEAL_FD(fd);
    return r;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int flags = (fi->flags & ~FLAGS_DROPPED) | O_CLOEXEC;
    CLEANUP_CLOSE int fd = -1;
    struct open_file *file;
    struct statx st;
    struct foldfs *fs = fs_begin(req);
    struct node *node = fs ? fs_node(fs, req, ino) : NULL;

    if (!node)
        return;
    /* What truncates must know before that it is the right file. */
    int r = flags & O_TRUNC ? -EOPNOTSUPP : reach_open_handle(node, flags, &fd, &st);
    if (r < 0)
        r = open_by_reaching(fs, req, node, flags, fi, &fd, &st);
    if (r == 0)
        r = open_file_new(fs, req, node, fd, &st, fi, &file);
    if (r < 0) {
        fs_reply(req, r);
        return;
    }
    STEAL_FD(fd);
    if (fuse_reply_open(req, fi) < 0)
        open_file_free(fs, req, file);
}

/* Is it plain from owner and mode that the caller may open the file like this, and that nothing
 * else follows from it?  An ACL does not narrow the owner's rights. */
static bool plainly_permitted(const struct fuse_ctx *ctx, const struct statx *st, int flags)
{
    int access = flags & O_ACCMODE;
    unsigned needed = access == O_RDONLY   ? S_IRUSR
                      : access == O_WRONLY ? S_IWUSR
                                           : S_IRUSR | S_IWUSR;

    if (flags & O_TRUNC && st->stx_mode & (S_ISUID | S_ISGID))
        return false;
    if (flags & O_TRUNC)
        needed |= S_IWUSR;
    return ctx->uid == 0 || (ctx->uid == st->stx_uid && (st->stx_mode & needed) == needed);
}

/* The name is there already: opens it, if that is what the flags ask for. */
static int open_existing(struct foldfs *fs, fuse_req_t req, const struct target *target,
                         const struct resolved *found, const struct fuse_file_info *fi,
                         int *ret_fd)
{
    if (fi->flags & O_EXCL ||
        (found->match == INDEX_VARIANT && fs->options->lookup == LOOKUP_EXACT))
        return -EEXIST;
    if (!S_ISREG(found->st.stx_mode) ||
        !plainly_permitted(fuse_req_ctx(req), &found->st, fi->flags))
        return -ESTALE;
    int fd = openat(target->dir.fd, found->name.bytes,
                    (fi->flags & ~FLAGS_DROPPED) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP ? -ESTALE : -errno;
    *ret_fd = fd;
    return 0;
}

/* Finds or makes the entry, and opens it; RET_FOUND says which.  The caller holds the name
 * lock. */
static int create_or_open(struct foldfs *fs, fuse_req_t req, const struct target *target,
                          mode_t mode, const struct fuse_file_info *fi,
                          struct resolved *ret_found, int *ret_fd)
{
    CHANGE_END struct change change = {0};

    int r = change_begin(fs, target->parent, target->dir.fd, &change);
    if (r < 0)
        return r;
    r = resolve_folded(fs, target, ret_found);
    if (r < 0)
        return r;
    if (ret_found->match != INDEX_ABSENT)
        return open_existing(fs, req, target, ret_found, fi, ret_fd);
    int flags = (fi->flags & ~FLAGS_DROPPED) | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(target->dir.fd, target->name, flags & ~O_TRUNC, mode);
    if (fd < 0 && reach_made_room(fs, -errno))
        fd = openat(target->dir.fd, target->name, flags & ~O_TRUNC, mode);
    if (fd < 0) {
        r = -errno;
        if (r != -EEXIST)
            return r;
        /* Made behind the mount in just this moment. */
        index_doubt(change.dir, target->name, target->len);
        return fi->flags & O_EXCL ? -EEXIST : -ESTALE;
    }
    index_add(change.dir, target->name, target->len);
    *ret_fd = fd;
    return 0;
}

/* Answers CREATE or TMPFILE with NODE, of which the kernel gets a reference, and the open FD,
 * which is taken over. */
static void reply_create(struct foldfs *fs, fuse_req_t req, struct node *node,
                         const struct statx *st, int fd, struct fuse_file_info *fi)
{
    struct fuse_entry_param entry;
    struct open_file *file;

    int r = open_file_new(fs, req, node, fd, st, fi, &file);
    if (r < 0) {
        close(fd);
        node_forget(fs->nodes, node, 1);
        fs_reply(req, r);
        return;
    }
    fs_entry(fs, node, st, INDEX_EXACT, &entry);
    if (fuse_reply_create(req, &entry, fi) < 0) {
        open_file_free(fs, req, file);
        node_forget(fs->nodes, node, 1);
    }
}

/* What CREATE answers with, but for the open file. */
struct created {
    struct node *node;
    struct statx st;
    int fd;
};

static int create_locked(struct foldfs *fs, fuse_req_t req, const struct target *target,
                         mode_t mode, const struct fuse_file_info *fi,
                         struct created *ret_created)
{
    CLEANUP_CLOSE int fd = -1;
    struct resolved found;

    NAME_LOCK_FOR_SCOPE(lock, name_lock_key(target->parent->id, target->name, target->len));
    int r = create_or_open(fs, req, target, mode, fi, &found, &fd);
    if (r == 0)
        r = file_stat(fd, "", &ret_created->st);
    if (r == 0)
        r = node_look_up(fs->nodes, target->parent, target->dir.fd,
                         found.match == INDEX_ABSENT ? target->name : found.name.bytes,
                         &ret_created->st, &ret_created->node);
    if (r == 0)
        ret_created->fd = STEAL_FD(fd);
    return r;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi)
{
    TARGET_PUT struct target target = {0};
    struct created created;
    struct foldfs *fs = fs_begin(req);

    if (!fs || !target_get(fs, req, parent, name, &target))
        return;
    creds_set_umask(fuse_req_ctx(req)->umask);
    int r = create_locked(fs, req, &target, mode, fi, &created);
    if (r < 0)
        fs_reply(req, r);
    else
        reply_create(fs, req, created.node, &created.st, created.fd, fi);
}

void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
    REACHED_PUT struct reached dir = {0};
    REACHED_PUT struct reached file = {0};
    CLEANUP_CLOSE int fd = -1;
    struct node *node;
    struct statx st;
    struct foldfs *fs = fs_begin(req);

    if (!fs || !fs_reach(fs, req, parent, &dir))
        return;
    creds_set_umask(fuse_req_ctx(req)->umask);
    int flags = fi->flags & ~(FLAGS_DROPPED & ~O_EXCL); /* O_EXCL: never to be linked */
    fd = openat(dir.fd, ".", flags | O_TMPFILE | O_CLOEXEC, mode);
    int r = fd < 0 ? -errno : file_stat(fd, "", &st);
    if (r == 0)
        r = node_look_up(fs->nodes, dir.node, fd, "", &st, &node);
    if (r < 0) {
        fs_reply(req, r);
        return;
    }
    r = reach_get_nameless(fs, node, fd, &file); /* it cannot be reached otherwise */
    if (r < 0) {
        node_forget(fs->nodes, node, 1);
        fs_reply(req, r);
        return;
    }
    reply_create(fs, req, node, &st, STEAL_FD(fd), fi);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct foldfs *fs = fuse_req_userdata(req);
    struct open_file *file = fs_open_file(fs, req, fi);

    (void)ino;
    if (!file)
        return;
    open_file_free(fs, req, file);
    fs_reply(req, 0);
}
