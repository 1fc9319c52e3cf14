#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""guest.py PROGRAM... - runs test programs inside the guest, as tests/run does outside.

PROGRAM is SUITE/NAME.  Each result is printed as one TAP line with the program's name before the
test's.  Trees and images go to the guest's own ext4: its root is an overlay, which has no file
handles, and its /tmp is part of that.
"""
import os
import subprocess
import sys

TOP = os.environ['FOLDFS_SRC']
sys.path.insert(0, os.path.join(TOP, 'tests', 'lib'))

from builds import Build  # noqa: E402 (found by the line above)
from program import Program, Run, time_limit  # noqa: E402
from tap_results import FAILED, SKIPPED  # noqa: E402
from kernels import GUEST_SCALE  # noqa: E402

DISK = '/srv/nfs'  # the guest's ext4, see nfsvm
# Modules that the guest's kernel does not load by itself when a test needs them.
MODULES = ('loop', 'xfs', 'btrfs')


def report(program, run):
    for result in run.results:
        skipped = result.outcome == SKIPPED
        print(f'{"not ok" if result.outcome == FAILED else "ok"} - {program.name} {result.name}'
              + (f' # SKIP {result.details[0]}' if skipped else ''))
        if result.outcome == FAILED:
            print('\n'.join(result.details + ['# ' + e for e in run.stderr.splitlines()[-20:]]))
    print(f'# {program.name} took {run.seconds:.0f} s in the guest', flush=True)


def main():
    subprocess.run(['modprobe', '-a', *MODULES], stderr=subprocess.DEVNULL, check=False)
    os.environ['TMPDIR'] = DISK
    scale = float(os.environ['FOLDFS_TEST_SCALE'])
    build = Build(*reversed(os.path.split(os.environ['FOLDFS_BUILD'])))
    for name in sys.argv[1:]:
        suite, _ = name.split('/')
        path = os.path.join(TOP, 'tests', name)
        program = Program(suite, path, [path], 'plain')
        report(program, Run(program, build, scale, TOP, time_limit(scale / GUEST_SCALE)).go())
    # The serial line between guest and test may lose what a dying guest wrote last.
    print('# all programs ran')


if __name__ == '__main__':
    main()
