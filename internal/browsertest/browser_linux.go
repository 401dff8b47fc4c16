package browsertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// TB is needed because a non-test package must not import package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

var screenshots = flag.String("screenshots", "", "write a picture of every page of the browser test into this folder")

// axe checks accessibility by the rules of WCAG 2.2 A and AA.
var axe = flag.String("axe", "", "judge every page of the browser tests by the axe-core in this `FILE`, axe.min.js")

const axeRun = `
axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r =>
	r.violations.map(v => "axe: " + v.id + " (" + v.impact + "): " + v.help + ": " +
		v.nodes.length + ", such as " + v.nodes.slice(0, 3).map(n => n.target + " " + n.failureSummary)).join("\x00"))`

// A Screen is a device that pages are tested on.
type Screen struct {
	Name          string
	Width, Height int
	Scheme, Media string
	Background    string // proves that the scheme took effect
}

// Screens are the devices for testing pages.
var Screens = []Screen{
	{"phone-light", 390, 844, "light", "screen", "rgb(255, 255, 255)"},
	{"phone-dark", 390, 844, "dark", "screen", "rgb(20, 24, 29)"},
	{"laptop-light", 1440, 900, "light", "screen", "rgb(255, 255, 255)"},
	{"laptop-dark", 1440, 900, "dark", "screen", "rgb(20, 24, 29)"},
	// A4 with Chromium's margins, at 96 dots an inch
	{"paper", 717, 1046, "dark", "print", "rgb(255, 255, 255)"},
}

// A Browser speaks the DevTools protocol over two pipes, with JSON messages that end with a zero byte.
type Browser struct {
	to, from *os.File
	in       *bufio.Reader
	last     int
	events   []message
	tab      string // opening one for each page costs as much as showing the page
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

const limit = 60 * time.Second

// Start starts Chromium, which the test's cleanup ends.
func Start(t TB) *Browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("chromium is needed where CI is set: %v; install it: apt-get install chromium", err)
		}
		t.Skipf("skipped: chromium is not installed: %v; to run this test: apt-get install chromium", err)
	}
	home, err := os.MkdirTemp("", "page-chromium-") // t.TempDir is too long for the name of a socket in it
	if err != nil {
		t.Fatal(err)
	}
	childIn, to, err1 := os.Pipe()
	from, childOut, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	// Without features that make requests of their own or wait for a desktop. One renderer for each page would take 1.5
	// times as long.
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad",
		"--hide-scrollbars", "--renderer-process-limit=1", "--user-data-dir="+filepath.Join(home, "profile"),
		"--remote-debugging-pipe")
	var log bytes.Buffer
	cmd.Stderr = &log // all processes of Chromium inherit it, so Wait waits for all of them
	cmd.WaitDelay = 10 * time.Second
	cmd.ExtraFiles = []*os.File{childIn, childOut}
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home,
		"XDG_RUNTIME_DIR="+home)
	// Chromium starts a dozen processes that survive the first one's death.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	childIn.Close()
	childOut.Close()
	b := &Browser{to: to, from: from, in: bufio.NewReader(from)}
	t.Cleanup(func() {
		to.Close() // Chromium exits when its pipe closes, unless it hangs
		from.Close()
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("end chromium: %v", err)
		}
		cmd.Wait() // returns the error "killed"
		if t.Failed() {
			t.Logf("chromium's own log:\n%s", log.Bytes())
		}
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("remove chromium's profile: %v", err)
		}
	})
	return b
}

// call keeps events that arrive before its answer.
func (b *Browser) call(t TB, session, method string, params, result any) {
	t.Helper()
	b.last++
	command := object{"id": b.last, "method": method, "params": params}
	if session != "" {
		command["sessionId"] = session
	}
	line, err := json.Marshal(command)
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

func (b *Browser) next(t TB, waiting string) message {
	t.Helper()
	if err := b.from.SetReadDeadline(time.Now().Add(limit)); err != nil {
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

// Seen describes a page as the browser showed it.
type Seen struct {
	Probe    string
	Problems []string // and foreign requests
}

type object = map[string]any

// Open loads a file and evaluates the probe: JavaScript that returns a string or a promise of one.
func (b *Browser) Open(t TB, file string, s Screen, probe string) Seen {
	t.Helper()
	address := (&url.URL{Scheme: "file", Path: file}).String()
	return b.open(t, address, address, strings.TrimSuffix(filepath.Base(file), ".html"), s, probe)
}

// OpenServed is like Open for a page of a server. Requests to other servers and error statuses are problems.
func (b *Browser) OpenServed(t TB, address, name string, s Screen, probe string) Seen {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return b.open(t, address, u.Scheme+"://"+u.Host+"/", name, s, probe)
}

// judge evaluates axe-core's source, because pages forbid foreign scripts.
func (b *Browser) judge(t TB, tab string) []string {
	t.Helper()
	program, err := os.ReadFile(*axe)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Result           struct{ Value string }
		ExceptionDetails json.RawMessage
	}
	b.call(t, tab, "Runtime.evaluate", object{"expression": string(program) + ";" + axeRun, "returnByValue": true,
		"awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		return []string{"axe: " + string(answer.ExceptionDetails)}
	}
	return strings.FieldsFunc(answer.Result.Value, func(r rune) bool { return r == 0 })
}

func (b *Browser) open(t TB, address, own, name string, s Screen, probe string) Seen {
	t.Helper()
	if b.tab == "" {
		b.tab = b.newTab(t)
	}
	tab := b.tab
	b.load(t, "about:blank") // late requests of the previous page
	b.call(t, tab, "Emulation.setDeviceMetricsOverride", object{"width": s.Width, "height": s.Height,
		"deviceScaleFactor": 1, "mobile": s.Width < 800}, nil)
	b.call(t, tab, "Emulation.setEmulatedMedia",
		object{"media": s.Media, "features": []object{{"name": "prefers-color-scheme", "value": s.Scheme}}}, nil)
	b.load(t, address)
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
	if *axe != "" && s.Media == "screen" {
		out.Problems = append(out.Problems, b.judge(t, tab)...)
	}
	for _, m := range b.events {
		// Tabs that were open before may still send events.
		if problem := m.problem(own); m.SessionID == tab && problem != "" {
			out.Problems = append(out.Problems, problem)
		}
	}
	if *screenshots != "" {
		b.screenshot(t, tab, name, s)
	}
	return out
}

func (b *Browser) newTab(t TB) string {
	t.Helper()
	var target struct{ TargetID, SessionID string }
	b.call(t, "", "Target.createTarget", object{"url": "about:blank"}, &target)
	b.call(t, "", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &target)
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(t, target.SessionID, domain+".enable", object{}, nil)
	}
	return target.SessionID
}

func (b *Browser) load(t TB, address string) {
	t.Helper()
	b.events = nil
	b.call(t, b.tab, "Page.navigate", object{"url": address}, nil)
	loaded := func(m message) bool { return m.SessionID == b.tab && m.Method == "Page.loadEventFired" }
	for !slices.ContainsFunc(b.events, loaded) {
		b.next(t, "load of "+address)
	}
}

func (m message) problem(own string) string {
	switch m.Method {
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		if err := json.Unmarshal(m.Params, &p); err != nil {
			return err.Error()
		}
		// Chromium also reports pictures embedded in the page as requests.
		if !strings.HasPrefix(p.Request.URL, own) && !strings.HasPrefix(p.Request.URL, "data:image/svg+xml;base64,") {
			return "request for " + p.Request.URL
		}
	case "Network.webSocketCreated", "Network.webTransportCreated", "Runtime.consoleAPICalled",
		"Runtime.exceptionThrown", "Log.entryAdded":
		return m.Method + " " + string(m.Params) // the pages print nothing
	}
	return ""
}

func (b *Browser) screenshot(t TB, tab, page string, s Screen) {
	t.Helper()
	const piece, most = 1600, 8
	var layout struct{ CSSContentSize struct{ Height float64 } }
	b.call(t, tab, "Page.getLayoutMetrics", object{}, &layout)
	for i := 0; i < most && float64(i*piece) < layout.CSSContentSize.Height; i++ {
		height := min(piece, layout.CSSContentSize.Height-float64(i*piece))
		var image struct{ Data []byte }
		b.call(t, tab, "Page.captureScreenshot", object{"captureBeyondViewport": true,
			"clip": object{"x": 0, "y": i * piece, "width": s.Width, "height": height, "scale": 1}}, &image)
		name := fmt.Sprintf("%s-%s-%d.png", page, s.Name, i+1)
		if err := os.WriteFile(filepath.Join(*screenshots, name), image.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
