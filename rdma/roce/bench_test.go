package roce

import (
	"testing"
	"time"
)

type loop struct {
	buf []byte
	end []int
}

func (l *loop) Send(_ time.Duration, frame []byte) {
	l.buf = append(l.buf, frame...)
	l.end = append(l.end, len(l.buf))
}

func (l *loop) flush(now time.Duration, to *Port) {
	start := 0
	for _, e := range l.end {
		to.Receive(now, l.buf[start:e])
		start = e
	}
	l.buf, l.end = l.buf[:0], l.end[:0]
}

func benchmarkWrites(b *testing.B, size, mtu int) {
	s := newSim(b, RC, 0, func(a *Attr) { a.MTU = mtu })
	x, y := s.nodes[0], s.nodes[1]
	var wires [2]loop
	x.port.cfg.Wire, y.port.cfg.Wire = &wires[0], &wires[1]
	sg := local(0, size)
	posted, packets := 0, max(1, (size+mtu-1)/mtu)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		x.sends = append(x.sends[:0], SendWR{Op: WRWrite, Signaled: true, SG: sg, VA: remoteVA, RKey: keyRemote})
		x.qp.Doorbell()
		posted++
		for len(x.done) == 0 {
			x.port.Poll(0)
			wires[0].flush(0, y.port)
			y.port.Poll(0)
			wires[1].flush(0, x.port)
		}
		x.done = x.done[:0]
	}
	b.ReportMetric(float64(posted*packets)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkWrite64(b *testing.B)     { benchmarkWrites(b, 64, 4096) }
func BenchmarkWrite64K(b *testing.B)    { benchmarkWrites(b, 64<<10, 4096) }
func BenchmarkWrite1M1024(b *testing.B) { benchmarkWrites(b, 1<<20, 1024) }

func BenchmarkParse(b *testing.B) {
	for _, p := range packets() {
		if p.Opcode == opWriteOnly {
			p.Payload = make([]byte, 1024)
			frame := p.Append(nil)
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				_ = Parse(frame, &p)
			}
		}
	}
}
