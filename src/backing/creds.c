/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * creds.c - as whom a request thread acts on the backing tree.
 *
 * The kernel decides who may do what (default_permissions, with the ACLs).  What is left to
 * us is to be the right one when it matters who acts: the owner of what is created, the
 * quota and the reserved blocks that a write may use, setuid bits that a write clears.
 *
 * So each thread carries the file-system uid and gid of its last caller and only changes them
 * when the next caller is another: under Samba, one user's requests cost no switch at all.
 * SECBIT_NO_SETUID_FIXUP keeps the capabilities over setfsuid(2), so that the caller's
 * supplementary groups are not needed: a thread without CAP_DAC_OVERRIDE could not create in a
 * 2770 directory unless it first read the groups from /proc (25 us) and believed a cache of
 * them.  Of the capabilities a caller who is not root never has CAP_SYS_RESOURCE (quota,
 * reserved blocks); CAP_FSETID only where the kernel has already decided about the bits; and
 * CAP_FOWNER not where an entry is removed, for what the kernel checked in a sticky directory
 * may have been another entry than the one that the name means now.
 *
 * Everything here is of one thread: raw system calls, since the C library's setfsuid and
 * capset are per thread but its setgroups and setresuid are not.  The umask is of the
 * thread once unshare(CLONE_FS) has been called in it.
 *
 * Left out: servers that decide themselves (NFS with root_squash) and want the caller's groups.
 */
#include "backing/creds.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common.h"

/* uid for passthrough I/O that root asked for: the overflow id, owner of nothing. */
#define NOBODY 65534

static bool can_switch;
static uint64_t permitted; /* capabilities of the process, as a mask */

struct identity {
    uid_t uid;
    gid_t gid;
    uint64_t effective;
    mode_t umask;
    bool prepared; /* the thread has its own umask, and keeps its capabilities */
};

static _Thread_local struct identity self;

static int read_capabilities(uint64_t *ret_permitted, uint64_t *ret_effective)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    *ret_permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    *ret_effective = data[0].effective | (uint64_t)data[1].effective << 32;
    return 0;
}

static int write_capabilities(uint64_t effective)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
        {.effective = (uint32_t)effective, .permitted = (uint32_t)permitted},
        {.effective = (uint32_t)(effective >> 32), .permitted = (uint32_t)(permitted >> 32)},
    };

    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static uint64_t mask_of(int capability)
{
    return UINT64_C(1) << capability;
}

void creds_start(void)
{
    uint64_t effective = 0;
    const uint64_t needed = mask_of(CAP_SETUID) | mask_of(CAP_SETGID) | mask_of(CAP_SETPCAP);

    umask(0);
    if (read_capabilities(&permitted, &effective) < 0)
        return;
    can_switch = geteuid() == 0 && (effective & needed) == needed;
    if (can_switch)
        (void)setgroups(0, NULL); /* without CAP_SETGID it keeps the groups it has */
}

bool creds_can_switch(void)
{
    return can_switch;
}

/* Makes umask and securebits the thread's own; once a thread.  A thread begins with the ids and
 * the umask that the thread which started it had at that moment. */
static int prepare_thread(void)
{
    if (unshare(CLONE_FS) < 0)
        return -errno;
    umask(0);
    self = (struct identity){.uid = geteuid(), .gid = getegid(), .effective = permitted};
    if (can_switch) {
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
            return -errno;
        int r = write_capabilities(permitted);
        if (r < 0)
            return r;
        setfsgid(self.gid);
        setfsuid(self.uid);
    }
    self.prepared = true;
    return 0;
}

static int become(uid_t uid, gid_t gid, uint64_t without)
{
    if (!self.prepared) {
        int r = prepare_thread();
        if (r < 0)
            return r;
    }
    if (!can_switch)
        return 0;

    uint64_t effective = permitted & ~without;
    if (effective != self.effective) {
        int r = write_capabilities(effective);
        if (r < 0)
            return r;
        self.effective = effective;
    }
    /* Neither call reports failure; with CAP_SETUID and CAP_SETGID they cannot fail but for an
     * id that is -1. */
    if (gid != self.gid) {
        if (gid == (gid_t)-1)
            return -EINVAL;
        setfsgid(gid);
        self.gid = gid;
    }
    if (uid != self.uid) {
        if (uid == (uid_t)-1)
            return -EINVAL;
        setfsuid(uid);
        self.uid = uid;
    }
    return 0;
}

/* What a thread that acts as UID does without. */
static uint64_t withheld(uid_t uid)
{
    return uid == 0 ? 0 : mask_of(CAP_SYS_RESOURCE);
}

int creds_act_as(uid_t uid, gid_t gid)
{
    return become(uid, gid, withheld(uid));
}

int creds_act_as_remover(uid_t uid, gid_t gid)
{
    return become(uid, gid, withheld(uid) | (uid == 0 ? 0 : mask_of(CAP_FOWNER)));
}

int creds_act_as_unprivileged(uid_t uid, gid_t gid)
{
    return become(uid, gid, withheld(uid) | mask_of(CAP_FSETID));
}

int creds_act_for_passthrough(void)
{
    /* Any user will do, so that the thread changes as little as it can. */
    return become(self.uid == 0 ? NOBODY : self.uid, self.gid,
                  withheld(NOBODY) | mask_of(CAP_FSETID));
}

int creds_act_as_self(void)
{
    return become(geteuid(), getegid(), 0);
}

void creds_set_umask(mode_t mask)
{
    if (mask != self.umask) {
        umask(mask);
        self.umask = mask;
    }
}

/* The rest of the line of /proc/PID/status that begins with KEY, to be freed; NULL if it cannot
 * be read.  A thread id works as a process id there.  The groups alone can make a line of 700
 * KB. */
static char *read_status(pid_t pid, const char *key)
{
    char path[sizeof("/proc/2147483648/status")];
    char *line = NULL;
    size_t size = 0;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *status = fopen(path, "re");
    if (!status)
        return NULL;
    bool found = false;
    while (!found && getline(&line, &size, status) >= 0)
        found = strncmp(line, key, strlen(key)) == 0;
    fclose(status);
    if (found)
        return line;
    free(line);
    return NULL;
}

/* The Nth number, from 0, after the colon of LINE; or all of them if N is negative: is GID one?
 */
static bool line_has(const char *line, int n, gid_t gid)
{
    char *end;

    line = strchr(line, ':') + 1;
    for (int at = 0;; at++) {
        unsigned long group = strtoul(line, &end, 10);
        if (end == line)
            return false;
        if (group == gid && (n < 0 || n == at))
            return true;
        line = end;
    }
}

/* Place of the file-system gid among the four of a Gid: line. */
#define FSGID_PLACE 3

bool creds_process_in_group(pid_t pid, gid_t gid)
{
    CLEANUP_FREE char *gids = read_status(pid, "Gid:");
    if (gids && line_has(gids, FSGID_PLACE, gid))
        return true;
    CLEANUP_FREE char *groups = read_status(pid, "Groups:");
    return groups && line_has(groups, -1, gid);
}

/* Is PID in our user namespace?  In one of its own a process has all capabilities, over
 * nothing. */
static bool shares_user_namespace(pid_t pid)
{
    char path[sizeof("/proc/2147483648/ns/user")];
    struct stat theirs, ours;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    return stat(path, &theirs) == 0 && stat("/proc/self/ns/user", &ours) == 0 &&
           theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

bool creds_process_is_admin(pid_t pid)
{
    uint64_t effective;
    CLEANUP_FREE char *line = read_status(pid, "CapEff:");

    return line && sscanf(line, "CapEff: %" SCNx64, &effective) == 1 &&
           (effective & mask_of(CAP_SYS_ADMIN)) != 0 && shares_user_namespace(pid);
}
