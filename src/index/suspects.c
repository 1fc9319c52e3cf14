/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * suspects.c - names of a watched directory that others changed, to be looked at again.
 *
 * That a name changed is told with the name: so only that name is in doubt, not the directory.
 * It is kept here, all spellings that fold alike together, until somebody asks for one of them:
 * he first looks in the tree which of the spellings are there, tells the index, and then asks
 * it (index_mend).  A directory that others change all the time is so never scanned again.
 *
 * What is told while a name is being mended makes it a suspect anew.  If the set is given up
 * meanwhile (it has a limit), what was seen may be older than the scan that is then needed, and
 * would overrule it: a directory counts how often that was so, and who mended finds out.
 *
 * A directory with suspects is not proven for a checkpoint.  Who mends the last takes a new
 * stamp, which stands for what all of them turned out to be.
 *
 * What is told of an incomplete directory is not kept: the scan that makes it complete sees it.
 * But it is while one runs, and while the index is about to be told something that may be
 * older: by a change of ours, or by one who mends.
 *
 * Lock: index->suspects_lock, held for a moment only; dir->lock for the stamp.
 */
#include "index/internal.h"

#include "fold/fold.h"

/* Folded names in doubt in one directory: some 10 MB.  More come only from those who fill it
 * faster than anybody looks, and a scan then costs less. */
#define SUSPECTS_MAX 65536u

/* Spellings of one of them. */
#define SPELLINGS_MAX 64u

struct spelling {
    struct spelling *next;
    uint8_t len;
    char bytes[]; /* with a NUL */
};

struct suspect {
    UT_hash_handle hh; /* dir->suspects, by folded */
    bool refused;      /* no memory for it there */
    unsigned n_spellings;
    struct spelling *spellings;
    size_t folded_len;
    char folded[];
};

static void suspect_free(struct suspect *suspect)
{
    struct spelling *next;

    for (struct spelling *s = suspect->spellings; s; s = next) {
        next = s->next;
        free(s);
    }
    free(suspect);
}

static struct suspect *suspect_new(const char *folded, size_t folded_len)
{
    struct suspect *suspect = calloc(1, sizeof(*suspect) + folded_len);

    if (!suspect)
        return NULL;
    suspect->folded_len = folded_len;
    memcpy(suspect->folded, folded, folded_len);
    return suspect;
}

static int add_spelling(struct suspect *suspect, const char *name, size_t len)
{
    for (struct spelling *s = suspect->spellings; s; s = s->next) {
        if (s->len == len && memcmp(s->bytes, name, len) == 0)
            return 0;
    }
    if (suspect->n_spellings == SPELLINGS_MAX)
        return -ENOSPC;
    struct spelling *spelling = calloc(1, sizeof(*spelling) + len + 1);
    if (!spelling)
        return -ENOMEM;
    spelling->len = (uint8_t)len;
    memcpy(spelling->bytes, name, len);
    spelling->next = suspect->spellings;
    suspect->spellings = spelling;
    suspect->n_spellings++;
    return 0;
}

/* The functions from here to the next heading want suspects_lock held. */

static int add(struct index_dir *dir, const char *name, size_t len)
{
    char folded[FOLDFS_NAME_MAX + 1];
    struct suspect *suspect;

    size_t folded_len = fold_name(name, len, folded);
    HASH_FIND(hh, dir->suspects, folded, folded_len, suspect);
    if (suspect)
        return add_spelling(suspect, name, len);
    if (atomic_load(&dir->n_suspects) >= SUSPECTS_MAX)
        return -ENOSPC;
    suspect = suspect_new(folded, folded_len);
    if (!suspect)
        return -ENOMEM;
    int r = add_spelling(suspect, name, len);
    if (r == 0) {
        HASH_ADD_KEYPTR(hh, dir->suspects, suspect->folded, folded_len, suspect);
        if (suspect->refused)
            r = -ENOMEM;
    }
    if (r < 0) {
        suspect_free(suspect);
        return r;
    }
    atomic_fetch_add(&dir->n_suspects, 1);
    return 0;
}

/* Gives up all but those that are being mended. */
static void clear(struct index_dir *dir)
{
    struct suspect *suspect, *next;

    dir->suspects_given_up++;
    HASH_ITER (hh, dir->suspects, suspect, next) {
        HASH_DEL(dir->suspects, suspect);
        suspect_free(suspect);
        atomic_fetch_sub(&dir->n_suspects, 1);
    }
}

static void add_or_lose(struct index_dir *dir, const char *name, size_t len)
{
    if (add(dir, name, len) == 0)
        return;
    clear(dir);
    dir_lose(dir);
}

/* ---- */

/* Would a scan that begins now see all that was told, and have the last word? */
static bool scan_will_tell(struct index_dir *dir)
{
    return !atomic_load(&dir->complete) && atomic_load(&dir->scanning) == 0 &&
           atomic_load(&dir->in_flight) == 0 && atomic_load(&dir->n_suspects) == 0;
}

void index_doubt(struct index_dir *dir, const char *name, size_t len)
{
    if (!atomic_load(&dir->watched)) {
        index_dir_void(dir);
        return;
    }
    if (scan_will_tell(dir))
        return;
    {
        LOCK_FOR_SCOPE(&dir->index->suspects_lock);
        add_or_lose(dir, name, len);
    }
    /* Its entry may carry the very stamp that the change left. */
    dir_mark_dirty(dir);
}

void suspects_clear(struct index_dir *dir)
{
    LOCK_FOR_SCOPE(&dir->index->suspects_lock);
    clear(dir);
}

/* What folds like NAME, out of the set, but still counted; NULL if there is none. */
static struct suspect *take(struct index_dir *dir, const char *name, size_t len,
                            uint64_t *ret_given_up)
{
    char folded[FOLDFS_NAME_MAX + 1];
    struct suspect *suspect;

    size_t folded_len = fold_name(name, len, folded);
    LOCK_FOR_SCOPE(&dir->index->suspects_lock);
    HASH_FIND(hh, dir->suspects, folded, folded_len, suspect);
    if (suspect)
        HASH_DEL(dir->suspects, suspect);
    *ret_given_up = dir->suspects_given_up;
    return suspect;
}

/* Ends what take() began: SUSPECT is freed, and is a suspect again if it was not mended, or
 * all were given up meanwhile.  True if none is left. */
static bool put(struct index_dir *dir, struct suspect *suspect, uint64_t given_up, bool mended)
{
    LOCK_FOR_SCOPE(&dir->index->suspects_lock);
    if (!mended || dir->suspects_given_up != given_up) {
        for (const struct spelling *s = suspect->spellings; s; s = s->next)
            add_or_lose(dir, s->bytes, s->len);
    }
    suspect_free(suspect);
    return atomic_fetch_sub(&dir->n_suspects, 1) == 1;
}

static int mend(struct index_dir *dir, const struct suspect *suspect, index_exists_fn exists,
                void *ctx)
{
    for (const struct spelling *s = suspect->spellings; s; s = s->next) {
        int r = exists(ctx, s->bytes);

        if (r < 0)
            return r;
        if (r > 0)
            index_add(dir, s->bytes, s->len);
        else
            index_remove(dir, s->bytes, s->len);
    }
    return 0;
}

/* No name is in doubt any more: the present stamp is what the index holds. */
static void take_stamp(struct index_dir *dir, index_stat_fn stat, void *ctx)
{
    struct index_stamp present;

    {
        LOCK_FOR_SCOPE(&dir->lock);
        uint64_t number = dir->stamp_number;

        if (dir->scan || atomic_load(&dir->in_flight) > 0 || !dir_is_confirmed(dir))
            return; /* these take it themselves */
        /* With coarse time the old number stays, which only puts more in doubt. */
        if (dir->granularity_ns == 0)
            (void)number_next(dir->index, &number);
        if (stat(ctx, &present) < 0)
            return;
        dir_write_begin(dir);
        dir->stamp_number = number;
        dir_store_stamp(dir, &present, false);
        dir_write_end(dir);
    }
    dir_mark_dirty(dir);
}

int index_mend(struct index_dir *dir, const char *name, size_t len, index_exists_fn exists,
               index_stat_fn stat, void *ctx)
{
    uint64_t given_up;

    if (atomic_load(&dir->n_suspects) == 0)
        return 0;
    struct suspect *suspect = take(dir, name, len, &given_up);
    if (!suspect)
        return 0;
    int r = mend(dir, suspect, exists, ctx);
    if (put(dir, suspect, given_up, r == 0))
        take_stamp(dir, stat, ctx);
    return r < 0 ? r : 1;
}
