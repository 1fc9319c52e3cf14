/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * log.c - lines to stderr or syslog, and the brake on them.
 *
 * A line is put together in one buffer and leaves in one write(2), so that lines of several
 * threads do not mix.  Where stderr is the journal, each carries its priority in front as the
 * journal reads it ("<4>"); elsewhere it begins with the program's name.
 *
 * The brake.  A share with one bad directory can fail thousands of times a second.  Each format
 * string (by its address: one for each place in the code) may give LOG_BURST lines in
 * LOG_INTERVAL_S seconds; what is over that is counted, and the count is added to the next line
 * of that format that gets through.  The counters stand in a table of fixed size under one
 * mutex; formats beyond its size, more than the whole program has, are not limited.
 *
 * Lines of priority LOG_DEBUG are wanted all.
 *
 * Left out: log files of our own, levels per part, structured fields.
 */
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "utf8.h"

enum {
    LOG_BURST = 10, /* lines: a bad moment is seen whole */
    LOG_INTERVAL_S =
        30,             /* seconds: a lasting fault stays visible, 28,800 lines a day at most */
    LOG_FORMATS = 1024, /* formats that can be limited; a power of two */
    LOG_LINE_MAX = 4096, /* bytes: two escaped names of 255 bytes and the words around them */
};

struct brake {
    const char *format;
    int64_t interval_start; /* seconds, CLOCK_MONOTONIC */
    unsigned lines;         /* let through since then */
    unsigned dropped;       /* since the last line let through */
};

static struct {
    bool to_syslog;
    bool to_journal; /* stderr is the journal */
    int max_priority;
} target = {.max_priority = LOG_INFO};

static pthread_mutex_t brakes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct brake brakes[LOG_FORMATS];

/* systemd tells a service which stream is its journal by "device:inode". */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long dev, ino;
    struct stat st;

    return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void log_open(bool to_syslog, int max_priority)
{
    target.to_syslog = to_syslog;
    target.to_journal = !to_syslog && stderr_is_journal();
    target.max_priority = max_priority;
    if (to_syslog)
        openlog("foldfs", LOG_PID, LOG_DAEMON);
}

/* The counters of FORMAT, taken into use if new; NULL if the table is full. */
static struct brake *find_brake(const char *format)
{
    /* Multiplication by the golden ratio spreads addresses that share their low bits. */
    size_t at = (size_t)((uintptr_t)format * UINT64_C(0x9E3779B97F4A7C15) >> 32);

    for (size_t i = 0; i < LOG_FORMATS; i++) {
        struct brake *brake = &brakes[(at + i) % LOG_FORMATS];
        if (!brake->format)
            brake->format = format;
        if (brake->format == format)
            return brake;
    }
    return NULL;
}

/* May a line of FORMAT pass now?  If so, *RET_DROPPED says how many before it did not. */
static bool may_pass(const char *format, unsigned *ret_dropped)
{
    struct timespec now;
    bool pass = true;

    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&brakes_lock);
    struct brake *brake = find_brake(format);
    if (brake) {
        if (brake->lines == 0 || now.tv_sec - brake->interval_start >= LOG_INTERVAL_S) {
            brake->interval_start = now.tv_sec;
            brake->lines = 0;
        }
        pass = brake->lines < LOG_BURST;
        if (pass) {
            brake->lines++;
            *ret_dropped = brake->dropped;
            brake->dropped = 0;
        } else {
            brake->dropped++;
        }
    }
    pthread_mutex_unlock(&brakes_lock);
    return pass;
}

/* Whatever reached the line unescaped, it stays one line and moves no cursor. */
static void blank_controls(char *line)
{
    for (; *line; line++)
        if ((unsigned char)*line < ' ' || *line == '\x7f')
            *line = '?';
}

static void write_stderr(int priority, const char *line)
{
    char out[LOG_LINE_MAX + 64];
    int len = target.to_journal ? snprintf(out, sizeof(out), "<%d>%s\n", priority, line)
                                : snprintf(out, sizeof(out), "foldfs: %s\n", line);
    /* Nowhere is left to say that stderr cannot be written. */
    ssize_t written = write(STDERR_FILENO, out, (size_t)len);
    (void)written;
}

void log_line(int priority, const char *format, ...)
{
    int saved = errno;
    unsigned dropped = 0;
    char line[LOG_LINE_MAX];
    va_list args;

    if (priority > target.max_priority || (priority < LOG_DEBUG && !may_pass(format, &dropped)))
        goto out;

    errno = saved; /* for %m */
    va_start(args, format);
    int len = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (len < 0)
        goto out;
    if (dropped > 0 && (size_t)len < sizeof(line))
        snprintf(line + len, sizeof(line) - (size_t)len, " (%u more like this were not shown)",
                 dropped);
    blank_controls(line);

    if (target.to_syslog)
        syslog(priority, "%s", line);
    else
        write_stderr(priority, line);
out:
    errno = saved;
}

/* Length of the character at P that can be shown as it is, or 0: one byte must be escaped. */
static size_t shown_length(const unsigned char *p, size_t len)
{
    uint32_t c = 0;
    size_t size = utf8_decode(p, len, &c);

    /* 80 to 9F are control characters too: to some terminals U+009B is ESC [. */
    bool control = c < ' ' || (c >= 0x7F && c < 0xA0);
    return control || c == '\\' ? 0 : size;
}

const char *log_escape(const char *name, size_t len, char *buffer, size_t size)
{
    static const char cut[] = "...";
    const unsigned char *p = (const unsigned char *)name;
    size_t at = 0;   /* bytes written */
    size_t fits = 0; /* bytes written when CUT and its NUL still had room behind them */

    if (size < sizeof(cut)) {
        if (size > 0)
            buffer[0] = '\0';
        return buffer;
    }

    while (len > 0) {
        char piece[8];
        size_t taken = shown_length(p, len);
        size_t piece_len = taken;

        if (taken > 0) {
            memcpy(piece, p, taken);
        } else {
            taken = 1;
            piece_len = (size_t)snprintf(piece, sizeof(piece), "\\x%02x", *p);
        }
        if (at + piece_len + 1 > size) {
            memcpy(buffer + fits, cut, sizeof(cut));
            return buffer;
        }
        memcpy(buffer + at, piece, piece_len);
        at += piece_len;
        if (at + sizeof(cut) <= size)
            fits = at;
        p += taken;
        len -= taken;
    }
    buffer[at] = '\0';
    return buffer;
}
