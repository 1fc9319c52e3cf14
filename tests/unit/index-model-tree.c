/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-tree.c - the simulated tree: masks of spellings, stamps, a clock.
 *
 * A change ticks the clock and takes the reading, rounded down to the directory's granularity,
 * as ctime; with granularity 0 no two changes have the same one.  mtime is now and then set
 * far back, as Samba does: only ctime can be trusted to move.  The size only grows, as on ext4,
 * so within one step of a coarse clock the stamp never comes back to what it was.
 */
#include "index-model.h"

#include <string.h>

/* 2026-11-30, so that stamps look like stamps. */
#define CLOCK_START_NS 1796000000000000000LL
/* Entries in a block of 4096 bytes, about: the size of a directory moves in steps. */
#define ENTRIES_A_BLOCK 64

static _Atomic int64_t clock_ns = CLOCK_START_NS;

int64_t model_now(void)
{
    return atomic_load(&clock_ns);
}

void model_sleep(int64_t ns)
{
    atomic_fetch_add(&clock_ns, ns);
}

static int64_t tick(void)
{
    return atomic_fetch_add(&clock_ns, 1) + 1;
}

static void move_stamp(struct model_dir *dir)
{
    int64_t now = tick();
    int64_t step = dir->granularity_ns > 0 ? now / dir->granularity_ns : now;
    int64_t coarse = dir->granularity_ns > 0 ? step * dir->granularity_ns : now;
    int64_t size = 4096 * (1 + dir->entries / ENTRIES_A_BLOCK);

    dir->stamp.ctime_ns = coarse;
    dir->stamp.mtime_ns = step % 7 ? coarse : CLOCK_START_NS / 2;
    if (size > dir->stamp.size)
        dir->stamp.size = size;
}

void model_dir_init(struct model_dir *dir, unsigned number, unsigned n_classes,
                    int64_t granularity_ns, bool persist)
{
    *dir = (struct model_dir){
        .granularity_ns = granularity_ns,
        .persist = persist,
        .n_classes = n_classes,
        .id_len = 1 + number * 37 % INDEX_DIR_ID_MAX,
    };
    if (dir->id_len < sizeof(number))
        dir->id_len = sizeof(number);
    memset(dir->id, (int)(number & 0x7f), dir->id_len);
    memcpy(dir->id, &number, sizeof(number));
    pthread_mutex_init(&dir->lock, NULL);
    dir->masks = calloc(n_classes, sizeof(*dir->masks));
    if (!dir->masks)
        abort();
    dir->stamp.btime_ns = tick();
    move_stamp(dir);
}

void model_dir_free(struct model_dir *dir)
{
    free(dir->masks);
    pthread_mutex_destroy(&dir->lock);
}

void model_dir_renew(struct model_dir *dir, struct rng *rng)
{
    uint64_t fresh = rng_next(rng);
    LOCK_FOR_SCOPE(&dir->lock);

    if (dir->id_len < sizeof(unsigned) + sizeof(fresh))
        dir->id_len = sizeof(unsigned) + sizeof(fresh);
    memcpy(dir->id + sizeof(unsigned), &fresh, sizeof(fresh));
    for (unsigned c = 0; c < dir->n_classes; c++)
        atomic_store(&dir->masks[c], 0);
    dir->entries = 0;
    dir->stamp.btime_ns = tick();
    move_stamp(dir);
}

bool model_set(struct model_dir *dir, unsigned class, unsigned spelling, bool present)
{
    uint64_t bit = (uint64_t)1 << spelling;
    LOCK_FOR_SCOPE(&dir->lock);

    if (((atomic_load(&dir->masks[class]) & bit) != 0) == present)
        return false;
    atomic_fetch_xor(&dir->masks[class], bit);
    dir->entries += present ? 1 : -1;
    move_stamp(dir);
    return true;
}

void model_respell(struct model_dir *dir, unsigned class, unsigned from, unsigned to)
{
    LOCK_FOR_SCOPE(&dir->lock);
    uint64_t mask = atomic_load(&dir->masks[class]);
    uint64_t after = (mask & ~((uint64_t)1 << from)) | (uint64_t)1 << to;

    dir->entries += __builtin_popcountll(after) - __builtin_popcountll(mask);
    atomic_store(&dir->masks[class], after);
    move_stamp(dir);
}

void model_touch(struct model_dir *dir)
{
    LOCK_FOR_SCOPE(&dir->lock);
    move_stamp(dir);
}

uint64_t model_mask(struct model_dir *dir, unsigned class)
{
    return atomic_load(&dir->masks[class]);
}

bool model_has(struct model_dir *dir, unsigned class, unsigned spelling)
{
    return model_mask(dir, class) >> spelling & 1;
}

int model_stat(void *ctx, struct index_stamp *ret_stamp)
{
    struct model_dir *dir = ctx;
    LOCK_FOR_SCOPE(&dir->lock);

    if (atomic_load(&dir->stat_fails) > 0) {
        atomic_fetch_sub(&dir->stat_fails, 1);
        atomic_fetch_add(&dir->stat_failed, 1);
        return -EIO;
    }
    *ret_stamp = dir->stamp;
    return 0;
}

bool model_same_stamp(const struct index_stamp *a, const struct index_stamp *b)
{
    return a->ctime_ns == b->ctime_ns && a->mtime_ns == b->mtime_ns && a->size == b->size &&
           a->btime_ns == b->btime_ns;
}

static unsigned gcd(unsigned a, unsigned b)
{
    return b ? gcd(b, a % b) : a;
}

void model_reader_init(struct model_reader *reader, struct model_dir *dir, struct rng *rng)
{
    *reader = (struct model_reader){.dir = dir, .start = rng_below(rng, dir->n_classes)};
    do
        reader->step = 1 + rng_below(rng, dir->n_classes);
    while (gcd(reader->step, dir->n_classes) != 1);
}

bool model_reader_next(struct model_reader *reader, unsigned *ret_class, uint64_t *ret_mask)
{
    unsigned n = reader->dir->n_classes;

    while (reader->done < n) {
        uint64_t at = reader->start + (uint64_t)reader->done++ * reader->step;
        unsigned class = (unsigned)(at % n);
        uint64_t mask = model_mask(reader->dir, class);

        if (!mask)
            continue;
        *ret_class = class;
        *ret_mask = mask;
        return true;
    }
    return false;
}

enum index_match model_answer(uint64_t mask, unsigned spelling, unsigned *ret_spelling)
{
    if (!mask)
        return INDEX_ABSENT;
    if (mask >> spelling & 1) {
        *ret_spelling = spelling;
        return INDEX_EXACT;
    }
    *ret_spelling = (unsigned)__builtin_ctzll(mask);
    return INDEX_VARIANT;
}

const char *model_match_name(enum index_match match)
{
    static const char *const names[] = {"UNKNOWN", "ABSENT", "EXACT", "VARIANT"};

    return (unsigned)match < ARRAY_SIZE(names) ? names[match] : "(not a match)";
}

bool model_compare(const struct model_class *class, uint64_t mask, unsigned spelling,
                   enum index_match got, const struct index_name *got_name, const char *where)
{
    unsigned which = 0;
    enum index_match want = model_answer(mask, spelling, &which);
    const struct model_name *name = &class->spellings[which];

    if (got != want) {
        tap_fail("%s: asked %s of mask %#llx: %s instead of %s", where,
                 model_show(&class->spellings[spelling]), (unsigned long long)mask,
                 model_match_name(got), model_match_name(want));
        return false;
    }
    if (got == INDEX_ABSENT)
        return true;
    if (got_name->len == name->len && memcmp(got_name->bytes, name->bytes, name->len) == 0 &&
        got_name->bytes[name->len] == 0)
        return true;
    tap_fail("%s: %s with a name of %u bytes instead of %s", where, model_match_name(got),
             got_name->len, model_show(name));
    return false;
}
