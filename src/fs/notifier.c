/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * notifier.c - telling the kernel what others changed.
 *
 * The directory's attributes are to be asked for again; and where names of files are kept
 * (dentries.c), all names.  To expire one name alone would take the lock of its directory in
 * the kernel (fs/fuse/dir.c: fuse_reverse_inval_entry), under which others wait for answers of
 * ours: a daemon that is killed while a thread of it waits there keeps its connection, and all
 * who wait on it, for ever.  What is told here needs no lock that a request holds.  Names of
 * directories live for their timeout.
 *
 * A thread of its own, so that much told at once costs little: each directory waits once in a
 * table, and there is a pause between two rounds.
 *
 * Lock: one, held for a moment; it is innermost.
 */
/* Without memory the hash table refuses the entry instead of ending the process. */
#define HASH_NONFATAL_OOM            1
#define uthash_nonfatal_oom(element) ((element)->refused = true)
#include "fs/notifier.h"

#include <pthread.h>
#include <time.h>

#include "common.h"
#include "fs/dentries.h"
#include "fs/fs.h"

/* Directories that wait, at most; others are asked for again after their timeout. */
#define WAITING_MAX 100000u

/* Between two rounds. */
#define PAUSE_NS 20000000L

struct notice {
    UT_hash_handle hh;
    bool refused;
    uint64_t parent;
};

struct notifier {
    struct foldfs *fs;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    struct notice *waiting;
    bool stop;
    bool is_joined; /* of the one who ends it */
};

static void free_all(struct notice *all)
{
    struct notice *notice, *next;

    HASH_ITER (hh, all, notice, next) {
        HASH_DEL(all, notice);
        free(notice);
    }
}

/* Waits for something, and takes it all; false: the end has come. */
static bool take_all(struct notifier *notifier, struct notice **ret_all)
{
    LOCK_FOR_SCOPE(&notifier->lock);
    while (!notifier->waiting && !notifier->stop)
        pthread_cond_wait(&notifier->asked, &notifier->lock);
    *ret_all = notifier->waiting;
    notifier->waiting = NULL;
    return !notifier->stop;
}

static void *notify(void *arg)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct notifier *notifier = arg;
    struct foldfs *fs = notifier->fs;
    struct notice *all = NULL;

    while (take_all(notifier, &all)) {
        /* This fails where the kernel knows no such directory, which is as good. */
        for (const struct notice *notice = all; notice; notice = notice->hh.next)
            (void)fuse_lowlevel_notify_inval_inode(fs->session, notice->parent, -1, 0);
        free_all(all);
        dentries_changed_behind(fs);
        nanosleep(&pause, NULL);
    }
    free_all(all);
    return NULL;
}

int notifier_new(struct foldfs *fs, struct notifier **ret_notifier)
{
    CLEANUP_FREE struct notifier *notifier = calloc(1, sizeof(*notifier));

    if (!notifier)
        return -ENOMEM;
    notifier->fs = fs;
    pthread_mutex_init(&notifier->lock, NULL);
    pthread_cond_init(&notifier->asked, NULL);
    int r = -pthread_create(&notifier->thread, NULL, notify, notifier);
    if (r < 0)
        return r;
    *ret_notifier = STEAL_PTR(notifier);
    return 0;
}

void notifier_stop(struct notifier *notifier)
{
    if (!notifier || notifier->is_joined)
        return;
    pthread_mutex_lock(&notifier->lock);
    notifier->stop = true;
    pthread_cond_signal(&notifier->asked);
    pthread_mutex_unlock(&notifier->lock);
    pthread_join(notifier->thread, NULL);
    notifier->is_joined = true;
}

void notifier_free(struct notifier *notifier)
{
    if (!notifier)
        return;
    free_all(notifier->waiting);
    pthread_cond_destroy(&notifier->asked);
    pthread_mutex_destroy(&notifier->lock);
    free(notifier);
}

void notifier_tell(struct notifier *notifier, fuse_ino_t parent)
{
    struct notice *notice;

    if (!notifier)
        return;
    LOCK_FOR_SCOPE(&notifier->lock);
    HASH_FIND(hh, notifier->waiting, &parent, sizeof(notice->parent), notice);
    if (notice || notifier->stop || HASH_COUNT(notifier->waiting) >= WAITING_MAX)
        return;
    notice = calloc(1, sizeof(*notice));
    if (!notice)
        return;
    notice->parent = parent;
    HASH_ADD(hh, notifier->waiting, parent, sizeof(notice->parent), notice);
    if (notice->refused) {
        free(notice);
        return;
    }
    if (HASH_COUNT(notifier->waiting) == 1)
        pthread_cond_signal(&notifier->asked);
}
