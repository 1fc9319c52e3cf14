/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * cold.c - the file `dirs`: what is known for good of directories, one entry of fixed size
 * each, in an open-addressed hash table that is read and written, not mapped.
 *
 * An entry is found by a seeded 128-bit hash of the directory's identity, and stands under a
 * 64-bit check that depends on its place.  A damaged entry is as good as none: the directory
 * is unknown and will be scanned.  Each entry is true by itself, whatever became of its
 * neighbours: so they are overwritten in place, in no order, and a write that a power loss
 * tears shows as damage.
 *
 * A probe ends at an entry of zeros.  If damage makes one of an entry further up, a directory
 * may get a second entry before its first; the newer one (by epoch) counts whenever the table
 * is copied, and the older one, found again, still tells the truth about its own key.
 *
 * The same table without a name, in memory, keeps the directories whose identity does not
 * survive the process.
 */
#include "index/internal.h"

#include <fcntl.h>
#include <stdio.h>

#include "log.h"

/* Grown when more than this share is taken. */
#define FULL_NUM 7u
#define FULL_DEN 10u

#define COPY_CHUNK 256u /* entries read at once when all are */

static uint64_t offset_of(uint64_t i)
{
    return HEADER_BYTES + i * sizeof(struct dirs_entry);
}

static uint64_t entry_check(const struct cold *cold, const struct dirs_entry *e, uint64_t i)
{
    return XXH3_64bits_withSeed(e, offsetof(struct dirs_entry, check), cold->seed + i);
}

static bool entry_is_free(const struct dirs_entry *e)
{
    static const struct dirs_entry zero;

    return memcmp(e, &zero, sizeof(zero)) == 0;
}

static bool entry_valid(const struct cold *cold, const struct dirs_entry *e, uint64_t i)
{
    return e->check == entry_check(cold, e, i) && e->kind >= ENTRY_DELETED &&
           e->kind <= ENTRY_PROVEN;
}

static uint64_t home_of(const struct cold *cold, const uint8_t id[16])
{
    uint64_t word;

    memcpy(&word, id, sizeof(word));
    return word % cold->slots;
}

static int read_entry(const struct cold *cold, uint64_t i, struct dirs_entry *ret_entry)
{
    return read_at(cold->fd, ret_entry, sizeof(*ret_entry), offset_of(i));
}

/* Where ID is, or would go: *RET_AT; 0 if it is there, -ENOENT if not (*RET_AT is UINT64_MAX if
 * there is no room either). */
static int find(const struct cold *cold, const uint8_t id[16], uint64_t *ret_at,
                struct dirs_entry *ret_entry)
{
    uint64_t i = home_of(cold, id), spare = UINT64_MAX;

    for (uint64_t n = 0; n < cold->slots; n++, i = i + 1 == cold->slots ? 0 : i + 1) {
        int r = read_entry(cold, i, ret_entry);
        if (r < 0)
            return r;
        bool is_free = entry_is_free(ret_entry);
        bool valid = entry_valid(cold, ret_entry, i);
        if (valid && ret_entry->kind != ENTRY_DELETED && memcmp(ret_entry->id, id, 16) == 0) {
            *ret_at = i;
            return 0;
        }
        if (spare == UINT64_MAX && (!valid || ret_entry->kind == ENTRY_DELETED))
            spare = i;
        if (is_free)
            break;
    }
    *ret_at = spare;
    return -ENOENT;
}

static int put_at(struct cold *cold, uint64_t i, const struct dirs_entry *entry)
{
    struct dirs_entry e = *entry;

    e.check = entry_check(cold, &e, i);
    return write_at(cold->fd, &e, sizeof(e), offset_of(i));
}

/* The header and counters as they are now, into the file. */
static int put_header(struct cold *cold)
{
    struct file_header h = cold->header;

    atomic_store(&h.counters[COUNTER_USED],
                 word_make(cold->taken, word_salt(cold->seed, COUNTER_USED)));
    atomic_store(&h.counters[COUNTER_COMPLETE],
                 word_make(cold->complete, word_salt(cold->seed, COUNTER_COMPLETE)));
    return write_at(cold->fd, &h, sizeof(h), 0);
}

static int create_file(int dirfd, const char *name, const struct file_header *proto,
                       uint64_t seed, uint64_t slots, struct cold *ret_cold)
{
    if (dirfd >= 0)
        (void)unlinkat(dirfd, name, 0);
    int fd = file_create(dirfd, name, offset_of(slots));
    if (fd < 0)
        return fd;
    *ret_cold =
        (struct cold){.dirfd = dirfd, .fd = fd, .seed = seed, .header = *proto, .slots = slots};
    ret_cold->header.magic = MAGIC_DIRS;
    ret_cold->header.capacity = slots;
    header_seal(&ret_cold->header);
    int r = put_header(ret_cold);
    if (r < 0)
        close(fd);
    return r;
}

int cold_create(int dirfd, const struct file_header *proto, uint64_t seed, uint64_t slots,
                struct cold *ret_cold)
{
    int r = create_file(dirfd, "dirs", proto, seed, slots, ret_cold);

    if (r == 0)
        pthread_mutex_init(&ret_cold->lock, NULL);
    else
        ret_cold->fd = -1;
    return r;
}

/* Reads all entries; FN gets the valid ones, *RET_DAMAGED counts the others. */
static int walk(struct cold *cold, cold_fn fn, void *ctx, uint64_t *ret_damaged)
{
    CLEANUP_FREE struct dirs_entry *chunk = calloc(COPY_CHUNK, sizeof(*chunk));

    if (!chunk)
        return -ENOMEM;
    for (uint64_t i = 0; i < cold->slots; i += COPY_CHUNK) {
        uint64_t n = cold->slots - i < COPY_CHUNK ? cold->slots - i : COPY_CHUNK;
        int r = read_at(cold->fd, chunk, n * sizeof(*chunk), offset_of(i));

        if (r < 0)
            return r;
        for (uint64_t k = 0; k < n; k++) {
            if (entry_is_free(&chunk[k]))
                continue;
            if (!entry_valid(cold, &chunk[k], i + k)) {
                ++*ret_damaged;
                continue;
            }
            r = fn(ctx, &chunk[k]);
            if (r != 0)
                return r;
        }
    }
    return 0;
}

static int count_entry(void *ctx, const struct dirs_entry *entry)
{
    struct cold *cold = ctx;

    cold->taken++;
    cold->complete += entry->kind == ENTRY_PROVEN;
    return 0;
}

int cold_open(int dirfd, const struct file_header *proto, uint64_t seed, struct cold *ret_cold)
{
    CLEANUP_CLOSE int fd = openat(dirfd, "dirs", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct file_header h, expected = *proto;

    if (fd < 0)
        return -errno;
    int r = read_at(fd, &h, sizeof(h), 0);
    if (r < 0)
        return r;
    expected.magic = MAGIC_DIRS;
    off_t size = lseek(fd, 0, SEEK_END);
    if (!header_valid(&h, &expected) || h.capacity == 0 ||
        (uint64_t)size != offset_of(h.capacity))
        return -EUCLEAN;
    struct cold cold = {
        .dirfd = dirfd, .fd = fd, .seed = seed, .header = h, .slots = h.capacity};
    uint64_t used = atomic_load(&h.counters[COUNTER_USED]);
    uint64_t complete = atomic_load(&h.counters[COUNTER_COMPLETE]);
    cold.taken = used & PAYLOAD_MASK;
    cold.complete = complete & PAYLOAD_MASK;
    if (!word_valid(used, word_salt(seed, COUNTER_USED)) ||
        !word_valid(complete, word_salt(seed, COUNTER_COMPLETE))) {
        uint64_t damaged = 0;

        cold.taken = cold.complete = 0;
        r = walk(&cold, count_entry, &cold, &damaged);
        if (r < 0)
            return r;
    }
    *ret_cold = cold;
    pthread_mutex_init(&ret_cold->lock, NULL);
    fd = -1;
    return 0;
}

void cold_close(struct cold *cold)
{
    close(cold->fd);
    cold->fd = -1;
    pthread_mutex_destroy(&cold->lock);
}

int cold_get(struct cold *cold, const uint8_t id[16], struct dirs_entry *ret_entry)
{
    LOCK_FOR_SCOPE(&cold->lock);
    struct dirs_entry entry;
    uint64_t at;
    int r = find(cold, id, &at, &entry);

    if (r == 0)
        *ret_entry = entry;
    return r;
}

/* Stores ENTRY where there is room for sure, unless a newer one of its id is there. */
static int copy_entry(void *ctx, const struct dirs_entry *entry)
{
    struct cold *to = ctx;
    struct dirs_entry old;
    uint64_t at;

    if (entry->kind == ENTRY_DELETED)
        return 0;
    int r = find(to, entry->id, &at, &old);
    if (r == 0 && old.epoch >= entry->epoch)
        return 0;
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == -ENOENT)
        count_entry(to, entry);
    return at == UINT64_MAX ? -ENOSPC : put_at(to, at, entry);
}

/* Twice the room, in a new file. */
static int grow(struct cold *cold)
{
    struct cold bigger;
    uint64_t damaged = 0;
    int r = create_file(cold->dirfd, "dirs.new", &cold->header, cold->seed, cold->slots * 2,
                        &bigger);

    if (r < 0)
        return r;
    r = walk(cold, copy_entry, &bigger, &damaged);
    if (r == 0 && cold->dirfd >= 0) {
        r = put_header(&bigger);
        if (r == 0 && (fdatasync(bigger.fd) < 0 ||
                       renameat(cold->dirfd, "dirs.new", cold->dirfd, "dirs") < 0 ||
                       fsync(cold->dirfd) < 0))
            r = -errno;
    }
    if (r < 0) {
        close(bigger.fd);
        return r;
    }
    close(cold->fd);
    cold->fd = bigger.fd;
    cold->header = bigger.header;
    cold->slots = bigger.slots;
    cold->taken = bigger.taken;
    cold->complete = bigger.complete;
    return 0;
}

int cold_put(struct cold *cold, const struct dirs_entry *entry)
{
    LOCK_FOR_SCOPE(&cold->lock);
    struct dirs_entry old;
    uint64_t at;

    if ((cold->taken + 1) * FULL_DEN > cold->slots * FULL_NUM) {
        int r = grow(cold);
        if (r < 0)
            return r;
    }
    int r = find(cold, entry->id, &at, &old);
    if (r == -ENOENT) {
        old.kind = ENTRY_FREE;
        if (entry->kind == ENTRY_DELETED)
            return 0;
    } else if (r < 0) {
        return r;
    }
    if (at == UINT64_MAX)
        return -ENOSPC;
    r = put_at(cold, at, entry);
    if (r < 0)
        return r;
    cold->taken += old.kind == ENTRY_FREE;
    cold->complete += entry->kind == ENTRY_PROVEN;
    cold->complete -= old.kind == ENTRY_PROVEN && cold->complete > 0;
    return 0;
}

int cold_sync(struct cold *cold)
{
    LOCK_FOR_SCOPE(&cold->lock);

    if (cold->dirfd < 0)
        return 0;
    int r = put_header(cold);
    if (r < 0)
        return r;
    return fdatasync(cold->fd) < 0 ? -errno : 0;
}

int cold_for_each(struct cold *cold, cold_fn fn, void *ctx)
{
    LOCK_FOR_SCOPE(&cold->lock);
    uint64_t damaged = 0;

    return walk(cold, fn, ctx, &damaged);
}

static int nothing(void *ctx, const struct dirs_entry *entry)
{
    (void)ctx;
    (void)entry;
    return 0;
}

int cold_verify(struct cold *cold)
{
    LOCK_FOR_SCOPE(&cold->lock);
    uint64_t damaged = 0;
    int r = walk(cold, nothing, NULL, &damaged);

    if (r < 0)
        return r;
    if (damaged > 0)
        log_line(LOG_ERR, "index: dirs: %llu damaged entries", (unsigned long long)damaged);
    return damaged > 0 ? -EUCLEAN : 0;
}

void cold_info(struct cold *cold, uint64_t *ret_complete, uint64_t *bytes)
{
    LOCK_FOR_SCOPE(&cold->lock);

    *ret_complete = cold->complete;
    *bytes += file_bytes(cold->fd);
}
