package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/machine/topology"
)

func (v *view) heading() string {
	if v.Placement != nil {
		return v.Placement.Heading
	}
	s := v.System
	var names []string
	for _, n := range []string{s.Vendor, s.Product} {
		// Unbranded boards have placeholders.
		lower := strings.ToLower(strings.TrimSpace(n))
		if lower != "" && !strings.Contains(lower, "o.e.m") && lower != "default string" {
			names = append(names, strings.TrimSpace(n))
		}
	}
	// Many names begin with the vendor's.
	if len(names) == 2 && strings.HasPrefix(strings.ToLower(names[1]), strings.ToLower(names[0])) {
		names = names[1:] // "HP" and "HP EliteBook"
	}
	if len(names) == 0 {
		names = append(names, "A machine of unknown make")
	}
	// Say "virtual machine" only once.
	if s.Hypervisor != "" {
		names = append(names, fmt.Sprintf("(virtual machine under %s)", s.Hypervisor))
	} else if s.InVM != nil && *s.InVM {
		names = append(names, "(virtual machine)")
	}
	return strings.Join(names, " ")
}

// source returns "" for the machine itself.
func (v *view) source() string {
	p := v.Provenance
	if p.ThisSystem || p.Kind == "" {
		return ""
	}
	kind := map[string]string{
		topology.SourceTree: "a snapshot", topology.SourceHwloc: "hwloc's XML",
		topology.SourceNCCL: "NCCL's topology file",
		topology.SourceTopo: "the text of nvidia-smi topo -m", topology.SourceLspci: "the text of lspci",
		topology.SourceTexts:     "texts of tools",
		topology.SourceVSphere:   "the API of vSphere",
		topology.SourceSynthetic: "a description: no such machine was read",
	}[p.Kind]
	return "From " + cmp.Or(kind, p.Kind) + prefixed(", ", p.Name) + prefixed(", written by ", p.Tool) + "."
}

func (v *view) sources() []string {
	return slices.DeleteFunc([]string{v.source(), v.filled()}, func(s string) bool { return s == "" })
}

// filled lists the parts of a partial source, or returns "".
func (v *view) filled() string {
	switch v.Provenance.Kind {
	case topology.SourceLive, topology.SourceTree, "":
		return ""
	}
	// Readers must not take a missing part for an absent one.
	parts := v.Provenance.Filled
	if len(parts) == 0 {
		parts = v.Host.Parts()
	}
	if len(parts) == 0 {
		return ""
	}
	return "Contains: " + strings.ReplaceAll(strings.Join(parts, ", "), "_", " ") + "."
}

func (v *view) facts() []string {
	if v.Placement != nil {
		return v.Placement.Facts
	}
	return slices.DeleteFunc([]string{
		v.cpuModel(),
		joined(", ", v.countsText(), v.memoryText()),
		joined(", ", prefixed("Linux ", v.Host.Kernel.Release), v.System.Arch, v.iommuText(),
			prefixed("BIOS ", v.System.BIOS)),
		v.stateText(),
		v.tuningText(),
	}, func(s string) bool { return s == "" })
}

func (v *view) cpuModel() string {
	if v.System.CPUModel != "" || len(v.Host.Packages) == 0 {
		return v.System.CPUModel
	}
	model := v.Host.Packages[0].Model
	if slices.ContainsFunc(v.Host.Packages, func(p topology.Package) bool { return p.Model != model }) {
		return ""
	}
	return model
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

var smtWords = strings.NewReplacer("forceoff", "forced off", "notsupported", "not supported", "notimplemented",
	"not implemented")

func (v *view) countsText() string {
	h := v.Host
	hardware := joined(", ", counted(len(h.Packages), "package"), counted(len(h.Cores), "core"),
		counted(v.onlineCPUs().Len(), "CPU"))
	if hardware != "" && h.CPUs.SMT != "" {
		hardware += " (SMT " + smtWords.Replace(h.CPUs.SMT) + ")"
	}
	// Unlisted nodes may have CPUs.
	if hardware != "" && (h.CPUs.Untold() || h.CPUs.Online.IsEmpty() && h.UntoldNodes() > 0) {
		hardware += " or more"
	}
	return joined(", ", hardware, v.nodesText())
}

// nodesText says if the source lists fewer than there are.
func (v *view) nodesText() string {
	listed, untold := len(v.Host.NUMANodes), v.Host.UntoldNodes()
	switch {
	case untold == 0 && listed > 0 && v.Host.CPUs.Untold():
		return counted(listed, "NUMA node") + " or more"
	case untold == 0:
		return counted(listed, "NUMA node")
	case v.Host.NodeCount != nil:
		return fmt.Sprintf("%d NUMA nodes, of which %d are told", listed+untold, listed)
	}
	return fmt.Sprintf("%d or more NUMA nodes, of which %d is told", listed+untold, listed)
}

// onlineCPUs are the kernel's, or else of cores and nodes.
func (v *view) onlineCPUs() topology.CPUSet {
	h := v.Host
	all := h.CPUs.Online
	if all.IsEmpty() {
		all = topology.UnionOf(h.Cores, func(c topology.Core) topology.CPUSet { return c.CPUs }).Union(
			topology.UnionOf(h.NUMANodes, func(n topology.NUMANode) topology.CPUSet { return n.CPUs }))
	}
	return all
}

// totalMemory may be a sum over nodes if all are known.
func (v *view) totalMemory() *uint64 {
	if v.Host.Memory.TotalBytes != nil {
		return v.Host.Memory.TotalBytes
	}
	nodes := v.Host.NUMANodes
	if len(nodes) == 0 || slices.ContainsFunc(nodes, func(n topology.NUMANode) bool { return n.MemoryBytes == nil }) {
		return nil
	}
	return new(lists.Sum(nodes, func(n topology.NUMANode) uint64 { return *n.MemoryBytes }))
}

func (v *view) memoryText() string {
	m := v.totalMemory()
	var gpus uint64 // Linux counts the memory of POWER9 and Grace GPUs
	for _, n := range v.Host.NUMANodes {
		if n.Kind == "gpu" && n.MemoryBytes != nil {
			gpus += *n.MemoryBytes
		}
	}
	if m == nil {
		return ""
	}
	text := words.Size(*m) + " memory"
	if gpus > 0 {
		text += " (" + words.Size(gpus) + " of GPUs)"
	}
	return text
}

func (v *view) iommuText() string {
	on := v.Host.IOMMU.Enabled
	switch {
	case on == nil:
		return ""
	case !*on:
		return "IOMMU off"
	}
	return "IOMMU on" + prefixed(" with ", counted(len(v.Host.IOMMU.Groups), "group"))
}

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

func (v *view) tuningText() string {
	m := v.Host.Memory
	hugepages := poolsText(m.Hugepages)
	switch hugepages {
	case unknown:
	case none:
		hugepages = "no hugepages"
	default:
		hugepages = "hugepages " + hugepages
	}
	bytes := lists.Sum(m.Swap, func(s topology.Swap) uint64 { return s.SizeBytes })
	swap := ""
	switch {
	case bytes > 0:
		swap = "swap " + words.Size(bytes)
	case m.SwapKnown:
		swap = "no swap"
	}
	// An unknown number of a later kernel is shown unchanged.
	balancing := cmp.Or(map[string]string{"0": "off", "1": "on", "2": "tiering"}[m.NUMABalancing], m.NUMABalancing)
	return joined(", ", hugepages, swap, prefixed("NUMA balancing ", balancing), prefixed("THP ", m.THP))
}

func (v *view) routeTexts() []string {
	return lists.Map(v.Host.Routes, func(r topology.Route) string {
		return fmt.Sprintf("Default route (%s): %s", orUnknown(r.Family), orUnknown(r.Netdev)) +
			prefixed(" on ", some(r.PCI, 4)) + prefixed(" to ", r.Gateway)
	})
}

func (v *view) contradictions() []string {
	return lists.Map(v.Host.Contradictions, func(c topology.Contradiction) string {
		return fmt.Sprintf("%s: %s by %s; %s by %s", c.Fact, orUnknown(c.Value), orUnknown(c.Source),
			orUnknown(c.Other), orUnknown(c.By))
	})
}
