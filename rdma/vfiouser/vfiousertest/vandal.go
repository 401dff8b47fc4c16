// Package vfiousertest has a hostile client.
package vfiousertest

import (
	"encoding/binary"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// Vandal sends up to a hundred random messages, with files and wrong lengths. About half of the longer ones access BAR
// 0, of this size in bytes. Errors end it, because the device may hang up at any time.
func Vandal(socket string, bar0 uint64, r *rand.Rand) {
	le := binary.LittleEndian
	c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(c)
	if unix.Connect(c, &unix.SockaddrUnix{Name: socket}) != nil {
		return
	}
	file, err := unix.MemfdCreate("rubbish", unix.MFD_CLOEXEC)
	if err != nil {
		return
	}
	defer unix.Close(file)
	_ = unix.Ftruncate(file, 1<<20)
	answer := make([]byte, 1<<16)
	for range r.IntN(100) {
		m := make([]byte, 16+r.IntN(80))
		for i := range m[16:] {
			m[16+i] = byte(r.Uint32()) >> r.IntN(9)
		}
		le.PutUint16(m[2:], uint16(r.IntN(18)))
		le.PutUint32(m[4:], uint32(len(m)))
		if r.IntN(30) == 0 {
			le.PutUint32(m[4:], r.Uint32())
		}
		le.PutUint32(m[8:], uint32(r.IntN(64)))
		if len(m) >= 40 && r.IntN(2) == 0 {
			le.PutUint16(m[2:], uint16(9+r.IntN(2))) // a read or a write
			le.PutUint64(m[16:], r.Uint64N(bar0))
		}
		var files []byte
		if r.IntN(2) == 0 {
			files = unix.UnixRights(file)
		}
		if unix.Sendmsg(c, m, files, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) != nil {
			return
		}
		_, _, _ = unix.Recvfrom(c, answer, unix.MSG_DONTWAIT)
	}
}
