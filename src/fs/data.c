/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * data.c - READ, WRITE, FLUSH, FSYNC, FALLOCATE, LSEEK and COPY_FILE_RANGE.
 *
 * READ and WRITE only come for files that are not in passthrough mode.  They use the descriptor
 * of that open, so O_APPEND and O_SYNC do what they say.  Writing is done as the caller:
 * quota and reserved blocks bind as they bind him, and setuid bits are cleared as the kernel
 * asks.  A plain buffer a thread: splice was slower throughout (F3).
 */
#include "fs/data.h"

#include <stdlib.h>

#include "common.h"
#include "fs/open.h"

/* A thread's buffer for READ, as large as the largest read so far; freed with the thread. */
struct read_buffer {
    char *bytes;
    size_t size;
};

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

static void free_buffer(void *pointer)
{
    struct read_buffer *buffer = pointer;

    free(buffer->bytes);
    free(buffer);
}

static void make_buffer_key(void)
{
    (void)pthread_key_create(&buffer_key, free_buffer);
}

/* SIZE bytes that are this thread's until its next call; NULL: no memory. */
static char *read_buffer(size_t size)
{
    pthread_once(&buffer_once, make_buffer_key);
    struct read_buffer *buffer = pthread_getspecific(buffer_key);
    if (!buffer) {
        buffer = calloc(1, sizeof(*buffer));
        if (!buffer || pthread_setspecific(buffer_key, buffer) != 0) {
            free(buffer);
            return NULL;
        }
    }
    if (buffer->size < size) {
        free(buffer->bytes);
        buffer->bytes = malloc(size);
        buffer->size = buffer->bytes ? size : 0;
    }
    return buffer->bytes;
}

/* The open file of a request to which it does not matter whom the thread acts as.  NULL: REQ
 * was answered. */
static struct open_file *begin_looking(fuse_req_t req, const struct fuse_file_info *fi)
{
    struct foldfs *fs = fs_begin_looking(req);

    return fs ? fs_open_file(fs, req, fi) : NULL;
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
             struct fuse_file_info *fi)
{
    struct open_file *file = begin_looking(req, fi);

    (void)ino;
    if (!file)
        return;
    char *buffer = read_buffer(size);
    if (!buffer) {
        fs_reply(req, -ENOMEM);
        return;
    }
    ssize_t n = pread(file->fd, buffer, size, offset);
    if (n < 0)
        fs_reply(req, -errno);
    else
        fuse_reply_buf(req, buffer, (size_t)n);
}

/* The open file, with this thread acting as one whose change of the content clears setuid bits
 * if it must.  NULL: REQ was answered. */
static struct open_file *begin_changing(fuse_req_t req, const struct fuse_file_info *fi)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct foldfs *fs = fuse_req_userdata(req);
    struct open_file *file = fs_open_file(fs, req, fi);

    if (!file)
        return NULL;
    int r;
    if (!fs_must_kill(fs, req, fi))
        r = creds_act_as(ctx->uid, ctx->gid);
    else if (atomic_load(&atomic_load(&file->node->data)->setgid))
        r = fs_act_clearing_setid(req, file->fd);
    else
        r = creds_act_as_unprivileged(ctx->uid, ctx->gid);
    if (r < 0) {
        fs_reply(req, r);
        return NULL;
    }
    return file;
}

/* A program may set or clear O_APPEND after opening, of which only its writes tell. */
static int follow_append_flag(struct open_file *file, int flags)
{
    int append = flags & O_APPEND;

    if (atomic_load(&file->append) == append)
        return 0;
    int now = fcntl(file->fd, F_GETFL);
    if (now < 0 || fcntl(file->fd, F_SETFL, (now & ~O_APPEND) | append) < 0)
        return -errno;
    atomic_store(&file->append, append);
    return 0;
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
              struct fuse_file_info *fi)
{
    struct open_file *file = begin_changing(req, fi);

    (void)ino;
    if (!file)
        return;
    if (follow_append_flag(file, fi->flags) < 0) {
        fs_reply(req, -errno);
        return;
    }
    ssize_t n = pwrite(file->fd, data, size, offset);
    if (n < 0)
        fs_reply(req, -errno);
    else
        fuse_reply_write(req, (size_t)n);
}

/* Comes where closing may report what writing did not (remote file systems). */
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct open_file *file = begin_looking(req, fi);

    (void)ino;
    if (!file)
        return;
    int again = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if (again < 0 || close(again) < 0)
        fs_reply(req, -errno);
    else
        fs_reply(req, 0);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    struct open_file *file = begin_looking(req, fi);

    (void)ino;
    if (!file)
        return;
    int r = data_only ? fdatasync(file->fd) : fsync(file->fd);
    fs_reply(req, r < 0 ? -errno : 0);
}

/* The next two come without word on set-id bits: the caller's uid decides. */
static int act_by_uid(fuse_req_t req, int fd)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);

    return ctx->uid == 0 ? creds_act_as(ctx->uid, ctx->gid) : fs_act_clearing_setid(req, fd);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                  struct fuse_file_info *fi)
{
    struct open_file *file = begin_looking(req, fi);

    (void)ino;
    if (!file)
        return;
    int r = act_by_uid(req, file->fd);
    if (r == 0 && fallocate(file->fd, mode, offset, length) < 0)
        r = -errno;
    fs_reply(req, r);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t offset_in,
                        struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t offset_out,
                        struct fuse_file_info *fi_out, size_t length, int flags)
{
    struct open_file *in = begin_looking(req, fi_in);
    struct open_file *out = in ? begin_looking(req, fi_out) : NULL;

    (void)ino_in;
    (void)ino_out;
    if (!out)
        return;
    int r = act_by_uid(req, out->fd);
    ssize_t n = 0;
    if (r == 0) {
        n = copy_file_range(in->fd, &offset_in, out->fd, &offset_out, length, (unsigned)flags);
        r = n < 0 ? -errno : 0;
    }
    if (r < 0)
        fs_reply(req, r);
    else
        fuse_reply_write(req, (size_t)n);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
              struct fuse_file_info *fi)
{
    struct open_file *file = begin_looking(req, fi);

    (void)ino;
    if (!file)
        return;
    off_t at = lseek(file->fd, offset, whence);
    if (at < 0)
        fs_reply(req, -errno);
    else
        fuse_reply_lseek(req, at);
}
