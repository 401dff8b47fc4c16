package rivals

import (
	"slices"

	"github.com/rackless/rackless/plan"
)

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
		key := pool{dev.Kind, dev.Vendor, dev.Model, noNUMA, -1}
		if dev.NUMANode != nil {
			key.numa = *dev.NUMANode
		}
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
