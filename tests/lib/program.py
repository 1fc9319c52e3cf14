# SPDX-License-Identifier: GPL-3.0-or-later
"""program.py - one test program: where it is, and one run of it, shut in.

A program runs in mount and process namespaces of its own and with a directory of its own for
temporary files: when its init ends, the kernel kills what it left running and drops what it left
mounted.  A file system whose daemon hangs can hold its clients even against SIGKILL; the
connection is then aborted.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from tap_results import FAILED, Lost, parse

# One program's time at scale 1: several times what the slowest needs on an idle machine.
TIME_LIMIT_S = 600
# Even a short run may have to wait for a machine that is busy with something else.
TIME_LIMIT_LEAST_S = 120
# After SIGKILL, time for processes to go before the FUSE connections are aborted.
KILL_GRACE_S = 5
# Lines that are shown of a failing program's stderr (the last), and of a sanitizer's report.
STDERR_LINES = 60
REPORT_LINES = 80

# PID 1 of the namespace: reaps the daemons that the program leaves behind, and passes its status.
INIT = '"$@"; exit $?'

SANITIZER_OPTIONS = {
    'ASAN_OPTIONS': 'detect_leaks=1:detect_stack_use_after_return=1:log_path={}',
    'UBSAN_OPTIONS': 'print_stacktrace=1:log_path={}',
    'TSAN_OPTIONS': 'second_deadlock_stack=1:log_path={}',
    'LSAN_OPTIONS': 'log_path={}',
}


# The thread sanitizer's shadow memory wants its place, which random addresses may take.
WRAPPER = {'tsan': ('setarch', '-R')}


class Program:
    """A test program under one build; SOURCES hold its text, for -k and marks."""

    def __init__(self, suite, path, sources, variant):
        self.suite, self.path = suite, path
        self.sanitized = variant != 'plain'
        self.name = (variant + '/' if self.sanitized else '') + \
            f'{suite}/{os.path.basename(path)}'
        self.text = ''.join(_read(source) for source in sources)

    def alone(self):
        """Whether it asks, by this mark in its text, that nothing runs beside it."""
        return 'tests/run: alone' in self.text

    def long(self):
        """Whether it says, by this mark in its text, that it is too long for the sanitizers."""
        return 'tests/run: no sanitizers' in self.text

    def matches(self, word, variant=''):
        """Whether WORD is in its name (as one of VARIANT, if given) or may be in a test's."""
        return word in f'{variant}/{self.name}' or word in self.text


def time_limit(scale):
    """Seconds for one program in a run of this scale."""
    return max(TIME_LIMIT_S * scale, TIME_LIMIT_LEAST_S)


class Run:
    """One run of a program: results, seconds, and the end of stderr."""

    def __init__(self, program, build, scale, top, limit):
        self.program, self.build, self.scale, self.top = program, build, scale, top
        self.limit = limit
        self.results, self.stderr, self.seconds = [], '', 0.0

    def _environment(self, directory):
        environment = dict(
            os.environ, FOLDFS=self.build.foldfs, FOLDFS_BUILD=self.build.path,
            FOLDFS_SRC=self.top, FOLDFS_TEST_SCALE=f'{self.scale:g}',
            FOLDFS_SANITIZER='' if self.build.variant == 'plain' else self.build.variant,
            TMPDIR=directory, FOLDFS_TEST_DIR=directory, LC_ALL='C.UTF-8')
        reports = os.path.join(directory, 'sanitizer')
        for name, value in SANITIZER_OPTIONS.items():
            environment[name] = value.format(reports)
        return environment

    def go(self):
        directory = tempfile.mkdtemp(prefix='foldfs-run-')
        os.chmod(directory, 0o1777)  # tests drop to other users
        try:
            self._run(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return self

    def _run(self, directory):
        started = time.monotonic()
        output, errors = (os.path.join(directory, name) for name in ('stdout', 'stderr'))
        with open(output, 'wb') as out, open(errors, 'wb') as err:
            process = subprocess.Popen(
                ['unshare', '--mount', '--propagation', 'private', '--pid', '--fork',
                 '--kill-child=KILL', '--mount-proc', *WRAPPER.get(self.build.variant, ()),
                 'bash', '-c', INIT, 'init', self.program.path],
                env=self._environment(directory), cwd=directory, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True)
            try:
                status = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                status, hung = None, _processes(process.pid)
                _kill(process)
        self.seconds = time.monotonic() - started
        self.results = parse(_read(output))
        self.stderr = '\n'.join(_read(errors).splitlines()[-STDERR_LINES:])
        if status is None:
            self.results.append(Lost('time limit', f'killed after {self.limit:.0f} s, while there were:',
                                     *hung))
        elif status and all(r.outcome != FAILED for r in self.results):
            self.results.append(Lost('exit status', _describe(status)))
        for name in sorted(os.listdir(directory)):
            if name.startswith('sanitizer.'):
                report = _read(os.path.join(directory, name)).splitlines()
                self.results.append(Lost('sanitizer report', *report[:REPORT_LINES]))


def _read(path):
    with open(path, encoding='utf-8', errors='replace') as file:
        return file.read()


def _describe(status):
    number = -status if status < 0 else status - 128
    try:
        return f'ended by {signal.Signals(number).name}'
    except ValueError:
        return f'exit status {status}'


def _init_of(pid):
    """The init of the namespace that unshare, whose pid is given, made; 0 if it is gone."""
    try:
        return int(_read(f'/proc/{pid}/task/{pid}/children').split()[0])
    except (OSError, IndexError):
        return 0


def _processes(pid):
    """What runs in the namespace below PID, and what each process waits for."""
    lines = []
    init = _init_of(pid)
    for entry in os.listdir('/proc'):
        try:
            if not entry.isdigit() or not init or \
                    os.readlink(f'/proc/{entry}/ns/pid') != os.readlink(f'/proc/{init}/ns/pid'):
                continue
            command = _read(f'/proc/{entry}/cmdline').replace('\0', ' ').strip()
            waits = ' '.join(sorted({_read(f'/proc/{entry}/task/{task}/wchan')
                                     for task in os.listdir(f'/proc/{entry}/task')}))
            lines.append(f'{entry} {command[:120]} (in {waits})')
        except OSError:
            continue
    return lines


def _connections(pid):
    """Numbers of the FUSE connections mounted in the namespace below PID."""
    try:
        mounts = _read(f'/proc/{_init_of(pid)}/mountinfo')
    except OSError:
        return set()
    here = re.compile(r'^\S+ \S+ 0:(\d+) .* - fuse', re.MULTILINE)
    return set(here.findall(mounts)) - set(here.findall(_read('/proc/self/mountinfo')))


def _kill(process):
    """Ends the namespace below PROCESS whatever it waits for."""
    connections = _connections(process.pid)
    process.kill()  # unshare's --kill-child kills the init, and that all the rest
    try:
        process.wait(KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    for number in connections:
        try:
            with open(f'/sys/fs/fuse/connections/{number}/abort', 'w', encoding='ascii') as file:
                file.write('1')
        except OSError:
            pass  # already gone
    process.wait()
