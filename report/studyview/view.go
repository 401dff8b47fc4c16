package studyview

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

// Schema is the schema of the JSON.
const Schema = "rackless/study/v1"

// Options describe the terminal.
type Options struct {
	Color bool // use colours; the caller decides, for instance by NO_COLOR
	Width int  // columns, at least 60; 0 means 100; sentences are wrapped to it, tables need 80
}

// A view is a document with safe texts, and the statements shared by several outputs.
type view struct {
	*study.Document
	unit func(string) string
}

func newView(d *study.Document, clean, unit func(string) string) (*view, error) {
	if err := checkDocument(d); err != nil {
		return nil, err
	}
	return &view{show.Clean(d, clean), unit}, nil
}

// checkDocument refuses a document that misses what every output needs.
func checkDocument(d *study.Document) error {
	if d == nil || d.Result == nil || d.Data == nil || d.Data.Spec == nil {
		return errors.New("show a study: the document needs a result and the data that it is of")
	}
	return nil
}

const emulatedText = "Emulated. The nodes' CPUs or RDMA devices were software. That one setting beats another here " +
	"shows that the method works; it says nothing about a network card, a GPU or a real host."

func (v *view) heading() string { return cmp.Or(v.Result.Question, "Study "+v.Result.Study) }

// A verdict is the display of a comparison's verdict. Its sign or its colour alone identifies it.
type verdict struct {
	Class, Sign, Word string
}

var verdicts = map[stats.Verdict]verdict{
	stats.Better:     {"better", "✓", "better"},
	stats.Worse:      {"worse", "✗", "worse"},
	stats.Equivalent: {"equivalent", "=", "equivalent"},
	stats.Undecided:  {"undecided", "?", "undecided"},
}

// verdictOf returns the verdict of a comparison. An unknown one from a later version is shown by its word, with the
// style of undecided.
func verdictOf(c *study.Comparison) verdict {
	if c.Judged == nil {
		return verdict{"none", "–", "not compared"}
	}
	if known, ok := verdicts[c.Judged.Verdict]; ok {
		return known
	}
	return verdict{"undecided", "?", string(c.Judged.Verdict)}
}

func (v *view) tally() string {
	var parts []string
	all := v.Result.Comparisons
	// Keep this order, so that the sentence reads alike in every study.
	for _, word := range []string{"better", "worse", "equivalent", "undecided", "not compared"} {
		n := 0
		for i := range all {
			if verdictOf(&all[i]).Word == word {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	s := words.Count(len(all), "comparison")
	if len(parts) > 0 {
		s += ": " + strings.Join(parts, ", ")
	}
	return s + "."
}

func (v *view) counts() string {
	n := v.Result.Runs
	s := fmt.Sprintf("%s: %d done", words.Count(n.Done+n.Failed+n.Disturbed, "run"), n.Done)
	if n.Failed > 0 {
		s += fmt.Sprintf(", %d failed", n.Failed)
	}
	if n.Disturbed > 0 {
		s += fmt.Sprintf(", %d disturbed and not counted", n.Disturbed)
	}
	s += fmt.Sprintf("; %s complete", words.Count(v.Result.Blocks, "block"))
	if d := time.Duration(v.Result.Seconds * float64(time.Second)); d > 0 {
		s += ", in " + durationText(d)
	}
	if first := v.Data.Began(); !first.IsZero() {
		s += ", begun " + show.Time(first)
	}
	return s + "."
}

func durationText(d time.Duration) string {
	switch minutes := int(d.Round(time.Minute) / time.Minute); {
	// Each unit extends a little past the next one, because rounding 95 s to "2 min" would lose too much.
	case d < 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case minutes < 100:
		return fmt.Sprintf("%d min", minutes)
	default:
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
}

func percent(share float64) string { return show.Figure(100*share) + "%" }

func (v *view) rule() string {
	s := fmt.Sprintf("Intervals have a confidence of %s; p is corrected for the number of comparisons.",
		percent(v.Result.Confidence))
	if v.Result.Margin > 0 {
		return s + fmt.Sprintf(" Differences within %s do not matter.", percent(v.Result.Margin))
	}
	return s
}

// nameOf names a compared quantity, such as "ib_write_bw, 64 KiB: bw average".
func nameOf(q study.Quantity) string {
	name := q.Test
	if q.Bytes > 0 {
		name += ", " + show.Size(q.Bytes)
	}
	return name + ": " + strings.ReplaceAll(q.Metric, "_", " ")
}

// levels names the compared levels, such as "placement: pin against default".
func levels(c *study.Comparison) string { return fmt.Sprintf("%s: %s against %s", c.Factor, c.B, c.A) }

// sides returns the values at both levels with the unit, or "–" if there is no effect.
func (v *view) sides(c *study.Comparison) (a, b string) {
	if c.Effect == nil {
		return "–", "–"
	}
	unit := v.unit(c.Unit)
	if unit != "" {
		unit = " " + unit
	}
	return show.Figure(c.Effect.A) + unit, show.Figure(c.Effect.B) + unit
}

func pText(c *study.Comparison) string {
	switch {
	case c.Judged == nil:
		return "–"
	// Below this, the digits only reflect the number of runs.
	case c.Judged.P < 0.0001:
		return "<0.0001"
	}
	return show.Short(c.Judged.P)
}

// remarks returns remarks on a comparison beside its verdict. Confounding is not included, because it is shown with
// the verdict everywhere.
func remarks(c *study.Comparison) []string {
	var out []string
	switch {
	case c.Judged == nil:
		out = append(out, c.Problem)
	case c.Judged.Verdict == stats.Undecided:
		out = append(out, c.Judged.Reason)
	}
	out = append(out, c.Drift...)
	if c.Lost > 0 {
		out = append(out, words.Count(c.Lost, "block")+" without a figure of both levels")
	}
	return out
}

func notes(all []study.Comparison) []string {
	var of group.By[string, *study.Comparison]
	for i := range all {
		for _, r := range remarks(&all[i]) {
			of.Add(r, &all[i])
		}
	}
	var out []string
	for _, r := range of.Keys {
		c := of.Of(r)[0]
		// A remark that applies to several comparisons is printed once, because a list of forty equal lines would
		// hide a different one.
		who := fmt.Sprintf("%s, %s %s", nameOf(c.Quantity), c.Factor, c.B)
		switch n := len(of.Of(r)); {
		case n > 1:
			who = fmt.Sprintf("%d comparisons", n)
		case c.Where != "":
			who += " at " + c.Where
		}
		out = append(out, who+": "+r)
	}
	return out
}

type setting struct{ Name, Value string }

func (v *view) made() []setting {
	s := v.Data.Spec
	out := []setting{{"Study", s.Name}}
	for _, f := range s.Factors {
		out = append(out, setting{"Varied: " + f.Name, strings.Join(f.Levels, ", ")})
	}
	for _, m := range s.Measure {
		text := m.Key()
		if m.Bytes > 0 {
			text = m.Test + ", " + show.Size(m.Bytes)
		}
		if m.Iterations > 0 {
			text += fmt.Sprintf(", %d iterations", m.Iterations)
		}
		if m.Seconds > 0 {
			text += fmt.Sprintf(", %d s", m.Seconds)
		}
		if len(m.Metrics) > 0 {
			text += "; compared: " + strings.ReplaceAll(strings.Join(m.Metrics, ", "), "_", " ")
		}
		name := "Measured"
		if m.Control {
			name = "Control"
		}
		out = append(out, setting{name, text})
	}
	design := "every combination of levels"
	if s.Design == study.DesignHalf {
		design = "half of the combinations of levels"
	}
	order := fmt.Sprintf("blocks of %s, twice each, in random order and the same order backwards; seed %d",
		words.Count(len(s.Cells()), "cell")+" ("+design+")", s.Seed)
	// Blocks protect against drift only if the runs were made as blocks, which is not true for imported runs.
	if s.Imported != "" {
		order = fmt.Sprintf("not known: imported (%s); blocks are the numbers of repeats", s.Imported)
	}
	out = append(out, setting{"Order", order}, setting{"Judged", v.rule()})
	if s.Lab != "" {
		out = append(out, setting{"Lab", s.Lab})
	}
	if len(s.Pair) == 2 {
		out = append(out, setting{"Between", fmt.Sprintf("%s (client) and %s (server)", s.Pair[0], s.Pair[1])})
	}
	return out
}

// Write writes an analysed study in a format: md, json, yaml, csv, html, or text. The options apply to text.
func Write(w io.Writer, format string, doc *study.Document, o Options) error {
	// All formats use the same document, so that they agree.
	switch format {
	case "md":
		return Markdown(w, doc)
	case show.JSON, show.YAML:
		return Encode(w, format, doc)
	case "csv":
		return CSV(w, doc)
	case "html":
		return Page(w, doc)
	}
	return Text(w, doc, o)
}

const oppositeTitle = "Why this is the opposite of what is published."

// opposite explains why pinning or isolation costs in this study although published measurements show a benefit: the
// pinned nodes have fewer CPUs than permanently busy threads. It returns "" if that does not apply.
func (v *view) opposite() string {
	worse := make(map[string]bool) // by test
	for i := range v.Result.Comparisons {
		c := &v.Result.Comparisons[i]
		if c.Judged != nil && c.Judged.Verdict == stats.Worse && pins(c) {
			worse[c.Test] = true
		}
	}
	if len(worse) == 0 || v.Lab == nil {
		return ""
	}
	// Only emulated nodes have protected CPUs, because they are pinned without a plan.
	var all, protected topology.CPUSet
	for _, f := range v.Environment {
		set, err := topology.ParseCPUSet(f.Value)
		switch {
		case err != nil:
		case f.Name == "host CPUs":
			all = set
		case f.Name == "protected CPUs":
			protected = set
		}
	}
	need := 1 // the switch
	need += lists.Sum(v.Lab.Nodes, func(n record.Node) int { return n.CPUs })
	if all.IsEmpty() || protected.IsEmpty() || need == 1 || protected.Len() >= need {
		return ""
	}
	published := v.published(worse)
	if published == "" {
		return ""
	}
	share := "CPUs " + protected.String()
	if protected.Len() == 1 {
		share = "CPU " + protected.String()
	}
	return fmt.Sprintf("%s This host has %s: the nodes' %s and the switch would keep %d busy, and pinned they share "+
		"%s, while nodes that are not pinned may use all. So pinning takes away more here than it protects. That is "+
		"true of this host and of others as small, and not of pinning: take a setting from a study on a host of the "+
		"size that you use.", published, words.Count(all.Len(), "CPU"), words.Count(need-1, "virtual CPU"), need,
		share)
}

func pins(c *study.Comparison) bool {
	return strings.Contains(c.Factor, study.FactorPlacement) && strings.Contains(c.B, "pin")
}

// published describes the largest published effect of isolated CPUs on any of the tests, or returns "".
func (v *view) published(tests map[string]bool) string {
	most, said := 1.0, ""
	for _, d := range recommend.Documents() {
		for _, f := range d.Figures {
			if f.Setting != recommend.Isolation || f.Verdict != stats.Better || f.A <= 0 || f.B <= 0 || !tests[f.Test] {
				continue
			}
			if ratio := max(f.A/f.B, f.B/f.A); ratio > most {
				metric := strings.ReplaceAll(f.Metric, "_", " ")
				most, said = ratio, fmt.Sprintf("“%s” measured: with CPUs kept free of other work (%s instead "+
					"of %s) and %s, %s of %s went from %s to %s %s. Its host, %s, has CPUs to spare.", d.Title, f.To,
					f.From, f.Where, metric, f.Test, show.Figure(f.A), show.Figure(f.B), v.unit(f.Unit),
					words.List(d.Kind))
			}
		}
	}
	return said
}
