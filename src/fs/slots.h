/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * slots.h - numbers for the kernel that stand for pointers of ours: nodeids and file handles.
 */
#ifndef FOLDFS_FS_SLOTS_H
#define FOLDFS_FS_SLOTS_H

#include <stdint.h>

struct slots;

/* An empty table.  FIRST_INDEX: indices below it are never given.  0 or -ENOMEM. */
int slots_new(uint32_t first_index, struct slots **ret_slots);
void slots_free(struct slots *slots);

/* A number for POINTER (not NULL): generation << 32 | index, never 0, and never one that was
 * given before.  Any thread.  -ENOMEM, or -ENFILE with SLOTS_MAX pointers in the table. */
int slots_add(struct slots *slots, void *pointer, uint64_t *ret_id);

/* What ID stands for; NULL if it was removed or never given.  Takes no lock; the caller must
 * know by other means that the pointer is not freed meanwhile (the kernel does not forget what
 * it is asking for). */
void *slots_get(struct slots *slots, uint64_t id);

/* ID stands for nothing from now on. */
void slots_remove(struct slots *slots, uint64_t id);

/* Calls EACH(CTX, pointer) for every pointer in the table; EACH may remove it.  No other thread
 * may use the table meanwhile. */
void slots_for_each(struct slots *slots, void (*each)(void *ctx, void *pointer), void *ctx);

#endif
