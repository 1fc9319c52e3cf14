#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The case-only rename in company: from threads, namespaces and unprivileged users, tens of
thousands of times; and what others notice of it, who look at the same names, watch the directory, or
have open what is renamed."""
import errno
import fcntl
import itertools
import mmap
import multiprocessing
import os
import random
import struct
import threading
import time

import mounted
import syscalls as sc
import tap
from caseonly import (CALLS, CLONE_FILES, CLONE_FS, KINDS, Child, Place, in_pid_namespace, isolate,
                      libc, main, make, outcome, shell)
from tap import Suite, expect, expect_equal, scaled

LOOPED = 50000  # renames of the loops, all together, at scale 1
THREADS = 8
ALICE, BOB = 60001, 60002
IN_MOVED_FROM, IN_MOVED_TO = 0x40, 0x80
suite, fold_only = Suite(), Suite()


def rename_in_threads(place, count, folder):
    """Each of COUNT threads renames what is in its directory, by way of a path that begins with
    FOLDER."""
    lost = []

    def rename(number):
        old, new, below = 'foo', 'Foo', os.path.join(place.below, f'own{number}')
        for _ in range(scaled(100, 20)):
            os.rename(place(f'{folder}{number}', old), place(f'{folder}{number}', new))
            if os.listdir(below) == [new]:
                old, new = new, old
            else:
                lost.append(number)
    for number in range(count):
        os.mkdir(place(f'own{number}'))
        os.symlink(f'own{number}', place(f'link{number}'))
        KINDS['file' if number % 2 else 'full_directory'](place(f'own{number}', 'foo'))
    threads = [threading.Thread(target=rename, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect_equal(len(lost), 0, f'renames lost, of {scaled(100, 20) * count}')


@suite.test
def threads_rename_at_once(mount):
    rename_in_threads(Place(mount, 'd'), THREADS, 'own')


@suite.test
def threads_rename_at_once_by_way_of_links(mount):
    rename_in_threads(Place(mount, 'd'), THREADS, 'link')


@suite.test
def more_threads_than_the_daemon_has_rename_at_once(mount):
    for folder in ('own', 'link'):
        rename_in_threads(Place(mount, folder), 8 * THREADS, folder)


@fold_only.test
def threads_rename_one_file_at_once(mount):
    place = Place(mount, 'd')
    make(place('name'))
    spellings, errors = ('name', 'Name', 'nAME', 'NAME'), []

    def rename(number):
        rng = random.Random(number)
        for _ in range(scaled(300, 50)):
            try:
                os.rename(place(rng.choice(spellings)), place(rng.choice(spellings)))
            except OSError as error:
                errors.append(error)
    threads = [threading.Thread(target=rename, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect_equal(errors, [], 'any spelling is there at any time')
    expect(len(place.names()) == 1 and place.names()[0] in spellings, place.names())


@suite.test
def thread_with_directory_and_descriptors_of_its_own(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')
    results = []

    def rename():
        libc.unshare(CLONE_FS | CLONE_FILES)
        os.chdir(place.path)
        fd = os.open('.', os.O_PATH)
        for old, new in (('foo', 'Foo'), ('Foo', 'FOO')):
            os.rename(old, new, src_dir_fd=fd if new == 'FOO' else None,
                      dst_dir_fd=fd if new == 'FOO' else None)
            results.append(place.names())
    thread = threading.Thread(target=rename)
    thread.start()
    thread.join()
    expect_equal(results, [['Foo'], ['FOO']])


@suite.test
def pid_namespaces(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')
    expect_equal(in_pid_namespace(os.rename, place('foo'), place('Foo')), None)
    place.expect_names('Foo')
    expect_equal(in_pid_namespace(in_pid_namespace, os.rename, place('Foo'), place('foo')), None)
    place.expect_names('foo')
    shell(place, 'mv foo Foo', 'unshare', '--pid', '--fork', '--mount-proc')
    place.expect_names('Foo')
    shell(place, 'mv Foo foo', 'unshare', '--user', '--map-root-user', '--pid', '--fork')
    place.expect_names('foo')


@suite.test
def mount_namespaces_bind_mounts_and_chroots(mount):
    place = Place(mount, 'd')
    os.makedirs(place('sub', 'deep'))
    elsewhere = mount.top + '/elsewhere'
    os.mkdir(elsewhere)

    def bound(old, new):
        isolate()
        mounted.run('mount', '--bind', place('sub'), elsewhere)
        os.rename(os.path.join(elsewhere, old), os.path.join(elsewhere, new))

    def only_bound(old, new):
        isolate()
        mounted.run('mount', '--bind', place('sub'), elsewhere)
        mounted.run('umount', mount.path)
        os.chdir(elsewhere)
        os.rename(old, new)

    def chrooted(old, new):
        os.chroot(place('sub'))
        os.chdir('/deep')
        os.rename(old, new)
    for number, (how, old, new) in enumerate((
            (bound, 'foo', 'Foo'), (bound, 'deep/../foo', 'deep/../Foo'), (bound, 'foo', './Foo'),
            (only_bound, 'foo', 'Foo'), (only_bound, 'deep/../foo', './Foo'),
            (chrooted, '/foo', '/Foo'), (chrooted, '../foo', '../Foo'),
            (chrooted, '/deep/../foo', '/Foo'))):
        for call in (outcome, in_pid_namespace):
            make(place('sub', 'foo'))
            expect_equal(call(how, old, new), None, (number, how.__name__, old, new))
            place.expect_names('Foo', 'deep', folder='sub', what=(how.__name__, old, new))
            os.unlink(place('sub', 'Foo'))


@suite.test
def unprivileged_users(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')
    os.makedirs(place.below + '/closed/open')
    os.chmod(place.below + '/closed/open', 0o777)
    make(place.below + '/closed/open/foo')
    for uid, old, new in ((ALICE, 'foo', 'Foo'), (BOB, 'Foo', 'foo')):
        expect_equal(outcome(os.rename, place(old), place(new), uid=uid), None)
        place.expect_names('closed', new)
    os.chmod(place.path, 0o755)
    expect_equal(outcome(os.rename, place('foo'), place('Foo'), uid=ALICE), errno.EACCES)
    place.expect_names('closed', 'foo')
    fd = os.open(place('closed', 'open'), os.O_PATH)  # a way that the path has not
    os.chmod(place('closed'), 0o700)
    expect_equal(outcome(os.rename, place('closed', 'open', 'foo'), place('closed', 'open', 'Foo'),
                         uid=ALICE), errno.EACCES)

    def at_descriptor():
        os.rename('foo', 'Foo', src_dir_fd=fd, dst_dir_fd=fd)
    expect_equal(outcome(at_descriptor, uid=ALICE), None)
    place.expect_names('Foo', folder='closed/open')
    os.close(fd)


@suite.test
def sticky_directories_as_on_the_bare_tree(mount):
    for kind in ('file', 'empty_directory', 'full_directory', 'symlink'):
        got = {}
        for side in ('path', 'below'):
            place = Place(mount, f'sticky-{kind}-{side}')
            os.chmod(place.below, 0o1777)
            for uid, owner in itertools.product((ALICE, BOB), (0, ALICE)):
                name = f'of{owner}for{uid}'
                KINDS[kind](os.path.join(place.below, name))
                os.chown(os.path.join(place.below, name), owner, owner, follow_symlinks=False)
                top = getattr(place, side)
                got[side, uid, owner] = outcome(os.rename, os.path.join(top, name),
                                                os.path.join(top, name.upper()), uid=uid)
            got[side, 'names'] = place.names()
        for key, value in got.items():
            if key[0] == 'path':
                expect_equal(value, got['below', *key[1:]], f'{kind} {key}')
        expect_equal([got['path', ALICE, ALICE], got['path', BOB, ALICE], got['path', BOB, 0]],
                     [None, errno.EPERM, errno.EPERM], kind)


@fold_only.test
def bystanders_always_see_the_name(mount):
    for kind in ('file', 'full_directory'):
        place = Place(mount, kind)
        KINDS[kind](place('foo'))
        seconds = scaled(3, 1)

        def watch(number):
            end, rng, seen = time.monotonic() + seconds, random.Random(number), 0
            while time.monotonic() < end:
                for name in ('foo', 'Foo', rng.choice(('FOO', 'fOO'))):
                    os.lstat(place(name))
                    os.close(os.open(place(name), os.O_RDONLY))
                    if kind == 'full_directory':
                        os.lstat(place(name, 'INSIDE'))
                expect_equal(len(os.listdir(place.path)), 1, 'entries')
                seen += 1
            return seen
        watchers = [Child(watch, n) for n in range(3)]
        end, renamed = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for old, new in (('foo', 'Foo'), ('Foo', 'foo')):
                os.rename(place(old), place(new))
                place.expect_names(new)
                renamed += 1
        for watcher in watchers:
            how, seen = watcher.wait()
            expect_equal(how, 'result', f'{kind}: {seen}')
            expect(seen > 10, 'hardly looked')
        tap.note(f'{renamed} renames of a {kind}')


@fold_only.test
def what_is_open_survives(mount):
    place = Place(mount, 'd')
    make(place('foo'), b'0' * 8192)
    os.makedirs(place('dir', 'sub'))
    fd = os.open(place('foo'), os.O_RDWR)
    o_path = os.open(place('Foo'), os.O_PATH)
    memory = mmap.mmap(fd, 8192)
    fcntl.flock(fd, fcntl.LOCK_EX)
    sc.lock(fd, fcntl.F_SETLK, fcntl.F_WRLCK, 0, 10)
    folder = os.open(place('dir'), os.O_RDONLY)

    def stay():
        os.chdir(place('dir', 'sub'))
        ready.set()
        done.wait()
        os.stat('.')
        make('here')
        return os.getcwd()
    ready, done = (multiprocessing.Event() for _ in range(2))
    child = Child(stay)
    ready.wait(10)
    for number in range(scaled(50, 10)):
        names = ('foo', 'Foo', 'dir', 'Dir') if number % 2 == 0 else ('Foo', 'foo', 'Dir', 'dir')
        os.rename(place(names[0]), place(names[1]))
        os.rename(place(names[2]), place(names[3]))
        place.expect_names(names[1], names[3])
        memory[number] = 65
        os.pwrite(fd, b'B', 4096 + number)
        expect_equal(os.pread(fd, 1, number), b'A')
        expect_equal(memory[4096 + number], 66)
        expect_equal(os.fstat(o_path).st_ino, os.stat(place('FOO')).st_ino)
        expect('sub' in os.listdir(folder), 'listing of an open directory')
        other = os.open(place('fOO'), os.O_RDWR)
        expect_equal(outcome(fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB), errno.EAGAIN)
        os.close(other)
        kind = outcome(lambda: sc.lock(os.open(place('foO'), os.O_RDWR), fcntl.F_GETLK,
                                       fcntl.F_WRLCK)[0])
        # Closing `other` gave up this process's POSIX locks: only the first time there is one.
        expect(kind == fcntl.F_WRLCK or number > 0 or kind == fcntl.F_UNLCK, kind)
    done.set()
    got = child.wait()[1]
    expect(got.lower() == place('dir', 'sub').lower(), got)
    place.expect_names('here', folder=names[3] + '/sub')
    memory.close()
    for one in (fd, o_path, folder):
        os.close(one)


@suite.test
def inotify_sees_both_names(mount):
    place = Place(mount, 'd')
    make(place('foo'))
    os.mkdir(place('dir'))
    fd = libc.inotify_init1(os.O_NONBLOCK)
    libc.inotify_add_watch(fd, os.fsencode(place.path), IN_MOVED_FROM | IN_MOVED_TO)
    os.rename(place('foo'), place('Foo'))
    os.rename(place('dir'), place('Dir'))
    data, events = os.read(fd, 4096), []
    while data:
        _, mask, cookie, length = struct.unpack_from('iIII', data)
        events.append((mask & 0xFFF, cookie, data[16:16 + length].rstrip(b'\0')))
        data = data[16 + length:]
    os.close(fd)
    expect_equal([(mask, name) for mask, _, name in events],
                 [(IN_MOVED_FROM, b'foo'), (IN_MOVED_TO, b'Foo'), (IN_MOVED_FROM, b'dir'),
                  (IN_MOVED_TO, b'Dir')])
    expect(events[0][1] == events[1][1] != events[2][1] == events[3][1], events)


def loop(place, call, kind, rounds):
    """How many of ROUNDS renames are not on disk afterwards."""
    old, new, lost = 'foo', 'Foo', 0
    KINDS[kind](place('foo'))
    for _ in range(rounds):
        call(place.path, old, new)
        if os.listdir(place.below) == [new]:
            old, new = new, old
        else:
            lost += 1
    return lost


@suite.test
def loops_of_every_kind_lose_none(mount):
    combinations = list(itertools.product(CALLS.items(), KINDS))
    all_rounds = LOOPED if mount.folds else LOOPED // 10
    rounds = scaled(all_rounds // len(combinations) + 1, 20)

    def some(part):
        lost = []
        for (name, call), kind in combinations[part::2]:
            place = Place(mount, f'{name}-{kind}')
            if mount.folds and kind != 'symlink':
                place.path = place.path.upper().replace(mount.path.upper(), mount.path)
            count = loop(place, call, kind, rounds)
            lost += [(name, kind, count)] * (count > 0)
        return lost
    children = [Child(some, part) for part in range(2)]
    expect_equal([child.wait() for child in children], [('result', [])] * 2, 'lost')
    tap.note(f'{rounds * len(combinations)} renames')


main(suite, fold_only)
