/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * model.h - the model that model.c and its companions check foldfs against.
 *
 * The tree has a few fixed directories, found by everybody at all times, whose spelling alone
 * changes.  In each are classes: names that are equal but for case, of which one may exist.  An
 * entry of a class is an object: file, directory, symlink or fifo.  An object that is a
 * directory has one class inside.  Where an entry may be is called a place.
 *
 * All of it is in memory that the processes share.  Locks, in this order:
 *   - a fixed directory's, while its spelling changes;
 *   - a class's, over its entry, what is inside of that, and everything done to them; two of
 *     them in the order of their addresses;
 *   - an object's, over its content, which several links may lead to;
 *   - the pool's.
 */
#ifndef MODEL_H
#define MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum {
    DIRS = 4,
    WORDS = 8,
    SPELLINGS = 4,
    OBJECTS = 1024, /* at once: entries, and what is still held */
    INODES = 1 << 17,
    PROCESSES_MAX = 32,
    HELD = 6, /* descriptors of each process */
    PATH_SIZE = 512,
    CONTENT_SIZE = 128,
    HISTORY = 24, /* last steps of a class, for a report */
    HISTORY_SIZE = 240,
};

#define MS INT64_C(1000000) /* in nanoseconds */

enum kind {
    KIND_FILE,
    KIND_DIR,
    KIND_SYMLINK,
    KIND_FIFO,
};

/* One spelling of a class may exist: OBJECT is an index into the pool, 0 for none. */
struct entry {
    uint16_t object;
    uint16_t spelling;
};

struct object {
    pthread_mutex_t lock;
    enum kind kind;
    ino_t ino;
    atomic_uint refs;  /* entries, and descriptors that processes hold */
    atomic_uint links; /* entries */
    atomic_bool moved_behind, removed_behind;
    uint32_t content;   /* with the lock */
    int64_t attr_until; /* with the lock: till then the kernel's attributes may be old */
    struct entry inside;
};

struct class
{
    pthread_mutex_t lock;
    unsigned dir, word;
    struct entry entry;
    _Atomic int64_t names_until;  /* till then the kernel's names may be old */
    _Atomic int64_t settle_until; /* till then an unwatched foldfs may not know of all */
    uint64_t inodes[INODES / 64]; /* that this class ever led to */
    unsigned steps;
    char history[HISTORY][HISTORY_SIZE];
};

struct fixed_dir {
    pthread_mutex_t lock;
    unsigned spelling;
};

/* What the command line says. */
struct plan {
    const char *mount, *source;
    uint64_t checks; /* to be made in all */
    unsigned workers, noise, changers;
    unsigned seed;
    unsigned seconds; /* then it is over too; 0: no limit */
    bool fast;        /* the kernel may keep all exact names */
    bool unwatched;   /* foldfs is not told of changes behind the mount */
    /* How long after a change behind the mount, in ns: names of directories, other names,
     * attributes, what an unwatched foldfs knows. */
    int64_t dirs_bound, names_bound, attr_bound, settle_bound;
};

struct counters {
    _Atomic uint64_t checks, steps, respelled, tolerated, noise;
    char pad[64];
};

struct world {
    struct plan plan;
    atomic_bool stop, failed;
    pthread_mutex_t pool_lock;
    unsigned object_hint;
    uint64_t inside_inodes[INODES / 64];
    struct fixed_dir dirs[DIRS];
    struct class classes[DIRS * WORDS];
    struct object objects[OBJECTS];
    struct counters counters[PROCESSES_MAX];
};

extern struct world *world;

/* Where an entry is or may be: a class's own, or the one inside of its directory. */
struct place {
    struct class *class;
    struct entry *entry;
    bool inside;
};

struct held {
    int fd; /* -1: none */
    uint16_t object;
    bool opened; /* and not O_PATH only */
};

/* A process. */
struct process {
    unsigned number;
    unsigned random;
    bool behind; /* it changes the tree behind the mount */
    int through_fd[DIRS], below_fd[DIRS];
    struct counters *counters;
    struct held held[HELD];
    int cwd_dir;         /* a fixed directory, or -1 */
    uint16_t cwd_object; /* or this directory */
    const char *doing;   /* for a report */
};

extern const char *const words[WORDS][SPELLINGS];
extern const char *const inside_word[SPELLINGS];
extern const char *const dir_words[DIRS][SPELLINGS]; /* the first is the root */
extern const int dir_parent[DIRS];

/* ---- model-world.c ---- */

int world_make(const struct plan *plan);
int64_t now_ns(void);
unsigned chance(struct process *p, unsigned below);

struct object *object_of(const struct entry *entry);              /* NULL if there is none */
uint16_t object_new(enum kind kind, ino_t ino, uint32_t content); /* for one entry */
void object_hold(uint16_t object);
void object_release(uint16_t object);
void entry_set(struct entry *entry, uint16_t object, unsigned spelling); /* takes a link over */
void entry_clear(struct process *p, struct entry *entry);

/* A spelling of the place's name. */
const char *place_word(const struct place *place, unsigned spelling);
struct class *class_pick(struct process *p);
void classes_lock(struct class *a, struct class *b); /* B may be NULL, or A */
void classes_unlock(struct class *a, struct class *b);
void inode_seen(const struct place *place);

struct at {
    int fd;
    char path[PATH_SIZE];
};
/* The place under a spelling: by way of the mount, in one of several ways, or below it. */
void place_through(struct process *p, const struct place *place, unsigned spelling,
                   struct at *ret);
void place_below(struct process *p, const struct place *place, unsigned spelling,
                 struct at *ret);
void dir_path(struct process *p, unsigned dir, char *ret, size_t size);

/* The content with a number: text of a length of its own.  Returns the length. */
size_t content_text(uint32_t content, char ret[CONTENT_SIZE]);

void remember(struct process *p, struct class *class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A wrong answer: says it once for all processes, with the history of CLASS, which may be
 * NULL, and ends this process. */
void wrong(struct process *p, struct class *class, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void checked(struct process *p);
bool over(void);

/* ---- model-ops.c ---- */

/* A change that is under way: of one place, or two. */
struct change {
    struct process *p;
    struct place a, b; /* b.class is NULL if there is one */
    const char *name;
};

enum {
    OP_MAKES = 1, /* it removes nothing */
    OP_FRESH = 2, /* the kernel asks for the name in any case */
    OP_TWO = 4,   /* places */
};

struct operation {
    const char *name;
    void (*run)(struct change *change);
    unsigned weight; /* how often */
    unsigned kind;
};
extern const struct operation operations[];
extern const unsigned n_operations;

const char *error_name(int error);
/* rename(2) in one of its forms: 0 or an errno. */
int rename_at(struct process *p, const struct at *from, const struct at *to, unsigned flags);
/* What a change of case alone comes to, from OLD to NEW, when STORED is on disk: an errno, or 0
 * and whether the spelling changes. */
int respell_result(unsigned old, unsigned new, unsigned stored, unsigned flags,
                   bool *ret_changes);

/* ---- model-step.c ---- */

/* One change through the mount, or behind it by a process that does that; its result is
 * compared with the model, which is updated.  What it touched, locked: to be checked, and
 * unlocked by step_end(). */
struct step {
    struct place places[2];
    unsigned n_places;
};
void step_change(struct process *p, struct step *ret);
void step_end(struct step *step);
void dir_respell(struct process *p);

/* ---- model-check.c ---- */

void check_place(struct process *p, const struct place *place);
void check_held(struct process *p);
void check_cwd(struct process *p);
void hold(struct process *p, int fd, uint16_t object, bool opened); /* takes FD over */
void change_cwd(struct process *p);
void check_all(struct process *p); /* with nobody else running */
void noise(struct process *p);

#endif
