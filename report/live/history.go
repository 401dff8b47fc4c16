package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
)

// Reading the switch is cheap; reading a device costs its node CPU time.
const (
	sampleEvery = 15 * time.Second
	deviceEvery = time.Minute
)

var (
	portHour   = window{least: sampleEvery - 2*time.Second, most: 3 * sampleEvery, span: time.Hour}
	deviceHour = window{least: deviceEvery / 2, most: 3 * deviceEvery, span: time.Hour}
)

// A track has at most 280 points of 72 bytes and 8 events of 4 KB; all tracks together need 50 MB.
const (
	maxTracks = 1024
	maxEvents = 64               // counters per device
	eventStep = 10 * time.Minute // between kept events, except the latest
)

type history struct {
	mu   sync.Mutex
	labs map[string]*labHistory
}

type labHistory struct {
	created, switched time.Time // start of the lab, and of its switch
	asked             time.Time // last opening of its page
	ports             map[string]track
	devices           map[device]track
	skipped           bool // some tracks did not fit
}

type device struct{ node, name string }

// A track holds the last reading and the rates before.
type track struct {
	last   counts
	past   past
	events []events // oldest first
}

// events are device-specific counters.
type events struct {
	at  time.Time
	all map[string]uint64
}

func (h *history) of(lab string) *labHistory {
	l := h.labs[lab]
	if l == nil {
		l = &labHistory{ports: make(map[string]track), devices: make(map[device]track)}
		if h.labs == nil {
			h.labs = make(map[string]*labHistory)
		}
		h.labs[lab] = l
	}
	return l
}

func (h *history) room() bool {
	n := 0
	for _, l := range h.labs {
		n += len(l.ports) + len(l.devices)
	}
	return n < maxTracks
}

// A span of time is shown by the charts of a lab.
type span struct {
	Name, Label, Start, Half string
	lasts                    time.Duration
}

var spans = []span{{"5m", "5 minutes", "5 min ago", "2.5 min", 5 * time.Minute},
	{"15m", "15 minutes", "15 min ago", "7.5 min", 15 * time.Minute},
	{"1h", "1 hour", "60 min ago", "30 min", time.Hour}}

// span returns the one with the name, or else the shortest that holds everything since the first reading.
func (h *labHistory) span(name string, now time.Time) span {
	first := now
	for _, t := range h.ports {
		if len(t.past) > 0 && t.past[0].from.Before(first) {
			first = t.past[0].from
		}
	}
	for _, t := range h.devices {
		if len(t.past) > 0 && t.past[0].from.Before(first) {
			first = t.past[0].from
		}
	}
	fits := spans[len(spans)-1]
	for _, s := range slices.Backward(spans) {
		if s.Name == name {
			return s
		}
		if now.Sub(first) <= s.lasts {
			fits = s
		}
	}
	return fits
}

// since leaves out what is older.
func (p past) since(start time.Time) past {
	i := slices.IndexFunc(p, func(x point) bool { return x.at.After(start) })
	if i < 0 {
		return nil
	}
	return p[i:]
}

// add skips a reading too soon after the last one, and returns false without room for a new track.
func add[K comparable](h *history, all map[K]track, key K, now counts, w window) bool {
	t, ok := all[key]
	if !ok && !h.room() {
		return false
	}
	// Open pages may read more often than needed.
	if since := now.at.Sub(t.last.at); since < 0 || since >= w.least {
		t.past, t.last = t.past.next(t.last, now, w), now
		all[key] = t
	}
	return true
}

// fabric drops earlier counters if the switch was restarted.
func (h *history) fabric(lab string, f Fabric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.of(lab)
	have := lists.SetOf(f.Ports, func(p Port) string { return p.Name })
	maps.DeleteFunc(l.ports, func(name string, _ track) bool { return !have[name] || !f.Started.Equal(l.switched) })
	l.switched = f.Started
	for i := range f.Ports {
		p := &f.Ports[i]
		l.skipped = !add(h, l.ports, p.Name, f.counts(p), portHour) || l.skipped
	}
}

// rdma leaves a gap for a node that did not answer.
func (h *history) rdma(lab string, at time.Time, nodes []NodeRDMA) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.of(lab)
	for _, n := range nodes {
		for _, d := range n.Devices {
			key := device{n.Node, d.Name}
			c := counts{at: at, rx: d.Port["port_rcv_packets"], tx: d.Port["port_xmit_packets"]}
			if !add(h, l.devices, key, c, deviceHour) {
				l.skipped = true
				continue
			}
			if t := l.devices[key]; t.last.at.Equal(at) {
				t.events = nextEvents(t.events, events{at, d.HW})
				l.devices[key] = t
			}
		}
	}
}

// nextEvents drops earlier events if a counter fell, because the device was reset.
func nextEvents(all []events, now events) []events {
	kept := events{now.at, make(map[string]uint64)}
	for _, name := range lists.Keys(now.all) {
		if len(kept.all) < maxEvents && !slices.Contains(noCounter, name) {
			kept.all[name] = now.all[name]
		}
	}
	if n := len(all); n > 0 {
		for name, v := range all[n-1].all {
			if kept.all[name] < v {
				all = nil
				break
			}
		}
	}
	out := lists.Filter(all, func(e events) bool { return now.at.Sub(e.at) <= deviceHour.span })
	// A table of differences needs few events.
	if n := len(out); n > 1 && out[n-1].at.Sub(out[n-2].at) < eventStep {
		out = out[:n-1]
	}
	return append(out, kept)
}

// opened makes the devices of a lab be read.
func (h *history) opened(lab string, now time.Time) labHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.of(lab)
	l.asked = now
	out := *l
	// Tracks never change.
	out.ports, out.devices = maps.Clone(l.ports), maps.Clone(l.devices)
	return out
}

// wanted reports whether the page was opened within the hour.
func (h *history) wanted(lab string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.labs[lab]
	return l != nil && !l.asked.IsZero() && now.Sub(l.asked) <= deviceHour.span
}

// keep drops labs that are gone or were recreated under the same name.
func (h *history) keep(labs []Lab) {
	h.mu.Lock()
	defer h.mu.Unlock()
	made := make(map[string]time.Time)
	for _, l := range labs {
		made[l.Name] = l.Created
	}
	maps.DeleteFunc(h.labs, func(name string, l *labHistory) bool {
		created, ok := made[name]
		old := !ok || !l.created.IsZero() && !l.created.Equal(created)
		l.created = created
		return old
	})
}

// Sample records an hour of the counters of all labs until ctx is done, even if no page is open.
func (p *Pages) Sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		p.s.sample(ctx, n%int(deviceEvery/sampleEvery) == 0)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sample only reads: the readers record the history, also for pages and scrapes.
func (s *server) sample(ctx context.Context, devices bool) {
	labs, _, err := s.labs.get(ctx)
	s.forget(labs, err)
	var wg sync.WaitGroup
	for _, l := range labs {
		if l.HasSwitch {
			wg.Go(func() { _, _, _ = s.flows.get(ctx, l.Name) }) // an error leaves a gap
		}
		if devices && l.Ready && s.past.wanted(l.Name, s.now()) {
			wg.Go(func() { _, _, _ = s.rdma.get(ctx, l.Name) })
		}
	}
	wg.Wait()
}

// A past is oldest first, and never changed: pages may be rendered from it.
type past []point

// A point has rates per second between two readings.
type point struct {
	from, at time.Time
	rx, tx   float64
	lost     uint64 // total, not a rate
}

type counts struct {
	at           time.Time
	rx, tx, lost uint64
}

// A window makes a gap in a past if two readings are closer than least or further apart than most.
type window struct{ least, most, span time.Duration }

func (p past) next(was, now counts, w window) past {
	var out past
	for _, x := range p {
		if now.at.Sub(x.at) <= w.span {
			out = append(out, x)
		}
	}
	gap := now.at.Sub(was.at)
	// An object that was removed and added again counts from zero.
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

// most returns the highest rate, at least 1.
func (p past) most() float64 {
	most := 1.0
	for _, x := range p {
		most = max(most, x.rx, x.tx)
	}
	return most
}

// A box draws times from x to x+w, and rates from 0 at y+h up to y.
type box struct{ x, y, w, h float64 }

// draw interrupts lines at gaps.
func (p past) draw(b box, end time.Time, span time.Duration, top float64) (rx, tx string) {
	at := func(t time.Time) float64 { return b.x + b.w*max(0, 1-end.Sub(t).Seconds()/span.Seconds()) }
	var lines [2]chart.Line
	var parts [2]string
	for i, x := range p {
		for k, v := range [2]float64{x.rx, x.tx} {
			y := b.y + b.h*(1-v/top)
			// A single reading is a line over its interval.
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

type gap struct{ from, to time.Time }

// gaps ignores normal intervals.
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

// A flow is a snapshot of a switch with its ports' past.
type flow struct {
	Fabric
	past map[string]past // in bits per second
}

// minute is for tables: readings further apart say nothing about the current rate.
var minute = window{least: 200 * time.Millisecond, most: time.Minute, span: time.Minute}

// counts are in bits.
func (f *Fabric) counts(p *Port) counts { return counts{f.At, 8 * p.RxBytes, 8 * p.TxBytes, p.drops()} }

// next leaves f unchanged, because pages may be rendered from it.
func (f *flow) next(now Fabric) *flow {
	out := &flow{Fabric: now, past: make(map[string]past)}
	if f == nil || !f.Started.Equal(now.Started) {
		return out
	}
	before := make(map[string]counts)
	for i := range f.Ports {
		before[f.Ports[i].Name] = f.counts(&f.Ports[i])
	}
	for i := range now.Ports {
		p := &now.Ports[i]
		out.past[p.Name] = f.past[p.Name].next(before[p.Name], now.counts(p), minute)
	}
	return out
}

// rate is the average of the last sampleEvery, as in the history, or of less if it is not known for so long. It returns
// nil if the last point is not current.
func (f *flow) rate(port string) *point {
	all := f.past[port]
	if len(all) == 0 || !all[len(all)-1].at.Equal(f.At) {
		return nil
	}
	out := point{from: f.At, at: f.At}
	seconds := 0.0
	for i := len(all) - 1; i >= 0 && (seconds == 0 || f.At.Sub(all[i].from) <= sampleEvery); i-- {
		s := all[i].at.Sub(all[i].from).Seconds()
		seconds += s
		out.rx, out.tx, out.lost = out.rx+s*all[i].rx, out.tx+s*all[i].tx, out.lost+all[i].lost
		out.from = all[i].from
	}
	out.rx, out.tx = out.rx/seconds, out.tx/seconds
	return &out
}

type spark struct{ Rx, Tx, Label string }

// sparkBox fits the template's viewBox, with room for wide lines.
var sparkBox = box{0, 1, 120, 24}

// whole adds up the ports of nodes: all that they send, and all that they receive.
func (f *flow) whole() past {
	sums := make(map[int64]*point)
	between := lists.SetOf(f.Ports, func(p Port) string {
		if p.Peer == "" {
			return ""
		}
		return p.Name
	})
	for name, all := range f.past {
		if between[name] {
			continue
		}
		for _, x := range all {
			if sum := sums[x.at.UnixNano()]; sum != nil {
				sum.rx, sum.tx = sum.rx+x.rx, sum.tx+x.tx
			} else {
				sums[x.at.UnixNano()] = &x
			}
		}
	}
	return lists.InOrder(sums)
}

func (f *flow) spark(port string) *spark { return f.past[port].spark(f.At) }

// spark returns nil for fewer than two points.
func (p past) spark(end time.Time) *spark {
	if len(p) < 2 {
		return nil
	}
	most := p.most()
	rx, tx := p.draw(sparkBox, end, minute.span, most)
	return &spark{rx, tx, fmt.Sprintf("last minute: at most %s", words.Rate(most))}
}
