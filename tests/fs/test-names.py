#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any name that the tree can hold can be used through the mount."""
import os
import random

import syscalls as sc
from compare import Comparisons
from tap import scaled

tests = Comparisons()
test = tests.test

KANA = 'か'
LONG = ('a' * 255, 'ä' * 127, KANA * 85, '😀' * 63, KANA * 84 + 'abc', 'B' * 227, 'c' * 228)
TOO_LONG = ('a' * 256, 'ä' * 128, KANA * 85 + 'a', KANA * 86, 'x' * 1000, 'y' * 4095)
NOT_UTF8 = (b'caf\xe9.txt', b'\x83A\x83b', b'\xff', b'\x80', b'\xc3', b'a\xe3\x81', b'\xed\xa0\x80',
            b'\xc1\xa1', b'\xf4\x90\x80\x80', b'\xfe' * 255, b'ok\xe0\x80\xaf', b'\xf8\x88\x80\x80\x80')
ODD = (b' ', b'  leading', b'trailing ', b'dot.', b'...', b'..a', b'.hidden', b'new\nline', b'tab\t',
       b'\x01\x02', b'back\\slash', b'a:b*c?d"e<f>g|h', b'con', b'nul.txt', b'\x7f', b'~', b'-rf',
       '\ufeffbom'.encode(), 'e\u0301'.encode(), 'é'.encode(), 'ﬁ'.encode(), 'ß'.encode(),
       'İ'.encode(), 'ı'.encode(), 'ς'.encode(), 'K'.encode(), '\u200b'.encode(), '\U000e0001'.encode())


def whole_life(t, name):
    """Everything that a name goes through."""
    path = t.root + b'/' + os.fsencode(name)
    fd = t.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    t.do(os.write, fd, b'content')
    t.do(os.stat, t(name))
    t.open(t(name), os.O_CREAT | os.O_EXCL | os.O_RDWR)
    t.do(os.setxattr, t(name), 'user.x', b'v')
    t.do(os.rename, t(name), t.new('middle'))
    t.do(os.stat, t(name))
    t.do(os.rename, t('middle'), t.new(name))
    t.do(os.link, t(name), t.new('linked'))
    t.do(os.unlink, t(name))
    t.do(os.mkdir, t.new(name))
    t.do(os.rename, t('linked'), t.new(name, 'inside'))
    t.do(os.listdir, t(name))
    t.do(os.unlink, t(name, 'inside'))
    t.do(os.rmdir, t(name))
    t.do(os.symlink, os.fsencode(name)[:4000], t.new(name))
    t.do(os.readlink, t(name))
    t.do(os.unlink, t(name))
    t.do(os.mkfifo, t.new(name))
    t.record('listed', sorted(os.listdir(t.root)))


@test
def longest_names_live(t):
    t.become()
    for name in LONG:
        whole_life(t, name)


@test
def too_long_names_are_refused(t):
    t.become()
    t.put('file')
    for name in TOO_LONG:
        t.open(t(name), os.O_CREAT | os.O_WRONLY)
        t.do(os.stat, t(name))
        t.do(os.mkdir, t(name))
        t.do(os.link, t('file'), t(name))
        t.do(os.symlink, 'x', t(name))
        t.do(os.rename, t('file'), t(name))
        t.do(os.unlink, t(name))
        t.do(os.stat, t(name, 'below'))


@test
def names_that_are_not_utf8_live(t):
    t.become()
    for name in NOT_UTF8:
        whole_life(t, name)


@test
def odd_names_live(t):
    t.become()
    for name in ODD:
        whole_life(t, name)


@test
def names_that_look_equal_stay_apart(t):
    t.become()
    for name in ('é', 'e\u0301', 'ß', 'ss', 'ẞ', 'ﬁ', 'fi', 'K', '\u212a', 'Å', '\u212b', 'ı', 'i\u0307',
                 'ς', 'σ', 'か\u3099', 'が', 'ｱ', 'ア', 'a ', 'a', 'a.'):
        t.open(t.new(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    t.record('listed', sorted(os.listdir(t.root)))


@test
def not_utf8_names_keep_their_case_apart(t):
    t.become()
    for name in (b'caf\xe9', b'CAF\xe9', b'caf\xc9', b'\x83A', b'\x83a'):
        t.open(t.new(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    t.do(os.unlink, t.new(b'CAF\xe9'))
    t.record('listed', sorted(os.listdir(t.root)))


@test
def long_paths_resolve(t):
    t.become()
    deep = ''
    for level in range(15):
        deep = os.path.join(deep, 'd%02d' % level + 'x' * 250)
        t.do(os.mkdir, t(deep))
    t.open(t(deep, 'file'), os.O_CREAT | os.O_WRONLY)
    t.do(os.stat, t(deep, 'file'))
    t.do(os.stat, t.root + b'/.' * 2100)


@test
def all_single_bytes_are_names(t):
    t.become()
    apart = set()
    for byte in range(1, 256):
        name = bytes([byte])
        if name in b'/.' or name.upper() in apart:
            continue
        apart.add(name.upper())
        t.open(t.new(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        t.do(os.stat, t(name))
    t.record('listed', sorted(os.listdir(t.root)))


@test
def random_bytes_are_names(t):
    t.become()
    rng = random.Random(7)
    made = set()
    for _ in range(scaled(300, 50)):
        name = bytes(rng.choice(range(0x80, 0x100)) for _ in range(rng.randrange(1, 256)))
        if name not in made:
            made.add(name)
            t.open(t.new(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    fd = os.open(t.root, os.O_RDONLY)
    t.record('listed', sorted(sc.names_of(sc.read_all_entries(fd))) == sorted(made))
    os.close(fd)
    for name in sorted(made)[::2]:
        t.do(os.unlink, t(name))


tests.main()
