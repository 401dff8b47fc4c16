package inspect

import (
	"cmp"
	"runtime"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

// readSystem never reads serial numbers, asset tags or UUIDs.
func (r *reader) readSystem() {
	s := &r.h.System
	r.readDMI()
	if s.Product == "" {
		// POWER, small ARM boards and RISC-V have no DMI, but a device tree.
		s.Product = cmp.Or(r.word("sys/firmware/devicetree/base/model"), r.word("proc/device-tree/model"))
	}
	info := r.readCPUInfo(false)
	if s.Product == "" && info.arch() != "s390x" { // a CPU on s390x
		s.Product = info.get("machine", "Hardware", "platform string")
	}
	s.CPUModel = info.model()
	s.Arch = r.arch(info)
	s.RDMACore = r.rdmaCore()
	r.readHypervisor(info)
	// The CPU is emulated instruction by instruction, so measurements say nothing about hardware.
	r.h.Provenance.Emulated = strings.HasPrefix(s.CPUModel, "QEMU TCG CPU") || s.Vendor == topology.VendorEmulated
}

// rdmaCoreLibrary has the release in its name.
var rdmaCoreLibrary = lazyregexp.New(`^libibverbs\.so\.1\.[0-9]+\.([0-9]+\.[0-9]+)$`)

func (r *reader) rdmaCore() string {
	for _, dir := range []string{"usr/lib/" + r.h.System.Arch + "-linux-gnu", "usr/lib64"} {
		if m := rdmaCoreLibrary().FindStringSubmatch(r.linkBase(dir + "/libibverbs.so.1")); m != nil {
			return m[1]
		}
	}
	return ""
}

// readDMI ignores unfilled template texts.
func (r *reader) readDMI() {
	dir := "sys/class/dmi/id/"
	vendor, ok := r.text(dir + "sys_vendor")
	if !ok {
		// hwloc's dumps may lack the link.
		dir = "sys/devices/virtual/dmi/id/"
		vendor = r.word(dir + "sys_vendor")
	}
	s := &r.h.System
	s.Vendor = dmiWord(vendor)
	s.Product = dmiWord(r.word(dir + "product_name"))
	s.Board = dmiWord(r.word(dir + "board_name"))
	s.BIOS = strings.TrimSpace(dmiWord(r.word(dir+"bios_version")) + " " + dmiWord(r.word(dir+"bios_date")))
}

// dmiWord drops placeholders.
func dmiWord(s string) string {
	switch strings.ToLower(s) {
	case "to be filled by o.e.m.", "to be filled by o.e.m", "default string", "system manufacturer",
		"system product name", "system version",
		"not specified", "not applicable", "none", "o.e.m.", "oem", "unknown", "n/a", "empty", "x.x", "0123456789":
		return ""
	}
	return strings.Join(strings.Fields(s), " ")
}

var goArchs = map[string]string{
	"amd64": "x86_64", "386": "i686", "arm64": "aarch64", "ppc64le": "ppc64le", "ppc64": "ppc64", "s390x": "s390x",
	"riscv64": "riscv64",
	"loong64": "loongarch64",
}

// arch uses the kernel's file (since 6.1), hwloc-gather-topology, /proc/cpuinfo or the kernel's release.
func (r *reader) arch(info cpuinfo) string {
	if a := cmp.Or(r.word("proc/sys/kernel/arch"), r.dumpNote("Architecture"), info.arch()); a != "" {
		return a
	}
	// Red Hat: "5.14.0-427.el9.x86_64+rt".
	release := r.word("proc/sys/kernel/osrelease")
	last, _, _ := strings.Cut(release[strings.LastIndexByte(release, '.')+1:], "+")
	for _, known := range goArchs {
		if last == known {
			return known
		}
	}
	if r.live {
		return goArchs[runtime.GOARCH]
	}
	return ""
}

// dumpNote reads uname(2) as recorded by hwloc-gather-topology.
func (r *reader) dumpNote(name string) string {
	if r.live {
		return ""
	}
	value, _ := lineAfter(r.word("proc/hwloc-nofile-info"), name+": ")
	return value
}

// The first match of maker and product counts.
var hypervisorDMI = []struct {
	prefix, name string
	sold         bool // also of physical machines
}{
	{"KVM", "kvm", false},
	{"OpenStack", "kvm", false},
	{"KubeVirt", "kvm", false},
	{"QEMU", "qemu", false},
	{"Standard PC (", "qemu", false}, // of QEMU's machine types
	{"VMware", "vmware", false},
	{"VMW", "vmware", false},
	{"innotek GmbH", "virtualbox", false},
	{"VirtualBox", "virtualbox", false},
	{"Xen", "xen", false},
	{"Bochs", "bochs", false},
	{"Parallels", "parallels", false},
	{"BHYVE", "bhyve", false},
	{"Virtual Machine", "hyper-v", false}, // product name of Hyper-V
	{"Google Compute Engine", "kvm", true},
	{"Amazon EC2", "amazon", true},
	{"Alibaba Cloud ECS", "kvm", true},
}

func (r *reader) readHypervisor(info cpuinfo) {
	s := &r.h.System
	// Hypervisors set CPUID leaf 1, ECX bit 31. Some old ones did not, so a clear bit counts only if the firmware names
	// the machine's maker.
	if info.isX86() && (info.hasFlag("hypervisor") || info.get("flags") != "" && s.Vendor != "") {
		s.InVM = new(info.hasFlag("hypervisor"))
	}
	if kind := r.word("sys/hypervisor/type"); kind != "" {
		s.Hypervisor = kind
		// Xen's control domain sees the real machine.
		if kind == "xen" && strings.Contains(r.word("proc/xen/capabilities"), "control_d") {
			s.Hypervisor, s.InVM = "", nil
		}
		return
	}
	for _, h := range hypervisorDMI {
		if !strings.HasPrefix(s.Product, h.prefix) && !strings.HasPrefix(s.Vendor, h.prefix) {
			continue
		}
		if h.sold && (s.InVM == nil || !*s.InVM) {
			continue
		}
		s.Hypervisor, s.InVM = h.name, new(true)
		return
	}
	switch {
	case strings.HasPrefix(r.word("proc/device-tree/hypervisor/compatible"), "linux,kvm"):
		s.Hypervisor, s.InVM = "kvm", new(true)
	case r.exists("proc/device-tree/ibm,partition-name"):
		s.Hypervisor, s.InVM = "phyp", new(true) // the hypervisor of a POWER machine
	case info.arch() == "s390x":
		r.readS390Hypervisor()
	}
}

// readS390Hypervisor reads "VM00 Control Program: KVM/Linux" or "z/VM 6.4.0", the nearest. An LPAR has no such line.
func (r *reader) readS390Hypervisor() {
	if value, ok := lineAfter(r.word("proc/sysinfo"), "VM00 Control Program:"); ok {
		name := "z/vm"
		if strings.Contains(value, "KVM") {
			name = "kvm"
		}
		r.h.System.Hypervisor, r.h.System.InVM = name, new(true)
	}
}
