# SPDX-License-Identifier: GPL-3.0-or-later
"""builds.py - the builds that are tested: plain, and with sanitizers.

Each is a meson build directory below one parent, made when first asked for and brought up to
date on every run.  The thread sanitizer's is built by clang, so that both compilers' warnings
are errors in every run.
"""
import json
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SANITIZE = ('-Db_lundef=false', '-Dc_args=-fno-omit-frame-pointer -fno-sanitize-recover=all')
COMPILER = {'plain': 'gcc', 'asan': 'gcc', 'tsan': 'clang'}
OPTIONS = {
    'plain': (),
    'asan': ('-Db_sanitize=address,undefined', *SANITIZE),
    'tsan': ('-Db_sanitize=thread', *SANITIZE),
}


# Lines that meson and ninja print while all goes well
PROGRESS = re.compile(r'\[\d+/\d+\] |INFO: |ninja: Entering |libfuse\| ')


class BuildError(Exception):
    """A build failed; the text is the end of its output."""


class Build:
    """One variant's build directory."""

    def __init__(self, variant, parent):
        self.variant = variant
        self.path = os.path.join(parent, variant)
        self.foldfs = os.path.join(self.path, 'src', 'foldfs')

    def _call(self, *command):
        environment = dict(os.environ, CC=COMPILER[self.variant])
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True,
                              errors='replace', stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            lines = [line for line in done.stdout.splitlines() if not PROGRESS.match(line)]
            raise BuildError('\n'.join(lines[-40:]))

    def make(self):
        if not os.path.exists(os.path.join(self.path, 'build.ninja')):
            self._call('meson', 'setup', '--werror', '-Dbuildtype=debugoptimized',
                       *OPTIONS[self.variant], self.path, TOP)
        self._call('meson', 'compile', '-C', self.path)

    def tests(self):
        """(suite, path, sources) of the test programs that this build made."""
        with open(os.path.join(self.path, 'meson-info', 'intro-targets.json'),
                  encoding='utf-8') as file:
            targets = json.load(file)
        for target in targets:
            folder = os.path.dirname(target['defined_in'])
            if os.path.dirname(folder) == os.path.join(TOP, 'tests') and \
                    target['type'] == 'executable' and target['name'].startswith('test-'):
                sources = [s for t in target['target_sources'] for s in t.get('sources', ())]
                yield os.path.basename(folder), target['filename'][0], \
                    [s for s in sources if s.startswith(folder)]


def fetch_libfuse():
    """The libfuse that has every feature, where it can be had; else the system's is tested."""
    done = subprocess.run([os.path.join(TOP, 'contrib', 'fetch-libfuse')], check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        print('# testing with the libfuse of this system', file=sys.stderr)
