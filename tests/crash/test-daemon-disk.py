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
INDEX_BYTES = 1 << 16    # no index is smaller
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


def expect_lines(mount, *numbers):
    lines = mount.log().splitlines()
    expect(len(lines) in numbers, f'{len(lines)} lines in the log, not {numbers}:\n{mount.log()}')
    for line in lines:
        expect('No space left' in line, f'not about room: {line}')


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
            expect_right(mount, 'Dir', ['nOTHING', 'oLD-100'])
            absent = change_much(mount, 'Dir', scaled(500, 100))
            expect_right(mount, 'Dir', absent)
            expect_lines(mount, *((1,) if leave < INDEX_BYTES else (0, 1)))
            expect(mount.daemon.poll() is None, 'the daemon is gone')


class Later:
    """A directory that gets names until the index has no room for more."""

    MOST = 100000
    BATCH = 500

    def __init__(self, mount):
        self.mount, self.count = mount, 0

    def name(self, number):
        return f'{number:06d}-' + 'Long' * 48

    def make(self, count):
        make(os.path.join(self.mount.path, 'Later'),
             [self.name(n) for n in range(self.count, self.count + count)])
        self.count += count

    def make_until_the_log_has_a_line(self):
        while not self.mount.log():
            expect(self.count < self.MOST, f'{self.count} names, and nothing was said')
            self.make(self.BATCH)

    def expect_right(self):
        below, through = (os.path.join(top, 'Later') for top in
                          (self.mount.source, self.mount.path))
        for number in range(0, self.count, max(1, self.count // 100)):
            want = os.lstat(os.path.join(below, self.name(number))).st_ino
            expect_equal(ino_of(os.path.join(through, self.name(number).upper())), want, number)
        for name in ('never', self.name(self.count)):
            expect_equal(ino_of(os.path.join(through, name)), 'ENOENT', name)


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
            later = Later(mount)
            later.make_until_the_log_has_a_line()
            later.make(scaled(100, 50))
            expect_right(mount, 'Dir', ['nOTHING', 'oLD-100'])
            absent = change_much(mount, 'Dir', scaled(500, 100))
            expect_right(mount, 'Dir', absent)
            later.expect_right()
            expect_lines(mount, 1)
            os.unlink(ballast)
            expect_right(mount, 'Dir', absent)
            later.expect_right()
        with Mount(source, index=index) as later.mount:
            expect_right(later.mount, 'Dir', absent)
            later.expect_right()


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
