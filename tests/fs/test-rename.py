#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""rename(2) and renameat2(2) with each flag: as on the bare tree."""
import os

import syscalls as sc
from compare import ALICE, MALLORY, ROOT, Comparisons

tests = Comparisons()
test = tests.test

FLAGS = (0, sc.RENAME_NOREPLACE, sc.RENAME_EXCHANGE, sc.RENAME_WHITEOUT,
         sc.RENAME_NOREPLACE | sc.RENAME_WHITEOUT, sc.RENAME_NOREPLACE | sc.RENAME_EXCHANGE,
         sc.RENAME_WHITEOUT | sc.RENAME_EXCHANGE, 8, 0x80000000)
KINDS = ('file', 'empty', 'full', 'link', 'fifo', 'missing')


def make(t, kind, name):
    if kind == 'file':
        t.put(name, name.encode())
    elif kind in ('empty', 'full'):
        t.folder(name)
        if kind == 'full':
            t.put(name + '/inside', b'x')
    elif kind == 'link':
        os.symlink('target of ' + name, t.new(name))
    elif kind == 'fifo':
        os.mkfifo(t.new(name))


def every_pair(t, flags):
    t.become()
    for old in KINDS:
        for new in KINDS:
            make(t, old, f'old-{old}-{new}')
            make(t, new, f'new-{old}-{new}')
            t.do(sc.renameat2, t(f'old-{old}-{new}'), t.new(f'new-{old}-{new}'), flags)


def add_pair_tests():
    for flags in FLAGS:
        def pairs(t, flags=flags):
            every_pair(t, flags)
        pairs.__name__ = f'rename_of_each_kind_onto_each_with_flags_{flags:x}'
        test(pairs)


add_pair_tests()


@test
def rename_onto_itself_does_nothing(t):
    t.become()
    t.put('file', b'x')
    os.link(t('file'), t('same'))
    t.do(os.rename, t('file'), t.new('file'))
    t.do(os.rename, t('file'), t.new('same'))  # two links of one inode: nothing happens
    t.do(sc.renameat2, t('file'), t.new('same'), sc.RENAME_EXCHANGE)
    t.do(sc.renameat2, t('file'), t.new('same'), sc.RENAME_NOREPLACE)
    t.record('left', sorted(os.listdir(t.root)))


@test
def directory_moved_into_itself_is_refused(t):
    t.become()
    t.folder('a')
    t.folder('a/b')
    t.folder('a/b/c')
    t.do(os.rename, t('a'), t.new('a', 'b', 'x'))
    t.do(os.rename, t('a'), t.new('a', 'b'))
    t.do(os.rename, t('a', 'b', 'c'), t.new('a'))
    t.do(os.rename, t('a', 'b'), t.new('a'))
    t.do(sc.renameat2, t('a', 'b'), t.new('a'), sc.RENAME_EXCHANGE)


@test
def directory_moved_keeps_its_content(t):
    t.become()
    t.folder('a')
    t.folder('a/sub')
    t.folder('b')
    t.put('a/sub/file', b'content')
    fd = t.open(t('a', 'sub', 'file'), os.O_RDWR)
    dir_fd = t.open(t('a', 'sub'), os.O_RDONLY | os.O_DIRECTORY)
    t.do(os.rename, t('a', 'sub'), t.new('b', 'moved'))
    t.record('content', t.get('b/moved/file'))
    t.do(os.stat, t('a', 'sub'))
    t.do(os.stat, t('a', 'sub', 'file'))
    t.do(os.pwrite, fd, b'CONTENT', 0)
    t.do(os.listdir, dir_fd)
    t.do(os.stat, b'..', dir_fd=dir_fd)
    t.do(os.mkdir, b'below', dir_fd=dir_fd)
    t.record('links of a and b', (os.stat(t('a')).st_nlink, os.stat(t('b')).st_nlink))


@test
def exchange_of_directories(t):
    t.become()
    t.folder('a')
    t.folder('b')
    t.put('a/from-a', b'a')
    t.put('b/from-b', b'b')
    t.do(sc.renameat2, t('a'), t.new('b'), sc.RENAME_EXCHANGE)
    t.record('a', sorted(os.listdir(t('a'))))
    t.record('b', sorted(os.listdir(t('b'))))
    t.folder('a/deep')
    t.do(sc.renameat2, t('a', 'deep'), t.new('b', 'from-a'), sc.RENAME_EXCHANGE)


@test
def missing_parents_and_wrong_parents(t):
    t.become()
    t.put('file', b'x')
    t.do(os.rename, t('file'), t.new('missing', 'x'))
    t.do(os.rename, t('file'), t.new('file', 'x'))
    t.do(os.rename, t('missing', 'x'), t.new('y'))
    t.do(os.rename, t('file', 'x'), t.new('y'))


@test
def too_long_target(t):
    t.become()
    t.put('file', b'x')
    t.do(os.rename, t('file'), t.new('n' * 255))
    t.do(os.rename, t('n' * 255), t.new('n' * 256))


@test(users=(ROOT,))
def whiteout_by_each_user(t):
    os.chmod(t.root, 0o777)
    for user in (ROOT, ALICE, MALLORY):
        with t.user(user):
            t.put(user.name, b'x')
            t.do(sc.renameat2, t(user.name), t.new(user.name + '-moved'), sc.RENAME_WHITEOUT)
            t.do(os.lstat, t(user.name))


@test
def repeated_renames_end_where_they_should(t):
    t.become()
    t.put('name0', b'traveller')
    for step in range(200):
        os.rename(t(f'name{step}'), t.new(f'name{step + 1}'))
    t.record('left', os.listdir(t.root))
    for step in range(50):
        os.rename(t('name200'), t.new('other'))
        os.rename(t('other'), t.new('name200'))
    t.do(os.stat, t('other'))
    t.do(os.stat, t('name200'))


@test
def replaced_target_is_gone_and_its_links_stay(t):
    t.become()
    t.put('new', b'new')
    t.put('old', b'old')
    os.link(t('old'), t('other-link'))
    t.do(os.rename, t('new'), t.new('old'))
    t.do(os.stat, t('other-link'))
    t.do(os.stat, t('old'))
    t.do(os.stat, t('new'))


@test
def rename_keeps_the_time_of_the_file(t):
    t.become()
    t.put('file', b'x')
    os.utime(t('file'), ns=(10**18, 10**18))
    t.do(os.rename, t('file'), t.new('moved'))
    t.record('mtime', os.stat(t('moved')).st_mtime_ns)
    t.keep_times('moved')


tests.main('ext4')
