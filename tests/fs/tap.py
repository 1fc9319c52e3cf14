# SPDX-License-Identifier: GPL-3.0-or-later
"""tap.py - named tests and their TAP lines, for the programs in this directory.

A test is a function whose name says the behaviour.  It passes if it returns, is skipped if it
raises Skip, fails on anything else.  `program -k WORD` runs the tests with WORD in their name.
FOLDFS_TEST_SCALE (default 1) multiplies rounds and sizes, see scaled().
"""
import argparse
import os
import signal
import sys
import time
import traceback

SHOWN = 2000      # characters of a value in a failure's details
SHOWN_LINES = 60  # lines of those details

# What a shell's & or nohup has this program ignore, all that it starts would ignore too: foldfs,
# which must end by them, and programs that are interrupted.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

_failed = 0
_count = 0


class Skip(Exception):
    """Why a test cannot run here."""


class Failure(Exception):
    """What was seen and what should have been: the text goes out as `# ` lines."""


def scale():
    return float(os.environ.get('FOLDFS_TEST_SCALE', '1'))


def scaled(rounds, least=1):
    """ROUNDS at scale 1, never less than LEAST."""
    return max(least, int(rounds * scale()))


def note(text):
    for line in str(text).splitlines():
        print('# ' + line)
    sys.stdout.flush()


def ok(name, skip=None):
    global _count
    _count += 1
    print(f'ok - {name}' + (f' # SKIP {skip}' if skip else ''), flush=True)


def not_ok(name, details):
    global _failed, _count
    _failed += 1
    _count += 1
    print(f'not ok - {name}')
    lines = str(details).splitlines()
    note('\n'.join(lines[:SHOWN_LINES]))
    if len(lines) > SHOWN_LINES:
        note(f'... and {len(lines) - SHOWN_LINES} lines more')


def relay(line, mark):
    """Counts a result line of another program as one of this, with MARK before its name."""
    global _failed, _count
    _count += 1
    _failed += line.startswith('not ok')
    print(line.rstrip('\n').replace('ok - ', f'ok - {mark} ', 1), flush=True)


def expect(condition, text):
    if not condition:
        raise Failure(text)


def short(value):
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + f'... ({len(text)} characters)'


def expect_equal(got, want, what=''):
    if got == want:
        return
    if isinstance(got, dict) and isinstance(want, dict):  # only what differs
        got, want = ({k: v for k, v in one.items() if k not in other or other[k] != v}
                     for one, other in ((got, want), (want, got)))
    raise Failure(f'{what}\n  got  {short(got)}\n  want {short(want)}'.lstrip())


def run_one(name, function, *args):
    """Runs one test and prints its line; a failure's details come from the exception."""
    started = time.monotonic()
    try:
        function(*args)
        ok(name)
    except Skip as reason:
        ok(name, skip=reason)
    except Failure as failure:
        not_ok(name, failure)
    except Exception:  # a bug in a test is a failure of that test, not the end of the program
        not_ok(name, traceback.format_exc())
    seconds = time.monotonic() - started
    if seconds > 10:
        note(f'{name} took {seconds:.1f} s')


def arguments():
    # Told to stop, a program unwinds, so that what it mounted is unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument('-k', metavar='WORD', default='', help='only tests with WORD in the name')
    return parser.parse_args()


def status():
    """Exit status of the program, after all tests."""
    print(f'1..{_count}', flush=True)
    return 1 if _failed or not _count else 0


class Suite:
    """Tests that share one mount: `@suite.test` collects, run() runs."""

    def __init__(self):
        self.tests = []

    def test(self, function):
        self.tests.append(function)
        return function

    def run(self, *args, suffix='', word=''):
        for function in self.tests:
            name = function.__name__ + suffix
            if word in name:
                run_one(name, function, *args)
