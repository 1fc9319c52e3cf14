#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel keeps for long, attributes of directories and (cache=fast) names, it asks for again
soon after it was changed behind the mount, or by another spelling; what is in use stays."""
import os
import platform
import time

import mounted
import tap
from mounted import Area, Mount
from tap import Skip, expect, expect_equal, scaled

LONG = 'attr_timeout=1000,entry_timeout=1000'
# Far more than it takes, far less than the timeouts.
SOON_S = 20
suite = tap.Suite()


def kernel():
    return tuple(int(part) for part in platform.release().split('.')[:2])


def need(version, what):
    if kernel() < version:
        raise Skip(f'Linux {platform.release()} has no {what}')


def make(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))


def is_soon(question, what):
    """How long it takes until QUESTION gives True."""
    began = time.monotonic()
    while not question():
        expect(time.monotonic() - began < SOON_S, f'{what}: not within {SOON_S} s')
    return time.monotonic() - began


def names_change_behind(mount, kind, options):
    below, through = (os.path.join(top, kind) for top in (mount.source, mount.path))
    os.mkdir(below)
    (os.mkdir if kind == 'directories' else make)(os.path.join(below, 'One'))
    expect_equal(os.listdir(through), ['One'])
    names_are_kept = 'fast' in options
    worst = 0
    for _ in range(scaled(20, 5)):
        for old, new in (('One', 'Two'), ('Two', 'one'), ('one', 'One')):
            os.stat(os.path.join(through, old))
            kept = os.stat(through).st_mtime_ns
            time.sleep(0.005)  # a tick, for coarse times
            os.rename(os.path.join(below, old), os.path.join(below, new))
            if names_are_kept and old.lower() != new.lower():
                worst = max(worst, is_soon(lambda: not os.path.exists(os.path.join(through, old)),
                                           f'{options}: {old}'))
            worst = max(worst, is_soon(lambda: os.stat(through).st_mtime_ns != kept,
                                       f'{options}: times of the directory'))
            expect(os.path.samestat(os.stat(os.path.join(through, new.swapcase())),
                                    os.stat(os.path.join(through, new))), new)
    print(f'# {options}, {kind}: within {worst * 1000:.0f} ms')


@suite.test
def what_the_kernel_keeps_is_asked_for_again():
    schemes = ('cache=strict', 'cache=fast') if kernel() >= (6, 16) else ('cache=strict',)
    for scheme in schemes:
        for fs in ('ext4', 'xfs', 'btrfs', 'tmpfs'):
            with Area(fs) as area, Mount(area.dir('source'), f'{LONG},{scheme}') as mount:
                names_change_behind(mount, 'directories', f'{scheme} on {fs}')
                names_change_behind(mount, 'files', f'{scheme} on {fs}')


@suite.test
def what_is_in_use_stays():
    for scheme in ('cache=strict', 'cache=fast') if kernel() >= (6, 16) else ('cache=strict',):
        with Area('ext4') as area, Mount(area.dir('source'), scheme) as mount:
            below, through = mount.source, mount.path
            os.makedirs(os.path.join(below, 'Dir', 'Sub'))
            make(os.path.join(below, 'File'))
            make(os.path.join(below, 'Dir', 'File'))
            here = os.getcwd()
            try:
                os.chdir(os.path.join(through, 'Dir', 'Sub'))
                files = [os.open(name, os.O_RDWR) for name in ('../File', '../../File')]
                for n in range(scaled(5, 2)):
                    for name in ('Dir', 'File'):
                        old, new = (os.path.join(below, f'{name}{m}' if m else name)
                                    for m in (n, n + 1))
                        os.rename(old, new)
                        is_soon(lambda: not os.path.exists(old.replace(below, through)), old)
                    for file in files:
                        expect_equal(os.write(file, b'x'), 1)
                    os.stat(os.path.join(through, f'Dir{n + 1}', 'Sub'))
                    expect_equal(os.getcwd(), os.path.join(through, f'Dir{n + 1}', 'Sub'))
                for file in files:
                    os.close(file)
            finally:
                os.chdir(here)


@suite.test
def mount_inside_makes_auto_strict():
    need((6, 16), 'epochs')
    with Area('ext4') as area, Area('tmpfs') as other, \
            Mount(area.dir('source'), 'cache=auto,entry_timeout=1,attr_timeout=1000') as mount:
        below, through = mount.source, mount.path
        os.mkdir(os.path.join(below, 'Dir'))
        time.sleep(0.5)  # the kernel has been told of that, which drops what is mounted at once
        mounted.run('mount', '--bind', other.path, os.path.join(through, 'Dir'))
        try:
            make(os.path.join(through, 'Dir', 'Over'))
            time.sleep(1.5)  # what was kept before may be kept for the timeout
            for _ in range(20):
                make(os.path.join(through, 'File'))
                os.stat(os.path.join(through, 'File'))
                os.unlink(os.path.join(through, 'FILE'))
                expect(not os.path.exists(os.path.join(through, 'File')), 'removed, and there')
            expect_equal(os.listdir(os.path.join(through, 'Dir')), ['Over'])
        finally:
            mounted.run('umount', os.path.join(through, 'Dir'))


@suite.test
def removal_by_another_spelling_ends_the_exact_name():
    need((6, 16), 'epochs')
    for options in (f'{LONG},cache=fast', f'{LONG},cache=fast,lookup=exact'):
        with Area('ext4') as area, Mount(area.dir('source'), options) as mount:
            def path(name, top=mount.path):
                return os.path.join(top, name)
            for n in range(scaled(300, 50)):
                make(path('foo'))
                make(path('bar'))
                number = os.stat(path('bar')).st_ino
                os.stat(path('foo'))
                spelling = 'foo' if 'exact' in options else 'Foo'
                if n % 3 == 0 and spelling == 'Foo':
                    os.unlink(path(spelling))
                elif n % 3 == 1 and spelling == 'Foo':
                    os.rename(path(spelling), path('moved'))
                    os.unlink(path('moved'))
                else:  # onto another spelling: the entry takes it
                    os.rename(path('bar'), path('FOO'))
                    expect_equal(os.listdir(mount.source), ['FOO'])
                    expect_equal(os.stat(path('FOO')).st_ino, number)
                    os.unlink(path('FOO'))
                expect(not os.path.exists(path('foo')), f'{options}: foo is there, round {n}')
                descriptor = os.open(path('foo'), os.O_CREAT | os.O_WRONLY)
                os.write(descriptor, b'kept')
                os.close(descriptor)
                with open(path('foo', mount.source), 'rb') as file:
                    expect_equal(file.read(), b'kept')
                for name in os.listdir(mount.source):
                    os.unlink(path(name))


mounted.run_each(suite)
