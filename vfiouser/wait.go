package vfiouser

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Nap is the longest wait of a thread in a system call of which Go's scheduler knows nothing. It watches a call that it
// knows of every 20 us, to give the call's share to others, and this takes more of a core than the doorbells of a busy
// guest do. While a thread naps, its share is idle. If all threads must stop, to collect garbage, Go sends each a
// signal, which ends the nap.
const Nap = 4 * time.Millisecond

// Wait returns whether a file can be read within d; a negative d waits for ever. It may return earlier, without
// knowing: for a signal, for example.
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
