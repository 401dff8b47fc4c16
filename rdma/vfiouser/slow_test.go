package vfiouser

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// QEMU sends without blocking, and takes a message sent in part for sent. Doorbells fill its socket if the server is
// busy, so an answer must be taken as a whole or not at all.
func TestAnAnswerIsSentAsAWhole(t *testing.T) {
	answer := make([]byte, dmaData+maxCall)
	doorbell := make([]byte, headerSize+16+8)
	var whole, refused int
	for doorbells := range 400 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range doorbells {
			_, _ = unix.Write(fds[0], doorbell)
		}
		switch n, err := unix.Write(fds[0], answer); {
		case errors.Is(err, unix.EAGAIN):
			refused++
		case n == len(answer):
			whole++
		default:
			t.Errorf("after %d doorbells the socket took %d of %d bytes: %v", doorbells, n, len(answer), err)
		}
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
	}
	if whole == 0 || refused == 0 {
		t.Errorf("%d answers were taken and %d refused, want some of both", whole, refused)
	}
}
