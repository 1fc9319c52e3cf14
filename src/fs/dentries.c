/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * dentries.c - which names the kernel may keep, and for how long.
 *
 * The kernel's dentries know nothing of spellings: when FOO is removed, a dentry foo of the
 * same entry stays, and an open(foo, O_CREAT) would write into the file that is gone.  So a
 * name may only be kept if whatever makes it wrong also ends it.
 *
 * strict: directories only.  The kernel has one dentry for a directory, whatever the spelling,
 * so that a change by any name finds it.  All others are asked for at every use.
 *
 * fast: besides, every name that is exactly the entry's own.  A change by that name ends the
 * kernel's dentry by itself; a change by another spelling, which is rare, makes all dentries
 * stale at once before it is answered (FUSE_NOTIFY_INC_EPOCH, Linux 6.16, which needs no lock
 * and may be called from a request).  A look-up that was under way then is stale too, since the
 * kernel reads the epoch before it asks (fs/fuse/dir.c: fuse_lookup); readdirplus holds the
 * directory's lock, which the change needs.  No absent name is ever kept.
 *
 * What others change in the tree makes all dentries stale too, a little later (notifier.c).
 *
 * Stale dentries take with them what is mounted on them.  So auto is strict while anything is
 * mounted inside of the mount; a thread watches this mount namespace's table (proc(5)) for
 * that.  Names that were kept just before may live on for the timeout, and until then the epoch
 * is counted up as before: a mount that has just been made is then lost rather than a file.
 */
#include "fs/dentries.h"

#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "common.h"
#include "fault.h"
#include "log.h"

/* Notifications that older headers do not have. */
#define NOTIFY_INC_EPOCH  8
#define EPOCH_SINCE_MINOR 44

int dentries_init(struct foldfs *fs, const struct fuse_conn_info *conn)
{
    bool has_epoch = conn->proto_minor >= EPOCH_SINCE_MINOR;

    if (fs->options->cache == CACHE_FAST && !has_epoch)
        return -EOPNOTSUPP;
    atomic_store(&fs->may_be_fast, fs->options->cache != CACHE_STRICT && has_epoch);
    return 0;
}

bool dentries_are_kept(const struct foldfs *fs)
{
    return atomic_load_explicit(&fs->may_be_fast, memory_order_relaxed) &&
           !atomic_load_explicit(&fs->mounted_inside, memory_order_acquire);
}

double dentries_timeout(const struct foldfs *fs, const struct node *node,
                        enum index_match match)
{
    if (node_is_dir(node) || fault_is("naive") ||
        (match == INDEX_EXACT && dentries_are_kept(fs)))
        return fs->options->entry_timeout;
    return 0;
}

/* May names be kept that the kernel got while the scheme was fast? */
static bool may_be_kept(const struct foldfs *fs)
{
    if (!atomic_load(&fs->may_be_fast))
        return false;
    return dentries_are_kept(fs) ||
           (double)(monotonic_ns() - atomic_load(&fs->mounted_inside_ns)) <=
               fs->options->entry_timeout * 1e9;
}

static void make_all_stale(struct foldfs *fs)
{
    struct fuse_out_header notice = {.len = sizeof(notice), .error = NOTIFY_INC_EPOCH};
    const struct iovec iov = {.iov_base = &notice, .iov_len = sizeof(notice)};

    if (writev(fuse_session_fd(fs->session), &iov, 1) < 0 && errno != ENODEV)
        log_line(LOG_ERR, "the kernel cannot be told to look up names again: %m");
}

void dentries_changed_by(struct foldfs *fs, enum index_match match)
{
    if (match == INDEX_VARIANT && may_be_kept(fs) && !fault_is("epoch"))
        make_all_stale(fs);
}

/* ---- mounts inside ---- */

/* The end of the path that ends before the next blank in TEXT, with \ooo made bytes, in place.
 */
static char *unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from && *from != ' '; to++) {
        unsigned byte;

        if (*from == '\\' && sscanf(from + 1, "%3o", &byte) == 1) {
            *to = (char)byte;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
    return to;
}

/* Is the mount of LINE of mountinfo inside of DIR? */
static bool is_inside(char *line, const char *dir)
{
    int at = 0;
    size_t len = strlen(dir);

    if (sscanf(line, "%*d %*d %*s %*s %n", &at) < 0 || at == 0)
        return false;
    (void)unescape(line + at);
    return strncmp(line + at, dir, len) == 0 && line[at + (int)len] == '/';
}

static bool look_inside(FILE *mounts, const char *dir)
{
    CLEANUP_FREE char *line = NULL;
    size_t size = 0;
    bool inside = false;

    rewind(mounts);
    while (getline(&line, &size, mounts) > 0)
        inside |= is_inside(line, dir);
    return inside;
}

static void set_inside(struct foldfs *fs, bool inside)
{
    if (inside && !atomic_load(&fs->mounted_inside))
        atomic_store(&fs->mounted_inside_ns, monotonic_ns());
    atomic_store(&fs->mounted_inside, inside);
}

/* For the mounts of this moment, of which the thread may not have heard yet. */
static bool is_anything_inside(const struct foldfs *fs)
{
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    bool inside = !mounts || look_inside(mounts, fs->options->mountpoint);

    if (mounts)
        fclose(mounts);
    return inside;
}

void dentries_changed_behind(struct foldfs *fs)
{
    if (!dentries_are_kept(fs) || fault_is("epoch"))
        return;
    if (fs->options->cache != CACHE_AUTO || !is_anything_inside(fs))
        make_all_stale(fs);
}

static void *watch_mounts(void *arg)
{
    struct foldfs *fs = arg;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    struct pollfd fds[] = {{.fd = fs->mounts_stop_fd[0], .events = POLLIN},
                           {.fd = mounts ? fileno(mounts) : -1, .events = POLLPRI}};

    if (!mounts)
        set_inside(fs, true); /* for all we know */
    while (!fds[0].revents) {
        if (mounts)
            set_inside(fs, look_inside(mounts, fs->options->mountpoint));
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            break;
    }
    if (mounts)
        fclose(mounts);
    return NULL;
}

int dentries_start(struct foldfs *fs)
{
    if (fs->options->cache != CACHE_AUTO)
        return 0;
    if (pipe2(fs->mounts_stop_fd, O_CLOEXEC) < 0)
        return -errno;
    int r = -pthread_create(&fs->mounts_thread, NULL, watch_mounts, fs);
    fs->mounts_watched = r == 0;
    return r;
}

void dentries_stop(struct foldfs *fs)
{
    if (!fs->mounts_watched)
        return;
    close(fs->mounts_stop_fd[1]);
    pthread_join(fs->mounts_thread, NULL);
    close(fs->mounts_stop_fd[0]);
    fs->mounts_watched = false;
}
