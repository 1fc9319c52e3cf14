#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tools that walk, copy, pack, clone and build give inside the mount the same tree as beside it."""
import os
import shutil
import stat
import subprocess
import sys

import mounted
import tap
from compare import digest
from mounted import Area, Mount
from tap import Skip, expect, expect_equal, scaled

suite = tap.Suite()
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
FILES = scaled(300, 50)  # in each directory of the sample
BILLION = 10**9


def make_sample(top):
    """A tree with everything that a copy can lose."""
    os.mkdir(top)
    for folder in ('Plain', 'Plain/Below', 'Ärger', '日本語', 'empty'):
        os.mkdir(os.path.join(top, folder))
    for folder in ('Plain', 'Ärger'):
        for number in range(FILES):
            path = os.path.join(top, folder, f'File-{number}.TXT')
            with open(path, 'wb') as file:
                file.write(b'%d ' % number * (number % 700))
            os.chmod(path, (0o644, 0o600, 0o755, 0o4755, 0o2750)[number % 5])
    for name in (b'caf\xe9', b'\x83A', b'new\nline', b' lead', b'n' * 255, 'か'.encode() * 85):
        with open(os.path.join(os.fsencode(top), b'Plain', b'Below', name), 'wb') as file:
            file.write(name)
    os.link(os.path.join(top, 'Plain/File-1.TXT'), os.path.join(top, 'Ärger/Hard-Link'))
    os.link(os.path.join(top, 'Plain/File-1.TXT'), os.path.join(top, '日本語/another'))
    os.symlink('../Plain/File-2.TXT', os.path.join(top, 'Ärger/link'))
    os.symlink('/nowhere/AT/all', os.path.join(top, 'dangling'))
    os.mkfifo(os.path.join(top, 'fifo'))
    os.mknod(os.path.join(top, 'device'), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.chown(os.path.join(top, 'Plain/File-3.TXT'), 60001, 60100)
    os.chown(os.path.join(top, 'Plain'), 60002, 60100)
    os.chmod(os.path.join(top, 'Plain'), 0o2775)
    os.chmod(os.path.join(top, 'empty'), 0o1777)
    os.setxattr(os.path.join(top, 'Plain/File-4.TXT'), 'user.note', b'kept \0 bytes')
    os.setxattr(os.path.join(top, 'Plain/File-4.TXT'), 'trusted.note', b'by root')
    mounted.run(mounted.tool('setfacl'), '-m', 'u:60002:rw,d:g:60100:rwx',
                os.path.join(top, 'Ärger'))
    with open(os.path.join(top, 'sparse'), 'wb') as file:
        file.truncate(8 << 20)
        file.seek(4 << 20)
        file.write(b'middle')
    for folder, folders, files in os.walk(os.fsencode(top), topdown=False):
        for number, name in enumerate(sorted(folders + files)):
            os.utime(os.path.join(folder, name), follow_symlinks=False,
                     ns=(BILLION, BILLION * number + number))
    os.utime(top, ns=(BILLION, BILLION))


def tree(top, times=True):
    """What two equal trees have in common."""
    found, links = {}, {}
    top = os.fsencode(top)
    for folder, folders, files in os.walk(top):
        for name in [b''] + folders + files:
            path = os.path.join(folder, name) if name else folder
            st = os.lstat(path)
            kind = stat.S_IFMT(st.st_mode)
            entry = [f'{st.st_mode:o}', st.st_uid, st.st_gid, st.st_rdev]
            if kind != stat.S_IFDIR:
                entry += [st.st_size, st.st_nlink]
            if times and kind != stat.S_IFLNK:
                entry.append(st.st_mtime_ns)
            if kind == stat.S_IFREG:
                entry.append(digest(path))
            if kind == stat.S_IFLNK:
                entry.append(os.readlink(path))
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                entry.append({n: os.getxattr(path, n) for n in sorted(os.listxattr(path))})
            if kind != stat.S_IFDIR and st.st_nlink > 1:
                links.setdefault((st.st_dev, st.st_ino), []).append(os.path.relpath(path, top))
            found[os.path.relpath(path, top)] = entry
    found['hard links'] = sorted(sorted(paths) for paths in links.values())
    return found


class Places:
    """The sample on the bare tree and through the mount, and a place for copies of each."""

    def __init__(self, area, mount):
        self.mount = mount
        self.bare = area.dir('bare')
        self.sample = os.path.join(mount.path, 'Sample')
        make_sample(os.path.join(self.bare, 'Sample'))
        make_sample(self.sample)

    def each(self, name):
        """(sample, target) for a copy that stays beside the mount, one out of it, one into it, one
        inside it; the first is what the others must equal."""
        native, inside = os.path.join(self.bare, 'Sample'), self.sample
        for number, (source, top) in enumerate(((native, self.bare), (inside, self.bare),
                                                (native, self.mount.path),
                                                (inside, self.mount.path))):
            yield source, os.path.join(top, f'{name}-{number}')

    def compare_copies(self, name, copy, **how):
        want = None
        for source, target in self.each(name):
            copy(source, target)
            got = tree(target, **how)
            expect(len(got) > 2 * FILES, f'{target} has {len(got)} entries only')
            want = want or got
            expect_equal(got, want, target)
            shutil.rmtree(target)
            expect(not os.path.exists(target), f'{target} could not be removed')


def output_in(folder, *command):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    expect_equal((done.returncode, done.stderr), (0, b''), command)
    return done.stdout


def expect_same_output(places, *command):
    below = os.path.join(places.mount.source, 'Sample')
    want = output_in(below, *command)
    expect(len(want) > 100, f'{command} says nothing: {want}')
    got = output_in(places.sample, *command)
    expect(sorted(got.splitlines()) == sorted(want.splitlines()),
           f'{command} says\n{got[:2000]}\nwant\n{want[:2000]}')


@suite.test
def sample_made_through_the_mount_is_the_one_made_beside_it(places):
    expect_equal(tree(places.sample), tree(os.path.join(places.bare, 'Sample')))
    expect_equal(tree(os.path.join(places.mount.source, 'Sample')), tree(places.sample))


@suite.test
def find_sees_the_same(places):
    expect_same_output(places, 'find', '.', '-printf', '%P %y %m %U %G %s %n %i %T@ %l\\n')
    expect_same_output(places, 'find', '.', '-type', 'f', '-newermt', '1902-01-01')
    expect_same_output(places, 'find', '.', '-depth', '-name', '*[eE]*', '-size', '+0')


@suite.test
def ls_says_the_same(places):
    expect_same_output(places, 'ls', '-lanR', '--full-time')
    expect_same_output(places, 'ls', '-liRU')


@suite.test
def du_and_stat_say_the_same(places):
    expect_same_output(places, 'du', '-a', '--block-size=512')
    expect_same_output(places, 'sh', '-c', 'stat -c "%n %a %u %g %s %b %h %F %i" * */*')


@suite.test
def getfattr_and_getfacl_say_the_same(places):
    expect_same_output(places, mounted.tool('getfattr'), '-R', '-h', '-d', '-m', '-', '.')
    expect_same_output(places, mounted.tool('getfacl'), '-R', '-p', '-n', '.')


@suite.test
def sums_are_the_same(places):
    expect_same_output(places, 'sh', '-c', 'find . -type f -print0 | sort -z | xargs -0 sha256sum')


@suite.test
def cp_a_copies_everything(places):
    places.compare_copies('cp', lambda a, b: mounted.run('cp', '-a', a, b))


@suite.test
def cp_r_copies_content(places):
    places.compare_copies('cpr', lambda a, b: mounted.run('cp', '-r', a, b), times=False)


@suite.test
def rsync_copies_everything(places):
    rsync = mounted.tool('rsync')
    places.compare_copies('rsync', lambda a, b: mounted.run(rsync, '-aHAX', a + '/', b + '/'))


@suite.test
def rsync_finds_nothing_to_do_the_second_time(places):
    rsync = mounted.tool('rsync')
    target = os.path.join(places.mount.path, 'again')
    mounted.run(rsync, '-aHAX', places.sample + '/', target + '/')
    said = mounted.run(rsync, '-aHAXi', '--delete', places.sample + '/', target + '/')
    expect_equal(said, '')
    shutil.rmtree(target)


@suite.test
def tar_packs_and_unpacks_everything(places):
    def copy(source, target):
        os.mkdir(target)
        mounted.run('sh', '-c', 'tar --xattrs --xattrs-include=* --acls -S -C "$1" -cf - . | '
                    'tar --xattrs --xattrs-include=* --acls -p -C "$2" -xf -', 'sh', source, target)
    places.compare_copies('tar', copy)


@suite.test
def tar_says_no_file_changed(places):
    said = subprocess.run(['tar', '-cf', '/dev/null', '-C', places.sample, '.'],
                          stderr=subprocess.PIPE, text=True, check=False)
    expect_equal((said.returncode, said.stderr), (0, ''))
    archive = os.path.join(places.mount.path, 'archive.tar')
    mounted.run('tar', '-cf', archive, '-C', places.sample, '.')
    mounted.run('tar', '--compare', '-f', archive, '-C', places.sample)
    os.unlink(archive)


@suite.test
def mv_between_file_systems_and_inside(places):
    work = os.path.join(places.mount.path, 'moving')
    mounted.run('cp', '-a', places.sample, work)
    want = tree(work)
    for target in (os.path.join(places.bare, 'moved'), os.path.join(places.mount.path, 'back'),
                   os.path.join(places.mount.path, 'Plain-Rename')):
        mounted.run('mv', work, target)
        expect(not os.path.exists(work), f'{work} is left')
        expect_equal(tree(target), want)
        work = target
    shutil.rmtree(work)


@suite.test
def rm_rf_removes_all(places):
    target = os.path.join(places.mount.path, 'to-remove')
    mounted.run('cp', '-a', places.sample, target)
    mounted.run('rm', '-rf', target)
    expect_equal([n for n in os.listdir(places.mount.source) if n == 'to-remove'], [])


@suite.test
def git_clones_commits_and_is_clean(places):
    git = mounted.tool('git')
    environment = dict(os.environ, GIT_CONFIG_GLOBAL='/dev/null', GIT_CONFIG_SYSTEM='/dev/null',
                       GIT_AUTHOR_NAME='A', GIT_AUTHOR_EMAIL='a@example.org',
                       GIT_COMMITTER_NAME='A', GIT_COMMITTER_EMAIL='a@example.org',
                       GIT_AUTHOR_DATE='2020-01-01T00:00:00Z',
                       GIT_COMMITTER_DATE='2020-01-01T00:00:00Z')

    def in_repository(top, *arguments):
        return mounted.run(git, '-C', top, *arguments, env=environment).strip()

    heads = []
    for top in (places.bare, places.mount.path):
        origin, clone = os.path.join(top, 'origin'), os.path.join(top, 'clone')
        mounted.run(git, 'init', '-q', origin, env=environment)
        for number in range(FILES):
            with open(os.path.join(origin, f'Source-{number}.c'), 'w', encoding='ascii') as file:
                file.write(f'int f{number}(void);\n' * 20)
        in_repository(origin, 'add', '.')
        in_repository(origin, 'commit', '-qm', 'first')
        mounted.run(git, 'clone', '-q', origin, clone, env=environment)
        for number in range(0, FILES, 3):
            os.unlink(os.path.join(clone, f'Source-{number}.c'))
        with open(os.path.join(clone, 'New'), 'w', encoding='ascii') as file:
            file.write('new\n')
        in_repository(clone, 'add', '-A')
        in_repository(clone, 'commit', '-qm', 'second')
        in_repository(clone, 'gc', '-q')
        in_repository(clone, 'fsck', '--strict')
        in_repository(clone, 'checkout', '-q', 'HEAD~1')
        expect_equal(in_repository(clone, 'status', '--porcelain'), '')
        in_repository(clone, 'checkout', '-q', '-')
        expect_equal(in_repository(clone, 'status', '--porcelain'), '')
        heads.append(in_repository(clone, 'rev-parse', 'HEAD'))
        shutil.rmtree(origin)
        files = {n for n in os.listdir(clone) if n != '.git'}
        heads.append(sorted(files))
        shutil.rmtree(clone)
    expect_equal(heads[2:], heads[:2])


@suite.test
def meson_builds_foldfs_itself(places):
    """The same source, below and in the mount; the same programs must come out."""
    meson, ninja = mounted.tool('meson'), mounted.tool('ninja')
    outcomes = []
    for top in (places.bare, places.mount.path):
        source, build = os.path.join(top, 'foldfs-source'), os.path.join(top, 'foldfs-build')
        os.mkdir(source)
        for part in ('src', 'tests', 'contrib', 'man', 'meson.build'):
            if os.path.exists(os.path.join(TOP, part)):
                mounted.run('cp', '-r', os.path.join(TOP, part), source)
        try:
            mounted.run(meson, 'setup', '-Dbuildtype=debug',
                        f'-Dc_args=-ffile-prefix-map={top}=.', build, source)
            mounted.run(ninja, '-C', build, 'src/foldfs')
            said = mounted.run(ninja, '-C', build, '-n', 'src/foldfs')
            expect('no work to do' in said, f'ninja would build again:\n{said}')
            outcomes.append({name: digest(os.path.join(build, 'src', path))
                             for name, path in (('foldfs', 'foldfs'),
                                                ('table', 'fold/upcase-table.h'))})
        finally:
            shutil.rmtree(source)
            shutil.rmtree(build, ignore_errors=True)
    expect_equal(outcomes[1], outcomes[0])


@suite.test
def case_insensitive_scripts_find_their_files(places):
    mounted.need_foldfs()
    if places.mount.has_option('lookup=exact'):
        raise Skip('look-ups are exact')
    script = 'cat PLAIN/file-5.txt && cd ÄRGER && cat LINK && test -p ../FIFO && ls HARD-LINK'
    want = 'cat Plain/File-5.TXT && cd Ärger && cat link && test -p ../fifo && echo HARD-LINK'
    expect_equal(output_in(places.sample, 'sh', '-c', script),
                 output_in(os.path.join(places.bare, 'Sample'), 'sh', '-c', want))


def main():
    word = tap.arguments().k

    def whole():
        with Area('ext4', 512) as area, Mount(area.dir('source')) as mount:
            suite.run(Places(area, mount), word=word)
    tap.run_one('tool_tests_mount_and_unmount', whole)
    sys.exit(tap.status())


main()
