#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user who means harm, or a program that does not care, can do to a mount and to other users
of it.  Each test has a mount of its own, since a daemon with few descriptors, or one that dies, is
part of it."""
import errno
import fcntl
import os
import random
import subprocess
import time

import mounted
import tap
from mounted import Area, Mount
from tap import Failure, Skip, expect, expect_equal, scaled

NOBODY, SOMEBODY = 65534, 1001
ANSWER_S = 10            # an answer that takes longer does not come
FEW_FILES = ('prlimit', '--nofile=64')
NO_CACHE = 'attr_timeout=0,entry_timeout=0'

suite = tap.Suite()


class Place:
    """A file system, a mount, and both ways to a path."""

    def __init__(self, options='', wrapper=(), kind='ext4'):
        self.area = Area(kind)
        self.options, self.wrapper = options, wrapper

    def __enter__(self):
        self.area.__enter__()
        self.mount = Mount(self.area.dir('source'), self.options, wrapper=self.wrapper)
        try:
            self.mount.__enter__()
        except BaseException:
            self.area.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *failure):
        try:
            self.mount.__exit__(*failure)
        finally:
            self.area.__exit__(*failure)

    def through(self, *names):
        return os.path.join(self.mount.path, *names)

    def below(self, *names):
        return os.path.join(self.mount.source, *names)


def make(*paths):
    for path in paths:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def outcome(function, *args, **kwargs):
    """'done', or the name of the error."""
    try:
        function(*args, **kwargs)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]


def as_user(uid, function, *args):
    """What FUNCTION returns in a process of user UID; it must fit a pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(writer, repr(function(*args)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, 'rb') as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    if not text:
        raise Failure('the process of the other user failed')
    return text


def within(seconds, code, *arguments, **kwargs):
    """Runs Python CODE in a process; its output, or Failure if it takes longer."""
    child = subprocess.Popen(['/usr/bin/env', 'python3', '-c', code, *map(str, arguments)],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    try:
        return child.communicate(timeout=seconds)[0].strip()
    except subprocess.TimeoutExpired:
        child.kill()
        raise Failure(f'no answer within {seconds} s') from None


ASK = '''
import errno, os, sys
try:
    os.lstat(sys.argv[1], dir_fd=int(sys.argv[2]) if len(sys.argv) > 2 else None)
    print('done')
except OSError as error:
    print(errno.errorcode[error.errno])
'''


def fill_the_descriptors(place, count=60):
    """Looks at more files than the daemon keeps descriptors of."""
    if not os.path.isdir(place.below('other')):
        os.mkdir(place.below('other'))
        make(*(place.below('other', f'file-{n}') for n in range(count)))
    for n in range(count):
        os.lstat(place.through('other', f'file-{n}'))


@suite.test
def sticky_directory_protects_other_spellings():
    """The name meant one's own entry when the kernel looked, and another's when it is removed."""
    with Place() as place:
        os.mkdir(place.below('T'))
        os.chmod(place.below('T'), 0o1777)
        for name in ('foo', 'target'):
            os.mkdir(place.below('T', name))
            os.chown(place.below('T', name), NOBODY, NOBODY)

        def attack():
            seen = []
            for action in (lambda p: os.rmdir(p), lambda p: os.rename(p, p + '-mine')):
                own = place.below('T', 'FOO')
                os.mkdir(own)
                os.lstat(place.through('T', 'FOO'))
                os.rmdir(own)
                seen.append(outcome(action, place.through('T', 'FOO')))
            os.mkdir(place.below('T', 'TARGET'))
            os.mkdir(place.below('T', 'mine'))
            os.lstat(place.through('T', 'TARGET'))
            os.rmdir(place.below('T', 'TARGET'))
            seen.append(outcome(os.rename, place.through('T', 'mine'), place.through('T', 'TARGET')))
            return seen
        seen = as_user(SOMEBODY, attack)
        left = sorted(os.listdir(place.below('T')))
        expect('foo' in left and 'target' in left, f'{seen}, left {left}')
        expect_equal(os.stat(place.below('T', 'target')).st_uid, NOBODY, 'owner of the target')


@suite.test
def sticky_directory_protects_files_in_a_race():
    with Place() as place:
        os.mkdir(place.below('T'))
        os.chmod(place.below('T'), 0o1777)
        make(place.below('T', 'victim'))
        os.chown(place.below('T', 'victim'), NOBODY, NOBODY)
        own, end = place.below('T', 'VICTIM'), time.monotonic() + scaled(4, 1)

        def flicker():
            while time.monotonic() < end:
                make(own)
                outcome(os.unlink, own)
            return 'over'

        def attack():
            done = 0
            while time.monotonic() < end and os.path.exists(place.below('T', 'victim')):
                done += outcome(os.unlink, place.through('T', 'VICTIM')) == 'done'
            return done
        pid = os.fork()
        if pid == 0:
            try:
                as_user(SOMEBODY, flicker)
            finally:
                os._exit(0)
        done = as_user(SOMEBODY, attack)
        os.waitpid(pid, 0)
        expect(os.path.exists(place.below('T', 'victim')), f'removed after {done} removals')
        expect(int(done) > 0, 'the race never took place')


@suite.test
def files_removed_under_another_spelling_do_not_use_up_descriptors():
    with Place(wrapper=FEW_FILES) as place:
        for n in range(scaled(500, 200)):
            make(place.through(f'name-{n}'))
            os.lstat(place.through(f'NAME-{n}'))
            os.unlink(place.through(f'name-{n}'))
        expect_equal(os.listdir(place.through()), [])


@suite.test
def linked_unnamed_files_do_not_use_up_descriptors():
    if not mounted.has_tmpfile():
        raise Skip('this kernel or libfuse has no O_TMPFILE in FUSE')
    with Place(wrapper=FEW_FILES) as place:
        for n in range(scaled(300, 150)):
            fd = os.open(place.through(), os.O_TMPFILE | os.O_RDWR, 0o600)
            os.link(f'/proc/self/fd/{fd}', place.through(f'name-{n}'), src_dir_fd=fd,
                    follow_symlinks=True)
            os.close(fd)
        expect_equal(len(os.listdir(place.through())), scaled(300, 150))


@suite.test
def open_files_beyond_the_limit_fail_and_close_again():
    """The one who has them open gets an error; what the daemon still can do, it does."""
    with Place(wrapper=FEW_FILES) as place:
        make(*(place.below(f'file-{n}') for n in range(100)))
        fds, seen = [], 'done'
        for n in range(100):
            try:
                fds.append(os.open(place.through(f'FILE-{n}'), os.O_RDONLY))
            except OSError as error:
                seen = errno.errorcode[error.errno]
                break
        expect_equal(seen, 'EMFILE', f'after {len(fds)} open files')
        for n in range(100):  # never "absent"
            expect(outcome(os.lstat, place.through(f'fILE-{n}')) in ('done', 'EMFILE'), n)
        for fd in fds:
            os.close(fd)
        for n in range(100):
            expect_equal(outcome(os.lstat, place.through(f'fILE-{n}')), 'done', n)
        expect_equal(len(os.listdir(place.through())), 100)


@suite.test
def trusted_names_are_hidden_in_a_user_namespace():
    with Place() as place:
        make(place.below('file'))
        os.setxattr(place.below('file'), 'trusted.secret', b'x')
        os.setxattr(place.below('file'), 'user.known', b'x')
        mounted.tool('unshare')
        code = 'import os, sys; print(os.listxattr(sys.argv[1]))'
        command = ['unshare', '-Ur', '/usr/bin/env', 'python3', '-c', code]
        seen = []
        for top in (place.below, place.through):
            done = subprocess.run(command + [top('file')], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.PIPE, check=False, user=NOBODY, group=NOBODY,
                                  env={'PATH': '/usr/bin:/bin'})
            if done.returncode:
                raise tap.Skip('no user namespaces for users: ' + done.stderr.strip())
            seen.append(done.stdout)
        expect_equal(seen[1], seen[0], 'through the mount, and in the tree')
        expect_equal(sorted(os.listxattr(place.through('file'))), ['trusted.secret', 'user.known'],
                     'what root sees')


@suite.test
def clearing_the_append_flag_lets_a_write_go_where_it_says():
    """Not with passthrough, where the kernel's own descriptor keeps the flag: README names it."""
    with Place('passthrough=off') as place:
        seen = []
        for top in (place.below, place.through):
            fd = os.open(top('file'), os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC)
            os.write(fd, b'0123')
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)
            os.pwrite(fd, b'X', 0)
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
            os.write(fd, b'Y')
            os.close(fd)
            with open(top('file'), 'rb') as file:
                seen.append(file.read())
        expect_equal(seen[1], seen[0])


@suite.test
def real_name_of_strange_names():
    with Place() as place:
        os.mkdir(place.below('Dir'))
        make(place.below('Dir', 'File'))
        for when in ('before a scan', 'after it'):
            for name, want in ((b'', 'EINVAL'), (b'/', 'EINVAL'), (b'a/b', 'EINVAL'),
                               (b'../Dir', 'EINVAL'), (b'.', 'EINVAL'), (b'..', 'EINVAL'),
                               (b'x' * 227, 'ENODATA'), (b'\xff\xfe', 'ENODATA'),
                               (b'a\nb', 'ENODATA'), (b'fILE', b'File\0'), (b'File ', 'ENODATA')):
                attribute = b'glusterfs.get_real_filename:' + name
                try:
                    got = os.getxattr(place.through('dir'), attribute)
                except OSError as error:
                    got = errno.errorcode[error.errno]
                expect_equal(got, want, f'{name} {when}')


@suite.test
def strange_attribute_names_do_no_harm():
    with Place() as place:
        os.mkdir(place.below('Dir'))
        rng = random.Random(7)
        spaces = (b'glusterfs.get_real_filename:', b'glusterfs.', b'user.', b'trusted.', b'')
        for _ in range(scaled(3000, 300)):
            name = rng.choice(spaces) + bytes(rng.randrange(1, 256) for _ in
                                              range(rng.randrange(1, 300)))
            for action in (os.getxattr, os.removexattr,
                           lambda path, attribute: os.setxattr(path, attribute, b'value')):
                outcome(action, place.through('dir'), name)
        expect_equal(os.listdir(place.through('DIR')), [])


@suite.test
def strange_ioctls_do_no_harm():
    """Only what the tree would refuse too, or carry out on this one file, comes back."""
    with Place() as place:
        make(place.below('file'))
        os.mkdir(place.below('dir'))
        before = os.stat(place.below('file')).st_mode
        rng = random.Random(8)
        for name in ('file', 'dir'):
            fd = os.open(place.through(name), os.O_RDONLY)
            for _ in range(scaled(3000, 300)):
                number = rng.choice((rng.getrandbits(32), 0x660000 + rng.getrandbits(16),
                                     0x40086602, 0x80086601, 0x801c581f, 0x401c5820))
                if number in (0x40086602, 0x401c5820):  # flags: only what is harmless
                    argument = bytes(64)
                else:
                    argument = bytes(rng.getrandbits(8) for _ in range(64)) + bytes(16384)
                try:
                    fcntl.ioctl(fd, number, bytearray(argument))
                except OSError:
                    pass
            os.close(fd)
        expect_equal(os.stat(place.below('file')).st_mode, before)
        os.unlink(place.through('FILE'))
        os.rmdir(place.through('DIR'))


@suite.test
def exotic_callers_are_who_they_are():
    with Place() as place:
        os.chmod(place.below(), 0o777)
        for uid, gid in ((2**32 - 2, 2**32 - 2), (2**31, 5), (2**32 - 3, 65534)):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    os.setgroups(list(range(70000, 72000)))
                    os.setgid(gid)
                    os.setuid(uid)
                    make(place.through(f'File-{uid}'))
                    os.mkdir(place.through(f'Dir-{uid}'))
                    os.rename(place.through(f'DIR-{uid}'), place.through(f'Moved-{uid}'))
                    status = 0
                finally:
                    os._exit(status)
            expect_equal(os.waitpid(pid, 0)[1], 0, f'status of user {uid}')
            for name in (f'File-{uid}', f'Moved-{uid}'):
                st = os.stat(place.below(name))
                expect_equal((st.st_uid, st.st_gid), (uid, gid), name)


@suite.test
def renamed_behind_without_handles_are_reached():
    with Place('without=handles', FEW_FILES) as place:
        make(*(place.below(f'a-{n}') for n in range(100)))
        for n in range(100):
            os.lstat(place.through(f'A-{n}'))
        for n in range(100):
            os.rename(place.below(f'a-{n}'), place.below(f'b-{n}'))
        for n in range(100):
            expect_equal(outcome(os.listxattr, place.through(f'b-{n}')), 'done', n)


@suite.test
def deep_tree_without_handles_is_reached():
    depth = scaled(30000, 20000)
    with Place('without=handles', FEW_FILES, kind='tmpfs') as place:
        here = os.open(place.through(), os.O_PATH)
        for level in range(depth):
            os.mkdir('d', dir_fd=here)
            below = os.open('d', os.O_PATH, dir_fd=here)
            if level == depth - 500:
                kept = os.dup(here)
            os.close(here)
            here = below
        os.close(here)
        seen = outcome(os.lstat, 'absent', dir_fd=kept)
        os.close(kept)
        expect_equal(seen, 'ENOENT')


@suite.test
def places_in_a_circle_are_noticed():
    """Directories that were moved into each other behind the mount, each last seen in the other."""
    with Place('without=handles,' + NO_CACHE, FEW_FILES) as place:
        os.makedirs(place.below('a', 'b'))
        inner = os.open(place.through('a', 'b'), os.O_RDONLY)
        try:
            os.rename(place.below('a', 'b'), place.below('b'))
            os.rename(place.below('a'), place.below('b', 'a'))
            outcome(os.lstat, 'a', dir_fd=inner)
            fill_the_descriptors(place)
            try:
                seen = within(ANSWER_S, ASK, 'absent', inner, pass_fds=(inner,))
            except Failure:
                place.mount.abort()
                raise
        finally:
            os.close(inner)
        expect(seen in ('ENOENT', 'ESTALE', 'ELOOP'), seen)
        expect_equal(outcome(os.lstat, place.through('B', 'A')), 'done')


@suite.test
def copied_up_file_of_an_overlay_stays_one_file():
    with Area('ext4') as area:
        lower, upper, work, top = (area.dir(n) for n in ('lower', 'upper', 'work', 'top'))
        make(os.path.join(lower, 'File'))
        mounted.run('mount', '-t', 'overlay', 'overlay', '-o',
                    f'lowerdir={lower},upperdir={upper},workdir={work}', top)
        try:
            with Mount(top, NO_CACHE) as mount:
                first = os.open(os.path.join(mount.path, 'FILE'), os.O_RDONLY)
                fcntl.flock(first, fcntl.LOCK_EX)
                os.chmod(os.path.join(mount.path, 'file'), 0o600)
                second = os.open(os.path.join(mount.path, 'fILE'), os.O_RDONLY)
                same = os.fstat(first).st_ino == os.fstat(second).st_ino
                locked = outcome(fcntl.flock, second, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.close(first)
                os.close(second)
                expect(same, 'another inode number')
                expect_equal(locked, 'EAGAIN', 'lock of a second descriptor')
        finally:
            mounted.run('umount', top)


mounted.run_each(suite)
