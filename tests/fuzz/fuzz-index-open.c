/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fuzz-index-open.c - an index whose files were changed by the input: opened, asked for every
 * name, verified, scanned, rebuilt and closed.
 *
 * The input is a program that edits a sound index: {file, how, offset (3 bytes), length} and,
 * where HOW says so, the bytes.  Files that start with a checksum over their header can be
 * sealed again after the edits (bit 7 of the first byte), so that what lies behind the checksum
 * is reached too; with bit 6 the manifest says that another boot was before this one.
 *
 * Without sealing a current directory must be right: every answer is compared.  With it only
 * crashes count, since a forged checksum can make anything look true.
 */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "index-files.h"
#include "index-model-world.h"
#include "index/format.h"
#include "log.h"

#define N_DIRS      3
#define N_CLASSES   48
#define EDIT_BYTES  6
#define FLAG_SEAL   0x80
#define FLAG_REBOOT 0x40

enum how { HOW_SET, HOW_XOR, HOW_ZERO, HOW_CUT, HOW_COPY, N_HOWS };

static struct world w;
static struct file_set sound;
static char *folder;

static void tidy_up(void)
{
    world_free(&w);
    file_set_free(&sound);
    remove_tree(folder);
    free(folder);
}

static void build_sound_index(void)
{
    char path[4096];

    log_open(false, LOG_EMERG);
    setenv("FOLDFS_TEST_SEED", "1", 0);
    folder = fast_folder("fuzz-index");
    snprintf(path, sizeof(path), "%s/index", folder);
    world_init(&w, 1, N_DIRS, N_CLASSES, WORLD_EXACT, path);
    for (unsigned i = 0; i < N_DIRS; i++) {
        for (unsigned c = 0; c < N_CLASSES; c++) {
            unsigned n = w.names.classes[c].n;

            for (unsigned s = 0; s < n && c % 4 != i; s += 1 + (c % 5) * 2)
                model_set(&w.dirs[i].tree, c, s, true);
        }
    }
    world_open(&w);
    for (unsigned i = 0; i < N_DIRS; i++)
        world_scan_whole(&w, &w.dirs[i]);
    world_close(&w);
    file_set_read(path, &sound);
    atexit(tidy_up);
}

/* ---- edits ---- */

/* One edit from DATA; the bytes that it took. */
static size_t edit(struct file_set *set, const uint8_t *data, size_t size)
{
    struct file_bytes *file = &set->files[data[0] % set->n];
    enum how how = data[1] % N_HOWS;
    size_t at = (size_t)data[2] | (size_t)data[3] << 8 | (size_t)data[4] << 16;
    size_t len = data[5], given = size - EDIT_BYTES;

    if (file->len == 0)
        return EDIT_BYTES;
    at %= file->len;
    if (how == HOW_CUT) {
        file->len = at;
        return EDIT_BYTES;
    }
    if (len > file->len - at)
        len = file->len - at;
    if (how == HOW_ZERO) {
        memset(file->data + at, 0, len);
        return EDIT_BYTES;
    }
    if (how == HOW_COPY) {
        memmove(file->data + at, file->data + at * 31 % (file->len - len + 1), len);
        return EDIT_BYTES;
    }
    if (len > given)
        len = given;
    for (size_t i = 0; i < len; i++)
        file->data[at + i] =
            (uint8_t)((how == HOW_XOR ? file->data[at + i] : 0) ^ data[EDIT_BYTES + i]);
    return EDIT_BYTES + len;
}

/* The checksums of the headers and of the manifest are made right. */
static void seal(struct file_set *set)
{
    for (unsigned i = 0; i < set->n; i++) {
        struct file_bytes *file = &set->files[i];
        struct file_header h;
        struct manifest m;

        if (strcmp(file->path, "manifest") == 0 && file->len >= sizeof(m)) {
            memcpy(&m, file->data, sizeof(m));
            m.check = XXH3_64bits(&m, offsetof(struct manifest, check));
            memcpy(file->data, &m, sizeof(m));
        } else if (file->len >= sizeof(h)) {
            memcpy(&h, file->data, sizeof(h));
            h.check = XXH3_64bits(&h, offsetof(struct file_header, check));
            memcpy(file->data, &h, sizeof(h));
        }
    }
}

/* ---- asking ---- */

static void ask_anything(struct world_dir *d)
{
    for (unsigned c = 0; c < N_CLASSES; c++) {
        const struct model_name *name = &w.names.classes[c].spellings[0];
        struct index_name found;

        index_dir_check(d->dir, model_stat, &d->tree);
        (void)index_find(d->dir, name->bytes, name->len, &found);
        index_add(d->dir, name->bytes, name->len);
        index_remove(d->dir, name->bytes, name->len);
        if (model_has(&d->tree, c, 0))
            index_add(d->dir, name->bytes, name->len);
    }
}

static void use(bool forged)
{
    world_expect_little(&w);
    world_open(&w);
    for (unsigned i = 0; i < N_DIRS; i++) {
        if (forged) {
            ask_anything(&w.dirs[i]);
        } else if (world_check(&w, &w.dirs[i]) >= 0) {
            world_find_all(&w, &w.dirs[i]);
        }
    }
    (void)index_verify(w.index);
    if (!forged) {
        for (unsigned i = 0; i < N_DIRS; i++)
            world_scan_whole(&w, &w.dirs[i]);
    }
    (void)index_rebuild(w.index);
    world_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned failed = tap_failures();
    struct file_set set;
    struct rng rng = {1};
    size_t at = 1;

    if (!folder)
        build_sound_index();
    if (size == 0)
        return 0;
    file_set_copy(&sound, &set);
    while (size - at >= EDIT_BYTES)
        at += edit(&set, data + at, size - at);
    if (data[0] & FLAG_SEAL)
        seal(&set);
    if (data[0] & FLAG_REBOOT)
        file_set_reboot(&set, &rng);
    remove_tree(w.path);
    file_set_write(&set, w.path);
    file_set_free(&set);
    use(data[0] & (FLAG_SEAL | FLAG_REBOOT));
    if (tap_failures() != failed)
        abort();
    return 0;
}
