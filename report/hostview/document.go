package hostview

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
	"github.com/rackless/rackless/report/show"
)

// A Document is a Host with the conclusions drawn from it, in the form for programs: schema "rackless/host/v1",
// described by docs/host.schema.json.
//
// The lists named here are always present, as [] if empty. All other keys come from topology.Host and are absent if
// unknown. A field here hides the field with the same key in Host.
type Document struct {
	Schema     string              `json:"schema"`          // topology.Schema
	Provenance topology.Provenance `json:"provenance"`      // source of the machine's description
	System     topology.System     `json:"system,omitzero"` // the machine as a whole

	Packages  []topology.Package   `json:"packages"`   // by id
	NUMANodes []topology.NUMANode  `json:"numa_nodes"` // by id
	Cores     []topology.Core      `json:"cores"`      // by id
	PCI       []topology.PCIDevice `json:"pci"`        // PCI functions and bridges, by address
	GPUs      []topology.GPU       `json:"gpus"`       // by address, else in source order
	// NICs, including virtual functions, by address, else in source order.
	NICs []topology.NIC `json:"nics"`

	*topology.Host

	// Reported are the paths that a tool reported, in the form of Paths.
	Reported []Path `json:"reported_paths,omitempty"`
	// Paths are the known paths between all GPUs and NICs, each pair once. Virtual functions are omitted, because
	// their paths are the same as their physical function's.
	Paths []Path `json:"paths"`
	// NodePaths are the paths from GPUs and NICs to the memory of NUMA nodes.
	NodePaths []topology.NodePath `json:"node_paths,omitempty"`
	// Findings are the faults and notable facts of the machine, worst first.
	Findings []finding.Finding `json:"findings"`

	// Placement is drawn into the picture if set.
	Placement *Placement `json:"-"`
}

// A Path is the connection between two devices.
type Path struct {
	A     string `json:"a"`     // address of a GPU or NIC, or its name without an address
	B     string `json:"b"`     //
	Class string `json:"class"` // a cell of the matrix: "NV18", "PIX"
	// PCIe is the path over PCI Express if Class is NVLink and that path is known.
	PCIe string `json:"pcie,omitempty"`
	// Expected is the usual rate of such a path over its narrowest link. It is not a measurement of this machine.
	Expected *topology.Expectation `json:"expected,omitempty"`
}

// NewDocument returns the document of h, which it shares.
func NewDocument(h *topology.Host, findings []finding.Finding) *Document {
	d := &Document{
		Schema: topology.Schema, Provenance: h.Provenance, System: h.System,
		Packages: present(h.Packages), NUMANodes: present(h.NUMANodes), Cores: present(h.Cores),
		PCI: present(h.PCI), GPUs: present(h.GPUs), NICs: present(h.NICs),
		Host: h, Paths: []Path{}, Findings: present(findings),
	}
	d.Reported = append(d.Reported, lists.Map(h.Reported, newPath)...)
	t := topology.NewTree(h)
	// Paths name both ends by ID only.
	gpus := make(map[string]bool, len(h.GPUs))
	for i := range h.GPUs {
		gpus[h.GPUs[i].ID()] = h.GPUs[i].Kind != topology.GPUDisplay
	}
	d.NodePaths = t.NodePaths()
	for _, p := range t.Paths() {
		path := newPath(p)
		// Published figures are for GPUs.
		if gpus[p.A] || gpus[p.B] {
			if e, ok := t.Expect(p); ok {
				path.Expected = &e
			}
		}
		d.Paths = append(d.Paths, path)
	}
	return d
}

// present makes JSON have [] and not null.
func present[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func newPath(p topology.Path) Path {
	return Path{A: p.A, B: p.B, Class: p.Label(), PCIe: p.PCIe.String()}
}

// WriteJSON writes one JSON value with a final newline, indented or on one line.
func (d *Document) WriteJSON(w io.Writer, indent bool) error {
	write := show.EncodeNext
	if indent {
		write = show.Encode
	}
	return d.written(write(w, show.JSON, d))
}

// WriteYAML writes the keys, order and values of the JSON form.
func (d *Document) WriteYAML(w io.Writer) error { return d.written(show.Encode(w, show.YAML, d)) }

func (d *Document) written(err error) error {
	return show.Wrapf(err, "write host %q", d.Provenance.Name)
}

// Write writes the host in a form: json, yaml, matrix, svg, html, one of EnvForms, or else tables. many makes JSON one
// line.
func (d *Document) Write(w io.Writer, form string, many bool, o TableOptions) error {
	switch form {
	case show.JSON:
		return d.WriteJSON(w, !many)
	case show.YAML:
		return d.WriteYAML(w)
	case "matrix":
		return d.WriteMatrix(w)
	case "svg":
		return d.WriteSVG(w)
	case "html":
		return d.WritePage(w)
	case NCCLEnv, UCXEnv, OpenMPIEnv, MVAPICHEnv:
		return d.WriteEnv(w, form)
	}
	return d.WriteTable(w, o)
}

// A Diff is the difference between two hosts.
type Diff struct {
	A           string               `json:"a"` // source of host A
	B           string               `json:"b"`
	Differences []compare.Difference `json:"differences"`
}

var titles = map[string]string{"cpus": "CPUs", "numa_nodes": "NUMA nodes", "order": "Order of devices", "gpus": "GPUs",
	"nics": "NICs and RDMA", "pci": "PCI functions"}

// WriteTable writes the differences by part, with the devices that differ.
func (d Diff) WriteTable(w io.Writer, o TableOptions) error {
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color)}
	t.Wrap("", "  ", fmt.Sprintf("A is %s, B is %s", d.A, d.B))
	if len(d.Differences) == 0 {
		fmt.Fprintln(t, "No differences in what both tell")
	}
	part := ""
	for _, x := range d.Differences {
		if x.Part != part {
			part = x.Part
			t.Title(partTitle(part))
		}
		t.Wrap("  ", "    ", x.Text())
		if of := thingsOf(x); of != "" {
			t.Wrap("    ", "    ", of, text.Faint)
		}
	}
	return t.Flush()
}

// partTitle allows for parts of a later version.
func partTitle(part string) string {
	return cmp.Or(titles[part], strings.ToUpper(part[:1])+strings.ReplaceAll(part[1:], "_", " "))
}

// thingsOf names at most four; the JSON has more.
func thingsOf(d compare.Difference) string {
	if d.Count <= 1 && len(d.Things) == 0 {
		return ""
	}
	of := strings.Join(d.Things[:min(len(d.Things), 4)], ", ")
	if more := d.Count - min(len(d.Things), 4); more > 0 {
		of += " and " + words.Count(more, "other")
	}
	return of
}
