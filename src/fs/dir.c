/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * dir.c - OPENDIR, READDIR, READDIRPLUS, RELEASEDIR and FSYNCDIR.
 *
 * A listing is what is on disk, every entry under its own spelling, in the backing file
 * system's order and with its positions (d_off), so that telldir, seekdir and rewinddir mean
 * what they mean there, also while the directory changes.
 *
 * Each open directory has a descriptor and a buffer of what getdents64 gave but the kernel has
 * not yet asked for; another position than the next one drops it.
 *
 * READDIRPLUS looks directories up by their exact names, which always mean these entries. Those
 * that do not reach the kernel have their references taken back.
 *
 * Lock: one for each open directory.
 */
#include "fs/dir.h"

#include <dirent.h>
#include <string.h>

#include "common.h"
#include "fs/dentries.h"

/* Bytes of entries read ahead; some thousand names. */
#define DENTS_BUFFER 65536

struct open_dir {
    uint64_t id;
    struct node *node;
    int fd;
    pthread_mutex_t lock;
    off_t position; /* of the next entry */
    size_t at, end; /* entries in the buffer that were not given out yet */
    _Alignas(struct dirent64) char buffer[DENTS_BUFFER];
};

static struct open_dir *open_dir_of(struct foldfs *fs, const struct fuse_file_info *fi)
{
    return fi ? slots_get(fs->dirs, fi->fh) : NULL;
}

int dir_fd_of(struct foldfs *fs, const struct fuse_file_info *fi)
{
    struct open_dir *dir = open_dir_of(fs, fi);

    return dir ? dir->fd : -1;
}

static void open_dir_free(struct foldfs *fs, struct open_dir *dir)
{
    slots_remove(fs->dirs, dir->id);
    close(dir->fd);
    pthread_mutex_destroy(&dir->lock);
    free(dir);
}

static void close_at_end(void *fs, void *dir)
{
    open_dir_free(fs, dir);
}

void dir_close_all(struct foldfs *fs)
{
    if (fs->dirs)
        slots_for_each(fs->dirs, close_at_end, fs);
    slots_free(fs->dirs);
}

static int open_dir_new(struct foldfs *fs, struct node *node, int fd, struct open_dir **ret_dir)
{
    CLEANUP_FREE struct open_dir *dir = malloc(sizeof(*dir));

    if (!dir)
        return -ENOMEM;
    dir->node = node;
    dir->fd = fd;
    dir->position = 0;
    dir->at = dir->end = 0;
    int r = slots_add(fs->dirs, dir, &dir->id);
    if (r < 0)
        return r;
    pthread_mutex_init(&dir->lock, NULL);
    *ret_dir = STEAL_PTR(dir);
    return 0;
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    REACHED_PUT struct reached reached = {0};
    CLEANUP_CLOSE int fd = -1;
    struct open_dir *dir = NULL;
    struct foldfs *fs = fs_begin(req);

    if (!fs || !fs_reach(fs, req, ino, &reached))
        return;
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (fi->flags & O_NOATIME);
    fd = openat(reached.fd, ".", flags);
    if (fd < 0 && reach_made_room(fs, -errno))
        fd = openat(reached.fd, ".", flags);
    int r = fd < 0 ? -errno : open_dir_new(fs, reached.node, fd, &dir);
    if (r < 0) {
        fs_reply(req, r);
        return;
    }
    STEAL_FD(fd);
    fi->fh = dir->id;
    if (fuse_reply_open(req, fi) < 0)
        open_dir_free(fs, dir);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct foldfs *fs = fuse_req_userdata(req);
    struct open_dir *dir = open_dir_of(fs, fi);

    (void)ino;
    if (dir)
        open_dir_free(fs, dir);
    fs_reply(req, 0);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    struct foldfs *fs = fs_begin(req);

    (void)ino;
    if (!fs)
        return;
    int fd = dir_fd_of(fs, fi);
    int r = data_only ? fdatasync(fd) : fsync(fd);
    fs_reply(req, r < 0 ? -errno : 0);
}

/* The entry at the position, which stays there; *ret_entry is NULL at the end.  No more than
 * AHEAD bytes of entries are read: what the program did not ask for would be old news when it
 * does. */
static int peek_entry(struct open_dir *dir, size_t ahead, const struct dirent64 **ret_entry)
{
    if (dir->at == dir->end) {
        size_t size = ahead < sizeof(dir->buffer) ? ahead : sizeof(dir->buffer);
        ssize_t n = getdents64(dir->fd, dir->buffer, size);
        if (n < 0)
            return -errno;
        dir->at = 0;
        dir->end = (size_t)n;
    }
    *ret_entry = dir->at < dir->end ? (const void *)(dir->buffer + dir->at) : NULL;
    return 0;
}

static void consume_entry(struct open_dir *dir, const struct dirent64 *entry)
{
    dir->position = entry->d_off;
    dir->at += entry->d_reclen;
}

static int seek_to(struct open_dir *dir, off_t offset)
{
    if (offset == dir->position && offset != 0)
        return 0;
    if (lseek(dir->fd, offset, SEEK_SET) < 0)
        return -errno;
    dir->position = offset;
    dir->at = dir->end = 0;
    return 0;
}

/* An answer under way. */
struct listing {
    struct foldfs *fs;
    fuse_req_t req;
    struct open_dir *dir;
    char *buffer;
    size_t size, used;
    struct node **looked_up; /* by READDIRPLUS; one reference each */
    size_t looked_up_count;
};

/* Adds ENTRY to the answer; false: there is no room for it. */
typedef bool (*add_fn)(struct listing *listing, const struct dirent64 *entry);

/* Adds entries from the position on until the answer is full.  An error counts only if there is
 * nothing to give: else it comes again at the next request. */
static int fill(struct listing *listing, add_fn add)
{
    for (;;) {
        const struct dirent64 *entry = NULL;
        int r = peek_entry(listing->dir, listing->size, &entry);
        if (r < 0)
            return listing->used > 0 ? 0 : r;
        if (!entry || !add(listing, entry))
            return 0;
        consume_entry(listing->dir, entry);
    }
}

static bool add_plain(struct listing *listing, const struct dirent64 *entry)
{
    const struct stat st = {
        .st_ino = fsys_shown_ino(listing->dir->node->key.fsys, entry->d_ino),
        .st_mode = (mode_t)DTTOIF(entry->d_type),
    };
    size_t room = listing->size - listing->used;
    size_t needed = fuse_add_direntry(listing->req, listing->buffer + listing->used, room,
                                      entry->d_name, &st, entry->d_off);

    if (needed > room)
        return false;
    listing->used += needed;
    return true;
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Looks ENTRY up for the kernel.  Where that cannot be done the entry goes out without: the
 * kernel then looks it up itself. */
static void look_entry_up(struct listing *listing, const struct dirent64 *entry,
                          struct fuse_entry_param *ret_param)
{
    struct statx st;
    struct node *node;
    const struct open_dir *dir = listing->dir;

    *ret_param = (struct fuse_entry_param){
        .attr = {.st_ino = fsys_shown_ino(dir->node->key.fsys, entry->d_ino),
                 .st_mode = (mode_t)DTTOIF(entry->d_type)},
    };
    /* To look up what the kernel does not keep were for nothing. */
    if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN &&
        !dentries_are_kept(listing->fs))
        return;
    if (is_dot(entry->d_name) || file_stat(dir->fd, entry->d_name, &st) < 0 ||
        node_look_up(listing->fs->nodes, dir->node, dir->fd, entry->d_name, &st, &node) < 0)
        return;
    fs_entry(listing->fs, node, &st, INDEX_EXACT, ret_param);
    listing->looked_up[listing->looked_up_count++] = node;
}

static bool add_plus(struct listing *listing, const struct dirent64 *entry)
{
    struct fuse_entry_param param;
    size_t room = listing->size - listing->used;

    if (fuse_add_direntry_plus(listing->req, NULL, 0, entry->d_name, NULL, 0) > room)
        return false;
    look_entry_up(listing, entry, &param);
    listing->used += fuse_add_direntry_plus(listing->req, listing->buffer + listing->used, room,
                                            entry->d_name, &param, entry->d_off);
    return true;
}

/* The same from position OFFSET on.  The lock must be free before the answer goes out, after
 * which the directory may be closed. */
static int fill_from(struct listing *listing, off_t offset, add_fn add)
{
    LOCK_FOR_SCOPE(&listing->dir->lock);
    int r = seek_to(listing->dir, offset);
    return r < 0 ? r : fill(listing, add);
}

static void reply_listing(fuse_req_t req, off_t offset, struct listing *listing, add_fn add)
{
    int r = fill_from(listing, offset, add);
    if (r < 0)
        fs_reply(req, r);
    else if (fuse_reply_buf(req, listing->buffer, listing->used) == 0)
        return;
    for (size_t i = 0; i < listing->looked_up_count; i++)
        node_forget(listing->fs->nodes, listing->looked_up[i], 1);
}

/* Bytes that an entry takes in a READDIRPLUS answer at least (fuse_direntplus of the protocol,
 * with a name of one byte). */
#define DIRENTPLUS_MIN 160

static void list(fuse_req_t req, size_t size, off_t offset, struct fuse_file_info *fi,
                 add_fn add, size_t most_look_ups)
{
    struct foldfs *fs = fs_begin_looking(req);
    struct index_dir *told; /* of changes of what the kernel may keep, from here on */

    if (!fs)
        return;
    CLEANUP_FREE char *buffer = malloc(size);
    CLEANUP_FREE struct node **looked_up = calloc(most_look_ups + 1, sizeof(struct node *));
    struct listing listing = {.fs = fs,
                              .req = req,
                              .dir = open_dir_of(fs, fi),
                              .buffer = buffer,
                              .size = size,
                              .looked_up = looked_up};
    if (!listing.dir)
        fs_reply(req, -EBADF);
    else if (!buffer || !looked_up ||
             (most_look_ups > 0 && node_index_dir(fs, listing.dir->node, &told) < 0))
        fs_reply(req, -ENOMEM);
    else
        reply_listing(req, offset, &listing, add);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                struct fuse_file_info *fi)
{
    (void)ino;
    list(req, size, offset, fi, add_plain, 0);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    (void)ino;
    list(req, size, offset, fi, add_plus, size / DIRENTPLUS_MIN);
}
