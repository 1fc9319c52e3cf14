#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hard links, symbolic links, files without a name: as on the bare tree."""
import os
import stat

import mounted
import syscalls as sc
from compare import ALICE, Comparisons

tests = Comparisons()
test = tests.test


@test
def hard_links_share_inode_and_content(t):
    t.become()
    t.put('first', b'one')
    t.folder('sub')
    t.do(os.link, t('first'), t('second'))
    t.do(os.link, t('second'), t('sub', 'third'))
    with open(t('sub', 'third'), 'ab') as file:
        file.write(b' more')
    inodes = {os.stat(t(n)).st_ino for n in ('first', 'second', 'sub/third')}
    t.record('distinct inodes', len(inodes))
    t.do(os.unlink, t('first'))
    t.do(os.stat, t('second'))
    t.record('content', t.get('second'))


@test
def link_errors_are_the_native_ones(t):
    t.put('file')
    t.put('taken')
    t.folder('dir')
    t.put('private', mode=0o600)
    t.become()
    t.do(os.link, t('file'), t('taken'))
    t.do(os.link, t('file'), t('dir'))
    t.do(os.link, t('dir'), t('dirlink'))
    t.do(os.link, t('missing'), t('x'))
    t.do(os.link, t('file'), t('missing', 'x'))
    t.do(os.link, t('file'), t('file', 'x'))
    t.do(os.link, t('private'), t('y'))  # fs.protected_hardlinks decides
    t.do(os.link, t('file'), t('file'))


@test
def link_of_a_symlink_links_the_symlink(t):
    t.become()
    os.symlink('nowhere', t.new('link'))
    t.do(os.link, t('link'), t('hard'), follow_symlinks=False)
    t.do(os.readlink, t('hard'))
    t.do(os.lstat, t('hard'))


@test
def symlinks_keep_any_target(t):
    t.become()
    for number, target in enumerate([b'x', b'../UP/and/Down', b'/ABS/olute', b'\xff\xfe bytes',
                                     'ÄÖ/か'.encode(), b'a' * 4095, b' ']):
        t.do(os.symlink, target, t(f'link{number}'))
        t.do(os.readlink, t(f'link{number}'))
        t.do(os.lstat, t(f'link{number}'))
    t.do(os.symlink, b'', t('empty'))
    t.do(os.symlink, b'b' * 4096, t('toolong'))
    t.do(os.readlink, t('missing'))
    t.do(os.symlink, b'x', t('link0'))


@test
def symlinks_are_followed_and_loops_end(t):
    t.become()
    t.folder('dir')
    t.put('dir/file', b'target')
    os.symlink('dir', t.new('dirlink'))
    os.symlink('dir/file', t.new('filelink'))
    os.symlink('dirlink/../dir/file', t.new('crooked'))
    os.symlink('loop2', t.new('loop1'))
    os.symlink('loop1', t.new('loop2'))
    os.symlink('gone', t.new('dangling'))
    for name in ('filelink', 'dirlink/file', 'crooked'):
        t.record(name, t.get(name))
    t.do(os.stat, t('loop1'))
    t.do(os.stat, t('dangling'))
    t.open(t('dangling'), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    fd = t.open(t('dangling'), os.O_CREAT | os.O_WRONLY)
    t.do(os.write, fd, b'made through the link')
    t.open(t('filelink'), os.O_RDONLY | os.O_NOFOLLOW)
    t.open(t('filelink'), os.O_RDONLY | os.O_DIRECTORY)
    t.open(t('dirlink'), os.O_RDONLY | os.O_DIRECTORY)
    t.do(os.rmdir, t('dirlink'))
    t.do(os.listdir, t('dirlink'))


@test
def protected_symlinks_in_sticky_directories(t):
    t.folder('sticky', 0o1777, ALICE)
    t.put('target', b'x', 0o644)
    with t.user(ALICE):
        os.symlink(b'../target', t.new('sticky', 'link'))
    t.become()
    t.open(t('sticky', 'link'))


@test
def unlinked_open_file_lives_on(t):
    t.become()
    t.put('file', b'before')
    fd = t.open(t('file'), os.O_RDWR)
    t.do(os.unlink, t('file'))
    t.do(os.fstat, fd)
    t.do(os.pwrite, fd, b'AFTER!', 3)
    t.do(os.pread, fd, 100, 0)
    t.do(os.ftruncate, fd, 4)
    t.do(os.fchmod, fd, 0o640)
    t.do(os.fstat, fd)
    t.put('file', b'another')
    t.do(os.pread, fd, 100, 0)
    t.record('the new one', t.get('file'))


@test
def unlinked_open_file_keeps_xattrs_and_times(t):
    t.become()
    t.put('file', b'data')
    fd = t.open(t('file'), os.O_RDWR)
    t.do(os.unlink, t('file'))
    t.do(os.setxattr, fd, b'user.late', b'value')
    t.do(os.getxattr, fd, b'user.late')
    t.do(os.listxattr, fd)
    t.do(os.utime, fd, ns=(10**18, 10**18 + 7))
    t.record('mtime', os.fstat(fd).st_mtime_ns)


@test
def replaced_open_file_lives_on(t):
    t.become()
    t.put('old', b'old content')
    t.put('new', b'new content')
    fd = t.open(t('old'))
    t.do(os.rename, t('new'), t.new('old'))
    t.do(os.fstat, fd)
    t.do(os.pread, fd, 100, 0)
    t.record('by name', t.get('old'))


@test
def removed_open_directory_can_be_asked(t):
    t.become()
    t.folder('dir')
    fd = t.open(t('dir'), os.O_RDONLY | os.O_DIRECTORY)
    t.do(os.rmdir, t('dir'))
    t.do(os.fstat, fd)
    t.do(os.listdir, fd)
    t.do(os.stat, b'.', dir_fd=fd)
    t.do(os.mkdir, b'inside', dir_fd=fd)
    t.do(os.fchmod, fd, 0o700)
    t.do(os.fstat, fd)


@test
def removed_working_directory(t):
    t.become()
    t.folder('dir')
    t.do(os.chdir, t('dir'))
    t.do(os.rmdir, t('dir'))
    t.do(os.stat, b'.')
    t.do(os.getcwdb)
    t.open(b'file', os.O_CREAT | os.O_WRONLY)
    t.do(os.chdir, b'/')


@test(only_if=lambda mount: mounted.has_tmpfile())
def tmpfile_can_be_linked(t):
    t.become()
    fd = t.open(t.root, os.O_TMPFILE | os.O_RDWR, 0o640)
    t.do(os.write, fd, b'unnamed')
    t.do(os.fstat, fd)
    proc = b'/proc/self/fd/%d' % (fd or 0)
    t.do(sc.linkat, sc.AT_FDCWD, proc, sc.AT_FDCWD, t('named'), sc.AT_SYMLINK_FOLLOW)
    t.do(os.fstat, fd)
    t.record('content', t.get('named'))


@test(only_if=lambda mount: mounted.has_tmpfile())
def tmpfile_exclusive_cannot_be_linked(t):
    t.become()
    fd = t.open(t.root, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
    proc = b'/proc/self/fd/%d' % (fd or 0)
    t.do(sc.linkat, sc.AT_FDCWD, proc, sc.AT_FDCWD, t('named'), sc.AT_SYMLINK_FOLLOW)


@test(only_if=lambda mount: mounted.has_tmpfile())
def tmpfile_onto_an_existing_name(t):
    t.become()
    t.put('taken', b'stays')
    fd = t.open(t.root, os.O_TMPFILE | os.O_RDWR, 0o600)
    proc = b'/proc/self/fd/%d' % (fd or 0)
    t.do(sc.linkat, sc.AT_FDCWD, proc, sc.AT_FDCWD, t('taken'), sc.AT_SYMLINK_FOLLOW)


@test(only_if=lambda mount: mounted.has_tmpfile())
def tmpfile_obeys_umask_and_directory(t):
    t.folder('closed', 0o555)
    t.folder('team', 0o2777)
    os.chown(t.new('team'), 0, 60100)
    os.chmod(t.new('team'), 0o2777)
    t.become()
    os.umask(0o027)
    t.do(os.fstat, t.open(t('closed'), os.O_TMPFILE | os.O_WRONLY, 0o666))
    t.do(os.fstat, t.open(t('team'), os.O_TMPFILE | os.O_WRONLY, 0o666))
    t.open(t('team'), os.O_TMPFILE | os.O_RDONLY, 0o666)


@test
def link_of_an_open_file_by_descriptor(t):
    t.put('file', b'x', 0o666)
    t.become()
    fd = t.open(t('file'))
    t.do(sc.linkat, fd, b'', sc.AT_FDCWD, t('by-empty-path'), sc.AT_EMPTY_PATH)
    proc = b'/proc/self/fd/%d' % (fd or 0)
    t.do(sc.linkat, sc.AT_FDCWD, proc, sc.AT_FDCWD, t('by-proc'), sc.AT_SYMLINK_FOLLOW)


@test
def link_of_an_unlinked_file_fails(t):
    t.put('file', b'x', 0o666)
    os.chmod(t.root, 0o777)
    t.become()
    fd = t.open(t('file'))
    t.do(os.unlink, t('file'))
    proc = b'/proc/self/fd/%d' % (fd or 0)
    t.do(sc.linkat, sc.AT_FDCWD, proc, sc.AT_FDCWD, t('again'), sc.AT_SYMLINK_FOLLOW)


@test
def names_with_slashes_and_dots(t):
    t.become()
    t.folder('dir')
    t.put('file')
    os.symlink('dir', t.new('link'))
    for path in (b'dir/', b'dir/.', b'dir/..', b'dir/../dir', b'file/', b'file/.', b'link/',
                 b'missing/', b'missing/..'):
        t.do(os.lstat, t.root + b'/' + path)
    t.do(os.mkdir, t.root + b'/made/')
    t.do(os.mkdir, t.root + b'/dir/.')
    t.do(os.rmdir, t.root + b'/dir/.')
    t.do(os.rmdir, t.root + b'/made/..')
    t.do(os.unlink, t.root + b'/file/')
    t.do(os.unlink, t.root + b'/dir')
    t.do(os.rmdir, t.root + b'/file')
    t.open(t.root + b'/newfile/', os.O_CREAT | os.O_WRONLY)


@test
def removal_errors_are_the_native_ones(t):
    t.folder('full')
    t.put('full/file')
    t.folder('closed', 0o555)
    t.put('closed/file')
    t.become()
    for name in ('full', 'missing', 'full/file/x', 'closed/file'):
        t.do(os.rmdir, t(name))
        t.do(os.unlink, t(name))
    t.record('left', sorted(os.listdir(t.root)))


@test
def many_links_are_counted(t):
    t.become()
    t.put('file')
    for number in range(300):
        os.link(t('file'), t(f'l{number}'))
    t.record('links', os.stat(t('file')).st_nlink)
    for number in range(0, 300, 2):
        os.unlink(t(f'l{number}'))
    t.record('links', os.stat(t('l1')).st_nlink)


@test
def types_are_told_apart(t):
    t.become()
    t.put('file')
    t.folder('dir')
    os.symlink('x', t.new('link'))
    os.mkfifo(t.new('fifo'))
    t.record('types', sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink(),
                              stat.S_IFMT(e.stat(follow_symlinks=False).st_mode))
                             for e in os.scandir(t.root)))


tests.main()
