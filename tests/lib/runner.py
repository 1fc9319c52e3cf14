# SPDX-License-Identifier: GPL-3.0-or-later
"""runner.py - finds the tests, builds what they need, runs them, adds up.

A test is an executable tests/SUITE/test-*: a script, or a program that meson built below the
same folder of the build directory.  It prints TAP.  tests/run --help says the rest.
"""
import argparse
import collections
import concurrent.futures
import os
import sys
import time

from builds import TOP, Build, BuildError, fetch_libfuse
from program import Program, Run, time_limit
from tap_results import FAILED, PASSED, SKIPPED, Lost, Result

QUICK_SCALE, FULL_SCALE = 0.1, 10
# A quick run starts no further program this many seconds after the build; what is left out is
# named.
QUICK_BUDGET_S = 150
# Programs at once, as far as there are processors.  More would only make their timings worse.
MOST_JOBS = 2
# What also runs under sanitizers, and by how much shorter: they slow a program down by 2 (address)
# to 10 times (thread).
SANITIZED = {'asan': (('unit', 'fs'), 0.3), 'tsan': (('unit', 'fs'), 0.1)}
# Programs of this suite take minutes each: they are started first, and not in a quick run.
SLOW_SUITE = 'vm'
# The suite of the programs that --also names
ALSO = 'also'
# The order of starting: what a quick run has no time for should be the long and special ones.
SUITE_ORDER = (SLOW_SUITE, 'unit', 'fs')

DESCRIPTION = """Installs what the tests need, builds foldfs with warnings as errors, runs the
tests.  The last line is 'N passed, N failed, N skipped'; the exit status is 0 if none failed."""


def arguments():
    parser = argparse.ArgumentParser(prog='tests/run', description=DESCRIPTION, allow_abbrev=False)
    size = parser.add_mutually_exclusive_group()
    size.add_argument('--quick', action='store_const', dest='scale', const=QUICK_SCALE, default=1,
                      help='3 minutes: a tenth of the rounds; sanitizers (asan, tsan) and other '
                           'kernels (vm) only if -k names them')
    size.add_argument('--full', action='store_const', dest='scale', const=FULL_SCALE,
                      help='ten times the rounds: hours')
    parser.add_argument('-k', metavar='WORD', default='',
                        help='only programs and tests with WORD in their name; names begin with '
                             'the suite, and with asan/ or tsan/ where a sanitizer is used')
    parser.add_argument('--build-dir', metavar='DIR', default=os.path.join(TOP, 'build-tests'),
                        help='where to build (default: build-tests in the checkout)')
    parser.add_argument('--also', metavar='PROGRAM', action='append', default=[],
                        help='one more test program, of the suite "also"')
    parser.add_argument('--list', action='store_true', help='only name the programs')
    return parser.parse_args()


def scripts(suites):
    """(suite, path, [path]) of the test scripts."""
    tests = os.path.join(TOP, 'tests')
    for suite in suites or sorted(os.listdir(tests)):
        folder = os.path.join(tests, suite)
        for name in sorted(os.listdir(folder) if os.path.isdir(folder) else ()):
            path = os.path.join(folder, name)
            if name.startswith('test-') and not name.endswith('.c') and os.access(path, os.X_OK):
                yield suite, path, [path]


def find(suites, build):
    """The programs of SUITES (or of all, if empty) under BUILD."""
    found = list(scripts(suites))
    found += [entry for entry in build.tests() if not suites or entry[0] in suites]
    return [Program(*entry, build.variant) for entry in sorted(found)]


def place(program):
    """Where a program stands in the order of starting; those under sanitizers come last."""
    rank = SUITE_ORDER.index(program.suite) if program.suite in SUITE_ORDER else len(SUITE_ORDER)
    return program.sanitized, rank


class Totals:
    """What came out, and its lines on the terminal."""

    def __init__(self, word):
        self.word = word
        self.count = collections.Counter()
        self.failures, self.skips = [], collections.defaultdict(list)

    def add(self, program, results, stderr='', seconds=0.0):
        mine = [r for r in results if self._wanted(program, r)]
        outcomes = collections.Counter(r.outcome for r in mine)
        self.count.update(outcomes)
        if outcomes:
            counts = ', '.join(f'{n} {outcome}' for outcome, n in sorted(outcomes.items()))
            print(f'{program}: {counts} ({seconds:.1f} s)')
        for result in mine:
            if result.outcome == SKIPPED:
                self.skips[result.details[0]].append(f'{program}: {result.name}')
            elif result.outcome == FAILED:
                self._failed(f'{program}: {result.name}', result.details)
        if outcomes[FAILED] and stderr:
            print('  its standard error ends with')
            print('\n'.join('    ' + line for line in stderr.splitlines()))
        sys.stdout.flush()

    def _wanted(self, program, result):
        return self.word in program or self.word in result.name or isinstance(result, Lost)

    def _failed(self, name, details):
        self.failures.append(name)
        print(f'not ok {name}')
        print('\n'.join('    ' + line for line in details), end='\n' if details else '')

    def finish(self):
        if self.skips:
            print('Skipped:')
        for reason, names in sorted(self.skips.items()):
            print(f'  {len(names)} because: {reason}')
            for name in names:
                print(f'    {name}')
        if self.failures:
            print('Failed:')
        for name in self.failures:
            print(f'  {name}')
        if not sum(self.count.values()):
            print('no test matches')
        print(f'{self.count[PASSED]} passed, {self.count[FAILED]} failed, '
              f'{self.count[SKIPPED]} skipped', flush=True)
        return 0 if self.count[PASSED] and not self.count[FAILED] else 1


class Session:
    """One call of tests/run."""

    def __init__(self, options):
        self.options = options
        self.totals = Totals(options.k)
        self.started = self.deadline = time.monotonic()
        self.builds = {}

    def build(self, variant):
        """The build of that variant, brought up to date once; None (and a failure) if it fails."""
        if variant not in self.builds:
            build = Build(variant, os.path.abspath(self.options.build_dir))
            started = time.monotonic()
            try:
                build.make()
                results = [Result('compiles_without_warning', PASSED)]
            except BuildError as error:
                results = [Lost('compiles_without_warning', *str(error).splitlines())]
                build = None
            self.totals.add(f'build/{variant}', results, seconds=time.monotonic() - started)
            self.builds[variant] = build
        return self.builds[variant]

    def select(self):
        """(program, its build, its scale) of all that is to run, in the order of running."""
        word, plain = self.options.k, self.build('plain')
        if not plain:
            return []
        programs = find((), plain)
        programs += [Program(ALSO, path, [path], 'plain')
                     for path in map(os.path.abspath, self.options.also)]
        chosen = [(p, plain, self.options.scale) for p in programs
                  if p.matches(word) and not (p.suite == SLOW_SUITE and self._too_slow(SLOW_SUITE))]
        for variant, (suites, factor) in SANITIZED.items():
            chosen += [(p, self.builds[variant], self.options.scale * factor)
                       for p in self._sanitized(variant, suites)]
        return sorted(chosen, key=lambda entry: place(entry[0]))

    def _too_slow(self, part):
        """Whether this is a quick run, and -k did not ask for that part of the tests."""
        return self.options.scale == QUICK_SCALE and part not in self.options.k

    def _sanitized(self, variant, suites):
        """The programs that run under this sanitizer; it is built only if there are any."""
        word = self.options.k
        if self._too_slow(variant):
            return []
        if not any(p.matches(word, variant) and not p.long()
                   for p in find(suites, self.builds['plain'])):
            return []
        build = self.build(variant)
        return [p for p in find(suites, build)
                if p.matches(word) and not p.long()] if build else []

    def over_budget(self):
        return self.options.scale == QUICK_SCALE and time.monotonic() > self.deadline

    def run_one(self, program, build, scale):
        if self.over_budget():
            reason = f'a quick run starts no program after {QUICK_BUDGET_S} s of tests'
            return program.name, [Result('whole program', SKIPPED, [reason])], '', 0.0
        # What --also names has no rounds that a quick run could leave out.
        limit = time_limit(max(self.options.scale, 1 if program.suite == ALSO else 0))
        run = Run(program, build, scale, TOP, limit).go()
        return program.name, run.results, run.stderr, run.seconds

    def run(self):
        fetch_libfuse()
        chosen = self.select()
        self.deadline = time.monotonic() + QUICK_BUDGET_S
        if self.options.list:
            print('\n'.join(program.name for program, *_ in chosen))
            return 0
        together = [c for c in chosen if not c[0].alone()]
        jobs = min(MOST_JOBS, os.cpu_count() or 1)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in concurrent.futures.as_completed(
                    [pool.submit(self.run_one, *c) for c in together]):
                self.totals.add(*done.result())
        for entry in chosen:
            if entry[0].alone():
                self.totals.add(*self.run_one(*entry))
        print(f'{time.monotonic() - self.started:.0f} s in all')
        return self.totals.finish()


if __name__ == '__main__':
    sys.exit(Session(arguments()).run())
