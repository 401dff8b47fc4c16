package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

// A mip is a planner's problem as a mixed integer program, derived from docs/planner.md alone. It shares no code with
// the search, and its solver HiGHS shares none with us. Minima are found by minimizing the cost of choices, and
// products of a choice with a number of cores are switched off by a large constant.
type mip struct {
	p        *plan.Problem
	rows     bytes.Buffer
	count    int
	cost     []linear
	constant int64
	general  []string
	binary   []string
	groups   []coreGroup
	distance func(a, b int) int64
}

type linear struct {
	n int64
	v string
}

type coreGroup struct {
	node, pkg, l3, threads int
	small                  bool
	size                   int64
}

type unit struct {
	v      string
	device int
}

func newMIP(p *plan.Problem) *mip {
	m := &mip{p: p, distance: func(a, b int) int64 { return int64(p.Distance(a, b)) }}
	at := map[coreGroup]int{}
	for _, c := range p.Cores {
		if c.Tenant != "" {
			continue
		}
		g := coreGroup{c.NUMANode, c.Package, c.L3, len(c.CPUs), c.Efficiency, 0}
		k, known := at[g]
		if !known {
			k = len(m.groups)
			at[g], m.groups = k, append(m.groups, g)
		}
		m.groups[k].size++
	}
	m.reserves()
	units, own := make([][]unit, len(p.Requests)), make([][]linear, len(p.Requests))
	for i := range p.Requests {
		m.cores(i)
		units[i] = m.devices(i)
		own[i] = m.own(i, units[i])
		m.cost = append(m.cost, own[i]...)
		m.memory(i)
		m.emulator(i)
	}
	m.limits(units)
	m.wiring(units)
	m.caches()
	m.affinity(units)
	m.unequal(own)
	return m
}

func (m *mip) row(sum []linear, compare string, n int64) {
	m.count++
	fmt.Fprintf(&m.rows, " r%d:", m.count)
	write(&m.rows, sum)
	fmt.Fprintf(&m.rows, " %s %d\n", compare, n)
}

func write(b *bytes.Buffer, sum []linear) {
	for k, x := range sum {
		if k%8 == 7 {
			b.WriteString("\n  ") // limited length of lines
		}
		fmt.Fprintf(b, " %+d %s", x.n, x.v)
	}
}

func (m *mip) choice(format string, args ...any) string {
	v := fmt.Sprintf(format, args...)
	m.binary = append(m.binary, v)
	return v
}

func (m *mip) number(format string, args ...any) string {
	v := fmt.Sprintf(format, args...)
	m.general = append(m.general, v)
	return v
}

func coresVar(i, group int) string  { return fmt.Sprintf("cores_%d_%d", i, group) }
func onNodeVar(i, node int) string  { return fmt.Sprintf("on_%d_%d", i, node) }
func wholeVar(i, device int) string { return fmt.Sprintf("whole_%d_%d", i, device) }
func vfVar(i, device, nth int) string {
	return fmt.Sprintf("vf_%d_%d_%d", i, device, nth)
}
func ownerVar(i, bundle int) string { return fmt.Sprintf("owner_%d_%d", i, bundle) }
func pagesVar(i, node int) string   { return fmt.Sprintf("pages_%d_%d", i, node) }

func (m *mip) given(in func(coreGroup) bool) (sum []linear, size int64) {
	for g, group := range m.groups {
		if in(group) {
			size += group.size
			for i := range m.p.Requests {
				sum = append(sum, linear{1, coresVar(i, g)})
			}
		}
	}
	return sum, size
}

// reserves has rules 1 and 2.
func (m *mip) reserves() {
	for g := range m.groups {
		sum, size := m.given(func(o coreGroup) bool { return o == m.groups[g] })
		m.row(sum, "<=", size)
	}
	all, size := m.given(func(coreGroup) bool { return true })
	m.row(all, "<=", size-int64(m.p.ReserveCores))
	for _, n := range m.p.NUMANodes {
		sum, size := m.given(func(g coreGroup) bool { return g.node == n.ID })
		m.row(append(sum, linear{0, "zero"}), "<=", size-int64(n.ReserveCores))
	}
	for _, k := range m.p.Packages {
		if sum, size := m.given(func(g coreGroup) bool { return g.pkg == k.ID }); k.Busy != "" && size > 0 {
			m.row(sum, "<=", size-1)
		}
	}
}

func (m *mip) cores(i int) {
	r := &m.p.Requests[i]
	var all []linear
	for g, group := range m.groups {
		v := m.number("cores_%d_%d", i, g)
		all = append(all, linear{1, v})
		if group.threads < r.Threads {
			m.row([]linear{{1, v}}, "=", 0)
		}
	}
	m.row(all, "=", int64(r.Cores))
	for _, n := range m.p.NUMANodes {
		on := m.choice("on_%d_%d", i, n.ID)
		here := []linear{{-1, on}}
		for g, group := range m.groups {
			if group.node == n.ID {
				here = append(here, linear{1, coresVar(i, g)})
			}
		}
		m.row(here, ">=", 0)
		here[0].n = -int64(r.Cores)
		m.row(here, "<=", 0)
	}
}

func (m *mip) devices(i int) []unit {
	r := &m.p.Requests[i]
	var units []unit
	for kind, wants := range map[string][]plan.Want{plan.KindGPU: r.GPUs, plan.KindNIC: r.NICs} {
		for d := range m.p.Devices {
			if m.p.Devices[d].Kind != kind || !m.p.Devices[d].Whole {
				continue
			}
			units = append(units, unit{m.choice("whole_%d_%d", i, d), d})
			m.row([]linear{{1, wholeVar(i, d)}, {-1, ownerVar(i, m.p.Devices[d].Bundle)}}, "<=", 0)
			has := []linear{{-1, wholeVar(i, d)}}
			for w := range wants {
				has = append(has, linear{1, m.choice("get_%s_%d_%d_%d", kind, i, w, d)})
			}
			m.row(has, "=", 0)
		}
		for w, want := range wants {
			m.want(want, func(d int) string {
				if m.p.Devices[d].Kind != kind || !m.p.Devices[d].Whole {
					return ""
				}
				return fmt.Sprintf("get_%s_%d_%d_%d", kind, i, w, d)
			}, kind, i, w)
		}
	}
	_, _, vfs := counts(r)
	for d := range m.p.Devices {
		has := []linear{{0, "zero"}}
		for k := range min(vfs, max(0, m.p.Devices[d].VFs)) {
			units = append(units, unit{m.choice("vf_%d_%d_%d", i, d, k), d})
			has = append(has, linear{-1, vfVar(i, d, k)})
			if k > 0 {
				m.row([]linear{{1, vfVar(i, d, k-1)}, {-1, vfVar(i, d, k)}}, ">=", 0)
			}
		}
		for w := range r.VFs {
			has = append(has, linear{1, m.number("get_vf_%d_%d_%d", i, w, d)})
		}
		m.row(has, "=", 0)
	}
	for w, want := range r.VFs {
		m.want(want, func(d int) string { return fmt.Sprintf("get_vf_%d_%d_%d", i, w, d) }, "vf", i, w)
	}
	return units
}

func (m *mip) want(want plan.Want, get func(d int) string, kind string, i, w int) {
	sum := []linear{{0, "zero"}}
	any := map[int]bool{}
	for _, d := range want.Any {
		if v := get(d); v != "" && !any[d] {
			sum = append(sum, linear{1, v})
		}
		any[d] = true
	}
	m.row(sum, "=", int64(want.Count))
	for d := range m.p.Devices {
		if v := get(d); v != "" && !any[d] {
			m.row([]linear{{1, v}}, "=", 0)
		}
	}
}

// limits has rules 4 and 5, and nic_shared.
func (m *mip) limits(units [][]unit) {
	bundles := map[int][]linear{}
	for d := range m.p.Devices {
		if b := m.p.Devices[d].Bundle; bundles[b] == nil {
			for i := range m.p.Requests {
				bundles[b] = append(bundles[b], linear{1, m.choice("owner_%d_%d", i, b)})
			}
			m.row(bundles[b], "<=", 1)
		}
	}
	for d := range m.p.Devices {
		whole, vfs := []linear{{0, "zero"}}, []linear{{0, "zero"}}
		for i := range units {
			for _, u := range units[i] {
				switch {
				case u.device != d:
				case u.v == wholeVar(i, d):
					whole = append(whole, linear{1, u.v})
				default:
					vfs = append(vfs, linear{1, u.v})
				}
			}
			for j := range i {
				if m.users(i, d) && m.users(j, d) {
					both := m.choice("both_%d_%d_%d", j, i, d)
					m.row([]linear{{1, vfVar(i, d, 0)}, {1, vfVar(j, d, 0)}, {-1, both}}, "<=", 1)
					m.cost = append(m.cost, linear{2 * m.p.Weights.NICShared, both})
				}
			}
		}
		m.row(whole, "<=", 1)
		have := int64(max(0, m.p.Devices[d].VFs))
		for _, o := range bundles[m.p.Devices[d].Bundle] {
			vfs = append(vfs, linear{have, o.v})
		}
		m.row(vfs, "<=", have)
	}
}

// wiring has card_shared and unlinked.
func (m *mip) wiring(units [][]unit) {
	cards, nets, linked := map[string][]int{}, map[int][]int{}, false
	for d := range m.p.Devices {
		dev := &m.p.Devices[d]
		if card := dev.Card(); dev.Kind == plan.KindNIC && card != "" {
			cards[card] = append(cards[card], d)
		}
		linked = linked || dev.Net > 0
		net := dev.Net
		if net == 0 {
			net = -1 - d
		}
		nets[net] = append(nets[net], d)
	}
	some := func(sum []linear, i int, devices []int) []linear {
		for _, u := range units[i] {
			if slices.Contains(devices, u.device) && m.p.Devices[u.device].Kind == plan.KindNIC {
				sum = append(sum, linear{-1, u.v})
			}
		}
		return sum
	}
	for i := range units {
		for j := range i {
			for card, ports := range cards {
				if len(ports) < 2 {
					continue
				}
				shares := m.choice("card_%d_%d_%s", i, j, strings.NewReplacer(":", "_").Replace(card))
				both := []linear{{1, shares}}
				for _, d := range ports {
					common := m.choice("common_%d_%d_%d", i, j, d)
					m.row(some([]linear{{1, common}}, i, []int{d}), "<=", 0)
					m.row(some([]linear{{1, common}}, j, []int{d}), "<=", 0)
					both = append(both, linear{1, common})
				}
				for _, a := range some(nil, i, ports) {
					for _, b := range some(nil, j, ports) {
						m.row(append(slices.Clone(both), a, b), ">=", -1)
					}
				}
				m.cost = append(m.cost, linear{2 * m.p.Weights.CardShared, shares})
			}
			if !linked {
				continue
			}
			_, a, b := counts(&m.p.Requests[i])
			_, c, e := counts(&m.p.Requests[j])
			if a+b == 0 || c+e == 0 {
				continue
			}
			m.constant += 2 * m.p.Weights.Unlinked * min(int64(a+b), int64(c+e))
			for net, ports := range nets {
				reached := m.number("reached_%d_%d_%d", i, j, net+len(m.p.Devices))
				m.row(some([]linear{{1, reached}}, i, ports), "<=", 0)
				m.row(some([]linear{{1, reached}}, j, ports), "<=", 0)
				m.cost = append(m.cost, linear{-2 * m.p.Weights.Unlinked, reached})
			}
		}
	}
}

func (m *mip) users(i, d int) bool {
	_, _, vfs := counts(&m.p.Requests[i])
	return vfs > 0 && m.p.Devices[d].VFs > 0
}

// own returns the terms compared by "unequal".
func (m *mip) own(i int, units []unit) []linear {
	p, r := m.p, &m.p.Requests[i]
	w := p.Weights.Of(r)
	var cost []linear
	for _, u := range units {
		dev := &p.Devices[u.device]
		if dev.Kind == plan.KindNIC {
			port := dev.RateSteps() * p.Weights.NICRate
			if !dev.RDMA {
				port += p.Weights.NICRDMA
			}
			cost = append(cost, linear{port, u.v})
		}
		if dev.NUMANode == nil {
			continue
		}
		far := m.number("far_%s", u.v)
		most := int64(0)
		sum, near := []linear{{1, far}}, []linear{{-1, u.v}}
		for g, group := range m.groups {
			d := m.distance(group.node, *dev.NUMANode)
			most = max(most, d)
			sum = append(sum, linear{-d, coresVar(i, g)})
		}
		most *= int64(r.Cores)
		m.row(append(sum, linear{-most, u.v}), ">=", -most)
		cost = append(cost, linear{w.PerCore(), far})
		for _, n := range p.NUMANodes {
			v := m.choice("near_%s_%d", u.v, n.ID)
			m.row([]linear{{1, v}, {-1, onNodeVar(i, n.ID)}}, "<=", 0)
			near = append(near, linear{1, v})
			cost = append(cost, linear{w.Nearest() * m.distance(n.ID, *dev.NUMANode), v})
		}
		m.row(near, ">=", 0)
	}
	cost = append(cost, m.paths(i, units)...)
	for _, n := range p.NUMANodes {
		cost = append(cost, linear{w.NUMASpan, onNodeVar(i, n.ID)})
	}
	cost = append(cost, m.deviceShare(i, units), m.coreBalance(i))
	m.constant -= w.NUMASpan
	for g, group := range m.groups {
		if group.small {
			cost = append(cost, linear{w.EfficiencyCores, coresVar(i, g)})
		}
	}
	return cost
}

func (m *mip) coresOn(i, node int, n int64) (sum []linear) {
	for g, group := range m.groups {
		if group.node == node {
			sum = append(sum, linear{n, coresVar(i, g)})
		}
	}
	return sum
}

// coreBalance chooses the number of NUMA nodes; each with cores lacks the difference to its part.
func (m *mip) coreBalance(i int) linear {
	missing, one, count := m.number("uneven_%d", i), []linear{{0, "zero"}}, []linear{{0, "zero"}}
	cores := int64(m.p.Requests[i].Cores)
	for _, n := range m.p.NUMANodes {
		count = append(count, linear{-1, onNodeVar(i, n.ID)})
	}
	for k := 1; k <= len(m.p.NUMANodes); k++ {
		spans := m.choice("spans_%d_%d", i, k)
		one, count = append(one, linear{1, spans}), append(count, linear{int64(k), spans})
		all := []linear{{1, missing}}
		for _, n := range m.p.NUMANodes {
			lacks := m.number("lacks_%d_%d_%d", i, k, n.ID)
			// lacks >= part - cores here, if it has cores and the number of nodes is k.
			m.row(append(m.coresOn(i, n.ID, 1), linear{1, lacks}, linear{-cores, onNodeVar(i, n.ID)},
				linear{-cores, spans}), ">=", cores/int64(k)-2*cores)
			all = append(all, linear{-1, lacks})
		}
		m.row(all, ">=", 0)
	}
	m.row(one, "=", 1)
	m.row(count, "=", 0)
	return linear{m.p.Weights.Of(&m.p.Requests[i]).CoreBalance, missing}
}

// Shares go by GPUs if these are on two NUMA nodes or more, or if a guest with guest_numa: off has more of them than
// ports, else by all devices. The largest distance between two NUMA nodes with devices counts.
func (m *mip) deviceShare(i int, units []unit) linear {
	r := &m.p.Requests[i]
	cores, asked := int64(r.Cores), int64(0)
	for _, wants := range [][]plan.Want{r.GPUs, r.NICs, r.VFs} {
		for _, w := range wants {
			asked += int64(w.Count)
		}
	}
	var missing [2][]linear
	has := map[int]string{} // NUMA node to a variable
	several, atLeast := m.choice("several_%d", i), int64(2)
	if gpus, nics, vfs := counts(r); r.GuestNUMA == "off" && gpus > nics+vfs {
		atLeast = 1
	}
	for set := range missing {
		here := map[int][]linear{}
		var known []linear
		for _, u := range units {
			dev := &m.p.Devices[u.device]
			if dev.NUMANode == nil || set == 0 && dev.Kind != plan.KindGPU {
				continue
			}
			here[*dev.NUMANode] = append(here[*dev.NUMANode], linear{cores, u.v})
			known = append(known, linear{-1, u.v})
		}
		one, nodes := []linear{{0, "zero"}}, []linear{{-atLeast, several}}
		var counts []string
		for k := range asked + 1 {
			counts = append(counts, m.choice("known_%d_%d_%d", i, set, k))
			one, known = append(one, linear{1, counts[k]}), append(known, linear{k, counts[k]})
		}
		m.row(one, "=", 1)
		m.row(known, "=", 0)
		for _, n := range m.p.NUMANodes {
			at := m.choice("has_%d_%d_%d", i, set, n.ID)
			sum := append(here[n.ID], linear{-cores, at})
			m.row(sum, ">=", 0)
			m.row(append(here[n.ID], linear{-cores * asked, at}), "<=", 0)
			has[n.ID], nodes = at, append(nodes, linear{1, at})
			share, lacks := m.number("due_%d_%d_%d", i, set, n.ID), m.number("lacking_%d_%d_%d", i, set, n.ID)
			for k := int64(1); k <= asked; k++ {
				// k*share > cores*here - k, if k devices have a known NUMA node.
				row := []linear{{k, share}, {-2 * cores * asked, counts[k]}}
				for _, x := range here[n.ID] {
					row = append(row, linear{-x.n, x.v})
				}
				m.row(row, ">=", 1-k-2*cores*asked)
			}
			m.row(append(m.coresOn(i, n.ID, 1), linear{1, lacks}, linear{-1, share}), ">=", 0)
			missing[set] = append(missing[set], linear{1, lacks})
		}
		if set == 0 {
			m.row(nodes, ">=", 0)
			nodes[0].n = -int64(len(m.p.NUMANodes))
			m.row(nodes, "<=", atLeast-1)
		}
	}
	value := m.number("share_value_%d", i)
	for _, a := range m.p.NUMANodes {
		for _, b := range m.p.NUMANodes {
			far := m.distance(a.ID, b.ID) * asked
			if a.ID == b.ID || far == 0 {
				continue
			}
			// value >= far*missing, if both have devices and this set counts.
			for set, list := range missing {
				most := 2 * far * cores * int64(len(m.p.NUMANodes))
				row := []linear{{1, value}, {-most, has[a.ID]}, {-most, has[b.ID]}}
				for _, x := range list {
					row = append(row, linear{-far, x.v})
				}
				limit := -2 * most
				if set == 0 {
					row, limit = append(row, linear{-most, several}), -3*most
				} else {
					row = append(row, linear{most, several})
				}
				m.row(row, ">=", limit)
			}
		}
	}
	return linear{m.p.Weights.Of(r).DeviceShare, value}
}

// paths returns the cost between each two GPUs, and from each device on the larger side of GPUs and ports to its best
// partner.
func (m *mip) paths(i int, units []unit) []linear {
	gpus, nics, vfs := counts(&m.p.Requests[i])
	var cost []linear
	for x, a := range units {
		for _, b := range units[x+1:] {
			if gpus < 2 || m.p.Devices[a.device].Kind != plan.KindGPU || m.p.Devices[b.device].Kind != plan.KindGPU {
				continue
			}
			both := m.choice("pair_%d_%d_%d", i, a.device, b.device)
			m.row([]linear{{1, a.v}, {1, b.v}, {-1, both}}, "<=", 1)
			cost = append(cost, linear{m.p.Weights.GPUGPUPath * int64(m.p.Path(a.device, b.device).Steps), both})
		}
	}
	if gpus == 0 || nics+vfs == 0 {
		return cost
	}
	payer := plan.KindGPU
	if nics+vfs > gpus {
		payer = plan.KindNIC
	}
	for _, a := range units {
		if m.p.Devices[a.device].Kind != payer {
			continue
		}
		partners := []linear{{-1, a.v}}
		for _, b := range units {
			if m.p.Devices[b.device].Kind == payer {
				continue
			}
			v := m.choice("with_%s_%s", a.v, b.v)
			m.row([]linear{{1, v}, {-1, b.v}}, "<=", 0)
			partners = append(partners, linear{1, v})
			cost = append(cost, linear{m.p.PairCost(m.p.Path(a.device, b.device)), v})
		}
		m.row(partners, ">=", 0)
	}
	return cost
}

func (m *mip) memory(i int) {
	r, w := &m.p.Requests[i], m.p.Weights.Of(&m.p.Requests[i])
	var all []linear
	for _, n := range m.p.NUMANodes {
		pages := m.number("pages_%d_%d", i, n.ID)
		all = append(all, linear{1, pages})
		from := []linear{{-1, pages}}
		for _, o := range m.p.NUMANodes {
			v := m.number("from_%d_%d_%d", i, n.ID, o.ID)
			m.row([]linear{{1, v}, {-r.Pages, onNodeVar(i, o.ID)}}, "<=", 0)
			from = append(from, linear{1, v})
			m.cost = append(m.cost, linear{w.MemoryDistance * m.distance(o.ID, n.ID), v})
		}
		m.row(from, "=", 0)
		// Rounded down: share*cores > pages*here - cores.
		share, missing := m.number("share_%d_%d", i, n.ID), m.number("missing_%d_%d", i, n.ID)
		sum := []linear{{int64(r.Cores), share}}
		for g, group := range m.groups {
			if group.node == n.ID {
				sum = append(sum, linear{-r.Pages, coresVar(i, g)})
			}
		}
		m.row(sum, ">=", -int64(r.Cores)+1)
		m.row([]linear{{1, missing}, {-1, share}, {1, pages}}, ">=", 0)
		m.cost = append(m.cost, linear{w.MemoryBalance, missing})
	}
	m.row(all, "=", r.Pages)
	if i < len(m.p.Requests)-1 {
		return
	}
	for _, n := range m.p.NUMANodes {
		if n.Pages == nil {
			continue
		}
		var sum []linear
		for j := range m.p.Requests {
			sum = append(sum, linear{1, pagesVar(j, n.ID)})
		}
		m.row(sum, "<=", *n.Pages)
	}
}

func (m *mip) emulator(i int) {
	asked, free := 0, int64(0)
	for _, r := range m.p.Requests {
		asked += r.Cores
	}
	for _, g := range m.groups {
		free += g.size
	}
	if free <= int64(asked) {
		return
	}
	var one []linear
	for _, n := range m.p.NUMANodes {
		left := fmt.Sprintf("left_%d", n.ID)
		if i == 0 {
			sum, size := m.given(func(g coreGroup) bool { return g.node == n.ID })
			m.row(append(sum, linear{1, m.choice("left_%d", n.ID)}), "<=", size)
		}
		for _, o := range m.p.NUMANodes {
			v := m.choice("emulator_%d_%d_%d", i, o.ID, n.ID)
			m.row([]linear{{1, v}, {-1, left}}, "<=", 0)
			m.row([]linear{{1, v}, {-1, onNodeVar(i, o.ID)}}, "<=", 0)
			one = append(one, linear{1, v})
			m.cost = append(m.cost, linear{m.p.Weights.EmulatorDistance * m.distance(o.ID, n.ID), v})
		}
	}
	m.row(one, "=", 1)
}

func (m *mip) caches() {
	tenant := map[int]bool{}
	for _, c := range m.p.Cores {
		tenant[c.L3] = tenant[c.L3] || c.Tenant != ""
	}
	l3s := map[int]bool{}
	for _, group := range m.groups {
		if group.l3 < 0 || l3s[group.l3] {
			continue
		}
		l3s[group.l3] = true
		for i := range m.p.Requests {
			has := m.choice("l3_%d_%d", i, group.l3)
			for g, o := range m.groups {
				if o.l3 == group.l3 {
					m.row([]linear{{1, coresVar(i, g)}, {-o.size, has}}, "<=", 0)
				}
			}
			shares := m.choice("shares_%d_%d", i, group.l3)
			m.cost = append(m.cost, linear{m.p.Weights.L3Shared, shares})
			if tenant[group.l3] {
				m.row([]linear{{1, has}, {-1, shares}}, "<=", 0)
			}
			for j := range m.p.Requests {
				if j != i {
					m.row([]linear{{1, has}, {1, fmt.Sprintf("l3_%d_%d", j, group.l3)}, {-1, shares}}, "<=", 1)
				}
			}
		}
	}
}

func (m *mip) affinity(units [][]unit) {
	related := func(how, a, b string) {
		switch how {
		case plan.Same:
			m.row([]linear{{1, a}, {-1, b}}, "=", 0)
		case plan.Different:
			m.row([]linear{{1, a}, {1, b}}, "<=", 1)
		}
	}
	serves := func(i, d int) string {
		v := fmt.Sprintf("serves_%d_%d", i, d)
		sum := []linear{{-1, v}}
		for _, u := range units[i] {
			if u.device == d && (u.v == wholeVar(i, d) || u.v == vfVar(i, d, 0)) {
				sum = append(sum, linear{1, u.v})
			}
		}
		m.row(sum, "=", 0)
		return v
	}
	for _, a := range m.p.Affinity {
		for k, i := range a.Requests {
			for _, j := range a.Requests[:k] {
				for _, n := range m.p.NUMANodes {
					related(a.NUMA, onNodeVar(i, n.ID), onNodeVar(j, n.ID))
				}
				for d := range m.p.Devices {
					if m.p.Devices[d].Kind == plan.KindNIC && a.NIC != "" {
						related(a.NIC, serves(i, d), serves(j, d))
					}
				}
			}
		}
	}
}

// The solver could make the cheapest lab node look more expensive by choosing suboptimal paths, but each percent costs
// more than that would save.
func (m *mip) unequal(own [][]linear) {
	classes := map[int][]int{}
	for i := range m.p.Requests {
		classes[m.p.Requests[i].Class] = append(classes[m.p.Requests[i].Class], i)
	}
	for class, members := range classes {
		percents := m.number("percents_%d", class)
		m.cost = append(m.cost, linear{m.p.Weights.Unequal, percents})
		for _, i := range members {
			for _, j := range members {
				if i == j {
					continue
				}
				// Rounded down: 100*percents > own(i) - own(j) - 100.
				sum := []linear{{100, percents}}
				for _, x := range own[i] {
					sum = append(sum, linear{-x.n, x.v})
				}
				m.row(append(sum, own[j]...), ">=", -99)
			}
		}
	}
}

func (m *mip) text() []byte {
	var b bytes.Buffer
	b.WriteString("Minimize\n cost:")
	write(&b, append(m.cost, linear{0, "zero"}))
	b.WriteString("\nSubject To\n")
	b.Write(m.rows.Bytes())
	b.WriteString("General\n " + strings.Join(m.general, "\n ") + "\nBinary\n " + strings.Join(m.binary, "\n ") +
		"\nEnd\n")
	return b.Bytes()
}

// highsProgram prints a line for each program: its cost, "infeasible", or another status.
const highsProgram = `
import sys, highspy
for path in sys.argv[1:]:
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    h.setOptionValue("mip_rel_gap", 0.0)
    h.setOptionValue("mip_abs_gap", 0.5)
    h.setOptionValue("mip_max_nodes", 20000)
    h.readModel(path)
    h.run()
    status = h.modelStatusToString(h.getModelStatus())
    print("=", h.getInfo().objective_function_value if status == "Optimal" else status.lower(), flush=True)
`

func highs(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	python := filepath.Join(cache, "rackless", "highs", "bin", "python")
	if err := exec.Command(python, "-c", "import highspy").Run(); err != nil {
		const why = "no HiGHS, so no second solver judges the search: %s: %v; hack/setup.sh test installs it"
		if os.Getenv("CI") != "" {
			t.Fatalf(why, python, err)
		}
		t.Skipf(why, python, err)
	}
	return python
}

// TestSolveAgreesWithHiGHS compares the least cost, or infeasibility, on problems too large for brute force.
func TestSolveAgreesWithHiGHS(t *testing.T) {
	t.Parallel()
	python := highs(t)
	problems := map[string]*plan.Problem{
		"epyc-pair": epycPair(),
		"epyc, four": withAsks(epycShape().Problem(),
			times(4, ask{Cores: 6, Pages: 12, NICs: 1})...),
		"h20, three with two GPUs": withAsks(h20Shape().Problem(),
			times(3, ask{Cores: 22, Pages: 400, GPUs: 2, NICs: 1})...),
		"r740, two sizes": withAsks(r740Shape().Problem(),
			ask{Cores: 30, Pages: 200, VFs: 1}, ask{Cores: 9, Pages: 60, VFs: 1}),
	}
	seeds := uint64(80)
	switch {
	case *long:
		seeds = 240
	case testing.Short():
		seeds = 10
	}
	for seed := range seeds {
		p := plantest.Small(10_000 + seed)
		if p.Weights.Unequal < 100 { // see unequal
			problems[fmt.Sprintf("small %d", seed)] = p
		}
	}
	dir := t.TempDir()
	args := []string{"-c", highsProgram}
	var names []string
	for name, p := range problems {
		path := filepath.Join(dir, fmt.Sprintf("%d.lp", len(names)))
		if err := os.WriteFile(path, newMIP(p).text(), 0o644); err != nil {
			t.Fatal(err)
		}
		names, args = append(names, name), append(args, path)
	}
	cmd := exec.Command(python, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var answers []string
	for line := range strings.Lines(string(out)) {
		if answer, ok := strings.CutPrefix(line, "= "); ok {
			answers = append(answers, strings.TrimSpace(answer))
		}
	}
	if len(answers) != len(names) {
		t.Fatalf("%d answers of HiGHS to %d problems:\n%s", len(answers), len(names), out)
	}
	compared, infeasible := 0, 0
	for k, name := range names {
		p := problems[name]
		r, err := Solve(context.Background(), p, Options{})
		cost, numeric := strconv.ParseFloat(answers[k], 64)
		switch {
		case answers[k] == "infeasible":
			infeasible++
			if !errors.Is(err, ErrInfeasible) {
				t.Errorf("%s: HiGHS says that there is no placement; Solve: %+v, %v", name, r, err)
			}
		case numeric != nil:
			t.Logf("%s: HiGHS: %s", name, answers[k])
		case err != nil:
			t.Errorf("%s: %v; HiGHS has a placement for %v", name, err, cost)
		default:
			compared++
			if want := int64(math.Round(cost)) + newMIP(p).constant; r.Cost != want || !r.Optimal {
				t.Errorf("%s: cost %d, optimal %v; HiGHS proves %d", name, r.Cost, r.Optimal, want)
			}
		}
	}
	t.Logf("%d costs compared, %d without a placement", compared, infeasible)
	if compared < int(seeds/10) {
		t.Errorf("only %d of %d problems were compared", compared, len(problems))
	}
}
