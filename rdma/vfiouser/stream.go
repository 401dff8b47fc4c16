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

// maxFDs bounds the files that come with a message: QEMU takes no more than 16 for an answer.
const maxFDs = 16

// stream cuts a socket's bytes into messages, with the files that came along. It reads as much as there is in one call:
// under load that is many doorbells, and system calls are most of their cost. One thread at a time uses it.
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
	gap   time.Duration // how long receives have waited, smoothed
	limit time.Duration // of a receive; negative for none
}

// fdAt is a file, with the place in the stream of the last byte that was read with it: a read may begin with bytes of
// earlier messages without files, and ends with the part that the file was sent with. A file belongs to the message
// that holds this byte.
type fdAt struct {
	fd int
	at uint64
}

// message is a message with the files that came with it, which are its own to close.
type message struct {
	bytes []byte
	fds   []int
}

// takeFD returns the next file of the message, which is the caller's from then on, or -1.
func (m *message) takeFD() int {
	if len(m.fds) == 0 {
		return -1
	}
	fd := m.fds[0]
	m.fds = m.fds[1:]
	return fd
}

// close closes the files that nobody took.
func (m *message) close() {
	for fd := m.takeFD(); fd >= 0; fd = m.takeFD() {
		_ = unix.Close(fd)
	}
}

// next returns the next message. Its bytes are valid until the next call of next, unless detach comes first. The length
// is the client's; it is bounded before anything is read for it.
func (s *stream) next() (message, error) {
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

// detach leaves the buffer to the message that next returned last, and moves unread bytes to a new one.
func (s *stream) detach() {
	s.buf, s.r = bytes.Clone(s.buf[s.r:]), 0
}

// fill reads until n bytes are there. A truncated control message ends the connection: files that were lost would be
// missing in a later message.
func (s *stream) fill(n int) error {
	if s.tmp == nil {
		s.tmp, s.oob = make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*maxFDs))
		s.gap, s.limit = maxGap, -1
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
		case errno != 0:
			return errno
		case k == 0:
			return io.EOF
		case s.hdr.Flags&unix.MSG_CTRUNC != 0:
			return errors.New("vfio-user: too many files with a message")
		}
		if s.r > 64<<10 { // keep the buffer short
			s.buf, s.r = append(s.buf[:0], s.buf[s.r:]...), 0
		}
		s.buf = append(s.buf, s.tmp[:k]...)
		if n := s.hdr.Controllen; n > 0 {
			s.keepFDs(s.oob[:n])
		}
	}
	return nil
}

// A guest that rings often is waited for without sleeping: to put a thread to sleep and to wake it costs the guest and
// this process more than the doorbell itself. maxGap is how long messages may be apart for that. It is less than the
// two switches that are saved, so that a wait in vain at most doubles the cost of a message, and an idle guest, whose
// gaps are longer, costs nothing.
const maxGap = 6 * time.Microsecond

// receive reads what there is, and waits if there is nothing: first without sleeping, then for a Nap, then for long.
func (s *stream) receive() (int, unix.Errno) {
	start := time.Now()
	flags := unix.MSG_DONTWAIT
	for {
		if s.gap >= maxGap || time.Since(start) > 2*s.gap+time.Microsecond {
			flags = 0
		}
		k, errno := s.recvmsg(flags)
		if errno != unix.EAGAIN {
			// A long pause counts like a few short ones, so that the next burst is soon recognized.
			s.gap += (min(time.Since(start), 4*maxGap) - s.gap) / 8
			return k, errno
		}
		if flags == 0 && !Wait(s.fd, s.limit) {
			return 0, errno
		}
	}
}

// recvmsg waits for a Nap at most, which is the socket's timeout.
func (s *stream) recvmsg(flags int) (int, unix.Errno) {
	s.iov.Base = &s.tmp[0]
	s.iov.SetLen(len(s.tmp))
	s.hdr = unix.Msghdr{Iov: &s.iov, Iovlen: 1, Control: &s.oob[0]}
	s.hdr.SetControllen(len(s.oob))
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.hdr)),
		uintptr(flags|unix.MSG_CMSG_CLOEXEC))
	return int(n), errno
}

// keepFDs notes files that came with the bytes read last.
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

// deadline bounds each receive; a negative one does not.
func (s *stream) deadline(d time.Duration) { s.limit = d }
