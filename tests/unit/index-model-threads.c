/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-threads.c - many threads against one index.
 *
 * Workers look names up and change them as the daemon does, under name locks of this test's
 * own: (directory, class) has a mutex, which is taken before the look-up and let go after the
 * index was told.  Foreign changes go around the index; they too take the name lock, so that
 * the truth about a name stands still while it is compared.  What else may overlap is a matter
 * of the directory's kind:
 *
 *   OWN      only changes of ours: never stale once it was current
 *   COLD     the same, but nobody holds the directory between two operations
 *   FOREIGN  only foreign changes, scans and look-ups, all at once
 *   TURNS    both, but never a foreign change while a change of ours or a scan is under way
 *   CHAOS    both at once; foreign changes can be lost there by the contract, so they keep to
 *            classes of their own, and only the other classes are compared
 *
 * Beside the workers a foreign changer, and a keeper who checkpoints and rebuilds.  After each
 * round all threads are joined, every name is compared, and the index is closed and opened.
 *
 * Lock order: name locks (by address), quiet, the index, the tree.
 */
#include "index-model-parts.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "index-model.h"

#define OPERATIONS 400000 /* of all workers in all rounds, at scale 1 */
#define ROUNDS     4
#define WORKERS    4
#define N_DIRS     20
#define N_CLASSES  96
/* In CHAOS every third class is for foreign changes. */
#define FOREIGN_EVERY 3

enum kind { OWN, COLD, FOREIGN, TURNS, CHAOS, N_KINDS };

struct place {
    enum kind kind;
    struct model_dir tree;
    struct index_dir *held; /* NULL in a COLD one */
    pthread_rwlock_t quiet;
    pthread_mutex_t names[N_CLASSES];
    atomic_bool was_current;
};

struct party {
    struct model_names names;
    struct place places[N_DIRS];
    struct index *index;
    const char *path;
    atomic_llong left; /* operations */
    atomic_bool stop;
    atomic_ullong scans, stale, compared;
    unsigned failed_before;
};

struct worker {
    struct party *party;
    struct rng rng;
    pthread_t thread;
};

static bool over(struct party *p)
{
    return atomic_load(&p->stop) || tap_failures() != p->failed_before;
}

static struct index_dir *hold(struct party *p, struct place *place)
{
    struct index_dir *dir = NULL;
    int r = index_dir_acquire(p->index, place->tree.id, place->tree.id_len, 0, true, &dir);

    if (r < 0) {
        tap_fail("index_dir_acquire: %s", strerror(-r));
        exit(EXIT_FAILURE);
    }
    return dir;
}

static bool foreign_class(const struct place *place, unsigned class)
{
    return place->kind == CHAOS && class % FOREIGN_EVERY == 0;
}

/* ---- scans ---- */

static int read_all(struct worker *t, struct place *place, struct index_scan *scan)
{
    const struct model_names *names = &t->party->names;
    struct model_reader reader;
    unsigned class;
    uint64_t mask;
    int r = 0;

    model_reader_init(&reader, &place->tree, &t->rng);
    while (r == 0 && model_reader_next(&reader, &class, &mask)) {
        if (rng_once_in(&t->rng, 16))
            sched_yield();
        for (; mask && r == 0; mask &= mask - 1) {
            const struct model_name *name =
                &names->classes[class].spellings[__builtin_ctzll(mask)];

            r = index_scan_add(scan, name->bytes, name->len);
        }
    }
    return r;
}

static void scan_now(struct worker *t, struct place *place, struct index_dir *dir)
{
    struct index_stamp before, after;
    struct index_scan *scan = NULL;
    int r = index_scan_begin(dir, &scan);

    if (r < 0) {
        tap_fail("index_scan_begin: %s", strerror(-r));
        return;
    }
    if (!scan)
        return;
    model_stat(&place->tree, &before);
    r = read_all(t, place, scan);
    if (r < 0)
        tap_fail("index_scan_add: %s", strerror(-r));
    if (r < 0 || rng_once_in(&t->rng, 10)) {
        index_scan_abort(scan);
        return;
    }
    model_stat(&place->tree, &after);
    r = index_scan_commit(scan, &before, &after);
    if (r < 0 && r != -EAGAIN)
        tap_fail("index_scan_commit: %s", strerror(-r));
    if (r == -EAGAIN && (place->kind == OWN || place->kind == COLD))
        tap_fail("commit: EAGAIN, but nobody else changed the directory");
    atomic_fetch_add(&t->party->scans, 1);
}

static void scan(struct worker *t, struct place *place, struct index_dir *dir)
{
    if (place->kind == TURNS)
        pthread_rwlock_rdlock(&place->quiet);
    scan_now(t, place, dir);
    if (place->kind == TURNS)
        pthread_rwlock_unlock(&place->quiet);
}

/* ---- look-ups; the name lock is held ---- */

/* An index in memory may drop what nobody holds. */
static bool must_stay_current(const struct party *p, const struct place *place)
{
    return place->kind == OWN || (place->kind == COLD && p->path);
}

static bool become_current(struct worker *t, struct place *place, struct index_dir *dir)
{
    for (unsigned tries = 0; tries < 4; tries++) {
        int r = index_dir_check(dir, model_stat, &place->tree);

        if (r == INDEX_CURRENT) {
            atomic_store(&place->was_current, true);
            return true;
        }
        if (r != INDEX_STALE)
            tap_fail("index_dir_check: %d", r);
        atomic_fetch_add(&t->party->stale, 1);
        if (must_stay_current(t->party, place) && atomic_load(&place->was_current))
            tap_fail("STALE, but only changes of ours were made (%s)",
                     place->kind == OWN ? "held" : "cold");
        scan(t, place, dir);
    }
    return false;
}

/* From a directory that became incomplete since the check an EXACT is only a hint, and may be
 * an entry that others took away while a scan was reading; so it is asked again. */
static bool only_a_hint(const struct place *place, enum index_match match, uint64_t mask,
                        unsigned spelling)
{
    if (place->kind == OWN || place->kind == COLD)
        return false;
    return match == INDEX_UNKNOWN || (match == INDEX_EXACT && !(mask >> spelling & 1));
}

static void look_up(struct worker *t, struct place *place, struct index_dir *dir,
                    unsigned class, unsigned spelling)
{
    static const char *const where[] = {"own", "cold", "foreign", "turns", "chaos"};
    const struct model_class *k = &t->party->names.classes[class];
    const struct model_name *name = &k->spellings[spelling];
    struct index_name found = {0};
    enum index_match match = INDEX_UNKNOWN;
    uint64_t mask = model_mask(&place->tree, class);

    for (unsigned tries = 0; tries < 5; tries++) {
        if (!become_current(t, place, dir))
            return;
        match = index_find(dir, name->bytes, name->len, &found);
        if (foreign_class(place, class))
            return;
        if (!only_a_hint(place, match, mask, spelling))
            break;
    }
    if (match == INDEX_UNKNOWN && only_a_hint(place, match, mask, spelling))
        return;
    atomic_fetch_add(&t->party->compared, 1);
    model_compare(k, mask, spelling, match, &found, where[place->kind]);
}

/* ---- changes of ours ---- */

static void lock_two(pthread_mutex_t *a, pthread_mutex_t *b)
{
    pthread_mutex_lock(a < b ? a : b);
    if (a != b)
        pthread_mutex_lock(a < b ? b : a);
}

static void unlock_two(pthread_mutex_t *a, pthread_mutex_t *b)
{
    pthread_mutex_unlock(a);
    if (a != b)
        pthread_mutex_unlock(b);
}

static void begin(struct place *place, struct index_dir *dir)
{
    if (place->kind == TURNS)
        pthread_rwlock_rdlock(&place->quiet);
    index_begin_change(dir, model_stat, &place->tree);
}

static void end(struct place *place, struct index_dir *dir)
{
    index_end_change(dir, model_stat, &place->tree);
    if (place->kind == TURNS)
        pthread_rwlock_unlock(&place->quiet);
}

static void put(struct worker *t, struct place *place, struct index_dir *dir, unsigned class,
                unsigned spelling, bool present)
{
    const struct model_name *name = &t->party->names.classes[class].spellings[spelling];

    model_set(&place->tree, class, spelling, present);
    if (rng_once_in(&t->rng, 8))
        sched_yield();
    if (present)
        index_add(dir, name->bytes, name->len);
    else
        index_remove(dir, name->bytes, name->len);
}

static void respell(struct worker *t, struct place *place, struct index_dir *dir,
                    unsigned class, unsigned from, unsigned to)
{
    const struct model_class *k = &t->party->names.classes[class];
    const struct model_name *old = &k->spellings[from], *new = &k->spellings[to];

    model_respell(&place->tree, class, from, to);
    if (rng_once_in(&t->rng, 8))
        sched_yield();
    index_respell(dir, old->bytes, old->len, new->bytes, new->len);
}

static void change(struct worker *t, struct place *place, struct index_dir *dir, unsigned class,
                   unsigned spelling)
{
    uint64_t mask = model_mask(&place->tree, class);
    unsigned first = mask ? (unsigned)__builtin_ctzll(mask) : 0;

    begin(place, dir);
    if (rng_once_in(&t->rng, 10))
        model_touch(&place->tree);
    else if (!mask || rng_once_in(&t->rng, 12))
        put(t, place, dir, class, spelling, true);
    else if (first != spelling && rng_once_in(&t->rng, 2))
        respell(t, place, dir, class, first, spelling);
    else
        put(t, place, dir, class, first, false);
    end(place, dir);
}

/* Moves an entry from one class to another that is free, in the same directory. */
static void rename_entry(struct worker *t, struct place *place, struct index_dir *dir)
{
    unsigned from = rng_below(&t->rng, N_CLASSES), to = rng_below(&t->rng, N_CLASSES);
    uint64_t mask;

    if (from == to || foreign_class(place, from) || foreign_class(place, to))
        return;
    lock_two(&place->names[from], &place->names[to]);
    mask = model_mask(&place->tree, from);
    look_up(t, place, dir, to, 0);
    if (mask && !model_mask(&place->tree, to)) {
        begin(place, dir);
        put(t, place, dir, to, rng_below(&t->rng, t->party->names.classes[to].n), true);
        put(t, place, dir, from, (unsigned)__builtin_ctzll(mask), false);
        end(place, dir);
    }
    unlock_two(&place->names[from], &place->names[to]);
}

static void work_once(struct worker *t)
{
    struct place *place = &t->party->places[rng_below(&t->rng, N_DIRS)];
    unsigned class = rng_below(&t->rng, N_CLASSES);
    unsigned spelling = rng_below(&t->rng, t->party->names.classes[class].n);
    struct index_dir *dir = place->held;

    if (!dir || rng_once_in(&t->rng, 16))
        dir = hold(t->party, place);
    if (rng_once_in(&t->rng, 12) && place->kind != FOREIGN) {
        rename_entry(t, place, dir);
    } else {
        pthread_mutex_lock(&place->names[class]);
        look_up(t, place, dir, class, spelling);
        if (place->kind != FOREIGN && !foreign_class(place, class) && rng_once_in(&t->rng, 2)) {
            change(t, place, dir, class, spelling);
            look_up(t, place, dir, class, spelling);
        }
        pthread_mutex_unlock(&place->names[class]);
    }
    if (place->kind > COLD && rng_once_in(&t->rng, 2000))
        index_dir_void(dir);
    if (place->kind != COLD && rng_once_in(&t->rng, 3000))
        scan(t, place, dir);
    if (dir != place->held)
        index_dir_release(dir);
}

static void *work(void *arg)
{
    struct worker *t = arg;

    while (atomic_fetch_sub(&t->party->left, 1) > 0 && !over(t->party))
        work_once(t);
    return NULL;
}

/* ---- the others ---- */

static void *change_behind(void *arg)
{
    struct worker *t = arg;
    struct party *p = t->party;

    while (!over(p)) {
        struct place *place = &p->places[rng_below(&t->rng, N_DIRS)];
        unsigned class = rng_below(&t->rng, N_CLASSES);
        unsigned spelling = rng_below(&t->rng, p->names.classes[class].n);

        if (place->kind <= COLD)
            continue;
        if (place->kind == CHAOS)
            class -= class % FOREIGN_EVERY;
        spelling %= p->names.classes[class].n;
        pthread_mutex_lock(&place->names[class]);
        if (place->kind == TURNS)
            pthread_rwlock_wrlock(&place->quiet);
        model_set(&place->tree, class, spelling, !model_has(&place->tree, class, spelling));
        if (place->kind == TURNS)
            pthread_rwlock_unlock(&place->quiet);
        pthread_mutex_unlock(&place->names[class]);
        usleep(200 + rng_below(&t->rng, 2000));
    }
    return NULL;
}

static void *keep(void *arg)
{
    struct worker *t = arg;
    struct party *p = t->party;

    while (!over(p)) {
        bool rebuild = rng_once_in(&t->rng, 3);
        int r = rebuild ? index_rebuild(p->index) : index_checkpoint(p->index);

        if (r < 0)
            tap_fail("%s: %s", rebuild ? "index_rebuild" : "index_checkpoint", strerror(-r));
        usleep(1000 + rng_below(&t->rng, 30000));
    }
    return NULL;
}

/* ---- rounds ---- */

static void start(struct worker *t, struct party *p, unsigned number, void *(*body)(void *))
{
    *t = (struct worker){.party = p, .rng = {tap_seed() * 31 + number}};
    if (pthread_create(&t->thread, NULL, body, t) != 0)
        abort();
}

static void run_threads(struct party *p, unsigned round)
{
    struct worker workers[WORKERS], changer, keeper;

    atomic_store(&p->stop, false);
    atomic_store(&p->left, (long long)OPERATIONS * tap_scale() / ROUNDS);
    for (unsigned i = 0; i < WORKERS; i++)
        start(&workers[i], p, round * 16 + i, work);
    start(&changer, p, round * 16 + WORKERS, change_behind);
    start(&keeper, p, round * 16 + WORKERS + 1, keep);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    atomic_store(&p->stop, true);
    pthread_join(changer.thread, NULL);
    pthread_join(keeper.thread, NULL);
}

static void open_all(struct party *p)
{
    struct index_options options = {.path = p->path, .checkpoint_s = 1, .now = model_now};
    int r = index_open(&options, &p->index);

    if (r < 0) {
        printf("Bail out! index_open: %s\n", strerror(-r));
        exit(EXIT_FAILURE);
    }
    for (unsigned i = 0; i < N_DIRS; i++) {
        struct place *place = &p->places[i];

        place->held = place->kind == COLD ? NULL : hold(p, place);
    }
}

static void close_all(struct party *p)
{
    for (unsigned i = 0; i < N_DIRS; i++)
        index_dir_release(p->places[i].held);
    index_close(p->index);
    p->index = NULL;
}

/* No other thread runs: all is comparable, after a scan that nothing disturbs. */
static void compare_place(struct worker *t, struct place *place)
{
    struct index_dir *dir = hold(t->party, place);

    if (place->kind == CHAOS)
        index_dir_void(dir);
    for (unsigned i = 0; i < 100 && !become_current(t, place, dir); i++)
        continue;
    for (unsigned c = 0; c < N_CLASSES; c++) {
        const struct model_class *k = &t->party->names.classes[c];

        for (unsigned s = 0; s < k->n; s++) {
            const struct model_name *name = &k->spellings[s];
            struct index_name found = {0};
            enum index_match match = index_find(dir, name->bytes, name->len, &found);

            model_compare(k, model_mask(&place->tree, c), s, match, &found, "at rest");
        }
    }
    index_dir_release(dir);
}

static void compare_all(struct party *p)
{
    struct worker t = {.party = p, .rng = {tap_seed()}};
    int r = index_verify(p->index);

    if (r < 0)
        tap_fail("index_verify: %s", strerror(-r));
    for (unsigned i = 0; i < N_DIRS; i++)
        compare_place(&t, &p->places[i]);
}

static void init_place(struct place *place, unsigned number, struct party *p)
{
    struct rng rng = {tap_seed() + number};

    place->kind = number % N_KINDS;
    model_dir_init(&place->tree, number, N_CLASSES, 0, true);
    pthread_rwlock_init(&place->quiet, NULL);
    for (unsigned c = 0; c < N_CLASSES; c++) {
        pthread_mutex_init(&place->names[c], NULL);
        if (rng_once_in(&rng, 2))
            model_set(&place->tree, c, rng_below(&rng, p->names.classes[c].n), true);
    }
}

static void free_party(struct party *p)
{
    for (unsigned i = 0; i < N_DIRS; i++) {
        model_dir_free(&p->places[i].tree);
        pthread_rwlock_destroy(&p->places[i].quiet);
        for (unsigned c = 0; c < N_CLASSES; c++)
            pthread_mutex_destroy(&p->places[i].names[c]);
    }
    model_names_free(&p->names);
    free(p);
}

static void run(const char *name, const char *path)
{
    struct party *p = calloc(1, sizeof(*p));
    struct rng rng = {tap_seed()};

    if (!p)
        abort();
    p->path = path;
    p->failed_before = tap_failures();
    model_names_init(&p->names, N_CLASSES, &rng);
    for (unsigned i = 0; i < N_DIRS; i++)
        init_place(&p->places[i], i, p);
    for (unsigned round = 0; round < ROUNDS && tap_failures() == p->failed_before; round++) {
        open_all(p);
        /* What only we changed must be current after an orderly end, without a scan. */
        for (unsigned i = 0; i < N_DIRS && !path; i++)
            atomic_store(&p->places[i].was_current, false);
        compare_all(p);
        run_threads(p, round);
        compare_all(p);
        close_all(p);
    }
    tap_diag("%llu answers compared, %llu scans, %llu stale", (unsigned long long)p->compared,
             (unsigned long long)p->scans, (unsigned long long)p->stale);
    if (p->compared == 0)
        tap_fail("nothing was compared");
    free_party(p);
    tap_line(name);
}

void index_model_threads(const char *folder)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/threads", folder);
    run("threads_agree_with_the_model", path);
    run("threads_in_memory_agree_with_the_model", NULL);
}
