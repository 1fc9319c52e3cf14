#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may do what: modes, owners, groups, sticky and setgid directories, umask, ACLs."""
import os
import socket
import struct

import mounted
from compare import ALICE, BOB, MALLORY, ROOT, TEAM, Comparisons, chown_nothing

tests = Comparisons()
test = tests.test

ACL_UNDEFINED = 0xFFFFFFFF
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 0x10, 0x20
READ, WRITE, SEARCH = 4, 2, 1


def acl(*entries):
    """The xattr form of an ACL; an entry is (tag, permissions[, id])."""
    return struct.pack('<I', 2) + b''.join(
        struct.pack('<HHI', tag, permissions, ids[0] if ids else ACL_UNDEFINED)
        for tag, permissions, *ids in entries)


def set_acl(t, name, kind, *entries):
    t.do(os.setxattr, t(name), 'system.posix_acl_' + kind, acl(*entries))


def acls_are_enforced(mount):
    return not mount.is_without('acl')


def every_access(t, path):
    for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK):
        t.do(os.access, path, mode)
        t.do(os.access, path, mode, effective_ids=True)


@test
def file_modes_decide(t):
    for owner in (ROOT, ALICE, BOB):
        for mode in (0o000, 0o400, 0o200, 0o600, 0o040, 0o020, 0o004, 0o002, 0o644, 0o755, 0o111):
            t.put(f'f-{owner.name}-{mode:o}', b'x', mode, owner)
    t.become()
    for name in sorted(os.listdir(t.root)):
        path = t(name)
        t.open(path, os.O_RDONLY)
        t.open(path, os.O_WRONLY)
        t.open(path, os.O_RDWR)
        t.open(path, os.O_WRONLY | os.O_TRUNC)
        t.do(os.truncate, path, 3)
        every_access(t, path)


@test
def directory_modes_decide(t):
    for owner in (ROOT, ALICE):
        for mode in (0o000, 0o100, 0o300, 0o400, 0o500, 0o700, 0o001, 0o003, 0o005, 0o007):
            name = f'd-{owner.name}-{mode:o}'
            t.folder(name)
            t.put(name + '/file', b'x', 0o666)
            t.folder(name + '/sub', 0o777)
            t.own(name, mode, owner)
    t.become()
    for name in sorted(os.listdir(t.root)):
        top = t(name)
        t.do(os.listdir, top)
        t.do(os.lstat, top + b'/file')
        t.do(os.lstat, top + b'/missing')
        t.open(top + b'/file')
        t.do(os.mkdir, top + b'/made')
        t.open(top + b'/created', os.O_CREAT | os.O_WRONLY)
        t.do(os.rename, top + b'/file', top + b'/renamed')
        t.do(os.unlink, top + b'/created')
        t.do(os.chdir, top)
        t.do(os.chdir, b'/')
        every_access(t, top)


@test
def execution_needs_a_bit(t):
    for mode in (0o644, 0o744, 0o654, 0o645, 0o755):
        t.put(f'script{mode:o}', b'#!/bin/sh\nexit 7\n', mode)
    t.become()

    def spawn(path):
        return os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(path, [path], {}), 0)[1])
    for name in sorted(os.listdir(t.root)):
        t.do(spawn, t(name))


@test
def chmod_only_by_the_owner(t):
    for owner in (ROOT, ALICE, BOB):
        t.put(owner.name, b'x', 0o666, owner)
    t.become()
    for owner in ('root', 'alice', 'bob'):
        for mode in (0o640, 0o4755, 0o2755, 0o1755, 0o7777, 0o000):
            t.do(os.chmod, t(owner), mode)
            t.record(f'{owner} {mode:o}', os.stat(t(owner)))


@test
def chown_as_the_kernel_allows(t):
    for owner in (ROOT, ALICE, BOB):
        t.put(owner.name, b'x', 0o6755, owner)
        t.folder(owner.name + '-dir', 0o6755, owner)
    os.symlink('alice', t.new('link'))
    t.become()
    for name in ('alice', 'bob', 'root', 'alice-dir', 'root-dir'):
        for uid, gid in ((-1, TEAM), (-1, ALICE.gid), (ALICE.uid, -1), (BOB.uid, -1),
                         (-1, BOB.gid), (-1, -1), (0, 0)):
            if (uid, gid) == (-1, -1):
                chown_nothing(t, t(name))
            else:
                t.do(os.chown, t(name), uid, gid)
            t.record(f'{name} {uid} {gid}', os.stat(t(name)))
    t.do(os.lchown, t('link'), BOB.uid, BOB.gid)
    t.do(os.lstat, t('link'))


@test
def chgrp_clears_setgid_of_strangers(t):
    t.put('file', b'x', 0o2755, ALICE)
    t.become()
    t.do(os.chmod, t('file'), 0o2755)
    t.do(os.chown, t('file'), -1, TEAM)
    t.do(os.chmod, t('file'), 0o2755)
    t.record('in the group', os.stat(t('file')))


@test(users=(ROOT,))
def chmod_drops_setgid_outside_the_group(t):
    t.put('file', b'x', 0o644, ALICE)
    os.chown(t.new('file'), ALICE.uid, 60999)
    with t.user(ALICE):
        t.do(os.chmod, t('file'), 0o2755)
        t.do(os.stat, t('file'))
    t.do(os.chmod, t('file'), 0o2755)
    t.do(os.stat, t('file'))


@test(users=(ROOT,))
def sticky_directory_protects_entries(t):
    t.folder('sticky', 0o1777)
    for owner in (ALICE, BOB):
        t.put(f'sticky/{owner.name}', b'x', 0o666, owner)
        t.folder(f'sticky/{owner.name}-dir', 0o777, owner)
    with t.user(ALICE):
        t.do(os.unlink, t('sticky', 'bob'))
        t.do(os.rmdir, t('sticky', 'bob-dir'))
        t.do(os.rename, t('sticky', 'bob'), t.new('sticky', 'stolen'))
        t.do(os.rename, t('sticky', 'alice'), t.new('sticky', 'bob'))
        t.do(os.link, t('sticky', 'bob'), t('sticky', 'linked'))
        t.open(t('sticky', 'bob'), os.O_WRONLY)
        t.open(t('sticky', 'bob'), os.O_WRONLY | os.O_CREAT)  # fs.protected_regular
        t.do(os.unlink, t('sticky', 'alice'))
        t.do(os.rmdir, t('sticky', 'alice-dir'))
    with t.user(BOB):
        t.do(os.unlink, t('sticky', 'bob'))


@test(users=(ROOT,))
def sticky_directory_of_ones_own(t):
    t.folder('sticky', 0o1777, ALICE)
    t.put('sticky/bob', b'x', 0o666, BOB)
    t.put('sticky/bob2', b'x', 0o666, BOB)
    with t.user(MALLORY):
        t.do(os.unlink, t('sticky', 'bob'))
    with t.user(ALICE):
        t.do(os.unlink, t('sticky', 'bob'))
        t.do(os.rename, t('sticky', 'bob2'), t.new('sticky', 'bob3'))


@test(users=(ROOT,))
def setgid_directory_gives_its_group(t):
    t.folder('team', 0o2777)
    os.chown(t.new('team'), 0, TEAM)
    os.chmod(t.new('team'), 0o2777)
    for user in (ALICE, MALLORY, ROOT):
        with t.user(user):
            n = user.name
            t.open(t('team', n + '-file'), os.O_CREAT | os.O_WRONLY, 0o664)
            t.open(t('team', n + '-sgid'), os.O_CREAT | os.O_WRONLY, 0o2775)
            t.open(t('team', n + '-tmp'), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            t.do(os.mkdir, t('team', n + '-dir'), 0o775)
            t.do(os.mkdir, t('team', n + '-dir', 'below'), 0o775)
            t.do(os.symlink, 'x', t('team', n + '-link'))
            t.do(os.mkfifo, t('team', n + '-fifo'), 0o2770)
            t.do(os.mknod, t('team', n + '-node'), 0o100664)


@test(users=(ROOT,))
def supplementary_group_may_create_in_2770(t):
    t.folder('share', 0o2770)
    os.chown(t.new('share'), 0, TEAM)
    os.chmod(t.new('share'), 0o2770)
    for user in (ALICE, BOB, MALLORY):
        with t.user(user):
            n = user.name
            fd = t.open(t('share', n), os.O_CREAT | os.O_RDWR, 0o660)
            t.do(os.write, fd, n.encode())
            t.do(os.mkdir, t('share', n + '-dir'), 0o770)
            t.do(os.symlink, n, t('share', n + '-link'))
            t.do(os.link, t('share', n), t('share', n + '-hard'))
            t.do(os.mkfifo, t('share', n + '-fifo'))
            t.do(os.rename, t('share', n), t.new('share', n + '-new'))
            if mounted.has_tmpfile():
                t.open(t('share'), os.O_TMPFILE | os.O_RDWR, 0o600)
            t.do(os.listdir, t('share', n + '-dir'))
    with t.user(BOB):
        t.do(os.unlink, t('share', 'alice-new'))
        t.do(os.rmdir, t('share', 'alice-dir'))


@test(users=(ROOT,))
def last_of_many_groups_counts(t):
    t.folder('share', 0o2770)
    os.chown(t.new('share'), 0, 61999)
    os.chmod(t.new('share'), 0o2770)
    groups = ALICE.groups
    try:
        ALICE.groups = list(range(61000, 62000))
        with t.user(ALICE):
            t.open(t('share', 'file'), os.O_CREAT | os.O_RDWR, 0o660)
            t.do(os.mkdir, t('share', 'dir'))
        ALICE.groups = list(range(61000, 61999))
        with t.user(ALICE):
            t.open(t('share', 'file2'), os.O_CREAT | os.O_RDWR, 0o660)
    finally:
        ALICE.groups = groups


@test
def umask_is_the_callers(t):
    t.become()
    for mask in (0, 0o007, 0o022, 0o077, 0o777):
        os.umask(mask)
        n = f'{mask:o}'
        t.open(t('file' + n), os.O_CREAT | os.O_WRONLY, 0o666)
        t.open(t('exec' + n), os.O_CREAT | os.O_WRONLY, 0o777)
        t.do(os.mkdir, t('dir' + n), 0o777)
        t.do(os.mkfifo, t('fifo' + n), 0o666)
        t.do(os.mknod, t('node' + n), 0o100666)


@test
def created_read_only_file_can_be_written_by_its_creator(t):
    t.become()
    fd = t.open(t('file'), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o444)
    t.do(os.write, fd, b'data')
    fd = t.open(t('none'), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o000)
    t.do(os.write, fd, b'data')
    t.open(t('file'), os.O_RDWR)


@test
def default_acl_is_inherited(t):
    t.folder('dir', 0o777)
    set_acl(t, 'dir', 'default', (USER_OBJ, 7), (USER, 7, BOB.uid), (GROUP_OBJ, 5),
            (GROUP, 6, TEAM), (MASK, 7), (OTHER, 0))
    t.become()
    for mask in (0o022, 0o077):
        os.umask(mask)
        n = f'{mask:o}'
        t.open(t('dir', 'file' + n), os.O_CREAT | os.O_WRONLY, 0o666)
        t.open(t('dir', 'private' + n), os.O_CREAT | os.O_WRONLY, 0o600)
        t.do(os.mkdir, t('dir', 'sub' + n), 0o777)
        t.do(os.mkdir, t('dir', 'sub' + n, 'below'), 0o755)
        t.do(os.mkfifo, t('dir', 'fifo' + n), 0o666)
        t.do(os.symlink, 'x', t('dir', 'link' + n))
        if mounted.has_tmpfile():
            t.do(os.stat, t.open(t('dir'), os.O_TMPFILE | os.O_RDWR, 0o666))


@test(users=(ROOT,), only_if=acls_are_enforced)
def access_acl_decides(t):
    t.put('file', b'x', 0o600)
    t.folder('dir', 0o700)
    t.put('dir/inside', b'x', 0o666)
    set_acl(t, 'file', 'access', (USER_OBJ, 6), (USER, 4, ALICE.uid), (GROUP_OBJ, 0), (MASK, 4),
            (OTHER, 0))
    set_acl(t, 'dir', 'access', (USER_OBJ, 7), (GROUP_OBJ, 0), (GROUP, 7, TEAM), (MASK, 7),
            (OTHER, 0))
    for user in (ALICE, BOB, MALLORY):
        with t.user(user):
            t.open(t('file'))
            t.open(t('file'), os.O_WRONLY)
            every_access(t, t('file'))
            t.do(os.listdir, t('dir'))
            t.open(t('dir', 'inside'))
            t.do(os.mkdir, t('dir', user.name))


@test(users=(ROOT,), only_if=acls_are_enforced)
def acl_mask_follows_chmod(t):
    t.put('file', b'x', 0o600, ALICE)
    set_acl(t, 'file', 'access', (USER_OBJ, 6), (USER, 6, BOB.uid), (GROUP_OBJ, 6), (MASK, 6),
            (OTHER, 0))
    t.do(os.stat, t('file'))
    with t.user(BOB):
        t.open(t('file'), os.O_RDWR)
    with t.user(ALICE):
        t.do(os.chmod, t('file'), 0o640)
    t.do(os.getxattr, t('file'), 'system.posix_acl_access')
    with t.user(BOB):
        t.open(t('file'), os.O_RDWR)
        t.open(t('file'), os.O_RDONLY)


@test
def acl_only_by_the_owner(t):
    t.put('root', b'x', 0o666)
    t.put('alice', b'x', 0o666, ALICE)
    t.folder('dir', 0o777)
    t.become()
    for name in ('root', 'alice', 'dir'):
        set_acl(t, name, 'access', (USER_OBJ, 6), (USER, 6, BOB.uid), (GROUP_OBJ, 4), (MASK, 6),
                (OTHER, 4))
        set_acl(t, name, 'default', (USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 4))
        t.do(os.getxattr, t(name), 'system.posix_acl_access')
        t.do(os.removexattr, t(name), 'system.posix_acl_access')
        t.do(os.stat, t(name))


@test
def bad_acls_are_refused(t):
    t.put('file', b'x', 0o666, ALICE)
    t.become()
    set_acl(t, 'file', 'access', (USER_OBJ, 6))
    set_acl(t, 'file', 'access', (USER_OBJ, 6), (USER, 6, BOB.uid), (GROUP_OBJ, 4), (OTHER, 4))
    t.do(os.setxattr, t('file'), 'system.posix_acl_access', b'garbage')
    t.do(os.setxattr, t('file'), 'system.posix_acl_access', b'')
    t.do(os.getxattr, t('file'), 'system.posix_acl_access')
    t.do(os.getxattr, t('file'), 'system.posix_acl_default')


@test(users=(ROOT,))
def acl_with_setgid_chmod(t):
    t.put('file', b'x', 0o2775, ALICE)
    os.chown(t.new('file'), ALICE.uid, 60999)
    os.chmod(t.new('file'), 0o2775)
    with t.user(ALICE):
        set_acl(t, 'file', 'access', (USER_OBJ, 7), (USER, 6, BOB.uid), (GROUP_OBJ, 7), (MASK, 7),
                (OTHER, 5))
    t.do(os.stat, t('file'))


@test
def new_entries_belong_to_the_caller(t):
    t.become()
    t.open(t('file'), os.O_CREAT | os.O_WRONLY)
    t.do(os.mkdir, t('dir'))
    t.do(os.symlink, 'x', t('link'))
    t.do(os.mkfifo, t('fifo'))
    sock = socket.socket(socket.AF_UNIX)
    t.do(os.chdir, t.root)
    sock.bind('socket')
    t.do(os.chdir, '/')


@test
def overwriting_obeys_the_file_not_the_directory(t):
    t.folder('closed', 0o755)
    t.put('closed/open-file', b'old', 0o666)
    t.put('closed/shut-file', b'old', 0o644)
    t.become()
    for name in ('open-file', 'shut-file', 'new-file'):
        fd = t.open(t('closed', name), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        t.do(os.write, fd, b'new')
        t.open(t('closed', name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)


@test
def rename_needs_both_directories(t):
    t.folder('mine', 0o755, ALICE)
    t.folder('yours', 0o755)
    t.put('mine/file', b'x', 0o644, ALICE)
    t.put('yours/file', b'y', 0o666)
    t.folder('mine/roots-dir', 0o755)
    t.become()
    t.do(os.rename, t('mine', 'file'), t.new('yours', 'moved'))
    t.do(os.rename, t('yours', 'file'), t.new('mine', 'moved'))
    t.do(os.rename, t('mine', 'file'), t.new('mine', 'renamed'))
    t.do(os.rename, t('mine', 'roots-dir'), t.new('mine', 'roots-renamed'))


@test
def directory_of_another_moved_needs_write_on_it(t):
    t.folder('a', 0o777)
    t.folder('b', 0o777)
    t.folder('a/dir', 0o755)
    t.put('a/file', b'x', 0o600)
    t.become()
    t.do(os.rename, t('a', 'dir'), t.new('b', 'dir'))
    t.do(os.rename, t('a', 'file'), t.new('b', 'file'))


@test(users=(ROOT,))
def permission_changes_count_at_once(t):
    t.folder('dir', 0o700)
    t.put('dir/file', b'x', 0o644)
    for mode in (0o700, 0o755, 0o700, 0o711):
        t.do(os.chmod, t('dir'), mode)
        with t.user(ALICE):
            t.open(t('dir', 'file'))
            t.do(os.listdir, t('dir'))
    for mode in (0o600, 0o644, 0o600):
        t.do(os.chmod, t('dir', 'file'), mode)
        with t.user(ALICE):
            t.open(t('dir', 'file'))


@test(users=(ROOT,))
def descriptor_outlives_permission(t):
    t.put('file', b'content', 0o644)
    with t.user(ALICE):
        fd = t.open(t('file'))
    os.chmod(t('file'), 0o600)
    with t.user(ALICE):
        t.do(os.read, fd, 100)
        t.do(os.fstat, fd)
        t.open(t('file'))


@test
def mknod_of_devices_needs_a_capability(t):
    t.become()
    t.do(os.mknod, t('null'), 0o20666, os.makedev(1, 3))
    t.do(os.mknod, t('loop'), 0o60660, os.makedev(7, 0))
    t.do(os.mknod, t('whiteout'), 0o20000, 0)
    t.do(os.mknod, t('regular'), 0o100644)
    t.do(os.mknod, t('fifo'), 0o10644)


tests.main('ext4')
