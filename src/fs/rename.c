/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * rename.c - RENAME.
 *
 * What a rename does follows from which entries the two names mean:
 *   - the target is the source itself: a change of spelling, in one step;
 *   - the target is another spelling of an entry that is to be replaced: the source takes that
 *     entry's place first, then the new spelling.  Each step leaves a legal state, and at no
 *     time are there two variants or none;
 *   - source and target are links of one file: nothing, as rename(2) says;
 *   - else: the system call as it is.
 *
 * Directories: both parents' stamps move, and so do those of moved directories.
 */
#include "fs/rename.h"

#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "fold/fold.h"
#include "fs/dentries.h"
#include "fs/namelock.h"
#include "fs/resolve.h"
#include "fs/victim.h"
#include "log.h"

struct renaming {
    struct target from, to;
    struct change from_change, to_change; /* to_change.dir is NULL if both are one directory */
    struct resolved source, dest;
    unsigned int flags;
};

/* The index's directory of the target. */
static struct index_dir *to_dir(const struct renaming *renaming)
{
    return renaming->to_change.dir ? renaming->to_change.dir : renaming->from_change.dir;
}

static bool same_file(const struct statx *a, const struct statx *b)
{
    return a->stx_ino == b->stx_ino && fsys_dev(a) == fsys_dev(b);
}

static bool same_bytes(const struct index_name *a, const struct index_name *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* Are source and target one directory entry? */
static bool same_entry(const struct renaming *renaming)
{
    return renaming->from.parent == renaming->to.parent &&
           renaming->dest.match != INDEX_ABSENT &&
           same_bytes(&renaming->source.name, &renaming->dest.name);
}

/* rename(2) of OLD that must not replace anything; where the file system cannot promise that,
 * the index has. */
static int rename_to_absent(const struct target *from, const char *old, const struct target *to)
{
    if (renameat2(from->dir.fd, old, to->dir.fd, to->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    return renameat(from->dir.fd, old, to->dir.fd, to->name) < 0 ? -errno : 0;
}

/* The same entry under another spelling. */
static int respell(struct renaming *renaming)
{
    const struct target *to = &renaming->to;
    const struct index_name *old = &renaming->source.name;

    if (old->len == to->len && memcmp(old->bytes, to->name, to->len) == 0)
        return renaming->flags & RENAME_NOREPLACE ? -EEXIST : 0;
    if (renaming->flags & RENAME_EXCHANGE)
        return 0;
    if (renaming->flags & RENAME_WHITEOUT)
        return -EINVAL; /* it would be another spelling of the entry's name */
    int r = rename_to_absent(&renaming->from, old->bytes, to);
    if (r < 0)
        return r;
    index_respell(renaming->from_change.dir, old->bytes, old->len, to->name, to->len);
    return 0;
}

static int exchange(const struct foldfs *fs, const struct renaming *renaming)
{
    if (renaming->dest.match == INDEX_ABSENT ||
        (renaming->dest.match == INDEX_VARIANT && fs->options->lookup == LOOKUP_EXACT))
        return -ENOENT;
    if (renameat2(renaming->from.dir.fd, renaming->source.name.bytes, renaming->to.dir.fd,
                  renaming->dest.name.bytes, renaming->flags) < 0)
        return -errno;
    return 0;
}

/* The second step of a rename onto another spelling: failing, it leaves the entry renamed, but
 * in the spelling of the one that it replaced. */
static void take_new_spelling(struct renaming *renaming)
{
    char where[4096], name[4 * FOLDFS_NAME_MAX + 1];
    const struct target *to = &renaming->to;
    const struct index_name *old = &renaming->dest.name;

    int r = rename_to_absent(to, old->bytes, to);
    if (r < 0) {
        log_line(LOG_WARNING, "%s: \"%s\" was replaced, but keeps its old spelling: %s",
                 file_describe(to->dir.fd, where, sizeof(where)),
                 log_escape(old->bytes, old->len, name, sizeof(name)), strerror(-r));
        return;
    }
    index_respell(to_dir(renaming), old->bytes, old->len, to->name, to->len);
}

/* The source goes to another name, in place of what is there. */
static int move(struct foldfs *fs, struct renaming *renaming)
{
    VICTIM_PUT struct victim victim = {0};
    const struct target *to = &renaming->to;
    const struct index_name *old = &renaming->source.name;
    bool variant = renaming->dest.match == INDEX_VARIANT;
    const char *target = variant ? renaming->dest.name.bytes : to->name;

    if (renaming->dest.match != INDEX_ABSENT) {
        if (renaming->flags & RENAME_NOREPLACE)
            return -EEXIST;
        if (same_file(&renaming->source.st, &renaming->dest.st))
            return 0;
        victim_get(fs, &renaming->dest.st, &victim);
    }
    if (renameat2(renaming->from.dir.fd, old->bytes, to->dir.fd, target, renaming->flags) < 0) {
        int r = -errno;
        if (r == -EEXIST && renaming->dest.match == INDEX_ABSENT)
            index_doubt(to_dir(renaming), target, strlen(target));
        return r;
    }
    if (!(renaming->flags & RENAME_WHITEOUT))
        index_remove(renaming->from_change.dir, old->bytes, old->len);
    index_add(to_dir(renaming), target, strlen(target));
    victim_removed(&victim);
    if (variant)
        take_new_spelling(renaming);
    return 0;
}

/* A directory that moves: its own stamp moves too, by us. */
struct moving {
    struct foldfs *fs;
    struct node *node; /* pinned; NULL: nothing that the kernel knows, or no directory */
    struct reached dir;
    struct change change;
};
#define MOVING_END __attribute__((cleanup(moving_end)))

static void moving_begin(struct foldfs *fs, const struct resolved *entry, struct moving *moving)
{
    if (entry->match == INDEX_ABSENT || !S_ISDIR(entry->st.stx_mode))
        return;
    moving->fs = fs;
    moving->node = node_find(fs->nodes, &entry->st);
    if (moving->node && reach_get(fs, moving->node, &moving->dir) == 0)
        (void)change_begin(fs, moving->node, moving->dir.fd, &moving->change);
}

static void moving_end(struct moving *moving)
{
    change_end(&moving->change);
    reach_put(&moving->dir);
    if (moving->node)
        node_unpin(moving->fs->nodes, moving->node);
}

static int rename_entry(struct foldfs *fs, struct renaming *renaming, int attempt)
{
    MOVING_END struct moving source = {0};
    MOVING_END struct moving dest = {0};

    int r = resolve(fs, &renaming->from, &renaming->source);
    if (r < 0)
        return r;
    if (renaming->source.match == INDEX_ABSENT)
        return -ENOENT;
    r = resolve_folded(fs, &renaming->to, &renaming->dest);
    if (r < 0)
        return r;
    moving_begin(fs, &renaming->source, &source);
    fall_out_of_step(attempt);
    if (same_entry(renaming))
        return respell(renaming);
    if (renaming->flags & RENAME_EXCHANGE) {
        moving_begin(fs, &renaming->dest, &dest);
        return exchange(fs, renaming);
    }
    return move(fs, renaming);
}

/* Tells the nodes, where they are reached by name, that they have another one. */
static void tell_nodes(struct foldfs *fs, const struct renaming *renaming)
{
    struct statx st;

    if (file_stat(renaming->to.dir.fd, renaming->to.name, &st) == 0)
        node_moved(fs->nodes, &st, renaming->to.parent, renaming->to.name);
    if (renaming->flags & RENAME_EXCHANGE &&
        file_stat(renaming->from.dir.fd, renaming->source.name.bytes, &st) == 0)
        node_moved(fs->nodes, &st, renaming->from.parent, renaming->source.name.bytes);
}

/* An entry that was there, but not under that name any more in the next moment, is looked for
 * again. */
static int rename_entry_found(struct foldfs *fs, struct renaming *renaming)
{
    int r = -ENOENT;

    for (int attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
        renaming->source.match = renaming->dest.match = INDEX_ABSENT;
        r = rename_entry(fs, renaming, attempt);
        if (r != -ENOENT || renaming->source.match == INDEX_ABSENT)
            break;
        index_doubt(renaming->from_change.dir, renaming->source.name.bytes,
                    renaming->source.name.len);
        if (renaming->dest.match != INDEX_ABSENT)
            index_doubt(to_dir(renaming), renaming->dest.name.bytes, renaming->dest.name.len);
    }
    return r;
}

static int rename_changing(struct foldfs *fs, struct renaming *renaming)
{
    int r =
        change_begin(fs, renaming->from.parent, renaming->from.dir.fd, &renaming->from_change);
    if (r < 0)
        return r;
    if (renaming->to.parent != renaming->from.parent)
        r = change_begin(fs, renaming->to.parent, renaming->to.dir.fd, &renaming->to_change);
    if (r == 0)
        r = rename_entry_found(fs, renaming);
    if (r == 0 && !renaming->to.parent->key.fsys->handles)
        tell_nodes(fs, renaming);
    dentries_changed_by(fs, renaming->source.match == INDEX_VARIANT ? INDEX_VARIANT
                                                                    : renaming->dest.match);
    change_end(&renaming->to_change);
    change_end(&renaming->from_change);
    return r;
}

static int rename_locked(struct foldfs *fs, struct renaming *renaming)
{
    const struct target *from = &renaming->from, *to = &renaming->to;

    NAME_LOCK_TWO_FOR_SCOPE(locks, name_lock_key(from->parent->id, from->name, from->len),
                            name_lock_key(to->parent->id, to->name, to->len));
    return rename_changing(fs, renaming);
}

/* Does it, and gives the result in *RET_RESULT; false: REQ was answered with an error. */
static bool rename_names(fuse_req_t req, struct renaming *renaming, fuse_ino_t parent,
                         const char *name, fuse_ino_t new_parent, const char *new_name,
                         int *ret_result)
{
    struct foldfs *fs = fs_begin_removing(req);

    if (!fs || !target_get(fs, req, parent, name, &renaming->from))
        return false;
    bool reached = target_get(fs, req, new_parent, new_name, &renaming->to);
    if (reached) {
        *ret_result = rename_locked(fs, renaming);
        target_put(&renaming->to);
    }
    target_put(&renaming->from);
    return reached;
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned int flags)
{
    struct renaming renaming = {.flags = flags};
    int r;

    if (rename_names(req, &renaming, parent, name, new_parent, new_name, &r))
        fs_reply(req, r);
}

void rename_spelling(fuse_req_t req, fuse_ino_t parent, const char *name, const char *new_name)
{
    struct renaming renaming = {.flags = RENAME_NOREPLACE};
    struct foldfs *fs = fuse_req_userdata(req);
    int r;

    if (!fold_equal(name, strlen(name), new_name, strlen(new_name))) {
        fs_reply(req, -EINVAL);
        return;
    }
    if (!rename_names(req, &renaming, parent, name, parent, new_name, &r))
        return;
    if (r == 0) /* the kernel did not see it */
        notifier_tell(fs->notifier, parent);
    if (r < 0)
        fs_reply(req, r);
    else
        fuse_reply_ioctl(req, 0, NULL, 0);
}
