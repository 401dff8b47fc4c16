package hostview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"

	"github.com/rackless/rackless/topology"
)

// heading names the machine: "Dell Inc. PowerEdge R740".
func (v *view) heading() string {
	s := v.System
	var names []string
	for _, n := range []string{s.Vendor, s.Product} {
		// Boards of no brand say so, in many words.
		if n = strings.TrimSpace(n); n != "" && !strings.Contains(strings.ToLower(n), "o.e.m") && !strings.EqualFold(n,
			"default string") {
			names = append(names, n)
		}
	}
	if len(names) == 2 && strings.HasPrefix(strings.ToLower(names[1]), strings.ToLower(names[0])) {
		names = names[1:] // "HP" and "HP EliteBook"
	}
	if len(names) == 0 {
		names = append(names, "A machine of unknown make")
	}
	// "virtual machine" once is enough.
	if s.Hypervisor != "" {
		names = append(names, fmt.Sprintf("(virtual machine under %s)", s.Hypervisor))
	} else if s.InVM != nil && *s.InVM {
		names = append(names, "(virtual machine)")
	}
	return show.Printable(strings.Join(names, " "))
}

// source says where the facts are from, in one sentence; "" on the machine itself.
func (v *view) source() string {
	p := v.Provenance
	if p.ThisSystem || p.Kind == "" {
		return ""
	}
	kind := map[string]string{
		topology.SourceTree: "a snapshot", topology.SourceHwloc: "hwloc's XML",
		topology.SourceNCCL: "NCCL's topology file",
		topology.SourceTopo: "the text of nvidia-smi topo -m", topology.SourceLspci: "the text of lspci",
		topology.SourceSynthetic: "a description: no such machine was read",
	}[p.Kind]
	if kind == "" {
		kind = orUnknown(p.Kind)
	}
	s := "From " + kind
	if p.Name != "" {
		s += ", " + p.Name
	}
	if p.Tool != "" {
		s += ", written by " + p.Tool
	}
	return show.Printable(s + ".")
}

// filled says which parts of the model the source could fill, where it is one that cannot fill them all.
func (v *view) filled() string {
	switch v.Provenance.Kind {
	case topology.SourceLive, topology.SourceTree, "":
		return ""
	}
	parts := v.Provenance.Filled
	if len(parts) == 0 {
		parts = v.Host.Parts()
	}
	if len(parts) == 0 {
		return ""
	}
	return show.Printable("It tells: " + strings.ReplaceAll(strings.Join(parts, ", "), "_", " ") + ".")
}

// facts are lines about the machine as a whole; what is not known is left out of them.
func (v *view) facts() []string {
	h := v.Host
	var lines []string
	add := func(parts ...string) {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if len(parts) > 0 {
			lines = append(lines, show.Printable(strings.Join(parts, ", ")))
		}
	}
	add(v.cpuModel())
	add(v.countsText(), v.memoryText())
	add(prefixed("Linux ", h.Kernel.Release), v.System.Arch, v.iommuText(), prefixed("BIOS ", v.System.BIOS))
	add(v.stateText())
	add(v.tuningText())
	return lines
}

// cpuModel is the model of all packages, or of the first CPU.
func (v *view) cpuModel() string {
	if v.System.CPUModel != "" || len(v.Host.Packages) == 0 {
		return v.System.CPUModel
	}
	model := v.Host.Packages[0].Model
	for i := range v.Host.Packages {
		if v.Host.Packages[i].Model != model {
			return ""
		}
	}
	return model
}

// prefixed is prefix and s, or nothing.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// countsText is "1 package, 32 cores, 64 CPUs, 4 NUMA nodes".
func (v *view) countsText() string {
	h := v.Host
	var parts []string
	count := func(n int, one, many string) {
		if n > 0 {
			parts = append(parts, countText(n, one, many))
		}
	}
	count(len(h.Packages), "package", "packages")
	count(len(h.Cores), "core", "cores")
	count(v.onlineCPUs().Len(), "CPU", "CPUs")
	if len(parts) > 0 && h.CPUs.SMT != "" {
		parts[len(parts)-1] += " (SMT " + h.CPUs.SMT + ")"
	}
	count(len(h.NUMANodes), "NUMA node", "NUMA nodes")
	return strings.Join(parts, ", ")
}

// onlineCPUs are those that the kernel lists, or else those of all cores and nodes.
func (v *view) onlineCPUs() topology.CPUSet {
	h := v.Host
	all := h.CPUs.Online
	if all.IsEmpty() {
		for i := range h.Cores {
			all = all.Union(h.Cores[i].CPUs)
		}
		for i := range h.NUMANodes {
			all = all.Union(h.NUMANodes[i].CPUs)
		}
	}
	return all
}

// totalMemory is that of the machine, or the sum of its nodes where each is known.
func (v *view) totalMemory() *uint64 {
	if v.Host.Memory.TotalBytes != nil {
		return v.Host.Memory.TotalBytes
	}
	var sum uint64
	for i := range v.Host.NUMANodes {
		m := v.Host.NUMANodes[i].MemoryBytes
		if m == nil {
			return nil
		}
		sum += *m
	}
	if len(v.Host.NUMANodes) == 0 {
		return nil
	}
	return &sum
}

func (v *view) memoryText() string {
	if m := v.totalMemory(); m != nil {
		return words.Size(*m) + " memory"
	}
	return ""
}

func (v *view) iommuText() string {
	on := v.Host.IOMMU.Enabled
	switch {
	case on == nil:
		return ""
	case !*on:
		return "IOMMU off"
	case len(v.Host.IOMMU.Groups) > 0:
		return "IOMMU on with " + countText(len(v.Host.IOMMU.Groups), "group", "groups")
	}
	return "IOMMU on"
}

// stateText says which CPUs are not like the others.
func (v *view) stateText() string {
	s := v.Host.CPUs
	var parts []string
	for _, set := range []struct {
		name string
		cpus *topology.CPUSet
	}{{"offline", s.Offline}, {"isolated", s.Isolated}, {"nohz_full", s.NoHzFull}} {
		if set.cpus != nil && !set.cpus.IsEmpty() {
			parts = append(parts, set.name+" CPUs "+cpusText(*set.cpus, 40))
		}
	}
	return strings.Join(parts, "; ")
}

// tuningText says what the kernel does with memory behind a program's back, and the machine's hugepages.
func (v *view) tuningText() string {
	m := v.Host.Memory
	var parts []string
	switch pools := poolsText(m.Hugepages); pools {
	case unknown:
	case none:
		parts = append(parts, "no hugepages")
	default:
		parts = append(parts, "hugepages "+pools)
	}
	var swap uint64
	for _, s := range m.Swap {
		swap += s.SizeBytes
	}
	if swap > 0 {
		parts = append(parts, "swap "+words.Size(swap))
	} else if m.SwapKnown {
		parts = append(parts, "no swap")
	}
	if m.NUMABalancing != "" {
		state := map[string]string{"0": "off", "1": "on", "2": "tiering"}[m.NUMABalancing]
		if state == "" {
			state = m.NUMABalancing
		}
		parts = append(parts, "NUMA balancing "+state)
	}
	if m.THP != "" {
		parts = append(parts, "THP "+m.THP)
	}
	return strings.Join(parts, ", ")
}

// routeTexts are the default routes, one line each.
func (v *view) routeTexts() []string {
	var lines []string
	for _, r := range v.Host.Routes {
		s := fmt.Sprintf("Default route (%s): %s", orUnknown(r.Family), orUnknown(r.Netdev))
		if len(r.PCI) > 0 {
			s += " on " + some(r.PCI, 4)
		}
		if r.Gateway != "" {
			s += " to " + r.Gateway
		}
		lines = append(lines, show.Printable(s))
	}
	return lines
}
