//go:build linux

package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var screenshots = flag.String("screenshots", "", "write a picture of every page of the browser test into this folder")

// probe is evaluated in the page. It returns what a reader would have in front of them, as JSON.
const probe = `(() => {
  const box = e => e.getBoundingClientRect();
  const shown = e => box(e).width > 0;
  const charts = [...document.querySelectorAll('svg[role=img]')].filter(shown);
  const clipped = [], overlapping = [], tiny = [];
  for (const svg of charts) {
    const outer = box(svg);
    const texts = [...svg.querySelectorAll('text')].map(t => ({t: t.textContent, b: box(t)}));
    for (const {t, b} of texts) {
      if (b.left < outer.left - 1 || b.right > outer.right + 1 || b.top < outer.top - 1 || b.bottom > outer.bottom + 1) clipped.push(t);
    }
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const a = texts[i].b, b = texts[j].b;
      // 3: the boxes of two lines of text may touch
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
        overlapping.push(texts[i].t + ' / ' + texts[j].t);
    }
    const scale = outer.width / svg.viewBox.baseVal.width;
    for (const t of svg.querySelectorAll('text')) if (parseFloat(getComputedStyle(t).fontSize) * scale < 9) tiny.push(t.textContent);
  }
  return JSON.stringify({
    points: [...document.querySelectorAll('.pt[data-value]')].map(p => p.dataset.bytes + ' ' + p.dataset.value),
    untitled: [...document.querySelectorAll('.pt[data-value]')].filter(p => !p.querySelector('title')?.textContent).length,
    unlabelled: [...document.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-labelledby').split(' ').every(i => document.getElementById(i)?.textContent)).length,
    unscoped: document.querySelectorAll('th:not([scope])').length,
    banner: document.querySelector('.banner')?.textContent ?? '',
    failures: document.querySelectorAll('.failure').length,
    faults: document.querySelectorAll('.finding').length,
    background: getComputedStyle(document.body).backgroundColor,
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    clipped, overlapping, tiny, charts: charts.length,
  });
})()`

// probed is what probe returns.
type probed struct {
	Points                         []string
	Untitled, Unlabelled, Unscoped int
	Banner, Background             string
	Failures, Faults, Sideways     int
	Clipped, Overlapping, Tiny     []string
	Charts                         int
}

// A screen is a device that the page is read on.
type screen struct {
	name          string
	width, height int
	scheme, media string
	background    string // what the page must be painted on: proof that the scheme took effect
}

var screens = []screen{
	{"phone-light", 390, 844, "light", "screen", "rgb(255, 255, 255)"},
	{"phone-dark", 390, 844, "dark", "screen", "rgb(20, 24, 29)"},
	{"laptop-light", 1440, 900, "light", "screen", "rgb(255, 255, 255)"},
	{"laptop-dark", 1440, 900, "dark", "screen", "rgb(20, 24, 29)"},
	{"paper", 717, 1046, "dark", "print", "rgb(255, 255, 255)"}, // A4 with Chromium's margins, at 96 dots an inch, from a dark desktop
}

func TestChromiumShowsThePageWithoutNetworkOrErrors(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	for _, lab := range []struct {
		name string
		data Data
	}{
		{"two-nodes", loadFixture(t, "two-nodes")},
		{"failures", loadFixture(t, "failures")},
		{"sixteen-nodes", synthetic(16, fullMesh(16), []int64{2, 65536})},
		{"five-nodes-all-sizes", synthetic(5, fullMesh(5), sizes(1, 23, 2))},
		{"sixty-four-nodes", synthetic(64, [][2]int{{1, 0}, {2, 0}, {3, 0}, {63, 0}, {0, 63}}, []int64{65536})},
		{"nothing", Data{}},
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
		on := screens
		if lab.name != "two-nodes" && lab.name != "failures" { // one of each kind is enough for the others
			on = []screen{screens[0], screens[3]}
		}
		for _, s := range on {
			t.Run(lab.name+" on "+s.name, func(t *testing.T) {
				seen := b.open(t, file, s)
				if len(seen.problems) > 0 {
					t.Errorf("the browser reported:\n%s", strings.Join(seen.problems, "\n"))
				}
				var got probed
				if err := json.Unmarshal([]byte(seen.probe), &got); err != nil {
					t.Fatalf("probe: %v in %q", err, seen.probe)
				}
				slices.Sort(got.Points)
				if diff := cmp.Diff(wantPoints(lab.data), got.Points); diff != "" {
					t.Errorf("data points in the DOM (-want +got):\n%s", diff)
				}
				for what, n := range map[string]int{"points without title": got.Untitled, "pictures without title or description": got.Unlabelled, "table heads without scope": got.Unscoped,
					"pixels to scroll sideways": max(got.Sideways, 0)} {
					if n != 0 {
						t.Errorf("%d %s, want none", n, what)
					}
				}
				for what, list := range map[string][]string{"outside of its picture": got.Clipped, "over each other": got.Overlapping, "smaller than 9 px": got.Tiny} {
					if len(list) > 0 {
						t.Errorf("text %s: %q", what, list)
					}
				}
				if got.Background != s.background {
					t.Errorf("background is %s, want %s", got.Background, s.background)
				}
				if (got.Banner != "") != (lab.data.Emulated) {
					t.Errorf("banner %q, emulated %v", got.Banner, lab.data.Emulated)
				}
				_, failed, unknown := countFindings(lab.data.Findings)
				if got.Faults != failed+unknown {
					t.Errorf("%d checks that are not ok are listed, want %d", got.Faults, failed+unknown)
				}
			})
		}
	}
}

// wantPoints says from the samples alone which points the charts must have. With more than three pairs there is one for all pairs.
func wantPoints(d Data) []string {
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
		out = append(out, fmt.Sprintf("%d %s", k.bytes, exactText(middle(values[k]))))
	}
	slices.Sort(out)
	return out
}

// The test above finds no request and no error. This one shows that it would.
func TestChromiumWatcherSeesRequestsAndErrors(t *testing.T) {
	b := startBrowser(t)
	for name, c := range map[string]struct{ html, want string }{
		"an error on the console":      {`<script>console.error("broken")</script>`, "broken"},
		"an exception":                 {`<script>throw new Error("thrown")</script>`, "thrown"},
		"a request to the network":     {`<img src="http://127.0.0.1:9/pixel.png">`, "http://127.0.0.1:9/pixel.png"},
		"a request for another file":   {`<link rel="stylesheet" href="other.css">`, "other.css"},
		"a break of the page's policy": {`<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><script>1</script>`, "Content Security Policy"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "page.html")
			if err := os.WriteFile(file, []byte("<!DOCTYPE html><title>x</title>"+c.html), 0o644); err != nil {
				t.Fatal(err)
			}
			seen := b.open(t, file, screens[0])
			if !strings.Contains(strings.Join(seen.problems, "\n"), c.want) {
				t.Errorf("got problems %q, want one with %q", seen.problems, c.want)
			}
		})
	}
}

// A browser is a Chromium driven by the DevTools protocol over two pipes: JSON messages that end with a zero byte. It needs no port.
type browser struct {
	to     *os.File
	from   *os.File
	in     *bufio.Reader
	last   int
	events []message
}

type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// browserLimit is how long one answer of the browser may take on a busy machine.
const browserLimit = 60 * time.Second

// startBrowser starts Chromium for one test. At the test's end it and its profile are gone.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("chromium is needed where CI is set: %v; install it: apt-get install chromium", err)
		}
		t.Skipf("skipped: chromium is not installed: %v; to run this test: apt-get install chromium", err)
	}
	home, err := os.MkdirTemp("", "report-chromium-") // not t.TempDir: the name of a socket in it must stay short
	if err != nil {
		t.Fatal(err)
	}
	childIn, to, err1 := os.Pipe()
	from, childOut, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-breakpad", "--hide-scrollbars", "--user-data-dir="+filepath.Join(home, "profile"), "--remote-debugging-pipe")
	var log bytes.Buffer
	cmd.Stderr = &log // all of its processes hold it, so Wait waits for all of them
	cmd.WaitDelay = 10 * time.Second
	cmd.ExtraFiles = []*os.File{childIn, childOut} // the protocol wants them as 3 and 4
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_RUNTIME_DIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	childIn.Close()
	childOut.Close()
	b := &browser{to: to, from: from, in: bufio.NewReader(from)}
	t.Cleanup(func() {
		to.Close() // Chromium ends when its pipe does; the signal is for one that hangs
		from.Close()
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("end chromium: %v", err)
		}
		cmd.Wait() // says "killed"
		if t.Failed() {
			t.Logf("chromium's own log:\n%s", log.Bytes())
		}
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("remove chromium's profile: %v", err)
		}
	})
	return b
}

// call sends a command and waits for its answer; events on the way are kept.
func (b *browser) call(t *testing.T, session, method string, params, result any) {
	t.Helper()
	b.last++
	line, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	if session != "" {
		line, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": session})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.to.Write(append(line, 0)); err != nil {
		t.Fatalf("send %s to chromium: %v", method, err)
	}
	for {
		m := b.next(t, method)
		if m.ID != b.last {
			continue
		}
		if m.Error != nil {
			t.Fatalf("chromium on %s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				t.Fatalf("chromium's answer to %s: %v", method, err)
			}
		}
		return
	}
}

// next reads one message.
func (b *browser) next(t *testing.T, waiting string) message {
	t.Helper()
	if err := b.from.SetReadDeadline(time.Now().Add(browserLimit)); err != nil {
		t.Fatal(err)
	}
	line, err := b.in.ReadBytes(0)
	if err != nil {
		t.Fatalf("wait for chromium, %s: %v", waiting, err)
	}
	var m message
	if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m); err != nil {
		t.Fatalf("read from chromium: %v", err)
	}
	if m.ID == 0 {
		b.events = append(b.events, m)
	}
	return m
}

// seen is what the browser made of a page.
type seen struct {
	probe    string
	problems []string // errors, and requests for anything but the page itself
}

type object = map[string]any

// open loads a file in a fresh tab that looks like the screen.
func (b *browser) open(t *testing.T, file string, s screen) seen {
	t.Helper()
	var target struct{ TargetID, SessionID string }
	b.call(t, "", "Target.createTarget", object{"url": "about:blank"}, &target)
	b.call(t, "", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &target)
	tab := target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(t, tab, domain+".enable", object{}, nil)
	}
	b.call(t, tab, "Emulation.setDeviceMetricsOverride", object{"width": s.width, "height": s.height, "deviceScaleFactor": 1, "mobile": s.width < 800}, nil)
	b.call(t, tab, "Emulation.setEmulatedMedia", object{"media": s.media, "features": []object{{"name": "prefers-color-scheme", "value": s.scheme}}}, nil)
	b.events = nil
	address := (&url.URL{Scheme: "file", Path: file}).String()
	b.call(t, tab, "Page.navigate", object{"url": address}, nil)
	loaded := func(m message) bool { return m.SessionID == tab && m.Method == "Page.loadEventFired" }
	for !slices.ContainsFunc(b.events, loaded) {
		b.next(t, "load of "+address)
	}
	var answer struct {
		Result           struct{ Value string }
		ExceptionDetails json.RawMessage
	}
	b.call(t, tab, "Runtime.evaluate", object{"expression": probe, "returnByValue": true}, &answer)
	out := seen{probe: answer.Result.Value}
	for _, m := range b.events {
		if problem := m.problem(address); m.SessionID == tab && problem != "" {
			out.problems = append(out.problems, problem)
		}
	}
	if *screenshots != "" {
		b.screenshot(t, tab, file, s)
	}
	b.call(t, "", "Target.closeTarget", object{"targetId": target.TargetID}, nil)
	return out
}

// problem says what is wrong about an event; most are fine.
func (m message) problem(address string) string {
	switch m.Method {
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		if err := json.Unmarshal(m.Params, &p); err != nil {
			return err.Error()
		}
		// Chromium lists a picture that is in the page itself as a request; it goes nowhere.
		if p.Request.URL != address && !strings.HasPrefix(p.Request.URL, "data:image/svg+xml;base64,") {
			return "request for " + p.Request.URL
		}
	case "Network.webSocketCreated", "Network.webTransportCreated", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
		return m.Method + " " + string(m.Params) // the page has no script: whatever the console gets is an error
	}
	return ""
}

// screenshot writes the page in pieces that are short enough to be looked at.
func (b *browser) screenshot(t *testing.T, tab, file string, s screen) {
	t.Helper()
	const piece, most = 1600, 4
	var layout struct{ CSSContentSize struct{ Height float64 } }
	b.call(t, tab, "Page.getLayoutMetrics", object{}, &layout)
	for i := 0; i < most && float64(i*piece) < layout.CSSContentSize.Height; i++ {
		height := min(piece, layout.CSSContentSize.Height-float64(i*piece))
		var image struct{ Data []byte }
		b.call(t, tab, "Page.captureScreenshot", object{"captureBeyondViewport": true,
			"clip": object{"x": 0, "y": i * piece, "width": s.width, "height": height, "scale": 1}}, &image)
		name := fmt.Sprintf("%s-%s-%d.png", strings.TrimSuffix(filepath.Base(file), ".html"), s.name, i+1)
		if err := os.WriteFile(filepath.Join(*screenshots, name), image.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
