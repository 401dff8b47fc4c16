package vfiouser

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxFDs limits the files with a message. QEMU accepts at most 16 with an answer.
const maxFDs = 16

// stream splits a socket's bytes into messages. It reads all data in one call: under load that is many doorbells, which
// cost mostly system calls. It must not be used concurrently.
type stream struct {
	fd    int
	buf   []byte
	r     int    // read position in buf
	pos   uint64 // of buf[r] in the stream
	tmp   []byte
	oob   []byte
	files []fdAt
	iov   unix.Iovec
	hdr   unix.Msghdr   // of the last receive
	gap   time.Duration // smoothed waiting time of receives
	until time.Time     // the end of waiting; zero for none
	err   error         // the end of the stream
}

// errLate ends a receive in time. The bytes received so far are kept for the next call.
var errLate = errors.New("vfio-user: no message in time")

// fdAt has the stream position of the last byte read with a file. A read may begin with messages without files, and
// ends with the part that has the file, so the file belongs to the message with this byte.
type fdAt struct {
	fd int
	at uint64
}

// message is a message with its files, which its owner must close.
type message struct {
	bytes []byte
	fds   []int
}

// takeFD returns a file for the caller to close, or -1.
func (m *message) takeFD() int {
	if len(m.fds) == 0 {
		return -1
	}
	fd := m.fds[0]
	m.fds = m.fds[1:]
	return fd
}

func (m *message) close() {
	for fd := m.takeFD(); fd >= 0; fd = m.takeFD() {
		_ = unix.Close(fd)
	}
}

// next returns a message, valid until the next call, unless detach is called first. An error other than errLate is
// final, for all threads.
func (s *stream) next() (message, error) {
	if s.err != nil {
		return message{}, s.err
	}
	m, err := s.split()
	if err != nil && !errors.Is(err, errLate) {
		s.err = err
	}
	return m, err
}

// split reads the next message. It checks the length first, which the client chooses.
func (s *stream) split() (message, error) {
	if err := s.fill(headerSize); err != nil {
		return message{}, err
	}
	n := int(le.Uint32(s.buf[s.r+4:]))
	if n < headerSize || n > maxData+4096 {
		return message{}, fmt.Errorf("vfio-user: a message of %d bytes", n)
	}
	if err := s.fill(n); err != nil {
		return message{}, err
	}
	m := message{bytes: s.buf[s.r : s.r+n : s.r+n]}
	s.r += n
	s.pos += uint64(n)
	for len(s.files) > 0 && s.files[0].at < s.pos {
		m.fds = append(m.fds, s.files[0].fd)
		s.files = s.files[1:]
	}
	return m, nil
}

// detach leaves the buffer to the message that next returned last.
func (s *stream) detach() {
	s.buf, s.r = bytes.Clone(s.buf[s.r:]), 0
}

// fill reads until n bytes are buffered. A truncated control message ends the connection, because a later message would
// lack the lost files.
func (s *stream) fill(n int) error {
	if s.tmp == nil {
		s.tmp, s.oob = make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*maxFDs))
		s.gap = maxGap
		tv := unix.NsecToTimeval(Nap.Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return err
		}
	}
	if s.r == len(s.buf) {
		s.buf, s.r = s.buf[:0], 0
	}
	for len(s.buf)-s.r < n {
		k, errno := s.receive()
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return errLate
		case errno != 0:
			return errno
		case k == 0:
			return io.EOF
		}
		if s.r > 64<<10 {
			s.buf, s.r = append(s.buf[:0], s.buf[s.r:]...), 0
		}
		s.buf = append(s.buf, s.tmp[:k]...)
		if n := s.hdr.Controllen; n > 0 {
			s.keepFDs(s.oob[:n])
		}
		if s.hdr.Flags&unix.MSG_CTRUNC != 0 {
			return errors.New("vfio-user: too many files with a message")
		}
	}
	return nil
}

// maxGap is the longest time between messages for which receive waits without sleeping, because a sleep and a wake-up
// cost the guest and this process more than a doorbell. It is less than these two switches, so that a vain wait at most
// doubles the cost of a message, and an idle guest, with longer gaps, costs nothing.
const maxGap = 6 * time.Microsecond

// receive waits first without sleeping, then for a Nap, then for long.
func (s *stream) receive() (int, unix.Errno) {
	start := time.Now()
	flags := unix.MSG_DONTWAIT
	for {
		if s.gap >= maxGap || time.Since(start) > 2*s.gap+time.Microsecond {
			flags = 0
		}
		k, errno := s.recvmsg(flags)
		if errno != unix.EAGAIN {
			// A long pause counts like a few short ones, so that a burst is soon recognized.
			s.gap += (min(time.Since(start), 4*maxGap) - s.gap) / 8
			return k, errno
		}
		if flags != 0 {
			continue
		}
		left := time.Duration(-1)
		if !s.until.IsZero() {
			left = max(0, time.Until(s.until))
		}
		if !Wait(s.fd, left) && left == 0 {
			return 0, errno
		}
	}
}

// recvmsg waits for at most a Nap, the socket's timeout.
func (s *stream) recvmsg(flags int) (int, unix.Errno) {
	s.iov.Base = &s.tmp[0]
	s.iov.SetLen(len(s.tmp))
	s.hdr = unix.Msghdr{Iov: &s.iov, Iovlen: 1, Control: &s.oob[0]}
	s.hdr.SetControllen(len(s.oob))
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.hdr)),
		uintptr(flags|unix.MSG_CMSG_CLOEXEC))
	return int(n), errno
}

func (s *stream) keepFDs(oob []byte) {
	msgs, _ := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		fds, _ := unix.ParseUnixRights(&msgs[i])
		for _, fd := range fds {
			s.files = append(s.files, fdAt{fd, s.pos + uint64(len(s.buf)-s.r) - 1})
		}
	}
}

func (s *stream) closeFDs() {
	for _, f := range s.files {
		_ = unix.Close(f.fd)
	}
	s.files = nil
}

// deadline ends the waiting of next, even in the middle of a message. The zero time removes it.
func (s *stream) deadline(t time.Time) { s.until = t }
