package browsertest

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var site = flag.String("site", "", "open all pages of the site in this folder, which make site has built")

const siteProbe = `JSON.stringify({
	bytes: performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
		.reduce((n, e) => n + e.encodedBodySize, 0),
	links: [...document.querySelectorAll("a[href], img[src]")].map(e => e.href || e.src)
		.filter(a => a.startsWith(location.origin)),
	anchors: [...document.querySelectorAll("[id]")].map(e => e.id),
	sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth})`

const searchProbe = `document.getElementById("said").textContent + "\n" + document.getElementById("found").textContent`

// weight is in bytes of a page with all its resources.
const weight = 300_000

// Without other servers and without broken links.
func TestChromiumShowsTheSite(t *testing.T) {
	if *site == "" {
		t.Skip("opens the pages that make site has built: run with -site DIR")
	}
	files := os.DirFS(*site)
	pages, err := fs.Glob(files, "*.html")
	below, err2 := fs.Glob(files, "*/*.html")
	if pages = append(pages, below...); err != nil || err2 != nil || len(pages) < 40 {
		t.Fatalf("%d pages in %s: %v, %v", len(pages), *site, err, err2)
	}
	server := httptest.NewServer(compressed(http.FileServerFS(files)))
	defer server.Close()
	b := Start(t)
	type probed struct {
		Bytes, Sideways int
		Links, Anchors  []string
	}
	all := make(map[string]probed)
	for _, page := range pages {
		for _, s := range []Screen{Screens[0], Screens[3], Screens[4]} {
			name := strings.ReplaceAll(strings.TrimSuffix(page, ".html"), "/", "-")
			seen := b.OpenServed(t, server.URL+"/"+page, name, s, siteProbe)
			for _, p := range seen.Problems {
				t.Errorf("%s on %s: %s", page, s.Name, p)
			}
			var got probed
			if err := json.Unmarshal([]byte(seen.Probe), &got); err != nil {
				t.Fatalf("%s: %v in %q", page, err, seen.Probe)
			}
			if got.Sideways > 0 && s.Media == "screen" {
				t.Errorf("%s on %s: %d pixels to scroll sideways", page, s.Name, got.Sideways)
			}
			all[page] = got
		}
	}
	for page, p := range all {
		if p.Bytes > weight || p.Bytes == 0 {
			t.Errorf("%s weighs %d bytes with all that it loads, more than %d", page, p.Bytes, weight)
		}
		for _, link := range p.Links {
			u, err := url.Parse(link)
			if err != nil {
				t.Fatal(err)
			}
			target := strings.TrimPrefix(u.Path, "/")
			if target == "" || strings.HasSuffix(target, "/") {
				target += "index.html"
			}
			to, isPage := all[target]
			if _, err := os.Stat(filepath.Join(*site, target)); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if isPage && u.Fragment != "" && !slices.Contains(to.Anchors, u.Fragment) {
				t.Errorf("%s: no #%s in %s", page, u.Fragment, target)
			}
		}
	}
	for query, want := range map[string]string{"incast": "Incast: several senders", "RL402": "RL402: link MTU",
		"fabric+set": "Commands: rackless link set", "nothing-like-it": "0 sections have nothing-like-it"} {
		if seen := b.OpenServed(t, server.URL+"/search.html?q="+query, "search-"+query, Screens[0],
			searchProbe); !strings.Contains(seen.Probe, want) || len(seen.Problems) > 0 {
			t.Errorf("the search for %s finds %.2000q, and no %q; %q", query, seen.Probe, want, seen.Problems)
		}
	}
	file, err := filepath.Abs(filepath.Join(*site, "search.html"))
	if err != nil {
		t.Fatal(err)
	}
	seen := b.open(t, "file://"+file+"?q=incast", "file://"+filepath.Dir(file)+"/", "disk", Screens[4], searchProbe)
	if !strings.Contains(seen.Probe, "several senders") || len(seen.Problems) > 0 {
		t.Errorf("from a disk the search finds %.2000q; %q", seen.Probe, seen.Problems)
	}
}

func compressed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		r.Header.Del("Range")
		h.ServeHTTP(packed{w, z}, r)
	})
}

type packed struct {
	http.ResponseWriter
	to io.Writer
}

func (p packed) WriteHeader(status int) {
	p.Header().Del("Content-Length")
	p.ResponseWriter.WriteHeader(status)
}

func (p packed) Write(b []byte) (int, error) { return p.to.Write(b) }
