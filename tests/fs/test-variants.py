#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be made, in both modes of look-up: never a second variant of a name; the spelling kept;
a rename onto another spelling leaves one entry, with the new one.  A case-only rename is tried
through lookup=exact only: otherwise the kernel finds the same inode under both names and does
nothing, without asking."""
import os
import socket

import mounted
import syscalls as sc
import trees
from compare import respell
from tap import expect, expect_equal
from trees import SPELLINGS, Tree, absent, error_of, make, read

modes = trees.Modes()
fold, both, exact = modes.fold, modes.both, modes.exact


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


# Renaming


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


modes.main('variant')
