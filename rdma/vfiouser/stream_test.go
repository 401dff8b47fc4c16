package vfiouser

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// Of several messages in a socket only the last of one read has a file.
func TestAFileBelongsToItsMessage(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	want := []bool{false, true, false, false, true, true, false}
	for i, has := range want {
		m := make([]byte, headerSize+8*i)
		binary.LittleEndian.PutUint32(m[4:], uint32(len(m)))
		var rights []byte
		if has {
			rights = unix.UnixRights(fds[0])
		}
		if err := unix.Sendmsg(fds[0], m, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := stream{fd: fds[1]}
	defer s.closeFDs()
	for i, has := range want {
		m, err := s.next()
		if err != nil || len(m.bytes) != headerSize+8*i {
			t.Fatalf("message %d: %d bytes, %v", i, len(m.bytes), err)
		}
		fd := m.takeFD()
		if (fd >= 0) != has {
			t.Errorf("message %d: file %d, want one: %v", i, fd, has)
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		m.close()
	}
}
