package recommend

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/study/stats"
)

// The planner's weights are in basis points of the workload's main figure: a measured loss divided by the term's count.
//
//	device_nearest     loss of p99 latency on far NUMA nodes / (SLIT distance of those nodes - 10)
//	device_distance    loss of typical latency on far NUMA nodes / (the same)
//	device_share       device_distance in the published proportion
//	                   for workloads whose figure is a bandwidth there is one loss for both, which
//	                   they share as the published ones do
//	numa_span_hidden   numa_span + loss by hiding NUMA nodes from the guest / (NUMA nodes of the host - 1)
//	gpu_nic_path       sum of steps x loss / sum of steps^2 over measured pairs: least squares through the origin
//
// The published weights come from the first two formulas (docs/planner.md). Weights that the data does not determine
// keep them, and Recommendation.Kept says why.

// A Fitted is a weight fitted to measurements.
type Fitted struct {
	Weight    string `json:"weight"`
	Value     int64  `json:"value"`
	Published int64  `json:"published"`
	How       string `json:"how"`
}

func (r *Recommendation) fit(p *plan.Problem, w lab.Workload, all []Evidence, pairs []pairSource) {
	f := &fitter{r: r, p: p, w: w}
	for _, e := range all {
		if (e.Carry == MeasuredHere || e.Carry == MeasuredOnKind) && e.matters(w) && !e.aside && !e.together {
			f.own = append(f.own, e)
		}
	}
	measured, from := model(pairs)
	if p != nil {
		f.farNodes()
		f.hiddenNodes()
		f.paths(pairs)
		f.keep("all other weights", "no factor of a study moves one of their terms alone")
	}
	var sources []string
	if len(r.Fitted) > 0 {
		sources = append(sources, "weights: "+strings.Join(f.used, ", "))
	}
	if from != "" {
		sources = append(sources, from)
	}
	if len(sources) == 0 {
		return
	}
	r.Model = &build.Model{Pairs: measured, Source: "rackless plan --explain; " + strings.Join(sources, "; ")}
	if len(r.Fitted) > 0 {
		r.Model.Weights = map[string]int64{}
	}
	for _, x := range r.Fitted {
		r.Model.Weights[x.Weight] = x.Value
	}
}

type fitter struct {
	r    *Recommendation
	p    *plan.Problem
	w    lab.Workload
	own  []Evidence
	used []string // sources
}

// set rounds a weight to basis points and limits it, so that one term cannot outweigh all others.
func (f *fitter) set(weight string, value float64, published int64, source, how string) {
	v := int64(math.Round(min(max(value, 0), build.MaxWeight)))
	f.r.Fitted = append(f.r.Fitted, Fitted{weight, v, published, how})
	f.used = lists.Add(f.used, source)
}

// keep gives a reason: every weight is fitted or kept with one.
func (f *fitter) keep(weights, format string, args ...any) {
	f.r.Kept = append(f.r.Kept, weights+": "+fmt.Sprintf(format, args...))
}

// ofMetric returns the best rank's decided evidence and the number of undecided pieces; "" matches all metrics.
func (f *fitter) ofMetric(s Setting, from, to, metric string) (found []Evidence, open int) {
	best := ranks
	for _, e := range f.own {
		if e.From == to && e.To == from {
			e = e.turned()
		}
		if e.Setting != s || e.From != from || e.To != to || metric != "" && e.Metric != metric {
			continue
		}
		switch {
		case !e.Decides || e.Ratio == 0:
			open++
		case e.Carry.rank() < best:
			best, found = e.Carry.rank(), []Evidence{e}
		case e.Carry.rank() == best:
			found = append(found, e)
		}
	}
	return found, open
}

// meanLoss is at least 0.
func meanLoss(all []Evidence) float64 {
	sum := 0.0
	sum += lists.Sum(all, func(e Evidence) float64 { return e.loss() })
	return max(0, sum/float64(len(all)))
}

// far is the SLIT distance beyond 10; false if distances differ, because a study does not record its nodes.
func (f *fitter) far() (int, bool) {
	distance := 0
	for i, n := range f.p.NUMANodes {
		for j, d := range n.Distances {
			if i != j && distance != 0 && d != distance {
				return 0, false
			}
			if i != j {
				distance = d
			}
		}
	}
	return distance - 10, distance > 10
}

func (f *fitter) farNodes() {
	const both = plan.TermDeviceNearest + ", " + plan.TermDeviceDistance
	found, open := f.ofMetric(Placement, levelPin, levelWrong, "")
	if len(found) == 0 {
		why := fmt.Sprintf("no study of this host compares %s with %s for %s", levelWrong, levelPin, f.w)
		if open > 0 {
			why = fmt.Sprintf("%s and %s are not told apart by the studies of this host", levelWrong, levelPin)
		}
		f.keep(both, "%s", why)
		return
	}
	distance, ok := f.far()
	if !ok {
		f.keep(both, "how far %s is from the devices is not determined: the host's NUMA nodes differ in distance, or "+
			"do not tell it", levelWrong)
		return
	}
	w := &f.p.Weights
	latency, sum := f.w == lab.WorkloadRDMALatency, float64(w.DeviceNearest+w.DeviceDistance)
	if !latency && sum == 0 {
		return
	}
	for _, x := range []struct {
		weight, metric string
		published      int64
	}{
		{plan.TermDeviceNearest, "latency_p99", w.DeviceNearest},
		{plan.TermDeviceDistance, "latency_typical", w.DeviceDistance},
	} {
		own := found
		if latency {
			own, _ = f.ofMetric(Placement, levelPin, levelWrong, x.metric)
		}
		if len(own) == 0 {
			f.keep(x.weight, "no study of this host tells %s and %s apart by %s", levelWrong, levelPin, x.metric)
			continue
		}
		loss := meanLoss(own)
		value := 1e4 * loss / float64(distance)
		how := fmt.Sprintf("%.1f%% lost over %d units of distance: %s", 100*loss, distance, tell(own))
		if !latency { // both weights share one loss
			value = value * float64(x.published) / sum
			how += ", shared by both in their published proportion"
		}
		f.set(x.weight, value, x.published, own[0].Source, how)
		if x.weight == plan.TermDeviceDistance && x.published > 0 {
			f.set(plan.TermDeviceShare, value*float64(w.DeviceShare)/float64(x.published), w.DeviceShare, own[0].Source,
				"in the published proportion to device_distance, so that cores still follow the share of devices")
		}
	}
}

func (f *fitter) hiddenNodes() {
	const weight = "numa_span_hidden"
	found, open := f.ofMetric(GuestNUMA, levelOn, levelOff, "")
	switch {
	case len(found) == 0 && open == 0:
		f.keep(weight, "no study of this host compares guest_numa on with off for %s", f.w)
	case len(found) == 0:
		f.keep(weight, "guest_numa on and off are not told apart by the studies of this host")
	case len(f.p.NUMANodes) != 2:
		f.keep(weight, "over how many NUMA nodes the measured guests spread is not determined on a host with %d",
			len(f.p.NUMANodes))
	case !slices.ContainsFunc(found, func(e Evidence) bool {
		return e.Verdict == stats.Better || e.Verdict == stats.Worse
	}):
		f.keep(weight, "guest_numa made no difference: whether the measured guests spread over both NUMA nodes is "+
			"not determined")
	default:
		loss := 0.0
		for i := range found {
			loss += found[i].loss() / float64(len(found))
		}
		w := &f.p.Weights
		f.set(weight, float64(w.NUMASpan)+1e4*loss, w.NUMASpanHidden, found[0].Source,
			fmt.Sprintf("%.1f%% lost by hiding one NUMA node: %s", 100*loss, tell(found)))
	}
}

// paths is for pairs that were not measured.
func (f *fitter) paths(sources []pairSource) {
	const weight = plan.TermGPUNICPath
	if f.w != lab.WorkloadGPUCollective && f.w != lab.WorkloadRDMABandwidth && f.w != lab.WorkloadMixed {
		f.keep(weight, "what is measured between GPUs and NICs is a bandwidth, which is not the figure of %s", f.w)
		return
	}
	var pairs []measuredPair
	for _, s := range sources {
		if s.carry == MeasuredHere || s.carry == MeasuredOnKind {
			pairs = append(pairs, s.pairs...)
		}
	}
	best := lists.Max(pairs, func(p measuredPair) float64 { return p.gbps })
	index := func(id string) int {
		return slices.IndexFunc(f.p.Devices, func(d plan.Device) bool { return d.ID == id })
	}
	// Loss is relative to the best pair, and no steps cost nothing, so the line goes through the origin.
	var cross, square float64
	steps := map[int]bool{}
	for _, p := range pairs {
		g, n := index(p.gpu), index(p.nic)
		if g < 0 || n < 0 {
			continue
		}
		if path := f.p.Path(g, n); path != nil {
			s := float64(path.Steps)
			cross, square = cross+s*(best-p.gbps)/best, square+s*s
			steps[path.Steps] = true
		}
	}
	// With one distance, any slope would fit.
	if len(steps) < 2 {
		f.keep(weight, "no study of this host measured GPUs at different distances from a NIC")
		return
	}
	source := sources[0].source
	f.set(weight, 1e4*cross/square, f.p.Weights.GPUNICPath, source, fmt.Sprintf("%s lose %.2f%% a step on average (%s)",
		words.Count(len(pairs), "measured pair"), 100*cross/square, source))
}
