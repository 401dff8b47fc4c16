package connectx

import (
	"encoding/binary"
	"time"

	"github.com/rackless/rackless/rdma/vfiouser"
)

// Geometry of the function.
const (
	barSize = 32 << 20
	// The driver asks for 1 vector for asynchronous events and one for each CPU; it does not load without MSI-X.
	vectors   = 32
	uarBase   = 0x10000 // doorbell pages start at page 16 of the BAR
	pageSize  = 4096
	msixTable = 0x2000 // QEMU emulates table and pending bits
	msixPBA   = 0x3000
)

// Places in configuration space.
const (
	cfgCommand = 0x04
	cfgBAR0    = 0x10
	cfgPM      = 0x40
	cfgExp     = 0x60
	cfgMSIX    = 0x9c
	cfgDevCtl  = cfgExp + 8
	cfgACS     = 0x100
)

// model is what distinguishes adapters. Firmware versions are those of real releases. In 14.1023 the minor is beyond
// what the kernel's quirk for INTx knows, and it warns at each hotplug.
type model struct {
	device       uint16
	major, minor uint32 // of the firmware; the kernel's quirk for INTx masking expects a minor of 99 or less
	sub          uint32
	psid         string
	width        byte   // PCIe lanes
	rate         int64  // of a port, in bits per second
	hardware     uint16 // id of the chip, as tools read it
	part, text   string // name and description of the board
	vpi          bool   // the board can do InfiniBand too, so its firmware has a type of link
}

// Rate returns the rate of a model's ports in bits per second, or 0 for one that is unknown.
func Rate(name string) int64 { return models[name].rate }

// Device ids as in the table of mlx5_core (main.c). Both report one port; a card with two is two functions.
var models = map[string]model{
	"":          connectX4Lx,
	ConnectX4Lx: connectX4Lx,
	ConnectX5: {0x1017, 16, 35, 1012, "MT_0000000008", 16, 100e9, 0x20d, "MCX556A-ECA_Ax",
		"ConnectX-5 VPI adapter card; EDR IB (100Gb/s) and 100GbE; dual-port QSFP28; PCIe3.0 x16", true},
}

var connectX4Lx = model{0x1015, 14, 32, 1010, "MT_2420110034", 8, 25e9, 0x20b, "MCX4121A-ACA_Ax",
	"ConnectX-4 Lx EN network interface card; 25GbE dual-port SFP28; PCIe3.0 x8", false}

var le, be = binary.LittleEndian, binary.BigEndian

// hardReset is power on, or a function level reset. The interrupt pin stays 0, since no INTx is served. BAR 0 has 32
// MiB, prefetchable: behind a root port it needs pref64-reserve at hotplug, or the guest has no space to assign. The
// port's lock is held, or nobody knows the port yet.
func (p *Port) hardReset() {
	p.config, p.configChanged = [4096]byte{}, true
	c := p.config[:]
	le.PutUint16(c[0:], 0x15b3)
	le.PutUint16(c[2:], p.model.device)
	le.PutUint16(c[6:], 0x10) // has capabilities
	c[11] = 2                 // network controller
	c[cfgBAR0] = 0xc          // 64 bits, prefetchable
	le.PutUint16(c[0x2c:], 0x15b3)
	le.PutUint16(c[0x2e:], 3)
	c[0x34] = cfgExp
	c[cfgExp], c[cfgExp+1] = 0x10, cfgMSIX
	le.PutUint16(c[cfgExp+2:], 2)                                // an endpoint
	le.PutUint32(c[cfgExp+4:], 0x10008fe2)                       // can reset itself
	le.PutUint32(c[cfgExp+12:], 0x7803|uint32(p.model.width)<<4) // 8 GT/s
	le.PutUint16(c[cfgExp+18:], 0x1003|uint16(p.model.width)<<4)
	le.PutUint32(c[cfgExp+0x2c:], 0xe) // 2.5 to 8 GT/s
	le.PutUint16(c[cfgExp+0x30:], 3)
	c[cfgMSIX], c[cfgMSIX+1] = 0x11, cfgPM
	le.PutUint16(c[cfgMSIX+2:], vectors-1)
	le.PutUint32(c[cfgMSIX+4:], msixTable)
	le.PutUint32(c[cfgMSIX+8:], msixPBA)
	c[cfgPM] = 1
	le.PutUint16(c[cfgPM+2:], 3)
	// Access control services of which none can be switched off: the functions of a card do not reach each other, and
	// each is an IOMMU group of its own.
	le.PutUint32(c[cfgACS:], 1<<16|0xd)
	if p.icmd = (icmd{}); p.nic.VF == 0 {
		p.vscReset()
	}
	if p.fault.ofFirmware() {
		p.fault, p.crashed, p.broken = Healthy, "", false
		p.faults++
	}
	p.dropState()
	p.shareLink()
	p.NICMode = nicDisabled // until a driver enters its command queue
}

// function is the port as QEMU sees it. Its methods come from the thread of the connection, one at a time, and take the
// port's lock: the timer and other ports use the port meanwhile.
type function Port

// Connected implements vfiouser.Device.
func (f *function) Connected() {
	p := (*Port)(f)
	p.lock()
	p.connected = true
	p.unlock()
	f.Reset()
}

// Disconnected implements vfiouser.Device.
func (f *function) Disconnected() {
	p := (*Port)(f)
	p.lock()
	defer p.unlock()
	p.connected = false
	p.hardReset()
}

// Reset implements vfiouser.Device. QEMU resets a device when it connects, which must not undo Restore: a restored
// guest resumes in the middle of its work. The first access to the BAR says that this is over.
func (f *function) Reset() {
	p := (*Port)(f)
	p.lock()
	defer p.unlock()
	if !p.restored {
		p.nic.Firmware.reset()
		p.hardReset()
	}
}

// registers is what reads of configuration space and of the initialization segment show, apart from clock and counters.
type registers struct {
	cmdQHigh, cmdQLow uint32
	off               bool // all ones are read
	stopped           bool // the firmware is
	restored          bool // the next access has more to do than to read
	config            *[4096]byte
}

func (p *Port) registers() registers {
	if p.configCopy == nil || p.configChanged {
		c := p.config
		p.configCopy, p.configChanged = &c, false
	}
	return registers{p.CmdQHigh, uint32(p.CmdQ)&^0xfff | p.NICMode<<8 | logCmds<<4 | logCmdStride,
		p.gone || p.fault == OffTheBus, p.fault.stops(), p.restored, p.configCopy}
}

// publish shows the registers as they are now to reads that come without the lock. The port's lock is held.
func (p *Port) publish() {
	r := p.registers()
	if old := p.shown.Load(); old == nil || *old != r {
		shown := r // a copy, so that r need not be on the heap
		p.shown.Store(&shown)
	}
}

// ReadNow implements vfiouser.Device. Whoever holds the port's lock may wait for memory of this guest, which QEMU does
// not read before the guest's own read of a register is answered.
func (f *function) ReadNow(region int, off uint64, b []byte) bool {
	p := (*Port)(f)
	r := p.shown.Load()
	switch {
	case r.off:
	case region == vfiouser.RegionConfig:
		if p.vscTicket(off, len(b)) {
			return false
		}
		copy(b, r.config[off:])
		// A kernel finds no function here. QEMU, which reads all at once, does not ask for the first word alone.
		if off == 0 && len(b) <= 4 && p.nic.VF > 0 && p.nic.VF > p.nic.Firmware.VFs() {
			for i := range b {
				b[i] = 0xff
			}
		}
		return true
	case r.restored:
		return false
	}
	// A read may have any length and place; each byte is made on its own.
	for i := range b {
		switch at := off + uint64(i); {
		case r.off:
			b[i] = 0xff
		case at < pageSize+0x100:
			b[i] = p.initSegment(r, at)
		}
	}
	return true
}

// Read implements vfiouser.Device.
func (f *function) Read(region int, off uint64, b []byte) {
	if f.ReadNow(region, off, b) {
		return
	}
	p := (*Port)(f)
	p.lock()
	defer p.unlock()
	switch {
	case p.gone || p.fault == OffTheBus:
		for i := range b {
			b[i] = 0xff
		}
	case region == vfiouser.RegionConfig:
		c := p.config[vscCounter:]
		le.PutUint32(c, max(1, le.Uint32(c)+1))
		p.configChanged = true
		copy(b, p.config[off:])
	case off < pageSize+0x100:
		p.resumed()
		p.publish()
		f.ReadNow(region, off, b)
	}
}

// Write implements vfiouser.Device.
func (f *function) Write(region int, off uint64, b []byte) {
	p := (*Port)(f)
	p.lock()
	defer p.unlock()
	switch {
	case p.gone || p.fault == OffTheBus:
	case region == vfiouser.RegionConfig:
		p.configWrite(off, b)
	case off >= uarBase:
		p.resumed()
		p.doorbell(uint32(off%pageSize), b)
	default:
		p.resumed()
		p.initWrite(off, b)
	}
}

// resumed notes that a restored guest runs. An interrupt that was on its way when its template stopped has been lost:
// it is raised again, or the driver would wait for ever.
func (p *Port) resumed() {
	if !p.restored {
		return
	}
	p.restored = false
	for _, e := range p.EQs {
		if e.PI != e.CI {
			p.vfu.Interrupt(int(e.Vector))
		}
	}
}

// writable are the bits of configuration space that software can change, apart from the BAR.
var writable = map[uint64]byte{cfgCommand: 0x47, cfgCommand + 1: 0x05, 0x0c: 0xff, 0x3c: 0xff,
	cfgPM + 4: 0x03, cfgPM + 5: 0x01, cfgDevCtl: 0xff, cfgDevCtl + 1: 0x7f, cfgExp + 16: 0xc3, cfgExp + 17: 0x0f,
	cfgExp + 0x28: 0x1f, cfgExp + 0x29: 0xe4, cfgExp + 0x30: 0x3f, cfgMSIX + 3: 0xc0}

// configWrite changes configuration space. QEMU passes on what the guest writes, apart from what it emulates itself
// (MSI-X). All other bits are read-only, so that a guest cannot make up another device. A function level reset must
// work, as VFIO in the guest uses it before it hands the adapter on.
func (p *Port) configWrite(off uint64, b []byte) {
	p.configChanged = true
	if off >= vscControl && off < cfgVSC+vscSize && p.nic.VF == 0 {
		if len(b) == 4 && off%4 == 0 {
			p.vscWrite(off, le.Uint32(b))
		}
		return
	}
	for i, v := range b {
		at := off + uint64(i)
		switch {
		case at == cfgDevCtl+1 && v&0x80 != 0: // initiate function level reset
			p.resets++
			p.hardReset()
			return
		// Bits below the size read as zeros: thereby software measures the BAR.
		case at == cfgBAR0+3:
			p.config[at] = v & ^byte(barSize>>24-1)
		case at >= cfgBAR0+4 && at < cfgBAR0+8:
			p.config[at] = v
		default:
			m := writable[at]
			p.config[at] = p.config[at]&^m | v&m
		}
	}
}

// The initialization segment (struct mlx5_init_seg of the kernel's linux/mlx5/device.h), at the start of the BAR,
// big-endian. What is not listed reads as zeros: so does "initializing" at 0x1fc, for which the driver waits at its
// start.
const (
	segCmdQHigh = 0x10
	segCmdQLow  = 0x14
	segDoorbell = 0x18
	segInit     = 0x1fc // bit 31: it initializes; bit 30: the driver can reset it
	segSeverity = 0x238 // of the health buffer; the top bit asks for a reset
	segSyndrome = 0x23d
	segTimer    = 0x1000
	segCounter  = 0x1010
)

const (
	canReset = 1 << 6
	nicReset = 7 // in nic_interface: the driver resets the firmware (MLX5_NIC_IFC_SW_RESET)
)

// nicDisabled is what nic_interface says after a reset (MLX5_NIC_IFC_DISABLED). The poll of health.c sees it, so a
// driver that did not expect the reset recovers instead of waiting for its commands.
const nicDisabled = 1

// clockHz is the frequency of the adapter's clock.
const clockHz = 156250000

// ticks is the clock of time stamps. The seconds are taken apart, since the product would overflow after two minutes.
func (p *Port) ticks() uint64 {
	d := p.s.now()
	return uint64(d/time.Second)*clockHz + uint64(d%time.Second)*clockHz/uint64(time.Second)
}

// initSegment returns a byte of the segment. Revision 5 of the command interface is the one that cmd.c accepts.
func (p *Port) initSegment(r *registers, at uint64) byte {
	var w [8]byte
	switch at &^ 7 {
	case 0:
		be.PutUint32(w[:], p.model.minor<<16|p.model.major)
		be.PutUint32(w[4:], 5<<16|p.model.sub)
	case segCmdQHigh:
		be.PutUint32(w[:], r.cmdQHigh)
		be.PutUint32(w[4:], r.cmdQLow)
	case segInit &^ 7:
		w[segInit&7] = canReset
	case segSyndrome &^ 7:
		if r.stopped {
			w[segSeverity&7], w[segSyndrome&7] = 0x80, fatalSyndrome
		}
	case segTimer:
		be.PutUint64(w[:], p.ticks())
	case segCounter: // the driver takes an adapter whose counter stands still for dead
		if at == segCounter && !r.stopped {
			p.beat.Add(1)
		}
		be.PutUint32(w[:], p.beat.Load())
	}
	return w[at&7]
}

// initWrite takes a write to the segment. The address of the command queue comes in two halves, the low one last, with
// nic_interface in bits 8 and 9. A command may run for milliseconds; the guest's write was posted and does not wait.
func (p *Port) initWrite(off uint64, b []byte) {
	if len(b) == 8 && off%8 == 0 {
		p.initWrite(off, b[:4])
		off, b = off+4, b[4:]
	}
	if len(b) != 4 {
		return
	}
	v := be.Uint32(b)
	switch off {
	case segCmdQHigh:
		p.CmdQHigh = v
	case segCmdQLow:
		if v>>8&7 == nicReset {
			p.softReset()
			return
		}
		p.NICMode = v >> 8 & 3
		p.CmdQ = uint64(p.CmdQHigh)<<32 | uint64(v&^0xfff)
	case segDoorbell:
		for i := range 1 << logCmds {
			if v>>i&1 != 0 && !p.fault.ofFirmware() {
				p.command(uint64(i))
			}
		}
	}
}
