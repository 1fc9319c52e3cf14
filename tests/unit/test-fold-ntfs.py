#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pairs of src/fold/upcase-windows.tsv against the $UpCase table of a real NTFS volume: the
one that mkntfs writes into a fresh image.  The table is read from the image itself: the boot
sector says where the file table is, record 10 of that where $UpCase is."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

UPCASE_RECORD = 10
DATA_ATTRIBUTE = 0x80
END_OF_ATTRIBUTES = 0xFFFFFFFF
PAIRS = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                     '../../src/fold/upcase-windows.tsv')


def signed(data):
    return int.from_bytes(data, 'little', signed=True)


def read_runs(image, runs, cluster):
    """Bytes of a file whose data lies in the run list RUNS."""
    data, at, lcn = b'', 0, 0
    while runs[at]:
        length_size, offset_size = runs[at] & 15, runs[at] >> 4
        at += 1
        length = int.from_bytes(runs[at:at + length_size], 'little')
        at += length_size
        lcn += signed(runs[at:at + offset_size])
        at += offset_size
        data += image[lcn * cluster:(lcn + length) * cluster]
    return data


def read_upcase(image):
    sector, = struct.unpack_from('<H', image, 11)
    cluster = sector * image[13]
    mft, = struct.unpack_from('<Q', image, 48)
    size_code = signed(image[64:65])
    record_size = size_code * cluster if size_code > 0 else 1 << -size_code
    start = mft * cluster + UPCASE_RECORD * record_size
    record = image[start:start + record_size]
    if record[:4] != b'FILE':
        sys.exit('not ok - upcase_record_found\n# no file record where $UpCase should be')
    at, = struct.unpack_from('<H', record, 20)
    while True:
        kind, length = struct.unpack_from('<II', record, at)
        if kind == END_OF_ATTRIBUTES:
            sys.exit('not ok - upcase_record_found\n# $UpCase has no data')
        if kind == DATA_ATTRIBUTE:
            size, = struct.unpack_from('<Q', record, at + 48)
            runs, = struct.unpack_from('<H', record, at + 32)
            return read_runs(image, record[at + runs:at + length], cluster)[:size]
        at += length


def main():
    mkntfs = shutil.which('mkntfs', path=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')
    if not mkntfs:
        print('ok - pairs_are_those_of_an_ntfs_volume # SKIP no mkntfs (package ntfs-3g)')
        return 0
    with tempfile.TemporaryDirectory(prefix='foldfs-test-') as folder:
        path = os.path.join(folder, 'image')
        with open(path, 'wb') as file:
            file.truncate(4 << 20)
        subprocess.run([mkntfs, '-q', '-F', '-Q', path], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with open(path, 'rb') as file:
            table = read_upcase(file.read())
    units = struct.unpack('<65536H', table)
    on_volume = {c: up for c, up in enumerate(units) if c != up}
    with open(PAIRS, encoding='ascii') as file:
        ours = dict((int(f, 16) for f in line.split('\t')) for line in file)
    wrong = [f'{c:04X}: volume {on_volume.get(c, c):04X}, ours {ours.get(c, c):04X}'
             for c in range(65536) if on_volume.get(c, c) != ours.get(c, c)]
    print(f'# {len(on_volume)} pairs on the volume, {len(ours)} ours')
    for line in wrong:
        print('# ' + line)
    print(('not ok' if wrong else 'ok') + ' - pairs_are_those_of_an_ntfs_volume')
    return 1 if wrong else 0


sys.exit(main())
