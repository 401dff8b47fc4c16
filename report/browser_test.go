//go:build linux

package report

import (
	"bytes"
	order "cmp"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/browsertest"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

var probe = `JSON.stringify({...` + browsertest.Measure + `,
  points: [...document.querySelectorAll('.pt[data-value]')].map(p => p.dataset.bytes + ' ' + p.dataset.value),
  untitled: [...document.querySelectorAll('.pt[data-value]')]
    .filter(p => !p.querySelector('title')?.textContent).length,
  failures: document.querySelectorAll('.failure').length,
  faults: document.querySelectorAll('.finding').length,
})`

type probed struct {
	browsertest.Measured
	Points                     []string
	Untitled, Failures, Faults int
}

// figuresProbe adds the CSV download and the row order after two clicks on the first figure column, which it restores.
var figuresProbe = `(() => {
  const out = JSON.parse(` + probe + `);
  const table = document.querySelector('table.figures');
  out.csv = decodeURIComponent((document.querySelector('#figures-csv a[download]')?.href ?? '').replace(/^[^,]*,/, ''));
  if (table) {
    const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
    const at = heads.findIndex(h => h.dataset.metric);
    heads[at].querySelector('button').click();
    heads[at].querySelector('button').click();
    out.down = [...table.tBodies[0].rows].map(r => r.cells[at].dataset.v);
    out.sortDown = heads[at].getAttribute('aria-sort');
    table.tBodies[0].append(...rows);
    heads[at].removeAttribute('aria-sort');
  }
  return JSON.stringify(out);
})()`

func wantCSV(t *testing.T, d record.Record) []string {
	t.Helper()
	var all bytes.Buffer
	w := csv.NewWriter(&all)
	for _, s := range show.Clean(d, words.Visible).Samples {
		if s.Error != "" || s.Value == 0 && s.Metric != "retransmits" {
			continue
		}
		size := ""
		if s.Bytes > 0 {
			size = strconv.FormatInt(s.Bytes, 10)
		}
		if err := w.Write([]string{s.Client, s.Server, s.Test, size, s.Metric, s.Unit, show.Exact(s.Value)}); err !=
			nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	return slices.Sorted(strings.Lines(all.String()))
}

// TestChromium uses one browser, because a start costs as much as several pages.
func TestChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("pages are not shown to a browser with -short")
	}
	b := browsertest.Start(t)
	t.Run("shows the page without network or errors", func(t *testing.T) { showsThePage(t, b) })
	t.Run("shows a comparison", func(t *testing.T) { showsAComparison(t, b) })
}

func showsThePage(t *testing.T, b *browsertest.Browser) {
	dir := t.TempDir()
	for _, lab := range []struct {
		name string
		data record.Record
	}{
		{"two-nodes", loadFixture(t, "two-nodes")},
		{"failures", loadFixture(t, "failures")},
		{"sixteen-nodes", synthetic(16, fullMesh(16), []int64{2, 65536})},
		{"five-nodes-all-sizes", synthetic(5, fullMesh(5), sizes(1, 23, 2))},
		{"sixty-four-nodes", synthetic(64, [][2]int{{1, 0}, {2, 0}, {3, 0}, {63, 0}, {0, 63}}, []int64{65536})},
		{"hardware", judged()},
		{"nothing", record.Record{}},
		{"hostile", hostileData()},
	} {
		file := filepath.Join(dir, lab.name+".html")
		var page bytes.Buffer
		if err := Page(&page, lab.data); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		on := slices.Clone(browsertest.Screens)
		if lab.name != "two-nodes" && lab.name != "failures" && lab.name != "hardware" {
			on = []browsertest.Screen{browsertest.Screens[0], browsertest.Screens[3]}
		}
		for _, s := range on {
			t.Run(lab.name+" on "+s.Name, func(t *testing.T) {
				seen := b.Open(t, file, s, figuresProbe)
				if len(seen.Problems) > 0 {
					t.Errorf("the browser reported:\n%s", strings.Join(seen.Problems, "\n"))
				}
				var got struct {
					probed
					CSV, SortDown string
					Down          []string
				}
				if err := json.Unmarshal([]byte(seen.Probe), &got); err != nil {
					t.Fatalf("probe: %v in %q", err, seen.Probe)
				}
				if lab.name != "nothing" && (got.SortDown != "descending" || !slices.IsSortedFunc(got.Down,
					func(a, b string) int {
						if a == "" || b == "" {
							return compareRatios(a, b)
						}
						return -compareRatios(a, b)
					})) {
					t.Errorf("sorting says %q, order %q", got.SortDown, got.Down)
				}
				head, lines, _ := strings.Cut(got.CSV, "\n")
				if lab.name != "nothing" && lab.name != "hostile" &&
					head != "client,server,test,bytes,metric,unit,value" {
					t.Errorf("the download begins with %q", head)
				}
				if lab.name != "hostile" { // hostile names are not compared
					if diff := cmp.Diff(wantCSV(t, lab.data), slices.Sorted(strings.Lines(lines))); diff != "" {
						t.Errorf("the download (-want +got):\n%s", diff)
					}
				}
				slices.Sort(got.Points)
				if diff := cmp.Diff(wantPoints(lab.data), got.Points); diff != "" {
					t.Errorf("data points in the DOM (-want +got):\n%s", diff)
				}
				for what, n := range map[string]int{"points without title": got.Untitled,
					"pictures without title or description": got.Unlabelled, "table heads without scope": got.Unscoped,
					"pixels to scroll sideways": max(got.Sideways, 0)} {
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
				if (got.Banner != "") != (lab.data.Emulated) {
					t.Errorf("banner %q, emulated %v", got.Banner, lab.data.Emulated)
				}
				if bad := len(finding.NotOK(lab.data.Findings)); got.Faults != bad {
					t.Errorf("%d checks that are not ok are listed, want %d", got.Faults, bad)
				}
			})
		}
	}
}

// wantPoints uses the samples alone. With more than three pairs, each chart has one point for all pairs together.
func wantPoints(d record.Record) []string {
	drawn := []string{"bw_average", "message_rate", "throughput", "latency_typical", "latency_p99", "latency_p99.9"}
	type key struct {
		client, server, test, metric string
		bytes                        int64
	}
	values := make(map[key][]float64)
	pairs := make(map[string]bool)
	for _, s := range d.Samples {
		if s.Error != "" || s.Value == 0 && s.Metric != "retransmits" {
			continue
		}
		pairs[s.Client+" "+s.Server] = true
		if slices.Contains(drawn, s.Metric) {
			k := key{s.Client, s.Server, s.Test, s.Metric, s.Bytes}
			values[k] = append(values[k], s.Value)
		}
	}
	middle := func(v []float64) float64 {
		slices.Sort(v)
		if n := len(v); n%2 == 0 {
			return v[n/2-1] + (v[n/2]-v[n/2-1])/2
		}
		return v[len(v)/2]
	}
	if len(pairs) > 3 {
		together := make(map[key][]float64)
		for k, v := range values {
			k.client, k.server = "", ""
			together[k] = append(together[k], middle(v))
		}
		values = together
	}
	out := []string{}
	for _, k := range slices.Collect(maps.Keys(values)) {
		out = append(out, fmt.Sprintf("%d %s", k.bytes, show.Exact(middle(values[k]))))
	}
	for _, x := range d.Distributions {
		for _, p := range x.Points {
			if chart.IsLandmark(p.Quantile) {
				out = append(out, "0 "+show.Exact(p.Us))
			}
		}
	}
	slices.Sort(out)
	return out
}

// compareProbe adds the row order after clicks on the last but one column, which it restores for the screenshots.
var compareProbe = `(() => {
  const out = JSON.parse(` + probe + `);
  const table = [...document.querySelectorAll('table.sort')].at(-1);
  out.unpressable = [...document.querySelectorAll('table.sort thead th')]
    .filter(h => !h.querySelector('button')).length;
  out.uncaptioned = [...document.querySelectorAll('table')].filter(t => !t.caption?.textContent.trim()).length;
  out.warning = document.querySelector('.banner')?.textContent ?? '';
  out.csv = document.querySelector('a[download]')?.href ?? '';
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  const at = heads.length - 2, button = heads[at].querySelector('button');
  button.focus();
  out.focused = document.activeElement === button || !button.checkVisibility();
  button.click();
  out.up = [...table.tBodies[0].rows].map(r => r.cells[at].dataset.v);
  out.sortUp = heads[at].getAttribute('aria-sort');
  table.tBodies[0].append(...rows);
  heads[at].removeAttribute('aria-sort');
  button.blur(); scrollTo(0, 0);
  return JSON.stringify(out);
})()`

func showsAComparison(t *testing.T, b *browsertest.Browser) {
	dir := t.TempDir()
	few := func(d record.Record) record.Record { d.Samples = d.Samples[:6]; return d }
	for _, c := range []struct {
		name    string
		a, b    record.Record
		charts  int
		warning string
	}{
		{"two-conditions", hardware(1), worse(), 13, "The conditions differ in 5 points"},
		{"emulated-mesh", synthetic(5, fullMesh(5), []int64{2, 64, 65536}), synthetic(5, fullMesh(5)[:12],
			[]int64{2, 64, 65536}), 10, "Both are emulated"},
		{"one-emulated", hardware(1), synthetic(2, [][2]int{{1, 0}}, sizes(1, 23, 2)), 0,
			"One is emulated and the other is not"},
		{"hostile", hostileData(), few(hostileData()), -1, "Both are emulated"},
	} {
		file := filepath.Join(dir, "compare-"+c.name+".html")
		if err := os.WriteFile(file, []byte(comparedPage(t, c.a, c.b)), 0o644); err != nil {
			t.Fatal(err)
		}
		on := slices.Clone(browsertest.Screens)
		if c.name != "two-conditions" {
			on = []browsertest.Screen{browsertest.Screens[0], browsertest.Screens[3]}
		}
		for _, s := range on {
			t.Run(c.name+" on "+s.Name, func(t *testing.T) {
				seen := b.Open(t, file, s, compareProbe)
				if len(seen.Problems) > 0 {
					t.Errorf("the browser reported:\n%s", strings.Join(seen.Problems, "\n"))
				}
				var got struct {
					probed
					Unpressable, Uncaptioned int
					Warning, CSV, SortUp     string
					Focused                  bool
					Up                       []string
				}
				if err := json.Unmarshal([]byte(seen.Probe), &got); err != nil {
					t.Fatalf("probe: %v in %q", err, seen.Probe)
				}
				for what, n := range map[string]int{"points without title": got.Untitled,
					"pictures without title or description": got.Unlabelled, "table heads without scope": got.Unscoped,
					"pixels to scroll sideways":          max(got.Sideways, 0),
					"table heads that cannot be pressed": got.Unpressable, "tables without caption": got.Uncaptioned} {
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
				if c.charts >= 0 && got.Charts != c.charts {
					t.Errorf("%d charts, want %d", got.Charts, c.charts)
				}
				if !strings.Contains(got.Warning, c.warning) && c.name != "hostile" {
					t.Errorf("warning %q, want %q", got.Warning, c.warning)
				}
				text, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(got.CSV,
					"data:text/csv;charset=utf-8;base64,"))
				var want bytes.Buffer
				if err := errors.Join(err, CompareCSV(&want, Compare(c.a, c.b))); err != nil ||
					!bytes.Equal(text, want.Bytes()) {
					t.Errorf("the download is not the CSV: %v, %d bytes, want %d", err, len(text), want.Len())
				}
				if got.SortUp != "ascending" || !got.Focused || !slices.IsSortedFunc(got.Up, compareRatios) {
					t.Errorf("sorting says %q, takes the focus: %v, order %q", got.SortUp, got.Focused, got.Up)
				}
			})
		}
	}
}

// compareRatios orders descending, with missing values last.
func compareRatios(a, b string) int {
	if a == "" || b == "" {
		return strings.Compare(b, a)
	}
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	return order.Compare(x, y)
}
