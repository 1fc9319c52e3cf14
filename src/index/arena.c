/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * arena.c - the records in `names`: appended, looked at with every check, never moved and
 * never overwritten but for their state and links.
 *
 * The key, length, kind and name of a record never change after something leads to it, and
 * stand under a static check of 16 bits, half of which sees any change of one byte for
 * certain.  State and links are checked words.  So whoever follows an offset, whatever it is,
 * either gets an undamaged record that was written at this very place, or is told.
 *
 * Space: the tail moves by compare-and-swap; `names` grows in steps that stay small beside the
 * file, since allocated and unused bytes count too.
 *
 * Left out: reusing the space of records that nothing leads to any more (rebuild.c).
 */
#include "index/internal.h"

/* The file grows by a 64th of itself, within these bounds. */
#define GROW_SHARE 64u
#define GROW_MIN   (UINT64_C(64) << 10)
#define GROW_MAX   (UINT64_C(8) << 20)
/* On a full disk the last pages are asked for one by one. */
#define GROW_LAST 4096u

/* Multipliers of the hash half of the static check: odd 64-bit constants. */
#define MIX_A UINT64_C(0x9fb21c651e98df25)
#define MIX_B UINT64_C(0xd6e8feb86659fd93)

/* 16 bits over META and NAME (padded to whole words).  Low half: the exclusive or of all bytes,
 * high half: a hash. */
static uint16_t static_check(const struct gen *gen, uint64_t offset, uint64_t meta,
                             const char *name, size_t len)
{
    uint64_t sum = meta ^ offset * SPREAD;
    uint64_t hash = (meta ^ gen->seed) * MIX_A;

    hash ^= offset * SPREAD;
    for (size_t i = 0; i < len; i += UNIT) {
        uint64_t word;

        memcpy(&word, name + i, sizeof(word));
        sum ^= word;
        hash = (hash ^ (hash >> 29) ^ word) * MIX_B;
    }
    hash ^= hash >> 32;
    hash *= MIX_A;
    sum ^= sum >> 32;
    sum ^= sum >> 16;
    sum ^= sum >> 8;
    return (uint16_t)((sum & 0xff) | (hash >> 56) << 8);
}

static uint16_t link_static(uint64_t word)
{
    return (uint16_t)(word >> OFFSET_BITS);
}

bool record_view(const struct gen *gen, uint64_t offset, struct view_of_record *ret_view)
{
    uint64_t tail = atomic_load_explicit(&gen->tail, memory_order_acquire);

    if (offset < HEADER_BYTES || offset % UNIT != 0 || offset + sizeof(struct record) > tail)
        return false;
    struct record *record = (struct record *)(void *)(gen->names.base + offset);
    uint64_t meta = record->meta;
    uint8_t len = meta_len(meta);
    unsigned type = meta_type(meta), levels = meta_levels(meta);

    if (levels > LEVELS_MAX || (type != RECORD_NAME && type != RECORD_ANCHOR) || len == 0 ||
        offset + record_bytes(len, levels) > tail)
        return false;
    const char *name = (const char *)(record + 1) + 8 * levels;
    uint64_t link = atomic_load_explicit(&record->link, memory_order_relaxed);
    if (link_static(link) != static_check(gen, offset, meta, name, len))
        return false;
    *ret_view = (struct view_of_record){
        .record = record,
        .offset = offset,
        .key = meta_key(meta),
        .name = name,
        .len = len,
        .type = type,
        .levels = levels,
    };
    return true;
}

static _Atomic uint64_t *link_word(const struct view_of_record *v, int level)
{
    if (level == LINK_BASE)
        return &v->record->link;
    return (_Atomic uint64_t *)(void *)(v->record + 1) + level;
}

static uint8_t link_salt(const struct gen *gen, uint64_t offset, int level)
{
    return record_salt(gen, offset, level == LINK_BASE ? 1 : 3 + (unsigned)level);
}

bool record_get_link(const struct gen *gen, const struct view_of_record *v, int level,
                     uint64_t *ret_offset)
{
    uint64_t word = atomic_load_explicit(link_word(v, level), memory_order_acquire);

    if (!word_valid(word, link_salt(gen, v->offset, level)))
        return false;
    *ret_offset = slot_offset(word);
    return true;
}

void record_set_link(const struct gen *gen, const struct view_of_record *v, int level,
                     uint64_t offset)
{
    _Atomic uint64_t *word = link_word(v, level);
    uint64_t keep = 0;

    if (level == LINK_BASE)
        keep = atomic_load_explicit(word, memory_order_relaxed) & PAYLOAD_MASK & ~OFFSET_MASK;
    atomic_store_explicit(word,
                          word_make(offset / UNIT | keep, link_salt(gen, v->offset, level)),
                          memory_order_release);
}

int arena_grow_to(struct gen *gen, uint64_t end)
{
    LOCK_FOR_SCOPE(&gen->grow_lock);
    uint64_t size = atomic_load(&gen->names.size);

    if (end <= size)
        return 0;
    uint64_t step = size / GROW_SHARE;
    step = step < GROW_MIN ? GROW_MIN : step > GROW_MAX ? GROW_MAX : step;
    uint64_t want = (end + step + GROW_LAST - 1) / GROW_LAST * GROW_LAST;
    if (want > gen->names.span)
        want = gen->names.span;
    int r = map_grow(&gen->names, want);
    if (r == -ENOSPC)
        r = map_grow(&gen->names, (end + GROW_LAST - 1) / GROW_LAST * GROW_LAST);
    return r;
}

static int reserve(struct gen *gen, uint64_t bytes, uint64_t *ret_offset)
{
    uint64_t at = atomic_load(&gen->tail);

    for (;;) {
        if (at + bytes > atomic_load(&gen->names.size)) {
            int r = arena_grow_to(gen, at + bytes);
            if (r < 0)
                return -ENOSPC;
        }
        if (atomic_compare_exchange_weak(&gen->tail, &at, at + bytes)) {
            *ret_offset = at;
            return 0;
        }
    }
}

int record_append(struct gen *gen, uint64_t key, unsigned type, unsigned levels,
                  const char *name, size_t len, uint64_t number_and_removed,
                  uint64_t *ret_offset)
{
    uint64_t offset;
    int r = reserve(gen, record_bytes(len, levels), &offset);

    if (r < 0)
        return r;
    struct record *record = (struct record *)(void *)(gen->names.base + offset);
    char *to = (char *)(record + 1);
    uint64_t meta = meta_make(key, len, type, levels);

    record->meta = meta;
    for (unsigned i = 0; i < levels; i++, to += 8)
        atomic_store_explicit((_Atomic uint64_t *)(void *)to,
                              word_make(0, link_salt(gen, offset, (int)i)),
                              memory_order_relaxed);
    /* The padding is zero already: nothing was ever written here. */
    memcpy(to, name, len);
    uint64_t check = static_check(gen, offset, meta, to, len);
    atomic_store_explicit(&record->link,
                          word_make(check << OFFSET_BITS, link_salt(gen, offset, LINK_BASE)),
                          memory_order_relaxed);
    atomic_store_explicit(&record->state, record_state_make(gen, offset, number_and_removed),
                          memory_order_release);
    *ret_offset = offset;
    return 0;
}
