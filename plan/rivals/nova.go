package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// nova is OpenStack Nova with pinned CPUs: nova/virt/hardware.py, numa_fit_instance_to_host. pack
// and spread are the two values of packing_host_numa_cells_allocation_strategy.
func nova(id, name string, pack bool) system {
	return system{
		Rival: Rival{id, name}, spread: true,
		place: func(h *host, i int) error { return h.nova(i, pack) },
	}
}

// novaFits bounds the permutations: n!/(n-k)! of them are 500 million for 8 guest cells on 16 host cells.
const novaFits = 50_000

// A guestCell is what a guest NUMA node asks for.
type guestCell struct {
	cores int
	pages int64
}

// A flavor is an instance's shape and its PCI policy.
type flavor struct {
	cells     []guestCell
	preferred bool // hw:pci_numa_affinity_policy=preferred, in place of legacy
}

func (h *host) nova(i int, pack bool) error {
	r := &h.p.Requests[i]
	flavors := h.flavors(r)
	if len(flavors) == 0 {
		return errors.New("the host is too small for it, whatever hw:numa_nodes")
	}
	for k, f := range flavors {
		cells, devices, ok := h.fit(i, f, pack)
		if !ok {
			continue
		}
		if k > 0 {
			policy := words.Either(f.preferred, "preferred", "legacy")
			h.note("%s: no host cells for hw:numa_nodes=%d; placed with hw:numa_nodes=%d and PCI NUMA policy %s",
				r.Name, len(flavors[0].cells), len(f.cells), policy)
		}
		h.claim(i, f, cells, devices)
		return nil
	}
	if h.fits <= 0 {
		return fmt.Errorf("no valid host was found: given up after %d fits of guest cells", novaFits)
	}
	return fmt.Errorf("no valid host was found: NUMATopologyFilter finds no host cells for hw:numa_nodes=%d or more",
		len(flavors[0].cells))
}

// flavors lists the flavors to try for r, the plainest first. They are written for the empty host,
// as an operator does: each guest cell fits somewhere, all at once.
func (h *host) flavors(r *plan.Request) []flavor {
	cores := map[int]int{}
	for c := range h.p.Cores {
		if core := &h.p.Cores[c]; core.Tenant == "" && !h.reserved[c] && len(core.CPUs) >= r.Threads {
			cores[core.NUMANode]++
		}
	}
	var legacy, preferred []flavor
	for k := 1; k <= min(len(h.nodes), r.Cores); k++ {
		cells := split(r, k)
		room := 0 // host cells that hold the first guest cell, which is the largest
		for i, n := range h.nodes {
			if cores[n] >= cells[0].cores && h.total[i] >= cells[0].pages {
				room++
			}
		}
		if room >= k {
			legacy = append(legacy, flavor{cells, false})
			preferred = append(preferred, flavor{cells, true})
		}
	}
	if len(wants(r)) == 0 {
		return legacy // the PCI policy makes no difference
	}
	return append(legacy, preferred...)
}

// split divides a request among k guest cells, equally or nearly so, the larger ones first. Unequal cells
// take hw:numa_cpus.N in the flavor, which operators write where a number does not divide.
func split(r *plan.Request, k int) []guestCell {
	cells := make([]guestCell, k)
	for c := range cells {
		cells[c] = guestCell{r.Cores / k, r.Pages / int64(k)}
		if c < r.Cores%k {
			cells[c].cores++
		}
		if int64(c) < r.Pages%int64(k) {
			cells[c].pages++
		}
	}
	return cells
}

// fit finds the first permutation of host cells that holds the flavor, and the devices that go with it.
func (h *host) fit(i int, f flavor, pack bool) (cells []int, devices plan.NodePlacement, ok bool) {
	r := &h.p.Requests[i]
	order := h.nodes // a guest with a cell for each is tried on them as they are
	if len(f.cells) < len(h.nodes) {
		order = h.hostCells(r, pack)
	}
	type key struct{ node, cores int }
	fits := map[key]bool{} // nothing is taken before claim, so that a verdict holds
	pinned := func(node, cores int) bool {
		k := key{node, cores}
		if _, known := fits[k]; !known {
			fits[k] = h.novaPins(node, cores, r.Threads) != nil
		}
		return fits[k]
	}
	var try func(chosen []int) bool
	try = func(chosen []int) bool {
		g := len(chosen)
		if g == len(f.cells) {
			cells = chosen
			devices, ok = h.novaDevices(i, chosen, f.preferred)
			return ok
		}
		from := 0
		if g > 0 && f.cells[g] == f.cells[g-1] {
			// Equal guest cells on the same host cells in another order succeed or fail alike: the
			// ascending order comes first, so the permutations that differ in this only are left
			// out without another result.
			from = slices.Index(order, chosen[g-1]) + 1
		}
		for _, n := range order[from:] {
			if slices.Contains(chosen, n) {
				continue
			}
			if h.fits <= 0 {
				return false
			}
			h.fits--
			if h.pages[n] < f.cells[g].pages || !pinned(n, f.cells[g].cores) {
				continue // no permutation that starts like this one can fit
			}
			if try(append(slices.Clone(chosen), n)) {
				return true
			}
		}
		return false
	}
	ok = try(nil)
	return cells, devices, ok
}

// hostCells orders the host's NUMA nodes as Nova tries them. Nova sorts three times, stably; the last
// key is therefore the first to count: devices, then CPUs, then memory. Only that of CPUs and memory
// turns with the strategy.
func (h *host) hostCells(r *plan.Request, pack bool) []int {
	cpus, devices := map[int]int{}, map[int]int{}
	for cpu := range h.coreOf {
		if h.free(cpu) {
			cpus[h.p.Cores[h.coreOf[cpu]].NUMANode]++
		}
	}
	for d, n := range h.assignable() {
		if home := h.p.Devices[d].NUMANode; home != nil {
			devices[*home] += n
		}
	}
	strategy, wanted := words.Either(pack, 1, -1), words.Either(len(wants(r)) > 0, -1, 1) // ascending is 1
	order := slices.Clone(h.nodes)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(wanted*cmp.Compare(devices[a], devices[b]), strategy*cmp.Compare(cpus[a], cpus[b]),
			strategy*cmp.Compare(h.pages[a], h.pages[b]))
	})
	return order
}

// novaPins chooses the CPUs for one guest cell on host cell n; nil if it does not fit.
func (h *host) novaPins(n, cores, threads int) []int {
	var siblings [][]int
	full := 0
	for _, core := range h.p.Cores {
		if core.NUMANode != n {
			continue
		}
		full = max(full, len(core.CPUs))
		free := slices.DeleteFunc(slices.Clone(core.CPUs), func(cpu int) bool { return !h.free(cpu) })
		if len(free) > 0 {
			siblings = append(siblings, free)
		}
	}
	slices.SortFunc(siblings, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
	switch {
	case threads == full:
		return packPrefer(siblings, cores*threads)
	case threads == 1:
		return packIsolate(siblings, full, cores)
	}
	// Between one thread and all of them Nova has no policy. The cores are shown to it with that many threads.
	for s := range siblings {
		siblings[s] = siblings[s][:min(len(siblings[s]), threads)]
	}
	return packPrefer(siblings, cores*threads)
}

// packPrefer and packIsolate are what _pack_instance_onto_cores of nova/virt/hardware.py does by each thread policy: as
// many siblings of a core as there are go to one guest cell, or only one of each.

// packPrefer pins vcpus to sets of free siblings by thread policy prefer; nil if there are too few CPUs.
func packPrefer(siblings [][]int, vcpus int) []int {
	all := slices.Concat(siblings...)
	for threads := len(all); threads >= 1; threads-- {
		var pins []int
		for _, s := range siblings {
			if len(s) >= threads {
				pins = append(pins, s[:threads]...)
			}
		}
		if len(pins) >= vcpus {
			return pins[:vcpus]
		}
	}
	if len(all) >= vcpus {
		return all[:vcpus]
	}
	return nil
}

// packIsolate pins vcpus to one thread each of wholly free cores; nil if there are too few.
func packIsolate(siblings [][]int, threads, vcpus int) []int {
	free := lists.Filter(siblings, func(s []int) bool { return len(s) == threads })
	if len(free) < vcpus {
		return nil
	}
	return lists.Map(free[:vcpus], func(s []int) int { return s[0] })
}

// claim takes what fit found. The pins are those that fit saw, since nothing was taken in between.
func (h *host) claim(i int, f flavor, cells []int, n plan.NodePlacement) {
	r := &h.p.Requests[i]
	var cpus []int
	got := map[int]int64{}
	for g, cell := range cells {
		cpus = append(cpus, h.novaPins(cell, f.cells[g].cores, r.Threads)...)
		h.pages[cell] -= f.cells[g].pages
		got[cell] += f.cells[g].pages
	}
	for _, c := range cpus {
		h.user[c] = i
	}
	cores := h.round(i, cpus)
	if r.Threads < h.threads() {
		for _, c := range cpus { // isolate: siblings go with the core
			for _, sibling := range h.p.Cores[h.coreOf[c]].CPUs {
				h.user[sibling] = i
			}
		}
	}
	for _, d := range slices.Concat(n.GPUs, n.NICs) {
		h.gone[d] = i + 1
	}
	for _, v := range n.VFs {
		h.vfs[v.Device] -= v.Count
	}
	n.Memory = h.pageList(got)
	h.put(n, cores)
}

// A pool is what Nova knows of devices: how many of equal properties there are, and on which NUMA node.
type pool struct {
	kind, vendor, model string
	numa                int // noNUMA where the device does not report it
	parent              int // of virtual functions their device, else -1
}

// noNUMA is the NUMA node of devices that report none.
const noNUMA = -1

// assignable counts, by device, the units that are free of what the lab asks for: 1 whole, and
// virtual functions where somebody wants such.
func (h *host) assignable() map[int]int {
	units := map[int]int{}
	for i := range h.p.Requests {
		for _, w := range wants(&h.p.Requests[i]) {
			for _, d := range w.Any {
				switch {
				case h.gone[d] != 0:
				case w.kind == wantVF:
					units[d] = max(units[d], h.vfs[d])
				case h.vfs[d] == h.p.Devices[d].VFs:
					units[d] = max(units[d], 1)
				}
			}
		}
	}
	return units
}

// novaDevices chooses the devices of request i for an instance on some host cells. What it takes is
// on trial: the host is left as it was.
func (h *host) novaDevices(i int, cells []int, preferred bool) (plan.NodePlacement, bool) {
	gone, vfs := slices.Clone(h.gone), slices.Clone(h.vfs)
	defer func() { h.gone, h.vfs = gone, vfs }()
	var n plan.NodePlacement
	for _, w := range wants(&h.p.Requests[i]) {
		need := w.Count
		for _, p := range h.pools(w, i, cells, need, preferred) {
			for k := len(p) - 1; k >= 0 && need > 0; k-- {
				if units := min(need, h.left(w, p[k], i)); units > 0 {
					h.take(&n, w, p[k], units, i)
					need -= units
				}
			}
		}
		if need > 0 {
			return plan.NodePlacement{}, false
		}
	}
	return n, true
}

// pools returns the devices that may serve a want, in pools, in the order in which Nova uses them.
func (h *host) pools(w want, i int, cells []int, need int, preferred bool) [][]int {
	var keys []pool
	devices := map[pool][]int{}
	units := map[pool]int{}
	for _, d := range w.Any {
		left := h.left(w, d, i)
		if left == 0 {
			continue
		}
		dev := &h.p.Devices[d]
		key := pool{dev.Kind, dev.Vendor, dev.Model, words.ValueOr(dev.NUMANode, noNUMA), -1}
		if w.kind == wantVF {
			key.parent = d
		}
		if _, ok := devices[key]; !ok {
			keys = append(keys, key)
		}
		devices[key] = append(devices[key], d)
		units[key] += left
	}
	// Nova filters by ever weaker policies until the pools hold enough: on the instance's cells;
	// also those without a NUMA node; under policy preferred all, the others last.
	const onCells, unknown, elsewhere = 0, 1, 2
	where := func(key pool) int {
		switch {
		case slices.Contains(cells, key.numa):
			return onCells
		case key.numa == noNUMA:
			return unknown
		}
		return elsewhere
	}
	var have [3]int
	for _, key := range keys {
		have[where(key)] += units[key]
	}
	farthest := unknown
	switch {
	case have[onCells] >= need:
		farthest = onCells
	case preferred && have[onCells]+have[unknown] < need:
		farthest = elsewhere
	}
	var list, last [][]int
	for _, key := range keys {
		switch far := where(key); {
		case far > farthest:
		case far == elsewhere:
			last = append(last, devices[key])
		default:
			list = append(list, devices[key])
		}
	}
	return append(list, last...)
}
