#!/usr/bin/env python3
"""Has Mooncake's benchmark serve TCP at a port that the client knows.

    mooncake.py PORT PROGRAM [ARGUMENT]...

Over TCP, Mooncake takes two ports of one range by chance, one for requests and one for data: a range of one port is too
small. So it takes any, and connections to PORT go to the one that it names in its log.
"""
import os
import re
import socket
import sys
import threading
import time


def carry(source, to):
    while data := source.recv(1 << 16):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)


def forward(port, to):
    server = socket.create_server(("", port))
    while True:
        client, _ = server.accept()
        while True:  # it names the port before it listens there
            try:
                target = socket.create_connection(("127.0.0.1", to))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        for pair in (client, target), (target, client):
            threading.Thread(target=carry, args=pair, daemon=True).start()


port = int(sys.argv[1])
log, end = os.pipe()
if os.fork():  # who ends this process ends the program, and with it the log
    os.dup2(end, 2)
    os.execvp(sys.argv[2], sys.argv[2:])
os.close(end)
for line in os.fdopen(log, errors="replace"):
    sys.stderr.write(line)
    sys.stderr.flush()
    if named := re.search(r"RPC using .*, listening on \S+:(\d+)", line):
        threading.Thread(target=forward, args=(port, int(named[1])), daemon=True).start()
