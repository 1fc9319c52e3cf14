#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""An O_PATH descriptor goes on working after another process removed or replaced the file, of
which the daemon is told nothing when it is made.  smbd works so: fchmod, xattrs and stat by way
of /proc/self/fd."""
import os

import syscalls as sc
from compare import ALICE, ROOT, Comparisons

tests = Comparisons()
test = tests.test


def by(fd):
    return b'/proc/self/fd/%d' % fd


def in_another_process(function, *args):
    pid = os.fork()
    if pid == 0:
        try:
            function(*args)
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise AssertionError(f'{function.__name__} failed in the other process')


def everything(t, fd, is_dir=False):
    """What smbd does with such a descriptor."""
    t.do(os.fstat, fd)
    t.do(os.stat, by(fd))
    t.do(os.chmod, by(fd), 0o750)
    t.do(os.setxattr, by(fd), 'user.DOSATTRIB', b'0x20')
    t.do(os.getxattr, by(fd), 'user.DOSATTRIB')
    t.do(os.listxattr, by(fd))
    t.do(os.removexattr, by(fd), 'user.DOSATTRIB')
    t.do(os.getxattr, by(fd), 'system.posix_acl_access')
    t.do(os.utime, by(fd), ns=(10**18, 10**18 + 1))
    t.record('mtime', os.stat(by(fd)).st_mtime_ns)
    t.do(os.chown, by(fd), -1, os.getegid())
    if is_dir:
        t.do(os.listdir, by(fd))
        t.do(os.mkdir, by(fd) + b'/sub')
        t.do(os.stat, b'..', dir_fd=fd)
    else:
        t.do(os.truncate, by(fd), 3)
        data = t.open(by(fd), os.O_RDWR)
        t.do(os.pwrite, data, b'late', 1)
        t.do(os.pread, data, 100, 0)
    t.do(os.fstat, fd)


@test
def file_removed(t):
    t.become()
    t.put('file', b'content')
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.unlink, t('file'))
    everything(t, fd)


@test
def file_removed_and_name_used_again(t):
    t.become()
    t.put('file', b'content')
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.unlink, t('file'))
    t.put('file', b'another file')
    everything(t, fd)
    t.do(os.stat, t('file'))
    t.record('another', t.get('file'))


@test
def file_replaced_by_rename(t):
    t.become()
    t.put('file', b'content')
    t.put('other', b'replacement')
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.rename, t('other'), t.new('file'))
    everything(t, fd)
    t.record('by name', t.get('file'))


@test
def file_renamed_away(t):
    t.become()
    t.folder('dir')
    t.put('file', b'content')
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.rename, t('file'), t.new('dir', 'moved'))
    everything(t, fd)
    t.do(os.stat, t('dir', 'moved'))


@test
def one_of_two_links_removed(t):
    t.become()
    t.put('file', b'content')
    os.link(t('file'), t('link'))
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.unlink, t('file'))
    everything(t, fd)
    in_another_process(os.unlink, t('link'))
    everything(t, fd)


@test
def directory_removed(t):
    t.become()
    t.folder('dir')
    fd = t.open(t('dir'), os.O_PATH | os.O_DIRECTORY)
    in_another_process(os.rmdir, t('dir'))
    everything(t, fd, is_dir=True)


@test
def directory_removed_and_name_used_again(t):
    t.become()
    t.folder('dir')
    fd = t.open(t('dir'), os.O_PATH | os.O_DIRECTORY)
    in_another_process(os.rmdir, t('dir'))
    t.folder('dir')
    t.put('dir/file')
    t.do(os.listdir, by(fd))
    t.do(os.fstat, fd)
    t.record('new one', os.listdir(t('dir')))


@test
def directory_replaced_by_rename(t):
    t.become()
    t.folder('old')
    t.folder('new')
    t.put('new/file')
    fd = t.open(t('old'), os.O_PATH | os.O_DIRECTORY)
    in_another_process(os.rename, t('new'), t.new('old'))
    t.do(os.listdir, by(fd))
    t.do(os.fstat, fd)
    t.do(os.listdir, t('old'))


@test
def parent_removed_with_the_file(t):
    t.become()
    t.folder('dir')
    t.put('dir/file', b'content')
    fd = t.open(t('dir', 'file'), os.O_PATH)
    in_another_process(os.unlink, t('dir', 'file'))
    in_another_process(os.rmdir, t('dir'))
    everything(t, fd)


@test
def symlink_removed(t):
    t.become()
    os.symlink('target', t.new('link'))
    fd = t.open(t('link'), os.O_PATH | os.O_NOFOLLOW)
    in_another_process(os.unlink, t('link'))
    t.do(os.fstat, fd)
    t.do(os.readlink, b'', dir_fd=fd)


@test
def fifo_removed(t):
    t.become()
    os.mkfifo(t.new('fifo'))
    fd = t.open(t('fifo'), os.O_PATH)
    in_another_process(os.unlink, t('fifo'))
    t.do(os.fstat, fd)
    t.do(os.chmod, by(fd), 0o640)
    t.do(os.fstat, fd)


@test
def many_descriptors_of_removed_files(t):
    t.become()
    fds = []
    for number in range(300):
        t.put(f'f{number}', b'%d' % number)
        fds.append(t.open(t(f'f{number}'), os.O_PATH))
    for number in range(300):
        in_another_process(os.unlink, t(f'f{number}')) if number % 50 == 0 else \
            os.unlink(t(f'f{number}'))
    for number, fd in enumerate(fds):
        t.do(os.chmod, by(fd), 0o600 + number % 8)
        t.do(os.fstat, fd)
        data = t.open(by(fd))
        t.do(os.read, data, 100)


@test
def removed_file_linked_back(t):
    t.become()
    t.put('file', b'content')
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.unlink, t('file'))
    t.do(sc.linkat, sc.AT_FDCWD, by(fd), sc.AT_FDCWD, t('back'), sc.AT_SYMLINK_FOLLOW)


@test(users=(ROOT,))
def rights_on_a_removed_file_are_still_checked(t):
    t.put('file', b'content', 0o600, ALICE)
    fd = t.open(t('file'), os.O_PATH)
    in_another_process(os.unlink, t('file'))
    with t.user(ALICE):
        t.do(os.chmod, by(fd), 0o640)
        t.open(by(fd), os.O_RDWR)
    os.chmod(by(fd), 0o600)
    os.chown(by(fd), 0, 0)
    with t.user(ALICE):
        t.open(by(fd), os.O_RDWR)
        t.do(os.chmod, by(fd), 0o666)


tests.main('ext4')
