/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * model-world.c - the model's state, names and paths, and the report of a wrong answer; see
 * model.h.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct world *world;

/* Pairs of letters of one, two and three bytes, and of two and three. */
const char *const words[WORDS][SPELLINGS] = {
    {"alpha", "ALPHA", "Alpha", "alphA"},
    {"\u00e4rger", "\u00c4RGER", "\u00c4rger", "\u00e4RGER"},
    {"\u2c65b", "\u023aB", "\u023ab", "\u2c65B"},
    {"data.txt", "DATA.TXT", "Data.txt", "data.TXT"},
    {"\u65e5x\u672cy", "\u65e5X\u672cY", "\u65e5X\u672cy", "\u65e5x\u672cY"},
    {"aa", "AA", "Aa", "aA"},
    {"z1-z2", "Z1-Z2", "Z1-z2", "z1-Z2"},
    {"a longer name, with \u03c3\u03b8", "A LONGER NAME, WITH \u03a3\u0398",
     "A longer name, with \u03c3\u0398", "a longer name, with \u03a3\u03b8"},
};
const char *const inside_word[SPELLINGS] = {"inner", "INNER", "Inner", "inneR"};
const char *const dir_words[DIRS][SPELLINGS] = {
    {"", "", "", ""},
    {"Docs", "docs", "DOCS", "dOcs"},
    {"\u00dcber", "\u00fcber", "\u00dcBER", "\u00fcBER"},
    {"other", "OTHER", "Other", "otheR"},
};
const int dir_parent[DIRS] = {-1, 0, 1, 0};

int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 * MS + now.tv_nsec;
}

unsigned chance(struct process *p, unsigned below)
{
    p->random = p->random * 1664525U + 1013904223U;
    return (unsigned)(((uint64_t)p->random * below) >> 32);
}

static void mutex_make(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

int world_make(const struct plan *plan)
{
    char path[2 * PATH_SIZE];

    world =
        mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED)
        return -errno;
    world->plan = *plan;
    mutex_make(&world->pool_lock);
    for (unsigned i = 0; i < OBJECTS; i++)
        mutex_make(&world->objects[i].lock);
    for (unsigned dir = 0; dir < DIRS; dir++) {
        mutex_make(&world->dirs[dir].lock);
        for (unsigned word = 0; word < WORDS; word++) {
            struct class *class = &world->classes[dir * WORDS + word];
            mutex_make(&class->lock);
            class->dir = dir;
            class->word = word;
        }
        int up = dir_parent[dir];
        snprintf(path, sizeof(path), "%s/%s/%s", plan->source, up > 0 ? dir_words[up][0] : "",
                 dir_words[dir][0]);
        if (dir > 0 && mkdir(path, 0755) < 0)
            return -errno;
    }
    return 0;
}

/* ---- objects and entries ---- */

struct object *object_of(const struct entry *entry)
{
    return entry->object ? &world->objects[entry->object] : NULL;
}

uint16_t object_new(enum kind kind, ino_t ino, uint32_t content)
{
    unsigned i;

    pthread_mutex_lock(&world->pool_lock);
    for (i = world->object_hint;; i++) {
        i = i % OBJECTS ? i % OBJECTS : 1;
        if (atomic_load(&world->objects[i].refs) == 0)
            break;
    }
    world->object_hint = i + 1;
    struct object *object = &world->objects[i];
    object->kind = kind;
    object->ino = ino;
    object->content = content;
    object->attr_until = 0;
    object->inside = (struct entry){0};
    atomic_store(&object->links, 1);
    atomic_store(&object->moved_behind, false);
    atomic_store(&object->removed_behind, false);
    atomic_store(&object->refs, 1);
    pthread_mutex_unlock(&world->pool_lock);
    return (uint16_t)i;
}

void object_hold(uint16_t object)
{
    atomic_fetch_add(&world->objects[object].refs, 1);
}

void object_release(uint16_t object)
{
    atomic_fetch_sub(&world->objects[object].refs, 1);
}

void entry_set(struct entry *entry, uint16_t object, unsigned spelling)
{
    *entry = (struct entry){.object = object, .spelling = (uint16_t)spelling};
}

void entry_clear(struct process *p, struct entry *entry)
{
    struct object *object = object_of(entry);

    if (p->behind)
        atomic_store(&object->removed_behind, true);
    atomic_fetch_sub(&object->links, 1);
    object_release(entry->object);
    *entry = (struct entry){0};
}

/* ---- classes and places ---- */

const char *place_word(const struct place *place, unsigned spelling)
{
    return place->inside ? inside_word[spelling] : words[place->class->word][spelling];
}

struct class *class_pick(struct process *p)
{
    return &world->classes[chance(p, DIRS * WORDS)];
}

void classes_lock(struct class *a, struct class *b)
{
    if (!b || a == b) {
        pthread_mutex_lock(&a->lock);
        return;
    }
    pthread_mutex_lock(a < b ? &a->lock : &b->lock);
    pthread_mutex_lock(a < b ? &b->lock : &a->lock);
}

void classes_unlock(struct class *a, struct class *b)
{
    pthread_mutex_unlock(&a->lock);
    if (b && b != a)
        pthread_mutex_unlock(&b->lock);
}

static void mark(uint64_t *set, ino_t ino)
{
    if (ino >= INODES) {
        fprintf(stderr, "model: inode %ju is beyond the sets\n", (uintmax_t)ino);
        _exit(2);
    }
    __atomic_fetch_or(&set[ino / 64], UINT64_C(1) << (ino % 64), __ATOMIC_RELAXED);
}

void inode_seen(const struct place *place)
{
    const struct object *object = object_of(place->entry);

    if (object)
        mark(place->inside ? world->inside_inodes : place->class->inodes, object->ino);
}

/* ---- paths ---- */

static void append(char *path, size_t size, const char *text)
{
    size_t len = strlen(path);

    snprintf(path + len, size - len, "%s%s", len > 0 ? "/" : "", text);
}

void dir_path(struct process *p, unsigned dir, char *ret, size_t size)
{
    int up = dir_parent[dir];

    snprintf(ret, size, "%s", world->plan.mount);
    if (up > 0)
        append(ret, size, dir_words[up][chance(p, SPELLINGS)]);
    if (up >= 0)
        append(ret, size, dir_words[dir][chance(p, SPELLINGS)]);
}

void place_through(struct process *p, const struct place *place, unsigned spelling,
                   struct at *ret)
{
    unsigned dir = place->class->dir;

    ret->path[0] = '\0';
    ret->fd = p->through_fd[dir];
    if (p->cwd_dir == (int)dir && chance(p, 2) == 0) {
        ret->fd = AT_FDCWD;
    } else if (chance(p, 3) == 0) {
        ret->fd = AT_FDCWD;
        dir_path(p, dir, ret->path, sizeof(ret->path));
    }
    if (place->inside)
        append(ret->path, sizeof(ret->path), words[place->class->word][chance(p, SPELLINGS)]);
    append(ret->path, sizeof(ret->path), place_word(place, spelling));
}

void place_below(struct process *p, const struct place *place, unsigned spelling,
                 struct at *ret)
{
    ret->fd = p->below_fd[place->class->dir];
    ret->path[0] = '\0';
    if (place->inside)
        append(ret->path, sizeof(ret->path),
               words[place->class->word][place->class->entry.spelling]);
    append(ret->path, sizeof(ret->path), place_word(place, spelling));
}

size_t content_text(uint32_t content, char ret[CONTENT_SIZE])
{
    if (content == 0)
        return 0;
    size_t len = 16 + content % 97;
    memset(ret, (int)('a' + content % 26), len);
    char number[9];
    snprintf(number, sizeof(number), "%08x", content);
    memcpy(ret, number, 8);
    return len;
}

/* ---- reports ---- */

void remember(struct process *p, struct class *class, const char *format, ...)
{
    va_list args;
    char *line = class->history[class->steps++ % HISTORY];
    int n =
        snprintf(line, HISTORY_SIZE, "%lld.%06lld %s%u ", (long long)(now_ns() / 1000 / MS),
                 (long long)(now_ns() / 1000 % 1000000), p->behind ? "behind " : "", p->number);

    va_start(args, format);
    vsnprintf(line + n, (size_t)(HISTORY_SIZE - n), format, args);
    va_end(args);
}

static void print_history(struct class *class)
{
    unsigned from = class->steps > HISTORY ? class->steps - HISTORY : 0;

    printf("the last steps of \"%s\" in \"%s\":\n", words[class->word][0],
           dir_words[class->dir][0]);
    for (unsigned i = from; i < class->steps; i++)
        printf("    %s\n", class->history[i % HISTORY]);
}

void wrong(struct process *p, struct class *class, const char *format, ...)
{
    va_list args;

    if (!atomic_exchange(&world->failed, true)) {
        int64_t now = now_ns();
        printf("WRONG, process %u, %s, at %lld.%06lld: ", p->number, p->doing,
               (long long)(now / 1000 / MS), (long long)(now / 1000 % 1000000));
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
        if (class)
            print_history(class);
        fflush(stdout);
    }
    atomic_store(&world->stop, true);
    _exit(1);
}

void checked(struct process *p)
{
    atomic_fetch_add_explicit(&p->counters->checks, 1, memory_order_relaxed);
}

bool over(void)
{
    uint64_t checks = 0;

    if (atomic_load(&world->stop))
        return true;
    for (unsigned i = 0; i < PROCESSES_MAX; i++)
        checks += atomic_load_explicit(&world->counters[i].checks, memory_order_relaxed);
    if (checks >= world->plan.checks)
        atomic_store(&world->stop, true);
    return checks >= world->plan.checks;
}
