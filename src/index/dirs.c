/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * dirs.c - directories in memory: one object for each identity, and how it comes from and goes
 * to the cold ones (cold.c).
 *
 * An object lives while somebody holds it, and after that until the next checkpoint if there
 * is something to write.  Its key is a number that was never given out before; forgetting a
 * directory is taking another key.
 *
 * What is loaded from an entry is as true as the entry's stamp, with one exception: removals
 * with a number from the moment when the stamp was taken up to the end of that boot are in
 * doubt.  They were written into the records, perhaps to the disk, before the tree made the
 * removal durable; when the tree comes back with the old stamp, the name is back too.
 *
 * Locks: live_lock guards the table and refs, dirty_lock the list, dir->lock the rest.
 */
#include "index/internal.h"

#include <utlist.h>

void dir_mark_dirty(struct index_dir *dir)
{
    LOCK_FOR_SCOPE(&dir->index->dirty_lock);

    if (dir->is_dirty)
        return;
    dir->is_dirty = true;
    DL_APPEND(dir->index->dirty, dir);
}

/* Is DIR to be written, or being written? */
static bool is_listed(struct index_dir *dir)
{
    LOCK_FOR_SCOPE(&dir->index->dirty_lock);

    return dir->is_dirty || dir->is_snapped;
}

void dir_write_begin(struct index_dir *dir)
{
    atomic_store_explicit(&dir->seq, atomic_load_explicit(&dir->seq, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

void dir_write_end(struct index_dir *dir)
{
    atomic_store_explicit(&dir->seq, atomic_load_explicit(&dir->seq, memory_order_relaxed) + 1,
                          memory_order_release);
}

void dir_store_stamp(struct index_dir *dir, const struct index_stamp *stamp, bool unsettled)
{
    atomic_store_explicit(&dir->stamp[0], stamp->ctime_ns, memory_order_release);
    atomic_store_explicit(&dir->stamp[1], stamp->mtime_ns, memory_order_release);
    atomic_store_explicit(&dir->stamp[2], stamp->size, memory_order_release);
    atomic_store_explicit(&dir->stamp[3], stamp->btime_ns, memory_order_release);
    atomic_store_explicit(&dir->unsettled, unsettled, memory_order_release);
}

void dir_load_stamp(struct index_dir *dir, struct index_stamp *ret_stamp)
{
    ret_stamp->ctime_ns = atomic_load_explicit(&dir->stamp[0], memory_order_acquire);
    ret_stamp->mtime_ns = atomic_load_explicit(&dir->stamp[1], memory_order_acquire);
    ret_stamp->size = atomic_load_explicit(&dir->stamp[2], memory_order_acquire);
    ret_stamp->btime_ns = atomic_load_explicit(&dir->stamp[3], memory_order_acquire);
}

void dir_lose(struct index_dir *dir)
{
    /* A commit sets complete first and then looks at lost: one of the two sees the other. */
    atomic_fetch_add(&dir->lost, 1);
    atomic_store(&dir->complete, false);
}

void index_dir_watch(struct index_dir *dir)
{
    atomic_store(&dir->watched, true);
}

void index_dir_set_number(struct index_dir *dir, uint64_t number)
{
    atomic_store(&dir->number, number);
}

uint64_t index_changed_behind(struct index *index, const void *id, size_t id_len,
                              const char *name, size_t len)
{
    struct index_dir *dir;

    LOCK_FOR_SCOPE(&index->live_lock);
    HASH_FIND(hh, index->live, id, id_len, dir);
    if (!dir)
        return 0;
    if (name) {
        index_doubt(dir, name, len);
    } else {
        suspects_clear(dir);
        dir_lose(dir);
        /* Its entry may carry the very stamp that the change left. */
        dir_mark_dirty(dir);
    }
    return atomic_load(&dir->number);
}

void index_unwatch_all(struct index *index)
{
    struct index_dir *dir, *next;

    LOCK_FOR_SCOPE(&index->live_lock);
    HASH_ITER (hh, index->live, dir, next) {
        atomic_store(&dir->watched, false);
        suspects_clear(dir);
        dir_lose(dir);
        dir_mark_dirty(dir);
    }
}

static void doubts_add(struct doubts *doubts, uint64_t from, uint64_t to)
{
    unsigned n = 0;

    while (n < DOUBTS_MAX && doubts->ranges[n].from < doubts->ranges[n].to)
        n++;
    if (n == DOUBTS_MAX) {
        doubts->ranges[0].to = doubts->ranges[1].to;
        memmove(&doubts->ranges[1], &doubts->ranges[2],
                (DOUBTS_MAX - 2) * sizeof(doubts->ranges[0]));
        n--;
    }
    doubts->ranges[n].from = from;
    doubts->ranges[n].to = to;
}

struct doubts entry_doubts(const struct index *index, const struct dirs_entry *entry)
{
    struct doubts doubts = entry->doubts;

    if (entry->epoch < index->manifest.crash)
        doubts_add(&doubts, entry->epoch, index->manifest.crash);
    return doubts;
}

struct doubts dir_doubts(struct index_dir *dir)
{
    struct doubts doubts;

    for (unsigned i = 0; i < DOUBTS_MAX; i++) {
        doubts.ranges[i].from = atomic_load_explicit(&dir->doubts[2 * i], memory_order_acquire);
        doubts.ranges[i].to =
            atomic_load_explicit(&dir->doubts[2 * i + 1], memory_order_acquire);
    }
    return doubts;
}

void dir_set_doubts(struct index_dir *dir, const struct doubts *doubts)
{
    for (unsigned i = 0; i < DOUBTS_MAX; i++) {
        atomic_store_explicit(&dir->doubts[2 * i], doubts->ranges[i].from,
                              memory_order_release);
        atomic_store_explicit(&dir->doubts[2 * i + 1], doubts->ranges[i].to,
                              memory_order_release);
    }
}

/* Takes what ENTRY tells, if it can be true. */
static bool load_entry(struct index_dir *dir, const struct dirs_entry *e, bool backed)
{
    struct index *index = dir->index;
    uint64_t now = atomic_load(&index->number);

    if (e->key == 0 || e->key > now || e->scan > now || e->epoch > now)
        return false;
    const struct doubts doubts = entry_doubts(index, e);
    atomic_store(&dir->key, e->key);
    atomic_store(&dir->scan_number, e->scan);
    dir_set_doubts(dir, &doubts);
    const struct index_stamp stamp = {e->stamp[0], e->stamp[1], e->stamp[2], e->stamp[3]};
    dir_store_stamp(dir, &stamp, false);
    dir->stamp_number = e->epoch;
    atomic_store(&dir->complete, e->kind == ENTRY_PROVEN && backed);
    dir->has_entry = true;
    return true;
}

static void load_cold(struct index_dir *dir)
{
    struct index *index = dir->index;
    struct dirs_entry entry;
    bool backed = true;
    uint64_t key;
    int r;

    if (dir->persist) {
        unsigned ticket = grace_enter(&index->grace);
        struct gen *gen = atomic_load(&index->view)->cur;

        r = cold_get(&gen->dirs, dir->id_hash, &entry);
        backed = r < 0 || gen_backs(gen, &entry, index->run_start);
        grace_exit(&index->grace, ticket);
    } else {
        r = cold_get(&index->unlasting, dir->id_hash, &entry);
    }
    if (r == 0 && load_entry(dir, &entry, backed))
        return;
    if (number_next(index, &key) == 0)
        atomic_store(&dir->key, key);
}

static struct index_dir *dir_new(struct index *index, const void *id, size_t id_len,
                                 int64_t granularity_ns, bool persist)
{
    struct index_dir *dir = calloc(1, sizeof(*dir) + id_len);

    if (!dir)
        return NULL;
    dir->index = index;
    dir->persist = persist;
    dir->granularity_ns = granularity_ns;
    dir->id_len = id_len;
    memcpy(dir->id, id, id_len);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits_withSeed(id, id_len, index->manifest.seed));
    memcpy(dir->id_hash, canonical.digest, sizeof(dir->id_hash));
    pthread_mutex_init(&dir->lock, NULL);
    return dir;
}

static void dir_free(struct index_dir *dir)
{
    suspects_clear(dir);
    pthread_mutex_destroy(&dir->lock);
    free(dir);
}

int index_dir_acquire(struct index *index, const void *id, size_t id_len,
                      int64_t granularity_ns, bool persist, struct index_dir **ret_dir)
{
    struct index_dir *dir;

    if (id_len == 0 || id_len > INDEX_DIR_ID_MAX)
        return -EINVAL;
    LOCK_FOR_SCOPE(&index->live_lock);
    HASH_FIND(hh, index->live, id, id_len, dir);
    if (!dir) {
        dir = dir_new(index, id, id_len, granularity_ns, persist);
        if (!dir)
            return -ENOMEM;
        HASH_ADD_KEYPTR(hh, index->live, dir->id, dir->id_len, dir);
        if (dir->refused) {
            dir_free(dir);
            return -ENOMEM;
        }
        load_cold(dir);
    }
    dir->refs++;
    *ret_dir = dir;
    return 0;
}

/* Is there something to write before DIR, which nobody holds, can go? */
static bool must_stay(struct index_dir *dir)
{
    bool complete = atomic_load(&dir->complete);

    if (is_listed(dir))
        return true;
    if (complete && !atomic_load(&dir->unsettled))
        return false; /* not dirty: its entry says so */
    return complete || dir->has_entry || dir->used;
}

void index_dir_release(struct index_dir *dir)
{
    if (!dir)
        return;
    LOCK_FOR_SCOPE(&dir->index->live_lock);
    if (--dir->refs > 0)
        return;
    if (must_stay(dir)) {
        dir_mark_dirty(dir);
        return;
    }
    HASH_DEL(dir->index->live, dir);
    dir_free(dir);
}

void dir_collect(struct index_dir *dir)
{
    struct index *index = dir->index;

    /* Whoever releases it must find it in the list until it is decided here who frees it. */
    LOCK_FOR_SCOPE(&index->live_lock);
    {
        LOCK_FOR_SCOPE(&index->dirty_lock);
        dir->is_snapped = false;
        if (dir->refs > 0 || dir->is_dirty)
            return;
    }
    HASH_DEL(index->live, dir);
    dir_free(dir);
}

void index_dir_forget(struct index_dir *dir)
{
    uint64_t key;

    if (number_next(dir->index, &key) < 0)
        key = 0;
    LOCK_FOR_SCOPE(&dir->lock);
    dir_write_begin(dir);
    dir_lose(dir);
    atomic_store(&dir->key, key);
    atomic_store(&dir->scan_number, 0);
    dir_set_doubts(dir, &(struct doubts){0});
    dir_write_end(dir);
    suspects_clear(dir);
    dir->forgotten |= dir->has_entry;
    dir->used = false;
    if (dir->forgotten)
        dir_mark_dirty(dir);
}
