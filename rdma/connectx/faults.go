package connectx

import (
	"slices"
	"time"
)

// Fault is a failure, for tests of programs that must notice it.
type Fault string

// Faults of the link last until SetFault ends them, faults of the firmware also until a reset of the adapter.
//
// The driver notices a hung command after 60 s (cmd.c), a fatal error or an absent card at the next poll of the health
// buffer, every 2 s (health.c).
const (
	Healthy      Fault = ""
	Unplugged    Fault = "cable"        // the cable is unplugged
	Flapping     Fault = "flap"         // the link goes down and up again
	HungCommands Fault = "hung-command" // commands get no answer
	FatalError   Fault = "fw-fatal"     // the firmware has stopped, as its health buffer says
	Assertion    Fault = "fw-assert"    // FatalError that the driver's reset recovers
	OffTheBus    Fault = "off-bus"      // all reads return ones, as without a PCIe link
)

// Faults lists all faults.
func Faults() []Fault {
	return []Fault{Unplugged, Flapping, HungCommands, FatalError, Assertion, OffTheBus}
}

// ofFirmware reports whether a reset ends the fault.
func (f Fault) ofFirmware() bool { return f == HungCommands || f.stops() || f == OffTheBus }

func (f Fault) stops() bool { return f == FatalError || f == Assertion }

const flapTime = time.Second

// SetFault replaces an earlier fault; Healthy ends it.
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
	// The firmware restarts and loses its state.
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

// late runs commands that hung, even if the driver has given them up.
func (p *Port) late() {
	for i := range uint64(1) << logCmds {
		p.command(i)
	}
}

func (p *Port) cut(on bool) {
	if p.broken == on {
		return
	}
	was := p.up()
	p.broken = on
	p.linkChanged(was)
}

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

// follow runs without the port's lock, because each virtual function has its own.
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

// shareLink tells virtual functions of the cable and the faults, but not of the physical driver's setting. The port at
// the other end follows this port's light.
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

// shines reports whether the other end sees a link: the adapter works, and its driver wants the link or its firmware
// keeps it up, as by default.
func (p *Port) shines() bool {
	return !p.broken && (!p.AdminDown || p.nic.Firmware.keepsLink(p.nic.Port))
}

// seeFar reads the light with the lock held, so that the last of several changes wins.
func (p *Port) seeFar() {
	p.lock()
	defer p.unlock()
	was := p.up()
	p.link = p.far.light.Load()
	p.linkChanged(was)
}

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

// A link flaps if it went down flaps times within flapWindow.
const (
	flaps      = 3
	flapWindow = time.Minute
)

// struct mlx5_eqe_port_module. The driver prints "Port module event: module 0, Cable unplugged", and counts them
// (module_unplug of ethtool -S).
const (
	modulePlugged   = 1
	moduleUnplugged = 2
)

func (p *Port) moduleEvent(status byte) {
	var d [28]byte
	d[3] = status
	p.async(eventModule, 0, d)
}

// ResetFunction acts behind the guest's back. The configuration space stays, because the guest would not set it up
// again. The driver finds the firmware without its tables, and recovers.
func (p *Port) ResetFunction() {
	p.lock()
	defer p.unlock()
	p.restart()
}

// restart keeps the configuration space.
func (p *Port) restart() {
	config := p.config
	p.hardReset()
	p.config, p.configChanged, p.restored = config, true, false
	p.resets++
}

// softReset answers mlx5_error_sw_reset of health.c, for a stopped firmware. The driver then waits for the interface to
// be disabled.
func (p *Port) softReset() {
	if p.fault == Assertion {
		p.restart()
	}
	p.NICMode = nicDisabled
}

// Status is the state of an adapter.
type Status struct {
	Connected bool // to a machine
	Driver    bool // has set the adapter up
	Up        bool // the port carries frames
	Flaps     bool // down at least 3 times within a minute
	Fault     Fault
	Crash     string // this program's panic as the cause, or ""
	LinkDowns uint64
	Resets    uint64 // of this function
	Refused   uint64 // claims of another adapter's address
}

// Status returns the adapter's state.
func (p *Port) Status() Status {
	p.lock()
	defer p.unlock()
	recent := slices.DeleteFunc(slices.Clone(p.downAt), func(at time.Duration) bool {
		return at < p.s.now()-flapWindow
	})
	return Status{Connected: p.connected, Driver: p.CmdQ != 0 && len(p.EQs) > 0, Up: p.up(), Fault: p.fault,
		Crash: p.crashed, Flaps: len(recent) >= flaps, LinkDowns: p.downs, Resets: p.resets,
		Refused: p.refused}
}

// fatalSyndrome is MLX5_HEALTH_SYNDR_FW_ERR.
const fatalSyndrome = 1
