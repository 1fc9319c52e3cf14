/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index.c - opening and closing; and how the parts of the index work together.
 *
 * Files, in the folder of the index (mode 0700):
 *   lock            held by flock(2) while a daemon has the index open
 *   manifest        id, seed, the generation in use, numbers that may be given out (manifest.c)
 *   gen-N/names     an arena of records, appended, never moved (arena.c)
 *   gen-N/table     buckets of eight slots, each leading to a record (table.c)
 *   gen-N/dirs      what is known for good of directories (cold.c)
 * names and table are mapped; dirs and the manifest are read and written.  In memory the same
 * files are memfds without a name.  format.h has every byte.
 *
 *          identity of a directory
 *                |  dirs.c, cold.c
 *                v
 *   {key, scan number, stamp}     folded name
 *                |                     |
 *                +-----> hash <--------+          table.c
 *                          |
 *                        slot --> record of one spelling --> anchor --> other spellings
 *                                 {number, removed}          variants.c
 *
 * Invariants:
 *   1. A name of a directory is in the tree if its record counts (names.c) and the directory
 *      is complete and its stamp proves it (currency.c).  An incomplete directory is scanned
 *      (scan.c); a scan touches records in place and needs no other structure.
 *      Where changes of others are told with the name, that name alone is in doubt
 *      (suspects.c).
 *   2. Slots are never freed and records never overwritten within a generation: so readers need
 *      no lock, and what is on the disk at any moment is a mixture of true states.
 *   3. Numbers (scans, checkpoints, directory keys) come from one counter and never come back.
 *   4. A stamp is written to dirs only when names and table, as they were when it was taken,
 *      have been synced (checkpoint.c).  So after a power loss the index can lack nothing that
 *      a stamp stands for; it can only know more than the tree:
 *        - a name too many: its stat fails, and the directory is scanned;
 *        - a removal too many: its record says since when (a number not below that of the
 *          stamp), and in another boot such a removal makes its directory incomplete when
 *          somebody asks for that name (dirs.c, "doubt").
 *      If the daemon is killed between the change of the tree and that of the index, the
 *      tree's stamp has moved and the directory is scanned.
 *   5. What is read from a file is believed only after its check.  Damage never makes a name
 *      absent: it makes directories incomplete (names.c), and a rebuild gets rid of it
 *      (rebuild.c).
 *   6. No page of a mapping is touched before it has a block (map.c).
 *
 * Threads: look-ups take no lock; they count themselves in so that old maps outlive them
 * (grace.c), and validate by sequence numbers.  Two threads of the index's own make checkpoints
 * and rebuilds (worker.c).
 *
 * Lock order: rebuild_lock, checkpoint_lock, live_lock, a directory's lock, a stripe's lock,
 * then those that are held for a moment only: grow_lock, cold.lock, manifest_lock, dirty_lock,
 * suspects_lock, scan_lock, room_lock, a worker's lock.  index_stat_fn is called under a
 * directory's lock.
 *
 * An index that cannot be used is not mended but replaced by an empty one: everything in it can
 * be read from the tree again.
 */
#include "index/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "fold/fold.h"
#include "log.h"

/* Entries for directories that do not outlast the process, at first. */
#define UNLASTING_FIRST_SLOTS 256u

static int64_t real_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* ---- the folder ---- */

static int open_folder(const char *path, int *ret_dirfd)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    *ret_dirfd = STEAL_FD(fd);
    return 0;
}

static int take_lock(int dirfd, int *ret_fd)
{
    CLEANUP_CLOSE int fd =
        openat(dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    *ret_fd = STEAL_FD(fd);
    return 0;
}

/* Removes the folders of generations that are not in use. */
static void remove_strays(int dirfd, uint64_t generation)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char keep[32];

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    gen_folder_name(generation, keep);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (strncmp(e->d_name, "gen-", 4) == 0 && strcmp(e->d_name, keep) != 0)
            gen_remove_folder(dirfd, e->d_name);
    closedir(dir);
}

/* ---- what there is, or an empty one ---- */

/* Opens the generation that MANIFEST names, and reserves numbers beyond what was used. */
static int open_existing(struct index *index, struct gen **ret_gen)
{
    struct manifest m;
    struct gen *gen;
    char boot_id[40];
    int r = manifest_read(index->dirfd, &m);

    if (r < 0)
        return r;
    boot_id_read(boot_id);
    bool other_boot = memcmp(m.boot_id, boot_id, sizeof(boot_id)) != 0;
    bool power_lost = !m.clean && other_boot;
    r = gen_open(index->dirfd, &m, power_lost ? HISTORY_POWER_LOSS : HISTORY_WHOLE, &gen);
    if (r < 0)
        return r;
    index->was_clean = m.clean != 0;
    index->run_start = m.reserved + 1;
    /* In the same boot the tree has lost nothing, whatever became of the daemon.  After a clean
     * end too, the power may have failed before the tree was durable. */
    if (other_boot)
        m.crash = index->run_start;
    if (power_lost)
        m.group_floor = index->run_start;
    atomic_store(&index->number, index->run_start);
    atomic_store(&index->reserved, index->run_start);
    m.clean = 0;
    m.reserved = index->run_start;
    memcpy(m.boot_id, boot_id, sizeof(boot_id));
    index->manifest = m;
    r = manifest_reserve(index);
    if (r < 0) {
        gen_free(gen);
        return r;
    }
    *ret_gen = gen;
    return 0;
}

static int start_afresh(struct index *index, struct gen **ret_gen)
{
    struct gen *gen;
    int r = manifest_fresh(&index->manifest);

    if (r < 0)
        return r;
    if (index->dirfd >= 0) {
        (void)unlinkat(index->dirfd, "manifest", 0);
        remove_strays(index->dirfd, 0);
    }
    boot_id_read(index->manifest.boot_id);
    index->was_clean = true;
    index->run_start = 1;
    atomic_store(&index->number, 1);
    atomic_store(&index->reserved, 1);
    r = gen_create(index->dirfd, &index->manifest, 1, BUCKETS_MIN, 0, &gen);
    if (r < 0)
        return r;
    if (index->dirfd >= 0) {
        r = gen_sync(gen, 1);
        if (r == 0)
            r = cold_sync(&gen->dirs);
        if (r == 0 && (fsync(gen->dirfd) < 0 || fsync(index->dirfd) < 0))
            r = -errno;
    }
    if (r == 0)
        r = manifest_reserve(index);
    if (r < 0) {
        gen_free(gen);
        return r;
    }
    *ret_gen = gen;
    return 0;
}

static void say_afresh(const char *path, int error)
{
    if (error == -ENOENT) /* there is none yet */
        return;
    if (error == -ESTALE) {
        log_line(LOG_NOTICE,
                 "index %s: made with another version of the folding rule: "
                 "starting afresh",
                 path);
        return;
    }
    errno = -error;
    log_line(LOG_WARNING, "index %s: cannot be used (%m): starting afresh", path);
}

/* Something to work with, on disk if at all possible. */
static int open_generation(struct index *index, const char *path, struct gen **ret_gen)
{
    int r;

    if (index->dirfd >= 0) {
        r = open_existing(index, ret_gen);
        if (r < 0) {
            say_afresh(path, r);
            r = start_afresh(index, ret_gen);
        }
        if (r == 0) {
            remove_strays(index->dirfd, (*ret_gen)->number);
            return 0;
        }
        errno = -r;
        log_line(LOG_ERR, "index %s: cannot be made (%m): working in memory", path);
        close(index->dirfd);
        index->dirfd = -1;
    }
    return start_afresh(index, ret_gen);
}

/* ---- the object ---- */

static struct index *index_new(const struct index_options *options)
{
    struct index *index =
        aligned_alloc(CACHE_LINE, (sizeof(*index) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);

    if (!index)
        return NULL;
    memset(index, 0, sizeof(*index));
    index->dirfd = index->lock_fd = index->unlasting.fd = -1;
    index->now = options->now ? options->now : real_now;
    index->settle = options->settle;
    index->settle_ctx = options->settle_ctx;
    index->checkpoint_s = options->checkpoint_s;
    pthread_mutex_init(&index->manifest_lock, NULL);
    pthread_mutex_init(&index->grace.lock, NULL);
    for (unsigned i = 0; i < STRIPES; i++)
        pthread_mutex_init(&index->stripes[i].lock, NULL);
    pthread_mutex_init(&index->live_lock, NULL);
    pthread_mutex_init(&index->dirty_lock, NULL);
    pthread_mutex_init(&index->suspects_lock, NULL);
    pthread_mutex_init(&index->scan_lock, NULL);
    pthread_cond_init(&index->scan_ended, NULL);
    pthread_mutex_init(&index->checkpoint_lock, NULL);
    pthread_mutex_init(&index->rebuild_lock, NULL);
    pthread_mutex_init(&index->room_lock, NULL);
    pthread_cond_init(&index->room_made, NULL);
    return index;
}

static void index_free(struct index *index)
{
    struct view *view = atomic_load(&index->view);

    if (view)
        gen_free(view->cur);
    free(view);
    if (index->unlasting.fd >= 0)
        cold_close(&index->unlasting);
    if (index->dirfd >= 0)
        close(index->dirfd);
    if (index->lock_fd >= 0)
        close(index->lock_fd);
    pthread_mutex_destroy(&index->manifest_lock);
    pthread_mutex_destroy(&index->grace.lock);
    for (unsigned i = 0; i < STRIPES; i++)
        pthread_mutex_destroy(&index->stripes[i].lock);
    pthread_mutex_destroy(&index->live_lock);
    pthread_mutex_destroy(&index->dirty_lock);
    pthread_mutex_destroy(&index->suspects_lock);
    pthread_mutex_destroy(&index->scan_lock);
    pthread_cond_destroy(&index->scan_ended);
    pthread_mutex_destroy(&index->checkpoint_lock);
    pthread_mutex_destroy(&index->rebuild_lock);
    pthread_mutex_destroy(&index->room_lock);
    pthread_cond_destroy(&index->room_made);
    free(index);
}

static int start_threads(struct index *index)
{
    int r = worker_start(&index->rebuilder, rebuild_thread, index);

    if (r == 0 && index->checkpoint_s > 0)
        r = worker_start(&index->checkpointer, checkpoint_thread, index);
    return r;
}

static int set_up(struct index *index, const char *path)
{
    struct view *view = calloc(1, sizeof(*view));
    int r = view ? open_generation(index, path, &view->cur) : -ENOMEM;

    if (r < 0) {
        free(view);
        return r;
    }
    atomic_store(&index->view, view);
    r = cold_create(-1, &view->cur->proto, index->manifest.seed, UNLASTING_FIRST_SLOTS,
                    &index->unlasting);
    if (r < 0)
        return r;
    r = start_threads(index);
    if (r < 0)
        worker_stop(&index->rebuilder);
    return r;
}

int index_open(const struct index_options *options, struct index **ret_index)
{
    struct index *index = index_new(options);
    int r = 0;

    if (!index)
        return -ENOMEM;
    if (options->path) {
        r = open_folder(options->path, &index->dirfd);
        if (r == 0)
            r = take_lock(index->dirfd, &index->lock_fd);
        if (r == -ENOSPC || r == -EDQUOT) {
            errno = -r;
            log_line(LOG_ERR, "index %s: cannot be made (%m): working in memory",
                     options->path);
            r = 0;
        }
    }
    if (r == 0)
        r = set_up(index, options->path);
    if (r < 0) {
        index_free(index);
        return r;
    }
    *ret_index = index;
    return 0;
}

/* Directories that nobody holds but that were kept for a checkpoint. */
static void free_kept(struct index *index)
{
    struct index_dir *dir, *rest;

    HASH_ITER (hh, index->live, dir, rest) {
        HASH_DEL(index->live, dir);
        pthread_mutex_destroy(&dir->lock);
        free(dir);
    }
}

static void mark_clean(struct index *index)
{
    LOCK_FOR_SCOPE(&index->manifest_lock);

    index->manifest.clean = 1;
    index->manifest.reserved = atomic_load(&index->number);
    int r = manifest_write(index->dirfd, &index->manifest);
    if (r < 0) {
        errno = -r;
        log_line(LOG_WARNING, "index: cannot be marked as closed in order (%m)");
    }
}

void index_close(struct index *index)
{
    if (!index)
        return;
    worker_stop(&index->checkpointer);
    worker_stop(&index->rebuilder);
    int r;
    {
        LOCK_FOR_SCOPE(&index->checkpoint_lock);
        r = checkpoint_run(index, CHECKPOINT_CLOSING);
    }
    if (r == 0)
        mark_clean(index);
    free_kept(index);
    index_free(index);
}

void index_get_info(struct index *index, struct index_info *ret_info)
{
    unsigned ticket = grace_enter(&index->grace);
    struct gen *gen = atomic_load(&index->view)->cur;
    uint64_t used = atomic_load(&gen->used);
    struct index_info info = {
        .persistent = index->dirfd >= 0,
        .was_clean = index->was_clean,
        .generation = gen->number,
        .names = used + atomic_load(&gen->variants),
        .garbage = atomic_load(&gen->garbage_records),
        .scans = atomic_load(&index->scans),
        .checkpoints = atomic_load(&index->checkpoints),
    };

    info.file_bytes = file_bytes(gen->names.fd) + file_bytes(gen->table.fd);
    cold_info(&gen->dirs, &info.directories, &info.file_bytes);
    grace_exit(&index->grace, ticket);
    {
        LOCK_FOR_SCOPE(&index->live_lock);
        info.live = HASH_CNT(hh, index->live);
    }
    *ret_info = info;
}
