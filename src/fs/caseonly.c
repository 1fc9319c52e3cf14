/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * caseonly.c - the rename that changes only the case of a name.
 *
 * Both names of rename("foo", "Foo") lead to one inode, so the kernel finds nothing to do and
 * gives 0, without asking us (fs/namei.c: vfs_rename).  But just before it has looked up the
 * target, afresh, as it does for every rename (LOOKUP_RENAME_TARGET).  Told then that there is
 * no such name, it sends the rename.
 *
 * So a look-up that finds another spelling asks what its requester is doing.  All must be
 * proven: it is in a rename, and no exchange; the new path ends in this very name, the old one
 * in another spelling of it; both lead to the directory of this look-up, and neither comes by
 * the name on its way, so that this is the last step.  In doubt the look-up is answered as any
 * other: at worst the rename does nothing, which is what it did without us.  Where that is so
 * because we cannot see, it is said once in the log.
 *
 * The requester's memory and the directories that its paths name are read by a thread that
 * nobody waits for (deadline.h).
 */
#include "fs/caseonly.h"

#include <stdio.h>
#include <string.h>

#include "common.h"
#include "fold/fold.h"
#include "fs/requester.h"
#include "fs/walk.h"
#include "log.h"

/* How long its memory, and the directories of its paths, may keep our thread asleep: pages that
 * nobody provides have been seen by the kernel just before; directories may be on a disk. */
#define AWAKE_PATIENCE_NS  INT64_C(1500000000) /* by ourselves */
#define MEMORY_PATIENCE_NS INT64_C(5000000)
#define WALK_PATIENCE_NS   INT64_C(100000000)

struct question {
    struct deadline_job job;
    struct foldfs *fs;
    fuse_req_t req;
    struct found_entry found;
    struct walk_question walk;
    struct rename_call call;
    bool is_awake; /* what it calls is not known yet */
    struct index_name name;
    int answer; /* run()'s: 1, 0, or a negative errno */
};

static bool is_other_spelling(const struct index_name *old, const struct index_name *name)
{
    return fold_equal(old->bytes, old->len, name->bytes, name->len) &&
           !(old->len == name->len && memcmp(old->bytes, name->bytes, old->len) == 0);
}

static int find_answer(struct question *q)
{
    char old_path[PATH_MAX], new_path[PATH_MAX], old_dir[PATH_MAX], new_dir[PATH_MAX];
    struct index_name old_last, new_last;

    if (q->is_awake) {
        deadline_stage(&q->job, AWAKE_PATIENCE_NS);
        enum requester_call what = requester_wait(q->walk.tid, &q->call);
        if (what != REQUESTER_RENAMES || q->call.flags & RENAME_EXCHANGE)
            return what == REQUESTER_RENAMES || what == REQUESTER_ELSEWHERE ? 0 : -ENODATA;
    }
    deadline_stage(&q->job, MEMORY_PATIENCE_NS);
    int r = requester_read_path(q->walk.tid, q->call.new_path, new_path);
    if (r == 0)
        r = requester_read_path(q->walk.tid, q->call.old_path, old_path);
    if (r < 0)
        return r;
    if (!walk_split(old_path, old_dir, &old_last) || !walk_split(new_path, new_dir, &new_last))
        return 0;
    if (strcmp(new_last.bytes, q->name.bytes) != 0 || !is_other_spelling(&old_last, &q->name))
        return 0;
    deadline_stage(&q->job, WALK_PATIENCE_NS);
    r = walk_leads_to_parent(&q->walk, q->call.new_dirfd, new_dir);
    if (r <= 0 || (q->call.old_dirfd == q->call.new_dirfd && strcmp(old_dir, new_dir) == 0))
        return r;
    return walk_leads_to_parent(&q->walk, q->call.old_dirfd, old_dir);
}

static void run(struct deadline_job *job)
{
    struct question *q = (struct question *)job;

    q->answer = find_answer(q);
}

static void destroy(struct deadline_job *job)
{
    free(job);
}

/* A rename that may have been meant, or a request that may have been one, goes unseen. */
static void count_unseen(struct foldfs *fs, const char *why)
{
    if (atomic_fetch_add(&fs->caseonly_unseen, 1) > 0)
        return;
    log_line(LOG_NOTICE,
             "what a program wants to rename cannot always be seen (%s): then a rename that "
             "changes only the case of a name does nothing",
             why);
}

static void answer(struct deadline_job *job, bool done)
{
    struct question *q = (struct question *)job;
    int r = done ? q->answer : -ETIMEDOUT;

    if (r < 0)
        count_unseen(q->fs, !done         ? "its memory"
                            : r == -EBUSY ? "the way of its path"
                                          : "its path");
    if (r > 0) {
        node_forget(q->fs->nodes, q->found.node, 1);
        fs_reply(q->req, -ENOENT);
    } else {
        fs_reply_entry(q->fs, q->req, 0, &q->found);
    }
}

static struct question *question_new(struct foldfs *fs, fuse_req_t req,
                                     const struct target *target,
                                     const struct found_entry *found, enum requester_call what,
                                     const struct rename_call *call)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct question *q = calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    *q = (struct question){
        .job = {.run = run, .answer = answer, .destroy = destroy, .uid = ctx->uid},
        .fs = fs,
        .req = req,
        .found = *found,
        .walk = {.fs = fs,
                 .job = &q->job,
                 .tid = ctx->pid,
                 .dev = fs->shown_dev,
                 .parent = target->parent->id,
                 .name = q->name.bytes},
        .call = *call,
        .is_awake = what == REQUESTER_AWAKE,
    };
    q->name.len = (uint8_t)target->len;
    memcpy(q->name.bytes, target->name, target->len + 1);
    return q;
}

bool caseonly_takes(struct foldfs *fs, fuse_req_t req, const struct target *target,
                    const struct found_entry *found)
{
    struct rename_call call = {0};

    enum requester_call what = requester_look(fuse_req_ctx(req)->pid, &call);
    switch (what) {
    case REQUESTER_ELSEWHERE:
        return false;
    case REQUESTER_UNSEEN:
        count_unseen(fs, "its system call");
        return false;
    case REQUESTER_RENAMES:
        if (call.flags & RENAME_EXCHANGE)
            return false;
        break;
    case REQUESTER_AWAKE:
        break;
    }
    struct question *q = question_new(fs, req, target, found, what, &call);
    if (!q)
        return false;
    deadline_run(fs->helpers, &q->job);
    return true;
}
