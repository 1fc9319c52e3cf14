/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * model-step.c - which change is made next, where, and what is uncertain after it; and changes
 * of the fixed directories' spelling.
 *
 * After a change behind the mount the kernel may be wrong for a time (the class's
 * names_until, the object's attr_until), and an unwatched foldfs too (settle_until).  Till then
 * a class is not changed through the mount, except in ways for which the kernel asks in any
 * case: else one could not say what must come out.
 */
#include "model.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>

static const struct operation *pick_operation(struct process *p)
{
    unsigned sum = 0, n = 0;

    for (unsigned i = 0; i < n_operations; i++)
        sum += operations[i].weight;
    for (unsigned left = chance(p, sum); left >= operations[n].weight; n++)
        left -= operations[n].weight;
    return &operations[n];
}

static struct place pick_place(struct process *p, struct class *class)
{
    struct object *object = object_of(&class->entry);

    if (object && object->kind == KIND_DIR && chance(p, 2))
        return (struct place){.class = class, .entry = &object->inside, .inside = true};
    return (struct place){.class = class, .entry = &class->entry};
}

/* Does one know what comes out, if the class is changed now? */
static bool is_certain(const struct process *p, const struct operation *op,
                       const struct place *place)
{
    int64_t now = now_ns();

    if (p->behind || !place->class)
        return true;
    if (now < atomic_load(&place->class->settle_until))
        return false;
    return now >= atomic_load(&place->class->names_until) ||
           ((op->kind & OP_FRESH) && !place->inside);
}

/* Of all classes, too many would be uncertain. */
static bool leaves_enough_certain(const struct operation *op)
{
    unsigned uncertain = 0;
    int64_t now = now_ns();

    if (op->kind & OP_MAKES && !world->plan.unwatched)
        return true;
    for (unsigned i = 0; i < ARRAY_SIZE(world->classes); i++)
        uncertain += now < atomic_load(&world->classes[i].names_until) ||
                     now < atomic_load(&world->classes[i].settle_until);
    return uncertain < ARRAY_SIZE(world->classes) / 3;
}

/* An entry as it was before a change behind the mount. */
struct before {
    struct place place;
    struct entry entry;
    bool is_dir;
};

static struct before before_of(const struct place *place)
{
    struct before before = {.place = *place};

    if (place->class) {
        before.entry = *place->entry;
        before.is_dir = before.entry.object && object_of(place->entry)->kind == KIND_DIR;
    }
    return before;
}

static void extend(_Atomic int64_t *until, int64_t bound)
{
    int64_t now = now_ns();

    if (atomic_load(until) < now + bound)
        atomic_store(until, now + bound);
}

/* Sets what is uncertain after the change. */
static void make_uncertain(const struct before *before)
{
    const struct plan *plan = &world->plan;
    struct class *class = before->place.class;

    if (!class || memcmp(before->place.entry, &before->entry, sizeof(before->entry)) == 0)
        return;
    bool respelled = before->place.entry->object == before->entry.object;
    if (plan->unwatched)
        extend(&class->settle_until, plan->settle_bound);
    if (before->is_dir && !respelled)
        extend(&class->names_until, plan->dirs_bound);
    else if (before->entry.object && plan->fast)
        extend(&class->names_until, plan->names_bound);
}

static void change_behind(struct change *change, const struct operation *op)
{
    struct before a = before_of(&change->a), b = before_of(&change->b);

    if (!leaves_enough_certain(op))
        return;
    op->run(change);
    make_uncertain(&a);
    make_uncertain(&b);
}

void step_change(struct process *p, struct step *ret)
{
    const struct operation *op = pick_operation(p);
    struct class *a = class_pick(p), *b = op->kind & OP_TWO ? class_pick(p) : NULL;
    struct change change = {.p = p, .name = op->name};

    p->doing = op->name;
    classes_lock(a, b);
    change.a = pick_place(p, a);
    if (b)
        change.b = a == b ? change.a : pick_place(p, b);
    ret->places[0] = change.a;
    ret->places[1] = change.b;
    ret->n_places = b && a != b ? 2 : 1;
    if (is_certain(p, op, &change.a) && is_certain(p, op, &change.b)) {
        if (p->behind)
            change_behind(&change, op);
        else
            op->run(&change);
        inode_seen(&change.a);
        if (b)
            inode_seen(&change.b);
    }
    atomic_fetch_add_explicit(&p->counters->steps, 1, memory_order_relaxed);
}

void step_end(struct step *step)
{
    classes_unlock(step->places[0].class, step->n_places > 1 ? step->places[1].class : NULL);
}

/* ---- the fixed directories ---- */

static struct at dir_at(struct process *p, unsigned dir, unsigned spelling)
{
    unsigned up = (unsigned)dir_parent[dir];
    struct at at = {.fd = p->behind ? p->below_fd[up] : p->through_fd[up]};

    snprintf(at.path, sizeof(at.path), "%s", dir_words[dir][spelling]);
    if (!p->behind && p->cwd_dir == (int)up && chance(p, 2))
        at.fd = AT_FDCWD;
    return at;
}

/* Only the case of its name changes, so that nobody loses it. */
void dir_respell(struct process *p)
{
    struct stat st;
    bool changes;
    unsigned dir = 1 + chance(p, DIRS - 1);
    struct fixed_dir *fixed = &world->dirs[dir];

    p->doing = "respelling a directory";
    pthread_mutex_lock(&fixed->lock);
    unsigned old = p->behind ? fixed->spelling : chance(p, SPELLINGS);
    unsigned new = chance(p, SPELLINGS);
    unsigned flags = chance(p, 4) == 0 ? RENAME_NOREPLACE : 0;
    int want = respell_result(old, new, fixed->spelling, flags, &changes);
    const struct at from = dir_at(p, dir, old), to = dir_at(p, dir, new);
    int r = rename_at(p, &from, &to, flags);
    if (r != want)
        wrong(p, NULL, "rename %s %s gives %s, not %s", from.path, to.path, error_name(r),
              error_name(want));
    if (changes)
        fixed->spelling = new;
    const char *name = dir_words[dir][fixed->spelling];
    if (fstatat(p->below_fd[dir_parent[dir]], name, &st, 0) < 0)
        wrong(p, NULL, "after rename %s %s there is no %s", from.path, to.path, name);
    checked(p);
    pthread_mutex_unlock(&fixed->lock);
}
