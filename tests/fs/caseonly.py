# SPDX-License-Identifier: GPL-3.0-or-later
"""caseonly.py - what the tests of the case-only rename share: the ways to call for one, a fresh
directory for each test, children that do something as another user, and what is on disk."""
import ctypes
import os
import pickle
import resource
import signal
import sys
import traceback

import mounted
import syscalls as sc
import tap
from mounted import Area, Mount
from tap import Failure, expect_equal

CHILD_S = 60  # a child that is not done then is stuck
CLONE_FS, CLONE_FILES, CLONE_NEWNS, CLONE_NEWPID = 0x200, 0x400, 0x20000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def make(path, content=b''):
    with open(path, 'xb') as file:
        file.write(content)


KINDS = {
    'file': lambda path: make(path, b'content'),
    'empty_directory': os.mkdir,
    'full_directory': lambda path: (os.mkdir(path), make(path + '/inside')),
    'symlink': lambda path: os.symlink('nowhere', path),
    'symlink_to_directory': lambda path: os.symlink('/usr', path),
    'fifo': os.mkfifo,
}


def by_rename(folder, old, new):
    os.rename(os.path.join(folder, old), os.path.join(folder, new))


def by_dirfd(folder, old, new):
    fd = os.open(folder, os.O_PATH)
    try:
        os.rename(old, new, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def by_two_dirfds(folder, old, new):
    one, two = os.open(folder, os.O_RDONLY), os.open(folder, os.O_PATH)
    try:
        os.rename(old, new, src_dir_fd=one, dst_dir_fd=two)
    finally:
        os.close(one)
        os.close(two)


def by_dirfd_and_directory(folder, old, new):
    above, last = os.path.split(folder)
    fd = os.open(above, os.O_PATH)
    try:
        os.rename(f'{last}/{old}', f'./{last}//{new}', src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def by_renameat2(folder, old, new):
    sc.renameat2(os.path.join(folder, old), os.path.join(folder, new), 0)


def by_noreplace(folder, old, new):
    fd = os.open(folder, os.O_PATH)
    try:
        sc.renameat2(old, new, sc.RENAME_NOREPLACE, fd, fd)
    finally:
        os.close(fd)


CALLS = {'rename': by_rename, 'renameat': by_dirfd, 'renameat_two_dirfds': by_two_dirfds,
         'renameat_directory': by_dirfd_and_directory, 'renameat2': by_renameat2,
         'renameat2_noreplace': by_noreplace}


class Place:
    """A new directory, as the mount shows it (path) and in the tree below (below)."""

    def __init__(self, mount, name):
        self.mount = mount
        self.path, self.below = (os.path.join(top, name) for top in (mount.path, mount.source))
        os.mkdir(self.below)
        os.chmod(self.below, 0o777)

    def __call__(self, *names):
        return os.path.join(self.path, *names)

    def names(self, *folders):
        return sorted(os.listdir(os.path.join(self.below, *folders)))

    def expect_names(self, *names, what='', folder=''):
        expect_equal(self.names(folder), sorted(names), f'on disk {what}')


def as_user(uid, gid=None):
    os.setgroups([])
    os.setresgid(gid or uid, gid or uid, gid or uid)
    os.setresuid(uid, uid, uid)


class Child:
    """A forked process that calls FUNCTION(*ARGS), as user UID if given."""

    def __init__(self, function, *args, uid=None):
        sys.stdout.flush()
        read, write = os.pipe()
        self.read, self.pid = read, os.fork()
        if self.pid == 0:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                signal.alarm(CHILD_S)
                if uid is not None:
                    as_user(uid)
                answer = ('result', function(*args))
            except OSError as error:
                answer = ('error', error.errno)
            except BaseException:  # this process must not go on as the test's
                answer = ('failure', traceback.format_exc())
            os.write(write, pickle.dumps(answer))
            os._exit(0)
        os.close(write)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        """('result', what FUNCTION gave) or ('error', errno); ('killed', signal) if it was."""
        with open(self.read, 'rb') as pipe:
            answer = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return 'killed', os.WTERMSIG(status)
        kind, value = pickle.loads(answer)
        if kind == 'failure':
            raise Failure(value)
        return kind, value


def outcome(function, *args, uid=None):
    """What FUNCTION(*ARGS) gave in a child, or its errno."""
    return Child(function, *args, uid=uid).wait()[1]


def in_pid_namespace(function, *args):
    """Calls FUNCTION(*ARGS) in a process that is number 1 of a pid namespace of its own."""
    def inside():
        if libc.unshare(CLONE_NEWPID):
            raise OSError(ctypes.get_errno(), 'unshare')
        return outcome(function, *args)
    return outcome(inside)


def shell(place, script, *wrapper):
    return mounted.run(*wrapper, 'bash', '-euc', script, cwd=place.path)


def isolate():
    """Puts this process into a mount namespace of its own."""
    if libc.unshare(CLONE_NEWNS) or libc.mount(b'none', b'/', None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), 'no mount namespace')


def odd_calls(how, old, new):
    """Renames by odd-calls.c: the errno, or None if there is no such way here."""
    build = os.environ.get('FOLDFS_BUILD') or \
        os.path.join(os.path.dirname(mounted.program()), '..')
    path = os.path.join(build, 'tests', 'fs', 'odd-calls')
    if not os.access(path, os.X_OK):
        raise Failure(f'{path} is missing: build the tests, and set FOLDFS_BUILD')
    said = mounted.run(path, how, old, new).strip()
    return None if said == 'none' else int(said)


def main(suite, fold_only):
    """Runs the tests of SUITE in both modes, those of FOLD_ONLY in one, each on a mount of its own;
    mount.folds says in which."""
    word = tap.arguments().k

    def one(function, area, number, mode):
        with Mount(area.dir(f'source{number}'), f'lookup={mode}') as mount:
            mount.folds = mode == 'fold'
            function(mount)

    def whole(mode):
        mounted.need_foldfs()
        with Area('ext4') as area:
            tests = suite.tests + (fold_only.tests if mode == 'fold' else [])
            for number, function in enumerate(tests):
                if word in function.__name__:
                    tap.run_one(f'{function.__name__}_in_mode_{mode}', one, function, area, number,
                                mode)
    for mode in ('fold', 'exact'):
        tap.run_one(f'tests_mount_in_mode_{mode}', whole, mode)
    sys.exit(tap.status())
