# SPDX-License-Identifier: GPL-3.0-or-later
"""trees.py - fresh folders of a mount, seen through it and below, for the tests of its own promises
(those that the bare tree cannot be compared with), in both modes of look-up."""
import errno
import itertools
import os
import sys

import mounted
import tap
from mounted import Area, Mount
from tap import expect_equal

# Pairs of spellings, of every kind that the rule knows.
SPELLINGS = (
    ('readme.txt', 'README.TXT'), ('mixed', 'MiXeD'), ('äöü', 'ÄÖÜ'), ('ελληνικά', 'ΕΛΛΗΝΙΚΆ'),
    ('кириллица', 'КИРИЛЛИЦА'), ('ａｂｃ', 'ＡＢＣ'), ('日本語a', '日本語A'), ('ÿ', 'Ÿ'), ('ɐ', 'Ɐ'), ('ⱥ', 'Ⱥ'),
    ('ⅷ', 'Ⅷ'), ('ⓐ', 'Ⓐ'), ('n' * 255, 'N' * 255), ('ä' * 127, 'Ä' * 127), ('straße', 'STRAßE'),
)


class Tree:
    """A fresh folder of the mount; `through` and `below` give paths in it."""

    counter = itertools.count()

    def __init__(self, mount):
        self.name = f'case{next(self.counter)}'
        self.mount = mount
        self.below_top = os.path.join(mount.source, self.name)
        self.through_top = os.path.join(mount.path, self.name)
        os.mkdir(self.through_top)

    def through(self, *names):
        return os.path.join(os.fsencode(self.through_top), *(os.fsencode(n) for n in names))

    def below(self, *names):
        return os.path.join(os.fsencode(self.below_top), *(os.fsencode(n) for n in names))

    def listing(self):
        """Names in the mount and on disk, which must be the same, once each."""
        through, below = os.listdir(self.through()), sorted(os.listdir(self.below()))
        expect_equal(sorted(through), below, 'names in the mount and below')
        return below


def make(path, content=b''):
    with open(path, 'xb') as file:
        file.write(content)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def error_of(function, *args, **kwargs):
    """The name of the errno that the call fails with, or 'done'."""
    try:
        function(*args, **kwargs)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]


def absent(path):
    expect_equal(error_of(os.lstat, path), 'ENOENT', f'stat {path!r}')


class Modes:
    """Tests of one program: for lookup=fold, for lookup=exact, for both."""

    def __init__(self):
        self.fold, self.both, self.exact = tap.Suite(), tap.Suite(), tap.Suite()

    def main(self, name):
        word = tap.arguments().k
        for mode, suite in (('fold', self.fold), ('exact', self.exact)):
            def whole():
                mounted.need_foldfs()
                with Area('dir') as area, Mount(area.dir('source'), 'lookup=' + mode) as mount:
                    for tests in (self.both, suite):
                        tests.run(mount, suffix='_in_mode_' + mode, word=word)
            tap.run_one(f'{name}_tests_mount_and_unmount_in_mode_{mode}', whole)
        sys.exit(tap.status())
