//go:build linux

package live

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/browsertest"
)

// probe waits until the page has updated a given number of times, or half a minute. POKE requests an update at once,
// like a tab that comes to the front.
const probe = `(async () => {
  const moving = () => [...document.querySelectorAll('[data-live]')].map(e => e.outerHTML).join('\n');
  const marked = document.querySelector('.scroll, nav.frame'); // has to be the same element at the end
  marked?.focus?.();
  const first = moving(), focused = document.activeElement;
  let seen = first, moved = 0;
  for (let i = 0; i < 300 && moved < WANTED; i++) {
    POKE
    await new Promise(r => setTimeout(r, 100));
    const now = moving();
    if (now !== seen) { moved++; seen = now; }
  }
  const out = {
    moved, kept: !marked || marked.isConnected && document.activeElement === focused,
    rates: [...document.querySelectorAll('td.rate')].map(e => e.textContent),
    sparks: document.querySelectorAll('td.past svg').length,
    progress: document.querySelectorAll('progress').length,
    unscoped: document.querySelectorAll('th:not([scope])').length,
    uncaptioned: [...document.querySelectorAll('table')].filter(t => !t.caption?.textContent.trim()).length,
    unnamed: [...document.querySelectorAll('nav, section, [role=region], progress')].filter(e =>
      !e.getAttribute('aria-label') &&
      !document.getElementById(e.getAttribute('aria-labelledby') ?? '')?.textContent).length,
    mains: document.querySelectorAll('main').length, headings: document.querySelectorAll('h1').length,
    unreachable: [...document.querySelectorAll('.scroll')].filter(e =>
      e.scrollWidth > e.clientWidth && e.tabIndex !== 0).length,
    background: getComputedStyle(document.body).backgroundColor,
    broken: [...document.querySelectorAll('[data-live] thead th')].filter(e => {
      const r = document.createRange();
      r.selectNodeContents(e);
      return r.getClientRects().length > e.textContent.trim().split(/[ ,]+/).length;
    }).map(e => e.textContent),
    wide: [...document.querySelectorAll('body *')].filter(e =>
      !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)),
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    silence: document.getElementById('silence')?.textContent ?? '',
    address: location.href, links: [...document.links].map(a => a.getAttribute('href')),
    button: document.getElementById('pause')?.checkVisibility() ?? false,
  };
  document.activeElement?.blur?.();
  scrollTo(0, 0);
  return JSON.stringify(out);
})()`

type probed struct {
	Moved, Sparks, Progress, Unscoped, Uncaptioned, Unnamed, Mains, Headings, Unreachable, Sideways int
	Kept, Button                                                                                    bool
	Rates, Links, Wide, Broken                                                                      []string
	Background, Silence, Address                                                                    string
}

func browse(t *testing.T, b *browsertest.Browser, base, path, name string, s browsertest.Screen, script string) probed {
	t.Helper()
	seen := b.OpenServed(t, base+path+"?token="+token, name, s, script)
	if len(seen.Problems) > 0 {
		t.Errorf("the browser reported:\n%s", strings.Join(seen.Problems, "\n"))
	}
	var got probed
	if err := json.Unmarshal([]byte(seen.Probe), &got); err != nil {
		t.Fatalf("probe: %v in %q", err, seen.Probe)
	}
	if strings.Contains(got.Address, "token") {
		t.Errorf("the token stays in the address: %s", got.Address)
	}
	for what, n := range map[string]int{"table heads without scope": got.Unscoped,
		"tables without caption": got.Uncaptioned, "parts without a name": got.Unnamed,
		"wide tables that the keyboard does not reach": got.Unreachable, "pixels to scroll sideways": max(got.Sideways,
			0)} {
		if n != 0 {
			t.Errorf("%d %s, want none", n, what)
		}
	}
	if len(got.Broken) > 0 {
		t.Errorf("words that are broken into letters: %q", got.Broken)
	}
	if len(got.Wide) > 0 {
		t.Errorf("wider than the screen: %q", got.Wide)
	}
	if got.Mains != 1 || got.Headings != 1 || got.Silence != "" || got.Background != s.Background {
		t.Errorf("%d main parts, %d headings, said %q, background %s; want 1, 1, nothing, %s", got.Mains, got.Headings,
			got.Silence, got.Background, s.Background)
	}
	return got
}

const poke = "document.dispatchEvent(new Event('visibilitychange'));"

// wanted uses the page's own timer on the first screen only.
func wanted(moves int, s browsertest.Screen) string {
	how := poke
	if s.Name == browsertest.Screens[0].Name {
		how = ""
	}
	return strings.NewReplacer("WANTED", fmt.Sprint(moves), "POKE", how).Replace(probe)
}

func movingFake(t *testing.T) *fake {
	f := typical(t)
	f.moving = true
	return f
}

// serveHour has forty minutes of a lab's history, with a gap.
func serveHour(t *testing.T) string {
	t.Helper()
	f := typical(t)
	ts := httptest.NewUnstartedServer(nil)
	pages := New(f, Options{Addr: ts.Listener.Addr().String(), Token: token, Now: f.clock, Limit: 2 * time.Second})
	ts.Config.Handler = pages
	ts.Start()
	t.Cleanup(ts.Close)
	pages.s.past.opened("pair", f.now)
	for i := range 160 {
		f.pass(sampleEvery)
		for k := range f.rdma["pair"] {
			f.rdma["pair"][k].Devices[0].Port["port_xmit_packets"] += uint64(1000 + i*i%97*50)
		}
		if i == 70 {
			f.pass(8 * time.Minute)
		}
		pages.s.sample(t.Context(), i%4 == 0)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moving = true
	return ts.URL
}

// TestChromium uses one browser, because a start costs as much as several pages.
func TestChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("pages are not shown to a browser with -short")
	}
	b := browsertest.Start(t)
	for name, show := range map[string]func(*testing.T, *browsertest.Browser){
		"shows moving pages": showsMovingPages, "follows a study and pauses": followsAStudyAndPauses,
		"keeps open what was opened": keepsOpenWhatWasOpened, "says when the server is gone": saysWhenTheServerIsGone,
	} {
		t.Run(name, func(t *testing.T) { show(t, b) })
	}
}

func showsMovingPages(t *testing.T, b *browsertest.Browser) {
	base, hour := serve(t, movingFake(t)), serveHour(t)
	for _, s := range append(slices.Clone(browsertest.Screens), browsertest.Screen{Name: "narrow", Width: 320,
		Height: 640, Scheme: "light", Media: "screen", Background: "rgb(255, 255, 255)"}) {
		t.Run("overview on "+s.Name, func(t *testing.T) {
			got := browse(t, b, base, "/", "ui-overview", s, wanted(2, s))
			if got.Moved < 2 || !got.Kept {
				t.Errorf("the page moved %d times, want 2; what was in focus stays: %v", got.Moved, got.Kept)
			}
			if len(got.Rates) != 2 || got.Rates[1] == "–" || got.Sparks != 1 || got.Progress != 2 {
				t.Errorf("rates %q, %d pictures of the past, %d bars; want the second lab's, 1 and 2", got.Rates,
					got.Sparks, got.Progress)
			}
			if got.Button != (s.Media == "screen") {
				t.Errorf("the button to pause is shown: %v", got.Button)
			}
		})
		t.Run("lab on "+s.Name, func(t *testing.T) {
			got := browse(t, b, hour, "/labs/pair", "ui-lab", s, wanted(1, s))
			if got.Moved < 1 || !got.Kept || got.Sparks != 2 || !slices.Contains(got.Links, "/") {
				t.Errorf("the page moved %d times, what was in focus stays: %v, %d pictures of the past, links %q",
					got.Moved, got.Kept, got.Sparks, got.Links)
			}
		})
		t.Run("host on "+s.Name, func(t *testing.T) {
			// The tables of the machine have headings instead.
			script := strings.NewReplacer("All('table')", "All('[aria-labelledby] table')", "'nav, section,",
				"'nav, section[aria-labelledby],").Replace(wanted(0, s))
			if got := browse(t, b, base, "/host", "ui-host", s, script); !slices.Contains(got.Links, "/") {
				t.Errorf("no way back: %q", got.Links)
			}
		})
		if s.Name != "phone-light" && s.Name != "laptop-dark" && s.Name != "paper" {
			continue // tested elsewhere
		}
		t.Run("study on "+s.Name, func(t *testing.T) {
			got := browse(t, b, base, "/studies/contention", "ui-study", s, wanted(0, s))
			if !slices.Contains(got.Links, "/") {
				t.Errorf("no way back: %q", got.Links)
			}
		})
		t.Run("result on "+s.Name, func(t *testing.T) {
			if got := browse(t, b, base, "/results/pair/20261122T200000Z", "ui-result", s,
				wanted(0, s)); !slices.Contains(got.Links, "/") {
				t.Errorf("no way back: %q", got.Links)
			}
		})
	}
	phone, laptop := browsertest.Screens[0], browsertest.Screens[2]
	for _, s := range []browsertest.Screen{phone, laptop} {
		t.Run("empty on "+s.Name, func(t *testing.T) {
			browse(t, b, serve(t, &fake{moving: true, now: start}), "/", "ui-empty", s, wanted(1, s))
		})
		t.Run("hostile on "+s.Name, func(t *testing.T) {
			f := movingFake(t)
			evil := strings.Repeat("W", 200) + "<script>alert(1)</script>"
			f.labs[1].Name, f.labs[1].Reason, f.labs[0].Nodes[0].Name, f.labs[0].Nodes[1].Error = evil, evil, evil, evil
			f.fabrics[evil] = f.fabrics["pair"]
			f.studies[0].Name, f.studies[1].Question, f.results[0].Lab, f.results[2].Error = evil, evil, evil, evil
			base := serve(t, f)
			browse(t, b, base, "/", "ui-hostile", s, wanted(1, s))
			browse(t, b, base, "/labs/"+url.PathEscape(evil), "ui-hostile-lab", s, wanted(0, s))
		})
	}
}

// The page of a study announces finished runs. A paused page stays unchanged until it continues.
func followsAStudyAndPauses(t *testing.T, b *browsertest.Browser) {
	f := movingFake(t)
	f.onStudies = func(n int) {
		if n < 3 {
			return
		}
		f.studies = slices.Clone(f.studies) // pages may use the old slice
		f.studies[1].Done = 13
	}
	base := serve(t, f)
	seen := b.OpenServed(t, base+"/studies/contention?token="+token, "ui-study-new", browsertest.Screens[2],
		`(async () => {
  const before = document.querySelector('.new')?.textContent ?? 'nothing';
  for (let i = 0; i < 300 && !document.querySelector('.new'); i++) {
    `+poke+`
    await new Promise(r => setTimeout(r, 100));
  }
  const after = document.querySelector('.new')?.textContent;
  return before + ', then ' + after + ', ' + document.querySelector('progress').value;
})()`)
	if seen.Probe != "nothing, then Show 3 new runs, 13" || len(seen.Problems) > 0 {
		t.Errorf("got %q, %q; want that three new runs are offered", seen.Probe, seen.Problems)
	}
	seen = b.OpenServed(t, base+"/?token="+token, "ui-paused", browsertest.Screens[2], `(async () => {
  const wait = ms => new Promise(r => setTimeout(r, ms));
  const clock = document.getElementById('clock'), button = document.getElementById('pause');
  const until = async f => { for (let i = 0; i < 300 && !f(); i++) await wait(100); return f(); };
  const real = window.fetch;
  let asked = 0, open = 0;
  window.fetch = async (...what) => { asked++; open++; try { return await real(...what); } finally { open--; } };
  await until(() => asked > 0);
  button.click();
  await until(() => open === 0); // what was asked for before has come
  const still = clock.textContent, label = button.textContent, before = asked;
  await wait(1300); // longer than the page waits between two questions
  const held = clock.textContent === still && asked === before;
  button.click();
  return [label, held, await until(() => clock.textContent !== still)].join(' ');
})()`)
	if seen.Probe != "Go on true true" || len(seen.Problems) > 0 {
		t.Errorf("got %q, %q; want that it stands still and goes on", seen.Probe, seen.Problems)
	}
}

func keepsOpenWhatWasOpened(t *testing.T, b *browsertest.Browser) {
	f := movingFake(t)
	f.labs[1].Reason = assertion
	seen := b.OpenServed(t, serve(t, f)+"/labs/pair?token="+token, "ui-opened", browsertest.Screens[0], `(async () => {
  const details = document.querySelector('details'), clock = document.getElementById('clock');
  const first = clock.textContent;
  details.querySelector('summary').click();
  for (let i = 0; i < 300 && clock.textContent === first; i++) await new Promise(r => setTimeout(r, 100));
  return [details.isConnected, details.open, details.textContent.includes('kvm_buf_set_msrs')].join(' ');
})()`)
	if seen.Probe != "true true true" || len(seen.Problems) > 0 {
		t.Errorf("got %q, %q; want that the message stays open", seen.Probe, seen.Problems)
	}
}

func saysWhenTheServerIsGone(t *testing.T, b *browsertest.Browser) {
	f := movingFake(t)
	ts := httptest.NewUnstartedServer(nil)
	ts.Config.Handler = New(f, Options{Addr: ts.Listener.Addr().String(), Token: token, Now: f.clock})
	ts.Start()
	defer ts.Close()
	f.mu.Lock()
	f.onStudies = func(n int) {
		if n == 2 {
			go func() { // this request is cut off too
				ts.Listener.Close() // no new connection replaces a closed one
				ts.CloseClientConnections()
			}()
		}
	}
	f.mu.Unlock()
	seen := b.OpenServed(t, ts.URL+"/?token="+token, "ui-gone", browsertest.Screens[0], `(async () => {
  const silence = document.getElementById('silence');
  for (let i = 0; i < 300 && silence.hidden; i++) await new Promise(r => setTimeout(r, 100));
  return silence.textContent + ' ' + document.querySelectorAll('td.rate').length;
})()`)
	if want := "rackless ui does not answer: has it ended? These figures are old. 2"; seen.Probe != want {
		t.Errorf("got %q, want %q", seen.Probe, want)
	}
}
