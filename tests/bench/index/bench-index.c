/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * bench-index.c - the measurements of bench.py: look-ups in an index, and in LMDB, of so many
 * names.
 *
 * bench-index FOLDER NAMES LOOKUPS
 *
 * Fills FOLDER/index and FOLDER/lmdb (fresh ones) with NAMES names of 30 bytes, in directories
 * of at most 10^5, and opens them again.  Then RUNS times, the two in turn, so that what else
 * the machine does meets both: LOOKUPS random names that are present and as many that are not,
 * the same for both, made before the clock starts.  A look-up of either side folds and hashes
 * the name; that of the index is index_find(), that of LMDB is mdb_get() of {directory, hash of
 * the folded name} within one read transaction, and the comparison of the folded name that it
 * finds.  LMDB is filled in the order of its keys, which makes its tree as dense and as flat as
 * it can be.
 *
 * Prints, for ENGINE index and lmdb: "ENGINE ns N" (a look-up, median of the runs), "ENGINE
 * present N", "ENGINE absent N", "ENGINE bytes N" (a name, by the blocks of all files); and
 * "index private N" (KiB of this process that are not mapped files, before LMDB is opened).
 */
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <lmdb.h>
#include <xxhash.h>

#include "fold/fold.h"
#include "index/index.h"

#define NAMES_A_DIR 100000u
#define NAME_LEN    30
#define RUNS        7
/* Puts absent names beyond all that are present. */
#define ABSENT 0x40000000u

struct query {
    unsigned dir;
    char name[NAME_LEN + 2];
};

/* How one engine is filled, opened and asked, and what it took. */
struct engine {
    const char *name;
    void (*fill)(const char *folder, unsigned names);
    void (*open)(const char *folder, unsigned names);
    bool (*look_up)(const struct query *q);
    void (*close)(void);
    char *folder;
    double both[RUNS], present[RUNS], absent[RUNS];
};

static void die(const char *what, int error)
{
    fprintf(stderr, "bench-index: %s: %s\n", what, strerror(error < 0 ? -error : error));
    exit(EXIT_FAILURE);
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

static struct index *the_index;
static struct index_dir **the_dirs;
static unsigned n_dirs;

static void index_open_all(const char *folder, unsigned names)
{
    struct index_options options = {.path = folder};
    int r = index_open(&options, &the_index);

    n_dirs = dirs_of(names);
    the_dirs = calloc(n_dirs, sizeof(struct index_dir *));
    for (unsigned i = 0; i < n_dirs && r >= 0; i++)
        r = index_dir_acquire(the_index, &i, sizeof(i), 0, true, &the_dirs[i]);
    if (r < 0)
        die("index", r);
}

static void index_close_all(void)
{
    for (unsigned i = 0; i < n_dirs; i++)
        index_dir_release(the_dirs[i]);
    free(the_dirs);
    index_close(the_index);
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
    index_open_all(folder, names);
    for (unsigned d = 0; d < n_dirs; d++) {
        unsigned to = (d + 1) * NAMES_A_DIR < names ? (d + 1) * NAMES_A_DIR : names;
        int r = scan_in(the_dirs[d], d * NAMES_A_DIR, to);

        if (r < 0)
            die("scan", r);
    }
    index_close_all();
}

static bool index_look_up(const struct query *q)
{
    struct index_name found;

    return index_find(the_dirs[q->dir], q->name, NAME_LEN, &found) == INDEX_EXACT;
}

/* ---- LMDB ---- */

struct key {
    uint64_t dir, hash; /* big-endian: memcmp order is number order */
};

struct sorted {
    struct key key;
    unsigned number;
};

static MDB_env *env;
static MDB_dbi dbi;
static MDB_txn *txn;

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

static void lmdb_env(const char *folder, unsigned names, unsigned flags)
{
    (void)mkdir(folder, 0700);
    must("create", mdb_env_create(&env));
    must("mapsize", mdb_env_set_mapsize(env, (64u << 20) + (size_t)names * 160));
    must("open", mdb_env_open(env, folder, flags, 0600));
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct key));
}

static void lmdb_fill(const char *folder, unsigned names)
{
    struct sorted *all = calloc(names, sizeof(*all));
    char name[NAME_LEN + 1], folded[NAME_LEN + 1];
    size_t len;

    for (unsigned i = 0; i < names; i++) {
        make_name(i, name);
        all[i] = (struct sorted){key_of(i / NAMES_A_DIR, name, folded, &len), i};
    }
    qsort(all, names, sizeof(*all), compare_keys);
    lmdb_env(folder, names, MDB_NOSYNC | MDB_WRITEMAP);
    must("begin", mdb_txn_begin(env, NULL, 0, &txn));
    must("dbi", mdb_dbi_open(txn, NULL, 0, &dbi));
    for (unsigned i = 0; i < names; i++) {
        MDB_val key = {sizeof(all[i].key), &all[i].key}, value = {NAME_LEN, name};

        make_name(all[i].number, name);
        must("put", mdb_put(txn, dbi, &key, &value, MDB_APPEND));
    }
    must("commit", mdb_txn_commit(txn));
    mdb_env_close(env);
    free(all);
}

static void lmdb_open(const char *folder, unsigned names)
{
    lmdb_env(folder, names, MDB_RDONLY | MDB_NORDAHEAD);
    must("begin", mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    must("dbi", mdb_dbi_open(txn, NULL, 0, &dbi));
}

static bool lmdb_look_up(const struct query *q)
{
    char folded[NAME_LEN + 1], other[NAME_LEN + 1];
    size_t len;
    struct key k = key_of(q->dir, q->name, folded, &len);
    MDB_val key = {sizeof(k), &k}, value;

    if (mdb_get(txn, dbi, &key, &value) != 0)
        return false;
    return fold_name(value.mv_data, value.mv_size, other) == len &&
           memcmp(folded, other, len) == 0;
}

static void lmdb_close(void)
{
    mdb_txn_abort(txn);
    mdb_env_close(env);
}

/* ---- measuring ---- */

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

static double ns_each(const struct engine *engine, const struct query *queries, unsigned n,
                      bool want)
{
    struct timespec from, to;
    unsigned wrong = 0;

    clock_gettime(CLOCK_MONOTONIC, &from);
    for (unsigned i = 0; i < n; i++)
        wrong += engine->look_up(&queries[i]) != want;
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (wrong) {
        fprintf(stderr, "bench-index: %u of %u answers are wrong\n", wrong, n);
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

/* One run of both engines; the first one, number -1, is not counted: what was just opened is
 * not mapped yet. */
static void run_both(struct engine engines[2], int run, struct query *present,
                     struct query *absent, unsigned lookups)
{
    for (unsigned e = 0; e < 2; e++) {
        double p = ns_each(&engines[e], present, lookups, true);
        double a = ns_each(&engines[e], absent, lookups, false);

        if (run < 0)
            continue;
        engines[e].present[run] = p;
        engines[e].absent[run] = a;
        engines[e].both[run] = (p + a) / 2;
    }
}

static void measure(struct engine engines[2], unsigned names, unsigned lookups)
{
    struct query *present = calloc(lookups, sizeof(*present));
    struct query *absent = calloc(lookups, sizeof(*absent));

    if (!present || !absent)
        die("queries", ENOMEM);
    for (int run = -1; run < RUNS; run++) {
        make_queries(present, lookups, names, 0);
        make_queries(absent, lookups, names, ABSENT);
        run_both(engines, run, present, absent, lookups);
    }
    free(present);
    free(absent);
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

/* Pages of this process alone; of shared mappings, which are the files, none. */
static void print_private(void)
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
    printf("index private %ld\n", sum);
}

static void print_engine(struct engine *engine, unsigned names)
{
    const char *name = engine->name;

    printf("%s ns %.1f\n%s present %.1f\n%s absent %.1f\n", name, median(engine->both), name,
           median(engine->present), name, median(engine->absent));
    all_bytes = 0;
    nftw(engine->folder, add_bytes, 16, FTW_PHYS);
    printf("%s bytes %.2f\n", name, (double)all_bytes / names);
}

int main(int argc, char **argv)
{
    struct engine engines[2] = {
        {"index",
         index_fill,
         index_open_all,
         index_look_up,
         index_close_all,
         NULL,
         {0},
         {0},
         {0}},
        {"lmdb", lmdb_fill, lmdb_open, lmdb_look_up, lmdb_close, NULL, {0}, {0}, {0}},
    };
    unsigned names = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    unsigned lookups = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;

    if (names == 0 || names > ABSENT || lookups == 0) {
        fprintf(stderr, "usage: bench-index FOLDER NAMES LOOKUPS\n");
        return EXIT_FAILURE;
    }
    for (unsigned e = 0; e < 2; e++) {
        if (asprintf(&engines[e].folder, "%s/%s", argv[1], engines[e].name) < 0)
            die("path", ENOMEM);
        engines[e].fill(engines[e].folder, names);
        engines[e].open(engines[e].folder, names);
        if (e == 0)
            print_private();
    }
    measure(engines, names, lookups);
    for (unsigned e = 0; e < 2; e++) {
        engines[e].close();
        print_engine(&engines[e], names);
        free(engines[e].folder);
    }
    return EXIT_SUCCESS;
}
