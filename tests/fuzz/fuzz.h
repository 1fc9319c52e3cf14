/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fuzz.h - the entry point of a fuzzer, called by libFuzzer (in a build with clang and
 * AddressSanitizer) or by replay.c, which feeds it files and bytes drawn at random.
 */
#ifndef FOLDFS_TESTS_FUZZ_H
#define FOLDFS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0; aborts if something is wrong. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
