/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * model-ops.c - the changes: each is made through the mount under any spelling, or behind it
 * under the exact one, its result compared with what the model says, and the model updated.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <unistd.h>

#define OPEN_FLAGS (O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)

static unsigned pick_spelling(struct process *p, const struct place *place)
{
    if (p->behind && place->entry->object)
        return place->entry->spelling;
    return chance(p, SPELLINGS);
}

static void place_at(struct process *p, const struct place *place, unsigned spelling,
                     struct at *ret)
{
    if (p->behind)
        place_below(p, place, spelling, ret);
    else
        place_through(p, place, spelling, ret);
}

const char *error_name(int error)
{
    return error ? strerrorname_np(error) : "done";
}

/* The result of a change: 0 or an errno. */
static void expect(struct change *change, const char *name, const char *to, int got, int want)
{
    struct process *p = change->p;
    struct class *other = change->b.class;

    remember(p, change->a.class, "%s %s %s: %s", change->name, name, to, error_name(got));
    if (other && other != change->a.class)
        remember(p, other, "%s %s %s: %s", change->name, name, to, error_name(got));
    if (got != want)
        wrong(p, change->a.class, "%s %s %s gives %s, not %s", change->name, name, to,
              error_name(got), error_name(want));
    checked(p);
}

/* What is on disk at the place under SPELLING now. */
static ino_t inode_below(struct change *change, const struct place *place, unsigned spelling)
{
    struct at at;
    struct stat st;

    place_below(change->p, place, spelling, &at);
    if (fstatat(at.fd, at.path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        wrong(change->p, place->class, "%s: %s is not on disk: %s", change->name, at.path,
              strerror(errno));
    checked(change->p);
    return st.st_ino;
}

/* There is a new object at the place. */
static void made(struct change *change, const struct place *place, unsigned spelling,
                 enum kind kind, uint32_t content)
{
    ino_t ino = inode_below(change, place, spelling);

    entry_set(place->entry, object_new(kind, ino, content), spelling);
}

static uint32_t any_content(struct process *p)
{
    return 1 + (chance(p, 1U << 15) << 15 | chance(p, 1U << 15));
}

/* With the object's lock. */
static void content_changed(struct process *p, struct object *object, uint32_t content)
{
    object->content = content;
    if (p->behind)
        object->attr_until = now_ns() + world->plan.attr_bound;
}

/* With the object's lock. */
static void write_content(struct change *change, int fd, struct object *object)
{
    char text[CONTENT_SIZE];
    uint32_t content = any_content(change->p);
    size_t len = content_text(content, text);

    if (pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
        wrong(change->p, change->a.class, "cannot write: %s", strerror(errno));
    content_changed(change->p, object, content);
}

/* ---- open ---- */

static int open_result(const struct place *place, int flags)
{
    const struct object *object = object_of(place->entry);

    if (!object)
        return flags & O_CREAT ? 0 : ENOENT;
    if (flags & O_EXCL)
        return EEXIST;
    return object->kind == KIND_DIR ? EISDIR : object->kind == KIND_SYMLINK ? ELOOP : 0;
}

static void opened(struct change *change, int fd, unsigned spelling, int flags, bool writes)
{
    struct object *object = object_of(change->a.entry);
    struct stat st;

    if (!object) {
        made(change, &change->a, spelling, KIND_FILE, 0);
        object = object_of(change->a.entry);
        pthread_mutex_lock(&object->lock);
    } else if (flags & O_TRUNC && object->kind == KIND_FILE) {
        content_changed(change->p, object, 0);
    }
    if (fstat(fd, &st) < 0 || st.st_ino != object->ino)
        wrong(change->p, change->a.class,
              "%s: the descriptor is of another file (%ju, not %ju)", change->name,
              (uintmax_t)st.st_ino, (uintmax_t)object->ino);
    if (writes && object->kind == KIND_FILE)
        write_content(change, fd, object);
    pthread_mutex_unlock(&object->lock);
    if (chance(change->p, 3) == 0 && object->kind == KIND_FILE && !change->p->behind)
        hold(change->p, fd, change->a.entry->object, true);
    else
        close(fd);
}

static void open_by(struct change *change, int flags, bool writes)
{
    struct object *object = object_of(change->a.entry);
    unsigned spelling = pick_spelling(change->p, &change->a);
    struct at at;

    if (object && object->kind == KIND_FIFO && change->p->behind)
        return; /* it could only be opened */
    place_at(change->p, &change->a, spelling, &at);
    if (object)
        pthread_mutex_lock(&object->lock);
    int fd = openat(at.fd, at.path, flags | O_RDWR | OPEN_FLAGS, 0644);
    expect(change, at.path, "", fd < 0 ? errno : 0, open_result(&change->a, flags));
    if (fd >= 0)
        opened(change, fd, spelling, flags, writes);
    else if (object)
        pthread_mutex_unlock(&object->lock);
}

static void op_create(struct change *change)
{
    open_by(change, O_CREAT, chance(change->p, 2));
}

static void op_excl(struct change *change)
{
    open_by(change, O_CREAT | O_EXCL, chance(change->p, 2));
}

static void op_create_trunc(struct change *change)
{
    open_by(change, O_CREAT | O_TRUNC, chance(change->p, 2));
}

static void op_write(struct change *change)
{
    open_by(change, chance(change->p, 2) ? O_TRUNC : 0, true);
}

/* truncate(2) has no form that takes a directory. */
static void op_truncate(struct change *change)
{
    static const int results[] = {0, EISDIR, ENOENT, EINVAL}; /* by kind: the link dangles */
    char path[PATH_SIZE + 40];
    struct at at;
    struct object *object = object_of(change->a.entry);

    place_at(change->p, &change->a, pick_spelling(change->p, &change->a), &at);
    if (at.fd == AT_FDCWD)
        snprintf(path, sizeof(path), "%s", at.path);
    else
        snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", at.fd, at.path);
    if (object)
        pthread_mutex_lock(&object->lock);
    int r = truncate(path, 0) < 0 ? errno : 0;
    expect(change, at.path, "", r, object ? results[object->kind] : ENOENT);
    if (r == 0)
        content_changed(change->p, object, 0);
    if (object)
        pthread_mutex_unlock(&object->lock);
}

/* ---- other ways to make and remove ---- */

static void op_mkdir(struct change *change)
{
    struct at at;
    unsigned spelling = pick_spelling(change->p, &change->a);

    if (change->a.inside)
        return; /* the model has one level */
    place_at(change->p, &change->a, spelling, &at);
    int r = mkdirat(at.fd, at.path, 0755) < 0 ? errno : 0;
    expect(change, at.path, "", r, change->a.entry->object ? EEXIST : 0);
    if (r == 0)
        made(change, &change->a, spelling, KIND_DIR, 0);
}

static void op_mknod(struct change *change)
{
    struct at at;
    unsigned spelling = pick_spelling(change->p, &change->a);
    bool fifo = chance(change->p, 2);

    place_at(change->p, &change->a, spelling, &at);
    int r = mknodat(at.fd, at.path, (fifo ? S_IFIFO : S_IFREG) | 0644, 0) < 0 ? errno : 0;
    expect(change, at.path, "", r, change->a.entry->object ? EEXIST : 0);
    if (r == 0)
        made(change, &change->a, spelling, fifo ? KIND_FIFO : KIND_FILE, 0);
}

static void op_symlink(struct change *change)
{
    struct at at;
    char text[CONTENT_SIZE] = "";
    uint32_t content = any_content(change->p);
    unsigned spelling = pick_spelling(change->p, &change->a);

    text[content_text(content, text)] = '\0';
    place_at(change->p, &change->a, spelling, &at);
    int r = symlinkat(text, at.fd, at.path) < 0 ? errno : 0;
    expect(change, at.path, "", r, change->a.entry->object ? EEXIST : 0);
    if (r == 0)
        made(change, &change->a, spelling, KIND_SYMLINK, content);
}

static void op_unlink(struct change *change)
{
    struct at at;
    const struct object *object = object_of(change->a.entry);
    int want = !object ? ENOENT : object->kind == KIND_DIR ? EISDIR : 0;

    place_at(change->p, &change->a, pick_spelling(change->p, &change->a), &at);
    expect(change, at.path, "", unlinkat(at.fd, at.path, 0) < 0 ? errno : 0, want);
    if (want == 0)
        entry_clear(change->p, change->a.entry);
}

static void op_rmdir(struct change *change)
{
    struct at at;
    const struct object *object = object_of(change->a.entry);
    int want = !object                      ? ENOENT
               : object->kind != KIND_DIR   ? ENOTDIR
               : object->inside.object != 0 ? ENOTEMPTY
                                            : 0;

    place_at(change->p, &change->a, pick_spelling(change->p, &change->a), &at);
    expect(change, at.path, "", unlinkat(at.fd, at.path, AT_REMOVEDIR) < 0 ? errno : 0, want);
    if (want == 0)
        entry_clear(change->p, change->a.entry);
}

static void op_link(struct change *change)
{
    struct at from, to;
    const struct place *a = &change->a, *b = &change->b;
    unsigned spelling = pick_spelling(change->p, b);
    struct object *object = object_of(a->entry);

    if (a->entry == b->entry)
        return;
    int want = !object                    ? ENOENT
               : b->entry->object         ? EEXIST
               : object->kind == KIND_DIR ? EPERM
                                          : 0;
    place_at(change->p, a, pick_spelling(change->p, a), &from);
    place_at(change->p, b, spelling, &to);
    int r = linkat(from.fd, from.path, to.fd, to.path, 0) < 0 ? errno : 0;
    expect(change, from.path, to.path, r, want);
    if (r == 0) {
        atomic_fetch_add(&object->links, 1);
        object_hold(a->entry->object);
        entry_set(b->entry, a->entry->object, spelling);
    }
}

/* ---- rename ---- */

int rename_at(struct process *p, const struct at *from, const struct at *to, unsigned flags)
{
    int r;

    if (flags == 0 && from->fd == AT_FDCWD && to->fd == AT_FDCWD)
        r = rename(from->path, to->path);
    else if (flags == 0 && chance(p, 2))
        r = renameat(from->fd, from->path, to->fd, to->path);
    else
        r = renameat2(from->fd, from->path, to->fd, to->path, flags);
    return r < 0 ? errno : 0;
}

int respell_result(unsigned old, unsigned new, unsigned stored, unsigned flags,
                   bool *ret_changes)
{
    *ret_changes = false;
    if (flags & RENAME_EXCHANGE)
        return 0;
    if (old == new || new == stored)
        return flags & RENAME_NOREPLACE ? EEXIST : 0;
    *ret_changes = true;
    return 0;
}

static void respell(struct change *change, unsigned flags)
{
    struct at from, to;
    bool changes = false;
    struct process *p = change->p;
    const struct place *place = &change->a;
    unsigned old = pick_spelling(p, place), new = chance(p, SPELLINGS);

    if (p->behind && (flags & RENAME_EXCHANGE))
        new = old; /* the bare tree knows no other */
    if (p->behind && !place->entry->object)
        return;
    int want = ENOENT;
    if (place->entry->object)
        want = respell_result(old, new, place->entry->spelling, flags, &changes);
    place_at(p, place, old, &from);
    place_at(p, place, new, &to);
    expect(change, from.path, to.path, rename_at(p, &from, &to, flags), want);
    if (changes) {
        place->entry->spelling = (uint16_t) new;
        atomic_fetch_add_explicit(&p->counters->respelled, 1, memory_order_relaxed);
    }
}

static void op_respell(struct change *change)
{
    change->b = change->a;
    respell(change, chance(change->p, 6) == 0 ? RENAME_NOREPLACE : 0);
}

static int rename_result(const struct place *a, const struct place *b, unsigned flags)
{
    const struct object *from = object_of(a->entry), *to = object_of(b->entry);

    if (!from)
        return ENOENT;
    if (flags & RENAME_EXCHANGE)
        return to ? 0 : ENOENT;
    if (!to)
        return 0;
    if (flags & RENAME_NOREPLACE)
        return EEXIST;
    if (from == to)
        return 0;
    if (from->kind != KIND_DIR)
        return to->kind == KIND_DIR ? EISDIR : 0;
    if (to->kind != KIND_DIR)
        return ENOTDIR;
    return to->inside.object ? ENOTEMPTY : 0;
}

static void moved(struct process *p, const struct entry *entry)
{
    if (p->behind && entry->object)
        atomic_store(&object_of(entry)->moved_behind, true);
}

static void renamed(struct change *change, unsigned spelling, unsigned flags)
{
    struct entry *from = change->a.entry, *to = change->b.entry;
    uint16_t source = from->object;

    if (source == to->object)
        return;
    moved(change->p, from);
    if (flags & RENAME_EXCHANGE) {
        moved(change->p, to);
        from->object = to->object;
        to->object = source;
        return;
    }
    if (to->object)
        entry_clear(change->p, to);
    entry_set(to, source, spelling);
    *from = (struct entry){0};
}

/* May A go to B in the model, which has one level, and no way of a directory into itself? */
static bool fits(const struct place *a, const struct place *b)
{
    const struct object *object = object_of(a->entry);

    return !b->inside || (object && object->kind != KIND_DIR);
}

static void op_rename(struct change *change)
{
    static const unsigned kinds[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    struct at from, to;
    struct process *p = change->p;
    const struct place *a = &change->a, *b = &change->b;
    unsigned flags = kinds[chance(p, ARRAY_SIZE(kinds))], spelling = pick_spelling(p, b);

    if (a->entry == b->entry) {
        respell(change, flags);
        return;
    }
    if (a->class == b->class || !fits(a, b) || ((flags & RENAME_EXCHANGE) && !fits(b, a)))
        return;
    place_at(p, a, pick_spelling(p, a), &from);
    place_at(p, b, spelling, &to);
    int want = rename_result(a, b, flags);
    expect(change, from.path, to.path, rename_at(p, &from, &to, flags), want);
    if (want == 0)
        renamed(change, spelling, flags);
}

const struct operation operations[] = {
    {"create", op_create, 5, OP_MAKES},
    {"excl", op_excl, 2, OP_MAKES | OP_FRESH},
    {"create+trunc", op_create_trunc, 2, OP_MAKES},
    {"write", op_write, 2, OP_MAKES},
    {"truncate", op_truncate, 1, OP_MAKES},
    {"mkdir", op_mkdir, 3, OP_MAKES | OP_FRESH},
    {"mknod", op_mknod, 2, OP_MAKES | OP_FRESH},
    {"symlink", op_symlink, 2, OP_MAKES | OP_FRESH},
    {"link", op_link, 3, OP_MAKES | OP_TWO},
    {"unlink", op_unlink, 4, 0},
    {"rmdir", op_rmdir, 3, 0},
    {"rename", op_rename, 8, OP_TWO},
    {"respell", op_respell, 4, 0},
};
const unsigned n_operations = ARRAY_SIZE(operations);
