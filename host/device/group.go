package device

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rackless/rackless/topology"
)

const fixIOMMU = "switch VT-d or AMD-Vi on in the machine's firmware, and the IOMMU in the kernel (rackless plan " +
	"shows the arguments)"

// viable returns an error where the function's IOMMU group has functions that the host uses and
// that ours does not name: VFIO takes a group whole or not at all ("group N is not viable").
// Bridges count where their driver is not one of those that leave memory alone: since Linux 5.19
// that is what the kernel asks (driver_managed_dma), and before it asked less.
func (f function) viable(ours func(topology.PCIAddr) bool) error {
	group, err := f.group()
	if err != nil {
		return err
	}
	if group == "" {
		return fmt.Errorf("%s is in no IOMMU group: %s", f.a, fixIOMMU)
	}
	members, err := f.s.List(f.path("iommu_group/devices"))
	if err != nil {
		return err
	}
	for _, name := range members {
		a, err := topology.ParsePCIAddr(name)
		if err != nil {
			return fmt.Errorf("IOMMU group %s of %s also has %q, which is not on PCI: it cannot be given to a guest",
				group, f.a, name)
		}
		if a == f.a || ours(a) {
			continue
		}
		member := function{f.s, f.k, a}
		driver, err1 := member.driver()
		text, err2 := f.s.Value(member.path("class"))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		switch driver {
		case "", vfioPCI, "pci-stub":
			continue
		}
		class, err := topology.ParseID24(text)
		if err != nil {
			return fmt.Errorf("%s: %w", member.path("class"), err)
		}
		switch {
		case class.Sub() == topology.SubPCIBridge && driver == "pcieport":
			continue
		case class.Base() == topology.ClassBridge:
			return fmt.Errorf("IOMMU group %s of %s also has bridge %s, which driver %s uses: the kernel does not "+
				"give such a group away; move the card to another slot", group, f.a, a, driver)
		}
		return fmt.Errorf("IOMMU group %s of %s also has %s, which the host uses with driver %s: a group goes to a "+
			"guest whole or not at all; give both away, or move one to another slot", group, f.a, a, driver)
	}
	return nil
}

// lastFunction returns the last PCI address in a path below /sys/devices: the function that what
// the path names belongs to.
func lastFunction(path string) (topology.PCIAddr, bool) {
	for path != "/" && path != "." {
		name := filepath.Base(path)
		if a, err := topology.ParsePCIAddr(name); err == nil && strings.Count(name, ":") == 2 {
			return a, true
		}
		path = filepath.Dir(path)
	}
	return topology.PCIAddr{}, false
}
