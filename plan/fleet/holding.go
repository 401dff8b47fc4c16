package fleet

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// problem returns a lab on the host as it is now. Cores and devices are the host's own: the search
// only reads them, and a plan that is assembled has to be so before the host changes.
func (n *host) problem(t *template, l *lab.Lab) *plan.Problem {
	p := *t.problem
	p.Lab, p.Host = l.Name, n.name
	p.Cores, p.Devices = n.cores, n.devices
	p.NUMANodes = slices.Clone(p.NUMANodes)
	n.reserve(&p)
	p.Requests = slices.Clone(p.Requests)
	for i := range p.Requests {
		r := &p.Requests[i]
		r.Name = l.Nodes[i].Name
		r.GPUs = available(r.GPUs, func(d int) bool { return n.devices[d].Whole })
		r.NICs = available(r.NICs, func(d int) bool { return n.devices[d].Whole })
		r.VFs = available(r.VFs, func(d int) bool { return n.devices[d].VFs > 0 })
	}
	return &p
}

// reserve takes off a problem what the labs on the host hold of its memory, and keeps what any of them wants left to
// the host. The cores of their emulator threads are a part of that, as they are in the plan of one lab; one core at
// least is left for those of the new lab.
func (n *host) reserve(p *plan.Problem) {
	emulators := map[int]int{} // by NUMA node
	count := 0
	for _, h := range n.held {
		for _, i := range h.emulators {
			emulators[n.cores[i].NUMANode]++
			count++
		}
	}
	for _, h := range n.held {
		p.ReserveCores = max(p.ReserveCores, h.asked.ReserveCores)
	}
	p.ReserveCores = max(min(1, p.ReserveCores), p.ReserveCores-count)
	for i := range p.NUMANodes {
		q := &p.NUMANodes[i]
		bytes := pagesOf(p, i)
		for _, h := range n.held {
			q.ReserveCores = max(q.ReserveCores, h.asked.NUMANodes[i].ReserveCores)
			bytes = min(bytes, pagesOf(h.asked, i))
		}
		q.ReserveCores = max(0, q.ReserveCores-emulators[q.ID])
		if q.Pages != nil {
			q.Pages = new(max(0, bytes-n.bytes[i]) / int64(p.PageBytes))
		}
	}
}

// pagesOf returns how many bytes a NUMA node may give by a problem, 0 where that is not known.
func pagesOf(p *plan.Problem, node int) int64 {
	if pages := p.NUMANodes[node].Pages; pages != nil {
		return *pages * int64(p.PageBytes)
	}
	return 0
}

// available returns wants with only those devices that are left.
func available(wants []plan.Want, left func(int) bool) []plan.Want {
	return lists.Map(wants, func(w plan.Want) plan.Want {
		w.Any = lists.Filter(w.Any, left)
		return w
	})
}

// A holding is what a lab holds of a host.
type holding struct {
	host      *host
	tenant    string
	asked     *plan.Problem // on an empty host
	cores     []int         // indexes of host.cores
	emulators []int         // likewise, of QEMU's own threads
	bytes     map[int]int64 // by index of the NUMA node
	bundles   []int
	vfs       []heldVFs
}

// heldVFs are virtual functions of a NIC.
type heldVFs struct {
	device  int
	indexes []int
}

// hold takes what a plan needs. Like tenants that run, a lab holds the cores of its emulator threads.
func (n *host) hold(asked *plan.Problem, placed *Placed) *holding {
	p, pl := placed.Problem, &placed.Outcome.Placement
	h := &holding{host: n, tenant: placed.Lab.Name, asked: asked, bytes: map[int]int64{}}
	index := make(map[int]int, len(n.cores))
	for i := range n.cores {
		index[n.cores[i].ID] = i
		if slices.ContainsFunc(placed.Plan.Nodes, func(own plan.Node) bool {
			return own.EmulatorCPUs.Union(own.IOThreadCPUs).Overlaps(topology.CPUs(n.cores[i].CPUs...))
		}) {
			h.emulators = append(h.emulators, i)
		}
	}
	// virtual functions of each NIC: the free ones go out in order, as plan.Assemble hands them out
	taken := map[int]int{}
	for node := range lists.Refs(pl.Nodes) {
		h.cores = append(h.cores, lists.Map(node.Cores, func(id int) int { return index[id] })...)
		for _, m := range node.Memory {
			k := slices.IndexFunc(p.NUMANodes, func(x plan.NUMANode) bool { return x.ID == m.NUMANode })
			if p.NUMANodes[k].Pages != nil {
				h.bytes[k] += m.Pages * int64(p.PageBytes)
			}
		}
		for _, d := range append(slices.Clone(node.GPUs), node.NICs...) {
			h.bundles = append(h.bundles, n.devices[d].Bundle)
		}
		for _, v := range node.VFs {
			first := taken[v.Device]
			taken[v.Device] += v.Count
			h.vfs = append(h.vfs, heldVFs{v.Device, slices.Clone(n.devices[v.Device].FreeVFs[first : first+v.Count])})
		}
	}
	n.held = append(n.held, h)
	n.update()
	return h
}

// release gives back what is held.
func (h *holding) release() {
	n := h.host
	n.held = slices.DeleteFunc(n.held, func(other *holding) bool { return other == h })
	n.update()
}

// update makes what is left from the empty host and the holdings. Problems that were handed out go
// on showing the host as it was.
func (n *host) update() {
	n.cores, n.devices, n.bytes = slices.Clone(n.shape.cores), slices.Clone(n.shape.devices),
		make([]int64, len(n.shape.bytes))
	for _, h := range n.held {
		for _, i := range append(slices.Clone(h.cores), h.emulators...) {
			n.cores[i].Tenant = h.tenant
		}
		for k, b := range h.bytes {
			n.bytes[k] += b
		}
		for i := range n.devices {
			if d := &n.devices[i]; slices.Contains(h.bundles, d.Bundle) {
				d.Whole, d.Refused, d.VFs, d.FreeVFs = false, "held by "+h.tenant, 0, nil
			}
		}
		for _, v := range h.vfs {
			d := &n.devices[v.device]
			d.FreeVFs = slices.DeleteFunc(slices.Clone(d.FreeVFs), func(i int) bool {
				return slices.Contains(v.indexes, i)
			})
			d.VFs = len(d.FreeVFs)
			for i := range n.devices {
				if o := &n.devices[i]; o.Bundle == d.Bundle {
					o.Whole, o.Refused = false, "virtual functions of "+d.ID+" are held by "+h.tenant
				}
			}
		}
	}
	n.count()
}
