package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// One of these is said once where figures are emulated, instead of for each.
const (
	noExpectation   = "Emulated figures are held against nothing: they say nothing of hardware."
	wireExpectation = "Emulated figures are held against the emulated wire alone: they say nothing of hardware."
)

// judged are the judgements of figures that have something to be held against, and what is to be said of emulated
// ones.
func (d Data) judged() (all []bench.Judgement, note string) {
	for _, j := range d.Judgements {
		switch {
		case j.Emulated && j.Wire > 0 && (reached(j) || j.Verdict == bench.VerdictEmulated):
			note = wireExpectation
			all = append(all, j)
		// A file may hold a verdict on an emulated figure, by an earlier release or by hand: it is not repeated.
		case j.Emulated || d.Emulated:
			note = cmp.Or(note, noExpectation)
		default:
			all = append(all, j)
		}
	}
	return all, note
}

// open reports whether no verdict on a set-up follows from a judgement.
func open(j bench.Judgement) bool {
	return j.Verdict == bench.VerdictNone || j.Verdict == bench.VerdictEmulated
}

// judgedName is "ib_write_bw at 64 KiB, vm01 to vm00".
func judgedName(j bench.Judgement) string {
	name := headline{Test: j.Test, Bytes: j.Bytes}.name() + ", " + between(j.Client, j.Server)
	return name + words.If(j.Emulated, ", emulated")
}

// judgedFigure is the figure of a judgement with its unit, as pages write it.
func judgedFigure(j bench.Judgement) string {
	return show.Figure(j.Value) + " " + show.Unit(bench.MetricOf(j.Metric).Unit)
}

// reached reports whether a figure reaches what the wire carries, so that there is nothing to do.
func reached(j bench.Judgement) bool { return j.Verdict == bench.VerdictWire }

// causeTitle is a cause with how sure it is.
func causeTitle(c bench.Cause) string { return words.Either(c.Possible, "perhaps: "+c.What, c.What) }

// expectations prints what figures were held against.
func (t *terminal) expectations(d Data) {
	all, note := d.judged()
	if note != "" {
		fmt.Fprintln(t)
		t.Wrap("", "", note)
	}
	if len(all) == 0 {
		return
	}
	t.Title("Against what the path carries")
	for _, j := range all {
		// The sign says what the colour says, for terminals and readers without colours.
		sign, color := "- ", text.FgYellow
		switch {
		case reached(j):
			sign, color = "ok ", text.FgGreen
		case j.Verdict == bench.VerdictNone:
			sign, color = "? ", text.Faint
		case open(j):
			color = text.Faint
		}
		t.Wrap("", "  ", fmt.Sprintf("%s%s: %s %s; %s", sign, judgedName(j), show.Figure(j.Value),
			bench.MetricOf(j.Metric).Unit, j.Text), color)
		for i, c := range j.Causes {
			first := fmt.Sprintf("  %d. ", i+1)
			t.Wrap(first, strings.Repeat(" ", len(first)), causeTitle(c)+": "+c.Evidence)
			t.Wrap("     fix: ", "          ", c.Fix)
		}
	}
}

// beside prints latencies with published ones.
func (t *terminal) beside(d Data) {
	all := d.shownBeside()
	if len(all) == 0 {
		return
	}
	t.Title("Beside published latencies, of other cards and machines: no verdict")
	for _, b := range all {
		t.Wrap("", "  ", besideText(b, "us"))
	}
}

// shownBeside leaves out what an emulated lab has: a file may say what it likes.
func (d Data) shownBeside() []bench.PublishedComparison {
	if d.Emulated {
		return nil
	}
	return slices.Clone(d.Beside)
}

// besideText sets a latency beside a published one. Both are in microseconds, which a page may write otherwise than a
// terminal.
func besideText(b bench.PublishedComparison, unit string) string {
	return fmt.Sprintf("%s at %s, %s: %s %s %s; published: %s %s (%s)", b.Test, show.Size(b.Bytes),
		between(b.Client, b.Server), bench.MetricOf(b.Metric).Label, show.Figure(b.Value), unit,
		show.Figure(b.Published), unit, b.Of)
}
