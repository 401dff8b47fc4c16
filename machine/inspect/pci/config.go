// Package pci parses the configuration space of PCI functions, from sysfs or lspci, and derives the PCI tree.
package pci

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/rackless/rackless/machine/topology"
)

// PortRoot and the others are as in topology.Bridge.
const (
	PortRoot       = "root port"
	PortUpstream   = "upstream port"
	PortDownstream = "downstream port"
	PortBridge     = "pci bridge"
)

// HeaderSize and the others are from PCI Local Bus Specification 3.0, chapter 6; PCI Express Base Specification 6.0,
// chapter 7; Linux's include/uapi/linux/pci_regs.h.
const (
	HeaderSize   = 64   // readable by every user
	StandardSize = 256  // conventional PCI
	ExtendedSize = 4096 // PCI Express

	regVendor    = 0x00 // device in the upper half
	regStatus    = 0x04 // status in the upper half
	regClass     = 0x08 // revision in the lowest byte
	regHeader    = 0x0c // header type in the third byte
	regBuses     = 0x18 // primary, secondary and subordinate
	regSubsystem = 0x2c // device in the upper half
	regCapList   = 0x34

	statusCapList = 0x10 << 16
	headerNormal  = 0
	headerBridge  = 1

	capExpress = 0x10
	capACS     = 0x000d
	capATS     = 0x000f
	capSRIOV   = 0x0010
)

// A Config has the requested and readable facts.
type Config struct {
	Dead     bool           // all bits read as ones
	Vendor   *topology.ID16 // nil for virtual functions
	Device   *topology.ID16
	Class    *topology.ID24
	Revision *topology.ID8
	Bridge   *topology.Bridge // nil if not a bridge
	Link     *topology.Link   // PCI Express link, or nil
	ACS      *topology.ACS
	ATS      *bool

	NoAtomics bool // of a port, see topology.PCIDevice
	SRIOV     *topology.SRIOV

	SubsystemVendor, SubsystemDevice *topology.ID16 // nil for bridges

	HeadOnly bool // the readable part ends before the first capability
}

// A Part is read only if needed. Each register costs less than a microsecond on bare metal, 20 in some virtual
// machines.
type Part uint8

const (
	Identity     Part = 1 << iota // vendor, device, class, revision
	Subsystem                     // subsystem vendor and device
	Buses                         // and the header type
	LinkState                     // PCI Express link
	Capabilities                  // port type, ACS, ATS, SR-IOV
)

// configSpace ends early for users other than root, who can read only 64 bytes, and in dumps. That is not an error.
type configSpace struct {
	src io.ReaderAt
	err error // except the end of the file
}

func (c *configSpace) uint32(at int) (uint32, bool) {
	if at < 0 || at%4 != 0 || at+4 > ExtendedSize {
		return 0, false
	}
	var b [4]byte
	n, err := c.src.ReadAt(b[:], int64(at))
	if n < len(b) {
		if err != nil && !errors.Is(err, io.EOF) && c.err == nil {
			c.err = err
		}
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[:]), true
}

// Parse reads parts of src. It returns the first error other than the end of the file, with the facts before it.
func Parse(src io.ReaderAt, parts Part) (Config, error) {
	var c Config
	space := &configSpace{src: src}
	id, ok := space.uint32(regVendor)
	if !ok {
		return c, space.err
	}
	// A virtual function has ones as its vendor and device. If the class is ones too, the function does not respond.
	const ones = 0xffffffff
	if id == ones || parts&Identity != 0 {
		class, ok := space.uint32(regClass)
		if c.Dead = ok && id == ones && class == ones; c.Dead {
			return c, space.err
		}
		if id != ones {
			c.Vendor, c.Device = ids(id)
		}
		if ok {
			c.Class, c.Revision = new(topology.ID24(class>>8)), new(topology.ID8(class&0xff))
		}
	}
	if parts&(Buses|Subsystem) != 0 {
		header, known := space.uint32(regHeader)
		kind := header >> 16 & 0x7f
		if buses, ok := space.uint32(regBuses); ok && kind == headerBridge {
			c.Bridge = &topology.Bridge{Secondary: uint8(buses >> 8), Subordinate: uint8(buses >> 16)}
		}
		if parts&Subsystem != 0 && known && kind == headerNormal {
			if id, ok := space.uint32(regSubsystem); ok {
				c.SubsystemVendor, c.SubsystemDevice = ids(id)
			}
		}
	}
	if parts&(LinkState|Capabilities) != 0 {
		c.capabilities(space, parts)
	}
	return c, space.err
}

// ids returns the lower number first.
func ids(v uint32) (low, high *topology.ID16) {
	return new(topology.ID16(v & 0xffff)), new(topology.ID16(v >> 16))
}

// capabilities also walks the extended list of PCI Express.
func (c *Config) capabilities(space *configSpace, parts Part) {
	at := 0
	if status, ok := space.uint32(regStatus); !ok {
		return
	} else if status&statusCapList != 0 {
		first, ok := space.uint32(regCapList)
		if !ok {
			return
		}
		at = int(first) & 0xfc
	}
	// An entry has at least four bytes; a longer list is a loop.
	const most = (StandardSize - HeaderSize) / 4
	for n := 0; n < most && at >= HeaderSize; n++ {
		head, ok := space.uint32(at)
		if !ok || head == 0xffffffff {
			c.HeadOnly = !ok && n == 0 && space.err == nil
			return
		}
		if head&0xff == capExpress {
			c.express(space, at, uint16(head>>16), parts)
			if parts&Capabilities != 0 {
				c.extended(space)
			}
			return
		}
		at = int(head>>8) & 0xfc
	}
	if c.Bridge != nil && at == 0 {
		c.Bridge.Port = PortBridge // the whole list has no PCI Express capability
	}
}

func (c *Config) express(space *configSpace, at int, flags uint16, parts Part) {
	const ( // device/port types
		typeRoot, typeUpstream, typeDownstream = 4, 5, 6
		typeToPCI, typeFromPCI                 = 7, 8
		typeIntegrated, typeCollector          = 9, 10
	)
	kind := flags >> 4 & 0xf
	if c.Bridge != nil {
		c.Bridge.Port = map[uint16]string{
			typeRoot: PortRoot, typeUpstream: PortUpstream, typeDownstream: PortDownstream,
			typeToPCI: PortBridge, typeFromPCI: PortBridge,
		}[kind]
	}
	if flags&0xf >= 2 && parts&Capabilities != 0 && (kind == typeRoot || kind == typeUpstream ||
		kind == typeDownstream) {
		// Device Capabilities 2: bit 6 is routing, 7 and 8 are 32- and 64-bit completion; Control 2: bit 7 blocks
		// egress.
		if cap2, ok := space.uint32(at + 0x24); ok && kind == typeRoot {
			c.NoAtomics = cap2&0x180 != 0x180
		} else if c.NoAtomics = ok && cap2&0x40 == 0; ok && !c.NoAtomics {
			control, ok := space.uint32(at + 0x28)
			c.NoAtomics = ok && control&0x80 != 0
		}
	}
	if parts&LinkState == 0 || kind == typeIntegrated || kind == typeCollector {
		return // inside the root complex, without a link
	}
	linkCap, ok := space.uint32(at + 0x0c)
	if !ok {
		return
	}
	link := topology.Link{MaxSpeedGTs: linkSpeed(linkCap & 0xf), MaxWidth: linkWidth(linkCap >> 4 & 0x3f)}
	// The field in Link Capabilities is for older software.
	if linkCap2, ok := space.uint32(at + 0x2c); ok && flags&0xf >= 2 {
		for code := uint32(7); code > 0; code-- {
			if speed := linkSpeed(code); linkCap2>>code&1 != 0 && speed != nil {
				link.MaxSpeedGTs = speed
				break
			}
		}
	}
	if status, ok := space.uint32(at + 0x10); ok {
		status >>= 16
		link.SpeedGTs, link.Width = linkSpeed(status&0xf), linkWidth(status>>4&0x3f)
		if link.Width == nil {
			link.SpeedGTs = nil // down: no lanes, and an undefined speed
		}
	}
	if link != (topology.Link{}) {
		c.Link = &link
	}
}

func linkSpeed(code uint32) *float64 {
	speeds := [...]float64{1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}
	if code == 0 || int(code) >= len(speeds) {
		return nil
	}
	return &speeds[code]
}

// linkWidth returns nil for an impossible number of lanes.
func linkWidth(lanes uint32) *int {
	switch lanes {
	case 1, 2, 4, 8, 12, 16, 32:
		return new(int(lanes))
	}
	return nil
}

func (c *Config) extended(space *configSpace) {
	const most = (ExtendedSize - StandardSize) / 8
	at := StandardSize
	for n := 0; n < most && at >= StandardSize; n++ {
		head, ok := space.uint32(at)
		if !ok || head == 0 || head == 0xffffffff {
			return
		}
		switch head & 0xffff {
		case capACS:
			if v, ok := space.uint32(at + 4); ok {
				control := v >> 16
				c.ACS = &topology.ACS{
					SourceValidation: control&0x01 != 0,
					RequestRedirect:  control&0x04 != 0,
					CompletionRedir:  control&0x08 != 0,
					UpstreamForward:  control&0x10 != 0,
					DirectTranslated: control&0x40 != 0,
				}
			}
		case capATS:
			if v, ok := space.uint32(at + 4); ok {
				c.ATS = new(v>>31 != 0)
			}
		case capSRIOV:
			c.virtualFunctions(space, at)
		}
		at = int(head>>20) &^ 3
	}
}

func (c *Config) virtualFunctions(space *configSpace, at int) {
	control, ok1 := space.uint32(at + 0x08)
	totals, ok2 := space.uint32(at + 0x0c)
	number, ok3 := space.uint32(at + 0x10)
	place, ok4 := space.uint32(at + 0x14)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return
	}
	c.SRIOV = &topology.SRIOV{Total: new(int(totals >> 16)), Enabled: new(0), VFs: []topology.VF{}}
	if control&1 != 0 { // VF Enable
		*c.SRIOV.Enabled = int(number & 0xffff)
	}
	if stride := int(place >> 16); place&0xffff != 0 {
		c.SRIOV.Offset, c.SRIOV.Stride = new(int(place&0xffff)), &stride
	}
}
