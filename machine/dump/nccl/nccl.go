package nccl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/dump/xmltree"
	"github.com/rackless/rackless/machine/topology"
)

var sniffRoot = lazyregexp.New(`<(?:system\s+version\s*=|graphs\s)`)

// Sniff reports whether head, the start of a file, looks like a topology or a graph of NCCL. Parse refuses graphs.
func Sniff(head []byte) bool { return sniffRoot().Match(head) }

// Parse reads a topology. name appears in messages and the provenance; the error is an *Error.
func Parse(b []byte, name string) (*topology.Host, error) {
	h, err := parse(b, name)
	return where.Finish(h, err, name)
}

type parser struct {
	h     *topology.Host
	seen  map[topology.PCIAddr]int // line of each PCI function
	gpus  []gpu
	rccl  bool
	notes where.Notes
}

type gpu struct {
	address topology.PCIAddr
	links   []*element
}

func (p *parser) note(e *element, format string, args ...any) {
	p.notes.Note(e.Line, "<"+e.Name+"> "+format, args...)
}

func parse(b []byte, name string) (*topology.Host, error) {
	root, unknown, err := parseTree(b)
	if err != nil {
		return nil, err
	}
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceNCCL, Name: name}}
	p := &parser{h: h, seen: map[topology.PCIAddr]int{}, notes: where.Notes{Host: h, File: cmp.Or(name, "topology")}}
	for _, e := range unknown {
		p.notes.Note(e.Line, "<%s> is of no kind that is known here: such elements are not read", where.Clip(e.Name))
	}
	cpus := p.oneHost(root)
	if len(cpus) == 0 {
		return nil, where.At(root.Line, "no <cpu> in <system>: the topology is empty")
	}
	for i, cpu := range cpus {
		if err := p.cpu(cpu, i); err != nil {
			return nil, err
		}
	}
	if err := p.addLinks(); err != nil {
		return nil, err
	}
	slices.SortFunc(p.h.NUMANodes, func(a, b topology.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	p.h.Provenance.Tool = "NCCL"
	if p.rccl {
		p.h.Provenance.Tool = "RCCL"
	}
	return p.h, nil
}

// oneHost returns the cpu elements of the first machine. A dump of machines joined by NVLink has several host_hash.
func (p *parser) oneHost(root *element) []*element {
	var cpus []*element
	others := 0
	for _, e := range root.Kids {
		if len(cpus) > 0 {
			if e.Attr("host_hash") != cpus[0].Attr("host_hash") {
				if others++; others == 1 {
					p.note(e, "belongs to another machine: the topology holds several, and the first one is read")
				}
				continue
			}
		}
		cpus = append(cpus, e)
	}
	return cpus
}

type place struct {
	node   *int
	root   string
	parent *topology.PCIAddr
}

// cpu reads the file's NUMA node number i.
func (p *parser) cpu(e *element, i int) error {
	at := place{root: fmt.Sprintf("cpu%d", i)} // numaid="-1": a virtual machine with devices on no node
	if n := p.count(e, "numaid", topology.MaxCPUs-1); n != nil {
		id := int(*n)
		at = place{node: &id, root: fmt.Sprintf("numa%d", id)}
		if err := p.addNode(e, id); err != nil {
			return err
		}
	}
	if arch := e.Attr("arch"); p.h.System.Arch == "" && isArch(arch) {
		p.h.System.Arch = arch
	}
	for _, child := range e.Kids {
		if child.Name == "nic" {
			p.nic(child, at, nil)
		} else if err := p.pci(child, at); err != nil {
			return err
		}
	}
	return nil
}

func isArch(s string) bool {
	return s == "x86_64" || s == "arm64" || s == "ppc64" || s == "loongarch64"
}

// addNode adds a node; affinity is its cpumap.
func (p *parser) addNode(e *element, id int) error {
	if p.h.NUMANode(id) != nil {
		return where.At(e.Line, "a second <cpu> with numaid=\"%d\"", id)
	}
	mask := e.Attr("affinity")
	if mask == "" {
		return nil // unknown CPUs are not the same as no CPUs
	}
	cpus, err := topology.ParseCPUMask(mask)
	if err != nil {
		return where.At(e.Line, "<cpu> affinity: %v", err)
	}
	for _, n := range p.h.NUMANodes {
		if both := n.CPUs.Intersect(cpus); !both.IsEmpty() {
			p.note(e, "affinity: CPUs %s are those of node %d as well", both, n.ID)
			break
		}
	}
	p.h.NUMANodes = append(p.h.NUMANodes, topology.NUMANode{ID: id, CPUs: cpus})
	return nil
}

// secondDomain is the domain for switches with the address of another; no machine has it.
const secondDomain = 0xfffe0000

func (p *parser) pci(e *element, at place) error {
	a, err := address(e, "busid")
	if err != nil {
		return err
	}
	holds := func(name string) bool {
		return slices.ContainsFunc(e.Kids, func(c *element) bool { return c.Name == name })
	}
	if line, twice := p.seen[a]; twice && !holds("pci") {
		p.note(e, "busid=\"%s\" is that of line %d as well; this one is not read", a, line)
		return nil
	} else if twice {
		// NCCL makes a switch of each element, even if two have the same address.
		second := topology.PCIAddr{Domain: secondDomain, Bus: a.Bus, Device: a.Device, Function: a.Function}
		for p.seen[second] > 0 {
			second.Domain++
		}
		p.note(e, "busid=\"%s\" is that of the switch in line %d as well: NCCL takes them for two, and this one is "+
			"shown as %s", a, line, second)
		a = second
	}
	p.seen[a] = e.Line
	d := topology.PCIDevice{
		Address: a, Parent: at.parent, Root: at.root, NUMANode: at.node,
		Class: attr(p, e, "class", topology.ParseID24), Vendor: p.id16(e, "vendor"), Device: p.id16(e, "device"),
		SubsystemVendor: p.id16(e, "subsystem_vendor"), SubsystemDevice: p.id16(e, "subsystem_device"),
		Link: p.link(e),
	}
	if holds("pci") || d.Class != nil && d.Class.Sub() == topology.SubPCIBridge {
		d.Bridge = &topology.Bridge{Port: topology.PortSwitch}
	}
	p.h.PCI = append(p.h.PCI, d)
	for _, child := range e.Kids {
		switch child.Name {
		case "pci":
			if err := p.pci(child, place{at.node, at.root, &a}); err != nil {
				return err
			}
		case "gpu":
			p.gpu(child, a)
		case "nic":
			p.nic(child, at, &a)
		}
	}
	return nil
}

func (p *parser) gpu(e *element, a topology.PCIAddr) {
	// Partitions of a GPU (mlopart) are separate ranks but one device.
	for _, have := range p.h.GPUs {
		if have.Address != nil && *have.Address == a {
			p.note(e, "dev=%q mlopart=%q is a part of the GPU at %s, which is shown once", where.Clip(e.Attr("dev")),
				where.Clip(e.Attr("mlopart")), a)
			return
		}
	}
	g := topology.GPU{Address: &a, ComputeArch: arch(e)}
	if n := p.count(e, "dev", 1<<16); n != nil {
		g.Index = new(int(*n))
	}
	if _, ok := e.Lookup("gcn"); ok {
		p.rccl = true
	}
	for _, l := range e.Kids {
		// bw is in megabytes per second per link.
		if bw, n := p.count(l, "bw", 1<<24), p.count(l, "count", maxCount); l.Name == "c2c" && bw != nil && n != nil {
			g.C2CGBps = new(float64(*bw**n) / 1000)
		}
	}
	p.h.GPUs = append(p.h.GPUs, g)
	p.gpus = append(p.gpus, gpu{a, e.Kids})
}

// An Error is a file that is not a topology, or inconsistent.
type Error = where.Error

// A machine has some hundred elements.
var limits = xmltree.Limits{Bytes: 16 << 20, Elements: 100_000, Depth: 64}

type element = xmltree.Element

// parents maps each known element to its allowed parents. A misplaced element is an error, because its data would be
// lost silently.
var parents = map[string][]string{
	"cpu":    {"system"},
	"pci":    {"cpu", "pci"},
	"gpu":    {"pci"},
	"nic":    {"cpu", "pci"},
	"net":    {"nic"},
	"nvlink": {"gpu"},
	"xgmi":   {"gpu"},
	"c2c":    {"gpu"},
}

func parseTree(b []byte) (root *element, unknown []*element, err error) {
	root, err = xmltree.Read(b, limits)
	if err == nil {
		err = checkRoot(root)
	}
	if err == nil {
		err = keepKnown(root, &unknown)
	}
	return root, unknown, err
}

func keepKnown(e *element, unknown *[]*element) error {
	e.Kids = slices.DeleteFunc(e.Kids, func(k *element) bool {
		isUnknown := parents[k.Name] == nil
		if isUnknown && !slices.ContainsFunc(*unknown, func(u *element) bool { return u.Name == k.Name }) {
			*unknown = append(*unknown, k)
		}
		return isUnknown
	})
	for _, k := range e.Kids {
		if want := parents[k.Name]; !slices.Contains(want, e.Name) {
			return where.At(k.Line, "<%s> in <%s>; want it in <%s>", k.Name, e.Name, want[0])
		}
		if err := keepKnown(k, unknown); err != nil {
			return err
		}
	}
	return nil
}

func checkRoot(e *element) error {
	switch e.Name {
	case "system":
		return nil
	case "graphs", "graph":
		return where.At(e.Line, "this is a graph of NCCL (NCCL_GRAPH_DUMP_FILE): it has rings and trees, "+
			"not the machine; give what NCCL_TOPO_DUMP_FILE writes")
	case "topology":
		return where.At(e.Line, "this is a topology of hwloc, not of NCCL")
	}
	return where.At(e.Line, "the file starts with <%s>; want <system>, as NCCL_TOPO_DUMP_FILE "+
		"writes it", where.Clip(e.Name))
}

// count parses an attribute from 0 to most, or returns nil if it is missing, unknown (-1) or invalid.
func (p *parser) count(e *element, name string, most int64) *int64 {
	s := e.Attr(name)
	if s == "" {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		p.note(e, "%s=%q is not a number", name, where.Clip(s))
		return nil
	case n < 0:
		return nil // unknown to NCCL
	case n > most:
		p.note(e, "%s=%q is too large to be right", name, where.Clip(s))
		return nil
	}
	return &n
}

// attr returns a parsed attribute, or nil if it is missing or invalid, which is noted.
func attr[T any](p *parser, e *element, name string, parse func(s string) (T, error)) *T {
	s := e.Attr(name)
	if s == "" {
		return nil
	}
	v, err := parse(s)
	if err != nil {
		p.note(e, "%s: %v", name, err)
		return nil
	}
	return &v
}

// id16 returns an ID, or nil for all ones or zeros, which are placeholders.
func (p *parser) id16(e *element, name string) *topology.ID16 {
	id := attr(p, e, name, topology.ParseID16)
	if id != nil && (*id == 0xffff || *id == 0) {
		return nil
	}
	return id
}

// speed returns GT/s from "16 GT/s" or sysfs's "16.0 GT/s PCIe", or nil for "Unknown" or none.
func (p *parser) speed(e *element) *float64 {
	s := e.Attr("link_speed")
	if s == "" || strings.HasPrefix(s, "Unknown") {
		return nil
	}
	number, unit, _ := strings.Cut(s, " ")
	gts, err := strconv.ParseFloat(number, 64)
	if err != nil || unit != "" && !strings.HasPrefix(unit, "GT/s") || !(gts >= 0 && gts <= 1024) {
		p.note(e, "link_speed=%q is not a speed in GT/s", where.Clip(s))
		return nil
	}
	if gts == 0 {
		return nil
	}
	return &gts
}

// link returns the maximum rate of a link. Widths of 0 and 255 (sysfs's value) mean unknown.
func (p *parser) link(e *element) *topology.Link {
	l := topology.Link{MaxSpeedGTs: p.speed(e)}
	if w := p.count(e, "link_width", 255); w != nil && *w > 0 && *w < 255 {
		l.MaxWidth = new(int(*w))
	}
	if l.MaxSpeedGTs == nil && l.MaxWidth == nil {
		return nil
	}
	return &l
}

func address(e *element, name string) (topology.PCIAddr, error) {
	s, ok := e.Lookup(name)
	if !ok {
		return topology.PCIAddr{}, where.At(e.Line, "<%s> has no %s", e.Name, name)
	}
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		return topology.PCIAddr{}, where.At(e.Line, "<%s> %s: %v", e.Name, name, err)
	}
	return a, nil
}

// arch returns the instruction set of a GPU: "sm_90", "gfx90a".
//
// RCCL has gcn, and uses sm for the number of compute units. In older versions gcn is a number, with 910 for gfx90a; in
// newer ones it is a name with features ("gfx942:sramecc+:xnack-").
func arch(e *element) string {
	if gcn, ok := e.Lookup("gcn"); ok {
		gcn, _, _ = strings.Cut(gcn, ":")
		gcn = strings.TrimPrefix(gcn, "gfx")
		if gcn == "910" {
			gcn = "90a"
		}
		if !isWord(gcn) {
			return ""
		}
		return "gfx" + gcn
	}
	if sm := e.Attr("sm"); isWord(sm) {
		return "sm_" + sm
	}
	return ""
}

func isWord(s string) bool {
	return s != "" && len(s) <= 8 && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}
