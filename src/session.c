/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * session.c - one mount from its beginning to its end.
 *
 * Order: everything that can be refused is looked at before the mount is made, so that a
 * failure changes nothing.  The end, in reverse: unmount, forget all nodes, and last the index,
 * with its checkpoint.  The source is opened before the mount may cover it (a mount in place).
 *
 * Threads of the index must not take the signals that end the session: they are blocked until
 * libfuse's loop, whose main thread takes them.
 */
#include "session.h"

#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <xxhash.h>

#include "backing/case.h"
#include "common.h"
#include "fs/behind.h"
#include "fs/dentries.h"
#include "fs/dir.h"
#include "fs/fs.h"
#include "fs/open.h"
#include "fs/walk.h"
#include "log.h"
#include "path.h"

#define STATE_DIR   "/var/lib/foldfs"
#define FUSE_DEVICE "/dev/fuse"

/* Seconds between checkpoints: what is scanned again after a crash was changed since the last.
 */
#define CHECKPOINT_S 5

/* How long the end of the daemon before us is waited for: 5 s in steps of 50 ms. */
#define BUSY_PAUSE_NS 50000000L
#define BUSY_PAUSES   100u

/* A change by others is heard of within this time after it moved the directory's stamp. */
#define LAST_MOMENT_NS 20000000L

/* Of the descriptors that the process may have, this share is for files that nobody has open;
 * and no more than that many, since each keeps an inode of the backing file system in memory.
 */
#define REACH_SHARE 4
#define REACH_MAX   8192

/* What libfuse said last, while it is not certain that it matters. */
static char fuse_said[512];
static bool fuse_collecting;

/* Lines about what does not keep the tree from being served.  They wait until the mount
 * answers, so that a failure is the one line that says why. */
#define LATER_MAX 4
static struct {
    int priority;
    char *line;
} later[LATER_MAX];
static unsigned later_count;

/* The caller's ready function, put off until the lines above have been said. */
struct ready_call {
    void (*ready)(void *ctx);
    void *ctx;
};

static void say_later(int priority, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say_later(int priority, const char *format, ...)
{
    va_list args;

    if (later_count == LATER_MAX)
        return;
    later[later_count].priority = priority;
    va_start(args, format);
    if (vasprintf(&later[later_count].line, format, args) >= 0)
        later_count++;
    va_end(args);
}

static void forget_later(void)
{
    while (later_count > 0)
        free(later[--later_count].line);
}

static void mount_answers(void *ctx)
{
    const struct ready_call *call = ctx;

    for (unsigned i = 0; i < later_count; i++)
        log_line(later[i].priority, "%s", later[i].line);
    call->ready(call->ctx);
}

static void take_fuse_line(enum fuse_log_level level, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* libfuse gives a line in pieces; the newline ends it.  While it is collecting, only one thread
 * runs; later pieces of two threads may meet in one line. */
static void take_fuse_line(enum fuse_log_level level, const char *format, va_list args)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char line[sizeof(fuse_said)];
    static size_t len;

    LOCK_FOR_SCOPE(&lock);
    int n = vsnprintf(line + len, sizeof(line) - len, format, args);
    if (n > 0)
        len += (size_t)n < sizeof(line) - len ? (size_t)n : sizeof(line) - len - 1;
    if (len == 0 || (line[len - 1] != '\n' && len < sizeof(line) - 1))
        return;
    if (line[len - 1] == '\n')
        line[len - 1] = '\0';
    len = 0;
    if (fuse_collecting)
        memcpy(fuse_said, line, sizeof(line));
    else
        log_line((int)level, "%s", line);
}

static enum options_result failed(const char *what, const char *which, int r)
{
    log_line(LOG_ERR, "%s %s: %s", what, which, strerror(-r));
    return OPTIONS_FAILED;
}

/* Is foldfs mounted there already?  A second mount would show the first one's names, slower. */
static bool is_mounted(const char *mountpoint)
{
    struct mntent *entry;
    bool found = false;
    FILE *mounts = setmntent("/proc/self/mounts", "r");

    if (!mounts)
        return false;
    while ((entry = getmntent(mounts)))
        if (strcmp(entry->mnt_dir, mountpoint) == 0)
            found = strcmp(entry->mnt_type, "fuse.foldfs") == 0;
    endmntent(mounts);
    return found;
}

/* Descriptors: as many as we may have. */
static unsigned raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    rlim_t share = limit.rlim_cur / REACH_SHARE;
    return share < REACH_MAX ? (unsigned)share : REACH_MAX;
}

/* The name of a tree's index: what identifies its root directory. */
static int tree_id(const struct foldfs *fs, char ret_id[33])
{
    const struct fsys *root = fsys_root(fs->fsys_list);
    struct file_handle_buffer handle;

    if (!root->has_id || !root->handles)
        return -EOPNOTSUPP;
    int r = file_get_handle(fs->root_fd, "", &handle);
    if (r < 0)
        return r;
    unsigned char identity[FSYS_ID_SIZE + MAX_HANDLE_SZ];
    memcpy(identity, root->id, FSYS_ID_SIZE);
    memcpy(identity + FSYS_ID_SIZE, handle.data, handle.bytes);
    XXH128_hash_t hash = XXH3_128bits(identity, FSYS_ID_SIZE + handle.bytes);
    snprintf(ret_id, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    return 0;
}

/* Where the index goes if no place was named, made as far as its parent; "" is in memory. */
static int default_index_path(const struct foldfs *fs, char *ret_path, size_t size)
{
    char id[33];

    if (tree_id(fs, id) < 0) {
        say_later(LOG_NOTICE, "%s: %s, so the index is kept in memory", fs->options->source,
                  creds_can_switch()
                      ? "this file system has no lasting identity"
                      : "what identifies a directory for good only root can see");
        ret_path[0] = '\0';
        return 0;
    }
    if (mkdir(STATE_DIR, 0700) < 0 && errno != EEXIST) {
        say_later(LOG_WARNING, "%s: %m; the index is kept in memory", STATE_DIR);
        ret_path[0] = '\0';
        return 0;
    }
    snprintf(ret_path, size, STATE_DIR "/%s", id);
    return 0;
}

/* GIVEN with the part that exists made absolute, since the daemon leaves its directory. */
static int absolute_index_path(const char *given, char *ret_path, size_t size)
{
    CLEANUP_FREE char *copy = strdup(given);

    if (!copy)
        return -ENOMEM;
    size_t len = strlen(copy);
    while (len > 1 && copy[len - 1] == '/')
        copy[--len] = '\0';
    char *slash = strrchr(copy, '/');
    const char *base = slash ? slash + 1 : copy;
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return -EINVAL;
    const char *parent = !slash ? "." : slash == copy ? "/" : copy;
    if (slash && slash != copy)
        *slash = '\0';
    CLEANUP_FREE char *resolved = realpath(parent, NULL);
    if (!resolved)
        return -errno;
    int n = snprintf(ret_path, size, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, base);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* The index in the tree itself would be listed, and change what it describes. */
static bool lies_in_source(const char *path, const char *source)
{
    char parent[PATH_MAX];

    snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    return path_same(path, source) || path_strictly_inside(path, source) ||
           path_same(parent, source) || path_strictly_inside(parent, source);
}

static const char *index_errno_text(int r)
{
    switch (r) {
    case -EBUSY:
        return "used by another foldfs; give this one another with -o index=DIR";
    case -EPERM:
        return "not owned by this user, or others may write to it; mode 0700 is expected";
    default:
        return strerror(-r);
    }
}

/* Opens the index.  The daemon of a mount that has just been unmounted may still be writing its
 * last checkpoint: it is waited for. */
static int open_index_at(struct foldfs *fs, const char *path)
{
    const struct index_options options = {
        .path = path, .checkpoint_s = CHECKPOINT_S, .settle = behind_settle, .settle_ctx = fs};
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_NS};

    for (unsigned n = 0;; n++) {
        int r = index_open(&options, &fs->index);
        if (r != -EBUSY || n == BUSY_PAUSES)
            return r;
        nanosleep(&pause, NULL);
    }
}

/* The place that nobody asked for does not keep the tree from being served. */
static bool may_fall_back(const char *given, int r)
{
    return !given && (r == -EROFS || r == -EACCES || r == -ENOTDIR || r == -ENOENT);
}

static enum options_result open_index(struct foldfs *fs)
{
    const char *given = fs->options->index;
    char path[PATH_MAX] = "";
    int r = 0;

    if (!given)
        r = default_index_path(fs, path, sizeof(path));
    else if (strcmp(given, "memory") != 0)
        r = absolute_index_path(given, path, sizeof(path));
    if (r < 0)
        return failed("index directory", given, r);
    if (path[0] && lies_in_source(path, fs->options->source)) {
        log_line(LOG_ERR,
                 "index directory %s: inside SOURCE %s; give one elsewhere with -o index=DIR",
                 path, fs->options->source);
        return OPTIONS_FAILED;
    }
    r = open_index_at(fs, path[0] ? path : NULL);
    if (may_fall_back(given, r)) {
        say_later(LOG_WARNING, "index directory %s: %s; the index is kept in memory", path,
                  strerror(-r));
        r = open_index_at(fs, NULL);
    }
    if (r < 0) {
        log_line(LOG_ERR, "index directory %s: %s", path, index_errno_text(r));
        return OPTIONS_FAILED;
    }
    r = behind_listen(fs);
    return r < 0 ? failed("SOURCE", fs->options->source, r) : OPTIONS_RUN;
}

/* Says so if the tree itself finds other spellings: then two that we tell apart are one there.
 */
static void warn_if_case_insensitive(const struct foldfs *fs)
{
    if (case_insensitive(fs->root_fd))
        say_later(
            LOG_WARNING,
            "%s: this file system finds other spellings by itself, by a rule of its own, which "
            "wins over Windows'",
            fs->options->source);
}

static enum options_result open_tree(struct foldfs *fs)
{
    const struct options *options = fs->options;
    const struct fsys_features features = {.no_handles = options->without.handles,
                                           .no_multigrain = options->without.multigrain,
                                           .watch = behind_add,
                                           .watch_ctx = fs};
    struct statx st;

    fs->root_fd = open(options->source, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fs->root_fd < 0)
        return failed("SOURCE", options->source, -errno);
    behind_start(fs);
    int r = fsys_list_new(fs->root_fd, &features, &fs->fsys_list);
    if (r == 0)
        r = file_stat(fs->root_fd, "", &st);
    if (r == 0)
        r = node_table_new(fs, fs->root_fd, &st, &fs->nodes);
    if (r == 0)
        r = reach_cache_new(raise_fd_limit(), &fs->reach);
    if (r == 0)
        r = slots_new(1, &fs->files);
    if (r == 0)
        r = slots_new(1, &fs->dirs);
    if (r == 0)
        r = deadline_pool_new(&fs->helpers);
    if (r < 0)
        return failed("SOURCE", options->source, r);
    int root_fd = fcntl(fs->root_fd, F_DUPFD_CLOEXEC, 0);
    if (root_fd < 0)
        return failed("SOURCE", options->source, -errno);
    r = reach_pin_root(fs, node_get(fs->nodes, NODE_ROOT_ID), root_fd);
    if (r < 0) {
        close(root_fd);
        return failed("SOURCE", options->source, r);
    }
    warn_if_case_insensitive(fs);
    return OPTIONS_RUN;
}

static enum options_result open_session(struct foldfs *fs)
{
    struct fuse_args *args = (struct fuse_args *)&fs->options->fuse;

    fuse_set_log_func(take_fuse_line);
    fuse_collecting = true;
    fs->session = fuse_session_new(args, &fs_ops, sizeof(fs_ops), fs);
    fuse_collecting = false;
    if (fs->session)
        return OPTIONS_RUN;
    log_line(LOG_ERR, "%s", fuse_said[0] ? fuse_said : "wrong options");
    return OPTIONS_USAGE;
}

/* For the reason that libfuse gave last. */
static enum options_result cannot_mount(const struct foldfs *fs)
{
    log_line(LOG_ERR, "cannot mount on %s: %s", fs->options->mountpoint,
             fuse_said[0] ? fuse_said : "libfuse does not say why; is fusermount3 there?");
    return OPTIONS_FAILED;
}

/* What would keep us from mounting, looked for before anything is changed. */
static enum options_result check_mountable(const struct foldfs *fs)
{
    const char *mountpoint = fs->options->mountpoint;

    if (is_mounted(mountpoint)) {
        log_line(LOG_ERR, "MOUNTPOINT %s: foldfs is mounted there already", mountpoint);
        return OPTIONS_FAILED;
    }
    CLEANUP_CLOSE int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return OPTIONS_RUN;
    snprintf(fuse_said, sizeof(fuse_said), FUSE_DEVICE ": %s", strerror(errno));
    return cannot_mount(fs);
}

/* The last line in the file FD, if there is one, becomes what libfuse has said. */
static void take_last_line(int fd)
{
    char text[sizeof(fuse_said)];
    off_t end = lseek(fd, 0, SEEK_END);
    off_t start = end < (off_t)sizeof(text) ? 0 : end - (off_t)sizeof(text) + 1;
    ssize_t n = pread(fd, text, sizeof(text) - 1, start);

    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n <= 0)
        return;
    text[n] = '\0';
    const char *newline = strrchr(text, '\n');
    snprintf(fuse_said, sizeof(fuse_said), "%s", newline ? newline + 1 : text);
}

/* Where we may not mount, libfuse has fusermount3 do it, which writes on stderr itself: why it
 * did not, or what it did not like although it did.  It is heard to its end. */
static int mount_hearing(struct foldfs *fs)
{
    CLEANUP_CLOSE int heard = memfd_create("fusermount3", MFD_CLOEXEC);
    CLEANUP_CLOSE int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    bool hearing = heard >= 0 && saved >= 0 && dup2(heard, STDERR_FILENO) >= 0;

    fuse_said[0] = '\0';
    fuse_collecting = true;
    int r = fuse_session_mount(fs->session, fs->options->mountpoint);
    fuse_collecting = false;
    if (hearing) {
        dup2(saved, STDERR_FILENO);
        take_last_line(heard);
    }
    return r;
}

static enum options_result mount_session(struct foldfs *fs)
{
    if (mount_hearing(fs) < 0)
        return cannot_mount(fs);
    if (fuse_said[0])
        say_later(LOG_WARNING, "%s", fuse_said);
    return OPTIONS_RUN;
}

static enum options_result serve(struct foldfs *fs)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();

    if (!config)
        return failed("MOUNTPOINT", fs->options->mountpoint, -ENOMEM);
    fuse_loop_cfg_set_max_threads(config, fs->options->threads);
    fuse_loop_cfg_set_idle_threads(config, fs->options->threads);
    int r = fuse_session_loop_mt(fs->session, config);
    fuse_loop_cfg_destroy(config);
    if (r < 0)
        return failed("serving", fs->options->mountpoint, r);
    return fs->refused ? OPTIONS_FAILED : OPTIONS_DONE;
}

static void block_signals(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(how, &set, NULL);
}

/* Mounted to unmounted. */
static enum options_result run_mounted(struct foldfs *fs)
{
    enum options_result result = mount_session(fs);

    if (result != OPTIONS_RUN)
        return result;
    (void)walk_device(fs->options->mountpoint, &fs->shown_dev);
    int r = dentries_start(fs);
    block_signals(SIG_UNBLOCK);
    if (r < 0) {
        result = failed("serving", fs->options->mountpoint, r);
    } else if (fuse_set_signal_handlers(fs->session) == 0) {
        result = serve(fs);
        fuse_remove_signal_handlers(fs->session);
    } else {
        result = failed("signal handlers for", fs->options->mountpoint, -errno);
    }
    dentries_stop(fs);
    behind_stop_notifying(fs);
    deadline_pool_free(STEAL_PTR(fs->helpers)); /* it may answer, up to here */
    fuse_session_unmount(fs->session);
    return result;
}

/* The last checkpoint takes the directories as they are; who changed one in this moment is
 * given the time to be heard. */
static void hear_the_last(struct foldfs *fs)
{
    const struct timespec moment = {.tv_nsec = LAST_MOMENT_NS};

    if (fs->watch && fs->index)
        nanosleep(&moment, NULL);
    behind_stop_listening(fs);
}

static void close_all(struct foldfs *fs)
{
    deadline_pool_free(fs->helpers);
    if (fs->session)
        fuse_session_destroy(fs->session);
    fs_close_files(fs);
    dir_close_all(fs);
    node_table_free(fs->nodes);
    reach_cache_free(fs->reach);
    hear_the_last(fs);
    index_close(fs->index);
    behind_end(fs);
    fsys_list_free(fs->fsys_list);
    if (fs->root_fd >= 0)
        close(fs->root_fd);
}

enum options_result session_run(const struct options *options, void (*ready)(void *ctx),
                                void *ctx)
{
    struct ready_call call = {ready, ctx};
    struct foldfs fs = {
        .options = options, .root_fd = -1, .ready = mount_answers, .ready_ctx = &call};

    creds_start();
    block_signals(SIG_BLOCK);
    enum options_result result = open_session(&fs);
    if (result == OPTIONS_RUN)
        result = check_mountable(&fs);
    if (result == OPTIONS_RUN)
        result = open_tree(&fs);
    if (result == OPTIONS_RUN)
        result = open_index(&fs);
    if (result == OPTIONS_RUN)
        result = run_mounted(&fs);
    close_all(&fs);
    forget_later();
    return result;
}
