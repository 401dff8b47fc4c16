package render

import (
	"crypto/sha256"
	"fmt"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render/libvirtxml"
)

// DiskPath returns where the disk of a lab node is expected on the host: in the directory of libvirt's pool "default".
func DiskPath(labName, node string) string {
	return "/var/lib/libvirt/images/" + DomainName(labName, node) + ".qcow2"
}

// Indexes of the root ports of emulated devices: see emulatedPorts.
const (
	diskPort = iota + 1
	networkPort
	serialPort
	randomPort
)

// devices returns all devices: the controllers of t, what is emulated, what is passed through.
func (m *machine) devices(n *plan.Node, t *tree) libvirtxml.Devices {
	d := libvirtxml.Devices{
		Controllers: append(t.controllers,
			libvirtxml.Controller{Type: "virtio-serial", Index: new(0), Ports: 2, Address: behind(serialPort)},
			libvirtxml.Controller{Why: "an emulated USB controller wakes QEMU's main loop many times a second",
				Type: "usb", Model: "none"}),
		Serials:  []libvirtxml.CharDev{{Why: "virsh console", Type: "pty", Log: m.consoleLog(n)}},
		Consoles: []libvirtxml.CharDev{{Type: "pty"}},
		Channels: []libvirtxml.CharDev{{
			Why: "the guest agent, by which rackless looks into the node without a network", Type: "unix",
			Target: &libvirtxml.CharDevTarget{Type: "virtio", Name: "org.qemu.guest_agent.0"},
		}},
		RNGs: []libvirtxml.RNG{{
			Model: "virtio", Backend: libvirtxml.RNGBackend{Model: "random", File: "/dev/urandom"},
			Address: behind(randomPort),
		}},
		MemBalloon: &libvirtxml.MemBalloon{Why: "pages that devices write to, and hugepages, cannot be given back",
			Model: "none"},
		IOMMU: iommu(n),
	}
	if m.in.Boot == nil {
		d.Disks = []libvirtxml.Disk{m.disk(n)}
		d.Interfaces = []libvirtxml.Interface{m.management(n)}
	}
	if m.arch == archX86 {
		d.Panics = []libvirtxml.Panic{{Why: "a guest whose kernel has crashed is ended, and its devices come back",
			Model: "isa"}}
	}
	for _, p := range t.devices {
		for i, f := range p.functions {
			m.passThrough(&d, &p, i, &f)
		}
	}
	return d
}

// ConsolePath is the file in dir with what the console of a node has printed since it was started.
func ConsolePath(dir, labName, node string) string {
	return dir + "/" + DomainName(labName, node) + "-console.log"
}

func (m *machine) consoleLog(n *plan.Node) *libvirtxml.CharDevLog {
	if m.in.ConsoleDir == "" {
		return nil
	}
	return &libvirtxml.CharDevLog{File: ConsolePath(m.in.ConsoleDir, m.in.Plan.Lab, n.Name), Append: "off"}
}

// behind returns the address of an emulated device behind its root port.
func behind(port int) *libvirtxml.PCIAddress {
	return &libvirtxml.PCIAddress{Type: "pci", Bus: libvirtxml.Hex(port)}
}

func (m *machine) disk(n *plan.Node) libvirtxml.Disk {
	return libvirtxml.Disk{
		Why:  "bring your own image: this path, or another file here",
		Type: "file", Device: "disk",
		Driver: libvirtxml.DiskDriver{
			Why:  "past the host's page cache, which would take memory of the host's side; freed blocks are given back",
			Name: "qemu", Type: "qcow2", Cache: "none", IO: "native", Discard: "unmap", IOThread: 1,
		},
		Source:  &libvirtxml.DiskSource{File: DiskPath(m.in.Plan.Lab, n.Name)},
		Target:  libvirtxml.DiskTarget{Dev: "vda", Bus: "virtio"},
		Address: behind(diskPort),
	}
}

func (m *machine) management(n *plan.Node) libvirtxml.Interface {
	return libvirtxml.Interface{
		Why:     "for management only: libvirt's network \"default\"; the lab's traffic goes over the devices below",
		Type:    "network",
		MAC:     &libvirtxml.MAC{Address: m.managementMAC(n.Name)},
		Source:  &libvirtxml.InterfaceSource{Network: "default"},
		Model:   &libvirtxml.Model{Type: "virtio"},
		Address: behind(networkPort),
	}
}

// managementMAC returns the address of the management interface: always the same for a lab node, so
// that its lease and its name in the guest stay, in the range that QEMU and libvirt use, and none
// of the lab's own.
func (m *machine) managementMAC(node string) string {
	for try := 0; ; try++ { // ends: a lab has at most 4000 ports
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/management/%d", m.in.Plan.Lab, node, try))
		mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
		if !m.usedMACs[mac] {
			m.usedMACs[mac] = true
			return mac
		}
	}
}

// passThrough adds function i of p.
func (m *machine) passThrough(d *libvirtxml.Devices, p *placed, i int, f *function) {
	source := libvirtxml.PCIAddress{
		Domain: libvirtxml.Hex(f.host.Domain), Bus: libvirtxml.Hex(f.host.Bus), Slot: libvirtxml.Hex(f.host.Device),
		Function: libvirtxml.Hex(f.host.Function),
	}
	guest := &libvirtxml.PCIAddress{Type: "pci", Bus: libvirtxml.Hex(p.bus), Function: libvirtxml.Hex(f.guest)}
	if i == 0 && len(p.functions) > 1 {
		guest.Multifunction = "on"
	}
	why := ""
	if i == 0 {
		why = libvirtxml.Comment(p.why)
	}
	if f.mac != "" {
		source.Type = "pci"
		d.Interfaces = append(d.Interfaces, libvirtxml.Interface{
			Why: why + "; as an interface, so that libvirt sets the address of the plan before the guest's driver " +
				"starts: a virtual function otherwise has " +
				"a new one after every boot of the host, and without any its RDMA node GUID is 0",
			Type: "hostdev", Managed: "yes",
			MAC:     &libvirtxml.MAC{Address: f.mac},
			Driver:  &libvirtxml.Driver{Name: "vfio"},
			Source:  &libvirtxml.InterfaceSource{Address: &source},
			Address: guest,
		})
		return
	}
	d.HostDevs = append(d.HostDevs, libvirtxml.HostDev{
		Why: why, Mode: "subsystem", Type: "pci", Managed: "yes",
		Driver:  &libvirtxml.Driver{Name: "vfio"},
		Source:  libvirtxml.HostDevSource{Address: source},
		Address: guest,
	})
}
