#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Eight threads make eight spellings of one name at once, by every call that makes a name: there is
always exactly one entry, and one winner where the call is exclusive.  race.c does it."""
import os
import subprocess
import sys

import mounted
import tap
from mounted import Area, Mount
from tap import Failure, scaled

ROUNDS = {'fold': 2000, 'exact': 500}  # of each way at scale 1: 22,500 in all
WAYS = ('create', 'excl', 'mkdir', 'mknod', 'symlink', 'link', 'rename', 'noreplace', 'mixed')
DAEMON_THREADS = (0, 1)  # as many as it likes, and one, which must not deadlock


def race_program():
    build = os.environ.get('FOLDFS_BUILD') or \
        os.path.join(os.path.dirname(mounted.program()), '..')
    path = os.path.join(build, 'tests', 'fs', 'race')
    if not os.access(path, os.X_OK):
        raise Failure(f'{path} is missing: build the tests, and set FOLDFS_BUILD')
    return path


def race(mount, way, mode, rounds):
    os.mkdir(os.path.join(mount.path, way))
    done = subprocess.run([race_program(), os.path.join(mount.path, way),
                           os.path.join(mount.source, way), way, mode, str(rounds)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode:
        raise Failure(f'status {done.returncode}: {done.stdout}')
    tap.note(f'{rounds} rounds of {way}')


def main():
    word = tap.arguments().k
    for mode in ROUNDS:
        for threads in DAEMON_THREADS:
            rounds = scaled(ROUNDS[mode] if not threads else ROUNDS[mode] // 20, 50)
            suffix = f'_in_mode_{mode}' + ('_with_one_daemon_thread' if threads else '')
            options = f'lookup={mode}' + (f',threads={threads}' if threads else '')

            def whole():
                mounted.need_foldfs()
                with Area('tmpfs') as area, Mount(area.dir('source'), options) as mount:
                    for way in WAYS:
                        name = f'one_entry_when_eight_spellings_race_by_{way}{suffix}'
                        if word in name:
                            tap.run_one(name, race, mount, way, mode, rounds)
            tap.run_one('race_tests_mount_and_unmount' + suffix, whole)
    sys.exit(tap.status())


main()
