package hostview

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
	"github.com/rackless/rackless/report/show"
)

// A Group is an overview of many hosts, and of the ones that differ.
type Group struct {
	Hosts    []Member       `json:"hosts"`
	Findings []GroupFinding `json:"findings"` // worst first
	// Typical shares its facts with the most other hosts, or is "".
	Typical  string         `json:"typical,omitempty"`
	Outliers []GroupOutlier `json:"outliers"` // rarest first
}

// A Member is a host of a group.
type Member struct {
	Name        string  `json:"name"`
	Model       string  `json:"model"` // else of its CPUs
	CPUs        int     `json:"cpus"`  // online CPUs
	NUMANodes   int     `json:"numa_nodes"`
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	GPUs        int     `json:"gpus"`
	NICs        int     `json:"nics"`
	Kernel      string  `json:"kernel,omitempty"`
	Findings    int     `json:"findings"`
	Worst       string  `json:"worst,omitempty"` // worst severity
}

// A GroupFinding is a finding of several hosts.
type GroupFinding struct {
	finding.Finding          // of the first of Hosts
	Hosts           []string `json:"hosts"`
}

// A GroupOutlier is a difference from the typical host: A is its value, B that of Hosts.
type GroupOutlier struct {
	compare.Difference
	Hosts []string `json:"hosts"`
}

// NewGroup returns the overview of docs, with names in the same order. A common directory is removed from them.
func NewGroup(names []string, docs []*Document) Group {
	names = short(names)
	g := Group{Hosts: []Member{}, Findings: []GroupFinding{}, Outliers: []GroupOutlier{}}
	hosts := make([]*topology.Host, len(docs))
	for i, d := range docs {
		hosts[i] = d.Host
		g.Hosts = append(g.Hosts, newMember(names[i], d))
		g.add(names[i], d.Findings)
	}
	slices.SortStableFunc(g.Findings, func(a, b GroupFinding) int {
		return cmp.Or(cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(len(a.Hosts), len(b.Hosts)))
	})
	if len(hosts) < 2 {
		return g
	}
	typical, outliers := compare.Outliers(hosts)
	g.Typical = names[typical]
	for _, o := range outliers {
		x := GroupOutlier{Difference: o.Difference}
		x.Hosts = append(x.Hosts, lists.Map(o.Hosts, func(h int) string { return names[h] })...)
		g.Outliers = append(g.Outliers, x)
	}
	return g
}

func newMember(name string, d *Document) Member {
	model := cmp.Or(d.System.CPUModel, "unknown")
	if d.System.Vendor+d.System.Product != "" {
		model = (&view{Document: d}).heading()
	}
	m := Member{Name: name, Model: model, CPUs: d.CPUs.Online.Len(), NUMANodes: len(d.NUMANodes),
		MemoryBytes: d.Memory.TotalBytes, NICs: len(physicalNICs(d.NICs)), Kernel: d.Kernel.Release,
		Findings: len(d.Findings)}
	m.GPUs = lists.Count(d.GPUs, func(g topology.GPU) bool { return g.Kind != topology.GPUDisplay })
	if len(d.Findings) > 0 {
		m.Worst = string(finding.Worst(d.Findings))
	}
	return m
}

func physicalNICs(all []topology.NIC) []topology.NIC {
	return slices.DeleteFunc(slices.Clone(all), func(n topology.NIC) bool { return n.PF != nil })
}

func (g *Group) add(host string, findings []finding.Finding) {
	for _, f := range findings {
		i := slices.IndexFunc(g.Findings, func(x GroupFinding) bool {
			return x.ID == f.ID && x.Severity == f.Severity && x.Subject == f.Subject && x.Title == f.Title
		})
		if i < 0 {
			i = len(g.Findings)
			g.Findings = append(g.Findings, GroupFinding{Finding: f})
		}
		g.Findings[i].Hosts = append(g.Findings[i].Hosts, host)
	}
}

// WriteTable writes hosts, findings, and differences from the typical host.
func (g Group) WriteTable(w io.Writer, o TableOptions) error {
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color)}
	grid := show.NewGrid("host", "machine", "cpus>", "numa>", "memory>", "gpus>", "nics>", "kernel", "findings")
	narrow := show.NewGrid("host", "cpus>", "numa>", "memory>", "gpus>", "nics>", "findings")
	for _, m := range g.Hosts {
		memory := ""
		if m.MemoryBytes != nil {
			memory = words.Size(*m.MemoryBytes)
		}
		found := "none"
		if m.Findings > 0 {
			found = fmt.Sprintf("%d, worst %s", m.Findings, m.Worst)
		}
		cpus, nodes, gpus, nics := strconv.Itoa(m.CPUs), strconv.Itoa(m.NUMANodes), strconv.Itoa(m.GPUs),
			strconv.Itoa(m.NICs)
		grid.Add(m.Name, m.Model, cpus, nodes, memory, gpus, nics, m.Kernel, found)
		narrow.Add(m.Name, cpus, nodes, memory, gpus, nics, found)
	}
	wide := 0
	for line := range strings.Lines(grid.String()) {
		wide = max(wide, text.StringWidth(strings.TrimRight(line, " \n")))
	}
	if o.Width > 0 && wide > o.Width {
		fmt.Fprint(t, narrow.Fit(o.Width))
		g.writeMachines(t)
	} else {
		fmt.Fprint(t, grid)
	}
	if len(g.Findings) > 0 {
		t.Title("Findings")
	}
	for _, f := range g.Findings {
		t.Wrap("  ", "    ", fmt.Sprintf("%s %s: %s (%s)", f.Severity, f.ID, f.Title, f.Subject))
		t.Wrap("    ", "    ", g.some(f.Hosts), text.Faint)
	}
	g.writeOutliers(t)
	return t.Flush()
}

// writeMachines lists models and kernels with their hosts, if the table has no room for them.
func (g Group) writeMachines(t *terminal) {
	var hosts group.By[string, string]
	for _, m := range g.Hosts {
		kernel := ""
		if m.Kernel != "" {
			kernel = ", kernel " + m.Kernel
		}
		hosts.Add(m.Model+kernel, m.Name)
	}
	t.Title("Machines")
	for _, model := range hosts.Keys {
		t.Wrap("  ", "    ", model)
		t.Wrap("    ", "    ", g.some(hosts.Of(model)), text.Faint)
	}
}

// writeOutliers puts everything about one odd machine in one place.
func (g Group) writeOutliers(t *terminal) {
	if g.Typical == "" {
		return
	}
	if len(g.Outliers) == 0 {
		t.Title(fmt.Sprintf("All %d hosts are alike in what they tell", len(g.Hosts)))
		return
	}
	t.Title(fmt.Sprintf("What differs from %s, which is as most are", g.Typical))
	var byHosts group.By[string, GroupOutlier]
	for _, o := range g.Outliers {
		byHosts.Add(g.some(o.Hosts), o)
	}
	for _, hosts := range byHosts.Keys {
		t.Wrap("  ", "    ", hosts)
		outliers := byHosts.Of(hosts)
		for _, o := range outliers[:min(len(outliers), maxOutliers)] {
			t.Wrap("    ", "      ", partTitle(o.Part)+": "+o.Say("elsewhere", "here"))
			if of := thingsOf(o.Difference); of != "" {
				t.Wrap("      ", "      ", of, text.Faint)
			}
		}
		if more := len(outliers) - maxOutliers; more > 0 {
			t.Wrap("    ", "      ", "and "+words.Count(more, "other difference")+", which -o json has")
		}
	}
}

// A different kind of machine would have hundreds of differences.
const (
	maxNamed    = 8
	maxOutliers = 12
)

func (g Group) some(hosts []string) string {
	names := words.List(hosts)
	if len(hosts) > maxNamed {
		names = words.List(append(slices.Clone(hosts[:maxNamed]), words.Count(len(hosts)-maxNamed, "other")))
	}
	return fmt.Sprintf("%s (%d of %d)", names, len(hosts), len(g.Hosts))
}

func short(names []string) []string {
	out := slices.Clone(names)
	for i, n := range names {
		if filepath.Dir(n) != filepath.Dir(names[0]) || strings.Contains(n, "://") {
			return names
		}
		out[i] = filepath.Base(n)
	}
	return out
}
