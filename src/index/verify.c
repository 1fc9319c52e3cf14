/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * verify.c - compares every structure with every other, mends nothing.
 *
 * From the table: every slot is valid; what it leads to is an undamaged record of a name, with
 * a valid state whose number was given out; a look-up of that name comes back to this record;
 * its chain is in order, of names that fold like it, and each of them is found by a search.
 * And every entry of dirs is undamaged.
 *
 * Others may write meanwhile: each base is looked at under its stripe.
 */
#include "index/internal.h"

#include "log.h"

/* Not more lines than this about one index. */
#define LINES_MAX 10u

struct verify {
    struct index *index;
    struct gen *gen;
    uint64_t wrong;
};

static void complain(struct verify *v, uint64_t offset, const char *what)
{
    if (v->wrong++ < LINES_MAX)
        log_line(LOG_ERR, "index: record at %llu: %s", (unsigned long long)offset, what);
}

static void check_state(struct verify *v, const struct view_of_record *record)
{
    uint64_t state;

    if (!record_get_state(v->gen, record, &state))
        complain(v, record->offset, "damaged state");
    else if ((state & NUMBER_MASK) > atomic_load(&v->index->number))
        complain(v, record->offset, "number that was never given out");
}

static void check_variant(struct verify *v, const struct view_of_record *base,
                          const struct view_of_record *node)
{
    struct variant_path path;

    check_state(v, node);
    if (variants_search(v->gen, base, v->index->manifest.group_floor, node->name, node->len,
                        &path) != VARIANTS_OK ||
        !path.found.record || path.found.offset != node->offset)
        complain(v, node->offset, "not found in its chain");
}

static void check_chain(struct verify *v, const struct view_of_record *base)
{
    struct view_of_record anchor, at, next;

    switch (variants_verify(v->gen, base, v->index->manifest.group_floor, &anchor)) {
    case VARIANTS_NONE:
        return;
    case VARIANTS_DAMAGED:
        complain(v, base->offset, "damaged chain");
        return;
    case VARIANTS_OK:
        break;
    }
    at = anchor;
    while (variants_next(v->gen, &anchor, &at, &next) > 0) {
        check_variant(v, base, &next);
        at = next;
    }
}

static void check_slot(void *ctx, uint64_t offset)
{
    struct verify *v = ctx;
    struct view_of_record base;
    struct place place;
    struct query q;
    bool damaged = false;

    if (!record_view(v->gen, offset, &base) || base.type != RECORD_NAME) {
        complain(v, offset, "damaged");
        return;
    }
    query_init(v->gen->seed, base.key, base.name, base.len, &q);
    LOCK_FOR_SCOPE(&stripe_of(v->index, &q)->lock);
    if (!table_find(v->gen, &q, &place, &damaged)) {
        complain(v, offset, "not found by its name");
        return;
    }
    /* A writer may have put another record in its place since the slot was read. */
    check_state(v, &place.base);
    check_chain(v, &place.base);
}

int index_verify(struct index *index)
{
    struct verify v = {.index = index};
    uint64_t damaged = 0;

    unsigned ticket = grace_enter(&index->grace);
    v.gen = atomic_load(&index->view)->cur;
    table_for_each(v.gen, check_slot, &v, &damaged);
    int r = cold_verify(&v.gen->dirs);
    grace_exit(&index->grace, ticket);
    if (damaged > 0)
        log_line(LOG_ERR, "index: %llu damaged slots", (unsigned long long)damaged);
    if (v.wrong > LINES_MAX)
        log_line(LOG_ERR, "index: %llu wrong records in all", (unsigned long long)v.wrong);
    return damaged > 0 || v.wrong > 0 ? -EUCLEAN : r;
}
