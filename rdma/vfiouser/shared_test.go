package vfiouser

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

type memoryDevice struct {
	testDevice
	ram []byte
}

func (d *memoryDevice) Read(region int, off uint64, p []byte) {
	if region == 2 {
		copy(p, d.ram[off:])
	}
}

func (d *memoryDevice) Write(region int, off uint64, p []byte) {
	if region == 2 {
		copy(d.ram[off:], p)
	}
}

func serveMemory(t *testing.T, size int) (*memoryDevice, *client) {
	t.Helper()
	d := &memoryDevice{}
	fd := memfd(t, int64(size))
	var err error
	if d.ram, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(d.ram) })
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(Config{Path: path, BAR0: 0x1000, Maps: new(sync.RWMutex),
		Shared: map[int]Shared{2: {Size: uint64(size), FD: fd}}}, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return d, dial(t, path)
}

func (c *client) callForFile(cmd uint16, p []byte) (reply []byte, fd int) {
	c.t.Helper()
	c.send(cmd, 0, p)
	b, oob := make([]byte, 256), make([]byte, unix.CmsgSpace(8))
	n, k, _, _, err := unix.Recvmsg(c.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n < headerSize || int(le.Uint32(b[4:])) != n {
		c.t.Fatalf("%d bytes, %v", n, err)
	}
	fd = -1
	msgs, err := unix.ParseSocketControlMessage(oob[:k])
	for i := range msgs {
		if fds, _ := unix.ParseUnixRights(&msgs[i]); len(fds) > 0 {
			fd = fds[0]
		}
	}
	if err != nil || len(msgs) > 1 {
		c.t.Fatalf("control messages %v, %v", msgs, err)
	}
	return b[headerSize:n], fd
}

func TestABARIsMemoryOfAFile(t *testing.T) {
	const size = 1 << 20
	d, c := serveMemory(t, size)
	for _, x := range []struct {
		region uint32
		size   uint64
		flags  uint32
	}{{0, 0x1000, 3}, {1, 0, 0}, {2, size, 7}, {3, 0, 0}, {RegionConfig, 4096, 3}, {8, 0, 0}} {
		p, fd := c.callForFile(cmdRegionInfo, append(words(32, 0, x.region, 0), make([]byte, 16)...))
		if le.Uint64(p[16:]) != x.size || le.Uint32(p[4:]) != x.flags || le.Uint64(p[24:]) != 0 {
			t.Errorf("region %d: %x", x.region, p)
		}
		if (fd >= 0) != (x.region == 2) {
			t.Fatalf("region %d comes with file %d", x.region, fd)
		}
		if fd < 0 {
			continue
		}
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		_ = unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(m)
		m[size-1] = 0x5a
	}
	if p, fd := c.callForFile(cmdRegionInfo, append(words(32, 0, 9, 0), make([]byte, 16)...)); len(p) > 0 || fd >= 0 {
		t.Errorf("a region that does not exist: %x, file %d", p, fd)
	}
	if p, errno := c.call(cmdRegionRead, append(quads(size-2), words(2, 2)...)); errno != 0 ||
		!bytes.Equal(p[16:], []byte{0, 0x5a}) {
		t.Errorf("read: %v %x", errno, p)
	}
	if _, errno := c.call(cmdRegionWrite, region(8, 2, []byte("text"))); errno != 0 ||
		!bytes.Equal(d.ram[8:12], []byte("text")) {
		t.Errorf("write: %v, %x", errno, d.ram[:16])
	}
	for _, off := range []uint64{size - 1, size, ^uint64(0)} {
		if _, errno := c.call(cmdRegionWrite, region(off, 2, []byte("text"))); errno != unix.EINVAL {
			t.Errorf("a write at %#x: %v", off, errno)
		}
	}
}

func TestSomeBARsCannotBeFiles(t *testing.T) {
	for _, bar := range []int{-1, RegionBAR0, lastBAR + 1, RegionConfig} {
		path := filepath.Join(t.TempDir(), "s")
		s, err := Listen(Config{Path: path, Maps: new(sync.RWMutex), Shared: map[int]Shared{bar: {Size: 4096}}}, nil)
		if err == nil {
			_ = s.Close()
			t.Errorf("BAR %d is accepted", bar)
		}
	}
}

func TestMemoryOfAPeer(t *testing.T) {
	vram := make([]byte, 0x4000)
	m := Memory{lock: new(sync.RWMutex), peer: func(addr, size uint64) []byte {
		if addr < 0x100000 || addr-0x100000 > uint64(len(vram)) || size > uint64(len(vram))-(addr-0x100000) {
			return nil
		}
		return vram[addr-0x100000:][:size]
	}}
	fd := memfd(t, 0x1000)
	for _, x := range []struct {
		fd         int
		addr, size uint64
		writable   bool
	}{{-1, 0x101000, 0x3000, true}, {fd, 0x100000, 0x1000, true}, {-1, 0x104000, 0x1000, true},
		{-1, 0x10000, 0x1000, true}} {
		if err := m.Map(x.fd, 0, x.addr, x.size, x.writable); err != nil {
			t.Fatal(err)
		}
	}
	m.lock.RLock()
	if b := m.Slice(0x102000, 0x1000); b == nil || &b[0] != &vram[0x2000] {
		t.Error("the memory of the peer is not found")
	}
	if m.Slice(0x103fff, 2) != nil || m.Slice(0x104000, 1) != nil || m.Slice(0x10000, 1) != nil {
		t.Error("memory is found that is not the peer's")
	}
	if m.Write(0x100000, []byte{1}); vram[0] != 0 {
		t.Error("memory with a file is the peer's")
	}
	if !m.Write(0x101000, []byte{7}) || vram[0x1000] != 7 {
		t.Error("a write does not reach the peer")
	}
	for addr, want := range map[uint64]bool{0x100000: false, 0x101000: true, 0x103fff: true, 0x104000: false,
		0x10000: false, 0x200000: false} {
		if m.OfPeer(addr) != want || !m.HasPeers() {
			t.Errorf("%#x is memory of the peer: %v", addr, !want)
		}
	}
	m.lock.RUnlock()
	if !m.remove(0x101000, 0x3000, false) {
		t.Error("the mapping cannot be removed")
	}
	if m.HasPeers() {
		t.Error("there is memory of a peer after its mapping was removed")
	}
	if err := m.Map(-1, 0, 0x101000, 0x1000, false); err != nil {
		t.Fatal(err)
	}
	m.lock.RLock()
	defer m.lock.RUnlock()
	if b := make([]byte, 1); m.Write(0x101000, []byte{8}) || !m.Read(0x101000, b) || b[0] != 7 {
		t.Errorf("memory of a peer that can only be read: %d", b[0])
	}
}

// Accesses to withdrawn memory fail. None may be passed on as a message, which would reach it.
func TestAPeerWithdrawsItsMemory(t *testing.T) {
	vram := make([]byte, 0x2000)
	gone := true
	m := Memory{lock: new(sync.RWMutex), peer: func(addr, size uint64) []byte {
		switch {
		case addr < 0x100000 || addr >= 0x102000:
			return nil
		case gone:
			return []byte{}
		}
		return vram[addr-0x100000:][:size]
	}, remote: func(_ bool, addr uint64, _ []byte) bool {
		if addr != 0x10000 {
			t.Errorf("a message for %#x", addr)
		}
		return true
	}}
	fd := memfd(t, 0x1000)
	mapAt := func(fd int, addr, size uint64) error { return m.Map(fd, 0, addr, size, true) }
	if err := errors.Join(mapAt(-1, 0x100000, 0x1000), mapAt(-1, 0x10000, 0x1000), mapAt(fd, 0, 0x1000),
		mapAt(-1, 0x101000, 0x1000)); err != nil {
		t.Fatal(err)
	}
	reached := func() bool {
		m.lock.RLock()
		defer m.lock.RUnlock()
		b := make([]byte, 1)
		if !m.Read(0x10000, b) || m.Slice(0, 0x1000) == nil {
			t.Error("other memory is withdrawn, too")
		}
		all := []bool{m.Slice(0x100000, 1) != nil, m.Slice(0x101fff, 1) != nil, m.Has(0x100000, 1), m.Read(0x100000, b),
			m.Write(0x101000, b)}
		if slices.Contains(all, !all[0]) {
			t.Errorf("the memory is there in part: %v", all)
		}
		return all[0]
	}
	for _, gone = range []bool{true, false, true, true, false} {
		before := m.Gen()
		m.AskPeers()
		if reached() == gone || m.Gen() == before {
			t.Errorf("withdrawn %v: reached %v", gone, !gone)
		}
	}
	gone = true
	m.AskPeers()
	if mapAt(fd, 0x101000, 0x1000) == nil {
		t.Error("a mapping takes the place of withdrawn memory")
	}
	if m.remove(0x100800, 0x1000, false) {
		t.Error("a part of a withdrawn mapping is removed")
	}
	if !m.remove(0x100000, 0x2000, false) {
		t.Error("a withdrawn mapping cannot be removed")
	}
	gone = false
	if m.AskPeers(); reached() {
		t.Error("a removed mapping is there again")
	}
}

// A client with an IOMMU maps page by page, and more pages than a table holds.
func TestADeviceWithoutDMAKeepsNoMemory(t *testing.T) {
	d := &testDevice{}
	path := filepath.Join(t.TempDir(), "s")
	s, err := Listen(Config{Path: path, BAR0: 0x1000, Maps: new(sync.RWMutex), NoDMA: true}, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, fd := dial(t, path), memfd(t, 0x1000)
	for i := range uint64(3) {
		for _, fds := range [][]int{{fd}, nil} {
			if _, errno := c.call(cmdDMAMap, quads(mapReadWrite|32, 0, i*0x1000, 0x1000), fds...); errno != 0 {
				t.Errorf("map: %v", errno)
			}
		}
	}
	if _, errno := c.call(cmdDMAUnmap, quads(24, 0, 0x1000)); errno != 0 {
		t.Errorf("unmap: %v", errno)
	}
	if s.Mem.Has(0, 1) || s.Mem.Has(0x1000, 1) || s.Mem.Gen() != 0 {
		t.Error("it has memory")
	}
}
