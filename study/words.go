package study

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/study/stats"
)

// effectText writes an effect with its interval: "+12.1% (+8.0% to +16.5%)".
func effectText(c *Comparison) string {
	e := c.Effect
	if e == nil {
		return c.Problem
	}
	if !e.Interval.Bounded() {
		return fmt.Sprintf("%s (too few blocks for an interval)", amount(e, e.Estimate, c.Unit))
	}
	return fmt.Sprintf("%s (%s to %s)", amount(e, e.Estimate, c.Unit), amount(e, e.Interval.Low, c.Unit), amount(e, e.Interval.High, c.Unit))
}

// amount writes an effect: for ratios in per cent, and as a factor where per cent would be hard to read.
func amount(e *stats.Effect, v float64, unit string) string {
	if e.Scale == stats.Difference {
		return fmt.Sprintf("%+.3g %s", v, unit)
	}
	switch {
	case v >= 10:
		return fmt.Sprintf("x%.3g", v)
	case v > 0 && v < 0.1:
		return fmt.Sprintf("/%.3g", 1/v)
	}
	return fmt.Sprintf("%+.1f%%", 100*(v-1))
}

// Text writes the effect of a comparison, for tables.
func (c *Comparison) Text() string { return effectText(c) }

// Name names the metric of a comparison, for tables.
func (c *Comparison) Name() string { return c.name() }

// words says what the study comes to. Verdicts of noise, "undecided", are counted and not retold as effects.
func (a *analysis) words() []string {
	var out []string
	undecided := 0
	for i := range a.result.Comparisons {
		c := &a.result.Comparisons[i]
		if c.Judged == nil {
			out = append(out, fmt.Sprintf("%s: %s %s against %s%s: %s.", c.name(), c.Factor, c.B, c.A, where(c), c.Problem))
			continue
		}
		var text string
		switch c.Judged.Verdict {
		case stats.Undecided:
			undecided++
			continue
		case stats.Equivalent:
			text = fmt.Sprintf("%s %s makes no difference that matters to %s%s: %s, within the margin of %g%%", c.Factor, c.B, c.name(), where(c), effectText(c), 100*a.spec.Margin)
		default:
			text = fmt.Sprintf("%s %s %s %s%s by %s", c.Factor, c.B, verb(c), c.name(), where(c), span(c))
		}
		if len(c.Confounded) > 0 {
			text += "; confounded, so do not rely on it: " + strings.Join(c.Confounded, "; ")
		}
		out = append(out, capital(text)+".")
	}
	if undecided > 0 {
		out = append(out, fmt.Sprintf("%d of %d comparisons are undecided: the runs show neither an effect nor that there is none larger than the margin. More blocks would decide.", undecided, len(a.result.Comparisons)))
	}
	return out
}

// verb says what happened to a metric: raised or cut, and whether that is good.
func verb(c *Comparison) string {
	up := c.Effect.Estimate > c.Effect.NoEffect()
	switch {
	case up && c.Judged.Verdict == stats.Better:
		return "raises"
	case up:
		return "raises (for the worse)"
	case c.Judged.Verdict == stats.Better:
		return "cuts"
	}
	return "cuts (for the worse)"
}

// span writes the size of an effect without its sign: "31.0% to 52.0%", in the order of size.
func span(c *Comparison) string {
	e := c.Effect
	if e.Scale == stats.Difference || !e.Interval.Bounded() {
		return effectText(c)
	}
	low, high := e.Interval.Low, e.Interval.High
	if high <= 1 {
		if high >= 0.1 || low > 0.1 {
			return fmt.Sprintf("%.1f%% to %.1f%%", 100*(1-high), 100*(1-low))
		}
		return fmt.Sprintf("a factor of %.3g to %.3g", 1/high, 1/low)
	}
	if low >= 2 {
		return fmt.Sprintf("a factor of %.3g to %.3g", low, high)
	}
	return fmt.Sprintf("%.1f%% to %.1f%%", 100*(low-1), 100*(high-1))
}

func where(c *Comparison) string {
	if c.Where == "" {
		return ""
	}
	return " at " + c.Where
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Shares of CPU time above which a run is called disturbed.
const (
	MaxSteal   = 0.02 // of all CPUs' time, taken by a hypervisor
	MaxForeign = 0.25 // of one CPU's time, used by what is not of the study
	MaxLoop    = 0.25 // by which the fixed piece of arithmetic took longer than its median of the study
)

// Disturbance says what else moved during a run, going by the host's states around it; "" where nothing did. loops are the noise floors of the runs before it.
func Disturbance(before, after *HostState, loops []float64) string {
	if before == nil || after == nil {
		return ""
	}
	var why []string
	wall := after.At.Sub(before.At).Seconds()
	switch {
	case wall <= 0:
		why = append(why, "the clock went backwards")
	case before.BootID != after.BootID:
		why = append(why, "the host was started anew")
	default:
		if share := (after.Steal - before.Steal) / (wall * float64(max(1, after.CPUs))); share > MaxSteal {
			why = append(why, fmt.Sprintf("a hypervisor took %.0f%% of the CPUs' time", 100*share))
		}
		if foreign := (after.Busy - before.Busy - (after.Own - before.Own)) / wall; foreign > MaxForeign {
			why = append(why, fmt.Sprintf("something else on the host used %.2f CPUs", foreign))
		}
		if after.Throttles > before.Throttles {
			why = append(why, fmt.Sprintf("the CPUs were throttled for heat %d times", after.Throttles-before.Throttles))
		}
	}
	if len(loops) >= 5 && before.Loop > 0 {
		if usual := median(loops); before.Loop > usual*(1+MaxLoop) {
			why = append(why, fmt.Sprintf("a fixed piece of arithmetic took %.0f%% longer than usual right before it", 100*(before.Loop/usual-1)))
		}
	}
	return strings.Join(why, "; ")
}

// confounds looks for what is known to fool studies: things that changed between runs, or were never what they seemed.
func confounds(runs []Observation) []string {
	var out []string
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	var first *HostState
	tools := map[string]string{}
	for _, o := range runs {
		for _, test := range slices.Sorted(keys(o.Tools)) {
			if have, ok := tools[test]; ok && have != o.Tools[test] {
				add("%s has version %s in run %d, and had %s before", test, o.Tools[test], o.Run, have)
			} else {
				tools[test] = o.Tools[test]
			}
		}
		if o.Before == nil {
			continue
		}
		if first == nil {
			first = o.Before
		}
		if a, b := strings.Join(first.Governors, ","), strings.Join(o.Before.Governors, ","); a != b {
			add("the CPUs' governor is %s in run %d, and was %s", b, o.Run, a)
		}
		if a, b := first.MaxMHz, o.Before.MaxMHz; math.Abs(a-b) > 1 {
			add("the CPUs' highest frequency is %.0f MHz in run %d, and was %.0f MHz", b, o.Run, a)
		}
		if first.CPUs != o.Before.CPUs {
			add("%d CPUs are online in run %d, and were %d", o.Before.CPUs, o.Run, first.CPUs)
		}
		if a, b := strings.Join(first.Links, ", "), strings.Join(o.Before.Links, ", "); a != b {
			add("PCIe links are %q in run %d, and were %q: a link was trained again", b, o.Run, a)
		}
		for _, d := range o.Before.Devices {
			if strings.HasSuffix(d, " -1") {
				add("%s: its NUMA node is not known in the node, so what binds to it by NUMA node binds to node 0", strings.TrimSuffix(d, " -1"))
			}
		}
	}
	return out
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
