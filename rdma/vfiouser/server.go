// Package vfiouser is the server side of the vfio-user protocol, version 0.0: a PCI device in this process for a QEMU
// that connects with vfio-user-pci. QEMU's docs/interop/vfio-user.rst describes the protocol.
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

// Regions of a PCI device, as VFIO numbers them.
const (
	RegionBAR0   = 0
	RegionConfig = 7
	numRegions   = 9
	numIRQs      = 5
	irqMSIX      = 2
)

// Device is the PCI device behind a connection. All calls but ReadNow's come from the goroutine of the connection.
// Region accesses come in the order in which the guest made them, posted writes included, apart from those by ReadNow.
type Device interface {
	// Connected is called before the first message of a client, Disconnected after its last.
	Connected()
	Disconnected()
	Reset()
	// Read and Write access a region within its size; p has 1 byte or more.
	Read(region int, off uint64, p []byte)
	Write(region int, off uint64, p []byte)
	// ReadNow is Read if it need not wait for anything, such as another call that is under way; otherwise it returns
	// false. It is called from any goroutine, while the device waits for memory of the client.
	ReadNow(region int, off uint64, p []byte) bool
}

// Config describes a device. Maps is shared by the devices of a process that copy into each other's memory: see Memory.
type Config struct {
	Path    string        // of the Unix socket
	BAR0    uint64        // size
	Vectors int           // of MSI-X
	Maps    *sync.RWMutex // Memory's lock
	Log     func(format string, args ...any)
}

// Server is a device that a client can connect to.
type Server struct {
	Mem    Memory
	cfg    Config
	dev    Device
	lfd    int
	closed atomic.Bool
	done   chan struct{}

	// mu is the lock of conn and irqs. It is never held while a device runs; sendMu may be held when it is taken, not
	// the other way round.
	mu   sync.Mutex
	conn int   // the client's socket, or -1
	irqs []int // eventfds by vector, or -1

	// sendMu keeps the messages of several threads whole, and guards calls and callID. A descriptor is closed with it
	// held, so no message goes to a file that has got its number since.
	sendMu sync.Mutex
	calls  map[uint16]chan []byte
	callID uint16
	// silent says that the client has not answered in time. Until it says something new it is not asked again, as each
	// access would keep others waiting for as long.
	silent  atomic.Bool
	current message // is being handled; of the connection's thread

	// rxMu is held by whoever reads messages: the connection's thread unless it handles one, or who waits for a reply
	// meanwhile. sendMu and mu may be taken within it.
	rxMu    sync.Mutex
	pending []message // commands that arrived before a reply
	rx      stream
}

// Listen makes the socket and serves one client after the other until Close. The socket is for its owner only: who
// connects gets the interrupts and the memory of a device. One client at a time is served, as a device has one guest.
func Listen(c Config, dev Device) (*Server, error) {
	s := &Server{cfg: c, dev: dev, conn: -1, done: make(chan struct{}), calls: map[uint16]chan []byte{}}
	s.Mem.lock, s.Mem.remote = c.Maps, s.remote
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

// Nice is the priority of threads that a guest waits for, where it may be set: above that of the guests, which spin on
// their CPUs while they wait.
const Nice = -10

// accept serves clients. It keeps its thread: a doorbell of the guest waits for this thread to be woken, and to start
// another would take longer.
func (s *Server) accept() {
	runtime.LockOSThread() // and it ends with the goroutine, as its priority is not for others
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
		// A client that reads no more is cut off, before all who wait for this one's locks are stopped.
		tv := unix.NsecToTimeval(sendTimeout.Nanoseconds())
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
		s.rxMu.Lock()
		s.rx = stream{fd: fd}
		s.rxMu.Unlock()
		s.dev.Connected()
		err = s.guarded()
		if !s.closed.Load() {
			s.logf("connection ends: %v", err)
		}
		s.hangUp(fd)
		s.dev.Disconnected()
		s.Mem.clear()
	}
}

// hangUp closes what belongs to a connection. Who waits for a reply gets nil.
func (s *Server) hangUp(fd int) {
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
	s.sendMu.Unlock()
	s.rx.closeFDs()
	s.current.close()
	for i := range s.pending {
		s.pending[i].close()
	}
	s.pending = nil
}

// Interrupt raises an MSI-X vector. QEMU has set up an eventfd for each vector that the guest enabled; masking is
// QEMU's business. A full eventfd is an interrupt that is pending already, so a failed write loses nothing.
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

// Commands of the protocol.
const (
	// DMA_READ and DMA_WRITE go from server to client, all others come from it. GET_REGION_IO_FDS and DIRTY_PAGES are
	// refused: no BAR is shared, since one region with MMAP would end posted writes for the whole device in QEMU, and
	// nothing tracks what the device writes.
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

// Of the header: type reply, no reply wanted, error.
const (
	headerSize = 16
	// The type is in the low four bits: 0 a command, 1 a reply.
	flagReply  = 1
	flagNoRply = 1 << 4
	flagError  = 1 << 5
)

// maxData bounds the payload of a message. It is offered as max_data_xfer_size, and stream refuses more.
const maxData = 1 << 20

var le = binary.LittleEndian

// guarded is serve, which ends a panic. The connection ends with it; the other devices of the
// process live on. Panics of the device itself are for the device to end.
func (s *Server) guarded() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return s.serve()
}

// serve handles messages until the connection ends. A command that is wrong gets an error and the connection goes on; a
// message that cannot be cut out of the stream ends it. The error is never nil.
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
		if err := s.reply(m, out, errno); err != nil {
			return err
		}
	}
}

// nextMessage makes the next message the current one: one that arrived before a reply, or one from the socket.
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

// reply answers a message under its id and command. Errors are numbers of errno, without payload.
func (s *Server) reply(m, out []byte, errno unix.Errno) error {
	h := make([]byte, headerSize, headerSize+len(out))
	copy(h, m[:4])
	le.PutUint32(h[8:], flagReply)
	if errno != 0 {
		le.PutUint32(h[8:], flagReply|flagError)
		le.PutUint32(h[12:], uint32(errno))
		out = nil
	}
	le.PutUint32(h[4:], uint32(headerSize+len(out)))
	return s.send(append(h, out...))
}

// send writes a whole message. It may block until the client reads, at most for the socket's send timeout.
func (s *Server) send(m []byte) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.mu.Lock()
	fd := s.conn
	s.mu.Unlock()
	if fd < 0 {
		return errors.New("vfio-user: no client")
	}
	for len(m) > 0 {
		n, err := unix.SendmsgN(fd, m, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		m = m[n:]
	}
	return nil
}

// minPayload is the shortest payload of each command.
var minPayload = [...]int{cmdVersion: 4, cmdDMAMap: 32, cmdDMAUnmap: 24, cmdDeviceInfo: 16, cmdRegionInfo: 32,
	cmdRegionFDs: 16, cmdIRQInfo: 16, cmdSetIRQs: 20, cmdRegionRead: 16, cmdRegionWrite: 16, cmdReset: 0,
	cmdWriteMulti: 8}

// handle does one command, and returns the payload of its reply.
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
		if !s.Mem.remove(addr, size, flags&2 != 0) {
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

// version agrees on the protocol. QEMU takes the text as a C string: it ends with a zero. Without it QEMU says
// "malformed capabilities" and gives up. write_multiple lets QEMU send small posted writes in batches.
func (s *Server) version(p []byte) ([]byte, unix.Errno) {
	if le.Uint16(p) != 0 {
		return nil, unix.ENOTSUP
	}
	const caps = `{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d,"pgsizes":4096,"max_dma_maps":%d,` +
		`"write_multiple":true}}` + "\x00"
	return append(make([]byte, 4), fmt.Sprintf(caps, maxFDs, maxData, maxMaps)...), 0
}

// dmaMap enters a mapping, with the file that came along or none. Flags are read 1 and write 2. The descriptor is
// closed in any case, as the mapping lives without it.
func (s *Server) dmaMap(p []byte) ([]byte, unix.Errno) {
	flags, off, addr, size := le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:]), le.Uint64(p[24:])
	fd := s.current.takeFD()
	if fd >= 0 {
		defer unix.Close(fd)
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
	return 0
}

// regionInfo describes a region. Other regions than BAR 0 and configuration space have size 0, which means that they
// are not there.
func (s *Server) regionInfo(p []byte) ([]byte, unix.Errno) {
	i := le.Uint32(p[8:])
	if i >= numRegions {
		return nil, unix.EINVAL
	}
	o := words(32, 0, i, 0, 0, 0, 0, 0)
	if n := s.size(i); n > 0 {
		le.PutUint32(o[4:], 1|2) // can be read and written
		le.PutUint64(o[16:], n)
	}
	return o, 0
}

// setIRQs takes over eventfds, or takes them away. The range is checked by differences, as start+count could wrap.
func (s *Server) setIRQs(p []byte) unix.Errno {
	flags, index, start, count := le.Uint32(p[4:]), le.Uint32(p[8:]), le.Uint32(p[12:]), le.Uint32(p[16:])
	if index != irqMSIX {
		return 0 // INTx and errors: there are none
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
	case flags&1 != 0 && count == 0: // none: all off
		s.dropIRQs(0, int(n))
	}
	return 0
}

// isEventFD refuses files that a write could block on, which would stop whoever raises the interrupt. Files of the
// kernel's own kind have no type.
func isEventFD(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == 0
}

// inside checks an access to a region. Device relies on it: an access lies in its region and is not empty.
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

// writeMulti does a batch of small writes, which QEMU makes where its queue is long. Each entry has an offset, a
// region, a count up to 8 and 8 bytes of data. The writes before a wrong one are done.
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
