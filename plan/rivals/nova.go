package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
)

// nova is OpenStack Nova with pinned CPUs: nova/virt/hardware.py, numa_fit_instance_to_host.
func nova(pack bool) system {
	s := system{
		Rival: Rival{
			ID: "nova", Name: "OpenStack Nova, hw:cpu_policy=dedicated, spread",
			Version: "Nova master of 2026-08-21, commit 00a030403f",
			Rules: []string{
				"A flavor has hw:numa_nodes guest cells with equal parts of vCPUs and memory (hw:numa_cpus.N and " +
					"hw:numa_mem.N where they do not divide).",
				"Host cells are ordered by three stable sorts, the last of which counts most: free memory, free " +
					"dedicated CPUs, PCI devices. Spread puts more memory and CPUs first. Whatever the strategy, " +
					"cells with more devices come first where the instance wants devices, last where it does not.",
				"Guest cells are tried on the permutations of the host cells in that order. The first that fits " +
					"is taken.",
				"A guest cell fits where there are enough free pages of the page size and enough free dedicated " +
					"CPUs, without overcommit.",
				"hw:cpu_thread_policy=prefer: cores are grouped by free siblings, the most siblings first; the first " +
					"group that holds all vCPUs of the cell gives them in order, whole sets of siblings. If none " +
					"does, single CPUs in order.",
				"hw:cpu_thread_policy=isolate: one thread of each wholly free core, whose siblings stay empty.",
				"PCI, policy legacy: devices on the chosen host cells; when these are too few, also devices that " +
					"report no NUMA node. Policy preferred: any others after these.",
				"Devices are kept in pools of equal vendor, product, NUMA node and type (virtual functions also of " +
					"equal parent). Pools are used in order, each from its end.",
			},
			Sources: []string{
				"openstack/nova, nova/virt/hardware.py: numa_fit_instance_to_host, _numa_fit_instance_cell, " +
					"_pack_instance_onto_cores: https://opendev.org/openstack/nova",
				"openstack/nova, nova/pci/stats.py: consume_requests, _filter_pools_for_numa_cells",
				"Nova administrator guide, CPU topologies (order of NUMA nodes, thread policies): " +
					"https://docs.openstack.org/nova/latest/admin/cpu-topologies.html",
				"Nova release notes 26.0.0: [compute]/packing_host_numa_cells_allocation_strategy is false by default",
				"Red Hat OpenStack Platform 16.0, Network Functions Virtualization Planning and Configuration Guide, " +
					"7.5 Two NUMA node example: " +
					"https://docs.redhat.com/en/documentation/red_hat_openstack_platform/16.0/",
			},
			Differs: []string{
				"cpu_dedicated_set leaves out as many whole cores as the lab reserves, taken from the NUMA nodes in " +
					"turn: Red Hat's guide keeps the first core of each NUMA node. Emulator threads float there " +
					"(hw:emulator_threads_policy=share).",
				"A flavor is written for the empty host: the fewest cells of which as many fit at once. Where that " +
					"is refused, more cells are tried, then the same with hw:pci_numa_affinity_policy=preferred, as " +
					"operators do. Notes say when.",
				"Lab nodes with one vCPU for each core use isolate, which today's Nova grants on hosts without SMT " +
					"alone; with vcpu_pin_set it granted it on all.",
				"SLIT distances, PCIe paths, L3 caches and lab nodes yet to come are not looked at; there is no cost " +
					"to compare, the first fit counts.",
				"The order of sibling sets within a cell is that of a Python set; taken as ascending.",
				"Devices whose IOMMU group is in use elsewhere are not offered. The host cell sort counts devices " +
					"that the lab could ask for.",
				fmt.Sprintf("The permutations are given up after %d fits for the lab. Nova itself would go on, for "+
					"minutes.", novaFits),
			},
		},
		start: func(h *host) error {
			h.reserve(true)
			h.allowed = novaFits
			return nil
		},
		place: func(h *host, i int) error { return h.nova(i, pack) },
	}
	if pack {
		s.ID, s.Name = "nova-pack", "OpenStack Nova, hw:cpu_policy=dedicated, pack"
		s.Rules = slices.Clone(s.Rules)
		s.Rules[1] = "Host cells are ordered by three stable sorts, the last of which counts most: free memory, free " +
			"dedicated CPUs, PCI devices. Pack puts less memory and fewer CPUs first. Whatever the strategy, cells " +
			"with more devices come first where the instance wants devices, last where it does not."
		s.Sources = slices.Clone(s.Sources)
		s.Sources[3] = "Nova release notes 25.0.0: [compute]/packing_host_numa_cells_allocation_strategy, true was " +
			"the default of that release"
	}
	return s
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
			policy := "legacy"
			if f.preferred {
				policy = "preferred"
			}
			h.note("%s: no host cells for hw:numa_nodes=%d; placed with hw:numa_nodes=%d and PCI NUMA policy %s",
				r.Name, len(flavors[0].cells), len(f.cells), policy)
		}
		return h.claim(i, f, cells, devices)
	}
	if h.allowed <= 0 {
		return fmt.Errorf("no valid host was found: given up after %d fits of guest cells", novaFits)
	}
	return fmt.Errorf("no valid host was found: NUMATopologyFilter finds no host cells for hw:numa_nodes=%d or more",
		len(flavors[0].cells))
}

// flavors lists the flavors to try for r, the plainest first.
func (h *host) flavors(r *plan.Request) []flavor {
	cores, pages := map[int]int{}, map[int]int64{}
	for c := range h.p.Cores {
		if core := &h.p.Cores[c]; core.Tenant == "" && !h.reserved[c] && len(core.CPUs) >= r.Threads {
			cores[core.NUMANode]++
		}
	}
	for _, n := range h.p.NUMANodes {
		pages[n.ID] = unlimited
		if n.Pages != nil {
			pages[n.ID] = *n.Pages
		}
	}
	var flavors []flavor
	for k := 1; k <= len(h.nodes) && k <= r.Cores; k++ {
		cells := split(r, k)
		// The largest cell is the first. That each fits somewhere is what an operator reckons with.
		room := 0
		for _, n := range h.nodes {
			if cores[n] >= cells[0].cores && pages[n] >= cells[0].pages {
				room++
			}
		}
		if room >= k {
			flavors = append(flavors, flavor{cells: cells})
		}
	}
	if len(wants(r)) == 0 {
		return flavors // the PCI policy makes no difference
	}
	for _, f := range slices.Clone(flavors) {
		flavors = append(flavors, flavor{f.cells, true})
	}
	return flavors
}

// split divides a request among k guest cells, equally or nearly so, the larger ones first.
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
	order := h.hostCells(r, pack)
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
			devices, ok = h.novaDevices(i, chosen, f.preferred)
			if ok {
				cells = slices.Clone(chosen)
			}
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
			if h.allowed <= 0 {
				return false
			}
			h.allowed--
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

// hostCells orders the host's NUMA nodes as Nova tries them.
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
	sign := -1
	if pack {
		sign = 1
	}
	order := slices.Clone(h.nodes)
	slices.SortStableFunc(order, func(a, b int) int { return sign * cmp.Compare(h.pages[a], h.pages[b]) })
	slices.SortStableFunc(order, func(a, b int) int { return sign * cmp.Compare(cpus[a], cpus[b]) })
	first := 1
	if len(wants(r)) > 0 {
		first = -1
	}
	slices.SortStableFunc(order, func(a, b int) int { return first * cmp.Compare(devices[a], devices[b]) })
	return order
}

// novaPins chooses the CPUs for one guest cell on host cell n; nil where it does not fit.
func (h *host) novaPins(n, cores, threads int) []int {
	var siblings [][]int
	full := 0
	for c := range h.p.Cores {
		if core := &h.p.Cores[c]; core.NUMANode == n {
			full = max(full, len(core.CPUs))
			if set := slices.DeleteFunc(slices.Clone(core.CPUs), func(cpu int) bool {
				return !h.free(cpu)
			}); len(set) > 0 {
				siblings = append(siblings, set)
			}
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

// packPrefer pins vcpus to sets of free siblings by thread policy prefer; nil where there are too few CPUs.
func packPrefer(siblings [][]int, vcpus int) []int {
	most, all := 0, []int(nil)
	for _, s := range siblings {
		most = max(most, len(s))
		all = append(all, s...)
	}
	for threads := most; threads >= 1; threads-- {
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

// packIsolate pins vcpus to one thread each of wholly free cores; nil where there are too few.
func packIsolate(siblings [][]int, threads, vcpus int) []int {
	var pins []int
	for _, s := range siblings {
		if len(s) == threads {
			pins = append(pins, s[0])
		}
	}
	if len(pins) < vcpus {
		return nil
	}
	return pins[:vcpus]
}

// claim takes what fit found.
func (h *host) claim(i int, f flavor, cells []int, n plan.NodePlacement) error {
	r := &h.p.Requests[i]
	var cpus []int
	got := map[int]int64{}
	for g, cell := range cells {
		pins := h.novaPins(cell, f.cells[g].cores, r.Threads)
		for _, c := range pins {
			h.user[c] = i
		}
		cpus = append(cpus, pins...)
		h.pages[cell] -= f.cells[g].pages
		got[cell] += f.cells[g].pages
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
	return nil
}
