package vfiouser

import (
	"bytes"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dmaHeader precedes the data in QEMU's struct VFIOUserDMARW.
const dmaHeader = 16

// ReplyTimeout is for QEMU's x-msg-timeout. QEMU drops the device if a reply comes later, and its default of 5 s is too
// short for a busy machine.
const ReplyTimeout = 30 * time.Second

// callTimeout is the time for QEMU's main loop, which may take more than a second on a busy machine to answer an access
// to memory. Its guest may wait for us meanwhile.
const callTimeout = 4 * time.Second

// sendTimeout limits the wait for the client to accept a message. QEMU reads on a separate thread.
const sendTimeout = time.Second

// maxCall limits an access: QEMU loses the rest of a message that its socket takes only in part, and Linux takes 32 KiB
// and a header as a whole or not at all.
const maxCall = 32 << 10

// remote accesses memory without a file by messages: ROMs, the low addresses that QEMU maps during boot, and memory
// that QEMU does not share. It is slow and takes QEMU's big lock.
func (s *Server) remote(write bool, addr uint64, p []byte) bool {
	for len(p) > 0 {
		if s.silent.Load() {
			return false
		}
		n := min(len(p), maxCall)
		m := make([]byte, headerSize+dmaHeader, headerSize+dmaHeader+n)
		le.PutUint16(m[2:], cmdDMARead)
		le.PutUint64(m[headerSize:], addr)
		le.PutUint64(m[headerSize+8:], uint64(n))
		if write {
			le.PutUint16(m[2:], cmdDMAWrite)
			m = append(m, p[:n]...)
		}
		le.PutUint32(m[4:], uint32(len(m)))
		r := s.call(m)
		if r == nil || le.Uint32(r[8:])&flagError != 0 || !write && len(r) < headerSize+dmaHeader+n {
			return false
		}
		if !write {
			copy(p[:n], r[headerSize+dmaHeader:])
		}
		addr, p = addr+uint64(n), p[n:]
	}
	return true
}

// call returns the reply, or nil if none came within callTimeout.
//
// If the connection's thread is handling a message, it may wait for a lock of the caller, or be the caller; then the
// caller reads the reply.
func (s *Server) call(m []byte) []byte {
	c := make(chan []byte, 1)
	s.sendMu.Lock()
	s.callID++
	id := s.callID
	s.calls[id] = c
	s.sendMu.Unlock()
	defer func() {
		s.sendMu.Lock()
		delete(s.calls, id)
		s.sendMu.Unlock()
	}()
	le.PutUint16(m, id)
	if s.send(m) != nil {
		return nil
	}
	end := time.Now().Add(callTimeout)
	for {
		if s.rxMu.TryLock() {
			r := s.awaitReply(c, end)
			s.rxMu.Unlock()
			return r
		}
		select {
		case r := <-c:
			return r
		case <-time.After(200 * time.Microsecond):
		}
		if time.Now().After(end) {
			s.silent.Store(true)
			return nil
		}
	}
}

// awaitReply reads messages until c has its reply. It must not execute earlier commands, because the caller is
// executing one with the locks of a device. It does answer reads of registers, because QEMU holds its big lock until
// then, and needs it for the reply.
func (s *Server) awaitReply(c chan []byte, end time.Time) []byte {
	// The current message is still in use.
	s.rx.detach()
	s.rx.deadline(end)
	defer s.rx.deadline(time.Time{})
	for {
		select {
		case r := <-c:
			return r
		default:
		}
		// The client decides how many messages come before its reply.
		if time.Now().After(end) || len(s.pending) > 4096 {
			s.silent.Store(true)
			return nil
		}
		r, err := s.rx.next()
		switch {
		case errors.Is(err, errLate):
			continue
		case err != nil: // the connection ends as soon as its thread reads
			s.silent.Store(true)
			return nil
		case le.Uint32(r.bytes[8:])&0xf == flagReply:
			r.close()
			s.gotReply(r.bytes)
		case s.readNow(r.bytes):
			r.close()
		default:
			s.pending = append(s.pending, message{bytes.Clone(r.bytes), r.fds})
		}
	}
}

// readNow answers a read of registers if the device can at once. After a failure to send, the read must not be answered
// again.
func (s *Server) readNow(m []byte) bool {
	if le.Uint16(m[2:]) != cmdRegionRead || len(m) < headerSize+minPayload[cmdRegionRead] {
		return false
	}
	p := m[headerSize:]
	off, region, n := le.Uint64(p), le.Uint32(p[8:]), le.Uint32(p[12:])
	if !s.inside(off, region, n) {
		return false
	}
	out := make([]byte, 16+n)
	copy(out, p[:16])
	if !s.dev.ReadNow(int(region), off, out[16:]) {
		return false
	}
	_ = s.reply(m, out, 0)
	return true
}

// gotReply passes a reply on, or drops it if it is late. The channel has room for one.
func (s *Server) gotReply(m []byte) {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	id := le.Uint16(m)
	if c := s.calls[id]; c != nil {
		delete(s.calls, id)
		c <- append([]byte(nil), m...)
	}
}

// Nap is the longest wait in a system call hidden from Go's scheduler, which checks others every 20 us to give their
// processor away. That costs more than the doorbells of a busy guest. Garbage collection ends a nap by a signal.
const Nap = 4 * time.Millisecond

// Wait waits until fd can be read, for at most d, or forever if d is negative. It may return true early, for example
// after a signal.
func Wait(fd int, d time.Duration) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(d.Nanoseconds())
	limit := &ts
	if d < 0 {
		limit = nil
	}
	var n uintptr
	var errno unix.Errno
	if d >= 0 && d <= Nap {
		n, _, errno = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), 1,
			uintptr(unsafe.Pointer(limit)), 0, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), 1,
			uintptr(unsafe.Pointer(limit)), 0, 0, 0)
	}
	return errno != 0 || n > 0
}
