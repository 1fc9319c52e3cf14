#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree, the mount or the daemon are pulled from under running programs: everything moves behind
the mount, file systems come and go, reading fails, the daemon stops, ends or dies under load.  No
answer is ever wrong, an error never becomes "absent", and nothing hangs."""
import errno
import multiprocessing
import os
import random
import signal
import subprocess
import time

import mounted
import tap
from mounted import Area, Mount
from tap import Failure, expect, expect_equal, scaled

NO_CACHE = 'attr_timeout=0,entry_timeout=0'
ANSWER_S = 20
suite = tap.Suite()


def make(*paths):
    for path in paths:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def outcome(function, *args, **kwargs):
    """'done', or the name of the error."""
    try:
        function(*args, **kwargs)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]


def respell(name, rng):
    return ''.join(rng.choice((c.upper(), c.lower())) for c in name)


class Load:
    """Processes that change a directory until they are told to stop, or the mount ends."""

    NAMES = ('alpha', 'beta', 'gamma', 'delta', 'ärger')

    def __init__(self, top, processes=4):
        self.top, self.stop = top, multiprocessing.Event()
        self.changes = multiprocessing.Value('L', 0)
        self.processes = [multiprocessing.Process(target=self.work, args=(n,))
                          for n in range(processes)]

    def work(self, number):
        rng = random.Random(number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while not self.stop.is_set():
            one, two = (os.path.join(self.top, respell(rng.choice(self.NAMES), rng))
                        for _ in range(2))
            action = rng.choice((make, os.mkdir, os.unlink, os.rmdir, os.listdir,
                                 lambda path, to=two: os.rename(path, to)))
            if outcome(action, one) == 'done':
                self.changes.value += 1

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def end(self):
        self.stop.set()
        for process in self.processes:
            process.join(ANSWER_S)
            if process.is_alive():
                raise Failure('a process of the load hangs')

    def __exit__(self, *_):
        self.stop.set()
        for process in self.processes:
            process.join(ANSWER_S)
            if process.is_alive():
                process.kill()


def expect_no_doubles(source):
    for where, folders, files in os.walk(source):
        folded = [name.upper() for name in folders + files]
        expect_equal(len(set(folded)), len(folded), f'{where}: {sorted(folders + files)}')


class Behind:
    """Calls FUNCTION again and again in a process, until the block ends."""

    def __init__(self, function):
        self.stop = multiprocessing.Event()
        self.rounds = multiprocessing.Value('L', 0)
        self.process = multiprocessing.Process(target=self.work, args=(function,))

    def work(self, function):
        while not self.stop.is_set():
            function()
            self.rounds.value += 1

    def __enter__(self):
        self.process.start()
        while self.rounds.value == 0:
            time.sleep(0.001)
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        self.process.join()
        if kind is None:
            expect_equal(self.process.exitcode, 0, 'status of the process behind the mount')


@suite.test
def name_that_changes_its_case_all_the_time_is_always_there():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        below, through = mount.source, mount.path
        make(os.path.join(below, 'foo'), *(os.path.join(below, f'other-{n}') for n in range(300)))

        def flip():
            os.rename(os.path.join(below, 'foo'), os.path.join(below, 'FOO'))
            os.rename(os.path.join(below, 'FOO'), os.path.join(below, 'foo'))
        end = time.monotonic() + scaled(5, 1)
        with Behind(flip):
            while time.monotonic() < end:
                for name, want in (('foo', 'done'), ('Foo', 'done'), ('fOO', 'done'),
                                   ('absent', 'ENOENT')):
                    expect_equal(outcome(os.lstat, os.path.join(through, name)), want, name)


@suite.test
def name_that_changes_its_case_is_there_for_every_operation():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        below, through = mount.source, mount.path
        make(*(os.path.join(below, f'other-{n}') for n in range(10000)))  # several getdents

        def flip():
            for one, two in (('foo', 'FOO'), ('FOO', 'foo')):
                outcome(os.rename, os.path.join(below, one), os.path.join(below, two))
        end, seen = time.monotonic() + scaled(5, 1), set()
        with Behind(flip):
            while time.monotonic() < end:
                made, path, other = (os.path.join(through, n) for n in ('foo', 'fOo', 'Other'))
                for step, action, *args in (
                        ('make', make, made), ('make again', make, path),
                        ('stat', os.lstat, path), ('move', os.rename, path, other),
                        ('stat moved', os.lstat, path), ('move back', os.rename, other, made),
                        ('stat again', os.lstat, path), ('unlink', os.unlink, path)):
                    seen.add((step, outcome(action, *args)))
        expect_equal(seen, {('make', 'done'), ('make again', 'EEXIST'), ('stat', 'done'),
                            ('move', 'done'), ('stat moved', 'ENOENT'), ('move back', 'done'),
                            ('stat again', 'done'), ('unlink', 'done')})
        expect_equal([n for n in os.listdir(below) if not n.startswith('other-')], [])


@suite.test
def changes_behind_cost_no_scan():
    with Area('ext4') as area:
        trace = os.path.join(area.top, 'trace')
        mount = Mount(area.dir('source'))
        mount.wrapper = [mounted.tool('strace'), '-f', '-y', '-e', 'trace=getdents64', '-o', trace,
                         '-E', 'ASAN_OPTIONS=' + os.environ.get('ASAN_OPTIONS', '') +
                         ':detect_leaks=0']
        make(*(os.path.join(mount.source, f'File-{n}') for n in range(10000)))
        try:
            mount.start()
            for n in range(100):
                expect_equal(outcome(os.lstat, os.path.join(mount.path, f'nEW-{n}')), 'ENOENT')
                make(os.path.join(mount.source, f'New-{n}'))
                expect_equal(outcome(os.lstat, os.path.join(mount.path, f'nEW-{n}')), 'done')
                os.unlink(os.path.join(mount.source, f'New-{n}'))
            mount.stop()
            with open(trace, encoding='utf-8') as file:
                read = [int(line.rsplit('=', 1)[1]) for line in file if 'getdents64(' in line]
            # 10,000 entries of 32 bytes once; for each change at most one read of one entry.
            expect(sum(read) > 10000 * 32, f'{sum(read)} bytes of entries: nothing was read')
            expect(sum(read) < 10000 * 32 * 2, f'{sum(read)} bytes of entries read')
        finally:
            mount.remove()


@suite.test
def directory_that_never_stands_still_is_answered():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        below, through = mount.source, mount.path
        make(*(os.path.join(below, f'Stable-{n}') for n in range(2000)))

        def flicker():
            make(os.path.join(below, 'flicker'))
            os.unlink(os.path.join(below, 'flicker'))
        end = time.monotonic() + scaled(5, 1)
        asked = 0
        with Behind(flicker):
            while time.monotonic() < end:
                asked += 1
                name = f'sTABLE-{asked % 2000}'
                expect_equal(outcome(os.lstat, os.path.join(through, name)), 'done', name)
                expect_equal(outcome(os.lstat, os.path.join(through, 'absent')), 'ENOENT')
        expect(asked > 10, f'only {asked} answers')


@suite.test
def names_made_behind_while_the_mount_changes_are_found():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        for number in range(scaled(8, 2)):
            below, through = (os.path.join(top, f'Dir-{number}')
                              for top in (mount.source, mount.path))
            os.mkdir(below)
            with Load(through) as load:
                for n in range(100):
                    make(os.path.join(below, f'Behind-{n}'))
                    time.sleep(0.002)
                load.end()
            for n in range(100):
                for name in (f'Behind-{n}', f'bEHIND-{n}'):
                    expect_equal(outcome(os.lstat, os.path.join(through, name)), 'done', name)
            expect(load.changes.value > 100, 'the load did not change much')
            expect_no_doubles(below)


@suite.test
def hundred_thousand_spellings_of_one_name():
    base, count = 'abcdefghijklmnopqrst', scaled(100000, 5000)

    def spelling(number):
        return ''.join(c.upper() if number >> n & 1 else c for n, c in enumerate(base))
    with Area('ext4', 400) as area, Mount(area.dir('source')) as mount:
        below, through = (os.path.join(top, 'd') for top in (mount.source, mount.path))
        os.mkdir(below)
        make(*(os.path.join(below, spelling(n)) for n in range(count)))
        smallest = min(spelling(n) for n in range(count))
        for name, on_disk in ((spelling(5), spelling(5)), (base.upper(), smallest),
                              (spelling(count + 1), smallest)):
            real = os.getxattr(through, 'glusterfs.get_real_filename:' + name)
            expect_equal(real, on_disk.encode() + b'\0', name)
            expect_equal(os.lstat(os.path.join(through, name)).st_ino,
                         os.lstat(os.path.join(below, on_disk)).st_ino, name)
        expect_equal(outcome(os.lstat, os.path.join(through, base + 'x')), 'ENOENT')
        expect_equal(sorted(os.listdir(through)), sorted(os.listdir(below)))
        left = sorted(spelling(n) for n in range(count))
        for n in range(scaled(500, 50)):  # a spelling that is not there removes the smallest
            os.unlink(os.path.join(through, spelling(count + n)))
            left.pop(0)
        expect_equal(sorted(os.listdir(below)), left)
        make(os.path.join(below, 'other'))
        started = time.monotonic()
        expect_equal(outcome(os.lstat, os.path.join(through, 'OTHER')), 'done')
        expect(time.monotonic() - started < 5, 'one scan took seconds')


@suite.test
def four_thousand_levels():
    with Area('tmpfs') as area, Mount(area.dir('source')) as mount:
        here = os.open(mount.path, os.O_PATH)
        for level in range(scaled(4000, 500)):
            os.mkdir('Dd', dir_fd=here)
            below = os.open(('dd', 'DD', 'dD')[level % 3], os.O_PATH, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open('File', os.O_CREAT, dir_fd=here))
        expect_equal(outcome(os.lstat, 'FILE', dir_fd=here), 'done')
        os.close(here)
        here = os.open(mount.path, os.O_PATH)
        for level in range(scaled(4000, 500)):
            below = os.open(('DD', 'dD', 'dd')[level % 3], os.O_PATH, dir_fd=here)
            os.close(here)
            here = below
        expect_equal(outcome(os.lstat, 'fILE', dir_fd=here), 'done')
        os.close(here)
        mounted.run('rm', '-rf', os.path.join(mount.path, 'DD'))
        expect_equal(os.listdir(mount.source), [])


@suite.test
def directories_moved_behind_are_followed():
    with Area('ext4') as area, Mount(area.dir('source'), NO_CACHE) as mount:
        below, through = mount.source, mount.path
        os.makedirs(os.path.join(below, 'a', 'b', 'c'))
        make(os.path.join(below, 'a', 'b', 'c', 'File'))
        inner = os.open(os.path.join(through, 'A', 'B'), os.O_RDONLY)
        os.rename(os.path.join(below, 'a', 'b'), os.path.join(below, 'b'))
        os.rename(os.path.join(below, 'a'), os.path.join(below, 'b', 'a'))
        expect_equal(outcome(os.lstat, 'C/FILE', dir_fd=inner), 'done', 'from within')
        expect_equal(sorted(os.listdir(inner)), ['a', 'c'])
        for path, want in (('b/c/file', 'done'), ('B/A', 'done'), ('a', 'ENOENT'),
                           ('b/a/b', 'ENOENT')):
            expect_equal(outcome(os.lstat, os.path.join(through, path)), want, path)
        os.rename(os.path.join(through, 'B', 'A'), os.path.join(through, 'A2'))
        expect_equal(sorted(os.listdir(below)), ['A2', 'b'])
        os.close(inner)


@suite.test
def directories_moved_around_all_the_time():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        below, through = mount.source, mount.path
        os.makedirs(os.path.join(below, 'a', 'b', 'c'))
        make(os.path.join(below, 'a', 'b', 'c', 'File'))
        moves = (('a/b', 'b'), ('a', 'b/a'), ('b/a', 'a'), ('b', 'a/b'), ('a', 'x'), ('x', 'a'))

        def shuffle():
            for old, new in moves:
                outcome(os.rename, os.path.join(below, old), os.path.join(below, new))
        end, seen = time.monotonic() + scaled(6, 1), set()
        with Behind(shuffle):
            while time.monotonic() < end:
                for path in ('A/B/C/FILE', 'B/c/file', 'x/b/C', 'B/A'):
                    seen.add(outcome(os.lstat, os.path.join(through, path)))
                outcome(os.rename, os.path.join(through, 'A'), os.path.join(through, 'b', 'A'))
                outcome(os.rename, os.path.join(through, 'b'), os.path.join(through, 'A', 'b'))
        expect(seen <= {'done', 'ENOENT', 'ELOOP', 'ESTALE'}, seen)
        time.sleep(1.1)  # names of directories are cached for a second
        found = [os.path.relpath(os.path.join(where, 'File'), below)
                 for where, _, files in os.walk(below) if 'File' in files]
        expect_equal(len(found), 1)
        expect_equal(outcome(os.lstat, os.path.join(through, found[0].upper())), 'done', found)


@suite.test
def source_moved_and_removed():
    with Area('ext4') as area, Mount(area.dir('source'), NO_CACHE) as mount:
        os.mkdir(os.path.join(mount.source, 'Dir'))
        moved = mount.source + '-moved'
        os.rename(mount.source, moved)
        make(os.path.join(moved, 'Dir', 'File'))
        expect_equal(outcome(os.lstat, os.path.join(mount.path, 'DIR', 'FILE')), 'done')
        mounted.run('rm', '-r', moved)
        expect_equal(os.listdir(mount.path), [])
        for action in (os.mkdir, make, os.lstat, os.unlink):
            expect_equal(outcome(action, os.path.join(mount.path, 'dir')), 'ENOENT')
        os.statvfs(mount.path)


def over_and_under(kind):
    """A file system comes over a directory that is in use, and goes again."""
    with Area('ext4') as area, Area(kind) as other, \
            Mount(area.dir('source'), NO_CACHE) as mount:
        below, through = (os.path.join(top, 'Sub') for top in (mount.source, mount.path))
        os.mkdir(below)
        make(os.path.join(below, 'Under'), os.path.join(other.path, 'Over'))
        inner = os.open(through, os.O_RDONLY)
        expect_equal(outcome(os.lstat, os.path.join(through, 'UNDER')), 'done')
        mounted.run('mount', '--bind', other.path, below)
        try:
            for name, want in (('OVER', 'done'), ('UNDER', 'ENOENT')):
                expect_equal(outcome(os.lstat, os.path.join(through, name)), want, name)
            expect_equal(outcome(os.lstat, 'UNDER', dir_fd=inner), 'done', 'below the mount')
            make(os.path.join(through, 'New'))
            expect('New' in os.listdir(other.path), 'made in the wrong place')
            expect_equal(outcome(os.rename, os.path.join(through, 'NEW'),
                                 os.path.join(mount.path, 'new')), 'EXDEV')
            kept = os.open(os.path.join(through, 'new'), os.O_RDWR)
        finally:
            mounted.run('umount', '-l', below)
        os.write(kept, b'x')
        for name, want in (('OVER', 'ENOENT'), ('UNDER', 'done')):
            expect_equal(outcome(os.lstat, os.path.join(through, name)), want, name)
        os.close(kept)
        os.close(inner)


@suite.test
def file_system_mounted_over_a_directory_in_use():
    for kind in ('tmpfs', 'xfs'):
        over_and_under(kind)


@suite.test
def subvolume_deleted_and_made_again():
    btrfs = mounted.tool('btrfs')
    with Area('btrfs') as area, Mount(area.dir('source'), NO_CACHE) as mount:
        below, through = (os.path.join(top, 'Vol') for top in (mount.source, mount.path))
        for name in ('F', 'G'):
            mounted.run(btrfs, 'subvolume', 'create', below)
            make(os.path.join(below, name))
            expect_equal(outcome(os.lstat, os.path.join(mount.path, 'VOL', name.lower())), 'done')
            kept = os.open(os.path.join(through, name), os.O_RDONLY)
            mounted.run(btrfs, 'subvolume', 'delete', below)
            expect_equal(outcome(os.lstat, os.path.join(mount.path, 'VOL', name)), 'ENOENT')
            os.fstat(kept)
            os.close(kept)


@suite.test
def error_of_the_tree_is_never_absence():
    with Area('dir') as area:
        image, top = os.path.join(area.top, 'small-image'), area.dir('top')
        with open(image, 'wb') as file:
            file.truncate(64 << 20)
        mounted.run(mounted.tool('mkfs.ext4'), '-q', image)
        mounted.run('mount', '-o', 'loop', image, top)
        source = os.path.join(top, 'source')
        for name in ('known', 'unknown'):
            os.makedirs(os.path.join(source, name))
            make(*(os.path.join(source, name, f'File-{n}') for n in range(1000)))
        mounted.run('umount', top)
        mounted.run('mount', '-o', 'loop', image, top)
        with Mount(source, NO_CACHE) as mount:
            expect_equal(outcome(os.lstat, os.path.join(mount.path, 'KNOWN', 'fILE-1')), 'done')
            os.lstat(os.path.join(mount.path, 'unknown'))
            os.truncate(image, 4096)  # now nothing can be read any more
            with open('/proc/sys/vm/drop_caches', 'w', encoding='ascii') as file:
                file.write('3')
            if outcome(os.listdir, os.path.join(source, 'unknown')) != 'EIO':
                raise tap.Skip('the tree itself still answers')
            for path in ('unknown/fILE-1', 'unknown/File-2', 'unknown/absent'):
                expect_equal(outcome(os.lstat, os.path.join(mount.path, path)), 'EIO', path)
                expect(outcome(make, os.path.join(mount.path, path)) in ('EIO', 'EEXIST'), path)
                asked = 'glusterfs.get_real_filename:' + os.path.basename(path)
                expect(outcome(os.getxattr, os.path.join(mount.path, 'unknown'), asked)
                       in ('EIO', 'EOPNOTSUPP', 'ENOTSUP'), path)
            expect_equal(outcome(os.listdir, os.path.join(mount.path, 'unknown')), 'EIO')


@suite.test
def two_daemons_over_one_tree_see_each_other():
    with Area('ext4') as area, Mount(area.dir('source'), NO_CACHE) as one, \
            Mount(one.source, NO_CACHE) as two:
        rng = random.Random(5)
        for step in range(scaled(3000, 300)):
            here, there = rng.sample((one.path, two.path), 2)
            name = rng.choice(('alpha', 'beta', 'gamma'))
            there_already = any(n.lower() == name for n in os.listdir(one.source))
            expect_equal(outcome(make, os.path.join(here, respell(name, rng))),
                         'EEXIST' if there_already else 'done', f'step {step}')
            expect_equal(outcome(os.lstat, os.path.join(there, respell(name, rng))), 'done')
            if rng.random() < .5:
                os.unlink(os.path.join(there, respell(name, rng)))
                expect_equal(outcome(os.lstat, os.path.join(here, respell(name, rng))), 'ENOENT')


@suite.test
def removal_while_others_list():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        for _ in range(scaled(3, 1)):
            os.mkdir(os.path.join(mount.source, 'Full'))
            make(*(os.path.join(mount.source, 'Full', f'File-{n}') for n in range(3000)))
            listers = [subprocess.Popen(['ls', '-l', os.path.join(mount.path, 'FULL')],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                       for _ in range(3)]
            mounted.run('rm', '-r', os.path.join(mount.path, 'full'))
            expect(not os.path.exists(os.path.join(mount.source, 'Full')), 'still there')
            for lister in listers:
                lister.wait(ANSWER_S)


def stress(options):
    with Area('ext4') as area, Mount(area.dir('source'), options) as mount:
        end = time.monotonic() + scaled(4, 1)
        with Load(mount.path, 8) as load:
            while time.monotonic() < end:
                with open('/proc/sys/vm/drop_caches', 'w', encoding='ascii') as file:
                    file.write('2')
                time.sleep(0.05)
            load.end()
        expect_no_doubles(mount.source)
        expect(load.changes.value > 100, f'{load.changes.value} changes')


@suite.test
def one_thread_serves_without_deadlock():
    for options in ('threads=1', 'threads=1,passthrough=off,lookup=exact',
                    'threads=1,without=handles'):
        stress(options)


def stop_all_threads(pid):
    os.kill(pid, signal.SIGSTOP)
    for task in os.listdir(f'/proc/{pid}/task'):
        for _ in range(1000):
            with open(f'/proc/{pid}/task/{task}/stat', encoding='ascii') as file:
                if file.read().rsplit(')', 1)[1].split()[0] == 'T':
                    break
            time.sleep(0.001)


@suite.test
def stopped_daemon_does_not_hold_programs_that_are_killed():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        make(os.path.join(mount.source, 'File'))
        stop_all_threads(mount.pid())
        try:
            waiting = [subprocess.Popen(['stat', os.path.join(mount.path, f'x{n}')],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                       for n in range(10)]
            time.sleep(0.3)
            expect_equal([w.poll() for w in waiting], [None] * 10, 'all wait')
            for n, process in enumerate(waiting):
                process.send_signal(signal.SIGINT if n % 2 else signal.SIGKILL)
            for process in waiting:
                process.wait(ANSWER_S)
        finally:
            os.kill(mount.pid(), signal.SIGCONT)
        expect_equal(os.listdir(mount.path), ['File'])
        expect_equal(outcome(os.lstat, os.path.join(mount.path, 'FILE')), 'done')


def ends_in_order(signal_number):
    with Area('ext4') as area:
        mount = Mount(area.dir('source'), index=os.path.join(area.top, 'index'))
        quiet = os.path.join(mount.source, 'Quiet')
        os.mkdir(quiet)
        make(*(os.path.join(quiet, f'File-{n}') for n in range(50)))
        try:
            mount.start()
            os.lstat(os.path.join(mount.path, 'quiet', 'FILE-1'))
            with Load(mount.path) as load:
                time.sleep(0.7)
                mount.daemon.send_signal(signal_number)
                expect_equal(mount.daemon.wait(ANSWER_S), 0, 'status of the daemon')
                expect(not mounted.mount_at(mount.path), 'the mount is still there')
                expect_equal(mount.log(), '')
                load.stop.set()  # those that go on work in the empty mount point
            mounted.run('find', mount.path, '-mindepth', '1', '-delete')
            expect_no_doubles(mount.source)
            mount.daemon, mount.wrapper = None, [
                mounted.tool('strace'), '-f', '-y', '-e', 'trace=getdents64', '-o',
                os.path.join(area.top, 'trace'), '-E',  # no leaks are looked for while traced
                'ASAN_OPTIONS=' + os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0']
            mount.start()
            for n in range(60):
                want = 'done' if n < 50 else 'ENOENT'
                path = os.path.join(mount.path, 'quiet', f'fILE-{n}')
                expect_equal(outcome(os.lstat, path), want, path)
            mount.stop()
            with open(os.path.join(area.top, 'trace'), encoding='ascii') as file:
                expect('/Quiet>' not in file.read(), 'read again after an end in order')
        finally:
            mount.remove()


@suite.test
def signal_under_load_ends_in_order():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        ends_in_order(number)


@suite.test
def lazy_umount_under_load_goes_on_for_those_inside():
    with Area('ext4') as area:
        mount = Mount(area.dir('source'))
        try:
            mount.start()
            inside = os.open(mount.path, os.O_RDONLY | os.O_DIRECTORY)
            busy = subprocess.run(['umount', mount.path], stderr=subprocess.DEVNULL, check=False)
            expect(busy.returncode != 0, 'umount of a mount in use')
            mounted.run('umount', '-l', mount.path)
            os.mkdir('Dir', dir_fd=inside)
            expect_equal(outcome(os.mkdir, 'DIR', dir_fd=inside), 'EEXIST')
            expect(mount.daemon.poll() is None, 'the daemon left those inside')
            os.close(inside)
            expect_equal(mount.daemon.wait(ANSWER_S), 0, 'status of the daemon')
            mount.daemon = None
            expect_equal(os.listdir(mount.source), ['Dir'])
        finally:
            mount.remove()


@suite.test
def mount_in_place_comes_back_after_a_crash():
    with Area('ext4') as area:
        source = area.dir('source')
        os.mkdir(os.path.join(source, 'Sub'))
        mount = Mount(source)
        mount.path = source
        try:
            for spelling in ('FILE-0', 'file-0'):
                mount.start()
                outcome(make, os.path.join(source, 'SUB', 'File-0'))
                expect_equal(outcome(make, os.path.join(source, 'sub', spelling)), 'EEXIST')
                os.kill(mount.pid(), signal.SIGKILL)
                mount.daemon.wait()
                mount.daemon = None
                expect_equal(outcome(os.listdir, source), 'ENOTCONN')
                mounted.run('umount', source)
            expect_equal(os.listdir(os.path.join(source, 'Sub')), ['File-0'])
            mount.start()
            expect_equal(outcome(os.lstat, os.path.join(source, 'sub', 'fILE-0')), 'done')
            mount.stop()
        finally:
            mount.remove()


mounted.run_each(suite)
