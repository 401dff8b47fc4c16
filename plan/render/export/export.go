// Package export turns a plan into the files of other systems. It writes nothing, and the same input gives the same
// bytes. docs/export.md lists the properties that a system cannot express, and the checks of each format.
package export

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/goccy/go-yaml"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

// A Format is a system for which labs can be exported.
type Format struct {
	Name  string // as on the command line
	Files string
	// Unplaced needs only the lab file. The input then has neither plan nor host.
	Unplaced bool
	Render   func(render.Input) ([]render.Artifact, error)
}

// Formats are in the order of the documents.
func Formats() []Format {
	return []Format{
		{Name: "kubevirt", Files: "VirtualMachines, networks and node settings for KubeVirt", Render: KubeVirt},
		{Name: "nova", Files: "nova.conf and a script of flavors, ports and servers for OpenStack", Render: Nova},
		{Name: "proxmox", Files: "a configuration of each machine for Proxmox VE (untested)", Render: Proxmox},
		{Name: "slurm", Files: "slurm.conf, gres.conf, topology.conf and cgroup.conf for Slurm on the nodes",
			Render: Slurm},
		{Name: "openmpi", Files: "a hostfile and a rank file for Open MPI on the nodes", Render: OpenMPI},
		{Name: "ansible", Files: "an inventory for Ansible", Unplaced: true, Render: Ansible},
	}
}

// Find looks up a name.
func Find(name string) (Format, bool) {
	for _, f := range Formats() {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Stream concatenates files, each below a comment with its name. YAML files give a stream of documents.
func Stream(files []render.Artifact) []byte {
	var b bytes.Buffer
	for i, f := range files {
		if i > 0 {
			b.WriteByte('\n')
		}
		if len(files) > 1 {
			fmt.Fprintf(&b, "# ==> %s <==\n", f.Path)
		}
		b.Write(f.Data)
	}
	return b.Bytes()
}

func check(in *render.Input) error {
	if in.Plan == nil || in.Lab == nil {
		return errors.New("no plan or no lab")
	}
	in.Host = cmp.Or(in.Host, &topology.Host{})
	for i := range in.Plan.Nodes {
		n := &in.Plan.Nodes[i]
		if len(n.VCPUs) == 0 || n.Threads < 1 || len(n.Cells) == 0 {
			return fmt.Errorf("node %q of the plan has no vcpus, threads or cells: the plan was edited; make it "+
				"again", n.Name)
		}
		for _, c := range n.Cards {
			if _, err := topology.ParsePCIAddr(c.ID); err != nil {
				return fmt.Errorf("device %q of node %q has no PCI address: the host was read from a text that only "+
					"names devices (%s); write a snapshot there (rackless host snapshot --out FILE), and give it to "+
					"--host", c.ID, n.Name, cmp.Or(in.Plan.Host.Provenance.Kind, "a matrix"))
			}
		}
	}
	return nil
}

type share struct {
	node  int   // of the host
	vcpus []int // ascending
	bytes uint64
}

// shares are in the order of virtual CPUs, for systems that show guests all NUMA nodes of the host.
func shares(h *topology.Host, n *plan.Node) []share {
	var all []share
	at := func(node int) *share {
		for i := range all {
			if all[i].node == node {
				return &all[i]
			}
		}
		all = append(all, share{node: node})
		return &all[len(all)-1]
	}
	for _, c := range n.Cells {
		for v := c.FirstVCPU; v < c.FirstVCPU+c.VCPUs && v < len(n.VCPUs); v++ {
			node := 0
			if len(c.NUMANodes) > 0 {
				node = c.NUMANodes[0]
			}
			if core := h.Core(n.VCPUs[v]); core != nil && core.NUMANode != nil {
				node = *core.NUMANode
			}
			s := at(node)
			s.vcpus = append(s.vcpus, v)
		}
	}
	for _, m := range n.Memory {
		at(m.NUMANode).bytes += m.Bytes
	}
	return all
}

// withCPUs adds the memory of shares without virtual CPUs to the first, with a note.
func withCPUs(all []share) (kept []share, note string) {
	kept = append(kept, lists.Filter(all, func(s share) bool { return len(s.vcpus) > 0 })...)
	for _, s := range all {
		if len(s.vcpus) == 0 && len(kept) > 0 {
			kept[0].bytes += s.bytes
			note = "a NUMA node of memory alone cannot be said: its memory is on the first node here"
		}
	}
	return kept, note
}

func pageBytes(n *plan.Node) uint64 {
	for _, m := range n.Memory {
		if m.PageBytes > 0 {
			return m.PageBytes
		}
	}
	return 0
}

type ids struct{ vendor, device string }

// idsOf fails for a host from a dump without the numbers by which other systems select a device.
func idsOf(h *topology.Host, id string) (ids, error) {
	a, err := topology.ParsePCIAddr(id)
	if err != nil {
		return ids{}, err
	}
	d := h.Device(a)
	if d == nil || d.Vendor == nil || d.Device == nil {
		return ids{}, fmt.Errorf("the host's source does not tell vendor and device number of %s: take a snapshot "+
			"of the machine (rackless host snapshot) and plan again", id)
	}
	return ids{fmt.Sprintf("%04x", uint16(*d.Vendor)), fmt.Sprintf("%04x", uint16(*d.Device))}, nil
}

func whole(n *plan.Node) []plan.NodeDevice {
	return lists.Filter(n.Cards, func(c plan.NodeDevice) bool { return c.Kind != plan.KindVF })
}

// near reports whether all devices are on NUMA nodes of the CPUs, as far as the host tells.
func near(h *topology.Host, n *plan.Node) bool {
	cpus, _ := withCPUs(shares(h, n))
	for _, c := range n.Cards {
		found := c.NUMANode == nil
		for _, s := range cpus {
			found = found || s.node == *c.NUMANode
		}
		if !found {
			return false
		}
	}
	return true
}

func dns(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "-")) }

func unique(nodes []string, name func(string) string) error {
	first := map[string]string{}
	for _, n := range nodes {
		short := name(n)
		if other, ok := first[short]; ok {
			return fmt.Errorf("nodes %q and %q would both be named %q: rename one in the lab file", other, n, short)
		}
		first[short] = n
	}
	return nil
}

func planned(in render.Input) []string {
	return lists.Map(in.Plan.Nodes, func(n plan.Node) string { return n.Name })
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

func kibi(n uint64) string {
	if n%gib == 0 {
		return fmt.Sprintf("%dGi", n/gib)
	}
	return fmt.Sprintf("%dMi", n/mib)
}

const columns = 100

func comment(text string) string {
	var b strings.Builder
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > columns {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
	return b.String()
}

func head(in render.Input, what string) string { return made(in.Made) + comment(what) }

func made(by string) string { return comment(cmp.Or(by, "Made by rackless.")) }

var functions = template.FuncMap{"comment": comment, "made": made, "scalar": scalar, "indented": indented}

func filled(t *template.Template, name string, data any) (string, error) {
	var b strings.Builder
	err := t.ExecuteTemplate(&b, name+".tmpl", data)
	return b.String(), err
}

func scalar(text string) (string, error) {
	data, err := yaml.Marshal(text)
	return strings.TrimSpace(string(data)), err
}

func indented(by int, text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(text, "\n") + "\n") {
		if line != "\n" {
			b.WriteString(strings.Repeat(" ", by))
		}
		b.WriteString(line)
	}
	return b.String()
}

// text makes a world-readable artefact.
func text(path, data string) render.Artifact {
	return render.Artifact{Path: path, Mode: 0o644, Data: []byte(data)}
}
