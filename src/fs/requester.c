/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * requester.c - what the thread that waits for a request's answer is doing.
 *
 * /proc/TID/syscall (proc(5)) gives the number and the arguments of the system call in which a
 * thread waits, to those who may trace it.  A request through io_uring comes from within
 * another call, or from a thread of the kernel's, which has no program counter, and may show
 * the call of the one who started it.
 */
#include "fs/requester.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "common.h"

#define ARGUMENTS 6

/* How often a thread that is not asleep is looked at, without and with a pause. */
#define GLANCES   4
#define MOMENT_NS 200000
#define MOMENTS   5000

/* Descriptors that each thread of ours keeps. */
#define REQUESTERS_KEPT 4u

/* What 32-bit programs have for rename, renameat and renameat2 (i386).  Where they are numbers
 * of ours, they are calls that look up no name. */
#ifdef __x86_64__
#define RENAME_32    38
#define RENAMEAT_32  302
#define RENAMEAT2_32 353
#endif

/* A system call as /proc shows it. */
struct call {
    long number;
    uint64_t args[ARGUMENTS], sp, pc;
};

/* What is in /proc/TID/syscall; -EAGAIN if the thread is not asleep. */
static int read_call(int fd, struct call *ret_call)
{
    char text[256];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    if (strncmp(text, "running", strlen("running")) == 0)
        return -EAGAIN;
    uint64_t *a = ret_call->args;
    int got = sscanf(text,
                     "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
                     " %" SCNx64 " %" SCNx64,
                     &ret_call->number, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &ret_call->sp,
                     &ret_call->pc);
    bool calls = got == 3 + ARGUMENTS && ret_call->number >= 0 && ret_call->pc != 0;
    return calls ? 0 : -ENODATA;
}

/* The last requesters of this thread of ours: opening the file costs more than reading it.  A
 * descriptor stays bound to its very thread, and gives ESRCH when that is dead. */
struct requesters {
    struct requester {
        pid_t tid;
        int fd;
    } kept[REQUESTERS_KEPT];
    unsigned next;
};

static pthread_key_t requesters_key;
static bool have_key;

static void requesters_free(void *arg)
{
    struct requesters *requesters = arg;

    for (unsigned i = 0; i < REQUESTERS_KEPT; i++)
        if (requesters->kept[i].tid != 0)
            close(requesters->kept[i].fd);
    free(requesters);
}

static void make_key(void)
{
    have_key = pthread_key_create(&requesters_key, requesters_free) == 0;
}

/* This thread's; NULL without memory. */
static struct requesters *requesters_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_key);
    if (!have_key)
        return NULL;
    struct requesters *requesters = pthread_getspecific(requesters_key);
    if (requesters)
        return requesters;
    requesters = calloc(1, sizeof(*requesters));
    if (requesters && pthread_setspecific(requesters_key, requesters) != 0) {
        free(requesters);
        return NULL;
    }
    return requesters;
}

static struct requester *find_requester(struct requesters *requesters, pid_t tid)
{
    for (unsigned i = 0; i < REQUESTERS_KEPT; i++)
        if (requesters->kept[i].tid == tid)
            return &requesters->kept[i];
    return NULL;
}

static int open_call(pid_t tid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/syscall", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Keeps FD, which is taken over, in place of the oldest. */
static void keep_requester(struct requesters *requesters, pid_t tid, int fd)
{
    struct requester *oldest = &requesters->kept[requesters->next];

    requesters->next = (requesters->next + 1) % REQUESTERS_KEPT;
    if (oldest->tid != 0)
        close(oldest->fd);
    *oldest = (struct requester){.tid = tid, .fd = fd};
}

static int read_call_of(pid_t tid, struct call *ret_call)
{
    struct requesters *requesters = requesters_get();
    struct requester *known = requesters ? find_requester(requesters, tid) : NULL;

    if (known) {
        int r = read_call(known->fd, ret_call);
        if (r != -ESRCH)
            return r;
        close(known->fd); /* another thread has its number now */
        known->tid = 0;
    }
    int fd = open_call(tid);
    if (fd < 0)
        return fd;
    int r = read_call(fd, ret_call);
    if (requesters)
        keep_requester(requesters, tid, fd);
    else
        close(fd);
    return r;
}

static bool has_flags(long number)
{
#ifdef RENAME_32
    return number == SYS_renameat2 || number == RENAMEAT2_32;
#else
    return number == SYS_renameat2;
#endif
}

static enum requester_call what_is_called(const struct call *call, struct rename_call *ret_call)
{
    switch (call->number) {
#ifdef SYS_rename
    case SYS_rename:
#ifdef RENAME_32
    case RENAME_32:
#endif
        *ret_call = (struct rename_call){AT_FDCWD, AT_FDCWD, call->args[0], call->args[1], 0};
        return REQUESTER_RENAMES;
#endif
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
#ifdef RENAME_32
    case RENAMEAT_32:
    case RENAMEAT2_32:
#endif
        *ret_call = (struct rename_call){
            .old_dirfd = (int)call->args[0],
            .old_path = call->args[1],
            .new_dirfd = (int)call->args[2],
            .new_path = call->args[3],
            .flags = has_flags(call->number) ? (unsigned int)call->args[4] : 0,
        };
        return REQUESTER_RENAMES;
    case SYS_io_uring_enter:
        return REQUESTER_UNSEEN;
    default:
        return REQUESTER_ELSEWHERE;
    }
}

/* A thread that has just sent its request, or was woken by a signal, is not asleep yet, or for
 * a moment; nor is one that waits for a processor. */
enum requester_call requester_look(pid_t tid, struct rename_call *ret_call)
{
    struct call call;
    int r = -EAGAIN;

    if (tid <= 0)
        return REQUESTER_UNSEEN;
    for (int i = 0; i < GLANCES && r == -EAGAIN; i++) {
        if (i > 0)
            sched_yield();
        r = read_call_of(tid, &call);
    }
    if (r < 0)
        return r == -EAGAIN ? REQUESTER_AWAKE : REQUESTER_UNSEEN;
    return what_is_called(&call, ret_call);
}

enum requester_call requester_wait(pid_t tid, struct rename_call *ret_call)
{
    const struct timespec moment = {.tv_nsec = MOMENT_NS};
    enum requester_call call = REQUESTER_AWAKE;

    for (int i = 0; i < MOMENTS && call == REQUESTER_AWAKE; i++) {
        nanosleep(&moment, NULL);
        call = requester_look(tid, ret_call);
    }
    return call;
}

int requester_read_path(pid_t tid, uint64_t address, char ret_path[PATH_MAX])
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char path[PATH_MAX];

    for (size_t len = 0; len < sizeof(path);) {
        size_t rest = page - (address + len) % page; /* the next page may not be there */
        struct iovec local = {.iov_base = path + len,
                              .iov_len = rest < sizeof(path) - len ? rest : sizeof(path) - len};
        /* An address of another process, not a pointer of ours. */
        struct iovec remote = {.iov_base = (void *)(uintptr_t)(address + len), // NOLINT
                               .iov_len = local.iov_len};
        ssize_t n = process_vm_readv(tid, &local, 1, &remote, 1, 0);
        if (n <= 0)
            return n < 0 ? -errno : -EFAULT;
        if (memchr(path + len, '\0', (size_t)n)) {
            memcpy(ret_path, path, len + strlen(path + len) + 1);
            return 0;
        }
        len += (size_t)n;
    }
    return -ENAMETOOLONG;
}
