//go:build linux

package hostview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/browsertest"
)

// probe measures pages without a script, each in a frame as wide as a screen.
const probe = `(() => {
  const seen = {};
  for (const f of document.querySelectorAll('iframe')) {
    const d = f.contentDocument, root = d.documentElement;
    for (const more of d.querySelectorAll('figure details')) more.open = true;
    const svgs = [...d.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width > 0);
    const tiny = [];
    for (const s of svgs) {
      const scale = s.getBoundingClientRect().width / s.viewBox.baseVal.width;
      for (const t of s.querySelectorAll('text'))
        if (parseFloat(getComputedStyle(t).fontSize) * scale < 9) tiny.push(t.textContent);
    }
    seen[f.name] = {
      sideways: root.scrollWidth - root.clientWidth, shown: svgs.length, tiny: tiny.slice(0, 3),
      texts: svgs.flatMap(s => [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBBox().width])),
      unlabelled: svgs.filter(s => !s.getAttribute('aria-labelledby').split(' ')
        .every(i => d.getElementById(i)?.textContent)).length,
      unscoped: d.querySelectorAll('th:not([scope])').length,
      background: getComputedStyle(d.body).backgroundColor,
    };
  }
  return JSON.stringify(seen);
})()`

type probed struct {
	Sideways, Shown, Unlabelled, Unscoped int
	Tiny                                  []string
	Texts                                 [][2]any
	Background                            string
}

var screens = []struct {
	name  string
	width int
	sheet sheet
}{{"phone", 390, phoneSheet}, {"laptop", 1400, pageSheet}}

func probePages(t *testing.T, b *browsertest.Browser, pages map[string][]byte, scheme string) map[string]probed {
	t.Helper()
	var frames strings.Builder
	frames.WriteString("<!DOCTYPE html><meta charset=utf-8><title>probe</title>")
	for name, page := range pages {
		for _, s := range screens {
			fmt.Fprintf(&frames, `<iframe name="%s on %s" style="width:%dpx;height:600px;border:0" `+
				`srcdoc="%s"></iframe>`, name, s.name, s.width, html.EscapeString(string(page)))
		}
	}
	file := filepath.Join(t.TempDir(), "pages.html")
	if err := os.WriteFile(file, []byte(frames.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	out := b.Open(t, file, browsertest.Screen{Name: scheme, Width: 1500, Height: 1000, Scheme: scheme,
		Media: "screen"}, probe)
	if len(out.Problems) > 0 {
		t.Errorf("the browser reported:\n%s", strings.Join(out.Problems, "\n"))
	}
	var seen map[string]probed
	if err := json.Unmarshal([]byte(out.Probe), &seen); err != nil {
		t.Fatalf("%v in %.300s", err, out.Probe)
	}
	return seen
}

// TestChromium uses one browser, because a start costs as much as several pages.
func TestChromium(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("pages are not shown to a browser with -short")
	}
	b := browsertest.Start(t)
	t.Run("shows the pages as they were laid out", func(t *testing.T) { showsThePagesAsTheyWereLaidOut(t, b) })
	t.Run("shows a dark page to those who want one", func(t *testing.T) { showsADarkPage(t, b) })
}

// A real browser shows every text at its position, no wider than computed.
func showsThePagesAsTheyWereLaidOut(t *testing.T, b *browsertest.Browser) {
	docs := map[string]*Document{"hostile": hostileDocument(), "planned": planned()}
	for _, c := range hostCases() {
		docs[c.name] = NewDocument(c.host, c.findings)
	}
	pages := map[string][]byte{}
	for name, d := range docs {
		pages[name] = written(t, func(b *bytes.Buffer) error { return d.WritePage(b) })
	}
	seen := probePages(t, b, pages, "light")
	for name, d := range docs {
		v := newView(d)
		for _, s := range screens {
			p := seen[name+" on "+s.name]
			var want []textShape
			for _, scene := range v.scenes() {
				want = append(want, s.sheet.layout(v, scene).Texts...)
			}
			if p.Sideways > 0 || p.Unlabelled > 0 || p.Unscoped > 0 || len(p.Tiny) > 0 {
				t.Errorf("%s on %s: scrolls sideways by %d, %d pictures without a name, %d heads without a scope, "+
					"too small: %q", name, s.name, p.Sideways, p.Unlabelled, p.Unscoped, p.Tiny)
			}
			if len(p.Texts) != len(want) {
				t.Errorf("%s on %s: %d texts are shown, want %d", name, s.name, len(p.Texts), len(want))
				continue
			}
			for i, text := range p.Texts {
				if text[0] != want[i].Text || text[1].(float64) > float64(want[i].W)+1 {
					t.Errorf("%s on %s: %q is %v wide, the layout says %q and %d", name, s.name, text[0], text[1],
						want[i].Text, want[i].W)
				}
			}
			if p.Background != "rgb(255, 255, 255)" {
				t.Errorf("%s on %s: the ground is %s", name, s.name, p.Background)
			}
		}
	}
}

func showsADarkPage(t *testing.T, b *browsertest.Browser) {
	page := written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), epycFindings()).WritePage(b) })
	for name, p := range probePages(t, b, map[string][]byte{"epyc": page}, "dark") {
		if p.Background != "rgb(20, 24, 29)" {
			t.Errorf("%s: the ground is %s", name, p.Background)
		}
	}
}
