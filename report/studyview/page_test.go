package studyview

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

func pageOf(t *testing.T, d *study.Document) string {
	t.Helper()
	return string(written(t, func(b *bytes.Buffer) error { return Page(b, d) }))
}

// aaDocument has too few blocks for an interval, a control that moved and a comparison without a partner.
func aaDocument(t *testing.T) *study.Document {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	d := document(t, simulate(t, "name: aa\nlab: pair.yaml\nfactors:\n  placement: [default, default]\nmeasure: "+
		"[{test: iperf3, metrics: [throughput]}]\nblocks: 3\n",
		func(map[string]string, string, string) (float64, float64) { return 9 + rng.Float64(), 0.01 }))
	d.Result.Comparisons[0].Confounded = []string{"sysbench-cpu events moved too: -20.0% (-21.0% to -19.0%)"}
	d.Result.Comparisons = append(d.Result.Comparisons, study.Comparison{Factor: "placement", A: "default", B: "pin",
		Quantity: study.Quantity{Test: "nccl", Metric: "bus_bandwidth", Unit: "GB/s"},
		Better:   stats.HigherIsBetter, Problem: "there is no block with a figure of both levels"})
	return d
}

func TestPagesAreWellFormed(t *testing.T) {
	t.Parallel()
	empty := &study.Document{Result: &study.Result{}, Data: &study.Data{Spec: &study.Spec{}}}
	for name, d := range map[string]*study.Document{"pin": pinDocument(t), "long": longDocument(t),
		"hostile": hostileDocument(t), "aa": aaDocument(t), "empty": empty} {
		page := pageOf(t, d)
		ids := map[string]bool{}
		for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if ids[m[1]] {
				t.Errorf("%s: two elements are called %q", name, m[1])
			}
			ids[m[1]] = true
		}
		for _, m := range regexp.MustCompile(` href="#([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if !ids[m[1]] {
				t.Errorf("%s: a link leads to %q, which is not there", name, m[1])
			}
		}
		// Style and script are not XML, and HTML elements need no end.
		page = regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`).ReplaceAllString(page, "")
		page = regexp.MustCompile(`<(meta|br|img)\b([^>]*)>`).ReplaceAllString(page, "<$1$2/>")
		page = strings.NewReplacer("<!DOCTYPE html>", "", " open>", ">").Replace(page)
		decoder := xml.NewDecoder(strings.NewReader(page))
		decoder.Entity = xml.HTMLEntity
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if strings.Contains(page, "NaN") || strings.Contains(page, "Inf ") {
			t.Errorf("%s: a figure is no number", name)
		}
	}
}

func TestPagesReferToNothingOutside(t *testing.T) {
	t.Parallel()
	page := pageOf(t, pinDocument(t))
	for _, m := range regexp.MustCompile(`(?:src|href|action|url|srcset|data)\s*[=(]\s*["']?([^"')>\s]*)`).
		FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(m[1], "#") && !strings.HasPrefix(m[1], "data:text/csv;") && !strings.HasPrefix(m[1],
			"data:image/svg&#43;xml;base64,") {
			t.Errorf("the page refers to %q", m[1])
		}
	}
	if strings.Contains(page, "@import") || strings.Contains(page, "http:") || strings.Contains(page, "https:") {
		t.Error("the page has an address")
	}
	if !strings.Contains(page, `content="default-src 'none'; img-src data:; style-src '`+
		strings.ReplaceAll(show.NewHead(show.Style+show.SortStyle+pageCSS, "").StyleHash, "+", "&#43;")) {
		t.Error("the policy does not name the style sheet")
	}
}

func TestHostileTextStaysTextInThePage(t *testing.T) {
	t.Parallel()
	page := pageOf(t, hostileDocument(t))
	page = strings.ReplaceAll(page, `<img src="data:image/svg`, "") // the picture of the machine
	for _, bad := range []string{"<script>alert", "<img", "<style>*", "<!--", "\x1b", "\u202e"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q from a field", bad)
		}
	}
	if n := strings.Count(page, "<script>"); n != 1 {
		t.Errorf("the page has %d scripts, want 1", n)
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 100 {
		t.Errorf("hostile text is shown as text %d times, want it in most places", n)
	}
}

func TestThePageSaysWhatSpeaksAgainstTheStudy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"emulated": {pageOf(t, pinDocument(t)), []string{`<p class="banner" role="note">Emulated.`,
			"(emulated)</title>", `<span class="tag">emulated</span>`, "1 of 81 runs failed",
			"None of those looked for was found",
			"another frequency governor", "ib_write_lat -d rxe0 -x 1 -s 8 -n 20000 10.77.0.11", "perftest 6.20",
			"rackless study run pin-under-load.yaml", "disturbed: something else on the host used 1.20 CPUs"}},
		"confounds": {pageOf(t, longDocument(t)), []string{"1 thing that may have fooled the study",
			"governor is powersave", "noise floor of the host"}},
		"a control": {pageOf(t, aaDocument(t)),
			[]string{"is confounded, so do not rely on it: sysbench-cpu events moved too",
				"confounded: do not rely on it", `<span class="tag">confounded</span>`,
				"not compared: there is no block", "too few blocks"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.page, want) {
				t.Errorf("%s: %q is missing", name, want)
			}
		}
	}
	if strings.Contains(pageOf(t, longDocument(t)), `class="banner"`) {
		t.Error("a page of hardware says that it is emulated")
	}
}

func TestAVerdictIsDrawnByColourAndSign(t *testing.T) {
	t.Parallel()
	d := pinDocument(t)
	src, err := newSource(d, words.Visible, show.Unit)
	if err != nil {
		t.Fatal(err)
	}
	signs := map[string]string{} // by class of the disc
	for _, c := range src.forests() {
		for i, s := range c.Shapes {
			if class, ok := strings.CutPrefix(s.Class, "disc f-"); ok {
				d := c.Shapes[i+1].D
				form := regexp.MustCompile(`[0-9. -]+`).ReplaceAllString(d, " ")
				if old, ok := signs[class]; ok && old != form {
					t.Errorf("%s has the signs %q and %q", class, old, form)
				}
				signs[class] = form
				if s.Title == "" {
					t.Errorf("a disc of %s has no title", class)
				}
			}
		}
	}
	seen := map[string]bool{}
	for class, form := range signs {
		if seen[form] {
			t.Errorf("%s has the sign of another verdict", class)
		}
		seen[form] = true
	}
	if len(signs) != 4 {
		t.Errorf("got %v, want four verdicts", signs)
	}
}

func TestALargeStudyMakesAPageThatCanBeOpened(t *testing.T) {
	t.Parallel()
	d := simulate(t, "name: large\nlab: pair.yaml\nfactors:\n  placement: [default, pin]\n  contention: [idle, "+
		"\"cpu:1\", \"cpu:2\", \"cpu:3\"]\nmeasure: [{test: iperf3, metrics: [throughput]}]\nblocks: 300\n",
		func(map[string]string, string, string) (float64, float64) { return 9, 0.1 })
	d.Spec.Name = strings.Repeat("large", 20) // in every line of the CSV
	page := pageOf(t, document(t, d))
	if len(page) > 6<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if !strings.Contains(page, "2800 more are left out") {
		t.Error("the page does not say what it leaves out")
	}
	if strings.Contains(page, "data:text/csv") {
		t.Error("the page has an address that browsers drop")
	}
	if n := strings.Count(page, `class="dot"`); n > 8*maxDots {
		t.Errorf("%d dots", n)
	}
}

func TestLinesKeepEveryLetter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-zA-Z中W =:-]{0,80}`).Draw(t, "text")
		room := rapid.IntRange(30, 400).Draw(t, "room")
		all := chart.TextFont.Lines(s, room)
		for _, l := range all {
			if chart.TextFont.Width(l) > room {
				t.Errorf("%q is %d wide, want at most %d", l, chart.TextFont.Width(l), room)
			}
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got := squeeze(strings.Join(all, "")); got != squeeze(s) {
			t.Errorf("%q became %q", s, all)
		}
	})
	if got := chart.TextFont.Lines("at wrong-numa-node-on-purpose", 100); !slices.Equal(got,
		[]string{"at wrong-numa-", "node-on-", "purpose"}) {
		t.Errorf("got %q", got)
	}
}

// Axes enclose their values, with ticks in order and labels that do not overlap.
func TestAxesHoldTheirValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lo := math.Exp(rapid.Float64Range(-20, 20).Draw(t, "ln lowest"))
		hi := lo * math.Exp(rapid.Float64Range(0, 25).Draw(t, "ln ratio"))
		check := func(what string, a chart.Axis, lo, hi float64) {
			for _, v := range []float64{lo, hi} {
				if at := a.At(v); !(at >= a.From-0.1 && at <= a.To+0.1) {
					t.Errorf("%s: %v is at %v, want it from %v to %v", what, v, at, a.From, a.To)
				}
			}
			if !slices.IsSorted(a.Ticks) || len(a.Ticks) == 0 || len(a.Ticks) > 8 {
				t.Errorf("%s from %v to %v has the ticks %v", what, a.Lo, a.Hi, a.Ticks)
			}
			for i := 1; i < len(a.Ticks); i++ {
				if a.Label(a.Ticks[i]) == a.Label(a.Ticks[i-1]) {
					t.Errorf("%s: %v and %v are both %q", what, a.Ticks[i-1], a.Ticks[i], a.Label(a.Ticks[i]))
				}
			}
		}
		low, high := min(1, lo), max(1, hi)
		a := effectAxis([]*study.Comparison{{Effect: &stats.Effect{Scale: stats.Ratio, Estimate: lo,
			Margin: 0.05, Interval: stats.Interval{Low: low, High: high}}}})
		check("ratios", a, low, high)
		if !slices.ContainsFunc(a.Ticks, func(v float64) bool { return math.Abs(v-1) < 1e-9 }) {
			t.Errorf("no effect is not among the ticks %v from %v to %v", a.Ticks, a.Lo, a.Hi)
		}
		a = effectAxis([]*study.Comparison{{Effect: &stats.Effect{Scale: stats.Difference, Estimate: lo,
			Interval: stats.Interval{Low: -hi, High: hi}}}})
		check("differences", a, -hi, hi)
	})
}

func TestRatiosBeyondTenAreFactors(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{1: "0%", 0.5: "-50%", 2: "+100%", 1.025: "+2.5%", 10: "×10", 0.1: "÷10",
		1000: "×1000"} {
		if got := ratioLabel(v); got != want {
			t.Errorf("ratioLabel(%v) = %q, want %q", v, got, want)
		}
	}
	if got := signed(-1e-12); got != "0" {
		t.Errorf("got %q, want 0", got)
	}
}

func TestFileNamesAreSafeEverywhere(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"pin-under-load": "pin-under-load", "../../etc/passwd": "etcpasswd",
		"": "study", "µ": "study", strings.Repeat("a", 99): strings.Repeat("a", 60)} {
		if got := fileName(in); got != want {
			t.Errorf("fileName(%q) = %q, want %q", in, got, want)
		}
	}
}
