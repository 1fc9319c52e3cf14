/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-stories.c - histories written out: what chance meets too rarely, or what needs
 * many names, many variants, or another process.
 */
#include "index-model-parts.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "index-model-world.h"

/* Grows the table several times from any sensible start. */
#define MANY_NAMES 300000
/* Spellings of one folded name; 10 times that at scale 10. */
#define MANY_VARIANTS 10000
#define VARIANT_LEN   40
#define SECOND_NS     1000000000LL

static char *inside(const char *folder, const char *name)
{
    char *path = NULL;

    if (asprintf(&path, "%s/%s", folder, name) < 0)
        abort();
    return path;
}

static struct index *open_at(const char *path)
{
    struct index_options options = {.path = path, .now = model_now};
    struct index *index = NULL;
    int r = index_open(&options, &index);

    if (r < 0) {
        printf("Bail out! index_open: %s\n", strerror(-r));
        exit(EXIT_FAILURE);
    }
    return index;
}

static struct index_dir *acquire(struct index *index, struct model_dir *tree)
{
    struct index_dir *dir = NULL;
    int r = index_dir_acquire(index, tree->id, tree->id_len, tree->granularity_ns,
                              tree->persist, &dir);

    if (r < 0) {
        tap_fail("index_dir_acquire: %s", strerror(-r));
        exit(EXIT_FAILURE);
    }
    return dir;
}

static void expect_find(struct index_dir *dir, const char *name, enum index_match want,
                        const char *want_name)
{
    struct index_name found = {0};
    enum index_match got = index_find(dir, name, strlen(name), &found);

    if (got != want)
        tap_fail("%s: %s instead of %s", name, model_match_name(got), model_match_name(want));
    else if (want_name && strcmp(found.bytes, want_name) != 0)
        tap_fail("%s: found %s instead of %s", name, found.bytes, want_name);
}

static void expect_check(struct index_dir *dir, struct model_dir *tree, int want,
                         const char *when)
{
    int got = index_dir_check(dir, model_stat, tree);

    if (got != want)
        tap_fail("%s: check says %d instead of %d", when, got, want);
}

/* A scan that finds nothing. */
static void scan_empty(struct index_dir *dir, struct model_dir *tree)
{
    struct index_scan *scan = NULL;
    int r = index_scan_begin(dir, &scan);

    if (r < 0 || !scan) {
        tap_fail("index_scan_begin: %d", r);
        return;
    }
    r = index_scan_commit(scan, &tree->stamp, &tree->stamp);
    if (r < 0)
        tap_fail("index_scan_commit: %d", r);
}

/* ---- respelling under readers ---- */

struct respelling {
    struct index_dir *dir;
    atomic_bool stop, wrong;
    atomic_ullong looks;
};

static void *look_for_it(void *arg)
{
    struct respelling *r = arg;

    while (!atomic_load(&r->stop) && !atomic_load(&r->wrong)) {
        struct index_name found = {0};
        enum index_match match = index_find(r->dir, "READme", 6, &found);

        if (match != INDEX_VARIANT ||
            (strcmp(found.bytes, "readme") != 0 && strcmp(found.bytes, "README") != 0)) {
            tap_fail("while respelled: %s %s", model_match_name(match), found.bytes);
            atomic_store(&r->wrong, true);
        }
        atomic_fetch_add(&r->looks, 1);
    }
    return NULL;
}

static void respell_never_shows_neither(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "respell");
    struct index *index = open_at(path);
    struct model_dir tree;
    struct respelling r = {0};
    pthread_t threads[2];

    model_dir_init(&tree, 1, 1, 0, true);
    r.dir = acquire(index, &tree);
    scan_empty(r.dir, &tree);
    index_add(r.dir, "readme", 6);
    for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
        pthread_create(&threads[i], NULL, look_for_it, &r);
    for (unsigned i = 0; (i < 50000 || r.looks < 1000) && !r.wrong; i++) {
        index_respell(r.dir, i % 2 ? "README" : "readme", 6, i % 2 ? "readme" : "README", 6);
        if (i % 10000 == 9999)
            index_rebuild(index);
    }
    atomic_store(&r.stop, true);
    for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
        pthread_join(threads[i], NULL);
    index_dir_release(r.dir);
    index_close(index);
    model_dir_free(&tree);
    tap_line("respell_never_shows_neither");
}

/* ---- a change of others between the last read and the commit ---- */

static void change_after_last_read_is_noticed(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "after-read");
    struct index *index = open_at(path);
    struct model_dir tree;
    struct index_scan *scan = NULL;
    struct index_stamp read_stamp;
    struct index_dir *dir;

    model_dir_init(&tree, 1, 1, 0, true);
    dir = acquire(index, &tree);
    index_scan_begin(dir, &scan);
    read_stamp = tree.stamp;
    model_touch(&tree); /* others create "lost", which the scan has not seen */
    index_begin_change(dir, model_stat, &tree);
    model_touch(&tree);
    index_add(dir, "ours", 4);
    index_end_change(dir, model_stat, &tree);
    index_scan_commit(scan, &read_stamp, &read_stamp);
    expect_check(dir, &tree, INDEX_STALE, "after the scan that missed a change");
    expect_find(dir, "LOST", INDEX_UNKNOWN, NULL);
    index_dir_release(dir);
    index_close(index);
    model_dir_free(&tree);
    tap_line("change_after_last_read_is_noticed");
}

/* ---- coarse clocks ---- */

static void coarse_stamp_is_looked_at_again_once(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "coarse");
    struct index *index = open_at(path);
    struct model_dir tree;
    struct index_dir *dir;

    model_sleep(SECOND_NS - model_now() % SECOND_NS);
    model_dir_init(&tree, 1, 1, SECOND_NS, true);
    dir = acquire(index, &tree);
    expect_check(dir, &tree, INDEX_STALE, "before any scan");
    scan_empty(dir, &tree);
    expect_check(dir, &tree, INDEX_CURRENT, "just scanned");
    /* Others create a file within the same second: the stamp cannot show it. */
    model_touch(&tree);
    model_sleep(30 * SECOND_NS);
    expect_check(dir, &tree, INDEX_STALE, "scanned while young, now old");
    scan_empty(dir, &tree);
    for (unsigned i = 0; i < 5; i++) {
        expect_check(dir, &tree, INDEX_CURRENT, "scanned when old");
        model_sleep(30 * SECOND_NS);
    }
    index_begin_change(dir, model_stat, &tree);
    model_touch(&tree);
    index_end_change(dir, model_stat, &tree);
    expect_check(dir, &tree, INDEX_CURRENT, "just changed by us");
    model_sleep(30 * SECOND_NS);
    expect_check(dir, &tree, INDEX_STALE, "changed by us, now old");
    index_dir_release(dir);
    index_close(index);
    model_dir_free(&tree);
    tap_line("coarse_stamp_is_looked_at_again_once");
}

static void stamp_in_the_future_proves_nothing(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "future");
    struct index *index = open_at(path);
    struct model_dir tree;
    struct index_dir *dir;

    model_dir_init(&tree, 1, 1, SECOND_NS, true);
    tree.stamp.ctime_ns = model_now() + 100 * SECOND_NS;
    dir = acquire(index, &tree);
    scan_empty(dir, &tree);
    model_sleep(200 * SECOND_NS);
    expect_check(dir, &tree, INDEX_STALE, "scanned under a stamp from the future");
    index_dir_release(dir);
    index_close(index);
    model_dir_free(&tree);
    tap_line("stamp_in_the_future_proves_nothing");
}

/* ---- many variants of one name ---- */

/* Spelling NUMBER of one word of 40 letters: one letter for each bit. */
static void spell_number(unsigned number, char *ret_name)
{
    for (unsigned i = 0; i < VARIANT_LEN; i++)
        ret_name[i] = i < 32 && number >> (31 - i) & 1 ? 'x' : 'X';
    ret_name[VARIANT_LEN] = 0;
}

static void many_variants_are_told_apart(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "variants");
    unsigned n = MANY_VARIANTS * (tap_scale() >= 10 ? 10 : 1);
    struct index *index = open_at(path);
    char name[VARIANT_LEN + 1], smallest[VARIANT_LEN + 1], absent[VARIANT_LEN + 1];
    struct index_scan *scan = NULL;
    struct model_dir tree;
    struct index_dir *dir;

    model_dir_init(&tree, 1, 1, 0, true);
    dir = acquire(index, &tree);
    index_scan_begin(dir, &scan);
    for (unsigned i = 0; i < n; i++) {
        spell_number(i * 7919 % n + 1, name);
        if (index_scan_add(scan, name, VARIANT_LEN) < 0)
            tap_fail("index_scan_add of variant %u", i);
    }
    index_scan_commit(scan, &tree.stamp, &tree.stamp);
    index_add(dir, "other", 5);
    spell_number(0, absent);
    for (unsigned i = 1; i <= n; i += 1 + n / 500) {
        spell_number(i, name);
        expect_find(dir, name, INDEX_EXACT, name);
    }
    /* The smallest goes, each time; the next one must come up. */
    for (unsigned i = 1; i <= 100; i++) {
        spell_number(i, smallest);
        expect_find(dir, absent, INDEX_VARIANT, smallest);
        index_remove(dir, smallest, VARIANT_LEN);
        expect_find(dir, smallest, INDEX_VARIANT, NULL);
    }
    expect_find(dir, "OTHER", INDEX_VARIANT, "other");
    if (index_rebuild(index) < 0 || index_verify(index) < 0)
        tap_fail("index_rebuild or index_verify");
    spell_number(101, smallest);
    expect_find(dir, absent, INDEX_VARIANT, smallest);
    index_dir_release(dir);
    index_close(index);
    model_dir_free(&tree);
    tap_line("many_variants_are_told_apart");
}

/* ---- growth ---- */

static void number_name(unsigned number, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "File-%u-%08x.Txt", number, number * 2654435761U);
}

static void scan_many(struct index_dir *dir, struct model_dir *tree, unsigned n)
{
    struct index_scan *scan = NULL;
    char name[64];

    index_scan_begin(dir, &scan);
    for (unsigned i = 0; i < n; i++) {
        number_name(i, name, sizeof(name));
        if (index_scan_add(scan, name, strlen(name)) < 0)
            tap_fail("index_scan_add of name %u", i);
    }
    if (index_scan_commit(scan, &tree->stamp, &tree->stamp) < 0)
        tap_fail("index_scan_commit of many names");
}

static void look_for_many(struct index_dir *dir, unsigned n)
{
    struct index_name found = {0};
    char name[64];
    unsigned wrong = 0;

    for (unsigned i = 0; i < n; i++) {
        number_name(i, name, sizeof(name));
        wrong += index_find(dir, name, strlen(name), &found) != INDEX_EXACT;
        name[0] = 'f';
        wrong += index_find(dir, name, strlen(name), &found) != INDEX_VARIANT;
        name[1] = 'j';
        wrong += index_find(dir, name, strlen(name), &found) != INDEX_ABSENT;
    }
    if (wrong)
        tap_fail("%u of %u answers among many names are wrong", wrong, 3 * n);
}

static void many_names_survive_growth_and_reopening(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "growth");
    struct index *index = open_at(path);
    struct model_dir tree;
    struct index_dir *dir;
    struct index_info info;

    model_dir_init(&tree, 1, 1, 0, true);
    dir = acquire(index, &tree);
    scan_many(dir, &tree, MANY_NAMES);
    look_for_many(dir, MANY_NAMES);
    index_get_info(index, &info);
    if (info.names < MANY_NAMES || !info.persistent)
        tap_fail("info: %llu names, persistent %d", (unsigned long long)info.names,
                 info.persistent);
    index_dir_release(dir);
    index_close(index);

    index = open_at(path);
    dir = acquire(index, &tree);
    index_get_info(index, &info);
    if (!info.was_clean || info.directories != 1)
        tap_fail("info: clean %d, %llu directories", info.was_clean,
                 (unsigned long long)info.directories);
    expect_check(dir, &tree, INDEX_CURRENT, "reopened");
    look_for_many(dir, MANY_NAMES);
    if (index_verify(index) < 0)
        tap_fail("index_verify");
    /* A second scan marks in place: it leaves no garbage of the size of the directory. */
    scan_many(dir, &tree, MANY_NAMES);
    index_get_info(index, &info);
    if (info.garbage > MANY_NAMES / 10)
        tap_fail("a second scan left %llu records of garbage",
                 (unsigned long long)info.garbage);
    look_for_many(dir, MANY_NAMES);
    index_dir_release(dir);
    index_close(index);
    model_dir_free(&tree);
    tap_line("many_names_survive_growth_and_reopening");
}

/* ---- opening ---- */

static void expect_open(const char *path, int want)
{
    struct index_options options = {.path = path, .now = model_now};
    struct index *index = NULL;
    int r = index_open(&options, &index);

    if (r != want)
        tap_fail("index_open of %s: %d instead of %d", path, r, want);
    if (r == 0)
        index_close(index);
    else if (index)
        tap_fail("index_open failed but set its result");
}

static void open_refuses_what_is_not_ours(const char *folder)
{
    CLEANUP_FREE char *busy = inside(folder, "busy"), *shared = inside(folder, "shared");
    CLEANUP_FREE char *orphan = inside(folder, "missing/index"), *file = inside(folder, "file");
    struct index *index = open_at(busy);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    close(fd);
    expect_open(busy, -EBUSY);
    index_close(index);
    expect_open(busy, 0);
    mkdir(shared, 0700);
    chmod(shared, 0777);
    expect_open(shared, -EPERM);
    chmod(shared, 0770);
    expect_open(shared, -EPERM);
    chmod(shared, 0700);
    if (geteuid() == 0) {
        if (chown(shared, 65534, 65534) < 0)
            tap_fail("chown: %m");
        expect_open(shared, -EPERM);
    }
    expect_open(orphan, -ENOENT);
    expect_open(file, -ENOTDIR);
    tap_line("open_refuses_what_is_not_ours");
}

/* A prefix, the same name in two directories, and a directory key with the other's name. */
static void directories_do_not_see_each_other(const char *folder)
{
    CLEANUP_FREE char *path = inside(folder, "apart");
    struct index *index = open_at(path);
    struct model_dir trees[2];
    struct index_dir *dirs[2];

    for (unsigned i = 0; i < 2; i++) {
        model_dir_init(&trees[i], i, 1, 0, true);
        dirs[i] = acquire(index, &trees[i]);
        scan_empty(dirs[i], &trees[i]);
    }
    index_add(dirs[0], "name", 4);
    index_add(dirs[0], "names", 5);
    expect_find(dirs[0], "NAME", INDEX_VARIANT, "name");
    expect_find(dirs[0], "NAM", INDEX_ABSENT, NULL);
    expect_find(dirs[1], "name", INDEX_ABSENT, NULL);
    index_add(dirs[1], "Name", 4);
    index_dir_forget(dirs[0]);
    expect_find(dirs[0], "name", INDEX_UNKNOWN, NULL);
    expect_find(dirs[1], "name", INDEX_VARIANT, "Name");
    for (unsigned i = 0; i < 2; i++) {
        index_dir_release(dirs[i]);
        model_dir_free(&trees[i]);
    }
    index_close(index);
    tap_line("directories_do_not_see_each_other");
}

void index_model_stories(const char *folder)
{
    directories_do_not_see_each_other(folder);
    open_refuses_what_is_not_ours(folder);
    respell_never_shows_neither(folder);
    change_after_last_read_is_noticed(folder);
    coarse_stamp_is_looked_at_again_once(folder);
    stamp_in_the_future_proves_nothing(folder);
    many_variants_are_told_apart(folder);
    many_names_survive_growth_and_reopening(folder);
}
