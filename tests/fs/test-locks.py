#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks between processes: POSIX, OFD and flock, whatever the spelling: as on the bare tree."""
import contextlib
import fcntl
import os
import signal
import time

import syscalls as sc
from compare import Comparisons

tests = Comparisons()
test = tests.test

READ, WRITE, NONE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


class Other:
    """Another process that opens the same file and does what it is told."""

    def __init__(self, path):
        self.path = path
        self.request_out, self.answer_in = None, None

    def __enter__(self):
        request_in, self.request_out = os.pipe()
        self.answer_in, answer_out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.request_out)
            os.close(self.answer_in)
            self._serve(request_in, answer_out)
        os.close(request_in)
        os.close(answer_out)
        return self

    def _serve(self, request_in, answer_out):
        try:
            fd = os.open(self.path, os.O_RDWR)
            while request := os.read(request_in, 1000):
                try:
                    answer = repr(eval(request.decode(), {  # of this file's own strings only
                        'fd': fd, 'sc': sc, 'fcntl': fcntl, 'os': os, 'path': self.path}))
                except OSError as error:
                    answer = f'errno {error.errno}'
                os.write(answer_out, answer.encode())
        finally:
            os._exit(0)

    def send(self, expression):
        os.write(self.request_out, expression.encode())

    def answer(self):
        return os.read(self.answer_in, 1000).decode()

    def ask(self, expression):
        self.send(expression)
        return self.answer()

    def __exit__(self, *_):
        for fd in (self.request_out, self.answer_in):
            with contextlib.suppress(OSError):
                os.close(fd)
        os.waitpid(self.pid, 0)


def setlk(fd, kind, start=0, length=0):
    sc.lock(fd, fcntl.F_SETLK, kind, start, length)


def blocked(t, what, other, expression, release):
    """EXPRESSION must wait in the other process until RELEASE() is called here."""
    other.send(expression)
    time.sleep(0.1)
    started = time.monotonic()
    release()
    t.record(what, (other.answer(), time.monotonic() - started < 5))


def prepare(t):
    t.become()
    t.put('file', b'0123456789')
    return t.open(t('file'), os.O_RDWR)


@test
def posix_locks_conflict_by_range(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        t.do(setlk, fd, WRITE, 10, 10)
        for start, length in ((0, 10), (20, 5), (15, 1), (0, 0), (19, 2)):
            t.record(f'{start}+{length}', other.ask(
                f'sc.lock(fd, fcntl.F_SETLK, {WRITE}, {start}, {length})'))
        t.do(setlk, fd, READ, 10, 10)
        t.record('read and read', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {READ}, 15, 1)'))
        t.record('read and write', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE}, 15, 1)'))


@test
def posix_getlk_names_the_holder(t):
    fd = prepare(t)
    t.do(setlk, fd, WRITE, 100, 50)
    me = os.getpid()
    with Other(t('file')) as other:
        t.record('holder', other.ask(f'[x if x != {me} else "me" for x in '
                                     f'sc.lock(fd, fcntl.F_GETLK, {READ}, 0, 0)]'))
        t.record('free', other.ask(f'sc.lock(fd, fcntl.F_GETLK, {READ}, 0, 100)[0]'))
        t.record('own', sc.lock(fd, fcntl.F_GETLK, WRITE, 0, 0)[0])


@test
def posix_locks_split_and_merge(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        t.do(setlk, fd, WRITE, 0, 100)
        t.do(setlk, fd, NONE, 40, 20)
        t.do(setlk, fd, READ, 70, 10)
        for at in (0, 39, 40, 59, 60, 70, 79, 80, 99, 100):
            t.record(f'at {at}', other.ask(f'sc.lock(fd, fcntl.F_GETLK, {WRITE}, {at}, 1)[:3]'))


@test
def posix_lock_waits_for_its_turn(t):
    fd = prepare(t)
    t.do(setlk, fd, WRITE)
    with Other(t('file')) as other:
        blocked(t, 'granted', other, f'sc.lock(fd, fcntl.F_SETLKW, {WRITE})[0]',
                lambda: setlk(fd, NONE))
        t.do(setlk, fd, WRITE)


@test
def posix_locks_end_with_any_close(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        t.do(setlk, fd, WRITE)
        os.close(os.open(t('file'), os.O_RDONLY))
        t.record('after close', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE})[0]'))


@test
def posix_locks_end_with_the_process(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        t.record('taken', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE})[0]'))
        t.do(setlk, fd, WRITE)
    t.do(setlk, fd, WRITE)


@test
def posix_locks_are_not_inherited(t):
    fd = prepare(t)
    t.do(setlk, fd, WRITE)
    pid = os.fork()
    if pid == 0:
        try:
            setlk(fd, WRITE)
            os._exit(1)
        except OSError:
            os._exit(0)
    t.record('child refused', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@test
def posix_deadlock_is_found(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        t.do(setlk, fd, WRITE, 0, 1)
        t.record('theirs', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE}, 1, 1)[0]'))
        other.send(f'sc.lock(fd, fcntl.F_SETLKW, {WRITE}, 0, 1)[0]')
        time.sleep(0.1)
        t.do(sc.lock, fd, fcntl.F_SETLKW, WRITE, 1, 1)
        setlk(fd, NONE, 0, 1)
        t.record('granted', other.answer())


@test
def waiting_lock_can_be_interrupted(t):
    fd = prepare(t)
    t.do(setlk, fd, WRITE)
    pid = os.fork()
    if pid == 0:
        other = os.open(t('file'), os.O_RDWR)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(1)
        with contextlib.suppress(OSError):
            sc.lock(other, fcntl.F_SETLKW, WRITE)
        os._exit(0)
    t.record('ended by', os.WTERMSIG(os.waitpid(pid, 0)[1]))
    t.do(setlk, fd, NONE)
    t.do(setlk, fd, WRITE)


@test
def posix_locks_need_the_right_mode(t):
    prepare(t)
    t.do(setlk, t.open(t('file'), os.O_RDONLY), WRITE)
    t.do(setlk, t.open(t('file'), os.O_WRONLY), READ)
    t.do(setlk, t.open(t('file'), os.O_RDONLY), READ)
    t.do(fcntl.lockf, t.open(t.root), fcntl.LOCK_SH | fcntl.LOCK_NB)


@test
def flock_excludes(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        for mine in (fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN):
            t.do(fcntl.flock, fd, mine | fcntl.LOCK_NB)
            for theirs in (fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN):
                t.record(f'{mine} {theirs}', other.ask(
                    f'fcntl.flock(fd, {theirs} | fcntl.LOCK_NB)'))


@test
def flock_between_two_opens_of_one_process(t):
    one = prepare(t)
    two = t.open(t('file'), os.O_RDONLY)
    t.do(fcntl.flock, one, fcntl.LOCK_EX)
    t.do(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    copy = os.dup(one)
    t.do(fcntl.flock, copy, fcntl.LOCK_SH | fcntl.LOCK_NB)
    t.do(fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(copy)


@test
def flock_waits_for_its_turn(t):
    fd = prepare(t)
    t.do(fcntl.flock, fd, fcntl.LOCK_EX)
    with Other(t('file')) as other:
        blocked(t, 'granted', other, 'fcntl.flock(fd, fcntl.LOCK_EX)',
                lambda: fcntl.flock(fd, fcntl.LOCK_UN))


@test
def flock_ends_with_the_last_close(t):
    fd = prepare(t)
    t.do(fcntl.flock, fd, fcntl.LOCK_EX)
    copy = os.dup(fd)
    with Other(t('file')) as other:
        os.close(fd)
        t.cleanups.remove(fd)
        t.record('one left', other.ask('fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)'))
        os.close(copy)
        t.record('none left', other.ask('fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)'))


@test
def flock_on_a_directory(t):
    t.become()
    t.folder('dir')
    one, two = t.open(t('dir')), t.open(t('dir'))
    t.do(fcntl.flock, one, fcntl.LOCK_EX | fcntl.LOCK_NB)
    t.do(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)


@test
def flock_and_posix_do_not_meet(t):
    fd = prepare(t)
    with Other(t('file')) as other:
        t.do(fcntl.flock, fd, fcntl.LOCK_EX)
        t.record('posix', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE})[0]'))


@test
def ofd_locks_belong_to_the_open_file(t):
    one = prepare(t)
    two = t.open(t('file'), os.O_RDWR)
    t.do(sc.lock, one, sc.F_OFD_SETLK, WRITE, 0, 10)
    t.do(sc.lock, two, sc.F_OFD_SETLK, WRITE, 5, 10)
    t.do(sc.lock, two, sc.F_OFD_SETLK, WRITE, 10, 10)
    t.record('holder', sc.lock(two, sc.F_OFD_GETLK, WRITE, 0, 5)[0])
    os.close(os.open(t('file'), os.O_RDONLY))
    t.do(sc.lock, two, sc.F_OFD_SETLK, WRITE, 5, 1)
    with Other(t('file')) as other:
        t.record('other process', other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE}, 0, 1)'))


@test
def ofd_and_posix_meet(t):
    fd = prepare(t)
    t.do(sc.lock, fd, sc.F_OFD_SETLK, WRITE)
    t.do(setlk, t.open(t('file'), os.O_RDWR), WRITE)


@test
def ofd_lock_waits_for_its_turn(t):
    fd = prepare(t)
    t.do(sc.lock, fd, sc.F_OFD_SETLK, WRITE)
    with Other(t('file')) as other:
        blocked(t, 'granted', other, f'sc.lock(fd, sc.F_OFD_SETLKW, {WRITE})[0]',
                lambda: sc.lock(fd, sc.F_OFD_SETLK, NONE))


@test
def locks_follow_the_inode_through_rename_and_link(t):
    fd = prepare(t)
    os.link(t('file'), t('link'))
    t.do(setlk, fd, WRITE)
    os.rename(t('file'), t.new('moved'))
    for name in ('link', 'moved'):
        with Other(t(name)) as other:
            t.record(name, other.ask(f'sc.lock(fd, fcntl.F_SETLK, {WRITE})'))


@test
def leases_are_granted_or_refused_alike(t):
    fd = prepare(t)
    os.close(fd)
    t.cleanups.remove(fd)
    reader = t.open(t('file'))
    t.do(fcntl.fcntl, reader, fcntl.F_SETLEASE, READ)
    t.do(fcntl.fcntl, reader, fcntl.F_SETLEASE, NONE)


tests.main()
