package render

import (
	"crypto/sha256"
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// DiskPath is in libvirt's pool "default".
func DiskPath(labName, node string) string {
	return "/var/lib/libvirt/images/" + lab.VMName(labName, node) + ".qcow2"
}

const (
	diskPort = iota + 1
	networkPort
	serialPort
	randomPort
	seedPort
)

func (m *machine) devices(n *plan.Node, t *tree, why reasons) *libvirtxml.DomainDeviceList {
	pty := &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}}
	d := &libvirtxml.DomainDeviceList{
		Controllers: append(t.controllers,
			libvirtxml.DomainController{Type: "virtio-serial", Index: new(uint(0)), Address: behind(serialPort),
				VirtIOSerial: &libvirtxml.DomainControllerVirtIOSerial{Ports: new(uint(2))}},
			libvirtxml.DomainController{Type: "usb", Model: "none"}),
		Serials:  []libvirtxml.DomainSerial{{Source: pty, Log: m.consoleLog(n)}},
		Consoles: []libvirtxml.DomainConsole{{Source: pty}},
		Channels: []libvirtxml.DomainChannel{{
			Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
			Target: &libvirtxml.DomainChannelTarget{
				VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: "org.qemu.guest_agent.0"}},
		}},
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
			Address: behind(randomPort),
		}},
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
	}
	for i, reason := range t.why {
		why.addAt("devices/controller", i, reason)
	}
	why.addAt("devices/controller", len(d.Controllers)-1, "an emulated USB controller wakes QEMU's main loop many "+
		"times a second")
	why.add("devices/serial", "virsh console")
	why.add("devices/channel", "the guest agent, by which rackless looks into the node without a network")
	why.add("devices/memballoon", "pages that devices write to, and hugepages, cannot be given back")
	if v := iommu(n, why); v != nil {
		d.IOMMUs = []libvirtxml.DomainIOMMU{*v}
	}
	if m.in.Boot == nil {
		d.Disks = []libvirtxml.DomainDisk{m.disk(n, why)}
		if seed := m.in.Seeds[n.Name]; seed != "" {
			d.Disks = append(d.Disks, seedDisk(seed, why))
		}
		d.Interfaces = []libvirtxml.DomainInterface{m.management(n, why)}
	}
	if m.arch == archX86 {
		d.Panics = []libvirtxml.DomainPanic{{Model: "isa"}}
		why.add("devices/panic", "a guest whose kernel has crashed is ended, and its devices come back")
	}
	for _, p := range t.devices {
		for i := range p.functions {
			passThrough(d, &p, i, why)
		}
	}
	return d
}

// ConsolePath is a node's file in dir.
func ConsolePath(dir, labName, node string) string {
	return dir + "/" + lab.VMName(labName, node) + "-console.log"
}

func (m *machine) consoleLog(n *plan.Node) *libvirtxml.DomainChardevLog {
	if m.in.ConsoleDir == "" {
		return nil
	}
	return &libvirtxml.DomainChardevLog{File: ConsolePath(m.in.ConsoleDir, m.in.Plan.Lab, n.Name), Append: "off"}
}

func behind(port int) *libvirtxml.DomainAddress {
	return &libvirtxml.DomainAddress{PCI: pciAddress(0, port, 0, 0)}
}

func (m *machine) disk(n *plan.Node, why reasons) libvirtxml.DomainDisk {
	why.add("devices/disk", "bring your own image: this path, or another file here")
	why.add("devices/disk/driver", "past the host's page cache, which would take memory of the host's side; freed "+
		"blocks are given back")
	return libvirtxml.DomainDisk{
		Device: "disk",
		Driver: &libvirtxml.DomainDiskDriver{
			Name: "qemu", Type: "qcow2", Cache: "none", IO: "native", Discard: "unmap", IOThread: new(uint(1)),
		},
		Source: &libvirtxml.DomainDiskSource{
			File: &libvirtxml.DomainDiskSourceFile{File: DiskPath(m.in.Plan.Lab, n.Name)}},
		Target:  &libvirtxml.DomainDiskTarget{Dev: "vda", Bus: "virtio"},
		Address: behind(diskPort),
	}
}

func seedDisk(path string, why reasons) libvirtxml.DomainDisk {
	why.addAt("devices/disk", 1, "cloud-init finds it by its label and makes the system a node: names, network, "+
		"packages, guest agent")
	return libvirtxml.DomainDisk{
		Device:   "disk",
		Driver:   &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"},
		Source:   &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}},
		Target:   &libvirtxml.DomainDiskTarget{Dev: "vdb", Bus: "virtio"},
		ReadOnly: &libvirtxml.DomainDiskReadOnly{},
		Address:  behind(seedPort),
	}
}

func (m *machine) management(n *plan.Node, why reasons) libvirtxml.DomainInterface {
	why.add("devices/interface", "for management only: libvirt's network \"default\"; the lab's traffic goes over the "+
		"devices below")
	return libvirtxml.DomainInterface{
		MAC: &libvirtxml.DomainInterfaceMAC{Address: m.managementMAC(n.Name)},
		Source: &libvirtxml.DomainInterfaceSource{
			Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: "default"}},
		Model:   &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		Address: behind(networkPort),
	}
}

// managementMAC is stable, so that its lease and its name in the guest stay. It is in the range of QEMU and libvirt,
// and differs from the lab's own addresses.
func (m *machine) managementMAC(node string) string {
	for try := 0; ; try++ { // a lab has at most 4000 ports
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/management/%d", m.in.Plan.Lab, node, try))
		if mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2]); !m.usedMACs[mac] {
			m.usedMACs[mac] = true
			return mac
		}
	}
}

// passThrough lets libvirt unbind a function from its driver at the guest's start and rebind it later, so that the host
// need not be prepared.
func passThrough(d *libvirtxml.DomainDeviceList, p *placed, i int, why reasons) {
	f, reason := &p.functions[i], ""
	if i == 0 {
		reason = p.why
	}
	source := &libvirtxml.DomainHostdevSubsysPCISource{Address: pciAddress(int(f.host.Domain), int(f.host.Bus),
		int(f.host.Device), int(f.host.Function))}
	guest := pciAddress(0, p.bus, 0, int(f.guest))
	if i == 0 && len(p.functions) > 1 {
		guest.MultiFunction = "on"
	}
	if f.mac != "" {
		why.addAt("devices/interface", len(d.Interfaces), reason+"; as an interface, so that libvirt sets the address "+
			"of the plan before the guest's driver starts: a virtual function otherwise has a new one after every "+
			"boot of the host, and without any its RDMA node GUID is 0")
		d.Interfaces = append(d.Interfaces, libvirtxml.DomainInterface{
			Managed: "yes",
			MAC:     &libvirtxml.DomainInterfaceMAC{Address: f.mac},
			Driver:  &libvirtxml.DomainInterfaceDriver{Name: "vfio"},
			Source: &libvirtxml.DomainInterfaceSource{
				Hostdev: &libvirtxml.DomainInterfaceSourceHostdev{PCI: source}},
			Address: &libvirtxml.DomainAddress{PCI: guest},
		})
		return
	}
	why.addAt("devices/hostdev", len(d.Hostdevs), reason)
	d.Hostdevs = append(d.Hostdevs, libvirtxml.DomainHostdev{
		Managed: "yes",
		SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
			Driver: &libvirtxml.DomainHostdevSubsysPCIDriver{Name: "vfio"}, Source: source},
		Address: &libvirtxml.DomainAddress{PCI: guest},
	})
}
