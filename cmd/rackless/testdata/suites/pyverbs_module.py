#!/usr/bin/env python3
"""Runs one module of rdma-core's Python tests, and prints a line for each test.

    pyverbs_module.py DIRECTORY MODULE FIRST [ARGUMENT OF THE TESTS]...

The first FIRST tests are left out: a run that has hung goes on behind the test that it hung in. Each test has a limit,
and one that fails is run a second time. A line is "START" and the test, or its result, the test, seconds and a detail.
"""
import importlib
import os
import signal
import sys
import traceback
import types
import unittest

LIMIT = 180  # seconds for a test: nodes without KVM on a busy machine are slow

directory, module, already = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.argv[1:] = sys.argv[4:]
# The package loads all modules when it is imported, which takes seconds: this one loads only what it runs.
sys.path.insert(0, os.path.join(directory, 'tests'))
package = types.ModuleType('tests')
package.__path__ = [os.path.join(directory, 'tests')]
sys.modules['tests'] = package
from args_parser import parser
parser.parse_args()


def line(*fields):
    print('\n' + '\t'.join(fields), flush=True)  # a test may have printed half a line


def each(suite):
    """Yields the tests of a suite of suites."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def late(*_):
    raise TimeoutError(f'no result within {LIMIT} s')


class Recorder(unittest.TestResult):
    """Prints results. Those of subtests are one with that of their test."""

    def __init__(self, tries):
        super().__init__()
        self.tries, self.again = tries, []

    def startTest(self, test):
        super().startTest(test)
        self.began, self.result, self.detail = os.times().elapsed, 'pass', ''
        line('START', test.id())
        signal.alarm(LIMIT)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        if self.result == 'fail' and self.tries > 1:
            self.again.append(test)
            return
        detail = ' '.join(self.detail.split())
        if self.tries == 1:
            detail = 'again ' + detail
        line(self.result, test.id(), f'{os.times().elapsed - self.began:.1f}', detail.strip())

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.result, self.detail = 'skip', reason

    def addFailure(self, test, error):
        self.result, self.detail = 'fail', self.say(error)

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error:
            self.addFailure(test, error)

    @staticmethod
    def say(error):
        kind, value, trace = error
        places = [f'{os.path.basename(f.filename)}:{f.lineno}' for f in traceback.extract_tb(trace)[-3:]]
        return f'{kind.__name__}: {str(value)[:250]} at {" ".join(reversed(places))}'


signal.signal(signal.SIGALRM, late)
importlib.import_module('tests.utils')  # these import each other, and only this order works
loaded = importlib.import_module('tests.' + module)
tests = list(each(unittest.defaultTestLoader.loadTestsFromModule(loaded)))[already:]
recorder = Recorder(tries=2)
for test in tests:
    test.run(recorder)
    if recorder.again:
        recorder.again.clear()
        type(test)(test._testMethodName).run(Recorder(tries=1))
line('END')
os._exit(0)  # threads of failed tests may still wait
