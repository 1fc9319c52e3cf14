# SPDX-License-Identifier: GPL-3.0-or-later
"""tap_results.py - what a test program's TAP output says.

Results are (name, outcome, details); details are the comment lines after a failing line.  What
is missing is made a failure here: a plan that was not kept, a `Bail out!`, no result at all.
"""
import re

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'

RESULT = re.compile(r'(not )?ok\b(?: +\d+)?(?: +-)? *(.*)')
SKIP = re.compile(r'\s*#\s*skip\S*\s*(.*)', re.IGNORECASE)
PLAN = re.compile(r'1\.\.(\d+)(?:\s*#\s*skip\S*\s*(.*))?', re.IGNORECASE)


class Result:
    """One test's outcome; details are lines, or for a skipped one its reason."""

    def __init__(self, name, outcome, details=()):
        self.name, self.outcome, self.details = name, outcome, list(details)


class Lost(Result):
    """A failure that no test reported itself: the program crashed, or its output is not whole."""

    def __init__(self, name, *details):
        super().__init__(name, FAILED, ['# ' + line for line in details])


def _result(not_, rest):
    skip = SKIP.search(rest)
    name = (rest[:skip.start()] if skip else rest).strip() or 'a test without a name'
    if not_:
        return Result(name, FAILED)
    return Result(name, SKIPPED, [skip.group(1) or 'no reason given']) if skip \
        else Result(name, PASSED)


def parse(text):
    """The results in TEXT, the output of a whole program."""
    results, plan, lost = [], None, []
    for line in text.splitlines():
        if match := RESULT.fullmatch(line):
            results.append(_result(*match.groups()))
        elif match := PLAN.fullmatch(line.strip()):
            plan = int(match.group(1))
            if plan == 0:
                results.append(Result('whole program', SKIPPED,
                                      [match.group(2) or 'no reason given']))
        elif line.startswith('Bail out!'):
            lost.append(line)
        elif line.startswith('#') and results and results[-1].outcome == FAILED:
            results[-1].details.append(line)
    if plan and plan != len(results):
        lost.append(f'planned {plan} results, printed {len(results)}')
    if not results and not lost:
        lost.append('printed no result')
    return results + [Lost('complete output', reason) for reason in lost]
