package connectx

import (
	"slices"
	"time"
)

// Fault is a way in which an adapter fails, for tests of what notices it.
type Fault string

// Faults. Those of the link last until SetFault ends them; those of the firmware end with a reset of the adapter too.
//
// The driver's own timers notice the latter: a command after 60 s (cmd.c), a fatal error or an absent card at the next
// poll of the health buffer, every 2 s (health.c).
const (
	Healthy      Fault = ""
	Unplugged    Fault = "cable"        // the cable is out of its cage
	Flapping     Fault = "flap"         // the link goes down and up again
	HungCommands Fault = "hung-command" // the firmware takes commands and answers none
	FatalError   Fault = "fw-fatal"     // the firmware has stopped, and says so in its health buffer
	Assertion    Fault = "fw-assert"    // likewise, and the reset by which the driver recovers it helps
	OffTheBus    Fault = "off-bus"      // all reads give ones, as from a card that has lost its PCIe link
)

// Faults lists all faults.
func Faults() []Fault {
	return []Fault{Unplugged, Flapping, HungCommands, FatalError, Assertion, OffTheBus}
}

// ofFirmware says that a reset ends the fault.
func (f Fault) ofFirmware() bool { return f == HungCommands || f.stops() || f == OffTheBus }

// stops says that the firmware has stopped.
func (f Fault) stops() bool { return f == FatalError || f == Assertion }

// flapTime is how long the link of a flapping port is down, and then up.
const flapTime = time.Second

// SetFault makes the adapter fail, in place of an earlier fault, or work again.
func (p *Port) SetFault(f Fault) {
	p.lock()
	defer p.unlock()
	was := p.fault
	if was == f {
		return
	}
	switch {
	case was == HungCommands:
		p.fault = Healthy
		p.late()
	// The firmware has started again, and knows nothing of what was.
	case was.ofFirmware():
		p.restart()
	}
	p.fault, p.crashed = f, ""
	p.faults++
	if f == Healthy {
		p.downAt = nil
	}
	switch Unplugged {
	case f:
		p.moduleEvent(moduleUnplugged)
	case was:
		p.moduleEvent(modulePlugged)
	}
	p.cut(f != Healthy && f != HungCommands)
	if f == Flapping {
		p.flap(p.faults)
	}
}

// late runs the commands that came while none was answered. The driver still waits for them, or has given them up.
func (p *Port) late() {
	for i := range uint64(1) << logCmds {
		p.command(i)
	}
}

// cut takes the link down because of a fault, or up again.
func (p *Port) cut(on bool) {
	if p.broken == on {
		return
	}
	was := p.up()
	p.broken = on
	p.linkChanged(was)
}

// flap takes the link up or down after flapTime, again and again until the fault is another one.
func (p *Port) flap(fault int) {
	time.AfterFunc(flapTime, func() {
		p.lock()
		defer p.unlock()
		if p.faults == fault && !p.gone {
			p.cut(!p.broken)
			p.flap(fault)
		}
	})
}

// follow gives the virtual functions of a cable the link of its port, one after the other: who changed that holds the
// port's lock, and each has its own.
func (s *Server) follow(c *Cable) {
	s.mu.RLock()
	ports := s.ports
	s.mu.RUnlock()
	for _, p := range ports {
		if p.nic.Cable == c && p.nic.VF > 0 {
			p.setDark(c.dark.Load())
		}
	}
}

func (p *Port) setDark(dark bool) {
	p.lock()
	defer p.unlock()
	was := p.up()
	p.dark = dark
	p.linkChanged(was)
}

// shareLink has the virtual functions follow the link of the cable, and not what the driver of the
// physical one wants of its own, and the port at the other end of the cable the light of this one.
func (p *Port) shareLink() {
	if p.gone || p.nic.VF > 0 {
		return
	}
	if c := p.nic.Cable; c != nil {
		if dark := !p.link || p.broken; c.dark.Swap(dark) != dark {
			go p.s.follow(c)
		}
	}
	if light := p.shines(); p.far != nil && p.light.Swap(light) != light {
		go p.far.seeFar()
	}
}

// shines says whether the other end of the cable sees the port: the cable is in, the adapter works, and its driver
// wants the link, or its firmware keeps it up all the same, as it does by default.
func (p *Port) shines() bool {
	return !p.broken && (!p.AdminDown || p.nic.Firmware.keepsLink(p.nic.Port))
}

// seeFar gives the port the link that the other end of its cable allows. Its light is read with the lock held, so that
// of several changes the last one counts.
func (p *Port) seeFar() {
	p.lock()
	defer p.unlock()
	was := p.up()
	p.link = p.far.light.Load()
	p.linkChanged(was)
}

// linkChanged tells the driver that the link is another than it was, if it is.
func (p *Port) linkChanged(was bool) {
	p.shareLink()
	if p.up() == was {
		return
	}
	if was {
		p.count.linkDowns++
		p.downs++
		p.downAt = append(p.downAt, p.s.now())
		p.downAt = p.downAt[max(0, len(p.downAt)-flaps):]
	}
	p.portEvent()
}

// A link that went down flaps times within flapWindow is one that flaps.
const (
	flaps      = 3
	flapWindow = time.Minute
)

// Module events (struct mlx5_eqe_port_module). The driver prints "Port module event: module 0, Cable unplugged", and
// counts it (module_unplug of ethtool -S).
const (
	modulePlugged   = 1
	moduleUnplugged = 2
)

func (p *Port) moduleEvent(status byte) {
	var d [28]byte
	d[3] = status
	p.async(eventModule, 0, d)
}

// ResetFunction resets the adapter without the guest's doing. Its configuration space stays, as the guest would not
// know that it has to be set up again. The driver finds the firmware without its tables, and recovers.
func (p *Port) ResetFunction() {
	p.lock()
	defer p.unlock()
	p.restart()
}

// restart is a reset that leaves configuration space alone.
func (p *Port) restart() {
	config := p.config
	p.hardReset()
	p.config, p.configChanged, p.restored = config, true, false
	p.resets++
}

// softReset is the reset of a stopped firmware by the driver (mlx5_error_sw_reset of health.c), which waits for the
// interface to be disabled.
func (p *Port) softReset() {
	if p.fault == Assertion {
		p.restart()
	}
	p.NICMode = nicDisabled
}

// Status is how an adapter is.
type Status struct {
	Connected bool // a machine has the adapter
	Driver    bool // and its driver has set it up
	Up        bool // the port carries frames
	Flaps     bool // the link went down several times within a minute
	Fault     Fault
	Crash     string // the panic of this program that the fault is, if it is one
	LinkDowns uint64 // how often the link went down
	Resets    uint64 // of the function
}

// Status says how the adapter is.
func (p *Port) Status() Status {
	p.lock()
	defer p.unlock()
	recent := slices.DeleteFunc(slices.Clone(p.downAt), func(at time.Duration) bool {
		return at < p.s.now()-flapWindow
	})
	return Status{Connected: p.connected, Driver: p.CmdQ != 0 && len(p.EQs) > 0, Up: p.up(), Fault: p.fault,
		Crash: p.crashed, Flaps: len(recent) >= flaps, LinkDowns: p.downs, Resets: p.resets}
}

// fatalSyndrome is what the health buffer says: an error of the firmware's (MLX5_HEALTH_SYNDR_FW_ERR).
const fatalSyndrome = 1
