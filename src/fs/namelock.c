/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * namelock.c - one lock for each folded name of a directory.
 *
 * Held locks are in the lists of a fixed number of stripes; a list is as long as there are
 * request threads at most.  The locks are variables of their holders, so nothing is allocated
 * and nothing is left behind.  Who waits is woken by each release in its stripe and looks
 * again.
 *
 * Lock order: name locks among each other by (dir, hash); name locks before every other lock of
 * the daemon.  A stripe's mutex is held for a few instructions only.
 */
#include "fs/namelock.h"

#include <xxhash.h>

#include "common.h"
#include "fold/fold.h"

#define STRIPES 256

static struct stripe {
    pthread_mutex_t mutex;
    pthread_cond_t released;
    struct name_lock *held;
} stripes[STRIPES] = {
    [0 ... STRIPES - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                           .released = PTHREAD_COND_INITIALIZER},
};

struct name_key name_lock_key(uint64_t dir, const char *name, size_t len)
{
    char folded[FOLDFS_NAME_MAX];
    size_t folded_len = fold_name(name, len, folded);

    return (struct name_key){.dir = dir, .hash = XXH3_64bits_withSeed(folded, folded_len, dir)};
}

static bool same(struct name_key a, struct name_key b)
{
    return a.hash == b.hash && a.dir == b.dir;
}

static struct stripe *stripe_of(struct name_key key)
{
    return &stripes[key.hash % STRIPES];
}

static bool is_held(const struct stripe *stripe, struct name_key key)
{
    for (const struct name_lock *l = stripe->held; l; l = l->next)
        if (same(l->key, key))
            return true;
    return false;
}

void name_lock_take(struct name_lock *lock, struct name_key key)
{
    struct stripe *stripe = stripe_of(key);

    LOCK_FOR_SCOPE(&stripe->mutex);
    while (is_held(stripe, key))
        pthread_cond_wait(&stripe->released, &stripe->mutex);
    lock->key = key;
    lock->next = stripe->held;
    stripe->held = lock;
}

void name_lock_drop(struct name_lock *lock)
{
    struct stripe *stripe = stripe_of(lock->key);

    LOCK_FOR_SCOPE(&stripe->mutex);
    for (struct name_lock **at = &stripe->held; *at; at = &(*at)->next) {
        if (*at == lock) {
            *at = lock->next;
            break;
        }
    }
    pthread_cond_broadcast(&stripe->released);
}

void name_lock_take_two(struct name_lock_pair *pair, struct name_key a, struct name_key b)
{
    bool a_first = a.dir != b.dir ? a.dir < b.dir : a.hash < b.hash;

    pair->count = same(a, b) ? 1 : 2;
    name_lock_take(&pair->locks[0], a_first ? a : b);
    if (pair->count == 2)
        name_lock_take(&pair->locks[1], a_first ? b : a);
}

void name_lock_drop_two(struct name_lock_pair *pair)
{
    while (pair->count > 0)
        name_lock_drop(&pair->locks[--pair->count]);
}
