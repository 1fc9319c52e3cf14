/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * manifest.c - the file `manifest`, which says what generation is in use and what numbers may
 * have been given out; and those numbers.
 *
 * One counter numbers scans, checkpoints and directory keys.  It never goes back: the manifest
 * says, durably, up to where numbers may have been used, and a block of them is reserved
 * before the first is given out.  A manifest that is damaged or missing makes the index start
 * afresh, under another id and seed, so that nothing of before can be mistaken.
 *
 * It is always written whole: temporary file, fsync, rename, fsync of the folder.
 *
 * The number also is the clock of the index: of two events that a lock or the caller orders,
 * the later one has a number that is not smaller.
 */
#include "index/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>

#include "fold/fold.h"
#include "log.h"

/* Numbers reserved at once.  Each unclean end wastes so many at most; of 2^48 there are enough
 * for 268 million of them. */
#define RESERVE_NUMBERS (UINT64_C(1) << 20)

static uint64_t manifest_check(const struct manifest *m)
{
    return XXH3_64bits(m, offsetof(struct manifest, check));
}

int manifest_read(int dirfd, struct manifest *ret_manifest)
{
    CLEANUP_CLOSE int fd = openat(dirfd, "manifest", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct manifest m;

    if (fd < 0)
        return -errno;
    int r = read_at(fd, &m, sizeof(m), 0);
    if (r < 0)
        return r;
    if (m.magic != MAGIC_MANIFEST || m.format != INDEX_FORMAT || m.check != manifest_check(&m))
        return -EUCLEAN;
    if (m.fold_version != FOLD_VERSION)
        return -ESTALE;
    *ret_manifest = m;
    return 0;
}

int manifest_write(int dirfd, struct manifest *manifest)
{
    manifest->check = manifest_check(manifest);
    if (dirfd < 0)
        return 0;
    (void)unlinkat(dirfd, "manifest.new", 0);
    CLEANUP_CLOSE int fd = file_create(dirfd, "manifest.new", 0);
    if (fd < 0)
        return fd;
    int r = write_at(fd, manifest, sizeof(*manifest), 0);
    if (r < 0)
        return r;
    if (fsync(fd) < 0 || renameat(dirfd, "manifest.new", dirfd, "manifest") < 0 ||
        fsync(dirfd) < 0)
        return -errno;
    return 0;
}

int manifest_fresh(struct manifest *ret_manifest)
{
    struct manifest m = {
        .magic = MAGIC_MANIFEST,
        .format = INDEX_FORMAT,
        .fold_version = FOLD_VERSION,
        .generation = 1,
    };

    if (getrandom(m.id, sizeof(m.id), 0) != (ssize_t)sizeof(m.id) ||
        getrandom(&m.seed, sizeof(m.seed), 0) != (ssize_t)sizeof(m.seed))
        return -EIO;
    *ret_manifest = m;
    return 0;
}

void boot_id_read(char ret_id[40])
{
    CLEANUP_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, ret_id, 36);

    memset(ret_id + (n > 0 ? n : 0), 0, 40 - (size_t)(n > 0 ? n : 0));
}

/* Makes the numbers up to UPTO ours. */
static int reserve(struct index *index, uint64_t upto)
{
    LOCK_FOR_SCOPE(&index->manifest_lock);

    if (atomic_load(&index->reserved) >= upto)
        return 0;
    struct manifest m = index->manifest;
    m.reserved = upto + RESERVE_NUMBERS;
    if (m.reserved > NUMBER_MASK)
        return -ENOSPC;
    int r = manifest_write(index->dirfd, &m);
    if (r < 0) {
        errno = -r;
        log_line(LOG_ERR, "index: the manifest cannot be written (%m): new directories are not "
                          "indexed");
        return r;
    }
    index->manifest = m;
    atomic_store(&index->reserved, m.reserved);
    return 0;
}

int manifest_reserve(struct index *index)
{
    if (index->dirfd < 0) {
        atomic_store(&index->reserved, KEY_MASK);
        return manifest_write(-1, &index->manifest);
    }
    return reserve(index, atomic_load(&index->reserved) + 1);
}

int number_next(struct index *index, uint64_t *ret_number)
{
    uint64_t old = atomic_load(&index->number);

    for (;;) {
        if (old + 1 > atomic_load(&index->reserved)) {
            int r = reserve(index, old + 1);
            if (r < 0)
                return r;
        }
        if (atomic_compare_exchange_weak(&index->number, &old, old + 1)) {
            *ret_number = old + 1;
            return 0;
        }
    }
}

void number_reserve_ahead(struct index *index)
{
    uint64_t now = atomic_load(&index->number);

    if (now + RESERVE_NUMBERS / 2 > atomic_load(&index->reserved))
        (void)reserve(index, now + RESERVE_NUMBERS / 2);
}
