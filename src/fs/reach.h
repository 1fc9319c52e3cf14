/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * reach.h - from a node to a descriptor on its file.
 */
#ifndef FOLDFS_FS_REACH_H
#define FOLDFS_FS_REACH_H

#include <stdbool.h>

#include "fs/node.h"

struct foldfs;
struct reach_cache;

/* At most LIMIT descriptors are kept that nobody is using. */
int reach_cache_new(unsigned limit, struct reach_cache **ret_cache);
void reach_cache_free(struct reach_cache *cache);

/* A borrowed O_PATH descriptor, and a pin on the node; give them back with reach_put()
 * (REACHED_PUT does at the end of its scope). */
struct reached {
    struct foldfs *fs;
    struct node *node; /* NULL: nothing is borrowed */
    int fd;
};
#define REACHED_PUT __attribute__((cleanup(reach_put)))

/* Borrows a descriptor on NODE's file: one that is held, or opened by its handle, or by its
 * place.  -ESTALE: the file is no more, or not where it was; then the kernel looks it up
 * again.  May block on the tree; any thread. */
int reach_get(struct foldfs *fs, struct node *node, struct reached *ret_reached);
void reach_put(struct reached *reached);

/* Opens NODE's file with FLAGS by its handle, so that no descriptor is borrowed for it.  For
 * files; whatever the error, reach_get() and file_reopen() may still succeed: no handle, a
 * lease that the open has to wait for, no descriptor left. */
int reach_open_handle(const struct node *node, int flags, int *ret_fd, struct statx *ret_st);

/* NODE's file has lost its last name: the descriptor that REACHED borrowed is kept for O_PATH
 * descriptors of programs, which go on, until the kernel forgets the node or too many such
 * files are kept. */
void reach_hold(struct reached *reached);

/* It has a name again. */
void reach_named(struct reached *reached);

/* Borrows a descriptor on the file of the new NODE, which never had a name and is open as FD.
 */
int reach_get_nameless(struct foldfs *fs, struct node *node, int fd,
                       struct reached *ret_reached);

/* The root's descriptor, which is taken over and never closed before the end.  0 or -ENOMEM. */
int reach_pin_root(struct foldfs *fs, struct node *root, int fd);

/* Closes NODE's descriptor if nobody is using it: an open one keeps an NFS client from
 * removing the file. */
void reach_drop(struct foldfs *fs, struct node *node);

/* R is what opening something gave.  If that is "too many open files", closes some of the
 * descriptors that nobody is using, and gives true if there were any: then try again, once. */
bool reach_made_room(struct foldfs *fs, int r);

/* NODE is about to be freed. */
void reach_forget(struct foldfs *fs, struct node *node);

#endif
