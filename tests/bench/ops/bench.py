#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of single operations through the mount against the bare tree, and of the same without
READDIRPLUS; nothing is judged.

Each round gives each side a fresh ext4 over memory, in changing order.  Looks go to a directory of
5,000 files at random; changes are made in directories of their own, 1,000 names each; listings
are read from end to end.  ls and find are the programs, with their start.  Clients and daemons
share one processor (see lib/scratch.py).  Medians of the rounds."""
import collections
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import scratch  # noqa: E402
import tools  # noqa: E402

SIDES = {'bare': None, 'foldfs': [], 'without readdirplus': ['without=readdirplus']}
LOOKS = {'exact': 'stat of a file: the daemon is asked',
         'variant': 'stat of a file by another spelling',
         'absent': 'stat of an absent name',
         'stat-dir': 'stat of a directory: cached by the kernel',
         'fstat': 'fstat of an open file: cached by the kernel',
         'open': 'open and close'}
CHANGES = {'create': 'create and close', 'rename': 'rename', 'unlink': 'unlink', 'mkdir': 'mkdir'}
# A rename gives a file this number more (lib/hammer.c).
RENAMED = 5_000_000_000


class Sizes:
    """Of the directories."""

    def __init__(self, session):
        self.looks = session.pick(tiny=50, normal=5000)
        self.changes = session.pick(tiny=20, normal=1000)
        self.list = session.pick(tiny=200, normal=100_000)
        self.folders = session.pick(tiny=2, normal=100)
        self.each = session.pick(tiny=10, normal=1000)


def make_tree(session, sizes):
    total = sizes.looks + sizes.changes + sizes.list + sizes.folders * sizes.each
    tree = scratch.FileSystem(session, size=max(total * 2048, 1 << 28), inodes=total + 20000)
    for name in ('look', 'look/Folder', 'change', 'list', 'find'):
        os.mkdir(os.path.join(tree.path, name))
    fill = {'look': sizes.looks, 'list': sizes.list}
    for i in range(sizes.folders):
        fill[f'find/folder{i:03}'] = sizes.each
        os.mkdir(os.path.join(tree.path, f'find/folder{i:03}'))
    for name, count in fill.items():
        session.hammer('create', os.path.join(tree.path, name), count=count, pinned=False)
    return tree


def seconds_of(*command):
    started = time.monotonic()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   preexec_fn=scratch.pin)
    return time.monotonic() - started


def changes(session, directory, count):
    """(operation, microseconds) for each of CHANGES."""
    for operation in CHANGES:
        first = {'unlink': RENAMED, 'mkdir': 2 * RENAMED}.get(operation, 0)
        yield operation, session.hammer(operation, directory, first=first, count=count)[0]


def one_side(session, sizes, options, i):
    """{figure: value} on a fresh tree, through foldfs unless OPTIONS is None."""
    tree = make_tree(session, sizes)
    mount = None if options is None else scratch.Foldfs(session, tree.path, *options)
    where = mount.path if mount else tree.path
    values = {}
    for operation in LOOKS:
        directory = os.path.join(where, 'look')
        if operation == 'variant' and not mount:
            operation = 'exact'  # the bare tree knows one spelling only
        values[operation] = session.hammer(operation, directory, count=sizes.looks,
                                           entries=sizes.looks, seed=i)[0]
    values.setdefault('variant', values['exact'])
    values.update(changes(session, os.path.join(where, 'change'), sizes.changes))
    values['list'] = session.hammer('list', os.path.join(where, 'list'), entries=sizes.list,
                                    cold=True)[0] / 1000
    look = os.path.join(where, 'look')
    values['ls first'] = seconds_of('ls', '-l', look) * 1000
    values['ls again'] = seconds_of('ls', '-l', look) * 1000
    values['find'] = seconds_of('find', os.path.join(where, 'find'), '-size', '+0') * 1000
    if mount:
        mount.unmount()
    tree.drop()
    return values


def measure(session, report):
    sizes = Sizes(session)
    samples = collections.defaultdict(list)
    count = session.pick(tiny=1, normal=5)
    for i, side in scratch.rounds(count, list(SIDES)):
        tools.progress(f'ops: round {i + 1} of {count}, {side}')
        for key, value in one_side(session, sizes, SIDES[side], i).items():
            samples[key, side].append(value)
    for key, text in {**LOOKS, **CHANGES}.items():
        report.compare(f'{text} / bare tree', 'µs', samples[key, 'foldfs'], samples[key, 'bare'])
    wholes = {'list': f'readdir of {sizes.list:,} names',
              'ls first': f'ls -l of {sizes.looks:,} files',
              'ls again': f'ls -l of {sizes.looks:,} files, again',
              'find': f'find -size over {sizes.folders * sizes.each:,} files'}
    for key, text in wholes.items():
        for side in ('foldfs', 'without readdirplus'):
            note = '' if side == 'foldfs' else ', ' + side
            report.compare(f'{text}{note} / bare tree', 'ms', samples[key, side],
                           samples[key, 'bare'])


if __name__ == '__main__':
    figures.main('ops', __doc__, measure)
