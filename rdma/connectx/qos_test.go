package connectx

import (
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

func (g *guest) register(reg uint32, write bool, fill func(d []byte)) []byte {
	out := g.must(opAccessReg, reg, 0x10+keptSize, func(in []byte) {
		if !write {
			be.PutUint16(in[6:], 1)
		}
		fill(in[regData:])
	})
	return out[regData:]
}

func TestQoSRegisters(t *testing.T) {
	_, gs := newLab(t, 1, NIC{RateBits: 25e9}, nil)
	g := gs[0]
	none := func([]byte) {}
	read := func(reg uint32, fill func(d []byte), f bits) uint64 {
		t.Helper()
		return f.get(g.register(reg, false, fill))
	}
	for f, want := range map[bits]uint64{pfccPptx: 1, pfccPprx: 1, pfccPfcrx: 0, pfccPfctx: 0} {
		if got := read(regPFCC, none, f); got != want {
			t.Errorf("PFCC field %#x of a new adapter is %d, want %d", f, got, want)
		}
	}
	// mlx5_set_port_pfc ends the pauses of the link so.
	g.register(regPFCC, true, func(d []byte) {
		putAll(d, map[bits]uint64{pfccPrioMaskTx: 0xff, pfccPrioMaskRx: 0xff, pfccPfctx: 1 << 3, pfccPfcrx: 1 << 3})
	})
	// mlx5_set_port_stall_watermark does this, which must change nothing.
	g.register(regPFCC, true, func(d []byte) { putAll(d, map[bits]uint64{pfccPptxMaskN: 1, pfccPprxMaskN: 1}) })
	for f, want := range map[bits]uint64{pfccPptx: 0, pfccPprx: 0, pfccPfcrx: 1 << 3, pfccPfctx: 1 << 3} {
		if got := read(regPFCC, none, f); got != want {
			t.Errorf("PFCC field %#x with PFC is %d, want %d", f, got, want)
		}
	}
	if got := read(regQPTS, none, qptsTrustState); got != trustPCP {
		t.Errorf("a new adapter trusts %d", got)
	}
	g.register(regQPTS, true, func(d []byte) { qptsTrustState.put(d, trustDSCP) })
	if got := read(regQPTS, none, qptsTrustState); got != trustDSCP {
		t.Errorf("trust is %d, want DSCP", got)
	}
	g.register(regQPDPM, true, func(d []byte) { be.PutUint16(d[qpdpmFirst+2*26:], 1<<15|5) })
	if d := g.register(regQPDPM, false, none); d[qpdpmFirst+2*26+1] != 5 || d[qpdpmFirst+2*25+1] != 3 {
		t.Errorf("priorities of DSCP 25 and 26: %d, %d", d[qpdpmFirst+2*25+1], d[qpdpmFirst+2*26+1])
	}
	prio := func(n uint64) func(d []byte) { return func(d []byte) { qtctPrio.put(d, n) } }
	g.register(regQTCT, true, func(d []byte) { putAll(d, map[bits]uint64{qtctPrio: 3, qtctTclass: 6}) })
	if a, b := read(regQTCT, prio(3), qtctTclass), read(regQTCT, prio(0), qtctTclass); a != 6 || b != 1 {
		t.Errorf("traffic classes of priorities 3 and 0: %d, %d", a, b)
	}
	for _, rate := range []struct{ units, value, want uint64 }{{units100M, 7, 700e6}, {units1G, 40, 40e9}, {0, 0, 0}} {
		at := qetcFirst + etsLen*6
		g.register(regQETCR, true, func(d []byte) {
			putAll(d[at:], map[bits]uint64{etsRateSet: 1, etsMaxUnits: rate.units, etsMaxValue: rate.value,
				etsBandwidthSet: 1, etsBandwidth: 30, etsGroupSet: 1, etsGroup: 2})
		})
		d := g.register(regQETCR, false, none)[at:]
		if etsMaxUnits.get(d) != rate.units || etsMaxValue.get(d) != rate.value || etsBandwidth.get(d) != 30 ||
			etsGroup.get(d) != 2 || g.p.QoS.MaxRate[6] != rate.want {
			t.Errorf("a rate of %+v reads as % x, and is %d", rate, d[:etsLen], g.p.QoS.MaxRate[6])
		}
	}
	if d := g.register(regQCAM, false, none); !qcamQpts.is(d) || !qcamQpdpm.is(d) {
		t.Error("QCAM names no trust registers")
	}
}

func TestPriorityOfFrames(t *testing.T) {
	_, gs := newLab(t, 1, NIC{}, nil)
	p := gs[0].p
	ip4 := append([]byte{12: 0x08, 13: 0}, append([]byte{0x45, 26 << 2}, make([]byte, 20)...)...)
	ip6 := append([]byte{12: 0x86, 13: 0xdd}, append([]byte{0x66, 0x80}, make([]byte, 40)...)...)
	tag := append([]byte{12: 0x81, 13: 0, 14: 5 << 5, 15: 1, 16: 0x08, 17: 0}, ip4[14:]...)
	arp := append([]byte{12: 0x08, 13: 6}, make([]byte, 28)...)
	for name, c := range map[string]struct {
		f        []byte
		tag, all uint8
	}{"IPv4": {ip4, 0, 3}, "IPv6": {ip6, 0, 3}, "tagged": {tag, 5, 3}, "ARP": {arp, 0, 0}, "short": {[]byte{1}, 0, 0},
		"cut off": {ip4[:14], 0, 0}} {
		p.QoS.TrustDSCP = false
		a := p.priority(c.f)
		p.QoS.TrustDSCP = true
		if b := p.priority(c.f); a != c.tag || b != c.all {
			t.Errorf("%s: priority %d by the tag, want %d; %d by the DSCP, want %d", name, a, c.tag, b, c.all)
		}
	}
}

func TestPauseReachesTheCounters(t *testing.T) {
	_, gs := newLab(t, 1, NIC{RateBits: 25e9}, nil)
	g := gs[0]
	pause := make([]byte, 60)
	copy(pause, "\x01\x80\xc2\x00\x00\x01\x02\x00\x00\x00\x00\x09\x88\x08\x01\x01\x00\x08")
	be.PutUint16(pause[18+2*3:], 0xffff)
	count := func(group, prio uint64, at int) uint64 {
		d := g.register(regPPCNT, false, func(d []byte) {
			putAll(d, map[bits]uint64{ppcntGrp: group, ppcntPrioTc: prio})
		})
		return be.Uint64(d[8+at:])
	}
	g.p.Deliver(pause)
	if n := count(0x10, 3, 0x50); n != 0 || count(0, 0, 0x78) != 1 {
		t.Errorf("without PFC: %d pauses of priority 3", n)
	}
	g.p.QoS = roce.QoS{RxPFC: 1 << 3}
	g.p.Deliver(pause)
	be.PutUint16(pause[18+2*3:], 0)
	g.p.Deliver(pause)
	if n, on := count(0x10, 3, 0x50), count(0x10, 3, 0x70); n != 2 || on != 1 || count(0x10, 2, 0x50) != 0 {
		t.Errorf("with PFC: %d pauses of priority 3, and it went on %d times", n, on)
	}
}
