/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * deadline.h - work that others may block for ever, and an answer that does not wait for it.
 */
#ifndef FOLDFS_FS_DEADLINE_H
#define FOLDFS_FS_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct deadline_pool;

/* What is to be done, as the first member of the caller's own structure, all zero but for the
 * functions and uid.  Whoever asked may be gone before it is: what it has of others it has by
 * value, or touches only between deadline_enter() and deadline_leave(). */
struct deadline_job {
    /* The work, in a thread of the pool's.  May never come back. */
    void (*run)(struct deadline_job *job);
    /* Called exactly once, in some thread: with true after run(), or with false if that blocks,
     * or was not begun.  run() may go on meanwhile, so what it writes may only be read with
     * true. */
    void (*answer)(struct deadline_job *job, bool done);
    /* Frees it, after both. */
    void (*destroy)(struct deadline_job *job);
    uid_t uid; /* of the one for whom it is done */
    /* deadline.c's: */
    struct deadline_pool *pool;
    struct deadline_job *prev, *next; /* waiting, or running */
    pid_t tid;                        /* of the thread that runs it */
    int64_t began_ns;                 /* it, or its present stage, CLOCK_MONOTONIC */
    int64_t asked_ns;
    int64_t patience_ns;
    _Atomic bool done;
    bool answered, is_answering, overdue;
    unsigned inside;
};

int deadline_pool_new(struct deadline_pool **ret_pool);

/* Answers what is left, and ends; threads that are blocked for ever are left to the end of the
 * process.  NULL does nothing. */
void deadline_pool_free(struct deadline_pool *pool);

/* Has JOB, which is the pool's from now on, run and answered; returns at once.  It is answered
 * with false at once if too many jobs for the same user, or for all, are blocked.  Any thread,
 * with no lock that answer() wants. */
void deadline_run(struct deadline_pool *pool, struct deadline_job *job);

/* By run(): from now on a sleep of PATIENCE_NS means that it is blocked. */
void deadline_stage(struct deadline_job *job, int64_t patience_ns);

/* By run(), around what it does with structures of others; may nest.  False: the pool ends,
 * they may be gone.  What is done inside must not be blocked by those for whom it is done. */
bool deadline_enter(struct deadline_job *job);
void deadline_leave(struct deadline_job *job);

#endif
