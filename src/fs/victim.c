/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * victim.c - a file that is about to lose a name.
 *
 * A file whose last name goes can afterwards be reached neither by handle nor by name; but the
 * kernel may still ask about it (fstat on an O_PATH descriptor or a removed working
 * directory).  So a descriptor is taken before and held on to after.  Not on a remote file
 * system: there the client would turn the removal into a rename to a `.nfs` name, so the
 * descriptors that nobody uses are closed instead, and such a file gives ESTALE.
 */
#include "fs/victim.h"

void victim_get(struct foldfs *fs, const struct statx *st, struct victim *ret_victim)
{
    *ret_victim = (struct victim){.fs = fs, .node = node_find(fs->nodes, st)};

    if (!ret_victim->node)
        return;
    if (ret_victim->node->key.fsys->remote)
        reach_drop(fs, ret_victim->node);
    else
        (void)reach_get(fs, ret_victim->node, &ret_victim->file);
}

void victim_removed(struct victim *victim)
{
    struct index_dir *dir;
    struct statx st;

    if (!victim->node)
        return;
    if (node_is_dir(victim->node)) {
        dir = atomic_load(&victim->node->dir);
        if (dir)
            index_dir_forget(dir);
    } else if (victim->node->handle_bytes > 0 && victim->file.node &&
               file_stat(victim->file.fd, "", &st) == 0 && st.stx_nlink > 0) {
        return; /* it has other names */
    }
    if (victim->file.node)
        reach_hold(&victim->file);
}

void victim_put(struct victim *victim)
{
    reach_put(&victim->file);
    if (victim->node)
        node_unpin(victim->fs->nodes, victim->node);
    victim->node = NULL;
}
