#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""A daemon that may have a few hundred descriptors only, and does not need one for each file that
the kernel knows: what it closed it finds again, by handle or, without handles, by name.  What cannot
be found again, since its last name is gone, it keeps open before all else."""
import os

import mounted
from compare import Comparisons
from tap import scaled

tests = Comparisons()
test = tests.test

DESCRIPTORS = 200        # that the daemon may have; it keeps a fourth of them waiting
KEPT = 30                # removed files whose descriptors are used later: fewer than that
MANY = scaled(400, 300)  # files that push everything else out


def by(fd):
    return b'/proc/self/fd/%d' % fd


def crowd(t):
    """Makes many files, and uses each: none of the descriptors used before is left."""
    t.folder('crowd')
    for number in range(MANY):
        t.put(f'crowd/f{number}')
    for number in range(MANY):
        os.stat(t(f'crowd/f{number}'))


@test
def removed_files_stay_usable_in_a_crowd(t):
    t.become()
    fds = []
    for number in range(KEPT):
        t.put(f'f{number}', b'content %d' % number)
        fds.append(t.open(t(f'f{number}'), os.O_PATH))
    for number in range(KEPT):
        os.unlink(t(f'f{number}'))
    crowd(t)
    for fd in fds:
        t.do(os.fstat, fd)
        t.do(os.chmod, by(fd), 0o640)
        t.do(os.read, t.open(by(fd)), 100)


@test
def removed_directories_stay_usable_in_a_crowd(t):
    t.become()
    fds = []
    for number in range(KEPT):
        t.folder(f'd{number}')
        fds.append(t.open(t(f'd{number}'), os.O_PATH | os.O_DIRECTORY))
        os.rmdir(t(f'd{number}'))
    crowd(t)
    for fd in fds:
        t.do(os.fstat, fd)
        t.do(os.listdir, by(fd))


@test
def renamed_files_are_found_again_in_a_crowd(t):
    t.become()
    t.folder('from')
    t.folder('to')
    fds = []
    for number in range(KEPT):
        t.put(f'from/f{number}', b'content %d' % number)
        fds.append(t.open(t('from', f'f{number}'), os.O_PATH))
        os.rename(t('from', f'f{number}'), t.new('to', f'g{number}'))
    os.rename(t('to'), t.new('moved'))
    crowd(t)
    for number, fd in enumerate(fds):
        t.do(os.fstat, fd)
        t.do(os.truncate, by(fd), number)
        t.do(os.stat, t('moved', f'g{number}'))


@test
def one_link_of_several_is_enough(t):
    t.become()
    fds = []
    for number in range(KEPT):
        t.put(f'f{number}', b'content %d' % number)
        os.link(t(f'f{number}'), t(f'g{number}'))
        fds.append(t.open(t(f'f{number}'), os.O_PATH))
        os.unlink(t(f'f{number}'))
    crowd(t)
    for fd in fds:
        t.do(os.fstat, fd)
        t.do(os.read, t.open(by(fd)), 100)


@test
def working_directory_far_down_is_found_again(t):
    t.become()
    path = '/'.join(f'level{number}' for number in range(30))
    os.makedirs(t.new(path))
    t.do(os.chdir, t(path))
    crowd(t)
    t.do(os.mkdir, b'here')
    t.do(os.listdir, b'.')
    t.do(os.stat, b'../../..')
    os.chdir('/')


@test
def whole_tree_is_walked(t):
    t.become()
    for number in range(MANY // 10):
        t.folder(f'd{number}')
        t.folder(f'd{number}/sub')
        t.put(f'd{number}/sub/file', b'x')
    seen = [sorted(folders) + sorted(files) for _, folders, files in sorted(os.walk(t.root))]
    t.record('seen', len(seen))
    t.record('files', sum(b'file' in names for names in seen))


@test
def as_many_files_open_as_there_is_room_for(t):
    t.become()
    for number in range(DESCRIPTORS // 4):
        t.put(f'f{number}', b'%d' % number)
    fds = [t.open(t(f'f{number}'), os.O_RDWR) for number in range(DESCRIPTORS // 4)]
    crowd(t)
    for fd in fds:
        t.do(os.pwrite, fd, b'written', 0)
        t.do(os.pread, fd, 100, 0)


tests.main('ext4', wrapper=() if mounted.is_bind() else ('prlimit', f'--nofile={DESCRIPTORS}'))
