#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extended attributes of every name space, file flags: as on the bare tree."""
import os
import stat
import time

import mounted
import syscalls as sc
from compare import ALICE, BOB, ROOT, Comparisons

tests = Comparisons()
test = tests.test

# A valid file capability (version 2, cap_net_raw+ep) and a version 3 one with a root id.
CAPABILITY = bytes.fromhex('0100000200200000000000000000000000000000')
NAMES = ('user.name', 'user.Name', 'user.', 'user', 'trusted.name', 'security.name',
         'security.capability', 'system.name', 'system.posix_acl_access', 'nothing.name', 'x',
         'user.' + 'n' * 250, 'user.' + 'n' * 251, 'user.ümlaut')


def make_all(t):
    t.put('root', b'x', 0o644)
    t.put('alice', b'x', 0o644, ALICE)
    t.put('bob', b'x', 0o666, BOB)
    t.folder('dir', 0o755, ALICE)
    t.folder('sticky', 0o1777)
    os.symlink('alice', t.new('link'))
    os.mkfifo(t.new('fifo'))
    os.chmod(t.new('fifo'), 0o666)
    return 'root', 'alice', 'bob', 'dir', 'sticky', 'link', 'fifo'


@test
def every_name_space_on_every_kind(t):
    kinds = make_all(t)
    t.become()
    for kind in kinds:
        for name in NAMES:
            value = CAPABILITY if name == 'security.capability' else b'value'
            t.do(os.getxattr, t(kind), name, follow_symlinks=False)
            t.do(os.setxattr, t(kind), name, value, follow_symlinks=False)
            t.do(os.getxattr, t(kind), name, follow_symlinks=False)
        t.do(os.listxattr, t(kind), follow_symlinks=False)
        for name in NAMES:
            t.do(os.removexattr, t(kind), name, follow_symlinks=False)


@test
def links_are_followed_or_not(t):
    make_all(t)
    t.become()
    t.do(os.setxattr, t('link'), 'user.through', b'1')
    t.do(os.getxattr, t('alice'), 'user.through')
    t.do(os.setxattr, t('link'), 'trusted.link', b'2', follow_symlinks=False)
    t.do(os.listxattr, t('link'), follow_symlinks=False)


@test(users=(ROOT,))
def trusted_is_roots_and_hidden_from_others(t):
    t.put('file', b'x', 0o666, ALICE)
    t.do(os.setxattr, t('file'), 'trusted.secret', b'root only')
    t.do(os.setxattr, t('file'), 'user.open', b'for all')
    t.do(os.listxattr, t('file'))
    with t.user(ALICE):
        t.do(os.listxattr, t('file'))
        t.do(os.getxattr, t('file'), 'trusted.secret')
        t.do(os.setxattr, t('file'), 'trusted.secret', b'mine')
        t.do(os.removexattr, t('file'), 'trusted.secret')
        t.do(os.getxattr, t('file'), 'trusted.missing')
    t.do(os.getxattr, t('file'), 'trusted.secret')


@test
def create_and_replace_flags(t):
    t.become()
    t.put('file')
    t.do(os.setxattr, t('file'), 'user.a', b'1', os.XATTR_REPLACE)
    t.do(os.setxattr, t('file'), 'user.a', b'2', os.XATTR_CREATE)
    t.do(os.setxattr, t('file'), 'user.a', b'3', os.XATTR_CREATE)
    t.do(os.setxattr, t('file'), 'user.a', b'4', os.XATTR_REPLACE)
    t.do(os.setxattr, t('file'), 'user.a', b'5', os.XATTR_CREATE | os.XATTR_REPLACE)
    t.do(os.setxattr, t('file'), 'user.a', b'5', 8)
    t.do(os.getxattr, t('file'), 'user.a')
    t.do(os.removexattr, t('file'), 'user.a')
    t.do(os.removexattr, t('file'), 'user.a')
    t.do(os.getxattr, t('file'), 'user.a')


@test
def sizes_and_probes(t):
    t.become()
    t.put('file')
    for size in (0, 1, 100, 2000, 3000, 65536, 65537):
        t.do(os.setxattr, t('file'), 'user.big', bytes(size))
        for buffer in (0, 1, size - 1, size, size + 1):
            if buffer >= 0:
                t.do(sc.getxattr_raw, t('file'), 'user.big', buffer)
    t.do(sc.getxattr_raw, t('file'), 'user.missing', 0)
    t.do(sc.getxattr_raw, t('file'), 'user.missing', 100)


@test
def many_attributes_are_listed(t):
    t.become()
    t.put('file')
    for number in range(60):
        t.do(os.setxattr, t('file'), f'user.attribute-{number:03}', b'v%d' % number)
    t.do(os.listxattr, t('file'))


@test
def descriptor_and_path_agree(t):
    t.become()
    t.put('file')
    fd = t.open(t('file'))
    t.do(os.setxattr, fd, 'user.by-fd', b'1')
    t.do(os.getxattr, t('file'), 'user.by-fd')
    t.do(os.setxattr, t('file'), 'user.by-path', b'2')
    t.do(os.getxattr, fd, 'user.by-path')
    t.do(os.listxattr, fd)
    t.do(os.removexattr, fd, 'user.by-path')
    t.do(os.listxattr, t('file'))


@test
def values_are_bytes(t):
    t.become()
    t.put('file')
    for number, value in enumerate((b'', b'\0', b'a\0b', bytes(range(256)))):
        t.do(os.setxattr, t('file'), f'user.v{number}', value)
        t.do(os.getxattr, t('file'), f'user.v{number}')


@test
def attribute_names_are_case_sensitive(t):
    t.become()
    t.put('file')
    t.do(os.setxattr, t('file'), 'user.DOSATTRIB', b'upper')
    t.do(os.setxattr, t('file'), 'user.dosattrib', b'lower')
    t.do(os.getxattr, t('file'), 'user.DOSATTRIB')
    t.do(os.getxattr, t('file'), 'user.Dosattrib')


@test
def attributes_survive_rename_and_link(t):
    t.become()
    t.put('file')
    t.do(os.setxattr, t('file'), 'user.kept', b'yes')
    t.do(os.rename, t('file'), t.new('moved'))
    t.do(os.link, t('moved'), t('linked'))
    t.do(os.getxattr, t('linked'), 'user.kept')


@test
def setting_moves_ctime_not_mtime(t):
    t.become()
    t.put('file')
    os.utime(t('file'), ns=(10**18, 10**18))
    before = os.stat(t('file'))
    time.sleep(mounted.TICK_S)
    os.setxattr(t('file'), 'user.x', b'1')
    after = os.stat(t('file'))
    t.record('mtime stays', after.st_mtime_ns == before.st_mtime_ns)
    t.record('ctime moves', after.st_ctime_ns > before.st_ctime_ns)


@test(users=(ROOT,))
def capability_is_told_to_all(t):
    t.put('file', b'x', 0o755)
    t.do(os.setxattr, t('file'), 'security.capability', CAPABILITY)
    with t.user(ALICE):
        t.do(os.getxattr, t('file'), 'security.capability')
        t.do(os.setxattr, t('file'), 'security.capability', CAPABILITY)
        t.do(os.listxattr, t('file'))
    t.do(os.chown, t('file'), ALICE.uid, -1)
    t.do(os.getxattr, t('file'), 'security.capability')


@test(users=(ROOT,))
def file_flags_are_kept_and_work(t):
    for name in ('plain', 'immutable', 'append'):
        t.put(name, b'x', 0o666)
    fds = {n: t.open(t(n), os.O_RDONLY) for n in ('plain', 'immutable', 'append')}
    t.do(sc.get_flags, fds['plain'])
    t.do(sc.set_flags, fds['plain'], sc.get_flags(fds['plain']) | sc.FS_NODUMP_FL)
    t.do(sc.get_flags, fds['plain'])
    t.do(sc.set_flags, fds['immutable'], sc.get_flags(fds['immutable']) | sc.FS_IMMUTABLE_FL)
    t.do(sc.set_flags, fds['append'], sc.get_flags(fds['append']) | sc.FS_APPEND_FL)
    for user in (ROOT, ALICE):
        with t.user(user):
            for name in ('immutable', 'append'):
                t.open(t(name), os.O_WRONLY)
                t.do(os.write, t.open(t(name), os.O_WRONLY | os.O_APPEND), b'y')
                t.do(os.truncate, t(name), 0)
                t.do(os.unlink, t(name))
                t.do(os.rename, t(name), t.new(name + '2'))
                t.do(os.chmod, t(name), 0o600)
                t.do(os.link, t(name), t(name + '3'))
                t.do(os.setxattr, t(name), 'user.x', b'1')
    for name in ('immutable', 'append'):
        t.do(sc.set_flags, fds[name], sc.get_flags(fds[name]) & ~(sc.FS_IMMUTABLE_FL
                                                                   | sc.FS_APPEND_FL))
    t.do(os.unlink, t('immutable'))


@test
def file_flags_only_by_the_owner(t):
    t.put('root', b'x', 0o666)
    t.put('alice', b'x', 0o666, ALICE)
    t.become()
    for name in ('root', 'alice'):
        fd = t.open(t(name))
        t.do(sc.set_flags, fd, sc.get_flags(fd) | sc.FS_NODUMP_FL)
        t.do(sc.set_flags, fd, sc.get_flags(fd) | sc.FS_IMMUTABLE_FL)
        t.do(sc.set_flags, fd, sc.get_flags(fd) & ~sc.FS_IMMUTABLE_FL)
    t.record('is a file', stat.S_ISREG(os.stat(t('alice')).st_mode))


tests.main('ext4')
