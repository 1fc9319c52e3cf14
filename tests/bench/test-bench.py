#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each bench in its smallest form: does it measure what it says, and say it in sound JSON?  No
figure is judged here: under a test's load they mean nothing."""
import glob
import json
import math
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = {'figure', 'ours', 'other', 'ratio', 'limit', 'bound', 'of', 'unit', 'ok'}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and \
        math.isfinite(value) and value >= 0


def wrong_with_figure(figure):
    """What is wrong with one figure; nothing, if nothing."""
    if set(figure) != KEYS:
        yield f'keys are {sorted(figure)}'
        return
    if not figure['figure'] or not figure['unit']:
        yield 'no text or no unit'
    if not is_number(figure['ours']):
        yield f'ours is {figure["ours"]}'
        return
    if figure['other'] is None:
        if figure['ratio'] is not None:
            yield 'a ratio to nothing'
    elif not is_number(figure['other']) or figure['other'] == 0:
        yield f'other is {figure["other"]}'
    elif not math.isclose(figure['ratio'], figure['ours'] / figure['other'], abs_tol=1e-9):
        yield f'ratio is {figure["ratio"]}'
    if figure['limit'] is None:
        if figure['ok'] is not True:
            yield 'not kept, without a limit'
        return
    judged = figure['ratio'] if figure['of'] == 'ratio' else figure['ours']
    kept = judged <= figure['limit'] if figure['bound'] == 'at most' else \
        judged >= figure['limit']
    if figure['ok'] is not kept:
        yield f'ok is {figure["ok"]}'


def wrong_with_report(text, status, name):
    try:
        report = json.loads(text)
    except ValueError as error:
        return [f'no JSON: {error}']
    if set(report) != {'name', 'figures'} or report['name'] != name or not report['figures']:
        return ['not an object with name and figures']
    wrong = [f'{figure.get("figure")}: {fault}' for figure in report['figures']
             for fault in wrong_with_figure(figure)]
    kept = all(figure['ok'] is True for figure in report['figures'])
    if status != (0 if kept else 1):
        wrong.append(f'exit status {status}')
    return wrong


def check(path):
    name = os.path.basename(os.path.dirname(path))
    title = f'{name}_bench_gives_sound_figures'
    done = subprocess.run(
        [path, '--tiny', '--json', '--build-dir', os.environ['FOLDFS_BUILD']],
        stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False)
    wrong = wrong_with_report(done.stdout, done.returncode, name)
    print(f'{"not " if wrong else ""}ok - {title}')
    for line in wrong and wrong + done.stderr.splitlines():
        print('# ' + line)
    return not wrong


def main():
    paths = sorted(glob.glob(os.path.join(HERE, '*', 'bench.py')))
    # All of them, whatever the first ones give.
    return 0 if all([check(path) for path in paths]) else 1


if __name__ == '__main__':
    sys.exit(main())
