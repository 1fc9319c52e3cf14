#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies that share their blocks, on xfs and btrfs: copy_file_range shares through the mount as it
does below.  FICLONE is refused by the kernel before FUSE hears of it (as of Linux 6.18), in a way
that lets cp fall back to copy_file_range; should a kernel pass it on, it must work."""
import errno
import fcntl
import os
import sys

import mounted
import syscalls as sc
import tap
from mounted import Area, Mount
from tap import expect, expect_equal

SIZE = 1 << 20
suite = tap.Suite()


def make_source(mount, name):
    data = os.urandom(SIZE)
    with open(os.path.join(mount.source, name), 'wb') as file:
        file.write(data)
        os.fsync(file.fileno())
    return data


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def expect_shared(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    shared, extents = sc.shared_extents(fd)
    os.close(fd)
    expect(extents > 0 and shared == extents, f'{path}: {shared} of {extents} extents are shared')


@suite.test
def copy_file_range_shares_blocks(mount):
    data = make_source(mount, 'range-source')
    source = os.open(os.path.join(mount.path, 'range-source'), os.O_RDONLY)
    target = os.open(os.path.join(mount.path, 'range-target'), os.O_CREAT | os.O_RDWR)
    copied = 0
    while step := os.copy_file_range(source, target, SIZE, copied, copied):
        copied += step
    os.close(source)
    os.close(target)
    expect_equal(copied, SIZE)
    expect(read(os.path.join(mount.path, 'range-target')) == data, 'another content')
    expect_shared(os.path.join(mount.source, 'range-target'))


@suite.test
def ficlone_works_or_is_refused_cleanly(mount):
    data = make_source(mount, 'clone-source')
    path = os.path.join(mount.path, 'clone-target')
    source = os.open(os.path.join(mount.path, 'clone-source'), os.O_RDONLY)
    target = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.ioctl(target, sc.FICLONE, source)
        result = 'done'
    except OSError as error:
        result = error.errno
    os.close(source)
    os.close(target)
    tap.note(f'FICLONE: {result}')
    if result == 'done':
        expect(read(path) == data, 'another content')
        expect_shared(os.path.join(mount.source, 'clone-target'))
    else:
        expect_equal((result, read(path)), (errno.EOPNOTSUPP, b''))


@suite.test
def cp_shares_where_it_may(mount):
    data = make_source(mount, 'cp-source')
    mounted.run('cp', os.path.join(mount.path, 'cp-source'), os.path.join(mount.path, 'cp-target'))
    expect(read(os.path.join(mount.path, 'cp-target')) == data, 'another content')
    expect_shared(os.path.join(mount.source, 'cp-target'))


@suite.test
def change_after_sharing_stays_in_one_copy(mount):
    data = make_source(mount, 'cow-source')
    source = os.open(os.path.join(mount.path, 'cow-source'), os.O_RDWR)
    target = os.open(os.path.join(mount.path, 'cow-target'), os.O_CREAT | os.O_RDWR)
    os.copy_file_range(source, target, SIZE, 0, 0)
    os.pwrite(source, b'changed', 5000)
    os.close(source)
    os.close(target)
    expect(read(os.path.join(mount.path, 'cow-target')) == data, 'the copy changed')
    expect(read(os.path.join(mount.path, 'cow-source')) ==
           data[:5000] + b'changed' + data[5007:], 'the change is not there')


@suite.test
def part_of_a_file_is_copied_into_place(mount):
    data = make_source(mount, 'part-source')
    source = os.open(os.path.join(mount.path, 'part-source'), os.O_RDONLY)
    target = os.open(os.path.join(mount.path, 'part-target'), os.O_CREAT | os.O_RDWR)
    os.pwrite(target, b'x' * SIZE, 0)
    expect_equal(os.pread(target, 4, 65536), b'xxxx')
    expect_equal(os.copy_file_range(source, target, 65536, 0, 65536), 65536)
    expect_equal(os.pread(target, 65536, 65536), data[:65536])
    expect_equal(os.pread(target, 8, 131072), b'x' * 8)
    os.close(source)
    os.close(target)


def main():
    word = tap.arguments().k
    for kind in ('xfs', 'btrfs'):
        for options in ('',) if mounted.is_bind() else ('passthrough=auto', 'passthrough=off'):
            suffix = f'_on_{kind}' + ('_with_' + options.replace('=', '_') if options else '')

            def whole():
                with Area(kind) as area, Mount(area.dir('source'), options) as mount:
                    suite.run(mount, suffix=suffix, word=word)
            tap.run_one('clone_tests_mount_and_unmount' + suffix, whole)
    sys.exit(tap.status())


main()
