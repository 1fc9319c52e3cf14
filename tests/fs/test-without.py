#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs beside this one again, each feature that foldfs can do without switched off in
turn: the programs that the feature matters to, or under a full run all of them.  Those programs
run under the sanitizers by themselves (tests/run: no sanitizers)."""
import os
import re
import subprocess
import sys

import mounted
import tap
from tap import Failure, Skip, expect_equal

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = 'behind'  # rests for many seconds, whatever the scale: not in a quick run
SHARE = 0.3  # of the rounds that the programs run by themselves

PROGRAMS = {
    'handles': ('opath', 'links', 'lookup', 'variants', 'descriptors', 'submounts'),
    'multigrain': ('behind',),
    'killpriv': ('killpriv',),
    'acl': ('permissions', 'xattr'),
    'readdirplus': ('readdir', 'submounts'),
    'watch': ('behind', 'stress'),
    'watch:multigrain': ('behind',),
}


def features_are_all_tested():
    """foldfs itself names what it can do without, when it is asked for nonsense."""
    said = subprocess.run([mounted.program(), '-o', 'without=nonsense', '/', '/'],
                          stderr=subprocess.PIPE, text=True, check=False).stderr
    names = re.search(r'expected (.*), joined', said)
    if not names:
        raise Failure(f'foldfs does not name its features: {said}')
    expect_equal(set(names.group(1).split(', ')), {f for key in PROGRAMS for f in key.split(':')})


def programs(feature):
    if tap.scale() <= 1:
        return [f'test-{name}.py' for name in PROGRAMS[feature]
                if name != LONG or tap.scale() == 1]
    return sorted(n for n in os.listdir(HERE) if n.startswith('test-') and n.endswith('.py')
                  and n != os.path.basename(__file__))


def again(feature, program, word):
    """Runs PROGRAM without FEATURE, and passes its results on as this program's own."""
    options = ','.join(filter(None, (os.environ.get('FOLDFS_OPTIONS', ''), 'without=' + feature)))
    environment = dict(os.environ, FOLDFS_OPTIONS=options,
                       FOLDFS_TEST_SCALE=f'{tap.scale() * SHARE:g}')
    with subprocess.Popen([os.path.join(HERE, program), '-k', word], env=environment, text=True,
                          errors='replace', stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as process:
        seen = 0
        for line in process.stdout:
            mark = f'without_{feature.replace(":", "_")} {program}'
            if line.startswith(('ok - ', 'not ok - ')):
                seen += 1
                tap.relay(line, mark)
            elif line.startswith('#'):
                print(line, end='')
    if process.returncode not in (0, 1) or not seen:
        raise Failure(f'{program} gave {process.returncode} after {seen} results')


def main():
    word = tap.arguments().k
    if mounted.is_bind():
        tap.ok('features_are_all_tested', skip=Skip('a bind mount has no features'))
        sys.exit(tap.status())
    tap.run_one('features_are_all_tested', features_are_all_tested)
    for feature in PROGRAMS:
        for program in programs(feature):
            tap.run_one(f'{program}_runs_without_{feature.replace(":", "_")}', again, feature,
                        program, word)
    sys.exit(tap.status())


main()
