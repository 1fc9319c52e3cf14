/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * asked.c - IOCTL, for what foldfsctl(8) asks of the daemon.
 *
 * control.h says who may ask what.  What comes is taken for hostile; nothing here blocks but
 * the tree.
 */
#include "fs/asked.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "fs/control.h"
#include "fs/dentries.h"
#include "fs/rename.h"
#include "log.h"

static bool may_ask(fuse_req_t req)
{
    uid_t uid = fuse_req_ctx(req)->uid;

    return uid == 0 || uid == getuid();
}

/* ---- status ---- */

static void say(struct control_status *status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds to the text; what does not fit is left out. */
static void say(struct control_status *status, const char *format, ...)
{
    size_t len = strlen(status->text);
    va_list args;

    va_start(args, format);
    vsnprintf(status->text + len, sizeof(status->text) - len, format, args);
    va_end(args);
}

static const char *scheme(const struct foldfs *fs)
{
    if (dentries_are_kept(fs))
        return "fast";
    if (fs->options->cache == CACHE_STRICT)
        return "strict (option)";
    return atomic_load(&fs->mounted_inside) ? "strict (something is mounted inside)"
                                            : "strict (this kernel has no epochs: Linux 6.16)";
}

static const char *passthrough(const struct foldfs *fs)
{
    if (fs->passthrough)
        return "on";
    return fs->options->passthrough == PASSTHROUGH_OFF
               ? "off (option)"
               : "off (not offered by kernel or libfuse)";
}

static const char *watcher(const struct foldfs *fs)
{
    if (!fs->watch)
        return fs->options->without.watch ? "none (option)" : "none (fanotify cannot be had)";
    return watch_settle(fs->watch) ? "fanotify" : "none (changes were lost)";
}

/* PATH as one line. */
static void say_path(struct control_status *status, const char *key, const char *path)
{
    char escaped[2048];

    say(status, "%s %s\n", key, log_escape(path, strlen(path), escaped, sizeof(escaped)));
}

static void say_index(struct foldfs *fs, struct control_status *status)
{
    struct index_info info;

    index_get_info(fs->index, &info);
    say(status, "index %s\n", info.persistent ? "on disk" : "in memory");
    say(status, "index_names %" PRIu64 "\n", info.names);
    say(status, "index_garbage %" PRIu64 "\n", info.garbage);
    say(status, "index_directories %" PRIu64 "\n", info.directories);
    say(status, "index_directories_in_use %" PRIu64 "\n", info.live);
    say(status, "index_bytes %" PRIu64 "\n", info.file_bytes);
    say(status, "index_generation %" PRIu64 "\n", info.generation);
    say(status, "scans %" PRIu64 "\n", info.scans);
    say(status, "checkpoints %" PRIu64 "\n", info.checkpoints);
}

static void fill_status(struct foldfs *fs, struct control_status *ret_status)
{
    *ret_status = (struct control_status){0};
    say_path(ret_status, "source", fs->options->source);
    say_path(ret_status, "mountpoint", fs->options->mountpoint);
    say(ret_status, "lookup %s\n", fs->options->lookup == LOOKUP_FOLD ? "fold" : "exact");
    say(ret_status, "cache %s\n", scheme(fs));
    say(ret_status, "passthrough %s\n", passthrough(fs));
    say(ret_status, "watch %s\n", watcher(fs));
    say_index(fs, ret_status);
    say(ret_status, "case_renames_unseen %" PRIu64 "\n", atomic_load(&fs->caseonly_unseen));
}

static void reply_status(struct foldfs *fs, fuse_req_t req)
{
    CLEANUP_FREE struct control_status *status = calloc(1, sizeof(*status));

    if (!status) {
        fs_reply(req, -ENOMEM);
        return;
    }
    fill_status(fs, status);
    fuse_reply_ioctl(req, 0, status, sizeof(*status));
}

/* ---- rename ---- */

static bool is_name(const char name[CONTROL_NAME_SIZE])
{
    size_t len = strnlen(name, CONTROL_NAME_SIZE);

    return len > 0 && len < CONTROL_NAME_SIZE && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static void reply_rename(fuse_req_t req, fuse_ino_t ino, const void *in, size_t in_size)
{
    struct control_rename names;

    if (in_size < sizeof(names)) {
        fs_reply(req, -EINVAL);
        return;
    }
    memcpy(&names, in, sizeof(names));
    if (is_name(names.old_name) && is_name(names.new_name))
        rename_spelling(req, ino, names.old_name, names.new_name);
    else
        fs_reply(req, -EINVAL);
}

bool asked_by_control(struct foldfs *fs, fuse_req_t req, fuse_ino_t ino, unsigned int cmd,
                      const void *in, size_t in_size)
{
    if (cmd != (unsigned int)CONTROL_STATUS && cmd != (unsigned int)CONTROL_RENAME)
        return false;
    const struct node *node = fs_node(fs, req, ino);

    if (!node)
        return true;
    if (!may_ask(req))
        fs_reply(req, -EPERM);
    else if (!node_is_dir(node))
        fs_reply(req, -ENOTDIR);
    else if (cmd == (unsigned int)CONTROL_STATUS)
        reply_status(fs, req);
    else
        reply_rename(req, ino, in, in_size);
    return true;
}
