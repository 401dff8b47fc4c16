package compare

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/machine/topology"
)

// A Difference is a fact in which two machines differ.
type Difference struct {
	Part  string `json:"part"` // "cpus", "numa_nodes", "pci", "nics", ...
	Fact  string `json:"fact"` // "link.speed_gts"
	A     string `json:"a"`    // "" if A lacks the device
	B     string `json:"b"`
	Count int    `json:"count"` // elements with this difference
	// Things are the elements that differ alike; at most 16 are named.
	Things []string `json:"things"`
}

// own are facts that differ between any two machines: addresses, serial numbers, and their consequences.
var own = []string{"mac", "node_guid", "uuid", "phys_switch_id", "gid", "lid", "default_routes", "irqs", "tenants",
	"storage", "path", "asked", "resets", "iommu", "address", "parent", "root", "parent_unknown", "driver_known",
	"modules_known", "swap_known", "reset_known", "vfs", "cpu_affinity", "functions", "pf"}

const maxThings = 16

// Diff returns the facts in which a and b differ, if both know them. Devices are matched by address, or by name if the
// two machines have no addresses in common.
//
// Equal differences of many elements become one with a count: a lower link speed of eight GPUs is one difference.
func Diff(a, b *topology.Host) []Difference {
	d := differ{a: facts(a, b), b: facts(b, a), partsA: parts(a), partsB: parts(b)}
	all := maps.Clone(d.a)
	maps.Copy(all, d.b)
	names := slices.SortedFunc(maps.Keys(all), func(x, y fact) int {
		return cmp.Or(cmp.Compare(order(x.part), order(y.part)), cmp.Compare(x.fact, y.fact), cmp.Compare(len(x.thing),
			len(y.thing)), cmp.Compare(x.thing, y.thing))
	})
	var out group.List[[4]string, Difference] // by the text of a difference
	for _, name := range names {
		va, inA := d.a[name]
		vb, inB := d.b[name]
		if inA && inB && same(name.last(), va, vb) || !d.isDifference(name, inA, inB) {
			continue
		}
		diff := Difference{Part: name.part, Fact: name.fact, Things: []string{}}
		if inA {
			diff.A = show(va)
		}
		if inB {
			diff.B = show(vb)
		}
		one := out.At([4]string{diff.Part, diff.Fact, diff.A, diff.B}, diff)
		if one.Count++; name.thing != "" && len(one.Things) < maxThings {
			one.Things = append(one.Things, name.thing)
		}
	}
	return out.All
}

// A fact is a value's place; thing is the keys on the path.
type fact struct{ part, thing, fact string }

func (f fact) last() string { return f.fact[strings.LastIndexByte(f.fact, '.')+1:] }

// A differ has the parts that each host knows. Elements of an unknown part are not missing.
type differ struct {
	a, b           map[fact]reflect.Value
	partsA, partsB map[string]bool
}

// there means that an element exists.
const there = "present"

// isDifference reports whether a fact that one host lacks is a difference: if the host knows other elements of the
// kind, or if the fact is absent while a link is down.
func (d *differ) isDifference(f fact, inA, inB bool) bool {
	if inA && inB {
		return true
	}
	missing, missingParts := d.a, d.partsA
	if inA {
		missing, missingParts = d.b, d.partsB
	}
	if f.fact == there {
		// A missing NIC is not reported again under pci.
		device := fact{"nics", f.thing, there}
		_, nic := d.a[device]
		_, other := d.b[device]
		return missingParts[f.part] && d.container(f, missing) && !(f.part == "pci" && (nic || other))
	}
	if _, thing := missing[fact{f.part, f.thing, there}]; f.thing != "" && !thing {
		return false // its absence is already reported
	}
	// Other facts are unknown to one source, which is no difference.
	return slices.Contains([]string{"speed_mbps", "rate_gbps", "netdev", "function", "qos.pfc"}, f.last()) &&
		f.thing != ""
}

// container reports whether the element around f's exists in both hosts, so that a missing element is reported only
// once. A nested element has the outer keys before its own: "mlx5_0 rdma_devices[mlx5_0] ports[1]".
func (d *differ) container(f fact, missing map[fact]reflect.Value) bool {
	i := strings.LastIndex(f.thing, " ")
	if i < 0 {
		return true
	}
	up := fact{f.part, f.thing[:i], there}
	if _, ok := missing[up]; !ok {
		return false
	}
	// A source knows all or none of a nested list.
	for k := range missing {
		if k.part == f.part && k.fact == there && strings.HasPrefix(k.thing, up.thing+" "+listOf(f.thing[i+1:])) {
			return true
		}
	}
	return false
}

// listOf returns "gids[" for "gids[3]".
func listOf(thing string) string { return thing[:strings.IndexByte(thing+"[", '[')] }

func parts(h *topology.Host) map[string]bool {
	out := map[string]bool{"devices": true}
	v := reflect.ValueOf(h).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			out[field(v.Type().Field(i))] = true
		}
	}
	return out
}

// order puts the most important parts first.
func order(part string) int {
	i := slices.Index([]string{"system", "packages", "cpus", "numa_nodes", "memory", "kernel", "order", "gpus", "nics",
		"pci", "reported_paths"}, part)
	if i < 0 {
		return 100
	}
	return i
}

// facts returns the facts that another host may share.
func facts(h, other *topology.Host) map[fact]reflect.Value {
	f := flattener{out: map[fact]reflect.Value{}, names: names(h, other)}
	v := reflect.ValueOf(h).Elem()
	for i := range v.NumField() {
		name := field(v.Type().Field(i))
		// The models of packages count: see walk.
		if name == "packages" || !isPassing(name) && !slices.Contains(own, name) {
			f.walk(fact{part: name}, v.Field(i))
		}
	}
	f.orders(h)
	return f.out
}

type flattener struct {
	out   map[fact]reflect.Value
	names map[string]string // common name by ID
}

// names returns the names of GPUs and NICs with another address in the other host: the number of the GPU, or the first
// RDMA or network device of the NIC.
func names(h, other *topology.Host) map[string]string {
	there := map[string]bool{}
	visit := func(h *topology.Host, f func(id, name string)) {
		for i := range h.GPUs {
			if g := &h.GPUs[i]; g.Index != nil {
				f(g.ID(), fmt.Sprintf("GPU %d", *g.Index))
			}
		}
		for i := range h.NICs {
			n := &h.NICs[i]
			if all := slices.Concat(n.RDMA, n.Netdevs); len(all) > 0 {
				f(n.ID(), all[0])
			}
		}
	}
	visit(other, func(id, name string) { there[id], there[name] = true, true })
	out := map[string]string{}
	visit(h, func(id, name string) {
		if !there[id] && there[name] {
			out[id] = name
		}
	})
	return out
}

func (f *flattener) set(at fact, v any) { f.out[at] = reflect.ValueOf(v) }

func (f *flattener) walk(at fact, v reflect.Value) {
	switch {
	// Zero means unknown, except for plain booleans.
	case v.IsZero() && v.Kind() != reflect.Bool:
	case v.Kind() == reflect.Pointer && !isLeaf(v.Type().Elem()):
		f.walk(at, v.Elem())
	case !isLeaf(v.Type()):
		for i := range v.NumField() {
			name := field(v.Type().Field(i))
			if at.part == "cores" && slices.Contains([]string{"numa_node", "package", "die", "l3", "os_id"}, name) {
				continue // derived from other parts
			}
			hostwide := at.thing == "" && (name == "kind" || name == "model")
			if slices.Contains(own, name) || isPassing(name) && name != "model" && !hostwide {
				continue
			}
			next := at
			next.fact = strings.TrimPrefix(at.fact+"."+name, ".")
			f.walk(next, v.Field(i))
		}
	case v.Kind() == reflect.Slice && keys[v.Type().Elem()] != nil:
		key := keys[v.Type().Elem()]
		for i := range v.Len() {
			k := key(v.Index(i).Interface())
			if at.thing == "" && (at.part == "gpus" || at.part == "nics") {
				k = cmp.Or(f.names[k], k)
			}
			next := fact{part: at.part, thing: k}
			if at.thing != "" || at.fact != "" {
				next.thing = strings.TrimSpace(at.thing + " " + at.fact + "[" + k + "]")
			}
			f.set(fact{next.part, next.thing, there}, "there")
			f.walk(next, v.Index(i))
		}
	case v.Kind() == reflect.Map:
		for _, k := range v.MapKeys() {
			f.out[fact{at.part, at.thing, at.fact + "." + k.String()}] = v.MapIndex(k)
		}
	default:
		f.out[at] = v
	}
}

// orders adds the order of devices, and the kinds of addresses at each index of a GID table. A different order on two
// otherwise equal machines breaks configurations that name devices by number.
func (f *flattener) orders(h *topology.Host) {
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Address != nil && g.Index != nil {
			f.set(fact{"order", fmt.Sprintf("GPU %d", *g.Index), "function"}, g.Address.String())
		}
	}
	for i := range h.NICs {
		n := &h.NICs[i]
		for _, name := range slices.Concat(n.RDMA, n.Netdevs) {
			if n.Address != nil {
				f.set(fact{"order", name, "function"}, n.Address.String())
			}
			f.set(fact{"order", name, there}, "there")
		}
		for _, d := range n.Devices {
			for _, p := range d.Ports {
				for _, g := range p.GIDs {
					f.set(fact{"nics", fmt.Sprintf("%s rdma_devices[%s] ports[%d] gids[%d]", cmp.Or(f.names[n.ID()],
						n.ID()), d.Name, p.Number, g.Index), "address"}, gidKind(&g))
				}
			}
		}
	}
}

// gidKind leaves out the address, which differs on each machine.
func gidKind(g *topology.GID) string {
	switch a := g.Addr(); {
	case !a.IsValid():
		return "none"
	case a.Is4():
		return "IPv4"
	case a.IsLinkLocalUnicast():
		return "link-local"
	}
	return "IPv6"
}

// Text returns one line, without the names in Things.
func (d Difference) Text() string { return d.Say("in A", "in B") }

// Say is like Text with other words for the places: "elsewhere", "here".
func (d Difference) Say(inA, inB string) string {
	fact := strings.ReplaceAll(d.Fact, "_", " ")
	switch {
	case d.Fact == there && d.A == "":
		return "only " + inB
	case d.Fact == there:
		return "only " + inA
	}
	value := func(s string) string { return cmp.Or(s, "none") }
	return fmt.Sprintf("%s: %s %s, %s %s", fact, value(d.A), inA, value(d.B), inB)
}

// An Outlier is a difference from the typical host of a group; B is the value of its hosts.
type Outlier struct {
	Difference
	Hosts []int `json:"-"` // indexes into the group
}

// maxTypical bounds rounds, each of which picks a more typical host.
const maxTypical = 4

// Outliers returns the differences of a group's hosts from its typical host, the rarest first. The typical host shares
// its facts with most others; among fewer than three hosts it is the first.
func Outliers(hosts []*topology.Host) (typical int, outliers []Outlier) {
	for range maxTypical {
		outliers = from(hosts, typical)
		next := mostAlike(hosts, typical, outliers)
		if len(hosts) < 3 || next == typical {
			break
		}
		typical = next
	}
	slices.SortStableFunc(outliers, func(a, b Outlier) int { return cmp.Compare(len(a.Hosts), len(b.Hosts)) })
	return typical, outliers
}

func from(hosts []*topology.Host, typical int) []Outlier {
	var all group.List[[4]string, Outlier]
	for i, h := range hosts {
		if i == typical {
			continue
		}
		for _, d := range Diff(hosts[typical], h) {
			o := all.At([4]string{d.Part, d.Fact, d.A, d.B}, Outlier{Difference: d})
			o.Hosts = append(o.Hosts, i)
		}
	}
	return all.All
}

// mostAlike returns the host with the most common facts and the fewest rare ones. If most hosts differ from the typical
// one in a fact, that one is at fault.
func mostAlike(hosts []*topology.Host, typical int, outliers []Outlier) int {
	score := make([]int, len(hosts))
	for _, o := range outliers {
		worth := -1
		if 2*len(o.Hosts) > len(hosts) {
			worth = 1
		}
		for _, h := range o.Hosts {
			score[h] += worth
		}
	}
	best := typical
	for h, s := range score {
		if s > score[best] {
			best = h
		}
	}
	return best
}
