// Package vfiouser implements the server side of the vfio-user protocol, version 0.0, for QEMU's vfio-user-pci. QEMU's
// docs/interop/vfio-user.rst describes it.
package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// RegionBAR0 and the others are PCI regions by VFIO's numbers.
const (
	RegionBAR0   = 0
	lastBAR      = 5
	RegionConfig = 7
	numRegions   = 9
	numIRQs      = 5
	irqMSIX      = 2
)

// Device gets all calls except ReadNow from the connection's goroutine, in the guest's order, including posted writes.
type Device interface {
	// Connected is called before a client's first message, Disconnected after its last.
	Connected()
	Disconnected()
	Reset()
	// Read and Write get 1 byte or more within the region's size.
	Read(region int, off uint64, p []byte)
	Write(region int, off uint64, p []byte)
	// ReadNow is like Read, but returns false if it would have to wait. It may be called from any goroutine, while the
	// device waits for memory of the client.
	ReadNow(region int, off uint64, p []byte) bool
}

// Config describes a device.
type Config struct {
	Path    string        // of the Unix socket
	BAR0    uint64        // size in bytes
	Vectors int           // MSI-X vectors
	Maps    *sync.RWMutex // lock of Memory
	// Ask calls ask, which waits for the client for up to some seconds. The device may return false at once, or let
	// others use its locks meanwhile. Nil only calls ask.
	Ask func(ask func() bool) bool
	// NoDMA is for a device that never accesses memory of the client. Memory then stays empty: with an IOMMU, a client
	// may map more pages than the table holds.
	NoDMA bool
	// Shared are memory BARs, by number from 1 to 5.
	Shared map[int]Shared
	// Peer returns memory of another device of the guest, or nil. An empty slice means withdrawn memory;
	// Memory.AskPeers notices changes. It is called with Maps locked.
	Peer func(addr, size uint64) []byte
	Log  func(format string, args ...any)
}

// Shared is the file of a memory BAR, and must keep its size.
type Shared struct {
	Size uint64
	FD   int // the caller's; must stay open until Close
}

// Server serves a device to clients.
type Server struct {
	Mem    Memory
	cfg    Config
	dev    Device
	lfd    int
	closed atomic.Bool
	done   chan struct{}

	// mu guards conn and irqs. It is never held while a device runs. It is taken after sendMu.
	mu   sync.Mutex
	conn int   // the client's socket, or -1
	irqs []int // eventfds by vector, or -1

	// sendMu keeps messages whole, and guards calls, callID and sendErr. It is held while a descriptor is closed, so
	// that no message goes to a file that reuses the number.
	sendMu  sync.Mutex
	calls   map[uint16]chan []byte
	callID  uint16
	sendErr error // ends the connection
	// silent means that a client has not answered in time. It is not asked until it sends something, because each
	// access would block others for as long.
	silent  atomic.Bool
	current message

	// rxMu is held by the thread that reads: the connection's, or while that handles a message, one that waits for a
	// reply. sendMu and mu are taken after it.
	rxMu    sync.Mutex
	pending []message // arrived before a reply
	rx      stream
}

// Listen creates the socket and serves clients one at a time until Close, because a device has one guest. Only the
// owner may connect, because a client gets the device's interrupts and memory.
func Listen(c Config, dev Device) (*Server, error) {
	for i := range c.Shared {
		if i <= RegionBAR0 || i > lastBAR {
			return nil, fmt.Errorf("vfio-user: BAR %d cannot be a file", i)
		}
	}
	s := &Server{cfg: c, dev: dev, conn: -1, done: make(chan struct{}), calls: map[uint16]chan []byte{}}
	s.Mem.lock, s.Mem.remote, s.Mem.peer = c.Maps, s.remote, c.Peer
	if c.Ask != nil {
		s.Mem.remote = func(write bool, addr uint64, p []byte) bool {
			return c.Ask(func() bool { return s.remote(write, addr, p) })
		}
	}
	s.irqs = make([]int, c.Vectors)
	for i := range s.irqs {
		s.irqs[i] = -1
	}
	if err := os.Remove(c.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: c.Path}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("vfio-user: bind %s: %w", c.Path, err)
	}
	if err := errors.Join(os.Chmod(c.Path, 0o600), unix.Listen(fd, 16)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	s.lfd = fd
	go s.accept()
	return s, nil
}

// Close ends the connection and removes the socket. It waits until the device is no longer called.
func (s *Server) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	_ = unix.Shutdown(s.lfd, unix.SHUT_RDWR)
	s.mu.Lock()
	if s.conn >= 0 {
		_ = unix.Shutdown(s.conn, unix.SHUT_RDWR)
	}
	s.mu.Unlock()
	<-s.done
	return os.Remove(s.cfg.Path)
}

func (s *Server) logf(format string, args ...any) {
	if s.cfg.Log != nil {
		s.cfg.Log(format, args...)
	}
}

// Nice is the priority for threads that a guest waits for, if permitted. It is above that of the guests, which spin on
// their CPUs meanwhile.
const Nice = -10

// accept keeps its thread, because a guest's doorbell waits for it to wake, and starting another would take longer.
func (s *Server) accept() {
	runtime.LockOSThread() // ends with the goroutine, because of its priority
	defer close(s.done)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), Nice)
	defer unix.Close(s.lfd)
	for !s.closed.Load() {
		fd, _, err := unix.Accept4(s.lfd, unix.SOCK_CLOEXEC)
		if err != nil {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
				continue
			}
			return
		}
		s.mu.Lock()
		s.conn = fd
		s.mu.Unlock()
		if s.closed.Load() {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
		// A client that stops reading would block all threads that wait for its locks.
		tv := unix.NsecToTimeval(sendTimeout.Nanoseconds())
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
		s.rxMu.Lock()
		s.rx = stream{fd: fd}
		s.rxMu.Unlock()
		s.dev.Connected()
		err = s.guarded()
		if failure := s.hangUp(fd); failure != nil {
			err = failure
		}
		if !s.closed.Load() {
			s.logf("connection ends: %v", err)
		}
		s.dev.Disconnected()
		s.Mem.clear()
	}
}

// hangUp returns the failure to send that ended the connection, if any. Waiting callers get nil.
func (s *Server) hangUp(fd int) (failure error) {
	s.mu.Lock()
	s.conn = -1
	s.dropIRQs(0, len(s.irqs))
	s.mu.Unlock()
	s.rxMu.Lock()
	defer s.rxMu.Unlock()
	s.sendMu.Lock()
	for id, c := range s.calls {
		close(c)
		delete(s.calls, id)
	}
	_ = unix.Close(fd)
	failure, s.sendErr = s.sendErr, nil
	s.sendMu.Unlock()
	s.rx.closeFDs()
	s.current.close()
	for i := range s.pending {
		s.pending[i].close()
	}
	s.pending = nil
	return failure
}

// Interrupt raises an MSI-X vector. QEMU sets up an eventfd for each that the guest enabled, and masks. A full eventfd
// is a pending interrupt, so a failed write loses nothing.
func (s *Server) Interrupt(vector int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if vector >= 0 && vector < len(s.irqs) && s.irqs[vector] >= 0 {
		_, _ = unix.Write(s.irqs[vector], one)
	}
}

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

func (s *Server) dropIRQs(from, to int) {
	for i := from; i < to; i++ {
		if s.irqs[i] >= 0 {
			_ = unix.Close(s.irqs[i])
			s.irqs[i] = -1
		}
	}
}

const (
	// The server sends DMA_READ and DMA_WRITE. GET_REGION_IO_FDS and DIRTY_PAGES are refused: doorbells come as
	// messages, and the device's writes are not tracked.
	cmdVersion = iota + 1
	cmdDMAMap
	cmdDMAUnmap
	cmdDeviceInfo
	cmdRegionInfo
	cmdRegionFDs
	cmdIRQInfo
	cmdSetIRQs
	cmdRegionRead
	cmdRegionWrite
	cmdDMARead
	cmdDMAWrite
	cmdReset
	cmdDirtyPages
	cmdWriteMulti
)

const (
	headerSize = 16
	// The type is in the low four bits: 0 a command, 1 a reply.
	flagReply  = 1
	flagNoRply = 1 << 4
	flagError  = 1 << 5
)

// maxData is offered as max_data_xfer_size. stream refuses more.
const maxData = 1 << 20

var le = binary.LittleEndian

// guarded recovers from a panic, so that other devices of the process continue. A device must recover from its own
// panics.
func (s *Server) guarded() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return s.serve()
}

// serve answers a wrong command with an error, but ends the connection for a wrong length. The error is never nil.
func (s *Server) serve() error {
	for {
		if err := s.nextMessage(); err != nil {
			return err
		}
		m := s.current.bytes
		if le.Uint32(m[8:])&0xf == flagReply {
			s.current.close()
			s.gotReply(m)
			continue
		}
		out, errno := s.handle(m)
		s.current.close()
		if le.Uint32(m[8:])&flagNoRply != 0 {
			continue
		}
		if err := s.reply(m, out, errno, s.filesOf(m, errno)...); err != nil {
			return err
		}
	}
}

func (s *Server) nextMessage() (err error) {
	s.rxMu.Lock()
	defer s.rxMu.Unlock()
	if len(s.pending) > 0 {
		s.current, s.pending = s.pending[0], s.pending[1:]
		return nil
	}
	if s.current, err = s.rx.next(); err == nil {
		s.silent.Store(false)
	}
	return err
}

func (s *Server) filesOf(m []byte, errno unix.Errno) []int {
	if le.Uint16(m[2:]) != cmdRegionInfo || errno != 0 {
		return nil
	}
	if f, ok := s.cfg.Shared[int(le.Uint32(m[headerSize+8:]))]; ok {
		return []int{f.FD}
	}
	return nil
}

func (s *Server) reply(m, out []byte, errno unix.Errno, files ...int) error {
	h := make([]byte, headerSize, headerSize+len(out))
	copy(h, m[:4])
	le.PutUint32(h[8:], flagReply)
	if errno != 0 {
		le.PutUint32(h[8:], flagReply|flagError)
		le.PutUint32(h[12:], uint32(errno))
		out = nil
	}
	le.PutUint32(h[4:], uint32(headerSize+len(out)))
	return s.send(append(h, out...), files...)
}

// send may block for the socket's send timeout. Then it ends the connection: the client may have the beginning of the
// message, and would take another one for the rest.
func (s *Server) send(m []byte, files ...int) error {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.mu.Lock()
	fd := s.conn
	s.mu.Unlock()
	if fd < 0 {
		return errors.New("vfio-user: no client")
	}
	if s.sendErr != nil {
		return s.sendErr
	}
	for len(m) > 0 {
		n, err := unix.SendmsgN(fd, m, rights, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			s.sendErr = fmt.Errorf("vfio-user: send: %w", err)
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // wakes the thread that reads
			return s.sendErr
		}
		m, rights = m[n:], nil
	}
	return nil
}

var minPayload = [...]int{cmdVersion: 4, cmdDMAMap: 32, cmdDMAUnmap: 24, cmdDeviceInfo: 16, cmdRegionInfo: 32,
	cmdRegionFDs: 16, cmdIRQInfo: 16, cmdSetIRQs: 20, cmdRegionRead: 16, cmdRegionWrite: 16, cmdReset: 0,
	cmdWriteMulti: 8}

func (s *Server) handle(m []byte) ([]byte, unix.Errno) {
	cmd, p := int(le.Uint16(m[2:])), m[headerSize:]
	if cmd == 0 || cmd >= len(minPayload) || cmd == cmdDMARead || cmd == cmdDMAWrite || cmd == cmdDirtyPages {
		return nil, unix.ENOTSUP
	}
	if len(p) < minPayload[cmd] {
		return nil, unix.EINVAL
	}
	switch cmd {
	case cmdVersion:
		return s.version(p)
	case cmdDMAMap:
		return s.dmaMap(p)
	case cmdDMAUnmap:
		flags, addr, size := le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:])
		if !s.cfg.NoDMA && !s.Mem.remove(addr, size, flags&2 != 0) {
			return nil, unix.EINVAL
		}
		return p[:24], 0
	case cmdDeviceInfo:
		return words(16, 1|2, numRegions, numIRQs), 0 // can be reset; PCI
	case cmdRegionInfo:
		return s.regionInfo(p)
	case cmdIRQInfo:
		n, i := uint32(0), le.Uint32(p[8:])
		if i == irqMSIX {
			n = uint32(len(s.irqs))
		}
		return words(16, 1, i, n), 0 // by eventfd
	case cmdSetIRQs:
		return nil, s.setIRQs(p)
	case cmdRegionRead:
		return s.read(p)
	case cmdRegionWrite:
		n := le.Uint32(p[12:])
		if uint64(n) > uint64(len(p)-16) {
			return nil, unix.EINVAL
		}
		return p[:16], s.write(le.Uint64(p), le.Uint32(p[8:]), p[16:16+n])
	case cmdWriteMulti:
		return nil, s.writeMulti(p)
	case cmdReset:
		s.dev.Reset()
		return nil, 0
	}
	return nil, unix.ENOTSUP
}

func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = le.AppendUint32(b, w)
	}
	return b
}

// version negotiates the protocol. QEMU reads the text as a C string, and without the final zero reports "malformed
// capabilities" and gives up. write_multiple lets QEMU send small posted writes in batches.
func (s *Server) version(p []byte) ([]byte, unix.Errno) {
	if le.Uint16(p) != 0 {
		return nil, unix.ENOTSUP
	}
	const caps = `{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d,"pgsizes":4096,"max_dma_maps":%d,` +
		`"write_multiple":true}}` + "\x00"
	return append(make([]byte, 4), fmt.Sprintf(caps, maxFDs, maxData, maxMaps)...), 0
}

// dmaMap adds a mapping. It closes the descriptor, because the mapping does not need it. Flags are read 1 and write 2.
func (s *Server) dmaMap(p []byte) ([]byte, unix.Errno) {
	flags, off, addr, size := le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:]), le.Uint64(p[24:])
	fd := s.current.takeFD()
	if fd >= 0 {
		defer unix.Close(fd)
	}
	if s.cfg.NoDMA {
		return nil, 0
	}
	if err := s.Mem.Map(fd, off, addr, size, flags&2 != 0); err != nil {
		s.logf("map %#x+%#x: %v", addr, size, err)
		return nil, unix.EINVAL
	}
	return nil, 0
}

func (s *Server) size(region uint32) uint64 {
	switch region {
	case RegionBAR0:
		return s.cfg.BAR0
	case RegionConfig:
		return 4096
	}
	return s.cfg.Shared[int(region)].Size
}

// regionInfo returns no size for regions that do not exist. In QEMU one region with MMAP ends posted writes for the
// whole device.
func (s *Server) regionInfo(p []byte) ([]byte, unix.Errno) {
	i := le.Uint32(p[8:])
	if i >= numRegions {
		return nil, unix.EINVAL
	}
	o := words(32, 0, i, 0, 0, 0, 0, 0)
	if n := s.size(i); n > 0 {
		le.PutUint32(o[4:], 1|2) // can be read and written
		if _, ok := s.cfg.Shared[int(i)]; ok {
			le.PutUint32(o[4:], 1|2|4) // mapped
		}
		le.PutUint64(o[16:], n)
	}
	return o, 0
}

// setIRQs sets or removes eventfds. start+count could wrap, so the range is checked by differences.
func (s *Server) setIRQs(p []byte) unix.Errno {
	flags, index, start, count := le.Uint32(p[4:]), le.Uint32(p[8:]), le.Uint32(p[12:]), le.Uint32(p[16:])
	if index != irqMSIX {
		return 0 // INTx and errors are not supported
	}
	n := uint32(len(s.irqs))
	if start > n || count > n-start {
		return unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case flags&4 != 0: // eventfds
		for i := start; i < start+count; i++ {
			fd := s.current.takeFD()
			if fd < 0 {
				break
			}
			if !isEventFD(fd) {
				_ = unix.Close(fd)
				return unix.EINVAL
			}
			s.dropIRQs(int(i), int(i)+1)
			s.irqs[i] = fd
		}
	case flags&1 != 0 && count == 0: // no data: all off
		s.dropIRQs(0, int(n))
	}
	return 0
}

// isEventFD refuses files on which a write could block the thread that raises the interrupt. Anonymous inodes of the
// kernel have no file type.
func isEventFD(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == 0
}

// inside checks that an access is within its region and not empty, on which Device relies.
func (s *Server) inside(off uint64, region, n uint32) bool {
	size := s.size(region)
	return n > 0 && n <= maxData && off < size && uint64(n) <= size-off
}

func (s *Server) read(p []byte) ([]byte, unix.Errno) {
	off, region, n := le.Uint64(p), le.Uint32(p[8:]), le.Uint32(p[12:])
	if !s.inside(off, region, n) {
		return nil, unix.EINVAL
	}
	out := make([]byte, 16+n)
	copy(out, p[:16])
	s.dev.Read(int(region), off, out[16:])
	return out, 0
}

func (s *Server) write(off uint64, region uint32, b []byte) unix.Errno {
	if !s.inside(off, region, uint32(len(b))) {
		return unix.EINVAL
	}
	s.dev.Write(int(region), off, b)
	return 0
}

// writeMulti executes a batch of small writes, which QEMU sends if its queue is long. An entry is an offset, a region,
// a count up to 8 and 8 bytes of data. Writes before a wrong one are done.
func (s *Server) writeMulti(p []byte) unix.Errno {
	n := le.Uint64(p)
	if n > uint64(len(p)-8)/24 {
		return unix.EINVAL
	}
	for w := p[8:]; n > 0; n, w = n-1, w[24:] {
		if c := le.Uint32(w[12:]); c > 8 || s.write(le.Uint64(w), le.Uint32(w[8:]), w[16:16+c]) != 0 {
			return unix.EINVAL
		}
	}
	return 0
}
