package render

import (
	"fmt"
	"math/bits"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

func (v *view) firmware() []Artifact {
	return []Artifact{text("firmware/bios.md", v.page("bios.md", v.plan))}
}

func (v *view) iommuFound() string {
	switch on := v.host.IOMMU.Enabled; {
	case on == nil:
		return "not known"
	case *on:
		return "on: the kernel has made groups"
	}
	return "**off**, or not switched on in the kernel"
}

// groupsFound ignores bridges: they stay with the kernel, and a group may go to a guest without them.
func (v *view) groupsFound() string {
	ours := lists.SetOf(v.whole, func(a topology.PCIAddr) topology.PCIAddr { return a })
	var shared []string
	known := false
	for _, g := range v.host.IOMMU.Groups {
		mine, others := false, 0
		for _, a := range g.Devices {
			d := v.host.Device(a)
			switch {
			case ours[a]:
				mine = true
			case d == nil || !d.IsBridge():
				others++
			}
		}
		known = known || mine
		if mine && others > 0 {
			shared = append(shared, fmt.Sprint(g.ID))
		}
	}
	switch {
	case len(shared) > 0:
		return "groups " + strings.Join(shared, ", ") + " also have devices that the plan does not give away"
	case known:
		return "groups of the plan's devices have no others"
	}
	return "not known"
}

func (v *view) sriovFound() string {
	var found []string
	for _, c := range v.plan.VFs {
		nic := v.nics[c.PF]
		switch {
		case nic == nil || nic.SRIOV == nil || nic.SRIOV.Total == nil:
			found = append(found, mdText(c.PF)+" **offers none**")
		default:
			found = append(found, fmt.Sprintf("%s offers %d", mdText(c.PF), *nic.SRIOV.Total))
		}
	}
	return strings.Join(found, ", ")
}

func (v *view) largestBAR() uint64 {
	var largest uint64
	for _, a := range v.whole {
		if d := v.host.Device(a); d != nil {
			for _, bar := range d.BARs {
				largest = max(largest, bar.SizeBytes)
			}
		}
	}
	return largest
}

func (v *view) machineName() string {
	s := v.host.System
	return mdText(strings.Join(strings.Fields(s.Vendor+" "+s.Product+" "+s.CPUModel), " "))
}

func mdComment(s string) string {
	return "<!-- " + strings.ReplaceAll(strings.ReplaceAll(oneLine(s), "--", "- -"), ">", " ") + " -->\n\n"
}

// mdText escapes outside text, so that it contains no markup and ends no table cell.
func mdText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "<", "&lt;", "|", `\|`).Replace(oneLine(s))
}

// OVMF gives 64-bit BARs a window of 32 GiB, and leaves out BARs that do not fit. The guest's driver then finds a BAR
// of size 0 (NVIDIA's says "BAR0 is 0M @ 0x0"). Versions since 2023 take an eighth of the address space if they know
// its width. The argument is a minimum for them, and since 2025 the exact size. Above maxWindow OVMF ignores it.
//
// Source: OvmfPkg/Library/PlatformInitLib/MemDetect.c in https://github.com/tianocore/edk2.
const (
	defaultWindow = 32 << 30
	maxWindow     = 16 << 40
)

func (m *machine) window(d *libvirtxml.Domain, slots []slot, why reasons) {
	if m.arch != archX86 { // aarch64's virt has a window of 512 GiB
		return
	}
	need := m.windowBytes(slots)
	if need <= defaultWindow {
		return
	}
	// The window is below the guest's highest address, so the guest needs as many address bits as the host.
	d.CPU.MaxPhysAddr = &libvirtxml.DomainCPUMaxPhysAddr{Mode: "passthrough"}
	why.add("cpu/maxphysaddr", "room for the window of the devices' memory: see the end of this file")
	d.QEMUCommandline = &libvirtxml.DomainQEMUCommandline{Args: []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-fw_cfg"}, {Value: fmt.Sprintf("name=opt/ovmf/X-PciMmio64Mb,string=%d", need>>20)},
	}}
	why.add("commandline", fmt.Sprintf("the BARs of the devices need up to %d GiB of addresses, and the firmware's "+
		"window may have only %d GiB: what does not fit would have size 0. libvirt's own element for this, sysinfo "+
		"of type fwcfg, refuses names of the firmware", need>>30, defaultWindow>>30))
}

// windowBytes returns a power of two. A root port's window begins at a multiple of its largest BAR, so each port counts
// as its sum rounded up to a power of two.
func (m *machine) windowBytes(slots []slot) uint64 {
	var total uint64
	for _, s := range slots {
		var port uint64
		for _, f := range s.functions {
			d := m.host.Device(f.host)
			if d == nil {
				continue
			}
			for _, b := range d.BARs {
				if b.Index < 6 && b.Bits64 && !b.IO {
					port = min(port+min(b.SizeBytes, maxWindow), maxWindow)
				}
			}
		}
		total = min(total+powerOfTwo(port), maxWindow)
	}
	return powerOfTwo(total)
}

func powerOfTwo(n uint64) uint64 {
	if n < 2 {
		return n
	}
	return 1 << bits.Len64(n-1)
}
