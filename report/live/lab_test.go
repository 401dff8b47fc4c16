package live

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rdma/fabric"
)

func TestThePageOfALab(t *testing.T) {
	t.Parallel()
	f := typical(t)
	s := newServer(t, f)
	s.sample(t.Context(), true)
	if f.calls["rdma pair"] != 0 {
		t.Error("nodes of a lab at which nobody looks were asked")
	}
	mux := s.mux()
	for range 5 {
		page(t, mux, "/labs/pair")
		f.pass(deviceEvery / 4)
		s.sample(t.Context(), true)
	}
	f.mu.Lock()
	f.rdma["pair"][0].Devices[0].HW["duplicate_request"] = 7
	f.rdma["pair"][0].Devices[0].Port["port_xmit_packets"] = 6100
	f.mu.Unlock()
	f.pass(deviceEvery)
	s.sample(t.Context(), true)
	body := page(t, mux, "/labs/pair")
	for _, want := range []string{
		`<h1>Lab pair</h1>`, `<a href="/">`,
		`data-source="/labs/pair" data-every="5"`,
		"<title>vm01 eth0: up, impaired by delay 50us, loss 0.1%", `class="wire impaired"`, ">running<", // picture
		"As <code>rackless verify</code> or <code>rackless bench</code> found them", "1 failed",
		`<figcaption id="p1-c">vm00 eth0 <small>`, "Not read for", `<rect class="gap"`, "not read from ",
		`<figcaption id="r1-c">vm00 rxe0 <small>now 0 packets/s received, 100 packets/s sent`,
		`<th scope="row">vm00 rxe0</th><td>duplicate_request</td><td class="n">7</td><td class="n">5 in `,
		`Rates over time <span class="tag">emulated</span></h2>`, `<a href="/results/pair/20261122T200000Z">`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(body, "lifespan") || strings.Contains(body, "torn") {
		t.Error("a setting is shown as a counter, or the result of another lab")
	}
	if t.Failed() {
		t.Log(body)
	}
	f.labs[1].Created = start.Add(time.Second)
	f.pass(time.Minute)
	if body := page(t, mux, "/labs/pair"); !strings.Contains(body, "None was made since the lab came up") {
		t.Error("the checks of another lab are shown")
	}
}

func TestTheChartsOfALabFitWhatIsKnown(t *testing.T) {
	t.Parallel()
	f := typical(t)
	s := New(f, Options{Addr: "127.0.0.1:1", Token: token, Now: f.clock}).s
	mux := s.mux()
	if body := page(t, mux, "/labs/pair"); !strings.Contains(body, "A rate takes two readings") ||
		strings.Contains(body, "now not known") {
		t.Error("a chart is drawn of nothing")
	}
	current := func(name string) string { return fmt.Sprintf(`?span=%s#hour-h" aria-current="true"`, name) }
	for _, c := range []struct {
		until              time.Duration
		path, name, starts string
	}{
		{4 * time.Minute, "/labs/pair", "5m", "5 min ago"}, {6 * time.Minute, "/labs/pair", "15m", "15 min ago"},
		{6 * time.Minute, "/labs/pair?span=5m", "5m", "5 min ago"},
		{20 * time.Minute, "/labs/pair?span=no", "1h", "60 min ago"},
		{20 * time.Minute, "/labs/pair?span=5m", "5m", "5 min ago"},
	} {
		for f.clock().Sub(start) < c.until {
			f.pass(sampleEvery)
			s.sample(t.Context(), true)
		}
		body := page(t, mux, c.path)
		if !strings.Contains(body, current(c.name)) || strings.Count(body, "aria-current") != 1 ||
			!strings.Contains(body, ">"+c.starts+"</text>") {
			t.Errorf("%s after %v is not of %s", c.path, c.until, c.name)
		}
		source := `data-source="/labs/pair"`
		if strings.Contains(c.path, "=5m") {
			source = `data-source="/labs/pair?span=5m"`
		}
		if !strings.Contains(body, source) {
			t.Errorf("%s is not read anew from %s", c.path, source)
		}
		if c.name == "5m" && c.until > 5*time.Minute && strings.Contains(body, "not read from") {
			t.Errorf("%s after %v is grey, and has been read for so long", c.path, c.until)
		}
	}
}

// A reader who compares the table with the chart finds the same figure.
func TestTableAndChartHaveTheSameAverage(t *testing.T) {
	t.Parallel()
	f := typical(t)
	s := New(f, Options{Addr: "127.0.0.1:1", Token: token, Now: f.clock}).s
	mux := s.mux()
	for range 40 {
		f.pass(time.Second)
		if f.clock().Second()%15 < 7 {
			f.mu.Lock()
			f.fabrics["pair"].Ports[0].RxBytes += 1 << 20
			f.mu.Unlock()
		}
		s.sample(t.Context(), false)
	}
	body := page(t, mux, "/labs/pair")
	_, cell, _ := strings.Cut(body, `<th scope="row">vm00 eth0</th>`)
	_, cell, _ = strings.Cut(cell, `<td class="n rate">`)
	cell, _, _ = strings.Cut(cell, "<")
	if !strings.Contains(body, "vm00 eth0 <small>now "+cell+" from the node") {
		t.Errorf("the table has %q\n%s", cell, body)
	}
}

func page(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func TestTheHourHasGapsWhereNothingWasRead(t *testing.T) {
	t.Parallel()
	var h history
	made := start.Add(-time.Hour)
	read := func(at time.Duration, started time.Time, rx uint64) {
		h.fabric("pair", Fabric{At: start.Add(at), Started: started,
			Ports: []Port{{PortCounters: fabric.PortCounters{Name: "p", RxBytes: rx}}}})
	}
	for at := time.Duration(0); at <= 10*time.Minute; at += sampleEvery / 5 { // as often as pages read
		read(at, made, uint64(at/time.Second)*1000)
	}
	all := h.opened("pair", start).ports["p"].past
	if n := len(all); n < 30 || n > 50 || all[0].rx != 8000 {
		t.Fatalf("%d points in ten minutes, the first of %v b/s; want about 40 of 8000", n, all[0].rx)
	}
	end := start.Add(20 * time.Minute)
	gaps := all.gaps(end, portHour)
	if len(gaps) != 2 || !gaps[0].to.Equal(start) || !gaps[1].to.Equal(end) {
		t.Errorf("got %v, want what was before, and what is since", gaps)
	}
	read(15*time.Minute, made, 900_000)
	read(15*time.Minute+sampleEvery, made, 930_000)
	all = h.opened("pair", start).ports["p"].past
	if rx, _ := all.draw(chartBox, end, time.Hour, 16000); strings.Count(rx, "M") != 2 {
		t.Errorf("the line is not broken where nothing was read: %s", rx)
	}
	if gaps := all.gaps(end, portHour); len(gaps) != 3 || gaps[1].to.Sub(gaps[1].from) < 5*time.Minute {
		t.Errorf("got %v, want three gaps", gaps)
	}
	// An hour later, another switch starts anew.
	read(80*time.Minute, made, 1<<30)
	if n := len(h.opened("pair", start).ports["p"].past); n != 0 {
		t.Errorf("%d points are older than the hour", n)
	}
	read(80*time.Minute+sampleEvery, made, 1<<30)
	read(81*time.Minute, start, 5)
	if all := h.opened("pair", start).ports["p"]; len(all.past) != 0 || all.last.rx != 40 {
		t.Errorf("the counts of another switch are kept: %+v", all)
	}
}

func TestTheHourIsBounded(t *testing.T) {
	t.Parallel()
	var h history
	for i := range 3000 {
		h.fabric(fmt.Sprint("lab", i%3), Fabric{At: start.Add(time.Duration(i) * time.Second), Started: start,
			Ports: portsOf(1 + i/3)})
		if i > 0 && i%700 == 0 {
			i := i
			h.rdma("lab0", start.Add(time.Duration(i)*time.Second), []NodeRDMA{{Node: "n", Devices: []RDMADevice{
				{Name: fmt.Sprint("d", i), HW: manyCounters()}}}})
		}
	}
	n := 0
	for _, l := range h.labs {
		n += len(l.ports) + len(l.devices)
		for _, d := range l.devices {
			for _, e := range d.events {
				if len(e.all) > maxEvents {
					t.Errorf("%d counters of one device are kept", len(e.all))
				}
			}
		}
	}
	if n > maxTracks || !h.opened("lab2", start).skipped {
		t.Errorf("%d tracks are kept, want at most %d, and that it is said", n, maxTracks)
	}
	h.keep([]Lab{{Name: "lab1", Created: start}})
	if len(h.labs) != 1 {
		t.Error("labs that are gone are kept")
	}
	h.keep([]Lab{{Name: "lab1", Created: start.Add(time.Second)}})
	if len(h.labs) != 0 {
		t.Error("the hour of an earlier lab of the name is kept")
	}
}

func portsOf(n int) []Port {
	var out []Port
	for i := range n {
		out = append(out, Port{PortCounters: fabric.PortCounters{Name: fmt.Sprint("p", i)}})
	}
	return out
}

func manyCounters() map[string]uint64 {
	out := map[string]uint64{}
	for i := range 1000 {
		out[fmt.Sprint("c", i)] = 1
	}
	return out
}

// Foreign messages are folded, wherever they come from.
func TestForeignMessagesAreFoldedUp(t *testing.T) {
	t.Parallel()
	f := typical(t)
	long := strings.Repeat("every word of it matters ", 400)
	f.labs[1].Reason, f.labs[0].Nodes[1].Error = assertion, long
	f.labs[0].Created, f.labs[1].Created = start, start
	f.studies[0].Error, f.results[2].Error = assertion, assertion
	f.labs[1].Checked, f.labs[1].Findings = start.Add(time.Minute), []finding.Finding{
		{Code: "RL404", Subject: "vm00 rxe0", Title: "RDMA port", Status: finding.Unknown, Have: assertion,
			Evidence: assertion}}
	f.fail = map[string]error{"fabric half": errors.New(assertion)}
	s := newServer(t, f)
	for _, path := range []string{"/", "/labs/pair", "/labs/half", "/host"} {
		body := page(t, s.mux(), path)
		folded := 0
		for i, part := range strings.Split(body, "<details") {
			inside, outside, _ := strings.Cut(part, "</details>")
			if i == 0 {
				outside, inside = part, ""
			}
			for _, bad := range []string{"Assertion", "kvm.c", strings.Repeat("every word of it matters ", 10)} {
				if strings.Contains(outside, bad) {
					t.Errorf("%s: %q stands in the middle of the page", path, bad)
				}
				folded += strings.Count(inside, bad)
			}
		}
		if folded == 0 {
			t.Errorf("%s: the whole message is nowhere", path)
		}
		if len(body) > 60_000 {
			t.Errorf("%s has %d bytes", path, len(body))
		}
	}
}

func TestThePageOfTheHost(t *testing.T) {
	t.Parallel()
	f := typical(t)
	base := serve(t, f)
	resp, body := ask(t, base+"/host", nil)
	for _, want := range []string{`<a href="/">`, "box", "For emulated labs", "For emulated hosts",
		"use another machine",
		`<td class="off">warn</td>`, "the trial boot failed"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if csp := resp.Header.Get("Content-Security-Policy"); strings.Contains(body, "http-equiv") ||
		!strings.Contains(csp, "style-src 'self' 'sha256-") {
		t.Errorf("policy %q", csp)
	}
	f.fail = map[string]error{"host": errors.New("no /sys")}
	f.pass(2 * freshHost)
	if resp, body := ask(t, base+"/host", nil); resp.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(body, "no /sys") || !strings.Contains(body, `<a href="/">`) {
		t.Errorf("status %d\n%s", resp.StatusCode, body)
	}
}

func TestEventsAreFew(t *testing.T) {
	t.Parallel()
	var all []events
	for i := range 500 {
		all = nextEvents(all, events{start.Add(time.Duration(i) * time.Minute), map[string]uint64{"c": uint64(i),
			"lifespan": 9}})
	}
	span := all[len(all)-1].at.Sub(all[0].at)
	if len(all) > 8 || span < 50*time.Minute || span > time.Hour || len(all[0].all) != 1 {
		t.Errorf("%d are kept of %v: %v", len(all), span, all)
	}
	if all = nextEvents(all, events{start.Add(501 * time.Minute), map[string]uint64{"c": 3}}); len(all) != 1 {
		t.Errorf("%d are kept of a device that began to count anew", len(all))
	}
}
