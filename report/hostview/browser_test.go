//go:build linux

package hostview

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// probe runs around the pages, which have no script of their own, and leaves what it saw in the
// title. Each page is in a frame as wide as a screen.
const probe = `<script>
onload = () => {
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
  document.body.textContent = JSON.stringify(seen);
};
</script>`

// probed is what the probe saw of a page.
type probed struct {
	Sideways, Shown, Unlabelled, Unscoped int
	Tiny                                  []string
	Texts                                 [][2]any
	Background                            string
}

// screens are what pages are read on, with the sheet of the picture that is shown there.
var screens = []struct {
	name  string
	width int
	sheet sheet
}{{"phone", 390, phoneSheet}, {"laptop", 1400, pageSheet}}

// chromium shows a document and returns it after its scripts ran.
func chromium(t *testing.T, document string, flags ...string) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("chromium is needed where CI is set: %v; install it: apt-get install chromium", err)
		}
		t.Skipf("skipped: chromium is not installed: %v; to run this test: apt-get install chromium", err)
	}
	home, err := os.MkdirTemp("", "hostview-chromium-") // not t.TempDir: the name of a socket in it must stay short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	file := filepath.Join(home, "page.html")
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"--headless=new", "--no-sandbox", "--disable-gpu",
		"--no-first-run", "--disable-background-networking", "--disable-sync",
		"--hide-scrollbars", "--window-size=1500,1000", "--user-data-dir=" + filepath.Join(home, "profile"),
		"--dump-dom"}, append(flags, "file://"+file)...)...)
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home,
		"XDG_RUNTIME_DIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, log.Bytes())
	}
	return string(out)
}

// probePages shows pages on all screens.
func probePages(t *testing.T, pages map[string][]byte, flags ...string) map[string]probed {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!DOCTYPE html><meta charset=utf-8><title>probe</title>" + probe)
	for name, page := range pages {
		for _, s := range screens {
			fmt.Fprintf(&b, `<iframe name="%s on %s" style="width:%dpx;height:600px;border:0" srcdoc="%s"></iframe>`,
				name, s.name, s.width, html.EscapeString(string(page)))
		}
	}
	out := chromium(t, b.String(), flags...)
	_, out, _ = strings.Cut(out, "<body>")
	out, _, _ = strings.Cut(out, "</body>")
	var seen map[string]probed
	if err := json.Unmarshal([]byte(html.UnescapeString(out)), &seen); err != nil {
		t.Fatalf("%v in %.300s", err, out)
	}
	return seen
}

// A real browser finds every text where the layout put it: no wider than it was thought to be, and legible.
func TestChromiumShowsThePagesAsTheyWereLaidOut(t *testing.T) {
	t.Parallel()
	docs := map[string]*Document{"hostile": hostileDocument(), "planned": planned()}
	for _, c := range hostCases() {
		docs[c.name] = NewDocument(c.host, c.findings)
	}
	pages := map[string][]byte{}
	for name, d := range docs {
		pages[name] = written(t, func(b *bytes.Buffer) error { return d.WritePage(b) })
	}
	seen := probePages(t, pages)
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

func TestChromiumShowsADarkPageToThoseWhoWantOne(t *testing.T) {
	page := written(t, func(b *bytes.Buffer) error { return NewDocument(epyc(), epycFindings()).WritePage(b) })
	for name, p := range probePages(t, map[string][]byte{"epyc": page}, "--blink-settings=preferredColorScheme=0") {
		if p.Background != "rgb(20, 24, 29)" {
			t.Errorf("%s: the ground is %s", name, p.Background)
		}
	}
}
