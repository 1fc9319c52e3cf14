#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk of the index is full, from the start or while the daemon serves: the log says so in one
line, every answer stays right, nothing dies of SIGBUS, and with room again all is as before."""
import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fs'))
import mounted  # noqa: E402
import tap  # noqa: E402
from mounted import Area, Mount  # noqa: E402
from tap import expect, expect_equal, scaled  # noqa: E402

SPACE_PIECE = 1 << 16
LEAVE_BYTES = (0, 4096, 1 << 18, 1 << 20)  # room left on the disk that is full from the start


def fill(directory, leave=0):
    """Takes all the room of the file system but LEAVE bytes; returns the file that holds it."""
    path = os.path.join(directory, 'ballast')
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        piece = SPACE_PIECE
        while piece:
            try:
                if os.write(fd, b'x' * piece) < piece:
                    piece //= 2
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece //= 2
        os.ftruncate(fd, max(0, os.fstat(fd).st_size - leave))
        os.fsync(fd)
    finally:
        os.close(fd)
    return path


def make(directory, names):
    for name in names:
        os.close(os.open(os.path.join(directory, name), os.O_CREAT | os.O_EXCL))


def ino_of(path):
    try:
        return os.lstat(path).st_ino
    except OSError as error:
        return errno.errorcode[error.errno]


def expect_right(mount, directory, absent):
    """Every entry of the tree is found in two spellings, and the ABSENT names in none."""
    with os.scandir(os.path.join(mount.source, directory)) as entries:
        on_disk = [(e.name, e.inode()) for e in entries]
    through = os.path.join(mount.path, directory)
    for name, ino in on_disk:
        expect_equal(ino_of(os.path.join(through, name)), ino, name)
        expect_equal(ino_of(os.path.join(through, name.swapcase())), ino, name.swapcase())
    for name in absent:
        expect_equal(ino_of(os.path.join(through, name)), 'ENOENT', name)
    for name, _ in on_disk[:5]:
        try:
            make(through, [name.swapcase()])
            raise tap.Failure(f'a second spelling of {name} was made')
        except FileExistsError:
            pass


def expect_one_line(mount, since=0):
    lines = [line for line in mount.log()[since:].splitlines() if line.strip()]
    expect_equal(len(lines), 1, 'lines in the log: ' + '\n'.join(lines))
    expect('No space' in lines[0] or 'room' in lines[0] or 'space' in lines[0], lines[0])


def change_much(mount, directory, count):
    """Names made and removed through the mount and behind it, far more than the index had."""
    through, below = (os.path.join(top, directory) for top in (mount.path, mount.source))
    make(through, [f'Through-{n}' for n in range(count)])
    make(below, [f'Behind-{n}' for n in range(count)])
    for n in range(0, count, 3):
        os.unlink(os.path.join(through, f'THROUGH-{n}'))
        os.rename(os.path.join(through, f'behind-{n}'), os.path.join(through, f'Moved-{n}'))
    return [f'tHROUGH-{n}' for n in range(0, count, 3)] + \
        [f'bEHIND-{n}' for n in range(0, count, 3)] + ['Never']


def full_from_the_start(leave):
    mounted.need_foldfs()
    with Area('ext4', mkfs=['-m', '0']) as disk, Area('dir') as area:
        source = area.dir('source')
        os.mkdir(os.path.join(source, 'Dir'))
        make(os.path.join(source, 'Dir'), [f'Old-{n}' for n in range(100)])
        fill(disk.path, leave)
        with Mount(source, index=os.path.join(disk.path, 'index')) as mount:
            expect_right(mount, 'dir', ['nOTHING', 'oLD-100'])
            absent = change_much(mount, 'Dir', scaled(500, 100))
            expect_right(mount, 'Dir', absent)
            expect_one_line(mount)
            expect(mount.daemon.poll() is None, 'the daemon is gone')


def filled_while_it_serves():
    mounted.need_foldfs()
    with Area('ext4', mkfs=['-m', '0']) as disk, Area('dir') as area:
        source = area.dir('source')
        for name in ('Dir', 'Later'):
            os.mkdir(os.path.join(source, name))
        make(os.path.join(source, 'Dir'), [f'Old-{n}' for n in range(100)])
        index = os.path.join(disk.path, 'index')
        with Mount(source, index=index) as mount:
            expect_right(mount, 'Dir', ['nOTHING'])
            expect_equal(mount.log(), '', 'with room there is nothing to say')
            ballast = fill(disk.path)
            count = scaled(40000, 20000)  # names of 200 bytes: more than was allocated
            for half in (0, count // 2):
                make(os.path.join(mount.path, 'Later'),
                     [f'{n:06d}-' + 'Long' * 48 for n in range(half, half + count // 2)])
            expect_right(mount, 'Dir', ['nOTHING', 'oLD-100'])
            absent = change_much(mount, 'Dir', scaled(500, 100))
            expect_right(mount, 'Dir', absent)
            later = os.path.join(mount.path, 'Later')
            for n in range(0, count, count // 200):
                name = f'{n:06d}-' + 'LONG' * 48
                expect(isinstance(ino_of(os.path.join(later, name)), int), f'{name} is lost')
            expect_equal(ino_of(os.path.join(later, 'never')), 'ENOENT')
            expect_one_line(mount)
            os.unlink(ballast)
            expect_right(mount, 'Dir', absent)
        with Mount(source, index=index) as mount:
            expect_right(mount, 'Dir', absent)
            expect_equal(ino_of(os.path.join(mount.path, 'LATER', 'never')), 'ENOENT')


def main():
    word = tap.arguments().k
    for leave in LEAVE_BYTES:
        name = f'index_disk_full_from_the_start_but_for_{leave}_bytes'
        if word in name:
            tap.run_one(name, full_from_the_start, leave)
    name = 'index_disk_filled_while_it_serves'
    if word in name:
        tap.run_one(name, filled_while_it_serves)
    sys.exit(tap.status())


main()
