#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a name finds and what it may make: exact spelling first, else the bytewise smallest
variant; never a second variant; the spelling kept.  In both modes of look-up."""
import errno
import itertools
import mmap
import os
import socket
import sys

import mounted
import syscalls as sc
import tap
from compare import respell
from mounted import Area, Mount
from tap import expect, expect_equal

fold = tap.Suite()   # lookup=fold only
both = tap.Suite()   # whatever the mode
exact = tap.Suite()  # lookup=exact only

# Pairs of spellings, of every kind that the rule knows.
SPELLINGS = (
    ('readme.txt', 'README.TXT'), ('mixed', 'MiXeD'), ('äöü', 'ÄÖÜ'), ('ελληνικά', 'ΕΛΛΗΝΙΚΆ'),
    ('кириллица', 'КИРИЛЛИЦА'), ('ａｂｃ', 'ＡＢＣ'), ('日本語a', '日本語A'), ('ÿ', 'Ÿ'), ('ɐ', 'Ɐ'), ('ⱥ', 'Ⱥ'),
    ('ⅷ', 'Ⅷ'), ('ⓐ', 'Ⓐ'), ('n' * 255, 'N' * 255), ('ä' * 127, 'Ä' * 127), ('straße', 'STRAßE'),
)
# Names that look alike and are different.
DIFFERENT = (
    ('straße', 'strasse'), ('ς', 'Σ'), ('ı', 'I'), ('İ', 'i'), ('é', 'e\u0301'), ('k', '\u212a'),
    ('ﬁ', 'fi'), (b'caf\xe9', b'CAF\xe9'), (b'\x83a', b'\x83A'), ('か', 'カ'), ('\u01c5', '\u01c6'),
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


# Looking up


@fold.test
def lookup_finds_every_spelling(mount):
    tree = Tree(mount)
    for stored, other in SPELLINGS:
        for on_disk, asked in ((stored, other), (other, stored)):
            make(tree.through(on_disk), on_disk.encode())
            expect_equal(read(tree.through(asked)), on_disk.encode())
            expect_equal(os.stat(tree.through(asked)).st_ino, os.stat(tree.below(on_disk)).st_ino)
            os.unlink(tree.through(asked))
            absent(tree.through(on_disk))
    expect_equal(tree.listing(), [])


@both.test
def lookup_keeps_apart_what_the_rule_keeps_apart(mount):
    for one, other in DIFFERENT:
        tree = Tree(mount)
        make(tree.through(one), b'one')
        absent(tree.through(other))
        make(tree.through(other), b'other')
        expect_equal(read(tree.through(one)) + read(tree.through(other)), b'oneother')
        expect_equal(len(tree.listing()), 2)


@fold.test
def lookup_works_in_every_component(mount):
    tree = Tree(mount)
    os.makedirs(tree.through('Top', 'Middle', 'Bottom'))
    make(tree.through('tOP', 'mIDDLE', 'bOTTOM', 'File'), b'deep')
    for path in (('Top', 'Middle', 'Bottom', 'File'), ('TOP', 'middle', 'Bottom', 'fILE'),
                 ('top', 'MIDDLE', 'BOTTOM', 'FILE')):
        expect_equal(read(tree.through(*path)), b'deep')
    expect_equal(os.listdir(tree.below('Top', 'Middle', 'Bottom')), [b'File'])


@both.test
def lookup_prefers_exact_spelling(mount):
    tree = Tree(mount)
    variants = [''.join(letters) for letters in itertools.product('aA', 'bB', 'cC')]
    for name in variants:
        make(tree.below(name), name.encode())
    for name in variants:
        expect_equal(read(tree.through(name)), name.encode())
    for name in reversed(variants):
        expect_equal(os.stat(tree.through(name)).st_ino, os.stat(tree.below(name)).st_ino)


@fold.test
def lookup_else_takes_the_bytewise_smallest(mount):
    tree = Tree(mount)
    asked = 'aBc'
    for name in ('abc', 'Abc', 'aBC', 'ABC', 'AbC', 'ABc'):  # in an order that is not sorted
        make(tree.below(name), name.encode())
        smallest = min(os.listdir(tree.below()))
        expect_equal(read(tree.through(asked)), smallest, f'after {name}')
    while names := sorted(os.listdir(tree.below())):
        expect_equal(read(tree.through(asked)), names[0])
        os.unlink(tree.below(names[0]))
    absent(tree.through(asked))


@fold.test
def smallest_variant_is_by_bytes_not_by_letters(mount):
    tree = Tree(mount)
    for name in ('ⱥ', 'Ⱥ', 'zⱥ', 'zȺ'):
        make(tree.below(name), name.encode())
    make(tree.below('ɐX'), b'lower')
    make(tree.below('Ɐx'), b'upper')
    expect_equal(read(tree.through('ɐx')), b'lower')  # C9 90 is before E2 B1 AF
    expect_equal(read(tree.through('Zⱥ')), min('zⱥ'.encode(), 'zȺ'.encode()))


@fold.test
def smallest_variant_is_the_same_after_a_remount(mount):
    tree = Tree(mount)
    for name in ('xy', 'XY', 'Xy'):
        make(tree.below(name), name.encode())
    before = read(tree.through('xY'))
    mount.remount()
    expect_equal((before, read(tree.through('xY'))), (b'XY', b'XY'))


@both.test
def every_variant_is_listed_once(mount):
    tree = Tree(mount)
    variants = sorted(os.fsencode(''.join(v)) for v in itertools.product('aA', 'bB', 'cC', 'dD'))
    for name in variants:
        make(tree.below(name))
    expect_equal(tree.listing(), variants)


@both.test
def every_variant_can_be_removed_by_its_name(mount):
    tree = Tree(mount)
    variants = [os.fsencode(''.join(v)) for v in itertools.product('aA', 'bB', 'cC', 'dD')]
    for number, name in enumerate(variants):
        make(tree.below(name)) if number % 2 else os.mkdir(tree.below(name))
    left = set(variants)
    for number, name in enumerate(variants):
        (os.unlink if number % 2 else os.rmdir)(tree.through(name))
        left.remove(name)
        expect_equal(set(tree.listing()), left)


@fold.test
def all_variants_can_be_removed_by_one_spelling(mount):
    tree = Tree(mount)
    for name in ('abc', 'ABC', 'Abc', 'aBC'):
        make(tree.below(name))
    for _ in range(4):
        os.unlink(tree.through('abC'))
    expect_equal(tree.listing(), [])
    absent(tree.through('abC'))


@both.test
def rm_r_empties_a_directory_of_variants(mount):
    tree = Tree(mount)
    os.makedirs(tree.below('Dir', 'sub'))
    os.makedirs(tree.below('dir', 'SUB'))
    for path in (('Dir', 'sub', 'f'), ('Dir', 'sub', 'F'), ('dir', 'SUB', 'f'), ('DIR',)):
        make(tree.below(*path))
    mounted.run('rm', '-r', *(tree.through(n) for n in ('Dir', 'dir', 'DIR')))
    expect_equal(tree.listing(), [])


@both.test
def many_variants_of_one_name(mount):
    tree = Tree(mount)
    names = [os.fsencode(''.join(c.upper() if number >> bit & 1 else c
                                 for bit, c in enumerate('abcdefghijkl')))
             for number in range(1 << 12)][::max(1, int(4 / max(tap.scale(), 0.1)))]
    for name in names:
        make(tree.below(name), name)
    for name in names[::17]:
        expect_equal(read(tree.through(name)), name)
    for name in names:
        os.unlink(tree.through(name))
    expect_equal(tree.listing(), [])


@fold.test
def variants_of_directories_are_entered_by_the_rule(mount):
    tree = Tree(mount)
    for name in ('dir', 'DIR', 'Dir'):
        os.mkdir(tree.below(name))
        make(tree.below(name, 'inside'), name.encode())
    for name in ('dir', 'DIR', 'Dir', 'dir'):
        expect_equal(read(tree.through(name, 'INSIDE')), name.encode())
    expect_equal(read(tree.through('dIR', 'inside')), b'DIR')
    make(tree.through('dIr', 'new'))
    expect_equal(sorted(os.listdir(tree.below('DIR'))), [b'inside', b'new'])


@exact.test
def exact_mode_looks_up_exactly(mount):
    tree = Tree(mount)
    for stored, other in SPELLINGS:
        make(tree.through(stored))
        absent(tree.through(other))
        expect_equal(error_of(os.open, tree.through(other), os.O_RDONLY), 'ENOENT')
        for action in (os.unlink, os.rmdir, os.listdir, os.readlink):
            expect_equal(error_of(action, tree.through(other)), 'ENOENT')
        expect_equal(error_of(os.rename, tree.through(other), tree.through('moved')), 'ENOENT')
        os.unlink(tree.through(stored))
        absent(tree.through(stored))


# Making


def creations(tree):
    """name of the call -> a function that makes PATH by it; all but the first exclusively."""
    make(tree.through('link-source'))

    def create(path):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def link(path):
        os.link(tree.through('link-source'), path)

    def bind(path):
        here = os.open('.', os.O_RDONLY)
        try:
            os.chdir(os.path.dirname(path))
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(os.path.basename(path))
        finally:
            os.fchdir(here)
            os.close(here)

    def tmpfile(path):
        fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR)
        try:
            sc.linkat(sc.AT_FDCWD, b'/proc/self/fd/%d' % fd, sc.AT_FDCWD, path,
                      sc.AT_SYMLINK_FOLLOW)
        finally:
            os.close(fd)

    def rename(path):
        os.close(os.open(path + b'.new', os.O_CREAT | os.O_WRONLY))
        try:
            sc.renameat2(path + b'.new', path, sc.RENAME_NOREPLACE)
        except OSError:
            os.unlink(path + b'.new')
            raise

    return {
        'O_EXCL': create,
        'mkdir': os.mkdir,
        'mknod': lambda path: os.mknod(path, 0o100644),
        'mkfifo': os.mkfifo,
        'symlink': lambda path: os.symlink('target', path),
        'link': link,
        'bind': bind,
        **({'tmpfile': tmpfile} if mounted.has_tmpfile() else {}),
        'rename_noreplace': rename,
    }


@both.test
def exclusive_creation_over_another_spelling_gives_eexist(mount):
    tree = Tree(mount)
    ways = creations(tree)
    os.mkdir(tree.through('dir'))
    os.symlink('nowhere', tree.through('dangling'))
    make(tree.through('file'))
    before = tree.listing()
    for way, action in ways.items():
        for name in ('FILE', 'File', 'DIR', 'DANGLING', 'file', 'dir'):
            got = error_of(action, tree.through(name))
            want = 'EADDRINUSE' if way == 'bind' else 'EEXIST'
            expect_equal(got, want, f'{way} of {name}')
    expect_equal(tree.listing(), before)


@both.test
def exclusive_creation_over_spellings_of_each_kind_of_letter(mount):
    tree = Tree(mount)
    ways = creations(tree)
    for stored, other in SPELLINGS:
        make(tree.through(stored))
        for way in ('O_EXCL', 'mkdir', 'symlink', 'link', 'mknod'):
            expect_equal(error_of(ways[way], tree.through(other)), 'EEXIST', f'{way} {other}')
        os.unlink(tree.through(stored))


@both.test
def exclusive_creation_over_a_variant_made_behind(mount):
    tree = Tree(mount)
    ways = creations(tree)
    absent(tree.through('thing'))
    absent(tree.through('THING'))
    make(tree.below('Thing'))
    for way, action in ways.items():
        want = 'EADDRINUSE' if way == 'bind' else 'EEXIST'
        expect_equal(error_of(action, tree.through('tHING')), want, way)
    os.unlink(tree.below('Thing'))
    for way, action in ways.items():
        action(tree.through('tHING'))
        expect(b'tHING' in tree.listing(), f'{way} made nothing')
        (os.rmdir if way == 'mkdir' else os.unlink)(tree.below('tHING'))


@fold.test
def plain_create_opens_the_other_spelling(mount):
    tree = Tree(mount)
    make(tree.through('Report.doc'), b'content')
    fd = os.open(tree.through('REPORT.DOC'), os.O_CREAT | os.O_RDWR)
    expect_equal(os.read(fd, 100), b'content')
    os.write(fd, b'!')
    os.close(fd)
    with open(tree.through('report.doc'), 'wb') as file:  # O_CREAT | O_TRUNC
        file.write(b'new')
    expect_equal(tree.listing(), [b'Report.doc'])
    expect_equal(read(tree.below('Report.doc')), b'new')


@fold.test
def plain_create_in_each_state_of_the_kernels_cache(mount):
    tree = Tree(mount)
    for number in range(20):
        lower_name, upper_name = f'name{number}', f'NAME{number}'
        absent(tree.through(upper_name))           # a negative dentry, perhaps
        make(tree.through(lower_name), b'one')
        with open(tree.through(upper_name), 'ab') as file:
            file.write(b'two')
        expect_equal(read(tree.through(lower_name)), b'onetwo')
        os.unlink(tree.through(upper_name))
        absent(tree.through(lower_name))           # a positive dentry before
        with open(tree.through(lower_name), 'xb') as file:
            file.write(b'three')
        expect_equal(read(tree.through(upper_name)), b'three')
        os.unlink(tree.through(lower_name))
        with open(tree.through(upper_name), 'wb') as file:
            file.write(b'four')
        expect_equal(read(tree.below(upper_name)), b'four')
        os.unlink(tree.through(lower_name))
    expect_equal(tree.listing(), [])


@fold.test
def open_with_create_after_removal_by_another_spelling(mount):
    """The kernel may hold the removed file under the first spelling: writing into it loses data."""
    tree = Tree(mount)
    for _ in range(50):
        make(tree.through('foo'), b'old')
        os.stat(tree.through('foo'))
        os.unlink(tree.through('FOO'))
        with open(tree.through('foo'), 'wb') as file:
            file.write(b'new')
        expect_equal(read(tree.below('foo')), b'new')
        os.unlink(tree.through('foo'))


@exact.test
def exact_mode_plain_create_over_another_spelling_gives_eexist(mount):
    tree = Tree(mount)
    make(tree.through('file'), b'content')
    for flags in (os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_TRUNC | os.O_RDWR):
        expect_equal(error_of(os.open, tree.through('FILE'), flags), 'EEXIST')
    expect_equal(read(tree.through('file')), b'content')
    expect_equal(tree.listing(), [b'file'])


@both.test
def spelling_of_creation_is_kept(mount):
    tree = Tree(mount)
    ways = creations(tree)
    for way, action in ways.items():
        name = f'KeePs-{way}-ÄöÜ'
        action(tree.through(name))
        expect(os.fsencode(name) in tree.listing(), f'{way}: {tree.listing()}')
        action(tree.through(f'{way}-{respell(b"x").decode()}'))


# Renaming.  A case-only rename is tried through lookup=exact only: otherwise the kernel finds the
# same inode under both names and does nothing, without asking.


@exact.test
def case_only_rename_changes_the_spelling(mount):
    for kind in ('file', 'dir', 'symlink'):
        tree = Tree(mount)
        if kind == 'file':
            make(tree.through('name'), b'content')
        elif kind == 'dir':
            os.mkdir(tree.through('name'))
            make(tree.through('name', 'inside'), b'content')
        else:
            os.symlink('target', tree.through('name'))
        inode = os.lstat(tree.through('name')).st_ino
        for old, new in (('name', 'NAME'), ('NAME', 'Name'), ('Name', 'name'), ('name', 'nAME')):
            os.rename(tree.through(old), tree.through(new))
            expect_equal(tree.listing(), [os.fsencode(new)], f'{kind} {old} to {new}')
            expect_equal(os.lstat(tree.through(new)).st_ino, inode)
    expect_equal(tree.listing(), [b'nAME'])


@exact.test
def case_only_rename_with_noreplace(mount):
    """The only entry of that name is the one that is renamed: nothing is replaced."""
    tree = Tree(mount)
    make(tree.through('name'), b'content')
    sc.renameat2(tree.through('name'), tree.through('NAME'), sc.RENAME_NOREPLACE)
    expect_equal((tree.listing(), read(tree.through('NAME'))), ([b'NAME'], b'content'))


@exact.test
def case_only_rename_of_many_files(mount):
    tree = Tree(mount)
    for number in range(200):
        make(tree.through(f'file{number}'), b'%d' % number)
    for number in range(200):
        os.rename(tree.through(f'file{number}'), tree.through(f'FILE{number}'))
        expect_equal(read(tree.through(f'FILE{number}')), b'%d' % number)
    expect_equal(tree.listing(), sorted(b'FILE%d' % n for n in range(200)))


@both.test
def rename_onto_another_spelling_leaves_one_entry_with_the_new_one(mount):
    tree = Tree(mount)
    make(tree.through('source'), b'new')
    make(tree.through('target'), b'old')
    os.rename(tree.through('source'), tree.through('TARGET'))
    expect_equal(tree.listing(), [b'TARGET'])
    expect_equal(read(tree.through('TARGET')), b'new')


@both.test
def rename_onto_another_spelling_in_another_directory(mount):
    tree = Tree(mount)
    os.mkdir(tree.through('a'))
    os.mkdir(tree.through('b'))
    make(tree.through('a', 'file'), b'new')
    make(tree.through('b', 'File'), b'old')
    os.rename(tree.through('a', 'file'), tree.through('b', 'FILE'))
    expect_equal((os.listdir(tree.below('a')), os.listdir(tree.below('b'))), ([], [b'FILE']))
    expect_equal(read(tree.through('b', 'FILE')), b'new')


@both.test
def rename_of_directories_onto_another_spelling(mount):
    tree = Tree(mount)
    os.mkdir(tree.through('source'))
    make(tree.through('source', 'inside'))
    os.mkdir(tree.through('empty'))
    os.mkdir(tree.through('full'))
    make(tree.through('full', 'x'))
    make(tree.through('file'))
    expect_equal(error_of(os.rename, tree.through('source'), tree.through('FULL')), 'ENOTEMPTY')
    expect_equal(error_of(os.rename, tree.through('source'), tree.through('FILE')), 'ENOTDIR')
    expect_equal(error_of(os.rename, tree.through('file'), tree.through('FULL')), 'EISDIR')
    expect_equal(tree.listing(), [b'empty', b'file', b'full', b'source'])
    os.rename(tree.through('source'), tree.through('EMPTY'))
    expect_equal(tree.listing(), [b'EMPTY', b'file', b'full'])
    expect_equal(os.listdir(tree.through('EMPTY')), [b'inside'])


@both.test
def rename_onto_another_spelling_of_an_open_file(mount):
    tree = Tree(mount)
    make(tree.through('source'), b'new')
    make(tree.through('target'), b'old')
    fd = os.open(tree.through('target'), os.O_RDWR)
    os.rename(tree.through('source'), tree.through('TARGET'))
    os.pwrite(fd, b'OLD', 0)
    expect_equal(os.fstat(fd).st_nlink, 0)
    expect_equal(os.pread(fd, 10, 0), b'OLD')
    expect_equal(read(tree.through('TARGET')), b'new')
    os.close(fd)


@both.test
def rename_noreplace_onto_another_spelling_gives_eexist(mount):
    tree = Tree(mount)
    make(tree.through('source'), b'new')
    make(tree.through('target'), b'old')
    expect_equal(error_of(sc.renameat2, tree.through('source'), tree.through('TARGET'),
                          sc.RENAME_NOREPLACE), 'EEXIST')
    expect_equal(tree.listing(), [b'source', b'target'])


@fold.test
def exchange_by_another_spelling(mount):
    tree = Tree(mount)
    make(tree.through('one'), b'1')
    make(tree.through('two'), b'2')
    sc.renameat2(tree.through('ONE'), tree.through('TWO'), sc.RENAME_EXCHANGE)
    expect_equal(tree.listing(), [b'one', b'two'])
    expect_equal(read(tree.through('one')) + read(tree.through('two')), b'21')


@exact.test
def exact_mode_exchange_with_another_spelling_is_absent(mount):
    tree = Tree(mount)
    make(tree.through('one'), b'1')
    make(tree.through('two'), b'2')
    expect_equal(error_of(sc.renameat2, tree.through('one'), tree.through('TWO'),
                          sc.RENAME_EXCHANGE), 'ENOENT')


@both.test
def rename_of_a_link_onto_another_spelling_of_its_twin(mount):
    """Two links of one file: rename(2) does nothing then.  One entry must not become none."""
    tree = Tree(mount)
    make(tree.through('twin'), b'content')
    os.link(tree.through('twin'), tree.through('other'))
    os.rename(tree.through('other'), tree.through('TWIN'))
    names = tree.listing()
    folded = [n.lower() for n in names]
    expect_equal(len(folded), len(set(folded)), f'two variants: {names}')
    expect(b'twin' in folded, f'the name is lost: {names}')
    for name in names:
        expect_equal(read(tree.through(name)), b'content')


@both.test
def rename_over_variants_made_behind(mount):
    tree = Tree(mount)
    for name in ('abc', 'ABC', 'Abc'):
        make(tree.below(name), name.encode())
    make(tree.through('source'), b'new')
    os.rename(tree.through('source'), tree.through('ABC'))
    expect_equal(read(tree.through('ABC')), b'new')
    expect(b'source' not in tree.listing(), 'the source is left')
    for name in tree.listing():
        os.unlink(tree.through(name))


@both.test
def case_only_rename_onto_an_existing_variant_made_behind(mount):
    tree = Tree(mount)
    make(tree.below('abc'), b'lower')
    make(tree.below('ABC'), b'upper')
    os.rename(tree.through('abc'), tree.through('ABC'))
    expect_equal((tree.listing(), read(tree.through('ABC'))), ([b'ABC'], b'lower'))


@exact.test
def directory_renamed_by_case_keeps_open_files_and_cwd(mount):
    tree = Tree(mount)
    os.mkdir(tree.through('dir'))
    make(tree.through('dir', 'file'), b'content')
    fd = os.open(tree.through('dir', 'file'), os.O_RDWR)
    here = os.open('.', os.O_RDONLY)
    os.chdir(tree.through('dir'))
    try:
        os.rename(tree.through('dir'), tree.through('Dir'))
        expect_equal(os.stat('file').st_size, 7)
        make(b'made')
        os.pwrite(fd, b'CONTENT', 0)
    finally:
        os.fchdir(here)
        os.close(here)
        os.close(fd)
    expect_equal(sorted(os.listdir(tree.below('Dir'))), [b'file', b'made'])
    expect_equal(read(tree.through('Dir', 'file')), b'CONTENT')


@fold.test
def directory_cannot_be_moved_into_itself_by_another_spelling(mount):
    tree = Tree(mount)
    os.makedirs(tree.through('dir', 'sub'))
    for target in (('DIR', 'x'), ('Dir', 'SUB', 'x'), ('DIR', 'sub')):
        expect_equal(error_of(os.rename, tree.through('dir'), tree.through(*target)), 'EINVAL')
    expect_equal(os.listdir(tree.below('dir')), [b'sub'])


@fold.test
def ping_pong_between_directory_spellings(mount):
    tree = Tree(mount)
    os.mkdir(tree.through('dir'))
    for number in range(200):
        make(tree.through(('dir', 'DIR', 'Dir')[number % 3], f'f{number}'))
    expect_equal(len(os.listdir(tree.through('dIR'))), 200)


# One file, whatever the spelling


@fold.test
def links_count_and_inode_are_the_same_under_every_spelling(mount):
    tree = Tree(mount)
    make(tree.through('file'), b'x')
    os.link(tree.through('FILE'), tree.through('Other'))
    expect_equal(os.stat(tree.through('OTHER')).st_nlink, 2)
    inodes = {os.stat(tree.through(n)).st_ino for n in ('file', 'File', 'FILE', 'other', 'OTHER')}
    expect_equal(len(inodes), 1)


@fold.test
def page_cache_is_shared_between_spellings(mount):
    tree = Tree(mount)
    make(tree.through('file'), bytes(8192))
    one = os.open(tree.through('file'), os.O_RDWR)
    two = os.open(tree.through('FILE'), os.O_RDWR)
    first, second = mmap.mmap(one, 8192), mmap.mmap(two, 8192)
    first[10:15] = b'first'
    expect_equal(bytes(second[10:15]), b'first')
    os.pwrite(two, b'second', 5000)
    expect_equal((bytes(first[5000:5006]), os.pread(one, 6, 5000)), (b'second', b'second'))
    os.ftruncate(one, 4096)
    expect_equal(os.fstat(two).st_size, 4096)
    first.close()
    second.close()
    os.close(one)
    os.close(two)


@fold.test
def attributes_changed_by_one_spelling_show_in_another(mount):
    tree = Tree(mount)
    make(tree.through('file'), b'x')
    for number in range(50):
        one, other = (tree.through(n) for n in (('file', 'FILE'), ('FILE', 'file'))[number % 2])
        os.stat(other)
        os.chmod(one, 0o600 + number % 8)
        expect_equal(os.stat(other).st_mode & 0o777, 0o600 + number % 8)
        os.truncate(one, number)
        expect_equal(os.stat(other).st_size, number)
        os.utime(one, ns=(number, number))
        expect_equal(os.stat(other).st_mtime_ns, number)


@fold.test
def symlink_targets_resolve_by_any_spelling(mount):
    tree = Tree(mount)
    os.mkdir(tree.through('Dir'))
    make(tree.through('Dir', 'File'), b'found')
    os.symlink('DIR/FILE', tree.through('link'))
    os.symlink('LINK', tree.through('link2'))
    os.symlink('../dir/../DIR', tree.through('Dir', 'loop'))
    expect_equal(read(tree.through('LINK2')), b'found')
    expect_equal(read(tree.through('dir', 'LOOP', 'file')), b'found')
    expect_equal(os.readlink(tree.through('LINK')), b'DIR/FILE')


@fold.test
def removal_by_another_spelling_is_seen_under_all(mount):
    tree = Tree(mount)
    spellings = ['name', 'NAME', 'Name', 'nAME']
    for number in range(100):
        make(tree.through(spellings[number % 4]))
        for name in spellings:
            os.stat(tree.through(name))
        os.unlink(tree.through(spellings[(number + 1) % 4]))
        for name in spellings:
            absent(tree.through(name))


@fold.test
def mkdir_p_by_another_spelling_makes_nothing(mount):
    tree = Tree(mount)
    os.makedirs(tree.through('A', 'b', 'C'))
    mounted.run('mkdir', '-p', tree.through('a', 'B', 'c'))
    expect_equal(tree.listing(), [b'A'])
    expect_equal(os.listdir(tree.below('A', 'b')), [b'C'])


def main():
    word = tap.arguments().k
    for mode in ('fold', 'exact'):
        def whole():
            mounted.need_foldfs()
            with Area('dir') as area, Mount(area.dir('source'), 'lookup=' + mode) as mount:
                for suite in (both, fold if mode == 'fold' else exact):
                    suite.run(mount, suffix='_in_mode_' + mode, word=word)
        tap.run_one('lookup_tests_mount_and_unmount_in_mode_' + mode, whole)
    sys.exit(tap.status())


main()
