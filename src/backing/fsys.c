/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * fsys.c - the file systems that the tree consists of.
 *
 * There is one entry for each device number met (btrfs gives each subvolume one), counted by
 * the nodes on it, and gone with the last: its open directory would keep it from being
 * unmounted.  The root's stays.
 *
 * What identifies a file system over reboots is not its device number.  ext4 and btrfs derive
 * f_fsid from their UUID (btrfs with the subvolume); XFS has an ioctl of its own for the UUID,
 * f2fs and bcachefs the general one since Linux 6.9.  The same source is always used for
 * the same type, so that a newer kernel does not change an identity.
 *
 * Granularity: since Linux 6.13 ext4, xfs, btrfs and tmpfs have multigrain timestamps, where a
 * ctime that was looked at is never given again.  Else a ctime moves with the kernel's tick,
 * by a second on ext4 with 128-byte inodes (which have no birth time either), and on the rest
 * by who knows what: FAT's two seconds.
 *
 * One lock, for the list and the user counts; nothing is called under it that blocks on the
 * tree.
 */
#include "backing/fsys.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <xxhash.h>

#include "backing/file.h"
#include "common.h"

#define NS_PER_S INT64_C(1000000000)

/* Not in linux/magic.h of all supported versions. */
#define MAGIC_ZFS      0x2fc12fc1U
#define MAGIC_BCACHEFS 0xca451a4eU
#define MAGIC_CEPH     0x00c36400U
#define MAGIC_LUSTRE   0x0bd00bd0U

struct fsys_list {
    pthread_mutex_t lock;
    struct fsys *first; /* the root's is the last of the list */
    struct fsys *root;
    struct fsys_features features;
    atomic_bool any_remote;
};

uint64_t fsys_dev(const struct statx *st)
{
    return makedev(st->stx_dev_major, st->stx_dev_minor);
}

uint64_t fsys_shown_ino(const struct fsys *fsys, uint64_t ino)
{
    return ino ^ (uint64_t)fsys->ino_prefix << 48;
}

static bool is_remote(uint32_t type)
{
    switch (type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case V9FS_MAGIC:
    case AFS_SUPER_MAGIC:
    case CODA_SUPER_MAGIC:
    case FUSE_SUPER_MAGIC:
    case OCFS2_SUPER_MAGIC:
    case MAGIC_CEPH:
    case MAGIC_LUSTRE:
        return true;
    default:
        return false;
    }
}

/* XFS_IOC_FSGEOMETRY_V1 of xfs_fs.h, which is not among the kernel's exported headers. */
struct xfs_geometry_v1 {
    uint32_t sizes[8];
    uint64_t blocks[4];
    uint8_t uuid[16];
    uint32_t rest[8];
};
#define XFS_GEOMETRY_V1 _IOR('X', 100, struct xfs_geometry_v1)
_Static_assert(sizeof(struct xfs_geometry_v1) == 112, "as xfs_fs.h has it");

/* FS_IOC_GETFSUUID of linux/fs.h since Linux 6.9. */
struct fs_uuid {
    uint8_t len;
    uint8_t uuid[16];
};
#define GET_FS_UUID _IOR(0x15, 0, struct fs_uuid)

static bool read_id(int fd, const struct statfs *sfs, uint8_t *ret_id)
{
    struct xfs_geometry_v1 geometry;
    struct fs_uuid uuid;
    uint64_t fsid[2] = {(uint32_t)sfs->f_type, 0};
    _Static_assert(sizeof(sfs->f_fsid) == sizeof(fsid[1]), "fsid_t is two ints");

    switch ((uint32_t)sfs->f_type) {
    case EXT4_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case MAGIC_ZFS:
        memcpy(&fsid[1], &sfs->f_fsid, sizeof(fsid[1]));
        if (fsid[1] == 0)
            return false;
        memcpy(ret_id, fsid, FSYS_ID_SIZE);
        return true;
    case XFS_SUPER_MAGIC:
        if (ioctl(fd, XFS_GEOMETRY_V1, &geometry) < 0)
            return false;
        memcpy(ret_id, geometry.uuid, FSYS_ID_SIZE);
        return true;
    case F2FS_SUPER_MAGIC:
    case MAGIC_BCACHEFS:
        if (ioctl(fd, GET_FS_UUID, &uuid) < 0 || uuid.len != FSYS_ID_SIZE)
            return false;
        memcpy(ret_id, uuid.uuid, FSYS_ID_SIZE);
        return true;
    default: /* tmpfs: gone at reboot; the others: unknown */
        return false;
    }
}

/* Linux 6.13 or later? */
static bool kernel_has_multigrain(void)
{
    struct utsname names;
    unsigned major, minor;

    return uname(&names) == 0 && sscanf(names.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 13));
}

static int64_t granularity_of(uint32_t type, bool has_btime, bool no_multigrain)
{
    struct timespec tick = {.tv_nsec = 10000000};

    switch (type) {
    case EXT4_SUPER_MAGIC:
        if (!has_btime)
            return NS_PER_S;
        break;
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
        break;
    case F2FS_SUPER_MAGIC:
    case MAGIC_BCACHEFS:
    case MAGIC_ZFS:
    case OVERLAYFS_SUPER_MAGIC:
        no_multigrain = true;
        break;
    default:
        return 2 * NS_PER_S;
    }
    if (!no_multigrain && kernel_has_multigrain())
        return 0;
    clock_getres(CLOCK_REALTIME_COARSE, &tick);
    return tick.tv_sec * NS_PER_S + tick.tv_nsec;
}

/* The prefix must be the same at every mount, so it comes from what identifies the file
 * system, as far as there is such a thing; and must not be another's in the list. */
static uint16_t choose_prefix(const struct fsys_list *list, const struct fsys *fsys)
{
    uint16_t prefix = (uint16_t)XXH3_64bits(fsys->id, FSYS_ID_SIZE);

    for (const struct fsys *f = list->first; f;) {
        if (prefix == 0 || (f->dev != fsys->dev && f->ino_prefix == prefix)) {
            prefix++;
            f = list->first;
        } else {
            f = f->next;
        }
    }
    return prefix;
}

/* All about the file system of FD but its place in the list. */
static int examine(int fd, const struct statx *st, const struct fsys_features *features,
                   struct fsys **ret_fsys)
{
    struct statfs sfs;
    struct file_handle_buffer handle;

    if (fstatfs(fd, &sfs) < 0)
        return -errno;
    struct fsys *fsys = calloc(1, sizeof(*fsys));
    if (!fsys)
        return -ENOMEM;
    fsys->dev = fsys_dev(st);
    fsys->type = (uint32_t)sfs.f_type;
    fsys->mount_fd = fd;
    fsys->has_id = read_id(fd, &sfs, fsys->id);
    if (!fsys->has_id)
        memcpy(fsys->id, &fsys->dev, sizeof(fsys->dev));
    fsys->remote = is_remote(fsys->type);
    fsys->has_btime = (st->stx_mask & STATX_BTIME) != 0 && fsys->type != OVERLAYFS_SUPER_MAGIC;
    fsys->granularity_ns =
        granularity_of(fsys->type, (st->stx_mask & STATX_BTIME) != 0, features->no_multigrain);
    if (!features->no_handles && S_ISDIR(st->stx_mode) &&
        file_get_handle(fd, "", &handle) == 0) {
        CLEANUP_CLOSE int again = -1;
        fsys->handles = file_open_handle(fd, &handle, O_PATH | O_CLOEXEC, &again) == 0;
    }
    if (fsys->handles && !fsys->remote && features->watch)
        fsys->watched = features->watch(features->watch_ctx, fd) == 0;
    *ret_fsys = fsys;
    return 0;
}

static void fsys_free(struct fsys *fsys)
{
    close(fsys->mount_fd);
    free(fsys);
}

int fsys_list_new(int root_fd, const struct fsys_features *features,
                  struct fsys_list **ret_list)
{
    struct statx st;
    CLEANUP_CLOSE int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    int r = file_stat(fd, "", &st);
    if (r < 0)
        return r;
    CLEANUP_FREE struct fsys_list *list = calloc(1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    list->features = *features;
    r = examine(fd, &st, features, &list->root);
    if (r < 0)
        return r;
    STEAL_FD(fd);
    list->root->users = 1;
    atomic_init(&list->any_remote, list->root->remote);
    list->first = list->root;
    pthread_mutex_init(&list->lock, NULL);
    *ret_list = STEAL_PTR(list);
    return 0;
}

bool fsys_nth_id(struct fsys_list *list, unsigned n, uint8_t ret_id[FSYS_ID_SIZE])
{
    LOCK_FOR_SCOPE(&list->lock);
    const struct fsys *f = list->first;
    while (f && n-- > 0)
        f = f->next;
    if (f)
        memcpy(ret_id, f->id, FSYS_ID_SIZE);
    return f != NULL;
}

bool fsys_any_remote(const struct fsys_list *list)
{
    return atomic_load_explicit(&list->any_remote, memory_order_relaxed);
}

void fsys_list_free(struct fsys_list *list)
{
    if (!list)
        return;
    while (list->first) {
        struct fsys *next = list->first->next;
        fsys_free(list->first);
        list->first = next;
    }
    pthread_mutex_destroy(&list->lock);
    free(list);
}

struct fsys *fsys_root(struct fsys_list *list)
{
    return list->root;
}

/* The one of device DEV, or NULL.  The caller holds the lock. */
static struct fsys *find_locked(struct fsys_list *list, uint64_t dev)
{
    struct fsys *f = list->first;

    while (f && f->dev != dev)
        f = f->next;
    return f;
}

/* The same with one user more. */
static struct fsys *find_and_ref(struct fsys_list *list, uint64_t dev)
{
    struct fsys *f = find_locked(list, dev);

    if (f)
        f->users++;
    return f;
}

struct fsys *fsys_find(struct fsys_list *list, const struct statx *st)
{
    LOCK_FOR_SCOPE(&list->lock);
    return find_locked(list, fsys_dev(st));
}

static int open_on_it(const struct statx *st, int dir_fd, const char *name, int *ret_fd)
{
    struct statx now;
    int flags = S_ISDIR(st->stx_mode) ? O_RDONLY | O_DIRECTORY : O_PATH;
    CLEANUP_CLOSE int fd = openat(dir_fd, *name ? name : ".", flags | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    int r = file_stat(fd, "", &now);
    if (r < 0)
        return r;
    if (fsys_dev(&now) != fsys_dev(st))
        return -ESTALE;
    *ret_fd = STEAL_FD(fd);
    return 0;
}

int fsys_get(struct fsys_list *list, const struct statx *st, int dir_fd, const char *name,
             struct fsys **ret_fsys)
{
    struct fsys *known;
    {
        LOCK_FOR_SCOPE(&list->lock);
        known = find_and_ref(list, fsys_dev(st));
    }
    if (known) {
        *ret_fsys = known;
        return 0;
    }

    CLEANUP_CLOSE int fd = -1;
    struct fsys *fsys;
    int r = open_on_it(st, dir_fd, name, &fd);
    if (r < 0)
        return r;
    r = examine(fd, st, &list->features, &fsys);
    if (r < 0)
        return r;
    STEAL_FD(fd);

    LOCK_FOR_SCOPE(&list->lock);
    known = find_and_ref(list, fsys->dev);
    if (known) { /* another thread was faster */
        fsys_free(fsys);
        *ret_fsys = known;
        return 0;
    }
    fsys->ino_prefix = choose_prefix(list, fsys);
    fsys->users = 1;
    if (fsys->remote)
        atomic_store(&list->any_remote, true);
    fsys->next = list->first;
    list->first = fsys;
    *ret_fsys = fsys;
    return 0;
}

void fsys_ref(struct fsys_list *list, struct fsys *fsys)
{
    LOCK_FOR_SCOPE(&list->lock);
    fsys->users++;
}

void fsys_unref(struct fsys_list *list, struct fsys *fsys)
{
    {
        LOCK_FOR_SCOPE(&list->lock);
        if (--fsys->users > 0)
            return;
        for (struct fsys **at = &list->first; *at; at = &(*at)->next) {
            if (*at == fsys) {
                *at = fsys->next;
                break;
            }
        }
    }
    fsys_free(fsys);
}
