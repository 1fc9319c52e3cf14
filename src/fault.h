/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fault.h - named faults for the test of the tests (tests/fs/meson.build: foldfs-faulty): a
 * daemon that has one must be found out.  foldfs itself is built without any.
 */
#ifndef FOLDFS_FAULT_H
#define FOLDFS_FAULT_H

#ifdef FOLDFS_FAULTS
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Is the fault NAME switched on, by the variable FOLDFS_FAULT? */
static inline bool fault_is(const char *name)
{
    const char *on = getenv("FOLDFS_FAULT");

    return on && strcmp(on, name) == 0;
}
#else
#define fault_is(name) false
#endif

#endif
