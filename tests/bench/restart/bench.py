#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first answer after a restart, in a directory of 10^6 names that the index knows.

The tree and the index are on fresh ext4s of their own.  A first daemon scans the directory and is
unmounted.  Then, for a name that exists, another spelling of one, and an absent one, each several
times: both file systems are mounted anew, so that nothing of them is cached, the daemon is
started, and the clock runs from the moment in which its command has returned, when the mount
answers, to the end of one stat.

In a run of its own a daemon is started under strace, which counts the getdents64 calls on that
directory until it has answered all three.  The same count for the first scan, with no index,
shows that the counting counts."""
import collections
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import scratch  # noqa: E402
import tools  # noqa: E402

ANSWER_MOST = figures.Limit(50, of='ours')
NO_SCAN = figures.Limit(0, of='ours')
KINDS = {'exact': 'found', 'variant': 'other spelling', 'absent': 'absent'}


def first_answer(session, mount, kind, entries, seed):
    """Milliseconds of one look-up of KIND, which is checked."""
    started = time.monotonic()
    session.hammer(kind, os.path.join(mount.path, 'folder'), entries=entries, seed=seed,
                   cold=True)
    return (time.monotonic() - started) * 1000


class Place:
    """A tree with one directory of ENTRIES names, and a place for its index."""

    def __init__(self, session, entries):
        self.session, self.entries = session, entries
        self.tree = scratch.FileSystem(session, size=max(entries * 1024, 1 << 28),
                                       inodes=entries + 20000)
        self.index_fs = scratch.FileSystem(session, size=max(entries * 512, 1 << 28))
        folder = os.path.join(self.tree.path, 'folder')
        os.mkdir(folder)
        session.hammer('create', folder, count=entries, pinned=False)

    def start(self):
        self.tree.remount()
        self.index_fs.remount()
        return scratch.Foldfs(self.session, self.tree.path,
                              index=os.path.join(self.index_fs.path, 'index'))

    def count_scans(self):
        """getdents64 calls on the directory by a daemon that gives all three answers."""
        self.tree.remount()
        self.index_fs.remount()
        output = self.session.new_path('strace')
        mount = scratch.Foldfs(self.session, self.tree.path, start=False,
                               index=os.path.join(self.index_fs.path, 'index'))
        tracer = subprocess.Popen(
            ['strace', '-f', '-y', '-qq', '-e', 'trace=getdents64,getdents', '-o', output,
             self.session.programs.foldfs, '-f', *mount.arguments()], stdin=subprocess.DEVNULL)
        scratch.wait_until(mount.is_mounted, 'mount under strace')
        for kind in KINDS:
            first_answer(self.session, mount, kind, self.entries, 1)
        scratch.call('umount', mount.path)
        tracer.wait()
        on_it = re.compile(r'getdents(64)?\(\d+<' + re.escape(self.tree.path) + '/folder>')
        with open(output, encoding='utf-8', errors='replace') as file:
            return sum(bool(on_it.search(line)) for line in file)


def measure(session, report):
    entries = session.pick(tiny=2000, normal=1_000_000)
    count = session.pick(tiny=1, normal=5)
    tools.progress(f'restart: making a directory of {entries:,} names')
    place = Place(session, entries)
    scans_first = place.count_scans()
    if not scans_first:
        sys.exit('restart: the first scan was not seen: strace counts wrongly')
    samples = collections.defaultdict(list)
    for i, kind in scratch.rounds(count, list(KINDS)):
        mount = place.start()
        samples[kind].append(first_answer(session, mount, kind, entries, i))
        samples['start'].append(mount.start_s * 1000)
        mount.unmount()
    for kind, text in KINDS.items():
        report.median(f'first answer among {entries:,} names, {text}', 'ms',
                      samples[kind], ANSWER_MOST)
    report.median('the foldfs command, until the mount answers', 'ms', samples['start'])
    report.add('reads of the directory for these answers / of the first daemon', 'getdents64',
               place.count_scans(), scans_first, NO_SCAN)


if __name__ == '__main__':
    figures.main('restart', __doc__, measure)
