/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * node.c - one node for each inode and incarnation that the kernel refers to.
 *
 * Nodes are found by {file system, inode number}, whatever the spelling: nodes per spelling
 * would split the page cache, locks and mmap of one file.  An inode number that was given
 * again shows by its birth time, or, where there is none, by its handle; the old node is then
 * taken out of the hash, and lives on until the kernel forgets it.
 *
 * A node counts the kernel's references (nlookup) and ours (pins), and goes with the last of
 * both.  The kernel holds the inodes that a request names until it has the answer, and no
 * longer: what a request uses after that must be pinned (as reach_get() does).
 *
 * A node is about 170 bytes, since a find(1) over the tree leaves one for each file.  So what
 * only some need is allocated apart: a descriptor (reach.c), data of open files (open.c), the
 * index's directory, and the place where no handles are.
 *
 * Lock: one for the table; it is innermost: nothing is called under it that blocks.
 */
#include "fs/node.h"

#include <malloc.h>
#include <string.h>

#include "common.h"
#include "fs/behind.h"
#include "fs/fs.h"
#include "fs/open.h"
#include "fs/reach.h"
#include "fs/slots.h"

/* The C library keeps what was freed, for ever if something behind it is still in use; after
 * this many nodes it is asked to give it back, which takes some milliseconds. */
#define TRIM_AFTER 65536u

struct node_table {
    atomic_uint freed; /* nodes, since memory was given back */
    pthread_mutex_t lock;
    struct foldfs *fs;
    struct node *by_inode; /* uthash */
    struct node *root;
    struct slots *slots;
};

/* The birth time by which incarnations are told apart; 0 where there is none, or where it is
 * not the inode's own (overlayfs, whose files get the upper file's when they are copied up). */
static int64_t btime_of(const struct fsys *fsys, const struct statx *st)
{
    return fsys->has_btime && st->stx_mask & STATX_BTIME ? file_time_ns(&st->stx_btime) : 0;
}

bool node_is(const struct node *node, const struct statx *st)
{
    int64_t btime = btime_of(node->key.fsys, st);

    return node->key.ino == st->stx_ino && node->type == (st->stx_mode & S_IFMT) &&
           node->key.fsys->dev == fsys_dev(st) && node->btime_ns == btime;
}

static int node_alloc(const struct statx *st, struct fsys *fsys,
                      const struct file_handle_buffer *handle, struct node **ret_node)
{
    struct node *node = calloc(1, sizeof(*node) + handle->bytes);

    if (!node)
        return -ENOMEM;
    node->key.ino = st->stx_ino;
    node->key.fsys = fsys;
    node->type = st->stx_mode & S_IFMT;
    node->btime_ns = btime_of(fsys, st);
    node->handle_bytes = (uint8_t)handle->bytes;
    node->handle_type = (uint8_t)handle->type;
    memcpy(node->handle, handle->data, handle->bytes);
    *ret_node = node;
    return 0;
}

/* The handle of an entry; an empty one where there is none or it would not fit a node. */
static void read_handle(const struct fsys *fsys, int dir_fd, const char *name,
                        struct file_handle_buffer *ret_handle)
{
    if (!fsys->handles || file_get_handle(dir_fd, name, ret_handle) < 0 ||
        ret_handle->bytes > UINT8_MAX || ret_handle->type < 0 || ret_handle->type > UINT8_MAX)
        *ret_handle = (struct file_handle_buffer){0};
}

int node_table_new(struct foldfs *fs, int root_fd, const struct statx *st,
                   struct node_table **ret_table)
{
    struct file_handle_buffer handle;
    CLEANUP_FREE struct node_table *table = calloc(1, sizeof(*table));

    if (!table)
        return -ENOMEM;
    table->fs = fs;
    read_handle(fsys_root(fs->fsys_list), root_fd, "", &handle);
    int r = node_alloc(st, fsys_root(fs->fsys_list), &handle, &table->root);
    if (r < 0)
        return r;
    r = slots_new(NODE_ROOT_ID + 1, &table->slots);
    if (r < 0) {
        free(table->root);
        return r;
    }
    pthread_mutex_init(&table->lock, NULL);
    fsys_ref(fs->fsys_list, table->root->key.fsys);
    table->root->id = NODE_ROOT_ID;
    table->root->nlookup = 1; /* the kernel never forgets it by a request */
    table->root->hashed = true;
    HASH_ADD(hh, table->by_inode, key, sizeof(table->root->key), table->root);
    *ret_table = STEAL_PTR(table);
    return 0;
}

/* What a node that is out of the table still holds; gives its parent, to be unpinned. */
static struct node *node_free(struct node_table *table, struct node *node)
{
    struct node *parent = node->place ? node->place->parent : NULL;

    reach_forget(table->fs, node);
    if (node_is_dir(node))
        index_dir_release(atomic_load(&node->dir));
    else
        node_data_free(atomic_load(&node->data));
    fsys_unref(table->fs->fsys_list, node->key.fsys);
    free(node->place);
    free(node);
    atomic_fetch_add_explicit(&table->freed, 1, memory_order_relaxed);
    return parent;
}

static void free_at_end(void *table, void *node)
{
    (void)node_free(table, node);
}

void node_table_free(struct node_table *table)
{
    if (!table)
        return;
    HASH_CLEAR(hh, table->by_inode);
    slots_for_each(table->slots, free_at_end, table);
    (void)node_free(table, table->root);
    slots_free(table->slots);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

struct node *node_get(struct node_table *table, uint64_t id)
{
    return id == NODE_ROOT_ID ? table->root : slots_get(table->slots, id);
}

struct node *node_get_pinned(struct node_table *table, uint64_t id)
{
    LOCK_FOR_SCOPE(&table->lock);
    struct node *node = node_get(table, id);
    if (node)
        node_pin(node);
    return node;
}

/* With the lock held: takes NODE out of the table if nothing refers to it. */
static bool remove_if_unused(struct node_table *table, struct node *node)
{
    if (node->nlookup > 0 || atomic_load(&node->pins) > 0)
        return false;
    if (node->hashed)
        HASH_DEL(table->by_inode, node);
    node->hashed = false;
    slots_remove(table->slots, node->id);
    return true;
}

/* Frees NODE, and up the chain each parent that was pinned only by its child. */
static void free_chain(struct node_table *table, struct node *node)
{
    while (node) {
        struct node *parent = node_free(table, node);
        if (parent) {
            LOCK_FOR_SCOPE(&table->lock);
            atomic_fetch_sub(&parent->pins, 1);
            if (!remove_if_unused(table, parent))
                parent = NULL;
        }
        node = parent;
    }
}

void node_forget(struct node_table *table, struct node *node, uint64_t count)
{
    {
        LOCK_FOR_SCOPE(&table->lock);
        if (node->id == NODE_ROOT_ID)
            return;
        node->nlookup -= count < node->nlookup ? count : node->nlookup;
        if (!remove_if_unused(table, node))
            return;
    }
    free_chain(table, node);
}

void node_unpin(struct node_table *table, struct node *node)
{
    {
        LOCK_FOR_SCOPE(&table->lock);
        atomic_fetch_sub(&node->pins, 1);
        if (!remove_if_unused(table, node))
            return;
    }
    free_chain(table, node);
}

void node_trim(struct node_table *table)
{
    unsigned freed = atomic_load_explicit(&table->freed, memory_order_relaxed);

    if (freed >= TRIM_AFTER && atomic_compare_exchange_strong(&table->freed, &freed, 0))
        malloc_trim(0);
}

void node_unhash(struct node_table *table, struct node *node)
{
    LOCK_FOR_SCOPE(&table->lock);
    if (node->hashed && node->id != NODE_ROOT_ID) {
        HASH_DEL(table->by_inode, node);
        node->hashed = false;
    }
}

/* The node with that inode, with the lock held; NULL if there is none. */
static struct node *find_hashed(struct node_table *table, const struct node_key *key)
{
    struct node *node;

    HASH_FIND(hh, table->by_inode, key, sizeof(*key), node);
    return node;
}

static bool same_handle(const struct node *node, const struct file_handle_buffer *handle)
{
    return node->handle_bytes == handle->bytes && node->handle_type == handle->type &&
           memcmp(node->handle, handle->data, handle->bytes) == 0;
}

/* Finds a hashed node that is the same incarnation, with one reference more.  An older
 * incarnation is unhashed.  HANDLE is NULL, or what to tell incarnations by where there are
 * no birth times. */
static struct node *find_and_count(struct node_table *table, const struct node_key *key,
                                   const struct statx *st,
                                   const struct file_handle_buffer *handle)
{
    LOCK_FOR_SCOPE(&table->lock);
    struct node *node = find_hashed(table, key);
    if (!node)
        return NULL;
    if (node_is(node, st) && (!handle || same_handle(node, handle))) {
        node->nlookup++;
        return node;
    }
    if (node->id != NODE_ROOT_ID) {
        HASH_DEL(table->by_inode, node);
        node->hashed = false;
    }
    return NULL;
}

static int new_place(struct node *parent, const char *name, struct node_place **ret_place)
{
    size_t size = strlen(name) + 1;
    struct node_place *place = malloc(sizeof(*place) + size);

    if (!place)
        return -ENOMEM;
    place->parent = parent;
    memcpy(place->name, name, size);
    *ret_place = place;
    return 0;
}

/* Enters NEW into the table, unless another thread was faster: then NEW is freed. */
static struct node *enter(struct node_table *table, struct node *new, struct node *parent)
{
    LOCK_FOR_SCOPE(&table->lock);
    struct node *other = find_hashed(table, &new->key);
    if (other && other->type == new->type && other->btime_ns == new->btime_ns &&
        other->handle_bytes ==
            new->handle_bytes &&memcmp(other->handle, new->handle, new->handle_bytes) == 0) {
        other->nlookup++;
        return other;
    }
    if (other) {
        HASH_DEL(table->by_inode, other);
        other->hashed = false;
    }
    if (new->place)
        node_pin(parent);
    new->nlookup = 1;
    new->hashed = true;
    HASH_ADD(hh, table->by_inode, key, sizeof(new->key), new);
    return new;
}

/* Makes the node for an entry that has none.  FSYS is counted for it. */
static int node_new(struct node_table *table, struct node *parent, const char *name,
                    const struct statx *st, const struct file_handle_buffer *handle,
                    struct fsys *fsys, struct node **ret_node)
{
    struct node *node;

    int r = node_alloc(st, fsys, handle, &node);
    if (r < 0)
        return r;
    if (node->handle_bytes == 0) {
        r = new_place(parent, name, &node->place);
        if (r < 0)
            goto fail;
    }
    r = slots_add(table->slots, node, &node->id);
    if (r < 0)
        goto fail;
    *ret_node = enter(table, node, parent);
    if (*ret_node != node) {
        slots_remove(table->slots, node->id);
        free(node->place);
        free(node);
        fsys_unref(table->fs->fsys_list, fsys);
    }
    return 0;
fail:
    free(node->place);
    free(node);
    return r;
}

/* NODE was seen as NAME in PARENT.  Without memory it stays where it was seen before. */
static void set_place(struct node_table *table, struct node *node, struct node *parent,
                      const char *name)
{
    struct node *unpin = NULL;
    struct node_place *place;

    if (new_place(parent, name, &place) < 0)
        return;
    {
        LOCK_FOR_SCOPE(&table->lock);
        if (node->place) {
            unpin = node->place->parent;
            free(node->place);
        }
        node->place = place;
        node_pin(parent);
    }
    if (unpin)
        node_unpin(table, unpin);
}

int node_look_up(struct node_table *table, struct node *parent, int dir_fd, const char *name,
                 const struct statx *st, struct node **ret_node)
{
    struct file_handle_buffer handle;
    struct node_key key = {.ino = st->stx_ino};
    bool have_handle = false;

    int r = fsys_get(table->fs->fsys_list, st, dir_fd, name, &key.fsys);
    if (r < 0)
        return r;
    if (btime_of(key.fsys, st) == 0) {
        read_handle(key.fsys, dir_fd, name, &handle);
        have_handle = true;
    }
    struct node *node = find_and_count(table, &key, st, have_handle ? &handle : NULL);
    if (node) {
        fsys_unref(table->fs->fsys_list, key.fsys);
        if (node->handle_bytes == 0 && *name)
            set_place(table, node, parent, name);
        *ret_node = node;
        return 0;
    }
    if (!have_handle)
        read_handle(key.fsys, dir_fd, name, &handle);
    r = node_new(table, parent, name, st, &handle, key.fsys, ret_node);
    if (r < 0)
        fsys_unref(table->fs->fsys_list, key.fsys);
    return r;
}

struct node *node_find(struct node_table *table, const struct statx *st)
{
    struct node_key key = {.ino = st->stx_ino};

    LOCK_FOR_SCOPE(&table->lock);
    key.fsys = fsys_find(table->fs->fsys_list, st);
    struct node *node = key.fsys ? find_hashed(table, &key) : NULL;
    if (!node || !node_is(node, st))
        return NULL;
    node_pin(node);
    return node;
}

void node_moved(struct node_table *table, const struct statx *st, struct node *parent,
                const char *name)
{
    struct node *node = node_find(table, st);

    if (!node)
        return;
    if (node->handle_bytes == 0)
        set_place(table, node, parent, name);
    node_unpin(table, node);
}

int node_get_place(struct node_table *table, struct node *node, struct node_place **ret_place)
{
    LOCK_FOR_SCOPE(&table->lock);
    if (!node->place)
        return -ESTALE;
    int r = new_place(node->place->parent, node->place->name, ret_place);
    if (r < 0)
        return r;
    node_pin(node->place->parent);
    return 0;
}

/* What identifies a directory in the index: its file system and handle, or, without handles and
 * for the life of this daemon only, its numbers. */
static size_t dir_id(const struct node *node, unsigned char id[INDEX_DIR_ID_MAX])
{
    const struct fsys *fsys = node->key.fsys;

    if (node->handle_bytes > 0 && FSYS_ID_SIZE + 1U + node->handle_bytes <= INDEX_DIR_ID_MAX)
        return behind_dir_id(fsys->id, node->handle_type, node->handle, node->handle_bytes, id);
    /* the nodeid tells apart the incarnations that nothing else does */
    const uint64_t numbers[] = {fsys->dev, node->key.ino, node->id};
    memcpy(id, numbers, sizeof(numbers));
    return sizeof(numbers);
}

int node_index_dir(struct foldfs *fs, struct node *node, struct index_dir **ret_dir)
{
    unsigned char id[INDEX_DIR_ID_MAX];
    struct index_dir *dir = atomic_load(&node->dir);

    if (dir) {
        *ret_dir = dir;
        return 0;
    }
    const struct fsys *fsys = node->key.fsys;
    bool watched = node_is_watched(node);
    /* Unwatched, no stamp is so fine that a change of ours could not hide another's. */
    int64_t granularity = watched || fsys->granularity_ns > 0 ? fsys->granularity_ns : 1;
    size_t len = dir_id(node, id);
    int r = index_dir_acquire(fs->index, id, len, granularity,
                              fsys->has_id && node->handle_bytes > 0, &dir);
    if (r < 0)
        return r;
    index_dir_set_number(dir, node->id);
    if (watched)
        behind_watch_dir(fs, dir);
    struct index_dir *expected = NULL;
    if (!atomic_compare_exchange_strong(&node->dir, &expected, dir)) {
        index_dir_release(dir);
        dir = expected;
    }
    *ret_dir = dir;
    return 0;
}
