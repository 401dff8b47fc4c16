#!/usr/bin/env python3
"""Runs test suites of others over the RDMA adapters of two nodes, and writes one line for each test.

    run.py RESULTS PEER [SUITE...]      on the first node; PEER is the name of the second
    run.py --agent                      on a node, for the former: runs what it is told to

A line has the suite, the test, its result, its seconds and a detail, with tabs between them. Results are pass, fail
and skip; the detail is the reason of a skip, or the end of what a failed test has printed. A test that fails is run a
second time, as nodes without KVM are slow: "again" before the detail says so.
"""
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import matrix

DEVICE, GID = 'mlx5_0', '3'
TESTS = '/opt/suites/rdma-core'


class Node:
    """A node that runs programs for this one: the other one over ssh, or this one."""

    def __init__(self, name=None):
        argv = [sys.executable, os.path.abspath(__file__), '--agent']
        if name:
            argv = ['ssh', '-oBatchMode=yes', name] + argv
        self.agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        self.agent.stdin.write(json.dumps(request) + '\n')
        self.agent.stdin.flush()
        answer = self.agent.stdout.readline()
        if not answer:
            raise SystemExit('the agent of a node has ended')
        return json.loads(answer)

    def start(self, argv, ready=None, tty=False):
        """Starts a program, and returns when it listens, or has ended."""
        self.ask(do='start', argv=argv, ready=ready, tty=tty)

    def finish(self, limit, quiet=False):
        """Waits for the program, ends it after the limit in seconds, and returns its status and output.

        If quiet, the limit is for the time since it last printed something.
        """
        answer = self.ask(do='finish', limit=limit, quiet=quiet)
        return answer['status'], answer['output']

    def run(self, argv, limit, tty=False, quiet=False):
        self.start(argv, tty=tty)
        return self.finish(limit, quiet)


class Agent:
    """Runs one program at a time for a Node."""

    READY_LIMIT = 20  # seconds

    def serve(self):
        for line in sys.stdin:
            request = json.loads(line)
            answer = getattr(self, request.pop('do'))(**request) or {}
            sys.stdout.write(json.dumps(answer) + '\n')
            sys.stdout.flush()

    def start(self, argv, ready, tty):
        stdin, self.tty = subprocess.DEVNULL, None
        if tty:
            self.tty, stdin = os.openpty()
        self.out = tempfile.TemporaryFile()
        self.program = subprocess.Popen(argv, stdin=stdin, stdout=self.out, stderr=subprocess.STDOUT,
                                        start_new_session=True, env=dict(os.environ, HOME='/root', LC_ALL='C'))
        if tty:
            os.close(stdin)
        end = time.monotonic() + self.READY_LIMIT
        while ready and self.program.poll() is None and time.monotonic() < end and not self.listens(ready):
            time.sleep(0.05)

    @staticmethod
    def listens(port):
        """Whether a program listens at a TCP port, at any of the connection manager, or to a group of IPv4.

        A receiver of raw packets ("raw") says nothing: its flow comes a moment after its queue.
        """
        if port == 'raw':
            found = subprocess.run(['rdma', 'resource', 'show', 'qp'], capture_output=True, text=True)
            if 'raw_ethernet' not in found.stdout:
                return False
            time.sleep(2)
            return True
        if port == 'cm':
            found = subprocess.run(['rdma', 'resource', 'show', 'cm_id'], capture_output=True, text=True)
            return ' state LISTEN ' in found.stdout or ' state ADDR_BOUND ' in found.stdout
        if isinstance(port, str):
            with open('/proc/net/igmp') as groups:
                return ''.join(f'{int(n):02X}' for n in reversed(port.split('.'))) in groups.read()
        for name in '/proc/net/tcp', '/proc/net/tcp6':
            with open(name) as table:
                for row in table:
                    field = row.split()
                    if field[3] == '0A' and field[1].endswith(f':{port:04X}'):
                        return True
        return False

    def finish(self, limit, quiet):
        late, printed = '', -1
        while True:
            try:
                status = self.program.wait(limit)
            except subprocess.TimeoutExpired:
                now = os.fstat(self.out.fileno()).st_size
                if quiet and now != printed:
                    printed = now
                    continue
                late = f'\nended after {limit} s' + (' in which it printed nothing' if quiet else '')
                status = -1
            break
        try:
            os.killpg(self.program.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.program.wait()
        if self.tty is not None:
            os.close(self.tty)
        self.out.seek(0, os.SEEK_END)
        self.out.seek(max(0, self.out.tell() - 100000))
        output = self.out.read().decode(errors='replace')
        self.out.close()
        return {'status': status, 'output': output + late}


class Results:
    def __init__(self, name):
        self.file, self.lock = open(name, 'w', buffering=1), threading.Lock()

    def add(self, suite, test, result, seconds, detail=''):
        detail = ' '.join(detail.split())[:400]
        with self.lock:
            self.file.write(f'{suite}\t{test}\t{result}\t{seconds:.1f}\t{detail}\n')
        if result == 'fail' or result == 'pass' and detail:  # skips are many, and expected
            print(f'{suite} {test}: {result}: {detail}', flush=True)

    def took(self, suite, seconds):
        print(f'{suite} took {seconds:.0f} s', flush=True)


def last_lines(output):
    """Returns the lines that say why a program has failed."""
    lines = [line.strip() for line in output.splitlines()]
    lines = [line for line in lines if re.search('[a-zA-Z]', line) and not re.match(r'-----|(local|remote) addr', line)]
    return ' / '.join(lines[-3:])


def pair(results, server, client, test):
    """Runs a test of two programs, and says whether it has passed and why not."""
    server.start(test.server, test.ready, test.tty)
    status, output = client.run(test.client, test.limit, test.tty)
    # A server that has nobody to wait for any more ends soon, or never.
    server_status, server_output = server.finish(test.limit if status == 0 and not test.endless else 2)
    if test.endless and server_status == -1:
        server_status = 0
    if status == 0 and server_status == 0 and (not test.wants or re.search(test.wants, output, re.M)):
        return True, ''
    return False, (f'client {status}: {last_lines(output)}; server {server_status}: {last_lines(server_output)}')


def run_pairs(results, suite, tests, server, client):
    for test in tests:
        began = time.monotonic()
        good, detail = pair(results, server, client, test)
        if not good:
            again, second = pair(results, server, client, test)
            good, detail = again, 'again ' + (detail if again else second)
        results.add(suite, test.name, 'pass' if good else 'fail', time.monotonic() - began, detail)


def run_module(results, suite, node, module, first, hung):
    """Runs the tests of a module from one on. If they have hung or crashed, returns the number of the next one to run.

    That is the one that was running, which is run a second time like any that fails. hung has those that were.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    argv = [sys.executable, os.path.join(here, 'pyverbs_module.py'), TESTS, module, str(first)]
    status, output = node.run(argv + ['--dev', DEVICE, '--gid', GID], matrix.MODULE_LIMIT, quiet=True)
    begun, ended = [], set()
    for line in output.splitlines():
        field = line.split('\t')
        if field[0] == 'START' and field[1] not in begun:
            begun.append(field[1])
        elif field[0] in ('pass', 'fail', 'skip') and len(field) == 4:
            results.add(suite, field[1], field[0], float(field[2]), field[3])
            ended.add(field[1])
    if 'END' in output.splitlines():
        return None
    why = f'ended here: status {status}: {last_lines(output)}'
    if not begun:  # it cannot be loaded, or has no more tests
        results.add(suite, module, 'fail', 0, why)
        return None
    if begun[-1] not in ended:
        if begun[-1] not in hung:
            hung.add(begun[-1])
            return first + len(begun) - 1
        results.add(suite, begun[-1], 'fail', 0, 'again ' + why)
    return first + len(begun)


def run_pyverbs(results, suite, nodes):
    """Runs the modules of rdma-core's Python tests, on each node that is free the next one."""
    todo = queue.Queue()
    modules = [name[:-3] for name in os.listdir(TESTS + '/tests') if re.match(r'test_.*\.py$', name)]
    for module in sorted(modules, key=lambda m: (-matrix.LONG.get(m, 0), m)):
        if module not in matrix.OTHER_CARDS:
            todo.put(module)

    def work(node):
        while True:
            try:
                module = todo.get_nowait()
            except queue.Empty:
                return
            first, hung = 0, set()
            while first is not None:
                first = run_module(results, suite, node, module, first, hung)

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def main():
    if sys.argv[1:] == ['--agent']:
        return Agent().serve()
    name, peer, suites = sys.argv[1], sys.argv[2], sys.argv[3:]
    results, nodes = Results(name), [Node(), Node(peer)]
    macs = [node.run(['cat', '/sys/class/net/eth0/address'], 10)[1].strip() for node in nodes]
    only = os.environ.get('ONLY')  # a pattern of tests, to look at some of them
    for suite, make in matrix.SUITES.items():
        if suites and suite not in suites:
            continue
        began = time.monotonic()
        if suite == 'pyverbs':
            run_pyverbs(results, suite, nodes)
        else:
            tests = [t for t in make(peer, macs) if not only or re.search(only, t.name)]
            run_pairs(results, suite, tests, server=nodes[1], client=nodes[0])
        results.took(suite, time.monotonic() - began)


if __name__ == '__main__':
    main()
