#!/usr/bin/env python3
"""Moves messages from the memory of a GPU to that of another node's GPU by an RDMA adapter, and measures how long.

    vram.py serve ADDRESS PORT DEVICE GID GPU WAY
    vram.py client ADDRESS PORT DEVICE GID GPU WAY BYTES MESSAGES

With WAY direct, the adapters read and write memory of the GPUs, as a dma-buf (GPUDirect RDMA). With WAY staged, CUDA
copies each message to main memory, the adapters move it to main memory of the other node, and CUDA copies it to the GPU
there. Both have a ring of messages on the way: one is copied while another is sent. The server tells the client when a
message has reached its GPU, and the client stops its clock when the last one has. At the end the bytes are compared.
"""
import ctypes as c
import mmap
import os
import socket
import struct
import sys
import time
import zlib

RING = 4  # messages on the way
MAX = 8 << 20  # bytes of a message
BASE = 1 << 40  # the address by which RDMA names the first byte of a dma-buf
PAUSE = 0.0002  # in seconds: a node that polls without one takes the CPU from the others
LIMIT = 60  # seconds for one message
WRITE, SEND, SIGNALED = 1, 3, 2  # both with immediate data
LOCAL_WRITE, REMOTE_WRITE = 1, 2

cuda = c.CDLL("libcuda.so.1")
verbs = c.CDLL("libibverbs.so.1", use_errno=True)
for name in ("get_device_list", "open_device", "alloc_pd", "create_cq", "create_qp", "reg_mr", "reg_dmabuf_mr"):
    getattr(verbs, "ibv_" + name).restype = c.c_void_p
verbs.ibv_get_device_name.restype = c.c_char_p


def cu(name, *args):
    r = getattr(cuda, name)(*args)
    if r:
        sys.exit("%s: error %d of CUDA" % (name, r))


def check(done, what):
    if not done:
        sys.exit("%s: %s" % (what, os.strerror(c.get_errno())))
    return done


def posted(error, what):
    if error:
        sys.exit("%s: %s" % (what, os.strerror(error)))


class QueueInit(c.Structure):
    _fields_ = [("context", c.c_void_p), ("send", c.c_void_p), ("recv", c.c_void_p), ("srq", c.c_void_p),
                ("cap", c.c_uint32 * 5), ("type", c.c_int), ("all", c.c_int)]


class Path(c.Structure):
    _fields_ = [("gid", c.c_uint64 * 2), ("label", c.c_uint32), ("index", c.c_uint8), ("hops", c.c_uint8),
                ("tclass", c.c_uint8), ("rest", c.c_uint8), ("lid", c.c_uint16), ("sl", c.c_uint8), ("bits", c.c_uint8),
                ("rate", c.c_uint8), ("is_global", c.c_uint8), ("port", c.c_uint8)]


class QueueAttr(c.Structure):
    _fields_ = [("state", c.c_int), ("current", c.c_int), ("mtu", c.c_int), ("mig", c.c_int), ("qkey", c.c_uint32),
                ("rq_psn", c.c_uint32), ("sq_psn", c.c_uint32), ("peer", c.c_uint32), ("access", c.c_uint32),
                ("cap", c.c_uint32 * 5), ("path", Path), ("other", Path), ("pkey", c.c_uint16 * 2),
                ("notify", c.c_uint8), ("draining", c.c_uint8), ("reads", c.c_uint8), ("peer_reads", c.c_uint8),
                ("rnr_timer", c.c_uint8), ("port", c.c_uint8), ("timeout", c.c_uint8), ("retry", c.c_uint8),
                ("rnr_retry", c.c_uint8), ("rest", c.c_uint8 * 10)]


class Piece(c.Structure):
    _fields_ = [("addr", c.c_uint64), ("length", c.c_uint32), ("key", c.c_uint32)]


class Request(c.Structure):
    _fields_ = [("id", c.c_uint64), ("next", c.c_void_p), ("list", c.POINTER(Piece)), ("pieces", c.c_int),
                ("opcode", c.c_int), ("flags", c.c_uint32), ("imm", c.c_uint32), ("remote", c.c_uint64),
                ("key", c.c_uint64), ("rest", c.c_uint8 * 80)]


class Receive(c.Structure):
    _fields_ = [("id", c.c_uint64), ("next", c.c_void_p), ("list", c.c_void_p), ("pieces", c.c_int)]


class Completion(c.Structure):
    _fields_ = [("id", c.c_uint64), ("status", c.c_int), ("opcode", c.c_int), ("rest", c.c_uint8 * 32)]


class Adapter:
    def __init__(self, name, index):
        n = c.c_int()
        devices = check(verbs.ibv_get_device_list(c.byref(n)), "list the adapters")
        found = (c.c_void_p * n.value).from_address(devices)
        there = {verbs.ibv_get_device_name(c.c_void_p(d)).decode(): d for d in found}
        if name not in there:
            sys.exit("there is no adapter %s" % name)
        self.index = int(index)
        self.context = check(verbs.ibv_open_device(c.c_void_p(there[name])), "open %s" % name)
        self.pd = check(verbs.ibv_alloc_pd(c.c_void_p(self.context)), "ibv_alloc_pd")
        self.gid, port = (c.c_uint8 * 16)(), (c.c_uint32 * 64)()
        of = c.c_void_p(self.context), c.c_uint8(1)
        check(verbs.ibv_query_gid(*of, self.index, self.gid) == 0, "query GID %s" % index)
        check(verbs.ibv_query_port(*of, port) == 0, "query the port")
        self.mtu = port[2]
        self.cq = check(verbs.ibv_create_cq(c.c_void_p(self.context), 4 * RING, None, None, 0), "ibv_create_cq")
        init = QueueInit(send=self.cq, recv=self.cq, cap=(2 * RING, 2 * RING, 1, 1, 0), type=2)
        self.qp = check(verbs.ibv_create_qp(c.c_void_p(self.pd), c.byref(init)), "ibv_create_qp")
        self.number = c.c_uint32.from_address(self.qp + 52).value

        def call(offset, *args):
            return c.CFUNCTYPE(c.c_int, *args)(c.c_uint64.from_address(self.context + offset).value)

        # verbs.h calls these through the context
        self.poll = call(96, c.c_void_p, c.c_int, c.c_void_p)
        self.post = call(208, c.c_void_p, c.c_void_p, c.c_void_p)
        self.post_receive = call(216, c.c_void_p, c.c_void_p, c.c_void_p)
        self.sent = 0  # whose completions have not come

    def modify(self, mask, **values):
        done = verbs.ibv_modify_qp(c.c_void_p(self.qp), c.byref(QueueAttr(**values)), mask) == 0
        check(done, "ibv_modify_qp to %d" % values["state"])

    def connect(self, number, gid, mtu):
        self.modify(1 | 8 | 16 | 32, state=1, port=1, access=LOCAL_WRITE | REMOTE_WRITE)
        for _ in range(RING):  # not before: a queue pair that is in no state takes none
            self.receive()
        path = Path(gid=struct.unpack("QQ", gid), index=self.index, hops=64, is_global=1, port=1)
        self.modify(1 | 128 | 256 | 4096 | 32768 | 131072 | 1048576, state=2, mtu=min(mtu, self.mtu), peer=number,
                    peer_reads=1, rnr_timer=12, path=path)
        # 4.096 us * 2^18 for an acknowledgement, about 1 s: an emulated node is slow
        self.modify(1 | 512 | 1024 | 2048 | 8192 | 65536, state=3, timeout=18, retry=7, rnr_retry=7, reads=1)

    def receive(self):
        w, bad = Receive(), c.c_void_p()
        posted(self.post_receive(self.qp, c.addressof(w), c.addressof(bad)), "ibv_post_recv")

    def send(self, opcode, piece=None, remote=0, key=0):
        w, bad = Request(opcode=opcode, flags=SIGNALED, remote=remote, key=key), c.c_void_p()
        if piece:
            w.list, w.pieces = c.pointer(piece), 1
        posted(self.post(self.qp, c.addressof(w), c.addressof(bad)), "ibv_post_send")
        self.sent += 1

    def received(self, wait):
        """Takes completions until one is of a receive, or there is none and wait is false."""
        done, end = Completion(), time.monotonic() + LIMIT
        while True:
            n = self.poll(self.cq, 1, c.addressof(done))
            if n < 0 or n and done.status:
                sys.exit("a work request failed with status %d" % done.status)
            if n and done.opcode & 128:
                return True
            if n:
                self.sent -= 1
            elif not wait:
                return False
            elif time.monotonic() > end:
                sys.exit("no message within %d s" % LIMIT)
            else:
                time.sleep(PAUSE)


class Ring:
    """The messages in memory of the GPU, and what the adapter reads or writes."""

    def __init__(self, adapter, gpu, way, size):
        self.size, self.copies, self.staged = size, 0.0, way == "staged"
        device, context, self.vram = c.c_int(), c.c_void_p(), c.c_uint64()
        cu("cuInit", 0)
        cu("cuDeviceGet", c.byref(device), int(gpu))
        cu("cuCtxCreate_v2", c.byref(context), 0, device)
        whole = RING * size
        cu("cuMemAlloc_v2", c.byref(self.vram), c.c_size_t(whole))
        self.host = mmap.mmap(-1, whole)
        self.address = c.addressof(c.c_char.from_buffer(self.host))
        access = LOCAL_WRITE | REMOTE_WRITE
        if self.staged:
            mr = verbs.ibv_reg_mr(c.c_void_p(adapter.pd), c.c_void_p(self.address), c.c_size_t(whole), access)
            self.base = self.address
        else:
            fd = c.c_int()
            cu("cuMemGetHandleForAddressRange", c.byref(fd), self.vram, c.c_size_t(whole), 1, c.c_uint64(0))
            mr = verbs.ibv_reg_dmabuf_mr(c.c_void_p(adapter.pd), c.c_uint64(0), c.c_size_t(whole), c.c_uint64(BASE), fd,
                                         access)
            self.base = BASE
        check(mr, "register %d bytes" % whole)
        self.lkey, self.rkey = (c.c_uint32.from_address(mr + at).value for at in (36, 40))

    def copy(self, name, to, source, size):
        began = time.monotonic()
        cu(name, c.c_uint64(to), c.c_uint64(source), c.c_size_t(size))
        self.copies += time.monotonic() - began

    def out(self, slot):
        if self.staged:
            at = slot * self.size
            self.copy("cuMemcpyDtoH_v2", self.address + at, self.vram.value + at, self.size)

    def into(self, slot):
        if self.staged:
            at = slot * self.size
            self.copy("cuMemcpyHtoD_v2", self.vram.value + at, self.address + at, self.size)

    def fill(self, data):
        self.host[:] = data
        cu("cuMemcpyHtoD_v2", self.vram, c.c_uint64(self.address), c.c_size_t(len(data)))
        self.host[:] = bytes(len(data))  # so that only what comes from the GPU is right

    def sum(self, slots):
        cu("cuMemcpyDtoH_v2", c.c_uint64(self.address), self.vram, c.c_size_t(slots * self.size))
        return zlib.crc32(memoryview(self.host)[:slots * self.size])


def read(connection, size):
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            sys.exit("the other side has ended")
        got += part
    return got


FACTS = struct.Struct("!I16sIQI")  # queue pair, GID, MTU, address and key of the ring


def meet(connection, adapter, ring):
    connection.sendall(FACTS.pack(adapter.number, bytes(adapter.gid), adapter.mtu, ring.base, ring.rkey))
    number, gid, mtu, base, key = FACTS.unpack(read(connection, FACTS.size))
    adapter.connect(number, gid, mtu)
    connection.sendall(b"+")
    read(connection, 1)
    return base, key


def serve(address, port, device, gid, gpu, way):
    listener = socket.create_server((address, int(port)))  # before what takes long, for whoever waits for it
    connection, _ = listener.accept()
    connection.settimeout(LIMIT)
    size, messages = struct.unpack("!QQ", read(connection, 16))
    if not 0 < size <= MAX:
        sys.exit("messages of %d bytes" % size)
    adapter = Adapter(device, gid)
    ring = Ring(adapter, gpu, way, size)
    ring.fill(bytes(RING * size))
    meet(connection, adapter, ring)
    for i in range(messages):
        adapter.received(wait=True)
        ring.into(i % RING)
        adapter.receive()
        adapter.send(SEND)
    connection.sendall(struct.pack("!Id", ring.sum(min(messages, RING)), ring.copies))
    connection.recv(1)  # the client's end


def client(address, port, device, gid, gpu, way, size, messages):
    size, messages = int(size), int(messages)
    connection = socket.create_connection((address, int(port)), timeout=LIMIT)
    connection.sendall(struct.pack("!QQ", size, messages))
    adapter = Adapter(device, gid)
    ring = Ring(adapter, gpu, way, size)
    ring.fill(os.urandom(RING * size))
    base, key = meet(connection, adapter, ring)
    arrived = 0
    began = time.monotonic()
    for i in range(messages):
        while i - arrived >= RING:
            adapter.received(wait=True)
            adapter.receive()
            arrived += 1
        ring.out(i % RING)
        at = i % RING * size
        adapter.send(WRITE, Piece(ring.base + at, size, ring.lkey), base + at, key)
    while arrived < messages:
        adapter.received(wait=True)
        adapter.receive()
        arrived += 1
    took = time.monotonic() - began
    there, copies = struct.unpack("!Id", read(connection, 12))
    if there != ring.sum(min(messages, RING)):
        sys.exit("the bytes in the other GPU are not those that were sent")
    print("%s: %d messages of %d bytes in %.6f s, %.6f Gb/s; copies took %.6f s here and %.6f s there" %
          (way, messages, size, took, messages * size * 8 / took / 1e9, ring.copies, copies))


if __name__ == "__main__":
    {"serve": serve, "client": client}[sys.argv[1]](*sys.argv[2:])
