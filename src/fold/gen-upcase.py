#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""gen-upcase.py PAIRS.tsv TABLE.h - the two-stage table that fold.c reads.

PAIRS.tsv: one pair a line, "lower TAB upper", four hex digits each.  What the table holds, and
which member stands for a pair, is told in fold.c.  Fails if the pairs are not what fold.c relies
on: every character in one pair at most, no surrogate, both or neither in ASCII.
"""
import sys

BLOCK = 64  # entries a block: 64 gives the smallest table of the powers of two


def utf8_len(c):
    return 1 if c < 0x80 else 2 if c < 0x800 else 3


def read_pairs(path):
    pairs, seen = [], set()
    with open(path, encoding='ascii') as file:
        for number, line in enumerate(file, 1):
            lower, upper = (int(field, 16) for field in line.split('\t'))
            for c in (lower, upper):
                if c in seen or c > 0xFFFF or 0xD800 <= c <= 0xDFFF:
                    sys.exit(f'{path}:{number}: {c:04X} is twice in the pairs or not a character')
                seen.add(c)
            if (lower < 0x80) != (upper < 0x80):
                sys.exit(f'{path}:{number}: one of the pair is ASCII, the other not')
            pairs.append((lower, upper))
    return pairs


def deltas(pairs):
    table = [0] * 0x10000
    for lower, upper in pairs:
        if utf8_len(lower) < utf8_len(upper):
            table[upper] = (lower - upper) & 0xFFFF
        else:
            table[lower] = (upper - lower) & 0xFFFF
    return table


def two_stages(table):
    blocks, block_of = {}, []
    for start in range(0, len(table), BLOCK):
        block = tuple(table[start:start + BLOCK])
        block_of.append(blocks.setdefault(block, len(blocks)))
    if len(blocks) > 256:
        sys.exit('more than 256 different blocks: fold_block_of[] has bytes')
    return block_of, [entry for block in blocks for entry in block]


def rows(numbers):
    return '\n'.join('    ' + ' '.join(f'{n},' for n in numbers[i:i + 12])
                     for i in range(0, len(numbers), 12))


def main():
    pairs_path, header_path = sys.argv[1:]
    block_of, entries = two_stages(deltas(read_pairs(pairs_path)))
    with open(header_path, 'w', encoding='ascii') as file:
        file.write('/* Made by gen-upcase.py from upcase-windows.tsv; included by fold.c only. */\n'
                   '#include <stdint.h>\n\n'
                   f'#define FOLD_BLOCK_SIZE {BLOCK}\n\n'
                   f'static const uint8_t fold_block_of[{len(block_of)}] = {{\n'
                   f'{rows(block_of)}\n}};\n\n'
                   f'static const uint16_t fold_delta[{len(entries)}] = {{\n'
                   f'{rows(entries)}\n}};\n')


main()
