/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * behind.c - changes made behind the mount: from the watch (coherence/watch.h), which hears of
 * them by file handles, to the index, which knows directories by file system and handle.
 *
 * An event names its file system by a number that is not the same everywhere on btrfs; so the
 * handle is tried with each file system of the tree.  A name that is taken for changed and was
 * not is only looked at once more.
 *
 * The kernel is told too, by another thread (notifier.h).
 *
 * Lock order: the watch's lock, then the index's or the notifier's.
 */
#include "fs/behind.h"

#include <string.h>

size_t behind_dir_id(const uint8_t fsys_id[FSYS_ID_SIZE], int handle_type,
                     const unsigned char *handle, size_t len,
                     unsigned char ret_id[INDEX_DIR_ID_MAX])
{
    memcpy(ret_id, fsys_id, FSYS_ID_SIZE);
    ret_id[FSYS_ID_SIZE] = (unsigned char)handle_type;
    memcpy(ret_id + FSYS_ID_SIZE + 1, handle, len);
    return FSYS_ID_SIZE + 1 + len;
}

static void changed(void *ctx, int handle_type, const unsigned char *handle, size_t len,
                    const char *name)
{
    struct foldfs *fs = ctx;
    uint8_t fsys_id[FSYS_ID_SIZE];
    unsigned char id[INDEX_DIR_ID_MAX];
    size_t name_len = name ? strlen(name) : 0;

    if (name_len > FOLDFS_NAME_MAX)
        return; /* it cannot be asked for */
    if (len == 0 || FSYS_ID_SIZE + 1 + len > INDEX_DIR_ID_MAX)
        return;
    for (unsigned n = 0; fsys_nth_id(fs->fsys_list, n, fsys_id); n++) {
        size_t id_len = behind_dir_id(fsys_id, handle_type, handle, len, id);
        fuse_ino_t parent = index_changed_behind(fs->index, id, id_len, name, name_len);
        if (parent != 0)
            notifier_tell(fs->notifier, parent);
    }
}

static void lost(void *ctx)
{
    struct foldfs *fs = ctx;

    index_unwatch_all(fs->index);
}

void behind_start(struct foldfs *fs)
{
    const struct watch_listener listener = {.changed = changed, .lost = lost, .ctx = fs};

    /* Where it cannot be had, the directories' timestamps decide. */
    if (!fs->options->without.watch && watch_new(&listener, &fs->watch) < 0)
        fs->watch = NULL;
}

int behind_add(void *fs, int fd)
{
    struct watch *watch = ((struct foldfs *)fs)->watch;

    return watch ? watch_add(watch, fd) : -EOPNOTSUPP;
}

int behind_listen(struct foldfs *fs)
{
    if (!fs->watch)
        return 0;
    int r = notifier_new(fs, &fs->notifier);
    return r < 0 ? r : watch_start(fs->watch);
}

void behind_stop_notifying(struct foldfs *fs)
{
    notifier_stop(fs->notifier);
}

void behind_stop_listening(struct foldfs *fs)
{
    if (fs->watch)
        watch_stop(fs->watch);
}

void behind_end(struct foldfs *fs)
{
    watch_free(fs->watch);
    fs->watch = NULL;
    notifier_stop(fs->notifier);
    notifier_free(fs->notifier);
    fs->notifier = NULL;
}

void behind_settle(void *fs)
{
    struct watch *watch = ((struct foldfs *)fs)->watch;

    if (watch)
        (void)watch_settle(watch);
}

void behind_watch_dir(struct foldfs *fs, struct index_dir *dir)
{
    index_dir_watch(dir);
    if (!watch_settle(fs->watch)) /* lost, perhaps before DIR was said to be watched */
        index_unwatch_all(fs->index);
}
