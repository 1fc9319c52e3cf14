#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes do everything to the same names through one mount, under any spelling, alone and with
another that changes the tree behind it; every result, and all that is seen afterwards, is compared
with a model.  model.c does it.  And the test of this test: it finds a daemon that has a fault.

A check is one answer compared: a result, a stat, the content read, a listing.
FOLDFS_TEST_SEED repeats a run, as far as the scheduler does."""
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time

import mounted
import tap
from mounted import Area, Mount
from tap import Failure, Skip, expect, note, scaled

CHECKS = scaled(150000, 5000)  # of each mode
WITHOUT_FAULT = scaled(20000, 5000)
FAULT_S = 60  # within which a fault is found
KILLS = scaled(3)
END_S = 30    # after the daemon is gone

# What processes see then.
DAEMON_GONE = [text for error in (errno.ENOTCONN, errno.ECONNABORTED)
               for text in (errno.errorcode[error], os.strerror(error))]

# Till when the kernel may answer with what was so before a change behind the mount: names of files
# are expired, those of directories and attributes only time out.  Where nothing is watched all do.
# Processes that share two processors may be late by SLACK_MS.
EXPIRED_MS = 100
SLACK_MS = 500
TIMEOUT_S = 1       # of names and attributes
LONG_TIMEOUT_S = 60  # where nobody changes the tree behind the mount
SETTLE_MS = 1000    # for foldfs to know of all that happens in a tree that is not watched


def built(name):
    build = os.environ.get('FOLDFS_BUILD') or \
        os.path.join(os.path.dirname(mounted.program()), '..')
    path = os.path.join(build, 'tests', 'fs', name)
    if not os.access(path, os.X_OK):
        raise Failure(f'{path} is missing: build the tests, and set FOLDFS_BUILD')
    return path


def need_kernel_for(options):
    mounted.need_foldfs()
    if 'cache=fast' in options and mounted.kernel() < (6, 16):
        raise Skip('the kernel has no epoch')
    if 'passthrough=on' in options and mounted.kernel() < (6, 9):
        raise Skip('the kernel has no passthrough')


def timeouts(behind):
    seconds = TIMEOUT_S if behind else LONG_TIMEOUT_S
    return f'attr_timeout={seconds},entry_timeout={seconds}'


def command(mount, checks, behind, seed, seconds=0):
    watched = not mount.is_without('watch')
    timeout = TIMEOUT_S * 1000 + SLACK_MS
    expired = EXPIRED_MS + SLACK_MS if watched else timeout
    arguments = {
        'mount': mount.path, 'source': mount.source, 'checks': checks, 'seed': seed,
        'seconds': seconds, 'changers': int(behind), 'fast': int(mount.has_option('cache=fast')),
        'unwatched': int(not watched), 'dirs_bound_ms': timeout, 'names_bound_ms': expired,
        'attr_bound_ms': timeout, 'settle_bound_ms': SETTLE_MS + SLACK_MS,
    }
    return [built('model'), *(f'{key}={value}' for key, value in arguments.items())]


def run_model(*arguments, **options):
    return subprocess.run(command(*arguments, **options), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False)


@contextlib.contextmanager
def mounted_with(options, behind):
    need_kernel_for(options)
    with Area('ext4') as area, \
            Mount(area.dir('source'), f'{options},{timeouts(behind)}') as mount:
        yield mount


def nothing_is_wrong(options, behind, checks, seed):
    with mounted_with(options, behind) as mount:
        done = run_model(mount, checks, behind, seed)
        note(done.stdout)
        if done.returncode:
            raise Failure(f'{mount.options}: status {done.returncode}')


@contextlib.contextmanager
def faulty(fault):
    """The program to test is the one with faults."""
    before = os.environ['FOLDFS']
    os.environ['FOLDFS'] = built('foldfs-faulty')
    os.environ['FOLDFS_FAULT'] = fault
    try:
        yield
    finally:
        os.environ['FOLDFS'] = before
        del os.environ['FOLDFS_FAULT']


def fault_is_found(fault, options, behind, seed):
    mounted.need_foldfs()
    with faulty(fault), mounted_with(options, behind) as mount:
        done = run_model(mount, 1 << 40, behind, seed, seconds=FAULT_S)
        if done.returncode != 1 or not done.stdout.startswith('WRONG'):
            raise Failure(f'status {done.returncode}: {done.stdout}')
        note(done.stdout.splitlines()[0])


def program_with_faults_has_none_by_itself(options, behind, seed):
    mounted.need_foldfs()
    with faulty('none'):
        nothing_is_wrong(options, behind, WITHOUT_FAULT, seed)


def threads_left(mount):
    try:
        return mounted.threads_of(mount.pid())
    except OSError as error:
        return error


def kill_in_the_middle(options, seed):
    with mounted_with(options, True) as mount, \
            subprocess.Popen(command(mount, 1 << 40, True, seed), stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors='replace') as model:
        time.sleep(0.3 + seed % 5 / 10)
        if model.poll() is not None:
            raise Failure(f'it ended before: {model.stdout.read()}')
        os.kill(mount.pid(), signal.SIGKILL)
        try:
            said = model.communicate(timeout=END_S)[0]
            expect(any(word in said for word in DAEMON_GONE), f'no process noticed: {said}')
        except subprocess.TimeoutExpired:
            said = threads_left(mount)
            mounted.run('umount', '-f', mount.path)  # which ends what they wait for
            model.communicate()
            mount.daemon = None
            raise Failure(f'processes wait for a daemon that was killed: {said}') from None
        mount.daemon.wait(END_S)
        mounted.run('umount', mount.path)
        mount.daemon = None  # nothing is left to stop


def mount_can_be_unmounted_after_a_kill(options, seed):
    for kill in range(KILLS):
        kill_in_the_middle(options, seed + kill)


MODES = [  # options, and whether the tree is changed behind the mount too
    *((f'cache={cache},passthrough={passthrough}', behind) for behind in (False, True)
      for cache in ('strict', 'fast') for passthrough in ('on', 'off')),
    ('cache=strict,without=watch', True),
    ('cache=strict,threads=1', True),
    ('cache=fast,threads=1', True),
]
FAULTS = [
    ('naive', 'cache=strict', False),
    ('epoch', 'cache=fast', False),
    ('drain', 'cache=strict', True),
]


def name_of(options, behind):
    words = options.replace('cache=', '').replace(',', '_').replace('=', '_')
    return f'{words}{"_and_changes_behind" if behind else ""}'


def tests(seed):
    """Name, function, and arguments of each."""
    for number, (options, behind) in enumerate(MODES):
        checks = CHECKS // 3 if 'threads' in options else CHECKS
        yield (f'nothing_is_wrong_with_{name_of(options, behind)}', nothing_is_wrong, options,
               behind, checks, seed + number)
    for cache in ('strict', 'fast'):
        yield (f'mount_can_be_unmounted_after_a_kill_with_{cache}',
               mount_can_be_unmounted_after_a_kill, f'cache={cache}', seed)
    for fault, options, behind in FAULTS:
        name = name_of(options, behind)
        yield (f'program_with_faults_has_none_by_itself_with_{name}',
               program_with_faults_has_none_by_itself, options, behind, seed)
        yield f'fault_{fault}_is_found_with_{name}', fault_is_found, fault, options, behind, seed


def main():
    word = tap.arguments().k
    seed = int(os.environ.get('FOLDFS_TEST_SEED', time.time()))
    note(f'FOLDFS_TEST_SEED={seed}')
    for name, function, *arguments in tests(seed):
        if word in name:
            tap.run_one(name, function, *arguments)
    sys.exit(tap.status())


main()
