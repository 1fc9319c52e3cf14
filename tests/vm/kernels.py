# SPDX-License-Identifier: GPL-3.0-or-later
"""kernels.py - the file-system tests on another kernel, in the guest that nfsvm boots.

The guest sees this machine's files, so the foldfs that was built here runs there unchanged.  Its
system calls cost 20 to 40 times the host's: a part of the tests is run with a fraction of the
rounds, all of them in a full run.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FS = os.path.join(os.path.dirname(HERE), 'fs')

# What depends on the kernel most: names and dentries, rename, data with and without passthrough,
# permissions.  The others run in a full run too.
PART = ('test-names.py', 'test-rename.py', 'test-data.py', 'test-permissions.py')
# Rounds in the guest, as a share of those on the host.
GUEST_SCALE = 0.1
# Seconds for the guest at scale 1, less than what tests/run allows this program.
TIME_LIMIT_S = 540


def programs(scale):
    every = sorted(n for n in os.listdir(FS) if n.startswith('test-')
                   and os.access(os.path.join(FS, n), os.X_OK))
    return ['fs/' + name for name in every if scale > 1 or name in PART]


def command(kernel, scale):
    return [os.path.join(HERE, 'nfsvm'), '--kernel', kernel, '--fs', 'ext4',
            '--timeout', str(int(TIME_LIMIT_S * max(scale, 1))), '--',
            sys.executable, os.path.join(HERE, 'guest.py'), *programs(scale)]


def relay(kernel, stream):
    """Passes TAP lines on with the kernel's name before the test's; tells whether all ran."""
    failed, complete = False, False
    for line in stream:
        failed = failed or line.startswith('not ok')
        complete = complete or line.startswith('# all programs ran')
        print(line.rstrip('\n').replace('ok - ', f'ok - {kernel} ', 1), flush=True)
    return failed, complete


def run(kernel):
    """Runs the tests on KERNEL; the exit status for the program."""
    scale = float(os.environ.get('FOLDFS_TEST_SCALE', '1'))
    environment = dict(os.environ, FOLDFS_TEST_SCALE=f'{scale * GUEST_SCALE:g}')
    for name in [n for n in environment if n.endswith('SAN_OPTIONS')]:
        del environment[name]
    with subprocess.Popen(command(kernel, scale), env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, errors='replace') as guest:
        failed, complete = relay(kernel, guest.stdout)
    if guest.returncode or not complete:
        print(f'not ok - {kernel} guest_runs_all_programs\n'
              f'# nfsvm gave {guest.returncode}; its messages are on standard error')
        return 1
    print(f'ok - {kernel} guest_runs_all_programs')
    return 1 if failed else 0
