/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * grace.c - when may the maps of an old generation be freed?
 *
 * Whoever uses a generation counts itself in before it loads the pointer and out when it is
 * done, in a lane of its own thread and under the phase that it read.  To free, publish the
 * new pointer, then twice: change the phase and wait until the other phase's counters are
 * zero.  Twice, because a reader may have read the phase long ago and count itself in under
 * the one that is being waited for next.  New readers count under the new phase, so that the
 * wait ends however busy they are.
 *
 * Everything is sequentially consistent: a reader that counts itself in after its counter was
 * seen as zero loads the pointer after it was published.
 */
#include "index/internal.h"

#include <sched.h>
#include <time.h>

/* How often to look again before sleeping between looks. */
#define SPINS_BEFORE_SLEEP 100
#define SLEEP_NS           100000

static unsigned lane_of_thread(void)
{
    static _Atomic unsigned next;
    static _Thread_local unsigned lane;

    if (lane == 0)
        lane = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % GRACE_LANES;
    return lane - 1;
}

unsigned grace_enter(struct grace *grace)
{
    unsigned lane = lane_of_thread();
    unsigned phase = atomic_load_explicit(&grace->phase, memory_order_relaxed) & 1;

    atomic_fetch_add(&grace->lanes[lane].readers[phase], 1);
    return lane * 2 + phase;
}

void grace_exit(struct grace *grace, unsigned ticket)
{
    atomic_fetch_sub_explicit(&grace->lanes[ticket / 2].readers[ticket % 2], 1,
                              memory_order_release);
}

static void wait_for_phase(struct grace *grace, unsigned phase)
{
    const struct timespec pause = {.tv_nsec = SLEEP_NS};

    for (unsigned lane = 0; lane < GRACE_LANES; lane++)
        for (unsigned spins = 0; atomic_load(&grace->lanes[lane].readers[phase]) != 0; spins++)
            if (spins < SPINS_BEFORE_SLEEP)
                sched_yield();
            else
                nanosleep(&pause, NULL);
}

void grace_wait(struct grace *grace)
{
    LOCK_FOR_SCOPE(&grace->lock);

    for (int i = 0; i < 2; i++) {
        unsigned old = atomic_fetch_xor(&grace->phase, 1) & 1;

        wait_for_phase(grace, old);
    }
}
