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

// A view is a Document with printable texts only, and lookups.
type view struct {
	*Document
	tree     *topology.Tree
	gpus     []*topology.GPU // in Host order
	displays []*topology.GPU
	nics     []*topology.NIC              // without virtual functions
	vfs      map[topology.PCIAddr]int     // by physical function
	names    map[string]string            // by ID: GPU0, NIC3
	classes  map[[2]string]string         // by both IDs, in both orders
	findings map[string][]finding.Finding // by subject
}

// newView makes all texts printable and one line each.
func newView(d *Document) *view {
	// Clean would put fixes on one line.
	fixes := d.Findings
	d = show.Clean(d, words.Printable)
	for i, f := range fixes {
		d.Findings[i].Fix = words.Visible(f.Fix) // may be a script
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
		if n := &d.Host.NICs[i]; n.PF == nil || n.Address == nil {
			v.nics = append(v.nics, n)
		}
	}
	for i := range d.Host.PCI {
		// A source may list them without saying how many are enabled.
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

// number keeps distinct names of the form prefixN (a matrix may start at GPU4), or else gives prefix0, prefix1, ... in
// order.
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
		if len(seen) < len(all) {
			name = prefix + strconv.Itoa(i)
		}
		names[id] = name
	}
}

// nodeOf puts every device on the node if there is only one.
func (v *view) nodeOf(n *int) *int {
	if only := v.Host.OnlyNode(); n == nil && only != nil {
		return &only.ID
	}
	return n
}

func (v *view) device(a *topology.PCIAddr) *topology.PCIDevice {
	if a == nil {
		return nil
	}
	return v.tree.Device(*a)
}

// affinity is that of the source, else the kernel, else the node.
func (v *view) affinity(stated *topology.CPUSet, addr *topology.PCIAddr, node *int) *topology.CPUSet {
	// A user that pins by nvidia-smi should see its value.
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

// vfText is "4 of 16", or none without SR-IOV.
func (v *view) vfText(n *topology.NIC, d *topology.PCIDevice) string {
	now := 0
	if n.Address != nil {
		now = v.vfs[*n.Address]
	}
	s := n.SRIOV
	// lspci only knows the function.
	if s == nil && d != nil {
		s = d.SRIOV
	}
	switch {
	case s == nil && now == 0:
		return none
	case s == nil:
		return strconv.Itoa(now)
	}
	// Some sources only count virtual functions.
	now = max(now, len(s.VFs))
	if s.Enabled != nil {
		now = max(now, *s.Enabled)
	}
	if s.Total == nil {
		return strconv.Itoa(now)
	}
	return fmt.Sprintf("%d of %d", now, *s.Total)
}

// subjects are addresses as in sysfs, "node 1", or names.
func subjects(f finding.Finding) []string {
	parts := strings.Split(f.Subject, ",")
	for i, s := range parts {
		s = strings.TrimSpace(s)
		// Some omit the domain or use upper case.
		if a, err := topology.ParsePCIAddr(s); err == nil {
			s = a.String()
		}
		parts[i] = s
	}
	return parts
}

// A findingGroup has findings with one fault and fix.
type findingGroup struct {
	finding.Finding // the first one
	Subjects        []string
	Evidences       []string // in the order of Subjects
}

// grouped puts the worst first, then by first appearance.
func grouped(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		f.Subject, f.Evidence = "", ""
		return f
	})
}

// families joins findings of one kind, even with different fixes.
func families(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		return finding.Finding{ID: f.ID, Title: f.Title, Severity: f.Severity}
	})
}

// groupedBy drops by key the fields that may differ.
func groupedBy(all []finding.Finding, key func(finding.Finding) finding.Finding) []findingGroup {
	var groups group.List[finding.Finding, findingGroup]
	for _, f := range all {
		g := groups.At(key(f), findingGroup{Finding: f})
		g.Subjects, g.Evidences = append(g.Subjects, f.Subject), append(g.Evidences, f.Evidence)
	}
	out := groups.All
	// A stable sort keeps the order of the checks.
	slices.SortStableFunc(out, func(a, b findingGroup) int { return cmp.Compare(a.Severity.Rank(), b.Severity.Rank()) })
	return out
}

func findingsText(all []finding.Finding) string {
	var n [3]int
	for _, f := range all {
		n[f.Severity.Rank()]++
	}
	return cmp.Or(joined(", ", counted(n[0], "error"), counted(n[1], "warning"), counted(n[2], "note")), "no findings")
}

func some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return words.Names(names, most-1)
}
