package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
)

// A view is a Document in which every text is printable, with what every output needs to know about it.
type view struct {
	*Document
	tree     *topology.Tree
	gpus     []*topology.GPU              // those that compute, in the order of the Host
	displays []*topology.GPU              // those that only drive a screen
	nics     []*topology.NIC              // without virtual functions
	vfs      map[topology.PCIAddr]int     // virtual functions that are there, by physical function
	names    map[string]string            // GPU0, NIC3: by ID
	classes  map[[2]string]string         // cells of the matrix, by the IDs of both devices, in both orders
	findings map[string][]finding.Finding // by what they are about, in the form of subjects
}

// newView cleans the document and looks up what its outputs need: everything from outside is printable and on one line
// from here on.
func newView(d *Document) *view {
	// Clean copies the document, and fixes would be put on one line with all other texts.
	fixes := d.Findings
	d = show.Clean(d, words.Printable)
	for i, f := range fixes {
		d.Findings[i].Fix = words.Visible(f.Fix) // may be a script of several lines
	}
	v := &view{
		Document: d, tree: topology.NewTree(d.Host),
		vfs: map[topology.PCIAddr]int{}, names: map[string]string{}, classes: map[[2]string]string{},
		findings: map[string][]finding.Finding{},
	}
	for i := range d.Host.GPUs {
		if g := &d.Host.GPUs[i]; g.Kind == topology.GPUDisplay {
			v.displays = append(v.displays, g)
		} else {
			v.gpus = append(v.gpus, g)
		}
	}
	for i := range d.Host.NICs {
		if n := &d.Host.NICs[i]; n.PF == nil {
			v.nics = append(v.nics, n)
		}
	}
	for i := range d.Host.PCI {
		// Counted by what is there, since a source may list virtual functions and not say how many are enabled.
		if pf := d.Host.PCI[i].PF; pf != nil {
			v.vfs[*pf]++
		}
	}
	number(v.names, "GPU", v.gpus, func(g *topology.GPU) (id, name string) { return g.ID(), g.Name })
	number(v.names, "NIC", v.nics, func(n *topology.NIC) (id, name string) { return n.ID(), n.Name })
	for _, p := range d.Paths {
		v.classes[[2]string{p.A, p.B}] = p.Class
		v.classes[[2]string{p.B, p.A}] = p.Class
	}
	for _, f := range d.Findings {
		for _, s := range subjects(f) {
			v.findings[s] = append(v.findings[s], f)
		}
	}
	return v
}

// number gives devices the names by which a matrix calls them: those that they brought along where
// all have one of this form (a matrix may start at GPU4), or prefix0, prefix1, ... in their order.
func number[T any](names map[string]string, prefix string, all []T, of func(T) (id, name string)) {
	seen := map[string]bool{}
	for _, x := range all {
		_, name := of(x)
		digits, ok := strings.CutPrefix(name, prefix)
		if _, err := strconv.ParseUint(digits, 10, 16); ok && err == nil {
			seen[name] = true
		}
	}
	for i, x := range all {
		id, name := of(x)
		if len(seen) < len(all) { // some have none of this form, or one that another has
			name = prefix + strconv.Itoa(i)
		}
		names[id] = name
	}
}

// nodeOf returns the node of a device: on a machine with one node everything is on it.
func (v *view) nodeOf(n *int) *int {
	if n == nil && len(v.Host.NUMANodes) == 1 {
		return &v.Host.NUMANodes[0].ID
	}
	return n
}

// device returns the PCI function at a, or nil.
func (v *view) device(a *topology.PCIAddr) *topology.PCIDevice {
	if a == nil {
		return nil
	}
	return v.tree.Device(*a)
}

// affinity returns the CPUs next to a device: as its source states them, as the kernel does, or those of its node.
func (v *view) affinity(stated *topology.CPUSet, addr *topology.PCIAddr, node *int) *topology.CPUSet {
	// nvidia-smi prints an affinity that may differ from that of the kernel. Who pins by it should see it.
	if stated != nil {
		return stated
	}
	if d := v.device(addr); d != nil && d.LocalCPUs != nil {
		return d.LocalCPUs
	}
	if node = v.nodeOf(node); node != nil {
		if n := v.Host.NUMANode(*node); n != nil {
			return &n.CPUs
		}
	}
	return nil
}

// vfText is how many virtual functions a NIC has, and how many it could have: "4 of 16". It
// is none where SR-IOV is not offered.
func (v *view) vfText(n *topology.NIC, d *topology.PCIDevice) string {
	now := 0
	if n.Address != nil {
		now = v.vfs[*n.Address]
	}
	s := n.SRIOV
	// Sources put it at the NIC or at its function; lspci knows the function alone.
	if s == nil && d != nil {
		s = d.SRIOV
	}
	switch {
	case s == nil && now == 0:
		return none
	case s == nil:
		return strconv.Itoa(now)
	}
	// Some sources list virtual functions, and some only count them: the highest number is right.
	now = max(now, len(s.VFs))
	if s.Enabled != nil {
		now = max(now, *s.Enabled)
	}
	if s.Total == nil {
		return strconv.Itoa(now)
	}
	return fmt.Sprintf("%d of %d", now, *s.Total)
}

// subjects are what a finding is about, in the form in which a device or node is looked up: an
// address as sysfs writes it, "node 1", or a name.
func subjects(f finding.Finding) []string {
	parts := strings.Split(f.Subject, ",")
	for i, s := range parts {
		s = strings.TrimSpace(s)
		// Some sources leave the domain out, and write letters large.
		if a, err := topology.ParsePCIAddr(s); err == nil {
			s = a.String()
		}
		parts[i] = s
	}
	return parts
}

// A findingGroup is findings that differ only in their subject and evidence: one line says what is
// wrong and how to mend it.
type findingGroup struct {
	finding.Finding // the first
	Subjects        []string
	Evidences       []string // beside Subjects
}

// grouped joins findings that say the same of several subjects, the worst first. The order is that
// of the first of each.
func grouped(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		f.Subject, f.Evidence = "", ""
		return f
	})
}

// families joins findings of one kind, whatever they advise.
func families(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		return finding.Finding{ID: f.ID, Title: f.Title, Severity: f.Severity}
	})
}

// groupedBy joins the findings that have the same key: the finding without what may differ.
func groupedBy(all []finding.Finding, key func(finding.Finding) finding.Finding) []findingGroup {
	var groups group.List[finding.Finding, findingGroup]
	for _, f := range all {
		g := groups.At(key(f), findingGroup{Finding: f})
		g.Subjects, g.Evidences = append(g.Subjects, f.Subject), append(g.Evidences, f.Evidence)
	}
	out := groups.All
	// Stable, so that findings of one severity stay in the order of the checks.
	slices.SortStableFunc(out, func(a, b findingGroup) int { return cmp.Compare(a.Severity.Rank(), b.Severity.Rank()) })
	return out
}

// findingsText counts the findings: "1 error, 2 warnings, 3 notes".
func findingsText(all []finding.Finding) string {
	var n [3]int
	for _, f := range all {
		n[f.Severity.Rank()]++
	}
	return cmp.Or(joined(", ", counted(n[0], "error"), counted(n[1], "warning"), counted(n[2], "note")), "no findings")
}

// some joins names in one sentence: the first few, and how many more there are.
func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return words.Names(names, most-1)
}
