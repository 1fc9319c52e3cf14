/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * walk.c - in which directory of ours a requester's path ends, found out without a request to
 * our own mount: that might wait for the very thread that asks.
 *
 * The way is gone as the kernel goes it (path_resolution(7)), component by component, from the
 * requester's root, working directory or descriptor, which /proc leads to.  Outside of the
 * mount by system calls.  A directory of the mount is recognised by its device, and which one
 * it is by its file handle, which the kernel makes out of the nodeid (fs/fuse/inode.c:
 * fuse_encode_fh) without asking us.  From there on the way goes through the backing tree and
 * the index.
 *
 * Whatever is not certain is an error: "..", at the mount's root; directories that the kernel
 * does not know and so cannot have walked through; a path that comes by the very name that is
 * looked up, for then the look-up may be a step of the walk.
 */
#include "fs/walk.h"

#include <stdio.h>
#include <string.h>

#include "common.h"
#include "fs/namelock.h"
#include "fs/resolve.h"

/* Symbolic links in one path, as the kernel has it. */
#define LINKS_MAX 40

/* fs/fuse/inode.c: FILEID_INO64_GEN, three words: nodeid (high, low), generation. */
#define FUSE_HANDLE_TYPE  0x81
#define FUSE_HANDLE_BYTES 12u

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif

/* Where a walk has come to. */
struct walk {
    const struct walk_question *question;
    struct node *node; /* a directory of ours, pinned; NULL: outside */
    int fd;            /* outside: the directory (O_PATH) */
    unsigned links;
    char rest[2 * PATH_MAX]; /* of the path */
};

static void leave(struct walk *walk)
{
    struct deadline_job *job = walk->question->job;

    if (walk->node && deadline_enter(job)) {
        node_unpin(walk->question->fs->nodes, walk->node);
        deadline_leave(job);
    }
    if (walk->fd >= 0)
        close(walk->fd);
    walk->node = NULL;
    walk->fd = -1;
}

/* ---- outside ---- */

static int stat_quietly(int fd, const char *name, struct statx *ret_st)
{
    if (statx(fd, name,
              AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_TYPE | STATX_INO, ret_st) < 0)
        return -errno;
    return 0;
}

/* The node with nodeid ID, pinned, or NULL. */
static struct node *pin(const struct walk *walk, uint64_t id)
{
    struct deadline_job *job = walk->question->job;

    if (!deadline_enter(job))
        return NULL;
    struct node *node = node_get_pinned(walk->question->fs->nodes, id);
    deadline_leave(job);
    return node;
}

/* The device of our mount, as programs see it. */
static int mount_dev(struct foldfs *fs, uint64_t *ret_dev)
{
    struct statx st;

    uint64_t dev = atomic_load(&fs->shown_dev);
    if (dev != 0) {
        *ret_dev = dev;
        return 0;
    }
    int r = stat_quietly(AT_FDCWD, fs->options->mountpoint, &st);
    if (r < 0)
        return r;
    *ret_dev = fsys_dev(&st);
    atomic_store(&fs->shown_dev, *ret_dev);
    return 0;
}

/* The nodeid of FD, a directory of the mount. */
static int read_nodeid(int fd, uint64_t *ret_id)
{
    union {
        struct file_handle head;
        char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
    uint32_t words[FUSE_HANDLE_BYTES / sizeof(uint32_t)];
    int mount_id;

    if (name_to_handle_at(fd, "", &handle.head, &mount_id, AT_EMPTY_PATH | AT_HANDLE_FID) < 0 &&
        name_to_handle_at(fd, "", &handle.head, &mount_id, AT_EMPTY_PATH) < 0)
        return -errno;
    if (handle.head.handle_type != FUSE_HANDLE_TYPE ||
        handle.head.handle_bytes != FUSE_HANDLE_BYTES)
        return -EOPNOTSUPP;
    memcpy(words, handle.head.f_handle, sizeof(words));
    *ret_id = (uint64_t)words[0] << 32 | words[1];
    return 0;
}

/* WALK goes on at FD, a directory, which is taken over. */
static int go_to(struct walk *walk, int fd)
{
    struct foldfs *fs = walk->question->fs;
    struct statx st;
    uint64_t dev = 0, id = 0;

    leave(walk);
    walk->fd = fd;
    int r = stat_quietly(fd, "", &st);
    if (r == 0)
        r = mount_dev(fs, &dev);
    if (r < 0 || fsys_dev(&st) != dev)
        return r;
    r = read_nodeid(fd, &id);
    if (r < 0)
        return r;
    struct node *node = pin(walk, id);
    if (!node)
        return -ESTALE;
    leave(walk);
    walk->node = node;
    return 0;
}

/* WALK begins where /proc/TID/WHAT leads. */
static int begin_at(struct walk *walk, const char *what)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)walk->question->tid, what);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : go_to(walk, fd);
}

static int begin(struct walk *walk, int dirfd)
{
    char what[32];

    if (walk->rest[0] == '/')
        return begin_at(walk, "root");
    if (dirfd == AT_FDCWD)
        return begin_at(walk, "cwd");
    snprintf(what, sizeof(what), "fd/%d", dirfd);
    return begin_at(walk, what);
}

/* The walk is outside, at the requester's root, where ".." stays. */
static bool is_at_root(const struct walk *walk)
{
    struct statx here, root;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root", (int)walk->question->tid);
    CLEANUP_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && stat_quietly(walk->fd, "", &here) == 0 &&
           stat_quietly(fd, "", &root) == 0 && fsys_dev(&here) == fsys_dev(&root) &&
           here.stx_ino == root.stx_ino;
}

/* ---- one step ---- */

/* The link that is TARGET comes before what is left of the path. */
static int follow(struct walk *walk, const char *target)
{
    char rest[sizeof(walk->rest)];

    if (++walk->links > LINKS_MAX)
        return -ELOOP;
    int n = snprintf(rest, sizeof(rest), "%s/%s", target, walk->rest);
    if (n < 0 || (size_t)n >= sizeof(rest))
        return -ENAMETOOLONG;
    memcpy(walk->rest, rest, (size_t)n + 1);
    return target[0] == '/' ? begin_at(walk, "root") : 0;
}

static int follow_at(struct walk *walk, int fd, const char *name)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(fd, name, target, sizeof(target) - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    return follow(walk, target);
}

static int step_outside(struct walk *walk, const char *name)
{
    struct statx st;

    if (strcmp(name, "..") == 0 && is_at_root(walk))
        return 0;
    int fd = openat(walk->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = stat_quietly(fd, "", &st);
    if (r == 0 && !S_ISLNK(st.stx_mode))
        return go_to(walk, fd);
    if (r == 0)
        r = follow_at(walk, fd, "");
    close(fd);
    return r;
}

/* Inside: to the directory with stat ST. */
static int go_inside(struct walk *walk, const struct statx *st)
{
    struct foldfs *fs = walk->question->fs;

    if (!S_ISDIR(st->stx_mode))
        return -ENOTDIR;
    struct node *node = node_find(fs->nodes, st);
    if (!node)
        return -ESTALE;
    leave(walk);
    walk->node = node;
    return 0;
}

static int step_inside(struct walk *walk, const char *name)
{
    struct foldfs *fs = walk->question->fs;
    REACHED_PUT struct reached dir = {0};
    struct target target = {.parent = walk->node, .name = name, .len = strlen(name)};
    struct resolved found;
    struct statx st;

    int r = reach_get(fs, walk->node, &dir);
    if (r < 0)
        return r;
    if (strcmp(name, "..") == 0) {
        if (walk->node->id == NODE_ROOT_ID)
            return -EXDEV;
        r = file_stat(dir.fd, "..", &st);
        return r < 0 ? r : go_inside(walk, &st);
    }
    if (walk->node == walk->question->parent && strcmp(name, walk->question->name) == 0)
        return -EAGAIN;
    target.dir = dir;
    {
        NAME_LOCK_FOR_SCOPE(lock, name_lock_key(walk->node->id, name, target.len));
        r = resolve(fs, &target, &found);
    }
    if (r < 0)
        return r;
    if (found.match == INDEX_ABSENT)
        return -ENOENT;
    if (S_ISLNK(found.st.stx_mode))
        return follow_at(walk, dir.fd, found.name.bytes);
    return go_inside(walk, &found.st);
}

/* Takes the next component off what is left; false: there is none. */
static bool next_component(struct walk *walk, char ret_name[FOLDFS_NAME_MAX + 1])
{
    const char *at = walk->rest + strspn(walk->rest, "/");
    size_t len = strcspn(at, "/");

    if (len == 0 || len > FOLDFS_NAME_MAX)
        return false;
    memcpy(ret_name, at, len);
    ret_name[len] = '\0';
    memmove(walk->rest, at + len, strlen(at + len) + 1);
    return true;
}

static int walk_on(struct walk *walk)
{
    struct deadline_job *job = walk->question->job;
    char name[FOLDFS_NAME_MAX + 1];

    while (next_component(walk, name)) {
        int r = 0;

        if (strcmp(name, ".") == 0)
            continue;
        if (!walk->node) {
            r = step_outside(walk, name);
        } else if (deadline_enter(job)) {
            r = step_inside(walk, name);
            deadline_leave(job);
        }
        if (r < 0)
            return r;
        if (!deadline_is_awaited(job))
            return -ETIMEDOUT;
    }
    return 0;
}

bool walk_split(const char *path, char ret_dir[PATH_MAX], struct index_name *ret_last)
{
    size_t end = strlen(path);

    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    size_t len = end - start;
    if (len == 0 || len > FOLDFS_NAME_MAX || end >= PATH_MAX)
        return false;
    memcpy(ret_dir, path, start);
    ret_dir[start] = '\0';
    ret_last->len = (uint8_t)len;
    memcpy(ret_last->bytes, path + start, len);
    ret_last->bytes[len] = '\0';
    return strcmp(ret_last->bytes, ".") != 0 && strcmp(ret_last->bytes, "..") != 0;
}

int walk_leads_to_parent(const struct walk_question *question, int dirfd, const char *dir)
{
    struct walk walk = {.question = question, .fd = -1};

    memcpy(walk.rest, dir, strlen(dir) + 1);
    int r = begin(&walk, dirfd);
    if (r == 0)
        r = walk_on(&walk);
    if (r == 0)
        r = walk.node == question->parent;
    leave(&walk);
    return r;
}
