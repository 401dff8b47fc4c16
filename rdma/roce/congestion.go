package roce

import (
	"cmp"
	"math"
	"time"
)

// Congestion holds the parameters of DCQCN, named as in debugfs cc_params, in microseconds and Mbit/s.
type Congestion struct {
	// bit sets of priorities: Notify sends CNPs for them; React lowers their rates after CNPs, and makes packets ECN
	// capable
	Notify, React uint8

	ClampTargetRate         bool   // rp_clamp_tgt_rate: a CNP always sets the target to the current rate
	ClampTargetRateAfterInc bool   // rp_clamp_tgt_rate_ati: only if the timer has raised it since the last CNP
	TimeReset               uint32 // rp_time_reset: between increases by the timer
	ByteReset               uint32 // rp_byte_reset: bytes between increases by their counter
	Threshold               uint32 // rp_threshold: increases of fast recovery
	AIRate, HAIRate         uint32 // rp_ai_rate, rp_hai_rate: steps of additive and hyper increase
	MaxRate                 uint32 // rp_max_rate; 0 for the port's
	MinDecFac               uint32 // rp_min_dec_fac: least percentage of the rate after a CNP
	MinRate                 uint32 // rp_min_rate
	RateToSetOnFirstCNP     uint32 // rp_rate_to_set_on_first_cnp; 0 for none
	DCETCPG                 uint32 // rp_dce_tcp_g: weight of the old alpha, of 1024
	DCETCPRTT               uint32 // rp_dce_tcp_rtt: between decreases of alpha
	RateReduceMonitorPeriod uint32 // rp_rate_reduce_monitor_period: between two cuts
	InitialAlpha            uint32 // rp_initial_alpha_value, of 1023
	GD                      uint32 // rp_gd: a CNP cuts by alpha >> GD

	MinTimeBetweenCNPs uint32 // np_min_time_between_cnps, for a flow
	CNPDSCP            uint8  // np_cnp_dscp
	CNPPrio            uint8  // np_cnp_prio

	// Periodic is the reaction point of HPCC's published simulator. CNPs count at the end of periods, DCETCPRTT for
	// alpha and RateReduceMonitorPeriod for cuts, only the timer raises rates, and no packet that waits is moved.
	Periodic bool
}

// DefaultCongestion returns an adapter's defaults, as reported for cards. The project has not checked them on one.
func DefaultCongestion() Congestion {
	return Congestion{
		Notify: 0xff, React: 0xff, ClampTargetRateAfterInc: true, TimeReset: 300, ByteReset: 32767, Threshold: 1,
		AIRate:  5,
		HAIRate: 50, MinDecFac: 50, MinRate: 1, DCETCPG: 1019, DCETCPRTT: 1, RateReduceMonitorPeriod: 4,
		InitialAlpha: 1023, GD: 11, MinTimeBetweenCNPs: 4, CNPDSCP: 48, CNPPrio: 6,
	}
}

// flow is the reaction point of a QP (Zhu et al., SIGCOMM 2015, section 5, whose symbols comments use). Elapsed time
// counts only when it is used.
type flow struct {
	limited      bool    // below the port's rate
	rate, target float64 // RC, RT: Mbit/s
	alpha        float64 // 0 to 1
	bytes        uint64
	// Increases since the last CNP: BC and T.
	byBytes, byTime         uint32
	timerAt, alphaAt, cutAt time.Duration
	next                    time.Duration
	// The last two periods end at alphaAt and cutAt; a CNP in them sets these.
	toRaise, toCut bool
}

// maxSteps limits increases after a pause, because a guest's parameters may lead nowhere.
const maxSteps = 1 << 14

// unpacedRate, in Mbit/s, is for ports without one, because a cut needs a rate.
const unpacedRate = 100_000

func (p *Port) congestion() *Congestion { return p.cfg.Congestion }

// lineRate is in Mbit/s.
func (p *Port) lineRate() float64 {
	rate := cmp.Or(float64(p.cfg.Rate)/1e6, unpacedRate)
	if m := p.congestion().MaxRate; m != 0 {
		rate = min(rate, float64(m))
	}
	return rate
}

// reacts reports whether the QP slows down after CNPs, and so sends ECN capable packets. RoCE v1 has no ECN.
func (q *QP) reacts() bool { return !q.attr.Path.V1 && q.port.congestion().React>>q.prio()&1 != 0 }

// marked queues a CNP, as the notification point. One within MinTimeBetweenCNPs is enough for any number of marks, and
// one that still waits counts for later marks too.
func (q *QP) marked(now time.Duration) {
	c := q.port.congestion()
	if c.Notify>>q.prio()&1 == 0 {
		return
	}
	q.port.Counters.ECNMarked++
	if q.cnpOut || q.cnpAt != never && now-q.cnpAt < time.Duration(c.MinTimeBetweenCNPs)*time.Microsecond {
		return
	}
	q.cnpAt, q.cnpOut = now, true
	q.port.cnps = append(q.port.cnps, q)
}

// buildCNP builds a congestion notification packet (annex A17.9.3), with ECN bits as observed from a ConnectX-4 Lx. It
// has its own DSCP and priority, so that congestion does not delay it.
func (q *QP) buildCNP(b []byte) []byte {
	c := q.port.congestion()
	p := q.base
	p.Opcode, p.BECN, p.TClass = opCNP, true, c.CNPDSCP<<2|ecnECT0
	p.TCI = uint16(c.CNPPrio&7)<<13 | p.TCI&0x1fff
	var reserved [sizeCNP]byte
	p.Payload = reserved[:]
	return q.port.append(b, &p)
}

// cut reduces the rate after a CNP. The first one starts from the line's rate with the initial alpha. Others within
// RateReduceMonitorPeriod belong to the same congestion and are ignored. Each cut restarts both counters and the timer.
func (q *QP) cut(now time.Duration) {
	c, f, k := q.port.congestion(), &q.flow, &q.port.Counters
	if !q.reacts() {
		k.CNPIgnored++
		return
	}
	k.CNPHandled++
	line := q.port.lineRate()
	if f.limited {
		f.advance(now, c, line)
	}
	if c.Periodic {
		f.note(now, c, line)
		return
	}
	old := line
	if f.limited {
		old = f.rate
	}
	switch {
	case !f.limited:
		*f = flow{limited: true, rate: line, target: line, alpha: min(1, float64(c.InitialAlpha)/1023), next: f.next}
		if c.RateToSetOnFirstCNP != 0 {
			f.rate = min(line, float64(c.RateToSetOnFirstCNP))
			break
		}
		f.reduce(c)
	case now-f.cutAt < time.Duration(c.RateReduceMonitorPeriod)*time.Microsecond:
		return
	default:
		// The target follows if the rate has increased since the last cut.
		if c.ClampTargetRate || f.byBytes > 0 || c.ClampTargetRateAfterInc && f.byTime > 0 {
			f.target = f.rate
		}
		f.reduce(c)
	}
	f.rescale(now, old)
	f.cutAt, f.bytes, f.byBytes, f.byTime = now, 0, 0, 0
	g := float64(min(c.DCETCPG, 1023)) / 1024
	f.alpha = g*f.alpha + 1 - g
	f.timerAt, f.alphaAt = now+micros(c.TimeReset), now+micros(c.DCETCPRTT)
}

// micros converts to a time. 0, which a guest may set, counts as 1, or advance would never end.
func micros(n uint32) time.Duration { return time.Duration(max(1, n)) * time.Microsecond }

// reduce cuts the rate by alpha/2: alpha has ten bits, and GD is 11. The minimum of 1 Mbit/s keeps divisions finite.
func (f *flow) reduce(c *Congestion) {
	keep := 1 - f.alpha*1024/float64(uint64(1)<<min(c.GD, 63))
	low := max(f.rate*float64(min(c.MinDecFac, 100))/100, float64(c.MinRate), 1)
	f.rate = min(f.rate, max(f.rate*keep, low))
}

func (f *flow) advance(now time.Duration, c *Congestion, line float64) {
	if c.Periodic {
		f.periods(now, c, line)
		return
	}
	if rtt := micros(c.DCETCPRTT); now >= f.alphaAt {
		n := (now-f.alphaAt)/rtt + 1
		f.alpha *= math.Pow(float64(min(c.DCETCPG, 1023))/1024, float64(n))
		f.alphaAt += n * rtt
	}
	for n := 0; f.limited && now >= f.timerAt; n++ {
		if n == maxSteps {
			f.timerAt = now + micros(c.TimeReset)
			return
		}
		f.byTime++
		old := f.rate
		f.increase(c, line)
		f.rescale(f.timerAt, old)
		f.timerAt += micros(c.TimeReset)
	}
}

// rescale moves the next packet after a change of the rate, because the gap after sent bytes is longer at a lower rate.
func (f *flow) rescale(at time.Duration, old float64) {
	if f.next > at {
		f.next = at + time.Duration(float64(f.next-at)*old/f.rate)
	}
}

// paced returns when the next packet may be sent, or an earlier time to ask again, at which the timer may raise the
// rate.
func (q *QP) paced(now time.Duration) time.Duration {
	f := &q.flow
	if !f.limited {
		return now
	}
	c := q.port.congestion()
	f.advance(now, c, q.port.lineRate())
	if f.limited && f.next > now {
		if c.Periodic {
			return f.next // no increase brings it forward
		}
		return min(f.next, f.timerAt)
	}
	return now
}

// increase does one step of recovery, which moves the rate half of the way to the target. Fast recovery ends when
// either counter has reached Threshold, and hyper increase begins when both are above it.
func (f *flow) increase(c *Congestion, line float64) {
	lo, hi := min(f.byBytes, f.byTime), max(f.byBytes, f.byTime)
	hyper := float64(lo) - float64(c.Threshold)
	if c.Periodic {
		// Increases before this one count, and all hyper increases are the same.
		lo, hi, hyper = f.byTime-1, f.byTime-1, 1
	}
	switch {
	case hi < c.Threshold:
	case lo > c.Threshold:
		f.target += float64(c.HAIRate) * hyper
	default:
		f.target += float64(c.AIRate)
	}
	f.target = min(f.target, line)
	f.rate = (f.rate + f.target) / 2
	// A limit within a thousandth of the line's rate, or one that can never increase, is dropped.
	if c.Periodic {
		return
	}
	if f.rate >= line*0.999 || c.AIRate == 0 && f.target-f.rate < 1 && f.target >= line {
		f.limited = false
	}
}

// passed counts n bytes on the wire.
func (q *QP) passed(now time.Duration, n int) {
	f := &q.flow
	if !f.limited {
		return
	}
	c, line := q.port.congestion(), q.port.lineRate()
	f.advance(now, c, line)
	f.bytes += uint64(n)
	for step := uint64(max(256, c.ByteReset)); !c.Periodic && f.limited && f.bytes >= step; {
		f.bytes -= step
		f.byBytes++
		f.increase(c, line)
	}
	if f.limited {
		f.next = max(f.next, now) + time.Duration(float64(n)*8000/f.rate)
	}
}
