/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * bench-index.c - the measurements of bench.py: look-ups in an index, and in LMDB, of so many
 * names.
 *
 * bench-index FOLDER LOOKUPS NAMES...
 *
 * For each number of NAMES it fills fresh folders in FOLDER with so many names of 30 bytes, in
 * directories of at most 10^5, and opens them.  Then RUNS times, all numbers and engines in
 * turn, so that what else the machine does meets all alike: LOOKUPS random names that are
 * present and as many that are not, the same for all engines, made before the clock starts.  A
 * look-up of any engine folds and hashes the name, and hands out a copy of the spelling that it
 * finds.  The engines:
 *
 *   index  index_find().
 *   lmdb   mdb_get() of {directory, hash of the folded name} and the comparison of the folded
 *          name that it finds, as a daemon would have to use LMDB.  Names are put in the order
 * in which a scan of a directory delivers them, which is random as to their hash, some in a
 *          transaction.  Each look-up renews a read transaction and gives it back: one that is
 *          kept shows the state of its beginning, and no page that is freed meanwhile can be
 * used again.  The index's grace period is the same. best   the same at LMDB's best, which no
 * daemon can have: filled in the order of its keys, so that every page is full, and read within
 * one transaction. read   no engine but the floor: one random read, which waits for the one
 * before, in a mapped file of the index's size.
 *
 * Not the same in all: the index checks what it reads against damage, LMDB does not.
 *
 * Prints lines "NAMES ENGINE FIGURE N".  Figures: ns (a look-up, median of the runs), present,
 * absent, bytes (a name, by the blocks of all files); and for the last of NAMES "index private"
 * (KiB of this process that are not mapped files, with that index open and nothing else).
 */
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lmdb.h>
#include <xxhash.h>

#include "fold/fold.h"
#include "index/index.h"

#define NAMES_A_DIR 100000u
#define NAME_LEN    30
#define RUNS        15
/* Puts absent names beyond all that are present. */
#define ABSENT 0x40000000u
/* Names in one of LMDB's transactions. */
#define BATCH 1000u
/* What a read fetches at once. */
#define CACHE_LINE 64u

struct query {
    unsigned dir;
    char name[NAME_LEN + 2];
};

struct engine {
    const char *name;
    void (*fill)(const char *folder, unsigned names);
    void *(*open)(const char *folder, unsigned names);
    bool (*look_up)(void *state, const struct query *q);
    void (*close)(void *state);
};

/* An engine with so many names, and what it took. */
struct store {
    char *folder;
    void *state;
    double both[RUNS], present[RUNS], absent[RUNS];
};

#define ENGINES 3u
struct size {
    unsigned names;
    struct store stores[ENGINES];
    char *chain; /* mapped: one number in each line */
    size_t chain_lines;
    double read[RUNS];
};

static void die(const char *what, int error)
{
    fprintf(stderr, "bench-index: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (!memory)
        die("memory", ENOMEM);
    return memory;
}

/* Name NUMBER: mixed letters, so that folding has something to do. */
static void make_name(unsigned number, char *ret_name)
{
    char text[64];

    snprintf(text, sizeof(text), "Scan %08x of Page %08x.Tif", number * 2654435761u, number);
    memcpy(ret_name, text, NAME_LEN);
    ret_name[NAME_LEN] = 0;
}

static unsigned dirs_of(unsigned names)
{
    return (names + NAMES_A_DIR - 1) / NAMES_A_DIR;
}

/* ---- the index ---- */

struct opened {
    struct index *index;
    unsigned n_dirs;
    struct index_dir **dirs;
};

static void *index_open_all(const char *folder, unsigned names)
{
    struct index_options options = {.path = folder};
    struct opened *o = allocate(1, sizeof(*o));
    int r = index_open(&options, &o->index);

    o->n_dirs = dirs_of(names);
    o->dirs = allocate(o->n_dirs, sizeof(struct index_dir *));
    for (unsigned i = 0; i < o->n_dirs && r >= 0; i++)
        r = index_dir_acquire(o->index, &i, sizeof(i), 0, true, &o->dirs[i]);
    if (r < 0)
        die("index", r);
    return o;
}

static void index_close_all(void *state)
{
    struct opened *o = state;

    for (unsigned i = 0; i < o->n_dirs; i++)
        index_dir_release(o->dirs[i]);
    free(o->dirs);
    index_close(o->index);
    free(o);
}

static int scan_in(struct index_dir *dir, unsigned from, unsigned to)
{
    const struct index_stamp stamp = {.ctime_ns = 1};
    struct index_scan *scan = NULL;
    char name[NAME_LEN + 1];
    int r = index_scan_begin(dir, &scan);

    for (unsigned i = from; i < to && r >= 0; i++) {
        make_name(i, name);
        r = index_scan_add(scan, name, NAME_LEN);
    }
    return r < 0 ? r : index_scan_commit(scan, &stamp, &stamp);
}

static void index_fill(const char *folder, unsigned names)
{
    struct opened *o = index_open_all(folder, names);

    for (unsigned d = 0; d < o->n_dirs; d++) {
        unsigned to = (d + 1) * NAMES_A_DIR < names ? (d + 1) * NAMES_A_DIR : names;
        int r = scan_in(o->dirs[d], d * NAMES_A_DIR, to);

        if (r < 0)
            die("scan", r);
    }
    index_close_all(o);
}

static bool index_look_up(void *state, const struct query *q)
{
    const struct opened *o = state;
    struct index_name found;

    return index_find(o->dirs[q->dir], q->name, NAME_LEN, &found) == INDEX_EXACT;
}

/* ---- LMDB ---- */

struct key {
    uint64_t dir, hash; /* big-endian: memcmp order is number order */
};

struct sorted {
    struct key key;
    unsigned number;
};

struct lmdb {
    MDB_env *env;
    MDB_dbi dbi;
    MDB_txn *txn;
};

static struct key key_of(unsigned dir, const char *name, char *folded, size_t *ret_len)
{
    *ret_len = fold_name(name, NAME_LEN, folded);
    return (struct key){__builtin_bswap64(dir),
                        __builtin_bswap64(XXH3_64bits(folded, *ret_len))};
}

static void must(const char *what, int r)
{
    if (r) {
        fprintf(stderr, "bench-index: lmdb: %s: %s\n", what, mdb_strerror(r));
        exit(EXIT_FAILURE);
    }
}

static MDB_env *lmdb_env(const char *folder, unsigned names, unsigned flags)
{
    MDB_env *env;

    (void)mkdir(folder, 0700);
    must("create", mdb_env_create(&env));
    must("mapsize", mdb_env_set_mapsize(env, (64u << 20) + (size_t)names * 160));
    must("open", mdb_env_open(env, folder, flags, 0600));
    return env;
}

static void lmdb_begin(struct lmdb *l, unsigned flags)
{
    must("begin", mdb_txn_begin(l->env, NULL, flags, &l->txn));
    must("dbi", mdb_dbi_open(l->txn, NULL, 0, &l->dbi));
}

static void lmdb_put(struct lmdb *l, struct key key, unsigned number, unsigned flags)
{
    char name[NAME_LEN + 1];
    MDB_val k = {sizeof(key), &key}, value = {NAME_LEN, name};

    make_name(number, name);
    must("put", mdb_put(l->txn, l->dbi, &k, &value, flags));
}

static void lmdb_fill(const char *folder, unsigned names)
{
    struct lmdb l = {.env = lmdb_env(folder, names, MDB_NOSYNC | MDB_WRITEMAP)};
    char name[NAME_LEN + 1], folded[NAME_LEN + 1];
    size_t len;

    for (unsigned i = 0; i < names; i++) {
        if (i % BATCH == 0)
            lmdb_begin(&l, 0);
        make_name(i, name);
        lmdb_put(&l, key_of(i / NAMES_A_DIR, name, folded, &len), i, 0);
        if (i % BATCH == BATCH - 1 || i == names - 1)
            must("commit", mdb_txn_commit(l.txn));
    }
    mdb_env_close(l.env);
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct key));
}

static void best_fill(const char *folder, unsigned names)
{
    struct lmdb l = {.env = lmdb_env(folder, names, MDB_NOSYNC | MDB_WRITEMAP)};
    struct sorted *all = allocate(names, sizeof(*all));
    char name[NAME_LEN + 1], folded[NAME_LEN + 1];
    size_t len;

    for (unsigned i = 0; i < names; i++) {
        make_name(i, name);
        all[i] = (struct sorted){key_of(i / NAMES_A_DIR, name, folded, &len), i};
    }
    qsort(all, names, sizeof(*all), compare_keys);
    lmdb_begin(&l, 0);
    for (unsigned i = 0; i < names; i++)
        lmdb_put(&l, all[i].key, all[i].number, MDB_APPEND);
    must("commit", mdb_txn_commit(l.txn));
    mdb_env_close(l.env);
    free(all);
}

static void *best_open(const char *folder, unsigned names)
{
    struct lmdb *l = allocate(1, sizeof(*l));

    l->env = lmdb_env(folder, names, MDB_NORDAHEAD);
    lmdb_begin(l, MDB_RDONLY);
    return l;
}

static void *lmdb_open(const char *folder, unsigned names)
{
    struct lmdb *l = best_open(folder, names);

    mdb_txn_reset(l->txn);
    return l;
}

static bool best_look_up(void *state, const struct query *q)
{
    const struct lmdb *l = state;
    char folded[NAME_LEN + 1], other[NAME_LEN + 1];
    struct index_name found;
    size_t len;
    struct key k = key_of(q->dir, q->name, folded, &len);
    MDB_val key = {sizeof(k), &k}, value;

    if (mdb_get(l->txn, l->dbi, &key, &value) != 0)
        return false;
    if (fold_name(value.mv_data, value.mv_size, other) != len ||
        memcmp(folded, other, len) != 0)
        return false;
    memcpy(found.bytes, value.mv_data, value.mv_size);
    return memcmp(found.bytes, q->name, NAME_LEN) == 0;
}

static bool lmdb_look_up(void *state, const struct query *q)
{
    const struct lmdb *l = state;

    must("renew", mdb_txn_renew(l->txn));
    bool found = best_look_up(state, q);
    mdb_txn_reset(l->txn);
    return found;
}

static void lmdb_close(void *state)
{
    struct lmdb *l = state;

    mdb_txn_abort(l->txn);
    mdb_env_close(l->env);
    free(l);
}

static const struct engine engines[ENGINES] = {
    {"index", index_fill, index_open_all, index_look_up, index_close_all},
    {"lmdb", lmdb_fill, lmdb_open, lmdb_look_up, lmdb_close},
    {"best", best_fill, best_open, best_look_up, lmdb_close},
};

/* ---- chance ---- */

static uint64_t random_state = 1;

static unsigned random_below(unsigned n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(random_state >> 33) % n;
}

static void make_queries(struct query *queries, unsigned n, unsigned names, unsigned beyond)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned number = random_below(names);

        queries[i].dir = number / NAMES_A_DIR;
        make_name(number + beyond, queries[i].name);
    }
}

/* ---- space ---- */

static uint64_t all_bytes;

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path;
    (void)ftw;
    if (type == FTW_F)
        all_bytes += (uint64_t)st->st_blocks * 512;
    return 0;
}

static uint64_t bytes_in(const char *folder)
{
    all_bytes = 0;
    nftw(folder, add_bytes, 16, FTW_PHYS);
    return all_bytes;
}

/* Pages of this process alone; of shared mappings, which are the files, none. */
static void print_private(unsigned names)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512], permissions[8] = "";
    long kib, sum = 0;

    if (!file)
        die("smaps", errno);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%*x-%*x %7s", permissions) == 1)
            continue;
        if (permissions[3] != 's' && (sscanf(line, "Private_Clean: %ld", &kib) == 1 ||
                                      sscanf(line, "Private_Dirty: %ld", &kib) == 1))
            sum += kib;
    }
    fclose(file);
    printf("%u index private %ld\n", names, sum);
}

/* ---- the floor ---- */

/* Maps a file of BYTES with a random number in each line. */
static void make_chain(struct size *size, const char *folder, uint64_t bytes)
{
    char *path;

    if (asprintf(&path, "%s/read-%u", folder, size->names) < 0)
        die("path", ENOMEM);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)bytes) != 0)
        die(path, errno);
    size->chain_lines = bytes / CACHE_LINE;
    size->chain = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (size->chain == MAP_FAILED)
        die(path, errno);
    close(fd);
    free(path);
    for (size_t i = 0; i < size->chain_lines; i++)
        *(uint64_t *)(void *)(size->chain + i * CACHE_LINE) = random_below(UINT32_MAX);
}

/* What was read says where the next read goes. */
static double ns_a_read(const struct size *size, unsigned n)
{
    struct timespec from, to;
    uint64_t last = 0;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (unsigned i = 0; i < n; i++) {
        uint64_t mixed = (last + i) * UINT64_C(0x9e3779b97f4a7c15);
        size_t line = (size_t)(((unsigned __int128)mixed * size->chain_lines) >> 64);

        last += *(const uint64_t *)(void *)(size->chain + line * CACHE_LINE);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (last == 0)
        die("read", EINVAL);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / n;
}

/* ---- measuring ---- */

static double ns_each(const struct engine *engine, void *state, const struct query *queries,
                      unsigned n, bool want)
{
    struct timespec from, to;
    unsigned wrong = 0;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (unsigned i = 0; i < n; i++)
        wrong += engine->look_up(state, &queries[i]) != want;
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (wrong) {
        fprintf(stderr, "bench-index: %s: %u of %u answers are wrong\n", engine->name, wrong,
                n);
        exit(EXIT_FAILURE);
    }
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / n;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, RUNS, sizeof(*values), compare_doubles);
    return values[RUNS / 2];
}

/* One run of all engines, each time another one first; the first one, number -1, is not
 * counted: what was just opened is not mapped yet. */
static void run_all(struct size *size, int run, const struct query *present,
                    const struct query *absent, unsigned lookups)
{
    double read = ns_a_read(size, lookups);

    if (run >= 0)
        size->read[run] = read;
    for (unsigned i = 0; i < ENGINES; i++) {
        unsigned e = (i + (unsigned)(run + 1)) % ENGINES;
        struct store *store = &size->stores[e];
        double p = ns_each(&engines[e], store->state, present, lookups, true);
        double a = ns_each(&engines[e], store->state, absent, lookups, false);

        if (run < 0)
            continue;
        store->present[run] = p;
        store->absent[run] = a;
        store->both[run] = (p + a) / 2;
    }
}

static void measure(struct size *sizes, unsigned n_sizes, unsigned lookups)
{
    struct query *present = allocate(lookups, sizeof(*present));
    struct query *absent = allocate(lookups, sizeof(*absent));

    for (int run = -1; run < RUNS; run++)
        for (unsigned s = 0; s < n_sizes; s++) {
            make_queries(present, lookups, sizes[s].names, 0);
            make_queries(absent, lookups, sizes[s].names, ABSENT);
            run_all(&sizes[s], run, present, absent, lookups);
        }
    free(present);
    free(absent);
}

/* ---- the whole ---- */

/* In a process of its own: what it leaves in the heap is not the memory of an open index. */
static void fill_apart(const struct engine *engine, const char *folder, unsigned names)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        die("fork", errno);
    if (pid == 0) {
        engine->fill(folder, names);
        _exit(EXIT_SUCCESS);
    }
    if (waitpid(pid, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "bench-index: filling %s failed\n", engine->name);
        exit(EXIT_FAILURE);
    }
}

static void fill(struct size *size, const char *folder)
{
    for (unsigned e = 0; e < ENGINES; e++) {
        if (asprintf(&size->stores[e].folder, "%s/%s-%u", folder, engines[e].name,
                     size->names) < 0)
            die("path", ENOMEM);
        fill_apart(&engines[e], size->stores[e].folder, size->names);
    }
    make_chain(size, folder, bytes_in(size->stores[0].folder));
}

/* Engine by engine, the largest first: then nothing else is open when an index is weighed. */
static void open_all(struct size *sizes, unsigned n_sizes)
{
    for (unsigned e = 0; e < ENGINES; e++)
        for (unsigned s = n_sizes; s-- > 0;) {
            struct store *store = &sizes[s].stores[e];

            store->state = engines[e].open(store->folder, sizes[s].names);
            if (e == 0 && s == n_sizes - 1)
                print_private(sizes[s].names);
        }
}

static void close_and_print(struct size *size)
{
    for (unsigned e = 0; e < ENGINES; e++) {
        struct store *store = &size->stores[e];
        const char *name = engines[e].name;
        unsigned names = size->names;

        engines[e].close(store->state);
        printf("%u %s ns %.1f\n%u %s present %.1f\n%u %s absent %.1f\n%u %s bytes %.2f\n",
               names, name, median(store->both), names, name, median(store->present), names,
               name, median(store->absent), names, name,
               (double)bytes_in(store->folder) / names);
        free(store->folder);
    }
    printf("%u read ns %.1f\n", size->names, median(size->read));
}

int main(int argc, char **argv)
{
    unsigned lookups = argc > 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    unsigned n_sizes = argc > 3 ? (unsigned)argc - 3 : 0;
    struct size *sizes = allocate(n_sizes + 1, sizeof(*sizes));
    bool bad = lookups == 0;

    for (unsigned s = 0; s < n_sizes; s++) {
        sizes[s].names = (unsigned)strtoul(argv[3 + s], NULL, 10);
        bad |= sizes[s].names == 0 || sizes[s].names > ABSENT;
    }
    if (bad) {
        fprintf(stderr, "usage: bench-index FOLDER LOOKUPS NAMES...\n");
        return EXIT_FAILURE;
    }
    for (unsigned s = 0; s < n_sizes; s++)
        fill(&sizes[s], argv[1]);
    open_all(sizes, n_sizes);
    measure(sizes, n_sizes, lookups);
    for (unsigned s = 0; s < n_sizes; s++)
        close_and_print(&sizes[s]);
    free(sizes);
    return EXIT_SUCCESS;
}
