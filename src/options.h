/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * options.h - what the command line says.
 */
#ifndef FOLDFS_OPTIONS_H
#define FOLDFS_OPTIONS_H

#include <stdbool.h>

#include "fs/fuse.h"

enum lookup_mode {
    LOOKUP_FOLD,  /* names are found under every spelling */
    LOOKUP_EXACT, /* by exact spelling; creating treats another spelling as existing */
};

enum passthrough_mode {
    PASSTHROUGH_AUTO, /* where kernel and libfuse have it */
    PASSTHROUGH_ON,   /* else refuse to start */
    PASSTHROUGH_OFF,
};

/* Features that `-o without=NAME[:NAME...]` switches off, so that what foldfs does without them
 * can be tested on a kernel that has them. */
struct without {
    bool handles;    /* file handles: name_to_handle_at(2) */
    bool multigrain; /* fine timestamps */
    bool killpriv;   /* FUSE_CAP_HANDLE_KILLPRIV_V2 */
    bool acl;        /* FUSE_CAP_POSIX_ACL */
    bool readdirplus;
    bool watch; /* fanotify */
};

/* Which names the kernel may keep. */
enum cache_mode {
    CACHE_AUTO,
    CACHE_STRICT, /* those of directories */
    CACHE_FAST,   /* all that are exact; else refuse to start */
};

struct options {
    char *source;     /* absolute, without symlinks */
    char *mountpoint; /* likewise */
    char *index;      /* directory; NULL: the default one; "memory" */
    enum lookup_mode lookup;
    enum passthrough_mode passthrough;
    enum cache_mode cache;
    double attr_timeout;  /* seconds that the kernel may cache attributes */
    double entry_timeout; /* the same for names, as far as it may keep them */
    unsigned threads;     /* that serve requests, at most */
    bool foreground;
    bool debug;
    struct without without;
    struct fuse_args fuse; /* what libfuse gets */
};

enum options_result {
    OPTIONS_RUN,    /* mount */
    OPTIONS_DONE,   /* --help or --version were printed: exit status 0 */
    OPTIONS_USAGE,  /* a mistake in the command line, said on stderr: exit status 1 */
    OPTIONS_FAILED, /* something else is wrong, said on stderr: exit status 2 */
};

/* Reads the command line.  With OPTIONS_RUN, SOURCE and MOUNTPOINT were checked: both are
 * directories, none strictly inside the other.  Free with options_free() in every case. */
enum options_result options_parse(int argc, char *argv[], struct options *ret_options);
void options_free(struct options *options);

#endif
