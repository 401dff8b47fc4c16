package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"
)

// A closed pipe behind rackless ends it silently, as the signal would. One to an agent is an error.
func TestExitAfterAClosedPipe(t *testing.T) {
	broken := os.NewSyscallError("write", syscall.EPIPE)
	for _, test := range []struct {
		err  error
		code int
		says bool
	}{
		{fmt.Errorf("vm00: %w", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE}), 141, false},
		{&fs.PathError{Op: "write", Path: "/tmp/fifo", Err: syscall.EPIPE}, exitFailed, true},
		{&net.OpError{Op: "write", Net: "unix", Err: broken}, exitFailed, true},
	} {
		if code, text := exitCode(test.err); code != test.code || (text != "") != test.says {
			t.Errorf("%v: code %d, text %q", test.err, code, text)
		}
	}
}
