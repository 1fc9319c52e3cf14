/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * watch.c - hearing of changes that others make to the tree behind the mount, by fanotify on
 * its file systems.
 *
 * An event says which name of a directory changed, and who did it: those of this process are
 * skipped, since every operation tells the index itself.  (fanotify merges events of the same
 * process only, so one of ours never swallows another's.)
 *
 * The queue has no limit, and an event is in it before the system call that caused it returns.
 * So an empty queue, with no event taken out of it but not yet told, is the proof that
 * everything has been told: watch_settle() looks for that before each answer that rests on the
 * index, and tells what is there if it is not so.  A thread empties the queue now and then
 * where nobody asks.
 *
 * Order matters there: first "is the queue empty", then "is somebody telling".  The other way
 * round a reader could take the last event between the two looks.
 *
 * Lock: one, over reading and telling; the listener's locks come after it.
 */
#include "coherence/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <time.h>

#include "common.h"
#include "fault.h"
#include "log.h"

/* Bytes of events read at once: some hundred. */
#define EVENTS_BUFFER 32768

/* Events lie in the queue for this long where nobody asks; they are 150 bytes of kernel memory
 * each. */
#define QUIET_PERIOD_NS 20000000L

#define CHANGES (FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO | FAN_ONDIR)

struct watch {
    struct watch_listener listener;
    int fd;
    int stop_fd[2]; /* a pipe: closed at its end, the thread ends */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    atomic_bool telling; /* events were read and not all told */
    atomic_bool lost;
    pid_t self;
    char buffer[EVENTS_BUFFER];
};

/* With the lock held: the end of it. */
static void lose(struct watch *watch, const char *why)
{
    if (atomic_exchange(&watch->lost, true))
        return;
    log_line(LOG_ERR,
             "changes behind the mount cannot be watched any more (%s): from now on the "
             "directories' timestamps decide",
             why);
    watch->listener.lost(watch->listener.ctx);
}

/* The name behind a directory's handle, which ends at AT; NULL if there is none. */
static const char *name_at(const char *at, const char *end)
{
    if (at >= end || !memchr(at, '\0', (size_t)(end - at)) || strcmp(at, ".") == 0)
        return NULL;
    return at;
}

/* Tells of the names in an event's information records, from AT to END.  Nothing in the buffer
 * is aligned. */
static void tell_names(const struct watch *watch, const char *at, const char *end)
{
    struct fanotify_event_info_fid info;
    struct file_handle handle;

    while (at + sizeof(info) + sizeof(handle) <= end) {
        memcpy(&info, at, sizeof(info));
        const char *start = at + offsetof(struct fanotify_event_info_fid, handle);
        memcpy(&handle, start, sizeof(handle));
        start += sizeof(handle);
        if ((info.hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME ||
             info.hdr.info_type == FAN_EVENT_INFO_TYPE_DFID) &&
            start + handle.handle_bytes <= end)
            watch->listener.changed(watch->listener.ctx, handle.handle_type,
                                    (const unsigned char *)start, handle.handle_bytes,
                                    name_at(start + handle.handle_bytes, at + info.hdr.len));
        if (info.hdr.len == 0)
            return;
        at += info.hdr.len;
    }
}

/* Tells of the events in the first LEN bytes of the buffer. */
static void tell(struct watch *watch, size_t len)
{
    struct fanotify_event_metadata event;
    const char *at = watch->buffer, *end = at + len;

    for (; at + sizeof(event) <= end; at += event.event_len) {
        memcpy(&event, at, sizeof(event));
        if (event.event_len < sizeof(event) || at + event.event_len > end)
            return;
        if (event.fd >= 0)
            close(event.fd);
        if (event.mask & FAN_Q_OVERFLOW)
            lose(watch, "too many at once");
        else if (event.pid != watch->self)
            tell_names(watch, at + event.metadata_len, at + event.event_len);
    }
}

/* With the lock held: tells what is in the queue now, and not what comes meanwhile, of which
 * there may be no end. */
static void drain(struct watch *watch)
{
    int waiting = 0;

    atomic_store(&watch->telling, true);
    if (ioctl(watch->fd, FIONREAD, &waiting) < 0)
        lose(watch, strerror(errno));
    while (waiting > 0) {
        ssize_t n = read(watch->fd, watch->buffer, sizeof(watch->buffer));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n < 0 && errno != EAGAIN)
                lose(watch, strerror(errno));
            break;
        }
        tell(watch, (size_t)n);
        waiting -= (int)n;
    }
    atomic_store(&watch->telling, false);
}

bool watch_settle(struct watch *watch)
{
    int waiting = 0;

    if (fault_is("drain"))
        return true;

    if (ioctl(watch->fd, FIONREAD, &waiting) < 0 || waiting > 0 ||
        atomic_load(&watch->telling)) {
        LOCK_FOR_SCOPE(&watch->lock);
        drain(watch);
    }
    return !atomic_load(&watch->lost);
}

static void *empty_now_and_then(void *arg)
{
    struct watch *watch = arg;
    const struct timespec quiet = {.tv_nsec = QUIET_PERIOD_NS};
    struct pollfd fds[] = {{.fd = watch->stop_fd[0], .events = POLLIN},
                           {.fd = watch->fd, .events = POLLIN}};

    for (;;) {
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents)
            return NULL;
        nanosleep(&quiet, NULL);
        LOCK_FOR_SCOPE(&watch->lock);
        drain(watch);
        if (atomic_load(&watch->lost))
            return NULL;
    }
}

int watch_new(const struct watch_listener *listener, struct watch **ret_watch)
{
    CLEANUP_FREE struct watch *watch = calloc(1, sizeof(*watch));
    int r;

    if (!watch)
        return -ENOMEM;
    watch->listener = *listener;
    watch->self = getpid();
    pthread_mutex_init(&watch->lock, NULL);
    watch->fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK |
                                  FAN_REPORT_DFID_NAME | FAN_UNLIMITED_QUEUE,
                              O_RDONLY | O_CLOEXEC);
    if (watch->fd < 0)
        return -errno;
    if (pipe2(watch->stop_fd, O_CLOEXEC) < 0) {
        r = -errno;
        close(watch->fd);
        return r;
    }
    *ret_watch = STEAL_PTR(watch);
    return 0;
}

int watch_start(struct watch *watch)
{
    int r = -pthread_create(&watch->thread, NULL, empty_now_and_then, watch);

    watch->started = r == 0;
    return r;
}

void watch_stop(struct watch *watch)
{
    if (!watch->started)
        return;
    close(STEAL_FD(watch->stop_fd[1]));
    pthread_join(watch->thread, NULL);
    watch->started = false;
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    watch_stop(watch);
    if (watch->stop_fd[1] >= 0)
        close(watch->stop_fd[1]);
    close(watch->stop_fd[0]);
    close(watch->fd);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

int watch_add(struct watch *watch, int fd)
{
    if (fanotify_mark(watch->fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, CHANGES, fd, NULL) < 0)
        return -errno;
    return 0;
}
