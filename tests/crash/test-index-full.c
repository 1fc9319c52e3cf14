/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * test-index-full.c - a full or failing disk below the index: answers stay right, no SIGBUS,
 * it is said once, and when there is room again all is well again.
 *
 * Two kinds of full disk: a small file system of its own (ext4 on a loop device, tmpfs), filled
 * by a ballast file; and calls that fail, by -Wl,--wrap: posix_fallocate64 with ENOSPC, fsync
 * and fdatasync with EIO.  Mounts are made in a mount namespace of this process alone.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "index-files.h"
#include "index-model-world.h"
#include "log.h"

#define N_DIRS    12
#define N_CLASSES 200
#define IMAGE_MB  6
/* No room for names, a checkpoint that failed, a rebuild that failed: each once in a while. */
#define MAX_LINES 4

static atomic_int allocations_fail, syncs_fail;

/* The name that a call with 64-bit offsets has in glibc. */
int __real_posix_fallocate64(int fd, off_t offset, off_t len);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t len);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_posix_fallocate64(int fd, off_t offset, off_t len)
{
    return atomic_load(&allocations_fail) ? ENOSPC : __real_posix_fallocate64(fd, offset, len);
}

static int failing_sync(int fd, int (*real)(int))
{
    if (!atomic_load(&syncs_fail))
        return real(fd);
    errno = EIO;
    return -1;
}

int __wrap_fsync(int fd)
{
    return failing_sync(fd, __real_fsync);
}

int __wrap_fdatasync(int fd)
{
    return failing_sync(fd, __real_fdatasync);
}

/* ---- what the log says ---- */

static int log_fd = -1, saved_stderr = -1;

static void catch_log(void)
{
    char path[] = "/tmp/foldfs-index-log-XXXXXX";

    fflush(stderr);
    log_fd = mkstemp(path);
    if (log_fd < 0)
        abort();
    unlink(path);
    saved_stderr = dup(STDERR_FILENO);
    dup2(log_fd, STDERR_FILENO);
}

/* How many lines came since catch_log(); shows the first few. */
static unsigned end_log(void)
{
    static char text[65536];
    ssize_t n = pread(log_fd, text, sizeof(text) - 1, 0);
    unsigned lines = 0;
    char *rest = text;

    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(log_fd);
    text[n > 0 ? n : 0] = 0;
    for (char *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n")) {
        if (lines++ < 5)
            tap_diag("log: %s", line);
    }
    return lines;
}

/* ---- filling the index ---- */

/* The index may give up any directory at any time now; what it says must be right. */
static void expect_trouble(struct world *w)
{
    for (unsigned i = 0; i < w->n_dirs; i++)
        w->dirs[i].suspect = true;
}

static void flip(struct world *w, struct world_dir *d)
{
    unsigned c = rng_below(&w->rng, w->names.n);
    unsigned s = rng_below(&w->rng, w->names.classes[c].n);

    world_begin(w, d);
    world_put(w, d, c, s, !model_has(&d->tree, c, s));
    world_end(w, d);
    world_check(w, d);
    world_find(w, d, c, s);
}

/* A scan that may find no room; what it did not finish leaves the directory as it was. */
static void try_scan(struct world *w, struct world_dir *d)
{
    struct index_scan *scan = NULL;
    struct index_stamp stamp = d->tree.stamp;
    int r = index_scan_begin(d->dir, &scan);

    if (r < 0 || !scan) {
        if (r != -ENOSPC)
            tap_fail("index_scan_begin: %d", r);
        return;
    }
    for (unsigned c = 0; c < w->names.n && r == 0; c++) {
        for (uint64_t mask = model_mask(&d->tree, c); mask && r == 0; mask &= mask - 1) {
            const struct model_name *name =
                &w->names.classes[c].spellings[__builtin_ctzll(mask)];

            r = index_scan_add(scan, name->bytes, name->len);
        }
    }
    if (r < 0) {
        if (r != -ENOSPC && r != -ENOMEM)
            tap_fail("index_scan_add: %s", strerror(-r));
        index_scan_abort(scan);
        return;
    }
    r = index_scan_commit(scan, &stamp, &stamp);
    if (r < 0 && r != -EAGAIN)
        tap_fail("index_scan_commit: %d", r);
    if (r == 0) {
        d->complete = COMPLETE_MAYBE;
        memset(d->doubt, 0, w->names.n * sizeof(*d->doubt));
    }
}

static void work_in_need(struct world *w, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        struct world_dir *d = &w->dirs[rng_below(&w->rng, w->n_dirs)];

        flip(w, d);
        if (world_check(w, d) == INDEX_STALE && rng_once_in(&w->rng, 20))
            try_scan(w, d);
        if (rng_once_in(&w->rng, 400))
            (void)index_checkpoint(w->index);
    }
    /* Explicitly, which says so once more. */
    (void)index_rebuild(w->index);
    for (unsigned i = 0; i < w->n_dirs; i++) {
        world_check(w, &w->dirs[i]);
        world_find_all(w, &w->dirs[i]);
    }
}

static void all_is_well_again(struct world *w)
{
    int r = index_rebuild(w->index);

    if (r < 0)
        tap_fail("index_rebuild with room again: %s", strerror(-r));
    for (unsigned i = 0; i < w->n_dirs; i++)
        world_settle(w, &w->dirs[i]);
    r = index_checkpoint(w->index);
    if (r < 0)
        tap_fail("index_checkpoint with room again: %s", strerror(-r));
    r = index_verify(w->index);
    if (r < 0)
        tap_fail("index_verify: %s", strerror(-r));
    world_reopen(w);
    for (unsigned i = 0; i < w->n_dirs; i++) {
        if (world_check(w, &w->dirs[i]) != INDEX_CURRENT)
            tap_fail("not current after reopening");
        world_find_all(w, &w->dirs[i]);
    }
}

static void start(struct world *w, const char *path)
{
    world_init(w, tap_seed(), N_DIRS, N_CLASSES, WORLD_EXACT, path);
    world_open(w);
    for (unsigned i = 0; i < w->n_dirs; i++)
        world_settle(w, &w->dirs[i]);
}

static void finish(struct world *w)
{
    world_close(w);
    world_free(w);
}

/* ---- failing calls ---- */

static void no_room_to_grow(const char *folder)
{
    CLEANUP_FREE char *path = NULL;
    struct world w;
    unsigned lines;

    if (asprintf(&path, "%s/grow", folder) < 0)
        abort();
    start(&w, path);
    expect_trouble(&w);
    catch_log();
    atomic_store(&allocations_fail, 1);
    work_in_need(&w, 20000);
    atomic_store(&allocations_fail, 0);
    lines = end_log();
    if (lines < 1 || lines > MAX_LINES)
        tap_fail("%u lines in the log", lines);
    all_is_well_again(&w);
    finish(&w);
    tap_line("no_room_to_grow_gives_right_answers");
}

static void failing_syncs_are_told(const char *folder)
{
    CLEANUP_FREE char *path = NULL;
    struct file_set files;
    struct world w;
    unsigned lines;

    if (asprintf(&path, "%s/sync", folder) < 0)
        abort();
    start(&w, path);
    catch_log();
    atomic_store(&syncs_fail, 1);
    for (unsigned i = 0; i < 500; i++)
        flip(&w, &w.dirs[i % N_DIRS]);
    for (unsigned i = 0; i < 5; i++) {
        flip(&w, &w.dirs[i % N_DIRS]);
        int r = index_checkpoint(w.index);
        if (r != -EIO)
            tap_fail("index_checkpoint on a failing disk: %d", r);
    }
    if (index_rebuild(w.index) >= 0)
        tap_fail("index_rebuild on a failing disk succeeds");
    for (unsigned i = 0; i < N_DIRS; i++) {
        if (world_check(&w, &w.dirs[i]) != INDEX_CURRENT)
            tap_fail("a failing disk makes a directory stale");
        world_find_all(&w, &w.dirs[i]);
    }
    lines = end_log();
    if (lines < 1 || lines > MAX_LINES)
        tap_fail("%u lines in the log", lines);
    file_set_read(path, &files);
    file_set_free(&files);
    atomic_store(&syncs_fail, 0);
    all_is_well_again(&w);
    finish(&w);
    tap_line("failing_syncs_give_an_errno_and_right_answers");
}

/* ---- full file systems ---- */

static void fill(const char *folder)
{
    static const char block[4096];
    CLEANUP_FREE char *path = NULL;
    CLEANUP_CLOSE int fd = -1;

    if (asprintf(&path, "%s/ballast", folder) < 0)
        abort();
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    while (fd >= 0 && write(fd, block, sizeof(block)) > 0)
        continue;
}

static void unfill(const char *folder)
{
    CLEANUP_FREE char *path = NULL;

    if (asprintf(&path, "%s/ballast", folder) < 0)
        abort();
    unlink(path);
}

static void live_on_full_disk(const char *mount_point)
{
    CLEANUP_FREE char *path = NULL;
    struct world w;
    unsigned lines;

    if (asprintf(&path, "%s/index", mount_point) < 0)
        abort();
    start(&w, path);
    expect_trouble(&w);
    fill(mount_point);
    catch_log();
    work_in_need(&w, 20000);
    lines = end_log();
    if (lines < 1 || lines > MAX_LINES)
        tap_fail("%u lines in the log", lines);
    unfill(mount_point);
    all_is_well_again(&w);
    finish(&w);
}

/* An index that has no room at all is kept in memory. */
static void open_on_full_disk(const char *mount_point)
{
    CLEANUP_FREE char *path = NULL;
    struct index_info info;
    struct world w;

    if (asprintf(&path, "%s/second", mount_point) < 0)
        abort();
    fill(mount_point);
    catch_log();
    world_init(&w, tap_seed(), 3, N_CLASSES, WORLD_EXACT, path);
    world_open(&w);
    index_get_info(w.index, &info);
    if (info.persistent)
        tap_fail("an index on a full disk says that it is persistent");
    if (end_log() < 1)
        tap_fail("nothing in the log");
    for (unsigned i = 0; i < 2000; i++)
        flip(&w, &w.dirs[i % 3]);
    for (unsigned i = 0; i < 3; i++)
        world_settle(&w, &w.dirs[i]);
    finish(&w);
    unfill(mount_point);
}

static int run_command(const char *command)
{
    int status = system(command);

    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void full_tmpfs(const char *folder)
{
    CLEANUP_FREE char *point = NULL;

    if (asprintf(&point, "%s/tmpfs", folder) < 0)
        abort();
    mkdir(point, 0700);
    if (mount("tmpfs", point, "tmpfs", 0, "size=3m") < 0) {
        tap_skip("full_tmpfs_gives_right_answers", "no permission to mount");
        return;
    }
    live_on_full_disk(point);
    open_on_full_disk(point);
    umount2(point, MNT_DETACH);
    tap_line("full_tmpfs_gives_right_answers");
}

static void full_ext4(const char *folder)
{
    CLEANUP_FREE char *make = NULL, *point = NULL;

    if (asprintf(&point, "%s/ext4", folder) < 0 ||
        asprintf(&make,
                 "cd %s && mkdir ext4 && truncate -s %dM image && mkfs.ext4 -q -m 0 image && "
                 "mount -o loop image ext4",
                 folder, IMAGE_MB) < 0)
        abort();
    if (run_command(make) < 0) {
        tap_skip("full_ext4_gives_right_answers", "no loop mount possible");
        return;
    }
    live_on_full_disk(point);
    open_on_full_disk(point);
    if (umount(point) < 0)
        tap_fail("umount: %m");
    tap_line("full_ext4_gives_right_answers");
}

int main(void)
{
    char *folder = temp_folder("index-full");

    setvbuf(stdout, NULL, _IOLBF, 0);
    tap_seed();
    /* Another user's limits do not matter here; without the right to mount two tests skip. */
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    no_room_to_grow(folder);
    failing_syncs_are_told(folder);
    full_tmpfs(folder);
    full_ext4(folder);
    remove_tree(folder);
    free(folder);
    return tap_end();
}
