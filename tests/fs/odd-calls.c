/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * odd-calls.c - odd-calls HOW OLD NEW: renames OLD to NEW by a way that Python has not, and
 * prints the errno (0: done), or "none" if this machine has no such way.
 *
 *   uring   IORING_OP_RENAMEAT, which a thread of the kernel's carries out
 *   sqpoll  the same, submitted by a thread of the kernel's too
 *   int80   as a 32-bit program calls
 *   vfork   in a child that shares the memory
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_SUCH_WAY (-1)
#define SQ_IDLE_MS  1000

struct ring {
    int fd;
    struct io_uring_params params;
    char *sq, *cq;
    struct io_uring_sqe *sqes;
};

static void *map(const struct ring *ring, size_t size, off_t offset)
{
    void *p =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, offset);

    if (p == MAP_FAILED)
        exit(2);
    return p;
}

static unsigned *at(char *base, unsigned offset)
{
    return (unsigned *)(void *)(base + offset);
}

/* False if the kernel has or allows no io_uring. */
static int ring_open(struct ring *ring, unsigned flags)
{
    struct io_uring_params *p = &ring->params;

    memset(p, 0, sizeof(*p));
    p->flags = flags;
    p->sq_thread_idle = SQ_IDLE_MS;
    ring->fd = (int)syscall(SYS_io_uring_setup, 4, p);
    if (ring->fd < 0)
        return 0;
    ring->sq =
        map(ring, p->sq_off.array + p->sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    ring->cq = map(ring, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe),
                   IORING_OFF_CQ_RING);
    ring->sqes = map(ring, p->sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    return 1;
}

static int rename_by_ring(const char *old, const char *new, unsigned flags)
{
    struct ring ring;

    if (!ring_open(&ring, flags))
        return NO_SUCH_WAY;
    ring.sqes[0] = (struct io_uring_sqe){
        .opcode = IORING_OP_RENAMEAT,
        .fd = AT_FDCWD,
        .addr = (uintptr_t)old,
        .len = (unsigned)AT_FDCWD,
        .addr2 = (uintptr_t) new,
    };
    *at(ring.sq, ring.params.sq_off.array) = 0;
    __atomic_store_n(at(ring.sq, ring.params.sq_off.tail), 1, __ATOMIC_RELEASE);
    unsigned how =
        IORING_ENTER_GETEVENTS | (flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0);
    if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, how, NULL, 0) < 0)
        return NO_SUCH_WAY;
    while (__atomic_load_n(at(ring.cq, ring.params.cq_off.tail), __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    const struct io_uring_cqe *cqe = (void *)(ring.cq + ring.params.cq_off.cqes);
    return cqe->res == -EINVAL ? NO_SUCH_WAY : -cqe->res;
}

#ifdef __x86_64__
#define I386_RENAME 38

static int rename_by_int80(const char *old, const char *new)
{
    char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    long result;

    if (low == MAP_FAILED || strlen(old) >= 4096 || strlen(new) >= 4096)
        return NO_SUCH_WAY;
    memcpy(low, old, strlen(old) + 1);
    memcpy(low + 4096, new, strlen(new) + 1);
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(I386_RENAME), "b"(low), "c"(low + 4096)
                     : "memory", "r8", "r9", "r10", "r11");
    return result == -ENOSYS ? NO_SUCH_WAY : (int)-result;
}
#else
static int rename_by_int80(const char *old, const char *new)
{
    (void)old;
    (void)new;
    return NO_SUCH_WAY;
}
#endif

static int rename_by_vfork(const char *old, const char *new)
{
    int status;
    pid_t pid = vfork(); // NOLINT: it is what is tested

    if (pid == 0) {
        long r = syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0); // NOLINT: the same
        _exit(r == 0 ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : EIO;
}

int main(int argc, char *argv[])
{
    int r = NO_SUCH_WAY;

    if (argc != 4)
        return 2;
    if (strcmp(argv[1], "uring") == 0)
        r = rename_by_ring(argv[2], argv[3], 0);
    else if (strcmp(argv[1], "sqpoll") == 0)
        r = rename_by_ring(argv[2], argv[3], IORING_SETUP_SQPOLL);
    else if (strcmp(argv[1], "int80") == 0)
        r = rename_by_int80(argv[2], argv[3]);
    else if (strcmp(argv[1], "vfork") == 0)
        r = rename_by_vfork(argv[2], argv[3]);
    else
        return 2;
    if (r == NO_SUCH_WAY)
        puts("none");
    else
        printf("%d\n", r);
    return 0;
}
