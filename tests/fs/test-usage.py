#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line.  Bad input: one clear line on stderr, exit status 1 for a mistake in the command
line and 2 for all else, nothing mounted, nothing changed, no process left.  Good input: it returns
when the mount answers, and SIGTERM or umount end it."""
import os
import signal
import stat
import subprocess
import sys
import time

import mounted
import tap
from compare import ALICE
from mounted import Area
from tap import Skip, expect, expect_equal

USAGE, FAILED = 1, 2
TIMEOUT_S = 60
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

bad = tap.Suite()
good = tap.Suite()


def picture(top):
    """Everything that must not change in a directory tree: names, modes, owners, sizes, times."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in [''] + folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            found[path] = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ino)
    return found


def processes_of_session(session):
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
                fields = file.read().rsplit(')', 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != 'Z':
            found.append(int(pid))
    return found


class Place:
    """Where the cases play: a tree with something in it, a mount point, an index."""

    def __init__(self, area):
        self.area = area
        self.source, self.point = area.dir('source'), area.dir('point')
        self.index = area.outside('index')
        os.chmod(self.index, 0o700)
        os.mkdir(os.path.join(self.source, 'inside'))
        self.file = os.path.join(self.source, 'file')
        with open(self.file, 'x', encoding='ascii'):
            pass

    def run(self, *arguments, before=(), **kwargs):
        """One run of foldfs in a session of its own: (status, stdout, stderr, session)."""
        process = subprocess.Popen([*before, mounted.program(), *arguments],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors='replace',
                                   start_new_session=True, **kwargs)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise tap.Failure(f'foldfs {arguments} did not return') from None
        return process.returncode, out, err, process.pid

    def options(self, *more):
        return ['-o', ','.join(('index=' + self.index, *more))]

    def refuse(self, status, words, *arguments, **kwargs):
        """foldfs must refuse ARGUMENTS, with each of WORDS in its one line."""
        mounts, tree = mounted.mounts(), picture(self.area.top)
        try:
            got, out, err, session = self.run(*arguments, **kwargs)
            expect_equal(got, status, f'exit status; stderr: {err}')
            expect_equal(out, '', 'stdout')
            expect(err.endswith('\n') and err.count('\n') == 1, f'not one line: {err!r}')
            expect(err.startswith('foldfs: '), f'does not say who speaks: {err!r}')
            for word in words:
                expect(word in err, f'{word!r} is not in {err!r}')
            tap.note(err)
            expect_equal(mounted.mounts(), mounts, 'mounts')
            expect_equal(picture(self.area.top), tree, 'the trees')
            expect_equal(processes_of_session(session), [], 'processes left')
        finally:
            mounted.unmount_all_under(self.point)


# Mistakes in the command line: 1


@bad.test
def no_source(place):
    place.refuse(USAGE, ['SOURCE'])


@bad.test
def no_mountpoint(place):
    place.refuse(USAGE, ['MOUNTPOINT'], place.source)


@bad.test
def one_argument_too_many(place):
    place.refuse(USAGE, ['/surplus'], place.source, place.point, '/surplus')


@bad.test
def unknown_option(place):
    for option in ('frobnicate', 'frobnicate=7'):
        place.refuse(USAGE, ['option', option], *place.options(option), place.source, place.point)


@bad.test
def unknown_switch(place):
    for switch in ('--frobnicate', '-Q'):
        place.refuse(USAGE, ['option', switch], switch, place.source, place.point)


@bad.test
def bad_values(place):
    for option, value in (('lookup', 'maybe'), ('lookup', ''), ('passthrough', 'yes'), ('cache', 'quick'),
                          ('attr_timeout', 'soon'), ('attr_timeout', '-1'),
                          ('entry_timeout', '1x'), ('entry_timeout', 'nan'), ('threads', '0'),
                          ('threads', 'many'), ('threads', '-3'),
                          ('threads', '99999999999999999999')):
        place.refuse(USAGE, [option], *place.options(f'{option}={value}'), place.source,
                     place.point)


@bad.test
def index_without_a_place(place):
    place.refuse(USAGE, ['index'], '-o', 'index=', place.source, place.point)


# All else: 2


@bad.test
def source_is_missing(place):
    place.refuse(FAILED, ['SOURCE', '/no/such', 'No such file'], *place.options(), '/no/such',
                 place.point)


@bad.test
def source_is_a_file(place):
    place.refuse(FAILED, ['SOURCE', place.file, 'directory'], *place.options(), place.file,
                 place.point)


@bad.test
def mountpoint_is_missing(place):
    place.refuse(FAILED, ['MOUNTPOINT', '/no/such', 'No such file'], *place.options(),
                 place.source, '/no/such')


@bad.test
def mountpoint_is_a_file(place):
    file = os.path.join(place.area.path, 'plain')
    with open(file, 'x', encoding='ascii'):
        pass
    place.refuse(FAILED, ['MOUNTPOINT', file, 'directory'], *place.options(), place.source, file)


@bad.test
def mountpoint_is_busy(place):
    """A foldfs is mounted there already."""
    status, _, err, _ = place.run(*place.options(), place.source, place.point)
    expect_equal(status, 0, err)
    try:
        other = place.area.dir('other-source')
        mounts = mounted.mounts()
        status, _, err, session = place.run('-o', 'index=memory', other, place.point)
        expect_equal((status, err.count('\n')), (FAILED, 1), err)
        expect(place.point in err, err)
        tap.note(err)
        expect_equal(mounted.mounts(), mounts)
        expect_equal(processes_of_session(session), [])
    finally:
        mounted.run('umount', place.point)


@bad.test
def mountpoint_inside_source(place):
    place.refuse(FAILED, ['MOUNTPOINT', 'inside'], *place.options(), place.source,
                 os.path.join(place.source, 'inside'))


@bad.test
def source_inside_mountpoint(place):
    place.refuse(FAILED, ['SOURCE', 'inside'], *place.options(),
                 os.path.join(place.source, 'inside'), place.source)


@bad.test
def mountpoint_inside_source_by_a_symlink(place):
    link = os.path.join(place.area.path, 'link')
    os.symlink(os.path.join(place.source, 'inside'), link)
    place.refuse(FAILED, ['MOUNTPOINT', 'inside'], *place.options(), place.source, link)


@bad.test
def index_directory_is_a_file(place):
    file = os.path.join(place.area.path, 'not-an-index')
    with open(file, 'x', encoding='ascii'):
        pass
    place.refuse(FAILED, ['index', file], '-o', 'index=' + file, place.source, place.point)


@bad.test
def index_directory_on_a_read_only_file_system(place):
    index = place.area.outside('read-only')
    mounted.run('mount', '-t', 'tmpfs', '-o', 'mode=700', 'tmpfs', index)
    mounted.run('mount', '-o', 'remount,ro', index)
    try:
        place.refuse(FAILED, ['index', index, 'Read-only'], '-o', 'index=' + index, place.source,
                     place.point)
    finally:
        mounted.run('umount', index)


@bad.test
def index_directory_that_others_may_write(place):
    index = place.area.outside('open-index')
    os.chmod(index, 0o777)
    place.refuse(FAILED, ['index', index], '-o', 'index=' + index, place.source, place.point)


@bad.test
def index_directory_of_somebody_else(place):
    index = place.area.outside('foreign-index')
    os.chmod(index, 0o700)
    os.chown(index, ALICE.uid, ALICE.gid)
    place.refuse(FAILED, ['index', index], '-o', 'index=' + index, place.source, place.point)


@bad.test
def index_directory_without_a_parent(place):
    index = os.path.join(place.area.path, 'missing', 'index')
    place.refuse(FAILED, ['index', index], '-o', 'index=' + index, place.source, place.point)


@bad.test
def index_directory_inside_source(place):
    index = os.path.join(place.source, 'inside', 'index')
    place.refuse(FAILED, ['index', 'SOURCE'], '-o', 'index=' + index, place.source, place.point)
    os.mkdir(index, 0o700)
    place.refuse(FAILED, ['index', 'SOURCE'], '-o', 'index=' + index, place.source, place.point)


@bad.test
def index_directory_used_by_another_daemon(place):
    other_source, other_point = place.area.dir('used-source'), place.area.dir('used-point')
    status, _, err, _ = place.run(*place.options(), other_source, other_point)
    expect_equal(status, 0, err)
    try:
        mounts, tree = mounted.mounts(), picture(place.source)
        status, _, err, session = place.run(*place.options(), place.source, place.point)
        expect_equal((status, err.count('\n')), (FAILED, 1), err)
        expect(place.index in err and 'used by another' in err, err)
        tap.note(err)
        expect_equal(mounted.mounts(), mounts)
        expect_equal(picture(place.source), tree)
        expect_equal(processes_of_session(session), [])
        os.stat(other_point)
    finally:
        mounted.run('umount', other_point)


@bad.test
def no_dev_fuse(place):
    """In a mount namespace whose /dev has nothing but null."""
    script = 'mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"'
    place.refuse(FAILED, ['/dev/fuse'], *place.options(), place.source, place.point,
                 before=('unshare', '-m', 'sh', '-c', script, 'sh'))


@bad.test
def no_permission_to_mount(place):
    """An ordinary user on a mount point that is not his."""
    index = place.area.outside('users-index')
    os.chown(index, ALICE.uid, ALICE.gid)
    os.chmod(index, 0o700)
    place.refuse(FAILED, [place.point], '-o', 'index=' + index, place.source, place.point,
                 user=ALICE.uid, group=ALICE.gid, extra_groups=[])


@bad.test
def no_permission_where_dev_fuse_is_open_to_all(place):
    """As udev makes /dev/fuse: it is fusermount3 that refuses, and says why.  That the index would
    be kept in memory does not matter then."""
    script = ('mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 &&'
              ' mknod -m 666 /dev/fuse c 10 229 &&'
              f' exec setpriv --reuid {ALICE.uid} --regid {ALICE.gid} --clear-groups "$@"')
    place.refuse(FAILED, [place.point, 'fusermount3: '], place.source, place.point,
                 before=('unshare', '-m', 'sh', '-c', script, 'sh'))


@bad.test
def foreground_refuses_alike(place):
    place.refuse(FAILED, ['SOURCE', '/no/such'], '-f', *place.options(), '/no/such', place.point)
    place.refuse(USAGE, ['frobnicate'], '-f', *place.options('frobnicate'), place.source,
                 place.point)


@bad.test
def odd_characters_in_paths_stay_on_one_line(place):
    place.refuse(FAILED, ['SOURCE'], *place.options(), '/no/such\nline\x1b[2J', place.point)


# What works


def daemon_of(point):
    """The process that serves POINT: the only foldfs in whose command line it stands."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                words = file.read().split(b'\0')
        except OSError:
            continue
        if os.fsencode(point) in words and b'foldfs' in words[0]:
            return int(pid)
    raise tap.Failure(f'no daemon for {point}')


def wait_until_gone(pid):
    """Gone, or a zombie: who reaps a daemon is not foldfs's choice."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
                if file.read().rsplit(')', 1)[1].split()[0] == 'Z':
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        expect(time.monotonic() < deadline,
               'the daemon does not end; its threads wait in:\n' + mounted.threads_of(pid))
        time.sleep(0.01)


@good.test
def returns_when_the_mount_answers_and_umount_ends_it(place):
    status, out, err, _ = place.run(*place.options(), place.source, place.point)
    try:
        expect_equal((status, out, err), (0, '', ''))
        expect_equal(sorted(os.listdir(place.point)), sorted(os.listdir(place.source)))
        os.stat(os.path.join(place.point, 'FILE'))
        pid = daemon_of(place.point)
    finally:
        mounted.run('umount', place.point)
    wait_until_gone(pid)
    expect(mounted.mount_at(place.point) is None, 'still mounted')


@good.test
def sigterm_and_sigint_end_it_cleanly(place):
    for number in ENDING_SIGNALS:
        status, _, err, _ = place.run(*place.options(), place.source, place.point)
        expect_equal((status, err), (0, ''))
        os.stat(os.path.join(place.point, 'FILE'))
        pid = daemon_of(place.point)
        os.kill(pid, number)
        wait_until_gone(pid)
        expect(mounted.mount_at(place.point) is None, f"still mounted after signal {number}")


@good.test
def mount_table_shows_source_and_type(place):
    status, _, err, _ = place.run(*place.options(), place.source, place.point)
    try:
        expect_equal((status, err), (0, ''))
        _, kind, source, options, _ = mounted.mount_at(place.point)
        expect_equal((kind, source), ('fuse.foldfs', place.source))
        tap.note(options)
        with open('/proc/mounts', encoding='utf-8') as file:
            line = next(x for x in file if f' {place.point} ' in x)
        expect('allow_other' in line and 'default_permissions' in line, line)
    finally:
        mounted.run('umount', place.point)


@good.test
def source_with_spaces_and_unicode(place):
    source, point = place.area.dir('Ein Baum, größer'), place.area.dir('ein Ort\\x')
    with open(os.path.join(source, 'x'), 'x', encoding='ascii'):
        pass
    status, _, err, _ = place.run('-o', 'index=memory', source, point)
    try:
        expect_equal((status, err), (0, ''))
        os.stat(os.path.join(point, 'X'))
    finally:
        mounted.run('umount', point)


@good.test
def relative_paths(place):
    status, _, err, _ = place.run('-o', 'index=../index', 'source', './point/',
                                  cwd=place.area.path)
    try:
        expect_equal((status, err), (0, ''))
        os.stat(os.path.join(place.point, 'FILE'))
        expect_equal(mounted.mount_at(place.point)[2], place.source)
    finally:
        mounted.run('umount', place.point)


@good.test
def in_place_over_the_source(place):
    status, _, err, _ = place.run(*place.options(), place.source, place.source)
    try:
        expect_equal((status, err), (0, ''))
        os.stat(os.path.join(place.source, 'FILE'))
        with open(os.path.join(place.source, 'INSIDE', 'Made'), 'x', encoding='ascii'):
            pass
    finally:
        mounted.run('umount', place.source)
    expect_equal(os.listdir(os.path.join(place.source, 'inside')), ['Made'])
    os.unlink(os.path.join(place.source, 'inside', 'Made'))


@good.test
def busy_mount_is_not_torn_down_by_umount(place):
    status, _, err, _ = place.run(*place.options(), place.source, place.point)
    expect_equal((status, err), (0, ''))
    try:
        with open(os.path.join(place.point, 'FILE'), 'rb'):
            done = subprocess.run(['umount', place.point], stderr=subprocess.DEVNULL, check=False)
            expect(done.returncode != 0, 'a busy mount was unmounted')
        os.stat(os.path.join(place.point, 'FILE'))
    finally:
        mounted.run('umount', place.point)


@good.test
def lazy_umount_serves_until_the_last_descriptor(place):
    status, _, err, _ = place.run(*place.options(), place.source, place.point)
    expect_equal((status, err), (0, ''))
    pid = daemon_of(place.point)
    with open(os.path.join(place.point, 'made'), 'x+b') as file:
        mounted.run('umount', '-l', place.point)
        file.write(b'late')
        file.flush()
        file.seek(0)
        expect_equal(file.read(), b'late')
    wait_until_gone(pid)
    os.unlink(os.path.join(place.source, 'made'))


@good.test
def started_with_closed_standard_streams(place):
    """No file of the daemon's may come to stand at 0, 1 or 2, where streams are expected."""
    status, _, _, _ = place.run(*place.options(), place.source, place.point,
                                before=('sh', '-c', 'exec "$@" <&- >&- 2>&-', 'sh'))
    try:
        expect_equal(status, 0, 'exit status')
        os.stat(os.path.join(place.point, 'FILE'))
        expect_equal(sorted(os.listdir(place.point)), sorted(os.listdir(place.source)))
    finally:
        mounted.unmount_all_under(place.point)


@good.test
def through_mount_8(place):
    helper = mounted.tool('mount.fuse3')
    tap.note(helper)
    sbin = '/usr/local/sbin'  # where mount.fuse3 finds a program; its mount is this program's own
    mounted.run('mount', '-t', 'tmpfs', 'tmpfs', sbin)
    os.symlink(mounted.program(), os.path.join(sbin, 'foldfs'))
    done = subprocess.run(['mount', '-t', 'fuse.foldfs', place.source, place.point, '-o',
                           f'rw,index={place.index},lookup=fold,threads=2'],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    try:
        expect_equal((done.returncode, done.stderr), (0, ''))
        os.stat(os.path.join(place.point, 'FILE'))
        expect_equal(mounted.mount_at(place.point)[1:3], ('fuse.foldfs', place.source))
    finally:
        mounted.unmount_all_under(place.point)
        mounted.run('umount', sbin)


@good.test
def read_only_by_option(place):
    status, _, err, _ = place.run(*place.options('ro'), place.source, place.point)
    try:
        expect_equal((status, err), (0, ''))
        os.stat(os.path.join(place.point, 'FILE'))
        try:
            os.mkdir(os.path.join(place.point, 'x'))
            raise tap.Failure('a read-only mount was written to')
        except OSError as error:
            expect_equal(error.errno, 30)  # EROFS
    finally:
        mounted.run('umount', place.point)


@good.test
def help_and_version(place):
    for switch, words in (('--help', ('SOURCE', 'MOUNTPOINT', 'lookup=', 'index=', 'passthrough=', 'cache=',
                                      'attr_timeout=', 'entry_timeout=', 'threads=')),
                          ('--version', ('foldfs',))):
        status, out, err, _ = place.run(switch)
        expect_equal((status, err), (0, ''))
        for word in words:
            expect(word in out, f'{word} is not in {out}')


@good.test
def default_index_is_made_for_its_owner_only(place):
    """Without index= it goes below /var/lib/foldfs: here in a namespace with a fresh /var/lib."""
    script = ('mount -t tmpfs tmpfs /var/lib && "$1" "$2" "$3" && stat "$3/FILE" > /dev/null &&'
              ' umount "$3" && find /var/lib/foldfs -printf "%d %m %u\\n"')
    done = subprocess.run(['unshare', '-m', 'sh', '-c', script, 'sh', mounted.program(),
                           place.source, place.point], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    expect_equal((done.returncode, done.stderr), (0, ''))
    lines = done.stdout.split('\n')
    expect('1 700 root' in lines, done.stdout)
    tap.note(f'{len(lines)} files and directories')


@good.test
def mode_of_a_new_index_directory_is_0700(place):
    index = os.path.join(place.area.top, 'fresh-index')
    status, _, err, _ = place.run('-o', 'index=' + index, place.source, place.point)
    try:
        expect_equal((status, err), (0, ''))
        expect_equal(stat.S_IMODE(os.stat(index).st_mode), 0o700)
    finally:
        mounted.run('umount', place.point)


def main():
    word = tap.arguments().k

    def whole():
        if mounted.is_bind():
            raise Skip('a bind mount has no command line')
        for suite in (bad, good):
            for test in suite.tests:
                if word in test.__name__:
                    tap.run_one(test.__name__, in_a_place, test)

    def in_a_place(test):
        with Area('dir') as area:
            test(Place(area))
    tap.run_one('usage_tests_run', whole)
    sys.exit(tap.status())


main()
