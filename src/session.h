/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * session.h - one mount from its beginning to its end.
 */
#ifndef FOLDFS_SESSION_H
#define FOLDFS_SESSION_H

#include "options.h"

/* Opens the tree and its index, mounts, and serves until it is unmounted or told to end by
 * SIGTERM, SIGINT or SIGHUP.  READY(CTX) is called, in some thread, when the mount answers.
 * What is wrong is said in the log.  OPTIONS_DONE: all went well to the end; OPTIONS_USAGE: the
 * options are wrong; OPTIONS_FAILED: something else, before READY was called or after. */
enum options_result session_run(const struct options *options, void (*ready)(void *ctx),
                                void *ctx);

#endif
