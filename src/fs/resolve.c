/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * resolve.c - which entry of a directory a name means.
 *
 * An entry with exactly the bytes that were given always wins, so a stat that finds one needs
 * no index.  Everything else, "absent" above all, needs to know all names of the directory:
 * from the index if it is current, after a scan if not.  What the index says is there is
 * believed only after its stat; if that fails, the index was wrong about the name, and we start
 * over.  A directory that the index cannot hold (no room; it never stands still) is read
 * through.
 */
#include "fs/resolve.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common.h"

/* How often an answer of the index may turn out wrong, by changes made behind the mount in just
 * that moment, until the directory itself is asked. */
#define RESOLVE_ATTEMPTS 4

/* The same where changes by others are told: there each costs microseconds, and fails if
 * somebody renamed that very entry meanwhile. */
#define WATCHED_ATTEMPTS 100

/* ... or if he does it in step with us. */
#define OUT_OF_STEP_AFTER 10

/* The longest time that is waited to fall out of step: some renames. */
#define OUT_OF_STEP_NS 100000u

void fall_out_of_step(int attempt)
{
    uint32_t random = 0;

    if (attempt == 0)
        return;
    (void)getrandom(&random, sizeof(random), GRND_NONBLOCK);
    nanosleep(&(struct timespec){.tv_nsec = random % OUT_OF_STEP_NS}, NULL);
}

bool target_get(struct foldfs *fs, fuse_req_t req, fuse_ino_t parent, const char *name,
                struct target *ret_target)
{
    struct target target = {.name = name, .len = strlen(name)};

    if (target.len > FOLDFS_NAME_MAX) {
        fs_reply(req, -ENAMETOOLONG);
        return false;
    }
    if (!fs_reach(fs, req, parent, &target.dir))
        return false;
    target.parent = target.dir.node;
    *ret_target = target;
    return true;
}

void target_put(struct target *target)
{
    reach_put(&target->dir);
}

static int stat_spelling(const struct target *target, const struct index_name *spelling,
                         enum index_match match, struct resolved *ret_resolved)
{
    struct statx st;

    int r = file_stat(target->dir.fd, spelling->bytes, &st);
    if (r < 0)
        return r;
    ret_resolved->match = match;
    ret_resolved->name = *spelling;
    ret_resolved->st = st;
    return 0;
}

static void as_given(const struct target *target, struct index_name *ret_name)
{
    ret_name->len = (uint8_t)target->len;
    memcpy(ret_name->bytes, target->name, target->len + 1);
}

int resolve_exact(const struct target *target, struct resolved *ret_resolved)
{
    struct index_name given;

    as_given(target, &given);
    int r = stat_spelling(target, &given, INDEX_EXACT, ret_resolved);
    if (r == -ENOENT) {
        ret_resolved->match = INDEX_ABSENT;
        return 0;
    }
    return r;
}

/* Without the index: by reading the directory. */
static int resolve_by_reading(const struct target *target, struct resolved *ret_resolved)
{
    struct index_name spelling;

    int r = -EAGAIN;
    for (int attempt = 0; attempt < RESOLVE_ATTEMPTS; attempt++) {
        r = scan_search(target->dir.fd, target->name, target->len, &spelling);
        if (r < 0)
            return r;
        if (r == INDEX_ABSENT) {
            ret_resolved->match = INDEX_ABSENT;
            return 0;
        }
        r = stat_spelling(target, &spelling, (enum index_match)r, ret_resolved);
        if (r != -ENOENT)
            return r;
    }
    return r == -ENOENT ? -EAGAIN : r;
}

/* Where nobody tells of changes by others, one of ours may have hidden theirs for a while: the
 * very name, at least, is looked for. */
static int look_before_absent(const struct scan_target *scan, const struct target *target,
                              struct resolved *ret_resolved)
{
    int r = resolve_exact(target, ret_resolved);

    if (r == 0 && ret_resolved->match != INDEX_ABSENT)
        index_dir_void(scan->dir);
    return r;
}

/* One attempt by the index; -EAGAIN: it was wrong, or others change that very name. */
static int resolve_by_index(struct foldfs *fs, const struct scan_target *scan,
                            const struct target *target, struct resolved *ret_resolved)
{
    struct index_name spelling;

    int r = scan_if_stale(scan);
    if (reach_made_room(fs, r))
        r = scan_if_stale(scan);
    if (r < 0)
        return r;
    int mended = scan_mend(scan, target->name, target->len);
    if (mended < 0)
        return mended;
    enum index_match match = index_find(scan->dir, target->name, target->len, &spelling);
    switch (match) {
    case INDEX_ABSENT:
        if (mended)
            return -EAGAIN;
        if (!scan->watch)
            return look_before_absent(scan, target, ret_resolved);
        ret_resolved->match = INDEX_ABSENT;
        return 0;
    case INDEX_EXACT:
    case INDEX_VARIANT:
        r = stat_spelling(target, &spelling, match, ret_resolved);
        if (r != -ENOENT)
            return r;
        index_doubt(scan->dir, spelling.bytes, spelling.len);
        return -EAGAIN;
    case INDEX_UNKNOWN:
        break;
    }
    return -EAGAIN;
}

int resolve_folded(struct foldfs *fs, const struct target *target,
                   struct resolved *ret_resolved)
{
    struct scan_target scan = {.fd = target->dir.fd,
                               .granularity_ns = target->parent->key.fsys->granularity_ns,
                               .watch = node_is_watched(target->parent) ? fs->watch : NULL};
    struct index_name spelling;

    int r = node_index_dir(fs, target->parent, &scan.dir);
    if (r < 0)
        return r;

    enum index_match hint = index_find(scan.dir, target->name, target->len, &spelling);
    if (hint == INDEX_EXACT || hint == INDEX_UNKNOWN) {
        r = resolve_exact(target, ret_resolved);
        if (r < 0 || ret_resolved->match == INDEX_EXACT)
            return r;
        if (hint == INDEX_EXACT)
            index_doubt(scan.dir, target->name, target->len);
    }
    int attempts = scan.watch ? WATCHED_ATTEMPTS : RESOLVE_ATTEMPTS;
    for (int attempt = 0; attempt < attempts; attempt++) {
        if (attempt >= OUT_OF_STEP_AFTER)
            fall_out_of_step(attempt);
        r = resolve_by_index(fs, &scan, target, ret_resolved);
        if (r == -ENOMEM || r == -ENOSPC)
            break;
        if (r != -EAGAIN)
            return r;
    }
    return resolve_by_reading(target, ret_resolved);
}

int resolve(struct foldfs *fs, const struct target *target, struct resolved *ret_resolved)
{
    struct index_dir *dir;

    if (fs->options->lookup == LOOKUP_FOLD)
        return resolve_folded(fs, target, ret_resolved);
    /* From before the stat on: what the kernel keeps is to be told of changes. */
    int r = node_index_dir(fs, target->parent, &dir);
    return r < 0 ? r : resolve_exact(target, ret_resolved);
}
