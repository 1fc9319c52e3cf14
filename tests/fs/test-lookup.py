#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a name finds, in both modes of look-up: exact spelling first, else the bytewise smallest
variant; all of them listed and all removable; one file under every spelling."""
import itertools
import mmap
import os

import mounted
import tap
import trees
from tap import expect_equal
from trees import SPELLINGS, Tree, absent, error_of, make, read

modes = trees.Modes()
fold, both, exact = modes.fold, modes.both, modes.exact

# Names that look alike and are different.
DIFFERENT = (
    ('straße', 'strasse'), ('ς', 'Σ'), ('ı', 'I'), ('İ', 'i'), ('é', 'e\u0301'), ('k', '\u212a'),
    ('ﬁ', 'fi'), (b'caf\xe9', b'CAF\xe9'), (b'\x83a', b'\x83A'), ('か', 'カ'), ('\u01c5', '\u01c6'),
)


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


modes.main('lookup')
