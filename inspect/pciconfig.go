package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/topology"
)

// Ports of bridges, as topology.Bridge names them.
const (
	portRoot       = "root port"
	portUpstream   = "upstream port"
	portDownstream = "downstream port"
	portBridge     = "pci bridge"
)

// Registers and capabilities of the configuration space. Sources: PCI Local Bus Specification 3.0,
// chapter 6; PCI Express Base Specification 6.0, chapter 7; the numbers are those of Linux's
// include/uapi/linux/pci_regs.h.
const (
	configHeader   = 64   // bytes that every user may read
	configStandard = 256  // bytes of conventional PCI
	configExtended = 4096 // bytes of PCI Express

	regVendor  = 0x00 // and device above it
	regStatus  = 0x04 // in the upper half
	regClass   = 0x08 // revision in the lowest byte
	regHeader  = 0x0c // header type in the third byte
	regBuses   = 0x18 // of a bridge: primary, secondary and subordinate bus
	regCapList = 0x34

	statusCapList = 0x10 << 16
	headerBridge  = 1

	capExpress = 0x10
	capACS     = 0x000d
	capATS     = 0x000f
	capSRIOV   = 0x0010
)

// A pciConfig is what the configuration space of a function says, as far as it was asked for and could be read.
type pciConfig struct {
	dead     bool           // it answers with ones only
	vendor   *topology.ID16 // nil for virtual functions, which do not answer for themselves
	device   *topology.ID16
	class    *topology.ID24
	revision *topology.ID8
	bridge   *topology.Bridge // nil for what is no bridge
	link     *topology.Link   // of PCI Express, nil where there is none
	acs      *topology.ACS
	ats      *bool
	sriov    *topology.SRIOV
	headOnly bool // capabilities there are, and what may be read ends before the first of them
}

// Parts of the configuration space that are read only when they are needed. Each register costs an
// access to the device: below a microsecond on bare metal, 20 of them in some virtual machines.
type configPart uint8

const (
	configIdentity     configPart = 1 << iota // vendor, device, class, revision
	configBridge                              // whether it is one, and its buses
	configLink                                // of PCI Express
	configCapabilities                        // port type, ACS, ATS, SR-IOV
)

// configSpace reads registers. A register that cannot be had, because the file ends before it, is
// not an error: what a user other than root may read ends at byte 64, and what a dump keeps often
// there too.
type configSpace struct {
	src io.ReaderAt
	err error // the first that was not the end of the file
}

// uint32 returns the register of 32 bits at offset at.
func (c *configSpace) uint32(at int) (uint32, bool) {
	if at < 0 || at%4 != 0 || at+4 > configExtended {
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

// parsePCIConfig reads parts of the configuration space of src. The error is the first that was not
// the end of the file; what was read before it is returned.
func parsePCIConfig(src io.ReaderAt, parts configPart) (pciConfig, error) {
	var c pciConfig
	space := &configSpace{src: src}
	id, ok := space.uint32(regVendor)
	if !ok {
		return c, space.err
	}
	// A virtual function answers ones as its vendor and device, and has the rest. What has no class
	// either answers nothing.
	const ones = 0xffffffff
	if id == ones || parts&configIdentity != 0 {
		class, ok := space.uint32(regClass)
		if c.dead = ok && id == ones && class == ones; c.dead {
			return c, space.err
		}
		if id != ones {
			c.vendor, c.device = new(topology.ID16(id&0xffff)), new(topology.ID16(id>>16))
		}
		if ok {
			c.class, c.revision = new(topology.ID24(class>>8)), new(topology.ID8(class&0xff))
		}
	}
	if parts&configBridge != 0 {
		header, _ := space.uint32(regHeader)
		if buses, ok := space.uint32(regBuses); ok && header>>16&0x7f == headerBridge {
			c.bridge = &topology.Bridge{Secondary: uint8(buses >> 8), Subordinate: uint8(buses >> 16)}
		}
	}
	if parts&(configLink|configCapabilities) != 0 {
		c.capabilities(space, parts)
	}
	return c, space.err
}

// capabilities walks the list of capabilities, and behind a PCI Express capability that of the extended ones.
func (c *pciConfig) capabilities(space *configSpace, parts configPart) {
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
	// The list lies between the header and byte 256, four bytes an entry at least: longer is a loop.
	const most = (configStandard - configHeader) / 4
	for n := 0; n < most && at >= configHeader; n++ {
		head, ok := space.uint32(at)
		if !ok || head == 0xffffffff {
			c.headOnly = !ok && n == 0 && space.err == nil
			return
		}
		if head&0xff == capExpress {
			c.express(space, at, uint16(head>>16), parts)
			if parts&configCapabilities != 0 {
				c.extended(space)
			}
			return
		}
		at = int(head>>8) & 0xfc
	}
	if c.bridge != nil && at == 0 {
		c.bridge.Port = portBridge // conventional PCI: the whole list is known, and PCI Express is not in it
	}
}

// express reads the PCI Express capability at offset at.
func (c *pciConfig) express(space *configSpace, at int, flags uint16, parts configPart) {
	const ( // device/port types
		typeRoot, typeUpstream, typeDownstream = 4, 5, 6
		typeToPCI, typeFromPCI                 = 7, 8
		typeIntegrated, typeCollector          = 9, 10
	)
	kind := flags >> 4 & 0xf
	if c.bridge != nil {
		switch kind {
		case typeRoot:
			c.bridge.Port = portRoot
		case typeUpstream:
			c.bridge.Port = portUpstream
		case typeDownstream:
			c.bridge.Port = portDownstream
		case typeToPCI, typeFromPCI:
			c.bridge.Port = portBridge
		}
	}
	if parts&configLink == 0 || kind == typeIntegrated || kind == typeCollector {
		return // these are inside the root complex and have no link
	}
	linkCap, ok := space.uint32(at + 0x0c)
	if !ok {
		return
	}
	link := topology.Link{MaxSpeedGTs: linkSpeed(linkCap & 0xf), MaxWidth: linkWidth(linkCap >> 4 & 0x3f)}
	// The speeds that a device supports are a vector in Link Capabilities 2; the field of Link
	// Capabilities is for software of before it.
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
			link.SpeedGTs = nil // a link that is down has no lanes, and its speed field means nothing
		}
	}
	if link != (topology.Link{}) {
		c.link = &link
	}
}

// linkSpeed returns the speed of a code of the link registers, nil for codes without one.
func linkSpeed(code uint32) *float64 {
	speeds := [...]float64{1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}
	if code == 0 || int(code) >= len(speeds) {
		return nil
	}
	return &speeds[code]
}

// linkWidth returns a number of lanes, nil for numbers that no link has.
func linkWidth(lanes uint32) *int {
	switch lanes {
	case 1, 2, 4, 8, 12, 16, 32:
		return new(int(lanes))
	}
	return nil
}

// extended walks the list of extended capabilities, which starts at byte 256.
func (c *pciConfig) extended(space *configSpace) {
	const most = (configExtended - configStandard) / 8
	at := configStandard
	for n := 0; n < most && at >= configStandard; n++ {
		head, ok := space.uint32(at)
		if !ok || head == 0 || head == 0xffffffff {
			return
		}
		switch head & 0xffff {
		case capACS:
			if v, ok := space.uint32(at + 4); ok {
				control := v >> 16
				c.acs = &topology.ACS{
					SourceValidation: control&0x01 != 0,
					RequestRedirect:  control&0x04 != 0,
					CompletionRedir:  control&0x08 != 0,
					UpstreamForward:  control&0x10 != 0,
					DirectTranslated: control&0x40 != 0,
				}
			}
		case capATS:
			if v, ok := space.uint32(at + 4); ok {
				c.ats = new(v>>31 != 0)
			}
		case capSRIOV:
			c.virtualFunctions(space, at)
		}
		at = int(head>>20) &^ 3
	}
}

// virtualFunctions reads the SR-IOV capability at offset at.
func (c *pciConfig) virtualFunctions(space *configSpace, at int) {
	control, ok1 := space.uint32(at + 0x08)
	totals, ok2 := space.uint32(at + 0x0c)
	number, ok3 := space.uint32(at + 0x10)
	place, ok4 := space.uint32(at + 0x14)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return
	}
	c.sriov = &topology.SRIOV{Total: new(int(totals >> 16)), Enabled: new(0), VFs: []topology.VF{}}
	if control&1 != 0 { // VF Enable: NumVFs means nothing without it
		*c.sriov.Enabled = int(number & 0xffff)
	}
	if stride := int(place >> 16); place&0xffff != 0 {
		c.sriov.Offset, c.sriov.Stride = new(int(place&0xffff)), &stride
	}
}

// readPCIConfig opens a config file and parses parts of it. Where the file cannot be read in places it is read whole.
func (r *reader) readPCIConfig(p string, parts configPart) pciConfig {
	f, err := r.fs.Open(p)
	if err != nil {
		r.failed(p, err)
		return pciConfig{}
	}
	defer f.Close()
	src, ok := f.(io.ReaderAt)
	if !ok {
		b, err := io.ReadAll(io.LimitReader(f, configExtended))
		if err != nil {
			r.failed(p, err)
			return pciConfig{}
		}
		src = bytes.NewReader(b)
	}
	c, err := parsePCIConfig(src, parts)
	if err != nil {
		r.failed(p, err)
	}
	return c
}

// Flags of a line of resource. Source: include/linux/ioport.h.
const (
	resourceIO       = 0x00000100
	resourceMemory   = 0x00000200
	resourcePrefetch = 0x00002000
	resource64       = 0x00100000
)

// parseBARs parses a resource file: a line for each resource, with its first address, its last and
// its flags. Lines 0 to 5 are the BARs, 6 is the expansion ROM, 7 to 12 the BARs of virtual
// functions, all of them together; what follows are a bridge's windows, which start at 7 in kernels
// without SR-IOV. Resources that are not there are lines of zeros.
//
// Source: drivers/pci/pci-sysfs.c, resource_show; include/linux/pci.h, "PCI resource numbers".
func parseBARs(text string, bridge bool) ([]topology.BAR, error) {
	last := 12
	if bridge {
		last = 6
	}
	var bars []topology.BAR
	index := -1
	for line := range strings.Lines(text) {
		if index++; index > last {
			break
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return bars, fmt.Errorf("line %d: %q: want a first address, a last address and flags", index+1,
				where.Clip(strings.TrimSpace(line)))
		}
		var v [3]uint64
		for i, field := range fields {
			var err error
			if v[i], err = strconv.ParseUint(strings.TrimPrefix(field, "0x"), 16, 64); err != nil {
				return bars, fmt.Errorf("line %d: %q is not a number in hexadecimal", index+1, where.Clip(field))
			}
		}
		start, end, flags := v[0], v[1], v[2]
		if flags&(resourceIO|resourceMemory) == 0 || end <= start || end-start == math.MaxUint64 {
			continue
		}
		bars = append(bars, topology.BAR{
			Index: index, SizeBytes: end - start + 1,
			Prefetchable: flags&resourcePrefetch != 0, Bits64: flags&resource64 != 0, IO: flags&resourceIO != 0,
		})
	}
	return bars, nil
}
