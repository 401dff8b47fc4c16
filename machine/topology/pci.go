package topology

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A PCIDevice is one function of a PCI device, or a bridge.
type PCIDevice struct {
	Address PCIAddr `json:"address"`
	// Parent is the bridge above, or nil on a root bus.
	Parent *PCIAddr `json:"parent,omitempty"`
	// Root is sysfs's name of the root complex, "pci0000:40", or empty if unknown.
	Root string `json:"root,omitempty"`
	// ParentUnknown is set if the source omits bridges above the function, so that a nil Parent does not mean a root
	// bus.
	ParentUnknown bool `json:"parent_unknown,omitempty"`

	Class           *ID24  `json:"class,omitempty"` // class, subclass and programming interface: "0x020000"
	Vendor          *ID16  `json:"vendor,omitempty"`
	Device          *ID16  `json:"device,omitempty"`
	SubsystemVendor *ID16  `json:"subsystem_vendor,omitempty"`
	SubsystemDevice *ID16  `json:"subsystem_device,omitempty"`
	Revision        *ID8   `json:"revision,omitempty"`
	ClassName       string `json:"class_name,omitempty"`  // this and the next two: from pci.ids or the dump
	VendorName      string `json:"vendor_name,omitempty"` //
	DeviceName      string `json:"device_name,omitempty"` //
	Slot            string `json:"slot,omitempty"`        // physical slot, in the firmware's words

	NUMANode *int `json:"numa_node,omitempty"`
	// NUMASource is the origin of NUMANode if the device itself does not state it: "parent", "local_cpulist", "only
	// node", "driver".
	NUMASource string  `json:"numa_source,omitempty"`
	LocalCPUs  *CPUSet `json:"local_cpus,omitempty"`

	IOMMUGroup *int   `json:"iommu_group,omitempty"`
	Driver     string `json:"driver,omitempty"`
	Override   string `json:"driver_override,omitempty"` // driver_override, if set
	// modules with matching aliases, and vfio-pci if loaded; sorted
	Candidates []string `json:"driver_candidates,omitempty"`
	// DriverKnown is set if the driver could have been read, so that an empty Driver means that none is bound.
	DriverKnown bool `json:"driver_known,omitempty"`

	Link *Link `json:"link,omitempty"`
	// LinkGBps is the rate of the link in 10^9 bytes per second, if the source states it and neither speed nor lanes
	// follow.
	LinkGBps *float64 `json:"link_gb_per_s,omitempty"`
	// PathLimit is the link that limits the function's bandwidth to the processor, as reported by the kernel.
	PathLimit *PathLimit `json:"path_limit,omitempty"`

	BARs  []BAR    `json:"bars,omitempty"`
	SRIOV *SRIOV   `json:"sriov,omitempty"`
	PF    *PCIAddr `json:"pf,omitempty"` // of a virtual function: its physical function

	ResetMethods []string `json:"reset_methods,omitempty"` // reset_method, in the order of use
	// reset_method could be read: no methods means that it cannot be reset
	ResetKnown bool  `json:"reset_known,omitempty"`
	ACS        *ACS  `json:"acs,omitempty"`
	ATS        *bool `json:"ats,omitempty"` // address translation service enabled
	// NoAtomics is set for a port that does not forward PCI Express atomic operations, and for a root port that does
	// not complete both 32- and 64-bit ones.
	NoAtomics  bool   `json:"no_atomics,omitempty"`
	PowerState string `json:"power_state,omitempty"` // D0, D3hot, D3cold
	D3Cold     *bool  `json:"d3cold_allowed,omitempty"`
	BootVGA    *bool  `json:"boot_vga,omitempty"`
	Enabled    *bool  `json:"enabled,omitempty"`
	// Dead is set if every read of the function returns ones: it hangs, or has fallen off the bus.
	Dead bool `json:"dead,omitempty"`

	// Bridge is set for bridges.
	Bridge *Bridge `json:"bridge,omitempty"`
}

// IsVirtual reports whether a function is virtual: its physical function is known, or pci.ids says so. A virtual
// machine does not see the physical function of its devices.
func (d *PCIDevice) IsVirtual() bool {
	return d.PF != nil || strings.Contains(d.DeviceName, "Virtual Function")
}

// IsVFIO reports whether a driver assigns functions to virtual machines: vfio-pci, or a vendor's variant of it
// (mlx5_vfio_pci, nvgrace-gpu-vfio-pci).
func IsVFIO(driver string) bool {
	return strings.Contains(strings.ReplaceAll(driver, "_", "-"), "vfio-pci")
}

// A Bridge is a PCI bridge: a root port, a port of a switch, or a bridge to conventional PCI.
type Bridge struct {
	// The first and last bus behind the bridge. 0, which is never behind a bridge, means unknown.
	Secondary   uint8 `json:"secondary_bus,omitempty"`
	Subordinate uint8 `json:"subordinate_bus,omitempty"`
	// Port is "root port", "upstream port", "downstream port", "pci bridge" or PortSwitch, or empty if the
	// capabilities could not be read.
	Port string `json:"port,omitempty"`
}

// PortSwitch is the port of a bridge that represents a whole switch, in sources that do not show the ports of
// switches (NCCL).
const PortSwitch = "switch"

// A Link is a PCI Express link: a device's link up to its port, or a port's link down.
type Link struct {
	SpeedGTs    *float64 `json:"speed_gts,omitempty"` // current, in GT/s: 2.5, 5, 8, 16, 32 or 64
	Width       *int     `json:"width,omitempty"`     // current lanes
	MaxSpeedGTs *float64 `json:"max_speed_gts,omitempty"`
	MaxWidth    *int     `json:"max_width,omitempty"`
	// Port is the port above, if known. It may limit the link more than the device.
	Port *PortLink `json:"port,omitempty"`
}

// Best returns the highest speed in GT/s and the most lanes that both ends support. Unknown values of the device are
// nil, and unknown values of the port do not limit them.
func (l *Link) Best() (gts *float64, lanes *int) {
	gts, lanes = l.MaxSpeedGTs, l.MaxWidth
	if l.Port != nil {
		gts, lanes = lesser(gts, l.Port.MaxSpeedGTs), lesser(lanes, l.Port.MaxWidth)
	}
	return gts, lanes
}

func lesser[T cmp.Ordered](have, limit *T) *T {
	if have == nil || limit == nil || *have <= *limit {
		return have
	}
	return limit
}

// A PortLink is the other end of a link.
type PortLink struct {
	Address     PCIAddr  `json:"address"`
	SpeedGTs    *float64 `json:"speed_gts,omitempty"`
	Width       *int     `json:"width,omitempty"`
	MaxSpeedGTs *float64 `json:"max_speed_gts,omitempty"`
	MaxWidth    *int     `json:"max_width,omitempty"`
}

// A PathLimit is a link with less bandwidth than the function supports, see dmesg: "available PCIe bandwidth, limited
// by 8.0 GT/s PCIe x4 link at 0000:17:00.0".
type PathLimit struct {
	At       PCIAddr `json:"at"` // the function or port of the link
	SpeedGTs float64 `json:"speed_gts"`
	Width    int     `json:"width"`
}

// A BAR is a range of addresses that a function decodes.
type BAR struct {
	Index        int    `json:"index"` // 0-5; 6 is the expansion ROM, 7-12 are BARs of virtual functions
	SizeBytes    uint64 `json:"size_bytes"`
	Prefetchable bool   `json:"prefetchable,omitempty"`
	Bits64       bool   `json:"bits64,omitempty"`
	IO           bool   `json:"io,omitempty"`
	// Unassigned is set if the range has no address, because there was no space for it.
	Unassigned bool `json:"unassigned,omitempty"`
}

// SRIOV is a physical function's description of its virtual functions.
type SRIOV struct {
	Total     *int  `json:"total,omitempty"`   // sriov_totalvfs: the firmware's maximum
	Enabled   *int  `json:"enabled,omitempty"` // sriov_numvfs
	Offset    *int  `json:"offset,omitempty"`
	Stride    *int  `json:"stride,omitempty"`
	Autoprobe *bool `json:"autoprobe,omitempty"`
	VFs       []VF  `json:"vfs"` // by index; never nil
}

// A VF is an existing virtual function.
type VF struct {
	Index   int      `json:"index"`
	Address *PCIAddr `json:"address,omitempty"`
}

// ACS is the access control services of a port or function, from its control register.
type ACS struct {
	SourceValidation bool `json:"source_validation"`
	RequestRedirect  bool `json:"request_redirect"`    // peer-to-peer requests are sent up to the root complex
	CompletionRedir  bool `json:"completion_redirect"` //
	UpstreamForward  bool `json:"upstream_forward"`    //
	// translated requests go directly: with ATS, peers can reach each other
	DirectTranslated bool `json:"direct_translated"`
}

// IOMMU is the address translation between devices and memory.
type IOMMU struct {
	// Enabled is true if the kernel made groups or lists an IOMMU, and false if the source would show an IOMMU but
	// does not.
	Enabled *bool        `json:"enabled,omitempty"`
	Units   []string     `json:"units,omitempty"`  // /sys/class/iommu: dmar0, ivhd0, smmu3...
	Groups  []IOMMUGroup `json:"groups,omitempty"` // by ID
}

// An IOMMUGroup is a set of functions that the IOMMU cannot isolate from each other. They all go to one owner.
type IOMMUGroup struct {
	ID      int       `json:"id"`
	Type    string    `json:"type,omitempty"` // DMA, DMA-FQ, identity, ...
	Devices []PCIAddr `json:"devices"`        // by address
	// lines of reserved_regions of type "direct": 1:1 mappings required by firmware
	Reserved []string `json:"reserved,omitempty"`
}

// PCI IDs print as in sysfs, "0x15b3", and are parsed with or without the prefix.
type (
	ID8  uint8  // revision
	ID16 uint16 // vendor, device
	ID24 uint32 // class, subclass and programming interface
)

func (v ID8) String() string  { return fmt.Sprintf("0x%02x", uint8(v)) }
func (v ID16) String() string { return fmt.Sprintf("0x%04x", uint16(v)) }
func (v ID24) String() string { return fmt.Sprintf("0x%06x", uint32(v)) }

func (v ID8) MarshalText() ([]byte, error)  { return []byte(v.String()), nil }
func (v ID16) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
func (v ID24) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

func (v *ID8) UnmarshalText(b []byte) error  { return setID(v, b, 8) }
func (v *ID16) UnmarshalText(b []byte) error { return setID(v, b, 16) }
func (v *ID24) UnmarshalText(b []byte) error { return setID(v, b, 24) }

func setID[T ~uint8 | ~uint16 | ~uint32](v *T, b []byte, bits int) error {
	n, err := parseID(string(b), bits)
	*v = T(n)
	return err
}

func parseID(s string, bits int) (uint64, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	n, err := strconv.ParseUint(digits, 16, bits)
	if err != nil {
		return 0, fmt.Errorf("PCI ID %q: want a hexadecimal number of at most %d bits, such as 0x15b3", s, bits)
	}
	return n, nil
}

// ParseID16 parses a vendor or device ID: "0x15b3" or "15b3".
func ParseID16(s string) (ID16, error) {
	n, err := parseID(s, 16)
	return ID16(n), err
}

// ParseID24 parses a class: "0x020000", or "0200" without its programming interface, as other tools print it.
func ParseID24(s string) (ID24, error) {
	n, err := parseID(s, 24)
	if digits := strings.TrimPrefix(strings.ToLower(s), "0x"); err == nil && len(digits) == 4 {
		n <<= 8
	}
	return ID24(n), err
}

// Base returns the class without subclass: 0x02 for a network controller.
func (v ID24) Base() uint8 { return uint8(v >> 16) }

// Sub returns class and subclass: 0x0604 for a PCI bridge.
func (v ID24) Sub() uint16 { return uint16(v >> 8) }

// Base classes and subclasses that rackless uses. Source: PCI Code and ID Assignment Specification.
const (
	ClassStorage     = 0x01
	ClassNetwork     = 0x02
	ClassDisplay     = 0x03
	ClassBridge      = 0x06
	ClassAccelerator = 0x12

	SubVGA          = 0x0300
	Sub3D           = 0x0302
	SubEthernet     = 0x0200
	SubInfiniBand   = 0x0207
	SubHostBridge   = 0x0600
	SubOtherDisplay = 0x0380 // display controller that is neither VGA nor 3D
	SubPCIBridge    = 0x0604
	SubFabric       = 0x0c06 // InfiniBand HCAs from before subclass 0x0207
)

const (
	VendorAMD      ID16 = 0x1002
	VendorNVIDIA   ID16 = 0x10de
	VendorMellanox ID16 = 0x15b3
	VendorIntel    ID16 = 0x8086
	VendorBroadcom ID16 = 0x14e4
	VendorRedHat   ID16 = 0x1af4 // virtio
)

// A PCIAddr is the address of a PCI function: domain:bus:device.function. It is small and comparable, and String is
// the inverse of ParsePCIAddr. The zero value 0000:00:00.0 is a valid address, so an optional address is a pointer.
type PCIAddr struct {
	Domain   uint32 // up to 32 bits: Intel VMD and Hyper-V use domains above 0xffff
	Bus      uint8
	Device   uint8 // 0-31
	Function uint8 // 0-7
}

// A PCIAddrError reports an address that cannot be parsed.
type PCIAddrError struct {
	In  string // input
	Why string
}

func (e *PCIAddrError) Error() string {
	return fmt.Sprintf("PCI address %q: %s; want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1", e.In,
		e.Why)
}

// ParsePCIAddr parses "0000:3b:00.1", or "3b:00.1" for domain 0. It also accepts the form of NVIDIA's tools, with
// upper case and eight digits for the domain ("00000000:3B:00.0").
func ParsePCIAddr(s string) (PCIAddr, error) {
	fail := func(why string) (PCIAddr, error) { return PCIAddr{}, &PCIAddrError{In: s, Why: why} }
	var a PCIAddr
	rest := s
	if strings.Count(s, ":") == 2 {
		domain, after, _ := strings.Cut(s, ":")
		v, ok := hex(domain, 4, 8, 0xffffffff)
		if !ok {
			return fail(fmt.Sprintf("domain %q is not 4 to 8 hexadecimal digits", domain))
		}
		a.Domain, rest = uint32(v), after
	}
	bus, devfn, ok := strings.Cut(rest, ":")
	if !ok {
		return fail("no bus")
	}
	dev, fn, ok := strings.Cut(devfn, ".")
	if !ok {
		return fail("no function")
	}
	v, ok := hex(bus, 2, 2, 0xff)
	if !ok {
		return fail(fmt.Sprintf("bus %q is not 2 hexadecimal digits", bus))
	}
	a.Bus = uint8(v)
	if v, ok = hex(dev, 2, 2, 31); !ok {
		return fail(fmt.Sprintf("device %q is not 00 to 1f", dev))
	}
	a.Device = uint8(v)
	if v, ok = hex(fn, 1, 1, 7); !ok {
		return fail(fmt.Sprintf("function %q is not 0 to 7", fn))
	}
	a.Function = uint8(v)
	return a, nil
}

// hex parses a hexadecimal number of minLen to maxLen digits and at most limit.
func hex(s string, minLen, maxLen int, limit uint64) (uint64, bool) {
	if len(s) < minLen || len(s) > maxLen {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil && v <= limit
}

const hexDigits = "0123456789abcdef"

// String returns the form of sysfs: "0000:3b:00.1".
func (a PCIAddr) String() string { return string(a.append(make([]byte, 0, 12))) }

func (a PCIAddr) append(b []byte) []byte {
	if a.Domain > 0xffff {
		b = strconv.AppendUint(b, uint64(a.Domain), 16)
	} else {
		for shift := 12; shift >= 0; shift -= 4 {
			b = append(b, hexDigits[a.Domain>>shift&0xf])
		}
	}
	return append(b, ':', hexDigits[a.Bus>>4], hexDigits[a.Bus&0xf],
		':', hexDigits[a.Device>>4&1], hexDigits[a.Device&0xf], '.', hexDigits[a.Function&7])
}

// Compare orders addresses by domain, bus, device and function.
func (a PCIAddr) Compare(b PCIAddr) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}

// SameDevice reports whether a and b are functions of one device (or the same function).
func (a PCIAddr) SameDevice(b PCIAddr) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// MarshalText writes the form of String.
func (a PCIAddr) MarshalText() ([]byte, error) { return a.append(nil), nil }

// UnmarshalText parses any form that ParsePCIAddr accepts.
func (a *PCIAddr) UnmarshalText(b []byte) error {
	v, err := ParsePCIAddr(string(b))
	if err == nil {
		*a = v
	}
	return err
}
