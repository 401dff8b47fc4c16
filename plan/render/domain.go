package render

import (
	"cmp"
	"crypto/sha1"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// DomainPath is relative to the directory of the plan.
func DomainPath(node string) string { return "domains/" + node + ".xml" }

// Domains returns domains/NODE.xml for each node. "virsh define" accepts each file as it is.
//
// Domains returns an error for a device without a PCI address, a future virtual function with an address that does not
// follow from the host's data, a machine that is neither x86_64 nor aarch64, or an inconsistent plan. It names all
// faults, without artefacts, because half a lab is useless.
func Domains(in Input) ([]Artifact, error) {
	if in.Plan == nil {
		return nil, errors.New("render domains: no plan")
	}
	m, err := newMachine(in)
	if err != nil {
		return nil, fmt.Errorf("render domains: %w", err)
	}
	var artefacts []Artifact
	var faults []error
	for i := range in.Plan.Nodes {
		n := &in.Plan.Nodes[i]
		data, err := m.domain(n)
		if err != nil {
			faults = append(faults, fmt.Errorf("render domain of node %q: %w", n.Name, err))
			continue
		}
		artefacts = append(artefacts, Artifact{Path: DomainPath(n.Name), Mode: 0o644, Data: data})
	}
	return artefacts, errors.Join(faults...)
}

// Architectures, by uname -m and libvirt.
const (
	archX86 = "x86_64"
	archARM = "aarch64"
)

type machine struct {
	in   Input
	host *topology.Host
	arch string
	amd  bool
	// guessedArch is set if the host's source does not give it.
	guessedArch bool
	usedMACs    map[string]bool // the lab's own, lower case
}

func newMachine(in Input) (*machine, error) {
	m := &machine{in: in, host: cmp.Or(in.Host, &topology.Host{}), arch: archX86, usedMACs: map[string]bool{}}
	switch arch := m.host.System.Arch; arch {
	case archX86, "amd64":
	case archARM, "arm64":
		m.arch = archARM
	case "":
		m.guessedArch = true
	default:
		return nil, fmt.Errorf("host of architecture %q; want %s or %s", arch, archX86, archARM)
	}
	m.amd = isAMD(m.host.System.CPUModel)
	if err := checkName("lab", in.Plan.Lab); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, n := range in.Plan.Nodes {
		if err := checkName("node", n.Name); err != nil {
			return nil, err
		}
		if seen[n.Name] {
			return nil, fmt.Errorf("two nodes are named %q", n.Name)
		}
		seen[n.Name] = true
		for _, nic := range n.NICs {
			m.usedMACs[strings.ToLower(nic.MAC)] = true
		}
	}
	return m, nil
}

// isAMD checks the CPU's name, the only data that a Host has. Hygon CPUs have AMD's design.
func isAMD(model string) bool {
	return slices.ContainsFunc([]string{"AMD", "EPYC", "Ryzen", "Hygon"},
		func(word string) bool { return strings.Contains(model, word) })
}

// checkName refuses names of edited plans. They become parts of paths and of commands that people copy.
func checkName(kind, name string) error {
	for i, r := range name {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || i > 0 && (r == '-' || r == '_') {
			continue
		}
		return fmt.Errorf("name of %s %q: want a letter or digit, then letters, digits, hyphens and underscores", kind,
			name)
	}
	if name == "" {
		return fmt.Errorf("%s without a name", kind)
	}
	return nil
}

// uuid depends only on the names, so that "virsh define" replaces an earlier version of the same node and never another
// domain. It is of version 5 (RFC 9562, section 5.5) in the namespace of URLs.
func uuid(labName, node string) string {
	namespace := [16]byte{0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30,
		0xc8}
	sum := sha1.Sum(append(namespace[:], "https://github.com/rackless/rackless/lab/"+labName+"/node/"+node...))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

func (m *machine) domain(n *plan.Node) ([]byte, error) {
	if err := checkNode(n); err != nil {
		return nil, err
	}
	if m.in.Emulated && needsIOMMU(n) {
		return nil, fmt.Errorf("%d vcpus, and an emulated node has at most %d: their interrupts need KVM", len(n.VCPUs),
			maxPlainVCPUs)
	}
	slots, tree, err := m.tree(n)
	if err != nil {
		return nil, err
	}
	mark, err := xml.Marshal(Mark{Lab: m.in.Plan.Lab, Name: n.Name, Plan: m.in.Plan.Schema,
		Host: xmlComment(m.in.Plan.Host.Name), Isolated: isolatedBy(m.in.Plan).String()})
	if err != nil {
		return nil, err
	}
	why := reasons{}
	why.add("", m.header(n))
	why.add("iothreads", m.ioThreadWhy())
	memory, unit := scaled(n.MemoryBytes)
	d := &libvirtxml.Domain{
		Type: m.virtType(),
		Name: lab.VMName(m.in.Plan.Lab, n.Name), UUID: uuid(m.in.Plan.Lab, n.Name),
		Title:         fmt.Sprintf("%s of rackless lab %s", n.Name, m.in.Plan.Lab),
		Metadata:      &libvirtxml.DomainMetadata{XML: string(mark)},
		Memory:        &libvirtxml.DomainMemory{Value: memory, Unit: unit},
		CurrentMemory: &libvirtxml.DomainCurrentMemory{Value: memory, Unit: unit},
		MemoryBacking: memoryBacking(n, len(slots) > 0, why),
		VCPU:          &libvirtxml.DomainVCPU{Placement: "static", Value: uint(len(n.VCPUs))},
		IOThreads:     1,
		CPUTune:       m.cpuTune(n, why),
		NUMATune:      numaTune(n, why),
		OS:            m.os(why),
		Features:      m.features(n, why),
		CPU:           m.cpu(n, why),
		Clock:         m.clock(why),
		OnPoweroff:    "destroy", OnReboot: m.onReboot(), OnCrash: "destroy",
		Devices: m.devices(n, tree, why),
	}
	if len(slots) > 0 && m.arch == archX86 { // aarch64's machine type virt has no such states
		no := &libvirtxml.DomainPMPolicy{Enabled: "no"}
		d.PM = &libvirtxml.DomainPM{SuspendToMem: no, SuspendToDisk: no}
		why.add("pm", "devices that are passed through do not outlive a guest that sleeps")
	}
	if d.OS.Firmware != "" {
		m.window(d, slots, why)
	}
	return explainedXML(d, why)
}

func (m *machine) tree(n *plan.Node) ([]slot, *tree, error) {
	slots, err := m.slots(n)
	if err != nil {
		return nil, nil, err
	}
	emulated := emulatedPorts
	if m.in.Seeds[n.Name] != "" {
		emulated++
	}
	t, err := layOut(n, m.groups(slots), emulated)
	if err != nil { // more devices fit without switches
		t, err = layOut(n, alone(slots), emulated)
	}
	return slots, t, err
}

func (m *machine) virtType() string {
	if m.in.Emulated {
		return "qemu"
	}
	return "kvm"
}

func (m *machine) ioThreadWhy() string {
	if m.in.Boot != nil {
		return "for a disk, should one be attached: its requests would never wait for QEMU's main loop"
	}
	return "one thread of its own serves the disk, so that disk requests never wait for QEMU's main loop"
}

// onReboot destroys a guest with its root in memory, which would lose its name and addresses.
func (m *machine) onReboot() string {
	if m.in.Boot != nil {
		return "destroy"
	}
	return "restart"
}

func (m *machine) header(n *plan.Node) string {
	text := fmt.Sprintf("%s. Node %s of lab %s. rackless is not needed to use this file: virsh define %s, then virsh "+
		"start %s. libvirt does not keep these comments.", strings.TrimSuffix(m.in.Made, "."), n.Name, m.in.Plan.Lab,
		DomainPath(n.Name), lab.VMName(m.in.Plan.Lab, n.Name))
	if m.in.Made == "" {
		text = strings.TrimPrefix(text, ". ")
	}
	if m.guessedArch {
		text += " What the host was read from does not tell its architecture: x86_64 was assumed."
	}
	return text
}

func (m *machine) os(why reasons) *libvirtxml.DomainOS {
	os := &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: m.arch, Machine: "q35", Type: "hvm"}}
	if m.arch == archARM {
		os.Type.Machine = "virt"
	}
	if b := m.in.Boot; b != nil {
		why.add("os/kernel", "the node is in memory alone: this kernel, and a file system that it unpacks")
		os.Kernel, os.Initrd, os.Cmdline = b.Kernel, b.Initramfs, b.Args
		return os
	}
	os.BootDevices = []libvirtxml.DomainBootDevice{{Dev: "hd"}}
	if m.in.Emulated && m.arch == archX86 {
		return os
	}
	os.Firmware = "efi"
	os.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{
		Features: []libvirtxml.DomainOSFirmwareFeature{{Enabled: "no", Name: "secure-boot"}},
	}
	why.add("os/firmware", "UEFI, because GPUs with large memories need more room for their addresses than a BIOS "+
		"gives; without secure boot, under which the kernel would refuse the drivers of GPU and NIC vendors that are "+
		"built on the node")
	return os
}

func (m *machine) lowLatency() bool { return m.in.Plan.Workload == lab.WorkloadRDMALatency }
