#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rename that changes only the case of a name, as a program calls for it on any file system: by
every call, of every kind of file, by every sort of path.  Each is looked at on disk, below the
mount."""
import errno
import itertools
import os

import mounted
import syscalls as sc
from caseonly import CALLS, KINDS, Place, isolate, main, make, outcome, shell
from tap import Suite, expect, expect_equal

# The two cases of ⱥ differ in length.
NAMES = (('foo', 'Foo'), ('ärger.TXT', 'ÄRGER.txt'), ('ｆｕｌｌカナ', 'Ｆｕｌｌカナ'),
         ('ひらがなa', 'ひらがなA'), ('ⱥ', 'Ⱥ'), ('a' * 255, 'A' * 255),
         ('ä' * 127 + 'x', 'Ä' * 127 + 'x'), ('with space', 'With Space'), ('-r', '-R'),
         ('new\nline', 'New\nLine'), ('σίγμα', 'ΣΊΓΜΑ'),
         ('~a.b', '~A.B'), ('b\\a', 'B\\a'), ('ß\U00010428x', 'ß\U00010428X'))
suite, fold_only = Suite(), Suite()


def there_and_back(place, call, folder, names, kind):
    old, new = names
    KINDS[kind](os.path.join(place.below, old))
    ino = os.lstat(os.path.join(place.below, old)).st_ino
    for one, two in ((old, new), (new, old), (old, new)):
        call(folder, one, two)
        place.expect_names(two, what=f'{kind} {one!r} -> {two!r}')
        for name in {two, one if place.mount.folds else two}:
            expect_equal(os.lstat(place(name)).st_ino, ino, name)
    if kind == 'full_directory':
        place.expect_names('inside', folder=new)


def add_call_tests():
    for name, call in CALLS.items():
        def test(mount, name=name, call=call):
            for kind in KINDS:
                place = Place(mount, f'{name}-{kind}')
                there_and_back(place, call, place.path, ('foo', 'Foo'), kind)
        test.__name__ = f'each_kind_by_{name}'
        suite.test(test)


add_call_tests()


@suite.test
def names_of_every_sort(mount):
    for number, names in enumerate(NAMES):
        for kind, call in (('file', CALLS['rename']), ('full_directory', CALLS['renameat2'])):
            place = Place(mount, f'name-{number}-{kind}')
            there_and_back(place, call, place.path, names, kind)


@suite.test
def unequal_names_are_no_change_of_case(mount):
    place = Place(mount, 'd')
    for old, new in (('ß', 'SS'), ('é', 'e\u0301'), ('ı', 'I')):
        make(place(old))
        os.rename(place(old), place(new))
        place.expect_names(new)
        os.unlink(place(new))


class Paths:
    """A tree with links into it; a link outside of the mount leads to it too."""

    def __init__(self, mount):
        self.place = place = Place(mount, 'Tree')
        self.mount = mount
        os.makedirs(place.below + '/Dir/Sub/Deep')
        os.symlink('Dir/Sub', place.below + '/relative')
        os.symlink(place('Dir'), place.below + '/absolute')
        os.symlink('relative/../Sub', place.below + '/twice')
        os.symlink(place('Dir', 'Sub'), mount.top + '/outside')
        os.symlink('mnt/Tree/relative', mount.top + '/outside-relative')

    def check(self, cwd, old, new, *args, kind='file'):
        """Renames in Dir/Sub from directory CWD."""
        below = os.path.join(self.place.below, 'Dir', 'Sub')
        KINDS[kind](below + '/foo')

        def rename():
            os.chdir(cwd)
            os.rename(old, new, *args)
        expect_equal(outcome(rename), None, (cwd, old, new))
        self.place.expect_names('Deep', 'Foo', folder='Dir/Sub', what=(cwd, old, new))
        mounted.run('rm', '-r', below + '/Foo')


@suite.test
def paths_of_every_form(mount):
    paths = Paths(mount)
    sub, deep = paths.place('Dir', 'Sub'), paths.place('Dir', 'Sub', 'Deep')
    for cwd, folder in ((sub, ''), (sub, './'), (sub, './/.//'), (sub, '../Sub/'), (deep, '../'),
                        (deep, '../../Sub/'), (deep, './../Deep/..//'), (paths.place(), 'Dir/Sub/'),
                        (paths.place(), 'Dir//Sub//'), (paths.place(), 'relative/'),
                        (paths.place(), 'absolute/Sub/'), (paths.place(), 'twice/'),
                        (paths.place(), 'relative/Deep/../'), ('/', sub + '/'),
                        (mount.top, 'mnt/Tree/Dir/Sub/'), (mount.top, 'outside/'),
                        (mount.top, 'outside-relative/'), (mount.top, 'outside/Deep/../'),
                        ('/', mount.top + '/../' + os.path.basename(mount.top) + '/outside/'),
                        ('/usr', '../' * 9 + sub[1:] + '/'), (sub, os.path.join(sub, ''))):
        paths.check(cwd, folder + 'foo', folder + 'Foo')
    for old, new in (('', sub + '/'), (sub + '/', ''), ('./', '../Sub/'), ('', 'Deep/../'),
                     (mount.top + '/outside/', ''), ('../../relative/', '../../absolute/Sub/')):
        paths.check(sub, old + 'foo', new + 'Foo')


@suite.test
def trailing_slashes(mount):
    paths = Paths(mount)
    for old, new in (('foo/', 'Foo'), ('foo', 'Foo/'), ('foo//', 'Foo///'), ('./foo/', './/Foo/')):
        paths.check(paths.place('Dir', 'Sub'), old, new, kind='full_directory')
    make(paths.place('file'))
    for old, new in (('file', 'File/'), ('file/', 'File')):
        expect_equal(outcome(os.rename, paths.place(old), paths.place(new)), errno.ENOTDIR)
    expect('file' in paths.place.names(), paths.place.names())


@fold_only.test
def directories_spelled_in_any_way(mount):
    paths = Paths(mount)
    top = paths.place()
    for old, new in (('DIR/sub/', 'dir/SUB/'), ('dir/sub/', 'dir/sub/'), ('Dir/Sub/', 'DIR/Sub/'),
                     ('RELATIVE/', 'relative/'), ('TWICE/', 'Absolute/SUB/'),
                     ('dIR/sUB/dEEP/../', 'Dir/Sub/')):
        paths.check(top, old + 'foo', new + 'Foo')
        paths.check('/', os.path.join(top, old) + 'foo', os.path.join(top, new) + 'Foo')
    paths.check(paths.place('DIR', 'sub'), 'foo', 'Foo')
    paths.check(paths.place('DIR', 'sub'), 'foo', paths.place('dIR', 'sUB', 'Foo'))
    paths.check(mount.path + '/TREE', 'DIR/sub/foo', mount.path + '/trEE/dir/SUB/Foo')


@fold_only.test
def spelling_on_disk_is_neither_of_the_two(mount):
    place = Place(mount, 'd')
    for kind in KINDS:
        KINDS[kind](place('FOO'))
        os.rename(place('foo'), place('fOo'))
        place.expect_names('fOo')
        os.rename(place('FOO'), place('fOO'))
        place.expect_names('fOO')
        os.rename(place('Foo'), place('fOO'))  # it has it already
        place.expect_names('fOO')
        os.rename(place('fOO'), place('fOO'))
        place.expect_names('fOO')
        mounted.run('rm', '-r', place('fOO'))


@fold_only.test
def directory_named_like_what_is_in_it(mount):
    for number, (old, new, want) in enumerate((
            ('Foo/foo', 'Foo/Foo', ('foo', 'Foo')), ('foo/foo', 'foo/Foo', ('foo', 'Foo')),
            ('foo/foo', 'Foo/Foo', ('foo', 'Foo')), ('Foo/foo', 'foo/Foo', ('foo', 'Foo')),
            ('FOO/foo/../foo', 'FOO/FOO/../Foo', ('foo', None)),
            ('Foo/../foo', 'Foo/../Foo', (None, None)), ('foo', 'Foo/../Foo', (None, None)),
            ('foo/../foo', 'foo/../Foo', ('Foo', 'foo')), ('Foo/../foo', 'Foo', (None, None)),
            ('Foo/foo/../../foo', 'Foo/Foo/../../Foo', (None, None)))):
        place = Place(mount, f'like-{number}')
        os.makedirs(place.below + '/foo/foo')

        def rename():
            os.chdir(place.path)
            os.rename(old, new)
        expect_equal(outcome(rename), None, (old, new))
        above, = place.names()
        inner, = place.names(above)
        for got, wanted in ((above, want[0]), (inner, want[1])):  # None: in doubt
            expect(got == wanted or wanted is None and got.lower() == 'foo',
                   (old, new, above, inner))


@fold_only.test
def rename_in_two_directories_is_a_move(mount):
    place = Place(mount, 'd')
    os.mkdir(place('one'))
    os.mkdir(place('two'))
    make(place('one', 'foo'), b'1')
    make(place('two', 'foo'), b'2')
    os.rename(place('one', 'foo'), place('two', 'Foo'))
    place.expect_names(folder='one')
    place.expect_names('Foo', folder='two')
    with open(place('two', 'foo'), 'rb') as file:
        expect_equal(file.read(), b'1')


@fold_only.test
def rename_onto_another_spelling_of_another_file(mount):
    for kind, call in itertools.product(('file', 'empty_directory', 'symlink'),
                                        ('rename', 'renameat')):
        place = Place(mount, f'{kind}-{call}')
        KINDS[kind](place('a'))
        ino = os.lstat(place('a')).st_ino
        KINDS[kind](place('foo'))
        CALLS[call](place.path, 'a', 'FOO')
        place.expect_names('FOO')
        expect_equal(os.lstat(place('foo')).st_ino, ino)
        KINDS[kind](place('a'))
        expect_equal(outcome(CALLS['renameat2_noreplace'], place.path, 'a', 'fOO'), errno.EEXIST)
        place.expect_names('FOO', 'a')


@fold_only.test
def links_of_one_file(mount):
    place = Place(mount, 'd')
    make(place('a'))
    os.link(place('a'), place('foo'))
    os.rename(place('a'), place('FOO'))  # two links of one file: nothing happens
    place.expect_names('a', 'foo')
    os.rename(place('foo'), place('FOO'))  # one link's case
    place.expect_names('FOO', 'a')
    os.mkdir(place('sub'))
    os.link(place('a'), place('sub', 'foo'))
    os.rename(place('sub', 'foo'), place('sub', 'Foo'))
    place.expect_names('Foo', folder='sub')
    os.rename(place('FOO'), place('sub', 'foo'))
    place.expect_names('Foo', folder='sub')
    place.expect_names('FOO', 'a', 'sub')


@fold_only.test
def exchange_keeps_its_meaning(mount):
    place = Place(mount, 'd')
    make(place('foo'), b'foo')
    make(place('bar'), b'bar')
    sc.renameat2(place('foo'), place('Foo'), sc.RENAME_EXCHANGE)
    place.expect_names('bar', 'foo')
    sc.renameat2(place('foo'), place('BAR'), sc.RENAME_EXCHANGE)
    place.expect_names('bar', 'foo')
    with open(place('foo'), 'rb') as file:
        expect_equal(file.read(), b'bar')
    expect_equal(outcome(sc.renameat2, place('foo'), place('x'), sc.RENAME_EXCHANGE), errno.ENOENT)
    expect_equal(outcome(sc.renameat2, place('foo'), place('Foo'), sc.RENAME_EXCHANGE | 1),
                 errno.EINVAL)


@suite.test
def noreplace_refuses_the_name_itself(mount):
    place = Place(mount, 'd')
    make(place('foo'))
    expect_equal(outcome(sc.renameat2, place('foo'), place('foo'), sc.RENAME_NOREPLACE),
                 errno.EEXIST)
    expect_equal(outcome(sc.renameat2, place('foo'), place('Foo'), sc.RENAME_NOREPLACE), None)
    place.expect_names('Foo')


@suite.test
def absent_source_is_absent(mount):
    place = Place(mount, 'd')
    for call in CALLS.values():
        expect_equal(outcome(call, place.path, 'foo', 'Foo'), errno.ENOENT)
    place.expect_names()


@suite.test
def mv_of_files_and_directories(mount):
    place = Place(mount, 'd')
    shell(place, 'echo x > foo; mv foo Foo')
    place.expect_names('Foo')
    shell(place, 'mv "$PWD/Foo" "$PWD/foo"; mkdir dir; touch dir/inside; mv dir Dir; '
                 'mv -T Dir/ DIR')
    place.expect_names('DIR', 'foo')
    place.expect_names('inside', folder='DIR')
    shell(place, 'mv -n foo FOO; ln -s foo link; mv link Link')
    place.expect_names('DIR', 'FOO', 'Link')


@suite.test
def mv_of_the_directory_that_a_shell_is_in(mount):
    place = Place(mount, 'd')
    os.makedirs(place('dir', 'sub'))
    said = shell(place, 'cd dir/sub; mv ../../dir ../../Dir; touch here; /bin/pwd; cd ..; /bin/pwd; '
                        'mv sub Sub; ls; cd Sub; mv "$PWD/here" "$PWD/Here"; ls')
    inner, above, *names = said.split()  # the shell went up by the name that it knew
    expect_equal((inner, above.lower()), (place('Dir', 'sub'), place('dir').lower()))
    expect_equal(names, ['Sub', 'Here'])
    place.expect_names('Here', folder='Dir/Sub')


@suite.test
def git_mv(mount):
    git = mounted.tool('git')
    place = Place(mount, 'd')
    os.chmod(place.below, 0o755)
    shell(place, f'''export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a \
        GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
        {git} init -q; mkdir dir; echo x > readme; echo y > dir/file
        {git} add .; {git} commit -qm first
        {git} mv readme README; {git} mv dir/file dir/File; {git} commit -qm second
        test -z "$({git} status --porcelain)"
        test "$({git} ls-files | tr '\\n' ' ')" = 'README dir/File '
        mv dir Dir; {git} -c core.ignorecase=false add -A''')
    expect('README' in place.names() and 'Dir' in place.names(), place.names())
    place.expect_names('File', folder='Dir')


@fold_only.test
def no_false_absence_where_paths_end_at_a_root_of_their_own(mount):
    """".." at a root stays there: who follows it further comes to a directory by another way than
    the kernel, which still is at the step before."""
    place = Place(mount, 'd')
    os.makedirs(place.below + '/sub/foo/l')
    make(place.below + '/sub/foo/l/foo')
    os.makedirs(place.below + '/Foo')
    os.symlink('../sub', place.below + '/Foo/l')
    os.makedirs(place.below + '/b/foo')
    os.symlink('../../sub', place.below + '/b/foo/l')
    known = [os.open(place(name), os.O_PATH) for name in ('Foo', 'b/foo', 'sub')]

    def chrooted():
        os.chroot(place('sub'))
        os.chdir('/')
        os.rename('/../Foo/l/foo', '/../Foo/l/Foo')

    def mounted_over():
        isolate()
        mounted.run('mount', '--bind', place('sub'), place('b'))
        os.rename(place('b', 'Foo', 'l', 'foo'), place('b', 'Foo', 'l', 'Foo'))
    try:
        for function in (chrooted, mounted_over):
            expect_equal(outcome(function), None, function.__name__)
            names = place.names('sub/foo/l')
            expect(names in (['foo'], ['Foo']), names)
            os.rename(place('sub', 'foo', 'l', 'foo'), place('sub', 'foo', 'l', 'foo'))
    finally:
        for fd in known:
            os.close(fd)


@suite.test
def paths_by_way_of_proc(mount):
    place = Place(mount, 'd')
    make(place.below + '/foo')

    def by_descriptor(old, new):
        fd = os.open(place.path, os.O_PATH)
        os.rename(f'/proc/self/fd/{fd}/{old}', f'/proc/self/fd/{fd}/{new}')

    def by_cwd(old, new):
        os.chdir(place.path)
        os.rename(f'/proc/self/cwd/{old}', new)
    for how, old, new in ((by_descriptor, 'foo', 'Foo'), (by_cwd, 'Foo', 'foo')):
        expect_equal(outcome(how, old, new), None)
        place.expect_names(new, what=how.__name__)


main(suite, fold_only)
