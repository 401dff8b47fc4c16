package connectx

import "time"

// Packet pacing: the driver sets rates in a table (SET_PP_RATE_LIMIT), and an SQ names a row of it. So the kernel
// limits raw packet queue pairs (ibv_modify_qp_rate_limit) and queues of the interface (tx_maxrate).

// capsQoS is the type of struct qos_cap.
const capsQoS = 0xc

// qosCaps are those of a ConnectX-5 that need no switch in the card. Rates are in kbit/s.
var qosCaps = map[bits]uint64{0x0<<8 | 1: 1, 0xb<<8 | 1: 1, 0x40<<8 | 32: 100_000_000, 0x60<<8 | 32: minRate,
	0x90<<8 | 16: maxRates}

const (
	maxRates = 128
	minRate  = 1
)

// A paced queue may be ahead of its rate by this much, as one of the card that sends in bursts.
const paceBurst = 200 * time.Microsecond

// setRate is SET_PP_RATE_LIMIT. A rate of 0 frees the row.
func setRate(p *Port, in, _ []byte, _ uint32) status {
	i, rate := uint32(be.Uint16(in[10:])), be.Uint32(in[0x10:])
	switch {
	case i == 0 || i >= maxRates:
		return badParam
	case rate == 0:
		delete(p.Rates, i)
	default:
		p.Rates[i] = rate
	}
	return ok
}

// frameDue returns when an SQ may send its next frame, or 0.
func (p *Port) frameDue(q *queue) time.Duration {
	if q.Rate == 0 || p.Rates[q.Rate] == 0 || q.free <= p.s.now()+paceBurst {
		return 0
	}
	return q.free - paceBurst
}

// bookFrame books the time of a frame of an SQ.
func (p *Port) bookFrame(q *queue, bytes int) {
	if rate := p.Rates[q.Rate]; q.Rate != 0 && rate != 0 {
		took := time.Duration(float64(bytes+onWire) * 8e6 / float64(rate))
		q.free = max(q.free, p.s.now()) + took
	}
}
