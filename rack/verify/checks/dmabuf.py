#!/usr/bin/env python3
"""Registers a dma-buf with an RDMA adapter, and checks what RDMA does to its bytes. It ends with status 1 at a fault.

    dmabuf.py loop MEMORY [BYTES]    two queue pairs of one adapter write, read and add
    dmabuf.py serve MEMORY [BYTES]   offers the memory to a client, then looks at its bytes
    dmabuf.py client ADDRESS         writes to and reads from the memory of a server
    dmabuf.py rereg                  changes the address, the rights and the domain of a region
    dmabuf.py time BYTES [TIMES]     measures ibv_reg_mr and ibv_dereg_mr
    dmabuf.py pairs BYTES            moves bytes between each GPU and each adapter, and prints a line of JSON for each
    dmabuf.py hold NUMBER            takes all memory of a GPU until it is killed

MEMORY is heap: (/dev/dma_heap/system), udmabuf: (a memfd), drm:/dev/dri/renderD128, memory of a virtio GPU, or
vfio:0000:04:00.0, memory of a GPU that vfio-pci has. One program at a time can use the latter.
DMABUF_DEVICE in the environment names the adapter, otherwise it is the first; DMABUF_PORT is the TCP port of a server.
"""
import ctypes as c
import errno
import fcntl
import functools
import glob
import json
import mmap
import os
import random
import signal
import socket
import statistics
import struct
import sys
import time

MIB = 1 << 20
PORT = int(os.environ.get("DMABUF_PORT", 18515))
BASE = 1 << 40  # the address by which RDMA names the first byte of a dma-buf
VRAM_BAR, CONFIG_SPACE = 2, 7  # regions of a GPU that vfio-pci has

verbs = c.CDLL("libibverbs.so.1", use_errno=True)
libc = c.CDLL(None, use_errno=True)
for name in ("get_device_list", "open_device", "alloc_pd", "create_cq", "create_qp", "reg_mr", "reg_dmabuf_mr"):
    getattr(verbs, "ibv_" + name).restype = c.c_void_p

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
WRITE, READ, ADD = 0, 4, 6  # opcodes
SUCCESS, LOCAL_PROTECTION, REMOTE_ACCESS = 0, 4, 10
TRANSLATION, DOMAIN, ACCESS = 1, 2, 4  # what ibv_rereg_mr changes


class Failed(Exception):
    """A fault, with the error number of the system call if there is one."""

    def __init__(self, what, number=0):
        super().__init__(what)
        self.number = number


def fail(what):
    raise Failed(what)


def check(done, what):
    """Raises the error of the last call unless it was done."""
    if not done:
        e = c.get_errno()
        raise Failed(f"{what}: {os.strerror(e)} ({e})", e)
    return done


class Grh(c.Structure):
    _fields_ = [("gid", c.c_uint64 * 2), ("label", c.c_uint32), ("index", c.c_uint8), ("hops", c.c_uint8),
                ("tclass", c.c_uint8)]


class Address(c.Structure):
    _fields_ = [("grh", Grh), ("lid", c.c_uint16), ("sl", c.c_uint8), ("bits", c.c_uint8), ("rate", c.c_uint8),
                ("is_global", c.c_uint8), ("port", c.c_uint8)]


class QueueInit(c.Structure):
    _fields_ = [("context", c.c_void_p), ("send", c.c_void_p), ("recv", c.c_void_p), ("srq", c.c_void_p),
                ("cap", c.c_uint32 * 5), ("type", c.c_int), ("all", c.c_int)]


class QueueAttr(c.Structure):
    _fields_ = [("state", c.c_int), ("current", c.c_int), ("mtu", c.c_int), ("mig", c.c_int), ("qkey", c.c_uint32),
                ("rq_psn", c.c_uint32), ("sq_psn", c.c_uint32), ("peer", c.c_uint32), ("access", c.c_uint32),
                ("cap", c.c_uint32 * 5), ("path", Address), ("other", Address), ("pkey", c.c_uint16 * 2),
                ("notify", c.c_uint8), ("draining", c.c_uint8), ("reads", c.c_uint8), ("peer_reads", c.c_uint8),
                ("rnr_timer", c.c_uint8), ("port", c.c_uint8), ("timeout", c.c_uint8), ("retry", c.c_uint8),
                ("rnr_retry", c.c_uint8), ("rest", c.c_uint8 * 10)]


class Piece(c.Structure):
    _fields_ = [("addr", c.c_uint64), ("length", c.c_uint32), ("key", c.c_uint32)]


class Request(c.Structure):
    _fields_ = [("id", c.c_uint64), ("next", c.c_void_p), ("list", c.POINTER(Piece)), ("pieces", c.c_int),
                ("opcode", c.c_int), ("flags", c.c_uint32), ("imm", c.c_uint32), ("remote", c.c_uint64),
                ("key_or_add", c.c_uint64), ("swap", c.c_uint64), ("atomic_key", c.c_uint32), ("rest", c.c_uint8 * 60)]


class Completion(c.Structure):
    _fields_ = [("id", c.c_uint64), ("status", c.c_int), ("rest", c.c_uint8 * 36)]


def operation(context, offset, *args):
    """Returns a function of the provider, which verbs.h calls through the context."""
    return c.CFUNCTYPE(c.c_int, *args)(c.c_uint64.from_address(context + offset).value)


class Region:
    """A registered region: its keys, and the address of its first byte."""

    def __init__(self, mr, addr):
        self.mr, self.addr = mr, addr
        self.keys()

    def keys(self):
        self.lkey, self.rkey = c.c_uint32.from_address(self.mr + 36).value, c.c_uint32.from_address(self.mr + 40).value

    def close(self):
        check(verbs.ibv_dereg_mr(c.c_void_p(self.mr)) == 0, "ibv_dereg_mr")


def adapters():
    """Returns the adapters by name."""
    n = c.c_int()
    devices = verbs.ibv_get_device_list(c.byref(n))
    check(devices and n.value, "ibv_get_device_list")
    verbs.ibv_get_device_name.restype = c.c_char_p
    found = (c.c_void_p * n.value).from_address(devices)
    return {verbs.ibv_get_device_name(c.c_void_p(d)).decode(): d for d in found}


class Adapter:
    def __init__(self, name=None):
        there = adapters()
        self.name = name or os.environ.get("DMABUF_DEVICE") or next(iter(there))
        if self.name not in there:
            fail(f"there is no {self.name}")
        self.context = check(verbs.ibv_open_device(c.c_void_p(there[self.name])), f"ibv_open_device of {self.name}")
        self.pd = self.domain()
        self.poll = operation(self.context, 96, c.c_void_p, c.c_int, c.c_void_p)
        self.post = operation(self.context, 208, c.c_void_p, c.c_void_p, c.c_void_p)
        self.gid, self.index = self.address()

    def domain(self):
        return check(verbs.ibv_alloc_pd(c.c_void_p(self.context)), "ibv_alloc_pd")

    def address(self):
        """Returns the RoCE v2 address of IPv4, or else the first one of IPv6, with its index."""
        other = None
        for i in range(256):
            g = (c.c_uint8 * 16)()
            try:
                with open(f"/sys/class/infiniband/{self.name}/ports/1/gid_attrs/types/{i}") as f:
                    v2 = "v2" in f.read()
            except OSError:
                continue
            if v2 and verbs.ibv_query_gid(c.c_void_p(self.context), c.c_uint8(1), i, g) == 0:
                if bytes(g[:12]) == bytes(10) + b"\xff\xff":
                    return bytes(g), i
                other = other or (bytes(g), i)
        return other or fail(f"{self.name} has no RoCE v2 address")

    def register(self, addr, n, access=ALL):
        mr = verbs.ibv_reg_mr(c.c_void_p(self.pd), c.c_void_p(addr), c.c_size_t(n), access)
        return Region(check(mr, f"ibv_reg_mr of {n} bytes"), addr)

    def register_dmabuf(self, memory, offset=0, n=0, access=ALL):
        n = n or memory.size
        mr = verbs.ibv_reg_dmabuf_mr(c.c_void_p(self.pd), c.c_uint64(offset), c.c_size_t(n), c.c_uint64(BASE + offset),
                                     memory.fd, access)
        return Region(check(mr, f"ibv_reg_dmabuf_mr of {n} bytes"), BASE + offset)

    def queue(self):
        return Queue(self)


class Queue:
    def __init__(self, adapter):
        self.a = adapter
        cq = verbs.ibv_create_cq(c.c_void_p(adapter.context), 16, None, None, 0)
        self.cq = check(cq, "ibv_create_cq")
        init = QueueInit(send=cq, recv=cq, cap=(16, 16, 1, 1, 0), type=2)
        self.qp = check(verbs.ibv_create_qp(c.c_void_p(adapter.pd), c.byref(init)), "ibv_create_qp")
        self.num = c.c_uint32.from_address(self.qp + 52).value

    def modify(self, attr, mask):
        check(verbs.ibv_modify_qp(c.c_void_p(self.qp), c.byref(attr), mask) == 0, f"ibv_modify_qp to {attr.state}")

    def connect(self, num, gid):
        self.to = num, gid
        self.modify(QueueAttr(state=1, port=1, access=ALL), 1 | 16 | 32 | 8)
        attr = QueueAttr(state=2, mtu=3, peer=num, peer_reads=4, rnr_timer=12)
        attr.path = Address(grh=Grh(gid=struct.unpack("QQ", gid), index=self.a.index, hops=64), is_global=1, port=1)
        self.modify(attr, 1 | 128 | 256 | 1048576 | 4096 | 131072 | 32768)
        self.modify(QueueAttr(state=3, timeout=14, retry=7, rnr_retry=7, reads=4), 1 | 512 | 1024 | 2048 | 65536 | 8192)

    def again(self):
        """Connects the queue once more after an error."""
        self.modify(QueueAttr(state=0), 1)
        self.connect(*self.to)

    def do(self, opcode, local, n, remote, rkey, lkey, add=0):
        """Executes a request and returns the status of its completion."""
        piece = Piece(local, n, lkey)
        w = Request(list=c.pointer(piece), pieces=1, opcode=opcode, flags=2, remote=remote)
        w.key_or_add, w.atomic_key = (add, rkey) if opcode == ADD else (rkey, 0)
        bad = c.c_void_p()
        check(self.a.post(self.qp, c.addressof(w), c.addressof(bad)) == 0, "ibv_post_send")
        done = Completion()
        end = time.monotonic() + 60
        while (got := self.a.poll(self.cq, 1, c.addressof(done))) == 0:
            if time.monotonic() > end:
                fail("no completion within 60 s")
        if got < 0:
            fail("ibv_poll_cq")
        return done.status


class Memory:
    """A dma-buf of some bytes that the CPU sees at view."""

    def __init__(self, spec, size):
        kind, _, path = spec.partition(":")
        self.size = (size + 4095) & ~4095
        self.files = []
        try:
            ways = {"heap": self.heap, "udmabuf": self.udmabuf, "drm": self.drm, "vfio": self.vfio}
            ways.get(kind, self.unknown)(path)
        except BaseException:
            self.close()
            raise
        self.addr = c.addressof(c.c_char.from_buffer(self.view))

    def close(self):
        """Gives a GPU of vfio-pci back, which only one program at a time can have."""
        if self.files and hasattr(self, "view"):
            self.view.close()
        for file in reversed(self.files):
            os.close(file)
        self.files = []

    def unknown(self, _):
        print(__doc__)
        sys.exit(2)

    def heap(self, _):
        heap = os.open("/dev/dma_heap/system", os.O_RDWR)
        r = fcntl.ioctl(heap, 0xC0184800, struct.pack("QIIQ", self.size, 0, os.O_RDWR | os.O_CLOEXEC, 0))
        self.fd = struct.unpack("QIIQ", r)[1]
        self.view = mmap.mmap(self.fd, self.size)

    def udmabuf(self, _):
        file = os.memfd_create("dmabuf", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, self.size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        device = os.open("/dev/udmabuf", os.O_RDWR)
        # With a bytearray, ioctl returns its number, which is the dma-buf.
        self.fd = fcntl.ioctl(device, 0x40187542, bytearray(struct.pack("IIQQ", file, 1, 0, self.size)))
        self.view = mmap.mmap(file, self.size)

    def drm(self, path):
        step = f"open {path}"
        try:
            card = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            # memory of the host, which can be mapped and shared
            step = "VIRTGPU_RESOURCE_CREATE_BLOB"
            blob = struct.pack("IIIIQIIQQ", 2, 1 | 2, 0, 0, self.size, 0, 0, 0, 0)
            handle = struct.unpack("IIIIQIIQQ", fcntl.ioctl(card, 0xC030644A, blob))[2]
            step = "PRIME_HANDLE_TO_FD"
            r = fcntl.ioctl(card, 0xC00C642D, struct.pack("IIi", handle, os.O_RDWR | os.O_CLOEXEC, 0))
            self.fd = struct.unpack("IIi", r)[2]
            step = "VIRTGPU_MAP"
            at = struct.unpack("QII", fcntl.ioctl(card, 0xC0106441, struct.pack("QII", 0, handle, 0)))[0]
            step = "mmap of the GPU's memory"
            self.view = mmap.mmap(card, self.size, offset=at)
        except OSError as e:
            fail(f"{step}: {e.strerror} ({e.errno})")


    def vfio(self, address):
        step = f"open {address}"

        def opened(path):
            nonlocal step
            step = f"open {path}"
            self.files.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
            return self.files[-1]

        try:
            link = os.readlink(f"/sys/bus/pci/devices/{address}/iommu_group")
            container, group = opened("/dev/vfio/vfio"), opened("/dev/vfio/" + os.path.basename(link))
            step = "VFIO_GROUP_SET_CONTAINER"
            fcntl.ioctl(group, 0x3B68, struct.pack("i", container))
            step = "VFIO_SET_IOMMU"
            fcntl.ioctl(container, 0x3B66, 3)
            step = "VFIO_GROUP_GET_DEVICE_FD"
            device = fcntl.ioctl(group, 0x3B6A, bytearray(address.encode() + b"\0"))
            self.files.append(device)
            step = "VFIO_DEVICE_GET_REGION_INFO"
            info = [struct.unpack("IIIIQQ", fcntl.ioctl(device, 0x3B6C, struct.pack("IIIIQQ", 32, 0, i, 0, 0, 0)))
                    for i in (VRAM_BAR, CONFIG_SPACE)]
            step = "enable the memory"
            at = info[1][5] + 4
            os.pwrite(device, struct.pack("H", struct.unpack("H", os.pread(device, 2, at))[0] | 2), at)
            step = "mmap of the GPU's memory"
            self.view = mmap.mmap(device, self.size, offset=info[0][5])
            step = "VFIO_DEVICE_FEATURE_DMA_BUF"
            ask = struct.pack("IIIIIIQQ", 40, 1 << 16 | 11, VRAM_BAR, os.O_RDWR | os.O_CLOEXEC, 0, 1, 0, self.size)
            self.fd = fcntl.ioctl(device, 0x3B75, bytearray(ask))
            self.files.append(self.fd)
        except OSError as e:
            raise Failed(f"{step}: {e.strerror} ({e.errno})", e.errno) from e


class Host:
    """Ordinary memory of this process."""

    def __init__(self, size):
        self.view = mmap.mmap(-1, size)
        self.addr = c.addressof(c.c_char.from_buffer(self.view))


def offsets(size, n):
    """Returns the places that are tried: both ends, the middle, and both sides of 256 MiB."""
    places = {0, (size - n) // 2 & ~4095, size - n}
    if size > 256 * MIB + n:
        places |= {256 * MIB - n // 2, 256 * MIB}
    return sorted(places)


@functools.lru_cache(maxsize=4)
def pattern(i, n):
    return random.Random(i).randbytes(n)


def exercise(adapter, queue, size, rkey, base):
    """Writes to the memory and reads it back. Its owner can then expect the pattern of each place, and an addition."""
    n = min(MIB, size)
    host = Host(2 * n)
    r = adapter.register(host.addr, 2 * n)
    for i, at in enumerate(offsets(size, n)):
        host.view[:n] = pattern(i, n)
        for opcode, o in (WRITE, 0), (READ, n):
            st = queue.do(opcode, host.addr + o, n, base + at, rkey, r.lkey)
            if st != SUCCESS:
                fail(f"{'write' if opcode == WRITE else 'read'} at {at}: status {st}")
        if host.view[:n] != host.view[n:]:
            fail(f"at {at} RDMA reads other bytes than it wrote")
    old = host.view[n - 8:n]
    if queue.do(ADD, host.addr, 8, base + size - 8, rkey, r.lkey, add=5) != SUCCESS or host.view[:8] != old:
        fail("fetch and add")
    print(f"RDMA reads what it wrote at {len(offsets(size, n))} places of {size} bytes")
    return host, r


def examine(memory):
    """Compares the memory with the pattern, by the CPU."""
    n = min(MIB, memory.size)
    places = offsets(memory.size, n)
    for i, at in enumerate(places):
        want = pattern(i, n)
        if i == len(places) - 1:
            want = want[:-8] + struct.pack("<Q", struct.unpack("<Q", want[-8:])[0] + 5 & (1 << 64) - 1)
        end = n
        if i + 1 < len(places):
            end = min(n, places[i + 1] - at)
        if memory.view[at:at + end] != want[:end]:
            fail(f"the CPU sees other bytes at {at}")
    print("the CPU sees what RDMA wrote")


def loop(spec, size=4 * MIB):
    memory = Memory(spec, int(size))
    a = Adapter()
    start = time.monotonic()
    mr = a.register_dmabuf(memory)
    print(f"ibv_reg_dmabuf_mr: {memory.size} bytes in {1e3 * (time.monotonic() - start):.1f} ms")
    q, p = a.queue(), a.queue()
    q.connect(p.num, a.gid)
    p.connect(q.num, a.gid)
    host, r = exercise(a, q, memory.size, mr.rkey, mr.addr)
    examine(memory)

    # The other way round: the dma-buf is the local memory, and a part of it a region of its own.
    part = a.register_dmabuf(memory, memory.size - 4096, 4096, LOCAL_WRITE)
    host.view[:4096] = pattern(99, 4096)
    if q.do(READ, part.addr, 4096, host.addr, r.rkey, part.lkey) != SUCCESS or \
            memory.view[-4096:] != host.view[:4096]:
        fail("a read into a part of the memory")
    for what, opcode, addr in ("rights that were not given", WRITE, part.addr), ("a range outside", READ, BASE):
        if (st := q.do(opcode, host.addr, 4096, addr, part.rkey, r.lkey)) != REMOTE_ACCESS:
            fail(f"{what}: status {st}")
        q.again()
        p.again()
    part.close()

    # A region that has ended grants nothing, although the memory is still there.
    mr.close()
    was = memory.view[:4096]
    host.view[:4096] = pattern(100, 4096)
    st = q.do(WRITE, host.addr, 4096, mr.addr, mr.rkey, r.lkey)
    if st != REMOTE_ACCESS or memory.view[:4096] != was:
        fail(f"a write after ibv_dereg_mr: status {st}")
    print("after ibv_dereg_mr a write ends with a remote access error")
    print("OK")


def serve(spec, size=4 * MIB):
    memory = Memory(spec, int(size))
    a = Adapter()
    mr = a.register_dmabuf(memory)
    q = a.queue()
    listener = socket.create_server(("", PORT))
    print("serving", flush=True)
    s, _ = listener.accept()
    s.sendall(struct.pack("!I16sIQQ", q.num, a.gid, mr.rkey, mr.addr, memory.size))
    num, gid = struct.unpack("!I16s", s.recv(20, socket.MSG_WAITALL))
    q.connect(num, gid)
    s.sendall(b"r")
    if s.recv(1) != b"d":
        fail("the client has failed")
    examine(memory)
    print("OK")


def connect(address):
    """Connects to a server, which may not listen yet."""
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((address, PORT), 30)
        except OSError as e:
            if time.monotonic() > end:
                fail(f"no connection to {address}: {e}")
            time.sleep(0.2)


def client(address):
    a = Adapter()
    q = a.queue()
    s = connect(address)
    num, gid, rkey, base, size = struct.unpack("!I16sIQQ", s.recv(40, socket.MSG_WAITALL))
    q.connect(num, gid)
    s.sendall(struct.pack("!I16s", q.num, a.gid))
    s.recv(1)
    exercise(a, q, size, rkey, base)
    s.sendall(b"d")
    print("OK")


def rereg():
    a = Adapter()
    q, p = a.queue(), a.queue()
    q.connect(p.num, a.gid)
    p.connect(q.num, a.gid)
    n = 8 * MIB
    one, two, host = Host(n), Host(n), Host(4096)
    mr, r = a.register(one.addr, n), a.register(host.addr, 4096)

    def change(flags, addr=0, size=0, pd=0, access=0):
        err = verbs.ibv_rereg_mr(c.c_void_p(mr.mr), flags, c.c_void_p(pd), c.c_void_p(addr), c.c_size_t(size), access)
        check(err == 0, f"ibv_rereg_mr with {flags}: {err}")
        mr.keys()
        mr.addr = addr or mr.addr

    def expect(what, status, opcode, memory, at):
        host.view[:] = pattern(at, 4096)
        was = memory.view[at:at + 4096]
        st = q.do(opcode, host.addr, 4096, memory.addr + at, mr.rkey, r.lkey)
        if st != status:
            fail(f"{what}: status {st}, not {status}")
        if status == SUCCESS and memory.view[at:at + 4096] != host.view[:]:
            fail(f"{what}: other bytes")
        if status != SUCCESS:
            if memory.view[at:at + 4096] != was:
                fail(f"{what}: the memory has changed")
            q.again()
            p.again()
        print(f"{what}: status {st}")

    expect("before", SUCCESS, WRITE, one, n - 4096)
    change(TRANSLATION, two.addr, n)
    expect("another address", SUCCESS, WRITE, two, n - 4096)
    expect("the old address", REMOTE_ACCESS, WRITE, one, 0)
    change(TRANSLATION, one.addr, 4096)
    expect("a shorter region", SUCCESS, WRITE, one, 0)
    expect("after its end", REMOTE_ACCESS, READ, one, 4096)
    change(TRANSLATION, two.addr, n)
    change(ACCESS, access=LOCAL_WRITE | REMOTE_READ)
    expect("a write without the right", REMOTE_ACCESS, WRITE, two, 8192)
    expect("a read with the right", SUCCESS, READ, two, 8192)
    change(ACCESS, access=ALL)
    expect("a write with the right again", SUCCESS, WRITE, two, 8192)
    other = a.domain()
    change(DOMAIN, pd=other)
    expect("another domain", REMOTE_ACCESS, WRITE, two, 8192)
    change(DOMAIN | TRANSLATION | ACCESS, one.addr, n, a.pd, ALL)
    expect("all three", SUCCESS, WRITE, one, 4 * MIB)
    print("OK")


def measure(size, times=50):
    a = Adapter()
    host = Host(int(size))
    host.view[::4096] = bytes(len(host.view[::4096]))  # the pages are there, and not part of the time
    reg, dereg = [], []
    for _ in range(int(times) + 5):
        start = time.monotonic_ns()
        r = a.register(host.addr, int(size))
        middle = time.monotonic_ns()
        r.close()
        reg.append(middle - start)
        dereg.append(time.monotonic_ns() - middle)
    for what, all in ("ibv_reg_mr", reg[5:]), ("ibv_dereg_mr", dereg[5:]):
        q = statistics.quantiles(all, n=10)
        print(f"{what} of {size} bytes: median {statistics.median(all) / 1e3:.1f} us, 10th {q[0] / 1e3:.1f}, "
              f"90th {q[-1] / 1e3:.1f}, of {len(all)}")


class KernelLog:
    """The messages of the kernel from a moment on, or all."""

    def __init__(self, since=os.SEEK_END):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, since)

    def lines(self, patience):
        """Returns the messages, and waits for the first: a driver logs an answer of its device when it comes."""
        lines = []
        end = time.monotonic() + patience
        while True:
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                if lines or time.monotonic() > end:
                    return lines
                time.sleep(0.05)
                continue
            except BrokenPipeError:  # messages were overwritten before they were read
                continue
            lines.append(record.partition(";")[2].split("\n")[0])


def refusals(gpu, device):
    """Returns the messages by which the kernel refused DMA between a GPU and an adapter. It logs each refusal once."""
    names = [os.path.basename(os.path.realpath(d)) for d in (gpu, device + "/device")]
    return [line for line in KernelLog(os.SEEK_SET).lines(patience=0)
            if "peer-to-peer DMA" in line and all(name in line for name in names)]


def pci(device):
    """Describes a PCI function by its directory in sysfs: its place in the tree, and where its regions begin."""
    path = os.path.realpath(device)
    with open(path + "/resource") as f:
        regions = [start for start in (int(line.split()[0], 0) for line in f) if start]
    with open(path + "/numa_node") as f:
        return {"path": path, "numa_node": int(f.read()), "regions": regions}


def gpus():
    """Returns the emulated GPUs in the order of their addresses: 3D controllers of rackless' subsystem vendor."""
    found = []
    for d in sorted(glob.glob("/sys/bus/pci/devices/*")):
        if (text(d + "/subsystem_vendor"), text(d + "/class")) == ("0x1af4", "0x030200"):
            found.append(d)
    return found


def is_virtio(gpu):
    return (text(gpu + "/vendor"), text(gpu + "/device")) == ("0x1af4", "0x1050")


def text(path):
    with open(path) as f:
        return f.read().strip()


def word(path):
    with open(path) as f:
        return int(f.read())


class Move:
    """Bytes between a GPU and an adapter, by RDMA of the adapter to itself."""

    def __init__(self, gpu, name, opened, size):
        self.gpu, self.name, self.opened, self.size = gpu, name, opened, size
        self.step = "allocate"

    def memory(self):
        if not is_virtio(self.gpu):
            driver = os.path.basename(os.path.realpath(self.gpu + "/driver"))
            if driver != "vfio-pci":
                raise Failed("the GPU has no driver: vfio-pci has not taken it", errno.ENODEV)
            return Memory("vfio:" + os.path.basename(self.gpu), self.size)
        node = glob.glob(self.gpu + "/drm/renderD*")
        if not node:
            raise Failed("the GPU has no driver: it has no render node in /sys/class/drm", errno.ENODEV)
        return Memory("drm:/dev/dri/" + os.path.basename(node[0]), self.size)

    def run(self):
        memory = self.memory()
        try:
            self.move(memory)
        finally:
            memory.close()

    def move(self, memory):
        self.step = "open"
        if self.name not in self.opened:
            self.opened[self.name] = Adapter(self.name)
        a = self.opened[self.name]
        host = Host(memory.size)
        r = a.register(host.addr, memory.size)
        self.step = "register"
        mr = a.register_dmabuf(memory)
        self.step = "connect"
        q, p = a.queue(), a.queue()
        q.connect(p.num, a.gid)
        p.connect(q.num, a.gid)
        self.step = "write"
        host.view[:] = pattern(1, memory.size)
        self.each(q, WRITE, host, memory, mr, r)
        self.step = "compare"
        if memory.view[:] != host.view[:]:
            raise Failed("the memory of the GPU holds other bytes than RDMA wrote")
        self.step = "read"
        memory.view[:] = pattern(2, memory.size)
        self.each(q, READ, host, memory, mr, r)
        self.step = "compare"
        if host.view[:] != pattern(2, memory.size):
            raise Failed("RDMA read other bytes than the memory of the GPU holds")
        mr.close()
        r.close()
        self.step = ""

    def each(self, q, opcode, host, memory, mr, r):
        verbs.ibv_wc_status_str.restype = c.c_char_p
        for at in range(0, memory.size, MIB):
            n = min(MIB, memory.size - at)
            status = q.do(opcode, host.addr + at, n, mr.addr + at, mr.rkey, r.lkey)
            if status != SUCCESS:
                raise Failed(f"at {at} the request ended with {verbs.ibv_wc_status_str(status).decode()} ({status})")


def pairs(size):
    opened = {}
    devices = sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []
    for number, gpu in enumerate(gpus()):
        for name in devices:
            device = "/sys/class/infiniband/" + name
            port = device + "/ports/1/counters/"
            out = {"gpu": number, "address": os.path.basename(gpu), "gpu_pci": pci(gpu), "device": name,
                   "nic_pci": pci(device + "/device"), "bytes": int(size)}
            log, before = KernelLog(), [word(port + "port_rcv_data"), word(port + "port_xmit_data")]
            start, move = time.monotonic(), Move(gpu, name, opened, int(size))
            try:
                move.run()
            except (Failed, OSError) as e:
                number_of_error = getattr(e, "number", 0) or getattr(e, "errno", 0) or 0
                said = log.lines(patience=2)
                if move.step == "register":
                    said += [line for line in refusals(gpu, device) if line not in said]
                out |= {"step": move.step, "error": str(e), "errno": errno.errorcode.get(number_of_error, ""),
                        "kernel": said}
            out["seconds"] = round(time.monotonic() - start, 3)
            # The counters are in words of four bytes.
            out["received"] = 4 * (word(port + "port_rcv_data") - before[0])
            out["sent"] = 4 * (word(port + "port_xmit_data") - before[1])
            print(json.dumps(out), flush=True)
    print(json.dumps({"end": True, "gpus": len(gpus()), "devices": devices}))


def hold(number):
    gpu = gpus()[int(number)]
    with open(gpu + "/resource") as f:
        regions = [[int(word, 0) for word in line.split()] for line in f]
    size = total = max(end - start + 1 for start, end, _ in regions)
    held, refused = [], False
    if is_virtio(gpu):
        node = "drm:/dev/dri/" + os.path.basename(glob.glob(gpu + "/drm/renderD*")[0])
    else:
        held.append(Memory("vfio:" + os.path.basename(gpu), total))
    while size >= 64 << 10 and sum(m.size for m in held) < total:
        try:
            held.append(Memory(node, size))
        except OSError:
            refused = True
        size //= 2
    if refused:
        time.sleep(6)  # the kernel logs ten refusals in 5 s, and the next one must be logged
    print(f"holding {sum(m.size for m in held)} bytes of GPU {number}", flush=True)
    signal.pause()


commands = {"pairs": pairs, "hold": hold, "loop": loop, "serve": serve, "client": client, "rereg": rereg, "time": measure}
if len(sys.argv) < 2 or sys.argv[1] not in commands:
    print(__doc__)
    sys.exit(2)
try:
    commands[sys.argv[1]](*sys.argv[2:])
except Failed as fault:
    print(f"FAILED: {fault}")
    sys.exit(1)
