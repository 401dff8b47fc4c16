package roce

import "time"

// PortConfig is what a port keeps for life.
type PortConfig struct {
	Wire Wire
	Rate uint64 // bits/s on the cable; 0: as fast as it is polled
	// Congestion is read on each use, so that a device may change parameters at any time; nil: defaults.
	Congestion *Congestion
}

// Port sends the frames of its QPs, and others, at the rate of a cable, and gives arriving frames to its QPs.
type Port struct {
	Counters PortCounters
	cfg      PortConfig
}

// NewPort returns a port without QPs.
func NewPort(cfg PortConfig) *Port { return &Port{cfg: cfg} }

// NewQP adds a QP in state Reset. Its number must be free.
func (p *Port) NewQP(cfg QPConfig) (*QP, error) { return nil, nil }

// Remove takes a QP away, with all that it has in flight, and completes nothing.
func (p *Port) Remove(q *QP) {}

// SetRate changes the rate of the port, in bits/s.
func (p *Port) SetRate(now time.Duration, rate uint64) {}

// SetLink takes the link up or down: while it is down nothing is sent, and timers run.
func (p *Port) SetLink(now time.Duration, up bool) {}

// Enqueue queues a frame of the host's own stack, in a priority, behind the ones before it. It copies the frame, and
// drops it where the queue is full.
func (p *Port) Enqueue(frame []byte, prio uint8) bool { return false }

// Receive takes a frame from the wire. False: it is neither RoCE v2 nor a pause frame, so it is the host's.
func (p *Port) Receive(now time.Duration, frame []byte) bool { return false }

// Poll runs what is due and sends what may be sent. Call it after Receive and Doorbell, and again at next, which is
// negative if nothing is waited for. It sends a bounded number of frames: next may be now.
func (p *Port) Poll(now time.Duration) (next time.Duration) { return -1 }

// QP is a queue pair.
type QP struct{}

// Modify moves the QP to a state and takes over a. Reset forgets everything; Failed flushes.
func (q *QP) Modify(now time.Duration, to State, a *Attr) error { return nil }

// State is the state, which a failure changes too.
func (q *QP) State() State { return Reset }

// PSNs are the next to be expected and to be sent, as QUERY_QP shows them.
func (q *QP) PSNs() (recv, send uint32) { return 0, 0 }

// Doorbell says that send requests were posted; in state Failed, that there is something to flush. Receives need none,
// but a peer that waits for one is answered sooner.
func (q *QP) Doorbell(now time.Duration) {}
