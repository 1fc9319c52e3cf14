/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * suite.h - the end of every unit test's main function.
 */
#ifndef FOLDFS_TESTS_SUITE_H
#define FOLDFS_TESTS_SUITE_H

#include <check.h>

/* Runs SUITE, which is freed, and prints TAP; the exit status. */
int suite_run(Suite *suite);

#endif
