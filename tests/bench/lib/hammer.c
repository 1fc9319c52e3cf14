/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * hammer.c - one operation on names, many times over; prints what each took.
 *
 *     hammer [-1] [-p PID] [-f FIRST] [-n COUNT] [-e ENTRIES] [-d STEP] [-s SEED] OP DIR
 *
 * Prints two numbers: nanoseconds that one operation took, and nanoseconds of processor time
 * that process PID (or this one) spent on it.  Operations that look go to COUNT of the ENTRIES
 * names (numbers from 0 on, STEP apart) in random order; those that change, to COUNT names from
 * FIRST on.  What an operation should find is checked each time: a bench of wrong answers
 * measures nothing.  -1: the first one is measured, without a few before the clock starts.
 *
 * PID's clock is read by its number, so threads that ended count, and so does the work after
 * the last answer: requests that nobody waits for (RELEASE) are given time to be served.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Names are 30 bytes, most of them letters. */
#define NAME_FORMAT   "Quarter-Report-%010" PRIu64 ".docx"
#define ABSENT_FORMAT "Quarter-Absent-%010" PRIu64 ".docx"
#define NAME_SIZE     64
/* What a rename adds to a name's number. */
#define RENAMED UINT64_C(5000000000)
/* Hard links to one file; ext4 allows 65,000. */
#define LINKS_MAX 60000
/* So often something is done before the clock starts. */
#define WARM_UP 50
/* Time for requests that nobody waits for. */
#define SETTLE_NS 3000000
#define NS_PER_S  UINT64_C(1000000000)
/* Any odd number. */
#define RANDOM_START UINT64_C(0x9E3779B97F4A7C15)

struct work {
    int dir;
    uint64_t first, count, entries, step;
    uint64_t random;
    unsigned warm_up; /* operations before the clock starts, where repeating changes nothing */
    int file;         /* one that is open throughout */
};

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn, cold));

static void die(const char *format, ...)
{
    va_list args;
    int error = errno;

    va_start(args, format);
    fputs("hammer: ", stderr);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (%s)\n", strerror(error));
    va_end(args);
    exit(1);
}

static void name_of(uint64_t number, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, NAME_FORMAT, number);
}

/* The other case of every letter. */
static void respell(char *name)
{
    for (; *name; name++)
        if ((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z'))
            *name = (char)(*name ^ ('a' ^ 'A'));
}

/* The number of one of the ENTRIES names (xorshift). */
static uint64_t pick(struct work *work)
{
    work->random ^= work->random << 13;
    work->random ^= work->random >> 7;
    work->random ^= work->random << 17;
    return work->random % work->entries * work->step;
}

static void must_find(const struct work *work, const char *name)
{
    struct stat st;

    if (fstatat(work->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        die("stat of %s", name);
}

static void do_exact(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];

    (void)number;
    name_of(pick(work), name);
    must_find(work, name);
}

static void do_variant(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];

    (void)number;
    name_of(pick(work), name);
    respell(name);
    must_find(work, name);
}

static void do_absent(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];
    struct stat st;

    (void)number;
    snprintf(name, sizeof(name), ABSENT_FORMAT, pick(work));
    if (fstatat(work->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        die("%s should be absent", name);
}

/* A directory's name is one that the kernel may keep. */
static void do_stat_dir(struct work *work, uint64_t number)
{
    (void)number;
    must_find(work, "Folder");
}

static void do_fstat(struct work *work, uint64_t number)
{
    struct stat st;

    (void)number;
    if (fstat(work->file, &st) < 0)
        die("fstat");
}

static void do_open(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];

    (void)number;
    name_of(pick(work), name);
    int fd = openat(work->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die("open of %s", name);
    close(fd);
}

static void do_create(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];

    name_of(number, name);
    int fd = openat(work->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        die("create of %s", name);
    close(fd);
}

/* As many names as wanted, with few inodes. */
static void do_link(struct work *work, uint64_t number)
{
    char name[NAME_SIZE], source[NAME_SIZE];
    uint64_t in_group = (number - work->first) % LINKS_MAX;

    if (in_group == 0) {
        do_create(work, number);
        return;
    }
    name_of(number - in_group, source);
    name_of(number, name);
    if (linkat(work->dir, source, work->dir, name, 0) < 0)
        die("link of %s to %s", name, source);
}

static void do_rename(struct work *work, uint64_t number)
{
    char name[NAME_SIZE], other[NAME_SIZE];

    name_of(number, name);
    name_of(number + RENAMED, other);
    if (renameat(work->dir, name, work->dir, other) < 0)
        die("rename of %s", name);
}

static void do_unlink(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];

    name_of(number, name);
    if (unlinkat(work->dir, name, 0) < 0)
        die("unlink of %s", name);
}

static void do_mkdir(struct work *work, uint64_t number)
{
    char name[NAME_SIZE];

    name_of(number, name);
    if (mkdirat(work->dir, name, 0755) < 0)
        die("mkdir of %s", name);
}

static void do_list(struct work *work, uint64_t number)
{
    (void)number;
    int fd = openat(work->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream)
        die("opendir");
    uint64_t seen = 0;
    while (readdir(stream))
        seen++;
    closedir(stream);
    if (seen < work->entries)
        die("listed %" PRIu64 " entries of %" PRIu64, seen, work->entries);
}

static const struct operation {
    const char *name;
    void (*go)(struct work *work, uint64_t number);
    bool repeatable; /* may be done before the clock starts */
} operations[] = {
    {"exact", do_exact, true},    {"variant", do_variant, true},
    {"absent", do_absent, true},  {"stat-dir", do_stat_dir, true},
    {"fstat", do_fstat, true},    {"open", do_open, true},
    {"create", do_create, false}, {"link", do_link, false},
    {"rename", do_rename, false}, {"unlink", do_unlink, false},
    {"mkdir", do_mkdir, false},   {"list", do_list, false},
};

static const struct operation *find_operation(const char *name)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    errno = EINVAL;
    die("operation %s", name);
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    if (clock_gettime(clock, &now) < 0)
        die("clock");
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t cpu_of(pid_t pid)
{
    const struct timespec settle = {.tv_nsec = SETTLE_NS};
    clockid_t clock;

    if (pid == 0)
        return read_clock(CLOCK_PROCESS_CPUTIME_ID);
    nanosleep(&settle, NULL);
    int error = clock_getcpuclockid(pid, &clock);
    if (error) {
        errno = error;
        die("processor clock of %d", pid);
    }
    return read_clock(clock);
}

static uint64_t number_arg(const char *text)
{
    char *end;

    errno = EINVAL;
    uint64_t number = strtoull(text, &end, 10);
    if (*end || end == text)
        die("%s is no number", text);
    return number;
}

static void run(const struct operation *operation, struct work *work, pid_t pid)
{
    for (unsigned i = 0; operation->repeatable && i < work->warm_up; i++)
        operation->go(work, work->first);
    uint64_t cpu = cpu_of(pid);
    uint64_t wall = read_clock(CLOCK_MONOTONIC);
    for (uint64_t i = 0; i < work->count; i++)
        operation->go(work, work->first + i);
    wall = read_clock(CLOCK_MONOTONIC) - wall;
    cpu = cpu_of(pid) - cpu;
    printf("%.1f %.1f\n", (double)wall / (double)work->count,
           (double)cpu / (double)work->count);
}

int main(int argc, char *argv[])
{
    struct work work = {
        .count = 1, .entries = 1, .random = RANDOM_START, .warm_up = WARM_UP, .file = -1};
    pid_t pid = 0;
    int option;

    while ((option = getopt(argc, argv, "1p:f:n:e:d:s:")) != -1) {
        if (option == '1')
            work.warm_up = 0;
        else if (option == 'p')
            pid = (pid_t)number_arg(optarg);
        else if (option == 'f')
            work.first = number_arg(optarg);
        else if (option == 'n')
            work.count = number_arg(optarg);
        else if (option == 'e')
            work.entries = number_arg(optarg);
        else if (option == 'd')
            work.step = number_arg(optarg);
        else if (option == 's')
            work.random += number_arg(optarg) * 2 * RANDOM_START;
        else
            return 1;
    }
    if (argc - optind != 2 || work.count == 0 || work.entries == 0) {
        fputs("usage: hammer [-1] [-p PID] [-f FIRST] [-n COUNT] [-e ENTRIES] [-d STEP] "
              "[-s SEED] OP DIR\n",
              stderr);
        return 1;
    }
    const struct operation *operation = find_operation(argv[optind]);
    work.dir = open(argv[optind + 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work.dir < 0)
        die("%s", argv[optind + 1]);
    if (operation->go == do_fstat) {
        char name[NAME_SIZE];
        name_of(0, name);
        work.file = openat(work.dir, name, O_RDONLY | O_CLOEXEC);
    }
    run(operation, &work, pid);
    return 0;
}
