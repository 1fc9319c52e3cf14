/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * remove.c - UNLINK and RMDIR: the entry that the name means loses its name.
 */
#include "fs/remove.h"

#include "common.h"
#include "fs/dentries.h"
#include "fs/namelock.h"
#include "fs/resolve.h"
#include "fs/victim.h"

/* One attempt; -EAGAIN: the entry was there, but its name was gone in the next moment.  FLAGS
 * as unlinkat(2) takes them. */
static int remove_once(struct foldfs *fs, const struct target *target, struct index_dir *dir,
                       int flags, int attempt)
{
    VICTIM_PUT struct victim victim = {0};
    struct resolved found;

    int r = resolve(fs, target, &found);
    if (r < 0)
        return r;
    if (found.match == INDEX_ABSENT)
        return -ENOENT;
    victim_get(fs, &found.st, &victim);
    fall_out_of_step(attempt);
    if (unlinkat(target->dir.fd, found.name.bytes, flags) < 0) {
        if (errno != ENOENT)
            return -errno;
        index_doubt(dir, found.name.bytes, found.name.len);
        return -EAGAIN;
    }
    dentries_changed_by(fs, found.match);
    index_remove(dir, found.name.bytes, found.name.len);
    victim_removed(&victim);
    return 0;
}

static int remove_entry(struct foldfs *fs, const struct target *target, int flags)
{
    NAME_LOCK_FOR_SCOPE(lock, name_lock_key(target->parent->id, target->name, target->len));
    CHANGE_END struct change change = {0};

    int r = change_begin(fs, target->parent, target->dir.fd, &change);
    if (r < 0)
        return r;
    for (int attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
        r = remove_once(fs, target, change.dir, flags, attempt);
        if (r != -EAGAIN)
            break;
    }
    return r;
}

static void remove_and_reply(fuse_req_t req, fuse_ino_t parent, const char *name, int flags)
{
    TARGET_PUT struct target target = {0};
    struct foldfs *fs = fs_begin_removing(req);

    if (fs && target_get(fs, req, parent, name, &target))
        fs_reply(req, remove_entry(fs, &target, flags));
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    remove_and_reply(req, parent, name, 0);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    remove_and_reply(req, parent, name, AT_REMOVEDIR);
}
