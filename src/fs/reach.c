/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * reach.c - from a node to a descriptor on its file.
 *
 * Descriptors are O_PATH; those that nobody is using wait in a list by last use, which is
 * bounded, so that a million nodes do not take a million descriptors.  A node without one is
 * opened by its file handle, or, where there are no handles, by name in its parent, with a look
 * at whether it is still the same file.
 *
 * A file that has lost its last name cannot be opened again.  Its descriptor waits in a list of
 * its own, as long as the kernel refers to the node; but that is bounded too, for the kernel
 * can refer to files for long that no program is using (a removed file's other spellings).
 * Beyond the bound, and where descriptors run out, the one used longest ago gives ESTALE from
 * then on.
 *
 * Lock: one for the lists, innermost; opening and closing happen outside it.
 */
#include "fs/reach.h"

#include <utlist.h>

#include "common.h"
#include "fs/fs.h"

struct held_fd {
    struct held_fd *prev, *next; /* in a list of the cache's if users is 0 */
    struct node *node;
    int fd;
    uint32_t users;
    bool nameless; /* its file has no name left */
};

/* Descriptors that nobody is using, the one used longest ago first. */
struct waiting {
    struct held_fd *first;
    unsigned count;
};

struct reach_cache {
    pthread_mutex_t lock;
    struct waiting named, nameless;
    unsigned limit; /* of each */
};

int reach_cache_new(unsigned limit, struct reach_cache **ret_cache)
{
    struct reach_cache *cache = calloc(1, sizeof(*cache));

    if (!cache)
        return -ENOMEM;
    pthread_mutex_init(&cache->lock, NULL);
    cache->limit = limit;
    *ret_cache = cache;
    return 0;
}

void reach_cache_free(struct reach_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static struct waiting *waiting_of(struct reach_cache *cache, const struct held_fd *held)
{
    return held->nameless ? &cache->nameless : &cache->named;
}

/* With the lock held: takes HELD out of its list. */
static void stop_waiting(struct reach_cache *cache, struct held_fd *held)
{
    struct waiting *waiting = waiting_of(cache, held);

    DL_DELETE(waiting->first, held);
    waiting->count--;
}

/* With the lock held: the one used longest ago is no longer its node's. */
static struct held_fd *take_oldest(struct waiting *waiting)
{
    struct held_fd *oldest = waiting->first;

    DL_DELETE(waiting->first, oldest);
    waiting->count--;
    oldest->node->held = NULL;
    return oldest;
}

/* With the lock held: one user more. */
static void use(struct reach_cache *cache, struct held_fd *held)
{
    if (held->users++ == 0)
        stop_waiting(cache, held);
}

/* With the lock held: one user less.  Gives what has to be closed for it, or NULL. */
static struct held_fd *unuse(struct reach_cache *cache, struct held_fd *held)
{
    struct waiting *waiting = waiting_of(cache, held);

    if (--held->users > 0)
        return NULL;
    DL_APPEND(waiting->first, held);
    return ++waiting->count > cache->limit ? take_oldest(waiting) : NULL;
}

static void held_free(struct held_fd *held)
{
    if (held) {
        close(held->fd);
        free(held);
    }
}

/* With the lock held: what the borrower gets, which keeps the node too. */
static void lend(struct foldfs *fs, struct node *node, struct reached *ret_reached)
{
    node_pin(node);
    *ret_reached = (struct reached){.fs = fs, .node = node, .fd = node->held->fd};
}

/* Borrows what is there already. */
static bool get_held(struct foldfs *fs, struct node *node, struct reached *ret_reached)
{
    LOCK_FOR_SCOPE(&fs->reach->lock);
    if (!node->held)
        return false;
    use(fs->reach, node->held);
    lend(fs, node, ret_reached);
    return true;
}

static int open_by_handle(const struct node *node, int flags, int *ret_fd)
{
    struct file_handle_buffer handle = {.bytes = node->handle_bytes, .type = node->handle_type};

    memcpy(handle.data, node->handle, node->handle_bytes);
    return file_open_handle(node->key.fsys->mount_fd, &handle, flags, ret_fd);
}

/* O_NONBLOCK: if the handle leads to a FIFO by now, that must not be waited for. */
int reach_open_handle(const struct node *node, int flags, int *ret_fd, struct statx *ret_st)
{
    CLEANUP_CLOSE int fd = -1;
    struct statx st;

    if (node->handle_bytes == 0)
        return -EOPNOTSUPP;
    int r = open_by_handle(node, flags | O_NONBLOCK, &fd);
    if (r == 0)
        r = file_stat(fd, "", &st);
    if (r < 0)
        return r;
    if (!node_is(node, &st))
        return -ESTALE;
    *ret_fd = STEAL_FD(fd);
    *ret_st = st;
    return 0;
}

/* Levels of a tree; more than that is a circle, of directories that were moved behind the
 * mount. */
#define WAY_MAX 65536

/* The way from a directory that can be reached otherwise (*RET_BASE) down to NODE, as copies of
 * places whose parents are pinned.  A loop, since a tree can be deeper than a stack. */
static int find_way(struct foldfs *fs, struct node *node, struct node_place **way,
                    struct reached *ret_base)
{
    struct node_place *place;
    struct node *at = node;

    for (unsigned n = 0; n < WAY_MAX; n++, at = place->parent) {
        int r = node_get_place(fs->nodes, at, &place);
        if (r < 0)
            return r;
        LL_PREPEND(*way, place);
        if (get_held(fs, place->parent, ret_base))
            return 0;
        if (place->parent->handle_bytes > 0)
            return reach_get(fs, place->parent, ret_base);
    }
    return -ESTALE;
}

static int walk_down(int base_fd, const struct node_place *way, int *ret_fd)
{
    CLEANUP_CLOSE int fd = -1;

    for (; way; way = way->next) {
        int below = openat(fd >= 0 ? fd : base_fd, way->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
            return errno == ENOENT || errno == ENOTDIR ? -ESTALE : -errno;
        if (fd >= 0)
            close(fd);
        fd = below;
    }
    *ret_fd = STEAL_FD(fd);
    return 0;
}

static int open_by_place(struct foldfs *fs, struct node *node, int *ret_fd)
{
    struct node_place *way = NULL, *place, *next;
    struct reached base = {0};

    int r = find_way(fs, node, &way, &base);
    if (r == 0)
        r = walk_down(base.fd, way, ret_fd);
    reach_put(&base);
    LL_FOREACH_SAFE(way, place, next)
    {
        node_unpin(fs->nodes, place->parent);
        free(place);
    }
    return r;
}

/* Opens NODE's file, and makes sure that it is that one. */
static int open_node(struct foldfs *fs, struct node *node, int *ret_fd)
{
    CLEANUP_CLOSE int fd = -1;
    struct statx st;

    int r = node->handle_bytes > 0 ? open_by_handle(node, O_PATH | O_CLOEXEC | O_NOFOLLOW, &fd)
                                   : open_by_place(fs, node, &fd);
    if (r == -ESTALE) /* the inode's number may be another's by now */
        node_unhash(fs->nodes, node);
    if (r < 0)
        return r;
    r = file_stat(fd, "", &st);
    if (r < 0)
        return r;
    if (!node_is(node, &st)) {
        node_unhash(fs->nodes, node);
        return -ESTALE;
    }
    *ret_fd = STEAL_FD(fd);
    return 0;
}

/* With the lock held: makes FD NODE's, with one user. */
static int adopt(struct node *node, int fd, uint32_t users)
{
    struct held_fd *held = calloc(1, sizeof(*held));

    if (!held)
        return -ENOMEM;
    held->node = node;
    held->fd = fd;
    held->users = users;
    node->held = held;
    return 0;
}

bool reach_made_room(struct foldfs *fs, int r)
{
    struct reach_cache *cache = fs->reach;
    struct held_fd *held, *next, *closing = NULL;

    if (r != -EMFILE && r != -ENFILE)
        return false;
    {
        LOCK_FOR_SCOPE(&cache->lock);
        struct waiting *waiting = cache->named.count > 0 ? &cache->named : &cache->nameless;
        for (unsigned n = (waiting->count + 1) / 2; n > 0; n--) {
            held = take_oldest(waiting);
            LL_PREPEND(closing, held);
        }
    }
    if (!closing)
        return false;
    LL_FOREACH_SAFE(closing, held, next)
    held_free(held);
    return true;
}

int reach_get(struct foldfs *fs, struct node *node, struct reached *ret_reached)
{
    CLEANUP_CLOSE int fd = -1;

    if (get_held(fs, node, ret_reached))
        return 0;
    int r = open_node(fs, node, &fd);
    if (reach_made_room(fs, r))
        r = open_node(fs, node, &fd);
    if (r < 0)
        return r;
    LOCK_FOR_SCOPE(&fs->reach->lock);
    if (node->held) { /* another thread was faster */
        use(fs->reach, node->held);
    } else {
        r = adopt(node, fd, 1);
        if (r < 0)
            return r;
        STEAL_FD(fd);
    }
    lend(fs, node, ret_reached);
    return 0;
}

void reach_put(struct reached *reached)
{
    struct held_fd *close_this;

    if (!reached->node)
        return;
    {
        LOCK_FOR_SCOPE(&reached->fs->reach->lock);
        close_this = unuse(reached->fs->reach, reached->node->held);
    }
    held_free(close_this);
    node_unpin(reached->fs->nodes, reached->node);
    reached->node = NULL;
}

void reach_hold(struct reached *reached)
{
    LOCK_FOR_SCOPE(&reached->fs->reach->lock);
    reached->node->held->nameless = true;
}

void reach_named(struct reached *reached)
{
    LOCK_FOR_SCOPE(&reached->fs->reach->lock);
    reached->node->held->nameless = false;
}

int reach_get_nameless(struct foldfs *fs, struct node *node, int fd,
                       struct reached *ret_reached)
{
    CLEANUP_CLOSE int path_fd = -1;

    int r = file_reopen(fd, O_PATH | O_CLOEXEC, &path_fd);
    if (r < 0)
        return r;
    LOCK_FOR_SCOPE(&fs->reach->lock);
    r = adopt(node, path_fd, 1);
    if (r < 0)
        return r;
    STEAL_FD(path_fd);
    node->held->nameless = true;
    lend(fs, node, ret_reached);
    return 0;
}

/* With the lock held: NODE's descriptor if nobody is using it, no longer NODE's; else NULL. */
static struct held_fd *take_unused(struct reach_cache *cache, struct node *node)
{
    struct held_fd *held = node->held;

    if (!held || held->users > 0)
        return NULL;
    stop_waiting(cache, held);
    node->held = NULL;
    return held;
}

void reach_drop(struct foldfs *fs, struct node *node)
{
    struct held_fd *held;
    {
        LOCK_FOR_SCOPE(&fs->reach->lock);
        held = take_unused(fs->reach, node);
    }
    held_free(held);
}

int reach_pin_root(struct foldfs *fs, struct node *root, int fd)
{
    LOCK_FOR_SCOPE(&fs->reach->lock);
    return adopt(root, fd, 1);
}

void reach_forget(struct foldfs *fs, struct node *node)
{
    struct held_fd *held;
    {
        LOCK_FOR_SCOPE(&fs->reach->lock);
        held = take_unused(fs->reach, node);
        if (!held) /* the root's */
            held = STEAL_PTR(node->held);
    }
    held_free(held);
}
