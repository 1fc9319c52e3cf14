#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The case-only rename and programs that make it hard to see what they rename: their paths lie in
memory that nobody answers for, or change meanwhile, or end where memory does; they are killed, or
call in a way that cannot be seen.  The rename may then do nothing; nothing else may suffer."""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

import mounted
import tap
from caseonly import CHILD_S, Child, Place, libc, make, odd_calls, outcome
from mounted import Area, Mount
from tap import Failure, Skip, expect, expect_equal, scaled

PAGE = mmap.PAGESIZE
DELAY_S = 0.004  # less than foldfs waits for somebody's memory
UNSEEN = 'what a program wants to rename cannot always be seen'
ALICE, BOB = 60001, 60002
RIVALS = 40  # more than the daemon has threads
SHORT_DELAY_S = 0.04  # for who comes after them, on a busy machine
HOSTILE_USERS = 20  # more than foldfs has threads for
SYS = {'x86_64': {'rename': 82, 'userfaultfd': 323, 'setresuid': 117},
       }.get(os.uname().machine, {'rename': None, 'userfaultfd': 282, 'setresuid': 147})
UFFDIO_API, UFFDIO_REGISTER, UFFD_API = 0xC018AA3F, 0xC020AA00, 0xAA
UFFDIO_REGISTER_MODE_MISSING = 1
MADV_DONTNEED = 4
MAP_ANONYMOUS_PRIVATE = 0x22
PROT_RW = mmap.PROT_READ | mmap.PROT_WRITE
libc.mmap.restype = ctypes.c_void_p
libc.syscall.restype = ctypes.c_long
suite = tap.Suite()


def check(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


class Memory:
    """Pages of this process, by address."""

    def __init__(self, pages=1, fd=-1):
        flags = mmap.MAP_SHARED if fd >= 0 else MAP_ANONYMOUS_PRIVATE
        self.size = pages * PAGE
        self.address = libc.mmap(None, ctypes.c_size_t(self.size), PROT_RW, flags, fd,
                                 ctypes.c_long(0))
        expect(self.address not in (None, ctypes.c_void_p(-1).value), 'mmap')

    def put(self, text, offset=0):
        """Writes a path there; returns its address."""
        ctypes.memmove(self.address + offset, text.encode() + b'\0', len(text.encode()) + 1)
        return self.address + offset

    def drop(self):
        check(libc.madvise(ctypes.c_void_p(self.address), ctypes.c_size_t(self.size),
                           MADV_DONTNEED))

    def never_answer(self):
        """From now on who touches a page that is not there waits until this process ends."""
        fd = libc.syscall(SYS['userfaultfd'], os.O_CLOEXEC)
        if fd < 0:
            raise Skip('no userfaultfd')
        fcntl.ioctl(fd, UFFDIO_API, struct.pack('QQQ', UFFD_API, 0, 0))
        fcntl.ioctl(fd, UFFDIO_REGISTER, struct.pack('QQQQ', self.address, self.size,
                                                     UFFDIO_REGISTER_MODE_MISSING, 0))


def rename_at(old, new):
    """rename(2) of paths given by address."""
    if not SYS['rename']:
        raise Skip('the number of rename(2) is not known here')
    check(libc.syscall(SYS['rename'], ctypes.c_void_p(old), ctypes.c_void_p(new)))


class Caller(threading.Thread):
    """A thread that calls rename_at() as user UID."""

    def __init__(self, old, new, uid=0):
        super().__init__(daemon=True)
        self.old, self.new, self.uid, self.result = old, new, uid, None
        self.start()

    def run(self):
        libc.syscall(SYS['setresuid'], self.uid, self.uid, self.uid)  # this thread only
        try:
            rename_at(self.old, self.new)
            self.result = 0
        except OSError as error:
            self.result = error.errno

    def wait_until_it_waits(self):
        while self.native_id is None:
            time.sleep(0.001)
        path = f'/proc/self/task/{self.native_id}/syscall'
        for _ in range(5000):
            with open(path, encoding='ascii') as file:
                if file.read().split()[0] == str(SYS['rename']):
                    return
            time.sleep(0.001)
        raise Failure('the rename does not come to the daemon')

    def end(self):
        self.join(CHILD_S / 2)
        if self.is_alive():
            raise Failure('the rename hangs')
        return self.result


class Stopped:
    """The daemon does nothing in this block."""

    def __init__(self, mount):
        self.pid = mount.pid()

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def with_unanswered_path(place, uid, which, then):
    """Calls rename(foo, Foo) whose path number WHICH is gone when the daemon looks, and THEN."""
    paths = [Memory(), Memory()]
    old, new = (memory.put(place(name)) for memory, name in zip(paths, ('foo', 'Foo')))
    paths[which].never_answer()
    with Stopped(place.mount):
        caller = Caller(old, new, uid)
        caller.wait_until_it_waits()
        paths[which].drop()
    result = caller.end()
    return result, then()


def flip(place, old='bar', new='Bar', rounds=scaled(100, 50)):
    """Renames there and back.  How many were lost, and how long one took, at the median."""
    lost, took = 0, []
    for _ in range(rounds):
        started = time.monotonic()
        os.rename(place(old), place(new))
        took.append(time.monotonic() - started)
        if place.names() == [new]:
            old, new = new, old
        else:
            lost += 1
    return lost, statistics.median(took)


def look(place, rounds=scaled(200, 50)):
    """How long a look-up of another spelling takes, at the median."""
    took = []
    for number in range(rounds):
        started = time.monotonic()
        os.lstat(place(('bAr', 'baR')[number % 2]))
        took.append(time.monotonic() - started)
    return statistics.median(took)


def expect_undisturbed(place, uid, what, rounds=scaled(100, 50)):
    lost, took = outcome(flip, place, 'bar', 'Bar', rounds, uid=uid)
    expect_equal(lost, 0, f'renames lost, {what}')
    expect(took < DELAY_S, f'{what}: a rename took {took * 1000:.1f} ms')
    took = outcome(look, place, rounds, uid=uid)
    expect(took < DELAY_S, f'{what}: a look-up took {took * 1000:.1f} ms')


@suite.test
def path_that_nobody_answers_for_delays_nobody(mount):
    for which in (0, 1):
        hostile, other = Place(mount, f'hostile-{which}'), Place(mount, f'other-{which}')
        make(hostile.below + '/foo')
        make(other.below + '/bar')

        def meanwhile():
            expect_undisturbed(other, BOB, 'another user')
            return outcome(look, other, uid=ALICE), outcome(flip, other, uid=ALICE)[1]
        result, own = outcome(with_unanswered_path, hostile, ALICE, which, meanwhile)
        expect(result == 0, f'the rename itself gave {result}')
        expect(max(own) < DELAY_S, f'the same user: {own}')
        expect(hostile.names() in (['foo'], ['Foo']), hostile.names())
        deadline = time.monotonic() + 5  # the process is gone: its user can rename again
        while outcome(flip, other, 'bar' if 'bar' in other.names() else 'Bar', 'bAR', 1,
                      uid=ALICE)[0]:
            expect(time.monotonic() < deadline, 'the user never can rename again')


@suite.test
def paths_of_many_users_that_nobody_answers_for_delay_nobody(mount):
    hostile, other = Place(mount, 'hostile'), Place(mount, 'other')
    make(hostile.below + '/foo')
    make(other.below + '/bar')

    def block_and_wait(uid):
        with_unanswered_path(hostile, uid, 1, lambda: os.write(write, b'x'))
        time.sleep(CHILD_S)
    read, write = os.pipe()
    children = []
    try:
        for number in range(HOSTILE_USERS):
            children.append(Child(block_and_wait, BOB + 1 + number))
            expect_equal(os.read(read, 1), b'x')
        expect_undisturbed(other, BOB, 'another user', 10)
    finally:
        for child in children:
            child.kill()
            child.wait()


@suite.test
def many_paths_at_once_that_nobody_answers_for_delay_nobody(mount):
    took = []
    for number in range(5):
        place = Place(mount, f'd{number}')
        make(place.below + '/bar')
        for rival in range(RIVALS):
            os.mkdir(place.below + f'/{rival}')
            make(place.below + f'/{rival}/foo')
            os.lstat(place(str(rival)))  # the kernel knows the way

        def block_all():
            callers, memories = [], []
            for rival in range(RIVALS):
                old, memory = Memory(), Memory()
                new = memory.put(place(str(rival), 'Foo'))
                memory.never_answer()
                callers.append(Caller(old.put(place(str(rival), 'foo')), new, ALICE))
                memories.append(memory)
            for caller, memory in zip(callers, memories):
                caller.wait_until_it_waits()
                memory.drop()
            os.write(blocked, b'x')
            time.sleep(CHILD_S)

        def look_up():
            os.write(looks, b'x')
            for _ in range(20):  # the later ones come after those of the others
                os.lstat(place('bAr'))
            return time.monotonic()
        pipe, blocked = os.pipe()
        look_pipe, looks = os.pipe()
        with Stopped(mount):
            hostile = Child(block_all)
            expect_equal(os.read(pipe, 1), b'x')
            other = Child(look_up, uid=BOB)
            expect_equal(os.read(look_pipe, 1), b'x')
            time.sleep(0.05)
            started = time.monotonic()
        took.append(other.wait()[1] - started)
        hostile.kill()
        hostile.wait()
        for fd in (pipe, blocked, look_pipe, looks):
            os.close(fd)
    expect(min(took) < SHORT_DELAY_S, f'the other waited {[round(t, 3) for t in took]} s')


@suite.test
def unmounting_waits_for_no_path_that_nobody_answers_for(_):
    # A leak checker stops all threads first, which those that wait for a page cannot be.
    no_leak_check = ['env', f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"]
    with Area('tmpfs') as area, Mount(area.dir('source'), wrapper=no_leak_check) as mount:
        place = Place(mount, 'd')
        make(place.below + '/foo')
        read, write = os.pipe()

        def then():
            os.write(write, b'x')
            time.sleep(CHILD_S)
        child = Child(with_unanswered_path, place, ALICE, 1, then)
        expect_equal(os.read(read, 1), b'x')
        started = time.monotonic()
        mount.stop()
        expect(time.monotonic() - started < 5, 'unmounting took long')
        child.kill()
        child.wait()


def in_a_file_of_the_mount(place, uid):
    """The new path is in a file of the mount itself, and not in memory when the daemon looks."""
    os.unlink(place('path'))
    with open(place('path'), 'xb') as file:
        file.write(place('Foo').encode().ljust(PAGE, b'\0'))
        os.fsync(file.fileno())
    fd = os.open(place('path'), os.O_RDWR)
    memory, old = Memory(fd=fd), Memory()
    with Stopped(place.mount):
        caller = Caller(old.put(place('foo')), memory.address, uid)
        caller.wait_until_it_waits()
        memory.drop()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    result = caller.end()
    os.close(fd)
    return result


@suite.test
def path_in_a_file_of_the_same_mount(_):
    for options in ('', 'passthrough=off', 'passthrough=off,threads=1'):
        with Area('tmpfs') as area, Mount(area.dir('source'), options) as mount:
            place = Place(mount, 'd')
            make(place.below + '/foo')
            make(place.below + '/path', place('Foo').encode().ljust(PAGE, b'\0'))
            expect_equal(outcome(in_a_file_of_the_mount, place, ALICE), 0, options)
            names = place.names()
            if options.endswith('threads=1'):  # who would have to read it waits for us
                expect(names in (['Foo', 'path'], ['foo', 'path']), names)
            else:
                expect_equal(names, ['Foo', 'path'], options)
            os.lstat(place('fOO'))


@suite.test
def path_that_changes_while_the_daemon_looks(mount):
    for changed, want in (('Foo', ['Foo']), ('FOO', ['foo']), ('Bar', ['foo']), ('', ['foo']),
                          ('x' * 3000, ['foo'])):
        place = Place(mount, f'changed-{changed[:3]}-{len(changed)}')
        make(place.below + '/foo')

        def change():
            old, new = Memory(), Memory()
            with Stopped(mount):
                caller = Caller(old.put(place('foo')), new.put(place('Foo')))
                caller.wait_until_it_waits()
                new.put(place(changed))
            return caller.end()
        expect_equal(outcome(change), 0, changed)
        expect_equal(place.names(), want, changed)


@suite.test
def path_that_changes_all_the_time(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')
    names = ('foo', 'Foo', 'fOo', 'FOO')

    def change_and_rename():
        rng, memory, stop = random.Random(1), Memory(), threading.Event()
        at = memory.put(place('foo')) + len(place('').encode())
        old = memory.put(place('foo'), PAGE // 2)

        def change():
            while not stop.is_set():
                ctypes.memmove(at, rng.choice(names).encode(), 3)
        threading.Thread(target=change, daemon=True).start()
        end, seen = time.monotonic() + scaled(3, 1), set()
        while time.monotonic() < end:
            try:
                rename_at(old, memory.address)
                seen.add(0)
            except OSError as error:
                seen.add(error.errno)
        stop.set()
        return seen

    def watch():
        end, rng = time.monotonic() + scaled(3, 1), random.Random(2)
        while time.monotonic() < end:
            os.lstat(place(rng.choice(names)))
    child, bystander = Child(change_and_rename), Child(watch)
    expect_equal(bystander.wait(), ('result', None), 'a process that only looks')
    kind, seen = child.wait()
    expect_equal(kind, 'result', seen)
    # A name torn between two, read twice, may look like a rename that it was not.
    expect(seen <= {0, errno.ENOENT}, seen)
    expect_equal(len(place.names()), 1, place.names())


@suite.test
def path_at_the_end_of_memory(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')

    def rename(old_offset, new_offset):
        memories = Memory(3), Memory(3)
        for memory in memories:  # the third page is not there
            check(libc.munmap(ctypes.c_void_p(memory.address + 2 * PAGE), ctypes.c_size_t(PAGE)))
        old, new = place('foo'), place('Foo')
        if 'Foo' in place.names():
            old, new = new, old
        rename_at(*(memory.put(path, 2 * PAGE - len(path) - 1 - offset) for memory, path, offset
                    in zip(memories, (old, new), (old_offset, new_offset))))
    for offsets, want in (((0, 0), 'Foo'), ((PAGE - 5, 0), 'foo'), ((0, PAGE - 5), 'Foo'),
                          ((PAGE - 1, PAGE - 1), 'foo'), ((PAGE - 20, PAGE - 30), 'Foo')):
        expect_equal(outcome(rename, *offsets), None, offsets)
        place.expect_names(want, what=offsets)


@suite.test
def addresses_that_lead_nowhere_give_efault(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')

    def rename(old, new):
        memory = Memory(2)
        check(libc.munmap(ctypes.c_void_p(memory.address + PAGE), ctypes.c_size_t(PAGE)))
        texts = {'foo': memory.put(place('foo')), 'Foo': memory.put(place('Foo'), PAGE // 2)}
        cut = memory.address + PAGE - 3
        ctypes.memmove(cut, b'Foo', 3)
        texts.update(null=0, kernel=0xFFFFFFFF80000000, cut=cut)
        rename_at(texts[old], texts[new])
    for pair in (('foo', 'null'), ('null', 'Foo'), ('foo', 'kernel'), ('foo', 'cut'),
                 ('cut', 'Foo')):
        expect_equal(outcome(rename, *pair), errno.EFAULT, pair)
    place.expect_names('foo')
    expect_equal(outcome(rename, 'foo', 'Foo'), None)
    place.expect_names('Foo')


@suite.test
def requester_killed_while_the_daemon_looks(mount):
    for number in range(scaled(20, 5)):
        place = Place(mount, f'killed-{number}')
        make(place.below + '/foo')
        read, write = os.pipe()

        def rename():
            old, new = Memory(), Memory()
            caller = Caller(old.put(place('foo')), new.put(place('Foo')))
            caller.wait_until_it_waits()
            os.write(write, b'x')
            caller.end()
        with Stopped(mount):
            child = Child(rename)
            expect_equal(os.read(read, 1), b'x')
            child.kill()
            time.sleep(0.002 * (number % 2))
        expect_equal(child.wait()[0], 'killed')
        os.close(read)
        os.close(write)
        expect(place.names() in (['foo'], ['Foo']), place.names())
        os.lstat(place('fOO'))
        os.rename(place('fOO'), place('FOO'))
        place.expect_names('FOO')


@suite.test
def requesters_killed_at_any_moment(mount):
    place, rng = Place(mount, 'd'), random.Random(5)
    make(place.below + '/foo')

    def forever():
        signal.alarm(CHILD_S)
        while True:
            os.rename(place('foo'), place('Foo'))
            os.rename(place('Foo'), place('foo'))
    for _ in range(scaled(60, 20)):
        child = Child(forever)
        time.sleep(rng.uniform(0.005, 0.03))
        child.kill()
        expect_equal(child.wait(), ('killed', signal.SIGKILL))
        expect(place.names() in (['foo'], ['Foo']), place.names())
        os.lstat(place('fOO'))


def call_oddly(how, old, new):
    result = odd_calls(how, old, new)
    if result is None:
        raise Skip(f'no rename by {how} here')
    return result


def expect_told_once(mount):
    said = [line for line in mount.log().splitlines() if UNSEEN in line]
    expect_equal(len(said), 1, f'lines in the log: {mount.log()}')


def unseen(how):
    with Area('tmpfs') as area, Mount(area.dir('source')) as mount:
        place = Place(mount, 'd')
        make(place.below + '/foo')
        for _ in range(10):
            expect_equal(call_oddly(how, place('foo'), place('Foo')), 0, how)
            expect(place.names() in (['foo'], ['Foo']), place.names())
            os.lstat(place('fOO'))
        if place.names() == ['foo']:
            expect_told_once(mount)
        os.rename(place('foo'), place('FOO'))  # who can be seen goes on renaming
        place.expect_names('FOO')
        expect_equal(call_oddly(how, place('foo'), place('bar')), 0, how)
        place.expect_names('bar')


def add_unseen_tests():
    for how in ('uring', 'sqpoll', 'int80'):
        def test(_, how=how):
            unseen(how)
        test.__name__ = f'rename_by_{how}_does_it_or_says_so_once'
        suite.test(test)


add_unseen_tests()


@suite.test
def rename_in_a_vfork_child(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')
    expect_equal(call_oddly('vfork', place('foo'), place('Foo')), 0)
    place.expect_names('Foo')


def unseen_from(wrapper, call):
    """The daemon, run by WRAPPER, cannot see what CALL does, or it can and does it."""
    with Area('tmpfs') as area:
        mount = Mount(area.dir('source'), wrapper=wrapper)
        mounted.run('mount', '--bind', mount.top, mount.top)
        mounted.run('mount', '--make-shared', mount.top)
        with mount:
            place = Place(mount, 'd')
            make(place.below + '/foo')
            for uid in (0, ALICE, 0):
                call(mount, os.rename, place('foo'), place('Foo'), uid)
                place.expect_names('foo')
            expect_told_once(mount)
            os.rename(place('foo'), place('bar'))
            place.expect_names('bar')


def here(_, function, old, new, uid):
    expect_equal(outcome(function, old, new, uid=uid), None)


def beside_the_daemon(mount, function, old, new, uid):
    """In the daemon's pid namespace."""
    def enter():
        fd = os.open(f'/proc/{mount.pid()}/ns/pid', os.O_RDONLY)
        check(libc.setns(fd, 0))
        return outcome(function, old, new, uid=uid)
    expect_equal(outcome(enter), None)


OTHER_NAMESPACE = ['unshare', '--pid', '--fork', '--kill-child']


@suite.test
def daemon_in_a_container_says_once_that_it_cannot_see_outside(_):
    unseen_from(OTHER_NAMESPACE + ['--mount', '--propagation', 'unchanged', '--mount-proc'], here)


@suite.test
def daemon_in_a_pid_namespace_says_once_that_it_cannot_see_outside(_):
    unseen_from(OTHER_NAMESPACE, here)


@suite.test
def daemon_with_the_proc_of_another_pid_namespace_says_once_that_it_cannot_see(_):
    unseen_from(OTHER_NAMESPACE, beside_the_daemon)


@suite.test
def daemon_that_may_not_trace_says_once_that_it_cannot_see(_):
    unseen_from(['setpriv', '--bounding-set', '-sys_ptrace', '--inh-caps', '-sys_ptrace'], here)


def flip_with_signals(place, rounds):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        return flip(place, rounds=rounds)[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0, 0)


@suite.test
def signals_lose_no_rename(mount):
    place = Place(mount, 'd')
    make(place.below + '/bar')
    expect_equal(outcome(flip_with_signals, place, scaled(5000, 1000)), 0, 'renames lost')


@suite.test
def busy_processors_lose_no_rename(mount):
    place = Place(mount, 'd')
    make(place.below + '/bar')
    hogs = [subprocess.Popen([sys.executable, '-c', 'while True: pass'])
            for _ in range(4 * os.cpu_count())]
    try:
        children = []
        for number in range(4):
            deep = Place(mount, f'd/deep{number}')
            for name in 'abcdef':
                deep.path, deep.below = deep.path + '/' + name, deep.below + '/' + name
                os.mkdir(deep.below)
            make(deep.below + '/bar')
            deep.path = deep.path.replace('/deep', '/DEEP')
            children.append(Child(flip, deep, 'bar', 'Bar', scaled(500, 100)))
        for child in children:
            expect_equal(child.wait()[1][0], 0, 'renames lost')
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@suite.test
def threads_that_map_memory_lose_no_rename(mount):
    place = Place(mount, 'd')
    make(place.below + '/bar')

    def with_mapping():
        stop = threading.Event()

        def keep_mapping():
            while not stop.is_set():
                memory = Memory(256)
                ctypes.memset(memory.address, 1, memory.size)
                libc.munmap(ctypes.c_void_p(memory.address), ctypes.c_size_t(memory.size))
        for _ in range(4):
            threading.Thread(target=keep_mapping, daemon=True).start()
        lost = flip(place, rounds=scaled(1000, 200))[0]
        stop.set()
        return lost
    expect_equal(outcome(with_mapping), 0, 'renames lost')


def main():
    word = tap.arguments().k

    def whole():
        mounted.need_foldfs()
        with Area('tmpfs') as area:
            for function in suite.tests:
                if word not in function.__name__:
                    continue

                def one():
                    with Mount(area.dir(function.__name__[:40])) as mount:
                        function(mount)
                tap.run_one(function.__name__, one)
    tap.run_one('hostile_tests_mount', whole)
    sys.exit(tap.status())


main()
