package render

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/topology"
)

// drivers returns the modules that would take the functions of the lab nodes on the host, sorted.
func (v *view) drivers() []string {
	all := lists.Flat(v.whole, func(a topology.PCIAddr) []string { return v.driversOf(a) })
	slices.Sort(all)
	return slices.Compact(all)
}

// driversOf returns the modules for a function: what the host says, else what is known of its vendor and class.
func (v *view) driversOf(a topology.PCIAddr) []string {
	d := v.host.Device(a)
	if d == nil {
		return nil
	}
	names := lists.Filter(append([]string{d.Driver}, d.Candidates...), isDriver)
	if len(names) > 0 || d.Class == nil || d.Vendor == nil {
		return names
	}
	switch class := d.Class.Base(); {
	case class == topology.ClassDisplay && *d.Vendor == topology.VendorNVIDIA:
		return []string{"nvidia", "nouveau"}
	case class == topology.ClassDisplay && *d.Vendor == topology.VendorAMD:
		return []string{"amdgpu"}
	case class == topology.ClassNetwork && *d.Vendor == topology.VendorMellanox:
		return []string{"mlx5_core"}
	case class == 0x04: // multimedia: the audio of a GPU
		return []string{"snd_hda_intel"}
	}
	return nil
}

// isDriver reports whether a name is that of a driver which uses a function itself. Drivers of PCI are named like their
// modules; anything else has no place in a file for modprobe.
func isDriver(name string) bool {
	switch name {
	case "", "vfio-pci", "vfio_pci", "pci-stub":
		return false
	}
	return strings.Trim(name, moduleLetters) == ""
}

const moduleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// udevRules and modprobeFile are the names of the files below /etc.
func (v *view) udevRules() string    { return "10-rackless-" + v.lab + ".rules" }
func (v *view) modprobeFile() string { return "rackless-" + v.lab + ".conf" }

// earlyVFIO returns what keeps other drivers away from the functions while the machine boots.
func (v *view) earlyVFIO() []Artifact {
	if len(v.whole) == 0 {
		return nil
	}
	files := struct {
		Functions []topology.PCIAddr
		Drivers   []string
	}{v.whole, v.drivers()}
	return []Artifact{
		text("udev/"+v.udevRules(), v.page("vfio.rules", files)),
		text("modprobe.d/"+v.modprobeFile(), v.page("modprobe.conf", files)),
	}
}
