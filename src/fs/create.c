/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * create.c - MKNOD, MKDIR, SYMLINK and LINK: what makes a name for something.  (CREATE and
 * TMPFILE also open, and are in open.c.)
 *
 * In both lookup modes an entry that folds alike is there already: EEXIST.  The name is locked
 * from before the look until the index knows of the new entry, so that two spellings
 * cannot both be made.  The entry is made by the bare system call with the exact spelling,
 * whose own EEXIST covers what somebody made behind the mount in just this moment.
 */
#include "fs/create.h"

#include <string.h>

#include "fs/namelock.h"

/* Makes the entry of TARGET; a negative errno on failure. */
typedef int (*make_fn)(const struct target *target, void *what);

static int create_entry(struct foldfs *fs, const struct target *target, make_fn make,
                        void *what, struct found_entry *ret_found)
{
    CHANGE_END struct change change = {0};
    struct resolved found;
    struct statx st;

    int r = change_begin(fs, target->parent, target->dir.fd, &change);
    if (r < 0)
        return r;
    r = resolve_folded(fs, target, &found);
    if (r < 0)
        return r;
    if (found.match != INDEX_ABSENT)
        return -EEXIST;
    r = make(target, what);
    if (r == -EEXIST) /* somebody made it behind the mount, while our change hid theirs */
        index_doubt(change.dir, target->name, target->len);
    if (r < 0)
        return r;
    index_add(change.dir, target->name, target->len);
    r = file_stat(target->dir.fd, target->name, &st);
    if (r < 0)
        return r;
    return fs_find_entry(fs, target->parent, target->dir.fd, target->name, &st, INDEX_EXACT,
                         ret_found);
}

static int create_locked(struct foldfs *fs, const struct target *target, make_fn make,
                         void *what, struct found_entry *ret_found)
{
    NAME_LOCK_FOR_SCOPE(lock, name_lock_key(target->parent->id, target->name, target->len));
    return create_entry(fs, target, make, what, ret_found);
}

/* All of a request that makes an entry and answers with it. */
static void make_and_reply(struct foldfs *fs, fuse_req_t req, fuse_ino_t parent,
                           const char *name, make_fn make, void *what)
{
    TARGET_PUT struct target target = {0};
    struct found_entry found;

    if (target_get(fs, req, parent, name, &target))
        fs_reply_entry(fs, req, create_locked(fs, &target, make, what, &found), &found);
}

struct device {
    mode_t mode;
    dev_t rdev;
};

static int make_device(const struct target *target, void *what)
{
    const struct device *device = what;

    return mknodat(target->dir.fd, target->name, device->mode, device->rdev) < 0 ? -errno : 0;
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct device device = {.mode = mode, .rdev = rdev};
    struct foldfs *fs = fs_begin(req);

    if (!fs)
        return;
    creds_set_umask(fuse_req_ctx(req)->umask);
    make_and_reply(fs, req, parent, name, make_device, &device);
}

static int make_dir(const struct target *target, void *what)
{
    return mkdirat(target->dir.fd, target->name, *(mode_t *)what) < 0 ? -errno : 0;
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct foldfs *fs = fs_begin(req);

    if (!fs)
        return;
    creds_set_umask(fuse_req_ctx(req)->umask);
    make_and_reply(fs, req, parent, name, make_dir, &mode);
}

static int make_symlink(const struct target *target, void *what)
{
    return symlinkat(what, target->dir.fd, target->name) < 0 ? -errno : 0;
}

void op_symlink(fuse_req_t req, const char *content, fuse_ino_t parent, const char *name)
{
    struct foldfs *fs = fs_begin(req);

    if (fs)
        make_and_reply(fs, req, parent, name, make_symlink, (char *)content);
}

static int make_link(const struct target *target, void *what)
{
    struct reached *file = what;
    char path[FILE_PROC_PATH_MAX];

    int r = linkat(file->fd, "", target->dir.fd, target->name, AT_EMPTY_PATH);
    if (r < 0 && errno == ENOENT) /* also given without CAP_DAC_READ_SEARCH */
        r = linkat(AT_FDCWD, file_proc_path(file->fd, path), target->dir.fd, target->name,
                   AT_SYMLINK_FOLLOW);
    if (r < 0)
        return -errno;
    reach_named(file);
    return 0;
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    REACHED_PUT struct reached file = {0};
    struct foldfs *fs = fs_begin(req);

    if (!fs || !fs_reach(fs, req, ino, &file))
        return;
    make_and_reply(fs, req, new_parent, new_name, make_link, &file);
}
