package roce

import (
	"math"
	"time"
)

const distant = time.Duration(math.MaxInt64)

// note records a CNP. A flow's first starts both periods.
func (f *flow) note(now time.Duration, c *Congestion, line float64) {
	if f.limited {
		f.toRaise, f.toCut = true, true
		return
	}
	*f = flow{limited: true, rate: line, target: line, alpha: min(1, float64(c.InitialAlpha)/1023), next: f.next,
		toCut: true, timerAt: distant, alphaAt: now + micros(c.DCETCPRTT),
		cutAt: now + micros(c.RateReduceMonitorPeriod)}
	if c.RateToSetOnFirstCNP != 0 {
		f.rate = min(line, float64(c.RateToSetOnFirstCNP))
	}
}

// periods applies the ends until now in their order: alpha, then a cut, then an increase. A packet that waits keeps the
// gap of the rate before.
func (f *flow) periods(now time.Duration, c *Congestion, line float64) {
	g := float64(min(c.DCETCPG, 1023)) / 1024
	rtt, period := micros(c.DCETCPRTT), micros(c.RateReduceMonitorPeriod)
	for n := 0; ; n++ {
		if n == maxSteps {
			f.timerAt = now + micros(c.TimeReset)
		}
		switch at := min(f.alphaAt, f.cutAt, f.timerAt); {
		case at > now:
			return
		case at == f.alphaAt && f.toRaise:
			f.alpha = g*f.alpha + 1 - g
			f.toRaise = false
			f.alphaAt += rtt
		case at == f.alphaAt:
			// All periods without a CNP.
			until := now
			if f.toCut {
				until = min(until, f.cutAt)
			}
			k := max(0, until-at)/rtt + 1
			f.alpha *= math.Pow(g, float64(k))
			f.alphaAt += k * rtt
		case at == f.cutAt && f.toCut:
			if c.ClampTargetRate || c.ClampTargetRateAfterInc && f.byTime > 0 {
				f.target = f.rate
			}
			f.reduce(c)
			f.toCut, f.byTime = false, 0
			f.cutAt, f.timerAt = at+period, at+micros(c.TimeReset)
		case at == f.cutAt:
			f.cutAt += ((now-at)/period + 1) * period
		default:
			f.byTime++
			f.increase(c, line)
			f.timerAt += micros(c.TimeReset)
		}
	}
}
