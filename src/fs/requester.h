/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * requester.h - what the thread that waits for a request's answer is doing.
 */
#ifndef FOLDFS_FS_REQUESTER_H
#define FOLDFS_FS_REQUESTER_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* A rename, renameat or renameat2, as it was called. */
struct rename_call {
    int old_dirfd, new_dirfd;
    uint64_t old_path, new_path; /* addresses in the requester's memory */
    unsigned int flags;
};

enum requester_call {
    REQUESTER_ELSEWHERE, /* in some other system call */
    REQUESTER_RENAMES,
    REQUESTER_UNSEEN, /* we may not look, or it is no thread that calls */
    REQUESTER_AWAKE,  /* it does not wait yet: look again */
};

/* What is thread TID (0: not of this pid namespace), which waits for our answer, called for?
 * Does not block.  *ret_call is set for REQUESTER_RENAMES. */
enum requester_call requester_look(pid_t tid, struct rename_call *ret_call);

/* The same after REQUESTER_AWAKE: looks again for a second or a little more. */
enum requester_call requester_wait(pid_t tid, struct rename_call *ret_call);

/* Reads the path at ADDRESS in TID's memory.  Blocks as long as whoever serves that page likes.
 * 0, or a negative errno. */
int requester_read_path(pid_t tid, uint64_t address, char ret_path[PATH_MAX]);

#endif
