/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * common.h - what every part may use: cleanup attributes and two or three
 * macros.  No state, no functions with a body of more than a line or two, and
 * nothing that belongs to one part only.
 */
#ifndef FOLDFS_COMMON_H
#define FOLDFS_COMMON_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The longest name a Linux directory entry can have, in bytes, without its NUL. */
#define FOLDFS_NAME_MAX 255

static inline void cleanup_free(void *pointer)
{
    free(*(void **)pointer);
}

static inline void cleanup_close(const int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
}

static inline void cleanup_unlock(pthread_mutex_t **mutex)
{
    if (*mutex)
        pthread_mutex_unlock(*mutex);
}

static inline pthread_mutex_t *lock_and_return(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

/* Frees the pointer, closes the descriptor (unless negative), at the end of its scope. */
#define CLEANUP_FREE  __attribute__((cleanup(cleanup_free)))
#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close)))

/* Holds MUTEX from here to the end of the enclosing scope. */
#define CONCAT_(a, b) a##b
#define CONCAT(a, b)  CONCAT_(a, b)
#define LOCK_FOR_SCOPE(mutex)                                                                  \
    __attribute__((cleanup(cleanup_unlock), unused)) pthread_mutex_t *CONCAT(                  \
        scope_lock_, __LINE__) = lock_and_return(mutex)

/* Takes the pointer or descriptor out of a cleanup variable, which is then left empty. */
#define STEAL_PTR(p)                                                                           \
    __extension__({                                                                            \
        __typeof__(p) stolen_ = (p);                                                           \
        (p) = NULL;                                                                            \
        stolen_;                                                                               \
    })
#define STEAL_FD(fd)                                                                           \
    __extension__({                                                                            \
        int stolen_ = (fd);                                                                    \
        (fd) = -1;                                                                             \
        stolen_;                                                                               \
    })

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* CLOCK_MONOTONIC in nanoseconds. */
static inline int64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

#endif
