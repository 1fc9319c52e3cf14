/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * blocks.c - two ways in which clients of a file server write a file.
 *
 *     blocks full|marked FILE SIZE
 *
 * full: zeros, block by block.  marked: first one byte at the end of each block, which is how
 * some clients reserve room, then the blocks.  FILE must not exist.  Prints the nanoseconds
 * that the writes took, without open and close.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK    8192
#define NS_PER_S INT64_C(1000000000)

static void write_at(int fd, size_t size, off_t offset)
{
    static const char zeros[BLOCK];

    if (pwrite(fd, zeros, size, offset) != (ssize_t)size) {
        perror("blocks: write");
        exit(1);
    }
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int main(int argc, char *argv[])
{
    if (argc != 4 || (strcmp(argv[1], "full") != 0 && strcmp(argv[1], "marked") != 0)) {
        fputs("usage: blocks full|marked FILE SIZE\n", stderr);
        return 1;
    }
    off_t size = atoll(argv[3]);
    int fd = open(argv[2], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        perror(argv[2]);
        return 1;
    }
    int64_t start = now_ns();
    if (strcmp(argv[1], "marked") == 0)
        for (off_t at = 0; at < size; at += BLOCK)
            write_at(fd, 1, at + BLOCK - 1);
    for (off_t at = 0; at < size; at += BLOCK)
        write_at(fd, BLOCK, at);
    printf("%" PRId64 "\n", now_ns() - start);
    return close(fd) == 0 ? 0 : 1;
}
