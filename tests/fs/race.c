/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * race.c - eight threads make eight spellings of one name at the same moment, again and again;
 * test-race.py mounts the tree and runs this.
 *
 * usage: race MOUNTED-DIR DIR-BELOW WAY fold|exact ROUNDS
 *
 * Both paths name the same empty directory.  Each round: all threads wait at a barrier, each
 * makes its own spelling in the way WAY, all wait again, and the first thread looks at the
 * outcome: exactly one entry on disk; exactly one winner where the way is exclusive; every
 * loser got EEXIST; every spelling finds that entry (fold) or only its own does (exact).
 * "mixed" lets each thread take an exclusive way by chance.  Prints what was wrong and exits
 * with 1, or prints nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    THREADS = 8,
    NAME_SIZE = 32,
    RENAME_FLAG_NOREPLACE = 1,
};

static int through_fd, below_fd; /* the directory, both ways */
static bool fold;
static unsigned rounds;
static const struct way *chosen;
static pthread_barrier_t barrier;

static char names[THREADS][NAME_SIZE]; /* this round's spellings */
static int results[THREADS];           /* 0, or the errno of each thread's attempt */

/* The source that thread I links or renames from; made before each round. */
static void source_name(unsigned i, char *ret)
{
    snprintf(ret, NAME_SIZE, "source%u", i);
}

static int result_of(int r)
{
    return r < 0 ? errno : 0;
}

static int by_open(unsigned i, int flags)
{
    int fd = openat(through_fd, names[i], flags | O_CREAT | O_RDWR | O_CLOEXEC, 0644);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int by_create(unsigned i)
{
    return by_open(i, 0);
}

static int by_excl(unsigned i)
{
    return by_open(i, O_EXCL);
}

static int by_mkdir(unsigned i)
{
    return result_of(mkdirat(through_fd, names[i], 0755));
}

static int by_mknod(unsigned i)
{
    return result_of(mknodat(through_fd, names[i], S_IFREG | 0644, 0));
}

static int by_symlink(unsigned i)
{
    return result_of(symlinkat("target", through_fd, names[i]));
}

static int by_link(unsigned i)
{
    char source[NAME_SIZE];

    source_name(i, source);
    return result_of(linkat(through_fd, source, through_fd, names[i], 0));
}

static int by_rename(unsigned i)
{
    char source[NAME_SIZE];

    source_name(i, source);
    return result_of(renameat(through_fd, source, through_fd, names[i]));
}

static int by_noreplace(unsigned i)
{
    char source[NAME_SIZE];

    source_name(i, source);
    return result_of(
        renameat2(through_fd, source, through_fd, names[i], RENAME_FLAG_NOREPLACE));
}

static __thread unsigned chance;

static int by_mixed(unsigned i)
{
    static int (*const ways[])(unsigned) = {by_excl,    by_mkdir, by_mknod,
                                            by_symlink, by_link,  by_noreplace};

    chance = chance * 1103515245U + 12345U + i;
    return ways[(chance >> 16) % (sizeof(ways) / sizeof(ways[0]))](i);
}

static const struct way {
    const char *name;
    int (*make)(unsigned i);
    bool exclusive; /* one winner, whatever the mode */
    bool replaces;  /* all win */
    bool sources;   /* needs a source for each thread */
} ways[] = {
    {"create", by_create, false, false, false},  {"excl", by_excl, true, false, false},
    {"mkdir", by_mkdir, true, false, false},     {"mknod", by_mknod, true, false, false},
    {"symlink", by_symlink, true, false, false}, {"link", by_link, true, false, true},
    {"rename", by_rename, false, true, true},    {"noreplace", by_noreplace, true, false, true},
    {"mixed", by_mixed, true, false, true},
};

static void fail(unsigned round, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

static void fail(unsigned round, const char *format, ...)
{
    va_list args;

    printf("round %u: ", round);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("; spellings and results:");
    for (unsigned i = 0; i < THREADS; i++)
        printf(" %s=%s", names[i], results[i] ? strerrorname_np(results[i]) : "made");
    printf("\n");
    exit(1);
}

/* Eight spellings of a name: the bits of the thread's number are the cases of three letters. */
static void spell(unsigned round)
{
    for (unsigned i = 0; i < THREADS; i++)
        snprintf(names[i], NAME_SIZE, "%c%c%s%u", i & 1 ? 'N' : 'n', i & 2 ? 'A' : 'a',
                 i & 4 ? "\xC3\x84" : "\xC3\xA4", round % 100);
}

static void make_sources(unsigned round)
{
    for (unsigned i = 0; i < THREADS; i++) {
        char source[NAME_SIZE];
        source_name(i, source);
        int fd = openat(through_fd, source, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0)
            fail(round, "cannot make %s: %s", source, strerror(errno));
        close(fd);
    }
}

/* The one entry on disk beside the sources, into RET; fails if there is none or another. */
static void only_entry(unsigned round, char *ret)
{
    int fd = openat(below_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    unsigned found = 0;

    if (!dir)
        fail(round, "cannot list: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, "source", 6) == 0)
            continue;
        if (found++)
            fail(round, "two entries: %s and %s", ret, entry->d_name);
        snprintf(ret, NAME_SIZE, "%.*s", NAME_SIZE - 1, entry->d_name);
    }
    closedir(dir);
    if (!found)
        fail(round, "no entry");
}

static void check_results(unsigned round, const char *entry)
{
    unsigned winners = 0;
    bool entry_won = false;

    for (unsigned i = 0; i < THREADS; i++) {
        if (results[i] == 0) {
            winners++;
            entry_won |= strcmp(names[i], entry) == 0;
        } else if (results[i] != EEXIST) {
            fail(round, "%s: %s", names[i], strerror(results[i]));
        }
    }
    bool all = chosen->replaces || (!chosen->exclusive && fold);
    if (winners != (all ? THREADS : 1))
        fail(round, "%u winners", winners);
    if (!entry_won)
        fail(round, "%s is there, and nobody made it", entry);
}

static void check_lookups(unsigned round, const char *entry)
{
    struct stat real, st;

    if (fstatat(below_fd, entry, &real, AT_SYMLINK_NOFOLLOW) < 0)
        fail(round, "%s is gone", entry);
    for (unsigned i = 0; i < THREADS; i++) {
        int r = fstatat(through_fd, names[i], &st, AT_SYMLINK_NOFOLLOW);
        bool want = fold || strcmp(names[i], entry) == 0;
        if (want != (r == 0))
            fail(round, "with %s on disk, %s gives %s", entry, names[i],
                 r == 0 ? "a file" : strerror(errno));
        if (want && st.st_ino != real.st_ino)
            fail(round, "%s is another file than %s", names[i], entry);
    }
}

static void clean_up(unsigned round, const char *entry)
{
    /* By another spelling, where that is possible. */
    const char *name = fold ? names[round % THREADS] : entry;

    if (unlinkat(through_fd, name, 0) < 0 && unlinkat(through_fd, name, AT_REMOVEDIR) < 0)
        fail(round, "cannot remove %s: %s", name, strerror(errno));
    for (unsigned i = 0; i < THREADS; i++)
        if (faccessat(through_fd, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            fail(round, "%s is there after removal", names[i]);
}

static void *run(void *arg)
{
    unsigned i = (unsigned)(uintptr_t)arg;

    for (unsigned round = 0; round < rounds; round++) {
        if (i == 0) {
            spell(round);
            if (chosen->sources)
                make_sources(round);
        }
        pthread_barrier_wait(&barrier);
        results[i] = chosen->make(i);
        pthread_barrier_wait(&barrier);
        if (i == 0) {
            char entry[NAME_SIZE] = "";
            only_entry(round, entry);
            check_results(round, entry);
            check_lookups(round, entry);
            clean_up(round, entry);
        }
    }
    return NULL;
}

static bool choose(const char *name)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(ways[i].name, name) == 0)
            chosen = &ways[i];
    return chosen != NULL;
}

int main(int argc, char *argv[])
{
    if (argc != 6 || !choose(argv[3])) {
        fprintf(stderr, "usage: race MOUNTED-DIR DIR-BELOW WAY fold|exact ROUNDS\n");
        return 2;
    }
    through_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    below_fd = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fold = strcmp(argv[4], "fold") == 0;
    rounds = (unsigned)strtoul(argv[5], NULL, 10);
    if (through_fd < 0 || below_fd < 0) {
        perror("race");
        return 2;
    }

    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 2;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
