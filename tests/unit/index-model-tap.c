/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-model-tap.c - random numbers, TAP lines, the failure counter, folders for a test.
 *
 * Failures are counted from any thread and printed by the first MAX_SHOWN of them; a TAP line
 * says whether any came since the line before.  Programs linked with -Wl,--wrap=getrandom give
 * the index its seed from the test's, so that hashes too are those of the run before.  The
 * random numbers are splitmix64: one word of state, so a seed printed is a run had again.
 */
#include "index-model.h"

#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Enough to see a pattern, not enough to bury it. */
#define MAX_SHOWN 20

static atomic_uint failures;
static unsigned failures_told;
static unsigned lines, bad_lines;
static pthread_mutex_t random_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15U;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

unsigned rng_below(struct rng *rng, unsigned n)
{
    return (unsigned)(rng_next(rng) >> 33) % n;
}

bool rng_once_in(struct rng *rng, unsigned n)
{
    return rng_below(rng, n) == 0;
}

unsigned tap_scale(void)
{
    const char *text = getenv("FOLDFS_TEST_SCALE");
    long value = text ? strtol(text, NULL, 10) : 1;

    return value >= 1 && value <= 1000 ? (unsigned)value : 1;
}

uint64_t tap_seed(void)
{
    static uint64_t seed;
    const char *text = getenv("FOLDFS_TEST_SEED");
    struct timespec now;

    if (seed)
        return seed;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = text ? strtoull(text, NULL, 0)
                : (uint64_t)now.tv_sec * 1000003U ^ (uint64_t)now.tv_nsec;
    seed += seed == 0;
    tap_diag("FOLDFS_TEST_SEED=%llu FOLDFS_TEST_SCALE=%u", (unsigned long long)seed,
             tap_scale());
    return seed;
}

ssize_t __wrap_getrandom(void *buffer, size_t len, unsigned flags);

ssize_t __wrap_getrandom(void *buffer, size_t len, unsigned flags)
{
    static struct rng rng;
    LOCK_FOR_SCOPE(&random_lock);
    uint8_t *to = buffer;

    (void)flags;
    if (!rng.state)
        rng.state = tap_seed();
    for (size_t i = 0; i < len; i++)
        to[i] = (uint8_t)rng_next(&rng);
    return (ssize_t)len;
}

static void print_comment(const char *format, va_list args)
{
    LOCK_FOR_SCOPE(&print_lock);
    printf("# ");
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
}

void tap_fail(const char *format, ...)
{
    va_list args;

    if (atomic_fetch_add(&failures, 1) - failures_told >= MAX_SHOWN)
        return;
    va_start(args, format);
    print_comment(format, args);
    va_end(args);
}

unsigned tap_failures(void)
{
    return atomic_load(&failures);
}

void tap_diag(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_comment(format, args);
    va_end(args);
}

void tap_line(const char *name)
{
    unsigned now = atomic_load(&failures);

    if (now != failures_told) {
        printf("# %u failures\nnot ok - %s\n", now - failures_told, name);
        bad_lines++;
    } else {
        printf("ok - %s\n", name);
    }
    failures_told = now;
    lines++;
    fflush(stdout);
}

void tap_skip(const char *name, const char *reason)
{
    printf("ok - %s # SKIP %s\n", name, reason);
    lines++;
    fflush(stdout);
}

int tap_end(void)
{
    printf("1..%u\n", lines);
    fflush(stdout);
    return bad_lines ? EXIT_FAILURE : EXIT_SUCCESS;
}

char *temp_folder(const char *what)
{
    const char *base = getenv("TMPDIR");
    char *path = NULL;

    if (asprintf(&path, "%s/foldfs-%s-XXXXXX", base ? base : "/tmp", what) < 0 ||
        !mkdtemp(path)) {
        perror("mkdtemp");
        exit(EXIT_FAILURE);
    }
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
