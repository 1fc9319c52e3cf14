#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in a file: reading, writing, truncating, holes, mappings; with and without passthrough,
as on the bare tree."""
import ctypes
import hashlib
import mmap
import os
import random
import time

import mounted
import syscalls as sc
from compare import Comparisons
from tap import scaled

tests = Comparisons()
test = tests.test

BLOCK = 4096
MIB = 1 << 20
CLOCK_REALTIME_COARSE = 5  # of time.h; the clock of timestamps on kernels before 6.13


def pattern(length, seed=1):
    return random.Random(seed).randbytes(length)


def layout(fd):
    """Data and holes of a file: list of (begin, end) of data."""
    size, at, parts = os.fstat(fd).st_size, 0, []
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        parts.append((begin, at))
    return parts


@test
def written_is_read(t):
    t.become()
    data = pattern(3 * MIB + 17)
    fd = t.open(t('file'), os.O_CREAT | os.O_RDWR)
    at = 0
    for size in (1, 511, 4096, 65536, 131072, 1000003, len(data)):
        at += t.do(os.pwrite, fd, data[at:at + size], at)
    t.do(os.fstat, fd)
    t.record('content', hashlib.sha256(t.get('file')).hexdigest())
    for start, size in ((0, 1), (4095, 2), (MIB - 1, MIB), (len(data) - 1, 10), (len(data), 1)):
        t.record(f'read {start}', hashlib.sha256(os.pread(fd, size, start)).hexdigest())


@test
def reading_beyond_the_end_and_odd_requests(t):
    t.become()
    t.put('file', b'0123456789')
    fd = t.open(t('file'), os.O_RDWR)
    t.do(os.pread, fd, 100, 5)
    t.do(os.pread, fd, 100, 10)
    t.do(os.pread, fd, 100, 1 << 40)
    t.do(os.pread, fd, 0, 0)
    t.do(os.pwrite, fd, b'', 100)
    t.do(os.pwrite, fd, b'x', 20)
    t.do(os.lseek, fd, 0, os.SEEK_END)
    t.do(os.lseek, fd, -1, os.SEEK_SET)
    t.do(os.pread, fd, 100, 0)
    t.do(os.pread, fd, 1, -1)
    t.do(os.pwrite, fd, b'x', (1 << 63) - 1)
    t.do(os.ftruncate, fd, -1)
    t.do(os.write, t.open(t('file')), b'not writable')
    t.do(os.read, t.open(t('file'), os.O_WRONLY), 1)


@test
def append_goes_to_the_end(t):
    t.become()
    t.put('file', b'start')
    one = t.open(t('file'), os.O_WRONLY | os.O_APPEND)
    two = t.open(t('file'), os.O_WRONLY | os.O_APPEND)
    for number in range(10):
        t.do(os.write, one, b'-one')
        t.do(os.write, two, b'-two')
        t.do(os.pwrite, one, b'!', 0)
    t.do(os.lseek, one, 0, os.SEEK_CUR)
    t.record('content', t.get('file'))


@test
def truncate_grows_and_shrinks(t):
    t.become()
    t.put('file', pattern(10000))
    fd = t.open(t('file'), os.O_RDWR)
    for size in (5000, 0, 20000, 4096, 4097, 1 << 33, 100):
        t.do(os.ftruncate, fd, size)
        t.do(os.fstat, fd)
        t.do(os.truncate, t('file'), size + 1)
        t.do(os.stat, t('file'))
    t.do(os.pread, fd, 200, 0)
    t.do(os.truncate, t('missing'), 0)
    t.do(os.truncate, t.root, 0)


@test
def open_with_truncation(t):
    t.become()
    t.put('file', b'old content')
    reader = t.open(t('file'))
    t.do(os.read, reader, 3)
    fd = t.open(t('file'), os.O_RDWR | os.O_TRUNC)
    t.do(os.read, reader, 100)
    t.do(os.fstat, reader)
    t.do(os.write, fd, b'new')
    t.do(os.pread, reader, 100, 0)
    t.open(t('file'), os.O_RDONLY | os.O_TRUNC)
    t.do(os.stat, t('file'))
    t.open(t.root, os.O_RDONLY | os.O_TRUNC)


@test
def several_descriptors_see_each_other(t):
    t.become()
    t.put('file', b'a' * 10000)
    fds = [t.open(t('file'), os.O_RDWR) for _ in range(4)]
    for number, fd in enumerate(fds):
        t.do(os.pwrite, fd, b'%d' % number * 100, number * 50)
        for other in fds:
            t.record('seen', os.pread(other, 300, 0))
            t.do(os.fstat, other)
    t.do(os.close, fds[0])
    t.cleanups.remove(fds[0])
    t.do(os.pread, fds[1], 10, 0)


@test
def holes_are_found(t):
    t.become()
    fd = t.open(t('file'), os.O_CREAT | os.O_RDWR)
    for at in (0, 10 * BLOCK, MIB):
        os.pwrite(fd, pattern(BLOCK), at)
    t.do(os.ftruncate, fd, 2 * MIB)
    t.do(os.fsync, fd)
    t.record('layout', layout(fd))
    t.record('blocks', os.fstat(fd).st_blocks)
    for where in (0, 1, BLOCK, 10 * BLOCK, MIB + BLOCK, 2 * MIB - 1, 2 * MIB, 1 << 40):
        t.do(os.lseek, fd, where, os.SEEK_DATA)
        t.do(os.lseek, fd, where, os.SEEK_HOLE)


@test
def fallocate_in_its_forms(t):
    t.become()
    fd = t.open(t('file'), os.O_CREAT | os.O_RDWR)
    t.do(sc.fallocate, fd, 0, 0, 64 * BLOCK)
    t.do(os.fstat, fd)
    os.pwrite(fd, pattern(64 * BLOCK), 0)
    t.do(sc.fallocate, fd, sc.FALLOC_KEEP_SIZE, 64 * BLOCK, 16 * BLOCK)
    t.do(os.fstat, fd)
    t.do(sc.fallocate, fd, sc.FALLOC_PUNCH_HOLE | sc.FALLOC_KEEP_SIZE, 8 * BLOCK, 8 * BLOCK)
    t.do(sc.fallocate, fd, sc.FALLOC_PUNCH_HOLE | sc.FALLOC_KEEP_SIZE, 100, 50)
    t.do(sc.fallocate, fd, sc.FALLOC_PUNCH_HOLE, 0, BLOCK)
    t.do(sc.fallocate, fd, sc.FALLOC_ZERO_RANGE, 30 * BLOCK, 2 * BLOCK)
    t.do(os.fsync, fd)
    t.record('layout', layout(fd))
    t.record('blocks', os.fstat(fd).st_blocks)
    t.record('content', hashlib.sha256(t.get('file')).hexdigest())
    t.do(sc.fallocate, fd, 0, 0, 0)
    t.do(sc.fallocate, fd, 0, -1, BLOCK)
    t.do(sc.fallocate, t.open(t('file')), 0, 0, BLOCK)
    t.do(os.posix_fallocate, fd, 0, 70 * BLOCK)


@test
def punched_data_is_gone_for_every_reader(t):
    t.become()
    t.put('file', pattern(16 * BLOCK))
    fd, reader = t.open(t('file'), os.O_RDWR), t.open(t('file'))
    os.pread(reader, 16 * BLOCK, 0)
    view = mmap.mmap(reader, 16 * BLOCK, prot=mmap.PROT_READ)
    t.record('mapped before', hashlib.sha256(view[:]).hexdigest())
    t.do(sc.fallocate, fd, sc.FALLOC_PUNCH_HOLE | sc.FALLOC_KEEP_SIZE, 0, 4 * BLOCK)
    t.do(os.pread, reader, 8, 0)
    t.record('mapped after', hashlib.sha256(view[:]).hexdigest())


@test
def copy_file_range_copies(t):
    t.become()
    data = pattern(2 * MIB)
    t.put('from', data)
    source = t.open(t('from'))
    target = t.open(t('to'), os.O_CREAT | os.O_RDWR)
    t.do(os.copy_file_range, source, target, 2 * MIB, 0, 0)
    t.record('content', hashlib.sha256(t.get('to')).hexdigest())
    t.do(os.copy_file_range, source, target, 1000, 5, 3 * MIB)
    t.do(os.fstat, target)
    t.record('tail', os.pread(target, 2000, 3 * MIB))
    t.do(os.copy_file_range, source, target, 1000, 2 * MIB, 0)
    t.do(os.copy_file_range, target, source, 1000, 0, 0)
    same = t.open(t('to'), os.O_RDWR)
    t.do(os.copy_file_range, same, same, 1000, 0, 500)
    t.do(os.copy_file_range, same, same, 1000, 0, 5 * MIB)


@test
def sendfile_from_and_to(t):
    t.become()
    t.put('from', pattern(300000))
    source, target = t.open(t('from')), t.open(t('to'), os.O_CREAT | os.O_WRONLY)
    sent = 0
    while step := os.sendfile(target, source, sent, 300000):
        sent += step
    t.record('sent', sent)


@test
def mapping_is_shared_between_two_opens(t):
    t.become()
    t.put('file', bytes(4 * BLOCK))
    one, two = t.open(t('file'), os.O_RDWR), t.open(t('file'), os.O_RDWR)
    first, second = mmap.mmap(one, 4 * BLOCK), mmap.mmap(two, 4 * BLOCK)
    first[100:105] = b'hello'
    t.record('other mapping', bytes(second[100:105]))
    t.do(os.pread, two, 10, 98)
    t.do(os.pwrite, two, b'WORLD', 200)
    t.record('after write', bytes(first[200:205]))
    second[BLOCK:BLOCK + 3] = b'two'
    second.flush()
    t.do(os.pread, t.open(t('file')), 3, BLOCK)
    t.record('both', bytes(first[:]) == bytes(second[:]))


@test
def mapping_is_shared_between_processes(t):
    t.become()
    t.put('file', bytes(BLOCK))
    view = mmap.mmap(t.open(t('file'), os.O_RDWR), BLOCK)
    pid = os.fork()
    if pid == 0:
        other = mmap.mmap(os.open(t('file'), os.O_RDWR), BLOCK)
        other[0:5] = b'child'
        os._exit(0)
    os.waitpid(pid, 0)
    t.record('seen', bytes(view[0:5]))


@test
def private_mapping_stays_private(t):
    t.become()
    t.put('file', b'original'.ljust(BLOCK, b'.'))
    view = mmap.mmap(t.open(t('file')), BLOCK, flags=mmap.MAP_PRIVATE,
                     prot=mmap.PROT_READ | mmap.PROT_WRITE)
    view[0:8] = b'CHANGED!'
    t.do(os.pread, t.open(t('file')), 8, 0)


@test
def mapping_needs_the_right_descriptor(t):
    t.become()
    t.put('file', bytes(BLOCK))
    t.do(mmap.mmap, t.open(t('file')), BLOCK, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    t.do(mmap.mmap, t.open(t('file'), os.O_WRONLY), BLOCK, mmap.MAP_SHARED, mmap.PROT_READ)


@test
def mapped_writes_after_unlink(t):
    t.become()
    t.put('file', bytes(BLOCK))
    fd = t.open(t('file'), os.O_RDWR)
    view = mmap.mmap(fd, BLOCK)
    t.do(os.unlink, t('file'))
    view[0:4] = b'late'
    view.flush()
    t.do(os.pread, fd, 4, 0)


@test
def mapping_through_two_links(t):
    t.become()
    t.put('file', bytes(BLOCK))
    os.link(t('file'), t('link'))
    one = mmap.mmap(t.open(t('file'), os.O_RDWR), BLOCK)
    two = mmap.mmap(t.open(t('link'), os.O_RDWR), BLOCK)
    one[7:10] = b'abc'
    t.record('through the link', bytes(two[7:10]))


@test
def direct_io_reads_and_writes(t):
    t.become()
    t.put('file', pattern(64 * BLOCK))
    fd = t.open(t('file'), os.O_RDWR | os.O_DIRECT)
    area = mmap.mmap(-1, 8 * BLOCK)
    area[:] = pattern(8 * BLOCK, 2)

    def pwrite_area(offset):
        return os.pwritev(fd, [area], offset)

    def pread_area(offset):
        return os.preadv(fd, [area], offset)
    if fd is None:
        return
    t.do(pwrite_area, 8 * BLOCK)
    t.do(pread_area, 4 * BLOCK)
    t.record('read', hashlib.sha256(area[:]).hexdigest())
    t.record('content', hashlib.sha256(t.get('file')).hexdigest())


@test
def buffered_and_direct_agree(t):
    t.become()
    t.put('file', bytes(16 * BLOCK))
    plain, direct = t.open(t('file'), os.O_RDWR), t.open(t('file'), os.O_RDWR | os.O_DIRECT)
    area = mmap.mmap(-1, BLOCK)
    for number in range(8):
        area[:] = bytes([number + 1]) * BLOCK
        os.pwritev(direct, [area], number * BLOCK)
        t.record('buffered read', os.pread(plain, 2, number * BLOCK))
        os.pwrite(plain, b'Z', number * BLOCK)
        os.preadv(direct, [area], number * BLOCK)
        t.record('direct read', bytes(area[0:2]))


@test
def sync_flags_and_calls(t):
    t.become()
    fd = t.open(t('file'), os.O_CREAT | os.O_WRONLY | os.O_SYNC)
    t.do(os.write, fd, b'x')
    t.do(os.fsync, fd)
    t.do(os.fdatasync, fd)
    t.do(os.fsync, t.open(t.root, os.O_RDONLY | os.O_DIRECTORY))
    t.do(os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_DONTNEED)
    dsync = t.open(t('file'), os.O_RDWR | os.O_DSYNC | os.O_NOATIME)
    t.do(os.write, dsync, b'y')
    libc = ctypes.CDLL(None)
    t.record('syncfs', libc.syncfs(fd))


@test
def write_changes_the_times(t):
    t.become()
    t.put('file', b'x')
    os.utime(t('file'), ns=(10**18, 10**18))
    before = os.stat(t('file')).st_ctime_ns
    time.sleep(2 * time.clock_getres(CLOCK_REALTIME_COARSE))  # where ctime moves by ticks
    fd = t.open(t('file'), os.O_RDWR)
    t.record('open keeps mtime', os.stat(t('file')).st_mtime_ns)
    t.do(os.write, fd, b'y')
    after = os.stat(t('file'))
    t.record('moved', (after.st_mtime_ns > 10**18, after.st_ctime_ns > before))
    t.record('fstat agrees', os.fstat(fd).st_mtime_ns == after.st_mtime_ns)


@test
def open_flags_and_errors(t):
    t.become()
    t.put('file', b'x')
    t.folder('dir')
    os.mkfifo(t.new('fifo'))
    os.symlink('file', t.new('link'))
    for name in ('file', 'dir', 'fifo', 'link', 'missing', 'file/below', 'missing/below'):
        for flags in (os.O_PATH, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_CREAT | os.O_EXCL,
                      os.O_WRONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_NONBLOCK,
                      os.O_DIRECTORY | os.O_CREAT, os.O_DIRECTORY | os.O_RDWR,
                      os.O_PATH | os.O_NOFOLLOW,
                      *((os.O_TMPFILE | os.O_RDWR,) if mounted.has_tmpfile() else ())):
            t.open(t(name), flags | os.O_NONBLOCK)  # an open of the fifo must not wait


@test
def random_operations_give_the_same_content(t):
    t.become()
    rng = random.Random(42)
    fds = [t.open(t('file'), os.O_CREAT | os.O_RDWR), t.open(t('file'), os.O_RDWR)]
    limit = 2 * MIB
    os.ftruncate(fds[0], limit)
    view = mmap.mmap(fds[1], limit)
    for step in range(scaled(400, 50)):
        at, size = rng.randrange(limit - 70000), rng.randrange(1, 70000)
        fd = rng.choice(fds)
        action = rng.randrange(6)
        if action == 0:
            view[at:at + size] = rng.randbytes(size)
        elif action == 1:
            t.record('map', hashlib.sha256(view[at:at + size]).hexdigest())
        elif action in (2, 3):
            os.pwrite(fd, rng.randbytes(size), at)
        elif action == 4:
            sc.fallocate(fd, sc.FALLOC_PUNCH_HOLE | sc.FALLOC_KEEP_SIZE, at, size)
        else:
            t.record('read', hashlib.sha256(os.pread(fd, size, at)).hexdigest())
    view.flush()


if mounted.is_bind():
    tests.main('ext4', megabytes=512)
tests.main('ext4', variants=('passthrough=auto', 'passthrough=off'), megabytes=512)
