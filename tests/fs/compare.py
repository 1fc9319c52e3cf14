# SPDX-License-Identifier: GPL-3.0-or-later
"""compare.py - the same operations on a bare tree and through the mount must do the same.

A test is a function of one argument, `t`, a side.  It runs twice, each time in a process of its
own: once in a directory of the bare tree, once in one of the mount.  What it did through t.do()
(result or errno) and what it noted by t.record() must be equal on both sides, and so must the
two trees afterwards: names, types, modes, owners, sizes, link counts and groups, xattrs, content,
and times where the test asked for them (t.keep_times).  The tree seen through the mount must
also equal the tree below it in everything, inode numbers and times included.

Each test runs as root and as an unprivileged user: it prepares as root and then calls t.become()
(it may skip that if it switches users itself by t.user()).  Each also runs "respelled": on the
mount's side every existing component of a path given by t() is then written in the other case,
which must change nothing.  A path given by t.new() is never respelled: use it for the target of
a rename, whose spelling stays.
"""
import contextlib
import errno
import hashlib
import os
import pickle
import select
import shutil
import signal
import stat
import sys
import time
import traceback

import mounted
import tap

TEST_TIMEOUT_S = 120  # for one side of one test; a hang is a failure, not the end of the run


def chown_nothing(t, path):
    """chown(path, -1, -1).  A stranger's, on a file with set-id bits, is refused by the bare tree but
    not by the mount: it reaches foldfs as what comes before a write of his, and changes nothing.  So
    his result is not compared; the file's state is, by the caller."""
    if os.geteuid() in (0, os.stat(path).st_uid):
        t.do(os.chown, path, -1, -1)
        return
    try:
        os.chown(path, -1, -1)
    except PermissionError:
        pass


class User:
    def __init__(self, name, uid, gid, groups=()):
        self.name, self.uid, self.gid, self.groups = name, uid, gid, list(groups)


ROOT = User('root', 0, 0)
TEAM = 60100  # a group that ALICE and BOB have as a supplementary one
ALICE = User('alice', 60001, 60001, [TEAM])
BOB = User('bob', 60002, 60002, [TEAM, 60101])
MALLORY = User('mallory', 60003, 60003)  # in no group of the others

PAIRS = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                     '../../src/fold/upcase-windows.tsv')


def _partners():
    table = {}
    with open(PAIRS, encoding='ascii') as file:
        for line in file:
            one, other = (int(field, 16) for field in line.split('\t'))
            table[one], table[other] = other, one
    return table


_PARTNERS = _partners()


def respell(name):
    """NAME (bytes) with the case of every letter changed; itself if it has none."""
    try:
        return name.decode('utf-8').translate(_PARTNERS).encode('utf-8')
    except UnicodeDecodeError:
        return name


def one_spelling(path):
    """PATH with each name in one and the same spelling, whichever it was given in."""
    return b'/'.join(_smallest_letters(name) for name in path.split(b'/'))


def _smallest_letters(name):
    try:
        return ''.join(chr(min(ord(c), _PARTNERS.get(ord(c), ord(c))))
                       for c in name.decode('utf-8')).encode('utf-8')
    except UnicodeDecodeError:
        return name


class Side:
    """One of the two trees, as a test sees it."""

    def __init__(self, root, user, respelled):
        self.root, self.test_user, self.respelled = os.fsencode(root), user, respelled
        self.trace, self.times = [], []
        self.cleanups = []

    def new(self, *names):
        """Path of a name in the tree, spelled as given."""
        return os.path.join(self.root, *(os.fsencode(n) for n in names))

    def __call__(self, *names):
        """Path of a name in the tree; existing components are respelled if this run does so."""
        path = self.new(*names)
        if not self.respelled:
            return path
        out, plain = self.root, self.root
        for part in path[len(self.root) + 1:].split(b'/'):
            plain = os.path.join(plain, part)
            try:
                os.lstat(plain)
                part = respell(part)
            except OSError:
                pass
            out = os.path.join(out, part)
        return out

    def record(self, what, value):
        self.trace.append((what, normal(value)))

    def do(self, function, *args, **kwargs):
        """Calls FUNCTION; records its result or errno.  Returns the result, None on error."""
        what = f'{function.__name__}({", ".join(self._shown(a) for a in args)})'
        if any(a is None for a in args):
            self.trace.append((what, 'not possible: an argument is missing'))
            return None
        try:
            result = function(*args, **kwargs)
        except OSError as error:
            self.trace.append((what, 'errno ' + errno.errorcode.get(error.errno, str(error.errno))))
            return None
        self.trace.append((what, normal(result)))
        return result

    def _shown(self, argument):
        if isinstance(argument, bytes) and argument.startswith(self.root):
            return repr(one_spelling(argument[len(self.root):]))
        if isinstance(argument, int):
            return 'n'  # descriptors and inode numbers differ; sizes show in the results
        return repr(argument)[:80]

    def open(self, path, flags=os.O_RDONLY, mode=0o666):
        """os.open() that records only whether it succeeded."""
        def opened(path):
            fds.append(os.open(path, flags, mode))
        fds = []
        opened.__name__ = f'open[{flags:o},{mode:o}]'
        self.do(opened, path)
        if fds:
            self.cleanups.append(fds[0])
        return fds[0] if fds else None

    def put(self, name, data=b'', mode=0o644, owner=None):
        """Makes a file, as a preparation: an error here is an error of the test."""
        path = self.new(name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, data)
        os.close(fd)
        self.own(name, mode, owner)
        return path

    def folder(self, name, mode=0o755, owner=None):
        os.mkdir(self.new(name))
        self.own(name, mode, owner)
        return self.new(name)

    def own(self, name, mode, owner):
        if owner:
            os.chown(self.new(name), owner.uid, owner.gid)
        os.chmod(self.new(name), mode)

    def get(self, name):
        with open(self(name), 'rb') as file:
            return file.read()

    def keep_times(self, *names):
        """The modification times of NAMES must be equal on both sides in the end."""
        self.times += [os.fsencode(n) for n in names]

    def become(self):
        """From here on this process is the user that the test runs as, for good."""
        user = self.test_user
        if user.uid == 0:
            return
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)

    @contextlib.contextmanager
    def user(self, user):
        """The block runs with the file-system credentials of USER; root comes back after."""
        groups = os.getgroups()
        os.setgroups(user.groups)
        os.setresgid(-1, user.gid, -1)
        os.setresuid(-1, user.uid, -1)
        try:
            yield
        finally:
            os.setresuid(-1, 0, -1)
            os.setresgid(-1, 0, -1)
            os.setgroups(groups)


def normal(value):
    """VALUE without what must differ between two trees (devices, inode numbers, times)."""
    if isinstance(value, os.stat_result):
        size = value.st_size if not stat.S_ISDIR(value.st_mode) else 0
        return (f'{value.st_mode:o}', value.st_nlink, value.st_uid, value.st_gid, size,
                value.st_rdev)
    if isinstance(value, os.statvfs_result):
        return (value.f_bsize, value.f_frsize, value.f_blocks, value.f_files, value.f_namemax)
    return value


def digest(path):
    with open(path, 'rb') as file:
        return hashlib.sha256(file.read()).hexdigest()


def describe(path, st):
    """What one entry is, in what both trees must have in common."""
    entry = {'mode': f'{st.st_mode:o}', 'uid': st.st_uid, 'gid': st.st_gid,
             'nlink': st.st_nlink, 'rdev': st.st_rdev}
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
        entry['xattrs'] = {n: os.getxattr(path, n, follow_symlinks=False) for n in names}
    except OSError as error:
        entry['xattrs'] = errno.errorcode[error.errno]
    if stat.S_ISLNK(st.st_mode):
        entry['target'] = os.readlink(path)
    if stat.S_ISREG(st.st_mode):
        entry['size'], entry['content'] = st.st_size, digest(path)
    return entry


def snapshot(root):
    """relative path -> (description, stat result), for everything under ROOT and itself."""
    found = {}

    def visit(path, relative):
        st = os.lstat(path)
        found[relative] = (describe(path, st), st)
        if stat.S_ISDIR(st.st_mode):
            for name in sorted(os.listdir(path)):
                visit(os.path.join(path, name), os.path.join(relative, name))
    visit(os.fsencode(root), b'')
    return found


def link_groups(tree):
    groups = {}
    for path, (_, st) in tree.items():
        groups.setdefault((st.st_dev, st.st_ino), []).append(path)
    return sorted(paths for paths in groups.values() if len(paths) > 1)


def differences(left, right, left_name, right_name):
    lines = []
    for path in sorted(left.keys() | right.keys()):
        if path not in left or path not in right:
            lines.append(f'{path!r} is only in the {left_name if path in left else right_name}')
            continue
        one, other = left[path][0], right[path][0]
        lines += [f'{path!r}: {key} is {one.get(key)!r} in the {left_name}, '
                  f'{other.get(key)!r} in the {right_name}'
                  for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    if link_groups(left) != link_groups(right):
        lines.append(f'hard links: {link_groups(left)} and {link_groups(right)}')
    return lines


EXACT = ('st_ino', 'st_size', 'st_blocks', 'st_blksize', 'st_mtime_ns', 'st_ctime_ns')


def differences_through_mount(below, through):
    """The same tree below and through the mount: everything but the device must be equal."""
    lines = differences(below, through, 'tree below', 'mount')
    for path in below.keys() & through.keys():
        one, other = below[path][1], through[path][1]
        lines += [f'{path!r}: {key} is {getattr(one, key)} below, {getattr(other, key)} through '
                  'the mount' for key in EXACT if getattr(one, key) != getattr(other, key)]
    return lines


def differences_of_times(times, left, right):
    return [f'{name!r}: mtime {left[name][1].st_mtime_ns} and {right[name][1].st_mtime_ns}'
            for name in times if name in left and name in right
            and left[name][1].st_mtime_ns != right[name][1].st_mtime_ns]


def side_main(function, side, out):
    """The child: runs the test on one side, sends back what it recorded."""
    try:
        os.umask(0o022)
        function(side)
        result = ('done', side.trace, side.times)
    except tap.Skip as reason:
        result = ('skip', str(reason), None)
    except BaseException:
        result = ('error', traceback.format_exc(), None)
    for fd in side.cleanups:
        with contextlib.suppress(OSError):
            os.close(fd)
    with os.fdopen(out, 'wb') as pipe:
        pickle.dump(result, pipe)


def read_until_end(pipe, pid, on_hang):
    """What the child writes; it is killed, and the daemon cut off, if it does not end in time."""
    deadline, chunks = time.monotonic() + TEST_TIMEOUT_S, []
    while True:
        if not select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
            on_hang()
            os.waitpid(pid, 0)
            raise tap.Failure(f'no end after {TEST_TIMEOUT_S} s')
        chunk = os.read(pipe, 1 << 20)
        if not chunk:
            os.waitpid(pid, 0)
            return b''.join(chunks)
        chunks.append(chunk)


def run_side(function, side, on_hang):
    back, out = os.pipe()
    sys.stdout.flush()
    mounted.has_tmpfile()  # asked now: the child may become one who cannot ask
    pid = os.fork()
    if pid == 0:
        try:
            os.close(back)
            side_main(function, side, out)
        finally:
            os._exit(0)
    os.close(out)
    try:
        result = read_until_end(back, pid, on_hang)
    finally:
        os.close(back)
    if not result:
        raise tap.Failure('the process of the test died')
    kind, trace, times = pickle.loads(result)
    if kind == 'skip':
        raise tap.Skip(trace)
    if kind == 'error':
        raise tap.Failure(trace)
    return trace, times


def compare_once(function, user, respelled, bare_top, mount):
    name = f'{function.__name__}-{user.name}' + ('-respelled' if respelled else '')
    bare, below = os.path.join(bare_top, name), os.path.join(mount.source, name)
    through = os.path.join(mount.path, name)
    for path in (bare, through):
        os.mkdir(path)
        os.chmod(path, 0o777)
    try:
        compare_in(function, user, respelled, bare, below, through, mount)
    finally:
        shutil.rmtree(bare, ignore_errors=True)
        shutil.rmtree(through, ignore_errors=True)


def compare_in(function, user, respelled, bare, below, through, mount):
    want, times = run_side(function, Side(bare, user, False), mount.abort)
    got, _ = run_side(function, Side(through, user, respelled), mount.abort)
    lines = [f'{what}: bare {value!r}, mount {other!r}' if what == other_what else
             f'another course: bare {what} {value!r}, mount {other_what} {other!r}'
             for (what, value), (other_what, other) in zip(want, got)
             if (what, value) != (other_what, other)]
    if len(want) != len(got):
        lines.append(f'{len(want)} results from the bare tree, {len(got)} from the mount')
    through_tree = snapshot(through)
    bare_tree, below_tree = snapshot(bare), snapshot(below)
    lines += differences(bare_tree, below_tree, 'bare tree', 'tree below the mount')
    lines += differences_of_times(times, bare_tree, below_tree)
    lines += differences_through_mount(below_tree, through_tree)
    if lines:
        raise tap.Failure('\n'.join(lines))


class Comparisons:
    """The tests of one program."""

    def __init__(self):
        self.tests = []

    def test(self, function=None, *, users=(ROOT, ALICE), only_if=lambda mount: True):
        """`@tests.test`: users are whom it runs as; only_if tells on which mounts it can pass."""
        if function is None:
            return lambda f: self.test(f, users=users, only_if=only_if)
        self.tests.append((function, users, only_if))
        return function

    def run_on(self, bare_top, mount, suffix, word):
        # Through lookup=exact another spelling is another name; a bind mount folds nothing.
        may_respell = not mounted.is_bind() and not mount.has_option('lookup=exact')
        for function, users, only_if in self.tests:
            if not only_if(mount):
                continue
            for user in users:
                for other in (False, True) if may_respell else (False,):
                    name = (f'{function.__name__}_as_{user.name}'
                            + ('_respelled' if other else '') + suffix)
                    if word in name:
                        mount.must_live()
                        tap.run_one(name, compare_once, function, user, other, bare_top, mount)

    def main(self, kind='dir', variants=('',), wrapper=(), **area):
        """Runs all tests on one mount for each of VARIANTS, option strings; WRAPPER is a command
        that becomes foldfs."""
        word = tap.arguments().k
        for variant in variants:
            suffix = '_with_' + variant.replace('=', '_').replace(',', '_') if variant else ''
            self.run_variant(kind, variant, suffix, word, wrapper, area)
        sys.exit(tap.status())

    def run_variant(self, kind, variant, suffix, word, wrapper, area_arguments):
        def whole():
            with mounted.Area(kind, **area_arguments) as area:
                bare, source = area.dir('bare'), area.dir('source')
                with mounted.Mount(source, variant, wrapper=wrapper) as mount:
                    self.run_on(bare, mount, suffix, word)
        program = os.path.basename(sys.argv[0]).removesuffix('.py').replace('-', '_')
        tap.run_one(f'{program}_mounts_and_unmounts{suffix}', whole)
