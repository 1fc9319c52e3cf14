/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * model-check.c - the questions: each answer of the mount is compared with the model.
 *
 * An answer that the kernel may give by itself may be old for a time after a change behind the
 * mount.  If it is, it is asked again till it is right, or left for later by chance, since it
 * takes long; it must be right when the time is over.  Answers that need foldfs must be right
 * at once.
 */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* For a directory of the fixed ones to get its name back under fast: others walk there all the
 * time. */
#define CWD_TRIES    2000
#define CWD_PAUSE_US 1000

/* Of ESTALE for a directory that was moved behind the mount. */
#define BUSY_NS (1000 * MS)

enum {
    ASKED_SPELLINGS = 2, /* besides the one on disk */
    WAIT_ONE_IN = 32,    /* of the answers that are old, and may be */
    WAIT_US = 2000,
    SAID_SIZE = 1024,
};

struct question {
    struct process *p;
    const struct place *place;
    unsigned spelling;
    char said[SAID_SIZE]; /* what is wrong */
    bool busy;            /* the kernel could not move a directory's dentry now */
};

typedef bool (*ask_fn)(struct question *q);

/* ASK must be right, from UNTIL on. */
static void must(struct question *q, ask_fn ask, int64_t until)
{
    bool waits = chance(q->p, WAIT_ONE_IN) == 0;
    int64_t busy_until = now_ns() + BUSY_NS;

    for (;;) {
        int64_t began = now_ns();
        q->busy = false;
        if (ask(q)) {
            checked(q->p);
            return;
        }
        if (began >= (q->busy ? busy_until : until))
            wrong(q->p, q->place->class, "%s", q->said);
        atomic_fetch_add_explicit(&q->p->counters->tolerated, 1, memory_order_relaxed);
        if ((!waits && !q->busy) || atomic_load(&world->stop))
            return;
        usleep(WAIT_US);
    }
}

/* When a directory that was moved behind the mount is found at its new place, the kernel moves
 * its dentry; if others rename across directories at that moment it cannot, and says ESTALE. */
static void note_busy(struct question *q, int error, const struct object *object)
{
    q->busy = error == ESTALE && object && object->kind == KIND_DIR &&
              atomic_load(&object->moved_behind);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static const char *kind_name(mode_t mode)
{
    return S_ISREG(mode)   ? "file"
           : S_ISDIR(mode) ? "directory"
           : S_ISLNK(mode) ? "link"
                           : "fifo";
}

static bool is_kind(mode_t mode, enum kind kind)
{
    static const mode_t modes[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO};

    return (mode & S_IFMT) == modes[kind];
}

/* ---- by name ---- */

static bool ask_stat(struct question *q)
{
    struct at at;
    struct stat st = {0};
    const struct object *object = object_of(q->place->entry);

    place_through(q->p, q->place, q->spelling, &at);
    int r = fstatat(at.fd, at.path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
    if (!object && r == ENOENT)
        return true;
    if (object && r == 0 && st.st_ino == object->ino && is_kind(st.st_mode, object->kind))
        return true;
    note_busy(q, r, object);
    snprintf(q->said, SAID_SIZE,
             "stat of %s gives %s, inode %ju%s; the model has %s, inode %ju", at.path,
             r ? strerrorname_np(r) : kind_name(st.st_mode), (uintmax_t)st.st_ino,
             at.fd == AT_FDCWD ? "" : " (by descriptor)",
             object ? place_word(q->place, q->place->entry->spelling) : "nothing",
             object ? (uintmax_t)object->ino : 0);
    return false;
}

/* The object's lock is held. */
static bool is_content(struct question *q, int fd, const struct object *object,
                       const char *what)
{
    struct stat st = {0};
    char text[CONTENT_SIZE], got[CONTENT_SIZE + 1];
    size_t len = content_text(object->content, text);
    ssize_t n = pread(fd, got, sizeof(got), 0);

    int error = n < 0 ? errno : 0;

    if (fstat(fd, &st) < 0)
        error = errno;
    if (error == 0 && n == (ssize_t)len && st.st_size == (off_t)len &&
        memcmp(text, got, len) == 0)
        return true;
    snprintf(q->said, SAID_SIZE,
             "%s: %s, %zd bytes, size %jd, \"%.8s\"; the model has %zu, \"%.8s\"", what,
             error ? strerrorname_np(error) : "done", n, (intmax_t)st.st_size,
             n >= 8 ? got : "", len, len >= 8 ? text : "");
    return false;
}

/* Opens by the name; the object's lock is held. */
static bool ask_content(struct question *q)
{
    struct at at;
    struct stat st;
    const struct object *object = object_of(q->place->entry);

    place_through(q->p, q->place, q->spelling, &at);
    int fd = openat(at.fd, at.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        snprintf(q->said, SAID_SIZE, "open of %s gives %s", at.path, strerrorname_np(errno));
        return false;
    }
    bool right = fstat(fd, &st) == 0 && st.st_ino == object->ino;
    if (!right)
        snprintf(q->said, SAID_SIZE, "open of %s gives inode %ju, not %ju", at.path,
                 (uintmax_t)st.st_ino, (uintmax_t)object->ino);
    else
        right = is_content(q, fd, object, at.path);
    close(fd);
    return right;
}

static bool ask_symlink(struct question *q)
{
    struct at at;
    char text[CONTENT_SIZE], got[CONTENT_SIZE];
    size_t len = content_text(object_of(q->place->entry)->content, text);

    place_through(q->p, q->place, q->spelling, &at);
    ssize_t n = readlinkat(at.fd, at.path, got, sizeof(got));
    if (n == (ssize_t)len && memcmp(got, text, len) == 0)
        return true;
    snprintf(q->said, SAID_SIZE, "readlink of %s gives %zd bytes, %s", at.path, n,
             n < 0 ? strerrorname_np(errno) : "others");
    return false;
}

static void check_content(struct question *q, int64_t until)
{
    struct object *object = object_of(q->place->entry);

    if (!object)
        return;
    if (object->kind == KIND_SYMLINK)
        must(q, ask_symlink, until);
    if (object->kind != KIND_FILE)
        return;
    pthread_mutex_lock(&object->lock);
    must(q, ask_content, later(until, object->attr_until));
    pthread_mutex_unlock(&object->lock);
}

/* ---- listings ---- */

static bool is_spelling(const struct place *place, const char *name)
{
    for (unsigned i = 0; i < SPELLINGS; i++)
        if (strcmp(name, place_word(place, i)) == 0)
            return true;
    return false;
}

/* FD, taken over, must list the place's entry as it is, and no other spelling.  Names of other
 * classes may come and go. */
static bool is_listed(struct question *q, int fd, const char *what)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct entry *want = q->place->entry;
    unsigned found = 0, right = 0;
    int error = errno;

    q->said[0] = '\0';
    for (struct dirent *entry; dir && (errno = 0, entry = readdir(dir));) {
        if (!is_spelling(q->place, entry->d_name))
            continue;
        found++;
        right += want->object && entry->d_ino == object_of(want)->ino &&
                 strcmp(entry->d_name, place_word(q->place, want->spelling)) == 0;
        size_t len = strlen(q->said);
        snprintf(q->said + len, SAID_SIZE - len, "%s (inode %ju), ", entry->d_name,
                 (uintmax_t)entry->d_ino);
    }
    if (dir) {
        error = errno;
        closedir(dir);
    }
    if (dir && error == 0 && found == (want->object != 0) && right == found)
        return true;
    size_t len = strlen(q->said);
    snprintf(q->said + len, SAID_SIZE - len, "%s is listed %s, result %s; the model has %s",
             found ? "as this" : "not at all", what, error ? strerrorname_np(error) : "done",
             want->object ? place_word(q->place, want->spelling) : "nothing");
    return false;
}

static bool ask_listing(struct question *q)
{
    struct at at;
    const struct class *class = q->place->class;
    const struct place outer = {.class = q->place->class, .entry = &q->place->class->entry};

    if (q->place->inside) {
        place_through(q->p, &outer, q->spelling, &at);
    } else if (chance(q->p, 2)) {
        at.fd = q->p->through_fd[class->dir];
        snprintf(at.path, sizeof(at.path), ".");
    } else {
        at.fd = AT_FDCWD;
        dir_path(q->p, class->dir, at.path, sizeof(at.path));
    }
    return is_listed(q, openat(at.fd, at.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "through");
}

static bool ask_listing_below(struct question *q)
{
    int dir = q->p->below_fd[q->place->class->dir];
    const char *path =
        q->place->inside ? words[q->place->class->word][q->place->class->entry.spelling] : ".";

    return is_listed(q, openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "below");
}

/* A listing is foldfs' answer, but the way to a directory inside of a class is not. */
static void check_listing(struct question *q, int64_t until)
{
    must(q, ask_listing, q->place->inside ? until : 0);
    must(q, ask_listing_below, 0);
}

/* ---- a place ---- */

/* From when on an answer under a spelling must be right.  An unwatched foldfs knows at once
 * what is there under its exact spelling, and what is not there any more. */
static int64_t right_from(const struct place *place, unsigned spelling)
{
    int64_t names = atomic_load(&place->class->names_until);
    bool exact = !place->entry->object || spelling == place->entry->spelling;

    if (exact && !place->inside)
        return names;
    return later(names, atomic_load(&place->class->settle_until));
}

static bool ask_below(struct question *q)
{
    struct at at;
    struct stat st = {0};
    const struct object *object = object_of(q->place->entry);

    place_below(q->p, q->place, q->place->entry->spelling, &at);
    int r = fstatat(at.fd, at.path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
    snprintf(q->said, SAID_SIZE, "on disk %s is inode %ju, not %ju", at.path,
             (uintmax_t)st.st_ino, object ? (uintmax_t)object->ino : 0);
    return object ? r == 0 && st.st_ino == object->ino : r == ENOENT;
}

/* The place that was looked for may have gone with its directory. */
static bool is_there(const struct place *place)
{
    const struct object *outer = object_of(&place->class->entry);

    return !place->inside || (outer && &outer->inside == place->entry);
}

void check_place(struct process *p, const struct place *place)
{
    struct question q = {.p = p, .place = place};

    if (!is_there(place))
        return;
    p->doing = "checking";
    must(&q, ask_below, 0);
    q.spelling = place->entry->spelling;
    must(&q, ask_stat, right_from(place, q.spelling));
    for (unsigned i = 0; i < ASKED_SPELLINGS; i++) {
        q.spelling = chance(p, SPELLINGS);
        must(&q, ask_stat, right_from(place, q.spelling));
    }
    check_content(&q, right_from(place, q.spelling));
    if (chance(p, 4) == 0)
        check_listing(&q, right_from(place, q.spelling));
}

static void check_everywhere(struct process *p, const struct place *place)
{
    struct question q = {.p = p, .place = place};

    must(&q, ask_below, 0);
    for (q.spelling = 0; q.spelling < SPELLINGS; q.spelling++) {
        must(&q, ask_stat, 0);
        check_content(&q, 0);
    }
    q.spelling = 0;
    check_listing(&q, 0);
}

void check_all(struct process *p)
{
    p->doing = "the last check";
    for (unsigned i = 0; i < ARRAY_SIZE(world->classes); i++) {
        struct class *class = &world->classes[i];
        struct place place = {.class = class, .entry = &class->entry};
        check_everywhere(p, &place);
        struct object *object = object_of(&class->entry);
        if (object && object->kind == KIND_DIR) {
            place = (struct place){.class = class, .entry = &object->inside, .inside = true};
            check_everywhere(p, &place);
        }
    }
}

/* ---- what is held ---- */

void hold(struct process *p, int fd, uint16_t object, bool opened)
{
    struct held *held = &p->held[chance(p, HELD)];

    if (held->fd >= 0) {
        close(held->fd);
        object_release(held->object);
    }
    object_hold(object);
    *held = (struct held){.fd = fd, .object = object, .opened = opened};
}

static bool is_gone_behind(const struct object *object)
{
    return atomic_load(&object->links) == 0 && atomic_load(&object->removed_behind);
}

/* With the object's lock. */
static void check_descriptor(struct process *p, const struct held *held,
                             const struct object *object)
{
    struct question q = {.p = p};
    struct stat st;

    if (fstat(held->fd, &st) < 0) {
        /* Nothing holds what a mere path leads to, if it is removed behind the mount. */
        if (!held->opened && errno == ESTALE && is_gone_behind(object))
            return;
        wrong(p, NULL, "fstat of a held descriptor of inode %ju gives %s",
              (uintmax_t)object->ino, strerrorname_np(errno));
    }
    if (st.st_ino != object->ino || !is_kind(st.st_mode, object->kind))
        wrong(p, NULL, "a held descriptor of inode %ju is now of %ju", (uintmax_t)object->ino,
              (uintmax_t)st.st_ino);
    checked(p);
    if (object->kind != KIND_FILE || !held->opened)
        return;
    int64_t began = now_ns();
    if (!is_content(&q, held->fd, object, "held descriptor") && began >= object->attr_until)
        wrong(p, NULL, "inode %ju: %s", (uintmax_t)object->ino, q.said);
    checked(p);
}

void check_held(struct process *p)
{
    const struct held *held = &p->held[chance(p, HELD)];

    if (held->fd < 0)
        return;
    struct object *object = &world->objects[held->object];
    p->doing = "checking a held descriptor";
    pthread_mutex_lock(&object->lock);
    check_descriptor(p, held, object);
    pthread_mutex_unlock(&object->lock);
}

/* ---- the working directory ---- */

static void leave_cwd(struct process *p)
{
    if (p->cwd_dir < 0)
        object_release(p->cwd_object);
    p->cwd_dir = 0;
}

static void enter_fixed(struct process *p)
{
    char path[PATH_SIZE];
    unsigned dir = chance(p, DIRS);

    dir_path(p, dir, path, sizeof(path));
    if (chdir(path) < 0)
        wrong(p, NULL, "chdir to %s gives %s", path, strerrorname_np(errno));
    leave_cwd(p);
    p->cwd_dir = (int)dir;
}

/* With the class's lock: enters its directory, if there is one, and holds it. */
static void enter_class(struct process *p, struct class *class)
{
    struct at at;
    struct stat st;
    const struct place place = {.class = class, .entry = &class->entry};
    const struct object *object = object_of(place.entry);

    if (!object || object->kind != KIND_DIR || now_ns() < right_from(&place, SPELLINGS))
        return;
    place_through(p, &place, chance(p, SPELLINGS), &at);
    int fd = openat(at.fd, at.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fchdir(fd) < 0 || fstat(fd, &st) < 0 || st.st_ino != object->ino)
        wrong(p, class, "chdir to %s: %s", at.path, strerror(errno));
    leave_cwd(p);
    p->cwd_dir = -1;
    p->cwd_object = place.entry->object;
    object_hold(p->cwd_object);
    hold(p, fd, p->cwd_object, false);
}

void change_cwd(struct process *p)
{
    struct class *class = class_pick(p);

    p->doing = "chdir";
    if (chance(p, 2)) {
        enter_fixed(p);
        return;
    }
    classes_lock(class, NULL);
    enter_class(p, class);
    classes_unlock(class, NULL);
}

static bool is_spelling_of_dir(unsigned dir, const char *name, size_t len)
{
    for (unsigned i = 0; i < SPELLINGS; i++)
        if (strlen(dir_words[dir][i]) == len && memcmp(dir_words[dir][i], name, len) == 0)
            return true;
    return false;
}

/* Is PATH that of the fixed directory, in any spelling? */
static bool leads_to(const char *path, int dir)
{
    const char *mount = world->plan.mount;
    const char *slash = strrchr(path, '/');

    if (dir == 0)
        return strcmp(path, mount) == 0;
    if (!slash || !is_spelling_of_dir((unsigned)dir, slash + 1, strlen(slash + 1)))
        return false;
    char up[PATH_SIZE];
    snprintf(up, sizeof(up), "%.*s", (int)(slash - path), path);
    return leads_to(up, dir_parent[dir]);
}

/* The working directory.  Under fast, a change by another spelling drops all names at once, and
 * a directory has none until somebody has looked it up again: a moment, if somebody does. */
static const char *read_cwd(char path[PATH_SIZE])
{
    const char *got = getcwd(path, PATH_SIZE);

    for (int i = 0; !got && errno == ENOENT && world->plan.fast && i < CWD_TRIES; i++) {
        usleep(CWD_PAUSE_US);
        got = getcwd(path, PATH_SIZE);
    }
    return got;
}

/* A directory that was moved behind the mount has no path till it is looked up again; nor has
 * one that nobody looks up, under fast. */
static void check_cwd_object(struct process *p)
{
    char path[PATH_SIZE];
    const struct object *object = &world->objects[p->cwd_object];
    const char *got = getcwd(path, sizeof(path));
    int error = errno;
    bool may_be_lost = world->plan.fast || atomic_load(&object->moved_behind);

    if (!got && atomic_load(&object->links) > 0 && !(error == ENOENT && may_be_lost))
        wrong(p, NULL, "getcwd in directory %ju gives %s", (uintmax_t)object->ino,
              strerrorname_np(error));
    checked(p);
}

void check_cwd(struct process *p)
{
    char path[PATH_SIZE];
    struct stat st, below;

    p->doing = "checking the working directory";
    if (p->cwd_dir < 0) {
        check_cwd_object(p);
        return;
    }
    if (!read_cwd(path) || !leads_to(path, p->cwd_dir))
        wrong(p, NULL, "getcwd in \"%s\" gives %s", dir_words[p->cwd_dir][0],
              strerrorname_np(errno));
    if (stat(".", &st) < 0 || fstat(p->below_fd[p->cwd_dir], &below) < 0 ||
        st.st_ino != below.st_ino)
        wrong(p, NULL, "stat of . in \"%s\": %s", dir_words[p->cwd_dir][0], strerror(errno));
    checked(p);
}

/* ---- noise ---- */

static bool is_seen(const uint64_t *set, ino_t ino)
{
    return ino < INODES &&
           __atomic_load_n(&set[ino / 64], __ATOMIC_RELAXED) & UINT64_C(1) << (ino % 64);
}

/* What is being done now is then in the model. */
static void wait_for(struct class *class, bool all)
{
    for (unsigned i = 0; i < ARRAY_SIZE(world->classes); i++) {
        if (!all && &world->classes[i] != class)
            continue;
        pthread_mutex_lock(&world->classes[i].lock);
        pthread_mutex_unlock(&world->classes[i].lock);
    }
}

static int look(struct process *p, const struct at *at, struct stat *ret_st)
{
    if (chance(p, 3))
        return fstatat(at->fd, at->path, ret_st, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
    int fd = openat(at->fd, at->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int r = fstat(fd, ret_st) < 0 ? errno : 0;
    close(fd);
    return r;
}

void noise(struct process *p)
{
    struct at at;
    struct stat st;
    struct class *class = class_pick(p);
    struct place place = {.class = class, .entry = &class->entry, .inside = chance(p, 5) == 0};
    const uint64_t *set = place.inside ? world->inside_inodes : class->inodes;

    p->doing = "noise";
    place_through(p, &place, chance(p, SPELLINGS), &at);
    int r = look(p, &at, &st);
    if (r != 0 && r != ENOENT && r != ELOOP && r != ENOTDIR &&
        !(r == ESTALE && world->plan.changers > 0))
        wrong(p, class, "a look at %s gives %s", at.path, strerrorname_np(r));
    if (r == 0 && !is_seen(set, st.st_ino)) {
        wait_for(class, place.inside);
        if (!is_seen(set, st.st_ino))
            wrong(p, class, "%s was never inode %ju", at.path, (uintmax_t)st.st_ino);
    }
    atomic_fetch_add_explicit(&p->counters->noise, 1, memory_order_relaxed);
}
