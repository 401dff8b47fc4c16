package live

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

type labPage struct {
	labView
	At         string
	Nav        template.HTML
	Picture    template.HTML
	Key        bool // the picture has links in several styles
	Checks     template.HTML
	CheckedAgo string // empty if never checked
	ResultsErr string
	Results    []resultView
	ResultsTag bool   // all are emulated
	Every      string // interval of reading the ports
	Span       span
	Spans      []span
	Source     string // of the next state of the page
	Once       bool   // devices were read once, which gives no rate
	Hour       []hourChart
	Devices    []hourChart
	Events     []eventRow
	Skipped    bool
}

type hourChart struct {
	ID, Title, Now, Lost, Desc string
	Top, Half                  string
	Start, Middle              string // on the axis of time
	Rx, Tx                     string
	RxName, TxName             string
	Gaps                       []gapBox
}

type gapBox struct{ X, W, Title string }

type eventRow struct{ Device, Name, Count, Hour string }

var chartBox = box{4, 16, 352, 64}

// lab starts the reading of the devices in the lab's nodes.
func (s *server) lab(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	labs, _, err := s.labs.get(ctx)
	found := pick(w, "Labs", labs, err, func(l *Lab) bool { return l.Name == r.PathValue("name") })
	if found == nil {
		return
	}
	l := s.labState(ctx, *found)
	results, _, resultsErr := s.results.get(ctx)
	v, err := s.newLabPage(l, results, r.URL.Query().Get("span"))
	if err != nil {
		failed(w, http.StatusInternalServerError, "Lab "+l.Name, "It cannot be shown.", err)
		return
	}
	v.ResultsErr = errorText(resultsErr)
	write(w, http.StatusOK, kindHTML, render("lab", v))
}

func (s *server) newLabPage(l labState, results []Result, span string) (*labPage, error) {
	now := s.now()
	v := &labPage{labView: newLabView(1, l, now), At: show.Time(now), Nav: wayBack(), Every: words.Lasting(sampleEvery)}
	d := record.Record{Lab: l.Name, Emulated: l.Emulated, NoSwitch: !l.HasSwitch, Nodes: pictured(l)}
	for _, n := range d.Nodes {
		v.Key = v.Key || slices.ContainsFunc(n.Wires, func(w record.Wire) bool { return w.Down || w.Impaired })
	}
	var since []Result // not of an earlier lab of this name
	for _, x := range results {
		if x.Lab != l.Name {
			continue
		}
		// Earlier checks do not apply to a recreated lab.
		if x.Generated.After(l.Created) {
			since = append(since, x)
		}
		if len(v.Results) < 10 {
			v.Results = append(v.Results, newResultView(x))
		}
	}
	v.ResultsTag = tagResults(v.Results)
	if c, ok := lastChecks([]labState{l}, since)[l.Name]; ok {
		v.CheckedAgo, d.Findings = words.Lasting(now.Sub(c.at)), c.findings
	}
	parts, err := report.PartsOf(d)
	if err != nil {
		return nil, err
	}
	v.Picture, v.Checks = parts.Picture, parts.Checks
	h := s.past.opened(l.Name, now)
	v.Span, v.Spans, v.Source = h.span(span, now), spans, v.Href
	if v.Span.Name == span { // otherwise it is chosen anew
		v.Source += "?span=" + span
	}
	v.history(l, h, now)
	return v, nil
}

func pictured(l labState) []record.Node {
	var ports map[[2]string]Port
	if l.flow != nil {
		ports = lists.By(l.flow.Ports, func(p Port) [2]string { return [2]string{p.Node, p.NIC} })
	}
	var out []record.Node
	for _, n := range l.Nodes {
		x := record.Node{Name: n.Name, State: n.State, Off: n.State == "dead" ||
			n.State == "no-adapter" || n.State == "unknown"}
		for _, c := range n.NICs {
			// A box has room for one NIC.
			x.Address = cmp.Or(x.Address, c.Address)
			if x.RDMADevice == "" && c.RDMA != "" && c.GID != nil {
				x.RDMADevice, x.GIDIndex = c.RDMA, *c.GID
			}
			w := record.Wire{Text: c.Name}
			if p, ok := ports[[2]string{n.Name, c.Name}]; ok {
				w.Down, w.Impaired = !p.Connected, p.Impaired != ""
				w.Text = fmt.Sprintf("%s %s: %s", n.Name, c.Name, map[bool]string{true: "down", false: "up"}[w.Down])
				if w.Impaired {
					w.Text += ", impaired by " + p.Impaired
					w.Note = c.Name + ": " + p.Impaired
				}
				if w.Down {
					w.Note = c.Name + " is down"
				}
				if r := l.flow.rate(p.Name); r != nil {
					w.Text += fmt.Sprintf(", %s from the node, %s to it", words.Rate(r.rx), words.Rate(r.tx))
				}
			}
			x.Wires = append(x.Wires, w)
		}
		out = append(out, x)
	}
	return out
}

func (v *labPage) history(l labState, h labHistory, now time.Time) {
	v.Skipped = h.skipped
	if l.flow != nil {
		for _, p := range l.flow.Ports {
			if t, ok := h.ports[p.Name]; ok {
				c := hourChart{ID: fmt.Sprint("p", len(v.Hour)+1), Title: newPortView(l.flow, p).Name,
					RxName: "from the node", TxName: "to the node"}
				c = c.of(t, portHour, v.Span, now, words.Rate)
				// The table has the same average.
				if r := l.flow.rate(p.Name); r != nil && c.Now != "" {
					c.Now = c.now(r, words.Rate)
				}
				if len(t.past) > 0 {
					v.Hour = append(v.Hour, c)
				}
			}
		}
	}
	packets := func(v float64) string { return show.Short(v) + " packets/s" }
	keys := slices.SortedFunc(maps.Keys(h.devices), func(a, b device) int {
		return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.name, b.name))
	})
	for _, k := range keys {
		t, name := h.devices[k], words.Printable(k.node+" "+k.name)
		c := hourChart{ID: fmt.Sprint("r", len(v.Devices)+1), Title: name, RxName: "received", TxName: "sent"}
		if len(t.past) > 0 {
			v.Devices = append(v.Devices, c.of(t, deviceHour, v.Span, now, packets))
		}
		v.Once = true
		v.Events = append(v.Events, eventRows(name, t.events)...)
	}
}

func (c hourChart) now(x *point, text func(float64) string) string {
	return fmt.Sprintf("%s %s, %s %s", text(x.rx), c.RxName, text(x.tx), c.TxName)
}

func (c hourChart) of(t track, w window, s span, now time.Time, text func(float64) string) hourChart {
	t.past, w.span = t.past.since(now.Add(-s.lasts)), s.lasts
	c.Start, c.Middle = s.Start, s.Half
	// From zero, small ripples do not look like load.
	axis := chart.LinearAxis(max(2, t.past.most())) // half of it is written as a whole number
	c.Top, c.Half = text(axis.Hi), text(axis.Hi/2)
	c.Rx, c.Tx = t.past.draw(chartBox, now, w.span, axis.Hi)
	var missed time.Duration
	x := func(at time.Time) float64 {
		return chartBox.x + chartBox.w*max(0, 1-now.Sub(at).Seconds()/w.span.Seconds())
	}
	for _, g := range t.past.gaps(now, w) {
		missed += g.to.Sub(g.from)
		c.Gaps = append(c.Gaps, gapBox{chart.Px(x(g.from)), chart.Px(x(g.to) - x(g.from)),
			fmt.Sprintf("not read from %s to %s UTC", clock(g.from), clock(g.to))})
	}
	lost := lists.Sum(t.past, func(p point) uint64 { return p.lost })
	// The switch may be gone, or the page was kept open.
	if n := len(t.past); n > 0 && now.Sub(t.past[n-1].at) <= w.most {
		c.Now = c.now(&t.past[n-1], text)
	}
	if lost > 0 {
		c.Lost = words.Count(int64(lost), "frame") + " dropped in what was read"
	}
	c.Desc = fmt.Sprintf("Last %s, at most %s; now %s.", s.Label, text(t.past.most()), cmp.Or(c.Now, "not known"))
	if len(t.past) == 0 {
		c.Desc = fmt.Sprintf("Last %s: nothing was read.", s.Label)
	}
	if missed > 0 {
		c.Desc += " Not read for " + words.Lasting(missed) + " of it."
	}
	return c
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

func eventRows(name string, all []events) []eventRow {
	if len(all) == 0 {
		return nil
	}
	first, last := all[0], all[len(all)-1]
	var out []eventRow
	for _, k := range lists.Keys(last.all) {
		// Dozens of counters at zero would bury the few others.
		if n := last.all[k]; n > 0 {
			row := eventRow{Device: name, Name: words.Printable(k), Count: countText(n), Hour: "–"}
			if len(all) > 1 {
				row.Hour = fmt.Sprintf("%s in %s", countText(n-first.all[k]), words.Lasting(last.at.Sub(first.at)))
			}
			out = append(out, row)
		}
	}
	return out
}

// hostPage has the content of rackless inspect and rackless doctor.
func (s *server) hostPage(w http.ResponseWriter, r *http.Request) {
	h, at, err := s.host.get(r.Context())
	var page bytes.Buffer
	if err == nil {
		err = h.Document.WritePage(&page)
	}
	if err != nil {
		failed(w, http.StatusServiceUnavailable, "This host", "It cannot be read.", err)
		return
	}
	v := struct {
		At   string
		Uses []doctorUse
	}{At: show.Time(at)}
	for _, use := range h.Doctor {
		u := doctorUse{For: use.For}
		for _, f := range use.Checks {
			status := words.Printable(string(f.Status))
			u.Rows = append(u.Rows, doctorRow{words.Printable(f.Title), status, words.Fold(f.Evidence),
				words.Fold(f.Fix), map[bool]string{true: "ok", false: "off"}[status == "ok"]})
		}
		v.Uses = append(v.Uses, u)
	}
	writeFramed(w, page.Bytes(), []byte(wayBack()), render("doctor", v))
}

type doctorUse struct {
	For  string
	Rows []doctorRow
}

type doctorRow struct {
	Title, Status string
	Evidence, Fix words.Message
	Class         string
}
