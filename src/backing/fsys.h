/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fsys.h - the file systems that the tree consists of: the one of its root, and what is
 * mounted or made as a subvolume inside it.
 */
#ifndef FOLDFS_BACKING_FSYS_H
#define FOLDFS_BACKING_FSYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Bytes of a file system's identity. */
#define FSYS_ID_SIZE 16

/* One file system; immutable once it is in the list but for `users`. */
struct fsys {
    struct fsys *next;
    uint64_t dev;             /* device number, valid in this boot only */
    int mount_fd;             /* a directory on it, for open_by_handle_at(2) */
    uint32_t users;           /* nodes on it; under the list's lock */
    uint32_t type;            /* f_type of statfs(2) */
    int64_t granularity_ns;   /* two changes closer than this may leave the same ctime */
    uint8_t id[FSYS_ID_SIZE]; /* survives reboots if has_id, else good for this mount only */
    bool has_id;
    bool has_btime;      /* its birth times tell incarnations of an inode number apart */
    bool handles;        /* files can be opened by handle */
    bool watched;        /* changes by others are told: see coherence/watch.h */
    bool remote;         /* others may change it without the kernel knowing */
    uint16_t ino_prefix; /* top 16 bits of its inode numbers as shown; 0 for the root's */
};

struct fsys_list;

/* What is done with file systems: never use file handles; take timestamps for coarse. */
struct fsys_features {
    bool no_handles;
    bool no_multigrain;
    /* Called for each file system with handles, with a directory on it that is open: 0 if
     * changes there are told from now on.  NULL: they are not. */
    int (*watch)(void *ctx, int fd);
    void *watch_ctx;
};

/* The list with the file system of ROOT_FD (a directory, kept by the caller) in it. */
int fsys_list_new(int root_fd, const struct fsys_features *features,
                  struct fsys_list **ret_list);
void fsys_list_free(struct fsys_list *list);

/* The root's. */
struct fsys *fsys_root(struct fsys_list *list);

/* The file system that ST, the stat of directory entry NAME in DIR_FD, lies on, with one user
 * more; found in the list or added to it (which opens the entry; only a directory can be the
 * first that is met of a file system, or, by a bind mount, a file, which then has no handles).
 * Any thread; no lock is needed. */
int fsys_get(struct fsys_list *list, const struct statx *st, int dir_fd, const char *name,
             struct fsys **ret_fsys);

/* The one that ST lies on if it is in the list, not counted; else NULL. */
struct fsys *fsys_find(struct fsys_list *list, const struct statx *st);

/* One user more, or less; at none the file system leaves the list, so that it can be
 * unmounted. */
void fsys_ref(struct fsys_list *list, struct fsys *fsys);
void fsys_unref(struct fsys_list *list, struct fsys *fsys);

/* The identity of the Nth file system in the list, from 0; false: there are not so many. */
bool fsys_nth_id(struct fsys_list *list, unsigned n, uint8_t ret_id[FSYS_ID_SIZE]);

/* Is, or was, any of them remote?  No lock. */
bool fsys_any_remote(const struct fsys_list *list);

/* The device number in ST as one number. */
uint64_t fsys_dev(const struct statx *st);

/* The inode number that is shown for INO on FSYS: numbers of different file systems must not
 * be equal, since FUSE shows one st_dev for all. */
uint64_t fsys_shown_ino(const struct fsys *fsys, uint64_t ino);

#endif
