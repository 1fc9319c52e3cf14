# SPDX-License-Identifier: GPL-3.0-or-later
"""figures.py - what a bench is asked and what it answers.

A bench is a module with NAME, a docstring that says what is measured and how, and a function
measure(session, report).  main() does the rest: the command line, the mount namespace, the
output.
"""
import argparse
import json
import statistics
import sys

import scratch
import tools

AT_MOST, AT_LEAST = 'at most', 'at least'


class Limit:
    """What the ratio (or, with of='ours', our own value) may be."""

    def __init__(self, number, bound=AT_MOST, of='ratio'):
        self.number, self.bound, self.of = number, bound, of

    def kept(self, value):
        return value <= self.number if self.bound == AT_MOST else value >= self.number

    def __str__(self):
        sign = '≤' if self.bound == AT_MOST else '≥'
        return f'{"" if self.of == "ratio" else "ours "}{sign} {self.number:g}'


class Report:
    """The figures of one bench."""

    def __init__(self, name):
        self.name, self.figures = name, []

    def add(self, figure, unit, ours, other=None, limit=None):
        """One figure: our value, what it is compared with, and the limit if there is one."""
        ratio = None if other is None else ours / other if other else float('inf')
        judged = ratio if limit is not None and limit.of == 'ratio' else ours
        self.figures.append({
            'figure': figure, 'ours': ours, 'other': other, 'ratio': ratio,
            'limit': limit and limit.number, 'bound': limit and limit.bound,
            'of': limit and limit.of, 'unit': unit,
            'ok': limit is None or limit.kept(judged)})

    def compare(self, figure, unit, ours, other, limit=None):
        """The same from samples of both sides: their medians."""
        self.add(figure, unit, statistics.median(ours), statistics.median(other), limit)

    def median(self, figure, unit, ours, limit=None):
        """A figure that is compared with its limit only."""
        self.add(figure, unit, statistics.median(ours), limit=limit)

    def json(self):
        return json.dumps({'name': self.name, 'figures': self.figures}, ensure_ascii=False)


def number(value):
    """VALUE in at most four digits, as people write it."""
    if value is None:
        return ''
    if value == 0 or abs(value) >= 1000:
        return f'{value:,.0f}'
    return f'{value:.3g}'


def limit_text(figure):
    if figure['limit'] is None:
        return ''
    return str(Limit(figure['limit'], figure['bound'], figure['of']))


def row(figure):
    """The cells of one figure: what, ours, other, unit, ratio, limit, verdict."""
    ratio = '' if figure['ratio'] is None else f'{figure["ratio"]:.2f}'
    verdict = '' if figure['limit'] is None else 'yes' if figure['ok'] else '**no**'
    return [figure['figure'], number(figure['ours']), number(figure['other']), figure['unit'],
            ratio, limit_text(figure), verdict]


HEADINGS = ['', 'ours', 'other', 'unit', 'ratio', 'limit', 'kept']


def print_table(report):
    rows = [HEADINGS] + [row(figure) for figure in report.figures]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEADINGS))]
    for cells in rows:
        aligned = [cell.ljust(width) if i in (0, 3) else cell.rjust(width)
                   for i, (cell, width) in enumerate(zip(cells, widths))]
        print('  '.join(aligned).rstrip())


def arguments(name, text):
    parser = argparse.ArgumentParser(prog=name, description=text, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', action='store_true', help='one JSON object instead of a table')
    size = parser.add_mutually_exclusive_group()
    size.add_argument('--tiny', action='store_const', dest='size', const='tiny', default='normal',
                      help='so small that the figures mean nothing: a test of the bench itself')
    size.add_argument('--full', action='store_const', dest='size', const='full',
                      help='the largest form, where there is one')
    parser.add_argument('--build-dir', metavar='DIR', default=tools.BUILD,
                        help='a build of foldfs with its tests (default: build-bench in the '
                             'checkout, made in release mode and brought up to date)')
    parser.add_argument('--foldfs', metavar='PROGRAM', help='another foldfs than that build\'s')
    return parser.parse_args()


def main(name, text, measure):
    """Runs the bench: figures on stdout, progress on stderr; 1 if a limit was not kept."""
    options = arguments(name, text)
    scratch.enter_namespace()
    if options.build_dir == tools.BUILD:
        tools.build()
    report = Report(name)
    with scratch.Session(options.size, tools.Programs(options.build_dir, options.foldfs)) \
            as session:
        measure(session, report)
    if options.json:
        print(report.json())
    else:
        print_table(report)
    sys.exit(0 if all(figure['ok'] for figure in report.figures) else 1)
