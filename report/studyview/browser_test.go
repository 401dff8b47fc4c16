//go:build linux

package studyview

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/browsertest"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

// probe returns the visible content, and the order of tables after clicks on their heads.
var probe = `(() => {
  const out = {...` + browsertest.Measure + `,
    uncaptioned: [...document.querySelectorAll('table')].filter(t => !t.caption?.textContent.trim()).length,
    unpressable: [...document.querySelectorAll('table.sort thead th')].filter(h => !h.querySelector('button')).length,
    discs: document.querySelectorAll('.disc').length, dots: document.querySelectorAll('.dot').length,
    csv: document.querySelector('a[download]')?.href ?? '',
    csvName: document.querySelector('a[download]')?.download ?? '',
  };
  const two = document.getElementById('two-runs');
  if (two && !two.hidden) {
    const [a, b] = two.querySelectorAll('select');
    const cells = () => [...two.querySelectorAll('tbody tr')]
      .map(r => [...r.cells].map(c => c.textContent).join(' | '));
    out.two = cells();
    b.selectedIndex = 2; b.dispatchEvent(new Event('change'));
    out.twoLater = cells();
    b.selectedIndex = 1; b.dispatchEvent(new Event('change'));
    out.unlabelledPickers = [a, b].filter(s => !s.labels.length).length;
  }
  // Sorting is tried after the measures are taken, and undone: the last order must not be on the screenshots.
  const table = [...document.querySelectorAll('table.sort')].at(-1), rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells], at = heads.length - 2, button = heads[at].querySelector('button');
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[at].dataset.v);
  button.focus();
  out.focused = document.activeElement === button || !button.checkVisibility();
  button.click(); out.up = column(); out.sortUp = heads[at].getAttribute('aria-sort');
  button.click(); out.down = column(); out.sortDown = heads[at].getAttribute('aria-sort');
  heads[0].querySelector('button').click();
  out.sorted = document.querySelectorAll('[aria-sort]').length;
  out.back = [...table.tBodies[0].rows].every((r, i) => r === rows[i]);
  heads[0].removeAttribute('aria-sort');
  button.blur(); scrollTo(0, 0);
  return JSON.stringify(out);
})()`

type probed struct {
	browsertest.Measured
	Uncaptioned, Unpressable int
	Discs, Dots, Sorted      int
	CSV, CSVName             string
	Up, Down                 []string
	Two, TwoLater            []string
	UnlabelledPickers        int
	SortUp, SortDown         string
	Focused, Back            bool
}

func TestChromiumShowsThePageWithoutNetworkOrErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("pages are not shown to a browser with -short")
	}
	b := browsertest.Start(t)
	dir := t.TempDir()
	for name, d := range map[string]*study.Document{"pin": pinDocument(t), "long": longDocument(t),
		"hostile": hostileDocument(t)} {
		file := filepath.Join(dir, "study-"+name+".html")
		if err := os.WriteFile(file, written(t, func(b *bytes.Buffer) error { return Page(b, d) }), 0o644); err != nil {
			t.Fatal(err)
		}
		on := append(slices.Clone(browsertest.Screens), browsertest.Screen{Name: "small-laptop", Width: 1280,
			Height: 800, Scheme: "light", Media: "screen", Background: "rgb(255, 255, 255)"})
		if name != "pin" {
			on = []browsertest.Screen{browsertest.Screens[0], browsertest.Screens[3]}
		}
		for _, s := range on {
			t.Run(name+" on "+s.Name, func(t *testing.T) {
				seen := b.Open(t, file, s, probe)
				if len(seen.Problems) > 0 {
					t.Errorf("the browser reported:\n%s", strings.Join(seen.Problems, "\n"))
				}
				var got probed
				if err := json.Unmarshal([]byte(seen.Probe), &got); err != nil {
					t.Fatalf("probe: %v in %q", err, seen.Probe)
				}
				got.check(t, d, s)
			})
		}
	}
}

func (got *probed) check(t *testing.T, d *study.Document, s browsertest.Screen) {
	t.Helper()
	for what, n := range map[string]int{"pictures without title or description": got.Unlabelled,
		"table heads without scope": got.Unscoped, "tables without caption": got.Uncaptioned,
		"table heads that cannot be pressed": got.Unpressable, "pixels to scroll sideways": max(got.Sideways, 0)} {
		if n != 0 {
			t.Errorf("%d %s, want none", n, what)
		}
	}
	for what, list := range map[string][]string{"outside of its picture": got.Clipped,
		"over each other": got.Overlapping, "smaller than 9 px": got.Tiny} {
		if len(list) > 0 {
			t.Errorf("text %s: %q", what, list)
		}
	}
	if got.Background != s.Background {
		t.Errorf("background is %s, want %s", got.Background, s.Background)
	}
	if (got.Banner != "") != d.Emulated {
		t.Errorf("banner %q, emulated %v", got.Banner, d.Emulated)
	}
	effects := 0
	for _, c := range d.Result.Comparisons {
		if c.Effect != nil {
			effects++
		}
	}
	if got.Discs != effects || got.Dots == 0 {
		t.Errorf("%d effects and %d runs are drawn, want %d and some", got.Discs, got.Dots, effects)
	}
	encoded, ok := strings.CutPrefix(got.CSV, "data:text/csv;charset=utf-8;base64,")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if want := written(t, func(b *bytes.Buffer) error {
		return CSV(b, d)
	}); !ok || err != nil || !bytes.Equal(data, want) {
		t.Errorf("the download is not the CSV: %v, %d bytes, want %d", err, len(data), len(want))
	}
	if !strings.HasSuffix(got.CSVName, ".csv") || strings.ContainsAny(got.CSVName, `"<>/\`) {
		t.Errorf("the download is called %q", got.CSVName)
	}
	if got.SortUp != "ascending" || got.SortDown != "descending" || got.Sorted != 1 || !got.Back || !got.Focused {
		t.Errorf("sorting says %q, then %q; %d columns say that they are sorted, want 1; back in order: %v; takes "+
			"the focus: %v", got.SortUp, got.SortDown, got.Sorted, got.Back, got.Focused)
	}
	got.checkTwo(t, d)
	checkOrder(t, got.Up, 1)
	checkOrder(t, got.Down, -1)
}

func (got *probed) checkTwo(t *testing.T, d *study.Document) {
	t.Helper()
	if len(d.Data.Runs) < 3 {
		t.Fatal("the fixture has too few runs")
	}
	for _, side := range []struct {
		rows []string
		b    *study.Observation
	}{{got.Two, &d.Data.Runs[1]}, {got.TwoLater, &d.Data.Runs[2]}} {
		a := &d.Data.Runs[0]
		if want := fmt.Sprintf("run | %d | %d | ", a.Run, side.b.Run); len(side.rows) == 0 || side.rows[0] != want {
			t.Fatalf("runs side by side: %q, want first %q", side.rows, want)
		}
		for _, x := range a.Values {
			i := slices.IndexFunc(side.b.Values, func(y study.Value) bool {
				return y.Test == x.Test && y.Metric == x.Metric && y.Bytes == x.Bytes
			})
			if i < 0 || x.Value <= 0 || side.b.Values[i].Value <= 0 {
				continue
			}
			change := 100 * (side.b.Values[i].Value/x.Value - 1)
			want := fmt.Sprintf(" | %s | %s | %+.1f%%", show.Figure(x.Value), show.Figure(side.b.Values[i].Value),
				change)
			want = strings.Replace(want, "| -", "| \u2212", 1)
			if !slices.ContainsFunc(side.rows, func(r string) bool { return strings.HasSuffix(r, want) }) {
				t.Errorf("%s %s: no row ends with %q:\n%s", x.Test, x.Metric, want, strings.Join(side.rows, "\n"))
			}
		}
	}
	if got.UnlabelledPickers > 0 {
		t.Errorf("%d pickers of runs have no label", got.UnlabelledPickers)
	}
}

// checkOrder: numbers rise (1) or fall (-1), missing values are last.
func checkOrder(t *testing.T, column []string, sign float64) {
	t.Helper()
	last, ended := 0.0, false
	for i, s := range column {
		var v float64
		if s == "" {
			ended = true
			continue
		}
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatal(err)
		}
		if ended || i > 0 && (v-last)*sign < 0 {
			t.Errorf("row %d of %d is out of order: %q", i+1, len(column), column)
			return
		}
		last = v
	}
}
