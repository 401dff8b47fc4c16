package emulated

import (
	"errors"
	"fmt"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
)

// What driver qemu gives one node. Lab files may ask for more, for hosts.
const (
	// maxCPUs is what was tried. QEMU itself ends at 255, the APIC IDs that it has without x2APIC,
	// which the CPU of its emulation lacks.
	maxCPUs = 64
	// maxPorts is what was tried: each takes one of the 31 slots of the node's only PCI bus.
	maxPorts = 8
)

// Supported refuses what driver qemu cannot do. What a lab says about its place on a host (workload,
// host, hugepages, tenants, affinity, links, smt, guest_numa) is not refused: an emulated node has no place
// there. Devices of a host are refused: an emulated device is no substitute.
func Supported(l *lab.Lab) error {
	if l.Driver.Placed() {
		return fmt.Errorf("lab %s: driver %s puts nodes on a host, and is not for emulated ones: use auto or qemu",
			l.Name, l.Driver)
	}
	for _, n := range l.Nodes {
		if n.HasDisk() && arch(l) != string(lab.ArchAMD64) {
			return fmt.Errorf("lab %s: node %s asks for image %s, and nodes of %s have image %s only: leave image out",
				l.Name, n.Name, n.Image, arch(l), lab.DefaultImage)
		}
		if err := supported(n); err != nil {
			return fmt.Errorf("lab %s: node %s %w", l.Name, n.Name, err)
		}
	}
	return nil
}

// supported returns what is wrong with a node, to be read behind its name.
func supported(n lab.Node) error {
	const host = "to place the lab on a host that has them, see rackless plan"
	switch {
	case n.GPUs > 0:
		return fmt.Errorf("asks for %s, which driver qemu cannot give: set gpus: 0; %s", words.Count(n.GPUs, "GPU"),
			host)
	case n.VFs > 0:
		return fmt.Errorf("asks for %s, which driver qemu cannot give: set vfs: 0 and nics: %d; %s",
			words.Count(n.VFs, "virtual function"), len(n.NICs), host)
	case len(n.NICs) == 0:
		return errors.New("has no NIC, and an emulated node without one is on no fabric: set nics: 1")
	case len(n.NICs) > maxPorts:
		return fmt.Errorf("asks for %d NICs, and driver qemu gives at most %d: set nics: %d", len(n.NICs), maxPorts,
			maxPorts)
	case n.CPUs > maxCPUs:
		return fmt.Errorf("asks for %d CPUs, and driver qemu gives at most %d: set cpus: %d", n.CPUs, maxCPUs, maxCPUs)
	case n.OwnImage() && n.Memory < lab.MinFullMemory:
		return fmt.Errorf("has %v for the system of %s: set memory: %v, or more", n.Memory, n.Image,
			lab.DefaultFullMemory)
	}
	for _, r := range n.NICRequests {
		switch {
		case r.Address != "":
			return fmt.Errorf("asks for the NIC %s, and driver qemu gives emulated ones: set nics: %d; %s", r.Address,
				len(n.NICs), host)
		case r != (lab.DeviceRequest{Count: r.Count}):
			return fmt.Errorf("asks for NICs by what they are, and driver qemu gives emulated ones: set nics: %d; %s",
				len(n.NICs), host)
		}
	}
	return nil
}
