package connectx

// Fault is a way in which an adapter fails, for tests of what notices it.
type Fault uint8

// Faults. Each lasts until the adapter is reset, or SetFault says otherwise. They are in order: from FatalError on, the
// port carries no frames.
//
// The driver's own timers notice them: a command after 60 s (cmd.c), a fatal error or an absent card at the next poll
// of the health buffer, every 2 s (health.c).
const (
	Healthy      Fault = iota
	HungCommands       // the firmware takes commands and answers none
	FatalError         // the firmware has stopped, and says so in its health buffer
	OffTheBus          // all reads give ones, as from a card that has lost its link
)

// SetFault makes the adapter fail, or work again.
func (p *Port) SetFault(f Fault) {
	p.lock()
	defer p.unlock()
	p.fault = f
}

// fatalSyndrome is what the health buffer says: an error of the firmware's (MLX5_HEALTH_SYNDR_FW_ERR).
const fatalSyndrome = 1
