#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look-ups in the index by themselves, without FUSE: how their time grows with the number of
names, beside LMDB's, and what a name costs on disk and in memory.

Names have 30 bytes and lie in directories of 10^5.  Half of the random look-ups find something,
half do not; medians of 7 runs, the two engines in turn.  bench-index.c says what exactly is
timed.  All files are on a fresh tmpfs, so that a disk plays no part."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
import figures  # noqa: E402
import tools  # noqa: E402

GROWTH_MOST = figures.Limit(8)
# As ours / other: at least 15 times faster.
LMDB_MOST = figures.Limit(1 / 15)
BYTES_MOST = figures.Limit(72, of='ours')
MEMORY_MOST = figures.Limit(64, of='ours')


def measure_one(session, names):
    """What bench-index prints, as {engine: {figure: value}}."""
    tools.progress(f'index: {names:,} names')
    folder = session.new_path('names')
    os.mkdir(folder)
    program = os.path.join(os.path.dirname(session.programs.hammer), 'index', 'bench-index')
    lookups = session.pick(tiny=1000, normal=500_000)
    done = subprocess.run([program, folder, str(names), str(lookups)], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        sys.exit(f'bench-index: status {done.returncode}')
    result = {'index': {}, 'lmdb': {}}
    for engine, figure, value in (line.split() for line in done.stdout.splitlines()):
        result[engine][figure] = float(value)
    return result


def measure(session, report):
    sizes = session.pick(tiny=[100, 1000], normal=[10_000, 100_000, 1_000_000, 10_000_000])
    results = {names: measure_one(session, names) for names in sizes}
    ours = {names: result['index'] for names, result in results.items()}
    other = {names: result['lmdb'] for names, result in results.items()}
    most, least = sizes[-1], sizes[0]
    for names in sizes:
        report.add(f'look-up among {names:,} names, LMDB beside', 'ns', ours[names]['ns'],
                   other[names]['ns'], LMDB_MOST if names == most else None)
    for kind in 'present', 'absent':
        report.add(f'{kind} name among {most:,}, LMDB beside', 'ns', ours[most][kind],
                   other[most][kind])
    report.add(f'look-up among {most:,}, among {least:,} beside', 'ns', ours[most]['ns'],
               ours[least]['ns'], GROWTH_MOST)
    report.add(f'a name on disk, {most:,} names, LMDB beside', 'bytes', ours[most]['bytes'],
               other[most]['bytes'], BYTES_MOST)
    report.add(f'private memory with {most:,} names', 'MiB', ours[most]['private'] / 1024,
               limit=MEMORY_MOST)


if __name__ == '__main__':
    figures.main('index', __doc__, measure)
