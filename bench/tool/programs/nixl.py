#!/usr/bin/env python3
"""Writes or reads blocks of another node's memory by NIXL, and says how fast that was.

    nixl.py                                       looks for NIXL
    nixl.py target ADDRESS PORT                   serves one client
    nixl.py write|read ADDRESS PORT BYTES REQUESTS SECONDS

UCX carries the blocks as its variables in the environment say. The line about a transfer is that of Mooncake's benchmark.
"""
import glob
import importlib.util
import os
import socket
import struct
import sys
import time

sys.path.insert(0, "/opt/nixl")
BUFFER = 16 << 20


def look():
    """Ends with the reason where there is no NIXL for this Python. To import it takes emulated CPUs seconds."""
    lacks = [m for m in ("numpy", "nixl_cu12") if importlib.util.find_spec(m) is None]
    built = [os.path.basename(f) for f in glob.glob("/opt/nixl/nixl_cu12/_bindings*.so")]
    why = ""
    if built and not any("cpython-%d%d-" % sys.version_info[:2] in f for f in built):
        why = "the wheel is for another Python: it has %s" % built[0]
    elif lacks:
        why = "no module %s" % lacks[0]
    if why:
        sys.exit("no NIXL for Python %d.%d: %s; hack/wheels.sh nixl LAB NODE fetches the wheel that fits" %
                 (*sys.version_info[:2], why))


def agent(name):
    """An agent of NIXL with a buffer that is registered, and the buffer."""
    import numpy
    from nixl_cu12._api import nixl_agent, nixl_agent_config
    memory = numpy.zeros(BUFFER, numpy.uint8)
    try:
        made = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        made.register_memory([(memory.ctypes.data, BUFFER, 0, "")], "DRAM")
    except Exception as e:  # of a module that C++ makes
        hint = ""
        if "rxe" in os.environ.get("UCX_NET_DEVICES", ""):
            hint = ": the wheel's own libibverbs has no driver for soft RoCE; hack/wheels.sh links it to the system's"
        sys.exit("NIXL cannot use %s: %s%s" % (os.environ.get("UCX_NET_DEVICES", "TCP"), e, hint))
    return made, memory


def read(connection, size):
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            sys.exit("the other side of NIXL has ended")
        got += part
    return got


def marks(size, first):
    import numpy
    return ((numpy.arange(size) + first) % 251).astype(numpy.uint8)


def target(address, port):
    listener = socket.create_server((address, int(port)))  # before what takes long, for whoever waits for it
    made, memory = agent("target")
    memory[:] = marks(BUFFER, 7)
    connection, _ = listener.accept()
    metadata = made.get_agent_metadata()
    connection.sendall(struct.pack("!QQ", len(metadata), memory.ctypes.data) + metadata)
    while connection.recv(1):  # until the client ends
        pass


def client(operation, address, port, size, requests, seconds):
    size, requests, seconds = int(size), int(requests), float(seconds)
    made, memory = agent("client")
    connection = socket.create_connection((address, int(port)))
    length, remote = struct.unpack("!QQ", read(connection, 16))
    peer = made.add_remote_agent(read(connection, length))
    blocks = lambda at: made.get_xfer_descs([(at + i * size, size, 0) for i in range(requests)], "DRAM")
    moved = size * requests

    def transfer(handle):
        state = made.transfer(handle)
        while state == "PROC":
            state = made.check_xfer_state(handle)
        if state != "DONE":
            sys.exit("a transfer of NIXL ended with %s" % state)

    memory[:moved] = marks(moved, 11)
    handle = made.initialize_xfer(operation.upper(), blocks(memory.ctypes.data), blocks(remote), peer)
    transfer(handle)  # which connects
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        transfer(handle)
        count += 1
    took = time.monotonic() - began
    want = marks(moved, 7)
    if operation == "write":  # what the target has now comes back
        want = memory[:moved].copy()
        memory[:moved] = 0
        transfer(made.initialize_xfer("READ", blocks(memory.ctypes.data), blocks(remote), peer))
    if not (memory[:moved] == want).all():
        sys.exit("the bytes that arrived are not those that were sent")
    print("Test completed: duration %.6f, batch count %d, throughput %.6f Gb/s" %
          (took, count, count * moved * 8 / took / 1e9), file=sys.stderr)


look()
if len(sys.argv) < 2:
    pass
elif sys.argv[1] == "target":
    target(*sys.argv[2:])
else:
    client(*sys.argv[1:])
sys.stderr.flush()
os._exit(0)  # NIXL over TCP crashes when the interpreter ends
