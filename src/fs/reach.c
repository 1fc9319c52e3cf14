/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * reach.c - from a node to a descriptor on its file.
 *
 * Descriptors are O_PATH and kept in a list by last use; those that nobody is using are
 * bounded, so that a million nodes do not take a million descriptors.  A node without one is
 * opened by its file handle, or, where there are no handles, by name in its parent, with a
 * look at whether it is still the same file.
 *
 * A user of a descriptor counts in `users`; a held one (its file has lost its last name) is
 * counted once for the hold, and so never closed before the node goes.
 *
 * Lock: one for the list, innermost; opening and closing happen outside it.
 */
#include "fs/reach.h"

#include <utlist.h>

#include "common.h"
#include "fs/fs.h"

struct held_fd {
    struct held_fd *prev, *next; /* in the list, if users is 0 */
    struct node *node;
    int fd;
    uint32_t users;
    bool hold; /* one of the users is the hold */
};

struct reach_cache {
    pthread_mutex_t lock;
    struct held_fd *unused; /* the one used longest ago first */
    unsigned count;         /* of unused */
    unsigned limit;
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

/* With the lock held: one user more. */
static void use(struct reach_cache *cache, struct held_fd *held)
{
    if (held->users++ == 0) {
        DL_DELETE(cache->unused, held);
        cache->count--;
    }
}

/* With the lock held: one user less.  Gives what has to be closed for it, or NULL. */
static struct held_fd *unuse(struct reach_cache *cache, struct held_fd *held)
{
    if (--held->users > 0)
        return NULL;
    DL_APPEND(cache->unused, held);
    if (++cache->count <= cache->limit)
        return NULL;
    struct held_fd *oldest = cache->unused;
    DL_DELETE(cache->unused, oldest);
    cache->count--;
    oldest->node->held = NULL;
    return oldest;
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

static int open_by_node_handle(const struct node *node, int *ret_fd)
{
    struct file_handle_buffer handle = {.bytes = node->handle_bytes, .type = node->handle_type};

    memcpy(handle.data, node->handle, node->handle_bytes);
    return file_open_handle(node->key.fsys->mount_fd, &handle, O_PATH | O_CLOEXEC | O_NOFOLLOW,
                            ret_fd);
}

static int open_by_place(struct foldfs *fs, struct node *node, int *ret_fd)
{
    CLEANUP_FREE struct node_place *place = NULL;
    REACHED_PUT struct reached parent = {0};

    int r = node_get_place(fs->nodes, node, &place);
    if (r < 0)
        return r;
    r = reach_get(fs, place->parent, &parent);
    if (r == 0) {
        *ret_fd = openat(parent.fd, place->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        r = *ret_fd >= 0 ? 0 : errno == ENOENT ? -ESTALE : -errno;
    }
    reach_put(&parent);
    node_unpin(fs->nodes, place->parent);
    return r;
}

/* Opens NODE's file, and makes sure that it is that one. */
static int open_node(struct foldfs *fs, struct node *node, int *ret_fd)
{
    CLEANUP_CLOSE int fd = -1;
    struct statx st;

    int r =
        node->handle_bytes > 0 ? open_by_node_handle(node, &fd) : open_by_place(fs, node, &fd);
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
    struct held_fd *oldest, *next, *closing = NULL;

    if (r != -EMFILE && r != -ENFILE)
        return false;
    {
        LOCK_FOR_SCOPE(&cache->lock);
        for (unsigned n = (cache->count + 1) / 2; n > 0; n--) {
            oldest = cache->unused;
            DL_DELETE(cache->unused, oldest);
            cache->count--;
            oldest->node->held = NULL;
            LL_PREPEND(closing, oldest);
        }
    }
    if (!closing)
        return false;
    LL_FOREACH_SAFE(closing, oldest, next)
    held_free(oldest);
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
    struct held_fd *held = reached->node->held;
    if (!held->hold) {
        held->hold = true;
        held->users++;
    }
}

void reach_hold_fd(struct foldfs *fs, struct node *node, int fd)
{
    CLEANUP_CLOSE int extra = -1;

    LOCK_FOR_SCOPE(&fs->reach->lock);
    if (node->held) {
        extra = fd;
        use(fs->reach, node->held);
    } else if (adopt(node, fd, 1) < 0) {
        extra = fd;
        return;
    }
    if (node->held->hold)
        node->held->users--;
    node->held->hold = true;
}

void reach_drop(struct foldfs *fs, struct node *node)
{
    struct held_fd *held;
    {
        LOCK_FOR_SCOPE(&fs->reach->lock);
        held = node->held;
        if (!held || held->users > 0)
            return;
        DL_DELETE(fs->reach->unused, held);
        fs->reach->count--;
        node->held = NULL;
    }
    held_free(held);
}

void reach_forget(struct foldfs *fs, struct node *node)
{
    struct held_fd *held;
    {
        LOCK_FOR_SCOPE(&fs->reach->lock);
        held = node->held;
        if (held && held->users == 0) {
            DL_DELETE(fs->reach->unused, held);
            fs->reach->count--;
        }
        node->held = NULL;
    }
    held_free(held);
}
