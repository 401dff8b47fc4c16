package inspect

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

const (
	bareCPU  = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Xeon\nflags\t\t: fpu lm vmx\n"
	guestCPU = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Xeon\nflags\t\t: fpu lm " +
		"hypervisor\n"
)

func TestReadSystem(t *testing.T) {
	t.Parallel()
	dmi := func(vendor, product string) files {
		return files{"sys/class/dmi/id/sys_vendor": vendor, "sys/class/dmi/id/product_name": product}
	}
	guest := topology.System{Arch: "x86_64", CPUModel: "Xeon", InVM: new(true)}
	virtual := func(vendor, product, hypervisor string) topology.System {
		s := guest
		s.Vendor, s.Product, s.Hypervisor = vendor, product, hypervisor
		return s
	}
	tests := []struct {
		name string
		tree files
		want topology.System
	}{
		{
			"a server",
			dmi("Supermicro", "AS -4125GS-TNRT").with(files{
				"proc/cpuinfo": bareCPU, "sys/class/dmi/id/board_name": "H13DSG-O-CPU",
				"sys/class/dmi/id/bios_version": "1.8", "sys/class/dmi/id/bios_date": "01/29/2024",
			}),
			topology.System{
				Vendor: "Supermicro", Product: "AS -4125GS-TNRT", Board: "H13DSG-O-CPU", BIOS: "1.8 01/29/2024",
				Arch: "x86_64", CPUModel: "Xeon", InVM: new(false),
			},
		},
		{
			"a Debian with rdma-core", files{"proc/sys/kernel/arch": "x86_64",
				"usr/lib/x86_64-linux-gnu/libibverbs.so.1": "-> libibverbs.so.1.14.44.0"},
			topology.System{Arch: "x86_64", RDMACore: "44.0"},
		},
		{
			"a Red Hat with rdma-core", files{"proc/sys/kernel/arch": "aarch64",
				"usr/lib64/libibverbs.so.1": "-> libibverbs.so.1.14.51.0"},
			topology.System{Arch: "aarch64", RDMACore: "51.0"},
		},
		{
			"a library of another kind", files{"proc/sys/kernel/arch": "x86_64",
				"usr/lib64/libibverbs.so.1": "-> /opt/libibverbs.so.1"},
			topology.System{Arch: "x86_64"},
		},
		{
			"a maker who left the template's words",
			dmi("To Be Filled By O.E.M.", "System Product Name").with(files{"sys/class/dmi/id/board_name": "X99-E  WS",
				"sys/class/dmi/id/bios_version": "Default string"}),
			topology.System{Board: "X99-E WS"},
		},
		{
			"a dump without the link in /sys/class", files{"sys/devices/virtual/dmi/id/sys_vendor": "Dell Inc.",
				"sys/devices/virtual/dmi/id/product_name": "PowerEdge R815"},
			topology.System{Vendor: "Dell Inc.", Product: "PowerEdge R815"},
		},
		{
			"an ARM board", files{"sys/firmware/devicetree/base/model": "NVIDIA Jetson AGX Orin\x00"},
			topology.System{Product: "NVIDIA Jetson AGX Orin"},
		},
		{
			"POWER names itself in /proc/cpuinfo",
			files{"proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER7\n\ntimebase\t: 5\nmachine\t\t: CHRP IBM,8231-E2B\n"},
			topology.System{Product: "CHRP IBM,8231-E2B", Arch: "ppc64", CPUModel: "POWER7"},
		},
		{"a partition of POWER", files{"proc/device-tree/ibm,partition-name": "lpar1\x00"},
			topology.System{Hypervisor: "phyp", InVM: new(true)}},
		{"KVM on POWER", files{"proc/device-tree/hypervisor/compatible": "linux,kvm\x00"},
			topology.System{Hypervisor: "kvm", InVM: new(true)}},
		{"an unnamed hypervisor", files{"proc/cpuinfo": guestCPU}, guest},
		{
			"no hypervisor's bit, and no maker: an old VirtualBox looks the same", files{"proc/cpuinfo": bareCPU},
			topology.System{Arch: "x86_64", CPUModel: "Xeon"},
		},
		{"KVM of libvirt", dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)").with(files{"proc/cpuinfo": guestCPU}),
			virtual("QEMU", "Standard PC (Q35 + ICH9, 2009)", "qemu")},
		{"VMware", dmi("VMware, Inc.", "VMware7,1").with(files{"proc/cpuinfo": guestCPU}),
			virtual("VMware, Inc.", "VMware7,1", "vmware")},
		{"Hyper-V", dmi("Microsoft Corporation", "Virtual Machine").with(files{"proc/cpuinfo": guestCPU}),
			virtual("Microsoft Corporation", "Virtual Machine", "hyper-v")},
		{"a virtual machine of EC2", dmi("Amazon EC2", "p4d.24xlarge").with(files{"proc/cpuinfo": guestCPU}),
			virtual("Amazon EC2", "p4d.24xlarge", "amazon")},
		{
			"a bare machine of EC2", dmi("Amazon EC2", "g4dn.metal").with(files{"proc/cpuinfo": bareCPU}),
			topology.System{Vendor: "Amazon EC2", Product: "g4dn.metal", Arch: "x86_64", CPUModel: "Xeon",
				InVM: new(false)},
		},
		{
			"an ARM guest, whose CPU has no such bit", dmi("QEMU", "QEMU Virtual Machine"),
			topology.System{Vendor: "QEMU", Product: "QEMU Virtual Machine", Hypervisor: "qemu", InVM: new(true)},
		},
		{"a guest of Xen", files{"proc/cpuinfo": guestCPU, "sys/hypervisor/type": "xen"}, virtual("", "", "xen")},
		{
			"Xen's control domain", files{"proc/cpuinfo": guestCPU, "sys/hypervisor/type": "xen",
				"proc/xen/capabilities": "control_d"},
			topology.System{Arch: "x86_64", CPUModel: "Xeon"},
		},
		{
			"KVM on s390", files{"proc/cpuinfo": "vendor_id : IBM/S390\nprocessor 0: machine = 2964",
				"proc/sysinfo": "LPAR Name: X\nVM00 Control Program: KVM/Linux"},
			topology.System{Arch: "s390x", CPUModel: "IBM 2964", Hypervisor: "kvm", InVM: new(true)},
		},
		{
			"z/VM", files{"proc/cpuinfo": "vendor_id : IBM/S390\nprocessor 0: machine = 2964",
				"proc/sysinfo": "VM00 Control Program: z/VM    6.4.0"},
			topology.System{Arch: "s390x", CPUModel: "IBM 2964", Hypervisor: "z/vm", InVM: new(true)},
		},
		{"the kernel tells its architecture", files{"proc/sys/kernel/arch": "aarch64"},
			topology.System{Arch: "aarch64"}},
		{"hwloc's note tells it", files{"proc/hwloc-nofile-info": "OSName: Linux\nArchitecture: ppc64le\n"},
			topology.System{Arch: "ppc64le"}},
		{"the kernel's release tells it", files{"proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64+rt"},
			topology.System{Arch: "x86_64"}},
		{"nothing is known", files{}, topology.System{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.tree.read(t).System); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestAnEmulatedHostIsKnownByItsVendor(t *testing.T) {
	t.Parallel()
	for vendor, want := range map[string]bool{"rackless": true, "Dell Inc.": false} {
		h := files{"sys/class/dmi/id/sys_vendor": vendor + "\n"}.read(t)
		if h.Provenance.Emulated != want {
			t.Errorf("vendor %q: Emulated = %v; want %v", vendor, h.Provenance.Emulated, want)
		}
	}
}

func TestEmulatedCPU(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]bool{"QEMU TCG CPU version 2.5+": true, "QEMU Virtual CPU version 2.5+": false,
		"AMD EPYC-Rome Processor": false} {
		h := files{"proc/cpuinfo": "processor\t: 0\nmodel name\t: " + model}.read(t)
		if h.Provenance.Emulated != want {
			t.Errorf("model %q: Emulated = %v; want %v", model, h.Provenance.Emulated, want)
		}
	}
}

func TestLiveArchitectureComesFromTheProgram(t *testing.T) {
	t.Parallel()
	r := files{}.reader(t)
	r.live = true
	if got := r.arch(cpuinfo{}); got == "" {
		t.Error("no architecture for the machine that runs the test")
	}
}

// No later bug can print identities that are not even read.
func TestSerialNumbersAreNotRead(t *testing.T) {
	t.Parallel()
	tree := twoByTwo.files().with(files{"proc/cpuinfo": bareCPU})
	for _, name := range []string{"sys_vendor", "product_name", "product_serial", "product_uuid", "board_serial",
		"board_asset_tag", "chassis_serial"} {
		tree["sys/class/dmi/id/"+name] = "x"
	}
	var asked atomic.Int64
	r := tree.reader(t)
	r.fs = countingFS{FS: r.fs, asked: &asked, names: func(name string) {
		if strings.Contains(name, "serial") || strings.Contains(name, "uuid") || strings.Contains(name, "asset") {
			t.Errorf("%s was read", name)
		}
	}}
	r.readSystem()
	if asked.Load() == 0 {
		t.Error("nothing was read")
	}
}
