package connectx

import "testing"

// A program changes the UDP source port of its queue pair, by which switches choose a path, and nothing else.
func TestPortOfAPathIsChanged(t *testing.T) {
	_, gs := newLab(t, 2, NIC{Model: ConnectX5}, nil)
	a, b := gs[0].newQP(serviceRC), gs[1].newQP(serviceRC)
	a.connect(0, 1, b.num, nil)
	b.connect(1, 0, a.num, nil)
	p := gs[0].p
	attr := func() (port uint16, mtu int) {
		p.lock()
		defer p.unlock()
		q := p.Queues[a.num]
		return q.attr.Path.SrcPort, q.attr.MTU
	}
	before, mtu := attr()
	for _, c := range []struct{ mask, want uint64 }{{1 << optSport, 50001}, {0, 50001}, {1, 50001},
		{1 << optSport, 50002}} {
		gs[0].must(0x505, a.num, 0x110, func(in []byte) {
			be.PutUint64(in[0x108:], c.mask)
			adsUdpSport.put(in[0x18+qpcPath:], c.want)
			if c.mask != 1<<optSport {
				adsUdpSport.put(in[0x18+qpcPath:], 7)
			}
		})
		if got, m := attr(); uint64(got) != c.want || m != mtu {
			t.Errorf("mask %#x: port %d and MTU %d, want %d and %d (before: %d)", c.mask, got, m, c.want, mtu, before)
		}
	}
}
