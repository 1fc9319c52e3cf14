/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * node.h - what the kernel knows by a nodeid: one node for each inode and incarnation,
 * whatever the spellings that lead to it.
 */
#ifndef FOLDFS_FS_NODE_H
#define FOLDFS_FS_NODE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <uthash.h>

#include "backing/file.h"
#include "backing/fsys.h"
#include "index/index.h"

/* The kernel's name for the root, FUSE_ROOT_ID. */
#define NODE_ROOT_ID 1

struct held_fd;
struct node_data;
struct node_table;

/* Where a node was seen last; only kept where there is no file handle. */
struct node_place {
    struct node *parent;     /* pinned by this node */
    struct node_place *next; /* in copies: see reach.c */
    char name[];
};

struct node {
    UT_hash_handle hh;
    struct node_key {
        struct fsys *fsys; /* counted */
        uint64_t ino;      /* of the backing file */
    } key;
    uint64_t id;           /* nodeid */
    int64_t btime_ns;      /* tells incarnations of one inode number apart; 0: not known */
    uint64_t nlookup;      /* references of the kernel; under the table's lock */
    _Atomic uint32_t pins; /* references of ours; dropped under the table's lock */
    mode_t type;           /* S_IFMT part of the mode */
    struct held_fd *held;  /* see reach.h; under its lock */
    union {
        _Atomic(struct index_dir *) dir;  /* directories: NULL until first needed */
        _Atomic(struct node_data *) data; /* the others: see open.h; NULL until first opened */
    };
    struct node_place *place; /* NULL if there is a handle; under the table's lock */
    uint8_t handle_bytes;     /* 0: no handle */
    uint8_t handle_type;
    bool hashed; /* found by its inode; under the table's lock */
    unsigned char handle[];
};

static inline bool node_is_dir(const struct node *node)
{
    return S_ISDIR(node->type);
}

/* Are changes that others make to directory NODE told? */
static inline bool node_is_watched(const struct node *node)
{
    return node->key.fsys->watched && node->handle_bytes > 0;
}

struct foldfs;

/* A table with the root in it, whose stat is ST and descriptor FD (kept by the caller). */
int node_table_new(struct foldfs *fs, int root_fd, const struct statx *st,
                   struct node_table **ret_table);

/* All nodes, whatever refers to them: at the end of the session. */
void node_table_free(struct node_table *table);

/* The node of a nodeid that the kernel sent, or NULL if it is stale. */
struct node *node_get(struct node_table *table, uint64_t id);

/* The same, pinned, where no request keeps it. */
struct node *node_get_pinned(struct node_table *table, uint64_t id);

/* The node of the entry NAME of PARENT (open as DIR_FD), whose stat is ST, with one kernel
 * reference more; made if there is none.  FD is the file itself, or -1; it is not kept. */
int node_look_up(struct node_table *table, struct node *parent, int dir_fd, const char *name,
                 const struct statx *st, struct node **ret_node);

/* The node of the file with stat ST, pinned, if the kernel refers to it; else NULL. */
struct node *node_find(struct node_table *table, const struct statx *st);

/* Keeps NODE from being freed, until node_unpin().  To be called while something else keeps it,
 * such as the request that named it and that was not answered yet: once it is, the kernel may
 * forget the node at any moment. */
static inline void node_pin(struct node *node)
{
    atomic_fetch_add(&node->pins, 1);
}
void node_unpin(struct node_table *table, struct node *node);

/* The kernel drops COUNT references. */
void node_forget(struct node_table *table, struct node *node, uint64_t count);

/* Gives memory of forgotten nodes back to the system, now and then.  To be called after FORGET
 * was answered, with no lock. */
void node_trim(struct node_table *table);

/* NODE can no longer be found by its inode: its handle or place leads to another one. */
void node_unhash(struct node_table *table, struct node *node);

/* The entry of the file with stat ST is now NAME in PARENT (after a rename). */
void node_moved(struct node_table *table, const struct statx *st, struct node *parent,
                const char *name);

/* A copy of where NODE was seen last, with the parent pinned.  -ESTALE: not known. */
int node_get_place(struct node_table *table, struct node *node, struct node_place **ret_place);

/* What the index has of directory NODE; acquired at the first call, and NODE's until its end.
 */
int node_index_dir(struct foldfs *fs, struct node *node, struct index_dir **ret_dir);

/* Does ST show the same incarnation of NODE's inode, as far as birth times tell? */
bool node_is(const struct node *node, const struct statx *st);

#endif
