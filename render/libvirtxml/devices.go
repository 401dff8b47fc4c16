package libvirtxml

import (
	"encoding/xml"
	"fmt"
	"strconv"
)

// Devices are what the guest has beside processor and memory.
type Devices struct {
	Controllers []Controller `xml:"controller"`
	Disks       []Disk       `xml:"disk"`
	Interfaces  []Interface  `xml:"interface"`
	HostDevs    []HostDev    `xml:"hostdev"`
	Serials     []CharDev    `xml:"serial"`
	Consoles    []CharDev    `xml:"console"`
	Channels    []CharDev    `xml:"channel"`
	RNGs        []RNG        `xml:"rng"`
	MemBalloon  *MemBalloon  `xml:"memballoon"`
	Panics      []Panic      `xml:"panic"`
	IOMMU       *IOMMU       `xml:"iommu"`
}

// Models of PCI controllers.
const (
	PCIeRoot        = "pcie-root"         // bus 0, that the machine has by itself
	PCIeRootPort    = "pcie-root-port"    // a slot for one device
	PCIeExpanderBus = "pcie-expander-bus" // another root bus, with a NUMA node of its own
)

// A Controller is a bus. Of PCI, Index is the number by which addresses name it; the guest numbers its buses by itself.
type Controller struct {
	Why   string `xml:",comment"`
	Type  string `xml:"type,attr"`
	Index *int   `xml:"index,attr"`
	Model string `xml:"model,attr,omitempty"`
	// of virtio-serial, with port 0, which is kept for consoles; 0 means QEMU's 31
	Ports   int               `xml:"ports,attr,omitempty"`
	Target  *ControllerTarget `xml:"target"`
	Address *PCIAddress       `xml:"address"`
}

// A ControllerTarget is what the guest sees of a controller.
type ControllerTarget struct {
	BusNr *int `xml:"busNr,attr"` // of expander buses: their bus number in the guest
	Node  *int `xml:"node"`       // of expander buses: the cell that they belong to
}

// Hex is a number that libvirt writes in hexadecimal.
type Hex uint32

// MarshalXMLAttr writes the number as wide as libvirt writes the part of an address of that name.
func (h Hex) MarshalXMLAttr(name xml.Name) (xml.Attr, error) {
	width := 2
	switch name.Local {
	case "domain":
		width = 4
	case "function":
		width = 1
	}
	return xml.Attr{Name: name, Value: fmt.Sprintf("0x%0*x", width, uint32(h))}, nil
}

// UnmarshalXMLAttr reads the number, in the forms of C.
func (h *Hex) UnmarshalXMLAttr(a xml.Attr) error {
	v, err := strconv.ParseUint(a.Value, 0, 32)
	if err != nil {
		return fmt.Errorf("%s %q of an address is not a number of 32 bits", a.Name.Local, a.Value)
	}
	*h = Hex(v)
	return nil
}

// A PCIAddress is where a PCI device is: on the host in a Source, else in the guest, where Bus is
// the Index of a Controller.
type PCIAddress struct {
	// "pci"; empty in the source of a HostDev, where nothing else could be
	Type          string `xml:"type,attr,omitempty"`
	Domain        Hex    `xml:"domain,attr"`
	Bus           Hex    `xml:"bus,attr"`
	Slot          Hex    `xml:"slot,attr"`
	Function      Hex    `xml:"function,attr"`
	Multifunction string `xml:"multifunction,attr,omitempty"` // "on" at function 0 where there are more
}

// A Disk is a disk.
type Disk struct {
	Why     string      `xml:",comment"`
	Type    string      `xml:"type,attr"`   // "file"
	Device  string      `xml:"device,attr"` // "disk"
	Driver  DiskDriver  `xml:"driver"`
	Source  *DiskSource `xml:"source"`
	Target  DiskTarget  `xml:"target"`
	Address *PCIAddress `xml:"address"`
}

// A DiskDriver says how QEMU reads and writes it.
type DiskDriver struct {
	Why      string `xml:",comment"`
	Name     string `xml:"name,attr"`
	Type     string `xml:"type,attr"`
	Cache    string `xml:"cache,attr,omitempty"`
	IO       string `xml:"io,attr,omitempty"`
	Discard  string `xml:"discard,attr,omitempty"`
	IOThread int    `xml:"iothread,attr,omitempty"`
}

// A DiskSource is where it is on the host.
type DiskSource struct {
	File string `xml:"file,attr"`
}

// A DiskTarget is what the guest calls it.
type DiskTarget struct {
	Dev string `xml:"dev,attr"`
	Bus string `xml:"bus,attr"`
}

// An Interface is a network interface: a virtual one ("network"), or a virtual function of a NIC ("hostdev").
type Interface struct {
	Why     string           `xml:",comment"`
	Type    string           `xml:"type,attr"`
	Managed string           `xml:"managed,attr,omitempty"`
	MAC     *MAC             `xml:"mac"`
	Driver  *Driver          `xml:"driver"`
	Source  *InterfaceSource `xml:"source"`
	Model   *Model           `xml:"model"`
	Address *PCIAddress      `xml:"address"`
}

// A MAC is the address of an interface.
type MAC struct {
	Address string `xml:"address,attr"`
}

// An InterfaceSource is a network of libvirt, or a virtual function of the host.
type InterfaceSource struct {
	Network string      `xml:"network,attr,omitempty"`
	Address *PCIAddress `xml:"address"`
}

// A Model is the kind of an emulated device.
type Model struct {
	Type string `xml:"type,attr"`
}

// A Driver is what the host drives a device with.
type Driver struct {
	Name string `xml:"name,attr"` // "vfio"
}

// A HostDev is a PCI function of the host that the guest gets.
type HostDev struct {
	Why     string        `xml:",comment"`
	Mode    string        `xml:"mode,attr"`    // "subsystem"
	Type    string        `xml:"type,attr"`    // "pci"
	Managed string        `xml:"managed,attr"` // "yes": libvirt binds it to vfio-pci and gives it back
	Driver  *Driver       `xml:"driver"`
	Source  HostDevSource `xml:"source"`
	Address *PCIAddress   `xml:"address"`
}

// A HostDevSource is which function.
type HostDevSource struct {
	Address PCIAddress `xml:"address"`
}

// A CharDev is a serial port, a console or a channel.
type CharDev struct {
	Why    string         `xml:",comment"`
	Type   string         `xml:"type,attr"` // "pty", "unix"
	Log    *CharDevLog    `xml:"log"`
	Target *CharDevTarget `xml:"target"`
}

// A CharDevLog is a file that gets all that the guest writes, beside whoever reads it.
type CharDevLog struct {
	File   string `xml:"file,attr"`
	Append string `xml:"append,attr"` // "on" or "off"
}

// A CharDevTarget is what the guest sees of it.
type CharDevTarget struct {
	Type string `xml:"type,attr,omitempty"`
	Name string `xml:"name,attr,omitempty"`
	Port *int   `xml:"port,attr"`
	// State is what libvirt says of a running guest's channel: "connected" once a program in the
	// guest has opened it, else "disconnected".
	State string `xml:"state,attr,omitempty"`
}

// An RNG is a source of randomness.
type RNG struct {
	Model   string      `xml:"model,attr"`
	Backend RNGBackend  `xml:"backend"`
	Address *PCIAddress `xml:"address"`
}

// An RNGBackend is where it comes from.
type RNGBackend struct {
	Model string `xml:"model,attr"`
	File  string `xml:",chardata"`
}

// A MemBalloon takes memory back from the guest.
type MemBalloon struct {
	Why   string `xml:",comment"`
	Model string `xml:"model,attr"`
}

// A Panic is a device by which a kernel says that it has crashed.
type Panic struct {
	Why   string `xml:",comment"`
	Model string `xml:"model,attr"`
}

// An IOMMU is a virtual IOMMU.
type IOMMU struct {
	Why    string      `xml:",comment"`
	Model  string      `xml:"model,attr"`
	Driver IOMMUDriver `xml:"driver"`
}

// An IOMMUDriver is what it can do.
type IOMMUDriver struct {
	IntRemap    string `xml:"intremap,attr,omitempty"`
	CachingMode string `xml:"caching_mode,attr,omitempty"`
	EIM         string `xml:"eim,attr,omitempty"`
}
