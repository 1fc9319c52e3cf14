/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * options.c - what the command line says.
 *
 * Our options are taken out; what is left goes to libfuse, which knows its own and those of
 * mount(8), and refuses the rest.  Every mistake is one line on stderr.
 *
 * SOURCE and MOUNTPOINT may be one directory (a mount in place), but neither may lie strictly
 * inside the other: the mount would show itself, or be hidden in what it shows.  That is
 * checked by walking up, so that bind mounts and symlinks do not hide it.
 */
#include "options.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "log.h"
#include "path.h"

/* Defaults.  Attributes: as long as other file systems with a server have it.  Names of
 * directories: changes made behind the mount show after this time at the latest. */
#define ATTR_TIMEOUT_S  1.0
#define ENTRY_TIMEOUT_S 1.0
/* Timeouts above this are a slip of the keyboard; the kernel would cut them anyway. */
#define TIMEOUT_MAX_S 1e6
#define THREADS_MAX   1024U
/* Threads wait for the backing tree more than they compute. */
#define THREADS_PER_CPU 4
#define THREADS_MIN     8

static const char usage_text[] =
    "usage: foldfs [-o OPTION[,OPTION]...] [-f] [-d] SOURCE MOUNTPOINT\n"
    "\n"
    "Shows the directory tree SOURCE at MOUNTPOINT with names found in any spelling of\n"
    "upper and lower case, the way Windows does.\n"
    "\n"
    "    -f                     stay in the foreground\n"
    "    -d                     show each request (implies -f)\n"
    "    -h, --help             this text\n"
    "    -V, --version          the version\n"
    "    -o lookup=fold|exact   find names in any spelling [fold], or exactly, but create\n"
    "                           no second spelling\n"
    "    -o index=DIR|memory    where the index of names is [/var/lib/foldfs/ID]\n"
    "    -o passthrough=auto|on|off\n"
    "                           file contents by way of the kernel alone [auto]\n"
    "    -o cache=strict|fast|auto\n"
    "                           names that the kernel may keep: those of directories\n"
    "                           [strict], or all that are exact\n"
    "    -o attr_timeout=S      seconds that the kernel may keep attributes [1]\n"
    "    -o entry_timeout=S     the same for names [1]\n"
    "    -o threads=N           threads that serve requests\n"
    "    -o allow_other         others than the one who mounts may use it [if root]\n"
    "\n"
    "and the options of mount(8) and fuse(4).  See foldfs(8).\n";

static enum options_result say(enum options_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum options_result say(enum options_result result, const char *format, ...)
{
    char line[2 * PATH_MAX];
    va_list args;

    va_start(args, format);
    /* The analyzer loses sight of va_start() where it sees the file twice. */
    vsnprintf(line, sizeof(line), format, args); // NOLINT
    va_end(args);
    log_line(LOG_ERR, "%s", line);
    return result;
}

/* What fuse_opt fills in; strings are allocated. */
struct raw {
    char *source, *mountpoint;
    char *lookup, *index, *passthrough, *cache, *attr_timeout, *entry_timeout, *threads,
        *without;
    int foreground, debug, help, version;
    int allow_other;
    char *surplus;
};

static void raw_free(struct raw *raw)
{
    free(raw->source);
    free(raw->mountpoint);
    free(raw->lookup);
    free(raw->index);
    free(raw->passthrough);
    free(raw->cache);
    free(raw->attr_timeout);
    free(raw->entry_timeout);
    free(raw->threads);
    free(raw->without);
    free(raw->surplus);
}

enum { KEY_ALLOW_OTHER };

#define OPTION(template, member)                                                               \
    {                                                                                          \
        template, offsetof(struct raw, member), 1                                              \
    }

/* FUSE_OPT_KEY, but for its -1U, of which clang warns. */
#define KEY_OPTION(template, key)                                                              \
    {                                                                                          \
        template, UINT_MAX, key                                                                \
    }

static const struct fuse_opt specs[] = {
    OPTION("lookup=%s", lookup),
    OPTION("index=%s", index),
    OPTION("passthrough=%s", passthrough),
    OPTION("cache=%s", cache),
    OPTION("attr_timeout=%s", attr_timeout),
    OPTION("entry_timeout=%s", entry_timeout),
    OPTION("threads=%s", threads),
    OPTION("without=%s", without),
    OPTION("-f", foreground),
    OPTION("-d", debug),
    OPTION("debug", debug),
    OPTION("-h", help),
    OPTION("--help", help),
    OPTION("-V", version),
    OPTION("--version", version),
    KEY_OPTION("allow_other", KEY_ALLOW_OTHER),
    FUSE_OPT_END,
};

/* Is ARG one of those that fstab has for mount(8) and systemd, not for the file system?  mount
 * passes some of them on to a helper like us. */
static bool is_for_mount(const char *arg)
{
    static const char *const words[] = {"defaults", "auto",  "noauto",   "nofail",
                                        "_netdev",  "user",  "nouser",   "users",
                                        "owner",    "group", "relatime", "norelatime"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcmp(arg, words[i]) == 0)
            return true;
    return strncmp(arg, "x-", 2) == 0 || strncmp(arg, "comment=", 8) == 0;
}

static int take_argument(void *data, const char *arg, int key, struct fuse_args *out)
{
    struct raw *raw = data;
    char **place;

    (void)out;
    if (key == KEY_ALLOW_OTHER) {
        raw->allow_other = 1;
        return 0;
    }
    if (key == FUSE_OPT_KEY_OPT)
        return is_for_mount(arg) ? 0 : 1;
    place = !raw->source ? &raw->source : !raw->mountpoint ? &raw->mountpoint : &raw->surplus;
    if (place == &raw->surplus && raw->surplus)
        return 0;
    *place = strdup(arg);
    return *place ? 0 : -1;
}

struct choice {
    const char *word;
    int value;
};

/* The value of WORD among CHOICES (ended by a NULL word); DEFAULT_VALUE if WORD is NULL; or -1.
 */
static int choose(const char *word, const struct choice *choices, int default_value)
{
    if (!word)
        return default_value;
    for (; choices->word; choices++)
        if (strcmp(choices->word, word) == 0)
            return choices->value;
    return -1;
}

static bool parse_seconds(const char *text, double default_value, double *ret_value)
{
    char *end;

    if (!text) {
        *ret_value = default_value;
        return true;
    }
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > TIMEOUT_MAX_S)
        return false;
    *ret_value = value;
    return true;
}

static bool parse_threads(const char *text, unsigned *ret_value)
{
    char *end;

    if (!text) {
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned threads = cpus > 0 ? (unsigned)cpus * THREADS_PER_CPU : THREADS_MIN;
        *ret_value = threads < THREADS_MIN ? THREADS_MIN : threads;
        return true;
    }
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value < 1 || value > THREADS_MAX)
        return false;
    *ret_value = (unsigned)value;
    return true;
}

static bool parse_without(const char *text, struct without *ret_without)
{
    CLEANUP_FREE char *copy = strdup(text ? text : "");
    struct without *w = ret_without;
    char *rest = copy;
    const struct {
        const char *word;
        bool *flag;
    } known[] = {
        {"handles", &w->handles}, {"multigrain", &w->multigrain},   {"killpriv", &w->killpriv},
        {"acl", &w->acl},         {"readdirplus", &w->readdirplus}, {"watch", &w->watch},
    };

    for (const char *word = copy ? strsep(&rest, ":") : NULL; word && *word;
         word = strsep(&rest, ":")) {
        size_t i = 0;
        while (i < ARRAY_SIZE(known) && strcmp(known[i].word, word) != 0)
            i++;
        if (i == ARRAY_SIZE(known))
            return false;
        *known[i].flag = true;
    }
    return copy != NULL;
}

static enum options_result bad_value(const char *option, const char *value,
                                     const char *expected)
{
    return say(OPTIONS_USAGE, "option %s=%s: expected %s", option, value, expected);
}

static enum options_result take_values(const struct raw *raw, struct options *options)
{
    static const struct choice lookups[] = {
        {"fold", LOOKUP_FOLD}, {"exact", LOOKUP_EXACT}, {0}};
    static const struct choice passthroughs[] = {
        {"auto", PASSTHROUGH_AUTO}, {"on", PASSTHROUGH_ON}, {"off", PASSTHROUGH_OFF}, {0}};
    static const struct choice caches[] = {
        {"auto", CACHE_AUTO}, {"strict", CACHE_STRICT}, {"fast", CACHE_FAST}, {0}};

    int lookup = choose(raw->lookup, lookups, LOOKUP_FOLD);
    if (lookup < 0)
        return bad_value("lookup", raw->lookup, "fold or exact");
    options->lookup = (enum lookup_mode)lookup;
    int passthrough = choose(raw->passthrough, passthroughs, PASSTHROUGH_AUTO);
    if (passthrough < 0)
        return bad_value("passthrough", raw->passthrough, "auto, on or off");
    options->passthrough = (enum passthrough_mode)passthrough;
    int cache = choose(raw->cache, caches, CACHE_STRICT);
    if (cache < 0)
        return bad_value("cache", raw->cache, "auto, strict or fast");
    options->cache = (enum cache_mode)cache;
    if (!parse_seconds(raw->attr_timeout, ATTR_TIMEOUT_S, &options->attr_timeout))
        return bad_value("attr_timeout", raw->attr_timeout, "seconds");
    if (!parse_seconds(raw->entry_timeout, ENTRY_TIMEOUT_S, &options->entry_timeout))
        return bad_value("entry_timeout", raw->entry_timeout, "seconds");
    if (!parse_threads(raw->threads, &options->threads))
        return bad_value("threads", raw->threads, "a number from 1 to 1024");
    if (!parse_without(raw->without, &options->without))
        return bad_value(
            "without", raw->without,
            "handles, multigrain, killpriv, acl, readdirplus, watch, joined by colons");
    if (raw->index && !*raw->index)
        return bad_value("index", raw->index, "a directory, or memory");
    if (raw->index && !(options->index = strdup(raw->index)))
        return say(OPTIONS_FAILED, "out of memory");
    options->debug = raw->debug;
    options->foreground = raw->foreground || raw->debug;
    return OPTIONS_RUN;
}

/* PATH without symlinks, if it is a directory; else says what is wrong with it. */
static enum options_result resolve_dir(const char *role, const char *path, char **ret_path)
{
    struct stat st;

    CLEANUP_FREE char *resolved = realpath(path, NULL);
    int r = resolved && stat(resolved, &st) == 0 ? 0 : errno;
    if (r == ENOTCONN)
        return say(OPTIONS_FAILED,
                   "%s %s: the daemon of the mount there is gone; first: umount %s", role, path,
                   path);
    if (r != 0)
        return say(OPTIONS_FAILED, "%s %s: %s", role, path, strerror(r));
    if (!S_ISDIR(st.st_mode))
        return say(OPTIONS_FAILED, "%s %s: not a directory", role, path);
    *ret_path = STEAL_PTR(resolved);
    return OPTIONS_RUN;
}

static enum options_result take_paths(const struct raw *raw, struct options *options)
{
    if (!raw->source)
        return say(OPTIONS_USAGE, "no SOURCE given; foldfs --help shows how");
    if (!raw->mountpoint)
        return say(OPTIONS_USAGE, "no MOUNTPOINT given; foldfs --help shows how");
    if (raw->surplus)
        return say(OPTIONS_USAGE, "%s: one SOURCE and one MOUNTPOINT is all", raw->surplus);
    enum options_result result = resolve_dir("SOURCE", raw->source, &options->source);
    if (result == OPTIONS_RUN)
        result = resolve_dir("MOUNTPOINT", raw->mountpoint, &options->mountpoint);
    if (result != OPTIONS_RUN)
        return result;
    if (path_strictly_inside(options->mountpoint, options->source))
        return say(OPTIONS_FAILED,
                   "MOUNTPOINT %s is inside SOURCE %s: choose a directory outside",
                   options->mountpoint, options->source);
    if (path_strictly_inside(options->source, options->mountpoint))
        return say(OPTIONS_FAILED,
                   "SOURCE %s is inside MOUNTPOINT %s: choose a directory outside",
                   options->source, options->mountpoint);
    return OPTIONS_RUN;
}

/* What libfuse gets beside what is left of the command line. */
static enum options_result add_fuse_options(const struct raw *raw, struct options *options)
{
    CLEANUP_FREE char *fsname = NULL;
    char *list = NULL;

    if (asprintf(&fsname, "fsname=%s", options->source) < 0)
        return say(OPTIONS_FAILED, "out of memory");
    bool ok = fuse_opt_add_opt(&list, "subtype=foldfs,default_permissions") == 0 &&
              fuse_opt_add_opt_escaped(&list, fsname) == 0;
    if (ok && (raw->allow_other || geteuid() == 0))
        ok = fuse_opt_add_opt(&list, "allow_other") == 0;
    if (ok && raw->debug)
        ok = fuse_opt_add_arg(&options->fuse, "-d") == 0;
    ok = ok && fuse_opt_add_arg(&options->fuse, "-o") == 0 &&
         fuse_opt_add_arg(&options->fuse, list) == 0;
    free(list);
    return ok ? OPTIONS_RUN : say(OPTIONS_FAILED, "out of memory");
}

static enum options_result parse(const struct raw *raw, struct options *options)
{
    if (raw->help) {
        fputs(usage_text, stdout);
        return OPTIONS_DONE;
    }
    if (raw->version) {
        printf("foldfs %s, libfuse %s\n", FOLDFS_VERSION, fuse_pkgversion());
        return OPTIONS_DONE;
    }
    enum options_result result = take_values(raw, options);
    if (result == OPTIONS_RUN)
        result = take_paths(raw, options);
    if (result == OPTIONS_RUN)
        result = add_fuse_options(raw, options);
    return result;
}

enum options_result options_parse(int argc, char *argv[], struct options *ret_options)
{
    struct raw raw = {0};

    *ret_options = (struct options){.fuse = FUSE_ARGS_INIT(argc, argv)};
    enum options_result result = OPTIONS_USAGE; /* fuse_opt has said why */
    if (fuse_opt_parse(&ret_options->fuse, &raw, specs, take_argument) == 0)
        result = parse(&raw, ret_options);
    raw_free(&raw);
    return result;
}

void options_free(struct options *options)
{
    free(options->source);
    free(options->mountpoint);
    free(options->index);
    fuse_opt_free_args(&options->fuse);
}
