/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * main.c - the process: foreground or daemon, and its exit status.
 *
 * As a daemon, the process that was started waits until the mount answers and leaves with 0, or
 * until its child says what is wrong and leaves with that: 1 for a mistake in the command line,
 * 2 for all else.  The child says so through a pipe, whose closing without a word means that it
 * died.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "log.h"
#include "options.h"
#include "session.h"

#define EXIT_USAGE  1
#define EXIT_FAILED 2

static int exit_status(enum options_result result)
{
    switch (result) {
    case OPTIONS_RUN:
    case OPTIONS_DONE:
        return 0;
    case OPTIONS_USAGE:
        return EXIT_USAGE;
    case OPTIONS_FAILED:
        break;
    }
    return EXIT_FAILED;
}

/* The pipe to the waiting process; -1 in the foreground, or when it has been told. */
static int parent_fd = -1;

static void tell_parent(int status)
{
    unsigned char byte = (unsigned char)status;

    if (parent_fd < 0)
        return;
    /* If the waiting process is gone, nobody wants to know. */
    ssize_t written = write(parent_fd, &byte, 1);
    (void)written;
    close(parent_fd);
    parent_fd = -1;
}

/* The mount answers: from here on a daemon has no terminal. */
static void detach(void *ctx)
{
    const struct options *options = ctx;

    if (options->foreground)
        return;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    if (null > STDERR_FILENO)
        close(null);
    log_open(true, LOG_INFO);
    tell_parent(0);
}

/* Where 0, 1 or 2 is closed when we are started, /dev/null takes its place: a file of ours
 * there would be taken for a stream, and lost in detach(). */
static void fill_standard_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static int wait_for_child(int fd)
{
    unsigned char status;
    ssize_t n;

    do
        n = read(fd, &status, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        return status;
    log_line(LOG_ERR, "the daemon died before it was ready");
    return EXIT_FAILED;
}

/* Goes on in a child; *ret_status is for the process that was started, which is the one that
 * gets true. */
static bool fork_daemon(int *ret_status)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0) {
        log_line(LOG_ERR, "cannot become a daemon: %m");
        *ret_status = EXIT_FAILED;
        return true;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        parent_fd = fds[1];
        setsid();
        return false;
    }
    close(fds[1]);
    if (pid < 0) {
        log_line(LOG_ERR, "cannot become a daemon: %m");
        *ret_status = EXIT_FAILED;
    } else {
        *ret_status = wait_for_child(fds[0]);
    }
    close(fds[0]);
    return true;
}

int main(int argc, char *argv[])
{
    struct options options;
    int status;

    fill_standard_streams();
    enum options_result result = options_parse(argc, argv, &options);
    if (result != OPTIONS_RUN || (!options.foreground && fork_daemon(&status))) {
        options_free(&options);
        return result != OPTIONS_RUN ? exit_status(result) : status;
    }
    log_open(false, options.debug ? LOG_DEBUG : LOG_INFO);
    result = session_run(&options, detach, &options);
    tell_parent(exit_status(result));
    options_free(&options);
    return exit_status(result);
}
