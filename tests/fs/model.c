/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * model.c - processes that do everything to the same names through one mount, under any
 * spelling, each result and everything seen afterwards compared with a model that they share;
 * test-model.py mounts the tree and runs this.  See model.h.
 *
 * usage: model mount=DIR source=DIR checks=N [KEY=VALUE...], see the keys below
 *
 * Both directories are the same empty one.  Some processes change it through the mount and
 * check (workers), some change it behind the mount and check (changers), and some look at
 * random names all the time, without any order, so that the kernel has dentries of many
 * spellings (noise).  Prints figures; or the first wrong answer, and exits with 1.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    EXIT_WRONG = 1,
    EXIT_SETUP = 2,
    EXIT_STUCK = 3,
    STUCK_S = 60,      /* without any check: they wait for ever */
    LEAVE_S = 2,       /* for those that may wait for a lock of one that has ended */
    UNKILLABLE_S = 10, /* for those that were killed to end */
    LOOK_US = 20000,
    NOISE_PAUSE_US = 50, /* or it would leave nothing for the others */
};

static pid_t children[PROCESSES_MAX];
static unsigned n_children;

static void open_dirs(struct process *p)
{
    char path[2 * PATH_SIZE];

    for (unsigned dir = 0; dir < DIRS; dir++) {
        dir_path(p, dir, path, PATH_SIZE);
        p->through_fd[dir] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int up = dir_parent[dir];
        snprintf(path, sizeof(path), "%s/%s/%s", world->plan.source,
                 up > 0 ? dir_words[up][world->dirs[up].spelling] : "",
                 dir_words[dir][world->dirs[dir].spelling]);
        p->below_fd[dir] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (p->through_fd[dir] < 0 || p->below_fd[dir] < 0) {
            perror(path);
            exit(EXIT_SETUP);
        }
    }
    if (chdir(world->plan.mount) < 0) {
        perror(world->plan.mount);
        exit(EXIT_SETUP);
    }
}

static struct process process_make(unsigned number)
{
    struct process p = {.number = number,
                        .random = world->plan.seed * 7919 + number * 104729,
                        .counters = &world->counters[number],
                        .doing = "starting"};

    for (unsigned i = 0; i < HELD; i++)
        p.held[i].fd = -1;
    for (unsigned i = 0; i < 8; i++)
        (void)chance(&p, 2);
    return p;
}

static void change_and_check(struct process *p)
{
    struct step step;

    step_change(p, &step);
    for (unsigned i = 0; i < step.n_places; i++)
        check_place(p, &step.places[i]);
    step_end(&step);
}

static void work(struct process *p)
{
    while (!over()) {
        switch (chance(p, 16)) {
        case 0:
            change_cwd(p);
            break;
        case 1:
            dir_respell(p);
            break;
        default:
            change_and_check(p);
        }
        check_held(p);
        if (chance(p, 4) == 0)
            check_cwd(p);
    }
}

static void make_noise(struct process *p)
{
    while (!over()) {
        noise(p);
        if (chance(p, 4) == 0)
            usleep(NOISE_PAUSE_US);
    }
}

static void start(void (*run)(struct process *), bool behind)
{
    struct process p = process_make(n_children);

    /* Each has its own descriptors and working directory; opened before any spelling changes.
     */
    open_dirs(&p);
    p.behind = behind;
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(EXIT_SETUP);
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_mutex_lock(&world->pool_lock); /* till all are there */
        pthread_mutex_unlock(&world->pool_lock);
        run(&p);
        fflush(stdout);
        _exit(0);
    }
    for (unsigned dir = 0; dir < DIRS; dir++) {
        close(p.through_fd[dir]);
        close(p.below_fd[dir]);
    }
    children[n_children++] = pid;
}

/* Those that are left, that is. */
static unsigned reap(int *ret_worst)
{
    unsigned left = 0;
    int status;

    for (unsigned i = 0; i < n_children; i++) {
        if (children[i] == 0)
            continue;
        if (waitpid(children[i], &status, WNOHANG) != children[i]) {
            left++;
            continue;
        }
        children[i] = 0;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SETUP;
        if (code != 0)
            atomic_store(&world->stop, true);
        if (code != 0 && *ret_worst == 0)
            *ret_worst = code;
    }
    return left;
}

static uint64_t sum_of(size_t offset)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < PROCESSES_MAX; i++)
        sum += atomic_load((_Atomic uint64_t *)((char *)&world->counters[i] + offset));
    return sum;
}
#define SUM(member) sum_of(offsetof(struct counters, member))

static void kill_the_rest(void)
{
    for (unsigned i = 0; i < n_children; i++)
        if (children[i] != 0)
            kill(children[i], SIGKILL);
}

/* Waits for all; returns the exit status. */
static int watch_over(void)
{
    int worst = 0;
    uint64_t checks = 0;
    int64_t began = now_ns(), progress = began, stopped = 0;

    while (reap(&worst) > 0) {
        int64_t now = now_ns();
        usleep(LOOK_US);
        if (SUM(checks) != checks) {
            checks = SUM(checks);
            progress = now;
        }
        if (world->plan.seconds && now - began > world->plan.seconds * 1000 * MS)
            atomic_store(&world->stop, true);
        if (atomic_load(&world->stop) && stopped == 0)
            stopped = now;
        if (now - progress > STUCK_S * 1000 * MS && worst == 0) {
            printf("STUCK: no check for %d s after %ju\n", STUCK_S, (uintmax_t)checks);
            worst = EXIT_STUCK;
        }
        int64_t since = now - (stopped ? stopped : progress);
        if (worst != 0 && since > LEAVE_S * 1000 * MS)
            kill_the_rest();
        if (worst != 0 && since > (STUCK_S + LEAVE_S + UNKILLABLE_S) * 1000 * MS)
            break;
    }
    return worst;
}

static bool number(const char *text, const char *key, uint64_t *ret)
{
    size_t len = strlen(key);
    char *end;

    if (strncmp(text, key, len) != 0 || text[len] != '=')
        return false;
    *ret = strtoull(text + len + 1, &end, 10);
    return end != text + len + 1 && *end == '\0';
}

static bool parse(int argc, char *argv[], struct plan *ret)
{
    uint64_t seed = 1, workers = 6, noises = 2, changers = 0, seconds = 0, fast = 0;
    uint64_t unwatched = 0, dirs = 0, names = 0, attr = 0, settle = 0, checks = 0;

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strncmp(arg, "mount=", 6) == 0)
            ret->mount = arg + 6;
        else if (strncmp(arg, "source=", 7) == 0)
            ret->source = arg + 7;
        else if (!number(arg, "checks", &checks) && !number(arg, "seed", &seed) &&
                 !number(arg, "workers", &workers) && !number(arg, "noise", &noises) &&
                 !number(arg, "changers", &changers) && !number(arg, "seconds", &seconds) &&
                 !number(arg, "fast", &fast) && !number(arg, "unwatched", &unwatched) &&
                 !number(arg, "dirs_bound_ms", &dirs) &&
                 !number(arg, "names_bound_ms", &names) &&
                 !number(arg, "attr_bound_ms", &attr) &&
                 !number(arg, "settle_bound_ms", &settle))
            return false;
    }
    ret->checks = checks;
    ret->seed = (unsigned)seed;
    ret->workers = (unsigned)workers;
    ret->noise = (unsigned)noises;
    ret->changers = (unsigned)changers;
    ret->seconds = (unsigned)seconds;
    ret->fast = fast != 0;
    ret->unwatched = unwatched != 0;
    ret->dirs_bound = (int64_t)dirs * MS;
    ret->names_bound = (int64_t)names * MS;
    ret->attr_bound = (int64_t)attr * MS;
    ret->settle_bound = (int64_t)settle * MS;
    return ret->mount && ret->source && checks > 0 &&
           workers + noises + changers < PROCESSES_MAX;
}

static void start_all(const struct plan *plan)
{
    pthread_mutex_lock(&world->pool_lock);
    for (unsigned i = 0; i < plan->workers; i++)
        start(work, false);
    for (unsigned i = 0; i < plan->changers; i++)
        start(work, true);
    for (unsigned i = 0; i < plan->noise; i++)
        start(make_noise, false);
    pthread_mutex_unlock(&world->pool_lock);
}

/* Alone, when nothing is uncertain any more. */
static void last_check(const struct plan *plan)
{
    struct process p = process_make(n_children);
    const int64_t bounds[] = {plan->dirs_bound, plan->names_bound, plan->attr_bound,
                              plan->settle_bound};
    int64_t longest = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(bounds); i++)
        longest = bounds[i] > longest ? bounds[i] : longest;
    if (plan->changers > 0)
        usleep((unsigned)(longest / 1000));
    open_dirs(&p);
    check_all(&p);
}

int main(int argc, char *argv[])
{
    struct plan plan = {0};

    setvbuf(stdout, NULL, _IOFBF, BUFSIZ); /* what a process says stays together */
    if (!parse(argc, argv, &plan)) {
        fprintf(stderr, "usage: model mount=DIR source=DIR checks=N [KEY=N...]\n");
        return EXIT_SETUP;
    }
    int r = world_make(&plan);
    if (r < 0) {
        fprintf(stderr, "model: %s\n", strerror(-r));
        return EXIT_SETUP;
    }
    int64_t began = now_ns();
    start_all(&plan);
    r = watch_over();
    if (r != 0)
        return r;
    last_check(&plan);
    printf("%ju checks, %ju steps, %ju changes of case, %ju looks aside, %ju answers that were "
           "old "
           "and might be, %.1f s\n",
           (uintmax_t)SUM(checks), (uintmax_t)SUM(steps), (uintmax_t)SUM(respelled),
           (uintmax_t)SUM(noise), (uintmax_t)SUM(tolerated),
           (double)(now_ns() - began) / (1e3 * (double)MS));
    return 0;
}
