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

func (r *reader) readKernel() {
	k := &r.h.Kernel
	k.Release = r.release()
	r.readModules()
	line, ok := r.text("proc/cmdline")
	if !ok {
		return
	}
	k.Cmdline = &line
	size := uint64(0) // of the next "hugepages="
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

// A parameterReader sets the effective value if a file shows it.
type parameterReader func(r *reader, p *topology.KernelParameter)

// parameters are built-in parameters that matter to a host of virtual machines, with "_" for "-".
//
// Source: Documentation/admin-guide/kernel-parameters.txt.
var parameters = map[string]parameterReader{
	// Isolation of CPUs.
	"isolcpus":    fromFile("sys/devices/system/cpu/isolated"),
	"nohz_full":   fromFile("sys/devices/system/cpu/nohz_full"),
	"irqaffinity": readIRQAffinity,
	"nosmt":       fromFile("sys/devices/system/cpu/smt/control"),

	// Memory and its allocation.
	"default_hugepagesz":   readDefaultHugepage,
	"numa_balancing":       fromFile("proc/sys/kernel/numa_balancing"),
	"transparent_hugepage": fromChoice("sys/kernel/mm/transparent_hugepage/enabled"),

	// Access of devices to memory.
	"intel_iommu":         readIOMMUInForce("dmar"),
	"amd_iommu":           readIOMMUInForce("ivhd"),
	"iommu":               readIOMMUMode,
	"iommu.passthrough":   readIOMMUMode,
	"pcie_aspm.policy":    fromChoice("sys/module/pcie_aspm/parameters/policy"),
	"modprobe.blacklist":  readBlacklist,
	"module_blacklist":    readBlacklist,
	"rd.driver.blacklist": readBlacklist,

	// Speed, and its distribution.
	"intel_pstate": fromFile("sys/devices/system/cpu/intel_pstate/status"),
	"amd_pstate":   fromFile("sys/devices/system/cpu/amd_pstate/status"),
	"cpuidle.off":  fromFile("sys/module/cpuidle/parameters/off"),
}

// unreadable parameters have no visible effective value. pcie_acs_override comes from a patch that many home lab
// distributions carry, and pcie_aspm=off leaves the policy unchanged.
var unreadable = strings.Fields(`rcu_nocbs kthread_cpus nohz skew_tick tsc maxcpus nr_cpus possible_cpus
	numa hugetlb_cma movable_node mem iommu.strict pci pcie_acs_override pcie_aspm pcie_port_pm
	systemd.cpu_affinity mitigations idle`)

// moduleParameters are modules with parameters that matter. Effective values are in /sys/module.
var moduleParameters = []string{
	"kvm", "kvm_intel", "kvm_amd", "vfio", "vfio_pci", "vfio_iommu_type1", "nvidia", "nvidia_drm", "nouveau", "amdgpu",
	"mlx4_core", "mlx5_core",
	"ib_core", "intel_idle", "processor", "workqueue", "rcutree",
}

func moduleParameter(key string) bool {
	module, _, ok := strings.Cut(key, ".")
	return ok && slices.Contains(moduleParameters, module)
}

func fromFile(path string) parameterReader {
	return func(r *reader, p *topology.KernelParameter) {
		if s, ok := r.text(path); ok {
			if s == "(null)" {
				s = "" // nohz_full without that parameter
			}
			p.InForce, p.Source = &s, "/"+path
		}
	}
}

// fromChoice reads a list of choices with the effective one in brackets.
func fromChoice(path string) parameterReader {
	return func(r *reader, p *topology.KernelParameter) {
		if s := chosen(r.word(path)); s != "" {
			p.InForce, p.Source = &s, "/"+path
		}
	}
}

// moduleInForce sets no value if the module is not loaded or does not show the parameter.
func (r *reader) moduleInForce(p *topology.KernelParameter, key string) {
	module, name, _ := strings.Cut(key, ".")
	fromFile("sys/module/"+module+"/parameters/"+name)(r, p)
}

func readIRQAffinity(r *reader, p *topology.KernelParameter) {
	const path = "proc/irq/default_smp_affinity"
	if set := r.mask(path); set != nil {
		p.InForce, p.Source = new(set.String()), "/"+path
	}
}

// readIOMMUInForce takes dmar0 or ivhd0.
func readIOMMUInForce(unit string) parameterReader {
	return func(r *reader, p *topology.KernelParameter) {
		units := r.dir(iommuClass)
		if slices.ContainsFunc(units, func(name string) bool { return strings.HasPrefix(name, unit) }) {
			p.InForce, p.Source = new("on"), "/"+iommuClass
			return
		}
		// A snapshot may lack the class. Without groups the IOMMU is off, despite the parameter.
		switch groups := r.dir(iommuGroups); { // not nil if listed
		case len(groups) > 0:
			p.InForce, p.Source = new("on"), "/"+iommuGroups
		case groups != nil:
			p.InForce, p.Source = new("off"), "/"+iommuGroups
		case units != nil:
			p.InForce, p.Source = new("off"), "/"+iommuClass
		}
	}
}

// readIOMMUMode reads "identity" for "iommu=pt".
func readIOMMUMode(r *reader, p *topology.KernelParameter) {
	// Types are changed by hand, and rarely in the first group.
	if ids := r.numbered(iommuGroups, ""); len(ids) > 0 {
		fromFile(iommuGroups+"/"+strconv.Itoa(ids[0])+"/type")(r, p)
	}
}

// readBlacklist finds blacklisted modules that are not loaded. Built-in drivers cannot be blacklisted, and another
// module may still load one by name.
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

func readDefaultHugepage(r *reader, p *topology.KernelParameter) {
	if size := r.h.Memory.DefaultHuge; size != nil {
		p.InForce, p.Source = new(formatSize(*size)), "/proc/meminfo"
	}
}

// hugepagesInForce reads "hugepagesz=1G hugepages=16", or "hugepages=0:8,1:8" per node. size is 0 if unknown.
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

// poolInForce records whether a size exists at all. CPUs without pdpe1gb have no pages of 1 GiB.
func (r *reader) poolInForce(p *topology.KernelParameter, size uint64) {
	dir := "sys/kernel/mm/hugepages/hugepages-" + strconv.FormatUint(size>>10, 10) + "kB"
	if size != 0 && r.exists(dir) {
		p.InForce, p.Source = new(formatSize(size)), "/"+dir
	}
}

// formatSize returns "2M", "1G".
func formatSize(v uint64) string {
	unit := 0
	for v > 0 && v%1024 == 0 && unit < len("KMG") {
		v, unit = v/1024, unit+1
	}
	return strconv.FormatUint(v, 10) + []string{"", "K", "M", "G"}[unit]
}

var modulesOfInterest = slices.Concat(
	// For virtual machines. mlx5_vfio_pci migrates virtual functions of a ConnectX live, nvgrace_gpu_vfio_pci assigns
	// Grace GPUs, pci_stub keeps devices from other drivers.
	[]string{"kvm", "kvm_intel", "kvm_amd", "vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "mlx5_vfio_pci",
		"nvgrace_gpu_vfio_pci", "vhost_net", "pci_stub"},
	// For GPUs. nvidia_uvm is for unified memory, nvidia_drm for displays and dma-buf. GPUDirect RDMA needs
	// nvidia_peermem, or nv_peer_mem before driver 470; GPUDirect Storage needs nvidia_fs, GDRCopy gdrdrv, and shared
	// GPUs nvidia_vgpu_vfio. nouveau keeps GPUs from other drivers.
	[]string{"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_peermem", "nv_peer_mem", "nvidia_fs", "nvidia_vgpu_vfio",
		"gdrdrv", "nouveau", "amdgpu", "i915", "xe", "habanalabs"},
	// ib_umad is for RDMA subnet management.
	[]string{"ib_core", "ib_uverbs", "ib_umad", "ib_ipoib", "rdma_cm", "rdma_ucm"},
	// NICs, each before its RDMA driver. mlx4 is ConnectX-3 and earlier, mlx5 ConnectX-4 and later and BlueField, ice
	// the E810, i40e the X710 and X722.
	[]string{"mlx4_core", "mlx4_en", "mlx4_ib", "mlx5_core", "mlx5_ib", "bnxt_en", "bnxt_re", "ice", "i40e", "irdma",
		"ionic", "ionic_rdma", "efa", "hfi1", "hns_roce_hw_v2", "qedr", "iw_cxgb4"},
	// RDMA in software: RoCE and iWARP.
	[]string{"rdma_rxe", "siw"},
	// Memory sharing between MPI processes.
	[]string{"xpmem", "knem"},
)

func (r *reader) readModules() {
	loaded, known := r.loadedModules()
	r.h.Kernel.ModulesKnown = known
	r.h.Kernel.Modules = append(r.h.Kernel.Modules, lists.Filter(slices.Sorted(slices.Values(modulesOfInterest)),
		func(name string) bool { return loaded[name] })...)
}

// loadedModules also returns built-in drivers. A snapshot may lack directories in /sys/module, so known is true only if
// /proc/modules exists.
func (r *reader) loadedModules() (loaded map[string]bool, known bool) {
	text, known := r.text("proc/modules")
	loaded = parseModules(text)
	for _, name := range r.dir("sys/module") {
		loaded[name] = true
	}
	return loaded, known
}

// parseModules parses "mlx5_core 2150400 1 mlx5_ib, Live 0x0", and skips modules being loaded or unloaded.
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

// readCandidates finds drivers for each function by the aliases that depmod collected. Built-in drivers are not in
// them.
//
// An alias is from file2alias in the kernel: "pci:v000015B3d00001015sv*sd*bc*sc*i*".
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

// modalias is the string by which the kernel requests a module. Vendor, device and class must be known.
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

// A pciAlias is a module's pattern for modalias.
type pciAlias struct{ pattern, module string }

// matches uses path.Match, which equals modprobe's fnmatch(3) for names without slashes.
func (a pciAlias) matches(modalias string) bool {
	ok, err := path.Match(a.pattern, modalias)
	return ok && err == nil
}

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

// "vfio_pci:" lines are different: such drivers take any function, but only by driver_override.
var aliasStart = []byte("alias pci:v")

// isPCIAlias accepts a function of one of the vendors or of any.
func isPCIAlias(line []byte, vendors map[string]bool) bool {
	rest, ok := bytes.CutPrefix(line, aliasStart)
	if !ok || len(rest) == 0 {
		return false
	}
	return rest[0] == '*' || len(rest) > 8 && vendors[string(rest[:8])]
}

func pciVendors(h *topology.Host) map[string]bool {
	out := map[string]bool{}
	for i := range h.PCI {
		if v := h.PCI[i].Vendor; v != nil {
			out[fmt.Sprintf("%08X", uint16(*v))] = true
		}
	}
	return out
}

func isAliasFile(name string) bool { return path.Base(name) == "modules.alias" }

// usedAliases keeps the whole list, a megabyte or two, out of a snapshot.
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
