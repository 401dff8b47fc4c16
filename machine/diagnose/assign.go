package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// resettable returns GPUs that compute, and functions on a VFIO driver.
func (v *view) resettable() []*topology.PCIDevice {
	if v.virtual {
		return nil
	}
	var out []*topology.PCIDevice
	for i := range v.PCI {
		d := &v.PCI[i]
		// SR-IOV requires FLR for virtual functions.
		if !d.ResetKnown || d.IsBridge() || d.PF != nil || d.Dead {
			continue
		}
		g := v.GPU(d.Address)
		if g != nil && v.computes(g) || topology.IsVFIO(d.Driver) && !(g == nil && d.Address.Function != 0) {
			out = append(out, d)
		}
	}
	return out
}

func (v *view) neighbours(d *topology.PCIDevice) []topology.PCIAddr {
	if d.Parent == nil {
		return nil
	}
	// A bus reset affects all devices directly below the bridge.
	others := lists.Filter(v.tree.Children(*d.Parent), func(o *topology.PCIDevice) bool {
		return !o.Address.SameDevice(d.Address) && o.PF == nil
	})
	return lists.Map(others, func(o *topology.PCIDevice) topology.PCIAddr { return o.Address })
}

// isAMDGPU finds GPUs of which some do not recover from a bus reset.
func isAMDGPU(d *topology.PCIDevice) bool {
	return d.IsGPU() && d.Vendor != nil && *d.Vendor == topology.VendorAMD
}

// noReset is only a note if the function has the bus to itself, because the bridge can then reset it.
func noReset(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	// In the order of preference (Documentation/ABI/testing/sysfs-bus-pci, reset_method).
	if len(d.ResetMethods) > 0 {
		return
	}
	f := finding.Finding{Severity: finding.Warning, Subject: d.Address.String(), Evidence: at(pci(d.Address)+
		"/reset_method", "empty"), Consequence: "the next VM gets the device as the last one left it",
		Fix: "move the card to a slot of its own, or reboot the host between VMs"}
	others := v.neighbours(d)
	switch {
	case len(others) > 0:
		f.Evidence = all(f.Evidence, at(fmt.Sprintf("bus %02x", d.Address.Bus), "also "+addresses(others)))
		f.Consequence += ", and a reset of the bus would hit " + addresses(others)
	case isAMDGPU(d):
		f.Consequence = "works once: after the first virtual machine the next one may not start"
		f.Fix = "try the module vendor-reset, or reboot the host between VMs"
	case d.Parent != nil:
		f.Severity = finding.Info
		f.Consequence = "it is reset with its bus, through VFIO, when all its functions go to one virtual machine"
		f.Fix = "give all functions of the device to the same virtual machine"
	}
	add(f)
}

// busResetOnly finds a bus reset that would also hit other devices, and AMD GPUs, which may not recover.
func busResetOnly(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	// FLR and PM resets affect only the function; bus and CXL bus resets everything on the bus.
	if len(d.ResetMethods) == 0 || slices.ContainsFunc(d.ResetMethods, func(m string) bool {
		return m != "bus" && m != "cxl_bus"
	}) {
		return
	}
	others := v.neighbours(d)
	if len(others) == 0 && !isAMDGPU(d) {
		return
	}
	f := finding.Finding{Subject: d.Address.String(),
		Evidence:    at(pci(d.Address)+"/reset_method", strings.Join(d.ResetMethods, " ")),
		Consequence: "works once: after the first virtual machine the next one may not start",
		Fix:         "try the module vendor-reset, or reboot the host between VMs"}
	if len(others) > 0 {
		f.Evidence = all(f.Evidence, at(fmt.Sprintf("bus %02x", d.Address.Bus), "also "+addresses(others)))
		f.Consequence = "a reset takes down " + addresses(others) + " as well, or is refused"
		f.Fix = "move the card to a slot of its own"
	}
	add(f)
}

// dead skips functions in D3cold, which also read as all ones.
func dead(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	if d.Dead && d.PowerState != "D3cold" { // D3cold is RL033
		add(finding.Finding{Subject: d.Address.String(), Evidence: at(pci(d.Address)+"/config", "ff ff ff ff")})
	}
}

// coldDevice reports cards and a tenant's devices, whose wake-up may fail. Others can stay asleep.
func coldDevice(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	if d.PowerState != "D3cold" || d.IsBridge() || d.Address.Function != 0 {
		return
	}
	f := finding.Finding{Severity: finding.Info, Subject: d.Address.String(), Evidence: at(pci(d.Address),
		"power_state=D3cold", driverFact(d)), Consequence: "probably none: it is powered off until it is used",
		Fix: "before giving it to a virtual machine write 0 to d3cold_allowed and on to power/control"}
	switch {
	// It must wake up when the tenant starts.
	case topology.IsVFIO(d.Driver) || len(v.holders(d.Address)) > 0:
		f.Severity = finding.Warning
		f.Consequence = "the virtual machine may fail to wake it: unable to change power state from D3cold to D0"
	case !v.isCard(d.Address):
		return
	}
	add(f)
}

// tooManyVFs takes the larger count, because a source may have only one.
func tooManyVFs(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	s := d.SRIOV
	if s == nil || s.Total == nil {
		return
	}
	most := len(s.VFs)
	var facts []string
	if s.Enabled != nil {
		most = max(most, *s.Enabled)
		facts = append(facts, fmt.Sprintf("sriov_numvfs=%d", *s.Enabled))
	}
	facts = append(facts, fmt.Sprintf("virtfn*=%d", len(s.VFs)), fmt.Sprintf("sriov_totalvfs=%d", *s.Total))
	if most > *s.Total {
		add(finding.Finding{Subject: d.Address.String(), Evidence: at(pci(d.Address), facts...)})
	}
}

// noVFs finds a total of 0: SR-IOV is off in the firmware.
func noVFs(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	// More functions than the total is RL034.
	if s := d.SRIOV; s == nil || s.Total == nil || *s.Total != 0 || len(s.VFs) > 0 ||
		s.Enabled != nil && *s.Enabled > 0 || !v.isCard(d.Address) || v.virtual {
		return
	}
	fix := "turn SR-IOV on in the firmware of the device and of the board"
	if d.Vendor != nil && *d.Vendor == topology.VendorMellanox {
		fix = "mlxconfig -d " + d.Address.String() + " set SRIOV_EN=1 NUM_OF_VFS=16, then reboot"
	}
	add(finding.Finding{Subject: d.Address.String(), Evidence: at(pci(d.Address), "sriov_totalvfs=0"), Fix: fix})
}

// parameterVFs finds cards of mlx4 with unused functions. The driver makes them only as it loads, by a parameter, and
// has no sriov_numvfs.
//
// Source: drivers/net/ethernet/mellanox/mlx4/main.c of Linux, num_vfs; its pci_driver has no sriov_configure.
func parameterVFs(v *view, n *topology.NIC, add func(finding.Finding)) {
	if n.PF != nil || n.Driver != "mlx4_core" && !strings.Contains(n.Model, "ConnectX-3") || v.virtual {
		return
	}
	count, enabled := n.Settings["NUM_OF_VFS"], n.Settings["SRIOV_EN"]
	if !strings.HasPrefix(enabled, "True") && enabled != "1" || count == "" || count == "0" {
		return
	}
	if s := n.SRIOV; s != nil && (len(s.VFs) > 0 || s.Enabled != nil && *s.Enabled > 0) {
		return
	}
	add(finding.Finding{Subject: n.ID(),
		Evidence: at("mlxconfig q of "+n.ID(), "SRIOV_EN="+enabled, "NUM_OF_VFS="+count) +
			"; no function of it is seen",
		Fix: "if functions are wanted: options mlx4_core num_vfs=" + count +
			" in /etc/modprobe.d, update the initial " +
			"RAM disk, and restart"})
}

// lostOverride follows an interrupted preparation, or a driver's module that is not loaded.
func lostOverride(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	// "(null)" means no override.
	if d.Override == "" || d.Override == "(null)" || !d.DriverKnown || d.Driver == d.Override {
		return
	}
	f := finding.Finding{Subject: d.Address.String(),
		Evidence:    at(pci(d.Address), "driver_override="+d.Override, driverFact(d)),
		Consequence: "no driver but " + d.Override + " will bind to the device, and that one has not",
		Fix: fmt.Sprintf("load %s and write the address to /sys/bus/pci/drivers_probe, or clear the override "+
			"with a newline", d.Override)}
	if d.Driver != "" {
		f.Consequence = "the device is still in the hands of " + d.Driver
		f.Fix = "unbind it from " + d.Driver + " and write the address to /sys/bus/pci/drivers_probe, or clear " +
			"the override with a newline"
	}
	add(f)
}

// guestWindow is the space for 64-bit BARs in older OVMF (PcdPciMmio64Size, 0x800000000).
const guestWindow = 32 << 30

func barBytes(d *topology.PCIDevice) uint64 {
	var sum uint64
	for _, b := range d.BARs {
		// 6 is the ROM. A size of 2^50 or more is a misread register.
		if b.Bits64 && !b.IO && b.Index < 6 && b.SizeBytes < 1<<50 {
			sum += b.SizeBytes
		}
	}
	return sum
}

// largeBARs sums all GPUs of a tenant, which share one address window.
func largeBARs(v *view, t *topology.Tenant, add func(finding.Finding)) {
	var sum uint64
	var facts []string
	for _, td := range t.Devices {
		if d := v.tree.Device(td.PCI); d != nil && d.IsGPU() {
			n := barBytes(d)
			sum += n
			facts = append(facts, at(pci(td.PCI)+"/resource", "64-bit BARs "+size(n)))
		}
	}
	if sum < guestWindow {
		return
	}
	add(finding.Finding{Subject: t.Name, Evidence: all(words.Few(facts, 4, "; "), at("virsh dumpxml "+t.Name,
		"hostdev")), Consequence: fmt.Sprintf("needs %s of addresses; older guest firmware has 32 GiB and leaves "+
		"BARs without an address", size(sum))})
}
