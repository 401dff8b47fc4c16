package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/study/stats"
)

// Text formats an effect with its interval: "+12.1% (+8.0% to +16.5%)".
func (c *Comparison) Text() string {
	e := c.Effect
	if e == nil {
		return c.Problem
	}
	interval := "too few blocks for an interval"
	if e.Interval.Bounded() {
		interval = c.intervalText(e.Interval)
	}
	return fmt.Sprintf("%s (%s)", amount(e, e.Estimate, c.Unit), interval)
}

func (c *Comparison) intervalText(i stats.Interval) string {
	// The estimate before it says whether that is lower or higher.
	if e := c.Effect; e.Scale != stats.Difference && large(e) && i.Low > 0 && (i.Low < 1) == (i.High < 1) {
		low, way := times(i.Low)
		high, _ := times(i.High)
		if _, estimate := times(e.Estimate); way == estimate {
			if i.High < 1 {
				low, high = high, low
			}
			return low + " to " + high
		}
	}
	return amount(c.Effect, i.Low, c.Unit) + " to " + amount(c.Effect, i.High, c.Unit)
}

// amount uses per cent, or factors if per cent would be hard to read; one form per effect.
func amount(e *stats.Effect, v float64, unit string) string {
	if e.Scale == stats.Difference {
		return plain(v, true) + " " + unit
	}
	if !large(e) || v <= 0 {
		return fmt.Sprintf("%+.1f%%", 100*(v-1))
	}
	number, way := times(v)
	return number + way
}

func times(v float64) (number, way string) {
	if v < 1 {
		return plain(1/v, false), " times lower"
	}
	return plain(v, false), " times higher"
}

// large reports whether a number is at least ten, or below a tenth.
func large(e *stats.Effect) bool {
	numbers := []float64{e.Estimate}
	if i := e.Interval; i.Confidence > 0 && i.Bounded() {
		numbers = append(numbers, i.Low, i.High)
	}
	return slices.ContainsFunc(numbers, func(v float64) bool { return v > 0 && (v >= 10 || v < 0.1) })
}

// plain has three significant digits and no exponent. Large values keep all integer digits.
func plain(v float64, sign bool) string {
	digits := 0
	if size := math.Abs(v); size > 0 && size < 100 {
		digits = min(9, 2-int(math.Floor(math.Log10(size))))
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if sign && v >= 0 {
		text = "+" + text
	}
	return text
}

// words are effects, then equivalences, then the number of undecided comparisons.
func (a *analysis) words() []string {
	var effects, equivalent group.By[string, string]
	var problems []string
	undecided := 0
	for i := range a.result.Comparisons {
		c := &a.result.Comparisons[i]
		doubt := ""
		if len(c.Confounded) > 0 {
			doubt = "; confounded, so do not rely on it: " + strings.Join(c.Confounded, "; ")
		}
		switch {
		case c.Judged == nil:
			problems = append(problems, fmt.Sprintf("%s, nothing can be said of %s: %s.", a.with(c), c.spoken(),
				c.Problem))
		case c.Judged.Verdict == stats.Undecided:
			undecided++
		case c.Judged.Verdict == stats.Equivalent && doubt == "":
			equivalent.Add(a.with(c), fmt.Sprintf("%s (%s)", c.spoken(), c.Text()))
		case c.Judged.Verdict == stats.Equivalent:
			problems = append(problems, fmt.Sprintf("%s, %s seems not to change by what matters: %s%s.", a.with(c),
				c.spoken(), c.Text(), doubt))
		default:
			effects.Add(a.with(c), fmt.Sprintf("%s %s by %s (%s%s)", c.spoken(), verb(c), span(c), c.Judged.Verdict,
				doubt))
		}
	}
	out := lists.Map(effects.Keys,
		func(k string) string { return fmt.Sprintf("%s, %s.", k, strings.Join(effects.Of(k), "; ")) })
	for _, k := range equivalent.Keys {
		out = append(out, fmt.Sprintf("%s, no change that matters (%g%%) in %s.", k, 100*a.spec.Margin,
			strings.Join(equivalent.Of(k), ", ")))
	}
	out = append(out, problems...)
	if undecided > 0 {
		out = append(out, undecidedOf(undecided, len(a.result.Comparisons))+" undecided: the runs show neither an "+
			"effect nor that there is none larger than the margin. More blocks would decide.")
	}
	return out
}

func undecidedOf(n, all int) string {
	switch {
	case all == 1:
		return "The only comparison is"
	case n == 1:
		return fmt.Sprintf("1 of %d comparisons is", all)
	}
	return fmt.Sprintf("%d of %d comparisons are", n, all)
}

// with returns text such as "With placement=pin instead of default, at contention=cpu:2".
func (a *analysis) with(c *Comparison) string {
	factors, levels := strings.Split(c.Factor, and), strings.Split(c.B, and)
	for i := range factors {
		if len(levels) != len(factors) {
			continue
		}
		if name := a.spec.LevelName(factors[i], levels[i]); name != levels[i] {
			factors[i] = name
		} else {
			factors[i] += "=" + levels[i]
		}
	}
	text := fmt.Sprintf("With %s instead of %s", strings.Join(factors, and), a.spec.LevelName(c.Factor, c.A))
	if c.Where != "" {
		text += ", at " + c.Where
	}
	return text
}

func verb(c *Comparison) string {
	if c.Effect.Estimate > c.Effect.NoEffect() {
		return "rises"
	}
	return "falls"
}

// span has no sign, and the smaller number first: "31.0% to 52.0%".
func span(c *Comparison) string {
	e := c.Effect
	low, high := e.Interval.Low, e.Interval.High
	switch {
	case !e.Interval.Bounded():
		return c.Text()
	case e.Scale == stats.Difference:
		low, high = min(math.Abs(low), math.Abs(high)), max(math.Abs(low), math.Abs(high))
		return plain(low, false) + " to " + plain(high, false) + " " + c.Unit
	case high <= 1 && (high >= 0.1 || low > 0.1):
		return fmt.Sprintf("%.1f%% to %.1f%%", 100*(1-high), 100*(1-low))
	case high <= 1:
		return "a factor of " + plain(1/high, false) + " to " + plain(1/low, false)
	case low >= 2:
		return "a factor of " + plain(low, false) + " to " + plain(high, false)
	}
	return fmt.Sprintf("%.1f%% to %.1f%%", 100*(low-1), 100*(high-1))
}

// Thresholds above which a run counts as disturbed.
const (
	MaxSteal   = 0.02 // share of all CPUs' time, by a hypervisor
	MaxForeign = 0.25 // share of one CPU's time, by other programs
	MaxLoop    = 0.25 // increase of the noise floor over the study's median
)

// MaxJump limits a step of the wall clock during a run, in seconds. Slewing stays far below.
const MaxJump = 1

// Disturbance describes disturbances between two states, or returns "". loops are noise floors of earlier runs.
func Disturbance(before, after *HostState, loops []float64) string {
	if before == nil || after == nil {
		return ""
	}
	var why []string
	wall := after.At.Sub(before.At).Seconds()
	span := wall // early releases had only the wall clock
	if before.Uptime > 0 && after.Uptime > before.Uptime {
		span = after.Uptime - before.Uptime
	}
	switch {
	case wall <= 0:
		why = append(why, "the clock went backwards")
	case before.BootID != after.BootID:
		why = append(why, "the host was started anew")
	default:
		if jump := wall - span; math.Abs(jump) > MaxJump {
			why = append(why, fmt.Sprintf("the clock was set by %+.1f s", jump))
		}
		if share := (after.Steal - before.Steal) / (span * float64(max(1, after.CPUs))); share > MaxSteal {
			why = append(why, fmt.Sprintf("a hypervisor took %.0f%% of the CPUs' time", 100*share))
		}
		if foreign := (after.Busy - before.Busy - (after.Own - before.Own)) / span; foreign > MaxForeign {
			why = append(why, fmt.Sprintf("something else on the host used %.2f CPUs", foreign))
		}
		if after.Throttles > before.Throttles {
			why = append(why, fmt.Sprintf("the CPUs were throttled for heat %d times",
				after.Throttles-before.Throttles))
		}
	}
	if len(loops) >= 5 && before.Loop > 0 {
		if usual := stats.Median(loops); before.Loop > usual*(1+MaxLoop) {
			why = append(why, fmt.Sprintf("a fixed piece of arithmetic took %.0f%% longer than usual right before it",
				100*(before.Loop/usual-1)))
		}
	}
	return strings.Join(why, "; ")
}

// LookedFor lists the checks, which define "nothing was found".
func (r *Result) LookedFor() []string {
	var looked []string
	if len(r.Controls) > 0 {
		looked = []string{"a control, a metric that no factor can move, that moved all the same"}
	}
	return append(looked,
		"another version of a tool",
		"another frequency governor or another highest frequency of the CPUs",
		"CPUs that went on- or offline",
		"PCIe links that were trained to another speed or width",
		"devices whose NUMA node is not known inside the nodes",
		fmt.Sprintf("CPU time taken by a hypervisor (more than %g%%) or by other programs (more than %g%% of one "+
			"CPU) during a run", 100*MaxSteal, 100*MaxForeign),
		"CPUs throttled for heat, a restart of the host, or a clock that went backwards during a run",
		fmt.Sprintf("a fixed piece of arithmetic that took over %g%% longer than usual right before a run",
			100*MaxLoop),
	)
}

// confounds looks for known causes of misleading studies, such as changes between runs or unknown NUMA nodes.
func confounds(runs []Observation) []string {
	var out []string
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	var first *HostState
	tools := map[string]string{}
	// A change is reported for the first run after it. of is "", or the cell if only its runs can be compared.
	last, told := map[string]string{}, map[string]bool{}
	changed := func(run int64, of, what, now string) {
		was := last[of+what]
		if change := what + now + was; now != "" && was != "" && now != was && !told[change] {
			told[change] = true
			add("%s is %s from run %d on, and was %s before", what, now, run, was)
		}
		if now != "" { // runs of early releases may lack it
			last[of+what] = now
		}
	}
	for _, o := range runs {
		for _, test := range lists.Keys(o.Tools) {
			if have, ok := tools[test]; ok && have != o.Tools[test] {
				add("%s has version %s in run %d, and had %s before", test, o.Tools[test], o.Run, have)
			} else {
				tools[test] = o.Tools[test]
			}
		}
		now := cmp.Or(o.Before, o.After) // early releases recorded only After
		if now == nil {
			continue
		}
		first = cmp.Or(first, now)
		moved := func(format, was, now string) {
			if was != now {
				add(format, now, o.Run, was)
			}
		}
		moved("the CPUs' governor is %s in run %d, and was %s", strings.Join(first.Governors, ","),
			strings.Join(now.Governors, ","))
		if a, b := first.MaxMHz, now.MaxMHz; math.Abs(a-b) > 1 {
			add("the CPUs' highest frequency is %.0f MHz in run %d, and was %.0f MHz", b, o.Run, a)
		}
		if a, b := first.MinMHz, now.MinMHz; a > 0 && b > 0 && math.Abs(a-b) > 1 {
			add("the highest frequency of the slowest CPU is %.0f MHz in run %d, and was %.0f MHz", b, o.Run, a)
		}
		changed(o.Run, "", "turbo", now.Turbo)
		changed(o.Run, "", "the host's kernel", now.Kernel)
		changed(o.Run, "", "QEMU", now.QEMU)
		changed(o.Run, "", "rackless", now.Rackless)
		// The lab file may select kernels for cells.
		changed(o.Run, fmt.Sprint(o.Cell), "the nodes' kernel", now.NodeKernel)
		if first.CPUs != now.CPUs {
			add("%d CPUs are online in run %d, and were %d", now.CPUs, o.Run, first.CPUs)
		}
		moved("PCIe links are %q in run %d, and were %q: a link was trained again", strings.Join(first.Links, ", "),
			strings.Join(now.Links, ", "))
		moved("the plan has the nodes on CPUs %q in run %d, and had them on %q: the host was prepared anew with "+
			"another plan", strings.Join(first.Placed, ", "), strings.Join(now.Placed, ", "))
		for _, d := range now.Devices {
			if strings.HasSuffix(d, " -1") {
				add("%s: its NUMA node is not known in the VM, so what binds to it by NUMA node binds to NUMA node 0",
					strings.TrimSuffix(d, " -1"))
			}
		}
	}
	return out
}
