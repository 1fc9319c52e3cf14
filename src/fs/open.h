/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * open.h - opening, creating and closing files, and what is known of an inode while and after
 * it is open.
 */
#ifndef FOLDFS_FS_OPEN_H
#define FOLDFS_FS_OPEN_H

#include "fs/fs.h"

/* What is known of a file that is or was open; made at the first open, gone with its node. */
struct node_data {
    pthread_mutex_t lock;
    uint32_t opens;
    int32_t backing_id; /* of the kernel, while open in passthrough mode; else 0 */
    /* As the file was when it was opened last: pages cached since then are good if it still is.
     */
    struct index_stamp seen;
    int64_t seen_at_ns;
    _Atomic bool
        setgid; /* it had the setgid bit when it was opened last, or was given it since */
};

/* NULL does nothing. */
void node_data_free(struct node_data *data);

/* What is known of NODE; made if need be.  -ENOMEM. */
int node_data_get(struct node *node, struct node_data **ret_data);

/* One open of a file by the kernel; fi->fh is its number in fs->files. */
struct open_file {
    uint64_t id;
    struct node *node;
    int fd;             /* as the program opened it, but never O_DIRECT */
    _Atomic int append; /* O_APPEND if FD has it */
};

/* The open file that FI means; NULL: REQ was answered with EBADF. */
struct open_file *fs_open_file(struct foldfs *fs, fuse_req_t req,
                               const struct fuse_file_info *fi);

/* Closes those that the kernel did not release, and frees their table: at the end of the
 * session. */
void fs_close_files(struct foldfs *fs);

/* Must a change of the file's content made by REQ clear its setuid bits? */
bool fs_must_kill(const struct foldfs *fs, fuse_req_t req, const struct fuse_file_info *fi);

/* This thread now acts as the caller of REQ, whose change of the content of the file FD clears
 * set-id bits as it does for a process without CAP_FSETID.  0 or a negative errno. */
int fs_act_clearing_setid(fuse_req_t req, int fd);

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi);
void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

#endif
