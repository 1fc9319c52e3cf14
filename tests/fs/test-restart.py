#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The index survives a restart: a directory that did not change is not read again.  How often it is
read is counted by strace on the daemon."""
import errno
import os
import re
import signal
import subprocess
import sys
import time

import mounted
import tap
from mounted import Area, Mount
from tap import Skip, expect, expect_equal, scaled

COUNT = scaled(10000, 2000)
suite = tap.Suite()


def error_of(function, *args):
    try:
        function(*args)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]


def fill(folder, count=COUNT):
    os.makedirs(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        os.close(os.open(f'Entry-{number}', os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


class Traced:
    """Counts getdents64 calls of the daemon while the block runs."""

    def __init__(self, mount):
        self.mount = mount
        self.path = os.path.join(mount.top, 'strace')

    def __enter__(self):
        self.process = subprocess.Popen(
            [mounted.tool('strace'), '-f', '-o', self.path, '-e', 'trace=getdents64', '-p',
             str(self.mount.pid())], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        if 'attached' not in line:
            self.process.kill()
            self.process.wait()
            raise Skip(f'strace: {line.strip()}')
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        with open(self.path, encoding='utf-8', errors='replace') as file:
            self.calls = [line for line in file if re.search(r'getdents64\(', line)]


def look(mount, folder, what='Entry'):
    """Found, found by another spelling, and absent."""
    top = os.path.join(mount.path, folder)
    expect_equal(error_of(os.stat, f'{top}/{what}-1'), 'done')
    expect_equal(error_of(os.stat, f'{top}/{what.upper()}-{COUNT // 2}'), 'done')
    expect_equal(error_of(os.stat, f'{top}/{what}-{COUNT + 1}'), 'ENOENT')


def settle():
    """Stamps younger than the file system's clock prove nothing yet."""
    time.sleep(1.1)


@suite.test
def counting_works(mount):
    """A directory that was never read must be read: else the other tests prove nothing."""
    fill(os.path.join(mount.source, 'counted'))
    with Traced(mount) as traced:
        look(mount, 'counted')
    expect(len(traced.calls) >= 2, f'{len(traced.calls)} calls were seen')
    with Traced(mount) as traced:
        look(mount, 'counted')
    expect_equal(traced.calls, [], 'the second time')


@suite.test
def unchanged_directory_is_not_read_after_a_remount(mount):
    fill(os.path.join(mount.source, 'kept'))
    settle()
    look(mount, 'kept')
    mount.remount()
    with Traced(mount) as traced:
        look(mount, 'kept')
    expect_equal(traced.calls, [])


@suite.test
def several_remounts_read_nothing(mount):
    fill(os.path.join(mount.source, 'many'))
    settle()
    look(mount, 'many')
    for _ in range(3):
        mount.remount()
        with Traced(mount) as traced:
            look(mount, 'many')
        expect_equal(traced.calls, [])


@suite.test
def directory_changed_through_the_mount_is_not_read_after_a_remount(mount):
    fill(os.path.join(mount.source, 'changed'))
    settle()
    look(mount, 'changed')
    top = os.path.join(mount.path, 'changed')
    for number in range(100):
        with open(f'{top}/New-{number}', 'x', encoding='ascii'):
            pass
        os.unlink(f'{top}/ENTRY-{number + 10}')
        os.rename(f'{top}/entry-{number + 200}', f'{top}/Moved-{number}')
    settle()
    mount.remount()
    with Traced(mount) as traced:
        look(mount, 'changed')
        for number in range(100):
            for name, want in ((f'NEW-{number}', 'done'), (f'Entry-{number + 10}', 'ENOENT'),
                               (f'MOVED-{number}', 'done'), (f'Entry-{number + 200}', 'ENOENT')):
                expect_equal(error_of(os.stat, f'{top}/{name}'), want, name)
    expect_equal(traced.calls, [])


@suite.test
def directory_changed_while_unmounted_is_read_again(mount):
    top = os.path.join(mount.source, 'behind')
    fill(top)
    settle()
    look(mount, 'behind')
    mount.stop()
    os.rename(f'{top}/Entry-5', f'{top}/Other-5')
    with open(f'{top}/Late', 'x', encoding='ascii'):
        pass
    mount.start()
    through = os.path.join(mount.path, 'behind')
    for name, want in (('ENTRY-5', 'ENOENT'), ('OTHER-5', 'done'), ('LATE', 'done'),
                       ('ENTRY-6', 'done')):
        expect_equal(error_of(os.stat, f'{through}/{name}'), want, name)


@suite.test
def directory_replaced_while_unmounted_is_another_one(mount):
    top = os.path.join(mount.source, 'swapped')
    fill(top, 100)
    fill(top + '-other', 50)
    settle()
    for name in ('swapped', 'swapped-other'):
        expect_equal(error_of(os.stat, os.path.join(mount.path, name, 'ENTRY-7')), 'done')
    mount.stop()
    os.rename(top, top + '-away')
    os.rename(top + '-other', top)
    mount.start()
    for number, want in ((7, 'done'), (60, 'ENOENT'), (99, 'ENOENT')):
        expect_equal(error_of(os.stat, os.path.join(mount.path, 'swapped', f'ENTRY-{number}')),
                     want, str(number))
    expect_equal(error_of(os.stat, os.path.join(mount.path, 'swapped-away', 'ENTRY-99')), 'done')


@suite.test
def directory_renamed_while_unmounted_keeps_its_names(mount):
    top = os.path.join(mount.source, 'before')
    fill(top)
    settle()
    look(mount, 'before')
    mount.stop()
    os.rename(top, os.path.join(mount.source, 'after'))
    mount.start()
    look(mount, 'after')


@suite.test
def removed_and_made_again_while_unmounted(mount):
    """The same inode number may come back: its generation or birth differs."""
    top = os.path.join(mount.source, 'reborn')
    for number in range(5):
        os.mkdir(top)
        with open(os.path.join(top, f'Only-{number}'), 'x', encoding='ascii'):
            pass
        settle()
        through = os.path.join(mount.path, 'reborn')
        expect_equal(error_of(os.stat, f'{through}/ONLY-{number}'), 'done')
        expect_equal(error_of(os.stat, f'{through}/ONLY-{number - 1}'), 'ENOENT')
        mount.stop()
        os.unlink(os.path.join(top, f'Only-{number}'))
        os.rmdir(top)
        mount.start()
    expect_equal(error_of(os.stat, os.path.join(mount.path, 'reborn')), 'ENOENT')


@suite.test
def killed_daemon_leaves_a_right_index(mount):
    fill(os.path.join(mount.source, 'killed'), 2000)
    settle()
    top = os.path.join(mount.path, 'killed')
    for round_number in range(scaled(5, 2)):
        for number in range(100):
            with open(f'{top}/Round{round_number}-{number}', 'x', encoding='ascii'):
                pass
            os.unlink(f'{top}/ENTRY-{round_number * 100 + number}')
        mount.abandon()  # SIGKILL, and the mount torn down
        mount.start()
        for number in range(100):
            expect_equal(error_of(os.stat, f'{top}/ROUND{round_number}-{number}'), 'done')
            expect_equal(error_of(os.stat, f'{top}/entry-{round_number * 100 + number}'),
                         'ENOENT')


@suite.test
def lost_index_costs_time_only(mount):
    fill(os.path.join(mount.source, 'lost'), 500)
    look_in = os.path.join(mount.path, 'lost')
    expect_equal(error_of(os.stat, look_in + '/ENTRY-7'), 'done')
    mount.stop()
    mounted.run('rm', '-r', mount.index)
    mount.start()
    expect_equal(error_of(os.stat, look_in + '/ENTRY-7'), 'done')
    expect_equal(error_of(os.stat, look_in + '/ENTRY-700'), 'ENOENT')


def main():
    word = tap.arguments().k
    for kind in ('ext4', 'xfs', 'btrfs'):
        def whole():
            mounted.need_foldfs()
            given = os.environ.get('FOLDFS_OPTIONS', '')
            if 'index=memory' in given or 'handles' in given:
                raise Skip('an index in memory, or without handles, does not survive')
            options = {'mkfs': ('-N', str(COUNT * 12))} if kind == 'ext4' else {}
            with Area(kind, 1024, **options) as area, Mount(area.dir('source')) as mount:
                suite.run(mount, suffix='_on_' + kind, word=word)
        tap.run_one('restart_tests_mount_and_unmount_on_' + kind, whole)
    sys.exit(tap.status())


main()
