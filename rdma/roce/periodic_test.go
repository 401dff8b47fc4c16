package roce

import (
	"math"
	"testing"
	"time"
)

// With periods, a CNP cuts the rate at the end of its period, alpha moves once in its own, and only time raises rates.
func TestCNPsInPeriods(t *testing.T) {
	s := newSim(t, RC, 25e9, nil)
	x := s.nodes[0]
	x.cc = Congestion{React: 0xff, Periodic: true, ClampTargetRateAfterInc: true, TimeReset: 300, Threshold: 1, AIRate: 5,
		HAIRate: 50, MinDecFac: 50, MinRate: 100, DCETCPG: 1020, DCETCPRTT: 10, RateReduceMonitorPeriod: 50,
		InitialAlpha: 1023, GD: 11}
	f, us := &x.qp.flow, time.Microsecond
	const g = 1020. / 1024
	check := func(at time.Duration, rate, target, alpha float64) {
		t.Helper()
		x.qp.paced(at)
		for _, v := range [][2]float64{{f.rate, rate}, {f.target, target}, {f.alpha, alpha}} {
			if math.Abs(v[0]-v[1]) > 1e-6*v[1] {
				t.Errorf("%v: rate %v, target %v, alpha %v; want %v, %v, %v", at, f.rate, f.target, f.alpha, rate, target,
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
	// No CNP any more: fast recovery at 400, additive increase at 700, hyper increase at 1000 and at 1300 us.
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
