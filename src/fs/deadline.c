/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * deadline.c - work that others may block for ever, done by a thread that a request need not
 * wait for.
 *
 * Reading the memory of a program, or the directories that it names, may take as long as that
 * program likes: it can serve page faults and file systems itself.  So a few threads of our own
 * do it, and whoever asks waits for some milliseconds in which such a thread sleeps; while it
 * computes, or waits for a processor, he goes on waiting.  Who keeps one waiting longer gets no
 * second thread: each user (by uid) has at most one job that is overdue.
 *
 * A job that is given up is the thread's own, which destroys it when it comes back, if ever.
 * It touches nothing but what is its own.
 *
 * Lock: one; nothing is called under it.
 */
#include "fs/deadline.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "backing/creds.h"
#include "common.h"

/* Threads at work, and with those that are blocked. */
#define THREADS_MAX     16u
#define THREADS_MAX_ALL 128u

/* A thread that sleeps at this age of its job is blocked by somebody. */
#define BLOCKED_AFTER_NS 5000000

/* And this is too long for one that is only slow. */
#define SLOW_AFTER_NS 1000000000

/* At the end, for threads that are not blocked to end too. */
#define END_WAIT_NS 100000000

struct deadline_pool {
    pthread_mutex_t lock;
    pthread_cond_t asked;    /* something waits, or the end has come */
    pthread_cond_t finished; /* a job is, a job left, a thread ended */
    struct deadline_job *waiting, *running;
    unsigned threads, idle;
    bool stop;
    bool left; /* its owner is gone: the last thread frees it */
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static struct timespec in_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

int deadline_pool_new(struct deadline_pool **ret_pool)
{
    struct deadline_pool *pool = calloc(1, sizeof(*pool));
    pthread_condattr_t monotonic;

    if (!pool)
        return -ENOMEM;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->asked, NULL);
    pthread_cond_init(&pool->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *ret_pool = pool;
    return 0;
}

static void pool_free(struct deadline_pool *pool)
{
    pthread_cond_destroy(&pool->asked);
    pthread_cond_destroy(&pool->finished);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Waits for a job, with the lock held; NULL: it is time to end. */
static struct deadline_job *take_job(struct deadline_pool *pool)
{
    pool->idle++;
    while (!pool->waiting && !pool->stop)
        pthread_cond_wait(&pool->asked, &pool->lock);
    pool->idle--;
    struct deadline_job *job = pool->stop ? NULL : pool->waiting;
    if (!job)
        return NULL;
    DL_DELETE(pool->waiting, job);
    DL_APPEND(pool->running, job);
    job->tid = gettid();
    return job;
}

static void *work(void *arg)
{
    struct deadline_pool *pool = arg;

    (void)creds_act_as_self();
    pthread_mutex_lock(&pool->lock);
    for (struct deadline_job *job; (job = take_job(pool));) {
        pthread_mutex_unlock(&pool->lock);
        job->run(job);
        atomic_store(&job->done, true);
        pthread_mutex_lock(&pool->lock);
        DL_DELETE(pool->running, job);
        job->finished = true;
        if (job->abandoned)
            job->destroy(job);
        else
            pthread_cond_broadcast(&pool->finished);
    }
    bool last = --pool->threads == 0 && pool->left;
    pthread_cond_broadcast(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
    return NULL;
}

static unsigned count_overdue(struct deadline_pool *pool)
{
    const struct deadline_job *job;
    unsigned n = 0;

    DL_FOREACH (pool->running, job)
        n += job->abandoned;
    return n;
}

/* Is a thread free for one more job, or can one be started?  With the lock held. */
static bool have_thread(struct deadline_pool *pool)
{
    pthread_t thread;
    unsigned waiting = 0;
    struct deadline_job *job;

    DL_COUNT(pool->waiting, job, waiting);
    if (pool->idle > waiting)
        return true;
    unsigned blocked = count_overdue(pool), working = pool->threads - blocked;
    if (working >= THREADS_MAX)
        return true;
    if (pool->threads < THREADS_MAX_ALL && pthread_create(&thread, NULL, work, pool) == 0) {
        pthread_detach(thread);
        pool->threads++;
        working++;
    }
    return working > 0;
}

static bool has_overdue(struct deadline_pool *pool, uid_t uid)
{
    const struct deadline_job *job;

    DL_FOREACH (pool->running, job) {
        if (job->abandoned && job->uid == uid)
            return true;
    }
    return false;
}

/* Reads /proc/self/task/TID/WHAT into TEXT. */
static bool read_of_task(pid_t tid, const char *what, char *text, size_t size)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", (int)tid, what);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, size - 1, file);
    fclose(file);
    text[n] = '\0';
    return true;
}

/* Does thread TID of ours sleep because of somebody?  One that runs, or waits for a processor,
 * does not; nor one that waits for the lock of another program's memory, which that program
 * holds while it maps some (wchan of proc(5): what waits for a lock is the caller of that). */
static bool sleeps(pid_t tid)
{
    char text[512];

    if (!read_of_task(tid, "stat", text, sizeof(text)))
        return true;
    const char *name_end = strrchr(text, ')');
    if (name_end && strncmp(name_end, ") R", 3) == 0)
        return false;
    return !read_of_task(tid, "wchan", text, sizeof(text)) ||
           strncmp(text, "process_vm_rw", strlen("process_vm_rw")) != 0;
}

/* Waits for JOB's end, with the lock held; false: it is blocked. */
static bool wait_for(struct deadline_pool *pool, const struct deadline_job *job)
{
    int64_t began = now_ns(), limit = began;

    while (!job->finished) {
        limit += BLOCKED_AFTER_NS;
        const struct timespec until = in_ns(limit);
        while (!job->finished &&
               pthread_cond_timedwait(&pool->finished, &pool->lock, &until) != ETIMEDOUT)
            continue;
        if (job->finished)
            break;
        /* A thread that sleeps because it waits for our lock is done. */
        bool blocked = job->tid && sleeps(job->tid) && !atomic_load(&job->done);
        if (blocked || limit - began > SLOW_AFTER_NS)
            return false;
    }
    return true;
}

int deadline_run(struct deadline_pool *pool, struct deadline_job *job)
{
    job->pool = pool;
    pthread_mutex_lock(&pool->lock);
    if (pool->stop || has_overdue(pool, job->uid) || !have_thread(pool)) {
        pthread_mutex_unlock(&pool->lock);
        job->destroy(job);
        return -EBUSY;
    }
    DL_APPEND(pool->waiting, job);
    pthread_cond_signal(&pool->asked);
    if (wait_for(pool, job)) {
        pthread_mutex_unlock(&pool->lock);
        return 0;
    }
    if (job->tid) {
        job->abandoned = true;
    } else {
        DL_DELETE(pool->waiting, job);
        job->destroy(job);
    }
    pthread_mutex_unlock(&pool->lock);
    return -ETIMEDOUT;
}

void deadline_pool_free(struct deadline_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->asked);
    const struct timespec until = in_ns(now_ns() + END_WAIT_NS);
    while (pool->threads > 0 &&
           pthread_cond_timedwait(&pool->finished, &pool->lock, &until) != ETIMEDOUT)
        continue;
    bool last = pool->threads == 0;
    pool->left = true;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
}
