/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * creds.h - as whom a request thread acts on the backing tree.
 */
#ifndef FOLDFS_BACKING_CREDS_H
#define FOLDFS_BACKING_CREDS_H

#include <stdbool.h>
#include <sys/types.h>

/* Prepares the process: drops supplementary groups and the umask, finds out which
 * capabilities there are.  Call once, before threads start. */
void creds_start(void);

/* May this daemon act as others at all (started as root)?  Else every creds_ call below does
 * nothing, and the tree is reached as the user who started it. */
bool creds_can_switch(void);

/* From now on this thread acts as user UID and group GID: what it creates is theirs, and quota
 * and reserved blocks bind as they bind them.  Permissions do not: the kernel has checked
 * them (default_permissions), and the thread keeps CAP_DAC_OVERRIDE and its kin.  Costs
 * nothing when the thread acts as them already.  0 or a negative errno. */
int creds_act_as(uid_t uid, gid_t gid);

/* The same for removing or renaming an entry: unless UID is root, a sticky directory binds,
 * whoever the entry turns out to belong to. */
int creds_act_as_remover(uid_t uid, gid_t gid);

/* The same, but a write, truncation or the like clears setuid and setgid bits, as it does for
 * a process without CAP_FSETID. */
int creds_act_as_unprivileged(uid_t uid, gid_t gid);

/* As whom the kernel is to do the I/O of a passthrough file: not root, so bound by quota and
 * (unless the file system reserves its blocks for just this user) reserved blocks, clearing
 * setuid bits, yet with CAP_SYS_ADMIN, which the registration asks for. */
int creds_act_for_passthrough(void);

/* The process itself again: for what foldfs does on its own behalf. */
int creds_act_as_self(void);

/* The mask for this thread's next creating call.  A backing directory with a default ACL
 * ignores it, as it must. */
void creds_set_umask(mode_t umask);

/* Does the process or thread PID have GID among its groups?  Read from /proc, so slow (about
 * 20 us); false where that cannot be read. */
bool creds_process_in_group(pid_t pid, gid_t gid);

/* Does it have CAP_SYS_ADMIN in effect?  The same cost; false where that cannot be read. */
bool creds_process_is_admin(pid_t pid);

#endif
