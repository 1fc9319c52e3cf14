/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-kill.c - a process that uses the index is killed at a random moment; the next one
 * opens it over the same directory tree, a real one.
 *
 * The child is a small daemon: threads create, remove and rename files in the busy directories
 * of a tree, bracketed and told to the index as the daemon does, while another checkpoints and
 * rebuilds.  Between them lie quiet directories, which are changed now and then by one thread
 * that says in shared memory, after a checkpoint, which of them it has not touched since.
 * After the kill every name of every directory is compared with readdir under two spellings and
 * names that are not there are looked up; quiet directories must be current without a scan.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "index-model.h"
#include "log.h"

#define KILLS     50 /* at scale 1 */
#define KILLS_MAX 1000
#define N_DIRS    24
#define N_QUIET   8 /* the first ones */
#define N_NAMES   120
#define WORKERS   3
#define LIFE_US   60000
/* Kernels before 6.13 stamp by the timer tick, which is 10 ms at most. */
#define COARSE_NS 10000000

struct place {
    int fd;
    struct index_dir *dir;
    pthread_mutex_t names[N_NAMES];
    uint8_t id[INDEX_DIR_ID_MAX];
    size_t id_len;
};

/* What outlives the child. */
struct shared {
    _Atomic uint64_t operations, checkpoints;
    _Atomic bool durable[N_QUIET]; /* unchanged since a checkpoint that ended */
};

struct run {
    char *folder, *tree, *path;
    int64_t granularity_ns;
    struct index *index;
    struct place places[N_DIRS];
    struct shared *shared;
    uint64_t current, scanned, late, looked_up;
};

struct worker {
    struct run *run;
    struct rng rng;
};

/* ---- directories ---- */

static int stat_place(void *ctx, struct index_stamp *ret_stamp)
{
    struct place *place = ctx;
    struct stat st;

    if (fstat(place->fd, &st) < 0)
        return -errno;
    *ret_stamp = (struct index_stamp){
        .ctime_ns = st.st_ctim.tv_sec * 1000000000LL + st.st_ctim.tv_nsec,
        .mtime_ns = st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec,
        .size = st.st_size,
    };
    return 0;
}

/* The spellings of name NUMBER: even ones as they are, odd ones in capitals. */
static size_t spell(unsigned number, unsigned spelling, char *ret_name)
{
    return (size_t)sprintf(ret_name, spelling ? "NAME-%u.TXT" : "name-%u.txt", number);
}

static void open_place(struct run *run, unsigned number)
{
    struct place *place = &run->places[number];
    struct stat st;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%u", run->tree, number);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        abort();
    place->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->fd < 0 || fstat(place->fd, &st) < 0)
        abort();
    memcpy(place->id, &st.st_ino, sizeof(st.st_ino));
    place->id_len = sizeof(st.st_ino);
    for (unsigned i = 0; i < N_NAMES; i++)
        pthread_mutex_init(&place->names[i], NULL);
}

static void open_index(struct run *run)
{
    struct index_options options = {.path = run->path};
    int r = index_open(&options, &run->index);

    for (unsigned i = 0; i < N_DIRS && r == 0; i++) {
        struct place *place = &run->places[i];

        r = index_dir_acquire(run->index, place->id, place->id_len, run->granularity_ns, true,
                              &place->dir);
    }
    if (r < 0) {
        tap_fail("index_open or index_dir_acquire: %s", strerror(-r));
        exit(EXIT_FAILURE);
    }
}

static void scan_place(struct place *place)
{
    struct index_stamp before, after;
    struct index_scan *scan = NULL;
    int r = index_scan_begin(place->dir, &scan);
    DIR *dir;

    if (r < 0 || !scan)
        return;
    stat_place(place, &before);
    dir = fdopendir(openat(place->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *e = readdir(dir); e && r == 0; e = readdir(dir)) {
        if (e->d_name[0] != '.')
            r = index_scan_add(scan, e->d_name, strlen(e->d_name));
    }
    closedir(dir);
    stat_place(place, &after);
    if (r < 0)
        index_scan_abort(scan);
    else
        (void)index_scan_commit(scan, &before, &after);
}

/* ---- the child ---- */

/* One change under the name lock: the file is made, removed, or renamed to its other case. */
static void change(struct worker *t, struct place *place, unsigned number)
{
    char name[2][32];
    size_t len[2] = {spell(number, 0, name[0]), spell(number, 1, name[1])};
    struct index_name found = {0};

    while (index_dir_check(place->dir, stat_place, place) == INDEX_STALE)
        scan_place(place);
    enum index_match match = index_find(place->dir, name[0], len[0], &found);
    if (match == INDEX_UNKNOWN)
        return;
    index_begin_change(place->dir, stat_place, place);
    unsigned have = match == INDEX_EXACT ? 0 : 1, other = 1 - have;
    if (match == INDEX_ABSENT) {
        unsigned s = rng_below(&t->rng, 2);
        int fd = openat(place->fd, name[s], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

        if (fd >= 0)
            index_add(place->dir, name[s], len[s]);
        close(fd);
    } else if (rng_once_in(&t->rng, 2)) {
        if (unlinkat(place->fd, name[have], 0) == 0)
            index_remove(place->dir, name[have], len[have]);
    } else if (renameat(place->fd, name[have], place->fd, name[other]) == 0) {
        index_respell(place->dir, name[have], len[have], name[other], len[other]);
    }
    index_end_change(place->dir, stat_place, place);
}

static void change_one(struct worker *t, unsigned place_number)
{
    struct place *place = &t->run->places[place_number];
    unsigned number = rng_below(&t->rng, N_NAMES);

    pthread_mutex_lock(&place->names[number]);
    change(t, place, number);
    pthread_mutex_unlock(&place->names[number]);
    atomic_fetch_add(&t->run->shared->operations, 1);
}

static void *work(void *arg)
{
    struct worker *t = arg;

    for (;;)
        change_one(t, N_QUIET + rng_below(&t->rng, N_DIRS - N_QUIET));
    return NULL;
}

static bool settled(struct run *run, unsigned number)
{
    struct place *place = &run->places[number];

    return index_dir_check(place->dir, stat_place, place) == INDEX_CURRENT;
}

/* On a coarse clock a stamp must be old before a checkpoint can rest on it. */
static void wait_for_clock(const struct run *run)
{
    if (run->granularity_ns > 0)
        usleep((useconds_t)(3 * run->granularity_ns / 1000));
}

static void tend(struct worker *t)
{
    struct run *run = t->run;
    unsigned touched = rng_below(&t->rng, N_QUIET);
    bool ready[N_QUIET];

    atomic_store(&run->shared->durable[touched], false);
    for (unsigned i = rng_below(&t->rng, 5); i; i--)
        change_one(t, touched);
    wait_for_clock(run);
    for (unsigned i = 0; i < N_QUIET; i++) {
        if (!settled(run, i))
            scan_place(&run->places[i]);
        ready[i] = settled(run, i);
    }
    if (rng_once_in(&t->rng, 6))
        (void)index_rebuild(run->index);
    if (index_checkpoint(run->index) < 0)
        return;
    for (unsigned i = 0; i < N_QUIET; i++)
        atomic_store(&run->shared->durable[i], ready[i]);
    atomic_fetch_add(&run->shared->checkpoints, 1);
}

static void live(struct run *run, uint64_t seed)
{
    struct worker workers[WORKERS + 1];

    open_index(run);
    for (unsigned i = 0; i <= WORKERS; i++) {
        pthread_t thread;

        workers[i] = (struct worker){.run = run, .rng = {seed + i}};
        if (i < WORKERS && pthread_create(&thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    for (;;)
        tend(&workers[WORKERS]);
}

/* ---- the parent ---- */

static bool is_durable(const struct run *run, const struct place *place)
{
    long number = place - run->places;

    return number < N_QUIET && atomic_load(&run->shared->durable[number]);
}

static void expect(struct run *run, struct place *place, const char *name,
                   enum index_match want, const char *want_name)
{
    struct index_name found = {0};
    enum index_match got = index_find(place->dir, name, strlen(name), &found);

    run->looked_up++;
    /* The index may find out by a name that a directory is not what it was, and scan it; but
     * not one that nobody has changed. */
    if (got == INDEX_UNKNOWN && !is_durable(run, place)) {
        run->late++;
        scan_place(place);
        got = index_find(place->dir, name, strlen(name), &found);
    }
    if (got != want || (want_name && strcmp(found.bytes, want_name) != 0))
        tap_fail("directory %ld, %s: %s %s instead of %s %s", (long)(place - run->places), name,
                 model_match_name(got), found.bytes, model_match_name(want),
                 want_name ? want_name : "");
}

static void compare(struct run *run, struct place *place)
{
    for (unsigned i = 0; i < N_NAMES; i++) {
        char name[2][32];
        bool there[2];

        for (unsigned s = 0; s < 2; s++) {
            struct stat st;

            spell(i, s, name[s]);
            there[s] = fstatat(place->fd, name[s], &st, AT_SYMLINK_NOFOLLOW) == 0;
        }
        for (unsigned s = 0; s < 2; s++) {
            if (there[s])
                expect(run, place, name[s], INDEX_EXACT, name[s]);
            else if (there[1 - s])
                expect(run, place, name[s], INDEX_VARIANT, name[1 - s]);
            else
                expect(run, place, name[s], INDEX_ABSENT, NULL);
        }
    }
}

static void inspect(struct run *run)
{
    for (unsigned i = 0; i < N_DIRS; i++) {
        struct place *place = &run->places[i];
        int r = index_dir_check(place->dir, stat_place, place);

        if (is_durable(run, place) && r != INDEX_CURRENT)
            tap_fail("directory %u was not changed since a checkpoint, but is stale", i);
        run->current += r == INDEX_CURRENT;
        for (unsigned tries = 0; r == INDEX_STALE && tries < 5; tries++) {
            run->scanned++;
            scan_place(place);
            wait_for_clock(run);
            r = index_dir_check(place->dir, stat_place, place);
        }
        if (r != INDEX_CURRENT)
            tap_fail("directory %u does not become current", i);
        compare(run, place);
    }
}

static void kill_once(struct run *run, unsigned number)
{
    struct rng rng = {tap_seed() + number * 977};
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0)
        live(run, rng_next(&rng));
    usleep(1000 + rng_below(&rng, LIFE_US));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        tap_fail("the child ended by itself: status %#x", status);
    open_index(run);
    inspect(run);
    for (unsigned i = 0; i < N_DIRS; i++)
        index_dir_release(run->places[i].dir);
    index_close(run->index);
}

static int64_t granularity(void)
{
    struct utsname name;
    int major = 0, minor = 0;

    uname(&name);
    if (sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
        (major > 6 || (major == 6 && minor >= 13)))
        return 0;
    return COARSE_NS;
}

int main(void)
{
    static struct run run;
    unsigned kills = tap_scale() >= 10 ? KILLS_MAX : KILLS;

    setvbuf(stdout, NULL, _IOLBF, 0);
    tap_seed();
    run.shared = mmap(NULL, sizeof(*run.shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run.folder = temp_folder("index-kill");
    run.granularity_ns = granularity();
    if (run.shared == MAP_FAILED || asprintf(&run.tree, "%s/tree", run.folder) < 0 ||
        asprintf(&run.path, "%s/index", run.folder) < 0 || mkdir(run.tree, 0700) < 0)
        return EXIT_FAILURE;
    for (unsigned i = 0; i < N_DIRS; i++)
        open_place(&run, i);
    for (unsigned i = 0; i < kills && !tap_failures(); i++)
        kill_once(&run, i);
    tap_diag("%u kills, %llu changes, %llu checkpoints; %llu directories current, %llu scans, "
             "%llu late ones, %llu names compared",
             kills, (unsigned long long)run.shared->operations,
             (unsigned long long)run.shared->checkpoints, (unsigned long long)run.current,
             (unsigned long long)run.scanned, (unsigned long long)run.late,
             (unsigned long long)run.looked_up);
    if (!run.shared->checkpoints)
        tap_fail("no child lived long enough for a checkpoint");
    tap_line("killed_at_any_moment_every_answer_is_right");
    remove_tree(run.folder);
    return tap_end();
}
