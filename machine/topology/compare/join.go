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

// A Part is one account of a machine, and its source in messages: "lscpu (cpus.txt)".
type Part struct {
	Source string
	Host   *topology.Host
}

// maxContradictions limits the list, for sources that describe different machines.
const maxContradictions = 200

// Join merges accounts of one machine into one host. PCI functions are matched by address, and GPUs and NICs also by
// the names of their devices. If two accounts disagree about a fact, the first counts and Contradictions has both.
// The accounts must not be used afterwards.
//
// First, all parts except NICs, GPUs and paths are merged in the order of the accounts. These three wait, because
// their IDs are valid only within one account: mlx5_0 of one may be function 3b:00.0 of another. They are grouped by
// common keys and placed on functions of the joined host, and then paths get the resulting IDs.
func Join(parts []Part) *topology.Host {
	j := &joiner{from: map[string]string{}, h: &topology.Host{}}
	var nics []member[topology.NIC]
	var gpus []member[topology.GPU]
	var reported []topology.Path
	renamed := map[string]string{}
	j.foreign(parts)
	for i, p := range parts {
		j.source = p.Source
		// "GPU0" of two accounts need not be the same GPU, so until they are joined each ID is scoped to its account.
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
	// Paths to a device that no account lists are dropped.
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

// tree returns the part that has all PCI functions of the machine, or nil.
func tree(parts []Part) *Part {
	for i := range parts {
		switch h := parts[i].Host; h.Provenance.Kind {
		case topology.SourceTree, topology.SourceLive, topology.SourceHwloc, topology.SourceLspci:
			// A fragment of lspci's output has no host bridge.
			if len(h.PCI) > 0 && (h.Provenance.Kind != topology.SourceLspci || slices.ContainsFunc(h.PCI,
				func(d topology.PCIDevice) bool { return d.Class != nil && d.Class.Sub() == topology.SubHostBridge })) {
				return &parts[i]
			}
		}
	}
	return nil
}

// foreign removes devices from an NCCL topology that the machine does not have, because such a file may have been
// made for another machine. Its switches may be artificial, so they stay if a device is below them.
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

// provenance returns the joined host's provenance: a whole machine's kind if one is among the parts.
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

// reported drops the second of two statements about one path, and records a contradiction if they differ. A path has
// no direction, so its key has the ends in order.
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

// nodes sets a function's NUMA node from the GPU or NIC on it. The function's own node, which a tree has from sysfs,
// takes precedence.
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

// cores drops cores that share CPUs with a core from an earlier account. Cores are matched by CPUs, so two different
// groupings of the same CPUs would otherwise both appear.
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
	from   map[string]string // source of the value at a path, and of everything below it without its own entry
}

// contradict records a fact on which two sources disagree. It stops after maxContradictions, because texts of two
// machines differ in nearly everything.
func (j *joiner) contradict(fact, value, source, other, by string) {
	if len(j.h.Contradictions) < maxContradictions {
		j.h.Contradictions = append(j.h.Contradictions, topology.Contradiction{Fact: fact, Value: value, Source: source,
			Other: other, By: by})
	}
}

// iommu resolves the case that one tool reports no IOMMU and another lists its groups. The kernel's groups count:
// libvirt checks only when it starts, and in a container it sees no IOMMU.
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

// sourceOf returns the source of the value at a path. It searches the nearest part above, because a value copied as a
// whole has only one entry.
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

// value merges b into a; name is the last part of the path. Values that a lacks are copied with their source, lists
// are merged by the keys of their elements, and other differences are contradictions that keep a's value.
func (j *joiner) value(path, name string, a, b reflect.Value) {
	switch {
	case b.IsZero():
	case a.IsZero():
		a.Set(b)
		j.from[path] = j.source
	case a.Kind() == reflect.Pointer && !isLeaf(a.Type().Elem()):
		fresh := reflect.New(a.Type().Elem()) // the value pointed to may belong to a part
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

// placed resolves differences in certainty between two accounts of a function's place: its parent may be unknown, and
// its NUMA node stated or derived.
func placed(a, b *topology.PCIDevice) {
	if a.Parent != nil || b.Parent != nil || !a.ParentUnknown || !b.ParentUnknown {
		a.ParentUnknown, b.ParentUnknown = false, false
	}
	if a.NUMANode != nil && b.NUMANode != nil && a.NUMASource != b.NUMASource {
		// Clearing the derived node lets value copy the stated one without a contradiction.
		if b.NUMASource == "" {
			a.NUMANode, a.NUMASource = nil, ""
		} else {
			b.NUMANode, b.NUMASource = nil, ""
		}
	}
}

// list merges each element of b into the element of a with the same key, or appends it.
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

// A member is a GPU or NIC with its IDs in the parts.
type member[T any] struct {
	device T
	source string
	ids    []string
}

// renameDevices returns the members' devices, and maps their old IDs to the new ones in renamed.
func renameDevices[T any](all []member[T], renamed map[string]string) []T {
	return lists.Map(all, func(m member[T]) T {
		for _, old := range m.ids {
			renamed[old] = m.id()
		}
		return m.device
	})
}

func (m *member[T]) id() string { return any(&m.device).(interface{ ID() string }).ID() }

// nicKeys identify a NIC by its address, RDMA devices and network devices, with prefixes to distinguish these. A NIC
// with only a name may be of either kind.
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

// gpuKeys identify a GPU. A name such as GPU0 depends on the tool, so it is used only if there is no address.
func gpuKeys(g *topology.GPU) []string {
	if g.Address != nil {
		return []string{g.Address.String()}
	}
	return []string{"name " + g.Name}
}

// groupByKey merges members that share a key directly or through others, by union-find: a chain of name, address and
// other name ends in one group in any order of accounts. The first member of a group is its root, so that the first
// account counts.
func groupByKey[T any](j *joiner, list string, in []member[T], keysOf func(*T) []string) []member[T] {
	root := make([]int, len(in)) // first member of each one's group
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
	// A second loop, because a later member may have joined two groups.
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

// merge merges member b into a, including its IDs.
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

// placeByName finds the functions of NICs by the names of their devices, which systemd derives from the address:
// enp94s0f1np1 is function 1 of device 0 of bus 94.
func (j *joiner) placeByName(nics []member[topology.NIC]) []member[topology.NIC] {
	for i := range nics {
		n := &nics[i].device
		if n.Address != nil {
			continue
		}
		names := []string{n.Name}
		names = append(names, lists.Map(n.Ports, func(p topology.Netdev) string { return p.Name })...)
		names = append(names, lists.Map(n.Devices, func(d topology.RDMADevice) string { return d.Name })...)
		for _, name := range names {
			a, ok := addressInName(name)
			if !ok || j.h.Device(a) == nil {
				continue
			}
			if _, vf, virtual := topology.VFInName(name); virtual {
				j.placeVF(n, a, vf)
				j.inferred("%s: that it is virtual function %d of %s follows from its name", name, vf, a)
			} else {
				n.Address = &a
				j.inferred("%s: that it is %s follows from its name", name, a)
			}
			break
		}
	}
	return groupByKey(j, "nics", nics, nicKeys)
}

// isPlaced reports whether the name of a network device tells the address of a NIC.
func isPlaced(n *topology.NIC) bool {
	return slices.ContainsFunc(n.Ports, func(p topology.Netdev) bool {
		_, ok := addressInName(p.Name)
		return ok
	})
}

// placeVF makes n a virtual function of pf. Its address is known if a source lists the functions of pf.
func (j *joiner) placeVF(n *topology.NIC, pf topology.PCIAddr, vf int) {
	n.PF = &pf
	s := j.h.Device(pf).SRIOV
	if s == nil {
		return
	}
	if f := lists.Ref(s.VFs, func(f *topology.VF) bool { return f.Index == vf }); f != nil {
		n.Address = f.Address
	}
}

// placeByModel finds the cards that mlxconfig names by their model and Mellanox's own name of a device, if there are
// as many cards of the model: those names are numbered in address order.
func (j *joiner) placeByModel(nics []member[topology.NIC]) []member[topology.NIC] {
	named := map[string][]*topology.NIC{}
	for i := range nics {
		if n := &nics[i].device; n.Address == nil && n.Settings != nil && n.Model != "" {
			named[n.Model] = append(named[n.Model], n)
		}
	}
	for _, model := range lists.Keys(named) {
		list := named[model]
		var cards []topology.PCIAddr
		for _, a := range j.free((*topology.PCIDevice).IsNIC, topology.VendorMellanox, nil) {
			first := len(cards) == 0 || !cards[len(cards)-1].SameDevice(a)
			if name := j.h.Device(a).DeviceName; first && modelIn(name) == strings.ToLower(model) {
				cards = append(cards, a)
			}
		}
		if len(cards) != len(list) {
			continue
		}
		slices.SortFunc(list, func(a, b *topology.NIC) int {
			return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
		})
		for i, n := range list {
			n.Address = &cards[i]
		}
		j.inferred("that %s is %s follows from there being %d of the model %s in both texts", list[0].Name, cards[0],
			len(list), model)
	}
	return groupByKey(j, "nics", nics, nicKeys)
}

// modelIn returns the model in the PCI database's name of a device, in lower case: "connectx-3" for "MT27500 Family
// [ConnectX-3]".
func modelIn(name string) string {
	if open, end := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']'); open >= 0 && open < end {
		name = name[open+1 : end]
	}
	return strings.ToLower(name)
}

// addressInName returns the PCI address in a name by systemd's scheme, with decimal numbers (lspci's are
// hexadecimal). Domain and function are left out of the name if they are 0.
//
//	enp94s0f1np1:    bus 94, device 0, function 1 (and port 1, which is not read)
//	enP2p1s0:        domain 2
//	rocep94s0f1:     an RDMA device by rdma-core's scheme, which is the same
//
// Source: systemd.net-naming-scheme(7).
func addressInName(name string) (topology.PCIAddr, bool) {
	rest := ""
	for _, prefix := range []string{"en", "ib", "roce", "iwp", "wl"} {
		if r, ok := strings.CutPrefix(name, prefix); ok {
			rest = r
			break
		}
	}
	// P is the domain, p the bus, s the device ("slot") and f the function. If a letter repeats, the last one counts.
	part := map[byte]uint64{}
	for len(rest) > 0 && strings.IndexByte("Ppsf", rest[0]) >= 0 {
		letter := rest[0]
		digits := rest[1 : len(rest)-len(strings.TrimLeft(rest[1:], "0123456789"))]
		v, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			break
		}
		part[letter], rest = v, rest[1+len(digits):]
	}
	_, hasBus := part['p']
	if _, hasSlot := part['s']; !hasBus || !hasSlot || part['p'] > 255 || part['s'] > 31 || part['f'] > 7 {
		return topology.PCIAddr{}, false
	}
	return topology.PCIAddr{Domain: uint32(part['P']), Bus: uint8(part['p']), Device: uint8(part['s']),
		Function: uint8(part['f'])}, true
}

// inferred records a fact that no source states.
func (j *joiner) inferred(format string, args ...any) {
	j.h.Inferred = append(j.h.Inferred, fmt.Sprintf(format, args...))
}

// placeByOrder assigns functions to the RDMA devices of NVIDIA's NICs if there are as many of both: the driver
// numbers devices in address order. Bonds are left out, because they are one device on two functions, and so are
// virtual functions, which have no fixed order.
func (j *joiner) placeByOrder(nics []member[topology.NIC]) []member[topology.NIC] {
	var named []*topology.NIC
	taken := map[topology.PCIAddr]bool{}
	for i := range nics {
		n := &nics[i].device
		if n.Address != nil && len(n.RDMA)+len(n.Devices) > 0 {
			taken[*n.Address] = true
		} else if n.Address == nil && n.PF == nil && !isPlaced(n) && strings.HasPrefix(rdmaName(n), "mlx5_") && !strings.Contains(rdmaName(n),
			"bond") {
			named = append(named, n)
		}
	}
	free := j.free((*topology.PCIDevice).IsNIC, topology.VendorMellanox, taken)
	if len(named) == 0 || len(free) == 0 {
		return nics
	}
	if len(named) != len(free) {
		j.inferred("which of %d functions %d RDMA devices (%s, ...) stand on is not told; ethtool -i and "+
			"ibdev2netdev -v do", len(free), len(named), rdmaName(named[0]))
		return nics
	}
	// By length first: mlx5_10 comes after mlx5_9.
	slices.SortFunc(named, func(a, b *topology.NIC) int {
		return cmp.Or(cmp.Compare(len(rdmaName(a)), len(rdmaName(b))), cmp.Compare(rdmaName(a), rdmaName(b)))
	})
	for i, n := range named {
		n.Address = &free[i]
	}
	j.inOrder(rdmaName(named[0]), free)
	return groupByKey(j, "nics", nics, nicKeys)
}

// free returns a vendor's physical functions that satisfy is and are not taken, by address.
func (j *joiner) free(is func(*topology.PCIDevice) bool, vendor topology.ID16,
	taken map[topology.PCIAddr]bool) (free []topology.PCIAddr) {
	for i := range j.h.PCI {
		d := &j.h.PCI[i]
		virtual := d.PF != nil || strings.HasSuffix(d.DeviceName, "Virtual Function]") ||
			strings.HasSuffix(d.DeviceName, "Virtual Function")
		if is(d) && !virtual && d.Vendor != nil && *d.Vendor == vendor && !taken[d.Address] {
			free = append(free, d.Address)
		}
	}
	slices.SortFunc(free, topology.PCIAddr.Compare)
	return free
}

// inOrder records that devices, the first of which has a name, were assigned the free functions in order.
func (j *joiner) inOrder(name string, free []topology.PCIAddr) {
	j.inferred("that %s is %s, and so on in order, follows from there being %d of both", name, free[0], len(free))
}

// rdmaName returns the driver's name for a NIC, or the NIC's own name if no RDMA device is known.
func rdmaName(n *topology.NIC) string {
	names := append(slices.Clone(n.RDMA), lists.Map(n.Devices, func(d topology.RDMADevice) string { return d.Name })...)
	return append(names, n.Name)[0]
}

// placeKnown joins GPUs without an address, as in matrices and nvidia-smi -L, with GPUs that have one. It matches
// them by UUID or else by number, which is the same in all outputs of nvidia-smi.
func (j *joiner) placeKnown(gpus []member[topology.GPU]) []member[topology.GPU] {
	placed := false
	for i := range gpus {
		g := &gpus[i].device
		if g.Address != nil {
			continue
		}
		for k := range gpus {
			o := &gpus[k].device
			byUUID := g.UUID != "" && o.UUID != ""
			same := g.Index != nil && o.Index != nil && *g.Index == *o.Index
			if byUUID {
				same = g.UUID == o.UUID
			}
			if o.Address != nil && same && (g.Vendor == o.Vendor || g.Vendor == "" || o.Vendor == "") {
				g.Address, placed = o.Address, true
				break
			}
		}
	}
	if !placed {
		return gpus
	}
	return groupByKey(j, "gpus", gpus, gpuKeys)
}

// placeGPUs assigns functions to a matrix's GPUs if there are as many of both, because the tools number GPUs in
// address order. If the counts differ, the assignment is unknown: it drops the GPUs without an address and records a
// contradiction.
func (j *joiner) placeGPUs(gpus []member[topology.GPU]) []member[topology.GPU] {
	gpus = j.placeKnown(gpus)
	var named []*member[topology.GPU]
	matched := map[topology.PCIAddr]bool{}
	for i := range gpus {
		if g := &gpus[i]; g.device.Address == nil {
			named = append(named, g)
		} else if g.device.Index != nil {
			matched[*g.device.Address] = true
		}
	}
	if len(named) == 0 {
		return gpus
	}
	// A matrix is from NVIDIA's or AMD's tools and does not number the other vendor's GPUs.
	vendor := topology.VendorAMD
	if strings.HasPrefix(named[0].device.Vendor, "NVIDIA") {
		vendor = topology.VendorNVIDIA
	}
	free := j.free((*topology.PCIDevice).IsGPU, vendor, matched)
	if len(free) == 0 {
		return gpus
	}
	if len(named) != len(free) {
		j.contradict("number of GPUs", fmt.Sprint(len(free)), j.sourceOf("pci"), fmt.Sprint(len(named)),
			named[0].source)
		return slices.DeleteFunc(gpus, func(m member[topology.GPU]) bool { return m.device.Address == nil })
	}
	slices.SortStableFunc(named, func(a, b *member[topology.GPU]) int {
		if a.device.Index == nil || b.device.Index == nil {
			return 0
		}
		return cmp.Compare(*a.device.Index, *b.device.Index)
	})
	for i, m := range named {
		m.device.Address = &free[i]
	}
	j.inOrder(named[0].device.Name, free)
	return groupByKey(j, "gpus", gpus, gpuKeys)
}
