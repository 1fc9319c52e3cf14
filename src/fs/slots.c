/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * slots.c - numbers for the kernel that stand for pointers of ours.
 *
 * A number is an index into a table and a generation, which grows each time the index is given
 * again and starts from a random one: a number that is stale, or of a daemon before this one,
 * finds nothing instead of another file.
 *
 * The table grows by chunks that never move, so that slots_get() needs no lock: it reads the
 * generation, the pointer, and the generation again.  One lock for the rest.
 */
#include "fs/slots.h"

#include <stdatomic.h>
#include <sys/random.h>

#include "common.h"

#define CHUNK_BITS 12 /* 4,096 slots, 64 KiB a chunk */
#define CHUNK_SIZE (1U << CHUNK_BITS)
#define CHUNKS     (1U << 16)
#define SLOTS_MAX  ((uint64_t)CHUNKS * CHUNK_SIZE) /* 268 million */

struct slot {
    _Atomic(void *) pointer;
    _Atomic uint32_t generation;
    uint32_t next_free; /* index of the next free slot; 0: none */
};

struct slots {
    pthread_mutex_t lock;
    uint32_t unused;     /* the lowest index never given */
    uint32_t first_free; /* 0: none */
    uint32_t epoch;      /* generation of a slot given for the first time */
    _Atomic(struct slot *) chunks[CHUNKS];
};

int slots_new(uint32_t first_index, struct slots **ret_slots)
{
    struct slots *slots = calloc(1, sizeof(*slots));

    if (!slots)
        return -ENOMEM;
    pthread_mutex_init(&slots->lock, NULL);
    slots->unused = first_index > 0 ? first_index : 1;
    if (getrandom(&slots->epoch, sizeof(slots->epoch), GRND_NONBLOCK) < 0)
        slots->epoch = (uint32_t)getpid();
    *ret_slots = slots;
    return 0;
}

void slots_free(struct slots *slots)
{
    if (!slots)
        return;
    for (size_t i = 0; i < CHUNKS; i++)
        free(atomic_load(&slots->chunks[i]));
    pthread_mutex_destroy(&slots->lock);
    free(slots);
}

static struct slot *slot_at(struct slots *slots, uint32_t index)
{
    if (index >= SLOTS_MAX)
        return NULL;
    struct slot *chunk =
        atomic_load_explicit(&slots->chunks[index >> CHUNK_BITS], memory_order_acquire);
    return chunk ? &chunk[index & (CHUNK_SIZE - 1)] : NULL;
}

/* A free index, with the lock held. */
static int take_index(struct slots *slots, uint32_t *ret_index)
{
    uint32_t index = slots->first_free;

    if (index) {
        slots->first_free = slot_at(slots, index)->next_free;
        *ret_index = index;
        return 0;
    }
    index = slots->unused;
    if (index >= SLOTS_MAX)
        return -ENFILE;
    if (!slot_at(slots, index)) {
        struct slot *chunk = calloc(CHUNK_SIZE, sizeof(*chunk));
        if (!chunk)
            return -ENOMEM;
        for (size_t i = 0; i < CHUNK_SIZE; i++)
            atomic_init(&chunk[i].generation, slots->epoch);
        atomic_store_explicit(&slots->chunks[index >> CHUNK_BITS], chunk, memory_order_release);
    }
    slots->unused++;
    *ret_index = index;
    return 0;
}

int slots_add(struct slots *slots, void *pointer, uint64_t *ret_id)
{
    uint32_t index;

    LOCK_FOR_SCOPE(&slots->lock);
    int r = take_index(slots, &index);
    if (r < 0)
        return r;
    struct slot *slot = slot_at(slots, index);
    uint32_t generation = atomic_load(&slot->generation) + 1;
    if (generation == 0) /* so that no number is below 2^32: the kernel's 1 is the root */
        generation = 1;
    atomic_store(&slot->generation, generation);
    atomic_store(&slot->pointer, pointer);
    *ret_id = (uint64_t)generation << 32 | index;
    return 0;
}

void *slots_get(struct slots *slots, uint64_t id)
{
    struct slot *slot = slot_at(slots, (uint32_t)id);

    if (!slot || atomic_load(&slot->generation) != id >> 32)
        return NULL;
    void *pointer = atomic_load(&slot->pointer);
    return atomic_load(&slot->generation) == id >> 32 ? pointer : NULL;
}

void slots_remove(struct slots *slots, uint64_t id)
{
    struct slot *slot = slot_at(slots, (uint32_t)id);

    LOCK_FOR_SCOPE(&slots->lock);
    if (!slot || atomic_load(&slot->generation) != id >> 32)
        return;
    atomic_store(&slot->pointer, NULL);
    slot->next_free = slots->first_free;
    slots->first_free = (uint32_t)id;
}

void slots_for_each(struct slots *slots, void (*each)(void *ctx, void *pointer), void *ctx)
{
    for (uint32_t index = 0; index < slots->unused; index++) {
        struct slot *slot = slot_at(slots, index);
        void *pointer = slot ? atomic_load(&slot->pointer) : NULL;
        if (pointer)
            each(ctx, pointer);
    }
}
