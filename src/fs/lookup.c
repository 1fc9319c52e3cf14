/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * lookup.c - LOOKUP, FORGET, BATCH_FORGET, and GETXATTR's answer to "what is it really called".
 *
 * An absent name is answered with an error, which the kernel does not cache: a cached negative
 * dentry of one spelling would outlive the creation of another.
 */
#include "fs/lookup.h"

#include <string.h>

#include "fs/caseonly.h"
#include "fs/namelock.h"
#include "fs/resolve.h"

/* How the name was found: enum index_match, or a negative errno. */
static int look_up(struct foldfs *fs, const struct target *target,
                   struct found_entry *ret_found)
{
    struct resolved found;

    NAME_LOCK_FOR_SCOPE(lock, name_lock_key(target->parent->id, target->name, target->len));
    int r = resolve(fs, target, &found);
    if (r < 0)
        return r;
    if (found.match == INDEX_ABSENT)
        return -ENOENT;
    r = fs_find_entry(fs, target->parent, target->dir.fd, found.name.bytes, &found.st,
                      found.match, ret_found);
    return r < 0 ? r : (int)found.match;
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    TARGET_PUT struct target target = {0};
    struct found_entry found;
    struct foldfs *fs = fs_begin_looking(req);

    if (!fs || !target_get(fs, req, parent, name, &target))
        return;
    int r = look_up(fs, &target, &found);
    if (r != INDEX_VARIANT || !caseonly_takes(fs, req, &target, &found))
        fs_reply_entry(fs, req, r, &found);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    struct foldfs *fs = fuse_req_userdata(req);
    struct node *node = node_get(fs->nodes, ino);

    if (node)
        node_forget(fs->nodes, node, nlookup);
    fuse_reply_none(req);
    node_trim(fs->nodes);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct foldfs *fs = fuse_req_userdata(req);

    for (size_t i = 0; i < count; i++) {
        struct node *node = node_get(fs->nodes, forgets[i].ino);
        if (node)
            node_forget(fs->nodes, node, forgets[i].nlookup);
    }
    fuse_reply_none(req);
    node_trim(fs->nodes);
}

int lookup_real_name(struct foldfs *fs, struct reached *dir, const char *name,
                     struct index_name *ret_name)
{
    struct target target = {
        .parent = dir->node, .dir = *dir, .name = name, .len = strlen(name)};
    struct resolved found;

    if (target.len == 0 || target.len > FOLDFS_NAME_MAX || strchr(name, '/') ||
        strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -EINVAL;
    NAME_LOCK_FOR_SCOPE(lock, name_lock_key(dir->node->id, name, target.len));
    int r = resolve_folded(fs, &target, &found);
    if (r < 0)
        return r;
    if (found.match == INDEX_ABSENT)
        return -ENODATA;
    *ret_name = found.name;
    return 0;
}
