package browsertest

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// OpenServed loads a page of a server in a fresh tab that looks like the screen, and then evaluates
// the probe in it, as Open does for a file. Requests to that server are fine; those to any other,
// and answers that are errors, are problems. name is that of the screenshots.
func (b *Browser) OpenServed(t TB, address, name string, s Screen, probe string) Seen {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	origin := u.Scheme + "://" + u.Host + "/"
	var target struct{ TargetID, SessionID string }
	b.call(t, "", "Target.createTarget", object{"url": "about:blank"}, &target)
	b.call(t, "", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &target)
	tab := target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(t, tab, domain+".enable", object{}, nil)
	}
	b.call(t, tab, "Emulation.setDeviceMetricsOverride", object{"width": s.Width, "height": s.Height,
		"deviceScaleFactor": 1, "mobile": s.Width < 800}, nil)
	b.call(t, tab, "Emulation.setEmulatedMedia",
		object{"media": s.Media, "features": []object{{"name": "prefers-color-scheme", "value": s.Scheme}}}, nil)
	b.events = nil
	b.call(t, tab, "Page.navigate", object{"url": address}, nil)
	loaded := func(m message) bool { return m.SessionID == tab && m.Method == "Page.loadEventFired" }
	for !slices.ContainsFunc(b.events, loaded) {
		b.next(t, "load of "+address)
	}
	var answer struct {
		Result           struct{ Value string }
		ExceptionDetails json.RawMessage
	}
	b.call(t, tab, "Runtime.evaluate", object{"expression": probe, "returnByValue": true, "awaitPromise": true},
		&answer)
	out := Seen{Probe: answer.Result.Value}
	if answer.ExceptionDetails != nil {
		out.Problems = append(out.Problems, "the probe: "+string(answer.ExceptionDetails))
	}
	for _, m := range b.events {
		if m.SessionID != tab || m.toOrigin(origin) {
			continue
		}
		if problem := m.problem(address); problem != "" {
			out.Problems = append(out.Problems, problem)
		}
	}
	if *screenshots != "" {
		b.screenshot(t, tab, name+".html", s)
	}
	b.call(t, "", "Target.closeTarget", object{"targetId": target.TargetID}, nil)
	return out
}

// toOrigin reports whether an event is a request to a server.
func (m message) toOrigin(origin string) bool {
	if m.Method != "Network.requestWillBeSent" {
		return false
	}
	var p struct{ Request struct{ URL string } }
	return json.Unmarshal(m.Params, &p) == nil && strings.HasPrefix(p.Request.URL, origin)
}
