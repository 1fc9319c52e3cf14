/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * walk.c - in which directory of ours a requester's path ends.
 *
 * The way is gone as the kernel goes it (path_resolution(7)), component by component, each by a
 * system call, from the requester's root, working directory or descriptor, to which /proc
 * leads: so mounts, bind mounts and other roots are what they are for the requester.  Symbolic
 * links are read and their text walked, those of procfs as the requester would see them.
 *
 * We never ask our own mount: that would be a request that holds us even when we are killed,
 * and with us the connection that others wait on.  The requester has just gone the same way, so
 * the kernel knows the directories (RESOLVE_CACHED).  Where it does not keep them, the way goes
 * on through the nodes, the index and the tree, unless something is mounted on top of ours,
 * which does not show there.
 *
 * A directory of the mount is recognised by its device, and which one it is by its file handle,
 * which the kernel makes out of the nodeid (fs/fuse/inode.c: fuse_encode_fh).
 *
 * A path that comes by the very name that is looked up proves nothing: the look-up may be that
 * step.
 */
#include "fs/walk.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

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
    struct node *node; /* a directory of ours, pinned; or NULL and: */
    int fd;            /* a directory (O_PATH); -1 before the first */
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

static void go_to(struct walk *walk, int fd)
{
    leave(walk);
    walk->fd = fd;
}

static void go_to_node(struct walk *walk, struct node *node)
{
    leave(walk);
    walk->node = node;
}

/* Without a request to the file system. */
static int stat_quietly(int fd, const char *name, struct statx *ret_st)
{
    if (statx(fd, name,
              AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_TYPE | STATX_INO | STATX_MNT_ID, ret_st) < 0)
        return -errno;
    return 0;
}

int walk_device(const char *path, uint64_t *ret_dev)
{
    struct statx st;

    int r = stat_quietly(AT_FDCWD, path, &st);
    if (r == 0)
        *ret_dev = fsys_dev(&st);
    return r;
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

/* Is the walk in the mount, and at which node?  1, 0 or a negative errno. */
static int nodeid_here(const struct walk *walk, uint64_t *ret_id)
{
    struct statx st;

    if (walk->node) {
        *ret_id = walk->node->id;
        return 1;
    }
    int r = stat_quietly(walk->fd, "", &st);
    if (r < 0 || fsys_dev(&st) != walk->question->dev)
        return r;
    r = read_nodeid(walk->fd, ret_id);
    return r < 0 ? r : 1;
}

/* Is the walk in the look-up's directory?  1, 0 or a negative errno. */
static int is_at_parent(const struct walk *walk)
{
    uint64_t id = 0;

    int r = nodeid_here(walk, &id);
    return r > 0 ? id == walk->question->parent : r;
}

/* Opens /proc/TID/WHAT, a directory. */
static int open_of_requester(const struct walk *walk, const char *what, int *ret_fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)walk->question->tid, what);
    *ret_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

static int begin_at(struct walk *walk, const char *what)
{
    int fd = -1;

    int r = open_of_requester(walk, what, &fd);
    if (r == 0)
        go_to(walk, fd);
    return r;
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

/* At the requester's root, where ".." stays? */
static int is_at_root(const struct walk *walk)
{
    struct statx here, root;
    CLEANUP_CLOSE int fd = -1;

    int r = open_of_requester(walk, "root", &fd);
    if (r == 0)
        r = stat_quietly(walk->fd, "", &here);
    if (r == 0)
        r = stat_quietly(fd, "", &root);
    if (r < 0)
        return r;
    return fsys_dev(&here) == fsys_dev(&root) && here.stx_ino == root.stx_ino &&
           here.stx_mnt_id == root.stx_mnt_id;
}

/* The link with text TARGET comes before what is left of the path. */
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

/* The thread group of TID. */
static int read_tgid(pid_t tid, pid_t *ret_tgid)
{
    char path[64], line[128];
    int tgid = 0;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;
    while (tgid == 0 && fgets(line, sizeof(line), file))
        (void)sscanf(line, "Tgid: %d", &tgid);
    fclose(file);
    *ret_tgid = tgid;
    return tgid > 0 ? 0 : -ESRCH;
}

/* The link NAME of procfs, where the walk is: "self" and "thread-self" depend on who reads
 * them, the others lead where no text does. */
static int follow_in_proc(struct walk *walk, const char *name)
{
    pid_t tid = walk->question->tid, tgid = 0;
    char target[64];

    if (strcmp(name, "self") == 0 || strcmp(name, "thread-self") == 0) {
        int r = read_tgid(tid, &tgid);
        if (r < 0)
            return r;
        if (strcmp(name, "self") == 0)
            snprintf(target, sizeof(target), "%d", (int)tgid);
        else
            snprintf(target, sizeof(target), "%d/task/%d", (int)tgid, (int)tid);
        return follow(walk, target);
    }
    if (++walk->links > LINKS_MAX)
        return -ELOOP;
    int fd = openat(walk->fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    go_to(walk, fd);
    return 0;
}

static int follow_at(struct walk *walk, const char *name, int link_fd)
{
    struct statfs fs;
    char target[PATH_MAX];

    if (fstatfs(walk->fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
        return follow_in_proc(walk, name);
    uint64_t id = 0;
    int inside = nodeid_here(walk, &id);
    if (inside != 0) /* to read it may be a request */
        return inside < 0 ? inside : -EAGAIN;
    ssize_t n = readlinkat(link_fd, "", target, sizeof(target) - 1);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    return follow(walk, target);
}

/* ---- within the mount, without the kernel ---- */

/* Is anything mounted, in the requester's view, on top of ours?  For all we know, if that
 * cannot be read. */
static bool anything_on_top(const struct walk *walk)
{
    enum { MOUNTS_MAX = 64 };
    CLEANUP_FREE char *line = NULL;
    int ours[MOUNTS_MAX], n = 0, id, parent;
    unsigned major, minor;
    size_t size = 0;
    char path[64];
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)walk->question->tid);
    FILE *mounts = fopen(path, "re");
    if (!mounts)
        return true;
    /* A mount is listed after the one that it is on. */
    while (!found && getline(&line, &size, mounts) > 0) {
        if (sscanf(line, "%d %d %u:%u", &id, &parent, &major, &minor) != 4)
            found = true;
        for (int i = 0; i < n; i++)
            found |= ours[i] == parent;
        if (makedev(major, minor) == walk->question->dev && n < MOUNTS_MAX)
            ours[n++] = id;
        found |= n == MOUNTS_MAX;
    }
    fclose(mounts);
    return found;
}

/* May the requester's root, where ".." stays, be in the mount? */
static bool root_is_ours(const struct walk *walk)
{
    CLEANUP_CLOSE int fd = -1;
    struct statx st;

    return open_of_requester(walk, "root", &fd) < 0 || stat_quietly(fd, "", &st) < 0 ||
           fsys_dev(&st) == walk->question->dev;
}

/* Inside: to the directory with stat ST. */
static int go_inside(struct walk *walk, const struct statx *st)
{
    if (!S_ISDIR(st->stx_mode))
        return -ENOTDIR;
    struct node *node = node_find(walk->question->fs->nodes, st);
    if (!node)
        return -ESTALE;
    go_to_node(walk, node);
    return 0;
}

static int step_inside(struct walk *walk, const char *name)
{
    struct foldfs *fs = walk->question->fs;
    REACHED_PUT struct reached dir = {0};
    struct target target = {.parent = walk->node, .name = name, .len = strlen(name)};
    struct resolved found;
    char text[PATH_MAX];
    struct statx st;

    int r = reach_get(fs, walk->node, &dir);
    if (r < 0)
        return r;
    if (strcmp(name, "..") == 0) {
        if (walk->node->id == NODE_ROOT_ID || root_is_ours(walk))
            return -EXDEV;
        r = file_stat(dir.fd, "..", &st);
        return r < 0 ? r : go_inside(walk, &st);
    }
    target.dir = dir;
    {
        NAME_LOCK_FOR_SCOPE(lock, name_lock_key(walk->node->id, name, target.len));
        r = resolve(fs, &target, &found);
    }
    if (r < 0)
        return r;
    if (found.match == INDEX_ABSENT)
        return -ENOENT;
    if (!S_ISLNK(found.st.stx_mode))
        return go_inside(walk, &found.st);
    ssize_t n = readlinkat(dir.fd, found.name.bytes, text, sizeof(text) - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    return follow(walk, text);
}

/* What step_inside() does, from where the kernel would have to ask. */
static int step_by_node(struct walk *walk, const char *name)
{
    struct deadline_job *job = walk->question->job;
    uint64_t id = 0;

    int r = nodeid_here(walk, &id);
    if (r <= 0)
        return r < 0 ? r : -EXDEV;
    if (!deadline_enter(job))
        return -ETIMEDOUT;
    if (!walk->node) {
        struct node *node =
            anything_on_top(walk) ? NULL : node_get_pinned(walk->question->fs->nodes, id);
        if (node)
            go_to_node(walk, node);
    }
    r = walk->node ? step_inside(walk, name) : -EXDEV;
    deadline_leave(job);
    return r;
}

/* ---- one step ---- */

/* Opens entry NAME: -EAGAIN if the kernel would have to ask us. */
static int open_step(const struct walk *walk, const char *name)
{
    struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    uint64_t id = 0;

    int inside = nodeid_here(walk, &id);
    if (inside < 0)
        return inside;
    long fd = inside ? syscall(SYS_openat2, walk->fd, name, &how, sizeof(how))
                     : openat(walk->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : (int)fd;
}

static int step_by_fd(struct walk *walk, const char *name)
{
    struct statx st;

    CLEANUP_CLOSE int fd = open_step(walk, name);
    if (fd < 0)
        return fd;
    int r = stat_quietly(fd, "", &st);
    if (r < 0)
        return r;
    if (S_ISLNK(st.stx_mode))
        return follow_at(walk, name, fd);
    go_to(walk, STEAL_FD(fd));
    return 0;
}

static int step(struct walk *walk, const char *name)
{
    int r;

    if (strcmp(name, "..") == 0 && !walk->node) {
        r = is_at_root(walk);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    if (strcmp(name, walk->question->name) == 0) {
        r = is_at_parent(walk);
        if (r != 0)
            return r < 0 ? r : -EBUSY;
    }
    if (walk->node)
        return step_by_node(walk, name);
    r = step_by_fd(walk, name);
    return r == -EAGAIN || r == -ENOSYS ? step_by_node(walk, name) : r;
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
    char name[FOLDFS_NAME_MAX + 1];

    memcpy(walk.rest, dir, strlen(dir) + 1);
    int r = begin(&walk, dirfd);
    while (r == 0 && next_component(&walk, name))
        r = strcmp(name, ".") == 0 ? 0 : step(&walk, name);
    if (r == 0)
        r = is_at_parent(&walk);
    leave(&walk);
    return r;
}
