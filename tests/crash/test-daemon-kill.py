#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon is killed at random points while eight processes change the tree through the mount.

After each kill the mount is made again on the same index, and every name that there is or was is
asked for under several spellings, through the mount, and compared with the tree below.  Directories
that nobody changed since a checkpoint must not be read again: strace counts the getdents64 on them.

FOLDFS_TEST_SCALE=1 kills 50 times, 10 kills 1,000 times.  FOLDFS_TEST_SEED repeats the random
choices (not the moments)."""
import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'fs'))
import mounted  # noqa: E402
import tap  # noqa: E402
from mounted import Area, Mount  # noqa: E402
from tap import Failure, expect, expect_equal  # noqa: E402

PROCESSES = 8
BUSY = ('Busy-0', 'Busy-1', 'Busy-2', 'Busy-3', 'Busy-0/Sub', 'Busy-1/Sub')
QUIET = ('Quiet-0', 'Quiet-1')
RESTED = 'Rested'
QUIET_NAMES = 100
# Letters that Python's upper() and lower() treat as the rule does.
BASES = [f'{word}-{n}' for word in ('alpha', 'Ärger', 'éTÉ', 'ΔΕΛΤΑ', 'жук') for n in range(8)]
LOAD_S = (0.0, 0.6)      # how long the load runs before the kill
CHECKPOINT_S = 5         # seconds between the daemon's checkpoints
LONG_EVERY = 25 if tap.scale() <= 1 else 100  # one kill among so many ends a long run
UMOUNT_EVERY = 5         # every so many kills one comes while an orderly end is under way
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE, errno.EIO)


def kills():
    scale = tap.scale()
    return 1000 if scale >= 10 else max(5, int(50 * scale))


def respell(name, rng):
    return ''.join(c.upper() if rng.random() < .5 else c.lower() for c in name)


class Worker:
    """A process that changes the busy directories while it is told to."""

    def __init__(self, number, seed, top, running):
        self.rng = random.Random(seed * 100 + number)
        self.top, self.running = top, running
        self.done = multiprocessing.Value('L', 0)
        self.process = multiprocessing.Process(target=self.work, daemon=True)
        self.process.start()

    def path(self):
        return os.path.join(self.top, respell(self.rng.choice(BUSY), self.rng),
                            respell(self.rng.choice(BASES), self.rng))

    def step(self):
        path, other = self.path(), self.path()
        action = self.rng.randrange(10)
        if action < 3:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR))
        elif action == 3:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
        elif action == 4:
            os.mkdir(path)
        elif action == 5:
            os.rmdir(path)
        elif action < 8:
            os.unlink(path)
        else:
            os.rename(path, other)

    def work(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            if not self.running.is_set():
                self.running.wait()
            try:
                self.step()
                self.done.value += 1
            except OSError as error:
                if error.errno in GONE:
                    time.sleep(0.005)


class Trial:
    def __init__(self, area, seed):
        self.rng = random.Random(seed)
        self.source = area.dir('source')
        self.trace = os.path.join(area.top, 'trace')
        self.strace = mounted.tool('strace')
        self.mount = Mount(self.source, index=os.path.join(area.top, 'index'),
                           wrapper=self.wrapper())
        self.running = multiprocessing.Event()
        self.checks = 0
        for name in BUSY + QUIET + (RESTED,):
            os.makedirs(os.path.join(self.source, name), exist_ok=True)
        for name in QUIET:
            for n in range(QUIET_NAMES):
                os.close(os.open(os.path.join(self.source, name, f'File-{n}'), os.O_CREAT))

    def wrapper(self):
        # Leaks cannot be looked for while a process is traced.
        command = [self.strace, '-f', '-y', '-e', 'trace=getdents64', '-o', self.trace,
                   '-E', 'ASAN_OPTIONS=' + os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0']
        help_text = subprocess.run([self.strace, '--help'], stdout=subprocess.PIPE, text=True,
                                   check=False).stdout
        if '--seccomp-bpf' in help_text:  # else each system call of the daemon is stopped at
            command.insert(1, '--seccomp-bpf')
        return command

    def workers(self, seed):
        return [Worker(n, seed, self.mount.path, self.running) for n in range(PROCESSES)]

    def reads_of(self, name):
        """How often the daemon read the directory since it was started."""
        with open(self.trace, encoding='ascii', errors='replace') as file:
            return sum(f'/{name}>' in line for line in file)

    def expect_name(self, directory, name, on_disk):
        """Asks for NAME; ON_DISK maps folded names to what the tree has."""
        entry = on_disk.get(name.upper())
        path = os.path.join(self.mount.path, respell(directory, self.rng), name)
        self.checks += 1
        try:
            got = os.lstat(path).st_ino
        except OSError as error:
            got = errno.errorcode[error.errno]
        want = entry[1] if entry else 'ENOENT'
        expect_equal(got, want, f'{directory}/{name}, on disk {entry}')

    def expect_directory(self, directory, names):
        on_disk = {}
        with os.scandir(os.path.join(self.source, directory)) as entries:
            for entry in entries:
                other = on_disk.setdefault(entry.name.upper(), (entry.name, entry.inode()))
                expect_equal(other[0], entry.name, f'two spellings in {directory}')
        for name in names:
            for spelling in (name, name.upper(), respell(name, self.rng)):
                self.expect_name(directory, spelling, on_disk)
        for name, _ in on_disk.values():
            self.expect_name(directory, name, on_disk)
            self.expect_name(directory, name.swapcase(), on_disk)
        asked = respell(self.rng.choice(names), self.rng)
        entry = on_disk.get(asked.upper())
        try:
            real = os.getxattr(os.path.join(self.mount.path, directory),
                               'glusterfs.get_real_filename:' + asked)
        except OSError as error:
            real = errno.errorcode[error.errno]
        expect_equal(real, os.fsencode(entry[0]) + b'\0' if entry else 'ENODATA', asked)

    def expect_everything(self):
        for directory in BUSY:
            self.expect_directory(directory, BASES)
        for directory in QUIET:
            self.expect_directory(directory, [f'file-{n}' for n in range(0, QUIET_NAMES + 20)])
        self.expect_directory(RESTED, BASES)

    def change_rested(self):
        """Through the mount, by one process: what the next checkpoint makes durable."""
        for _ in range(20):
            path = os.path.join(self.mount.path, RESTED, respell(self.rng.choice(BASES), self.rng))
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                os.unlink(path)

    def kill(self):
        os.kill(self.mount.pid(), signal.SIGKILL)
        self.mount.daemon.wait()
        self.running.clear()

    def clear_away(self):
        """The dead mount goes; a worker may still have a descriptor for a moment."""
        for _ in range(100):
            if not mounted.mount_at(self.mount.path):
                break
            if subprocess.run(['umount', self.mount.path], stderr=subprocess.DEVNULL,
                              check=False).returncode:
                time.sleep(0.01)
        expect(not mounted.mount_at(self.mount.path), 'the dead mount cannot be unmounted')
        self.mount.daemon = None

    def load_and_kill(self, number):
        """One life of the daemon, of whose start everything was checked; its end by SIGKILL."""
        self.running.set()
        if number % LONG_EVERY == LONG_EVERY - 1:
            self.change_rested()  # the second checkpoint from now on surely covers it
            time.sleep(2 * CHECKPOINT_S + self.rng.uniform(0.2, 0.8))
        else:
            time.sleep(self.rng.uniform(*LOAD_S))
        if number % UMOUNT_EVERY == UMOUNT_EVERY - 1:
            pid = self.mount.pid()
            subprocess.run(['umount', '-l', self.mount.path], check=True)
            self.running.clear()
            time.sleep(self.rng.uniform(0, 0.02))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it had ended already
            self.mount.daemon.wait()
        else:
            self.kill()
        self.clear_away()

    def expect_not_read(self, names, when):
        for name in names:
            expect_equal(self.reads_of(name), 0, f'getdents64 of {name} {when}')

    def prepare(self):
        """The index learns the quiet directories, and a first end in order."""
        self.mount.start()
        self.expect_everything()
        expect(self.reads_of(QUIET[0]) > 0, 'strace shows no getdents64 of what was read')
        self.mount.stop()

    def run(self, count):
        slowest = 0
        for number in range(count):
            self.mount.start()
            started = time.monotonic()
            self.expect_everything()
            slowest = max(slowest, time.monotonic() - started)
            when = f'after {number} kills'
            self.expect_not_read(QUIET, when)
            if number % LONG_EVERY == 0 and number > 0:
                self.expect_not_read([RESTED], when)
            self.load_and_kill(number)
        self.mount.start()
        self.expect_everything()
        self.expect_not_read(QUIET, 'after the last kill')
        self.mount.remount()
        self.expect_everything()
        self.expect_not_read(QUIET + BUSY + (RESTED,), 'after an end in order')
        self.mount.stop()
        tap.note(f'{count} kills, {self.checks} names asked for; the slowest check {slowest:.2f} s')


def killed_daemon_leaves_right_answers_and_a_warm_index():
    mounted.need_foldfs()
    seed = int(os.environ.get('FOLDFS_TEST_SEED', time.time()))
    tap.note(f'seed {seed}')
    with Area('ext4') as area:
        trial = Trial(area, seed)
        workers = trial.workers(seed)
        try:
            trial.prepare()
            trial.run(kills())
            changes = sum(worker.done.value for worker in workers)
            tap.note(f'{changes} changes made')
            expect(changes > 10 * kills(), 'the load did not change much')
        except Failure as failure:
            raise Failure(f'{failure}\n{trial.mount.log()}') from None
        finally:
            for worker in workers:
                worker.process.kill()
            trial.mount.remove()


def main():
    name = 'killed_daemon_leaves_right_answers_and_a_warm_index'
    if tap.arguments().k in name:
        tap.run_one(name, killed_daemon_leaves_right_answers_and_a_warm_index)
    sys.exit(tap.status())


main()
