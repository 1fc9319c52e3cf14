# SPDX-License-Identifier: GPL-3.0-or-later
"""scratch.py - what a bench measures on: fresh file systems, daemons, and batches of operations.

A bench runs in mount and process namespaces of its own, so that nothing is left mounted or
running however it ends.  In there it has a tmpfs with sparse images, each of which is a fresh
ext4 on a loop device: no disk, whose speed varies, is in any figure, and no file system remembers
an earlier run.

Clients and daemons run on one processor, the last one, unless a bench says otherwise: where the
scheduler wakes a daemon's thread makes a factor of 4 in the time of a request, at random.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


INSIDE = 'FOLDFS_BENCH_INSIDE'
# Of the memory that is free, this part may be taken by images.
MEMORY_SHARE = 0.6
# Time for a daemon to write its last checkpoint, or to be mounted.
PATIENCE_S = 120
THREADS = 8
# FORGETs are sent without being waited for.
FORGET_S = 1


def enter_namespace():
    """Starts this program again, shut in; returns only inside."""
    if os.environ.get(INSIDE):
        return
    os.environ.update({INSIDE: '1', 'LC_ALL': 'C.UTF-8', 'PYTHONDONTWRITEBYTECODE': '1'})
    os.execvp('unshare', ['unshare', '--mount', '--propagation', 'private', '--pid', '--fork',
                          '--kill-child=KILL', '--mount-proc', sys.executable, *sys.argv])


def call(*command):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, text=True,
                          errors='replace', capture_output=True, check=False)
    if done.returncode:
        sys.exit(f'{" ".join(str(c) for c in command)}: {done.stderr.strip()}')
    return done.stdout


def bench_processor():
    return max(os.sched_getaffinity(0))


def pin():
    """For preexec_fn: to the processor of clients and daemons."""
    os.sched_setaffinity(0, {bench_processor()})


def rounds(count, sides):
    """(round, side) for COUNT rounds over SIDES; who comes first alternates."""
    for i in range(count):
        for side in (sides if i % 2 == 0 else list(reversed(sides))):
            yield i, side


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f'{what}: not within {PATIENCE_S} s')
        time.sleep(0.005)


class FileSystem:
    """A fresh ext4 of SIZE bytes with room for INODES files, mounted at .path."""

    def __init__(self, session, size, inodes=None):
        self.session = session
        self.image = session.new_path('image')
        self.path = session.new_path('tree')
        os.mkdir(self.path)
        with open(self.image, 'wb') as file:
            file.truncate(size)
        count = ['-N', str(inodes)] if inodes else []
        call('mkfs.ext4', '-q', '-F', *count, self.image)
        self.mount()

    def mount(self):
        # Nothing in the background: the inode tables of a sparse image are zero already.
        call('mount', '-o', 'loop,noinit_itable', self.image, self.path)

    def unmount(self):
        call('umount', self.path)

    def remount(self):
        """Unmounts and mounts: nothing of it is cached afterwards."""
        self.unmount()
        self.mount()

    def drop(self):
        self.unmount()
        os.unlink(self.image)
        os.rmdir(self.path)


class Mount:
    """A FUSE server in a process of its own, mounted at .path."""

    def __init__(self, session):
        self.path = session.new_path('mnt')
        os.mkdir(self.path)
        self.pid = None

    def is_mounted(self):
        return os.stat(self.path).st_dev != os.stat(os.path.dirname(self.path)).st_dev

    def unmount(self):
        """Unmounts, and waits until the server has ended."""
        call('umount', self.path)
        gone = []

        def ended():
            try:
                gone.append(os.waitpid(self.pid, os.WNOHANG)[0])
            except ChildProcessError:
                return not os.path.exists(f'/proc/{self.pid}')
            return bool(gone[-1])
        wait_until(ended, 'end of the server')
        self.pid = None


class EmptyFuse(Mount):
    """The least that a FUSE server can do."""

    def __init__(self, session):
        super().__init__(session)
        self.pid = subprocess.Popen([session.programs.empty_fuse, self.path],
                                    preexec_fn=pin).pid
        wait_until(self.is_mounted, 'mount of the empty server')


class Foldfs(Mount):
    """foldfs over the directory SOURCE; .start_s is what the command took until it returned."""

    def __init__(self, session, source, *options, index='memory', start=True, pinned=True):
        super().__init__(session)
        self.session, self.source, self.pinned = session, source, pinned
        self.options = ','.join([f'index={index}', f'threads={THREADS}', *options])
        self.start_s = 0
        if start:
            self.start()

    def arguments(self):
        return ['-o', self.options, self.source, self.path]

    def start(self):
        started = time.monotonic()
        done = subprocess.run([self.session.programs.foldfs, *self.arguments()], check=False,
                              stdin=subprocess.DEVNULL, preexec_fn=pin if self.pinned else None)
        self.start_s = time.monotonic() - started
        if done.returncode:
            sys.exit(f'foldfs {" ".join(self.arguments())}: exit status {done.returncode}')
        self.pid = self._find()

    def _find(self):
        """The daemon: the process of this program with our mount point as its last argument."""
        for entry in os.listdir('/proc'):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                with open(f'/proc/{entry}/cmdline', 'rb') as file:
                    words = file.read().split(b'\0')
                program = os.readlink(f'/proc/{entry}/exe')
            except OSError:
                continue
            if program == os.path.realpath(self.session.programs.foldfs) and \
                    os.fsencode(self.path) in words:
                return int(entry)
        sys.exit('foldfs is mounted but not to be found')

    def forget_all(self):
        """Makes the kernel forget all nodes that nobody uses: a remount drops their dentries.  FUSE
        refuses the way in which mount(8) of util-linux 2.39 and later has it done."""
        call('env', 'LIBMOUNT_FORCE_MOUNT2=always', 'mount', '-i', '-o', 'remount', self.path)
        time.sleep(FORGET_S)

    def memory(self):
        """Bytes of memory that are the daemon's own.  Private_* of smaps, but not of shared
        mappings: pages of the index's files count as private there for having one user, yet are
        page cache, which the kernel takes back when it likes."""
        own, shared = 0, False
        with open(f'/proc/{self.pid}/smaps', encoding='ascii', errors='replace') as file:
            for line in file:
                words = line.split()
                if words and '-' in words[0] and not words[0].endswith(':'):
                    shared = words[1].endswith('s')
                elif words[0] in ('Private_Clean:', 'Private_Dirty:', 'Private_Hugetlb:') and \
                        not shared:
                    own += int(words[1]) * 1024
        return own


class Session:
    """One bench's place; see the head of this file."""

    def __init__(self, size, programs):
        self.size, self.programs = size, programs
        self.names = 0

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix='foldfs-bench-')
        with open('/proc/meminfo', encoding='ascii') as file:
            lines = dict(line.split(':', 1) for line in file)
        room = int(int(lines['MemAvailable'].split()[0]) * 1024 * MEMORY_SHARE)
        call('mount', '-t', 'tmpfs', '-o', f'size={room},mode=0755', 'foldfs-bench', self.path)
        # The last process of a namespace is not told of SIGTERM otherwise.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit('terminated'))
        return self

    def __exit__(self, *_):
        call('umount', '--lazy', self.path)
        shutil.rmtree(self.path, ignore_errors=True)

    def new_path(self, kind):
        self.names += 1
        return os.path.join(self.path, f'{kind}{self.names}')

    def pick(self, tiny, normal, full=None):
        """The value for the size that was asked for."""
        return {'tiny': tiny, 'normal': normal, 'full': full or normal}[self.size]

    def hammer(self, operation, directory, pid=0, first=0, count=1, entries=1, step=1,
               seed=0, pinned=True, cold=False):
        """(wall, processor time of PID or the client) of one operation, in microseconds."""
        command = [self.programs.hammer, *(['-1'] if cold else []), '-p', pid, '-f', first,
                   '-n', count, '-e', entries, '-d', step, '-s', seed, operation, directory]
        done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False,
                              preexec_fn=pin if pinned else None)
        if done.returncode:
            sys.exit(done.stderr.strip() or f'hammer {operation}: status {done.returncode}')
        wall, cpu = done.stdout.split()
        return float(wall) / 1000, float(cpu) / 1000
