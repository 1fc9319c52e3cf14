/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * deadline.h - work that others may block for ever, done by a thread that a request need not
 * wait for.
 */
#ifndef FOLDFS_FS_DEADLINE_H
#define FOLDFS_FS_DEADLINE_H

#include <stdbool.h>
#include <sys/types.h>

struct deadline_pool;

/* What is to be done, as the first member of the caller's own structure, all zero but for run,
 * destroy and uid.  Whoever asked may be gone before it is: it has everything by value. */
struct deadline_job {
    void (*run)(struct deadline_job *job);
    void (*destroy)(struct deadline_job *job); /* frees it, after run() or without */
    uid_t uid;                                 /* of the one for whom it is done */
    /* deadline.c's: */
    struct deadline_pool *pool;
    struct deadline_job *prev, *next; /* waiting, or running */
    pid_t tid;                        /* of the thread that runs it; 0: none yet */
    _Atomic bool done;                /* run() is back; the rest is under the pool's lock */
    bool finished, abandoned;
};

int deadline_pool_new(struct deadline_pool **ret_pool);

/* Threads that are blocked for ever are left to the end of the process.  NULL does nothing. */
void deadline_pool_free(struct deadline_pool *pool);

/* Runs JOB in another thread.  0: it ran, and the caller looks at its result and destroys it.
 * Else it is the pool's now: -ETIMEDOUT if it blocked for long, -EBUSY if another job for the
 * same user does or no thread is free.  Any thread, with no lock that a job may want. */
int deadline_run(struct deadline_pool *pool, struct deadline_job *job);

#endif
