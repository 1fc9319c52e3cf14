/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * scan.c - making the index complete for one directory, when an answer needs it.
 *
 * A scan is worth what its two stamps say: the directory's from before the first and after
 * the last getdents.  If somebody else changed the directory in between, the scan is done
 * again, a few times; a directory that never stands still is not fought with: the name
 * that is asked for is then sought by reading the directory, which misses an entry only if
 * that very entry is renamed meanwhile; so "absent" takes two readings that agree.
 *
 * Where changes by others are told, with their names, a scan need not be done again: all that
 * were made during it are told before its end.  A getdents waits for the end of a change that
 * it can see a part of, since the kernel locks the directory for both; and the kernel tells of
 * a change before it lets go of that lock.  So a change that was seen, by a getdents or a stat,
 * has been told once a getdents after that has returned.
 *
 * Where timestamps move by the kernel's tick, a directory that was changed in this tick is
 * first left alone until the next one, since another change in this tick would not show.
 * Where they move by seconds that wait would be too long; the index takes such a directory
 * for unsettled and has it scanned again.
 *
 * One scan a directory at a time; the index makes the others wait (index_scan_begin).  No
 * lock is held here.
 */
#include "coherence/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "backing/file.h"
#include "common.h"
#include "fold/fold.h"

/* How many scans, this thread's and others', are waited for on a directory that changes
 * under them. */
#define SCAN_ATTEMPTS 6

/* The longest wait for the next tick of a coarse clock: the tick at HZ=100, twice. */
#define TICK_WAIT_MAX_NS 20000000

/* Bytes read by one getdents64: some thousand entries. */
#define DENTS_BUFFER 131072

int scan_stat(void *ctx, struct index_stamp *ret_stamp)
{
    struct statx st;

    int r = file_stat(*(const int *)ctx, "", &st);
    if (r < 0)
        return r;
    *ret_stamp = file_stamp(&st);
    return 0;
}

typedef int (*entry_fn)(void *ctx, const char *name, size_t len);

static bool is_dot(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* A descriptor of the directory that can be read, or a negative errno. */
static int open_to_read(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME);
    if (fd < 0 && errno == EPERM) /* not the owner, and no right to leave the atime alone */
        fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Calls EACH for every entry but "." and ".." until it gives non-zero, which is returned. */
static int for_each_entry(int dir_fd, entry_fn each, void *ctx)
{
    CLEANUP_CLOSE int fd = open_to_read(dir_fd);
    if (fd < 0)
        return fd;
    CLEANUP_FREE char *buffer = malloc(DENTS_BUFFER);
    if (!buffer)
        return -ENOMEM;

    for (;;) {
        ssize_t n = getdents64(fd, buffer, DENTS_BUFFER);
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const void *)(buffer + at);
            at += entry->d_reclen;
            if (is_dot(entry->d_name))
                continue;
            int r = each(ctx, entry->d_name, strlen(entry->d_name));
            if (r != 0)
                return r;
        }
    }
}

/* Some file systems have names that are longer than any that can be asked for. */
static int add_entry(void *ctx, const char *name, size_t len)
{
    if (len > FOLDFS_NAME_MAX)
        return 0;
    return index_scan_add(ctx, name, len);
}

/* If the directory changed in the clock's present tick, sleeps to its end. */
static int wait_for_tick(const struct scan_target *target, struct index_stamp *stamp)
{
    struct timespec now;

    if (target->granularity_ns == 0 || target->granularity_ns > TICK_WAIT_MAX_NS)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - stamp->ctime_ns;
    if (age < 0 || age > target->granularity_ns)
        return 0;
    struct timespec rest = {.tv_nsec = target->granularity_ns - age};
    nanosleep(&rest, NULL);
    int fd = target->fd;
    return scan_stat(&fd, stamp);
}

/* One scan from first to last. */
static int scan_once(const struct scan_target *target, struct index_scan *scan)
{
    struct index_stamp before, after;
    int fd = target->fd;

    int r = scan_stat(&fd, &before);
    if (r == 0)
        r = wait_for_tick(target, &before);
    if (r == 0)
        r = for_each_entry(fd, add_entry, scan);
    if (r == 0 && target->watch)
        (void)watch_settle(target->watch);
    if (r == 0)
        r = scan_stat(&fd, &after);
    if (r < 0) {
        index_scan_abort(scan);
        return r;
    }
    return index_scan_commit(scan, &before, &after);
}

int scan_if_stale(const struct scan_target *target)
{
    int fd = target->fd;

    for (int attempt = 0; attempt < SCAN_ATTEMPTS; attempt++) {
        struct index_scan *scan = NULL;
        if (target->watch)
            (void)watch_settle(target->watch);
        int r = index_dir_check(target->dir, scan_stat, &fd);
        if (r < 0)
            return r;
        if (r == INDEX_CURRENT)
            return 0;
        r = index_scan_begin(target->dir, &scan);
        if (r < 0)
            return r;
        if (!scan) /* another thread's scan has just ended */
            continue;
        r = scan_once(target, scan);
        if (r == 0)
            return 0;
        if (r != -EAGAIN)
            return r;
    }
    return -EAGAIN;
}

/* An index_exists_fn; CTX as in scan_stat. */
static int exists(void *ctx, const char *name)
{
    struct statx st;
    int r = file_stat(*(const int *)ctx, name, &st);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    return 1;
}

/* Waits for the end of all changes of the directory that can be seen a part of. */
static int wait_for_changes(int dir_fd)
{
    char buffer[512]; /* room for one entry */
    CLEANUP_CLOSE int fd = open_to_read(dir_fd);
    if (fd < 0)
        return fd;
    (void)lseek(fd, 0, SEEK_END); /* where that can be: nothing is left to be read */
    return getdents64(fd, buffer, sizeof(buffer)) < 0 ? -errno : 0;
}

int scan_mend(const struct scan_target *target, const char *name, size_t len)
{
    int fd = target->fd;

    int r = index_mend(target->dir, name, len, exists, scan_stat, &fd);
    if (r <= 0)
        return r;
    r = wait_for_changes(fd);
    return r < 0 ? r : 1;
}

struct search {
    const char *name;
    size_t len;
    enum index_match match;
    struct index_name best;
};

static int compare_entry(void *ctx, const char *name, size_t len)
{
    struct search *search = ctx;

    if (len > FOLDFS_NAME_MAX)
        return 0;
    if (len == search->len && memcmp(name, search->name, len) == 0) {
        search->match = INDEX_EXACT;
    } else if (search->match == INDEX_EXACT ||
               !fold_equal(name, len, search->name, search->len) ||
               (search->match == INDEX_VARIANT && strcmp(search->best.bytes, name) < 0)) {
        return 0;
    } else {
        search->match = INDEX_VARIANT;
    }
    search->best.len = (uint8_t)len;
    memcpy(search->best.bytes, name, len + 1);
    return search->match == INDEX_EXACT;
}

int scan_search(int dir_fd, const char *name, size_t len, struct index_name *ret_name)
{
    struct search search = {.name = name, .len = len, .match = INDEX_ABSENT};

    for (int reading = 0; reading < 2 && search.match == INDEX_ABSENT; reading++) {
        int r = for_each_entry(dir_fd, compare_entry, &search);
        if (r < 0)
            return r;
    }
    if (search.match != INDEX_ABSENT)
        *ret_name = search.best;
    return (int)search.match;
}
