package roce

import (
	"math"
	"testing"
	"time"
)

// A CNP cuts the rate at the end of its period, alpha moves once in its own, and only time raises rates.
func TestCNPsInPeriods(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	x := s.nodes[0]
	x.cc = Congestion{React: 0xff, Periodic: true, ClampTargetRateAfterInc: true, TimeReset: 300, Threshold: 1,
		AIRate:  5,
		HAIRate: 50, MinDecFac: 50, MinRate: 100, DCETCPG: 1020, DCETCPRTT: 10, RateReduceMonitorPeriod: 50,
		InitialAlpha: 1023, GD: 11}
	f, us := &x.qp.flow, time.Microsecond
	const g = 1020. / 1024
	check := func(at time.Duration, rate, target, alpha float64) {
		t.Helper()
		x.qp.paced(at)
		for _, v := range [][2]float64{{f.rate, rate}, {f.target, target}, {f.alpha, alpha}} {
			if math.Abs(v[0]-v[1]) > 1e-6*v[1] {
				t.Errorf("%v: rate %v, target %v, alpha %v; want %v, %v, %v", at, f.rate, f.target, f.alpha, rate,
					target,
					alpha)
				return
			}
		}
	}
	x.qp.cut(0)
	check(49*us, 25000, 25000, math.Pow(g, 4))
	a := math.Pow(g, 5)
	rate := 25000 * (1 - a/2)
	check(50*us, rate, 25000, a)
	x.qp.cut(55 * us)
	x.qp.cut(56 * us)
	a = a*g + 1 - g
	check(60*us, rate, 25000, a)
	a *= math.Pow(g, 4)
	rate *= 1 - a/2
	check(100*us, rate, 25000, a)
	// Fast recovery at 400, additive increase at 700, hyper increase at 1000 and at 1300 us.
	rate = (rate + 25000) / 2
	check(400*us, rate, 25000, a*math.Pow(g, 30))
	x.qp.cut(410 * us)
	a = a*math.Pow(g, 31)*g + 1 - g
	a *= math.Pow(g, 3)
	target := rate
	rate *= 1 - a/2
	check(450*us, rate, target, a)
	rate = (rate + target) / 2
	check(750*us, rate, target, a*math.Pow(g, 30))
	target += 5
	rate = (rate + target) / 2
	check(1050*us, rate, target, a*math.Pow(g, 60))
	target += 50
	rate = (rate + target) / 2
	check(1350*us, rate, target, a*math.Pow(g, 90))
	if !f.limited {
		t.Error("the flow has lost its rate")
	}
}

// With periods, the gap after a packet keeps the rate at which the packet was sent, whatever comes meanwhile.
func TestNewRatesCountFromTheNextPacket(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	x := s.nodes[0]
	x.cc = Congestion{React: 0xff, Periodic: true, TimeReset: 55, Threshold: 1, MinDecFac: 50, MinRate: 100,
		DCETCPG: 1020, DCETCPRTT: 50, RateReduceMonitorPeriod: 50, InitialAlpha: 1023, GD: 11}
	f, us := &x.qp.flow, time.Microsecond
	x.qp.cut(0)
	x.qp.passed(49*us, 25_000) // 8 us at the rate of the line
	for _, at := range []time.Duration{50 * us, 56 * us} {
		if next := x.qp.paced(at); next != 57*us {
			t.Errorf("at %v, with a rate of %v, the next packet leaves at %v, want 57 us", at, f.rate, next)
		}
	}
	if f.rate > 13000 {
		t.Fatalf("rate %v, want about half of that of the line", f.rate)
	}
	x.qp.passed(57*us, 25_000)
	slow := 57*us + time.Duration(25_000*8000/f.rate)
	if next := x.qp.paced(58 * us); next != slow {
		t.Errorf("the one after it leaves at %v, want %v", next, slow)
	}
}

// Acknowledgements of another class are held by pauses of its priority.
func TestAcknowledgementsOfAnotherClass(t *testing.T) {
	s := newSim(t, RC, 25e9, func(a *Attr) { a.Path.AckTClass = 58 << 2 })
	for _, n := range s.nodes {
		q := DefaultQoS()
		q.TrustDSCP = true
		n.port.cfg.QoS = &q
	}
	x, y := s.nodes[0], s.nodes[1]
	var classes []uint8
	s.tap = func(frame []byte) {
		var p Packet
		if Parse(frame, &p) == nil && p.Opcode == opAck {
			classes = append(classes, p.TClass)
		}
	}
	y.port.stop(0, 7, 50*time.Microsecond)
	x.post(SendWR{Op: WRWrite, Signaled: true, SG: local(0, 3000), VA: remoteVA, RKey: keyRemote})
	s.run(40 * time.Microsecond)
	if len(x.done) != 0 {
		t.Error("acknowledged in a pause of the priority")
	}
	s.run(time.Millisecond)
	if len(x.done) != 1 || len(classes) != 1 || classes[0] != 58<<2 || y.port.Counters.TxPrio[7].Packets != 1 {
		t.Errorf("%v, classes %v, sent %+v", x.statuses(), classes, y.port.Counters.TxPrio)
	}
}
