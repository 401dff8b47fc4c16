package fabric

import (
	"cmp"
	"fmt"
	"time"
)

// Limits of a Link. They keep the arithmetic within 64 bits and a mistyped unit from holding a lab for hours.
const (
	MinRate   = 1000              // bits a second
	MaxRate   = 1_000_000_000_000 // bits a second
	MaxDelay  = 10 * time.Second
	MaxBurst  = 64 << 20  // bytes
	MaxBuffer = 256 << 20 // bytes; also of what is set in relation to a buffer

	// maxInFlight bounds what one link holds for its delay, prefixes included. More waits before
	// the link, as if it were slower, and is then subject to Buffer, ECN and PFC.
	maxInFlight = 64 << 20
)

// A Link says how bad the way from the switch to a node is: it acts on frames that leave the switch
// through one port. The zero value is a link without impairments. A frame meets them in this order:
// the buffer, which may drop it or mark it; the rate; loss; reordering; delay and jitter.
//
// Links survive the reconnection of their node. They are comparable.
type Link struct {
	// Down takes the link away in both directions, as the switch does that shuts a port: no frame passes, what was
	// learned there is forgotten, and Config.Down tells whoever has the other end.
	Down bool `json:"down,omitzero"`
	// Rate is in bits a second of what a real wire would carry: the frame, padded to 60 bytes, and
	// 24 bytes for preamble, checksum and gap. 0: no limit. So TCP with an MTU of 1500 gets 94.9 %
	// of it, as on a real NIC.
	Rate int64 `json:"rate_bits_per_second,omitzero"`
	// Burst is how many bytes may leave at once after a pause, as counted by Rate. With 0 each
	// frame takes its time on the wire.
	Burst int `json:"burst_bytes,omitzero"`
	// Delay is added to each frame, and Jitter varies it: evenly distributed between Delay-Jitter
	// and Delay+Jitter. Jitter keeps the order: a frame waits for the one before it.
	Delay  time.Duration `json:"delay_ns,omitzero"`
	Jitter time.Duration `json:"jitter_ns,omitzero"`
	// Loss is the probability with which a frame is lost on the wire, after it took its time there.
	// Losses are independent.
	Loss float64 `json:"loss,omitzero"`
	// Reorder is the probability with which a frame skips the delay and so overtakes all that are delayed.
	Reorder float64 `json:"reorder,omitzero"`
	// Trust says where the priority of a frame comes from. Each priority has its own queue, to which Buffer, ECN and
	// PFC apply; 7 and 6 go first, the others have turns. Without trust all frames are in one queue.
	Trust Trust `json:"trust,omitzero"`
	// ECN marks packets by what waits for the link.
	ECN RED `json:"ecn,omitzero"`
	// Buffer bounds what waits for the link, in bytes; an empty one takes any frame. 0 is the
	// switch's Config.QueueBytes.
	Buffer int `json:"buffer_bytes,omitzero"`
	// PFC holds the senders instead of dropping their frames.
	PFC PFC `json:"pfc,omitzero"`
	// Seed begins the random sequences of the port, one each for loss, reordering, jitter and
	// marks. The same seed on a port of the same name gives the same decisions for the same frames;
	// ports of other names get others. A sequence begins when a link without impairments gets some,
	// and when Seed changes.
	Seed uint64 `json:"seed,omitzero"`
}

// RED says when packets of transports that understand ECN are marked "congestion experienced":
// never below Min bytes waiting, always from Max on, and between them with a probability that grows
// linearly from 0 to Probability. It goes by the present length of the queue, not an average, as
// DCTCP and DCQCN want it. Other packets pass unmarked. The zero value marks nothing.
type RED struct {
	Min         int     `json:"min_bytes"`
	Max         int     `json:"max_bytes"`
	Probability float64 `json:"probability"`
}

// PFC makes queues of a port lossless, as priority flow control does (IEEE 802.1Qbb): while a queue
// is above High bytes, the nodes that send to it are held, until it is down to Low. Of says which
// queues. Without it all of them hold whole links. The zero value holds nobody.
type PFC struct {
	High int        `json:"high_bytes"`
	Low  int        `json:"low_bytes"`
	Of   Priorities `json:"priorities,omitzero"`
}

// Impaired reports whether l does anything to frames that pass. Where it is down none do.
func (l Link) Impaired() bool {
	l.Seed, l.Down = 0, false
	return l != Link{}
}

// Validate checks every field and how they fit together. Its error names the field, its value and the range.
func (l Link) Validate() error {
	inRange := func(name string, v, least, most int) error {
		if v < least || v > most {
			return fmt.Errorf("link: %s of %d bytes: want %d to %d", name, v, least, most)
		}
		return nil
	}
	probability := func(name string, p float64) error {
		if !(p >= 0 && p <= 1) { // so that NaN is refused
			return fmt.Errorf("link: %s probability %v: want 0 to 1", name, p)
		}
		return nil
	}
	switch {
	case l.Rate != 0 && (l.Rate < MinRate || l.Rate > MaxRate):
		return fmt.Errorf("link: rate of %d bit/s: want 0 (no limit) or %d to %d", l.Rate, int64(MinRate),
			int64(MaxRate))
	case l.Burst != 0 && l.Rate == 0:
		return fmt.Errorf("link: burst of %d bytes without a rate: want 0, or a rate", l.Burst)
	case l.Delay < 0 || l.Delay > MaxDelay:
		return fmt.Errorf("link: delay %v: want 0s to %v", l.Delay, MaxDelay)
	case l.Jitter < 0 || l.Jitter > l.Delay:
		return fmt.Errorf("link: jitter %v: want 0s to the delay, %v", l.Jitter, l.Delay)
	case l.Trust != "" && l.Trust != TrustPCP && l.Trust != TrustDSCP:
		return fmt.Errorf("link: trust %q: want %s or %s", l.Trust, TrustPCP, TrustDSCP)
	case l.PFC.Of != 0 && l.Trust == "":
		return fmt.Errorf("link: pfc of priorities %v without trust: want a trust of %s or %s", l.PFC.Of, TrustDSCP,
			TrustPCP)
	case l.Reorder != 0 && l.Delay == 0:
		return fmt.Errorf("link: reorder probability %v without a delay: want 0, or a delay for frames to overtake in",
			l.Reorder)
	}
	err := cmp.Or(inRange("burst", l.Burst, 0, MaxBurst), probability("loss", l.Loss),
		probability("reorder", l.Reorder), inRange("buffer", l.Buffer, 0, MaxBuffer),
		inRange("ecn min", l.ECN.Min, 0, MaxBuffer), probability("ecn", l.ECN.Probability))
	if err == nil && l.ECN != (RED{}) {
		err = inRange("ecn max", l.ECN.Max, l.ECN.Min, MaxBuffer)
	}
	if err != nil || l.PFC == (PFC{}) {
		return err
	}
	return cmp.Or(inRange("pfc high", l.PFC.High, 1, cmp.Or(l.Buffer, MaxBuffer)),
		inRange("pfc low", l.PFC.Low, 0, l.PFC.High))
}
