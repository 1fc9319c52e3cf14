#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's processor time for one operation through the mount: in a directory of 10^6 names
against one of 10^3, and for an absent name against a FUSE server that does nothing else.

What is read is the clock of the daemon's process, all threads, before and after a batch of
operations: user and system time, so the system calls on the backing tree are in it.  Each side
has a fresh ext4 and a daemon of its own.  Clients and daemons share one processor, so that no
figure depends on where the scheduler puts them: their cost is then least, which makes the ratios
strictest.  Batches of the sides alternate; the medians of the batches are compared.

Created files stay: removing them would make ext4 skip their inodes at every later creation.  So
that the small directory stays small, each batch creates in another one of the same size."""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import scratch  # noqa: E402
import tools  # noqa: E402

GROWTH_MOST = figures.Limit(1.15)
EMPTY_MOST = figures.Limit(1.25)
# Names beyond all that a side begins with.
NEW_NAMES = 2_000_000_000
UNIT = 'µs CPU'


class Side:
    """A fresh tree under a daemon, with FOLDERS directories of ENTRIES names each."""

    def __init__(self, session, entries, folders):
        self.session, self.entries = session, entries
        total = entries * folders
        self.tree = scratch.FileSystem(session, size=max(total * 1024, 1 << 28),
                                       inodes=total * 2 + 20000)
        self.folders = [f'folder{i:03}' for i in range(folders)]
        for name in self.folders:
            os.mkdir(os.path.join(self.tree.path, name))
            session.hammer('create', os.path.join(self.tree.path, name), count=entries,
                           pinned=False)
        self.mount = scratch.Foldfs(session, self.tree.path)
        for name in self.folders:  # the scan of each directory
            self.hammer('absent', name, count=1)

    def hammer(self, operation, folder, **options):
        """Processor time of the daemon for one operation."""
        return self.session.hammer(operation, os.path.join(self.mount.path, folder),
                                   pid=self.mount.pid, entries=self.entries, **options)[1]


def measure(session, report):
    batches = session.pick(tiny=2, normal=40)
    looks = session.pick(tiny=50, normal=2000)
    creates = session.pick(tiny=20, normal=250)
    small = session.pick(tiny=100, normal=1000)
    large = session.pick(tiny=1000, normal=1_000_000)
    tools.progress(f'cpu: making directories of {small:,} and {large:,} names')
    # A directory that a batch creates in has on average the size that is meant.
    sides = {'small': Side(session, small - creates // 2, batches),
             'large': Side(session, large, 1)}
    empty = scratch.EmptyFuse(session)
    samples = collections.defaultdict(list)
    for i, side in scratch.rounds(batches, ['small', 'large', 'empty']):
        if side == 'empty':
            samples['absent', side].append(session.hammer(
                'absent', empty.path, pid=empty.pid, count=looks, entries=large, seed=i)[1])
            continue
        here = sides[side]
        folder = here.folders[i % len(here.folders)]
        for operation in ('absent', 'variant'):
            samples[operation, side].append(
                here.hammer(operation, folder, count=looks, seed=i))
        samples['create', side].append(
            here.hammer('create', folder, first=NEW_NAMES + i * creates, count=creates))
    size = f'{large:,} names / {small:,} names'
    for operation, text in (('absent', 'absent name'), ('variant', 'other spelling'),
                            ('create', 'create and close')):
        report.compare(f'{text}: {size}', UNIT, samples[operation, 'large'],
                       samples[operation, 'small'], GROWTH_MOST)
    for side, count in (('small', small), ('large', large)):
        report.compare(f'absent name among {count:,} / empty FUSE server', UNIT,
                       samples['absent', side], samples['absent', 'empty'], EMPTY_MOST)


if __name__ == '__main__':
    figures.main('cpu', __doc__, measure)
