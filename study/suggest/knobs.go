package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/simulate"
)

// Parameters that are searched. Those of NICs have their names in debugfs.
const (
	kmin   = "kmin"
	kmax   = "kmax"
	pmax   = "pmax"
	alpha  = "alpha"
	resume = "resume"
	ecn    = "ecn" // kmin, kmax and pmax together, in a file without
)

// timers are the timers of DCQCN that are searched.
var timers = []string{"rp_time_reset", "rp_rate_reduce_monitor_period", "rp_dce_tcp_rtt", "np_min_time_between_cnps"}

// values are a choice of all parameters by their names. Those that have no effect are missing.
type values map[string]float64

// own returns the values of a file. Marks are missing if it has none.
func own(c *simulate.Config) values {
	v := values{alpha: c.Switch.Alpha}
	if c.Switch.PFC.Priorities != 0 {
		v[resume] = float64(c.Switch.Resume)
	}
	if !c.NIC.Controlled() {
		return v
	}
	if red := c.Switch.ECN.RED; red != (fabric.RED{}) {
		v[kmin], v[kmax], v[pmax] = float64(red.Min), float64(red.Max), red.Probability
	}
	for _, name := range timers {
		if x, ok := c.NIC.Param(name); ok && x > 0 {
			v[name] = float64(x)
		}
	}
	return v
}

// usual returns the marks from which a search begins if a file has none: 100 and 400 KB and 20 % at 25 Gb/s, in
// proportion to the rate, as the paper of HPCC sets DCQCN (Li and others, SIGCOMM 2019).
func usual(c *simulate.Config) values {
	k := int(math.Round(float64(c.Topology.Rate)/25e9*100)) << 10
	k = max(k, 4<<10)
	return values{kmin: float64(k), kmax: float64(4 * k), pmax: 0.2}
}

// marked reports whether the switches mark packets.
func (v values) marked() bool { return v[kmax] > 0 }

// keys returns the values that differ from those of a file, as keys of a simulation file.
func (v values) keys(file values) map[string]string {
	out := map[string]string{}
	for _, name := range changed(file, v) {
		x := v[name]
		switch name {
		case kmin, kmax, pmax:
			out["switch.ecn"] = marksText(v)
		case alpha:
			out["switch.alpha"] = strconv.FormatFloat(x, 'g', 4, 64)
		case resume:
			out["switch.resume"] = fmt.Sprintf("%dB", int64(x))
		default:
			out["nic.cc_params."+name] = strconv.FormatInt(int64(x), 10)
		}
	}
	return out
}

// marksText returns the marks as a simulation file has them.
func marksText(v values) string {
	return fmt.Sprintf("%dB:%dB:%s%%", int64(v[kmin]), int64(v[kmax]), strconv.FormatFloat(100*v[pmax], 'f', -1, 64))
}

// text identifies the values.
func (v values) text() (s string) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		s += fmt.Sprintf("%s=%g ", name, v[name])
	}
	return s
}

// with returns the values with some of them changed.
func (v values) with(changes values) values {
	out := maps.Clone(v)
	maps.Copy(out, changes)
	return out
}

// moves returns the neighbours of a choice in one direction of the search: one parameter, or both thresholds of ECN, by
// some factors. Moves that leave the range of a parameter are left out.
func moves(v values, what string, factors []float64) (list []values) {
	for _, f := range factors {
		change := values{}
		for _, name := range parts(what) {
			change[name] = rounded(name, v[name]*f)
		}
		next := v.with(change)
		if allowed(next) && next.text() != v.text() {
			list = append(list, next)
		}
	}
	return list
}

// both is the direction of both thresholds of ECN.
const both = kmin + "+" + kmax

func parts(what string) []string {
	if what == both {
		return []string{kmin, kmax}
	}
	return []string{what}
}

// directions returns the directions of a search, the most effective ones first. Timers matter if packets are marked.
func directions(v values) (list []string) {
	if v.marked() {
		list = append(list, both, kmax, pmax, kmin)
	}
	list = append(list, alpha)
	for _, what := range append(timers, resume) {
		if _, ok := v[what]; ok && (what == resume || v.marked()) {
			list = append(list, what)
		}
	}
	return list
}

// rounded rounds to values that people can type.
func rounded(name string, x float64) float64 {
	switch name {
	case kmin, kmax, resume:
		return math.Max(1, math.Round(x/1024)) * 1024
	case pmax:
		return math.Round(x*1e4) / 1e4
	case alpha:
		return x
	}
	return math.Max(1, math.Round(x))
}

// allowed reports whether values are within what switches and NICs take.
func allowed(v values) bool {
	if v[kmin] > v[kmax] || v[kmax] > fabric.MaxBuffer || v[pmax] > 1 || v[alpha] < 1./128 || v[alpha] > 64 {
		return false
	}
	for _, name := range timers {
		if v[name] > 1<<16 {
			return false
		}
	}
	return true
}

// changed returns the names of the parameters that differ, in the order of the search.
func changed(from, to values) (list []string) {
	for name := range to {
		if from[name] != to[name] {
			list = append(list, name)
		}
	}
	order := append([]string{kmin, kmax, pmax, alpha, resume}, timers...)
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
	return list
}
