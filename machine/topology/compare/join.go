package compare

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A Part is an account of a machine, and its source: "lscpu (cpus.txt)".
type Part struct {
	Source string
	Host   *topology.Host
}

// Sources may describe different machines.
const maxContradictions = 200

// Join merges accounts of one machine. PCI functions are matched by address, and GPUs and NICs also by the names of
// their devices. If two accounts disagree about a fact, the first counts and Contradictions has both. The accounts must
// not be used afterwards.
//
// NICs, GPUs and paths wait until the rest is merged, because their IDs are valid only within one account: mlx5_0 of
// one may be function 3b:00.0 of another.
func Join(parts []Part) *topology.Host {
	j := &joiner{from: map[string]string{}, h: &topology.Host{}}
	var nics []member[topology.NIC]
	var gpus []member[topology.GPU]
	var reported []topology.Path
	renamed := map[string]string{}
	j.foreign(parts)
	for i, p := range parts {
		j.source = p.Source
		// "GPU0" of two accounts need not be the same GPU.
		scope := strconv.Itoa(i) + "/"
		for _, n := range p.Host.NICs {
			nics = append(nics, member[topology.NIC]{n, p.Source, []string{scope + n.ID()}})
		}
		for _, g := range p.Host.GPUs {
			gpus = append(gpus, member[topology.GPU]{g, p.Source, []string{scope + g.ID()}})
		}
		for _, path := range p.Host.Reported {
			path.A, path.B = scope+path.A, scope+path.B
			reported = append(reported, path)
		}
		p.Host.NICs, p.Host.GPUs, p.Host.Reported = nil, nil, nil
		j.h.Unread = append(j.h.Unread, p.Host.Unread...)
		j.h.Contradictions = append(j.h.Contradictions, p.Host.Contradictions...)
		j.value("", "", reflect.ValueOf(j.h).Elem(), reflect.ValueOf(p.Host).Elem())
	}
	j.h.Provenance = provenance(parts)
	nics = groupByKey(j, "nics", nics, nicKeys)
	nics = j.placeByName(nics)
	nics = j.placeByModel(nics)
	nics = j.placeByOrder(nics)
	gpus = j.placeGPUs(groupByKey(j, "gpus", gpus, gpuKeys))
	j.h.NICs, j.h.GPUs = renameDevices(nics, renamed), renameDevices(gpus, renamed)
	for _, p := range reported {
		if a, b := renamed[p.A], renamed[p.B]; a != "" && b != "" {
			p.A, p.B = a, b
			j.h.Reported = append(j.h.Reported, p)
		}
	}
	j.reported()
	j.cores()
	j.nodes()
	j.iommu()
	j.h.Complete()
	j.h.Provenance.Filled = j.h.Parts()
	return j.h
}

// tree returns the part with all PCI functions, or nil.
func tree(parts []Part) *Part {
	for i := range parts {
		switch h := parts[i].Host; h.Provenance.Kind {
		case topology.SourceTree, topology.SourceLive, topology.SourceHwloc, topology.SourceLspci:
			if len(h.PCI) > 0 && (h.Provenance.Kind != topology.SourceLspci || slices.ContainsFunc(h.PCI,
				func(d topology.PCIDevice) bool { return d.Class != nil && d.Class.Sub() == topology.SubHostBridge })) {
				return &parts[i]
			}
		}
	}
	return nil
}

// foreign removes devices from an NCCL topology, which may have been made for another machine. Its switches may be
// artificial, so they stay if a device is below them.
func (j *joiner) foreign(parts []Part) {
	whole := tree(parts)
	if whole == nil {
		return
	}
	there := lists.SetOf(whole.Host.PCI, func(p topology.PCIDevice) topology.PCIAddr { return p.Address })
	for _, p := range parts {
		if p.Host.Provenance.Kind != topology.SourceNCCL {
			continue
		}
		var missing []string
		used := map[topology.PCIAddr]bool{}
		h := p.Host
		above := topology.NewTree(h)
		for i := range h.PCI {
			if d := &h.PCI[i]; d.Bridge != nil {
				continue
			} else if !there[d.Address] {
				missing = append(missing, d.Address.String())
			} else {
				for _, up := range above.Ancestors(d.Address) {
					used[up.Address] = true
				}
			}
		}
		if len(missing) == 0 {
			continue
		}
		h.PCI = slices.DeleteFunc(h.PCI, func(d topology.PCIDevice) bool {
			return !there[d.Address] && !used[d.Address]
		})
		h.GPUs = slices.DeleteFunc(h.GPUs, func(g topology.GPU) bool { return g.Address != nil && !there[*g.Address] })
		h.NICs = slices.DeleteFunc(h.NICs, func(n topology.NIC) bool { return n.Address != nil && !there[*n.Address] })
		list := strings.Join(missing[:min(8, len(missing))], ", ")
		if len(missing) > 8 {
			list += fmt.Sprintf(" and %d more", len(missing)-8)
		}
		j.contradict("PCI functions", "the machine has no such function", whole.Source, list, p.Source)
	}
}

// provenance prefers the kind of a whole machine.
func provenance(parts []Part) topology.Provenance {
	p := topology.Provenance{Kind: topology.SourceTexts}
	var names, tools []string
	for _, part := range parts {
		from := part.Host.Provenance
		switch from.Kind {
		case topology.SourceTree, topology.SourceLive, topology.SourceHwloc:
			if p.Kind == topology.SourceTexts {
				p = from
				continue
			}
		}
		names, tools = append(names, from.Name), append(tools, from.Tool)
		p.Emulated = p.Emulated || from.Emulated
	}
	slices.Sort(names)
	slices.Sort(tools)
	join := func(first string, rest []string) string {
		rest = slices.DeleteFunc(slices.Compact(rest), func(s string) bool { return s == "" || s == first })
		if first != "" {
			rest = append([]string{first}, rest...)
		}
		return strings.Join(rest, ", ")
	}
	p.Name, p.Tool = join(p.Name, names), join(p.Tool, tools)
	return p
}

// reported ignores the direction of paths.
func (j *joiner) reported() {
	first := map[[2]string]topology.Path{}
	j.h.Reported = slices.DeleteFunc(j.h.Reported, func(p topology.Path) bool {
		key := [2]string{min(p.A, p.B), max(p.A, p.B)}
		have, twice := first[key]
		if !twice {
			first[key] = p
		} else if have.Label() != p.Label() && have.Class != topology.PathUnknown && p.Class != topology.PathUnknown {
			j.contradict("path "+key[0]+" - "+key[1], have.Label(), "one matrix", p.Label(), "another")
		}
		return twice
	})
}

// nodes prefers a function's own node, from sysfs.
func (j *joiner) nodes() {
	at := map[topology.PCIAddr]*int{}
	know := func(a *topology.PCIAddr, node *int) {
		if a != nil {
			at[*a] = node
		}
	}
	for _, g := range j.h.GPUs {
		know(g.Address, g.NUMANode)
	}
	for _, n := range j.h.NICs {
		know(n.Address, n.NUMANode)
	}
	for i := range j.h.PCI {
		if d := &j.h.PCI[i]; d.NUMANode == nil && at[d.Address] != nil {
			d.NUMANode, d.NUMASource = at[d.Address], "driver"
		}
	}
}

// cores drops cores that share CPUs with a core from an earlier account. Otherwise two groupings of the same CPUs would
// both appear.
func (j *joiner) cores() {
	var taken topology.CPUSet
	j.h.Cores = slices.DeleteFunc(j.h.Cores, func(c topology.Core) bool {
		if c.CPUs.Overlaps(taken) {
			j.contradict("cores", "others", j.sourceOf("cores"), c.CPUs.String(),
				j.sourceOf("cores["+c.CPUs.String()+"]"))
			return true
		}
		taken = taken.Union(c.CPUs)
		return false
	})
}

type joiner struct {
	h      *topology.Host
	source string
	from   map[string]string // of the value at a path, and below
}

// contradict stops after maxContradictions, because texts of two machines differ in nearly everything.
func (j *joiner) contradict(fact, value, source, other, by string) {
	if len(j.h.Contradictions) < maxContradictions {
		j.h.Contradictions = append(j.h.Contradictions, topology.Contradiction{Fact: fact, Value: value, Source: source,
			Other: other, By: by})
	}
}

// iommu prefers IOMMU groups to no IOMMU: libvirt checks only when it starts, and in a container it sees none.
func (j *joiner) iommu() {
	if on := j.h.IOMMU.Enabled; on == nil || *on {
		return
	}
	i := slices.IndexFunc(j.h.PCI, func(d topology.PCIDevice) bool { return d.IOMMUGroup != nil })
	if i < 0 {
		return
	}
	d := &j.h.PCI[i]
	j.contradict("iommu.enabled", "true", fmt.Sprintf("%s: %s is in IOMMU group %d",
		j.sourceOf("pci["+d.Address.String()+"].iommu_group"), d.Address, *d.IOMMUGroup), "false",
		j.sourceOf("iommu.enabled"))
	j.h.IOMMU.Enabled = new(true)
}

// sourceOf also searches the parts above, because a value copied as a whole has one entry.
func (j *joiner) sourceOf(path string) string {
	for {
		if s, ok := j.from[path]; ok {
			return s
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return j.from[""]
		}
		path = path[:i]
	}
}

// value merges b into a; name is the last part of the path. Values that a lacks are copied with their source, lists are
// merged by keys, and other differences keep a's value.
func (j *joiner) value(path, name string, a, b reflect.Value) {
	switch {
	case b.IsZero():
	case a.IsZero():
		a.Set(b)
		j.from[path] = j.source
	case a.Kind() == reflect.Pointer && !isLeaf(a.Type().Elem()):
		fresh := reflect.New(a.Type().Elem()) // it may belong to a part
		fresh.Elem().Set(a.Elem())
		a.Set(fresh)
		j.value(path, name, a.Elem(), b.Elem())
	case !isLeaf(a.Type()):
		if x, ok := a.Addr().Interface().(*topology.PCIDevice); ok {
			placed(x, b.Addr().Interface().(*topology.PCIDevice))
		}
		for i := range a.NumField() {
			f := field(a.Type().Field(i))
			if path == "" && (f == "provenance" || f == "unread" || f == "contradictions" || f == "inferred") {
				continue
			}
			j.value(strings.TrimPrefix(path+"."+f, "."), f, a.Field(i), b.Field(i))
		}
	case a.Kind() == reflect.Slice && keys[a.Type().Elem()] != nil:
		j.list(path, a, b)
	case a.Kind() == reflect.Map:
		for _, k := range b.MapKeys() {
			if !a.MapIndex(k).IsValid() {
				a.SetMapIndex(k, b.MapIndex(k))
			}
		}
	case !isPassing(name) && !same(name, a, b):
		j.contradict(path, show(a), j.sourceOf(path), show(b), j.source)
	}
}

// placed resolves two accounts of a place: a parent may be unknown, and a NUMA node stated or derived.
func placed(a, b *topology.PCIDevice) {
	if a.Parent != nil || b.Parent != nil || !a.ParentUnknown || !b.ParentUnknown {
		a.ParentUnknown, b.ParentUnknown = false, false
	}
	if a.NUMANode != nil && b.NUMANode != nil && a.NUMASource != b.NUMASource {
		// value then copies the stated node without a contradiction.
		if b.NUMASource == "" {
			a.NUMANode, a.NUMASource = nil, ""
		} else {
			b.NUMANode, b.NUMASource = nil, ""
		}
	}
}

func (j *joiner) list(path string, a, b reflect.Value) {
	key := keys[a.Type().Elem()]
	at := map[string]int{}
	merged := reflect.MakeSlice(a.Type(), 0, a.Len()+b.Len())
	for i := range a.Len() {
		at[key(a.Index(i).Interface())] = i
		merged = reflect.Append(merged, a.Index(i))
	}
	for i := range b.Len() {
		k := key(b.Index(i).Interface())
		if n, ok := at[k]; ok {
			j.value(path+"["+k+"]", "", merged.Index(n), b.Index(i))
			continue
		}
		at[k] = merged.Len()
		merged = reflect.Append(merged, b.Index(i))
		j.from[path+"["+k+"]"] = j.source
	}
	a.Set(merged)
}

// A member has its IDs in the parts.
type member[T any] struct {
	device T
	source string
	ids    []string
}

func renameDevices[T any](all []member[T], renamed map[string]string) []T {
	return lists.Map(all, func(m member[T]) T {
		for _, old := range m.ids {
			renamed[old] = m.id()
		}
		return m.device
	})
}

func (m *member[T]) id() string { return any(&m.device).(interface{ ID() string }).ID() }

// nicKeys have prefixes for addresses, RDMA devices and network devices. A NIC with only a name may be of either kind.
func nicKeys(n *topology.NIC) []string {
	var out []string
	if n.Address != nil {
		out = append(out, n.Address.String())
	}
	out = append(out, lists.Map(n.Devices, func(d topology.RDMADevice) string { return "rdma " + d.Name })...)
	out = append(out, lists.Map(n.RDMA, func(name string) string { return "rdma " + name })...)
	out = append(out, lists.Map(n.Ports, func(p topology.Netdev) string { return "net " + p.Name })...)
	out = append(out, lists.Map(n.Netdevs, func(name string) string { return "net " + name })...)
	if len(out) == 0 || n.Address == nil && len(n.RDMA)+len(n.Devices)+len(n.Ports)+len(n.Netdevs) == 0 {
		out = append(out, "name "+n.Name, "rdma "+n.Name, "net "+n.Name)
	} else if strings.HasPrefix(n.Name, "/dev/") { // name from Mellanox's tools
		out = append(out, "name "+n.Name)
	}
	return out
}

// gpuKeys use a name such as GPU0, which depends on the tool, only without an address.
func gpuKeys(g *topology.GPU) []string {
	if g.Address != nil {
		return []string{g.Address.String()}
	}
	return []string{"name " + g.Name}
}

// groupByKey merges members that share a key directly or through others, by union-find. The first member of a group is
// its root, so that the first account counts.
func groupByKey[T any](j *joiner, list string, in []member[T], keysOf func(*T) []string) []member[T] {
	root := make([]int, len(in)) // of each one's group
	find := func(i int) int {
		for root[i] != i {
			i = root[i]
		}
		return i
	}
	first := map[string]int{}
	for i := range in {
		root[i] = i
		for _, k := range keysOf(&in[i].device) {
			if at, ok := first[k]; ok {
				a, b := find(at), find(i)
				root[max(a, b)] = min(a, b)
			} else {
				first[k] = i
			}
		}
	}
	var out []member[T]
	// A later member may have joined two groups.
	for i := range in {
		if to := find(i); to != i {
			merge(j, list, &in[to], &in[i])
		}
	}
	for i := range in {
		if find(i) == i {
			out = append(out, in[i])
		}
	}
	return out
}

func merge[T any](j *joiner, list string, a, b *member[T]) {
	path := list + "[" + a.id() + "]"
	a.ids = append(a.ids, b.ids...)
	j.from[path], j.source = cmp.Or(j.from[path], a.source), b.source
	if n, ok := any(&a.device).(*topology.NIC); ok {
		o := any(&b.device).(*topology.NIC)
		n.Netdevs, n.RDMA = append(n.Netdevs, o.Netdevs...), append(n.RDMA, o.RDMA...)
	}
	j.value(path, "", reflect.ValueOf(&a.device).Elem(), reflect.ValueOf(&b.device).Elem())
}
