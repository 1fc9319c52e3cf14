/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-files.h - the files of an index as bytes in memory: taken from a folder, damaged or
 * composed, written to another.
 */
#ifndef FOLDFS_TESTS_INDEX_FILES_H
#define FOLDFS_TESTS_INDEX_FILES_H

#include "index-model.h"

#define INDEX_FILES_MAX 32

struct file_bytes {
    char path[64]; /* below the index directory */
    uint8_t *data;
    size_t len;
};

struct file_set {
    unsigned n;
    struct file_bytes files[INDEX_FILES_MAX];
};

/* Reads all files below FOLDER but the lock.  Dies if that fails. */
void file_set_read(const char *folder, struct file_set *ret_set);
/* Makes FOLDER, which must not exist, with these files. */
void file_set_write(const struct file_set *set, const char *folder);
void file_set_copy(const struct file_set *from, struct file_set *ret_set);
void file_set_free(struct file_set *set);
/* NULL if there is none. */
struct file_bytes *file_set_find(struct file_set *set, const char *path);

/* The manifest gets another boot's id, as after a power loss. */
void file_set_reboot(struct file_set *set, struct rng *rng);

/* A folder for many small indexes: in memory if the system has such a place. */
char *fast_folder(const char *what);

#endif
