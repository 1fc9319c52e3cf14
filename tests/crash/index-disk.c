/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-disk.c - a disk that forgets; see index-disk.h.
 *
 * Kept for each inode below the watched folder: its bytes at its last sync, and up to
 * VERSIONS_MAX later moments.  Kept for each folder: the entries at its last fsync.  A sync
 * drops the older versions of that inode.  Folders are two deep, as index directories are.
 *
 * Threads: fsync and fdatasync come from any thread of the index; one lock guards all.
 */
#include "index-disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define INODES_MAX   256
#define FOLDERS_MAX  64
#define ENTRIES_MAX  32
#define VERSIONS_MAX 6
#define PAGE         4096u
#define SECTOR       512u

struct version {
    uint8_t *data;
    size_t len;
};

struct inode {
    ino_t ino;
    bool synced; /* versions[0] is what the last sync made durable */
    unsigned n;
    struct version versions[VERSIONS_MAX];
};

struct folder_entry {
    char name[40];
    ino_t ino;
    bool is_folder;
};

struct folder {
    ino_t ino;
    unsigned n;
    struct folder_entry entries[ENTRIES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *watched;
static dev_t device;
static struct inode inodes[INODES_MAX];
static unsigned n_inodes;
static struct folder folders[FOLDERS_MAX];
static unsigned n_folders;
static struct disk_stats stats;

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

/* ---- reading what is there now ---- */

static bool read_version(int fd, struct version *ret_version)
{
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return false;
    ret_version->data = malloc((size_t)st.st_size + 1);
    if (!ret_version->data)
        abort();
    n = pread(fd, ret_version->data, (size_t)st.st_size, 0);
    if (n < 0) {
        free(ret_version->data);
        return false;
    }
    ret_version->len = (size_t)n;
    return true;
}

static void read_entries(const char *path, struct folder *ret_folder)
{
    DIR *dir = opendir(path);
    struct stat st;

    ret_folder->n = 0;
    if (!dir)
        return;
    if (fstat(dirfd(dir), &st) == 0)
        ret_folder->ino = st.st_ino;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        struct folder_entry *entry = &ret_folder->entries[ret_folder->n];

        if (e->d_name[0] == '.' || strcmp(e->d_name, "lock") == 0)
            continue;
        if (ret_folder->n == ENTRIES_MAX || strlen(e->d_name) >= sizeof(entry->name))
            abort();
        memcpy(entry->name, e->d_name, strlen(e->d_name) + 1);
        entry->ino = e->d_ino;
        entry->is_folder = e->d_type == DT_DIR;
        ret_folder->n++;
    }
    closedir(dir);
}

/* ---- what is kept; the lock is held ---- */

static struct inode *find_inode(ino_t ino)
{
    for (unsigned i = 0; i < n_inodes; i++) {
        if (inodes[i].ino == ino)
            return &inodes[i];
    }
    return NULL;
}

static struct inode *keep_inode(ino_t ino)
{
    struct inode *inode = find_inode(ino);

    if (inode)
        return inode;
    if (n_inodes == INODES_MAX)
        abort();
    inode = &inodes[n_inodes++];
    *inode = (struct inode){.ino = ino};
    return inode;
}

static void drop_versions(struct inode *inode)
{
    for (unsigned i = 0; i < inode->n; i++)
        free(inode->versions[i].data);
    inode->n = 0;
    inode->synced = false;
}

/* With no room left the one after the synced one is replaced: old ones are worth most. */
static void keep_version(struct inode *inode, struct version version)
{
    if (inode->n == VERSIONS_MAX) {
        free(inode->versions[VERSIONS_MAX - 1].data);
        inode->n--;
    }
    inode->versions[inode->n++] = version;
}

static void keep_synced(ino_t ino, struct version version)
{
    struct inode *inode = keep_inode(ino);

    drop_versions(inode);
    keep_version(inode, version);
    inode->synced = true;
}

static struct folder *find_folder(ino_t ino)
{
    for (unsigned i = 0; i < n_folders; i++) {
        if (folders[i].ino == ino)
            return &folders[i];
    }
    return NULL;
}

static void keep_folder(const struct folder *folder)
{
    struct folder *kept = find_folder(folder->ino);

    if (!kept) {
        if (n_folders == FOLDERS_MAX)
            abort();
        kept = &folders[n_folders++];
    }
    *kept = *folder;
}

/* Calls FN for each file below PATH as it is now. */
static void for_each_file(const char *path, void (*fn)(const char *path, ino_t ino))
{
    struct folder folder = {0};
    char inner[4096];

    read_entries(path, &folder);
    for (unsigned i = 0; i < folder.n; i++) {
        snprintf(inner, sizeof(inner), "%s/%s", path, folder.entries[i].name);
        if (folder.entries[i].is_folder)
            for_each_file(inner, fn);
        else
            fn(inner, folder.entries[i].ino);
    }
}

/* An inode number that was given to another file since: the file is then shorter lived than a
 * sync, so what was kept of it is dropped when its folder no longer has it. */
static void look_at_file(const char *path, ino_t ino)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct version version;

    if (fd >= 0 && read_version(fd, &version))
        keep_version(keep_inode(ino), version);
}

static void take_for_synced(const char *path, ino_t ino)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct version version;

    if (fd >= 0 && read_version(fd, &version))
        keep_synced(ino, version);
}

/* ---- the wrapped calls ---- */

static bool is_watched(int fd, struct stat *ret_st)
{
    char link[64], path[4096];
    ssize_t n;

    if (!watched || fstat(fd, ret_st) < 0 || ret_st->st_dev != device)
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return false;
    path[n] = 0;
    return strncmp(path, watched, strlen(watched)) == 0;
}

static void synced(int fd, const struct stat *st)
{
    struct version version;
    char link[64];
    struct folder folder = {0};

    stats.syncs++;
    if (S_ISDIR(st->st_mode)) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        read_entries(link, &folder);
        keep_folder(&folder);
        return;
    }
    if (read_version(fd, &version))
        keep_synced(st->st_ino, version);
}

/* The bytes are read before the call: what is written during it need not be durable. */
static int sync_and_keep(int fd, int (*real)(int))
{
    LOCK_FOR_SCOPE(&lock);
    struct stat st;

    if (is_watched(fd, &st))
        synced(fd, &st);
    return real(fd);
}

int __wrap_fsync(int fd)
{
    return sync_and_keep(fd, __real_fsync);
}

int __wrap_fdatasync(int fd)
{
    return sync_and_keep(fd, __real_fdatasync);
}

/* ---- the interface ---- */

static void keep_folders(const char *path)
{
    struct folder folder = {0};
    char inner[4096];

    read_entries(path, &folder);
    keep_folder(&folder);
    for (unsigned i = 0; i < folder.n; i++) {
        snprintf(inner, sizeof(inner), "%s/%s", path, folder.entries[i].name);
        if (folder.entries[i].is_folder)
            keep_folders(inner);
    }
}

void disk_watch(const char *folder)
{
    LOCK_FOR_SCOPE(&lock);
    struct stat st;

    watched = realpath(folder, NULL);
    if (!watched || stat(folder, &st) < 0)
        abort();
    device = st.st_dev;
    keep_folders(watched);
    for_each_file(watched, take_for_synced);
}

void disk_forget(void)
{
    LOCK_FOR_SCOPE(&lock);

    for (unsigned i = 0; i < n_inodes; i++)
        drop_versions(&inodes[i]);
    n_inodes = n_folders = 0;
    free(watched);
    watched = NULL;
}

void disk_look(void)
{
    LOCK_FOR_SCOPE(&lock);

    stats.looks++;
    for_each_file(watched, look_at_file);
}

void disk_get_stats(struct disk_stats *ret_stats)
{
    LOCK_FOR_SCOPE(&lock);

    *ret_stats = stats;
}

/* ---- the crash ---- */

static const struct version *pick(const struct inode *inode, enum disk_mix mix, struct rng *rng)
{
    if (mix == DISK_SYNCED)
        return &inode->versions[0];
    if (mix == DISK_NEWEST)
        return &inode->versions[inode->n - 1];
    return &inode->versions[rng_below(rng, inode->n)];
}

/* A file that was never synced may be there with any length, or empty. */
static void compose(const struct inode *inode, enum disk_mix mix, struct rng *rng,
                    struct file_bytes *ret_file)
{
    const struct version *one = pick(inode, mix, rng);
    size_t piece = mix == DISK_SECTORS ? SECTOR : PAGE;

    ret_file->len = one->len;
    if (!inode->synced && (mix == DISK_SYNCED || rng_once_in(rng, 4)))
        ret_file->len = 0;
    ret_file->data = calloc(1, ret_file->len + 1);
    if (!ret_file->data)
        abort();
    for (size_t at = 0; at < ret_file->len; at += piece) {
        const struct version *from = one;
        size_t len = piece;

        if (mix == DISK_PAGES || mix == DISK_SECTORS)
            from = pick(inode, mix, rng);
        if (at >= from->len)
            continue;
        if (len > from->len - at)
            len = from->len - at;
        if (len > ret_file->len - at)
            len = ret_file->len - at;
        memcpy(ret_file->data + at, from->data + at, len);
    }
}

/* The entries that PATH has after the crash: as last synced, or as they are. */
static void pick_entries(const char *path, enum disk_mix mix, struct rng *rng,
                         struct folder *ret_folder)
{
    const struct folder *kept;

    read_entries(path, ret_folder);
    kept = find_folder(ret_folder->ino);
    if (mix == DISK_NEWEST || (mix != DISK_SYNCED && rng_once_in(rng, 2)))
        return;
    if (kept)
        *ret_folder = *kept;
    else
        ret_folder->n = 0;
}

static void compose_folder(const char *path, const char *below, enum disk_mix mix,
                           struct rng *rng, struct file_set *set)
{
    struct folder folder = {0};
    char inner[4096], name[300];

    pick_entries(path, mix, rng, &folder);
    for (unsigned i = 0; i < folder.n; i++) {
        const struct folder_entry *e = &folder.entries[i];
        const struct inode *inode = find_inode(e->ino);

        snprintf(name, sizeof(name), "%s%s%s", below, *below ? "/" : "", e->name);
        snprintf(inner, sizeof(inner), "%s/%s", path, e->name);
        if (e->is_folder) {
            compose_folder(inner, name, mix, rng, set);
            continue;
        }
        if (!inode || !inode->n)
            continue;
        if (set->n == INDEX_FILES_MAX || strlen(name) >= sizeof(set->files[0].path))
            abort();
        memcpy(set->files[set->n].path, name, strlen(name) + 1);
        compose(inode, mix, rng, &set->files[set->n++]);
    }
}

void disk_crash(enum disk_mix mix, struct rng *rng, struct file_set *ret_set)
{
    disk_look();
    LOCK_FOR_SCOPE(&lock);
    ret_set->n = 0;
    compose_folder(watched, "", mix, rng, ret_set);
}
