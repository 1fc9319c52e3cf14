/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * namelock.h - one lock for each folded name of a directory, held from before a name is looked
 * up until the tree and the index have been changed.
 */
#ifndef FOLDFS_FS_NAMELOCK_H
#define FOLDFS_FS_NAMELOCK_H

#include <stddef.h>
#include <stdint.h>

/* What is locked: a directory by its nodeid, and a hash of the folded name.  Two names with one
 * hash only wait for each other. */
struct name_key {
    uint64_t dir;
    uint64_t hash;
};

/* A held lock, in a variable of the holder; it must stay where it is until released. */
struct name_lock {
    struct name_key key;
    struct name_lock *next;
};

/* The key of NAME (LEN bytes, at most FOLDFS_NAME_MAX) in the directory with nodeid DIR. */
struct name_key name_lock_key(uint64_t dir, const char *name, size_t len);

/* Waits until nobody holds KEY, and holds it.  A thread that needs two takes them with
 * name_lock_two(), which orders them; no other lock of fs/ may be held while waiting. */
void name_lock_take(struct name_lock *lock, struct name_key key);
void name_lock_drop(struct name_lock *lock);

/* Both at once; equal keys are taken once.  Dropped with name_lock_drop_two(). */
struct name_lock_pair {
    struct name_lock locks[2];
    int count;
};
void name_lock_take_two(struct name_lock_pair *pair, struct name_key a, struct name_key b);
void name_lock_drop_two(struct name_lock_pair *pair);

#define NAME_LOCK_FOR_SCOPE(var, key)                                                          \
    struct name_lock var __attribute__((cleanup(name_lock_drop)));                             \
    name_lock_take(&(var), key)
#define NAME_LOCK_TWO_FOR_SCOPE(var, a, b)                                                     \
    struct name_lock_pair var __attribute__((cleanup(name_lock_drop_two)));                    \
    name_lock_take_two(&(var), a, b)

#endif
