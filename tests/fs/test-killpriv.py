#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The setuid and setgid bits and file capabilities go when another user, or the file's owner,
changes the content: with and without passthrough, as on the bare tree."""
import mmap
import os

import mounted
import syscalls as sc
from compare import ALICE, BOB, ROOT, TEAM, Comparisons, chown_nothing

tests = Comparisons()
test = tests.test

CAPABILITY = bytes.fromhex('0100000200200000000000000000000000000000')
MODES = (0o6777, 0o4777, 0o2777, 0o6766, 0o2767, 0o0777)
BLOCK = 4096


def write(t, path):
    t.do(os.write, t.open(path, os.O_WRONLY), b'changed')


def append(t, path):
    t.do(os.write, t.open(path, os.O_WRONLY | os.O_APPEND), b'changed')


def write_twice(t, path):
    fd = t.open(path, os.O_WRONLY)
    t.do(os.write, fd, b'one')
    if os.stat(path).st_uid == os.geteuid():
        t.do(os.chmod, path, 0o6777)
    t.do(os.write, fd, b'two')


def truncate(t, path):
    t.do(os.truncate, path, 10)


def ftruncate(t, path):
    t.do(os.ftruncate, t.open(path, os.O_WRONLY), 10)


def open_truncating(t, path):
    t.open(path, os.O_WRONLY | os.O_TRUNC)


def create_truncating(t, path):
    t.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def allocate(t, path):
    t.do(sc.fallocate, t.open(path, os.O_WRONLY), 0, 0, 20 * BLOCK)


def punch(t, path):
    t.do(sc.fallocate, t.open(path, os.O_WRONLY), sc.FALLOC_PUNCH_HOLE | sc.FALLOC_KEEP_SIZE,
         0, BLOCK)


def copy_range(t, path):
    source = t.open(t.new('source'))
    t.do(os.copy_file_range, source, t.open(path, os.O_WRONLY), 100, 0, 0)


def map_and_write(t, path):
    fd = t.open(path, os.O_RDWR)
    if fd is not None:
        view = mmap.mmap(fd, BLOCK)
        view[0:4] = b'mmap'
        view.flush()


def direct_write(t, path):
    fd = t.open(path, os.O_WRONLY | os.O_DIRECT)
    area = mmap.mmap(-1, BLOCK)

    def pwrite_area():
        return os.pwritev(fd, [area], 0)
    if fd is not None:
        t.do(pwrite_area)


def empty_write(t, path):
    t.do(os.write, t.open(path, os.O_WRONLY), b'')


def change_owner_to_same(t, path):
    chown_nothing(t, path)


def open_only(t, path):
    t.open(path, os.O_RDWR)


def read_only(t, path):
    t.do(os.read, t.open(path), 10)


ACTIONS = (write, append, write_twice, truncate, ftruncate, open_truncating, create_truncating,
           allocate, punch, copy_range, map_and_write, direct_write, empty_write,
           change_owner_to_same, open_only, read_only)


def maps_natively(mount):
    return mounted.is_bind() or mount.passes_through()


def add_tests():
    for action in ACTIONS:
        def by_each_user(t, action=action):
            t.put('source', b's' * BLOCK, 0o644)
            for user in (ROOT, ALICE, BOB):
                for mode in MODES:
                    name = f'{user.name}-{mode:o}'
                    t.put(name, b'x' * 2 * BLOCK, 0o600)
                    os.chown(t.new(name), ALICE.uid, TEAM)
                    os.chmod(t.new(name), mode)
                    os.stat(t(name))  # the kernel may now know the mode
                    with t.user(user):
                        action(t, t(name))
                    t.do(os.stat, t(name))
        by_each_user.__name__ = f'bits_after_{action.__name__}_by_each_user'
        test(users=(ROOT,))(by_each_user)

        def capability(t, action=action):
            t.put('source', b's' * BLOCK, 0o644)
            for user in (ROOT, ALICE, BOB):
                t.put(user.name, b'x' * 2 * BLOCK, 0o777, ALICE)
                os.setxattr(t.new(user.name), 'security.capability', CAPABILITY)
                t.do(os.getxattr, t(user.name), 'security.capability')
                with t.user(user):
                    action(t, t(user.name))
                t.do(os.listxattr, t(user.name))
        capability.__name__ = f'capability_after_{action.__name__}_by_each_user'
        # A page of a mapping reaches a daemon as a write, which always takes the capability.
        test(users=(ROOT,), only_if=maps_natively if action is map_and_write else
             lambda mount: True)(capability)


add_tests()


@test(users=(ROOT,))
def bits_go_although_the_file_was_opened_by_root(t):
    t.put('file', b'x' * 100, 0o600)
    os.chown(t.new('file'), ALICE.uid, TEAM)
    os.chmod(t.new('file'), 0o6777)
    fd = t.open(t('file'), os.O_RDWR)
    with t.user(BOB):
        t.do(os.write, fd, b'changed')
    t.do(os.stat, t('file'))


@test(users=(ROOT,))
def bits_set_between_two_writes_go_again(t):
    t.put('file', b'x' * 100, 0o777, ALICE)
    with t.user(BOB):
        fd = t.open(t('file'), os.O_RDWR)
        t.do(os.write, fd, b'one')
    for _ in range(3):
        os.chmod(t('file'), 0o6777)
        t.do(os.stat, t('file'))
        with t.user(BOB):
            t.do(os.write, fd, b'two')
        t.do(os.stat, t('file'))


@test(users=(ROOT,), only_if=lambda mount: not mount.passes_through())
def bits_set_after_opening_survive_roots_write(t):
    """Passthrough writes for everyone without CAP_FSETID: the bits go then, which is safe."""
    t.put('file', b'x' * 100, 0o777, ALICE)
    fd = t.open(t('file'), os.O_RDWR)
    t.do(os.chmod, t('file'), 0o6777)
    t.do(os.write, fd, b'by root')
    t.do(os.stat, t('file'))


if mounted.is_bind():
    tests.main('ext4')
tests.main('ext4', variants=('passthrough=auto', 'passthrough=off'))
