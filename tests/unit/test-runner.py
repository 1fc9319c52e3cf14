#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of the tests: nothing that goes wrong in a test program may look like success."""
import os
import sys
import tempfile
import time

TOP = os.environ['FOLDFS_SRC']
sys.path.insert(0, os.path.join(TOP, 'tests', 'lib'))

import program  # noqa: E402 (found by the line above)
from builds import Build  # noqa: E402
from tap_results import FAILED, PASSED, SKIPPED, parse  # noqa: E402


def outcomes(text):
    return [(r.name, r.outcome) for r in parse(text)]


def run(script, limit=60):
    """The results of a test program that is this shell SCRIPT, with LIMIT in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'test-made')
        with open(path, 'w', encoding='utf-8') as file:
            file.write('#!/bin/bash\n' + script)
        os.chmod(path, 0o755)
        made = program.Program('made', path, [path], 'plain')
        return program.Run(made, Build('plain', folder), 1, TOP, limit).go()


def summary(done):
    return [(r.name, r.outcome) for r in done.results]


def runs(word):
    """Whether some process has WORD in its command line."""
    for entry in os.listdir('/proc'):
        try:
            with open(f'/proc/{entry}/cmdline', encoding='utf-8') as file:
                if word in file.read().replace('\0', ' '):
                    return True
        except OSError:
            continue  # no process, or one that just ended
    return False


def wait_until_gone(word):
    """Whether no process with WORD in its command line is left, at the latest after a second."""
    for _ in range(20):
        if not runs(word):
            return True
        time.sleep(0.05)
    return False


def results_are_told_apart():
    text = 'ok - a\nok 2 - b # SKIP no c\nnot ok - d\n# why\n# more\n1..3\n'
    assert outcomes(text) == [('a', PASSED), ('b', SKIPPED), ('d', FAILED)], outcomes(text)
    assert [r.details for r in parse(text)] == [[], ['no c'], ['# why', '# more']]


def broken_plan_is_a_failure():
    assert outcomes('1..2\nok - a\n')[-1] == ('complete output', FAILED)


def bail_out_is_a_failure():
    assert outcomes('ok - a\nBail out! no disk\n')[-1] == ('complete output', FAILED)


def whole_skip_is_a_skip():
    assert outcomes('1..0 # SKIP no disk\n') == [('whole program', SKIPPED)]


def no_output_is_a_failure():
    assert summary(run('true')) == [('complete output', FAILED)]


def crash_after_results_is_a_failure():
    done = run('echo "ok - a"; kill -SEGV $$')
    assert summary(done) == [('a', PASSED), ('exit status', FAILED)], summary(done)
    assert 'SIGSEGV' in done.results[-1].details[0], done.results[-1].details


def exit_status_without_failed_test_is_a_failure():
    assert summary(run('echo "ok - a"; exit 3')) == [('a', PASSED), ('exit status', FAILED)]


def failed_test_is_not_counted_twice():
    assert summary(run('echo "not ok - a"; exit 1')) == [('a', FAILED)]


def sanitizer_report_of_any_process_is_a_failure():
    done = run('echo "ok - a"; f=${ASAN_OPTIONS##*log_path=}; echo "heap-use" >"$f.1"')
    assert summary(done) == [('a', PASSED), ('sanitizer report', FAILED)], summary(done)


def time_limit_kills_and_tells_what_hung():
    done = run('echo "ok - a"; sleep 4711', limit=1)
    assert summary(done) == [('a', PASSED), ('time limit', FAILED)], summary(done)
    assert any('sleep 4711' in line for line in done.results[-1].details), done.results[-1].details
    assert wait_until_gone('sleep 4711')


def daemon_left_behind_is_ended():
    done = run('setsid sleep 4712 & sleep 0.1; grep -q 4712 /proc/$!/cmdline && echo "ok - a"')
    assert summary(done) == [('a', PASSED)], done.stderr
    assert wait_until_gone('sleep 4712')


def mount_left_behind_is_gone():
    done = run('mkdir m && mount -t tmpfs left-by-test m && echo "ok - a"')
    assert summary(done) == [('a', PASSED)], done.stderr
    with open('/proc/self/mountinfo', encoding='utf-8') as file:
        assert 'left-by-test' not in file.read()


def temporary_files_are_removed():
    done = run('touch x; echo "ok - $TMPDIR"')
    assert not os.path.exists(done.results[0].name), done.results[0].name


TESTS = (results_are_told_apart, broken_plan_is_a_failure, bail_out_is_a_failure,
         whole_skip_is_a_skip, no_output_is_a_failure, crash_after_results_is_a_failure,
         exit_status_without_failed_test_is_a_failure, failed_test_is_not_counted_twice,
         sanitizer_report_of_any_process_is_a_failure, time_limit_kills_and_tells_what_hung,
         daemon_left_behind_is_ended, mount_left_behind_is_gone, temporary_files_are_removed)


def main():
    failed = 0
    for test in TESTS:
        try:
            test()
            print(f'ok - {test.__name__}')
        except AssertionError as error:
            failed = 1
            print(f'not ok - {test.__name__}\n# {error!r} at line {error.__traceback__.tb_next.tb_lineno}')
    return failed


if __name__ == '__main__':
    sys.exit(main())
