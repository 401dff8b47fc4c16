package hwlocxml

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// meansLatency is from hwloc/distances.h.
const meansLatency = 1 << 2

// localDistance is a node's distance to itself in a SLIT (ACPI); others are not smaller.
const localDistance = 10

// A matrix may be the machine's SLIT.
type matrix struct {
	ids    []int // nodes of rows and columns
	values []int // by rows
	rank   int   // lower is likelier the SLIT
}

func (p *parser) readDistances() {
	var found []matrix
	if p.version == 1 {
		found = p.oldMatrices()
	} else {
		found = p.matrices()
	}
	slices.SortStableFunc(found, func(a, b matrix) int { return cmp.Compare(a.rank, b.rank) })
	for _, m := range found {
		if m.isSLIT() && p.setDistances(m) {
			return
		}
	}
}

// isSLIT is needed because users may add matrices of other measurements.
func (m matrix) isSLIT() bool {
	n := len(m.ids)
	for i, v := range m.values {
		if v < localDistance || i%(n+1) == 0 && v != localDistance {
			return false
		}
	}
	return true
}

// setDistances returns false if m lacks a node.
func (p *parser) setDistances(m matrix) bool {
	at := make([]int, len(p.h.NUMANodes))
	for i := range p.h.NUMANodes {
		if at[i] = slices.Index(m.ids, p.h.NUMANodes[i].ID); at[i] < 0 {
			return false
		}
	}
	for i := range p.h.NUMANodes {
		row := make([]int, len(at))
		for j := range row {
			row[j] = m.values[at[i]*len(m.ids)+at[j]]
		}
		p.h.NUMANodes[i].Distances = row
	}
	return true
}

// matrices reads distances2 of versions 2 and 3. The SLIT is named NUMALatency since hwloc 2.1, and has no name before.
func (p *parser) matrices() []matrix {
	var out []matrix
	for e := range p.top.All("distances2") {
		if e.Attr("type") != "NUMANode" {
			continue
		}
		name, named := e.Lookup("name")
		if kind, _ := p.number(e, "kind"); kind&meansLatency == 0 || named && name != "NUMALatency" {
			continue
		}
		words, values, ok := p.matrix(e)
		if !ok {
			return nil
		}
		m := matrix{ids: make([]int, len(words)), values: make([]int, len(values))}
		if !named {
			m.rank = 1
		}
		for i, w := range words {
			m.ids[i] = p.nodeNumber(e, w)
		}
		for i, v := range values {
			m.values[i] = int(min(v, math.MaxInt32))
		}
		out = append(out, m)
	}
	return out
}

// nodeNumber returns -1 if the node was filtered out.
func (p *parser) nodeNumber(e *element, word string) int {
	if e.Attr("indexing") != "gp" {
		v, err := strconv.ParseUint(word, 10, 31)
		if err != nil {
			p.fail(e, "index %q is not a number", where.Clip(word))
		}
		return int(v)
	}
	at := p.object(word)
	if i := slices.IndexFunc(p.nodes, func(n *node) bool { return n.e == at }); i >= 0 {
		return p.nodes[i].id
	}
	return -1
}

// object returns the object of an index, or nil. The index is gp_index, or id since version 3.
func (p *parser) object(index string) *element {
	if p.byIndex == nil {
		p.byIndex = map[string]*element{}
		for e := range objectsOf(p.machine) {
			if i := cmp.Or(e.Attr("gp_index"), strings.TrimPrefix(e.Attr("id"), "obj")); i != "" {
				p.byIndex[i] = e
			}
		}
	}
	return p.byIndex[index]
}

// The number of values is the square of maxObjects.
const maxObjects = 1 << 12

// matrix joins elements of ten indexes or values.
func (p *parser) matrix(e *element) (indexes []string, values []uint64, ok bool) {
	n, ok := p.number(e, "nbobjs")
	if !ok || n > maxObjects {
		p.fail(e, "nbobjs is missing or more than %d", maxObjects)
		return nil, nil, false
	}
	for k := range e.All("indexes") {
		indexes = append(indexes, strings.Fields(string(k.Text))...)
	}
	for k := range e.All("u64values") {
		for word := range strings.FieldsSeq(string(k.Text)) {
			v, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				p.fail(k, "value %q is not a number", where.Clip(word))
				return nil, nil, false
			}
			values = append(values, v)
		}
	}
	if len(indexes) != int(n) || len(values) != int(n*n) {
		p.fail(e, "%d indexes and %d values; %d objects have %d and %d", len(indexes), len(values), n, n, n*n)
		return nil, nil, false
	}
	return indexes, values, true
}

// oldMatrices reads distances of version 1: floats to multiply with a base, for all objects of a level, in the order of
// the file. The level counts from the object with the matrix, and does not determine the type.
//
// hwloc 1 uses the base 10 and counts levels of the tree. When hwloc 2 writes version 1, it uses the base 1 and counts
// the nodes one level lower.
func (p *parser) oldMatrices() []matrix {
	if p.nodes[0].built {
		return nil
	}
	ids := lists.Map(p.nodes, func(node *node) int { return node.id })
	level := p.nodeLevel(p.machine, 0)
	var out []matrix
	for e := range p.machine.All("distances") {
		base := p.float(e, "latency_base")
		if n, _ := p.number(e, "nbobjs"); n != uint64(len(ids)) {
			continue // for cores, packages or caches
		}
		m := matrix{ids: ids, rank: 2}
		switch depth, _ := p.number(e, "relative_depth"); {
		case base == localDistance && depth == level, base == 1 && depth == level+1:
			m.rank = 0
		case depth == level:
			m.rank = 1
		}
		for k := range e.All("latency") {
			m.values = append(m.values, int(math.Round(min(p.float(k, "value")*base, math.MaxInt32))))
		}
		if n := len(ids); len(m.values) != n*n {
			p.fail(e, "%d values; %d objects have %d", len(m.values), n, n*n)
			return nil
		}
		out = append(out, m)
	}
	return out
}

// nodeLevel returns the depth of the deepest node.
func (p *parser) nodeLevel(e *element, level uint64) uint64 {
	deepest := uint64(0)
	if kindOf(e) == "NUMANode" {
		deepest = level
	}
	for k := range e.All("object") {
		deepest = max(deepest, p.nodeLevel(k, level+1))
	}
	return deepest
}

// rateOfV1 and the others are in 10^6 bytes per second for one NVLink, one way, as in hwloc's NVML backend: 20000 for
// NVLink 1 and 25000 for NVLink 2 to 4. A matrix has the sum over the links, which determines version and number: only
// the P100 has NVLink 1, with 4 links, and no multiple of 20000 up to 80000 is also a multiple of 25000.
const (
	rateOfV1   = 20000
	linksOfV1  = 4
	rateOfV2   = 25000
	maxNVLinks = 36
)

// nvLinks returns 0 if a rate is ambiguous.
func nvLinks(rate uint64) int {
	switch {
	case rate == 0:
		return 0
	case rate%rateOfV1 == 0 && rate <= rateOfV1*linksOfV1:
		return int(rate / rateOfV1)
	case rate%rateOfV2 == 0 && rate <= rateOfV2*maxNVLinks:
		return int(rate / rateOfV2)
	}
	return 0
}

// readNVLinks reads NVLinkBandwidth: the direct links between GPUs, and the total of each GPU, including processors and
// NVSwitches. The matrix of XGMI hops has no links.
func (p *parser) readNVLinks() {
	for _, e := range p.top.Kids {
		if e.Attr("name") != "NVLinkBandwidth" || e.Name != "distances2" && e.Name != "distances2hetero" {
			continue
		}
		indexes, rates, ok := p.matrix(e)
		if !ok {
			return
		}
		at := make([]*topology.PCIAddr, len(indexes))
		for i, index := range indexes {
			// An index of distances2hetero has a prefix: "OSDev:332".
			if _, number, ok := strings.Cut(index, ":"); ok {
				index = number
			}
			at[i] = p.gpuAt(index)
		}
		for i, a := range at {
			if a != nil {
				p.addNVLinks(*a, at[i+1:], rates[i*len(at):(i+1)*len(at)], i)
			}
		}
	}
	slices.SortFunc(p.h.Reported, func(a, b topology.Path) int {
		return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
	})
	p.h.Reported = slices.Compact(p.h.Reported)
}

// gpuAt returns a matrix index's address, or nil if it is not below a GPU's function.
func (p *parser) gpuAt(index string) *topology.PCIAddr {
	e := p.object(index)
	if e == nil || kindOf(e) != "OSDev" {
		return nil
	}
	return p.functions[e]
}

// addNVLinks adds row i, of the GPU at a; peers come after it.
func (p *parser) addNVLinks(a topology.PCIAddr, peers []*topology.PCIAddr, row []uint64, i int) {
	total, clear := 0, true
	for j, rate := range row {
		if j == i || rate == 0 {
			continue // an artificial high value
		}
		links := nvLinks(rate)
		total, clear = total+links, clear && links > 0
		if j > i && peers[j-i-1] != nil {
			b := *peers[j-i-1]
			first, second := a, b
			if b.Compare(a) < 0 {
				first, second = b, a
			}
			p.h.Reported = append(p.h.Reported, topology.Path{A: first.String(), B: second.String(),
				Class: topology.PathNVLink, Links: links})
		}
	}
	if total == 0 || !clear {
		return
	}
	for k := range p.h.GPUs {
		if g := &p.h.GPUs[k]; g.Address != nil && *g.Address == a {
			g.NVLinks = &total
		}
	}
}
