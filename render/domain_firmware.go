package render

import (
	"fmt"
	"math/bits"

	"libvirt.org/go/libvirtxml"
)

// OVMF gives 64-bit BARs a window of 32 GiB, and leaves out what does not fit: the guest's driver
// then finds a BAR of size 0 (NVIDIA's says "BAR0 is 0M @ 0x0"). Versions of 2023 and later take an
// eighth of the address space where they know its width; the argument is a least size for them, and
// the very size since 2025. Above maxWindow OVMF ignores it.
//
// Source: OvmfPkg/Library/PlatformInitLib/MemDetect.c in https://github.com/tianocore/edk2.
const (
	defaultWindow = 32 << 30
	maxWindow     = 16 << 40
)

// window widens the firmware's window where the devices need it.
func (m *machine) window(d *libvirtxml.Domain, slots []slot, why reasons) {
	if m.arch != archX86 { // the virt machine of aarch64 has a window of 512 GiB by itself
		return
	}
	need := m.windowBytes(slots)
	if need <= defaultWindow {
		return
	}
	// The window is placed below the highest address of the guest, so the guest has to have as many
	// address bits as the host.
	d.CPU.MaxPhysAddr = &libvirtxml.DomainCPUMaxPhysAddr{Mode: "passthrough"}
	why.add("cpu/maxphysaddr", "room for the window of the devices' memory: see the end of this file")
	d.QEMUCommandline = &libvirtxml.DomainQEMUCommandline{Args: []libvirtxml.DomainQEMUCommandlineArg{
		{Value: "-fw_cfg"}, {Value: fmt.Sprintf("name=opt/ovmf/X-PciMmio64Mb,string=%d", need>>20)},
	}}
	why.add("commandline", fmt.Sprintf("the BARs of the devices need up to %d GiB of addresses, and the firmware's "+
		"window may have only %d GiB: what does not fit would have size 0. libvirt's own element for this, sysinfo "+
		"of type fwcfg, refuses names of the firmware", need>>30, defaultWindow>>30))
}

// windowBytes returns what the 64-bit BARs of the slots may take, as a power of two: a root port's
// window begins at a multiple of its largest BAR, so in the worst case each port takes its sum
// rounded up to a power of two.
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

// powerOfTwo rounds up.
func powerOfTwo(n uint64) uint64 {
	if n < 2 {
		return n
	}
	return 1 << bits.Len64(n-1)
}
