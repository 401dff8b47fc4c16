package libvirtxml

import "encoding/xml"

// Namespaces of elements that are not libvirt's own, with the prefixes that Marshal gives them.
const (
	// QEMUNamespace is that of arguments that libvirt hands to QEMU as they are.
	QEMUNamespace = "http://libvirt.org/schemas/domain/qemu/1.0"
	// RacklessNamespace is that of what rackless notes below <metadata>, which libvirt keeps and does not read.
	RacklessNamespace = "https://github.com/rackless/rackless/libvirt/1"
)

// A Domain is a virtual machine.
type Domain struct {
	XMLName xml.Name `xml:"domain"`
	Why     string   `xml:",comment"`
	Type    string   `xml:"type,attr"` // "kvm" or "qemu"

	Name          string         `xml:"name"`
	UUID          string         `xml:"uuid,omitempty"`
	Title         string         `xml:"title,omitempty"`
	Metadata      *Metadata      `xml:"metadata"`
	Memory        Size           `xml:"memory"`
	CurrentMemory *Size          `xml:"currentMemory"`
	MemoryBacking *MemoryBacking `xml:"memoryBacking"`
	VCPU          VCPU           `xml:"vcpu"`
	IOThreads     *IOThreads     `xml:"iothreads"`
	CPUTune       *CPUTune       `xml:"cputune"`
	NUMATune      *NUMATune      `xml:"numatune"`
	OS            OS             `xml:"os"`
	Features      *Features      `xml:"features"`
	CPU           *CPU           `xml:"cpu"`
	Clock         *Clock         `xml:"clock"`
	OnPoweroff    string         `xml:"on_poweroff,omitempty"`
	OnReboot      string         `xml:"on_reboot,omitempty"`
	OnCrash       string         `xml:"on_crash,omitempty"`
	PM            *PM            `xml:"pm"`
	Devices       Devices        `xml:"devices"`
	QEMU          *Commandline   `xml:"http://libvirt.org/schemas/domain/qemu/1.0 commandline"`
}

// Empty is an element that says all by being there.
type Empty struct {
	Why string `xml:",comment"`
}

// A State is an element that is on or off.
type State struct {
	Why   string `xml:",comment"`
	State string `xml:"state,attr"` // "on" or "off"
}

// Metadata is what tools note about a domain.
type Metadata struct {
	Node *Node `xml:"https://github.com/rackless/rackless/libvirt/1 node"`
}

// A Node says which lab node a domain is.
type Node struct {
	Lab  string `xml:"lab,attr"`
	Name string `xml:"name,attr"`
	Plan string `xml:"plan,attr"` // the schema of the plan: "rackless/plan/v1"
	Host string `xml:"host,attr,omitempty"`
	// Defined is added by who defines the domain; nil in what render makes.
	Defined *Defined `xml:"https://github.com/rackless/rackless/libvirt/1 defined"`
}

// Defined is the document that a domain was defined with, of which libvirt itself keeps neither form nor order.
type Defined struct {
	Digest string `xml:"digest,attr"`
	Packed string `xml:",chardata"`
}

// VCPU is the number of virtual CPUs.
type VCPU struct {
	Placement string `xml:"placement,attr,omitempty"` // "static"
	Count     int    `xml:",chardata"`
}

// IOThreads is the number of threads that serve disks.
type IOThreads struct {
	Why   string `xml:",comment"`
	Count int    `xml:",chardata"`
}

// CPUTune says on which CPUs of the host the threads of a domain run.
type CPUTune struct {
	VCPUPins     []VCPUPin     `xml:"vcpupin"`
	EmulatorPin  *EmulatorPin  `xml:"emulatorpin"`
	IOThreadPins []IOThreadPin `xml:"iothreadpin"`
}

// A VCPUPin is where one virtual CPU runs. CPU sets are lists as the kernel prints them.
type VCPUPin struct {
	Why    string `xml:",comment"`
	VCPU   int    `xml:"vcpu,attr"`
	CPUSet string `xml:"cpuset,attr"`
}

// An EmulatorPin is where QEMU's own threads run, and those of vhost.
type EmulatorPin struct {
	Why    string `xml:",comment"`
	CPUSet string `xml:"cpuset,attr"`
}

// An IOThreadPin is where one I/O thread runs. They are counted from 1.
type IOThreadPin struct {
	Why      string `xml:",comment"`
	IOThread int    `xml:"iothread,attr"`
	CPUSet   string `xml:"cpuset,attr"`
}

// OS says how the guest boots.
type OS struct {
	// "efi": libvirt chooses an image that has the features below
	FirmwareType string    `xml:"firmware,attr,omitempty"`
	Type         OSType    `xml:"type"`
	Firmware     *Firmware `xml:"firmware"`
	Kernel       *Kernel   `xml:"kernel"`
	Initrd       string    `xml:"initrd,omitempty"`
	Cmdline      string    `xml:"cmdline,omitempty"`
	Boot         []Boot    `xml:"boot"`
}

// A Kernel is one that QEMU starts by itself, by its path on the host.
type Kernel struct {
	Why  string `xml:",comment"`
	Path string `xml:",chardata"`
}

// An OSType is the machine. Its text is "hvm".
type OSType struct {
	Arch    string `xml:"arch,attr"`
	Machine string `xml:"machine,attr"`
	Value   string `xml:",chardata"`
}

// Firmware is what an image of the firmware has to have and must not have.
type Firmware struct {
	Why      string            `xml:",comment"`
	Features []FirmwareFeature `xml:"feature"`
}

// A FirmwareFeature is one such feature.
type FirmwareFeature struct {
	Enabled string `xml:"enabled,attr"` // "yes" or "no"
	Name    string `xml:"name,attr"`    // "secure-boot", "enrolled-keys"
}

// A Boot is what to boot from.
type Boot struct {
	Dev string `xml:"dev,attr"` // "hd"
}

// Features are features of the machine.
type Features struct {
	ACPI   *Empty  `xml:"acpi"`
	APIC   *Empty  `xml:"apic"`
	KVM    *KVM    `xml:"kvm"`
	PMU    *State  `xml:"pmu"`
	VMPort *State  `xml:"vmport"`
	IOAPIC *IOAPIC `xml:"ioapic"`
}

// KVM is what KVM tells the guest of itself.
type KVM struct {
	Why           string `xml:",comment"`
	Hidden        *State `xml:"hidden"`
	HintDedicated *State `xml:"hint-dedicated"`
	PollControl   *State `xml:"poll-control"`
}

// IOAPIC says who is the interrupt controller: "kvm", or "qemu" where there is a virtual IOMMU.
type IOAPIC struct {
	Why    string `xml:",comment"`
	Driver string `xml:"driver,attr"`
}

// A Clock is what the guest tells time by.
type Clock struct {
	Offset string  `xml:"offset,attr"` // "utc"
	Timers []Timer `xml:"timer"`
}

// A Timer is one clock device.
type Timer struct {
	Why        string `xml:",comment"`
	Name       string `xml:"name,attr"`
	Present    string `xml:"present,attr,omitempty"`    // "yes" or "no"
	TickPolicy string `xml:"tickpolicy,attr,omitempty"` // "catchup", "delay"
}

// PM says whether the guest may sleep.
type PM struct {
	Why           string   `xml:",comment"`
	SuspendToMem  *Enabled `xml:"suspend-to-mem"`
	SuspendToDisk *Enabled `xml:"suspend-to-disk"`
}

// Enabled is yes or no.
type Enabled struct {
	Enabled string `xml:"enabled,attr"`
}

// A Commandline is arguments for QEMU that libvirt has no setting for.
type Commandline struct {
	Why  string `xml:",comment"`
	Args []Arg  `xml:"http://libvirt.org/schemas/domain/qemu/1.0 arg"`
}

// An Arg is one argument.
type Arg struct {
	Value string `xml:"value,attr"`
}
