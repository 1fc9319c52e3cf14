/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * control.h - what foldfsctl(8) asks of the daemon, by ioctl on a directory of the mount.
 *
 * Shared by both.  Only root and the user whom the daemon runs as may ask; others get EPERM.
 * Commands that the daemon does not know give ENOTTY.
 */
#ifndef FOLDFS_FS_CONTROL_H
#define FOLDFS_FS_CONTROL_H

#include <linux/ioctl.h>

#define CONTROL_NAME_SIZE   256  /* a name with its NUL */
#define CONTROL_STATUS_SIZE 8192 /* lines "KEY VALUE\n", with a NUL */

/* An entry of the directory is to be called NEW_NAME, which folds like OLD_NAME; both end with
 * NUL. */
struct control_rename {
    char old_name[CONTROL_NAME_SIZE];
    char new_name[CONTROL_NAME_SIZE];
};

struct control_status {
    char text[CONTROL_STATUS_SIZE];
};

#define CONTROL_TYPE   0xF0
#define CONTROL_RENAME _IOW(CONTROL_TYPE, 1, struct control_rename)
#define CONTROL_STATUS _IOR(CONTROL_TYPE, 2, struct control_status)

#endif
