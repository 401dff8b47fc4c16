package render

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// hypervisors start guests; a host has one of the two variants. The guests' requirements must be ready before them.
const hypervisors = "libvirtd.service virtqemud.service libvirt-guests.service"

func (v *view) housekeeping() topology.CPUSet { return v.plan.Housekeeping.CPUs }

func (v *view) hostFiles() []Artifact {
	files := v.hugepageMounts()
	if !v.given.IsEmpty() {
		files = append(files, text("systemd/irqbalance.service.d/"+UnitName(v.plan.Lab, ".conf"),
			v.page("irqbalance.conf", v.plan)))
	}
	return append(files, v.earlyVFIO()...)
}

// HostFiles configure the host, each with its path there.
func HostFiles(in Input) ([]Artifact, error) {
	v, err := newView(in)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	files := v.hostFiles()
	for i, f := range files {
		dir, rest, _ := strings.Cut(f.Path, "/")
		files[i].Path = map[string]string{"systemd": "/etc/systemd/system/", "udev": "/etc/udev/rules.d/",
			"modprobe.d": "/etc/modprobe.d/"}[dir] + rest
	}
	return files, nil
}

// UnitName is for a directory with files of others.
func UnitName(lab, suffix string) string { return "rackless-" + safeName(lab) + suffix }

// hugepageMounts returns a mount for each page size that is not the kernel's default. libvirt takes pages only from a
// mount of their size, and systemd mounts only the default one, at /dev/hugepages.
func (v *view) hugepageMounts() []Artifact {
	// The default of x86 and of arm64 with pages of 4 KiB.
	standard := uint64(2 << 20)
	if v.host.Memory.DefaultHuge != nil {
		standard = *v.host.Memory.DefaultHuge
	}
	var mounts []Artifact
	for _, size := range v.plan.PageSizes() {
		if size == standard {
			continue
		}
		label := fmt.Sprintf("%dM", size>>20)
		if size%(1<<30) == 0 {
			label = fmt.Sprintf("%dG", size>>30)
		}
		mounts = append(mounts, text("systemd/dev-hugepages"+label+".mount", v.page("hugepages.mount", struct {
			Label, Before string
			KiB           uint64
		}{label, hypervisors, size >> 10})))
	}
	return mounts
}

func (v *view) drivers() []string {
	all := lists.Flat(v.whole, func(a topology.PCIAddr) []string { return v.driversOf(a) })
	return lists.Distinct(all)
}

// driversOf returns the host's modules, or else known ones for vendor and class.
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

// isDriver accepts names of modules, which PCI drivers have; others do not belong in a file for modprobe.
func isDriver(name string) bool {
	switch name {
	case "", "vfio-pci", "vfio_pci", "pci-stub":
		return false
	}
	return strings.Trim(name, moduleLetters) == ""
}

const moduleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

func (v *view) udevRules() string    { return "10-rackless-" + v.lab + ".rules" }
func (v *view) modprobeFile() string { return "rackless-" + v.lab + ".conf" }

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

func (v *view) tuned() []Artifact {
	if v.given.IsEmpty() {
		return nil
	}
	summary := strings.ReplaceAll("Host of lab "+oneLine(v.plan.Lab), "$", "") // tuned's variables begin with $
	return []Artifact{text("tuned/rackless-"+v.lab+"/tuned.conf", v.page("tuned.conf", summary))}
}
