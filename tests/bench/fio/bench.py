#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of file contents through the mount against the bare tree: with passthrough, where
the kernel does it alone, and without, where each request is the daemon's.

Each round gives each side a fresh ext4 on a loop device over memory, in changing order: fio
writes a file from end to end and reads it, then reads and writes 4 KiB blocks of another one at
random, by plain read and write calls, all in the page cache: no disk is waited for, so what
foldfs costs shows in full.  The second file was written in such blocks too: in the large folios
that large writes leave, ext4 takes ten times as long to write one, with and without foldfs.  What
was written is synced between the jobs, outside the time.  Then a program writes two more files as
clients of file servers do.  Medians of all rounds.

Client and daemon are not bound to a processor: they need two where the daemon has a part."""
import collections
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import scratch  # noqa: E402
import tools  # noqa: E402

MIB = 1 << 20


class Job:
    """One fio job: KIND is fio's rw=; without a limit it only makes its file."""

    def __init__(self, text, kind, block, least=None):
        self.text, self.kind, self.block = text, kind, block
        self.file = 'blocks' if block == '4k' else 'data'
        self.limit = least and figures.Limit(least, figures.AT_LEAST)


JOBS = (Job('sequential write', 'write', '1M', 0.85),
        Job('sequential read', 'read', '1M', 0.90),
        Job('layout', 'write', '4k'),
        Job('random 4k read', 'randread', '4k', 0.85),
        Job('random 4k write', 'randwrite', '4k', 0.90))
BLOCKS = {'full': 'zeros in 8 KiB blocks', 'marked': 'one byte each 8 KiB, then the blocks'}
BLOCKS_LEAST = figures.Limit(0.90, figures.AT_LEAST)
SIDES = {'bare': None, 'passthrough': 'passthrough=on', 'plain': 'passthrough=off'}


def run_fio(job, directory, size, milliseconds):
    """MiB per second."""
    duration = ['--time_based', f'--runtime={milliseconds}ms'] if job.kind != 'write' else []
    path = os.path.join(directory, job.file)
    command = ['fio', '--name=job', f'--filename={path}', f'--rw={job.kind}', f'--bs={job.block}', f'--size={size}', '--ioengine=psync',
               '--invalidate=0', '--fallocate=none', '--randrepeat=1', '--norandommap',
               '--output-format=json', *duration]
    kind = 'write' if 'write' in job.kind else 'read'
    output = json.loads(scratch.call(*command))
    if os.path.getsize(path) != size:
        sys.exit(f'fio: {path} is not as long as it was to become')
    return output['jobs'][0][kind]['bw_bytes'] / MIB


def one_side(session, mount_options):
    """{job: MiB per second} on a fresh file system, through foldfs if it has options."""
    size = session.pick(tiny=4 * MIB, normal=2048 * MIB)
    blocks_size = session.pick(tiny=MIB, normal=512 * MIB)
    milliseconds = session.pick(tiny=100, normal=2000)
    tree = scratch.FileSystem(session, size=2 * (size + 3 * blocks_size) + 256 * MIB)
    mount = mount_options and scratch.Foldfs(session, tree.path, mount_options, pinned=False)
    where = mount.path if mount else tree.path
    speeds = {}
    for job in JOBS:
        speeds[job.text] = run_fio(job, where, size if job.block == '1M' else blocks_size,
                                   milliseconds)
        scratch.call('sync', '-f', tree.path)
    for kind, text in BLOCKS.items():
        name = os.path.join(where, kind)
        speeds[text] = blocks_size / MIB / (
            int(scratch.call(session.programs.blocks, kind, name, blocks_size)) / 1e9)
        scratch.call('sync', '-f', tree.path)
    if mount:
        mount.unmount()
    tree.drop()
    return speeds


def measure(session, report):
    count = session.pick(tiny=1, normal=7)
    samples = collections.defaultdict(list)
    for i, side in scratch.rounds(count, list(SIDES)):
        tools.progress(f'fio: round {i + 1} of {count}, {side}')
        for text, speed in one_side(session, SIDES[side]).items():
            samples[text, side].append(speed)
    limits = {job.text: job.limit for job in JOBS if job.limit}
    for side, limited in (('passthrough', True), ('plain', False)):
        for text in [job.text for job in JOBS if job.limit] + list(BLOCKS.values()):
            limit = limits.get(text, BLOCKS_LEAST) if limited else None
            report.compare(f'{text}, {SIDES[side]} / bare tree', 'MiB/s', samples[text, side],
                           samples[text, 'bare'], limit)


if __name__ == '__main__':
    figures.main('fio', __doc__, measure)
