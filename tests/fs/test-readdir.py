#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listing a directory, also while it changes: every entry that is there all the time is seen once,
as on the bare tree."""
import os

import syscalls as sc
from compare import Comparisons
from tap import scaled

tests = Comparisons()
test = tests.test

MANY = scaled(1000, 300)
SMALL = 1024  # a buffer of a few entries, so that a listing takes many calls


def fill(t, folder, count=MANY, prefix='entry'):
    t.folder(folder)
    for number in range(count):
        os.close(os.open(t.new(folder, f'{prefix}-{number:06}'), os.O_CREAT | os.O_WRONLY))


def open_dir(t, name):
    return t.open(t(name), os.O_RDONLY | os.O_DIRECTORY)


def read_some(fd, least):
    entries = []
    while len(entries) < least and (chunk := sc.getdents(fd, SMALL)):
        entries += chunk
    return entries


def judge(t, what, names, all_the_time, at_times=()):
    """Records whether NAMES holds each entry at most once, all that were there all the time, and
    nothing that was never there."""
    t.record(what + ': doubled', sorted({n for n in names if names.count(n) > 1})
             if len(names) != len(set(names)) else [])
    t.record(what + ': lost', sorted(set(all_the_time) - set(names)))
    t.record(what + ': invented', sorted(set(names) - set(all_the_time) - set(at_times)))


@test
def all_entries_with_dots_types_and_numbers(t):
    t.become()
    fill(t, 'dir', 50)
    t.folder('dir/sub')
    os.symlink('x', t.new('dir', 'link'))
    os.mkfifo(t.new('dir', 'fifo'))
    entries = sc.read_all_entries(open_dir(t, 'dir'))
    t.record('entries', sorted((name, kind) for _, _, kind, name in entries))
    for ino, _, _, name in entries:
        if name not in (b'.', b'..'):
            t.record('inode', ino == os.lstat(t('dir', name)).st_ino)
    t.record('dot', [ino == os.stat(t('dir')).st_ino for ino, _, _, n in entries if n == b'.'])
    t.record('dot dot', [ino == os.stat(t.root).st_ino for ino, _, _, n in entries if n == b'..'])


@test
def empty_directory_has_two_dots(t):
    t.become()
    t.folder('dir')
    fd = open_dir(t, 'dir')
    t.record('entries', sorted(name for _, _, _, name in sc.read_all_entries(fd)))
    t.record('at the end', sc.getdents(fd))


@test
def buffer_sizes_do_not_matter(t):
    t.become()
    fill(t, 'dir', 200)
    want = sorted(os.listdir(t('dir')))
    for size in (280, 300, 512, 4096, 65536, 1 << 20):
        fd = open_dir(t, 'dir')
        t.record(f'{size}', sorted(sc.names_of(sc.read_all_entries(fd, size))) == want)
    t.do(sc.getdents, open_dir(t, 'dir'), 8)


@test
def entries_created_while_reading(t):
    t.become()
    fill(t, 'dir')
    old = os.listdir(t('dir'))
    fd = open_dir(t, 'dir')
    names, made = [], []
    while chunk := sc.getdents(fd, SMALL):
        names += sc.names_of(chunk)
        if len(made) < MANY:
            made.append(b'new-%06d' % len(made))
            os.close(os.open(t.new('dir', made[-1]), os.O_CREAT | os.O_WRONLY))
    for name in made:  # how many calls a listing takes differs: the end must not
        os.unlink(t('dir', name))
    judge(t, 'created', names, old, made)


@test
def entries_removed_while_reading(t):
    t.become()
    fill(t, 'dir')
    everything = sorted(os.listdir(t('dir')))
    fd = open_dir(t, 'dir')
    names = []
    while chunk := sc.getdents(fd, SMALL):
        names += sc.names_of(chunk)
        for name in sc.names_of(chunk):  # of those that were just read
            if int(name[-6:]) % 2:
                os.unlink(t('dir', name))
    judge(t, 'removed', names, everything)
    t.record('left', len(os.listdir(t('dir'))))


@test
def entries_removed_anywhere_while_reading(t):
    t.become()
    fill(t, 'dir')
    everything = os.listdir(t('dir'))
    fd = open_dir(t, 'dir')
    names = sc.names_of(read_some(fd, 100))
    victims = set(sorted(everything)[::3])  # some read already, most not
    for name in victims:
        os.unlink(t('dir', name))
    while chunk := sc.getdents(fd, SMALL):
        names += sc.names_of(chunk)
    judge(t, 'anywhere', names, set(everything) - victims, victims)


@test
def entries_renamed_while_reading(t):
    t.become()
    fill(t, 'dir')
    everything = os.listdir(t('dir'))
    moving = set(sorted(everything)[::10])
    fd = open_dir(t, 'dir')
    names, left, moved = [], sorted(moving), []
    while chunk := sc.getdents(fd, SMALL):
        names += sc.names_of(chunk)
        if left:
            name = left.pop()
            moved.append(b'moved-' + name)
            os.rename(t('dir', name), t.new('dir', moved[-1]))
    for name in left:  # how many calls a listing takes differs: the end must not
        os.rename(t('dir', name), t.new('dir', b'moved-' + name))
    judge(t, 'renamed', names, set(everything) - moving, moving | set(moved))


@test
def reading_and_removing_until_empty(t):
    t.become()
    fill(t, 'dir')
    fd = open_dir(t, 'dir')
    count = 0
    while True:
        chunk = sc.names_of(sc.getdents(fd, SMALL))
        if not chunk:
            os.lseek(fd, 0, os.SEEK_SET)
            if not sc.names_of(sc.getdents(fd, SMALL)):
                break
            os.lseek(fd, 0, os.SEEK_SET)
            continue
        for name in chunk:
            os.unlink(t('dir', name))
            count += 1
    t.record('removed', count)
    t.do(os.rmdir, t('dir'))


@test
def rewind_sees_everything_once_again(t):
    t.become()
    fill(t, 'dir', 300)
    fd = open_dir(t, 'dir')
    for amount in (0, 10, 300, 10**6):
        read_some(fd, amount)
        os.lseek(fd, 0, os.SEEK_SET)
        judge(t, f'after {amount}', sc.names_of(sc.read_all_entries(fd, SMALL)),
              os.listdir(t('dir')))
        os.lseek(fd, 0, os.SEEK_SET)


@test
def rewind_sees_what_changed(t):
    t.become()
    fill(t, 'dir', 300)
    fd = open_dir(t, 'dir')
    for number in range(10):
        read_some(fd, 50 * number)
        os.unlink(t('dir', f'entry-{number:06}'))
        os.close(os.open(t.new('dir', f'new-{number}'), os.O_CREAT | os.O_WRONLY))
        os.lseek(fd, 0, os.SEEK_SET)
        judge(t, f'round {number}', sc.names_of(sc.read_all_entries(fd, SMALL)),
              os.listdir(t('dir')))
        os.lseek(fd, 0, os.SEEK_SET)


@test
def every_position_can_be_returned_to(t):
    t.become()
    fill(t, 'dir', 200)
    fd = open_dir(t, 'dir')
    entries = sc.read_all_entries(fd, SMALL)
    wrong = 0
    for index in list(range(0, len(entries) - 1, 7)) + list(range(len(entries) - 2, 0, -11)):
        os.lseek(fd, entries[index][1], os.SEEK_SET)
        follow = sc.getdents(fd, SMALL)
        wrong += follow[0][3] != entries[index + 1][3]
    t.record('wrong', wrong)
    os.lseek(fd, entries[-1][1], os.SEEK_SET)
    t.record('after the last', sc.getdents(fd, SMALL))


@test
def positions_hold_while_others_change(t):
    t.become()
    fill(t, 'dir', 200)
    fd = open_dir(t, 'dir')
    entries = sc.read_all_entries(fd, SMALL)
    middle = len(entries) // 2
    later = sc.names_of(entries[middle + 1:])
    for number in range(50):
        os.close(os.open(t.new('dir', f'new-{number}'), os.O_CREAT | os.O_WRONLY))
    for name in sc.names_of(entries[:middle])[::2]:
        os.unlink(t('dir', name))
    os.lseek(fd, entries[middle][1], os.SEEK_SET)
    again = [n for n in sc.names_of(sc.read_all_entries(fd, SMALL)) if not n.startswith(b'new-')]
    t.record('lost', sorted(set(later) - set(again)))
    t.record('doubled', len(again) - len(set(again)))


@test
def two_readers_do_not_disturb_each_other(t):
    t.become()
    fill(t, 'dir', 300)
    one, two = open_dir(t, 'dir'), open_dir(t, 'dir')
    first, second = sc.names_of(read_some(one, 100)), []
    while chunk := sc.getdents(two, 4096):
        second += sc.names_of(chunk)
        first += sc.names_of(sc.getdents(one, SMALL))
    first += sc.names_of(sc.read_all_entries(one, SMALL))
    judge(t, 'first', first, os.listdir(t('dir')))
    judge(t, 'second', second, os.listdir(t('dir')))


@test
def duplicate_descriptor_shares_the_position(t):
    t.become()
    fill(t, 'dir', 300)
    one = open_dir(t, 'dir')
    two = os.dup(one)
    names, turn = [], 0
    while chunk := sc.getdents((one, two)[turn % 2], SMALL):
        names += sc.names_of(chunk)
        turn += 1
    os.close(two)
    judge(t, 'shared', names, os.listdir(t('dir')))


@test
def listing_a_directory_removed_meanwhile(t):
    t.become()
    fill(t, 'dir', 300)
    fd = open_dir(t, 'dir')
    for name in os.listdir(t('dir')):
        os.unlink(t('dir', name))
    os.rmdir(t('dir'))
    t.do(sc.getdents, fd)
    os.lseek(fd, 0, os.SEEK_SET)
    t.do(sc.getdents, fd)
    t.do(os.fstat, fd)


@test
def listing_a_directory_moved_meanwhile(t):
    t.become()
    fill(t, 'dir', 300)
    t.folder('elsewhere')
    fd = open_dir(t, 'dir')
    names = sc.names_of(read_some(fd, 50))
    os.rename(t('dir'), t.new('elsewhere', 'moved'))
    names += sc.names_of(sc.read_all_entries(fd, SMALL))
    judge(t, 'moved', names, os.listdir(t('elsewhere/moved')))


@test
def stat_of_each_entry_while_reading(t):
    t.become()
    fill(t, 'dir', 200)
    fd, seen = open_dir(t, 'dir'), 0
    while chunk := sc.getdents(fd, SMALL):
        for name in sc.names_of(chunk):
            seen += os.stat(t('dir', name)).st_size == 0
    t.record('seen', seen)


@test
def writer_process_beside_a_reader(t):
    t.become()
    fill(t, 'dir', 200)
    stay = os.listdir(t('dir'))
    pid = os.fork()
    if pid == 0:
        for number in range(scaled(2000, 300)):
            path = t.new('dir', f'flicker-{number % 50}')
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
        os._exit(0)
    bad, ended = [], False
    while not ended:
        ended = os.waitpid(pid, os.WNOHANG)[0] != 0  # one more listing after the end
        fd = os.open(t('dir'), os.O_RDONLY)
        names = [n for n in sc.names_of(sc.read_all_entries(fd, SMALL))
                 if not n.startswith(b'flicker')]
        os.close(fd)
        if sorted(names) != sorted(stay):
            bad.append((len(names), len(set(names))))
    t.record('listings that lost or doubled an entry', bad)


tests.main('ext4')
