package studyview

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

func TestTheFixtureHasEveryVerdict(t *testing.T) {
	t.Parallel()
	d := pinDocument(t)
	got := map[string]stats.Verdict{}
	for _, c := range d.Result.Comparisons {
		if c.Factor == "placement" {
			got[c.Metric+" "+c.Where] = c.Judged.Verdict
		}
	}
	for name, want := range map[string]stats.Verdict{
		"latency_typical contention=cpu:2": stats.Better, "latency_typical contention=idle": stats.Equivalent,
		"bw_average contention=cpu:2": stats.Undecided,
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if r := d.Result.Runs; r != (study.Counts{Done: 79, Failed: 1, Disturbed: 1}) {
		t.Errorf("got %+v", r)
	}
}

func TestEveryOutputIsAsItWas(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*study.Document{"pin": pinDocument(t), "long": longDocument(t)} {
		for file, write := range map[string]func(*bytes.Buffer) error{
			"text.100.txt": func(b *bytes.Buffer) error { return Text(b, d, Options{}) },
			"text.80.txt":  func(b *bytes.Buffer) error { return Text(b, d, Options{Width: 80}) },
			"md":           func(b *bytes.Buffer) error { return Markdown(b, d) },
			"csv":          func(b *bytes.Buffer) error { return CSV(b, d) },
		} {
			if name == "long" && file == "csv" {
				continue // the other document shows the form
			}
			golden.Check(t, "testdata/"+name+"."+file, written(t, write))
		}
	}
	golden.Check(t, "testdata/aa.json", written(t, func(b *bytes.Buffer) error {
		return Encode(b, show.JSON, aaDocument(t))
	}))
}

func TestTextFitsIntoTheWidth(t *testing.T) {
	t.Parallel()
	d := pinDocument(t)
	d.Repeat = "" // never wrapped
	for _, width := range []int{80, 100, 120} {
		for line := range strings.SplitSeq(string(written(t, func(b *bytes.Buffer) error {
			return Text(b, d, Options{Width: width})
		})), "\n") {
			if n := text.StringWidth(line); n > width {
				t.Errorf("a line is %d wide, want at most %d: %s", n, width, line)
			}
		}
	}
}

func TestColourIsTheCallersWish(t *testing.T) {
	t.Parallel()
	d := pinDocument(t)
	plain := written(t, func(b *bytes.Buffer) error { return Text(b, d, Options{}) })
	colored := written(t, func(b *bytes.Buffer) error { return Text(b, d, Options{Color: true}) })
	if bytes.ContainsRune(plain, '\x1b') || !bytes.ContainsRune(colored, '\x1b') {
		t.Error("colours do not follow Options.Color")
	}
	if got := text.StripEscape(string(colored)); got != string(plain) {
		t.Errorf("without its colours the text differs:\n%s", got)
	}
}

func TestHostileTextCannotControlATerminal(t *testing.T) {
	t.Parallel()
	for name, out := range map[string][]byte{
		"text":     written(t, func(b *bytes.Buffer) error { return Text(b, hostileDocument(t), Options{}) }),
		"markdown": written(t, func(b *bytes.Buffer) error { return Markdown(b, hostileDocument(t)) }),
	} {
		for _, r := range string(out) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%s has %U", name, r)
			}
		}
	}
}

func TestMarkdownMeansWhatItSays(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ib_write_lat of 8 bytes": "ib_write_lat of 8 bytes", "_x_": `\_x\_`, "a|b": `a\|b`, "<img>": `&lt;img\>`,
		"a\n# b": `a \# b`, "- item": `\- item`, "-40.1%": "-40.1%",
		"`x`": "\\`x\\`", "[a](b)": `\[a\](b)`, "a & b": "a &amp; b", "**b**": `\*\*b\*\*`, "": "",
	} {
		if got := show.Markdown(in); got != want {
			t.Errorf("show.Markdown(%q) = %q, want %q", in, got, want)
		}
	}
	for line := range strings.SplitSeq(string(written(t, func(b *bytes.Buffer) error {
		return Markdown(b, hostileDocument(t))
	})), "\n") {
		if strings.HasPrefix(line, "| ") && strings.Contains(strings.ReplaceAll(line, `\|`, ""), "<") {
			t.Errorf("a table has markup from a name: %s", line)
		}
	}
}

func TestCSVHasEveryFigureExactly(t *testing.T) {
	t.Parallel()
	d := hostileDocument(t)
	d.Data.Runs[0].Values[0].Value = math.NaN()
	d.Data.Runs[1].Values = nil
	rows, err := csv.NewReader(bytes.NewReader(written(t, func(b *bytes.Buffer) error { return CSV(b, d) }))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	i := 1
	for _, o := range d.Data.Runs {
		for _, v := range o.Values {
			want := fmt.Sprint(v.Value)
			if math.IsNaN(v.Value) {
				want = ""
			}
			r := rows[i]
			if r[0] != d.Data.Spec.Name || r[1] != fmt.Sprint(o.Run) || r[len(r)-5] != v.Test || r[len(r)-2] != want ||
				r[len(r)-1] != v.Unit {
				t.Fatalf("line %d is %q, want %+v", i+1, r, v)
			}
			i++
		}
		if len(o.Values) == 0 {
			i++
		}
	}
	if i != len(rows) {
		t.Errorf("%d lines, want %d", len(rows), i)
	}
}

func TestJSONHasNeitherNaNNorInfinity(t *testing.T) {
	t.Parallel()
	d := pinDocument(t)
	d.Data.Runs[0].Values[0].Value = math.Inf(1)
	d.Result.Series[0].High = math.Inf(1)
	d.Result.Series[0].Values[0] = math.NaN()
	var got struct {
		Schema   string
		Emulated bool
		Result   struct {
			Comparisons []study.Comparison
			Series      []struct {
				Cell   string
				Max    *float64
				Values []*float64
			}
		}
		Runs []struct {
			Block  int
			Values []struct {
				Test  string
				Value *float64
			}
		}
	}
	if err := json.Unmarshal(written(t, func(b *bytes.Buffer) error {
		return Encode(b, show.JSON, d)
	}), &got); err != nil {
		t.Fatal(err)
	}
	s, r := got.Result.Series[0], got.Runs[0]
	if s.Max != nil || s.Values[0] != nil || s.Values[1] == nil || s.Cell == "" || r.Values[0].Value != nil ||
		r.Values[1].Value == nil || r.Values[0].Test == "" || r.Block != 1 {
		t.Errorf("got %+v and %+v", s, r)
	}
	if got.Schema != Schema || !got.Emulated || len(got.Result.Comparisons) != len(d.Result.Comparisons) {
		t.Errorf("got %+v", got)
	}
}

func TestADocumentWithoutAResultIsRefused(t *testing.T) {
	t.Parallel()
	for _, d := range []*study.Document{nil, {}, {Result: &study.Result{}}, {Data: &study.Data{},
		Result: &study.Result{}}} {
		for _, write := range writers() {
			if err := write(io.Discard, d); err == nil || !strings.Contains(err.Error(), "show a study") {
				t.Errorf("got %v", err)
			}
		}
	}
}

func TestErrorsOfWritingAreReported(t *testing.T) {
	t.Parallel()
	for i, write := range writers() {
		if err := write(brokenWriter{}, pinDocument(t)); !errors.Is(err, errBroken) || !strings.Contains(err.Error(),
			"pin-under-load") {
			t.Errorf("writer %d: got %v", i, err)
		}
	}
}

func writers() []func(io.Writer, *study.Document) error {
	return []func(io.Writer, *study.Document) error{func(w io.Writer, d *study.Document) error {
		return Text(w, d, Options{})
	}, Markdown, CSV, func(w io.Writer, d *study.Document) error { return Encode(w, show.JSON, d) }, Page}
}

type brokenWriter struct{}

var errBroken = errors.New("disk full")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
