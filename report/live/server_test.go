package live

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/fabric"
)

const token = "correct-horse-battery-staple"

func serve(t *testing.T, f *fake) string {
	t.Helper()
	ts := httptest.NewUnstartedServer(nil)
	// Tests with hanging sources wait this long.
	ts.Config.Handler = New(f, Options{Addr: ts.Listener.Addr().String(), Token: token, Version: "test <1>",
		Now: f.clock, Limit: 2 * time.Second})
	ts.Start()
	t.Cleanup(ts.Close)
	return ts.URL
}

// ask without change has the token.
func ask(t *testing.T, address string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change == nil {
		change = bearer(token)
	}
	change(req)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

var paths = []string{"/", "/metrics", "/labs/pair", "/labs/half", "/host", "/studies/demo",
	"/studies/demo/state?since=1", "/results/pair/20261122T200000Z",
	"/live.js", "/live.css", "/show.css", "/icon.svg"}

func TestOnlyWhoHasTheTokenIsAnswered(t *testing.T) {
	t.Parallel()
	base := serve(t, typical(t))
	port := base[strings.LastIndex(base, ":")+1:]
	cookie := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: value}) }
	}
	pass := (&guard{token: token}).pass()
	for name, change := range map[string]func(*http.Request){
		"no token":                   func(*http.Request) {},
		"a wrong bearer":             bearer("wrong"),
		"the beginning of the token": bearer(token[:len(token)-1]),
		"an empty bearer":            bearer(""),
		"basic authentication":       func(r *http.Request) { r.SetBasicAuth("user", token) },
		"two tokens": func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer wrong", "Bearer " + token}
		},
		"a wrong bearer with a right pass": func(r *http.Request) {
			bearer("wrong")(r)
			cookie("rackless-"+port, pass)(r)
		},
		"a wrong cookie":                 cookie("rackless-"+port, "wrong"),
		"the token as a cookie":          cookie("rackless-"+port, token),
		"the cookie of another port":     cookie("rackless-1", pass),
		"a wrong token in the query":     func(r *http.Request) { r.URL.RawQuery = "token=wrong" },
		"an empty token in the query":    func(r *http.Request) { r.URL.RawQuery = "token=" },
		"a wrong one first in the query": func(r *http.Request) { r.URL.RawQuery = "token=wrong&token=" + token },
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range append([]string{"/no/such/page"}, paths...) {
				resp, body := ask(t, base+path, change)
				if resp.StatusCode != http.StatusUnauthorized || strings.Contains(body, "pair") ||
					len(resp.Cookies()) > 0 {
					t.Errorf("%s: status %d, want 401 and nothing else\n%s", path, resp.StatusCode, body)
				}
			}
		})
	}
	for name, change := range map[string]func(*http.Request){
		"the token as a bearer": nil,
		"in small letters":      func(r *http.Request) { r.Header.Set("Authorization", "bearer "+token) },
		"the cookie":            cookie("rackless-"+port, pass),
		"localhost":             func(r *http.Request) { r.Host = "localhost:" + port; bearer(token)(r) },
		"HEAD":                  func(r *http.Request) { r.Method = http.MethodHead; bearer(token)(r) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range paths {
				resp, body := ask(t, base+path, change)
				if resp.StatusCode != http.StatusOK || (body == "") != (resp.Request.Method == http.MethodHead) {
					t.Errorf("%s: status %d, %d bytes", path, resp.StatusCode, len(body))
				}
			}
		})
	}
}

func TestTheTokenInTheAddressBecomesACookie(t *testing.T) {
	t.Parallel()
	base := serve(t, typical(t))
	resp, _ := ask(t, base+"/studies/demo?token="+token, func(*http.Request) {})
	if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || got != "/studies/demo" {
		t.Errorf("status %d, to %q; want 303 to the page without token", resp.StatusCode, got)
	}
	set := resp.Header.Get("Set-Cookie")
	for _, want := range []string{"; HttpOnly", "; SameSite=Strict", "; Path=/"} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie has no %q: %s", want, set)
		}
	}
	if strings.Contains(set, token) {
		t.Errorf("the cookie has the token in it: %s", set)
	}
	for path, want := range map[string]string{"//example.org/": "/example.org/", "///example.org": "/example.org",
		"/%2F/example.org": "/%2F/example.org", `/%5Cexample.org`: `/%5Cexample.org`} {
		resp, _ := ask(t, base+path+"?token="+token, func(*http.Request) {})
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("%s leads to %q, want %q", path, got, want)
		}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err = (&http.Client{Jar: jar}).Get(base + "/?token=" + token)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Request.URL.RawQuery != "" {
		t.Errorf("a browser arrives at %s with status %d", resp.Request.URL, resp.StatusCode)
	}
}

func TestOtherNamesAreRefused(t *testing.T) {
	t.Parallel()
	base := serve(t, typical(t))
	port := base[strings.LastIndex(base, ":")+1:]
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1", "127.0.0.1:1",
		"localhost.evil.example:" + port, "127.0.0.1.nip.io:" + port, "10.0.0.1:" + port, "0.0.0.0:" + port} {
		for _, path := range []string{"/", "/metrics", "/?token=" + token} {
			resp, body := ask(t, base+path, func(r *http.Request) { bearer(token)(r); r.Host = host })
			if resp.StatusCode != http.StatusForbidden || strings.Contains(body, "pair") || len(resp.Cookies()) > 0 {
				t.Errorf("host %s, %s: status %d, want 403", host, path, resp.StatusCode)
			}
		}
	}
	for _, host := range []string{"LOCALHOST:" + port, "[::1]:" + port, "127.0.0.1:" + port} {
		if resp, _ := ask(t, base+"/", func(r *http.Request) {
			bearer(token)(r)
			r.Host = host
		}); resp.StatusCode != http.StatusOK {
			t.Errorf("host %s: status %d, want 200", host, resp.StatusCode)
		}
	}
}

func TestNothingCanBeChanged(t *testing.T) {
	t.Parallel()
	base := serve(t, typical(t))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch,
		http.MethodOptions, "PROPFIND"} {
		for _, path := range []string{"/", "/metrics", "/studies/demo", "/?token=" + token} {
			resp, _ := ask(t, base+path, func(r *http.Request) { bearer(token)(r); r.Method = method })
			if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: status %d, allowed %q", method, path, resp.StatusCode, resp.Header.Get("Allow"))
			}
		}
	}
}

func TestEveryAnswerForbidsWhatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	base := serve(t, typical(t))
	inline := regexp.MustCompile(`<script[^>]*>[^<]|\son[a-z]+=|style=|javascript:`)
	foreign := regexp.MustCompile(`(src|href|action)="(https?:)?//`)
	for _, path := range append([]string{"/no/such/page"}, paths...) {
		resp, body := ask(t, base+path, nil)
		csp := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %q in %q", path, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		// The script for tables is the only one, with its hash in the policy.
		if !strings.Contains(csp, "script-src 'self' 'sha256-") && inline.MatchString(body) &&
			strings.Contains(resp.Header.Get("Content-Type"), "html") {
			t.Errorf("%s has something inline: %q", path, inline.FindString(body))
		}
		if found := foreign.FindString(body); found != "" {
			t.Errorf("%s leads elsewhere: %q", path, found)
		}
	}
}

func TestTheOverviewShowsEverything(t *testing.T) {
	t.Parallel()
	f := typical(t)
	base := serve(t, f)
	if _, body := ask(t, base+"/", nil); strings.Contains(body, "Mb/s") {
		t.Error("there is a rate at the first look")
	}
	f.pass(2 * time.Second)
	ask(t, base+"/", nil)
	f.pass(2 * time.Second)
	_, body := ask(t, base+"/", nil)
	for _, want := range []string{
		"2 labs with 5 nodes, 2 running; 2 studies, 1 running; 3 stored results.", "As of 2026-11-22 21:00:04 UTC",
		`Labs <span class="tag">emulated</span></h2>`, `<a href="/labs/half">half</a>`, "Not ready:", "vm00 is dead",
		`<td class="off">0 of 3</td>`, "the switch of lab half does not answer", "<td>2 of 2</td>",
		`<td class="n rate">3.00 Mb/s</td>`, "<td>1 impaired</td>", "last minute: at most 3.00 Mb/s",
		`<a href="/studies/contention">contention</a>`, "10 of 32 runs", "about 9 min",
		"placement=pin contention=cpu:2", "complete",
		`<a href="/results/pair/20261122T200000Z">`, "61 figures of ib_write_bw, ib_write_lat, iperf3",
		"1 failed, 1 ok", "unexpected end of JSON input", "rackless test &lt;1&gt;",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(body, `class="tag"`); n != 3 {
		t.Errorf("%d tags, want one in each section", n)
	}
	_, labs := ask(t, base+"/labs/pair", nil)
	_, half := ask(t, base+"/labs/half", nil)
	labs += half
	for _, want := range []string{"its machine did not answer within 1s", "no KVM: /dev/kvm is not there",
		"vm00 eth0", `<td class="n rate">1.00 Mb/s</td><td class="n rate">2.00 Mb/s</td>`, "delay 50us, loss 0.1%",
		"52\u202f211", "last minute: at most 2.00 Mb/s"} {
		if !strings.Contains(labs, want) {
			t.Errorf("the pages of the labs have no %q", want)
		}
	}
	if strings.Index(body, ">contention<") > strings.Index(body, ">demo<") {
		t.Error("the study that was begun last does not come first")
	}
	if t.Failed() {
		t.Log(body)
	}
}

func TestAnEmptyMachineSaysWhatToDoNext(t *testing.T) {
	t.Parallel()
	_, body := ask(t, serve(t, &fake{now: start})+"/", nil)
	for _, want := range []string{"Nothing runs, and nothing is stored yet", "rackless up examples/pair.yaml",
		"rackless study run examples/studies/demo.yaml", "rackless bench pair"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestAPartThatFailsIsSaidInItsPlace(t *testing.T) {
	t.Parallel()
	shown := map[string]string{"labs": `<a href="/labs/pair">`, "studies": "Does pinning help?",
		"results": "61 figures"}
	for part := range shown {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			f := typical(t)
			f.fail = map[string]error{part: errors.New("<b>the disk is gone</b>")}
			if part == "labs" {
				f.labs = nil
			}
			base := serve(t, f)
			resp, body := ask(t, base+"/", nil)
			if resp.StatusCode != http.StatusOK ||
				strings.Count(body, `<p class="bad">&lt;b&gt;the disk is gone&lt;/b&gt;</p>`) != 1 {
				t.Errorf("status %d, want the error once\n%s", resp.StatusCode, body)
			}
			for other, text := range shown {
				if other != part && !strings.Contains(body, text) {
					t.Errorf("%s are missing too", other)
				}
			}
			resp, body = ask(t, base+"/metrics", nil)
			if resp.StatusCode != http.StatusOK ||
				!strings.Contains(body, fmt.Sprintf("rackless_source_up{source=%q} 0\n", part)) {
				t.Errorf("status %d\n%s", resp.StatusCode, body)
			}
			for other := range shown {
				if other != part && !strings.Contains(body, fmt.Sprintf("rackless_source_up{source=%q} 1\n", other)) {
					t.Errorf("%s are down as well", other)
				}
			}
		})
	}
}

// A hanging source is read only once, however many readers come.
func TestAPartThatHangsDoesNotHoldThePage(t *testing.T) {
	t.Parallel()
	for part, want := range map[string]string{"labs": "61 figures", "fabric pair": "61 figures",
		"studies": "61 figures", "results": "Does pinning help?", "rdma pair": "61 figures"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			f := typical(t)
			f.stuck, f.hang = map[string]bool{part: true}, make(chan struct{})
			base := serve(t, f)
			t.Cleanup(func() { close(f.hang) })
			for range 3 {
				resp, body := ask(t, base+"/", nil)
				if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) ||
					strings.Contains(body, "no answer within 2s") != (part != "rdma pair") {
					t.Errorf("status %d, want the others and that it does not answer\n%s", resp.StatusCode, body)
				}
				f.pass(time.Minute)
			}
			if resp, body := ask(t, base+"/metrics", nil); resp.StatusCode != http.StatusOK ||
				!strings.Contains(body, "rackless_build_info") {
				t.Errorf("metrics: status %d\n%s", resp.StatusCode, body)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.calls[part] != 1 {
				t.Errorf("it was asked %d times, want once", f.calls[part])
			}
		})
	}
}

// A panic is reported in its place, and the server continues.
func TestAFaultOfAReaderDoesNotEndTheServer(t *testing.T) {
	t.Parallel()
	for part, path := range map[string]string{"labs": "/", "studies": "/studies/contention", "host": "/host",
		"result pair 20261122T200000Z": "/results/pair/20261122T200000Z", "fabric pair": "/", "results": "/"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			f := typical(t)
			f.panics = part
			base := serve(t, f)
			if _, body := ask(t, base+path, nil); !strings.Contains(body, "please report it: index out of range") {
				t.Errorf("it is not said:\n%s", body)
			}
			if resp, _ := ask(t, base+"/metrics", nil); resp.StatusCode != http.StatusOK {
				t.Errorf("metrics: status %d", resp.StatusCode)
			}
		})
	}
}

func TestManyReadersAreOneQuestion(t *testing.T) {
	t.Parallel()
	f := typical(t)
	base := serve(t, f)
	for range 5 {
		ask(t, base+"/", nil)
		ask(t, base+"/metrics", nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range []string{"labs", "fabric pair", "rdma pair", "studies", "results"} {
		if f.calls[what] != 1 {
			t.Errorf("%s was asked %d times while no time passed, want once", what, f.calls[what])
		}
	}
	if f.calls["rdma half"] != 0 {
		t.Error("nodes that are coming up were asked for their counters")
	}
}

func TestAPageDoesNotTouchTheNodes(t *testing.T) {
	t.Parallel()
	f := typical(t)
	ask(t, serve(t, f)+"/", nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls["rdma pair"] != 0 {
		t.Error("the nodes were asked for RDMA counters, which costs them CPU time")
	}
}

func TestOnlyWhatIsListedIsOpened(t *testing.T) {
	t.Parallel()
	f := typical(t)
	base := serve(t, f)
	for _, path := range []string{
		"/labs/none", "/labs/", "/labs/..%2fetc", "/labs/pair%00", "/labs/pair/x", "/host/", "/host/x",
		"/studies/..", "/studies/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/studies/none", "/studies/demo%00", "/studies/",
		"/studies/none/state?since=0", "/studies/demo/state", "/studies/demo/state?since=x",
		"/results/pair", "/results/pair/..", "/results/..%2f..%2fetc/passwd", "/results/%2e%2e/20261122T200000Z",
		"/results/pair/20261122T200000Z%2f..%2fx", "/results/%2fetc/passwd",
		"/results/pair/20261122T200000Z/report.json",
		"/live.html", "/../live.js.map", "/debug/pprof/", "/favicon.ico",
	} {
		resp, body := ask(t, base+path, nil)
		// to the clean path
		moved := resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusTemporaryRedirect
		if !moved && resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404\n%s", path, resp.StatusCode, body)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for what := range f.calls {
		if strings.HasPrefix(what, "study ") || strings.HasPrefix(what, "result ") {
			t.Errorf("the source was asked for %q", what)
		}
	}
}

func TestHostileNamesStayText(t *testing.T) {
	t.Parallel()
	const evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>?#/..&\x1b[2J\u202e\xff"
	f := typical(t)
	f.labs[1].Name, f.labs[1].Driver, f.labs[1].Reason = evil, evil, evil
	f.labs[1].Nodes[0] = Node{Name: evil, State: evil, Error: evil,
		NICs: []NIC{{Name: evil, Address: evil, RDMA: evil}}}
	f.fabrics[evil] = Fabric{Ports: []Port{
		{PortCounters: fabric.PortCounters{Name: evil}, Node: evil, NIC: evil, Impaired: evil},
		{PortCounters: fabric.PortCounters{Name: evil + "2"}, Node: evil, NIC: evil}}}
	f.rdma[evil] = []NodeRDMA{{Node: evil, Devices: []RDMADevice{{Name: evil, HW: map[string]uint64{evil: 1}}}}}
	f.studies[1].Name, f.studies[1].Question, f.studies[1].Cell = evil, evil, evil
	f.results[0].Lab, f.results[0].Time, f.results[0].Tests, f.results[1].Error = evil, evil, []string{evil}, evil
	f.results[0].Findings[0].ID = evil
	f.docs[evil] = f.docs["demo"]
	base := serve(t, f)
	_, body := ask(t, base+"/", nil)
	for _, bad := range []string{"<script>", "<img", "\x1b", "\u202e", "\xff"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %q from a name", bad)
		}
	}
	_, lab := ask(t, base+"/labs/"+url.PathEscape(evil), nil)
	if n := strings.Count(body+lab, "&lt;script&gt;"); n < 10 {
		t.Errorf("the name is shown %d times, want it in most places", n)
	}
	resp, text := ask(t, base+"/metrics", nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, `<img src=x onerror=alert(1)>`) ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("metrics: status %d, %s\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
	}
	for _, path := range []string{"/labs/" + url.PathEscape(evil), "/studies/" + url.PathEscape(evil),
		"/results/" + url.PathEscape(evil) + "/" +
			url.PathEscape(evil)} {
		if resp, _ := ask(t, base+path, nil); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
}

func TestThePageOfALabSaysWhichQueuePairTakesWhichSpine(t *testing.T) {
	t.Parallel()
	f := typical(t)
	sw := f.fabrics["pair"]
	for i := range maxPaths + 1 {
		sw.Flows = append(sw.Flows, fabric.FlowCounters{From: "vm00", To: "vm01", Via: "spine1", Proto: 17,
			SrcPort: uint16(50000 + i), DstPort: 4791, QP: new(uint32(0x123)), Frames: 5, Bytes: 1 << 20})
	}
	f.fabrics["pair"] = sw
	_, body := ask(t, serve(t, f)+"/labs/pair", nil)
	const row = `<tr><th scope="row">vm00</th><td>vm01</td><td>RoCE, port 50000</td><td>0x000123</td><td>spine1</td>` +
		`<td class="n">5</td><td class="n">1.00 MiB</td></tr>`
	if !strings.Contains(body, row) || strings.Contains(body, "port 50100") {
		t.Errorf("the page lacks %s, or has more than the busiest flows", row)
	}
	if _, body := ask(t, serve(t, typical(t))+"/labs/pair", nil); strings.Contains(body, "Paths between leaves") {
		t.Error("a lab with one switch has paths")
	}
}

func TestThePageOfAStudyIsLive(t *testing.T) {
	t.Parallel()
	f := typical(t)
	base := serve(t, f)
	resp, body := ask(t, base+"/studies/contention", nil)
	for _, want := range []string{`<a href="/">`, `data-source="/studies/contention/state?since=12"`, "10 of 32 runs",
		"about 9 min left", "<h2 id=\"effects-h\">", `<script src="/live.js" defer>`, "class=\"banner\""} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(body, "http-equiv") {
		t.Error("the page kept its own policy, which forbids the script that moves it")
	}
	// Style sheet and script have their hashes in the policy.
	if csp := resp.Header.Get("Content-Security-Policy"); strings.Count(csp, "'sha256-") != 2 {
		t.Errorf("policy %q", csp)
	}
	if _, state := ask(t, base+"/studies/contention/state?since=12", nil); strings.Contains(state, "new run") {
		t.Errorf("there are new runs at once: %s", state)
	}
	f.studies[1].Done, f.studies[1].Failed = 13, 1
	f.pass(time.Minute)
	if _, state := ask(t, base+"/studies/contention/state?since=12", nil); !strings.Contains(state,
		`<a class="new" href="/studies/contention">Show 4 new runs</a>`) {
		t.Errorf("no way to the new runs: %s", state)
	}
}

func TestAStudyThatShowsNothingYetSaysSo(t *testing.T) {
	t.Parallel()
	f := typical(t)
	f.studies[1].Done, f.studies[1].Disturbed, f.docs = 0, 0, nil
	resp, body := ask(t, serve(t, f)+"/studies/contention", nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "No run has ended yet.") ||
		!strings.Contains(body, "0 of 32 runs") || !strings.Contains(body, "no runs") {
		t.Errorf("status %d\n%s", resp.StatusCode, body)
	}
}

func TestThePageOfAResultLeadsBack(t *testing.T) {
	t.Parallel()
	f := typical(t)
	base := serve(t, f)
	_, body := ask(t, base+"/results/pair/20261122T200000Z", nil)
	if !strings.Contains(body, `<a href="/">`) || !strings.Contains(body, "<h1>Lab pair: 0.43 Gb/s</h1>") ||
		!strings.Contains(body, "0.43") {
		t.Errorf("got\n%s", body)
	}
	f.fail = map[string]error{"result pair 20261122T200000Z": errors.New("torn")}
	if resp, body := ask(t, base+"/results/pair/20261122T200000Z",
		nil); resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "torn") ||
		!strings.Contains(body, `<a href="/">`) {
		t.Errorf("status %d\n%s", resp.StatusCode, body)
	}
}

func TestMoreResultsThanAPageLists(t *testing.T) {
	t.Parallel()
	f := typical(t)
	for range MaxResults {
		f.results = append(f.results, Result{Lab: "old", Time: "x"})
	}
	_, body := ask(t, serve(t, f)+"/", nil)
	if !strings.Contains(body, "3 older: <code>rackless bench show --list</code>") {
		t.Error("it is not said that there are older ones")
	}
}

func TestFramedRefusesAPageItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"", "<html><head></head>\n<body>\n",
		"<head><meta http-equiv=\"Content-Security-Policy\" content=\"x\"></head><body>"} {
		if _, _, err := framed([]byte(page), nil, nil); err == nil {
			t.Errorf("%q: no error", page)
		}
	}
}
