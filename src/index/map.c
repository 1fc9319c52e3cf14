/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * map.c - files that are mapped for good, and never a SIGBUS.
 *
 * A page of a mapped file that has no block yet gets one when it is first written, and if the
 * disk is full at that moment the process gets SIGBUS.  So blocks are allocated here, before
 * anything is written, and nobody touches what lies beyond `size`.  More address space than
 * that is mapped at once: a file grows under its mapping, which never moves.
 *
 * A map without a directory lives in a memfd, which behaves alike: the index in memory is the
 * same code.
 *
 * Left out: shrinking, and files that somebody else cuts while they are mapped (the folder is
 * ours alone, mode 0700).
 */
#include "index/internal.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

int read_at(int fd, void *buffer, size_t len, uint64_t offset)
{
    char *to = buffer;

    while (len > 0) {
        ssize_t n = pread(fd, to, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EUCLEAN;
        to += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int write_at(int fd, const void *buffer, size_t len, uint64_t offset)
{
    const char *from = buffer;

    while (len > 0) {
        ssize_t n = pwrite(fd, from, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        from += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* On btrfs an allocated block is copied when it is written, which needs another one; unless the
 * file is marked so while it is empty.  Elsewhere this fails, which does not matter. */
static void no_copy_on_write(int fd)
{
    int flags;

    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_NOCOW_FL)) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

static int allocate(int fd, uint64_t from, uint64_t to)
{
    int r;

    if (from >= to)
        return 0;
    do {
        r = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
    } while (r == EINTR);
    return -r;
}

int file_create(int dirfd, const char *name, uint64_t size)
{
    CLEANUP_CLOSE int fd = -1;

    if (dirfd < 0)
        fd = memfd_create("foldfs-index", MFD_CLOEXEC);
    else
        fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    no_copy_on_write(fd);
    int r = allocate(fd, 0, size);
    if (r < 0) {
        if (dirfd >= 0)
            (void)unlinkat(dirfd, name, 0);
        return r;
    }
    return STEAL_FD(fd);
}

static int map_fd(int fd, uint64_t size, uint64_t span, struct map *ret_map)
{
    void *base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (base == MAP_FAILED)
        return -errno;
    /* Look-ups jump about: reading ahead would only push other pages out. */
    (void)madvise(base, span, MADV_RANDOM);
    ret_map->fd = fd;
    ret_map->base = base;
    ret_map->span = span;
    atomic_init(&ret_map->size, size);
    return 0;
}

int map_create(int dirfd, const char *name, uint64_t size, uint64_t span, struct map *ret_map)
{
    int fd = file_create(dirfd, name, size);

    if (fd < 0)
        return fd;
    int r = map_fd(fd, size, span, ret_map);
    if (r < 0)
        close(fd);
    return r;
}

int map_open(int dirfd, const char *name, uint64_t span, struct map *ret_map)
{
    CLEANUP_CLOSE int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)HEADER_BYTES || st.st_size % UNIT != 0)
        return -EUCLEAN;
    uint64_t size = (uint64_t)st.st_size;
    /* A file that was cut and stretched again has holes, and a hole may become a SIGBUS. */
    int r = (uint64_t)st.st_blocks * 512 < size ? allocate(fd, 0, size) : 0;
    if (r < 0)
        return r;
    r = map_fd(fd, size, span > size ? span : size, ret_map);
    if (r == 0)
        fd = -1;
    return r;
}

int map_grow(struct map *map, uint64_t size)
{
    uint64_t old = atomic_load(&map->size);

    if (size <= old)
        return 0;
    if (size > map->span)
        return -ENOSPC;
    int r = allocate(map->fd, old, size);
    if (r < 0)
        return r;
    atomic_store(&map->size, size);
    return 0;
}

int map_sync(const struct map *map)
{
    /* The pages of a shared mapping are pages of the file: this writes them too. */
    return fdatasync(map->fd) < 0 ? -errno : 0;
}

void map_close(struct map *map)
{
    if (map->base)
        (void)munmap(map->base, map->span);
    if (map->fd >= 0)
        close(map->fd);
    map->base = NULL;
    map->fd = -1;
}

uint64_t file_bytes(int fd)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return 0;
    return (uint64_t)st.st_blocks * 512;
}
