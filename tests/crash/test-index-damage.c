/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-damage.c - an index whose files were damaged while nobody used them: never a
 * crash, never a wrong answer, and a scan mends it.
 *
 * A world of several hundred names is built and closed in order, with removed names and
 * variants.  Each case damages a copy of the files in one way, opens it and asks for every name
 * under every spelling: an answer of a directory that index_dir_check() calls current must be
 * right, whatever it is.  Then what is stale is scanned, and everything must be right, and
 * again after closing and opening.
 *
 * Cases run in child processes, a batch in each, so that a crash is one failure with a number.
 * FOLDFS_TEST_CASE runs one case alone, in this process.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "index-files.h"
#include "index-model-driver.h"
#include "index/format.h"
#include "log.h"

#define N_DIRS    8
#define N_CLASSES 72
#define BATCH     64
/* Sampled positions of a file at scale 1; at scale 10 every byte of every file. */
#define SAMPLES 150
/* Blocks that disks lose whole, and lines that a table is made of. */
#define BLOCK 64

enum damage {
    FLIP_BIT,
    FLIP_BYTE,
    RANDOM_BYTE,
    ZERO_BLOCK,
    RANDOM_BLOCK,
    ZERO_SECTOR,
    CUT,
    EXTEND,
    SWAP_BLOCKS,
    SWAP_PAGES,
    OLDER_FILE,
    MISSING_FILE,
    N_DAMAGE
};

static const char *const damage_names[N_DAMAGE] = {
    "flipped_bits_never_give_a_wrong_answer",
    "inverted_bytes_never_give_a_wrong_answer",
    "random_bytes_never_give_a_wrong_answer",
    "zeroed_lines_never_give_a_wrong_answer",
    "random_lines_never_give_a_wrong_answer",
    "zeroed_sectors_never_give_a_wrong_answer",
    "cut_files_never_give_a_wrong_answer",
    "stretched_files_never_give_a_wrong_answer",
    "exchanged_lines_never_give_a_wrong_answer",
    "exchanged_pages_never_give_a_wrong_answer",
    "older_copies_of_a_file_never_give_a_wrong_answer",
    "missing_files_never_give_a_wrong_answer",
};

struct damage_case {
    enum damage damage;
    unsigned file;
    size_t at;
};

struct lab {
    struct driver t;
    struct file_set older, newer;
    char *folder;
    unsigned n_cases, room;
    struct damage_case *cases;
};

static void add_case(struct lab *lab, enum damage damage, unsigned file, size_t at)
{
    if (lab->n_cases == lab->room) {
        lab->room = lab->room ? lab->room * 2 : 1024;
        lab->cases = realloc(lab->cases, lab->room * sizeof(*lab->cases));
        if (!lab->cases)
            abort();
    }
    lab->cases[lab->n_cases++] = (struct damage_case){damage, file, at};
}

/* Every byte of the headers and of the manifest, for the kinds that hit one byte. */
static void add_header_cases(struct lab *lab, enum damage damage, unsigned file)
{
    size_t len = lab->newer.files[file].len;

    if (damage > RANDOM_BYTE)
        return;
    for (size_t at = 0; at < len && at < sizeof(struct file_header); at++)
        add_case(lab, damage, file, at);
}

/* Space that was never written is most of a small index: positions that hold something are
 * taken three times out of four. */
static size_t pick_position(struct lab *lab, const struct file_bytes *file)
{
    struct rng *rng = &lab->t.w.rng;
    bool wanted = !rng_once_in(rng, 4);
    size_t at = 0;

    for (unsigned tries = 0; tries < 50; tries++) {
        at = rng_below(rng, (unsigned)file->len);
        if (!wanted || file->data[at])
            break;
    }
    return at;
}

static void add_cases(struct lab *lab, enum damage damage)
{
    for (unsigned f = 0; f < lab->newer.n; f++) {
        const struct file_bytes *file = &lab->newer.files[f];

        if (damage == OLDER_FILE || damage == MISSING_FILE) {
            add_case(lab, damage, f, 0);
            continue;
        }
        add_header_cases(lab, damage, f);
        if (tap_scale() >= 10 && damage <= RANDOM_BYTE) {
            for (size_t at = 0; at < file->len; at++)
                add_case(lab, damage, f, at);
            continue;
        }
        for (unsigned i = 0; i < SAMPLES * tap_scale(); i++)
            add_case(lab, damage, f, pick_position(lab, file));
    }
}

static void swap(uint8_t *a, uint8_t *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = a[i];

        a[i] = b[i];
        b[i] = byte;
    }
}

static void swap_with_another(struct file_bytes *file, size_t at, size_t size, struct rng *rng)
{
    size_t n = file->len / size;
    size_t other = n ? rng_below(rng, (unsigned)n) : 0;

    if (at / size < n)
        swap(file->data + at / size * size, file->data + other * size, size);
}

static void fill(struct file_bytes *file, size_t at, size_t size, struct rng *rng)
{
    size_t from = at / size * size;

    for (size_t i = from; i < from + size && i < file->len; i++)
        file->data[i] = rng ? (uint8_t)rng_next(rng) : 0;
}

static void extend(struct file_bytes *file, size_t by, struct rng *rng)
{
    file->data = realloc(file->data, file->len + by);
    if (!file->data)
        abort();
    for (size_t i = 0; i < by; i++)
        file->data[file->len + i] = (uint8_t)rng_next(rng);
    file->len += by;
}

static void use_older(struct lab *lab, struct file_bytes *file)
{
    struct file_bytes *old = file_set_find(&lab->older, file->path);

    if (!old)
        return;
    free(file->data);
    file->data = malloc(old->len + 1);
    if (!file->data)
        abort();
    memcpy(file->data, old->data, old->len);
    file->len = old->len;
}

static void inflict(struct lab *lab, const struct damage_case *c, struct file_set *set,
                    struct rng *rng)
{
    struct file_bytes *file = &set->files[c->file];

    switch (c->damage) {
    case FLIP_BIT:
        file->data[c->at] ^= (uint8_t)(1 << rng_below(rng, 8));
        break;
    case FLIP_BYTE:
        file->data[c->at] ^= 0xff;
        break;
    case RANDOM_BYTE:
        file->data[c->at] ^= (uint8_t)(1 + rng_below(rng, 255));
        break;
    case ZERO_BLOCK:
        fill(file, c->at, BLOCK, NULL);
        break;
    case RANDOM_BLOCK:
        fill(file, c->at, BLOCK, rng);
        break;
    case ZERO_SECTOR:
        fill(file, c->at, 512, NULL);
        break;
    case CUT:
        file->len = c->at;
        break;
    case EXTEND:
        extend(file, 1 + rng_below(rng, 10000), rng);
        break;
    case SWAP_BLOCKS:
        swap_with_another(file, c->at, BLOCK, rng);
        break;
    case SWAP_PAGES:
        swap_with_another(file, c->at, 4096, rng);
        break;
    case OLDER_FILE:
        use_older(lab, file);
        break;
    case MISSING_FILE:
        free(file->data);
        *file = set->files[--set->n];
        break;
    default:
        abort();
    }
}

static void ask_everything(struct world *w)
{
    for (unsigned i = 0; i < w->n_dirs; i++) {
        if (world_check(w, &w->dirs[i]) >= 0)
            world_find_all(w, &w->dirs[i]);
    }
}

/* What is still suspect may turn out to be damaged while it is asked: then it is scanned. */
static void mend(struct world *w, struct world_dir *d)
{
    for (unsigned i = 0; i < 4; i++) {
        if (world_check(w, d) == INDEX_STALE)
            world_scan_whole(w, d);
        world_find_all(w, d);
        if (d->complete == COMPLETE_YES)
            return;
    }
    tap_fail("scans do not mend a directory");
}

static void run_case(struct lab *lab, unsigned number)
{
    const struct damage_case *c = &lab->cases[number];
    struct rng rng = {tap_seed() + number};
    struct world *w = &lab->t.w;
    struct file_set set;
    unsigned before = tap_failures();

    file_set_copy(&lab->newer, &set);
    inflict(lab, c, &set, &rng);
    remove_tree(w->path);
    file_set_write(&set, w->path);
    file_set_free(&set);
    world_expect_little(w);
    world_open(w);
    ask_everything(w);
    if (tap_failures() == before) {
        for (unsigned i = 0; i < w->n_dirs; i++)
            mend(w, &w->dirs[i]);
    }
    world_close(w);
    if (number % 4 == 0 && tap_failures() == before) {
        world_expect_little(w);
        world_open(w);
        ask_everything(w);
        world_close(w);
    }
    if (tap_failures() != before)
        tap_diag("in case %u: %s, %s at %zu", number, damage_names[c->damage],
                 lab->newer.files[c->file].path, c->at);
}

/* ---- batches in children ---- */

struct progress {
    unsigned at;
    unsigned failed;
};

static void run_batch(struct lab *lab, unsigned from, unsigned to, struct progress *progress)
{
    for (unsigned i = from; i < to; i++) {
        unsigned before = tap_failures();

        progress->at = i;
        run_case(lab, i);
        progress->failed += tap_failures() != before;
    }
    /* Not exit(): leaving the lab as it is would be a leak to a sanitizer. */
    _exit(0);
}

/* Runs cases from FROM on; the next one to run. */
static unsigned batch(struct lab *lab, unsigned from, unsigned to, struct progress *progress)
{
    int status = 0;
    pid_t pid;

    if (to > from + BATCH)
        to = from + BATCH;
    fflush(stdout);
    *progress = (struct progress){.at = from};
    pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0) {
        alarm(120);
        run_batch(lab, from, to, progress);
    }
    waitpid(pid, &status, 0);
    for (unsigned i = 0; i < progress->failed; i++)
        tap_fail("a wrong answer, see above");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return to;
    const struct damage_case *c = &lab->cases[progress->at];
    tap_fail("case %u (%s at %zu) ended by %s %d", progress->at, lab->newer.files[c->file].path,
             c->at, WIFSIGNALED(status) ? "signal" : "exit",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return progress->at + 1;
}

/* ---- the undamaged index ---- */

static void change_at_random(struct lab *lab, unsigned steps)
{
    uint64_t until = lab->t.w.stats.operations + steps;

    while (lab->t.w.stats.operations < until)
        driver_step(&lab->t);
    driver_calm(&lab->t);
    for (unsigned i = 0; i < N_DIRS; i++)
        atomic_store(&lab->t.w.dirs[i].tree.stat_fails, 0);
}

static void build(struct lab *lab)
{
    struct world *w = &lab->t.w;
    CLEANUP_FREE char *path = NULL;

    if (asprintf(&path, "%s/index", lab->folder) < 0)
        abort();
    world_init(w, tap_seed(), N_DIRS, N_CLASSES, WORLD_EXACT, path);
    world_open(w);
    change_at_random(lab, 20000);
    /* What went wrong so far is for the model test to tell. */
    for (unsigned i = 0; i < N_DIRS; i++) {
        world_void(w, &w->dirs[i]);
        world_settle(w, &w->dirs[i]);
    }
    world_close(w);
    file_set_read(w->path, &lab->older);
    world_open(w);
    /* Changes of ours that leave their directories current: an older file is then a lie. */
    for (unsigned i = 0; i < N_DIRS; i++) {
        struct world_dir *d = &w->dirs[i];

        for (unsigned n = 0; n < 12; n++) {
            unsigned c = rng_below(&w->rng, N_CLASSES);
            unsigned s = rng_below(&w->rng, w->names.classes[c].n);

            world_begin(w, d);
            world_put(w, d, c, s, !model_has(&d->tree, c, s));
            world_end(w, d);
        }
    }
    world_close(w);
    file_set_read(w->path, &lab->newer);
}

static void undamaged_is_current(struct lab *lab)
{
    struct world *w = &lab->t.w;
    struct index_info info;

    world_open(w);
    index_get_info(w->index, &info);
    tap_diag("%llu names, %llu directories, %llu bytes in %u files",
             (unsigned long long)info.names, (unsigned long long)info.directories,
             (unsigned long long)info.file_bytes, lab->newer.n);
    for (unsigned i = 0; i < N_DIRS; i++) {
        if (world_check(w, &w->dirs[i]) != INDEX_CURRENT)
            tap_fail("an undamaged index is not current");
        world_find_all(w, &w->dirs[i]);
    }
    world_close(w);
    tap_line("undamaged_files_need_no_scan");
}

static void all_cases(struct lab *lab, struct progress *progress)
{
    unsigned at = 0;

    for (enum damage d = 0; d < N_DAMAGE; d++) {
        add_cases(lab, d);
        while (at < lab->n_cases)
            at = batch(lab, at, lab->n_cases, progress);
        tap_line(damage_names[d]);
    }
    tap_diag("%u cases", lab->n_cases);
}

static void one_case(struct lab *lab, unsigned number)
{
    for (enum damage d = 0; d < N_DAMAGE; d++)
        add_cases(lab, d);
    if (number < lab->n_cases)
        run_case(lab, number);
    tap_line(damage_names[lab->cases[number].damage]);
}

int main(void)
{
    static struct lab lab;
    const char *only = getenv("FOLDFS_TEST_CASE");
    struct progress *progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (progress == MAP_FAILED)
        return EXIT_FAILURE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    tap_seed();
    /* Each case makes the index complain, and is meant to. */
    if (!only)
        log_open(false, LOG_EMERG);
    lab.folder = fast_folder("index-damage");
    build(&lab);
    undamaged_is_current(&lab);
    if (only)
        one_case(&lab, (unsigned)atoi(only));
    else
        all_cases(&lab, progress);
    world_free(&lab.t.w);
    file_set_free(&lab.older);
    file_set_free(&lab.newer);
    free(lab.cases);
    remove_tree(lab.folder);
    free(lab.folder);
    return tap_end();
}
