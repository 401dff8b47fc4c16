//go:build linux

// Package simview shows the result of a simulation of congestion as a page: the course of queues and rates, slowdowns
// by size, and how pauses spread.
package simview

import (
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pageTemplate escapes every field for its context. Only the style sheet and the script are inserted unchanged.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Parse(pageHTML + chart.Template + show.TileTemplate))
})

// maxRows limits the rows of a table of the page.
const maxRows = 200

type page struct {
	show.Head
	*simulate.Result
	Heading   string
	Tiles     []show.Tile
	Said      string
	Text      string // the result as on a terminal
	Charts    []chart.Chart
	Sizes     [][]string
	Spread    [][]string
	MoreCause int // rows that are left out
	Locked    []string
}

// Page writes the result as one self-contained HTML page. Its content security policy forbids loading anything. text
// is the result as on a terminal.
func Page(w io.Writer, r *simulate.Result, text string) error {
	p := &page{Head: show.NewHead(show.Style+show.TileStyle+pageCSS, ""), Heading: heading(r), Tiles: tiles(r),
		Result: r, Text: text, Charts: charts(r)}
	p.Said = fmt.Sprintf("%s, %s and %s, with seed %d, in %v of the simulation. Nothing was sent: all figures are "+
		"simulated.", words.Count(r.Hosts, "host"), words.Count(r.Switches, "switch"),
		words.Count(len(r.Flows), "flow"), r.Seed, virtual(float64(r.Time)))
	if r.Level == simulate.FlowLevel {
		p.Said += " Rates were computed (level: flow), so there are no queues, marks, pauses or drops to show."
	}
	for _, s := range r.Sizes {
		q := s.Slowdown
		p.Sizes = append(p.Sizes, append([]string{"up to " + strconv.FormatInt(s.To, 10), fmt.Sprint(s.Flows)},
			lists.Map([]float64{q.Median, q.P95, q.P99, q.P999}, show.Figure)...))
	}
	for i, s := range r.Spread {
		if i == maxRows {
			p.MoreCause = len(r.Spread) - maxRows
			break
		}
		began := ""
		if s.Root {
			began = "yes"
		}
		p.Spread = append(p.Spread, []string{s.Queue, began, s.Stopped, fmt.Sprint(s.Times), s.Time.String()})
	}
	for _, d := range r.Deadlocks {
		p.Locked = append(p.Locked, Circle(&d))
	}
	return show.Wrapf(show.Execute(w, pageTemplate(), p), "write the page of simulation %q", r.Name)
}

// Circle says which ports wait for each other in a deadlock.
func Circle(d *simulate.Deadlock) string {
	s := fmt.Sprintf("priority %d, since %v: ", d.Priority, d.At)
	for _, name := range d.Cycle {
		s += name + " waits for "
	}
	return s + d.Cycle[0]
}

// heading has the name and the result, as titles of other pages do.
func heading(r *simulate.Result) string {
	if r.Completion == nil {
		return r.Name
	}
	return fmt.Sprintf("%s: %s, slowdown %s", r.Name, words.Rate(r.Goodput), show.Figure(r.Slowdown.Median))
}

// tiles are payload, slowdown, the time of the slowest flow, the longest queue, and losses, as far as flows ended.
func tiles(r *simulate.Result) []show.Tile {
	if r.Completion == nil {
		return nil
	}
	rate, unit, _ := strings.Cut(words.Rate(r.Goodput), " ")
	out := []show.Tile{
		{Name: "Payload", Figure: rate, Unit: unit, Note: "of flows that ended, all together"},
		{Name: "Slowdown", Figure: show.Figure(r.Slowdown.Median), Note: "median; p99 " +
			show.Figure(r.Slowdown.P99) + "; 1 is an empty network"},
		{Name: "Slowest flow", Figure: virtual(r.Completion.Most), Note: "median " + virtual(r.Completion.Median)},
	}
	if r.Level == simulate.FlowLevel {
		return out // without packets there are no queues and no drops
	}
	longest := simulate.QueueResult{}
	for _, q := range r.Queues {
		if q.Most > longest.Most {
			longest = q
		}
	}
	if longest.Most > 0 {
		size, unit, _ := strings.Cut(words.Bytes(longest.Most), " ")
		out = append(out, show.Tile{Name: "Longest queue", Figure: size, Unit: unit, Note: "at port " + longest.Port})
	}
	return append(out, show.Tile{Name: "Dropped", Figure: strconv.FormatUint(r.Counts.Drops, 10),
		Unit: "packets", Note: fmt.Sprintf("%d marked by ECN, %d pauses", r.Counts.Marks, r.Counts.Pauses),
		Loud: r.Counts.Drops > 0})
}

// virtual formats a time of the simulation, in nanoseconds, with three decimals.
func virtual(ns float64) string {
	d := time.Duration(ns)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.String()
}

// wideWidth fills a row of a large screen.
const wideWidth = 1200

// charts draws the courses of queues and of rates, each for small and for large screens.
func charts(r *simulate.Result) (list []chart.Chart) {
	for _, c := range []struct {
		id, title, unit string
		curves          []simulate.Curve
		per             float64
	}{
		{"queues", "Length of queues", "KiB, the most in each interval", r.Queue, 1024},
		{"rates", "Rate of flows at their receiver", "Gb/s on the cable", r.Rate, 1e9},
	} {
		if len(c.curves) > 0 {
			list = append(list, course(c.id+"-narrow", "narrow", chart.Width, c.title, c.unit, c.curves, c.per),
				course(c.id+"-wide", "wide", wideWidth, c.title, c.unit, c.curves, c.per))
		}
	}
	return list
}

// course draws values over time, divided by per.
func course(id, class string, width int, title, unit string, curves []simulate.Curve, per float64) chart.Chart {
	c := chart.New(id, title, width)
	c.Class = class
	var names []chart.Series
	most, end := 1e-9, time.Duration(1)
	for i, k := range curves {
		names = append(names, chart.Series{Name: k.Name, Class: fmt.Sprintf("line l%d d%d", i%6, i/6%4)})
		for _, v := range k.Values {
			most = max(most, float64(v)/per)
		}
		end = max(end, k.Width*time.Duration(len(k.Values)))
	}
	scale, name := time.Microsecond, "µs"
	if end > 10*time.Millisecond {
		scale, name = time.Millisecond, "ms"
	}
	c.Legend(names...)
	p := c.Plot(fromZero(float64(end)/float64(scale)), fromZero(most), "time, "+name, unit)
	for i, k := range curves {
		points := make([]chart.Point, 0, 2*len(k.Values))
		at := func(n int) float64 { return float64(k.Width) * float64(n) / float64(scale) }
		for n, v := range k.Values {
			y := float64(v) / per
			points = append(points, chart.Point{X: at(n), Y: y}, chart.Point{X: at(n + 1), Y: y})
		}
		p.Line(names[i], points)
	}
	c.Desc = fmt.Sprintf("%s over %s %s: %s, up to %s.", title, show.Figure(float64(end)/float64(scale)), name,
		words.Count(len(curves), "line"), show.Figure(most))
	return c.Done()
}

// fromZero returns an axis from zero to a value.
func fromZero(hi float64) chart.Axis {
	hi *= 1.02
	return chart.Axis{Hi: math.Max(hi, 1e-9), Label: show.Tick, Candidates: chart.Steps(0, math.Max(hi, 1e-9))}
}
