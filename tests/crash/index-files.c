/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * index-files.c - index files as bytes; see index-files.h.
 *
 * The only thing known here of what the bytes mean is where the manifest keeps the boot's id.
 */
#include "index-files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "index/format.h"

static void die(const char *what, const char *path)
{
    fprintf(stderr, "%s %s: %m\n", what, path);
    exit(EXIT_FAILURE);
}

static void read_file(int dirfd, const char *name, struct file_bytes *ret_file)
{
    CLEANUP_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        die("read", name);
    ret_file->data = malloc((size_t)st.st_size + 1);
    if (!ret_file->data)
        abort();
    n = pread(fd, ret_file->data, (size_t)st.st_size, 0);
    if (n < 0)
        die("read", name);
    ret_file->len = (size_t)n;
}

static void read_folder(const char *folder, const char *below, struct file_set *set)
{
    char path[4096];
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s", folder, below);
    dir = opendir(path);
    if (!dir)
        die("opendir", path);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        struct file_bytes *file = &set->files[set->n];
        char inner[300];

        if (e->d_name[0] == '.' || strcmp(e->d_name, "lock") == 0)
            continue;
        snprintf(inner, sizeof(inner), "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (e->d_type == DT_DIR) {
            read_folder(folder, inner, set);
            continue;
        }
        if (set->n == INDEX_FILES_MAX || strlen(inner) >= sizeof(file->path))
            abort();
        memcpy(file->path, inner, strlen(inner) + 1);
        read_file(dirfd(dir), e->d_name, file);
        set->n++;
    }
    closedir(dir);
}

void file_set_read(const char *folder, struct file_set *ret_set)
{
    ret_set->n = 0;
    read_folder(folder, "", ret_set);
}

void file_set_write(const struct file_set *set, const char *folder)
{
    char path[4096];

    if (mkdir(folder, 0700) < 0)
        die("mkdir", folder);
    for (unsigned i = 0; i < set->n; i++) {
        const struct file_bytes *file = &set->files[i];
        char *slash;
        int fd;

        snprintf(path, sizeof(path), "%s/%s", folder, file->path);
        slash = strrchr(path, '/');
        *slash = 0;
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            die("mkdir", path);
        *slash = '/';
        fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, file->data, file->len) != (ssize_t)file->len)
            die("write", path);
        close(fd);
    }
}

void file_set_copy(const struct file_set *from, struct file_set *ret_set)
{
    *ret_set = *from;
    for (unsigned i = 0; i < from->n; i++) {
        ret_set->files[i].data = malloc(from->files[i].len + 1);
        if (!ret_set->files[i].data)
            abort();
        memcpy(ret_set->files[i].data, from->files[i].data, from->files[i].len);
    }
}

void file_set_free(struct file_set *set)
{
    for (unsigned i = 0; i < set->n; i++)
        free(set->files[i].data);
    set->n = 0;
}

struct file_bytes *file_set_find(struct file_set *set, const char *path)
{
    for (unsigned i = 0; i < set->n; i++) {
        if (strcmp(set->files[i].path, path) == 0)
            return &set->files[i];
    }
    return NULL;
}

void file_set_reboot(struct file_set *set, struct rng *rng)
{
    struct file_bytes *file = file_set_find(set, "manifest");
    struct manifest m;

    if (!file || file->len < sizeof(m))
        return;
    memcpy(&m, file->data, sizeof(m));
    snprintf(m.boot_id, sizeof(m.boot_id), "another-boot-%016llx",
             (unsigned long long)rng_next(rng));
    m.check = XXH3_64bits(&m, offsetof(struct manifest, check));
    memcpy(file->data, &m, sizeof(m));
}

char *fast_folder(const char *what)
{
    struct stat st;

    if (!getenv("TMPDIR") && stat("/dev/shm", &st) == 0 && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    return temp_folder(what);
}
