#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes made on the backing tree, behind the mount, are seen by the next operation that reaches
the daemon, under every spelling.

Names of directories and attributes are cached by the kernel for a while, so the mount has both
timeouts at 0 here; file names are never cached by it."""
import errno
import os
import random
import sys
import time

import mounted
import tap
from mounted import Area, Mount
from tap import expect, expect_equal, scaled

suite = tap.Suite()
SPELLINGS = ('name', 'NAME', 'Name', 'nAmE')
folders = iter(range(10**6))


class Tree:
    def __init__(self, mount):
        self.name = f'case{next(folders)}'
        self.through_top = os.path.join(mount.path, self.name)
        self.below_top = os.path.join(mount.source, self.name)
        os.mkdir(self.below_top)

    def through(self, *names):
        return os.path.join(self.through_top, *names)

    def below(self, *names):
        return os.path.join(self.below_top, *names)


def make(path, content=b''):
    with open(path, 'xb') as file:
        file.write(content)


def error_of(function, *args):
    try:
        function(*args)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]


def real_name(directory, name):
    try:
        return os.getxattr(directory, 'glusterfs.get_real_filename:' + name).rstrip(b'\0').decode()
    except OSError as error:
        return errno.errorcode[error.errno]


def expect_everywhere(tree, on_disk, spellings=SPELLINGS):
    """Every spelling finds the entry that ON_DISK names (None: none does)."""
    want = os.lstat(tree.below(on_disk)).st_ino if on_disk else 'ENOENT'
    for spelling in spellings:
        try:
            got = os.lstat(tree.through(spelling)).st_ino
        except OSError as error:
            got = errno.errorcode[error.errno]
        expect_equal(got, want, f'{spelling} with {on_disk} on disk')
        expect_equal(real_name(tree.through(), spelling), on_disk or 'ENODATA', 'real name')


@suite.test
def created_file_is_found(mount):
    tree = Tree(mount)
    for on_disk in SPELLINGS:
        expect_everywhere(tree, None)
        make(tree.below(on_disk))
        expect_everywhere(tree, on_disk)
        os.unlink(tree.below(on_disk))
        expect_everywhere(tree, None)


@suite.test
def every_kind_of_entry_is_found(mount):
    tree = Tree(mount)
    make(tree.below('other'))
    for action in (lambda p: os.mkdir(p), lambda p: os.symlink('x', p), lambda p: os.mkfifo(p),
                   lambda p: os.link(tree.below('other'), p), lambda p: os.mknod(p)):
        expect_everywhere(tree, None)
        action(tree.below('Name'))
        expect_everywhere(tree, 'Name')
        (os.rmdir if os.path.isdir(tree.below('Name')) else os.unlink)(tree.below('Name'))
    expect_everywhere(tree, None)


@suite.test
def renamed_file_is_found_under_its_new_name_only(mount):
    tree = Tree(mount)
    make(tree.below('name'))
    expect_everywhere(tree, 'name')
    os.rename(tree.below('name'), tree.below('Another'))
    expect_everywhere(tree, None)
    expect_everywhere(tree, 'Another', ('another', 'ANOTHER'))
    os.rename(tree.below('Another'), tree.below('Name'))
    expect_everywhere(tree, 'Name')


@suite.test
def case_only_rename_changes_the_real_name(mount):
    tree = Tree(mount)
    make(tree.below('name'))
    for old, new in zip(SPELLINGS, SPELLINGS[1:] + SPELLINGS[:1]):
        expect_everywhere(tree, old)
        os.rename(tree.below(old), tree.below(new))
        expect_everywhere(tree, new)
        expect_equal(os.listdir(tree.through()), [new])


@suite.test
def replaced_file_is_the_new_one(mount):
    tree = Tree(mount)
    make(tree.below('name'), b'old')
    expect_everywhere(tree, 'name')
    make(tree.below('temporary'), b'new')
    os.rename(tree.below('temporary'), tree.below('name'))
    expect_everywhere(tree, 'name')
    with open(tree.through('NAME'), 'rb') as file:
        expect_equal(file.read(), b'new')


@suite.test
def removed_and_made_again_is_the_new_one(mount):
    """The inode number may be used again: it is another file all the same."""
    tree = Tree(mount)
    for number in range(scaled(100, 20)):
        content = b'%d' % number
        make(tree.below('name'), content)
        with open(tree.through(SPELLINGS[number % 4]), 'rb') as file:
            expect_equal(file.read(), content)
            os.unlink(tree.below('name'))
            make(tree.below('name'), b'x' + content)
            file.seek(0)
            expect_equal(file.read(), content, 'through the old descriptor')
        with open(tree.through('nAME'), 'rb') as file:
            expect_equal(file.read(), b'x' + content)
        os.unlink(tree.below('name'))


@suite.test
def file_becomes_directory_and_back(mount):
    tree = Tree(mount)
    for _ in range(10):
        make(tree.below('name'))
        expect(os.path.isfile(tree.through('NAME')), 'no file')
        os.unlink(tree.below('name'))
        os.mkdir(tree.below('name'))
        expect(os.path.isdir(tree.through('NAME')), 'no directory')
        make(tree.below('name', 'Inside'))
        os.stat(tree.through('Name', 'INSIDE'))
        os.unlink(tree.below('name', 'Inside'))
        os.rmdir(tree.below('name'))


@suite.test
def creations_through_the_mount_respect_what_was_made_behind(mount):
    tree = Tree(mount)
    for action in (lambda p: os.close(os.open(p, os.O_CREAT | os.O_EXCL)), os.mkdir, os.mkfifo,
                   lambda p: os.symlink('x', p)):
        expect_everywhere(tree, None)
        make(tree.below('Name'), b'content')
        expect_equal(error_of(action, tree.through('name')), 'EEXIST')
        expect_equal(os.listdir(tree.below()), ['Name'])
        os.unlink(tree.below('Name'))
        action(tree.through('name'))
        expect_equal(os.listdir(tree.below()), ['name'])
        (os.rmdir if os.path.isdir(tree.below('name')) else os.unlink)(tree.below('name'))


@suite.test
def open_with_create_uses_what_was_made_behind(mount):
    tree = Tree(mount)
    for number in range(20):
        expect_everywhere(tree, None)
        make(tree.below('Name'), b'behind')
        with open(tree.through(SPELLINGS[number % 4]), 'ab') as file:
            file.write(b'+')
        with open(tree.below('Name'), 'rb') as file:
            expect_equal(file.read(), b'behind+')
        expect_equal(os.listdir(tree.below()), ['Name'])
        os.unlink(tree.below('Name'))


@suite.test
def removal_of_what_is_gone_is_enoent(mount):
    tree = Tree(mount)
    for action, prepare in ((os.unlink, make), (os.rmdir, os.mkdir)):
        prepare(tree.below('name'))
        expect_everywhere(tree, 'name')
        (os.unlink if action is os.unlink else os.rmdir)(tree.below('name'))
        expect_equal(error_of(action, tree.through('NAME')), 'ENOENT')
        expect_everywhere(tree, None)


@suite.test
def rename_of_what_was_made_behind(mount):
    tree = Tree(mount)
    expect_everywhere(tree, None)
    make(tree.below('Name'), b'content')
    os.rename(tree.through('nAME'), tree.through('moved'))
    expect_equal(os.listdir(tree.below()), ['moved'])
    expect_everywhere(tree, None)


@suite.test
def variant_made_behind_a_known_entry(mount):
    tree = Tree(mount)
    make(tree.through('name'), b'lower')
    expect_everywhere(tree, 'name')
    make(tree.below('NAME'), b'upper')
    for spelling, want in (('name', b'lower'), ('NAME', b'upper'), ('Name', b'upper')):
        with open(tree.through(spelling), 'rb') as file:
            expect_equal(file.read(), want)
    expect_equal(sorted(os.listdir(tree.through())), ['NAME', 'name'])
    os.unlink(tree.below('NAME'))
    expect_everywhere(tree, 'name')


@suite.test
def listing_shows_what_was_done_behind(mount):
    tree = Tree(mount)
    for number in range(50):
        make(tree.below(f'f{number}'))
        expect_equal(sorted(os.listdir(tree.through())), sorted(os.listdir(tree.below())))
    for number in range(0, 50, 2):
        os.unlink(tree.below(f'f{number}'))
        expect_equal(sorted(os.listdir(tree.through())), sorted(os.listdir(tree.below())))


@suite.test
def moved_directory_is_found_where_it_is(mount):
    tree = Tree(mount)
    os.makedirs(tree.below('one', 'Dir', 'sub'))
    os.mkdir(tree.below('two'))
    make(tree.below('one', 'Dir', 'sub', 'File'), b'content')
    expect_equal(os.stat(tree.through('ONE', 'DIR', 'SUB', 'FILE')).st_size, 7)
    os.rename(tree.below('one', 'Dir'), tree.below('two', 'Moved'))
    expect_equal(error_of(os.stat, tree.through('one', 'dir')), 'ENOENT')
    expect_equal(os.stat(tree.through('TWO', 'MOVED', 'SUB', 'FILE')).st_size, 7)
    make(tree.below('two', 'Moved', 'sub', 'New'))
    os.stat(tree.through('two', 'moved', 'sub', 'NEW'))


@suite.test
def directory_replaced_by_another_of_the_same_name(mount):
    tree = Tree(mount)
    for number in range(scaled(30, 5)):
        os.mkdir(tree.below('dir'))
        make(tree.below('dir', f'In-{number}'))
        os.stat(tree.through('DIR', f'IN-{number}'))
        expect_equal(error_of(os.stat, tree.through('DIR', f'IN-{number - 1}')), 'ENOENT')
        os.rename(tree.below('dir'), tree.below('old'))
        mounted.run('rm', '-r', tree.below('old'))


@suite.test
def directory_set_back_in_time_is_not_believed(mount):
    """Samba and backup programs set a directory's mtime back: ctime tells all the same."""
    tree = Tree(mount)
    for number in range(scaled(50, 10)):
        expect_everywhere(tree, None)
        before = os.stat(tree.below())
        make(tree.below('Name'))
        os.utime(tree.below(), ns=(before.st_atime_ns, before.st_mtime_ns))
        expect_everywhere(tree, 'Name')
        os.unlink(tree.below('Name'))
        os.utime(tree.below(), ns=(before.st_atime_ns, before.st_mtime_ns))
        expect_everywhere(tree, None)


@suite.test
def attributes_changed_behind_show(mount):
    tree = Tree(mount)
    make(tree.below('name'), b'12345')
    for number in range(20):
        os.chmod(tree.below('name'), 0o600 + number % 8)
        os.truncate(tree.below('name'), number)
        os.utime(tree.below('name'), ns=(number, number))
        st = os.stat(tree.through('NAME'))
        expect_equal((st.st_mode & 0o777, st.st_size, st.st_mtime_ns),
                     (0o600 + number % 8, number, number))


@suite.test
def large_directory_with_changes_in_the_middle(mount):
    tree = Tree(mount)
    count = scaled(5000, 500)
    for number in range(count):
        make(tree.below(f'Entry-{number}'))
    os.stat(tree.through('ENTRY-1'))
    rng = random.Random(3)
    for _ in range(scaled(100, 20)):
        number = rng.randrange(count)
        os.rename(tree.below(f'Entry-{number}'), tree.below(f'Other-{number}'))
        expect_equal(error_of(os.stat, tree.through(f'ENTRY-{number}')), 'ENOENT')
        os.stat(tree.through(f'OTHER-{number}'))
        os.rename(tree.below(f'Other-{number}'), tree.below(f'Entry-{number}'))
        os.stat(tree.through(f'eNTRY-{number}'))


@suite.test
def changes_at_once_and_after_a_rest(mount):
    """Whatever the age of the directory's last change when it was looked at."""
    tree = Tree(mount)
    for rest in (0, 0.001, 0.005, 0.02, 0.1, 1.1):
        for _ in range(3):
            time.sleep(rest)
            expect_everywhere(tree, None)
            time.sleep(rest)
            make(tree.below('nAmE'))
            expect_everywhere(tree, 'nAmE')
            time.sleep(rest)
            os.unlink(tree.below('nAmE'))


@suite.test
def random_changes_on_both_sides(mount):
    """One process, changes behind and through in any order, each checked against the disk."""
    tree = Tree(mount)
    seed = int(time.time())
    tap.note(f'seed {seed}')
    rng = random.Random(seed)
    names = ['Alpha', 'ALPHA', 'beta', 'Beta', 'gamma', 'GAMMA', 'Ärger', 'ÄRGER']
    for step in range(scaled(3000, 200)):
        name = rng.choice(names)
        side = rng.choice((tree.below, tree.through))
        action = rng.randrange(4)
        try:
            if action == 0:
                os.close(os.open(side(name), os.O_CREAT | os.O_EXCL))
            elif action == 1:
                os.unlink(side(name))
            elif action == 2:
                os.rename(tree.below(name), tree.below(rng.choice(names)))
            else:
                with open(side(name), 'ab') as file:
                    file.write(b'x')
        except OSError:
            pass
        on_disk = os.listdir(tree.below())
        asked = rng.choice(names)
        alike = sorted((n for n in on_disk if n.lower() == asked.lower()), key=os.fsencode)
        want = asked if asked in alike else alike[0] if alike else None
        expect_equal(real_name(tree.through(), asked), want or 'ENODATA',
                     f'step {step}, on disk {on_disk}, asked {asked}')
        got = error_of(os.lstat, tree.through(asked))
        expect_equal(got, 'done' if want else 'ENOENT', f'step {step}, {on_disk}, {asked}')
        expect_equal(sorted(os.listdir(tree.through())), sorted(on_disk))


def main():
    word = tap.arguments().k
    for kind in ('ext4', 'xfs', 'btrfs', 'tmpfs'):
        def whole():
            mounted.need_foldfs()
            with Area(kind) as area, \
                    Mount(area.dir('source'), 'attr_timeout=0,entry_timeout=0') as mount:
                suite.run(mount, suffix='_on_' + kind, word=word)
        tap.run_one('behind_tests_mount_and_unmount_on_' + kind, whole)
    sys.exit(tap.status())


main()
