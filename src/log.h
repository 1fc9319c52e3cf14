/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * log.h - one line to the administrator.  A line says what failed, for which
 * path (escaped), the errno's text, and what foldfs did about it.
 */
#ifndef FOLDFS_LOG_H
#define FOLDFS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <syslog.h> /* for the priorities: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG */

/* Where lines go from now on: syslog(3) if TO_SYSLOG, else stderr.  Lines of a priority
 * number above MAX_PRIORITY are dropped.  Before the first call: stderr, LOG_INFO.
 * Not thread-safe against concurrent log_line(): call it before threads start. */
void log_open(bool to_syslog, int max_priority);

/* Writes one line (no newline in FORMAT).  "%m" works as in syslog(3).  Thread-safe; keeps
 * errno.  Rate limited for each FORMAT (by its address): after LOG_BURST lines within
 * LOG_INTERVAL_S seconds further ones are counted, and the count is told in the next line
 * that gets through. */
void log_line(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Name of LEN bytes made safe for one log line: control characters, DEL, backslash and bytes
 * that are not UTF-8 become \xNN.  Writes at most SIZE bytes with the NUL (cut with "...");
 * returns BUFFER.  4 * FOLDFS_NAME_MAX + 1 bytes hold any name. */
const char *log_escape(const char *name, size_t len, char *buffer, size_t size);

#endif
