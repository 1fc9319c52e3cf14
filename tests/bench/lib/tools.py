# SPDX-License-Identifier: GPL-3.0-or-later
"""tools.py - the programs that a bench runs, and the release build they come from."""
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))
BUILD = os.path.join(TOP, 'build-bench')


def progress(text):
    print('# ' + text, file=sys.stderr, flush=True)


def build(directory=BUILD):
    """A release build in DIRECTORY, up to date."""
    setup = ['meson', 'setup', '--buildtype=release', directory, TOP]
    if not os.path.exists(os.path.join(directory, 'build.ninja')):
        quietly(setup)
    quietly(['meson', 'compile', '-C', directory])


def quietly(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True, errors='replace',
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit('\n'.join(done.stdout.splitlines()[-30:] + ['the build failed']))


class Programs:
    """Paths of what was built in DIRECTORY."""

    def __init__(self, directory, foldfs=None):
        directory = os.path.abspath(directory)
        self.foldfs = os.path.abspath(foldfs or os.path.join(directory, 'src', 'foldfs'))
        helpers = os.path.join(directory, 'tests', 'bench')
        self.hammer = os.path.join(helpers, 'hammer')
        self.blocks = os.path.join(helpers, 'blocks')
        self.empty_fuse = os.path.join(helpers, 'empty-fuse')
