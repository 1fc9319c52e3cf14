#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times, modes, statfs, special files: as on the bare tree."""
import os
import select
import socket
import stat
import time

import mounted
from compare import ALICE, BOB, ROOT, Comparisons

tests = Comparisons()
test = tests.test

BILLION = 10**9
TIMES = (0, 1, -1, BILLION * BILLION + 123456789, 2**31 * BILLION, (2**31 - 1) * BILLION + 999999999,
         -2**31 * BILLION, 4 * BILLION * BILLION, 2**33 * BILLION, 1_700_000_000_123_456_700)


@test
def times_are_kept_to_the_nanosecond(t):
    t.become()
    t.put('file')
    t.folder('dir')
    os.symlink('x', t.new('link'))
    for name in ('file', 'dir', 'link'):
        for when in TIMES:
            t.do(os.utime, t(name), ns=(when, when + 5), follow_symlinks=False)
            st = os.lstat(t(name))
            t.record('times', (st.st_atime_ns, st.st_mtime_ns))
    t.keep_times('file', 'dir', 'link')


@test
def utime_now_needs_write_permission_only(t):
    for name, mode, owner in (('own', 0o400, ALICE), ('writable', 0o666, BOB),
                              ('readable', 0o644, BOB), ('roots', 0o600, ROOT)):
        t.put(name, b'x', mode, owner)
        os.utime(t.new(name), ns=(BILLION, BILLION))
    t.become()
    for name in ('own', 'writable', 'readable', 'roots'):
        t.do(os.utime, t(name))
        t.record('moved', os.stat(t(name)).st_mtime_ns > BILLION)
        t.do(os.utime, t(name), ns=(5, 6))
        t.record('set', os.stat(t(name)).st_mtime_ns == 6)


@test
def changes_move_the_times_that_they_should(t):
    t.become()
    t.folder('dir')
    t.folder('other')
    t.put('dir/file', b'x')

    def moved(action, *names):
        before = []
        for name in names:
            os.utime(t(name), ns=(BILLION, BILLION))
            before.append(os.stat(t(name)))
        time.sleep(mounted.TICK_S)
        action()
        for name, old in zip(names, before):
            new = os.stat(t(name))
            t.record(name, (new.st_mtime_ns > old.st_mtime_ns, new.st_ctime_ns > old.st_ctime_ns))
    moved(lambda: t.put('dir/new'), 'dir', 'dir/file')
    moved(lambda: os.chmod(t('dir/file'), 0o600), 'dir', 'dir/file')
    moved(lambda: os.rename(t('dir/new'), t.new('other/new')), 'dir', 'other')
    moved(lambda: os.link(t('dir/file'), t('other/link')), 'dir', 'other', 'dir/file')
    moved(lambda: os.unlink(t('other/link')), 'other', 'dir/file')
    moved(lambda: os.truncate(t('dir/file'), 0), 'dir', 'dir/file')
    moved(lambda: os.mkdir(t('dir/sub')), 'dir')
    moved(lambda: os.rmdir(t('dir/sub')), 'dir')
    moved(lambda: os.symlink('x', t('dir/link')), 'dir')
    moved(lambda: os.stat(t('dir/file')), 'dir', 'dir/file')
    moved(lambda: os.listdir(t('dir')), 'dir')


@test
def directory_times_can_be_set_back(t):
    t.become()
    t.folder('dir')
    for number in range(20):
        t.put(f'dir/file{number}')
        os.utime(t('dir'), ns=(BILLION, BILLION))
        t.do(os.stat, t('dir', f'file{number}'))
        t.do(os.stat, t('dir', f'file{number + 1}'))
    t.record('mtime', os.stat(t('dir')).st_mtime_ns)


@test
def chmod_takes_every_bit(t):
    t.become()
    t.put('file')
    t.folder('dir')
    for name in ('file', 'dir'):
        for mode in range(0, 0o10000, 0o111):
            t.do(os.chmod, t(name), mode)
            t.record('mode', os.stat(t(name)).st_mode)
    os.chmod(t('dir'), 0o755)
    fd = t.open(t('dir'))
    t.do(os.fchmod, fd, 0o700)
    t.do(os.stat, t('dir'))


@test
def set_attributes_through_a_descriptor(t):
    t.become()
    t.put('file', b'x')
    fd = t.open(t('file'), os.O_RDWR)
    t.do(os.fchmod, fd, 0o640)
    t.do(os.fchown, fd, -1, os.getgid())
    t.do(os.utime, fd, ns=(3, 4))
    t.do(os.ftruncate, fd, 100)
    t.do(os.stat, t('file'))
    t.do(os.fchmod, t.open(t('file'), os.O_PATH), 0o600)


@test
def statfs_tells_the_tree_below(t):
    t.become()
    t.put('file')
    t.do(os.statvfs, t('file'))
    t.do(os.statvfs, t.root)
    t.do(os.fstatvfs, t.open(t('file')))
    t.do(os.pathconf, t('file'), 'PC_NAME_MAX')


@test
def fifo_carries_data(t):
    t.become()
    os.mkfifo(t.new('fifo'), 0o600)
    reader = t.open(t('fifo'), os.O_RDONLY | os.O_NONBLOCK)
    writer = t.open(t('fifo'), os.O_WRONLY | os.O_NONBLOCK)
    t.do(os.write, writer, b'through the pipe')
    t.do(os.read, reader, 100)
    t.do(os.stat, t('fifo'))
    t.do(os.unlink, t('fifo'))
    t.do(os.write, writer, b'still')
    t.do(os.read, reader, 100)


@test
def fifo_connects_two_processes(t):
    t.become()
    os.mkfifo(t.new('fifo'), 0o600)
    pid = os.fork()
    if pid == 0:
        with open(t('fifo'), 'wb') as file:
            file.write(b'from the child')
        os._exit(0)
    with open(t('fifo'), 'rb') as file:
        t.record('read', file.read())
    os.waitpid(pid, 0)


@test
def socket_connects(t):
    t.become()
    # sun_path holds 107 bytes only: short names from the working directory
    os.chdir(t.root)
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    t.do(server.bind, 'sock')
    server.listen()
    t.do(os.stat, t('sock'))
    client.connect(os.path.basename(t('sock')))
    t.do(client.send, b'hello')
    t.record('received', server.accept()[0].recv(100))
    t.do(socket.socket(socket.AF_UNIX).bind, 'sock')
    os.unlink(t('sock'))
    t.do(socket.socket(socket.AF_UNIX).connect, 'sock')


@test(users=(ROOT,))
def device_nodes_keep_their_number(t):
    for kind, major, minor in ((stat.S_IFCHR, 1, 3), (stat.S_IFCHR, 1, 5), (stat.S_IFBLK, 7, 0),
                               (stat.S_IFCHR, 4095, 1048575), (stat.S_IFCHR, 0, 0),
                               (stat.S_IFCHR, 300, 70000)):
        name = f'dev-{kind:o}-{major}-{minor}'
        t.do(os.mknod, t(name), kind | 0o600, os.makedev(major, minor))
        t.do(os.stat, t(name))
    t.record('kinds', sorted((e.name, e.is_file()) for e in os.scandir(t.root)))


@test
def poll_on_a_file_is_ready(t):
    t.become()
    t.put('file', b'x')
    poller = select.poll()
    fd = t.open(t('file'), os.O_RDWR)
    poller.register(fd, select.POLLIN | select.POLLOUT)
    t.record('events', [events for _, events in poller.poll(0)])


@test
def link_counts_of_directories(t):
    t.become()
    t.folder('dir')
    for number in range(10):
        t.folder(f'dir/sub{number}')
        t.do(os.stat, t('dir'))
    for number in range(5):
        t.do(os.rmdir, t('dir', f'sub{number}'))
    t.do(os.rename, t('dir', 'sub7'), t.new('moved'))
    t.do(os.stat, t('dir'))
    t.do(os.stat, t.root)


@test
def inode_number_does_not_depend_on_the_way(t):
    t.become()
    t.put('file')
    t.folder('dir')
    os.link(t('file'), t('dir/link'))
    ways = {os.stat(t('file')).st_ino, os.stat(t('dir/link')).st_ino,
            os.fstat(t.open(t('file'))).st_ino,
            next(e.inode() for e in os.scandir(t.root) if e.name == b'file'),
            next(e.inode() for e in os.scandir(t('dir')) if e.name == b'link')}
    t.record('numbers', len(ways))
    dirs = {os.stat(t('dir')).st_ino, os.stat(t('dir') + b'/.').st_ino,
            next(e.inode() for e in os.scandir(t.root) if e.name == b'dir')}
    t.record('numbers', len(dirs))
    t.record('parent', os.stat(t('dir') + b'/..').st_ino == os.stat(t.root).st_ino)


@test
def touching_and_reading_back_many_times(t):
    t.become()
    for number in range(100):
        t.put(f'f{number}', b'x' * number)
        os.utime(t(f'f{number}'), ns=(number, number * 1000))
    t.record('read back', [(os.stat(t(f'f{n}')).st_size, os.stat(t(f'f{n}')).st_mtime_ns)
                           for n in range(100)])
    t.keep_times(*(f'f{n}' for n in range(100)))


tests.main('ext4')
