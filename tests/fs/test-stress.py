#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several processes do what they like to the same few names, under any spelling; then all stop, and
every name under every spelling must give what the disk says.  With and without others who change the
tree behind the mount meanwhile; without them there must never be two variants."""
import contextlib
import errno
import os
import random
import sys
import time

import mounted
import syscalls as sc
import tap
from compare import respell
from mounted import Area, Mount
from tap import expect, expect_equal, scaled

PROCESSES = 6
PHASES = scaled(20, 3)
STEPS = 300  # of each process in a phase
WORDS = ('alpha', 'beta', 'gamma', 'ärger', '日本a', 'straße', 'x')
FOLDERS = ('', 'Dir', 'Dir/Sub', 'other')

suite = tap.Suite()


def spellings(word):
    """Some spellings of a word; the first is the word."""
    mixed = ''.join(c if i % 2 else respell(c.encode()).decode() for i, c in enumerate(word))
    return (word, respell(word.encode()).decode(), mixed, respell(mixed.encode()).decode())


def smallest(name):
    """The same for all spellings of a name, as the rule has it."""
    return ''.join(min(c, respell(c.encode()).decode()) for c in name)


def any_path(rng, top):
    folder = '/'.join(rng.choice(spellings(part)) if part else ''
                      for part in rng.choice(FOLDERS).split('/'))
    return os.path.join(top, folder, rng.choice(spellings(rng.choice(WORDS))))


def step(rng, top):
    """One random operation; any error that is an answer is fine."""
    path, other = any_path(rng, top), any_path(rng, top)
    action = rng.randrange(12)
    if action < 2:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    elif action == 2:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif action == 3:
        os.mkdir(path)
    elif action == 4:
        os.symlink('target', path)
    elif action == 5:
        os.link(path, other, follow_symlinks=False)
    elif action in (6, 7):
        os.rename(path, other)
    elif action == 8:
        sc.renameat2(path, other, rng.choice((sc.RENAME_NOREPLACE, sc.RENAME_EXCHANGE)))
    elif action == 9:
        os.rmdir(path)
    elif action == 10:
        with open(path, 'ab') as file:
            file.write(b'x')
    else:
        os.unlink(path)
    if rng.randrange(3) == 0:
        os.lstat(any_path(rng, top))
    if rng.randrange(20) == 0:
        os.listdir(os.path.dirname(path))


ANSWERS = {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EINVAL,
           errno.ELOOP, errno.EPERM}


def work(seed, top, answers):
    """A process's part of a phase; its exit status is the errno that should not have come."""
    rng = random.Random(seed)
    for _ in range(STEPS):
        try:
            step(rng, top)
        except OSError as error:
            if error.errno not in answers:
                return error.errno
    return 0


def run_phase(tops, seed):
    # A directory that was removed behind the mount may be ESTALE: its handle is.
    answers = ANSWERS if len(tops) == 1 else ANSWERS | {errno.ESTALE}
    children = []
    for number in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            status = 255
            with contextlib.suppress(Exception):
                status = work(seed * 100 + number, tops[number % len(tops)], answers)
            os._exit(status)
        children.append(pid)
    for pid in children:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expect_equal(status, 0, f'a process met errno {errno.errorcode.get(status, status)}')


def error_of(function, *args):
    try:
        function(*args)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]


def check_folder(below, through, alone):
    """Every spelling of every word in one folder against the disk.  The listing comes last: by it
    the daemon could learn what it should have known."""
    on_disk = sorted(os.listdir(below), key=os.fsencode)
    if alone:
        folded = [smallest(name) for name in on_disk]
        expect_equal(len(set(folded)), len(folded), f'variants: {on_disk}')
    for word in WORDS:
        for name in spellings(word):
            alike = [n for n in on_disk if smallest(n) == smallest(name)]
            want = name if name in alike else alike[0] if alike else None
            got = error_of(os.lstat, os.path.join(through, name))
            expect_equal(got, 'done' if want else 'ENOENT', f'{name} with {on_disk} on disk')
            if want:
                one, other = (os.lstat(os.path.join(top, n))
                              for top, n in ((below, want), (through, name)))
                expect_equal((other.st_ino, other.st_mode, other.st_size, other.st_nlink),
                             (one.st_ino, one.st_mode, one.st_size, one.st_nlink), name)
    expect_equal(sorted(os.listdir(through), key=os.fsencode), on_disk, f'listing of {through}')


def check_everything(mount, alone):
    for folder, _, _ in os.walk(mount.source):
        relative = os.path.relpath(folder, mount.source)
        check_folder(folder, os.path.normpath(os.path.join(mount.path, relative)), alone)


def make_folders(top):
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.join(top, folder), exist_ok=True)


def last_words(tops, seed):
    """Some more changes behind the mount, so that they are not always followed by one through it,
    which could make the daemon look again."""
    rng = random.Random(seed)
    for _ in range(20):
        with contextlib.suppress(OSError):
            step(rng, tops[1])


def phases(mount, tops, alone):
    seed = int(os.environ.get('FOLDFS_TEST_SEED', time.time()))
    tap.note(f'FOLDFS_TEST_SEED={seed}')
    for phase in range(PHASES):
        make_folders(mount.path if alone else mount.source)
        run_phase(tops, seed + phase)
        if not alone:
            last_words(tops, seed + phase)
        check_everything(mount, alone)
    mounted.run('sh', '-c', 'rm -rf "$1"/*', 'sh', mount.path)
    expect_equal(os.listdir(mount.source), [], 'after rm -rf')


@suite.test
def processes_through_the_mount_alone(mount):
    phases(mount, (mount.path,), True)


@suite.test
def processes_through_the_mount_and_behind_it(mount):
    phases(mount, (mount.path, mount.source, mount.path), False)


@suite.test
def same_names_after_a_remount(mount):
    make_folders(mount.path)
    run_phase((mount.path,), 77)
    mount.remount()
    check_everything(mount, True)
    expect(os.listdir(mount.source), 'nothing is left to check')


def main():
    word = tap.arguments().k
    for options in ('', 'index=memory', 'threads=1'):
        suffix = '_with_' + options.replace('=', '_') if options else ''

        def whole():
            mounted.need_foldfs()
            # The kernel's caches may hold what was changed behind the mount: they are off.
            with Area('ext4') as area, Mount(area.dir('source'), ','.join(
                    filter(None, (options, 'attr_timeout=0,entry_timeout=0')))) as mount:
                suite.run(mount, suffix=suffix, word=word)
        tap.run_one('stress_tests_mount_and_unmount' + suffix, whole)
    sys.exit(tap.status())


main()
