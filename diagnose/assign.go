package diagnose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

func assignRules() []rule {
	return []rule{
		{Check{
			ID: "RL030", Title: "device cannot be reset on its own",
			Severity: Warning, Also: []Severity{Info},
			Summary: "A GPU, or a device on a vfio driver, has no reset method. A note when the device is alone on " +
				"its bus and not AMD's, because VFIO " +
				"can then reset the bus.",
			Reads: []string{"/sys/bus/pci/devices/*/reset_method", "/sys/devices/pci*/** (what else is on the bus)"},
			Means: "Between two tenants a device must forget the first one. Without a function level reset, a power " +
				"management reset or a method of its " +
				"own, the kernel has none for a device of several functions, as a GPU with audio is. VFIO can still " +
				"reset the whole bus, if everything on it belongs " +
				"to the same tenant. When other devices are on the bus it cannot, and the device is handed over as " +
				"it is.\n\n" +
				"Several of AMD's consumer GPUs are known to work once: after the first guest the next one finds " +
				"header type 127.",
			Fix: "Move the card to a slot of its own. For the AMD GPUs concerned there is the module vendor-reset, " +
				"of patchy upkeep. Otherwise reboot " +
				"the host between tenants, or keep one tenant per boot.",
			Sources: []string{"ublue-os/ucore#350", "gnif/vendor-reset#80"},
		}, noReset},
		{Check{
			ID: "RL031", Title: "only a bus reset, which is not enough",
			Severity: Warning,
			Summary: "The only reset method of a GPU, or of a device on a vfio driver, is that of its bus, and other " +
				"devices are on the bus, or it is " +
				"an AMD GPU.",
			Reads: []string{"/sys/bus/pci/devices/*/reset_method", "/sys/devices/pci*/** (what else is on the bus)"},
			Means: "A bus reset takes down everything below the bridge. With devices of the host or of another " +
				"tenant there, either the reset is refused or they lose their " +
				"state. On several AMD GPUs a bus reset does not bring the card back: it works once, and the next " +
				"guest fails.",
			Fix: "Move the card to a slot of its own. AMD: vendor-reset, SR-IOV functions where the card has " +
				"them, or a reboot between tenants.",
			Sources: []string{"ublue-os/ucore#350", "gnif/vendor-reset#80", "amd/MxGPU-Virtualization#25"},
		}, busResetOnly},
		{Check{
			ID: "RL032", Title: "device does not answer",
			Severity: Error,
			Summary:  "Every read of the configuration space gives ones (0xFF).",
			Reads:    []string{"/sys/bus/pci/devices/*/config", "/sys/bus/pci/devices/*/power_state"},
			Means: "The device has fallen off the bus or hangs: after a reset that it did not survive (seen on " +
				"MI300X and MI355X when the physical " +
				"function had been given to a virtual machine), after overheating, or with a power cable loose. " +
				"Nothing but a power cycle of the " +
				"device, which mostly means of the host, brings it back.",
			Fix: "Shut the host down, cut the power, start it. If it happens after each tenant, do not give the " +
				"physical function away: use SR-IOV " +
				"functions. If it happens under load, look at power and cooling.",
			Sources: []string{"amd/MxGPU-Virtualization#25"},
		}, dead},
		{Check{
			ID: "RL033", Title: "device is in D3cold",
			Severity: Warning, Also: []Severity{Info},
			Summary: "A GPU, NIC or drive is powered off (D3cold). A warning when it is on a vfio driver or given to " +
				"a tenant.",
			Reads: []string{"/sys/bus/pci/devices/*/power_state", "/sys/bus/pci/devices/*/d3cold_allowed"},
			Means: "Runtime power management has cut the power of an unused device. The kernel wakes it at first " +
				"use. Some cards do not come back: " +
				"`Unable to change power state from D3cold to D0`. Laptops do this with their second GPU by design.",
			Fix: "Before giving the device away, forbid the state:\n\n    echo 0 > " +
				"/sys/bus/pci/devices/ADDRESS/d3cold_allowed\n" +
				"    echo on > /sys/bus/pci/devices/ADDRESS/power/control\n\nFor all devices of vfio-pci: `options " +
				"vfio-pci disable_idle_d3=1`.",
			Sources: []string{"kata-containers/kata-containers#11708"},
		}, coldDevice},
		{Check{
			ID: "RL034", Title: "more virtual functions than the firmware offers",
			Severity: Error,
			Summary:  "More virtual functions are enabled, or exist, than sriov_totalvfs allows.",
			Reads:    []string{"/sys/bus/pci/devices/*/sriov_numvfs, sriov_totalvfs, virtfn*"},
			Means: "The kernel does not allow it, so the firmware's figure changed under the driver: NUM_OF_VFS was " +
				"lowered and the NIC reset, or a " +
				"driver counts in another way. The functions above the figure are not served.",
			Fix: "Take the functions away (`echo 0 > sriov_numvfs`), set NUM_OF_VFS at least one above the number " +
				"that you need, reboot, and create " +
				"them again. A non-zero number cannot be changed to another: 0 comes between.",
			Sources: []string{"vSphere study (NUM_OF_VFS one more than the sum)",
				"Mellanox/k8s-rdma-sriov-dev-plugin#12"},
		}, tooManyVFs},
		{Check{
			ID: "RL035", Title: "SR-IOV is there, but offers no functions",
			Severity: Info,
			Summary:  "sriov_totalvfs of a NIC for RDMA or a GPU is 0.",
			Reads:    []string{"/sys/bus/pci/devices/*/sriov_totalvfs"},
			Means: "The device has the capability and its firmware offers no virtual function. On ConnectX it is " +
				"SRIOV_EN=0 or NUM_OF_VFS=0, or the " +
				"setting was made and the NIC not yet reset. When `echo N > sriov_numvfs` says Cannot allocate " +
				"memory instead, the firmware of the " +
				"board has not reserved addresses for the functions.",
			Fix: "ConnectX:\n\n    mlxconfig -d ADDRESS q SRIOV_EN NUM_OF_VFS\n    mlxconfig -d ADDRESS set " +
				"SRIOV_EN=1 NUM_OF_VFS=16\n\n" +
				"then reboot. Turn on SR-IOV and above-4G decoding in the firmware of the board.",
			Sources: []string{"k8snetworkplumbingwg/sriov-network-device-plugin#601",
				"k8snetworkplumbingwg/sriov-network-operator#1017",
				"openshift/openshift-docs#32619", "strongtz/i915-sriov-dkms#246", "vSphere study"},
		}, noVFs},
		{Check{
			ID: "RL036", Title: "driver override is not in force",
			Severity: Warning,
			Summary:  "driver_override names a driver, and the device is bound to another one or to none.",
			Reads:    []string{"/sys/bus/pci/devices/*/driver_override", "/sys/bus/pci/devices/*/driver"},
			Means: "Somebody wanted the device on that driver (mostly vfio-pci), and the binding did not happen or " +
				"was undone: the module is not " +
				"loaded, the device was not probed again, or the override was left behind by a tool that failed. " +
				"While it is set no other driver " +
				"will ever bind to the device, so a device that seems lost may only be reserved.",
			Fix: "To finish the binding:\n\n    modprobe vfio-pci\n    echo ADDRESS > /sys/bus/pci/drivers_probe\n\n" +
				"To give the device back, clear the override with a newline (an empty write may do nothing), and " +
				"probe:\n\n" +
				"    echo > /sys/bus/pci/devices/ADDRESS/driver_override\n    echo ADDRESS > " +
				"/sys/bus/pci/drivers_probe",
			Sources: []string{"ydb-platform/nbs#5296", "ROCm/k8s-gpu-dra-driver#50"},
		}, lostOverride},
		{Check{
			ID: "RL037", Title: "BARs are larger than a guest's default window",
			Severity: Info,
			Summary:  "The 64-bit BARs of the GPUs that go to one tenant need 32 GiB of addresses or more.",
			Reads:    []string{"/sys/bus/pci/devices/*/resource", "virsh dumpxml DOMAIN"},
			Means: "UEFI firmware of guests (OVMF) reserves a window for 64-bit BARs. Older builds take 32 GiB, " +
				"which a GPU with a large BAR fills; then " +
				"the guest's driver finds `BAR0 is 0M @ 0x0`, or the machine hangs at boot. Newer builds size the " +
				"window by the guest's physical " +
				"address bits.",
			Fix: "Use a recent OVMF and give the guest the host's address bits (`<cpu " +
				"mode='host-passthrough'><maxphysaddr mode='passthrough'/>`), " +
				"or set the window, in MiB:\n\n    -fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=262144",
			Sources: []string{"canonical/lxd#14381", "kubevirt/kubevirt#11093", "tianocore/edk2#12997"},
		}, largeBARs},
	}
}

// resettable are the functions whose reset matters: GPUs that compute, and what is kept for virtual machines.
func (v *view) resettable() []*topology.PCIDevice {
	if v.virtual {
		return nil
	}
	var out []*topology.PCIDevice
	for i := range v.PCI {
		d := &v.PCI[i]
		if !d.ResetKnown || d.IsBridge() || d.PF != nil || d.Dead {
			continue
		}
		g := v.gpuAt(d.Address)
		if g != nil && v.computes(g) || isVFIO(d.Driver) && !(g == nil && d.Address.Function != 0) {
			out = append(out, d)
		}
	}
	return out
}

// neighbours returns the other devices on the bus of d, below its bridge.
func (v *view) neighbours(d *topology.PCIDevice) []topology.PCIAddr {
	if d.Parent == nil {
		return nil
	}
	var out []topology.PCIAddr
	for _, o := range v.children[*d.Parent] {
		if !o.Address.SameDevice(d.Address) && o.PF == nil {
			out = append(out, o.Address)
		}
	}
	return out
}

// isAMDGPU reports whether d is one of the GPUs that are known not to come back from a bus reset.
func isAMDGPU(d *topology.PCIDevice) bool {
	return d.IsGPU() && d.Vendor != nil && *d.Vendor == topology.VendorAMD
}

func noReset(v *view) []Finding {
	var out []Finding
	for _, d := range v.resettable() {
		if len(d.ResetMethods) > 0 {
			continue
		}
		f := Finding{Severity: Warning, Subject: d.Address.String(), Evidence: at(pci(d.Address)+"/reset_method",
			"empty"),
			Consequence: "the next tenant gets the device as the last one left it",
			Fix:         "move the card to a slot of its own, or reboot the host between tenants"}
		others := v.neighbours(d)
		switch {
		case len(others) > 0:
			f.Evidence = all(f.Evidence, at(fmt.Sprintf("bus %02x", d.Address.Bus), "also "+words(others)))
			f.Consequence += ", and a reset of the bus would hit " + words(others)
		case isAMDGPU(d):
			f.Consequence = "works once: after the first virtual machine the next one may not start"
			f.Fix = "try the module vendor-reset, or reboot the host between tenants"
		case d.Parent != nil:
			f.Severity = Info
			f.Consequence = "it is reset with its bus, through VFIO, when all its functions go to one virtual machine"
			f.Fix = "give all functions of the device to the same virtual machine"
		}
		out = append(out, f)
	}
	return out
}

func busResetOnly(v *view) []Finding {
	var out []Finding
	for _, d := range v.resettable() {
		if len(d.ResetMethods) == 0 || slices.ContainsFunc(d.ResetMethods, func(m string) bool {
			return m != "bus" && m != "cxl_bus"
		}) {
			continue
		}
		others := v.neighbours(d)
		if len(others) == 0 && !isAMDGPU(d) {
			continue
		}
		f := Finding{Severity: Warning, Subject: d.Address.String(),
			Evidence:    at(pci(d.Address)+"/reset_method", strings.Join(d.ResetMethods, " ")),
			Consequence: "works once: after the first virtual machine the next one may not start",
			Fix:         "try the module vendor-reset, or reboot the host between tenants"}
		if len(others) > 0 {
			f.Evidence = all(f.Evidence, at(fmt.Sprintf("bus %02x", d.Address.Bus), "also "+words(others)))
			f.Consequence = "a reset takes down " + words(others) + " as well, or is refused"
			f.Fix = "move the card to a slot of its own"
		}
		out = append(out, f)
	}
	return out
}

func dead(v *view) []Finding {
	var out []Finding
	for i := range v.PCI {
		d := &v.PCI[i]
		if !d.Dead || d.PowerState == "D3cold" { // without power nothing answers: RL033
			continue
		}
		out = append(out, Finding{Severity: Error, Subject: d.Address.String(), Evidence: at(pci(d.Address)+"/config",
			"ff ff ff ff"),
			Consequence: "no driver and no virtual machine can use it until the host has been powered off",
			Fix: "power the host off and on; if it comes again after each tenant, do not give the physical " +
				"function away"})
	}
	return out
}

func coldDevice(v *view) []Finding {
	var out []Finding
	for i := range v.PCI {
		d := &v.PCI[i]
		if d.PowerState != "D3cold" || d.IsBridge() || d.Address.Function != 0 {
			continue
		}
		f := Finding{Severity: Info, Subject: d.Address.String(), Evidence: at(pci(d.Address), "power_state=D3cold",
			driverFact(d)),
			Consequence: "probably none: it is powered off until it is used",
			Fix:         "before giving it to a virtual machine write 0 to d3cold_allowed and on to power/control"}
		switch {
		case isVFIO(d.Driver) || len(v.holders(d.Address)) > 0:
			f.Severity = Warning
			f.Consequence = "the virtual machine may fail to wake it: unable to change power state from D3cold to D0"
		case !v.isCard(d.Address):
			continue
		}
		out = append(out, f)
	}
	return out
}

func tooManyVFs(v *view) []Finding {
	var out []Finding
	for i := range v.PCI {
		d := &v.PCI[i]
		s := d.SRIOV
		if s == nil || s.Total == nil {
			continue
		}
		enabled := len(s.VFs)
		facts := []string{fmt.Sprintf("virtfn*=%d", enabled)}
		if s.Enabled != nil {
			enabled = max(enabled, *s.Enabled)
			facts = append([]string{"sriov_numvfs=" + strconv.Itoa(*s.Enabled)}, facts...)
		}
		if enabled <= *s.Total {
			continue
		}
		out = append(out, Finding{Severity: Error, Subject: d.Address.String(),
			Evidence:    at(pci(d.Address), append(facts, "sriov_totalvfs="+strconv.Itoa(*s.Total))...),
			Consequence: "functions above the firmware's number are not served",
			Fix: "write 0 to sriov_numvfs, raise the number in the firmware of the device, reboot and create " +
				"them again"})
	}
	return out
}

func noVFs(v *view) []Finding {
	var out []Finding
	for i := range v.PCI {
		d := &v.PCI[i]
		if d.SRIOV == nil || d.SRIOV.Total == nil || *d.SRIOV.Total != 0 || len(d.SRIOV.VFs) > 0 ||
			!v.isCard(d.Address) || v.virtual {
			continue
		}
		if d.SRIOV.Enabled != nil && *d.SRIOV.Enabled > 0 {
			continue // RL034
		}
		fix := "turn SR-IOV on in the firmware of the device and of the board"
		if d.Vendor != nil && *d.Vendor == topology.VendorMellanox {
			fix = "mlxconfig -d " + d.Address.String() + " set SRIOV_EN=1 NUM_OF_VFS=16, then reboot"
		}
		out = append(out, Finding{Severity: Info, Subject: d.Address.String(), Evidence: at(pci(d.Address),
			"sriov_totalvfs=0"),
			Consequence: "the device cannot be shared between virtual machines", Fix: fix})
	}
	return out
}

func lostOverride(v *view) []Finding {
	var out []Finding
	for i := range v.PCI {
		d := &v.PCI[i]
		if d.Override == "" || d.Override == "(null)" || !d.DriverKnown || d.Driver == d.Override {
			continue
		}
		f := Finding{Severity: Warning, Subject: d.Address.String(),
			Evidence:    at(pci(d.Address), "driver_override="+d.Override, driverFact(d)),
			Consequence: "no driver but " + d.Override + " will bind to the device, and that one has not",
			Fix: fmt.Sprintf("load %s and write the address to /sys/bus/pci/drivers_probe, or clear the override "+
				"with a newline",
				d.Override)}
		if d.Driver != "" {
			f.Consequence = "the device is still in the hands of " + d.Driver
			f.Fix = "unbind it from " + d.Driver + " and write the address to /sys/bus/pci/drivers_probe, or clear " +
				"the override with a newline"
		}
		out = append(out, f)
	}
	return out
}

// guestWindow is the room for 64-bit BARs in older OVMF.
//
// Source: PcdPciMmio64Size in OvmfPkg, 0x800000000.
const guestWindow = 32 << 30

// barBytes is the sum of the 64-bit BARs of a function.
func barBytes(d *topology.PCIDevice) uint64 {
	var sum uint64
	for _, b := range d.BARs {
		if b.Bits64 && !b.IO && b.Index < 6 && b.SizeBytes < 1<<50 {
			sum += b.SizeBytes
		}
	}
	return sum
}

func largeBARs(v *view) []Finding {
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
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
			continue
		}
		out = append(out, Finding{Severity: Info, Subject: t.Name, Evidence: all(few(facts, 4, "; "),
			at("virsh dumpxml "+t.Name, "hostdev")),
			Consequence: fmt.Sprintf("needs %s of addresses; older guest firmware has 32 GiB and leaves BARs without "+
				"an address", size(sum)),
			Fix: "use a recent OVMF with the host's physical address bits, or set opt/ovmf/X-PciMmio64Mb"})
	}
	return out
}
