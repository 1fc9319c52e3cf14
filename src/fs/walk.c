/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * walk.c - in which directory of ours a requester's path ends.
 *
 * The way is gone as the kernel goes it (path_resolution(7)), component by component, each by a
 * system call, from the requester's root, working directory or descriptor, to which /proc
 * leads: so mounts, bind mounts and other roots are what they are for the requester.  Symbolic
 * links are read and their text walked, those of procfs as the requester would see them.
 *
 * The requester has just gone the same way, so that the kernel knows each directory and need
 * not ask us (RESOLVE_CACHED).  If it does not keep them it asks, and a request thread answers,
 * none of which waits for us.
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
#include <sys/vfs.h>

#include "backing/fsys.h"
#include "common.h"

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
    int fd; /* a directory (O_PATH); -1 before the first */
    unsigned links;
    char rest[2 * PATH_MAX]; /* of the path */
};

static void go_to(struct walk *walk, int fd)
{
    if (walk->fd >= 0)
        close(walk->fd);
    walk->fd = fd;
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

/* Is the walk in the look-up's directory?  1, 0 or a negative errno. */
static int is_at_parent(const struct walk *walk)
{
    struct statx st;
    uint64_t id = 0;

    int r = stat_quietly(walk->fd, "", &st);
    if (r < 0 || fsys_dev(&st) != walk->question->dev)
        return r;
    r = read_nodeid(walk->fd, &id);
    return r < 0 ? r : id == walk->question->parent;
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
    ssize_t n = readlinkat(link_fd, "", target, sizeof(target) - 1);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    return follow(walk, target);
}

/* Opens entry NAME without asking its file system if it can be. */
static int open_step(int dir_fd, const char *name)
{
    struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

    if (fd >= 0 || (errno != EAGAIN && errno != ENOSYS && errno != EINVAL))
        return (int)fd;
    return openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

static int step(struct walk *walk, const char *name)
{
    struct statx st;
    int r;

    if (strcmp(name, "..") == 0) {
        r = is_at_root(walk);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    if (strcmp(name, walk->question->name) == 0) {
        r = is_at_parent(walk);
        if (r != 0)
            return r < 0 ? r : -EAGAIN;
    }
    CLEANUP_CLOSE int fd = open_step(walk->fd, name);
    if (fd < 0)
        return -errno;
    r = stat_quietly(fd, "", &st);
    if (r < 0)
        return r;
    if (S_ISLNK(st.stx_mode))
        return follow_at(walk, name, fd);
    go_to(walk, STEAL_FD(fd));
    return 0;
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
    go_to(&walk, -1);
    return r;
}
