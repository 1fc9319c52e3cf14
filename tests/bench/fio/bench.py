#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed of file contents through the mount against the bare tree: with passthrough, where
the kernel does it alone, and without, where each request is the daemon's.

Each round gives the bare tree and the mount a fresh ext4 each, on loop devices over memory.  fio
writes a new file from end to end and reads it, then writes another new one in blocks of 4 KiB at
random, each once, reads it so, and writes it so again (which is reported only: it is so short
that the kernel's passthrough itself shows).  By plain read and write calls, all in the page cache:
no disk is waited for.  Then a program writes files as clients of file servers do.  Each job is
done in several short turns, the sides one after the other, so that other load on the machine
meets both; what was written is synced outside the time.  Medians of all turns of all rounds;
what is only reported gets fewer of them.

Client and daemon are not bound to a processor: they need two where the daemon has a part."""
import collections
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import scratch  # noqa: E402
import tools  # noqa: E402

MIB = 1 << 20


class Job:
    """One fio job: KIND is fio's rw=; NEW: the file is made by it."""

    def __init__(self, text, kind, block, least=None, new=False):
        self.text, self.kind, self.block, self.new = text, kind, block, new
        self.file = 'blocks' if block == '4k' else 'data'
        self.limit = least and figures.Limit(least, figures.AT_LEAST)


JOBS = (Job('sequential write', 'write', '1M', 0.85, new=True),
        Job('sequential read', 'read', '1M', 0.90),
        Job('random 4k write', 'randwrite', '4k', 0.90, new=True),
        Job('random 4k read', 'randread', '4k', 0.85),
        Job('random 4k write over what is there', 'randwrite', '4k'))
BLOCKS = {'full': 'zeros in 8 KiB blocks', 'marked': 'one byte each 8 KiB, then the blocks'}
BLOCKS_LEAST = figures.Limit(0.90, figures.AT_LEAST)
# A removed file's pages are freed by the daemon when the kernel has forgotten it, a moment later:
# 100 ms for the longest.  That is no part of what is written next.
FORGET_S = 0.3
# A turn of reading lasts as long as one of writing.
READ_LOOPS = 4
# What has limits, and what is only reported.
JUDGED, REPORTED = 'passthrough=on', 'passthrough=off'


class Sizes:
    """Of files (bytes), and the numbers of rounds and of turns in each."""

    def __init__(self, session):
        self.file = session.pick(tiny=4 * MIB, normal=1024 * MIB)
        self.blocks = session.pick(tiny=MIB, normal=512 * MIB)
        self.turns = {JUDGED: session.pick(tiny=1, normal=5),
                      REPORTED: session.pick(tiny=1, normal=2)}
        self.rounds = session.pick(tiny=(JUDGED, REPORTED),
                                   normal=(JUDGED, REPORTED, JUDGED, REPORTED, JUDGED))


def remove(path):
    if os.path.exists(path):
        os.unlink(path)
        time.sleep(FORGET_S)


def run_fio(job, directory, sizes):
    """MiB per second in one turn of JOB."""
    size = sizes.file if job.block == '1M' else sizes.blocks
    path = os.path.join(directory, job.file)
    loops = READ_LOOPS if 'read' in job.kind else 1
    if job.new:
        remove(path)
    command = ['fio', '--name=job', f'--filename={path}', f'--rw={job.kind}',
               f'--bs={job.block}', f'--size={size}', '--ioengine=psync', '--thread',
               '--invalidate=0', '--fallocate=none', f'--loops={loops}', '--output-format=json']
    kind = 'write' if 'write' in job.kind else 'read'
    output = json.loads(scratch.call(*command))
    if os.path.getsize(path) != size:
        sys.exit(f'fio: {path} is not as long as it was to become')
    return output['jobs'][0][kind]['bw_bytes'] / MIB


def run_blocks(session, kind, directory, sizes):
    """MiB per second of a new file written by blocks.c."""
    path = os.path.join(directory, kind)
    remove(path)
    nanoseconds = int(scratch.call(session.programs.blocks, kind, path, sizes.blocks))
    return sizes.blocks / MIB / (nanoseconds / 1e9)


def one_round(session, sizes, options, samples):
    """All jobs, on a fresh bare tree and through a mount of another with OPTIONS."""
    trees = [scratch.FileSystem(session, size=2 * (sizes.file + 3 * sizes.blocks) + 256 * MIB)
             for _ in range(2)]
    mount = scratch.Foldfs(session, trees[1].path, options, pinned=False)
    where = {'bare': trees[0].path, options: mount.path}

    def take_turns(text, run):
        for _, side in scratch.rounds(sizes.turns[options], ['bare', options]):
            samples[text, options, side].append(run(where[side]))
            for tree in trees:
                scratch.call('sync', '-f', tree.path)

    for job in JOBS:
        take_turns(job.text, lambda path, job=job: run_fio(job, path, sizes))
    for kind, text in BLOCKS.items():
        take_turns(text, lambda path, kind=kind: run_blocks(session, kind, path, sizes))
    mount.unmount()
    for tree in trees:
        tree.drop()


def measure(session, report):
    sizes = Sizes(session)
    samples = collections.defaultdict(list)
    for i, options in enumerate(sizes.rounds):
        tools.progress(f'fio: round {i + 1} of {len(sizes.rounds)}, {options}')
        one_round(session, sizes, options, samples)
    limits = {job.text: job.limit for job in JOBS}
    limits.update({text: BLOCKS_LEAST for text in BLOCKS.values()})
    for options in (JUDGED, REPORTED):
        for text, limit in limits.items():
            report.compare(f'{text}, {options} / bare tree', 'MiB/s',
                           samples[text, options, options], samples[text, options, 'bare'],
                           limit if options == JUDGED else None)


if __name__ == '__main__':
    figures.main('fio', __doc__, measure)
