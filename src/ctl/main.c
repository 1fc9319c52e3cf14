/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * main.c - foldfsctl: asks the daemon of a mount, and knows the rule of names itself.
 *
 * Every command is a function of the words that follow it.  What it asks goes by ioctl to any
 * directory of the mount (fs/control.h).  Exit status: 0; 1 for a mistake in the command line;
 * 2 for all else; `same` gives 1 for names that are not.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "common.h"
#include "fold/fold.h"
#include "fs/control.h"

#define EXIT_USAGE  1
#define EXIT_DIFFER 1
#define EXIT_FAILED 2

static const char usage_text[] =
    "usage: foldfsctl COMMAND ...\n"
    "\n"
    "    status [--json] PATH   what the foldfs that PATH is on does, and how\n"
    "    rename OLD NEW         change only the case of a name, where rename(2) cannot\n"
    "    fold [--hex] NAME...   the form by which names are compared\n"
    "    same A B               are two names one?  exit status 0 or 1\n"
    "    -h, --help             this text\n"
    "    -V, --version          the version\n"
    "\n"
    "See foldfsctl(8).\n";

static int usage(void)
{
    fputs("foldfsctl: a command and its words are expected; foldfsctl --help shows them\n",
          stderr);
    return EXIT_USAGE;
}

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "foldfsctl: %s: %s\n", what, why);
    return EXIT_FAILED;
}

/* What the errno of an ioctl means. */
static const char *ioctl_errno_text(void)
{
    switch (errno) {
    case ENOTTY:
    case EINVAL:
        return "not on a foldfs mount, or one of another version";
    case EPERM:
        return "only root and the one who mounted may ask";
    default:
        return strerror(errno);
    }
}

/* ---- status ---- */

static void print_json_string(const char *text, size_t len)
{
    putchar('"');
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\')
            putchar('\\');
        putchar(text[i]);
    }
    putchar('"');
}

static bool is_number(const char *text, size_t len)
{
    return len > 0 && strspn(text, "0123456789") == len;
}

/* The daemon's lines "KEY VALUE", which hold no control characters. */
static void print_json(const char *text)
{
    const char *before = "{";

    while (*text) {
        size_t line = strcspn(text, "\n"), key = strcspn(text, " ");
        const char *value = text + key + 1;
        size_t len = line - key - 1;

        printf("%s\n  ", before);
        print_json_string(text, key);
        fputs(": ", stdout);
        if (is_number(value, len) && strspn(value, "0123456789") >= len)
            printf("%.*s", (int)len, value);
        else
            print_json_string(value, len);
        before = ",";
        text += line + 1;
    }
    puts("\n}");
}

/* PATH itself, or the directory that it is in. */
static int open_dir_of(const char *path, int *ret_fd)
{
    char parent[PATH_MAX];
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    snprintf(parent, sizeof(parent), "%s", path);
    if (!S_ISDIR(st.st_mode)) {
        char *slash = strrchr(parent, '/');
        snprintf(slash ? slash + (slash == parent) : parent,
                 sizeof(parent) - (slash ? (size_t)(slash - parent) + 1 : 0), "%s",
                 slash ? "" : ".");
    }
    *ret_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

static int command_status(int argc, char *argv[])
{
    CLEANUP_FREE struct control_status *status = calloc(1, sizeof(*status));
    CLEANUP_CLOSE int fd = -1;
    bool json = argc == 2 && strcmp(argv[0], "--json") == 0;

    if (argc != 1 + json)
        return usage();
    const char *path = argv[argc - 1];
    int r = status ? open_dir_of(path, &fd) : -ENOMEM;
    if (r < 0)
        return failed(path, strerror(-r));
    if (ioctl(fd, CONTROL_STATUS, status) < 0)
        return failed(path, ioctl_errno_text());
    status->text[sizeof(status->text) - 1] = '\0';
    if (json)
        print_json(status->text);
    else
        fputs(status->text, stdout);
    return 0;
}

/* ---- rename ---- */

/* Splits PATH into directory and name; false if it has none. */
static bool split(const char *path, char ret_dir[PATH_MAX], char ret_name[CONTROL_NAME_SIZE])
{
    size_t end = strlen(path);

    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (end == start || end - start >= CONTROL_NAME_SIZE || start >= PATH_MAX)
        return false;
    snprintf(ret_dir, PATH_MAX, "%.*s", (int)start, path);
    if (start == 0)
        snprintf(ret_dir, PATH_MAX, ".");
    snprintf(ret_name, CONTROL_NAME_SIZE, "%.*s", (int)(end - start), path + start);
    return true;
}

static const char *rename_errno_text(void)
{
    switch (errno) {
    case ENOENT:
        return "no such name";
    case EEXIST:
        return "the other name is there too";
    default:
        return ioctl_errno_text();
    }
}

static int command_rename(int argc, char *argv[])
{
    char old_dir[PATH_MAX], new_dir[PATH_MAX];
    struct control_rename names = {0};
    struct stat one, other;

    if (argc != 2)
        return usage();
    if (!split(argv[0], old_dir, names.old_name))
        return failed(argv[0], "not the path of an entry");
    /* NEW may be a name alone: in the same directory. */
    if (!split(argv[1], new_dir, names.new_name))
        return failed(argv[1], "not the path of an entry");
    CLEANUP_CLOSE int fd = open(old_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return failed(old_dir, strerror(errno));
    if (strchr(argv[1], '/') && (fstat(fd, &one) < 0 || stat(new_dir, &other) < 0 ||
                                 one.st_dev != other.st_dev || one.st_ino != other.st_ino))
        return failed(argv[1], "not in the same directory; use mv(1)");
    if (!fold_equal(names.old_name, strlen(names.old_name), names.new_name,
                    strlen(names.new_name)))
        return failed(argv[1], "differs by more than its case; use mv(1)");
    if (ioctl(fd, CONTROL_RENAME, &names) < 0)
        return failed(argv[0], rename_errno_text());
    return 0;
}

/* ---- fold, same ---- */

static int command_fold(int argc, char *argv[])
{
    char folded[CONTROL_NAME_SIZE];
    bool hex = argc > 0 && strcmp(argv[0], "--hex") == 0;

    if (argc < 1 + hex)
        return usage();
    for (int i = hex; i < argc; i++) {
        size_t len = strlen(argv[i]);
        if (len == 0 || len > FOLDFS_NAME_MAX)
            return failed(argv[i], "names have 1 to 255 bytes");
        len = fold_name(argv[i], len, folded);
        for (size_t b = 0; hex && b < len; b++)
            printf("%02x", (unsigned char)folded[b]);
        if (!hex)
            fwrite(folded, 1, len, stdout);
        putchar('\n');
    }
    return 0;
}

static int command_same(int argc, char *argv[])
{
    if (argc != 2)
        return usage();
    if (strlen(argv[0]) > FOLDFS_NAME_MAX || strlen(argv[1]) > FOLDFS_NAME_MAX)
        return failed("same", "names have 1 to 255 bytes");
    return fold_equal(argv[0], strlen(argv[0]), argv[1], strlen(argv[1])) ? 0 : EXIT_DIFFER;
}

static int print_usage(int argc, char *argv[])
{
    (void)argc, (void)argv;
    fputs(usage_text, stdout);
    return 0;
}

static int print_version(int argc, char *argv[])
{
    (void)argc, (void)argv;
    puts("foldfsctl " FOLDFS_VERSION);
    return 0;
}

int main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        int (*run)(int argc, char *argv[]);
    } commands[] = {
        {"status", command_status}, {"rename", command_rename},   {"fold", command_fold},
        {"same", command_same},     {"-h", print_usage},          {"--help", print_usage},
        {"-V", print_version},      {"--version", print_version},
    };

    for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        int status = commands[i].run(argc - 2, argv + 2);
        if (fflush(stdout) != 0 || ferror(stdout))
            return failed("standard output", "cannot be written");
        return status;
    }
    return usage();
}
