/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * empty-fuse.c - the least that a FUSE server can do: an empty directory in which every name is
 * absent, and no answer is cached.
 *
 *     empty-fuse MOUNTPOINT
 *
 * What it costs is the price of the protocol.  Same libfuse, loop, threads and mount options as
 * foldfs, so that only the work of foldfs itself lies between the two.  Stays in the foreground
 * until it is unmounted.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fs/fuse.h"

/* As many as foldfs is given by the bench. */
#define THREADS 8

static void empty_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    (void)parent, (void)name;
    fuse_reply_err(req, ENOENT);
}

static void empty_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const struct stat st = {.st_ino = ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2};

    (void)fi;
    fuse_reply_attr(req, &st, 1.0);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = empty_lookup,
    .getattr = empty_getattr,
};

static int serve(struct fuse_session *session)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();

    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_max_threads(config, THREADS);
    fuse_loop_cfg_set_idle_threads(config, THREADS);
    int r = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    return r;
}

int main(int argc, char *argv[])
{
    char *fuse_argv[] = {
        argv[0], (char[]){"-o"},
        (char[]){"fsname=empty,subtype=empty,default_permissions,allow_other"}};
    struct fuse_args args = FUSE_ARGS_INIT(3, fuse_argv);

    if (argc != 2) {
        fputs("usage: empty-fuse MOUNTPOINT\n", stderr);
        return 1;
    }
    struct fuse_session *session =
        fuse_session_new(&args, &operations, sizeof(operations), NULL);
    fuse_opt_free_args(&args);
    if (!session)
        return 2;
    int r = fuse_session_mount(session, argv[1]);
    if (r == 0) {
        r = serve(session);
        fuse_session_unmount(session);
    }
    fuse_session_destroy(session);
    return r == 0 ? 0 : 2;
}
