/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * known.c - which records a rebuild keeps.
 *
 * Two views of a directory must find in the new generation what they need: the one in memory,
 * and its durable entry, with which a restart after a power loss would begin.  For the second
 * a record counts by the scan number of the entry, and a removal since the entry's checkpoint
 * is evidence that must stay.  So a record goes only if neither needs it.  Records of keys
 * that nobody knows any more go.
 *
 * The list is made while no checkpoint can move a directory from memory to dirs.
 */
#include "index/internal.h"

/* First room of the list, in directories. */
#define ROOM_FIRST 1024u

static struct known *append(struct known_dirs *known)
{
    if (known->count == known->room) {
        size_t room = known->room ? known->room * 2 : ROOM_FIRST;
        struct known *dirs = reallocarray(known->dirs, room, sizeof(*dirs));

        if (!dirs)
            return NULL;
        known->dirs = dirs;
        known->room = room;
    }
    return &known->dirs[known->count++];
}

struct collect {
    const struct index *index;
    struct known_dirs *known;
};

static int add_entry(void *ctx, const struct dirs_entry *e)
{
    const struct collect *c = ctx;

    if (e->kind == ENTRY_DELETED)
        return 0;
    struct known *k = append(c->known);
    if (!k)
        return -ENOMEM;
    bool proven = e->kind == ENTRY_PROVEN;
    *k = (struct known){
        .key = e->key,
        .scan_number = e->scan,
        .entry_scan = proven ? e->scan : UINT64_MAX,
        .entry_epoch = proven ? e->epoch : UINT64_MAX,
    };
    k->entry_doubts = entry_doubts(c->index, e);
    return 0;
}

static int add_live(struct index *index, struct known_dirs *known)
{
    LOCK_FOR_SCOPE(&index->live_lock);

    for (struct index_dir *dir = index->live; dir; dir = dir->hh.next) {
        struct known *k = append(known);

        if (!k)
            return -ENOMEM;
        *k = (struct known){
            .key = atomic_load(&dir->key),
            .scan_number = atomic_load(&dir->scan_number),
            .scanning = atomic_load(&dir->scanning),
            .entry_scan = UINT64_MAX,
            .entry_epoch = UINT64_MAX,
            .doubts = dir_doubts(dir),
            .live = true,
        };
    }
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct known *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (int)x->live - (int)y->live;
}

/* One for each key: the live one, with what the entry adds. */
static void unite(struct known_dirs *known)
{
    size_t kept = 0;

    for (size_t i = 0; i < known->count; i++) {
        struct known *k = &known->dirs[i];
        struct known *last = kept ? &known->dirs[kept - 1] : NULL;

        if (k->key == 0)
            continue;
        if (!last || last->key != k->key) {
            known->dirs[kept++] = *k;
            continue;
        }
        struct known entry = *last;
        *last = *k;
        last->entry_scan = entry.entry_scan;
        last->entry_epoch = entry.entry_epoch;
        last->entry_doubts = entry.entry_doubts;
    }
    known->count = kept;
}

int known_collect(struct index *index, struct gen *gen, struct known_dirs *ret_known)
{
    struct known_dirs known = {0};
    struct collect collect = {.index = index, .known = &known};
    int r = cold_for_each(&gen->dirs, add_entry, &collect);

    if (r == 0)
        r = cold_for_each(&index->unlasting, add_entry, &collect);
    if (r == 0)
        r = add_live(index, &known);
    if (r < 0) {
        free(known.dirs);
        return r;
    }
    if (known.count > 0)
        qsort(known.dirs, known.count, sizeof(*known.dirs), by_key);
    unite(&known);
    *ret_known = known;
    return 0;
}

void known_free(struct known_dirs *known)
{
    free(known->dirs);
    *known = (struct known_dirs){0};
}

struct known *known_find(const struct known_dirs *known, uint64_t key)
{
    size_t low = 0, high = known->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (known->dirs[mid].key == key)
            return &known->dirs[mid];
        if (known->dirs[mid].key < key)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

bool known_keeps(const struct known *known, uint64_t state)
{
    uint64_t number = state & NUMBER_MASK;

    if (!(state & STATE_REMOVED))
        return number >= known->scan_number || number >= known->entry_scan;
    if (known->scanning != 0 && number >= known->scanning)
        return true;
    return number >= known->entry_epoch || doubts_have(&known->doubts, number) ||
           doubts_have(&known->entry_doubts, number);
}
