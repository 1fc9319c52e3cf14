/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * deadline.c - work that others may block for ever, and an answer that does not wait for it.
 *
 * Reading the memory of a program, or the directories that it names, may take as long as that
 * program likes: it can serve page faults and file systems itself.  So threads of our own do
 * it, and no request thread waits for them: the answer is given by whoever has it first, the
 * thread that did the work, or a watcher who sees that it sleeps.  While it computes, or waits
 * for a processor, it is waited for.
 *
 * Who blocks a few threads gets no more: each user (by uid) has so many jobs that are overdue.
 * Threads that are blocked do not count among those that others may use.
 *
 * The work touches nothing but what is its own, so that it may come back at any time; or it
 * says when it does, and the end waits for that.
 *
 * Lock: one; nothing is called under it.
 */
#include "fs/deadline.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "backing/creds.h"
#include "common.h"

/* Threads at work, and with those that are blocked. */
#define THREADS_MAX     16u
#define THREADS_MAX_ALL 128u

/* Of one user. */
#define OVERDUE_MAX 4u

/* How often the watcher looks at jobs. */
#define LOOK_NS 5000000

/* This is too long for work that is only slow, or waits for a thread. */
#define SLOW_AFTER_NS INT64_C(2000000000)

/* At the end, for threads that are not blocked to end too. */
#define END_WAIT_NS 100000000

struct deadline_pool {
    pthread_mutex_t lock;
    pthread_cond_t asked;    /* workers: something waits, or the end has come */
    pthread_cond_t to_watch; /* the watcher: the same */
    pthread_cond_t changed;  /* a job was answered, a thread ended */
    struct deadline_job *waiting, *running;
    unsigned threads, idle;
    pthread_t watcher;
    bool has_watcher;
    bool stop;
    bool left; /* its owner is gone: the last thread frees it */
};

static struct timespec in_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* ---- is it blocked? ---- */

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
 * does not; nor one that waits for a lock of ours, or for that of another program's memory,
 * which that program holds while it maps some (wchan of proc(5): what waits for a lock of the
 * kernel is the caller of that). */
static bool sleeps(pid_t tid)
{
    static const char *const harmless[] = {"futex", "process_vm_rw"};
    char text[512];

    if (!read_of_task(tid, "stat", text, sizeof(text)))
        return true;
    const char *name_end = strrchr(text, ')');
    if (name_end && strncmp(name_end, ") R", 3) == 0)
        return false;
    if (!read_of_task(tid, "wchan", text, sizeof(text)))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        if (strncmp(text, harmless[i], strlen(harmless[i])) == 0)
            return false;
    return true;
}

/* With the lock held. */
static bool is_blocked(const struct deadline_job *job, int64_t now)
{
    if (now - job->asked_ns > SLOW_AFTER_NS)
        return true;
    /* A thread that sleeps because it waits for our lock is done. */
    return now - job->began_ns >= job->patience_ns && sleeps(job->tid) &&
           !atomic_load(&job->done);
}

/* ---- answering; with the lock held, which is dropped meanwhile ---- */

static void answer(struct deadline_pool *pool, struct deadline_job *job, bool done)
{
    if (job->answered)
        return;
    job->answered = job->is_answering = true;
    pthread_mutex_unlock(&pool->lock);
    job->answer(job, done);
    pthread_mutex_lock(&pool->lock);
    job->is_answering = false;
    pthread_cond_broadcast(&pool->changed);
}

/* Answers one job that is overdue; false: none is. */
static bool answer_one(struct deadline_pool *pool)
{
    int64_t now = monotonic_ns();
    struct deadline_job *job;

    DL_FOREACH (pool->running, job) {
        if (job->answered || !is_blocked(job, now))
            continue;
        job->overdue = true;
        answer(pool, job, false);
        return true;
    }
    job = pool->waiting; /* the oldest */
    if (!job || now - job->asked_ns <= SLOW_AFTER_NS)
        return false;
    DL_DELETE(pool->waiting, job);
    answer(pool, job, false);
    job->destroy(job);
    return true;
}

/* With the lock held: a running job that is not answered, or whose answer is under way. */
static struct deadline_job *find_open(const struct deadline_pool *pool)
{
    struct deadline_job *job;

    DL_FOREACH (pool->running, job) {
        if (!job->answered || job->is_answering)
            return job;
    }
    return NULL;
}

static void *watch(void *arg)
{
    struct deadline_pool *pool = arg;

    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (!pool->waiting && !find_open(pool)) {
            pthread_cond_wait(&pool->to_watch, &pool->lock);
            continue;
        }
        const struct timespec until = in_ns(monotonic_ns() + LOOK_NS);
        while (!pool->stop &&
               pthread_cond_timedwait(&pool->changed, &pool->lock, &until) != ETIMEDOUT)
            continue;
        while (!pool->stop && answer_one(pool))
            continue;
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- workers ---- */

static void pool_free(struct deadline_pool *pool)
{
    pthread_cond_destroy(&pool->asked);
    pthread_cond_destroy(&pool->to_watch);
    pthread_cond_destroy(&pool->changed);
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
    job->began_ns = monotonic_ns();
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
        answer(pool, job, true);
        while (job->is_answering)
            pthread_cond_wait(&pool->changed, &pool->lock);
        DL_DELETE(pool->running, job);
        job->destroy(job);
    }
    bool last = --pool->threads == 0 && pool->left;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
    return NULL;
}

static unsigned count_overdue(const struct deadline_pool *pool)
{
    const struct deadline_job *job;
    unsigned n = 0;

    DL_FOREACH (pool->running, job)
        n += job->overdue;
    return n;
}

/* Is a thread there for one more job, now or soon, or can one be started?  With the lock held.
 */
static bool have_thread(struct deadline_pool *pool)
{
    struct deadline_job *job;
    unsigned waiting = 0;
    pthread_t thread;

    DL_COUNT(pool->waiting, job, waiting);
    if (pool->idle > waiting)
        return true;
    unsigned working = pool->threads - count_overdue(pool);
    if (working >= THREADS_MAX)
        return true;
    if (pool->threads < THREADS_MAX_ALL && pthread_create(&thread, NULL, work, pool) == 0) {
        pthread_detach(thread);
        pool->threads++;
        working++;
    }
    return working > 0;
}

static bool has_too_many_overdue(const struct deadline_pool *pool, uid_t uid)
{
    const struct deadline_job *job;
    unsigned n = 0;

    DL_FOREACH (pool->running, job)
        n += job->overdue && job->uid == uid;
    return n >= OVERDUE_MAX;
}

static bool have_watcher(struct deadline_pool *pool)
{
    if (!pool->has_watcher)
        pool->has_watcher = pthread_create(&pool->watcher, NULL, watch, pool) == 0;
    return pool->has_watcher;
}

/* False: it cannot be. */
static bool enqueue(struct deadline_pool *pool, struct deadline_job *job)
{
    LOCK_FOR_SCOPE(&pool->lock);
    if (pool->stop || has_too_many_overdue(pool, job->uid) || !have_watcher(pool) ||
        !have_thread(pool))
        return false;
    job->asked_ns = monotonic_ns();
    job->patience_ns = LOOK_NS;
    DL_APPEND(pool->waiting, job);
    pthread_cond_signal(&pool->asked);
    pthread_cond_signal(&pool->to_watch);
    return true;
}

void deadline_run(struct deadline_pool *pool, struct deadline_job *job)
{
    job->pool = pool;
    if (enqueue(pool, job))
        return;
    job->answer(job, false);
    job->destroy(job);
}

void deadline_stage(struct deadline_job *job, int64_t patience_ns)
{
    LOCK_FOR_SCOPE(&job->pool->lock);
    job->began_ns = monotonic_ns();
    job->patience_ns = patience_ns;
}

bool deadline_enter(struct deadline_job *job)
{
    LOCK_FOR_SCOPE(&job->pool->lock);
    if (job->pool->stop && job->inside == 0)
        return false;
    job->inside++;
    return true;
}

void deadline_leave(struct deadline_job *job)
{
    LOCK_FOR_SCOPE(&job->pool->lock);
    job->inside--;
    pthread_cond_broadcast(&job->pool->changed);
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
    pthread_cond_init(&pool->to_watch, NULL);
    pthread_cond_init(&pool->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *ret_pool = pool;
    return 0;
}

/* Answers all that is not; with the lock held. */
static void answer_all(struct deadline_pool *pool)
{
    struct deadline_job *job;

    while ((job = pool->waiting)) {
        DL_DELETE(pool->waiting, job);
        answer(pool, job, false);
        job->destroy(job);
    }
    while ((job = find_open(pool))) {
        if (job->answered) {
            pthread_cond_wait(&pool->changed, &pool->lock);
            continue;
        }
        job->overdue = true;
        answer(pool, job, false);
    }
}

static bool anybody_inside(const struct deadline_pool *pool)
{
    const struct deadline_job *job;

    DL_FOREACH (pool->running, job) {
        if (job->inside > 0)
            return true;
    }
    return false;
}

void deadline_pool_free(struct deadline_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->asked);
    pthread_cond_broadcast(&pool->to_watch);
    pthread_mutex_unlock(&pool->lock);
    if (pool->has_watcher)
        pthread_join(pool->watcher, NULL);
    pthread_mutex_lock(&pool->lock);
    answer_all(pool);
    while (anybody_inside(pool))
        pthread_cond_wait(&pool->changed, &pool->lock);
    const struct timespec until = in_ns(monotonic_ns() + END_WAIT_NS);
    while (pool->threads > 0 &&
           pthread_cond_timedwait(&pool->changed, &pool->lock, &until) != ETIMEDOUT)
        continue;
    bool last = pool->threads == 0;
    pool->left = true;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
}
