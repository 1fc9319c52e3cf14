#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon's processor time for one operation through the mount: in a directory of 10^6 names
against one of 10^3, and for an absent name against a FUSE server that does nothing else.

What is read is the clock of the daemon's process, all threads, before and after a batch of
operations: user and system time, so the system calls on the backing tree are in it.  Each side
has a fresh ext4, another for the index, and a daemon of its own.  Clients and daemons share one processor, so that no
figure depends on where the scheduler puts them: their cost is then least, which makes the ratios
strictest.  Batches of the sides alternate; the medians of the batches are compared.

Absent names are taken at random, as many different ones as there are entries.  Other spellings go
to the same number of files on both sides, 10^3, spread over the whole directory: files that the
kernel has met before, so that the size of the directory is all that differs.  What it costs to
meet 10^6 different files for the first time, their nodes and the misses of the processor's
caches, is reported beside it; so is the processor time of a client's stat and create calls on the
bare tree, whose growth is part of the daemon's.

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
    """A fresh tree with FOLDERS directories of ENTRIES names each, later under a daemon."""

    def __init__(self, session, entries, folders):
        self.session, self.entries = session, entries
        total = entries * folders
        self.tree = scratch.FileSystem(session, size=max(total * 1024, 1 << 28),
                                       inodes=total * 2 + 20000)
        self.index_fs = scratch.FileSystem(session, size=max(total * 256, 1 << 28))
        self.folders = [f'folder{i:03}' for i in range(folders)]
        for name in self.folders:
            os.mkdir(os.path.join(self.tree.path, name))
            session.hammer('create', os.path.join(self.tree.path, name), count=entries,
                           pinned=False)
        self.mount = None

    def folder(self, i):
        return self.folders[i % len(self.folders)]

    def start(self):
        self.mount = scratch.Foldfs(self.session, self.tree.path,
                                    index=os.path.join(self.index_fs.path, 'index'))
        for name in self.folders:  # the scan of each directory
            self.hammer('absent', name, count=1)

    def hammer(self, operation, folder, **options):
        """Processor time of the daemon for one operation."""
        options.setdefault('entries', self.entries)
        return self.session.hammer(operation, os.path.join(self.mount.path, folder),
                                   pid=self.mount.pid, **options)[1]

    def bare(self, operation, folder, **options):
        """Processor time of the client for one operation without foldfs."""
        return self.session.hammer(operation, os.path.join(self.tree.path, folder),
                                   entries=self.entries, **options)[1]


class Sizes:
    """Of directories and batches."""

    def __init__(self, session):
        self.batches = session.pick(tiny=2, normal=40)
        self.looks = session.pick(tiny=50, normal=2000)
        self.creates = session.pick(tiny=20, normal=250)
        self.small = session.pick(tiny=100, normal=1000)
        self.large = session.pick(tiny=1000, normal=1_000_000)
        # A directory that a batch creates in has on average the size that is meant.
        self.small_at_first = self.small - self.creates // 2


def bare_batch(sizes, side, samples, key, i):
    """Batch I on the bare tree of the side called KEY."""
    folder = side.folder(sizes.batches + i)
    samples['bare stat', key].append(side.bare('exact', folder, count=sizes.looks, seed=i))
    samples['bare create', key].append(side.bare(
        'create', folder, first=2 * NEW_NAMES + i * sizes.creates, count=sizes.creates))


def batch(sizes, side, samples, key, i):
    """Batch I on the side called KEY."""
    folder = side.folder(i)
    samples['absent', key].append(side.hammer('absent', folder, count=sizes.looks, seed=i))
    # A small directory is another one in each batch: its files are met here, not below.
    some = {'entries': sizes.small_at_first, 'step': side.entries // sizes.small_at_first}
    side.hammer('variant', folder, count=4 * sizes.small, seed=i, **some)
    samples['variant', key].append(
        side.hammer('variant', folder, count=sizes.looks, seed=i, **some))
    samples['any', key].append(side.hammer('variant', folder, count=sizes.looks, seed=i))
    samples['create', key].append(side.hammer(
        'create', folder, first=NEW_NAMES + i * sizes.creates, count=sizes.creates))


def measure(session, report):
    sizes = Sizes(session)
    tools.progress(f'cpu: making directories of {sizes.small:,} and {sizes.large:,} names')
    # Half of the small directories are for the batches on the bare tree.
    sides = {'small': Side(session, sizes.small_at_first, 2 * sizes.batches),
             'large': Side(session, sizes.large, 1)}
    samples = collections.defaultdict(list)
    for i, key in scratch.rounds(sizes.batches, ['small', 'large']):
        bare_batch(sizes, sides[key], samples, key, i)
    for side in sides.values():
        side.start()
    empty = scratch.EmptyFuse(session)
    for i, key in scratch.rounds(sizes.batches, ['small', 'large', 'empty']):
        if key == 'empty':
            samples['absent', key].append(session.hammer(
                'absent', empty.path, pid=empty.pid, count=sizes.looks, entries=sizes.large,
                seed=i)[1])
        else:
            batch(sizes, sides[key], samples, key, i)
    size = f'{sizes.large:,} names / {sizes.small:,} names'
    for key, text, unit, limit in (
            ('absent', 'absent name', UNIT, GROWTH_MOST),
            ('variant', 'other spelling', UNIT, GROWTH_MOST),
            ('create', 'create and close', UNIT, GROWTH_MOST),
            ('any', 'other spelling, of any file of the directory', UNIT, None),
            ('bare stat', 'bare tree: stat of any file of the directory', UNIT, None),
            ('bare create', 'bare tree: create and close', UNIT, None)):
        report.compare(f'{text}: {size}', unit, samples[key, 'large'], samples[key, 'small'],
                       limit)
    for key, count in (('small', sizes.small), ('large', sizes.large)):
        report.compare(f'absent name among {count:,} / empty FUSE server', UNIT,
                       samples['absent', key], samples['absent', 'empty'], EMPTY_MOST)


if __name__ == '__main__':
    figures.main('cpu', __doc__, measure)
