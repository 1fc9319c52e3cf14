# SPDX-License-Identifier: GPL-3.0-or-later
"""syscalls.py - system calls that Python's os module lacks; errors are OSError as there."""
import ctypes
import fcntl
import os
import struct

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16
FICLONE = 0x40049409
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FS_IOC_FIEMAP = 0xC020660B
FS_APPEND_FL, FS_IMMUTABLE_FL, FS_NODUMP_FL = 0x20, 0x10, 0x40
F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
FIEMAP_EXTENT_SHARED = 0x2000
_SYS_GETDENTS64 = {'x86_64': 217, 'aarch64': 61, 'riscv64': 61}.get(os.uname().machine)

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, *paths):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), *paths[:1])
    return result


def renameat2(old, new, flags, old_dir=AT_FDCWD, new_dir=AT_FDCWD):
    _check(_libc.renameat2(old_dir, os.fsencode(old), new_dir, os.fsencode(new),
                           ctypes.c_uint(flags)), old)


def linkat(old_dir, old, new_dir, new, flags):
    _check(_libc.linkat(old_dir, os.fsencode(old), new_dir, os.fsencode(new), flags), new)


def fallocate(fd, mode, offset, length):
    _check(_libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def fsetxattr(fd, name, value, flags=0):
    os.setxattr(fd, name, value, flags)


def getxattr_raw(path, name, size):
    """getxattr(2) with a buffer of SIZE bytes: (result, buffer)."""
    buffer = ctypes.create_string_buffer(max(size, 1))
    _libc.getxattr.restype = ctypes.c_ssize_t
    result = _check(_libc.getxattr(os.fsencode(path), os.fsencode(name),
                                   buffer if size else None, ctypes.c_size_t(size)), path)
    return result, buffer.raw[:min(result, size)]


def getdents(fd, size=32768):
    """One getdents64(2): list of (inode, next position, type, name); empty at the end."""
    if _SYS_GETDENTS64 is None:
        raise OSError(38, 'getdents64 has no known number here')
    buffer = ctypes.create_string_buffer(size)
    length = _check(_libc.syscall(_SYS_GETDENTS64, fd, buffer, size))
    data, entries, at = buffer.raw[:length], [], 0
    while at < length:
        ino, position, reclen, kind = struct.unpack_from('<QqHB', data, at)
        name = data[at + 19:at + reclen].split(b'\0', 1)[0]
        entries.append((ino, position, kind, name))
        at += reclen
    return entries


def names_of(entries):
    return [name for _, _, _, name in entries if name not in (b'.', b'..')]


def read_all_entries(fd, size=32768):
    entries = []
    while chunk := getdents(fd, size):
        entries += chunk
    return entries


def get_flags(fd):
    return struct.unpack('I', fcntl.ioctl(fd, FS_IOC_GETFLAGS, bytes(8))[:4])[0]


def set_flags(fd, flags):
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack('Q', flags))


def shared_extents(fd):
    """How many of the first 64 extents of FD are shared with another file, and how many are."""
    count = 64
    request = struct.pack('QQIIII', 0, 2**64 - 1, 1, 0, count, 0) + bytes(56 * count)
    answer = bytearray(request)
    fcntl.ioctl(fd, FS_IOC_FIEMAP, answer)
    mapped, = struct.unpack_from('I', answer, 20)
    flags = [struct.unpack_from('I', answer, 32 + 56 * i + 40)[0] for i in range(mapped)]
    return sum(1 for f in flags if f & FIEMAP_EXTENT_SHARED), mapped


def flock_struct(kind, start=0, length=0):
    return struct.pack('hhqqi4x', kind, os.SEEK_SET, start, length, 0)


def lock(fd, command, kind, start=0, length=0):
    """F_SETLK and its like; returns what the kernel wrote: (type, start, length, pid)."""
    answer = fcntl.fcntl(fd, command, flock_struct(kind, start, length))
    kind, _, start, length, pid = struct.unpack('hhqqi4x', answer)
    return kind, start, length, pid
