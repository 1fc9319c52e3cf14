#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""foldfsctl: what it says, does and refuses, and that its door to the daemon is shut to others."""
import errno
import fcntl
import json
import os
import random
import subprocess

import mounted
import tap
from mounted import Area, Mount
from tap import expect, expect_equal, scaled

suite = tap.Suite()
CONTROL = os.path.join(os.path.dirname(os.environ['FOLDFS']), 'foldfsctl')
USAGE, FAILED = 1, 2
NOBODY = 65534


def ctl(*words, user=None):
    done = subprocess.run([CONTROL, *words], capture_output=True, text=True, check=False,
                          user=user, env={'LC_ALL': 'C.UTF-8'})
    return done.returncode, done.stdout, done.stderr


def refused(status, *words, user=None):
    """Its one line."""
    got, out, err = ctl(*words, user=user)
    expect_equal((got, out), (status, ''), words)
    expect(err.startswith('foldfsctl: ') and err.count('\n') == 1, f'{words}: {err}')
    return err


@suite.test
def status_says_what_is_so():
    with Area('ext4') as area, Mount(area.dir('source'), 'passthrough=off') as mount:
        for n in range(10):
            os.close(os.open(os.path.join(mount.source, f'File-{n}'), os.O_CREAT))
        os.path.exists(os.path.join(mount.path, 'absent'))
        status, out, err = ctl('status', mount.path)
        expect_equal((status, err), (0, ''))
        lines = dict(line.split(' ', 1) for line in out.splitlines())
        for key, want in (('source', mount.source), ('mountpoint', mount.path),
                          ('lookup', 'fold'), ('passthrough', 'off (option)'),
                          ('index_names', '10'), ('scans', '1')):
            expect_equal(lines[key], want, key)
        for path in ('', 'file-3', '.', '../' + os.path.basename(mount.path)):
            status, out, err = ctl('status', '--json', os.path.join(mount.path, path))
            expect_equal((status, err), (0, ''), path)
            values = json.loads(out)
            expect_equal(set(values), set(lines))
            expect_equal(values['index_names'], 10)


@suite.test
def rename_changes_the_case():
    for options in ('', 'lookup=exact', 'entry_timeout=1000,attr_timeout=1000'):
        with Area('ext4') as area, Mount(area.dir('source'), options) as mount:
            os.mkdir(os.path.join(mount.source, 'dir'))
            os.close(os.open(os.path.join(mount.source, 'dir', 'file'), os.O_CREAT))
            top = os.path.join(mount.path, 'dir')
            for old, new in ((top + '/file', 'File'), (top + '/File', top + '/FILE'),
                             (top, os.path.join(mount.path, 'Dir'))):
                os.stat(old)
                expect_equal(ctl('rename', old, new), (0, '', ''), (old, new))
            expect_equal(os.listdir(mount.source), ['Dir'])
            expect_equal(os.listdir(os.path.join(mount.source, 'Dir')), ['FILE'])
            os.chdir(os.path.join(mount.path, 'Dir'))
            try:
                expect_equal(ctl('rename', 'FILE', 'file'), (0, '', ''))
                expect_equal(os.listdir(os.path.join(mount.source, 'Dir')), ['file'])
            finally:
                os.chdir('/')


@suite.test
def what_cannot_be_is_refused():
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        top, below = mount.path, mount.source
        os.mkdir(os.path.join(below, 'dir'))
        for name in ('foo', 'Foo', 'dir/foo'):
            os.close(os.open(os.path.join(below, name), os.O_CREAT))
        before = sorted(os.listdir(below))
        for words in ((), ('no-such',), ('status',), ('status', top, top), ('rename', top),
                      ('fold',), ('fold', '--hex'), ('same', 'a'), ('status', '--json', top, top)):
            refused(USAGE, *words)
        for words in (('status', '/'), ('status', below), ('status', top + '/absent'),
                      ('rename', top + '/foo', 'bar'), ('rename', top + '/absent', 'Absent'),
                      ('rename', top + '/foo', 'Foo'), ('rename', below + '/foo', 'FOO'),
                      ('rename', top + '/dir/foo', top + '/FOO'), ('rename', '/', '/'),
                      ('rename', top + '/' + 'x' * 300, 'y'), ('fold', 'x' * 256)):
            refused(FAILED, *words)
        for words in (('status', top), ('rename', top + '/foo', 'FOO')):
            expect('only root' in refused(FAILED, *words, user=NOBODY), words)
        expect_equal(sorted(os.listdir(below)), before)


@suite.test
def rule_is_that_of_the_mount():
    for one, other, same in (('Ärger', 'äRGER', 0), ('ß', 'SS', 1), ('a', 'b', 1), ('σ', 'Σ', 0)):
        expect_equal(ctl('same', one, other)[0], same, (one, other))
    expect_equal(ctl('fold', 'ärger', 'x'), (0, 'ÄRGER\nX\n', ''))
    expect_equal(ctl('fold', '--hex', 'é'), (0, 'c389\n', ''))


@suite.test
def nonsense_harms_nobody():
    """Structures of random bytes, by ioctl, as root: an error or nothing, and the daemon lives."""
    rng = random.Random(7)
    rename = 1 << 30 | 512 << 16 | 0xF0 << 8 | 1
    with Area('ext4') as area, Mount(area.dir('source')) as mount:
        for name in ('foo', 'bar'):
            os.close(os.open(os.path.join(mount.source, name), os.O_CREAT))
        directory = os.open(mount.path, os.O_RDONLY)
        file = os.open(os.path.join(mount.path, 'foo'), os.O_RDONLY)
        for _ in range(scaled(3000, 300)):
            old, new = (rng.choice((rng.randbytes(256), b'x' * 256, b'../foo\0'.ljust(256, b'\0'),
                                    b''.ljust(256, b'\0'), b'..'.ljust(256, b'\0'),
                                    b'foo'.ljust(256, b'\0'))) for _ in range(2))
            for fd in (directory, file):
                try:
                    fcntl.ioctl(fd, rename, bytearray(old + new))
                except OSError as error:
                    expect(error.errno in (errno.EINVAL, errno.ENOENT, errno.ENAMETOOLONG,
                                           errno.ENOTDIR, errno.EEXIST), error)
        os.close(directory)
        os.close(file)
        expect_equal(sorted(os.listdir(mount.source)), ['bar', 'foo'])
        expect_equal(ctl('status', mount.path)[0], 0)


mounted.run_each(suite)
