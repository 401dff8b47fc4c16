package inspect

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
)

// readKernel reads which kernel runs, what it was asked for, what came of that, and which modules are loaded.
func (r *reader) readKernel() {
	k := &r.h.Kernel
	k.Release = r.release()
	r.readModules()
	line, ok := r.text("proc/cmdline")
	if !ok {
		return
	}
	k.Cmdline = &line
	size := uint64(0) // of the pages that the next "hugepages=" counts
	if r.h.Memory.DefaultHuge != nil {
		size = *r.h.Memory.DefaultHuge
	}
	for _, word := range cmdline.Split(line) {
		name, value, _ := cmdline.Cut(word)
		p := topology.KernelParameter{Name: name, Asked: value}
		switch key := cmdline.Key(name); {
		case key == "hugepagesz":
			size = cmdline.Size(value)
			r.poolInForce(&p, size)
		case key == "hugepages":
			r.hugepagesInForce(&p, size)
		case parameters[key] != nil:
			parameters[key](r, &p)
		case slices.Contains(unreadable, key):
		case moduleParameter(key):
			r.moduleInForce(&p, key)
		default:
			continue
		}
		k.Asked = append(k.Asked, p)
	}
}

// release returns what uname -r says.
func (r *reader) release() string {
	if s := r.word("proc/sys/kernel/osrelease"); s != "" {
		return s
	}
	// "Linux version 6.8.0-45-generic (buildd@...) ..."
	if fields := strings.Fields(r.word("proc/version")); len(fields) > 2 && fields[0] == "Linux" &&
		fields[1] == "version" {
		return fields[2]
	}
	return r.dumpNote("OSRelease")
}

// A parameterReader fills in what is in force of a parameter, where a file tells.
type parameterReader func(r *reader, p *topology.KernelParameter)

// parameters are those of the kernel itself that matter to a host of virtual machines, by name with "_" for "-".
//
// Source: Documentation/admin-guide/kernel-parameters.txt.
var parameters = map[string]parameterReader{
	// Which CPUs are left alone.
	"isolcpus":    fromFile("sys/devices/system/cpu/isolated"),
	"nohz_full":   fromFile("sys/devices/system/cpu/nohz_full"),
	"irqaffinity": readIRQAffinity,
	"nosmt":       fromFile("sys/devices/system/cpu/smt/control"),

	// What memory there is, and how it is handed out.
	"default_hugepagesz":   readDefaultHugepage,
	"numa_balancing":       fromFile("proc/sys/kernel/numa_balancing"),
	"transparent_hugepage": fromChoice("sys/kernel/mm/transparent_hugepage/enabled"),

	// How devices reach it.
	"intel_iommu":         readIOMMUInForce("dmar"),
	"amd_iommu":           readIOMMUInForce("ivhd"),
	"iommu":               readIOMMUMode,
	"iommu.passthrough":   readIOMMUMode,
	"pcie_aspm.policy":    fromChoice("sys/module/pcie_aspm/parameters/policy"),
	"modprobe.blacklist":  readBlacklist,
	"module_blacklist":    readBlacklist,
	"rd.driver.blacklist": readBlacklist,

	// What costs speed, or takes it from one to give it to another.
	"intel_pstate": fromFile("sys/devices/system/cpu/intel_pstate/status"),
	"amd_pstate":   fromFile("sys/devices/system/cpu/amd_pstate/status"),
	"cpuidle.off":  fromFile("sys/module/cpuidle/parameters/off"),
}

// unreadable are those that the kernel shows nowhere: they are listed, and nothing is said about what is in force.
// pcie_acs_override is of a patch that many distributions for home labs carry, and pcie_aspm=off leaves the policy as
// it is.
var unreadable = strings.Fields(`rcu_nocbs kthread_cpus nohz skew_tick tsc maxcpus nr_cpus possible_cpus
	numa hugetlb_cma movable_node mem iommu.strict pci pcie_acs_override pcie_aspm pcie_port_pm
	systemd.cpu_affinity mitigations idle`)

// moduleParameters are modules whose parameters matter: "kvm_intel.nested=1". What is in force is in /sys/module.
var moduleParameters = []string{
	"kvm", "kvm_intel", "kvm_amd", "vfio", "vfio_pci", "vfio_iommu_type1", "nvidia", "nvidia_drm", "nouveau", "amdgpu",
	"mlx4_core", "mlx5_core",
	"ib_core", "intel_idle", "processor", "workqueue", "rcutree",
}

// moduleParameter reports whether key, such as "kvm.halt_poll_ns", is of one of these modules.
func moduleParameter(key string) bool {
	module, _, ok := strings.Cut(key, ".")
	return ok && slices.Contains(moduleParameters, module)
}

// fromFile takes what is in force from a file as it stands.
func fromFile(path string) parameterReader {
	return func(r *reader, p *topology.KernelParameter) {
		if s, ok := r.text(path); ok {
			if s == "(null)" {
				s = "" // nohz_full of a kernel that was not asked for it
			}
			p.InForce, p.Source = &s, "/"+path
		}
	}
}

// fromChoice takes what is in force from a file that lists all choices with one in brackets.
func fromChoice(path string) parameterReader {
	return func(r *reader, p *topology.KernelParameter) {
		if s := chosen(r.word(path)); s != "" {
			p.InForce, p.Source = &s, "/"+path
		}
	}
}

// moduleInForce reads a parameter of a module. A module that is not loaded, or does not show the
// parameter, has nothing in force.
func (r *reader) moduleInForce(p *topology.KernelParameter, key string) {
	module, name, _ := strings.Cut(key, ".")
	fromFile("sys/module/"+module+"/parameters/"+name)(r, p)
}

// readIRQAffinity reads where interrupts go that nobody has placed.
func readIRQAffinity(r *reader, p *topology.KernelParameter) {
	const path = "proc/irq/default_smp_affinity"
	if set := r.mask(path); set != nil {
		p.InForce, p.Source = new(set.String()), "/"+path
	}
}

// readIOMMUInForce tells whether the IOMMU is in use: its units are listed by name, dmar0 or ivhd0.
func readIOMMUInForce(unit string) parameterReader {
	return func(r *reader, p *topology.KernelParameter) {
		units := r.dir(iommuClass)
		if slices.ContainsFunc(units, func(name string) bool { return strings.HasPrefix(name, unit) }) {
			p.InForce, p.Source = new("on"), "/"+iommuClass
			return
		}
		// A snapshot may have left out the class. Without groups the IOMMU is off, whatever was asked for.
		switch groups := r.dir(iommuGroups); { // not nil where they could be listed
		case len(groups) > 0:
			p.InForce, p.Source = new("on"), "/"+iommuGroups
		case groups != nil:
			p.InForce, p.Source = new("off"), "/"+iommuGroups
		case units != nil:
			p.InForce, p.Source = new("off"), "/"+iommuClass
		}
	}
}

// readIOMMUMode reads how host devices are mapped by default: "identity" is what "iommu=pt" asks for.
func readIOMMUMode(r *reader, p *topology.KernelParameter) {
	// The first group shows it: a group is given another type by hand, one at a time, and hardly the first.
	if ids := r.numbered(iommuGroups, ""); len(ids) > 0 {
		fromFile(iommuGroups+"/"+strconv.Itoa(ids[0])+"/type")(r, p)
	}
}

// readBlacklist finds which of the modules are really not loaded: built-in drivers cannot be kept
// out, and another module may ask for one by name.
func readBlacklist(r *reader, p *topology.KernelParameter) {
	loaded, ok := r.loadedModules()
	if !ok {
		return
	}
	var out []string
	for name := range strings.SplitSeq(p.Asked, ",") {
		if name = strings.TrimSpace(name); name != "" && !loaded[strings.ReplaceAll(name, "-", "_")] {
			out = append(out, name)
		}
	}
	p.InForce, p.Source = new(strings.Join(out, ",")), "/proc/modules"
}

// readDefaultHugepage reads the size that a bare "hugepages=" is for.
func readDefaultHugepage(r *reader, p *topology.KernelParameter) {
	if size := r.h.Memory.DefaultHuge; size != nil {
		p.InForce, p.Source = new(formatSize(*size)), "/proc/meminfo"
	}
}

// hugepagesInForce reads how many pages there are of the size that stands before: "hugepagesz=1G
// hugepages=16", or "hugepages=0:8,1:8" for counts per node. The file in Source names the size.
// size is 0 where it is not known.
func (r *reader) hugepagesInForce(p *topology.KernelParameter, size uint64) {
	if size == 0 {
		return
	}
	pool := "/hugepages/hugepages-" + strconv.FormatUint(size>>10, 10) + "kB/nr_hugepages"
	if !strings.Contains(p.Asked, ":") {
		fromFile("sys/kernel/mm"+pool)(r, p)
		return
	}
	var out []string
	for item := range strings.SplitSeq(p.Asked, ",") {
		node, _, ok := strings.Cut(item, ":")
		if _, err := strconv.ParseUint(node, 10, 16); !ok || err != nil {
			return
		}
		n := r.size(nodeDir + "/node" + node + pool)
		if n == nil {
			return
		}
		out = append(out, node+":"+strconv.FormatUint(*n, 10))
	}
	p.InForce, p.Source = new(strings.Join(out, ",")), "/"+nodeDir+"/node*"+pool
}

// poolInForce tells that the kernel has pages of a size at all. CPUs without pdpe1gb have none of 1 GiB.
func (r *reader) poolInForce(p *topology.KernelParameter, size uint64) {
	dir := "sys/kernel/mm/hugepages/hugepages-" + strconv.FormatUint(size>>10, 10) + "kB"
	if size != 0 && r.exists(dir) {
		p.InForce, p.Source = new(formatSize(size)), "/"+dir
	}
}

// formatSize writes a size as kernel parameters have it: "2M", "1G".
func formatSize(v uint64) string {
	unit := 0
	for v > 0 && v%1024 == 0 && unit < len("KMG") {
		v, unit = v/1024, unit+1
	}
	return strconv.FormatUint(v, 10) + []string{"", "K", "M", "G"}[unit]
}

// modulesOfInterest are modules whose presence changes what can be done with a host's devices.
var modulesOfInterest = slices.Concat(
	// Virtual machines, and devices for them. mlx5_vfio_pci migrates virtual functions of a ConnectX live,
	// nvgrace_gpu_vfio_pci gives Grace GPUs away, pci_stub holds devices back from other drivers.
	[]string{"kvm", "kvm_intel", "kvm_amd", "vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "mlx5_vfio_pci",
		"nvgrace_gpu_vfio_pci", "vhost_net", "pci_stub"},
	// Drivers of GPUs. nvidia_uvm is for unified memory, nvidia_drm for displays and dma-buf. GPUDirect RDMA takes
	// nvidia_peermem, or nv_peer_mem before driver 470; GPUDirect Storage takes nvidia_fs, GDRCopy gdrdrv, and
	// shared GPUs nvidia_vgpu_vfio. nouveau keeps GPUs from others.
	[]string{"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_peermem", "nv_peer_mem", "nvidia_fs", "nvidia_vgpu_vfio",
		"gdrdrv", "nouveau", "amdgpu", "i915", "xe", "habanalabs"},
	// RDMA: the kernel's part, and access from user space. ib_umad is for subnet management.
	[]string{"ib_core", "ib_uverbs", "ib_umad", "ib_ipoib", "rdma_cm", "rdma_ucm"},
	// Drivers of NICs, and beside each the driver of its RDMA devices. mlx4 is ConnectX-3 and earlier, mlx5
	// ConnectX-4 and later and BlueField, ice the E810, i40e the X710 and X722.
	[]string{"mlx4_core", "mlx4_en", "mlx4_ib", "mlx5_core", "mlx5_ib", "bnxt_en", "bnxt_re", "ice", "i40e", "irdma",
		"ionic", "ionic_rdma", "efa", "hfi1", "hns_roce_hw_v2", "qedr", "iw_cxgb4"},
	// RDMA in software: RoCE and iWARP.
	[]string{"rdma_rxe", "siw"},
	// Memory shared or copied between the processes of MPI.
	[]string{"xpmem", "knem"},
)

// readModules finds modules of interest, loaded or built in.
func (r *reader) readModules() {
	loaded, known := r.loadedModules()
	r.h.Kernel.ModulesKnown = known
	r.h.Kernel.Modules = append(r.h.Kernel.Modules, lists.Filter(slices.Sorted(slices.Values(modulesOfInterest)),
		func(name string) bool { return loaded[name] })...)
}

// loadedModules returns the modules that are loaded and the drivers that are built in. Both have a
// directory in /sys/module, but a snapshot need not have all of them: the list is known to be
// complete where /proc/modules is there.
func (r *reader) loadedModules() (loaded map[string]bool, known bool) {
	text, known := r.text("proc/modules")
	loaded = parseModules(text)
	for _, name := range r.dir("sys/module") {
		loaded[name] = true
	}
	return loaded, known
}

// parseModules returns the modules of "mlx5_core 2150400 1 mlx5_ib, Live 0x0". Those that are
// coming or going are not there.
func parseModules(text string) map[string]bool {
	loaded := map[string]bool{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || len(fields) >= 5 && fields[4] != "Live" {
			continue
		}
		loaded[fields[0]] = true
	}
	return loaded
}

// readCandidates finds the drivers that could be bound to each function: those whose aliases, which
// depmod collects from the modules of the running kernel, match it. A driver that is built into the
// kernel is not listed there.
//
// The form of an alias is that of file2alias in the kernel: "pci:v000015B3d00001015sv*sd*bc*sc*i*".
func (r *reader) readCandidates() {
	if r.h.Kernel.Release == "" || len(r.h.PCI) == 0 || strings.Contains(r.h.Kernel.Release, "/") {
		return
	}
	b, ok := r.bytes(path.Join("lib/modules", r.h.Kernel.Release, "modules.alias"))
	if !ok {
		return
	}
	aliases := parseAliases(b, pciVendors(r.h))
	for i := range r.h.PCI {
		d := &r.h.PCI[i]
		if d.IsBridge() || d.Vendor == nil || d.Device == nil || d.Class == nil {
			continue
		}
		name := modalias(d)
		for _, a := range aliases {
			if a.matches(name) {
				d.Candidates = append(d.Candidates, a.module)
			}
		}
		d.Candidates = lists.Distinct(d.Candidates)
	}
}

// modalias returns what the kernel asks for a module with, for a function whose vendor, device and
// class are known: their numbers, and those of the subsystem.
//
// Source: pci_uevent in drivers/pci/pci-driver.c.
func modalias(d *topology.PCIDevice) string {
	var subVendor, subDevice topology.ID16
	if d.SubsystemVendor != nil && d.SubsystemDevice != nil {
		subVendor, subDevice = *d.SubsystemVendor, *d.SubsystemDevice
	}
	class := uint32(*d.Class)
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X", uint16(*d.Vendor), uint16(*d.Device),
		uint16(subVendor), uint16(subDevice), class>>16, class>>8&0xff, class&0xff)
}

// A pciAlias is one alias of a module: a pattern for what modalias returns.
type pciAlias struct{ pattern, module string }

// matches reports whether the module takes the function with that modalias. modprobe compares with
// fnmatch(3), whose patterns are those of path.Match where no slash is in the name.
func (a pciAlias) matches(modalias string) bool {
	ok, err := path.Match(a.pattern, modalias)
	return ok && err == nil
}

// parseAliases returns the aliases of PCI functions that are for one of the vendors or for any.
func parseAliases(b []byte, vendors map[string]bool) []pciAlias {
	var out []pciAlias
	for line := range bytes.Lines(b) {
		if !isPCIAlias(line, vendors) {
			continue
		}
		if words := strings.Fields(string(line)); len(words) == 3 {
			out = append(out, pciAlias{words[1], words[2]})
		}
	}
	return out
}

// aliasStart begins the lines about PCI functions. "vfio_pci:" is another kind: those drivers take
// any function, by driver_override alone.
var aliasStart = []byte("alias pci:v")

// isPCIAlias reports whether a line is an alias for a function of one of the vendors, or of any.
func isPCIAlias(line []byte, vendors map[string]bool) bool {
	rest, ok := bytes.CutPrefix(line, aliasStart)
	if !ok || len(rest) == 0 {
		return false
	}
	return rest[0] == '*' || len(rest) > 8 && vendors[string(rest[:8])]
}

// pciVendors returns the vendors of the functions of h as aliases write them.
func pciVendors(h *topology.Host) map[string]bool {
	out := map[string]bool{}
	for i := range h.PCI {
		if v := h.PCI[i].Vendor; v != nil {
			out[fmt.Sprintf("%08X", uint16(*v))] = true
		}
	}
	return out
}

// isAliasFile reports whether a recorded file is depmod's list of aliases.
func isAliasFile(name string) bool { return path.Base(name) == "modules.alias" }

// usedAliases returns the lines that readCandidates uses: a snapshot need not hold a list of
// everything that there is, of a megabyte or two.
func usedAliases(b []byte, h *topology.Host) []byte {
	vendors := pciVendors(h)
	var out []byte
	for line := range bytes.Lines(b) {
		if isPCIAlias(line, vendors) {
			out = append(out, line...)
		}
	}
	return out
}
