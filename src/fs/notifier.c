/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * notifier.c - telling the kernel that a name has to be looked up again.
 *
 * To expire a name the kernel takes the lock of its directory, under which others wait for
 * answers of ours (fs/fuse/dir.c: fuse_reverse_inval_entry).  So a thread does it that holds no
 * lock and answers nobody.  Expired names are looked up at their next use; open files, working
 * directories and what is mounted there stay (Linux 6.2; before that nothing is told, and names
 * live for their timeout).
 *
 * Names wait in a table, each once: who changes one name all the time makes no queue.  It has a
 * limit; what does not find room lives for its timeout.
 *
 * Lock: one, held for a moment; it is innermost.
 */
#include "fs/notifier.h"

#include <string.h>
#include <sys/mount.h>
#include <time.h>

#include "common.h"
#define HASH_NONFATAL_OOM            1
#define uthash_nonfatal_oom(element) ((element)->refused = true)
#include <uthash.h>

/* Names that wait; some 20 MB. */
#define WAITING_MAX 100000u

/* At the end, for the kernel to let go of a directory, until it is forced to. */
#define END_WAIT_S 1

struct notice {
    UT_hash_handle hh;
    bool refused;
    size_t key_len;
    struct notice_key {
        uint64_t parent;
        char name[]; /* with a NUL, which does not count for the key */
    } key;
};

struct notifier {
    struct fuse_session *session;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    pthread_cond_t ended;
    struct notice *waiting; /* in the order of their coming */
    bool stop, has_ended;
    bool is_joined; /* of the one who ends it */
};

static int expire(struct fuse_session *session, fuse_ino_t parent, const char *name, size_t len)
{
#ifdef FOLDFS_EXPIRE_HAS_FLAGS
    return fuse_lowlevel_notify_expire_entry(session, parent, name, len, FUSE_LL_EXPIRE_ONLY);
#else
    return fuse_lowlevel_notify_expire_entry(session, parent, name, len);
#endif
}

/* Waits for a name, with the lock held, and takes it; NULL: the end has come. */
static struct notice *take(struct notifier *notifier)
{
    while (!notifier->waiting && !notifier->stop)
        pthread_cond_wait(&notifier->asked, &notifier->lock);
    if (notifier->stop)
        return NULL;
    struct notice *notice = notifier->waiting;
    HASH_DEL(notifier->waiting, notice);
    return notice;
}

static void *notify(void *arg)
{
    struct notifier *notifier = arg;
    struct fuse_session *session = notifier->session;

    pthread_mutex_lock(&notifier->lock);
    for (struct notice *notice; (notice = take(notifier));) {
        pthread_mutex_unlock(&notifier->lock);
        /* Both fail where the kernel knows no such name or directory, which is as good. */
        (void)expire(session, notice->key.parent, notice->key.name, strlen(notice->key.name));
        (void)fuse_lowlevel_notify_inval_inode(session, notice->key.parent, -1, 0);
        free(notice);
        pthread_mutex_lock(&notifier->lock);
    }
    notifier->has_ended = true;
    pthread_cond_broadcast(&notifier->ended);
    pthread_mutex_unlock(&notifier->lock);
    return NULL;
}

int notifier_new(struct fuse_session *session, struct notifier **ret_notifier)
{
    CLEANUP_FREE struct notifier *notifier = calloc(1, sizeof(*notifier));

    if (!notifier)
        return -ENOMEM;
    notifier->session = session;
    pthread_mutex_init(&notifier->lock, NULL);
    pthread_cond_init(&notifier->asked, NULL);
    pthread_cond_init(&notifier->ended, NULL);
    int r = -pthread_create(&notifier->thread, NULL, notify, notifier);
    if (r < 0)
        return r;
    *ret_notifier = STEAL_PTR(notifier);
    return 0;
}

/* Tells the thread to end, and waits a little for that. */
static bool end_thread(struct notifier *notifier)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_WAIT_S;
    LOCK_FOR_SCOPE(&notifier->lock);
    notifier->stop = true;
    pthread_cond_signal(&notifier->asked);
    while (!notifier->has_ended &&
           pthread_cond_timedwait(&notifier->ended, &notifier->lock, &until) != ETIMEDOUT)
        continue;
    return notifier->has_ended;
}

void notifier_stop(struct notifier *notifier, const char *mountpoint)
{
    if (!notifier || notifier->is_joined)
        return;
    if (!end_thread(notifier)) /* the mount may stay, but all who wait for us get an error */
        (void)umount2(mountpoint, MNT_FORCE);
    pthread_join(notifier->thread, NULL);
    notifier->is_joined = true;
}

void notifier_free(struct notifier *notifier)
{
    struct notice *notice, *next;

    if (!notifier)
        return;
    HASH_ITER (hh, notifier->waiting, notice, next) {
        HASH_DEL(notifier->waiting, notice);
        free(notice);
    }
    pthread_cond_destroy(&notifier->asked);
    pthread_cond_destroy(&notifier->ended);
    pthread_mutex_destroy(&notifier->lock);
    free(notifier);
}

void notifier_expire(struct notifier *notifier, fuse_ino_t parent, const char *name, size_t len)
{
    struct notice *other;

    if (!notifier)
        return;
    CLEANUP_FREE struct notice *notice = calloc(1, sizeof(*notice) + len + 1);
    if (!notice)
        return;
    notice->key_len = sizeof(notice->key) + len;
    notice->key.parent = parent;
    memcpy(notice->key.name, name, len);
    LOCK_FOR_SCOPE(&notifier->lock);
    if (notifier->stop || HASH_COUNT(notifier->waiting) >= WAITING_MAX)
        return;
    HASH_FIND(hh, notifier->waiting, &notice->key, notice->key_len, other);
    if (other)
        return;
    HASH_ADD_KEYPTR(hh, notifier->waiting, &notice->key, notice->key_len, notice);
    if (notice->refused)
        return;
    if (notifier->waiting == notice)
        pthread_cond_signal(&notifier->asked);
    notice = NULL; /* now the table's */
}
