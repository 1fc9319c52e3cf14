/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * worker.c - a thread of the index that works when it is asked to, or every so many seconds,
 * and ends when told.  A wish while it works is not lost.
 */
#include "index/internal.h"

#include <signal.h>
#include <time.h>

int worker_start(struct worker *worker, void *(*fn)(void *), void *arg)
{
    pthread_condattr_t attr;
    sigset_t all, old;

    worker->stop = worker->wanted = false;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->cond, &attr);
    pthread_condattr_destroy(&attr);
    /* Signals are for the threads of the caller. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&worker->thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    worker->running = r == 0;
    return -r;
}

void worker_stop(struct worker *worker)
{
    if (!worker->running)
        return;
    {
        LOCK_FOR_SCOPE(&worker->lock);
        worker->stop = true;
        pthread_cond_signal(&worker->cond);
    }
    pthread_join(worker->thread, NULL);
    worker->running = false;
    pthread_cond_destroy(&worker->cond);
    pthread_mutex_destroy(&worker->lock);
}

void worker_wake(struct worker *worker)
{
    if (!worker->running)
        return;
    LOCK_FOR_SCOPE(&worker->lock);

    worker->wanted = true;
    pthread_cond_signal(&worker->cond);
}

bool worker_wait(struct worker *worker, unsigned timeout_s)
{
    struct timespec until;
    int r = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_s;
    LOCK_FOR_SCOPE(&worker->lock);
    while (!worker->stop && !worker->wanted && r == 0)
        r = timeout_s ? pthread_cond_timedwait(&worker->cond, &worker->lock, &until)
                      : pthread_cond_wait(&worker->cond, &worker->lock);
    worker->wanted = false;
    return !worker->stop;
}
