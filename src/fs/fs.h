/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fs.h - one mounted tree, and what the FUSE operations share.
 *
 * The operations are in a file for each family: lookup.c, create.c, remove.c, rename.c, dir.c,
 * open.c, data.c, attr.c, xattr.c, ioctl.c; ops.c lists them.  Each runs in a thread
 * of libfuse's, answers its request exactly once, and begins with fs_begin() or
 * fs_begin_looking().
 *
 * Lock order: name locks (namelock.h); the index's locks; a node's data lock (open.h); the
 * node table's; the descriptor cache's; the file-system list's.
 */
#ifndef FOLDFS_FS_FS_H
#define FOLDFS_FS_FS_H

#include "backing/creds.h"
#include "backing/file.h"
#include "backing/fsys.h"
#include "coherence/scan.h"
#include "coherence/watch.h"
#include <pthread.h>

#include "fs/deadline.h"
#include "fs/fuse.h"
#include "fs/node.h"
#include "fs/notifier.h"
#include "fs/reach.h"
#include "fs/slots.h"
#include "index/index.h"
#include "options.h"

struct foldfs {
    const struct options *options;
    int root_fd;
    struct fsys_list *fsys_list;
    struct index *index;
    struct watch *watch;       /* NULL: changes behind the mount are not told */
    struct notifier *notifier; /* NULL: nothing is told to the kernel */
    struct node_table *nodes;
    struct reach_cache *reach;
    struct slots *files; /* open files */
    struct slots *dirs;  /* open directories */
    struct deadline_pool *helpers;
    struct fuse_session *session;
    uint64_t shown_dev;               /* of the mount, as programs see it; 0: not known */
    _Atomic uint64_t caseonly_unseen; /* see caseonly.c */
    /* Which names the kernel may keep: see dentries.c. */
    _Atomic bool may_be_fast;
    _Atomic bool mounted_inside;
    _Atomic int64_t mounted_inside_ns; /* since when, CLOCK_MONOTONIC */
    pthread_t mounts_thread;
    int mounts_stop_fd[2];
    bool mounts_watched;
    /* Set by ops_init(), when the kernel has said what it can do: */
    bool passthrough;
    bool kill_flag;           /* kill_suidgid of a request can be believed */
    bool refused;             /* the kernel lacks what the options insist on; said in the log */
    void (*ready)(void *ctx); /* called when the kernel's first request has come */
    void *ready_ctx;
};

/* The file system of REQ, with this thread acting as the request's caller.  NULL: the request
 * was answered with an error. */
struct foldfs *fs_begin(fuse_req_t req);

/* The same for a request that only looks: whom the thread acts as does not matter for that, but
 * to a server that decides itself. */
struct foldfs *fs_begin_looking(fuse_req_t req);

/* The same for a request that removes or renames entries. */
struct foldfs *fs_begin_removing(fuse_req_t req);

/* The node with nodeid INO; NULL: REQ was answered with ESTALE. */
struct node *fs_node(struct foldfs *fs, fuse_req_t req, fuse_ino_t ino);

/* The same, and a descriptor on its file; false: REQ was answered with an error. */
bool fs_reach(struct foldfs *fs, fuse_req_t req, fuse_ino_t ino, struct reached *ret_reached);

/* Answers with an errno for R, 0 or negative; errno.h's numbers only. */
void fs_reply(fuse_req_t req, int r);

/* What FUSE is told of a file. */
void fs_attr(const struct node *node, const struct statx *st, struct stat *ret_attr);

/* What FUSE is told of a name that leads to NODE and was found as MATCH: attributes and how
 * long to believe both. */
void fs_entry(const struct foldfs *fs, const struct node *node, const struct statx *st,
              enum index_match match, struct fuse_entry_param *ret_entry);

/* The answer to a request that made or found, as MATCH, the entry NAME in PARENT (open as
 * DIR_FD), whose stat is ST;
 * its node has one kernel reference more.  To be called under the name lock; the answer goes
 * out after that is free (fs_reply_entry), since it wakes a caller whose next request may want
 * it. */
struct found_entry {
    struct node *node;
    struct fuse_entry_param param;
};
int fs_find_entry(struct foldfs *fs, struct node *parent, int dir_fd, const char *name,
                  const struct statx *st, enum index_match match,
                  struct found_entry *ret_found);

/* Answers with an errno if R is negative, else with FOUND. */
void fs_reply_entry(struct foldfs *fs, fuse_req_t req, int r, const struct found_entry *found);

/* A change of ours to directory NODE (open as FD): its stamp will move by it.  Both must
 * outlive the change, which must end before the request is answered. */
struct change {
    struct index_dir *dir; /* NULL: none */
    int fd;
};
#define CHANGE_END __attribute__((cleanup(change_end)))
int change_begin(struct foldfs *fs, struct node *node, int fd, struct change *ret_change);
void change_end(struct change *change);

/* The operations. */
extern const struct fuse_lowlevel_ops fs_ops;

#endif
