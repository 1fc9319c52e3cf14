# SPDX-License-Identifier: GPL-3.0-or-later
"""mounted.py - a fresh tree, foldfs mounted over it, and everything gone again afterwards.

    with mounted.Area('ext4') as area:            a file system of its own, or 'dir'
        with mounted.Mount(area.dir('source')) as mount:
            ... mount.source, mount.path ...

FOLDFS names the program to test; FOLDFS=bind mounts the tree with a plain bind mount instead,
which shows whether a test that compares two trees is itself right.  FOLDFS_OPTIONS is appended
to the options of every mount.  FOLDFS_TEST_DIR (default /tmp) is where trees and images go.

Whatever happens in the block, leaving it unmounts, ends the daemon by its pid, and removes what
was made.  A daemon that died, hung, or did not end cleanly is an error then; its stderr is shown.

The program that imports this gets a mount namespace of its own: what it mounts is gone with its
last process, and no other namespace copies a mount of it, which would keep the daemon alive.
"""
import ctypes
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tap
from tap import Failure, Skip, note

MOUNT_TIMEOUT_S = 30  # a sanitizer build in an emulated guest needs several seconds
STOP_TIMEOUT_S = 60   # time for the last checkpoint of a large index
BIND = 'bind'
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def own_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b'none', b'/', None, MS_REC | MS_PRIVATE, None):
        sys.exit(f'no mount namespace: {os.strerror(ctypes.get_errno())}')


def program():
    """Path of the foldfs to test, or BIND."""
    path = os.environ.get('FOLDFS')
    if not path:
        sys.exit('FOLDFS is not set: it names the foldfs program to test')
    if path != BIND and not os.access(path, os.X_OK):
        sys.exit(f'FOLDFS={path} is not a program')
    return path if path == BIND else os.path.abspath(path)


def is_bind():
    return program() == BIND


def need_foldfs():
    if is_bind():
        raise Skip('a bind mount folds nothing')


def run_each(suite):
    """The program whose tests mount what they need, each for itself; it ends here."""
    word = tap.arguments().k
    for function in suite.tests:
        if word in function.__name__:
            def whole():
                need_foldfs()
                function()
            tap.run_one(function.__name__, whole)
    sys.exit(tap.status())


def kernel():
    """(major, minor) of the running kernel."""
    return tuple(int(n) for n in os.uname().release.split('-')[0].split('.')[:2])


# After this time a change moves a timestamp.  They are exact since Linux 6.13; before they follow a
# clock of 4 or 10 ms, which in an emulated machine is late at times.
TICK_S = 0.012 if kernel() >= (6, 13) else 0.06


@functools.cache
def libfuse():
    """(major, minor) of the libfuse that the program was built with."""
    text = run(program(), '--version')
    return tuple(int(n) for n in text.rsplit('libfuse ', 1)[1].split('.')[:2])


def has_tmpfile():
    """Whether FUSE has O_TMPFILE: since Linux 6.2, and here since libfuse 3.17."""
    return is_bind() or (kernel() >= (6, 2) and libfuse() >= (3, 17))


def need_root():
    if os.geteuid() != 0:
        raise Skip('needs root')


def tool(name):
    """Path of an installed program; Skip if there is none."""
    path = shutil.which(name, path=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')
    if not path:
        raise Skip(f'{name} is not installed')
    return path


def run(*command, **kwargs):
    """Runs a command that must succeed; returns its stdout."""
    done = subprocess.run([os.fsdecode(c) for c in command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors='surrogateescape', **kwargs)
    if done.returncode:
        said = (done.stdout[-2000:] + done.stderr).strip()
        raise Failure(f'{command} gave {done.returncode}: {said}')
    return done.stdout


def mounts():
    """(mount point, type, source, options, device number) of each mount, the topmost last."""
    found = []
    with open('/proc/self/mountinfo', 'rb') as file:
        for line in file:
            left, right = line.rstrip(b'\n').split(b' - ', 1)
            fields, (kind, source, _) = left.split(b' '), right.split(b' ', 2)
            point = fields[4].decode('unicode_escape').encode('latin-1')
            found.append((point, kind.decode(), source.decode('unicode_escape'),
                          fields[5].decode(), fields[2].decode()))
    return found


def mount_at(path):
    path = os.fsencode(os.path.realpath(path))
    return next((m for m in reversed(mounts()) if m[0] == path), None)


def unmount_all_under(path):
    path = os.fsencode(os.path.realpath(path))
    for point, *_ in reversed(mounts()):
        if point == path or point.startswith(path + b'/'):
            subprocess.run(['umount', '-l', os.fsdecode(point)], stderr=subprocess.DEVNULL,
                           check=False)


def threads_of(pid):
    """What each thread of a process waits for, as far as the kernel says."""
    lines = []
    for task in os.listdir(f'/proc/{pid}/task'):
        words = [task]
        for name in ('comm', 'wchan', 'syscall'):
            try:
                with open(f'/proc/{pid}/task/{task}/{name}', encoding='ascii') as file:
                    words.append(file.read().strip())
            except OSError:
                words.append('?')
        lines.append(' '.join(words))
    return '\n'.join(lines)


class Area:
    """A directory to put trees in: on the file system of FOLDFS_TEST_DIR ('dir'), on a tmpfs, or
    on an ext4, xfs or btrfs in an image file."""

    SMALLEST_MB = {'ext4': 64, 'xfs': 320, 'btrfs': 128, 'tmpfs': 64}

    def __init__(self, kind='dir', megabytes=0, mkfs=(), options=''):
        self.kind, self.mkfs, self.options = kind, list(mkfs), options
        self.megabytes = max(megabytes, self.SMALLEST_MB.get(kind, 0))
        self.top = None

    def __enter__(self):
        need_root()
        self.top = tempfile.mkdtemp(prefix='foldfs-test-',
                                    dir=os.environ.get('FOLDFS_TEST_DIR', '/tmp'))
        os.chmod(self.top, 0o755)
        self.path = os.path.join(self.top, 'area')
        os.mkdir(self.path)
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self):
        if self.kind == 'dir':
            return
        if self.kind == 'tmpfs':
            run('mount', '-t', 'tmpfs', '-o', f'size={self.megabytes}m', 'tmpfs', self.path)
        else:
            self.image = os.path.join(self.top, 'image')
            with open(self.image, 'wb') as file:
                file.truncate(self.megabytes << 20)
            run(tool('mkfs.' + self.kind), '-q', *self.mkfs, self.image)
            self.mount_again()
        os.chmod(self.path, 0o755)

    def mount_again(self):
        options = 'loop' + (',' + self.options if self.options else '')
        done = subprocess.run(['mount', '-t', self.kind, '-o', options, self.image, self.path],
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            reason = ' '.join(done.stderr.split())[:120]
            raise Skip(f'no {self.kind} with {options} here: {reason}')

    def dir(self, name, mode=0o755):
        """A new directory in the area."""
        path = os.path.join(self.path, name)
        os.mkdir(path)
        os.chmod(path, mode)
        return path

    def outside(self, name):
        """A new directory beside the file system of the area, not on it."""
        path = os.path.join(self.top, name)
        os.mkdir(path)
        return path

    def __exit__(self, *_):
        unmount_all_under(self.top)
        for attempt in range(20):  # a loop device lets go of its image a moment later
            shutil.rmtree(self.top, ignore_errors=True)
            if not os.path.exists(self.top):
                return
            time.sleep(0.1)
        note(f'could not remove {self.top}')


class Mount:
    """foldfs (or a bind mount) over SOURCE at a fresh mount point."""

    def __init__(self, source, options='', index=None, wrapper=()):
        self.source, self.wrapper = source, list(wrapper)
        self.options = ','.join(o for o in (options, os.environ.get('FOLDFS_OPTIONS', '')) if o)
        self.top = tempfile.mkdtemp(prefix='foldfs-mount-',
                                    dir=os.environ.get('FOLDFS_TEST_DIR', '/tmp'))
        os.chmod(self.top, 0o755)
        self.path = os.path.join(self.top, 'mnt')
        os.mkdir(self.path)
        self.index = index or os.path.join(self.top, 'index')
        self.log_path = os.path.join(self.top, 'stderr')
        self.daemon = None
        self.connection = None

    def has_option(self, option):
        return option in self.options.split(',')

    def is_without(self, feature):
        """Whether `-o without=` switches FEATURE off."""
        return any(feature in option.removeprefix('without=').split(':')
                   for option in self.options.split(',') if option.startswith('without='))

    def passes_through(self):
        """Whether the kernel does the I/O of opens itself: since Linux 6.9 and libfuse 3.17."""
        return not is_bind() and kernel() >= (6, 9) and libfuse() >= (3, 17) and \
            not self.has_option('passthrough=off')

    def command(self):
        options = self.options
        if 'index=' not in options:
            options = ','.join(o for o in (options, 'index=' + self.index) if o)
        return [*self.wrapper, program(), '-f', '-o', options, self.source, self.path]

    def start(self):
        need_root()
        if is_bind():
            run('mount', '--bind', self.source, self.path)
            return self
        if not os.path.exists('/dev/fuse'):
            raise Skip('no /dev/fuse')
        with open(self.log_path, 'ab') as log:
            self.daemon = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, start_new_session=True)
        deadline = time.monotonic() + MOUNT_TIMEOUT_S
        while not (found := mount_at(self.path)):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                status = self.daemon.poll()
                self.abandon()
                raise Failure(f'foldfs did not mount (status {status})\n{self.log()}')
            time.sleep(0.005)
        self.connection = found[4].split(':')[1]
        os.stat(self.path)  # waits for the daemon's first answer
        return self

    def pid(self):
        """The daemon's own pid, also below a wrapper that does not become it, such as strace."""
        with open(f'/proc/{self.daemon.pid}/task/{self.daemon.pid}/children',
                  encoding='ascii') as file:
            children = file.read().split()
        return int(children[0]) if self.wrapper and children else self.daemon.pid

    def log(self):
        try:
            with open(self.log_path, errors='replace') as file:
                return file.read()
        except OSError:
            return ''

    def abort(self):
        """Lets every process that waits for the daemon go on, with an error."""
        path = f'/sys/fs/fuse/connections/{self.connection}/abort'
        if self.connection and os.path.exists(path):
            with open(path, 'w') as file:
                file.write('1')

    def abandon(self):
        """Gets rid of mount and daemon by force."""
        self.abort()
        unmount_all_under(self.path)
        if self.daemon and self.daemon.poll() is None:
            os.killpg(self.daemon.pid, signal.SIGKILL)  # its own session: start_new_session
            self.daemon.wait()
        self.daemon = self.connection = None

    def must_live(self):
        """Ends the run if the daemon is dead: nothing after that says anything."""
        if self.daemon and self.daemon.poll() is not None:
            status = self.daemon.returncode
            self.abandon()
            raise Failure(f'the daemon died (status {status})')

    def stop(self):
        """Unmounts; the daemon must then end by itself, with status 0 and no complaint."""
        if is_bind():
            run('umount', self.path)
            return
        if not self.daemon:
            return
        self.must_live()
        done = subprocess.run(['umount', self.path], stderr=subprocess.PIPE, text=True,
                              check=False)
        try:
            if done.returncode:
                raise Failure(f'cannot unmount: {done.stderr.strip()}')
            status = self.daemon.wait(STOP_TIMEOUT_S)
            if status or 'Sanitizer' in self.log() or 'runtime error' in self.log():
                raise Failure(f'the daemon ended with status {status}\n{self.log()}')
        except subprocess.TimeoutExpired:
            raise Failure('the daemon did not end after umount; its threads wait in:\n'
                          + threads_of(self.pid()) + '\n' + self.log()) from None
        finally:
            self.abandon()

    def remount(self):
        self.stop()
        return self.start()

    def remove(self):
        self.abandon()
        unmount_all_under(self.top)
        shutil.rmtree(self.top, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, kind, *_):
        try:
            if kind is not None and self.log():
                note('the daemon said:\n' + self.log())
            if kind is None:
                self.stop()
        finally:
            self.remove()


if os.geteuid() == 0:
    own_namespace()
