package smi

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

var (
	sniffHeader = lazyregexp.New(`GPU[0-9]+[^\n]*CPU\s+Affinity`)
	sniffRow    = lazyregexp.New(`(?m)^\s*(?:GPU|NIC)[0-9]+\s+(?:X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)\s`)
)

// Sniff reports whether head, the start of a text, looks like nvidia-smi topo -m.
func Sniff(head []byte) bool {
	s := ansi().ReplaceAllString(string(head), "")
	return sniffHeader().MatchString(s) || sniffRow().MatchString(s) || strings.Contains(s, "nvidia-smi topo -m")
}

// Parse reads the matrix in b into a Host, with NUMA nodes as far as the affinity shows them. name appears in messages
// and the provenance; the error is an *Error.
func Parse(b []byte, name string) (*topology.Host, error) {
	if bytes.Contains(b, []byte("= Status Ok")) && !bytes.Contains(b, []byte("Affinity")) {
		return nil, &Error{File: name, Why: "this is of nvidia-smi topo -p2p: it says which GPUs can reach each " +
			"other, and not over which paths; nvidia-smi topo -m does" + prefixed("; ", unreachable(string(b)))}
	}
	m, err := ParseMatrix(b)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.File = name
		}
		return nil, err
	}
	return where.Finish(m.host(name), nil, name)
}

func (m *Matrix) host(name string) *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTopo, Name: name, Tool: "nvidia-smi"}}
	if m.Version != "" {
		h.Provenance.Tool = "nvidia-smi " + m.Version
	}
	notes := where.Notes{Host: h, File: cmp.Or(name, "nvidia-smi topo -m")}
	for _, n := range m.Notes {
		notes.Note(n.Line, "%s", n.Why)
	}
	nodes := &nodes{map[int]topology.CPUSet{}, map[int]bool{}, map[int]bool{}}
	for i := range m.Devices {
		d := &m.Devices[i]
		if !d.IsGPU() {
			n := topology.NIC{Name: d.Name, NUMANode: m.nodeOfNIC(i)}
			if d.RDMA != "" {
				n.RDMA = []string{d.RDMA}
			}
			h.NICs = append(h.NICs, n)
			continue
		}
		g := topology.GPU{
			Name: d.Name, Index: d.Index, Kind: topology.GPUDiscrete, Vendor: "NVIDIA Corporation",
			NUMANode: d.numaNode(), MemoryNode: number(d.GPUNUMAID), NVLinks: m.nvlinks(i),
		}
		if d.CPUAffinity != "" && d.CPUAffinity != "N/A" {
			cpus, whole, err := affinity(d.CPUAffinity)
			switch {
			case err != nil:
				notes.Note(d.Line, "%s: CPU affinity: %v", d.Name, err)
			case !whole:
				notes.Note(d.Line, "%s: CPU affinity %q is cut off: nvidia-smi prints the start of a long list",
					d.Name, d.CPUAffinity)
			case g.NUMANode != nil:
				nodes.add(*g.NUMANode, cpus)
			}
			if err == nil {
				g.CPUAffinity = &cpus
			}
		}
		if g.MemoryNode != nil {
			nodes.gpu[*g.MemoryNode] = true
		}
		h.GPUs = append(h.GPUs, g)
	}
	h.NUMANodes = nodes.list()
	for i, row := range m.Cells {
		for j := i + 1; j < len(row); j++ {
			h.Reported = append(h.Reported, topology.Path{
				A: m.Devices[i].Name, B: m.Devices[j].Name, Class: row[j].Class, Links: row[j].Links,
			})
		}
	}
	return h
}

// maxItems is the number of items that nvidia-smi prints of a CPU list: "0,2,4,6,8,10" of "0,2,4,...,78".
const maxItems = 6

// affinity parses a CPU list; whole is false if it may be truncated.
func affinity(s string) (cpus topology.CPUSet, whole bool, err error) {
	trimmed := strings.TrimRight(s, ",-")
	cpus, err = topology.ParseCPUSet(trimmed)
	return cpus, trimmed == s && strings.Count(s, ",")+1 < maxItems, err
}

type nodes struct {
	cpus map[int]topology.CPUSet
	odd  map[int]bool // nodes with contradictory affinities
	gpu  map[int]bool // nodes of GPU memory
}

func (n *nodes) add(node int, cpus topology.CPUSet) {
	if have, ok := n.cpus[node]; ok && !have.Equal(cpus) {
		n.odd[node] = true
	}
	n.cpus[node] = cpus
}

// list returns the nodes by number. It omits a node with contradictory affinities or with CPUs of another node.
func (n *nodes) list() []topology.NUMANode {
	for a, cpus := range n.cpus {
		for b, others := range n.cpus {
			if a != b && cpus.Overlaps(others) {
				n.odd[a] = true
			}
		}
	}
	var out []topology.NUMANode
	for _, id := range lists.Keys(n.cpus) {
		if !n.odd[id] && !n.gpu[id] {
			out = append(out, topology.NUMANode{ID: id, CPUs: n.cpus[id]})
		}
	}
	for _, id := range lists.Keys(n.gpu) {
		out = append(out, topology.NUMANode{ID: id, Kind: "gpu"})
	}
	slices.SortFunc(out, func(a, b topology.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// nodeOfNIC returns the NUMA node of the GPUs at NODE or nearer, or nil if these are on several nodes, as in some
// virtual machines.
func (m *Matrix) nodeOfNIC(nic int) *int {
	var node *int
	for i := range m.Devices {
		d := &m.Devices[i]
		if !d.IsGPU() {
			continue
		}
		switch m.Cells[nic][i].Class {
		case topology.PathPIX, topology.PathPXB, topology.PathPHB, topology.PathNODE:
		default:
			continue
		}
		n := d.numaNode()
		if n == nil || node != nil && *node != *n {
			return nil
		}
		node = n
	}
	return node
}

var gpuNodes = lazyregexp.New(`^([0-9]+),[0-9]+-[0-9]+$`)

// numaNode returns the NUMA node of a GPU. On GB200 the affinity also lists the nodes of GPU memory ("0,2-17"), after
// the nodes with CPUs.
func (d *Device) numaNode() *int {
	if m := gpuNodes().FindStringSubmatch(d.NUMAAffinity); m != nil {
		return number(m[1])
	}
	return number(d.NUMAAffinity)
}

// maxLinks is a GPU's largest number of NVLinks (Hopper and Blackwell; Volta has 6, Ampere 12).
const maxLinks = 18

// nvlinks returns the number of NVLinks that a GPU uses, or nil if the matrix does not determine it.
//
// NV# counts the links to one peer. Behind an NVSwitch all links lead to every peer, so each shows the same number.
// Equal numbers are a switch's if their sum exceeds a GPU's maximum. If both are possible, the number decides: boards
// wire at most 4 links to each of several peers, except that 6 occurs both on the four-GPU board of H100 and for V100
// behind a switch.
func (m *Matrix) nvlinks(gpu int) *int {
	peers, sum, low, high := 0, 0, 0, 0
	for j, c := range m.Cells[gpu] {
		if !m.Devices[j].IsGPU() {
			continue
		}
		if c.Class == topology.PathUnknown {
			return nil
		}
		if c.Class != topology.PathNVLink {
			continue
		}
		if peers == 0 || c.Links < low {
			low = c.Links
		}
		peers++
		sum += c.Links
		high = max(high, c.Links)
	}
	switch {
	case peers == 0:
		return nil
	case low != high && sum > maxLinks, low == 6 && peers > 1 && sum <= maxLinks:
		return nil
	case low != high, peers == 1, sum <= maxLinks && low <= 4:
		return &sum
	default:
		return &high
	}
}
