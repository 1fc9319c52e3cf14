/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * variants.c - the other spellings of a folded name.
 *
 * A folded name has one slot, which leads to its base record.  Whoever writes into the tree
 * behind our back can make a hundred thousand entries that fold alike; in a list each
 * of them would cost a walk over all others.  So the variants of a base record (itself not
 * among them) hang from an anchor in a skip list ordered by bytes: link of the base -> anchor,
 * a record with the folded name and all levels -> nodes.  A node's height comes from a seeded
 * hash of its name, so that nobody can choose names that make it degenerate.
 *
 * Nodes are only ever added: one store for each level, the lowest first, so that a reader
 * without lock always sees an ordered list.  Names grow strictly along every level and fold to
 * the anchor's, which is checked at each step: a list with a loop or of another name is damage.
 *
 * After a power loss pages of a list may be of different ages, so that a node hangs on an upper
 * level only.  Groups whose anchor is older than the last boot with an unclean end (FLOOR) are
 * therefore not trusted.
 *
 * A search does not see all of a list.  So the first writer that touches a group in this run,
 * and again in each scan, verifies it whole (names.c), and begins a new group if it is damaged;
 * the anchor's number says when that was.  After a scan in this run, what hangs in a damaged
 * group is dead.
 */
#include "index/internal.h"

#include "fold/fold.h"

/* Orders names by their bytes, a prefix first. */
static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t n = a_len < b_len ? a_len : b_len;
    int c = memcmp(a, b, n);

    if (c != 0)
        return c;
    return a_len < b_len ? -1 : a_len > b_len;
}

static bool folds_to(const struct view_of_record *v, const struct view_of_record *anchor)
{
    char folded[FOLDFS_NAME_MAX];
    size_t len = fold_name(v->name, v->len, folded);

    return len == anchor->len && memcmp(folded, anchor->name, len) == 0;
}

/* The node that LEVEL of V, which is in the group of ANCHOR, leads to: 1, 0 at the end,
 * -EUCLEAN. */
static int follow(struct gen *gen, const struct view_of_record *anchor,
                  const struct view_of_record *v, int level, struct view_of_record *ret_next)
{
    struct view_of_record next;
    uint64_t offset;

    if (!record_get_link(gen, v, level, &offset))
        return -EUCLEAN;
    if (offset == 0)
        return 0;
    if (!record_view(gen, offset, &next) || next.type != RECORD_NAME || next.key != v->key ||
        (int)next.levels <= level || !folds_to(&next, anchor))
        return -EUCLEAN;
    if (v->type == RECORD_NAME && compare(v->name, v->len, next.name, next.len) >= 0)
        return -EUCLEAN;
    *ret_next = next;
    return 1;
}

int variants_next(struct gen *gen, const struct view_of_record *anchor,
                  const struct view_of_record *v, struct view_of_record *ret_next)
{
    return follow(gen, anchor, v, 0, ret_next);
}

/* The anchor of BASE: 1, 0 if it stands alone, -EUCLEAN. */
static int find_anchor(struct gen *gen, const struct view_of_record *base, uint64_t floor,
                       struct view_of_record *ret_anchor)
{
    uint64_t offset, state;

    if (!record_get_link(gen, base, LINK_BASE, &offset))
        return -EUCLEAN;
    if (offset == 0)
        return 0;
    if (!record_view(gen, offset, ret_anchor) || ret_anchor->type != RECORD_ANCHOR ||
        ret_anchor->key != base->key || ret_anchor->levels != LEVELS_MAX ||
        !folds_to(base, ret_anchor))
        return -EUCLEAN;
    if (!record_get_state(gen, ret_anchor, &state) || (state & NUMBER_MASK) < floor)
        return -EUCLEAN;
    return 1;
}

enum variants variants_search(struct gen *gen, const struct view_of_record *base,
                              uint64_t floor, const char *name, size_t len,
                              struct variant_path *ret_path)
{
    int r = find_anchor(gen, base, floor, &ret_path->anchor);

    if (r <= 0)
        return r == 0 ? VARIANTS_NONE : VARIANTS_DAMAGED;
    struct view_of_record at = ret_path->anchor;
    ret_path->found.record = NULL;
    for (int level = LEVELS_MAX - 1; level >= 0; level--) {
        for (;;) {
            struct view_of_record next;

            r = follow(gen, &ret_path->anchor, &at, level, &next);
            if (r < 0)
                return VARIANTS_DAMAGED;
            int c = r == 0 ? 1 : compare(next.name, next.len, name, len);
            if (c == 0)
                ret_path->found = next;
            if (c >= 0)
                break;
            at = next;
        }
        ret_path->preds[level] = at;
    }
    return VARIANTS_OK;
}

/* Walks LEVEL of the chain and counts its nodes by height; false if it is damaged. */
static bool walk_level(struct gen *gen, const struct view_of_record *anchor, int level,
                       uint64_t ret_heights[LEVELS_MAX + 1])
{
    struct view_of_record at = *anchor, next;
    int r;

    while ((r = follow(gen, anchor, &at, level, &next)) > 0) {
        ret_heights[next.levels]++;
        at = next;
    }
    return r == 0;
}

enum variants variants_verify(struct gen *gen, const struct view_of_record *base,
                              uint64_t floor, struct view_of_record *ret_anchor)
{
    uint64_t all[LEVELS_MAX + 1] = {0}, taller = 0;
    int r = find_anchor(gen, base, floor, ret_anchor);

    if (r <= 0)
        return r == 0 ? VARIANTS_NONE : VARIANTS_DAMAGED;
    if (!walk_level(gen, ret_anchor, 0, all))
        return VARIANTS_DAMAGED;
    for (int level = LEVELS_MAX - 1; level > 0; level--) {
        uint64_t heights[LEVELS_MAX + 1] = {0}, found = 0;

        if (!walk_level(gen, ret_anchor, level, heights))
            return VARIANTS_DAMAGED;
        for (unsigned h = 0; h <= LEVELS_MAX; h++)
            found += heights[h];
        taller += all[level + 1];
        if (found != taller)
            return VARIANTS_DAMAGED;
    }
    return VARIANTS_OK;
}

/* How many levels a node of NAME has: each further one with a chance of a quarter. */
static unsigned height_of(const struct gen *gen, const char *name, size_t len)
{
    uint64_t hash = XXH3_64bits_withSeed(name, len, ~gen->seed);
    unsigned height = 1;

    while (height < LEVELS_MAX && (hash & 3) == 0) {
        height++;
        hash >>= 2;
    }
    return height;
}

int variants_insert(struct gen *gen, const struct view_of_record *base,
                    const struct variant_path *path, uint64_t number_now, const char *name,
                    size_t len, uint64_t number_and_removed)
{
    unsigned height = height_of(gen, name, len);
    struct variant_path fresh;
    struct view_of_record node;
    uint64_t anchor = 0, offset;

    if (!path) {
        char folded[FOLDFS_NAME_MAX];
        size_t folded_len = fold_name(name, len, folded);
        int r = record_append(gen, base->key, RECORD_ANCHOR, LEVELS_MAX, folded, folded_len,
                              number_now, &anchor);
        if (r < 0)
            return r;
        if (!record_view(gen, anchor, &fresh.anchor))
            return -EUCLEAN;
        for (unsigned i = 0; i < LEVELS_MAX; i++)
            fresh.preds[i] = fresh.anchor;
        path = &fresh;
    }
    int r = record_append(gen, base->key, RECORD_NAME, height, name, len, number_and_removed,
                          &offset);
    if (r < 0)
        return r;
    if (!record_view(gen, offset, &node))
        return -EUCLEAN;
    for (unsigned i = 0; i < height; i++) {
        uint64_t next;

        if (!record_get_link(gen, &path->preds[i], (int)i, &next))
            return -EUCLEAN;
        record_set_link(gen, &node, (int)i, next);
        record_set_link(gen, &path->preds[i], (int)i, offset);
    }
    if (anchor != 0)
        record_set_link(gen, base, LINK_BASE, anchor);
    atomic_fetch_add_explicit(&gen->variants, 1, memory_order_relaxed);
    return 0;
}
