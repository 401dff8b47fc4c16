package rivals

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

const (
	wantGPU = iota
	wantNIC
	wantVF
)

type want struct {
	plan.Want
	kind int
}

// wants has a want with an address before one for any device.
func wants(r *plan.Request) []want {
	var list []want
	for kind, ws := range [][]plan.Want{wantGPU: r.GPUs, wantNIC: r.NICs, wantVF: r.VFs} {
		first := len(list)
		list = append(list, lists.Map(ws, func(w plan.Want) want { return want{w, kind} })...)
		slices.SortStableFunc(list[first:], func(a, b want) int { return cmp.Compare(len(a.Any), len(b.Any)) })
	}
	return list
}

func (w want) text() string {
	kind := [...]string{wantGPU: "GPUs", wantNIC: "NICs", wantVF: "virtual functions"}[w.kind]
	if w.Text == "" {
		return kind
	}
	return fmt.Sprintf("%s (%s)", kind, w.Text)
}

// left is 0 if part of a device's bundle is elsewhere, or is named by a later lab node: most rivals do not know
// bundles, but no virtual machine starts with a split group.
func (h *host) left(w want, d, i int) int {
	dev := &h.p.Devices[d]
	if last, named := h.lastNamed[dev.Bundle]; h.gone[d] != 0 || named && last > i {
		return 0
	}
	for k, other := range h.p.Devices {
		if other.Bundle != dev.Bundle {
			continue
		}
		if g := h.gone[k]; g != 0 && (g != i+1 || w.kind == wantVF) {
			return 0
		}
		if w.kind != wantVF && h.vfs[k] < other.VFs {
			return 0
		}
	}
	switch {
	case w.kind == wantVF:
		return h.vfs[d]
	case dev.Whole:
		return 1
	}
	return 0
}

func (h *host) take(to *plan.NodePlacement, w want, d, n, i int) {
	switch w.kind {
	case wantGPU:
		h.gone[d] = i + 1
		to.GPUs = append(to.GPUs, d)
	case wantNIC:
		h.gone[d] = i + 1
		to.NICs = append(to.NICs, d)
	case wantVF:
		h.vfs[d] -= n
		if k := slices.IndexFunc(to.VFs, func(v plan.VFCount) bool { return v.Device == d }); k >= 0 {
			to.VFs[k].Count += n
			return
		}
		to.VFs = append(to.VFs, plan.VFCount{Device: d, Count: n})
		slices.SortFunc(to.VFs, func(a, b plan.VFCount) int { return cmp.Compare(a.Device, b.Device) })
	}
}

// byAddress is like a user reading lspci from the top.
func (h *host) byAddress(i int) (n plan.NodePlacement, err error) {
	for _, w := range wants(&h.p.Requests[i]) {
		need := w.Count
		for _, d := range w.Any {
			if k := min(need, h.left(w, d, i)); k > 0 {
				h.take(&n, w, d, k, i)
				need -= k
			}
		}
		if need > 0 {
			return n, fmt.Errorf("%d of %d %s are free", w.Count-need, w.Count, w.text())
		}
	}
	return n, nil
}
