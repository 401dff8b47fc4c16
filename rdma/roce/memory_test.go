package roce

import (
	"testing"
	"time"
	"unsafe"
)

// Above its limit a port takes one request at a time of each QP, and all complete.
func TestRequestsInFlightAreLimited(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	a := s.nodes[0]
	const limit = 32 * int(unsafe.Sizeof(txWR{}))
	a.port.cfg.Memory = limit
	most := 0
	carry := s.carry
	s.carry = func(n *node, now time.Duration, frame []byte) {
		most = max(most, a.port.memory)
		carry(n, now, frame)
	}
	const n = 200
	for i := range n {
		a.post(SendWR{ID: uint64(i), Signaled: true, Op: WRWrite, SG: local(0, 64), VA: 0x1000, RKey: keyRemote})
	}
	s.run(10 * time.Millisecond)
	if len(a.done) != n {
		t.Errorf("%d requests completed, want %d", len(a.done), n)
	}
	if most > 2*limit {
		t.Errorf("requests took %d bytes, above the limit of %d", most, limit)
	}
	a.port.Remove(a.qp)
	if a.port.memory != 0 {
		t.Errorf("without a QP, requests take %d bytes", a.port.memory)
	}
}
