#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quota and the blocks reserved for root are respected through the mount, with and without
passthrough: a user is stopped where the bare tree stops him.

User quota is tested on ext4, where the kernel has it; that of btrfs, on whole subvolumes,
everywhere."""
import errno
import os
import sys
import time

import mounted
import syscalls as sc
import tap
from compare import ALICE, BOB
from mounted import Area, Mount

MIB = 1 << 20
CHUNK = 64 << 10
LIMIT_KB = 2048       # ALICE's hard limit of blocks
LIMIT_INODES = 40     # and of inodes
RESERVED_PERCENT = 40
SUBVOLUME_LIMIT_MB = 8


def as_user(user, function, *args):
    """Runs FUNCTION in a process that is USER for good; returns its string, or an errno's name."""
    back, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(user.groups)
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            answer = str(function(*args))
        except OSError as error:
            answer = errno.errorcode[error.errno]
        except BaseException as error:
            answer = repr(error)
        os.write(out, answer.encode())
        os._exit(0)
    os.close(out)
    os.waitpid(pid, 0)
    with os.fdopen(back) as pipe:
        return pipe.read()


def fill(path, limit=64 * MIB):
    """Writes until an error; returns how many KiB went in and which error came."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    written = 0
    try:
        while written < limit:
            written += os.write(fd, bytes(CHUNK))
        os.fsync(fd)
        return f'{written >> 10} none'
    except OSError as error:
        return f'{written >> 10} {errno.errorcode[error.errno]}'
    finally:
        os.close(fd)


def allocate(path, size):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        sc.fallocate(fd, 0, 0, size)
        return 'done'
    finally:
        os.close(fd)


def copy_over(source, target):
    from_fd, to_fd = os.open(source, os.O_RDONLY), os.open(target, os.O_CREAT | os.O_WRONLY)
    copied = 0
    while step := os.copy_file_range(from_fd, to_fd, MIB, copied, copied):
        copied += step
    os.fsync(to_fd)
    return f'copied {copied}'


def make_many(folder, count):
    made = 0
    try:
        for number in range(count):
            os.close(os.open(os.path.join(folder, f'f{number}'), os.O_CREAT | os.O_WRONLY))
            made += 1
        return f'{made} none'
    except OSError as error:
        return f'{made} {errno.errorcode[error.errno]}'


def amount(answer):
    number, error = answer.split()
    return int(number), error


def stopped_alike(bare, through, want_error, what):
    """Both runs ended with the wanted error, within a few chunks of each other: a file system may
    count its own blocks a little differently from run to run."""
    tap.note(f'{what}: bare tree {bare}, mount {through}')
    (bare_kb, bare_error), (through_kb, through_error) = amount(bare), amount(through)
    tap.expect_equal(bare_error, want_error, what + ', bare tree')
    tap.expect_equal(through_error, want_error, what + ', mount')
    tap.expect(abs(bare_kb - through_kb) <= 4 * (CHUNK >> 10), f'{what}: {bare} and {through}')


class Trees:
    """A bare tree and a mounted one on one file system, used one after the other."""

    def __init__(self, area, mount, bare):
        self.area, self.mount, self.bare = area, mount, bare

    def both(self, prepare, action):
        """ACTION(folder) in a fresh folder of each side, emptied before the other's turn."""
        answers = []
        for side, top in (('bare', self.bare), ('mount', self.mount.path)):
            folder = os.path.join(top, 'work')
            os.mkdir(folder)
            os.chmod(folder, 0o777)
            prepare(folder)
            os.sync()
            answers.append(action(folder))
            mounted.run('rm', '-rf', folder)
            os.sync()
        return answers


user_quota = tap.Suite()
subvolume_quota = tap.Suite()
reserved = tap.Suite()


def nothing(_):
    pass


@user_quota.test
def quota_stops_writing(trees):
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, fill, f + '/file'))
    stopped_alike(bare, through, 'EDQUOT', 'KiB before quota')


@user_quota.test
def quota_stops_writing_into_a_file_that_root_made(trees):
    def prepare(folder):
        with open(folder + '/file', 'wb'):
            pass
        os.chown(folder + '/file', ALICE.uid, ALICE.gid)
    bare, through = trees.both(prepare, lambda f: as_user(ALICE, fill, f + '/file'))
    stopped_alike(bare, through, 'EDQUOT', 'KiB before quota')


@user_quota.test
def quota_stops_fallocate(trees):
    bare, through = trees.both(
        nothing, lambda f: as_user(ALICE, allocate, f + '/file', 2 * LIMIT_KB << 10))
    tap.expect_equal((bare, through), ('EDQUOT', 'EDQUOT'))


@user_quota.test
def quota_stops_copy_file_range(trees):
    def prepare(folder):
        with open(folder + '/source', 'wb') as file:
            file.write(os.urandom(2 * LIMIT_KB << 10))
        os.chmod(folder + '/source', 0o644)
    bare, through = trees.both(
        prepare, lambda f: as_user(ALICE, copy_over, f + '/source', f + '/target'))
    tap.expect_equal((bare, through), ('EDQUOT', 'EDQUOT'))


@user_quota.test
def quota_stops_making_files(trees):
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, make_many, f, 2 * LIMIT_INODES))
    tap.expect_equal(through, bare)
    tap.expect_equal(amount(bare), (LIMIT_INODES, 'EDQUOT'))


@user_quota.test
def quota_stops_making_directories_and_links(trees):
    def make(folder):
        done = []
        for number in range(2 * LIMIT_INODES):
            path = f'{folder}/n{number}'
            try:
                if number % 2:
                    os.mkdir(path)
                else:
                    os.symlink('x' * 100, path)
                done.append(number)
            except OSError as error:
                return f'{len(done)} {errno.errorcode[error.errno]}'
        return f'{len(done)} none'
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, make, f))
    tap.expect_equal(through, bare)
    tap.expect_equal(amount(bare)[1], 'EDQUOT')


@user_quota.test
def quota_does_not_stop_others(trees):
    bare, through = trees.both(nothing, lambda f: as_user(BOB, fill, f + '/file', 4 * MIB))
    tap.expect_equal((bare, through), ('4096 none', '4096 none'))


@user_quota.test
def what_root_writes_counts_for_the_owner_and_is_not_stopped(trees):
    def prepare(folder):
        with open(folder + '/file', 'wb'):
            pass
        os.chown(folder + '/file', ALICE.uid, ALICE.gid)

    def act(folder):
        result = fill(folder + '/file', 4 * MIB)
        return result + '/' + as_user(ALICE, fill, folder + '/second')
    bare, through = trees.both(prepare, act)
    tap.expect_equal(through, bare)


@subvolume_quota.test
def subvolume_quota_stops_writing(trees):
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, fill, f + '/file'))
    stopped_alike(bare, through, 'EDQUOT', 'KiB before quota')


@subvolume_quota.test
def subvolume_quota_stops_fallocate(trees):
    size = 2 * SUBVOLUME_LIMIT_MB * MIB
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, allocate, f + '/file', size))
    tap.expect_equal((bare, through), ('EDQUOT', 'EDQUOT'))


@subvolume_quota.test
def subvolume_quota_treats_root_alike(trees):
    size = 2 * SUBVOLUME_LIMIT_MB * MIB
    bare, through = trees.both(nothing, lambda f: fill(f + '/file', size))
    stopped_alike(bare, through, amount(bare)[1], 'KiB that root could write')


@reserved.test
def reserved_blocks_stay_roots(trees):
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, fill, f + '/file'))
    stopped_alike(bare, through, 'ENOSPC', 'KiB before the reserve')


@reserved.test
def reserved_blocks_stay_roots_for_fallocate(trees):
    size = 30 * MIB
    bare, through = trees.both(nothing, lambda f: as_user(ALICE, allocate, f + '/file', size))
    tap.expect_equal((bare, through), ('ENOSPC', 'ENOSPC'))


@reserved.test
def root_may_use_the_reserve_or_is_held_like_a_user(trees):
    """Passthrough writes for everyone without CAP_SYS_RESOURCE, so that no user gets at the
    reserve: root does not either then."""
    bare, through = trees.both(nothing, lambda f: fill(f + '/file'))
    tap.expect(amount(bare)[0] << 10 > 30 * MIB, f'the reserve stops root on the bare tree: {bare}')
    if trees.mount.passes_through():
        _, user = trees.both(nothing, lambda f: as_user(ALICE, fill, f + '/file'))
        stopped_alike(user, through, 'ENOSPC', 'KiB that root could write as a user')
    else:
        stopped_alike(bare, through, 'ENOSPC', 'KiB that root could write')


@reserved.test
def statfs_tells_what_a_user_may_use(trees):
    fields = ('f_blocks', 'f_bfree', 'f_bavail', 'f_files')
    deadline = time.monotonic() + 5  # what the tests before removed is still being freed
    while True:
        bare, through = ([getattr(os.statvfs(p), f) for f in fields]
                         for p in (trees.bare, trees.mount.path))
        if bare == through or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    tap.expect_equal(through, bare)


def two_directories(area):
    return area.dir('bare'), area.dir('source')


def with_user_quota(area):
    mounted.run(mounted.tool('setquota'), '-u', str(ALICE.uid), '0', str(LIMIT_KB), '0',
                str(LIMIT_INODES), area.path)
    return two_directories(area)


def with_limited_subvolumes(area):
    btrfs = mounted.tool('btrfs')
    mounted.run(btrfs, 'quota', 'enable', area.path)
    paths = [os.path.join(area.path, name) for name in ('bare', 'source')]
    for path in paths:
        mounted.run(btrfs, 'subvolume', 'create', path)
        mounted.run(btrfs, 'qgroup', 'limit', f'{SUBVOLUME_LIMIT_MB}m', path)
    return paths


FILE_SYSTEMS = (
    (user_quota, 'user_quota', with_user_quota,
     {'kind': 'ext4', 'megabytes': 64, 'options': 'usrquota',
      'mkfs': ('-O', 'quota', '-E', 'quotatype=usrquota')}),
    (subvolume_quota, 'subvolume_quota', with_limited_subvolumes,
     {'kind': 'btrfs', 'megabytes': 256}),
    (reserved, 'reserve', two_directories,
     {'kind': 'ext4', 'megabytes': 64, 'mkfs': ('-m', str(RESERVED_PERCENT))}),
)


def run(suite, name, prepare, arguments, options, word):
    suffix = ('_with_' + options.replace('=', '_')) if options else ''

    def whole():
        with Area(**arguments) as area:
            bare, source = prepare(area)
            with Mount(source, options) as mount:
                suite.run(Trees(area, mount, bare), suffix=suffix, word=word)
    tap.run_one(f'{name}_file_system_mounts_and_unmounts{suffix}', whole)


def main():
    word = tap.arguments().k
    for options in ('',) if mounted.is_bind() else ('passthrough=auto', 'passthrough=off'):
        for suite, name, prepare, arguments in FILE_SYSTEMS:
            run(suite, name, prepare, arguments, options, word)
    sys.exit(tap.status())


main()
