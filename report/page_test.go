package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

func render(t testing.TB, d record.Record) string {
	t.Helper()
	var out bytes.Buffer
	if err := Page(&out, d); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPageIsAsCommitted(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, "testdata/"+name+".html", render(t, loadFixture(t, name)))
		})
	}
}

func TestRecordsAreAsCommitted(t *testing.T) {
	for _, name := range fixtures {
		for extension, write := range map[string]func(io.Writer, record.Record) error{".md": Markdown, ".csv": CSV} {
			t.Run(name+extension, func(t *testing.T) {
				var out bytes.Buffer
				if err := write(&out, loadFixture(t, name)); err != nil {
					t.Fatal(err)
				}
				golden.Check(t, "testdata/"+name+extension, out.Bytes())
			})
		}
	}
}

// No field can end a table, a fence or its line.
func TestHostileTextStaysTextInMarkdown(t *testing.T) {
	var out bytes.Buffer
	if err := Markdown(&out, hostileData()); err != nil {
		t.Fatal(err)
	}
	fence := ""
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = line
		case line == fence:
			fence = ""
		case fence == "" && strings.ContainsAny(line, "<\x1b\x07"):
			t.Errorf("a line is more than text: %q", line)
		}
	}
	if fence != "" {
		t.Errorf("a block of code does not end: %s", fence)
	}
}

func TestPageOfTheSameDataHasTheSameBytes(t *testing.T) {
	d := synthetic(5, fullMesh(5), []int64{2, 64, 65536})
	first := render(t, d)
	for range 5 {
		if render(t, d) != first {
			t.Fatal("two pages of the same data differ")
		}
	}
}

var valuesAttribute = regexp.MustCompile(`data-values="([^"]*)"`)

// Every figure is in the tables as often as measured.
func TestEverySampleIsInThePage(t *testing.T) {
	for name, d := range map[string]record.Record{
		"a fixture of two nodes": loadFixture(t, "two-nodes"),
		"repeats and failures":   loadFixture(t, "failures"),
		"a full mesh":            synthetic(6, fullMesh(6), []int64{2, 65536}),
		"both directions":        synthetic(2, fullMesh(2), sizes(1, 23, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			left := make(map[float64]int)
			for _, m := range valuesAttribute.FindAllStringSubmatch(render(t, d), -1) {
				for _, f := range strings.Fields(m[1]) {
					v, err := strconv.ParseFloat(f, 64)
					if err != nil {
						t.Fatal(err)
					}
					left[v]++
				}
			}
			for _, s := range d.Samples {
				if s.Error == "" {
					left[s.Value]--
				}
			}
			for v, n := range left {
				if n != 0 {
					t.Errorf("value %v: %+d more in the page than in the samples", v, n)
				}
			}
		})
	}
}

func TestPageOfAFullRunOfTwoNodesIsSmall(t *testing.T) {
	const limit = 300_000
	if n := len(render(t, synthetic(2, fullMesh(2), sizes(1, 23, 1)))); n > limit {
		t.Errorf("page has %d bytes, want at most %d", n, limit)
	}
}

func TestPageSaysWhatIsMissing(t *testing.T) {
	page := render(t, record.Record{})
	for _, want := range []string{"Lab without a name", "Nothing was measured.", "No check was made", "names no nodes",
		"There are no figures.", "None: nothing was measured.",
		"Nothing was recorded about the environment.", "No command line was recorded.", "not recorded",
		"of unknown version"} {
		if !strings.Contains(page, want) {
			t.Errorf("page of nothing does not say %q", want)
		}
	}
	if strings.Contains(page, `class="banner"`) {
		t.Error("page of nothing claims to be emulated")
	}
}

func TestPageListsAFailureWithErrorAndCommands(t *testing.T) {
	d := record.Record{Samples: []bench.Sample{{Test: "ib_write_bw", Client: "a", Server: "b", Error: "exit status 1",
		Command: "ib_write_bw -s 4 b", ServerCommand: "ib_write_bw -s 4", Attempt: 3}}}
	page := render(t, d)
	for _, want := range []string{"No measurement succeeded.", ">1 failed measurement<", "ib_write_bw, a to b",
		"<dd>exit status 1</dd>", "<dt>attempt</dt><dd>3</dd>",
		"<pre>ib_write_bw -s 4 b</pre>", "<pre>ib_write_bw -s 4</pre>"} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not contain %q", want)
		}
	}
}

func TestPageShowsAFailedCheckBeforeTheOthers(t *testing.T) {
	d := record.Record{Findings: []finding.Finding{
		{ID: "fine", Subject: "a", Title: "first", Status: finding.OK},
		{ID: "dark", Subject: "a", Title: "second", Status: finding.Unknown, Fix: "look again"},
		{ID: "bad", Subject: "a", Title: "third", Status: finding.Failed, Have: "1", Want: "2", Evidence: "/sys/x",
			Fix: "make it 2"},
	}}
	page := render(t, d)
	at := 0
	for _, want := range []string{"✗ failed: third, a", "<dd>1</dd>", "<dd>2</dd>", "/sys/x", "make it 2",
		"? unknown: second, a", "look again", "✓ ok", "first"} {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("page does not contain %q after what should come before it", want)
		}
		at += i
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestErrorsOfWritingAreReturnedWithTheLab(t *testing.T) {
	d := synthetic(2, fullMesh(2), sizes(1, 23, 1)) // larger than any buffer
	for name, err := range map[string]error{
		"write the report of lab":  Page(fullDisk{}, d),
		"print the results of lab": Terminal(fullDisk{}, d, TerminalOptions{}),
	} {
		if !errors.Is(err, errFull) || !strings.HasPrefix(err.Error(), name+` "demo": `) {
			t.Errorf("got error %v, want it to be %q after %q", err, errFull, name)
		}
	}
	if err := Page(fullDisk{}, record.Record{}); !errors.Is(err, errFull) {
		t.Errorf("a small page: got error %v, want %v", err, errFull)
	}
}

func TestTablesMarkEmulatedRowsWhereTheyAreMixed(t *testing.T) {
	real := bench.Sample{Test: "ib_write_bw", Client: "a", Server: "b", Metric: bench.MetricBWAverage, Bytes: 4,
		Value: 90, Unit: "Gb/s", Tool: "perftest"}
	soft := real
	soft.Value, soft.Emulated = 0.2, true
	d := record.Record{Samples: []bench.Sample{soft, real}}
	tables := collect(d).tables(d)
	if len(tables) != 1 || len(tables[0].Rows) != 2 || !tables[0].Mixed {
		t.Fatalf("got %+v, want one mixed table of two rows: emulated and hardware are never one figure", tables)
	}
	if tables[0].Rows[0].Emulated || tables[0].Rows[0].Cells[0].Text != "90" || !tables[0].Rows[1].Emulated {
		t.Errorf("got rows %+v, want the hardware first, then the emulated one", tables[0].Rows)
	}
	if got, want := tables[0].Caption, "perftest; partly emulated"; got != want {
		t.Errorf("caption is %q, want %q", got, want)
	}
	page := render(t, d)
	if !strings.Contains(page, "Partly emulated: 1 of 2 measured values") {
		t.Error("the banner does not say how much is emulated")
	}
	if got := len(collect(d).scopes()); got != 2 {
		t.Errorf("%d groups of charts, want one for each kind", got)
	}
}

func TestAFigureThatNoToolPrintedIsMarked(t *testing.T) {
	s := bw("a", "b", 2, 0.0000123)
	s.Derived = true
	d := record.Record{Samples: []bench.Sample{s, bw("a", "b", 4, 0.5)}}
	page := render(t, d)
	for _, want := range []string{`data-values="0.0000123">≈ 0.0000123<`,
		`data-values="0.5"><span class="f6">0.5</span><`, "the tool printed 0",
		"average, computed from another column"} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not contain %q", want)
		}
	}
	text := onTerminal(t, d, TerminalOptions{})
	for _, want := range []string{" ~0.0000123\n", " 0.5\n", "~: the tool printed 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("terminal does not show %q:\n%s", want, text)
		}
	}
	if text := onTerminal(t, record.Record{Samples: d.Samples[1:]}, TerminalOptions{}); strings.Contains(text, "~") {
		t.Errorf("a printed figure is marked as computed:\n%s", text)
	}
}

func TestFiguresOfAColumnStandWithTheirPointsBelowEachOther(t *testing.T) {
	column := func(texts ...string) string {
		table := figureTable{Columns: []figureColumn{{Title: "x"}}}
		for _, s := range texts {
			table.Rows = append(table.Rows, figureRow{Cells: []figureCell{{Text: s}}})
		}
		table.align()
		var out []string
		for _, row := range table.Rows {
			out = append(out, row.Cells[0].Align)
		}
		return strings.Join(out, " ")
	}
	for name, c := range map[string]struct {
		texts []string
		want  string
	}{
		"a whole number lacks the point too": {[]string{"0.125", "2.5", "30"}, " f2 i3"},
		"whole numbers need nothing":         {[]string{"1", "200"}, " "},
		"computed figures are figures":       {[]string{"≈ 0.0001", "0.5"}, " f3"},
		"no figure":                          {[]string{"", "0.5", "1.25"}, " f1 "},
		"as far apart as the style goes":     {[]string{"0.000000000001", "1", "0.1"}, " i9 f9"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := column(c.texts...); got != c.want {
				t.Errorf("classes are %q, want %q", got, c.want)
			}
			for class := range strings.FieldsSeq(c.want) {
				if !strings.Contains(show.Style, "."+class+"::after") {
					t.Errorf("the style sheet has no class %s", class)
				}
			}
		})
	}
}

func TestFiguresStayWithTheirUnits(t *testing.T) {
	in := "a1 to b: ib_write_bw 0.36 Gb/s average at 64 KiB (0.2 to 0.4); ib_write_lat 498 µs typical at 2 B."
	want := "a1 to b: ib_write_bw 0.36_Gb/s average at 64_KiB (0.2 to 0.4); ib_write_lat 498_µs typical at 2_B."
	if got := strings.ReplaceAll(keepUnits(in), "\u00a0", "_"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPageListsThePairsOfAStarInsteadOfAnEmptyMatrix(t *testing.T) {
	page := render(t, synthetic(8, star(8), []int64{65536}))
	for _, want := range []string{"client to server</th><th scope=\"col\">ib_write_bw<br>64 KiB<br>Gb/s</th>",
		"<th scope=\"row\">vm07 to vm00</th><td class=\"h", "7 pairs</span>"} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not contain %q", want)
		}
	}
	if strings.Contains(page, `client \ server`) {
		t.Error("page has a matrix too")
	}
}

func TestUnknownMetricsGetAColumnOfTheirOwn(t *testing.T) {
	d := record.Record{Samples: []bench.Sample{{Test: "x", Client: "a", Server: "b", Metric: "jitter", Value: 7.5,
		Unit: "us"}}}
	tables := collect(d).tables(d)
	if got, want := tables[0].Columns, []figureColumn{{"jitter, µs", "jitter", "us"}}; !slices.Equal(got, want) {
		t.Errorf("columns are %+v, want %+v", got, want)
	}
	if got, want := tables[0].Rows[0].Cells[0].Values, "7.5"; got != want {
		t.Errorf("cell is %q, want %q", got, want)
	}
}

func TestCommandsAreListedOnceInTheOrderOfTheSamples(t *testing.T) {
	a := bench.Sample{Test: "t", Client: "a", Server: "b", Command: "two", ServerCommand: "one"}
	b := a
	b.Command = "three"
	got := commands(record.Record{Samples: []bench.Sample{a, a, b, {Test: "t"}, a}})
	if len(got) != 2 || got[0].Command != "two" || got[1].Command != "three" {
		t.Errorf("got %+v, want two commands, \"two\" first", got)
	}
}

// In light and dark.
func TestColoursHaveTheContrastThatWCAGAsksFor(t *testing.T) {
	css := show.Style
	parts := strings.SplitN(css, "@media screen and (prefers-color-scheme: dark)", 2)
	light := colours(t, parts[0])
	dark := colours(t, parts[1][:strings.Index(parts[1], "* {")])
	for name, c := range map[string]map[string]float64{"light": light, "dark": dark} {
		for _, p := range []struct {
			front, back string
			least       float64 // 4.5 for text (AA), 3 for shapes
		}{
			{"fg", "bg", 4.5}, {"soft", "bg", 4.5}, {"link", "bg", 4.5}, {"good", "bg", 4.5}, {"fg", "box", 4.5},
			{"loud-fg", "loud-bg", 4.5}, {"bad-fg", "bad-bg", 4.5},
			{"bg", "s0", 4.5}, // the switch's label
			{"fg", "grid", 4.5},
			{"s0", "bg", 3}, {"s1", "bg", 3}, {"s2", "bg", 3}, {"s3", "bg", 3}, {"s4", "bg", 3}, {"s5", "bg", 3},
			{"bad-line", "bg", 3}, {"loud-line", "bg", 3},
		} {
			if got := contrast(c[p.front], c[p.back]); got < p.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want at least %.1f", name, p.front, p.back, got, p.least)
			}
		}
	}
	heat := regexp.MustCompile(`\.h(\d) \{ background: (#\w{6}); color: (#\w{6}); \}`).FindAllStringSubmatch(css, -1)
	if len(heat) != heatSteps {
		t.Fatalf("%d colours for a matrix, want %d", len(heat), heatSteps)
	}
	for _, h := range heat {
		if got := contrast(luminance(t, h[2]), luminance(t, h[3])); got < 4.5 {
			t.Errorf("step %s of the matrix has a contrast of %.2f, want at least 4.5", h[1], got)
		}
	}
}

func colours(t *testing.T, css string) map[string]float64 {
	out := make(map[string]float64)
	for _, m := range regexp.MustCompile(`--([\w-]+): (#\w{6})`).FindAllStringSubmatch(css, -1) {
		out[m[1]] = luminance(t, m[2])
	}
	if len(out) < 15 {
		t.Fatalf("read only %d colours from the style sheet", len(out))
	}
	return out
}

// luminance is that of https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
func luminance(t *testing.T, hex string) float64 {
	var rgb [3]uint8
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
		t.Fatalf("colour %q: %v", hex, err)
	}
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(rgb[i]) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }
