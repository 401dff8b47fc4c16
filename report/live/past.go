package live

import (
	"fmt"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
)

// A past is what passed a port, the oldest first. It is never changed: pages may still be written from it.
type past []point

// A point is what passed between two readings, each second.
type point struct {
	from, at time.Time
	rx, tx   float64
	lost     uint64 // in all
}

// counts are two counters at a time, of a port or of a device, and what was lost.
type counts struct {
	at           time.Time
	rx, tx, lost uint64
}

// A window bounds a past. A rate over less than least or more than most says nothing: there the past has a gap.
type window struct{ least, most, span time.Duration }

// next is the past after another reading; what is older than the window is not in it.
func (p past) next(was, now counts, w window) past {
	var out past
	for _, x := range p {
		if now.at.Sub(x.at) <= w.span {
			out = append(out, x)
		}
	}
	gap := now.at.Sub(was.at)
	// What was removed and added again counts from zero.
	if was.at.IsZero() || gap < w.least || gap > w.most || now.rx < was.rx || now.tx < was.tx {
		return out
	}
	rate := func(now, then uint64) float64 { return float64(now-then) / gap.Seconds() }
	x := point{from: was.at, at: now.at, rx: rate(now.rx, was.rx), tx: rate(now.tx, was.tx)}
	if now.lost > was.lost {
		x.lost = now.lost - was.lost
	}
	return append(out, x)
}

// most is the highest rate, at least 1.
func (p past) most() float64 {
	most := 1.0
	for _, x := range p {
		most = max(most, x.rx, x.tx)
	}
	return most
}

// A box is where a past is drawn: times from x to x+w, rates from its bottom y+h, which is 0, to its top y.
type box struct{ x, y, w, h float64 }

// draw draws a past that ends at a time. The lines are broken where nothing was read.
func (p past) draw(b box, end time.Time, span time.Duration, top float64) (rx, tx string) {
	at := func(t time.Time) float64 { return b.x + b.w*max(0, 1-end.Sub(t).Seconds()/span.Seconds()) }
	var lines [2]chart.Line
	var parts [2]string
	for i, x := range p {
		for k, v := range [2]float64{x.rx, x.tx} {
			y := b.y + b.h*(1-v/top)
			// A single reading is a line as long as the time that it is of.
			if i == 0 || !x.from.Equal(p[i-1].at) {
				parts[k] += lines[k].String()
				lines[k] = nil
				lines[k].To(at(x.from), y)
			}
			lines[k].To(at(x.at), y)
		}
	}
	return parts[0] + lines[0].String(), parts[1] + lines[1].String()
}

// A gap is a time in which nothing was read.
type gap struct{ from, to time.Time }

// gaps are the times of the span before end that a past says nothing of, but for those that are as
// short as readings lie apart.
func (p past) gaps(end time.Time, w window) []gap {
	var out []gap
	since := end.Add(-w.span)
	add := func(to time.Time) {
		if to.Sub(since) > w.most {
			out = append(out, gap{since, to})
		}
	}
	for _, x := range p {
		add(x.from)
		since = x.at
	}
	add(end)
	return out
}

// A flow is a snapshot of a switch, with what it did before.
type flow struct {
	Fabric
	past map[string]past // by port, in bits a second
}

// minute is what the tables show: two looks further apart say nothing about now.
var minute = window{least: 200 * time.Millisecond, most: time.Minute, span: time.Minute}

// counts are what a port has counted, in bits.
func (f *Fabric) counts(p *Port) counts { return counts{f.At, 8 * p.RxBytes, 8 * p.TxBytes, p.drops()} }

// next adds a snapshot to a flow. Neither is changed: pages may still be written from the one before.
func (f *flow) next(now Fabric) *flow {
	out := &flow{Fabric: now, past: make(map[string]past)}
	if f == nil || !f.Started.Equal(now.Started) { // another switch counts from zero
		return out
	}
	before := make(map[string]counts)
	for i := range f.Ports {
		before[f.Ports[i].Name] = f.counts(&f.Ports[i])
	}
	for p := range lists.Refs(now.Ports) {
		out.past[p.Name] = f.past[p.Name].next(before[p.Name], now.counts(p), minute)
	}
	return out
}

// rate returns the last point of a port; nil where there is none that is of now.
func (f *flow) rate(port string) *point {
	all := f.past[port]
	if len(all) == 0 || !all[len(all)-1].at.Equal(f.At) {
		return nil
	}
	return &all[len(all)-1]
}

// A spark is a small picture of the last minute of a port.
type spark struct{ Rx, Tx, Label string }

// sparkBox lies in the viewBox that the template has, with room for the lines' width.
var sparkBox = box{0, 1, 120, 24}

// spark draws the past of a port; nil while there is too little of it.
func (f *flow) spark(port string) *spark {
	all := f.past[port]
	if len(all) < 2 {
		return nil
	}
	most := all.most()
	rx, tx := all.draw(sparkBox, f.At, minute.span, most)
	return &spark{rx, tx, fmt.Sprintf("last minute: at most %s", words.Rate(most))}
}
