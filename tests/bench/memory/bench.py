#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of the daemon: for the names that the index holds, and for the nodes that the kernel
refers to.

What counts is what is the daemon's own: Private_* of /proc/PID/smaps without the shared mappings
of the index's files, which are page cache.

Names: directories of 10^5 names each on a fresh ext4, 10^6 in all (10^7 with --full; hard links,
since inodes are not what is measured).  Each directory is made known to the index by one look-up;
the size of the index's files shows that it took all of them.
Then the mount is remounted, which makes the kernel forget every node, and the memory is read; a
daemon that was then started again with that index gives the second figure.

Nodes: find(1) looks at 10^6 files through the mount (10^5 in each directory); what the daemon's
memory grew by is divided by the files and directories.  That the kernel still refers to all of
them is seen by the number of its inodes of FUSE."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import scratch  # noqa: E402
import tools  # noqa: E402

NAMES_MOST = figures.Limit(64, of='ours')
NODE_MOST = figures.Limit(200, of='ours')
MIB = 1 << 20
# An ext4 directory entry, an index record and slot: what a name takes in the images.
NAME_BYTES = 256
INODE_BYTES = 512


def fill(session, operation, folders, each):
    """A fresh ext4 with FOLDERS directories of EACH names made by OPERATION."""
    inodes = folders * each if operation == 'create' else folders * (each // 50000 + 2)
    tree = scratch.FileSystem(session, inodes=inodes + 20000,
                              size=(1 << 28) + folders * each * NAME_BYTES + inodes * INODE_BYTES)
    for i in range(folders):
        folder = os.path.join(tree.path, f'folder{i:03}')
        os.mkdir(folder)
        session.hammer(operation, folder, count=each, pinned=False)
    return tree


def measure_names(session, report):
    folders = session.pick(tiny=2, normal=10, full=100)
    each = session.pick(tiny=500, normal=100_000)
    total = folders * each
    tools.progress(f'memory: making {total:,} names')
    tree = fill(session, 'link', folders, each)
    index_fs = scratch.FileSystem(session, size=(1 << 28) + total * NAME_BYTES)
    mount = scratch.Foldfs(session, tree.path, index=os.path.join(index_fs.path, 'index'))
    report.add('daemon that holds no names, at its start', 'MiB', mount.memory() / MIB)
    for name in sorted(os.listdir(mount.path)):
        if name.startswith('folder'):
            session.hammer('absent', os.path.join(mount.path, name), entries=each)
    mount.forget_all()
    report.add(f'{total:,} names scanned, no node in use', 'MiB', mount.memory() / MIB,
               limit=NAMES_MOST)
    mount.unmount()
    used = int(scratch.call('du', '-s', '-B1', os.path.join(index_fs.path, 'index')).split()[0])
    report.add('files of that index', 'bytes a name', used / total)
    mount.start()
    session.hammer('absent', os.path.join(mount.path, 'folder000'), entries=each)
    mount.forget_all()
    report.add(f'{total:,} names known at start, no node in use', 'MiB', mount.memory() / MIB,
               limit=NAMES_MOST)
    mount.unmount()
    tree.drop()
    index_fs.drop()


def kernel_inodes():
    """Inodes that the kernel has of all FUSE mounts."""
    with open('/proc/slabinfo', encoding='ascii') as file:
        for line in file:
            if line.startswith('fuse_inode'):
                return int(line.split()[1])
    return 0


def measure_nodes(session, report):
    folders = session.pick(tiny=2, normal=10)
    each = session.pick(tiny=500, normal=100_000)
    total = folders * each
    tools.progress(f'memory: making {total:,} files')
    tree = fill(session, 'create', folders, each)
    mount = scratch.Foldfs(session, tree.path)
    before, inodes = mount.memory(), kernel_inodes()
    found = subprocess.run(['find', mount.path, '-size', '0', '-type', 'f'], check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
    after = mount.memory()
    if found.count(b'\n') != total:
        sys.exit(f'memory: find saw other than {total} files')
    if session.size != 'tiny' and kernel_inodes() - inodes < 0.95 * total:
        sys.exit('memory: the kernel forgot files during the find')
    report.add(f'a node, after find over {total:,} files', 'bytes',
               (after - before) / (total + folders), limit=NODE_MOST)
    mount.forget_all()
    report.add('left of it when all nodes are forgotten', 'bytes a node',
               max(0, mount.memory() - before) / (total + folders))
    mount.unmount()
    tree.drop()


def measure(session, report):
    measure_nodes(session, report)
    measure_names(session, report)


if __name__ == '__main__':
    figures.main('memory', __doc__, measure)
