#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look-ups in the index by themselves, without FUSE: how their time grows with the number of
names, beside LMDB's, and what a name costs on disk and in memory.

Names have 30 bytes and lie in directories of 10^5.  Half of the random look-ups find something,
half do not; medians of 15 runs, all sizes and engines in turn.  LMDB is used as a daemon has to
use it: filled in the order in which scans deliver names, and with a read transaction for each
look-up, since one that is kept pins old pages and shows an old state.  "LMDB at its best" is
filled in the order of its keys and read within one transaction for ever.

A look-up among so many names waits for memory: "one random read" is what a single read of a
mapped file of the index's size takes, where each waits for the one before.  An absent name needs
one (the slots of its hash), a present one two (then its record).  bench-index.c says what exactly
is timed.  All files are on a fresh tmpfs, so that a disk plays no part."""
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


def run_program(session, sizes):
    """What bench-index prints, as {names: {engine: {figure: value}}}."""
    tools.progress('index: ' + ', '.join(f'{names:,}' for names in sizes) + ' names')
    folder = session.new_path('names')
    os.mkdir(folder)
    program = os.path.join(os.path.dirname(session.programs.hammer), 'index', 'bench-index')
    lookups = session.pick(tiny=1000, normal=200_000)
    done = subprocess.run([program, folder, str(lookups), *map(str, sizes)], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        sys.exit(f'bench-index: status {done.returncode}')
    results = {}
    for line in done.stdout.splitlines():
        names, engine, figure, value = line.split()
        results.setdefault(int(names), {}).setdefault(engine, {})[figure] = float(value)
    return results


def measure(session, report):
    sizes = session.pick(tiny=[100, 1000], normal=[10_000, 100_000, 1_000_000, 10_000_000])
    results = run_program(session, sizes)
    most, least = sizes[-1], sizes[0]
    ours, lmdb, best = (results[most][engine] for engine in ('index', 'lmdb', 'best'))
    for names in sizes:
        report.add(f'look-up among {names:,} names, LMDB beside', 'ns',
                   results[names]['index']['ns'], results[names]['lmdb']['ns'],
                   LMDB_MOST if names == most else None)
    for kind in 'present', 'absent':
        report.add(f'{kind} name among {most:,}, LMDB beside', 'ns', ours[kind], lmdb[kind])
    report.add(f'look-up among {most:,}, LMDB at its best beside', 'ns', ours['ns'], best['ns'])
    report.add(f'look-up among {most:,}, one random read beside', 'ns', ours['ns'],
               results[most]['read']['ns'])
    report.add(f'look-up among {most:,}, among {least:,} beside', 'ns', ours['ns'],
               results[least]['index']['ns'], GROWTH_MOST)
    report.add(f'one random read of {most:,} names, of {least:,} beside', 'ns',
               results[most]['read']['ns'], results[least]['read']['ns'])
    report.add(f'a name on disk, {most:,} names, LMDB beside', 'bytes', ours['bytes'],
               lmdb['bytes'], BYTES_MOST)
    report.add(f'private memory with {most:,} names', 'MiB', ours['private'] / 1024,
               limit=MEMORY_MOST)


if __name__ == '__main__':
    figures.main('index', __doc__, measure)
