/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * table.c - slots: from a hash to the base record of a folded name.
 *
 * A bucket is a cache line of eight slots.  A name's home bucket comes from the high bits of
 * its hash by multiplication, so that the number of buckets need not be a power of two and a
 * table can grow by a fifth; its slot is in the first bucket from there that had a free one.
 * Slots are never freed and never move within a generation.  So a bucket that was full stays
 * full, a probe that ends at a bucket with an empty slot has seen all there is, and a name that
 * is found once is found there until the generation ends.
 *
 * Every slot of every bucket on the way is checked.  What is not valid may have been the slot
 * that was looked for, and is told to the caller, who knows whether the directory has been
 * scanned since: then a new slot would be there.  A slot with the right tag that leads to a
 * valid record of another hash is damage too (a record written over a lost one).
 *
 * Writers of one folded name exclude each other by its stripe; writers of different names that
 * want the same empty slot by compare-and-swap.
 */
#include "index/internal.h"

#include "fold/fold.h"

void query_init(uint64_t seed, uint64_t key, const char *name, size_t len,
                struct query *ret_query)
{
    ret_query->key = key;
    ret_query->name = name;
    ret_query->len = len;
    ret_query->hashed.key = key;
    ret_query->folded_len = fold_name(name, len, ret_query->hashed.folded);
    ret_query->hash = XXH3_64bits_withSeed(&ret_query->hashed,
                                           sizeof(uint64_t) + ret_query->folded_len, seed);
}

static inline uint64_t home_of(const struct gen *gen, uint64_t hash)
{
    return (uint64_t)(((unsigned __int128)hash * gen->nbuckets) >> 64);
}

static inline uint8_t bucket_salt(const struct gen *gen, uint64_t bucket)
{
    return word_salt(gen->seed, ~bucket);
}

void table_format(struct gen *gen)
{
    for (uint64_t b = 0; b < gen->nbuckets; b++) {
        uint8_t salt = bucket_salt(gen, b);

        for (unsigned i = 0; i < SLOTS_PER_BUCKET; i++)
            atomic_store_explicit(&gen->buckets[b].slots[i], slot_empty(b, i, salt),
                                  memory_order_relaxed);
    }
}

enum slot_kind { SLOT_EMPTY, SLOT_TAKEN, SLOT_DAMAGED };

static inline enum slot_kind slot_kind(const struct gen *gen, uint64_t slot, uint64_t bucket,
                                       unsigned i, uint8_t salt)
{
    if (!word_valid(slot, salt))
        return SLOT_DAMAGED;
    if (slot_offset(slot) == 0)
        return slot == slot_empty(bucket, i, salt) ? SLOT_EMPTY : SLOT_DAMAGED;
    if (slot_offset(slot) >= atomic_load_explicit(&gen->tail, memory_order_relaxed))
        return SLOT_DAMAGED;
    return SLOT_TAKEN;
}

/* Begins to fetch both of the first lines of the record at OFFSET: most records straddle two,
 * and where the name begins is only known when the first one has come. */
static inline void prefetch_record(const struct gen *gen, uint64_t offset)
{
    const char *record = gen->names.base + offset;

    __builtin_prefetch(record);
    __builtin_prefetch(record + CACHE_LINE);
}

enum match { MATCH_YES, MATCH_NO, MATCH_DAMAGED };

/* Is the record at OFFSET, whose slot has Q's tag, the base of Q's folded name? */
static enum match match_record(const struct gen *gen, const struct query *q, uint64_t offset,
                               struct view_of_record *ret_view)
{
    struct query other;

    if (!record_view(gen, offset, ret_view) || ret_view->type != RECORD_NAME ||
        ret_view->levels != 0)
        return MATCH_DAMAGED;
    if (ret_view->key == q->key && ret_view->len == q->len &&
        memcmp(ret_view->name, q->name, q->len) == 0)
        return MATCH_YES;
    query_init(gen->seed, ret_view->key, ret_view->name, ret_view->len, &other);
    if (query_tag(&other) != query_tag(q))
        return MATCH_DAMAGED;
    return other.key == q->key && other.folded_len == q->folded_len &&
                   memcmp(other.hashed.folded, q->hashed.folded, q->folded_len) == 0
               ? MATCH_YES
               : MATCH_NO;
}

void table_prefetch(const struct gen *gen, const struct query *q)
{
    __builtin_prefetch(&gen->buckets[home_of(gen, q->hash)]);
}

/* Looks through one bucket: true if Q's slot is in it. */
static bool find_in_bucket(struct gen *gen, const struct query *q, uint64_t b,
                           struct place *ret_place, bool *ret_damaged, bool *ret_has_empty)
{
    struct bucket *bucket = &gen->buckets[b];
    uint8_t salt = bucket_salt(gen, b);

    for (unsigned i = 0; i < SLOTS_PER_BUCKET; i++) {
        uint64_t slot = atomic_load_explicit(&bucket->slots[i], memory_order_acquire);
        enum slot_kind kind = slot_kind(gen, slot, b, i, salt);

        if (kind == SLOT_EMPTY)
            *ret_has_empty = true;
        if (kind == SLOT_DAMAGED)
            *ret_damaged = true;
        if (kind != SLOT_TAKEN || slot_tag(slot) != query_tag(q))
            continue;
        prefetch_record(gen, slot_offset(slot));
        enum match m = match_record(gen, q, slot_offset(slot), &ret_place->base);
        if (m == MATCH_DAMAGED)
            *ret_damaged = true;
        if (m != MATCH_YES)
            continue;
        ret_place->slot = &bucket->slots[i];
        ret_place->bucket = b;
        return true;
    }
    return false;
}

bool table_find(struct gen *gen, const struct query *q, struct place *ret_place,
                bool *ret_damaged)
{
    uint64_t b = home_of(gen, q->hash);

    for (uint64_t n = 0; n < gen->nbuckets; n++) {
        bool has_empty = false;

        if (find_in_bucket(gen, q, b, ret_place, ret_damaged, &has_empty))
            return true;
        if (has_empty)
            return false;
        if (++b == gen->nbuckets)
            b = 0;
    }
    return false;
}

int table_insert(struct gen *gen, const struct query *q, uint64_t offset)
{
    uint64_t b = home_of(gen, q->hash);

    for (uint64_t n = 0; n < gen->nbuckets; n++) {
        uint8_t salt = bucket_salt(gen, b);
        uint64_t wanted = slot_make(offset, query_tag(q), salt);

        for (unsigned i = 0; i < SLOTS_PER_BUCKET; i++) {
            uint64_t empty = slot_empty(b, i, salt);

            if (atomic_compare_exchange_strong(&gen->buckets[b].slots[i], &empty, wanted)) {
                atomic_fetch_add_explicit(&gen->used, 1, memory_order_relaxed);
                return 0;
            }
        }
        if (++b == gen->nbuckets)
            b = 0;
    }
    return -ENOSPC;
}

void table_replace(struct gen *gen, const struct query *q, const struct place *place,
                   uint64_t offset)
{
    atomic_store_explicit(place->slot,
                          slot_make(offset, query_tag(q), bucket_salt(gen, place->bucket)),
                          memory_order_release);
}

void table_for_each(const struct gen *gen, slot_fn fn, void *ctx, uint64_t *ret_damaged)
{
    for (uint64_t b = 0; b < gen->nbuckets; b++) {
        uint8_t salt = bucket_salt(gen, b);

        for (unsigned i = 0; i < SLOTS_PER_BUCKET; i++) {
            uint64_t slot =
                atomic_load_explicit(&gen->buckets[b].slots[i], memory_order_acquire);
            enum slot_kind kind = slot_kind(gen, slot, b, i, salt);

            if (kind == SLOT_DAMAGED)
                ++*ret_damaged;
            else if (kind == SLOT_TAKEN)
                fn(ctx, slot_offset(slot));
        }
    }
}

struct tally {
    uint64_t end, taken;
};

static void tally_slot(void *ctx, uint64_t offset)
{
    struct tally *tally = ctx;

    tally->taken += offset < tally->end;
}

bool table_count(const struct gen *gen, uint64_t end, uint64_t *ret_taken)
{
    struct tally tally = {.end = end};
    uint64_t damaged = 0;

    table_for_each(gen, tally_slot, &tally, &damaged);
    *ret_taken = tally.taken;
    return damaged == 0;
}

uint64_t table_end(const struct gen *gen)
{
    uint64_t end = 0;

    for (uint64_t b = 0; b < gen->nbuckets; b++) {
        uint8_t salt = bucket_salt(gen, b);

        for (unsigned i = 0; i < SLOTS_PER_BUCKET; i++) {
            uint64_t slot =
                atomic_load_explicit(&gen->buckets[b].slots[i], memory_order_relaxed);
            uint64_t offset = slot_offset(slot);

            if (word_valid(slot, salt) && offset > end && offset < gen->names.span)
                end = offset;
        }
    }
    return end + RECORD_MAX;
}
