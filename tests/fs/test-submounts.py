#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other file systems and btrfs subvolumes inside the tree: entered, and no inode number of theirs
equal to another's, the same at every mount."""
import errno
import os
import subprocess
import sys
import time

import mounted
import syscalls as sc
import tap
from mounted import Area, Mount
from tap import expect, expect_equal

FILES = 300
FORGOTTEN_S = 10  # the daemon gets through a few hundred forgets long before, also under a sanitizer

suite = tap.Suite()       # on a tree with file systems mounted inside
subvolumes = tap.Suite()  # on a btrfs with subvolumes
late = tap.Suite()        # file systems mounted while foldfs runs


def populate(top):
    """Files, directories and links with about the same inode numbers on every file system."""
    os.makedirs(os.path.join(top, 'folder', 'below'), exist_ok=True)
    for number in range(FILES):
        with open(os.path.join(top, 'folder', f'file{number}'), 'w', encoding='ascii') as file:
            file.write(f'{top} {number}')
    os.link(os.path.join(top, 'folder', 'file0'), os.path.join(top, 'folder', 'below', 'link'))
    os.symlink('file0', os.path.join(top, 'folder', 'symlink'))


def inodes(top):
    """relative path -> inode number, of everything below TOP."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = os.lstat(path).st_ino
    return found


def identities(top):
    """relative path -> (device, inode) of everything below TOP, on the bare tree."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            found[os.path.relpath(path, top)] = (st.st_dev, st.st_ino)
    return found


def expect_one_number_a_file(mount):
    below, through = identities(mount.source), inodes(mount.path)
    expect_equal(through.keys(), below.keys())
    expect(len(below) > 2 * FILES, f'only {len(below)} entries: the test is empty')
    by_file, by_number = {}, {}
    for path, identity in below.items():
        by_file.setdefault(identity, set()).add(through[path])
        by_number.setdefault(through[path], set()).add(identity)
    several = [(f, n) for f, n in by_file.items() if len(n) > 1]
    shared = [(n, f) for n, f in by_number.items() if len(f) > 1]
    expect(not several, f'files with several numbers: {several[:5]}')
    expect(not shared, f'numbers that {len(shared)} times stand for several files: {shared[:5]}')


@suite.test
@subvolumes.test
def no_two_files_share_an_inode_number(mount):
    expect_one_number_a_file(mount)


@suite.test
@subvolumes.test
def numbers_of_the_trees_own_file_system_stay(mount):
    device = os.stat(mount.source).st_dev
    through = inodes(mount.path)
    own = {p: ino for p, (dev, ino) in identities(mount.source).items() if dev == device}
    expect(len(own) >= FILES, 'the tree has no files of its own')
    expect_equal({p: through[p] for p in own}, own)
    expect_equal(os.stat(mount.path).st_ino, os.stat(mount.source).st_ino)


@suite.test
@subvolumes.test
def one_device_number_is_shown(mount):
    devices = {os.lstat(os.path.join(folder, name)).st_dev
               for folder, folders, files in os.walk(mount.path) for name in folders + files}
    expect_equal(len(devices), 1)


@suite.test
@subvolumes.test
def listing_and_stat_agree_on_numbers(mount):
    for folder, _, _ in os.walk(mount.path):
        fd = os.open(folder, os.O_RDONLY)
        entries = sc.read_all_entries(fd)
        os.close(fd)
        for ino, _, _, name in entries:
            path = os.path.join(os.fsencode(folder), name)
            # Where something is mounted, a listing may name what is below, as the bare tree's does;
            # and '..' is never the parent there.
            if name != b'..' and not is_mount_point(mount, path):
                expect_equal(ino, os.lstat(path).st_ino, f'{path!r} in the listing')


def is_mount_point(mount, path):
    below = path.replace(os.fsencode(mount.path), os.fsencode(mount.source), 1)
    return os.lstat(below).st_dev != os.lstat(os.path.dirname(below)).st_dev


@suite.test
@subvolumes.test
def numbers_are_the_same_after_a_remount(mount):
    before = inodes(mount.path)
    mount.remount()
    expect_equal(inodes(mount.path), before)


@suite.test
@subvolumes.test
def numbers_do_not_depend_on_the_order_of_discovery(mount):
    before = inodes(mount.path)
    for first in ('two', 'one'):
        mount.remount()
        os.listdir(os.path.join(mount.path, first, 'folder'))
        os.stat(os.path.join(mount.path, first, 'folder', 'file1'))
        expect_equal(inodes(mount.path), before)


@suite.test
@subvolumes.test
def content_is_that_of_the_right_file_system(mount):
    for path in identities(mount.source):
        below, through = (os.path.join(top, path) for top in (mount.source, mount.path))
        if os.path.isfile(below):
            with open(below, 'rb') as one, open(through, 'rb') as other:
                expect_equal(other.read(), one.read(), path)


@suite.test
@subvolumes.test
def names_are_folded_inside(mount):
    for inside in ('one', 'two'):
        path = os.path.join(mount.path, inside.upper(), 'FOLDER', 'File7')
        real = os.path.join(mount.source, inside, 'folder', 'file7')
        expect_equal(os.stat(path).st_size, os.stat(real).st_size)
        with open(path + '-Made', 'x', encoding='ascii'):
            pass
        expect('File7-Made' in os.listdir(os.path.dirname(real)), 'not made')
        os.unlink(path + '-made')


@suite.test
@subvolumes.test
def moving_between_them_gives_exdev(mount):
    for action in (os.rename, os.link):
        got, want = [], []
        for top, answers in ((mount.source, want), (mount.path, got)):
            for source, target in (('one', 'two'), ('folder', 'one'), ('one', 'folder')):
                old = os.path.join(top, source, *(('folder',) if source != 'folder' else ()),
                                   'file9')
                try:
                    action(old, os.path.join(top, target, 'moved'))
                    answers.append('done')
                except OSError as error:
                    answers.append(errno.errorcode[error.errno])
        expect_equal(got, want)
        expect_equal(want, ['EXDEV'] * 3)


@suite.test
def mount_points_cannot_be_removed_or_renamed(mount):
    got, want = [], []
    for top, answers in ((mount.source, want), (mount.path, got)):
        for action, args in ((os.rmdir, ('one',)), (os.rename, ('one', 'three')),
                             (os.rename, ('folder', 'one'))):
            try:
                action(*(os.path.join(top, a) for a in args))
                answers.append('done')
            except OSError as error:
                answers.append(errno.errorcode[error.errno])
    expect_equal(got, want)


@suite.test
def statfs_is_that_of_the_place(mount):
    for inside in ('', 'one', 'two', 'one/folder/file1'):
        below, through = (os.statvfs(os.path.join(top, inside))
                          for top in (mount.source, mount.path))
        expect_equal((through.f_blocks, through.f_files), (below.f_blocks, below.f_files), inside)


@suite.test
@subvolumes.test
def dot_dot_leads_back(mount):
    for inside in ('one', 'two', 'folder', 'one/folder'):
        path = os.path.join(mount.path, inside)
        expect_equal(os.stat(path + '/..').st_ino, os.stat(os.path.dirname(path)).st_ino, inside)


@suite.test
@subvolumes.test
def rsync_and_tar_keep_them_apart(mount):
    """A tool that takes equal numbers for hard links would link strangers."""
    target = os.path.join(mount.top, 'copy')
    os.mkdir(target)
    tar = subprocess.run(f'tar -C {mount.path} -cf - . | tar -C {target} -xf -', shell=True,
                         stderr=subprocess.PIPE, text=True, check=False)
    expect_equal(tar.returncode, 0, tar.stderr)
    for path in identities(mount.source):
        below, copy = (os.path.join(top, path) for top in (mount.source, target))
        if os.path.isfile(below) and not os.path.islink(below):
            expect_equal(os.stat(copy).st_nlink, os.stat(below).st_nlink, path)
            with open(below, 'rb') as one, open(copy, 'rb') as other:
                expect_equal(other.read(), one.read(), path)


@late.test
def file_system_mounted_while_running_is_entered(mount):
    point = os.path.join(mount.source, 'late')
    os.mkdir(point)
    with open(os.path.join(point, 'hidden'), 'x', encoding='ascii'):
        pass
    expect_equal(os.listdir(os.path.join(mount.path, 'late')), ['hidden'])
    mounted.run('mount', '-t', 'tmpfs', 'tmpfs', point)
    populate(point)
    expect_equal(sorted(os.listdir(asked_again(mount, 'late'))), sorted(os.listdir(point)))
    expect_one_number_a_file(mount)


@late.test
def file_system_unmounted_while_running_is_left(mount):
    asked_again(mount, 'late')  # what the kernel remembers, the daemon keeps open
    unmount_when_forgotten(os.path.join(mount.source, 'late'))
    expect_equal(os.listdir(asked_again(mount, 'late')), ['hidden'])


def unmount_when_forgotten(point):
    """The daemon hears a moment later what the kernel has forgotten."""
    deadline = time.monotonic() + FORGOTTEN_S
    while subprocess.run(['umount', point], stderr=subprocess.DEVNULL, check=False).returncode:
        expect(time.monotonic() < deadline, f'{point} stays busy')
        time.sleep(0.05)


def asked_again(mount, name):
    """A mount that appears or goes below shows when the kernel next asks for the directory's
    name: it is made to forget the name, which it otherwise does after the entry timeout."""
    os.sync()
    with open('/proc/sys/vm/drop_caches', 'w', encoding='ascii') as file:
        file.write('2')
    return os.path.join(mount.path, name)


def with_file_systems(area):
    source = area.dir('source')
    populate(source)
    for name in ('one', 'two'):
        point = os.path.join(source, name)
        os.mkdir(point)
        image = os.path.join(area.top, name + '.image')
        with open(image, 'wb') as file:
            file.truncate(64 << 20)
        mounted.run(mounted.tool('mkfs.ext4'), '-q', image)
        mounted.run('mount', '-o', 'loop', image, point)
        populate(point)
    return source


def with_subvolumes(area):
    btrfs = mounted.tool('btrfs')
    source = area.dir('source')
    populate(source)
    for name in ('one', 'two'):
        mounted.run(btrfs, 'subvolume', 'create', os.path.join(source, name))
        populate(os.path.join(source, name))
    return source


def run(name, kind, prepare, tests, word):
    def whole():
        mounted.need_foldfs()
        with Area(kind) as area, Mount(prepare(area)) as mount:
            tests.run(mount, suffix='_' + name, word=word)
    tap.run_one(name + '_mount_and_unmount', whole)


def run_late(word):
    def whole():
        mounted.need_foldfs()
        with Area('ext4') as area, Mount(area.dir('source')) as mount:
            populate(mount.source)
            late.run(mount, word=word)
    tap.run_one('late_file_systems_mount_and_unmount', whole)


def main():
    word = tap.arguments().k
    run('file_systems', 'ext4', with_file_systems, suite, word)
    run('subvolumes', 'btrfs', with_subvolumes, subvolumes, word)
    run_late(word)
    sys.exit(tap.status())


main()
