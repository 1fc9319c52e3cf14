/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-deadline.c - work that others may block for ever: it is answered for in time, once, and
 * no other work waits for it.
 *
 * A job here sleeps on a pipe until it is let go, or computes, or ends at once.  Every job must
 * be answered once and destroyed once, whatever became of it.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fs/deadline.h"
#include "suite.h"

#define ALICE 60001u
#define BOB   60002u

/* More users than the pool has threads. */
#define MANY_USERS 150

/* An answer that waited for nobody comes earlier, even on a busy machine... */
#define AT_ONCE_NS 500000000

/* ... and a job that computes as long as this is slow, but not blocked: the pool asks after 5
 * ms. */
#define COMPUTE_NS 60000000

/* Time for threads that were let go to be done. */
#define SETTLE_MS 10000

#define THREADS      8
#define ROUNDS       2000
#define COMPETITIONS 20

enum what { END_AT_ONCE, BLOCK, BLOCK_LONG, COMPUTE };

/* The patience that BLOCK_LONG asks for. */
#define LONG_NS INT64_C(100000000000)

/* What one who asks gets; he frees it. */
struct outcome {
    sem_t answered;
    atomic_int answers;
    bool done;
};

struct work {
    struct deadline_job job;
    struct outcome *outcome;
    enum what what;
    int gate; /* readable: go on */
    bool ran;
};

/* Of one user, until he is refused. */
#define OVERDUE_MAX 4

static atomic_int alive; /* jobs that were made and not yet destroyed */
static struct deadline_pool *pool;
static int gate[2];

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void wait_at(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    while (poll(&poll_fd, 1, -1) < 1)
        continue;
}

static void compute(void)
{
    for (int64_t end = now_ns() + COMPUTE_NS; now_ns() < end;)
        continue;
}

static void work_run(struct deadline_job *job)
{
    struct work *work = (struct work *)job;

    if (work->what == COMPUTE)
        compute();
    if (work->what == BLOCK_LONG)
        deadline_stage(job, LONG_NS);
    if (work->what == BLOCK || work->what == BLOCK_LONG)
        wait_at(work->gate);
    work->ran = true;
}

static void work_destroy(struct deadline_job *job)
{
    free(job);
    atomic_fetch_sub(&alive, 1);
}

static void work_answer(struct deadline_job *job, bool done)
{
    struct work *work = (struct work *)job;
    struct outcome *outcome = work->outcome;

    ck_assert(!done || work->ran);
    ck_assert_int_eq(atomic_fetch_add(&outcome->answers, 1), 0);
    outcome->done = done;
    sem_post(&outcome->answered);
}

static struct work *work_new(uid_t uid, enum what what, struct outcome *outcome)
{
    struct work *work = calloc(1, sizeof(*work));

    ck_assert_ptr_nonnull(work);
    *work = (struct work){
        .job = {.run = work_run, .answer = work_answer, .destroy = work_destroy, .uid = uid},
        .outcome = outcome,
        .what = what,
        .gate = gate[0],
    };
    atomic_fetch_add(&alive, 1);
    return work;
}

/* What came of a job of UID, 0 or -ETIMEDOUT, and in which time it was answered. */
static int run_for(uid_t uid, enum what what, int64_t *ret_ns)
{
    struct outcome outcome = {.done = false};
    int64_t began = now_ns();

    sem_init(&outcome.answered, 0, 0);
    deadline_run(pool, &work_new(uid, what, &outcome)->job);
    while (sem_wait(&outcome.answered) < 0)
        continue;
    if (ret_ns)
        *ret_ns = now_ns() - began;
    sem_destroy(&outcome.answered);
    return outcome.done ? 0 : -ETIMEDOUT;
}

static void let_go(void)
{
    ck_assert_int_eq(write(gate[1], "x", 1), 1);
}

static void wait_until_destroyed(void)
{
    for (int i = 0; i < SETTLE_MS && atomic_load(&alive) > 0; i++)
        sleep_ms(1);
    ck_assert_int_eq(atomic_load(&alive), 0);
}

static void set_up(void)
{
    ck_assert_int_eq(pipe(gate), 0);
    ck_assert_int_eq(deadline_pool_new(&pool), 0);
}

/* Lets all go, ends the pool unless a test has, and looks that nothing is left. */
static void tear_down(void)
{
    let_go();
    wait_until_destroyed();
    deadline_pool_free(pool);
    sleep_ms(20); /* the last thread's own end, for the leak checker */
    close(gate[0]);
    close(gate[1]);
}

START_TEST(job_runs_and_is_answered_and_destroyed)
{
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(run_for(ALICE, END_AT_ONCE, NULL), 0);
    wait_until_destroyed();
}
END_TEST

START_TEST(blocked_job_is_given_up_and_destroyed_when_it_comes_back)
{
    int64_t took;

    ck_assert_int_eq(run_for(ALICE, BLOCK, &took), -ETIMEDOUT);
    ck_assert_int_lt(took, AT_ONCE_NS);
    ck_assert_int_eq(atomic_load(&alive), 1);
    let_go();
    wait_until_destroyed();
    ck_assert_int_eq(run_for(ALICE, END_AT_ONCE, NULL), 0);
}
END_TEST

START_TEST(user_with_some_overdue_jobs_gets_no_more)
{
    int64_t took;

    for (int i = 0; i < OVERDUE_MAX; i++)
        ck_assert_int_eq(run_for(ALICE, BLOCK, NULL), -ETIMEDOUT);
    for (int i = 0; i < 1000; i++) { /* refused at once: less than the patience for one */
        ck_assert_int_eq(run_for(ALICE, BLOCK, &took), -ETIMEDOUT);
        ck_assert_int_lt(took, AT_ONCE_NS);
    }
    ck_assert_int_eq(atomic_load(&alive), OVERDUE_MAX);
}
END_TEST

START_TEST(overdue_job_hinders_no_other_user)
{
    ck_assert_int_eq(run_for(ALICE, BLOCK, NULL), -ETIMEDOUT);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(run_for(BOB, END_AT_ONCE, NULL), 0);
}
END_TEST

/* There is a bound on threads; beyond it nobody waits, for there is nothing to wait for. */
START_TEST(overdue_jobs_of_many_users_let_nobody_wait)
{
    int64_t took;

    for (unsigned user = 0; user < MANY_USERS; user++) {
        int r = run_for(ALICE + user, BLOCK, &took);
        ck_assert_msg(r == -ETIMEDOUT, "user %u: %d", user, r);
        ck_assert_msg(took < AT_ONCE_NS, "user %u waited %lld ms", user,
                      (long long)took / 1000000);
    }
    (void)run_for(ALICE + MANY_USERS, END_AT_ONCE, &took);
    ck_assert_int_lt(took, AT_ONCE_NS);
    let_go();
    wait_until_destroyed();
    ck_assert_int_eq(run_for(ALICE + MANY_USERS, END_AT_ONCE, NULL), 0);
}
END_TEST

START_TEST(job_that_computes_is_waited_for)
{
    int64_t took;

    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(run_for(ALICE, COMPUTE, &took), 0);
        ck_assert_int_ge(took, COMPUTE_NS);
    }
}
END_TEST

struct competitor {
    pthread_t thread;
    int64_t took;
    int result;
};

static void *compete(void *arg)
{
    struct competitor *own = arg;

    for (int i = 0; i < COMPETITIONS && own->result == 0; i++)
        own->result = run_for(ALICE, COMPUTE, &own->took);
    return NULL;
}

/* Of one user: those that are not overdue do not count.  Many end in the moment in which the
 * pool asks what they are doing. */
START_TEST(jobs_that_compete_for_the_processors_are_waited_for)
{
    struct competitor all[THREADS] = {0};

    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&all[i].thread, NULL, compete, &all[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(all[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_msg(all[i].result == 0, "%d after %lld ms", all[i].result,
                      (long long)all[i].took / 1000000);
}
END_TEST

static void *run_many(void *arg)
{
    unsigned *uid = arg;
    unsigned *ret_lost = arg;
    unsigned lost = 0;

    for (int i = 0; i < ROUNDS; i++)
        lost += run_for(*uid, END_AT_ONCE, NULL) != 0;
    *ret_lost = lost;
    return NULL;
}

START_TEST(short_jobs_of_many_threads_are_all_done)
{
    pthread_t threads[THREADS];
    unsigned uids_then_lost[THREADS], lost = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        uids_then_lost[i] = ALICE + i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_many, &uids_then_lost[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        lost += uids_then_lost[i];
    }
    ck_assert_msg(lost == 0, "%u of %u jobs were given up", lost, THREADS * ROUNDS);
}
END_TEST

START_TEST(end_waits_for_no_blocked_thread)
{
    for (unsigned user = 0; user < 5; user++)
        ck_assert_int_eq(run_for(ALICE + user, BLOCK, NULL), -ETIMEDOUT);
    int64_t began = now_ns();
    deadline_pool_free(pool);
    pool = NULL;
    ck_assert_int_lt(now_ns() - began, AT_ONCE_NS);
    ck_assert_int_eq(atomic_load(&alive), 5);
}
END_TEST

struct asker {
    pthread_t thread;
    int result;
};

static void *ask(void *arg)
{
    struct asker *asker = arg;

    asker->result = run_for(ALICE, BLOCK_LONG, NULL);
    return NULL;
}

/* Patience is the job's own. */
START_TEST(end_answers_what_is_not)
{
    struct asker asker = {.result = 1};

    ck_assert_int_eq(pthread_create(&asker.thread, NULL, ask, &asker), 0);
    sleep_ms(100);
    ck_assert_int_eq(atomic_load(&alive), 1);
    deadline_pool_free(pool);
    pool = NULL;
    pthread_join(asker.thread, NULL);
    ck_assert_int_eq(asker.result, -ETIMEDOUT);
}
END_TEST

START_TEST(blocked_job_comes_back_after_the_end)
{
    ck_assert_int_eq(run_for(ALICE, BLOCK, NULL), -ETIMEDOUT);
    deadline_pool_free(pool);
    pool = NULL;
    let_go();
    wait_until_destroyed();
}
END_TEST

START_TEST(end_of_an_unused_or_no_pool)
{
    deadline_pool_free(pool);
    pool = NULL;
    deadline_pool_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deadline");
    TCase *tests = tcase_create("deadline");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, job_runs_and_is_answered_and_destroyed);
    tcase_add_test(tests, blocked_job_is_given_up_and_destroyed_when_it_comes_back);
    tcase_add_test(tests, user_with_some_overdue_jobs_gets_no_more);
    tcase_add_test(tests, overdue_job_hinders_no_other_user);
    tcase_add_test(tests, overdue_jobs_of_many_users_let_nobody_wait);
    tcase_add_test(tests, job_that_computes_is_waited_for);
    tcase_add_test(tests, jobs_that_compete_for_the_processors_are_waited_for);
    tcase_add_test(tests, short_jobs_of_many_threads_are_all_done);
    tcase_add_test(tests, end_waits_for_no_blocked_thread);
    tcase_add_test(tests, end_answers_what_is_not);
    tcase_add_test(tests, blocked_job_comes_back_after_the_end);
    tcase_add_test(tests, end_of_an_unused_or_no_pool);
    suite_add_tcase(suite, tests);

    return suite_run(suite);
}
