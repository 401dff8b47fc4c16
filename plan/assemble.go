package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// An Outcome is the result of a search.
type Outcome struct {
	Placement Placement
	Bound     int64  // no placement costs less
	Optimal   bool   // proved to cost no more than Bound
	Stopped   string // empty if Optimal
}

// Assemble makes a plan from a placement, which must satisfy the rules. Decisions and Advice are left empty.
func Assemble(h *topology.Host, l *lab.Lab, p *Problem, o Outcome) *Plan {
	a := assembly{newEvaluation(NewLayout(p), &o.Placement), h}
	terms := Evaluate(p, &o.Placement)
	pl := &Plan{
		Schema: Schema, Lab: p.Lab, Workload: p.Workload,
		Host:    HostRef{Name: p.Host, Model: hostModel(h), Provenance: h.Provenance},
		Optimal: o.Optimal, Cost: Cost(terms), Bound: o.Bound, Stopped: o.Stopped, Terms: terms,
		Nodes: []Node{}, Hugepages: []Hugepages{}, VFs: []PFCount{},
		Decisions: []Decision{}, Advice: []Advice{}, Notes: append([]string{}, p.Notes...),
	}
	pl.Housekeeping = a.housekeeping()
	vfs := a.handOutVFs()
	shift := map[int]int{} // by NUMA node
	for i := range p.Requests {
		n := a.node(i, vfs[i])
		n.EmulatorCPUs, n.IOThreadCPUs = a.ownThreads(i, shift)
		n.NICs = l.Nodes[i].NICs
		pl.Nodes = append(pl.Nodes, n)
	}
	pl.Hugepages = append(pl.Hugepages, a.hugepages()...)
	pl.VFs = append(pl.VFs, a.pfCounts(vfs)...)
	pl.KernelArgs, pl.KernelWhy = a.kernelArgs(pl)
	pl.Notes = append(append(pl.Notes, a.wiringNotes()...), a.placeNotes()...)
	return pl
}

func (a *assembly) wiringNotes() (notes []string) {
	on, ports := map[int][]string{}, map[int]map[int]bool{} // keyed by card
	for i := range a.pl.Nodes {
		name := a.p.Requests[i].Name
		for _, d := range a.pl.Nodes[i].nics() {
			card := a.wiring.Card(d)
			if card < 0 {
				continue
			}
			if ports[card] == nil {
				ports[card] = map[int]bool{}
			}
			ports[card][d] = true
			on[card] = lists.Add(on[card], name)
		}
		for j := range i {
			if !a.wiring.Linked() {
				break
			}
			if _, missing := a.wiring.Between(a.pl.Nodes[i].ports(), a.pl.Nodes[j].ports()); missing > 0 {
				notes = append(notes, fmt.Sprintf("no link of the lab joins %s and %s (ports of each: %d): "+
					"they do not reach each other there", a.p.Requests[j].Name, name, missing))
			}
		}
	}
	for _, card := range slices.Sorted(maps.Keys(on)) {
		if names := on[card]; len(names) > 1 && len(ports[card]) > 1 {
			notes = append(notes, fmt.Sprintf("%s have ports of one card, %s: they share its PCIe link, and fail "+
				"together", strings.Join(names, " and "), a.p.Devices[card].Card()))
		}
	}
	return notes
}

// inNetOrder makes ports at the same position of two lab nodes reach each other.
func inNetOrder[T any](a *assembly, ports []T, device func(T) int) {
	if !a.wiring.Linked() {
		return
	}
	on := map[int]int{} // lab nodes per net
	for i := range a.pl.Nodes {
		seen := map[int]bool{}
		for _, d := range a.pl.Nodes[i].nics() {
			if net := a.wiring.net[d]; !seen[net] {
				seen[net] = true
				on[net]++
			}
		}
	}
	slices.SortStableFunc(ports, func(x, y T) int {
		p, q := a.wiring.net[device(x)], a.wiring.net[device(y)]
		return cmp.Or(cmp.Compare(on[q], on[p]), cmp.Compare(p, q))
	})
}

func hostModel(h *topology.Host) string {
	return strings.TrimSpace(h.System.Vendor + " " + h.System.Product)
}

type assembly struct {
	*evaluation
	h *topology.Host
}

func (a *assembly) housekeeping() Housekeeping {
	var k Housekeeping
	for _, cores := range a.left {
		k.Cores += len(cores)
		for _, c := range cores {
			k.CPUs = k.CPUs.Union(topology.CPUs(c.CPUs...))
		}
	}
	for i := range a.p.Cores {
		if c := &a.p.Cores[i]; c.Tenant != "" {
			k.TenantCPUs = k.TenantCPUs.Union(topology.CPUs(c.CPUs...))
		}
	}
	return k
}

// ownThreads gives I/O threads a core on the nearest NUMA node with housekeeping cores, with ties broken by whether the
// host keeps its processes off them now and by the number of the lab node's cores there. The emulator gets that core,
// and one on each other NUMA node of the lab node's hugepages, see [Plan.EmulatorPin]. Lab nodes on one NUMA node take
// turns.
func (a *assembly) ownThreads(i int, turn map[int]int) (emulator, io topology.CPUSet) {
	if len(a.left) == 0 {
		return emulator, io // the problem has no reserve
	}
	isolated := func(node int) int {
		if slices.ContainsFunc(a.left[node], func(c *Core) bool { return !c.Isolated }) {
			return 0
		}
		return 1
	}
	next := func(node int) *Core {
		cores := a.left[node]
		if isolated(node) == 0 {
			cores = lists.Filter(cores, func(c *Core) bool { return !c.Isolated })
		}
		turn[node]++
		return cores[(turn[node]-1)%len(cores)]
	}
	home := slices.MinFunc(slices.Sorted(maps.Keys(a.left)), func(x, y int) int {
		return cmp.Or(cmp.Compare(a.nearest(i, x), a.nearest(i, y)), cmp.Compare(isolated(x), isolated(y)),
			cmp.Compare(a.coresOn[i][y], a.coresOn[i][x]))
	})
	io = topology.CPUs(next(home).CPUs...)
	emulator = io
	for _, m := range a.pl.Nodes[i].Memory {
		if m.NUMANode == home || a.p.HugepageBytes == 0 || len(a.left[m.NUMANode]) == 0 {
			continue
		}
		cpus := next(m.NUMANode).CPUs
		if isolated(m.NUMANode) == 1 {
			cpus = cpus[:1] // nothing balances load between isolated CPUs
		}
		emulator = emulator.Union(topology.CPUs(cpus...))
	}
	return emulator, io
}

func (a *assembly) node(i int, vfs []ownVF) Node {
	r, pl := &a.p.Requests[i], &a.pl.Nodes[i]
	n := Node{
		Name: r.Name, Cores: r.Cores, Threads: r.Threads, SMT: r.Threads > 1,
		MemoryBytes: uint64(r.Pages) * a.p.PageBytes, Memory: []NodeMemory{}, Devices: []string{},
	}
	for _, m := range pl.Memory {
		n.Memory = append(n.Memory, NodeMemory{NUMANode: m.NUMANode, Bytes: uint64(m.Pages) * a.p.PageBytes,
			PageBytes: a.p.HugepageBytes})
	}
	homes := a.cellHomes(i)
	n.GuestNUMA = len(homes) > 1
	for _, home := range homes {
		cell := Cell{Cell: len(n.Cells), NUMANodes: home, FirstVCPU: len(n.VCPUs)}
		for _, node := range home {
			for _, id := range pl.Cores {
				if c := a.Cores[id]; c.NUMANode == node {
					n.VCPUs = append(n.VCPUs, c.CPUs[:r.Threads]...)
				}
			}
			for _, m := range n.Memory {
				if m.NUMANode == node {
					cell.Bytes += m.Bytes
				}
			}
		}
		cell.VCPUs = len(n.VCPUs) - cell.FirstVCPU
		for _, other := range homes {
			cell.Distances = append(cell.Distances, 10+a.p.Distance(home[0], other[0]))
		}
		n.Cells = append(n.Cells, cell)
	}
	a.devices(&n, pl, vfs)
	return n
}

// cellHomes makes each host node with memory of the lab node a cell. A host node with cores but no memory joins the
// nearest cell, because a node with CPUs alone is useless to a guest and QEMU refuses some.
func (a *assembly) cellHomes(i int) [][]int {
	pages := map[int]int64{}
	for _, m := range a.pl.Nodes[i].Memory {
		pages[m.NUMANode] += m.Pages
	}
	nodes := keysOf(a.coresOn[i], pages)
	if a.p.Requests[i].GuestNUMA == string(lab.Off) {
		return [][]int{nodes}
	}
	with := lists.Filter(nodes, func(node int) bool { return pages[node] > 0 })
	homes := lists.Map(with, func(node int) []int { return []int{node} })
	for _, node := range nodes {
		if pages[node] > 0 {
			continue
		}
		nearest := slices.MinFunc(with, func(x, y int) int {
			return cmp.Compare(a.p.Distance(node, x), a.p.Distance(node, y))
		})
		k := slices.Index(with, nearest)
		homes[k] = append(homes[k], node)
	}
	return homes
}

func (a *assembly) devices(n *Node, pl *NodePlacement, vfs []ownVF) {
	nics := slices.Clone(pl.NICs)
	inNetOrder(a, nics, func(d int) int { return d })
	inNetOrder(a, vfs, func(v ownVF) int { return v.device })
	whole := append(slices.Clone(pl.GPUs), nics...)
	// Other functions belong to the first device of their bundle.
	taken := lists.SetOf(whole, func(d int) string { return a.p.Devices[d].ID })
	for _, d := range whole {
		dev := &a.p.Devices[d]
		card := NodeDevice{ID: dev.ID, Kind: dev.Kind, Model: dev.Model, NUMANode: dev.NUMANode,
			Cell: n.NearestCell(dev.NUMANode, a.p.Distance), Peers: a.p.peers(d)}
		n.Devices = append(n.Devices, dev.ID)
		if len(dev.Functions) > 0 {
			card.Functions = []string{dev.ID}
		}
		for _, f := range dev.Functions {
			if !taken[f] {
				taken[f] = true
				card.Functions = append(card.Functions, f)
				n.Devices = append(n.Devices, f)
			}
		}
		n.Cards = append(n.Cards, card)
	}
	for _, v := range vfs {
		dev := &a.p.Devices[v.device]
		n.Devices = append(n.Devices, v.name)
		n.Cards = append(n.Cards, NodeDevice{ID: dev.ID, Kind: KindVF, Model: dev.Model, VF: &v.index,
			Functions: []string{v.name}, NUMANode: dev.NUMANode, Cell: n.NearestCell(dev.NUMANode, a.p.Distance),
			Peers: a.p.peers(v.device)})
	}
}

// peers returns the IDs of the other devices on the link of a device.
func (p *Problem) peers(device int) []string {
	net := p.Devices[device].Net
	if net == 0 {
		return nil
	}
	var ids []string
	for i := range p.Devices {
		if i != device && p.Devices[i].Net == net {
			ids = append(ids, p.Devices[i].ID)
		}
	}
	return ids
}

// NearestCell breaks ties by order. It returns nil if the node is unknown.
func (n *Node) NearestCell(node *int, distance func(from, to int) int) *int {
	if node == nil {
		return nil
	}
	best, far := 0, -1
	for _, c := range n.Cells {
		for _, home := range c.NUMANodes {
			if d := distance(home, *node); far < 0 || d < far {
				best, far = c.Cell, d
			}
		}
	}
	return &best
}

type ownVF struct {
	device int // index in Problem.Devices
	index  int
	name   string // "PF/vfN" if it does not exist yet
}

func (a *assembly) handOutVFs() [][]ownVF {
	next := map[int]int{}
	all := make([][]ownVF, len(a.pl.Nodes))
	for i := range a.pl.Nodes {
		for _, v := range a.pl.Nodes[i].VFs {
			dev := &a.p.Devices[v.Device]
			for range v.Count {
				index := dev.FreeVFs[next[v.Device]]
				next[v.Device]++
				all[i] = append(all[i], ownVF{v.Device, index, a.vfName(dev.ID, index)})
			}
		}
	}
	return all
}

func (a *assembly) vfName(pf string, index int) string {
	if s := a.sriov(pf); s != nil {
		for _, v := range s.VFs {
			if v.Index == index && v.Address != nil {
				return v.Address.String()
			}
		}
	}
	return fmt.Sprintf("%s/vf%d", pf, index)
}

func (a *assembly) sriov(pf string) *topology.SRIOV {
	return lists.Find(a.h.NICs, func(n topology.NIC) bool { return n.ID() == pf }).SRIOV
}

// pfCounts includes the last assigned function, and is at least the current number.
func (a *assembly) pfCounts(vfs [][]ownVF) []PFCount {
	byPF := map[int]*PFCount{}
	for _, own := range vfs {
		for _, v := range own {
			c := byPF[v.device]
			if c == nil {
				c = &PFCount{PF: a.p.Devices[v.device].ID}
				byPF[v.device] = c
			}
			if s := a.sriov(c.PF); s != nil && s.Enabled != nil {
				c.Count = max(c.Count, *s.Enabled)
			}
			c.Lab++
			c.Count = max(c.Count, v.index+1)
		}
	}
	return lists.Map(slices.Sorted(maps.Keys(byPF)), func(d int) PFCount { return *byPF[d] })
}

func (a *assembly) hugepages() []Hugepages {
	size := a.p.HugepageBytes
	if size == 0 {
		return nil
	}
	count := map[int]int64{}
	for i := range a.pl.Nodes {
		for _, m := range a.pl.Nodes[i].Memory {
			count[m.NUMANode] += m.Pages * int64(a.p.PageBytes/size)
		}
	}
	held := map[int]int64{}
	for _, n := range a.h.NUMANodes {
		for _, pool := range n.Hugepages {
			if pool.SizeBytes == size && pool.Free != nil && *pool.Free < pool.Total {
				held[n.ID] = int64(pool.Total - *pool.Free)
			}
		}
	}
	return lists.Map(keysOf(count, held), func(node int) Hugepages {
		return Hugepages{NUMANode: node, PageBytes: size, Count: count[node], Held: held[node]}
	})
}

func keysOf(a, b map[int]int64) []int {
	return lists.Distinct(slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b)))
}
