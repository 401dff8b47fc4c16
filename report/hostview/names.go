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

// A view is a Document with printable texts only, and the lookups that the outputs need.
type view struct {
	*Document
	tree     *topology.Tree
	gpus     []*topology.GPU              // GPUs for computing, in Host order
	displays []*topology.GPU              // GPUs that only drive a screen
	nics     []*topology.NIC              // without virtual functions
	vfs      map[topology.PCIAddr]int     // number of virtual functions by physical function
	names    map[string]string            // by ID: GPU0, NIC3
	classes  map[[2]string]string         // matrix cells by the IDs of both devices, in both orders
	findings map[string][]finding.Finding // by subject
}

// newView cleans the document and prepares its lookups. From here on, all texts from outside are printable and on one
// line.
func newView(d *Document) *view {
	// Clean copies the document but would put fixes on one line like all other texts.
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
		if n := &d.Host.NICs[i]; n.PF == nil || n.Address == nil {
			v.nics = append(v.nics, n)
		}
	}
	for i := range d.Host.PCI {
		// Count the listed virtual functions, since a source may list them without saying how many are enabled.
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

// number sets the names of devices in a matrix. If all devices have distinct names of the form prefixN, they keep
// them (a matrix may start at GPU4); otherwise they become prefix0, prefix1, ... in order.
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
		if len(seen) < len(all) { // not all names have the form and are distinct
			name = prefix + strconv.Itoa(i)
		}
		names[id] = name
	}
}

// nodeOf returns the NUMA node of a device. On a machine with one node, every device is on that node.
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

// affinity returns the CPUs next to a device, as stated by its source, else by the kernel, else by its node.
func (v *view) affinity(stated *topology.CPUSet, addr *topology.PCIAddr, node *int) *topology.CPUSet {
	// nvidia-smi's affinity may differ from the kernel's. A user that pins processes by nvidia-smi should see its
	// value.
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

// vfText returns the number of virtual functions of a NIC and its maximum, such as "4 of 16". It returns none if the
// NIC does not offer SR-IOV.
func (v *view) vfText(n *topology.NIC, d *topology.PCIDevice) string {
	now := 0
	if n.Address != nil {
		now = v.vfs[*n.Address]
	}
	s := n.SRIOV
	// Sources record SR-IOV at the NIC or at its function; lspci only knows the function.
	if s == nil && d != nil {
		s = d.SRIOV
	}
	switch {
	case s == nil && now == 0:
		return none
	case s == nil:
		return strconv.Itoa(now)
	}
	// Some sources list virtual functions and others only count them, so the highest number is right.
	now = max(now, len(s.VFs))
	if s.Enabled != nil {
		now = max(now, *s.Enabled)
	}
	if s.Total == nil {
		return strconv.Itoa(now)
	}
	return fmt.Sprintf("%d of %d", now, *s.Total)
}

// subjects returns the subjects of a finding in the form used for lookups: an address as in sysfs, "node 1", or a
// name.
func subjects(f finding.Finding) []string {
	parts := strings.Split(f.Subject, ",")
	for i, s := range parts {
		s = strings.TrimSpace(s)
		// Some sources omit the domain or use upper-case letters.
		if a, err := topology.ParsePCIAddr(s); err == nil {
			s = a.String()
		}
		parts[i] = s
	}
	return parts
}

// A findingGroup holds findings that differ only in their subject and evidence, so one line can describe the fault
// and the fix.
type findingGroup struct {
	finding.Finding // the first one
	Subjects        []string
	Evidences       []string // in the order of Subjects
}

// grouped joins findings that differ only in subject and evidence, the worst first, then in order of first
// appearance.
func grouped(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		f.Subject, f.Evidence = "", ""
		return f
	})
}

// families joins findings of one kind, even if their fixes differ.
func families(all []finding.Finding) []findingGroup {
	return groupedBy(all, func(f finding.Finding) finding.Finding {
		return finding.Finding{ID: f.ID, Title: f.Title, Severity: f.Severity}
	})
}

// groupedBy joins findings with equal keys. key returns a finding without the fields that may differ.
func groupedBy(all []finding.Finding, key func(finding.Finding) finding.Finding) []findingGroup {
	var groups group.List[finding.Finding, findingGroup]
	for _, f := range all {
		g := groups.At(key(f), findingGroup{Finding: f})
		g.Subjects, g.Evidences = append(g.Subjects, f.Subject), append(g.Evidences, f.Evidence)
	}
	out := groups.All
	// The sort is stable, so findings of one severity stay in the order of the checks.
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
