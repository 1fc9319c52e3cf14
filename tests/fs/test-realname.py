#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""getxattr(directory, "glusterfs.get_real_filename:NAME"): the on-disk spelling of what NAME means
there, with its trailing NUL; ENODATA if there is nothing; in both modes of look-up."""
import errno
import itertools
import os
import sys

import mounted
import syscalls as sc
import tap
from compare import ALICE, respell
from mounted import Area, Mount
from tap import Skip, expect, expect_equal

PREFIX = b'glusterfs.get_real_filename:'
LONGEST = 255 - len(PREFIX)  # an xattr name is at most 255 bytes
BUFFER = 4096

suite = tap.Suite()
folders = itertools.count()


def folder(mount):
    """A fresh directory: its path through the mount and below."""
    name = f'case{next(folders)}'
    os.mkdir(os.path.join(mount.path, name))
    return tuple(os.fsencode(os.path.join(top, name)) for top in (mount.path, mount.source))


def make(*path):
    os.close(os.open(os.path.join(*(os.fsencode(p) for p in path)),
                     os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def ask(directory, name, size=BUFFER):
    """The raw answer, with its NUL, or the name of an errno."""
    try:
        return sc.getxattr_raw(directory, PREFIX + os.fsencode(name), size)[1]
    except OSError as error:
        return errno.errorcode[error.errno]


def expect_real(directory, asked, real):
    want = 'ENODATA' if real is None else os.fsencode(real) + b'\0'
    expect_equal(ask(directory, asked), want, f'real name of {asked!r}')


@suite.test
def real_name_of_every_spelling(mount):
    through, _ = folder(mount)
    for name in ('Readme.TXT', 'Äpfel', 'ΕΛΛΗΝΙΚΆ', 'ＡＢＣ', '日本語A', 'ɐ', 'Ⱥ', 'straße', 'a'):
        make(through, name)
        for asked in (name.encode(), respell(name.encode())):
            expect_real(through, asked, name)
    expect_real(through, 'STRASSE', None)
    expect_real(through, 'READMEXTXT', None)


@suite.test
def absent_name_is_enodata(mount):
    through, below = folder(mount)
    expect_real(through, 'missing', None)
    make(through, 'File')
    expect_real(through, 'file', 'File')
    os.unlink(os.path.join(through, b'File'))
    expect_real(through, 'file', None)
    make(below, 'FILE')
    expect_real(through, 'file', 'FILE')
    os.unlink(os.path.join(below, b'FILE'))
    expect_real(through, 'file', None)


@suite.test
def real_name_follows_every_change(mount):
    through, _ = folder(mount)
    make(through, 'one')
    expect_real(through, 'ONE', 'one')
    os.rename(os.path.join(through, b'one'), os.path.join(through, b'Two'))
    expect_real(through, 'ONE', None)
    expect_real(through, 'TWO', 'Two')
    os.link(os.path.join(through, b'Two'), os.path.join(through, b'Three'))
    expect_real(through, 'THREE', 'Three')
    os.mkdir(os.path.join(through, b'Four'))
    os.symlink('x', os.path.join(through, b'Five'))
    expect_real(through, 'FOUR', 'Four')
    expect_real(through, 'FIVE', 'Five')
    os.rmdir(os.path.join(through, b'Four'))
    expect_real(through, 'FOUR', None)


@suite.test
def exact_spelling_first_then_the_smallest(mount):
    through, below = folder(mount)
    for name in ('abc', 'Abc', 'ABC', 'aBC'):
        make(below, name)
    for name in ('abc', 'Abc', 'ABC', 'aBC'):
        expect_real(through, name, name)
    expect_real(through, 'abC', 'ABC')
    os.unlink(os.path.join(below, b'ABC'))
    expect_real(through, 'abC', 'Abc')
    expect_real(through, 'ABC', 'Abc')


@suite.test
def names_of_every_length_up_to_the_limit(mount):
    through, _ = folder(mount)
    for length in (1, 2, 7, 8, 63, 64, 100, 200, LONGEST - 1, LONGEST):
        make(through, 'n' * length)
        expect_real(through, 'N' * length, 'n' * length)
        expect_real(through, 'M' * length, None)
    for length in (LONGEST + 1, 255):  # the kernel refuses such an xattr name
        make(through, 'x' * length)
        expect_equal(ask(through, 'X' * length), 'ERANGE')


@suite.test
def multibyte_names_up_to_the_limit(mount):
    through, _ = folder(mount)
    for letter, other in (('ä', 'Ä'), ('か', 'か'), ('ａ', 'Ａ')):
        count = LONGEST // len(letter.encode())
        make(through, letter * count)
        expect_real(through, other * count, letter * count)


@suite.test
def found_name_may_be_longer_than_the_asked(mount):
    """U+0250 has two bytes, its capital U+2C6F three."""
    through, _ = folder(mount)
    make(through, 'Ɐ' * 85)
    expect_real(through, 'ɐ' * 85, 'Ɐ' * 85)


@suite.test
def buffer_sizes_as_getxattr_has_them(mount):
    through, _ = folder(mount)
    make(through, 'Name.txt')
    length = len('Name.txt') + 1
    probe, _ = sc.getxattr_raw(through, PREFIX + b'NAME.TXT', 0)
    expect_equal(probe, length, 'size probe')
    for size in (1, length - 2, length - 1):
        expect_equal(ask(through, 'NAME.TXT', size), 'ERANGE', f'buffer of {size}')
    for size in (length, length + 1, 255, 256, 65536):
        expect_equal(ask(through, 'NAME.TXT', size), b'Name.txt\0', f'buffer of {size}')
    for size in (0, 1, 100):
        expect_equal(ask(through, 'missing', size), 'ENODATA', f'buffer of {size}, absent')


@suite.test
def names_that_are_not_utf8(mount):
    through, _ = folder(mount)
    for name, other in ((b'caf\xe9', b'CAF\xe9'), (b'\x83A', b'\x83a'), (b'\xffx', b'\xffX')):
        make(through, name)
        expect_real(through, name, name)
        expect_real(through, other, None)


@suite.test
def odd_names(mount):
    through, _ = folder(mount)
    for name in ('with space', 'a:b', 'dot.', '.hidden', 'new\nline', '%s', 'a=b'):
        make(through, name)
        expect_real(through, name.upper(), name)


@suite.test
def names_that_are_no_entries(mount):
    through, _ = folder(mount)
    for name in ('a/b', '/', ''):
        got = ask(through, name)
        expect(got in ('ENODATA', 'EINVAL', 'ENOTSUP'), f'{name!r} gave {got!r}')


@suite.test
def only_directories_answer(mount):
    through, _ = folder(mount)
    make(through, 'file')
    got = ask(os.path.join(through, b'file'), 'x')
    expect(got in ('ENODATA', 'ENOTSUP', 'ENOTDIR'), f'a file answered {got!r}')


@suite.test
def root_of_the_mount_answers(mount):
    make(mount.path, 'In-The-Root')
    expect_real(mount.path, 'in-the-root', 'In-The-Root')
    os.unlink(os.path.join(mount.path, 'In-The-Root'))
    expect_real(mount.path, 'in-the-root', None)


@suite.test
def descriptors_answer_too(mount):
    through, _ = folder(mount)
    make(through, 'File')
    for flags in (os.O_RDONLY | os.O_DIRECTORY, os.O_PATH):
        fd = os.open(through, flags)
        expect_real(b'/proc/self/fd/%d' % fd, 'FILE', 'File')
        os.close(fd)


@suite.test
def unprivileged_user_may_ask(mount):
    through, _ = folder(mount)
    make(through, 'File')
    os.chmod(through, 0o755)
    back, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(ALICE.gid, ALICE.gid, ALICE.gid)
        os.setresuid(ALICE.uid, ALICE.uid, ALICE.uid)
        os.write(out, repr(ask(through, 'FILE')).encode())
        os._exit(0)
    os.close(out)
    os.waitpid(pid, 0)
    answer = os.read(back, 1000)
    os.close(back)
    expect_equal(answer, repr(b'File\0').encode())


@suite.test
def attribute_is_not_listed_and_cannot_be_set(mount):
    through, _ = folder(mount)
    make(through, 'File')
    expect(not any('glusterfs' in n for n in os.listxattr(through)), 'it is listed')
    for action in (lambda: os.setxattr(through, PREFIX + b'File', b'x'),
                   lambda: os.removexattr(through, PREFIX + b'File')):
        try:
            action()
            raise tap.Failure('it could be changed')
        except OSError as error:
            tap.note(errno.errorcode[error.errno])


@suite.test
def first_question_to_a_large_directory_is_right(mount):
    count = tap.scaled(20000, 2000)
    top = os.path.join(mount.source, f'case{next(folders)}')
    os.mkdir(top)
    for number in range(count):
        make(top, f'Entry-{number}')
    through = os.path.join(mount.path, os.path.basename(top))
    expect_real(through, 'eNTRY-7', 'Entry-7')
    expect_real(through, f'entry-{count}', None)
    for number in range(0, count, 97):
        expect_real(through, f'ENTRY-{number}', f'Entry-{number}')


@suite.test
def answers_beside_a_writer_are_never_wrong(mount):
    """A name that is there all the time is never ENODATA, one never there is never found."""
    through, below = folder(mount)
    for number in range(500):
        make(through, f'Stays-{number}')
    pid = os.fork()
    if pid == 0:
        for number in range(tap.scaled(3000, 300)):
            top = (through, below)[number % 2]
            make(top, f'Flicker-{number % 40}')
            os.unlink(os.path.join(top, b'Flicker-%d' % (number % 40)))
        os._exit(0)
    ended, asked = False, 0
    while not ended:
        ended = os.waitpid(pid, os.WNOHANG)[0] != 0
        for number in range(asked % 50, 500, 50):
            expect_real(through, f'stays-{number}', f'Stays-{number}')
            expect_real(through, f'never-{number}', None)
        asked += 1
    tap.note(f'{asked} rounds of questions')


def main():
    word = tap.arguments().k
    for mode in ('fold', 'exact'):
        def whole():
            if mounted.is_bind():
                raise Skip('a bind mount has no such attribute')
            with Area('dir') as area, Mount(area.dir('source'), 'lookup=' + mode) as mount:
                suite.run(mount, suffix='_in_mode_' + mode, word=word)
        tap.run_one('real_name_tests_mount_and_unmount_in_mode_' + mode, whole)
    sys.exit(tap.status())


main()
