package connectx

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// BenchmarkWrite is a WRITE from doorbell to completion, without a guest's CPU and QEMU: what the server adds. Beside
// it, in the same run, is what the copy alone takes.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []uint32{2, 64 << 10, 1 << 20} {
		for _, nic := range []NIC{{}, {RateBits: 100e9}} {
			name := fmt.Sprintf("%d", n)
			if nic.RateBits > 0 {
				name += "-paced"
			}
			b.Run(name, func(b *testing.B) { benchmarkWrite(b, n, nic) })
		}
		b.Run(fmt.Sprintf("%d-memcpy", n), func(b *testing.B) {
			from, to := bytes.Repeat([]byte{1}, int(n)), make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				copy(to, from)
			}
		})
	}
}

func benchmarkWrite(b *testing.B, n uint32, nic NIC) {
	_, g := newLab(b, 2, nic, nil)
	qa, _ := pair(g[0], g[1], serviceRC, nil)
	at, to := g[0].alloc(uint64(n)), g[1].alloc(uint64(n))
	w := testWQE{op: wqeWrite, segs: [][]byte{
		remoteSeg(to, g[1].key(to, uint64(n), g[1].pd, allRights...)),
		dataSeg(at, g[0].key(at, uint64(n), g[0].pd, allRights...), n)}}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		qa.send(w)
		for end := time.Now().Add(time.Second); qa.cq.poll() == nil; {
			if time.Now().After(end) {
				b.Fatal("no completion within a second")
			}
		}
	}
}
