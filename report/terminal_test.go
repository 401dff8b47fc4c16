package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/study/record"
)

func onTerminal(t *testing.T, d record.Record, o TerminalOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := Terminal(&out, d, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTerminalIsAsCommitted(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, "testdata/"+name+".txt", onTerminal(t, loadFixture(t, name), TerminalOptions{}))
		})
	}
	t.Run("failures in colour", func(t *testing.T) {
		golden.Check(t, "testdata/failures-colour.txt", onTerminal(t, loadFixture(t, "failures"),
			TerminalOptions{Color: true}))
	})
	t.Run("a full run of all sizes", func(t *testing.T) {
		d := synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 1))
		golden.Check(t, "testdata/full-run.txt", onTerminal(t, d, TerminalOptions{AllSizes: true}))
	})
	t.Run("a star of six nodes", func(t *testing.T) {
		golden.Check(t, "testdata/star.txt", onTerminal(t, synthetic(6, star(6), []int64{2, 65536}), TerminalOptions{}))
	})
	t.Run("many pairs", func(t *testing.T) {
		d := synthetic(8, fullMesh(8), []int64{2, 65536})
		d.Samples = append(d.Samples, bench.Sample{Test: "ib_write_bw", Client: "vm07", Server: "vm07", Bytes: 65536,
			Error: "a node cannot be its own server", Attempt: 1},
			bench.Sample{Test: "ib_atomic_bw", Client: "vm07", Server: "vm06", Bytes: 8, Error: "not supported",
				Attempt: 1})
		golden.Check(t, "testdata/eight-nodes.txt", onTerminal(t, d, TerminalOptions{}))
	})
}

// Only a command may be longer, for copying.
func TestTerminalKeepsToItsWidth(t *testing.T) {
	for _, width := range []int{0, 60, 80, 120} {
		for _, d := range []record.Record{loadFixture(t, "two-nodes"), loadFixture(t, "failures"),
			synthetic(16, fullMesh(16), []int64{2, 65536}), {}} {
			want := width
			if want == 0 {
				want = 80
			}
			if want == 60 {
				want = 76 // tables are not cut
			}
			for line := range strings.Lines(onTerminal(t, d, TerminalOptions{Width: width})) {
				line = strings.TrimSuffix(line, "\n")
				command := strings.HasPrefix(line, "  server: ") || strings.HasPrefix(line, "  client: ")
				if n := text.StringWidth(line); n > want && !command {
					t.Errorf("width %d: line of %d columns: %q", width, n, line)
				}
				if strings.TrimRight(line, " ") != line {
					t.Errorf("width %d: spaces at the end of %q", width, line)
				}
			}
		}
	}
}

func TestTerminalWithoutColourHasNoEscapes(t *testing.T) {
	d := loadFixture(t, "failures")
	plain := onTerminal(t, d, TerminalOptions{})
	if strings.Contains(plain, "\x1b") {
		t.Error("there is an escape sequence without Color")
	}
	coloured := onTerminal(t, d, TerminalOptions{Color: true})
	if !strings.Contains(coloured, "\x1b[31m") {
		t.Error("nothing is red with Color")
	}
	if got := text.StripEscape(coloured); got != plain {
		t.Errorf("colours change the text:\n%s\nwant\n%s", got, plain)
	}
}

func TestTerminalColourIsTheCallersDecision(t *testing.T) {
	d := loadFixture(t, "failures")
	want := onTerminal(t, d, TerminalOptions{Color: true})
	t.Setenv("NO_COLOR", "1")
	t.Setenv("TERM", "dumb")
	if got := onTerminal(t, d, TerminalOptions{Color: true}); got != want {
		t.Error("the environment changes the output")
	}
}

func TestTerminalSaysEmulatedBesideTheFigures(t *testing.T) {
	for name, d := range map[string]record.Record{"one pair": loadFixture(t, "two-nodes"),
		"many pairs": synthetic(8, fullMesh(8), []int64{65536})} {
		blocks := strings.Split(onTerminal(t, d, TerminalOptions{}), "\n\n")
		for _, b := range blocks {
			if strings.Contains(b, "───") && !strings.Contains(b, ", emulated\n") {
				t.Errorf("%s: a table without the word:\n%s", name, b)
			}
		}
	}
	hardware := bw("a", "b", 4, 90)
	if out := onTerminal(t, record.Record{Samples: []bench.Sample{hardware}}, TerminalOptions{}); strings.Contains(out,
		"mulated") {
		t.Errorf("a figure of hardware is called emulated:\n%s", out)
	}
}

func TestTerminalSaysWhenALatencyOfManyPairsIsAnAverage(t *testing.T) {
	var d record.Record
	for _, server := range []string{"b", "c", "d", "e"} {
		d.Samples = append(d.Samples, bench.Sample{Test: "ib_write_lat", Client: "a", Server: server,
			Metric: bench.MetricLatencyAverage, Bytes: 2, Value: 400, Unit: "us"})
	}
	if out := onTerminal(t, d, TerminalOptions{}); !strings.Contains(out, "us, average") {
		t.Errorf("output does not say it:\n%s", out)
	}
}

// A busy machine is reported first, in each form.
func TestADisturbedMeasurementSaysSoFirst(t *testing.T) {
	d := loadFixture(t, "two-nodes")
	if text := onTerminal(t, d, TerminalOptions{}); strings.Contains(text, "disturbed") {
		t.Errorf("an idle machine: %s", text)
	}
	d.Disturbed = "disturbed: the machine was busy"
	if text := onTerminal(t, d, TerminalOptions{}); !strings.HasPrefix(text, d.Disturbed) {
		t.Errorf("the terminal begins with %.80q", text)
	}
	_, header, _ := strings.Cut(render(t, d), "<header>")
	if !strings.HasPrefix(strings.TrimSpace(header), `<p class="bad" role="note">`+d.Disturbed) {
		t.Errorf("the page begins with %.80q", header)
	}
	var md strings.Builder
	if err := Markdown(&md, d); err != nil || !strings.HasPrefix(md.String(), "> "+d.Disturbed) {
		t.Errorf("Markdown begins with %.80q, %v", md.String(), err)
	}
	var out bytes.Buffer
	if err := bench.WriteSamples(&out, []bench.Sample{{Run: "1", Test: "ping", Client: "a", Error: "no", Attempt: 1,
		Disturbed: d.Disturbed}}); err != nil || !strings.Contains(out.String(), `"disturbed":"disturbed: `) {
		t.Errorf("a sample is %s, %v", out.String(), err)
	}
}

func TestFindingsText(t *testing.T) {
	of := func(statuses ...finding.Status) []finding.Finding {
		var out []finding.Finding
		for _, s := range statuses {
			out = append(out, finding.Finding{Status: s})
		}
		return out
	}
	for _, c := range []struct {
		findings []finding.Finding
		want     string
	}{
		{nil, "No check was made"},
		{of(finding.OK), "The one check that was made is ok"},
		{of(finding.OK, finding.OK), "All 2 checks are ok"},
		{of(finding.Failed), "1 of 1 check failed"},
		{of(finding.OK, finding.Failed, finding.Failed), "2 of 3 checks failed"},
		{of(finding.OK, finding.Unknown), "1 check could not be read"},
		{of(finding.Failed, finding.Unknown, finding.Unknown), "1 of 3 checks failed, 2 checks could not be read"},
		{of("a status of tomorrow"), "1 check could not be read"},
	} {
		if got := FindingsText(c.findings); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
