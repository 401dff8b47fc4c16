package connectx

import (
	"encoding/binary"
	"time"

	"github.com/rackless/rackless/rdma/vfiouser"
)

const (
	barSize = 32 << 20
	// The driver asks for 1 vector for asynchronous events and one for each CPU; it does not load without MSI-X.
	vectors   = 32
	uarBase   = 0x10000 // page 16 of the BAR
	pageSize  = 4096
	msixTable = 0x2000 // emulated by QEMU
	msixPBA   = 0x3000
)

const (
	cfgCommand = 0x04
	cfgBAR0    = 0x10
	cfgPM      = 0x40
	cfgExp     = 0x60
	cfgMSIX    = 0x9c
	cfgDevCtl  = cfgExp + 8
	cfgACS     = 0x100
)

// model has real firmware versions. The minor of 14.1023 is beyond the kernel's quirk for INTx, so it warns at each
// hotplug.
type model struct {
	device       uint16
	major, minor uint32 // the kernel's quirk for INTx expects a minor of 99 or less
	sub          uint32
	psid         string
	lanes, gen   byte   // of PCIe
	rate         int64  // of a port, in bits per second
	hardware     uint16 // chip id for tools
	part, text   string // name and description of the board
	vpi          bool   // with InfiniBand, so the firmware has a link type
	function     uint16 // device id of virtual functions
}

// Models returns the names of all models.
func Models() []string { return []string{ConnectX4Lx, ConnectX5, ConnectX6, ConnectX7} }

// Rate returns bits per second, or 0 for an unknown model.
func Rate(name string) int64 { return models[name].rate }

// Device ids are mlx5_core's (main.c). A card with two ports is two functions.
var models = map[string]model{
	"":          connectX4Lx,
	ConnectX4Lx: connectX4Lx,
	ConnectX5: {0x1017, 16, 35, 1012, "MT_0000000008", 16, 3, 100e9, 0x20d, "MCX556A-ECA_Ax",
		"ConnectX-5 VPI adapter card; EDR IB (100Gb/s) and 100GbE; dual-port QSFP28; PCIe3.0 x16", true, 0x1018},
	ConnectX6: {0x101b, 20, 35, 1012, "MT_0000000223", 16, 4, 200e9, 0x20f, "MCX653105A-HDA_Ax",
		"ConnectX-6 VPI adapter card; HDR IB (200Gb/s) and 200GbE; single-port QSFP56; PCIe4.0 x16", true, 0x101c},
	ConnectX7: {0x1021, 28, 35, 1012, "MT_0000000838", 16, 5, 400e9, 0x218, "MCX75310AAS-NEA_Ax",
		"ConnectX-7 HHHL adapter card; 400GbE / NDR IB (default mode); single-port OSFP; PCIe5.0 x16", true, 0x101e},
}

var connectX4Lx = model{0x1015, 14, 32, 1010, "MT_2420110034", 8, 3, 25e9, 0x20b, "MCX4121A-ACA_Ax",
	"ConnectX-4 Lx EN network interface card; 25GbE dual-port SFP28; PCIe3.0 x8", false, 0x1016}

var le, be = binary.LittleEndian, binary.BigEndian

// hardReset does a power-on or function level reset. The interrupt pin stays 0, since INTx is not supported. BAR 0 has
// 32 MiB and is prefetchable; behind a root port it needs pref64-reserve at hotplug, or the guest has no space for it.
// The port's lock is held, unless it is not in use yet.
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
	le.PutUint16(c[cfgExp+2:], 2)          // an endpoint
	le.PutUint32(c[cfgExp+4:], 0x10008fe2) // supports function level reset
	lanes, gen := uint32(p.model.lanes)<<4, uint32(p.model.gen)
	le.PutUint32(c[cfgExp+12:], 0x7800|lanes|gen)
	le.PutUint16(c[cfgExp+18:], uint16(0x1000|lanes|gen))
	le.PutUint32(c[cfgExp+0x2c:], 1<<(gen+1)-2) // a bit for each generation up to this
	le.PutUint16(c[cfgExp+0x30:], uint16(gen))
	c[cfgMSIX], c[cfgMSIX+1] = 0x11, cfgPM
	le.PutUint16(c[cfgMSIX+2:], vectors-1)
	le.PutUint32(c[cfgMSIX+4:], msixTable)
	le.PutUint32(c[cfgMSIX+8:], msixPBA)
	c[cfgPM] = 1
	le.PutUint16(c[cfgPM+2:], 3)
	// These access control services cannot be switched off: functions of a card do not reach each other, and each is an
	// IOMMU group of its own.
	le.PutUint32(c[cfgACS:], 1<<16|0xd)
	if p.icmd = (icmd{}); p.nic.VF == 0 {
		p.vscReset()
	}
	if p.fault.ofFirmware() {
		p.fault, p.crashed, p.broken = Healthy, "", false
		p.faults++
	}
	p.private.Store(false)
	p.dropState()
	p.shareLink()
	p.NICMode = nicDisabled // until a driver sets its command queue
}

// function is the port as QEMU sees it. Methods lock it, because the timer and other ports use it.
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

// Reset must not undo Restore when QEMU connects: a restored guest resumes in the middle of its work.
func (f *function) Reset() {
	p := (*Port)(f)
	p.lock()
	defer p.unlock()
	if !p.restored {
		if p.nic.VF == 0 {
			p.nic.Firmware.reset()
		}
		p.hardReset()
	}
}

// registers is the readable state without clock and counters.
type registers struct {
	cmdQHigh, cmdQLow uint32
	off               bool // all reads return ones
	stopped           bool // the firmware has stopped
	restored          bool // the next access does more than read
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

// publish makes registers visible to reads without the lock. The port's lock is held.
func (p *Port) publish() {
	r := p.registers()
	if old := p.shown.Load(); old == nil || *old != r {
		shown := r // so that r need not be on the heap
		p.shown.Store(&shown)
	}
}

// ReadNow does not lock the port: the holder may wait for memory of this guest, which QEMU does not access before it
// has the answer to the guest's read of a register.
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
		// A kernel must not find a disabled virtual function. QEMU needs the whole space, and never reads the first
		// word alone.
		if off == 0 && len(b) <= 4 && p.nic.VF > 0 && p.nic.VF > p.nic.Firmware.VFs() {
			for i := range b {
				b[i] = 0xff
			}
		}
		return true
	case r.restored:
		return false
	}
	// A read may have any length and offset.
	for i := range b {
		switch at := off + uint64(i); {
		case r.off:
			b[i] = 0xff
		case at < pageSize+0x100:
			b[i] = p.initSegment(r, at)
		case at >= memicBase:
			copy(b[i:i+1], p.memory.at(at, 1))
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
	case off >= memicBase:
		copy(p.memory.at(off, uint64(len(b))), b)
	case off >= uarBase:
		p.resumed()
		p.doorbell(uint32(off%pageSize), b)
	default:
		p.resumed()
		p.initWrite(off, b)
	}
}

// resumed handles a restored guest's first access. An interrupt that was pending before is lost, so it is raised again,
// or the driver would wait forever.
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

// writable are the bits that software can change, apart from the BAR.
var writable = map[uint64]byte{cfgCommand: 0x47, cfgCommand + 1: 0x05, 0x0c: 0xff, 0x3c: 0xff,
	cfgPM + 4: 0x03, cfgPM + 5: 0x01, cfgDevCtl: 0xff, cfgDevCtl + 1: 0x7f, cfgExp + 16: 0xc3, cfgExp + 17: 0x0f,
	cfgExp + 0x28: 0x1f, cfgExp + 0x29: 0xe4, cfgExp + 0x30: 0x3f, cfgMSIX + 3: 0xc0}

// configWrite keeps all bits but writable ones, so that a guest cannot turn it into another device. QEMU emulates MSI-X
// itself. A function level reset must work, because VFIO in the guest uses it before it passes the adapter on.
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
		// Software measures the BAR by bits below the size.
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

// struct mlx5_init_seg of linux/mlx5/device.h is at the start of the BAR and big-endian. Other offsets read as zeros.
const (
	segCmdQHigh = 0x10
	segCmdQLow  = 0x14
	segDoorbell = 0x18
	segInit     = 0x1fc // bit 31: initializing (the driver waits for 0); bit 30: the driver can reset the firmware
	segSeverity = 0x238 // health buffer; the top bit requests a reset
	segSyndrome = 0x23d
	segTimer    = 0x1000
	segCounter  = 0x1010
)

const (
	canReset = 1 << 6
	nicReset = 7 // MLX5_NIC_IFC_SW_RESET: the driver resets the firmware
)

// nicDisabled is nic_interface after a reset (MLX5_NIC_IFC_DISABLED). health.c polls it, so a driver that did not
// expect the reset recovers.
const nicDisabled = 1

const clockHz = 156250000

// ticks converts seconds separately, because the product would overflow after two minutes.
func (p *Port) ticks() uint64 {
	d := p.s.now()
	return uint64(d/time.Second)*clockHz + uint64(d%time.Second)*clockHz/uint64(time.Second)
}

// initSegment returns a byte. cmd.c accepts revision 5 of the command interface.
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
	case segCounter: // the driver takes an adapter for dead if it stops
		if at == segCounter && !r.stopped {
			p.beat.Add(1)
		}
		be.PutUint32(w[:], p.beat.Load())
	}
	return w[at&7]
}

// initWrite gets the address of the command queue in two halves, the low one last, with nic_interface in bits 8 and 9.
// The guest's posted write does not wait for a command.
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
