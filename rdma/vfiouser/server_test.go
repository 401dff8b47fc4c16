package vfiouser

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A testDevice accesses client memory when its first byte is written.
type testDevice struct {
	mu  sync.Mutex
	log []string
	bar [0x1000]byte
	s   *Server

	panics bool // writes of 0xee panic
	locks  *sync.Mutex
	waits  chan struct{} // before a write takes the lock
}

func (d *testDevice) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, s)
}

func (d *testDevice) told() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.log, " ")
}

func (d *testDevice) Connected()    { d.note("connected") }
func (d *testDevice) Disconnected() { d.note("disconnected") }
func (d *testDevice) Reset()        { d.note("reset") }

func (d *testDevice) Read(region int, off uint64, p []byte) {
	if region == RegionBAR0 {
		copy(p, d.bar[off:])
	}
}

func (d *testDevice) ReadNow(region int, off uint64, p []byte) bool {
	d.Read(region, off, p)
	return true
}

func (d *testDevice) Write(region int, off uint64, p []byte) {
	if region != RegionBAR0 {
		return
	}
	d.mu.Lock()
	lock := d.locks
	d.mu.Unlock()
	if lock != nil {
		d.waits <- struct{}{}
		lock.Lock()
		defer lock.Unlock()
	}
	copy(d.bar[off:], p)
	if off == 0 && p[0] == 0xee && d.panics {
		panic("an error of the device")
	}
	if off == 0 && p[0] == 0xd0 {
		d.note("")
		d.s.Mem.lock.RLock()
		defer d.s.Mem.lock.RUnlock()
		b := make([]byte, 5)
		if d.s.Mem.Read(0x100000, b) {
			d.note(string(b))
		}
		d.s.Mem.Write(0x100010, []byte("back"))
	}
}

type client struct {
	t  testing.TB
	fd int
	id uint16
}

func serve(t testing.TB) (*testDevice, *client) {
	d := &testDevice{}
	path := filepath.Join(t.TempDir(), "s")
	said := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if !strings.Contains(text, "panic: ") {
			return
		}
		if d.note(text); !d.panics {
			panic(text)
		}
	}
	s, err := Listen(Config{Path: path, BAR0: 0x1000, Vectors: 4, Maps: new(sync.RWMutex), Log: said}, d)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.s = s
	d.mu.Unlock()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, dial(t, path)
}

func dial(t testing.TB, path string) *client {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	tv := unix.NsecToTimeval(int64(5 * time.Second))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	return &client{t: t, fd: fd}
}

func (c *client) send(cmd uint16, flags uint32, p []byte, fds ...int) {
	c.id++
	m := make([]byte, headerSize, headerSize+len(p))
	le.PutUint16(m, c.id)
	le.PutUint16(m[2:], cmd)
	le.PutUint32(m[4:], uint32(headerSize+len(p)))
	le.PutUint32(m[8:], flags)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(c.fd, append(m, p...), oob, nil, unix.MSG_NOSIGNAL); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) recv() []byte {
	c.t.Helper()
	b := make([]byte, headerSize)
	for n := 0; n < len(b); {
		k, err := unix.Read(c.fd, b[n:])
		if err == unix.EINTR { // also after a signal of Go's scheduler
			continue
		}
		if err != nil || k == 0 {
			c.t.Fatalf("read: %d, %v", k, err)
		}
		if n += k; n >= headerSize {
			if want := int(le.Uint32(b[4:])); want > len(b) {
				b = append(b, make([]byte, want-len(b))...)
			}
		}
	}
	return b
}

func (c *client) call(cmd uint16, p []byte, fds ...int) ([]byte, unix.Errno) {
	c.t.Helper()
	c.send(cmd, 0, p, fds...)
	r := c.recv()
	if le.Uint16(r) != c.id || le.Uint32(r[8:])&0xf != flagReply {
		c.t.Fatalf("reply %x", r)
	}
	return r[headerSize:], unix.Errno(le.Uint32(r[12:]))
}

func quads(v ...uint64) (b []byte) {
	for _, x := range v {
		b = le.AppendUint64(b, x)
	}
	return b
}

func memfd(t testing.TB, n int64) int {
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, n)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

const mapReadWrite = uint64(3) << 32

func region(off uint64, region uint32, data []byte) []byte {
	return append(append(quads(off), words(region, uint32(len(data)))...), data...)
}

func TestProtocol(t *testing.T) {
	d, c := serve(t)
	v, errno := c.call(cmdVersion, append([]byte{0, 0, 0, 0}, "{}\x00"...))
	if errno != 0 || !strings.HasSuffix(string(v), "}\x00") || !strings.Contains(string(v), `"write_multiple":true`) {
		t.Errorf("version: %v %q", errno, v)
	}
	if _, errno := c.call(cmdVersion, []byte{9, 0, 0, 0}); errno != unix.ENOTSUP {
		t.Errorf("version 9: %v", errno)
	}
	if p, _ := c.call(cmdDeviceInfo, make([]byte, 16)); le.Uint32(p[8:]) != 9 || le.Uint32(p[12:]) != 5 {
		t.Errorf("device info: %x", p)
	}
	if p, _ := c.call(cmdRegionInfo, append(words(32, 0, 0, 0), make([]byte, 16)...)); le.Uint64(p[16:]) != 0x1000 {
		t.Errorf("BAR 0: %x", p)
	}
	if p, _ := c.call(cmdIRQInfo, words(16, 0, irqMSIX, 0)); le.Uint32(p[12:]) != 4 {
		t.Errorf("MSI-X: %x", p)
	}
	c.send(cmdRegionWrite, flagNoRply, region(0x10, 0, []byte{1, 2, 3, 4}))
	batch := append(quads(2), append(region(0x14, 0, make([]byte, 8)), region(0x18, 0, make([]byte, 8))...)...)
	batch[8+12], batch[8+16] = 1, 5
	batch[8+24+12], batch[8+24+16] = 2, 9
	c.send(cmdWriteMulti, flagNoRply, batch)
	if p, errno := c.call(cmdRegionRead, append(quads(0x10), words(0, 12)...)); errno != 0 ||
		!bytes.Equal(p[16:], []byte{1, 2, 3, 4, 5, 0, 0, 0, 9, 0, 0, 0}) {
		t.Errorf("read: %v %x", errno, p)
	}
	for name, p := range map[string][]byte{"beyond the end": append(quads(0xff8), words(0, 9)...),
		"of no bytes": append(quads(0), words(0, 0)...), "of a region that is not there": append(quads(0),
			words(3, 4)...),
		"at an offset that wraps": append(quads(^uint64(0)), words(0, 4)...)} {
		if _, errno := c.call(cmdRegionRead, p); errno != unix.EINVAL {
			t.Errorf("a read %s: %v", name, errno)
		}
	}
	for _, cmd := range []uint16{0, cmdRegionFDs, cmdDMARead, cmdDirtyPages, 99} {
		if _, errno := c.call(cmd, make([]byte, 32)); errno != unix.ENOTSUP {
			t.Errorf("command %d: %v", cmd, errno)
		}
	}
	if _, errno := c.call(cmdDMAMap, make([]byte, 8)); errno != unix.EINVAL {
		t.Errorf("a short message: %v", errno)
	}
	c.call(cmdReset, nil)
	if got := d.told(); got != "connected reset" {
		t.Errorf("the device was told %q", got)
	}
}

func TestInterrupts(t *testing.T) {
	d, c := serve(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, errno := c.call(cmdSetIRQs, words(20, 4|0x20, irqMSIX, 1, 1), fd); errno != 0 {
		t.Fatal(errno)
	}
	d.s.Interrupt(0)
	d.s.Interrupt(1)
	d.s.Interrupt(77)
	b := make([]byte, 8)
	if _, err := unix.Read(fd, b); err != nil || le.Uint64(b) != 1 {
		t.Errorf("eventfd: %v %x", err, b)
	}
	if _, errno := c.call(cmdSetIRQs, words(20, 4|0x20, irqMSIX, 3, 2), fd, fd); errno != unix.EINVAL {
		t.Errorf("vectors beyond the last: %v", errno)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, errno := c.call(cmdSetIRQs, words(20, 4|0x20, irqMSIX, 0, 1), pipe[1]); errno != unix.EINVAL {
		t.Errorf("a pipe for an interrupt: %v", errno)
	}
	c.call(cmdSetIRQs, words(20, 1|0x20, irqMSIX, 0, 0))
	d.s.Interrupt(1)
	if _, err := unix.Read(fd, b); err != unix.EAGAIN {
		t.Errorf("an interrupt after all were taken away: %v", err)
	}
}

func TestMemory(t *testing.T) {
	d, c := serve(t)
	fd := memfd(t, 0x4000)
	m := &d.s.Mem
	mapAt := func(off, addr, size uint64) unix.Errno {
		_, errno := c.call(cmdDMAMap, quads(mapReadWrite|32, off, addr, size), fd)
		return errno
	}
	for range 100 {
		if errno := mapAt(0, 0x10000, 0x2000); errno != 0 {
			t.Fatal(errno)
		}
		if _, errno := c.call(cmdDMAUnmap, quads(24, 0x10000, 0x2000)); errno != 0 {
			t.Fatal(errno)
		}
	}
	mapAt(0x1000, 0x10000, 0x1000)
	mapAt(0x3000, 0x12000, 0x1000)
	m.lock.RLock()
	n := len(m.files)
	m.lock.RUnlock()
	if n != 1 {
		t.Errorf("%d mappings of one file", n)
	}
	for _, x := range []struct {
		addr, size uint64
		want       unix.Errno
	}{{0x10800, 0x1000, unix.EINVAL}, {0xf000, 0x1001, unix.EINVAL}, {0x11000, 0x1001, unix.EINVAL},
		{0x11000, 0, unix.EINVAL}, {^uint64(0) - 1, 0x1000, unix.EINVAL}, {0x20000, 0x8000, unix.EINVAL}} {
		if errno := mapAt(0, x.addr, x.size); errno != x.want {
			t.Errorf("map %#x+%#x: %v", x.addr, x.size, errno)
		}
	}
	m.lock.RLock()
	m.Write(0x12ffc, []byte{1, 2, 3, 4})
	if v, has := m.Load32(0x12ffc); !has || v != 0x01020304 {
		t.Errorf("word %#x", v)
	}
	for _, x := range []struct {
		addr uint64
		n    int
		want bool
	}{{0x10000, 0x1000, true}, {0x10fff, 2, false}, {0x11000, 1, false}, {0xffff, 1, false}, {0x12000, 0x1000, true},
		{0x10000, -1, false}, {^uint64(0), 1, false}} {
		if got := m.Slice(x.addr, x.n) != nil; got != x.want {
			t.Errorf("slice %#x+%d: %v", x.addr, x.n, got)
		}
	}
	m.lock.RUnlock()
	for _, r := range []struct {
		addr, size uint64
		want       unix.Errno
	}{
		{0x10000, 0x100, unix.EINVAL}, {0, 0x10001, unix.EINVAL}, {0x10001, 1, unix.EINVAL}, // parts of a mapping
		{1 << 40, 1 << 40, 0}, {0, 0x10000, 0}, // nothing is mapped there
	} {
		if _, errno := c.call(cmdDMAUnmap, quads(24, r.addr, r.size)); errno != r.want {
			t.Errorf("unmap %#x+%#x: %v, want %v", r.addr, r.size, errno, r.want)
		}
	}
	c.call(cmdDMAUnmap, append(words(24, 2), quads(0, 0)...))
	m.lock.RLock()
	defer m.lock.RUnlock()
	if len(m.table) != 0 {
		t.Error("something is mapped still")
	}
}

func TestMemoryThatGrows(t *testing.T) {
	var m Memory
	m.lock = new(sync.RWMutex)
	fd := memfd(t, 0x1000)
	for n := uint64(1); n <= 3; n++ {
		if err := unix.Ftruncate(fd, int64(n*0x1000)); err != nil {
			t.Fatal(err)
		}
		if err := m.Map(fd, (n-1)*0x1000, n*0x10000, 0x1000, true); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.files) != 1 || len(m.outgrown) != 2 {
		t.Errorf("%d files and %d outgrown ones, want 1 and 2", len(m.files), len(m.outgrown))
	}
	m.clear()
	if m.files != nil || m.outgrown != nil {
		t.Error("something is mapped still")
	}
}

// TestMemoryByMessages includes a read-only file that is copy on write in the client.
func TestMemoryByMessages(t *testing.T) {
	ro, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", memfd(t, 0x1000)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ro)
	for name, fds := range map[string][]int{"without a file": nil, "copied on write": {ro}} {
		t.Run(name, func(t *testing.T) { memoryByMessages(t, fds...) })
	}
}

func memoryByMessages(t *testing.T, fds ...int) {
	d, c := serve(t)
	if _, errno := c.call(cmdDMAMap, quads(mapReadWrite|32, 0, 0x100000, 0x1000), fds...); errno != 0 {
		t.Fatal(errno)
	}
	c.send(cmdRegionWrite, 0, region(0, 0, []byte{0xd0}))
	r := c.recv()
	if len(r) != dmaData || le.Uint16(r[2:]) != cmdDMARead || le.Uint64(r[16:]) != 0x100000 || le.Uint64(r[24:]) != 5 {
		t.Fatalf("asked %x", r)
	}
	c.send(cmdRegionWrite, flagNoRply, region(8, 0, []byte{7})) // arrives in between
	c.replyDMA(r, []byte("hello"))
	r = c.recv()
	if le.Uint16(r[2:]) != cmdDMAWrite || le.Uint64(r[24:]) != 4 || string(r[dmaData:]) != "back" {
		t.Fatalf("asked %x", r)
	}
	c.replyDMA(r, nil)
	c.recv()
	if p, _ := c.call(cmdRegionRead, append(quads(8), words(0, 1)...)); p[16] != 7 || d.told() != "connected  hello" {
		t.Errorf("device memory %d, read %q", p[16], d.told())
	}
}

// dmaData is the offset of the bytes in QEMU's struct VFIOUserDMARW. It does not use the server's constant, so that the
// test notices a wrong one.
const dmaData = 32

func (c *client) replyDMA(r, data []byte) {
	m := append(append([]byte(nil), r[:dmaData]...), data...)
	le.PutUint32(m[4:], uint32(len(m)))
	le.PutUint32(m[8:], flagReply)
	if _, err := unix.Write(c.fd, m); err != nil {
		c.t.Fatal(err)
	}
}

// The server reads messages while it waits for a reply within a batch. In the same buffer they would overwrite the
// rest.
func TestABatchSurvivesTheReplyItWaitsFor(t *testing.T) {
	d, c := serve(t)
	if _, errno := c.call(cmdDMAMap, quads(mapReadWrite, 0, 0x100000, 0x1000)); errno != 0 {
		t.Fatal(errno)
	}
	// A large message, which is refused, makes the server's buffer so large that it is not replaced.
	if _, errno := c.call(cmdDirtyPages, make([]byte, 256<<10)); errno != unix.ENOTSUP {
		t.Fatal(errno)
	}
	entry := func(off uint64, v byte) []byte {
		return append(quads(off), append(words(0, 1), quads(uint64(v))...)...)
	}
	batch := append(quads(3), entry(0, 0xd0)...)
	batch = append(batch, append(entry(8, 7), entry(16, 9)...)...)
	c.send(cmdWriteMulti, flagNoRply, batch)
	r := c.recv()
	const others = 4000 // of 33 bytes: more than the server reads at a time
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range others {
			c.send(cmdRegionWrite, flagNoRply, region(24, 0, []byte{1}))
		}
		c.send(cmdDMAMap, 0, quads(mapReadWrite|32, 0, 0x200000, 0x1000), memfd(t, 0x1000))
		c.replyDMA(r, []byte("hello"))
	}()
	<-done
	c.replyDMA(c.recv(), nil)
	if r := c.recv(); le.Uint16(r[2:]) != cmdDMAMap || le.Uint32(r[8:]) != flagReply {
		t.Fatalf("instead of the answer to DMA_MAP came %x", r)
	}
	p, _ := c.call(cmdRegionRead, append(quads(0), words(0, 32)...))
	if p[16] != 0xd0 || p[16+8] != 7 || p[16+16] != 9 || p[16+24] != 1 {
		t.Errorf("registers after the batch: %x", p[16:])
	}
	d.s.Mem.lock.RLock()
	defer d.s.Mem.lock.RUnlock()
	if d.s.Mem.Slice(0x200000, 0x1000) == nil {
		t.Error("the file of a mapping that came meanwhile is lost")
	}
}

func TestReconnect(t *testing.T) {
	d, c := serve(t)
	c.call(cmdDMAMap, quads(mapReadWrite|32, 0, 0, 0x1000), memfd(t, 0x1000))
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	c = dial(t, d.s.cfg.Path)
	c.call(cmdReset, nil)
	if got := d.told(); got != "connected disconnected connected reset" {
		t.Errorf("the device was told %q", got)
	}
	d.s.Mem.lock.RLock()
	defer d.s.Mem.lock.RUnlock()
	if len(d.s.Mem.files) != 0 {
		t.Error("memory of the first client is mapped still")
	}
}

func TestPanic(t *testing.T) {
	d, c := serve(t)
	d.panics = true
	c.send(cmdRegionWrite, flagNoRply, region(0, RegionBAR0, []byte{0xee}))
	for end := time.Now().Add(5 * time.Second); !strings.HasSuffix(d.told(), " disconnected"); {
		if time.Now().After(end) {
			t.Fatalf("the device was told %q", d.told())
		}
		time.Sleep(time.Millisecond)
	}
	if said := d.told(); !strings.Contains(said, "panic: an error of the device") ||
		!strings.Contains(said, "testDevice).Write") {
		t.Errorf("the log says %q", said)
	}
	dial(t, d.s.cfg.Path).call(cmdReset, nil)
}

func FuzzMessages(f *testing.F) {
	d, first := serve(f)
	_ = unix.Shutdown(first.fd, unix.SHUT_RDWR)
	for cmd, n := range minPayload {
		m := make([]byte, headerSize+n)
		le.PutUint16(m[2:], uint16(cmd))
		le.PutUint32(m[4:], uint32(len(m)))
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dial(t, d.s.cfg.Path)
		fd := memfd(t, 4096)
		_ = unix.Sendmsg(c.fd, append(b, 0), unix.UnixRights(fd, fd), nil, unix.MSG_NOSIGNAL)
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	})
}

// FuzzHandle executes commands without a socket. Each is preceded by its length.
func FuzzHandle(f *testing.F) {
	for cmd, n := range minPayload {
		m := make([]byte, 1+headerSize+n)
		m[0] = byte(headerSize + n)
		le.PutUint16(m[3:], uint16(cmd))
		f.Add(m, true)
	}
	d := &testDevice{}
	fd := memfd(f, 1<<16)
	f.Fuzz(func(t *testing.T, b []byte, file bool) {
		s := &Server{cfg: Config{BAR0: 0x1000, Vectors: 4}, dev: d, conn: -1, calls: map[uint16]chan []byte{}}
		s.Mem.lock, s.Mem.remote, s.irqs = new(sync.RWMutex), s.remote, []int{-1, -1, -1, -1}
		d.s, d.log = s, nil
		for n := 0; len(b) > 0 && n < 32; n++ {
			l := min(max(int(b[0]), headerSize), len(b)-1)
			m := b[1 : 1+l]
			b = b[1+l:]
			if l < headerSize {
				break
			}
			s.current = message{bytes: m}
			if file {
				if c, err := unix.Dup(fd); err == nil {
					s.current.fds = append(s.current.fds, c)
				}
			}
			s.handle(m)
			s.current.close()
		}
		for i := 1; i < len(s.Mem.table); i++ {
			if a, e := s.Mem.table[i-1], s.Mem.table[i]; a.addr+a.size > e.addr {
				t.Errorf("mappings overlap: %#x+%#x, %#x", a.addr, a.size, e.addr)
			}
		}
		s.dropIRQs(0, len(s.irqs))
		s.Mem.clear()
	})
}

// A thread that waits for memory reads the reply if the connection's thread waits for its lock. It also answers reads
// of registers, because QEMU does not reply before.
func TestAReplyIsReadWhileTheDeviceWaits(t *testing.T) {
	d, c := serve(t)
	if _, errno := c.call(cmdDMAMap, quads(mapReadWrite, 0, 0x100000, 0x1000)); errno != 0 {
		t.Fatal(errno)
	}
	var lock sync.Mutex
	d.mu.Lock()
	d.locks, d.waits = &lock, make(chan struct{}, 1)
	d.mu.Unlock()
	lock.Lock()
	got := make(chan bool)
	go func() { // such as a timer's
		b := make([]byte, 5)
		d.s.Mem.lock.RLock()
		done := d.s.Mem.Read(0x100000, b)
		d.s.Mem.lock.RUnlock()
		lock.Unlock()
		got <- done && string(b) == "hello"
	}()
	r := c.recv()
	c.send(cmdRegionWrite, flagNoRply, region(8, 0, []byte{7})) // waits for the lock
	<-d.waits
	c.send(cmdRegionRead, 0, append(quads(4), words(0, 1)...))
	if a := c.recv(); le.Uint16(a[2:]) != cmdRegionRead || le.Uint32(a[8:]) != flagReply {
		t.Fatalf("instead of the register came %x", a)
	}
	c.replyDMA(r, []byte("hello"))
	if !<-got {
		t.Error("the memory was not read")
	}
	if p, _ := c.call(cmdRegionRead, append(quads(8), words(0, 1)...)); p[16] != 7 {
		t.Errorf("the register is %d", p[16])
	}
}

// Others wait for the locks meanwhile.
func TestASilentClientIsWaitedForOnce(t *testing.T) {
	d, c := serve(t)
	if _, errno := c.call(cmdDMAMap, quads(mapReadWrite, 0, 0x100000, 0x1000)); errno != 0 {
		t.Fatal(errno)
	}
	start := time.Now()
	for range 5 {
		d.s.Mem.lock.RLock()
		if d.s.Mem.Read(0x100000, make([]byte, 5)) {
			t.Error("memory was read without an answer")
		}
		d.s.Mem.lock.RUnlock()
	}
	if took := time.Since(start); took > 2*callTimeout {
		t.Errorf("five accesses took %v", took)
	}
	c.recv()
	c.call(cmdRegionRead, append(quads(8), words(0, 1)...))
	if d.s.silent.Load() {
		t.Error("it still counts as silent")
	}
}
