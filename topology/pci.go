package topology

import (
	"cmp"
	"github.com/rackless/rackless/internal/words"
	"strings"
)

// A PCIDevice is one function of a PCI device, or a bridge.
type PCIDevice struct {
	Address PCIAddr `json:"address"`
	// Parent is the bridge above; nil for what stands on a root bus.
	Parent *PCIAddr `json:"parent,omitempty"`
	// Root is the root complex as sysfs names it, "pci0000:40"; empty where it is not known.
	Root string `json:"root,omitempty"`
	// ParentUnknown is set where the source leaves out bridges above the function: a nil Parent
	// does not mean that it stands on a root bus.
	ParentUnknown bool `json:"parent_unknown,omitempty"`

	Class           *ID24  `json:"class,omitempty"` // class, subclass and programming interface: "0x020000"
	Vendor          *ID16  `json:"vendor,omitempty"`
	Device          *ID16  `json:"device,omitempty"`
	SubsystemVendor *ID16  `json:"subsystem_vendor,omitempty"`
	SubsystemDevice *ID16  `json:"subsystem_device,omitempty"`
	Revision        *ID8   `json:"revision,omitempty"`
	ClassName       string `json:"class_name,omitempty"`  // names are those of pci.ids, or of the dump
	VendorName      string `json:"vendor_name,omitempty"` //
	DeviceName      string `json:"device_name,omitempty"` //
	Slot            string `json:"slot,omitempty"`        // physical slot, as the firmware labels it

	NUMANode *int `json:"numa_node,omitempty"`
	// NUMASource says where NUMANode is from when the device itself does not say: "parent",
	// "local_cpulist", "only node", "driver".
	NUMASource string  `json:"numa_source,omitempty"`
	LocalCPUs  *CPUSet `json:"local_cpus,omitempty"`

	IOMMUGroup *int   `json:"iommu_group,omitempty"`
	Driver     string `json:"driver,omitempty"`
	Override   string `json:"driver_override,omitempty"` // driver_override, when one is set
	// modules whose aliases match, and vfio-pci where it is loaded; sorted
	Candidates []string `json:"driver_candidates,omitempty"`
	// DriverKnown is set where the driver could have been read, so that an empty Driver means that none is bound.
	DriverKnown bool `json:"driver_known,omitempty"`

	Link *Link `json:"link,omitempty"`
	// PathLimit is the link that limits the function on its way to the processor, as the kernel told it.
	PathLimit *PathLimit `json:"path_limit,omitempty"`

	BARs  []BAR    `json:"bars,omitempty"`
	SRIOV *SRIOV   `json:"sriov,omitempty"`
	PF    *PCIAddr `json:"pf,omitempty"` // of a virtual function: its physical function

	ResetMethods []string `json:"reset_methods,omitempty"` // reset_method, in the order in which they are tried
	// reset_method could be read: no methods means that it cannot be reset
	ResetKnown bool  `json:"reset_known,omitempty"`
	ACS        *ACS  `json:"acs,omitempty"`
	ATS        *bool `json:"ats,omitempty"` // address translation service enabled
	// NoAtomics is set of a port that atomic operations of PCI Express do not pass; of a root port,
	// that carries none out.
	NoAtomics  bool   `json:"no_atomics,omitempty"`
	PowerState string `json:"power_state,omitempty"` // D0, D3hot, D3cold
	D3Cold     *bool  `json:"d3cold_allowed,omitempty"`
	BootVGA    *bool  `json:"boot_vga,omitempty"`
	Enabled    *bool  `json:"enabled,omitempty"`
	// Dead is set where the function answers every read with ones: it hangs, or has fallen off the bus.
	Dead bool `json:"dead,omitempty"`

	// Bridge is set for bridges.
	Bridge *Bridge `json:"bridge,omitempty"`
}

// IsVirtual reports whether a function is a virtual one: it has a physical one here, or pci.ids
// calls its device so. In a virtual machine that was given one, the physical one is not seen.
func (d *PCIDevice) IsVirtual() bool {
	return d.PF != nil || strings.Contains(d.DeviceName, "Virtual Function")
}

// IsVFIO reports whether a driver hands functions to virtual machines: vfio-pci, or a vendor's
// variant of it (mlx5_vfio_pci, nvgrace-gpu-vfio-pci).
func IsVFIO(driver string) bool {
	return strings.Contains(strings.ReplaceAll(driver, "_", "-"), "vfio-pci")
}

// A Bridge is a PCI bridge: a root port, a port of a switch, or a bridge to conventional PCI.
type Bridge struct {
	// The buses behind the bridge, first and last. 0, which is never behind a bridge, stands for not known.
	Secondary   uint8 `json:"secondary_bus,omitempty"`
	Subordinate uint8 `json:"subordinate_bus,omitempty"`
	// Port is "root port", "upstream port", "downstream port", "pci bridge" or PortSwitch; empty
	// where the capabilities could not be read.
	Port string `json:"port,omitempty"`
}

// PortSwitch is the port of a bridge that stands for a whole switch, in sources that do not show
// the ports of switches (NCCL).
const PortSwitch = "switch"

// A Link is a PCI Express link: of a device upwards to its port, of a port downwards.
type Link struct {
	SpeedGTs    *float64 `json:"speed_gts,omitempty"` // now, in GT/s: 2.5, 5, 8, 16, 32 or 64
	Width       *int     `json:"width,omitempty"`     // lanes now
	MaxSpeedGTs *float64 `json:"max_speed_gts,omitempty"`
	MaxWidth    *int     `json:"max_width,omitempty"`
	// Port is the port above, as far as it is known: what limits the link when the device does not.
	Port *PortLink `json:"port,omitempty"`
}

// Best returns what a link can do at both of its ends, in GT/s and lanes. What is not known of the device is nil, and
// what is not known of the port does not limit it.
func (l *Link) Best() (gts *float64, lanes *int) {
	gts, lanes = l.MaxSpeedGTs, l.MaxWidth
	if l.Port != nil {
		gts, lanes = lesser(gts, l.Port.MaxSpeedGTs), lesser(lanes, l.Port.MaxWidth)
	}
	return gts, lanes
}

func lesser[T cmp.Ordered](have, limit *T) *T {
	return words.Either(have == nil || limit == nil || *have <= *limit, have, limit)
}

// A PortLink is the other end of a link.
type PortLink struct {
	Address     PCIAddr  `json:"address"`
	SpeedGTs    *float64 `json:"speed_gts,omitempty"`
	Width       *int     `json:"width,omitempty"`
	MaxSpeedGTs *float64 `json:"max_speed_gts,omitempty"`
	MaxWidth    *int     `json:"max_width,omitempty"`
}

// A PathLimit is a link that carries less than the function could, see dmesg: "available PCIe
// bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:17:00.0".
type PathLimit struct {
	At       PCIAddr `json:"at"` // the function or port whose link it is
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
	// Unassigned is set where the range has no address: there was no room for it.
	Unassigned bool `json:"unassigned,omitempty"`
}

// SRIOV is a physical function's account of its virtual functions.
type SRIOV struct {
	Total     *int  `json:"total,omitempty"`   // sriov_totalvfs: the most that firmware offers
	Enabled   *int  `json:"enabled,omitempty"` // sriov_numvfs
	Offset    *int  `json:"offset,omitempty"`
	Stride    *int  `json:"stride,omitempty"`
	Autoprobe *bool `json:"autoprobe,omitempty"`
	VFs       []VF  `json:"vfs"` // by index; empty, not absent, where there are none
}

// A VF is a virtual function that exists.
type VF struct {
	Index   int      `json:"index"`
	Address *PCIAddr `json:"address,omitempty"`
}

// ACS is the access control services of a port or function, as its control register has them.
type ACS struct {
	SourceValidation bool `json:"source_validation"`
	RequestRedirect  bool `json:"request_redirect"`    // peer-to-peer requests are sent up to the root complex
	CompletionRedir  bool `json:"completion_redirect"` //
	UpstreamForward  bool `json:"upstream_forward"`    //
	// translated requests go directly: with ATS, peers reach each other
	DirectTranslated bool `json:"direct_translated"`
}

// IOMMU is the translation between devices and memory.
type IOMMU struct {
	// Enabled is true when the kernel made groups or lists an IOMMU, false when it could have been
	// seen and there is none.
	Enabled *bool        `json:"enabled,omitempty"`
	Units   []string     `json:"units,omitempty"`  // /sys/class/iommu: dmar0, ivhd0, smmu3...
	Groups  []IOMMUGroup `json:"groups,omitempty"` // by ID
}

// An IOMMUGroup is what the IOMMU cannot tell apart: it goes to one owner whole.
type IOMMUGroup struct {
	ID      int       `json:"id"`
	Type    string    `json:"type,omitempty"` // DMA, DMA-FQ, identity, ...
	Devices []PCIAddr `json:"devices"`        // by address
	// lines of reserved_regions of type "direct": 1:1 mappings that the firmware asked for
	Reserved []string `json:"reserved,omitempty"`
}
