//go:build linux

package simview

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/internal/browsertest"
)

// Each screen shows both courses, in texts that can be read, and no page scrolls sideways.
func TestChromium(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("pages are not shown to a browser with -short")
	}
	r := simulated(t, "name: incast\ntopology: {form: star, hosts: 9, rate: 100Gbit}\nswitch: {buffer: 1MiB}\n"+
		"nic: {congestion: none}\ntraffic: [{pattern: incast, to: h0, senders: 8, bytes: 1MiB}]")
	var page bytes.Buffer
	text := "QUEUE  MEDIAN  P99  MOST  MARKED  DROPS  PAUSES  SENDER PAUSED  and more than a phone is wide\n"
	if err := Page(&page, r, text); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "incast.html")
	if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b := browsertest.Start(t)
	for _, s := range browsertest.Screens {
		if s.Name == "phone-dark" || s.Name == "laptop-light" {
			continue // colours and widths have been seen once each
		}
		seen := b.Open(t, file, s, "JSON.stringify("+browsertest.Measure+")")
		var m browsertest.Measured
		if err := json.Unmarshal([]byte(seen.Probe), &m); err != nil {
			t.Fatalf("%s: %v: %q", s.Name, err, seen.Problems)
		}
		if m.Charts != 2 || m.Sideways > 0 || m.Unlabelled > 0 || m.Unscoped > 0 || m.Background != s.Background {
			t.Errorf("%s: %d charts, want 2; scrolls sideways by %d, %d pictures without a name, %d heads without a "+
				"scope, background %s", s.Name, m.Charts, m.Sideways, m.Unlabelled, m.Unscoped, m.Background)
		}
		if len(m.Clipped)+len(m.Overlapping)+len(m.Tiny)+len(seen.Problems) > 0 {
			t.Errorf("%s: cut off %q, overlapping %q, too small %q, problems %q", s.Name, m.Clipped, m.Overlapping,
				m.Tiny, seen.Problems)
		}
	}
}
